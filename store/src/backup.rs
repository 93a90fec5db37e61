//! Copies of the database file for backups, made while a controller uses it.
//!
//! ```text
//!   database (WAL, in use) --backup API, one read transaction--> copy --> marked as restored --> checked --> fsync
//! ```
//!
//! Invariants: the copy is the state of one moment, and writers do not wait for it; the copy is one file without a write-ahead log;
//! every server in it is restored, so a controller that starts on it in any way does nothing to a machine (decision D26).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::rows::first;
use super::{StoreError, migrate, reseal, restored, sealing};
use model::Time;

/// How often a step is repeated that another process prevents.
const TRIES: u32 = 100;
/// The pause between two tries of a step.
const PAUSE: Duration = Duration::from_millis(100);
/// The maximum of problems that an error quotes.
const PROBLEMS: usize = 3;

/// The contents of a copy of the database: the time of its last event, and its numbers of servers and jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseCopy {
    /// The time of the last event; `None` when nothing has happened yet.
    pub as_of: Option<Time>,
    /// The number of servers.
    pub servers: u64,
    /// The number of jobs.
    pub jobs: u64,
    /// The number of jobs that have not ended.
    pub unfinished: u64,
}

/// Copies a database that may be in use, marks the copy as restored for `reason`, and checks it. Blocks on the disk. `copy` must
/// not exist.
///
/// # Errors
/// When a file cannot be opened, the database has another schema than this program, or the copy is damaged.
pub fn back_up(database: &Path, copy: &Path, reason: &str, now: Time) -> Result<DatabaseCopy, StoreError> {
    const OPERATION: &str = "copy the database";
    let failed = |source| StoreError::sqlite(OPERATION, source);
    let source = open(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    source.execute_batch("PRAGMA query_only=ON; PRAGMA busy_timeout=5000;").map_err(failed)?;
    migrate::require_current(&source).map_err(|why| StoreError::Migrate(Arc::new(why)))?;
    let mut target = open(copy, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    {
        let backup = Backup::new(&source, &mut target).map_err(failed)?;
        let mut tries = 0;
        // All pages in one step: the step is one read transaction, so a writer does not restart it.
        while backup.step(-1).map_err(failed)? != StepResult::Done {
            tries += 1;
            if tries == TRIES {
                let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                return Err(failed(rusqlite::Error::SqliteFailure(busy, None)));
            }
            std::thread::sleep(PAUSE);
        }
    }
    target.execute_batch("PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;").map_err(failed)?;
    let counted = count(&target)?;
    restored::restore_copy(&mut target, reason, now)?;
    check(&target, copy)?;
    target.close().map_err(|(_connection, source)| failed(source))?;
    Ok(counted)
}

/// Checks a copy of the database. An older schema is good: the start migrates it. Blocks on the disk.
///
/// # Errors
/// When it cannot be opened, has a schema that this program does not know, or is damaged.
pub fn check_copy(copy: &Path) -> Result<DatabaseCopy, StoreError> {
    let connection = open(copy, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    migrate::require_known(&connection).map_err(|why| StoreError::Migrate(Arc::new(why)))?;
    check(&connection, copy)?;
    count(&connection)
}

/// The versions of keys with which texts of a copy are sealed, by `key_of`. Blocks on the disk.
///
/// # Errors
/// When the copy cannot be opened or read.
pub fn keys_of_copy(copy: &Path, key_of: fn(&str) -> Option<String>) -> Result<BTreeSet<String>, StoreError> {
    const OPERATION: &str = "read the keys of a copy of the database";
    let connection = open(copy, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    sealing::attach_key_of(&connection, key_of).map_err(|source| StoreError::sqlite(OPERATION, source))?;
    let counts = reseal::counts(&connection, OPERATION)?;
    Ok(counts.into_iter().map(|count| count.key).filter(|key| !key.is_empty()).collect())
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|source| StoreError::Open { path: path.to_owned(), source: Arc::new(source) })
}

fn count(connection: &Connection) -> Result<DatabaseCopy, StoreError> {
    const OPERATION: &str = "count the rows of a copy of the database";
    let counted = first(
        connection,
        OPERATION,
        "SELECT (SELECT time FROM events ORDER BY seq DESC LIMIT 1) AS as_of, (SELECT count(*) FROM servers) AS servers,
                (SELECT count(*) FROM jobs) AS jobs,
                (SELECT count(*) FROM jobs WHERE status <> 'complete') AS unfinished",
        &[],
        |columns| {
            Ok(DatabaseCopy {
                as_of: columns.time_opt("as_of")?,
                servers: columns.count("servers")?,
                jobs: columns.count("jobs")?,
                unfinished: columns.count("unfinished")?,
            })
        },
    )?;
    counted.ok_or(StoreError::Closed)
}

fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    const OPERATION: &str = "check a copy of the database";
    let failed = |source| StoreError::sqlite(OPERATION, source);
    let mut statement = connection.prepare("PRAGMA integrity_check").map_err(failed)?;
    let found = statement.query_map([], |row| row.get::<_, String>(0)).map_err(failed)?;
    let found: Vec<String> = found.take(PROBLEMS).collect::<Result<_, _>>().map_err(failed)?;
    let mut damage: Vec<String> = found.into_iter().filter(|line| line != "ok").collect();
    let orphans: i64 = connection
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
        .map_err(failed)?;
    if orphans > 0 {
        damage.push(format!("{orphans} rows refer to rows that do not exist"));
    }
    if damage.is_empty() {
        return Ok(());
    }
    Err(StoreError::Damaged { path: path.to_owned(), detail: damage.join("; ") })
}
