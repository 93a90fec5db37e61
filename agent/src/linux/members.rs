//! Disks, arrays and volume groups with their members, and the check that the volumes fit.
//!
//! ```text
//! layouts of the disks --member_of--> ArrayPlan { partitions } --member_of--> GroupPlan { partitions, arrays } --> volumes
//! ```
//!
//! Invariant: pure. Members are in the order of disks and partitions, so the same recipe gives the same commands.

use recipe::partition::PlacedPartition;
use recipe::storage::{ArrayContent, ArrayLevel, Storage};
use recipe::{Partition, PartitionSize};
use uuid::Uuid;

/// The least number of bytes that a member of an array or group keeps for metadata.
const METADATA: u64 = 1 << 20;
/// The size of an LVM extent in bytes.
pub(super) const EXTENT: u64 = 4 << 20;

/// The place of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A partition.
    Partition {
        /// The disk, from 0.
        disk: usize,
        /// The number of the partition, from 1.
        number: usize,
    },
    /// An array, from 0.
    Array(usize),
    /// A logical volume.
    Logical {
        /// The volume group, from 0.
        group: usize,
        /// The logical volume in the group, from 0.
        volume: usize,
    },
}

/// One disk with its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskLayout {
    /// The places of the partitions.
    pub placed: Vec<PlacedPartition>,
    /// Whether GRUB can be embedded for BIOS.
    pub has_bios_boot: bool,
}

/// One array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayPlan {
    /// The name.
    pub name: String,
    /// The level.
    pub level: ArrayLevel,
    /// The UUID of the array.
    pub uuid: Uuid,
    /// The partitions of the array.
    pub members: Vec<Place>,
    /// The volume group that the array belongs to.
    pub group: Option<String>,
}

/// One logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalPlan {
    /// The name.
    pub name: String,
    /// The size.
    pub size: PartitionSize,
}

/// One volume group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    /// The name.
    pub name: String,
    /// The partitions and arrays of the group.
    pub members: Vec<Place>,
    /// The logical volumes of the group.
    pub volumes: Vec<LogicalPlan>,
}

/// Returns the arrays with their members.
pub(super) fn arrays(storage: &Storage, layouts: &[&[Partition]], job: Uuid) -> Vec<ArrayPlan> {
    let arrays = storage.arrays.iter().enumerate();
    arrays
        .map(|(index, array)| ArrayPlan {
            name: array.name.clone(),
            level: array.level,
            uuid: derived(job, index + 1, "array"),
            members: partitions_of(&array.name, layouts),
            group: match &array.content {
                ArrayContent::MemberOf(group) => Some(group.clone()),
                ArrayContent::FileSystem(_) => None,
            },
        })
        .collect()
}

/// Returns the volume groups with their members: partitions, then arrays.
pub(super) fn groups(storage: &Storage, layouts: &[&[Partition]], arrays: &[ArrayPlan]) -> Vec<GroupPlan> {
    let groups = storage.volume_groups.iter();
    groups
        .map(|group| {
            let mut members = partitions_of(&group.name, layouts);
            let inside = arrays.iter().enumerate();
            let inside = inside.filter(|(_, array)| array.group.as_ref() == Some(&group.name));
            members.extend(inside.map(|(index, _)| Place::Array(index)));
            let volumes = group.volumes.iter();
            let volumes =
                volumes.map(|volume| LogicalPlan { name: volume.name.clone(), size: volume.size }).collect();
            GroupPlan { name: group.name.clone(), members, volumes }
        })
        .collect()
}

fn partitions_of(name: &str, layouts: &[&[Partition]]) -> Vec<Place> {
    let mut members = Vec::new();
    for (disk, parts) in layouts.iter().enumerate() {
        let parts = parts.iter().enumerate().filter(|(_, part)| part.member_of.as_deref() == Some(name));
        members.extend(parts.map(|(index, _)| Place::Partition { disk, number: index + 1 }));
    }
    members
}

/// Refuses what cannot fit before anything is written. The programs refuse the last few MiB that this does not know.
pub(super) fn check_sizes(
    disks: &[DiskLayout],
    arrays: &[ArrayPlan],
    groups: &[GroupPlan],
    sectors: &[u64],
) -> Result<(), String> {
    let sizes = Sizes { disks, arrays, sectors };
    let sector_of = |place: &Place| match place {
        Place::Partition { disk, .. } => sectors.get(*disk).copied(),
        _ => None,
    };
    let alike = |members: &[Place], what: &str| {
        let mut found: Vec<u64> = members.iter().filter_map(sector_of).collect();
        found.dedup();
        if found.len() > 1 {
            return Err(format!(
                "{what} would have members on disks with sectors of 512 and of 4096 bytes; choose disks of one kind"
            ));
        }
        Ok(())
    };
    for array in arrays {
        alike(&array.members, &format!("array {}", array.name))?;
        if sizes.of_array(array) < METADATA {
            return Err(format!("the partitions of array {} are too small", array.name));
        }
    }
    for group in groups {
        alike(&group.members, &format!("volume group {}", group.name))?;
        let bytes: u64 = group.members.iter().map(|place| sizes.of(*place).saturating_sub(METADATA)).sum();
        let all = bytes / EXTENT;
        let wanted = group.volumes.iter().fold(0_u64, |sum, volume| {
            sum.saturating_add(match volume.size {
                PartitionSize::Bytes(bytes) => bytes.div_ceil(EXTENT),
                PartitionSize::Percent(percent) => (all / 100 * u64::from(percent)).max(1),
                PartitionSize::Rest => 1,
            })
        });
        if wanted > all {
            return Err(format!(
                "the volumes of {} need {} MiB and the group has {} MiB; make them smaller or use bigger disks",
                group.name,
                wanted.saturating_mul(EXTENT >> 20),
                all * (EXTENT >> 20)
            ));
        }
    }
    Ok(())
}

/// The sizes that are known before anything is made.
struct Sizes<'layout> {
    disks: &'layout [DiskLayout],
    arrays: &'layout [ArrayPlan],
    sectors: &'layout [u64],
}

impl Sizes<'_> {
    /// Returns the upper bound of the bytes of a place.
    fn of(&self, place: Place) -> u64 {
        match place {
            Place::Partition { disk, number } => {
                let placed = self.disks.get(disk).map_or(&[][..], |disk| &disk.placed);
                let part = number.checked_sub(1).and_then(|index| placed.get(index));
                let sector = self.sectors.get(disk).copied().unwrap_or(512);
                part.map_or(0, |part| (part.last_lba + 1 - part.first_lba) * sector)
            }
            Place::Array(index) => self.arrays.get(index).map_or(0, |array| self.of_array(array)),
            Place::Logical { .. } => 0,
        }
    }

    fn of_array(&self, array: &ArrayPlan) -> u64 {
        let smallest = array.members.iter().map(|place| self.of(*place)).min().unwrap_or(0);
        array.level.capacity(array.members.len() as u64, smallest.saturating_sub(METADATA))
    }
}

pub(super) fn derived(job: Uuid, number: usize, what: &str) -> Uuid {
    Uuid::new_v5(&job, format!("{what} {number}").as_bytes())
}
