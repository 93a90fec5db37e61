//! Rows that this program cannot read. Such a run is held with an explanation, and other runs continue.
//!
//! ```text
//!  claim --cannot be read--> held, class "unreadable", hold = {…, "was": phase}
//!                              | resume: previous phase, read again (for example by a newer program)
//!                              | cancel: ended without cleanup; recorded as pending cleanup of the server
//! ```
//! This module reads only the columns that it needs, because any other column may be the unreadable one.

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::rows::{append_events, execute, first, to_json};
use super::{Store, StoreError, grants, locks, servers};
use crate::log::{self, JobFields};
use model::{
    Failure, FailureClass, Hold, HoldClass, NewEvent, PendingCleanup, RunId, Serial, StepName, Time,
};

/// The class of the failure with which an unreadable run ends.
const UNREADABLE: FailureClass = FailureClass::new("unreadable");
/// The time until the first reminder of such a hold.
const REMIND: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// The readable part of an unreadable run.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// The hold, with the reason.
    pub hold: Hold,
    /// The server of the run, as text from the row.
    pub server: Option<String>,
}

impl Store {
    /// The readable part of a run that is held because it is unreadable; `None` for any other run.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn unreadable(&self, id: RunId) -> Result<Option<Unreadable>, StoreError> {
        const OPERATION: &str = "read the hold of a run";
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT hold, server FROM runs WHERE id = ?1 AND phase = 'held'",
                &[&id.to_string()],
                |columns| Ok((columns.json_opt::<Hold>("hold")?, columns.get("server")?)),
            )
            .map(|found| match found {
                Some((Some(hold), server)) if hold.class == HoldClass::UNREADABLE => {
                    Some(Unreadable { hold, server })
                }
                _ => None,
            })
        })
        .await
    }

    /// Resumes an unreadable run, so that it is read again. `false` when the run is not held as unreadable.
    ///
    /// # Errors
    /// When the database cannot be written; the run stays held then.
    pub async fn retry_unreadable(&self, id: RunId, by: &str, now: Time) -> Result<bool, StoreError> {
        const OPERATION: &str = "resume an unreadable run";
        let by = by.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let written = execute(
                    connection,
                    OPERATION,
                    "UPDATE runs SET phase = json_extract(hold, '$.was'), hold = NULL, next_run_at = ?2,
                         revision = revision + 1, updated_at = ?2
                     WHERE id = ?1 AND phase = 'held' AND json_extract(hold, '$.class') = 'unreadable'",
                    params![id.to_string(), now.to_string()],
                )?;
                if written == 1 {
                    let event =
                        NewEvent::info("run.resumed", format!("resumed by {by}; the run is read again"))
                            .by(&by);
                    append_events(connection, OPERATION, Some(id), None, now, &[event])?;
                }
                Ok(written == 1)
            })
            .await
    }

    /// Ends an unreadable run without cleanup, and records pending cleanup of its server. `false` when the run is not held as
    /// unreadable. `owner`: the controller instance, for the log.
    ///
    /// # Errors
    /// When the database cannot be written; the run stays held then.
    pub async fn abandon(&self, id: RunId, by: &str, owner: &str, now: Time) -> Result<bool, StoreError> {
        const OPERATION: &str = "end an unreadable run";
        let (by, owner) = (by.to_owned(), owner.to_owned());
        self.writer
            .write(OPERATION, move |connection| {
                let failure = Failure {
                    class: UNREADABLE,
                    step: StepName::UNKNOWN,
                    summary: format!("ended by {by} because its record could not be read; nothing was cleaned up"),
                    detail: None,
                    next_action: "check the server: power, virtual media and boot order may be as the run left them"
                        .to_owned(),
                };
                let written = execute(
                    connection,
                    OPERATION,
                    "UPDATE runs SET phase = 'ended', outcome = coalesce(outcome, 'cancelled'), hold = NULL, wait = NULL,
                         step = NULL, failure_class = ?3, failure = ?4, next_run_at = NULL, revision = revision + 1,
                         lease_epoch = lease_epoch + 1, updated_at = ?2
                     WHERE id = ?1 AND phase = 'held' AND json_extract(hold, '$.class') = 'unreadable'",
                    params![id.to_string(), now.to_string(), UNREADABLE.as_str(), to_json(OPERATION, &failure)?],
                )?;
                if written == 0 {
                    return Ok(false);
                }
                end_without_cleanup(connection, id, &failure, (&by, &owner), now)?;
                Ok(true)
            })
            .await
    }
}

/// Completes the end of a run that is not cleaned up: the row of `jobs`, grants, locks, pending cleanup of the server, the
/// event, the line of the log. `by`: the operator, and what acts for it.
pub(super) fn end_without_cleanup(
    connection: &Connection,
    id: RunId,
    failure: &Failure,
    (by, worker_id): (&str, &str),
    now: Time,
) -> Result<(), StoreError> {
    const OPERATION: &str = "end a run without cleanup";
    execute(
        connection,
        OPERATION,
        "UPDATE jobs SET status = 'complete', outcome = coalesce(outcome, 'cancelled'), failed_step = ?3,
             updated_at = ?2, lease_expires_at = NULL WHERE id = ?1",
        params![id.to_string(), now.to_string(), failure.step.as_str()],
    )?;
    let of = first(
        connection,
        OPERATION,
        "SELECT root, server, workflow, lease_epoch FROM runs WHERE id = ?1",
        &[&id.to_string()],
        |columns| {
            let named = (columns.get::<String>("root")?, columns.get::<Option<String>>("server")?);
            Ok((named, columns.get::<String>("workflow")?, columns.get::<i64>("lease_epoch")?))
        },
    )?;
    let ((root, server), workflow, epoch) = of.unwrap_or_default();
    let server_serial = server.as_deref().unwrap_or_default();
    let fields = JobFields { job_id: id, server_serial, workflow: &workflow, worker_id, epoch };
    log::ended_without_cleanup(&fields, failure);
    let server = server.and_then(|server| server.parse::<Serial>().ok());
    if let Some(server) = &server {
        servers::set_pending_cleanup(
            connection,
            server,
            Some(&PendingCleanup::unknown(id, failure.class.clone())),
        )?;
    }
    grants::end(connection, id, now)?;
    if let Ok(root) = root.parse::<RunId>() {
        locks::release(connection, root, now)?;
    }
    let event = NewEvent::error("run.ended", failure.summary.clone()).by(by);
    append_events(connection, OPERATION, Some(id), server.as_ref(), now, &[event])
}

/// The columns of an unreadable run that its hold uses.
struct Held {
    was: String,
    wait: Option<String>,
    failure: Option<String>,
    server: Option<String>,
    workflow: String,
    step: Option<StepName>,
    epoch: i64,
}

/// Holds a run whose row or step records cannot be read, and logs it for `owner`, which found it. An unreadable wait or failure is moved from the row into the event,
/// so that the rest of the row can be shown.
pub(super) fn hold(
    connection: &Connection,
    id: &str,
    why: &StoreError,
    owner: &str,
    now: Time,
) -> Result<(), StoreError> {
    const OPERATION: &str = "hold an unreadable run";
    let row = first(
        connection,
        OPERATION,
        "SELECT phase, wait, failure, server, workflow, step, lease_epoch FROM runs WHERE id = ?1",
        &[&id],
        |columns| {
            Ok(Held {
                was: columns.get("phase")?,
                wait: columns.get("wait")?,
                failure: columns.get("failure")?,
                server: columns.get("server")?,
                workflow: columns.get("workflow")?,
                step: columns.optional_step()?,
                epoch: columns.get("lease_epoch")?,
            })
        },
    )?;
    let Some(Held { was, wait, failure, server, workflow, step, epoch }) = row else { return Ok(()) };
    let server_serial = server.as_deref().unwrap_or_default();
    let fields = JobFields { job_id: id, server_serial, workflow: &workflow, worker_id: owner, epoch };
    let step = step.unwrap_or(StepName::UNKNOWN);
    log::unreadable(&fields, &step, HoldClass::UNREADABLE.as_str(), &model::error_chain(why).to_string());
    let detail = format!("this program cannot read its record: {}", model::error_chain(why));
    let hold = Hold {
        class: HoldClass::UNREADABLE,
        since: now,
        remind_at: now.plus(REMIND),
        verbs: vec!["resume".to_owned(), "cancel".to_owned()],
        detail: detail.clone(),
    };
    let mut hold = json!(hold);
    hold["was"] = json!(was);
    let unreadable_column = match why {
        StoreError::Corrupt { column, .. } => *column,
        _ => "",
    };
    execute(
        connection,
        OPERATION,
        "UPDATE runs SET phase = 'held', hold = ?2, next_run_at = NULL, lease_owner = NULL, lease_expires_at = NULL,
             wait = CASE ?4 WHEN 'wait' THEN NULL ELSE wait END,
             failure = CASE ?4 WHEN 'failure' THEN NULL ELSE failure END,
             lease_epoch = lease_epoch + 1, revision = revision + 1, updated_at = ?3
         WHERE id = ?1",
        params![id, hold.to_string(), now.to_string(), unreadable_column],
    )?;
    let facts: Value =
        json!({ "class": HoldClass::UNREADABLE, "was": was, "wait": wait, "failure": failure });
    let event = NewEvent::error("run.held", format!("held until an operator decides: {detail}")).with(facts);
    match id.parse::<RunId>() {
        Ok(id) => append_events(connection, OPERATION, Some(id), None, now, &[event]),
        Err(_) => append_events(connection, OPERATION, None, None, now, &[event]),
    }
}
