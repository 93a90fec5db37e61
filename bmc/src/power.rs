//! Power: a host is shut down, forced off and powered on, and every change is read back.
//!
//! ```text
//!   shut_down   off                                    -> done       (not read when the host has just reported, and no
//!                                                                    power-on of this job is still unshown)
//!               graceful request -> off                -> done
//!                                -> grace without off  -> force_off
//!                                -> busy, conflict     -> wait, request again; after the grace time -> force_off
//!                                -> refused for good   -> force_off
//!   force_off   off                                    -> done
//!               ForceOff -> wait -> ForceOff again     -> done, or taken as done for a BMC that never shows the state
//!   power_on    on                                     -> done
//!               On -> wait -> On again                 -> done, or taken as done for a BMC that never shows the state
//! ```
//!
//! [`PowerRequest`] is the output of each of these steps. A checkpoint records it before the request is sent, so that a second
//! worker sends only what is missing (decision D8). Nothing here restarts a host that is on.

use std::collections::BTreeMap;
use std::time::Duration;

use redfish::{ErrorKind, PowerState, RedfishError, ResetType, SystemInfo};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::classify::{from_redfish, from_redfish_change, is_refused_for_now};
use super::step::{ConnectedBmc, lease_lost, wait_for_bmc};
use super::waits;
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, ReadMark, StepName, Time, permit_resource};

/// Time limit for the BMC to show a requested power state.
pub const POWER_TIMEOUT: Duration = Duration::from_secs(180);
/// A request without effect is sent again after this time.
pub const RESEND_AFTER: Duration = Duration::from_secs(60);
/// The time after the second request when a change that the BMC does not show is taken as done.
const ASSUMED_AFTER: Duration = Duration::from_secs(30);
/// The time that a system gets to shut down which an installation is over for, or which was started for a moment only.
pub const SHORT_GRACE: Duration = Duration::from_secs(60);
/// The time that an operating system in use gets to shut down before power is forced off. A service alone may take 90 seconds
/// (systemd's `DefaultTimeoutStopSec`), and services end one after another.
pub const HOST_GRACE: Duration = Duration::from_secs(10 * 60);

/// Returns the resource of the permit that a host needs to power on.
pub fn power_on_permit() -> String {
    permit_resource("power-on")
}

/// The output of steps that change the power state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PowerRequest {
    /// The time of the checkpoint before the graceful request was sent.
    pub graceful_at: Option<Time>,
    /// The BMC answered the graceful request, or the request timed out. While this is false the request may never have been
    /// sent, so the grace period of the host has not started.
    #[serde(default)]
    pub graceful_answered: bool,
    /// Since when the BMC refuses the graceful request for now: it is busy, or the state of the host is in conflict with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_since: Option<Time>,
    /// The host was up when the first request of a shutdown was sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub found_up: bool,
    /// The time when the last (forced) request was sent.
    pub sent_at: Option<Time>,
    /// The number of requests sent.
    pub sent: u32,
    /// The change is taken as done although the BMC does not show it: the power state it shows may be stale, or never right.
    #[serde(default)]
    pub unconfirmed: bool,
    /// The reads of the media before the last request; before there is one, those before the first look at the host. A BMC reads
    /// media itself when they are inserted, so only later reads show a boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_before: Option<ReadMark>,
    /// The slots whose media the BMC had dropped and that were filled again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reinserted: BTreeMap<String, Reinserted>,
}

/// Media that were inserted again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reinserted {
    /// When the insert was sent.
    pub sent_at: Time,
    /// Whether the slot has shown the media since. A slot may show them late.
    pub shown: bool,
}

/// Returns whether the previous worker died in this step, between the intent and the result.
fn previous_worker_died(context: &StepContext) -> bool {
    context.reentered && context.previous_wait.is_none()
}

/// Returns whether a power request without effect must be sent (again): it was never sent, was sent long ago, or the worker
/// died before the response, so it is unknown whether the request was sent.
pub fn due(context: &StepContext, request: &PowerRequest) -> bool {
    previous_worker_died(context)
        || request.sent_at.is_none_or(|sent| context.now().since(sent) >= RESEND_AFTER)
}

/// Returns whether a host is on or powering on. For a BMC that shows neither on nor off, a repeated request does no harm.
pub fn is_up(state: PowerState) -> bool {
    matches!(state, PowerState::On | PowerState::PoweringOn | PowerState::Paused)
}

/// Returns whether a change is taken as done after two requests to a BMC that shows neither on nor off: some never show more.
fn assumed_applied(context: &StepContext, request: &PowerRequest, state: PowerState) -> bool {
    let late = request.sent_at.is_some_and(|sent| context.now().since(sent) >= ASSUMED_AFTER);
    !is_up(state) && state != PowerState::Off && request.sent > 1 && late
}

/// Returns the power state: cached before this step has sent a request, otherwise read again.
///
/// # Errors
/// Returns what ends the step when the BMC cannot be read.
pub async fn state(
    step: &StepName,
    context: &StepContext,
    connected: &ConnectedBmc,
    system: &SystemInfo,
    request: &PowerRequest,
) -> Result<PowerState, StepError> {
    let untouched = request.sent == 0 && request.graceful_at.is_none() && context.previous_wait.is_none();
    let read: Result<PowerState, RedfishError> = match untouched && !context.reentered {
        true => connected.bmc.power_state_cached(system).await,
        false => connected.bmc.power_state(system).await,
    };
    read.map_err(|error| from_redfish(step, &error))
}

/// Records a power request in a checkpoint and sends it; returns whether a read already shows its effect.
///
/// A refusal after an earlier request, also a graceful one, is no failure: the BMC may have applied the earlier request, shows
/// its power state late, and refuses to repeat it. A conflict (409) to the first forced request is a BMC that is busy.
///
/// # Errors
/// Returns what ends the step when the lease is lost, or the BMC refuses the first request or does not respond.
pub async fn send(
    step: &StepName,
    context: &StepContext,
    connected: &ConnectedBmc,
    system: &SystemInfo,
    reset: ResetType,
    request: &mut PowerRequest,
) -> Result<bool, StepError> {
    request.sent_at = Some(context.now());
    request.sent += 1;
    context.checkpoint(json!(request)).await.map_err(|_lost| lease_lost(step))?;
    match connected.bmc.reset(system, reset).await {
        Ok(applied) => Ok(applied.confirmed),
        Err(error)
            if match error.kind {
                ErrorKind::Refused { status: 409, .. } => request.sent > 1,
                ErrorKind::Refused { .. } => request.sent > 1 || request.graceful_at.is_some(),
                _ => false,
            } =>
        {
            Ok(false)
        }
        // After a definite refusal there is nothing to wait for: the next attempt sends the request at once.
        Err(error) if !error.maybe_applied() => {
            let unsent =
                PowerRequest { sent: request.sent.saturating_sub(1), sent_at: None, ..request.clone() };
            Err(from_redfish_change(step, &error).with_output(json!(unsent)))
        }
        Err(error) => Err(from_redfish(step, &error)),
    }
}

/// Forces the host off and reads it back.
///
/// # Errors
/// Returns what ends the step when the lease is lost, or the BMC refuses the request or does not respond.
pub async fn force_off(
    step: &StepName,
    context: &StepContext,
    connected: &ConnectedBmc,
    system: &SystemInfo,
) -> Result<StepReport, StepError> {
    let mut request: PowerRequest = context.own_output().unwrap_or_default();
    let state = state(step, context, connected, system, &request).await?;
    if state == PowerState::Off {
        let event = match request.sent {
            0 => NewEvent::info("redfish.power", "host was off"),
            _ => NewEvent::info("redfish.power", "host off, read back"),
        };
        return Ok(connected.report(StepReport::done().with_output(json!(request)).event(event)));
    }
    if assumed_applied(context, &request, state) {
        request.unconfirmed = true;
        let message =
            "power-off was requested twice; the BMC shows neither on nor off, so the host is taken as off";
        let event = NewEvent::warn("redfish.power", message);
        return Ok(connected.report(StepReport::done().with_output(json!(request)).event(event)));
    }
    if request.sent == 0 && request.graceful_at.is_none() {
        request.found_up = is_up(state);
    }
    if due(context, &request)
        && send(step, context, connected, system, ResetType::ForceOff, &mut request).await?
    {
        return Ok(connected.report(
            StepReport::done()
                .with_output(json!(request))
                .event(NewEvent::info("redfish.power", "host forced off, read back")),
        ));
    }
    let shown = match state {
        PowerState::Unknown => "no power state".to_owned(),
        state => format!("{state:?}"),
    };
    let detail = format!("power-off was requested; the BMC shows {shown}");
    Ok(StepReport::wait(wait_for_bmc(&waits::POWER_OFF, POWER_TIMEOUT, detail)).with_output(json!(request)))
}

/// The state of a host that is known before it is shut down, without a read of its BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownHost {
    /// Nothing is known: the BMC of the host is read.
    Unknown,
    /// A power-on was sent so recently that an "off" may be stale. A message of the host does not change that: it is no proof
    /// that the next "off" is of now.
    MayStart,
    /// The host itself has said within the last seconds that it is on ([`PROOF_AGE`]), and no power-on is unshown.
    SaidOn,
}

/// How old a message of the host may be that stands for a read of its power state: as old as a cached read.
pub const PROOF_AGE: Duration = Duration::from_secs(15);

/// Shuts the operating system down, and forces the host off when it does not end within `grace`.
///
/// # Errors
/// Returns what ends the step when the lease is lost or the BMC does not respond.
pub async fn shut_down(
    step: &StepName,
    context: &StepContext,
    connected: &ConnectedBmc,
    system: &SystemInfo,
    known: KnownHost,
    grace: Duration,
) -> Result<StepReport, StepError> {
    let mut request: PowerRequest = context.own_output().unwrap_or_default();
    let graceful = system.reset.as_ref().is_some_and(|reset| reset.allows(ResetType::GracefulShutdown));
    let now = context.now();
    let waited =
        request.graceful_answered && request.graceful_at.is_some_and(|sent| now.since(sent) >= grace);
    if !graceful || waited || request.sent > 0 {
        return force_off(step, context, connected, system).await;
    }
    // The message speaks for the first attempt only. A graceful request to a host that is off starts nothing.
    let first = request.graceful_at.is_none() && context.previous_wait.is_none() && !context.reentered;
    let said_on = known == KnownHost::SaidOn && first;
    let state = match said_on {
        true => PowerState::On,
        false => connected.bmc.power_state(system).await.map_err(|error| from_redfish(step, &error))?,
    };
    // A host that received a shutdown request was on before, so its "off" is not stale.
    if state == PowerState::Off && request.graceful_at.is_none() && known == KnownHost::MayStart {
        let detail = "power-on was requested a moment ago, so the host may still come up; it is read again before it counts as off";
        return Ok(StepReport::wait(wait_for_bmc(&waits::POWER_OFF, POWER_TIMEOUT, detail))
            .with_output(json!(request)));
    }
    if state == PowerState::Off {
        return Ok(StepReport::done().event(NewEvent::info("redfish.power", "host off")));
    }
    let again = request.graceful_at.is_some();
    // A request that may never have been sent is sent again; otherwise a system that would shut down loses power.
    if !request.graceful_answered {
        request.found_up |= !again && is_up(state);
        request.graceful_at = Some(now);
        context.checkpoint(json!(request)).await.map_err(|_lost| lease_lost(step))?;
        let sent = match said_on {
            true => connected.bmc.shut_down_running(system).await,
            false => connected.bmc.reset(system, ResetType::GracefulShutdown).await,
        };
        request.graceful_answered = true;
        match sent {
            Ok(reset) if reset.confirmed => {
                let event = NewEvent::info("redfish.power", "host shut down gracefully, read back");
                return Ok(StepReport::done().with_output(json!(request)).event(event));
            }
            Ok(_) => request.refused_since = None,
            // A BMC that is busy, or a host that still starts: the operating system may run, and it gets its time.
            Err(error) if is_refused_for_now(&error) && !error.maybe_applied() && !again => {
                let since = *request.refused_since.get_or_insert(now);
                if now.since(since) >= grace {
                    return force_off(step, context, connected, system).await;
                }
                (request.graceful_at, request.graceful_answered) = (None, false);
                return Err(from_redfish_change(step, &error).with_output(json!(request)));
            }
            // An earlier request may have been applied; a BMC that shows its power state late refuses the second one.
            Err(error) if again && !error.is_transient() => {}
            // If a graceful shutdown is not possible now, power is forced off at once.
            Err(error) if !error.is_transient() => return force_off(step, context, connected, system).await,
            // A transient error, and certainly not applied: the next attempt sends it again.
            Err(error) if !error.maybe_applied() => {
                (request.graceful_at, request.graceful_answered) = (None, false);
                return Err(from_redfish_change(step, &error).with_output(json!(request)));
            }
            Err(error) => return Err(from_redfish(step, &error).with_output(json!(request))),
        }
    }
    let detail = "a graceful shutdown was requested; the host is not off yet";
    let wait = wait_for_bmc(&waits::SHUTDOWN, grace + POWER_TIMEOUT, detail);
    Ok(StepReport::wait(wait).with_output(json!(request)))
}

/// Powers the host on and reads it back. `before_sending` runs before each request: it refuses a start that must not happen.
///
/// # Errors
/// Returns the error of `before_sending`, or what ends the step when the lease is lost, or the BMC refuses the request
/// or does not respond.
pub async fn power_on(
    step: &StepName,
    context: &StepContext,
    connected: &ConnectedBmc,
    system: &SystemInfo,
    before_sending: impl Future<Output = Result<(), StepError>>,
) -> Result<StepReport, StepError> {
    let mut request: PowerRequest = context.own_output().unwrap_or_default();
    let state = state(step, context, connected, system, &request).await?;
    if is_up(state) {
        return Ok(StepReport::done().event(NewEvent::info("redfish.power", "host on, read back")));
    }
    if assumed_applied(context, &request, state) {
        request.unconfirmed = true;
        let message =
            "power-on was requested twice; the BMC shows neither on nor off, so the host is taken as on";
        return Ok(StepReport::done()
            .with_output(json!(request))
            .event(NewEvent::warn("redfish.power", message)));
    }
    if due(context, &request) {
        before_sending.await?;
        if send(step, context, connected, system, ResetType::On, &mut request).await? {
            let event = NewEvent::info("redfish.power", "host on, read back");
            return Ok(StepReport::done().with_output(json!(request)).event(event));
        }
    }
    let detail = "power-on was requested; a read does not show it yet";
    Ok(StepReport::wait(wait_for_bmc(&waits::POWER_ON, POWER_TIMEOUT, detail)).with_output(json!(request)))
}
