//! Heartbeats of controller instances: when each run of the program on this database began, was last alive, and ended.
//!
//! ```text
//!   begin_instance ---- claim, at most every HEARTBEAT: heartbeat_at = now ---- end_instance (an orderly stop)
//!                                                                       `------ or nothing more (killed, power loss)
//! ```
//!
//! The heartbeat is part of the transaction of a claim, which the dispatcher makes at least every 15 s. So a controller that
//! only waits writes its heartbeat and nothing else. The next instance reads from it how long no controller ran.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};
use serde_json::json;

use super::error::StoreError;
use super::rows::{execute, first};
use model::{Clock, FormerRun, MachineRun, NewEvent, Time};

/// The shortest time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The instance that uses a store.
pub(super) struct LiveInstance {
    id: String,
    beat_at: Time,
    machine: Option<Arc<dyn Clock>>,
}

impl LiveInstance {
    /// Writes the row of an instance that begins now.
    pub(super) fn begin(
        connection: &Connection,
        operation: &'static str,
        id: String,
        now: Time,
        machine: Option<Arc<dyn Clock>>,
    ) -> Result<Self, StoreError> {
        let (boot, boot_ms) = run_of(machine.as_deref());
        execute(
            connection,
            operation,
            "INSERT INTO controller_instances (id, started_at, heartbeat_at, boot, boot_ms) VALUES (?1, ?2, ?2, ?3, ?4)",
            params![id, now.to_string(), boot, boot_ms],
        )?;
        Ok(Self { id, beat_at: now, machine })
    }

    /// Writes a heartbeat in the writer's transaction when one is due.
    pub(super) fn beat(&mut self, connection: &Connection, now: Time) -> Result<(), StoreError> {
        if now.since(self.beat_at) < HEARTBEAT {
            return Ok(());
        }
        let (boot, boot_ms) = run_of(self.machine.as_deref());
        execute(
            connection,
            "record a heartbeat",
            "UPDATE controller_instances SET heartbeat_at = ?2, boot = ?3, boot_ms = ?4 WHERE id = ?1",
            params![self.id, now.to_string(), boot, boot_ms],
        )?;
        self.beat_at = now;
        Ok(())
    }

    /// Writes the orderly end of an instance, which is its last heartbeat.
    pub(super) fn end(
        connection: &Connection,
        operation: &'static str,
        (id, machine): (&str, Option<&dyn Clock>),
        now: Time,
    ) -> Result<(), StoreError> {
        let (boot, boot_ms) = run_of(machine);
        execute(
            connection,
            operation,
            "UPDATE controller_instances SET ended_at = ?2, heartbeat_at = ?2, boot = ?3, boot_ms = ?4 WHERE id = ?1",
            params![id, now.to_string(), boot, boot_ms],
        )
        .map(drop)
    }

    /// The clock that knows the run of the machine.
    pub(super) fn machine(&self) -> Option<Arc<dyn Clock>> {
        self.machine.clone()
    }
}

/// The run of the machine as its two columns.
fn run_of(machine: Option<&dyn Clock>) -> (Option<String>, Option<i64>) {
    match machine.and_then(Clock::machine_run) {
        Some(run) => (Some(run.boot), i64::try_from(run.ran.as_millis()).ok()),
        None => (None, None),
    }
}

/// What the records of the instances before say about the time of now; `run` is the run of the machine.
pub(super) fn former_run(
    connection: &Connection,
    operation: &'static str,
    run: Option<&MachineRun>,
) -> Result<Option<FormerRun>, StoreError> {
    let Some(last_seen) = last_seen(connection, operation)? else { return Ok(None) };
    let beat = first(
        connection,
        operation,
        "SELECT heartbeat_at, boot, boot_ms FROM controller_instances ORDER BY rowid DESC LIMIT 1",
        &[],
        |columns| {
            let (boot, ran): (Option<String>, Option<i64>) = (columns.get("boot")?, columns.get("boot_ms")?);
            Ok((columns.time("heartbeat_at")?, boot, ran))
        },
    )?;
    let now = beat.zip(run).and_then(|((at, boot, ran), run)| {
        let ran = Duration::from_millis(u64::try_from(ran?).ok()?);
        // A machine that was taken back to an earlier state has run for less time than then.
        let since = run.ran.checked_sub(ran)?;
        (boot? == run.boot).then(|| at.plus(since))
    });
    Ok(Some(FormerRun { last_seen, now }))
}

/// The event of a start. It is a warning when the instance before did not record its end.
pub(super) fn start_event(
    connection: &Connection,
    operation: &'static str,
    id: &str,
    last_seen: Option<Time>,
) -> Result<NewEvent, StoreError> {
    let before = first(
        connection,
        operation,
        "SELECT id, ended_at FROM controller_instances ORDER BY rowid DESC LIMIT 1",
        &[],
        |columns| Ok((columns.get::<String>("id")?, columns.time_opt("ended_at")?)),
    )?;
    Ok(match (before, last_seen) {
        (Some((before, None)), Some(seen)) => {
            let message = format!(
                "the controller started; the one before it did not record its end, and its last sign of life was at {seen}: \
                 its unfinished jobs are taken over"
            );
            let data = json!({ "instance": id, "before": before, "last_seen": seen });
            NewEvent::warn("controller.started", message).with(data)
        }
        _ => NewEvent::info("controller.started", "the controller started").with(json!({ "instance": id })),
    })
}

/// Whether the instance before `id` recorded its end; `true` when there was none.
pub(super) fn former_ended(
    connection: &Connection,
    operation: &'static str,
    id: &str,
) -> Result<bool, StoreError> {
    const SQL: &str = "SELECT ended_at FROM controller_instances WHERE id <> ?1 ORDER BY rowid DESC LIMIT 1";
    let ended = first(connection, operation, SQL, &[&id], |columns| columns.time_opt("ended_at"))?;
    Ok(ended.is_none_or(|ended| ended.is_some()))
}

/// The last sign of life of the newest instance; an older one may have had a clock that was far ahead. The last event of a run is
/// more recent than the heartbeat of a busy instance.
pub(super) fn last_seen(
    connection: &Connection,
    operation: &'static str,
) -> Result<Option<Time>, StoreError> {
    let beat = first(
        connection,
        operation,
        "SELECT heartbeat_at AS seen FROM controller_instances ORDER BY rowid DESC LIMIT 1",
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
