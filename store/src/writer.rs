//! The writer: one thread that owns the writing connection and combines the writes of many callers into one transaction.
//!
//! ```text
//!  queue (bounded)   BEGIN IMMEDIATE
//!   job 1  ------->    SAVEPOINT  job 1  RELEASE          results are kept back ...
//!   job 2  ------->    SAVEPOINT  job 2  ROLLBACK TO      (a failed job rolls back alone)
//!   job 3  ------->    SAVEPOINT  job 3  RELEASE
//!                    COMMIT = one fsync                   ... and sent now
//! ```
//!
//! While one batch is synced, the next one collects in the queue. So there is no timer, and a single caller never waits for
//! other callers. After a shared transaction the writer yields the processor for a moment, so that the callers it has just
//! served share the next transaction too.
//! Invariant: no result is sent before COMMIT returned.
//!
//! An in-place store ([`super::in_place`]) has no thread: the caller carries out its own transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::audit_rows;
use super::audit_trail::{self, AuditTrail};
use super::erased::{self, Erased, Operation, Pending};
use super::error::StoreError;
use super::in_place::InPlace;
use super::row_cache::RowCache;
use model::audit::NewAuditEntry;
use model::failpoint;

/// The maximum of jobs in one transaction.
const BATCH: usize = 128;
/// The maximum of jobs in the queue. When it is full, callers wait.
const QUEUE: usize = 1024;

/// How often in a row the writer yields the processor to callers that are about to write again: some tens of microseconds,
/// less than the fsync that they share.
const YIELDS: u32 = 64;

/// Sends the result of a job when the outcome of its transaction is known.
type Reply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// The work of one caller, queued for a transaction.
struct Job {
    operation: &'static str,
    work: Operation,
    /// The audit entry that this work records if it changes a row.
    audit: Option<(Arc<AuditTrail>, NewAuditEntry)>,
    reply: oneshot::Sender<Erased>,
}

impl Job {
    /// Carries out the work. `false`: roll this job back; the reply contains the reason.
    fn run(self, connection: &Connection) -> (bool, Reply) {
        let Self { operation, work, audit, reply } = self;
        let before = connection.total_changes();
        let mut result = catch_unwind(AssertUnwindSafe(|| work(connection)))
            .unwrap_or_else(|_| Err(StoreError::Panicked { operation }));
        let mut recorded = None;
        if let Some((trail, entry)) = audit
            && result.is_ok()
            && connection.total_changes() != before
        {
            match audit_rows::append(connection, operation, &entry) {
                Ok(_head) => recorded = Some(trail),
                Err(error) => result = Err(error),
            }
        }
        let keep = result.is_ok();
        // The caller may be gone (a dropped request). Its write is committed anyway.
        let reply = move |committed: Result<(), StoreError>| {
            if let Some(trail) = recorded.filter(|_| committed.is_ok()) {
                trail.recorded();
            }
            drop(reply.send(committed.and(result)));
        };
        (keep, Box::new(reply))
    }

    /// Returns the error to the caller without carrying out the work.
    fn refuse(self, why: StoreError) {
        drop(self.reply.send(Err(why)));
    }
}

/// The handle of the writer. A writer thread ends when the last handle is dropped.
#[derive(Clone)]
pub(super) struct Writer {
    backend: Backend,
    commits: watch::Receiver<u64>,
    cache: Arc<RowCache>,
}

/// The writer thread or the in-place database that carries out the transactions.
#[derive(Clone)]
enum Backend {
    Thread(mpsc::Sender<Job>),
    InPlace(Arc<InPlace>),
}

impl Writer {
    /// Starts the thread that owns `connection`.
    pub(super) fn start(connection: Connection, cache: Arc<RowCache>) -> std::io::Result<Self> {
        let (queue, work) = mpsc::channel(QUEUE);
        let (committed, commits) = watch::channel(0);
        let thread_cache = Arc::clone(&cache);
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || run(connection, work, &committed, &thread_cache))?;
        Ok(Self { backend: Backend::Thread(queue), commits, cache })
    }

    /// A writer without a thread: each caller carries out its own transaction.
    pub(super) fn in_place(place: Arc<InPlace>, cache: Arc<RowCache>) -> Self {
        Self { commits: place.commits(), backend: Backend::InPlace(place), cache }
    }

    /// The number of committed transactions, as a channel.
    pub(super) fn commits(&self) -> watch::Receiver<u64> {
        self.commits.clone()
    }

    /// The row cache that this writer invalidates.
    pub(super) fn cache(&self) -> &Arc<RowCache> {
        &self.cache
    }

    /// The number of jobs in the queue.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        match &self.backend {
            Backend::Thread(queue) => queue.max_capacity() - queue.capacity(),
            Backend::InPlace(_) => 0,
        }
    }

    /// Carries out `work` in a transaction and returns when the transaction is durable.
    pub(super) async fn write<T, F>(&self, operation: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        erased::typed(self.write_erased(operation, erased::erase(work)).await)
    }

    fn write_erased(&self, operation: &'static str, work: Operation) -> Pending<'_> {
        let (reply, receive) = oneshot::channel();
        let job = Job { operation, work, audit: audit_trail::pending(), reply };
        Box::pin(async move {
            match &self.backend {
                Backend::Thread(queue) => queue.send(job).await.map_err(|_| StoreError::Closed)?,
                Backend::InPlace(place) => {
                    place
                        .write(operation, |connection| commit_batch(connection, &mut vec![job], &self.cache))
                        .await?;
                }
            }
            receive.await.map_err(|_| StoreError::Closed)?
        })
    }
}

fn run(
    connection: Connection,
    mut queue: mpsc::Receiver<Job>,
    committed: &watch::Sender<u64>,
    cache: &RowCache,
) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut last = 1;
    while let Some(first) = queue.blocking_recv() {
        batch.push(first);
        collect(&mut queue, &mut batch, last);
        last = batch.len();
        commit_batch(&connection, &mut batch, cache);
        committed.send_modify(|count| *count += 1);
    }
    let _best_effort = connection.execute_batch("PRAGMA optimize; PRAGMA wal_checkpoint(TRUNCATE);");
}

/// Takes the other queued jobs. Callers that shared the last transaction have just got their results and are about to write
/// again: the writer yields the processor to them a few times, so that they share the next transaction too. A single caller
/// causes no yield.
fn collect(queue: &mut mpsc::Receiver<Job>, batch: &mut Vec<Job>, last: usize) {
    let mut idle = 0;
    while batch.len() < BATCH {
        match queue.try_recv() {
            Ok(next) => {
                batch.push(next);
                idle = 0;
            }
            Err(_) if batch.len() < last && idle < YIELDS => {
                idle += 1;
                std::thread::yield_now();
            }
            Err(_) => return,
        }
    }
}

fn commit_batch(connection: &Connection, batch: &mut Vec<Job>, cache: &RowCache) {
    if let Err(source) = step(connection, "BEGIN IMMEDIATE") {
        let why = StoreError::sqlite("begin a transaction", source);
        batch.drain(..).for_each(|job| job.refuse(why.clone()));
        return;
    }
    let written_before = connection.total_changes();
    let mut replies = Vec::with_capacity(batch.len());
    let mut broken = None;
    for job in batch.drain(..) {
        match &broken {
            Some(why) => job.refuse(StoreError::clone(why)),
            None => broken = in_savepoint(connection, job, &mut replies).err(),
        }
    }
    // A transaction that wrote nothing (a claim without a due run) has no effect, so it is no point of failure.
    let writes = connection.total_changes() != written_before;
    if writes {
        failpoint::hit("commit");
    }
    cache.close(connection);
    let committed = match broken {
        Some(why) => Err(why),
        None => {
            step(connection, "COMMIT").map_err(|source| StoreError::sqlite("commit a transaction", source))
        }
    };
    if committed.is_err() && !connection.is_autocommit() {
        let _best_effort = connection.execute_batch("ROLLBACK");
    }
    cache.open();
    if writes {
        failpoint::hit("committed");
    }
    for reply in replies {
        reply(committed.clone());
    }
}

/// Runs one job in a savepoint.
///
/// # Errors
/// When the savepoint itself fails; the whole transaction is lost then.
fn in_savepoint(connection: &Connection, job: Job, replies: &mut Vec<Reply>) -> Result<(), StoreError> {
    let failed = |source| StoreError::sqlite("use a savepoint", source);
    if let Err(source) = step(connection, "SAVEPOINT job") {
        let why = failed(source);
        job.refuse(why.clone());
        return Err(why);
    }
    let (keep, reply) = job.run(connection);
    replies.push(reply);
    if !keep {
        step(connection, "ROLLBACK TO job").map_err(failed)?;
    }
    step(connection, "RELEASE job").map_err(failed)
}

/// Carries out a transaction statement. The connection caches it, so it is parsed once.
fn step(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}
