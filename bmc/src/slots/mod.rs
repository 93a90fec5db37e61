//! Media slots: the slot planner, and the actions [`insert`] and [`eject`].
//!
//! The planner is pure. It turns the slots of a BMC, and what was learned about them, into slot plans for a boot image and a
//! second image that the booted system reads, the best plan first.
//!
//! ```text
//!  slots (types, tree)      -+   drop slots that take no media, refused before, or do not read the scheme of our URL
//!  scheme of our media URL   |   count a slot that appears under manager and system once
//!  what earlier jobs learned +->  dual    boot in the lowest CD, second in another CD     (not with one image at a time)
//!                            |    cd+usb  boot in the lowest CD, second in a USB slot      (not with one image at a time)
//!                            +    single  one image with the content of both; one plan per CD
//! ```
//!
//! [`plans`] lists the plans, [`SlotPlans::after`] selects the next one after refusals. Invariants: a refused plan is never
//! selected again, so the way through all plans ends; the boot image is always in
//! a slot the host sees as a CD, and in a lower slot than a second image in a CD (firmware boots the first CD it finds); no slot
//! is used twice in a plan; the list is bounded; equal facts give equal lists. Slots, schemes and ports that a BMC's profile
//! forbids do not get here: the client closes such slots, and its check of the BMC refuses such URLs.

mod eject;
mod insert;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use redfish::{Bmc, Discovery, FirmwareVersion, Slot};
use serde::{Deserialize, Serialize};

pub use eject::eject;
pub use insert::{InsertError, Inserted, Insertion, insert};

/// The way both images reach a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotPlan {
    /// Two CD slots, with the boot image in the lower one.
    #[serde(rename = "dual")]
    Dual,
    /// A CD slot for the boot image, a USB slot for the second image.
    #[serde(rename = "cd+usb")]
    CdUsb,
    /// One CD slot: one image with the content of both.
    #[serde(rename = "single")]
    Single,
}

impl SlotPlan {
    /// Returns the plan's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dual => "dual",
            Self::CdUsb => "cd+usb",
            Self::Single => "single",
        }
    }
}

/// Maximum number of slots that are considered; no known BMC has more usable ones.
const SLOTS_MAX: usize = 16;
/// Maximum number of plans: each failed plan takes minutes.
const PLANS_MAX: usize = 8;
/// Maximum number of learned refusals per BMC.
const LEARNED_MAX: usize = 16;

/// The input of the planner.
#[derive(Clone, Debug)]
struct Capabilities<'a> {
    /// The slots, in the BMC's order.
    slots: &'a [Slot],
    /// The URL scheme of our media for this BMC.
    scheme: &'a str,
    /// The behaviour of the slots that earlier jobs learned.
    learned: &'a LearnedSlots,
}

/// The behaviour of a BMC's slots that jobs learned. Valid for one firmware version and one revision of the server's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedSlots {
    /// The firmware version from which the behaviour was learned.
    #[serde(default)]
    pub firmware: Option<FirmwareVersion>,
    /// The revision of the server's record. After a change of the record every slot is tried again.
    #[serde(default)]
    pub revision: i64,
    /// Slots (by id) that refused an image while another slot accepted one, with the BMC's message.
    #[serde(default)]
    pub refused: BTreeMap<String, String>,
    /// Whether the BMC reported that it holds one image at a time.
    #[serde(default)]
    pub one_image: bool,
}

impl LearnedSlots {
    /// Returns what was stored, if it is valid for this firmware and revision; otherwise an empty value.
    pub fn stored(
        observed: Option<&serde_json::Value>,
        firmware: Option<&FirmwareVersion>,
        revision: i64,
    ) -> Self {
        let fresh = || Self { firmware: firmware.cloned(), revision, ..Self::default() };
        observed
            .and_then(|observed| serde_json::from_value::<Self>(observed.get("learned")?.clone()).ok())
            .filter(|learned| learned.firmware.as_ref() == firmware && learned.revision == revision)
            .unwrap_or_else(fresh)
    }

    /// Returns whether nothing was learned.
    pub fn is_empty(&self) -> bool {
        self.refused.is_empty() && !self.one_image
    }

    /// Records what a refusal shows of the slot. One that the network, the image or a busy BMC can explain shows nothing.
    pub fn note(&mut self, refusal: &SlotRefusal) {
        self.one_image |= refusal.one_image;
        if refusal.lasting && !refusal.one_image && self.refused.len() < LEARNED_MAX {
            self.refused.insert(refusal.slot_id.clone(), refusal.words.clone());
        }
    }
}

/// A slot's refusal of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRefusal {
    /// The URI of the slot.
    pub slot: String,
    /// The id of the slot.
    pub slot_id: String,
    /// The BMC's message.
    pub words: String,
    /// Whether the BMC reported, while another of its slots held an image, that it holds one image at a time.
    pub one_image: bool,
    /// Whether only the slot can explain the refusal: the BMC had accepted the other image from the same address.
    #[serde(default)]
    pub lasting: bool,
    /// Whether the image may appear in the slot later: the BMC accepted it now or before, or failed while it inserted it.
    #[serde(default)]
    pub may_appear: bool,
    /// Whether the BMC was busy until the patience with it had ended, so that the refusal says nothing about slot, image or network.
    #[serde(default)]
    pub busy: bool,
}

/// A slot plan that a slot refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedPlan {
    /// The plan.
    pub choice: SlotChoice,
    /// The refusal of one slot of the plan.
    pub refusal: SlotRefusal,
}

/// A slot plan with its slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotChoice {
    /// The slot plan.
    pub plan: SlotPlan,
    /// The URI of the slot the machine boots from.
    pub boot: String,
    /// The URI of the slot of the second image; none in the single-slot plan.
    pub second: Option<String>,
    /// The ids of the slots, for display.
    pub ids: Vec<String>,
    /// The reason for the plan, as a clause for display.
    pub reason: String,
}

impl SlotChoice {
    /// Returns whether both plans use the same slots in the same way.
    fn has_slots_of(&self, other: &Self) -> bool {
        (self.plan, &self.boot, &self.second) == (other.plan, &other.boot, &other.second)
    }

    /// Returns the plan and its slots for display: `dual (CD1 and CD2)`.
    pub fn label(&self) -> String {
        format!("{} ({})", self.plan.as_str(), self.ids.join(" and "))
    }
}

/// All possible plans, the best first; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotPlans {
    list: Vec<SlotChoice>,
}

impl SlotPlans {
    /// Returns the best plan.
    pub fn best(&self) -> &SlotChoice {
        &self.list[0]
    }

    /// Returns all plans.
    pub fn all(&self) -> &[SlotChoice] {
        &self.list
    }

    /// Returns the best plan that was not refused, uses no slot that refused, and needs one image only if the BMC reported that
    /// limit. A slot that holds no second image may still hold the only one.
    pub fn after(&self, refused: &[RefusedPlan]) -> Option<&SlotChoice> {
        let one_image = refused.iter().any(|plan| plan.refusal.one_image);
        self.list.iter().find(|choice| {
            let uses = |slot: &String| choice.boot == *slot || choice.second.as_ref() == Some(slot);
            let tried = refused.iter().any(|plan| plan.choice.has_slots_of(choice));
            let slot_refused = refused.iter().any(|plan| !plan.refusal.one_image && uses(&plan.refusal.slot));
            let two = one_image && choice.second.is_some();
            !(tried || slot_refused || two)
        })
    }
}

/// The reason why no plan is possible, with the next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPlan {
    /// The reason.
    pub why: String,
    /// The next action.
    pub next: String,
}

/// A usable slot.
struct Usable<'a> {
    slot: &'a Slot,
    cd: bool,
}

/// Returns the base URL under which a BMC reads media: the first, unless this BMC reads the one by HTTPS only.
pub fn readable_base<'a>(
    bmc: &Bmc,
    discovery: &Discovery,
    learned: &LearnedSlots,
    first: &'a str,
    secure: Option<&'a str>,
) -> &'a str {
    let reads =
        |base: &str| bmc.check(discovery, base).is_ok() && plans(&discovery.slots, base, learned).is_ok();
    secure.filter(|secure| !reads(first) && reads(secure)).unwrap_or(first)
}

/// Lists the slot plans for media served under `media_base`. The client has checked that the BMC accepts such URLs.
///
/// # Errors
/// Returns the reason when no slot can take a boot image.
pub fn plans(slots: &[Slot], media_base: &str, learned: &LearnedSlots) -> Result<SlotPlans, NoPlan> {
    let scheme = media_base.split_once("://").map_or("http", |(scheme, _)| scheme);
    plan(&Capabilities { slots, scheme, learned })
}

/// Lists every possible slot plan, the best first.
fn plan(facts: &Capabilities<'_>) -> Result<SlotPlans, NoPlan> {
    let (usable, dropped) = usable_slots(facts);
    let cds: Vec<&Slot> = usable.iter().filter(|usable| usable.cd).map(|usable| usable.slot).collect();
    let usbs: Vec<&Slot> = usable.iter().filter(|usable| !usable.cd).map(|usable| usable.slot).collect();
    let Some((boot, others)) = cds.split_first() else { return Err(no_slot(facts, &dropped)) };
    let mut list = Vec::new();
    if !facts.learned.one_image {
        list.extend(others.iter().map(|second| {
            let reason = format!("{} CD slots take media", cds.len());
            choice(SlotPlan::Dual, boot, Some(second), reason)
        }));
        list.extend(usbs.iter().map(|second| {
            let reason = match others.is_empty() {
                true => "one CD slot and a USB slot take media",
                false => "a USB slot can take the second image",
            };
            choice(SlotPlan::CdUsb, boot, Some(second), reason.to_owned())
        }));
    }
    let reason = single_reason(facts, others.is_empty() && usbs.is_empty(), &dropped);
    list.extend(cds.iter().map(|slot| choice(SlotPlan::Single, slot, None, reason.clone())));
    list.truncate(PLANS_MAX);
    Ok(SlotPlans { list })
}

/// Returns the usable slots, lowest first, and the dropped slots with the reason.
fn usable_slots<'a>(facts: &Capabilities<'a>) -> (Vec<Usable<'a>>, Vec<String>) {
    let mut usable: Vec<Usable<'a>> = Vec::new();
    let mut dropped = Vec::new();
    for slot in facts.slots.iter().take(SLOTS_MAX) {
        if usable.iter().any(|other| same_slot(other.slot, slot)) {
            continue;
        }
        match unusable(facts, slot) {
            Some(why) => dropped.push(format!("{} {why}", slot.id)),
            None => usable.push(Usable { slot, cd: slot.is_cd() }),
        }
    }
    usable.sort_by(|a, b| natural(&a.slot.id, &b.slot.id));
    (usable, dropped)
}

/// Returns whether two resources are one slot that appears under the manager and under the system.
fn same_slot(a: &Slot, b: &Slot) -> bool {
    let tree = |slot: &Slot| slot.uri.rsplit_once("/VirtualMedia").map(|(tree, _)| tree.to_owned());
    a.uri == b.uri || (a.id == b.id && tree(a) != tree(b))
}

fn unusable(facts: &Capabilities<'_>, slot: &Slot) -> Option<String> {
    if !slot.takes_media() {
        return Some("offers no way to insert an image".to_owned());
    }
    if !slot.is_cd() && !slot.is_usb() {
        return Some("is neither a CD nor a USB slot".to_owned());
    }
    let scheme = facts.scheme.to_ascii_uppercase();
    if !slot.transfer_protocols.is_empty() && !slot.transfer_protocols.contains(&scheme) {
        return Some(format!("reads {} and not {scheme}", slot.transfer_protocols.join(", ")));
    }
    facts.learned.refused.get(&slot.id).map(|words| format!("refused an image before ({words})"))
}

fn choice(plan: SlotPlan, boot: &Slot, second: Option<&&Slot>, reason: String) -> SlotChoice {
    let ids = std::iter::once(&boot.id).chain(second.map(|slot| &slot.id)).cloned().collect();
    SlotChoice { plan, boot: boot.uri.clone(), second: second.map(|slot| slot.uri.clone()), ids, reason }
}

fn single_reason(facts: &Capabilities<'_>, alone: bool, dropped: &[String]) -> String {
    if facts.learned.one_image {
        return "this BMC held one image at a time in an earlier job".to_owned();
    }
    match (alone, dropped) {
        (true, []) => "there is one slot".to_owned(),
        (true, dropped) => format!("only one slot can be used: {}", dropped.join("; ")),
        (false, _) => "it needs one slot only".to_owned(),
    }
}

fn no_slot(facts: &Capabilities<'_>, dropped: &[String]) -> NoPlan {
    let count = facts.slots.len();
    if count == 0 {
        return NoPlan {
            why: "this BMC shows no virtual media slot".to_owned(),
            next: "enable virtual media in the BMC; check for a licence or a firmware update".to_owned(),
        };
    }
    let details = if dropped.is_empty() { String::new() } else { format!(" ({})", dropped.join("; ")) };
    let scheme_only = dropped.len() == count && dropped.iter().all(|why| why.contains(" and not "));
    NoPlan {
        why: format!("none of its {count} virtual media slots takes a CD image{details}"),
        next: if scheme_only {
            "set the server's media_base_url to a URL with a scheme that its slots read".to_owned()
        } else {
            "check the BMC for a licence or a firmware update that adds a CD slot".to_owned()
        },
    }
}

/// Compares ids with numbers by value, so that `CD2` comes before `CD10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (x, y) = (left.bytes().next(), right.bytes().next());
        match (x, y) {
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let number = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
                let (n, m) = (number(left), number(right));
                let (first, second) = (left[..n].trim_start_matches('0'), right[..m].trim_start_matches('0'));
                let order = first.len().cmp(&second.len()).then_with(|| first.cmp(second));
                if order != Ordering::Equal {
                    return order;
                }
                (left, right) = (&left[n..], &right[m..]);
            }
            (Some(x), Some(y)) if x == y => {
                let step = left.chars().next().map_or(1, char::len_utf8);
                let same = left.get(..step) == right.get(..step);
                if !same {
                    return left.cmp(right);
                }
                (left, right) = (&left[step..], &right[step..]);
            }
            _ => return left.cmp(right).then_with(|| a.cmp(b)),
        }
    }
}
