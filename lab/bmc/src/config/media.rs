//! The slots of a vendor and how media come into them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time;
use crate::media_reader::ReadStyle;

/// How the host sees a slot.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaKind {
    /// An optical drive.
    Cd,
    /// A USB stick.
    Usb,
}

/// One virtual media slot.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SlotConfig {
    /// `Id` of the slot, unique in the twin.
    pub id: String,
    /// What it is for the host.
    pub kind: MediaKind,
    /// `MediaTypes`; by default what fits the kind.
    #[serde(default)]
    pub media_types: Vec<String>,
    /// Whether it can be inserted into; a slot that cannot has no action and takes no PATCH of its image.
    #[serde(default = "yes")]
    pub insertable: bool,
    /// It offers the action, and refuses each insert with this status.
    #[serde(default)]
    pub refuses: Option<u16>,
    /// Endings of the path this slot takes, in place of those of all slots.
    #[serde(default)]
    pub suffixes: Option<Vec<String>>,
}

fn yes() -> bool {
    true
}

impl SlotConfig {
    fn new(id: impl Into<String>, kind: MediaKind) -> Self {
        let (media_types, refuses, suffixes) = (Vec::new(), None, None);
        Self { id: id.into(), kind, media_types, insertable: true, refuses, suffixes }
    }

    /// A CD slot.
    pub fn cd(id: impl Into<String>) -> Self {
        Self::new(id, MediaKind::Cd)
    }

    /// A USB slot.
    pub fn usb(id: impl Into<String>) -> Self {
        Self::new(id, MediaKind::Usb)
    }

    /// `MediaTypes` of the slot.
    pub(crate) fn types(&self) -> Vec<&str> {
        match (self.media_types.is_empty(), self.kind) {
            (false, _) => self.media_types.iter().map(String::as_str).collect(),
            (true, MediaKind::Cd) => vec!["CD", "DVD"],
            (true, MediaKind::Usb) => vec!["Floppy", "USBStick"],
        }
    }
}

/// How media are taken.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MediaPolicy {
    /// The ways to insert and eject.
    pub via: Vec<MediaVia>,
    /// The time in which the image must have been read at insert.
    #[serde(with = "time")]
    pub timeout: Duration,
    /// The smallest image, in 2048-byte sectors for a CD (300 is what Linux USB gadgets demand).
    pub min_sectors: u64,
    /// What a URL must look like.
    pub url: UrlRules,
    /// What the body of `InsertMedia` must look like.
    pub insert: InsertRules,
    /// Properties a PATCH of a slot takes; others are refused by name.
    pub patch_accepted: Vec<String>,
    /// Whether a PATCH without `Inserted: true` is taken and attaches nothing.
    pub patch_needs_inserted: bool,
    /// Whether the parameters of the insert action stand in a `@Redfish.ActionInfo` resource.
    pub action_info: bool,
    /// Whether `Password` demands `UserName` and the reverse.
    pub credentials_in_pairs: bool,
    /// Inserting into a slot that has a medium.
    pub occupied: Occupied,
    /// How many slots may have a medium at a time.
    pub at_most: usize,
    /// Ejecting an empty slot.
    pub eject_empty: EjectEmpty,
    /// Whether the eject action is offered by empty slots.
    pub eject_offered_while_empty: bool,
    /// Whether an action without a body is refused with 415.
    pub body_required: bool,
    /// How an image is read.
    pub read: ReadStyle,
    /// From the end of an insert to the moment the slot and the host have the medium.
    #[serde(with = "time")]
    pub attach_time: Duration,
    /// For so long after an eject the slot shows what it had, and an insert is answered with 500.
    #[serde(with = "time")]
    pub eject_time: Duration,
    /// What `Image` shows.
    pub image_shown: ImageShown,
    /// Whether `Image` and `ImageName` stay after an eject.
    pub image_sticks: bool,
    /// Whether media are lost when the host is powered on.
    pub lost_at_power_on: bool,
    /// Slots are there only after they were enabled.
    pub enable: Option<EnableMedia>,
    /// Each insert is answered with 403 and this `MessageId`: the licence is missing.
    pub licence_missing: Option<String>,
}

impl Default for MediaPolicy {
    fn default() -> Self {
        Self {
            via: vec![MediaVia::Action],
            timeout: Duration::from_secs(30),
            min_sectors: 300,
            url: UrlRules::default(),
            insert: InsertRules::default(),
            patch_accepted: words(&["Image", "Inserted", "WriteProtected"]),
            patch_needs_inserted: false,
            action_info: false,
            credentials_in_pairs: false,
            occupied: Occupied::Conflict,
            at_most: usize::MAX,
            eject_empty: EjectEmpty::Succeeds,
            eject_offered_while_empty: true,
            body_required: false,
            read: ReadStyle::default(),
            attach_time: Duration::ZERO,
            eject_time: Duration::ZERO,
            image_shown: ImageShown::Whole,
            image_sticks: false,
            lost_at_power_on: false,
            enable: None,
            licence_missing: None,
        }
    }
}

/// A way to insert and eject.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaVia {
    /// `VirtualMedia.InsertMedia` and `EjectMedia`.
    Action,
    /// PATCH of the slot.
    Patch,
    /// `HpiLOVirtualMedia.InsertVirtualMedia` and `EjectVirtualMedia` under `Oem.Hp`.
    HpAction,
    /// `HpeiLOVirtualMedia.InsertVirtualMedia` and `EjectVirtualMedia` under `Oem.Hpe`.
    HpeAction,
    /// Host and path are written to a `CfgCD` beside the slots, `IsoConfig.Mount` mounts, `IsoConfig.UnMount` unmounts.
    SmcIsoConfig,
    /// `VirtualMedia.VmmControl` under `Oem.Huawei`.
    HuaweiVmmControl,
}

/// Inserting into a slot that has a medium.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Occupied {
    /// 409.
    Conflict,
    /// 400 with `SYS446`.
    BadRequest,
    /// The new one takes its place.
    Replaced,
}

/// What `Image` shows of the URL.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageShown {
    /// All of it.
    Whole,
    /// The file name.
    FileName,
    /// Nothing.
    Nothing,
}

/// Slots that have to be enabled first (`AMIVirtualMedia.EnableRMedia`).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EnableMedia {
    /// From the answer to the moment the slots are there.
    #[serde(with = "time")]
    pub settle: Duration,
    /// How many slots there are until `AMIVirtualMedia.ConfigureCDInstance` says otherwise.
    pub instances: usize,
}

/// What a BMC takes as a media URL. The default refuses all that some BMC is known to refuse (DESIGN L1).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct UrlRules {
    /// Schemes, lower case.
    pub schemes: Vec<String>,
    /// The `MessageId` for another scheme, where it is a particular one.
    pub scheme_message: Option<String>,
    /// Ports; `None` is any.
    pub ports: Option<Vec<u16>>,
    /// The longest URL in bytes.
    pub max_bytes: usize,
    /// Whether `?` and `&` are taken.
    pub query: bool,
    /// Whether a hyphen in the path is taken.
    pub hyphens: bool,
    /// Whether an image directly at the root is taken.
    pub at_root: bool,
    /// The most directories above the image.
    pub max_depth: usize,
    /// Endings of the path; empty is any.
    pub suffixes: Vec<String>,
}

impl Default for UrlRules {
    fn default() -> Self {
        Self {
            schemes: words(&["http", "https"]),
            scheme_message: None,
            ports: None,
            max_bytes: 127,
            query: false,
            hyphens: false,
            at_root: false,
            max_depth: usize::MAX,
            suffixes: words(&[".iso", ".img"]),
        }
    }
}

impl UrlRules {
    /// Any HTTP or HTTPS URL that fits the schema.
    pub fn lenient() -> Self {
        Self {
            max_bytes: 2048,
            query: true,
            hyphens: true,
            at_root: true,
            suffixes: Vec::new(),
            ..Self::default()
        }
    }
}

/// What the body of `InsertMedia` may and must have.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct InsertRules {
    /// Parameters taken; others are refused by name.
    pub accepted: Vec<String>,
    /// Parameters without which the action is refused.
    pub required: Vec<String>,
}

impl Default for InsertRules {
    fn default() -> Self {
        Self {
            accepted: words(&[
                "Image",
                "Inserted",
                "WriteProtected",
                "TransferMethod",
                "TransferProtocolType",
                "UserName",
                "Password",
            ]),
            required: words(&["Image"]),
        }
    }
}

/// The answer to ejecting an empty slot.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EjectEmpty {
    /// 204.
    Succeeds,
    /// 400, as some BMCs do.
    Refused,
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}
