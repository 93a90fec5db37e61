//! `redfish.power-off` and `redfish.power-on`.
//!
//! ```text
//!  power-on, called again:   host not off            -> done
//!                            override consumed       -> done (the BMC reports its power state late)
//!                            media read since asking -> done
//!                            none of these           -> send On (never a restart)
//! ```

use std::sync::Arc;
use std::time::Duration;

use redfish::{ErrorKind, PowerState, RedfishError, ResetType, SystemInfo};
use serde_json::json;

use super::super::classify::{failure, from_redfish, from_redfish_change};
use super::super::outputs::{Built, Discovered, Mounted, PowerRequest};
use super::super::report::SIGNAL;
use super::super::services::Site;
use super::super::waits;
use super::mount::lost;
use super::{Host, bmc_policy, class, discovered_bmc, left, reinsert, settled, settling, step};
use engine::model::mutant::{self, Mutant};
use engine::model::{NewEvent, Time, turn};
use engine::{PermitRequest, StepContext, StepReport, Verdict};

/// How long a host may take to show a power state it was told to take.
const POWER_WITHIN: Duration = Duration::from_secs(180);
/// After this long without an effect the request is sent again.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// How long after the second request a BMC that shows no final power state is believed.
const BELIEVED_AFTER: Duration = Duration::from_secs(30);

/// What a host has a place of while it powers on.
pub fn power_on_permit() -> String {
    turn("power-on")
}

step!(
    /// Makes the host off, forced.
    PowerOff,
    bmc_policy,
    off
);

step!(
    /// Makes the host on, from the medium, once.
    PowerOn,
    bmc_policy,
    on
);

async fn off(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "redfish.power-off";
    let (host, found) = discovered_bmc(STEP, site, context).await?;
    force_off(STEP, context, &host, &found.discovery.system).await
}

/// Whether the owner before died in this step, between writing down what it is about to do and what came of it.
fn orphaned(context: &StepContext) -> bool {
    context.reentered && context.waited.is_none()
}

/// Whether a power request that has no effect yet is to be sent (again): never sent, sent long ago, or sent by an owner that
/// died before it was answered, so that nobody knows whether it ever left.
pub(super) fn due(context: &StepContext, asked: &PowerRequest) -> bool {
    orphaned(context) || asked.sent_at.is_none_or(|sent| context.now().since(sent) >= ASK_AGAIN)
}

/// Whether a host is on, or on its way. A BMC that shows neither on nor off may be told once more without harm.
pub(super) fn is_up(state: PowerState) -> bool {
    matches!(state, PowerState::On | PowerState::PoweringOn | PowerState::Paused)
}

/// Whether a BMC that shows neither on nor off is believed to have done what it was told twice: some never show more.
pub(super) fn granted(context: &StepContext, asked: &PowerRequest, state: PowerState) -> bool {
    let late = asked.sent_at.is_some_and(|sent| context.now().since(sent) >= BELIEVED_AFTER);
    !is_up(state) && state != PowerState::Off && asked.sent > 1 && late
}

/// Sends a power request that was written down as `asked`; answers whether a read shows its effect already.
///
/// A refusal of what was asked for before, also gracefully, is no failure: the first request may have been carried out by
/// a BMC that shows its power state late, and refuses to do what is done.
pub(super) async fn ask(
    step: &str,
    host: &Host,
    system: &SystemInfo,
    reset: ResetType,
    asked: &PowerRequest,
) -> Result<bool, StepReport> {
    match host.bmc.reset(system, reset).await {
        Ok(applied) => Ok(applied.confirmed),
        Err(error)
            if (asked.sent > 1 || asked.graceful_at.is_some())
                && matches!(error.kind, ErrorKind::Refused { .. }) =>
        {
            Ok(false)
        }
        // A definite no leaves nothing to wait for: the next try sends it again at once.
        Err(error) if !error.maybe_applied() => {
            let unasked = PowerRequest { sent: asked.sent.saturating_sub(1), sent_at: None, ..asked.clone() };
            Err(from_redfish_change(step, &error).leaving(json!(unasked)))
        }
        Err(error) => Err(from_redfish(step, &error)),
    }
}

/// Forces the host off and reads it back.
pub(super) async fn force_off(
    step: &str,
    context: &StepContext,
    host: &Host,
    system: &SystemInfo,
) -> Result<StepReport, StepReport> {
    let mut asked: PowerRequest = context.own().unwrap_or_default();
    let state =
        power_state(context, host, system, &asked).await.map_err(|error| from_redfish(step, &error))?;
    if state == PowerState::Off {
        let event = match asked.sent {
            0 => NewEvent::info("redfish.power", "host was off"),
            _ => NewEvent::info("redfish.power", "host off, read back"),
        };
        return Ok(host.report(StepReport::done().leaving(json!(asked)).event(event)));
    }
    if granted(context, &asked, state) {
        asked.unseen = true;
        let message =
            "the host was forced off twice; its BMC shows neither on nor off, so it is taken as off";
        let event = NewEvent::warn("redfish.power", message);
        return Ok(host.report(StepReport::done().leaving(json!(asked)).event(event)));
    }
    if due(context, &asked) {
        asked.sent_at = Some(context.now());
        asked.sent += 1;
        context.checkpoint(json!(asked)).await.map_err(|_lost| lost(step))?;
        if ask(step, host, system, ResetType::ForceOff, &asked).await? {
            return Ok(host.report(
                StepReport::done()
                    .leaving(json!(asked))
                    .event(NewEvent::info("redfish.power", "host forced off, read back")),
            ));
        }
    }
    let shown = match state {
        PowerState::Unknown => "no power state".to_owned(),
        state => format!("{state:?}"),
    };
    let detail = format!("the host was told to power off; its BMC shows {shown}");
    Ok(settling(&waits::POWER_OFF, POWER_WITHIN, detail).leaving(json!(asked)))
}

async fn on(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "redfish.power-on";
    let mut asked: PowerRequest = context.own().unwrap_or_default();
    if context.snapshot.pending().any(|signal| signal.name == SIGNAL) {
        // A machine that reports was started, whatever its BMC says or whether it answers.
        asked.unseen = true;
        return Ok(StepReport::done()
            .leaving(json!(asked))
            .event(NewEvent::info("redfish.power", "the machine has reported: it was started")));
    }
    let (host, found) = discovered_bmc(STEP, site, context).await?;
    let system = &found.discovery.system;
    if context.reentered && asked.sent > 0 && mutant::active(Mutant::RestartsAfterCrash) {
        // What somebody who distrusts the power state might do.
        let _sent = host.bmc.reset(system, ResetType::ForceRestart).await;
    }
    let state =
        power_state(context, &host, system, &asked).await.map_err(|error| from_redfish(STEP, &error))?;
    if is_up(state) {
        let event = if asked.sent == 0 {
            NewEvent::warn("redfish.power", "host was powered on by somebody else; going on")
        } else {
            NewEvent::info("redfish.power", "host on, read back")
        };
        return Ok(running(site, context, &host, &found, asked, event).await);
    }
    if asked.sent > 0
        && let Some(sign) = started(STEP, site, context, &host, &found).await?
    {
        asked.unseen = true;
        let event =
            NewEvent::info("redfish.power", format!("host was started: {sign}; its BMC reports off as yet"));
        return Ok(host.report(StepReport::done().leaving(json!(asked)).event(event)));
    }
    if asked.sent == 0
        && let Some(left) = settle_left(context, &host)
    {
        let detail = "the media are inserted; this BMC needs time before they can be booted";
        let mut waiting = settling(&waits::SETTLE, left + POWER_WITHIN, detail);
        if let Verdict::Wait(wait) = &mut waiting.verdict {
            wait.poll = Some(left);
        }
        return Ok(waiting.leaving(json!(asked)));
    }
    if asked.sent == 0
        && let Some(places) = site.settings.limits.power_ons
        && !context.has_permit(&power_on_permit())
    {
        return Ok(host.report(StepReport::new(Verdict::Turn(PermitRequest {
            resource: power_on_permit(),
            places,
            reason: &waits::POWER_TURN,
            signals: vec![SIGNAL],
            detail: "as many hosts as may are powering on".to_owned(),
        }))));
    }
    let mut events = Vec::new();
    if due(context, &asked) {
        let put = reinsert::before(STEP, site, context, (&host, &found), &mut asked).await;
        events = put.map_err(|report| report.leaving(json!(asked)))?;
        asked.sent_at = Some(context.now());
        asked.sent += 1;
        context.checkpoint(json!(asked)).await.map_err(|_lost| lost(STEP))?;
        if ask(STEP, &host, system, ResetType::On, &asked).await? {
            events.push(NewEvent::info("redfish.power", "host on, read back"));
            let mut report = StepReport::done().leaving(json!(asked));
            report.events = events;
            return Ok(host.report(report));
        }
    }
    let mut waiting = settling(
        &waits::POWER_ON,
        POWER_WITHIN,
        "the host was told to power on, a read does not show it yet",
    );
    if let Verdict::Wait(wait) = &mut waiting.verdict {
        wait.signals.push(SIGNAL);
    }
    waiting.events.extend(events);
    Ok(waiting.leaving(json!(asked)))
}

/// The host is on, after a while: some firmware has emptied the slots meanwhile.
async fn running(
    site: &Arc<Site>,
    context: &StepContext,
    host: &Host,
    found: &Discovered,
    mut asked: PowerRequest,
    event: NewEvent,
) -> StepReport {
    let mut events = vec![event];
    if asked.sent_at.is_some_and(|sent| context.now().since(sent) < ASK_AGAIN) {
        let put = reinsert::after("redfish.power-on", site, context, (host, found), &mut asked).await;
        events.extend(put);
    }
    let report = StepReport::done().leaving(json!(asked));
    host.report(StepReport { events, ..report })
}

/// The power state before this step did anything may have been read by the one before; afterwards it is read anew.
pub(super) async fn power_state(
    context: &StepContext,
    host: &Host,
    system: &SystemInfo,
    asked: &PowerRequest,
) -> Result<PowerState, RedfishError> {
    let untouched = asked.sent == 0 && asked.graceful_at.is_none() && context.waited.is_none();
    match untouched && !context.reentered {
        true => host.bmc.power_state_cached(system).await,
        false => host.bmc.power_state(system).await,
    }
}

/// How long this BMC still needs after the last insert and after the power-off, if it does.
fn settle_left(context: &StepContext, host: &Host) -> Option<Duration> {
    let now = context.now();
    let mounts = ["redfish.mount.maintenance", "redfish.mount.task"];
    let mounted =
        mounts.iter().filter_map(|step| context.earlier::<Mounted>(step)).map(|it| it.sent_at).max();
    let off = context.earlier::<PowerRequest>("redfish.power-off").and_then(|asked| asked.sent_at);
    let since = |at: Option<Time>| at.map(|at| now.since(at));
    let left = host.bmc.profile().settle_left(since(mounted), since(off));
    (!left.is_zero()).then_some(left)
}

/// A sign that the host was started since we asked for it, although the BMC says off.
async fn started(
    step: &str,
    site: &Site,
    context: &StepContext,
    host: &Host,
    found: &Discovered,
) -> Result<Option<&'static str>, StepReport> {
    let lead = host
        .bmc
        .next_boot_source(&found.discovery, &found.boot_slot)
        .await
        .map_err(|error| from_redfish(step, &error))?;
    // Gone together with the media it was lost, not consumed: the BMC has restarted.
    if lead.is_some_and(|lead| !lead.is_active()) && !reinsert::lost(step, host, found).await? {
        return Ok(Some("the one-time boot was consumed"));
    }
    let built: Built = left(step, context, "iso.build")?;
    let spliced = found.spliced.as_ref().map(|spliced| &spliced.grant);
    for grant in [&built.boot_grant, &built.task_grant].into_iter().chain(spliced).chain(&found.grants) {
        let reads = site.grants.evidence(grant).await.map_err(|why| {
            StepReport::new(engine::Verdict::Retry(failure(
                class::TRANSIENT,
                step,
                why.reason,
                "see /readyz for what is wrong with the controller",
            )))
        })?;
        // The BMC itself looked at the media when they were inserted; only what came after the intent counts.
        let since = context.record.started_at.timestamp();
        if reads.last_read_at.is_some_and(|read| read > since) {
            return Ok(Some("media were read"));
        }
    }
    Ok(None)
}
