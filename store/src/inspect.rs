//! Reads for tests and simulations: violated invariants, and the runs that have not ended.

use rusqlite::params;

use super::invariants::{self, OPERATION, Violation, violations_of};
use super::rows::{all, first};
use super::{Store, StoreError};
use model::{RunId, Serial, Snapshot, StepName};

impl Store {
    /// The violations by all rows now.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn check_invariants(&self) -> Result<Vec<Violation>, StoreError> {
        self.read(OPERATION, |connection| violations_of(connection, None)).await
    }

    /// The runs that have not ended, and whether each is held. Only for an in-place store; runs no hooks.
    pub fn peek_unfinished(&self) -> Vec<(RunId, bool)> {
        let Some(place) = self.in_place() else { return Vec::new() };
        let read = place.peek(|connection| {
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

    /// The unfinished run of a server that a worker has, otherwise the oldest one: id, phase, step and lease owner. Runs that
    /// wait for the server may be older than the one that has it. Only for an in-place store; runs no hooks.
    pub fn peek_server(&self, serial: &Serial) -> Option<(RunId, String, Option<StepName>, Option<String>)> {
        let read = self.in_place()?.peek(|connection| {
            first(
                connection,
                OPERATION,
                "SELECT id, phase, step, lease_owner FROM runs WHERE server = ?1 AND phase <> 'ended'
                 ORDER BY lease_owner IS NULL, created_at, id LIMIT 1",
                params![serial.as_str()],
                |columns| {
                    Ok((
                        columns.parse("id", str::parse::<RunId>)?,
                        columns.get("phase")?,
                        columns.optional_step()?,
                        columns.get("lease_owner")?,
                    ))
                },
            )
        });
        read.ok().flatten()
    }

    /// The run trees that have begun a forward step on a server and have not ended, oldest first. Only for an in-place store; runs no
    /// hooks.
    pub fn peek_begun(&self, serial: &Serial) -> Vec<RunId> {
        let Some(place) = self.in_place() else { return Vec::new() };
        let read = place.peek(|connection| {
            all(
                connection,
                OPERATION,
                "SELECT root FROM runs WHERE server = ?1 AND phase <> 'ended' AND EXISTS
                     (SELECT 1 FROM run_steps WHERE run = runs.id AND stage = 'forward')
                 GROUP BY root ORDER BY min(created_at), root",
                params![serial.as_str()],
                |columns| columns.parse("root", str::parse::<RunId>),
            )
        });
        read.unwrap_or_default()
    }

    /// Whether a run has ended. Only for an in-place store; runs no hooks.
    pub fn peek_ended(&self, run: RunId) -> bool {
        let Some(place) = self.in_place() else { return false };
        let read = place.peek(|connection| {
            first(
                connection,
                OPERATION,
                "SELECT 1 AS ended FROM runs WHERE id = ?1 AND phase = 'ended'",
                params![run.to_string()],
                |_| Ok(()),
            )
        });
        matches!(read, Ok(Some(())))
    }

    /// A run with its steps. Only for an in-place store; runs no hooks.
    pub fn peek_snapshot(&self, run: RunId) -> Option<Snapshot> {
        self.in_place()?.peek(|connection| invariants::snapshot(connection, run)).ok().flatten()
    }
}
