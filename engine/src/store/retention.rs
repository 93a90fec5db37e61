//! Forgetting what is old, a little at a time: no transaction of it keeps others waiting for long.
//!
//! ```text
//!  expired(before) --> roots of families that have ended --(their files are removed)--> forget --> rows, events, grants gone
//! ```
//!
//! Invariants: a family is forgotten whole and only when all of it has ended; files go before rows, so that a crash in
//! between leaves rows that are forgotten the next time and never a file that nobody knows of. What an outgoing webhook has
//! yet to deliver stays until it is delivered or given up; a disabled webhook keeps nothing.

use rusqlite::params;

use super::rows::{all, execute};
use super::{Store, StoreError};
use crate::model::{RunId, Time};

impl Store {
    /// Families of runs that ended before a time, by their first run, the oldest first; at most `limit`.
    pub async fn expired(&self, before: Time, limit: u32) -> Result<Vec<RunId>, StoreError> {
        const OPERATION: &str = "find what is old";
        self.read(OPERATION, move |connection| {
            all(
                connection,
                OPERATION,
                "SELECT id FROM runs WHERE phase = 'ended' AND parent IS NULL AND updated_at < ?1
                 AND NOT EXISTS (SELECT 1 FROM runs AS child WHERE child.root = runs.id AND child.phase <> 'ended')
                 AND NOT EXISTS (SELECT 1 FROM webhooks, runs AS child JOIN events ON events.run = child.id
                                 WHERE webhooks.disabled IS NULL AND child.root = runs.id
                                 AND events.seq > webhooks.cursor)
                 AND NOT EXISTS (SELECT 1 FROM webhooks JOIN webhook_late AS late ON late.webhook = webhooks.id
                                 JOIN runs AS child ON child.id = late.stream
                                 WHERE webhooks.disabled IS NULL AND child.root = runs.id)
                 ORDER BY updated_at LIMIT ?2",
                params![before.to_string(), limit],
                |columns| columns.parse("id", str::parse::<RunId>),
            )
        })
        .await
    }

    /// Removes families of runs with all that belongs to them.
    pub async fn forget(&self, roots: Vec<RunId>) -> Result<(), StoreError> {
        const OPERATION: &str = "forget what is old";
        self.writer
            .write(OPERATION, move |connection| {
                for root in &roots {
                    // One statement for a family: a parent and its children go together.
                    execute(
                        connection,
                        OPERATION,
                        "DELETE FROM runs WHERE root = ?1 AND phase = 'ended'",
                        &[&root.to_string()],
                    )?;
                }
                Ok(())
            })
            .await
    }

    /// Removes up to `limit` events that belong to no run, and batches whose jobs are all forgotten; answers how many rows.
    pub async fn forget_leftovers(&self, before: Time, limit: u32) -> Result<usize, StoreError> {
        const OPERATION: &str = "forget old events and batches";
        self.writer
            .write(OPERATION, move |connection| {
                let before = before.to_string();
                let events = execute(
                    connection,
                    OPERATION,
                    "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE run IS NULL AND time < ?1
                     AND seq <= coalesce((SELECT min(cursor) FROM webhooks WHERE disabled IS NULL), seq)
                     AND seq < coalesce((SELECT min(late.seq) FROM webhooks JOIN webhook_late AS late
                                         ON late.webhook = webhooks.id AND late.stream = ''
                                         WHERE webhooks.disabled IS NULL), seq + 1) LIMIT ?2)",
                    params![before, limit],
                )?;
                let batches = execute(
                    connection,
                    OPERATION,
                    "DELETE FROM batches WHERE id IN (SELECT id FROM batches WHERE created_at < ?1
                     AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.batch = batches.id) LIMIT ?2)",
                    params![before, limit],
                )?;
                Ok(events + batches)
            })
            .await
    }
}
