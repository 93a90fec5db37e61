//! The rules of a world: rules that must hold after every change, and promises that are checked at the end.
//!
//! ```text
//!   every transaction  invariants of the rows (store::audit); every state has a complete explanation
//!   every BMC change   sent by the holder of the lease of the server's run; one at a time; no other run of the server has begun;
//!                      while the BMC writes firmware, neither a reset nor another image
//!   every boot         once from a medium; once before the cleanup of a job, and once more if the first was from the disk
//!   every promise      every acknowledgement (202, 200) is recorded and checked at the end
//!   at the end         all jobs ended, slots empty or cleanup pending, no session left
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lab_bmc::{BootSource, OverrideEnabled, Power, SimBmc};
use parking_lot::{Mutex, MutexGuard};
use redfish::{PowerState, Request, ResetType};
use serde::Deserialize;
use tokio::time::Instant;

use engine::Explanation;
use model::{Condition, Job, Outcome, Phase, RunId, Serial};
use store::Store;

/// Maximum number of violations that are kept. The first is the most useful.
const MAX_VIOLATIONS: usize = 20;

/// Checks the rules of a world.
#[derive(Default)]
pub(super) struct InvariantChecker(Arc<Mutex<Observed>>);

/// An installation report that the controller acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reported {
    Success,
    Failed,
}

#[derive(Default)]
struct Observed {
    violations: Vec<String>,
    /// The changes in flight of each BMC by their number, each with the time at which it is over at the latest.
    changes: BTreeMap<Serial, BTreeMap<u64, Instant>>,
    /// The number of the last change.
    last_change: u64,
    /// Number of boots from each image, by URL.
    media_boots: BTreeMap<String, u32>,
    /// Number of boots of each run before its cleanup, and whether the first was from the disk.
    boots: BTreeMap<RunId, (u32, bool)>,
    /// The run that last sent a request that starts the host. A slow host may boot when the next job has already started.
    starters: BTreeMap<Serial, RunId>,
    /// The run that has last asked a host to power off.
    stoppers: BTreeMap<Serial, RunId>,
    /// Acknowledged jobs, by idempotency key.
    jobs: BTreeMap<String, RunId>,
    /// Jobs whose cancel request was acknowledged.
    cancelled: BTreeSet<RunId>,
    /// Acknowledged power cycles that leave their host on.
    cycles: BTreeSet<RunId>,
    /// Rescues whose recipe leaves the host off.
    left_off: BTreeSet<RunId>,
    /// Jobs whose rescue session an operator ended.
    finished: BTreeSet<RunId>,
    /// The run that last sent a firmware image to a BMC, and how many images the BMC had accepted before. A BMC may refuse the image
    /// because it writes that of an earlier run.
    senders: BTreeMap<Serial, (RunId, usize)>,
    reports: BTreeMap<RunId, Reported>,
    /// The conditions that were explained.
    explained: BTreeSet<String>,
    /// Servers whose BMC restarted or ignored requests: a medium may disappear while the system runs.
    media_loss_allowed: BTreeSet<Serial>,
}

/// A change of a BMC in flight.
pub(super) struct BmcChange {
    observed: Arc<Mutex<Observed>>,
    serial: Serial,
    number: u64,
}

impl Drop for BmcChange {
    fn drop(&mut self) {
        if let Some(changes) = self.observed.lock().changes.get_mut(&self.serial) {
            changes.remove(&self.number);
        }
    }
}

impl InvariantChecker {
    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.0.lock()
    }

    /// Records a broken rule.
    pub(super) fn violation(&self, what: String) {
        let mut observed = self.observed();
        if observed.violations.len() < MAX_VIOLATIONS && !observed.violations.contains(&what) {
            observed.violations.push(what);
        }
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.observed().violations.clone()
    }

    /// The conditions that occurred and were explained.
    pub(super) fn conditions(&self) -> BTreeSet<String> {
        self.observed().explained.clone()
    }

    /// Checks a request that changes a BMC: only the holder of the lease of the server's run may send it, and no other one may be in
    /// flight. A sender that is paused does not see the end of its request: its deadline is the end.
    pub(super) fn bmc_change(
        &self,
        store: &Store,
        serial: &Serial,
        sender: &str,
        (request, deadline): (&Request, Duration),
        bmc: &SimBmc,
    ) -> BmcChange {
        let what = &request.path;
        let begun = store.peek_begun(serial);
        if begun.len() > 1 {
            self.violation(format!("{} jobs use {serial} at once ({what}): {begun:?}", begun.len()));
        }
        if let [run] = begun[..] {
            self.no_update_is_interrupted(store, (serial, run), request, bmc);
        }
        if action(&request.path) == "Manager.Reset" {
            // A restart of the BMC ends its virtual media, also those that an abandoned cleanup left inserted.
            self.observed().media_loss_allowed.insert(serial.clone());
        }
        match store.peek_server(serial) {
            Some((run, _, _, Some(holder))) if holder == sender => {
                if starts_host(request) {
                    let mut observed = self.observed();
                    observed.starters.insert(serial.clone(), run);
                    observed.stoppers.remove(serial);
                } else if action(&request.path) == "ComputerSystem.Reset" {
                    self.observed().stoppers.insert(serial.clone(), run);
                }
            }
            Some((run, phase, step, holder)) => self.violation(format!(
                "{sender} changes {serial} ({what}) while run {run} ({phase}, {}) is leased to {}",
                step.as_deref().unwrap_or_default(),
                holder.as_deref().unwrap_or("no worker")
            )),
            None => self.violation(format!("{sender} changes {serial} ({what}), which has no job")),
        }
        let (number, busy) = {
            let mut observed = self.observed();
            observed.last_change += 1;
            let (number, now) = (observed.last_change, Instant::now());
            let changes = observed.changes.entry(serial.clone()).or_default();
            changes.retain(|_, end| *end > now);
            let busy = !changes.is_empty();
            changes.insert(number, now + deadline);
            (number, busy)
        };
        if busy {
            self.violation(format!("two requests change {serial} at once ({what})"));
        }
        BmcChange { observed: Arc::clone(&self.0), serial: serial.clone(), number }
    }

    /// While a BMC checks or writes the firmware that a run sent, neither host nor BMC is reset and no other image is sent. After the
    /// end of that run others may do so: its update hangs for ever, or its image begins with a later restart of the host.
    fn no_update_is_interrupted(
        &self,
        store: &Store,
        (serial, run): (&Serial, RunId),
        request: &Request,
        bmc: &SimBmc,
    ) {
        let resets = ["ComputerSystem.Reset", "Manager.Reset"].contains(&action(&request.path));
        let has_image = request.body.as_deref().is_some_and(is_image);
        if !resets && !has_image {
            return;
        }
        let accepted = bmc.accepted_images().len();
        let sender = self.observed().senders.get(serial).copied();
        let sender = sender.filter(|(_, before)| *before < accepted).map(|(sender, _)| sender);
        let is_open = sender.is_some_and(|sender| sender == run || !store.peek_ended(sender));
        if is_open && bmc.is_flashing() {
            let what = if resets { &request.path } else { "a second image" };
            self.violation(format!("job {run} sends {what} to {serial}, which writes firmware"));
        }
        if has_image && sender != Some(run) {
            self.observed().senders.insert(serial.clone(), (run, accepted));
        }
    }

    /// Checks the boot of a host.
    pub(super) fn booted(&self, store: &Store, serial: &Serial, source: &BootSource) {
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
        let Some((run, phase, step, _)) = store.peek_server(serial) else {
            return;
        };
        // An installation of firmware restarts its host for each component that needs it.
        let restarts = step.as_ref().is_some_and(|step| step.starts_with("firmware."));
        let ordered = !restarts && self.observed().starters.get(serial) == Some(&run);
        if ordered && Phase::parse(&phase).is_some_and(Phase::is_forward) {
            let disk = matches!(source, BootSource::Disk);
            let (times, disk_first) = {
                let mut observed = self.observed();
                let (times, disk_first) = observed.boots.entry(run).or_insert((0, disk));
                *times += 1;
                (*times, *disk_first)
            };
            // A host that booted its disk instead of the media is started once more, by a second way to boot.
            if times > 1 + u32::from(disk_first) {
                let step = step.as_deref().unwrap_or_default();
                self.violation(format!(
                    "{serial} booted {times} times before the cleanup of run {run}, last in {step}"
                ));
            }
        }
    }

    /// Records that the host that booted this image could not read it. A real host cannot boot such a medium, and counts as
    /// booted from its disk.
    pub(super) fn booted_without_a_read(&self, store: &Store, serial: &Serial, url: &str) {
        let run = store.peek_server(serial).map(|(run, ..)| run);
        let mut observed = self.observed();
        observed.media_boots.remove(url);
        if let Some((_, disk_first)) = run.and_then(|run| observed.boots.get_mut(&run)) {
            *disk_first = true;
        }
    }

    /// Records that a job was acknowledged under an idempotency key.
    pub(super) fn acknowledged(&self, key: &str, job: RunId) {
        let before = self.observed().jobs.insert(key.to_owned(), job);
        if let Some(before) = before.filter(|before| *before != job) {
            self.violation(format!("two jobs for one idempotency key {key}: {before} and {job}"));
        }
    }

    /// Records that a condition was acknowledged; `leaves_on` if the host is on after its success.
    pub(super) fn condition_acknowledged(&self, key: &str, run: RunId, leaves_on: bool) {
        self.acknowledged(key, run);
        if leaves_on {
            self.observed().cycles.insert(run);
        }
    }

    /// Whether the run is a power cycle that leaves its host on.
    pub(super) fn promises_power(&self, run: RunId) -> bool {
        self.observed().cycles.contains(&run)
    }

    /// Records that the recipe of a rescue leaves the host off.
    pub(super) fn rescue_leaves_off(&self, run: RunId) {
        self.observed().left_off.insert(run);
    }

    /// Whether another run has last asked the host to power off: the shutdown that it requested may end long after that run.
    pub(super) fn stopped_by_another(&self, serial: &Serial, run: RunId) -> bool {
        self.observed().stoppers.get(serial).is_some_and(|stopper| *stopper != run)
    }

    /// Whether the run is a rescue that leaves its host off.
    pub(super) fn leaves_off(&self, run: RunId) -> bool {
        self.observed().left_off.contains(&run)
    }

    /// Records that the end of a rescue session was acknowledged.
    pub(super) fn finish_acknowledged(&self, job: RunId) {
        self.observed().finished.insert(job);
    }

    pub(super) fn cancel_acknowledged(&self, job: RunId) {
        self.observed().cancelled.insert(job);
    }

    pub(super) fn report_acknowledged(&self, job: RunId, reported: Reported) {
        self.observed().reports.entry(job).or_insert(reported);
    }

    /// Allows that a medium of this server disappears while its system runs, because its BMC misbehaves.
    pub(super) fn allow_media_loss(&self, serial: &Serial) {
        self.observed().media_loss_allowed.insert(serial.clone());
    }

    /// All acknowledged jobs, in the order of their keys.
    pub(super) fn jobs(&self) -> Vec<RunId> {
        self.observed().jobs.values().copied().collect()
    }

    /// Checks an explanation: it names the state, what ends it and the next action, and a time of the end or next check.
    pub(super) fn explained(&self, run: RunId, explanation: &Explanation) {
        let Explanation { condition, summary, ends_by, next_action, .. } = explanation;
        let complete = ![summary, ends_by, next_action].into_iter().any(String::is_empty);
        let bounded = explanation.deadline.is_some() || explanation.next_check.is_some();
        let may_stay = matches!(condition, Condition::Held | Condition::Ended);
        if !complete || !(bounded || may_stay) {
            self.violation(format!(
                "run {run} is {condition:?} without a complete explanation: {explanation:?}"
            ));
        }
        let reason = explanation.reason.as_deref().unwrap_or("-");
        self.observed().explained.insert(format!("{condition:?}/{reason}"));
    }

    // === At the end ===

    /// Checks a job at the end.
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
        let (reported, cancelled, finished) = {
            let observed = self.observed();
            let reported = observed.reports.get(&id).copied();
            (reported, observed.cancelled.contains(&id), observed.finished.contains(&id))
        };
        let outcome = run.outcome;
        let kept = match reported {
            _ if cancelled => outcome == Some(Outcome::Cancelled),
            Some(Reported::Success) => outcome == Some(Outcome::Succeeded),
            Some(Reported::Failed) => outcome != Some(Outcome::Succeeded),
            None => !finished || outcome == Some(Outcome::Succeeded),
        };
        if !kept {
            self.violation(format!(
                "job {id} ended as {outcome:?} ({:?}), but {reported:?} was acknowledged (cancelled: {cancelled})",
                run.failure
            ));
        }
    }

    /// Checks a server at the end, with its pending cleanup and the outcome of its last job.
    pub(super) fn check_server_at_end(
        &self,
        serial: &Serial,
        bmc: &SimBmc,
        cleanup_pending: bool,
        last: Option<Outcome>,
        lost: bool,
    ) {
        let bmc = bmc.snapshot();
        let media_loss_allowed = self.observed().media_loss_allowed.contains(serial);
        if bmc.max_in_flight > 2 {
            self.violation(format!("{serial} had {} requests at once", bmc.max_in_flight));
        }
        if bmc.ejected_while_running > 0 && !media_loss_allowed {
            self.violation(format!("a medium of {serial} was ejected while its system was running"));
        }
        if bmc.open_sessions > 0 && !lost {
            self.violation(format!("{} sessions are left on {serial}, and none was lost", bmc.open_sessions));
        }
        if cleanup_pending {
            return;
        }
        if let Some(slot) = bmc.slots.iter().find(|slot| slot.image.is_some()) {
            self.violation(format!(
                "slot {} of {serial} still holds a medium, and no cleanup is pending",
                slot.id
            ));
        }
        // Without a target the override has no effect, even if it is enabled (DSP0268, Boot).
        if bmc.boot.enabled != OverrideEnabled::Disabled && bmc.boot.target != "None" {
            self.violation(format!("the one-time boot of {serial} is still set, and no cleanup is pending"));
        }
        if last == Some(Outcome::Succeeded) && bmc.power != Power::On {
            self.violation(format!(
                "{serial} was installed or cycled, but its power is {}",
                bmc.power.as_str()
            ));
        }
    }
}

/// Whether a body contains a firmware image.
fn is_image(body: &[u8]) -> bool {
    const MAGIC: &[u8] = b"SIMFW1 ";
    body.windows(MAGIC.len()).any(|window| window == MAGIC)
}

/// The last segment of a path, which names the action. Some vendors end it with a slash.
pub(super) fn action(path: &str) -> &str {
    let path = path.strip_suffix('/').unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a request starts a host, at once or after a shutdown.
fn starts_host(request: &Request) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Reset {
        reset_type: ResetType,
    }
    let body = request.body.as_deref().filter(|_| action(&request.path) == "ComputerSystem.Reset");
    let reset = body.and_then(|body| serde_json::from_slice::<Reset>(body).ok());
    reset.is_some_and(|reset| reset.reset_type.goal() != Some(PowerState::Off))
}
