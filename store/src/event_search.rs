//! The search in the event log: one page after or before a position, by run, server, type, level, actor and time.
//!
//! ```text
//!   position   1 ...... floor [ what one page reads ) before      After   oldest first, up to `limit`, then `next`
//!                                                                 Before  newest first, up to `limit`, then `previous`
//! ```
//!
//! Invariants: a page of the whole log that looks for some of its events reads at most [`PART`] positions and says where the next page
//! begins, so that a search for a rare event is many short reads. A page that wants every event, or the events of one run or one server,
//! has no part: it reads no event in vain. All reads of a page see the database at one point in time, so that no event is between
//! two pages.

use rusqlite::{Connection, ToSql, params};

use super::events::{COLUMNS, event};
use super::rows::{ReadSnapshot, all, first};
use super::{Store, StoreError};
use model::filter::Glob;
use model::{Event, EventLevel, PROGRAM_ACTORS, RunId, Serial, Time, WORKER_ACTOR};

/// The most positions of the whole log that one page reads for a filter.
pub(super) const PART: i64 = 100_000;
const OPERATION: &str = "search the event log";

/// The filter of a search in the event log. An empty one selects every event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventSearch {
    /// Only events of this run.
    pub run: Option<RunId>,
    /// Only events of this server: its own, and those of its runs.
    pub server: Option<Serial>,
    /// Only events whose type is like one of these globs, with `*` and `?`; none wants every type.
    pub types: Vec<Glob>,
    /// Only events of this level or a higher one.
    pub level: Option<EventLevel>,
    /// Only events that this actor caused.
    pub actor: Option<ActorSearch>,
    /// Only events of this time or later.
    pub since: Option<Time>,
    /// Only events before this time.
    pub until: Option<Time>,
}

/// Which actors a search wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActorSearch {
    /// Every user and token: all but the parts of the program.
    People,
    /// The actor of this name.
    Named(String),
}

impl EventSearch {
    /// Whether events of the whole log are read that the search does not want.
    fn reads_in_vain(&self) -> bool {
        let Self { run, server, types, level, actor, since, until } = self;
        let is_filtered =
            !types.is_empty() || level.is_some() || actor.is_some() || since.is_some() || until.is_some();
        run.is_none() && server.is_none() && is_filtered
    }
}

/// Where in the log a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// The page begins after this position.
    After(i64),
    /// The page ends before this position.
    Before(i64),
    /// The page ends with the newest event.
    Newest,
}

/// One page of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct EventsFound {
    /// The events in the order of the log.
    pub events: Vec<Event>,
    /// The position after which newer events are.
    pub next: i64,
    /// The position before which older events may be. `None`: there are none, or the page is after a position.
    pub previous: Option<i64>,
}

impl Store {
    /// One page of the events that a search wants, in the order of the log.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn search_events(
        &self,
        search: EventSearch,
        place: LogPlace,
        limit: u32,
    ) -> Result<EventsFound, StoreError> {
        self.read(OPERATION, move |connection| page(connection, &search, place, limit)).await
    }
}

fn page(
    connection: &Connection,
    search: &EventSearch,
    place: LogPlace,
    limit: u32,
) -> Result<EventsFound, StoreError> {
    let _snapshot = ReadSnapshot::begin(connection, OPERATION)?;
    let last = super::events::last_seq(connection, OPERATION)?;
    let part = if search.reads_in_vain() { PART } else { i64::MAX };
    match place {
        LogPlace::After(after) => {
            // Retention leaves gaps: a part begins with an event.
            let sql = "SELECT seq FROM events WHERE seq > ?1 ORDER BY seq LIMIT 1";
            let low = first(connection, OPERATION, sql, params![after], |columns| columns.get::<i64>("seq"))?;
            let low = low.unwrap_or(after.saturating_add(1));
            let high = low.saturating_add(part - 1).min(last);
            let events = between(connection, search, Order::Oldest, (low, high), limit)?;
            let is_full = events.len() == limit as usize;
            let next = events.last().filter(|_| is_full).map_or(high, |event| event.seq).max(after);
            Ok(EventsFound { events, next, previous: None })
        }
        LogPlace::Before(_) | LogPlace::Newest => {
            let before = match place {
                LogPlace::Before(before) => before.min(last.saturating_add(1)),
                _ => last.saturating_add(1),
            };
            let low = before.saturating_sub(part).max(1);
            // One more than the page has room for shows that there are older ones.
            let range = (low, before.saturating_sub(1));
            let mut events = between(connection, search, Order::Newest, range, limit.saturating_add(1))?;
            let previous = match events.len() > limit as usize {
                true => {
                    events.truncate(limit as usize);
                    events.last().map(|oldest| oldest.seq)
                }
                false if search.reads_in_vain() => before_part(connection, search, low)?,
                false => None,
            };
            events.reverse();
            Ok(EventsFound { events, next: before.saturating_sub(1).max(0), previous })
        }
    }
}

/// The position before which the search goes on: the newest event before `low`, unless it is too old.
fn before_part(connection: &Connection, search: &EventSearch, low: i64) -> Result<Option<i64>, StoreError> {
    let sql = "SELECT seq, time FROM events WHERE seq < ?1 ORDER BY seq DESC LIMIT 1";
    let newest = first(connection, OPERATION, sql, params![low], |columns| {
        Ok((columns.get::<i64>("seq")?, columns.time("time")?))
    })?;
    Ok(newest.filter(|(_, time)| search.since.is_none_or(|since| *time >= since)).map(|(seq, _)| seq + 1))
}

/// Which events of a range are returned first.
#[derive(Clone, Copy)]
pub(super) enum Order {
    Oldest,
    Newest,
}

/// The events of the positions from `low` to `high` that a search wants, at most `limit`.
fn between(
    connection: &Connection,
    search: &EventSearch,
    order: Order,
    (low, high): (i64, i64),
    limit: u32,
) -> Result<Vec<Event>, StoreError> {
    let (since, until) =
        (search.since.map(|time| time.to_string()), search.until.map(|time| time.to_string()));
    let run = search.run.map(|run| run.to_string());
    let server = search.server.as_ref().map(Serial::as_str);
    let mut parameters: Vec<&dyn ToSql> = vec![&low, &high, &limit, &since, &until, &run, &server];
    let types: Vec<&str> = search.types.iter().map(Glob::as_str).collect();
    parameters.extend(types.iter().map(|glob| glob as &dyn ToSql));
    if let Some(ActorSearch::Named(name)) = &search.actor {
        parameters.push(name);
    }
    all(connection, OPERATION, &sql(search, order), &parameters, event)
}

/// The statement of a search.
pub(super) fn sql(search: &EventSearch, order: Order) -> String {
    /// The parameters before the types.
    const BEFORE_TYPES: usize = 7;
    let mut wanted =
        "seq BETWEEN ?1 AND ?2 AND (?4 IS NULL OR time >= ?4) AND (?5 IS NULL OR time < ?5)".to_owned();
    match search.level {
        None | Some(EventLevel::Info) => {}
        Some(EventLevel::Warn) => wanted.push_str(" AND level IN ('warn', 'error')"),
        Some(EventLevel::Error) => wanted.push_str(" AND level = 'error'"),
    }
    if !search.types.is_empty() {
        let globs = (1..=search.types.len()).map(|number| format!("type GLOB ?{}", BEFORE_TYPES + number));
        wanted.push_str(&format!(" AND ({})", globs.collect::<Vec<_>>().join(" OR ")));
    }
    match &search.actor {
        None => {}
        // The names are constants without a quotation mark.
        Some(ActorSearch::People) => {
            let parts = PROGRAM_ACTORS.join("', '");
            wanted.push_str(&format!(" AND actor NOT IN ('{parts}') AND actor NOT GLOB '{WORKER_ACTOR}*'"));
        }
        Some(ActorSearch::Named(_)) => {
            wanted.push_str(&format!(" AND actor = ?{}", BEFORE_TYPES + search.types.len() + 1));
        }
    }
    let order = match order {
        Order::Oldest => "ORDER BY seq LIMIT ?3",
        Order::Newest => "ORDER BY seq DESC LIMIT ?3",
    };
    match (search.run, &search.server) {
        (Some(_), _) => format!(
            "SELECT {COLUMNS} FROM events WHERE run = ?6 AND (?7 IS NULL OR server = ?7) AND {wanted} {order}"
        ),
        (None, Some(_)) => format!(
            "SELECT {COLUMNS} FROM events WHERE run IN (SELECT id FROM runs WHERE server = ?7) AND {wanted} AND ?6 IS NULL
             UNION ALL
             SELECT {COLUMNS} FROM events WHERE run IS NULL AND server = ?7 AND {wanted} {order}"
        ),
        (None, None) => {
            format!("SELECT {COLUMNS} FROM events WHERE {wanted} AND ?6 IS NULL AND ?7 IS NULL {order}")
        }
    }
}
