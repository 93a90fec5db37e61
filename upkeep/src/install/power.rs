//! The power of the host: on for the installation if it was off, and afterwards as it was.
//!
//! ```text
//!   was   now    because of                         restore
//!   off   on     firmware.power-on                  shut down, then forced off
//!   on    off    firmware.host-off, .shut-down      power on
//!   any   any    an update that did not end         left as it is: power must not be cut while firmware is written
//! ```

use std::time::Duration;

use redfish::PowerState;

use super::super::identified::{Identified, identified_bmc};
use super::super::{UpkeepServices, names};
use super::settle::Settled;
use bmc::power::{self, POWER_TIMEOUT, PowerRequest, power_on_permit};
use bmc::{ConnectedBmc, from_redfish, wait_for_bmc, waits};
use engine::model::mutant::{self, Mutant};
use engine::model::{Effect, NewEvent, StepName, Time};
use engine::{PermitRequest, StepContext, StepError, StepOutcome, StepReport, WaitRequest};

/// Powers a host on that is off. Some parts show their firmware only while the host has power.
pub(super) async fn on_if_off(
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::FW_POWER_ON;
    let (connected, found) = identified_bmc(STEP, names::FW_IDENTIFY, services, context).await?;
    if found.was_on() {
        return Ok(StepReport::skipped());
    }
    on(STEP, services, context, (&connected, &found), None).await
}

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

/// Gives the host back the power state that it had.
pub(super) async fn restore(
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::FW_POWER_RESTORE;
    let Some(found) = context.find_output::<Identified>(names::FW_IDENTIFY) else {
        return Ok(StepReport::skipped());
    };
    let acted = [names::FW_POWER_ON, names::FW_HOST_OFF, names::FW_SHUT_DOWN, names::FW_HOST_ON]
        .into_iter()
        .flat_map(|step| context.snapshot.records_of(step))
        .any(|record| {
            // The checkpoint is durable before a request is sent, so without one nothing was sent.
            serde_json::from_value::<PowerRequest>(record.output.clone())
                .is_ok_and(|request| request.sent > 0 || request.graceful_at.is_some())
        });
    if !acted || mutant::active(Mutant::KeepsPower) {
        return Ok(StepReport::skipped());
    }
    if context.find_output::<Settled>(names::FW_SETTLE).is_some_and(|settled| settled.is_running) {
        let message = "the power of the host is left as it is, because an update has not ended";
        return Ok(StepReport::done().event(NewEvent::warn("firmware.power-left", message)));
    }
    let (connected, found) = {
        let known = identified_bmc(STEP, names::FW_IDENTIFY, services, context).await?;
        (known.0, Identified { was: found.was, ..known.1 })
    };
    let system = &found.discovery.system;
    let state = connected.bmc.power_state(system).await.map_err(|error| from_redfish(STEP, &error))?;
    let mine: PowerRequest = context.own_output().unwrap_or_default();
    let begun = mine.sent > 0 || mine.graceful_at.is_some();
    if found.was_on() {
        if !begun && power::is_up(state) {
            return Ok(StepReport::done().event(NewEvent::info("redfish.power", "the host is on, as it was")));
        }
        return power::power_on(STEP, context, &connected, system, async { Ok(()) }).await;
    }
    if !begun && state == PowerState::Off {
        return Ok(StepReport::done().event(NewEvent::info("redfish.power", "the host is off, as it was")));
    }
    power::shut_down(STEP, context, &connected, system, false).await
}
