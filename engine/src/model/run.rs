//! A run: one durable execution of a workflow, as pure data.
//!
//! ```text
//!  Run (hot row)  --plan-->  StepInstance*      what is to be made true, in order, then the finish list
//!       |          --log--->  StepRecord*        intent -> done | failed | skipped | undone | stuck, one row per instance
//!       |          <--------  Signal*            durable messages, unique per (run, name, key)
//!       +-- Wait | Hold | Failure                why it does nothing, who must decide, what went wrong
//! ```
//!
//! Invariants: a run that is waiting has a [`Wait`] with a deadline or a poll time; a held one has a [`Hold`]; an ended one
//! has an [`Outcome`]. A [`Change`] carries the whole new row, so that a commit is one value that could also travel.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::effect::Effect;
use super::event::NewEvent;
use super::ids::{RunId, Serial};
use super::json_text::JsonText;
use super::time::Time;
use super::transition::Phase;

/// How a run ended; never lost (lock L11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Everything in the plan is true.
    Succeeded,
    /// Something went wrong; see the failure.
    Failed,
    /// An operator ended it.
    Cancelled,
}

impl Outcome {
    /// The outcome's name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The outcome of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Succeeded, Self::Failed, Self::Cancelled].into_iter().find(|outcome| outcome.as_str() == name)
    }
}

/// A typed reason why a run does nothing right now (lock L6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// The reason, a name from the kind's closed list.
    pub reason: String,
    /// The step that waits.
    pub step: String,
    /// Since when.
    pub since: Time,
    /// When waiting turns into a failure (or whatever the step declares).
    pub deadline: Time,
    /// Signals that end it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    /// When to look again without a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_at: Option<Time>,
    /// What is known, in a sentence.
    pub detail: String,
}

impl Wait {
    /// When the run is due again if no signal comes.
    pub fn due(&self) -> Time {
        self.poll_at.map_or(self.deadline, |poll| poll.min(self.deadline))
    }
}

/// A run stopped until an operator decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// Why, a name from a closed list.
    pub class: String,
    /// Since when.
    pub since: Time,
    /// When to remind of it.
    pub remind_at: Time,
    /// The verbs that end it.
    pub verbs: Vec<String>,
    /// What must be decided, in a sentence.
    pub detail: String,
}

/// What went wrong: said once, where it happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// A class from the kind's closed list, for filters and statistics.
    pub class: String,
    /// The step that failed: one of ours, or the unit an installer named.
    pub step: String,
    /// One sentence.
    pub summary: String,
    /// What was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Value>,
    /// What a person should do next.
    pub next_action: String,
}

/// One stage of a run's plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInstance {
    /// The step's name in its kind's table.
    pub name: String,
    /// Tells instances of one step apart; empty for the only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The queue whose workers carry it out.
    pub queue: String,
}

/// What a run is going to do, fixed when it is made and extended by its own steps only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Towards the goal.
    pub forward: Vec<StepInstance>,
    /// After every ending.
    pub finish: Vec<StepInstance>,
}

/// Which list of the plan an instance stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// [`Plan::forward`].
    Forward,
    /// [`Plan::finish`].
    Finish,
}

/// A place in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// Which list.
    pub stage: Stage,
    /// Index in that list.
    pub index: u32,
}

/// How far a step instance got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepPhase {
    /// About to act; after a crash it may or may not have acted.
    Intent,
    /// Its goal holds.
    Done,
    /// Gave up.
    Failed,
    /// Nothing to do.
    Skipped,
    /// Done, then undone.
    Undone,
    /// Undoing it was given up; it may still be in effect.
    Stuck,
}

impl StepPhase {
    /// The phase's name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Undone => "undone",
            Self::Stuck => "stuck",
        }
    }

    /// The phase of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Intent, Self::Done, Self::Failed, Self::Skipped, Self::Undone, Self::Stuck]
            .into_iter()
            .find(|phase| phase.as_str() == name)
    }
}

/// The log entry of one step instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Where it stands in the plan.
    pub at: Position,
    /// The step's name.
    pub name: String,
    /// The instance's key.
    pub key: String,
    /// Tries so far.
    pub attempt: u32,
    /// The lease epoch that wrote it last.
    pub epoch: i64,
    /// How far it got.
    pub phase: StepPhase,
    /// What it left for later steps and for a person asking.
    pub evidence: Value,
    /// When its first intent was written.
    pub started_at: Time,
    /// When it ended.
    pub ended_at: Option<Time>,
}

/// A step as a job's page tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSummary {
    /// The step's name.
    pub name: String,
    /// How far it got.
    pub phase: StepPhase,
    /// Tries so far.
    pub attempt: u32,
    /// When its first intent was written.
    pub started_at: Time,
    /// When it ended.
    pub ended_at: Option<Time>,
    /// What it left.
    pub evidence: JsonText,
}

/// A durable message to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// What kind of message.
    pub name: String,
    /// Makes it unique among its kind; a second one with the same key is a duplicate.
    pub key: String,
    /// Its content.
    pub payload: Value,
    /// When it was stored.
    pub received_at: Time,
    /// Whether a step has acted on it.
    pub consumed: bool,
}

/// The fencing token of a worker's claim (lock L7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who holds it.
    pub owner: String,
    /// When it may be taken by another.
    pub expires_at: Time,
}

/// The hot row of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// The workflow's name.
    pub kind: String,
    /// The version of the workflow that made the plan.
    pub kind_version: u32,
    /// The server it works on.
    pub server: Option<Serial>,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// The first run of its family; holds the locks.
    pub root: RunId,
    /// Where it is.
    pub phase: Phase,
    /// How it ended or will end.
    pub outcome: Option<Outcome>,
    /// The step it is at.
    pub step: Option<String>,
    /// Why it waits.
    pub wait: Option<Wait>,
    /// Why it is held.
    pub hold: Option<Hold>,
    /// What went wrong.
    pub failure: Option<Failure>,
    /// The queue its next step belongs to.
    pub queue: String,
    /// Larger goes first.
    pub priority: i32,
    /// When it is due; for a leased run, when another may take over.
    pub next_run_at: Option<Time>,
    /// When it must have an outcome.
    pub deadline_at: Time,
    /// When it last got further.
    pub progress_at: Time,
    /// Who works on it.
    pub lease: Option<Lease>,
    /// Grows at every claim.
    pub epoch: i64,
    /// When an operator asked for its end.
    pub cancel_requested_at: Option<Time>,
    /// Who made it.
    pub created_by: String,
    /// Grows at every change.
    pub revision: i64,
    /// When it was made.
    pub created_at: Time,
    /// When it last changed.
    pub updated_at: Time,
}

/// Everything a worker needs to go on with a run. Copied with every decision: what hardly changes is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The row as just claimed or as just read.
    pub run: Run,
    /// What it was asked for; it never changes.
    pub input: Arc<Value>,
    /// What it is going to do.
    pub plan: Arc<Plan>,
    /// What it did.
    pub steps: Vec<StepRecord>,
    /// What it was told.
    pub signals: Vec<Signal>,
}

impl Snapshot {
    /// A run as it would be the moment it is made.
    pub fn new(new: &NewRun, now: Time) -> Self {
        let run = Run {
            id: new.id,
            kind: new.kind.clone(),
            kind_version: new.kind_version,
            server: new.server.clone(),
            parent: new.parent.map(|(parent, _)| parent),
            root: new.parent.map_or(new.id, |(_, root)| root),
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
            cancel_requested_at: None,
            created_by: new.created_by.clone(),
            revision: 1,
            created_at: now,
            updated_at: now,
        };
        let (input, plan) = (Arc::new(new.input.clone()), Arc::new(new.plan.clone()));
        Self { run, input, plan, steps: Vec::new(), signals: Vec::new() }
    }

    /// The record at a position.
    pub fn record(&self, at: Position) -> Option<&StepRecord> {
        self.steps.iter().find(|record| record.at == at)
    }

    /// The signals not yet acted on.
    pub fn pending(&self) -> impl Iterator<Item = &Signal> {
        self.signals.iter().filter(|signal| !signal.consumed)
    }

    /// Whether any step has announced an effect on the outside world or the evidence of one.
    pub fn evidence<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a StepRecord> {
        self.steps.iter().filter(move |record| record.name == name)
    }
}

/// All that one commit writes, in one transaction.
#[derive(Clone, Debug)]
pub struct Change {
    /// The whole new row; the store checks epoch and revision of the old one and counts the revision up.
    pub run: Run,
    /// Step records written or replaced.
    pub steps: Vec<StepRecord>,
    /// The plan, when it was extended.
    pub plan: Option<Plan>,
    /// What to tell.
    pub events: Vec<NewEvent>,
    /// Typed results of steps for the tables of their own.
    pub effects: Vec<Effect>,
    /// Runs to start.
    pub children: Vec<NewRun>,
    /// Signals acted on, as (name, key).
    pub consumed: Vec<(String, String)>,
}

impl Change {
    /// A change that only replaces the row.
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

/// A resource a run works on alone (lock L13), such as `server/XF-1`, or with a few others, such as `batch/ID`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRequest {
    /// What is locked.
    pub resource: String,
    /// How many families may hold it at once; the same number with every request for it.
    pub places: u32,
    /// What a second one meets.
    pub on_conflict: OnConflict,
}

/// What a run meets whose lock is held by another family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Creating it is refused, naming the holder.
    Refuse,
    /// It waits, by priority and then age.
    Wait,
}

/// A run to be made.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The workflow's name.
    pub kind: String,
    /// The workflow's version.
    pub kind_version: u32,
    /// The server it works on.
    pub server: Option<Serial>,
    /// The run that starts it, and the first run of that family.
    pub parent: Option<(RunId, RunId)>,
    /// Larger goes first.
    pub priority: i32,
    /// When it must have an outcome.
    pub deadline_at: Time,
    /// Who makes it.
    pub created_by: String,
    /// When.
    pub created_at: Time,
    /// What it is asked for.
    pub input: Value,
    /// What it is going to do.
    pub plan: Plan,
    /// What it needs a place of while it lives.
    pub locks: Vec<LockRequest>,
    /// Rows of its own tables.
    pub effects: Vec<Effect>,
    /// What to tell.
    pub events: Vec<NewEvent>,
}

/// A moment in a step's life as people read it: `redfish.mount.task (try 2)`.
pub struct StepLabel<'a>(pub &'a str, pub u32);

impl fmt::Display for StepLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            0 | 1 => f.write_str(self.0),
            attempt => write!(f, "{} (try {attempt})", self.0),
        }
    }
}

/// Full-jitter exponential back-off: between half and all of `base * 2^(attempt-1)`, at most `cap`.
///
/// `chance` is a random number in `0.0..1.0`, passed in so that the rule stays pure.
pub fn backoff(base: Duration, cap: Duration, attempt: u32, chance: f64) -> Duration {
    let doubled = base.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1).min(20)));
    doubled.min(cap).mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_grows_and_stays_between_half_and_all() {
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
