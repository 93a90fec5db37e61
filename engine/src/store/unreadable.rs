//! Rows that this program cannot read: one of them is held with an explanation, and keeps nobody else from working.
//!
//! ```text
//!  claim --cannot be read--> held, class "unreadable", hold = {…, "was": phase}
//!                              | resume: phase as it was, tried again (by a program that can read it)
//!                              | cancel: ended as it stands, without any cleanup; the server's debt says so
//! ```
//! Nothing here reads more of the row than it must: everything else may be what cannot be read.

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::rows::{append_events, execute, first, to_json};
use super::{Store, StoreError, grants, locks, servers};
use crate::model::{Failure, Hold, NewEvent, RunId, Serial, Time};

/// The class of such a hold.
pub const UNREADABLE: &str = "unreadable";
/// When the hold is mentioned again.
const REMIND: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// What can be said of a run that cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// Why it is held.
    pub hold: Hold,
    /// Its server, as it stands in the database.
    pub server: Option<String>,
}

impl Store {
    /// What can be said of a run that is held because it cannot be read; `None` when it is not.
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
                Some((Some(hold), server)) if hold.class == UNREADABLE => Some(Unreadable { hold, server }),
                _ => None,
            })
        })
        .await
    }

    /// Lets a run that could not be read be tried again; `false` when it is not held for that.
    pub async fn retry_unreadable(&self, id: RunId, by: &str, now: Time) -> Result<bool, StoreError> {
        const OPERATION: &str = "let an unreadable run be tried again";
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
                    let event = NewEvent::info("run.resumed", format!("to be read again, says {by}")).by(&by);
                    append_events(connection, OPERATION, Some(id), None, now, &[event])?;
                }
                Ok(written == 1)
            })
            .await
    }

    /// Ends a run that cannot be read as it stands: nothing is cleaned up, and its server's record says so. `false` when it
    /// is not held for that.
    pub async fn abandon(&self, id: RunId, by: &str, now: Time) -> Result<bool, StoreError> {
        const OPERATION: &str = "end an unreadable run";
        let by = by.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let failure = Failure {
                    class: UNREADABLE.to_owned(),
                    step: "unknown".to_owned(),
                    summary: format!("ended by {by} because its record could not be read; nothing was cleaned up"),
                    evidence: None,
                    next_action: "look at the machine: power, virtual media and boot order may be as the run left them"
                        .to_owned(),
                };
                let written = execute(
                    connection,
                    OPERATION,
                    "UPDATE runs SET phase = 'ended', outcome = coalesce(outcome, 'cancelled'), hold = NULL, wait = NULL,
                         step = NULL, failure_class = ?3, failure = ?4, next_run_at = NULL, revision = revision + 1,
                         lease_epoch = lease_epoch + 1, updated_at = ?2
                     WHERE id = ?1 AND phase = 'held' AND json_extract(hold, '$.class') = 'unreadable'",
                    params![id.to_string(), now.to_string(), UNREADABLE, to_json(OPERATION, &failure)?],
                )?;
                if written == 0 {
                    return Ok(false);
                }
                settle(connection, id, &failure, &by, now)?;
                Ok(true)
            })
            .await
    }
}

/// What follows from such an end: the projection, the rights and locks of the run, the debt of its server.
fn settle(
    connection: &Connection,
    id: RunId,
    failure: &Failure,
    by: &str,
    now: Time,
) -> Result<(), StoreError> {
    const OPERATION: &str = "end an unreadable run";
    execute(
        connection,
        OPERATION,
        "UPDATE jobs SET status = 'complete', outcome = coalesce(outcome, 'cancelled'), failed_step = 'unknown',
             updated_at = ?2, lease_expires_at = NULL WHERE id = ?1",
        params![id.to_string(), now.to_string()],
    )?;
    let of = first(
        connection,
        OPERATION,
        "SELECT root, server FROM runs WHERE id = ?1",
        &[&id.to_string()],
        |columns| Ok((columns.get::<String>("root")?, columns.get::<Option<String>>("server")?)),
    )?;
    let (root, server) = of.unwrap_or_default();
    let server = server.and_then(|server| server.parse::<Serial>().ok());
    if let Some(server) = &server {
        servers::debt(connection, server, Some(&json!({ "job_id": id, "remaining": [UNREADABLE] })))?;
    }
    grants::end(connection, id, now)?;
    if let Ok(root) = root.parse::<RunId>() {
        locks::release(connection, root, now)?;
    }
    let event = NewEvent::error("run.ended", failure.summary.clone()).by(by);
    append_events(connection, OPERATION, Some(id), server.as_ref(), now, &[event])
}

/// Holds a run whose row or records cannot be read. A wait or failure that is itself what cannot be read is taken out of the
/// row and kept in the event, so that the rest can be shown.
pub(super) fn hold(connection: &Connection, id: &str, why: &StoreError, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "hold an unreadable run";
    let row = first(
        connection,
        OPERATION,
        "SELECT phase, wait, failure FROM runs WHERE id = ?1",
        &[&id],
        |columns| {
            let (wait, failure) = (columns.get("wait")?, columns.get("failure")?);
            Ok((columns.get::<String>("phase")?, wait, failure))
        },
    )?;
    let Some((was, wait, failure)): Option<(String, Option<String>, Option<String>)> = row else {
        return Ok(());
    };
    let detail = format!("its record cannot be read by this program: {}", crate::model::error_chain(why));
    let hold = Hold {
        class: UNREADABLE.to_owned(),
        since: now,
        remind_at: now.plus(REMIND),
        verbs: vec!["resume".to_owned(), "cancel".to_owned()],
        detail: detail.clone(),
    };
    let mut hold = json!(hold);
    hold["was"] = json!(was);
    let at_fault = match why {
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
        params![id, hold.to_string(), now.to_string(), at_fault],
    )?;
    let facts: Value = json!({ "class": UNREADABLE, "was": was, "wait": wait, "failure": failure });
    let event = NewEvent::error("run.held", format!("held until an operator decides: {detail}")).with(facts);
    match id.parse::<RunId>() {
        Ok(id) => append_events(connection, OPERATION, Some(id), None, now, &[event]),
        Err(_) => append_events(connection, OPERATION, None, None, now, &[event]),
    }
}
