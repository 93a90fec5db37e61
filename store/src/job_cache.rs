//! The job cache: rendered job documents, kept until a row of the job is written. A job that thousands of clients poll is read
//! and rendered once.
//!
//! ```text
//!   get -- cached --------------------------------------------------> CachedJob
//!     `--- not cached --> CacheTicket -- read and render the rows --> put: only while nothing has been written to the job
//!
//!   writer:  BEGIN   rows written ...   close(jobs)   COMMIT   open   ... send results
//!                    `- temporary triggers record the job of each row
//! ```
//!
//! Invariants
//! - A cached job is never older than the rows that a reader sees: it is removed before the transaction that changes the job
//!   becomes visible, and none is cached again until it is visible.
//! - A document of rows that were read before a write is never cached: the write has invalidated its ticket.
//! - Every statement of the writer's connection is covered, because SQLite itself runs the triggers. A write by another
//!   program is detected in the writer's next transaction: the engine's sweep is one, every few seconds.
//! - The cache has at most [`MAX_BYTES`] bytes. The job that was least recently used is removed first.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use hashlink::LruCache;
use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use model::RunId;

/// The maximum size of all cached jobs together, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// The accounted size of an entry without its body, in bytes.
const OVERHEAD: usize = 256;

/// Triggers that report the job of every written row that a job document is made of.
const TRIGGERS: &str = "
    CREATE TEMP TRIGGER cache_run_changed AFTER UPDATE ON main.runs BEGIN SELECT written(new.id); END;
    CREATE TEMP TRIGGER cache_run_gone AFTER DELETE ON main.runs BEGIN SELECT written(old.id); END;
    CREATE TEMP TRIGGER cache_job_new AFTER INSERT ON main.jobs BEGIN SELECT written(new.id); END;
    CREATE TEMP TRIGGER cache_job_changed AFTER UPDATE ON main.jobs BEGIN SELECT written(new.id); END;
    CREATE TEMP TRIGGER cache_job_gone AFTER DELETE ON main.jobs BEGIN SELECT written(old.id); END;
    CREATE TEMP TRIGGER cache_inputs_changed AFTER UPDATE ON main.run_inputs BEGIN SELECT written(new.run); END;
    CREATE TEMP TRIGGER cache_step_new AFTER INSERT ON main.run_steps BEGIN SELECT written(new.run); END;
    CREATE TEMP TRIGGER cache_step_changed AFTER UPDATE ON main.run_steps BEGIN SELECT written(new.run); END;
    CREATE TEMP TRIGGER cache_step_gone AFTER DELETE ON main.run_steps BEGIN SELECT written(old.run); END;
    CREATE TEMP TRIGGER cache_event_new AFTER INSERT ON main.events BEGIN SELECT written(new.run); END;
    CREATE TEMP TRIGGER cache_event_changed AFTER UPDATE ON main.events BEGIN SELECT written(new.run); END;
    CREATE TEMP TRIGGER cache_event_gone AFTER DELETE ON main.events BEGIN SELECT written(old.run); END;
";

/// A rendered job document.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedJob {
    /// The revision of the job in the document.
    pub revision: i64,
    /// The document.
    pub body: Bytes,
}

/// The right to cache the document of a job whose rows are read after the ticket was issued.
#[derive(Debug)]
pub struct CacheTicket {
    cache: Arc<JobCache>,
    run: RunId,
    number: u64,
}

impl CacheTicket {
    /// Caches the document, unless the job was written since the ticket was issued.
    pub fn put(self, job: CachedJob) {
        self.cache.put(self.run, self.number, job);
    }
}

/// The cached jobs of one store.
#[derive(Debug)]
pub(super) struct JobCache {
    state: Mutex<State>,
    /// The jobs that the current transaction has written.
    written: Arc<Mutex<HashSet<RunId>>>,
}

#[derive(Debug)]
struct State {
    slots: LruCache<RunId, Slot>,
    bytes: usize,
    tickets: u64,
    /// The jobs whose transaction is being committed.
    closed: HashSet<RunId>,
    /// The `data_version` of SQLite, which changes with writes of other connections.
    data_version: Option<i64>,
}

#[derive(Debug)]
enum Slot {
    /// A ticket with this number is issued.
    Ticket(u64),
    Cached(CachedJob),
}

impl Slot {
    fn bytes(&self) -> usize {
        match self {
            Slot::Ticket(_) => OVERHEAD,
            Slot::Cached(job) => OVERHEAD + job.body.len(),
        }
    }
}

impl JobCache {
    /// Creates a cache and attaches it to the writer's connection, whose writes invalidate it.
    pub(super) fn attach(connection: &Connection) -> rusqlite::Result<Arc<Self>> {
        let written = Arc::new(Mutex::new(HashSet::new()));
        let recorded = Arc::clone(&written);
        connection.create_scalar_function("written", 1, FunctionFlags::SQLITE_UTF8, move |call| {
            // NULL (an event of no job) and a text that is no id are ignored; no write fails because of them.
            let id = call.get_raw(0).as_str_or_null().ok().flatten();
            recorded.lock().extend(id.and_then(|id| id.parse::<RunId>().ok()));
            Ok(rusqlite::types::Null)
        })?;
        connection.execute_batch(TRIGGERS)?;
        let state = State {
            slots: LruCache::new_unbounded(),
            bytes: 0,
            tickets: 0,
            closed: HashSet::new(),
            data_version: Some(data_version(connection)?),
        };
        Ok(Arc::new(Self { state: Mutex::new(state), written }))
    }

    /// Removes the documents of all jobs written since the last call. None of these jobs is cached until
    /// [`open`](Self::open). Must be called in the transaction that wrote the jobs, while no other connection can write.
    pub(super) fn close(&self, connection: &Connection) {
        let written = std::mem::take(&mut *self.written.lock());
        let data_version = data_version(connection).ok();
        let mut state = self.state.lock();
        // The rows that another connection wrote are unknown, so everything is removed; also when the version is unknown.
        if data_version.is_some() && data_version == state.data_version {
            for run in &written {
                state.remove(*run);
            }
        } else {
            state.slots.clear();
            state.bytes = 0;
        }
        state.data_version = data_version;
        state.closed = written;
    }

    /// Ends the exclusion of [`close`](Self::close), after the transaction was committed or rolled back.
    pub(super) fn open(&self) {
        self.state.lock().closed.clear();
    }

    /// The cached document of a job.
    ///
    /// # Errors
    /// When the job is not cached: a ticket to cache it.
    pub(super) fn cached(self: &Arc<Self>, run: RunId) -> Result<CachedJob, CacheTicket> {
        self.get(run).map_err(|number| CacheTicket { cache: Arc::clone(self), run, number })
    }

    /// The cached document of a job, or the number of a new ticket.
    fn get(&self, run: RunId) -> Result<CachedJob, u64> {
        let mut state = self.state.lock();
        if let Some(Slot::Cached(job)) = state.slots.get(&run) {
            return Ok(job.clone());
        }
        state.tickets += 1;
        let number = state.tickets;
        if !state.closed.contains(&run) {
            state.insert(run, Slot::Ticket(number));
        }
        Err(number)
    }

    fn put(&self, run: RunId, number: u64, job: CachedJob) {
        let mut state = self.state.lock();
        let slot = Slot::Cached(job);
        // A document that would evict all others is not cached.
        let fits = slot.bytes() <= MAX_BYTES;
        if fits && matches!(state.slots.peek(&run), Some(Slot::Ticket(open)) if *open == number) {
            state.insert(run, slot);
        }
    }
}

impl State {
    fn insert(&mut self, run: RunId, slot: Slot) {
        self.remove(run);
        self.bytes += slot.bytes();
        self.slots.insert(run, slot);
        while self.bytes > MAX_BYTES
            && let Some((_, slot)) = self.slots.remove_lru()
        {
            self.bytes -= slot.bytes();
        }
    }

    fn remove(&mut self, run: RunId) {
        if let Some(slot) = self.slots.remove(&run) {
            self.bytes -= slot.bytes();
        }
    }
}

/// A number that changes when another connection has written.
fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn cache() -> (Arc<JobCache>, Connection) {
        let connection = Connection::open_in_memory().unwrap();
        let tables = "CREATE TABLE runs (id); CREATE TABLE jobs (id); CREATE TABLE run_inputs (run); \
                      CREATE TABLE run_steps (run); CREATE TABLE events (run);";
        connection.execute_batch(tables).unwrap();
        (JobCache::attach(&connection).unwrap(), connection)
    }

    fn run(number: u128) -> RunId {
        RunId(Uuid::from_u128(number))
    }

    fn document(bytes: usize) -> CachedJob {
        CachedJob { revision: 1, body: Bytes::from(vec![0; bytes]) }
    }

    fn put(cache: &JobCache, id: RunId, job: CachedJob) {
        let number = cache.get(id).unwrap_err();
        cache.put(id, number, job);
    }

    #[test]
    fn no_job_is_cached_or_returned_while_its_transaction_commits() {
        let (cache, connection) = cache();
        put(&cache, run(1), document(1));
        put(&cache, run(2), document(1));
        cache.written.lock().insert(run(1));
        cache.close(&connection);
        put(&cache, run(1), document(1));
        assert!(cache.get(run(1)).is_err());
        assert!(cache.get(run(2)).is_ok());
        let while_closed = cache.get(run(1)).unwrap_err();
        cache.open();
        cache.put(run(1), while_closed, document(1));
        assert!(cache.get(run(1)).is_err(), "its rows may have been read before the commit");
        put(&cache, run(1), document(1));
        assert!(cache.get(run(1)).is_ok());
    }

    #[test]
    fn the_least_recently_used_job_is_removed_first() {
        let (cache, _connection) = cache();
        let size = MAX_BYTES / 4 - OVERHEAD;
        for number in 1..=4 {
            put(&cache, run(number), document(size));
        }
        assert!(cache.get(run(1)).is_ok());
        put(&cache, run(5), document(size));
        let state = cache.state.lock();
        let cached: Vec<u128> = (1..=5).filter(|number| state.slots.contains_key(&run(*number))).collect();
        assert_eq!(cached, [1, 3, 4, 5]);
        assert!(state.bytes <= MAX_BYTES);
        assert_eq!(state.bytes, state.slots.iter().map(|(_, slot)| slot.bytes()).sum::<usize>());
    }

    #[test]
    fn a_job_larger_than_the_cache_is_not_cached_and_evicts_no_other() {
        let (cache, _connection) = cache();
        put(&cache, run(2), document(1));
        put(&cache, run(1), document(MAX_BYTES + 1));
        assert!(cache.get(run(1)).is_err());
        assert!(cache.get(run(2)).is_ok());
        assert!(cache.state.lock().bytes <= MAX_BYTES);
    }
}
