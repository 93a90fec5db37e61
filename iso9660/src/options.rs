//! How an image is labelled, dated and booted.
//!
//! ```text
//! Profile::Task   data for one job, never bootable     }  all: Joliet + Rock Ridge, files 0444 (executables 0555),
//! Profile::Boot   El Torito entries for BIOS and UEFI  }  directories 0555, owner 0:0, zero-padded to at least 1 MiB
//! Profile::Tree   any directory, bootable or not       }  and: directories below the eighth level are relocated
//! ```
//!
//! Invariant: everything that reaches the bytes of an image is in the tree or here; no default looks at the host.

/// What an image is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Profile {
    /// Data files only.
    Task,
    /// Bootable by BIOS or UEFI firmware: [`Options::boot`] must name at least one image.
    Boot,
    /// Whatever a directory holds: bootable if [`Options::boot`] names an image, as deep as the directory is.
    Tree,
}

/// Which names the primary hierarchy has, and how long a file may be (ECMA-119 10).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Level {
    /// Names of 8 and 3 characters; files under 4 GiB.
    One,
    /// Names of 30 characters with their extension; files under 4 GiB.
    Two,
    /// Names of 30 characters with their extension; files of any size, in several pieces.
    #[default]
    Three,
}

/// What becomes of directories below the eighth level, which ISO 9660 does not allow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Depth {
    /// They are an error.
    #[default]
    Refuse,
    /// They are moved to a hidden directory, from where Rock Ridge shows them in their places. Readers without Rock
    /// Ridge see them in `RR_MOVED`.
    Relocate,
}

/// Which names a Joliet tree takes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum JolietNames {
    /// What all known readers take: 103 characters, paths of any length. Names that differ in their case only are
    /// allowed: Linux tells them apart, Windows shows one of them.
    #[default]
    Long,
    /// The letter of the specification: names of 64 characters, paths of 240; and no two names in a directory that
    /// differ in their case only.
    Strict,
}

/// The choices that, with a tree, decide every byte of an image.
///
/// [`Options::new`] sets what the profile says; the fields may be changed afterwards and are checked by
/// [`crate::Plan::new`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// What the image is for.
    pub profile: Profile,
    /// The label: 1 to 32 of `A-Z a-z 0-9 _ - .`. Joliet keeps the first 16.
    pub volume_id: String,
    /// Seconds since 1970-01-01 00:00 UTC: the one date of everything in the image.
    pub epoch: i64,
    /// Whether a Joliet tree is written.
    pub joliet: bool,
    /// Which names the Joliet tree takes.
    pub joliet_names: JolietNames,
    /// Whether Rock Ridge attributes are written.
    pub rock_ridge: bool,
    /// Whether an enhanced volume descriptor (ISO 9660:1999) with a third tree is written: names of 207 bytes.
    pub enhanced: bool,
    /// The interchange level of the primary tree.
    pub level: Level,
    /// What becomes of directories that are too deep for the primary tree.
    pub depth: Depth,
    /// Permission bits of files.
    pub file_mode: u16,
    /// Permission bits of directories.
    pub directory_mode: u16,
    /// The image is padded with zeros to at least this many bytes, and to a whole sector.
    pub min_size: u64,
    /// What firmware is offered to boot.
    pub boot: Option<Boot>,
    /// How the image is a disk as well, so that it boots from a USB stick: needs [`Options::boot`].
    pub hybrid: Option<Hybrid>,
    /// The publisher field: at most 64 a-characters.
    pub publisher: String,
    /// The data preparer field: at most 64 a-characters.
    pub preparer: String,
    /// The application field: at most 64 a-characters.
    pub application: String,
}

/// The El Torito entries of a bootable image.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Boot {
    /// The image that BIOS firmware loads.
    pub bios: Option<BiosBoot>,
    /// The image that UEFI firmware mounts.
    pub uefi: Option<UefiBoot>,
}

/// A no-emulation boot image for x86 BIOS firmware.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BiosBoot {
    /// Its path in the tree.
    pub path: String,
    /// How many 512-byte units the firmware loads; 4 is what boot loaders expect.
    pub load_units: u16,
    /// Whether bytes 8 to 63 of the file are replaced, in the image, by its address, length and checksum: isolinux and
    /// GRUB need them. The file is read when the image is planned, and may have 1 MiB.
    pub boot_info_table: bool,
}

/// A FAT image with `EFI/BOOT/BOOT….EFI` in it, for UEFI firmware.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UefiBoot {
    /// Its path in the tree.
    pub path: String,
}

/// Partition tables for an image that is written to a disk or a USB stick as it is.
///
/// With a UEFI image there is a GPT whose only partition, an EFI system partition, is that image; the MBR protects it.
/// Without one there is an MBR whose only partition is the image. The length becomes a multiple of 1 MiB.
///
/// Identifiers are derived (SHA-256) from the metadata of the image: label, dates, names, lengths and addresses.
/// Contents do not take part, because planning does not read them: images that differ in nothing but the content of
/// files have the same identifiers, as they have the same UUID for `blkid`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Hybrid {
    /// The program that BIOS firmware starts from a disk, up to 432 bytes: `isohdpfx.bin` of ISOLINUX, for one. It
    /// finds the address of the BIOS boot file right behind itself. Empty: only UEFI firmware boots from a disk.
    pub code: Vec<u8>,
}

impl Options {
    /// 1 MiB: Linux' USB gadget, through which many BMCs present media, refuses images under 300 sectors.
    pub const MIN_SIZE: u64 = 1 << 20;

    /// The options of a profile.
    pub fn new(profile: Profile, volume_id: impl Into<String>, epoch: i64) -> Options {
        Options {
            profile,
            volume_id: volume_id.into(),
            epoch,
            joliet: true,
            joliet_names: JolietNames::Long,
            rock_ridge: true,
            enhanced: false,
            level: Level::Three,
            depth: if profile == Profile::Tree { Depth::Relocate } else { Depth::Refuse },
            file_mode: 0o444,
            directory_mode: 0o555,
            min_size: Options::MIN_SIZE,
            boot: None,
            hybrid: None,
            publisher: String::new(),
            preparer: "SHOAL".to_owned(),
            application: "SHOAL ISO9660".to_owned(),
        }
    }
}
