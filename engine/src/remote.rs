//! The queues of a worker elsewhere: the five commands over the store, for a caller that is only partly trusted (decision D33).
//!
//! ```text
//!   worker elsewhere                          controller
//!   claim(free, since when it waits) -------> store.claim(owner worker/NAME, its queues) -> Decider::begin -> calls
//!   progress(key, number, output) ----------> epoch, owner, attempt, number compared in the transaction that writes
//!   report(key, message) -------------------> the snapshot of now -> Decider::conclude -> next call | Released | Lost
//!   release(key) ---------------------------> lease given back
//!   interrupted(claims) --------------------> which of them were cancelled or are lost
//! ```
//!
//! Invariants
//! - The snapshot, the record, the queue and the policy of a decision are those of the database, never those of a message.
//! - A command under another epoch, or of another owner, writes nothing.
//! - A repeated report is recognised by its position and attempt. It changes nothing, and it returns what follows now, so that
//!   a worker that did not receive the response can send its report again.
//! - A worker claims runs of its own queues only. The queues of the controller are not given to it.
//! - An order that was open when a lease of its worker ended grants nothing (`store::elsewhere` has the reason).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::backend::{NextCall, StepCall};
use super::cancel;
use super::cursor;
use super::decider::Decider;
use super::dispatcher::Engine;
use super::wire::{CallKey, CallMessage, MessageRefused, ReportMessage};
use super::workflow::StepReport;
use model::mutant::{self, Mutant};
use model::{RunId, Snapshot, StepPhase, StepRecord, Time};
use store::{ElsewhereOrder, Lanes, OutputWritten, StoreError, WORKER_OWNER};

/// How many runs a worker elsewhere may have at the same time.
const MAX_CLAIMS: usize = 256;

/// Why a command of a worker elsewhere failed.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The message is not valid.
    #[error(transparent)]
    Refused(#[from] MessageRefused),
    /// The queue is one of the controller's own.
    #[error("the queue {0:?} is executed by the controller; give the worker another one")]
    OwnQueue(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The call or the end of the lease that follows a command of a worker elsewhere.
#[derive(Clone, Debug)]
pub enum RemoteNext {
    /// The lease is kept, and this call is next.
    Call(Box<CallMessage>),
    /// The run is parked or has ended; the lease is given back.
    Released,
    /// Nothing was written: the lease is lost.
    Lost,
}

/// The commands of one worker elsewhere.
pub struct RemoteQueues {
    decider: Decider,
    engine: Engine,
    owner: String,
}

/// A run under the lease of the worker that names it.
enum Held {
    /// The call is open: its report is expected.
    Open(Arc<Snapshot>, StepRecord),
    /// The worker has the lease, and the call has ended.
    Ended(Arc<Snapshot>),
    /// The claim is still the last one, and its lease was given back.
    GivenBack,
    /// Another claim has followed, or the run is gone.
    Lost,
}

impl Engine {
    /// The commands of the worker of this name for runs of these queues.
    ///
    /// # Errors
    /// When one of the queues is executed by this engine itself.
    pub fn remote_queues(
        &self,
        worker: &str,
        queues: &BTreeSet<String>,
    ) -> Result<RemoteQueues, RemoteError> {
        let own = queues.iter().find(|queue| self.decider().queues.contains(queue));
        if let Some(own) = own {
            return Err(RemoteError::OwnQueue(own.clone()));
        }
        let queues: Vec<String> = queues.iter().cloned().collect();
        let decider = Decider { queues: queues.into(), ..self.decider().clone() };
        Ok(RemoteQueues { decider, engine: self.clone(), owner: format!("{WORKER_OWNER}{worker}") })
    }
}

impl RemoteQueues {
    /// The name in the leases of the worker.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// How long a lease lasts without progress.
    pub fn lease(&self) -> Duration {
        self.decider.terms.ttl
    }

    /// Claims up to `limit` due runs, at most 256, and carries each to its first call. `asked` is the time at which the order of the
    /// worker arrived. While the controller is short of something, no run starts. `None`: a lease of the worker has ended while its
    /// order waited; the order must end, and a further one of the worker is good again.
    ///
    /// # Errors
    /// When the database fails. A run that was claimed then is due again after its lease.
    pub async fn claim(&self, limit: usize, asked: Time) -> Result<Option<Vec<CallMessage>>, RemoteError> {
        let lanes = match self.engine.read_pressure().await {
            Some(_) => Lanes::Started,
            None => Lanes::All,
        };
        let terms = &self.decider.terms;
        let order = ElsewhereOrder {
            lanes,
            owner: self.owner.clone(),
            queues: self.decider.queues.to_vec(),
            limit: limit.min(MAX_CLAIMS),
            asked,
            now: terms.clock.now(),
            ttl: terms.ttl,
            grace: terms.grace,
        };
        let Some(claimed) = self.decider.store.claim_elsewhere(order).await? else { return Ok(None) };
        let mut calls = Vec::new();
        for claimed in claimed {
            let next = self.decider.begin(claimed).await?;
            if let RemoteNext::Call(call) = self.next(next).await? {
                calls.push(*call);
            }
        }
        Ok(Some(calls))
    }

    /// Writes the output of the running step, and renews the lease. `false`: the lease is lost. `number` rises with each checkpoint
    /// of a claim: one that a newer checkpoint has overtaken changes nothing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn progress(&self, key: &CallKey, number: u64, output: Value) -> Result<bool, RemoteError> {
        let terms = &self.decider.terms;
        let now = terms.clock.now();
        let expires_at = now.plus(terms.ttl);
        let written = OutputWritten {
            run: key.run,
            epoch: key.epoch,
            owner: self.owner.clone(),
            at: key.at,
            attempt: key.attempt,
            number,
            output,
            expires_at,
            next_run_at: expires_at.plus(terms.grace),
        };
        Ok(self.decider.store.progress_elsewhere(written, now).await?)
    }

    /// Decides what follows a report, and commits it.
    ///
    /// # Errors
    /// When the message is refused or the database fails; nothing of the report is written then.
    pub async fn report(&self, key: &CallKey, message: ReportMessage) -> Result<RemoteNext, RemoteError> {
        let next = match self.held(key).await? {
            Held::Lost => NextCall::Lost,
            Held::GivenBack => NextCall::Released,
            Held::Ended(snapshot) => self.decider.resume(snapshot).await?,
            Held::Open(snapshot, record) => {
                let Some(workflow) = self.decider.workflows.get(&snapshot.run.workflow) else {
                    return Err(MessageRefused("its workflow is not known".to_owned()).into());
                };
                let queue = cursor::instance(&snapshot, key.at).map(|instance| instance.queue.clone());
                let queue = queue.unwrap_or_default();
                let mut seen = (*snapshot).clone();
                seen.signals.retain(|signal| message.saw(signal));
                let policy = workflow.policy(&record.name, &snapshot);
                let report = message.report(&snapshot.run, &queue, &**workflow)?;
                // The revision is that of now. Only the signals are those that the step was called with.
                let call = StepCall {
                    snapshot: Arc::new(seen),
                    record: record.clone(),
                    reentered: true,
                    undo: false,
                    policy,
                };
                self.decider.conclude_elsewhere(&call, &snapshot, record, report).await?
            }
        };
        self.engine.wake();
        self.next(next).await
    }

    /// Gives the lease back without a report.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn release(&self, key: &CallKey) -> Result<(), RemoteError> {
        if let Held::Open(snapshot, _) | Held::Ended(snapshot) = self.held(key).await? {
            self.decider.release_lease(&snapshot).await?;
            self.engine.wake();
        }
        Ok(())
    }

    /// The run of an open call of this worker; `None` when the worker does not have it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn open_run(&self, key: &CallKey) -> Result<Option<Arc<Snapshot>>, RemoteError> {
        Ok(match self.held(key).await? {
            Held::Open(snapshot, _) => Some(snapshot),
            Held::Ended(_) | Held::GivenBack | Held::Lost => None,
        })
    }

    /// When the next run of the queues is due.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn next_due(&self) -> Result<Option<Time>, RemoteError> {
        Ok(self.decider.store.next_due(&self.decider.queues).await?)
    }

    /// Which of these claims a worker must stop at once: their cancel was requested, or their lease is lost.
    ///
    /// # Errors
    /// When there are more than 256 claims, or the database fails.
    pub async fn interrupted(&self, claims: &[(RunId, i64)]) -> Result<Vec<(RunId, i64)>, RemoteError> {
        if claims.len() > MAX_CLAIMS {
            return Err(MessageRefused(format!("a worker has at most {MAX_CLAIMS} claims")).into());
        }
        let ids = claims.iter().map(|(run, _)| *run).collect();
        let found = self.decider.store.snapshots(ids).await?;
        let stopped = claims.iter().zip(found).filter(|((_, epoch), found)| match found {
            Some(snapshot) => !self.owns(snapshot, *epoch) || cancel::is_pending(snapshot),
            None => true,
        });
        Ok(stopped.map(|(claim, _)| *claim).collect())
    }

    fn owns(&self, snapshot: &Snapshot, epoch: i64) -> bool {
        let lease = snapshot.run.lease.as_ref();
        snapshot.run.epoch == epoch && lease.is_some_and(|lease| lease.owner == self.owner)
    }

    /// How the run stands to the call that a worker names.
    async fn held(&self, key: &CallKey) -> Result<Held, StoreError> {
        let Some(snapshot) = self.decider.store.snapshot(key.run).await? else { return Ok(Held::Lost) };
        let of_claim = snapshot.run.epoch == key.epoch || mutant::active(Mutant::IgnoresEpoch);
        if !of_claim {
            return Ok(Held::Lost);
        }
        if snapshot.run.lease.is_none() {
            return Ok(Held::GivenBack);
        }
        if !self.owns(&snapshot, key.epoch) && !mutant::active(Mutant::IgnoresEpoch) {
            return Ok(Held::Lost);
        }
        // The reads of media are for an explanation; the decision reads them with a claim only.
        let snapshot = Snapshot { media: Vec::new(), ..snapshot };
        let open = snapshot.record(key.at).filter(|record| is_open(&snapshot, record, key.attempt)).cloned();
        let snapshot = Arc::new(snapshot);
        Ok(match open {
            Some(record) => Held::Open(snapshot, record),
            None => Held::Ended(snapshot),
        })
    }

    /// The message of what follows. A step that cannot be executed elsewhere fails: a defect of its workflow.
    async fn next(&self, mut next: NextCall) -> Result<RemoteNext, RemoteError> {
        loop {
            let call = match next {
                NextCall::Call(call) => call,
                NextCall::Released => return Ok(RemoteNext::Released),
                NextCall::Lost => return Ok(RemoteNext::Lost),
            };
            next = match CallMessage::of(&call, self.decider.terms.ttl) {
                Ok(message) => return Ok(RemoteNext::Call(Box::new(message))),
                Err(why) => {
                    let report = StepReport::fail(why.failure());
                    self.decider.conclude(&call, call.record.clone(), report).await?
                }
            };
        }
    }
}

/// Whether the report of a call is expected: the step is the next one of the run, and this is its attempt.
fn is_open(snapshot: &Snapshot, record: &StepRecord, attempt: u32) -> bool {
    let next = cursor::next(snapshot);
    let current = matches!(next, cursor::Next::Run(at) | cursor::Next::Undo(at) if at == record.at);
    let undoing = matches!(next, cursor::Next::Undo(_));
    current && record.attempt == attempt && (undoing || record.phase == StepPhase::Intent)
}
