//! Outgoing webhooks: their rows, cursors in the event log, retry streams and dead letters.
//!
//! Invariant: cursor, retry streams and dead letters change in one transaction ([`Store::commit_webhook_progress`]). So every
//! event is always in exactly one state: after the cursor, retried, a dead letter, or done.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use serde_json::Value;

use super::events::event;
use super::rows::{Columns, all, append_events, execute, first, to_json};
use super::{Store, StoreError};
use model::{
    DeadLetter, NewEvent, OutgoingEvent, RetryStream, RunId, Time, Webhook, WebhookFilter, WebhookId,
};

/// The maximum of dead letters of one webhook. The oldest are deleted first.
const MAX_DEAD: u32 = 1000;
/// The maximum of events that are counted behind the cursor of one webhook: a receiver can be behind by all events.
pub(super) const MAX_BEHIND: u64 = 10_000;
const WEBHOOK: &str = "webhooks.*, open_text(url, 'webhooks/' || id || '/url') AS opened_url";
const EVENT: &str = "events.seq, events.time, events.run, events.server, events.type, events.level, events.step, \
     events.attempt, events.actor, events.message, events.data, run_inputs.labels, runs.workflow \
     FROM events LEFT JOIN run_inputs ON run_inputs.run = events.run LEFT JOIN runs ON runs.id = events.run";

/// The counts of what a webhook has yet to deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebhookCounts {
    /// Events after the cursor; at most 10,000 are counted.
    pub behind: u64,
    /// Retry streams: jobs whose next event waits for another attempt.
    pub retrying: u64,
    /// Dead letters.
    pub dead: u64,
}

/// The results of one batch of deliveries, written in one transaction.
#[derive(Clone, Debug, Default)]
pub struct WebhookProgress {
    /// The new cursor: every event up to it is delivered, filtered out, retried or a dead letter.
    pub cursor: Option<i64>,
    /// New and changed retry streams.
    pub retrying: Vec<RetryStream>,
    /// Retry streams that ended, as they were read.
    pub caught_up: Vec<RetryStream>,
    /// The `seq` up to which the ended retry streams are delivered.
    pub caught_up_to: i64,
    /// Events whose delivery was given up.
    pub dead: Vec<DeadLetter>,
    /// Dead letters that were delivered by a redelivery.
    pub redelivered: Vec<i64>,
    /// Dead letters whose redelivery failed, with the error.
    pub redelivery_failed: Vec<(i64, String)>,
    /// The number of delivered events.
    pub delivered: u64,
    /// The last error.
    pub error: Option<String>,
    /// The reason to disable the webhook; `None` to leave it.
    pub disable: Option<String>,
    /// Events to append, with the job that each belongs to.
    pub events: Vec<(Option<RunId>, NewEvent)>,
}

impl WebhookProgress {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let Self {
            cursor,
            retrying,
            caught_up,
            dead,
            redelivered,
            redelivery_failed,
            delivered,
            error,
            disable,
            events,
            ..
        } = self;
        let lists = [retrying.is_empty(), caught_up.is_empty(), dead.is_empty(), redelivered.is_empty()];
        let rest = [redelivery_failed.is_empty(), *delivered == 0, error.is_none(), disable.is_none()];
        cursor.is_none() && events.is_empty() && lists.into_iter().chain(rest).all(|empty| empty)
    }
}

impl Store {
    /// Creates a webhook that receives every later event. `false` when there are `max` webhooks already.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn create_webhook(
        &self,
        webhook: Webhook,
        max: u32,
        event: NewEvent,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "create a webhook";
        self.writer
            .write(OPERATION, move |connection| {
                let created = execute(
                    connection,
                    OPERATION,
                    "INSERT INTO webhooks (id, url, secret, types, labels, created_by, created_at, cursor)
                     SELECT ?1, seal_text(?2, 'webhooks/' || ?1 || '/url'),
                            reseal_text(?3, 'credential', 'webhook/' || ?1), ?4, ?5, ?6, ?7,
                            coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)
                     WHERE (SELECT count(*) FROM webhooks) < ?8",
                    params![
                        webhook.id.to_string(),
                        webhook.url,
                        webhook.secret,
                        to_json(OPERATION, &webhook.filter.types)?,
                        to_json(OPERATION, &webhook.filter.labels)?,
                        webhook.created_by,
                        webhook.created_at.to_string(),
                        max
                    ],
                )?;
                if created > 0 {
                    append_events(connection, OPERATION, None, None, webhook.created_at, &[event])?;
                }
                Ok(created > 0)
            })
            .await
    }

    /// All webhooks, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn webhooks(&self) -> Result<Vec<Webhook>, StoreError> {
        const OPERATION: &str = "list webhooks";
        self.read(OPERATION, |connection| {
            all(
                connection,
                OPERATION,
                &format!("SELECT {WEBHOOK} FROM webhooks ORDER BY id"),
                &[],
                read_webhook,
            )
        })
        .await
    }

    /// The webhook with this id.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn webhook(&self, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
        const OPERATION: &str = "read a webhook";
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                &format!("SELECT {WEBHOOK} FROM webhooks WHERE id = ?1"),
                &[&id.to_string()],
                read_webhook,
            )
        })
        .await
    }

    /// Counts the events, retry streams and dead letters of a webhook that it has yet to deliver. At most 10,000 events are counted.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn webhook_counts(&self, id: WebhookId) -> Result<WebhookCounts, StoreError> {
        const OPERATION: &str = "count the events of a webhook";
        self.read(OPERATION, move |connection| {
            let counts = first(
                connection,
                OPERATION,
                &format!(
                    "SELECT (SELECT count(*) FROM (SELECT 1 FROM events WHERE seq > webhooks.cursor LIMIT {MAX_BEHIND})) AS behind,
                            (SELECT count(*) FROM webhook_retries WHERE webhook = webhooks.id) AS retrying,
                            (SELECT count(*) FROM webhook_dead_letters WHERE webhook = webhooks.id) AS dead
                     FROM webhooks WHERE id = ?1"
                ),
                &[&id.to_string()],
                |columns| {
                    Ok(WebhookCounts {
                        behind: columns.count("behind")?,
                        retrying: columns.count("retrying")?,
                        dead: columns.count("dead")?,
                    })
                },
            )?;
            Ok(counts.unwrap_or_default())
        })
        .await
    }

    /// The number of dead letters of all webhooks.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn dead_letter_count(&self) -> Result<u64, StoreError> {
        const OPERATION: &str = "count the dead letters";
        self.read(OPERATION, |connection| {
            let sql = "SELECT count(*) AS dead FROM webhook_dead_letters";
            Ok(first(connection, OPERATION, sql, &[], |columns| columns.count("dead"))?.unwrap_or(0))
        })
        .await
    }

    /// Deletes a webhook with its retry streams and dead letters. `false` when there is no such webhook.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is deleted then.
    pub async fn delete_webhook(
        &self,
        id: WebhookId,
        event: NewEvent,
        now: Time,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "delete a webhook";
        self.writer
            .write(OPERATION, move |connection| {
                let id = id.to_string();
                let deleted =
                    execute(connection, OPERATION, "DELETE FROM webhooks WHERE id = ?1", &[&id])? > 0;
                if deleted {
                    append_events(connection, OPERATION, None, None, now, &[event])?;
                }
                Ok(deleted)
            })
            .await
    }

    /// Disables a webhook with a reason (`Some`) or enables it (`None`). Enabling makes its retry streams due and restarts their
    /// retry time. `false` when there is no such webhook.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is changed then.
    pub async fn set_webhook_disabled(
        &self,
        id: WebhookId,
        disabled: Option<String>,
        event: NewEvent,
        now: Time,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "disable or enable a webhook";
        self.writer
            .write(OPERATION, move |connection| {
                let (id, at) = (id.to_string(), now.to_string());
                let exists = execute(
                    connection,
                    OPERATION,
                    "UPDATE webhooks SET disabled = ?2, failing_since = NULL WHERE id = ?1",
                    params![id, disabled],
                )? > 0;
                if exists && disabled.is_none() {
                    execute(
                        connection,
                        OPERATION,
                        "UPDATE webhook_retries SET since = ?2, next_at = ?2 WHERE webhook = ?1",
                        &[&id, &at],
                    )?;
                }
                if exists {
                    append_events(connection, OPERATION, None, None, now, &[event])?;
                }
                Ok(exists)
            })
            .await
    }

    /// Events after `after` in the log, with the labels of their jobs.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn outgoing(&self, after: i64, limit: u32) -> Result<Vec<OutgoingEvent>, StoreError> {
        const OPERATION: &str = "read events to send";
        self.read(OPERATION, move |connection| {
            all(
                connection,
                OPERATION,
                &format!("SELECT {EVENT} WHERE events.seq > ?1 ORDER BY events.seq LIMIT ?2"),
                params![after, limit],
                read_outgoing,
            )
        })
        .await
    }

    /// Events of one job, or of no job for an empty `stream`, from `from` to `to` inclusive.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn outgoing_of(
        &self,
        stream: String,
        from: i64,
        to: i64,
        limit: u32,
    ) -> Result<Vec<OutgoingEvent>, StoreError> {
        const OPERATION: &str = "read events of one job to send";
        self.read(OPERATION, move |connection| {
            let of = if stream.is_empty() { "events.run IS NULL AND ?4 = ''" } else { "events.run = ?4" };
            all(
                connection,
                OPERATION,
                &format!(
                    "SELECT {EVENT} WHERE {of} AND events.seq BETWEEN ?1 AND ?2 ORDER BY events.seq LIMIT ?3"
                ),
                params![from, to, limit, stream],
                read_outgoing,
            )
        })
        .await
    }

    /// The retry streams of a webhook, the next due one first. The dispatcher limits their number.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn retry_streams(&self, id: WebhookId) -> Result<Vec<RetryStream>, StoreError> {
        const OPERATION: &str = "read retry streams";
        self.read(OPERATION, move |connection| {
            all(
                connection,
                OPERATION,
                "SELECT * FROM webhook_retries WHERE webhook = ?1 ORDER BY next_at, stream",
                &[&id.to_string()],
                |columns| {
                    Ok(RetryStream {
                        stream: columns.get("stream")?,
                        seq: columns.get("seq")?,
                        attempts: columns.get("attempts")?,
                        since: columns.time("since")?,
                        next_at: columns.time("next_at")?,
                        error: columns.get("error")?,
                    })
                },
            )
        })
        .await
    }

    /// Dead letters in the order of the log. `redeliver_only`: only those with a requested redelivery.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn dead_letters(
        &self,
        id: WebhookId,
        redeliver_only: bool,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        const OPERATION: &str = "read dead letters";
        self.read(OPERATION, move |connection| {
            all(
                connection,
                OPERATION,
                "SELECT * FROM webhook_dead_letters WHERE webhook = ?1 AND redeliver >= ?2 ORDER BY seq LIMIT ?3",
                params![id.to_string(), redeliver_only, limit],
                |columns| {
                    Ok(DeadLetter {
                        seq: columns.get("seq")?,
                        stream: columns.get("stream")?,
                        kind: columns.get("type")?,
                        body: columns.get("body")?,
                        attempts: columns.get("attempts")?,
                        since: columns.time("since")?,
                        given_up_at: columns.time("given_up_at")?,
                        error: columns.get("error")?,
                        redeliver: columns.get("redeliver")?,
                    })
                },
            )
        })
        .await
    }

    /// Requests the redelivery of one dead letter (`Some`) or of all (`None`). Returns the number of dead letters.
    ///
    /// # Errors
    /// When the database cannot be written; no redelivery is requested then.
    pub async fn redeliver(
        &self,
        id: WebhookId,
        seq: Option<i64>,
        event: NewEvent,
        now: Time,
    ) -> Result<usize, StoreError> {
        const OPERATION: &str = "redeliver dead letters";
        self.writer
            .write(OPERATION, move |connection| {
                let redelivered = execute(
                    connection,
                    OPERATION,
                    "UPDATE webhook_dead_letters SET redeliver = 1 WHERE webhook = ?1 AND seq = coalesce(?2, seq)",
                    params![id.to_string(), seq],
                )?;
                if redelivered > 0 {
                    append_events(connection, OPERATION, None, None, now, &[event])?;
                }
                Ok(redelivered)
            })
            .await
    }

    /// Writes the results of one batch of deliveries. Nothing is written for a webhook that was deleted in the meantime.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn commit_webhook_progress(
        &self,
        id: WebhookId,
        progress: WebhookProgress,
        now: Time,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "write the progress of a webhook";
        self.writer
            .write(OPERATION, move |connection| write_progress(connection, OPERATION, id, &progress, now))
            .await
    }
}

fn write_progress(
    connection: &Connection,
    operation: &'static str,
    id: WebhookId,
    progress: &WebhookProgress,
    now: Time,
) -> Result<(), StoreError> {
    let (id, at) = (id.to_string(), now.to_string());
    let exists = execute(
        connection,
        operation,
        "UPDATE webhooks SET cursor = max(cursor, coalesce(?2, cursor)), delivered = delivered + ?3,
             failing_since = CASE WHEN ?3 > 0 THEN NULL WHEN ?4 IS NOT NULL THEN coalesce(failing_since, ?6)
                                  ELSE failing_since END,
             last_error = CASE WHEN ?4 IS NOT NULL THEN ?4 WHEN ?3 > 0 THEN NULL ELSE last_error END,
             disabled = coalesce(disabled, ?5)
         WHERE id = ?1",
        params![
            id,
            progress.cursor,
            i64::try_from(progress.delivered).unwrap_or(i64::MAX),
            progress.error,
            progress.disable,
            at
        ],
    )?;
    if exists == 0 {
        return Ok(());
    }
    for was in &progress.caught_up {
        end_retry(connection, operation, &id, was, progress.caught_up_to, now)?;
    }
    for stream in &progress.retrying {
        execute(
            connection,
            operation,
            "INSERT INTO webhook_retries (webhook, stream, seq, attempts, since, next_at, error)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (webhook, stream) DO UPDATE SET seq = excluded.seq, attempts = excluded.attempts,
                 since = excluded.since, next_at = excluded.next_at, error = excluded.error",
            params![
                id,
                stream.stream,
                stream.seq,
                stream.attempts,
                stream.since.to_string(),
                stream.next_at.to_string(),
                stream.error
            ],
        )?;
    }
    record_dead_letters(connection, operation, &id, progress)?;
    if !progress.dead.is_empty() {
        // Without a retry stream nothing is failing any more: the next failure starts a new retry time.
        execute(
            connection,
            operation,
            "UPDATE webhooks SET failing_since = NULL
             WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM webhook_retries WHERE webhook = ?1)",
            &[&id],
        )?;
    }
    for (run, event) in &progress.events {
        // Retention may have deleted the job. The event is then stored without a job.
        let known = match run {
            Some(run) => first(
                connection,
                operation,
                "SELECT id FROM runs WHERE id = ?1",
                &[&run.to_string()],
                |columns| columns.parse("id", str::parse::<RunId>),
            )?,
            None => None,
        };
        append_events(connection, operation, known, None, now, std::slice::from_ref(event))?;
    }
    Ok(())
}

/// Leaves the time without a controller out of the retry times of all webhooks: nothing was sent in it, so nothing failed.
pub(super) fn leave_out_outage(
    connection: &Connection,
    operation: &'static str,
    seen: Time,
    now: Time,
) -> Result<(), StoreError> {
    let moved = |since: Time| match since <= seen {
        true => since.plus(now.since(seen)).min(now),
        // After the last sign of life, or by a clock that was ahead.
        false => now,
    };
    let failing = all(
        connection,
        operation,
        "SELECT id, failing_since FROM webhooks WHERE failing_since IS NOT NULL",
        &[],
        |columns| Ok((columns.get::<String>("id")?, columns.time("failing_since")?)),
    )?;
    for (id, since) in failing {
        let since = moved(since).to_string();
        let sql = "UPDATE webhooks SET failing_since = ?2 WHERE id = ?1";
        execute(connection, operation, sql, params![id, since])?;
    }
    let retries =
        all(connection, operation, "SELECT webhook, stream, since FROM webhook_retries", &[], |columns| {
            Ok((columns.get::<String>("webhook")?, columns.get::<String>("stream")?, columns.time("since")?))
        })?;
    for (id, stream, since) in retries {
        let since = moved(since).to_string();
        let sql = "UPDATE webhook_retries SET since = ?3 WHERE webhook = ?1 AND stream = ?2";
        execute(connection, operation, sql, params![id, stream, since])?;
    }
    Ok(())
}

/// Deletes a retry stream that has caught up. Another controller's dispatcher may run at the same time. If it has changed the
/// stream meanwhile, the stream stays. If it has moved the cursor past `to`, later events of the job may have been left to
/// this stream, so the stream continues after `to`.
fn end_retry(
    connection: &Connection,
    operation: &'static str,
    id: &str,
    was: &RetryStream,
    to: i64,
    now: Time,
) -> Result<(), StoreError> {
    const UNCHANGED: &str = "webhook = ?1 AND stream = ?2 AND seq = ?3 AND next_at = ?4";
    let next_at = was.next_at.to_string();
    execute(
        connection,
        operation,
        &format!(
            "DELETE FROM webhook_retries WHERE {UNCHANGED} AND (SELECT cursor FROM webhooks WHERE id = ?1) <= ?5"
        ),
        params![id, was.stream, was.seq, next_at, to],
    )?;
    execute(
        connection,
        operation,
        &format!("UPDATE webhook_retries SET seq = ?5, attempts = 0, next_at = ?6 WHERE {UNCHANGED}"),
        params![id, was.stream, was.seq, next_at, to.saturating_add(1), now.to_string()],
    )
    .map(drop)
}

/// Writes new dead letters and the results of redeliveries.
fn record_dead_letters(
    connection: &Connection,
    operation: &'static str,
    id: &str,
    progress: &WebhookProgress,
) -> Result<(), StoreError> {
    for dead in &progress.dead {
        execute(
            connection,
            operation,
            "INSERT INTO webhook_dead_letters (webhook, seq, stream, type, body, attempts, since, given_up_at, error)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (webhook, seq) DO NOTHING",
            params![
                id,
                dead.seq,
                dead.stream,
                dead.kind,
                dead.body,
                dead.attempts,
                dead.since.to_string(),
                dead.given_up_at.to_string(),
                dead.error
            ],
        )?;
    }
    for seq in &progress.redelivered {
        execute(
            connection,
            operation,
            "DELETE FROM webhook_dead_letters WHERE webhook = ?1 AND seq = ?2",
            params![id, seq],
        )?;
    }
    for (seq, error) in &progress.redelivery_failed {
        execute(
            connection,
            operation,
            "UPDATE webhook_dead_letters SET redeliver = 0, attempts = attempts + 1, error = ?3
             WHERE webhook = ?1 AND seq = ?2",
            params![id, seq, error],
        )?;
    }
    if !progress.dead.is_empty() {
        let deleted = execute(
            connection,
            operation,
            "DELETE FROM webhook_dead_letters WHERE webhook = ?1 AND seq NOT IN
             (SELECT seq FROM webhook_dead_letters WHERE webhook = ?1 ORDER BY seq DESC LIMIT ?2)",
            params![id, MAX_DEAD],
        )?;
        if deleted > 0 {
            tracing::warn!(
                webhook = id,
                deleted,
                limit = MAX_DEAD,
                "too many dead letters; the oldest were deleted"
            );
        }
    }
    Ok(())
}

fn read_webhook(columns: &Columns<'_>) -> Result<Webhook, StoreError> {
    Ok(Webhook {
        id: columns.parse("id", str::parse)?,
        // A webhook whose URL was sealed with another master key stays visible; its deliveries fail.
        url: columns.text_opt("opened_url")?.unwrap_or_default().to_owned(),
        secret: columns.get("secret")?,
        filter: WebhookFilter { types: columns.json("types")?, labels: columns.json("labels")? },
        created_by: columns.get("created_by")?,
        created_at: columns.time("created_at")?,
        disabled: columns.get("disabled")?,
        cursor: columns.get("cursor")?,
        delivered: columns.count("delivered")?,
        failing_since: columns.time_opt("failing_since")?,
        last_error: columns.get("last_error")?,
    })
}

fn read_outgoing(columns: &Columns<'_>) -> Result<OutgoingEvent, StoreError> {
    let labels: Option<BTreeMap<String, Value>> = columns.json_opt("labels")?;
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let labels = labels.unwrap_or_default().into_iter().map(|(key, value)| (key, text(value))).collect();
    Ok(OutgoingEvent { event: event(columns)?, labels, workflow: columns.get("workflow")? })
}
