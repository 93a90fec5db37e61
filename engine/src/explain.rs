//! Explanations: why a run is in its state, for every state (decision D6). Pure and total.
//!
//! ```text
//!  ended --- the outcome, and the next action
//!  restored  why the data is old, and the release     no lease --- wait? retry ----------- which attempt failed, and why
//!  held ---- the decision, and the verbs                                  any other ------- the texts of the wait reason
//!  leased -- working | cancelling | abandoned                       none -- gate closed? -- who closed it, and why
//!                                                                           queued for a lock? holder and position
//!                                                                           due ----------- no worker is free yet
//! ```
//!
//! Invariant: the explanation of every unfinished run names what ends its state, and either a time (deadline or next check)
//! or, for a held or restored run, the verbs that end the hold or the command that releases the server.

use std::time::Duration;

use serde::Serialize;

use super::cancel;
use super::cursor::{self, Next};
use super::decide::{self, RETRY};
use super::dispatcher::Engine;
use super::interrupt::CANCEL_GRACE;
use super::workflow::{Remark, StepPolicy, WaitReason, Workflow, WorkflowRegistry};
use model::{
    BatchStopReason, Condition, Gate, Hold, HoldClass, Lease, Outcome, PERMIT, Phase, Restoration, Run,
    Snapshot, Stage, StepName, Time, Wait, time::whole_seconds,
};
use store::{QueuePosition, StoreError, UsualDuration};

/// A run that is due for less than this time is in no trouble: its worker is about to begin.
const FREE_SOON: Duration = Duration::from_secs(20);
/// A step that has run for less is not compared with former runs.
const COMPARED_AFTER: Duration = Duration::from_secs(30);

/// Why a run is in its state, and what an operator can do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The kind of state.
    pub condition: Condition,
    /// The reason of a wait, or the class of a hold or failure.
    pub reason: Option<String>,
    /// The current step.
    pub step: Option<StepName>,
    /// The explanation in one or two sentences.
    pub summary: String,
    /// When the state began.
    pub since: Time,
    /// When the state ends at the latest.
    pub deadline: Option<Time>,
    /// When the engine reads the run again if nothing happens.
    pub next_check: Option<Time>,
    /// The event or action that ends the state, in words.
    pub ends_by: String,
    /// The next action for an operator.
    pub next_action: String,
    /// The running step, when it may not be interrupted and a cancel has to wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uninterruptible: Option<StepName>,
}

/// The obstacles of a run from outside: restored data, a queue or a gate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blockers {
    /// Why the server of the run is not released, if its data was restored.
    pub restored: Option<Restoration>,
    /// The position of the run tree in the queue of a lock or permit.
    pub queue: Option<QueuePosition>,
    /// The closed gate that prevents the start.
    pub gate: Option<Gate>,
}

impl Engine {
    /// Explains the current state of a run.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn explain(&self, snapshot: &Snapshot) -> Result<Explanation, StoreError> {
        let run = &snapshot.run;
        let restored = match &run.server {
            Some(serial) if run.restored => self.store().restoration(serial).await?,
            _ => None,
        };
        let queue = self.store().queue_position(run.root).await?;
        let starts = run.epoch == 0 && run.phase.is_forward();
        let gate = self.store().gate(run).await?.or(self.pressure().filter(|_| starts).map(Gate::Pressure));
        let now = self.clock().now();
        let mut explanation = explain(snapshot, self.workflows(), &Blockers { restored, queue, gate }, now);
        if let Some((judged_at, why)) = self.decider().outage.postponed(run, now) {
            explanation.deadline = Some(judged_at);
            explanation.summary = format!("{}; {why}", explanation.summary);
        }
        if let Some(gone) = self.unserved_since(&run.queue) {
            explanation.without_worker(run, gone, now);
        }
        if let Some(usual) = self.usual(snapshot, explanation.condition, now).await? {
            explanation.summary = format!("{}; {usual}", explanation.summary);
        }
        let workflow = self.workflows().get(&run.workflow);
        if let Some(remark) = workflow.and_then(|workflow| workflow.remark(snapshot)) {
            explanation.add(remark);
        }
        Ok(explanation)
    }

    /// How long the current step has run, beside how long it took in former runs.
    async fn usual(
        &self,
        snapshot: &Snapshot,
        condition: Condition,
        now: Time,
    ) -> Result<Option<String>, StoreError> {
        let Next::Run(at) = cursor::next(snapshot) else { return Ok(None) };
        let runs = matches!(condition, Condition::Waiting | Condition::Working);
        let Some(record) = snapshot.record(at).filter(|_| runs && at.stage == Stage::Forward) else {
            return Ok(None);
        };
        let since = now.since(record.started_at);
        if since < COMPARED_AFTER {
            return Ok(None);
        }
        let usual = self.store().usual_duration(snapshot.run.id, &record.name, &record.key).await?;
        Ok(usual.map(|UsualDuration { median, runs }| {
            let (since, median) = (whole_seconds(since), whole_seconds(median));
            format!("{} runs since {since} and usually takes {median} (median of {runs} jobs)", record.name)
        }))
    }
}

impl Explanation {
    /// Adds that no worker serves the queue of a due run since `gone`.
    fn without_worker(&mut self, run: &Run, gone: Time, now: Time) {
        use Condition::{Abandoned, Due, Queued, Retrying, Waiting};
        let waits = [Queued, Due, Abandoned, Waiting, Retrying].contains(&self.condition);
        if !waits || run.next_run_at.is_none_or(|due| due > now) {
            return;
        }
        let queue = &run.queue;
        self.summary = format!("no worker serves the queue {queue:?} since {gone}; {}", self.summary);
        self.ends_by = format!(
            "a worker of the queue {queue:?}; the deadline of the run or a cancel ends it without one"
        );
        self.next_action = format!(
            "start a worker near the BMC: shoal worker --controller URL --queue {queue}; `shoal worker list` shows those that \
             are connected"
        );
    }

    /// Adds what the workflow knows about the run. Where an operator must decide, the next action stays that decision.
    fn add(&mut self, remark: Remark) {
        let decides = matches!(self.condition, Condition::Held | Condition::Restored);
        self.summary = format!("{}; {}", self.summary, remark.facts);
        if let Some(next_action) = remark.next_action.filter(|_| !decides) {
            self.next_action = next_action;
        }
    }
}

/// Explains a run whose row cannot be read, from its hold alone.
pub fn unreadable(hold: &Hold) -> Explanation {
    Explanation {
        condition: Condition::Held,
        reason: Some(hold.class.to_string()),
        step: None,
        summary: hold.detail.clone(),
        since: hold.since,
        deadline: None,
        next_check: None,
        ends_by: format!("an operator's {}", hold.verbs.join(" or ")),
        next_action: held_action(&hold.class).to_owned(),
        uninterruptible: None,
    }
}

/// Explains the state of a run at the time `now`.
pub fn explain(
    snapshot: &Snapshot,
    workflows: &WorkflowRegistry,
    blockers: &Blockers,
    now: Time,
) -> Explanation {
    let run = &snapshot.run;
    let workflow = workflows.get(&run.workflow).map(|workflow| &**workflow);
    if let Some(restoration) = &blockers.restored {
        return restored(run, restoration);
    }
    let mut explanation = match (run.phase, &run.hold, &run.lease, &run.wait) {
        (Phase::Ended, ..) => return ended(snapshot),
        (_, Some(hold), ..) => held(run, hold),
        (_, _, Some(lease), _) => leased(snapshot, workflow, lease, now),
        (_, _, _, Some(wait)) if wait.reason == RETRY => retrying(snapshot, workflow, wait),
        (_, _, _, Some(wait)) => waiting(run, workflow, wait, blockers),
        _ => unclaimed(run, workflow, blockers, now),
    };
    // What the cleanup waits for must not hide why the job ended.
    if let (Some(outcome), Some(failure)) = (run.outcome, &run.failure) {
        let (outcome, cleanup) = (outcome.as_str(), &explanation.summary);
        explanation.summary =
            format!("{outcome} at {}: {}; in cleanup: {cleanup}", failure.step, failure.summary);
    }
    explanation
}

fn of(run: &Run, condition: Condition, since: Time) -> Explanation {
    Explanation {
        condition,
        reason: None,
        step: run.step.clone(),
        summary: String::new(),
        since,
        deadline: Some(run.deadline_at),
        next_check: run.next_run_at,
        ends_by: String::new(),
        next_action: String::new(),
        uninterruptible: None,
    }
}

fn ended(snapshot: &Snapshot) -> Explanation {
    let run = &snapshot.run;
    let left = decide::remaining_cleanup(snapshot);
    let outcome = run.outcome.unwrap_or(Outcome::Failed);
    let mut summary = match &run.failure {
        Some(failure) => format!("{} at {}: {}", outcome.as_str(), failure.step, failure.summary),
        None => outcome.as_str().to_owned(),
    };
    let mut next_action =
        run.failure.as_ref().map_or_else(|| "nothing".to_owned(), |failure| failure.next_action.clone());
    if !left.is_empty() {
        let left = left.join(", ");
        summary = format!("{summary}; not cleaned up: {left}");
        next_action = format!(
            "clean up by hand what {left} could not, or start the next job, which does it; then: {next_action}"
        );
    }
    Explanation {
        reason: run.failure.as_ref().map(|failure| failure.class.to_string()),
        summary,
        deadline: None,
        next_check: None,
        ends_by: "nothing: the run has ended".to_owned(),
        next_action,
        ..of(run, Condition::Ended, run.updated_at)
    }
}

fn restored(run: &Run, restoration: &Restoration) -> Explanation {
    let Restoration { since, as_of, reason } = restoration;
    let server = run.server.as_ref().map_or("SERIAL", |serial| serial.as_str());
    let (phase, at) =
        (run.phase.as_str(), run.step.as_ref().map_or(String::new(), |step| format!(" at {step}")));
    let summary = if run.created_at > *as_of {
        format!(
            "{reason}; {server} is not released, and this job, which is newer than the restored data, starts after its release"
        )
    } else {
        format!(
            "{reason}; the data ends at {as_of}, when the run was {phase}{at}, and nothing is known of what happened since: \
             nothing is sent to {server} until an operator releases it"
        )
    };
    Explanation {
        reason: Some("restored".to_owned()),
        summary,
        // Not claimed, also not at its deadline.
        deadline: None,
        next_check: None,
        ends_by: "an operator's release of the server".to_owned(),
        next_action: format!(
            "compare the machine with its job: shoal server restored {server}; then shoal server release {server} --jobs \
             continue or --jobs end"
        ),
        ..of(run, Condition::Restored, *since)
    }
}

fn held(run: &Run, hold: &Hold) -> Explanation {
    Explanation {
        reason: Some(hold.class.to_string()),
        summary: hold.detail.clone(),
        deadline: None,
        next_check: None,
        ends_by: format!("an operator's {}", hold.verbs.join(" or ")),
        next_action: held_action(&hold.class).to_owned(),
        ..of(run, Condition::Held, hold.since)
    }
}

fn held_action(class: &HoldClass) -> &'static str {
    let other_version = [HoldClass::UNKNOWN_STEP, HoldClass::UNKNOWN_WORKFLOW, HoldClass::WORKFLOW_VERSION];
    if other_version.contains(class) {
        "start the version of the program that created the run, then resume it; or cancel it and create it again"
    } else if *class == HoldClass::UNREADABLE {
        "restore the row from a backup or start the version of the program that wrote it, then resume; or cancel: the run \
         then ends without cleanup"
    } else {
        "resume the run to continue where it stopped, or cancel it to clean up"
    }
}

fn leased(snapshot: &Snapshot, workflow: Option<&dyn Workflow>, lease: &Lease, now: Time) -> Explanation {
    let run = &snapshot.run;
    let record = match cursor::next(snapshot) {
        Next::Run(at) | Next::Undo(at) => snapshot.record(at),
        Next::StageCompleted => None,
    };
    let since = record.map_or(run.progress_at, |record| record.started_at);
    let step = record.map(|record| record.name.clone()).or_else(|| run.step.clone());
    let doing = match (&step, run.phase) {
        (Some(step), Phase::Unwinding) => format!("undoing {step}"),
        (Some(step), _) => step.to_string(),
        (None, _) => "choosing the next step".to_owned(),
    };
    if lease.expires_at <= now {
        return Explanation {
            step,
            summary: format!(
                "worker {} was executing {doing} and stopped renewing its lease, which expired at {}",
                lease.owner, lease.expires_at
            ),
            ends_by: "the takeover by another worker, which observes before it acts".to_owned(),
            next_action: "nothing; start a controller if none is running".to_owned(),
            ..of(run, Condition::Abandoned, lease.expires_at)
        };
    }
    let policy = match (step.as_ref(), workflow) {
        (Some(step), Some(workflow)) => workflow.policy(step, snapshot),
        _ => StepPolicy::default(),
    };
    let uninterruptible = step.clone().filter(|_| !policy.interruptible);
    if cancel::is_pending(snapshot) {
        let cancel_grace = CANCEL_GRACE.as_secs();
        let (how, ends_by) = match policy.interruptible {
            true => ("is being interrupted", format!("the interruption of {doing}, at once")),
            false => (
                "may not be interrupted",
                format!(
                    "the return of {doing}; after {cancel_grace} s it is dropped as soon as no request of it is in flight"
                ),
            ),
        };
        return Explanation {
            summary: format!("a cancel was requested; {doing} {how}"),
            step,
            deadline: Some(now.plus(policy.call).min(lease.expires_at)),
            next_check: Some(lease.expires_at),
            ends_by,
            next_action: "nothing: the cleanup follows".to_owned(),
            uninterruptible,
            ..of(run, Condition::Cancelling, since)
        };
    }
    let attempt = record.map_or(1, |record| record.attempt);
    let attempts =
        if attempt > 1 { format!(" (attempt {attempt} of {})", policy.attempts) } else { String::new() };
    Explanation {
        summary: format!("worker {} executes {doing}{attempts}", lease.owner),
        step,
        deadline: Some(since.plus(policy.budget).min(run.deadline_at).max(lease.expires_at)),
        next_check: Some(lease.expires_at),
        ends_by: format!("the return of {doing}, each call within {} s", policy.call.as_secs()),
        next_action: "nothing yet".to_owned(),
        uninterruptible,
        ..of(run, Condition::Working, since)
    }
}

fn retrying(snapshot: &Snapshot, workflow: Option<&dyn Workflow>, wait: &Wait) -> Explanation {
    let run = &snapshot.run;
    let next = match cursor::next(snapshot) {
        Next::Run(at) | Next::Undo(at) => snapshot.record(at).map_or(1, |record| record.attempt),
        Next::StageCompleted => 1,
    };
    let most = workflow
        .filter(|workflow| workflow.step(&wait.step).is_some())
        .map(|workflow| workflow.policy(&wait.step, snapshot).attempts);
    let most = most.map_or(String::new(), |most| format!(" of {}", most.max(next)));
    Explanation {
        reason: Some(RETRY.to_owned()),
        step: Some(wait.step.clone()),
        summary: format!("attempt {} of {} failed: {}", next.saturating_sub(1), wait.step, wait.detail),
        deadline: Some(wait.deadline),
        next_check: Some(wait.due()),
        ends_by: format!("attempt {next}{most}"),
        next_action: "correct what the summary names; the next attempt then succeeds".to_owned(),
        ..of(run, Condition::Retrying, wait.since)
    }
}

fn waiting(run: &Run, workflow: Option<&dyn Workflow>, wait: &Wait, blockers: &Blockers) -> Explanation {
    let reason: Option<&WaitReason> = workflow
        .and_then(|workflow| workflow.wait_reasons().iter().find(|reason| reason.name == wait.reason))
        .copied();
    let (means, ends_by, next_action) = match reason {
        Some(reason) => (reason.means.to_owned(), reason.ends_by.to_owned(), reason.next_action.to_owned()),
        None => (
            format!("{:?}, a reason this program does not know", wait.reason),
            "its deadline, or an event that only the version that created the run knows".to_owned(),
            "start the version of the program that created the run".to_owned(),
        ),
    };
    Explanation {
        reason: Some(wait.reason.clone()),
        step: Some(wait.step.clone()),
        summary: match blockers.queue.as_ref().filter(|_| wait.signals.iter().any(|signal| signal == PERMIT))
        {
            Some(queue) => format!("waiting for {means}: {}; {}", wait.detail, blocked(workflow, queue)),
            None => format!("waiting for {means}: {}", wait.detail),
        },
        deadline: Some(wait.deadline),
        next_check: Some(run.next_run_at.unwrap_or(wait.due())),
        ends_by,
        next_action,
        ..of(run, Condition::Waiting, wait.since)
    }
}

/// The queue of a run tree as text: the resource, the setting that limits it, a holder, and the position.
fn blocked(workflow: Option<&dyn Workflow>, queue: &QueuePosition) -> String {
    let QueuePosition { resource, capacity, holder, in_use, position, waiting } = queue;
    let limit = workflow
        .and_then(|workflow| workflow.limit_setting(resource))
        .map_or(String::new(), |limit| format!(" ({limit})"));
    let by = holder.map_or_else(String::new, |holder| {
        if *in_use > 1 { format!(", one by {holder}") } else { format!(", by {holder}") }
    });
    format!(
        "{resource} has capacity {capacity}{limit}, {in_use} in use{by}; queue position {position} of {waiting}"
    )
}

fn unclaimed(run: &Run, workflow: Option<&dyn Workflow>, blockers: &Blockers, now: Time) -> Explanation {
    if let Some(gate) = &blockers.gate {
        return gated(run, gate);
    }
    if let Some(queue) = &blockers.queue {
        let next_action = match queue.holder {
            Some(holder) if queue.capacity == 1 => {
                format!("see why {holder} takes so long, or cancel one of the two")
            }
            Some(_) => "nothing: the run starts when others have ended; or cancel some of them".to_owned(),
            None => "nothing".to_owned(),
        };
        return Explanation {
            reason: Some("limit".to_owned()),
            summary: blocked(workflow, queue),
            ends_by: "the end of a holder; the queue is served by priority and age, and batches alternate"
                .to_owned(),
            next_action,
            ..of(run, Condition::Blocked, run.created_at)
        };
    }
    let (condition, since, summary) = match run.phase {
        Phase::Queued => (Condition::Queued, run.created_at, "accepted"),
        _ => (Condition::Due, run.progress_at, "ready to continue"),
    };
    let (worker, next_action) = match now.since(since) < FREE_SOON {
        true => ("the next free worker takes it", "nothing"),
        false => (
            "no worker has been free yet",
            "check /readyz; raise WORKER_CONCURRENCY if many runs wait for a worker; a higher priority goes first",
        ),
    };
    Explanation {
        summary: format!("{summary}; {worker}"),
        ends_by: format!("the next free worker of the queue {:?}", run.queue),
        next_action: next_action.to_owned(),
        ..of(run, condition, since)
    }
}

fn gated(run: &Run, gate: &Gate) -> Explanation {
    let why = |reason: &str| if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    let (summary, ends_by, next_action) = match gate {
        Gate::Drain(closed) => (
            format!("the controller was drained by {}{}: no job starts", closed.by, why(&closed.reason)),
            "the end of the drain".to_owned(),
            "run `shoal controller undrain` when the reason has ended".to_owned(),
        ),
        Gate::Maintenance(server, closed) => (
            format!(
                "{server} was put into maintenance by {}{}: no job starts on it",
                closed.by,
                why(&closed.reason)
            ),
            "the end of the maintenance".to_owned(),
            format!("run `shoal server maintenance end {server}` when the reason has ended"),
        ),
        Gate::Batch(batch, stop) => match stop.reason {
            BatchStopReason::Canary => (
                format!("the first jobs of batch {batch} must succeed before this one starts"),
                "the success of the last of these jobs; if one of them does not succeed, the batch stops"
                    .to_owned(),
                format!(
                    "see how they are: shoal batch show {batch}; to start the others now: shoal batch continue {batch}"
                ),
            ),
            BatchStopReason::Stopped => (
                format!(
                    "batch {batch} has stopped after {}: no further job of it starts",
                    match stop.failures {
                        1 => "1 failed job".to_owned(),
                        failures => format!("{failures} failed jobs"),
                    }
                ),
                "an operator's decision to continue or cancel the batch".to_owned(),
                format!(
                    "read the causes: shoal batch show {batch}; then shoal batch continue {batch}, or shoal batch cancel {batch}"
                ),
            ),
        },
        Gate::Pressure(pressure) => (
            format!("the controller starts no job until a shortage ends: {}", pressure.detail),
            "a check that finds no shortage; the controller checks every few seconds".to_owned(),
            pressure.next_action.clone(),
        ),
    };
    Explanation {
        reason: Some(gate.name().to_owned()),
        summary,
        // At the deadline the engine reads the run in any case: it then fails without a start.
        next_check: Some(run.deadline_at),
        ends_by,
        next_action,
        ..of(run, Condition::Gated, gate.since())
    }
}
