//! The power of a host that a run restarts: on under a permit, and at the end as it was.
//!
//! ```text
//!   was   now    restore
//!   off   on     shut down, then forced off
//!   on    off    power on
//!   any   any    as it is, when no step of the run has sent a power request
//! ```

use std::time::Duration;

use redfish::PowerState;

use super::UpkeepServices;
use super::identified::{Identified, identified_bmc};
use bmc::power::{self, POWER_TIMEOUT, PowerRequest, power_on_permit};
use bmc::{ConnectedBmc, from_redfish, wait_for_bmc, waits};
use engine::{PermitRequest, StepContext, StepError, StepOutcome, StepReport, WaitRequest};
use model::{Effect, NewEvent, StepName, Time};

/// Powers the host on under a permit, which ends when the host is shown as on.
pub(super) async fn on(
    step: &StepName,
    services: &UpkeepServices,
    context: &StepContext,
    (connected, found): (&ConnectedBmc, &Identified),
    off_at: Option<Time>,
) -> Result<StepReport, StepError> {
    let request: PowerRequest = context.own_output().unwrap_or_default();
    let left = connected.bmc.profile().settle_left(None, off_at.map(|at| context.now().since(at)));
    if request.sent == 0 && left > Duration::ZERO {
        let detail = "the host is off; this BMC needs time before a power-on";
        let wait = wait_for_bmc(&waits::SETTLE, left + POWER_TIMEOUT, detail);
        return Ok(StepReport::wait(WaitRequest { poll: Some(left), ..wait }));
    }
    if request.sent == 0
        && let Some(capacity) = services.power_ons
        && !context.has_permit(&power_on_permit())
    {
        return Ok(connected.report(StepReport::new(StepOutcome::Permit(PermitRequest {
            resource: power_on_permit(),
            capacity,
            reason: &waits::POWER_PERMIT,
            signals: Vec::new(),
            detail: "MAX_POWER_ONS hosts are powering on".to_owned(),
        }))));
    }
    let report = power::power_on(step, context, connected, &found.discovery.system, async { Ok(()) }).await?;
    let is_over = report.outcome == StepOutcome::Done && context.has_permit(&power_on_permit());
    let report = match is_over {
        true => report.effect(Effect::PermitReleased { resource: power_on_permit() }),
        false => report,
    };
    Ok(connected.report(report))
}

/// Whether one of the steps has sent a power request.
pub(super) fn acted(context: &StepContext, steps: &[&StepName]) -> bool {
    steps.iter().flat_map(|step| context.snapshot.records_of(step)).any(|record| {
        // The checkpoint is durable before a request is sent, so without one nothing was sent.
        serde_json::from_value::<PowerRequest>(record.output.clone())
            .is_ok_and(|request| request.sent > 0 || request.graceful_at.is_some())
    })
}

/// Gives the host back the power state that it had when the step `by` identified it.
pub(super) async fn restore(
    (step, by): (&StepName, &StepName),
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    let (connected, found) = identified_bmc(step, by, services, context).await?;
    let system = &found.discovery.system;
    let state = connected.bmc.power_state(system).await.map_err(|error| from_redfish(step, &error))?;
    let mine: PowerRequest = context.own_output().unwrap_or_default();
    let begun = mine.sent > 0 || mine.graceful_at.is_some();
    if found.was_on() {
        if !begun && power::is_up(state) {
            return Ok(StepReport::done().event(NewEvent::info("redfish.power", "the host is on, as it was")));
        }
        return power::power_on(step, context, &connected, system, async { Ok(()) }).await;
    }
    if !begun && state == PowerState::Off {
        return Ok(StepReport::done().event(NewEvent::info("redfish.power", "the host is off, as it was")));
    }
    power::shut_down(step, context, &connected, system, power::KnownHost::Unknown).await
}
