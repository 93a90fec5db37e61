//! Compares the row of the model with the row of the store over random walks of actions.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::Value;

use super::rules::{Action, ENDED, FINISH, GRACE, Mutant, PAUSE, Row, Stage, State, TTL, Worker};
use crate::cancel;
use crate::cursor::{self, Next};
use crate::decide::{self, DecisionContext};
use crate::tests::kit::{Kit, new_run};
use crate::verbs;
use crate::workflow::{StepOutcome, StepPolicy, StepReport, Workflow};
use model::{Failure, Lease, Phase, Run, RunChange, RunId, Snapshot, StepPhase, StepRecord, Time, Verb};
use store::{Committed, TakeOver};

const TICK: Duration = Duration::from_secs(10);
const OWNERS: [&str; 2] = ["one", "two"];

fn ticks(count: u8) -> Duration {
    TICK * u32::from(count)
}

/// The real store, and what two workers have read from it.
struct Real {
    kit: Kit,
    run: RunId,
    read: [Option<Snapshot>; 2],
}

impl Real {
    async fn start() -> Self {
        let kit = Kit::new();
        let run = kit.start_run(new_run("drill", &["a"], kit.now())).await;
        Self { kit, run, read: [None, None] }
    }

    /// `alone`: the other controller is down, so that a start gains the file lock.
    async fn act(&mut self, action: Action, alone: bool) {
        let now = self.kit.now();
        match action {
            Action::Tick => self.kit.clock.advance(TICK),
            Action::Claim(who) => {
                let queues = ["default".to_owned()];
                let store = self.kit.engine.store();
                let claimed =
                    store.claim(OWNERS[who], &queues, 1, now, ticks(TTL), ticks(GRACE)).await.unwrap();
                self.read[who] = claimed.into_iter().next().map(|claimed| claimed.snapshot);
            }
            Action::RecordIntent(who) => {
                let Some(read) = self.read[who].clone() else { return };
                let workflow = self.workflow();
                let change = match cancel::is_pending(&read) {
                    true => verbs::cancelled(&read, &decision(&*workflow, now)),
                    false => intent_recorded(&read, now),
                };
                self.commit(who, &read, change).await;
            }
            Action::Finish(who) => self.conclude(who, StepReport::done()).await,
            Action::Park(who) => {
                let failure = Failure {
                    class: model::class::TRANSIENT,
                    step: "a".into(),
                    summary: "not yet".to_owned(),
                    detail: None,
                    next_action: "none".to_owned(),
                };
                self.conclude(who, StepReport::new(StepOutcome::Retry(failure))).await;
            }
            Action::Checkpoint(who) => {
                let Some(read) = self.read[who].clone() else { return };
                let record = record_of(&read);
                let run = renewed(&read.run, now);
                if !self.kit.engine.store().progress(run, record, now).await.unwrap() {
                    self.read[who] = None;
                }
            }
            Action::Crash(who) => self.read[who] = None,
            Action::Cancel => {
                let cancelled = self.kit.engine.verb(self.run, Verb::Cancel, "operator", "").await;
                cancelled.unwrap();
            }
            Action::Start(_) => {
                let scope = if alone { TakeOver::Everything } else { TakeOver::ExpiredOnly };
                self.kit.engine.store().take_over(scope, now).await.unwrap();
            }
            // These actions do not reach the store.
            Action::Find(_)
            | Action::Send(_)
            | Action::Stop(_)
            | Action::Land(_)
            | Action::Lose(_)
            | Action::Respond(_)
            | Action::TimeOut(_) => {}
        }
    }

    fn workflow(&self) -> std::sync::Arc<dyn Workflow> {
        std::sync::Arc::clone(self.kit.engine.workflows().get("drill").unwrap())
    }

    async fn conclude(&mut self, who: usize, report: StepReport) {
        let Some(read) = self.read[who].clone() else { return };
        let workflow = self.workflow();
        let record = record_of(&read);
        let change = decide::apply_report(&read, &record, &report, &decision(&*workflow, self.kit.now()));
        self.commit(who, &read, change).await;
    }

    /// One commit as a worker makes it: applied, in conflict, or refused because the lease is lost.
    async fn commit(&mut self, who: usize, read: &Snapshot, mut change: RunChange) {
        let now = self.kit.now();
        if change.run.lease.is_some() {
            change.run = renewed(&change.run, now);
        }
        let expected = read.run.version();
        let store = self.kit.engine.store();
        self.read[who] = match store.commit(change, expected, now).await.unwrap() {
            Committed::Applied(run) if run.lease.is_some() => {
                // A worker knows the row that it wrote, without later changes.
                let fresh = self.kit.snapshot(self.run).await;
                assert_eq!(fresh.run.revision, run.revision);
                Some(fresh)
            }
            Committed::Moved(fresh) => Some(*fresh),
            _ => None,
        };
    }

    /// The row in the model's terms.
    async fn row(&self) -> Row {
        let snapshot = self.kit.snapshot(self.run).await;
        let run = &snapshot.run;
        let step = match run.phase {
            Phase::Ended => ENDED,
            phase if phase.is_forward() => 0,
            _ => FINISH,
        };
        let intent = match cursor::next(&snapshot) {
            Next::Run(at) => snapshot.record(at).is_some_and(|record| record.phase == StepPhase::Intent),
            Next::Undo(_) | Next::StageCompleted => false,
        };
        let owner = run.lease.as_ref().map(|lease| OWNERS.iter().position(|name| *name == lease.owner));
        let now = self.kit.now();
        let left = |at: Time| u8::try_from(at.since(now).as_secs().div_ceil(TICK.as_secs())).unwrap();
        Row {
            step,
            intent: intent && step < ENDED,
            owner: owner.map(|owner| owner.unwrap() as u8),
            epoch: u8::try_from(run.epoch).unwrap(),
            next: run.next_run_at.map(left),
            cancel: run.cancel_requested_at.is_some(),
        }
    }
}

fn decision(workflow: &dyn Workflow, now: Time) -> DecisionContext<'_> {
    static QUEUES: std::sync::LazyLock<[String; 1]> = std::sync::LazyLock::new(|| ["default".to_owned()]);
    let policy = StepPolicy {
        backoff: ticks(PAUSE),
        backoff_cap: ticks(PAUSE),
        attempts: 1000,
        ..StepPolicy::default()
    };
    DecisionContext { workflow, policy, now, jitter: 1.0, queues: &*QUEUES }
}

fn intent_recorded(read: &Snapshot, now: Time) -> RunChange {
    let mut change = RunChange::of(Run { wait: None, ..read.run.clone() });
    if let Next::Run(at) = cursor::next(read)
        && read.record(at).is_none()
    {
        change.steps.extend(cursor::intent(read, at, now));
    }
    change
}

fn record_of(read: &Snapshot) -> StepRecord {
    let Next::Run(at) = cursor::next(read) else { panic!("no step is running in {read:?}") };
    let mut record = read.record(at).unwrap().clone();
    record.output = Value::Null;
    record
}

fn renewed(run: &Run, now: Time) -> Run {
    let expires_at = now.plus(ticks(TTL));
    let lease = run.lease.clone().map(|lease| Lease { expires_at, ..lease });
    Run { lease, next_run_at: Some(expires_at.plus(ticks(GRACE))), ..run.clone() }
}

/// Applies a sequence of actions to both and compares the rows after each.
async fn walk(choices: Vec<usize>) -> TestCaseResult {
    let (mut model, mut real) = (State::start(), Real::start().await);
    let mut taken = Vec::new();
    for choice in choices {
        let actions: Vec<(Action, State)> = model
            .actions()
            .into_iter()
            .filter_map(|action| Some((action, model.after(action, Mutant::None)?)))
            .collect();
        let Some((action, next)) = actions.get(choice % actions.len().max(1)).cloned() else { break };
        let alone = matches!(action, Action::Start(who) if model.workers[1 - who] == Worker::Down);
        real.act(action, alone).await;
        taken.push(action);
        let row = real.row().await;
        prop_assert_eq!(row, next.row, "after {:?}", taken);
        model = next;
        for who in 0..2 {
            let busy = model.claim_of(who).is_some_and(|claim| claim.stage == Stage::Fresh);
            prop_assert!(!busy || real.read[who].is_some(), "worker {} after {:?}", who, taken);
            if model.claim_of(who).is_none() {
                real.read[who] = None;
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_store_agrees_with_the_model(choices in proptest::collection::vec(0_usize..1000, 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(walk(choices))?;
    }
}
