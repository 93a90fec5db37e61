//! Retention: deletes old rows in small transactions, so that other writers do not wait long.
//!
//! ```text
//!  expired(before) --> roots of ended run trees --(their files are removed)--> delete_ended --> rows, events, grants deleted
//! ```
//!
//! Invariants: a run tree is deleted whole, and only when all its runs have ended. Files are removed before rows, so that a
//! crash in between leaves rows that the next round deletes, and never a file without a row. An event that an outgoing webhook
//! has yet to deliver stays until it is delivered or a dead letter. A disabled webhook keeps no events.

use rusqlite::params;

use super::rows::{all, execute, first};
use super::{Store, StoreError};
use model::{RunId, Serial, Time};

/// The stored runs of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerHistory {
    /// The roots of their trees.
    pub roots: Vec<RunId>,
    /// The runs of these trees.
    pub runs: u64,
    /// The runs of these trees that have not ended.
    pub unfinished: u64,
    /// The runs that keep the server from being deleted without its history.
    pub blocking: u64,
    /// The runs with an event that an outgoing webhook has yet to deliver.
    pub undelivered: u64,
}

impl Store {
    /// The stored runs of a server.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn server_history(&self, serial: &Serial) -> Result<ServerHistory, StoreError> {
        const OPERATION: &str = "read the history of a server";
        let serial = serial.clone();
        self.read(OPERATION, move |connection| {
            let roots = all(
                connection,
                OPERATION,
                "SELECT DISTINCT root FROM runs WHERE server = ?1",
                &[&serial.as_str()],
                |columns| columns.parse("root", str::parse::<RunId>),
            )?;
            let counted = first(
                connection,
                OPERATION,
                "SELECT count(*) AS runs, coalesce(sum(phase <> 'ended'), 0) AS unfinished,
                     coalesce(sum(purpose = 'change' OR phase <> 'ended'), 0) AS blocking,
                     coalesce(sum(EXISTS (SELECT 1 FROM webhooks JOIN events ON events.run = runs.id
                                          WHERE webhooks.disabled IS NULL AND events.seq > webhooks.cursor)
                               OR EXISTS (SELECT 1 FROM webhooks JOIN webhook_retries AS retry ON retry.webhook = webhooks.id
                                          WHERE webhooks.disabled IS NULL AND retry.stream = runs.id)), 0) AS undelivered
                 FROM runs WHERE root IN (SELECT root FROM runs WHERE server = ?1)",
                &[&serial.as_str()],
                |columns| {
                    Ok(ServerHistory {
                        roots: Vec::new(),
                        runs: columns.count("runs")?,
                        unfinished: columns.count("unfinished")?,
                        blocking: columns.count("blocking")?,
                        undelivered: columns.count("undelivered")?,
                    })
                },
            )?;
            Ok(ServerHistory { roots, ..counted.unwrap_or_default() })
        })
        .await
    }

    /// The roots of run trees that ended before a time, the oldest first, at most `limit`.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn expired(&self, before: Time, limit: u32) -> Result<Vec<RunId>, StoreError> {
        const OPERATION: &str = "find expired runs";
        self.read(OPERATION, move |connection| {
            all(
                connection,
                OPERATION,
                "SELECT id FROM runs WHERE phase = 'ended' AND parent IS NULL AND updated_at < ?1
                 AND NOT EXISTS (SELECT 1 FROM runs AS child WHERE child.root = runs.id AND child.phase <> 'ended')
                 AND NOT EXISTS (SELECT 1 FROM webhooks, runs AS child JOIN events ON events.run = child.id
                                 WHERE webhooks.disabled IS NULL AND child.root = runs.id
                                 AND events.seq > webhooks.cursor)
                 AND NOT EXISTS (SELECT 1 FROM webhooks JOIN webhook_retries AS retry ON retry.webhook = webhooks.id
                                 JOIN runs AS child ON child.id = retry.stream
                                 WHERE webhooks.disabled IS NULL AND child.root = runs.id)
                 ORDER BY updated_at LIMIT ?2",
                params![before.to_string(), limit],
                |columns| columns.parse("id", str::parse::<RunId>),
            )
        })
        .await
    }

    /// Deletes ended run trees with all rows that belong to them.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is deleted then.
    pub async fn delete_ended(&self, roots: Vec<RunId>) -> Result<(), StoreError> {
        const OPERATION: &str = "delete expired runs";
        self.writer
            .write(OPERATION, move |connection| {
                for root in &roots {
                    // One statement for a tree, because a parent cannot be deleted before its children.
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

    /// Deletes up to `limit` old events that belong to no run, and up to `limit` old batches without jobs. Returns the number
    /// of rows.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is deleted then.
    pub async fn delete_orphans(&self, before: Time, limit: u32) -> Result<usize, StoreError> {
        const OPERATION: &str = "delete old events and batches";
        self.writer
            .write(OPERATION, move |connection| {
                let before = before.to_string();
                let events = execute(
                    connection,
                    OPERATION,
                    "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE run IS NULL AND time < ?1
                     AND seq <= coalesce((SELECT min(cursor) FROM webhooks WHERE disabled IS NULL), seq)
                     AND seq < coalesce((SELECT min(retry.seq) FROM webhooks JOIN webhook_retries AS retry
                                         ON retry.webhook = webhooks.id AND retry.stream = ''
                                         WHERE webhooks.disabled IS NULL), seq + 1) LIMIT ?2)",
                    params![before, limit],
                )?;
                let batches = execute(
                    connection,
                    OPERATION,
                    "DELETE FROM batches WHERE id IN (SELECT id FROM batches WHERE created_at < ?1
                     AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.batch = batches.id AND runs.batch <> '') LIMIT ?2)",
                    params![before, limit],
                )?;
                Ok(events + batches)
            })
            .await
    }
}
