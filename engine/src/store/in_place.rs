//! The database without a thread of its own: the caller's task does the work, so that a simulation owns every order.
//!
//! ```text
//!   caller -> around.before(operation) -> transaction on the one connection -> audit of the rows it wrote -> around.after
//!                 |  refuse: full, locked                                          |  a broken rule: around.broken
//!                 +- delay, or the end of this process                             +- the answer is lost: COMMIT stands
//! ```
//!
//! Invariants
//! - A transaction never spans an await: what `around` does happens before BEGIN or after COMMIT, never between.
//! - The database lives as long as its [`Memory`], not as long as a store over it: a store may be dropped at any await, and
//!   the next one finds what was committed.
//! - After every transaction the rows it wrote keep the rules of [`super::audit`].

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rusqlite::hooks::Action;
use rusqlite::{Connection, OpenFlags, ffi};
use tokio::sync::watch;

use super::db::StoreError;
use super::invariants::{self, Broken};
use crate::model::Snapshot;

/// What is to become of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It is carried out.
    GoOn,
    /// The disk is full.
    Full,
    /// Another process keeps the database locked.
    Locked,
}

/// Stands around every operation of a store that works in place.
#[async_trait]
pub trait StoreHooks: Send + Sync {
    /// Asked before an operation (`writes`: a transaction that may write).
    async fn before(&self, operation: &'static str, writes: bool) -> Before;
    /// Told after an operation, before its caller has the answer.
    async fn after(&self, operation: &'static str, writes: bool);
    /// Told of every rule that the rows of a transaction break.
    fn broken(&self, rule: Broken);
    /// Shown a run in each kind of state, the first time one is in it.
    fn seen(&self, snapshot: &Snapshot);
}

/// A database in memory that outlives the stores opened over it.
pub struct Memory {
    name: String,
    /// Keeps the database alive while no store is open.
    _anchor: Mutex<Connection>,
}

impl Memory {
    /// An empty database.
    ///
    /// # Errors
    /// When SQLite has no memory for it.
    pub fn new() -> Result<Self, StoreError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("file:/shoal-{}?vfs=memdb", COUNT.fetch_add(1, Ordering::Relaxed));
        let anchor =
            connect(&name).map_err(|source| StoreError::sqlite("make a database in memory", source))?;
        Ok(Self { name, _anchor: Mutex::new(anchor) })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn connect(&self) -> rusqlite::Result<Connection> {
        connect(&self.name)
    }
}

fn connect(name: &str) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(name, flags)?;
    connection.execute_batch("PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF;")?;
    Ok(connection)
}

/// The connection, and what stands around it.
pub(super) struct InPlace {
    connection: Mutex<Connection>,
    around: Arc<dyn StoreHooks>,
    committed: watch::Sender<u64>,
    written: Arc<Mutex<invariants::Written>>,
    /// The kinds of states runs have been in.
    states: Mutex<BTreeSet<String>>,
}

impl InPlace {
    pub(super) fn new(mut connection: Connection, around: Arc<dyn StoreHooks>) -> Self {
        let written = Arc::new(Mutex::new(invariants::Written::default()));
        let noted = Arc::clone(&written);
        // A connection that cannot be watched is one that is not audited row by row; the audit at the end still reads all.
        let _unwatched =
            connection.update_hook(Some(move |action: Action, _: &str, table: &str, row: i64| {
                lock(&noted).note(action, table, row);
            }));
        Self {
            connection: Mutex::new(connection),
            around,
            committed: watch::Sender::new(0),
            written,
            states: Mutex::default(),
        }
    }

    pub(super) fn commits(&self) -> watch::Receiver<u64> {
        self.committed.subscribe()
    }

    /// Carries out a transaction in the caller's task. `transact` answers its caller by itself.
    pub(super) async fn write(
        &self,
        operation: &'static str,
        transact: impl FnOnce(&Connection) + Send,
    ) -> Result<(), StoreError> {
        allowed(operation, self.around.before(operation, true).await)?;
        {
            let connection = lock(&self.connection);
            transact(&connection);
            let written = std::mem::take(&mut *lock(&self.written));
            invariants::check(&connection, &written).into_iter().for_each(|rule| self.around.broken(rule));
            self.show(&connection, &written);
        }
        self.committed.send_modify(|count| *count += 1);
        self.around.after(operation, true).await;
        Ok(())
    }

    /// Shows runs that are in a kind of state for the first time.
    fn show(&self, connection: &Connection, written: &invariants::Written) {
        for row in written.runs() {
            let Ok(Some((state, id))) = invariants::state(connection, row) else { continue };
            if lock(&self.states).insert(state)
                && let Ok(Some(snapshot)) = invariants::snapshot(connection, id)
            {
                self.around.seen(&snapshot);
            }
        }
    }

    /// Reads in the caller's task.
    pub(super) async fn read<T: Send>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        allowed(operation, self.around.before(operation, false).await)?;
        let answer = work(&lock(&self.connection));
        self.around.after(operation, false).await;
        answer
    }

    /// Looks without being asked, delayed or refused: for who judges, not for who takes part.
    pub(super) fn look<T>(&self, work: impl FnOnce(&Connection) -> T) -> T {
        work(&lock(&self.connection))
    }
}

/// The error a disturbed database answers with.
fn allowed(operation: &'static str, before: Before) -> Result<(), StoreError> {
    let code = match before {
        Before::GoOn => return Ok(()),
        Before::Full => ffi::SQLITE_FULL,
        Before::Locked => ffi::SQLITE_BUSY,
    };
    Err(StoreError::sqlite(operation, rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)))
}

/// Plain data and one connection, valid after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
