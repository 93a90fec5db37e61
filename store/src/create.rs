//! Creating runs: idempotency, locks and the rows of the run, all or nothing.

use rusqlite::{Connection, params};

use super::rows::{append_events, execute, find_run, first, to_json};
use super::{Store, StoreError};
use super::{locks, queues};
use model::{Effect, Idempotency, NewRun, OnConflict, Run, RunId, Serial, rank};

const OPERATION: &str = "create a run";

/// A request to create a run.
#[derive(Clone, Debug)]
pub struct Creation {
    /// The run.
    pub run: NewRun,
}

/// The result of creating a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Created {
    /// The run was created.
    New(Box<Run>),
    /// An earlier request with this key and content created this run; nothing was written.
    Replay(RunId),
    /// The key belongs to a request with other content; nothing was written.
    KeyReused(RunId),
    /// Another run tree holds a lock of the run, or is queued for one that the run needs alone; nothing was written.
    Conflict {
        /// The root of the run tree that holds the lock or is queued for it.
        holder: RunId,
    },
    /// The server is not registered; nothing was written.
    UnknownServer,
}

impl Store {
    /// Creates a run. Its rows, locks and events are durable when this returns.
    ///
    /// # Errors
    /// When the database cannot be written; the run does not exist then. A refused run is no error.
    pub async fn create(&self, creation: Creation) -> Result<Created, StoreError> {
        self.writer.write(OPERATION, move |connection| create(connection, &creation.run)).await
    }
}

impl Store {
    /// The result that an earlier request with this idempotency key gives a new one: [`Created::Replay`],
    /// [`Created::KeyReused`], or `None` when the key is unused. A request without a key repeats none.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn earlier(
        &self,
        server: &Serial,
        request: Option<&Idempotency>,
    ) -> Result<Option<Created>, StoreError> {
        let Some(request) = request.cloned() else { return Ok(None) };
        let server = server.clone();
        self.read("find an earlier request", move |connection| keyed(connection, Some(&server), &request))
            .await
    }

    /// The newest unfinished job of a server, of any workflow.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn active_job(&self, server: &Serial) -> Result<Option<RunId>, StoreError> {
        let server = server.clone();
        self.read("find the unfinished job of a server", move |connection| {
            super::servers::unended(connection, &server)
        })
        .await
    }
}

/// Creates a run in the writer's transaction.
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
    if let Some(request) = &new.request.idempotency
        && let Some(earlier) = keyed(connection, new.server.as_ref(), request)?
    {
        return Ok(earlier);
    }
    if find_run(connection, OPERATION, new.id)?.is_some() {
        // A step requested this child, the process crashed, and the step requests the child again.
        return Ok(Created::Replay(new.id));
    }
    let root = new.parent.map_or(new.id, |(_, root)| root);
    for lock in &new.locks {
        let other = match lock.on_conflict {
            OnConflict::Refuse => {
                queues::holder(connection, &lock.resource)?.filter(|holder| *holder != root)
            }
            OnConflict::RefuseQueued => queues::other_claimant(connection, &lock.resource, root)?,
            OnConflict::Wait => None,
        };
        if let Some(holder) = other {
            return Ok(Created::Conflict { holder });
        }
    }
    for effect in &new.effects {
        if let Effect::JobCreated(job) = effect
            && let Some(holder) = active_installation(connection, &job.server)?
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

/// The batch of a new run; empty for a run without a batch.
pub(super) fn batch_of(new: &NewRun) -> String {
    new.request.batch.map_or_else(String::new, |batch| batch.to_string())
}

fn keyed(
    connection: &Connection,
    server: Option<&Serial>,
    request: &Idempotency,
) -> Result<Option<Created>, StoreError> {
    let earlier = first(
        connection,
        OPERATION,
        "SELECT run, request_sha256 FROM idempotency_keys WHERE server = ?1 AND key = ?2",
        &[&server.map_or("", Serial::as_str), &request.key],
        |columns| Ok((columns.parse("run", str::parse::<RunId>)?, columns.get::<String>("request_sha256")?)),
    )?;
    Ok(earlier.map(
        |(id, hash)| {
            if hash == request.request_sha256 { Created::Replay(id) } else { Created::KeyReused(id) }
        },
    ))
}

/// The unfinished installation of a server. The lock of the server excludes other run trees; this check excludes a second job of the
/// same run tree.
fn active_installation(connection: &Connection, server: &Serial) -> Result<Option<RunId>, StoreError> {
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
        "INSERT INTO runs (id, workflow, workflow_version, server, parent, root, phase, queue, priority, next_run_at,
                           deadline_at, progress_at, created_by, created_at, updated_at, batch, rank, purpose,
                           restored, canary)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'queued', ?7, ?8, ?9, ?10, ?9, ?11, ?9, ?9, ?12, ?13, ?14,
                 EXISTS (SELECT 1 FROM servers WHERE servers.serial = ?4 AND servers.restored IS NOT NULL), ?15)",
        params![
            new.id.to_string(),
            new.workflow,
            new.workflow_version.0,
            new.server.as_ref().map(|serial| serial.as_str()),
            new.parent.map(|(parent, _)| parent.to_string()),
            root.to_string(),
            first_queue,
            new.priority,
            created,
            new.deadline_at.to_string(),
            new.created_by,
            batch_of(new),
            rank(new.created_at, new.priority),
            new.purpose.as_str(),
            new.request.canary
        ],
    )?;
    execute(
        connection,
        OPERATION,
        "INSERT INTO run_inputs (run, input, plan, labels, retry_of)
         VALUES (?1, seal_text(?2, 'run_inputs/' || ?1 || '/input'), ?3, ?4, ?5)",
        params![
            new.id.to_string(),
            to_json(OPERATION, &new.input)?,
            to_json(OPERATION, &new.plan)?,
            to_json(OPERATION, &new.request.labels)?,
            new.request.retry_of.map(|id| id.to_string())
        ],
    )?;
    if let Some(Idempotency { key, request_sha256 }) = &new.request.idempotency {
        execute(
            connection,
            OPERATION,
            "INSERT INTO idempotency_keys (server, key, request_sha256, run) VALUES (?1, ?2, ?3, ?4)",
            params![
                new.server.as_ref().map_or("", |serial| serial.as_str()),
                key,
                request_sha256,
                new.id.to_string()
            ],
        )?;
    }
    Ok(())
}
