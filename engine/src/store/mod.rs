//! What can be asked of the database, as types; behind it SQLite. No SQL and no transaction leaves this room.
//!
//! ```text
//!   callers --(typed methods)--> Store --+--> writer thread: [job job job] one transaction, one fsync, then the answers
//!                                        +--> reader threads: query_only connections, one queue
//!                                        +--> pages of jobs, kept until the writer touches a row of theirs
//! ```
//!
//! Invariants
//! - An answer to a write is sent after its transaction is on disk (`synchronous=FULL`, lock L9); many share one fsync.
//! - A failed job of a batch rolls back alone (savepoint); a failed commit fails the whole batch, and every caller hears it.
//! - Every change of a run names the epoch and revision it was computed from (lock L7); otherwise nothing is written.
//! - A page of a job that is kept ([`Page`]) is what the rows would give, from before a write can be seen.
//! - The projection of a run into `jobs`, its events and step records are written in the same transaction.

mod batches;
mod claim;
mod commit;
mod create;
mod db;
mod events;
mod gates;
mod grants;
mod identity;
mod in_place;
mod invariants;
mod job_cache;
mod jobs;
mod locks;
mod migrate;
mod readers;
mod retention;
mod rows;
mod servers;
mod signals;
mod unreadable;
mod webhooks;
mod writer;

#[cfg(test)]
mod tests;

pub use batches::{BatchCount, CreatedBatch};
pub use claim::{Claimed, Lanes, TakeOver};
pub use commit::Committed;
pub use create::{Created, Creation};
pub use db::{Store, StoreError};
pub use events::EventFilter;
pub use gates::MaintenanceChange;
pub use grants::StoredGrant;
pub use identity::{StoredToken, StoredUser};
pub use in_place::{Before, Memory, StoreHooks};
pub use invariants::Broken;
pub use job_cache::{Blank, Page};
pub use jobs::{JobDetail, JobFilter, JobPage};
pub use locks::QueuePosition;
pub use migrate::MigrateError;
pub use servers::{DeletedServer, ServerChange, ServerResources, UpdatedServer};
pub use signals::{CANCEL, Delivered, Message};
pub use unreadable::{UNREADABLE, Unreadable};
pub use webhooks::{WebhookCounts, WebhookProgress};
