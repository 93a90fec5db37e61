//! Invariants of the rows: rules that hold after every transaction. An in-place store ([`super::in_place`]) checks the rows
//! that a transaction wrote; [`super::inspect`] checks all rows.
//!
//! ```text
//!   transaction --rows of `runs` it wrote--> RULES --> violations go to the store hooks
//!               --rows of `events`---------> insert only (retention deletes whole run trees)
//! ```
//!
//! Invariant: a rule is SQL on the row alone and shares no code with the engine.

use std::collections::BTreeSet;

use rusqlite::hooks::Action;
use rusqlite::{Connection, params};

use super::error::StoreError;
use super::rows::{self, all, first};
use model::{RunId, Snapshot};

/// The name of the reads in errors.
pub(super) const OPERATION: &str = "check the invariants of the rows";

/// A row that violates a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The run, or another description of the row.
    pub subject: String,
    /// The violated rule, in words.
    pub rule: String,
}

/// Each rule in words, with the SQL condition of a row that violates it.
const RULES: &[(&str, &str)] = &[
    (
        "a run that has not ended has a lease, a due time or a hold",
        "runs.phase <> 'ended' AND runs.lease_owner IS NULL AND runs.next_run_at IS NULL AND runs.hold IS NULL",
    ),
    (
        "a wait has a reason, a start and a deadline",
        "runs.wait IS NOT NULL AND (json_extract(runs.wait, '$.reason') IS NULL
             OR json_extract(runs.wait, '$.since') IS NULL OR json_extract(runs.wait, '$.deadline') IS NULL)",
    ),
    (
        "a waiting run has no lease, and a due time",
        "runs.phase = 'waiting' AND runs.wait IS NOT NULL AND (runs.lease_owner IS NOT NULL OR runs.next_run_at IS NULL)",
    ),
    (
        "an ended run has an outcome and no lease, wait, hold or due time",
        "runs.phase = 'ended' AND (runs.outcome IS NULL OR runs.lease_owner IS NOT NULL OR runs.wait IS NOT NULL
             OR runs.hold IS NOT NULL OR runs.next_run_at IS NOT NULL)",
    ),
    (
        "a lease has an expiry, and its run has a due time",
        "runs.lease_owner IS NOT NULL AND (runs.lease_expires_at IS NULL OR runs.next_run_at IS NULL)",
    ),
    (
        "the status of a job matches its run",
        "jobs.id IS NOT NULL AND (jobs.outcome IS NOT runs.outcome OR jobs.status <> CASE
             WHEN runs.phase = 'ended' THEN 'complete'
             WHEN runs.phase IN ('finishing', 'unwinding')
                 THEN CASE WHEN runs.outcome = 'succeeded' THEN 'succeeded' ELSE 'failed' END
             WHEN runs.phase = 'queued' THEN 'queued'
             ELSE 'provisioning' END)",
    ),
    (
        "an ended root run has no locks",
        "runs.phase = 'ended' AND runs.parent IS NULL AND EXISTS (SELECT 1 FROM locks WHERE locks.root = runs.id)",
    ),
    (
        "a started job holds a lock",
        "jobs.id IS NOT NULL AND runs.phase <> 'ended' AND runs.lease_epoch > 0
             AND NOT EXISTS (SELECT 1 FROM locks WHERE locks.root = runs.root AND locks.held = 1)",
    ),
    (
        "an ended run has no open grants",
        "runs.phase = 'ended' AND (EXISTS (SELECT 1 FROM media_grants WHERE run = runs.id AND ended_at IS NULL)
             OR EXISTS (SELECT 1 FROM pull_grants WHERE run = runs.id AND ended_at IS NULL))",
    ),
];

/// The rows that a transaction wrote.
#[derive(Debug, Default)]
pub(super) struct WrittenRows {
    runs: BTreeSet<i64>,
    deleted_runs: bool,
    rewritten_events: usize,
}

impl WrittenRows {
    /// Records a change of one row.
    pub(super) fn note(&mut self, action: Action, table: &str, row: i64) {
        match (table, action) {
            ("runs", Action::SQLITE_DELETE) => self.deleted_runs = true,
            // A row of `jobs` has another rowid; its run is written in the same transaction.
            ("runs", _) => drop(self.runs.insert(row)),
            ("events", Action::SQLITE_UPDATE | Action::SQLITE_DELETE) => self.rewritten_events += 1,
            _ => {}
        }
    }

    /// The rowids of the written runs.
    pub(super) fn runs(&self) -> impl Iterator<Item = i64> + '_ {
        self.runs.iter().copied()
    }
}

/// The violations by the written rows.
pub(super) fn check(connection: &Connection, written: &WrittenRows) -> Vec<Violation> {
    let mut violations = Vec::new();
    if written.rewritten_events > 0 && !written.deleted_runs {
        violations.push(Violation {
            subject: format!("{} events", written.rewritten_events),
            rule: "an event is never changed or deleted alone".to_owned(),
        });
    }
    for row in written.runs() {
        match violations_of(connection, Some(row)) {
            Ok(found) => violations.extend(found),
            Err(error) => violations.push(Violation {
                subject: format!("row {row} of runs"),
                rule: format!("a row can be read: {error}"),
            }),
        }
    }
    violations
}

/// A text that names the kind of state of a run, and the run; `None` when the row is gone.
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

/// The snapshot of a run; `None` when there is no such run.
pub(super) fn snapshot(connection: &Connection, id: RunId) -> Result<Option<Snapshot>, StoreError> {
    rows::find_run(connection, OPERATION, id)?
        .map(|run| rows::snapshot(connection, OPERATION, run))
        .transpose()
}

/// The violations by one row, or by all rows.
pub(super) fn violations_of(connection: &Connection, row: Option<i64>) -> Result<Vec<Violation>, StoreError> {
    let cases: String = RULES.iter().map(|(rule, bad)| format!(" WHEN {bad} THEN '{rule}'")).collect();
    let chosen = if row.is_some() { "runs.rowid = ?1" } else { "?1 IS NULL" };
    let sql = format!(
        "SELECT id, rule FROM (SELECT runs.id, CASE{cases} END AS rule FROM runs LEFT JOIN jobs ON jobs.id = runs.id
         WHERE {chosen}) WHERE rule IS NOT NULL"
    );
    all(connection, OPERATION, &sql, params![row], |columns| {
        Ok(Violation { subject: columns.get("id")?, rule: columns.get("rule")? })
    })
}
