//! After a start of the controller with another time, the leases of workers elsewhere have the time that they had before.
//!
//! ```text
//!   last sign of life ---- the machine ran on ------ start       the clock was set by more than is followed slowly: + what it was set by
//!   last sign of life ---- the machine was started - start       it is unknown what has passed: + (start - last sign of life)
//! ```
//!
//! A worker elsewhere does not end with the controller, and measures its lease with a clock of its own. A clock without a battery, or one
//! that a time server set, may be hours ahead after a start. If the leases counted as ended then, a second worker would act on a BMC
//! beside the first one. Deadlines stay as they are in any case: they were promised.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::claim::WORKER_OWNER;
use super::error::StoreError;
use super::instances::former_run;
use super::rows::{all, execute, first};
use model::{MachineRun, Time};

/// The difference of two clocks that says nothing: a record is written some time after its clock was read.
const NO_DIFFERENCE: Duration = Duration::from_secs(5);

/// Moves the leases of workers elsewhere by the time from `seen` to `now` of which it is not known that it has passed. Nothing changes
/// when the run of the machine is not known.
pub(super) fn leave_out_time_off(
    connection: &Connection,
    operation: &'static str,
    run: Option<&MachineRun>,
    (seen, now): (Time, Time),
) -> Result<(), StoreError> {
    let before = first(
        connection,
        operation,
        "SELECT boot FROM controller_instances ORDER BY rowid DESC LIMIT 1",
        &[],
        |columns| columns.get::<Option<String>>("boot"),
    )?;
    let Some((before, run)) = before.flatten().zip(run) else { return Ok(()) };
    let expected = match before == run.boot {
        true => former_run(connection, operation, Some(run))?.and_then(|former| former.now).unwrap_or(now),
        false => seen,
    };
    let off = now.since(expected);
    if off <= NO_DIFFERENCE {
        return Ok(());
    }
    let leased = all(
        connection,
        operation,
        "SELECT id, lease_expires_at, next_run_at FROM runs
         WHERE lease_owner IS NOT NULL AND substr(lease_owner, 1, length(?1)) = ?1",
        &[&WORKER_OWNER],
        |columns| {
            let (expires, next) = (columns.time("lease_expires_at")?, columns.time_opt("next_run_at")?);
            Ok((columns.get::<String>("id")?, expires.plus(off), next.map(|next| next.plus(off))))
        },
    )?;
    for (id, expires, next) in leased {
        let (expires, next) = (expires.to_string(), next.map(|next| next.to_string()));
        let sql = "UPDATE runs SET lease_expires_at = ?2, next_run_at = ?3 WHERE id = ?1";
        execute(connection, operation, sql, params![id, expires, next])?;
        let sql = "UPDATE jobs SET lease_expires_at = ?2 WHERE id = ?1";
        execute(connection, operation, sql, params![id, expires])?;
    }
    Ok(())
}
