//! Gates that operators close and open: the drain of the controller, the maintenance of a server. Durable; read in the
//! transaction that claims.
//!
//! ```text
//!  settings.drain, servers.maintenance = {"since", "by", "reason"}
//!  a run that may not begin: next_run_at = its deadline --gate opened--> next_run_at = now
//! ```

use rusqlite::{Connection, params};
use serde_json::json;

use super::rows::{append_events, execute, first, to_json};
use super::servers::find;
use super::{Store, StoreError, locks};
use crate::model::{Closed, Gate, NewEvent, Run, Serial, Server, Time};

/// The setting that keeps the controller from beginning anything.
const DRAIN: &str = "drain";

/// What became of a change of a server's maintenance.
#[derive(Clone, Debug, PartialEq)]
pub enum MaintenanceChange {
    /// This is the server now.
    Changed(Box<Server>),
    /// It was so already; nothing was written.
    Unchanged(Box<Server>),
    /// There is no such server.
    Unknown,
}

impl Store {
    /// Closes the controller's gate; what stood before stays. Answers what stands now, and whether it is new.
    pub async fn drain(&self, closed: Closed) -> Result<(Closed, bool), StoreError> {
        const OPERATION: &str = "drain the controller";
        self.writer
            .write(OPERATION, move |connection| {
                if let Some(earlier) = drained(connection)? {
                    return Ok((earlier, false));
                }
                execute(
                    connection,
                    OPERATION,
                    "INSERT INTO settings (key, value) VALUES (?1, ?2)",
                    params![DRAIN, to_json(OPERATION, &closed)?],
                )?;
                let message = format!("drained by {}{}: no job begins", closed.by, why(&closed.reason));
                let event = NewEvent::warn("controller.drained", message).by(&closed.by).with(json!(closed));
                append_events(connection, OPERATION, None, None, closed.since, &[event])?;
                Ok((closed, true))
            })
            .await
    }

    /// Opens the controller's gate; answers what had closed it.
    pub async fn undrain(&self, by: &str, now: Time) -> Result<Option<Closed>, StoreError> {
        const OPERATION: &str = "end the drain of the controller";
        let by = by.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let Some(closed) = drained(connection)? else { return Ok(None) };
                execute(connection, OPERATION, "DELETE FROM settings WHERE key = ?1", &[&DRAIN])?;
                let message = format!("drain ended by {by}: jobs begin again");
                let event = NewEvent::info("controller.undrained", message).by(&by).with(json!(closed));
                append_events(connection, OPERATION, None, None, now, &[event])?;
                Ok(Some(closed))
            })
            .await
    }

    /// What closed the controller's gate, if it is closed.
    pub async fn drained(&self) -> Result<Option<Closed>, StoreError> {
        self.read("see whether the controller is drained", drained).await
    }

    /// Puts a server into maintenance (`Some`) or ends it (`None`).
    pub async fn set_maintenance(
        &self,
        serial: &Serial,
        closed: Option<Closed>,
        by: &str,
        now: Time,
    ) -> Result<MaintenanceChange, StoreError> {
        const OPERATION: &str = "change the maintenance of a server";
        let (serial, by) = (serial.clone(), by.to_owned());
        self.writer
            .write(OPERATION, move |connection| {
                let Some(server) = find(connection, &serial)? else { return Ok(MaintenanceChange::Unknown) };
                if server.maintenance.is_some() == closed.is_some() {
                    return Ok(MaintenanceChange::Unchanged(Box::new(server)));
                }
                let text = closed.as_ref().map(|closed| to_json(OPERATION, closed)).transpose()?;
                execute(
                    connection,
                    OPERATION,
                    "UPDATE servers SET maintenance = ?2 WHERE serial = ?1",
                    params![serial.as_str(), text],
                )?;
                let event = match &closed {
                    Some(closed) => NewEvent::warn(
                        "server.maintenance",
                        format!("in maintenance by {by}{}: no job begins on it", why(&closed.reason)),
                    ),
                    None => NewEvent::info("server.maintenance-ended", format!("maintenance ended by {by}")),
                };
                append_events(connection, OPERATION, None, Some(&serial), now, &[event.by(&by)])?;
                if closed.is_none() {
                    // Who still stands in line is put to sleep again by the next claim.
                    execute(
                        connection,
                        OPERATION,
                        "UPDATE runs SET next_run_at = ?2 WHERE server = ?1 AND lease_epoch = 0
                             AND phase IN ('queued', 'waiting') AND next_run_at IS NOT NULL",
                        params![serial.as_str(), now.to_string()],
                    )?;
                }
                let server = Server { maintenance: closed, ..server };
                Ok(MaintenanceChange::Changed(Box::new(server)))
            })
            .await
    }

    /// The gate before a run that has not begun, if an operator closed one.
    pub async fn gate(&self, run: &Run) -> Result<Option<Gate>, StoreError> {
        if run.epoch > 0 || !run.phase.is_forward() {
            return Ok(None);
        }
        let server = run.server.clone();
        self.read("find the gate before a run", move |connection| {
            if let Some(closed) = drained(connection)? {
                return Ok(Some(Gate::Drain(closed)));
            }
            let Some(serial) = server else { return Ok(None) };
            Ok(maintained(connection, &serial)?.map(|closed| Gate::Maintenance(serial, closed)))
        })
        .await
    }
}

fn why(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

pub(super) fn drained(connection: &Connection) -> Result<Option<Closed>, StoreError> {
    first(
        connection,
        "see whether the controller is drained",
        "SELECT value FROM settings WHERE key = ?1",
        &[&DRAIN],
        |columns| columns.json("value"),
    )
}

fn maintained(connection: &Connection, serial: &Serial) -> Result<Option<Closed>, StoreError> {
    first(
        connection,
        "see whether a server is in maintenance",
        "SELECT maintenance FROM servers WHERE serial = ?1",
        &[&serial.as_str()],
        |columns| columns.json_opt("maintenance"),
    )
    .map(Option::flatten)
}

/// Whether a run may not begin yet: its family stands in line, or its server is in maintenance. Who is past its deadline or
/// was asked to end may: it only ends.
pub(super) fn keeps(connection: &Connection, run: &Run, now: Time) -> Result<bool, StoreError> {
    let beginning = run.epoch == 0 && run.phase.is_forward();
    if !beginning || now >= run.deadline_at || run.cancel_requested_at.is_some() {
        return Ok(false);
    }
    if locks::in_line(connection, run.root)? {
        return Ok(true);
    }
    match &run.server {
        Some(serial) => Ok(maintained(connection, serial)?.is_some()),
        None => Ok(false),
    }
}
