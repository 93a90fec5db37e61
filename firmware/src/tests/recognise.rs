//! Which member of an inventory is which component.

use redfish::{Hardware, SoftwareItem};
use serde_json::json;

use crate::{Component, OwnVersions, ServerFirmware, ShownFirmware, candidates, recognise, running};

fn shown(id: &str, name: &str, version: &str, related: &[&str]) -> ShownFirmware {
    ShownFirmware {
        id: id.to_owned(),
        name: Some(name.to_owned()),
        version: Some(version.into()),
        related: related.iter().map(|path| (*path).to_owned()).collect(),
        active: true,
        ..ShownFirmware::default()
    }
}

fn found(items: &[ShownFirmware], own: &OwnVersions) -> Vec<(Component, String, String)> {
    let all = recognise(items, own).into_iter().map(|one| one.installed);
    all.map(|one| (one.component, one.id, one.version.map(|version| version.to_string()).unwrap_or_default()))
        .collect()
}

const MANAGER: &str = "/redfish/v1/Managers/1";
const SYSTEM: &str = "/redfish/v1/Systems/1";
const BIOS: &str = "/redfish/v1/Systems/system/Bios";

#[test]
fn names_ids_and_related_resources_name_the_component() {
    let own = OwnVersions::default();
    for (id, name, related, component, kept) in [
        ("Installed-159-1.10.2", "BIOS", None, Component::Bios, "Installed-159"),
        (
            "Installed-25227-1.10.2",
            "Integrated Dell Remote Access Controller",
            None,
            Component::Bmc,
            "Installed-25227",
        ),
        ("2", "System ROM", None, Component::Bios, "2"),
        ("1", "iLO 6", None, Component::Bmc, "1"),
        ("BMC", "Management controller", Some(MANAGER), Component::Bmc, "BMC"),
        ("bios_active", "Host image", Some(SYSTEM), Component::Bios, "bios_active"),
        ("1a2b3c4d", "Software Inventory", Some(MANAGER), Component::Bmc, "1a2b3c4d"),
        ("5e6f7a8b", "Software Inventory", Some(BIOS), Component::Bios, "5e6f7a8b"),
        ("UEFI", "UEFI firmware", None, Component::Bios, "UEFI"),
        ("FW_CPLD_0", "CPLD", None, Component::Cpld, "FW_CPLD_0"),
        ("NIC1", "Network adapter", None, Component::Nic, "NIC1"),
    ] {
        let related: Vec<&str> = related.into_iter().collect();
        let item = shown(id, name, "1.10.2", &related);
        assert_eq!(found(&[item], &own), [(component, kept.to_owned(), "1.10.2".to_owned())], "{id} {name}");
    }
    let unknown = shown("x", "Front panel", "1", &[]);
    assert_eq!(found(&[unknown], &own), []);
}

#[test]
fn of_several_members_the_one_that_the_machine_runs_is_taken() {
    let own = OwnVersions { bmc: Some("2.10".into()), bios: None };
    let items = [
        shown("BMC-A", "BMC firmware", "2.05", &[]),
        shown("BMC-B", "BMC firmware", "2.10", &[]),
        shown("BMC-Backup", "BMC firmware", "2.10", &[]),
        ShownFirmware { active: false, ..shown("BMC-C", "BMC firmware", "2.10", &[]) },
    ];
    let expected = [(Component::Bmc, "BMC-B".to_owned(), "2.10".to_owned())];
    assert_eq!(found(&items, &own), expected);
    let mut turned = items.to_vec();
    turned.reverse();
    assert_eq!(found(&turned, &own), expected, "the order changes nothing");
}

#[test]
fn the_version_that_runs_is_taken_whole_and_not_as_the_beginning_of_another() {
    let items = [
        shown("BMC-A", "BMC firmware", "2.1", &[]),
        shown("BMC-B", "BMC firmware", "2.10", &[]),
        shown("ROM-1", "System ROM", "U30 v2.36 (07/16/2020)", &[]),
        shown("ROM-2", "System ROM", "U30 v2.40 (01/02/2021)", &[]),
    ];
    for (bmc, bios, expected) in [
        ("2.1", "U30 v2.36 (07/16/2020)", ["BMC-A", "ROM-1"]),
        ("2.10", "U30 v2.40 (01/02/2021)", ["BMC-B", "ROM-2"]),
        ("2.10 build 7", "2.36", ["BMC-B", "ROM-1"]),
    ] {
        let own = OwnVersions { bmc: Some(bmc.into()), bios: Some(bios.into()) };
        let ids: Vec<String> = found(&items, &own).into_iter().map(|(_, id, _)| id).collect();
        assert_eq!(ids, expected, "{bmc} {bios}");
        for (component, id) in [Component::Bmc, Component::Bios].into_iter().zip(expected) {
            let all = candidates(&items, component);
            assert_eq!(running(&all, component, &own).unwrap().installed.id, id, "as for the plan");
        }
    }
    let own = OwnVersions { bmc: Some("9.9".into()), bios: None };
    let all = candidates(&items, Component::Bmc);
    assert_eq!(running(&all, Component::Bmc, &own), None, "none of them has the version that runs");
}

#[test]
fn what_only_the_manager_and_the_system_show_is_known_too() {
    let own = OwnVersions { bmc: Some("2.10".into()), bios: Some("U30".into()) };
    assert_eq!(
        found(&[], &own),
        [
            (Component::Bmc, "bmc".to_owned(), "2.10".to_owned()),
            (Component::Bios, "bios".to_owned(), "U30".to_owned())
        ]
    );
}

#[test]
fn two_devices_of_one_kind_keep_different_ids_after_an_update() {
    let own = OwnVersions::default();
    let ids = |version: &str| {
        let slot = |slot: u32| {
            shown(
                &format!("Installed-105442-{version}__NIC.Slot.{slot}-1-1"),
                "Network adapter",
                version,
                &[],
            )
        };
        let all = found(&[slot(1), slot(2)], &own);
        all.into_iter().map(|(_, id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(ids("22.00.6"), ["Installed-105442__NIC.Slot.1-1-1", "Installed-105442__NIC.Slot.2-1-1"]);
    assert_eq!(ids("22.00.6"), ids("23.10"));
    let same = [shown("NIC-22.00.6", "NIC", "22.00.6", &[]), shown("NIC_22.00.6", "NIC", "22.00.6", &[])];
    assert_eq!(found(&same, &own).len(), 2);
    let stored = SoftwareItem {
        id: "Previous-159-1".to_owned(),
        name: Some("BIOS".to_owned()),
        ..SoftwareItem::default()
    };
    assert_eq!(found(&[ShownFirmware::from(&stored)], &own), []);
}

/// The firmware of a stored inventory: component, id, version, and the vendor of a device.
fn stored(hardware: serde_json::Value) -> Vec<(Component, String, Option<String>, Option<String>)> {
    let hardware: Hardware = serde_json::from_value(hardware).unwrap();
    let all = ServerFirmware::of(&hardware).unwrap().installed.into_iter();
    all.map(|one| {
        let version = one.version.map(|version| version.to_string());
        (one.component, one.id, version, one.vendor.map(|vendor| vendor.to_string()))
    })
    .collect()
}

#[test]
fn a_stored_inventory_has_the_components_that_the_bmc_showed() {
    let item = |id: &str, version: &str, related: &str, state: &str| {
        json!({
            "uri": format!("/redfish/v1/UpdateService/FirmwareInventory/{id}"), "id": id, "name": "Software Inventory",
            "version": version, "updateable": true, "related": [related], "state": state,
        })
    };
    let nic =
        json!({ "id": "NIC1", "name": "Network adapter", "version": "22.1", "manufacturer": "Contoso" });
    let found = stored(json!({
        "system": { "manufacturer": "OpenBMC", "model": "Witherspoon", "bios_version": "2.8" },
        "manager": { "firmware_version": "2.16.0" },
        "firmware": [
            item("1a", "2.15.0", MANAGER, "Enabled"),
            item("2b", "2.16.0", MANAGER, "Enabled"),
            item("3c", "2.9", BIOS, "StandbySpare"),
            item("4d", "2.8", BIOS, "Enabled"),
            nic,
        ],
    }));
    let one = |component, id: &str, version: &str, vendor: Option<&str>| {
        (component, id.to_owned(), Some(version.to_owned()), vendor.map(str::to_owned))
    };
    assert_eq!(
        found,
        [
            one(Component::Bmc, "2b", "2.16.0", None),
            one(Component::Bios, "4d", "2.8", None),
            one(Component::Nic, "NIC1", "22.1", Some("contoso")),
        ]
    );
}

#[test]
fn an_inventory_that_an_earlier_version_of_the_program_stored_is_read() {
    let found = stored(json!({
        "system": { "manufacturer": "Dell Inc.", "model": "PowerEdge R640", "bios_version": "2.8" },
        "firmware": [
            { "id": "BMC", "name": "BMC", "version": "7.0", "updateable": true },
            { "id": "Previous-159-2.7", "name": "BIOS", "version": "2.7", "updateable": true },
        ],
    }));
    let shown: Vec<(Component, Option<String>)> =
        found.into_iter().map(|(component, _, version, _)| (component, version)).collect();
    assert_eq!(shown, [(Component::Bmc, Some("7.0".to_owned())), (Component::Bios, Some("2.8".to_owned()))]);
}
