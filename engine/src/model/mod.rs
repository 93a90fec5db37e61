//! Pure data and pure rules: what a run, a job, a server, an event and a recipe are. No I/O, no async, no database.

pub mod batch;
pub mod effect;
pub mod error_chain;
pub mod event;
pub mod failpoint;
pub mod fairness;
pub mod gate;
pub mod id_source;
pub mod ids;
pub mod job;
pub mod json_text;
#[doc(hidden)]
pub mod mutant;
pub mod run;
pub mod server;
mod steady_clock;
pub mod time;
pub mod transition;
pub mod webhook;

pub use batch::{Batch, BatchId};
pub use effect::{Artifact, Effect, Grant, GrantReads, NewJob, TURN, turn};
pub use error_chain::error_chain;
pub use event::{Event, Level, NewEvent};
pub use fairness::{Fairness, Head, rank};
pub use gate::{Closed, Gate, Pressure};
pub use id_source::{Chance, SystemIdSource, system_id_source};
pub use ids::{RunId, Serial};
pub use job::{Job, JobStatus};
pub use json_text::JsonText;
pub use run::{
    Change, Failure, Hold, Lease, LockRequest, NewRun, OnConflict, Outcome, Plan, Position, Run, Signal,
    Snapshot, Stage, StepInstance, StepPhase, StepRecord, StepSummary, Wait,
};
pub use server::{Server, TlsMode};
pub use steady_clock::SteadyClock;
pub use time::{Clock, ManualClock, SystemClock, Time};
pub use transition::{Phase, Trigger, transition};
pub use webhook::{DeadLetter, OutgoingEvent, RetryStream, Webhook, WebhookFilter, WebhookId};
