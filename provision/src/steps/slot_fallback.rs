//! Slot fallback: the current slot plan of a job, and the next one after a slot refused an image.
//!
//! ```text
//!  discover ──> plan 1 ──> mount.maintenance ──> mount.task ──> boot-override …
//!                               | refused             | refused
//!                               v                     v
//!                      Done, with output SlotFallback {attempt 2, choice, new grants} and three more instances, key "2":
//!                      eject#2 ──> mount.maintenance#2 ──> mount.task#2 ──> (the old mount.task is skipped) ──> boot-override …
//! ```
//!
//! Invariants: the newest `SlotFallback` is the current plan; an instance of another plan does nothing; every plan has separate
//! URLs, so no BMC gets other bytes under a known URL; a plan that was refused is not tried again in this job, so the way through
//! all plans ends; it also ends when its budget is used up; a refusal that only the slot can explain is stored for later jobs.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::outputs::{Discovered, Mounted, SlotFallback, Validated};
use super::super::services::Services;
use super::super::slot_refusals::{
    REPEATED_STEPS, RefusedAttempt, describe_all, refused_attempts, time_used,
};
use super::class;
use super::iso_build::{BuiltTaskImage, GrantUse, grant, task_of};
use super::names;
use bmc::slots::{Inserted, RefusedPlan, SlotPlan, SlotRefusal, plans};
use bmc::{ConnectedBmc, QUEUE, failure, output_of};
use engine::{StepContext, StepEnd, StepError, StepReport};
use media::{self, ImageDigest, SpliceInputs};
use model::{Artifact, Effect, Grant, NewEvent, Snapshot, StepInstance, StepName, StepSummary, error_chain};

/// Returns all slot fallbacks of the job in order.
pub(in super::super) fn slot_fallbacks(snapshot: &Snapshot) -> Vec<SlotFallback> {
    let records = snapshot.steps.iter().filter(|record| mounts(&record.name));
    in_order(records.filter_map(|record| serde_json::from_value(record.output.clone()).ok()))
}

/// Returns whether this step inserts media.
fn mounts(step: &StepName) -> bool {
    REPEATED_STEPS[1..].contains(&step)
}

fn in_order(mounted: impl Iterator<Item = Mounted>) -> Vec<SlotFallback> {
    let mut all: Vec<SlotFallback> =
        mounted.filter_map(|mounted| mounted.slot_fallback.map(|slot_fallback| *slot_fallback)).collect();
    all.sort_by_key(|slot_fallback| slot_fallback.attempt);
    all
}

/// Returns the output of discovery with the current slot plan.
pub(super) fn current(snapshot: &Snapshot, found: Discovered) -> Discovered {
    with_slot_fallbacks(slot_fallbacks(snapshot), found)
}

/// Returns the slot plan of a job as JSON from its step outputs: plan, slots, reason and earlier refusals.
pub fn slot_plan(steps: &[StepSummary]) -> Option<Value> {
    let discovered = steps.iter().rfind(|step| step.name == *names::DISCOVER)?;
    let found: Discovered = discovered.output.read().ok()?;
    let slot_fallbacks =
        in_order(steps.iter().filter(|step| mounts(&step.name)).filter_map(|step| step.output.read().ok()));
    let (refused, _) = refused_attempts(&found, &slot_fallbacks);
    let refused: Vec<Value> = refused.iter().map(shown).collect();
    let found = with_slot_fallbacks(slot_fallbacks, found);
    let id = |uri: &String| found.discovery.slots.iter().find(|slot| slot.uri == *uri).map(|slot| &slot.id);
    let slots: Vec<&String> =
        std::iter::once(&found.boot_slot).chain(&found.task_slots).filter_map(id).collect();
    Some(json!({
        "plan": found.plan, "slots": slots, "reason": found.reason, "attempt": found.attempt, "refused": refused,
    }))
}

/// Returns a refused plan as JSON.
fn shown(refused: &RefusedAttempt) -> Value {
    let RefusedPlan { choice, refusal } = &refused.plan;
    json!({
        "plan": choice.plan, "slots": choice.ids, "slot": refusal.slot_id, "words": refusal.words,
        "image": refused.image, "bytes_read": refused.bytes_read,
    })
}

fn with_slot_fallbacks(slot_fallbacks: Vec<SlotFallback>, mut found: Discovered) -> Discovered {
    for slot_fallback in slot_fallbacks {
        found.attempt = slot_fallback.attempt;
        found.plan = slot_fallback.choice.plan;
        found.reason = slot_fallback.choice.reason;
        found.boot_slot = slot_fallback.choice.boot;
        found.task_slots = slot_fallback.choice.second.into_iter().collect();
        found.spliced = slot_fallback.spliced.map(|identity| super::super::outputs::SplicedBootGrant {
            identity,
            grant: slot_fallback.boot_grant.clone(),
        });
        found.grants.push(slot_fallback.boot_grant);
        found.grants.extend(slot_fallback.task_grant);
        found.learned.note(&slot_fallback.refusal);
    }
    found
}

/// Returns whether a step instance belongs to an earlier slot plan.
pub(super) fn is_outdated(context: &StepContext, found: &Discovered) -> bool {
    let key = if found.attempt > 1 { found.attempt.to_string() } else { String::new() };
    context.record.key != key
}

/// Returns every use for which images were granted, to recognise the media of this job.
pub(super) fn uses(found: &Discovered, snapshot: &Snapshot) -> Vec<GrantUse> {
    let later = slot_fallbacks(snapshot)
        .into_iter()
        .map(|slot_fallback| (slot_fallback.choice.plan, slot_fallback.attempt));
    std::iter::once((found.plan, 1)).chain(later).map(|(plan, attempt)| GrantUse::of(plan, attempt)).collect()
}

/// A planned boot image with the task in it, and its grant.
pub(super) struct Spliced {
    pub(super) identity: String,
    pub(super) grant: Grant,
    pub(super) notes: Vec<String>,
}

/// Plans the spliced boot image of the single-slot plan and issues its grant.
pub(super) async fn splice(
    step: &StepName,
    services: &Arc<Services>,
    context: &StepContext,
    for_use: GrantUse,
) -> Result<Spliced, StepError> {
    let validated: Validated = output_of(step, context, names::VALIDATE)?;
    let unusable = |why: String| {
        StepError::fail(failure(
            class::UNSUPPORTED,
            step,
            format!(
                "this BMC accepts one image only, and the task cannot be spliced into the maintenance ISO: {why}"
            ),
            "use a maintenance ISO without a UDF file system (`shoal iso splice` shows the problem of this one), or a BMC with two slots",
        ))
    };
    let digest = ImageDigest::parse(&validated.boot_digest)
        .ok_or_else(|| unusable("its digest is invalid".to_owned()))?;
    let BuiltTaskImage { inputs: task, os_image, .. } = task_of(services, context, &validated).await?;
    let maintenance = services.library.image(digest).await.map_err(|why| {
        StepError::fail(failure(class::MEDIA, step, error_chain(&why).to_string(), "import it again"))
    })?;
    let inputs = SpliceInputs::new(digest, task);
    let bytes = inputs.to_bytes().map_err(|why| unusable(error_chain(&why).to_string()))?;
    let planned = media::offload(move || inputs.plan(&maintenance.body, os_image.as_ref())).await;
    let image = planned
        .map_err(|_panic| unusable("the planning panicked".to_owned()))?
        .map_err(|why| unusable(error_chain(&why).to_string()))?;
    let identity = image.identity.to_hex();
    let grant = grant(services, context, Artifact::Boot, &identity, Some(&bytes), image.len, for_use)?;
    Ok(Spliced { identity, grant, notes: image.notes })
}

/// Adds the event and the grant of a splice to a report.
pub(super) fn with_splice(report: StepReport, spliced: Spliced) -> StepReport {
    let size = spliced.grant.size;
    let message = format!("boot image of {size} bytes planned: the maintenance image with the task in it");
    report
        .event(NewEvent::info("iso.spliced", message).with(json!({ "notes": spliced.notes })))
        .effect(Effect::GrantIssued(Box::new(spliced.grant)))
}

/// A refusal of an image, as a mount step met it.
pub(super) struct Refused {
    /// The refusal of the slot.
    pub(super) refusal: SlotRefusal,
    /// The name of the image.
    pub(super) image: &'static str,
    /// The number of bytes the BMC had read of the image; `None` when unknown.
    pub(super) bytes_read: Option<u64>,
}

/// Builds the report of a mount step whose slot refused: the next slot plan, or a failure when none is left or the time of all
/// plans is used up.
pub(super) async fn next_plan(
    step: &StepName,
    services: &Arc<Services>,
    context: &StepContext,
    connected: &ConnectedBmc,
    found: &Discovered,
    refused: Refused,
) -> Result<StepReport, StepError> {
    let validated: Validated = output_of(step, context, names::VALIDATE)?;
    let Refused { refusal, image, bytes_read } = refused;
    let slots = &found.discovery.slots;
    // The plans are listed as at discovery; later refusals of this job are applied to that list.
    let before: Discovered = output_of(step, context, names::DISCOVER)?;
    let (mut all, current) = refused_attempts(&before, &slot_fallbacks(&context.snapshot));
    let plan = RefusedPlan { choice: current, refusal: refusal.clone() };
    all.push(RefusedAttempt { plan, image: image.to_owned(), bytes_read });
    let refused_plans: Vec<RefusedPlan> = all.iter().map(|refused| refused.plan.clone()).collect();
    let next = plans(slots, validated.base_for(Some(&before)), &before.learned)
        .ok()
        .and_then(|plans| plans.after(&refused_plans).cloned());
    // After a definite refusal the image cannot appear, so cleanup does not wait for it.
    let inserted = Inserted {
        slot: refusal.slot.clone(),
        sent_at: context.now(),
        refused: !refusal.may_appear,
        unclear_before: false,
        said: None,
    };
    let given_up = |why: &str| {
        let mounted = Mounted { inserted: inserted.clone(), slot_fallback: None };
        exhausted(step, &all, why).with_output(json!(mounted))
    };
    let Some(choice) = next else {
        return Err(given_up("the BMC refused every possible slot plan"));
    };
    let budget = budget(services, context);
    if time_used(&context.snapshot, &context.record, context.now()) >= budget {
        let why = format!("the {} s for all slot plans are used up, and the BMC refused", budget.as_secs());
        return Err(given_up(&why));
    }
    let attempt = found.attempt + 1;
    let for_use = GrantUse::of(choice.plan, attempt);
    let (mut spliced, mut grants) = (None, Vec::new());
    if choice.plan == SlotPlan::Single {
        spliced = Some(
            splice(step, services, context, for_use).await.map_err(|error| with_refusal(error, &refusal))?,
        );
    } else {
        grants = issue_grants(services, context, &validated, for_use).await?;
    }
    let hash = |artifact| {
        let of = |grant: &&Grant| grant.artifact == artifact;
        grants.iter().find(of).map(|grant: &Grant| grant.token_hash.clone())
    };
    let boot_grant =
        spliced.as_ref().map(|spliced| spliced.grant.token_hash.clone()).or(hash(Artifact::Boot));
    let slot_fallback = SlotFallback {
        attempt,
        refusal: refusal.clone(),
        image: image.to_owned(),
        bytes_read,
        choice: choice.clone(),
        boot_grant: boot_grant.unwrap_or_default(),
        task_grant: hash(Artifact::Task),
        spliced: spliced.as_ref().map(|spliced| spliced.identity.clone()),
    };
    let message = match all.last() {
        Some(last) => format!("{}; the job continues with plan {}", last.describe(), choice.label()),
        None => format!("the job continues with plan {}", choice.label()),
    };
    let mounted = Mounted { inserted, slot_fallback: Some(Box::new(slot_fallback)) };
    let mut report = StepReport::done()
        .with_output(json!(mounted))
        .event(NewEvent::warn("redfish.slot-fallback", message).with(
        json!({ "plan": choice.plan, "slots": choice.ids, "attempt": attempt, "refused": refusal.slot_id }),
    ));
    report.effects.extend(grants.into_iter().map(|grant| Effect::GrantIssued(Box::new(grant))));
    if let Some(spliced) = spliced {
        report = with_splice(report, spliced);
    }
    report.effects.extend(learn(connected, found, &refusal, choice.plan));
    report.plan = REPEATED_STEPS
        .iter()
        .map(|name| StepInstance { name: (*name).clone(), key: attempt.to_string(), queue: QUEUE.to_owned() })
        .collect();
    Ok(connected.report(report))
}

/// Issues new grants for both images.
async fn issue_grants(
    services: &Services,
    context: &StepContext,
    validated: &Validated,
    for_use: GrantUse,
) -> Result<Vec<Grant>, StepError> {
    let BuiltTaskImage { inputs, body, .. } = task_of(services, context, validated).await?;
    let bytes = inputs.to_bytes().map_err(|why| {
        let summary = format!("the task image could not be stored: {}", error_chain(&why));
        StepError::fail(failure(class::MEDIA, names::ISO_BUILD, summary, "create the job again"))
    })?;
    let digest = inputs.digest().to_hex();
    if let Some(body) = body {
        services.grants.keep_recent(&inputs, body);
    }
    Ok(vec![
        grant(services, context, Artifact::Boot, &validated.boot_digest, None, validated.boot_len, for_use)?,
        grant(services, context, Artifact::Task, &digest, Some(&bytes), inputs.len(), for_use)?,
    ])
}

/// Returns the effect that stores what a refusal shows of the slot for later jobs, if it shows anything.
fn learn(
    connected: &ConnectedBmc,
    found: &Discovered,
    refusal: &SlotRefusal,
    plan: SlotPlan,
) -> Option<Effect> {
    let mut learned = found.learned.clone();
    learned.note(refusal);
    if learned == found.learned {
        return None;
    }
    let mut observed =
        connected.server.observed.clone().filter(Value::is_object).unwrap_or_else(|| json!({}));
    observed["learned"] = json!(learned);
    observed["slot_plan"] = json!(plan);
    Some(Effect::ServerObserved { serial: connected.server.serial.clone(), observed })
}

/// Returns the time for the way through all slot plans: that of the step that inserts the first image, as it was at discovery.
fn budget(services: &Services, context: &StepContext) -> Duration {
    services
        .time_limit(names::MOUNT_MAINTENANCE, &context.snapshot)
        .unwrap_or_else(|| services.bmc.changing_policy().budget)
}

/// Whether a BMC says that it does not read by the protocol of a URL.
fn names_protocol(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    // The URL itself, which many quote, says nothing.
    let words: Vec<&str> = words.split_whitespace().filter(|word| !word.contains("://")).collect();
    let words = words.join(" ");
    let refuses = ["not support", "unsupported", "mismatch"].iter().any(|refusal| words.contains(refusal));
    refuses && ["protocol", "http"].iter().any(|protocol| words.contains(protocol))
}

fn exhausted(step: &StepName, refused: &[RefusedAttempt], why: &str) -> StepError {
    let busy = refused.iter().all(|refused| refused.plan.refusal.busy);
    let unread = refused.iter().all(|refused| refused.bytes_read == Some(0));
    let by_protocol = refused.iter().all(|refused| names_protocol(&refused.plan.refusal.words));
    let next_action = match (busy, unread) {
        (false, _) if by_protocol => {
            "the BMC does not read media by the protocol of their address: serve them by https (CONTROLLER_HTTPS_ADDR or MEDIA_HTTPS_ADDR) or by http, as its firmware wants it, and set media_base_url of this server to that address"
        }
        (true, _) => {
            "the BMC was busy at every insert: wait for the end of an update that it carries out, and end another session with virtual media; restart the BMC (`shoal server reset-bmc SERIAL`) only if its web interface shows no update. Then create the job again"
        }
        (false, true) => {
            "the BMC requested no image: check the network from the BMC to the media address (MEDIA_BASE_URL); `shoal bmc doctor` tests it with a small image"
        }
        (false, false) => {
            "check whether the BMC can reach the media address: `shoal bmc doctor` tests it with a small image"
        }
    };
    let summary = format!("{why}: {}", describe_all(refused));
    let refusals: Vec<&SlotRefusal> = refused.iter().map(|refused| &refused.plan.refusal).collect();
    let failure = failure(class::BMC_REFUSED, step, summary, next_action);
    StepError::fail(model::Failure { detail: Some(json!({ "refusals": refusals })), ..failure })
}

/// Adds the refusal that led to a splice to the failure of the splice.
fn with_refusal(mut error: StepError, refusal: &SlotRefusal) -> StepError {
    if let StepEnd::Fail(failure) = &mut *error.end {
        failure.summary =
            format!("slot {} refused ({}), and {}", refusal.slot_id, refusal.words, failure.summary);
    }
    error
}
