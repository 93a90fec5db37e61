//! Pages of jobs, kept until a row they were made of is written: a job that thousands look at is read and told once.
//!
//! ```text
//!   look -- kept ---------------------------------------------> Page
//!     `--- not kept ---> Blank -- read the rows, tell them --> keep: only while nothing has been written to the job
//!
//!   writer:  BEGIN   rows written ...   close(jobs)   COMMIT   open   ... the answers
//!                    `- temporary triggers say of which job
//! ```
//!
//! Invariants
//! - No page is older than what can be read: the pages of a job are gone before its transaction can be seen, and none is
//!   kept until it can.
//! - A page made of rows that were read before a write is never kept: the write has taken its blank away.
//! - Every statement of the writer's connection is noticed, since SQLite itself runs the triggers. What another program
//!   writes into the file is noticed with the writer's next transaction: the engine's sweep is one, every few seconds.
//! - What is kept has at most [`ROOM`] bytes; the one looked at the longest time ago goes first.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hashlink::LruCache;
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use super::Store;
use crate::model::RunId;

/// Bytes of all pages together.
const ROOM: usize = 16 << 20;
/// What a page costs beside its body.
const OVERHEAD: usize = 256;

/// Says of every row a page is made of which job it belongs to, when it is written.
const TRIGGERS: &str = "
    CREATE TEMP TRIGGER page_run_changed AFTER UPDATE ON main.runs BEGIN SELECT written(new.id); END;
    CREATE TEMP TRIGGER page_run_gone AFTER DELETE ON main.runs BEGIN SELECT written(old.id); END;
    CREATE TEMP TRIGGER page_job_new AFTER INSERT ON main.jobs BEGIN SELECT written(new.id); END;
    CREATE TEMP TRIGGER page_job_changed AFTER UPDATE ON main.jobs BEGIN SELECT written(new.id); END;
    CREATE TEMP TRIGGER page_job_gone AFTER DELETE ON main.jobs BEGIN SELECT written(old.id); END;
    CREATE TEMP TRIGGER page_step_new AFTER INSERT ON main.run_steps BEGIN SELECT written(new.run); END;
    CREATE TEMP TRIGGER page_step_changed AFTER UPDATE ON main.run_steps BEGIN SELECT written(new.run); END;
    CREATE TEMP TRIGGER page_step_gone AFTER DELETE ON main.run_steps BEGIN SELECT written(old.run); END;
    CREATE TEMP TRIGGER page_event_new AFTER INSERT ON main.events BEGIN SELECT written(new.run); END;
    CREATE TEMP TRIGGER page_event_changed AFTER UPDATE ON main.events BEGIN SELECT written(new.run); END;
    CREATE TEMP TRIGGER page_event_gone AFTER DELETE ON main.events BEGIN SELECT written(old.run); END;
";

/// A job as it was told, at a revision of its row.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The revision of the job that was told.
    pub revision: i64,
    /// What was told.
    pub body: Bytes,
}

/// The right to keep a page of rows that are read after this was given.
#[derive(Debug)]
pub struct Blank {
    pages: Arc<JobCache>,
    run: RunId,
    number: u64,
}

impl Blank {
    /// Keeps a page, unless the job was written since this was given.
    pub fn keep(self, page: Page) {
        self.pages.keep(self.run, self.number, page);
    }
}

impl Store {
    /// The page kept of a job; else the right to keep the next one, to be asked for before the rows are read.
    pub fn page(&self, run: RunId) -> Result<Page, Blank> {
        let pages = self.writer.pages();
        pages.look(run).map_err(|number| Blank { pages: Arc::clone(pages), run, number })
    }
}

/// The pages that are kept.
#[derive(Debug)]
pub(super) struct JobCache {
    state: Mutex<State>,
    /// The jobs written in the transaction that is under way.
    written: Arc<Mutex<HashSet<RunId>>>,
}

#[derive(Debug)]
struct State {
    slots: LruCache<RunId, Slot>,
    bytes: usize,
    blanks: u64,
    /// The jobs whose transaction is being committed.
    closed: HashSet<RunId>,
    /// SQLite's number for what other connections have written.
    others: Option<i64>,
}

#[derive(Debug)]
enum Slot {
    /// Somebody reads the rows for it.
    Blank(u64),
    Kept(Page),
}

impl Slot {
    fn bytes(&self) -> usize {
        match self {
            Slot::Blank(_) => OVERHEAD,
            Slot::Kept(page) => OVERHEAD + page.body.len(),
        }
    }
}

impl JobCache {
    /// Pages that hear of everything this connection, the writer's, writes.
    pub(super) fn watching(connection: &Connection) -> rusqlite::Result<Arc<Self>> {
        let written = Arc::new(Mutex::new(HashSet::new()));
        let noted = Arc::clone(&written);
        connection.create_scalar_function("written", 1, FunctionFlags::SQLITE_UTF8, move |call| {
            // Events of servers belong to no job, and what is no id has no page; no write fails for that.
            let id = call.get_raw(0).as_str_or_null().ok().flatten();
            lock(&noted).extend(id.and_then(|id| id.parse::<RunId>().ok()));
            Ok(rusqlite::types::Null)
        })?;
        connection.execute_batch(TRIGGERS)?;
        let state = State {
            slots: LruCache::new_unbounded(),
            bytes: 0,
            blanks: 0,
            closed: HashSet::new(),
            others: Some(others(connection)?),
        };
        Ok(Arc::new(Self { state: Mutex::new(state), written }))
    }

    /// Takes away the pages of all jobs written since the last time; none of theirs is kept until [`open`](Self::open). To be
    /// called inside of the transaction that wrote them, when nobody else can write.
    pub(super) fn close(&self, connection: &Connection) {
        let written = std::mem::take(&mut *lock(&self.written));
        let others = others(connection).ok();
        let mut state = lock(&self.state);
        // Whoever else wrote did not say what; nor is it known when the question failed.
        if others.is_some() && others == state.others {
            for run in &written {
                state.remove(*run);
            }
        } else {
            state.slots.clear();
            state.bytes = 0;
        }
        state.others = others;
        state.closed = written;
    }

    /// What was written can be seen, or was taken back.
    pub(super) fn open(&self) {
        lock(&self.state).closed.clear();
    }

    /// The page of a job, or the number of a blank for it.
    fn look(&self, run: RunId) -> Result<Page, u64> {
        let mut state = lock(&self.state);
        if let Some(Slot::Kept(page)) = state.slots.get(&run) {
            return Ok(page.clone());
        }
        state.blanks += 1;
        let number = state.blanks;
        if !state.closed.contains(&run) {
            state.put(run, Slot::Blank(number));
        }
        Err(number)
    }

    fn keep(&self, run: RunId, number: u64, page: Page) {
        let mut state = lock(&self.state);
        let slot = Slot::Kept(page);
        // One that would push out all others is not worth it.
        let fits = slot.bytes() <= ROOM;
        if fits && matches!(state.slots.peek(&run), Some(Slot::Blank(open)) if *open == number) {
            state.put(run, slot);
        }
    }
}

impl State {
    fn put(&mut self, run: RunId, slot: Slot) {
        self.remove(run);
        self.bytes += slot.bytes();
        self.slots.insert(run, slot);
        while self.bytes > ROOM
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

/// Changes when another connection has written.
fn others(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn pages() -> (Arc<JobCache>, Connection) {
        let connection = Connection::open_in_memory().unwrap();
        let tables = "CREATE TABLE runs (id); CREATE TABLE jobs (id); CREATE TABLE run_steps (run); CREATE TABLE events (run);";
        connection.execute_batch(tables).unwrap();
        (JobCache::watching(&connection).unwrap(), connection)
    }

    fn run(number: u128) -> RunId {
        RunId(Uuid::from_u128(number))
    }

    fn page(bytes: usize) -> Page {
        Page { revision: 1, body: Bytes::from(vec![0; bytes]) }
    }

    fn keep(pages: &JobCache, id: RunId, page: Page) {
        let number = pages.look(id).unwrap_err();
        pages.keep(id, number, page);
    }

    #[test]
    fn no_page_is_kept_or_shown_while_its_job_is_committed() {
        let (pages, connection) = pages();
        keep(&pages, run(1), page(1));
        keep(&pages, run(2), page(1));
        lock(&pages.written).insert(run(1));
        pages.close(&connection);
        keep(&pages, run(1), page(1));
        assert!(pages.look(run(1)).is_err());
        assert!(pages.look(run(2)).is_ok());
        let while_closed = pages.look(run(1)).unwrap_err();
        pages.open();
        pages.keep(run(1), while_closed, page(1));
        assert!(pages.look(run(1)).is_err(), "its rows may be those from before");
        keep(&pages, run(1), page(1));
        assert!(pages.look(run(1)).is_ok());
    }

    #[test]
    fn what_was_not_looked_at_for_long_makes_room() {
        let (pages, _connection) = pages();
        let size = ROOM / 4 - OVERHEAD;
        for number in 1..=4 {
            keep(&pages, run(number), page(size));
        }
        assert!(pages.look(run(1)).is_ok());
        keep(&pages, run(5), page(size));
        let state = lock(&pages.state);
        let kept: Vec<u128> = (1..=5).filter(|number| state.slots.contains_key(&run(*number))).collect();
        assert_eq!(kept, [1, 3, 4, 5]);
        assert!(state.bytes <= ROOM);
        assert_eq!(state.bytes, state.slots.iter().map(|(_, slot)| slot.bytes()).sum::<usize>());
    }

    #[test]
    fn a_page_larger_than_all_the_room_is_not_kept_and_pushes_no_other_out() {
        let (pages, _connection) = pages();
        keep(&pages, run(2), page(1));
        keep(&pages, run(1), page(ROOM + 1));
        assert!(pages.look(run(1)).is_err());
        assert!(pages.look(run(2)).is_ok());
        assert!(lock(&pages.state).bytes <= ROOM);
    }
}
