//! The result of a discovery: the host, its manager and its slots, as data.

use serde::{Deserialize, Serialize};

use crate::attributes;
use crate::boot::BootOverride;
use crate::json::{self, Resource};
use crate::media::Slot;
use crate::power_state::{PowerState, ResetType};
use crate::profile::{BmcIdentity, Profile};
use crate::version::FirmwareVersion;

/// Selects the host when the BMC shows several systems.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SystemSelector {
    /// The serial number or service tag.
    pub serial: Option<String>,
    /// The path of the system; takes precedence over everything else.
    pub uri: Option<String>,
}

impl SystemSelector {
    /// Selects the system with this serial number or service tag.
    pub fn serial(serial: impl Into<String>) -> Self {
        SystemSelector { serial: Some(serial.into()), uri: None }
    }
}

/// The result of a discovery: the host, its manager, its slots and the profile.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Discovery {
    /// The properties by which the profile is chosen.
    pub identity: BmcIdentity,
    /// `RedfishVersion` of the service root.
    pub redfish_version: Option<String>,
    /// The host.
    pub system: SystemInfo,
    /// The manager of the host, if the BMC shows one.
    pub manager: Option<ManagerInfo>,
    /// The virtual media slots of the host, in the BMC's order.
    pub slots: Vec<Slot>,
    /// Name of the profile in force.
    #[serde(default)]
    pub profile: String,
    /// The collection of the slots.
    #[serde(default)]
    pub media_collection: Option<String>,
    /// The target of the action that must be sent before slots accept images; discovery does not send it.
    #[serde(default)]
    pub media_prepare: Option<String>,
    /// The attribute of the manager that keeps inserted media from the host, if one does.
    #[serde(default)]
    pub media_detached: Option<String>,
    /// The BMC's message, if virtual media needs a licence that is missing.
    #[serde(default)]
    pub licence_missing: Option<String>,
}

/// The host.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SystemInfo {
    /// Path of the system.
    pub uri: String,
    /// The `Id` of the system.
    pub id: String,
    /// The `Manufacturer` of the system.
    pub manufacturer: Option<String>,
    /// The `Model` of the system.
    pub model: Option<String>,
    /// `SerialNumber`, else that of its chassis; placeholders like `To be filled by O.E.M.` count as none.
    pub serial: Option<String>,
    /// `SKU`: a product number, which all machines of a model share, or on some BMCs the service tag.
    pub sku: Option<String>,
    /// The service tag of this machine: `SKU` where the profile says so (`sku_is_serial`).
    #[serde(default)]
    pub service_tag: Option<String>,
    /// The `UUID` of the system.
    pub uuid: Option<String>,
    /// The `BiosVersion` of the system.
    pub bios_version: Option<FirmwareVersion>,
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
    /// The path for the POST.
    pub target: String,
    /// The known types that the BMC lists at the action; empty if it lists none there.
    pub allowed: Vec<ResetType>,
    /// Path of the resource that lists the types, if the action has none. It is read when a type is refused.
    #[serde(default)]
    pub info: Option<String>,
}

impl ResetAction {
    /// Whether the BMC allows this type, as far as the action says.
    pub fn allows(&self, reset: ResetType) -> bool {
        self.allowed.is_empty() || self.allowed.contains(&reset)
    }
}

/// The manager of a host.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ManagerInfo {
    /// Path of the manager.
    pub uri: String,
    /// The `Model` of the manager.
    pub model: Option<String>,
    /// `FirmwareVersion`.
    pub firmware: Option<FirmwareVersion>,
    /// The `DateTime` of the manager, as the BMC shows it.
    pub date_time: Option<String>,
    /// The path of the attributes of the manager, if the manager links to them.
    #[serde(default)]
    pub attributes: Option<String>,
}

impl ManagerInfo {
    /// The path of the manager's attributes.
    pub(crate) fn attributes_path(&self) -> String {
        attributes::path(&self.uri, self.attributes.as_deref())
    }
}

/// Comparison of a system's serial number with the expected one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SerialMatch {
    /// The serial number or the service tag is the expected one.
    Match,
    /// The system has a different serial number.
    Mismatch,
    /// The system shows no serial number.
    Unknown,
}

impl SystemInfo {
    pub(super) fn of(resource: &Resource, profile: &Profile) -> Self {
        let fields = &resource.fields;
        let target = json::action(fields, "#ComputerSystem.Reset").and_then(|action| {
            let target = json::path_of(&json::word(action, "target")?)?;
            let listed = json::texts(action, "ResetType@Redfish.AllowableValues");
            let info = json::word(action, "@Redfish.ActionInfo").and_then(|path| json::path_of(&path));
            Some(ResetAction {
                target,
                info: info.filter(|_| listed.is_empty()),
                allowed: reset_types(&listed),
            })
        });
        let mut info = SystemInfo {
            uri: resource.path.clone(),
            id: json::word(fields, "Id").unwrap_or_default(),
            manufacturer: json::word(fields, "Manufacturer"),
            model: json::word(fields, "Model"),
            serial: serial_of(resource),
            sku: json::word(fields, "SKU").filter(|sku| !is_placeholder(sku)),
            service_tag: None,
            uuid: json::word(fields, "UUID"),
            bios_version: json::word(fields, "BiosVersion").map(FirmwareVersion::from),
            power_state: PowerState::of(resource),
            reset: target,
            boot: BootOverride::of(fields),
            etag: resource.etag.clone(),
        };
        info.judge_sku(profile);
        info
    }

    /// Sets the service tag as this profile reads `SKU`.
    pub(super) fn judge_sku(&mut self, profile: &Profile) {
        self.service_tag = self.sku.clone().filter(|_| profile.sku_is_serial);
    }

    /// The number to register the machine under: the service tag, else the serial number.
    pub fn shown_serial(&self) -> Option<&str> {
        self.service_tag.as_deref().or(self.serial.as_deref())
    }

    /// Returns the serial number of a later read of this system that is of another machine: BMCs change places when their
    /// addresses are leased anew. A read without a serial number is of the same one, and so is one with the same UUID.
    pub(crate) fn other_serial(&self, read: &Resource) -> Option<(&str, String)> {
        let (known, shown) = (self.serial.as_deref()?, serial_of(read)?);
        let uuid = self.uuid.as_ref().zip(json::word(&read.fields, "UUID"));
        let same = known.eq_ignore_ascii_case(&shown)
            || uuid.is_some_and(|(known, shown)| known.eq_ignore_ascii_case(&shown));
        (!same).then_some((known, shown))
    }

    /// Compares the serial number and the service tag with the expected serial, without case.
    pub fn matches_serial(&self, expected: &str) -> SerialMatch {
        let expected = expected.trim();
        let mut shown = [&self.serial, &self.service_tag].into_iter().flatten();
        if shown.any(|shown| shown.eq_ignore_ascii_case(expected)) {
            SerialMatch::Match
        } else if self.serial.is_some() {
            SerialMatch::Mismatch
        } else {
            SerialMatch::Unknown
        }
    }
}

pub(super) fn serial_of(resource: &Resource) -> Option<String> {
    json::word(&resource.fields, "SerialNumber").filter(|serial| !is_placeholder(serial))
}

/// Whether this is a placeholder that mainboard makers leave instead of a serial number.
fn is_placeholder(serial: &str) -> bool {
    let serial = serial.to_ascii_lowercase();
    let words =
        ["none", "n/a", "na", "null", "unknown", "not specified", "default string", "system serial number"];
    words.contains(&serial.as_str())
        || serial.starts_with("to be filled")
        || serial.starts_with("0123456789")
        || serial.bytes().all(|byte| matches!(byte, b'0' | b'.' | b'-' | b' '))
}

pub(crate) fn reset_types(names: &[String]) -> Vec<ResetType> {
    names.iter().filter_map(|name| ResetType::named(name)).collect()
}
