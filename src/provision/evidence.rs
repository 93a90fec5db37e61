//! What steps leave for later steps, as types. Stored as JSON with the step's record; holds no secret.

use redfish::Discovery;
use serde::{Deserialize, Serialize};

use crate::model::Time;

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

/// How maintenance image and task get to a machine (DESIGN section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SlotPlan {
    /// Two CD slots, boot in the lower one.
    #[serde(rename = "dual")]
    Dual,
    /// One CD slot: the maintenance image with the task's files in it.
    #[serde(rename = "single")]
    Single,
    /// CD for boot, USB slot for the task image.
    #[serde(rename = "cd+usb")]
    CdUsb,
}

impl SlotPlan {
    /// The plan's name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Dual => "dual",
            Self::CdUsb => "cd+usb",
            Self::Single => "single",
        }
    }
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
    /// The slot the machine boots from.
    pub(super) boot_slot: String,
    /// Slots for the task image, the best first.
    pub(super) task_slots: Vec<String>,
    /// Whether the host was off when it was found.
    pub(super) found_off: bool,
    /// What identifies the spliced boot image, and the hash of the token of its grant; in the single-slot plan only.
    #[serde(default)]
    pub(super) spliced: Option<SplicedBoot>,
}

/// The boot image of the single-slot plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SplicedBoot {
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
}

/// Left by steps that ask for a power change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PowerAsked {
    /// When the graceful request was sent.
    pub(super) graceful_at: Option<Time>,
    /// When the (forced) request was sent.
    pub(super) sent_at: Option<Time>,
    /// How often it was sent.
    pub(super) sent: u32,
    /// The host was started by every sign but that of its BMC, which still showed "off": that may be stale for a while.
    #[serde(default)]
    pub(super) unseen: bool,
}
