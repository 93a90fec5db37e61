//! The workflow inside the engine, with a simulated BMC on a real socket.

use lab_bmc::{
    MediaReader, MediaRefusal, MediaRequest, MediaResponse, NullHost, SimBmc, SimBmcConfig, SimBmcServer,
};
use tempfile::TempDir;

use super::*;
use bmc::test_support::{self, PASSWORD, SharedSessions, key};
use engine::{Engine, EngineConfig, WorkflowRegistry};
use media::{GrantStore, GrantStoreUnavailable, Library, LibraryOptions};
use model::{Clock, GrantReads, ManualClock, Outcome, Phase, Run, StoredGrant, SystemClock};
use store::{Created, Creation, Store};

const SERIAL: &str = "XF-1";
const LEASE: Duration = Duration::from_secs(200);
/// Longer than the time limit of diagnostics.
const TOO_LONG: Duration = Duration::from_secs(660);

/// Serves zeros, whatever the URL is.
struct Zeros;

#[async_trait]
impl MediaReader for Zeros {
    async fn fetch(&self, request: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        const LENGTH: u64 = 1 << 20;
        let Some((first, last)) = request.range.filter(|_| !request.head) else {
            return Ok(MediaResponse { status: 200, length: Some(LENGTH), ..MediaResponse::default() });
        };
        Ok(MediaResponse {
            status: 206,
            content_range: Some(format!("bytes {first}-{last}/{LENGTH}")),
            body: vec![0; usize::try_from(last - first + 1).unwrap()].into(),
            ..MediaResponse::default()
        })
    }
}

/// Grants that nothing reads: the simulated BMC reads zeros instead.
struct NoGrants;

#[async_trait]
impl GrantStore for NoGrants {
    async fn find(&self, _: &str) -> Result<Option<StoredGrant>, GrantStoreUnavailable> {
        Ok(None)
    }

    async fn record_reads(&self, _: &str, _: GrantReads) -> Result<(), GrantStoreUnavailable> {
        Ok(())
    }
}

/// One simulated BMC, one database, and engines that run the workflow on a manual clock.
struct Bench {
    folder: TempDir,
    clock: Arc<ManualClock>,
    store: Store,
    sim_bmc: SimBmc,
    server: Server,
    sessions: SharedSessions,
    _bmc: SimBmcServer,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new("2026-11-20T08:00:00Z".parse().unwrap()));
        let store = Store::open(&folder.path().join("provisioner.db"), clock.now()).unwrap();
        let config = SimBmcConfig::new(SERIAL, "root", PASSWORD);
        let sim_bmc = SimBmc::new(config, Arc::new(NullHost), Arc::new(Zeros));
        let bmc = sim_bmc.serve_on_loopback().await.unwrap();
        let server = test_support::server(SERIAL.parse().unwrap(), bmc.url(), clock.now()).unwrap();
        store.create_server(server.clone(), NewEvent::info("server.created", "registered")).await.unwrap();
        Self { folder, clock, store, sim_bmc, server, sessions: SharedSessions::default(), _bmc: bmc }
    }

    fn services(&self) -> DiagnosticsServices {
        let options = LibraryOptions {
            tls: media::tls_config(b"").unwrap(),
            max_image_bytes: 1 << 30,
            sources: media::SourcePolicy {
                addresses: media::AddressPolicy::default(),
                files: media::FilePolicy::below(self.folder.path().to_path_buf(), Vec::new()),
            },
        };
        let library = Library::open(&self.folder.path().join("library"), options).unwrap();
        DiagnosticsServices {
            bmc: Arc::new(test_support::services(self.server.clone(), self.sessions.clone())),
            grants: MediaGrants::new(Arc::new(NoGrants), library, &key(), Arc::new(SystemClock)),
        }
    }

    /// Creates an engine with separate connections.
    fn engine(&self, owner: &str) -> Engine {
        let config = EngineConfig {
            owner: owner.to_owned(),
            queues: vec![QUEUE.to_owned()],
            concurrency: 1,
            lease: LEASE,
            grace: Duration::from_secs(30),
        };
        let workflow = DiagnosticsWorkflow::new(Arc::new(self.services()));
        let workflows = WorkflowRegistry::default().with(Arc::new(workflow));
        Engine::new(self.store.clone(), workflows, Arc::clone(&self.clock) as Arc<dyn Clock>, config)
    }

    async fn snapshot(&self, id: RunId) -> Snapshot {
        self.store.snapshot(id).await.unwrap().unwrap()
    }

    async fn events(&self, id: RunId) -> Vec<String> {
        let events = self.store.last_events(id, 1000).await.unwrap();
        events.into_iter().map(|event| format!("{} {}", event.kind, event.message)).collect()
    }

    /// Runs diagnostics to their end; the clock advances only when nothing is due.
    async fn run_to_end(&self, engine: &Engine, id: RunId) -> Run {
        for _ in 0..500 {
            engine.run_until_idle().await.unwrap();
            let run = self.snapshot(id).await.run;
            if run.phase == Phase::Ended {
                return run;
            }
            let due = run.next_run_at.unwrap();
            self.clock.advance(due.since(self.clock.now()) + Duration::from_millis(1));
        }
        panic!("no end: {:#?}", self.events(id).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_diagnostics_eject_the_test_image_and_report_a_failure() {
    let bench = Bench::new().await;
    let images = || bench.sim_bmc.snapshot().slots.iter().filter(|slot| slot.image.is_some()).count();
    let first = bench.engine("one");
    let id = RunId::new();
    let ordered = DiagnosticsOrder { server: SERIAL.parse().unwrap(), write_boot: false, retry_of: None };
    let seed = serde_json::from_value(json!({ "token_seed": "0".repeat(64) })).unwrap();
    let run = order(&ordered, id, seed, "operator", bench.clock.now());
    assert!(matches!(first.create(Creation { run }).await.unwrap(), Created::New(_)));
    let inserted = async {
        while images() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        run = bench.run_to_end(&first, id) => panic!("ended before its worker died: {run:?}"),
        () = inserted => {}
    }
    assert!(result_of(&bench.snapshot(id).await).is_none(), "it has not ended");

    bench.clock.advance(TOO_LONG);
    let run = bench.run_to_end(&bench.engine("two"), id).await;
    assert_eq!(run.outcome, Some(Outcome::Failed), "{:#?}", bench.events(id).await);
    assert_eq!(images(), 0);
    let found = result_of(&bench.snapshot(id).await).unwrap();
    let last = found.checks.last().unwrap();
    assert!(last.name == "connect" && !last.next_action.is_empty(), "{last:?}");
    let grants = bench.store.grants(id).await.unwrap();
    assert!(grants.len() == 1 && grants[0].ended_at.is_some(), "the grant of the image has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_override_that_a_killed_worker_had_set_is_cleared() {
    let bench = Bench::new().await;
    let is_set = || bench.sim_bmc.snapshot().boot.enabled != lab_bmc::OverrideEnabled::Disabled;
    // The request that clears it has no response, so that the worker dies between the two.
    bench.sim_bmc.inject(lab_bmc::Fault {
        only_if: Some(lab_bmc::FaultCondition::OverrideSet),
        ..lab_bmc::Fault::once(lab_bmc::FaultTrigger::PatchBoot, lab_bmc::FaultEffect::Hang)
    });
    let first = bench.engine("one");
    let id = RunId::new();
    let ordered = DiagnosticsOrder { server: SERIAL.parse().unwrap(), write_boot: true, retry_of: None };
    let seed = serde_json::from_value(json!({ "token_seed": "0".repeat(64) })).unwrap();
    let run = order(&ordered, id, seed, "operator", bench.clock.now());
    assert!(matches!(first.create(Creation { run }).await.unwrap(), Created::New(_)));
    let set = async {
        while !is_set() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        run = bench.run_to_end(&first, id) => panic!("ended before its worker died: {run:?}"),
        () = set => {}
    }
    assert!(is_set());
    bench.clock.advance(TOO_LONG);
    bench.run_to_end(&bench.engine("two"), id).await;
    assert!(!is_set(), "{:#?}", bench.events(id).await);
}
