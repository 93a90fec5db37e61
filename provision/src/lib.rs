//! The provisioning workflow: from a recipe and a serial number to an installed machine. The only room that joins the
//! engine, media and Redfish.
//!
//! ```text
//!  forward  validate -> iso.build -> redfish.discover -> redfish.power-off -> redfish.eject -> redfish.mount.maintenance
//!           -> redfish.mount.task -> redfish.boot-override -> redfish.power-on -> webhook.wait | redfish.poll
//!  finish   cleanup.power-off -> cleanup.eject -> cleanup.boot-override -> cleanup.power-on -> cleanup.grant
//! ```
//!
//! Invariants
//! - Nothing is changed on a BMC whose serial is not the registered one (lock L3a); every change is read back (L4).
//! - A step observes first: called again after a crash, a retry or a wait it only does what is still missing (L8).
//! - Past power-on nothing restarts the host because the controller did; [`steps::power_on`] sends `On` at most to a host
//!   that shows no sign of having been started.
//! - Cleanup undoes what the job's own intents record, and nothing else.

mod bmc;
mod bmc_state;
mod classify;
mod completion;
mod diagnostics;
mod dry_run;
mod order;
mod outputs;
pub mod probe;
mod profiles;
mod report;
mod services;
mod slots;
mod steps;
mod waits;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use engine::model::{NewRun, Plan, Snapshot, StepInstance};
use engine::{Kind, Order, Reason, Refusal, Step, StepPolicy};
use recipe::TaskTarget;

pub use bmc::{BmcLimits, Bmcs, Network, SealedSession, Sessions, SocketConnector};
pub use diagnostics::{DiagnosticsWorkflow, examination, findings};
pub use dry_run::DryRun;
pub use order::{JobOrder, OrderError, ReadyOrder};
pub use profiles::{checked_profile, checked_quirks};
pub use report::{Report, ReportError, ReportOutcome, parse as parse_report};
pub use services::{
    Addresses, Directory, Images, Limits, ProvisionMetrics, ProvisionSettings, Site, Unavailable,
    checked_base_url, checked_bmc_address, checked_fingerprint,
};
pub use steps::{grant_context, power_on_permit, slot_plan};

/// The workflow's name.
pub const KIND: &str = "provision";
/// Grows when an old plan may no longer be carried out as it stands.
const VERSION: u32 = 1;
/// The queue its steps belong to.
pub const QUEUE: &str = "default";

/// Failure classes of this workflow; a closed list.
pub mod class {
    /// What was asked for is wrong: recipe, server record, credentials, another machine's BMC.
    pub const INPUT: &str = "input";
    /// It may work when tried again.
    pub const TRANSIENT: &str = "transient";
    /// The BMC does not answer.
    pub const BMC_UNREACHABLE: &str = "bmc_unreachable";
    /// The BMC said no.
    pub const BMC_REFUSED: &str = "bmc_refused";
    /// The BMC cannot do what is needed.
    pub const UNSUPPORTED: &str = "unsupported";
    /// An image could not be made, read or served.
    pub const MEDIA: &str = "media";
    /// The maintenance OS reported a failure.
    pub const INSTALLER: &str = "installer";
}

/// A step's name and what makes it.
type Row = (&'static str, fn(Arc<Site>) -> Arc<dyn Step>);

/// The steps towards an installed machine, in order.
const FORWARD: [Row; 9] = [
    ("validate", |site| Arc::new(steps::Validate(site))),
    ("iso.build", |site| Arc::new(steps::IsoBuild(site))),
    ("redfish.discover", |site| Arc::new(steps::Discover(site))),
    ("redfish.power-off", |site| Arc::new(steps::PowerOff(site))),
    ("redfish.eject", |site| Arc::new(steps::Eject(site))),
    ("redfish.mount.maintenance", |site| Arc::new(steps::MountMaintenance(site))),
    ("redfish.mount.task", |site| Arc::new(steps::MountTask(site))),
    ("redfish.boot-override", |site| Arc::new(steps::SetBootOverride(site))),
    ("redfish.power-on", |site| Arc::new(steps::PowerOn(site))),
];

/// The last of them: the machine reports, or, where its target cannot, it is looked at.
const REPORTED: Row = ("webhook.wait", |site| Arc::new(steps::AwaitReport(site)));
const OBSERVED: Row = ("redfish.poll", |site| Arc::new(steps::AwaitCompletion(site)));

/// What is done after every ending, in order.
const FINISH: [Row; 5] = [
    ("cleanup.power-off", |site| Arc::new(steps::CleanupPowerOff(site))),
    ("cleanup.eject", |site| Arc::new(steps::CleanupEject(site))),
    ("cleanup.boot-override", |site| Arc::new(steps::CleanupBootOverride(site))),
    ("cleanup.power-on", |site| Arc::new(steps::CleanupPowerOn(site))),
    ("cleanup.grant", |site| Arc::new(steps::CleanupGrant(site))),
];

/// The workflow.
pub struct Provision {
    site: Arc<Site>,
}

impl Provision {
    /// The workflow at a site.
    pub fn new(site: Arc<Site>) -> Self {
        Self { site }
    }

    /// The plan of every job for a target.
    fn plan(target: TaskTarget) -> Plan {
        let instances = |rows: &[Row]| {
            rows.iter()
                .map(|(name, _)| StepInstance {
                    name: (*name).to_owned(),
                    key: String::new(),
                    queue: QUEUE.to_owned(),
                })
                .collect()
        };
        let last = if cannot_report(target) { OBSERVED } else { REPORTED };
        Plan { forward: instances(&[&FORWARD[..], &[last]].concat()), finish: instances(&FINISH) }
    }
}

/// Whether what a target boots is not ours and tells nobody how it ended: the ESXi installer.
fn cannot_report(target: TaskTarget) -> bool {
    target == TaskTarget::InstallEsxi
}

/// The names of all steps, in order.
pub fn step_names() -> impl Iterator<Item = &'static str> {
    FORWARD.iter().chain(&[REPORTED, OBSERVED]).chain(&FINISH).map(|(name, _)| *name)
}

/// A policy with another time for all of the step: its tries, its waits, and no call beyond it.
fn timed(policy: StepPolicy, time: Duration) -> StepPolicy {
    StepPolicy { budget: time, wait: Some(time), call: policy.call.min(time), ..policy }
}

impl Kind for Provision {
    fn name(&self) -> &'static str {
        KIND
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn step(&self, name: &str) -> Option<Arc<dyn Step>> {
        FORWARD
            .iter()
            .chain(&[REPORTED, OBSERVED])
            .chain(&FINISH)
            .find(|(known, _)| *known == name)
            .map(|(_, make)| make(Arc::clone(&self.site)))
    }

    fn prepare(&self, order: Order) -> Result<NewRun, Refusal> {
        let job: JobOrder = serde_json::from_value(order.input)
            .map_err(|why| Refusal(format!("the order of a provision job cannot be read: {why}")))?;
        let ready = self.site.accept(job, order.id, &order.created_by, order.now);
        let mut run = ready.map_err(|why| Refusal(why.to_string()))?.run;
        run.parent = Some(order.parent);
        Ok(run)
    }

    fn finish_timeout(&self) -> Duration {
        self.site.settings.cleanup_timeout
    }

    /// What the step declares, unless the order or the site gives it another time.
    fn policy(&self, step: &str, snapshot: &Snapshot) -> StepPolicy {
        let declared = self.step(step).map(|step| step.policy()).unwrap_or_default();
        let ordered = snapshot.input["timeouts"][step].as_u64().map(Duration::from_secs);
        match ordered.or_else(|| self.site.settings.limits.steps.get(step).copied()) {
            Some(time) => timed(declared, time),
            None => declared,
        }
    }

    fn limit(&self, resource: &str) -> Option<&'static str> {
        let (kind, _) = resource.split_once('/')?;
        match kind {
            "turn" => Some("MAX_POWER_ONS"),
            "site" => Some("SITE_LIMIT"),
            "batch" => Some("max_parallel of the batch"),
            "bmc" => Some("one job at a BMC"),
            _ => None,
        }
    }

    fn reasons(&self) -> &'static [&'static Reason] {
        &waits::ALL
    }
}
