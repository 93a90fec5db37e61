//! The slots of a vendor and how media are inserted.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time;
use crate::types::{MediaKind, ReadStyle};

/// One virtual media slot.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SlotConfig {
    /// `Id` of the slot, unique in the BMC.
    pub id: String,
    /// The kind of drive that the host sees.
    pub kind: MediaKind,
    /// `MediaTypes`; the default depends on the kind.
    #[serde(default)]
    pub media_types: Vec<String>,
    /// Whether the slot accepts media; if not, it has no insert action and takes no PATCH of its image.
    #[serde(default = "yes")]
    pub insertable: bool,
    /// The status of every insert, for a slot that offers the action and refuses it.
    #[serde(default)]
    pub refuses: Option<u16>,
    /// Accepted endings of the URL path, in place of those in [`UrlRules`].
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

/// The rules by which media are inserted, shown and ejected.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MediaPolicy {
    /// The methods to insert and eject.
    pub via: Vec<MediaVia>,
    /// The time in which the image must have been read at insert.
    #[serde(with = "time")]
    pub timeout: Duration,
    /// The smallest image, in 2048-byte sectors for a CD (300 is what Linux USB gadgets demand).
    pub min_sectors: u64,
    /// The rules for URLs.
    pub url: UrlRules,
    /// The rules for the body of `InsertMedia`.
    pub insert: InsertRules,
    /// Properties that a PATCH of a slot accepts; others are refused by name.
    pub patch_accepted: Vec<String>,
    /// Whether a PATCH without `Inserted: true` succeeds without effect.
    pub patch_needs_inserted: bool,
    /// Whether the parameters of the insert action are in a `@Redfish.ActionInfo` resource.
    pub action_info: bool,
    /// Whether `Password` requires `UserName` and the reverse.
    pub credentials_in_pairs: bool,
    /// The response to an insert into a slot that has a medium.
    pub occupied: Occupied,
    /// Maximum number of slots with a medium.
    pub at_most: usize,
    /// The response to an eject of an empty slot.
    pub eject_empty: EjectEmpty,
    /// Whether empty slots offer the eject action.
    pub eject_offered_while_empty: bool,
    /// Whether an action without a body is refused with 415.
    pub body_required: bool,
    /// The requests by which the BMC reads an image.
    pub read: ReadStyle,
    /// Time from the end of an insert until the slot and the host have the medium.
    #[serde(with = "time")]
    pub attach_time: Duration,
    /// Time after an eject in which the slot shows the ejected medium and an insert returns 500.
    #[serde(with = "time")]
    pub eject_time: Duration,
    /// The part of the URL that `Image` shows.
    pub image_shown: ImageShown,
    /// Whether `Image` and `ImageName` keep their values after an eject.
    pub image_sticks: bool,
    /// Whether a power-on of the host removes all media.
    pub lost_at_power_on: bool,
    /// The OEM action that enables slots which do not exist before; `None` for slots that always exist.
    pub enable: Option<EnableMedia>,
    /// The attribute `VirtualMedia.1.Attached` of the manager. With `Detached` an insert succeeds, the slot shows the medium,
    /// and the host has none.
    pub attached: Option<String>,
    /// The `MessageId` with which every insert returns 403 because the licence is missing.
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
            attached: None,
            licence_missing: None,
        }
    }
}

impl MediaPolicy {
    /// Whether inserted media do not reach the host.
    pub(crate) fn is_detached(&self) -> bool {
        self.attached.as_deref() == Some("Detached")
    }
}

/// A method to insert and eject.
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
    /// PATCH of host and path at a `CfgCD` beside the slots, then `IsoConfig.Mount`; `IsoConfig.UnMount` ejects.
    SmcIsoConfig,
    /// `VirtualMedia.VmmControl` under `Oem.Huawei`.
    HuaweiVmmControl,
}

/// The response to an insert into a slot that has a medium.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Occupied {
    /// The BMC returns 409.
    Conflict,
    /// The BMC returns 400 with `SYS446`.
    BadRequest,
    /// The new medium replaces the old one.
    Replaced,
}

/// The part of the URL that `Image` shows.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageShown {
    /// The whole URL.
    Whole,
    /// The file name.
    FileName,
    /// The text `Image` is empty.
    Nothing,
}

/// Slots that an OEM action enables (`AMIVirtualMedia.EnableRMedia`).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EnableMedia {
    /// Time from the response until the slots exist.
    #[serde(with = "time")]
    pub settle: Duration,
    /// The number of slots until `AMIVirtualMedia.ConfigureCDInstance` changes it.
    pub instances: usize,
}

/// The media URLs that a BMC accepts. The default refuses everything that some BMC is known to refuse (decision D1).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct UrlRules {
    /// Accepted schemes, lower case.
    pub schemes: Vec<String>,
    /// The `MessageId` for an unsupported scheme, if the vendor has its own.
    pub scheme_message: Option<String>,
    /// Accepted ports; `None` for any.
    pub ports: Option<Vec<u16>>,
    /// The longest URL in bytes.
    pub max_bytes: usize,
    /// Whether `?` and `&` are accepted.
    pub query: bool,
    /// Whether a hyphen in the path is accepted.
    pub hyphens: bool,
    /// Whether an image at the root of the server is accepted.
    pub at_root: bool,
    /// Maximum number of directories above the image.
    pub max_depth: usize,
    /// Accepted endings of the path; empty for any.
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
    /// Accepts every HTTP and HTTPS URL of up to 2048 bytes.
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

/// The accepted and required parameters of `InsertMedia`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct InsertRules {
    /// Accepted parameters; others are refused by name.
    pub accepted: Vec<String>,
    /// Required parameters.
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

/// The response to an eject of an empty slot.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EjectEmpty {
    /// The BMC returns 204.
    Succeeds,
    /// 400, as some BMCs do.
    Refused,
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}
