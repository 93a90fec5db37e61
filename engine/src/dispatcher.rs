//! The dispatcher: claims what is due, starts workers, and sleeps until something is due again.
//!
//! Wake-ups ([`Engine::wake`]) are hints; the truth is the due time in the rows, looked at again every [`SWEEP`] at the
//! latest. Losing every hint only adds latency.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::interrupt::{ClaimEntry, Interrupt, Interrupts, PATIENCE};
use super::pressure::PressureCache;
use super::worker::Worker;
use super::workflow::WorkflowRegistry;
use crate::model::{Chance, Clock, NewRun, system_id_source};
use crate::store::{Claimed, Created, Creation, Lanes, Store, StoreError, TakeOver};

/// The longest sleep between two looks at the database.
const SWEEP: Duration = Duration::from_secs(15);
/// Runs that were asked to end and are worked on besides the others, when all workers are busy.
const ENDING: usize = 32;
/// The pause after the database refused.
const REFUSED: Duration = Duration::from_secs(1);

/// How an engine works.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The name it claims under; unique per process.
    pub owner: String,
    /// The queues whose steps it carries out.
    pub queues: Vec<String>,
    /// How many runs it works on at once; parked ones do not count.
    pub concurrency: usize,
    /// How long a lease lasts without progress.
    pub lease: Duration,
    /// How long after a lease's end a thief still waits: the longest outside request of the old owner.
    pub grace: Duration,
}

/// The engine of one process.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    worker: Worker,
    config: EngineConfig,
    wake: Notify,
    pressed: PressureCache,
}

impl Engine {
    /// An engine over a store; it does nothing until [`Engine::run`] or [`Engine::run_until_idle`].
    pub fn new(store: Store, kinds: WorkflowRegistry, clock: Arc<dyn Clock>, config: EngineConfig) -> Self {
        Self::with_id_source(store, kinds, clock, system_id_source(), config)
    }

    /// The same with a randomness of its own.
    pub fn with_id_source(
        store: Store,
        kinds: WorkflowRegistry,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
        config: EngineConfig,
    ) -> Self {
        let worker = Worker {
            store,
            kinds,
            clock,
            ttl: config.lease,
            grace: config.grace,
            queues: config.queues.clone().into(),
            chance,
            interrupts: Interrupts::default(),
            patience: PATIENCE,
        };
        Self {
            inner: Arc::new(Inner { worker, config, wake: Notify::new(), pressed: PressureCache::default() }),
        }
    }

    /// The same with less patience for steps that may not be interrupted.
    #[cfg(test)]
    pub(super) fn with_cancel_grace(self, patience: Duration) -> Self {
        let Inner { worker, config, .. } = &*self.inner;
        let worker = Worker { patience, ..worker.clone() };
        let inner =
            Inner { worker, config: config.clone(), wake: Notify::new(), pressed: PressureCache::default() };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn pressed(&self) -> &PressureCache {
        &self.inner.pressed
    }

    pub(super) fn worker(&self) -> &Worker {
        &self.inner.worker
    }

    /// The store it works on.
    pub fn store(&self) -> &Store {
        &self.inner.worker.store
    }

    /// The clock it goes by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.worker.clock
    }

    /// The randomness it goes by.
    pub fn chance(&self) -> &Arc<dyn Chance> {
        &self.inner.worker.chance
    }

    /// The kinds it knows.
    pub fn kinds(&self) -> &WorkflowRegistry {
        &self.inner.worker.kinds
    }

    /// Makes a run; durable when it answers.
    pub async fn create(&self, creation: Creation) -> Result<Created, StoreError> {
        let created = self.store().create(creation).await?;
        self.wake();
        Ok(created)
    }

    /// Makes many runs at once, each made or refused for itself; durable when it answers.
    pub async fn create_many(&self, runs: Vec<NewRun>) -> Result<Vec<Created>, StoreError> {
        let created = self.store().create_many(runs).await?;
        self.wake();
        Ok(created)
    }

    /// Hints that something may be due.
    pub fn wake(&self) {
        self.inner.wake.notify_one();
    }

    /// How many runs are being worked on.
    pub fn working(&self) -> usize {
        self.worker().interrupts.len()
    }

    /// Works until `stop`; then interrupts what may be interrupted, gives the leases back and waits for the rest.
    pub async fn run(&self, take_over: TakeOver, stop: CancellationToken) {
        match self.store().take_over(take_over, self.clock().now()).await {
            Ok(0) => {}
            Ok(leases) => tracing::info!(leases, "taking over what the last incarnation was working on"),
            Err(error) => {
                tracing::error!(error = %crate::model::error_chain(&error), "taking over leases failed")
            }
        }
        let concurrency = self.inner.config.concurrency;
        let permits = Arc::new(Semaphore::new(concurrency));
        let ending = Arc::new(Semaphore::new(if concurrency == 0 { 0 } else { ENDING }));
        let workers = TaskTracker::new();
        while !stop.is_cancelled() {
            let pause = match self.start_due(&permits, &ending, &workers, &stop).await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::error!(error = %crate::model::error_chain(&error), "the database refused; trying again");
                    REFUSED
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.inner.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        workers.close();
        workers.wait().await;
    }

    /// Starts workers for what is due; answers how long nothing will be.
    async fn start_due(
        &self,
        permits: &Arc<Semaphore>,
        ending: &Arc<Semaphore>,
        workers: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Duration, StoreError> {
        // Whoever was asked to end waits for no free worker: the machine is cleaned up while all others are at work.
        let (places, lanes) = match permits.available_permits() {
            0 => (ending, Some(Lanes::Ending)),
            _ => (permits, None),
        };
        let free = places.available_permits();
        if free == 0 {
            // A worker that ends nudges.
            return Ok(SWEEP);
        }
        let (claimed, since, lanes) = self.claim(free, lanes).await?;
        let none = claimed.is_empty();
        for claimed in claimed {
            let Ok(permit) = Arc::clone(places).try_acquire_owned() else { break };
            let engine = self.clone();
            let interrupt = Interrupt::new(stop.child_token());
            let listed = self.list(&claimed, &interrupt);
            workers.spawn(async move {
                engine.inner.worker.work(claimed, since, interrupt).await;
                drop(listed);
                drop(permit);
                engine.wake();
            });
        }
        if !none {
            return Ok(Duration::ZERO);
        }
        let next = self.store().next_due_of(lanes, &self.inner.config.queues).await?;
        Ok(next.map_or(SWEEP, |due| due.since(self.clock().now()).min(SWEEP)))
    }

    fn list(&self, claimed: &Claimed, interrupt: &Interrupt) -> ClaimEntry {
        let run = &claimed.snapshot.run;
        self.worker().interrupts.list(run.id, run.epoch, interrupt)
    }

    /// Claims what may be claimed now: from the given lanes, or from all that no pressure closes.
    async fn claim(
        &self,
        limit: usize,
        lanes: Option<Lanes>,
    ) -> Result<(Vec<Claimed>, Duration, Lanes), StoreError> {
        let config = &self.inner.config;
        let lanes = match lanes {
            Some(lanes) => lanes,
            None if self.read_gauge().await.is_some() => Lanes::Begun,
            None => Lanes::All,
        };
        let since = self.clock().elapsed();
        let (owner, queues, now) = (&config.owner, &config.queues, self.clock().now());
        let claimed =
            self.store().claim_lanes(lanes, owner, queues, limit, now, config.lease, config.grace).await?;
        Ok((claimed, since, lanes))
    }

    /// Works, one run after another, until nothing is due; answers how many claims it made. For tests and simulations, where
    /// time stands still while the engine works.
    pub async fn run_until_idle(&self) -> Result<usize, StoreError> {
        let mut claims = 0;
        loop {
            let (claimed, since, _) = self.claim(1, None).await?;
            let Some(claimed) = claimed.into_iter().next() else { return Ok(claims) };
            claims += 1;
            self.carry(claimed, since).await;
        }
    }

    /// Works on one claim in the caller's task.
    pub(super) async fn carry(&self, claimed: Claimed, since: Duration) {
        let interrupt = Interrupt::default();
        let _listed = self.list(&claimed, &interrupt);
        self.inner.worker.work(claimed, since, interrupt).await;
    }
}
