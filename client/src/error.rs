//! Errors of commands: what happened, the details, and what to do next.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};
use thiserror::Error;

use settings::ConfigErrors;

use super::exit::Exit;
use super::output::{join, plain};

/// The maximum of shown characters of a response that is not from a controller.
const EXCERPT_CHARS: usize = 200;

/// The reason why a command failed.
#[derive(Debug, Error)]
pub enum CliError {
    /// The arguments are invalid or inconsistent.
    #[error("{0}")]
    Usage(String),
    /// The configuration has problems.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Input {
        /// The file; `-` is standard input.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A local operation failed.
    #[error("{message}")]
    Local {
        /// The error in words.
        message: String,
        /// The exit code.
        exit: Exit,
    },
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// There was no response.
    #[error("cannot reach the controller at {url}: {reason}")]
    Unreachable {
        /// The URL of the request.
        url: String,
        /// The chain of causes.
        reason: String,
        /// The request changes state and may have been processed.
        mutating: bool,
    },
    /// There was no response to a request that creates something, and its repetition did not say whether it was processed.
    #[error("{cause}")]
    Lost {
        /// The error of the repetition.
        cause: Box<Self>,
        /// The idempotency key of both requests.
        key: String,
        /// The request creates a batch.
        is_batch: bool,
    },
    /// The response is not one of a Shoal controller.
    #[error("the response of {url} is not the response of a Shoal controller: {reason}")]
    UnexpectedResponse {
        /// The URL of the request.
        url: String,
        /// The difference to an expected response.
        reason: String,
    },
    /// The controller returned an error status.
    #[error("{}", refusal(*status, body))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The body of the response, or its beginning as text when it is not JSON.
        body: Value,
    },
    /// Several things have an id that begins so.
    #[error(
        "{} {} have an id that begins with {given}:\n  {}",
        if *more { format!("more than {}", candidates.len()) } else { candidates.len().to_string() },
        match *what { "batch" => "batches", "webhook" => "webhooks", _ => "jobs" },
        candidates.join("\n  ")
    )]
    AmbiguousId {
        /// The kind of the things: `job`, `batch` or `webhook`.
        what: &'static str,
        /// The given beginning.
        given: String,
        /// The first things with such an id, each with its description.
        candidates: Vec<String>,
        /// Whether there are more such things.
        more: bool,
    },
    /// A watched job did not succeed. The output already contains its events.
    #[error("job {job} ended {outcome}")]
    JobEnded {
        /// The id of the job.
        job: String,
        /// The outcome of the job.
        outcome: String,
    },
    /// Not every job of a watched batch succeeded.
    #[error("batch {batch} ended {outcome}")]
    BatchEnded {
        /// The id of the batch.
        batch: String,
        /// The outcome of the batch.
        outcome: String,
    },
}

impl CliError {
    /// A local failure with exit code 1.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Local { message: message.into(), exit: Exit::Failed }
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::AmbiguousId { .. } => Exit::Usage,
            Self::Config(_) => Exit::Configuration,
            Self::Input { source, .. } if source.kind() == io::ErrorKind::NotFound => Exit::NotFound,
            Self::Input { .. }
            | Self::Output(_)
            | Self::UnexpectedResponse { .. }
            | Self::JobEnded { .. }
            | Self::BatchEnded { .. } => Exit::Failed,
            Self::Local { exit, .. } => *exit,
            Self::Lost { cause, .. } => cause.exit(),
            Self::Unreachable { .. } => Exit::Unreachable,
            // The controller responded; the BMC or the network behind it did not do what was asked.
            Self::Refused { body, .. } if code(body) == "bmc" => Exit::Failed,
            Self::Refused { status, .. } => Exit::of_status(*status),
        }
    }

    /// Whether a repetition of the request may succeed soon.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } => true,
            Self::Refused { body, .. } if code(body) == "bmc" => false,
            Self::Refused { status, .. } => matches!(status, 429 | 500 | 502..=504),
            _ => false,
        }
    }

    /// Whether any other request would fail in the same way: there is no controller, it does not accept the credentials, or the output
    /// cannot be written. A response that was lost says nothing of the next one.
    pub(crate) fn is_of_all(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::UnexpectedResponse { .. } | Self::Output(_) => true,
            Self::Refused { status, .. } => *status == 401,
            _ => false,
        }
    }

    /// Whether the request may have been processed although there is no response to it.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Unreachable { mutating, .. } => *mutating,
            // Of a proxy: a controller sends an object.
            Self::Refused { status, body } => matches!(status, 502 | 504) && !body.is_object(),
            _ => false,
        }
    }

    /// The next action of the user, if there is one.
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        if let Self::Lost { key, is_batch, .. } = self {
            let is_word = key.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
            let key = if is_word { key.clone() } else { format!("'{}'", plain(key).replace('\'', "'\\''")) };
            // The batch has changed what some filters select, such as the free servers.
            let filter = match is_batch {
                true => {
                    ". With a filter it may select others now: `shoal batch list --since 10m` shows whether the batch exists"
                }
                false => "",
            };
            return Some(Cow::Owned(format!(
                "check that the controller runs and that --url (SHOAL_URL) is right. The request may have been processed: repeat \
                 the command with --idempotency-key {key}, then nothing is created twice{filter}"
            )));
        }
        self.fixed_hint().map(Cow::Borrowed)
    }

    fn fixed_hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { mutating: true, .. } => Some(
                "check that the controller runs and that --url (SHOAL_URL) is right. The request may have been processed: check \
                 before you repeat it",
            ),
            Self::Unreachable { .. } => {
                Some("check that the controller runs and that --url (SHOAL_URL) is right")
            }
            Self::UnexpectedResponse { .. } => {
                Some("check that --url (SHOAL_URL) is the URL of a Shoal controller")
            }
            Self::AmbiguousId { .. } => {
                Some("give more characters of the id, as the first column shows them")
            }
            Self::Refused { status, body } => refusal_hint(*status, body),
            _ => None,
        }
    }

    /// The error as JSON.
    pub fn json(&self) -> Value {
        match self {
            Self::Refused { status, body } if body.is_object() => json!({"status": status, "error": body}),
            Self::Config(errors) => {
                let problems: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
                json!({"error": {"error": "configuration", "message": self.to_string(), "problems": problems}})
            }
            Self::AmbiguousId { candidates, .. } => {
                json!({"error": {"error": "ambiguous_id", "message": self.to_string(), "candidates": candidates}})
            }
            Self::Lost { key, .. } => {
                json!({"error": {"error": "client", "message": self.to_string(), "idempotency_key": key}})
            }
            _ => json!({"error": {"error": "client", "message": self.to_string()}}),
        }
    }
}

fn code(body: &Value) -> &str {
    body["error"].as_str().unwrap_or_default()
}

/// Whether a response has the form of a controller: an object with a code.
fn is_of_controller(body: &Value) -> bool {
    !code(body).is_empty()
}

/// A text of a controller without the place in the body, which the operator did not write.
fn without_place(text: &str) -> &str {
    match text.rfind(" (line ") {
        Some(at) if text.ends_with(')') && text[at..].contains(", column ") => &text[..at],
        _ => text,
    }
}

fn refusal(status: u16, body: &Value) -> String {
    if !body.is_object() {
        let text: String = body.as_str().unwrap_or_default().chars().take(EXCERPT_CHARS).collect();
        return format!("the controller responded with {status}: {}", plain(text.trim()));
    }
    if !is_of_controller(body) {
        return format!("the response with status {status} is not the response of a Shoal controller");
    }
    let message = without_place(body["message"].as_str().unwrap_or("no message"));
    let mut text = format!("{} ({status} {})", plain(message), plain(code(body)));
    for detail in body["details"].as_array().into_iter().flatten() {
        let part = |key: &str| plain(without_place(detail[key].as_str().unwrap_or_default()));
        let place = Some(part("path")).filter(|path| !path.is_empty()).unwrap_or_else(|| part("field"));
        let what = part("message");
        // The message of one problem is the problem.
        let is_said = message == what || message.ends_with(&format!(": {what}"));
        if is_said && (place.is_empty() || message.starts_with(&place)) {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {place} [{}] {what}", part("code"));
    }
    if let Some(id) = body["request_id"].as_str() {
        let _ = write!(text, "\n  request {}", plain(id));
    }
    text
}

/// The reason of a refusal in one line: its message, or its problems if it has several.
pub(crate) fn reason(body: &Value) -> String {
    let details = body["details"].as_array().map(Vec::as_slice).unwrap_or_default();
    let part = |value: &Value| plain(without_place(value.as_str().unwrap_or_default()));
    if details.len() < 2 {
        return part(&body["message"]);
    }
    let problem = |detail: &Value| {
        let place = Some(part(&detail["path"])).filter(|path| !path.is_empty());
        join(&[place.unwrap_or_else(|| part(&detail["field"])), part(&detail["message"])], ": ")
    };
    details.iter().map(problem).collect::<Vec<String>>().join("; ")
}

/// Whether a refusal is about a recipe.
fn is_of_recipe(body: &Value) -> bool {
    let of_recipe = |detail: &Value| detail["path"].as_str().is_some_and(|path| path.starts_with("/recipe"));
    body["message"].as_str().is_some_and(|message| message.contains("recipe"))
        || body["details"].as_array().is_some_and(|details| details.iter().any(of_recipe))
}

/// The command that shows what exists, for the code of a thing that does not.
fn list_of(code: &str) -> Option<&'static str> {
    Some(match code {
        "unknown_job" => "`shoal job list` shows the jobs",
        "unknown_server" => {
            "register the server with `shoal server add`; `shoal server list` shows the registered servers"
        }
        "unknown_condition" => "`shoal server conditions SERIAL` shows the conditions of a server",
        "unknown_batch" => "`shoal batch list` shows the batches",
        "unknown_webhook" => "`shoal webhook list` shows the webhooks",
        "unknown_dead_letter" => "`shoal webhook dead-letters WEBHOOK` shows the dead letters of a webhook",
        "unknown_firmware" => "`shoal firmware list` shows the firmware files",
        "unknown_firmware_set" => "`shoal firmware set list` shows the sets",
        "unknown_user" => "`shoal user list` shows the users",
        "unknown_token" => "`shoal token list` shows the API tokens",
        "unknown_worker_token" => "`shoal worker token list` shows the tokens of workers",
        "unknown_secret" => "`shoal secret list` shows the keys",
        "unknown_session" => "`shoal session list` shows the logins of browsers",
        "unknown_backup" => "`shoal backup list` shows the backups",
        "unknown_repository" => "`shoal registry ls --online` shows the repositories",
        "unknown_upload" => "`shoal registry uploads` shows the upload sessions",
        _ => return None,
    })
}

fn refusal_hint(status: u16, body: &Value) -> Option<&'static str> {
    let code = code(body);
    let message = body["message"].as_str().unwrap_or_default();
    match (status, code) {
        // Of an object without a code, and of a page; a proxy that has no controller has its own hint.
        (..=501, "") => Some("check that --url (SHOAL_URL) is the URL of a Shoal controller"),
        // The message names the command that confirms the login.
        (401, _) if message.contains("`shoal ") => None,
        (401, _) => Some(
            "give --token (SHOAL_TOKEN) or --user (SHOAL_USER); the controller shows an admin token at its first start",
        ),
        (404, code) => list_of(code),
        (409, "conflict.active_job") => {
            Some("wait for that job (`shoal job watch`) or cancel it (`shoal job cancel`), then try again")
        }
        (409, "conflict.server") => Some("change a registered server with `shoal server update`"),
        (400, "config.no_maintenance_iso") => {
            Some("give --maintenance-iso, or set MAINTENANCE_ISO_URL of the controller")
        }
        (400 | 422, "validation_error") if is_of_recipe(body) => {
            Some("`shoal recipe validate FILE` finds mistakes in a recipe without a controller")
        }
        (422, "bmc_password_needed") => {
            Some("give the password of the BMC with the change: --bmc-password-stdin or --bmc-password-file")
        }
        (429, _) => {
            Some("too many requests or wrong credentials from this address: wait a minute, then try again")
        }
        (500, _) => Some("the log of the controller has the cause under the request id"),
        // The message has the cause and what to do about it.
        (502, "bmc") => None,
        (503, "unavailable") => Some("see /readyz of the controller, then try again"),
        (503, "busy" | "too_many_streams") => Some("the controller has many requests now: try again"),
        (502..=504, _) => Some(
            "this is the response of a proxy that cannot reach the controller, or the controller is stopping: try again",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: Value) -> (String, String) {
        let error = CliError::Refused { status, body };
        (error.to_string(), error.hint().unwrap_or_default().into_owned())
    }

    fn of(status: u16, code: &str, message: &str) -> (String, String) {
        refused(status, json!({ "error": code, "message": message }))
    }

    #[test]
    fn the_reason_of_a_refusal_is_its_message_or_its_problems_in_one_line() {
        let detail = |path: &str, message: &str| json!({ "path": path, "field": "f", "message": message });
        let one = json!({ "message": "job J is active\u{1b}", "details": [detail("/server_serial", "J")] });
        assert_eq!(reason(&one), "job J is active\u{fffd}");
        let details = [detail("/recipe/a", "is missing"), detail("", "is wrong (line 1, column 5)")];
        let two = json!({ "message": "the request has 2 problems; see details", "details": details });
        assert_eq!(reason(&two), "/recipe/a: is missing; f: is wrong");
    }

    #[test]
    fn a_hint_belongs_to_the_code_of_the_error() {
        assert!(of(404, "unknown_webhook", "m").1.contains("shoal webhook list"));
        assert!(of(404, "unknown_user", "m").1.contains("shoal user list"));
        assert!(of(404, "unknown_server", "m").1.contains("shoal server add"));
        for (status, code, message) in [
            (404, "no_registry", "the registry is off"),
            (403, "forbidden", "token ci is limited to servers with its labels"),
            (412, "precondition_failed", "the filter selects 2 jobs now and 3 were expected"),
            (400, "validation_error", "/role: not a role"),
            (401, "unauthorized", "this login is of restored data; confirm it with `shoal user confirm`"),
        ] {
            assert_eq!(of(status, code, message).1, "", "{code}");
        }
        assert!(of(401, "unauthorized", "no credentials").1.contains("SHOAL_TOKEN"));
        let recipe = json!({ "error": "validation_error", "message": "see details", "details": [{ "path": "/recipe/a" }] });
        assert!(refused(400, recipe).1.contains("recipe validate"));
    }

    #[test]
    fn one_problem_is_printed_once_and_without_a_place_in_the_body() {
        let detail =
            json!({ "path": "/role", "code": "shape", "message": "unknown variant (line 1, column 168)" });
        let message = "/role: unknown variant (line 1, column 168)";
        let body = json!({ "error": "validation_error", "message": message, "details": [detail] });
        assert_eq!(refused(400, body).0, "/role: unknown variant (400 validation_error)");
        let body = json!({ "error": "validation_error", "message": "body: no (line 2, column 3)",
                           "details": [{ "path": "", "code": "shape", "message": "no (line 2, column 3)" }] });
        assert_eq!(refused(400, body).0, "body: no (400 validation_error)");
    }

    #[test]
    fn what_is_no_controller_is_called_so() {
        let redfish = json!({ "error": { "code": "Base.1.0.GeneralError", "message": "unauthorized" } });
        for (status, body) in [(401, redfish), (404, json!({})), (404, json!("<html>"))] {
            let (_, hint) = refused(status, body);
            assert!(hint.contains("the URL of a Shoal controller"), "{status}: {hint}");
        }
        assert!(refused(502, json!("<html>")).1.contains("proxy"));
    }
}
