//! The workflow inside the engine: as the child of another workflow that holds the lock; with a failure and a crash in every
//! step; with a worker that continues after its lease is lost.

mod bench;
mod late;
mod matrix;
mod orphan;
mod recipe_once;
mod slots;
mod zombie;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::*;
use bmc::Unavailable;
use bmc::test_support::{self, SharedSessions, key};
use engine::{
    Engine, EngineConfig, StepContext, StepOutcome, StepPolicy, StepReport, WaitReason, WaitRequest,
    WorkflowRegistry,
};
use media::{GrantStore, GrantStoreUnavailable, Library, LibraryOptions, MediaGrants};
use model::{
    Clock, GrantReads, LockRequest, ManualClock, NewEvent, OnConflict, Outcome, RunId, Server, StoredGrant,
    SystemClock, Time, WorkflowVersion,
};
use recipe::RecipeSchemas;
use secrets::TokenSeeds;
use store::{Created, Creation, Store};

const RECIPE: &str = include_str!("../../schemas/recipe-linux.example.json");

/// A workflow that installs a server only by requesting a child run.
struct ParentWorkflow;

struct StartChild;

#[async_trait]
impl Step for StartChild {
    fn policy(&self) -> StepPolicy {
        StepPolicy::default()
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        if let Some(ended) = context.snapshot.pending().find(|signal| signal.name == "child.ended") {
            return StepReport::done().with_output(ended.payload.clone());
        }
        let mut report = StepReport::new(StepOutcome::Wait(WaitRequest {
            reason: &CHILD,
            signals: vec!["child.ended"],
            poll: None,
            limit: Duration::from_secs(3600).into(),
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

const CHILD: WaitReason = WaitReason {
    name: "child",
    means: "the server to be installed",
    ends_by: "the end of the job it started",
    next_action: "see that job",
};

impl Workflow for ParentWorkflow {
    fn name(&self) -> &'static str {
        "installs"
    }
    fn version(&self) -> WorkflowVersion {
        WorkflowVersion(1)
    }
    fn step(&self, name: &StepName) -> Option<Arc<dyn Step>> {
        (*name == "ask").then(|| Arc::new(StartChild) as Arc<dyn Step>)
    }
    fn prepare_child(&self, _request: ChildRequest) -> Result<NewRun, ChildRefused> {
        Err(ChildRefused("no workflow requests this one".to_owned()))
    }
    fn finish_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
    fn wait_reasons(&self) -> &'static [&'static WaitReason] {
        &[&CHILD]
    }
}

struct Stubs;

#[async_trait]
impl OsImages for Stubs {
    async fn hold(&self, _: &str, _: &str, _: &str) -> Result<Option<String>, Unavailable> {
        Ok(None)
    }
    async fn holds(&self, _: &str, _: &str) -> Result<bool, Unavailable> {
        Ok(false)
    }
    async fn for_medium(&self, _: &str, _: &str) -> Result<super::MediumImage, Unavailable> {
        Ok(super::MediumImage::Missing)
    }
    async fn release(&self, _: &str) -> Result<(), Unavailable> {
        Ok(())
    }
    async fn ready(&self) -> Result<(), Unavailable> {
        Ok(())
    }
}

#[async_trait]
impl GrantStore for Stubs {
    async fn find(&self, _: &str) -> Result<Option<StoredGrant>, GrantStoreUnavailable> {
        Ok(None)
    }
    async fn record_reads(&self, _: &str, _: GrantReads) -> Result<(), GrantStoreUnavailable> {
        Ok(())
    }
}

impl ProvisionMetrics for Stubs {
    fn image_built(&self, _: Duration, _: u64) {}
}

fn server(now: Time) -> Server {
    // No BMC listens at this address, so the installation fails at its first request.
    test_support::server("XF-1".parse().unwrap(), "http://127.0.0.1:1".to_owned(), now).unwrap()
}

fn services(folder: &std::path::Path, server: Server, sessions: SharedSessions) -> Arc<Services> {
    let iso = folder.join("maintenance.iso");
    let mut file = std::fs::File::create(&iso).unwrap();
    lab_machines::images::maintenance_iso().unwrap().write_to(&mut file).unwrap();
    let options = LibraryOptions {
        tls: media::tls_config(b"").unwrap(),
        max_image_bytes: 1 << 30,
        sources: media::SourcePolicy {
            addresses: media::AddressPolicy::default(),
            files: media::FilePolicy::below(folder.to_path_buf(), Vec::new()),
        },
    };
    let library = Library::open(&folder.join("library"), options).unwrap();
    Arc::new(Services {
        bmc: Arc::new(test_support::services(server, sessions)),
        schemas: RecipeSchemas::builtin(),
        images: Box::new(Stubs),
        grants: MediaGrants::new(Arc::new(Stubs), library.clone(), &key(), Arc::new(SystemClock)),
        library,
        seeds: TokenSeeds::new(&key()),
        metrics: Arc::new(Stubs),
        settings: ProvisionSettings {
            maintenance_iso_url: Some(iso.display().to_string()),
            esxi_installer_url: None,
            install_min_time: Duration::from_secs(600),
            install_window: Duration::from_secs(5400),
            job_timeout: Duration::from_secs(3600),
            cleanup_timeout: Duration::from_secs(600),
            task_iso_dir: None,
            controller_ca: Arc::new(|| None),
            registry: true,
            limits: ProvisionLimits::default(),
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secure_erase_has_days_before_its_job_counts_as_stuck() {
    let folder = tempfile::tempdir().unwrap();
    let now: Time = "2026-11-20T08:00:00Z".parse().unwrap();
    let services = services(folder.path(), server(now), SharedSessions::default());
    let hours = |mode: &str, rounds: u32| {
        let recipe = json!({
            "$schema": "https://shoal.dev/provisioner/recipe-v2.schema.json", "task_target": "erase.target",
            "disk_hints": { "serial": "S" }, "erase_mode": mode,
        });
        let order = json!({ "server_serial": "XF-1", "recipe": recipe.to_string(), "rounds": rounds });
        let order: JobOrder = serde_json::from_value(order).unwrap();
        let run = services.accept(order, RunId::new(), "operator", now).unwrap().run;
        run.deadline_at.since(now).as_secs() / 3600
    };
    assert_eq!((hours("quick", 1), hours("secure", 1)), (1, 73));
    // A batch of which two jobs run at once, and six wait before the last one.
    assert_eq!((hours("quick", 4), hours("secure", 4)), (4, 4 * 73));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_workflow_starts_it_by_name_under_its_lock_and_receives_the_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new("2026-11-20T08:00:00Z".parse().unwrap()));
    let now = clock.now();
    let store = Store::open(&folder.path().join("provisioner.db"), now).unwrap();
    let server = server(now);
    store.create_server(server.clone(), NewEvent::info("server.created", "registered")).await.unwrap();
    let services = services(folder.path(), server.clone(), SharedSessions::default());
    let workflows = WorkflowRegistry::default()
        .with(Arc::new(Provision::new(Arc::clone(&services))))
        .with(Arc::new(ParentWorkflow));
    let config = EngineConfig {
        owner: "test".to_owned(),
        queues: vec![QUEUE.to_owned()],
        concurrency: 1,
        lease: Duration::from_secs(600),
        grace: Duration::from_secs(30),
    };
    let engine = Engine::new(store.clone(), workflows, clock, config);
    let id = RunId::new();
    let lock = LockRequest {
        resource: format!("server/{}", server.serial),
        capacity: 1,
        on_conflict: OnConflict::Refuse,
    };
    let parent = NewRun {
        id,
        workflow: "installs".to_owned(),
        workflow_version: WorkflowVersion(1),
        server: None,
        parent: None,
        purpose: model::Purpose::Change,
        request: model::RunRequest::default(),
        priority: 0,
        deadline_at: now.plus(Duration::from_secs(7200)),
        created_by: "test".to_owned(),
        created_at: now,
        input: json!({ "server_serial": "XF-1", "recipe": RECIPE }),
        plan: RunPlan {
            forward: vec![StepInstance { name: "ask".into(), key: String::new(), queue: QUEUE.to_owned() }],
            finish: Vec::new(),
        },
        locks: vec![lock],
        effects: Vec::new(),
        events: Vec::new(),
    };
    assert!(matches!(engine.create(Creation { run: parent }).await.unwrap(), Created::New(_)));

    // While the run tree holds the server's lock, another job is refused with the root as holder.
    let order: JobOrder =
        serde_json::from_value(json!({ "server_serial": "XF-1", "recipe": RECIPE })).unwrap();
    let other = services.accept(order, RunId::new(), "operator", now).unwrap().run;
    assert_eq!(engine.create(Creation { run: other }).await.unwrap(), Created::Conflict { holder: id });

    engine.run_until_idle().await.unwrap();

    let ended = store.snapshot(id).await.unwrap().unwrap();
    assert_eq!(ended.run.outcome, Some(Outcome::Succeeded), "the parent only waits for the end of the child");
    let output: &Value = &ended.steps[0].output;
    assert_eq!(output["workflow"], "provision");
    assert_eq!(output["outcome"], "failed");
    assert_eq!(output["failure"]["class"], *class::BMC_UNREACHABLE);
    assert_eq!(output["failure"]["step"], "redfish.discover");
    let job =
        store.newest_installation(&server.serial).await.unwrap().expect("the child is a job like any other");
    assert_eq!(job.run.parent, Some(id));
    assert_eq!(job.failed_step(), Some(names::DISCOVER));
}
