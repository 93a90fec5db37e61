//! What a workflow is to the engine: a named, versioned table of steps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::interrupt::Interrupt;
use crate::model::{
    Clock, Effect, Failure, Hold, NewEvent, NewRun, RunId, Signal, Snapshot, StepInstance, StepRecord, TURN,
    Time, Wait,
};

/// A workflow.
pub trait Kind: Send + Sync + 'static {
    /// Its name, as stored with every run.
    fn name(&self) -> &'static str;
    /// Grows when a plan made by an older version may no longer be carried out as it stands.
    fn version(&self) -> u32;
    /// The step of that name; `None` for one this version does not know (the run is then held, never skipped).
    fn step(&self, name: &str) -> Option<Arc<dyn Step>>;
    /// Turns an order of another kind into a run.
    fn prepare(&self, order: Order) -> Result<NewRun, Refusal>;
    /// Whether its steps are undone, in reverse, after an ending that is not a success.
    fn undoes_steps(&self) -> bool {
        false
    }
    /// How long undoing and the finish list together may take.
    fn finish_timeout(&self) -> Duration;
    /// How a step is treated in a run: what the step declares, changed by what the site or the order says.
    fn policy(&self, step: &str, _snapshot: &Snapshot) -> StepPolicy {
        self.step(step).map(|step| step.policy()).unwrap_or_default()
    }
    /// The setting that limits a resource, for people who stand in line for it.
    fn limit(&self, _resource: &str) -> Option<&'static str> {
        None
    }
    /// Every reason its steps wait for.
    fn reasons(&self) -> &'static [&'static Reason];
}

/// A reason to wait, and what to tell a person about it. A step cannot wait without one.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// Its name, unique within the kind; stored with the wait.
    pub name: &'static str,
    /// What the run waits for, as the end of "waiting for …".
    pub means: &'static str,
    /// What ends the wait.
    pub ends_by: &'static str,
    /// What a person can do when it takes too long.
    pub next_action: &'static str,
}

/// One kind asks for a run of another, by name.
#[derive(Clone, Debug)]
pub struct Order {
    /// The id it will have, derived from the step that orders it, so that ordering twice makes one run.
    pub id: RunId,
    /// Who orders, and the first run of that family.
    pub parent: (RunId, RunId),
    /// What it is asked for.
    pub input: Value,
    /// Who is behind it.
    pub created_by: String,
    /// When.
    pub now: Time,
}

/// Why an order was refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// One stage of a workflow.
#[async_trait]
pub trait Step: Send + Sync {
    /// How the engine treats it.
    fn policy(&self) -> StepPolicy;

    /// Makes its goal true, or says what stands in the way. May be called again after a crash, a retry or a wait: it
    /// observes before it acts.
    async fn run(&self, context: &StepContext) -> StepReport;

    /// Takes back what it did; called in reverse order for kinds that unwind.
    async fn undo(&self, _context: &StepContext) -> StepReport {
        StepReport::skipped()
    }

    /// A signal came while the run is parked in this step: `Some` settles the step in the transaction that stores the
    /// signal, `None` wakes a worker. Pure.
    fn receive(&self, _snapshot: &Snapshot, _signal: &Signal) -> Option<StepReport> {
        None
    }

    /// It has looked once more after its wait's deadline and still only wants to wait. Pure.
    fn overdue(&self, _snapshot: &Snapshot, wait: &Wait) -> StepReport {
        StepReport::fail(fail_on_deadline(wait))
    }
}

/// What passing a wait's deadline means unless a step says otherwise.
pub fn fail_on_deadline(wait: &Wait) -> Failure {
    Failure {
        class: super::class::DEADLINE.to_owned(),
        step: wait.step.clone(),
        summary: format!(
            "waited since {} and the deadline {} has passed: {}",
            wait.since, wait.deadline, wait.detail
        ),
        evidence: None,
        next_action: "look at the last events of the job, then start it again".to_owned(),
    }
}

/// How the engine treats a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepPolicy {
    /// One call of the step takes at most this long; must be shorter than the lease.
    pub call: Duration,
    /// All its tries together take at most this long.
    pub budget: Duration,
    /// At most this many tries.
    pub attempts: u32,
    /// The first pause before trying again.
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_cap: Duration,
    /// How long its waits may last, if not as long as it says itself.
    pub wait: Option<Duration>,
    /// Whether a cancel may drop a call half way; what it did is observed later. One that may not be dropped begins no
    /// further effect and is given half a minute, and as long as the request takes that it has sent.
    pub interruptible: bool,
    /// Whether it is carried out even when the time for finishing is over: for steps of the finish list that need nothing
    /// of the outside world.
    pub always: bool,
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
            always: false,
        }
    }
}

/// What a step concluded.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Its goal holds.
    Done,
    /// There was nothing to do.
    Skipped,
    /// Nothing can be done now; park the run.
    Wait(WaitRequest),
    /// It needs a place of something that only so many may use at once; park the run in line.
    Turn(PermitRequest),
    /// It may work if tried again.
    Retry(Failure),
    /// An operator must decide.
    Hold(Hold),
    /// It will not work.
    Fail(Failure),
}

/// A wait as a step asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitRequest {
    /// The reason, one of [`Kind::reasons`].
    pub reason: &'static Reason,
    /// Signals that end it.
    pub signals: Vec<&'static str>,
    /// When to look again without a signal.
    pub poll: Option<Duration>,
    /// How long it may last, counted from its first moment.
    pub within: Duration,
    /// What is known, in a sentence.
    pub detail: String,
}

/// A place as a step asks for it. It has it when [`StepContext::has_permit`] says so, until [`Effect::PermitReleased`] or the end of
/// the way forward.
#[derive(Clone, Debug, PartialEq)]
pub struct PermitRequest {
    /// The resource.
    pub resource: String,
    /// How many may have a place.
    pub places: u32,
    /// The reason of the wait in line, one of [`Kind::reasons`].
    pub reason: &'static Reason,
    /// Further signals that end the wait.
    pub signals: Vec<&'static str>,
    /// What is known, in a sentence.
    pub detail: String,
}

/// All a step gives back; the engine commits it at once under the epoch.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// What it concluded.
    pub verdict: Verdict,
    /// What it leaves for later steps; `None` keeps what it left before.
    pub evidence: Option<Value>,
    /// What to tell.
    pub events: Vec<NewEvent>,
    /// Typed results.
    pub effects: Vec<Effect>,
    /// Instances to carry out right after this one; one that is planned for later already is not added twice.
    pub plan: Vec<StepInstance>,
    /// Runs of other kinds to start: (kind, key that tells them apart, input).
    pub children: Vec<(String, String, Value)>,
    /// Signals it has acted on, as (name, key).
    pub consumed: Vec<(String, String)>,
    /// Called once the report is on disk; a hint to caches, lost in a crash.
    pub then: Option<AfterCommit>,
}

/// Something to call once a report is on disk.
#[derive(Clone)]
pub struct AfterCommit(pub Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for AfterCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AfterCommit")
    }
}

impl StepReport {
    /// A report with nothing but a verdict.
    pub fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            evidence: None,
            events: Vec::new(),
            effects: Vec::new(),
            plan: Vec::new(),
            children: Vec::new(),
            consumed: Vec::new(),
            then: None,
        }
    }

    /// Its goal holds.
    pub fn done() -> Self {
        Self::new(Verdict::Done)
    }

    /// There was nothing to do.
    pub fn skipped() -> Self {
        Self::new(Verdict::Skipped)
    }

    /// It will not work.
    pub fn fail(failure: Failure) -> Self {
        Self::new(Verdict::Fail(failure))
    }

    /// The same report telling something.
    #[must_use]
    pub fn event(mut self, event: NewEvent) -> Self {
        self.events.push(event);
        self
    }

    /// The same report leaving something for later steps.
    #[must_use]
    pub fn leaving(mut self, evidence: Value) -> Self {
        self.evidence = Some(evidence);
        self
    }

    /// The same report with a typed result.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effects.push(effect);
        self
    }
}

/// The lease was lost, or its run's end was asked for: send nothing, stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease of this run is no longer ours, ends too soon, or the run is to end; another worker goes on"
)]
pub struct LeaseLost;

/// Whether the worker may still act, measured with a clock that counts suspension.
#[derive(Clone)]
pub struct LeaseGuard {
    clock: Arc<dyn Clock>,
    /// When the lease ends, in the clock's elapsed time.
    ends: Arc<Mutex<Duration>>,
    /// When the last allowed effect is over, in the clock's elapsed time.
    effect: Arc<Mutex<Duration>>,
    interrupt: Interrupt,
}

impl LeaseGuard {
    /// A lease that was taken at `since` (elapsed time, read before the claim was sent) and lasts `ttl`.
    pub(super) fn new(clock: Arc<dyn Clock>, since: Duration, ttl: Duration, interrupt: Interrupt) -> Self {
        Self { clock, ends: Arc::new(Mutex::new(since + ttl)), effect: Arc::default(), interrupt }
    }

    /// How long the last effect that was allowed may still take.
    pub(super) fn effect_left(&self) -> Duration {
        let over = *self.effect.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        over.saturating_sub(self.clock.elapsed())
    }

    /// The lease was renewed by a write that began at `since`.
    pub(super) fn renewed(&self, since: Duration, ttl: Duration) {
        *self.ends.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = since + ttl;
    }

    /// How long the lease still lasts.
    pub fn remaining(&self) -> Duration {
        let ends = *self.ends.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        ends.saturating_sub(self.clock.elapsed())
    }

    /// Allows an outside effect that is over after `deadline` at the latest.
    pub fn outlives(&self, deadline: Duration) -> Result<(), LeaseLost> {
        if self.interrupt.asked() || self.remaining() <= deadline {
            return Err(LeaseLost);
        }
        let mut effect = self.effect.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *effect = (*effect).max(self.clock.elapsed() + deadline);
        Ok(())
    }
}

impl std::fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseGuard").field("remaining", &self.remaining()).finish()
    }
}

/// What a step gets.
pub struct StepContext {
    /// The run as it is, its input, plan, records and signals.
    pub snapshot: Arc<Snapshot>,
    /// This step's own record: its attempt and what it left when it ran before.
    pub record: StepRecord,
    /// Whether an intent of this step was on disk before this call: it may have acted already.
    pub reentered: bool,
    /// The wait this call ends, if it was parked in this step.
    pub waited: Option<Wait>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Whether outside effects are still allowed.
    pub lease: LeaseGuard,
    /// Ends when the run is cancelled or the program stops.
    pub cancel: CancellationToken,
    /// Writes down how far the step got; see [`StepContext::checkpoint`].
    pub(super) checkpoint: super::worker::Checkpoint,
}

impl StepContext {
    /// What a step of that name left, read as a type of its kind; `None` when it left nothing (or nothing readable).
    pub fn earlier<T: DeserializeOwned>(&self, step: &str) -> Option<T> {
        self.snapshot
            .steps
            .iter()
            .rfind(|record| record.name == step)
            .and_then(|record| T::deserialize(&record.evidence).ok())
    }

    /// What this step left when it ran before.
    pub fn own<T: DeserializeOwned>(&self) -> Option<T> {
        T::deserialize(&self.record.evidence).ok()
    }

    /// Whether the run has its place of a resource it asked for.
    pub fn has_permit(&self, resource: &str) -> bool {
        self.snapshot.signals.iter().any(|signal| signal.name == TURN && signal.key == resource)
    }

    /// Writes down how far this step got, durable when it answers, and renews the lease. An error means: stop.
    pub async fn checkpoint(&self, evidence: Value) -> Result<(), LeaseLost> {
        self.checkpoint.write(evidence, &self.lease).await
    }

    /// Now.
    pub fn now(&self) -> Time {
        self.clock.now()
    }
}

/// Stands in for a workflow this program does not know, so that an operator can still end such a run.
pub(super) struct Foreign;

impl Kind for Foreign {
    fn name(&self) -> &'static str {
        "unknown"
    }

    fn version(&self) -> u32 {
        0
    }

    fn step(&self, _name: &str) -> Option<Arc<dyn Step>> {
        None
    }

    fn prepare(&self, _order: Order) -> Result<NewRun, Refusal> {
        Err(Refusal("this program does not know the workflow".to_owned()))
    }

    fn finish_timeout(&self) -> Duration {
        Duration::ZERO
    }

    fn reasons(&self) -> &'static [&'static Reason] {
        &[]
    }
}

/// All kinds a program knows, by name.
#[derive(Clone, Default)]
pub struct WorkflowRegistry {
    kinds: BTreeMap<&'static str, Arc<dyn Kind>>,
}

impl WorkflowRegistry {
    /// Knows one more.
    #[must_use]
    pub fn with(mut self, kind: Arc<dyn Kind>) -> Self {
        self.kinds.insert(kind.name(), kind);
        self
    }

    /// The kind of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Kind>> {
        self.kinds.get(name)
    }
}
