//! Which slot plan a job follows now, and what becomes of it when a slot refuses.
//!
//! ```text
//!  discover ──> plan 1 ──> mount.maintenance ──> mount.task ──> boot-override …
//!                               | refused             | refused
//!                               v                     v
//!                      Done, leaving Replanned {attempt 2, choice, fresh grants} and three more instances, key "2":
//!                      eject#2 ──> mount.maintenance#2 ──> mount.task#2 ──> (the old mount.task is skipped) ──> boot-override …
//! ```
//!
//! Invariants: the newest `Replanned` is the plan in force; an instance of another plan does nothing; every plan has URLs of
//! its own, so no BMC sees other bytes under a URL it knew; what refused is not tried again in this job, and what could be
//! blamed on the slot alone is remembered for the next one.

use std::sync::Arc;

use redfish::{ErrorKind, RedfishError};
use serde_json::{Value, json};

use super::super::classify::failure;
use super::super::outputs::{Discovered, Mounted, Replanned, Validated};
use super::super::services::Site;
use super::super::slots::{self, Capabilities, Learned, NoPlan, Refusal, SlotPlan, SlotPlans};
use super::iso_build::{TaskImage, Use, grant, task_of};
use super::{Host, class, left};
use crate::QUEUE;
use engine::model::{Artifact, Effect, Grant, NewEvent, Snapshot, StepInstance, StepSummary, error_chain};
use engine::{StepContext, StepReport};
use media::{self, ImageDigest, SpliceInputs};

/// The steps of a further plan.
const AGAIN: [&str; 3] = ["redfish.eject", "redfish.mount.maintenance", "redfish.mount.task"];
/// Words of BMCs that hold one image at a time.
const OCCUPIED: [&str; 3] = ["resourceinuse", "connectionoccupied", "sys446"];

/// Every time a slot refused, in order.
pub(super) fn slot_fallbacks(snapshot: &Snapshot) -> Vec<Replanned> {
    let evidence = snapshot.steps.iter().filter(|record| mounts(&record.name));
    in_order(evidence.filter_map(|record| serde_json::from_value(record.evidence.clone()).ok()))
}

/// Whether this step inserts a medium.
fn mounts(step: &str) -> bool {
    AGAIN[1..].contains(&step)
}

fn in_order(mounted: impl Iterator<Item = Mounted>) -> Vec<Replanned> {
    let mut all: Vec<Replanned> =
        mounted.filter_map(|mounted| mounted.replanned.map(|replanned| *replanned)).collect();
    all.sort_by_key(|replanned| replanned.attempt);
    all
}

/// What was discovered, with the plan that is in force now.
pub(super) fn in_force(snapshot: &Snapshot, found: Discovered) -> Discovered {
    with_slot_fallbacks(slot_fallbacks(snapshot), found)
}

/// The slot plan of a job as its steps have left it: which, with which slots, why, and what refused before.
pub fn slot_plan(steps: &[StepSummary]) -> Option<Value> {
    let discovered = steps.iter().rfind(|step| step.name == "redfish.discover")?;
    let found: Discovered = discovered.evidence.read().ok()?;
    let slot_fallbacks =
        in_order(steps.iter().filter(|step| mounts(&step.name)).filter_map(|step| step.evidence.read().ok()));
    let refused: Vec<Value> = slot_fallbacks
        .iter()
        .map(|replanned| json!({ "slot": replanned.refusal.slot_id, "words": replanned.refusal.words }))
        .collect();
    let found = with_slot_fallbacks(slot_fallbacks, found);
    let id = |uri: &String| found.discovery.slots.iter().find(|slot| slot.uri == *uri).map(|slot| &slot.id);
    let slots: Vec<&String> =
        std::iter::once(&found.boot_slot).chain(&found.task_slots).filter_map(id).collect();
    Some(json!({
        "plan": found.plan, "slots": slots, "reason": found.reason, "attempt": found.attempt, "refused": refused,
    }))
}

fn with_slot_fallbacks(slot_fallbacks: Vec<Replanned>, mut found: Discovered) -> Discovered {
    for replanned in slot_fallbacks {
        found.attempt = replanned.attempt;
        found.plan = replanned.choice.plan;
        found.reason = replanned.choice.reason;
        found.boot_slot = replanned.choice.boot;
        found.task_slots = replanned.choice.task.into_iter().collect();
        found.spliced = replanned.spliced.map(|identity| super::super::outputs::SplicedBootGrant {
            identity,
            grant: replanned.boot_grant.clone(),
        });
        found.grants.push(replanned.boot_grant);
        found.grants.extend(replanned.task_grant);
        found.learned.note(&replanned.refusal);
    }
    found
}

/// Whether an instance belongs to a plan that is no longer in force.
pub(super) fn outdated(context: &StepContext, found: &Discovered) -> bool {
    let key = if found.attempt > 1 { found.attempt.to_string() } else { String::new() };
    context.record.key != key
}

/// Every use of an image that was granted so far, for recognising our own media.
pub(super) fn uses(found: &Discovered, snapshot: &Snapshot) -> Vec<Use> {
    let later =
        slot_fallbacks(snapshot).into_iter().map(|replanned| (replanned.choice.plan, replanned.attempt));
    std::iter::once((found.plan, 1)).chain(later).map(|(plan, attempt)| Use::of(plan, attempt)).collect()
}

/// All plans for slots that take media served under `media_base`, a URL the BMC was checked against.
pub(crate) fn plans(
    slots: &[redfish::Slot],
    media_base: &str,
    learned: &Learned,
) -> Result<SlotPlans, NoPlan> {
    let scheme = media_base.split_once("://").map_or("http", |(scheme, _)| scheme);
    slots::plan(&Capabilities { slots, scheme, learned })
}

/// What an error of an insert says about the slot; `None` when it says nothing about it. `patient` is whether it makes sense
/// to try the same slot once more.
pub(super) fn refusal(error: &RedfishError, slot: &redfish::Slot, patient: bool) -> Option<Refusal> {
    let occupied = match &error.kind {
        ErrorKind::Refused { message_id, status, .. } | ErrorKind::Busy { message_id, status, .. } => {
            let words = message_id.as_deref().unwrap_or_default().to_ascii_lowercase();
            *status == 409 || OCCUPIED.iter().any(|word| words.contains(word))
        }
        _ => false,
    };
    let refused = match &error.kind {
        ErrorKind::Refused { .. } => !error.maybe_applied(),
        ErrorKind::NotSupported { .. } | ErrorKind::TaskFailed { .. } => true,
        // Not now, again and again: rather another slot than no machine.
        ErrorKind::Busy { .. } | ErrorKind::Server { .. } => !patient,
        _ => false,
    };
    refused.then(|| Refusal {
        slot: slot.uri.clone(),
        slot_id: slot.id.clone(),
        words: error.kind.to_string(),
        one_image: occupied,
    })
}

/// A boot image with the task in it, planned, with its grant.
pub(super) struct Spliced {
    pub(super) identity: String,
    pub(super) grant: Grant,
    pub(super) notes: Vec<String>,
}

/// Plans the boot image of a single slot and issues its grant, with what a person should know of the splice.
pub(super) async fn splice(
    step: &str,
    site: &Arc<Site>,
    context: &StepContext,
    for_use: Use,
) -> Result<Spliced, StepReport> {
    let validated: Validated = left(step, context, "validate")?;
    let unusable = |why: String| {
        StepReport::fail(failure(
            class::UNSUPPORTED,
            step,
            format!(
                "this BMC takes one image only, and the task does not fit into the maintenance ISO: {why}"
            ),
            "use a maintenance ISO without a UDF file system (`shoal iso splice` says what is wrong with this one), or a BMC with two slots",
        ))
    };
    let digest = ImageDigest::parse(&validated.boot_digest)
        .ok_or_else(|| unusable("its digest is not one".to_owned()))?;
    let task = task_of(site, context, &validated)?.frozen;
    let maintenance = site.library.image(digest).await.map_err(|why| {
        StepReport::fail(failure(class::MEDIA, step, error_chain(&why).to_string(), "import it again"))
    })?;
    let frozen = SpliceInputs::new(digest, task);
    let bytes = frozen.to_bytes().map_err(|why| unusable(error_chain(&why).to_string()))?;
    let planned = media::offload(move || frozen.plan(&maintenance.body)).await;
    let image = planned
        .map_err(|_panic| unusable("planning it broke off".to_owned()))?
        .map_err(|why| unusable(error_chain(&why).to_string()))?;
    let identity = image.identity.to_hex();
    let grant = grant(site, context, Artifact::Boot, &identity, Some(&bytes), image.len, for_use)?;
    Ok(Spliced { identity, grant, notes: image.notes })
}

/// Tells of a splice and grants it.
pub(super) fn tell(report: StepReport, spliced: Spliced) -> StepReport {
    let size = spliced.grant.size;
    let message = format!("boot image of {size} bytes planned: the maintenance image with the task in it");
    report
        .event(NewEvent::info("iso.spliced", message).with(json!({ "notes": spliced.notes })))
        .effect(Effect::GrantIssued(Box::new(spliced.grant)))
}

/// The report of a mount step whose slot refused: the next plan, or the end.
pub(super) async fn next_plan(
    step: &str,
    site: &Arc<Site>,
    context: &StepContext,
    host: &Host,
    found: &Discovered,
    refusal: Refusal,
    what: &str,
) -> Result<StepReport, StepReport> {
    let validated: Validated = left(step, context, "validate")?;
    let mut refusals: Vec<Refusal> =
        slot_fallbacks(&context.snapshot).into_iter().map(|replanned| replanned.refusal).collect();
    refusals.push(refusal.clone());
    let slots = &found.discovery.slots;
    // Planned as it was at first: what this job met since stands in the refusals.
    let before: Discovered = left(step, context, "redfish.discover")?;
    let next = plans(slots, &validated.media_base, &before.learned)
        .ok()
        .and_then(|plans| plans.after(&refusals).cloned());
    let Some(choice) = next else { return Err(given_up(step, &refusals, what)) };
    let attempt = found.attempt + 1;
    let for_use = Use::of(choice.plan, attempt);
    let (mut spliced, mut grants) = (None, Vec::new());
    if choice.plan == SlotPlan::Single {
        spliced = Some(splice(step, site, context, for_use).await.map_err(|report| also(report, &refusal))?);
    } else {
        grants = separate(site, context, &validated, for_use)?;
    }
    let hash = |artifact| {
        let of = |grant: &&Grant| grant.artifact == artifact;
        grants.iter().find(of).map(|grant: &Grant| grant.token_hash.clone())
    };
    let boot_grant =
        spliced.as_ref().map(|spliced| spliced.grant.token_hash.clone()).or(hash(Artifact::Boot));
    let replanned = Replanned {
        attempt,
        refusal: refusal.clone(),
        choice: choice.clone(),
        boot_grant: boot_grant.unwrap_or_default(),
        task_grant: hash(Artifact::Task),
        spliced: spliced.as_ref().map(|spliced| spliced.identity.clone()),
    };
    let message = format!(
        "slot {} refused the {what} ({}); going on with plan {}, slots {}",
        refusal.slot_id,
        refusal.words,
        choice.plan.as_str(),
        choice.ids.join(" and "),
    );
    let mounted = Mounted {
        slot: refusal.slot.clone(),
        sent_at: context.now(),
        refused: true,
        replanned: Some(Box::new(replanned)),
    };
    let mut report = StepReport::done()
        .leaving(json!(mounted))
        .event(NewEvent::warn("redfish.slot-fallback", message).with(
        json!({ "plan": choice.plan, "slots": choice.ids, "attempt": attempt, "refused": refusal.slot_id }),
    ));
    report.effects.extend(grants.into_iter().map(|grant| Effect::GrantIssued(Box::new(grant))));
    if let Some(spliced) = spliced {
        report = tell(report, spliced);
    }
    report.effects.extend(remember(step, host, found, &refusal, choice.plan));
    report.plan = AGAIN
        .iter()
        .map(|name| StepInstance {
            name: (*name).to_owned(),
            key: attempt.to_string(),
            queue: QUEUE.to_owned(),
        })
        .collect();
    Ok(host.report(report))
}

/// Fresh grants of both images.
fn separate(
    site: &Site,
    context: &StepContext,
    validated: &Validated,
    for_use: Use,
) -> Result<Vec<Grant>, StepReport> {
    let TaskImage { frozen, body, .. } = task_of(site, context, validated)?;
    let bytes = frozen.to_bytes().map_err(|why| {
        let summary = format!("the task image could not be kept: {}", error_chain(&why));
        StepReport::fail(failure(class::MEDIA, "iso.build", summary, "create the job again"))
    })?;
    let digest = frozen.digest().to_hex();
    site.grants.keep_recent(&frozen, body);
    Ok(vec![
        grant(site, context, Artifact::Boot, &validated.boot_digest, None, validated.boot_len, for_use)?,
        grant(site, context, Artifact::Task, &digest, Some(&bytes), frozen.len(), for_use)?,
    ])
}

/// What the next job should know. A refusal of the boot image may be due to the way to our media and says nothing of a slot;
/// one of the task image, while its sister was taken, does.
fn remember(
    step: &str,
    host: &Host,
    found: &Discovered,
    refusal: &Refusal,
    plan: SlotPlan,
) -> Option<Effect> {
    if step != "redfish.mount.task" {
        return None;
    }
    let mut learned = found.learned.clone();
    learned.note(refusal);
    let mut observed = host.server.observed.clone().filter(Value::is_object).unwrap_or_else(|| json!({}));
    observed["learned"] = json!(learned);
    observed["slot_plan"] = json!(plan);
    Some(Effect::ServerObserved { serial: host.server.serial.clone(), observed })
}

fn given_up(step: &str, refusals: &[Refusal], what: &str) -> StepReport {
    let each: Vec<String> =
        refusals.iter().map(|refusal| format!("{}: {}", refusal.slot_id, refusal.words)).collect();
    let failure = failure(
        class::BMC_REFUSED,
        step,
        format!("the BMC refused the {what} in every slot it could go into ({})", each.join("; ")),
        "see whether the BMC can reach the media address: `shoal bmc doctor` tries it with a tiny image",
    );
    StepReport::fail(engine::model::Failure { evidence: Some(json!({ "refusals": refusals })), ..failure })
}

/// A splice that is not possible ends a job that came here because a slot refused: say so too.
fn also(mut report: StepReport, refusal: &Refusal) -> StepReport {
    if let engine::Verdict::Fail(failure) = &mut report.verdict {
        failure.summary =
            format!("slot {} refused ({}), and {}", refusal.slot_id, refusal.words, failure.summary);
    }
    report
}
