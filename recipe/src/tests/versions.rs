//! Schemas by `$id`: current, previous and unknown ones; and checks of the schema itself.

use serde_json::{Value, json};

use super::super::{Recipe, RecipeSchemas, SchemaError};
use super::*;

const CURRENT: &str = "https://shoal.dev/provisioner/recipe-v2.schema.json";
const FIRST: &str = "https://shoal.dev/provisioner/recipe.schema.json";
const PREVIOUS: &str = "https://shoal.dev/provisioner/recipe-0.schema.json";

/// A version that exists only in tests: it has one more field and fewer required ones.
fn previous() -> String {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": PREVIOUS,
        "type": "object",
        "additionalProperties": false,
        "required": ["task_target"],
        "properties": {
            "$schema": { "type": "string" },
            "recipe_version": { "type": "string" },
            "task_target": { "type": "string" },
            "disk": { "type": "string" },
            "user_data": { "type": "string", "maxLength": 10 }
        }
    })
    .to_string()
}

fn both() -> RecipeSchemas {
    RecipeSchemas::builtin().with_previous(&previous()).unwrap()
}

fn old_recipe() -> Value {
    json!({ "recipe_version": PREVIOUS, "task_target": "install-linux.target", "disk": "sda" })
}

#[test]
fn the_builtin_schemas_are_the_published_files_byte_for_byte() {
    let schemas = RecipeSchemas::builtin();
    assert_eq!(schemas.current_id(), CURRENT);
    let text = schemas.text(CURRENT).unwrap();
    assert_eq!(text, include_str!("../../../schemas/recipe-v2.schema.json"));
    assert_eq!(schemas.text(FIRST).unwrap(), include_str!("../../../schemas/recipe.schema.json"));
    assert_eq!(schemas.text(PREVIOUS), None);
    assert_eq!(RecipeSchemas::from_text(text).unwrap().current_id(), CURRENT);
}

#[test]
fn a_recipe_of_the_previous_version_is_validated_by_that_version() {
    let schemas = both();
    assert_eq!(schemas.ids().collect::<Vec<_>>(), [CURRENT, FIRST, PREVIOUS]);
    let recipe = schemas.validate(&old_recipe().to_string()).unwrap();
    assert_eq!(recipe.schema_id, PREVIOUS);
    assert_eq!(schemas.text(&recipe.schema_id).unwrap(), previous());
    let by_schema =
        json!({ "$schema": format!("{PREVIOUS}#"), "task_target": "install-linux.target", "disk": "sda" });
    assert_eq!(schemas.validate(&by_schema.to_string()).unwrap().schema_id, PREVIOUS);
    // The limits of that schema apply, and so do the types of this controller.
    let mut long = old_recipe();
    long["user_data"] = json!("ééééééé");
    assert_eq!(schemas.validate(&long.to_string()).unwrap_err()[0].code, "maxBytes");
    let mut unknown = old_recipe();
    unknown["task_target"] = json!("install-plan9.target");
    assert_eq!(schemas.validate(&unknown.to_string()).unwrap_err()[0].code, "enum");
}

#[test]
fn a_recipe_that_names_no_version_is_of_the_first_one_unless_it_needs_the_current_one() {
    let schemas = both();
    assert_eq!(schemas.validate(EXAMPLE).unwrap().schema_id, FIRST);
    for version in ["1", "1.0.2", "2", "2025-11-05", "site recipe 7", FIRST] {
        let recipe = schemas.validate(&linux_with("recipe_version", json!(version)).to_string()).unwrap();
        assert_eq!(recipe.schema_id, FIRST);
    }
    assert_eq!(
        schemas.validate(&linux_with("recipe_version", json!(CURRENT)).to_string()).unwrap().schema_id,
        CURRENT
    );
    for newer in [
        linux_with("after", json!("off")),
        one_partition("mkfs_options", json!([])),
        json!({ "task_target": "inventory.target" }),
    ] {
        assert_eq!(schemas.validate(&newer.to_string()).unwrap().schema_id, CURRENT, "{newer}");
        let mut named = newer;
        named["$schema"] = json!(FIRST);
        assert!(schemas.validate(&named.to_string()).is_err(), "version 1 has nothing of this: {named}");
    }
    // A field that no version has gets the errors of version 1.
    assert_eq!(refused(&linux_with("colour", json!("blue"))), pairs(&[("/colour", "additionalProperties")]));
    assert!(RecipeSchemas::builtin().validate(&old_recipe().to_string()).is_err());
}

#[test]
fn the_error_of_an_unknown_version_names_the_known_ones() {
    let schemas = both();
    let next = "https://shoal.dev/provisioner/recipe-9.schema.json";
    for key in ["recipe_version", "$schema"] {
        let errors = schemas.validate(&linux_with(key, json!(next)).to_string()).unwrap_err();
        assert_eq!(errors.len(), 1);
        assert_eq!(
            (errors[0].path.as_str(), errors[0].code.as_str()),
            (format!("/{key}").as_str(), "recipe_version")
        );
        for name in [next, CURRENT, FIRST, PREVIOUS] {
            assert!(errors[0].message.contains(name), "{}", errors[0].message);
        }
    }
    let other = linux_with("recipe_version", json!("https://other.example/recipe"));
    assert_eq!(refused(&other), pairs(&[("/recipe_version", "recipe_version")]));
}

#[test]
fn two_different_known_versions_are_refused() {
    let mut recipe = old_recipe();
    recipe["$schema"] = json!(CURRENT);
    assert_eq!(both().validate(&recipe.to_string()).unwrap_err()[0].code, "recipe_version");
    recipe["$schema"] = json!(PREVIOUS);
    assert!(both().validate(&recipe.to_string()).is_ok());
}

#[test]
fn unusable_schemas_are_refused_with_the_reason() {
    let add = |text: &str| RecipeSchemas::builtin().with_previous(text);
    assert!(matches!(add("{"), Err(SchemaError::NotJson(_))));
    assert!(matches!(add("{}"), Err(SchemaError::NoId)));
    assert!(matches!(add(&" ".repeat(1_048_577)), Err(SchemaError::TooLarge(_))));
    assert!(matches!(add(&json!({ "$id": CURRENT }).to_string()), Err(SchemaError::SameId(_))));
    for broken in [
        json!({ "$id": PREVIOUS, "type": 7 }),
        json!({ "$id": PREVIOUS, "properties": { "a": { "pattern": "(" } } }),
        json!({ "$id": PREVIOUS, "$ref": "https://other.example/schema.json" }),
        json!({ "$id": PREVIOUS, "$ref": "file:///etc/passwd" }),
    ] {
        assert!(matches!(add(&broken.to_string()), Err(SchemaError::Compile { .. })), "{broken}");
    }
}

#[test]
fn the_schema_uses_only_keywords_with_one_meaning() {
    const SAME: [&str; 28] = [
        "$schema",
        "$id",
        "title",
        "description",
        "$comment",
        "type",
        "additionalProperties",
        "required",
        "properties",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "enum",
        "const",
        "minimum",
        "maximum",
        "minProperties",
        "maxProperties",
        "propertyNames",
        "minItems",
        "maxItems",
        "items",
        "default",
        "allOf",
        "if",
        "then",
        "else",
    ];
    fn walk(schema: &Value, names_are_fields: bool) {
        for (key, value) in schema.as_object().into_iter().flatten() {
            assert!(names_are_fields || SAME.contains(&key.as_str()), "{key}");
            match key.as_str() {
                _ if names_are_fields => walk(value, false),
                "properties" => walk(value, true),
                "items" => {
                    assert!(value.is_object(), "a list of schemas under items changed its meaning");
                    walk(value, false);
                }
                "allOf" => value.as_array().unwrap().iter().for_each(|part| walk(part, false)),
                "if" | "then" | "else" | "propertyNames" => walk(value, false),
                "additionalProperties" if value.is_object() => walk(value, false),
                "pattern" => {
                    let pattern = value.as_str().unwrap();
                    assert!(
                        !pattern.contains("(?"),
                        "flags and lookaround differ between dialects: {pattern}"
                    );
                    assert!(pattern.starts_with('^') && pattern.ends_with('$'), "{pattern}");
                }
                _ => {}
            }
        }
    }
    for id in [CURRENT, FIRST] {
        walk(&serde_json::from_str(RecipeSchemas::builtin().text(id).unwrap()).unwrap(), false);
    }
}

#[test]
fn draft_07_and_draft_2020_12_give_the_same_result() {
    let schema: Value = serde_json::from_str(RecipeSchemas::builtin().text(CURRENT).unwrap()).unwrap();
    let draft_07 = jsonschema::draft7::new(&schema).unwrap();
    let mut modern = schema;
    modern["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    let draft_2020 = jsonschema::draft202012::new(&modern).unwrap();
    let recipes = [
        linux(),
        linux_with("target_disk", json!("sda")),
        linux_with("user_data", json!("é".repeat(1_048_577))),
        one_partition("type_guid", json!("Ef00")),
        one_partition("label", json!("\u{7f}")),
        json!({ "task_target": "install-windows.target", "unattend_xml": "" }),
        json!({ "task_target": "install-esxi.target" }),
        super::second::everything(),
        super::second::network_with("/ethernets/lan/mtu", json!(9)),
        json!([]),
    ];
    for recipe in recipes {
        assert_eq!(draft_07.is_valid(&recipe), draft_2020.is_valid(&recipe), "{recipe}");
    }
}

#[test]
fn clones_share_the_compiled_schemas_between_threads() {
    let schemas = both();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let schemas = schemas.clone();
            std::thread::spawn(move || schemas.validate(EXAMPLE).is_ok())
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}

/// The text of an accepted recipe is not validated again: a later schema or rule does not stop a job that is in progress.
#[test]
fn an_accepted_recipe_is_read_without_schema_and_rules_and_gives_the_same_fields() {
    let schemas = both();
    let old = old_recipe().to_string();
    let accepted = schemas.validate(&old).unwrap();
    assert_eq!(Recipe::accepted(&accepted.raw, &accepted.schema_id).unwrap(), accepted);

    // Refused as a new recipe: a value that breaks a rule, and a payload over the limit of the schema.
    let broken = json!({
        "task_target": "install-linux.target",
        "target_disk": "/dev/disk/by-id/x-part1",
        "user_data": "#".repeat(11),
        "recipe_version": PREVIOUS,
    })
    .to_string();
    assert!(schemas.validate(&broken).is_err());
    let read = Recipe::accepted(&broken, PREVIOUS).unwrap();
    assert_eq!((read.raw.as_str(), read.schema_id.as_str()), (broken.as_str(), PREVIOUS));
    assert_eq!(read.user_data.unwrap().len(), 11);
}

#[test]
fn an_altered_text_of_an_accepted_recipe_is_an_error_and_not_a_guess() {
    for text in ["", "{", "[]", "{}", r#"{"task_target":"unknown.target"}"#, r#"{"task_target":7}"#] {
        assert!(Recipe::accepted(text, CURRENT).is_err(), "{text}");
    }
}
