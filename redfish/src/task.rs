//! Following an asynchronous operation to its end.
//!
//! ```text
//!   202 + Location (monitor) and/or a Task in the body
//!     poll the monitor:  202 or TaskState running -> again after Retry-After, else 1, 2, 4, 8, 10, 10 … s
//!                        TaskState Completed (whatever the status), 200/201/204 -> ended
//!                        TaskState Exception, Killed, Cancelled, Interrupted, Failed -> TaskFailed
//!                        404: purged -> ended, the resource itself must tell
//!                        anything else: the Task's own path if there is one, else the operation's error
//! ```
//!
//! "Ended" never means "worked": the operation reads its resource afterwards. A 202 that names nothing to follow
//! counts as ended for the same reason. Waiting is bounded by the profile's task timeout; a task that outlives
//! it may still be carried out. Specification: DSP0266 12 (asynchronous operations), DSP0268 Task.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::{Answer, Core};
use crate::json;
use crate::message::ErrorBody;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A BMC may ask for longer waits than ours, up to this.
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(30);
/// So many polls in a row may fail.
const MAX_FAILURES: u32 = 5;

/// What one poll says.
enum Verdict {
    Running,
    Ended,
    Gone,
    Failed(RedfishError),
    /// An answer from which nothing can be learned.
    Unclear(RedfishError),
}

impl Core {
    /// Waits until an accepted operation has ended; returns at once when it was not asynchronous.
    pub(crate) async fn follow(
        &self,
        operation: Operation,
        accepted: &Answer,
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
        match self.judge(operation, accepted, secrets) {
            Verdict::Ended => return Ok(()),
            Verdict::Failed(error) => return Err(error),
            Verdict::Running | Verdict::Gone | Verdict::Unclear(_) => {}
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
            let read_once = self.read_once(operation, &path).await;
            asked = read_once.as_ref().ok().and_then(Answer::retry_after);
            let verdict = match &read_once {
                Ok(answer) => self.judge(operation, answer, secrets),
                Err(error) => Verdict::Unclear(error.clone()),
            };
            let error = match verdict {
                Verdict::Ended => return Ok(()),
                Verdict::Failed(error) => return Err(error),
                Verdict::Running => {
                    failures = 0;
                    continue;
                }
                Verdict::Gone => match paths.next() {
                    Some(next) => {
                        path = next;
                        continue;
                    }
                    None => return Ok(()),
                },
                Verdict::Unclear(error) => error,
            };
            // The Task's own path is tried before a monitor that answers badly is believed.
            if read_once.is_ok()
                && let Some(next) = paths.next()
            {
                path = next;
                continue;
            }
            failures += 1;
            if !error.is_transient() || failures >= MAX_FAILURES {
                // A monitor that passes on the refusal of the operation itself leaves nothing open.
                let definite = matches!(error.kind, ErrorKind::Refused { .. } | ErrorKind::License { .. });
                return Err(RedfishError { maybe_applied: !definite, ..error });
            }
        }
    }

    /// What a poll with this answer is taken for, in words; for fuzzing.
    pub(crate) fn task_says(&self, status: http::StatusCode, body: &[u8]) -> String {
        let answer = Answer::of(status, body);
        match self.judge(Operation::Insert, &answer, &[]) {
            Verdict::Running => "running".to_owned(),
            Verdict::Ended => "ended".to_owned(),
            Verdict::Gone => "gone".to_owned(),
            Verdict::Failed(error) | Verdict::Unclear(error) => error.to_string(),
        }
    }

    fn judge(&self, operation: Operation, answer: &Answer, secrets: &[&str]) -> Verdict {
        let fields = json::object(&answer.body).unwrap_or_default();
        if let Some(state) = json::word(&fields, "TaskState").filter(|_| answer.status.is_success()) {
            return match state.to_ascii_lowercase().as_str() {
                "completed" => Verdict::Ended,
                "exception" | "killed" | "cancelled" | "canceled" | "interrupted" | "failed" => {
                    let (body, secrets) = (ErrorBody::from_fields(&fields), self.secrets_of(answer, secrets));
                    let (message_id, message) = (body.id(&secrets), body.sentence(&secrets));
                    let kind = ErrorKind::TaskFailed { state, message_id, message };
                    Verdict::Failed(RedfishError::new(operation, kind))
                }
                _ => Verdict::Running,
            };
        }
        match answer.status.as_u16() {
            202 => Verdict::Running,
            200..=299 => Verdict::Ended,
            404 | 410 => Verdict::Gone,
            _ => Verdict::Unclear(self.refusal(operation, answer, secrets)),
        }
    }
}
