//! The row cache: job documents and records of servers, kept until a row of them is written. A job that thousands of clients poll is
//! read and rendered once, and a server is read once for the steps of its job.
//!
//! ```text
//!   writer:  BEGIN   rows written ...   close   COMMIT   open   ... send results
//!                    `- temporary triggers note the job or the server of each row
//! ```
//!
//! Invariants
//! - A cached value equals what its rows give; [`super::keyed_cache`] holds the order of writes and reads.
//! - Every statement of the writer's connection is covered, because SQLite itself runs the triggers. A write by another
//!   program is detected in the writer's next transaction: the engine's sweep is one, at least every 15 seconds while a worker is free.

use std::collections::HashSet;
use std::hash::Hash;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use serde_json::Value;

use super::keyed_cache::{KeyedCache, Ticket, Weighed};
use model::{RunId, Serial, Server};

/// The maximum size of all cached jobs together, in bytes.
const MAX_JOB_BYTES: usize = 16 << 20;
/// The maximum size of all cached servers together, in bytes.
const MAX_SERVER_BYTES: usize = 8 << 20;

/// Triggers that note the job or the server of every written row that a cached value is made of. A new row of `runs` or `servers`
/// is part of no value that was read before.
const TRIGGERS: &str = "
    CREATE TEMP TRIGGER cache_run_changed AFTER UPDATE ON main.runs BEGIN SELECT job_written(new.id); END;
    CREATE TEMP TRIGGER cache_run_gone AFTER DELETE ON main.runs BEGIN SELECT job_written(old.id); END;
    CREATE TEMP TRIGGER cache_job_new AFTER INSERT ON main.jobs BEGIN SELECT job_written(new.id); END;
    CREATE TEMP TRIGGER cache_job_changed AFTER UPDATE ON main.jobs BEGIN SELECT job_written(new.id); END;
    CREATE TEMP TRIGGER cache_job_gone AFTER DELETE ON main.jobs BEGIN SELECT job_written(old.id); END;
    CREATE TEMP TRIGGER cache_inputs_changed AFTER UPDATE ON main.run_inputs BEGIN SELECT job_written(new.run); END;
    CREATE TEMP TRIGGER cache_step_new AFTER INSERT ON main.run_steps BEGIN SELECT job_written(new.run); END;
    CREATE TEMP TRIGGER cache_step_changed AFTER UPDATE ON main.run_steps BEGIN SELECT job_written(new.run); END;
    CREATE TEMP TRIGGER cache_step_gone AFTER DELETE ON main.run_steps BEGIN SELECT job_written(old.run); END;
    CREATE TEMP TRIGGER cache_event_new AFTER INSERT ON main.events BEGIN SELECT job_written(new.run); END;
    CREATE TEMP TRIGGER cache_event_changed AFTER UPDATE ON main.events BEGIN SELECT job_written(new.run); END;
    CREATE TEMP TRIGGER cache_event_gone AFTER DELETE ON main.events BEGIN SELECT job_written(old.run); END;
    CREATE TEMP TRIGGER cache_server_changed AFTER UPDATE ON main.servers
        BEGIN SELECT server_written(old.serial), server_written(new.serial); END;
    CREATE TEMP TRIGGER cache_server_gone AFTER DELETE ON main.servers BEGIN SELECT server_written(old.serial); END;
    CREATE TEMP TRIGGER cache_observed_new AFTER INSERT ON main.server_observed
        BEGIN SELECT server_written(new.serial); END;
    CREATE TEMP TRIGGER cache_observed_changed AFTER UPDATE ON main.server_observed
        BEGIN SELECT server_written(old.serial), server_written(new.serial); END;
    CREATE TEMP TRIGGER cache_observed_gone AFTER DELETE ON main.server_observed
        BEGIN SELECT server_written(old.serial); END;
";

/// A rendered job document.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedJob {
    /// The revision of the job in the document.
    pub revision: i64,
    /// The document.
    pub body: Bytes,
}

impl Weighed for CachedJob {
    fn weight(&self) -> usize {
        self.body.len()
    }
}

impl Weighed for Arc<Server> {
    fn weight(&self) -> usize {
        let map = |map: &Option<serde_json::Map<String, Value>>| {
            map.iter().flatten().map(|(key, value)| key.len() + weight(value)).sum::<usize>()
        };
        let labels: usize = self.labels.iter().map(|(key, value)| key.len() + value.len() + 48).sum();
        let documents: usize = self.observed.iter().chain(&self.learned).map(weight).sum();
        size_of::<Server>()
            + self.bmc_address.len()
            + self.bmc_password.len()
            + labels
            + map(&self.quirks)
            + map(&self.network)
            + documents
    }
}

/// The approximate size of a JSON value, in bytes.
fn weight(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(weight).sum(),
            Value::Object(map) => map.iter().map(|(key, value)| key.len() + weight(value)).sum(),
            _ => 0,
        }
}

/// The right to cache the document of a job whose rows are read after the ticket was issued.
#[derive(Debug)]
pub struct CacheTicket(Ticket<RunId, CachedJob>);

impl CacheTicket {
    /// Caches the document, unless the job was written since the ticket was issued.
    pub fn put(self, job: CachedJob) {
        self.0.put(job);
    }
}

/// The cached jobs and servers of one store.
#[derive(Debug)]
pub(super) struct RowCache {
    jobs: Arc<KeyedCache<RunId, CachedJob>>,
    servers: Arc<KeyedCache<Serial, Arc<Server>>>,
    /// The `data_version` of SQLite, which changes with writes of other connections.
    data_version: Mutex<Option<i64>>,
}

impl RowCache {
    /// Creates a cache and attaches it to the writer's connection, whose writes invalidate it.
    pub(super) fn attach(connection: &Connection) -> rusqlite::Result<Self> {
        let jobs = Arc::new(KeyedCache::new(MAX_JOB_BYTES));
        let servers = Arc::new(KeyedCache::new(MAX_SERVER_BYTES));
        note(connection, "job_written", jobs.written())?;
        note(connection, "server_written", servers.written())?;
        connection.execute_batch(TRIGGERS)?;
        Ok(Self { jobs, servers, data_version: Mutex::new(Some(data_version(connection)?)) })
    }

    /// Removes what was written since the last call. None of it is cached until [`open`](Self::open). Must be called in the
    /// transaction that wrote the rows, while no other connection can write.
    pub(super) fn close(&self, connection: &Connection) {
        let version = data_version(connection).ok();
        let former = std::mem::replace(&mut *self.data_version.lock(), version);
        // The rows that another connection wrote are unknown, so everything is removed; also when the version is unknown.
        let complete = version.is_some() && version == former;
        self.jobs.close(complete);
        self.servers.close(complete);
    }

    /// Ends the exclusion of [`close`](Self::close), after the transaction was committed or rolled back.
    pub(super) fn open(&self) {
        self.jobs.open();
        self.servers.open();
    }

    /// The cached document of a job.
    ///
    /// # Errors
    /// When the job is not cached: a ticket to cache it.
    pub(super) fn job(&self, run: RunId) -> Result<CachedJob, CacheTicket> {
        self.jobs.cached(&run).map_err(CacheTicket)
    }

    /// The cached record of a server.
    ///
    /// # Errors
    /// When the server is not cached: a ticket to cache it.
    pub(super) fn server(&self, serial: &Serial) -> Result<Arc<Server>, Ticket<Serial, Arc<Server>>> {
        self.servers.cached(serial)
    }
}

/// Defines the SQL function `name(key)`, which notes a key. NULL (an event of no job) and a text that is no key are ignored; no
/// write fails because of them.
fn note<K: FromStr + Eq + Hash + Send + 'static>(
    connection: &Connection,
    name: &str,
    written: Arc<Mutex<HashSet<K>>>,
) -> rusqlite::Result<()> {
    connection.create_scalar_function(name, 1, FunctionFlags::SQLITE_UTF8, move |call| {
        let key = call.get_raw(0).as_str_or_null().ok().flatten();
        written.lock().extend(key.and_then(|key| key.parse::<K>().ok()));
        Ok(rusqlite::types::Null)
    })
}

/// A number that changes when another connection has written.
fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}
