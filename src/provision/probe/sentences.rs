//! What stands in the way, in one sentence, and what to do about it: the same in a probe, in a doctor's check and in the
//! failure of a job.

use redfish::RedfishError;
use serde_json::{Value, json};

use super::super::fault::{about, next_action};

/// Why a BMC could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Trouble {
    /// A short stable name.
    pub code: String,
    /// What is wrong.
    pub sentence: String,
    /// What to do.
    pub next_action: String,
}

/// What an error of the Redfish client means to an operator.
pub fn trouble(error: &RedfishError, serial: Option<&str>) -> Trouble {
    Trouble {
        code: error.code().to_owned(),
        sentence: error.kind.to_string(),
        next_action: about(&next_action(error), serial.unwrap_or("SERIAL")),
    }
}

impl Trouble {
    /// The server's record, or what was asked for, cannot be used.
    pub(crate) fn record(why: String, serial: &str) -> Self {
        Self {
            code: "record".to_owned(),
            sentence: why,
            next_action: format!("correct it with `shoal server update {serial}`"),
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({ "code": self.code, "sentence": self.sentence, "next_action": self.next_action })
    }
}
