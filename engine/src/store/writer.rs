//! The one writer: a thread that owns the writing connection and puts many callers' work into one transaction.
//!
//! ```text
//!  queue (bounded)   BEGIN IMMEDIATE
//!   job 1  ------->    SAVEPOINT  job 1  RELEASE          answers are kept back ...
//!   job 2  ------->    SAVEPOINT  job 2  ROLLBACK TO      (a failed job undoes itself only)
//!   job 3  ------->    SAVEPOINT  job 3  RELEASE
//!                    COMMIT = one fsync                   ... and sent now
//! ```
//!
//! While one batch is being synced, the next one collects in the queue; so there is no timer and a single caller waits for
//! nobody. After a shared transaction the writer gives way for a moment, so that those it answered share the next one too.
//! Invariant: no answer leaves before COMMIT returned.
//!
//! A store that works in place ([`super::in_place`]) has no thread: the caller carries out its own transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::db::StoreError;
use super::in_place::InPlace;
use super::job_cache::JobCache;
use crate::model::failpoint;

/// Jobs that share one transaction at most.
const BATCH: usize = 128;
/// Jobs that wait for the writer at most; callers beyond it wait for a place.
const QUEUE: usize = 1024;

/// How often in a row the writer gives up the processor for callers who are about to come back: some tens of microseconds,
/// less than the fsync that is shared.
const PATIENCE: u32 = 64;

/// Sends the answer of a job once the fate of its transaction is known.
type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// A caller's work, waiting for its transaction.
trait Job: Send {
    /// Does it; `false` means "roll me back", the reason is inside the answer.
    fn run(self: Box<Self>, connection: &Connection) -> (bool, Answer);
    /// Answers without doing it.
    fn refuse(self: Box<Self>, why: StoreError);
}

struct Work<T, F> {
    operation: &'static str,
    work: F,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Work<T, F>
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
{
    fn run(self: Box<Self>, connection: &Connection) -> (bool, Answer) {
        let Self { operation, work, answer } = *self;
        let result = catch_unwind(AssertUnwindSafe(|| work(connection)))
            .unwrap_or_else(|_| Err(StoreError::Panicked { operation }));
        let keep = result.is_ok();
        // The caller may be gone (a dropped request); its write stands all the same.
        (keep, Box::new(move |committed| drop(answer.send(committed.and(result)))))
    }

    fn refuse(self: Box<Self>, why: StoreError) {
        drop(self.answer.send(Err(why)));
    }
}

/// The handle of the writer thread; the thread ends when the last handle is gone.
#[derive(Clone)]
pub(super) struct Writer {
    hands: Backend,
    commits: watch::Receiver<u64>,
    pages: Arc<JobCache>,
}

/// Who carries out the transactions.
#[derive(Clone)]
enum Backend {
    Thread(mpsc::Sender<Box<dyn Job>>),
    InPlace(Arc<InPlace>),
}

impl Writer {
    /// Starts the thread that owns `connection`.
    pub(super) fn start(connection: Connection, pages: Arc<JobCache>) -> std::io::Result<Self> {
        let (queue, work) = mpsc::channel(QUEUE);
        let (committed, commits) = watch::channel(0);
        let kept = Arc::clone(&pages);
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || run(connection, work, &committed, &kept))?;
        Ok(Self { hands: Backend::Thread(queue), commits, pages })
    }

    /// A writer whose callers do the work themselves.
    pub(super) fn in_place(place: Arc<InPlace>, pages: Arc<JobCache>) -> Self {
        Self { commits: place.commits(), hands: Backend::InPlace(place), pages }
    }

    /// Counts the committed transactions.
    pub(super) fn commits(&self) -> watch::Receiver<u64> {
        self.commits.clone()
    }

    /// The pages that are kept of what was written.
    pub(super) fn pages(&self) -> &Arc<JobCache> {
        &self.pages
    }

    /// How many jobs wait for the writer.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        match &self.hands {
            Backend::Thread(queue) => queue.max_capacity() - queue.capacity(),
            Backend::InPlace(_) => 0,
        }
    }

    /// Carries out `work` in a transaction and answers once it is durable.
    pub(super) async fn write<T, F>(&self, operation: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, receive) = oneshot::channel();
        let job = Box::new(Work { operation, work, answer });
        match &self.hands {
            Backend::Thread(queue) => queue.send(job).await.map_err(|_| StoreError::Closed)?,
            Backend::InPlace(place) => {
                place
                    .write(operation, |connection| commit_batch(connection, &mut vec![job], &self.pages))
                    .await?;
            }
        }
        receive.await.map_err(|_| StoreError::Closed)?
    }
}

fn run(
    connection: Connection,
    mut queue: mpsc::Receiver<Box<dyn Job>>,
    committed: &watch::Sender<u64>,
    pages: &JobCache,
) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut last = 1;
    while let Some(first) = queue.blocking_recv() {
        batch.push(first);
        collect(&mut queue, &mut batch, last);
        last = batch.len();
        commit_batch(&connection, &mut batch, pages);
        committed.send_modify(|count| *count += 1);
    }
    let _best_effort = connection.execute_batch("PRAGMA optimize; PRAGMA wal_checkpoint(TRUNCATE);");
}

/// Takes what else is waiting. Callers who shared the last transaction were just answered and are about to come back: the
/// processor is given up a few times for them, so that they share the next one too. A caller who is alone waits for nobody.
fn collect(queue: &mut mpsc::Receiver<Box<dyn Job>>, batch: &mut Vec<Box<dyn Job>>, last: usize) {
    let mut idle = 0;
    while batch.len() < BATCH {
        match queue.try_recv() {
            Ok(next) => {
                batch.push(next);
                idle = 0;
            }
            Err(_) if batch.len() < last && idle < PATIENCE => {
                idle += 1;
                std::thread::yield_now();
            }
            Err(_) => return,
        }
    }
}

fn commit_batch(connection: &Connection, batch: &mut Vec<Box<dyn Job>>, pages: &JobCache) {
    if let Err(source) = step(connection, "BEGIN IMMEDIATE") {
        let why = StoreError::sqlite("begin a transaction", source);
        batch.drain(..).for_each(|job| job.refuse(why.clone()));
        return;
    }
    let written_before = connection.total_changes();
    let mut answers = Vec::with_capacity(batch.len());
    let mut broken = None;
    for job in batch.drain(..) {
        match &broken {
            Some(why) => job.refuse(StoreError::clone(why)),
            None => broken = in_savepoint(connection, job, &mut answers).err(),
        }
    }
    // A transaction that wrote nothing (a claim that found nothing due) is no effect.
    let writes = connection.total_changes() != written_before;
    if writes {
        failpoint::hit("commit");
    }
    pages.close(connection);
    let committed = match broken {
        Some(why) => Err(why),
        None => {
            step(connection, "COMMIT").map_err(|source| StoreError::sqlite("commit a transaction", source))
        }
    };
    if committed.is_err() && !connection.is_autocommit() {
        let _best_effort = connection.execute_batch("ROLLBACK");
    }
    pages.open();
    if writes {
        failpoint::hit("committed");
    }
    for answer in answers {
        answer(committed.clone());
    }
}

/// Runs one job in a savepoint. `Err` when the savepoint itself broke: then the whole transaction is lost.
fn in_savepoint(
    connection: &Connection,
    job: Box<dyn Job>,
    answers: &mut Vec<Answer>,
) -> Result<(), StoreError> {
    let broke = |source| StoreError::sqlite("use a savepoint", source);
    if let Err(source) = step(connection, "SAVEPOINT job") {
        let why = broke(source);
        job.refuse(why.clone());
        return Err(why);
    }
    let (keep, answer) = job.run(connection);
    answers.push(answer);
    if !keep {
        step(connection, "ROLLBACK TO job").map_err(broke)?;
    }
    step(connection, "RELEASE job").map_err(broke)
}

/// Carries out a statement of the transaction itself, parsed once.
fn step(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}
