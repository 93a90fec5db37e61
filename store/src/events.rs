//! The event log: reading it, and appending to it outside the commit of a run.

use rusqlite::{Connection, params};
use serde::Serialize;
use serde_json::value::RawValue;

use super::rows::{Columns, all, append_events, first};
use super::{Store, StoreError};
use model::{Event, EventLevel, JsonText, NewEvent, RunId, Serial, Time};

/// A filter for events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventFilter {
    /// Only events of this run.
    pub run: Option<RunId>,
    /// Only events after this `seq`.
    pub after: i64,
    /// The maximum of events to return.
    pub limit: u32,
}

/// The columns that [`event`] and [`event_json`] read.
pub(super) const COLUMNS: &str = "seq, time, run, server, type, level, step, attempt, actor, message, data";

impl Store {
    /// Events in the order of the log.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn events(&self, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        const OPERATION: &str = "read events";
        self.read(OPERATION, move |connection| match filter.run {
            Some(run) => all(
                connection,
                OPERATION,
                &format!("SELECT {COLUMNS} FROM events WHERE seq > ?1 AND run = ?3 ORDER BY seq LIMIT ?2"),
                params![filter.after, filter.limit, run.to_string()],
                event,
            ),
            None => all(
                connection,
                OPERATION,
                &format!("SELECT {COLUMNS} FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2"),
                params![filter.after, filter.limit],
                event,
            ),
        })
        .await
    }

    /// Appends an event that belongs to no run and no server.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn record_event(&self, event: NewEvent, now: Time) -> Result<(), StoreError> {
        const OPERATION: &str = "record an event";
        self.writer
            .write(OPERATION, move |connection| {
                append_events(connection, OPERATION, None, None, now, std::slice::from_ref(&event))
            })
            .await
    }

    /// The `seq` of the newest event; zero in an empty log.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn last_seq(&self) -> Result<i64, StoreError> {
        const OPERATION: &str = "find the end of the log";
        self.read(OPERATION, |connection| last_seq(connection, OPERATION)).await
    }

    /// The last events of a run, in the order of the log.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn last_events(&self, run: RunId, limit: u32) -> Result<Vec<Event>, StoreError> {
        const OPERATION: &str = "read the last events of a run";
        self.read(OPERATION, move |connection| last_events(connection, OPERATION, run, limit)).await
    }

    /// Appends events that belong to no change of a run.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn append(
        &self,
        run: Option<RunId>,
        server: Option<Serial>,
        events: Vec<NewEvent>,
        now: Time,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "append events";
        self.writer
            .write(OPERATION, move |connection| {
                append_events(connection, OPERATION, run, server.as_ref(), now, &events)
            })
            .await
    }
}

/// The `seq` of the newest event; zero in an empty log.
pub(super) fn last_seq(connection: &Connection, operation: &'static str) -> Result<i64, StoreError> {
    // Not max(seq): retention may have deleted the newest event, and its number is never used again.
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'events'";
    Ok(first(connection, operation, sql, &[], |columns| columns.get::<i64>("seq"))?.unwrap_or(0))
}

/// The SQL for the latest events of a run, the newest first.
fn newest() -> String {
    format!("SELECT {COLUMNS} FROM events WHERE run = ?1 ORDER BY seq DESC LIMIT ?2")
}

/// The last events of a run, in the order of the log.
fn last_events(
    connection: &Connection,
    operation: &'static str,
    run: RunId,
    limit: u32,
) -> Result<Vec<Event>, StoreError> {
    let mut events = all(connection, operation, &newest(), params![run.to_string(), limit], event)?;
    events.reverse();
    Ok(events)
}

/// The last events of a run as JSON texts, in the order of the log. The data of an event is copied as text, not parsed.
pub(super) fn last_events_json(
    connection: &Connection,
    operation: &'static str,
    run: RunId,
    limit: u32,
) -> Result<Vec<JsonText>, StoreError> {
    let mut events = all(connection, operation, &newest(), params![run.to_string(), limit], event_json)?;
    events.reverse();
    Ok(events)
}

/// The JSON of an [`Event`], made from its row.
fn event_json(columns: &Columns<'_>) -> Result<JsonText, StoreError> {
    let row = EventRow {
        seq: columns.get("seq")?,
        time: columns.text("time")?,
        run: columns.text_opt("run")?,
        server: columns.text_opt("server")?,
        kind: columns.text("type")?,
        level: columns.text("level")?,
        step: columns.text_opt("step")?,
        attempt: columns.get("attempt")?,
        actor: columns.text("actor")?,
        message: columns.text("message")?,
        data: columns
            .text_opt("data")?
            .map(serde_json::from_str)
            .transpose()
            .map_err(|why| columns.corrupt("data", why.to_string()))?,
    };
    JsonText::of(&row).map_err(|why| columns.corrupt("data", why.to_string()))
}

/// The texts of an event's row, with the same JSON as [`Event`].
#[derive(Serialize)]
struct EventRow<'a> {
    seq: i64,
    time: &'a str,
    #[serde(rename = "job_id", skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
    #[serde(rename = "server_serial", skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'a str,
    level: &'a str,
    step: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    actor: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
}

pub(super) fn event(columns: &Columns<'_>) -> Result<Event, StoreError> {
    Ok(Event {
        seq: columns.get("seq")?,
        time: columns.time("time")?,
        run: columns.parse_opt("run", str::parse)?,
        server: columns.parse_opt("server", str::parse)?,
        kind: columns.get("type")?,
        level: columns.parse("level", |name| match name {
            "info" => Ok(EventLevel::Info),
            "warn" => Ok(EventLevel::Warn),
            "error" => Ok(EventLevel::Error),
            other => Err(format!("unknown level {other:?}")),
        })?,
        step: columns.optional_step()?,
        attempt: columns.get("attempt")?,
        actor: columns.get("actor")?,
        message: columns.get("message")?,
        data: columns.parse_opt("data", JsonText::parse)?,
    })
}
