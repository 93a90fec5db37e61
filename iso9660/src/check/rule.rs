//! The rules of the checker, each with a stable code, a severity and a section of the specification.
//!
//! ```text
//! Error    a reader may fail, or show other bytes than another reader
//! Warning  a breach of the specification or a risk, which known writers produce and known readers accept
//! Note     information, no fault
//! ```
//!
//! The list is the documentation: `golden/iso9660/rules.txt` is generated from it.

use std::fmt;

/// The severity of a rule.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// Information, no fault.
    Note,
    /// A breach of the specification or a risk, which known readers accept.
    Warning,
    /// A reader may fail, or show other bytes than another reader.
    Error,
}

impl Severity {
    /// All severities, the lowest first.
    pub const ALL: [Severity; 3] = [Severity::Note, Severity::Warning, Severity::Error];
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
        /// A rule that an image must satisfy.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = $text] $name,)*
        }

        impl Rule {
            /// All rules, in the order of the structures of an image.
            pub const ALL: &'static [Rule] = &[$(Rule::$name,)*];

            /// Returns the stable code of the rule: lower case with hyphens.
            pub fn code(self) -> &'static str {
                match self { $(Rule::$name => $code,)* }
            }

            /// Returns the severity of a breach.
            pub fn severity(self) -> Severity {
                match self { $(Rule::$name => Severity::$severity,)* }
            }

            /// Returns the section of the specification that contains the rule.
            pub fn section(self) -> &'static str {
                match self { $(Rule::$name => $section,)* }
            }

            /// Returns the text of the rule.
            pub fn text(self) -> &'static str {
                match self { $(Rule::$name => $text,)* }
            }
        }
    };
}

rules! {
    ImageTruncated "image-truncated" Error "ECMA-119 8.4.8"
        "The image is at least as long as its volume space size."
    ImageLength "image-length" Warning "ECMA-119 6.1.2"
        "The image is a whole number of sectors; USB gadgets drop the rest."
    BytesAfterVolume "bytes-after-volume" Warning "ECMA-119 8.4.8"
        "Nothing follows the volume, except in images with a partition table."
    CheckIncomplete "check-incomplete" Error "budget"
        "The image is small enough to be checked to its end within the budgets."
    UnusedNotZero "unused-not-zero" Note "practice"
        "Bytes that no structure and no file uses are zero; some writers leave marks there."
    ExtentOutside "extent-outside" Error "ECMA-119 6.4.1"
        "The extent of a file is inside the volume."
    ExtentsOverlap "extents-overlap" Error "ECMA-119 6.4.1"
        "Two extents do not overlap, unless they are equal (hard links)."
    HierarchiesDiffer "hierarchies-differ" Warning "Joliet, Overview"
        "All hierarchies refer to equal extents; writers have options to hide files from one of them."

    PrimaryMissing "primary-missing" Error "ECMA-119 6.7.1"
        "The descriptors begin with a Primary Volume Descriptor in sector 16."
    DescriptorType "descriptor-type" Error "ECMA-119 8.1.1"
        "A descriptor has a type that the standard defines, followed by CD001."
    DescriptorVersion "descriptor-version" Error "ECMA-119 8.1.3"
        "The version of a descriptor is 1, or 2 for an Enhanced Volume Descriptor."
    DescriptorReserved "descriptor-reserved" Error "ECMA-119 8.2 to 8.5"
        "The reserved fields of a descriptor are zero."
    DescriptorByteOrders "descriptor-byte-orders" Error "ECMA-119 7.2.3, 7.3.3"
        "Both byte orders of a descriptor's number agree."
    DescriptorsDiffer "descriptors-differ" Error "ECMA-119 8.5"
        "No descriptor gives a larger volume space size than the first one."
    DescriptorsShorter "descriptors-shorter" Warning "ECMA-119 8.5"
        "All descriptors give the same volume space size; xorriso omits an appended partition from all but the first."
    TerminatorMissing "terminator-missing" Error "ECMA-119 6.7.1.6"
        "The descriptors end with a Volume Descriptor Set Terminator."
    VolumeSet "volume-set" Error "ECMA-119 8.4.11, 8.4.12"
        "The volume is the first of a set of one."
    BlockSize "block-size" Error "ECMA-119 8.4.13"
        "Logical blocks have 2048 bytes: readers support no other size."
    DescriptorText "descriptor-text" Warning "ECMA-119 7.4, 8.4"
        "A text field has only its allowed characters and is padded with spaces; labels may have a-z, - and . too."
    DescriptorDate "descriptor-date" Error "ECMA-119 8.4.26.1"
        "A date of a descriptor is valid or unspecified."
    FileStructureVersion "file-structure-version" Error "ECMA-119 8.4.30"
        "The file structure version is 1, or 2 in an Enhanced Volume Descriptor."
    EscapeSequences "escape-sequences" Error "Joliet, SVD"
        "The escape sequences are one of %/@ %/C %/E, or none in an Enhanced Volume Descriptor."
    VolumeFlags "volume-flags" Warning "ECMA-119 8.5.3"
        "The volume flags are zero: the escape sequences are registered ones."
    RootRecord "root-record" Error "ECMA-119 8.4.18"
        "A descriptor holds a record of its root directory, 34 bytes long."
    ApplicationUse "application-use" Note "ECMA-119 8.4.31"
        "The application use field is empty."
    ImplantedDigest "implanted-digest" Note "implantisomd5"
        "There is no checksum of implantisomd5, which becomes wrong when the image is changed."
    DescriptorUnknown "descriptor-unknown" Note "ECMA-119 8.5, 8.6"
        "All descriptors are known to this checker; unknown ones are not checked."
    UdfNotChecked "udf-not-checked" Note "ECMA-167 2/8"
        "There is no UDF file system beside ISO 9660; this checker does not check UDF."

    DirectoryLength "directory-length" Error "ECMA-119 6.8.1.3"
        "A directory has at least one sector and only whole ones."
    DirectoryOutside "directory-outside" Error "ECMA-119 6.8.1"
        "A directory is inside the volume."
    DirectoryLoop "directory-loop" Error "ECMA-119 6.8.2"
        "A directory occurs once in the hierarchy."
    DirectoryPadding "directory-padding" Error "ECMA-119 6.8.1.1"
        "The rest of a sector after its records is zero."
    DirectoryOrder "directory-order" Error "ECMA-119 9.3"
        "The records of a directory are in order."
    SelfRecord "self-record" Error "ECMA-119 6.8.2.2"
        "A directory begins with a record of itself."
    ParentRecord "parent-record" Error "ECMA-119 6.8.2.2"
        "The second record of a directory is that of its parent."
    ParentRecordItself "parent-record-itself" Warning "ECMA-119 6.8.2.2"
        "The parent record is not that of the directory itself: xorriso 1.5.4 writes that in Joliet."
    RecordLength "record-length" Error "ECMA-119 9.1.1"
        "A record is as long as its parts, and even."
    RecordCrossesSector "record-crosses-sector" Error "ECMA-119 6.8.1.1"
        "A record does not cross a sector."
    RecordIdentifier "record-identifier" Error "ECMA-119 9.1.10"
        "The identifier of a record has at least one byte and ends inside it."
    RecordPadding "record-padding" Error "ECMA-119 9.1.12"
        "The byte that pads an identifier is zero."
    RecordByteOrders "record-byte-orders" Error "ECMA-119 7.2.3, 7.3.3"
        "Both byte orders of a record's number agree."
    RecordDate "record-date" Error "ECMA-119 9.1.5"
        "The date of a record is valid or all zero."
    RecordFlags "record-flags" Error "ECMA-119 9.1.6"
        "The flags of a record are defined, and those of a directory are allowed for directories."
    RecordInterleaved "record-interleaved" Error "ECMA-119 9.1.7, 9.1.8"
        "No file is interleaved: readers do not support interleaving."
    RecordVolume "record-volume" Error "ECMA-119 9.1.9"
        "The extent of a record is on this volume."
    ExtendedAttributes "extended-attributes" Note "ECMA-119 9.5"
        "No record has extended attributes; they are not checked."
    SystemUseUnknown "system-use-unknown" Note "ECMA-119 9.1.13"
        "A hierarchy without SUSP leaves the system use area of its records empty."
    FileSections "file-sections" Error "ECMA-119 6.5.1, 9.1.6"
        "The records of one file follow each other, only the last is final, all others are whole blocks."
    IdentifierDuplicate "identifier-duplicate" Error "ECMA-119 7.5, 9.3"
        "An identifier occurs once in a directory."
    IdentifierUnsafe "identifier-unsafe" Error "ECMA-119 7.5"
        "An identifier has no control characters and no slash."
    IdentifierCharacters "identifier-characters" Warning "ECMA-119 7.5.1, 7.6.1"
        "An identifier has d-characters only; writers have options to relax this rule."
    IdentifierForm "identifier-form" Warning "ECMA-119 7.5.1, 7.6.1"
        "A file has a name, one dot, an extension and a version; a directory has its name only."
    IdentifierLength "identifier-length" Warning "ECMA-119 7.5.1, 7.6.3"
        "A file identifier has at most 30 characters without separators and version, a directory identifier 31."
    PathDepth "path-depth" Warning "ECMA-119 6.8.2.1"
        "Directories are on 8 levels at most; xorriso writes deeper ones by default."
    PathLength "path-length" Warning "ECMA-119 6.8.2.1"
        "The identifiers of a path have 255 bytes at most."
    JolietIdentifier "joliet-identifier" Error "Joliet, Allowed Character Set"
        "A Joliet identifier has 16-bit characters, without control characters and slash."
    JolietCharacters "joliet-characters" Warning "Joliet, Allowed Character Set"
        "A Joliet identifier has none of * : ; ? \\ and no lone surrogate."

    PathTableOutside "path-table-outside" Error "ECMA-119 8.4.14 to 8.4.17"
        "A path table is inside the volume."
    PathTableSize "path-table-size" Error "ECMA-119 8.4.14"
        "The path table size is the sum of the records."
    PathTableRecord "path-table-record" Error "ECMA-119 9.4"
        "A path table record has an identifier, no extended attributes and zero as padding."
    PathTableDirectory "path-table-directory" Error "ECMA-119 6.9"
        "A path table lists every directory of the hierarchy once, and nothing else."
    PathTableParent "path-table-parent" Error "ECMA-119 9.4.4"
        "A path table has the right parent for every directory."
    PathTableOrder "path-table-order" Error "ECMA-119 6.9.1"
        "A path table is in the order of levels, parents and identifiers."

    SuspStart "susp-start" Error "SUSP 5.3"
        "SP is the first entry of the root's record of itself and in no other record."
    SuspEntry "susp-entry" Error "SUSP 4.1"
        "A system use entry has a known version and ends inside its area."
    SuspPadding "susp-padding" Error "SUSP 4"
        "The entries fill a system use area, except for at most three zero bytes, or end with ST."
    SuspByteOrders "susp-byte-orders" Error "SUSP 2.2"
        "Both byte orders of a system use entry's number agree."
    SuspUnknown "susp-unknown" Note "SUSP 4.1"
        "Every system use entry has a known signature."
    ContinuationOutside "continuation-outside" Error "SUSP 5.1"
        "A continuation area is inside the volume and inside one block."
    ContinuationLoop "continuation-loop" Error "SUSP 5.1"
        "A record refers to a continuation area once, and to a limited number of areas."
    ExtensionReference "extension-reference" Error "SUSP 5.5"
        "An ER entry is as long as its texts and is in the root's record of itself."
    RockRidgeUnannounced "rock-ridge-unannounced" Warning "RRIP 4.3"
        "If Rock Ridge entries are used, an ER entry declares Rock Ridge."
    RockRidgeEntry "rock-ridge-entry" Error "RRIP 4.1"
        "A Rock Ridge entry has the length of its signature and occurs once."
    RockRidgeMissing "rock-ridge-missing" Warning "RRIP 4.1.1"
        "If Rock Ridge is used, every record has a PX entry with a mode; genisoimage writes mode 0 for some in RR_MOVED."
    RockRidgeMode "rock-ridge-mode" Error "RRIP 4.1.1"
        "The file type of a PX entry matches the record: directories, links with SL, devices with PN."
    RockRidgeLinks "rock-ridge-links" Warning "RRIP 4.1.1"
        "The link count of a directory is 2 plus its subdirectories, or 1 if links are not counted."
    RockRidgeDate "rock-ridge-date" Error "RRIP 4.1.6"
        "The dates of a TF entry are valid or unspecified."
    RockRidgeName "rock-ridge-name" Error "RRIP 4.1.4"
        "A Rock Ridge name is a single component of at most 255 bytes."
    RockRidgeDuplicate "rock-ridge-duplicate" Error "RRIP 4.1.4"
        "A Rock Ridge name occurs once in a directory."
    RockRidgeLink "rock-ridge-link" Error "RRIP 4.1.3"
        "The components of a symbolic link end inside their entry, in a target of at most 4096 bytes."
    RockRidgeRelocation "rock-ridge-relocation" Error "RRIP 4.1.5"
        "CL, PL and RE agree on the original place of a relocated directory."
    CompressedFile "compressed-file" Error "zisofs"
        "A ZF entry has a known method and block size."

    BootRecordPlace "boot-record-place" Error "El Torito 2.0"
        "The boot record of El Torito is in sector 17, the only place where firmware looks for it."
    BootCatalogOutside "boot-catalog-outside" Error "El Torito 2.0"
        "The boot catalog is inside the image."
    BootCatalogValidation "boot-catalog-validation" Error "El Torito 2.1"
        "The boot catalog begins with a validation entry with the right checksum."
    BootCatalogEntry "boot-catalog-entry" Error "El Torito 2.2 to 2.4"
        "The entries of the boot catalog have known types, match the counts of their headers, and have zero reserved bytes."
    BootImageOutside "boot-image-outside" Error "El Torito 2.2"
        "The El Torito image of a boot entry is inside the image."
    BootInfoTable "boot-info-table" Error "isolinux"
        "The boot info table of an El Torito image has the right address, length and checksum."

    SystemAreaUnknown "system-area-unknown" Note "ECMA-119 6.2.1"
        "The system area is empty or begins with a partition table."
    MbrPartition "mbr-partition" Error "UEFI 5.2.1"
        "The partitions of an MBR have a known status and are inside the image."
    GptHeader "gpt-header" Error "UEFI 5.3.2"
        "A GPT header has the right signature, size, checksums and address."
    GptEntries "gpt-entries" Error "UEFI 5.3.3"
        "The partition entries have the right checksum and are inside the usable range."
    GptBackup "gpt-backup" Error "UEFI 5.3.2"
        "The backup of a GPT is at the end of the image and equals the primary table."

    NamesFoldCase "names-fold-case" Warning "practice"
        "No two names of a directory differ in case only: Windows shows one of them."
    NamesFoldDot "names-fold-dot" Warning "practice"
        "No two names of a directory differ only in dots and spaces at the end, which readers drop."
    NamesFoldUnicode "names-fold-unicode" Warning "Unicode Annex 15"
        "No two names of a directory are equal text in different normal forms (NFC, NFD)."
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.code())
    }
}
