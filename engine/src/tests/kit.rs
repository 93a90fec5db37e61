//! The drill: a workflow whose steps follow the script of a test, and whose outside world is a set of names.
//!
//! ```text
//!  script["b"] = [Retry, Stall, Done]      each call of step b takes the next act; without one it does its work
//!  outside     = {a, b}                    run inserts the step's name, undo removes it: both are idempotent
//!  calls       = [a, b, b+, undo b]        "+" marks a call that may find its own earlier work
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::PressureGauge;
use crate::{
    ChildRefused, ChildRequest, Engine, EngineConfig, Explanation, PermitRequest, Remark, Step, StepContext,
    StepOutcome, StepPolicy, StepReport, WaitLimit, WaitReason, WaitRequest, Workflow, WorkflowRegistry,
};
use model::Pressure;
use model::{
    Clock, Failure, Hold, LockRequest, ManualClock, NewRun, OnConflict, Outcome, Phase, Run, RunId, RunPlan,
    Signal, Snapshot, StepInstance, StepName, Time, WorkflowVersion, permit_resource,
};
use store::{Created, Creation, Store};

pub(super) const LEASE: Duration = Duration::from_secs(60);
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// How long a cancelled step that may not be interrupted continues in these tests; real time.
pub(super) const CANCEL_GRACE: Duration = Duration::from_millis(200);

/// A gauge of a disk, which is full while this holds.
pub(super) struct Disk(pub(super) AtomicBool);

#[async_trait]
impl PressureGauge for Disk {
    async fn read(&self) -> Option<Pressure> {
        let text = |text: &str| text.to_owned();
        self.0.load(Ordering::SeqCst).then(|| Pressure {
            name: text("disk"),
            since: "2026-01-01T00:00:00Z".parse().unwrap(),
            detail: text("3 MiB are left"),
            next_action: text("make room"),
        })
    }
}

/// The behaviour of one call of a step.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Does the work and returns `Done`.
    Done,
    /// Returns `Skipped`.
    Skip,
    /// Returns `Retry`.
    Retry,
    /// Returns `Fail`.
    Fail,
    /// Returns `Hold`.
    Hold,
    /// Waits for a signal of that name.
    Await(&'static str),
    /// Waits for the signal "report" for at most this time, counted from the start of the wait.
    AwaitReportWithin(Duration),
    /// Waits for [`DrillWorld::go`], then asks to wait until this time.
    WaitForGoThenAwaitUntil(Time),
    /// Polls every 5 s, for at most 20 s.
    Poll,
    /// Asks to be called again at once, for at most 20 s.
    PollAtOnce,
    /// Does the work and adds these steps to the plan.
    Extend(Vec<&'static str>),
    /// Requests the only permit of "gate", then does the work.
    Permit,
    /// Requests a child run of that workflow with that input, and returns `Done`.
    Child(&'static str, Value),
    /// Panics.
    Panic,
    /// Never returns; a test that waits on [`DrillWorld::stalled`] drops the worker here.
    Stall,
    /// Does the work, then never returns.
    WorkThenStall,
    /// Writes this checkpoint, then never returns.
    CheckpointThenStall(Value),
    /// Waits for [`DrillWorld::go`], then does the work.
    WaitForGo,
    /// Waits for [`DrillWorld::go`], then asks to wait for a signal of that name without reading the signals again.
    WaitForGoThenAwait(&'static str),
}

#[derive(Default)]
pub(super) struct DrillWorld {
    script: Mutex<HashMap<String, VecDeque<Act>>>,
    calls: Mutex<Vec<String>>,
    outside: Mutex<BTreeSet<String>>,
    /// The output of the previous call that each call received.
    pub(super) found: Mutex<Vec<Value>>,
    /// The results of the lease guard after the test let a step continue.
    pub(super) lease_allowed: Mutex<Vec<bool>>,
    pub(super) stalled: Notify,
    pub(super) go: Notify,
}

impl DrillWorld {
    fn act(&self, name: &str) -> Act {
        let mut script = self.script.lock().unwrap();
        script.get_mut(name).and_then(VecDeque::pop_front).unwrap_or(Act::Done)
    }

    fn call(&self, what: String) {
        self.calls.lock().unwrap().push(what);
    }
}

struct Drill {
    name: &'static str,
    undoes_steps: bool,
    world: Arc<DrillWorld>,
}

/// The reason of every wait of a scripted step.
pub(super) const DRILL: WaitReason =
    WaitReason { name: "drill", means: "the other side", ends_by: "its message", next_action: "send it" };

impl Workflow for Drill {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> WorkflowVersion {
        WorkflowVersion(1)
    }

    fn step(&self, name: &StepName) -> Option<Arc<dyn Step>> {
        let step = Scripted { name: name.to_string(), world: Arc::clone(&self.world) };
        (!name.starts_with("unknown")).then(|| Arc::new(step) as Arc<dyn Step>)
    }

    fn prepare_child(&self, request: ChildRequest) -> Result<NewRun, ChildRefused> {
        if request.input["refuse"] == true {
            return Err(ChildRefused("refused by the input of the drill".to_owned()));
        }
        let names = request.input["forward"].as_array().cloned().unwrap_or_default();
        let forward: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        let locks = request.input["lock"].as_str().map(|resource| LockRequest {
            resource: resource.to_owned(),
            capacity: 1,
            on_conflict: OnConflict::Refuse,
        });
        Ok(NewRun {
            id: request.id,
            parent: Some(request.parent),
            created_at: request.now,
            created_by: request.created_by,
            locks: locks.into_iter().collect(),
            input: request.input,
            ..new_run(self.name, &forward, request.now)
        })
    }

    fn undoes_steps(&self) -> bool {
        self.undoes_steps
    }

    fn finish_timeout(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn wait_reasons(&self) -> &'static [&'static WaitReason] {
        &[&DRILL]
    }

    fn remark(&self, snapshot: &Snapshot) -> Option<Remark> {
        let next_action = Some("look at the drill".to_owned());
        let facts = format!("{} grants of {}", snapshot.media.len(), snapshot.input["remark"].as_str()?);
        Some(Remark { facts, next_action })
    }
}

struct Scripted {
    name: String,
    world: Arc<DrillWorld>,
}

#[async_trait]
impl Step for Scripted {
    fn policy(&self) -> StepPolicy {
        if self.name.starts_with("always") {
            return StepPolicy::last();
        }
        StepPolicy {
            call: Duration::from_millis(if self.name.starts_with("hang") { 20 } else { 30_000 }),
            budget: Duration::from_secs(100),
            attempts: 3,
            backoff: Duration::from_secs(1),
            backoff_cap: Duration::from_secs(4),
            wait: None,
            interruptible: !self.name.starts_with("solid"),
            runs_past_deadline: false,
        }
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        let world = &*self.world;
        world.call(format!("{}{}", self.name, if context.reentered { "+" } else { "" }));
        world.found.lock().unwrap().push(context.record.output.clone());
        let work = || world.outside.lock().unwrap().insert(self.name.clone());
        match world.act(&self.name) {
            Act::Done => {
                work();
                StepReport::done()
            }
            Act::Skip => StepReport::skipped(),
            Act::Retry => StepReport::new(StepOutcome::Retry(failure(&self.name, "shaky"))),
            Act::Fail => StepReport::fail(failure(&self.name, "broken")),
            Act::Hold => StepReport::new(StepOutcome::Hold(Hold {
                class: "decide".into(),
                since: context.now(),
                remind_at: context.now(),
                verbs: vec!["resume".to_owned()],
                detail: "which colour?".to_owned(),
            })),
            Act::Await(signal) => {
                let arrived = context.snapshot.pending().find(|pending| pending.name == signal);
                match arrived {
                    Some(arrived) => report_of(arrived),
                    None => {
                        // The signal has not arrived: the next call repeats this act.
                        let mut script = world.script.lock().unwrap();
                        script.entry(self.name.clone()).or_default().push_front(Act::Await(signal));
                        waiting(vec![signal], None, Duration::from_secs(300))
                    }
                }
            }
            Act::AwaitReportWithin(within) => {
                // The next call repeats this act, unless the test has changed the script.
                let mut script = world.script.lock().unwrap();
                script.entry(self.name.clone()).or_default().push_back(Act::AwaitReportWithin(within));
                waiting(vec!["report"], None, within)
            }
            Act::PollAtOnce => waiting(Vec::new(), Some(Duration::ZERO), Duration::from_secs(20)),
            Act::Poll => waiting(Vec::new(), Some(Duration::from_secs(5)), Duration::from_secs(20)),
            Act::Extend(names) => {
                work();
                StepReport { plan: names.into_iter().map(instance).collect(), ..StepReport::done() }
            }
            Act::Permit if !context.has_permit(&permit_resource("gate")) => {
                // The next call repeats this act.
                world.script.lock().unwrap().entry(self.name.clone()).or_default().push_front(Act::Permit);
                StepReport::new(StepOutcome::Permit(PermitRequest {
                    resource: permit_resource("gate"),
                    capacity: 1,
                    reason: &DRILL,
                    signals: Vec::new(),
                    detail: "not yet".to_owned(),
                }))
            }
            Act::Permit => {
                work();
                StepReport::done()
            }
            Act::Child(workflow, input) => StepReport {
                children: vec![(workflow.to_owned(), "1".to_owned(), input)],
                ..StepReport::done()
            },
            Act::Panic => panic!("on purpose"),
            Act::Stall => self.stall().await,
            Act::WorkThenStall => {
                work();
                self.stall().await
            }
            Act::CheckpointThenStall(output) => {
                context.checkpoint(output).await.unwrap();
                self.stall().await
            }
            Act::WaitForGo => {
                world.stalled.notify_one();
                world.go.notified().await;
                world
                    .lease_allowed
                    .lock()
                    .unwrap()
                    .push(context.lease.allows_until(Duration::from_secs(5)).is_ok());
                work();
                StepReport::done()
            }
            Act::WaitForGoThenAwaitUntil(deadline) => {
                world.stalled.notify_one();
                world.go.notified().await;
                waiting(vec!["report"], None, WaitLimit::At(deadline))
            }
            Act::WaitForGoThenAwait(signal) => {
                world.stalled.notify_one();
                world.go.notified().await;
                waiting(vec![signal], None, Duration::from_secs(300))
            }
        }
    }

    async fn undo(&self, context: &StepContext) -> StepReport {
        let world = &*self.world;
        world.call(format!("undo {}{}", self.name, if context.reentered { "+" } else { "" }));
        match world.act(&format!("undo {}", self.name)) {
            Act::Retry => StepReport::new(StepOutcome::Retry(failure(&self.name, "shaky"))),
            Act::Fail => StepReport::fail(failure(&self.name, "stuck")),
            Act::Stall => self.stall().await,
            _ => {
                world.outside.lock().unwrap().remove(&self.name);
                StepReport::done()
            }
        }
    }

    fn on_signal(&self, _snapshot: &Snapshot, signal: &Signal) -> Option<StepReport> {
        (signal.name == "report").then(|| report_of(signal))
    }
}

impl Scripted {
    async fn stall(&self) -> StepReport {
        self.world.stalled.notify_one();
        pending().await
    }
}

fn report_of(signal: &Signal) -> StepReport {
    let mut report = match signal.payload["status"].as_str() {
        Some("failed") => StepReport::fail(failure("unit", "the other side failed")),
        _ => StepReport::done(),
    };
    report.consumed.push((signal.name.clone(), signal.key.clone()));
    report.with_output(signal.payload.clone())
}

fn waiting(signals: Vec<&'static str>, poll: Option<Duration>, limit: impl Into<WaitLimit>) -> StepReport {
    let detail = "not yet".to_owned();
    let limit = limit.into();
    StepReport::new(StepOutcome::Wait(WaitRequest { reason: &DRILL, signals, poll, limit, detail }))
}

fn failure(step: &str, class: &str) -> Failure {
    Failure {
        class: class.into(),
        step: step.into(),
        summary: format!("{class} on purpose"),
        detail: None,
        next_action: "nothing, this is a drill".to_owned(),
    }
}

/// `name` in the queue "default", or `name@queue`.
fn instance(name: &str) -> StepInstance {
    let (name, queue) = name.split_once('@').unwrap_or((name, "default"));
    StepInstance { name: name.into(), key: String::new(), queue: queue.to_owned() }
}

/// A run of a workflow with these steps, the finish step "clean" and a deadline of one hour.
pub(super) fn new_run(workflow: &str, forward: &[&str], now: Time) -> NewRun {
    NewRun {
        id: RunId::new(),
        workflow: workflow.to_owned(),
        workflow_version: WorkflowVersion(1),
        server: None,
        parent: None,
        purpose: model::Purpose::Change,
        request: model::RunRequest::default(),
        priority: 0,
        deadline_at: now.plus(Duration::from_secs(3600)),
        created_by: "tester".to_owned(),
        created_at: now,
        input: Value::Null,
        plan: RunPlan {
            forward: forward.iter().copied().map(instance).collect(),
            finish: vec![instance("clean")],
        },
        locks: Vec::new(),
        effects: Vec::new(),
        events: Vec::new(),
    }
}

pub(super) struct Kit {
    folder: TempDir,
    pub(super) world: Arc<DrillWorld>,
    pub(super) clock: Arc<ManualClock>,
    /// Executes the steps of the queue "default".
    pub(super) engine: Engine,
}

impl Kit {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let world = Arc::<DrillWorld>::default();
        let store = Store::open(&folder.path().join("shoal.db"), clock.now()).unwrap();
        let engine = engine(store, &world, &clock, "one", "default");
        Self { folder, world, clock, engine }
    }

    /// Another engine with a separate database handle.
    pub(super) fn engine(&self, owner: &str, queue: &str) -> Engine {
        let store = Store::open(&self.folder.path().join("shoal.db"), self.clock.now()).unwrap();
        engine(store, &self.world, &self.clock, owner, queue)
    }

    /// A connection that sees only what is committed.
    pub(super) fn outside_view(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.folder.path().join("shoal.db")).unwrap()
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn script(&self, step: &str, acts: impl IntoIterator<Item = Act>) {
        self.world.script.lock().unwrap().insert(step.to_owned(), acts.into_iter().collect());
    }

    pub(super) fn clear_scripts(&self) {
        self.world.script.lock().unwrap().clear();
    }

    pub(super) async fn start(&self, workflow: &str, forward: &[&str]) -> RunId {
        self.start_run(new_run(workflow, forward, self.now())).await
    }

    pub(super) async fn start_run(&self, run: NewRun) -> RunId {
        match self.engine.create(Creation { run }).await.unwrap() {
            Created::New(run) => run.id,
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn run_until_idle(&self) -> usize {
        self.engine.run_until_idle().await.unwrap()
    }

    /// Works until no run is due, while `meanwhile` runs concurrently.
    pub(super) async fn run_while(&self, meanwhile: impl Future<Output = ()>) {
        tokio::join!(Box::pin(self.run_until_idle()), Box::pin(meanwhile));
    }

    /// Works until a step stalls, and drops the worker there.
    pub(super) async fn run_until_stall(&self, engine: &Engine) {
        tokio::select! {
            done = engine.run_until_idle() => panic!("nothing stalled: {done:?}"),
            () = self.world.stalled.notified() => {}
        }
    }

    /// Advances the clock until the lease of a dead worker may be taken over.
    pub(super) fn expire_lease(&self) {
        self.clock.advance(LEASE + GRACE);
    }

    /// Advances the clock second by second and works after each.
    pub(super) async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            self.run_until_idle().await;
        }
    }

    pub(super) async fn signal(
        &self,
        run: RunId,
        name: &str,
        key: &str,
        payload: Value,
    ) -> crate::SignalDelivery {
        let run = self.snapshot(run).await;
        self.engine.deliver(run, name, key, payload, Vec::new(), Vec::new()).await.unwrap()
    }

    pub(super) async fn report(&self, run: RunId) -> crate::SignalDelivery {
        self.signal(run, "report", "1", json!({ "status": "success" })).await
    }

    pub(super) async fn snapshot(&self, id: RunId) -> Snapshot {
        self.engine.store().snapshot(id).await.unwrap().unwrap()
    }

    pub(super) async fn explain(&self, id: RunId) -> Explanation {
        let snapshot = self.snapshot(id).await;
        self.engine.explain(&snapshot).await.unwrap()
    }

    pub(super) async fn run(&self, id: RunId) -> Run {
        self.snapshot(id).await.run
    }

    pub(super) async fn ended(&self, id: RunId) -> Option<Outcome> {
        let run = self.run(id).await;
        assert_eq!(run.phase, Phase::Ended, "{run:?}");
        run.outcome
    }

    pub(super) async fn class(&self, id: RunId) -> String {
        self.run(id).await.failure.map(|failure| failure.class.to_string()).unwrap_or_default()
    }

    pub(super) async fn events(&self, id: RunId) -> Vec<String> {
        let events = self.engine.store().last_events(id, 1000).await.unwrap();
        events.into_iter().map(|event| event.kind).collect()
    }

    pub(super) async fn count(&self, id: RunId, kind: &str) -> usize {
        self.events(id).await.iter().filter(|event| *event == kind).count()
    }

    /// The step calls since the last call of this function, as one line.
    pub(super) fn calls(&self) -> String {
        std::mem::take(&mut *self.world.calls.lock().unwrap()).join(" ")
    }

    /// The names in the outside world, as one line.
    pub(super) fn outside(&self) -> String {
        self.world.outside.lock().unwrap().iter().cloned().collect::<Vec<_>>().join(" ")
    }
}

fn engine(
    store: Store,
    world: &Arc<DrillWorld>,
    clock: &Arc<ManualClock>,
    owner: &str,
    queue: &str,
) -> Engine {
    let drill = |name, undoes_steps| Arc::new(Drill { name, undoes_steps, world: Arc::clone(world) });
    let workflows = WorkflowRegistry::default()
        .with(drill("drill", false))
        .with(drill("undoing", true))
        .with(drill("tiny", false));
    let config = EngineConfig {
        owner: owner.to_owned(),
        queues: vec![queue.to_owned()],
        concurrency: 4,
        lease: LEASE,
        grace: GRACE,
    };
    Engine::new(store, workflows, Arc::clone(clock) as Arc<dyn Clock>, config).with_cancel_grace(CANCEL_GRACE)
}
