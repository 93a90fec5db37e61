//! A run: one durable execution of a workflow, as pure data.
//!
//! ```text
//!  Run (hot row)  --plan-->  StepInstance*      the steps in order, then the finish list
//!       |          --log--->  StepRecord*        intent -> done | failed | skipped | undone | stuck, one row per instance
//!       |          <--------  Signal*            durable messages, unique per (run, name, key)
//!       +-- Wait | Hold | Failure                why the run does nothing, what an operator must decide, what failed
//! ```
//!
//! Invariants: a waiting run has a [`Wait`] with a deadline or a poll time; a held run has a [`Hold`]; an ended run has an
//! [`Outcome`]. A [`RunChange`] contains the whole new row, so that a commit is one serializable value.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::batch::BatchId;
use super::effect::Effect;
use super::event::NewEvent;
use super::grant::MediaEvidence;
use super::ids::{RunId, Serial};
use super::job_recipe::JobRecipe;
use super::json_text::JsonText;
use super::names::{FailureClass, HoldClass, StepName};
use super::time::Time;
use super::transition::Phase;
use super::workflow_version::WorkflowVersion;

/// The outcome of a run; never lost (decision D11).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr, strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Outcome {
    /// Every step of the plan reached its goal.
    Succeeded,
    /// A step failed; see the failure.
    Failed,
    /// An operator cancelled the run.
    Cancelled,
}

impl Outcome {
    /// The outcome's name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The outcome of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// The typed reason why a run does nothing now (decision D6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// The name of the reason, from the closed list of the workflow.
    pub reason: String,
    /// The step that waits.
    pub step: StepName,
    /// When the wait began.
    pub since: Time,
    /// When the wait becomes a failure, or the outcome that the step declares instead.
    pub deadline: Time,
    /// The signals that end the wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    /// When the step is called again without a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_at: Option<Time>,
    /// The facts that the step knows, in one sentence.
    pub detail: String,
}

impl Wait {
    /// When the run is due if no signal arrives.
    pub fn due(&self) -> Time {
        self.poll_at.map_or(self.deadline, |poll| poll.min(self.deadline))
    }
}

/// A run stopped until an operator decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// The class of the hold.
    pub class: HoldClass,
    /// When the hold began.
    pub since: Time,
    /// When the next reminder is due.
    pub remind_at: Time,
    /// The verbs that end the hold.
    pub verbs: Vec<String>,
    /// The decision that an operator must make, in one sentence.
    pub detail: String,
}

/// The failure of a run that did not succeed. It is made where the fault is found and not changed later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The class, from the closed list of the workflow, for filters and statistics.
    pub class: FailureClass,
    /// The step that failed: a step of the workflow, or the unit that the installation report named.
    pub step: StepName,
    /// The cause in one sentence.
    pub summary: String,
    /// Facts about the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Value>,
    /// The next action of an operator.
    pub next_action: String,
}

/// One step in the plan of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInstance {
    /// The name of the step in its workflow.
    pub name: StepName,
    /// Tells instances of one step apart; empty for a single instance.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The queue whose workers execute the step.
    pub queue: String,
}

/// The step instances of a run, fixed when the run is created. Only its own steps extend the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPlan {
    /// The steps towards the goal.
    pub forward: Vec<StepInstance>,
    /// The steps that run at every end.
    pub finish: Vec<StepInstance>,
}

/// The list of the plan to which a step instance belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// [`RunPlan::forward`].
    Forward,
    /// [`RunPlan::finish`].
    Finish,
}

/// A position in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The list of the plan.
    pub stage: Stage,
    /// Index in that list.
    pub index: u32,
}

/// The state of a step instance.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum StepPhase {
    /// The step is about to act; after a crash it may or may not have acted.
    Intent,
    /// The goal of the step is reached.
    Done,
    /// The step failed.
    Failed,
    /// The step had nothing to do.
    Skipped,
    /// The step was done and then undone.
    Undone,
    /// The undo of the step failed; the step may still be in effect.
    Stuck,
}

impl StepPhase {
    /// The phase's name in the database.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The phase of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// The durable record of one step instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The position in the plan.
    pub at: Position,
    /// The name of the step.
    pub name: StepName,
    /// The key of the instance.
    pub key: String,
    /// The number of the current attempt.
    pub attempt: u32,
    /// The lease epoch under which the record was last written.
    pub epoch: i64,
    /// The state of the instance.
    pub phase: StepPhase,
    /// The output of the step, for later steps and for operators.
    pub output: Value,
    /// When the first intent was written.
    pub started_at: Time,
    /// When the step ended.
    pub ended_at: Option<Time>,
}

/// A step as the API shows it in a job.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSummary {
    /// The name of the step.
    pub name: StepName,
    /// What a step of a name that the plan has several times works on; empty for any other step.
    pub key: String,
    /// The state of the step.
    pub phase: StepPhase,
    /// The number of the current attempt.
    pub attempt: u32,
    /// When the first intent was written.
    pub started_at: Time,
    /// When the step ended.
    pub ended_at: Option<Time>,
    /// The output of the step.
    pub output: JsonText,
}

/// A durable message to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// The name of the signal.
    pub name: String,
    /// The key: a second signal with this name and key is a duplicate.
    pub key: String,
    /// The content of the signal.
    pub payload: Value,
    /// When the signal was stored.
    pub received_at: Time,
    /// Whether a step has acted on the signal.
    pub consumed: bool,
}

/// The time-limited right of one worker to change a run (decision D7). The fencing token is [`Run::epoch`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The engine that holds the lease; see `EngineConfig::owner`.
    pub owner: String,
    /// When the lease ends. After that and a grace period another worker may take the run over.
    pub expires_at: Time,
}

/// The purpose of a run: whether it changes its server.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Purpose {
    /// The run changes the server. It does not start while the server is in maintenance, and the server cannot be deleted
    /// while the run is stored.
    Change,
    /// The run leaves the server as it was. It starts on a server in maintenance and is deleted with the server.
    Observe,
}

impl Purpose {
    /// The purpose's name in the database.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The purpose of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// Which row of a run a change was computed from. A change that expects another version than that of the stored row is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunVersion {
    /// How often a worker has claimed the run; a lease is of one epoch.
    pub epoch: i64,
    /// How often the row was written.
    pub revision: i64,
}

/// The row of a run that changes with every step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The id of the run.
    pub id: RunId,
    /// The name of the workflow.
    pub workflow: String,
    /// The version of the workflow that made the plan.
    pub workflow_version: WorkflowVersion,
    /// The server that the run works on.
    pub server: Option<Serial>,
    /// The run that requested this run.
    pub parent: Option<RunId>,
    /// The root of the run tree; it holds the locks.
    pub root: RunId,
    /// The purpose of the run: whether it changes its server.
    pub purpose: Purpose,
    /// The phase.
    pub phase: Phase,
    /// The outcome of the run, or its outcome after undo and the finish list.
    pub outcome: Option<Outcome>,
    /// The current step.
    pub step: Option<StepName>,
    /// The wait, while the run waits.
    pub wait: Option<Wait>,
    /// The hold, while the run is held.
    pub hold: Option<Hold>,
    /// The failure of a run that did not succeed.
    pub failure: Option<Failure>,
    /// The queue of the next step.
    pub queue: String,
    /// The priority; higher runs start first.
    pub priority: i32,
    /// When the run is due. For a run with a lease, the time at which another worker may take it over.
    pub next_run_at: Option<Time>,
    /// When the run must have an outcome.
    pub deadline_at: Time,
    /// When a step last reported.
    pub progress_at: Time,
    /// The lease of the worker that executes the run.
    pub lease: Option<Lease>,
    /// The fencing token: it grows with every claim.
    pub epoch: i64,
    /// The worker that had the last lease, or has it. It stays when the run is parked or ends, and does not leave the controller.
    #[serde(skip)]
    pub last_worker: Option<String>,
    /// When an operator requested a cancel.
    pub cancel_requested_at: Option<Time>,
    /// Whether the server of the run is restored and not released: the run is never claimed.
    pub restored: bool,
    /// The user that created the run.
    pub created_by: String,
    /// The revision of the row, which grows with every change.
    pub revision: i64,
    /// When the run was created.
    pub created_at: Time,
    /// When the row last changed.
    pub updated_at: Time,
}

impl Run {
    /// The version of this row.
    pub fn version(&self) -> RunVersion {
        RunVersion { epoch: self.epoch, revision: self.revision }
    }
}

/// A run with its input, plan, step records and signals, from one read. Every decision copies the snapshot; therefore the parts
/// that rarely change are shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The row of the run.
    pub run: Run,
    /// The input; it never changes.
    pub input: Arc<Value>,
    /// The recipe of the job; `None` for a run without a row in `jobs`.
    pub recipe: Option<Arc<JobRecipe>>,
    /// The plan.
    pub plan: Arc<RunPlan>,
    /// The step records. Each is shared with the snapshots before and after it, because most changes of a run write one.
    pub steps: Vec<Arc<StepRecord>>,
    /// The signals that the run has received.
    pub signals: Vec<Signal>,
    /// The reads through the media grants of the run. A claim reads them only for a run whose deadline has passed.
    pub media: Vec<MediaEvidence>,
}

impl Snapshot {
    /// The snapshot of a run that is created at `now`.
    pub fn new(new: &NewRun, now: Time) -> Self {
        let run = Run {
            id: new.id,
            workflow: new.workflow.clone(),
            workflow_version: new.workflow_version,
            server: new.server.clone(),
            parent: new.parent.map(|(parent, _)| parent),
            root: new.parent.map_or(new.id, |(_, root)| root),
            purpose: new.purpose,
            phase: Phase::Queued,
            outcome: None,
            step: None,
            wait: None,
            hold: None,
            failure: None,
            queue: String::new(),
            priority: new.priority,
            next_run_at: Some(now),
            deadline_at: new.deadline_at,
            progress_at: now,
            lease: None,
            epoch: 0,
            last_worker: None,
            cancel_requested_at: None,
            restored: false,
            created_by: new.created_by.clone(),
            revision: 1,
            created_at: now,
            updated_at: now,
        };
        let (input, plan) = (Arc::new(new.input.clone()), Arc::new(new.plan.clone()));
        let recipe = new.effects.iter().find_map(|effect| match effect {
            Effect::JobCreated(job) => Some(Arc::clone(&job.recipe)),
            _ => None,
        });
        Self { run, input, recipe, plan, steps: Vec::new(), signals: Vec::new(), media: Vec::new() }
    }

    /// All step records.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &StepRecord> {
        self.steps.iter().map(Arc::as_ref)
    }

    /// The record at a position.
    pub fn record(&self, at: Position) -> Option<&StepRecord> {
        self.records().find(|record| record.at == at)
    }

    /// The signals that are not consumed yet.
    pub fn pending(&self) -> impl Iterator<Item = &Signal> {
        self.signals.iter().filter(|signal| !signal.consumed)
    }

    /// The records of all instances of a step.
    pub fn records_of<'a>(&'a self, name: &'a StepName) -> impl DoubleEndedIterator<Item = &'a StepRecord> {
        self.records().filter(move |record| record.name == *name)
    }

    /// Adds the record of a position, or replaces it.
    pub fn put_record(&mut self, record: StepRecord) {
        let record = Arc::new(record);
        match self.steps.iter_mut().find(|old| old.at == record.at) {
            Some(old) => *old = record,
            None => self.steps.push(record),
        }
    }
}

/// The writes of one commit, in one transaction.
#[derive(Clone, Debug)]
pub struct RunChange {
    /// The whole new row; the store checks epoch and revision of the old one and counts the revision up.
    pub run: Run,
    /// Step records written or replaced.
    pub steps: Vec<StepRecord>,
    /// The plan, when it was extended.
    pub plan: Option<RunPlan>,
    /// The events to log.
    pub events: Vec<NewEvent>,
    /// The database writes that belong to the results of steps.
    pub effects: Vec<Effect>,
    /// The child runs to create.
    pub children: Vec<NewRun>,
    /// The signals that were acted on, as (name, key).
    pub consumed: Vec<(String, String)>,
}

impl RunChange {
    /// A change that replaces only the row.
    pub fn of(run: Run) -> Self {
        Self {
            run,
            steps: Vec::new(),
            plan: None,
            events: Vec::new(),
            effects: Vec::new(),
            children: Vec::new(),
            consumed: Vec::new(),
        }
    }
}

/// A lock or permit that a run needs from its start to its end (decision D13): of one run tree, such as `server/XF-1`, or of a
/// limited number of run trees, such as `batch/ID`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRequest {
    /// The resource.
    pub resource: String,
    /// The number of run trees that may hold the resource; every request for it must name the same number.
    pub capacity: u32,
    /// The effect of a resource that is not free.
    pub on_conflict: OnConflict,
}

/// The effect on a run when another run tree holds its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// The run is not created; the refusal names the holder.
    Refuse,
    /// The run is not created, also while the other run tree is only queued for the resource. The refusal names that tree.
    RefuseQueued,
    /// The run waits in the queue of the resource, by priority and then age.
    Wait,
}

/// The facts that the caller attaches to a run; the steps do not read them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunRequest {
    /// The operator's labels.
    pub labels: BTreeMap<String, String>,
    /// The ended run that this run repeats.
    pub retry_of: Option<RunId>,
    /// The batch to which the run belongs.
    pub batch: Option<BatchId>,
    /// Whether the run is a canary of its batch, for which the others wait.
    pub canary: bool,
    /// The key under which a repetition of the request finds this run.
    pub idempotency: Option<Idempotency>,
}

/// An idempotency key, unique for each server, and the request for which it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key.
    pub key: String,
    /// SHA-256 of the canonical request. It tells a repetition from another request with the same key.
    pub request_sha256: String,
}

/// A run to be created.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// The id.
    pub id: RunId,
    /// The name of the workflow.
    pub workflow: String,
    /// The version of the workflow that made the plan.
    pub workflow_version: WorkflowVersion,
    /// The server that the run works on.
    pub server: Option<Serial>,
    /// The run that requests the new run, and the root of its run tree.
    pub parent: Option<(RunId, RunId)>,
    /// The purpose of the run: whether it changes its server.
    pub purpose: Purpose,
    /// The labels and links that the caller attaches to the run.
    pub request: RunRequest,
    /// The priority; higher runs start first.
    pub priority: i32,
    /// When the run must have an outcome.
    pub deadline_at: Time,
    /// The user that creates the run.
    pub created_by: String,
    /// The time of the creation.
    pub created_at: Time,
    /// The input.
    pub input: Value,
    /// The plan.
    pub plan: RunPlan,
    /// The locks and permits that the run needs from its start to its end.
    pub locks: Vec<LockRequest>,
    /// The database writes that belong to the creation.
    pub effects: Vec<Effect>,
    /// The events to log.
    pub events: Vec<NewEvent>,
}

/// Exponential backoff with jitter: between half and all of `base * 2^(attempt-1)`, at most `cap`.
///
/// `jitter` is a random number in `0.0..1.0`. It is an argument so that the function is pure.
pub fn backoff(base: Duration, cap: Duration, attempt: u32, jitter: f64) -> Duration {
    let doubled = base.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1).min(20)));
    doubled.min(cap).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_and_stays_between_half_and_all() {
        let base = Duration::from_millis(500);
        let cap = Duration::from_secs(8);
        for attempt in 1..40 {
            let full = backoff(base, cap, attempt, 1.0);
            let half = backoff(base, cap, attempt, 0.0);
            assert_eq!(half * 2, full);
            assert!(full <= cap);
        }
        assert_eq!(backoff(base, cap, 1, 1.0), base);
        assert_eq!(backoff(base, cap, 9, 1.0), cap);
    }
}
