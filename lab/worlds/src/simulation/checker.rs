//! What must never happen, watched all the time; and what must be true when all is quiet.
//!
//! ```text
//!   every transaction  rules of the rows (store::audit); every kind of state explains itself
//!   every BMC effect   sent by who holds the lease of the server's run; alone
//!   every boot         once from a medium; once before the cleanup of a job
//!   every promise      202 and 200 are written down, and looked for at the end
//!   at the end         all over, slots empty or the cleanup_pending is known, nothing left behind
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lab_bmc::{BootSource, OverrideEnabled, Power, SimBmc};
use redfish::{PowerState, Request, ResetType};
use serde::Deserialize;

use super::world::World;
use engine::model::{Job, Outcome, Phase, RunId, Serial};
use engine::{Condition, Explanation};

/// Violations that are kept; the first is what matters.
const KEPT: usize = 20;

/// Watches a world.
#[derive(Default)]
pub(super) struct InvariantChecker(Mutex<Observed>);

/// A report the controller has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reported {
    Success,
    Failed,
}

#[derive(Default)]
struct Observed {
    violations: Vec<String>,
    /// BMC changes under way.
    changes: BTreeMap<Serial, u32>,
    /// Boots from each image, by its URL.
    media_boots: BTreeMap<String, u32>,
    /// Boots before the cleanup of each run.
    boots: BTreeMap<RunId, u32>,
    /// The run that last complete a server to start: a slow host may boot from it when the next job has begun.
    starters: BTreeMap<Serial, RunId>,
    /// Jobs that were acknowledged, by the key they were asked for under.
    jobs: BTreeMap<String, RunId>,
    /// Jobs whose cancel was acknowledged.
    cancelled: BTreeSet<RunId>,
    reports: BTreeMap<RunId, Reported>,
    /// Conditions that were explained.
    explained: BTreeSet<String>,
    /// BMCs that restarted, or lied about what they did; their media may go under a running system.
    media_loss_allowed: BTreeSet<Serial>,
}

/// A BMC effect under way.
pub(super) struct BmcChange {
    world: Arc<World>,
    serial: Serial,
}

impl Drop for BmcChange {
    fn drop(&mut self) {
        if let Some(count) = self.world.checker.observed().changes.get_mut(&self.serial) {
            *count = count.saturating_sub(1);
        }
    }
}

impl InvariantChecker {
    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened that must not.
    pub(super) fn violation(&self, what: String) {
        let mut observed = self.observed();
        if observed.violations.len() < KEPT && !observed.violations.contains(&what) {
            observed.violations.push(what);
        }
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.observed().violations.clone()
    }

    /// The conditions that were met and explained.
    pub(super) fn conditions(&self) -> BTreeSet<String> {
        self.observed().explained.clone()
    }

    /// A request that changes something reaches a BMC: allowed only to who holds the lease of the server's run.
    pub(super) fn bmc_change(
        &self,
        world: &Arc<World>,
        serial: &Serial,
        sender: &str,
        request: &Request,
    ) -> BmcChange {
        let what = &request.path;
        match world.observer().peek_server(serial) {
            Some((run, _, _, Some(holder))) if holder == sender => {
                if starts_host(request) {
                    self.observed().starters.insert(serial.clone(), run);
                }
            }
            Some((run, phase, step, holder)) => self.violation(format!(
                "{sender} changes {serial} ({what}) while run {run} ({phase}, {}) is leased to {}",
                step.unwrap_or_default(),
                holder.as_deref().unwrap_or("nobody")
            )),
            None => self.violation(format!("{sender} changes {serial} ({what}), for which there is no job")),
        }
        let busy = {
            let mut observed = self.observed();
            let count = observed.changes.entry(serial.clone()).or_default();
            *count += 1;
            *count > 1
        };
        if busy {
            self.violation(format!("two requests change {serial} at once ({what})"));
        }
        BmcChange { world: Arc::clone(world), serial: serial.clone() }
    }

    /// A host starts.
    pub(super) fn booted(&self, world: &World, serial: &Serial, source: &BootSource) {
        if let BootSource::Media { url, .. } = source {
            let times = {
                let mut observed = self.observed();
                let times = observed.media_boots.entry(url.as_str().to_owned()).or_default();
                *times += 1;
                *times
            };
            if times > 1 {
                self.violation(format!("{serial} booted from the medium of one job {times} times"));
            }
        }
        let Some((run, phase, step, _)) = world.observer().peek_server(serial) else {
            return;
        };
        let ordered = self.observed().starters.get(serial) == Some(&run);
        if ordered && Phase::parse(&phase).is_some_and(Phase::is_forward) {
            let times = {
                let mut observed = self.observed();
                let times = observed.boots.entry(run).or_default();
                *times += 1;
                *times
            };
            if times > 1 {
                let step = step.unwrap_or_default();
                self.violation(format!(
                    "{serial} booted {times} times before the cleanup of run {run}, last in {step}"
                ));
            }
        }
    }

    /// A job was acknowledged under a key.
    pub(super) fn acknowledged(&self, key: &str, job: RunId) {
        let before = self.observed().jobs.insert(key.to_owned(), job);
        if let Some(before) = before.filter(|before| *before != job) {
            self.violation(format!("one key, two jobs: {before} and {job} under {key}"));
        }
    }

    pub(super) fn cancel_acknowledged(&self, job: RunId) {
        self.observed().cancelled.insert(job);
    }

    pub(super) fn report_acknowledged(&self, job: RunId, reported: Reported) {
        self.observed().reports.entry(job).or_insert(reported);
    }

    /// A BMC does what none should; what follows for media under a running system is not ours.
    pub(super) fn allow_media_loss(&self, serial: &Serial) {
        self.observed().media_loss_allowed.insert(serial.clone());
    }

    /// All acknowledged jobs, oldest key first.
    pub(super) fn jobs(&self) -> Vec<RunId> {
        self.observed().jobs.values().copied().collect()
    }

    /// A state was explained: it says what it is, what ends it and what to do, and by when it is looked at.
    pub(super) fn explained(&self, run: RunId, explanation: &Explanation) {
        let Explanation { condition, summary, ends_by, next_action, .. } = explanation;
        let complete = ![summary, ends_by, next_action].into_iter().any(String::is_empty);
        let bounded = explanation.deadline.is_some() || explanation.next_check.is_some();
        let may_stay = matches!(condition, Condition::Held | Condition::Ended);
        if !complete || !(bounded || may_stay) {
            self.violation(format!("run {run} is {condition:?} and cannot say why: {explanation:?}"));
        }
        let reason = explanation.reason.as_deref().unwrap_or("-");
        self.observed().explained.insert(format!("{condition:?}/{reason}"));
    }

    // === When all is quiet ===

    /// A job at the end.
    pub(super) fn check_job_at_end(&self, job: &Job) {
        let (run, id) = (&job.run, job.run.id);
        if run.phase != Phase::Ended {
            let wait = run.wait.as_ref().map_or("-", |wait| wait.reason.as_str());
            let step = run.step.as_deref().unwrap_or("-");
            return self.violation(format!(
                "job {id} did not end: {} in {step}, waiting for {wait}, due {:?}",
                run.phase.as_str(),
                run.next_run_at
            ));
        }
        let (reported, cancelled) = {
            let observed = self.observed();
            (observed.reports.get(&id).copied(), observed.cancelled.contains(&id))
        };
        let outcome = run.outcome;
        let kept = match reported {
            _ if cancelled => outcome == Some(Outcome::Cancelled),
            Some(Reported::Success) => outcome == Some(Outcome::Succeeded),
            Some(Reported::Failed) => outcome != Some(Outcome::Succeeded),
            None => true,
        };
        if !kept {
            self.violation(format!(
                "job {id} ended as {outcome:?} ({:?}), but {reported:?} was acknowledged (cancelled: {cancelled})",
                run.failure
            ));
        }
    }

    /// A server at the end, with what is known to be left undone on it, and the outcome of its last job.
    pub(super) fn check_server_at_end(&self, serial: &Serial, bmc: &SimBmc, cleanup_pending: bool, last: Option<Outcome>, lost: bool) {
        let bmc = bmc.snapshot();
        let media_loss_allowed = self.observed().media_loss_allowed.contains(serial);
        if bmc.max_in_flight > 2 {
            self.violation(format!("{serial} had {} requests at once", bmc.max_in_flight));
        }
        if bmc.ejected_while_running > 0 && !media_loss_allowed {
            self.violation(format!("a medium was taken from under the running system of {serial}"));
        }
        if bmc.open_sessions > 0 && !lost {
            self.violation(format!("{} sessions are left on {serial}, and none was lost", bmc.open_sessions));
        }
        if cleanup_pending {
            return;
        }
        if let Some(slot) = bmc.slots.iter().find(|slot| slot.image.is_some()) {
            self.violation(format!("slot {} of {serial} still holds a medium, and nobody knows", slot.id));
        }
        // Without a target it leads nowhere, whatever it says of itself (DSP0268, Boot).
        if bmc.boot.enabled != OverrideEnabled::Disabled && bmc.boot.target != "None" {
            self.violation(format!("the one-time boot of {serial} is still set, and nobody knows"));
        }
        if last == Some(Outcome::Succeeded) && bmc.power != Power::On {
            self.violation(format!("{serial} is installed and {}", bmc.power.as_str()));
        }
    }
}

/// Whether a request tells a host to start, at once or after it has stopped.
fn starts_host(request: &Request) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Reset {
        reset_type: ResetType,
    }
    let body = request.body.as_deref().filter(|_| request.path.ends_with("ComputerSystem.Reset"));
    let reset = body.and_then(|body| serde_json::from_slice::<Reset>(body).ok());
    reset.is_some_and(|reset| reset.reset_type.goal() != Some(PowerState::Off))
}
