//! The test matrix of the recipe schema (docs/seeds.md C022-1, C022-2) and the forms each field accepts.

use serde_json::{Value, json};
use strum::VariantArray;

use super::super::{FsFormat, MediaLabel, PartitionSize, PartitionType, TaskTarget};
use super::*;

#[test]
fn the_example_recipe_passes_and_keeps_its_bytes() {
    let recipe = validate(EXAMPLE).unwrap();
    assert_eq!(recipe.raw, EXAMPLE);
    assert_eq!(recipe.schema_id, "https://shoal.dev/provisioner/recipe.schema.json");
    assert_eq!(recipe.task_target, TaskTarget::InstallLinux);
    assert_eq!(recipe.target_disk.as_deref(), Some("/dev/sda"));
    assert_eq!(recipe.oci_url.as_deref(), Some("controller.internal:8080/os-images/ubuntu-rootfs:22.04"));
    assert_eq!(recipe.user_data.unwrap().as_bytes(), b"IyEvYmluL2Jhc2gK...");
    assert_eq!(recipe.partition_layout[0].size, PartitionSize::Bytes(512 << 20));
    assert_eq!(recipe.partition_layout[0].type_guid, PartitionType::EFI_SYSTEM);
    assert_eq!(recipe.partition_layout[1].size, PartitionSize::Rest);
    assert_eq!(recipe.partition_layout[1].format, FsFormat::Ext4);
}

#[test]
fn the_order_of_keys_and_the_white_space_are_kept() {
    let raw = "{\n\t\"ks_cfg\" : \"\\u0061\", \"task_target\":\"install-esxi.target\" }\n";
    assert_eq!(validate(raw).unwrap().raw, raw);
}

#[test]
fn targets_outside_the_grammar_and_unknown_ones_are_refused() {
    for bad in ["install_linux", "Install-Linux.target", "install-linux.service", "../x.target", ""] {
        assert_eq!(
            refused(&linux_with("task_target", json!(bad))),
            pairs(&[("/task_target", "pattern")]),
            "{bad}"
        );
    }
    assert_eq!(
        refused(&linux_with("task_target", json!("install-bsd.target"))),
        pairs(&[("/task_target", "enum")])
    );
    assert_eq!(refused(&json!({})), pairs(&[("/task_target", "required")]));
}

#[test]
fn every_target_names_its_missing_fields() {
    let bare = |target: &str| refused(&json!({ "task_target": target }));
    assert_eq!(
        bare("install-linux.target"),
        pairs(&[("/oci_url", "required"), ("/partition_layout", "required"), ("/target_disk", "required")])
    );
    assert_eq!(
        bare("install-windows.target"),
        pairs(&[("/oci_url", "required"), ("/target_disk", "required")])
    );
    assert_eq!(bare("install-esxi.target"), pairs(&[("/ks_cfg", "required")]));
    assert_eq!(bare("supermicro-update.target"), pairs(&[("/firmware_url", "required")]));
}

#[test]
fn esxi_needs_neither_image_nor_disk() {
    let recipe = accepted(&json!({ "task_target": "install-esxi.target", "ks_cfg": "vmaccepteula\n" }));
    assert_eq!(recipe.ks_cfg.unwrap().as_bytes(), b"vmaccepteula\n");
    assert!(recipe.target_disk.is_none() && recipe.oci_url.is_none() && recipe.partition_layout.is_empty());
}

#[test]
fn windows_may_come_without_an_answer_file_but_not_with_an_empty_one() {
    let mut recipe = json!({
        "task_target": "install-windows.target", "target_disk": "/dev/nvme0n1", "oci_url": "h:8080/win/server:2025"
    });
    assert!(accepted(&recipe).unattend_xml.is_none());
    recipe["unattend_xml"] = json!("");
    assert_eq!(refused(&recipe), pairs(&[("/unattend_xml", "minLength")]));
    recipe["unattend_xml"] = json!("<unattend/>");
    assert_eq!(accepted(&recipe).unattend_xml.unwrap().as_bytes(), b"<unattend/>");
    let mut linux = linux();
    linux["unattend_xml"] = json!("");
    accepted(&linux);
}

#[test]
fn firmware_needs_a_url_with_a_scheme() {
    let with = |url: &str| json!({ "task_target": "supermicro-update.target", "firmware_url": url });
    for good in ["https://h/fw.bin", "http://[fd00::1]:80/a%20b?x=1", "oci://h/fw:1"] {
        assert_eq!(accepted(&with(good)).firmware_url.as_deref(), Some(good));
    }
    for bad in ["fw.bin", "/fw.bin", "", "http://h/a b", "http://h/%zz", "https://h/x\nTARGET_DISK=/dev/sdb"]
    {
        let errors = refused(&with(bad));
        assert_eq!(errors.len(), 1, "{bad}");
        assert_eq!(errors[0].0, "/firmware_url");
        assert!(["pattern", "format"].contains(&errors[0].1.as_str()), "{bad}: {errors:?}");
    }
}

#[test]
fn disks_are_whole_devices_inside_dev() {
    let by_id = "/dev/disk/by-id/nvme-Samsung_SSD_990-S4E:0";
    for good in
        ["/dev/sda", "/dev/sdab", "/dev/vda", "/dev/hdc", "/dev/xvda", "/dev/nvme0n1", "/dev/nvme10n12"]
    {
        accepted(&linux_with("target_disk", json!(good)));
    }
    for good in
        ["/dev/md0", "/dev/md127", "/dev/mmcblk0", "/dev/mapper/mpatha", "/dev/mapper/vg-root.1", by_id]
    {
        accepted(&linux_with("target_disk", json!(good)));
    }
    for bad in [
        "sda",
        "/dev/../../etc/passwd",
        "/dev/mapper/../../etc/passwd",
        "/dev/mapper/..",
        "/dev/mapper/",
        "/dev/mapper/a/b",
        "/dev/sda1",
        "/dev/nvme0n1p1",
        "/dev/sda\n",
        "/dev/sda /dev/sdb",
        "/dev/disk/by-uuid/x",
        "/dev/disk/by-id/../sda",
        "/dev/sr0",
        "/dev/null",
        "",
    ] {
        assert_eq!(
            refused(&linux_with("target_disk", json!(bad))),
            pairs(&[("/target_disk", "pattern")]),
            "{bad}"
        );
    }
    let part = linux_with("target_disk", json!("/dev/disk/by-id/wwn-0x5000-part2"));
    assert_eq!(refused(&part), pairs(&[("/target_disk", "whole_disk")]));
    accepted(&linux_with("target_disk", json!("/dev/disk/by-id/usb-part-one")));
}

#[test]
fn image_references_have_no_scheme_and_no_credentials() {
    let digest = format!("h:5000/a/b@sha256:{}", "0".repeat(64));
    for good in
        ["ubuntu:22.04", "h/a", "h:8080/os-images/a_b/c.d-e:v1_2", "[fd00::1]:8080/x:1", &digest, "1.2.3.4/x"]
    {
        accepted(&linux_with("oci_url", json!(good)));
    }
    for bad in [
        "http://h/x",
        "oci://h/x",
        "h//x",
        "h/../x",
        "/x",
        "h/x ",
        "user:pw@h/x",
        "h/x\nTARGET_DISK=/dev/sdb",
        "h/x@sha256:12",
    ] {
        assert_eq!(refused(&linux_with("oci_url", json!(bad))), pairs(&[("/oci_url", "pattern")]), "{bad}");
    }
    assert_eq!(refused(&linux_with("oci_url", json!(""))), pairs(&[("/oci_url", "minLength")]));
}

#[test]
fn an_image_that_the_agent_cannot_read_is_refused() {
    let sha512 = format!("h:5000/a@sha512:{}", "0".repeat(128));
    let upper = format!("h:5000/a@sha256:{}", "A".repeat(64));
    let tag = format!("h:5000/a:{}", "t".repeat(129));
    for bad in ["registry.example/Team/image:1", "h:1/a._b", &sha512, &upper, &tag] {
        assert_eq!(refused(&linux_with("oci_url", json!(bad))), pairs(&[("/oci_url", "oci_url")]), "{bad}");
    }
}

#[test]
fn sizes_follow_their_grammar() {
    let bytes = [("1", 1), ("512", 512), ("7B", 7), ("1K", 1 << 10), ("512M", 512 << 20), ("20GB", 20 << 30)];
    for (text, expected) in bytes {
        let recipe = accepted(&one_partition("size", json!(text)));
        assert_eq!(recipe.partition_layout[0].size, PartitionSize::Bytes(expected), "{text}");
    }
    for (text, expected) in [("1%", PartitionSize::Percent(1)), ("99%", PartitionSize::Percent(99))] {
        assert_eq!(accepted(&one_partition("size", json!(text))).partition_layout[0].size, expected);
    }
    accepted(&one_partition("size", json!("3T")));
    accepted(&one_partition("size", json!("1PB")));
    let place = "/partition_layout/0/size";
    for bad in
        ["-1G", "0%", "1Z", "0", "0M", "101%", "1.5G", "1 G", "G", "%", "", "512m", "+1G", "1e3", "１G"]
    {
        assert_eq!(refused(&one_partition("size", json!(bad))), pairs(&[(place, "pattern")]), "{bad}");
    }
    for huge in ["9999P", "18446744073709551616", "9223372036854775808"] {
        assert_eq!(refused(&one_partition("size", json!(huge))), pairs(&[(place, "size_range")]), "{huge}");
    }
}

#[test]
fn the_error_of_a_number_instead_of_a_string_names_both_types() {
    let errors = validate(&one_partition("size", json!(512)).to_string()).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].code.as_str(), errors[0].field.as_str()), ("type", "size"));
    assert!(errors[0].message.contains("must be a string, not a number"), "{}", errors[0].message);
    assert_eq!(refused(&linux_with("task_target", json!(1))), pairs(&[("/task_target", "type")]));
}

#[test]
fn types_are_aliases_in_any_case_or_guids_with_or_without_dashes() {
    for alias in ["ef00", "EF00", "eF00", "8300", "8200", "0700", "0c01", "0C01", "fc00", "Fd00"] {
        let recipe = accepted(&one_partition("type_guid", json!(alias)));
        assert_eq!(recipe.partition_layout[0].type_guid.alias(), Some(alias.to_ascii_lowercase().as_str()));
    }
    for guid in [
        "c12a7328-f81f-11d2-ba4b-00a0c93ec93b",
        "C12A7328F81F11D2BA4B00A0C93EC93B",
        "c12a7328f81f-11d2ba4b-00a0c93ec93b",
    ] {
        let recipe = accepted(&one_partition("type_guid", json!(guid)));
        assert_eq!(recipe.partition_layout[0].type_guid, PartitionType::EFI_SYSTEM);
    }
    for bad in [
        "abcd",
        "ef0",
        "ef001",
        "",
        "c12a7328-f81f-11d2-ba4b-00a0c93ec93",
        "{c12a7328-f81f-11d2-ba4b-00a0c93ec93b}",
    ] {
        let expected = pairs(&[("/partition_layout/0/type_guid", "pattern")]);
        assert_eq!(refused(&one_partition("type_guid", json!(bad))), expected, "{bad}");
    }
    let nil = one_partition("type_guid", json!("00000000-0000-0000-0000-000000000000"));
    assert_eq!(refused(&nil), pairs(&[("/partition_layout/0/type_guid", "nil_type")]));
}

#[test]
fn a_type_guid_is_stored_mixed_endian() {
    let bytes = PartitionType::EFI_SYSTEM.guid().to_bytes_le();
    assert_eq!(bytes[..8], [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11]);
    assert_eq!(bytes[8..], [0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b]);
}

#[test]
fn formats_labels_and_unknown_fields_of_a_partition_are_checked() {
    for &format in FsFormat::VARIANTS {
        let recipe = accepted(&one_partition("format", json!(format.as_str())));
        assert_eq!(recipe.partition_layout[0].format, format);
    }
    assert_eq!(accepted(&one_partition("label", json!("root"))).partition_layout[0].format, FsFormat::Raw);
    assert_eq!(
        refused(&one_partition("format", json!("zfs"))),
        pairs(&[("/partition_layout/0/format", "enum")])
    );
    assert_eq!(
        refused(&one_partition("label", json!("a\nb"))),
        pairs(&[("/partition_layout/0/label", "pattern")])
    );
    assert_eq!(
        refused(&one_partition("mountpoint", json!("/"))),
        pairs(&[("/partition_layout/0/mountpoint", "additionalProperties")])
    );
    assert_eq!(
        refused(&layout(json!([{ "size": "1G" }, { "type_guid": "8300" }, 7]))),
        pairs(&[
            ("/partition_layout/0/type_guid", "required"),
            ("/partition_layout/1/size", "required"),
            ("/partition_layout/2", "type"),
        ])
    );
}

#[test]
fn a_schema_reference_at_the_top_is_tolerated() {
    for schema in
        ["http://json-schema.org/draft-07/schema#", "./recipe.schema.json", "https://other.example/x"]
    {
        accepted(&linux_with("$schema", json!(schema)));
    }
    accepted(&linux_with("$schema", json!("https://shoal.dev/provisioner/recipe.schema.json#")));
}

#[test]
fn unknown_fields_are_refused_with_the_nearest_known_name() {
    let mut recipe = linux();
    recipe["targetDisk"] = json!("/dev/sdb");
    recipe["ks.cfg"] = json!("");
    recipe["colour"] = json!("blue");
    let errors = validate(&recipe.to_string()).unwrap_err();
    let message = |field: &str| {
        let error = errors.iter().find(|error| error.field == field).unwrap();
        assert_eq!(error.code, "additionalProperties");
        error.message.clone()
    };
    assert!(message("targetDisk").contains("did you mean `target_disk`?"));
    assert!(message("ks.cfg").contains("did you mean `ks_cfg`?"));
    assert!(message("colour").contains("known fields are $schema, firmware_url"));
}

#[test]
fn the_known_media_labels_are_accepted() {
    for &label in MediaLabel::VARIANTS {
        let recipe = accepted(&linux_with("media_label", json!(label.as_str())));
        assert_eq!(recipe.media_label, Some(label));
    }
    assert_eq!(accepted(&linux()).media_label, None);
    assert_eq!(refused(&linux_with("media_label", json!("cidata"))), pairs(&[("/media_label", "enum")]));
}

#[test]
fn user_data_is_verbatim_unless_declared_base64() {
    let with = |data: &str, encoding: &str| {
        let mut recipe = linux_with("user_data", json!(data));
        recipe["user_data_encoding"] = json!(encoding);
        recipe
    };
    let bytes = |recipe: &Value| accepted(recipe).user_data.unwrap().as_bytes().to_vec();
    assert_eq!(bytes(&with("IyEvYmluL2Jhc2gK", "plain")), b"IyEvYmluL2Jhc2gK");
    assert_eq!(bytes(&with("IyEvYmluL2Jhc2gK", "base64")), b"#!/bin/bash\n");
    assert_eq!(bytes(&with("IyEvYmlu\r\nL2Jhc2gK\n", "base64")), b"#!/bin/bash\n");
    assert_eq!(bytes(&with("/+8=", "base64")), [0xff, 0xef]);
    assert_eq!(bytes(&with("", "base64")), b"");
    for bad in ["IyEvYmluL2Jhc2gK...", "IyE", "IyEvYg", "IyEvYg=", "_-8=", "IyEvYh==", "====", "é"] {
        assert_eq!(refused(&with(bad, "base64")), pairs(&[("/user_data", "base64")]), "{bad}");
    }
    assert_eq!(refused(&with("", "hex")), pairs(&[("/user_data_encoding", "enum")]));
}

#[test]
fn cloud_init_files_are_passed_on_verbatim() {
    let mut recipe = linux();
    recipe["network_config"] = json!("version: 2\n");
    recipe["vendor_data"] = json!("#cloud-config\n");
    recipe["metadata"] = json!({ "ticket": ["OPS-1", 7, null], "nested": { "a": {} } });
    let recipe = accepted(&recipe);
    assert_eq!(recipe.network_config.unwrap().as_bytes(), b"version: 2\n");
    assert_eq!(recipe.vendor_data.unwrap().as_bytes(), b"#cloud-config\n");
    assert_eq!(refused(&linux_with("metadata", json!("x"))), pairs(&[("/metadata", "type")]));
}

#[test]
fn texts_that_are_no_json_object_are_refused() {
    for value in [json!([]), json!("x"), json!(1), json!(null), json!(true)] {
        assert_eq!(refused(&value), pairs(&[("", "type")]), "{value}");
    }
    for raw in [
        "",
        "{",
        "nil",
        "{\"a\":}",
        "{} {}",
        "{\"a\":1,}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":1e999}",
        "\u{feff}{}",
    ] {
        assert_eq!(refused_text(raw), pairs(&[("", "json")]), "{raw}");
    }
    let errors = RecipeSchemas::builtin().validate_bytes(b"{\"a\":\"\xff\"}").unwrap_err();
    assert_eq!(errors[0].code, "utf8");
    assert!(errors[0].message.contains("number 7"), "{}", errors[0].message);
    assert!(RecipeSchemas::builtin().validate_bytes(EXAMPLE.as_bytes()).is_ok());
}

#[test]
fn a_repeated_key_is_refused_in_every_object() {
    let top = EXAMPLE.replacen("\"/dev/sda\",", "\"/dev/sda\", \"target_d\\u0069sk\": \"/dev/sdb\",", 1);
    assert_eq!(refused_text(&top), pairs(&[("/target_disk", "duplicate_key")]));
    let nested = EXAMPLE.replacen("\"100%\",", "\"100%\", \"size\": \"1G\",", 1);
    assert_eq!(refused_text(&nested), pairs(&[("/partition_layout/1/size", "duplicate_key")]));
    let free = r#"{"metadata": {"a/b~": [{"x": 1, "x": 1}]}}"#;
    assert_eq!(refused_text(free), pairs(&[("/metadata/a~1b~0/0/x", "duplicate_key")]));
}
