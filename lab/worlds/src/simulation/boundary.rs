//! The edge of one controller: everything it does to the world, and everything it hears of it, crosses here.
//!
//! ```text
//!   controller --(database, BMC, answer)--> cross: dead? paused? calls_until_crash burnt? a little delay --> world
//! ```
//!
//! A crash is the end of all tasks of a controller at whatever await they are: from that moment nothing crosses any more. Who
//! tries unwinds, as a thread of a killed process is simply gone; the database keeps what was committed, the simulated BMCs what they
//! were told. A paused controller (a stopped process, a suspended machine) goes on later, and finds that time has passed.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::rng::WorldRng;
use super::world::{World, lock};
use engine::model::{Clock, Snapshot};
use engine::store::{HookDecision, Violation, StoreHooks};
use engine::{Blockers, WorkflowRegistry, explain};

/// The process of this task is gone.
struct ProcessGone;

/// One controller's edge.
pub(super) struct Boundary {
    /// The name the controller claims under.
    pub(super) owner: String,
    /// Ends with the controller.
    pub(super) death: CancellationToken,
    /// What explains the states it commits, while it lives: they know the network, and the network knows this edge.
    workflows: Mutex<Option<WorkflowRegistry>>,
    world: Arc<World>,
    rng: WorldRng,
    paused: AtomicBool,
    /// Wakes in the order of arrival: a `watch` would choose one by chance.
    resumed: Notify,
    /// Crossings until it dies by itself; below zero never.
    calls_until_crash: AtomicI64,
}

impl Boundary {
    pub(super) fn new(world: &Arc<World>, owner: String, number: u64) -> Arc<Self> {
        Arc::new(Self {
            owner,
            death: CancellationToken::new(),
            workflows: Mutex::new(None),
            rng: WorldRng::new(world.plan.seed, &format!("boundary {number}")),
            world: Arc::clone(world),
            paused: AtomicBool::new(false),
            resumed: Notify::new(),
            calls_until_crash: AtomicI64::new(-1),
        })
    }

    /// Explains, from now on, what the controller commits.
    pub(super) fn explain_by(&self, workflows: WorkflowRegistry) {
        *lock(&self.workflows) = Some(workflows);
    }

    /// The end: nothing crosses any more, and nothing of the controller is kept.
    pub(super) fn end(&self) {
        self.death.cancel();
        *lock(&self.workflows) = None;
    }

    /// Dies after so many further calls.
    pub(super) fn crash_after(&self, calls: u64) {
        self.calls_until_crash.store(i64::try_from(calls).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Stops or goes on.
    pub(super) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
        self.resumed.notify_waiters();
    }

    pub(super) fn is_dead(&self) -> bool {
        self.death.is_cancelled()
    }

    /// Crosses, or is stopped here for ever.
    pub(super) async fn call_out(&self) {
        self.alive();
        self.wait_while_paused().await;
        if self.calls_until_crash.load(Ordering::Relaxed) >= 0 && self.calls_until_crash.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.world.note(&format!("crash of {}", self.owner));
            self.death.cancel();
        }
        self.alive();
        if !self.world.is_quiet() {
            match self.rng.below(20) {
                0 | 1 => tokio::task::yield_now().await,
                2 => tokio::time::sleep(self.rng.time(Duration::ZERO, Duration::from_millis(40))).await,
                _ => {}
            }
            self.wait_while_paused().await;
            self.alive();
        }
        self.world.count_call(self);
    }

    async fn wait_while_paused(&self) {
        while self.paused.load(Ordering::Relaxed) {
            self.resumed.notified().await;
            self.alive();
        }
    }

    fn alive(&self) {
        if self.is_dead() {
            // Not a panic: nothing is printed, and nothing of it is a defect.
            resume_unwind(Box::new(ProcessGone));
        }
    }

    /// The work of the process, until it dies.
    pub(super) async fn while_alive<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            () = self.death.cancelled() => resume_unwind(Box::new(ProcessGone)),
            done = work => done,
        }
    }
}

#[async_trait]
impl StoreHooks for Boundary {
    async fn before(&self, _operation: &'static str, writes: bool) -> HookDecision {
        self.call_out().await;
        if writes { self.world.database() } else { HookDecision::Proceed }
    }

    async fn after(&self, _operation: &'static str, writes: bool) {
        if writes {
            self.call_out().await;
        }
    }

    fn violated(&self, violation: Violation) {
        self.world.checker.violation(format!("{}: {}", violation.rule, violation.subject));
    }

    fn seen(&self, snapshot: &Snapshot) {
        let workflows = lock(&self.workflows);
        let Some(workflows) = workflows.as_ref() else { return };
        let explanation = explain(snapshot, workflows, &Blockers::default(), self.world.wall_clock().now());
        self.world.checker.explained(snapshot.run.id, &explanation);
    }
}
