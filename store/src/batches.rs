//! Batches: jobs that one request created together, and their progress.

use rusqlite::types::Value;
use rusqlite::{ToSql, params};

use super::create;
use super::filters::{Sql, labels_of_job, superseded};
use super::jobs::{self, JobCount};
use super::rows::{Columns, all, append_events, execute, first, named};
use super::{Created, Store, StoreError};
use model::{
    Batch, BatchId, BatchStop, BatchStopReason, FailedJob, Filter, IdPrefix, NewEvent, NewRun, RunId, Time,
};

/// The maximum of failed jobs of one read: the maximum of rows of a batch.
const MAX_FAILED: u32 = 10_000;

/// The result of creating a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreatedBatch {
    /// The batch was created.
    New,
    /// An earlier request with this key and content created this batch. Its jobs can be submitted again; none is created twice.
    Replay(Batch),
    /// The key belongs to a request with other content.
    KeyReused(BatchId),
}

/// The last batch of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchCursor {
    /// When the batch was created.
    pub created_at: Time,
    /// The batch.
    pub id: BatchId,
}

/// A filter for a list of batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchFilter {
    /// Only batches created at this time or later.
    pub since: Option<Time>,
    /// Only batches whose id begins so.
    pub id: Option<IdPrefix>,
    /// A selector of labels: only batches with a job for which all of them hold.
    pub labels: Filter,
    /// Only batches after this one in the order of the list.
    pub after: Option<BatchCursor>,
    /// The maximum of batches to return.
    pub limit: u32,
}

/// One page of a list of batches.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchPage {
    /// The batches.
    pub batches: Vec<Batch>,
    /// The last batch of this page, as `after` of the next page; `None` on the last page.
    pub next: Option<BatchCursor>,
}

impl Store {
    /// Creates a batch without its jobs, which follow in chunks. The batch is durable when this returns.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then. A repeated key is no error.
    pub async fn create_batch(&self, batch: Batch) -> Result<CreatedBatch, StoreError> {
        const OPERATION: &str = "create a batch";
        self.writer
            .write(OPERATION, move |connection| {
                let earlier = match &batch.idempotency_key {
                    Some(key) => first(
                        connection,
                        OPERATION,
                        "SELECT * FROM batches WHERE idempotency_key = ?1",
                        &[key],
                        read_batch,
                    )?,
                    None => None,
                };
                match earlier {
                    Some(earlier) if earlier.request_sha256 == batch.request_sha256 => {
                        return Ok(CreatedBatch::Replay(earlier));
                    }
                    Some(earlier) => return Ok(CreatedBatch::KeyReused(earlier.id)),
                    None => {}
                }
                execute(
                    connection,
                    OPERATION,
                    "INSERT INTO batches (id, idempotency_key, request_sha256, total, max_parallel, created_by, created_at,
                                          canary, stop_after, retry_of, gate, gate_since)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, iif(?8 > 0, 'canary', NULL),
                             iif(?8 > 0, ?7, NULL))",
                    params![
                        batch.id.to_string(),
                        batch.idempotency_key,
                        batch.request_sha256,
                        batch.total,
                        batch.max_parallel,
                        batch.created_by,
                        batch.created_at.to_string(),
                        batch.canary,
                        batch.stop_after,
                        batch.retry_of.map(|id| id.to_string())
                    ],
                )?;
                Ok(CreatedBatch::New)
            })
            .await
    }

    /// Records that every row of a batch has its result. A batch stops if each of its canary rows was refused: no job could open its
    /// gate. Returns the batch after the change; `None` when there is no such batch.
    ///
    /// # Errors
    /// When the database cannot be written, or the row of the batch cannot be read; nothing is changed then.
    pub async fn batch_filled(&self, id: BatchId, now: Time) -> Result<Option<Batch>, StoreError> {
        const OPERATION: &str = "complete the creation of a batch";
        self.writer
            .write(OPERATION, move |connection| {
                let (id, now) = (id.to_string(), now.to_string());
                let sql = "UPDATE batches SET filled_at = ?2 WHERE id = ?1 AND filled_at IS NULL";
                execute(connection, OPERATION, sql, params![id, now])?;
                let sql = "UPDATE batches SET gate = 'stopped', gate_since = ?2 WHERE id = ?1 AND gate = 'canary' AND NOT EXISTS
                               (SELECT 1 FROM runs WHERE runs.batch = ?1 AND runs.batch <> '' AND runs.canary = 1)";
                execute(connection, OPERATION, sql, params![id, now])?;
                first(connection, OPERATION, "SELECT * FROM batches WHERE id = ?1", &[&id], read_batch)
            })
            .await
    }

    /// Creates runs in one transaction. Each run is created or refused on its own. All are durable when this returns.
    ///
    /// # Errors
    /// When the database cannot be written; no run is created then. A refused run is no error.
    pub async fn create_many(&self, runs: Vec<NewRun>) -> Result<Vec<Created>, StoreError> {
        self.writer
            .write("create runs", move |connection| {
                runs.iter().map(|run| create::create(connection, run)).collect()
            })
            .await
    }

    /// The batch with this id.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn batch(&self, id: BatchId) -> Result<Option<Batch>, StoreError> {
        const OPERATION: &str = "read a batch";
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT * FROM batches WHERE id = ?1",
                &[&id.to_string()],
                read_batch,
            )
        })
        .await
    }

    /// One page of batches, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn batches(&self, filter: BatchFilter) -> Result<BatchPage, StoreError> {
        const OPERATION: &str = "list batches";
        self.read(OPERATION, move |connection| {
            let BatchFilter { since, id, labels, after, limit } = filter;
            let mut sql = "SELECT * FROM batches WHERE 1".to_owned();
            let mut values: Vec<Value> = Vec::new();
            let mut add = |condition: &str, texts: &[String]| {
                sql.push_str(condition);
                values.extend(texts.iter().cloned().map(Value::Text));
            };
            if let Some(since) = since {
                add(" AND created_at >= ?", &[since.to_string()]);
            }
            if let Some(prefix) = id {
                // A range of the primary key. Its end is behind every character of an id.
                let range = [prefix.as_str().to_owned(), format!("{}g", prefix.as_str())];
                add(" AND id >= ? AND id < ?", &range);
            }
            if !labels.is_empty() {
                let Sql { text, values: wanted } = labels_of_job(&labels);
                sql.push_str(
                    " AND EXISTS (SELECT 1 FROM runs WHERE runs.batch = batches.id AND runs.batch <> '' AND ",
                );
                sql.push_str(&text);
                sql.push(')');
                values.extend(wanted);
            }
            let mut add = |condition: &str, texts: &[String]| {
                sql.push_str(condition);
                values.extend(texts.iter().cloned().map(Value::Text));
            };
            if let Some(BatchCursor { created_at, id }) = after {
                add(" AND (created_at, id) < (?, ?)", &[created_at.to_string(), id.to_string()]);
            }
            sql.push_str(" ORDER BY created_at DESC, id DESC LIMIT ?");
            values.push(Value::Integer(i64::from(limit) + 1));
            let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
            let mut batches = all(connection, OPERATION, &sql, &values, read_batch)?;
            let more = batches.len() > limit as usize;
            batches.truncate(limit as usize);
            let cursor = |batch: &Batch| BatchCursor { created_at: batch.created_at, id: batch.id };
            let next = batches.last().filter(|_| more).map(cursor);
            Ok(BatchPage { batches, next })
        })
        .await
    }

    /// The batch that a request with this idempotency key created.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn batch_of_key(&self, key: &str) -> Result<Option<Batch>, StoreError> {
        const OPERATION: &str = "find a batch by its key";
        let key = key.to_owned();
        self.read(OPERATION, move |connection| {
            let sql = "SELECT * FROM batches WHERE idempotency_key = ?1";
            first(connection, OPERATION, sql, &[&key], read_batch)
        })
        .await
    }

    /// The jobs of a batch, counted by public state and outcome.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn batch_counts(&self, id: BatchId) -> Result<Vec<JobCount>, StoreError> {
        const OPERATION: &str = "count the jobs of a batch";
        self.read(OPERATION, move |connection| {
            all(
                connection,
                OPERATION,
                "SELECT workflow, phase, outcome, count(*) AS jobs FROM runs WHERE batch = ?1 AND batch <> ''
                 GROUP BY workflow, phase, outcome",
                &[&id.to_string()],
                jobs::count,
            )
        })
        .await
    }

    /// The jobs of a batch that have not ended. `queued_only`: only jobs that have not started.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn open_jobs_of_batch(&self, id: BatchId, queued_only: bool) -> Result<Vec<RunId>, StoreError> {
        const OPERATION: &str = "find the open jobs of a batch";
        self.read(OPERATION, move |connection| {
            all(
                connection,
                OPERATION,
                "SELECT id FROM runs WHERE batch = ?1 AND batch <> ''
                 AND (phase = 'queued' OR (phase IN ('running', 'waiting', 'held') AND NOT ?2)) ORDER BY id DESC",
                params![id.to_string(), queued_only],
                |columns| columns.parse("id", str::parse::<RunId>),
            )
        })
        .await
    }
}

impl Store {
    /// The jobs of a batch that have failed, the oldest first. A newer installation of the server counts as such unless it belongs
    /// to the batch `except`.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn failed_jobs_of_batch(
        &self,
        id: BatchId,
        except: Option<BatchId>,
    ) -> Result<Vec<FailedJob>, StoreError> {
        const OPERATION: &str = "read the failures of a batch";
        self.read(OPERATION, move |connection| {
            let Sql { text: superseded, values } = superseded(except);
            let sql = format!(
                "SELECT id, server, failure_class, failure, {superseded} AS superseded FROM runs
                 WHERE batch = ? AND batch <> '' AND outcome = 'failed' AND failure IS NOT NULL AND parent IS NULL
                 ORDER BY created_at, id LIMIT ?"
            );
            let (id, most) = (id.to_string(), MAX_FAILED);
            let values = values.iter().map(|value| value as &dyn ToSql);
            let values: Vec<&dyn ToSql> = values.chain([&id as &dyn ToSql, &most]).collect();
            all(
                connection,
                OPERATION,
                &sql,
                &values,
                |columns| {
                    let id = columns.parse("id", str::parse)?;
                    let server = columns.parse_opt("server", str::parse)?;
                    let class = columns.text_opt("failure_class")?.unwrap_or_default().into();
                    let failure: model::Failure = columns.json("failure")?;
                    let model::Failure { step, summary, next_action, .. } = failure;
                    let superseded = columns.get("superseded")?;
                    Ok(FailedJob { id, server, class, step, summary, next_action, superseded })
                },
            )
        })
        .await
    }

    /// Opens the gate of a batch and counts its failures from 0 again. Returns the batch after the change, and whether the gate
    /// was closed; `None` when there is no such batch.
    ///
    /// # Errors
    /// When the database cannot be written, or the row of the batch cannot be read; the gate is not changed then.
    pub async fn continue_batch(
        &self,
        id: BatchId,
        by: &str,
        now: Time,
    ) -> Result<Option<(Batch, bool)>, StoreError> {
        const OPERATION: &str = "continue a batch";
        let by = by.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let sql = "UPDATE batches SET gate = NULL, gate_since = ?2, failures = 0 WHERE id = ?1 AND gate IS NOT NULL";
                let opened = execute(connection, OPERATION, sql, params![id.to_string(), now.to_string()])? > 0;
                if opened {
                    let event = NewEvent::info("batch.continued", format!("batch {id} continued by {by}")).by(&by);
                    append_events(connection, OPERATION, None, None, now, &[event])?;
                }
                let sql = "SELECT * FROM batches WHERE id = ?1";
                let batch = first(connection, OPERATION, sql, &[&id.to_string()], read_batch)?;
                Ok(batch.map(|batch| (batch, opened)))
            })
            .await
    }
}

fn read_batch(columns: &Columns<'_>) -> Result<Batch, StoreError> {
    let gate = columns.parse_opt("gate", named(BatchStopReason::parse))?;
    let (since, failures) = (columns.time_opt("gate_since")?, columns.get("failures")?);
    let stop = gate.zip(since).map(|(reason, since)| BatchStop { reason, since, failures });
    Ok(Batch {
        canary: columns.get("canary")?,
        stop_after: columns.get("stop_after")?,
        retry_of: columns.parse_opt("retry_of", str::parse)?,
        stop,
        id: columns.parse("id", str::parse)?,
        idempotency_key: columns.get("idempotency_key")?,
        request_sha256: columns.get("request_sha256")?,
        total: columns.get("total")?,
        max_parallel: columns.get("max_parallel")?,
        filled_at: columns.time_opt("filled_at")?,
        created_by: columns.get("created_by")?,
        created_at: columns.time("created_at")?,
    })
}
