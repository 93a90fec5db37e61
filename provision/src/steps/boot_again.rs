//! The look at a machine that may have booted its disk although it was set to boot the media once, and the plan for the second
//! way to boot.
//!
//! ```text
//!   a read of the media since the power-on, a report, or reads that are unknown        -> over
//!   another machine at the address; host not on; slot empty; override never consumed   -> over
//!   host in its self-test; override not consumed yet; BMC silent                       -> later
//!   override consumed, and the BMC has another way                                     -> second way, once per job
//!   override consumed, and the BMC has no other way                                    -> over
//! ```
//!
//! Nothing is changed here. `redfish.power-off` checks the signs of a boot again before it powers the host off.

use std::time::Duration;

use redfish::{BootEnabled, PowerState, SystemSelector};
use serde_json::json;

use super::super::completion::is_in_self_test;
use super::super::outputs::{BootSet, ReportWait, SecondWay};
use super::super::second_way;
use super::super::services::Services;
use super::{discovered_bmc, input, names, signs};
use bmc::{QUEUE, from_redfish, identity, output_of};
use engine::model::{NewEvent, StepInstance, StepName, Time};
use engine::{StepContext, StepError, StepReport};

const STEP: &StepName = names::AWAIT_REPORT;
/// Delay until the next look at a machine that is in its self-test, or whose BMC does not respond.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// The result of a look.
pub(super) enum Look {
    /// No second way is tried.
    Over,
    /// It cannot be decided yet.
    Later,
    /// A second way is tried.
    SecondWay(Box<SecondWay>),
}

/// Returns when the machine is looked at; `None` when it is not, or not any more. `within`: the time left for the report, of
/// which the second way must get as much as the first one.
pub(super) fn due(context: &StepContext, waited: &ReportWait, within: Duration) -> Option<Time> {
    if waited.looked || second_way::is_of(&context.record) {
        return None;
    }
    let set: BootSet = context.find_output(names::BOOT_OVERRIDE)?;
    let time = Duration::from_secs(set.read_within_s);
    let at = waited.look_at.unwrap_or(second_way::powered_on_at(&context.snapshot)?.plus(time));
    let left = context.now().plus(within);
    (!time.is_zero() && at.max(context.now()).plus(time) < left).then_some(at)
}

/// Looks at the machine.
pub(super) async fn look(services: &Services, context: &StepContext, within: Duration) -> Look {
    // A BMC or database that does not respond now may do so later.
    try_look(services, context, within).await.unwrap_or(Look::Later)
}

async fn try_look(services: &Services, context: &StepContext, within: Duration) -> Result<Look, StepError> {
    let Some(powered_on_at) = second_way::powered_on_at(&context.snapshot) else { return Ok(Look::Over) };
    let failed = |error: redfish::RedfishError| from_redfish(STEP, &error);
    let found = super::slot_fallback::current(&context.snapshot, output_of(STEP, context, names::DISCOVER)?);
    if signs::may_have_booted(STEP, services, context, &found, powered_on_at).await? {
        return Ok(Look::Over);
    }
    let set: BootSet = output_of(STEP, context, names::BOOT_OVERRIDE)?;
    let serial = input(STEP, context)?.server;
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let selector = SystemSelector::serial(serial.as_str());
    let shown = connected.bmc.discover(&selector).await.map_err(failed)?;
    if identity::verify(STEP, &connected.server, &shown).is_err()
        || shown.system.uri != found.discovery.system.uri
    {
        return Ok(Look::Over);
    }
    let host = connected.bmc.host_status(&found.discovery.system).await.map_err(failed)?;
    match host.power {
        PowerState::On if host.boot_state.as_deref().is_some_and(is_in_self_test) => return Ok(Look::Later),
        PowerState::On => {}
        PowerState::PoweringOn => return Ok(Look::Later),
        _ => return Ok(Look::Over),
    }
    // An override that disappeared together with the media was lost, not consumed: the BMC has restarted.
    if connected.bmc.slot(&found.boot_slot).await.map_err(failed)?.is_empty() {
        return Ok(Look::Over);
    }
    let next = connected
        .bmc
        .next_boot_source_via(&found.discovery, &found.boot_slot, set.way.via())
        .await
        .map_err(failed)?;
    match next {
        Some(source) if !source.is_active() => {}
        Some(source) if source.enabled == Some(BootEnabled::Once) => return Ok(Look::Later),
        // It is not shown, or shown as set for good.
        _ => return Ok(Look::Over),
    }
    let other = connected.bmc.other_boot_way(&found.discovery, &found.boot_slot, &set.way).await;
    let Some(second) = other.map_err(failed)? else { return Ok(Look::Over) };
    let deadline = context.previous_wait.as_ref().map_or(context.now().plus(within), |wait| wait.deadline);
    Ok(Look::SecondWay(Box::new(SecondWay { first: set.way, second, powered_on_at, deadline })))
}

/// Builds the report that ends the first wait and plans the second way.
pub(super) fn begin(second: SecondWay) -> StepReport {
    let message = second_way::describe(&second);
    let ways =
        json!({ "first": second.first, "second": second.second, "powered_on_at": second.powered_on_at });
    let output = ReportWait { looked: true, look_at: None, second_way: Some(second) };
    let mut report = StepReport::done()
        .with_output(json!(output))
        .event(NewEvent::warn("redfish.second-way", message).with(ways));
    let instance = |name: &StepName| StepInstance {
        name: name.to_owned(),
        key: second_way::KEY.to_owned(),
        queue: QUEUE.to_owned(),
    };
    report.plan = second_way::STEPS.into_iter().map(instance).collect();
    report
}
