//! Telling a run something: a signal is stored, and a parked run that waits for it changes in the same transaction.

use serde_json::Value;

use super::decide::{self, Circumstances, Next};
use super::dispatcher::Engine;
use super::verbs::{self, Verb, VerbRefused};
use super::workflow::{AfterCommit, Foreign, Kind, StepPolicy, StepReport, Verdict};
use crate::model::mutant::{self, Mutant};
use crate::model::{Change, NewEvent, Outcome, Phase, Run, RunId, Signal, Snapshot, Time};
use crate::store::{Committed, Delivered, Message, StoreError, UNREADABLE};

/// How often a delivery is computed again because the run moved meanwhile.
const MOVES: u32 = 64;

/// Runs that are cancelled in one transaction: what another writer waits for in between is some ten milliseconds.
const TOGETHER: usize = 64;

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// Stored; this is the run as it is now.
    Stored(Box<Run>),
    /// It was told this before.
    Duplicate(Box<Signal>),
    /// There is no such run.
    NoRun,
}

/// Why a delivery failed.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// The database refused.
    #[error("store the message")]
    Store(#[from] StoreError),
    /// The run changed too often to be told; try again.
    #[error("the run changes too quickly right now; try again")]
    Busy,
}

impl Engine {
    /// Tells a run something, durably; exactly once per (name, key). `snapshot` is the run as it was just read: nothing is lost
    /// when it has moved since.
    pub async fn deliver(
        &self,
        mut snapshot: Snapshot,
        name: &str,
        key: &str,
        payload: Value,
        events: Vec<NewEvent>,
    ) -> Result<Delivery, SignalError> {
        let run = snapshot.run.id;
        let now = self.clock().now();
        let signal =
            Signal { name: name.to_owned(), key: key.to_owned(), payload, received_at: now, consumed: false };
        if name != crate::store::CANCEL && mutant::active(Mutant::LosesReport) {
            return Ok(Delivery::Stored(Box::new(snapshot.run)));
        }
        for _ in 0..MOVES {
            let settled = self.settle(&snapshot, &signal);
            let then = settled.as_ref().and_then(|(_, report)| report.then.clone());
            let change = settled.map(|(change, _)| {
                let expected = (snapshot.run.epoch, snapshot.run.revision);
                (change, expected)
            });
            match self
                .store()
                .deliver(run, signal.clone(), events.clone(), change, self.clock().now())
                .await?
            {
                Delivered::Stored(run) => {
                    if let Some(AfterCommit(tell)) = then {
                        tell();
                    }
                    self.wake();
                    return Ok(Delivery::Stored(run));
                }
                Delivered::Duplicate(earlier) => return Ok(Delivery::Duplicate(earlier)),
                Delivered::NoRun => return Ok(Delivery::NoRun),
                Delivered::Moved(now) => snapshot = *now,
            }
        }
        Err(SignalError::Busy)
    }

    /// What the signal settles at once in a run that is parked and waits for it.
    fn settle(&self, snapshot: &Snapshot, signal: &Signal) -> Option<(Change, StepReport)> {
        let run = &snapshot.run;
        let awaited = run.phase == Phase::Waiting
            && run.lease.is_none()
            && run.wait.as_ref().is_some_and(|wait| wait.signals.contains(&signal.name));
        if !awaited {
            return None;
        }
        let kind = self.kinds().get(&run.kind)?;
        let Next::Run(at) = decide::next(snapshot) else { return None };
        let step = kind.step(&decide::instance(snapshot, at)?.name)?;
        let record = snapshot.record(at)?;
        let mut told = snapshot.clone();
        told.signals.push(signal.clone());
        let report = step.receive(&told, signal)?;
        let parks = matches!(report.verdict, Verdict::Wait(_) | Verdict::Turn(_) | Verdict::Retry(_));
        if parks || !report.children.is_empty() {
            // Going on waiting, trying again and starting other runs are a worker's business.
            return None;
        }
        let circumstances = Circumstances {
            kind: &**kind,
            policy: kind.policy(&record.name, snapshot),
            now: self.clock().now(),
            chance: 0.0,
            queues: &[],
        };
        Some((decide::after(&told, record, &report, &circumstances), report))
    }

    /// Carries out an operator's verb; durable when it answers. A cancel of what is cancelled already changes nothing.
    pub async fn verb(&self, run: RunId, verb: Verb, actor: &str, reason: &str) -> Result<(), VerbFailure> {
        for _ in 0..MOVES {
            let snapshot = match self.store().snapshot(run).await {
                Ok(Some(snapshot)) => snapshot,
                Ok(None) => return Err(VerbRefused::NoRun.into()),
                Err(error) if error.is_corrupt() => return self.unreadable_verb(run, verb, actor).await,
                Err(error) => return Err(error.into()),
            };
            if snapshot.run.hold.as_ref().is_some_and(|hold| hold.class == UNREADABLE) {
                return self.unreadable_verb(run, verb, actor).await;
            }
            let phase = snapshot.run.phase;
            // Asked again by somebody who did not hear the answer, or wants the same.
            if verb == Verb::Cancel && snapshot.run.outcome == Some(Outcome::Cancelled) {
                return Ok(());
            }
            if !verb.allowed(phase) {
                return Err(VerbRefused::NotNow { verb, phase }.into());
            }
            if self.try_verb(snapshot, verb, actor, reason).await?.is_some() {
                self.wake();
                return Ok(());
            }
        }
        Err(VerbFailure::Busy)
    }

    /// Cancels these runs; answers how many it was: one that has ended meanwhile is none. They share transactions, so that a
    /// batch of thousands is told while its author waits; broken off in the middle, those told stay told.
    pub async fn cancel_all(&self, runs: &[RunId], actor: &str, reason: &str) -> Result<u64, VerbFailure> {
        let mut cancelled = 0;
        for together in runs.chunks(TOGETHER) {
            let now = self.clock().now();
            let (mut messages, mut alone) = (Vec::new(), Vec::new());
            for (run, found) in together.iter().zip(self.store().snapshots(together.to_vec()).await?) {
                match found {
                    Some(snapshot) if !snapshot.run.phase.is_forward() => {}
                    Some(mut snapshot) if snapshot.run.hold.is_none() => {
                        messages.push(self.cancelling(&mut snapshot, actor, reason, now));
                    }
                    // Held, perhaps because it cannot be read; or it cannot be read just now.
                    Some(_) | None => alone.push(*run),
                }
            }
            let told: Vec<RunId> = messages.iter().map(|message| message.run).collect();
            for (run, delivered) in told.iter().zip(self.store().deliver_all(messages, now).await?) {
                self.worker().interrupts.ask(*run);
                match delivered {
                    Delivered::Stored(_) => cancelled += 1,
                    Delivered::Duplicate(_) | Delivered::Moved(_) | Delivered::NoRun => alone.push(*run),
                }
            }
            self.worker().interrupt_children(&told).await;
            self.wake();
            for run in alone {
                match self.verb(run, Verb::Cancel, actor, reason).await {
                    Ok(()) => cancelled += 1,
                    Err(VerbFailure::Verb(_)) => {}
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok(cancelled)
    }

    /// The verbs of a run that is held because its record cannot be read.
    async fn unreadable_verb(&self, run: RunId, verb: Verb, actor: &str) -> Result<(), VerbFailure> {
        let now = self.clock().now();
        let done = match verb {
            Verb::Cancel => self.store().abandon(run, actor, now).await?,
            Verb::Resume => self.store().retry_unreadable(run, actor, now).await?,
            Verb::Hold => return Err(VerbRefused::NotNow { verb, phase: Phase::Held }.into()),
        };
        self.wake();
        // Not held for that: found unreadable before the engine met it. It does at its next claim.
        if done { Ok(()) } else { Err(VerbFailure::Busy) }
    }

    /// One try; `None` when the run moved meanwhile.
    async fn try_verb(
        &self,
        mut snapshot: Snapshot,
        verb: Verb,
        actor: &str,
        reason: &str,
    ) -> Result<Option<Run>, StoreError> {
        let now = self.clock().now();
        let id = snapshot.run.id;
        let expected = (snapshot.run.epoch, snapshot.run.revision);
        if verb == Verb::Cancel {
            let Message { signal, events, change, .. } = self.cancelling(&mut snapshot, actor, reason, now);
            let delivered = self.store().deliver(id, signal, events, change.clone(), now).await?;
            self.worker().interrupts.ask(id);
            self.worker().interrupt_children(&[id]).await;
            return Ok(match (delivered, change) {
                (Delivered::Stored(run), _) => Some(*run),
                // Asked for before, but nobody was at work to carry it out.
                (Delivered::Duplicate(_), Some((change, expected))) => {
                    self.applied(change, expected, now).await?
                }
                // Asked for twice: the first is on its way.
                (Delivered::Duplicate(_) | Delivered::NoRun, _) => Some(snapshot.run),
                (Delivered::Moved(_), _) => None,
            });
        }
        let change = match verb {
            Verb::Hold => verbs::held(&snapshot, actor, reason, now),
            _ => verbs::resumed(&snapshot, actor, now),
        };
        self.applied(change, expected, now).await
    }

    /// What tells a run that it is cancelled, with the change that makes of it when nobody is at work on it.
    fn cancelling(&self, snapshot: &mut Snapshot, actor: &str, reason: &str, now: Time) -> Message {
        let signal = verbs::cancel_signal(actor, reason, now);
        let event = NewEvent::warn("verb.cancel", format!("cancel asked for by {actor}")).by(actor);
        let change = snapshot.run.lease.is_none().then(|| {
            if !verbs::cancel_pending(snapshot) {
                snapshot.signals.push(signal.clone());
            }
            let circumstances = Circumstances {
                kind: self.kinds().get(&snapshot.run.kind).map_or(&Foreign as &dyn Kind, |kind| &**kind),
                policy: StepPolicy::default(),
                now,
                chance: 0.0,
                queues: &[],
            };
            let expected = (snapshot.run.epoch, snapshot.run.revision);
            (verbs::cancelled(snapshot, &circumstances), expected)
        });
        Message { run: snapshot.run.id, signal, events: vec![event], change }
    }

    async fn applied(
        &self,
        change: Change,
        expected: (i64, i64),
        now: Time,
    ) -> Result<Option<Run>, StoreError> {
        Ok(match self.store().commit(change, expected, now).await? {
            Committed::Applied(run) => Some(*run),
            _ => None,
        })
    }
}

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum VerbFailure {
    /// It cannot be carried out.
    #[error(transparent)]
    Verb(#[from] VerbRefused),
    /// The database refused.
    #[error("store the verb")]
    Store(#[from] StoreError),
    /// The run changed too often; try again.
    #[error("the run changes too quickly right now; try again")]
    Busy,
}
