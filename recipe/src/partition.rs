//! The partitions of a recipe and their placement on a disk.
//!
//! ```text
//!  LBA 0      1      2…          1 MiB                                                    end
//!  ┌─────┬────────┬─────────┬───┬──────────┬────────────┬─────────────────────┬───┬─────────┬────────┐
//!  │ MBR │ header │ entries │ / │ 512M     │ 25%        │ 100%                │ / │ entries │ header │
//!  └─────┴────────┴─────────┴───┴──────────┴────────────┴─────────────────────┴───┴─────────┴────────┘
//!                               └───────────── usable space: whole MiB ───────┘
//! ```
//!
//! What sizes mean:
//! - a number is bytes, K M G T P are powers of 1024 with or without `B`; rounded up to whole MiB;
//! - `1%` to `99%` are shares of the whole usable space, rounded down to whole MiB;
//! - `100%` is the space that all other partitions leave, at any position in the list.
//!
//! Invariants of [`resolve`]: partitions keep the order of the list, start and end on MiB borders, do not overlap, lie
//! within the usable space, and are not empty. UEFI 2.10 section 5.3 (GPT).

use std::fmt;

use uuid::{Uuid, uuid};

const MIB: u64 = 1024 * 1024;

/// GPT reserves room for 128 entries of 128 bytes at both ends.
const ENTRIES: u64 = 128;
const ENTRY_BYTES: u64 = 128;

/// Maximum length of a GPT partition name in UTF-16 units.
pub const MAX_NAME_UNITS: usize = 36;

/// One partition of a recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The size.
    pub size: PartitionSize,
    /// The partition type.
    pub type_guid: PartitionType,
    /// The file system to create.
    pub format: FsFormat,
    /// The name of the partition and the label of its file system.
    pub label: Option<String>,
    /// The path at which the installed system mounts the file system.
    pub mount: Option<String>,
    /// Words for the program that makes the file system.
    pub mkfs_options: Vec<String>,
    /// The array or the volume group to which the partition belongs.
    pub member_of: Option<String>,
}

impl Partition {
    /// Creates a partition without label, mount point, options and membership.
    #[must_use]
    pub fn new(size: PartitionSize, type_guid: PartitionType, format: FsFormat) -> Self {
        Self { size, type_guid, format, label: None, mount: None, mkfs_options: Vec::new(), member_of: None }
    }
}

/// Returns the layout of a Linux installation whose recipe has none: an EFI system partition, a BIOS boot partition, and the
/// root file system over the rest of the disk. Such a disk starts on both kinds of firmware.
#[must_use]
pub fn default_linux_layout() -> Vec<Partition> {
    let part = |size, kind, format, label: &str| Partition {
        label: Some(label.to_owned()),
        ..Partition::new(size, kind, format)
    };
    vec![
        part(PartitionSize::Bytes(512 * MIB), PartitionType::EFI_SYSTEM, FsFormat::Vfat, "EFI"),
        part(PartitionSize::Bytes(MIB), PartitionType::BIOS_BOOT, FsFormat::Raw, "BIOS"),
        part(PartitionSize::Rest, PartitionType::LINUX_FILESYSTEM, FsFormat::Ext4, "root"),
    ]
}

/// The size of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionSize {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the usable space in percent, 1 to 99.
    Percent(u8),
    /// `100%`: the space that the other partitions leave.
    Rest,
}

/// The reason why a size is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The text does not have the form that the schema describes.
    #[error("is not a size: write 512M, 20G or 1% to 100%")]
    Form,
    /// The size is more than 2^63 - 1 bytes.
    #[error("is more than any disk holds (the limit is 8 EiB)")]
    TooLarge,
}

impl PartitionSize {
    /// Parses `512M`, `20GB`, `1048576`, `4096B`, `25%`, `100%`.
    ///
    /// # Errors
    /// Returns an error when the text has another form or the size is more than 2^63 - 1 bytes.
    pub fn parse(text: &str) -> Result<Self, SizeError> {
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        if number.is_empty() || number.starts_with('0') {
            return Err(SizeError::Form);
        }
        // Digits fail to parse only by overflow.
        let number: u64 = number.parse().map_err(|_| SizeError::TooLarge)?;
        let power = match unit {
            "%" => {
                return match number {
                    1..=99 => u8::try_from(number).map(Self::Percent).map_err(|_| SizeError::Form),
                    100 => Ok(Self::Rest),
                    _ => Err(SizeError::Form),
                };
            }
            "" | "B" => 0,
            "K" | "KB" => 1,
            "M" | "MB" => 2,
            "G" | "GB" => 3,
            "T" | "TB" => 4,
            "P" | "PB" => 5,
            _ => return Err(SizeError::Form),
        };
        let bytes = number.checked_mul(1 << (10 * power)).ok_or(SizeError::TooLarge)?;
        if bytes > i64::MAX as u64 { Err(SizeError::TooLarge) } else { Ok(Self::Bytes(bytes)) }
    }
}

/// The type GUID of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartitionType(Uuid);

/// The reason why a partition type is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// The text is neither an alias nor a GUID.
    #[error("is not a partition type: write ef00, 8300, 8200, 0700, 0c01, fc00, fd00 or a GUID")]
    Form,
    /// The GUID is all zeros.
    #[error("is the GUID of zeros, which means an unused entry; use a type such as 8300")]
    Nil,
}

impl PartitionType {
    /// `ef00`
    pub const EFI_SYSTEM: Self = Self(uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"));
    /// `8300`
    pub const LINUX_FILESYSTEM: Self = Self(uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4"));
    /// `8200`
    pub const LINUX_SWAP: Self = Self(uuid!("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"));
    /// `0700`
    pub const MICROSOFT_BASIC_DATA: Self = Self(uuid!("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"));
    /// `0c01`
    pub const MICROSOFT_RESERVED: Self = Self(uuid!("e3c9e316-0b5c-4db8-817d-f92df00215ae"));
    /// `fc00`: a VMware diagnostic (core dump) partition.
    pub const VMWARE_DIAGNOSTIC: Self = Self(uuid!("9d275380-40ad-11db-bf97-000c2911d1b8"));
    /// The partition in which GRUB keeps its core image on a GPT disk of a BIOS machine. It has no alias.
    pub const BIOS_BOOT: Self = Self(uuid!("21686148-6449-6e6f-744e-656564454649"));
    /// `fd00`
    pub const LINUX_RAID: Self = Self(uuid!("a19d880f-05fc-4d3b-a006-743f0f84911e"));

    const ALIASES: [(&'static str, Self); 7] = [
        ("ef00", Self::EFI_SYSTEM),
        ("8300", Self::LINUX_FILESYSTEM),
        ("8200", Self::LINUX_SWAP),
        ("0700", Self::MICROSOFT_BASIC_DATA),
        ("0c01", Self::MICROSOFT_RESERVED),
        ("fc00", Self::VMWARE_DIAGNOSTIC),
        ("fd00", Self::LINUX_RAID),
    ];

    /// Root partitions of the Discoverable Partitions Specification: x86-64 and arm64.
    const LINUX_ROOTS: [Self; 2] = [
        Self(uuid!("4f68bce3-e8cd-4db1-96e7-fbcaf984b709")),
        Self(uuid!("b921b045-1df0-41c3-af44-4c6f280d3fae")),
    ];

    /// Parses an alias in any case, or a GUID with or without dashes.
    ///
    /// # Errors
    /// Returns an error when the text is neither, or when the GUID is all zeros.
    pub fn parse(text: &str) -> Result<Self, TypeError> {
        if let Some((_, known)) = Self::ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(text)) {
            return Ok(*known);
        }
        let digits: String = text.chars().filter(|letter| *letter != '-').take(33).collect();
        if digits.len() != 32 {
            return Err(TypeError::Form);
        }
        match Uuid::try_parse(&digits) {
            Err(_) => Err(TypeError::Form),
            Ok(guid) if guid.is_nil() => Err(TypeError::Nil),
            Ok(guid) => Ok(Self(guid)),
        }
    }

    /// Returns the GUID; `to_bytes_le` gives the bytes of a GPT entry.
    pub fn guid(self) -> Uuid {
        self.0
    }

    /// Returns the alias of a well-known type.
    pub fn alias(self) -> Option<&'static str> {
        Self::ALIASES.iter().find(|(_, known)| *known == self).map(|(alias, _)| *alias)
    }

    /// Returns whether the type allows a Linux root file system.
    pub fn is_linux_root(self) -> bool {
        self == Self::LINUX_FILESYSTEM || self == Self::LINUX_RAID || Self::LINUX_ROOTS.contains(&self)
    }
}

impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The file system of a partition.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::EnumString, strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum FsFormat {
    /// FAT, for EFI system partitions and seed volumes.
    Vfat,
    /// The file system ext4.
    Ext4,
    /// The file system XFS.
    Xfs,
    /// The file system Btrfs.
    Btrfs,
    /// The file system NTFS.
    Ntfs,
    /// A swap area.
    Swap,
    /// Nothing is written: reserved partitions, image targets.
    Raw,
}

impl FsFormat {
    /// Returns the name that recipes use.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the format with this name, if known.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Returns whether a Linux system can mount the file system and install into it.
    #[must_use]
    pub fn is_mountable(self) -> bool {
        match self {
            Self::Vfat | Self::Ext4 | Self::Xfs | Self::Btrfs => true,
            Self::Ntfs | Self::Swap | Self::Raw => false,
        }
    }

    /// Returns the least size in bytes at which the program of the maintenance OS makes the file system with these options: a smaller one
    /// is refused by xfsprogs 6.1, btrfs-progs 6.2 and ntfs-3g 2022.10. The others make one in any partition.
    #[must_use]
    pub fn least_bytes(self, mkfs_options: &[String]) -> u64 {
        match self {
            Self::Xfs => 300 * MIB,
            // Data and metadata in the same blocks need less room.
            Self::Btrfs if mkfs_options.iter().any(|word| word == "-M" || word == "--mixed") => 16 * MIB,
            Self::Btrfs => 109 * MIB,
            Self::Ntfs => 2 * MIB,
            Self::Vfat | Self::Ext4 | Self::Swap | Self::Raw => 0,
        }
    }

    /// Returns whether the program that makes the file system accepts a label. That of vfat is in the characters of a short name of MS-DOS.
    #[must_use]
    pub fn holds_label(self, label: &str) -> bool {
        let fits = self.label_bytes().is_none_or(|limit| label.len() <= limit);
        let of_dos = |letter: char| (' '..='~').contains(&letter) && !"*?.,;:/\\|+=<>[]\"".contains(letter);
        fits && (self != Self::Vfat || (label.chars().all(of_dos) && !label.starts_with(' ')))
    }

    /// Returns the maximum length of a label in bytes, if that is less than a recipe allows.
    pub fn label_bytes(self) -> Option<usize> {
        match self {
            Self::Vfat => Some(11),
            Self::Xfs => Some(12),
            Self::Ext4 | Self::Swap => Some(16),
            Self::Btrfs | Self::Ntfs | Self::Raw => None,
        }
    }
}

/// A partition with its place on the disk, first and last sector included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedPartition {
    /// The first sector.
    pub first_lba: u64,
    /// The last sector.
    pub last_lba: u64,
    /// The type GUID; `to_bytes_le` gives the bytes of the GPT entry.
    pub type_guid: Uuid,
    /// The name, at most [`MAX_NAME_UNITS`] UTF-16 units; empty without a label.
    pub name: String,
}

/// The reason why a layout cannot be placed on a disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The sector size is not supported.
    #[error("laying out the disk: sectors of {0} bytes are not supported; 512 and 4096 are")]
    Sector(u64),
    /// The disk has no room for the partition tables and 1 MiB.
    #[error("laying out the disk: {0} bytes are too few for a partition table; use a bigger disk")]
    DiskTooSmall(u64),
    /// The layout has more partitions than the table has entries.
    #[error("laying out the disk: {0} partitions do not fit into a table of 128 entries")]
    TooMany(usize),
    /// The sizes add up to more than the usable space.
    #[error(
        "laying out the disk: partition {number} does not fit; {needed} MiB are needed up to its end, the disk has \
         {usable} MiB. Make partitions smaller or use a bigger disk"
    )]
    DoesNotFit {
        /// The number of the partition, from 1.
        number: usize,
        /// The space that is needed up to the end of the partition, in MiB.
        needed: u64,
        /// The usable space in MiB.
        usable: u64,
    },
    /// A share is below 1 MiB, or the other partitions leave nothing.
    #[error("laying out the disk: nothing is left for partition {number}; make the others smaller")]
    Empty {
        /// The number of the partition, from 1.
        number: usize,
    },
    /// Two partitions have the size `100%`.
    #[error("laying out the disk: partition {number} is a second 100%; only one partition can have it")]
    RestTwice {
        /// The number of the partition, from 1.
        number: usize,
    },
}

/// Places the partitions of a layout on a disk of `disk_bytes` with sectors of `sector` bytes.
///
/// # Errors
/// Returns an error when the sector size is not supported or the layout does not fit.
pub fn resolve(
    layout: &[Partition],
    disk_bytes: u64,
    sector: u64,
) -> Result<Vec<PlacedPartition>, LayoutError> {
    if sector != 512 && sector != 4096 {
        return Err(LayoutError::Sector(sector));
    }
    if layout.len() as u64 > ENTRIES {
        return Err(LayoutError::TooMany(layout.len()));
    }
    let usable = usable_mib(disk_bytes, sector)?;
    let sizes = sizes_mib(layout, usable)?;
    let sectors_per_mib = MIB / sector;
    let mut next = 1;
    let mut resolved = Vec::with_capacity(layout.len());
    for (part, size) in layout.iter().zip(sizes) {
        let first_lba = next * sectors_per_mib;
        next += size;
        resolved.push(PlacedPartition {
            first_lba,
            last_lba: next * sectors_per_mib - 1,
            type_guid: part.type_guid.guid(),
            name: part.label.clone().unwrap_or_default(),
        });
    }
    Ok(resolved)
}

/// Returns the whole MiB between the first MiB border and the backup table.
fn usable_mib(disk_bytes: u64, sector: u64) -> Result<u64, LayoutError> {
    let backup = sector + ENTRIES * ENTRY_BYTES;
    let end = (disk_bytes / sector * sector).saturating_sub(backup) / MIB;
    match end.saturating_sub(1) {
        0 => Err(LayoutError::DiskTooSmall(disk_bytes)),
        usable => Ok(usable),
    }
}

/// Returns the size of each partition in MiB; the sum is at most `usable`.
fn sizes_mib(layout: &[Partition], usable: u64) -> Result<Vec<u64>, LayoutError> {
    let mut sizes = Vec::with_capacity(layout.len());
    let mut rest = None;
    let mut needed: u64 = 0;
    for (index, part) in layout.iter().enumerate() {
        let number = index + 1;
        let size = match part.size {
            PartitionSize::Bytes(bytes) => bytes.div_ceil(MIB),
            PartitionSize::Percent(percent) => share(usable, percent),
            PartitionSize::Rest if rest.replace(index).is_some() => {
                return Err(LayoutError::RestTwice { number });
            }
            PartitionSize::Rest => 0,
        };
        if size == 0 && part.size != PartitionSize::Rest {
            return Err(LayoutError::Empty { number });
        }
        needed = needed.saturating_add(size);
        if needed > usable {
            return Err(LayoutError::DoesNotFit { number, needed, usable });
        }
        sizes.push(size);
    }
    if let Some(index) = rest {
        if needed == usable {
            return Err(LayoutError::Empty { number: index + 1 });
        }
        sizes[index] = usable - needed;
    }
    Ok(sizes)
}

/// Returns `percent` hundredths of `whole`, rounded down, without overflow for any disk.
fn share(whole: u64, percent: u8) -> u64 {
    let percent = u64::from(percent);
    whole / 100 * percent + whole % 100 * percent / 100
}
