//! Events: the one log in which every job tells its story.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{RunId, Serial};
use super::json_text::JsonText;
use super::time::Time;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The story as it should go.
    Info,
    /// Something an operator may want to know.
    Warn,
    /// Something failed.
    Error,
}

impl Level {
    /// The level's name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// An event to be written; the store gives it its number and, with the change it explains, one transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// A dotted name from a closed set per room, for machines.
    pub kind: String,
    /// How much it matters.
    pub level: Level,
    /// The step it belongs to.
    pub step: Option<String>,
    /// Which try of the step, beginning with 1.
    pub attempt: Option<u32>,
    /// Who caused it: `engine`, a user's name, `maintenance-os`.
    pub actor: String,
    /// One sentence for people, without secrets.
    pub message: String,
    /// Facts for machines.
    pub data: Option<Value>,
}

impl NewEvent {
    /// An `info` event of the engine.
    pub fn info(kind: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            level: Level::Info,
            step: None,
            attempt: None,
            actor: "engine".to_owned(),
            message: message.into(),
            data: None,
        }
    }

    /// A `warn` event of the engine.
    pub fn warn(kind: &str, message: impl Into<String>) -> Self {
        Self { level: Level::Warn, ..Self::info(kind, message) }
    }

    /// An `error` event of the engine.
    pub fn error(kind: &str, message: impl Into<String>) -> Self {
        Self { level: Level::Error, ..Self::info(kind, message) }
    }

    /// The same event with facts for machines.
    #[must_use]
    pub fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// The same event caused by somebody else.
    #[must_use]
    pub fn by(mut self, actor: &str) -> Self {
        actor.clone_into(&mut self.actor);
        self
    }

    /// The same event belonging to a step and a try of it.
    #[must_use]
    pub fn of_step(mut self, step: &str, attempt: u32) -> Self {
        if self.step.is_none() {
            self.step = Some(step.to_owned());
            self.attempt = Some(attempt);
        }
        self
    }
}

/// An event as it was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Its place in the one log; grows, never reused.
    pub seq: i64,
    /// When it was written.
    pub time: Time,
    /// The run it belongs to.
    #[serde(rename = "job_id", skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The server it belongs to.
    #[serde(rename = "server_serial", skip_serializing_if = "Option::is_none")]
    pub server: Option<Serial>,
    /// See [`NewEvent::kind`].
    #[serde(rename = "type")]
    pub kind: String,
    /// How much it matters.
    pub level: Level,
    /// The step it belongs to.
    pub step: Option<String>,
    /// Which try of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Who caused it.
    pub actor: String,
    /// One sentence for people.
    pub message: String,
    /// Facts for machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<JsonText>,
}
