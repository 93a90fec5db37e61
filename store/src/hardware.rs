//! Out-of-band inventories: what a server is made of, as its BMC showed it. Kept beside the inventory that the machine itself
//! reported (`reported.rs`), because the two disagree when a component fails.
//!
//! Only a client that asks for it, and the step that compares two reads, pay for its size.

use rusqlite::{Connection, params};
use serde_json::Value;

use super::rows::{execute, first, to_json};
use super::{Store, StoreError};
use model::{Serial, Time};

/// An out-of-band inventory.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerHardware {
    /// When the BMC was read.
    pub read_at: Time,
    /// The inventory.
    pub hardware: Value,
}

impl Store {
    /// The latest out-of-band inventory of a server; `None` when its BMC was not read.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn server_hardware(&self, serial: &Serial) -> Result<Option<ServerHardware>, StoreError> {
        const OPERATION: &str = "read the out-of-band inventory of a server";
        let serial = serial.clone();
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT hardware_read_at, hardware FROM server_observed WHERE serial = ?1 AND hardware IS NOT NULL",
                &[&serial.as_str()],
                |columns| {
                    Ok(ServerHardware {
                        read_at: columns.time("hardware_read_at")?,
                        hardware: columns.json("hardware")?,
                    })
                },
            )
        })
        .await
    }
}

/// Writes the out-of-band inventory of a server. A server that was deleted meanwhile is left out.
pub(super) fn write(
    connection: &Connection,
    serial: &Serial,
    hardware: &Value,
    now: Time,
) -> Result<(), StoreError> {
    const OPERATION: &str = "write the out-of-band inventory of a server";
    execute(
        connection,
        OPERATION,
        "INSERT INTO server_observed (serial, hardware, hardware_read_at) SELECT serial, ?2, ?3 FROM servers WHERE serial = ?1
         ON CONFLICT (serial) DO UPDATE SET hardware = excluded.hardware, hardware_read_at = excluded.hardware_read_at",
        params![serial.as_str(), to_json(OPERATION, hardware)?, now.to_string()],
    )
    .map(drop)
}
