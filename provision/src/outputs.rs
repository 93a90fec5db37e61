//! The types of step outputs. They are stored as JSON with the step record and hold no secret.

use std::collections::BTreeMap;
use std::time::Duration;

use redfish::{BootWay, Discovery};
use serde::{Deserialize, Serialize};

use super::names;
use bmc::slots::{Inserted, LearnedSlots, SlotChoice, SlotPlan, SlotRefusal};
use model::{NewEvent, ReadMark, Snapshot, Time};

/// The output of `validate`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Validated {
    /// The base URL of the API as the machine reaches it.
    pub(super) controller_url: String,
    /// The base URL of media as the BMC reaches it.
    pub(super) media_base: String,
    /// The base URL of media by HTTPS, for a BMC that does not read the other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secure_media_base: Option<String>,
    /// The digest of the maintenance image.
    pub(super) boot_digest: String,
    /// The length of the maintenance image in bytes.
    pub(super) boot_len: u64,
    /// Whether the OS image comes from this controller's registry.
    pub(super) own_registry: bool,
    /// The OS image on the medium, with `delivery: media` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) os_image: Option<media::OsImage>,
}

impl Validated {
    /// The base URL of media for the BMC, as discovery chose it.
    pub(super) fn base_for<'a>(&'a self, found: Option<&Discovered>) -> &'a str {
        let secure =
            self.secure_media_base.as_deref().filter(|_| found.is_some_and(|found| found.media_by_https));
        secure.unwrap_or(&self.media_base)
    }
}

/// The output of `iso.build`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Built {
    /// The digest of the task image.
    pub(super) task_digest: String,
    /// Hash of the token of the task image's grant.
    pub(super) task_grant: String,
    /// Hash of the token of the boot image's grant.
    pub(super) boot_grant: String,
}

/// The output of `redfish.discover`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Discovered {
    /// The address of the BMC whose serial number was compared.
    pub(super) bmc_address: String,
    /// The discovered resources of the BMC.
    pub(super) discovery: Discovery,
    /// The chosen slot plan.
    pub(super) plan: SlotPlan,
    /// The reason for the choice.
    #[serde(default)]
    pub(super) reason: String,
    /// The slot the machine boots from.
    pub(super) boot_slot: String,
    /// The slot of the task image; none in the single-slot plan.
    pub(super) task_slots: Vec<String>,
    /// Whether the BMC reads media by HTTPS only.
    #[serde(default)]
    pub(super) media_by_https: bool,
    /// Whether the host was off at discovery.
    pub(super) was_off: bool,
    /// The spliced boot image and its grant; in the single-slot plan only.
    #[serde(default)]
    pub(super) spliced: Option<SplicedBootGrant>,
    /// The number of the slot plan attempt, from 1. Each attempt has its own grants.
    #[serde(default = "first")]
    pub(super) attempt: u32,
    /// The slots as earlier jobs learned to know them.
    #[serde(default)]
    pub(super) learned: LearnedSlots,
    /// Hashes of the tokens of the grants of later slot plans.
    #[serde(default)]
    pub(super) grants: Vec<String>,
    /// The time limits that the settings gave at discovery to the steps that run again for another slot plan, in milliseconds by step.
    /// `None` in outputs that older programs stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slot_plan_limits_ms: Option<BTreeMap<String, u64>>,
}

/// Returns the time limits that discovery stored for the steps that run again for another slot plan; `None` if it stored none.
pub(super) fn slot_plan_limits(snapshot: &Snapshot) -> Option<BTreeMap<String, Duration>> {
    /// The part of [`Discovered`] that is read: the whole output is large, and the limits are read at every decision.
    #[derive(Deserialize)]
    struct Limits {
        slot_plan_limits_ms: Option<BTreeMap<String, u64>>,
    }
    let discovered = snapshot.steps.iter().rfind(|record| record.name == *names::DISCOVER)?;
    let limits = Limits::deserialize(&discovered.output).ok()?.slot_plan_limits_ms?;
    Some(limits.into_iter().map(|(step, limit)| (step, Duration::from_millis(limit))).collect())
}

fn first() -> u32 {
    1
}

fn an_image() -> String {
    "image".to_owned()
}

/// The next slot plan, chosen because a slot refused an image. Part of the output of the mount step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SlotFallback {
    /// The number of the slot plan attempt, from 2.
    pub(super) attempt: u32,
    /// The refusal that led to this plan.
    pub(super) refusal: SlotRefusal,
    /// The name of the refused image.
    #[serde(default = "an_image")]
    pub(super) image: String,
    /// The number of bytes the BMC had read of the refused image; `None` when unknown.
    #[serde(default)]
    pub(super) bytes_read: Option<u64>,
    /// The slot plan chosen instead.
    pub(super) choice: SlotChoice,
    /// Hash of the token of the new grant of the boot image.
    pub(super) boot_grant: String,
    /// Hash of the token of the new grant of the task image; none in the single-slot plan.
    pub(super) task_grant: Option<String>,
    /// The identity of the spliced boot image; in the single-slot plan only.
    pub(super) spliced: Option<String>,
}

/// The spliced boot image of the single-slot plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SplicedBootGrant {
    /// The identity of the image.
    pub(super) identity: String,
    /// The hash of the token of the grant.
    pub(super) grant: String,
}

/// The output of the mount steps: [`Inserted`], which [`bmc::slots::insert`] records, and the fallback after a refusal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Mounted {
    /// The slot, and when the image was sent.
    #[serde(flatten)]
    pub(super) inserted: Inserted,
    /// The slot plan chosen instead, if the slot refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slot_fallback: Option<Box<SlotFallback>>,
}

/// The output of `redfish.boot-override`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BootSet {
    /// The way by which the next boot was set.
    pub(super) way: BootWay,
    /// The time in seconds within which a host that boots from the media reads them; 0 when no other way is tried.
    pub(super) read_within_s: u64,
}

/// The observations of a machine that may have booted its disk; part of the output of the step that waits for the installation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct BootLook {
    /// Whether the machine was looked at and no second way to boot is tried.
    pub(super) looked: bool,
    /// The time at which the machine is observed again.
    pub(super) look_at: Option<Time>,
    /// The second way to boot, once it is chosen.
    pub(super) second_way: Option<SecondWay>,
    /// The time since which each observation has found the host off.
    pub(super) off_since: Option<Time>,
    /// Whether the machine was observed while it installs.
    pub(super) observed: bool,
    /// Whether an observation has found that a slot lost its medium.
    pub(super) media_lost: bool,
    /// The time of the last observation while the machine installs, or the begin of its wait.
    pub(super) observed_at: Option<Time>,
    /// The reads of the media until that observation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) media_until: Option<ReadMark>,
    /// The number of observations in a row that failed or found nothing new.
    pub(super) unchanged: u32,
    /// Whether the last look could not read the BMC.
    pub(super) silent: bool,
    /// Whether an event says that the host is off and cannot say anything by its medium.
    pub(super) off_recorded: bool,
}

impl BootLook {
    /// Records whether a look could read the BMC. The event of a failure is returned for the first one of a row only.
    pub(super) fn note(&mut self, failed: Option<NewEvent>) -> Option<NewEvent> {
        let was_silent = std::mem::replace(&mut self.silent, failed.is_some());
        failed.filter(|_| !was_silent)
    }
}

/// The second way to boot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SecondWay {
    /// The way that did not boot the media.
    pub(super) first: BootWay,
    /// The way that is tried instead.
    pub(super) second: BootWay,
    /// The power-on after which the media were not read.
    pub(super) powered_on_at: Time,
    /// The reads of the media before that power-on.
    pub(super) media_before: Option<ReadMark>,
    /// The deadline of the first wait, which the second one keeps.
    pub(super) deadline: Time,
}
