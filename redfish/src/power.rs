//! Switching power, and reading it.
//!
//! ```text
//!   reset(On | ForceOff | GracefulShutdown)   read; there already? nothing is sent
//!                                             POST ComputerSystem.Reset; 400/409? read; there? fine; between? open
//!                                             read back -> Applied { changed, confirmed, observed }
//! ```
//!
//! A host takes seconds to minutes to follow, so `confirmed` is usually false right after the request; the
//! caller reads [`Bmc::power_state`] until it has the final word (`PoweringOff` is not `Off`). Restarts are
//! better made of off, wait, on: some firmware hangs on a forced restart, and a restart cannot be read back.
//! Specification: DSP0268 ComputerSystem, Actions.Reset.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bmc::{Applied, Bmc};
use crate::discovery::SystemInfo;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::Call;
use crate::json::{self, Resource};
use crate::profile::Restart;

/// `PowerState` of a system.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub enum PowerState {
    /// Powered on.
    On,
    /// Powered off.
    Off,
    /// On its way up.
    PoweringOn,
    /// On its way down.
    PoweringOff,
    /// Paused.
    Paused,
    /// Not reported, or not understood.
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
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[non_exhaustive]
pub enum ResetType {
    /// Power on.
    On,
    /// Power on, also where `On` would be held back.
    ForceOn,
    /// Power off at once.
    ForceOff,
    /// Ask the OS to shut down.
    GracefulShutdown,
    /// Ask the OS to restart.
    GracefulRestart,
    /// Restart at once.
    ForceRestart,
    /// Off, then on.
    PowerCycle,
    /// As if the button were pressed.
    PushPowerButton,
    /// Non-maskable interrupt.
    Nmi,
}

impl ResetType {
    const ALL: [ResetType; 9] = [
        ResetType::On,
        ResetType::ForceOn,
        ResetType::ForceOff,
        ResetType::GracefulShutdown,
        ResetType::GracefulRestart,
        ResetType::ForceRestart,
        ResetType::PowerCycle,
        ResetType::PushPowerButton,
        ResetType::Nmi,
    ];

    /// The word of the specification.
    pub fn as_str(self) -> &'static str {
        match self {
            ResetType::On => "On",
            ResetType::ForceOn => "ForceOn",
            ResetType::ForceOff => "ForceOff",
            ResetType::GracefulShutdown => "GracefulShutdown",
            ResetType::GracefulRestart => "GracefulRestart",
            ResetType::ForceRestart => "ForceRestart",
            ResetType::PowerCycle => "PowerCycle",
            ResetType::PushPowerButton => "PushPowerButton",
            ResetType::Nmi => "Nmi",
        }
    }

    /// The type with that name; none for names unknown here.
    pub(crate) fn named(name: &str) -> Option<Self> {
        ResetType::ALL.into_iter().find(|reset| reset.as_str().eq_ignore_ascii_case(name))
    }

    /// The state the host is in afterwards, where reading it proves that the reset worked.
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

impl Bmc {
    /// Reads the power state.
    pub async fn power_state(&self, system: &SystemInfo) -> Result<PowerState, RedfishError> {
        self.power(Operation::PowerState, system).await
    }

    /// What the power state was a moment ago; reads it if nobody has, or if anything was changed since.
    pub async fn power_state_cached(&self, system: &SystemInfo) -> Result<PowerState, RedfishError> {
        Ok(PowerState::of(&self.core.lately(Operation::PowerState, &system.uri).await?))
    }

    /// The resets that make up a restart of this host, each to be sent when the goal of the one before is read.
    pub fn restart_by(&self, system: &SystemInfo) -> &'static [ResetType] {
        let allows = |reset| system.reset.as_ref().is_some_and(|action| action.allows(reset));
        let off_on = allows(ResetType::ForceOff) && (allows(ResetType::On) || allows(ResetType::ForceOn));
        let restart = allows(ResetType::ForceRestart);
        match self.core.profile().restart {
            Restart::OffOn if off_on || !restart => &[ResetType::ForceOff, ResetType::On],
            Restart::ForceRestart if !restart => &[ResetType::ForceOff, ResetType::On],
            Restart::OffOn | Restart::ForceRestart => &[ResetType::ForceRestart],
        }
    }

    async fn power(&self, operation: Operation, system: &SystemInfo) -> Result<PowerState, RedfishError> {
        Ok(PowerState::of(&self.core.read(operation, &system.uri).await?))
    }

    /// Switches power if the host is not in the wanted state already.
    ///
    /// Fails with `NotSupported` when the BMC does not list the type (`ForceOn` stands in for a missing `On`);
    /// with `Busy` when it wants to be asked later; with [`RedfishError::maybe_applied`] when the request may
    /// have been carried out: read the power state then, and decide anew.
    pub async fn reset(
        &self,
        system: &SystemInfo,
        reset: ResetType,
    ) -> Result<Applied<PowerState>, RedfishError> {
        const OPERATION: Operation = Operation::Reset;
        let Some(action) = &system.reset else {
            return Err(RedfishError::not_supported(OPERATION, "the system has no Reset action"));
        };
        let reset = match reset {
            ResetType::On if !action.allows(reset) && action.allows(ResetType::ForceOn) => ResetType::ForceOn,
            other if action.allows(other) => other,
            other => {
                let what = format!("the system does not offer {}", other.as_str());
                return Err(RedfishError::not_supported(OPERATION, what));
            }
        };
        let goal = reset.goal();
        if goal.is_some() {
            let observed = {
                let calls = |system: &Resource| Some(PowerState::of(system)) != goal;
                PowerState::of(&self.core.before(OPERATION, &system.uri, calls).await?)
            };
            if Some(observed) == goal {
                return Ok(Applied { changed: false, confirmed: true, observed });
            }
        }
        let body = json!({ "ResetType": reset.as_str() });
        let deadline = self.core.profile().mutation_timeout;
        let call = Call::mutation(OPERATION, Method::POST, &action.target, deadline).body(&body);
        let answer = self.core.perform(&call, 1).await?;
        if !answer.status.is_success() {
            let refusal = self.core.refusal(OPERATION, &answer, &[]);
            if answer.is(&[400, 409]) && goal.is_some() {
                let observed = self.power(OPERATION, system).await?;
                let there = Some(observed) == goal;
                // A host that is neither on nor off may be doing it: whether the refusal was one, later reads tell.
                let open = !matches!(observed, PowerState::On | PowerState::Off)
                    && matches!(refusal.kind, ErrorKind::Refused { .. });
                if there || open {
                    return Ok(Applied { changed: false, confirmed: there, observed });
                }
            }
            return Err(refusal);
        }
        self.core.follow(OPERATION, &answer, &[]).await?;
        let observed = self.power(OPERATION, system).await.map_err(mark_maybe_applied)?;
        Ok(Applied { changed: true, confirmed: goal == Some(observed), observed })
    }
}

/// Marks a failed read-back: the mutation before it did go out.
pub(crate) fn mark_maybe_applied(error: RedfishError) -> RedfishError {
    RedfishError { maybe_applied: true, ..error }
}
