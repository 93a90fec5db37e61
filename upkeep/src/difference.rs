//! The differences between two out-of-band inventories, in sentences. Pure.
//!
//! ```text
//!   entries are matched by id     only before -> "gone"     only now -> "new"     both, unequal -> the members that differ
//! ```
//!
//! Invariant: a part that one of the reads could not show whole is not compared. An unreadable drive is no removed drive.

use std::collections::BTreeMap;

use redfish::Hardware;
use redfish::hardware::ManagerSummary;
use serde::Serialize;
use serde_json::{Map, Value};

/// Members that change without a change of the hardware.
const VOLATILE: [&str; 2] = ["link", "speed_mbps"];

/// Members of an entry of the firmware by which a BMC describes it. Their versions are compared.
const OF_FIRMWARE: [&str; 6] = ["uri", "software_id", "manufacturer", "release_date", "state", "related"];

/// The parts that are lists, by their member in [`Hardware`], with the word for one entry.
const PARTS: [(&str, &str); 6] = [
    ("processors", "processor"),
    ("memory", "memory module"),
    ("drives", "drive"),
    ("nics", "network interface"),
    ("power_supplies", "power supply"),
    ("firmware", "firmware"),
];

/// Describes the differences between two out-of-band inventories in sentences; empty if no compared part differs.
pub fn between(before: &Hardware, now: &Hardware) -> Vec<String> {
    let (before_json, now_json) = (object(before), object(now));
    let mut changes = Vec::new();
    if let (Some(before), Some(now)) = (member(&before_json, "system"), member(&now_json, "system")) {
        changes.extend(members("system", before, now));
    }
    // An inventory of an earlier version of the program has no manager.
    let has_manager = before.manager != ManagerSummary::default();
    if let (true, Some(before), Some(now)) =
        (has_manager, member(&before_json, "manager"), member(&now_json, "manager"))
    {
        changes.extend(members("manager", before, now));
    }
    let is_whole = |hardware: &Hardware, part: &str| {
        !hardware.incomplete.iter().any(|why| why.split(':').next() == Some(part))
    };
    for (part, word) in PARTS {
        if is_whole(before, part) && is_whole(now, part) {
            changes.extend(entries(word, &by_id(&before_json, part), &by_id(&now_json, part)));
        }
    }
    changes
}

/// The inventory in one sentence.
pub fn summary(hardware: &Hardware) -> String {
    let memory: u64 = hardware.memory.iter().filter_map(|module| module.capacity_mib).sum();
    let memory = match (memory, hardware.system.memory_gib) {
        (0, Some(gib)) => format!("{gib} GiB memory"),
        (0, None) => "memory not shown".to_owned(),
        (mib, _) => format!("{} GiB memory in {} modules", mib / 1024, hardware.memory.len()),
    };
    let model = hardware.system.model.as_deref().unwrap_or("unknown model");
    format!(
        "{model}: {} processors, {memory}, {} drives, {} network interfaces, {} power supplies, {} firmware entries",
        hardware.processors.len(),
        hardware.drives.len(),
        hardware.nics.len(),
        hardware.power_supplies.len(),
        hardware.firmware.len(),
    )
}

fn object(hardware: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(hardware) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Map<String, Value>> {
    object.get(name)?.as_object()
}

fn by_id<'a>(hardware: &'a Map<String, Value>, part: &str) -> BTreeMap<&'a str, &'a Map<String, Value>> {
    let entries = hardware.get(part).and_then(Value::as_array).into_iter().flatten();
    let entries = entries.filter_map(Value::as_object);
    entries.filter_map(|entry| Some((entry.get("id")?.as_str()?, entry))).collect()
}

fn entries(
    word: &str,
    before: &BTreeMap<&str, &Map<String, Value>>,
    now: &BTreeMap<&str, &Map<String, Value>>,
) -> Vec<String> {
    let mut changes = Vec::new();
    for (id, entry) in before {
        match now.get(id) {
            None => changes.push(format!("{word} {id} is gone{}", described(entry))),
            Some(other) => changes.extend(members(&format!("{word} {id}"), entry, other)),
        }
    }
    let new = now.iter().filter(|(id, _)| !before.contains_key(*id));
    changes.extend(new.map(|(id, entry)| format!("{word} {id} is new{}", described(entry))));
    changes
}

/// Model and serial number of an entry, if it shows any.
fn described(entry: &Map<String, Value>) -> String {
    let words = ["model", "part_number", "mac", "version", "serial"];
    let shown: Vec<&str> = words.iter().filter_map(|word| entry.get(*word)?.as_str()).collect();
    if shown.is_empty() { String::new() } else { format!(" ({})", shown.join(" ")) }
}

fn members(what: &str, before: &Map<String, Value>, now: &Map<String, Value>) -> Vec<String> {
    let shown = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "not shown".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let changed = before.iter().filter(|(name, value)| {
        let name = name.as_str();
        let describes = VOLATILE.contains(&name) || OF_FIRMWARE.contains(&name) && before.contains_key("uri");
        !describes && now.get(name).unwrap_or(&Value::Null) != *value
    });
    changed
        .map(|(name, value)| {
            format!("{what}: {name} was {}, is {}", shown(Some(value)), shown(now.get(name)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use redfish::hardware::{Drive, MemoryModule, Nic};

    use super::*;

    fn drive(id: &str, serial: &str) -> Drive {
        Drive { id: id.to_owned(), serial: Some(serial.to_owned()), ..Drive::default() }
    }

    #[test]
    fn an_exchanged_drive_a_lost_module_and_a_new_interface_are_named() {
        let before = Hardware {
            drives: vec![drive("1/0", "A"), drive("1/1", "B")],
            memory: vec![MemoryModule { id: "DIMM1".to_owned(), ..MemoryModule::default() }],
            ..Hardware::default()
        };
        let now = Hardware {
            drives: vec![drive("1/0", "A"), drive("1/1", "C")],
            nics: vec![Nic { id: "1".to_owned(), mac: Some("aa:00".to_owned()), ..Nic::default() }],
            ..Hardware::default()
        };
        assert_eq!(
            between(&before, &now),
            [
                "memory module DIMM1 is gone",
                "drive 1/1: serial was B, is C",
                "network interface 1 is new (aa:00)"
            ]
        );
        assert!(between(&now, &now).is_empty());
    }

    #[test]
    fn a_part_that_was_not_read_whole_is_not_compared() {
        let before = Hardware { drives: vec![drive("1/0", "A")], ..Hardware::default() };
        let incomplete = vec!["drives: /redfish/v1/x: not found".to_owned()];
        assert!(between(&before, &Hardware { incomplete, ..Hardware::default() }).is_empty());
    }

    #[test]
    fn an_inventory_of_an_earlier_version_of_the_program_differs_only_in_what_it_shows() {
        let before = serde_json::json!({ "firmware": [
            { "id": "BIOS", "name": "BIOS", "version": "1.0", "updateable": true },
            { "id": "BMC", "name": "BMC", "version": "2.0", "updateable": true },
        ]});
        let before: Hardware = serde_json::from_value(before).unwrap();
        let mut now = before.clone();
        now.manager.firmware_version = Some("2.0".into());
        for item in &mut now.firmware {
            item.uri = format!("/redfish/v1/UpdateService/FirmwareInventory/{}", item.id);
            item.state = Some("Enabled".to_owned());
            item.related = vec!["/redfish/v1/Systems/1".to_owned()];
        }
        assert!(between(&before, &now).is_empty(), "{:?}", between(&before, &now));
        let mut later = now.clone();
        later.firmware[0].version = Some("1.1".into());
        later.manager.firmware_version = Some("2.1".into());
        assert_eq!(
            between(&now, &later),
            ["manager: firmware_version was 2.0, is 2.1", "firmware BIOS: version was 1.0, is 1.1"]
        );
    }

    #[test]
    fn a_link_that_goes_down_is_no_change_of_the_hardware() {
        let nic = |link: &str| Nic { id: "1".to_owned(), link: Some(link.to_owned()), ..Nic::default() };
        let with = |nic| Hardware { nics: vec![nic], ..Hardware::default() };
        assert!(between(&with(nic("LinkUp")), &with(nic("LinkDown"))).is_empty());
    }
}
