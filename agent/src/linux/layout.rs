//! From the partitions of a recipe to volumes: place, UUID, mount point, and the command that makes the file system.
//!
//! ```text
//! Partition { size, type, format, mount } --resolve--> sectors --roles--> root, EFI system, mounts in order
//! ```
//!
//! Without `mount` in any partition, the first one of a Linux root type with a Linux file system is `/`. The first EFI system
//! partition is `/boot/efi` unless it has a mount point.
//!
//! Invariants: exactly one volume is the root. UUIDs are functions of the job id and the number of the partition.

use std::path::Path;
use std::time::Duration;

use recipe::partition::{self, PlacedPartition};
use recipe::{FsFormat, Partition, PartitionType};
use uuid::Uuid;

use super::host::Program;

/// Settings of XFS that the GRUB of every supported system reads: those of `lts_5.10.conf`. The file of xfsprogs 6.1.0 itself
/// is refused by the program beside it.
const XFS_OPTIONS: [&str; 4] =
    ["-m", "bigtime=0,crc=1,finobt=1,inobtcount=0,reflink=1,rmapbt=0", "-i", "sparse=1,nrext64=0"];
/// Features that older GRUB does not read.
const EXT4_FEATURES: &str = "^metadata_csum_seed,^orphan_file";
const MKFS_LIMIT: Duration = Duration::from_secs(1800);

/// One partition with its role in the new system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The number of the partition, from 1.
    pub number: usize,
    /// The file system.
    pub format: FsFormat,
    /// The label, if the file system has room for it.
    pub label: Option<String>,
    /// The UUID of the file system.
    pub uuid: Uuid,
    /// The mount point in the new system.
    pub mount: Option<String>,
    /// Words of the recipe for the program that makes the file system.
    pub options: Vec<String>,
    /// Whether the firmware reads it.
    pub is_efi_system: bool,
}

/// The volumes of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The places of the partitions.
    pub placed: Vec<PlacedPartition>,
    /// The partitions with their roles, in the order of their numbers.
    pub volumes: Vec<Volume>,
    job: Uuid,
    root: usize,
}

impl Layout {
    /// Places the partitions on a disk and assigns their roles.
    ///
    /// # Errors
    /// Returns a sentence when the partitions do not fit or none of them can be the root.
    pub fn new(parts: &[Partition], bytes: u64, sector: u64, job: Uuid) -> Result<Self, String> {
        let placed = partition::resolve(parts, bytes, sector).map_err(|source| source.to_string())?;
        let mut volumes: Vec<Volume> = parts
            .iter()
            .enumerate()
            .map(|(index, part)| Volume {
                number: index + 1,
                format: part.format,
                label: part.label.clone().filter(|label| {
                    let fits = part.format.label_bytes().is_none_or(|limit| label.len() <= limit);
                    !label.is_empty() && fits
                }),
                uuid: derived(job, index + 1, "file system"),
                mount: part.mount.clone(),
                options: part.mkfs_options.clone(),
                is_efi_system: part.type_guid == PartitionType::EFI_SYSTEM && part.format == FsFormat::Vfat,
            })
            .collect();
        let is_linux = |volume: &Volume| volume.format.is_mountable() && volume.format != FsFormat::Vfat;
        let named = volumes.iter().position(|volume| volume.mount.as_deref() == Some("/"));
        let guessed = || {
            volumes.iter().zip(parts).position(|(volume, part)| {
                volume.mount.is_none() && is_linux(volume) && part.type_guid.is_linux_root()
            })
        };
        let root = named.or_else(guessed).ok_or(
            "no partition can be the root: give one the mount \"/\", and ext4, xfs or btrfs as format",
        )?;
        volumes[root].mount = Some("/".to_owned());
        let free = !volumes.iter().any(|volume| volume.mount.as_deref() == Some("/boot/efi"));
        let efi = volumes.iter_mut().find(|volume| volume.is_efi_system);
        if let Some(efi) = efi.filter(|efi| efi.mount.is_none() && free) {
            efi.mount = Some("/boot/efi".to_owned());
        }
        Ok(Self { placed, volumes, job, root })
    }

    /// Returns the GUIDs of the disk and then of each partition.
    pub fn guids(&self) -> impl FnMut() -> Uuid {
        let (job, mut number) = (self.job, 0);
        move || {
            let guid = derived(job, number, "partition");
            number += 1;
            guid
        }
    }

    /// Returns the GUID of a partition.
    #[must_use]
    pub fn guid(&self, number: usize) -> Uuid {
        derived(self.job, number, "partition")
    }

    /// Returns the volume of `/`.
    #[must_use]
    pub fn root(&self) -> &Volume {
        &self.volumes[self.root]
    }

    /// Returns the volume that the firmware reads, if it is mounted.
    #[must_use]
    pub fn efi_system(&self) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.is_efi_system && volume.mount.is_some())
    }

    /// Returns the volume on which `/boot` lies, and the path of `/boot` in it.
    #[must_use]
    pub fn boot(&self) -> (&Volume, &'static str) {
        let separate = self.volumes.iter().find(|volume| volume.mount.as_deref() == Some("/boot"));
        separate.map_or((self.root(), "/boot"), |volume| (volume, ""))
    }

    /// Returns the volumes that are mounted, each after those above it.
    #[must_use]
    pub fn mounted(&self) -> Vec<&Volume> {
        let mut mounted: Vec<&Volume> = self.volumes.iter().filter(|volume| volume.mount.is_some()).collect();
        mounted.sort_by_key(|volume| {
            let mount = volume.mount.as_deref().unwrap_or_default();
            (mount.split('/').filter(|name| !name.is_empty()).count(), mount)
        });
        mounted
    }
}

fn derived(job: Uuid, number: usize, what: &str) -> Uuid {
    Uuid::new_v5(&job, format!("{what} {number}").as_bytes())
}

impl Volume {
    /// Returns the identifier of the file system as `UUID=` names it.
    #[must_use]
    pub fn identity(&self) -> String {
        match self.format {
            FsFormat::Vfat => {
                let id = self.fat_id();
                format!("{:04X}-{:04X}", id >> 16, id & 0xffff)
            }
            _ => self.uuid.to_string(),
        }
    }

    fn fat_id(&self) -> u32 {
        self.uuid.as_fields().0
    }

    /// Returns the command that makes the file system on `device`; none for swap, which needs no program, and for raw.
    #[must_use]
    pub fn mkfs(&self, device: &Path) -> Option<Program> {
        let mut words: Vec<String> = Vec::new();
        let mut add = |added: &[&str]| words.extend(added.iter().map(|&word| word.to_owned()));
        let uuid = self.uuid.to_string();
        let (name, label) = match self.format {
            FsFormat::Ext4 => {
                add(&["-q", "-F", "-t", "ext4", "-U", &uuid]);
                ("mke2fs", "-L")
            }
            FsFormat::Xfs => {
                add(&["-q", "-f", "-m", &format!("uuid={uuid}")]);
                // A setting that is given twice is refused, so options of the recipe replace these.
                if self.options.is_empty() {
                    add(&XFS_OPTIONS);
                }
                ("mkfs.xfs", "-L")
            }
            FsFormat::Btrfs => {
                add(&["-q", "-f", "-U", &uuid]);
                ("mkfs.btrfs", "-L")
            }
            FsFormat::Vfat => {
                add(&["-i", &format!("{:08x}", self.fat_id())]);
                ("mkfs.vfat", "-n")
            }
            FsFormat::Ntfs => {
                add(&["-q", "-Q", "-F"]);
                ("mkfs.ntfs", "-L")
            }
            FsFormat::Swap | FsFormat::Raw => return None,
        };
        if let Some(text) = &self.label {
            add(&[label, text]);
        }
        if self.format == FsFormat::Ext4 {
            // Of several lists of features the program uses the last one only.
            let mut features = EXT4_FEATURES.to_owned();
            let mut options = self.options.iter();
            while let Some(option) = options.next() {
                match option.strip_prefix("-O") {
                    Some("") => features.extend([",", options.next().map_or("", String::as_str)]),
                    Some(joined) => features.extend([",", joined]),
                    None => words.push(option.clone()),
                }
            }
            words.extend(["-O".to_owned(), features.trim_end_matches(',').to_owned()]);
        } else {
            words.extend(self.options.iter().cloned());
        }
        words.push(device.to_string_lossy().into_owned());
        Some(Program { name: name.to_owned(), arguments: words, in_root: false, limit: MKFS_LIMIT })
    }
}
