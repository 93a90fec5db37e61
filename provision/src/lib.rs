//! The provisioning workflow: from a recipe and a serial number to an installed machine.
//!
//! ```text
//!  forward  validate -> iso.build -> redfish.discover -> redfish.power-off -> redfish.eject -> redfish.mount.maintenance
//!           -> redfish.mount.task -> redfish.boot-override -> redfish.power-on -> webhook.wait | redfish.poll
//!           rescue.target: webhook.wait until the machine is reachable -> rescue.wait until the session ends
//!           wait without a read of the media -> once more from redfish.power-off on, by a second way to boot
//!  finish   cleanup.power-off -> cleanup.eject -> cleanup.boot-override -> cleanup.power-on -> cleanup.grant
//! ```
//!
//! Invariants
//! - A BMC is changed only after its serial number matched the registered one (decision D3a); every change is read back
//!   (decision D4).
//! - A step observes first: when it is called again after a crash, a retry or a wait, it does only what is missing
//!   (decision D8).
//! - After power-on a restart of the controller never restarts the host; `redfish.power-on` sends `On` only to a host without
//!   a sign of a start. A host that has read the media since the power-on, or has reported, is never powered off for a second
//!   way to boot.
//! - Cleanup reverts only what the intents of the job record.
//! - This crate and the other workflows do not use each other.
//!
//! Elsewhere: connections, the identity check, power, one-time boot, slots and the slot planner are in `bmc`, which every
//! workflow shares; images and grants are in `media`; recipes are in `recipe`.

mod completion;
mod dry_run;
mod former_disk;
mod media_report;
mod medium_image;
mod names;
mod order;
mod os_image;
mod outputs;
mod reachable;
mod remark;
mod report;
mod report_outcome;
mod second_way;
mod services;
mod slot_refusals;
mod steps;
mod waits;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bmc::QUEUE;
use engine::{ChildRefused, ChildRequest, Remark, Step, StepPolicy, WaitReason, Workflow};
use model::{NewRun, RunPlan, Snapshot, StepInstance, StepName, WorkflowVersion};
use recipe::TaskTarget;

pub use dry_run::{DryRun, PlannedImage, PlannedStep};
pub use media_report::deliver_news;
pub use medium_image::MediumImage;
pub use order::{JobOrder, OrderError, ReadyOrder};
pub use reachable::{Finished, Reach, finish, may_finish};
pub use report::{InstallReport, ReportError, Via, parse as parse_report};
pub use report_outcome::ReportOutcome;
pub use services::{
    ControllerAuthorities, OsImages, ProvisionLimits, ProvisionMetrics, ProvisionSettings, Services,
};
pub use steps::{remove_task_images, slot_plan};

/// The workflow's name.
pub const WORKFLOW: &str = model::PROVISION;
/// The version of the workflow. It grows when plans of the old version can no longer be executed.
const VERSION: WorkflowVersion = WorkflowVersion(1);

/// The closed list of failure classes of this workflow.
pub mod class {
    pub use bmc::class::{BMC_REFUSED, BMC_UNREACHABLE, INPUT, MEDIA, TRANSIENT, UNSUPPORTED};

    /// The maintenance OS reported a failure.
    pub const INSTALLER: model::FailureClass = model::FailureClass::new("installer");

    /// Returns the class that a report of the machine names. The other classes are findings of the controller, so a report that names
    /// one of them, another word or none has [`INSTALLER`].
    pub(crate) fn reported(named: Option<&str>) -> model::FailureClass {
        let known = [INPUT, MEDIA, UNSUPPORTED].into_iter().find(|class| Some(class.as_str()) == named);
        known.unwrap_or(INSTALLER)
    }
}

/// A step's name and its constructor.
type Row = (&'static StepName, fn(Arc<Services>) -> Arc<dyn Step>);

/// The forward steps in order, without the last one.
const FORWARD: [Row; 9] = [
    (names::VALIDATE, |services| Arc::new(steps::Validate(services))),
    (names::ISO_BUILD, |services| Arc::new(steps::IsoBuild(services))),
    (names::DISCOVER, |services| Arc::new(steps::Discover(services))),
    (names::POWER_OFF, |services| Arc::new(steps::PowerOff(services))),
    (names::EJECT, |services| Arc::new(steps::Eject(services))),
    (names::MOUNT_MAINTENANCE, |services| Arc::new(steps::MountMaintenance(services))),
    (names::MOUNT_TASK, |services| Arc::new(steps::MountTask(services))),
    (names::BOOT_OVERRIDE, |services| Arc::new(steps::SetBootOverride(services))),
    (names::POWER_ON, |services| Arc::new(steps::PowerOn(services))),
];

/// The last forward step: wait for the report, or observe the machine when the target cannot report.
const REPORTED: Row = (names::AWAIT_REPORT, |services| Arc::new(steps::AwaitReport(services)));
const OBSERVED: Row = (names::AWAIT_COMPLETION, |services| Arc::new(steps::AwaitCompletion(services)));

/// The wait after [`REPORTED`] of a target whose system stays until an operator has done their work.
const SESSION: Row = (names::AWAIT_SESSION, |services| Arc::new(steps::AwaitSession(services)));

/// The finish steps in order; they run at every end of a job.
const FINISH: [Row; 5] = [
    (names::CLEANUP_POWER_OFF, |services| Arc::new(steps::CleanupPowerOff(services))),
    (names::CLEANUP_EJECT, |services| Arc::new(steps::CleanupEject(services))),
    (names::CLEANUP_BOOT_OVERRIDE, |services| Arc::new(steps::CleanupBootOverride(services))),
    (names::CLEANUP_POWER_ON, |services| Arc::new(steps::CleanupPowerOn(services))),
    (names::CLEANUP_GRANT, |services| Arc::new(steps::CleanupGrant(services))),
];

/// The provisioning workflow.
pub struct Provision {
    services: Arc<Services>,
}

impl Provision {
    /// Creates the workflow over the services.
    pub fn new(services: Arc<Services>) -> Self {
        Self { services }
    }

    /// Returns the plan of jobs with this target.
    fn plan(target: TaskTarget) -> RunPlan {
        let instances = |rows: &[Row]| {
            rows.iter()
                .map(|(name, _)| StepInstance {
                    name: (*name).clone(),
                    key: String::new(),
                    queue: QUEUE.to_owned(),
                })
                .collect()
        };
        let last: &[Row] = match target {
            target if cannot_report(target) => &[OBSERVED],
            TaskTarget::Rescue => &[REPORTED, SESSION],
            _ => &[REPORTED],
        };
        RunPlan { forward: instances(&[&FORWARD[..], last].concat()), finish: instances(&FINISH) }
    }
}

/// Whether the system that a target boots cannot send an installation report: the ESXi installer is not ours.
fn cannot_report(target: TaskTarget) -> bool {
    target == TaskTarget::InstallEsxi
}

/// Returns the names of all steps in order.
pub fn step_names() -> impl Iterator<Item = &'static str> {
    FORWARD.iter().chain(&[REPORTED, OBSERVED, SESSION]).chain(&FINISH).map(|(name, _)| name.as_str())
}

/// Limits a policy to a time: all attempts, waits and calls of the step.
fn timed(policy: StepPolicy, time: Duration) -> StepPolicy {
    StepPolicy { budget: time, wait: Some(time), call: policy.call.min(time), ..policy }
}

/// Takes the time that earlier instances of a step used from its policy.
fn shortened(policy: StepPolicy, used: Duration) -> StepPolicy {
    let wait = policy.wait.map(|wait| wait.saturating_sub(used));
    StepPolicy { budget: policy.budget.saturating_sub(used), wait, ..policy }
}

impl Workflow for Provision {
    fn name(&self) -> &'static str {
        WORKFLOW
    }

    fn version(&self) -> WorkflowVersion {
        VERSION
    }

    fn step(&self, name: &StepName) -> Option<Arc<dyn Step>> {
        FORWARD
            .iter()
            .chain(&[REPORTED, OBSERVED, SESSION])
            .chain(&FINISH)
            .find(|(known, _)| *known == name)
            .map(|(_, make)| make(Arc::clone(&self.services)))
    }

    fn prepare_child(&self, request: ChildRequest) -> Result<NewRun, ChildRefused> {
        let job: JobOrder = serde_json::from_value(request.input)
            .map_err(|why| ChildRefused(format!("the order of a provision job cannot be read: {why}")))?;
        let ready = self.services.accept(job, request.id, &request.created_by, request.now);
        let mut run = ready.map_err(|why| ChildRefused(why.to_string()))?.run;
        run.parent = Some(request.parent);
        Ok(run)
    }

    fn finish_timeout(&self) -> Duration {
        self.services.settings.cleanup_timeout
    }

    /// Returns the policy the step declares, with the time limit of the order or of the settings if one is set. The instances of
    /// a step that runs again for another slot plan share its time.
    fn policy(&self, step: &StepName, snapshot: &Snapshot) -> StepPolicy {
        let declared = self.step(step).map(|step| step.policy()).unwrap_or_default();
        let policy = match self.services.time_limit(step, snapshot) {
            Some(time) => timed(declared, time),
            None => declared,
        };
        match slot_refusals::REPEATED_STEPS.contains(&step) {
            true => shortened(policy, slot_refusals::time_of(snapshot, &[step])),
            false => policy,
        }
    }

    fn remark(&self, snapshot: &Snapshot) -> Option<Remark> {
        remark::remark(snapshot)
    }

    fn limit_setting(&self, resource: &str) -> Option<&'static str> {
        let (prefix, _) = resource.split_once('/')?;
        match prefix {
            "permit" => Some("MAX_POWER_ONS"),
            "site" => Some("SITE_LIMIT"),
            "batch" => Some("max_parallel of the batch"),
            "bmc" => Some("one job at a time per BMC"),
            _ => None,
        }
    }

    fn wait_reasons(&self) -> &'static [&'static WaitReason] {
        &waits::ALL
    }
}
