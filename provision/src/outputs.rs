//! What steps leave for later steps, as types. Stored as JSON with the step's record; holds no secret.

use redfish::Discovery;
use serde::{Deserialize, Serialize};

use super::slots::{Choice, Learned, Refusal, SlotPlan};
use engine::model::Time;

/// Left by `validate`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Validated {
    /// The base URL of the API for the machine.
    pub(super) controller_url: String,
    /// The base URL of media for the BMC.
    pub(super) media_base: String,
    /// The digest of the maintenance image.
    pub(super) boot_digest: String,
    /// Its length in bytes.
    pub(super) boot_len: u64,
    /// Whether the OS image comes from our own registry.
    pub(super) own_registry: bool,
}

/// Left by `iso.build`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Built {
    /// The digest of the task image.
    pub(super) task_digest: String,
    /// Hash of the token of the task image's grant.
    pub(super) task_grant: String,
    /// Hash of the token of the boot image's grant.
    pub(super) boot_grant: String,
}

/// Left by `redfish.discover`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Discovered {
    /// The address of the BMC whose serial was compared.
    pub(super) bmc_address: String,
    /// What the BMC showed.
    pub(super) discovery: Discovery,
    /// The chosen plan.
    pub(super) plan: SlotPlan,
    /// Why it was chosen.
    #[serde(default)]
    pub(super) reason: String,
    /// The slot the machine boots from.
    pub(super) boot_slot: String,
    /// The slot of the task image; none in the single-slot plan.
    pub(super) task_slots: Vec<String>,
    /// Whether the host was off when it was found.
    pub(super) was_off: bool,
    /// What identifies the spliced boot image, and the hash of the token of its grant; in the single-slot plan only.
    #[serde(default)]
    pub(super) spliced: Option<SplicedBootGrant>,
    /// Which try of a plan this is, from 1; each has its own grants.
    #[serde(default = "first")]
    pub(super) attempt: u32,
    /// What was known of the slots.
    #[serde(default)]
    pub(super) learned: Learned,
    /// Hashes of the tokens of the grants that later plans were given.
    #[serde(default)]
    pub(super) grants: Vec<String>,
}

fn first() -> u32 {
    1
}

/// Another plan, taken because a slot refused; left by the mount step that was refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Replanned {
    /// Which try this is, from 2.
    pub(super) attempt: u32,
    /// The slot that refused.
    pub(super) refusal: Refusal,
    /// The plan taken instead.
    pub(super) choice: Choice,
    /// Hash of the token of the new grant of the boot image.
    pub(super) boot_grant: String,
    /// Hash of the token of the new grant of the task image; none in the single-slot plan.
    pub(super) task_grant: Option<String>,
    /// What identifies the spliced boot image; in the single-slot plan only.
    pub(super) spliced: Option<String>,
}

/// The boot image of the single-slot plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SplicedBootGrant {
    /// What identifies the image.
    pub(super) identity: String,
    /// Hash of the token of its grant.
    pub(super) grant: String,
}

/// Left by the mount steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Mounted {
    /// The slot that holds the image.
    pub(super) slot: String,
    /// When the insert was sent.
    pub(super) sent_at: Time,
    /// Whether it was refused in so many words, so that nothing can come of it any more.
    #[serde(default)]
    pub(super) refused: bool,
    /// The plan taken instead, when the slot refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replanned: Option<Box<Replanned>>,
}

/// Left by steps that ask for a power change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PowerRequest {
    /// When the graceful request was written down to be sent.
    pub(super) graceful_at: Option<Time>,
    /// Whether whoever sent it lived to see an answer, or none: without that it may never have left, and no time since
    /// then is time the host was given.
    #[serde(default)]
    pub(super) graceful_answered: bool,
    /// When the (forced) request was sent.
    pub(super) sent_at: Option<Time>,
    /// How often it was sent.
    pub(super) sent: u32,
    /// Every sign but that of its BMC says that it was done: what the BMC shows may be stale for a while, or for good.
    #[serde(default)]
    pub(super) unseen: bool,
    /// When an image that the BMC had dropped was inserted again, if one was. It may show late.
    #[serde(default)]
    pub(super) reinserted_at: Option<Time>,
}
