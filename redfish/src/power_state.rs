//! Power states of a system, and the types of a reset. Specification: DSP0268 ComputerSystem.

use serde::{Deserialize, Serialize};

use crate::json::{self, Resource};

/// `PowerState` of a system.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub enum PowerState {
    /// The host is powered on.
    On,
    /// The host is powered off.
    Off,
    /// The host changes from off to on.
    PoweringOn,
    /// The host changes from on to off.
    PoweringOff,
    /// The host is paused.
    Paused,
    /// The state is not shown, or has an unknown value.
    Unknown,
}

impl PowerState {
    pub(crate) fn of(resource: &Resource) -> Self {
        let state = json::word(&resource.fields, "PowerState").unwrap_or_default();
        match state.to_ascii_lowercase().as_str() {
            "on" => PowerState::On,
            "off" => PowerState::Off,
            "poweringon" => PowerState::PoweringOn,
            "poweringoff" => PowerState::PoweringOff,
            "paused" => PowerState::Paused,
            _ => PowerState::Unknown,
        }
    }
}

/// `ResetType` of `ComputerSystem.Reset`.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize, strum::IntoStaticStr, strum::EnumString,
)]
#[non_exhaustive]
#[strum(ascii_case_insensitive)]
pub enum ResetType {
    /// The host is powered on.
    On,
    /// Power on, also where the BMC would delay `On`.
    ForceOn,
    /// Power off at once.
    ForceOff,
    /// Ask the OS to shut down.
    GracefulShutdown,
    /// Ask the OS to restart.
    GracefulRestart,
    /// The host is restarted at once.
    ForceRestart,
    /// The host is powered off, then on.
    PowerCycle,
    /// Press of the power button.
    PushPowerButton,
    /// Non-maskable interrupt.
    Nmi,
}

impl ResetType {
    /// The value in the specification.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The type with this name; `None` for an unknown name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// The power state after the reset, where reading it proves that the reset worked; `None` for a restart.
    pub fn goal(self) -> Option<PowerState> {
        match self {
            ResetType::On | ResetType::ForceOn => Some(PowerState::On),
            ResetType::ForceOff | ResetType::GracefulShutdown => Some(PowerState::Off),
            ResetType::GracefulRestart
            | ResetType::ForceRestart
            | ResetType::PowerCycle
            | ResetType::PushPowerButton
            | ResetType::Nmi => None,
        }
    }
}
