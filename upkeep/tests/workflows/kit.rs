//! A controller without a step of its queue, a worker elsewhere, and one simulated BMC on a real socket.
//!
//! ```text
//!   Worker, its own connections to the BMC --Backend--> JSON --> RemoteQueues of the controller's engine --> store
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lab_bmc::{
    MediaReader, MediaRefusal, MediaRequest, MediaResponse, NullHost, SimBmc, SimBmcConfig, SimBmcServer,
};
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
    Clock, Effect, ManualClock, NewEvent, Phase, Position, Run, RunId, Serial, Server, StepRecord, Time,
    UnfinishedRuns,
};
use store::{Created, Creation, Store};
use upkeep::{
    FirmwareFileError, FirmwareStore, HardwareLookup, ImageReads, ImageUrls, IssuedUrl, Upkeep, UpkeepAction,
    UpkeepOrder, UpkeepServices, UrlOrder,
};

pub(crate) const SERIAL: &str = "XF-1";
const FAR: &str = "far";
pub(crate) const LEASE: Duration = Duration::from_secs(200);
pub(crate) const GRACE: Duration = Duration::from_secs(30);

struct NoMedia;

#[async_trait]
impl MediaReader for NoMedia {
    async fn fetch(&self, _: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        Ok(MediaResponse { status: 404, ..MediaResponse::default() })
    }
}

struct NoHardware;

#[async_trait]
impl HardwareLookup for NoHardware {
    async fn hardware(&self, _: &Serial) -> Result<Option<serde_json::Value>, Unavailable> {
        Ok(None)
    }
}

/// Firmware files in memory, by digest.
#[derive(Default)]
pub(crate) struct Files(pub(crate) BTreeMap<String, (firmware::FirmwareFile, Arc<[u8]>)>);

#[async_trait]
impl FirmwareStore for Files {
    async fn hold(&self, _: RunId, _: &[firmware::Entry]) -> Result<(), FirmwareFileError> {
        Ok(())
    }

    async fn open(&self, file: &firmware::Entry) -> Result<firmware::VerifiedFirmware, FirmwareFileError> {
        let gone = || FirmwareFileError::Unusable("there is no file".to_owned());
        let (file, image) = self.0.get(&file.digest).ok_or_else(gone)?;
        let checked = firmware::VerifiedFirmware::check_bytes(Arc::clone(image), file.clone());
        checked.map_err(|why| FirmwareFileError::Unusable(why.to_string()))
    }

    async fn release(&self, _: RunId) -> Result<(), FirmwareFileError> {
        Ok(())
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

struct NoUrls;

#[async_trait]
impl ImageUrls for NoUrls {
    fn issue(&self, _: &UrlOrder<'_>) -> Result<IssuedUrl, String> {
        Err("nothing is served".to_owned())
    }

    async fn reads(&self, _: &str) -> Result<ImageReads, bmc::Unavailable> {
        Ok(ImageReads::default())
    }

    fn ended(&self, _: RunId) {}
}

/// The link of a worker.
struct Link {
    queues: RemoteQueues,
    /// Whether the worker receives what the controller says about its lease.
    truthful: bool,
    sim_bmc: SimBmc,
    calls: Arc<Mutex<Vec<Reported>>>,
}

/// A call of a step that has reported.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    at: Position,
    pub(crate) step: String,
    /// The component of the step; empty for a step of the whole run.
    pub(crate) key: String,
    waits: bool,
    /// Whether the call before it at this place of the plan waited, so that this one looked again.
    pub(crate) is_poll: bool,
    /// How many requests the BMC had received at its end.
    seen: u64,
    /// How many requests the call sent.
    pub(crate) requests: u64,
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
        let held = self.queues.progress(&sent(&key), sent(&record.output)).await.map_err(failed)?;
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
        let seen = self.sim_bmc.snapshot().requests;
        let waits = matches!(report.outcome, engine::StepOutcome::Wait(_));
        {
            let mut calls = self.calls.lock().unwrap();
            let requests = seen - calls.last().map_or(0, |last| last.seen);
            let is_poll = calls.last().is_some_and(|last| last.at == call.record.at && last.waits);
            let (at, step, key) = (call.record.at, call.record.name.to_string(), call.record.key.clone());
            calls.push(Reported { at, step, key, waits, is_poll, seen, requests });
        }
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
    pub(crate) calls: Arc<Mutex<Vec<Reported>>>,
    firmware: Arc<Files>,
    server: Server,
    _bmc: SimBmcServer,
}

fn services(server: &Server, store: &Store, firmware: &Arc<Files>) -> WorkflowRegistry {
    let bmc = test_support::services(server.clone(), SharedSessions::default());
    let services = Arc::new(UpkeepServices {
        bmc: Arc::new(BmcServices { servers: Box::new(Records(store.clone())), ..bmc }),
        hardware: Box::new(NoHardware),
        firmware: Arc::clone(firmware) as Arc<dyn FirmwareStore>,
        urls: Arc::new(NoUrls),
        power_ons: Some(4),
    });
    Upkeep::workflows(&services).into_iter().fold(WorkflowRegistry::default(), WorkflowRegistry::with)
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
        let sim_bmc = SimBmc::new(config, Arc::new(NullHost), Arc::new(NoMedia));
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
        let engine = Engine::new(store.clone(), services(&server, &store, &firmware), its_clock, config);
        let calls = Arc::default();
        Self { _folder: folder, clock, store, engine, sim_bmc, calls, firmware, server, _bmc: bmc }
    }

    /// Changes the record of the server as an operator does.
    pub(crate) async fn change(&self, change: impl FnOnce(Server) -> Server) {
        let server = self.store.server(&self.server.serial).await.unwrap().unwrap();
        let event = NewEvent::info("server.updated", "changed");
        let updated = self.store.update_server(change(server), event, None).await.unwrap();
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
        let (sim_bmc, calls) = (self.sim_bmc.clone(), Arc::clone(&self.calls));
        let link = Arc::new(Link { queues, truthful, sim_bmc, calls });
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let backend = Arc::clone(&link) as Arc<dyn Backend>;
        let workflows = services(&self.server, &self.store, &self.firmware);
        let worker = Worker::new(backend, workflows, Arc::clone(&clock), LEASE);
        Elsewhere { link, worker, clock }
    }

    /// Orders an action whose steps are all of the queue of the worker.
    pub(crate) async fn order(&self, action: UpkeepAction) -> RunId {
        let id = RunId::new();
        let order = UpkeepOrder::new(SERIAL.parse().unwrap(), action);
        let mut run = order.run(id, "operator", self.clock.now());
        for step in run.plan.forward.iter_mut().chain(&mut run.plan.finish) {
            FAR.clone_into(&mut step.queue);
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

    /// Works until the run waits for this reason.
    pub(crate) async fn run_to_wait(&self, worker: &Elsewhere, id: RunId, reason: &str) {
        let waits = |run: &Run| run.wait.as_ref().is_some_and(|wait| wait.reason == reason);
        self.run_until(worker, id, |run| waits(run) || run.phase == Phase::Ended).await;
        assert!(waits(&self.run(id).await), "no wait {reason}: {}", self.stored(id).await);
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
            let due = run.next_run_at.unwrap();
            self.clock.advance(due.since(self.clock.now()) + Duration::from_millis(1));
        }
        panic!("no end: {}", self.stored(id).await);
    }
}
