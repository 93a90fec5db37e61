//! The slot planner: from what a BMC shows and what is known of it to the ways in which a job's two images can get to the
//! machine, the best first. Pure.
//!
//! ```text
//!  slots (kinds, tree)      -+   drop what takes no media, refused before, or does not read the scheme of our URL
//!  scheme of our media URL   |   count a slot that is shown under two trees once
//!  what earlier jobs learned +->  dual    boot in the lowest CD, task in another CD       (not with one image at a time)
//!                            |    cd+usb  boot in the lowest CD, task in a USB slot        (not with one image at a time)
//!                            +    single  the maintenance image with the task in it, in one CD after the other
//! ```
//!
//! [`plan`] lists, [`SlotPlans::after`] picks the next one once a slot has refused. Invariants: the boot image is always in a
//! slot the host sees as a CD, and in a lower one than a task image in a CD (firmware boots the first CD it finds); no slot
//! is used twice in a plan; the list is bounded; the same facts give the same list. What a BMC's profile forbids (slots,
//! schemes, ports) is settled before: the client closes such slots, and its check of the BMC refuses such URLs.
//!
//! DESIGN section 8.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use redfish::Slot;
use serde::{Deserialize, Serialize};

/// How maintenance image and task get to a machine (DESIGN section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SlotPlan {
    /// Two CD slots, boot in the lower one.
    #[serde(rename = "dual")]
    Dual,
    /// CD for boot, USB slot for the task image.
    #[serde(rename = "cd+usb")]
    CdUsb,
    /// One CD slot: the maintenance image with the task's files in it.
    #[serde(rename = "single")]
    Single,
}

impl SlotPlan {
    /// The plan's name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Dual => "dual",
            Self::CdUsb => "cd+usb",
            Self::Single => "single",
        }
    }
}

/// More slots than this are not looked at; no BMC has that many that can be used.
const SLOTS_MAX: usize = 16;
/// Longer lists of plans are cut; every plan that fails costs a machine minutes.
const PLANS_MAX: usize = 8;
/// So much is learned of one BMC at most.
const LEARNED_MAX: usize = 16;

/// What decides about plans.
#[derive(Clone, Debug)]
pub(crate) struct Capabilities<'a> {
    /// The slots, in the BMC's order.
    pub(crate) slots: &'a [Slot],
    /// The scheme under which our images are offered to this BMC.
    pub(crate) scheme: &'a str,
    /// What earlier jobs found out.
    pub(crate) learned: &'a Learned,
}

/// What jobs found out about a BMC's slots. Holds for one firmware and one state of the server's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Learned {
    /// The firmware it was learned from.
    #[serde(default)]
    pub(crate) firmware: Option<String>,
    /// The revision of the server's record: whoever changes the record wants it tried anew.
    #[serde(default)]
    pub(crate) revision: i64,
    /// Slots (by id) that refused an image although another slot took one, and the BMC's words.
    #[serde(default)]
    pub(crate) refused: BTreeMap<String, String>,
    /// Whether the BMC said that it holds one image at a time.
    #[serde(default)]
    pub(crate) one_image: bool,
}

impl Learned {
    /// What was stored, if it still holds.
    pub(crate) fn stored(
        observed: Option<&serde_json::Value>,
        firmware: Option<&str>,
        revision: i64,
    ) -> Self {
        let fresh = || Self { firmware: firmware.map(str::to_owned), revision, ..Self::default() };
        observed
            .and_then(|observed| serde_json::from_value::<Self>(observed.get("learned")?.clone()).ok())
            .filter(|learned| learned.firmware.as_deref() == firmware && learned.revision == revision)
            .unwrap_or_else(fresh)
    }

    /// Whether nothing was learned.
    pub(crate) fn is_empty(&self) -> bool {
        self.refused.is_empty() && !self.one_image
    }

    /// A slot refused an image while another one held the other.
    pub(crate) fn note(&mut self, refusal: &Refusal) {
        self.one_image |= refusal.one_image;
        if !refusal.one_image && self.refused.len() < LEARNED_MAX {
            self.refused.insert(refusal.slot_id.clone(), refusal.words.clone());
        }
    }
}

/// A slot that did not take an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// Its path.
    pub(crate) slot: String,
    /// Its id.
    pub(crate) slot_id: String,
    /// What the BMC said.
    pub(crate) words: String,
    /// Whether it said that it holds one image at a time.
    pub(crate) one_image: bool,
}

/// One way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Choice {
    /// Which plan.
    pub(crate) plan: SlotPlan,
    /// The slot the machine boots from.
    pub(crate) boot: String,
    /// The slot of the task image; none in the single-slot plan.
    pub(crate) task: Option<String>,
    /// Their ids, for people.
    pub(crate) ids: Vec<String>,
    /// Why this one, as a clause for people.
    pub(crate) reason: String,
}

/// All ways, the best first; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotPlans {
    list: Vec<Choice>,
}

impl SlotPlans {
    /// The best one.
    pub(crate) fn best(&self) -> &Choice {
        &self.list[0]
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Choice] {
        &self.list
    }

    /// The best one that none of these refusals speaks against.
    pub(crate) fn after(&self, refusals: &[Refusal]) -> Option<&Choice> {
        let one_image = refusals.iter().any(|refusal| refusal.one_image);
        self.list.iter().find(|choice| {
            let uses = |slot: &String| choice.boot == *slot || choice.task.as_ref() == Some(slot);
            let refused = refusals.iter().any(|refusal| !refusal.one_image && uses(&refusal.slot));
            let two = one_image && choice.task.is_some();
            !(refused || two)
        })
    }
}

/// Why there is no way, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoPlan {
    /// Why.
    pub(crate) why: String,
    /// What to do.
    pub(crate) next: String,
}

/// A slot that can be used.
struct Usable<'a> {
    slot: &'a Slot,
    cd: bool,
}

/// Every way in which the images can get to the machine.
pub(crate) fn plan(facts: &Capabilities<'_>) -> Result<SlotPlans, NoPlan> {
    let (usable, dropped) = sorted_out(facts);
    let cds: Vec<&Slot> = usable.iter().filter(|usable| usable.cd).map(|usable| usable.slot).collect();
    let usbs: Vec<&Slot> = usable.iter().filter(|usable| !usable.cd).map(|usable| usable.slot).collect();
    let Some((boot, others)) = cds.split_first() else { return Err(no_slot(facts, &dropped)) };
    let mut list = Vec::new();
    if !facts.learned.one_image {
        list.extend(others.iter().map(|task| {
            let reason = format!("{} CD slots take media", cds.len());
            choice(SlotPlan::Dual, boot, Some(task), reason)
        }));
        list.extend(usbs.iter().map(|task| {
            let reason = match others.is_empty() {
                true => "one CD slot and a USB slot take media",
                false => "a USB slot can take the task image",
            };
            choice(SlotPlan::CdUsb, boot, Some(task), reason.to_owned())
        }));
    }
    let reason = single_reason(facts, others.is_empty() && usbs.is_empty(), &dropped);
    list.extend(cds.iter().map(|slot| choice(SlotPlan::Single, slot, None, reason.clone())));
    list.truncate(PLANS_MAX);
    Ok(SlotPlans { list })
}

/// What can be used, lowest first, and what was dropped with the reason.
fn sorted_out<'a>(facts: &Capabilities<'a>) -> (Vec<Usable<'a>>, Vec<String>) {
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

/// Whether two resources are one slot, shown under the manager and under the system.
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

fn choice(plan: SlotPlan, boot: &Slot, task: Option<&&Slot>, reason: String) -> Choice {
    let ids = std::iter::once(&boot.id).chain(task.map(|slot| &slot.id)).cloned().collect();
    Choice { plan, boot: boot.uri.clone(), task: task.map(|slot| slot.uri.clone()), ids, reason }
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
            next: "switch virtual media on in the BMC; look for a licence or a firmware update".to_owned(),
        };
    }
    let details = if dropped.is_empty() { String::new() } else { format!(" ({})", dropped.join("; ")) };
    let scheme_only = dropped.len() == count && dropped.iter().all(|why| why.contains(" and not "));
    NoPlan {
        why: format!("none of its {count} virtual media slots takes a CD image{details}"),
        next: if scheme_only {
            "give the server a media_base_url with a scheme its slots read".to_owned()
        } else {
            "this BMC shows no virtual media slot for a CD; look for a licence or a firmware update"
                .to_owned()
        },
    }
}

/// Order of ids as people count: digits by their value, so that `CD2` comes before `CD10`.
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
