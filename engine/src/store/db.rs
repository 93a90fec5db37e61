//! Opening the database, its connections, and what can go wrong.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::in_place::{InPlace, Memory, StoreHooks};
use super::job_cache::JobCache;
use super::migrate::{self, MigrateError};
use super::readers::{self, Readers};
use super::writer::Writer;
use crate::model::{Fairness, Time};

/// Prepared statements each connection keeps.
const STATEMENTS: usize = 96;

/// Why the database did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The database file could not be opened.
    #[error("open the database {}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// The database's schema could not be brought up to date.
    #[error("migrate the database")]
    Migrate(#[source] Arc<MigrateError>),
    /// SQLite refused.
    #[error("{operation}")]
    Sqlite {
        /// What was being done.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// A row does not mean what the program takes it to mean.
    #[error("{operation}: column {column} holds what this version cannot read: {detail}")]
    Corrupt {
        /// What was being done.
        operation: &'static str,
        /// The column.
        column: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The work panicked; nothing of it was written.
    #[error("{operation}: internal error; nothing was written")]
    Panicked {
        /// What was being done.
        operation: &'static str,
    },
    /// The store is shutting down.
    #[error("the database is closed")]
    Closed,
}

impl StoreError {
    /// Wraps what SQLite said while doing `operation`.
    pub(super) fn sqlite(operation: &'static str, source: rusqlite::Error) -> Self {
        Self::Sqlite { operation, source: Arc::new(source) }
    }

    /// Whether a row, and not the database, is at fault.
    pub fn is_corrupt(&self) -> bool {
        use rusqlite::Error;
        match self {
            Self::Corrupt { .. } => true,
            Self::Sqlite { source, .. } => matches!(
                **source,
                Error::FromSqlConversionFailure(..)
                    | Error::IntegralValueOutOfRange(..)
                    | Error::InvalidColumnType(..)
                    | Error::Utf8Error(..)
            ),
            _ => false,
        }
    }

    /// Whether the database is merely busy, full or closed: worth another try later (503).
    pub fn is_unavailable(&self) -> bool {
        use rusqlite::ErrorCode as Code;
        match self {
            Self::Closed => true,
            Self::Sqlite { source, .. } | Self::Open { source, .. } => matches!(
                source.sqlite_error_code(),
                Some(
                    Code::DatabaseBusy
                        | Code::DatabaseLocked
                        | Code::DiskFull
                        | Code::SystemIoFailure
                        | Code::CannotOpen
                )
            ),
            _ => false,
        }
    }
}

/// The database.
#[derive(Clone)]
pub struct Store {
    pub(super) writer: Writer,
    /// Whose turn it is to begin.
    pub(super) turns: Arc<Mutex<Fairness>>,
    source: Source,
}

/// Where reads come from.
#[derive(Clone)]
enum Source {
    Threads(Readers),
    InPlace(Arc<InPlace>),
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// Opens (or creates) the database, brings its schema up to date and starts the writer. Blocks on the disk.
    pub fn open(path: &Path, now: Time) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Open { path: path.to_owned(), source: Arc::new(source) };
        let mut connection = Connection::open(path).map_err(failed)?;
        configure(&connection).map_err(failed)?;
        connection
            .execute_batch(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=1000;",
            )
            .map_err(failed)?;
        connection.set_transaction_behavior(TransactionBehavior::Immediate);
        migrate::run(&mut connection, path, now).map_err(|why| StoreError::Migrate(Arc::new(why)))?;
        let connections = (0..readers::many())
            .map(|_| {
                let reader = Connection::open_with_flags(
                    path,
                    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
                )?;
                configure(&reader)?;
                reader.execute_batch("PRAGMA query_only=ON;")?;
                Ok(reader)
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        let pages = JobCache::watching(&connection).map_err(failed)?;
        let no_thread = |_| failed(rusqlite::Error::InvalidPath(PathBuf::from("no thread for the database")));
        let writer = Writer::start(connection, pages).map_err(no_thread)?;
        let source = Source::Threads(Readers::start(connections).map_err(no_thread)?);
        Ok(Self { writer, turns: Arc::default(), source })
    }

    /// Opens a database in memory whose work is done by its callers: no thread, no file, and every order is the caller's.
    /// `around` is asked before and told after everything that is done; see [`StoreHooks`].
    pub fn open_in_place(
        memory: &Memory,
        around: Arc<dyn StoreHooks>,
        now: Time,
    ) -> Result<Self, StoreError> {
        let path = PathBuf::from(memory.name());
        let failed = |source| StoreError::Open { path: path.clone(), source: Arc::new(source) };
        let mut connection = memory.connect().map_err(failed)?;
        configure(&connection).map_err(failed)?;
        connection.set_transaction_behavior(TransactionBehavior::Immediate);
        migrate::run(&mut connection, &path, now).map_err(|why| StoreError::Migrate(Arc::new(why)))?;
        let pages = JobCache::watching(&connection).map_err(failed)?;
        let place = Arc::new(InPlace::new(connection, around));
        Ok(Self {
            writer: Writer::in_place(Arc::clone(&place), pages),
            turns: Arc::default(),
            source: Source::InPlace(place),
        })
    }

    /// Reads with a connection that is for reading.
    pub(super) async fn read<T, F>(&self, operation: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        match &self.source {
            Source::Threads(readers) => readers.read(operation, work).await,
            Source::InPlace(place) => place.read(operation, work).await,
        }
    }

    /// The connection of a store that works in place.
    pub(super) fn in_place(&self) -> Option<&InPlace> {
        match &self.source {
            Source::InPlace(place) => Some(place),
            Source::Threads(_) => None,
        }
    }

    /// Changes with every committed transaction: a hint that there may be something new to read.
    pub fn commits(&self) -> tokio::sync::watch::Receiver<u64> {
        self.writer.commits()
    }

    /// Answers whether the database can be read and written right now.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.writer
            .write("check the database", |connection| {
                connection
                    .execute("INSERT INTO settings (key, value) VALUES ('checked', '1') ON CONFLICT (key) DO NOTHING", [])
                    .map(drop)
                    .map_err(|source| StoreError::sqlite("check the database", source))
            })
            .await
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without this a statement on a table with partial indexes is planned for the values bound to it, and parsed again at
    // each use because they may differ. Our statements spell out what such an index is for.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.execute_batch(
        "PRAGMA foreign_keys=ON; PRAGMA busy_timeout=5000; PRAGMA trusted_schema=OFF; PRAGMA temp_store=MEMORY;
         PRAGMA cache_size=-8000; PRAGMA journal_size_limit=67108864;",
    )
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn a_statement_beside_a_partial_index_is_parsed_once() {
        let connection = Connection::open_in_memory().unwrap();
        configure(&connection).unwrap();
        connection
            .execute_batch("CREATE TABLE t (a, b); CREATE INDEX i ON t (b) WHERE a < 2 AND b IS NOT NULL;")
            .unwrap();
        let mut statement = connection.prepare("SELECT a FROM t WHERE a = ?1 AND b < ?2 ORDER BY b").unwrap();
        for bound in 0..4 {
            assert!(!statement.exists([bound, bound]).unwrap());
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}
