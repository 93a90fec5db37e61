//! Tests of the store through its public methods, on real files. A second connection reads what is on disk.

mod accounts;
mod admission;
mod audit;
mod batch_gates;
mod creation;
mod elsewhere;
mod event_search;
mod firmware_sets;
mod leases;
mod lists;
mod locks;
mod machine_restart;
mod media_list;
mod records;
mod restored;
mod row_cache;
mod sealing;
mod web_sessions;
mod webhooks;
mod worker_tokens;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;
use uuid::Uuid;

use super::{Claimed, Committed, Created, Creation, DeletedServer, ServerChange, Store, StoreError};
use model::{
    Effect, Idempotency, JobRecipe, LockRequest, NewEvent, NewJob, NewRun, OnConflict, Outcome, PROVISION,
    PendingCleanup, Phase, Purpose, Run, RunChange, RunId, RunPlan, RunRequest, Serial, Server, Signal,
    Snapshot, StepInstance, StepName, Time, TlsMode, Wait, WorkflowVersion,
};

const TTL: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(10);

/// A store on a new file.
struct Kit {
    folder: TempDir,
    store: Store,
}

impl Kit {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("shoal.db"), at(0)).unwrap();
        Self { folder, store }
    }

    /// Another store on the same file, as another process would open it.
    fn second_store(&self) -> Store {
        Store::open(&self.folder.path().join("shoal.db"), at(0)).unwrap()
    }

    /// A connection that sees only committed rows.
    fn outside(&self) -> Connection {
        let connection = Connection::open(self.folder.path().join("shoal.db")).unwrap();
        // The functions that statements of the store call.
        super::sealing::attach(&connection, None).unwrap();
        connection
    }

    async fn server(&self, name: &str) {
        self.server_of(server(name)).await;
    }

    /// Registers a server at the BMC of another one.
    async fn neighbour(&self, name: &str, of: &str) {
        self.server_of(Server { bmc_address: server(of).bmc_address, ..server(name) }).await;
    }

    async fn server_of(&self, server: Server) {
        let made = self.store.create_server(server, NewEvent::info("server.created", "x")).await.unwrap();
        assert!(matches!(made, ServerChange::Created(_)));
    }

    async fn create(&self, run: NewRun) -> Created {
        self.store.create(Creation { run }).await.unwrap()
    }

    async fn create_run(&self, run: NewRun) -> RunId {
        match self.create(run).await {
            Created::New(run) => run.id,
            other => panic!("{other:?}"),
        }
    }

    async fn claim(&self, owner: &str, now: Time) -> Vec<Claimed> {
        claim(&self.store, owner, 100, now).await
    }

    async fn claim_one(&self, owner: &str, now: Time) -> Snapshot {
        let mut claimed = self.claim(owner, now).await;
        assert_eq!(claimed.len(), 1);
        claimed.remove(0).snapshot
    }

    async fn run(&self, id: RunId) -> Run {
        self.store.snapshot(id).await.unwrap().unwrap().run
    }

    async fn commit(&self, change: RunChange, old: &Run, now: Time) -> Committed {
        self.store.commit(change, old.version(), now).await.unwrap()
    }

    /// Ends a run through the phase `finishing`, as the engine does.
    async fn end(&self, id: RunId, outcome: Outcome, now: Time) -> Run {
        for phase in [Phase::Finishing, Phase::Ended] {
            let old = self.run(id).await;
            let next = (phase == Phase::Finishing).then_some(now);
            let new = Run {
                phase,
                outcome: Some(outcome),
                wait: None,
                hold: None,
                lease: None,
                next_run_at: next,
                ..old.clone()
            };
            assert!(matches!(self.commit(RunChange::of(new), &old, now).await, Committed::Applied(_)));
        }
        self.run(id).await
    }
}

async fn claim(store: &Store, owner: &str, limit: usize, now: Time) -> Vec<Claimed> {
    store.claim(owner, &["default".to_owned()], limit, now, TTL, GRACE).await.unwrap()
}

fn at(second: u64) -> Time {
    "2026-01-01T00:00:00Z".parse::<Time>().unwrap().plus(Duration::from_secs(second))
}

fn serial(name: &str) -> Serial {
    name.parse().unwrap()
}

fn server(name: &str) -> Server {
    Server {
        id: Uuid::new_v5(&Uuid::NAMESPACE_DNS, name.as_bytes()),
        serial: serial(name),
        bmc_address: format!("https://{}.example", name.to_lowercase()),
        bmc_username: "admin".to_owned(),
        bmc_password: "env:PASSWORD".to_owned(),
        vendor: None,
        bmc_profile: Some("generic".to_owned()),
        quirks: json!({ "vm_path": "manager" }).as_object().cloned(),
        network: json!({ "ethernets": {} }).as_object().cloned(),
        labels: [("rack".to_owned(), "7".to_owned())].into(),
        tls: TlsMode::Insecure,
        tls_fingerprint: None,
        allow_unverified_serial: true,
        media_base_url: None,
        revision: 1,
        created_at: at(0),
        updated_at: at(0),
        last_seen: None,
        observed: None,
        learned: None,
        pending_cleanup: None,
        maintenance: None,
        restored: None,
    }
}

fn instance(name: &str) -> StepInstance {
    StepInstance { name: name.into(), key: String::new(), queue: "default".to_owned() }
}

fn new_run(created: Time) -> NewRun {
    NewRun {
        id: RunId::new(),
        workflow: "test".to_owned(),
        workflow_version: WorkflowVersion(1),
        server: None,
        parent: None,
        purpose: Purpose::Change,
        request: RunRequest::default(),
        priority: 0,
        deadline_at: created.plus(Duration::from_secs(3600)),
        created_by: "tester".to_owned(),
        created_at: created,
        input: json!({ "size": 7 }),
        plan: RunPlan { forward: vec![instance("one"), instance("two")], finish: vec![instance("clean")] },
        locks: Vec::new(),
        effects: Vec::new(),
        events: vec![NewEvent::info("run.created", "made")],
    }
}

fn lock(resource: &str, on_conflict: OnConflict) -> LockRequest {
    LockRequest { resource: resource.to_owned(), capacity: 1, on_conflict }
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A run with a row in `jobs`, as the workflow `provision` creates it.
fn new_job(name: &str, created: Time, key: Option<&str>, request: &str) -> NewRun {
    let job = NewJob {
        server: serial(name),
        recipe: Arc::new(JobRecipe {
            json: "{ \"task_target\": 1 }".to_owned(),
            schema_id: "schema".to_owned(),
        }),
        maintenance_iso_url: "file:m.iso".to_owned(),
        report_token_hash: "hash".to_owned(),
    };
    let idempotency = key.map(|key| Idempotency { key: key.to_owned(), request_sha256: request.to_owned() });
    NewRun {
        workflow: PROVISION.to_owned(),
        request: RunRequest { labels: labels(&[("team", "blue")]), idempotency, ..RunRequest::default() },
        server: Some(serial(name)),
        locks: vec![lock(&format!("server/{name}"), OnConflict::Refuse)],
        effects: vec![Effect::JobCreated(Box::new(job))],
        ..new_run(created)
    }
}

fn signal(name: &str, key: &str) -> Signal {
    Signal {
        name: name.to_owned(),
        key: key.to_owned(),
        payload: json!({ "said": key }),
        received_at: at(1),
        consumed: false,
    }
}

/// The run in a wait for a signal.
fn waiting_for(run: &Run, awaited: &str, now: Time) -> Run {
    Run {
        phase: Phase::Waiting,
        lease: None,
        next_run_at: Some(run.deadline_at),
        wait: Some(Wait {
            reason: "report".to_owned(),
            step: "one".into(),
            since: now,
            deadline: run.deadline_at,
            signals: vec![awaited.to_owned()],
            poll_at: None,
            detail: "waiting".to_owned(),
        }),
        ..run.clone()
    }
}
