//! Reads and changes the power state of the host.
//!
//! ```text
//!   reset(On | ForceOff | GracefulShutdown)   read; in the wanted state? nothing is sent
//!                                             POST ComputerSystem.Reset
//!                                             400/409? read; in the wanted state? success; in transition? not confirmed
//!                                             400 to a type that only ActionInfo lists? read it: ForceOn for On, or refused
//!                                             read back -> ChangeResult { changed, confirmed, observed }
//!   shut_down_running                         as reset(GracefulShutdown), without the first read within five minutes of a check
//! ```
//!
//! A host takes seconds to minutes to change its state, so `confirmed` is usually false right after the request. The
//! caller polls [`Bmc::power_state`] until the final state (`PoweringOff` is not `Off`). A restart is better done as
//! off, wait, on: some firmware hangs on a forced restart, and a restart cannot be read back.
//! Specification: DSP0268 ComputerSystem, Actions.Reset.

use http::Method;
use serde_json::{Value, json};

use crate::bmc::{Bmc, ChangeResult};
use crate::discovery::{ResetAction, SystemInfo, reset_types};
use crate::error::{ErrorKind, Operation, RedfishError, mark_maybe_applied};
use crate::exchange::Call;
use crate::json::{self, Resource};
use crate::power_state::{PowerState, ResetType};
use crate::profile::RestartWay;

impl Bmc {
    /// Reads the power state.
    ///
    /// # Errors
    ///
    /// When the system cannot be read.
    pub async fn power_state(&self, system: &SystemInfo) -> Result<PowerState, RedfishError> {
        self.power(Operation::PowerState, system).await
    }

    /// Returns the power state from the cached system, or reads it.
    ///
    /// # Errors
    ///
    /// When the system cannot be read.
    pub async fn power_state_cached(&self, system: &SystemInfo) -> Result<PowerState, RedfishError> {
        let read = self.core.cached(Operation::PowerState, &system.uri).await?;
        self.check_same(Operation::PowerState, system, &read)?;
        Ok(PowerState::of(&read))
    }

    /// The resets that restart this host; each is sent when the power state shows the goal of the previous one.
    pub fn restart_by(&self, system: &SystemInfo) -> &'static [ResetType] {
        let allows = |reset| system.reset.as_ref().is_some_and(|action| action.allows(reset));
        let off_on = allows(ResetType::ForceOff) && (allows(ResetType::On) || allows(ResetType::ForceOn));
        let restart = allows(ResetType::ForceRestart);
        match self.core.profile().restart {
            RestartWay::OffOn if off_on || !restart => &[ResetType::ForceOff, ResetType::On],
            RestartWay::ForceRestart if !restart => &[ResetType::ForceOff, ResetType::On],
            RestartWay::OffOn | RestartWay::ForceRestart => &[ResetType::ForceRestart],
        }
    }

    /// Returns the reset types the BMC lists: at the action, else in its `ActionInfo`. Empty if it lists none.
    ///
    /// # Errors
    ///
    /// When the `ActionInfo` cannot be read.
    pub async fn reset_types(&self, system: &SystemInfo) -> Result<Vec<ResetType>, RedfishError> {
        let Some(action) = &system.reset else { return Ok(Vec::new()) };
        let Some(info) = action.info.as_deref().filter(|_| action.allowed.is_empty()) else {
            return Ok(action.allowed.clone());
        };
        let details = self.core.read(Operation::Reset, info).await?;
        let parameters = details.fields.get("Parameters").and_then(Value::as_array);
        let named = parameters.into_iter().flatten().take(json::MAX_ENTRIES).filter_map(Value::as_object);
        let types = named.filter(|parameter| json::word(parameter, "Name").as_deref() == Some("ResetType"));
        Ok(types.flat_map(|parameter| reset_types(&json::texts(parameter, "AllowableValues"))).collect())
    }

    /// Checks that a read of the system is of the machine that was discovered.
    pub(crate) fn check_same(
        &self,
        operation: Operation,
        system: &SystemInfo,
        read: &Resource,
    ) -> Result<(), RedfishError> {
        if let Some((known, shown)) = system.other_serial(read) {
            let known = known.to_owned();
            return Err(RedfishError::new(operation, ErrorKind::OtherMachine { known, shown }));
        }
        self.core.note_checked();
        Ok(())
    }

    async fn power(&self, operation: Operation, system: &SystemInfo) -> Result<PowerState, RedfishError> {
        let read = self.core.read(operation, &system.uri).await?;
        self.check_same(operation, system, &read)?;
        Ok(PowerState::of(&read))
    }

    /// Sends a reset if the host is not in the wanted state already.
    ///
    /// # Errors
    ///
    /// `NotSupported` when the BMC does not list the type (`ForceOn` replaces a missing `On`); `Busy` when the request
    /// is possible later; an error with [`RedfishError::maybe_applied`] when the request may have been carried out: read
    /// the power state before the next decision.
    pub async fn reset(
        &self,
        system: &SystemInfo,
        reset: ResetType,
    ) -> Result<ChangeResult<PowerState>, RedfishError> {
        self.reset_from(system, reset, None).await
    }

    /// Asks the system of a host that is known to be on to shut down, and reads the power state back. The power state is not read
    /// before: a message of the host is a proof that is no older than a read. A host that is off after all stays off. The system
    /// is read nevertheless when it was last read five minutes ago, because another machine may have its address by now.
    ///
    /// # Errors
    ///
    /// As [`Bmc::reset`].
    pub async fn shut_down_running(
        &self,
        system: &SystemInfo,
    ) -> Result<ChangeResult<PowerState>, RedfishError> {
        let seen = Some(PowerState::On).filter(|_| self.core.is_checked());
        self.reset_from(system, ResetType::GracefulShutdown, seen).await
    }

    async fn reset_from(
        &self,
        system: &SystemInfo,
        reset: ResetType,
        seen: Option<PowerState>,
    ) -> Result<ChangeResult<PowerState>, RedfishError> {
        let Some(action) = &system.reset else {
            return Err(RedfishError::not_supported(Operation::Reset, "the system has no Reset action"));
        };
        let first = self.reset_once(system, action, offered(&action.allowed, reset)?, seen).await;
        let Err(refusal) = &first else { return first };
        // The types were not read before, because nearly every BMC has those that are sent here.
        let unlisted = action.allowed.is_empty() && action.info.is_some();
        if !unlisted
            || !matches!(refusal.kind, ErrorKind::Refused { status: 400, .. })
            || refusal.maybe_applied()
        {
            return first;
        }
        let Ok(listed) = self.reset_types(system).await else { return first };
        match offered(&listed, reset)? {
            other if other != reset => self.reset_once(system, action, other, None).await,
            _ => first,
        }
    }

    async fn reset_once(
        &self,
        system: &SystemInfo,
        action: &ResetAction,
        reset: ResetType,
        seen: Option<PowerState>,
    ) -> Result<ChangeResult<PowerState>, RedfishError> {
        const OPERATION: Operation = Operation::Reset;
        let goal = reset.goal();
        if goal.is_some() {
            let needs_change = |system: &Resource| Some(PowerState::of(system)) != goal;
            let observed = match seen {
                Some(seen) => seen,
                None => {
                    let read = self.core.read_for_update(OPERATION, &system.uri, needs_change).await?;
                    self.check_same(OPERATION, system, &read)?;
                    PowerState::of(&read)
                }
            };
            if Some(observed) == goal {
                return Ok(ChangeResult { changed: false, confirmed: true, observed });
            }
        }
        let body = json!({ "ResetType": reset.as_str() });
        let deadline = self.core.profile().mutation_timeout;
        let call = Call::mutation(OPERATION, Method::POST, &action.target, deadline).body(&body);
        let response = self.core.perform(&call, 1).await?;
        if !response.status.is_success() {
            let refusal = self.core.refusal(OPERATION, &response, &[]);
            if response.is(&[400, 409]) && goal.is_some() {
                let observed = self.power(OPERATION, system).await?;
                let reached = Some(observed) == goal;
                // A host that is neither on nor off may be changing its state; later reads show whether it does.
                let in_transition = !matches!(observed, PowerState::On | PowerState::Off)
                    && matches!(refusal.kind, ErrorKind::Refused { .. });
                if reached || in_transition {
                    return Ok(ChangeResult { changed: false, confirmed: reached, observed });
                }
            }
            return Err(refusal);
        }
        self.core.follow(OPERATION, &response, &[]).await?;
        let observed = self.power(OPERATION, system).await.map_err(mark_maybe_applied)?;
        Ok(ChangeResult { changed: true, confirmed: goal == Some(observed), observed })
    }
}

/// Returns the type to send for the wanted one, given the types the BMC lists; an empty list allows every type.
fn offered(listed: &[ResetType], reset: ResetType) -> Result<ResetType, RedfishError> {
    let lists = |reset| listed.is_empty() || listed.contains(&reset);
    match reset {
        ResetType::On if !lists(reset) && lists(ResetType::ForceOn) => Ok(ResetType::ForceOn),
        other if lists(other) => Ok(other),
        other => {
            let what = format!("the system does not offer {}", other.as_str());
            Err(RedfishError::not_supported(Operation::Reset, what))
        }
    }
}
