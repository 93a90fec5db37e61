//! The restart of the host that a component needs: off before the upload where the BMC wants it so, else off and on afterwards.
//!
//! ```text
//!   host-off    profile update_bios_host_off, component bios       before the upload
//!   shut-down   the task asks for it, or the file does and the version is the old one     graceful, then forced
//!   host-on     after either of the two
//! ```
//!
//! Whether a host that was on may be restarted now: see `permission`.

use redfish::RedfishError;
use serde_json::json;

use super::super::identified::identified_bmc;
use super::super::permission::{Permission, RestartRule};
use super::super::{UpkeepServices, host_power, names};
use super::component::{self, Current, sibling, sibling_is_done};
use super::power;
use super::watch::{Watched, Word};
use bmc::from_redfish;
use bmc::power::PowerRequest;
use engine::{StepContext, StepError, StepReport, WaitRequest};
use firmware::{Component, Restart};
use model::{NewEvent, StepName};

/// Returns whether the order permits a restart of the host now, or the wait until it does.
fn permission(step: &StepName, context: &StepContext, current: &Current) -> Result<Permission, StepError> {
    let (order, what) = (&current.order, current.item.what());
    let rule = RestartRule {
        window: order.window(),
        used: format!("{what} is used"),
        open: format!("{what} is not installed yet"),
        next: "an image that is stored already is used after the next restart of the host; order the installation \
               again with another window, which then only verifies what is installed",
    };
    rule.permission(step, context)
}

/// Switches the host off before the upload of its BIOS, where the BMC takes it only then.
pub(super) async fn host_off(
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::FW_HOST_OFF;
    let current = Current::of(STEP, context)?;
    if current.item.component != Component::Bios {
        return Ok(StepReport::skipped());
    }
    let (connected, found) = identified_bmc(STEP, names::FW_IDENTIFY, services, context).await?;
    if !connected.bmc.profile().update_bios_host_off {
        return Ok(StepReport::skipped());
    }
    let begun = context.own_output::<PowerRequest>().is_some();
    let in_use = power::STEPS.is_in_use(STEP, context, (&connected, &found)).await?;
    if in_use && !begun {
        match permission(STEP, context, &current)? {
            Permission::Granted => {}
            Permission::Later(wait) => {
                // An operator who switches the host off ends the wait.
                let state = connected.bmc.power_state(&found.discovery.system).await;
                if state.map_err(|error| from_redfish(STEP, &error))? != redfish::PowerState::Off {
                    connected.bmc.release_idle();
                    let detail = format!("this BMC takes a BIOS only while the host is off; {}", wait.detail);
                    return Ok(StepReport::wait(WaitRequest { detail, ..wait }));
                }
            }
        }
    }
    host_power::shut_down(STEP, context, (&connected, &found), in_use).await
}

/// Shuts the host down where the component needs a restart.
pub(super) async fn shut_down(
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::FW_SHUT_DOWN;
    let current = Current::of(STEP, context)?;
    let Some(watched) = sibling::<Watched>(context, names::FW_WATCH) else {
        return Ok(StepReport::skipped());
    };
    if watched.word == Word::PowerLost {
        // The image was cut: a restart puts nothing into use.
        return Ok(StepReport::skipped());
    }
    let asked = watched.word == Word::HostRestart;
    if sibling_is_done(context, names::FW_HOST_OFF) || !(asked || current.entry.file.restart == Restart::Host)
    {
        return Ok(StepReport::skipped());
    }
    let (connected, found) = identified_bmc(STEP, names::FW_IDENTIFY, services, context).await?;
    let in_use = power::STEPS.is_in_use(STEP, context, (&connected, &found)).await?;
    if context.own_output::<PowerRequest>().is_none() {
        let serial = &connected.server.serial;
        let shown = component::shown(&connected.bmc, serial, &current.item, current.target()).await;
        let shown = shown.map_err(|error: RedfishError| from_redfish(STEP, &error))?;
        if current.is_target(shown.as_ref().and_then(|one| one.installed.version.as_ref())) {
            let message = format!("{} is installed without a restart by this run", current.item.what());
            return Ok(StepReport::skipped().event(NewEvent::info("firmware.restart", message)));
        }
        if in_use && let Permission::Later(wait) = permission(STEP, context, &current)? {
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

/// Powers the host on after one of the two.
pub(super) async fn host_on(
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::FW_HOST_ON;
    let off = [names::FW_HOST_OFF, names::FW_SHUT_DOWN];
    if !off.into_iter().any(|step| sibling_is_done(context, step)) {
        return Ok(StepReport::skipped());
    }
    let off_at = off.into_iter().filter_map(|step| sibling::<PowerRequest>(context, step)?.sent_at).max();
    let (connected, found) = identified_bmc(STEP, names::FW_IDENTIFY, services, context).await?;
    host_power::on(STEP, services, context, (&connected, &found), off_at).await
}
