//! The gate of a batch: closed until its canaries have succeeded, and after it has stopped. Triggers of the schema close and open it.

use rusqlite::Connection;

use super::StoreError;
use super::rows::{first, named};
use model::{BatchId, BatchStop, BatchStopReason, RunId};

const READ: &str = "read the gate of a batch";

/// Whether the gate of its batch keeps a run from starting.
pub(super) fn is_closed_for(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    Ok(stop_of(connection, run)?.is_some())
}

/// The closed gate of the batch of a run. The gate `canary` lets canaries pass.
pub(super) fn stop_of(
    connection: &Connection,
    run: RunId,
) -> Result<Option<(BatchId, BatchStop)>, StoreError> {
    first(
        connection,
        READ,
        "SELECT batches.id, gate, gate_since, failures FROM runs JOIN batches ON batches.id = runs.batch
         WHERE runs.id = ?1 AND runs.batch <> '' AND gate IS NOT NULL AND (gate = 'stopped' OR runs.canary = 0)",
        &[&run.to_string()],
        |columns| {
            let id = columns.parse("id", str::parse)?;
            let reason = columns.parse("gate", named(BatchStopReason::parse))?;
            let (since, failures) = (columns.time("gate_since")?, columns.get("failures")?);
            Ok((id, BatchStop { reason, since, failures }))
        },
    )
}

/// The closed gate of a batch. A run tree that has not started gets no permit behind it: it could not start and would keep the
/// permit from the canaries that the gate waits for. The gate `canary` lets canaries pass.
pub(super) fn name_of(connection: &Connection, batch: &str) -> Result<Option<String>, StoreError> {
    if batch.is_empty() {
        return Ok(None);
    }
    const SQL: &str = "SELECT gate FROM batches WHERE id = ?1";
    let found = first(connection, READ, SQL, &[&batch], |columns| columns.get::<Option<String>>("gate"))?;
    Ok(found.flatten())
}
