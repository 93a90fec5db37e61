//! The parameters of an installation of firmware.
//!
//! ```text
//!   client: firmware_set | labels | neither ──> the controller chooses the set ──> files: the content of the set at that time
//! ```
//!
//! Invariant: a stored order has its files, so that a later change of the set changes no accepted order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::permission::{HostRestart, RestartWindow};
use firmware::{Entry, MAX_FILES};
use model::Time;

/// The most labels by which a set is chosen.
const MAX_LABELS: usize = 16;

/// The parameters of an installation of firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InstallFirmware {
    /// The set, by its name or id; without it the one set that fits the server and has the labels.
    #[serde(alias = "firmware_set_id", alias = "firmware-set-id", alias = "firmwareSetId")]
    pub firmware_set: Option<String>,
    /// The labels that the set must have.
    pub labels: BTreeMap<String, String>,
    /// Whether a version is installed that is older than the installed one, or has no order to it.
    pub allow_downgrade: bool,
    /// Whether the host may be restarted.
    pub restart: HostRestart,
    /// The beginning of the maintenance window: the host is not restarted before.
    pub restart_from: Option<Time>,
    /// The end of the maintenance window: the host is not restarted after it.
    pub restart_until: Option<Time>,
    /// The files of the set when the order was accepted. The controller fills them in.
    pub files: Vec<Entry>,
}

impl InstallFirmware {
    /// Checks what the types do not.
    pub(super) fn checked(&self) -> Result<(), String> {
        if self.labels.len() > MAX_LABELS {
            return Err(format!("there are at most {MAX_LABELS} labels"));
        }
        if self.firmware_set.is_some() && !self.labels.is_empty() {
            return Err("name the firmware_set or give labels, not both".to_owned());
        }
        if self.files.len() > MAX_FILES {
            return Err(format!("an installation has at most {MAX_FILES} files"));
        }
        self.window().checked()
    }

    /// When the host may be restarted.
    pub(super) fn window(&self) -> RestartWindow {
        RestartWindow { restart: self.restart, from: self.restart_from, until: self.restart_until }
    }

    /// Describes the order in one sentence for operators: the firmware set, and when the host may be restarted.
    pub(super) fn sentence(&self) -> String {
        let set = match &self.firmware_set {
            Some(set) => format!("the firmware set {set}"),
            None => "the firmware set that fits the server".to_owned(),
        };
        let restart = match (self.restart, self.restart_from) {
            (HostRestart::Forbidden, _) => "waits for an operator to restart the host where it is needed",
            (HostRestart::Allowed, Some(_)) => "restarts the host where it is needed, in the window",
            (HostRestart::Allowed, None) => "restarts the host where it is needed",
        };
        format!("installs {set}, verifies each version, {restart}")
    }
}
