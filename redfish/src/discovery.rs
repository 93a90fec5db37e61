//! Finding the host and its slots behind a BMC, by following links.
//!
//! ```text
//!   /redfish/v1/ -> Systems -> the host -> Links.ManagedBy (else Managers) -> the manager
//!                                 `------------- VirtualMedia -----------------'  one of the two, the profile
//!                                                     `-> slots                   says which is looked at first
//! ```
//!
//! Several systems behind one BMC are normal (accelerator boards show up as systems). The host is the one whose
//! serial or service tag was asked for, else the only one that can be reset, shows a boot override and has
//! something that manages it. Slots that appear under the system and under the manager are read once. Reading
//! is tolerant: what a BMC leaves out is absent, a slot that fails is left out, a system that fails is left out
//! if another one is the host. Nothing is changed. Specification: DSP0266 6.2 (service root), DSP0268.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::bmc::Bmc;
use crate::boot::BootOverride;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::Core;
use crate::json::{self, Resource};
use crate::media::Slot;
use crate::power::{PowerState, ResetType};
use crate::profile::{Identity, MediaHome};

/// The only path that is known beforehand.
pub(crate) const SERVICE_ROOT: &str = "/redfish/v1/";

const OPERATION: Operation = Operation::Discover;
const MAX_PAGES: usize = 8;
const MAX_MEMBERS: usize = 32;
const MAX_SLOTS: usize = 16;
const MAX_MANAGERS: usize = 4;

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
    /// `SerialNumber`; placeholders like `To be filled by O.E.M.` count as none.
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
            serial: json::word(fields, "SerialNumber").filter(|serial| !is_placeholder(serial)),
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
    /// Finds the host, its manager and its slots. Reads only.
    pub async fn discover(&self, selector: &SystemSelector) -> Result<Discovery, RedfishError> {
        let core = &self.core;
        let root = core.read(OPERATION, SERVICE_ROOT).await?;
        let system = core.find_system(&root, selector).await?;
        let mut info = SystemInfo::of(&system);
        core.complete_reset_types(&system, &mut info).await?;
        let managers = core.managers(&root, &system).await?;
        let slots = core.slots(&system, &managers).await?;
        let manager = managers.first().map(|manager| ManagerInfo {
            uri: manager.path.clone(),
            model: json::word(&manager.fields, "Model"),
            firmware: json::word(&manager.fields, "FirmwareVersion"),
            date_time: json::word(&manager.fields, "DateTime"),
        });
        let oem = json::member(&root.fields, "Oem").into_iter().flat_map(Map::keys);
        let identity = Identity {
            vendor: json::word(&root.fields, "Vendor").or_else(|| info.manufacturer.clone()),
            product: json::word(&root.fields, "Product"),
            oem: oem.take(8).map(|name| json::clip(name, json::MAX_TEXT)).collect(),
            model: info.model.clone(),
            firmware: manager.as_ref().and_then(|manager| manager.firmware.clone()),
        };
        let redfish_version = json::word(&root.fields, "RedfishVersion");
        Ok(Discovery { identity, redfish_version, system: info, manager, slots })
    }
}

impl Core {
    /// The paths of a collection's members, page by page.
    async fn members(&self, path: &str) -> Result<Vec<String>, RedfishError> {
        let mut members: Vec<String> = Vec::new();
        let mut pages = vec![path.to_owned()];
        while let Some(page) = pages.last() {
            let page = self.read(OPERATION, page).await?;
            for member in json::links(&page.fields, "Members") {
                if members.len() < MAX_MEMBERS && !members.contains(&member) {
                    members.push(member);
                }
            }
            let next =
                page.fields.get("Members@odata.nextLink").and_then(Value::as_str).and_then(json::path_of);
            match next {
                Some(next) if pages.len() < MAX_PAGES && !pages.contains(&next) => pages.push(next),
                _ => break,
            }
        }
        Ok(members)
    }

    async fn find_system(
        &self,
        root: &Resource,
        selector: &SystemSelector,
    ) -> Result<Resource, RedfishError> {
        let Some(collection) = json::link(&root.fields, "Systems") else {
            return Err(RedfishError::not_supported(OPERATION, "the service root has no Systems"));
        };
        if let Some(uri) = selector.uri.as_deref().and_then(json::path_of) {
            return self.read(OPERATION, &uri).await;
        }
        let members = self.members(&collection).await?;
        if let [only] = members.as_slice() {
            return self.read(OPERATION, only).await;
        }
        // One of several may fail for good, an accelerator board while the host is off: a glance must do, and
        // patience is for the case that nothing else is the host.
        let (mut systems, mut failed) = (Vec::new(), Vec::new());
        for member in members {
            let seen =
                self.glance(OPERATION, &member).await.and_then(|answer| self.resource(OPERATION, &answer));
            match seen {
                Ok(system) => systems.push(system),
                Err(error) if error.is_transient() || error.status().is_some() => failed.push(member),
                Err(error) => return Err(error),
            }
        }
        if let Some(host) = choose(&systems, selector) {
            return Ok(systems.swap_remove(host));
        }
        for member in failed {
            systems.push(self.read(OPERATION, &member).await?);
        }
        if let Some(host) = choose(&systems, selector) {
            return Ok(systems.swap_remove(host));
        }
        let kind = if systems.is_empty() {
            ErrorKind::BadAnswer { detail: "the collection of systems is empty".to_owned(), lasting: false }
        } else {
            let paths: Vec<&str> = systems.iter().map(|system| system.path.as_str()).collect();
            let detail = format!("several systems and none is certainly the host: {}", paths.join(", "));
            ErrorKind::Config { detail }
        };
        Err(RedfishError::new(OPERATION, kind))
    }

    /// Reads the types a reset accepts from `@Redfish.ActionInfo` when the action itself lists none.
    async fn complete_reset_types(
        &self,
        system: &Resource,
        info: &mut SystemInfo,
    ) -> Result<(), RedfishError> {
        let Some(reset) = info.reset.as_mut().filter(|reset| reset.allowed.is_empty()) else { return Ok(()) };
        let action = json::action(&system.fields, "#ComputerSystem.Reset");
        let path = action.and_then(|action| json::word(action, "@Redfish.ActionInfo"));
        let Some(path) = path.and_then(|path| json::path_of(&path)) else { return Ok(()) };
        let Some(details) = self.read_optional(&path).await? else { return Ok(()) };
        let parameters = details.fields.get("Parameters").and_then(Value::as_array);
        let names = parameters.into_iter().flatten().take(json::MAX_ENTRIES).filter_map(Value::as_object);
        let types = names.filter(|parameter| json::word(parameter, "Name").as_deref() == Some("ResetType"));
        reset.allowed =
            types.flat_map(|parameter| reset_types(&json::texts(parameter, "AllowableValues"))).collect();
        Ok(())
    }

    async fn managers(&self, root: &Resource, system: &Resource) -> Result<Vec<Resource>, RedfishError> {
        let links = json::member(&system.fields, "Links");
        let mut paths = links.map(|links| json::links(links, "ManagedBy")).unwrap_or_default();
        if paths.is_empty()
            && let Some(collection) = json::link(&root.fields, "Managers")
        {
            paths = self.members(&collection).await?;
        }
        let mut managers = Vec::new();
        for path in paths.iter().take(MAX_MANAGERS) {
            managers.extend(self.read_optional(path).await?);
        }
        Ok(managers)
    }

    /// The slots of the first place that has any which take media; else of the first that has any.
    async fn slots(&self, system: &Resource, managers: &[Resource]) -> Result<Vec<Slot>, RedfishError> {
        let mut homes: Vec<&Resource> = managers.iter().collect();
        match self.profile.media_home {
            MediaHome::System => homes.insert(0, system),
            MediaHome::Manager => homes.push(system),
        }
        let mut collections: Vec<String> = Vec::new();
        let mut fallback: Vec<Slot> = Vec::new();
        for home in homes {
            let Some(collection) = json::link(&home.fields, "VirtualMedia") else { continue };
            if collections.contains(&collection) {
                continue;
            }
            let members = match self.members(&collection).await {
                Ok(members) => members,
                Err(error) if is_absent(&error) => Vec::new(),
                Err(error) => return Err(error),
            };
            collections.push(collection);
            let mut slots = Vec::new();
            for member in members.iter().take(MAX_SLOTS) {
                slots.extend(self.read_optional(member).await?.as_ref().map(Slot::of));
            }
            if slots.iter().any(Slot::takes_media) {
                return Ok(slots);
            }
            if fallback.is_empty() {
                fallback = slots;
            }
        }
        Ok(fallback)
    }

    /// Reads what the whole does not depend on: an answer that it cannot be had counts as absent.
    async fn read_optional(&self, path: &str) -> Result<Option<Resource>, RedfishError> {
        match self.read(OPERATION, path).await {
            Ok(resource) => Ok(Some(resource)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
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

/// The index of the host among several systems.
fn choose(systems: &[Resource], selector: &SystemSelector) -> Option<usize> {
    let only = |fits: &dyn Fn(&Resource) -> bool| {
        let mut fitting = systems.iter().enumerate().filter(|(_, system)| fits(system));
        fitting.next().map(|(at, _)| at).filter(|_| fitting.next().is_none())
    };
    let is_host = |system: &Resource| {
        let info = SystemInfo::of(system);
        let links = json::member(&system.fields, "Links");
        let managed = links.is_some_and(|links| !json::links(links, "ManagedBy").is_empty());
        let media = json::link(&system.fields, "VirtualMedia").is_some();
        info.reset.is_some() && info.boot.is_some_and(|boot| boot.target.is_some()) && (managed || media)
    };
    let named = |system: &Resource| {
        let serial = selector.serial.as_deref();
        serial.is_some_and(|serial| SystemInfo::of(system).matches_serial(serial) == SerialMatch::Match)
    };
    only(&named)
        .or_else(|| only(&|system| named(system) && is_host(system)))
        .or_else(|| only(&is_host))
        .or_else(|| only(&|system| SystemInfo::of(system).reset.is_some()))
}
