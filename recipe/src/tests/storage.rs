//! More disks, arrays and volume groups.

use serde_json::{Value, json};

use super::super::storage::{ArrayContent, ArrayLevel};
use super::super::{FsFormat, PartitionSize};
use super::*;

/// A mirror of two disks with a volume group on it.
pub(super) fn mirror() -> Value {
    json!({
        "task_target": "install-linux.target",
        "disk_hints": { "serial": "A" },
        "more_disks": [{ "disk_hints": { "serial": "B" } }],
        "oci_url": "h:8080/os/root:1",
        "partition_layout": [
            { "size": "512M", "type_guid": "ef00", "format": "vfat", "mount": "/boot/efi" },
            { "size": "1G", "type_guid": "fd00", "member_of": "boot" },
            { "size": "100%", "type_guid": "fd00", "member_of": "system" },
        ],
        "arrays": [
            { "name": "boot", "level": 1, "format": "ext4", "mount": "/boot", "label": "boot" },
            { "name": "system", "level": 1, "member_of": "vg0" },
        ],
        "volume_groups": [{ "name": "vg0", "volumes": [
            { "name": "root", "size": "20G", "format": "xfs", "mount": "/" },
            { "name": "swap", "size": "8G", "format": "swap" },
            { "name": "home", "size": "100%", "format": "btrfs", "mount": "/home", "mkfs_options": ["-m", "single"] },
        ] }],
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut recipe = mirror();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match recipe.pointer_mut(parent).unwrap() {
        Value::Array(items) if name == "-" => items.push(value),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        parent => parent[name] = value,
    }
    recipe
}

#[test]
fn disks_arrays_and_volume_groups_are_read_into_their_types() {
    let recipe = accepted(&mirror());
    let storage = &recipe.storage;
    assert_eq!(storage.layouts(&recipe.partition_layout).len(), 2);
    assert_eq!(storage.layouts(&recipe.partition_layout)[1], recipe.partition_layout);
    assert_eq!((storage.arrays[0].level, storage.arrays[0].level.number()), (ArrayLevel::Raid1, 1));
    assert_eq!(storage.arrays[1].content, ArrayContent::MemberOf("vg0".to_owned()));
    let home = &storage.volume_groups[0].volumes[2];
    assert_eq!((home.size, home.file_system.format), (PartitionSize::Rest, FsFormat::Btrfs));
    assert_eq!(recipe.summary()["arrays"], 2);
    assert_eq!(recipe.lints(), []);
    assert!(accepted(&super::second::everything()).storage.is_plain());
}

#[test]
fn version_1_has_nothing_of_this() {
    let mut named = mirror();
    named["$schema"] = json!("https://shoal.dev/provisioner/recipe.schema.json");
    assert!(validate(&named.to_string()).is_err());
    let member = one_partition("member_of", json!("a"));
    assert_eq!(
        refused(&member),
        pairs(&[("/partition_layout/0/member_of", "storage")]),
        "it is of version 2"
    );
}

#[test]
fn members_levels_names_and_mounts_are_checked() {
    let disk = json!({ "disk_hints": { "serial": "C" }, "partition_layout": [{ "size": "1G", "type_guid": "8300" }] });
    for (recipe, path, code) in [
        (with("/more_disks/0", json!({})), "/more_disks/0/target_disk", "required"),
        (with("/more_disks/0", disk), "/arrays/0", "storage"),
        (
            with("/more_disks/0/disk_hints", json!({ "min_bytes": 2, "max_bytes": 1 })),
            "/more_disks/0/disk_hints/max_bytes",
            "size_order",
        ),
        (
            with("/more_disks/0/target_disk", json!("/dev/disk/by-id/x-part1")),
            "/more_disks/0/target_disk",
            "whole_disk",
        ),
        (with("/arrays/0/level", json!(6)), "/arrays/0", "storage"),
        (
            with("/volume_groups/0/volumes/0/size", json!("200M")),
            "/volume_groups/0/volumes/0/size",
            "least_size",
        ),
        (with("/arrays/0/level", json!(4)), "/arrays/0/level", "enum"),
        (with("/arrays/0/name", json!("vg0")), "/volume_groups/0/name", "storage"),
        (with("/arrays/0/name", json!("A-B")), "/arrays/0/name", "pattern"),
        (with("/arrays/0/format", json!("vfat")), "/arrays/0/format", "storage"),
        (with("/arrays/0/mount", json!("/home")), "/volume_groups/0/volumes/2/mount", "mount"),
        (with("/arrays/1/member_of", json!("boot")), "/arrays/1/member_of", "storage"),
        (with("/arrays/1/mount", json!("/srv")), "/arrays/1/member_of", "storage"),
        (with("/partition_layout/0/member_of", json!("boot")), "/partition_layout/0/member_of", "storage"),
        (with("/partition_layout/1/member_of", json!("other")), "/partition_layout/1/member_of", "storage"),
        (with("/partition_layout/1/format", json!("ext4")), "/partition_layout/1/member_of", "storage"),
        (
            with(
                "/partition_layout/-",
                json!({ "size": "1G", "type_guid": "8300", "format": "ext4", "mount": "/srv" }),
            ),
            "/partition_layout/3",
            "storage",
        ),
        (
            with("/volume_groups/-", json!({ "name": "vg1", "volumes": [{ "name": "a", "size": "1G" }] })),
            "/volume_groups/1",
            "storage",
        ),
        (
            with("/volume_groups/0/volumes/0/size", json!("100%")),
            "/volume_groups/0/volumes/2/size",
            "storage",
        ),
        (
            with("/volume_groups/0/volumes/1/name", json!("root")),
            "/volume_groups/0/volumes/1/name",
            "storage",
        ),
        (with("/volume_groups/0/volumes/0/size", json!("0G")), "/volume_groups/0/volumes/0/size", "pattern"),
        (
            with("/volume_groups/0/volumes/2/mkfs_options", json!(["sdb"])),
            "/volume_groups/0/volumes/2/mkfs_options/0",
            "mkfs_options",
        ),
    ] {
        let found = refused(&recipe);
        assert!(found.contains(&(path.to_owned(), code.to_owned())), "{path}: {found:?}");
    }
    let mut shares = with("/volume_groups/0/volumes/0/size", json!("60%"));
    shares["volume_groups"][0]["volumes"][1]["size"] = json!("41%");
    assert_eq!(refused(&shares), pairs(&[("/volume_groups/0/volumes", "storage")]));
}

#[test]
fn two_members_of_one_disk_make_no_redundancy_and_level_0_may_have_them() {
    let mut recipe = mirror();
    recipe.as_object_mut().unwrap().remove("more_disks");
    recipe["partition_layout"][2]["member_of"] = json!("boot");
    recipe["arrays"] = json!([{ "name": "boot", "level": 1, "format": "ext4", "mount": "/" }]);
    recipe.as_object_mut().unwrap().remove("volume_groups");
    assert_eq!(refused(&recipe), pairs(&[("/arrays/0", "storage")]));
    recipe["arrays"][0]["level"] = json!(0);
    accepted(&recipe);
}

#[test]
fn other_targets_have_no_arrays() {
    let mut recipe = mirror();
    recipe["task_target"] = json!("install-image.target");
    let found = refused(&recipe);
    assert_eq!(
        found,
        pairs(&[
            ("/more_disks", "not_for_target"),
            ("/arrays", "not_for_target"),
            ("/volume_groups", "not_for_target")
        ])
    );
}

#[test]
fn the_capacity_of_each_level_is_that_of_its_copies_and_parities() {
    for (level, members, expected) in
        [(0, 3, 300), (1, 3, 100), (10, 4, 200), (10, 3, 150), (5, 4, 300), (6, 5, 300)]
    {
        let level = ArrayLevel::of(level).unwrap();
        assert_eq!(level.capacity(members, 100), expected, "{level:?}");
        assert!(level.least_members() <= members as usize);
    }
    assert_eq!(ArrayLevel::of(4), None);
}
