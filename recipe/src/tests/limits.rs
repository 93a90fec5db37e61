//! Every limit, at the limit and one over it; and payloads stay out of messages.

use serde_json::{Value, json};

use super::super::{MAX_DEPTH, MAX_ERRORS, MAX_RECIPE_BYTES, MAX_VALUES};
use super::*;

const MIB: usize = 1_048_576;

#[test]
fn payloads_are_accepted_at_their_limit_and_refused_one_byte_over() {
    let limits = [
        ("user_data", MIB),
        ("network_config", MIB),
        ("vendor_data", MIB),
        ("unattend_xml", MIB),
        ("ks_cfg", 262_144),
    ];
    for (name, limit) in limits {
        accepted(&linux_with(name, json!("x".repeat(limit))));
        let place = format!("/{name}");
        let over = linux_with(name, json!("x".repeat(limit + 1)));
        assert_eq!(refused(&over), pairs(&[(&place, "maxLength")]), "{name}");
        // As many characters as the schema allows, one byte more than Shoal allows.
        let wide = format!("é{}", "x".repeat(limit - 1));
        assert_eq!(refused(&linux_with(name, json!(wide))), pairs(&[(&place, "maxBytes")]), "{name}");
    }
}

#[test]
fn base64_is_limited_by_its_encoded_length() {
    let mut recipe = linux_with("user_data", json!("AAAA".repeat(MIB / 4)));
    recipe["user_data_encoding"] = json!("base64");
    assert_eq!(accepted(&recipe).user_data.unwrap().len(), MIB / 4 * 3);
    recipe["user_data"] = json!("AAAA".repeat(MIB / 4 + 1));
    assert_eq!(refused(&recipe), pairs(&[("/user_data", "maxLength")]));
}

#[test]
fn short_fields_have_limits() {
    let name = |length: usize| json!(format!("h/{}", "x".repeat(length - 2)));
    accepted(&linux_with("oci_url", name(255)));
    assert_eq!(refused(&linux_with("oci_url", name(256))), pairs(&[("/oci_url", "oci_url")]));
    assert_eq!(refused(&linux_with("oci_url", name(1024))), pairs(&[("/oci_url", "oci_url")]));
    assert_eq!(refused(&linux_with("oci_url", name(1025))), pairs(&[("/oci_url", "maxLength")]));
    let disk = |length: usize| json!(format!("/dev/mapper/{}", "x".repeat(length - 12)));
    accepted(&linux_with("target_disk", disk(255)));
    assert_eq!(refused(&linux_with("target_disk", disk(256))), pairs(&[("/target_disk", "maxLength")]));
    let url = |length: usize| {
        json!({ "task_target": "supermicro-update.target",
        "firmware_url": format!("http://h/{}", "x".repeat(length - 9)) })
    };
    accepted(&url(2048));
    assert_eq!(refused(&url(2049)), pairs(&[("/firmware_url", "maxLength")]));
    for name in ["recipe_version", "$schema"] {
        accepted(&linux_with(name, json!("x".repeat(256))));
        let place = format!("/{name}");
        assert_eq!(refused(&linux_with(name, json!("x".repeat(257)))), pairs(&[(&place, "maxLength")]));
    }
}

#[test]
fn a_layout_has_one_to_sixty_four_partitions() {
    let some = |count: usize| layout(Value::Array(vec![json!({ "size": "1G", "type_guid": "8300" }); count]));
    accepted(&some(1));
    accepted(&some(64));
    assert_eq!(refused(&some(0)), pairs(&[("/partition_layout", "minItems")]));
    assert_eq!(refused(&some(65)), pairs(&[("/partition_layout", "maxItems")]));
}

#[test]
fn labels_fit_into_a_gpt_name() {
    let place = "/partition_layout/0/label";
    accepted(&one_partition("label", json!("é".repeat(32))));
    assert_eq!(refused(&one_partition("label", json!("x".repeat(33)))), pairs(&[(place, "maxLength")]));
    accepted(&one_partition("label", json!("𝄞".repeat(18))));
    assert_eq!(refused(&one_partition("label", json!("𝄞".repeat(19)))), pairs(&[(place, "maxBytes")]));
}

#[test]
fn the_whole_text_has_a_limit() {
    let filled = |length: usize| {
        let bare = linux_with("metadata", json!({ "x": "" })).to_string();
        bare.replacen("\"x\":\"\"", &format!("\"x\":\"{}\"", "y".repeat(length - bare.len())), 1)
    };
    assert!(validate(&filled(MAX_RECIPE_BYTES)).is_ok());
    assert_eq!(refused_text(&filled(MAX_RECIPE_BYTES + 1)), pairs(&[("", "too_large")]));
    let errors = RecipeSchemas::builtin().validate_bytes(&vec![0xff; MAX_RECIPE_BYTES + 1]).unwrap_err();
    assert_eq!(errors[0].code, "too_large");
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    let deep = |levels: usize| {
        // The recipe and `metadata` are levels too.
        let (open, close) = ("[".repeat(levels - 2), "]".repeat(levels - 2));
        format!(
            "{{\"task_target\":\"install-esxi.target\",\"ks_cfg\":\"\",\"metadata\":{{\"x\":{open}{close}}}}}"
        )
    };
    assert!(validate(&deep(MAX_DEPTH)).is_ok());
    assert_eq!(refused_text(&deep(MAX_DEPTH + 1)), pairs(&[("", "too_deep")]));
    assert_eq!(refused_text(&"[".repeat(MAX_RECIPE_BYTES)), pairs(&[("", "too_deep")]));
    assert_eq!(refused_text(&"{\"a\":".repeat(100_000)), pairs(&[("", "too_deep")]));
    let wide = |values: usize| {
        // The recipe, its two texts, `metadata` and the array count too.
        let items = vec!["0"; values - 5].join(",");
        format!(
            "{{\"task_target\":\"install-esxi.target\",\"ks_cfg\":\"\",\"metadata\":{{\"x\":[{items}]}}}}"
        )
    };
    assert!(validate(&wide(MAX_VALUES)).is_ok());
    assert_eq!(refused_text(&wide(MAX_VALUES + 1)), pairs(&[("", "too_many_values")]));
}

#[test]
fn the_list_of_errors_is_bounded_and_its_last_error_says_so() {
    let mut recipe = linux();
    for index in 0..10_000 {
        recipe[format!("stray{index}")] = json!(0);
    }
    let errors = validate(&recipe.to_string()).unwrap_err();
    assert_eq!(errors.len(), MAX_ERRORS);
    assert_eq!(errors[MAX_ERRORS - 1].code, "too_many_errors");
    let errors = validate(&layout(Value::Array(vec![json!(0); 10_000])).to_string()).unwrap_err();
    assert_eq!(errors.len(), MAX_ERRORS);
    assert_eq!(errors[0].path, "/partition_layout");
    assert_eq!(errors[11].path, "/partition_layout/10");
    let twice = format!("{{{}\"a\":0}}", "\"a\":0,".repeat(9_000));
    assert_eq!(validate(&twice).unwrap_err().len(), MAX_ERRORS);
}

#[test]
fn an_error_is_short_for_any_field_name() {
    let name = "n\u{1b}\n".repeat(100_000);
    let mut recipe = linux();
    recipe[&name] = json!(0);
    let errors = validate(&recipe.to_string()).unwrap_err();
    assert!(serde_json::to_string(&errors[0]).unwrap().len() < 4_000);
    assert!(!errors[0].message.contains(['\n', '\u{1b}']));
}

/// The canary in the value of each field appears in no output, whatever is wrong with the field.
#[test]
fn errors_lints_summary_and_debug_never_show_payloads() {
    const CANARY: &str = "c4nary-pa55word";
    let texts = ["user_data", "network_config", "vendor_data", "unattend_xml", "ks_cfg"];
    for name in texts.into_iter().chain(["firmware_url", "oci_url"]) {
        let wrong = [
            json!({ "password": CANARY }),
            json!([CANARY]),
            json!(format!("{CANARY} {}", "x".repeat(MIB))),
            json!(format!("//{CANARY}@ h")),
        ];
        for value in wrong {
            let mut recipe = linux_with(name, value);
            recipe["user_data_encoding"] = json!("base64");
            let errors = validate(&recipe.to_string()).unwrap_err();
            assert!(!format!("{errors:?}").contains(CANARY), "{errors:?}");
        }
    }
    let mut recipe =
        linux_with("firmware_url", json!(format!("https://u:{CANARY}@h:81/x?sig={CANARY}#{CANARY}")));
    for name in texts {
        recipe[name] = json!(format!("#!{CANARY}"));
    }
    recipe["metadata"] = json!({ "token": CANARY });
    let recipe = accepted(&recipe);
    let summary = recipe.summary();
    for text in [
        format!("{recipe:?}"),
        summary.to_string(),
        format!("{:?}", recipe.lints()),
        format!("{:?}", recipe.user_data),
    ] {
        assert!(!text.contains(CANARY), "{text}");
    }
    assert_eq!(summary["firmware_url"], "https://h:81/x");
    assert_eq!(summary["user_data"], json!({ "bytes": 17 }));
    assert_eq!(summary["partitions"], 2);
}

#[test]
fn the_error_of_broken_json_does_not_quote_the_text() {
    let errors = validate("{\"user_data\": \"c4nary-pa55word\" \"ks_cfg\"}").unwrap_err();
    assert!(!errors[0].message.contains("c4nary"), "{}", errors[0].message);
    assert!(errors[0].message.contains("at line 1 column"), "{}", errors[0].message);
}
