//! The label, date, names and boot images of an image.
//!
//! ```text
//! Profile::Task   data of one job, never bootable      }  all: Joliet + Rock Ridge, files 0444 (executables 0555),
//! Profile::Boot   El Torito entries for BIOS and UEFI  }  directories 0555, owner 0:0, zero-padded to at least 1 MiB
//! Profile::Tree   any directory, bootable or not       }  also: directories below the eighth level are relocated
//! ```
//!
//! Invariant: the bytes of an image depend on the tree and on these options only; no default reads the host.

/// The purpose of an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Profile {
    /// Data files only.
    Task,
    /// Bootable by BIOS or UEFI firmware: [`ImageOptions::boot`] must name at least one boot file.
    Boot,
    /// Any directory: bootable if [`ImageOptions::boot`] names a boot file, and of any depth.
    Tree,
}

/// The names that the primary hierarchy allows, and the longest file (ECMA-119 10).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum InterchangeLevel {
    /// Level 1: names of 8 and 3 characters; files under 4 GiB.
    One,
    /// Level 2: names of 30 characters with their extension; files under 4 GiB.
    Two,
    /// Level 3: names of 30 characters with their extension; files of any size, in several sections.
    #[default]
    Three,
}

/// The handling of directories below the eighth level, which ISO 9660 does not allow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum DeepDirectories {
    /// A deep directory is an error.
    #[default]
    Refuse,
    /// Deep directories are moved to the hidden directory `RR_MOVED`. Rock Ridge shows them in their original places;
    /// readers without Rock Ridge show them in `RR_MOVED`.
    Relocate,
}

/// The names that a Joliet tree allows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum JolietNames {
    /// The limits of all known readers: names of 103 characters, paths of any length. Two names may differ in case
    /// only: Linux shows both, Windows shows one of them.
    #[default]
    Long,
    /// The limits of the specification: names of 64 characters, paths of 240, and no two names in a directory that
    /// differ in case only.
    Strict,
}

/// The options that, together with a tree, decide every byte of an image.
///
/// [`ImageOptions::new`] sets the defaults of a profile. The fields can be changed afterwards, directly or with the
/// `with_` methods; [`crate::ImagePlan::new`] checks them.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ImageOptions {
    /// The purpose of the image.
    pub profile: Profile,
    /// The volume identifier (label): 1 to 32 of `A-Z a-z 0-9 _ - .`. Joliet keeps the first 16 characters.
    pub volume_id: String,
    /// The date of every entry and of the volume, in seconds since 1970-01-01 00:00 UTC.
    pub epoch: i64,
    /// Whether a Joliet tree is written.
    pub joliet: bool,
    /// The names that the Joliet tree allows.
    pub joliet_names: JolietNames,
    /// Whether Rock Ridge attributes are written.
    pub rock_ridge: bool,
    /// Whether an enhanced volume descriptor (ISO 9660:1999) is written, with a third tree whose names have up to 207
    /// bytes.
    pub enhanced: bool,
    /// The interchange level of the primary tree.
    pub level: InterchangeLevel,
    /// The handling of directories below the eighth level of the primary tree.
    pub depth: DeepDirectories,
    /// Permission bits of files.
    pub file_mode: u16,
    /// Permission bits of directories.
    pub directory_mode: u16,
    /// The smallest length of the image in bytes. A shorter image is padded with zeros; every image ends with a whole
    /// sector.
    pub min_size: u64,
    /// The El Torito boot files, if the image is bootable.
    pub boot: Option<Boot>,
    /// The partition tables that make the image bootable from a USB stick too; requires [`ImageOptions::boot`].
    pub hybrid: Option<Hybrid>,
    /// The publisher field: at most 64 a-characters.
    pub publisher: String,
    /// The data preparer field: at most 64 a-characters.
    pub preparer: String,
    /// The application field: at most 64 a-characters.
    pub application: String,
}

/// The El Torito boot files of a bootable image.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Boot {
    /// The boot file that BIOS firmware loads.
    pub bios: Option<BiosBoot>,
    /// The FAT image that UEFI firmware mounts.
    pub uefi: Option<UefiBoot>,
}

/// A no-emulation boot file for x86 BIOS firmware.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BiosBoot {
    /// The path of the boot file in the tree.
    pub path: String,
    /// The number of 512-byte units that firmware loads. Boot loaders expect 4.
    pub load_units: u16,
    /// Whether the image replaces bytes 8 to 63 of the file with a boot info table (address, length, checksum), which
    /// ISOLINUX and GRUB require. Planning reads such a file, which may have at most 1 MiB.
    pub boot_info_table: bool,
}

/// A FAT image with `EFI/BOOT/BOOT….EFI` in it, for UEFI firmware.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct UefiBoot {
    /// The path of the FAT image in the tree.
    pub path: String,
}

/// Partition tables for an image that is written unchanged to a disk or a USB stick.
///
/// With a UEFI boot file the image has a GPT and a protective MBR. The only partition of the GPT is an EFI system
/// partition, which is the UEFI boot file. Without a UEFI boot file the image has an MBR whose only partition is the
/// whole image. The length of the image becomes a multiple of 1 MiB.
///
/// Identifiers are derived (SHA-256) from the metadata of the image: label, dates, names, lengths and addresses. File
/// contents are not included, because planning does not read them. Two images that differ in file contents only have
/// equal identifiers, and `blkid` shows equal UUIDs for them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Hybrid {
    /// The boot code that BIOS firmware starts from a disk, up to 432 bytes, for example `isohdpfx.bin` of ISOLINUX.
    /// The address of the BIOS boot file is written directly after the code. If this is empty, only UEFI firmware boots
    /// from a disk.
    pub code: Vec<u8>,
}

impl ImageOptions {
    /// 1 MiB: the USB gadget of Linux, through which many BMCs present media, refuses images under 300 sectors.
    pub const MIN_SIZE: u64 = 1 << 20;

    /// Returns the default options of a profile.
    pub fn new(profile: Profile, volume_id: impl Into<String>, epoch: i64) -> ImageOptions {
        ImageOptions {
            profile,
            volume_id: volume_id.into(),
            epoch,
            joliet: true,
            joliet_names: JolietNames::Long,
            rock_ridge: true,
            enhanced: false,
            level: InterchangeLevel::Three,
            depth: if profile == Profile::Tree { DeepDirectories::Relocate } else { DeepDirectories::Refuse },
            file_mode: 0o444,
            directory_mode: 0o555,
            min_size: ImageOptions::MIN_SIZE,
            boot: None,
            hybrid: None,
            publisher: String::new(),
            preparer: "SHOAL".to_owned(),
            application: "SHOAL ISO9660".to_owned(),
        }
    }

    setters! {
        with_joliet joliet: bool;
        with_joliet_names joliet_names: JolietNames;
        with_rock_ridge rock_ridge: bool;
        with_enhanced enhanced: bool;
        with_level level: InterchangeLevel;
        with_depth depth: DeepDirectories;
        with_file_mode file_mode: u16;
        with_directory_mode directory_mode: u16;
        with_min_size min_size: u64;
        with_boot boot: impl Into<Option<Boot>>;
        with_hybrid hybrid: impl Into<Option<Hybrid>>;
        with_publisher publisher: impl Into<String>;
        with_preparer preparer: impl Into<String>;
        with_application application: impl Into<String>;
    }
}

impl Boot {
    /// Returns the boot files for BIOS and UEFI firmware; at least one is required.
    pub fn new(bios: Option<BiosBoot>, uefi: Option<UefiBoot>) -> Boot {
        Boot { bios, uefi }
    }
}

impl BiosBoot {
    /// Returns a boot file of which firmware loads 4 units, without a boot info table.
    pub fn new(path: impl Into<String>) -> BiosBoot {
        BiosBoot { path: path.into(), load_units: 4, boot_info_table: false }
    }

    setters! {
        with_load_units load_units: u16;
        with_boot_info_table boot_info_table: bool;
    }
}

impl UefiBoot {
    /// Returns the FAT image at a path of the tree.
    pub fn new(path: impl Into<String>) -> UefiBoot {
        UefiBoot { path: path.into() }
    }
}

impl Hybrid {
    /// Returns partition tables with this boot code, which may be empty.
    pub fn new(code: impl Into<Vec<u8>>) -> Hybrid {
        Hybrid { code: code.into() }
    }
}
