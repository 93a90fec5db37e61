//! Errors of commands: what happened, the details, and what to do next.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};
use thiserror::Error;

use settings::ConfigErrors;

use super::exit::Exit;
use super::output::plain;

/// The maximum of shown characters of a response that is not from a controller.
const EXCERPT_CHARS: usize = 200;

/// Why a command failed.
#[derive(Debug, Error)]
pub(super) enum CliError {
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
        /// What happened.
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
        /// The body, or its beginning as text when it is not JSON.
        body: Value,
    },
    /// Several things have an id that begins so.
    #[error(
        "{} {} have an id that begins with {given}:\n  {}",
        if *more { format!("more than {}", candidates.len()) } else { candidates.len().to_string() },
        if *what == "batch" { "batches" } else { "jobs" },
        candidates.join("\n  ")
    )]
    AmbiguousId {
        /// What they are.
        what: &'static str,
        /// The given beginning.
        given: String,
        /// The first of them, described.
        candidates: Vec<String>,
        /// There are more.
        more: bool,
    },
    /// A watched job did not succeed. The output already contains its events.
    #[error("job {job} ended {outcome}")]
    JobEnded {
        /// The job.
        job: String,
        /// How it ended.
        outcome: String,
    },
    /// Not every job of a watched batch succeeded.
    #[error("batch {batch} ended {outcome}")]
    BatchEnded {
        /// The batch.
        batch: String,
        /// How it ended.
        outcome: String,
    },
}

impl CliError {
    /// A local failure with exit code 1.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::Local { message: message.into(), exit: Exit::Failed }
    }

    /// The exit code.
    pub(super) fn exit(&self) -> Exit {
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
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } => true,
            Self::Refused { body, .. } if code(body) == "bmc" => false,
            Self::Refused { status, .. } => matches!(status, 429 | 500 | 502..=504),
            _ => false,
        }
    }

    /// Whether the request may have been processed although there is no response to it.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Self::Unreachable { mutating, .. } => *mutating,
            // Of a proxy: a controller sends an object.
            Self::Refused { status, body } => matches!(status, 502 | 504) && !body.is_object(),
            _ => false,
        }
    }

    /// What to do next.
    pub(super) fn hint(&self) -> Option<Cow<'static, str>> {
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
            Self::Refused { status, body } => refusal_hint(*status, code(body)),
            _ => None,
        }
    }

    /// The error as JSON.
    pub(super) fn json(&self) -> Value {
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

fn refusal(status: u16, body: &Value) -> String {
    if !body.is_object() {
        let text: String = body.as_str().unwrap_or_default().chars().take(EXCERPT_CHARS).collect();
        return format!("the controller responded with {status}: {}", plain(text.trim()));
    }
    let message = body["message"].as_str().unwrap_or("no message");
    let mut text = format!("{} ({status} {})", plain(message), plain(code(body)));
    for detail in body["details"].as_array().into_iter().flatten() {
        let part = |key: &str| plain(detail[key].as_str().unwrap_or_default());
        let place = Some(part("path")).filter(|path| !path.is_empty()).unwrap_or_else(|| part("field"));
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {place} [{}] {}", part("code"), part("message"));
    }
    if let Some(id) = body["request_id"].as_str() {
        let _ = write!(text, "\n  request {}", plain(id));
    }
    text
}

fn refusal_hint(status: u16, code: &str) -> Option<&'static str> {
    match (status, code) {
        (401, _) => Some(
            "give --token (SHOAL_TOKEN) or --user (SHOAL_USER); the controller shows an admin token at its first start",
        ),
        (403, _) => Some("this needs a token with another role"),
        (404, "unknown_server") => Some(
            "register the server with `shoal server add`; `shoal server list` shows the registered servers",
        ),
        (404, _) => Some("`shoal job list` and `shoal server list` show existing jobs and servers"),
        (409, "conflict.active_job") => {
            Some("wait for that job (`shoal job watch`) or cancel it (`shoal job cancel`), then try again")
        }
        (409, "conflict.server") => Some("change a registered server with `shoal server update`"),
        (412, _) => Some(
            "it has changed since it was read: read it again (`shoal server show`), then repeat the change",
        ),
        (400, "config.no_maintenance_iso") => {
            Some("give --maintenance-iso, or set MAINTENANCE_ISO_URL of the controller")
        }
        (400 | 422, "validation_error") => {
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
