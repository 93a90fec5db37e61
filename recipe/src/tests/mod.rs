//! Tests of the recipe crate: the matrix of the schema, limits, versions, layouts, error texts.

mod golden;
mod layout;
mod limits;
mod matrix;
mod properties;
mod second;
mod storage;
mod versions;

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{FieldError, Recipe, RecipeSchemas};

/// The recipe of docs/seeds.md S000-120, byte for byte.
const EXAMPLE: &str = r#"{
    "task_target": "install-linux.target",
    "target_disk": "/dev/sda",
    "oci_url": "controller.internal:8080/os-images/ubuntu-rootfs:22.04",
    "user_data": "IyEvYmluL2Jhc2gK...",
    "partition_layout": [
      { "size": "512M", "type_guid": "ef00", "format": "vfat" },
      { "size": "100%", "type_guid": "8300", "format": "ext4" }
    ]
  }"#;

/// Compiled once for all tests.
static SCHEMAS: LazyLock<RecipeSchemas> = LazyLock::new(RecipeSchemas::builtin);

fn validate(raw: &str) -> Result<Recipe, Vec<FieldError>> {
    SCHEMAS.validate(raw)
}

fn accepted(value: &Value) -> Recipe {
    match validate(&value.to_string()) {
        Ok(recipe) => recipe,
        Err(errors) => panic!("refused: {errors:#?}"),
    }
}

/// The errors of a refused recipe as (path, code).
fn refused(value: &Value) -> Vec<(String, String)> {
    refused_text(&value.to_string())
}

fn refused_text(raw: &str) -> Vec<(String, String)> {
    let errors = validate(raw).expect_err("the recipe is refused");
    errors.into_iter().map(|error| (error.path, error.code)).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(path, code)| ((*path).to_owned(), (*code).to_owned())).collect()
}

fn linux() -> Value {
    serde_json::from_str(EXAMPLE).unwrap()
}

fn linux_with(key: &str, value: Value) -> Value {
    let mut recipe = linux();
    recipe[key] = value;
    recipe
}

fn layout(items: Value) -> Value {
    linux_with("partition_layout", items)
}

fn one_partition(key: &str, value: Value) -> Value {
    let mut item = json!({ "size": "1G", "type_guid": "8300" });
    item[key] = value;
    layout(json!([item]))
}
