//! How an image is labelled, dated and booted.
//!
//! ```text
//! Profile::Task   data for one job, never bootable     }  both: Joliet + Rock Ridge, files 0444, directories 0555,
//! Profile::Boot   El Torito entries for BIOS and UEFI  }  owner 0:0, zero-padded to at least 1 MiB
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
    /// Whether Rock Ridge attributes are written.
    pub rock_ridge: bool,
    /// Permission bits of files.
    pub file_mode: u16,
    /// Permission bits of directories.
    pub directory_mode: u16,
    /// The image is padded with zeros to at least this many bytes, and to a whole sector.
    pub min_size: u64,
    /// What firmware is offered to boot.
    pub boot: Option<Boot>,
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
}

/// A FAT image with `EFI/BOOT/BOOT….EFI` in it, for UEFI firmware.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UefiBoot {
    /// Its path in the tree.
    pub path: String,
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
            rock_ridge: true,
            file_mode: 0o444,
            directory_mode: 0o555,
            min_size: Options::MIN_SIZE,
            boot: None,
            publisher: String::new(),
            preparer: "SHOAL".to_owned(),
            application: "SHOAL ISO9660".to_owned(),
        }
    }
}
