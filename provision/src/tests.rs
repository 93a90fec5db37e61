//! The workflow inside the engine: another kind starts it by name, and it inherits that kind's lock; every step of it fails
//! and breaks off once; a worker of it that was paused for too long wakes up.

mod bench;
mod examined;
mod late;
mod matrix;
mod orphan;
mod zombie;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::*;
use engine::model::{
    Clock, LockRequest, ManualClock, NewEvent, OnConflict, Outcome, RunId, Serial, Server, Time,
};
use engine::store::Store;
use engine::{
    Created, Creation, Engine, EngineConfig, Reason, StepContext, StepPolicy, StepReport, Verdict,
    WaitRequest, WorkflowRegistry,
};
use media::{GrantRecord, GrantStore, GrantStoreUnavailable, Grants, Library, LibraryOptions, ReadSummary};
use recipe::RecipeSchemas;
use secrets::{JobTokens, MasterKey, Resolver};

const RECIPE: &str = include_str!("../../schemas/recipe-linux.example.json");

/// A workflow that installs a server by asking for it, and otherwise knows nothing of provisioning.
struct Installs;

struct AskForIt;

#[async_trait]
impl Step for AskForIt {
    fn policy(&self) -> StepPolicy {
        StepPolicy::default()
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        if let Some(ended) = context.snapshot.pending().find(|signal| signal.name == "child.ended") {
            return StepReport::done().leaving(ended.payload.clone());
        }
        let mut report = StepReport::new(Verdict::Wait(WaitRequest {
            reason: &CHILD,
            signals: vec!["child.ended"],
            poll: None,
            within: Duration::from_secs(3600),
            detail: "the server is being installed".to_owned(),
        }));
        report.children.push((
            "provision".to_owned(),
            "install".to_owned(),
            Value::clone(&context.snapshot.input),
        ));
        report
    }
}

const CHILD: Reason = Reason {
    name: "child",
    means: "the server to be installed",
    ends_by: "the end of the job it started",
    next_action: "look at that job",
};

impl Kind for Installs {
    fn name(&self) -> &'static str {
        "installs"
    }
    fn version(&self) -> u32 {
        1
    }
    fn step(&self, name: &str) -> Option<Arc<dyn Step>> {
        (name == "ask").then(|| Arc::new(AskForIt) as Arc<dyn Step>)
    }
    fn prepare(&self, _order: Order) -> Result<NewRun, Refusal> {
        Err(Refusal("nobody orders this".to_owned()))
    }
    fn finish_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
    fn reasons(&self) -> &'static [&'static Reason] {
        &[&CHILD]
    }
}

struct OneServer(Server);

#[async_trait]
impl Directory for OneServer {
    async fn server(&self, serial: &Serial) -> Result<Option<Server>, Unavailable> {
        Ok((*serial == self.0.serial).then(|| self.0.clone()))
    }
}

struct Nothing;

#[async_trait]
impl Images for Nothing {
    async fn hold(&self, _: &str, _: &str, _: &str) -> Result<bool, Unavailable> {
        Ok(false)
    }
    async fn holds(&self, _: &str, _: &str) -> Result<bool, Unavailable> {
        Ok(false)
    }
    async fn release(&self, _: &str) -> Result<(), Unavailable> {
        Ok(())
    }
    async fn ready(&self) -> Result<(), Unavailable> {
        Ok(())
    }
}

#[async_trait]
impl Sessions for Nothing {
    async fn keep(&self, _: &Serial, _: Option<SealedSession>) -> Result<(), Unavailable> {
        Ok(())
    }
    async fn kept(&self, _: &Serial) -> Result<Option<SealedSession>, Unavailable> {
        Ok(None)
    }
    async fn all_kept(&self) -> Result<Vec<Serial>, Unavailable> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl GrantStore for Nothing {
    async fn find(&self, _: &str) -> Result<Option<GrantRecord>, GrantStoreUnavailable> {
        Ok(None)
    }
    async fn record_read(&self, _: &str, _: ReadSummary) -> Result<(), GrantStoreUnavailable> {
        Ok(())
    }
}

impl ProvisionMetrics for Nothing {
    fn image_built(&self, _: Duration, _: u64) {}
    fn job_ended(&self, _: Outcome, _: Duration) {}
}

impl redfish::Observer for Nothing {
    fn exchange(&self, _: redfish::Exchange<'_>) {}
}

fn server(now: Time, key: &MasterKey) -> Server {
    let password = Resolver::new(key).seal("XF-1", &"calvin-and-hobbes".into()).unwrap();
    Server {
        // Nobody listens there, so the installation fails at its first look at the BMC.
        bmc_address: "http://127.0.0.1:1".to_owned(),
        bmc_username: "root".to_owned(),
        bmc_password: password.to_string(),
        ..Server::unknown("XF-1".parse().unwrap(), now)
    }
}

fn site(folder: &std::path::Path, key: &MasterKey, server: Server, sessions: Arc<dyn Sessions>) -> Arc<Site> {
    let iso = folder.join("maintenance.iso");
    let mut file = std::fs::File::create(&iso).unwrap();
    lab_machines::images::maintenance_iso().unwrap().write_to(&mut file).unwrap();
    let options = LibraryOptions { tls: media::tls_config(b"").unwrap(), max_image_bytes: 1 << 30 };
    let library = Library::open(&folder.join("library"), options).unwrap();
    let listen = "127.0.0.1:8080".parse().unwrap();
    Arc::new(Site {
        schemas: RecipeSchemas::builtin(),
        directory: Box::new(OneServer(server)),
        images: Box::new(Nothing),
        bmcs: Bmcs::new(
            Resolver::new(key),
            key.derive("bmc-sessions"),
            sessions,
            Arc::new(Nothing),
            redfish::Options { read_attempts: 1, ..redfish::Options::default() },
            BmcLimits { each: redfish::LimitOptions::none(), in_flight: 16 },
            None,
        ),
        grants: Grants::new(Arc::new(Nothing), library.clone(), Arc::new(jiff::Timestamp::now)),
        library,
        tokens: JobTokens::new(key),
        media_key: Arc::new(key.derive("media-grants")),
        meter: Arc::new(Nothing),
        addresses: Addresses { api: listen, media: listen, public_url: None, media_base_url: None },
        settings: ProvisionSettings {
            maintenance_iso_url: Some(iso.display().to_string()),
            esxi_installer_url: None,
            install_min_time: Duration::from_secs(600),
            install_window: Duration::from_secs(5400),
            job_timeout: Duration::from_secs(3600),
            cleanup_timeout: Duration::from_secs(600),
            bmc_tries: 1,
            task_iso_dir: None,
            controller_ca: None,
            registry: true,
            limits: Limits::default(),
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn another_workflow_starts_it_by_name_under_its_own_lock_and_hears_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new("2026-11-20T08:00:00Z".parse().unwrap()));
    let now = clock.now();
    let key = MasterKey::from_bytes(&[7; 32]);
    let store = Store::open(&folder.path().join("provisioner.db"), now).unwrap();
    let server = server(now, &key);
    store.create_server(server.clone(), NewEvent::info("server.created", "registered")).await.unwrap();
    let site = site(folder.path(), &key, server.clone(), Arc::new(Nothing));
    let kinds = WorkflowRegistry::default()
        .with(Arc::new(Provision::new(Arc::clone(&site))))
        .with(Arc::new(Installs));
    let config = EngineConfig {
        owner: "test".to_owned(),
        queues: vec![QUEUE.to_owned()],
        concurrency: 1,
        lease: Duration::from_secs(600),
        grace: Duration::from_secs(30),
    };
    let engine = Engine::new(store.clone(), kinds, clock, config);
    let id = RunId::new();
    let lock = LockRequest {
        resource: format!("server/{}", server.serial),
        places: 1,
        on_conflict: OnConflict::Refuse,
    };
    let parent = NewRun {
        id,
        kind: "installs".to_owned(),
        kind_version: 1,
        server: None,
        parent: None,
        priority: 0,
        deadline_at: now.plus(Duration::from_secs(7200)),
        created_by: "test".to_owned(),
        created_at: now,
        input: json!({ "server_serial": "XF-1", "recipe": RECIPE }),
        plan: Plan {
            forward: vec![StepInstance {
                name: "ask".to_owned(),
                key: String::new(),
                queue: QUEUE.to_owned(),
            }],
            finish: Vec::new(),
        },
        locks: vec![lock],
        effects: Vec::new(),
        events: Vec::new(),
    };
    assert!(matches!(engine.create(Creation { run: parent }).await.unwrap(), Created::New(_)));

    // While the family works on the server, a job of somebody else is refused, naming the family's head.
    let order: JobOrder =
        serde_json::from_value(json!({ "server_serial": "XF-1", "recipe": RECIPE })).unwrap();
    let other = site.accept(order, RunId::new(), "somebody", now).unwrap().run;
    assert_eq!(engine.create(Creation { run: other }).await.unwrap(), Created::Conflict { holder: id });

    engine.run_until_idle().await.unwrap();

    let told = store.snapshot(id).await.unwrap().unwrap();
    assert_eq!(told.run.outcome, Some(Outcome::Succeeded), "the parent only had to hear of the end");
    let heard: &Value = &told.steps[0].evidence;
    assert_eq!(heard["kind"], "provision");
    assert_eq!(heard["outcome"], "failed");
    assert_eq!(heard["failure"]["class"], class::BMC_UNREACHABLE);
    assert_eq!(heard["failure"]["step"], "redfish.discover");
    let job = store.newest_job(&server.serial).await.unwrap().expect("the child is a job like any other");
    assert_eq!(job.run.parent, Some(id));
    assert_eq!(job.failed_step.as_deref(), Some("redfish.discover"));
}
