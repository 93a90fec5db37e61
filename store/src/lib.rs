//! The database: typed methods in front, SQLite behind. No SQL and no transaction leaves this module.
//!
//! ```text
//!   callers --(typed methods)--> Store --+--> writer thread: [job job job] one transaction, one fsync, then the results
//!                                        +--> reader threads: query_only connections, one queue
//!                                        +--> row cache: rendered jobs and servers, until the writer changes one of their rows
//! ```
//!
//! Invariants
//! - The result of a write is sent after its transaction is on disk (`synchronous=FULL`, decision D9); many share one fsync.
//! - A failed job of a batch rolls back alone (savepoint). A failed commit fails the whole batch, and every caller gets the
//!   error.
//! - Every change of a run names the epoch and revision it was computed from (decision D7). If the row has others, nothing is
//!   written.
//! - A cached job ([`CachedJob`]) or server equals what its rows give. It is removed before a write to those rows becomes visible.
//! - What may contain a secret (recipes, inputs of runs, URLs) is sealed before SQLite gets it ([`TextSeal`]).
//! - The audit entry of a request is recorded in the transaction of its first change ([`audited`]).
//! - The projection of a run into `jobs`, its events and step records are written in the same transaction.

mod audit;
pub mod audit_export;
mod audit_file;
mod audit_rows;
mod audit_trail;
mod backup;
mod batch_gates;
mod batches;
mod cards;
mod claim;
mod commit;
mod create;
mod db;
mod elsewhere;
mod erased;
mod error;
mod event_search;
mod events;
mod filters;
mod firmware_sets;
mod gate_names;
mod gates;
mod grant_reads;
mod grants;
mod hardware;
mod identity;
mod in_place;
mod inspect;
mod instances;
mod invariants;
mod job_list;
mod jobs;
mod keyed_cache;
mod locks;
pub mod log;
mod machine_restart;
mod media_list;
mod migrate;
mod overview;
mod queues;
mod readers;
mod reported;
mod reseal;
mod restored;
mod retention;
mod row_cache;
mod rows;
mod sealing;
mod servers;
mod setting_file;
mod shared_bmc;
mod signals;
mod signing_keys;
mod sizes;
mod starts;
mod tokens;
mod unconfirmed;
mod unreadable;
mod users;
mod usual;
mod web_sessions;
mod webhooks;
mod worker_tokens;
mod writer;

#[cfg(test)]
mod tests;

pub use audit::{AuditFilter, AuditRetention};
pub use audit_file::{AuditFile, record_in_file};
pub use audit_trail::{AuditTrail, audit_trail, audited};
pub use backup::{DatabaseCopy, back_up, check_copy, keys_of_copy};
pub use batches::{BatchCursor, BatchFilter, BatchPage, CreatedBatch};
pub use cards::StoredCard;
pub use claim::{Claimed, TakeOver, WORKER_OWNER};
pub use commit::Committed;
pub use create::{Created, Creation};
pub use db::Store;
pub use elsewhere::{ElsewhereOrder, OutputWritten};
pub use error::StoreError;
pub use event_search::{ActorSearch, EventSearch, EventsFound, LogPlace};
pub use events::EventFilter;
pub use filters::Present;
pub use firmware_sets::{CreatedFirmwareSet, StoredFirmwareFile, StoredFirmwareSet};
pub use gates::MaintenanceChange;
pub use grant_reads::CausedByReads;
pub use hardware::ServerHardware;
pub use in_place::{HookDecision, Memory, StoreHooks};
pub use invariants::Violation;
pub use job_list::{JobCursor, JobFilter, JobIds, JobListOrder, JobPage, Newest};
pub use jobs::{JobCount, JobDetail, NeedsOperator};
pub use log::{JobFields, job_span, step_span};
pub use media_list::{MediaFilter, MediaPage, MediaRow};
pub use migrate::MigrateError;
pub use overview::{EndedGroup, FailureGroup, HoldGroup, OpenGroup, Overview, RackGroup};
pub use queues::{Lanes, QueuePosition};
pub use reported::{InstallLog, ServerInventory};
pub use reseal::{ResealBatch, ResealCursor, SealedCount};
pub use restored::{BACKUPS, ReleasedServer};
pub use retention::ServerHistory;
pub use row_cache::{CacheTicket, CachedJob};
pub use sealing::{SealPurpose, TextSeal};
pub use servers::{
    CertificateChange, DeletedServer, ServerChange, ServerFilter, ServerResources, UpdatedServer,
};
pub use setting_file::setting_in_file;
pub use signals::{CANCEL, DeliverOutcome, SignalMessage};
pub use signing_keys::StoredSigningKey;
pub use sizes::DatabaseSize;
pub use tokens::StoredToken;
pub use unreadable::Unreadable;
pub use users::{AccountWritten, LoginGuard, MAX_ACCOUNTS, StoredUser, UserChange};
pub use usual::UsualDuration;
pub use web_sessions::{StoredWebSession, WebSessionLimits};
pub use webhooks::{WebhookCounts, WebhookProgress};
pub use worker_tokens::{MAX_WORKER_TOKENS, StoredWorkerToken};
