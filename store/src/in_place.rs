//! The database without threads: the caller's task carries out each operation, so that a simulation decides every order.
//!
//! ```text
//!   caller -> hooks.before(operation) -> transaction on the one connection -> check of the rows it wrote -> hooks.after
//!                 |  refuse: full, locked                                         |  violated rule: hooks.violated
//!                 +- delay, or the end of this process                            +- the result is lost: COMMIT remains
//! ```
//!
//! Invariants
//! - A transaction never spans an await: hooks run before BEGIN or after COMMIT, never between.
//! - The database lives as long as its [`Memory`], not as long as a store on it: a store may be dropped at any await, and the
//!   next store finds everything that was committed.
//! - After every transaction the rows it wrote are checked against the rules of [`super::invariants`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use rusqlite::hooks::Action;
use rusqlite::{Connection, OpenFlags, ffi};
use tokio::sync::watch;

use super::erased::{Erased, Operation};
use super::error::StoreError;
use super::invariants::{self, Violation};
use model::{RunId, Snapshot};

/// How the state of an ended run begins.
const ENDED: &str = "ended/";

/// The decision of a hook about an operation before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookDecision {
    /// The operation is carried out.
    Proceed,
    /// The operation fails as on a full disk.
    Full,
    /// The operation fails as if another process held the lock of the database.
    Locked,
}

/// Callbacks of tests and simulations before and after every operation of an in-place store.
#[async_trait]
pub trait StoreHooks: Send + Sync {
    /// Runs before an operation and decides about it. `writes`: the operation is a transaction that may write.
    async fn before(&self, operation: &'static str, writes: bool) -> HookDecision;
    /// Runs after an operation, before its caller has the result.
    async fn after(&self, operation: &'static str, writes: bool);
    /// Receives every violation of an invariant by the rows of a transaction.
    fn violated(&self, violation: Violation);
    /// Receives the first run that is in a given kind of state, once per kind.
    fn seen(&self, snapshot: &Snapshot);
    /// Receives the id of a run that a committed transaction has ended, perhaps more than once.
    fn ended(&self, _run: RunId) {}
}

/// A database in memory that outlives the stores opened on it.
pub struct Memory {
    name: String,
    /// Keeps the database alive while no store is open.
    _anchor: Mutex<Connection>,
}

impl Memory {
    /// An empty database.
    ///
    /// # Errors
    /// When SQLite cannot create the database.
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
    // A connection is used under a lock of ours, so SQLite needs none: its own was a tenth of the time of a simulation.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(name, flags)?;
    connection.execute_batch("PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF;")?;
    Ok(connection)
}

/// The connection with its hooks and checks.
pub(super) struct InPlace {
    connection: Mutex<Connection>,
    hooks: Arc<dyn StoreHooks>,
    committed: watch::Sender<u64>,
    written: Arc<Mutex<invariants::WrittenRows>>,
    /// The kinds of run states that have been shown to the hooks.
    states: Mutex<BTreeSet<String>>,
}

impl InPlace {
    pub(super) fn new(mut connection: Connection, hooks: Arc<dyn StoreHooks>) -> Self {
        let written = Arc::new(Mutex::new(invariants::WrittenRows::default()));
        let noted = Arc::clone(&written);
        // Without the hook rows are not checked after each transaction; the check at the end of a test still reads all rows.
        let _unwatched =
            connection.update_hook(Some(move |action: Action, _: &str, table: &str, row: i64| {
                noted.lock().note(action, table, row);
            }));
        Self {
            connection: Mutex::new(connection),
            hooks,
            committed: watch::Sender::new(0),
            written,
            states: Mutex::default(),
        }
    }

    pub(super) fn commits(&self) -> watch::Receiver<u64> {
        self.committed.subscribe()
    }

    /// Carries out a transaction in the caller's task. `transact` sends the result to the caller itself.
    pub(super) async fn write(
        &self,
        operation: &'static str,
        transact: impl FnOnce(&Connection) + Send,
    ) -> Result<(), StoreError> {
        allowed(operation, self.hooks.before(operation, true).await)?;
        {
            let connection = self.connection.lock();
            transact(&connection);
            let written = std::mem::take(&mut *self.written.lock());
            invariants::check(&connection, &written)
                .into_iter()
                .for_each(|violation| self.hooks.violated(violation));
            self.show(&connection, &written);
        }
        self.committed.send_modify(|count| *count += 1);
        self.hooks.after(operation, true).await;
        Ok(())
    }

    /// Passes runs to the hooks whose kind of state has not been shown before.
    fn show(&self, connection: &Connection, written: &invariants::WrittenRows) {
        for row in written.runs() {
            let Ok(Some((state, id))) = invariants::state(connection, row) else { continue };
            if state.starts_with(ENDED) {
                self.hooks.ended(id);
            }
            if self.states.lock().insert(state)
                && let Ok(Some(snapshot)) = invariants::snapshot(connection, id)
            {
                self.hooks.seen(&snapshot);
            }
        }
    }

    /// Reads in the caller's task.
    pub(super) async fn read(&self, operation: &'static str, work: Operation) -> Erased {
        allowed(operation, self.hooks.before(operation, false).await)?;
        let result = work(&self.connection.lock());
        self.hooks.after(operation, false).await;
        result
    }

    /// Reads without hooks, so without delay or refusal: for the checker of a simulation, not for the program under test.
    pub(super) fn peek<T>(&self, work: impl FnOnce(&Connection) -> T) -> T {
        work(&self.connection.lock())
    }
}

/// Converts the decision of a hook into the error that SQLite would return.
fn allowed(operation: &'static str, decision: HookDecision) -> Result<(), StoreError> {
    let code = match decision {
        HookDecision::Proceed => return Ok(()),
        HookDecision::Full => ffi::SQLITE_FULL,
        HookDecision::Locked => ffi::SQLITE_BUSY,
    };
    Err(StoreError::sqlite(operation, rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)))
}
