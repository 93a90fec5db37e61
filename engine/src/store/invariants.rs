//! What must hold of the rows after every transaction, as rules that anybody can read; checked where the database works in
//! place ([`super::in_place`]), and over all rows by [`Store::audit`].
//!
//! ```text
//!   transaction --rows of `runs` it wrote--> RULES --> broken? told to who stands around
//!               --rows of `events`---------> only ever added (retention takes whole runs)
//! ```
//!
//! Invariant: a rule names no program logic; it reads the row as an operator would.

use std::collections::BTreeSet;

use rusqlite::hooks::Action;
use rusqlite::{Connection, params};

use super::rows::{self, all, first};
use super::{Store, StoreError};
use crate::model::{RunId, Serial, Snapshot};

const OPERATION: &str = "audit the rows";

/// A rule that a row breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The run, or whatever the row is about.
    pub subject: String,
    /// The rule, in words.
    pub rule: String,
}

/// Each rule and what a row that breaks it looks like.
const RULES: &[(&str, &str)] = &[
    (
        "who is not over has an owner, a time at which it is due, or a hold",
        "runs.phase <> 'ended' AND runs.lease_owner IS NULL AND runs.next_run_at IS NULL AND runs.hold IS NULL",
    ),
    (
        "a wait has a reason, a since and a deadline",
        "runs.wait IS NOT NULL AND (json_extract(runs.wait, '$.reason') IS NULL
             OR json_extract(runs.wait, '$.since') IS NULL OR json_extract(runs.wait, '$.deadline') IS NULL)",
    ),
    (
        "who waits for something has no lease, and looks around by its deadline at the latest",
        "runs.phase = 'waiting' AND runs.wait IS NOT NULL AND (runs.lease_owner IS NOT NULL OR runs.next_run_at IS NULL)",
    ),
    (
        "who is over has an outcome and neither lease, wait, hold nor a time at which it is due",
        "runs.phase = 'ended' AND (runs.outcome IS NULL OR runs.lease_owner IS NOT NULL OR runs.wait IS NOT NULL
             OR runs.hold IS NOT NULL OR runs.next_run_at IS NOT NULL)",
    ),
    (
        "a lease has an end, and its run is looked at again after it",
        "runs.lease_owner IS NOT NULL AND (runs.lease_expires_at IS NULL OR runs.next_run_at IS NULL)",
    ),
    (
        "the status of a job is that of its run",
        "jobs.id IS NOT NULL AND (jobs.outcome IS NOT runs.outcome OR jobs.status <> CASE
             WHEN runs.phase = 'ended' THEN 'complete'
             WHEN runs.phase IN ('finishing', 'unwinding')
                 THEN CASE WHEN runs.outcome = 'succeeded' THEN 'succeeded' ELSE 'failed' END
             WHEN runs.phase = 'queued' THEN 'queued'
             ELSE 'provisioning' END)",
    ),
    (
        "the locks of a family are free when it is over",
        "runs.phase = 'ended' AND runs.parent IS NULL AND EXISTS (SELECT 1 FROM locks WHERE locks.root = runs.id)",
    ),
    (
        "who works on a server holds its lock",
        "jobs.id IS NOT NULL AND runs.phase <> 'ended' AND runs.lease_epoch > 0
             AND NOT EXISTS (SELECT 1 FROM locks WHERE locks.root = runs.root AND locks.held = 1)",
    ),
    (
        "no right to read media outlives its run",
        "runs.phase = 'ended' AND (EXISTS (SELECT 1 FROM media_grants WHERE run = runs.id AND ended_at IS NULL)
             OR EXISTS (SELECT 1 FROM pull_grants WHERE run = runs.id AND ended_at IS NULL))",
    ),
];

/// The rows a transaction wrote.
#[derive(Debug, Default)]
pub(super) struct Written {
    runs: BTreeSet<i64>,
    forgotten: bool,
    rewritten_events: usize,
}

impl Written {
    /// One row changed.
    pub(super) fn note(&mut self, action: Action, table: &str, row: i64) {
        match (table, action) {
            ("runs", Action::SQLITE_DELETE) => self.forgotten = true,
            // A job's row has a number of its own; its run is written in the same transaction.
            ("runs", _) => drop(self.runs.insert(row)),
            ("events", Action::SQLITE_UPDATE | Action::SQLITE_DELETE) => self.rewritten_events += 1,
            _ => {}
        }
    }

    /// The runs among them.
    pub(super) fn runs(&self) -> impl Iterator<Item = i64> + '_ {
        self.runs.iter().copied()
    }
}

/// The rules that what was written breaks.
pub(super) fn check(connection: &Connection, written: &Written) -> Vec<Broken> {
    let mut broken = Vec::new();
    if written.rewritten_events > 0 && !written.forgotten {
        broken.push(Broken {
            subject: format!("{} events", written.rewritten_events),
            rule: "what was told is never changed or taken back".to_owned(),
        });
    }
    for row in written.runs() {
        match broken_by(connection, Some(row)) {
            Ok(found) => broken.extend(found),
            Err(error) => broken.push(Broken {
                subject: format!("row {row} of runs"),
                rule: format!("can be read: {error}"),
            }),
        }
    }
    broken
}

/// What tells one state of a run from another, and the run; `None` when it is gone.
pub(super) fn state(connection: &Connection, row: i64) -> Result<Option<(String, RunId)>, StoreError> {
    first(
        connection,
        OPERATION,
        "SELECT id, phase || '/' || coalesce(step, '') || '/' || coalesce(json_extract(wait, '$.reason'), '') || '/'
                || coalesce(json_extract(hold, '$.class'), '') || '/' || coalesce(outcome, '') || '/'
                || coalesce(failure_class, '') || '/' || (lease_owner IS NOT NULL) || (cancel_requested_at IS NOT NULL)
                AS state
         FROM runs WHERE rowid = ?1",
        params![row],
        |columns| Ok((columns.get("state")?, columns.parse("id", str::parse::<RunId>)?)),
    )
}

/// Everything about a run.
pub(super) fn snapshot(connection: &Connection, id: RunId) -> Result<Option<Snapshot>, StoreError> {
    rows::find_run(connection, OPERATION, id)?
        .map(|run| rows::snapshot(connection, OPERATION, run))
        .transpose()
}

/// The rules broken by one row, or by any.
fn broken_by(connection: &Connection, row: Option<i64>) -> Result<Vec<Broken>, StoreError> {
    let cases: String = RULES.iter().map(|(rule, bad)| format!(" WHEN {bad} THEN '{rule}'")).collect();
    let chosen = if row.is_some() { "runs.rowid = ?1" } else { "?1 IS NULL" };
    let sql = format!(
        "SELECT id, rule FROM (SELECT runs.id, CASE{cases} END AS rule FROM runs LEFT JOIN jobs ON jobs.id = runs.id
         WHERE {chosen}) WHERE rule IS NOT NULL"
    );
    all(connection, OPERATION, &sql, params![row], |columns| {
        Ok(Broken { subject: columns.get("id")?, rule: columns.get("rule")? })
    })
}

impl Store {
    /// The rules that any row breaks now.
    pub async fn audit(&self) -> Result<Vec<Broken>, StoreError> {
        self.read(OPERATION, |connection| broken_by(connection, None)).await
    }

    /// The runs that are not over, and whether each is held. As [`Store::peek_server`].
    pub fn peek_unfinished(&self) -> Vec<(RunId, bool)> {
        let Some(place) = self.in_place() else { return Vec::new() };
        let read = place.look(|connection| {
            all(
                connection,
                OPERATION,
                "SELECT id, hold IS NOT NULL AS held FROM runs WHERE phase <> 'ended' ORDER BY id",
                &[],
                |columns| Ok((columns.parse("id", str::parse::<RunId>)?, columns.get("held")?)),
            )
        });
        read.unwrap_or_default()
    }

    /// The run that works on a server, or is to, and who holds its lease. Only where the database works in place; whoever
    /// asks is not part of what happens.
    pub fn peek_server(&self, serial: &Serial) -> Option<(RunId, String, Option<String>, Option<String>)> {
        let read = self.in_place()?.look(|connection| {
            first(
                connection,
                OPERATION,
                "SELECT id, phase, step, lease_owner FROM runs WHERE server = ?1 AND phase <> 'ended'
                 ORDER BY created_at, id LIMIT 1",
                params![serial.as_str()],
                |columns| {
                    Ok((
                        columns.parse("id", str::parse::<RunId>)?,
                        columns.get("phase")?,
                        columns.get("step")?,
                        columns.get("lease_owner")?,
                    ))
                },
            )
        });
        read.ok().flatten()
    }
}
