//! The manager of a simulated BMC: its restart, and the hardware that it shows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time;
use crate::types::ResetType;

/// The rules of a restart of the BMC.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ManagerPolicy {
    /// `ResetType@Redfish.AllowableValues` of `Manager.Reset`; when empty, there is no such action.
    pub reset_types: Vec<ResetType>,
    /// Time from the response to the restart.
    #[serde(with = "time")]
    pub begins_after: Duration,
    /// Time for which the BMC is away.
    #[serde(with = "time")]
    pub away: Duration,
    /// The effect of an accepted reset.
    pub restart: ManagerRestart,
    /// Whether the BMC has another certificate after its restart.
    pub new_certificate: bool,
    /// Whether the manager shows `LastResetTime`.
    pub shows_last_reset: bool,
    /// How far the `LastResetTime` of a BMC moves that computes it from its clock: by a second with each request, and back.
    #[serde(with = "time")]
    pub last_reset_moves: Duration,
}

impl Default for ManagerPolicy {
    fn default() -> Self {
        Self {
            reset_types: vec![ResetType::GracefulRestart, ResetType::ForceRestart],
            begins_after: Duration::from_secs(1),
            away: Duration::from_secs(30),
            restart: ManagerRestart::Returns,
            new_certificate: false,
            shows_last_reset: true,
            last_reset_moves: Duration::ZERO,
        }
    }
}

/// The effect of an accepted reset of the manager.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagerRestart {
    /// The BMC is away for its time and returns.
    Returns,
    /// The BMC keeps running.
    Ignored,
    /// The BMC goes away and does not return.
    StaysAway,
}

/// The hardware that the BMC shows; nothing when a number is 0.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HardwareConfig {
    /// Processors of the system.
    pub processors: usize,
    /// Memory modules of the system; one further socket is empty.
    pub memory_modules: usize,
    /// Serial numbers of the drives of the system.
    pub drives: Vec<String>,
    /// Network interfaces of the system; the first one has a link.
    pub interfaces: usize,
    /// Power supplies of the chassis; shown only with a chassis.
    pub power_supplies: usize,
}

impl Default for HardwareConfig {
    fn default() -> Self {
        Self {
            processors: 2,
            memory_modules: 4,
            drives: vec!["S0NVME0001".to_owned(), "S0NVME0002".to_owned()],
            interfaces: 2,
            power_supplies: 2,
        }
    }
}
