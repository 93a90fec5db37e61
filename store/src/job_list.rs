//! Lists of jobs: filters, orders and pages.
//!
//! ```text
//!  newest first:       one query in the order (created_at, id), downwards
//!  needs a person first:
//!    rank 0  held, or of a restored server             idx_runs_open
//!    rank 1  failed within a day, no newer job         idx_runs_outcome
//!    rank 2  every other job that has not ended        idx_runs_open
//!    rank 3  the rest                                  idx_runs_created
//!    each rank is a query of its own, newest first; a page continues with the next rank while it has room
//! ```
//!
//! Invariants: a page costs what its rows cost, not what all jobs cost, while an index serves the filter; the ranks are disjoint
//! and cover every job; a cursor names the last row of its page.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Connection, ToSql};

use super::filters::{self, Present, Sql};
use super::jobs::{JOB, TABLES, job};
use super::rows::{Columns, RUN, ReadSnapshot, all, first};
use super::{Store, StoreError};
use model::{BatchId, Filter, IdPrefix, Job, JobStatus, Outcome, RunId, Serial, Time};

/// The number of ranks of [`JobListOrder::Attention`].
const RANKS: u8 = 4;

/// The order of a list of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum JobListOrder {
    /// The newest first.
    #[default]
    Newest,
    /// Jobs that need a person come first: held and restored jobs, failures of the last day that no newer job of the server
    /// replaced, then jobs that have not ended, then the rest; the newest first in each.
    Attention,
}

impl JobListOrder {
    /// The order's name in requests.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The order of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// The last row of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobCursor {
    /// The rank of the row; 0 in the order [`JobListOrder::Newest`].
    pub rank: u8,
    /// When the job was created.
    pub created_at: Time,
    /// The job.
    pub id: RunId,
}

/// A filter for a list of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// Only jobs in this public state.
    pub status: Option<JobStatus>,
    /// Only jobs with this outcome.
    pub outcome: Option<Outcome>,
    /// Only jobs of this workflow.
    pub workflow: Option<String>,
    /// Only jobs of this server.
    pub server: Option<Serial>,
    /// Only jobs with a failure of this class.
    pub failure_class: Option<String>,
    /// Only jobs of this batch.
    pub batch: Option<BatchId>,
    /// Only jobs that this job started as its children. Without it, jobs that no other job started.
    pub parent: Option<RunId>,
    /// Only jobs whose id begins so, whether another job started them or not.
    pub id: Option<IdPrefix>,
    /// Only jobs that have all of these labels themselves.
    pub labels: Vec<(String, String)>,
    /// Only jobs that satisfy this filter.
    pub filter: Filter,
    /// Only the newest installation of each server. [`Store::job_ids`] counts the others.
    pub newest: Option<Newest>,
    /// Only jobs of servers with all of these labels.
    pub server_labels: BTreeMap<String, String>,
    /// The order.
    pub order: JobListOrder,
    /// The present time and shortages, on which conditions depend; without it, the beginning of 1970 and none.
    pub present: Option<Present>,
    /// The maximum of jobs to return.
    pub limit: u32,
    /// Only jobs after this one in the order of the list.
    pub after: Option<JobCursor>,
}

/// Which installation of a server is its newest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Newest {
    /// Jobs of this batch do not count as newer ones.
    pub except: Option<BatchId>,
}

/// The jobs of a filter, without their content.
#[derive(Clone, Debug, PartialEq)]
pub struct JobIds {
    /// The ids, the newest first, at most the limit of the filter.
    pub ids: Vec<RunId>,
    /// The number of all jobs of the filter.
    pub count: u64,
    /// The number of jobs that satisfy the filter and are left out because a newer installation of their server exists.
    pub superseded: u64,
}

/// One page of a list of jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// The last job of this page, as `after` of the next page; `None` on the last page.
    pub next: Option<JobCursor>,
}

impl Store {
    /// One page of jobs.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn jobs(&self, filter: JobFilter) -> Result<JobPage, StoreError> {
        const OPERATION: &str = "list jobs";
        self.read(OPERATION, move |connection| {
            let limit = filter.limit as usize;
            let mut rows: Vec<(u8, Job)> = Vec::new();
            let _snapshot = ReadSnapshot::begin(connection, OPERATION)?;
            for rank in filter.ranks() {
                let room = i64::from(filter.limit) + 1 - i64::try_from(rows.len()).unwrap_or(0);
                if room <= 0 {
                    break;
                }
                let page = filter.page(rank, &format!("{RUN}, {JOB}"), TABLES, room);
                rows.extend(page.all(connection, OPERATION, job)?.into_iter().map(|job| (rank, job)));
            }
            let more = rows.len() > limit;
            rows.truncate(limit);
            let cursor = |(rank, job): &(u8, Job)| JobCursor {
                rank: *rank,
                created_at: job.run.created_at,
                id: job.run.id,
            };
            let next = rows.last().filter(|_| more).map(cursor);
            Ok(JobPage { jobs: rows.into_iter().map(|(_, job)| job).collect(), next })
        })
        .await
    }

    /// The ids of the jobs that satisfy a filter, and how many there are. All is of one point in time.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn job_ids(&self, filter: JobFilter) -> Result<JobIds, StoreError> {
        const OPERATION: &str = "find the jobs of a filter";
        let filter = JobFilter { order: JobListOrder::Newest, after: None, ..filter };
        self.read(OPERATION, move |connection| {
            let _snapshot = ReadSnapshot::begin(connection, OPERATION)?;
            let page = filter.page(0, "runs.id", "runs", i64::from(filter.limit));
            let ids = page.all(connection, OPERATION, |columns| columns.parse("id", str::parse::<RunId>))?;
            let count = |filter: &JobFilter| {
                let Sql { text, values } = filter.conditions(0);
                let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
                let sql = format!("SELECT count(*) AS jobs FROM runs WHERE {text}");
                let count = first(connection, OPERATION, &sql, &values, |columns| columns.count("jobs"))?;
                Ok::<u64, StoreError>(count.unwrap_or(0))
            };
            let selected = count(&filter)?;
            let superseded = match filter.newest {
                Some(_) => count(&JobFilter { newest: None, ..filter.clone() })?.saturating_sub(selected),
                None => 0,
            };
            Ok(JobIds { ids, count: selected, superseded })
        })
        .await
    }
}

/// A query of one page.
pub(super) struct PageQuery {
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
}

impl PageQuery {
    fn all<T>(
        &self,
        connection: &Connection,
        operation: &'static str,
        read: impl Fn(&Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let values: Vec<&dyn ToSql> = self.values.iter().map(|value| value as &dyn ToSql).collect();
        all(connection, operation, &self.sql, &values, read)
    }
}

impl JobFilter {
    fn present(&self) -> Present {
        let epoch = Time::from_timestamp(jiff::Timestamp::UNIX_EPOCH);
        self.present.unwrap_or(Present { now: epoch, pressure: false })
    }

    /// The ranks that a page may have rows of.
    fn ranks(&self) -> std::ops::Range<u8> {
        match self.order {
            JobListOrder::Newest => 0..1,
            JobListOrder::Attention => self.after.map_or(0, |after| after.rank)..RANKS,
        }
    }

    /// The query of one rank: the first `limit` rows after the cursor.
    pub(super) fn page(&self, rank: u8, columns: &str, tables: &str, limit: i64) -> PageQuery {
        let Sql { mut text, mut values } = self.conditions(rank);
        if let Some(after) = self.after.filter(|after| after.rank == rank) {
            text.push_str(" AND (runs.created_at, runs.id) < (?, ?)");
            values.push(Value::Text(after.created_at.to_string()));
            values.push(Value::Text(after.id.to_string()));
        }
        values.push(Value::Integer(limit));
        let sql = format!(
            "SELECT {columns} FROM {tables} WHERE {text} ORDER BY runs.created_at DESC, runs.id DESC LIMIT ?"
        );
        PageQuery { sql, values }
    }

    /// The SQL condition of the jobs of one rank, with its parameters in order. Only what is filtered is in the text, so that
    /// SQLite chooses the index of it.
    fn conditions(&self, rank: u8) -> Sql {
        let mut all = Sql::default();
        let mut add = |part: Sql| {
            if !all.text.is_empty() {
                all.text.push_str(" AND ");
            }
            all.text.push_str(&part.text);
            all.values.extend(part.values);
        };
        let text =
            |text: &str, value: String| Sql { text: text.to_owned(), values: vec![Value::Text(value)] };
        match (self.parent, &self.id) {
            (Some(parent), _) => add(text("runs.parent = ?", parent.to_string())),
            (None, None) => add(Sql::new("runs.parent IS NULL")),
            (None, Some(_)) => {}
        }
        if let Some(prefix) = &self.id {
            // A range of the primary key. Its end is behind every character of an id.
            let range = [prefix.as_str().to_owned(), format!("{}g", prefix.as_str())];
            let values = range.into_iter().map(Value::Text).collect();
            add(Sql { text: "runs.id >= ? AND runs.id < ?".to_owned(), values });
        }
        if self.order == JobListOrder::Attention {
            add(rank_condition(rank, self.present().now));
        }
        if let Some(status) = self.status {
            let open = if status == JobStatus::Complete { "" } else { "runs.phase <> 'ended' AND " };
            let Sql { text, values } = filters::status(status);
            add(Sql { text: format!("{open}{text}"), values });
        }
        if let Some(outcome) = self.outcome {
            add(text("runs.outcome IS NOT NULL AND runs.outcome = ?", outcome.as_str().to_owned()));
        }
        if let Some(workflow) = &self.workflow {
            add(text("runs.workflow = ?", workflow.clone()));
        }
        if let Some(server) = &self.server {
            add(text("runs.server = ?", server.to_string()));
        }
        if let Some(class) = &self.failure_class {
            add(text("runs.failure_class IS NOT NULL AND runs.failure_class = ?", class.clone()));
        }
        if let Some(batch) = self.batch {
            add(text("runs.batch <> '' AND runs.batch = ?", batch.to_string()));
        }
        for (key, value) in &self.labels {
            let values = vec![Value::Text(key.clone()), Value::Text(value.clone())];
            let text = "runs.id IN (SELECT run FROM run_labels WHERE key = ? AND value = ?)".to_owned();
            add(Sql { text, values });
        }
        for term in self.filter.terms() {
            add(filters::of_job(term, self.present()));
        }
        if let Some(Newest { except }) = self.newest {
            let Sql { text, values } = filters::superseded(except);
            add(Sql { text: format!("NOT {text}"), values });
        }
        for (key, value) in &self.server_labels {
            let values = vec![Value::Text(key.clone()), Value::Text(value.clone())];
            add(Sql {
                text: "runs.server IN (SELECT serial FROM server_labels WHERE key = ? AND value = ?)"
                    .to_owned(),
                values,
            });
        }
        all
    }
}

/// The rows of one rank of [`JobListOrder::Attention`].
fn rank_condition(rank: u8, now: Time) -> Sql {
    const STOPPED: &str = "(runs.hold IS NOT NULL OR runs.restored = 1)";
    const UNRESOLVED_FAILURE: &str = "runs.updated_at >= ? AND NOT EXISTS (SELECT 1 FROM runs AS newer
         WHERE newer.server = runs.server AND newer.parent IS NULL
         AND newer.rowid > runs.rowid)";
    let since = || vec![Value::Text(now.minus(filters::UNRESOLVED).to_string())];
    // A failure in its cleanup has not ended and is a failure already.
    let failed = "runs.outcome IS NOT NULL AND runs.outcome = 'failed'";
    match rank {
        0 => Sql::new(format!("runs.phase <> 'ended' AND {STOPPED}")),
        1 => Sql {
            text: format!("{failed} AND NOT (runs.phase <> 'ended' AND {STOPPED}) AND {UNRESOLVED_FAILURE}"),
            values: since(),
        },
        2 => Sql {
            text: format!(
                "runs.phase <> 'ended' AND NOT {STOPPED} AND NOT ({failed} AND {UNRESOLVED_FAILURE})"
            ),
            values: since(),
        },
        _ => Sql {
            text: format!("runs.phase = 'ended' AND NOT ({failed} AND {UNRESOLVED_FAILURE})"),
            values: since(),
        },
    }
}
