//! The boundary of one controller. Every call from the controller to the world, and every response, passes it.
//!
//! ```text
//!   controller --(database, BMC, response)--> call_out: dead? paused? crash due? short delay --> world
//! ```
//!
//! A crash ends all tasks of a controller at their current await. After a crash no call passes the boundary: a task that
//! tries unwinds, like a thread of a killed process. The database keeps committed transactions; the simulated BMCs keep the
//! effect of requests that they received. A paused controller (a stopped process, a suspended machine) continues later,
//! when time has passed.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::rng::WorldRng;
use super::state::WorldState;
use engine::{Blockers, WorkflowRegistry, explain};
use model::{Clock, RunId, Snapshot};
use store::{HookDecision, StoreHooks, Violation};

/// The panic payload of a task whose controller process was killed.
struct ProcessGone;

/// The boundary of one controller.
pub(super) struct Boundary {
    /// The worker name under which the controller claims runs.
    pub(super) owner: String,
    /// Cancelled when the controller ends.
    pub(super) death: CancellationToken,
    /// The workflows that explain committed states. Removed at the end of the controller, because they refer to the network,
    /// which refers to this boundary.
    workflows: Mutex<Option<WorkflowRegistry>>,
    world: Arc<WorldState>,
    rng: WorldRng,
    paused: AtomicBool,
    /// Wakes the waiting tasks in the order of their arrival; a `watch` would wake them in random order.
    resumed: Notify,
    /// Calls until the controller crashes; never if negative.
    calls_until_crash: AtomicI64,
}

impl Boundary {
    pub(super) fn new(world: &Arc<WorldState>, owner: String, number: u64) -> Arc<Self> {
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

    /// Sets the workflows that explain every state that the controller commits.
    pub(super) fn explain_by(&self, workflows: WorkflowRegistry) {
        *self.workflows.lock() = Some(workflows);
    }

    /// Ends the controller: no further call passes, and the workflows are dropped.
    pub(super) fn end(&self) {
        self.death.cancel();
        *self.workflows.lock() = None;
    }

    /// Lets the controller crash after this number of further calls.
    pub(super) fn crash_after(&self, calls: u64) {
        self.calls_until_crash.store(i64::try_from(calls).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Pauses or resumes the controller.
    pub(super) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
        self.resumed.notify_waiters();
    }

    pub(super) fn is_dead(&self) -> bool {
        self.death.is_cancelled()
    }

    /// Lets one call pass. Unwinds if the controller is dead and waits while the controller is paused.
    pub(super) async fn call_out(&self) {
        self.alive();
        self.wait_while_paused().await;
        if self.calls_until_crash.load(Ordering::Relaxed) >= 0
            && self.calls_until_crash.fetch_sub(1, Ordering::Relaxed) == 0
        {
            self.world.note(&format!("{} crashes", self.owner));
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
        self.world.count_call(&self.owner, &self.death);
    }

    async fn wait_while_paused(&self) {
        while self.paused.load(Ordering::Relaxed) {
            self.resumed.notified().await;
            self.alive();
        }
    }

    fn alive(&self) {
        if self.is_dead() {
            // This is not a panic: the panic hook does not run and nothing is printed.
            resume_unwind(Box::new(ProcessGone));
        }
    }

    /// Runs work of the controller until the controller dies.
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

    fn ended(&self, run: RunId) {
        self.world.run_ended(run);
    }

    fn seen(&self, snapshot: &Snapshot) {
        let workflows = self.workflows.lock();
        let Some(workflows) = workflows.as_ref() else { return };
        let explanation = explain(snapshot, workflows, &Blockers::default(), self.world.wall_clock().now());
        self.world.checker.explained(snapshot.run.id, &explanation);
    }
}
