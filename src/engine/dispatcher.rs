//! The dispatcher: claims what is due, starts workers, and sleeps until something is due again.
//!
//! Wake-ups ([`Engine::nudge`]) are hints; the truth is the due time in the rows, looked at again every [`SWEEP`] at the
//! latest. Losing every hint only adds latency.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::kind::Kinds;
use super::worker::Worker;
use crate::model::{Chance, Clock, NewRun, RunId, system_chance};
use crate::store::{Claimed, Created, Creation, Store, StoreError, TakeOver};

/// The longest sleep between two looks at the database.
const SWEEP: Duration = Duration::from_secs(15);
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
    /// The epoch tells two claims of one run apart, so that the end of the first does not unlist the second.
    active: Mutex<HashMap<RunId, (i64, CancellationToken)>>,
}

/// A listed claim; takes itself off the list, also when its worker panics.
struct Listed {
    engine: Engine,
    id: RunId,
    epoch: i64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut active = self.engine.active();
        if active.get(&self.id).is_some_and(|(epoch, _)| *epoch == self.epoch) {
            active.remove(&self.id);
        }
    }
}

impl Engine {
    /// An engine over a store; it does nothing until [`Engine::run`] or [`Engine::settle_all`].
    pub fn new(store: Store, kinds: Kinds, clock: Arc<dyn Clock>, config: EngineConfig) -> Self {
        Self::with_chance(store, kinds, clock, system_chance(), config)
    }

    /// The same with a randomness of its own.
    pub fn with_chance(
        store: Store,
        kinds: Kinds,
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
        };
        Self {
            inner: Arc::new(Inner {
                worker,
                config,
                wake: Notify::new(),
                active: Mutex::new(HashMap::new()),
            }),
        }
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
    pub fn kinds(&self) -> &Kinds {
        &self.inner.worker.kinds
    }

    /// Makes a run; durable when it answers.
    pub async fn create(&self, creation: Creation) -> Result<Created, StoreError> {
        let created = self.store().create(creation).await?;
        self.nudge();
        Ok(created)
    }

    /// Makes many runs at once, each made or refused for itself; durable when it answers.
    pub async fn create_many(&self, runs: Vec<NewRun>) -> Result<Vec<Created>, StoreError> {
        let created = self.store().create_many(runs).await?;
        self.nudge();
        Ok(created)
    }

    /// Hints that something may be due.
    pub fn nudge(&self) {
        self.inner.wake.notify_one();
    }

    /// Interrupts the step a run is in, if this engine works on it.
    pub(super) fn interrupt(&self, run: RunId) {
        if let Some((_, token)) = self.active().get(&run) {
            token.cancel();
        }
    }

    /// How many runs are being worked on.
    pub fn working(&self) -> usize {
        self.active().len()
    }

    fn active(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, (i64, CancellationToken)>> {
        self.inner.active.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Works until `stop`; then interrupts what may be interrupted, gives the leases back and waits for the rest.
    pub async fn run(&self, take_over: TakeOver, stop: CancellationToken) {
        match self.store().take_over(take_over, self.clock().now()).await {
            Ok(0) => {}
            Ok(leases) => tracing::info!(leases, "taking over what the last incarnation was working on"),
            Err(error) => tracing::error!(error = %crate::model::chain(&error), "taking over leases failed"),
        }
        let permits = Arc::new(Semaphore::new(self.inner.config.concurrency));
        let workers = TaskTracker::new();
        while !stop.is_cancelled() {
            let pause = match self.start_due(&permits, &workers, &stop).await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::error!(error = %crate::model::chain(&error), "the database refused; trying again");
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
        workers: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Duration, StoreError> {
        let free = permits.available_permits();
        if free == 0 {
            // A worker that ends nudges.
            return Ok(SWEEP);
        }
        let (claimed, since) = self.claim(free).await?;
        let none = claimed.is_empty();
        for claimed in claimed {
            let Ok(permit) = Arc::clone(permits).try_acquire_owned() else { break };
            let engine = self.clone();
            let cancel = stop.child_token();
            let listed = self.list(&claimed, &cancel);
            workers.spawn(async move {
                engine.inner.worker.work(claimed, since, cancel).await;
                drop(listed);
                drop(permit);
                engine.nudge();
            });
        }
        if !none {
            return Ok(Duration::ZERO);
        }
        let next = self.store().next_due(&self.inner.config.queues).await?;
        Ok(next.map_or(SWEEP, |due| due.since(self.clock().now()).min(SWEEP)))
    }

    fn list(&self, claimed: &Claimed, cancel: &CancellationToken) -> Listed {
        let Claimed { snapshot, .. } = claimed;
        let (id, epoch) = (snapshot.run.id, snapshot.run.epoch);
        self.active().insert(id, (epoch, cancel.clone()));
        Listed { engine: self.clone(), id, epoch }
    }

    async fn claim(&self, limit: usize) -> Result<(Vec<Claimed>, Duration), StoreError> {
        let config = &self.inner.config;
        let since = self.clock().elapsed();
        let claimed = self
            .store()
            .claim(&config.owner, &config.queues, limit, self.clock().now(), config.lease, config.grace)
            .await?;
        Ok((claimed, since))
    }

    /// Works, one run after another, until nothing is due; answers how many claims it made. For tests and simulations, where
    /// time stands still while the engine works.
    pub async fn settle_all(&self) -> Result<usize, StoreError> {
        let mut claims = 0;
        loop {
            let (claimed, since) = self.claim(1).await?;
            let Some(claimed) = claimed.into_iter().next() else { return Ok(claims) };
            claims += 1;
            self.carry(claimed, since).await;
        }
    }

    /// Works on one claim in the caller's task.
    pub(super) async fn carry(&self, claimed: Claimed, since: Duration) {
        let cancel = CancellationToken::new();
        let _listed = self.list(&claimed, &cancel);
        self.inner.worker.work(claimed, since, cancel).await;
    }
}
