//! The decider: carries a claimed run from one call of a step to the next, in the database.
//!
//! ```text
//!   claimed -> [cancel? deadline? unknown step?] -> intent durable -> NextCall::Call ---> a worker calls the step
//!      ^                                                                                      |
//!      +--- Continue: lease kept --- commit <- decide <---------------- its report -----------+
//!      decide again <-- Conflict: the row has changed                   Released: parked or ended; Lost: stop
//! ```
//!
//! Invariants: only this module decides what follows a report, wherever the step was called; every commit names the epoch and
//! the revision that it was computed from.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use uuid::Uuid;

use super::backend::{Backend, NextCall, StepCall};
use super::cancel;
use super::checkpoint::{BackendError, Progress};
use super::cursor::{self, Next};
use super::decide::{self, DecisionContext};
use super::hold;
use super::interrupt::Interrupts;
use super::lease::LeaseTerms;
use super::outage::LastOutage;
use super::verbs;
use super::workflow::{
    ChildRequest, Remark, StepOutcome, StepPolicy, StepReport, UnknownWorkflow, Workflow, WorkflowRegistry,
};
use model::{
    Effect, Failure, Hold, HoldClass, IdSource, NewEvent, NewRun, Outcome, Position, Run, RunChange, RunId,
    Snapshot, StepName, StepRecord, class,
};
use store::{Claimed, Committed, Store, StoreError, log};

/// How often one change is decided again because the row has changed. Signals and operators change the row. After this many
/// conflicts the worker gives up, and the run is taken over when its lease has expired.
const MAX_CONFLICTS: u32 = 64;
/// How long a run that was claimed for a decision only is left to the workers of its queue.
const HAND_OVER: Duration = Duration::from_secs(15);

/// Decides and commits what follows for the runs of one set of queues.
#[derive(Clone)]
pub(super) struct Decider {
    pub(super) store: Store,
    pub(super) workflows: WorkflowRegistry,
    pub(super) terms: LeaseTerms,
    pub(super) queues: Arc<[String]>,
    pub(super) id_source: Arc<dyn IdSource>,
    pub(super) interrupts: Interrupts,
    /// The outage before the start of the engine.
    pub(super) outage: LastOutage,
    pub(super) ends: EndObserver,
}

/// The function that is called with the outcome of each ended run and the time since its creation; set once.
#[derive(Clone, Default)]
pub(super) struct EndObserver(pub(super) Arc<OnceLock<ObserveEnd>>);
/// A function that is called with the end of a run.
type ObserveEnd = Box<dyn Fn(Outcome, Duration) + Send + Sync>;

/// The next call or change of a run.
enum Move {
    /// A call of a step, whose intent is durable.
    Call(Box<StepCall>),
    /// A change, which was committed.
    Committed(CommitOutcome),
}

/// The outcome of a commit.
pub(super) enum CommitOutcome {
    /// The change is durable and the lease is kept: the worker continues with this snapshot.
    Continue(Arc<Snapshot>),
    /// Nothing was written: the row has changed and needs another action. The worker starts over with this snapshot.
    Conflict(Arc<Snapshot>),
    /// Nothing was written: a child run could not be created. With the holder of the lock, if a lock is the reason.
    ChildRefused(Arc<Snapshot>, Option<RunId>),
    /// The change is durable and the lease is given back: the run is parked or has ended.
    Released,
    /// Nothing was written: another worker has the lease.
    LeaseLost,
}

impl Decider {
    /// Carries a run that was just claimed to its next call.
    pub(super) async fn begin(&self, claimed: Claimed) -> Result<NextCall, StoreError> {
        self.after_commit(CommitOutcome::Conflict(Arc::new(claimed.snapshot)), true).await
    }

    /// Carries a run on to its next call, after a change whose outcome is `outcome`.
    pub(super) async fn after_commit(
        &self,
        mut outcome: CommitOutcome,
        mut reentered: bool,
    ) -> Result<NextCall, StoreError> {
        loop {
            let snapshot = match outcome {
                // The worker of this claim stays interrupted, so only a new claim can call the next step.
                CommitOutcome::Continue(next)
                    if self.interrupts.is_interrupted(next.run.id, next.run.epoch) =>
                {
                    outcome = self.release_lease(&next).await?;
                    continue;
                }
                CommitOutcome::Continue(next) => {
                    reentered = false;
                    next
                }
                CommitOutcome::Conflict(next) => next,
                CommitOutcome::Released | CommitOutcome::ChildRefused(..) => return Ok(NextCall::Released),
                CommitOutcome::LeaseLost => return Ok(NextCall::Lost),
            };
            outcome = match self.next_move(&snapshot, reentered).await? {
                Move::Call(call) => return Ok(NextCall::Call(call)),
                Move::Committed(outcome) => outcome,
            };
        }
    }

    /// Decides what follows a report, commits it, and carries the run on to its next call. `record` is the record of the step
    /// as last written.
    pub(super) async fn conclude(
        &self,
        call: &StepCall,
        record: StepRecord,
        report: StepReport,
    ) -> Result<NextCall, StoreError> {
        let outcome = self.apply(call, &call.snapshot, record, report).await?;
        self.after_commit(outcome, call.reentered).await
    }

    /// Concludes a call of a worker elsewhere, from the snapshot of now. `call` has the signals that the step was called with.
    pub(super) async fn conclude_elsewhere(
        &self,
        call: &StepCall,
        now: &Arc<Snapshot>,
        record: StepRecord,
        report: StepReport,
    ) -> Result<NextCall, StoreError> {
        let outcome = self.apply(call, now, record, report).await?;
        self.after_commit(outcome, call.reentered).await
    }

    /// Carries a run on whose last call was concluded before. The worker may have received what followed.
    pub(super) async fn resume(&self, now: Arc<Snapshot>) -> Result<NextCall, StoreError> {
        self.after_commit(CommitOutcome::Conflict(now), true).await
    }

    /// Decides what the run needs next: a call of a step, or a change, which is committed.
    async fn next_move(&self, snapshot: &Arc<Snapshot>, reentered: bool) -> Result<Move, StoreError> {
        let run = &snapshot.run;
        let Some(workflow) = self.workflows.get(&run.workflow).cloned() else {
            return self.hold_unknown_workflow(snapshot).await.map(Move::Committed);
        };
        if let Some(committed) = self.change_without_a_call(snapshot, &*workflow).await? {
            return Ok(Move::Committed(committed));
        }
        let (at, undo) = match cursor::next(snapshot) {
            Next::Run(at) => (at, false),
            Next::Undo(at) => (at, true),
            Next::StageCompleted => {
                return self
                    .commit(snapshot, &mut |snapshot| {
                        Some(decide::stage_completed(snapshot, &self.decision_context(&*workflow, None)))
                    })
                    .await
                    .map(Move::Committed);
            }
        };
        let instance = cursor::instance(snapshot, at);
        let Some(step) = instance.and_then(|instance| workflow.step(&instance.name)) else {
            return self.hold_unknown_step(snapshot, at, &*workflow).await.map(Move::Committed);
        };
        if let Some(queue) = instance.map(|instance| &instance.queue)
            && !self.queues.contains(queue)
            && !step.policy().runs_past_deadline
        {
            return self.hand_over(snapshot).await.map(Move::Committed);
        }
        let Some(record) = snapshot.record(at).cloned() else {
            return self.record_intent(snapshot, at).await.map(Move::Committed);
        };
        let policy = workflow.policy(&record.name, snapshot);
        let snapshot = Arc::clone(snapshot);
        Ok(Move::Call(Box::new(StepCall { snapshot, record, reentered, undo, policy })))
    }

    /// Commits what the run needs before any step is called: its cancel, the end of its deadline, a hold for another version.
    /// `None` when it needs none of them.
    async fn change_without_a_call(
        &self,
        snapshot: &Arc<Snapshot>,
        workflow: &dyn Workflow,
    ) -> Result<Option<CommitOutcome>, StoreError> {
        let run = &snapshot.run;
        let now = self.terms.clock.now();
        if cancel::is_pending(snapshot) {
            return self
                .commit(snapshot, &mut |snapshot| Some(self.cancelled(workflow, snapshot)))
                .await
                .map(Some);
        }
        if self.past_deadline(workflow, snapshot) {
            let remark = remark(workflow, snapshot);
            return self
                .unless_cancelled(snapshot, &mut |snapshot| {
                    self.past_deadline(workflow, snapshot)
                        .then(|| self.deadline(workflow, snapshot, remark.as_ref()))
                })
                .await
                .map(Some);
        }
        if run.phase.is_forward() && run.workflow_version != workflow.version() {
            let detail = format!(
                "the plan was made by version {} of the workflow {:?} and this program has version {}; cancel the run and \
                 create it again, or start the version of the program that created it",
                run.workflow_version,
                run.workflow,
                workflow.version()
            );
            let held = hold::held(HoldClass::WORKFLOW_VERSION, detail, now);
            return self.hold(snapshot, held).await.map(Some);
        }
        Ok(None)
    }

    /// Gives a run back whose next step is of a queue that this worker does not serve. The claim was for a decision only, so
    /// the run is due a little later: a worker of the queue finds it, and this one does not claim it again at once.
    async fn hand_over(&self, snapshot: &Arc<Snapshot>) -> Result<CommitOutcome, StoreError> {
        self.commit(snapshot, &mut |snapshot| {
            let now = self.terms.clock.now();
            let mut change = decide::release_lease(snapshot, now);
            change.run.next_run_at = Some(now.plus(HAND_OVER));
            Some(change)
        })
        .await
    }

    /// Whether the deadline of the stage has passed and ends the stage. A message that the run waits for and that arrived before
    /// the claim is acted on first. Such a message does not start a run that has not started. After an outage of the controller
    /// a wait for a signal is judged later.
    fn past_deadline(&self, workflow: &dyn Workflow, snapshot: &Snapshot) -> bool {
        let signalled = !snapshot.steps.is_empty() && decide::has_pending_message(snapshot);
        let exempt = matches!(cursor::next(snapshot), Next::Run(at) if decide::runs_past_deadline(snapshot, at, workflow));
        let now = self.terms.clock.now();
        now >= snapshot.run.deadline_at && !signalled && !exempt && !self.outage.spares(&snapshot.run, now)
    }

    async fn hold(&self, snapshot: &Arc<Snapshot>, held: Hold) -> Result<CommitOutcome, StoreError> {
        self.unless_cancelled(snapshot, &mut |snapshot| Some(hold::hold(snapshot, held.clone()))).await
    }

    /// Holds a run of a workflow that this program does not know. An operator may cancel it; it then ends without cleanup.
    async fn hold_unknown_workflow(&self, snapshot: &Arc<Snapshot>) -> Result<CommitOutcome, StoreError> {
        let now = self.terms.clock.now();
        if snapshot.run.phase.is_forward() && !cancel::is_pending(snapshot) {
            let workflow = &snapshot.run.workflow;
            let detail = format!(
                "this program does not know the workflow {workflow:?}; start the version that created the run"
            );
            return self.hold(snapshot, hold::held(HoldClass::UNKNOWN_WORKFLOW, detail, now)).await;
        }
        self.commit(snapshot, &mut |snapshot| {
            let decision = self.decision_context(&UnknownWorkflow, None);
            Some(match snapshot.run.phase.is_forward() {
                true => verbs::cancelled(snapshot, &decision),
                false => decide::abort_finish(snapshot, &decision),
            })
        })
        .await
    }

    /// Holds a run at a step that this version does not know. In undo and the finish list the step fails instead, with an
    /// event, because cleanup must end.
    async fn hold_unknown_step(
        &self,
        snapshot: &Arc<Snapshot>,
        at: Position,
        workflow: &dyn Workflow,
    ) -> Result<CommitOutcome, StoreError> {
        let now = self.terms.clock.now();
        let name = cursor::instance(snapshot, at).map_or(StepName::UNKNOWN, |instance| instance.name.clone());
        let detail = format!(
            "this version of the program does not know the step {name:?} at index {} of the plan",
            at.index
        );
        if snapshot.run.phase.is_forward() {
            return self.hold(snapshot, hold::held(HoldClass::UNKNOWN_STEP, detail, now)).await;
        }
        let failure = Failure {
            class: class::INTERNAL,
            step: name,
            summary: detail,
            detail: None,
            next_action: "do the work of the step by hand".to_owned(),
        };
        self.commit(snapshot, &mut |snapshot| {
            let record = snapshot.record(at).cloned().or_else(|| cursor::intent(snapshot, at, now))?;
            let report = StepReport::fail(failure.clone());
            Some(decide::apply_report(snapshot, &record, &report, &self.decision_context(workflow, None)))
        })
        .await
    }

    /// Writes the intent of a step durably before the step runs.
    async fn record_intent(
        &self,
        snapshot: &Arc<Snapshot>,
        at: Position,
    ) -> Result<CommitOutcome, StoreError> {
        self.commit(snapshot, &mut |snapshot| {
            let mut change = RunChange::of(snapshot.run.clone());
            change.run.wait = None;
            change.steps.extend(cursor::intent(snapshot, at, self.terms.clock.now()));
            change.run.step = change.steps.first().map(|record| record.name.clone());
            Some(change)
        })
        .await
    }

    /// Commits what follows from the report of a call. `snapshot`: what the change is computed from.
    async fn apply(
        &self,
        call: &StepCall,
        snapshot: &Arc<Snapshot>,
        record: StepRecord,
        mut report: StepReport,
    ) -> Result<CommitOutcome, StoreError> {
        let policy = call.policy;
        let Some(workflow) = self.workflows.get(&snapshot.run.workflow).cloned() else {
            return self.hold_unknown_workflow(snapshot).await;
        };
        let workflow: &dyn Workflow = &*workflow;
        let Some(step) = workflow.step(&record.name) else {
            return self.hold_unknown_step(snapshot, record.at, workflow).await;
        };
        let step = &*step;
        if let (StepOutcome::Wait(request), Some(within)) = (&mut report.outcome, policy.wait) {
            request.limit = within.into();
        }
        let now = self.terms.clock.now();
        let remark = match decide::overdue_wait(snapshot, &record, &report, &self.outage, now) {
            Some(_) => remark(workflow, snapshot),
            None => None,
        };
        let outcome = self
            .commit(snapshot, &mut |now| {
                let decision = self.decision_context(workflow, Some(policy));
                let judging = (&self.outage, remark.as_ref());
                let report =
                    decide::enforce_wait_deadline(now, &record, &report, step, judging, decision.now);
                if cancel::is_pending(now)
                    && !matches!(report.outcome, StepOutcome::Done | StepOutcome::Skipped)
                {
                    return Some(verbs::cancelled_during_step(now, &record, &report, &decision));
                }
                let mut change = match self.children(now, &record, &report) {
                    Ok(children) => {
                        RunChange { children, ..decide::apply_report(now, &record, &report, &decision) }
                    }
                    Err(failure) => {
                        decide::apply_report(now, &record, &into_failure(&report, *failure), &decision)
                    }
                };
                let postponed = self.outage.postpone(&mut change.run, decision.now);
                change.events.extend(postponed.map(|event| event.of_step(&record.name, record.attempt)));
                decide::wake_if_signalled(&mut change, now, &call.snapshot, decision.now);
                Some(change)
            })
            .await?;
        let outcome = match outcome {
            CommitOutcome::ChildRefused(snapshot, holder) => {
                let failing = into_failure(&report, child_refused(&record, holder));
                self.commit(&snapshot, &mut |now| {
                    let decision = self.decision_context(workflow, Some(policy));
                    Some(match cancel::is_pending(now) {
                        true => verbs::cancelled_during_step(now, &record, &failing, &decision),
                        false => decide::apply_report(now, &record, &failing, &decision),
                    })
                })
                .await?
            }
            outcome => outcome,
        };
        Ok(outcome)
    }

    /// The child runs that a step requests, made by their own workflows.
    fn children(
        &self,
        snapshot: &Snapshot,
        record: &StepRecord,
        report: &StepReport,
    ) -> Result<Vec<NewRun>, Box<Failure>> {
        report
            .children
            .iter()
            .map(|(workflow, key, input)| {
                let name = format!("{}/{}/{workflow}/{key}", record.name, record.key);
                let request = ChildRequest {
                    id: RunId(Uuid::new_v5(&snapshot.run.id.0, name.as_bytes())),
                    parent: (snapshot.run.id, snapshot.run.root),
                    input: input.clone(),
                    created_by: snapshot.run.created_by.clone(),
                    now: self.terms.clock.now(),
                };
                let refused = |summary: String| {
                    Box::new(Failure {
                        class: class::INTERNAL,
                        step: record.name.clone(),
                        summary,
                        detail: None,
                        next_action: "check the input of this run".to_owned(),
                    })
                };
                let workflow = self
                    .workflows
                    .get(workflow)
                    .ok_or_else(|| refused(format!("unknown workflow {workflow:?}")))?;
                workflow.prepare_child(request).map_err(|refusal| refused(refusal.to_string()))
            })
            .collect()
    }

    /// Commits the change that `decide` returns, and decides again as often as the row changes meanwhile. `decide` returns
    /// `None` when the current run needs another action.
    async fn commit(
        &self,
        snapshot: &Arc<Snapshot>,
        decide: &mut (dyn FnMut(&Snapshot) -> Option<RunChange> + Send),
    ) -> Result<CommitOutcome, StoreError> {
        let mut snapshot = Arc::clone(snapshot);
        for _ in 0..MAX_CONFLICTS {
            let Some(mut change) = decide(&snapshot) else { return Ok(CommitOutcome::Conflict(snapshot)) };
            if change.run.lease.is_some() {
                change.run = self.terms.renew(&change.run);
            }
            let change = Arc::new(change);
            let expected = snapshot.run.version();
            let committed = self.store.commit(Arc::clone(&change), expected, self.terms.clock.now()).await?;
            if let Committed::Applied(run) = &committed {
                self.note_outcome(&snapshot.run, run);
            }
            match committed {
                Committed::Applied(run) if run.lease.is_some() => {
                    let change = Arc::unwrap_or_clone(change);
                    return Ok(CommitOutcome::Continue(Arc::new(written(&snapshot, *run, change))));
                }
                Committed::Applied(run) => {
                    if run.outcome == Some(Outcome::Cancelled) && snapshot.run.phase.is_forward() {
                        self.interrupt_children(&[run.id]).await;
                    }
                    return Ok(CommitOutcome::Released);
                }
                Committed::Lost => return Ok(CommitOutcome::LeaseLost),
                Committed::Moved(now) => snapshot = Arc::new(*now),
                Committed::ChildRefused { holder } => {
                    return Ok(CommitOutcome::ChildRefused(snapshot, Some(holder)));
                }
                Committed::ChildUnknownServer => return Ok(CommitOutcome::ChildRefused(snapshot, None)),
            }
        }
        tracing::error!("the run changed too often to commit; it continues after its lease has expired");
        Ok(CommitOutcome::LeaseLost)
    }

    /// Logs how a run ended, and counts its end, after the commit.
    pub(super) fn note_outcome(&self, before: &Run, after: &Run) {
        if log::outcome(before, after)
            && let (Some(outcome), Some(observe)) = (after.outcome, self.ends.0.get())
        {
            observe(outcome, self.terms.clock.now().since(after.created_at));
        }
    }

    /// Commits like [`Decider::commit`], but returns [`CommitOutcome::Conflict`] when a cancel is pending: the cancel comes first.
    async fn unless_cancelled(
        &self,
        snapshot: &Arc<Snapshot>,
        decide: &mut (dyn FnMut(&Snapshot) -> Option<RunChange> + Send),
    ) -> Result<CommitOutcome, StoreError> {
        self.commit(snapshot, &mut |now| match cancel::is_pending(now) {
            true => None,
            false => decide(now),
        })
        .await
    }

    /// Interrupts the children of cancelled runs that this engine works on. The store has signalled all of them already.
    pub(super) async fn interrupt_children(&self, runs: &[RunId]) {
        match self.store.cancelled_children(runs).await {
            Ok(children) => children.into_iter().for_each(|child| self.interrupts.interrupt(child)),
            // The children read the cancel at their next commit.
            Err(error) => {
                let error = model::error_chain(&error);
                tracing::warn!(?runs, %error, "children were not interrupted");
            }
        }
    }

    /// Gives the lease back. A pending cancel takes effect in the same commit.
    pub(super) async fn release_lease(&self, snapshot: &Arc<Snapshot>) -> Result<CommitOutcome, StoreError> {
        let workflow = self.workflows.get(&snapshot.run.workflow).cloned();
        self.commit(snapshot, &mut |snapshot| {
            let workflow: &dyn Workflow = workflow.as_ref().map_or(&UnknownWorkflow, |workflow| &**workflow);
            let decision = DecisionContext { queues: &[], ..self.decision_context(workflow, None) };
            Some(if cancel::is_pending(snapshot) {
                verbs::cancelled(snapshot, &decision)
            } else {
                decide::release_lease(snapshot, decision.now)
            })
        })
        .await
    }

    fn cancelled(&self, workflow: &dyn Workflow, snapshot: &Snapshot) -> RunChange {
        verbs::cancelled(snapshot, &self.decision_context(workflow, None))
    }

    /// The change of a run whose stage has passed its deadline.
    fn deadline(&self, workflow: &dyn Workflow, snapshot: &Snapshot, remark: Option<&Remark>) -> RunChange {
        let decision = self.decision_context(workflow, None);
        let run = &snapshot.run;
        if !run.phase.is_forward() {
            let mut change = decide::abort_finish(snapshot, &decision);
            let over =
                NewEvent::warn("run.finish-deadline", "the deadline of the cleanup has passed").with(json!({
                    "deadline": run.deadline_at, "step": run.step, "wait": run.wait,
                    "remaining": decide::remaining_cleanup(snapshot),
                }));
            change.events.insert(0, over);
            return change;
        }
        let at = run.wait.as_ref().map_or(String::new(), |wait| format!(", waiting: {}", wait.detail));
        let step = run.step.clone().unwrap_or(StepName::QUEUED);
        let mut failure = self.wait_failure(workflow, snapshot).unwrap_or_else(|| Failure {
            class: class::DEADLINE,
            summary: format!("the deadline {} has passed{at}", run.deadline_at),
            step,
            detail: Some(json!({
                "since": run.created_at, "deadline": run.deadline_at, "progress_at": run.progress_at, "wait": run.wait,
            })),
            next_action: "read the last events to find the step that took the time, then start the job again"
                .to_owned(),
        });
        if let Some(remark) = remark {
            remark.add_to(&mut failure);
        }
        decide::conclude(snapshot, Outcome::Failed, Some(failure), &decision)
    }

    /// The failure of a parked run whose wait has passed its deadline; `None` when the step does not fail then.
    fn wait_failure(&self, workflow: &dyn Workflow, snapshot: &Snapshot) -> Option<Failure> {
        let wait = snapshot.run.wait.as_ref().filter(|wait| self.terms.clock.now() >= wait.deadline)?;
        match workflow.step(&wait.step)?.on_wait_deadline(snapshot, wait).outcome {
            StepOutcome::Fail(failure) => Some(failure),
            _ => None,
        }
    }

    fn decision_context<'a>(
        &'a self,
        workflow: &'a dyn Workflow,
        policy: Option<StepPolicy>,
    ) -> DecisionContext<'a> {
        DecisionContext {
            workflow,
            policy: policy.unwrap_or_default(),
            now: self.terms.clock.now(),
            jitter: self.id_source.jitter(),
            queues: &self.queues,
        }
    }
}

#[async_trait]
impl Progress for Decider {
    async fn progress(
        &self,
        run: &Run,
        record: StepRecord,
        effects: Vec<Effect>,
    ) -> Result<bool, BackendError> {
        let run = self.terms.renew(run);
        Ok(self.store.progress_with(run, record, effects, self.terms.clock.now()).await?)
    }
}

#[async_trait]
impl Backend for Decider {
    async fn report(
        &self,
        call: &StepCall,
        record: StepRecord,
        report: StepReport,
    ) -> Result<NextCall, BackendError> {
        Ok(self.conclude(call, record, report).await?)
    }

    async fn release(&self, call: &StepCall) -> Result<(), BackendError> {
        self.release_lease(&call.snapshot).await?;
        Ok(())
    }
}

/// The workflow's remark about a run whose deadline has passed. The claim has read the reads of its media.
fn remark(workflow: &dyn Workflow, snapshot: &Snapshot) -> Option<Remark> {
    snapshot.run.phase.is_forward().then(|| workflow.remark(snapshot)).flatten()
}

/// The snapshot after a change was committed. `run` is the row as the store wrote it.
fn written(before: &Snapshot, run: Run, change: RunChange) -> Snapshot {
    let mut after = Snapshot { run, ..before.clone() };
    for record in change.steps {
        after.put_record(record);
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

/// The report with a failure as its outcome, and without the children that could not be created.
fn into_failure(report: &StepReport, failure: Failure) -> StepReport {
    StepReport { outcome: StepOutcome::Fail(failure), children: Vec::new(), ..report.clone() }
}

/// The failure of a step whose child run could not be created.
fn child_refused(record: &StepRecord, holder: Option<RunId>) -> Failure {
    let (class, summary, next_action) = match holder {
        Some(holder) => (
            class::CONFLICT,
            format!("a child run could not be created: run {holder} has the lock on its resource"),
            format!("wait for run {holder} to end"),
        ),
        None => (
            class::INTERNAL,
            "a child run could not be created: its server is not registered".to_owned(),
            "register the server".to_owned(),
        ),
    };
    Failure { class, step: record.name.clone(), summary, detail: None, next_action }
}
