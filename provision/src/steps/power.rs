//! `redfish.power-off` and `redfish.power-on`.
//!
//! ```text
//!  power-on, called again:   host not off                 -> done
//!                            override consumed            -> done (the BMC shows its power state late)
//!                            media read since the request -> done
//!                            none of these                -> send On (never a restart)
//! ```

use std::sync::Arc;
use std::time::Duration;

use redfish::{PowerState, ResetType};
use serde_json::json;

use super::super::outputs::{Discovered, Mounted};
use super::super::reachable::REACHABLE;
use super::super::report::SIGNAL;
use super::super::second_way;
use super::super::services::Services;
use super::{bmc_policy, discovered_bmc, names, reinsert, signs, step};
use bmc::power::{self, POWER_TIMEOUT, PowerRequest, RESEND_AFTER, power_on_permit};
use bmc::{ConnectedBmc, from_redfish, wait_for_bmc, waits};
use engine::{PermitRequest, StepContext, StepError, StepOutcome, StepReport, WaitRequest};
use model::mutant::{self, Mutant};
use model::{NewEvent, StepName, Time};

step!(
    /// Forces the host off.
    PowerOff,
    bmc_policy,
    off
);

step!(
    /// Powers the host on once, from the boot media.
    PowerOn,
    bmc_policy,
    on
);

async fn off(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::POWER_OFF;
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let sent = context.own_output::<PowerRequest>().is_some_and(|request| request.sent > 0);
    let system = &found.discovery.system;
    // A request that is on record may not have been sent, and the machine may have booted since. One that took effect needs no sign.
    let is_off = sent
        && connected.bmc.power_state(system).await.map_err(|error| from_redfish(STEP, &error))?
            == PowerState::Off;
    if let Some(second) = second_way::of(&context.snapshot).filter(|_| !is_off)
        && signs::may_have_booted(STEP, services, context, &found, second.powered_on()).await?
    {
        let message = "the machine has read its media or reported after all, or it cannot be known; no second way to boot is tried";
        return Ok(StepReport::skipped().event(NewEvent::info("redfish.second-way", message)));
    }
    power::force_off(STEP, context, &connected, system).await
}

async fn on(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::POWER_ON;
    if second_way::is_of(&context.record) && second_way::is_given_up(&context.snapshot) {
        return Ok(StepReport::skipped());
    }
    let mut request: PowerRequest = context.own_output().unwrap_or_default();
    if context.snapshot.pending().any(|signal| [SIGNAL, REACHABLE].contains(&&*signal.name)) {
        // A machine that reports was started, whatever its BMC shows.
        request.unconfirmed = true;
        return Ok(StepReport::done()
            .with_output(json!(request))
            .event(NewEvent::info("redfish.power", "the machine has reported, so it was started")));
    }
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let system = &found.discovery.system;
    if request.sent == 0 && request.media_before.is_none() {
        request.media_before = Some(signs::mark_media(STEP, services, context, &found).await?);
    }
    if context.reentered && request.sent > 0 && mutant::active(Mutant::RestartsAfterCrash) {
        // The defect: a restart because the power state is not trusted.
        let _sent = connected.bmc.reset(system, ResetType::ForceRestart).await;
    }
    // Before anything is read: what is read before a pause must be read again after it.
    if request.sent == 0
        && let Some(left) = settle_left(context, &connected)
    {
        let detail = "the media are inserted; this BMC needs time before they can be booted";
        let wait = wait_for_bmc(&waits::SETTLE, left + POWER_TIMEOUT, detail);
        let wait = WaitRequest { poll: Some(left), ..wait };
        return Ok(StepReport::wait(wait).with_output(json!(request)));
    }
    let state = power::state(STEP, context, &connected, system, &request).await;
    let state = state.map_err(|error| error.with_output(json!(request)))?;
    if power::is_up(state) {
        let event = if request.sent == 0 {
            NewEvent::warn("redfish.power", "the host was already on, not by this job; the job continues")
        } else {
            NewEvent::info("redfish.power", "host on, read back")
        };
        return Ok(running(context, &connected, &found, request, event).await);
    }
    if request.sent > 0
        && let Some(sign) = started(services, context, &connected, &found, &request).await?
    {
        request.unconfirmed = true;
        let event =
            NewEvent::info("redfish.power", format!("host was started: {sign}; its BMC still shows off"));
        return Ok(connected.report(StepReport::done().with_output(json!(request)).event(event)));
    }
    if request.sent == 0
        && let Some(capacity) = services.settings.limits.power_ons
        && !context.has_permit(&power_on_permit())
    {
        let permit = StepReport::new(StepOutcome::Permit(PermitRequest {
            resource: power_on_permit(),
            capacity,
            reason: &waits::POWER_PERMIT,
            signals: vec![SIGNAL],
            detail: "MAX_POWER_ONS hosts are powering on".to_owned(),
        }));
        return Ok(connected.report(permit.with_output(json!(request))));
    }
    let mut events = Vec::new();
    if power::due(context, &request) {
        let inserted = reinsert::before_power_on(STEP, context, (&connected, &found), &mut request).await;
        events = inserted.map_err(|error| error.with_output(json!(request)))?;
        // After the inserts: what the BMC reads at them shows no boot.
        let mark = signs::mark_media(STEP, services, context, &found).await;
        request.media_before = Some(mark.map_err(|error| error.with_output(json!(request)))?);
        if power::send(STEP, context, &connected, system, ResetType::On, &mut request).await? {
            events.push(NewEvent::info("redfish.power", "host on, read back"));
            let mut report = StepReport::done().with_output(json!(request));
            report.events = events;
            return Ok(connected.report(report));
        }
    }
    let detail = "power-on was requested; a read does not show it yet";
    let wait = wait_for_bmc(&waits::POWER_ON, POWER_TIMEOUT, detail);
    let report = StepReport::wait(WaitRequest { signals: vec![SIGNAL], ..wait });
    Ok(StepReport { events, ..report.with_output(json!(request)) })
}

/// Finishes the step for a host that came on after a while: some firmware has emptied the slots by then.
async fn running(
    context: &StepContext,
    connected: &ConnectedBmc,
    found: &Discovered,
    mut request: PowerRequest,
    event: NewEvent,
) -> StepReport {
    let mut events = vec![event];
    if request.sent_at.is_some_and(|sent| context.now().since(sent) < RESEND_AFTER) {
        let inserted =
            reinsert::after_power_on(names::POWER_ON, context, (connected, found), &mut request).await;
        events.extend(inserted);
    }
    let report = StepReport::done().with_output(json!(request));
    connected.report(StepReport { events, ..report })
}

/// Returns the rest of the settle time after the last insert and after the power-off, if any.
fn settle_left(context: &StepContext, connected: &ConnectedBmc) -> Option<Duration> {
    let now = context.now();
    let mounts = names::MOUNTS;
    let mounted = mounts
        .iter()
        .filter_map(|step| context.find_output::<Mounted>(step))
        .map(|mounted| mounted.inserted.sent_at)
        .max();
    let off = context.find_output::<PowerRequest>(names::POWER_OFF).and_then(|request| request.sent_at);
    let since = |at: Option<Time>| at.map(|at| now.since(at));
    let left = connected.bmc.profile().settle_left(since(mounted), since(off));
    (!left.is_zero()).then_some(left)
}

/// Returns a sign that the host was started since the power-on request although the BMC shows off.
async fn started(
    services: &Services,
    context: &StepContext,
    connected: &ConnectedBmc,
    found: &Discovered,
    request: &PowerRequest,
) -> Result<Option<&'static str>, StepError> {
    let step = names::POWER_ON;
    // A BMC that lost its media has restarted: the override is gone, and it reads the media at the insert.
    if request.reinserted.values().any(|again| Some(again.sent_at) > request.sent_at) {
        return Ok(None);
    }
    let via = second_way::of(&context.snapshot).map(|second| second.second.via());
    let via = via.unwrap_or_else(|| connected.bmc.profile().boot_via);
    let source = connected.bmc.next_boot_source_via(&found.discovery, &found.boot_slot, via).await;
    let source = source.map_err(|error| from_redfish(step, &error))?;
    // An override that disappeared together with the media was lost, not consumed: the BMC has restarted.
    if source.is_some_and(|source| !source.is_active())
        && !reinsert::boot_slot_is_empty(step, connected, found).await?
    {
        return Ok(Some("the one-time boot was consumed"));
    }
    // The BMC itself reads the media at the insert and while they settle: only reads after the request count.
    let Some(mark) = request.media_before else { return Ok(None) };
    let read = signs::media_read_since(step, services, context, found, mark).await?;
    Ok(read.then_some("media were read"))
}
