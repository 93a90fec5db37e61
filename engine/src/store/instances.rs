//! Heartbeats of controller instances: when each run of the program on this database began, was last alive, and ended.
//!
//! ```text
//!   begin_instance ---- claim, at most every HEARTBEAT: heartbeat_at = now ---- end_instance (an orderly stop)
//!                                                                       `------ or nothing more (killed, power loss)
//! ```
//!
//! The heartbeat is part of the transaction of a claim, which the dispatcher makes at least every 15 s. So a controller that
//! only waits writes its heartbeat and nothing else. The next instance reads from it how long no controller ran.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::error::StoreError;
use super::rows::{execute, first};
use crate::model::Time;

/// The shortest time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The instance that uses a store.
#[derive(Debug)]
pub(super) struct LiveInstance {
    id: String,
    beat_at: Time,
}

impl LiveInstance {
    /// Writes the row of an instance that begins now.
    pub(super) fn begin(
        connection: &Connection,
        operation: &'static str,
        id: String,
        now: Time,
    ) -> Result<Self, StoreError> {
        execute(
            connection,
            operation,
            "INSERT INTO controller_instances (id, started_at, heartbeat_at) VALUES (?1, ?2, ?2)",
            params![id, now.to_string()],
        )?;
        Ok(Self { id, beat_at: now })
    }

    /// Writes a heartbeat in the writer's transaction when one is due.
    pub(super) fn beat(&mut self, connection: &Connection, now: Time) -> Result<(), StoreError> {
        if now.since(self.beat_at) < HEARTBEAT {
            return Ok(());
        }
        execute(
            connection,
            "record a heartbeat",
            "UPDATE controller_instances SET heartbeat_at = ?2 WHERE id = ?1",
            params![self.id, now.to_string()],
        )?;
        self.beat_at = now;
        Ok(())
    }
}

/// The last sign of life of all instances. The last event of a run is more recent than the heartbeat of a busy instance.
pub(super) fn last_seen(
    connection: &Connection,
    operation: &'static str,
) -> Result<Option<Time>, StoreError> {
    let beat = first(
        connection,
        operation,
        "SELECT max(heartbeat_at) AS seen FROM controller_instances",
        &[],
        |columns| columns.time_opt("seen"),
    )?
    .flatten();
    let event = first(
        connection,
        operation,
        "SELECT time AS seen FROM events WHERE run IS NOT NULL ORDER BY seq DESC LIMIT 1",
        &[],
        |columns| columns.time_opt("seen"),
    )?
    .flatten();
    Ok(beat.max(event).filter(|_| beat.is_some()))
}
