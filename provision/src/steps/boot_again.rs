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
use super::super::outputs::{BootLook, BootSet, SecondWay};
use super::super::second_way::{self, PoweredOn};
use super::super::services::Services;
use super::{discovered_bmc, input, names, signs};
use bmc::{QUEUE, from_redfish, identity, output_of};
use engine::{StepContext, StepError, StepReport, WaitLimit, WaitReason};
use model::{NewEvent, StepInstance, StepName, Time};

/// Timeout of one observation. A timeout only becomes an event: a BMC that hangs must not fail the step.
pub(super) const OBSERVE_TIMEOUT: Duration = Duration::from_secs(60);
/// The delay until the next observation of a machine that is in its self-test, or whose BMC does not respond.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// The result of a look.
enum Look {
    /// No second way is tried.
    Over,
    /// The decision is not possible yet.
    Later,
    /// A second way is tried.
    SecondWay(Box<SecondWay>),
}

/// The next action of a step after [`look_if_due`].
pub(super) enum Looked {
    /// The step waits; the BMC was not read.
    NotDue,
    /// The step waits; the BMC was read.
    Done,
    /// The step ends with this report, which plans the second way.
    SecondWay(Box<StepReport>),
}

/// Returns the end of the wait for the installation: `whole` after the first wait for it begins. The wait of the second way to
/// boot keeps the deadline of the first one.
pub(super) fn limit(context: &StepContext, reason: &WaitReason, whole: Duration) -> WaitLimit {
    let second = second_way::of(&context.snapshot).filter(|_| second_way::is_of(&context.record));
    match (second, &context.previous_wait) {
        (Some(second), _) => WaitLimit::At(second.deadline),
        (None, Some(wait)) if wait.reason == reason.name => WaitLimit::At(wait.deadline),
        (None, _) if context.now().plus(whole) > context.snapshot.run.deadline_at => {
            WaitLimit::At(context.snapshot.run.deadline_at)
        }
        (None, _) => WaitLimit::Within(whole),
    }
}

/// Returns when the machine is looked at; `None` when it is not, or not any more. `limit`: the end of the installation; the
/// second way must get as much of the time until then as the first one.
pub(super) fn due(context: &StepContext, past: &BootLook, limit: WaitLimit) -> Option<Time> {
    if past.looked || second_way::is_of(&context.record) {
        return None;
    }
    let set: BootSet = context.find_output(names::BOOT_OVERRIDE)?;
    let time = Duration::from_secs(set.read_within_s);
    let at = past.look_at.unwrap_or(second_way::powered_on_at(&context.snapshot)?.plus(time));
    let ends = limit.deadline(context.now());
    (!time.is_zero() && at.max(context.now()).plus(time) < ends).then_some(at)
}

/// Observes the machine if that is due, and records the result in `past`.
pub(super) async fn look_if_due(
    services: &Services,
    context: &StepContext,
    past: &mut BootLook,
    limit: WaitLimit,
) -> Looked {
    if due(context, past, limit).is_none_or(|due| due > context.now()) {
        return Looked::NotDue;
    }
    let look = tokio::time::timeout(OBSERVE_TIMEOUT, look(services, context, limit)).await;
    // A BMC or database that does not respond now may do so later.
    match look.unwrap_or(Ok(Look::Later)).unwrap_or(Look::Later) {
        Look::SecondWay(second) => return Looked::SecondWay(Box::new(begin(&context.record.name, *second))),
        Look::Over => past.looked = true,
        Look::Later => past.look_at = Some(context.now().plus(LOOK_AGAIN)),
    }
    Looked::Done
}

async fn look(services: &Services, context: &StepContext, limit: WaitLimit) -> Result<Look, StepError> {
    let step = &context.record.name;
    let Some(powered_on) = second_way::powered_on(&context.snapshot) else { return Ok(Look::Over) };
    let failed = |error: redfish::RedfishError| from_redfish(step, &error);
    let found = super::slot_fallback::current(&context.snapshot, output_of(step, context, names::DISCOVER)?);
    if signs::may_have_booted(step, services, context, &found, powered_on).await? {
        return Ok(Look::Over);
    }
    let set: BootSet = output_of(step, context, names::BOOT_OVERRIDE)?;
    let serial = input(step, context)?.server;
    let (connected, found) = discovered_bmc(step, services, context).await?;
    let selector = SystemSelector::serial(serial.as_str());
    let shown = connected.bmc.discover(&selector).await.map_err(failed)?;
    if identity::verify(step, &connected.server, &shown).is_err()
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
    let deadline = limit.deadline(context.now());
    let PoweredOn { at: powered_on_at, media_before } = powered_on;
    Ok(Look::SecondWay(Box::new(SecondWay { first: set.way, second, powered_on_at, media_before, deadline })))
}

/// Builds the report that ends the first wait, the step `wait`, and plans the second way with another instance of it.
fn begin(wait: &StepName, second: SecondWay) -> StepReport {
    let message = second_way::describe(&second);
    let ways =
        json!({ "first": second.first, "second": second.second, "powered_on_at": second.powered_on_at });
    let output = BootLook { looked: true, second_way: Some(second), ..BootLook::default() };
    let mut report = StepReport::done()
        .with_output(json!(output))
        .event(NewEvent::warn("redfish.second-way", message).with(ways));
    let instance = |name: &StepName| StepInstance {
        name: name.to_owned(),
        key: second_way::KEY.to_owned(),
        queue: QUEUE.to_owned(),
    };
    report.plan = second_way::STEPS.into_iter().chain([wait]).map(instance).collect();
    report
}
