//! The worker: calls the steps of a claimed run until the run is parked or ends, or the lease is lost.
//!
//! ```text
//!   NextCall::Call --> step.run, within its time limit --> report --> Backend::report --> NextCall
//!        |                  | interrupted                                                   | Released, Lost: stop
//!        +-- interrupted ---+--------------------------> Backend::release: stop             | error: stop, the lease expires
//! ```
//!
//! Invariants: a worker writes through its [`Backend`] only; it measures its lease on its own clock from a moment before each
//! command was sent, so that its lease never ends later than the stored one.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::backend::{Backend, NextCall, StepCall};
use super::checkpoint::{BackendError, Checkpoint, Progress};
use super::hold;
use super::interrupt::{CANCEL_GRACE, Interrupt, Interrupts};
use super::lease::LeaseGuard;
use super::workflow::{
    AfterCommit, Step, StepContext, StepOutcome, StepPolicy, StepReport, WorkflowRegistry,
};
use model::{Clock, Failure, HoldClass, RunId, StepRecord, class};
use store::log;

/// Calls the steps of claimed runs.
#[derive(Clone)]
pub struct Worker {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) workflows: WorkflowRegistry,
    pub(super) clock: Arc<dyn Clock>,
    /// How long a lease lasts without progress.
    pub(super) ttl: Duration,
    pub(super) interrupts: Interrupts,
    /// How long a step that may not be interrupted continues after a cancel.
    pub(super) cancel_grace: Duration,
}

impl Worker {
    /// A worker over a backend. `ttl`: how long a lease lasts without progress.
    pub fn new(
        backend: Arc<dyn Backend>,
        workflows: WorkflowRegistry,
        clock: Arc<dyn Clock>,
        ttl: Duration,
    ) -> Self {
        let interrupts = Interrupts::default();
        Self { backend, workflows, clock, ttl, interrupts, cancel_grace: CANCEL_GRACE }
    }

    /// Works on a call that a claim returned, and on those that follow, until the lease is given back or lost. `since`: the
    /// elapsed time of the worker's clock before the claim was sent. `stop`: the program stops.
    ///
    /// The claim is listed in [`Self::held`] before this function returns, so that an interrupt reaches it before its task begins.
    pub fn run(
        &self,
        call: StepCall,
        since: Duration,
        stop: &CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let interrupt = Interrupt::new(stop.child_token());
        let run = &call.snapshot.run;
        let entry = self.interrupts.list(run.id, run.epoch, &interrupt);
        let worker = self.clone();
        async move {
            let _entry = entry;
            worker.work(NextCall::Call(Box::new(call)), since, &interrupt).await;
        }
    }

    /// Stops the work on a run whose cancel was requested, or whose lease is lost: it sends nothing more.
    pub fn interrupt(&self, run: RunId, epoch: i64) {
        self.interrupts.interrupt_claim(run, epoch);
    }

    /// The runs that this worker works on, with the epochs of their claims.
    pub fn held(&self) -> Vec<(RunId, i64)> {
        self.interrupts.claims()
    }

    /// Works until the lease is given back or lost.
    pub(super) async fn work(&self, mut next: NextCall, since: Duration, interrupt: &Interrupt) {
        let NextCall::Call(first) = &next else { return };
        let owner = first.snapshot.run.lease.as_ref().map_or(String::new(), |lease| lease.owner.clone());
        let span = log::job_span(&first.snapshot.run, &owner);
        async {
            let lease = LeaseGuard::new(Arc::clone(&self.clock), since, self.ttl, interrupt.clone());
            while let NextCall::Call(call) = next {
                match self.run_once(&call, &lease, interrupt).await {
                    Ok(following) => next = following,
                    Err(error) => {
                        // The lease expires and a worker takes the run over. The database may work again by then.
                        tracing::error!(error = %model::error_chain(&error), "a command of the worker failed; the run continues after its lease has expired");
                        return;
                    }
                }
            }
        }
        .instrument(span)
        .await;
    }

    /// Makes one call and returns what follows.
    async fn run_once(
        &self,
        call: &StepCall,
        lease: &LeaseGuard,
        interrupt: &Interrupt,
    ) -> Result<NextCall, BackendError> {
        if interrupt.token.is_cancelled() {
            // Interrupted between two steps. This token stays cancelled, so only a new claim can run the next step.
            return self.release(call).await;
        }
        let span = log::step_span(&call.record.name);
        let made = self.make(call, lease, interrupt).instrument(span.clone()).await;
        let Some((record, report)) = made else {
            // The call was dropped: it has no outcome, and the lease is given back.
            return self.release(call).await;
        };
        let since = self.clock.elapsed();
        let then = report.then.clone();
        let next = self.backend.report(call, record, report).instrument(span).await?;
        match &next {
            NextCall::Call(_) => lease.renewed(since, self.ttl),
            NextCall::Released => {}
            NextCall::Lost => return Ok(next),
        }
        if let Some(AfterCommit(then)) = then {
            then();
        }
        Ok(next)
    }

    async fn release(&self, call: &StepCall) -> Result<NextCall, BackendError> {
        self.backend.release(call).await?;
        Ok(NextCall::Released)
    }

    /// Calls the step. Returns its record with the last checkpoint, and its report; `None` when an interrupt dropped the call.
    async fn make(
        &self,
        call: &StepCall,
        lease: &LeaseGuard,
        interrupt: &Interrupt,
    ) -> Option<(StepRecord, StepReport)> {
        let workflow = self.workflows.get(&call.snapshot.run.workflow);
        let Some(step) = workflow.and_then(|workflow| workflow.step(&call.record.name)) else {
            return Some((call.record.clone(), self.unknown(call)));
        };
        let record = Arc::new(Mutex::new(call.record.clone()));
        let context = StepContext {
            snapshot: Arc::clone(&call.snapshot),
            record: call.record.clone(),
            reentered: call.reentered,
            previous_wait: call.snapshot.run.wait.clone(),
            clock: Arc::clone(&self.clock),
            lease: lease.clone(),
            cancel: interrupt.token.clone(),
            checkpoint: Checkpoint {
                progress: Arc::clone(&self.backend) as Arc<dyn Progress>,
                clock: Arc::clone(&self.clock),
                ttl: self.ttl,
                run: call.snapshot.run.clone(),
                record: Arc::clone(&record),
            },
        };
        let report = self.call(&*step, &context, call.undo, call.policy, interrupt).await?;
        let record = record.lock().clone();
        Some((record, report))
    }

    /// The report of a step that this program does not know, although the backend does: its worker is of an older version.
    fn unknown(&self, call: &StepCall) -> StepReport {
        let detail = format!(
            "the worker does not know the step {:?} of the workflow {:?}; upgrade the worker, then resume the run",
            call.record.name, call.snapshot.run.workflow
        );
        StepReport::new(StepOutcome::Hold(hold::held(HoldClass::UNKNOWN_STEP, detail, self.clock.now())))
    }

    /// Calls a step with a time limit and catches its panic. `None` when an interrupt dropped the call.
    async fn call(
        &self,
        step: &dyn Step,
        context: &StepContext,
        undo: bool,
        policy: StepPolicy,
        interrupt: &Interrupt,
    ) -> Option<StepReport> {
        let work = async { if undo { step.undo(context).await } else { step.run(context).await } };
        let guarded = tokio::time::timeout(policy.call, AssertUnwindSafe(work).catch_unwind());
        let mut guarded = std::pin::pin!(guarded);
        let interrupted = async {
            if policy.interruptible {
                return interrupt.token.cancelled().await;
            }
            interrupt.cancelled().await;
            self.cancel_grace(&context.lease).await;
        };
        let outcome = tokio::select! {
            biased;
            outcome = &mut guarded => outcome,
            () = interrupted => return None,
        };
        Some(match outcome {
            Ok(Ok(report)) => report,
            Ok(Err(_panic)) => StepReport::fail(Failure {
                class: class::INTERNAL,
                step: context.record.name.clone(),
                summary: "the step panicked because of a defect in the program".to_owned(),
                detail: None,
                next_action: "find the panic in the log of the controller and report it".to_owned(),
            }),
            Err(_elapsed) => StepReport::new(StepOutcome::Retry(Failure {
                class: class::TRANSIENT,
                step: context.record.name.clone(),
                summary: format!("the step did not return within {} s", policy.call.as_secs()),
                detail: Some(json!({ "call_s": policy.call.as_secs(), "attempt": context.record.attempt })),
                next_action: "check that the device to which the step connects responds".to_owned(),
            })),
        })
    }

    /// Returns when the grace of a cancelled step has passed and no request that it sent can still take effect.
    async fn cancel_grace(&self, lease: &LeaseGuard) {
        let mut left = self.cancel_grace.max(lease.effect_left());
        while left > Duration::ZERO {
            tokio::time::sleep(left).await;
            left = lease.effect_left();
        }
    }
}
