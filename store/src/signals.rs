//! Delivery of signals: durable messages to a run, applied to a waiting run in the transaction that stores them.

use rusqlite::{Connection, params};
use serde_json::json;

use super::commit::{Committed, apply_effects, commit};
use super::rows::{all, append_events, execute, find_run, signals, snapshot, to_json};
use super::{Store, StoreError};
pub use model::CANCEL;
use model::{Effect, NewEvent, Run, RunChange, RunId, RunVersion, Signal, Snapshot, Time};

const OPERATION: &str = "deliver a signal";

/// The result of the delivery of a signal.
#[derive(Clone, Debug, PartialEq)]
pub enum DeliverOutcome {
    /// The signal was stored, and its change applied if it had one.
    Stored(Box<Run>),
    /// A signal with this name and key exists; nothing was written.
    Duplicate(Box<Signal>),
    /// Nothing was written: the run has changed since the change was computed, or since the expected revision. Or a cancel was left to
    /// the worker that had the lease, and that worker has parked or ended the run. The change must be computed again from this
    /// snapshot.
    Moved(Box<Snapshot>),
    /// There is no such run.
    NoRun,
}

/// A signal to a run, with the events and the change that belong to it.
#[derive(Clone, Debug)]
pub struct SignalMessage {
    /// The receiving run.
    pub run: RunId,
    /// The revision that the run must still have; `None` when the signal is for the run in whatever state it is.
    pub revision: Option<i64>,
    /// The signal.
    pub signal: Signal,
    /// The events to append when the signal is stored.
    pub events: Vec<NewEvent>,
    /// The writes that belong to the signal.
    pub effects: Vec<Effect>,
    /// The change that it causes in a waiting run, with the epoch and revision that the change was computed from. A cancel without
    /// a change is for the worker that has the lease.
    pub change: Option<(RunChange, RunVersion)>,
}

impl Store {
    /// Stores a signal and applies the change that it causes in a waiting run. The change names the epoch and revision that
    /// it was computed from.
    ///
    /// # Errors
    /// When the database cannot be written; neither signal nor change is stored then.
    pub async fn deliver(
        &self,
        run: RunId,
        signal: Signal,
        events: Vec<NewEvent>,
        change: Option<(RunChange, RunVersion)>,
        now: Time,
    ) -> Result<DeliverOutcome, StoreError> {
        self.deliver_one(
            SignalMessage { run, revision: None, signal, events, effects: Vec::new(), change },
            now,
        )
        .await
    }

    /// Delivers a signal with the writes that belong to it, as [`Store::deliver`] does.
    ///
    /// # Errors
    /// When the database cannot be written; nothing of the message is stored then.
    pub async fn deliver_one(&self, message: SignalMessage, now: Time) -> Result<DeliverOutcome, StoreError> {
        let mut delivered = self.deliver_all(vec![message], now).await?;
        // One message has one result.
        delivered.pop().ok_or(StoreError::Panicked { operation: OPERATION })
    }

    /// Delivers signals in one transaction, each as [`Store::deliver`] does. Returns the results in the order of the messages.
    ///
    /// # Errors
    /// When the database cannot be written; no signal is stored then.
    pub async fn deliver_all(
        &self,
        messages: Vec<SignalMessage>,
        now: Time,
    ) -> Result<Vec<DeliverOutcome>, StoreError> {
        self.writer
            .write(OPERATION, move |connection| {
                messages.iter().map(|message| deliver(connection, message, now)).collect()
            })
            .await
    }

    /// The children of these runs that have a cancel request and have not reached their finish lists.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn cancelled_children(&self, parents: &[RunId]) -> Result<Vec<RunId>, StoreError> {
        const OPERATION: &str = "find the cancelled children of a run";
        let parents = to_json(OPERATION, parents)?;
        self.read(OPERATION, move |connection| {
            all(
                connection,
                OPERATION,
                "SELECT runs.id AS id FROM json_each(?1) AS parents CROSS JOIN runs ON runs.parent = parents.value
                 WHERE runs.cancel_requested_at IS NOT NULL AND runs.phase = 'running'",
                &[&parents],
                |columns| columns.parse("id", str::parse::<RunId>),
            )
        })
        .await
    }

    /// All signals of a run.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn signals(&self, run: RunId) -> Result<Vec<Signal>, StoreError> {
        self.read("read signals", move |connection| signals(connection, "read signals", run)).await
    }
}

fn deliver(
    connection: &Connection,
    message: &SignalMessage,
    now: Time,
) -> Result<DeliverOutcome, StoreError> {
    let SignalMessage { run: id, revision, signal, events, effects, change } = message;
    let (id, change) = (*id, change.as_ref());
    let Some(run) = find_run(connection, OPERATION, id)? else { return Ok(DeliverOutcome::NoRun) };
    if revision.is_some_and(|expected| expected != run.revision) {
        return Ok(DeliverOutcome::Moved(Box::new(snapshot(connection, OPERATION, run)?)));
    }
    let earlier = signals(connection, OPERATION, id)?
        .into_iter()
        .find(|old| old.name == signal.name && old.key == signal.key);
    if let Some(earlier) = earlier {
        return Ok(DeliverOutcome::Duplicate(Box::new(earlier)));
    }
    if let Some((_, expected)) = change
        && *expected != run.version()
    {
        return Ok(DeliverOutcome::Moved(Box::new(snapshot(connection, OPERATION, run)?)));
    }
    // The worker for which the cancel was meant has parked the run, and no other reads a signal for which the run does not wait;
    // or it has ended the run and works on the finish list, which no cancel ends.
    let left = change.is_none() && signal.name == CANCEL;
    if left && (run.lease.is_none() || !run.phase.is_forward()) {
        return Ok(DeliverOutcome::Moved(Box::new(snapshot(connection, OPERATION, run)?)));
    }
    insert(connection, id, signal)?;
    append_events(connection, OPERATION, Some(id), run.server.as_ref(), now, events)?;
    apply_effects(connection, id, now, effects)?;
    match change {
        Some((change, expected)) => match commit(connection, change, *expected, now)? {
            Committed::Applied(run) => Ok(DeliverOutcome::Stored(run)),
            other => Err(StoreError::Corrupt {
                operation: OPERATION,
                column: "revision",
                detail: format!("the row changed inside its own transaction: {other:?}"),
            }),
        },
        None => wake(connection, &run, &signal.name, now).map(|run| DeliverOutcome::Stored(Box::new(run))),
    }
}

fn insert(connection: &Connection, run: RunId, signal: &Signal) -> Result<(), StoreError> {
    execute(
        connection,
        OPERATION,
        "INSERT INTO signals (run, name, key, payload, received_at, consumed) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (run, name, key) DO NOTHING",
        params![
            run.to_string(),
            signal.name,
            signal.key,
            to_json(OPERATION, &signal.payload)?,
            signal.received_at.to_string(),
            signal.consumed
        ],
    )
    .map(drop)
}

/// Makes a run that waits for this signal due. The next commit of a running run sees the new revision.
fn wake(connection: &Connection, run: &Run, name: &str, now: Time) -> Result<Run, StoreError> {
    let waits = run.lease.is_none()
        && run.wait.as_ref().is_some_and(|wait| wait.signals.iter().any(|awaited| awaited == name));
    execute(
        connection,
        OPERATION,
        "UPDATE runs SET revision = revision + 1, updated_at = ?3,
             next_run_at = CASE WHEN ?2 THEN ?3 ELSE next_run_at END,
             cancel_requested_at = CASE WHEN ?4 THEN coalesce(cancel_requested_at, ?3) ELSE cancel_requested_at END
         WHERE id = ?1",
        params![run.id.to_string(), waits, now.to_string(), name == CANCEL],
    )?;
    find_run(connection, OPERATION, run.id)?.ok_or(StoreError::Corrupt {
        operation: OPERATION,
        column: "id",
        detail: "the row just written is not there".to_owned(),
    })
}

/// Stores a signal from the store itself, in the transaction that causes it, and makes a waiting run due.
pub(super) fn send(
    connection: &Connection,
    id: RunId,
    name: &str,
    key: &str,
    now: Time,
) -> Result<(), StoreError> {
    let Some(run) = find_run(connection, OPERATION, id)? else { return Ok(()) };
    let signal = Signal {
        name: name.to_owned(),
        key: key.to_owned(),
        payload: json!({}),
        received_at: now,
        consumed: false,
    };
    insert(connection, id, &signal)?;
    wake(connection, &run, name, now).map(drop)
}

/// Cancels the unfinished children of a cancelled run. Each runs its own finish list. A leased child sees the request at its
/// next commit; the others, also held ones, are due at once.
pub(super) fn cancel_children(connection: &Connection, parent: &Run, now: Time) -> Result<(), StoreError> {
    let children = forward_children(connection, parent.id)?;
    for child in children {
        let signal = Signal {
            name: CANCEL.to_owned(),
            key: String::new(),
            payload: json!({ "by": "engine", "reason": format!("its parent {} was cancelled", parent.id) }),
            received_at: now,
            consumed: false,
        };
        insert(connection, child, &signal)?;
        execute(
            connection,
            OPERATION,
            "UPDATE runs SET revision = revision + 1, updated_at = ?2, hold = NULL,
                 cancel_requested_at = coalesce(cancel_requested_at, ?2),
                 phase = CASE phase WHEN 'held' THEN 'waiting' ELSE phase END,
                 next_run_at = CASE WHEN lease_owner IS NULL THEN ?2 ELSE next_run_at END
             WHERE id = ?1",
            params![child.to_string(), now.to_string()],
        )?;
        let event = NewEvent::warn("verb.cancel", "the parent of this run was cancelled");
        append_events(connection, OPERATION, Some(child), None, now, &[event])?;
    }
    Ok(())
}

/// The children of a run that are in a forward phase.
fn forward_children(connection: &Connection, parent: RunId) -> Result<Vec<RunId>, StoreError> {
    all(
        connection,
        OPERATION,
        "SELECT id FROM runs WHERE parent = ?1 AND phase IN ('queued', 'running', 'waiting', 'held') ORDER BY id",
        &[&parent.to_string()],
        |columns| columns.parse("id", str::parse::<RunId>),
    )
}

/// Sends the signal `child.ended` to the parent of an ended run.
pub(super) fn signal_parent(connection: &Connection, child: &Run, now: Time) -> Result<(), StoreError> {
    let Some(parent) = child.parent else { return Ok(()) };
    let Some(parent) = find_run(connection, OPERATION, parent)? else { return Ok(()) };
    let signal = Signal {
        name: "child.ended".to_owned(),
        key: child.id.to_string(),
        payload: json!({ "run": child.id, "workflow": child.workflow, "outcome": child.outcome, "failure": child.failure }),
        received_at: now,
        consumed: false,
    };
    insert(connection, parent.id, &signal)?;
    wake(connection, &parent, &signal.name, now).map(drop)
}
