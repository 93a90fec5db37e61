//! The restart of the host that puts the settings into force, and its power at the end.
//!
//! ```text
//!   shut-down   all values in force                       skipped
//!               one is neither in force nor pending       skipped: a restart took place; `bios.verify` names the value
//!               host was on, restart not permitted        wait, see `permission`; a restart by an operator ends it
//!               else                                      graceful, then forced
//!   host-on     after it; a host that was off is powered on, so that its firmware applies the values
//! ```

use serde_json::json;

use super::super::host_power::PowerSteps;
use super::super::identified::{Identified, identified_bmc};
use super::super::permission::{Permission, RestartRule};
use super::super::{UpkeepServices, host_power, names};
use super::plan::{Planned, SettingItem};
use super::target::{Seen, Target};
use super::validate::order;
use super::write::Written;
use bmc::power::PowerRequest;
use bmc::{from_redfish, output_of};
use engine::{StepContext, StepError, StepReport};
use model::mutant::{self, Mutant};
use model::{NewEvent, StepName, StepPhase};

const STEPS: PowerSteps<'static> = PowerSteps { off: &[names::BIOS_SHUT_DOWN], on: &[names::BIOS_HOST_ON] };

/// Whether a step of the run has ended with an effect.
pub(super) fn is_done(context: &StepContext, step: &StepName) -> bool {
    context.snapshot.records_of(step).any(|record| record.phase == StepPhase::Done)
}

/// Shuts the host down where settings wait for a restart.
pub(super) async fn shut_down(
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::BIOS_SHUT_DOWN;
    let plan: Planned = output_of(STEP, context, names::BIOS_PLAN)?;
    if !plan.items.iter().any(SettingItem::is_open) {
        return Ok(StepReport::skipped());
    }
    let (connected, found) = identified_bmc(STEP, names::BIOS_IDENTIFY, services, context).await?;
    let in_use = STEPS.is_in_use(STEP, context, (&connected, &found)).await?;
    if context.own_output::<PowerRequest>().is_none() {
        let seen = Seen::read(&connected.bmc, &found.discovery, &plan).await;
        let seen = seen.map_err(|error| from_redfish(STEP, &error))?;
        if seen.is_in_force() {
            let message = "the settings are in force without a restart by this run";
            return Ok(StepReport::skipped().event(NewEvent::info("bios.restart", message)));
        }
        if seen.is_lost {
            let message = "settings wait no longer and are not in force; the host is not restarted for them";
            return Ok(StepReport::skipped().event(NewEvent::warn("bios.restart", message)));
        }
        if in_use && let Permission::Later(wait) = rule(context, &seen)?.permission(STEP, context)? {
            connected.bmc.release_idle();
            return Ok(StepReport::wait(wait));
        }
    }
    let mut report = host_power::shut_down(STEP, context, (&connected, &found), in_use).await?;
    if report.output.is_none() {
        // The host was off: the power-on that follows is its restart.
        let kept: PowerRequest = context.own_output().unwrap_or_default();
        report = report.with_output(json!(kept));
    }
    Ok(report)
}

fn rule(context: &StepContext, seen: &Seen) -> Result<RestartRule, StepError> {
    let order = order(names::BIOS_SHUT_DOWN, context)?;
    let what = match seen.open.as_slice() {
        [(name, _, then)] => format!("{name} {}", super::plan::plain(then)),
        several => format!("{} settings of the BIOS", several.len()),
    };
    let verb = if seen.open.len() == 1 { ("comes", "is") } else { ("come", "are") };
    Ok(RestartRule {
        window: order.window(),
        used: format!("{what} {} into force", verb.0),
        open: format!("{what} {} not in force yet", verb.1),
        next: "what is stored comes into force at the next restart of the host; order the settings again with another \
               window, which then sends nothing that is stored",
    })
}

/// Powers the host on after it was shut down.
pub(super) async fn host_on(
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::BIOS_HOST_ON;
    if !is_done(context, names::BIOS_SHUT_DOWN) {
        return Ok(StepReport::skipped());
    }
    let off_at =
        context.find_output::<PowerRequest>(names::BIOS_SHUT_DOWN).and_then(|request| request.sent_at);
    let (connected, found) = identified_bmc(STEP, names::BIOS_IDENTIFY, services, context).await?;
    host_power::on(STEP, services, context, (&connected, &found), off_at).await
}

/// Gives the host back the power state that it had.
pub(super) async fn restore(
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::BIOS_POWER_RESTORE;
    let identified = context.find_output::<Identified>(names::BIOS_IDENTIFY).is_some();
    if !identified || !STEPS.acted(context) || mutant::active(Mutant::KeepsPower) {
        return Ok(StepReport::skipped());
    }
    host_power::restore((STEP, names::BIOS_IDENTIFY), &STEPS, services, context).await
}

/// Whether a writing step may have sent something.
pub(super) fn has_sent(context: &StepContext) -> bool {
    Target::ALL
        .into_iter()
        .any(|target| context.find_output::<Written>(target.step()).is_some_and(|written| written.sent > 0))
}
