//! Controller instances and stored settings.

use std::sync::Arc;

use rusqlite::params;

use super::instances::{LiveInstance, former_ended, former_run, last_seen, start_event};
use super::machine_restart::leave_out_time_off;
use super::rows::{append_events, execute, first};
use super::webhooks::leave_out_outage;
use super::{Store, StoreError};
use model::{Clock, NewEvent, Time};

impl Store {
    /// The schema version of every database that was opened.
    pub const SCHEMA_VERSION: usize = super::migrate::VERSION;

    /// Records the start of a controller instance on this database. Returns the last sign of life of the instances before it:
    /// a heartbeat, an orderly end, or an event of a run. `None` on a new database. The start is an event, which says whether the
    /// instance before recorded its end. The time without an instance is left out of the retry times of webhooks, and
    /// the time of which it is not known that it has passed out of the leases of workers elsewhere. `machine` is the clock that knows
    /// the run of the machine, which each heartbeat records.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn begin_instance(
        &self,
        id: String,
        now: Time,
        machine: Option<Arc<dyn Clock>>,
    ) -> Result<Option<Time>, StoreError> {
        const OPERATION: &str = "record the start of a controller instance";
        let instance = Arc::clone(&self.instance);
        self.writer
            .write(OPERATION, move |connection| {
                let last_seen = last_seen(connection, OPERATION)?;
                if let Some(seen) = last_seen {
                    leave_out_outage(connection, OPERATION, seen, now)?;
                    let run = machine.as_deref().and_then(Clock::machine_run);
                    leave_out_time_off(connection, OPERATION, run.as_ref(), (seen, now))?;
                }
                let event = start_event(connection, OPERATION, &id, last_seen)?;
                append_events(connection, OPERATION, None, None, now, &[event])?;
                *instance.lock() = Some(LiveInstance::begin(connection, OPERATION, id, now, machine)?);
                Ok(last_seen)
            })
            .await
    }

    /// Whether the instance before `id` recorded its orderly end; `true` when there was none.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn former_instance_ended(&self, id: &str) -> Result<bool, StoreError> {
        const OPERATION: &str = "read the end of the former controller instance";
        let id = id.to_owned();
        self.read(OPERATION, move |connection| former_ended(connection, OPERATION, &id)).await
    }

    /// Records the orderly end of a controller instance.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn end_instance(&self, id: String, now: Time) -> Result<(), StoreError> {
        const OPERATION: &str = "record the end of a controller instance";
        let machine = self.instance.lock().as_ref().and_then(LiveInstance::machine);
        self.writer
            .write(OPERATION, move |connection| {
                LiveInstance::end(connection, OPERATION, (&id, machine.as_deref()), now)
            })
            .await
    }

    /// Continues a clock where the records of the former instances say. On a new database it stays as it is.
    ///
    /// # Errors
    /// When the database cannot be read; the clock stays as it is then.
    pub async fn resume_clock(&self, clock: &dyn Clock) -> Result<(), StoreError> {
        const OPERATION: &str = "read the last sign of life of the former controller instance";
        let run = clock.machine_run();
        let former =
            self.read(OPERATION, move |connection| former_run(connection, OPERATION, run.as_ref())).await?;
        former.into_iter().for_each(|former| clock.resume(former));
        Ok(())
    }

    /// Stores a setting (`Some`) or deletes it (`None`), and appends the events that describe the change.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn set_setting(
        &self,
        key: &str,
        value: Option<String>,
        events: Vec<NewEvent>,
        now: Time,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "store a setting";
        let key = key.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                match &value {
                    Some(value) => execute(
                        connection,
                        OPERATION,
                        "INSERT INTO settings (key, value) VALUES (?1, ?2)
                         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                        params![key, value],
                    )?,
                    None => execute(connection, OPERATION, "DELETE FROM settings WHERE key = ?1", &[&key])?,
                };
                append_events(connection, OPERATION, None, None, now, &events)
            })
            .await
    }

    /// The stored value of a setting.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn setting(&self, key: &str) -> Result<Option<String>, StoreError> {
        const OPERATION: &str = "read a setting";
        let key = key.to_owned();
        self.read(OPERATION, move |connection| {
            first(connection, OPERATION, "SELECT value FROM settings WHERE key = ?1", &[&key], |columns| {
                columns.get("value")
            })
        })
        .await
    }
}
