//! Finding the host and its slots behind a BMC, by following links.
//!
//! ```text
//!   /redfish/v1/ -> Systems -> the host -> Links.ManagedBy (else Managers) -> the manager
//!        |                        `------------- VirtualMedia -----------------'  one of the two, the profile
//!        `-> profile (by the root)                   `-> slots                   says which is looked at first
//!                                    profile (by root, system and manager) ----'
//! ```
//!
//! Several systems behind one BMC are normal (accelerator boards show up as systems). The host is the one whose
//! serial or service tag was asked for, else the one the profile names, else the only one that can be reset,
//! shows a boot override and has something that manages it. A host without a serial number has its chassis'. Slots
//! that appear under the system and under the manager are read once. Reading is tolerant: what a BMC leaves out is absent, a slot that fails is left out, a
//! system that fails is left out if another one is the host. Nothing is changed. Specification: DSP0266 6.2
//! (service root), DSP0268.

mod host;
mod media;

use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::bmc::Bmc;
use crate::boot::BootOverride;
use crate::collection;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::Core;
use crate::json::{self, Resource};
use crate::media::{Slot, scheme_of};
use crate::power::{PowerState, ResetType};
use crate::profile::Identity;

/// The only path that is known beforehand.
pub(crate) const SERVICE_ROOT: &str = "/redfish/v1/";

const OPERATION: Operation = Operation::Discover;

/// Which system is meant, when there are several.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SystemSelector {
    /// The serial number or service tag.
    pub serial: Option<String>,
    /// The path of the system; outweighs everything else.
    pub uri: Option<String>,
}

impl SystemSelector {
    /// The system with this serial number or service tag.
    pub fn serial(serial: impl Into<String>) -> Self {
        SystemSelector { serial: Some(serial.into()), uri: None }
    }
}

/// What is behind a BMC.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Discovery {
    /// Whose it is; chooses a profile.
    pub identity: Identity,
    /// `RedfishVersion` of the service root.
    pub redfish_version: Option<String>,
    /// The host.
    pub system: SystemInfo,
    /// What manages it.
    pub manager: Option<ManagerInfo>,
    /// Its virtual media slots, in the BMC's order.
    pub slots: Vec<Slot>,
    /// The name of the profile it is spoken to by.
    #[serde(default)]
    pub profile: String,
    /// The collection they are in.
    #[serde(default)]
    pub media_collection: Option<String>,
    /// What has to be sent before slots take media; nothing was sent yet.
    #[serde(default)]
    pub media_prepare: Option<String>,
    /// What the BMC said when virtual media wanted a licence.
    #[serde(default)]
    pub licence_missing: Option<String>,
}

/// The host.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SystemInfo {
    /// Its path.
    pub uri: String,
    /// `Id`.
    pub id: String,
    /// `Manufacturer`.
    pub manufacturer: Option<String>,
    /// `Model`.
    pub model: Option<String>,
    /// `SerialNumber`, else that of its chassis; placeholders like `To be filled by O.E.M.` count as none.
    pub serial: Option<String>,
    /// `SKU`, where some vendors keep the service tag.
    pub sku: Option<String>,
    /// `UUID`.
    pub uuid: Option<String>,
    /// `BiosVersion`.
    pub bios_version: Option<String>,
    /// `PowerState` at the time of discovery.
    pub power_state: PowerState,
    /// The Reset action.
    pub reset: Option<ResetAction>,
    /// The boot override at the time of discovery.
    pub boot: Option<BootOverride>,
    /// The ETag at the time of discovery.
    pub etag: Option<String>,
}

/// The Reset action of a system.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ResetAction {
    /// Where to POST.
    pub target: String,
    /// Types the BMC lists, as far as they are known here; empty if it lists none.
    pub allowed: Vec<ResetType>,
}

impl ResetAction {
    /// Whether a type may be asked for.
    pub fn allows(&self, reset: ResetType) -> bool {
        self.allowed.is_empty() || self.allowed.contains(&reset)
    }
}

/// The manager of a host.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ManagerInfo {
    /// Its path.
    pub uri: String,
    /// `Model`.
    pub model: Option<String>,
    /// `FirmwareVersion`.
    pub firmware: Option<String>,
    /// `DateTime`, as the BMC wrote it.
    pub date_time: Option<String>,
}

/// What a serial number says about a system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SerialMatch {
    /// Serial number or service tag are the expected ones.
    Match,
    /// The system has a serial number, and it is another one.
    Mismatch,
    /// The system shows no serial number.
    Unknown,
}

impl SystemInfo {
    fn of(resource: &Resource) -> Self {
        let fields = &resource.fields;
        let target = json::action(fields, "#ComputerSystem.Reset").and_then(|action| {
            let target = json::path_of(&json::word(action, "target")?)?;
            let listed = json::texts(action, "ResetType@Redfish.AllowableValues");
            Some(ResetAction { target, allowed: reset_types(&listed) })
        });
        SystemInfo {
            uri: resource.path.clone(),
            id: json::word(fields, "Id").unwrap_or_default(),
            manufacturer: json::word(fields, "Manufacturer"),
            model: json::word(fields, "Model"),
            serial: serial_of(resource),
            sku: json::word(fields, "SKU").filter(|sku| !is_placeholder(sku)),
            uuid: json::word(fields, "UUID"),
            bios_version: json::word(fields, "BiosVersion"),
            power_state: PowerState::of(resource),
            reset: target,
            boot: BootOverride::of(fields),
            etag: resource.etag.clone(),
        }
    }

    /// Compares the serial number and the service tag with the expected serial, without case.
    pub fn matches_serial(&self, expected: &str) -> SerialMatch {
        let expected = expected.trim();
        let mut shown = [&self.serial, &self.sku].into_iter().flatten();
        if shown.any(|shown| shown.eq_ignore_ascii_case(expected)) {
            SerialMatch::Match
        } else if self.serial.is_some() {
            SerialMatch::Mismatch
        } else {
            SerialMatch::Unknown
        }
    }
}

fn serial_of(resource: &Resource) -> Option<String> {
    json::word(&resource.fields, "SerialNumber").filter(|serial| !is_placeholder(serial))
}

/// What mainboard makers leave in place of a serial number.
fn is_placeholder(serial: &str) -> bool {
    let serial = serial.to_ascii_lowercase();
    let words =
        ["none", "n/a", "na", "null", "unknown", "not specified", "default string", "system serial number"];
    words.contains(&serial.as_str())
        || serial.starts_with("to be filled")
        || serial.starts_with("0123456789")
        || serial.bytes().all(|byte| matches!(byte, b'0' | b'.' | b'-' | b' '))
}

fn reset_types(names: &[String]) -> Vec<ResetType> {
    names.iter().filter_map(|name| ResetType::named(name)).collect()
}

impl Bmc {
    /// Finds the host, its manager and its slots, and the profile they want. Reads only.
    pub async fn discover(&self, selector: &SystemSelector) -> Result<Discovery, RedfishError> {
        let core = &self.core;
        let root = core.service_root().await?;
        core.choice.identify(&identity_of(&root));
        let system = core.find_system(&root, selector).await?;
        let mut info = SystemInfo::of(&system);
        core.complete_serial(&system, &mut info, selector).await?;
        core.complete_reset_types(&system, &mut info).await?;
        let managers = core.managers(&root, &system).await?;
        let manager = managers.first().map(|manager| ManagerInfo {
            uri: manager.path.clone(),
            model: json::word(&manager.fields, "Model"),
            firmware: json::word(&manager.fields, "FirmwareVersion"),
            date_time: json::word(&manager.fields, "DateTime"),
        });
        let mut identity = identity_of(&root);
        identity.vendor = identity.vendor.or_else(|| info.manufacturer.clone());
        identity.manufacturer = info.manufacturer.clone();
        identity.model = info.model.clone();
        identity.manager = manager.as_ref().and_then(|manager| manager.model.clone());
        identity.firmware = manager.as_ref().and_then(|manager| manager.firmware.clone());
        identity.media = managers.first().and_then(|manager| json::link(&manager.fields, "VirtualMedia"));
        core.choice.identify(&identity);
        core.choice.learn(|learned| learned.on_firmware(identity.firmware.as_deref()));
        let media = core.media(&system, &managers).await?;
        Ok(Discovery {
            identity,
            redfish_version: json::word(&root.fields, "RedfishVersion"),
            system: info,
            manager,
            slots: media.slots,
            media_collection: media.collection,
            profile: self.profile().name.to_owned(),
            media_prepare: media.pre,
            licence_missing: media.licence_missing,
        })
    }

    /// Whether a job can be done with this BMC at all, with media served under `media_url`: every obstacle that
    /// is known before anything is changed. The error is one sentence with what to do.
    pub fn check(&self, found: &Discovery, media_url: &str) -> Result<(), RedfishError> {
        let profile = self.profile();
        let fail = |kind| Err(RedfishError::new(OPERATION, kind));
        if !profile.unsupported.is_empty() {
            return fail(ErrorKind::Unsupported { profile: profile.name, why: profile.unsupported.clone() });
        }
        if let Some(message) = &found.licence_missing {
            return fail(ErrorKind::License { message: message.clone() });
        }
        if found.slots.is_empty() && found.media_prepare.is_none() {
            let detail = "neither the system nor its manager shows a slot".to_owned();
            return fail(ErrorKind::NoVirtualMedia { detail });
        }
        if found.media_prepare.is_none() && !found.slots.iter().any(Slot::takes_media) {
            let ids: Vec<&str> = found.slots.iter().map(|slot| slot.id.as_str()).take(16).collect();
            let detail = format!("none of its slots ({}) takes an image", ids.join(", "));
            return fail(ErrorKind::NoVirtualMedia { detail });
        }
        if found.system.reset.is_none() {
            return Err(RedfishError::not_supported(OPERATION, "the system has no Reset action"));
        }
        scheme_of(OPERATION, &profile, media_url).map(drop)
    }
}

impl Core {
    /// The service root: what a login has read already, if that was the whole of it.
    async fn service_root(&self) -> Result<Resource, RedfishError> {
        self.proof().await?;
        let seen = self.root().clone();
        match seen {
            Some(root) if root.fields.contains_key("Systems") => Ok(root),
            _ => self.read(OPERATION, SERVICE_ROOT).await.map(|root| self.root_seen(root)),
        }
    }

    /// Keeps the service root and lets it choose a first profile, before anybody logs in.
    pub(crate) fn root_seen(&self, root: Resource) -> Resource {
        if self.expand.get().is_none() {
            self.choice.identify(&identity_of(&root));
            // Somebody else may have been first, with the same.
            let _first = self.expand.set(collection::offered(&root.fields));
        }
        self.root().get_or_insert_with(|| root.clone());
        root
    }
}

/// What the service root says of whose BMC it is.
fn identity_of(root: &Resource) -> Identity {
    let oem = json::member(&root.fields, "Oem").into_iter().flat_map(Map::keys);
    Identity {
        vendor: json::word(&root.fields, "Vendor"),
        product: json::word(&root.fields, "Product"),
        oem: oem.take(8).map(|name| json::clip(name, json::MAX_TEXT)).collect(),
        ..Identity::default()
    }
}

/// Whether the BMC answered that it has no such thing, or cannot show it.
fn is_absent(error: &RedfishError) -> bool {
    matches!(
        error.kind,
        ErrorKind::NotFound { .. }
            | ErrorKind::NotSupported { .. }
            | ErrorKind::Refused { .. }
            | ErrorKind::License { .. }
            | ErrorKind::Server { .. }
    )
}

impl Core {
    /// Reads what the whole does not depend on: an answer that it cannot be had counts as absent.
    async fn read_optional(&self, path: &str) -> Result<Option<Resource>, RedfishError> {
        match self.read(OPERATION, path).await {
            Ok(resource) => Ok(Some(resource)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
