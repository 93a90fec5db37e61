//! `power.on`: the host is powered on again. Ends when a read shows it on.

use std::time::Duration;

use serde_json::json;

use super::super::identified::{identified_bmc, input};
use super::super::order::UpkeepAction;
use super::super::{UpkeepServices, names};
use bmc::power::{self, POWER_TIMEOUT, PowerRequest, power_on_permit};
use bmc::{ConnectedBmc, failure, wait_for_bmc, waits};
use engine::{PermitRequest, StepContext, StepError, StepOutcome, StepReport, WaitRequest};
use model::mutant::{self, Mutant};
use model::{NewEvent, StepName};

const STEP: &StepName = names::POWER_ON;

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let wanted = match input(STEP, context)?.action {
        UpkeepAction::Hard(hard) => hard.power_on,
        UpkeepAction::Soft(soft) => soft.power_on,
        UpkeepAction::Reset(_)
        | UpkeepAction::Inventory(_)
        | UpkeepAction::Firmware(_)
        | UpkeepAction::Bios(_) => false,
    };
    let (connected, found) = identified_bmc(STEP, names::POWER_IDENTIFY, services, context).await?;
    if !found.was_on() && !wanted {
        let event = NewEvent::info("redfish.power", "the host was off and stays off");
        return Ok(StepReport::skipped().event(event));
    }
    if mutant::active(Mutant::ForgetsPowerOn) {
        return Ok(StepReport::done());
    }
    let request: PowerRequest = context.own_output().unwrap_or_default();
    if request.sent == 0
        && let Some(left) = settle_left(context, &connected)
    {
        let detail = "the host is off; this BMC needs time before a power-on";
        let wait = wait_for_bmc(&waits::SETTLE, left + POWER_TIMEOUT, detail);
        return Ok(StepReport::wait(WaitRequest { poll: Some(left), ..wait }).with_output(json!(request)));
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
    let report =
        power::power_on(STEP, context, &connected, &found.discovery.system, async { Ok(()) }).await?;
    if report.outcome != StepOutcome::Done {
        return Ok(report);
    }
    verified(context, &connected, report)
}

/// Refuses an end that no read has shown: a BMC without a power state accepts a cycle that no read can verify.
fn verified(
    context: &StepContext,
    connected: &ConnectedBmc,
    report: StepReport,
) -> Result<StepReport, StepError> {
    let on = report.output.as_ref().is_some_and(|output| output["unconfirmed"] == json!(true));
    let off =
        context.find_output::<PowerRequest>(names::POWER_OFF).is_some_and(|request| request.unconfirmed);
    if on || off {
        let summary =
            "the power cycle was requested, and the BMC shows neither on nor off, so it is not verified";
        let next = "check the console of the host; a BMC that never shows a power state needs a restart: \
                    `shoal server reset-bmc SERIAL`";
        return Err(StepError::fail(failure(names::class::UNVERIFIED, STEP, summary, next)));
    }
    Ok(connected.report(report.event(NewEvent::info("power.cycled", "the host is on"))))
}

/// Returns the rest of the settle time after the power-off, if any.
fn settle_left(context: &StepContext, connected: &ConnectedBmc) -> Option<Duration> {
    let off = context.find_output::<PowerRequest>(names::POWER_OFF).and_then(|request| request.sent_at);
    let left = connected.bmc.profile().settle_left(None, off.map(|at| context.now().since(at)));
    (!left.is_zero()).then_some(left)
}
