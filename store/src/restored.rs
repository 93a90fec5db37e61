//! Restored data: what the database records about its origin, and the release of servers (decision D26).
//!
//! ```text
//!   settings.origin = [mark, former mark]      the marks of the origin file that belong to this database
//!
//!   the file has another mark --restored--> servers.restored = {…}, runs.restored = 1, Redfish sessions forgotten,
//!                                              web sessions ended, users and API tokens refused until they are confirmed
//!   an operator's release     --continue--> restored = NULL / 0, due now, deadlines moved by the age of the data
//!                             --end-------> the runs end; nothing is sent to the BMC
//! ```
//!
//! Invariants: a run of a restored server has `restored = 1`, so it is in no lane of a claim; only a release sets it to 0. An
//! event number is never used twice: the log of restored data continues far behind its last event, because the original may have
//! sent events with the next numbers.

use std::collections::HashSet;

use rusqlite::{Connection, params};
use serde_json::json;

use super::commit::{apply_effects, project, write_row};
use super::rows::{all, append_events, execute, find_run, first, of_server, of_setting, to_json};
use super::unconfirmed::refuse_all;
use super::unreadable::end_without_cleanup;
use super::{Store, StoreError};
use model::{
    Effect, Failure, FailureClass, NewEvent, Restoration, RestoredServer, Run, RunId, Serial, StepName, Time,
    UnfinishedRuns, Wait,
};

/// The setting with the marks of the origin file: a JSON array, the newest first.
const ORIGIN: &str = "origin";
/// The setting with what a controller recorded about the backups that it made. Restored data has none: the
/// controller on a copy of the data did not make the backups of the original, and must not remove them.
pub const BACKUPS: &str = "backups";
/// The distance in the event log between the last event of restored data and the next one.
const SEQ_GAP: i64 = 1_000_000;
/// The class of the failure of a run that a release ended.
const RESTORED: FailureClass = FailureClass::new("restored");

/// The result of a release.
#[derive(Clone, Debug, PartialEq)]
pub enum ReleasedServer {
    /// The server is released. With the runs that were unfinished.
    Released(Vec<RunId>),
    /// The server was not restored, or it was released before.
    NotRestored,
    /// Nothing was written: the server has these unfinished runs, and the request does not say what happens to them.
    Undecided(Vec<RunId>),
    /// There is no such server.
    Unknown,
}

impl Store {
    /// The marks of the origin file that belong to this database, the newest first; empty for a new database.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn origin(&self) -> Result<Vec<String>, StoreError> {
        self.read("read the origin of the data", origin).await
    }

    /// Stores the mark that the origin file gets next. The marks before it stay valid until the following change, because the
    /// file is replaced after this. With `copied`, the reason why this data is a copy or old, the former marks are dropped and all
    /// servers are restored. Returns the number of servers that are restored by this call.
    ///
    /// # Errors
    /// When the database cannot be written; the former marks stay valid then.
    pub async fn set_origin(
        &self,
        mark: String,
        copied: Option<String>,
        now: Time,
    ) -> Result<usize, StoreError> {
        const OPERATION: &str = "record the origin of the data";
        self.writer
            .write(OPERATION, move |connection| {
                let mut marks = vec![mark];
                let mut restored = 0;
                match copied {
                    Some(reason) => restored = restore(connection, &reason, now)?,
                    None => marks.extend(origin(connection)?.into_iter().next()),
                }
                execute(
                    connection,
                    OPERATION,
                    "INSERT INTO settings (key, value) VALUES (?1, ?2)
                     ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    params![ORIGIN, to_json(OPERATION, &marks)?],
                )?;
                Ok(restored)
            })
            .await
    }

    /// Why a server is not released; `None` for a server that is not restored.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn restoration(&self, serial: &Serial) -> Result<Option<Restoration>, StoreError> {
        let serial = serial.clone();
        self.read("read whether a server is restored", move |connection| restoration(connection, &serial))
            .await
    }

    /// The servers that no operator has released, in the order of their serial numbers.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn restored_servers(&self) -> Result<Vec<RestoredServer>, StoreError> {
        const OPERATION: &str = "list restored servers";
        self.read(OPERATION, |connection| {
            let servers = all(
                connection,
                OPERATION,
                "SELECT serial, restored FROM servers WHERE restored IS NOT NULL ORDER BY serial",
                &[],
                |columns| Ok((columns.parse("serial", str::parse::<Serial>)?, columns.json("restored")?)),
            )?;
            servers
                .into_iter()
                .map(|(serial, restoration)| {
                    let unfinished = unfinished(connection, &serial)?;
                    Ok(RestoredServer { serial, restoration, unfinished })
                })
                .collect()
        })
        .await
    }

    /// The runs of a server that have not ended, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn unfinished_runs(&self, serial: &Serial) -> Result<Vec<RunId>, StoreError> {
        let serial = serial.clone();
        self.read("find the unfinished runs of a server", move |connection| unfinished(connection, &serial))
            .await
    }

    /// Returns the ids of those runs that have not ended.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn unfinished_of(&self, runs: Vec<RunId>) -> Result<HashSet<RunId>, StoreError> {
        const OPERATION: &str = "find the unfinished ones of some runs";
        self.read(OPERATION, move |connection| {
            let asked: Vec<String> = runs.iter().map(ToString::to_string).collect();
            let found = all(
                connection,
                OPERATION,
                "SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?1)) AND phase <> 'ended'",
                &[&to_json(OPERATION, &asked)?],
                |columns| columns.parse("id", str::parse::<RunId>),
            )?;
            Ok(found.into_iter().collect())
        })
        .await
    }

    /// The number of servers that no operator has released, and why.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn restored_count(&self) -> Result<Option<(u64, Restoration)>, StoreError> {
        const OPERATION: &str = "count restored servers";
        self.read(OPERATION, |connection| {
            first(
                connection,
                OPERATION,
                "SELECT count(*) AS servers, min(restored) AS restored FROM servers WHERE restored IS NOT NULL
                 HAVING count(*) > 0",
                &[],
                |columns| Ok((columns.count("servers")?, columns.json("restored")?)),
            )
        })
        .await
    }

    /// Releases a server. `runs` decides what happens to its unfinished runs; it may be `None` when there are none. `left` are the
    /// effects of runs that end.
    ///
    /// # Errors
    /// When the database cannot be written; the server is not released then.
    pub async fn release_server(
        &self,
        serial: &Serial,
        runs: Option<UnfinishedRuns>,
        left: Vec<(RunId, Vec<Effect>)>,
        by: &str,
        now: Time,
    ) -> Result<ReleasedServer, StoreError> {
        let (serial, by) = (serial.clone(), by.to_owned());
        self.writer
            .write("release a server", move |connection| {
                let released = release(connection, &serial, runs, &by, now)?;
                if let (ReleasedServer::Released(ended), Some(UnfinishedRuns::End)) = (&released, runs) {
                    for (run, effects) in left.iter().filter(|(run, _)| ended.contains(run)) {
                        apply_effects(connection, *run, now, effects)?;
                    }
                }
                Ok(released)
            })
            .await
    }
}

/// Marks a database file that no store has opened as restored: a backup, before it is used.
pub(super) fn restore_copy(connection: &mut Connection, reason: &str, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "mark a copy of the database";
    let failed = |source| StoreError::sqlite(OPERATION, source);
    let transaction = connection.transaction().map_err(failed)?;
    restore(&transaction, reason, now)?;
    transaction.commit().map_err(failed)
}

/// Marks all servers and their unfinished runs as restored. A server that is restored already keeps its reason.
fn restore(connection: &Connection, reason: &str, now: Time) -> Result<usize, StoreError> {
    const OPERATION: &str = "mark the data as restored";
    let as_of =
        first(connection, OPERATION, "SELECT time FROM events ORDER BY seq DESC LIMIT 1", &[], |columns| {
            columns.time("time")
        })?;
    let restoration = Restoration { since: now, as_of: as_of.unwrap_or(now), reason: reason.to_owned() };
    let servers = execute(
        connection,
        OPERATION,
        "UPDATE servers SET restored = ?1 WHERE restored IS NULL",
        &[&to_json(OPERATION, &restoration)?],
    )?;
    execute(
        connection,
        OPERATION,
        "UPDATE runs SET restored = 1, revision = revision + 1
         WHERE restored = 0 AND phase <> 'ended' AND server IS NOT NULL",
        &[],
    )?;
    // The original may use these sessions. A copy must not close them.
    execute(connection, OPERATION, "DELETE FROM bmc_sessions", &[])?;
    // The copy still accepts logins that were revoked after it was made, so sessions are deleted, and users and API tokens are
    // refused until they are confirmed.
    execute(connection, OPERATION, "DELETE FROM web_sessions", &[])?;
    // Workers with these tokens connect to the original controller; an administrator makes others.
    execute(connection, OPERATION, "DELETE FROM worker_tokens", &[])?;
    let logins = refuse_all(connection, OPERATION)?;
    execute(connection, OPERATION, "DELETE FROM settings WHERE key = ?1", &[&BACKUPS])?;
    execute(
        connection,
        OPERATION,
        "UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = 'events'",
        &[&SEQ_GAP],
    )?;
    if logins > 0 {
        let message = format!(
            "{reason}; {logins} users and API tokens of it are refused until each is confirmed: shoal user confirm, shoal token confirm"
        );
        let event = NewEvent::warn("controller.restored-logins", message).with(json!(restoration));
        append_events(connection, OPERATION, None, None, now, &[event])?;
    }
    if servers > 0 {
        let message = format!(
            "{reason}; nothing is done to {servers} servers until an operator releases them: shoal controller restored"
        );
        let event = NewEvent::warn("controller.restored", message).with(json!(restoration));
        append_events(connection, OPERATION, None, None, now, &[event])?;
    }
    Ok(servers)
}

fn origin(connection: &Connection) -> Result<Vec<String>, StoreError> {
    of_setting(connection, "read the origin of the data", ORIGIN).map(Option::unwrap_or_default)
}

fn restoration(connection: &Connection, serial: &Serial) -> Result<Option<Restoration>, StoreError> {
    of_server(connection, "read whether a server is restored", "restored", serial)
}

fn unfinished(connection: &Connection, serial: &Serial) -> Result<Vec<RunId>, StoreError> {
    all(
        connection,
        "find the unfinished runs of a server",
        "SELECT id FROM runs WHERE server = ?1 AND phase <> 'ended' ORDER BY created_at, id",
        &[&serial.as_str()],
        |columns| columns.parse("id", str::parse::<RunId>),
    )
}

fn release(
    connection: &Connection,
    serial: &Serial,
    runs: Option<UnfinishedRuns>,
    by: &str,
    now: Time,
) -> Result<ReleasedServer, StoreError> {
    const OPERATION: &str = "release a server";
    if super::servers::find(connection, serial)?.is_none() {
        return Ok(ReleasedServer::Unknown);
    }
    let Some(restoration) = restoration(connection, serial)? else { return Ok(ReleasedServer::NotRestored) };
    let unfinished = unfinished(connection, serial)?;
    let how = match (runs, unfinished.is_empty()) {
        (None, false) => return Ok(ReleasedServer::Undecided(unfinished)),
        (None, true) => "it had no unfinished job",
        (Some(UnfinishedRuns::Continue), _) => "its unfinished jobs continue",
        (Some(UnfinishedRuns::End), _) => "its unfinished jobs ended without a request to the BMC",
    };
    execute(
        connection,
        OPERATION,
        "UPDATE servers SET restored = NULL WHERE serial = ?1",
        &[&serial.as_str()],
    )?;
    let event = NewEvent::warn("server.released", format!("released by {by}: {how}"));
    let event = event.by(by).with(json!({ "restored": restoration, "jobs": runs, "runs": unfinished }));
    append_events(connection, OPERATION, None, Some(serial), now, &[event])?;
    for run in &unfinished {
        match runs {
            Some(UnfinishedRuns::End) => end(connection, *run, by, now)?,
            _ => resume(connection, *run, &restoration, by, now)?,
        }
    }
    Ok(ReleasedServer::Released(unfinished))
}

/// Makes a run claimable again. The time since the data was written counts neither against its deadlines nor against the budget
/// of its step, as the time in a hold does not.
fn resume(
    connection: &Connection,
    id: RunId,
    restoration: &Restoration,
    by: &str,
    now: Time,
) -> Result<(), StoreError> {
    const OPERATION: &str = "continue a run of a released server";
    let key = id.to_string();
    execute(
        connection,
        OPERATION,
        "UPDATE runs SET restored = 0, next_run_at = iif(hold IS NULL, ?2, next_run_at) WHERE id = ?1",
        params![key, now.to_string()],
    )?;
    execute(
        connection,
        OPERATION,
        "UPDATE run_steps SET started_at = ?2, attempt = 1 WHERE run = ?1 AND phase = 'intent'",
        params![key, now.to_string()],
    )?;
    let message = format!("released by {by}: the run continues where it was at {}", restoration.as_of);
    let event = NewEvent::warn("run.released", message).by(by);
    // An unreadable row is held by its next claim, as any other.
    let Some(run) = find_run(connection, OPERATION, id).or_else(|error| match error.is_corrupt() {
        true => Ok(None),
        false => Err(error),
    })?
    else {
        return append_events(connection, OPERATION, Some(id), None, now, &[event]);
    };
    // What was created after the restore is as old as it is.
    let age = now.since(restoration.as_of.max(run.created_at));
    let moved = Run {
        restored: false,
        deadline_at: run.deadline_at.plus(age),
        wait: run.wait.clone().map(|wait| Wait { deadline: wait.deadline.plus(age), ..wait }),
        ..run.clone()
    };
    if let Some(written) = write_row(connection, &run, &moved, now)? {
        project(connection, &run, &written, now)?;
    }
    append_events(connection, OPERATION, Some(id), moved.server.as_ref(), now, &[event])
}

/// Ends a run without a request to the BMC.
fn end(connection: &Connection, id: RunId, by: &str, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "end a run of a released server";
    let step = first(
        connection,
        OPERATION,
        "SELECT coalesce(step, 'queued') AS step FROM runs WHERE id = ?1",
        &[&id.to_string()],
        |columns| columns.step(),
    )?;
    let failure = Failure {
        class: RESTORED,
        step: step.unwrap_or(StepName::UNKNOWN),
        summary: format!("ended by {by} when the server was released: the job belongs to restored data"),
        detail: None,
        next_action: "nothing was sent to the BMC: check power, virtual media and boot order of the server"
            .to_owned(),
    };
    execute(
        connection,
        OPERATION,
        "UPDATE runs SET phase = 'ended', outcome = coalesce(outcome, 'cancelled'), hold = NULL, wait = NULL,
             step = NULL, failure_class = ?3, failure = ?4, next_run_at = NULL, revision = revision + 1,
             lease_owner = NULL, lease_expires_at = NULL, lease_epoch = lease_epoch + 1, restored = 0, updated_at = ?2
         WHERE id = ?1",
        params![id.to_string(), now.to_string(), RESTORED.as_str(), to_json(OPERATION, &failure)?],
    )?;
    end_without_cleanup(connection, id, &failure, (by, by), now)
}
