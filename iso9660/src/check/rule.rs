//! The rules: one line each, with a code that never changes, how bad a breach is, and where it is written down.
//!
//! ```text
//! Error    a reader may fail, or show other bytes than another reader
//! Warning  against the letter or against caution, but known writers do it and known readers cope
//! Note     worth knowing; nothing is wrong
//! ```
//!
//! The list is the documentation: `golden/iso9660/rules.txt` is printed from it, so that neither can drift.

use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Against the letter or against caution; known readers cope.
    Warning,
    /// A reader may fail, or show other bytes than another reader.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

macro_rules! rules {
    ($($name:ident $code:literal $severity:ident $section:literal $text:literal)*) => {
        /// A rule that an image is held to.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = $text] $name,)*
        }

        impl Rule {
            /// All rules, in the order of the structures of an image.
            pub const ALL: &'static [Rule] = &[$(Rule::$name,)*];

            /// The name of the rule for machines: lower case with hyphens, never changed.
            pub fn code(self) -> &'static str {
                match self { $(Rule::$name => $code,)* }
            }

            /// How bad a breach is.
            pub fn severity(self) -> Severity {
                match self { $(Rule::$name => Severity::$severity,)* }
            }

            /// The section of the specification that says so.
            pub fn section(self) -> &'static str {
                match self { $(Rule::$name => $section,)* }
            }

            /// What must hold.
            pub fn text(self) -> &'static str {
                match self { $(Rule::$name => $text,)* }
            }
        }
    };
}

rules! {
    ImageTruncated "image-truncated" Error "ECMA-119 8.4.8"
        "The image is as long as its volume space size says."
    ImageLength "image-length" Warning "ECMA-119 6.1.2"
        "The image is a whole number of sectors; USB gadgets drop the rest."
    BytesAfterVolume "bytes-after-volume" Warning "ECMA-119 8.4.8"
        "Nothing follows the volume, except in images with a partition table."
    CheckIncomplete "check-incomplete" Error "budget"
        "The image is small enough to be checked to its end within the budgets."
    UnusedNotZero "unused-not-zero" Note "practice"
        "What no structure and no file accounts for is zero; writers may leave marks of their own there."
    ExtentOutside "extent-outside" Error "ECMA-119 6.4.1"
        "The extent of a file lies inside the volume."
    ExtentsOverlap "extents-overlap" Error "ECMA-119 6.4.1"
        "Two extents do not overlap, unless they are the same one (hard links)."
    HierarchiesDiffer "hierarchies-differ" Warning "Joliet, Overview"
        "All hierarchies lead to the same extents; writers can be told to hide files from one of them."

    PrimaryMissing "primary-missing" Error "ECMA-119 6.7.1"
        "The descriptors begin with a Primary Volume Descriptor in sector 16."
    DescriptorType "descriptor-type" Error "ECMA-119 8.1.1"
        "A descriptor is of a type that the standard defines, with CD001 behind it."
    DescriptorVersion "descriptor-version" Error "ECMA-119 8.1.3"
        "The version of a descriptor is 1, or 2 for an Enhanced Volume Descriptor."
    DescriptorReserved "descriptor-reserved" Error "ECMA-119 8.2 to 8.5"
        "The reserved fields of a descriptor are zero."
    DescriptorByteOrders "descriptor-byte-orders" Error "ECMA-119 7.2.3, 7.3.3"
        "Both byte orders of a descriptor's number agree."
    DescriptorsDiffer "descriptors-differ" Error "ECMA-119 8.5"
        "All descriptors give the same volume space size."
    TerminatorMissing "terminator-missing" Error "ECMA-119 6.7.1.6"
        "The descriptors end with a Volume Descriptor Set Terminator."
    VolumeSet "volume-set" Error "ECMA-119 8.4.11, 8.4.12"
        "The volume is the first of a set of one."
    BlockSize "block-size" Error "ECMA-119 8.4.13"
        "Logical blocks have 2048 bytes: readers take no other."
    DescriptorText "descriptor-text" Warning "ECMA-119 7.4, 8.4"
        "A text field holds its characters and is padded with spaces; labels may hold a-z, - and . too."
    DescriptorDate "descriptor-date" Error "ECMA-119 8.4.26.1"
        "A date of a descriptor is a date, or unspecified."
    FileStructureVersion "file-structure-version" Error "ECMA-119 8.4.30"
        "The file structure version is 1, or 2 in an Enhanced Volume Descriptor."
    EscapeSequences "escape-sequences" Error "Joliet, SVD"
        "The escape sequences are one of %/@ %/C %/E, or none in an Enhanced Volume Descriptor."
    VolumeFlags "volume-flags" Warning "ECMA-119 8.5.3"
        "The volume flags are zero: the escape sequences are registered ones."
    RootRecord "root-record" Error "ECMA-119 8.4.18"
        "A descriptor holds a record of its root directory, 34 bytes long."
    ApplicationUse "application-use" Note "ECMA-119 8.4.31"
        "The field for the application is empty."
    ImplantedDigest "implanted-digest" Note "implantisomd5"
        "There is no record of implantisomd5: it ends to be true when the image is changed."
    DescriptorUnknown "descriptor-unknown" Note "ECMA-119 8.5, 8.6"
        "There are no descriptors that this check does not know; theirs is not checked."
    UdfNotChecked "udf-not-checked" Note "ECMA-167 2/8"
        "There is no UDF file system beside ISO 9660; its structures are not checked here."

    DirectoryLength "directory-length" Error "ECMA-119 6.8.1.3"
        "A directory has at least one sector and only whole ones."
    DirectoryOutside "directory-outside" Error "ECMA-119 6.8.1"
        "A directory lies inside the volume."
    DirectoryLoop "directory-loop" Error "ECMA-119 6.8.2"
        "A directory is in one place of the hierarchy."
    DirectoryPadding "directory-padding" Error "ECMA-119 6.8.1.1"
        "What the records leave of a sector is zero."
    DirectoryOrder "directory-order" Error "ECMA-119 9.3"
        "The records of a directory are in order."
    SelfRecord "self-record" Error "ECMA-119 6.8.2.2"
        "A directory begins with a record of itself."
    ParentRecord "parent-record" Error "ECMA-119 6.8.2.2"
        "The second record of a directory is that of its parent."
    SupplementaryParentRecord "supplementary-parent-record" Warning "ECMA-119 6.8.2.2"
        "In the hierarchies of supplementary descriptors too; xorriso 1.5.4 writes the directory itself there."
    RecordLength "record-length" Error "ECMA-119 9.1.1"
        "A record is as long as its parts, and even."
    RecordCrossesSector "record-crosses-sector" Error "ECMA-119 6.8.1.1"
        "A record ends in the sector it begins in."
    RecordIdentifier "record-identifier" Error "ECMA-119 9.1.10"
        "The identifier of a record has at least one byte and ends inside it."
    RecordPadding "record-padding" Error "ECMA-119 9.1.12"
        "The byte that pads an identifier is zero."
    RecordByteOrders "record-byte-orders" Error "ECMA-119 7.2.3, 7.3.3"
        "Both byte orders of a record's number agree."
    RecordDate "record-date" Error "ECMA-119 9.1.5"
        "The date of a record is a date, or all zero."
    RecordFlags "record-flags" Error "ECMA-119 9.1.6"
        "The flags of a record are defined ones, and those of directories fit directories."
    RecordInterleaved "record-interleaved" Error "ECMA-119 9.1.7, 9.1.8"
        "No file is interleaved: readers do not read those."
    RecordVolume "record-volume" Error "ECMA-119 9.1.9"
        "The extent of a record is on this volume."
    ExtendedAttributes "extended-attributes" Note "ECMA-119 9.5"
        "No record has extended attributes; they are not checked."
    SystemUseUnknown "system-use-unknown" Note "ECMA-119 9.1.13"
        "A hierarchy without SUSP leaves the system use area of its records empty."
    FileSections "file-sections" Error "ECMA-119 6.5.1, 9.1.6"
        "The records of one file follow each other, only the last is final, all others are whole blocks."
    IdentifierDuplicate "identifier-duplicate" Error "ECMA-119 7.5, 9.3"
        "An identifier is in a directory once."
    IdentifierUnsafe "identifier-unsafe" Error "ECMA-119 7.5"
        "An identifier has no control characters and no slash."
    IdentifierCharacters "identifier-characters" Warning "ECMA-119 7.5.1, 7.6.1"
        "An identifier is of d-characters; writers can be told to relax that."
    IdentifierForm "identifier-form" Warning "ECMA-119 7.5.1, 7.6.1"
        "A file has a name, one dot, an extension and a version; a directory has its name only."
    IdentifierLength "identifier-length" Warning "ECMA-119 7.5.1, 7.6.3"
        "A file identifier has 30 characters without its separators and version, that of a directory 31."
    PathDepth "path-depth" Warning "ECMA-119 6.8.2.1"
        "Directories are on 8 levels at most; xorriso writes deeper ones unless told to relocate."
    PathLength "path-length" Warning "ECMA-119 6.8.2.1"
        "The identifiers of a path have 255 bytes at most."
    JolietIdentifier "joliet-identifier" Error "Joliet, Allowed Character Set"
        "A Joliet identifier is of 16-bit characters, without control characters and slash."
    JolietCharacters "joliet-characters" Warning "Joliet, Allowed Character Set"
        "A Joliet identifier has none of * : ; ? \\ and no half of a surrogate pair."

    PathTableOutside "path-table-outside" Error "ECMA-119 8.4.14 to 8.4.17"
        "A path table lies inside the volume."
    PathTableSize "path-table-size" Error "ECMA-119 8.4.14"
        "The path table size is the sum of the records."
    PathTableRecord "path-table-record" Error "ECMA-119 9.4"
        "A path table record has an identifier, no extended attributes and zero as padding."
    PathTableDirectory "path-table-directory" Error "ECMA-119 6.9"
        "A path table names every directory of the hierarchy once, and nothing else."
    PathTableParent "path-table-parent" Error "ECMA-119 9.4.4"
        "A path table gives every directory its parent."
    PathTableOrder "path-table-order" Error "ECMA-119 6.9.1"
        "A path table is in the order of levels, parents and identifiers."

    SuspStart "susp-start" Error "SUSP 5.3"
        "SP is the first entry of the root's record of itself and in no other record."
    SuspEntry "susp-entry" Error "SUSP 4.1"
        "A system use entry has a known version and ends inside its area."
    SuspPadding "susp-padding" Error "SUSP 4"
        "What the entries leave of a system use area is zero."
    SuspByteOrders "susp-byte-orders" Error "SUSP 2.2"
        "Both byte orders of a system use entry's number agree."
    SuspUnknown "susp-unknown" Note "SUSP 4.1"
        "Every system use entry is of a known kind."
    ContinuationOutside "continuation-outside" Error "SUSP 5.1"
        "A continuation area lies inside the volume and inside one block."
    ContinuationLoop "continuation-loop" Error "SUSP 5.1"
        "A record leads to a continuation area once, and to a bounded number of them."
    ExtensionReference "extension-reference" Error "SUSP 5.5"
        "An ER entry is as long as its texts and stands in the root's record of itself."
    RockRidgeUnannounced "rock-ridge-unannounced" Warning "RRIP 4.3"
        "Where there are Rock Ridge entries an ER entry announces a version of it."
    RockRidgeEntry "rock-ridge-entry" Error "RRIP 4.1"
        "A Rock Ridge entry has the length of its kind and is there once."
    RockRidgeMissing "rock-ridge-missing" Warning "RRIP 4.1.1"
        "Every record has a PX entry with a mode when Rock Ridge is in use; genisoimage leaves some of RR_MOVED 0."
    RockRidgeMode "rock-ridge-mode" Error "RRIP 4.1.1"
        "The file type of a PX entry fits the record: directories, links with SL, devices with PN."
    RockRidgeLinks "rock-ridge-links" Warning "RRIP 4.1.1"
        "The links of a directory are 2 and one for each subdirectory, or 1 where they are not counted."
    RockRidgeDate "rock-ridge-date" Error "RRIP 4.1.6"
        "The dates of a TF entry are dates, or unspecified."
    RockRidgeName "rock-ridge-name" Error "RRIP 4.1.4"
        "A Rock Ridge name is a single component of at most 255 bytes."
    RockRidgeDuplicate "rock-ridge-duplicate" Error "RRIP 4.1.4"
        "A Rock Ridge name is in a directory once."
    RockRidgeLink "rock-ridge-link" Error "RRIP 4.1.3"
        "The components of a symbolic link end inside their entry, in a target of at most 4096 bytes."
    RockRidgeRelocation "rock-ridge-relocation" Error "RRIP 4.1.5"
        "CL, PL and RE agree about where a relocated directory belongs."
    CompressedFile "compressed-file" Error "zisofs"
        "A ZF entry has a known method and block size."

    BootRecordPlace "boot-record-place" Error "El Torito 2.0"
        "The boot record of El Torito is in sector 17: firmware looks nowhere else."
    BootCatalogOutside "boot-catalog-outside" Error "El Torito 2.0"
        "The boot catalog lies inside the image."
    BootCatalogValidation "boot-catalog-validation" Error "El Torito 2.1"
        "The boot catalog begins with a validation entry with the right sum."
    BootCatalogEntry "boot-catalog-entry" Error "El Torito 2.2 to 2.4"
        "The entries of the boot catalog are of known kinds, as many as their headers say, with reserved bytes zero."
    BootImageOutside "boot-image-outside" Error "El Torito 2.2"
        "What a boot entry loads lies inside the image."
    BootInfoTable "boot-info-table" Error "isolinux"
        "The boot info table of a boot image has its address, its length and its sum."

    SystemAreaUnknown "system-area-unknown" Note "ECMA-119 6.2.1"
        "The system area is empty or begins with a partition table."
    MbrPartition "mbr-partition" Error "UEFI 5.2.1"
        "The partitions of an MBR have a known status and lie inside the image."
    GptHeader "gpt-header" Error "UEFI 5.3.2"
        "A GPT header has its signature, size, sums and address."
    GptEntries "gpt-entries" Error "UEFI 5.3.3"
        "The partition entries have the right sum and lie inside the usable range."
    GptBackup "gpt-backup" Error "UEFI 5.3.2"
        "The backup of a GPT is at the end of the image and says the same."

    NamesFoldCase "names-fold-case" Warning "practice"
        "No two names of a directory differ in case only: Windows shows one of them."
    NamesFoldDot "names-fold-dot" Warning "practice"
        "No two names of a directory differ in dots and spaces at their ends only: readers drop those."
    NamesFoldUnicode "names-fold-unicode" Warning "Unicode Annex 15"
        "No two names of a directory are the same text in other normal forms (NFC, NFD)."
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.code())
    }
}
