//! The interface between the engine and a workflow: a named, versioned table of steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::Value;
use strum::VariantArray;
use tokio_util::sync::CancellationToken;

use super::checkpoint::Checkpoint;
use super::lease::{LeaseGuard, LeaseLost};
use model::{
    Clock, Effect, Failure, Hold, NewEvent, NewRun, PERMIT, RunId, Signal, Snapshot, StepInstance, StepName,
    StepRecord, Time, Verb, Wait, WorkflowVersion,
};

/// A workflow: its steps, and the rules that differ from one workflow to the next.
pub trait Workflow: Send + Sync + 'static {
    /// The name that is stored with every run.
    fn name(&self) -> &'static str;
    /// The version. It grows when a plan of an older version may no longer be executed.
    fn version(&self) -> WorkflowVersion;
    /// The step of that name. `None` when this version does not know it: the engine then holds the run and never skips.
    fn step(&self, name: &StepName) -> Option<Arc<dyn Step>>;
    /// Makes a run from a request of another workflow.
    ///
    /// # Errors
    /// When the workflow cannot make a run from the input; the step that asked for the child then fails.
    fn prepare_child(&self, request: ChildRequest) -> Result<NewRun, ChildRefused>;
    /// Whether finished steps are undone, in reverse order, when a run fails or is cancelled.
    fn undoes_steps(&self) -> bool {
        false
    }
    /// The time limit for undo and the finish list together.
    fn finish_timeout(&self) -> Duration;
    /// The policy of a step in one run: the step's own policy, changed by settings or by the input of the run.
    fn policy(&self, step: &StepName, _snapshot: &Snapshot) -> StepPolicy {
        self.step(step).map(|step| step.policy()).unwrap_or_default()
    }
    /// The verbs that operators can apply to the runs. A cancel must be among them.
    fn verbs(&self) -> &'static [Verb] {
        Verb::VARIANTS
    }
    /// The setting that limits a resource. `explain` names it to an operator whose job waits for the resource.
    fn limit_setting(&self, _resource: &str) -> Option<&'static str> {
        None
    }
    /// Every reason for which the steps wait.
    fn wait_reasons(&self) -> &'static [&'static WaitReason];
    /// Returns facts for operators beyond the wait or failure of a run, from its records and the reads of its media. Must be a
    /// pure function. It is called for `explain`, and for the failure of a wait that passed its deadline.
    fn remark(&self, _snapshot: &Snapshot) -> Option<Remark> {
        None
    }
    /// Returns the effects to record for a run that ends at `now` without its finish list: what it leaves to a machine, for the
    /// next run on the server. Must be a pure function.
    fn left_behind(&self, _snapshot: &Snapshot, _now: Time) -> Vec<Effect> {
        Vec::new()
    }
}

/// Facts about a run that a workflow adds to its explanation or failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The facts, as the end of a sentence.
    pub facts: String,
    /// The next action for an operator because of the facts; `None` keeps the action of the wait or failure.
    pub next_action: Option<String>,
}

impl Remark {
    /// Adds the remark to a failure.
    pub(super) fn add_to(&self, failure: &mut Failure) {
        failure.summary = format!("{}; {}", failure.summary, self.facts);
        if let Some(next_action) = &self.next_action {
            failure.next_action.clone_from(next_action);
        }
    }
}

/// The reason of a wait, with the texts that `explain` shows. A step cannot wait without a reason.
#[derive(Debug, PartialEq, Eq)]
pub struct WaitReason {
    /// The name, unique within the workflow; stored with the wait.
    pub name: &'static str,
    /// The thing that the run waits for, as the end of the sentence "waiting for …".
    pub means: &'static str,
    /// The event that ends the wait, in words.
    pub ends_by: &'static str,
    /// The next action for an operator when the wait takes too long.
    pub next_action: &'static str,
}

/// The request of a step for a run of another workflow.
#[derive(Clone, Debug)]
pub struct ChildRequest {
    /// The id of the child. It is derived from the step that asks, so that a repeated request makes no second run.
    pub id: RunId,
    /// The run that asks, and the root of its run tree.
    pub parent: (RunId, RunId),
    /// The input of the child.
    pub input: Value,
    /// The user that created the parent.
    pub created_by: String,
    /// The time of the request.
    pub now: Time,
}

/// Why a workflow refused to make a child run.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ChildRefused(pub String);

/// One step of a workflow.
#[async_trait]
pub trait Step: Send + Sync {
    /// The limits and rules under which the engine executes the step.
    fn policy(&self) -> StepPolicy;

    /// Reaches the goal of the step, or reports why it cannot. The engine may call it again after a crash, a retry or a wait:
    /// the step must observe the outside world before it acts.
    async fn run(&self, context: &StepContext) -> StepReport;

    /// Reverses the effect of the step. Called in reverse order, and only for workflows that undo their steps.
    async fn undo(&self, _context: &StepContext) -> StepReport {
        StepReport::skipped()
    }

    /// Called when a signal arrives while the run is parked in this step. `Some` ends the step in the transaction that stores
    /// the signal; `None` leaves the signal to a worker. Must be a pure function.
    fn on_signal(&self, _snapshot: &Snapshot, _signal: &Signal) -> Option<StepReport> {
        None
    }

    /// Called when the deadline of the wait has passed and one more call of the step still asks to wait. Must be a pure
    /// function.
    fn on_wait_deadline(&self, _snapshot: &Snapshot, wait: &Wait) -> StepReport {
        StepReport::fail(fail_on_deadline(wait))
    }
}

/// The failure of a wait that passed its deadline; the default of [`Step::on_wait_deadline`].
pub fn fail_on_deadline(wait: &Wait) -> Failure {
    Failure {
        class: model::class::DEADLINE,
        step: wait.step.clone(),
        summary: format!(
            "waited since {} and the deadline {} has passed: {}",
            wait.since, wait.deadline, wait.detail
        ),
        detail: None,
        next_action: "read the last events of the job, then start it again".to_owned(),
    }
}

/// The limits and rules under which the engine executes a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepPolicy {
    /// The time limit of one call of the step; must be shorter than the lease.
    pub call: Duration,
    /// The time limit of all attempts together.
    pub budget: Duration,
    /// The maximum number of attempts.
    pub attempts: u32,
    /// The delay before the second attempt.
    pub backoff: Duration,
    /// The longest delay between two attempts.
    pub backoff_cap: Duration,
    /// The longest duration of a wait; `None` leaves it to the step.
    pub wait: Option<Duration>,
    /// Whether a cancel may drop a call before it returns; the effects of a dropped call are observed later. A call that may
    /// not be dropped starts no further effect after a cancel. It is dropped after the cancel grace, but not before the
    /// deadline of the last request that it sent.
    pub interruptible: bool,
    /// Whether the step runs after the deadline of the finish list too. For steps that need nothing outside of the database.
    pub runs_past_deadline: bool,
}

impl Default for StepPolicy {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(60),
            budget: Duration::from_secs(600),
            attempts: 5,
            backoff: Duration::from_millis(500),
            backoff_cap: Duration::from_secs(8),
            wait: None,
            interruptible: true,
            runs_past_deadline: false,
        }
    }
}

impl StepPolicy {
    /// The policy of the last step of a finish list. It needs nothing outside of the database, and what it records is known to no
    /// later run if it is given up: it is tried for a day, so that neither a full disk nor a controller that stands still ends it.
    pub fn last() -> Self {
        Self {
            budget: Duration::from_secs(24 * 3600),
            attempts: u32::MAX,
            backoff_cap: Duration::from_secs(60),
            interruptible: false,
            runs_past_deadline: true,
            ..Self::default()
        }
    }
}

/// The conclusion of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutcome {
    /// The goal of the step is reached.
    Done,
    /// There was nothing to do.
    Skipped,
    /// Nothing can be done now; the run is parked.
    Wait(WaitRequest),
    /// The step needs a permit of a limited resource; the run is parked in the queue of the resource.
    Permit(PermitRequest),
    /// The attempt failed; another one may succeed.
    Retry(Failure),
    /// An operator must decide.
    Hold(Hold),
    /// The step failed for good.
    Fail(Failure),
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// This long after the wait begins.
    Within(Duration),
    /// At this time. A step that continues the wait of another one passes that wait's deadline on here: as a duration it would
    /// move by the time that passes until the wait is stored.
    At(Time),
}

impl WaitLimit {
    /// Returns the deadline of a wait that begins `now`.
    pub fn deadline(self, now: Time) -> Time {
        match self {
            Self::Within(within) => now.plus(within),
            Self::At(deadline) => deadline,
        }
    }
}

impl From<Duration> for WaitLimit {
    fn from(within: Duration) -> Self {
        Self::Within(within)
    }
}

/// A wait as a step requests it.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitRequest {
    /// The reason, one of [`Workflow::wait_reasons`].
    pub reason: &'static WaitReason,
    /// The signals that end the wait.
    pub signals: Vec<&'static str>,
    /// The delay until the step is called again without a signal.
    pub poll: Option<Duration>,
    /// When the wait ends at the latest. A wait that continues a former one keeps the deadline of that one.
    pub limit: WaitLimit,
    /// A sentence of the step about the wait, for operators.
    pub detail: String,
}

/// A permit as a step requests it. The run has it when [`StepContext::has_permit`] returns `true`, until
/// [`Effect::PermitReleased`] or the end of the forward stage.
#[derive(Clone, Debug, PartialEq)]
pub struct PermitRequest {
    /// The resource.
    pub resource: String,
    /// How many run trees may have a permit at the same time.
    pub capacity: u32,
    /// The reason of the wait in the queue, one of [`Workflow::wait_reasons`].
    pub reason: &'static WaitReason,
    /// Further signals that end the wait.
    pub signals: Vec<&'static str>,
    /// A sentence of the step about the permit, for operators.
    pub detail: String,
}

/// Everything that a step returns; the engine commits it in one transaction under the epoch of the lease.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// The conclusion of the step.
    pub outcome: StepOutcome,
    /// The output for later steps; `None` keeps the output of the previous call.
    pub output: Option<Value>,
    /// The events to log.
    pub events: Vec<NewEvent>,
    /// The database writes that belong to the result.
    pub effects: Vec<Effect>,
    /// Step instances to insert right after this one. An instance that is planned for later already is not inserted again.
    pub plan: Vec<StepInstance>,
    /// Runs of other workflows to start, as (workflow, key that tells them apart, input).
    pub children: Vec<(String, String, Value)>,
    /// The signals that the step has acted on, as (name, key).
    pub consumed: Vec<(String, String)>,
    /// A call to make once the report is durable. It updates caches only, because a crash can lose it.
    pub then: Option<AfterCommit>,
}

/// A function to call once a report is durable.
#[derive(Clone)]
pub struct AfterCommit(pub Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for AfterCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AfterCommit")
    }
}

impl StepReport {
    /// A report with nothing but an outcome.
    pub fn new(outcome: StepOutcome) -> Self {
        Self {
            outcome,
            output: None,
            events: Vec::new(),
            effects: Vec::new(),
            plan: Vec::new(),
            children: Vec::new(),
            consumed: Vec::new(),
            then: None,
        }
    }

    /// A report of a step that reached its goal.
    pub fn done() -> Self {
        Self::new(StepOutcome::Done)
    }

    /// A report of a step that had nothing to do.
    pub fn skipped() -> Self {
        Self::new(StepOutcome::Skipped)
    }

    /// A report of a step that must wait.
    pub fn wait(request: WaitRequest) -> Self {
        Self::new(StepOutcome::Wait(request))
    }

    /// A report of a step that failed for good.
    pub fn fail(failure: Failure) -> Self {
        Self::new(StepOutcome::Fail(failure))
    }

    /// Adds an event to the report.
    #[must_use]
    pub fn event(mut self, event: NewEvent) -> Self {
        self.events.push(event);
        self
    }

    /// Sets the output for later steps.
    #[must_use]
    pub fn with_output(mut self, output: Value) -> Self {
        self.output = Some(output);
        self
    }

    /// Adds a database write to the report.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effects.push(effect);
        self
    }
}

/// The argument of a step's call.
pub struct StepContext {
    /// The run with its input, plan, records and signals.
    pub snapshot: Arc<Snapshot>,
    /// The record of this step: its attempt, and the output of its previous call.
    pub record: StepRecord,
    /// Whether an intent of this step was durable before this call, so that the step may have acted already.
    pub reentered: bool,
    /// The wait that this call ends, when the run was parked in this step.
    pub previous_wait: Option<Wait>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Decides whether outside effects are still allowed.
    pub lease: LeaseGuard,
    /// Triggered when the run is cancelled or the program stops.
    pub cancel: CancellationToken,
    /// Writes progress durably; see [`StepContext::checkpoint`].
    pub(super) checkpoint: Checkpoint,
}

impl StepContext {
    /// The output of the last step of that name; `None` when there is none, or none of type `T`.
    pub fn find_output<T: DeserializeOwned>(&self, step: &StepName) -> Option<T> {
        self.snapshot.records_of(step).next_back().and_then(|record| T::deserialize(&record.output).ok())
    }

    /// The output of a previous call of this step.
    pub fn own_output<T: DeserializeOwned>(&self) -> Option<T> {
        T::deserialize(&self.record.output).ok()
    }

    /// Whether the run has a permit of the resource.
    pub fn has_permit(&self, resource: &str) -> bool {
        self.snapshot.signals.iter().any(|signal| signal.name == PERMIT && signal.key == resource)
    }

    /// Writes the progress of this step durably and renews the lease.
    ///
    /// # Errors
    /// When the checkpoint was not written: the lease is lost or the database failed. The step must stop.
    pub async fn checkpoint(&self, output: Value) -> Result<(), LeaseLost> {
        self.checkpoint.write(output, Vec::new(), &self.lease).await
    }

    /// Writes the progress of this step and database writes that belong to it, in one transaction, and renews the lease. For
    /// what must be durable before the step acts, such as a grant that its next request gives out.
    ///
    /// # Errors
    /// When the checkpoint was not written: the lease is lost or the database failed. The step must stop.
    pub async fn checkpoint_with(&self, output: Value, effects: Vec<Effect>) -> Result<(), LeaseLost> {
        self.checkpoint.write(output, effects, &self.lease).await
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }
}

/// Replaces a workflow that this program does not know, so that an operator can still end such a run.
pub(super) struct UnknownWorkflow;

impl Workflow for UnknownWorkflow {
    fn name(&self) -> &'static str {
        "unknown"
    }

    fn version(&self) -> WorkflowVersion {
        WorkflowVersion(0)
    }

    fn step(&self, _name: &StepName) -> Option<Arc<dyn Step>> {
        None
    }

    fn prepare_child(&self, _request: ChildRequest) -> Result<NewRun, ChildRefused> {
        Err(ChildRefused("this program does not know the workflow".to_owned()))
    }

    fn finish_timeout(&self) -> Duration {
        Duration::ZERO
    }

    fn wait_reasons(&self) -> &'static [&'static WaitReason] {
        &[]
    }
}

/// The workflows that a program knows, by name.
#[derive(Clone, Default)]
pub struct WorkflowRegistry {
    workflows: BTreeMap<&'static str, Arc<dyn Workflow>>,
}

impl WorkflowRegistry {
    /// Adds a workflow.
    #[must_use]
    pub fn with(mut self, workflow: Arc<dyn Workflow>) -> Self {
        self.workflows.insert(workflow.name(), workflow);
        self
    }

    /// The workflow of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Workflow>> {
        self.workflows.get(name)
    }
}
