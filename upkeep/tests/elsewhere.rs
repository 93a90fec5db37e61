//! The workflows in a worker elsewhere, with a simulated BMC on a real socket. Every command crosses a link as JSON (decision D33).
//!
//! ```text
//!   Worker, its own connections to the BMC --Backend--> JSON --> RemoteQueues of the controller's engine --> store
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use lab_bmc::{
    JournalItem, MediaReader, MediaRefusal, MediaRequest, MediaResponse, NullHost, SimBmc, SimBmcConfig,
    SimBmcServer,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use bmc::Unavailable;
use bmc::test_support::{self, PASSWORD, SharedSessions};
use engine::model::{
    Clock, Effect, ManualClock, NewEvent, Outcome, Phase, Run, RunId, Serial, Server, StepRecord,
};
use engine::store::Store;
use engine::{
    Backend, BackendError, CallKey, Created, Creation, Engine, EngineConfig, NextCall, Progress, RemoteNext,
    RemoteQueues, ReportMessage, StepCall, StepReport, Worker, WorkflowRegistry,
};
use upkeep::order::{HardCycle, ReadInventory, SoftCycle};
use upkeep::{
    Action, FirmwareFileError, FirmwareStore, HardwareLookup, ImageReads, ImageUrl, ImageUrls, Upkeep,
    UpkeepOrder, UpkeepServices, UrlOrder,
};

const SERIAL: &str = "XF-1";
const FAR: &str = "far";
const LEASE: Duration = Duration::from_secs(200);
const GRACE: Duration = Duration::from_secs(30);
/// A late worker that has not ended after this time is stuck.
const STUCK: Duration = Duration::from_secs(30);

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

struct NoFirmware;

#[async_trait]
impl FirmwareStore for NoFirmware {
    async fn hold(&self, _: RunId, _: &[firmware::Entry]) -> Result<(), FirmwareFileError> {
        Ok(())
    }

    async fn open(&self, _: &firmware::Entry) -> Result<firmware::VerifiedFirmware, FirmwareFileError> {
        Err(FirmwareFileError::Unusable("there is no file".to_owned()))
    }

    async fn release(&self, _: RunId) -> Result<(), FirmwareFileError> {
        Ok(())
    }
}

struct NoUrls;

#[async_trait]
impl ImageUrls for NoUrls {
    fn issue(&self, _: &UrlOrder<'_>) -> Result<ImageUrl, String> {
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
struct Elsewhere {
    link: Arc<Link>,
    worker: Worker,
    clock: Arc<dyn Clock>,
}

impl Elsewhere {
    /// Claims and works until no run is due; returns the number of claims.
    async fn run_until_idle(&self) -> usize {
        let mut claims = 0;
        loop {
            let since = self.clock.elapsed();
            let Some(call) = self.link.queues.claim(1).await.unwrap().pop() else { return claims };
            claims += 1;
            Box::pin(self.worker.run(sent(&call).call(), since, &CancellationToken::new())).await;
        }
    }
}

/// One simulated BMC, and a controller without a step of its queue.
struct Bench {
    _folder: TempDir,
    clock: Arc<ManualClock>,
    store: Store,
    engine: Engine,
    sim_bmc: SimBmc,
    server: Server,
    _bmc: SimBmcServer,
}

fn services(server: &Server) -> WorkflowRegistry {
    let services = Arc::new(UpkeepServices {
        bmc: Arc::new(test_support::services(server.clone(), SharedSessions::default())),
        hardware: Box::new(NoHardware),
        firmware: Arc::new(NoFirmware),
        urls: Arc::new(NoUrls),
        power_ons: Some(4),
    });
    Upkeep::workflows(&services).into_iter().fold(WorkflowRegistry::default(), WorkflowRegistry::with)
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new("2026-11-20T08:00:00Z".parse().unwrap()));
        let store = Store::open(&folder.path().join("provisioner.db"), clock.now()).unwrap();
        let mut config = SimBmcConfig::new(SERIAL, "root", PASSWORD);
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
        let engine = Engine::new(store.clone(), services(&server), its_clock, config);
        Self { _folder: folder, clock, store, engine, sim_bmc, server, _bmc: bmc }
    }

    fn worker(&self, name: &str) -> Elsewhere {
        self.worker_with(name, &self.clock, true)
    }

    fn worker_with(&self, name: &str, clock: &Arc<ManualClock>, truthful: bool) -> Elsewhere {
        let queues = BTreeSet::from([FAR.to_owned()]);
        let queues = self.engine.remote_queues(name, &queues).unwrap();
        let link = Arc::new(Link { queues, truthful });
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let backend = Arc::clone(&link) as Arc<dyn Backend>;
        let worker = Worker::new(backend, services(&self.server), Arc::clone(&clock), LEASE);
        Elsewhere { link, worker, clock }
    }

    /// Orders an action whose steps are all of the queue of the worker.
    async fn order(&self, action: Action) -> RunId {
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

    /// Everything that is stored about a run.
    async fn stored(&self, id: RunId) -> String {
        let events = self.store.last_events(id, 1000).await.unwrap();
        format!("{:#?} {events:#?}", self.store.snapshot(id).await.unwrap())
    }

    /// Works to the end of the run; the clock advances only when nothing is due.
    async fn run_to_end(&self, worker: &Elsewhere, id: RunId) -> Run {
        for _ in 0..500 {
            worker.run_until_idle().await;
            assert_eq!(
                self.engine.run_until_idle().await.unwrap(),
                0,
                "the controller has no step of the run"
            );
            let run = self.run(id).await;
            if run.phase == Phase::Ended {
                return run;
            }
            let due = run.next_run_at.unwrap();
            self.clock.advance(due.since(self.clock.now()) + Duration::from_millis(1));
        }
        panic!("no end: {}", self.stored(id).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn power_cycles_and_the_inventory_are_executed_elsewhere() {
    let bench = Bench::new().await;
    let worker = bench.worker("w1");
    let actions = [
        Action::Inventory(ReadInventory::default()),
        Action::Hard(HardCycle::default()),
        Action::Soft(SoftCycle { force: true, ..SoftCycle::default() }),
    ];
    for action in actions {
        let kind = action.kind();
        let id = bench.order(action).await;
        let run = bench.run_to_end(&worker, id).await;
        assert_eq!(run.outcome, Some(Outcome::Succeeded), "{kind}: {}", bench.stored(id).await);
    }
    let hardware = bench.store.server_hardware(&SERIAL.parse().unwrap()).await.unwrap();
    assert!(hardware.is_some(), "the inventory of the worker is stored");
    assert_eq!(bench.sim_bmc.snapshot().open_sessions, 0);
}

/// What a late worker did after it continued.
struct Late {
    mutated: bool,
    wrote: bool,
    sent: usize,
}

/// Pauses the first worker as soon as the BMC has received request number `pause`; another worker ends the run, then the first
/// one continues. `None` when the run needs fewer requests. `obeys`: whether the first worker can notice that its lease is lost, by
/// its clock and by its checkpoints.
async fn late_worker(pause: u64, obeys: bool) -> Option<Late> {
    let bench = Bench::new().await;
    let ready = bench.sim_bmc.snapshot().requests;
    let stopped = Arc::new(ManualClock::new(bench.clock.now()));
    let first = bench.worker_with("w1", if obeys { &bench.clock } else { &stopped }, obeys);
    let id = bench.order(Action::Hard(HardCycle::default())).await;
    let mut late = pin!(first.run_until_idle());
    let paused = tokio::select! {
        biased;
        _ = bench.sim_bmc.wait_for(|sim_bmc| sim_bmc.requests >= ready + pause) => true,
        _ = &mut late => false,
    };
    if !paused {
        return None;
    }
    // The future of the first worker is not polled from here on.
    bench.sim_bmc.wait_for(|sim_bmc| sim_bmc.in_flight == 0).await;
    bench.clock.advance(LEASE + GRACE + Duration::from_secs(1));
    let run = bench.run_to_end(&bench.worker("w2"), id).await;
    assert_eq!(run.outcome, Some(Outcome::Succeeded), "{}", bench.stored(id).await);
    let (ended, before) =
        (bench.sim_bmc.journal().last().map_or(0, |entry| entry.sequence), bench.stored(id).await);
    tokio::time::timeout(STUCK, late).await.expect("the late worker ends");
    let later: Vec<bool> = bench
        .sim_bmc
        .journal()
        .iter()
        .filter(|entry| entry.sequence > ended)
        .filter_map(|entry| match &entry.what {
            JournalItem::Request { operation, .. } => Some(operation.is_mutation()),
            JournalItem::Change(_) => None,
        })
        .collect();
    let mutated = later.contains(&true);
    Some(Late { mutated, wrote: bench.stored(id).await != before, sent: later.len() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_elsewhere_that_is_late_at_any_request_writes_nothing_and_changes_no_bmc() {
    let mut wrong = Vec::new();
    for pause in 1.. {
        let Some(late) = Box::pin(late_worker(pause, true)).await else {
            assert!(pause > 5, "a power cycle needs more than {pause} requests");
            break;
        };
        if late.wrote || late.mutated || late.sent > 0 {
            wrong.push(format!("paused at {pause}: wrote {}, sent {}", late.wrote, late.sent));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The mutant: a fence that always allows, because the clock of the worker does not advance, and checkpoints that never say that the
/// lease is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_elsewhere_that_ignores_its_lease_is_caught() {
    let mut caught = false;
    for pause in 1.. {
        let Some(late) = Box::pin(late_worker(pause, false)).await else { break };
        assert!(!late.wrote, "the epoch in the database needs no clock of the worker");
        caught |= late.mutated;
    }
    assert!(caught, "no late worker changed the machine although none noticed that its lease was lost");
}
