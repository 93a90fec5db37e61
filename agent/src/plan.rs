//! From the task and the facts of the machine to the steps, without reading or writing anything.
//!
//! ```text
//! Task + disks + media --plan--> Plan { disk, more, steps } | refusal with the step that fails
//!
//! install-image.target   partition.service -> image-disk.service -> grow-disk.service
//! install-windows.target partition.service -> image-windows.service -> grow-disk.service -> unattend-windows.service
//! install-linux.target   partition.service -> image-linux.service -> bootloader-linux.service -> config-drive.service
//! erase.target           erase.service
//! ```
//!
//! Invariants: pure. A plan names exactly one disk for each choice of the recipe, no disk twice; their sector sizes are supported,
//! and no array or volume uses them.

use recipe::DiskHints;

use crate::facts::DiskFacts;
use crate::select;
use crate::task::{Target, Task, unit};

/// One step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Removes old signatures.
    Wipe,
    /// Writes the disk image.
    WriteImage,
    /// Writes the disk image of Windows.
    WriteWindows,
    /// Writes the answer file into the Windows of the image.
    Unattend,
    /// Moves the backup table to the end of the disk and grows the last partition.
    Grow,
    /// Erases the disk and proves it by reading.
    Erase,
    /// Writes the partition table and makes the file systems.
    Partition,
    /// Applies the layers of a root file system.
    WriteLayers,
    /// Installs the boot loader of the image.
    BootLoader,
    /// Writes the seed of cloud-init.
    ConfigDrive,
}

impl Step {
    /// Returns the unit name, which is reported as `failed_step`.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Wipe => unit::PARTITION,
            Self::WriteImage => unit::IMAGE_DISK,
            Self::WriteWindows => unit::IMAGE_WINDOWS,
            Self::Unattend => unit::UNATTEND,
            Self::Grow => unit::GROW,
            Self::Erase => unit::ERASE,
            Self::Partition => unit::PARTITION,
            Self::WriteLayers => unit::IMAGE_LINUX,
            Self::BootLoader => unit::BOOTLOADER,
            Self::ConfigDrive => unit::CONFIG_DRIVE,
        }
    }

    /// Returns the percentage of the whole that is done when the step begins.
    #[must_use]
    pub fn percent(self) -> u8 {
        match self {
            Self::Wipe | Self::Erase | Self::Partition => 2,
            Self::WriteImage | Self::WriteWindows => 5,
            Self::WriteLayers => 10,
            Self::BootLoader => 85,
            Self::Grow | Self::ConfigDrive => 95,
            Self::Unattend => 97,
        }
    }
}

/// The steps and their disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The disk. No other is written but those of `more`.
    pub disk: DiskFacts,
    /// The disks of `more_disks`, in their order.
    pub more: Vec<DiskFacts>,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// A step that failed, and the reason for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The unit.
    pub unit: &'static str,
    /// The reason.
    pub message: String,
}

/// Makes the plan. `media` are the devices that hold the boot and the task medium.
///
/// # Errors
/// Returns the failed step when not exactly one disk remains, or when that disk cannot be used.
pub fn plan(task: &Task, disks: &[DiskFacts], media: &[String]) -> Result<Plan, Failure> {
    let failed = |message: String| Failure { unit: unit::SELECT_DISK, message };
    let choose = |target: Option<&str>, hints: Option<&DiskHints>| {
        let disk = select::select(disks, media, target, hints).map_err(|refused| refused.to_string())?;
        usable(disk).map(|()| disk.clone())
    };
    let disk = choose(task.target_disk.as_deref(), task.disk_hints.as_ref()).map_err(failed)?;
    let mut more: Vec<DiskFacts> = Vec::new();
    if let Target::InstallLinux(linux) = &task.target {
        for (index, wanted) in linux.storage.more_disks.iter().enumerate() {
            let chosen = choose(wanted.target_disk.as_deref(), wanted.disk_hints.as_ref())
                .map_err(|reason| failed(format!("more_disks/{index}: {reason}")))?;
            if chosen == disk || more.contains(&chosen) {
                let shown = chosen.shown();
                return Err(failed(format!(
                    "more_disks/{index} is {shown}, which is chosen already; give each disk hints that match no other; \
                     nothing was written"
                )));
            }
            more.push(chosen);
        }
    }
    let steps = match task.target {
        Target::InstallImage(_) => vec![Step::Wipe, Step::WriteImage, Step::Grow],
        Target::InstallWindows(_, None) => vec![Step::Wipe, Step::WriteWindows, Step::Grow],
        Target::InstallWindows(_, Some(_)) => {
            vec![Step::Wipe, Step::WriteWindows, Step::Grow, Step::Unattend]
        }
        Target::InstallLinux(_) => {
            vec![Step::Partition, Step::WriteLayers, Step::BootLoader, Step::ConfigDrive]
        }
        Target::Erase(_) => vec![Step::Erase],
        // They need no disk, and the executor makes no plan for them.
        Target::Inventory | Target::Rescue(_) => Vec::new(),
    };
    Ok(Plan { disk, more, steps })
}

/// Returns whether a choice of the task meets no disk at all, so that one that appears later can be the one.
#[must_use]
pub fn lacks_disk(task: &Task, disks: &[DiskFacts], media: &[String]) -> bool {
    let mut choices = vec![(task.target_disk.as_deref(), task.disk_hints.as_ref())];
    if let Target::InstallLinux(linux) = &task.target {
        let more = linux.storage.more_disks.iter();
        choices.extend(more.map(|wanted| (wanted.target_disk.as_deref(), wanted.disk_hints.as_ref())));
    }
    choices.into_iter().any(|(target, hints)| {
        select::select(disks, media, target, hints).is_err_and(|refused| refused.is_missing())
    })
}

/// Refuses a disk that cannot be written.
fn usable(disk: &DiskFacts) -> Result<(), String> {
    if !disk.holders.is_empty() {
        return Err(format!(
            "{} is in use by {}; nothing was written. Start the medium with raid=noautodetect, or stop the array",
            disk.shown(),
            disk.holders.join(", ")
        ));
    }
    if disk.sector != 512 && disk.sector != 4096 {
        return Err(format!(
            "{} has sectors of {} bytes; 512 and 4096 are supported",
            disk.name, disk.sector
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            target: Target::Erase(recipe::EraseMode::Quick),
            target_disk: Some("/dev/sda".to_owned()),
            disk_hints: None,
        }
    }

    fn disk() -> DiskFacts {
        DiskFacts { name: "sda".to_owned(), bytes: 1 << 30, sector: 512, ..DiskFacts::default() }
    }

    #[test]
    fn a_plan_names_one_disk_and_the_steps_in_order() {
        let image = crate::oci::ImageReference::parse("h:1/a:1").unwrap();
        let install = Task { target: Target::InstallImage(image), ..task() };
        let plan = super::plan(&install, &[disk()], &[]).unwrap();
        let units: Vec<_> = plan.steps.iter().map(|step| step.unit()).collect();
        assert_eq!(units, ["partition.service", "image-disk.service", "grow-disk.service"]);
        assert!(plan.steps.windows(2).all(|pair| pair[0].percent() < pair[1].percent()));
        assert_eq!(plan.disk, disk());
    }

    #[test]
    fn a_disk_in_use_or_with_odd_sectors_is_refused() {
        let used = DiskFacts { holders: vec!["md127".to_owned()], ..disk() };
        assert!(plan(&task(), &[used], &[]).unwrap_err().message.contains("md127"));
        let odd = DiskFacts { sector: 520, ..disk() };
        let refused = plan(&task(), &[odd], &[]).unwrap_err();
        assert_eq!(refused.unit, "select-disk.service");
        assert_eq!(plan(&task(), &[], &[]).unwrap_err().unit, "select-disk.service");
    }
}
