//! Error messages, compared with `golden/recipe-errors.txt` (`UPDATE_GOLDEN=1` rewrites it).

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::*;

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
    let mut cases: Vec<(&str, String)> =
        list.into_iter().map(|(name, value)| (name, value.to_string())).collect();
    cases.push((
        "broken JSON",
        "{\n  \"task_target\": \"install-esxi.target\"\n  \"ks_cfg\": \"\"\n}".to_owned(),
    ));
    cases.push(("a byte order mark", "\u{feff}{}".to_owned()));
    cases.push(("a repeated key", EXAMPLE.replacen("\"100%\",", "\"100%\", \"size\": \"1G\",", 1)));
    cases.push(("too many levels", "[".repeat(1000)));
    cases
}

#[test]
fn error_messages_match_the_golden_file() {
    let mut text = String::new();
    for (name, raw) in cases() {
        writeln!(text, "# {name}").unwrap();
        for error in validate(&raw).unwrap_err() {
            let path = if error.path.is_empty() { "(recipe)" } else { &error.path };
            writeln!(text, "{path} [{}] {}", error.code, error.message).unwrap();
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
