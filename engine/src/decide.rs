//! Decisions: pure functions from the current run, and what a step concluded, to the change to commit.
//!
//! ```text
//!  forward:   Done/Skipped -> next instance, or conclude(succeeded;      finish:  Done/Skipped/Failed -> next, or end
//!                             a pending cancel comes first)
//!             Wait, Permit, Retry -> park                                         Wait, Permit, Retry -> park
//!             Hold         -> held                                                Hold                -> as Fail
//!             Fail         -> conclude(failed)                                    Fail                -> warn, next
//! ```
//!
//! A worker keeps its lease over a change when it executes the next step too. A change to a parked run has no lease.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::cancel;
use super::cursor::{Next, instance, intent, next, step_to};
use super::hold;
use super::outage::LastOutage;
use super::workflow::{
    PermitRequest, Remark, Step, StepOutcome, StepPolicy, StepReport, WaitRequest, Workflow, fail_on_deadline,
};
use model::mutant::{self, Mutant};
use model::run::backoff;
use model::{
    Effect, EventLevel, Failure, NewEvent, Outcome, PERMIT, Phase, Position, Run, RunChange, RunPlan, Signal,
    Snapshot, Stage, StepInstance, StepPhase, StepRecord, Time, Trigger, Wait, class,
};

/// The reason of the wait between two attempts.
pub(super) const RETRY: &str = "retry";

/// The facts besides the run on which a decision depends.
pub(super) struct DecisionContext<'a> {
    /// The workflow of the run.
    pub(super) workflow: &'a dyn Workflow,
    /// The policy of the step that reported.
    pub(super) policy: StepPolicy,
    /// The time of the decision.
    pub(super) now: Time,
    /// A random number in `0.0..1.0` for the backoff.
    pub(super) jitter: f64,
    /// The queues whose steps the deciding worker executes; empty for a change without a worker.
    pub(super) queues: &'a [String],
}

/// The change that follows from a step's report. `record` is the record of the step as last written.
pub(super) fn apply_report(
    snapshot: &Snapshot,
    record: &StepRecord,
    report: &StepReport,
    context: &DecisionContext<'_>,
) -> RunChange {
    let now = context.now;
    let mut record = record.clone();
    record.epoch = snapshot.run.epoch;
    if snapshot.run.wait.as_ref().is_some_and(|wait| wait.signals.iter().any(|signal| signal == PERMIT)) {
        // The time in the queue of a permit does not count against the budget of the step.
        (record.started_at, record.attempt) = (now, 1);
    }
    if let Some(output) = &report.output {
        record.output = output.clone();
    }
    let mut change = RunChange::of(Run { wait: None, progress_at: now, ..snapshot.run.clone() });
    change.effects.clone_from(&report.effects);
    change.consumed.clone_from(&report.consumed);
    change.events =
        report.events.iter().map(|event| event.clone().of_step(&record.name, record.attempt)).collect();
    let mut ahead = snapshot.clone();
    change.plan = insert_after(&ahead.plan, record.at, &report.plan);
    if let Some(plan) = &change.plan {
        ahead.plan = Arc::new(plan.clone());
    }
    match &report.outcome {
        StepOutcome::Done | StepOutcome::Skipped => {
            record.phase = match (&report.outcome, snapshot.run.phase) {
                (_, Phase::Unwinding) => StepPhase::Undone,
                (StepOutcome::Done, _) => StepPhase::Done,
                _ => StepPhase::Skipped,
            };
            record.ended_at = Some(now);
            write(&mut change, &mut ahead, record);
            advance(change, ahead, context)
        }
        StepOutcome::Wait(request) => {
            park(&mut change, &record, wait(snapshot, &record, request, now), now);
            write(&mut change, &mut ahead, record);
            change
        }
        StepOutcome::Permit(request) => {
            let request = request_permit(&mut change, request, snapshot.run.deadline_at.since(now));
            park(&mut change, &record, wait(snapshot, &record, &request, now), now);
            write(&mut change, &mut ahead, record);
            change
        }
        StepOutcome::Retry(failure) => retry(snapshot, change, ahead, record, failure, context),
        StepOutcome::Hold(hold) if snapshot.run.phase.is_forward() => {
            hold::put_on_hold(&mut change, hold.clone());
            write(&mut change, &mut ahead, record);
            change
        }
        StepOutcome::Hold(hold) => {
            let failure = Failure {
                class: hold.class.clone().into(),
                step: record.name.clone(),
                summary: hold.detail.clone(),
                detail: None,
                next_action: "check the server before its next job".to_owned(),
            };
            give_up(change, ahead, record, &failure, context)
        }
        StepOutcome::Fail(failure) => give_up(change, ahead, record, failure, context),
    }
}

/// Adds the permit request to the change; returns the wait for the permit, which may last until the deadline of the run.
fn request_permit(change: &mut RunChange, request: &PermitRequest, within: Duration) -> WaitRequest {
    let PermitRequest { resource, capacity, reason, signals, detail } = request;
    change.effects.push(Effect::PermitRequested { resource: resource.clone(), capacity: *capacity });
    let signals = signals.iter().copied().chain([PERMIT]).collect();
    WaitRequest { reason, signals, poll: None, limit: within.into(), detail: detail.clone() }
}

/// The plan with further step instances right after `at`. An instance that is still to come is not inserted twice, so that a
/// step can name it again after a wait or a retry. Only the forward stage can be extended.
fn insert_after(plan: &RunPlan, at: Position, further: &[StepInstance]) -> Option<RunPlan> {
    if at.stage != Stage::Forward {
        return None;
    }
    let index = (at.index as usize + 1).min(plan.forward.len());
    let to_come = plan.forward.get(index..).unwrap_or_default();
    let new: Vec<StepInstance> = further
        .iter()
        .filter(|new| !to_come.iter().any(|old| (&old.name, &old.key) == (&new.name, &new.key)))
        .cloned()
        .collect();
    if new.is_empty() {
        return None;
    }
    let mut plan = plan.clone();
    plan.forward.splice(index..index, new);
    Some(plan)
}

/// The wait that a report asks for, if its deadline has passed and an outage does not postpone the judgement.
pub(super) fn overdue_wait(
    snapshot: &Snapshot,
    record: &StepRecord,
    report: &StepReport,
    outage: &LastOutage,
    now: Time,
) -> Option<Wait> {
    let StepOutcome::Wait(request) = &report.outcome else { return None };
    let wait = wait(snapshot, record, request, now);
    (wait.deadline <= now && !outage.spares_wait(&wait, now)).then_some(wait)
}

/// The step's report, unless it asks to wait beyond the deadline of the wait: then the report of
/// [`Step::on_wait_deadline`], merged with it. A failure gets the workflow's remark.
pub(super) fn enforce_wait_deadline(
    snapshot: &Snapshot,
    record: &StepRecord,
    report: &StepReport,
    step: &dyn Step,
    (outage, remark): (&LastOutage, Option<&Remark>),
    now: Time,
) -> StepReport {
    let late = |report: &StepReport| overdue_wait(snapshot, record, report, outage, now);
    let Some(passed) = late(report) else { return report.clone() };
    // The step judges by what its last call has seen, which is not stored yet.
    let mut seen = snapshot.clone();
    if let (Some(output), Some(stored)) = (&report.output, snapshot.record(record.at)) {
        seen.put_record(StepRecord { output: output.clone(), ..stored.clone() });
    }
    let mut overdue = step.on_wait_deadline(&seen, &passed);
    let message = format!("the wait for {} passed its deadline {}", passed.reason, passed.deadline);
    overdue.events.insert(0, NewEvent::warn("wait.overdue", message).with(json!(passed)));
    if late(&overdue).is_some() {
        overdue.outcome = StepOutcome::Fail(fail_on_deadline(&passed));
    }
    if let (StepOutcome::Fail(failure), Some(remark)) = (&mut overdue.outcome, remark) {
        remark.add_to(failure);
    }
    // What the last call found and did is kept.
    let seen = report.clone();
    StepReport {
        output: overdue.output.or(seen.output),
        events: [seen.events, overdue.events].concat(),
        effects: [seen.effects, overdue.effects].concat(),
        plan: [seen.plan, overdue.plan].concat(),
        children: [seen.children, overdue.children].concat(),
        consumed: [seen.consumed, overdue.consumed].concat(),
        then: seen.then.or(overdue.then),
        outcome: overdue.outcome,
    }
}

/// Makes a run that is about to wait due at once when the signal it waits for arrived while its step was running.
pub(super) fn wake_if_signalled(change: &mut RunChange, snapshot: &Snapshot, seen: &Snapshot, now: Time) {
    let Some(wait) = &change.run.wait else { return };
    let missed = snapshot.pending().any(|signal| {
        let same = |other: &Signal| other.name == signal.name && other.key == signal.key;
        wait.signals.contains(&signal.name)
            && !seen.signals.iter().any(same)
            && !change.consumed.iter().any(|(name, key)| *name == signal.name && *key == signal.key)
    });
    if missed {
        change.run.next_run_at = Some(now);
    }
}

/// Whether a message from outside that the run waits for has arrived and is not consumed yet. A permit is granted by this controller, and
/// stays until it is released.
pub(super) fn has_pending_message(snapshot: &Snapshot) -> bool {
    let Some(wait) = &snapshot.run.wait else { return false };
    snapshot.pending().any(|signal| signal.name != PERMIT && wait.signals.contains(&signal.name))
}

/// The change that gives the lease back and keeps everything else.
pub(super) fn release_lease(snapshot: &Snapshot, now: Time) -> RunChange {
    let mut run = snapshot.run.clone();
    run.lease = None;
    run.next_run_at = Some(now);
    if run.phase == Phase::Running {
        run.phase = step_to(run.phase, Trigger::Park);
    }
    RunChange::of(run)
}

/// The change that ends the forward stage with this outcome.
pub(super) fn conclude(
    snapshot: &Snapshot,
    outcome: Outcome,
    failure: Option<Failure>,
    context: &DecisionContext<'_>,
) -> RunChange {
    let mut change = RunChange::of(Run { wait: None, hold: None, ..snapshot.run.clone() });
    let ahead = snapshot.clone();
    begin_finish(&mut change, outcome, failure, context);
    let ahead = Snapshot { run: change.run.clone(), ..ahead };
    advance(change, ahead, context)
}

/// The change of a run that was claimed when every step of its stage had ended.
pub(super) fn stage_completed(snapshot: &Snapshot, context: &DecisionContext<'_>) -> RunChange {
    let change = RunChange::of(Run { wait: None, ..snapshot.run.clone() });
    advance(change, snapshot.clone(), context)
}

/// The change that gives up the remaining undo and finish steps, because the deadline of the stage has passed.
pub(super) fn abort_finish(snapshot: &Snapshot, context: &DecisionContext<'_>) -> RunChange {
    let now = context.now;
    let mut change = RunChange::of(Run { wait: None, ..snapshot.run.clone() });
    let mut ahead = snapshot.clone();
    while let Next::Undo(at) = next(&ahead) {
        let Some(mut record) = ahead.record(at).cloned() else { break };
        record.phase = StepPhase::Stuck;
        record.ended_at = Some(now);
        change.events.push(
            NewEvent::warn(
                "step.gave-up",
                format!("{} was not undone before the deadline; its effect remains", record.name),
            )
            .of_step(&record.name, record.attempt),
        );
        write(&mut change, &mut ahead, record);
    }
    if change.run.phase == Phase::Unwinding {
        change.run.phase = step_to(change.run.phase, Trigger::Conclude);
        ahead.run.phase = change.run.phase;
    }
    while let Next::Run(at) = next(&ahead) {
        if runs_past_deadline(&ahead, at, context.workflow) {
            break;
        }
        let Some(mut record) = ahead.record(at).cloned().or_else(|| intent(&ahead, at, now)) else { break };
        record.phase = StepPhase::Failed;
        record.ended_at = Some(now);
        change.events.push(
            NewEvent::warn("step.gave-up", format!("{} was not done before the deadline", record.name))
                .of_step(&record.name, record.attempt),
        );
        write(&mut change, &mut ahead, record);
    }
    advance(change, ahead, context)
}

/// Whether the step at this position of the finish list runs after the deadline too.
pub(super) fn runs_past_deadline(snapshot: &Snapshot, at: Position, workflow: &dyn Workflow) -> bool {
    at.stage == Stage::Finish
        && instance(snapshot, at)
            .and_then(|instance| workflow.step(&instance.name))
            .is_some_and(|step| step.policy().runs_past_deadline)
}

fn write(change: &mut RunChange, ahead: &mut Snapshot, record: StepRecord) {
    change.steps.retain(|old| old.at != record.at);
    ahead.put_record(record.clone());
    change.steps.push(record);
}

/// Moves the run on to the next step instance, the finish list, or the end.
fn advance(mut change: RunChange, mut ahead: Snapshot, context: &DecisionContext<'_>) -> RunChange {
    let now = context.now;
    ahead.run = change.run.clone();
    loop {
        match (next(&ahead), change.run.phase) {
            (Next::Run(at), _) => {
                let keep = go_to(&mut change, &ahead, at, now, context.queues);
                if keep
                    && ahead.record(at).is_none()
                    && let Some(record) = intent(&ahead, at, now)
                {
                    write(&mut change, &mut ahead, record);
                }
                return change;
            }
            (Next::Undo(at), _) => {
                go_to(&mut change, &ahead, at, now, context.queues);
                return change;
            }
            (Next::StageCompleted, Phase::Unwinding) => {
                change.run.phase = step_to(change.run.phase, Trigger::Conclude);
            }
            (Next::StageCompleted, Phase::Finishing) => {
                end(&mut change, &ahead);
                return change;
            }
            (Next::StageCompleted, _) if cancel::is_pending(&ahead) => {
                // The cancel was acknowledged before the end: this worker or the next owner carries it out.
                if change.run.lease.is_none() {
                    change.run.next_run_at = Some(now);
                }
                return change;
            }
            (Next::StageCompleted, _) => begin_finish(&mut change, Outcome::Succeeded, None, context),
        }
        ahead.run = change.run.clone();
    }
}

/// Sets the run to a step instance; returns whether the deciding worker keeps the lease and runs the step.
fn go_to(change: &mut RunChange, ahead: &Snapshot, at: Position, now: Time, queues: &[String]) -> bool {
    let Some(instance) = instance(ahead, at) else { return false };
    let run = &mut change.run;
    run.step = Some(instance.name.clone());
    run.queue.clone_from(&instance.queue);
    let keep = run.lease.is_some() && queues.contains(&instance.queue);
    if !keep {
        // The step belongs to another queue, or no worker decides: the run is due at once for a worker of that queue.
        run.lease = None;
        run.next_run_at = Some(now);
        if run.phase == Phase::Running {
            run.phase = step_to(run.phase, Trigger::Park);
        }
    }
    keep
}

fn begin_finish(
    change: &mut RunChange,
    outcome: Outcome,
    failure: Option<Failure>,
    context: &DecisionContext<'_>,
) {
    let run = &mut change.run;
    let undoes_steps = outcome != Outcome::Succeeded && context.workflow.undoes_steps();
    run.phase = step_to(run.phase, if undoes_steps { Trigger::Unwind } else { Trigger::Conclude });
    run.outcome = Some(outcome);
    run.hold = None;
    run.deadline_at = context.now.plus(context.workflow.finish_timeout());
    let level = if outcome == Outcome::Succeeded { EventLevel::Info } else { EventLevel::Error };
    let message = match &failure {
        None => format!("{}; cleaning up", outcome.as_str()),
        Some(failure) => format!("{} at {}: {}", outcome.as_str(), failure.step, failure.summary),
    };
    let data = failure.as_ref().map(|failure| {
        json!({ "class": failure.class, "next_action": failure.next_action, "detail": failure.detail })
    });
    change.events.push(NewEvent { level, data, ..NewEvent::info("run.outcome", message) });
    run.failure = failure;
}

fn end(change: &mut RunChange, ahead: &Snapshot) {
    let run = &mut change.run;
    run.phase = step_to(run.phase, Trigger::End);
    run.step = None;
    run.lease = None;
    run.next_run_at = None;
    let left = remaining_cleanup(ahead);
    let outcome = run.outcome.map_or("ended", Outcome::as_str);
    change.events.push(if left.is_empty() {
        NewEvent::info("run.ended", format!("complete: {outcome}"))
    } else {
        NewEvent::warn("run.ended", format!("complete: {outcome}; not cleaned up: {}", left.join(", ")))
            .with(json!({ "remaining": left }))
    });
}

/// The undo and finish steps that failed, in the order of the plan.
pub(super) fn remaining_cleanup(snapshot: &Snapshot) -> Vec<String> {
    snapshot
        .steps
        .iter()
        .filter_map(|record| match (record.at.stage, record.phase) {
            (_, StepPhase::Stuck) => Some(format!("undo {}", record.name)),
            (Stage::Finish, StepPhase::Failed) => Some(record.name.to_string()),
            _ => None,
        })
        .collect()
}

/// A time, but not later than the deadline of the run. Once that has passed, only a step works that runs past it: its pauses hold
/// as before, so that it is not called without end.
fn by_deadline(run: &Run, at: Time, now: Time) -> Time {
    if run.deadline_at > now { at.min(run.deadline_at) } else { at }
}

fn park(change: &mut RunChange, record: &StepRecord, wait: Wait, now: Time) {
    let run = &mut change.run;
    run.phase = step_to(run.phase, Trigger::Park);
    run.lease = None;
    run.step = Some(record.name.clone());
    run.next_run_at = Some(by_deadline(run, wait.due(), now)).filter(|_| !mutant::active(Mutant::NeverDue));
    run.wait = Some(wait);
}

/// A wait with the same reason as the previous one continues it: `since` and `deadline` stay those of its start, also when a
/// setting or a profile has changed since. After a failed attempt it is a new wait: the step has acted again, and what it awaits has
/// its whole time. A step that fails and waits by turns ends nevertheless: waits do not reset the number of its attempts.
fn wait(snapshot: &Snapshot, record: &StepRecord, request: &WaitRequest, now: Time) -> Wait {
    let (since, deadline) = match &snapshot.run.wait {
        Some(old) if old.step == record.name && old.reason == request.reason.name => {
            (old.since, old.deadline)
        }
        _ => (now, request.limit.deadline(now)),
    };
    Wait {
        reason: request.reason.name.to_owned(),
        step: record.name.clone(),
        since,
        deadline: by_deadline(&snapshot.run, deadline, now),
        signals: request.signals.iter().map(|&name| name.to_owned()).collect(),
        poll_at: request.poll.map(|poll| now.plus(poll.max(LEAST_POLL))),
        detail: request.detail.clone(),
    }
}

/// The shortest pause before a step is called again that waits. A time that has passed by a fraction of a millisecond, or a BMC whose
/// `Retry-After` is 0, would make a step that is called without end.
const LEAST_POLL: Duration = Duration::from_millis(100);

fn retry(
    snapshot: &Snapshot,
    mut change: RunChange,
    mut ahead: Snapshot,
    mut record: StepRecord,
    failure: &Failure,
    context: &DecisionContext<'_>,
) -> RunChange {
    let now = context.now;
    let policy = &context.policy;
    let pause = backoff(policy.backoff, policy.backoff_cap, record.attempt, context.jitter);
    let undoing = change.run.phase == Phase::Unwinding;
    let budget_ends = record.started_at.plus(policy.budget);
    let until = match &snapshot.run.wait {
        // Undo has one budget for all steps: the deadline of the stage. Attempts of the forward stage do not count.
        _ if undoing => change.run.deadline_at,
        None => budget_ends,
        Some(wait) if wait.reason == RETRY => budget_ends.max(wait.deadline),
        // The time in which the step waited (an hour, perhaps) does not count against the budget of its attempts.
        Some(_) => now.plus(policy.budget),
    };
    if (!undoing && record.attempt >= policy.attempts) || now.plus(pause) > until {
        let spent =
            format!("gave up after {} attempts in {}", record.attempt, seconds(now.since(record.started_at)));
        if change.run.phase.is_forward() {
            change.events.push(
                NewEvent::error("step.gave-up", format!("{spent}: {}", failure.summary))
                    .with(json!({
                        "class": failure.class, "detail": failure.detail, "attempts": record.attempt,
                        "budget_s": policy.budget.as_secs(), "since": record.started_at,
                    }))
                    .of_step(&record.name, record.attempt),
            );
        }
        let failure = Failure { summary: format!("{}; {spent}", failure.summary), ..failure.clone() };
        return give_up(change, ahead, record, &failure, context);
    }
    change.events.push(
        NewEvent::warn("step.retry", format!("{}; next attempt in {}", failure.summary, seconds(pause)))
            .with(json!({ "class": failure.class, "detail": failure.detail }))
            .of_step(&record.name, record.attempt),
    );
    let wait = Wait {
        reason: RETRY.to_owned(),
        step: record.name.clone(),
        since: now,
        deadline: by_deadline(&change.run, until, now),
        signals: Vec::new(),
        poll_at: Some(now.plus(pause)),
        detail: failure.summary.clone(),
    };
    record.attempt += 1;
    park(&mut change, &record, wait, now);
    write(&mut change, &mut ahead, record);
    change
}

fn give_up(
    mut change: RunChange,
    mut ahead: Snapshot,
    mut record: StepRecord,
    failure: &Failure,
    context: &DecisionContext<'_>,
) -> RunChange {
    let phase = change.run.phase;
    record.phase = if phase == Phase::Unwinding { StepPhase::Stuck } else { StepPhase::Failed };
    record.ended_at = Some(context.now);
    let name = record.name.clone();
    let attempt = record.attempt;
    write(&mut change, &mut ahead, record);
    if phase.is_forward() {
        let outcome = if failure.class == class::CANCELLED { Outcome::Cancelled } else { Outcome::Failed };
        begin_finish(&mut change, outcome, Some(failure.clone()), context);
    } else {
        change.events.push(
            NewEvent::warn("step.gave-up", format!("{name} failed: {}", failure.summary))
                .with(json!({ "class": failure.class, "next_action": failure.next_action }))
                .of_step(&name, attempt),
        );
    }
    advance(change, ahead, context)
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
