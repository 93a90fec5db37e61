//! `power.off`: the host is forced off, or its operating system is shut down. Ends when a read shows the host off.
//!
//! ```text
//!   host was off                        -> skipped
//!   hard                                -> force_off
//!   soft   off                          -> done
//!          request not offered, refused -> force ? force_off : failure
//!          request sent -> off          -> done
//!                       -> grace over   -> force ? force_off : failure `shutdown_ignored`, the host is left on
//! ```
//!
//! The grace period begins with the response to the request: a request that may never have been sent is sent again.

use std::time::Duration;

use redfish::{ErrorKind, PowerState, RedfishError, ResetType, SystemInfo};
use serde_json::json;

use super::super::identified::{Identified, identified_bmc, input};
use super::super::order::{SoftCycle, UpkeepAction};
use super::super::{UpkeepServices, names, waits};
use bmc::power::{self, POWER_TIMEOUT, PowerRequest};
use bmc::{ConnectedBmc, class, failure, from_redfish, from_redfish_change, lease_lost, wait_for_bmc};
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, StepName};

const STEP: &StepName = names::POWER_OFF;
/// The time limit of a power step: the longest grace period, and the time of two power requests.
pub(super) const BUDGET: Duration = Duration::from_secs(90 * 60);

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let (connected, found) = identified_bmc(STEP, names::POWER_IDENTIFY, services, context).await?;
    if !found.was_on() {
        let event = NewEvent::info("redfish.power", "the host is off, so it is not switched off");
        return Ok(StepReport::skipped().event(event));
    }
    let Identified { discovery, .. } = found;
    match input(STEP, context)?.action {
        UpkeepAction::Soft(soft) => soft_off(context, &connected, &discovery.system, &soft).await,
        _ => power::force_off(STEP, context, &connected, &discovery.system).await,
    }
}

async fn soft_off(
    context: &StepContext,
    connected: &ConnectedBmc,
    system: &SystemInfo,
    soft: &SoftCycle,
) -> Result<StepReport, StepError> {
    let mut request: PowerRequest = context.own_output().unwrap_or_default();
    if request.sent > 0 {
        return power::force_off(STEP, context, connected, system).await;
    }
    let failed = |error: RedfishError| from_redfish(STEP, &error);
    if connected.bmc.power_state(system).await.map_err(failed)? == PowerState::Off {
        let event = NewEvent::info("redfish.power", "host shut down, read back");
        return Ok(connected.report(StepReport::done().with_output(json!(request)).event(event)));
    }
    let grace = Duration::from_secs(soft.grace_seconds);
    if !request.graceful_answered {
        let offered = system.reset.as_ref().is_some_and(|reset| reset.allows(ResetType::GracefulShutdown));
        if !offered {
            let why = "the BMC offers no graceful shutdown";
            return without_shutdown(context, connected, system, soft, why).await;
        }
        let again = request.graceful_at.is_some();
        request.graceful_at = Some(context.now());
        context.checkpoint(json!(request)).await.map_err(|_lost| lease_lost(STEP))?;
        match connected.bmc.reset(system, ResetType::GracefulShutdown).await {
            Ok(_) => {}
            // An earlier request may have been applied; a BMC that shows its power state late refuses the second one.
            Err(error) if again && !error.is_transient() => {}
            // A conflict (409) is one with the present state of the host, such as its self-test: it is waited for.
            Err(error) if is_refused(&error) => {
                let why = format!("the BMC refused the graceful shutdown: {}", error.kind);
                return without_shutdown(context, connected, system, soft, &why).await;
            }
            Err(error) if !error.maybe_applied() => {
                return Err(from_redfish_change(STEP, &error).with_output(json!(PowerRequest::default())));
            }
            // The response was lost: the request counts, because another one could end a system that starts again.
            Err(_lost) => {}
        }
        request.graceful_answered = true;
        // The grace period begins now: the request may have taken its time.
        request.graceful_at = Some(context.now());
    }
    let waited = request.graceful_at.map_or(Duration::ZERO, |sent| context.now().since(sent));
    if waited < grace {
        let detail = format!("a graceful shutdown was requested; the host has {} s", soft.grace_seconds);
        let wait = wait_for_bmc(&waits::GRACEFUL_SHUTDOWN, grace + POWER_TIMEOUT, detail);
        return Ok(StepReport::wait(wait).with_output(json!(request)));
    }
    if soft.force {
        let forced = power::force_off(STEP, context, connected, system).await?;
        let message =
            format!("the system did not shut down within {} s; power is forced off", soft.grace_seconds);
        return Ok(forced.event(NewEvent::warn("redfish.power", message)));
    }
    let summary = format!(
        "the operating system did not shut down within {} s; the host was left on",
        soft.grace_seconds
    );
    let next = "check its console; then order the cycle with a longer grace period, with `force`, or a hard one. \
                A system that shuts down later stays off";
    Err(StepError::fail(failure(names::class::SHUTDOWN_IGNORED, STEP, summary, next))
        .with_output(json!(request)))
}

/// Whether the BMC does not shut the host down, now or later.
fn is_refused(error: &RedfishError) -> bool {
    let definite = match &error.kind {
        ErrorKind::Refused { status, .. } => *status != 409,
        ErrorKind::NotSupported { .. } | ErrorKind::License { .. } => true,
        _ => false,
    };
    definite && !error.maybe_applied()
}

/// Forces the host off if the order allows it, and fails otherwise, because no shutdown can be requested.
async fn without_shutdown(
    context: &StepContext,
    connected: &ConnectedBmc,
    system: &SystemInfo,
    soft: &SoftCycle,
    why: &str,
) -> Result<StepReport, StepError> {
    if soft.force {
        return power::force_off(STEP, context, connected, system).await;
    }
    let next = "order a hard power cycle, or a soft one with `force`";
    Err(StepError::fail(failure(class::UNSUPPORTED, STEP, format!("{why}; the host was left on"), next)))
}
