//! Polls a task until it ends.
//!
//! ```text
//!   202 + Location (monitor) and/or a Task in the body
//!     poll the monitor:  202 or TaskState running -> again after Retry-After, else 1, 2, 4, 8, 10, 10 … s
//!                        TaskState Completed (any 2xx), 200/201/204 -> ended
//!                        TaskState Exception, Killed, Cancelled, Interrupted, Failed -> TaskFailed
//!                        404: removed -> ended; the read-back shows the result
//!                        anything else: the path of the Task if there is one, else the operation's error
//! ```
//!
//! "Ended" does not mean "succeeded": the operation reads its resource afterwards. For that reason a 202 without
//! monitor and Task counts as ended. Polling is bounded by the profile's task timeout; a task that takes longer
//! may still be carried out. Specification: DSP0266 12 (asynchronous operations), DSP0268 Task.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::{BmcResponse, Core};
use crate::json;
use crate::message::ErrorBody;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Maximum `Retry-After` of a task; a longer one is clamped.
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(30);
/// Failed polls in a row after which polling ends.
const MAX_FAILURES: u32 = 5;

/// Result of one poll.
enum PollResult {
    Running,
    Ended,
    Gone,
    Failed(RedfishError),
    /// The response does not show the state of the task.
    Unclear(RedfishError),
}

impl Core {
    /// Waits until an accepted operation ends; returns at once when it is not asynchronous.
    pub(crate) async fn follow(
        &self,
        operation: Operation,
        accepted: &BmcResponse,
        secrets: &[&str],
    ) -> Result<(), RedfishError> {
        if accepted.status != http::StatusCode::ACCEPTED {
            return Ok(());
        }
        let fields = json::object(&accepted.body).unwrap_or_default();
        let is_task = fields.contains_key("TaskState")
            || json::word(&fields, "@odata.type").is_some_and(|kind| kind.contains("Task."));
        let task = json::word(&fields, "@odata.id").filter(|_| is_task).and_then(|path| json::path_of(&path));
        let mut paths = accepted.location().into_iter().chain(task).collect::<Vec<_>>();
        paths.dedup();
        let mut paths = paths.into_iter();
        let Some(mut path) = paths.next() else { return Ok(()) };
        match self.poll_result(operation, accepted, secrets) {
            PollResult::Ended => return Ok(()),
            PollResult::Failed(error) => return Err(error),
            PollResult::Running | PollResult::Gone | PollResult::Unclear(_) => {}
        }

        let deadline = Instant::now() + self.profile().task_timeout;
        let (mut wait, mut asked, mut failures) = (FIRST_WAIT, accepted.retry_after(), 0);
        loop {
            let pause = asked.map_or(wait, |asked| asked.clamp(FIRST_WAIT, LONGEST_ASKED_WAIT));
            if Instant::now() + pause > deadline {
                let detail =
                    format!("the task did not end within {} s", self.profile().task_timeout.as_secs());
                let error = RedfishError::new(operation, ErrorKind::Timeout { detail });
                return Err(RedfishError { maybe_applied: true, ..error.at(&http::Method::GET, &path) });
            }
            sleep(pause).await;
            wait = (wait * 2).min(LONGEST_WAIT);
            let polled = self.read_once(operation, &path).await;
            asked = polled.as_ref().ok().and_then(BmcResponse::retry_after);
            let result = match &polled {
                Ok(response) => self.poll_result(operation, response, secrets),
                Err(error) => PollResult::Unclear(error.clone()),
            };
            let error = match result {
                PollResult::Ended => return Ok(()),
                PollResult::Failed(error) => return Err(error),
                PollResult::Running => {
                    failures = 0;
                    continue;
                }
                PollResult::Gone => match paths.next() {
                    Some(next) => {
                        path = next;
                        continue;
                    }
                    None => return Ok(()),
                },
                PollResult::Unclear(error) => error,
            };
            // Before the response of the monitor counts as an error, the path of the Task is polled.
            if polled.is_ok()
                && let Some(next) = paths.next()
            {
                path = next;
                continue;
            }
            failures += 1;
            if !error.is_transient() || failures >= MAX_FAILURES {
                // A refusal that the monitor returns is that of the operation: it was not carried out.
                let definite = matches!(error.kind, ErrorKind::Refused { .. } | ErrorKind::License { .. });
                return Err(RedfishError { maybe_applied: !definite, ..error });
            }
        }
    }

    /// Waits for the first pause of an accepted operation; false, at once, when the response shows that it has ended or gives no task.
    pub(crate) async fn pause_of_running(&self, accepted: &BmcResponse) -> bool {
        let running = matches!(self.poll_result(Operation::Insert, accepted, &[]), PollResult::Running);
        if accepted.status != http::StatusCode::ACCEPTED || !running {
            return false;
        }
        let asked = accepted.retry_after().unwrap_or(FIRST_WAIT);
        sleep(asked.clamp(FIRST_WAIT, LONGEST_ASKED_WAIT)).await;
        true
    }

    /// The result of a poll with this response, as text; for fuzzing.
    pub(crate) fn describe_poll(&self, status: http::StatusCode, body: &[u8]) -> String {
        let response = BmcResponse::of(status, body);
        match self.poll_result(Operation::Insert, &response, &[]) {
            PollResult::Running => "running".to_owned(),
            PollResult::Ended => "ended".to_owned(),
            PollResult::Gone => "gone".to_owned(),
            PollResult::Failed(error) | PollResult::Unclear(error) => error.to_string(),
        }
    }

    fn poll_result(&self, operation: Operation, response: &BmcResponse, secrets: &[&str]) -> PollResult {
        let fields = json::object(&response.body).unwrap_or_default();
        if let Some(state) = json::word(&fields, "TaskState").filter(|_| response.status.is_success()) {
            return match state.to_ascii_lowercase().as_str() {
                "completed" => PollResult::Ended,
                "exception" | "killed" | "cancelled" | "canceled" | "interrupted" | "failed" => {
                    let (body, secrets) =
                        (ErrorBody::from_fields(&fields), self.secrets_of(response, secrets));
                    let (message_id, message) = (body.id(&secrets), body.message_text(&secrets));
                    let kind = ErrorKind::TaskFailed { state, message_id, message };
                    PollResult::Failed(RedfishError::new(operation, kind))
                }
                _ => PollResult::Running,
            };
        }
        match response.status.as_u16() {
            202 => PollResult::Running,
            200..=299 => PollResult::Ended,
            404 | 410 => PollResult::Gone,
            _ => PollResult::Unclear(self.refusal(operation, response, secrets)),
        }
    }
}
