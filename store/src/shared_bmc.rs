//! A BMC through which several servers are managed, as that of an enclosure: its servers are not changed at the same time.
//!
//! ```text
//!   an order       asks whether the BMC of its server is shared then -> its run requests the lock `bmc/ADDRESS` too
//!   a server that is registered, or moved to the address   -> the open runs of the servers there get the lock now
//! ```

use rusqlite::{Connection, params};

use super::StoreError;
use super::rows::execute;
use model::{SERVER_LOCKS, Time, bmc_lock};

/// Gives the lock of a BMC to the run trees that have, or wait for, one of the servers behind it, when there are several: a run
/// that was created while its server was the only one has no such lock. A tree that waits holds none of its locks, and of two trees
/// that have started before the BMC was known as shared, the lock is that of one.
pub(super) fn share_bmc(connection: &Connection, address: &str, now: Time) -> Result<(), StoreError> {
    execute(
        connection,
        "lock a shared BMC",
        "INSERT OR IGNORE INTO locks (resource, root, held, priority, since, capacity, batch, rank)
         SELECT ?1, theirs.root, theirs.held, theirs.priority, ?2, 1, theirs.batch, theirs.rank
         FROM servers CROSS JOIN locks AS theirs ON theirs.resource = ?3 || servers.serial
         WHERE servers.bmc_address = ?4 AND (SELECT count(*) FROM servers WHERE bmc_address = ?4) > 1",
        params![bmc_lock(address), now.to_string(), SERVER_LOCKS, address],
    )
    .map(drop)
}
