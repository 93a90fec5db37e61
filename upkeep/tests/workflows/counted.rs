//! How many requests each call of a step sends to the simulated BMC.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lab_bmc::SimBmc;

use engine::{
    ChildRefused, ChildRequest, Remark, Step, StepContext, StepOutcome, StepPolicy, StepReport, WaitReason,
    Workflow,
};
use model::{
    Effect, NewRun, Position, Signal, Snapshot, StepName, StepRecord, Time, Verb, Wait, WorkflowVersion,
};

/// A call of a step that has reported.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    at: Position,
    pub(crate) step: String,
    /// The component of the step; empty for a step of the whole run.
    pub(crate) key: String,
    waits: bool,
    /// Whether the call before it at this place of the plan waited, so that this one looked again.
    pub(crate) is_poll: bool,
    /// How many requests the BMC had received at its end.
    pub(crate) seen: u64,
    /// How many requests the call sent.
    pub(crate) requests: u64,
}

/// The calls of all workers of a bench.
#[derive(Clone)]
pub(crate) struct Calls {
    sim_bmc: SimBmc,
    reported: Arc<Mutex<Vec<Reported>>>,
}

impl Calls {
    pub(crate) fn of(sim_bmc: SimBmc) -> Self {
        Self { sim_bmc, reported: Arc::default() }
    }

    /// The calls so far, oldest first.
    pub(crate) fn all(&self) -> Vec<Reported> {
        self.reported.lock().unwrap().clone()
    }

    /// The workflow with steps whose calls are counted.
    pub(crate) fn count(&self, workflow: Arc<dyn Workflow>) -> Arc<dyn Workflow> {
        Arc::new(Counted { workflow, calls: self.clone() })
    }

    fn note(&self, record: &StepRecord, report: &StepReport) {
        let seen = self.sim_bmc.snapshot().requests;
        let waits = matches!(report.outcome, StepOutcome::Wait(_));
        let mut calls = self.reported.lock().unwrap();
        let requests = seen - calls.last().map_or(0, |last| last.seen);
        let is_poll = calls.last().is_some_and(|last| last.at == record.at && last.waits);
        let (at, step, key) = (record.at, record.name.to_string(), record.key.clone());
        calls.push(Reported { at, step, key, waits, is_poll, seen, requests });
    }
}

struct Counted {
    workflow: Arc<dyn Workflow>,
    calls: Calls,
}

impl Workflow for Counted {
    fn name(&self) -> &'static str {
        self.workflow.name()
    }

    fn version(&self) -> WorkflowVersion {
        self.workflow.version()
    }

    fn step(&self, name: &StepName) -> Option<Arc<dyn Step>> {
        let step = self.workflow.step(name)?;
        Some(Arc::new(CountedStep { step, calls: self.calls.clone() }))
    }

    fn prepare_child(&self, request: ChildRequest) -> Result<NewRun, ChildRefused> {
        self.workflow.prepare_child(request)
    }

    fn undoes_steps(&self) -> bool {
        self.workflow.undoes_steps()
    }

    fn finish_timeout(&self) -> Duration {
        self.workflow.finish_timeout()
    }

    fn policy(&self, step: &StepName, snapshot: &Snapshot) -> StepPolicy {
        self.workflow.policy(step, snapshot)
    }

    fn verbs(&self) -> &'static [Verb] {
        self.workflow.verbs()
    }

    fn limit_setting(&self, resource: &str) -> Option<&'static str> {
        self.workflow.limit_setting(resource)
    }

    fn wait_reasons(&self) -> &'static [&'static WaitReason] {
        self.workflow.wait_reasons()
    }

    fn remark(&self, snapshot: &Snapshot) -> Option<Remark> {
        self.workflow.remark(snapshot)
    }

    fn left_behind(&self, snapshot: &Snapshot, now: Time) -> Vec<Effect> {
        self.workflow.left_behind(snapshot, now)
    }
}

struct CountedStep {
    step: Arc<dyn Step>,
    calls: Calls,
}

#[async_trait]
impl Step for CountedStep {
    fn policy(&self) -> StepPolicy {
        self.step.policy()
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        let report = self.step.run(context).await;
        self.calls.note(&context.record, &report);
        report
    }

    async fn undo(&self, context: &StepContext) -> StepReport {
        self.step.undo(context).await
    }

    fn on_signal(&self, snapshot: &Snapshot, signal: &Signal) -> Option<StepReport> {
        self.step.on_signal(snapshot, signal)
    }

    fn on_wait_deadline(&self, snapshot: &Snapshot, wait: &Wait) -> StepReport {
        self.step.on_wait_deadline(snapshot, wait)
    }
}
