//! Opening the database, and its connections.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use tokio::time::Instant;

use super::erased::{self, Operation, Pending};
use super::error::StoreError;
use super::in_place::{InPlace, Memory, StoreHooks};
use super::instances::LiveInstance;
use super::migrate;
use super::readers::{self, Readers};
use super::row_cache::RowCache;
use super::sealing::{self, TextSeal};
use super::writer::Writer;
use model::{Fairness, Time};

/// Prepared statements that each connection caches.
const STATEMENTS: usize = 96;
/// The shortest time between two checks whether the database can be written.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The database. Clones share one writer and its readers.
///
/// # Errors
/// Every method that returns a [`StoreError`] returns it when SQLite fails, a row cannot be read, the operation panics, or the
/// store is closed. Nothing is written in these cases.
#[derive(Clone)]
pub struct Store {
    pub(super) writer: Writer,
    /// Decides which queued run starts next.
    pub(super) fairness: Arc<Mutex<Fairness>>,
    /// When the queues of workers elsewhere were last searched for runs that need a decision.
    pub(super) searched_others: Arc<Mutex<Option<Time>>>,
    /// The controller instance that uses this store, once it has begun.
    pub(super) instance: Arc<Mutex<Option<LiveInstance>>>,
    /// When the database was last checked, and the result. Held during a check: other callers wait for its result.
    checked: Arc<tokio::sync::Mutex<Option<LastCheck>>>,
    source: Source,
}

/// The last check whether the database can be written.
struct LastCheck {
    at: Instant,
    result: Result<(), StoreError>,
}

/// The reader pool or the in-place database that carries out the reads.
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
    /// Opens (or creates) the database without sealing anything in it, for tests. Blocks on the disk.
    ///
    /// # Errors
    /// When [`Store::open_sealed`] cannot open the database.
    pub fn open(path: &Path, now: Time) -> Result<Self, StoreError> {
        Self::open_with(path, None, now)
    }

    /// Opens (or creates) the database, migrates its schema and starts the writer. `seal` seals the columns that may contain
    /// secrets. Blocks on the disk.
    ///
    /// # Errors
    /// When the file cannot be opened, or a migration is refused or fails.
    pub fn open_sealed(path: &Path, seal: Arc<dyn TextSeal>, now: Time) -> Result<Self, StoreError> {
        Self::open_with(path, Some(seal), now)
    }

    fn open_with(path: &Path, seal: Option<Arc<dyn TextSeal>>, now: Time) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Open { path: path.to_owned(), source: Arc::new(source) };
        create_private(path);
        let mut connection = Connection::open(path).map_err(failed)?;
        configure(&connection).map_err(failed)?;
        sealing::attach(&connection, seal.as_ref()).map_err(failed)?;
        connection
            .execute_batch(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=1000;",
            )
            .map_err(failed)?;
        connection.set_transaction_behavior(TransactionBehavior::Immediate);
        migrate::run(&mut connection, path, now).map_err(|why| StoreError::Migrate(Arc::new(why)))?;
        let connections = (0..readers::count())
            .map(|_| {
                let reader = Connection::open_with_flags(
                    path,
                    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
                )?;
                configure(&reader)?;
                sealing::attach(&reader, seal.as_ref())?;
                reader.execute_batch("PRAGMA query_only=ON;")?;
                Ok(reader)
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        let cache = RowCache::attach(&connection).map(Arc::new).map_err(failed)?;
        let no_thread = |_| {
            failed(rusqlite::Error::InvalidPath(PathBuf::from("no thread could be started for the database")))
        };
        let writer = Writer::start(connection, cache).map_err(no_thread)?;
        let source = Source::Threads(Readers::start(connections).map_err(no_thread)?);
        Ok(Self {
            writer,
            fairness: Arc::default(),
            searched_others: Arc::default(),
            instance: Arc::default(),
            checked: Arc::default(),
            source,
        })
    }

    /// Opens a database in memory. Callers carry out its operations themselves: no thread, no file, and the callers decide
    /// every order. `hooks` runs before and after every operation; see [`StoreHooks`].
    ///
    /// # Errors
    /// When SQLite cannot open the database, or a migration fails.
    pub fn open_in_place(memory: &Memory, hooks: Arc<dyn StoreHooks>, now: Time) -> Result<Self, StoreError> {
        let path = PathBuf::from(memory.name());
        let failed = |source| StoreError::Open { path: path.clone(), source: Arc::new(source) };
        let mut connection = memory.connect().map_err(failed)?;
        configure(&connection).map_err(failed)?;
        sealing::attach(&connection, None).map_err(failed)?;
        connection.set_transaction_behavior(TransactionBehavior::Immediate);
        migrate::run(&mut connection, &path, now).map_err(|why| StoreError::Migrate(Arc::new(why)))?;
        let cache = RowCache::attach(&connection).map(Arc::new).map_err(failed)?;
        let place = Arc::new(InPlace::new(connection, hooks));
        Ok(Self {
            writer: Writer::in_place(Arc::clone(&place), cache),
            fairness: Arc::default(),
            searched_others: Arc::default(),
            instance: Arc::default(),
            checked: Arc::default(),
            source: Source::InPlace(place),
        })
    }

    /// Carries out a read on a connection that cannot write.
    pub(super) async fn read<T, F>(&self, operation: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        erased::typed(self.read_erased(operation, erased::erase(work)).await)
    }

    fn read_erased(&self, operation: &'static str, work: Operation) -> Pending<'_> {
        match &self.source {
            Source::Threads(readers) => Box::pin(readers.read(operation, work)),
            Source::InPlace(place) => Box::pin(place.read(operation, work)),
        }
    }

    /// The connection of an in-place store; `None` for a store with threads.
    pub(super) fn in_place(&self) -> Option<&InPlace> {
        match &self.source {
            Source::InPlace(place) => Some(place),
            Source::Threads(_) => None,
        }
    }

    /// A counter that changes with every committed transaction: a hint that there may be new rows.
    pub fn commits(&self) -> tokio::sync::watch::Receiver<u64> {
        self.writer.commits()
    }

    /// Checks that the database can be written: changes a row and makes it durable. A call within five seconds after a check returns
    /// the result of that check, so that polls cost no writes.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn check(&self) -> Result<(), StoreError> {
        const OPERATION: &str = "check the database";
        let mut last = self.checked.lock().await;
        if let Some(last) = &*last
            && last.at.elapsed() < CHECK_INTERVAL
        {
            return last.result.clone();
        }
        let result = self
            .writer
            .write(OPERATION, |connection| {
                // A row that stays the same changes no page, and a transaction without a changed page writes nothing.
                let sql = "INSERT INTO settings (key, value) VALUES ('checked', '1')
                    ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)";
                let failed = |source| StoreError::sqlite(OPERATION, source);
                connection.execute(sql, []).map(drop).map_err(failed)
            })
            .await;
        *last = Some(LastCheck { at: Instant::now(), result: result.clone() });
        result
    }
}

/// Creates an empty database file that only its owner can open, whatever the umask. SQLite gives the WAL the mode of the database.
fn create_private(path: &Path) {
    // A file that exists, and a directory that cannot be written, are left to SQLite, which reports what is wrong.
    let _exists = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without this option SQLite plans a statement on a table with partial indexes for its bound values, and parses it again
    // at each use because the values may differ. Our statements repeat the condition of the partial index instead.
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
