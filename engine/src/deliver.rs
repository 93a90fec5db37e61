//! Signals and verbs: a signal is stored, and a parked run that waits for it changes in the same transaction.

use serde_json::Value;

use super::cancel;
use super::cursor::{self, Next};
use super::decide::{self, DecisionContext};
use super::dispatcher::Engine;
use super::verbs::{self, VerbRefused};
use super::workflow::{AfterCommit, StepOutcome, StepPolicy, StepReport, UnknownWorkflow, Workflow};
use model::mutant::{self, Mutant};
use model::{
    Effect, HoldClass, NewEvent, Outcome, Phase, Run, RunChange, RunId, RunVersion, Signal, Snapshot, Time,
    Verb,
};
use store::{Committed, DeliverOutcome, SignalMessage, StoreError, log};

/// How often a delivery is computed again because the run has changed meanwhile.
const MAX_CONFLICTS: u32 = 64;

/// The number of runs that one transaction cancels. Another writer waits some ten milliseconds for it.
const CANCELS_PER_TRANSACTION: usize = 64;

/// The outcome of a signal delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum SignalDelivery {
    /// The signal is stored. With the run after the delivery.
    Stored(Box<Run>),
    /// A signal with this name and key was stored before. With that signal.
    Duplicate(Box<Signal>),
    /// There is no such run.
    NoRun,
}

/// Why a signal could not be delivered.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// The database failed.
    #[error("store the signal")]
    Store(#[from] StoreError),
    /// The run has another revision than the one for which the signal was meant.
    #[error(transparent)]
    Changed(VerbRefused),
    /// The run changed too often; the caller can try again.
    #[error("the run changed too often while the signal was stored; try again")]
    Busy,
}

/// Refuses a run that is not at this revision any more. Without a revision every run is as expected.
fn expect_unchanged(run: &Run, revision: Option<i64>) -> Result<(), VerbRefused> {
    match revision {
        Some(expected) if expected != run.revision => Err(VerbRefused::Changed { revision: run.revision }),
        _ => Ok(()),
    }
}

impl Engine {
    /// Delivers a signal to a run, durably and once per (name, key), together with its events and effects. `snapshot` is the run
    /// as the caller has read it. It may have changed since.
    ///
    /// # Errors
    /// When the database fails, or the run changes too often meanwhile. The signal is not stored then.
    pub async fn deliver(
        &self,
        snapshot: Snapshot,
        name: &str,
        key: &str,
        payload: Value,
        events: Vec<NewEvent>,
        effects: Vec<Effect>,
    ) -> Result<SignalDelivery, SignalError> {
        self.deliver_at(snapshot, None, name, key, payload, events, effects).await
    }

    /// [`Engine::deliver`], if the run is still at this revision when the signal is stored.
    ///
    /// # Errors
    /// When the run has changed, and in the cases of [`Engine::deliver`]. The signal is not stored then.
    #[expect(clippy::too_many_arguments, reason = "those of `deliver` and the revision")]
    pub async fn deliver_at(
        &self,
        mut snapshot: Snapshot,
        revision: Option<i64>,
        name: &str,
        key: &str,
        payload: Value,
        events: Vec<NewEvent>,
        effects: Vec<Effect>,
    ) -> Result<SignalDelivery, SignalError> {
        let run = snapshot.run.id;
        let now = self.clock().now();
        let signal =
            Signal { name: name.to_owned(), key: key.to_owned(), payload, received_at: now, consumed: false };
        if name != store::CANCEL && mutant::active(Mutant::LosesReport) {
            return Ok(SignalDelivery::Stored(Box::new(snapshot.run)));
        }
        for _ in 0..MAX_CONFLICTS {
            expect_unchanged(&snapshot.run, revision).map_err(SignalError::Changed)?;
            let resolved = self.resolve_wait(&snapshot, &signal);
            let then = resolved.as_ref().and_then(|(_, report)| report.then.clone());
            let change = resolved.map(|(change, _)| {
                let expected = snapshot.run.version();
                (change, expected)
            });
            let message = SignalMessage {
                run,
                revision,
                signal: signal.clone(),
                events: events.clone(),
                effects: effects.clone(),
                change,
            };
            match self.store().deliver_one(message, self.clock().now()).await? {
                DeliverOutcome::Stored(run) => {
                    self.log_outcome(&snapshot.run, &run);
                    if let Some(AfterCommit(call)) = then {
                        call();
                    }
                    self.wake();
                    return Ok(SignalDelivery::Stored(run));
                }
                DeliverOutcome::Duplicate(earlier) => return Ok(SignalDelivery::Duplicate(earlier)),
                DeliverOutcome::NoRun => return Ok(SignalDelivery::NoRun),
                DeliverOutcome::Moved(now) => snapshot = *now,
            }
        }
        Err(SignalError::Busy)
    }

    /// The change that a signal makes at once to a run that is parked and waits for it; `None` when a worker must act on it.
    fn resolve_wait(&self, snapshot: &Snapshot, signal: &Signal) -> Option<(RunChange, StepReport)> {
        let run = &snapshot.run;
        let awaited = run.phase == Phase::Waiting
            && run.lease.is_none()
            && run.wait.as_ref().is_some_and(|wait| wait.signals.contains(&signal.name));
        if !awaited {
            return None;
        }
        let workflow = self.workflows().get(&run.workflow)?;
        let Next::Run(at) = cursor::next(snapshot) else { return None };
        let step = workflow.step(&cursor::instance(snapshot, at)?.name)?;
        let record = snapshot.record(at)?;
        let mut with_signal = snapshot.clone();
        with_signal.signals.push(signal.clone());
        let report = step.on_signal(&with_signal, signal)?;
        let parks =
            matches!(report.outcome, StepOutcome::Wait(_) | StepOutcome::Permit(_) | StepOutcome::Retry(_));
        if parks || !report.children.is_empty() {
            // Only a worker can park the run again or start children.
            return None;
        }
        let context = DecisionContext {
            workflow: &**workflow,
            policy: workflow.policy(&record.name, snapshot),
            now: self.clock().now(),
            jitter: 0.0,
            queues: &[],
        };
        Some((decide::apply_report(&with_signal, record, &report, &context), report))
    }

    /// Applies an operator's verb to a run. It is durable when this returns. A cancel of a cancelled run changes nothing.
    ///
    /// # Errors
    /// When the run does not exist or is in a phase that refuses the verb, when the database fails, or when the run changes too
    /// often meanwhile.
    pub async fn verb(&self, run: RunId, verb: Verb, actor: &str, reason: &str) -> Result<(), VerbError> {
        self.verb_at(run, None, verb, actor, reason).await
    }

    /// [`Engine::verb`], if the run is still at this revision when the verb is stored.
    ///
    /// # Errors
    /// When the run has changed, and in the cases of [`Engine::verb`]. Nothing is stored then.
    pub async fn verb_at(
        &self,
        run: RunId,
        revision: Option<i64>,
        verb: Verb,
        actor: &str,
        reason: &str,
    ) -> Result<(), VerbError> {
        for _ in 0..MAX_CONFLICTS {
            let snapshot = match self.store().snapshot(run).await {
                Ok(Some(snapshot)) => snapshot,
                Ok(None) => return Err(VerbRefused::NoRun.into()),
                Err(error) if error.is_corrupt() => return self.unreadable_verb(run, verb, actor).await,
                Err(error) => return Err(error.into()),
            };
            expect_unchanged(&snapshot.run, revision)?;
            if snapshot.run.hold.as_ref().is_some_and(|hold| hold.class == HoldClass::UNREADABLE) {
                return self.unreadable_verb(run, verb, actor).await;
            }
            let Run { phase, workflow, .. } = &snapshot.run;
            if let (true, Some(server)) = (snapshot.run.restored, snapshot.run.server.clone()) {
                return Err(VerbRefused::Restored { verb, server }.into());
            }
            let (phase, offered) = (*phase, self.workflows().get(workflow).map(|workflow| workflow.verbs()));
            if offered.is_some_and(|offered| !offered.contains(&verb)) {
                return Err(VerbRefused::NotOffered { verb, workflow: workflow.clone() }.into());
            }
            // A repeated request: the first response was lost, or a second operator sent a cancel too.
            if verb == Verb::Cancel && snapshot.run.outcome == Some(Outcome::Cancelled) {
                return Ok(());
            }
            if !verb.allowed(phase) {
                return Err(VerbRefused::NotNow { verb, phase }.into());
            }
            if self.try_verb(snapshot, revision, verb, actor, reason).await?.is_some() {
                self.wake();
                return Ok(());
            }
        }
        Err(VerbError::Busy)
    }

    /// Cancels runs and returns how many were cancelled; runs that have ended and runs of restored servers are not counted. Many
    /// cancels share one transaction, so that a batch of thousands takes seconds.
    ///
    /// # Errors
    /// When the database fails or a run changes too often. The cancels of earlier transactions are then durable.
    pub async fn cancel_all(&self, runs: &[RunId], actor: &str, reason: &str) -> Result<u64, VerbError> {
        let mut cancelled = 0;
        for chunk in runs.chunks(CANCELS_PER_TRANSACTION) {
            let now = self.clock().now();
            let (mut messages, mut alone) = (Vec::new(), Vec::new());
            for (run, found) in chunk.iter().zip(self.store().snapshots(chunk.to_vec()).await?) {
                match found {
                    Some(snapshot) if snapshot.run.restored || !snapshot.run.phase.is_forward() => {}
                    Some(mut snapshot) if snapshot.run.hold.is_none() => {
                        messages.push(self.cancel_message(&mut snapshot, actor, reason, now));
                    }
                    // The run is held, perhaps because its row cannot be read, or its row could not be read now.
                    Some(_) | None => alone.push(*run),
                }
            }
            let signalled: Vec<RunId> = messages.iter().map(|message| message.run).collect();
            for (run, delivered) in signalled.iter().zip(self.store().deliver_all(messages, now).await?) {
                self.decider().interrupts.interrupt(*run);
                match delivered {
                    DeliverOutcome::Stored(_) => cancelled += 1,
                    DeliverOutcome::Duplicate(_) | DeliverOutcome::Moved(_) | DeliverOutcome::NoRun => {
                        alone.push(*run)
                    }
                }
            }
            self.decider().interrupt_children(&signalled).await;
            self.wake();
            for run in alone {
                match self.verb(run, Verb::Cancel, actor, reason).await {
                    Ok(()) => cancelled += 1,
                    Err(VerbError::Verb(_)) => {}
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok(cancelled)
    }

    /// Applies a verb to a run whose row cannot be read.
    async fn unreadable_verb(&self, run: RunId, verb: Verb, actor: &str) -> Result<(), VerbError> {
        let now = self.clock().now();
        let done = match verb {
            Verb::Cancel => self.store().abandon(run, actor, self.owner(), now).await?,
            Verb::Resume => self.store().retry_unreadable(run, actor, now).await?,
            Verb::Hold => return Err(VerbRefused::NotNow { verb, phase: Phase::Held }.into()),
        };
        self.wake();
        // Not held yet: the row was found unreadable before the engine claimed it. The next claim holds it.
        if done { Ok(()) } else { Err(VerbError::Busy) }
    }

    /// Applies a verb once; `None` when the run has changed meanwhile.
    pub(super) async fn try_verb(
        &self,
        mut snapshot: Snapshot,
        revision: Option<i64>,
        verb: Verb,
        actor: &str,
        reason: &str,
    ) -> Result<Option<Run>, StoreError> {
        let now = self.clock().now();
        let id = snapshot.run.id;
        let expected = snapshot.run.version();
        if verb == Verb::Cancel {
            let message = self.cancel_message(&mut snapshot, actor, reason, now);
            let message = SignalMessage { revision, ..message };
            let change = message.change.clone();
            let delivered = self.store().deliver_one(message, now).await?;
            self.decider().interrupts.interrupt(id);
            self.decider().interrupt_children(&[id]).await;
            return Ok(match (delivered, change) {
                (DeliverOutcome::Stored(run), _) => {
                    self.log_outcome(&snapshot.run, &run);
                    Some(*run)
                }
                // The cancel was requested before, but no worker had the lease to carry it out.
                (DeliverOutcome::Duplicate(_), Some((change, expected))) => {
                    self.commit_change(change, expected, now).await?
                }
                // The cancel was requested before and the worker that has the lease carries it out.
                (DeliverOutcome::Duplicate(_) | DeliverOutcome::NoRun, _) => Some(snapshot.run),
                (DeliverOutcome::Moved(_), _) => None,
            });
        }
        let change = match verb {
            Verb::Hold => verbs::held(&snapshot, actor, reason, now),
            _ => verbs::resumed(&snapshot, actor, reason, now),
        };
        self.commit_change(change, expected, now).await
    }

    /// The cancel signal of a run, and the change to commit with it when no worker has the lease.
    fn cancel_message(&self, snapshot: &mut Snapshot, actor: &str, reason: &str, now: Time) -> SignalMessage {
        let signal = cancel::signal(actor, reason, now);
        let event = NewEvent::warn("verb.cancel", verbs::said("cancel requested", actor, reason)).by(actor);
        let change = snapshot.run.lease.is_none().then(|| {
            if !cancel::is_pending(snapshot) {
                snapshot.signals.push(signal.clone());
            }
            let context = DecisionContext {
                workflow: self
                    .workflows()
                    .get(&snapshot.run.workflow)
                    .map_or(&UnknownWorkflow as &dyn Workflow, |workflow| &**workflow),
                policy: StepPolicy::default(),
                now,
                jitter: 0.0,
                queues: &[],
            };
            let expected = snapshot.run.version();
            (verbs::cancelled(snapshot, &context), expected)
        });
        let (run, events) = (snapshot.run.id, vec![event]);
        SignalMessage { run, revision: None, signal, events, effects: Vec::new(), change }
    }

    fn log_outcome(&self, before: &Run, after: &Run) {
        log::decision_span(before, self.owner()).in_scope(|| self.decider().note_outcome(before, after));
    }

    async fn commit_change(
        &self,
        change: RunChange,
        expected: RunVersion,
        now: Time,
    ) -> Result<Option<Run>, StoreError> {
        Ok(match self.store().commit(change, expected, now).await? {
            Committed::Applied(run) => Some(*run),
            _ => None,
        })
    }
}

/// Why a verb could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum VerbError {
    /// The phase of the run refuses the verb, or the run does not exist.
    #[error(transparent)]
    Verb(#[from] VerbRefused),
    /// The database failed.
    #[error("store the verb")]
    Store(#[from] StoreError),
    /// The run changed too often; the caller can try again.
    #[error("the run changed too often while the verb was stored; try again")]
    Busy,
}
