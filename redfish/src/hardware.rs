//! Reads what a server is made of, out of band: processors, memory, drives, network interfaces, power supplies, firmware.
//!
//! ```text
//!   System ─┬─ Processors ── {n}                       Chassis ─┬─ NetworkAdapters (not read: their ports repeat the interfaces)
//!           ├─ Memory ── {n}                                    ├─ PowerSubsystem/PowerSupplies ── {n}
//!           ├─ Storage ── {n} ── Drives[] ── {m}                └─ Power.PowerSupplies[]         (older BMCs)
//!           ├─ SimpleStorage ── {n}.Devices[]  (older BMCs)
//!           └─ EthernetInterfaces ── {n}                UpdateService/FirmwareInventory ── {n}
//! ```
//!
//! Invariants
//! - One read costs at most [`MAX_REQUESTS`] requests, and each list has at most [`MAX_ITEMS`] entries, the firmware as many as
//!   [`Bmc::firmware_inventory`]. What is left out for that reason, or because a resource cannot be read, is named in
//!   [`Hardware::incomplete`]: a list that misses a part is never shown as whole.
//! - An entry of the firmware is the [`SoftwareItem`] that an update sees, so that a plan of a stored inventory is the plan of the
//!   update.
//! - Entries are sorted by id, so two reads of an unchanged machine are equal.
//! - Nothing is changed. Text is bounded by the JSON layer.
//!
//! Specification: DSP0268 Processor, Memory, Drive, EthernetInterface, PowerSupply, SoftwareInventory.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::bmc::Bmc;
use crate::collection::MAX_MEMBERS;
use crate::discovery::{Discovery, ManagerInfo};
use crate::endpoint::SERVICE_ROOT;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::json::{self, Resource};
use crate::update::{MAX_ITEMS as MAX_FIRMWARE, SoftwareItem};
use crate::version::FirmwareVersion;

const OPERATION: Operation = Operation::Inventory;
/// The maximum of requests of one read.
pub const MAX_REQUESTS: u32 = 400;
/// The maximum of entries of one list.
pub const MAX_ITEMS: usize = 128;
/// The part that the firmware inventory is, in [`Hardware::incomplete`].
const FIRMWARE: &str = "firmware";

/// The hardware of a server, as its BMC shows it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Hardware {
    /// Manufacturer, model and serial number of the system.
    pub system: SystemSummary,
    /// Model and firmware of the manager; empty in an inventory of an earlier version of this program.
    pub manager: ManagerSummary,
    /// The processors.
    pub processors: Vec<Processor>,
    /// The memory modules.
    pub memory: Vec<MemoryModule>,
    /// The drives.
    pub drives: Vec<Drive>,
    /// The network interfaces.
    pub nics: Vec<Nic>,
    /// The power supplies.
    pub power_supplies: Vec<PowerSupply>,
    /// The firmware inventory.
    pub firmware: Vec<SoftwareItem>,
    /// The parts that could not be read whole, each with the reason.
    pub incomplete: Vec<String>,
}

/// The summary of a system, as the system resource itself shows it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct SystemSummary {
    /// The `Manufacturer` of the system.
    pub manufacturer: Option<String>,
    /// The `Model` of the system.
    pub model: Option<String>,
    /// The `SerialNumber` of the system.
    pub serial: Option<String>,
    /// The `UUID` of the system.
    pub uuid: Option<String>,
    /// The `BiosVersion` of the system.
    pub bios_version: Option<String>,
    /// The `AssetTag` of the system.
    pub asset_tag: Option<String>,
    /// `MemorySummary.TotalSystemMemoryGiB`.
    pub memory_gib: Option<u64>,
}

/// The summary of a manager, as the manager resource itself shows it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct ManagerSummary {
    /// The `Model` of the manager.
    pub model: Option<String>,
    /// `FirmwareVersion`.
    pub firmware_version: Option<FirmwareVersion>,
}

/// A processor.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Processor {
    /// The `Id` of the processor.
    pub id: String,
    /// The `Manufacturer` of the processor.
    pub manufacturer: Option<String>,
    /// The `Model` of the processor.
    pub model: Option<String>,
    /// `ProcessorType`, such as CPU or GPU.
    pub kind: Option<String>,
    /// The number of cores, `TotalCores`.
    pub cores: Option<u64>,
    /// The number of threads, `TotalThreads`.
    pub threads: Option<u64>,
    /// The health of the processor, `Status.Health`.
    pub health: Option<String>,
}

/// A memory module.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct MemoryModule {
    /// The `Id` of the memory module.
    pub id: String,
    /// The `Manufacturer` of the memory module.
    pub manufacturer: Option<String>,
    /// The `PartNumber` of the memory module.
    pub part_number: Option<String>,
    /// The `SerialNumber` of the memory module.
    pub serial: Option<String>,
    /// The capacity in MiB, `CapacityMiB`.
    pub capacity_mib: Option<u64>,
    /// `OperatingSpeedMhz`.
    pub speed_mhz: Option<u64>,
    /// The health of the memory module, `Status.Health`.
    pub health: Option<String>,
}

/// A drive.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Drive {
    /// The id of the storage of the drive, and the `Id` of the drive.
    pub id: String,
    /// The `Manufacturer` of the drive.
    pub manufacturer: Option<String>,
    /// The `Model` of the drive.
    pub model: Option<String>,
    /// The `SerialNumber` of the drive.
    pub serial: Option<String>,
    /// The firmware of the drive, `Revision`.
    pub firmware: Option<String>,
    /// The `MediaType` of the drive.
    pub media: Option<String>,
    /// The `Protocol` of the drive.
    pub protocol: Option<String>,
    /// The capacity in bytes, `CapacityBytes`.
    pub capacity_bytes: Option<u64>,
    /// The health of the drive, `Status.Health`.
    pub health: Option<String>,
}

/// A network interface of the host.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Nic {
    /// The `Id` of the network interface.
    pub id: String,
    /// `PermanentMACAddress`, else `MACAddress`; in lower case with colons.
    pub mac: Option<String>,
    /// The state of the link, `LinkStatus`.
    pub link: Option<String>,
    /// The speed of the link in Mbit/s, `SpeedMbps`.
    pub speed_mbps: Option<u64>,
    /// The health of the network interface, `Status.Health`.
    pub health: Option<String>,
}

/// A power supply.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct PowerSupply {
    /// `Id`, else `MemberId`.
    pub id: String,
    /// The `Model` of the power supply.
    pub model: Option<String>,
    /// The `SerialNumber` of the power supply.
    pub serial: Option<String>,
    /// `FirmwareVersion`.
    pub firmware: Option<String>,
    /// `PowerCapacityWatts`.
    pub capacity_watts: Option<u64>,
    /// The state of the power supply, `Status.State`.
    pub state: Option<String>,
    /// The health of the power supply, `Status.Health`.
    pub health: Option<String>,
}

impl Bmc {
    /// Reads what the server is made of. A part that the BMC does not show, or cannot show now, is left out and named.
    ///
    /// # Errors
    ///
    /// When the BMC does not respond, rejects the credentials, or does not show the system.
    pub async fn hardware(&self, found: &Discovery) -> Result<Hardware, RedfishError> {
        let mut reader = Reader { bmc: self, left: MAX_REQUESTS, incomplete: Vec::new() };
        let _first = reader.spend();
        let root = self.core.read(OPERATION, &found.system.uri).await?;
        let manager = found.manager.as_ref().map(ManagerSummary::of).unwrap_or_default();
        let mut found = Hardware { system: SystemSummary::of(&root), manager, ..Hardware::default() };
        found.processors = reader.list(&root.fields, "Processors", "processors", processor).await?;
        found.memory = reader.list(&root.fields, "Memory", "memory", memory_module).await?;
        found.drives = reader.drives(&root.fields).await?;
        found.nics = reader.list(&root.fields, "EthernetInterfaces", "nics", nic).await?;
        let links = json::member(&root.fields, "Links");
        let chassis = links.map(|links| json::links(links, "Chassis")).unwrap_or_default();
        found.power_supplies = reader.power_supplies(&chassis).await?;
        found.firmware = reader.firmware().await?;
        found.incomplete = reader.incomplete;
        found.sort();
        Ok(found)
    }
}

impl Hardware {
    /// The number of reads of the firmware inventory that are missing, of members or of all of it.
    pub fn unread_firmware(&self) -> usize {
        let of_firmware =
            |why: &&String| why.strip_prefix(FIRMWARE).is_some_and(|rest| rest.starts_with(':'));
        self.incomplete.iter().filter(of_firmware).count()
    }

    fn sort(&mut self) {
        self.processors.sort_by(|one, other| one.id.cmp(&other.id));
        self.memory.sort_by(|one, other| one.id.cmp(&other.id));
        self.drives.sort_by(|one, other| one.id.cmp(&other.id));
        self.nics.sort_by(|one, other| one.id.cmp(&other.id));
        self.power_supplies.sort_by(|one, other| one.id.cmp(&other.id));
        self.firmware.sort_by(|one, other| one.id.cmp(&other.id));
    }
}

/// One read: the requests that are left, and what was left out.
struct Reader<'a> {
    bmc: &'a Bmc,
    left: u32,
    incomplete: Vec<String>,
}

impl Reader<'_> {
    /// Takes one request of the limit; `false` when none is left.
    fn spend(&mut self) -> bool {
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    fn leave_out(&mut self, part: &str, why: impl std::fmt::Display) {
        let sentence = format!("{part}: {why}");
        if self.incomplete.len() < MAX_ITEMS && !self.incomplete.contains(&sentence) {
            self.incomplete.push(sentence);
        }
    }

    /// Reads one resource of a part. A resource that is missing or cannot be shown is left out.
    async fn one(&mut self, part: &str, path: &str) -> Result<Option<Resource>, RedfishError> {
        if !self.spend() {
            self.leave_out(part, format_args!("more than {MAX_REQUESTS} requests"));
            return Ok(None);
        }
        match self.bmc.core.read(OPERATION, path).await {
            Ok(resource) => Ok(Some(resource)),
            Err(error) if is_left_out(&error.kind) => {
                self.leave_out(part, format_args!("{path}: {}", error.kind));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the members of the collection that `fields` links to as `name`.
    async fn list<T>(
        &mut self,
        fields: &Map<String, Value>,
        name: &str,
        part: &str,
        read: fn(&Resource) -> Option<T>,
    ) -> Result<Vec<T>, RedfishError> {
        let Some(path) = json::link(fields, name) else { return Ok(Vec::new()) };
        let resources = self.resources(part, &path, MAX_MEMBERS).await?;
        Ok(resources.iter().filter_map(read).collect())
    }

    /// The first members of a collection, `most` of them, with their contents.
    async fn resources(
        &mut self,
        part: &str,
        path: &str,
        most: usize,
    ) -> Result<Vec<Resource>, RedfishError> {
        if !self.spend() {
            self.leave_out(part, format_args!("more than {MAX_REQUESTS} requests"));
            return Ok(Vec::new());
        }
        let members = match self.bmc.core.members_up_to(OPERATION, path, most).await {
            Ok(members) => members,
            Err(error) if is_left_out(&error.kind) => {
                self.leave_out(part, format_args!("{path}: {}", error.kind));
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        if members.len() >= most {
            self.leave_out(part, format_args!("only the first {most} entries are read"));
        }
        let mut found = Vec::new();
        for member in members {
            match member.resource {
                Some(resource) => found.push(resource),
                None => found.extend(self.one(part, &member.path).await?),
            }
        }
        Ok(found)
    }

    async fn drives(&mut self, system: &Map<String, Value>) -> Result<Vec<Drive>, RedfishError> {
        const PART: &str = "drives";
        let mut found = Vec::new();
        let Some(storage) = json::link(system, "Storage") else { return self.simple_storage(system).await };
        for unit in self.resources(PART, &storage, MAX_MEMBERS).await? {
            let unit_id = json::word(&unit.fields, "Id").unwrap_or_default();
            for path in json::links(&unit.fields, "Drives") {
                if found.len() == MAX_ITEMS {
                    self.leave_out(PART, format_args!("more than {MAX_ITEMS} entries"));
                    return Ok(found);
                }
                let Some(resource) = self.one(PART, &path).await? else { continue };
                let mut drive = drive(&resource.fields);
                drive.id = format!("{unit_id}/{}", drive.id);
                found.push(drive);
            }
        }
        if found.is_empty() {
            return self.simple_storage(system).await;
        }
        Ok(found)
    }

    /// The drives as BMCs without `Storage` show them.
    async fn simple_storage(&mut self, system: &Map<String, Value>) -> Result<Vec<Drive>, RedfishError> {
        let Some(path) = json::link(system, "SimpleStorage") else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for unit in self.resources("drives", &path, MAX_MEMBERS).await? {
            let unit_id = json::word(&unit.fields, "Id").unwrap_or_default();
            let devices = unit.fields.get("Devices").and_then(Value::as_array);
            let devices = devices.into_iter().flatten().filter_map(Value::as_object);
            for (at, device) in devices.take(MAX_ITEMS.saturating_sub(found.len())).enumerate() {
                found.push(Drive { id: format!("{unit_id}/{at}"), ..drive(device) });
            }
        }
        Ok(found)
    }

    async fn power_supplies(&mut self, chassis: &[String]) -> Result<Vec<PowerSupply>, RedfishError> {
        const PART: &str = "power_supplies";
        const MAX_CHASSIS: usize = 8;
        let mut found = Vec::new();
        for path in chassis.iter().take(MAX_CHASSIS) {
            let Some(chassis) = self.one(PART, path).await? else { continue };
            let mut here = Vec::new();
            if let Some(path) = json::link(&chassis.fields, "PowerSubsystem")
                && let Some(subsystem) = self.one(PART, &path).await?
            {
                here = self.list(&subsystem.fields, "PowerSupplies", PART, supply).await?;
            }
            if here.is_empty()
                && let Some(path) = json::link(&chassis.fields, "Power")
                && let Some(power) = self.one(PART, &path).await?
            {
                let supplies = power.fields.get("PowerSupplies").and_then(Value::as_array);
                let supplies = supplies.into_iter().flatten().filter_map(Value::as_object);
                here.extend(supplies.take(MAX_ITEMS).map(supply_of));
            }
            found.extend(here);
        }
        found.truncate(MAX_ITEMS);
        Ok(found)
    }

    async fn firmware(&mut self) -> Result<Vec<SoftwareItem>, RedfishError> {
        const PART: &str = FIRMWARE;
        let Some(root) = self.one(PART, SERVICE_ROOT).await? else { return Ok(Vec::new()) };
        let Some(path) = json::link(&root.fields, "UpdateService") else { return Ok(Vec::new()) };
        let Some(service) = self.one(PART, &path).await? else { return Ok(Vec::new()) };
        let Some(path) = json::link(&service.fields, "FirmwareInventory") else { return Ok(Vec::new()) };
        let resources = self.resources(PART, &path, MAX_FIRMWARE).await?;
        Ok(resources.iter().map(SoftwareItem::of).collect())
    }
}

/// Whether an error concerns one resource and not the BMC.
fn is_left_out(kind: &ErrorKind) -> bool {
    match kind {
        ErrorKind::NotFound { .. }
        | ErrorKind::NotSupported { .. }
        | ErrorKind::Refused { .. }
        | ErrorKind::License { .. }
        | ErrorKind::Server { .. }
        | ErrorKind::BadAnswer { .. } => true,
        ErrorKind::Unauthorized { denial, .. } => *denial == crate::error::DenialReason::Privilege,
        _ => false,
    }
}

impl SystemSummary {
    fn of(system: &Resource) -> Self {
        let word = |name| json::word(&system.fields, name);
        let memory = json::member(&system.fields, "MemorySummary");
        Self {
            manufacturer: word("Manufacturer"),
            model: word("Model"),
            serial: word("SerialNumber"),
            uuid: word("UUID"),
            bios_version: word("BiosVersion"),
            asset_tag: word("AssetTag"),
            memory_gib: memory.and_then(|memory| number(memory, "TotalSystemMemoryGiB")),
        }
    }
}

impl ManagerSummary {
    fn of(manager: &ManagerInfo) -> Self {
        Self { model: manager.model.clone(), firmware_version: manager.firmware.clone() }
    }
}

/// A number that is not negative; a fraction is cut.
fn number(fields: &Map<String, Value>, name: &str) -> Option<u64> {
    let value = fields.get(name)?;
    let cut = |value: f64| (value.is_finite() && (0.0..1e15).contains(&value)).then_some(value as u64);
    value.as_u64().or_else(|| cut(value.as_f64()?)).or_else(|| value.as_str()?.trim().parse().ok())
}

fn status(fields: &Map<String, Value>, name: &str) -> Option<String> {
    json::word(json::member(fields, "Status")?, name)
}

/// Whether the place of a component is empty.
fn is_absent(fields: &Map<String, Value>) -> bool {
    status(fields, "State").is_some_and(|state| state.eq_ignore_ascii_case("absent"))
}

fn id(fields: &Map<String, Value>) -> String {
    json::word(fields, "Id").or_else(|| json::word(fields, "MemberId")).unwrap_or_default()
}

fn processor(resource: &Resource) -> Option<Processor> {
    let fields = &resource.fields;
    (!is_absent(fields)).then(|| Processor {
        id: id(fields),
        manufacturer: json::word(fields, "Manufacturer"),
        model: json::word(fields, "Model"),
        kind: json::word(fields, "ProcessorType"),
        cores: number(fields, "TotalCores"),
        threads: number(fields, "TotalThreads"),
        health: status(fields, "Health"),
    })
}

fn memory_module(resource: &Resource) -> Option<MemoryModule> {
    let fields = &resource.fields;
    let capacity_mib = number(fields, "CapacityMiB");
    // Many BMCs show an empty socket as a module of no size instead of as absent.
    (!is_absent(fields) && capacity_mib != Some(0)).then(|| MemoryModule {
        id: id(fields),
        manufacturer: json::word(fields, "Manufacturer"),
        part_number: json::word(fields, "PartNumber"),
        serial: json::word(fields, "SerialNumber"),
        capacity_mib,
        speed_mhz: number(fields, "OperatingSpeedMhz"),
        health: status(fields, "Health"),
    })
}

fn drive(fields: &Map<String, Value>) -> Drive {
    Drive {
        id: id(fields),
        manufacturer: json::word(fields, "Manufacturer"),
        model: json::word(fields, "Model"),
        serial: json::word(fields, "SerialNumber"),
        firmware: json::word(fields, "Revision").or_else(|| json::word(fields, "FirmwareVersion")),
        media: json::word(fields, "MediaType"),
        protocol: json::word(fields, "Protocol"),
        capacity_bytes: number(fields, "CapacityBytes"),
        health: status(fields, "Health"),
    }
}

fn nic(resource: &Resource) -> Option<Nic> {
    let fields = &resource.fields;
    let mac = json::word(fields, "PermanentMACAddress").or_else(|| json::word(fields, "MACAddress"));
    (!is_absent(fields)).then(|| Nic {
        id: id(fields),
        mac: mac.map(|mac| mac.to_ascii_lowercase().replace('-', ":")),
        link: json::word(fields, "LinkStatus"),
        speed_mbps: number(fields, "SpeedMbps"),
        health: status(fields, "Health"),
    })
}

fn supply(resource: &Resource) -> Option<PowerSupply> {
    (!is_absent(&resource.fields)).then(|| supply_of(&resource.fields))
}

fn supply_of(fields: &Map<String, Value>) -> PowerSupply {
    PowerSupply {
        id: id(fields),
        model: json::word(fields, "Model"),
        serial: json::word(fields, "SerialNumber"),
        firmware: json::word(fields, "FirmwareVersion"),
        capacity_watts: number(fields, "PowerCapacityWatts"),
        state: status(fields, "State"),
        health: status(fields, "Health"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(body: Value) -> Resource {
        Resource::new("/redfish/v1/x", &http::HeaderMap::new(), body.as_object().unwrap().clone())
    }

    #[test]
    fn an_empty_socket_is_no_component() {
        let absent = resource(serde_json::json!({ "Id": "DIMM1", "Status": { "State": "Absent" } }));
        let empty = resource(serde_json::json!({ "Id": "DIMM2", "CapacityMiB": 0 }));
        let module = resource(serde_json::json!({ "Id": "DIMM3", "CapacityMiB": "16384" }));
        assert_eq!((memory_module(&absent), memory_module(&empty)), (None, None));
        assert_eq!(memory_module(&module).unwrap().capacity_mib, Some(16384), "a number in a string");
    }

    #[test]
    fn the_address_of_an_interface_has_one_form() {
        let found =
            nic(&resource(serde_json::json!({ "Id": "1", "MACAddress": "AA-BB-CC-00-11-22" }))).unwrap();
        assert_eq!(found.mac.as_deref(), Some("aa:bb:cc:00:11:22"));
    }

    #[test]
    fn a_number_that_no_hardware_has_is_left_out() {
        for (value, wanted) in [
            (serde_json::json!(-1), None),
            (serde_json::json!(1e300), None),
            (serde_json::json!(2.9), Some(2)),
            (serde_json::json!("x"), None),
        ] {
            let fields = resource(serde_json::json!({ "n": value }));
            assert_eq!(number(&fields.fields, "n"), wanted, "{value}");
        }
    }
}
