//! How an installer behaves, as data: honest unless told otherwise.

use std::time::Duration;

use crate::backoff::Backoff;

/// The unit names an installer reports as `failed_step` (notes/contracts.md 025 and 026).
pub mod unit {
    /// Reads the task volume and checks the recipe.
    pub const DISPATCHER: &str = "provision-dispatcher.service";
    /// Writes the partition table.
    pub const PARTITION: &str = "partition.service";
    /// Pulls and unpacks the image.
    pub const IMAGE_LINUX: &str = "image-linux.service";
    /// Makes the disk bootable.
    pub const BOOTLOADER_LINUX: &str = "bootloader-linux.service";
    /// Leaves user data where cloud-init finds it.
    pub const CONFIG_DRIVE: &str = "config-drive.service";
    /// Sends the report.
    pub const REPORT: &str = "provision-report.service";
    /// What speaks before there are units.
    pub const KERNEL: &str = "kernel";
}

/// What the machine does after it has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterReport {
    /// Stays up until the controller switches it off.
    #[default]
    StayOn,
    /// Switches itself off.
    PowerOff,
    /// Restarts itself.
    Reboot,
}

/// One installer's behaviour.
#[derive(Clone, Debug)]
pub struct InstallerBehaviour {
    /// The unit that fails on purpose; one that does not run for the recipe's target never fails.
    pub fail_at: Option<String>,
    /// Installs but keeps silent.
    pub never_report: bool,
    /// Sends the same report a second time, with the same delivery id.
    pub report_twice: bool,
    /// Reports the beginning of every unit, best effort.
    pub report_progress: bool,
    /// Time every unit takes at least.
    pub pace: Duration,
    /// How often the final report is tried.
    pub report_backoff: Backoff,
    /// How often a pull from the registry is tried.
    pub pull_backoff: Backoff,
    /// What happens after the report.
    pub after_report: AfterReport,
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
            pace: Duration::ZERO,
            report_backoff: backoff(20, 10),
            pull_backoff: backoff(5, 5),
            after_report: AfterReport::default(),
        }
    }
}

impl InstallerBehaviour {
    /// An honest installer whose `unit` fails.
    #[must_use]
    pub fn failing_at(unit: impl Into<String>) -> Self {
        Self { fail_at: Some(unit.into()), ..Self::default() }
    }
}
