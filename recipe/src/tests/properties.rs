//! Properties for any text: no panic, a bounded list of errors, pointers that exist in the document.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::{FieldError, MAX_ERRORS};
use super::*;

const FIELDS: [&str; 34] = [
    "$schema",
    "recipe_version",
    "task_target",
    "target_disk",
    "oci_url",
    "firmware_url",
    "partition_layout",
    "size",
    "type_guid",
    "format",
    "label",
    "user_data",
    "user_data_encoding",
    "network_config",
    "unattend_xml",
    "ks_cfg",
    "media_label",
    "metadata",
    "after",
    "erase_mode",
    "disk_hints",
    "serial",
    "min_bytes",
    "network",
    "ethernets",
    "bonds",
    "vlans",
    "match",
    "interfaces",
    "addresses",
    "routes",
    "mount",
    "mkfs_options",
    "ssh_authorized_keys",
];

const WORDS: [&str; 18] = [
    "install-linux.target",
    "install-windows.target",
    "install-esxi.target",
    "supermicro-update.target",
    "/dev/sda",
    "h/x:1",
    "100%",
    "512M",
    "ef00",
    "vfat",
    "base64",
    "CIDATA",
    "https://shoal.dev/provisioner/recipe.schema.json",
    "http://h/x",
    "https://shoal.dev/provisioner/recipe-v2.schema.json",
    "erase.target",
    "off",
    "192.0.2.1/24",
];

fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![3 => prop::sample::select(&WORDS[..]).prop_map(str::to_owned), 1 => "\\PC{0,20}"];
    let leaf = prop_oneof![
        5 => text.clone().prop_map(Value::String),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => any::<i64>().prop_map(|number| json!(number)),
        1 => any::<f64>().prop_map(|number| json!(number)),
    ];
    let name = prop_oneof![9 => prop::sample::select(&FIELDS[..]).prop_map(str::to_owned), 1 => "[a-z~/\\x00-\\x1f]{0,8}"];
    leaf.prop_recursive(4, 64, 10, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            3 => prop::collection::btree_map(name.clone(), inner, 0..12)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn sound(errors: &[FieldError], value: Option<&Value>) {
    assert!(!errors.is_empty() && errors.len() <= MAX_ERRORS);
    for error in errors {
        assert!(!error.message.is_empty() && error.message.chars().count() <= 601, "{error:?}");
        assert!(!error.message.chars().any(char::is_control), "{error:?}");
        let Some(value) = value else { continue };
        // A missing field has no value, but the object it belongs to exists.
        let place =
            if error.code == "required" { error.path.rsplit_once('/').unwrap().0 } else { &error.path };
        assert!(value.pointer(place).is_some(), "{error:?}");
    }
}

proptest! {
    #[test]
    fn any_json_gets_a_recipe_or_errors(value in any_json()) {
        match validate(&value.to_string()) {
            Ok(recipe) => {
                let _ = (recipe.lints(), recipe.summary());
            }
            Err(errors) => sound(&errors, Some(&value)),
        }
    }

    #[test]
    fn any_bytes_get_a_recipe_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(errors) = SCHEMAS.validate_bytes(&bytes) {
            sound(&errors, None);
        }
    }

    #[test]
    fn any_change_of_a_valid_recipe_gets_a_recipe_or_errors(at in 0..EXAMPLE.len(), with in "[\\x00-\\x7f]{0,3}", cut in 0..4_usize) {
        let end = (at + cut).min(EXAMPLE.len());
        let raw = format!("{}{with}{}", &EXAMPLE[..at], &EXAMPLE[end..]);
        match validate(&raw) {
            Ok(recipe) => {
                let again = Recipe::accepted(&raw, &recipe.schema_id).unwrap();
                prop_assert_eq!(&recipe.raw, &raw);
                prop_assert_eq!(again, recipe);
            }
            Err(errors) => sound(&errors, None),
        }
    }
}
