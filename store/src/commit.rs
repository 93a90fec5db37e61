//! Commits of a change of a run: the new row, step records, plan, events, effects and children in one transaction.
//!
//! Guard: the row still has the epoch and the revision that the change was computed from. A higher epoch means that the
//! worker lost its lease and must stop ([`Committed::Lost`]). A higher revision means that the row has changed, for example
//! by a signal, and the change must be computed again from the new row ([`Committed::Moved`]).

use std::sync::Arc;

use rusqlite::{Connection, params};

use super::create::{Created, create};
use super::locks;
use super::rows::{ReadSnapshot, append_events, execute, find_run, snapshot, to_json};
use super::{Store, StoreError, grants};
use model::mutant::{self, Mutant};
use model::{
    Effect, JobStatus, NewEvent, NewRun, Outcome, Phase, Run, RunChange, RunId, RunVersion, Serial, Snapshot,
    Stage, StepName, StepRecord, Time,
};

const OPERATION: &str = "commit a change of a run";
pub(super) const PROGRESS: &str = "write the progress of a step";

/// The result of a commit.
#[derive(Clone, Debug, PartialEq)]
pub enum Committed {
    /// Written; the row after the change.
    Applied(Box<Run>),
    /// The run has changed since; nothing was written. The change must be computed again from this snapshot.
    Moved(Box<Snapshot>),
    /// Another owner has the lease, or the run is deleted; nothing was written. The worker must stop.
    Lost,
    /// A child was refused because another run tree holds its lock; nothing was written.
    ChildRefused {
        /// The root of the run tree that holds the lock.
        holder: RunId,
    },
    /// A child was refused because its server is not registered; nothing was written.
    ChildUnknownServer,
}

impl Store {
    /// Writes a change that was computed from the row of this version.
    ///
    /// # Errors
    /// When the database cannot be written; nothing of the change is stored then. A row that has changed is no error.
    pub async fn commit(
        &self,
        change: impl Into<Arc<RunChange>>,
        expected: RunVersion,
        now: Time,
    ) -> Result<Committed, StoreError> {
        let change = change.into();
        self.writer.write(OPERATION, move |connection| commit(connection, &change, expected, now)).await
    }

    /// Appends events of a run and writes effects in one transaction, without a change of the run.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn append_with(
        &self,
        run: RunId,
        server: Option<Serial>,
        events: Vec<NewEvent>,
        effects: Vec<Effect>,
        now: Time,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "append events with effects";
        self.writer
            .write(OPERATION, move |connection| {
                append_events(connection, OPERATION, Some(run), server.as_ref(), now, &events)?;
                apply_effects(connection, run, now, &effects)
            })
            .await
    }

    /// Extends a lease and writes a checkpoint of a running step. `false`: the lease is lost.
    ///
    /// # Errors
    /// When the database cannot be written; the lease is not extended then. A lost lease is no error.
    pub async fn progress(&self, run: Run, record: StepRecord, now: Time) -> Result<bool, StoreError> {
        self.progress_with(run, record, Vec::new(), now).await
    }

    /// Extends a lease and writes a checkpoint of a running step with its effects, in one transaction. `false`: the lease is
    /// lost, and nothing was written.
    ///
    /// # Errors
    /// When the database cannot be written; neither lease nor checkpoint nor effects are stored then.
    pub async fn progress_with(
        &self,
        run: Run,
        record: StepRecord,
        effects: Vec<Effect>,
        now: Time,
    ) -> Result<bool, StoreError> {
        self.writer
            .write(PROGRESS, move |connection| write_progress(connection, &run, &record, &effects, now))
            .await
    }

    /// The snapshot of a run with the reads of its media; `None` when there is no such run.
    ///
    /// # Errors
    /// When the database cannot be read, or a row of the run has content that this version cannot read.
    pub async fn snapshot(&self, id: RunId) -> Result<Option<Snapshot>, StoreError> {
        const OPERATION: &str = "read a run";
        self.read(OPERATION, move |connection| {
            let _snapshot = ReadSnapshot::begin(connection, OPERATION)?;
            let Some(run) = find_run(connection, OPERATION, id)? else { return Ok(None) };
            let media = grants::media_evidence(connection, OPERATION, id)?;
            Ok(Some(Snapshot { media, ..snapshot(connection, OPERATION, run)? }))
        })
        .await
    }

    /// The snapshots of runs, from one read transaction and in the order of `ids`. `None` for a run that does not exist or
    /// cannot be read.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn snapshots(&self, ids: Vec<RunId>) -> Result<Vec<Option<Snapshot>>, StoreError> {
        const OPERATION: &str = "read some runs";
        self.read(OPERATION, move |connection| {
            let _snapshot = ReadSnapshot::begin(connection, OPERATION)?;
            let read = |id: &RunId| -> Result<Option<Snapshot>, StoreError> {
                find_run(connection, OPERATION, *id)?
                    .map(|run| snapshot(connection, OPERATION, run))
                    .transpose()
            };
            ids.iter()
                .map(|id| match read(id) {
                    Err(error) if error.is_corrupt() => Ok(None),
                    other => other,
                })
                .collect()
        })
        .await
    }
}

/// Extends a lease and writes the record of a running step with its effects in the writer's transaction. `false`: the lease is
/// lost.
pub(super) fn write_progress(
    connection: &Connection,
    run: &Run,
    record: &StepRecord,
    effects: &[Effect],
    now: Time,
) -> Result<bool, StoreError> {
    let expires_at = run.lease.as_ref().map(|lease| lease.expires_at.to_string());
    let written = execute(
        connection,
        PROGRESS,
        "UPDATE runs SET lease_expires_at = ?4, next_run_at = ?5, progress_at = ?6
         WHERE id = ?1 AND lease_epoch = ?2 AND lease_owner = ?3",
        params![
            run.id.to_string(),
            run.epoch,
            run.lease.as_ref().map(|lease| lease.owner.as_str()),
            expires_at,
            run.next_run_at.map(|time| time.to_string()),
            now.to_string()
        ],
    )?;
    if written == 1 {
        execute(
            connection,
            PROGRESS,
            "UPDATE jobs SET lease_expires_at = ?2 WHERE id = ?1",
            params![run.id.to_string(), expires_at],
        )?;
        write_step(connection, run.id, record)?;
        apply_effects(connection, run.id, now, effects)?;
    }
    Ok(written == 1)
}

/// Writes a change in the writer's transaction.
pub(super) fn commit(
    connection: &Connection,
    change: &RunChange,
    expected: RunVersion,
    now: Time,
) -> Result<Committed, StoreError> {
    let id = change.run.id;
    let Some(current) = find_run(connection, OPERATION, id)? else { return Ok(Committed::Lost) };
    let expected = match mutant::active(Mutant::IgnoresEpoch) {
        true => current.version(),
        false => expected,
    };
    if current.epoch != expected.epoch {
        return Ok(Committed::Lost);
    }
    if current.revision != expected.revision {
        return Ok(Committed::Moved(Box::new(snapshot(connection, OPERATION, current)?)));
    }
    if let Some(refused) = create_children(connection, &change.children)? {
        return Ok(refused);
    }
    let Some(run) = write_row(connection, &current, &change.run, now)? else { return Ok(Committed::Lost) };
    for record in &change.steps {
        write_step(connection, id, record)?;
    }
    if let Some(plan) = &change.plan {
        execute(
            connection,
            OPERATION,
            "UPDATE run_inputs SET plan = ?2 WHERE run = ?1",
            params![id.to_string(), to_json(OPERATION, plan)?],
        )?;
    }
    for (name, key) in &change.consumed {
        execute(
            connection,
            OPERATION,
            "UPDATE signals SET consumed = 1 WHERE run = ?1 AND name = ?2 AND key = ?3",
            params![id.to_string(), name, key],
        )?;
    }
    apply_effects(connection, id, now, &change.effects)?;
    append_events(connection, OPERATION, Some(id), run.server.as_ref(), now, &change.events)?;
    project(connection, &current, &run, now)?;
    if current.phase.is_forward() && !run.phase.is_forward() {
        locks::withdraw(connection, &run)?;
        locks::release_permits(connection, &run, now)?;
        if run.outcome == Some(Outcome::Cancelled) {
            super::signals::cancel_children(connection, &run, now)?;
        }
    }
    if run.phase == Phase::Ended {
        // Needed when the step that ends them has failed: no grant outlives its run.
        grants::end(connection, id, now)?;
        locks::release(connection, run.root, now)?;
        super::signals::signal_parent(connection, &run, now)?;
    }
    Ok(Committed::Applied(Box::new(run)))
}

/// Creates the children of a change, all or none. The savepoint rolls back the rows, locks and events of the children that
/// were created before a refused one. Children of earlier changes are not affected.
fn create_children(connection: &Connection, children: &[NewRun]) -> Result<Option<Committed>, StoreError> {
    if children.is_empty() {
        return Ok(None);
    }
    let savepoint = |sql: &str| {
        connection
            .execute_batch(sql)
            .map_err(|source| StoreError::sqlite("use a savepoint for children", source))
    };
    savepoint("SAVEPOINT children")?;
    for child in children {
        let refused = match create(connection, child)? {
            Created::New(_) | Created::Replay(_) => continue,
            Created::Conflict { holder } | Created::KeyReused(holder) => Committed::ChildRefused { holder },
            Created::UnknownServer => Committed::ChildUnknownServer,
        };
        savepoint("ROLLBACK TO children; RELEASE children")?;
        return Ok(Some(refused));
    }
    savepoint("RELEASE children")?;
    Ok(None)
}

/// Replaces the row `old` of a run if it still has its version. Returns the new row; `None` when nothing was written.
pub(super) fn write_row(
    connection: &Connection,
    old: &Run,
    new: &Run,
    now: Time,
) -> Result<Option<Run>, StoreError> {
    let expected = old.version();
    let last_worker = new.lease.as_ref().map(|lease| lease.owner.clone()).or_else(|| new.last_worker.clone());
    let run = Run { revision: expected.revision + 1, updated_at: now, last_worker, ..new.clone() };
    let written = execute(
        connection,
        OPERATION,
        &update_of(old, &run),
        params![
            run.id.to_string(),
            expected.epoch,
            expected.revision,
            run.phase.as_str(),
            run.outcome.map(|outcome| outcome.as_str()),
            run.step.as_ref().map(StepName::as_str),
            run.wait.as_ref().map(|wait| to_json(OPERATION, wait)).transpose()?,
            run.hold.as_ref().map(|hold| to_json(OPERATION, hold)).transpose()?,
            run.failure.as_ref().map(|failure| failure.class.as_str()),
            run.failure.as_ref().map(|failure| to_json(OPERATION, failure)).transpose()?,
            run.queue,
            run.priority,
            run.next_run_at.map(|time| time.to_string()),
            run.deadline_at.to_string(),
            run.progress_at.to_string(),
            run.lease.as_ref().map(|lease| lease.owner.as_str()),
            run.lease.as_ref().map(|lease| lease.expires_at.to_string()),
            run.epoch,
            run.cancel_requested_at.map(|time| time.to_string()),
            run.revision,
            run.updated_at.to_string(),
            run.last_worker
        ],
    )?;
    Ok((written == 1).then_some(run))
}

/// The statement that writes `new` over `old`. An index whose columns a statement names is written even if no value changes, so the
/// columns of indexes are named in groups, each when one of them changes: a step that continues changes only its due time.
fn update_of(old: &Run, new: &Run) -> String {
    let class = |run: &Run| run.failure.as_ref().map(|failure| failure.class.clone());
    let standing = |run: &Run| (run.phase, run.outcome, class(run), run.cancel_requested_at, run.deadline_at);
    let moves = standing(old) != standing(new) || (&old.queue, old.priority) != (&new.queue, new.priority);
    let owner = |run: &Run| run.lease.as_ref().map(|lease| lease.owner.clone());
    let changes_hands = (owner(old), old.epoch) != (owner(new), new.epoch);
    let mut columns = "step = ?6, wait = ?7, hold = ?8, failure = ?10, progress_at = ?15, lease_expires_at = ?17, revision = ?20,
             updated_at = ?21, last_worker = ?22"
        .to_owned();
    if moves {
        columns.push_str(
            ", phase = ?4, outcome = ?5, failure_class = ?9, queue = ?11, priority = ?12, deadline_at = ?14,
             cancel_requested_at = ?19",
        );
    }
    if changes_hands {
        columns.push_str(", lease_owner = ?16, lease_epoch = ?18");
    }
    if old.next_run_at != new.next_run_at {
        columns.push_str(", next_run_at = ?13");
    }
    format!("UPDATE runs SET {columns} WHERE id = ?1 AND lease_epoch = ?2 AND revision = ?3")
}

/// The text of a stage in the column of steps.
pub(super) fn stage_text(stage: Stage) -> &'static str {
    match stage {
        Stage::Forward => "forward",
        Stage::Finish => "finish",
    }
}

fn write_step(connection: &Connection, run: RunId, record: &StepRecord) -> Result<(), StoreError> {
    execute(
        connection,
        OPERATION,
        "INSERT INTO run_steps (run, stage, idx, step, key, attempt, epoch, phase, output, started_at, ended_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT (run, stage, idx) DO UPDATE SET attempt = excluded.attempt, epoch = excluded.epoch,
             phase = excluded.phase, output = excluded.output, started_at = excluded.started_at,
             ended_at = excluded.ended_at",
        params![
            run.to_string(),
            stage_text(record.at.stage),
            record.at.index,
            record.name.as_str(),
            record.key,
            record.attempt,
            record.epoch,
            record.phase.as_str(),
            to_json(OPERATION, &record.output)?,
            record.started_at.to_string(),
            record.ended_at.map(|time| time.to_string())
        ],
    )?;
    Ok(())
}

/// Updates the row of the `jobs` table from the run, which was `old` before (docs/seeds.md S000-41). A run without such a row changes
/// nothing.
pub(super) fn project(connection: &Connection, old: &Run, run: &Run, now: Time) -> Result<(), StoreError> {
    let lease = run.lease.as_ref();
    let status_of = |run: &Run| JobStatus::of(&run.workflow, run.phase, run.outcome);
    // As in `update_of`: two indexes have the status.
    let status = if status_of(old) == status_of(run) { "" } else { "status = ?2, " };
    execute(
        connection,
        OPERATION,
        &format!(
            "UPDATE jobs SET {status}failed_step = ?3, outcome = ?4, updated_at = ?5,
                 picked_at = CASE WHEN ?6 IS NULL THEN picked_at WHEN ?6 IS worker_id THEN picked_at ELSE ?5 END,
                 worker_id = coalesce(?6, worker_id), lease_expires_at = ?7
             WHERE id = ?1"
        ),
        params![
            run.id.to_string(),
            status_of(run).as_str(),
            run.failure.as_ref().map(|failure| failure.step.as_str()),
            run.outcome.map(|outcome| outcome.as_str()),
            now.to_string(),
            lease.map(|lease| lease.owner.as_str()),
            lease.map(|lease| lease.expires_at.to_string())
        ],
    )?;
    Ok(())
}

/// Writes the effects of a step.
pub(super) fn apply_effects(
    connection: &Connection,
    run: RunId,
    now: Time,
    effects: &[Effect],
) -> Result<(), StoreError> {
    for effect in effects {
        match effect {
            Effect::JobCreated(job) => super::jobs::insert(connection, run, job, now)?,
            Effect::TaskImage { sha256, path } => {
                execute(
                    connection,
                    OPERATION,
                    "UPDATE jobs SET task_iso_sha256 = ?2, task_iso_path = ?3 WHERE id = ?1",
                    params![run.to_string(), sha256, path],
                )?;
            }
            Effect::GrantIssued(grant) => grants::insert(connection, grant)?,
            Effect::PullGrantIssued(pull) => grants::insert_pull(connection, pull, now)?,
            Effect::GrantsEnded => grants::end(connection, run, now)?,
            Effect::ServerInventoried { serial, inventory } => {
                super::reported::inventory(connection, serial, inventory, now)?;
            }
            Effect::ServerHardwareRead { serial, hardware } => {
                super::hardware::write(connection, serial, hardware, now)?;
                super::servers::seen(connection, serial, now)?;
            }
            Effect::InstallLogged { text } => super::reported::log(connection, run, text, now)?,
            Effect::PermitRequested { resource, capacity } => {
                locks::acquire_permit(connection, run, resource, *capacity, now)?
            }
            Effect::PermitReleased { resource } => locks::release_permit(connection, run, resource, now)?,
            Effect::ServerObserved { serial, observed } => {
                super::servers::observed(connection, serial, Some(observed), now)?;
            }
            Effect::ServerSeen { serial } => super::servers::seen(connection, serial, now)?,
            Effect::ServerUpdateLeft { serial, update } => {
                super::servers::update_left(connection, serial, update.as_ref())?;
            }
            Effect::ServerLearned { serial, learned } => {
                super::servers::learned(connection, serial, learned)?
            }
            Effect::ServerPinned { serial, fingerprint } => {
                super::servers::pin(connection, serial, fingerprint)?
            }
            Effect::CleanupPending { serial, pending } => {
                super::servers::set_pending_cleanup(connection, serial, pending.as_ref())?
            }
        }
    }
    Ok(())
}
