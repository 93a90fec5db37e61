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

use redfish::{ErrorKind, PowerState, RedfishError, ResetType, SystemInfo};
use serde_json::json;

use super::super::classify::{failure, from_redfish, from_redfish_change};
use super::super::outputs::{Built, Discovered, Mounted, PowerRequest};
use super::super::report::SIGNAL;
use super::super::services::Services;
use super::super::waits;
use super::mount::lease_lost;
use super::{
    ConnectedBmc, bmc_policy, class, discovered_bmc, into_report, output_of, reinsert, step, wait_for_bmc,
};
use engine::model::mutant::{self, Mutant};
use engine::model::{NewEvent, Time, permit_resource};
use engine::{PermitRequest, StepContext, StepOutcome, StepReport};

/// Time limit for the BMC to show a requested power state.
const POWER_TIMEOUT: Duration = Duration::from_secs(180);
/// A request without effect is sent again after this time.
const RESEND_AFTER: Duration = Duration::from_secs(60);
/// The time after the second request when a change that the BMC does not show is taken as done.
const ASSUMED_AFTER: Duration = Duration::from_secs(30);

/// Returns the resource of the permit that a host needs to power on.
pub fn power_on_permit() -> String {
    permit_resource("power-on")
}

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

async fn off(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "redfish.power-off";
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    force_off(STEP, context, &connected, &found.discovery.system).await
}

/// Returns whether the previous worker died in this step, between the intent and the result.
fn previous_worker_died(context: &StepContext) -> bool {
    context.reentered && context.previous_wait.is_none()
}

/// Returns whether a power request without effect must be sent (again): it was never sent, was sent long ago, or the worker
/// died before the response, so it is unknown whether the request was sent.
pub(super) fn due(context: &StepContext, request: &PowerRequest) -> bool {
    previous_worker_died(context)
        || request.sent_at.is_none_or(|sent| context.now().since(sent) >= RESEND_AFTER)
}

/// Returns whether a host is on or powering on. For a BMC that shows neither on nor off, a repeated request does no harm.
pub(super) fn is_up(state: PowerState) -> bool {
    matches!(state, PowerState::On | PowerState::PoweringOn | PowerState::Paused)
}

/// Returns whether a change is taken as done after two requests to a BMC that shows neither on nor off: some never show more.
pub(super) fn assumed_applied(context: &StepContext, request: &PowerRequest, state: PowerState) -> bool {
    let late = request.sent_at.is_some_and(|sent| context.now().since(sent) >= ASSUMED_AFTER);
    !is_up(state) && state != PowerState::Off && request.sent > 1 && late
}

/// Sends a power request that a checkpoint holds as `request`; returns whether a read already shows its effect.
///
/// A refusal after an earlier request, also a graceful one, is no failure: the BMC may have applied the earlier request, shows
/// its power state late, and refuses to repeat it.
pub(super) async fn send_reset(
    step: &str,
    connected: &ConnectedBmc,
    system: &SystemInfo,
    reset: ResetType,
    request: &PowerRequest,
) -> Result<bool, StepReport> {
    match connected.bmc.reset(system, reset).await {
        Ok(applied) => Ok(applied.confirmed),
        Err(error)
            if (request.sent > 1 || request.graceful_at.is_some())
                && matches!(error.kind, ErrorKind::Refused { .. }) =>
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
pub(super) async fn force_off(
    step: &str,
    context: &StepContext,
    connected: &ConnectedBmc,
    system: &SystemInfo,
) -> Result<StepReport, StepReport> {
    let mut request: PowerRequest = context.own_output().unwrap_or_default();
    let state = power_state(context, connected, system, &request)
        .await
        .map_err(|error| from_redfish(step, &error))?;
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
    if due(context, &request) {
        request.sent_at = Some(context.now());
        request.sent += 1;
        context.checkpoint(json!(request)).await.map_err(|_lost| lease_lost(step))?;
        if send_reset(step, connected, system, ResetType::ForceOff, &request).await? {
            return Ok(connected.report(
                StepReport::done()
                    .with_output(json!(request))
                    .event(NewEvent::info("redfish.power", "host forced off, read back")),
            ));
        }
    }
    let shown = match state {
        PowerState::Unknown => "no power state".to_owned(),
        state => format!("{state:?}"),
    };
    let detail = format!("power-off was requested; the BMC shows {shown}");
    Ok(wait_for_bmc(&waits::POWER_OFF, POWER_TIMEOUT, detail).with_output(json!(request)))
}

async fn on(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "redfish.power-on";
    let mut request: PowerRequest = context.own_output().unwrap_or_default();
    if context.snapshot.pending().any(|signal| signal.name == SIGNAL) {
        // A machine that reports was started, whatever its BMC shows.
        request.unconfirmed = true;
        return Ok(StepReport::done()
            .with_output(json!(request))
            .event(NewEvent::info("redfish.power", "the machine has reported, so it was started")));
    }
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let system = &found.discovery.system;
    if context.reentered && request.sent > 0 && mutant::active(Mutant::RestartsAfterCrash) {
        // The defect: a restart because the power state is not trusted.
        let _sent = connected.bmc.reset(system, ResetType::ForceRestart).await;
    }
    let state = power_state(context, &connected, system, &request)
        .await
        .map_err(|error| from_redfish(STEP, &error))?;
    if is_up(state) {
        let event = if request.sent == 0 {
            NewEvent::warn("redfish.power", "the host was already on, not by this job; the job continues")
        } else {
            NewEvent::info("redfish.power", "host on, read back")
        };
        return Ok(running(services, context, &connected, &found, request, event).await);
    }
    if request.sent > 0
        && let Some(sign) = started(STEP, services, context, &connected, &found).await?
    {
        request.unconfirmed = true;
        let event =
            NewEvent::info("redfish.power", format!("host was started: {sign}; its BMC still shows off"));
        return Ok(connected.report(StepReport::done().with_output(json!(request)).event(event)));
    }
    if request.sent == 0
        && let Some(left) = settle_left(context, &connected)
    {
        let detail = "the media are inserted; this BMC needs time before they can be booted";
        let mut waiting = wait_for_bmc(&waits::SETTLE, left + POWER_TIMEOUT, detail);
        if let StepOutcome::Wait(wait) = &mut waiting.outcome {
            wait.poll = Some(left);
        }
        return Ok(waiting.with_output(json!(request)));
    }
    if request.sent == 0
        && let Some(capacity) = services.settings.limits.power_ons
        && !context.has_permit(&power_on_permit())
    {
        return Ok(connected.report(StepReport::new(StepOutcome::Permit(PermitRequest {
            resource: power_on_permit(),
            capacity,
            reason: &waits::POWER_PERMIT,
            signals: vec![SIGNAL],
            detail: "MAX_POWER_ONS hosts are powering on".to_owned(),
        }))));
    }
    let mut events = Vec::new();
    if due(context, &request) {
        let inserted =
            reinsert::before_power_on(STEP, services, context, (&connected, &found), &mut request).await;
        events = inserted.map_err(|report| report.with_output(json!(request)))?;
        request.sent_at = Some(context.now());
        request.sent += 1;
        context.checkpoint(json!(request)).await.map_err(|_lost| lease_lost(STEP))?;
        if send_reset(STEP, &connected, system, ResetType::On, &request).await? {
            events.push(NewEvent::info("redfish.power", "host on, read back"));
            let mut report = StepReport::done().with_output(json!(request));
            report.events = events;
            return Ok(connected.report(report));
        }
    }
    let mut waiting =
        wait_for_bmc(&waits::POWER_ON, POWER_TIMEOUT, "power-on was requested; a read does not show it yet");
    if let StepOutcome::Wait(wait) = &mut waiting.outcome {
        wait.signals.push(SIGNAL);
    }
    waiting.events.extend(events);
    Ok(waiting.with_output(json!(request)))
}

/// Finishes the step for a host that came on after a while: some firmware has emptied the slots by then.
async fn running(
    services: &Arc<Services>,
    context: &StepContext,
    connected: &ConnectedBmc,
    found: &Discovered,
    mut request: PowerRequest,
    event: NewEvent,
) -> StepReport {
    let mut events = vec![event];
    if request.sent_at.is_some_and(|sent| context.now().since(sent) < RESEND_AFTER) {
        let inserted =
            reinsert::after_power_on("redfish.power-on", services, context, (connected, found), &mut request)
                .await;
        events.extend(inserted);
    }
    let report = StepReport::done().with_output(json!(request));
    connected.report(StepReport { events, ..report })
}

/// Returns the power state: cached before this step has sent a request, otherwise read again.
pub(super) async fn power_state(
    context: &StepContext,
    connected: &ConnectedBmc,
    system: &SystemInfo,
    request: &PowerRequest,
) -> Result<PowerState, RedfishError> {
    let untouched = request.sent == 0 && request.graceful_at.is_none() && context.previous_wait.is_none();
    match untouched && !context.reentered {
        true => connected.bmc.power_state_cached(system).await,
        false => connected.bmc.power_state(system).await,
    }
}

/// Returns the rest of the settle time after the last insert and after the power-off, if any.
fn settle_left(context: &StepContext, connected: &ConnectedBmc) -> Option<Duration> {
    let now = context.now();
    let mounts = ["redfish.mount.maintenance", "redfish.mount.task"];
    let mounted =
        mounts.iter().filter_map(|step| context.find_output::<Mounted>(step)).map(|it| it.sent_at).max();
    let off = context.find_output::<PowerRequest>("redfish.power-off").and_then(|request| request.sent_at);
    let since = |at: Option<Time>| at.map(|at| now.since(at));
    let left = connected.bmc.profile().settle_left(since(mounted), since(off));
    (!left.is_zero()).then_some(left)
}

/// Returns a sign that the host was started since the power-on request although the BMC shows off.
async fn started(
    step: &str,
    services: &Services,
    context: &StepContext,
    connected: &ConnectedBmc,
    found: &Discovered,
) -> Result<Option<&'static str>, StepReport> {
    let source = connected
        .bmc
        .next_boot_source(&found.discovery, &found.boot_slot)
        .await
        .map_err(|error| from_redfish(step, &error))?;
    // An override that disappeared together with the media was lost, not consumed: the BMC has restarted.
    if source.is_some_and(|source| !source.is_active())
        && !reinsert::boot_slot_is_empty(step, connected, found).await?
    {
        return Ok(Some("the one-time boot was consumed"));
    }
    let built: Built = output_of(step, context, "iso.build")?;
    let spliced = found.spliced.as_ref().map(|spliced| &spliced.grant);
    for grant in [&built.boot_grant, &built.task_grant].into_iter().chain(spliced).chain(&found.grants) {
        let reads = services.grants.reads_of(grant).await.map_err(|why| {
            StepReport::new(engine::StepOutcome::Retry(failure(
                class::TRANSIENT,
                step,
                why.reason,
                "see /readyz for what is wrong with the controller",
            )))
        })?;
        // The BMC itself reads the media at the insert; only reads after the intent count.
        let since = context.record.started_at.timestamp();
        if reads.last_read_at.is_some_and(|read| read > since) {
            return Ok(Some("media were read"));
        }
    }
    Ok(None)
}
