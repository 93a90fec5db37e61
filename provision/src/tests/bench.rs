//! A test bench: one simulated BMC on a real socket, one database, and engines that run the workflow on a manual clock, which
//! advances only when nothing is due.

use std::sync::Arc;

use async_trait::async_trait;
use http::Method;
use lab_bmc::{
    JournalItem, MediaReader, MediaRefusal, MediaRequest, MediaResponse, NullHost, RequestKind, SimBmc,
    SimBmcConfig, SimBmcServer, StateChange,
};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use bmc::test_support::PASSWORD;
use model::{ManualClock, PendingCleanup, Phase, Run, Snapshot};

/// Shorter than the cleanup timeout, so that a second worker has time left.
pub(super) const LEASE: Duration = Duration::from_secs(200);
pub(super) const GRACE: Duration = Duration::from_secs(30);
const SERIAL: &str = "XF-1";

/// The distance of the second volume descriptor from the first in bytes.
const BOOT_RECORD: usize = 2048;

/// Returns the bytes of valid images; no server is needed.
struct StubImages;

#[async_trait]
impl MediaReader for StubImages {
    async fn fetch(&self, request: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        const LENGTH: u64 = 1 << 20;
        let Some((first, last)) = request.range.filter(|_| !request.head) else {
            return Ok(MediaResponse { status: 200, length: Some(LENGTH), ..MediaResponse::default() });
        };
        let mut body = vec![0; usize::try_from(last - first + 1).unwrap()];
        // A request for more than the first sectors reads the volume descriptors.
        if request.url.file_name().starts_with("boot") && body.len() > 2 * BOOT_RECORD {
            body[..6].copy_from_slice(b"\x01CD001");
            body[BOOT_RECORD..BOOT_RECORD + 6].copy_from_slice(b"\x00CD001");
            body[BOOT_RECORD + 7..BOOT_RECORD + 30].copy_from_slice(b"EL TORITO SPECIFICATION");
        }
        Ok(MediaResponse {
            status: 206,
            content_range: Some(format!("bytes {first}-{last}/{LENGTH}")),
            body: body.into(),
            ..MediaResponse::default()
        })
    }
}

pub(super) struct Bench {
    folder: TempDir,
    pub(super) clock: Arc<ManualClock>,
    pub(super) store: Store,
    pub(super) sim_bmc: SimBmc,
    server: Server,
    sessions: SharedSessions,
    _bmc: SimBmcServer,
}

impl Bench {
    /// Registers a server that is off and has had no job.
    pub(super) async fn new(change: impl FnOnce(&mut SimBmcConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new("2026-11-20T08:00:00Z".parse().unwrap()));
        let store = Store::open(&folder.path().join("provisioner.db"), clock.now()).unwrap();
        let mut config = SimBmcConfig::new(SERIAL, "root", PASSWORD);
        change(&mut config);
        let sim_bmc = SimBmc::new(config, Arc::new(NullHost), Arc::new(StubImages));
        let bmc = sim_bmc.serve_on_loopback().await.unwrap();
        let server = Server { bmc_address: bmc.url(), ..server(clock.now()) };
        store.create_server(server.clone(), NewEvent::info("server.created", "registered")).await.unwrap();
        Self { folder, clock, store, sim_bmc, server, sessions: SharedSessions::default(), _bmc: bmc }
    }

    pub(super) fn services(&self) -> Arc<Services> {
        services(self.folder.path(), self.server.clone(), self.sessions.clone())
    }

    /// Creates an engine with separate connections; `change` can wrap the workflow.
    pub(super) fn engine(
        &self,
        owner: &str,
        clock: &Arc<ManualClock>,
        change: impl FnOnce(Arc<dyn Workflow>) -> Arc<dyn Workflow>,
    ) -> Engine {
        let config = EngineConfig {
            owner: owner.to_owned(),
            queues: vec![QUEUE.to_owned()],
            concurrency: 1,
            lease: LEASE,
            grace: GRACE,
        };
        let services = self.services();
        let workflows = WorkflowRegistry::default().with(change(Arc::new(Provision::new(services))));
        Engine::new(self.store.clone(), workflows, Arc::clone(clock) as Arc<dyn Clock>, config)
    }

    /// The services with a setting that limits the time of this step.
    pub(super) fn services_with_limit(&self, step: &StepName, limit: Duration) -> Arc<Services> {
        let mut services = self.services();
        let settings = &mut Arc::get_mut(&mut services).expect("not shared yet").settings;
        settings.limits.steps.insert(step.as_str().to_owned(), limit);
        services
    }

    /// Creates an engine whose settings limit the time of this step.
    pub(super) fn engine_with_limit(&self, owner: &str, step: &StepName, limit: Duration) -> Engine {
        let services = self.services_with_limit(step, limit);
        self.engine(owner, &self.clock, |_| Arc::new(Provision::new(services)))
    }

    /// Sets pending cleanup of an earlier job for engines that are created later.
    pub(super) fn set_pending_cleanup(&mut self, pending: PendingCleanup) {
        self.server.pending_cleanup = Some(pending);
    }

    /// Inserts foreign media into a slot.
    pub(super) async fn occupy(&self, slot: &str) {
        let path = format!(
            "/redfish/v1/Managers/{}/VirtualMedia/{slot}/Actions/VirtualMedia.InsertMedia",
            self.sim_bmc.config().identity.manager_id
        );
        self.send_as_operator(Method::POST, &path, json!({ "Image": "http://127.0.0.1:1/stale/boot.iso" }))
            .await;
    }

    /// Ejects what is in a slot.
    pub(super) async fn eject(&self, slot: &str) {
        let path = format!(
            "/redfish/v1/Managers/{}/VirtualMedia/{slot}/Actions/VirtualMedia.EjectMedia",
            self.sim_bmc.config().identity.manager_id
        );
        self.send_as_operator(Method::POST, &path, json!({})).await;
    }

    /// Sends a request to the BMC as an operator does.
    pub(super) async fn send_as_operator(&self, method: Method, path: &str, body: Value) {
        use base64::Engine as _;
        let account = base64::engine::general_purpose::STANDARD.encode(format!("root:{PASSWORD}"));
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::AUTHORIZATION, format!("Basic {account}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into())
            .unwrap();
        let response = self.sim_bmc.handle(request).await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
    }

    /// Creates an engine with the unchanged workflow.
    pub(super) fn plain_engine(&self, owner: &str) -> Engine {
        self.engine(owner, &self.clock, |workflow| workflow)
    }

    /// Creates the job.
    pub(super) async fn order(&self, engine: &Engine) -> RunId {
        self.order_value(engine, json!({ "server_serial": SERIAL, "recipe": RECIPE })).await
    }

    /// Creates a job with this recipe.
    pub(super) async fn order_recipe(&self, engine: &Engine, recipe: &str) -> RunId {
        self.order_value(engine, json!({ "server_serial": SERIAL, "recipe": recipe })).await
    }

    /// Creates the job with time limits of steps, in seconds.
    pub(super) async fn order_with(&self, engine: &Engine, timeouts: Value) -> RunId {
        let order = json!({ "server_serial": SERIAL, "recipe": RECIPE, "timeouts": timeouts });
        self.order_value(engine, order).await
    }

    pub(super) async fn order_value(&self, engine: &Engine, order: Value) -> RunId {
        let order: JobOrder = serde_json::from_value(order).unwrap();
        let run = self.services().accept(order, RunId::new(), "operator", self.clock.now()).unwrap().run;
        let id = run.id;
        assert!(matches!(engine.create(Creation { run }).await.unwrap(), Created::New(_)));
        id
    }

    pub(super) fn database(&self) -> std::path::PathBuf {
        self.folder.path().join("provisioner.db")
    }

    pub(super) async fn snapshot(&self, id: RunId) -> Snapshot {
        self.store.snapshot(id).await.unwrap().unwrap()
    }

    pub(super) async fn events(&self, id: RunId) -> Vec<String> {
        let events = self.store.last_events(id, 1000).await.unwrap();
        events.into_iter().map(|event| format!("{} {}", event.kind, event.message)).collect()
    }

    /// Runs a job to its end. The machine reports as soon as the job waits for the report.
    pub(super) async fn run_to_end(&self, engine: &Engine, id: RunId) -> Run {
        let mut reported = false;
        for _ in 0..500 {
            engine.run_until_idle().await.unwrap();
            let run = self.snapshot(id).await.run;
            if run.phase == Phase::Ended {
                return run;
            }
            let waits_for_report = run.wait.as_ref().is_some_and(|wait| wait.reason == "report");
            if waits_for_report && !reported {
                reported = true;
                let payload = json!({ "status": "success" });
                engine
                    .deliver(self.snapshot(id).await, "report", "", payload, Vec::new(), Vec::new())
                    .await
                    .unwrap();
                continue;
            }
            // Nothing is due before: a wait, a backoff, or the lease of a dead worker.
            let due = run.next_run_at.unwrap();
            self.clock.advance(due.since(self.clock.now()) + Duration::from_millis(1));
        }
        panic!("no end: {:#?}", self.events(id).await);
    }

    /// Returns the changes of the machine from the journal of the BMC.
    pub(super) fn changes(&self) -> Vec<StateChange> {
        let changes = self.sim_bmc.journal().into_iter().filter_map(|entry| match entry.what {
            JournalItem::Change(change) => Some(change),
            JournalItem::Request { .. } => None,
        });
        changes.collect()
    }
}

/// The inserts that the BMC has received.
pub(super) fn inserts(bench: &Bench) -> usize {
    let is_insert = |what: &JournalItem| matches!(what, JournalItem::Request { operation, .. } if *operation == RequestKind::Insert);
    bench.sim_bmc.journal().iter().filter(|entry| is_insert(&entry.what)).count()
}
