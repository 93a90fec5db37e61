//! The names of steps, failure classes and hold classes, and the plan of each workflow.

use engine::model::{HoldClass, RunPlan, StepInstance, StepName};

use super::{BMC_RESET, INVENTORY, POWER_CYCLE};
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

/// The BMC shows another certificate after its restart than the registered one.
pub const CERTIFICATE_CHANGED: HoldClass = HoldClass::new("certificate_changed");

/// The failure classes of these workflows, beside those of `bmc::class`.
pub mod class {
    use engine::model::FailureClass;

    /// The operating system did not end within the grace period of a soft power cycle.
    pub const SHUTDOWN_IGNORED: FailureClass = FailureClass::new("shutdown_ignored");
    /// The BMC accepted its restart and did not restart.
    pub const BMC_NOT_RESET: FailureClass = FailureClass::new("bmc_not_reset");
    /// The BMC restarted and has not returned.
    pub const BMC_NOT_BACK: FailureClass = FailureClass::new("bmc_not_back");
    /// The power state that the BMC shows does not allow to verify the change.
    pub const UNVERIFIED: FailureClass = FailureClass::new("unverified");
}

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
        _ => Plan { forward: &[], finish: &[] },
    }
}

impl Plan {
    /// The plan of a run.
    pub(super) fn of_run(&self) -> RunPlan {
        let instance = |name: &&StepName| StepInstance {
            name: (*name).clone(),
            key: String::new(),
            queue: QUEUE.to_owned(),
        };
        RunPlan {
            forward: self.forward.iter().map(instance).collect(),
            finish: self.finish.iter().map(instance).collect(),
        }
    }
}
