//! One worker: carries a claimed run from step to step until it parks, ends, or belongs to somebody else.
//!
//! ```text
//!   claimed -> [deadline? cancel? unknown step?] -> intent on disk -> step.run -> decide -> commit
//!      ^                                                                              |
//!      +------------------------- Applied, lease kept --------------------------------+--> Applied, lease given back
//!      decide again <------------ Moved                                               +--> Lost: stop
//! ```

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Value, json};
use uuid::Uuid;

use super::class;
use super::decide::{self, Circumstances, Next};
use super::hold;
use super::interrupt::{Interrupt, Interrupts};
use super::verbs;
use super::workflow::{
    AfterCommit, Foreign, Kind, LeaseGuard, LeaseLost, Order, Step, StepContext, StepPolicy, StepReport,
    Verdict, WorkflowRegistry,
};
use crate::model::{
    Chance, Change, Clock, Failure, Hold, NewEvent, NewRun, Outcome, Position, Run, RunId, Snapshot,
    StepRecord,
};
use crate::store::{Claimed, Committed, Store, StoreError};

/// How often one change is decided again because the row moved. Every move is a signal, an operator or a projection; more
/// than this in a row is somebody hammering, and the run is then left to its lease.
const MOVES: u32 = 64;

/// What a worker needs.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) store: Store,
    pub(super) kinds: WorkflowRegistry,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ttl: Duration,
    pub(super) grace: Duration,
    pub(super) queues: Arc<[String]>,
    pub(super) chance: Arc<dyn Chance>,
    pub(super) interrupts: Interrupts,
    /// How long a step that may not be interrupted goes on after a cancel.
    pub(super) patience: Duration,
}

/// Writes a step's checkpoints.
pub(super) struct Checkpoint {
    worker: Worker,
    run: Run,
    record: Arc<Mutex<StepRecord>>,
}

impl Checkpoint {
    pub(super) async fn write(&self, evidence: Value, lease: &LeaseGuard) -> Result<(), LeaseLost> {
        let record = {
            let mut record = self.record.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            record.evidence = evidence;
            record.epoch = self.run.epoch;
            record.clone()
        };
        let since = self.worker.clock.elapsed();
        let run = self.worker.renewed(&self.run);
        match self.worker.store.progress(run, record, self.worker.clock.now()).await {
            Ok(true) => {
                lease.renewed(since, self.worker.ttl);
                Ok(())
            }
            Ok(false) => Err(LeaseLost),
            Err(error) => {
                tracing::error!(run = %self.run.id, error = %crate::model::error_chain(&error), "a checkpoint was not written");
                Err(LeaseLost)
            }
        }
    }
}

/// What became of a commit.
enum Then {
    /// The lease is kept: go on from here.
    GoOn(Arc<Snapshot>),
    /// Nothing was written; the run has moved and what is to be done with it is to be seen again.
    Again(Arc<Snapshot>),
    /// A child could not be made; nothing was written.
    Refused(Arc<Snapshot>, Option<RunId>),
    /// Parked or ended.
    Over,
    /// Another's; nothing was written.
    Lost,
}

impl Worker {
    /// Works on a claimed run until it needs no worker.
    pub(super) async fn work(&self, claimed: Claimed, since: Duration, interrupt: Interrupt) {
        let id = claimed.snapshot.run.id;
        let lease = LeaseGuard::new(Arc::clone(&self.clock), since, self.ttl, interrupt.clone());
        let mut reentered = true;
        let mut snapshot = Arc::new(claimed.snapshot);
        loop {
            let took = match self.one(&snapshot, reentered, &lease, &interrupt).await {
                // Interrupted between two steps: the next claim begins with a token of its own, or nobody claims.
                Ok(Then::GoOn(next)) if interrupt.token.is_cancelled() => self.give_back(&next, &lease).await,
                took => took,
            };
            match took {
                Ok(Then::GoOn(next)) => {
                    snapshot = next;
                    reentered = false;
                }
                Ok(Then::Again(next)) => snapshot = next,
                Ok(Then::Over | Then::Lost | Then::Refused(..)) => return,
                Err(error) => {
                    // The lease runs out and somebody takes over; until then the database may have healed.
                    tracing::error!(run = %id, error = %crate::model::error_chain(&error), "a run could not be carried on");
                    return;
                }
            }
        }
    }

    /// One round: what is to be done next, doing it, and committing what follows.
    async fn one(
        &self,
        snapshot: &Arc<Snapshot>,
        reentered: bool,
        lease: &LeaseGuard,
        interrupt: &Interrupt,
    ) -> Result<Then, StoreError> {
        let run = &snapshot.run;
        let now = self.clock.now();
        let Some(kind) = self.kinds.get(&run.kind).cloned() else {
            return self.foreign(snapshot, lease).await;
        };
        if verbs::cancel_pending(snapshot) {
            return self
                .commit(snapshot, lease, &mut |snapshot| Some(self.cancelled(&*kind, snapshot)))
                .await;
        }
        if self.past_deadline(&*kind, snapshot) {
            return self
                .unless_cancelled(snapshot, lease, &mut |snapshot| {
                    self.past_deadline(&*kind, snapshot).then(|| self.deadline(&*kind, snapshot))
                })
                .await;
        }
        if run.phase.is_forward() && run.kind_version != kind.version() {
            let detail = format!(
                "its plan was made by version {} of {:?} and this program has version {}; cancel it and create it again, or \
                 start the program that made it",
                run.kind_version,
                run.kind,
                kind.version()
            );
            return self.hold(snapshot, lease, hold::held("kind_version", detail, now)).await;
        }
        let (at, undo) = match decide::next(snapshot) {
            Next::Run(at) => (at, false),
            Next::Undo(at) => (at, true),
            Next::StageCompleted => {
                return self
                    .commit(snapshot, lease, &mut |snapshot| {
                        Some(decide::stage_completed(snapshot, &self.circumstances(&*kind, None)))
                    })
                    .await;
            }
        };
        let Some(step) = decide::instance(snapshot, at).and_then(|instance| kind.step(&instance.name)) else {
            return self.unknown_step(snapshot, at, &*kind, lease).await;
        };
        let Some(record) = snapshot.record(at).cloned() else {
            return self.announce(snapshot, at, lease).await;
        };
        self.carry_out(snapshot, &*kind, &*step, record, reentered, undo, lease, interrupt).await
    }

    /// Whether the stage's time is over. What was told in time and not yet looked at comes first, but for a run that never
    /// began: that one is not started any more.
    fn past_deadline(&self, kind: &dyn Kind, snapshot: &Snapshot) -> bool {
        let waiting_is_over = !snapshot.steps.is_empty() && decide::told(snapshot);
        let always = matches!(decide::next(snapshot), Next::Run(at) if decide::always(snapshot, at, kind));
        self.clock.now() >= snapshot.run.deadline_at && !waiting_is_over && !always
    }

    async fn hold(
        &self,
        snapshot: &Arc<Snapshot>,
        lease: &LeaseGuard,
        held: Hold,
    ) -> Result<Then, StoreError> {
        self.unless_cancelled(snapshot, lease, &mut |snapshot| Some(hold::hold(snapshot, held.clone()))).await
    }

    /// A run of a workflow this program does not know: an operator decides, and may end it without any cleanup.
    async fn foreign(&self, snapshot: &Arc<Snapshot>, lease: &LeaseGuard) -> Result<Then, StoreError> {
        let now = self.clock.now();
        if snapshot.run.phase.is_forward() && !verbs::cancel_pending(snapshot) {
            let kind = &snapshot.run.kind;
            let detail =
                format!("this program does not know the workflow {kind:?}; start the one that made it");
            return self.hold(snapshot, lease, hold::held("unknown_kind", detail, now)).await;
        }
        self.commit(snapshot, lease, &mut |snapshot| {
            let circumstances = self.circumstances(&Foreign, None);
            Some(match snapshot.run.phase.is_forward() {
                true => verbs::cancelled(snapshot, &circumstances),
                false => decide::abort_finish(snapshot, &circumstances),
            })
        })
        .await
    }

    /// A step this version does not know: on the way forward an operator decides; afterwards it is left undone and said so,
    /// because cleaning up has an end.
    async fn unknown_step(
        &self,
        snapshot: &Arc<Snapshot>,
        at: Position,
        kind: &dyn Kind,
        lease: &LeaseGuard,
    ) -> Result<Then, StoreError> {
        let now = self.clock.now();
        let name = decide::instance(snapshot, at).map_or("", |instance| &*instance.name);
        let detail =
            format!("this version does not know the step {name:?} at place {} of the plan", at.index);
        if snapshot.run.phase.is_forward() {
            return self.hold(snapshot, lease, hold::held("unknown_step", detail, now)).await;
        }
        let failure = Failure {
            class: class::INTERNAL.to_owned(),
            step: name.to_owned(),
            summary: detail,
            evidence: None,
            next_action: "do by hand what the step would have done".to_owned(),
        };
        self.commit(snapshot, lease, &mut |snapshot| {
            let record = snapshot.record(at).cloned().or_else(|| decide::intent(snapshot, at, now))?;
            let report = StepReport::fail(failure.clone());
            Some(decide::after(snapshot, &record, &report, &self.circumstances(kind, None)))
        })
        .await
    }

    /// Writes the intent of a step before it runs.
    async fn announce(
        &self,
        snapshot: &Arc<Snapshot>,
        at: Position,
        lease: &LeaseGuard,
    ) -> Result<Then, StoreError> {
        self.commit(snapshot, lease, &mut |snapshot| {
            let mut change = Change::of(snapshot.run.clone());
            change.run.wait = None;
            change.steps.extend(decide::intent(snapshot, at, self.clock.now()));
            change.run.step = change.steps.first().map(|record| record.name.clone());
            Some(change)
        })
        .await
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the circumstances of one call, named; a struct would only repeat them"
    )]
    async fn carry_out(
        &self,
        snapshot: &Arc<Snapshot>,
        kind: &dyn Kind,
        step: &dyn Step,
        record: StepRecord,
        reentered: bool,
        undo: bool,
        lease: &LeaseGuard,
        interrupt: &Interrupt,
    ) -> Result<Then, StoreError> {
        let policy = kind.policy(&record.name, snapshot);
        let shared = Arc::new(Mutex::new(record.clone()));
        let context = StepContext {
            snapshot: Arc::clone(snapshot),
            record,
            reentered,
            waited: snapshot.run.wait.clone(),
            clock: Arc::clone(&self.clock),
            lease: lease.clone(),
            cancel: interrupt.token.clone(),
            checkpoint: Checkpoint {
                worker: self.clone(),
                run: snapshot.run.clone(),
                record: Arc::clone(&shared),
            },
        };
        let Some(mut report) = self.call(step, &context, undo, policy, interrupt).await else {
            // Stopped from outside: nothing is concluded, the lease is simply given back for the next owner.
            return self.give_back(snapshot, lease).await;
        };
        if let (Verdict::Wait(request), Some(within)) = (&mut report.verdict, policy.wait) {
            request.within = within;
        }
        let record = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let then = self
            .commit(snapshot, lease, &mut |now| {
                let circumstances = self.circumstances(kind, Some(policy));
                let report = decide::in_time(now, &record, &report, step, circumstances.now);
                if verbs::cancel_pending(now) && !matches!(report.verdict, Verdict::Done | Verdict::Skipped) {
                    return Some(verbs::cancelled_during_step(now, &record, &report, &circumstances));
                }
                let mut change = match self.children(now, &record, &report) {
                    Ok(children) => {
                        Change { children, ..decide::after(now, &record, &report, &circumstances) }
                    }
                    Err(failure) => decide::after(now, &record, &failing(&report, *failure), &circumstances),
                };
                decide::notice(&mut change, now, snapshot, circumstances.now);
                Some(change)
            })
            .await?;
        let then = match then {
            Then::Refused(snapshot, holder) => {
                let failing = failing(&report, refused(&record, holder));
                self.commit(&snapshot, lease, &mut |now| {
                    let circumstances = self.circumstances(kind, Some(policy));
                    Some(match verbs::cancel_pending(now) {
                        true => verbs::cancelled_during_step(now, &record, &failing, &circumstances),
                        false => decide::after(now, &record, &failing, &circumstances),
                    })
                })
                .await?
            }
            then => then,
        };
        if let (Then::GoOn(_) | Then::Over, Some(AfterCommit(tell))) = (&then, &report.then) {
            tell();
        }
        Ok(then)
    }

    /// The runs a step orders, made by their own kinds.
    fn children(
        &self,
        snapshot: &Snapshot,
        record: &StepRecord,
        report: &StepReport,
    ) -> Result<Vec<NewRun>, Box<Failure>> {
        report
            .children
            .iter()
            .map(|(kind, key, input)| {
                let name = format!("{}/{}/{kind}/{key}", record.name, record.key);
                let order = Order {
                    id: RunId(Uuid::new_v5(&snapshot.run.id.0, name.as_bytes())),
                    parent: (snapshot.run.id, snapshot.run.root),
                    input: input.clone(),
                    created_by: snapshot.run.created_by.clone(),
                    now: self.clock.now(),
                };
                let refused = |summary: String| {
                    Box::new(Failure {
                        class: class::INTERNAL.to_owned(),
                        step: record.name.clone(),
                        summary,
                        evidence: None,
                        next_action: "see the input of this run".to_owned(),
                    })
                };
                let kind =
                    self.kinds.get(kind).ok_or_else(|| refused(format!("unknown workflow {kind:?}")))?;
                kind.prepare(order).map_err(|refusal| refused(refusal.to_string()))
            })
            .collect()
    }

    /// Commits what `decide` makes of the run, deciding again as often as the row moves. `decide` answers `None` when the run
    /// as it is now asks for something else altogether.
    async fn commit(
        &self,
        snapshot: &Arc<Snapshot>,
        lease: &LeaseGuard,
        decide: &mut (dyn FnMut(&Snapshot) -> Option<Change> + Send),
    ) -> Result<Then, StoreError> {
        let mut snapshot = Arc::clone(snapshot);
        for _ in 0..MOVES {
            let Some(mut change) = decide(&snapshot) else { return Ok(Then::Again(snapshot)) };
            if change.run.lease.is_some() {
                change.run = self.renewed(&change.run);
            }
            let change = Arc::new(change);
            let since = self.clock.elapsed();
            let expected = (snapshot.run.epoch, snapshot.run.revision);
            match self.store.commit(Arc::clone(&change), expected, self.clock.now()).await? {
                Committed::Applied(run) if run.lease.is_some() => {
                    lease.renewed(since, self.ttl);
                    return Ok(Then::GoOn(Arc::new(apply(&snapshot, *run, Arc::unwrap_or_clone(change)))));
                }
                Committed::Applied(run) => {
                    if run.outcome == Some(Outcome::Cancelled) && snapshot.run.phase.is_forward() {
                        self.interrupt_children(&[run.id]).await;
                    }
                    return Ok(Then::Over);
                }
                Committed::Lost => return Ok(Then::Lost),
                Committed::Moved(now) => snapshot = Arc::new(*now),
                Committed::ChildRefused { holder } => return Ok(Then::Refused(snapshot, Some(holder))),
                Committed::ChildUnknownServer => return Ok(Then::Refused(snapshot, None)),
            }
        }
        tracing::error!(run = %snapshot.run.id, "the run moved too often to commit; its lease decides");
        Ok(Then::Lost)
    }

    /// The same, unless an operator has asked for the end meanwhile: that is then carried out instead.
    async fn unless_cancelled(
        &self,
        snapshot: &Arc<Snapshot>,
        lease: &LeaseGuard,
        decide: &mut (dyn FnMut(&Snapshot) -> Option<Change> + Send),
    ) -> Result<Then, StoreError> {
        self.commit(snapshot, lease, &mut |now| match verbs::cancel_pending(now) {
            true => None,
            false => decide(now),
        })
        .await
    }

    /// Interrupts what cancelled runs have started, as far as this engine works on it; the store has told all of them.
    pub(super) async fn interrupt_children(&self, runs: &[RunId]) {
        match self.store.cancelled_children(runs).await {
            Ok(children) => children.into_iter().for_each(|child| self.interrupts.ask(child)),
            // They notice at their next commit.
            Err(error) => {
                let error = crate::model::error_chain(&error);
                tracing::warn!(?runs, %error, "children were not interrupted");
            }
        }
    }

    /// Gives the lease back. A cancel that is the reason takes effect in the same commit.
    async fn give_back(&self, snapshot: &Arc<Snapshot>, lease: &LeaseGuard) -> Result<Then, StoreError> {
        let kind = self.kinds.get(&snapshot.run.kind).cloned();
        self.commit(snapshot, lease, &mut |snapshot| {
            let kind: &dyn Kind = kind.as_ref().map_or(&Foreign, |kind| &**kind);
            let circumstances = Circumstances { queues: &[], ..self.circumstances(kind, None) };
            Some(if verbs::cancel_pending(snapshot) {
                verbs::cancelled(snapshot, &circumstances)
            } else {
                decide::released(snapshot, circumstances.now)
            })
        })
        .await
    }

    fn cancelled(&self, kind: &dyn Kind, snapshot: &Snapshot) -> Change {
        verbs::cancelled(snapshot, &self.circumstances(kind, None))
    }

    /// The deadline of the stage has passed.
    fn deadline(&self, kind: &dyn Kind, snapshot: &Snapshot) -> Change {
        let circumstances = self.circumstances(kind, None);
        let run = &snapshot.run;
        if !run.phase.is_forward() {
            let mut change = decide::abort_finish(snapshot, &circumstances);
            let over =
                NewEvent::warn("run.finish-deadline", "the time for cleaning up is over").with(json!({
                    "deadline": run.deadline_at, "step": run.step, "wait": run.wait,
                    "remaining": decide::left_undone(snapshot),
                }));
            change.events.insert(0, over);
            return change;
        }
        let at = run.wait.as_ref().map_or(String::new(), |wait| format!(", waiting: {}", wait.detail));
        let step = run.step.clone().unwrap_or_else(|| "queued".to_owned());
        let failure = self.overdue(kind, snapshot).unwrap_or_else(|| Failure {
            class: class::DEADLINE.to_owned(),
            summary: format!("the deadline {} has passed{at}", run.deadline_at),
            step,
            evidence: Some(json!({
                "since": run.created_at, "deadline": run.deadline_at, "progress_at": run.progress_at, "wait": run.wait,
            })),
            next_action: "read the last events to see where the time went, then start the job again"
                .to_owned(),
        });
        decide::conclude(snapshot, Outcome::Failed, Some(failure), &circumstances)
    }

    /// What the step a run is parked in says of passing its deadline, if that is a failure.
    fn overdue(&self, kind: &dyn Kind, snapshot: &Snapshot) -> Option<Failure> {
        let wait = snapshot.run.wait.as_ref().filter(|wait| self.clock.now() >= wait.deadline)?;
        match kind.step(&wait.step)?.overdue(snapshot, wait).verdict {
            Verdict::Fail(failure) => Some(failure),
            _ => None,
        }
    }

    fn circumstances<'a>(&'a self, kind: &'a dyn Kind, policy: Option<StepPolicy>) -> Circumstances<'a> {
        Circumstances {
            kind,
            policy: policy.unwrap_or_default(),
            now: self.clock.now(),
            chance: self.chance.fraction(),
            queues: &self.queues,
        }
    }

    /// The run with its lease extended from now.
    fn renewed(&self, run: &Run) -> Run {
        let expires_at = self.clock.now().plus(self.ttl);
        let lease = run.lease.clone().map(|lease| crate::model::Lease { expires_at, ..lease });
        Run { lease, next_run_at: Some(expires_at.plus(self.grace)), ..run.clone() }
    }
}

/// The snapshot after a change of its run was applied, with the row as it is now.
fn apply(before: &Snapshot, run: Run, change: Change) -> Snapshot {
    let mut after = Snapshot { run, ..before.clone() };
    for record in change.steps {
        after.steps.retain(|old| old.at != record.at);
        after.steps.push(record);
    }
    after.steps.sort_by_key(|record| record.at);
    if let Some(plan) = change.plan {
        after.plan = Arc::new(plan);
    }
    for signal in &mut after.signals {
        signal.consumed |=
            change.consumed.iter().any(|(name, key)| *name == signal.name && *key == signal.key);
    }
    after
}

/// What a step did and found, with a failure for its verdict and without the children that could not be made.
fn failing(report: &StepReport, failure: Failure) -> StepReport {
    StepReport { verdict: Verdict::Fail(failure), children: Vec::new(), ..report.clone() }
}

/// Why the children of a step could not be made.
fn refused(record: &StepRecord, holder: Option<RunId>) -> Failure {
    let (class, summary, next_action) = match holder {
        Some(holder) => (
            class::CONFLICT,
            format!("what it wanted to start works on something that run {holder} has locked"),
            format!("wait for run {holder} to end"),
        ),
        None => (
            class::INTERNAL,
            "what it wanted to start works on a server that is not registered".to_owned(),
            "register the server".to_owned(),
        ),
    };
    Failure { class: class.to_owned(), step: record.name.clone(), summary, evidence: None, next_action }
}

impl Worker {
    /// Calls a step, bounded in time and safe against panics. `None`: dropped from outside.
    async fn call(
        &self,
        step: &dyn Step,
        context: &StepContext,
        undo: bool,
        policy: StepPolicy,
        interrupt: &Interrupt,
    ) -> Option<StepReport> {
        let work = async { if undo { step.undo(context).await } else { step.run(context).await } };
        let guarded = tokio::time::timeout(policy.call, AssertUnwindSafe(work).catch_unwind());
        let mut guarded = std::pin::pin!(guarded);
        let outcome = tokio::select! {
            biased;
            outcome = &mut guarded => outcome,
            () = interrupt.token.cancelled() => match (policy.interruptible, interrupt.asked()) {
                (true, _) => return None,
                (false, false) => guarded.await,
                (false, true) => tokio::select! {
                    biased;
                    outcome = &mut guarded => outcome,
                    () = self.enough(&context.lease) => return None,
                },
            },
        };
        Some(match outcome {
            Ok(Ok(report)) => report,
            Ok(Err(_panic)) => StepReport::fail(Failure {
                class: class::INTERNAL.to_owned(),
                step: context.record.name.clone(),
                summary: "the step broke off because of a defect in the program".to_owned(),
                evidence: None,
                next_action: "look for the panic in the log and report it".to_owned(),
            }),
            Err(_elapsed) => StepReport::new(Verdict::Retry(Failure {
                class: "transient".to_owned(),
                step: context.record.name.clone(),
                summary: format!("the step did not come back within {} s", policy.call.as_secs()),
                evidence: Some(json!({ "call_s": policy.call.as_secs(), "attempt": context.record.attempt })),
                next_action: "see whether what it talks to answers at all".to_owned(),
            })),
        })
    }

    /// Over when a cancelled step that may not be interrupted has had its time, and nothing it has sent can still arrive.
    async fn enough(&self, lease: &LeaseGuard) {
        let mut left = self.patience.max(lease.effect_left());
        while left > Duration::ZERO {
            tokio::time::sleep(left).await;
            left = lease.effect_left();
        }
    }
}
