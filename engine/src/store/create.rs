//! Making runs: idempotency, locks and the run's own rows, all or nothing.

use rusqlite::{Connection, params};

use super::locks;
use super::rows::{append_events, execute, find_run, first, to_json};
use super::{Store, StoreError};
use crate::model::{Effect, NewJob, NewRun, OnConflict, Run, RunId, Serial, rank};

const OPERATION: &str = "create a run";

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Creation {
    /// The run.
    pub run: NewRun,
}

/// What became of a creation.
#[derive(Clone, Debug, PartialEq)]
pub enum Created {
    /// The run exists now.
    New(Box<Run>),
    /// The same key and request made this run earlier; nothing was written.
    Replay(RunId),
    /// The key belongs to another request; nothing was written.
    KeyReused(RunId),
    /// Another family holds the lock; nothing was written.
    Conflict {
        /// The run that holds it.
        holder: RunId,
    },
    /// The server is not registered; nothing was written.
    UnknownServer,
}

impl Store {
    /// Makes a run; its rows, locks and events are durable when this answers.
    pub async fn create(&self, creation: Creation) -> Result<Created, StoreError> {
        self.writer.write(OPERATION, move |connection| create(connection, &creation.run)).await
    }
}

impl Store {
    /// What an order under this key would come to because of an earlier one: a replay, a key that is taken, or nothing.
    pub async fn earlier(
        &self,
        server: &Serial,
        key: &str,
        request_sha256: &str,
    ) -> Result<Option<Created>, StoreError> {
        let (server, key, request) = (server.clone(), key.to_owned(), request_sha256.to_owned());
        self.read("find an earlier order", move |connection| keyed(connection, &server, &key, &request)).await
    }

    /// The unfinished job of a server.
    pub async fn active_job(&self, server: &Serial) -> Result<Option<RunId>, StoreError> {
        let server = server.clone();
        self.read("find the unfinished job of a server", move |connection| active_job(connection, &server))
            .await
    }
}

/// Makes a run inside the writer's transaction.
pub(super) fn create(connection: &Connection, new: &NewRun) -> Result<Created, StoreError> {
    if let Some(serial) = &new.server {
        let known = first(
            connection,
            OPERATION,
            "SELECT 1 AS known FROM servers WHERE serial = ?1",
            &[&serial.as_str()],
            |_| Ok(()),
        )?;
        if known.is_none() {
            return Ok(Created::UnknownServer);
        }
    }
    for effect in &new.effects {
        if let Effect::JobCreated(job) = effect
            && let Some(earlier) = replay(connection, job)?
        {
            return Ok(earlier);
        }
    }
    if find_run(connection, OPERATION, new.id)?.is_some() {
        // A step that ordered a child, crashed and orders it again.
        return Ok(Created::Replay(new.id));
    }
    let root = new.parent.map_or(new.id, |(_, root)| root);
    for lock in &new.locks {
        if lock.on_conflict == OnConflict::Refuse
            && let Some(holder) = locks::holder(connection, &lock.resource)?
            && holder != root
        {
            return Ok(Created::Conflict { holder });
        }
    }
    for effect in &new.effects {
        if let Effect::JobCreated(job) = effect
            && let Some(holder) = active_job(connection, &job.server)?
        {
            return Ok(Created::Conflict { holder });
        }
    }
    insert_run(connection, new, root)?;
    locks::request(connection, new, root)?;
    super::commit::apply_effects(connection, new.id, new.created_at, &new.effects)?;
    append_events(connection, OPERATION, Some(new.id), new.server.as_ref(), new.created_at, &new.events)?;
    let run = find_run(connection, OPERATION, new.id)?.ok_or(StoreError::Corrupt {
        operation: OPERATION,
        column: "id",
        detail: "the row just written is not there".to_owned(),
    })?;
    Ok(Created::New(Box::new(run)))
}

/// The batch a run was ordered with; empty when it was ordered alone.
pub(super) fn batch_of(new: &NewRun) -> String {
    let batch = new.effects.iter().find_map(|effect| match effect {
        Effect::JobCreated(job) => job.batch,
        _ => None,
    });
    batch.map_or_else(String::new, |batch| batch.to_string())
}

fn replay(connection: &Connection, job: &NewJob) -> Result<Option<Created>, StoreError> {
    match &job.idempotency_key {
        Some(key) => keyed(connection, &job.server, key, &job.request_sha256),
        None => Ok(None),
    }
}

fn keyed(
    connection: &Connection,
    server: &Serial,
    key: &str,
    request_sha256: &str,
) -> Result<Option<Created>, StoreError> {
    let earlier = first(
        connection,
        OPERATION,
        "SELECT id, request_sha256 FROM jobs WHERE server_serial = ?1 AND idempotency_key = ?2",
        &[&server.as_str(), &key],
        |columns| Ok((columns.parse("id", str::parse::<RunId>)?, columns.get::<String>("request_sha256")?)),
    )?;
    Ok(earlier.map(
        |(id, hash)| {
            if hash == request_sha256 { Created::Replay(id) } else { Created::KeyReused(id) }
        },
    ))
}

/// The unfinished job of a server. Its lock keeps other families away; this keeps a family from doing it to itself.
fn active_job(connection: &Connection, server: &Serial) -> Result<Option<RunId>, StoreError> {
    first(
        connection,
        OPERATION,
        "SELECT id FROM jobs WHERE server_serial = ?1 AND status <> 'complete'",
        &[&server.as_str()],
        |columns| columns.parse("id", str::parse::<RunId>),
    )
}

fn insert_run(connection: &Connection, new: &NewRun, root: RunId) -> Result<(), StoreError> {
    let first_queue =
        new.plan.forward.first().or(new.plan.finish.first()).map_or("", |step| step.queue.as_str());
    let created = new.created_at.to_string();
    execute(
        connection,
        OPERATION,
        "INSERT INTO runs (id, kind, kind_version, server, parent, root, phase, queue, priority, next_run_at,
                           deadline_at, progress_at, created_by, created_at, updated_at, batch, rank)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'queued', ?7, ?8, ?9, ?10, ?9, ?11, ?9, ?9, ?12, ?13)",
        params![
            new.id.to_string(),
            new.kind,
            new.kind_version,
            new.server.as_ref().map(|serial| serial.as_str()),
            new.parent.map(|(parent, _)| parent.to_string()),
            root.to_string(),
            first_queue,
            new.priority,
            created,
            new.deadline_at.to_string(),
            new.created_by,
            batch_of(new),
            rank(new.created_at, new.priority)
        ],
    )?;
    execute(
        connection,
        OPERATION,
        "INSERT INTO run_inputs (run, input, plan) VALUES (?1, ?2, ?3)",
        params![new.id.to_string(), to_json(OPERATION, &new.input)?, to_json(OPERATION, &new.plan)?],
    )?;
    Ok(())
}
