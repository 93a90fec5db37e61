//! More disks, md arrays and LVM volume groups of a Linux installation, and their rules.
//!
//! ```text
//! disk ── partition ──┬─ member_of ──► array ──┬─ format, mount ──► file system
//!                     │                        └─ member_of ──┐
//!                     └─ member_of ───────────────────────────┴──► volume group ──► volumes ──► file systems
//! ```
//!
//! A disk of `more_disks` without a layout of its own gets the partitions of the first disk. Then every partition of the layout
//! exists on each of these disks, so only some have a meaning: members, EFI system partitions, swap, and those without a file
//! system.
//!
//! Invariants of a [`Storage`] of an accepted recipe: a name occurs once in arrays and groups; each array has the members that its
//! level needs, each group has one; a member holds no file system of its own; no EFI system partition is in an array, because
//! firmware writes to it without knowledge of the others.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{FieldError, display};
use super::partition::{FsFormat, Partition, PartitionSize, PartitionType};
use super::{DiskHints, Recipe, TaskTarget};

/// A file system and its place in the new system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// The file system to make.
    pub format: FsFormat,
    /// The label of the file system.
    pub label: Option<String>,
    /// The path at which the installed system mounts the file system.
    pub mount: Option<String>,
    /// The words for the program that makes the file system.
    pub mkfs_options: Vec<String>,
}

/// A disk beside the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoreDisk {
    /// The disk by a path.
    pub target_disk: Option<String>,
    /// The disk by its properties.
    pub disk_hints: Option<DiskHints>,
    /// The partitions of the disk; empty for those of the first disk.
    pub partition_layout: Vec<Partition>,
}

/// The level of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayLevel {
    /// Stripes without redundancy.
    Raid0,
    /// Copies.
    Raid1,
    /// Stripes of copies.
    Raid10,
    /// Stripes with one parity.
    Raid5,
    /// Stripes with two parities.
    Raid6,
}

impl ArrayLevel {
    /// Returns the level with this number, if known.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Raid0),
            1 => Some(Self::Raid1),
            10 => Some(Self::Raid10),
            5 => Some(Self::Raid5),
            6 => Some(Self::Raid6),
            _ => None,
        }
    }

    /// Returns the number, as recipes and `mdadm` write it.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Raid0 => 0,
            Self::Raid1 => 1,
            Self::Raid10 => 10,
            Self::Raid5 => 5,
            Self::Raid6 => 6,
        }
    }

    /// Returns the smallest number of members.
    #[must_use]
    pub fn least_members(self) -> usize {
        match self {
            Self::Raid0 | Self::Raid1 | Self::Raid10 => 2,
            Self::Raid5 => 3,
            Self::Raid6 => 4,
        }
    }

    /// Returns the upper bound of the bytes that `members` of `smallest` bytes each hold.
    #[must_use]
    pub fn capacity(self, members: u64, smallest: u64) -> u64 {
        match self {
            Self::Raid0 => smallest.saturating_mul(members),
            Self::Raid1 => smallest,
            Self::Raid10 => smallest.saturating_mul(members) / 2,
            Self::Raid5 => smallest.saturating_mul(members.saturating_sub(1)),
            Self::Raid6 => smallest.saturating_mul(members.saturating_sub(2)),
        }
    }
}

/// The content of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArrayContent {
    /// A file system.
    FileSystem(FileSystem),
    /// The array is a member of this volume group.
    MemberOf(String),
}

/// An md array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The name.
    pub name: String,
    /// The level.
    pub level: ArrayLevel,
    /// The content of the array.
    pub content: ArrayContent,
}

/// A logical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalVolume {
    /// The name.
    pub name: String,
    /// The size; shares are of the group.
    pub size: PartitionSize,
    /// The file system in the volume.
    pub file_system: FileSystem,
}

/// An LVM volume group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeGroup {
    /// The name.
    pub name: String,
    /// The volumes of the group.
    pub volumes: Vec<LogicalVolume>,
}

/// The storage between partitions and file systems. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Storage {
    /// The disks beside the first one.
    pub more_disks: Vec<MoreDisk>,
    /// The arrays.
    pub arrays: Vec<Array>,
    /// The volume groups.
    pub volume_groups: Vec<VolumeGroup>,
}

impl Storage {
    /// Returns whether there is nothing but the partitions of the first disk.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the partitions of every disk, those of the first one given.
    #[must_use]
    pub fn layouts<'storage>(&'storage self, first: &'storage [Partition]) -> Vec<&'storage [Partition]> {
        let more = self.more_disks.iter().map(|disk| match &disk.partition_layout[..] {
            [] => first,
            own => own,
        });
        std::iter::once(first).chain(more).collect()
    }
}

/// Something that can hold a file system, with its place in the recipe.
pub(super) struct Slot<'recipe> {
    /// The JSON pointer to the place.
    pub(super) at: String,
    /// The name of the place for people.
    pub(super) shown: String,
    pub(super) format: FsFormat,
    /// The size; `None` for an array, which has that of its members.
    pub(super) size: Option<PartitionSize>,
    pub(super) mount: Option<&'recipe str>,
    pub(super) mkfs_options: &'recipe [String],
}

impl<'recipe> Slot<'recipe> {
    fn of(at: String, shown: String, size: Option<PartitionSize>, file_system: &'recipe FileSystem) -> Self {
        let FileSystem { format, mount, mkfs_options, .. } = file_system;
        Self { at, shown, format: *format, size, mount: mount.as_deref(), mkfs_options }
    }
}

/// Returns everything that can hold a file system, in the order of the recipe.
pub(super) fn slots(recipe: &Recipe) -> Vec<Slot<'_>> {
    let mut found = Vec::new();
    for (at, disk, layout) in layouts(recipe) {
        for (index, part) in layout.iter().enumerate() {
            found.push(Slot {
                at: format!("{at}/{index}"),
                shown: format!("partition {}{disk}", index + 1),
                format: part.format,
                size: Some(part.size),
                mount: part.mount.as_deref(),
                mkfs_options: &part.mkfs_options,
            });
        }
    }
    for (index, array) in recipe.storage.arrays.iter().enumerate() {
        if let ArrayContent::FileSystem(file_system) = &array.content {
            let (at, shown) = (format!("/arrays/{index}"), format!("array {}", array.name));
            found.push(Slot::of(at, shown, None, file_system));
        }
    }
    for (index, group) in recipe.storage.volume_groups.iter().enumerate() {
        for (number, volume) in group.volumes.iter().enumerate() {
            let at = format!("/volume_groups/{index}/volumes/{number}");
            let shown = format!("volume {}/{}", group.name, volume.name);
            found.push(Slot::of(at, shown, Some(volume.size), &volume.file_system));
        }
    }
    found
}

/// The written layouts with their pointers, and words for messages that name the disk.
pub(super) fn layouts(recipe: &Recipe) -> Vec<(String, String, &[Partition])> {
    let mut all = vec![("/partition_layout".to_owned(), String::new(), &recipe.partition_layout[..])];
    for (index, disk) in recipe.storage.more_disks.iter().enumerate() {
        let at = format!("/more_disks/{index}/partition_layout");
        all.push((at, format!(" of disk {}", index + 2), &disk.partition_layout[..]));
    }
    all
}

/// The members of arrays and groups.
struct Members<'recipe> {
    /// For each name, the disk of each partition.
    partitions: BTreeMap<&'recipe str, Vec<usize>>,
    /// For each group, the number of arrays in it.
    arrays: BTreeMap<&'recipe str, usize>,
}

/// Returns the errors of broken rules. The code of most is `storage`.
pub(super) fn errors(recipe: &Recipe) -> Vec<FieldError> {
    let storage = &recipe.storage;
    let mut found = Vec::new();
    let is_used = !storage.is_plain() || recipe.partition_layout.iter().any(|part| part.member_of.is_some());
    if !is_used {
        return found;
    }
    if recipe.task_target != TaskTarget::InstallLinux {
        for (field, given) in [
            ("more_disks", !storage.more_disks.is_empty()),
            ("arrays", !storage.arrays.is_empty()),
            ("volume_groups", !storage.volume_groups.is_empty()),
        ] {
            if given {
                let target = recipe.task_target;
                let message = format!("`{field}` is for install-linux.target, this recipe is for {target}.");
                found.push(FieldError::new(&format!("/{field}"), "not_for_target", message));
            }
        }
        return found;
    }
    let mut fail = |path: &str, what: String| {
        found.push(FieldError::new(path, "storage", format!("{} {what}", display(path))));
    };
    if recipe.partition_layout.is_empty() {
        fail("/partition_layout", "is needed beside arrays, volume groups and more disks.".to_owned());
    }
    disks(recipe, &mut fail);
    let names = names(storage, &mut fail);
    let members = members(recipe, &names, &mut fail);
    arrays(storage, &members, &mut fail);
    groups(storage, &members, &mut fail);
    for (index, disk) in storage.more_disks.iter().enumerate() {
        if disk.target_disk.is_none() && disk.disk_hints.is_none() {
            let path = format!("/more_disks/{index}/target_disk");
            found.push(FieldError::new(
                &path,
                "required",
                format!("more_disks/{index} needs `target_disk` or `disk_hints`."),
            ));
        }
    }
    found
}

/// Partitions that exist on several disks because a disk has no layout of its own.
fn disks(recipe: &Recipe, fail: &mut dyn FnMut(&str, String)) {
    if recipe.storage.more_disks.iter().all(|disk| !disk.partition_layout.is_empty()) {
        return;
    }
    for (index, part) in recipe.partition_layout.iter().enumerate() {
        let is_alike = part.type_guid == PartitionType::EFI_SYSTEM
            || matches!(part.format, FsFormat::Raw | FsFormat::Swap);
        if !is_alike {
            let what = "would be on every disk of the same layout; make it a member of an array or of a volume \
                        group, or give the other disks a partition_layout of their own.";
            fail(&format!("/partition_layout/{index}"), what.to_owned());
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Array,
    Group,
}

fn names<'recipe>(
    storage: &'recipe Storage,
    fail: &mut dyn FnMut(&str, String),
) -> BTreeMap<&'recipe str, Named> {
    let mut names = BTreeMap::new();
    let arrays = storage.arrays.iter().enumerate();
    let arrays = arrays.map(|(index, array)| (format!("/arrays/{index}/name"), &array.name, Named::Array));
    let groups = storage.volume_groups.iter().enumerate();
    let groups =
        groups.map(|(index, group)| (format!("/volume_groups/{index}/name"), &group.name, Named::Group));
    for (path, name, kind) in arrays.chain(groups) {
        if names.insert(name.as_str(), kind).is_some() {
            fail(&path, format!("is the name of another array or volume group too: {name}."));
        }
    }
    names
}

fn members<'recipe>(
    recipe: &'recipe Recipe,
    names: &BTreeMap<&str, Named>,
    fail: &mut dyn FnMut(&str, String),
) -> Members<'recipe> {
    let mut members = Members { partitions: BTreeMap::new(), arrays: BTreeMap::new() };
    for (at, _, layout) in layouts(recipe) {
        for (index, part) in layout.iter().enumerate() {
            let Some(name) = part.member_of.as_deref() else { continue };
            let path = format!("{at}/{index}/member_of");
            if !names.contains_key(name) {
                fail(&path, "is none of the arrays and volume groups.".to_owned());
            } else if part.format != FsFormat::Raw || part.mount.is_some() {
                fail(
                    &path,
                    "needs a partition without format and mount: a member has no file system.".to_owned(),
                );
            } else if part.type_guid == PartitionType::EFI_SYSTEM {
                let what = "cannot be given to an EFI system partition: firmware writes to it without the array. \
                            Leave it out; every disk gets an EFI system partition with the boot loader.";
                fail(&path, what.to_owned());
            } else if part.type_guid == PartitionType::BIOS_BOOT {
                fail(&path, "cannot be given to a BIOS boot partition; each disk has its own.".to_owned());
            }
        }
    }
    for (disk, layout) in recipe.storage.layouts(&recipe.partition_layout).into_iter().enumerate() {
        for name in layout.iter().filter_map(|part| part.member_of.as_deref()) {
            members.partitions.entry(name).or_default().push(disk);
        }
    }
    for (index, array) in recipe.storage.arrays.iter().enumerate() {
        let ArrayContent::MemberOf(name) = &array.content else { continue };
        if names.get(name.as_str()) != Some(&Named::Group) {
            fail(&format!("/arrays/{index}/member_of"), "is none of the volume groups.".to_owned());
        }
        *members.arrays.entry(name).or_default() += 1;
    }
    members
}

fn arrays(storage: &Storage, members: &Members<'_>, fail: &mut dyn FnMut(&str, String)) {
    for (index, array) in storage.arrays.iter().enumerate() {
        let at = format!("/arrays/{index}");
        let disks = members.partitions.get(array.name.as_str()).map_or(&[][..], Vec::as_slice);
        let least = array.level.least_members();
        if disks.len() < least {
            let (count, level) = (disks.len(), array.level.number());
            fail(
                &at,
                format!("has {count} members; level {level} needs {least}. Partitions name it in member_of."),
            );
        }
        if array.level != ArrayLevel::Raid0 && disks.iter().collect::<BTreeSet<_>>().len() < disks.len() {
            fail(&at, "has two members on one disk; the array would be lost with this disk.".to_owned());
        }
        if let ArrayContent::FileSystem(file_system) = &array.content {
            if file_system.format == FsFormat::Vfat {
                let what = "cannot hold vfat: firmware writes to an EFI system partition without the array.";
                fail(&format!("{at}/format"), what.to_owned());
            } else if file_system.format == FsFormat::Ntfs {
                fail(&format!("{at}/format"), "cannot be ntfs.".to_owned());
            }
        }
    }
}

fn groups(storage: &Storage, members: &Members<'_>, fail: &mut dyn FnMut(&str, String)) {
    for (index, group) in storage.volume_groups.iter().enumerate() {
        let at = format!("/volume_groups/{index}");
        let name = group.name.as_str();
        if !members.partitions.contains_key(name) && !members.arrays.contains_key(name) {
            fail(&at, "has no member; a partition or an array names it in member_of.".to_owned());
        }
        let (mut seen, mut shares, mut rest) = (BTreeSet::new(), 0_u32, false);
        for (number, volume) in group.volumes.iter().enumerate() {
            let at = format!("{at}/volumes/{number}");
            if !seen.insert(volume.name.as_str()) {
                fail(&format!("{at}/name"), "is the name of another volume of the group too.".to_owned());
            }
            match volume.size {
                PartitionSize::Percent(percent) => shares += u32::from(percent),
                PartitionSize::Rest if std::mem::replace(&mut rest, true) => {
                    fail(
                        &format!("{at}/size"),
                        "is a second 100%; only one volume can have the rest.".to_owned(),
                    );
                }
                PartitionSize::Rest | PartitionSize::Bytes(_) => {}
            }
            if matches!(volume.file_system.format, FsFormat::Vfat | FsFormat::Ntfs) {
                fail(&format!("{at}/format"), "cannot be vfat or ntfs in a volume group.".to_owned());
            }
        }
        if shares > 100 || (shares == 100 && rest) {
            fail(&format!("{at}/volumes"), format!("have shares of {shares}% and need more than the group."));
        }
    }
}
