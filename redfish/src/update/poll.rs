//! Reads the state of an update once.
//!
//! ```text
//!   task | monitor ── 2xx + TaskState ──► queued, running, needs a restart, done, failed
//!        │            202 ──► running     2xx without TaskState ──► done (monitor)     4xx of the monitor ──► failed
//!        │            404 ──► the other path ──► the service: State, or gone
//!   service (Oem…State)
//!   nothing known ──► the task list: a task that was not there before
//!
//!   no connection, 5xx, 429 ──► away        other certificate ──► certificate changed       401 ──► login refused
//! ```
//!
//! "Done" is the word of the BMC. The installed version is the proof; a caller that sees `Done`, `Gone` or `Failed` reads the
//! inventory. Specification: DSP0266 (asynchronous operations), DSP0268 Task, DSP2062.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

use crate::bmc::Bmc;
use crate::error::{DenialReason, ErrorKind, Operation, RedfishError};
use crate::exchange::BmcResponse;
use crate::json;
use crate::message::{ErrorBody, redact};
use crate::tls::Fingerprint;
use crate::transport::TransportErrorKind;
use crate::update::handle::{SecondRequest, UpdateHandle};
use crate::update::service::{oem_objects, oem_state};

const OPERATION: Operation = Operation::UpdateState;
/// Maximum number of messages of a task that are kept.
const MAX_MESSAGES: usize = 8;

/// The state of an update as the BMC shows it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
#[non_exhaustive]
pub enum UpdateState {
    /// Accepted and not begun.
    Queued,
    /// The image is checked or written.
    Running {
        /// `PercentComplete`; 100 does not mean that the update ended.
        percent: Option<u8>,
    },
    /// The image is stored and checked; [`Bmc::start_uploaded`] starts the update.
    Uploaded,
    /// The update continues when the host restarts.
    NeedsHostRestart,
    /// The update continues when the BMC restarts.
    NeedsBmcRestart,
    /// The update continues after a restart, and no message says of what: of the BMC for its own firmware, else of the host.
    NeedsRestart,
    /// The BMC says that the update succeeded: the installed version proves it.
    Done,
    /// The BMC says that the update failed.
    Failed,
    /// The BMC responds and shows neither the task nor a state of the update: only the installed version tells.
    Gone,
    /// The BMC does not respond or is not ready, as during its restart: read again later.
    Away {
        /// The error, without secrets.
        why: String,
    },
    /// The BMC responds with another certificate than the pinned one, or one that is not trusted; no credential was sent.
    CertificateChanged {
        /// SHA-256 of the shown certificate in hexadecimal digits, for a rule that pins again after an update.
        shown: Option<String>,
        /// The reason why the certificate is not trusted, where none is pinned: its end, its name, or its issuer.
        #[serde(default)]
        why: Option<String>,
    },
    /// The BMC refuses the login, as some do while they start; no further login is sent for a while after two refusals.
    LoginRefused {
        /// The BMC's message.
        why: String,
    },
}

impl UpdateState {
    /// Whether the task will not change any more.
    pub fn is_final(&self) -> bool {
        matches!(self, UpdateState::Done | UpdateState::Failed | UpdateState::Gone)
    }

    /// The state that an error means while a BMC carries out an update; `None` for an error that time does not heal.
    pub fn of_absence(error: &RedfishError) -> Option<Self> {
        Some(match &error.kind {
            ErrorKind::Tls { problem: TransportErrorKind::PinMismatch, .. } => {
                UpdateState::CertificateChanged { shown: None, why: None }
            }
            ErrorKind::Tls { problem: TransportErrorKind::Untrusted, detail } => {
                UpdateState::CertificateChanged { shown: None, why: Some(detail.clone()) }
            }
            ErrorKind::Unauthorized {
                denial: DenialReason::Credentials | DenialReason::TooManyRejections,
                ..
            } => UpdateState::LoginRefused { why: error.kind.to_string() },
            ErrorKind::Unreachable { .. }
            | ErrorKind::CircuitOpen(_)
            | ErrorKind::Timeout { .. }
            | ErrorKind::Busy { .. }
            | ErrorKind::Server { .. }
            | ErrorKind::NotFound { .. }
            | ErrorKind::BadAnswer { .. }
            | ErrorKind::Refused { .. }
            | ErrorKind::Tls {
                // A BMC that restarts may refuse the handshake before it has loaded its certificate.
                problem:
                    TransportErrorKind::TlsHandshake | TransportErrorKind::NotTls | TransportErrorKind::LegacyTls,
                ..
            } => UpdateState::Away { why: error.kind.to_string() },
            _ => return None,
        })
    }
}

/// The result of one poll.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UpdatePoll {
    /// The state.
    pub state: UpdateState,
    /// Messages of the task, the most important ones first, without secrets.
    pub messages: Vec<String>,
    /// The time the BMC asked the client to wait before the next poll.
    pub retry_after: Option<Duration>,
    /// The handle with a task that this poll found; store it in place of the old one.
    pub found: Option<Box<UpdateHandle>>,
}

impl UpdatePoll {
    fn of(state: UpdateState) -> Self {
        UpdatePoll { state, messages: Vec::new(), retry_after: None, found: None }
    }
}

/// Result of one response.
enum Reading {
    Known(UpdatePoll),
    /// The path does not exist.
    Missing,
}

impl Bmc {
    /// Reads the state of an update: one request as a rule, at most five.
    ///
    /// # Errors
    ///
    /// When the state cannot be read for a reason that time does not heal: a missing privilege or licence, invalid settings,
    /// or another controller owns the server. A BMC that restarts is a state, not an error.
    pub async fn poll_update(&self, handle: &UpdateHandle) -> Result<UpdatePoll, RedfishError> {
        let mut poll = match self.poll_shown(handle).await {
            Ok(poll) => poll,
            Err(error) => self.absence(error)?,
        };
        if poll.state == UpdateState::Done && handle.then.is_some() {
            poll.state = UpdateState::Uploaded;
        }
        Ok(poll)
    }

    async fn poll_shown(&self, handle: &UpdateHandle) -> Result<UpdatePoll, RedfishError> {
        let paths = [(handle.task.as_deref(), false), (handle.monitor.as_deref(), true)];
        for (path, is_monitor) in paths {
            let Some(path) = path else { continue };
            let response = self.core.read_once(OPERATION, path).await?;
            match self.core.read_update(&response, is_monitor)? {
                Reading::Known(poll) => return Ok(poll),
                Reading::Missing => {}
            }
        }
        if !handle.has_task() && matches!(handle.then, Some(SecondRequest::SimpleUpdate { .. })) {
            // The BMC named the path of the stored image in its response to the upload.
            return Ok(UpdatePoll::of(UpdateState::Uploaded));
        }
        // A BMC that starts shows 404 for everything: only one that shows its update service has really lost the task.
        let service = self.core.read_once(OPERATION, &handle.service).await?;
        if !service.status.is_success() {
            return match service.is(&[404, 410]) {
                true => {
                    let why = "the BMC does not show its update service yet".to_owned();
                    Ok(UpdatePoll::of(UpdateState::Away { why }))
                }
                false => Err(self.core.refusal(OPERATION, &service, &[])),
            };
        }
        if handle.state_at_service {
            let fields = json::object(&service.body).unwrap_or_default();
            return Ok(self.core.service_state(&service, &fields));
        }
        if !handle.has_task()
            && let Some(found) = self.find_update(handle).await?
        {
            let Some(path) = found.task.clone() else {
                let found = Some(Box::new(found));
                return Ok(UpdatePoll { found, ..UpdatePoll::of(UpdateState::Uploaded) });
            };
            let response = self.core.read_once(OPERATION, &path).await?;
            if let Reading::Known(poll) = self.core.read_update(&response, false)? {
                return Ok(UpdatePoll { found: Some(Box::new(found)), ..poll });
            }
        }
        Ok(UpdatePoll::of(UpdateState::Gone))
    }

    /// The state for an error that a restart of the BMC explains.
    fn absence(&self, error: RedfishError) -> Result<UpdatePoll, RedfishError> {
        let state = match UpdateState::of_absence(&error) {
            Some(UpdateState::CertificateChanged { why, .. }) => {
                let shown =
                    self.core.transport.peer_certificate().map(|shown| Fingerprint(shown).to_string());
                UpdateState::CertificateChanged { shown, why }
            }
            Some(state) => state,
            None => return Err(error),
        };
        Ok(UpdatePoll { retry_after: error.retry_after(), ..UpdatePoll::of(state) })
    }
}

impl crate::exchange::Core {
    /// The state in a response of a task or of its monitor.
    fn read_update(&self, response: &BmcResponse, is_monitor: bool) -> Result<Reading, RedfishError> {
        let retry_after = response.retry_after();
        let known = |poll: UpdatePoll| Ok(Reading::Known(UpdatePoll { retry_after, ..poll }));
        if response.status.is_success() {
            let fields = json::object(&response.body).unwrap_or_default();
            if fields.contains_key("TaskState") {
                let secrets = self.secrets_of(response, &[]);
                return known(task_state(&fields, &secrets));
            }
            return known(UpdatePoll::of(match response.status.as_u16() {
                202 => UpdateState::Running { percent: None },
                _ if is_monitor => UpdateState::Done,
                _ => UpdateState::Running { percent: None },
            }));
        }
        if response.is(&[404, 410]) {
            return Ok(Reading::Missing);
        }
        let error = self.refusal(OPERATION, response, &[]);
        // The monitor of a finished task responds as the operation would have done.
        if is_monitor && matches!(error.kind, ErrorKind::Refused { .. }) {
            let messages = vec![error.kind.to_string()];
            return known(UpdatePoll { messages, ..UpdatePoll::of(UpdateState::Failed) });
        }
        Err(error)
    }

    /// The state that the update service shows.
    fn service_state(&self, response: &BmcResponse, fields: &Map<String, Value>) -> UpdatePoll {
        let secrets = self.secrets_of(response, &[]);
        shown_state(fields, &secrets)
    }
}

/// The state in a body, without a BMC; for fuzzing.
pub(crate) fn describe(fields: &Map<String, Value>, secrets: &[&str]) -> [UpdatePoll; 2] {
    [task_state(fields, secrets), shown_state(fields, secrets)]
}

/// Whether a task of an update is carried out now, by its own word. Every other state, a missing and an unknown one included, may be
/// that of an old task that never ends.
pub(crate) fn is_running(fields: &Map<String, Value>) -> bool {
    let state = json::word(fields, "TaskState").unwrap_or_default().to_ascii_lowercase();
    ["running", "starting", "downloading"].contains(&state.as_str())
        && matches!(task_state(fields, &[]).state, UpdateState::Running { .. })
}

/// The state in an OEM object of the update service.
fn shown_state(fields: &Map<String, Value>, secrets: &[&str]) -> UpdatePoll {
    let Some(state) = oem_state(fields) else { return UpdatePoll::of(UpdateState::Gone) };
    let percent = oem_objects(fields).find_map(|oem| percent(oem, "FlashProgressPercent"));
    let results: Vec<&Map<String, Value>> =
        oem_objects(fields).filter_map(|oem| json::member(oem, "Result")).take(MAX_MESSAGES).collect();
    let ids: Vec<String> = results.iter().filter_map(|result| json::word(result, "MessageId")).collect();
    let texts = results
        .iter()
        .filter_map(|result| json::word(result, "Message").or_else(|| json::word(result, "MessageId")));
    let messages = texts.map(|text| redact(&text, secrets)).collect();
    let state = match state.to_ascii_lowercase().as_str() {
        "error" => UpdateState::Failed,
        "complete" | "completed" => restart_of(&ids, &[], &[]).unwrap_or(UpdateState::Done),
        "idle" => UpdateState::Gone,
        _ => UpdateState::Running { percent },
    };
    UpdatePoll { messages, ..UpdatePoll::of(state) }
}

/// The state of a task.
fn task_state(fields: &Map<String, Value>, secrets: &[&str]) -> UpdatePoll {
    let entries = fields.get("Messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let entries: Vec<&Map<String, Value>> =
        entries.iter().rev().filter_map(Value::as_object).take(MAX_MESSAGES).collect();
    let texts: Vec<String> = entries.iter().filter_map(|entry| json::word(entry, "Message")).collect();
    let ids: Vec<String> = entries.iter().filter_map(|entry| json::word(entry, "MessageId")).collect();
    let arguments: Vec<String> = entries.iter().flat_map(|entry| json::texts(entry, "MessageArgs")).collect();
    // Some BMCs keep the state of the job, which is finer than that of the task, in an OEM object.
    let job = oem_objects(fields).find_map(|oem| json::word(oem, "JobState")).unwrap_or_default();
    let state = json::word(fields, "TaskState").unwrap_or_default();
    let (state, job) = (state.to_ascii_lowercase(), job.to_ascii_lowercase());
    let critical =
        json::word(fields, "TaskStatus").is_some_and(|status| status.eq_ignore_ascii_case("critical"));
    let percent = percent(fields, "PercentComplete");
    let restart = restart_of(&ids, &texts, &arguments);
    let state = match state.as_str() {
        "exception" | "killed" | "cancelled" | "canceled" | "interrupted" | "failed" => UpdateState::Failed,
        _ if ["failed", "completedwitherrors", "rebootfailed"].contains(&job.as_str()) => UpdateState::Failed,
        "completed" if critical => UpdateState::Failed,
        _ if ["scheduled", "rebootpending", "pendingreboot"].contains(&job.as_str()) => {
            UpdateState::NeedsHostRestart
        }
        "scheduled" => UpdateState::NeedsHostRestart,
        "completed" => restart.unwrap_or(UpdateState::Done),
        "new" | "pending" | "scheduling" | "suspended" if percent.unwrap_or_default() == 0 => {
            restart.unwrap_or(UpdateState::Queued)
        }
        // A task that waits for a restart stays "Pending" or "Running" on some BMCs and only its message says so.
        "pending" | "userintervention" | "suspended" => restart.unwrap_or(UpdateState::Running { percent }),
        _ => UpdateState::Running { percent },
    };
    let mut messages: Vec<String> = texts.iter().map(|text| redact(text, secrets)).collect();
    if messages.is_empty() {
        let text = ErrorBody::from_fields(fields).message_text(secrets);
        messages.extend(Some(text).filter(|text| !text.is_empty()));
    }
    messages.dedup();
    UpdatePoll { messages, ..UpdatePoll::of(state) }
}

fn percent(fields: &Map<String, Value>, name: &str) -> Option<u8> {
    let percent = fields.get(name)?.as_f64()?;
    // Values outside of 0 to 100 mean "unknown" on some BMCs.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
    (0.0..=100.0).contains(&percent).then_some(percent as u8)
}

/// The restart that messages ask for.
fn restart_of(ids: &[String], texts: &[String], arguments: &[String]) -> Option<UpdateState> {
    const KEYS: [&str; 6] = [
        "resetrequired",
        "systemresetrequired",
        "resetinprogress",
        "awaittoactivate",
        "rebootrequired",
        "restartrequired",
    ];
    const WORDS: [&str; 6] = [
        "reboot pending",
        "pending reboot",
        "reboot is required",
        "reboot required",
        "server reboot",
        "restart the host",
    ];
    let key = |id: &String| id.rsplit('.').next().unwrap_or(id).to_ascii_lowercase();
    let by_key = ids.iter().map(key).any(|key| KEYS.contains(&key.as_str()));
    let by_text = texts
        .iter()
        .map(|text| text.to_ascii_lowercase())
        .any(|text| WORDS.iter().any(|word| text.contains(word)));
    if !by_key && !by_text {
        return None;
    }
    let of_bmc = arguments.iter().any(|argument| argument.contains("/Managers/"));
    let of_host = arguments.iter().any(|argument| argument.contains("/Systems/"));
    Some(match (of_bmc, of_host || by_text) {
        (_, true) => UpdateState::NeedsHostRestart,
        (true, false) => UpdateState::NeedsBmcRestart,
        (false, false) => UpdateState::NeedsRestart,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state(task: Value) -> UpdateState {
        task_state(task.as_object().unwrap(), &[]).state
    }

    #[test]
    fn the_states_of_tasks_are_read_as_field_reports_say() {
        let restart = |target: &str| json!([{ "MessageId": "Base.1.13.ResetRequired", "MessageArgs": [target, "ForceRestart"] }]);
        for (task, expected) in [
            (json!({ "TaskState": "New" }), UpdateState::Queued),
            (
                json!({ "TaskState": "Running", "PercentComplete": 100 }),
                UpdateState::Running { percent: Some(100) },
            ),
            (
                json!({ "TaskState": "Downloading", "PercentComplete": 300 }),
                UpdateState::Running { percent: None },
            ),
            (
                json!({ "TaskState": "Completed", "TaskStatus": "OK", "PercentComplete": 100 }),
                UpdateState::Done,
            ),
            (
                json!({ "TaskState": "Completed", "TaskStatus": "Critical", "PercentComplete": 100 }),
                UpdateState::Failed,
            ),
            (json!({ "TaskState": "Scheduled" }), UpdateState::NeedsHostRestart),
            (
                json!({ "TaskState": "Pending", "Oem": { "X": { "JobState": "Scheduled" } } }),
                UpdateState::NeedsHostRestart,
            ),
            (
                json!({ "TaskState": "Running", "Oem": { "X": { "JobState": "CompletedWithErrors" } } }),
                UpdateState::Failed,
            ),
            (
                json!({ "TaskState": "Completed", "Messages": [{ "Message": "Completed, server reboot pending." }] }),
                UpdateState::NeedsHostRestart,
            ),
            (
                json!({ "TaskState": "Completed", "Messages": restart("/redfish/v1/Systems/1") }),
                UpdateState::NeedsHostRestart,
            ),
            (
                json!({ "TaskState": "Completed", "Messages": restart("/redfish/v1/Managers/1") }),
                UpdateState::NeedsBmcRestart,
            ),
            (
                json!({ "TaskState": "Completed", "Messages": [{
                    "MessageId": "Update.1.1.AwaitToActivate", "MessageArgs": ["1.2.3", "HGX_FW_BMC_0"],
                    "Message": "Awaiting for an action to proceed with activating image '1.2.3' on 'HGX_FW_BMC_0'.",
                    "Resolution": "AC power cycle",
                }] }),
                UpdateState::NeedsRestart,
            ),
            (json!({ "TaskState": "Killed" }), UpdateState::Failed),
            (json!({ "TaskState": "Reticulating" }), UpdateState::Running { percent: None }),
        ] {
            assert_eq!(state(task.clone()), expected, "{task}");
        }
    }

    #[test]
    fn the_state_of_a_service_without_tasks_is_read() {
        let shown =
            |oem: Value| shown_state(json!({ "Oem": { "Any": oem } }).as_object().unwrap(), &[]).state;
        assert_eq!(
            shown(json!({ "State": "Updating", "FlashProgressPercent": 40 })),
            UpdateState::Running { percent: Some(40) }
        );
        assert_eq!(shown(json!({ "State": "Complete" })), UpdateState::Done);
        assert_eq!(shown(json!({ "State": "Error" })), UpdateState::Failed);
        let wants = json!({ "State": "Complete", "Result": { "MessageId": "X.2.14.SystemResetRequired" } });
        assert_eq!(shown(wants), UpdateState::NeedsRestart);
        assert_eq!(shown_state(&Map::new(), &[]).state, UpdateState::Gone);
    }
}
