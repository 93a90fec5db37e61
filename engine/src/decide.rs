//! What follows what: pure functions from a run as it is, and what a step concluded, to the change to commit.
//!
//! ```text
//!  forward:   Done/Skipped -> next instance, or conclude(succeeded;      finish:  Done/Skipped/Failed -> next, or end
//!                             a pending cancel comes first)
//!             Wait, Turn, Retry -> park                                           Wait, Turn, Retry   -> park
//!             Hold         -> held                                                Hold                -> as Fail
//!             Fail         -> conclude(failed)                                    Fail                -> warn, next
//! ```
//!
//! A worker may keep its lease over a change (`keep_lease`) and go straight on; a change made for a parked run never has one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::class;
use super::hold;
use super::verbs;
use super::workflow::{
    Kind, PermitRequest, Step, StepPolicy, StepReport, Verdict, WaitRequest, fail_on_deadline,
};
use crate::model::mutant::{self, Mutant};
use crate::model::run::backoff;
use crate::model::{
    Change, Effect, Failure, Level, NewEvent, Outcome, Phase, Plan, Position, Run, Signal, Snapshot, Stage,
    StepInstance, StepPhase, StepRecord, TURN, Time, Trigger, Wait, transition,
};

/// The reason of a wait between two tries.
pub(super) const RETRY: &str = "retry";

/// What a worker has to do next with a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    /// Carry out this instance.
    Run(Position),
    /// Take this instance back.
    Undo(Position),
    /// Nothing is left in this stage.
    StageCompleted,
}

/// The place the run is at.
pub(super) fn next(snapshot: &Snapshot) -> Next {
    let over = |at: Position| {
        snapshot.record(at).is_some_and(|record| match record.phase {
            StepPhase::Done | StepPhase::Skipped | StepPhase::Undone | StepPhase::Stuck => true,
            StepPhase::Failed => at.stage == Stage::Finish,
            StepPhase::Intent => false,
        })
    };
    let stage = match snapshot.run.phase {
        Phase::Unwinding => {
            return snapshot
                .steps
                .iter()
                .filter(|record| record.at.stage == Stage::Forward)
                .filter(|record| {
                    !matches!(record.phase, StepPhase::Undone | StepPhase::Stuck | StepPhase::Skipped)
                })
                .map(|record| record.at)
                .max()
                .map_or(Next::StageCompleted, Next::Undo);
        }
        Phase::Finishing | Phase::Ended => Stage::Finish,
        _ => Stage::Forward,
    };
    let length = u32::try_from(list(snapshot, stage).len()).unwrap_or(u32::MAX);
    (0..length)
        .map(|index| Position { stage, index })
        .find(|at| !over(*at))
        .map_or(Next::StageCompleted, Next::Run)
}

/// The instance at a place of the plan.
pub(super) fn instance(snapshot: &Snapshot, at: Position) -> Option<&StepInstance> {
    list(snapshot, at.stage).get(at.index as usize)
}

fn list(snapshot: &Snapshot, stage: Stage) -> &[StepInstance] {
    match stage {
        Stage::Forward => &snapshot.plan.forward,
        Stage::Finish => &snapshot.plan.finish,
    }
}

/// A fresh intent for an instance.
pub(super) fn intent(snapshot: &Snapshot, at: Position, now: Time) -> Option<StepRecord> {
    let instance = instance(snapshot, at)?;
    Some(StepRecord {
        at,
        name: instance.name.clone(),
        key: instance.key.clone(),
        attempt: 1,
        epoch: snapshot.run.epoch,
        phase: StepPhase::Intent,
        evidence: Value::Null,
        started_at: now,
        ended_at: None,
    })
}

/// Circumstances of a decision.
pub(super) struct Circumstances<'a> {
    /// The run's workflow.
    pub(super) kind: &'a dyn Kind,
    /// The policy of the step that reported.
    pub(super) policy: StepPolicy,
    /// When.
    pub(super) now: Time,
    /// A random number in `0.0..1.0` for back-off.
    pub(super) chance: f64,
    /// The queues whose steps the deciding worker carries out; empty for a change without a worker.
    pub(super) queues: &'a [String],
}

/// The change that follows from what the instance at `at` reported (`record` is its record as last written).
pub(super) fn after(
    snapshot: &Snapshot,
    record: &StepRecord,
    report: &StepReport,
    circumstances: &Circumstances<'_>,
) -> Change {
    let now = circumstances.now;
    let mut record = record.clone();
    record.epoch = snapshot.run.epoch;
    if snapshot.run.wait.as_ref().is_some_and(|wait| wait.signals.iter().any(|signal| signal == TURN)) {
        // Standing in line is no part of the step's budget.
        (record.started_at, record.attempt) = (now, 1);
    }
    if let Some(evidence) = &report.evidence {
        record.evidence = evidence.clone();
    }
    let mut change = Change::of(Run { wait: None, progress_at: now, ..snapshot.run.clone() });
    change.effects.clone_from(&report.effects);
    change.consumed.clone_from(&report.consumed);
    change.events =
        report.events.iter().map(|event| event.clone().of_step(&record.name, record.attempt)).collect();
    let mut ahead = snapshot.clone();
    change.plan = extended(&ahead.plan, record.at, &report.plan);
    if let Some(plan) = &change.plan {
        ahead.plan = Arc::new(plan.clone());
    }
    match &report.verdict {
        Verdict::Done | Verdict::Skipped => {
            record.phase = match (&report.verdict, snapshot.run.phase) {
                (_, Phase::Unwinding) => StepPhase::Undone,
                (Verdict::Done, _) => StepPhase::Done,
                _ => StepPhase::Skipped,
            };
            record.ended_at = Some(now);
            write(&mut change, &mut ahead, record);
            advance(change, ahead, circumstances)
        }
        Verdict::Wait(request) => {
            park(&mut change, &record, wait(snapshot, &record, request, now));
            write(&mut change, &mut ahead, record);
            change
        }
        Verdict::Turn(request) => {
            let request = in_line(&mut change, request, snapshot.run.deadline_at.since(now));
            park(&mut change, &record, wait(snapshot, &record, &request, now));
            write(&mut change, &mut ahead, record);
            change
        }
        Verdict::Retry(failure) => retry(snapshot, change, ahead, record, failure, circumstances),
        Verdict::Hold(hold) if snapshot.run.phase.is_forward() => {
            hold::put_on_hold(&mut change, hold.clone());
            write(&mut change, &mut ahead, record);
            change
        }
        Verdict::Hold(hold) => {
            let failure = Failure {
                class: hold.class.clone(),
                step: record.name.clone(),
                summary: hold.detail.clone(),
                evidence: None,
                next_action: "look at the server before its next job".to_owned(),
            };
            give_up(change, ahead, record, &failure, circumstances)
        }
        Verdict::Fail(failure) => give_up(change, ahead, record, failure, circumstances),
    }
}

/// Asks for a place; answers the wait for it, which lasts as long as the run may.
fn in_line(change: &mut Change, request: &PermitRequest, within: Duration) -> WaitRequest {
    let PermitRequest { resource, places, reason, signals, detail } = request;
    change.effects.push(Effect::PermitRequested { resource: resource.clone(), places: *places });
    let signals = signals.iter().copied().chain([TURN]).collect();
    WaitRequest { reason, signals, poll: None, within, detail: detail.clone() }
}

/// The plan with further instances right after `at`. A step that comes back (a wait, a retry) and names them again adds
/// nothing: what is still to come is not put in twice. Only the way forward can be extended.
fn extended(plan: &Plan, at: Position, further: &[StepInstance]) -> Option<Plan> {
    if at.stage != Stage::Forward {
        return None;
    }
    let place = (at.index as usize + 1).min(plan.forward.len());
    let to_come = plan.forward.get(place..).unwrap_or_default();
    let new: Vec<StepInstance> = further
        .iter()
        .filter(|new| !to_come.iter().any(|old| (&old.name, &old.key) == (&new.name, &new.key)))
        .cloned()
        .collect();
    if new.is_empty() {
        return None;
    }
    let mut plan = plan.clone();
    plan.forward.splice(place..place, new);
    Some(plan)
}

/// What a step concluded, unless it only wants to wait on past its wait's deadline: then what it declared for that.
pub(super) fn in_time(
    snapshot: &Snapshot,
    record: &StepRecord,
    report: &StepReport,
    step: &dyn Step,
    now: Time,
) -> StepReport {
    let late = |report: &StepReport| match &report.verdict {
        Verdict::Wait(request) => {
            Some(wait(snapshot, record, request, now)).filter(|wait| wait.deadline <= now)
        }
        _ => None,
    };
    let Some(passed) = late(report) else { return report.clone() };
    let mut overdue = step.overdue(snapshot, &passed);
    let message = format!("the wait for {} has passed its deadline {}", passed.reason, passed.deadline);
    overdue.events.insert(0, NewEvent::warn("wait.overdue", message).with(json!(passed)));
    if late(&overdue).is_some() {
        overdue.verdict = Verdict::Fail(fail_on_deadline(&passed));
    }
    // What its last look found and did stands, whatever follows from the time being over.
    let seen = report.clone();
    StepReport {
        evidence: overdue.evidence.or(seen.evidence),
        events: [seen.events, overdue.events].concat(),
        effects: [seen.effects, overdue.effects].concat(),
        plan: [seen.plan, overdue.plan].concat(),
        children: [seen.children, overdue.children].concat(),
        consumed: [seen.consumed, overdue.consumed].concat(),
        then: seen.then.or(overdue.then),
        verdict: overdue.verdict,
    }
}

/// Makes a run that is about to wait due at once if it was told what it waits for while its step was looking elsewhere.
pub(super) fn notice(change: &mut Change, snapshot: &Snapshot, seen: &Snapshot, now: Time) {
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

/// Whether a signal that the run waits for has come and was not acted on yet.
pub(super) fn told(snapshot: &Snapshot) -> bool {
    let Some(wait) = &snapshot.run.wait else { return false };
    snapshot.pending().any(|signal| wait.signals.contains(&signal.name))
}

/// The change that gives the lease back with everything else as it is.
pub(super) fn released(snapshot: &Snapshot, now: Time) -> Change {
    let mut run = snapshot.run.clone();
    run.lease = None;
    run.next_run_at = Some(now);
    if run.phase == Phase::Running {
        run.phase = step_to(run.phase, Trigger::Park);
    }
    Change::of(run)
}

/// The change that ends the forward stage with this outcome.
pub(super) fn conclude(
    snapshot: &Snapshot,
    outcome: Outcome,
    failure: Option<Failure>,
    circumstances: &Circumstances<'_>,
) -> Change {
    let mut change = Change::of(Run { wait: None, hold: None, ..snapshot.run.clone() });
    let ahead = snapshot.clone();
    begin_finish(&mut change, outcome, failure, circumstances);
    let ahead = Snapshot { run: change.run.clone(), ..ahead };
    advance(change, ahead, circumstances)
}

/// The change of a run that was claimed with nothing left to do in its stage.
pub(super) fn stage_completed(snapshot: &Snapshot, circumstances: &Circumstances<'_>) -> Change {
    let change = Change::of(Run { wait: None, ..snapshot.run.clone() });
    advance(change, snapshot.clone(), circumstances)
}

/// The change that gives up on what is left of undoing and finishing, because its time is over.
pub(super) fn abort_finish(snapshot: &Snapshot, circumstances: &Circumstances<'_>) -> Change {
    let now = circumstances.now;
    let mut change = Change::of(Run { wait: None, ..snapshot.run.clone() });
    let mut ahead = snapshot.clone();
    while let Next::Undo(at) = next(&ahead) {
        let Some(mut record) = ahead.record(at).cloned() else { break };
        record.phase = StepPhase::Stuck;
        record.ended_at = Some(now);
        change.events.push(
            NewEvent::warn(
                "step.gave-up",
                format!("{} was not undone in time and is left as it is", record.name),
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
        if always(&ahead, at, circumstances.kind) {
            break;
        }
        let Some(mut record) = ahead.record(at).cloned().or_else(|| intent(&ahead, at, now)) else { break };
        record.phase = StepPhase::Failed;
        record.ended_at = Some(now);
        change.events.push(
            NewEvent::warn(
                "step.gave-up",
                format!("{} was not done in time and is left as it is", record.name),
            )
            .of_step(&record.name, record.attempt),
        );
        write(&mut change, &mut ahead, record);
    }
    advance(change, ahead, circumstances)
}

/// Whether the step at a place of the finish list is carried out however late it is.
pub(super) fn always(snapshot: &Snapshot, at: Position, kind: &dyn Kind) -> bool {
    at.stage == Stage::Finish
        && instance(snapshot, at)
            .and_then(|instance| kind.step(&instance.name))
            .is_some_and(|step| step.policy().always)
}

fn write(change: &mut Change, ahead: &mut Snapshot, record: StepRecord) {
    change.steps.retain(|old| old.at != record.at);
    ahead.steps.retain(|old| old.at != record.at);
    ahead.steps.push(record.clone());
    change.steps.push(record);
}

/// Goes to what comes next: the next instance, the finish list, or the end.
fn advance(mut change: Change, mut ahead: Snapshot, circumstances: &Circumstances<'_>) -> Change {
    let now = circumstances.now;
    ahead.run = change.run.clone();
    loop {
        match (next(&ahead), change.run.phase) {
            (Next::Run(at), _) => {
                let keep = go_to(&mut change, &ahead, at, now, circumstances.queues);
                if keep
                    && ahead.record(at).is_none()
                    && let Some(record) = intent(&ahead, at, now)
                {
                    write(&mut change, &mut ahead, record);
                }
                return change;
            }
            (Next::Undo(at), _) => {
                go_to(&mut change, &ahead, at, now, circumstances.queues);
                return change;
            }
            (Next::StageCompleted, Phase::Unwinding) => {
                change.run.phase = step_to(change.run.phase, Trigger::Conclude);
            }
            (Next::StageCompleted, Phase::Finishing) => {
                end(&mut change, &ahead);
                return change;
            }
            (Next::StageCompleted, _) if verbs::cancel_pending(&ahead) => {
                // Acknowledged before the end: the next round carries it out, here or with the next owner.
                if change.run.lease.is_none() {
                    change.run.next_run_at = Some(now);
                }
                return change;
            }
            (Next::StageCompleted, _) => begin_finish(&mut change, Outcome::Succeeded, None, circumstances),
        }
        ahead.run = change.run.clone();
    }
}

/// Sets the run on an instance; answers whether the deciding worker may go straight on with it.
fn go_to(change: &mut Change, ahead: &Snapshot, at: Position, now: Time, queues: &[String]) -> bool {
    let Some(instance) = instance(ahead, at) else { return false };
    let run = &mut change.run;
    run.step = Some(instance.name.clone());
    run.queue.clone_from(&instance.queue);
    let keep = run.lease.is_some() && queues.contains(&instance.queue);
    if !keep {
        // Another worker's queue, or no worker at all: due at once for whoever serves it.
        run.lease = None;
        run.next_run_at = Some(now);
        if run.phase == Phase::Running {
            run.phase = step_to(run.phase, Trigger::Park);
        }
    }
    keep
}

fn begin_finish(
    change: &mut Change,
    outcome: Outcome,
    failure: Option<Failure>,
    circumstances: &Circumstances<'_>,
) {
    let run = &mut change.run;
    let undoes_steps = outcome != Outcome::Succeeded && circumstances.kind.undoes_steps();
    run.phase = step_to(run.phase, if undoes_steps { Trigger::Unwind } else { Trigger::Conclude });
    run.outcome = Some(outcome);
    run.hold = None;
    run.deadline_at = circumstances.now.plus(circumstances.kind.finish_timeout());
    let level = if outcome == Outcome::Succeeded { Level::Info } else { Level::Error };
    let message = match &failure {
        None => format!("{}; cleaning up", outcome.as_str()),
        Some(failure) => format!("{} at {}: {}", outcome.as_str(), failure.step, failure.summary),
    };
    let data = failure.as_ref().map(|failure| {
        json!({ "class": failure.class, "next_action": failure.next_action, "evidence": failure.evidence })
    });
    change.events.push(NewEvent { level, data, ..NewEvent::info("run.outcome", message) });
    run.failure = failure;
}

fn end(change: &mut Change, ahead: &Snapshot) {
    let run = &mut change.run;
    run.phase = step_to(run.phase, Trigger::End);
    run.step = None;
    run.lease = None;
    run.next_run_at = None;
    let left = left_undone(ahead);
    let outcome = run.outcome.map_or("over", Outcome::as_str);
    change.events.push(if left.is_empty() {
        NewEvent::info("run.ended", format!("complete: {outcome}"))
    } else {
        NewEvent::warn("run.ended", format!("complete: {outcome}; left undone: {}", left.join(", ")))
            .with(json!({ "remaining": left }))
    });
}

/// What cleaning up and undoing could not take back, in the order of the plan.
pub(super) fn left_undone(snapshot: &Snapshot) -> Vec<String> {
    snapshot
        .steps
        .iter()
        .filter_map(|record| match (record.at.stage, record.phase) {
            (_, StepPhase::Stuck) => Some(format!("undo {}", record.name)),
            (Stage::Finish, StepPhase::Failed) => Some(record.name.clone()),
            _ => None,
        })
        .collect()
}

fn park(change: &mut Change, record: &StepRecord, wait: Wait) {
    let run = &mut change.run;
    run.phase = step_to(run.phase, Trigger::Park);
    run.lease = None;
    run.step = Some(record.name.clone());
    run.next_run_at =
        Some(wait.due().min(run.deadline_at)).filter(|_| !mutant::active(Mutant::NeverLooksAgain));
    run.wait = Some(wait);
}

/// A wait goes on when its reason stays the same: since and deadline are those of its first moment.
fn wait(snapshot: &Snapshot, record: &StepRecord, request: &WaitRequest, now: Time) -> Wait {
    let since = match &snapshot.run.wait {
        Some(old) if old.step == record.name && old.reason == request.reason.name => old.since,
        _ => now,
    };
    Wait {
        reason: request.reason.name.to_owned(),
        step: record.name.clone(),
        since,
        deadline: since.plus(request.within).min(snapshot.run.deadline_at),
        signals: request.signals.iter().map(|&name| name.to_owned()).collect(),
        poll_at: request.poll.map(|poll| now.plus(poll)),
        detail: request.detail.clone(),
    }
}

fn retry(
    snapshot: &Snapshot,
    mut change: Change,
    mut ahead: Snapshot,
    mut record: StepRecord,
    failure: &Failure,
    circumstances: &Circumstances<'_>,
) -> Change {
    let now = circumstances.now;
    let policy = &circumstances.policy;
    let pause = backoff(policy.backoff, policy.backoff_cap, record.attempt, circumstances.chance);
    let undoing = change.run.phase == Phase::Unwinding;
    let whole = record.started_at.plus(policy.budget);
    let until = match &snapshot.run.wait {
        // Undoing has one budget for all steps: the deadline of the stage. The tries of the way forward do not count.
        _ if undoing => change.run.deadline_at,
        None => whole,
        Some(wait) if wait.reason == RETRY => whole.max(wait.deadline),
        // The time in which it waited, for an hour perhaps, is no part of the budget of what it tries now.
        Some(_) => now.plus(policy.budget),
    };
    if (!undoing && record.attempt >= policy.attempts) || now.plus(pause) > until {
        let spent =
            format!("gave up after {} tries in {}", record.attempt, seconds(now.since(record.started_at)));
        if change.run.phase.is_forward() {
            change.events.push(
                NewEvent::error("step.gave-up", format!("{spent}: {}", failure.summary))
                    .with(json!({
                        "class": failure.class, "evidence": failure.evidence, "tries": record.attempt,
                        "budget_s": policy.budget.as_secs(), "since": record.started_at,
                    }))
                    .of_step(&record.name, record.attempt),
            );
        }
        let failure = Failure { summary: format!("{}; {spent}", failure.summary), ..failure.clone() };
        return give_up(change, ahead, record, &failure, circumstances);
    }
    change.events.push(
        NewEvent::warn("step.retry", format!("{}; trying again in {}", failure.summary, seconds(pause)))
            .with(json!({ "class": failure.class, "evidence": failure.evidence }))
            .of_step(&record.name, record.attempt),
    );
    let wait = Wait {
        reason: RETRY.to_owned(),
        step: record.name.clone(),
        since: now,
        deadline: until.min(change.run.deadline_at),
        signals: Vec::new(),
        poll_at: Some(now.plus(pause)),
        detail: failure.summary.clone(),
    };
    record.attempt += 1;
    park(&mut change, &record, wait);
    write(&mut change, &mut ahead, record);
    change
}

fn give_up(
    mut change: Change,
    mut ahead: Snapshot,
    mut record: StepRecord,
    failure: &Failure,
    circumstances: &Circumstances<'_>,
) -> Change {
    let phase = change.run.phase;
    record.phase = if phase == Phase::Unwinding { StepPhase::Stuck } else { StepPhase::Failed };
    record.ended_at = Some(circumstances.now);
    let name = record.name.clone();
    let attempt = record.attempt;
    write(&mut change, &mut ahead, record);
    if phase.is_forward() {
        let outcome = if failure.class == class::CANCELLED { Outcome::Cancelled } else { Outcome::Failed };
        begin_finish(&mut change, outcome, Some(failure.clone()), circumstances);
    } else {
        change.events.push(
            NewEvent::warn("step.gave-up", format!("{name} could not be done: {}", failure.summary))
                .with(json!({ "class": failure.class, "next_action": failure.next_action }))
                .of_step(&name, attempt),
        );
    }
    advance(change, ahead, circumstances)
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// The next phase by the table. The callers above only pull triggers the table allows in the phases they are reached in;
/// should one ever not be, the run stays where it is and the next claim decides again.
pub(super) fn step_to(phase: Phase, trigger: Trigger) -> Phase {
    transition(phase, trigger).unwrap_or_else(|illegal| {
        tracing::error!(%illegal, "a decision pulled a trigger the table does not have");
        phase
    })
}
