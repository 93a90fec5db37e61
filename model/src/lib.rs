//! Pure data and pure rules: runs, jobs, servers, events, gates and webhooks. No I/O, no async code, no database.

pub mod audit;
pub mod batch;
pub mod cause;
pub mod class;
mod condition;
mod cut;
pub mod effect;
pub mod error_chain;
pub mod event;
mod event_types;
pub mod failpoint;
pub mod fairness;
pub mod filter;
pub mod gate;
pub mod grant;
pub mod id_source;
pub mod ids;
pub mod job;
pub mod job_recipe;
pub mod json_text;
#[doc(hidden)]
pub mod mutant;
pub mod names;
pub mod restoration;
pub mod run;
mod selection;
pub mod server;
mod steady_clock;
pub mod time;
pub mod transition;
pub mod verb;
pub mod webhook;
mod workflow_version;

pub use batch::{Batch, BatchId, BatchStop, BatchStopReason, MAX_CANARIES, rounds};
pub use cause::{Cause, CauseKey, FailedJob, causes};
pub use condition::Condition;
pub use cut::cut_middle;
pub use effect::{
    CANCEL, Effect, NewJob, PERMIT, SERVER_LOCKS, bmc_lock, is_permit, permit_resource, server_lock,
};
pub use error_chain::{distinct_causes, error_chain};
pub use event::{Event, EventLevel, NewEvent, PROGRAM_ACTORS, WORKER_ACTOR};
pub use event_types::{EVENT_TYPES, selects_an_event};
pub use fairness::{Fairness, QueueHead, rank};
pub use filter::{Filter, FilterError, Subject};
pub use gate::{Gate, GateClosure, Pressure};
pub use grant::{
    Artifact, Grant, GrantReads, MEDIA_BASE_MAX, MediaEvidence, PullGrant, ReadMark, StoredGrant,
};
pub use id_source::{IdSource, SystemIdSource, system_id_source};
pub use ids::{IdPrefix, InvalidIdPrefix, RunId, Serial};
pub use job::{Job, JobStatus, PROVISION, ProvisionRecord};
pub use job_recipe::JobRecipe;
pub use json_text::JsonText;
pub use names::{FailureClass, HoldClass, StepName};
pub use restoration::{Restoration, RestoredServer, UnfinishedRuns};
pub use run::{
    Failure, Hold, Idempotency, Lease, LockRequest, NewRun, OnConflict, Outcome, Position, Purpose, Run,
    RunChange, RunPlan, RunRequest, RunVersion, Signal, Snapshot, Stage, StepInstance, StepPhase, StepRecord,
    StepSummary, Wait,
};
pub use selection::selection_digest;
pub use server::{PendingCleanup, Server, TlsMode};
pub use steady_clock::SteadyClock;
pub use time::{Clock, FormerRun, MachineRun, ManualClock, SystemClock, Time};
pub use transition::{Phase, Trigger, transition};
pub use verb::Verb;
pub use webhook::{DeadLetter, OutgoingEvent, RetryStream, Webhook, WebhookFilter, WebhookId};
pub use workflow_version::WorkflowVersion;
