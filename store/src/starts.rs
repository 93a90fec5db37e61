//! Whether a run may start: the gates in front of it, and the locks of its run tree.
//!
//! ```text
//!  a gate is closed ---------> it gives back what others wait for, and is due at its deadline
//!  no gate, a lock is taken -> it stays in the queue of the lock
//!  no gate, all are free ----> it takes them and starts
//! ```

use rusqlite::Connection;

use super::{StoreError, gates, locks};
use model::{Run, Time};

/// Whether a run may not start yet. One that is past its deadline or has a cancel request may always start, because it only ends.
pub(super) fn is_blocked(connection: &Connection, run: &Run, now: Time) -> Result<bool, StoreError> {
    let unstarted = run.epoch == 0 && run.phase.is_forward();
    if !unstarted || now >= run.deadline_at || run.cancel_requested_at.is_some() {
        return Ok(false);
    }
    if gates::is_closed_for(connection, run.id)? {
        locks::give_back(connection, run.root, now)?;
        return Ok(true);
    }
    Ok(!locks::take_free(connection, run.root, now)?)
}
