//! The hardware below the system and the chassis, as resources.
//!
//! ```text
//!   System ─┬─ Processors ── CPU{n}                       Chassis ── PowerSubsystem ── PowerSupplies ── PSU{n}
//!           ├─ Memory ── DIMM{n}, and one empty socket
//!           ├─ Storage ── 1 ── Drives ── {n}
//!           └─ EthernetInterfaces ── {n}
//! ```
//!
//! Reference: DSP0268.

use serde_json::{Value, json};

use super::{parts::Part, resources::View, routes::Resource};

impl View<'_> {
    /// Links from the system to its parts.
    pub(super) fn link_hardware(&self, system: &mut Value) {
        for (name, part) in [
            ("Processors", Part::Processors),
            ("Memory", Part::MemoryAll),
            ("Storage", Part::StorageAll),
            ("EthernetInterfaces", Part::Interfaces),
        ] {
            system[name] = self.link(&Resource::Part(part));
        }
    }

    /// The members of a collection of parts; `None` for a part that is no collection.
    pub(super) fn parts(&self, part: Part) -> Option<(&'static str, &'static str, Vec<Resource>)> {
        let hardware = &self.config.hardware;
        let all = |count: usize, part: fn(usize) -> Part| (0..count).map(part).map(Resource::Part).collect();
        Some(match part {
            Part::Processors => {
                ("ProcessorCollection", "Processors", all(hardware.processors, Part::Processor))
            }
            Part::MemoryAll => ("MemoryCollection", "Memory", all(hardware.memory_modules + 1, Part::Memory)),
            Part::StorageAll => ("StorageCollection", "Storage", vec![Resource::Part(Part::Storage)]),
            Part::Interfaces => (
                "EthernetInterfaceCollection",
                "Ethernet Interfaces",
                all(hardware.interfaces, Part::Interface),
            ),
            Part::PowerSupplies => {
                ("PowerSupplyCollection", "Power Supplies", all(hardware.power_supplies, Part::PowerSupply))
            }
            _ => return None,
        })
    }

    /// The body of a part that is no collection.
    pub(super) fn part(&self, part: Part) -> Option<Value> {
        let healthy = json!({ "State": "Enabled", "Health": "OK" });
        let hardware = &self.config.hardware;
        let serial = &self.config.serial;
        Some(match part {
            Part::Processor(index) => json!({
                "@odata.type": "#Processor.v1_18_0.Processor", "Id": format!("CPU{index}"), "Name": "Processor",
                "ProcessorType": "CPU", "Manufacturer": "Contoso", "Model": "Deep Thought 42", "TotalCores": 32,
                "TotalThreads": 64, "Status": healthy,
            }),
            Part::Memory(index) if index == hardware.memory_modules => json!({
                "@odata.type": "#Memory.v1_17_1.Memory", "Id": format!("DIMM{index}"), "Name": "Memory",
                "Status": { "State": "Absent" },
            }),
            Part::Memory(index) => json!({
                "@odata.type": "#Memory.v1_17_1.Memory", "Id": format!("DIMM{index}"), "Name": "Memory",
                "Manufacturer": "Contoso", "PartNumber": "M393A4K40", "SerialNumber": format!("{serial}-M{index}"),
                "CapacityMiB": 32768, "OperatingSpeedMhz": 3200, "Status": healthy,
            }),
            Part::Storage => {
                let drives = (0..hardware.drives.len()).map(|n| self.link(&Resource::Part(Part::Drive(n))));
                json!({
                    "@odata.type": "#Storage.v1_15_0.Storage", "Id": "1", "Name": "Storage", "Status": healthy,
                    "Drives@odata.count": hardware.drives.len(), "Drives": drives.collect::<Vec<Value>>(),
                })
            }
            Part::Drive(index) => json!({
                "@odata.type": "#Drive.v1_17_0.Drive", "Id": index.to_string(), "Name": "Drive",
                "Manufacturer": "Contoso", "Model": "NVMe 960", "SerialNumber": hardware.drives.get(index),
                "Revision": "1.2.0", "MediaType": "SSD", "Protocol": "NVMe", "CapacityBytes": 960_197_124_096_u64,
                "Status": healthy,
            }),
            Part::Interface(index) => json!({
                "@odata.type": "#EthernetInterface.v1_9_0.EthernetInterface", "Id": index.to_string(),
                "Name": "Ethernet Interface", "MACAddress": format!("02:00:00:00:00:{index:02X}"),
                "LinkStatus": if index == 0 { "LinkUp" } else { "LinkDown" },
                "SpeedMbps": if index == 0 { json!(25_000) } else { Value::Null }, "Status": healthy,
            }),
            Part::PowerSubsystem => json!({
                "@odata.type": "#PowerSubsystem.v1_1_0.PowerSubsystem", "Id": "PowerSubsystem",
                "Name": "Power Subsystem", "PowerSupplies": self.link(&Resource::Part(Part::PowerSupplies)),
            }),
            Part::PowerSupply(index) => json!({
                "@odata.type": "#PowerSupply.v1_5_1.PowerSupply", "Id": format!("PSU{index}"), "Name": "Power Supply",
                "Model": "PWR-800", "SerialNumber": format!("{serial}-P{index}"), "FirmwareVersion": "1.00",
                "PowerCapacityWatts": 800, "Status": healthy,
            }),
            _ => return None,
        })
    }
}
