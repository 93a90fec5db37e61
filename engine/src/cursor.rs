//! The place of a run in its plan: what it does next, the step instance there, and the next phase. Pure functions.

use serde_json::Value;

use model::{
    Phase, Position, Snapshot, Stage, StepInstance, StepPhase, StepRecord, Time, Trigger, transition,
};

/// The next action of a worker for a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    /// Run the step at this position.
    Run(Position),
    /// Undo the step at this position.
    Undo(Position),
    /// Every step of the stage has ended.
    StageCompleted,
}

/// The next action of a run, from its phase and its step records.
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

/// The step instance at a position of the plan.
pub(super) fn instance(snapshot: &Snapshot, at: Position) -> Option<&StepInstance> {
    list(snapshot, at.stage).get(at.index as usize)
}

fn list(snapshot: &Snapshot, stage: Stage) -> &[StepInstance] {
    match stage {
        Stage::Forward => &snapshot.plan.forward,
        Stage::Finish => &snapshot.plan.finish,
    }
}

/// The intent of a step instance that has no record yet.
pub(super) fn intent(snapshot: &Snapshot, at: Position, now: Time) -> Option<StepRecord> {
    let instance = instance(snapshot, at)?;
    Some(StepRecord {
        at,
        name: instance.name.clone(),
        key: instance.key.clone(),
        attempt: 1,
        epoch: snapshot.run.epoch,
        phase: StepPhase::Intent,
        output: Value::Null,
        started_at: now,
        ended_at: None,
    })
}

/// The next phase by the transition table. The callers use only triggers that the table allows in their phase. A trigger that
/// is not allowed is a defect: it is logged, the run keeps its phase, and the next claim decides again.
pub(super) fn step_to(phase: Phase, trigger: Trigger) -> Phase {
    transition(phase, trigger).unwrap_or_else(|illegal| {
        tracing::error!(%illegal, "defect: a decision used a trigger that the transition table does not allow");
        phase
    })
}
