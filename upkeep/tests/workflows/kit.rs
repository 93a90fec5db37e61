//! A controller without a step of its queue, a worker elsewhere, and one simulated BMC on a real socket.
//!
//! ```text
//!   Worker, its own connections to the BMC --Backend--> JSON --> RemoteQueues of the controller's engine --> store
//! ```

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lab_bmc::{MediaReader, NullHost, SimBmc, SimBmcConfig, SimBmcServer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use bmc::test_support::{self, PASSWORD, SharedSessions};
use bmc::{BmcServices, ServerLookup, Unavailable};
use engine::{
    Backend, BackendError, CallKey, Engine, EngineConfig, NextCall, Progress, RemoteNext, RemoteQueues,
    ReportMessage, StepCall, StepReport, Worker, WorkflowRegistry,
};
use model::{
    Clock, Effect, ManualClock, NewEvent, Phase, Run, RunId, Serial, Server, StepRecord, Time,
    UnfinishedRuns, Verb, Wait,
};
use store::{Created, Creation, Store};
use upkeep::{FirmwareStore, HardwareLookup, ImageUrls, Upkeep, UpkeepAction, UpkeepOrder, UpkeepServices};

use crate::counted::Calls;
use crate::images::{Files, MediaServer, NoUrls};

pub(crate) const SERIAL: &str = "XF-1";
const FAR: &str = "far";
pub(crate) const LEASE: Duration = Duration::from_secs(200);
pub(crate) const GRACE: Duration = Duration::from_secs(30);

struct NoHardware;

#[async_trait]
impl HardwareLookup for NoHardware {
    async fn hardware(&self, _: &Serial) -> Result<Option<serde_json::Value>, Unavailable> {
        Ok(None)
    }
}

/// The record of a server as it is stored.
struct Records(Store);

#[async_trait]
impl ServerLookup for Records {
    async fn server(&self, serial: &Serial) -> Result<Option<Server>, Unavailable> {
        self.0.server(serial).await.map_err(|why| Unavailable(why.to_string()))
    }
}

/// The link of a worker.
struct Link {
    queues: RemoteQueues,
    checkpoints: AtomicU64,
    /// Whether the worker receives what the controller says about its lease.
    truthful: bool,
}

/// What arrives at the other side.
fn sent<T: Serialize + DeserializeOwned>(message: &T) -> T {
    serde_json::from_slice(&serde_json::to_vec(message).unwrap()).unwrap()
}

fn failed(error: engine::RemoteError) -> BackendError {
    BackendError(Box::new(error))
}

#[async_trait]
impl Progress for Link {
    async fn progress(
        &self,
        run: &Run,
        record: StepRecord,
        effects: Vec<Effect>,
    ) -> Result<bool, BackendError> {
        assert!(effects.is_empty(), "a message of progress carries no effects: {effects:?}");
        let key = CallKey { run: run.id, epoch: run.epoch, at: record.at, attempt: record.attempt };
        let number = self.checkpoints.fetch_add(1, Ordering::Relaxed) + 1;
        let held = self.queues.progress(&sent(&key), number, sent(&record.output)).await.map_err(failed)?;
        Ok(held || !self.truthful)
    }
}

#[async_trait]
impl Backend for Link {
    async fn report(
        &self,
        call: &StepCall,
        _: StepRecord,
        report: StepReport,
    ) -> Result<NextCall, BackendError> {
        let message = sent(&ReportMessage::of(call, &report));
        Ok(match self.queues.report(&sent(&CallKey::of(call)), message).await.map_err(failed)? {
            RemoteNext::Call(message) => NextCall::Call(Box::new(sent(&*message).call())),
            RemoteNext::Released => NextCall::Released,
            RemoteNext::Lost => NextCall::Lost,
        })
    }

    async fn release(&self, call: &StepCall) -> Result<(), BackendError> {
        self.queues.release(&sent(&CallKey::of(call))).await.map_err(failed)
    }
}

/// A worker elsewhere with connections of its own.
pub(crate) struct Elsewhere {
    link: Arc<Link>,
    worker: Worker,
    clock: Arc<dyn Clock>,
}

impl Elsewhere {
    /// Claims and works until no run is due; returns the number of claims.
    pub(crate) async fn run_until_idle(&self) -> usize {
        let mut claims = 0;
        loop {
            let since = self.clock.elapsed();
            let claimed = self.link.queues.claim(1, self.clock.now()).await.unwrap();
            let Some(call) = claimed.unwrap_or_default().pop() else { return claims };
            claims += 1;
            Box::pin(self.worker.run(sent(&call).call(), since, &CancellationToken::new())).await;
        }
    }
}

/// One simulated BMC, and a controller without a step of its queue.
pub(crate) struct Bench {
    _folder: TempDir,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Store,
    engine: Engine,
    pub(crate) sim_bmc: SimBmc,
    /// The calls of its workers.
    pub(crate) calls: Calls,
    firmware: Arc<Files>,
    server: Server,
    _bmc: SimBmcServer,
}

/// The workflows of one program: its own connections, and the URLs that it gives out.
fn workflows(
    server: &Server,
    store: &Store,
    firmware: &Arc<Files>,
    urls: Arc<dyn ImageUrls>,
    calls: &Calls,
) -> WorkflowRegistry {
    let bmc = test_support::services(server.clone(), SharedSessions::default());
    let services = Arc::new(UpkeepServices {
        bmc: Arc::new(BmcServices { servers: Box::new(Records(store.clone())), ..bmc }),
        hardware: Box::new(NoHardware),
        firmware: Arc::clone(firmware) as Arc<dyn FirmwareStore>,
        urls,
        power_ons: Some(4),
    });
    let all = Upkeep::workflows(&services).into_iter().map(|workflow| calls.count(workflow));
    all.fold(WorkflowRegistry::default(), WorkflowRegistry::with)
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(SimBmcConfig::new(SERIAL, "root", PASSWORD)).await
    }

    /// A bench with this BMC, whose host runs.
    pub(crate) async fn with(config: SimBmcConfig) -> Self {
        Self::with_files(config, Files::default()).await
    }

    /// A bench with this BMC, whose host runs, and firmware files.
    pub(crate) async fn with_files(mut config: SimBmcConfig, files: Files) -> Self {
        let firmware = Arc::new(files);
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new("2026-11-20T08:00:00Z".parse().unwrap()));
        let store = Store::open(&folder.path().join("provisioner.db"), clock.now()).unwrap();
        config.starts_on = true;
        let media = Arc::new(MediaServer::new(Arc::clone(&clock)));
        let sim_bmc = SimBmc::new(config, Arc::new(NullHost), Arc::clone(&media) as Arc<dyn MediaReader>);
        let calls = Calls::of(sim_bmc.clone());
        let bmc = sim_bmc.serve_on_loopback().await.unwrap();
        let server = test_support::server(SERIAL.parse().unwrap(), bmc.url(), clock.now()).unwrap();
        store.create_server(server.clone(), NewEvent::info("server.created", "registered")).await.unwrap();
        let config = EngineConfig {
            owner: "controller".to_owned(),
            queues: vec![bmc::QUEUE.to_owned()],
            concurrency: 4,
            lease: LEASE,
            grace: GRACE,
        };
        let its_clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let its_workflows = workflows(&server, &store, &firmware, media, &calls);
        let engine = Engine::new(store.clone(), its_workflows, its_clock, config);
        Self { _folder: folder, clock, store, engine, sim_bmc, calls, firmware, server, _bmc: bmc }
    }

    /// Changes the record of the server as an operator does.
    pub(crate) async fn change(&self, change: impl FnOnce(Server) -> Server) {
        let server = self.store.server(&self.server.serial).await.unwrap().unwrap();
        let event = NewEvent::info("server.updated", "changed");
        let certificate = store::CertificateChange::Replace { from: server.tls_fingerprint.clone() };
        let updated = self.store.update_server(change(server), certificate, event, None).await.unwrap();
        assert!(matches!(updated, store::UpdatedServer::Updated(_)));
    }

    pub(crate) fn clock_now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn worker(&self, name: &str) -> Elsewhere {
        self.worker_with(name, &self.clock, true)
    }

    pub(crate) fn worker_with(&self, name: &str, clock: &Arc<ManualClock>, truthful: bool) -> Elsewhere {
        let queues = BTreeSet::from([FAR.to_owned()]);
        let queues = self.engine.remote_queues(name, &queues).unwrap();
        let link = Arc::new(Link { queues, checkpoints: AtomicU64::default(), truthful });
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let backend = Arc::clone(&link) as Arc<dyn Backend>;
        let workflows = workflows(&self.server, &self.store, &self.firmware, Arc::new(NoUrls), &self.calls);
        let worker = Worker::new(backend, workflows, Arc::clone(&clock), LEASE);
        Elsewhere { link, worker, clock }
    }

    /// Orders an action whose steps are all of the queue of the worker.
    pub(crate) async fn order(&self, action: UpkeepAction) -> RunId {
        self.order_for(FAR, action).await
    }

    /// Orders an action that the controller itself carries out, and works to the end of the run.
    pub(crate) async fn run_here(&self, action: UpkeepAction) -> Run {
        let id = self.order_for(bmc::QUEUE, action).await;
        for _ in 0..5000 {
            self.engine.run_until_idle().await.unwrap();
            let run = self.run(id).await;
            if run.phase == Phase::Ended {
                return run;
            }
            self.pass_to(&run);
        }
        panic!("no end: {}", self.stored(id).await);
    }

    async fn order_for(&self, queue: &str, action: UpkeepAction) -> RunId {
        let id = RunId::new();
        let order = UpkeepOrder::new(SERIAL.parse().unwrap(), action);
        let mut run = order.run(id, "operator", self.clock.now());
        for step in run.plan.forward.iter_mut().chain(&mut run.plan.finish) {
            queue.clone_into(&mut step.queue);
        }
        assert!(matches!(self.engine.create(Creation { run }).await.unwrap(), Created::New(_)));
        id
    }

    async fn run(&self, id: RunId) -> Run {
        self.store.snapshot(id).await.unwrap().unwrap().run
    }

    /// Makes the data a copy of itself, and releases the server as an operator does.
    pub(crate) async fn restore_and_release(&self, runs: UnfinishedRuns) {
        let copied = Some("the data was restored".to_owned());
        assert_eq!(self.store.set_origin("mark".to_owned(), copied, self.clock.now()).await.unwrap(), 1);
        let released = self.engine.release_server(&self.server.serial, Some(runs), "ann", self.clock.now());
        assert!(matches!(released.await.unwrap(), store::ReleasedServer::Released(_)));
    }

    pub(crate) async fn has_ended(&self, id: RunId) -> bool {
        self.run(id).await.phase == Phase::Ended
    }

    /// Everything that is stored about a run.
    pub(crate) async fn stored(&self, id: RunId) -> String {
        let events = self.store.last_events(id, 1000).await.unwrap();
        format!("{:#?} {events:#?}", self.store.snapshot(id).await.unwrap())
    }

    /// Stops a first worker for good as soon as the BMC has received request number `last` since now, and lets another one end the
    /// run. `None` when the first one ends the run with fewer requests.
    pub(crate) async fn run_with_a_death(&self, last: u64, id: RunId) -> Option<Run> {
        let last = self.sim_bmc.snapshot().requests + last;
        let first = self.worker("w1");
        let died = {
            // The clock advances when the worker has nothing to do, so that the run passes its waits.
            let works = async {
                loop {
                    first.run_until_idle().await;
                    let Some(due) = self.run(id).await.next_run_at else { return };
                    self.clock.advance(due.since(self.clock.now()) + Duration::from_millis(1));
                }
            };
            let mut works = pin!(works);
            tokio::select! {
                biased;
                _ = self.sim_bmc.wait_for(|sim_bmc| sim_bmc.requests >= last) => true,
                () = &mut works => false,
            }
        };
        if !died {
            return None;
        }
        self.sim_bmc.wait_for(|sim_bmc| sim_bmc.in_flight == 0).await;
        self.clock.advance(LEASE + GRACE + Duration::from_secs(1));
        Some(self.run_to_end(&self.worker("w2"), id).await)
    }

    /// Works to the end of the run; the clock advances only when nothing is due.
    pub(crate) async fn run_to_end(&self, worker: &Elsewhere, id: RunId) -> Run {
        self.run_until(worker, id, |run| run.phase == Phase::Ended).await
    }

    /// Advances the clock until the run is due.
    fn pass_to(&self, run: &Run) {
        let due = run.next_run_at.unwrap();
        self.clock.advance(due.since(self.clock.now()) + Duration::from_millis(1));
    }

    /// Works until the run waits for this reason.
    pub(crate) async fn run_to_wait(&self, worker: &Elsewhere, id: RunId, reason: &str) {
        self.run_to(worker, id, reason, |wait| wait.reason == reason).await;
    }

    /// Works until the run waits with these words.
    pub(crate) async fn run_to_words(&self, worker: &Elsewhere, id: RunId, words: &str) {
        self.run_to(worker, id, words, |wait| wait.detail.contains(words)).await;
    }

    async fn run_to(&self, worker: &Elsewhere, id: RunId, what: &str, is_it: impl Fn(&Wait) -> bool) {
        let waits = |run: &Run| run.wait.as_ref().is_some_and(&is_it);
        self.run_until(worker, id, |run| waits(run) || run.phase == Phase::Ended).await;
        assert!(waits(&self.run(id).await), "no wait {what}: {}", self.stored(id).await);
    }

    /// Works while this holds, and until the run ends at most.
    pub(crate) async fn run_while(&self, worker: &Elsewhere, id: RunId, holds: impl Fn() -> bool) {
        self.run_until(worker, id, |run| !holds() || run.phase == Phase::Ended).await;
    }

    /// Why the run is where it is, for operators.
    pub(crate) async fn explained(&self, id: RunId) -> String {
        let snapshot = self.store.snapshot(id).await.unwrap().unwrap();
        self.engine.explain(&snapshot).await.unwrap().summary
    }

    /// Cancels a run as an operator does.
    pub(crate) async fn cancel(&self, id: RunId) {
        self.engine.verb(id, Verb::Cancel, "ann", "wrong server").await.unwrap();
    }

    async fn run_until(&self, worker: &Elsewhere, id: RunId, is_reached: impl Fn(&Run) -> bool) -> Run {
        for _ in 0..5000 {
            worker.run_until_idle().await;
            assert_eq!(
                self.engine.run_until_idle().await.unwrap(),
                0,
                "the controller has no step of the run"
            );
            let run = self.run(id).await;
            if is_reached(&run) {
                return run;
            }
            self.pass_to(&run);
        }
        panic!("no end: {}", self.stored(id).await);
    }
}
