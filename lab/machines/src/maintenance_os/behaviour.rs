//! The behaviour of an installer as data. The default is an installer without faults.

use std::time::Duration;

use crate::backoff::Backoff;

/// The unit names that an installer reports as `failed_step` (docs/maintenance-os.md).
pub mod unit {
    /// Reads the task volume and checks the recipe.
    pub const DISPATCHER: &str = "provision-dispatcher.service";
    /// Chooses the disks, before the first write.
    pub const SELECT_DISK: &str = "select-disk.service";
    /// Writes the partition table.
    pub const PARTITION: &str = "partition.service";
    /// Pulls and unpacks the image.
    pub const IMAGE_LINUX: &str = "image-linux.service";
    /// Writes the boot loader.
    pub const BOOTLOADER_LINUX: &str = "bootloader-linux.service";
    /// Writes the user data where cloud-init finds it.
    pub const CONFIG_DRIVE: &str = "config-drive.service";
    /// Waits for an operator.
    pub const RESCUE: &str = "rescue.service";
    /// Sends the report.
    pub const REPORT: &str = "provision-report.service";
    /// The sender of console lines before units start.
    pub const KERNEL: &str = "kernel";
}

/// The behaviour of the machine after the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterReport {
    /// The machine stays on until the controller powers it off.
    #[default]
    StayOn,
    /// The machine powers itself off.
    PowerOff,
    /// The machine restarts itself.
    Reboot,
}

/// The behaviour of one installer.
#[derive(Clone, Debug)]
pub struct InstallerBehaviour {
    /// The unit that fails on purpose. A unit that the target does not run never fails.
    pub fail_at: Option<String>,
    /// Installs, but sends no report.
    pub never_report: bool,
    /// Sends the report twice, with one delivery id.
    pub report_twice: bool,
    /// Reports the chosen disk and the start of every unit, without retries. Without it only the final report names the disk.
    pub report_progress: bool,
    /// Minimum duration of every unit.
    pub unit_time: Duration,
    /// Attempts and delays for the final report.
    pub report_backoff: Backoff,
    /// Attempts and delays for a pull from the registry.
    pub pull_backoff: Backoff,
    /// The pause between two reads of the medium by which a machine without a network reports.
    pub beacon_pause: Duration,
    /// The behaviour of the machine after the report.
    pub after_report: AfterReport,
    /// The time after which the rescue system reports success by itself; `None` when it runs until its power is off.
    pub rescue_ends_after: Option<Duration>,
}

impl Default for InstallerBehaviour {
    fn default() -> Self {
        let backoff = |attempts, longest| Backoff {
            attempts,
            first: Duration::from_millis(200),
            longest: Duration::from_secs(longest),
        };
        Self {
            fail_at: None,
            never_report: false,
            report_twice: false,
            report_progress: false,
            unit_time: Duration::ZERO,
            report_backoff: backoff(20, 10),
            pull_backoff: backoff(5, 5),
            beacon_pause: Duration::from_secs(1),
            after_report: AfterReport::default(),
            rescue_ends_after: None,
        }
    }
}

impl InstallerBehaviour {
    /// An installer whose `unit` fails and that has no other fault.
    #[must_use]
    pub fn failing_at(unit: impl Into<String>) -> Self {
        Self { fail_at: Some(unit.into()), ..Self::default() }
    }
}
