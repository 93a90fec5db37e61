//! The parts of a final report about the machine itself: the end of the log of its maintenance OS, and its hardware.
//!
//! Both come with a final report and are written in its transaction. They are read only when a client asks for them, so no list
//! and no step of the engine pays for their size.

use rusqlite::{Connection, params};
use serde_json::Value;

use super::rows::{execute, first, to_json};
use super::{Store, StoreError};
use model::{RunId, Serial, Time};

/// The end of the log of a maintenance OS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallLog {
    /// When the report arrived.
    pub received_at: Time,
    /// The log, lines divided by line feeds.
    pub text: String,
}

/// The hardware of a machine, as its report describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerInventory {
    /// When the report arrived.
    pub received_at: Time,
    /// The inventory.
    pub inventory: Value,
}

impl Store {
    /// The log that the final report of a job carried; `None` before the report, or when it carried none.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn install_log(&self, job: RunId) -> Result<Option<InstallLog>, StoreError> {
        const OPERATION: &str = "read the log of an installation";
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT received_at, text FROM install_logs WHERE job = ?1",
                &[&job.to_string()],
                |columns| {
                    Ok(InstallLog { received_at: columns.time("received_at")?, text: columns.get("text")? })
                },
            )
        })
        .await
    }

    /// The latest inventory that a server reported; `None` when it reported none.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn server_inventory(&self, serial: &Serial) -> Result<Option<ServerInventory>, StoreError> {
        const OPERATION: &str = "read the inventory of a server";
        let serial = serial.clone();
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT inventoried_at, inventory FROM server_observed WHERE serial = ?1 AND inventory IS NOT NULL",
                &[&serial.as_str()],
                |columns| {
                    Ok(ServerInventory {
                        received_at: columns.time("inventoried_at")?,
                        inventory: columns.json("inventory")?,
                    })
                },
            )
        })
        .await
    }
}

/// Writes the inventory of a server. A server that was deleted meanwhile is left out.
pub(super) fn inventory(
    connection: &Connection,
    serial: &Serial,
    inventory: &Value,
    now: Time,
) -> Result<(), StoreError> {
    const OPERATION: &str = "write the inventory of a server";
    execute(
        connection,
        OPERATION,
        "INSERT INTO server_observed (serial, inventory, inventoried_at) SELECT serial, ?2, ?3 FROM servers WHERE serial = ?1
         ON CONFLICT (serial) DO UPDATE SET inventory = excluded.inventory, inventoried_at = excluded.inventoried_at",
        params![serial.as_str(), to_json(OPERATION, inventory)?, now.to_string()],
    )
    .map(drop)
}

/// Writes the log of a job.
pub(super) fn log(connection: &Connection, job: RunId, text: &str, now: Time) -> Result<(), StoreError> {
    execute(
        connection,
        "write the log of an installation",
        "INSERT INTO install_logs (job, received_at, text) VALUES (?1, ?2, ?3)
         ON CONFLICT (job) DO UPDATE SET received_at = excluded.received_at, text = excluded.text",
        params![job.to_string(), now.to_string(), text],
    )
    .map(drop)
}
