//! Workers elsewhere: every command crosses a link as JSON, and the link can be cut or lose a response.
//!
//! ```text
//!   Worker --Backend--> Link: JSON, cut?, response lost? --> RemoteQueues --> store
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::kit::{Act, Disk, Kit, LEASE, new_run};
use crate::{
    Backend, BackendError, CallKey, CallMessage, Engine, MessageRefused, NextCall, PressureGauge, Progress,
    RemoteError, RemoteNext, RemoteQueues, ReportMessage, StepCall, StepOutcome, StepReport, Worker,
    WorkflowRegistry,
};
use model::mutant::{self, Mutant};
use model::{
    Clock, Effect, ManualClock, Outcome, Phase, Run, RunId, StepRecord, Time, Verb, permit_resource,
};
use store::TakeOver;

/// The link of a worker.
struct Link {
    queues: RemoteQueues,
    cut: AtomicBool,
    checkpoints: AtomicU64,
    /// Whether the response to the next report is lost, so that the worker sends the report again.
    loses_response: AtomicBool,
}

/// Encodes and decodes a message, as on its way to the other side.
fn sent<T: Serialize + DeserializeOwned>(message: &T) -> T {
    serde_json::from_slice(&serde_json::to_vec(message).unwrap()).unwrap()
}

impl Link {
    fn pass(&self) -> Result<(), BackendError> {
        match self.cut.load(Ordering::SeqCst) {
            true => Err(BackendError("the link is cut".into())),
            false => Ok(()),
        }
    }
}

fn failed(error: RemoteError) -> BackendError {
    BackendError(Box::new(error))
}

fn next(next: RemoteNext) -> NextCall {
    match next {
        RemoteNext::Call(message) => NextCall::Call(Box::new(sent(&*message).call())),
        RemoteNext::Released => NextCall::Released,
        RemoteNext::Lost => NextCall::Lost,
    }
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
        self.pass()?;
        let key = CallKey { run: run.id, epoch: run.epoch, at: record.at, attempt: record.attempt };
        let number = self.checkpoints.fetch_add(1, Ordering::Relaxed) + 1;
        self.queues.progress(&sent(&key), number, sent(&record.output)).await.map_err(failed)
    }
}

#[async_trait]
impl Backend for Link {
    async fn report(
        &self,
        call: &StepCall,
        _record: StepRecord,
        report: StepReport,
    ) -> Result<NextCall, BackendError> {
        self.pass()?;
        let (key, message) = (sent(&CallKey::of(call)), sent(&ReportMessage::of(call, &report)));
        let mut response = self.queues.report(&key, message.clone()).await.map_err(failed)?;
        if self.loses_response.swap(false, Ordering::SeqCst) {
            response = self.queues.report(&key, message).await.map_err(failed)?;
        }
        Ok(next(response))
    }

    async fn release(&self, call: &StepCall) -> Result<(), BackendError> {
        self.pass()?;
        self.queues.release(&sent(&CallKey::of(call))).await.map_err(failed)
    }
}

/// A worker elsewhere that serves the queue "far".
struct Elsewhere {
    link: Arc<Link>,
    worker: Worker,
    clock: Arc<dyn Clock>,
}

impl Elsewhere {
    fn new(kit: &Kit, name: &str) -> Self {
        Self::of(&kit.engine, name, Arc::clone(&kit.clock) as Arc<dyn Clock>)
    }

    fn of(engine: &Engine, name: &str, clock: Arc<dyn Clock>) -> Self {
        Self::with(engine, name, clock, engine.workflows().clone())
    }

    fn with(engine: &Engine, name: &str, clock: Arc<dyn Clock>, workflows: WorkflowRegistry) -> Self {
        let queues = engine.remote_queues(name, &far()).unwrap();
        let link = Arc::new(Link {
            queues,
            cut: AtomicBool::default(),
            checkpoints: AtomicU64::default(),
            loses_response: AtomicBool::default(),
        });
        let backend = Arc::clone(&link) as Arc<dyn Backend>;
        Self { worker: Worker::new(backend, workflows, Arc::clone(&clock), LEASE), link, clock }
    }

    async fn claim(&self) -> Vec<CallMessage> {
        self.link.queues.claim(8, self.clock.now()).await.unwrap().unwrap()
    }

    /// Claims and works until no run is due.
    async fn run_until_idle(&self) -> usize {
        let mut claims = 0;
        loop {
            let since = self.clock.elapsed();
            let calls = self.claim().await;
            if calls.is_empty() {
                return claims;
            }
            for call in calls {
                claims += 1;
                self.worker.run(sent(&call).call(), since, &CancellationToken::new()).await;
            }
        }
    }
}

fn far() -> BTreeSet<String> {
    BTreeSet::from(["far".to_owned()])
}

/// A run that is due for a worker of the queue "far" at its step "b".
async fn run_at_far(kit: &Kit) -> RunId {
    let id = kit.start("drill", &["a", "b@far", "c@far"]).await;
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a");
    id
}

#[tokio::test]
async fn a_worker_elsewhere_executes_the_steps_of_its_queue_and_the_controller_the_others() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    kit.script("b", [Act::Retry, Act::Extend(vec!["d"]), Act::Done]);
    kit.script("c", [Act::Poll, Act::Done]);
    let id = run_at_far(&kit).await;
    assert_eq!(far.run_until_idle().await, 1);
    assert_eq!(kit.run(id).await.wait.unwrap().reason, "retry");
    kit.clock.advance(Duration::from_secs(5));
    far.run_until_idle().await;
    assert_eq!(kit.run(id).await.wait.unwrap().reason, "drill");
    kit.clock.advance(Duration::from_secs(5));
    far.run_until_idle().await;
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "b b+ d c c+ clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn a_worker_receives_nothing_of_other_queues_and_no_queue_of_the_controller() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    let id = kit.start("drill", &["a", "b@other"]).await;
    assert!(far.claim().await.is_empty());
    kit.run_until_idle().await;
    assert!(far.claim().await.is_empty());
    let own = kit.engine.remote_queues("w1", &BTreeSet::from(["default".to_owned()]));
    assert!(matches!(own, Err(RemoteError::OwnQueue(queue)) if queue == "default"));
    // A key that the worker has made up.
    let snapshot = kit.snapshot(id).await;
    let at = snapshot.steps[0].at;
    let key = CallKey { run: id, epoch: snapshot.run.epoch, at, attempt: 1 };
    assert!(!far.link.queues.progress(&key, 1, json!("forged")).await.unwrap());
    let done: ReportMessage = serde_json::from_value(json!({ "outcome": "done" })).unwrap();
    let outcome = far.link.queues.report(&key, done).await.unwrap();
    assert!(matches!(outcome, RemoteNext::Released), "{outcome:?}");
    assert_eq!(kit.snapshot(id).await, snapshot);
}

#[tokio::test]
async fn the_run_of_a_killed_worker_is_continued_by_another_after_the_lease() {
    let kit = Kit::new();
    let (first, second) = (Elsewhere::new(&kit, "w1"), Elsewhere::new(&kit, "w2"));
    kit.script("b", [Act::CheckpointThenStall(json!({ "sent": 1 })), Act::Done]);
    let id = run_at_far(&kit).await;
    tokio::select! {
        claims = first.run_until_idle() => panic!("nothing stalled: {claims}"),
        () = kit.world.stalled.notified() => {}
    }
    assert_eq!(kit.snapshot(id).await.steps[1].output, json!({ "sent": 1 }));
    assert_eq!(second.run_until_idle().await, 0, "the lease has not expired");
    kit.expire_lease();
    assert_eq!(second.run_until_idle().await, 1);
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "b b+ c clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

/// A worker is cut off while its step runs, another worker takes the run over, and the first one returns late. Returns the steps
/// that were called, whether the guard of the late worker allowed an effect, and whether the late worker changed anything.
async fn late_worker(kit: &Kit) -> (String, Vec<bool>, bool) {
    let (late, second) = (Elsewhere::new(kit, "w1"), Elsewhere::new(kit, "w2"));
    kit.script("b", [Act::WaitForGo, Act::Done]);
    // The run of the second worker stops at "c", so that a late report could still change it.
    kit.script("c", [Act::Poll]);
    let id = run_at_far(kit).await;
    let before = tokio::join!(late.run_until_idle(), async {
        kit.world.stalled.notified().await;
        late.link.cut.store(true, Ordering::SeqCst);
        kit.expire_lease();
        second.run_until_idle().await;
        // The second worker has the lease when the first one returns.
        kit.clock.advance(Duration::from_secs(5));
        kit.script("c", [Act::Stall]);
        tokio::select! {
            claims = second.run_until_idle() => panic!("nothing stalled: {claims}"),
            () = kit.world.stalled.notified() => {}
        }
        let before = (kit.snapshot(id).await, kit.events(id).await);
        late.link.cut.store(false, Ordering::SeqCst);
        kit.world.go.notify_one();
        before
    })
    .1;
    let changed = (kit.snapshot(id).await, kit.events(id).await) != before;
    let allowed = std::mem::take(&mut *kit.world.lease_allowed.lock().unwrap());
    (kit.calls(), allowed, changed)
}

#[tokio::test]
async fn a_worker_that_returns_after_its_lease_writes_nothing_and_may_send_nothing() {
    let kit = Kit::new();
    assert_eq!(late_worker(&kit).await, ("b b+ c c+".to_owned(), vec![false], false));
}

#[test]
fn a_controller_that_ignores_the_epoch_is_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let changed = mutant::with(Mutant::IgnoresEpoch, || {
        runtime.block_on(async {
            let kit = Kit::new();
            late_worker(&kit).await.2
        })
    });
    assert!(changed, "the late report of the mutant was not noticed");
}

#[tokio::test]
async fn a_report_whose_response_was_lost_is_sent_again_and_counts_once() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    let id = run_at_far(&kit).await;
    far.link.loses_response.store(true, Ordering::SeqCst);
    far.run_until_idle().await;
    kit.run_until_idle().await;
    // The call of "c" is in the response to the repeated report. The first response may have been received.
    assert_eq!(kit.calls(), "b c+ clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    // The report that ends the part of the worker.
    kit.script("b", [Act::Poll]);
    let other = run_at_far(&kit).await;
    far.link.loses_response.store(true, Ordering::SeqCst);
    far.run_until_idle().await;
    assert_eq!(kit.calls(), "b");
    let revision = kit.run(other).await.revision;
    assert_eq!(kit.run(other).await.wait.unwrap().reason, "drill");
    far.run_until_idle().await;
    assert_eq!(kit.run(other).await.revision, revision);
}

#[tokio::test]
async fn a_late_checkpoint_changes_no_step_that_has_reported() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    run_at_far(&kit).await;
    let call = far.claim().await.remove(0).call();
    let key = CallKey::of(&call);
    assert!(far.link.queues.progress(&key, 1, json!(1)).await.unwrap());
    let following = far.link.report(&call, call.record.clone(), StepReport::done()).await.unwrap();
    assert!(matches!(following, NextCall::Call(_)));
    let before = kit.snapshot(key.run).await;
    assert!(!far.link.queues.progress(&key, 2, json!(2)).await.unwrap());
    let wrong_attempt = CallKey { at: before.steps[2].at, attempt: 2, ..key };
    assert!(!far.link.queues.progress(&wrong_attempt, 2, json!(2)).await.unwrap());
    assert_eq!(kit.snapshot(key.run).await, before);
    assert_eq!((&before.steps[1].output, &before.steps[2].output), (&json!(1), &Value::Null));
}

#[tokio::test]
async fn a_checkpoint_that_was_overtaken_by_a_newer_one_writes_nothing_and_extends_no_lease() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    run_at_far(&kit).await;
    let call = far.claim().await.remove(0).call();
    let key = CallKey::of(&call);
    assert!(far.link.queues.progress(&key, 7, json!("newer")).await.unwrap());
    let before = kit.snapshot(key.run).await;
    kit.clock.advance(Duration::from_secs(1));
    // The first try of an older checkpoint, which a proxy held back.
    assert!(far.link.queues.progress(&key, 6, json!("older")).await.unwrap(), "the lease is held");
    assert_eq!(kit.snapshot(key.run).await, before);
    // The same one again, whose response was lost.
    assert!(far.link.queues.progress(&key, 7, json!("newer")).await.unwrap());
    let renewed = kit.snapshot(key.run).await;
    assert_eq!(renewed.steps, before.steps);
    assert!(renewed.run.lease.unwrap().expires_at > before.run.lease.unwrap().expires_at);
    // A worker with a new claim counts from one.
    far.link.queues.release(&key).await.unwrap();
    let again = far.claim().await.remove(0).call();
    let key = CallKey::of(&again);
    assert!(far.link.queues.progress(&key, 1, json!("second claim")).await.unwrap());
    let steps = kit.snapshot(key.run).await.steps;
    assert_eq!(steps.iter().find(|step| step.at == key.at).unwrap().output, json!("second claim"));
}

#[tokio::test]
async fn a_claim_is_listed_before_its_task_begins_and_a_cancel_ends_it_also_while_the_worker_stops() {
    let kit = Kit::new();
    let mut far = Elsewhere::new(&kit, "w1");
    far.worker.cancel_grace = Duration::from_millis(10);
    kit.script("solid", [Act::Stall]);
    let id = kit.start("drill", &["a", "solid@far"]).await;
    kit.run_until_idle().await;
    let call = far.claim().await.remove(0).call();
    let epoch = call.snapshot.run.epoch;
    let stop = CancellationToken::new();
    let work = far.worker.run(call, far.clock.elapsed(), &stop);
    assert_eq!(far.worker.held(), [(id, epoch)], "an interrupt reaches it from now on");
    let meanwhile = async {
        kit.world.stalled.notified().await;
        // The worker waits for the end of a call that may not be interrupted; the cancel comes afterwards.
        stop.cancel();
        tokio::task::yield_now().await;
        far.worker.interrupt(id, epoch);
    };
    tokio::join!(work, meanwhile);
    assert_eq!(far.worker.held(), []);
    assert_eq!(kit.run(id).await.lease, None, "the lease is given back");
}

#[tokio::test]
async fn a_claim_of_a_worker_reads_the_shortage_itself_while_the_controller_claims_nothing() {
    let kit = Kit::new();
    let disk = Arc::new(Disk(AtomicBool::new(true)));
    kit.engine.gauge(Arc::clone(&disk) as Arc<dyn PressureGauge>);
    let far = Elsewhere::new(&kit, "w1");
    kit.start("drill", &["b@far"]).await;
    assert!(far.claim().await.is_empty(), "the disk is full, and the dispatcher has not read that yet");
    disk.0.store(false, Ordering::SeqCst);
    kit.clock.advance(Duration::from_secs(6));
    assert_eq!(far.claim().await.len(), 1);
}

#[tokio::test]
async fn two_workers_of_one_queue_never_have_the_same_run() {
    let kit = Kit::new();
    let (first, second) = (Elsewhere::new(&kit, "w1"), Elsewhere::new(&kit, "w2"));
    for _ in 0..10 {
        kit.start("drill", &["b@far"]).await;
    }
    let (one, other) = tokio::join!(first.claim(), second.claim());
    let runs: Vec<RunId> = one.into_iter().chain(other).map(|call| call.call().snapshot.run.id).collect();
    let distinct: BTreeSet<RunId> = runs.iter().copied().collect();
    assert_eq!((runs.len(), distinct.len()), (10, 10));
}

#[tokio::test]
async fn a_worker_elsewhere_keeps_its_run_while_the_controller_is_started_again() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    kit.script("b", [Act::WaitForGo]);
    let id = run_at_far(&kit).await;
    tokio::join!(far.run_until_idle(), async {
        kit.world.stalled.notified().await;
        assert_eq!(kit.engine.store().take_over(TakeOver::Everything, kit.now()).await.unwrap(), 0);
        assert_eq!(Elsewhere::new(&kit, "w2").run_until_idle().await, 0);
        kit.world.go.notify_one();
    });
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "b c clean");
    assert_eq!(*kit.world.lease_allowed.lock().unwrap(), [true]);
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

/// A clock whose wall time is hours off.
struct Wrong(Arc<ManualClock>);

impl Clock for Wrong {
    fn now(&self) -> Time {
        self.0.now().plus(Duration::from_secs(7 * 3600))
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[tokio::test]
async fn a_lease_does_not_depend_on_the_wall_clock_of_the_worker() {
    let kit = Kit::new();
    let clock = Arc::new(Wrong(Arc::clone(&kit.clock)));
    let far = Elsewhere::of(&kit.engine, "w1", clock);
    kit.script("b", [Act::WaitForGo]);
    kit.script("c", [Act::WaitForGo]);
    run_at_far(&kit).await;
    tokio::join!(far.run_until_idle(), async {
        kit.world.stalled.notified().await;
        kit.clock.advance(LEASE - Duration::from_secs(10));
        kit.world.go.notify_one();
        kit.world.stalled.notified().await;
        kit.clock.advance(LEASE - Duration::from_secs(4));
        kit.world.go.notify_one();
    });
    assert_eq!(*kit.world.lease_allowed.lock().unwrap(), [true, false]);
}

#[tokio::test]
async fn a_cancel_reaches_the_worker_and_its_run_is_cleaned_up() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    kit.script("b", [Act::Stall]);
    let id = run_at_far(&kit).await;
    tokio::join!(far.run_until_idle(), async {
        kit.world.stalled.notified().await;
        let held = far.worker.held();
        assert_eq!(far.link.queues.interrupted(&held).await.unwrap(), []);
        kit.engine.verb(id, Verb::Cancel, "olga", "").await.unwrap();
        let stopped = far.link.queues.interrupted(&held).await.unwrap();
        assert_eq!(stopped, held);
        far.worker.interrupt(stopped[0].0, stopped[0].1);
    });
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "b clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
    assert_eq!(far.link.queues.interrupted(&[(id, 2)]).await.unwrap(), [(id, 2)], "the lease is gone");
}

#[tokio::test]
async fn a_cancel_ends_a_run_whose_worker_died_although_its_queue_has_no_worker() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    kit.script("b", [Act::Stall]);
    let id = run_at_far(&kit).await;
    tokio::select! {
        claims = far.run_until_idle() => panic!("nothing stalled: {claims}"),
        () = kit.world.stalled.notified() => {}
    }
    kit.engine.verb(id, Verb::Cancel, "olga", "").await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.run(id).await.outcome, None, "the last request of the worker may still arrive");
    kit.expire_lease();
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "b clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
}

#[tokio::test]
async fn the_deadline_ends_a_run_whose_queue_has_no_worker() {
    let kit = Kit::new();
    let mut unstarted = new_run("drill", &["b@far"], kit.now());
    unstarted.plan.finish[0].queue = "far".to_owned();
    unstarted.plan.finish[0].name = "always.clean".into();
    let unstarted = kit.start_run(unstarted).await;
    let started = run_at_far(&kit).await;
    kit.clock.advance(Duration::from_secs(3590));
    kit.run_until_idle().await;
    assert_eq!((kit.run(unstarted).await.outcome, kit.run(started).await.outcome), (None, None));
    kit.clock.advance(Duration::from_secs(10));
    kit.run_until_idle().await;
    assert_eq!(
        (kit.ended(started).await, kit.class(started).await.as_str()),
        (Some(Outcome::Failed), "deadline")
    );
    let run = kit.run(unstarted).await;
    assert_eq!((run.outcome, run.phase), (Some(Outcome::Failed), Phase::Finishing));
    // The finish step of the other queue is given up at the deadline of the finish list; one that needs no machine runs here.
    kit.clock.advance(Duration::from_secs(600));
    kit.run_until_idle().await;
    assert_eq!(kit.ended(unstarted).await, Some(Outcome::Failed));
    assert_eq!(kit.calls(), "clean always.clean");
}

#[tokio::test]
async fn the_deadline_ends_a_run_that_was_granted_a_permit_while_its_queue_had_no_worker() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    kit.script("gate", [Act::Permit]);
    kit.script("again", [Act::Await("report")]);
    let holder = kit.start("drill", &["gate", "again"]).await;
    kit.run_until_idle().await;
    kit.script("b", [Act::Permit]);
    let id = kit.start("drill", &["a", "b@far"]).await;
    kit.run_until_idle().await;
    far.run_until_idle().await;
    assert_eq!(kit.run(id).await.step.as_deref(), Some("b"));
    // The worker goes away, and then the permit is granted.
    drop(far);
    kit.engine.store().release_permit(holder, &permit_resource("gate"), kit.now()).await.unwrap();
    kit.clock.advance(Duration::from_secs(3600));
    kit.run_until_idle().await;
    kit.clock.advance(Duration::from_secs(600));
    kit.run_until_idle().await;
    assert_eq!((kit.ended(id).await, kit.class(id).await.as_str()), (Some(Outcome::Failed), "deadline"));
    kit.script("gate", [Act::Permit]);
    let next = kit.start_run(new_run("drill", &["gate"], kit.now())).await;
    kit.run_until_idle().await;
    assert_eq!(kit.ended(next).await, Some(Outcome::Succeeded), "the permit is free");
}

#[tokio::test]
async fn a_permit_is_waited_for_and_used_elsewhere() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    kit.script("b", [Act::Permit]);
    let id = run_at_far(&kit).await;
    far.run_until_idle().await;
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "b b+ c clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn a_step_that_the_worker_does_not_know_is_held_and_not_skipped() {
    let kit = Kit::new();
    let clock = Arc::clone(&kit.clock) as Arc<dyn Clock>;
    let old = Elsewhere::with(&kit.engine, "old", clock, WorkflowRegistry::default());
    let id = run_at_far(&kit).await;
    old.run_until_idle().await;
    let hold = kit.run(id).await.hold.unwrap();
    assert!(hold.detail.contains("upgrade the worker"), "{}", hold.detail);
    assert_eq!((kit.calls().as_str(), hold.class.as_str()), ("", "unknown_step"));
}

#[tokio::test]
async fn a_report_that_asks_for_what_only_the_controller_does_fails_its_step() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    kit.script("b", [Act::Await("report")]);
    let id = run_at_far(&kit).await;
    far.run_until_idle().await;
    kit.run_until_idle().await;
    let failure = kit.run(id).await.failure.unwrap();
    assert!(failure.summary.contains("cannot be executed elsewhere"), "{}", failure.summary);
}

#[tokio::test]
async fn messages_that_are_too_long_or_not_known_are_refused_and_change_nothing() {
    let kit = Kit::new();
    let far = Elsewhere::new(&kit, "w1");
    let id = run_at_far(&kit).await;
    let call = far.claim().await.remove(0).call();
    let key = CallKey::of(&call);
    let before = kit.snapshot(id).await;
    let event = |message: String| json!({ "kind": "x", "level": "info", "message": message, "data": null });
    let kind = |kind: &str| json!({ "kind": kind, "level": "info", "message": "x", "data": null });
    let failed = |class: String| json!({ "fail": { "class": class, "step": "b", "summary": "x", "next_action": "x" } });
    let wait = |reason: &str| json!({ "wait": { "reason": reason, "poll_ms": 1, "limit": { "within-ms": 1 }, "detail": "x" } });
    let bad = [
        json!({ "outcome": "done", "events": vec![event("x".to_owned()); 257] }),
        json!({ "outcome": "done", "events": [event("x".repeat(8193))] }),
        json!({ "outcome": "done", "events": [kind("a\nb")] }),
        json!({ "outcome": failed("x".repeat(65)) }),
        json!({ "outcome": "done", "plan": [["c", "x".repeat(8193)]] }),
        json!({ "outcome": wait("moon") }),
        json!({ "outcome": "done", "effects": [{ "pinned": "ab" }] }),
        // The lock of a server is no permit, whether its holder gives it away or another one takes it.
        json!({ "outcome": "done", "effects": [{ "permit-released": "server/XF-1" }] }),
        json!({ "outcome": { "permit": { "resource": "server/XF-2", "capacity": 9, "reason": "drill", "detail": "x" } } }),
    ];
    for message in bad {
        let message: ReportMessage = serde_json::from_value(message).unwrap();
        let refused = far.link.queues.report(&key, message).await;
        assert!(matches!(refused, Err(RemoteError::Refused(MessageRefused(_)))), "{refused:?}");
    }
    for unknown in [json!({ "outcome": "done", "children": [] }), json!({ "outcome": "restart" })] {
        assert!(serde_json::from_value::<ReportMessage>(unknown).is_err());
    }
    assert_eq!(kit.snapshot(id).await, before);
    let outcome = StepReport::new(StepOutcome::Done);
    assert!(matches!(far.link.report(&call, call.record.clone(), outcome).await.unwrap(), NextCall::Call(_)));
}
