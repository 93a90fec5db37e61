//! The messages between a controller and a worker elsewhere, as JSON (decision D33).
//!
//! ```text
//!   CallMessage     claim, report -->   the run as the step reads it, the record, the limits of the call, the length of the lease
//!   CallKey         every command  <--  run, epoch, position, attempt: the fence, and what a repetition is recognised by
//!   ReportMessage   report         <--  outcome, output, events, effects, further steps: of one call
//! ```
//!
//! A message has no field for what the other side must not choose. A worker names no server in an effect, no queue in a further
//! step, no actor and no step in an event, and it has effects of five kinds: what a BMC showed, and its own permits.
//!
//! Invariants: every list and text of a report is bounded, beside the bound of its body; a report that this program cannot write
//! in full is refused where it is made ([`NotPortable`]), so that nothing of it is lost on the way.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::backend::StepCall;
use super::workflow::{
    PermitRequest, StepOutcome, StepPolicy, StepReport, WaitLimit, WaitReason, WaitRequest, Workflow,
};
use model::{
    Effect, EventLevel, Failure, Hold, NewEvent, Position, Run, RunId, RunPlan, Serial, Signal, Snapshot,
    StepInstance, StepName, StepRecord, Time, is_permit,
};

/// The version of these messages. A controller and a worker with different numbers do not work together.
pub const PROTOCOL: u32 = 1;
/// The largest message, in bytes.
pub const MAX_MESSAGE: usize = 4 << 20;
/// How many entries each list of a report may have.
const MAX_ENTRIES: usize = 256;
/// How many steps a report may add to a plan: the installation on a server of 256 devices has six for each.
pub(super) const MAX_PLAN: usize = 6 * 256 + 64;
/// The longest type of an event and the longest class, in bytes.
const MAX_KIND: usize = 64;
/// The longest text that operators read, in bytes.
const MAX_TEXT: usize = 8 << 10;

/// Names one call of a step under one claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallKey {
    /// The run.
    pub run: RunId,
    /// The epoch of the claim.
    pub epoch: i64,
    /// The position of the step in the plan.
    pub at: Position,
    /// The attempt.
    pub attempt: u32,
}

impl CallKey {
    /// The key of a call.
    pub fn of(call: &StepCall) -> Self {
        let run = &call.snapshot.run;
        Self { run: run.id, epoch: run.epoch, at: call.record.at, attempt: call.record.attempt }
    }
}

/// One call of a step, as a worker elsewhere receives it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallMessage {
    run: Run,
    input: Value,
    plan: RunPlan,
    steps: Vec<StepRecord>,
    signals: Vec<Signal>,
    record: StepRecord,
    reentered: bool,
    undo: bool,
    policy: PolicyMessage,
    /// How long the lease lasts from the moment before the request was sent, in milliseconds.
    pub lease_ms: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct PolicyMessage {
    call_ms: u64,
    budget_ms: u64,
    attempts: u32,
    backoff_ms: u64,
    backoff_cap_ms: u64,
    wait_ms: Option<u64>,
    interruptible: bool,
    runs_past_deadline: bool,
}

/// A call or report that cannot be made elsewhere: a defect of the workflow, which put such a step into a queue elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the step {step} cannot be executed elsewhere: {why}; give it the queue of the controller")]
pub struct NotPortable {
    /// The step.
    pub step: StepName,
    /// The part that is not portable, in words.
    pub why: &'static str,
}

impl NotPortable {
    /// The failure of the step.
    pub(super) fn failure(&self) -> Failure {
        Failure {
            class: model::class::INTERNAL,
            step: self.step.clone(),
            summary: self.to_string(),
            detail: None,
            next_action: "report the defect; until then give the server the queue of the controller"
                .to_owned(),
        }
    }
}

/// A message that is refused: of another version of the program, or of a worker that is not ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message of the worker is not valid: {0}; run the same version of the program on both sides")]
pub struct MessageRefused(pub String);

impl CallMessage {
    /// The message of a call under a lease of this length.
    ///
    /// # Errors
    /// When the run has parts that do not leave the controller, such as a recipe.
    pub fn of(call: &StepCall, lease: Duration) -> Result<Self, NotPortable> {
        let Snapshot { run, input, recipe, plan, steps, signals, media } = &*call.snapshot;
        if recipe.is_some() || !media.is_empty() {
            let step = call.record.name.clone();
            return Err(NotPortable { step, why: "its run has a recipe or media" });
        }
        let policy = &call.policy;
        Ok(Self {
            run: run.clone(),
            input: (**input).clone(),
            plan: (**plan).clone(),
            steps: steps.iter().map(|record| StepRecord::clone(record)).collect(),
            signals: signals.clone(),
            record: call.record.clone(),
            reentered: call.reentered,
            undo: call.undo,
            policy: PolicyMessage {
                call_ms: millis(policy.call),
                budget_ms: millis(policy.budget),
                attempts: policy.attempts,
                backoff_ms: millis(policy.backoff),
                backoff_cap_ms: millis(policy.backoff_cap),
                wait_ms: policy.wait.map(millis),
                interruptible: policy.interruptible,
                runs_past_deadline: policy.runs_past_deadline,
            },
            lease_ms: millis(lease),
        })
    }

    /// The server of the run.
    pub fn server(&self) -> Option<&Serial> {
        self.run.server.as_ref()
    }

    /// The call, for a worker.
    pub fn call(self) -> StepCall {
        let Self { run, input, plan, steps, signals, record, reentered, undo, policy, lease_ms: _ } = self;
        let snapshot = Snapshot {
            run,
            input: Arc::new(input),
            recipe: None,
            plan: Arc::new(plan),
            steps: steps.into_iter().map(Arc::new).collect(),
            signals,
            media: Vec::new(),
        };
        let policy = StepPolicy {
            call: Duration::from_millis(policy.call_ms),
            budget: Duration::from_millis(policy.budget_ms),
            attempts: policy.attempts,
            backoff: Duration::from_millis(policy.backoff_ms),
            backoff_cap: Duration::from_millis(policy.backoff_cap_ms),
            wait: policy.wait_ms.map(Duration::from_millis),
            interruptible: policy.interruptible,
            runs_past_deadline: policy.runs_past_deadline,
        };
        StepCall { snapshot: Arc::new(snapshot), record, reentered, undo, policy }
    }
}

/// The report of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportMessage {
    outcome: OutcomeMessage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<Value>,
    #[serde(default)]
    events: Vec<EventMessage>,
    #[serde(default)]
    effects: Vec<EffectMessage>,
    /// Further steps, as (name, key).
    #[serde(default)]
    plan: Vec<(StepName, String)>,
    /// The signals that the step acted on, as (name, key).
    #[serde(default)]
    consumed: Vec<(String, String)>,
    /// The signals that the step was called with, as (name, key). One that is missing here arrived meanwhile.
    #[serde(default)]
    seen: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum OutcomeMessage {
    Done,
    Skipped,
    Wait { reason: String, poll_ms: Option<u64>, limit: LimitMessage, detail: String },
    Permit { resource: String, capacity: u32, reason: String, detail: String },
    Retry(Failure),
    Hold(Hold),
    Fail(Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LimitMessage {
    WithinMs(u64),
    At(Time),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventMessage {
    kind: String,
    level: EventLevel,
    message: String,
    data: Option<Value>,
}

/// The effects that a worker elsewhere may store beside the record of its step. The server is that of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum EffectMessage {
    Observed(Value),
    Seen,
    UpdateLeft(Option<Value>),
    Learned(Value),
    Pinned(String),
    Hardware(Value),
    PermitReleased(String),
}

impl ReportMessage {
    /// The message of a report. A report with parts that a worker elsewhere cannot ask for becomes the failure of its step.
    pub fn of(call: &StepCall, report: &StepReport) -> Self {
        Self::portable(call, report).unwrap_or_else(|why| Self {
            outcome: OutcomeMessage::Fail(why.failure()),
            output: report.output.clone(),
            events: Vec::new(),
            effects: Vec::new(),
            plan: Vec::new(),
            consumed: Vec::new(),
            seen: Vec::new(),
        })
    }

    fn portable(call: &StepCall, report: &StepReport) -> Result<Self, NotPortable> {
        let refused = |why| NotPortable { step: call.record.name.clone(), why };
        if !report.children.is_empty() {
            return Err(refused("it requests another run"));
        }
        let server = call.snapshot.run.server.as_ref();
        let effects = report.effects.iter().map(|effect| EffectMessage::of(effect, server));
        let effects: Option<Vec<_>> = effects.collect();
        let event = |event: &NewEvent| EventMessage {
            kind: event.kind.clone(),
            level: event.level,
            message: event.message.clone(),
            data: event.data.clone(),
        };
        Ok(Self {
            outcome: OutcomeMessage::of(&report.outcome).map_err(refused)?,
            output: report.output.clone(),
            events: report.events.iter().map(event).collect(),
            effects: effects.ok_or_else(|| refused("it stores what only the controller stores"))?,
            plan: report.plan.iter().map(|step| (step.name.clone(), step.key.clone())).collect(),
            consumed: report.consumed.clone(),
            seen: call.snapshot.signals.iter().map(|one| (one.name.clone(), one.key.clone())).collect(),
        })
    }

    /// The signals that the step was called with.
    pub(super) fn saw(&self, signal: &Signal) -> bool {
        self.seen.iter().any(|(name, key)| *name == signal.name && *key == signal.key)
    }

    /// The report of a call of `run`, at a step of the queue `queue`.
    ///
    /// # Errors
    /// When the message names what this program does not know, or is too long.
    pub(super) fn report(
        self,
        run: &Run,
        queue: &str,
        workflow: &dyn Workflow,
    ) -> Result<StepReport, MessageRefused> {
        let names = self.outcome.names().len();
        if self.plan.len() > MAX_PLAN {
            return Err(MessageRefused(format!("a plan has more than {MAX_PLAN} entries")));
        }
        let lengths = [self.events.len(), self.effects.len(), self.consumed.len(), names];
        if lengths.iter().any(|length| *length > MAX_ENTRIES) {
            return Err(MessageRefused(format!("a list has more than {MAX_ENTRIES} entries")));
        }
        let mut kinds = self.events.iter().map(|event| &event.kind);
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
        if kinds.any(|kind| kind.is_empty() || kind.len() > MAX_KIND || !kind.bytes().all(plain)) {
            return Err(MessageRefused("a type of event has other characters, or is too long".to_owned()));
        }
        if self.outcome.names().iter().any(|name| name.len() > MAX_KIND) {
            return Err(MessageRefused(format!("a class, step or verb has more than {MAX_KIND} bytes")));
        }
        let events = self.events.iter().map(|event| &event.message);
        let plan = self.plan.iter().map(|(_, key)| key);
        if events.chain(plan).chain(self.outcome.texts()).any(|text| text.len() > MAX_TEXT) {
            return Err(MessageRefused(format!("a text has more than {MAX_TEXT} bytes")));
        }
        let effects: Result<Vec<Effect>, MessageRefused> =
            self.effects.into_iter().map(|effect| effect.effect(run.server.as_ref())).collect();
        let event = |event: EventMessage| NewEvent {
            level: event.level,
            data: event.data,
            ..NewEvent::info(&event.kind, event.message)
        };
        let instance = |(name, key)| StepInstance { name, key, queue: queue.to_owned() };
        Ok(StepReport {
            output: self.output,
            events: self.events.into_iter().map(event).collect(),
            effects: effects?,
            plan: self.plan.into_iter().map(instance).collect(),
            consumed: self.consumed,
            ..StepReport::new(self.outcome.outcome(workflow)?)
        })
    }
}

impl OutcomeMessage {
    /// The texts that operators read.
    fn texts(&self) -> Vec<&String> {
        match self {
            Self::Done | Self::Skipped => Vec::new(),
            Self::Wait { detail, .. } => vec![detail],
            Self::Permit { resource, detail, .. } => vec![resource, detail],
            Self::Retry(failure) | Self::Fail(failure) => vec![&failure.summary, &failure.next_action],
            Self::Hold(hold) => vec![&hold.detail],
        }
    }

    /// The names that filters and metrics use.
    fn names(&self) -> Vec<&str> {
        match self {
            Self::Retry(failure) | Self::Fail(failure) => vec![failure.class.as_str(), failure.step.as_str()],
            Self::Hold(hold) => {
                let verbs = hold.verbs.iter().map(String::as_str);
                std::iter::once(hold.class.as_str()).chain(verbs).collect()
            }
            Self::Done | Self::Skipped | Self::Wait { .. } | Self::Permit { .. } => Vec::new(),
        }
    }

    fn of(outcome: &StepOutcome) -> Result<Self, &'static str> {
        let no_signals = |signals: &[&str]| match signals.is_empty() {
            true => Ok(()),
            false => Err("it waits for a message to the controller"),
        };
        Ok(match outcome {
            StepOutcome::Done => Self::Done,
            StepOutcome::Skipped => Self::Skipped,
            StepOutcome::Wait(WaitRequest { reason, signals, poll, limit, detail }) => {
                no_signals(signals)?;
                let limit = match limit {
                    WaitLimit::Within(within) => LimitMessage::WithinMs(millis(*within)),
                    WaitLimit::At(time) => LimitMessage::At(*time),
                };
                let (reason, detail) = (reason.name.to_owned(), detail.clone());
                Self::Wait { reason, poll_ms: poll.map(millis), limit, detail }
            }
            StepOutcome::Permit(PermitRequest { resource, capacity, reason, signals, detail }) => {
                no_signals(signals)?;
                let (resource, detail) = (resource.clone(), detail.clone());
                Self::Permit { resource, capacity: *capacity, reason: reason.name.to_owned(), detail }
            }
            StepOutcome::Retry(failure) => Self::Retry(failure.clone()),
            StepOutcome::Hold(hold) => Self::Hold(hold.clone()),
            StepOutcome::Fail(failure) => Self::Fail(failure.clone()),
        })
    }

    fn outcome(self, workflow: &dyn Workflow) -> Result<StepOutcome, MessageRefused> {
        let known = |name: &str| -> Result<&'static WaitReason, MessageRefused> {
            let mut reasons = workflow.wait_reasons().iter().copied();
            let unknown = || MessageRefused(format!("{} has no wait reason {name:?}", workflow.name()));
            reasons.find(|reason| reason.name == name).ok_or_else(unknown)
        };
        Ok(match self {
            Self::Done => StepOutcome::Done,
            Self::Skipped => StepOutcome::Skipped,
            Self::Wait { reason, poll_ms, limit, detail } => StepOutcome::Wait(WaitRequest {
                reason: known(&reason)?,
                signals: Vec::new(),
                poll: poll_ms.map(Duration::from_millis),
                limit: match limit {
                    LimitMessage::WithinMs(within) => WaitLimit::Within(Duration::from_millis(within)),
                    LimitMessage::At(time) => WaitLimit::At(time),
                },
                detail,
            }),
            Self::Permit { resource, capacity, reason, detail } => StepOutcome::Permit(PermitRequest {
                resource: permit(resource)?,
                capacity,
                reason: known(&reason)?,
                signals: Vec::new(),
                detail,
            }),
            Self::Retry(failure) => StepOutcome::Retry(failure),
            Self::Hold(hold) => StepOutcome::Hold(hold),
            Self::Fail(failure) => StepOutcome::Fail(failure),
        })
    }
}

impl EffectMessage {
    /// `None` for an effect that a worker elsewhere may not have, or on another server than that of the run.
    fn of(effect: &Effect, server: Option<&Serial>) -> Option<Self> {
        let own = |serial: &Serial| server == Some(serial);
        match effect {
            Effect::ServerObserved { serial, observed } => {
                own(serial).then(|| Self::Observed(observed.clone()))
            }
            Effect::ServerSeen { serial } => own(serial).then_some(Self::Seen),
            Effect::ServerUpdateLeft { serial, update } => {
                own(serial).then(|| Self::UpdateLeft(update.clone()))
            }
            Effect::ServerLearned { serial, learned } => own(serial).then(|| Self::Learned(learned.clone())),
            Effect::ServerPinned { serial, fingerprint } => {
                own(serial).then(|| Self::Pinned(fingerprint.clone()))
            }
            Effect::ServerHardwareRead { serial, hardware } => {
                own(serial).then(|| Self::Hardware(hardware.clone()))
            }
            Effect::PermitReleased { resource } => Some(Self::PermitReleased(resource.clone())),
            Effect::JobCreated(_)
            | Effect::TaskImage { .. }
            | Effect::GrantIssued(_)
            | Effect::PullGrantIssued(_)
            | Effect::GrantsEnded
            | Effect::ServerInventoried { .. }
            | Effect::InstallLogged { .. }
            | Effect::PermitRequested { .. }
            | Effect::CleanupPending { .. } => None,
        }
    }

    fn effect(self, server: Option<&Serial>) -> Result<Effect, MessageRefused> {
        if let Self::PermitReleased(resource) = self {
            return Ok(Effect::PermitReleased { resource: permit(resource)? });
        }
        let serial = server.cloned().ok_or_else(|| MessageRefused("the run has no server".to_owned()))?;
        Ok(match self {
            Self::Observed(observed) => Effect::ServerObserved { serial, observed },
            Self::Seen => Effect::ServerSeen { serial },
            Self::UpdateLeft(update) => Effect::ServerUpdateLeft { serial, update },
            Self::Learned(learned) => Effect::ServerLearned { serial, learned },
            Self::Pinned(fingerprint) => {
                if fingerprint.len() > 128 {
                    return Err(MessageRefused("a fingerprint has more than 128 characters".to_owned()));
                }
                Effect::ServerPinned { serial, fingerprint }
            }
            Self::Hardware(hardware) => Effect::ServerHardwareRead { serial, hardware },
            Self::PermitReleased(resource) => Effect::PermitReleased { resource: permit(resource)? },
        })
    }
}

/// Refuses the lock of a server or a condition in the place of a permit: a worker elsewhere has no part in those.
fn permit(resource: String) -> Result<String, MessageRefused> {
    match is_permit(&resource) {
        true => Ok(resource),
        false => Err(MessageRefused("a permit has the name of another lock".to_owned())),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
