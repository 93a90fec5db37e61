//! The slot plans of a job that were refused: what refused which image, and the one budget of the way through all plans.
//!
//! ```text
//!   discovery: plan A ── refused by CD2 ──> plan B ── refused by CD1 ──> no plan left, or no time left: the job fails
//!              `──────────────────── budget of redfish.mount.maintenance ────────────────────'
//! ```
//!
//! Invariants: pure; every refusal names plan, slot, image and the message of the BMC; texts are bounded.

use std::time::Duration;

use bmc::slots::{RefusedPlan, SlotChoice, SlotRefusal};
use model::{Snapshot, StepName, StepRecord, Time, cut_middle};

use super::names;
use super::outputs::{Discovered, SlotFallback};

/// The steps that run again for another slot plan.
pub(super) const REPEATED_STEPS: [&StepName; 3] = [names::EJECT, names::MOUNT_MAINTENANCE, names::MOUNT_TASK];
/// The message of a BMC is cut to this number of characters, because a summary may list several.
const MAX_WORDS: usize = 200;

/// A refused slot plan, with the facts for operators.
#[derive(Clone, Debug)]
pub(super) struct RefusedAttempt {
    /// The plan and the refusal.
    pub(super) plan: RefusedPlan,
    /// The name of the refused image.
    pub(super) image: String,
    /// The number of bytes the BMC had read of the image; `None` when unknown.
    pub(super) bytes_read: Option<u64>,
}

impl RefusedAttempt {
    /// Returns plan, slot, image, the BMC's message, and whether the BMC had read the image.
    pub(super) fn describe(&self) -> String {
        let SlotRefusal { slot_id, words, .. } = &self.plan.refusal;
        let words = cut_middle(words, MAX_WORDS);
        let read = match self.bytes_read {
            None => String::new(),
            Some(0) => "; the BMC had read nothing of the image".to_owned(),
            Some(bytes) => format!("; the BMC had read {bytes} bytes of the image"),
        };
        let plan = self.plan.choice.label();
        format!("plan {plan}: slot {slot_id} refused the {} ({words}{read})", self.image)
    }
}

/// Returns the refused plans as one text.
pub(super) fn describe_all(refused: &[RefusedAttempt]) -> String {
    refused.iter().map(RefusedAttempt::describe).collect::<Vec<_>>().join("; ")
}

/// Returns the slot plan that discovery chose. `found` is its unchanged output.
pub(super) fn first_choice(found: &Discovered) -> SlotChoice {
    let second = found.task_slots.first().cloned();
    let slots = std::iter::once(&found.boot_slot).chain(&second);
    let id = |uri: &String| found.discovery.slots.iter().find(|slot| slot.uri == *uri);
    SlotChoice {
        plan: found.plan,
        ids: slots.filter_map(id).map(|slot| slot.id.clone()).collect(),
        boot: found.boot_slot.clone(),
        second,
        reason: found.reason.clone(),
    }
}

/// Returns the refused plans of a job in order, and the current plan. `found` is the unchanged output of discovery.
pub(super) fn refused_attempts(
    found: &Discovered,
    fallbacks: &[SlotFallback],
) -> (Vec<RefusedAttempt>, SlotChoice) {
    let mut current = first_choice(found);
    let mut refused = Vec::new();
    for fallback in fallbacks {
        let choice = std::mem::replace(&mut current, fallback.choice.clone());
        refused.push(RefusedAttempt {
            plan: RefusedPlan { choice, refusal: fallback.refusal.clone() },
            image: fallback.image.clone(),
            bytes_read: fallback.bytes_read,
        });
    }
    (refused, current)
}

/// Returns the time that the ended instances of these steps took.
pub(super) fn time_of(snapshot: &Snapshot, steps: &[&StepName]) -> Duration {
    let of_step = |record: &&StepRecord| steps.contains(&&record.name);
    let took = |record: &StepRecord| Some(record.ended_at?.since(record.started_at));
    snapshot.records().filter(of_step).filter_map(took).sum()
}

/// Returns the time that the way through the slot plans has taken, the current step included.
pub(super) fn time_used(snapshot: &Snapshot, current: &StepRecord, now: Time) -> Duration {
    time_of(snapshot, &REPEATED_STEPS) + now.since(current.started_at)
}
