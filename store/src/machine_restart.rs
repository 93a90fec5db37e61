//! After a start of the machine, the leases of workers elsewhere have the time that they had at the last sign of life.
//!
//! ```text
//!   last sign of life ---- machine off, or its clock set ---- start       known: another boot id; unknown: how long it was
//!   lease ends           ^ + (start - last sign of life)
//! ```
//!
//! A worker elsewhere does not end with the machine of the controller, and measures its lease with a clock of its own. After a start of
//! the machine nothing says how much time has really passed: a clock without a battery, or one that a time server set, may be hours
//! ahead. If the leases counted as ended then, a second worker would act on a BMC beside the first one. While the machine runs on,
//! the clock goes on without jumps ([`model::SteadyClock`]), and leases stay as they are. Deadlines stay in any case: they were promised.

use rusqlite::{Connection, params};

use super::claim::WORKER_OWNER;
use super::error::StoreError;
use super::rows::{all, execute, first};
use model::{MachineRun, Time};

/// Moves the leases of workers elsewhere by the time from `seen` to `now` when the machine was started since then. Nothing changes when
/// it is not known that it was.
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
    let restarted = before.flatten().zip(run).is_some_and(|(before, run)| before != run.boot);
    if !restarted || now <= seen {
        return Ok(());
    }
    let off = now.since(seen);
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
