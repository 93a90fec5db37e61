//! The audit log of a database file without a store: for commands beside a running controller, and for a check of a file.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

use super::StoreError;
use super::audit_rows::{anchor, append, head, select};
use model::audit::{AuditEntry, AuditHead, NewAuditEntry};

/// How many entries are read at once.
const AT_ONCE: u32 = 1000;
/// The operation of a read, in words.
const READ: &str = "read the audit log";

/// Records an entry in a database that a controller may be using. Blocks on the disk.
///
/// # Errors
/// When the database cannot be opened or written, or another process keeps its lock for five seconds.
pub fn record_in_file(database: &Path, entry: &NewAuditEntry) -> Result<(), StoreError> {
    const OPERATION: &str = "record an audit entry";
    let failed = |source| StoreError::sqlite(OPERATION, source);
    let connection = open(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.execute_batch("PRAGMA synchronous=FULL; BEGIN IMMEDIATE;").map_err(failed)?;
    append(&connection, OPERATION, entry)?;
    connection.execute_batch("COMMIT;").map_err(failed)
}

/// The audit log of a database file as of one moment, also while a controller uses the database.
pub struct AuditFile {
    connection: Connection,
    /// The number and hash of the last pruned entry, which the first entry follows; the genesis if none was pruned.
    pub anchor: AuditHead,
    /// The newest entry.
    pub head: AuditHead,
}

impl AuditFile {
    /// Opens a database file for reading. Blocks on the disk.
    ///
    /// # Errors
    /// When the file cannot be opened or has no audit log.
    pub fn open(database: &Path) -> Result<Self, StoreError> {
        let connection = open(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        // One read transaction for all reads; it ends with the connection.
        connection.execute_batch("BEGIN").map_err(|source| StoreError::sqlite(READ, source))?;
        Ok(Self { anchor: anchor(&connection, READ)?, head: head(&connection, READ)?, connection })
    }

    /// Calls `each` with every entry in order, in constant memory. Blocks on the disk.
    ///
    /// # Errors
    /// The error of `each`, or of the database. The entries before an unreadable one are passed on first.
    pub fn each<E: From<StoreError>>(
        &self,
        mut each: impl FnMut(&AuditEntry) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut last, mut at_once) = (i64::MIN, AT_ONCE);
        loop {
            let condition = "WHERE seq > ?1 ORDER BY seq LIMIT ?2";
            let page = match select(&self.connection, READ, condition, &[&last, &at_once]) {
                // One by one, so that the caller can name the entry.
                Err(StoreError::Corrupt { .. }) if at_once > 1 => {
                    at_once = 1;
                    continue;
                }
                page => page?,
            };
            let Some(end) = page.last() else { return Ok(()) };
            last = i64::try_from(end.seq).unwrap_or(i64::MAX);
            page.iter().try_for_each(&mut each)?;
        }
    }
}

fn open(database: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let failed = |source| StoreError::Open { path: database.to_owned(), source: Arc::new(source) };
    let connection =
        Connection::open_with_flags(database, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
    connection.execute_batch("PRAGMA busy_timeout=5000; PRAGMA trusted_schema=OFF;").map_err(failed)?;
    Ok(connection)
}
