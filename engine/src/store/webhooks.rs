//! Outgoing webhooks: their records, how far each has worked through the log, what is late and what was given up.
//!
//! Invariant: cursor, late and dead rows change in one transaction ([`Store::commit_webhook_progress`]), so that every event is at
//! any time ahead of the cursor, late, dead, or done with.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use serde_json::Value;

use super::events::event;
use super::rows::{Columns, all, append_events, execute, first, to_json};
use super::{Store, StoreError};
use crate::model::{
    DeadLetter, NewEvent, OutgoingEvent, RetryStream, RunId, Time, Webhook, WebhookFilter, WebhookId,
};

/// Dead letters kept of one webhook; the oldest go first.
const MAX_DEAD: u32 = 1000;
const EVENT: &str = "events.seq, events.time, events.run, events.server, events.type, events.level, events.step, \
     events.attempt, events.actor, events.message, events.data, jobs.labels \
     FROM events LEFT JOIN jobs ON jobs.id = events.run";

/// How much of a webhook is where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebhookCounts {
    /// Events the cursor has not reached.
    pub behind: u64,
    /// Jobs that wait for another try.
    pub late: u64,
    /// Events that were given up.
    pub dead: u64,
}

/// What a round of deliveries came to; written at once.
#[derive(Clone, Debug, Default)]
pub struct WebhookProgress {
    /// Everything up to here is delivered, of no interest, late or dead.
    pub cursor: Option<i64>,
    /// Jobs that wait, new or as they stand now.
    pub late: Vec<RetryStream>,
    /// Jobs that wait no longer, as they were read.
    pub caught_up: Vec<RetryStream>,
    /// Up to where in the log they have caught up.
    pub caught_up_to: i64,
    /// Events given up.
    pub dead: Vec<DeadLetter>,
    /// Dead letters that were delivered after all.
    pub raised: Vec<i64>,
    /// Dead letters that were tried once more in vain, and why.
    pub redelivery_failed: Vec<(i64, String)>,
    /// Events delivered.
    pub delivered: u64,
    /// The last failure.
    pub error: Option<String>,
    /// Nothing more is to be sent, and why.
    pub disable: Option<String>,
    /// What to tell, with the job it belongs to.
    pub events: Vec<(Option<RunId>, NewEvent)>,
}

impl WebhookProgress {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let Self {
            cursor,
            late,
            caught_up,
            dead,
            raised,
            redelivery_failed,
            delivered,
            error,
            disable,
            events,
            ..
        } = self;
        let lists = [late.is_empty(), caught_up.is_empty(), dead.is_empty(), raised.is_empty()];
        let rest = [redelivery_failed.is_empty(), *delivered == 0, error.is_none(), disable.is_none()];
        cursor.is_none() && events.is_empty() && lists.into_iter().chain(rest).all(|empty| empty)
    }
}

impl Store {
    /// Writes down a webhook that gets every event from now on; `false` when there are `most` of them already.
    pub async fn create_webhook(
        &self,
        webhook: Webhook,
        most: u32,
        event: NewEvent,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "create a webhook";
        self.writer
            .write(OPERATION, move |connection| {
                let made = execute(
                    connection,
                    OPERATION,
                    "INSERT INTO webhooks (id, url, secret, types, labels, created_by, created_at, cursor)
                     SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7,
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
                        most
                    ],
                )?;
                if made > 0 {
                    append_events(connection, OPERATION, None, None, webhook.created_at, &[event])?;
                }
                Ok(made > 0)
            })
            .await
    }

    /// All webhooks, the oldest first.
    pub async fn webhooks(&self) -> Result<Vec<Webhook>, StoreError> {
        const OPERATION: &str = "list webhooks";
        self.read(OPERATION, |connection| {
            all(connection, OPERATION, "SELECT * FROM webhooks ORDER BY id", &[], read_webhook)
        })
        .await
    }

    /// One webhook.
    pub async fn webhook(&self, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
        const OPERATION: &str = "read a webhook";
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT * FROM webhooks WHERE id = ?1",
                &[&id.to_string()],
                read_webhook,
            )
        })
        .await
    }

    /// How much of a webhook is where.
    pub async fn webhook_counts(&self, id: WebhookId) -> Result<WebhookCounts, StoreError> {
        const OPERATION: &str = "count what a webhook has to deliver";
        self.read(OPERATION, move |connection| {
            let counts = first(
                connection,
                OPERATION,
                "SELECT (SELECT count(*) FROM events WHERE seq > webhooks.cursor) AS behind,
                        (SELECT count(*) FROM webhook_late WHERE webhook = webhooks.id) AS late,
                        (SELECT count(*) FROM webhook_dead WHERE webhook = webhooks.id) AS dead
                 FROM webhooks WHERE id = ?1",
                &[&id.to_string()],
                |columns| {
                    Ok(WebhookCounts {
                        behind: columns.count("behind")?,
                        late: columns.count("late")?,
                        dead: columns.count("dead")?,
                    })
                },
            )?;
            Ok(counts.unwrap_or_default())
        })
        .await
    }

    /// Forgets a webhook with all it has yet to deliver; `false` when there is none.
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
                let gone = execute(connection, OPERATION, "DELETE FROM webhooks WHERE id = ?1", &[&id])? > 0;
                if gone {
                    append_events(connection, OPERATION, None, None, now, &[event])?;
                }
                Ok(gone)
            })
            .await
    }

    /// Disables a webhook for a reason, or lets it go on; what is late is then tried at once, with all its time before it.
    /// `false` when there is none.
    pub async fn set_webhook_disabled(
        &self,
        id: WebhookId,
        disabled: Option<String>,
        event: NewEvent,
        now: Time,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "switch a webhook";
        self.writer
            .write(OPERATION, move |connection| {
                let (id, at) = (id.to_string(), now.to_string());
                let there = execute(
                    connection,
                    OPERATION,
                    "UPDATE webhooks SET disabled = ?2, failing_since = NULL WHERE id = ?1",
                    params![id, disabled],
                )? > 0;
                if there && disabled.is_none() {
                    execute(
                        connection,
                        OPERATION,
                        "UPDATE webhook_late SET since = ?2, next_at = ?2 WHERE webhook = ?1",
                        &[&id, &at],
                    )?;
                }
                if there {
                    append_events(connection, OPERATION, None, None, now, &[event])?;
                }
                Ok(there)
            })
            .await
    }

    /// Events after a place in the log, with the labels of their jobs.
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

    /// Events of one job (or of none) between two places in the log, both included.
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

    /// All that waits for another try, the next one first. Bounded by how many the sender lets wait.
    pub async fn retry_streams(&self, id: WebhookId) -> Result<Vec<RetryStream>, StoreError> {
        const OPERATION: &str = "read what is late";
        self.read(OPERATION, move |connection| {
            all(
                connection,
                OPERATION,
                "SELECT * FROM webhook_late WHERE webhook = ?1 ORDER BY next_at, stream",
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

    /// Dead letters in the order of the log; only those to be tried once more when `again`.
    pub async fn dead_letters(
        &self,
        id: WebhookId,
        again: bool,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        const OPERATION: &str = "read dead letters";
        self.read(OPERATION, move |connection| {
            all(
                connection,
                OPERATION,
                "SELECT * FROM webhook_dead WHERE webhook = ?1 AND again >= ?2 ORDER BY seq LIMIT ?3",
                params![id.to_string(), again, limit],
                |columns| {
                    Ok(DeadLetter {
                        seq: columns.get("seq")?,
                        stream: columns.get("stream")?,
                        kind: columns.get("type")?,
                        body: columns.get("body")?,
                        attempts: columns.get("attempts")?,
                        since: columns.time("since")?,
                        died_at: columns.time("died_at")?,
                        error: columns.get("error")?,
                        again: columns.get("again")?,
                    })
                },
            )
        })
        .await
    }

    /// Has one dead letter, or all of them, tried once more; answers how many.
    pub async fn redeliver(
        &self,
        id: WebhookId,
        seq: Option<i64>,
        event: NewEvent,
        now: Time,
    ) -> Result<usize, StoreError> {
        const OPERATION: &str = "try dead letters again";
        self.writer
            .write(OPERATION, move |connection| {
                let raised = execute(
                    connection,
                    OPERATION,
                    "UPDATE webhook_dead SET again = 1 WHERE webhook = ?1 AND seq = coalesce(?2, seq)",
                    params![id.to_string(), seq],
                )?;
                if raised > 0 {
                    append_events(connection, OPERATION, None, None, now, &[event])?;
                }
                Ok(raised)
            })
            .await
    }

    /// Writes down what a round of deliveries came to. Of a webhook that is gone meanwhile nothing is written.
    pub async fn commit_webhook_progress(
        &self,
        id: WebhookId,
        progress: WebhookProgress,
        now: Time,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "write down what was delivered";
        self.writer
            .write(OPERATION, move |connection| settle(connection, OPERATION, id, &progress, now))
            .await
    }
}

fn settle(
    connection: &Connection,
    operation: &'static str,
    id: WebhookId,
    progress: &WebhookProgress,
    now: Time,
) -> Result<(), StoreError> {
    let (id, at) = (id.to_string(), now.to_string());
    let there = execute(
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
    if there == 0 {
        return Ok(());
    }
    for was in &progress.caught_up {
        catch_up(connection, operation, &id, was, progress.caught_up_to, now)?;
    }
    for late in &progress.late {
        execute(
            connection,
            operation,
            "INSERT INTO webhook_late (webhook, stream, seq, attempts, since, next_at, error)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (webhook, stream) DO UPDATE SET seq = excluded.seq, attempts = excluded.attempts,
                 since = excluded.since, next_at = excluded.next_at, error = excluded.error",
            params![
                id,
                late.stream,
                late.seq,
                late.attempts,
                late.since.to_string(),
                late.next_at.to_string(),
                late.error
            ],
        )?;
    }
    bury(connection, operation, &id, progress)?;
    if !progress.dead.is_empty() {
        // With the last of what failed buried, what fails next has a day of its own.
        execute(
            connection,
            operation,
            "UPDATE webhooks SET failing_since = NULL
             WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM webhook_late WHERE webhook = ?1)",
            &[&id],
        )?;
    }
    for (run, event) in &progress.events {
        // Its job may be forgotten by now; what is told of it stays.
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

/// A job waits no longer: unless a courier of another controller, which may live beside this one for a while, has written
/// something else of it meanwhile, or has read the log further on and left what is there of this job to whoever was late.
fn catch_up(
    connection: &Connection,
    operation: &'static str,
    id: &str,
    was: &RetryStream,
    to: i64,
    now: Time,
) -> Result<(), StoreError> {
    const AS_IT_WAS: &str = "webhook = ?1 AND stream = ?2 AND seq = ?3 AND next_at = ?4";
    let next_at = was.next_at.to_string();
    execute(
        connection,
        operation,
        &format!(
            "DELETE FROM webhook_late WHERE {AS_IT_WAS} AND (SELECT cursor FROM webhooks WHERE id = ?1) <= ?5"
        ),
        params![id, was.stream, was.seq, next_at, to],
    )?;
    execute(
        connection,
        operation,
        &format!("UPDATE webhook_late SET seq = ?5, attempts = 0, next_at = ?6 WHERE {AS_IT_WAS}"),
        params![id, was.stream, was.seq, next_at, to.saturating_add(1), now.to_string()],
    )
    .map(drop)
}

/// What concerns dead letters.
fn bury(
    connection: &Connection,
    operation: &'static str,
    id: &str,
    progress: &WebhookProgress,
) -> Result<(), StoreError> {
    for dead in &progress.dead {
        execute(
            connection,
            operation,
            "INSERT INTO webhook_dead (webhook, seq, stream, type, body, attempts, since, died_at, error)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (webhook, seq) DO NOTHING",
            params![
                id,
                dead.seq,
                dead.stream,
                dead.kind,
                dead.body,
                dead.attempts,
                dead.since.to_string(),
                dead.died_at.to_string(),
                dead.error
            ],
        )?;
    }
    for seq in &progress.raised {
        execute(
            connection,
            operation,
            "DELETE FROM webhook_dead WHERE webhook = ?1 AND seq = ?2",
            params![id, seq],
        )?;
    }
    for (seq, error) in &progress.redelivery_failed {
        execute(
            connection,
            operation,
            "UPDATE webhook_dead SET again = 0, attempts = attempts + 1, error = ?3
             WHERE webhook = ?1 AND seq = ?2",
            params![id, seq, error],
        )?;
    }
    if !progress.dead.is_empty() {
        let forgotten = execute(
            connection,
            operation,
            "DELETE FROM webhook_dead WHERE webhook = ?1 AND seq NOT IN
             (SELECT seq FROM webhook_dead WHERE webhook = ?1 ORDER BY seq DESC LIMIT ?2)",
            params![id, MAX_DEAD],
        )?;
        if forgotten > 0 {
            tracing::warn!(webhook = id, forgotten, "the oldest dead letters are kept no longer");
        }
    }
    Ok(())
}

fn read_webhook(columns: &Columns<'_>) -> Result<Webhook, StoreError> {
    Ok(Webhook {
        id: columns.parse("id", str::parse)?,
        url: columns.get("url")?,
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
    Ok(OutgoingEvent { event: event(columns)?, labels })
}
