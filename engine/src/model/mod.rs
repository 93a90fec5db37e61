//! Pure data and pure rules: what a run, a job, a server, an event and a recipe are. No I/O, no async, no database.

pub mod batch;
pub mod chain;
pub mod chance;
pub mod effect;
pub mod event;
pub mod gate;
pub mod ids;
pub mod job;
pub mod json_text;
#[doc(hidden)]
pub mod mutant;
pub mod run;
pub mod server;
mod steady;
pub mod time;
pub mod transition;
pub mod turns;
pub mod webhook;
pub mod witness;

pub use batch::{Batch, BatchId};
pub use chain::chain;
pub use chance::{Chance, SystemChance, system_chance};
pub use effect::{Artifact, Effect, Grant, GrantReads, NewJob, TURN, turn};
pub use event::{Event, Level, NewEvent};
pub use gate::{Closed, Gate, Pressure};
pub use ids::{RunId, Serial};
pub use job::{Job, JobStatus};
pub use json_text::JsonText;
pub use run::{
    Change, Failure, Hold, Lease, LockRequest, NewRun, OnConflict, Outcome, Plan, Position, Run, Signal,
    Snapshot, Stage, StepInstance, StepPhase, StepRecord, StepStory, Wait,
};
pub use server::{Server, TlsMode};
pub use steady::SteadyClock;
pub use time::{Clock, ManualClock, SystemClock, Time};
pub use transition::{Phase, Trigger, transition};
pub use turns::{Head, Turns, rank};
pub use webhook::{DeadLetter, LateStream, Outgoing, Webhook, WebhookFilter, WebhookId};
