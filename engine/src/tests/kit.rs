//! The drill: a workflow whose steps do what a test's script says and whose outside world is a set of names.
//!
//! ```text
//!  script["b"] = [Retry, Stall, Done]      each call of step b takes the next act; without one it just does its work
//!  outside     = {a, b}                    doing puts the step's name in, undoing takes it out: twice is the same as once
//!  calls       = [a, b, b+, undo b]        "+" a call that may find its own earlier work
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::model::{
    Clock, Failure, Hold, LockRequest, ManualClock, NewRun, OnConflict, Outcome, Phase, Plan, Run, RunId,
    Signal, Snapshot, StepInstance, Time, turn,
};
use crate::store::{Created, Creation, Store};
use crate::{
    Engine, EngineConfig, Explanation, Kind, Order, PermitRequest, Reason, Refusal, Step, StepContext,
    StepPolicy, StepReport, Verdict, WaitRequest, WorkflowRegistry,
};

pub(super) const LEASE: Duration = Duration::from_secs(60);
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// How long a cancelled step that may not be interrupted goes on here; real time.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);

/// What one call of a step does.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Its work, and done.
    Done,
    /// Nothing to do.
    Skip,
    /// It may work later.
    Retry,
    /// It never will.
    Fail,
    /// An operator must decide.
    Hold,
    /// Waits for a signal of that name.
    Await(&'static str),
    /// Looks again every 5 s, for at most 20 s.
    Poll,
    /// Does its work and adds these steps to the plan.
    Extend(Vec<&'static str>),
    /// Takes its turn at "gate", which has one place, then does its work.
    Turn,
    /// Starts a run of that kind with that input, and is done.
    Child(&'static str, Value),
    /// Breaks off.
    Panic,
    /// Never comes back; a test that waits on [`World::stalled`] lets the worker die here.
    Stall,
    /// Does its work, then never comes back.
    WorkThenStall,
    /// Writes this down, then never comes back.
    CheckpointThenStall(Value),
    /// Waits until the test says go ([`World::go`]), then does its work.
    Gate,
    /// Waits until the test says go, then asks to wait for a signal of that name without having looked again.
    GateThenAwait(&'static str),
}

#[derive(Default)]
pub(super) struct World {
    script: Mutex<HashMap<String, VecDeque<Act>>>,
    calls: Mutex<Vec<String>>,
    outside: Mutex<BTreeSet<String>>,
    /// The evidence each call found of its own.
    pub(super) found: Mutex<Vec<Value>>,
    /// What a lease guard said after the test said go.
    pub(super) outlives: Mutex<Vec<bool>>,
    pub(super) stalled: Notify,
    pub(super) go: Notify,
}

impl World {
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
    world: Arc<World>,
}

/// What every scripted step waits for.
pub(super) const DRILL: Reason =
    Reason { name: "drill", means: "the other side", ends_by: "its message", next_action: "send it" };

impl Kind for Drill {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> u32 {
        1
    }

    fn step(&self, name: &str) -> Option<Arc<dyn Step>> {
        let step = Scripted { name: name.to_owned(), world: Arc::clone(&self.world) };
        (!name.starts_with("unknown")).then(|| Arc::new(step) as Arc<dyn Step>)
    }

    fn prepare(&self, order: Order) -> Result<NewRun, Refusal> {
        if order.input["refuse"] == true {
            return Err(Refusal("the drill does not want to".to_owned()));
        }
        let names = order.input["forward"].as_array().cloned().unwrap_or_default();
        let forward: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        let locks = order.input["lock"].as_str().map(|resource| LockRequest {
            resource: resource.to_owned(),
            places: 1,
            on_conflict: OnConflict::Refuse,
        });
        Ok(NewRun {
            id: order.id,
            parent: Some(order.parent),
            created_at: order.now,
            created_by: order.created_by,
            locks: locks.into_iter().collect(),
            input: order.input,
            ..new_run(self.name, &forward, order.now)
        })
    }

    fn undoes_steps(&self) -> bool {
        self.undoes_steps
    }

    fn finish_timeout(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn reasons(&self) -> &'static [&'static Reason] {
        &[&DRILL]
    }
}

struct Scripted {
    name: String,
    world: Arc<World>,
}

#[async_trait]
impl Step for Scripted {
    fn policy(&self) -> StepPolicy {
        StepPolicy {
            call: Duration::from_millis(if self.name.starts_with("hang") { 20 } else { 30_000 }),
            budget: Duration::from_secs(100),
            attempts: 3,
            backoff: Duration::from_secs(1),
            backoff_cap: Duration::from_secs(4),
            wait: None,
            interruptible: !self.name.starts_with("solid"),
            always: self.name.starts_with("always"),
        }
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        let world = &*self.world;
        world.call(format!("{}{}", self.name, if context.reentered { "+" } else { "" }));
        world.found.lock().unwrap().push(context.record.evidence.clone());
        let work = || world.outside.lock().unwrap().insert(self.name.clone());
        match world.act(&self.name) {
            Act::Done => {
                work();
                StepReport::done()
            }
            Act::Skip => StepReport::skipped(),
            Act::Retry => StepReport::new(Verdict::Retry(failure(&self.name, "shaky"))),
            Act::Fail => StepReport::fail(failure(&self.name, "broken")),
            Act::Hold => StepReport::new(Verdict::Hold(Hold {
                class: "decide".to_owned(),
                since: context.now(),
                remind_at: context.now(),
                verbs: vec!["resume".to_owned()],
                detail: "which colour?".to_owned(),
            })),
            Act::Await(signal) => {
                let told = context.snapshot.pending().find(|told| told.name == signal);
                match told {
                    Some(told) => settled(told),
                    None => {
                        // Not told yet: the same act again when it comes back.
                        let mut script = world.script.lock().unwrap();
                        script.entry(self.name.clone()).or_default().push_front(Act::Await(signal));
                        waiting(vec![signal], None, Duration::from_secs(300))
                    }
                }
            }
            Act::Poll => waiting(Vec::new(), Some(Duration::from_secs(5)), Duration::from_secs(20)),
            Act::Extend(names) => {
                work();
                StepReport { plan: names.into_iter().map(instance).collect(), ..StepReport::done() }
            }
            Act::Turn if !context.has_permit(&turn("gate")) => {
                // The same act again when it comes back.
                world.script.lock().unwrap().entry(self.name.clone()).or_default().push_front(Act::Turn);
                StepReport::new(Verdict::Turn(PermitRequest {
                    resource: turn("gate"),
                    places: 1,
                    reason: &DRILL,
                    signals: Vec::new(),
                    detail: "not yet".to_owned(),
                }))
            }
            Act::Turn => {
                work();
                StepReport::done()
            }
            Act::Child(kind, input) => {
                StepReport { children: vec![(kind.to_owned(), "1".to_owned(), input)], ..StepReport::done() }
            }
            Act::Panic => panic!("on purpose"),
            Act::Stall => self.stall().await,
            Act::WorkThenStall => {
                work();
                self.stall().await
            }
            Act::CheckpointThenStall(evidence) => {
                context.checkpoint(evidence).await.unwrap();
                self.stall().await
            }
            Act::Gate => {
                world.stalled.notify_one();
                world.go.notified().await;
                world.outlives.lock().unwrap().push(context.lease.outlives(Duration::from_secs(5)).is_ok());
                work();
                StepReport::done()
            }
            Act::GateThenAwait(signal) => {
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
            Act::Retry => StepReport::new(Verdict::Retry(failure(&self.name, "shaky"))),
            Act::Fail => StepReport::fail(failure(&self.name, "stuck")),
            Act::Stall => self.stall().await,
            _ => {
                world.outside.lock().unwrap().remove(&self.name);
                StepReport::done()
            }
        }
    }

    fn receive(&self, _snapshot: &Snapshot, signal: &Signal) -> Option<StepReport> {
        (signal.name == "report").then(|| settled(signal))
    }
}

impl Scripted {
    async fn stall(&self) -> StepReport {
        self.world.stalled.notify_one();
        pending().await
    }
}

fn settled(signal: &Signal) -> StepReport {
    let mut report = match signal.payload["status"].as_str() {
        Some("failed") => StepReport::fail(failure("unit", "the other side failed")),
        _ => StepReport::done(),
    };
    report.consumed.push((signal.name.clone(), signal.key.clone()));
    report.leaving(signal.payload.clone())
}

fn waiting(signals: Vec<&'static str>, poll: Option<Duration>, within: Duration) -> StepReport {
    let detail = "not yet".to_owned();
    StepReport::new(Verdict::Wait(WaitRequest { reason: &DRILL, signals, poll, within, detail }))
}

fn failure(step: &str, class: &str) -> Failure {
    Failure {
        class: class.to_owned(),
        step: step.to_owned(),
        summary: format!("{class} on purpose"),
        evidence: None,
        next_action: "nothing, this is a drill".to_owned(),
    }
}

/// `name` in the queue "default", or `name@queue`.
fn instance(name: &str) -> StepInstance {
    let (name, queue) = name.split_once('@').unwrap_or((name, "default"));
    StepInstance { name: name.to_owned(), key: String::new(), queue: queue.to_owned() }
}

/// A run of a kind with these steps; it cleans up with "clean" and has an hour.
pub(super) fn new_run(kind: &str, forward: &[&str], now: Time) -> NewRun {
    NewRun {
        id: RunId::new(),
        kind: kind.to_owned(),
        kind_version: 1,
        server: None,
        parent: None,
        priority: 0,
        deadline_at: now.plus(Duration::from_secs(3600)),
        created_by: "tester".to_owned(),
        created_at: now,
        input: Value::Null,
        plan: Plan {
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
    pub(super) world: Arc<World>,
    pub(super) clock: Arc<ManualClock>,
    /// Serves the queue "default".
    pub(super) engine: Engine,
}

impl Kit {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let world = Arc::<World>::default();
        let store = Store::open(&folder.path().join("shoal.db"), clock.now()).unwrap();
        let engine = engine(store, &world, &clock, "one", "default");
        Self { folder, world, clock, engine }
    }

    /// One more engine, with a database handle of its own.
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

    pub(super) fn forget_script(&self) {
        self.world.script.lock().unwrap().clear();
    }

    pub(super) async fn start(&self, kind: &str, forward: &[&str]) -> RunId {
        self.start_run(new_run(kind, forward, self.now())).await
    }

    pub(super) async fn start_run(&self, run: NewRun) -> RunId {
        match self.engine.create(Creation { run }).await.unwrap() {
            Created::New(run) => run.id,
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn settle(&self) -> usize {
        self.engine.run_until_idle().await.unwrap()
    }

    /// Works until nothing is due, while something else happens.
    pub(super) async fn settle_while(&self, meanwhile: impl Future<Output = ()>) {
        tokio::join!(Box::pin(self.settle()), Box::pin(meanwhile));
    }

    /// Works until a step stalls, and lets the worker die there.
    pub(super) async fn settle_and_die(&self, engine: &Engine) {
        tokio::select! {
            done = engine.run_until_idle() => panic!("nothing stalled: {done:?}"),
            () = self.world.stalled.notified() => {}
        }
    }

    /// Lets time pass until a dead worker's lease may be taken.
    pub(super) fn outlive_lease(&self) {
        self.clock.advance(LEASE + GRACE);
    }

    /// Lets time pass in seconds, working whenever something may be due.
    pub(super) async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            self.settle().await;
        }
    }

    pub(super) async fn tell(&self, run: RunId, name: &str, key: &str, payload: Value) -> crate::Delivery {
        let run = self.snapshot(run).await;
        self.engine.deliver(run, name, key, payload, Vec::new()).await.unwrap()
    }

    pub(super) async fn report(&self, run: RunId) -> crate::Delivery {
        self.tell(run, "report", "1", json!({ "status": "success" })).await
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
        self.run(id).await.failure.map(|failure| failure.class).unwrap_or_default()
    }

    pub(super) async fn events(&self, id: RunId) -> Vec<String> {
        let events = self.engine.store().last_events(id, 1000).await.unwrap();
        events.into_iter().map(|event| event.kind).collect()
    }

    pub(super) async fn count(&self, id: RunId, kind: &str) -> usize {
        self.events(id).await.iter().filter(|event| *event == kind).count()
    }

    /// The calls since the last time this was asked, as one line.
    pub(super) fn calls(&self) -> String {
        std::mem::take(&mut *self.world.calls.lock().unwrap()).join(" ")
    }

    /// What the outside world shows, as one line.
    pub(super) fn outside(&self) -> String {
        self.world.outside.lock().unwrap().iter().cloned().collect::<Vec<_>>().join(" ")
    }
}

fn engine(store: Store, world: &Arc<World>, clock: &Arc<ManualClock>, owner: &str, queue: &str) -> Engine {
    let kind = |name, undoes_steps| Arc::new(Drill { name, undoes_steps, world: Arc::clone(world) });
    let kinds = WorkflowRegistry::default()
        .with(kind("drill", false))
        .with(kind("undoing", true))
        .with(kind("tiny", false));
    let config = EngineConfig {
        owner: owner.to_owned(),
        queues: vec![queue.to_owned()],
        concurrency: 4,
        lease: LEASE,
        grace: GRACE,
    };
    Engine::new(store, kinds, Arc::clone(clock) as Arc<dyn Clock>, config).with_cancel_grace(PATIENCE)
}
