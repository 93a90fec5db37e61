//! Events: the one log of what happened to jobs, servers and the controller.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{RunId, Serial};
use super::json_text::JsonText;
use super::names::StepName;
use super::time::Time;

/// The actors of events that are parts of the program. No user and no token has such a name.
pub const PROGRAM_ACTORS: [&str; 6] =
    ["controller", "engine", "maintenance-os", "media", "registry", "schedule"];
/// The beginning of the actor of an event about a worker of another machine; its name follows. No name of a user or token has a slash.
pub const WORKER_ACTOR: &str = "worker/";

/// The severity of an event.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum EventLevel {
    /// A normal step of the work.
    Info,
    /// A fact that an operator should know.
    Warn,
    /// A failure.
    Error,
}

impl EventLevel {
    /// The level's name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// An event to be written. The store writes the event in the transaction of the change that it explains, and numbers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// The type of the event: a dotted name from a closed set, for programs.
    pub kind: String,
    /// The severity of the event.
    pub level: EventLevel,
    /// The step to which the event belongs.
    pub step: Option<StepName>,
    /// The attempt of the step, beginning with 1.
    pub attempt: Option<u32>,
    /// The actor that caused the event: a name of [`PROGRAM_ACTORS`], or of a user or token.
    pub actor: String,
    /// One sentence for operators, without secrets.
    pub message: String,
    /// Facts for programs.
    pub data: Option<Value>,
}

impl NewEvent {
    /// An `info` event of the engine.
    pub fn info(kind: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            level: EventLevel::Info,
            step: None,
            attempt: None,
            actor: "engine".to_owned(),
            message: message.into(),
            data: None,
        }
    }

    /// A `warn` event of the engine.
    pub fn warn(kind: &str, message: impl Into<String>) -> Self {
        Self { level: EventLevel::Warn, ..Self::info(kind, message) }
    }

    /// An `error` event of the engine.
    pub fn error(kind: &str, message: impl Into<String>) -> Self {
        Self { level: EventLevel::Error, ..Self::info(kind, message) }
    }

    /// Sets the facts for programs.
    #[must_use]
    pub fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Sets the actor.
    #[must_use]
    pub fn by(mut self, actor: &str) -> Self {
        actor.clone_into(&mut self.actor);
        self
    }

    /// Sets the step and the attempt, unless the event has a step already.
    #[must_use]
    pub fn of_step(mut self, step: &StepName, attempt: u32) -> Self {
        if self.step.is_none() {
            self.step = Some(step.clone());
            self.attempt = Some(attempt);
        }
        self
    }
}

/// A stored event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// The position in the log; it grows and is never reused.
    pub seq: i64,
    /// When the event was written.
    pub time: Time,
    /// The run to which the event belongs.
    #[serde(rename = "job_id", skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The server to which the event belongs.
    #[serde(rename = "server_serial", skip_serializing_if = "Option::is_none")]
    pub server: Option<Serial>,
    /// The type of the event; see [`NewEvent::kind`].
    #[serde(rename = "type")]
    pub kind: String,
    /// The severity of the event.
    pub level: EventLevel,
    /// The step to which the event belongs.
    pub step: Option<StepName>,
    /// The attempt of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The actor that caused the event.
    pub actor: String,
    /// One sentence for operators.
    pub message: String,
    /// Facts for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<JsonText>,
}
