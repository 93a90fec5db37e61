//! The dispatcher: claims due runs, starts workers, and sleeps until the next run is due.
//!
//! A wake-up ([`Engine::wake`]) is a hint. The due times in the rows are read at least every [`SWEEP`], so that a lost hint
//! only adds latency.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::decider::{Decider, EndObserver};
use super::interrupt::{CANCEL_GRACE, ClaimEntry, Interrupt, Interrupts};
use super::lease::LeaseTerms;
use super::outage::LastOutage;
use super::presence::QueueWorkers;
use super::pressure::{PressureCache, PressureGauge};
use super::worker::Worker;
use super::workflow::WorkflowRegistry;
use model::{Clock, IdSource, NewRun, Outcome, Pressure, Serial, Time, UnfinishedRuns, system_id_source};
use store::{Claimed, Created, Creation, Lanes, ReleasedServer, Store, StoreError, TakeOver, log};

/// The longest sleep between two reads of the database.
const SWEEP: Duration = Duration::from_secs(15);
/// A sleep that lasts longer than it should by this: the process, or its machine, stood still.
const STOOD_STILL: Duration = Duration::from_secs(30);
/// The number of additional workers for cancelled runs, when all other workers are busy.
const CANCEL_WORKERS: usize = 32;
/// The pause after a database error.
const DATABASE_RETRY: Duration = Duration::from_secs(1);

/// The settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The name that is written into the leases; unique per process.
    pub owner: String,
    /// The queues whose steps this engine executes.
    pub queues: Vec<String>,
    /// The maximum number of runs in progress; parked runs do not count. With 0 only cancelled runs are worked on.
    pub concurrency: usize,
    /// How long a lease lasts without progress.
    pub lease: Duration,
    /// How long another worker waits after the expiry of a lease before it takes the run over: the longest outside request
    /// of the former owner.
    pub grace: Duration,
}

/// The engine of one process.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    decider: Decider,
    worker: Worker,
    config: EngineConfig,
    wake: Notify,
    pressure: PressureCache,
    queue_workers: OnceLock<Arc<dyn QueueWorkers>>,
    /// The number of rounds of the dispatcher in which the database could be used.
    rounds: watch::Sender<u64>,
}

impl Engine {
    /// An engine on a store. It does nothing before [`Engine::run`] or [`Engine::run_until_idle`].
    pub fn new(
        store: Store,
        workflows: WorkflowRegistry,
        clock: Arc<dyn Clock>,
        config: EngineConfig,
    ) -> Self {
        Self::with_id_source(store, workflows, clock, system_id_source(), config)
    }

    /// An engine with a given source of ids and jitter.
    pub fn with_id_source(
        store: Store,
        workflows: WorkflowRegistry,
        clock: Arc<dyn Clock>,
        id_source: Arc<dyn IdSource>,
        config: EngineConfig,
    ) -> Self {
        let decider = Decider {
            store,
            workflows,
            terms: LeaseTerms { clock, ttl: config.lease, grace: config.grace },
            queues: config.queues.clone().into(),
            id_source,
            interrupts: Interrupts::default(),
            outage: LastOutage::default(),
            ends: EndObserver::default(),
        };
        Self::of(decider, config, CANCEL_GRACE)
    }

    /// Calls `observe` for each run of any workflow that ends from now on, with its outcome and the time since its creation, after the end
    /// is durable. An end directly before a crash is not observed. The first observer stays.
    pub fn observe_ends(&self, observe: impl Fn(Outcome, Duration) + Send + Sync + 'static) {
        let _ = self.inner.decider.ends.0.set(Box::new(observe));
    }

    fn of(decider: Decider, config: EngineConfig, cancel_grace: Duration) -> Self {
        let worker = Worker {
            backend: Arc::new(decider.clone()),
            workflows: decider.workflows.clone(),
            clock: Arc::clone(&decider.terms.clock),
            ttl: decider.terms.ttl,
            interrupts: decider.interrupts.clone(),
            cancel_grace,
        };
        Self {
            inner: Arc::new(Inner {
                decider,
                worker,
                config,
                wake: Notify::new(),
                pressure: PressureCache::default(),
                queue_workers: OnceLock::new(),
                rounds: watch::Sender::default(),
            }),
        }
    }

    /// The engine with another cancel grace for steps that may not be interrupted.
    #[cfg(test)]
    pub(super) fn with_cancel_grace(self, cancel_grace: Duration) -> Self {
        Self::of(self.inner.decider.clone(), self.inner.config.clone(), cancel_grace)
    }

    /// Records that no controller ran from the last sign of life of the previous instance, as `Store::begin_instance` returned
    /// it, until now. A deadline that passed meanwhile is judged only when a message that ends the wait could be repeated.
    pub fn resume_after(&self, last_seen: Option<Time>) {
        if let Some(last_seen) = last_seen {
            self.decider().outage.record(last_seen, self.clock().now());
        }
    }

    /// Installs a gauge: while it shows pressure, no run starts.
    pub fn gauge(&self, gauge: Arc<dyn PressureGauge>) {
        self.inner.pressure.set(gauge);
    }

    /// Installs what knows the workers elsewhere. Only the first one counts.
    pub fn queue_workers(&self, workers: Arc<dyn QueueWorkers>) {
        let _of_first_call = self.inner.queue_workers.set(workers);
    }

    /// Since when a queue has no worker. `None` for a queue that has one, and for the queues of this engine.
    pub fn unserved_since(&self, queue: &str) -> Option<Time> {
        let own = self.inner.config.queues.iter().any(|own| own == queue);
        let workers = self.inner.queue_workers.get().filter(|_| !own)?;
        workers.served(queue).err()
    }

    /// The queues with a due run and without a worker, with the time since when a run waits for one. At most 32.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn unserved_queues(&self) -> Result<Vec<(String, Time)>, StoreError> {
        let due = self.store().due_queues(self.clock().now()).await?;
        let unserved = due.into_iter().filter_map(|(queue, since)| {
            let gone = self.unserved_since(&queue)?;
            Some((queue, since.max(gone)))
        });
        Ok(unserved.collect())
    }

    /// Returns the shortage of the controller, by the last reading of the gauge; `None` without one.
    pub fn pressure(&self) -> Option<Pressure> {
        self.inner.pressure.now()
    }

    /// The shortage of the controller, by a reading that is at most five seconds old. A claim goes by it, and not by the last reading
    /// of the dispatcher: while that claims nothing, it reads nothing.
    pub(super) async fn read_pressure(&self) -> Option<Pressure> {
        self.inner.pressure.read(self.store(), &**self.clock()).await
    }

    pub(super) fn decider(&self) -> &Decider {
        &self.inner.decider
    }

    /// The store of the engine.
    pub fn store(&self) -> &Store {
        &self.inner.decider.store
    }

    /// The clock of the engine.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.decider.terms.clock
    }

    /// The name under which this engine takes leases: the controller instance.
    pub fn owner(&self) -> &str {
        &self.inner.config.owner
    }

    /// The source of ids and jitter.
    pub fn id_source(&self) -> &Arc<dyn IdSource> {
        &self.inner.decider.id_source
    }

    /// The workflows that the engine knows.
    pub fn workflows(&self) -> &WorkflowRegistry {
        &self.inner.decider.workflows
    }

    /// Creates a run. It is durable when this returns.
    ///
    /// # Errors
    /// When the database fails; the run is not created then.
    pub async fn create(&self, creation: Creation) -> Result<Created, StoreError> {
        let created = self.store().create(creation).await?;
        self.wake();
        Ok(created)
    }

    /// Releases a server of restored data. `runs` decides what happens to its unfinished runs; it may be `None` when there are
    /// none. Of a run that ends, what it leaves to the machine is recorded with the server.
    ///
    /// # Errors
    /// When the database fails; the server is not released then.
    pub async fn release_server(
        &self,
        serial: &Serial,
        runs: Option<UnfinishedRuns>,
        by: &str,
        now: Time,
    ) -> Result<ReleasedServer, StoreError> {
        let mut left = Vec::new();
        if runs == Some(UnfinishedRuns::End) {
            // No run of a server that is not released is claimed, so these are as they will end.
            let unfinished = self.store().unfinished_runs(serial).await?;
            for snapshot in self.store().snapshots(unfinished).await?.into_iter().flatten() {
                let workflow = self.workflows().get(&snapshot.run.workflow);
                let effects =
                    workflow.map(|workflow| workflow.left_behind(&snapshot, now)).unwrap_or_default();
                left.push((snapshot.run.id, effects));
            }
        }
        let released = self.store().release_server(serial, runs, left, by, now).await?;
        self.wake();
        Ok(released)
    }

    /// Creates many runs. Each is created or refused on its own, and all are durable when this returns.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn create_many(&self, runs: Vec<NewRun>) -> Result<Vec<Created>, StoreError> {
        let created = self.store().create_many(runs).await?;
        self.wake();
        Ok(created)
    }

    /// Wakes the dispatcher, because a run may be due.
    pub fn wake(&self) {
        self.inner.wake.notify_one();
    }

    /// The number of runs that this engine works on.
    pub fn active_runs(&self) -> usize {
        self.decider().interrupts.len()
    }

    /// Changes with every round of the dispatcher in which the database could be used: at least every [`SWEEP`] while the engine
    /// works. Rounds end when the dispatcher, the writer of the database or the runtime does not make progress.
    pub fn rounds(&self) -> watch::Receiver<u64> {
        self.inner.rounds.subscribe()
    }

    /// Works until `stop`. Then interruptible steps are dropped, their leases are given back, and the other steps run to their
    /// end.
    pub async fn run(&self, take_over: TakeOver, stop: CancellationToken) {
        match self.store().take_over(take_over, self.clock().now()).await {
            Ok(0) => {}
            Ok(leases) => tracing::info!(leases, "took over the runs of the former controller instance"),
            Err(error) => {
                tracing::error!(error = %model::error_chain(&error), "the leases of the former controller instance were not taken over; its runs continue after their leases have expired")
            }
        }
        let permits = Arc::new(Semaphore::new(self.inner.config.concurrency));
        let cancel_permits = Arc::new(Semaphore::new(CANCEL_WORKERS));
        let workers = TaskTracker::new();
        while !stop.is_cancelled() {
            let pause = match self.start_due(&permits, &cancel_permits, &workers, &stop).await {
                Ok(pause) => {
                    self.inner.rounds.send_modify(|rounds| *rounds = rounds.wrapping_add(1));
                    pause
                }
                Err(error) => {
                    tracing::error!(error = %model::error_chain(&error), "the database failed; the dispatcher tries again in 1 s");
                    DATABASE_RETRY
                }
            };
            let since = self.clock().elapsed();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.inner.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            self.woke(since, pause);
        }
        workers.close();
        workers.wait().await;
    }

    /// Records an outage when the process stood still during a sleep of `pause` that began at `since`, as the clock counts: a stopped
    /// process or a suspended machine receives as little as one that does not run.
    pub(super) fn woke(&self, since: Duration, pause: Duration) {
        let asleep = self.clock().elapsed().saturating_sub(since);
        if asleep >= pause + STOOD_STILL {
            let now = self.clock().now();
            self.decider().outage.record(now.minus(asleep), now);
            tracing::warn!(
                seconds = asleep.as_secs(),
                "the controller stood still; deadlines that passed meanwhile are judged later"
            );
        }
    }

    /// Starts workers for due runs; returns the time until the next run is due.
    async fn start_due(
        &self,
        permits: &Arc<Semaphore>,
        cancel_permits: &Arc<Semaphore>,
        workers: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Duration, StoreError> {
        // A cancelled run does not wait for a free worker, so that its machine is cleaned up while all workers are busy and
        // a cancel is carried out by an engine without workers.
        let (free_permits, lanes) = match permits.available_permits() {
            0 => (cancel_permits, Some(Lanes::Cancelled)),
            _ => (permits, None),
        };
        let free = free_permits.available_permits();
        if free == 0 {
            // Every worker wakes the dispatcher when it ends.
            return Ok(SWEEP);
        }
        let (claimed, since, lanes) = self.claim(free, lanes).await?;
        let none = claimed.is_empty();
        for claimed in claimed {
            let Ok(permit) = Arc::clone(free_permits).try_acquire_owned() else { break };
            let engine = self.clone();
            let interrupt = Interrupt::new(stop.child_token());
            let entry = self.list(&claimed, &interrupt);
            workers.spawn(async move {
                engine.work(claimed, since, &interrupt).await;
                drop(entry);
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
        self.decider().interrupts.list(run.id, run.epoch, interrupt)
    }

    /// Claims due runs: from the given lanes, or from all lanes that pressure does not close.
    async fn claim(
        &self,
        limit: usize,
        lanes: Option<Lanes>,
    ) -> Result<(Vec<Claimed>, Duration, Lanes), StoreError> {
        let config = &self.inner.config;
        let lanes = match lanes {
            Some(lanes) => lanes,
            None if self.read_pressure().await.is_some() => Lanes::Started,
            None => Lanes::All,
        };
        let since = self.clock().elapsed();
        let (owner, queues, now) = (&config.owner, &config.queues, self.clock().now());
        let claimed =
            self.store().claim_lanes(lanes, owner, queues, limit, now, config.lease, config.grace).await?;
        Ok((claimed, since, lanes))
    }

    /// Works on one run after another until no run is due; returns the number of claims. For tests and simulations, where the
    /// clock stands still while the engine works.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn run_until_idle(&self) -> Result<usize, StoreError> {
        let mut claims = 0;
        loop {
            let (claimed, since, _) = self.claim(1, None).await?;
            let Some(claimed) = claimed.into_iter().next() else { return Ok(claims) };
            claims += 1;
            self.run_claim(claimed, since).await;
        }
    }

    /// Works on one claim in the task of the caller.
    pub(super) async fn run_claim(&self, claimed: Claimed, since: Duration) {
        let interrupt = Interrupt::default();
        let _entry = self.list(&claimed, &interrupt);
        self.work(claimed, since, &interrupt).await;
    }

    /// Carries a claimed run on until its lease is given back or lost.
    async fn work(&self, claimed: Claimed, since: Duration, interrupt: &Interrupt) {
        let run = &claimed.snapshot.run;
        let owner = run.lease.as_ref().map_or(String::new(), |lease| lease.owner.clone());
        let span = log::decision_span(run, &owner);
        let begun = self.inner.decider.begin(claimed).instrument(span.clone()).await;
        match begun {
            Ok(next) => self.inner.worker.work(next, since, interrupt).await,
            Err(error) => span.in_scope(|| {
                // The lease expires and a worker takes the run over. The database may work again by then.
                tracing::error!(error = %model::error_chain(&error), "the database failed; the run continues after its lease has expired");
            }),
        }
    }
}
