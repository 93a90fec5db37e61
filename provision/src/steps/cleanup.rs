//! The finish list: what the job's own intents record is taken back, and the machine is left as the outcome wants it.
//!
//! ```text
//!  touched = the job inserted a medium or powered the host on (an intent is enough)
//!  power-off  touched: graceful, then forced            boot-override  ours and still active: Disabled
//!  eject      slots that hold our images                power-on       unless it was found off and the job did not succeed
//! ```
//!
//! What an earlier job could not take back (the server's debt) is taken back by the next job that touches the machine.

use std::sync::Arc;
use std::time::Duration;

use redfish::{PowerState, ResetType};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::classify::{failure, from_redfish, from_redfish_change, unavailable};
use super::super::outputs::{Built, Discovered, Mounted, PowerRequest, Validated};
use super::super::services::Site;
use super::super::waits;
use super::eject::empty;
use super::iso_build::Use;
use super::mount::lost;
use super::power::{ask, due, force_off, granted, is_up, power_state};
use super::slot_fallback::{slot_fallbacks, uses};
use super::{
    Host, class, cleanup_policy, discovered_bmc, input, last_policy, server, settled, settling, step,
};
use engine::model::{
    Artifact, Effect, NewEvent, Outcome, Server, Snapshot, Stage, StepPhase, StepRecord, Time,
};
use engine::{AfterCommit, StepContext, StepReport};
use media::{Suffix, media_url};

/// How long an OS may take to shut down before it is forced.
const GRACE: Duration = Duration::from_secs(60);
/// How long after a power-on an "off" may be stale.
const STALE: Duration = Duration::from_secs(60);
/// How long the host may take to come on again.
const POWER_WITHIN: Duration = Duration::from_secs(180);

step!(
    /// Makes the host off, so that media can be taken out under no running OS.
    CleanupPowerOff,
    cleanup_policy,
    power_off
);
step!(
    /// Empties the slots this job filled.
    CleanupEject,
    cleanup_policy,
    eject
);
step!(
    /// Takes back a one-time boot that was not consumed.
    CleanupBootOverride,
    cleanup_policy,
    boot_override
);
step!(
    /// Makes the host on: it boots its new system.
    CleanupPowerOn,
    cleanup_policy,
    power_on
);
step!(
    /// Ends the grants, closes the BMC session, and records what could not be undone.
    CleanupGrant,
    last_policy,
    grant
);

/// Whether a step has at least announced its effect.
fn announced(snapshot: &Snapshot, step: &str) -> bool {
    snapshot.evidence(step).any(|record| record.phase != StepPhase::Skipped)
}

/// The inserts this job has announced, each with the record of its step.
fn inserts(snapshot: &Snapshot) -> impl Iterator<Item = (&StepRecord, Mounted)> {
    let mounts = ["redfish.mount.maintenance", "redfish.mount.task"];
    let records = mounts.into_iter().flat_map(|step| snapshot.evidence(step));
    records.filter_map(|record| Some((record, Mounted::deserialize(&record.evidence).ok()?)))
}

/// The slots this job meant to fill.
pub(super) fn filled(snapshot: &Snapshot) -> Vec<String> {
    let mut slots: Vec<String> = inserts(snapshot).map(|(_, mounted)| mounted.slot).collect();
    slots.sort();
    slots.dedup();
    slots
}

/// Whether this job told a slot to take an image so recently that an empty one may be about to show it: nobody has seen it in.
fn coming_in(context: &StepContext, uri: &str, lag: Duration) -> bool {
    let recently = |sent: Time| context.now().since(sent) < lag;
    let reinsert = context
        .snapshot
        .evidence("redfish.power-on")
        .filter_map(|record| PowerRequest::deserialize(&record.evidence).ok()?.reinserted_at)
        .any(recently);
    reinsert
        || inserts(&context.snapshot).any(|(record, mounted)| {
            let unseen = record.phase != StepPhase::Done && !mounted.refused;
            unseen && mounted.slot == uri && recently(mounted.sent_at)
        })
}

fn touched(snapshot: &Snapshot) -> bool {
    !filled(snapshot).is_empty() || announced(snapshot, "redfish.power-on")
}

async fn power_off(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "cleanup.power-off";
    if !touched(&context.snapshot) {
        return Ok(StepReport::skipped());
    }
    let (host, found) = discovered_bmc(STEP, site, context).await?;
    let system = &found.discovery.system;
    let mut asked: PowerRequest = context.own().unwrap_or_default();
    let graceful = system.reset.as_ref().is_some_and(|reset| reset.allows(ResetType::GracefulShutdown));
    let now = context.now();
    let waited = asked.graceful_answered && asked.graceful_at.is_some_and(|sent| now.since(sent) >= GRACE);
    if !graceful || waited || asked.sent > 0 {
        return force_off(STEP, context, &host, system).await;
    }
    let state = host.bmc.power_state(system).await.map_err(|error| from_redfish(STEP, &error))?;
    // Whoever was asked to shut down had been seen on.
    if state == PowerState::Off && asked.graceful_at.is_none() && coming_up(context, &host) {
        let detail = "the host was told to power on a moment ago and may still come up; looking again before it counts as off";
        return Ok(settling(&waits::POWER_OFF, POWER_WITHIN, detail).leaving(json!(asked)));
    }
    if state == PowerState::Off {
        return Ok(StepReport::done().event(NewEvent::info("redfish.power", "host off")));
    }
    let again = asked.graceful_at.is_some();
    // One that may never have left is sent again: the alternative is to cut the power of a system that would have gone down.
    if !asked.graceful_answered {
        asked.graceful_at = Some(now);
        context.checkpoint(json!(asked)).await.map_err(|_lost| lost(STEP))?;
        let sent = host.bmc.reset(system, ResetType::GracefulShutdown).await;
        asked.graceful_answered = true;
        match sent {
            Ok(reset) if reset.confirmed => {
                let event = NewEvent::info("redfish.power", "host shut down gracefully, read back");
                return Ok(StepReport::done().leaving(json!(asked)).event(event));
            }
            Ok(_) => {}
            // It may have been done before, and is refused by a BMC that shows its power state late.
            Err(error) if again && !error.is_transient() => {}
            // A BMC that cannot shut down gracefully now is forced at once.
            Err(error) if !error.is_transient() => return force_off(STEP, context, &host, system).await,
            // Not now, and certainly not done: the next try asks again.
            Err(error) if !error.maybe_applied() => {
                (asked.graceful_at, asked.graceful_answered) = (None, false);
                return Err(from_redfish_change(STEP, &error).leaving(json!(asked)));
            }
            Err(error) => return Err(from_redfish(STEP, &error).leaving(json!(asked))),
        }
    }
    Ok(settling(&waits::SHUTDOWN, POWER_WITHIN, "the host was asked to shut down and has not yet")
        .leaving(json!(asked)))
}

/// Whether this job told the host to power on so recently that an "off" of its BMC may be stale: nobody has seen it on.
fn coming_up(context: &StepContext, host: &Host) -> bool {
    let under_way = host.bmc.profile().mutation_timeout;
    context.snapshot.evidence("redfish.power-on").any(|record| {
        let asked: PowerRequest = Deserialize::deserialize(&record.evidence).unwrap_or_default();
        let unseen = asked.unseen || record.phase != StepPhase::Done;
        // A BMC may carry a request out as late as it answers it; another sign of the start was seen at the end of the step.
        let carried_out = asked.sent_at.map(|sent| record.ended_at.max(Some(sent.plus(under_way))));
        unseen && carried_out.flatten().is_some_and(|by| context.now().since(by) < STALE)
    })
}

/// A cleanup step that must not be done because an earlier one is not true.
fn not_now(step: &str, summary: &str) -> StepReport {
    StepReport::fail(failure(
        class::BMC_REFUSED,
        step,
        summary,
        "look at the machine; the next job on it cleans up first",
    ))
}

async fn eject(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "cleanup.eject";
    let slots = filled(&context.snapshot);
    if slots.is_empty() {
        return Ok(StepReport::skipped());
    }
    let (host, found) = discovered_bmc(STEP, site, context).await?;
    let state = host
        .bmc
        .power_state_cached(&found.discovery.system)
        .await
        .map_err(|error| from_redfish(STEP, &error))?;
    let believed = context.earlier::<PowerRequest>("cleanup.power-off").is_some_and(|asked| asked.unseen);
    if is_up(state) || (state != PowerState::Off && !believed) {
        return Err(not_now(STEP, "the host is not off; media are not taken from under a running system"));
    }
    let ours = our_urls(site, context);
    let mut ejected = 0;
    let mut report = StepReport::done();
    let shown = host.bmc.slots(&found.discovery, &slots).await.map_err(|error| from_redfish(STEP, &error))?;
    for slot in &shown {
        if slot.is_empty() {
            let profile = host.bmc.profile();
            // A BMC may carry a request out as late as it answers it.
            let lag = profile.read_back_lag + profile.mutation_timeout;
            if coming_in(context, &slot.uri, lag) {
                let detail = format!(
                    "slot {} was told to take an image a moment ago and does not show it; looking again before it counts as empty",
                    slot.id
                );
                return Ok(settling(&waits::MOUNT, lag, detail));
            }
            continue;
        }
        if !ours.iter().any(|url| slot.may_be(url)) {
            let message = format!("slot {} holds a medium of somebody else; left as it is", slot.id);
            report = report.event(NewEvent::warn("redfish.foreign-medium", message));
            continue;
        }
        if let Some(waiting) = empty(STEP, context, &host, slot).await? {
            return Ok(waiting);
        }
        ejected += 1;
    }
    let message = format!("{ejected} of {} slots emptied and read back", slots.len());
    Ok(report.event(NewEvent::info("redfish.ejected", message)))
}

/// The URLs under which this job's images were inserted.
fn our_urls(site: &Site, context: &StepContext) -> Vec<String> {
    let (Some(validated), Some(built)) =
        (context.earlier::<Validated>("validate"), context.earlier::<Built>("iso.build"))
    else {
        return Vec::new();
    };
    let run = context.snapshot.run.id;
    let found = context.earlier::<Discovered>("redfish.discover");
    let uses = found.as_ref().map_or(vec![Use::FIRST], |found| uses(found, &context.snapshot));
    let first = found.and_then(|found| found.spliced).map(|spliced| spliced.identity);
    let later = slot_fallbacks(&context.snapshot).into_iter().filter_map(|replanned| replanned.spliced);
    let boots = first.into_iter().chain(later).chain([validated.boot_digest.clone()]);
    let images: Vec<(Artifact, String)> = boots
        .map(|digest| (Artifact::Boot, digest))
        .chain([(Artifact::Task, built.task_digest.clone())])
        .collect();
    let mut urls = Vec::new();
    for (artifact, digest) in &images {
        for for_use in &uses {
            let Some(token) = site.media_token_for(run, *artifact, digest, *for_use) else { continue };
            let both = [Suffix::Iso, Suffix::Img];
            urls.extend(
                both.iter()
                    .filter_map(|suffix| media_url(&validated.media_base, &token, *artifact, *suffix).ok()),
            );
        }
    }
    urls
}

async fn boot_override(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "cleanup.boot-override";
    let ours = announced(&context.snapshot, "redfish.boot-override");
    if !ours && (!touched(&context.snapshot) || !is_pending(site, context, STEP).await?) {
        return Ok(StepReport::skipped());
    }
    let (host, found) = discovered_bmc(STEP, site, context).await?;
    let failed = |error: redfish::RedfishError| from_redfish_change(STEP, &error);
    let (discovery, slot) = (&found.discovery, found.boot_slot.as_str());
    let lead = host.bmc.next_boot_source_cached(discovery, slot).await.map_err(failed)?;
    if lead.is_none_or(|lead| !lead.is_active()) {
        return Ok(StepReport::done());
    }
    let cleared = host.bmc.clear_next_boot_source(discovery, slot).await.map_err(failed)?;
    if !cleared.confirmed {
        let detail = "the one-time boot was cleared, a read still shows it";
        return Ok(settling(&waits::BOOT_OVERRIDE, host.bmc.profile().read_back_lag, detail));
    }
    Ok(StepReport::done().event(NewEvent::info("redfish.boot-once", "one-time boot cleared, read back")))
}

async fn power_on(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "cleanup.power-on";
    let snapshot = &context.snapshot;
    let was_off = context.earlier::<Discovered>("redfish.discover").is_some_and(|found| found.was_off);
    let announced_off = announced(snapshot, "redfish.power-off");
    if !touched(snapshot) && (!announced_off || was_off) {
        return Ok(StepReport::skipped());
    }
    if was_off && snapshot.run.outcome != Some(Outcome::Succeeded) && !is_pending(site, context, STEP).await?
    {
        let off = snapshot.evidence("cleanup.power-off").any(|record| record.phase == StepPhase::Done);
        let message =
            if off { "host left off, as it was found" } else { "host not powered on: it was found off" };
        return Ok(StepReport::skipped().event(NewEvent::info("redfish.power", message)));
    }
    let (host, found) = discovered_bmc(STEP, site, context).await?;
    let system = &found.discovery.system;
    let mut asked: PowerRequest = context.own().unwrap_or_default();
    let state =
        power_state(context, &host, system, &asked).await.map_err(|error| from_redfish(STEP, &error))?;
    if is_up(state) {
        return Ok(StepReport::done().event(NewEvent::info("redfish.power", "host on, read back")));
    }
    if granted(context, &asked, state) {
        asked.unseen = true;
        let message =
            "the host was told to power on twice; its BMC shows neither on nor off, so it is taken as on";
        return Ok(StepReport::done().leaving(json!(asked)).event(NewEvent::warn("redfish.power", message)));
    }
    if due(context, &asked) {
        still_mounted(STEP, site, context, &host).await?;
        asked.sent += 1;
        asked.sent_at = Some(context.now());
        context.checkpoint(json!(asked)).await.map_err(|_lost| lost(STEP))?;
        if ask(STEP, &host, system, ResetType::On, &asked).await? {
            let event = NewEvent::info("redfish.power", "host on, read back");
            return Ok(StepReport::done().leaving(json!(asked)).event(event));
        }
    }
    Ok(settling(&waits::POWER_ON, POWER_WITHIN, "the host was told to power on, a read does not show it yet")
        .leaving(json!(asked)))
}

/// Refuses to power a host on that would boot our medium a second time.
async fn still_mounted(
    step: &str,
    site: &Site,
    context: &StepContext,
    host: &Host,
) -> Result<(), StepReport> {
    let ours = our_urls(site, context);
    for uri in filled(&context.snapshot) {
        // The eject before has read it back, if that was not long ago.
        let slot = host.bmc.slot_cached(&uri).await.map_err(|error| from_redfish(step, &error))?;
        if ours.iter().any(|url| slot.may_hold(url)) {
            return Err(not_now(step, "a medium of this job is still mounted; the host would boot it again"));
        }
    }
    Ok(())
}

async fn grant(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "cleanup.grant";
    let serial = input(STEP, context)?.server;
    let server = site.directory.server(&serial).await.map_err(|why| unavailable(STEP, &why))?;
    if let Some(server) = &server {
        site.bmcs.close(server, &context.lease).await;
    }
    let run = context.snapshot.run.id;
    site.images.release(&run.to_string()).await.map_err(|why| unavailable(STEP, &why))?;
    let grants = site.grants.clone();
    let meter = Arc::clone(&site.meter);
    let outcome = context.snapshot.run.outcome;
    let took = context.now().since(context.snapshot.run.created_at);
    let mut report = StepReport::done().effect(Effect::GrantsEnded);
    let debt = debt(&context.snapshot, server.as_ref().map_or(Vec::new(), owed));
    if debt.is_some() || touched(&context.snapshot) {
        report = report.effect(Effect::CleanupPending { serial, debt });
    }
    report.then = Some(AfterCommit(Arc::new(move || {
        grants.end(run.0);
        if let Some(outcome) = outcome {
            meter.job_ended(outcome, took);
        }
    })));
    Ok(report)
}

/// What the steps before could not undo; with the slots that may still be filled, because the next job may use others.
fn debt(snapshot: &Snapshot, owed: Vec<String>) -> Option<Value> {
    let left: Vec<&str> = snapshot
        .steps
        .iter()
        .filter(|record| record.at.stage == Stage::Finish && record.phase == StepPhase::Failed)
        .map(|record| record.name.as_str())
        .collect();
    let mut slots = if left.contains(&"cleanup.eject") { filled(snapshot) } else { Vec::new() };
    // What an earlier job owed is owed still, unless this one came as far as to empty it.
    if !snapshot.evidence("redfish.eject").any(|record| record.phase == StepPhase::Done) {
        slots.extend(owed);
    }
    slots.sort();
    slots.dedup();
    (!left.is_empty()).then(|| json!({ "job_id": snapshot.run.id, "remaining": left, "slots": slots }))
}

/// Whether an earlier job owes this step to the server: this one does it, or owes it in its turn.
async fn is_pending(site: &Site, context: &StepContext, step: &str) -> Result<bool, StepReport> {
    let server = server(step, site, &input(step, context)?.server).await?;
    let remaining = server.debt.as_ref().and_then(|debt| debt.get("remaining")?.as_array());
    Ok(remaining.is_some_and(|remaining| remaining.iter().any(|left| left == step)))
}

/// The slots that an earlier job has left filled on this server.
pub(super) fn owed(server: &Server) -> Vec<String> {
    let slots = server.debt.as_ref().and_then(|debt| debt.get("slots")?.as_array());
    slots.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
