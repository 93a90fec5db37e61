//! From the partitions, arrays and volume groups of a recipe to volumes: place, UUID, mount point, and the command that makes the
//! file system.
//!
//! ```text
//! Partition { size, type, format, mount } --resolve--> sectors of each disk --roles--> root, EFI systems, mounts in order
//! arrays, volume groups                   --members--> [`super::members`]
//! ```
//!
//! Without `mount` in any file system, the first partition of a Linux root type with a Linux file system is `/`. The first EFI system
//! partition is `/boot/efi` unless it has a mount point. EFI system partitions of further disks are `/boot/efi2` and so on: each gets
//! the boot loader, so that the machine starts without the first disk.
//!
//! Invariants: exactly one volume is the root. UUIDs are functions of the job id and the place of the volume.

use std::path::Path;
use std::time::Duration;

use recipe::partition;
use recipe::storage::{ArrayContent, FileSystem, Storage};
use recipe::{FsFormat, Partition, PartitionType};
use uuid::Uuid;

use super::host::Program;
use super::members::{self, ArrayPlan, DiskLayout, GroupPlan, Place, derived};

/// Settings of XFS that the GRUB of every supported system reads: those of `lts_5.10.conf`. The file of xfsprogs 6.1.0 itself
/// is refused by the program beside it.
const XFS_OPTIONS: [&str; 4] =
    ["-m", "bigtime=0,crc=1,finobt=1,inobtcount=0,reflink=1,rmapbt=0", "-i", "sparse=1,nrext64=0"];
/// Features that older GRUB does not read.
const EXT4_FEATURES: &str = "^metadata_csum_seed,^orphan_file";
const MKFS_LIMIT: Duration = Duration::from_secs(1800);

/// One file system or swap area with its role in the new system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutVolume {
    /// The partition, array or logical volume that holds it.
    pub place: Place,
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
    /// Whether the firmware reads the file system.
    pub is_efi_system: bool,
}

/// The volumes of the disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The disks; the first one is that of the recipe's `target_disk` or `disk_hints`.
    pub disks: Vec<DiskLayout>,
    /// The arrays, in the order in which they are made.
    pub arrays: Vec<ArrayPlan>,
    /// The volume groups, in the order in which they are made.
    pub groups: Vec<GroupPlan>,
    /// The volumes with their roles: partitions by disk and number, then arrays, then logical volumes.
    pub volumes: Vec<LayoutVolume>,
    job: Uuid,
    root: usize,
}

impl Layout {
    /// Places the partitions on one disk and assigns their roles.
    ///
    /// # Errors
    /// Returns a sentence when the partitions do not fit or none of them can be the root.
    pub fn new(parts: &[Partition], bytes: u64, sector: u64, job: Uuid) -> Result<Self, String> {
        Self::over(parts, &Storage::default(), &[(bytes, sector)], job)
    }

    /// Places the partitions on several disks, each of so many bytes and with so large sectors, and assigns the roles of what is on
    /// them.
    ///
    /// # Errors
    /// Returns a sentence when something does not fit or nothing can be the root.
    pub fn over(
        parts: &[Partition],
        storage: &Storage,
        disks: &[(u64, u64)],
        job: Uuid,
    ) -> Result<Self, String> {
        let layouts = storage.layouts(parts);
        let (mut placed, mut volumes) = (Vec::new(), Vec::new());
        for (disk, (parts, (bytes, sector))) in layouts.iter().zip(disks).enumerate() {
            let places = partition::resolve(parts, *bytes, *sector).map_err(|source| match disk {
                0 => source.to_string(),
                _ => format!("disk {}: {source}", disk + 1),
            })?;
            let has_bios_boot = parts.iter().any(|part| part.type_guid == PartitionType::BIOS_BOOT);
            placed.push(DiskLayout { placed: places, has_bios_boot });
            volumes.extend(
                parts
                    .iter()
                    .enumerate()
                    .map(|(index, part)| LayoutVolume::of_partition(disk, index + 1, part, job)),
            );
        }
        let root = root_of(&mut volumes, &layouts, storage, job)?;
        let arrays = members::arrays(storage, &layouts, job);
        let groups = members::groups(storage, &layouts, &arrays);
        let sectors: Vec<u64> = disks.iter().map(|(_, sector)| *sector).collect();
        members::check_sizes(&placed, &arrays, &groups, &sectors)?;
        for volume in &volumes {
            volume.check_size(&placed, &sectors)?;
        }
        Ok(Self { disks: placed, arrays, groups, volumes, job, root })
    }

    /// Returns the GUIDs of a disk and then of each of its partitions.
    pub fn guids(&self, disk: usize) -> impl FnMut() -> Uuid {
        let (job, mut number) = (self.job, 0);
        move || {
            let guid = derived(job, number, &of_disk("partition", disk));
            number += 1;
            guid
        }
    }

    /// Returns the GUID of a partition.
    #[must_use]
    pub fn guid(&self, disk: usize, number: usize) -> Uuid {
        derived(self.job, number, &of_disk("partition", disk))
    }

    /// Returns the volume of `/`.
    #[must_use]
    pub fn root(&self) -> &LayoutVolume {
        &self.volumes[self.root]
    }

    /// Returns the volumes that the firmware reads and that are mounted, the first disk's first.
    pub fn efi_systems(&self) -> impl DoubleEndedIterator<Item = &LayoutVolume> {
        self.volumes.iter().filter(|volume| volume.is_efi_system && volume.mount.is_some())
    }

    /// Returns the first volume that the firmware reads, if it is mounted.
    #[must_use]
    pub fn efi_system(&self) -> Option<&LayoutVolume> {
        self.efi_systems().next()
    }

    /// Returns the volume on which `/boot` lies, and the path of `/boot` in it.
    #[must_use]
    pub fn boot(&self) -> (&LayoutVolume, &'static str) {
        let separate = self.volumes.iter().find(|volume| volume.mount.as_deref() == Some("/boot"));
        separate.map_or((self.root(), "/boot"), |volume| (volume, ""))
    }

    /// Returns the volumes that are mounted, each after those above it.
    #[must_use]
    pub fn mounted(&self) -> Vec<&LayoutVolume> {
        let mut mounted: Vec<&LayoutVolume> =
            self.volumes.iter().filter(|volume| volume.mount.is_some()).collect();
        mounted.sort_by_key(|volume| {
            let mount = volume.mount.as_deref().unwrap_or_default();
            (mount.split('/').filter(|name| !name.is_empty()).count(), mount)
        });
        mounted
    }

    /// Returns whether the new system needs md or LVM to start.
    #[must_use]
    pub fn has_storage(&self) -> bool {
        !self.arrays.is_empty() || !self.groups.is_empty()
    }
}

/// Selects the root, and gives EFI system partitions without a mount point one.
fn root_of(
    volumes: &mut Vec<LayoutVolume>,
    layouts: &[&[Partition]],
    storage: &Storage,
    job: Uuid,
) -> Result<usize, String> {
    let is_linux = |volume: &LayoutVolume| volume.format.is_mountable() && volume.format != FsFormat::Vfat;
    let types: Vec<PartitionType> =
        layouts.iter().flat_map(|parts| parts.iter()).map(|part| part.type_guid).collect();
    for (index, array) in storage.arrays.iter().enumerate() {
        if let ArrayContent::FileSystem(file_system) = &array.content {
            let uuid = derived(job, index + 1, "file system of array");
            volumes.push(LayoutVolume::of_file_system(Place::Array(index), file_system, uuid));
        }
    }
    for (group, found) in storage.volume_groups.iter().enumerate() {
        for (volume, logical) in found.volumes.iter().enumerate() {
            let uuid = derived(job, volume + 1, &format!("file system of group {}", group + 1));
            volumes.push(LayoutVolume::of_file_system(
                Place::Logical { group, volume },
                &logical.file_system,
                uuid,
            ));
        }
    }
    let named = volumes.iter().position(|volume| volume.mount.as_deref() == Some("/"));
    let guessed = || {
        volumes
            .iter()
            .zip(&types)
            .position(|(volume, kind)| volume.mount.is_none() && is_linux(volume) && kind.is_linux_root())
    };
    let root = named
        .or_else(guessed)
        .ok_or("no partition can be the root: give one the mount \"/\", and ext4, xfs or btrfs as format")?;
    volumes[root].mount = Some("/".to_owned());
    // A disk without a layout of its own has the mount points of the first one's layout.
    for volume in volumes.iter_mut().filter(|volume| volume.is_copy(storage)) {
        volume.mount = None;
    }
    let mut taken: Vec<String> = volumes.iter().filter_map(|volume| volume.mount.clone()).collect();
    let has_first = taken.iter().any(|mount| mount == "/boot/efi");
    let mut seen = Vec::new();
    for volume in volumes.iter_mut().filter(|volume| volume.is_efi_system) {
        let Place::Partition { disk, .. } = volume.place else { continue };
        // Of several on one disk the firmware takes the first.
        let is_first_of_disk = !seen.contains(&disk);
        seen.push(disk);
        if volume.mount.is_some() || !is_first_of_disk || (disk == 0 && has_first) {
            continue;
        }
        let wanted = if taken.iter().any(|mount| mount == "/boot/efi") {
            format!("/boot/efi{}", disk + 1)
        } else {
            "/boot/efi".to_owned()
        };
        if !taken.contains(&wanted) {
            taken.push(wanted.clone());
            volume.mount = Some(wanted);
        }
    }
    Ok(root)
}

fn of_disk(what: &str, disk: usize) -> String {
    if disk == 0 { what.to_owned() } else { format!("{what} of disk {}", disk + 1) }
}

/// The label, if the file system holds it.
fn label_of(format: FsFormat, label: Option<&String>) -> Option<String> {
    label.filter(|label| !label.is_empty() && format.holds_label(label)).cloned()
}

impl LayoutVolume {
    fn of_partition(disk: usize, number: usize, part: &Partition, job: Uuid) -> Self {
        Self {
            place: Place::Partition { disk, number },
            format: part.format,
            label: label_of(part.format, part.label.as_ref()),
            uuid: derived(job, number, &of_disk("file system", disk)),
            mount: part.mount.clone(),
            options: part.mkfs_options.clone(),
            is_efi_system: part.type_guid == PartitionType::EFI_SYSTEM && part.format == FsFormat::Vfat,
        }
    }

    fn of_file_system(place: Place, file_system: &FileSystem, uuid: Uuid) -> Self {
        Self {
            place,
            format: file_system.format,
            label: label_of(file_system.format, file_system.label.as_ref()),
            uuid,
            mount: file_system.mount.clone(),
            options: file_system.mkfs_options.clone(),
            is_efi_system: false,
        }
    }

    /// Refuses a partition in which the file system cannot be made: a share of a small disk.
    fn check_size(&self, placed: &[DiskLayout], sectors: &[u64]) -> Result<(), String> {
        let Place::Partition { disk, number } = self.place else { return Ok(()) };
        let found = placed.get(disk).and_then(|disk| disk.placed.get(number.checked_sub(1)?));
        let (Some(part), Some(sector)) = (found, sectors.get(disk)) else { return Ok(()) };
        let bytes = (part.last_lba + 1).saturating_sub(part.first_lba).saturating_mul(*sector);
        let least = self.format.least_bytes(&self.options);
        if bytes >= least {
            return Ok(());
        }
        let (format, has, needs) = (self.format.as_str(), bytes >> 20, least >> 20);
        Err(format!("partition {number} of disk {} has {has} MiB, and {format} needs {needs} MiB", disk + 1))
    }

    /// Whether the volume is on a partition of a disk that has the layout of the first one.
    fn is_copy(&self, storage: &Storage) -> bool {
        let Place::Partition { disk, .. } = self.place else { return false };
        let more = disk.checked_sub(1).and_then(|index| storage.more_disks.get(index));
        more.is_some_and(|disk| disk.partition_layout.is_empty())
    }

    /// Returns the name of the volume's place for the log.
    #[must_use]
    pub fn shown(&self, layout: &Layout) -> String {
        match self.place {
            Place::Partition { disk: 0, number } => format!("partition {number}"),
            Place::Partition { disk, number } => format!("partition {number} of disk {}", disk + 1),
            Place::Array(index) => {
                format!("array {}", layout.arrays.get(index).map_or("", |array| array.name.as_str()))
            }
            Place::Logical { group, volume } => {
                let group = layout.groups.get(group);
                let volume = group.and_then(|group| group.volumes.get(volume));
                let name = |text: Option<&String>| text.cloned().unwrap_or_default();
                format!(
                    "volume {}/{}",
                    name(group.map(|group| &group.name)),
                    name(volume.map(|volume| &volume.name))
                )
            }
        }
    }

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
