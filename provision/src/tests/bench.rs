//! A bench: one simulated BMC on a real socket, one database, and engines that carry the workflow out on a clock that stands
//! still until nothing is due.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use http::Method;
use lab_bmc::{
    Change, JournalItem, MediaAnswer, MediaReader, MediaRefusal, MediaRequest, NullHost, SimBmc,
    SimBmcConfig, SimBmcServer,
};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use engine::model::{ManualClock, Phase, Run, Snapshot};

/// Shorter than the time for cleaning up, so that a second worker still has some.
pub(super) const LEASE: Duration = Duration::from_secs(200);
pub(super) const GRACE: Duration = Duration::from_secs(30);
const SERIAL: &str = "XF-1";

/// How far behind the first descriptor the second one is.
const BOOT_RECORD: usize = 2048;

/// Images as they should be: nobody serves any.
struct AsOrdered;

#[async_trait]
impl MediaReader for AsOrdered {
    async fn fetch(&self, request: MediaRequest) -> Result<MediaAnswer, MediaRefusal> {
        const LENGTH: u64 = 1 << 20;
        let Some((first, last)) = request.range.filter(|_| !request.head) else {
            return Ok(MediaAnswer { status: 200, length: Some(LENGTH), ..MediaAnswer::default() });
        };
        let mut body = vec![0; usize::try_from(last - first + 1).unwrap()];
        // Whoever asks for more than the first sector asks for the descriptors.
        if request.url.file_name().starts_with("boot") && body.len() > 2 * BOOT_RECORD {
            body[..6].copy_from_slice(b"\x01CD001");
            body[BOOT_RECORD..BOOT_RECORD + 6].copy_from_slice(b"\x00CD001");
            body[BOOT_RECORD + 7..BOOT_RECORD + 30].copy_from_slice(b"EL TORITO SPECIFICATION");
        }
        Ok(MediaAnswer {
            status: 206,
            content_range: Some(format!("bytes {first}-{last}/{LENGTH}")),
            body: body.into(),
            ..MediaAnswer::default()
        })
    }
}

/// BMC sessions that the engines of a bench know of each other.
#[derive(Clone, Default)]
pub(super) struct Kept(Arc<Mutex<HashMap<Serial, SealedSession>>>);

#[async_trait]
impl Sessions for Kept {
    async fn keep(&self, server: &Serial, session: Option<SealedSession>) -> Result<(), Unavailable> {
        let mut kept = self.0.lock().unwrap();
        match session {
            Some(session) => kept.insert(server.clone(), session),
            None => kept.remove(server),
        };
        Ok(())
    }

    async fn kept(&self, server: &Serial) -> Result<Option<SealedSession>, Unavailable> {
        Ok(self.0.lock().unwrap().get(server).cloned())
    }

    async fn all_kept(&self) -> Result<Vec<Serial>, Unavailable> {
        Ok(self.0.lock().unwrap().keys().cloned().collect())
    }
}

pub(super) struct Bench {
    folder: TempDir,
    pub(super) clock: Arc<ManualClock>,
    pub(super) store: Store,
    pub(super) twin: SimBmc,
    server: Server,
    kept: Kept,
    _bmc: SimBmcServer,
}

impl Bench {
    /// A server that is off, not known to any job.
    pub(super) async fn new(change: impl FnOnce(&mut SimBmcConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new("2026-11-20T08:00:00Z".parse().unwrap()));
        let store = Store::open(&folder.path().join("provisioner.db"), clock.now()).unwrap();
        let mut config = SimBmcConfig::new(SERIAL, "root", "calvin-and-hobbes");
        change(&mut config);
        let twin = SimBmc::new(config, Arc::new(NullHost), Arc::new(AsOrdered));
        let bmc = twin.serve_on_loopback().await.unwrap();
        let server =
            Server { bmc_address: bmc.url(), ..server(clock.now(), &MasterKey::from_bytes(&[7; 32])) };
        store.create_server(server.clone(), NewEvent::info("server.created", "registered")).await.unwrap();
        Self { folder, clock, store, twin, server, kept: Kept::default(), _bmc: bmc }
    }

    fn site(&self) -> Arc<Site> {
        let key = MasterKey::from_bytes(&[7; 32]);
        site(self.folder.path(), &key, self.server.clone(), Arc::new(self.kept.clone()))
    }

    /// An engine with connections of its own, of which `spoil` may change the workflow.
    pub(super) fn engine(
        &self,
        owner: &str,
        clock: &Arc<ManualClock>,
        spoil: impl FnOnce(Arc<dyn Kind>) -> Arc<dyn Kind>,
    ) -> Engine {
        let config = EngineConfig {
            owner: owner.to_owned(),
            queues: vec![QUEUE.to_owned()],
            concurrency: 1,
            lease: LEASE,
            grace: GRACE,
        };
        let site = self.site();
        let kinds = WorkflowRegistry::default()
            .with(spoil(Arc::new(Provision::new(Arc::clone(&site)))))
            .with(Arc::new(DiagnosticsWorkflow::new(site)));
        Engine::new(self.store.clone(), kinds, Arc::clone(clock) as Arc<dyn Clock>, config)
    }

    /// Engines made from now on know of something that an earlier job could not take back.
    pub(super) fn owe(&mut self, debt: Value) {
        self.server.debt = Some(debt);
    }

    /// Puts somebody else's medium into a slot.
    pub(super) async fn occupy(&self, slot: &str) {
        let path = format!(
            "/redfish/v1/Managers/{}/VirtualMedia/{slot}/Actions/VirtualMedia.InsertMedia",
            self.twin.config().identity.manager_id
        );
        self.change_by_hand(Method::POST, &path, json!({ "Image": "http://127.0.0.1:1/told/boot.iso" }))
            .await;
    }

    /// Changes something at the BMC, as an operator does.
    pub(super) async fn change_by_hand(&self, method: Method, path: &str, body: Value) {
        use base64::Engine as _;
        let account = base64::engine::general_purpose::STANDARD.encode("root:calvin-and-hobbes");
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::AUTHORIZATION, format!("Basic {account}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into())
            .unwrap();
        let answer = self.twin.handle(request).await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }

    /// An engine as it should be.
    pub(super) fn sound(&self, owner: &str) -> Engine {
        self.engine(owner, &self.clock, |kind| kind)
    }

    /// Orders the job.
    pub(super) async fn order(&self, engine: &Engine) -> RunId {
        let order: JobOrder =
            serde_json::from_value(json!({ "server_serial": SERIAL, "recipe": RECIPE })).unwrap();
        let run = self.site().accept(order, RunId::new(), "somebody", self.clock.now()).unwrap().run;
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

    /// Works a job to its end, as far as this worker lives; the machine reports as soon as that is waited for.
    pub(super) async fn carry_out(&self, engine: &Engine, id: RunId) -> Run {
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
                engine.deliver(self.snapshot(id).await, "report", "", payload, Vec::new()).await.unwrap();
                continue;
            }
            // Nothing to do before then: a wait, a pause, or the lease of a dead worker.
            let due = run.next_run_at.unwrap();
            self.clock.advance(due.since(self.clock.now()) + Duration::from_millis(1));
        }
        panic!("no end: {:#?}", self.events(id).await);
    }

    /// What changed on the machine.
    pub(super) fn changes(&self) -> Vec<Change> {
        let changes = self.twin.journal().into_iter().filter_map(|entry| match entry.what {
            JournalItem::Change(change) => Some(change),
            JournalItem::Request { .. } => None,
        });
        changes.collect()
    }
}
