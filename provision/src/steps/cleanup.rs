//! Cleanup, the finish steps: they revert what the job's intents record and leave the machine as the outcome requires.
//!
//! ```text
//!  touched = the job inserted media or powered the host on (an intent is enough)
//!  power-off  touched: graceful, then forced            boot-override  ours and still active: Disabled
//!  eject      slots that hold our images                power-on       unless the host was off and the job did not succeed,
//!                                                                      or it succeeded and the recipe says `after: off`
//! ```
//!
//! Cleanup that an earlier job could not do (the server's pending cleanup) is done by the next job that changes the machine.

use std::sync::Arc;
use std::time::Duration;

use redfish::PowerState;
use redfish::profile::BootVia;
use serde::Deserialize;

use super::super::outputs::{BootSet, Built, Discovered, Mounted, SecondWay, Validated};
use super::super::report::SIGNAL;
use super::super::second_way;
use super::super::services::Services;
use super::iso_build::{GrantUse, media_token_for};
use super::slot_fallback::{slot_fallbacks, uses};
use super::{class, cleanup_policy, discovered_bmc, input, last_policy, names, recipe, step};
use bmc::power::{self, KnownHost, PROOF_AGE, PowerRequest};
use bmc::slots::Inserted;
use bmc::{ConnectedBmc, boot, failure, from_redfish, slots, unavailable, wait_for_bmc, waits};
use engine::{AfterCommit, StepContext, StepError, StepReport};
use media::{Suffix, media_url};
use model::mutant::{self, Mutant};
use model::{
    Artifact, Effect, NewEvent, Outcome, PendingCleanup, Server, Snapshot, Stage, StepName, StepPhase,
    StepRecord, Time,
};
use recipe::After;

/// The time after a power-on in which an "off" may be stale.
const STALE_FOR: Duration = Duration::from_secs(60);

step!(
    /// Powers the host off, so that no media is ejected under a running system.
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
    /// Clears a one-time boot that was not consumed.
    CleanupBootOverride,
    cleanup_policy,
    boot_override
);
step!(
    /// Powers the host on: it boots its new system.
    CleanupPowerOn,
    cleanup_policy,
    power_on
);
step!(
    /// Ends the grants, closes the BMC session, and records pending cleanup.
    CleanupGrant,
    last_policy,
    grant
);

/// Returns whether a step has at least recorded its intent.
fn has_intent(snapshot: &Snapshot, step: &StepName) -> bool {
    snapshot.records_of(step).any(|record| record.phase != StepPhase::Skipped)
}

/// Returns the records of the inserts whose intent this job recorded, each with its output.
fn insert_records(snapshot: &Snapshot) -> impl Iterator<Item = (&StepRecord, Mounted)> {
    let records = names::MOUNTS.into_iter().flat_map(|step| snapshot.records_of(step));
    records.filter_map(|record| Some((record, Mounted::deserialize(&record.output).ok()?)))
}

/// Returns the inserts whose intent this job recorded, each with whether the slot showed the image.
fn inserts(snapshot: &Snapshot) -> impl Iterator<Item = (bool, Inserted)> {
    insert_records(snapshot).map(|(record, mounted)| {
        let confirmed = record.phase == StepPhase::Done && mounted.slot_fallback.is_none();
        (confirmed, mounted.inserted)
    })
}

/// Returns the slots for which this job recorded an insert.
pub(super) fn filled(snapshot: &Snapshot) -> Vec<String> {
    let mut slots: Vec<String> = inserts(snapshot).map(|(_, inserted)| inserted.slot).collect();
    slots.sort();
    slots.dedup();
    slots
}

/// Returns the slots that may hold an image of this job: those it filled, without one that refused each image and that the
/// eject step of a later slot plan read as empty.
fn to_empty(snapshot: &Snapshot) -> Vec<String> {
    let ejects = snapshot.records_of(names::EJECT).filter(|record| record.phase == StepPhase::Done);
    let last_eject = ejects.map(|record| record.at).max();
    let mut slots: Vec<String> = insert_records(snapshot)
        .filter(|(record, mounted)| !mounted.inserted.refused || last_eject < Some(record.at))
        .map(|(_, mounted)| mounted.inserted.slot)
        .collect();
    slots.sort();
    slots.dedup();
    slots
}

/// Returns whether this job inserted an unconfirmed image so recently that an empty slot may still show it.
fn insert_may_appear(context: &StepContext, uri: &str, lag: Duration) -> bool {
    let recently = |sent: Time| context.now().since(sent) < lag;
    let reinsert = context
        .snapshot
        .records_of(names::POWER_ON)
        .filter_map(|record| PowerRequest::deserialize(&record.output).ok())
        .flat_map(|request| request.reinserted.into_values())
        .any(|media| !media.shown && recently(media.sent_at));
    reinsert
        || inserts(&context.snapshot).any(|(confirmed, inserted)| {
            let unconfirmed = !confirmed && !inserted.refused;
            unconfirmed && inserted.slot == uri && recently(inserted.sent_at)
        })
}

fn touched(snapshot: &Snapshot) -> bool {
    !filled(snapshot).is_empty() || has_intent(snapshot, names::POWER_ON)
}

async fn power_off(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::CLEANUP_POWER_OFF;
    if !touched(&context.snapshot) {
        return Ok(StepReport::skipped());
    }
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let known = known_host(context, &connected);
    let system = &found.discovery.system;
    power::shut_down(STEP, context, &connected, system, known, power::SHORT_GRACE).await
}

/// Returns what the job knows of its host. A power-on that the BMC has not shown comes before a report of the machine.
fn known_host(context: &StepContext, connected: &ConnectedBmc) -> KnownHost {
    if power_on_may_appear(context, connected) {
        KnownHost::MayStart
    } else if has_just_reported(context) {
        KnownHost::SaidOn
    } else {
        KnownHost::Unknown
    }
}

/// Returns whether the machine has reported within the last seconds: it is on, and stays on by contract.
fn has_just_reported(context: &StepContext) -> bool {
    let reports = context.snapshot.signals.iter().filter(|signal| signal.name == SIGNAL);
    reports.map(|report| context.now().since(report.received_at)).any(|age| age < PROOF_AGE)
}

/// Returns whether this job sent an unconfirmed power-on so recently that an "off" of the BMC may be stale.
fn power_on_may_appear(context: &StepContext, connected: &ConnectedBmc) -> bool {
    let under_way = connected.bmc.profile().mutation_timeout;
    context.snapshot.records_of(names::POWER_ON).any(|record| {
        let request: PowerRequest = Deserialize::deserialize(&record.output).unwrap_or_default();
        let unconfirmed = request.unconfirmed || record.phase != StepPhase::Done;
        // A BMC may apply a request as late as its response; other signs of the start were seen at the end of the step.
        let applied_by = request.sent_at.map(|sent| record.ended_at.max(Some(sent.plus(under_way))));
        unconfirmed && applied_by.flatten().is_some_and(|by| context.now().since(by) < STALE_FOR)
    })
}

/// Builds the failure of a cleanup step whose precondition is not met.
fn precondition_failed(step: &StepName, summary: &str) -> StepError {
    StepError::fail(failure(
        class::BMC_REFUSED,
        step,
        summary,
        "check the machine; the next job on it does the pending cleanup first",
    ))
}

async fn eject(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::CLEANUP_EJECT;
    let uris = to_empty(&context.snapshot);
    if uris.is_empty() {
        return Ok(StepReport::skipped());
    }
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let state = connected
        .bmc
        .power_state_cached(&found.discovery.system)
        .await
        .map_err(|error| from_redfish(STEP, &error))?;
    let assumed_off = context
        .find_output::<PowerRequest>(names::CLEANUP_POWER_OFF)
        .is_some_and(|request| request.unconfirmed);
    if power::is_up(state) || (state != PowerState::Off && !assumed_off) {
        return Err(precondition_failed(
            STEP,
            "the host is not off; media are not ejected under a running system",
        ));
    }
    let ours = our_urls(context);
    let mut empty = 0;
    let mut report = StepReport::done();
    let shown =
        connected.bmc.slots(&found.discovery, &uris).await.map_err(|error| from_redfish(STEP, &error))?;
    for slot in &shown {
        if slot.is_empty() {
            let profile = connected.bmc.profile();
            // A BMC may apply a request as late as its response.
            let lag = profile.read_back_lag + profile.mutation_timeout;
            if insert_may_appear(context, &slot.uri, lag) {
                let detail = format!(
                    "an insert into slot {} was sent a moment ago and the slot shows no image; it is read again before it counts as empty",
                    slot.id
                );
                return Ok(StepReport::wait(wait_for_bmc(&waits::MOUNT, lag, detail)));
            }
            empty += 1;
            continue;
        }
        if !ours.iter().any(|url| slot.may_be(url)) {
            let message = format!("slot {} holds media that this job did not insert; not changed", slot.id);
            report = report.event(NewEvent::warn("redfish.foreign-medium", message));
            continue;
        }
        if let Some(wait) = slots::eject(STEP, context, &connected, slot).await? {
            return Ok(StepReport::wait(wait));
        }
        empty += 1;
    }
    // Not how many this call emptied: an eject that takes its time is read back by a later call.
    let message = format!("{empty} of {} slots are empty, read back", uris.len());
    Ok(report.event(NewEvent::info("redfish.ejected", message)))
}

/// Returns all URLs under which this job may have inserted images.
fn our_urls(context: &StepContext) -> Vec<String> {
    let (Some(validated), Some(built)) =
        (context.find_output::<Validated>(names::VALIDATE), context.find_output::<Built>(names::ISO_BUILD))
    else {
        return Vec::new();
    };
    let found = context.find_output::<Discovered>(names::DISCOVER);
    let uses = found.as_ref().map_or(vec![GrantUse::FIRST], |found| uses(found, &context.snapshot));
    let base = validated.base_for(found.as_ref()).to_owned();
    let first = found.and_then(|found| found.spliced).map(|spliced| spliced.identity);
    let later =
        slot_fallbacks(&context.snapshot).into_iter().filter_map(|slot_fallback| slot_fallback.spliced);
    let boots = first.into_iter().chain(later).chain([validated.boot_digest.clone()]);
    let images: Vec<(Artifact, String)> = boots
        .map(|digest| (Artifact::Boot, digest))
        .chain([(Artifact::Task, built.task_digest.clone())])
        .collect();
    let mut urls = Vec::new();
    for (artifact, digest) in &images {
        for for_use in &uses {
            let Ok(token) = media_token_for(&context.snapshot, *artifact, digest, *for_use) else { continue };
            let both = [Suffix::Iso, Suffix::Img];
            urls.extend(both.iter().filter_map(|suffix| media_url(&base, &token, *artifact, *suffix).ok()));
        }
    }
    urls
}

/// The ways by which the job may have set the next boot: those on record, and that of the profile for a request without a record. The
/// profile may be another one than at that time.
fn ways_set(snapshot: &Snapshot, second: Option<&SecondWay>, of_profile: BootVia) -> Vec<BootVia> {
    let records =
        snapshot.records_of(names::BOOT_OVERRIDE).filter(|record| record.phase != StepPhase::Skipped);
    let recorded =
        records.map(|record| BootSet::deserialize(&record.output).map_or(of_profile, |set| set.way.via()));
    let mut ways = Vec::new();
    for via in recorded.chain(second.map(|second| second.second.via())) {
        if !ways.contains(&via) {
            ways.push(via);
        }
    }
    if ways.is_empty() {
        ways.push(of_profile);
    }
    ways
}

async fn boot_override(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::CLEANUP_BOOT_OVERRIDE;
    let ours = has_intent(&context.snapshot, names::BOOT_OVERRIDE);
    if !ours && (!touched(&context.snapshot) || !is_pending(services, context, STEP).await?) {
        return Ok(StepReport::skipped());
    }
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let from = (&found.discovery, found.boot_slot.as_str());
    let second = second_way::of(&context.snapshot).filter(|_| !second_way::is_given_up(&context.snapshot));
    let mut cleared = false;
    for via in ways_set(&context.snapshot, second.as_ref(), connected.bmc.profile().boot_via) {
        cleared |= boot::clear_once(STEP, context, &connected, from, via).await?;
    }
    if let Some(second) = second.filter(|_| context.snapshot.run.outcome == Some(Outcome::Succeeded)) {
        // The machine booted by it and reported, so the next job begins with it.
        connected.bmc.boots_by(&second.second);
    }
    let report = connected.report(StepReport::done());
    Ok(match cleared {
        true => report.event(NewEvent::info("redfish.boot-once", "one-time boot cleared, read back")),
        false => report,
    })
}

async fn power_on(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::CLEANUP_POWER_ON;
    let snapshot = &context.snapshot;
    let was_off = context.find_output::<Discovered>(names::DISCOVER).is_some_and(|found| found.was_off);
    let has_power_off_intent = has_intent(snapshot, names::POWER_OFF);
    if !touched(snapshot) && (!has_power_off_intent || was_off) {
        return Ok(StepReport::skipped());
    }
    if was_off
        && snapshot.run.outcome != Some(Outcome::Succeeded)
        && !is_pending(services, context, STEP).await?
    {
        let off = snapshot.records_of(names::CLEANUP_POWER_OFF).any(|record| record.phase == StepPhase::Done);
        let message = if off {
            "host left off, as before the job"
        } else {
            "host not powered on: it was off before the job"
        };
        return Ok(StepReport::skipped().event(NewEvent::info("redfish.power", message)));
    }
    if snapshot.run.outcome == Some(Outcome::Succeeded)
        && recipe(STEP, context)?.after == After::Off
        && !mutant::active(Mutant::IgnoresAfter)
    {
        let event = NewEvent::info("redfish.power", "host left off, as the recipe says (after: off)");
        return Ok(StepReport::skipped().event(event));
    }
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let before_sending = refuse_if_mounted(STEP, context, &connected);
    power::power_on(STEP, context, &connected, &found.discovery.system, before_sending).await
}

/// Refuses to power on a host that would boot this job's media a second time.
async fn refuse_if_mounted(
    step: &StepName,
    context: &StepContext,
    connected: &ConnectedBmc,
) -> Result<(), StepError> {
    let ours = our_urls(context);
    for uri in to_empty(&context.snapshot) {
        // Uses the read-back of the eject step if it is recent.
        let slot = connected.bmc.slot_cached(&uri).await.map_err(|error| from_redfish(step, &error))?;
        if ours.iter().any(|url| slot.may_hold(url)) {
            return Err(precondition_failed(
                step,
                "media of this job are still inserted; the host would boot them again",
            ));
        }
    }
    Ok(())
}

async fn grant(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::CLEANUP_GRANT;
    let serial = input(STEP, context)?.server;
    let server = services.bmc.servers.server(&serial).await.map_err(|why| unavailable(STEP, &why))?;
    if let Some(server) = &server {
        services.bmc.connections.close(server, &context.lease).await;
    }
    let run = context.snapshot.run.id;
    services.images.release(&run.to_string()).await.map_err(|why| unavailable(STEP, &why))?;
    let grants = services.grants.clone();
    let mut report = StepReport::done().effect(Effect::GrantsEnded);
    let pending = record_pending(&context.snapshot, server.as_ref().map_or(&[], pending_slots));
    if pending.is_some() || touched(&context.snapshot) {
        report = report.effect(Effect::CleanupPending { serial, pending });
    }
    report.then = Some(AfterCommit(Arc::new(move || grants.end(run))));
    Ok(report)
}

/// Builds the pending cleanup: the failed finish steps, and the slots that may still be filled, because the next job may use
/// other slots.
fn record_pending(snapshot: &Snapshot, pending_slots: &[String]) -> Option<PendingCleanup> {
    let remaining: Vec<StepName> = snapshot
        .steps
        .iter()
        .filter(|record| record.at.stage == Stage::Finish && record.phase == StepPhase::Failed)
        .map(|record| record.name.clone())
        .collect();
    let mut slots = if remaining.contains(names::CLEANUP_EJECT) { filled(snapshot) } else { Vec::new() };
    // Slots of an earlier job stay pending unless this job got as far as to empty them.
    if !snapshot.records_of(names::EJECT).any(|record| record.phase == StepPhase::Done) {
        slots.extend_from_slice(pending_slots);
    }
    slots.sort();
    slots.dedup();
    (!remaining.is_empty()).then_some(PendingCleanup {
        job_id: snapshot.run.id,
        remaining,
        slots,
        unknown: None,
    })
}

/// Returns whether this step is pending from an earlier job. Then this job does it, or it stays pending.
async fn is_pending(services: &Services, context: &StepContext, step: &StepName) -> Result<bool, StepError> {
    let server = services.bmc.server(step, &input(step, context)?.server).await?;
    Ok(server.pending_cleanup.is_some_and(|pending| pending.remaining.contains(step)))
}

/// Returns the slots that an earlier job left filled on this server.
pub(super) fn pending_slots(server: &Server) -> &[String] {
    server.pending_cleanup.as_ref().map_or(&[], |pending| &pending.slots)
}
