//! Error messages, compared with `golden/recipe-errors.txt` (`UPDATE_GOLDEN=1` rewrites it).

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::{Repair, member_of_segment};

fn cases() -> Vec<(&'static str, String)> {
    let mut stray = linux();
    stray["targetDisk"] = json!("/dev/sdb");
    stray["colour"] = json!("blue");
    let mut broken64 = linux();
    broken64["user_data_encoding"] = json!("base64");
    let mut cut64 = broken64.clone();
    cut64["user_data"] = json!("IyEvYg");
    let windows = json!({ "task_target": "install-windows.target", "unattend_xml": "" });
    let list: Vec<(&str, Value)> = vec![
        ("an empty object", json!({})),
        ("a list", json!([])),
        ("a target outside the grammar", linux_with("task_target", json!("install_linux"))),
        ("an unknown target", linux_with("task_target", json!("install-linus.target"))),
        ("a target with another dash", linux_with("task_target", json!("Install-Linux.targt"))),
        (
            "a target between two others",
            json!({ "recipe_version": SCHEMAS.current_id(), "task_target": "reset.target" }),
        ),
        ("a format between two others", one_partition("format", json!("nfs"))),
        (
            "a target near the one that erases",
            json!({ "recipe_version": SCHEMAS.current_id(), "task_target": "erase.targt" }),
        ),
        ("linux without anything", json!({ "task_target": "install-linux.target" })),
        ("windows with an empty answer file", windows),
        ("esxi without a kickstart", json!({ "task_target": "install-esxi.target" })),
        (
            "firmware without a scheme",
            json!({ "task_target": "supermicro-update.target", "firmware_url": "fw.bin" }),
        ),
        ("a disk without /dev", linux_with("target_disk", json!("sda"))),
        ("a disk out of /dev", linux_with("target_disk", json!("/dev/../../etc/passwd"))),
        ("a partition by id", linux_with("target_disk", json!("/dev/disk/by-id/wwn-0x5-part1"))),
        (
            "a partition of a partition by id",
            linux_with("target_disk", json!("/dev/disk/by-id/x-part1-part2")),
        ),
        (
            "an image with the scheme of a client",
            linux_with("oci_url", json!("docker://reg.example:8080/os/x:1")),
        ),
        ("an image with a scheme", linux_with("oci_url", json!("https://h/x:1"))),
        ("a negative size", one_partition("size", json!("-1G"))),
        ("a size of zero", one_partition("size", json!("0%"))),
        ("an unknown unit", one_partition("size", json!("1Z"))),
        ("a number for a size", one_partition("size", json!(512))),
        ("a size beyond any disk", one_partition("size", json!("9999P"))),
        ("an unknown type", one_partition("type_guid", json!("abcd"))),
        ("the type of zeros", one_partition("type_guid", json!("0".repeat(32)))),
        ("an unknown format", one_partition("format", json!("ext5"))),
        ("a long label", one_partition("label", json!("x".repeat(33)))),
        ("a partition without its fields", layout(json!([{}, 7]))),
        ("no partitions", layout(json!([]))),
        (
            "the rest twice",
            layout(json!([{ "size": "100%", "type_guid": "8300" }, { "size": "100%", "type_guid": "8300" }])),
        ),
        (
            "shares beyond the disk",
            layout(json!([{ "size": "60%", "type_guid": "8300" }, { "size": "41%", "type_guid": "8300" }])),
        ),
        ("unknown fields", stray),
        ("user data over its limit", linux_with("user_data", json!("x".repeat(1_048_577)))),
        ("user data over its limit in bytes", linux_with("user_data", json!("é".repeat(600_000)))),
        ("user data that is not a string", linux_with("user_data", json!({ "password": "x" }))),
        ("user data that is not base64", broken64),
        ("truncated user data", cut64),
        ("an unknown media label", linux_with("media_label", json!("cidata"))),
        (
            "an unknown schema",
            linux_with("recipe_version", json!("https://shoal.dev/provisioner/recipe-9.schema.json")),
        ),
    ];
    let list = list.into_iter().chain(second());
    let mut cases: Vec<(&str, String)> = list.map(|(name, value)| (name, value.to_string())).collect();
    cases.push((
        "broken JSON",
        "{\n  \"task_target\": \"install-esxi.target\"\n  \"ks_cfg\": \"\"\n}".to_owned(),
    ));
    cases.push(("a byte order mark", "\u{feff}{}".to_owned()));
    cases.push(("a repeated key", EXAMPLE.replacen("\"100%\",", "\"100%\", \"size\": \"1G\",", 1)));
    cases.push(("too many levels", "[".repeat(1000)));
    cases
}

/// Mistakes in recipes of version 2.
fn second() -> Vec<(&'static str, Value)> {
    let disk = |hints: Value| json!({ "task_target": "erase.target", "disk_hints": hints });
    let partition = |key: &str, value: Value| {
        let mut recipe = super::second::everything();
        recipe["partition_layout"][0][key] = value;
        recipe
    };
    let network = super::second::network_with;
    vec![
        ("an erasure without a disk", json!({ "task_target": "erase.target" })),
        ("hints without a hint", disk(json!({}))),
        ("an unknown hint", disk(json!({ "seriel": "S" }))),
        ("a size hint with a unit", disk(json!({ "min_bytes": "1T" }))),
        ("size hints that exclude each other", disk(json!({ "min_bytes": 2, "max_bytes": 1 }))),
        ("a mount point that climbs", partition("mount", json!("/var/../etc"))),
        ("a mount point of the kernel", partition("mount", json!("/dev/shm"))),
        ("an option that is a device", partition("mkfs_options", json!(["-F", "sdb", "sdc"]))),
        ("an address without a prefix length", network("/ethernets/lan/addresses", json!(["192.0.2.1"]))),
        ("an address that is none", network("/ethernets/lan/addresses", json!(["999.0.0.1/24"]))),
        ("a card without its MAC", network("/ethernets/one/match", json!({}))),
        ("a gateway in the old form", network("/ethernets/lan/gateway4", json!("192.0.2.1"))),
        (
            "a name that is too long for a link",
            network("/vlans/a-name-that-is-long", json!({ "id": 1, "link": "lan" })),
        ),
        ("a link that does not exist", network("/vlans/bond0.7/link", json!("eth9"))),
        ("keys for an installation", {
            let mut recipe = super::second::everything();
            recipe["ssh_authorized_keys"] = json!(["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4 a"]);
            recipe
        }),
        ("an array without its members", {
            let mut recipe = super::storage::mirror();
            recipe["arrays"][0]["level"] = json!(6);
            recipe["partition_layout"][0]["member_of"] = json!("boot");
            recipe["partition_layout"][2]["member_of"] = json!("nowhere");
            recipe
        }),
        ("a partition that would be on every disk", {
            let mut recipe = super::storage::mirror();
            recipe["partition_layout"][1] =
                json!({ "size": "1G", "type_guid": "8300", "format": "ext4", "mount": "/boot" });
            recipe
        }),
        ("an unknown end", json!({ "task_target": "inventory.target", "after": "reboot" })),
    ]
}

#[test]
fn error_messages_match_the_golden_file() {
    let mut text = String::new();
    for (name, raw) in cases() {
        writeln!(text, "# {name}").unwrap();
        for error in validate(&raw).unwrap_err() {
            let path = if error.path.is_empty() { "(recipe)" } else { &error.path };
            writeln!(text, "{path} [{}] {}", error.code, error.message).unwrap();
            match error.repair.as_deref() {
                Some(Repair::Set(value)) => writeln!(text, "    repair: {value}").unwrap(),
                Some(Repair::Rename(name)) => writeln!(text, "    repair: the name is {name}").unwrap(),
                None => {}
            }
        }
        text.push('\n');
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/recipe-errors.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(golden == text, "error messages changed; review them and run with UPDATE_GOLDEN=1\n{text}");
}

/// The recipe with a repair, as a person would make the change.
fn repaired(raw: &str, path: &str, repair: &Repair) -> Value {
    let mut recipe: Value = serde_json::from_str(raw).unwrap();
    match repair {
        Repair::Set(value) => *recipe.pointer_mut(path).unwrap() = value.clone(),
        Repair::Rename(name) => {
            let (owner, field) = path.rsplit_once('/').unwrap();
            let owner = recipe.pointer_mut(owner).unwrap().as_object_mut().unwrap();
            let value = owner.remove(&member_of_segment(field)).unwrap();
            assert!(owner.insert(name.clone(), value).is_none(), "{path} takes the place of another");
        }
    }
    recipe
}

#[test]
fn a_repair_removes_its_error() {
    let mut kinds = [0; 3];
    for (name, raw) in cases() {
        for error in validate(&raw).unwrap_err() {
            let Some(repair) = error.repair.as_deref() else { continue };
            let repaired = repaired(&raw, &error.path, repair);
            kinds[match (repair, error.code.as_str()) {
                (Repair::Rename(_), _) => 0,
                (_, "pattern") => 1,
                _ => 2,
            }] += 1;
            let left = validate(&repaired.to_string()).err().unwrap_or_default();
            assert!(left.iter().all(|left| left.path != error.path), "{name}: {left:?}");
        }
    }
    assert!(kinds.iter().all(|number| *number > 0), "{kinds:?}");
}

#[test]
fn no_repair_takes_the_place_of_another_member_or_is_offered_for_every_item_of_a_long_list() {
    let mut twice = linux();
    twice["targetDisk"] = json!("/dev/sdb");
    let error = validate(&twice.to_string()).unwrap_err().remove(0);
    assert_eq!((error.path.as_str(), error.repair), ("/targetDisk", None));

    let mut many = super::second::everything();
    many["more_disks"] = (0..8).map(|disk| json!({ "target_disk": format!("sd{disk}") })).collect();
    let errors = validate(&many.to_string()).unwrap_err();
    let offered = errors.iter().filter(|error| error.repair.is_some()).count();
    assert!(offered <= 4 && errors.len() >= 8, "{offered} of {errors:?}");
}
