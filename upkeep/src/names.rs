//! The names of steps, failure classes and hold classes, and the plan of each workflow.

use model::{HoldClass, RunPlan, StepInstance, StepName};

use super::{BIOS_APPLY, BMC_RESET, FIRMWARE_INSTALL, INVENTORY, POWER_CYCLE};
use bmc::QUEUE;

pub(super) const POWER_IDENTIFY: &StepName = &StepName::new("power.identify");
pub(super) const POWER_OFF: &StepName = &StepName::new("power.off");
pub(super) const POWER_ON: &StepName = &StepName::new("power.on");
pub(super) const POWER_RESTORE: &StepName = &StepName::new("power.restore");
pub(super) const POWER_RELEASE: &StepName = &StepName::new("power.release");
pub(super) const BMC_IDENTIFY: &StepName = &StepName::new("bmc.identify");
pub(super) const RESET: &StepName = &StepName::new("bmc.reset");
pub(super) const BACK: &StepName = &StepName::new("bmc.back");
pub(super) const BMC_RELEASE: &StepName = &StepName::new("bmc.release");
pub(super) const READ: &StepName = &StepName::new("inventory.read");
pub(super) const INVENTORY_RELEASE: &StepName = &StepName::new("inventory.release");

pub(super) const FW_VALIDATE: &StepName = &StepName::new("firmware.validate");
pub(super) const FW_IDENTIFY: &StepName = &StepName::new("firmware.identify");
pub(super) const FW_POWER_ON: &StepName = &StepName::new("firmware.power-on");
pub(super) const FW_PLAN: &StepName = &StepName::new("firmware.plan");
pub(super) const FW_HOST_OFF: &StepName = &StepName::new("firmware.host-off");
pub(super) const FW_UPLOAD: &StepName = &StepName::new("firmware.upload");
pub(super) const FW_WATCH: &StepName = &StepName::new("firmware.watch");
pub(super) const FW_SHUT_DOWN: &StepName = &StepName::new("firmware.shut-down");
pub(super) const FW_HOST_ON: &StepName = &StepName::new("firmware.host-on");
pub(super) const FW_VERIFY: &StepName = &StepName::new("firmware.verify");
pub(super) const FW_CONFIRM: &StepName = &StepName::new("firmware.confirm");
pub(super) const FW_SETTLE: &StepName = &StepName::new("firmware.settle");
pub(super) const FW_POWER_RESTORE: &StepName = &StepName::new("firmware.power-restore");
pub(super) const FW_RELEASE: &StepName = &StepName::new("firmware.release");

pub(super) const BIOS_VALIDATE: &StepName = &StepName::new("bios.validate");
pub(super) const BIOS_IDENTIFY: &StepName = &StepName::new("bios.identify");
pub(super) const BIOS_PLAN: &StepName = &StepName::new("bios.plan");
pub(super) const BIOS_WRITE: &StepName = &StepName::new("bios.write");
pub(super) const BIOS_BOOT_ORDER: &StepName = &StepName::new("bios.boot-order");
pub(super) const BIOS_SHUT_DOWN: &StepName = &StepName::new("bios.shut-down");
pub(super) const BIOS_HOST_ON: &StepName = &StepName::new("bios.host-on");
pub(super) const BIOS_VERIFY: &StepName = &StepName::new("bios.verify");
pub(super) const BIOS_SETTLE: &StepName = &StepName::new("bios.settle");
pub(super) const BIOS_POWER_RESTORE: &StepName = &StepName::new("bios.power-restore");
pub(super) const BIOS_RELEASE: &StepName = &StepName::new("bios.release");

/// The BMC shows another certificate after its restart than the registered one.
pub const CERTIFICATE_CHANGED: HoldClass = HoldClass::new("certificate_changed");

/// The failure classes of these workflows, beside those of `bmc::class`.
pub mod class {
    use model::FailureClass;

    /// The operating system did not end within the grace period of a soft power cycle.
    pub const SHUTDOWN_IGNORED: FailureClass = FailureClass::new("shutdown_ignored");
    /// The BMC accepted its restart and did not restart.
    pub const BMC_NOT_RESET: FailureClass = FailureClass::new("bmc_not_reset");
    /// The BMC restarted and has not returned.
    pub const BMC_NOT_BACK: FailureClass = FailureClass::new("bmc_not_back");
    /// The set must not be installed on this server: see the plan.
    pub const PLAN_REFUSED: FailureClass = FailureClass::new("plan_refused");
    /// The bytes of a firmware file are not the recorded ones, or the file is gone.
    pub const FIRMWARE_FILE: FailureClass = FailureClass::new("firmware_file");
    /// The BMC refused an image.
    pub const IMAGE_REFUSED: FailureClass = FailureClass::new("image_refused");
    /// No read showed whether the BMC has the image; the image is not sent again.
    pub const UPLOAD_UNKNOWN: FailureClass = FailureClass::new("upload_unknown");
    /// The BMC does not read an image from its URL.
    pub const IMAGE_NOT_READ: FailureClass = FailureClass::new("image_not_read");
    /// The BMC says that an update failed, and the version agrees.
    pub const UPDATE_FAILED: FailureClass = FailureClass::new("update_failed");
    /// An update does not end.
    pub const UPDATE_STUCK: FailureClass = FailureClass::new("update_stuck");
    /// An update has ended, and another version than the new one is installed.
    pub const VERSION_UNCHANGED: FailureClass = FailureClass::new("version_unchanged");
    /// The server lost power in the middle of an update: its component is not installed, or a further one is not sent.
    pub const POWER_LOST: FailureClass = FailureClass::new("power_lost");
    /// The BIOS does not have a wanted setting, or refuses its value: see the plan.
    pub const SETTINGS_REFUSED: FailureClass = FailureClass::new("settings_refused");
    /// The BMC accepted settings, and shows them neither as pending nor as in force.
    pub const SETTINGS_NOT_STORED: FailureClass = FailureClass::new("settings_not_stored");
    /// The host was restarted, and the BIOS has other values than the new ones.
    pub const SETTINGS_UNCHANGED: FailureClass = FailureClass::new("settings_unchanged");
    /// The maintenance window ended before the host could be restarted.
    pub const WINDOW_OVER: FailureClass = FailureClass::new("window_over");
    /// The power state that the BMC shows does not allow to verify the change.
    pub const UNVERIFIED: FailureClass = FailureClass::new("unverified");
}

/// The steps of one component, in their order; those that the BMC or the component does not need are skipped.
pub(super) const OF_COMPONENT: [&StepName; 6] =
    [FW_HOST_OFF, FW_UPLOAD, FW_WATCH, FW_SHUT_DOWN, FW_HOST_ON, FW_VERIFY];

/// The steps that hold files of the registry: the controller executes them, wherever the BMC is.
const OF_CONTROLLER: [&StepName; 2] = [FW_VALIDATE, FW_RELEASE];

/// The steps of a workflow.
pub(super) struct Plan {
    pub(super) forward: &'static [&'static StepName],
    pub(super) finish: &'static [&'static StepName],
}

/// The steps of a workflow of this crate; none for another name.
pub(super) fn plan(workflow: &str) -> Plan {
    match workflow {
        POWER_CYCLE => {
            Plan { forward: &[POWER_IDENTIFY, POWER_OFF, POWER_ON], finish: &[POWER_RESTORE, POWER_RELEASE] }
        }
        BMC_RESET => Plan { forward: &[BMC_IDENTIFY, RESET, BACK], finish: &[BMC_RELEASE] },
        INVENTORY => Plan { forward: &[READ], finish: &[INVENTORY_RELEASE] },
        FIRMWARE_INSTALL => Plan {
            forward: &[FW_VALIDATE, FW_IDENTIFY, FW_POWER_ON, FW_PLAN, FW_CONFIRM],
            finish: &[FW_SETTLE, FW_POWER_RESTORE, FW_RELEASE],
        },
        BIOS_APPLY => Plan {
            forward: &[
                BIOS_VALIDATE,
                BIOS_IDENTIFY,
                BIOS_PLAN,
                BIOS_WRITE,
                BIOS_BOOT_ORDER,
                BIOS_SHUT_DOWN,
                BIOS_HOST_ON,
                BIOS_VERIFY,
            ],
            finish: &[BIOS_SETTLE, BIOS_POWER_RESTORE, BIOS_RELEASE],
        },
        _ => Plan { forward: &[], finish: &[] },
    }
}

impl Plan {
    /// The plan of a run whose steps at the BMC are executed in `queue`.
    pub(super) fn of_run(&self, queue: &str) -> RunPlan {
        let instance = |name: &&StepName| StepInstance {
            name: (*name).clone(),
            key: String::new(),
            queue: if OF_CONTROLLER.contains(name) { QUEUE } else { queue }.to_owned(),
        };
        RunPlan {
            forward: self.forward.iter().map(instance).collect(),
            finish: self.finish.iter().map(instance).collect(),
        }
    }
}
