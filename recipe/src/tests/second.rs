//! Version 2 of the schema: its targets, the choice of the disk, the network of the installer, mounts and options.

use serde_json::{Value, json};
use strum::VariantArray;

use super::super::network::{BondMode, Destination};
use super::super::partition::{self, PartitionType};
use super::super::{After, Delivery, EraseMode, FsFormat, PartitionSize, TaskTarget};
use super::*;

/// A recipe with every field of version 2 that a Linux installation has.
pub(super) fn everything() -> Value {
    json!({
        "$schema": "https://shoal.dev/provisioner/recipe-v2.schema.json",
        "task_target": "install-linux.target",
        "after": "off",
        "disk_hints": {
            "serial": "S1", "wwn": "0x5000c500a1b2c3d4", "model": "DISK", "vendor": "ATA", "min_bytes": 1,
            "max_bytes": 4_000_000_000_000_u64, "rotational": false, "hctl": "0:2:0:0",
            "by_path": "pci-0000:00:1f.2-ata-1",
        },
        "oci_url": "h:8080/os/root:1",
        "partition_layout": [
            { "size": "512M", "type_guid": "ef00", "format": "vfat", "mount": "/boot/efi" },
            { "size": "20G", "type_guid": "8300", "format": "xfs", "mount": "/var/log" },
            { "size": "100%", "type_guid": "8300", "format": "ext4", "mount": "/", "mkfs_options": ["-m", "1", "-F"] },
        ],
        "network": network(),
    })
}

fn network() -> Value {
    json!({
        "version": 2,
        "ethernets": {
            "lan": {
                "match": { "macaddress": "52:54:00:12:34:56" },
                "addresses": ["192.0.2.10/24", "2001:db8::10/64"],
                "routes": [{ "to": "default", "via": "192.0.2.1", "metric": 100 }, { "to": "2001:db8:1::/48", "via": "fe80::1" }],
                "nameservers": { "addresses": ["192.0.2.53"], "search": ["example.com"] },
                "mtu": 9000,
            },
            "one": { "match": { "macaddress": "52:54:00:00:00:01" } },
            "two": { "match": { "macaddress": "52:54:00:00:00:02" } },
        },
        "bonds": { "bond0": {
            "interfaces": ["one", "two"],
            "parameters": { "mode": "802.3ad", "lacp-rate": "fast", "mii-monitor-interval": 100 },
        } },
        "vlans": { "bond0.7": { "id": 7, "link": "bond0", "dhcp4": true } },
    })
}

/// The recipe with one place of its network changed; the place need not exist.
pub(super) fn network_with(pointer: &str, value: Value) -> Value {
    let mut recipe = everything();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    recipe["network"].pointer_mut(parent).unwrap()[name] = value;
    recipe
}

fn with(key: &str, value: Value) -> Value {
    let mut recipe = everything();
    recipe[key] = value;
    recipe
}

fn hints(value: Value) -> Value {
    with("disk_hints", value)
}

fn first_partition(key: &str, value: Value) -> Value {
    let mut recipe = everything();
    recipe["partition_layout"][0][key] = value;
    recipe
}

#[test]
fn every_field_of_version_2_is_read_into_its_type() {
    let recipe = accepted(&everything());
    assert_eq!((recipe.after, recipe.erase_mode), (After::Off, EraseMode::Quick));
    let hints = recipe.disk_hints.unwrap();
    assert_eq!((hints.max_bytes, hints.rotational), (Some(4_000_000_000_000), Some(false)));
    assert_eq!(recipe.partition_layout[0].mount.as_deref(), Some("/boot/efi"));
    assert_eq!(recipe.partition_layout[2].mkfs_options, ["-m", "1", "-F"]);
    let network = recipe.network.unwrap();
    assert_eq!(network.links(), 5);
    let lan = &network.ethernets["lan"];
    assert_eq!(lan.addressing.addresses[1].to_string(), "2001:db8::10/64");
    assert_eq!((lan.addressing.routes[0].to, lan.addressing.mtu), (Destination::Default, Some(9000)));
    assert_eq!(network.bonds["bond0"].parameters.mode, BondMode::Lacp);
    assert_eq!((network.vlans["bond0.7"].id, network.vlans["bond0.7"].link.as_str()), (7, "bond0"));
}

#[test]
fn the_network_is_equal_after_it_was_written_and_read() {
    let network = accepted(&everything()).network.unwrap();
    let written = serde_json::to_value(&network).unwrap();
    assert_eq!(serde_json::from_value::<crate::Network>(written).unwrap(), network);
}

#[test]
fn every_recipe_of_version_1_that_names_version_2_is_read_as_the_same() {
    let first = accepted(&linux());
    let second =
        accepted(&linux_with("recipe_version", json!("https://shoal.dev/provisioner/recipe-v2.schema.json")));
    assert_eq!((first.partition_layout, first.target_disk), (second.partition_layout, second.target_disk));
}

#[test]
fn targets_need_their_disk_and_their_image_and_nothing_more() {
    let bare = |target: &str| refused(&json!({ "task_target": target }));
    assert_eq!(bare("install-image.target"), pairs(&[("/oci_url", "required")]));
    assert_eq!(bare("erase.target"), pairs(&[("/target_disk", "required")]));
    for target in ["inventory.target", "rescue.target"] {
        assert!(accepted(&json!({ "task_target": target })).disk_hints.is_none());
    }
    for target in ["install-image.target", "install-linux.target"] {
        let mut recipe = json!({ "task_target": target, "oci_url": "h/x:1", "after": "restart" });
        assert_eq!(refused(&recipe), pairs(&[("/target_disk", "required")]));
        recipe["disk_hints"] = json!({ "serial": "S" });
        assert!(accepted(&recipe).partition_layout.is_empty());
    }
    let secure = json!({ "task_target": "erase.target", "target_disk": "/dev/sda", "erase_mode": "secure" });
    let recipe = accepted(&secure);
    assert_eq!((recipe.task_target, recipe.erase_mode), (TaskTarget::Erase, EraseMode::Secure));
    let keys = json!({ "task_target": "rescue.target", "ssh_authorized_keys": [KEY] });
    assert_eq!(accepted(&keys).ssh_authorized_keys, [KEY]);
    for target in [TaskTarget::InstallLinux, TaskTarget::InstallImage, TaskTarget::Erase] {
        assert!(target.writes_a_disk());
    }
}

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4YW1wbGVleGFtcGxlZXhhbXBsZWV4YW1wbGU a@b";

#[test]
fn an_os_image_on_the_medium_is_for_targets_that_install_one() {
    for target in ["install-linux.target", "install-image.target"] {
        let recipe = json!({
            "task_target": target, "oci_url": "h:1/a:1", "disk_hints": { "serial": "S" }, "delivery": "media",
        });
        assert_eq!(accepted(&recipe).delivery, Delivery::Media);
    }
    assert_eq!(accepted(&everything()).delivery, Delivery::Network);
    let erase = json!({ "task_target": "erase.target", "target_disk": "/dev/sda", "delivery": "media" });
    assert_eq!(refused(&erase), pairs(&[("/delivery", "delivery")]));
    assert_eq!(refused(&with("delivery", json!("post"))), pairs(&[("/delivery", "enum")]));
}

#[test]
fn what_belongs_to_one_target_is_refused_with_another() {
    assert_eq!(
        refused(&with("ssh_authorized_keys", json!([KEY]))),
        pairs(&[("/ssh_authorized_keys", "not_for_target")])
    );
    assert_eq!(refused(&with("erase_mode", json!("secure"))), pairs(&[("/erase_mode", "not_for_target")]));
    assert_eq!(refused(&with("erase_mode", json!("shred"))), pairs(&[("/erase_mode", "enum")]));
    assert_eq!(
        refused(&with("session_minutes", json!(60))),
        pairs(&[("/session_minutes", "not_for_target")])
    );
    for bad in [
        "command=\"x\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4",
        "ssh-dss AAAAB3NzaC1kc3MAAACBAA",
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB\nx",
        "",
    ] {
        let recipe = json!({ "task_target": "rescue.target", "ssh_authorized_keys": [bad] });
        assert_eq!(refused(&recipe), pairs(&[("/ssh_authorized_keys/0", "pattern")]), "{bad}");
    }
}

#[test]
fn a_rescue_session_lasts_four_hours_or_what_the_recipe_says() {
    let rescue = |minutes: Value| json!({ "task_target": "rescue.target", "session_minutes": minutes });
    let hours = |recipe: &Value| accepted(recipe).session().as_secs() / 3600;
    assert_eq!(hours(&json!({ "task_target": "rescue.target" })), 4);
    assert_eq!(hours(&rescue(json!(120))), 2);
    assert_eq!(accepted(&rescue(json!(120))).summary()["session_minutes"], json!(120));
    for (bad, rule) in
        [(json!(4), "minimum"), (json!(10_081), "maximum"), (json!("60"), "type"), (json!(30.5), "type")]
    {
        assert_eq!(refused(&rescue(bad.clone())), pairs(&[("/session_minutes", rule)]), "{bad}");
    }
}

#[test]
fn hints_have_their_types_and_at_least_one_is_given() {
    for (bad, path, code) in [
        (json!({}), "/disk_hints", "minProperties"),
        (json!({ "seriel": "S" }), "/disk_hints/seriel", "additionalProperties"),
        (json!({ "serial": " " }), "/disk_hints/serial", "pattern"),
        (json!({ "wwn": "5000" }), "/disk_hints/wwn", "pattern"),
        (json!({ "min_bytes": "1T" }), "/disk_hints/min_bytes", "type"),
        (json!({ "min_bytes": 0 }), "/disk_hints/min_bytes", "minimum"),
        (json!({ "min_bytes": 1.5 }), "/disk_hints/min_bytes", "type"),
        (json!({ "min_bytes": 1e3 }), "/disk_hints/min_bytes", "type"),
        (json!({ "min_bytes": 1e30 }), "/disk_hints/min_bytes", "type"),
        (json!({ "min_bytes": 2, "max_bytes": 1 }), "/disk_hints/max_bytes", "size_order"),
        (json!({ "hctl": "0:0" }), "/disk_hints/hctl", "pattern"),
        (json!({ "by_path": "../x" }), "/disk_hints/by_path", "pattern"),
        (json!({ "rotational": "no" }), "/disk_hints/rotational", "type"),
        (json!({ "serial": null }), "/disk_hints/serial", "type"),
    ] {
        assert_eq!(refused(&hints(bad.clone())), pairs(&[(path, code)]), "{bad}");
    }
    let wwn = |text: &str| accepted(&hints(json!({ "wwn": text })));
    for good in ["5000c500a1b2c3d4", "naa.5000C500A1B2C3D4", "eui.0025385b71b00001", "wwn-0x5000c500a1b2c3d4"]
    {
        wwn(good);
    }
}

#[test]
fn names_addresses_and_links_of_a_network_are_checked() {
    for (pointer, value, path, code) in [
        (
            "/ethernets/lan/addresses",
            json!(["999.0.0.1/24"]),
            "/network/ethernets/lan/addresses/0",
            "address",
        ),
        ("/ethernets/lan/addresses", json!(["192.0.2.1"]), "/network/ethernets/lan/addresses/0", "pattern"),
        (
            "/ethernets/lan/addresses",
            json!(["192.0.2.1/33"]),
            "/network/ethernets/lan/addresses/0",
            "address",
        ),
        ("/ethernets/lan/routes/0/via", json!("192.0.2"), "/network/ethernets/lan/routes/0/via", "address"),
        ("/ethernets/lan/routes/1/via", json!("192.0.2.1"), "/network/ethernets/lan/routes/1/via", "network"),
        ("/ethernets/lan/routes/0/to", json!("all"), "/network/ethernets/lan/routes/0/to", "pattern"),
        (
            "/ethernets/lan/nameservers/addresses",
            json!(["::g"]),
            "/network/ethernets/lan/nameservers/addresses/0",
            "pattern",
        ),
        (
            "/ethernets/lan/nameservers",
            json!({ "search": ["lab..example"] }),
            "/network/ethernets/lan/nameservers/search/0",
            "network",
        ),
        ("/ethernets/lan/mtu", json!(100), "/network/ethernets/lan/mtu", "minimum"),
        (
            "/ethernets/lan/gateway4",
            json!("192.0.2.1"),
            "/network/ethernets/lan/gateway4",
            "additionalProperties",
        ),
        (
            "/ethernets/one/match/macaddress",
            json!("52:54:00:12:34:56"),
            "/network/ethernets/one/match/macaddress",
            "network",
        ),
        ("/ethernets/one/match", json!({}), "/network/ethernets/one/match/macaddress", "required"),
        ("/ethernets/one/dhcp4", json!(true), "/network/bonds/bond0/interfaces/0", "network"),
        ("/bonds/bond0/interfaces", json!(["three"]), "/network/bonds/bond0/interfaces/0", "network"),
        ("/bonds/bond0/interfaces", json!(["one", "one"]), "/network/bonds/bond0/interfaces/1", "network"),
        ("/bonds/bond0/parameters/mode", json!("balance-rr"), "/network/bonds/bond0/parameters/mode", "enum"),
        ("/bonds/lan", json!({ "interfaces": ["one"] }), "/network/bonds/lan", "network"),
        ("/vlans/bond0.7/link", json!("one"), "/network/vlans/bond0.7/link", "network"),
        ("/vlans/bond0.7/link", json!("eth9"), "/network/vlans/bond0.7/link", "network"),
        ("/vlans/bond0.7/id", json!(4095), "/network/vlans/bond0.7/id", "maximum"),
        (
            "/ethernets/a-name-that-is-too-long",
            json!({ "match": { "macaddress": "52:54:00:00:00:03" } }),
            "/network/ethernets",
            "propertyNames",
        ),
        ("/version", json!(1), "/network/version", "enum"),
    ] {
        let found = refused(&network_with(pointer, value.clone()));
        assert!(found.contains(&(path.to_owned(), code.to_owned())), "{pointer} {value}: {found:?}");
    }
}

#[test]
fn mount_points_are_places_of_the_new_system_and_occur_once() {
    for (bad, code) in [
        (json!("/dev/shm"), "mount"),
        (json!("/run"), "mount"),
        (json!("var"), "pattern"),
        (json!("/var/../etc"), "pattern"),
        (json!("/var/"), "pattern"),
    ] {
        assert_eq!(
            refused(&first_partition("mount", bad.clone())),
            pairs(&[("/partition_layout/0/mount", code)]),
            "{bad}"
        );
    }
    assert_eq!(
        refused(&first_partition("mount", json!("/"))),
        pairs(&[("/partition_layout/0/mount", "mount"), ("/partition_layout/2/mount", "mount")])
    );
    for format in FsFormat::VARIANTS {
        let recipe = first_partition("format", json!(format.as_str()));
        match format.is_mountable() {
            true => drop(accepted(&recipe)),
            false => assert_eq!(refused(&recipe), pairs(&[("/partition_layout/0/mount", "mount")])),
        }
    }
}

#[test]
fn options_of_a_file_system_name_no_second_device() {
    let refuses = |words: Value, number: usize, code: &str| {
        let path = format!("/partition_layout/0/mkfs_options/{number}");
        assert_eq!(
            refused(&first_partition("mkfs_options", words.clone())),
            pairs(&[(&path, code)]),
            "{words}"
        );
    };
    refuses(json!(["-F", "/dev/sdb"]), 1, "pattern");
    refuses(json!(["sdb"]), 0, "mkfs_options");
    refuses(json!(["-m", "1", "sdb"]), 2, "mkfs_options");
    refuses(json!(["-J", "device=LABEL=x"]), 1, "mkfs_options");
    refuses(json!(["-l", "logdev=sdb"]), 1, "mkfs_options");
    refuses(json!(["-n", "a b"]), 1, "pattern");
    accepted(&first_partition("mkfs_options", json!(["-F", "32", "-s", "2"])));
    let mut swap = everything();
    swap["partition_layout"][1] =
        json!({ "size": "1G", "type_guid": "8200", "format": "swap", "mkfs_options": ["-f"] });
    assert_eq!(refused(&swap), pairs(&[("/partition_layout/1/mkfs_options", "mkfs_options")]));
}

#[test]
fn advice_names_a_bare_disk_a_silent_network_and_a_layout_that_is_not_used() {
    let advice = |recipe: &Value| -> Vec<String> {
        accepted(recipe).lints().into_iter().map(|lint| lint.path).collect()
    };
    assert_eq!(advice(&everything()), Vec::<String>::new());
    let bare = json!({ "task_target": "erase.target", "target_disk": "/dev/sda", "after": "off" });
    assert_eq!(advice(&bare), ["/target_disk"]);
    assert_eq!(advice(&linux()), ["/user_data"], "version 1 has no hints");
    let mut silent = network_with("/vlans/bond0.7/dhcp4", json!(false));
    silent["network"]["ethernets"]["lan"]["addresses"] = json!([]);
    assert_eq!(advice(&silent), ["/network"]);
    let rescue = json!({ "task_target": "rescue.target", "partition_layout": [{ "size": "1G", "type_guid": "8300" }] });
    assert_eq!(advice(&rescue), ["/partition_layout", "/ssh_authorized_keys"]);
    let default =
        json!({ "task_target": "install-linux.target", "oci_url": "h/x:1", "disk_hints": { "serial": "S" } });
    assert_eq!(advice(&default), Vec::<String>::new());
}

#[test]
fn the_default_layout_starts_on_both_kinds_of_firmware_and_fits_small_and_large_disks() {
    let layout = partition::default_linux_layout();
    let kinds: Vec<PartitionType> = layout.iter().map(|part| part.type_guid).collect();
    assert_eq!(kinds, [PartitionType::EFI_SYSTEM, PartitionType::BIOS_BOOT, PartitionType::LINUX_FILESYSTEM]);
    assert_eq!(layout[2].size, PartitionSize::Rest);
    for (bytes, sector) in [(1_u64 << 30, 512), (1 << 45, 4096)] {
        assert_eq!(partition::resolve(&layout, bytes, sector).unwrap().len(), 3);
    }
}

#[test]
fn the_summary_of_version_2_shows_the_disk_and_counts_and_no_key() {
    let summary = accepted(&everything()).summary();
    assert_eq!(
        (&summary["disk_hints"]["serial"], &summary["network_links"], &summary["after"]),
        (&json!("S1"), &json!(5), &json!("off"))
    );
    let keys = accepted(&json!({ "task_target": "rescue.target", "ssh_authorized_keys": [KEY] })).summary();
    assert_eq!(keys["ssh_keys"], json!(1));
    assert!(!keys.to_string().contains("ed25519"));
}

#[test]
fn a_network_of_the_server_is_for_a_recipe_that_has_none() {
    let network = SCHEMAS.network(&network()).unwrap();
    let plain =
        accepted(&json!({ "task_target": "inventory.target", "recipe_version": SCHEMAS.current_id() }));
    let on = plain.clone().on_network(network.clone());
    assert_eq!(
        (on.network.as_ref(), on.network_config.as_ref()),
        (Some(&network), None),
        "no cloud-init, no file for it"
    );
    assert_eq!((&on.raw, on.summary()["network_links"].as_u64()), (&plain.raw, Some(5)));

    let mut cloud = everything();
    cloud["user_data"] = json!("#cloud-config\n");
    cloud.as_object_mut().unwrap().remove("network");
    let on = accepted(&cloud).on_network(network.clone());
    let written: Value = serde_json::from_slice(on.network_config.unwrap().as_bytes()).unwrap();
    assert_eq!((&written["version"], SCHEMAS.network(&written).unwrap()), (&json!(2), network.clone()));

    // What the recipe says itself stays.
    cloud["network_config"] = json!("version: 2\n");
    let on = accepted(&cloud).on_network(network.clone());
    assert_eq!(on.network_config.unwrap().as_bytes(), b"version: 2\n");
    cloud["network"] =
        json!({ "ethernets": { "x": { "match": { "macaddress": "52:54:00:00:00:09" }, "dhcp4": true } } });
    let own = accepted(&cloud);
    assert_eq!(own.clone().on_network(network.clone()), own);
    let media = json!({
        "task_target": "install-linux.target", "delivery": "media", "disk_hints": { "serial": "S" },
        "oci_url": "h:8080/os/root:1", "recipe_version": SCHEMAS.current_id(),
    });
    assert_eq!(accepted(&media).on_network(network.clone()), accepted(&media), "it needs no address");
}

#[test]
fn a_wrong_network_of_a_server_is_refused_as_in_a_recipe() {
    let wrong = json!({ "ethernets": { "lan": { "match": { "macaddress": "no" } } } });
    let errors = SCHEMAS.network(&wrong).unwrap_err();
    assert_eq!(errors[0].path, "/network/ethernets/lan/match/macaddress");
    let twice = json!({ "match": { "macaddress": "52:54:00:00:00:09" } });
    let errors = SCHEMAS.network(&json!({ "ethernets": { "a": twice, "b": twice } })).unwrap_err();
    assert_eq!(
        (errors[0].path.as_str(), errors[0].code.as_str()),
        ("/network/ethernets/b/match/macaddress", "network")
    );
    assert!(SCHEMAS.network(&json!({})).is_err());
}
