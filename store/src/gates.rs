//! Gates that operators close and open: the drain of the controller and the maintenance of a server. They are durable. A
//! claim reads them in its own transaction.
//!
//! ```text
//!  settings.drain, servers.maintenance = {"since", "by", "reason"}
//!  a run behind a closed gate: next_run_at = deadline_at --maintenance ended--> next_run_at = now
//! ```

use rusqlite::{Connection, params};
use serde_json::json;

use super::gate_names::DRAIN;
use super::rows::{append_events, execute, first, of_server, of_setting, to_json};
use super::servers::find;
use super::{Store, StoreError, batch_gates};
use model::{Gate, GateClosure, NewEvent, Purpose, Run, RunId, Serial, Server, Time};

/// The result of a change of a server's maintenance.
#[derive(Clone, Debug, PartialEq)]
pub enum MaintenanceChange {
    /// Written; the server after the change.
    Changed(Box<Server>),
    /// The server was in the requested state; nothing was written.
    Unchanged(Box<Server>),
    /// There is no such server.
    Unknown,
}

impl Store {
    /// Drains the controller. A drain that exists is kept. Returns the drain, and whether it is new.
    ///
    /// # Errors
    /// When the database cannot be written; the controller is not drained then.
    pub async fn drain(&self, closed: GateClosure) -> Result<(GateClosure, bool), StoreError> {
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
                let message = format!("drained by {}{}: no job starts", closed.by, why(&closed.reason));
                let event = NewEvent::warn("controller.drained", message).by(&closed.by).with(json!(closed));
                append_events(connection, OPERATION, None, None, closed.since, &[event])?;
                Ok((closed, true))
            })
            .await
    }

    /// Ends the drain of the controller and returns it; `None` when the controller was not drained.
    ///
    /// # Errors
    /// When the database cannot be written; the drain is not ended then.
    pub async fn undrain(&self, by: &str, now: Time) -> Result<Option<GateClosure>, StoreError> {
        const OPERATION: &str = "end the drain of the controller";
        let by = by.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let Some(closed) = drained(connection)? else { return Ok(None) };
                execute(connection, OPERATION, "DELETE FROM settings WHERE key = ?1", &[&DRAIN])?;
                let message = format!("drain ended by {by}: jobs start again");
                let event = NewEvent::info("controller.undrained", message).by(&by).with(json!(closed));
                append_events(connection, OPERATION, None, None, now, &[event])?;
                Ok(Some(closed))
            })
            .await
    }

    /// The drain of the controller, if it is drained.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn drained(&self) -> Result<Option<GateClosure>, StoreError> {
        self.read("read the drain of the controller", drained).await
    }

    /// Puts a server into maintenance (`Some`) or ends it (`None`).
    ///
    /// # Errors
    /// When the database cannot be written; nothing is changed then.
    pub async fn set_maintenance(
        &self,
        serial: &Serial,
        closed: Option<GateClosure>,
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
                        format!("in maintenance by {by}{}: no job starts on it", why(&closed.reason)),
                    ),
                    None => NewEvent::info("server.maintenance-ended", format!("maintenance ended by {by}")),
                };
                append_events(connection, OPERATION, None, Some(&serial), now, &[event.by(&by)])?;
                if closed.is_none() {
                    // The next claim sets the due time of a run that is still queued for a lock back to its deadline.
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

    /// The closed gate in front of a run that has not started; `None` when no gate is closed. `gate_names.rs` says it of many runs.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn gate(&self, run: &Run) -> Result<Option<Gate>, StoreError> {
        if run.epoch > 0 || !run.phase.is_forward() {
            return Ok(None);
        }
        let (server, id) = (maintained_server(run).cloned(), run.id);
        self.read("find the closed gate in front of a run", move |connection| {
            if let Some(closed) = drained(connection)? {
                return Ok(Some(Gate::Drain(closed)));
            }
            if let Some(serial) = server
                && let Some(closed) = maintained(connection, &serial)?
            {
                return Ok(Some(Gate::Maintenance(serial, closed)));
            }
            Ok(batch_gates::stop_of(connection, id)?.map(|(batch, stop)| Gate::Batch(batch, stop)))
        })
        .await
    }
}

fn why(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

pub(super) fn drained(connection: &Connection) -> Result<Option<GateClosure>, StoreError> {
    of_setting(connection, "read the drain of the controller", DRAIN)
}

fn maintained(connection: &Connection, serial: &Serial) -> Result<Option<GateClosure>, StoreError> {
    of_server(connection, "read the maintenance of a server", "maintenance", serial)
}

/// Whether the gate of its batch or the maintenance of its server keeps a run from starting.
pub(super) fn is_closed_for(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    let maintained = first(
        connection,
        "read the maintenance in front of a run",
        "SELECT 1 AS closed FROM runs JOIN servers ON servers.serial = runs.server
         WHERE runs.id = ?1 AND runs.purpose = 'change' AND servers.maintenance IS NOT NULL",
        &[&run.to_string()],
        |_| Ok(()),
    )?;
    Ok(maintained.is_some() || batch_gates::is_closed_for(connection, run)?)
}

/// The server whose maintenance keeps the run from starting.
fn maintained_server(run: &Run) -> Option<&Serial> {
    run.server.as_ref().filter(|_| run.purpose == Purpose::Change)
}
