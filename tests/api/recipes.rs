//! Invalid recipes: every error has its path under `/recipe`, the rule it breaks, and a message.

use serde_json::{Value, json};

use crate::kit::{Scene, healthy, recipe};

/// A change of the valid recipe, with the path and the rule of the expected error.
type Mistake = (&'static str, fn(&mut Value), &'static str, &'static str);

const MISTAKES: [Mistake; 24] = [
    ("no target", |r| drop(take(r, "task_target")), "/recipe/task_target", "required"),
    ("bad target", |r| r["task_target"] = json!("install_linux"), "/recipe/task_target", "pattern"),
    ("unknown target", |r| r["task_target"] = json!("install-plan9.target"), "/recipe/task_target", "enum"),
    ("no disk", |r| drop(take(r, "target_disk")), "/recipe/target_disk", "required"),
    ("no image", |r| drop(take(r, "oci_url")), "/recipe/oci_url", "required"),
    ("no layout", |r| drop(take(r, "partition_layout")), "/recipe/partition_layout", "required"),
    ("disk outside /dev", |r| r["target_disk"] = json!("sda"), "/recipe/target_disk", "pattern"),
    (
        "disk by detour",
        |r| r["target_disk"] = json!("/dev/../../etc/passwd"),
        "/recipe/target_disk",
        "pattern",
    ),
    (
        "a partition",
        |r| r["target_disk"] = json!("/dev/disk/by-id/wwn-0x5-part1"),
        "/recipe/target_disk",
        "whole_disk",
    ),
    ("image with a scheme", |r| r["oci_url"] = json!("https://h/a:1"), "/recipe/oci_url", "pattern"),
    ("negative size", |r| size(r, json!("-1G")), "/recipe/partition_layout/0/size", "pattern"),
    ("size of nothing", |r| size(r, json!("0%")), "/recipe/partition_layout/0/size", "pattern"),
    ("unknown unit", |r| size(r, json!("1Z")), "/recipe/partition_layout/0/size", "pattern"),
    ("size as a number", |r| size(r, json!(512)), "/recipe/partition_layout/0/size", "type"),
    ("unknown type", |r| part(r, "type_guid", "abcd"), "/recipe/partition_layout/0/type_guid", "pattern"),
    ("unknown format", |r| part(r, "format", "ext5"), "/recipe/partition_layout/0/format", "enum"),
    ("no partitions", |r| r["partition_layout"] = json!([]), "/recipe/partition_layout", "minItems"),
    ("the rest twice", |r| size(r, json!("100%")), "/recipe/partition_layout/1/size", "rest_twice"),
    ("a stray field", |r| r["targetDisk"] = json!("/dev/sda"), "/recipe/targetDisk", "additionalProperties"),
    (
        "too much user data",
        |r| r["user_data"] = json!("x".repeat((1 << 20) + 1)),
        "/recipe/user_data",
        "maxLength",
    ),
    ("user data as an object", |r| r["user_data"] = json!({}), "/recipe/user_data", "type"),
    (
        "too long a kickstart",
        |r| r["ks_cfg"] = json!("x".repeat((1 << 18) + 1)),
        "/recipe/ks_cfg",
        "maxLength",
    ),
    ("unknown label", |r| r["media_label"] = json!("cidata"), "/recipe/media_label", "enum"),
    ("no recipe at all", |r| *r = json!([]), "/recipe", "type"),
];

fn take(recipe: &mut Value, field: &str) -> Option<Value> {
    recipe.as_object_mut().unwrap().remove(field)
}

fn size(recipe: &mut Value, size: Value) {
    recipe["partition_layout"][0]["size"] = size;
}

fn part(recipe: &mut Value, field: &str, value: &str) {
    recipe["partition_layout"][0][field] = json!(value);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_error_in_a_recipe_has_its_path_its_rule_and_a_message() {
    let scene = Scene::bare(vec![healthy("R-1")], |settings, _| {
        settings.worker_concurrency = 0;
        settings.max_body_bytes = 4 << 20;
    })
    .await;
    scene.admin.register(scene.server("R-1")).await;
    for (what, spoil, path, code) in MISTAKES {
        let mut recipe = recipe();
        spoil(&mut recipe);
        let response =
            scene.admin.post("/api/v1/jobs", &json!({ "server_serial": "R-1", "recipe": recipe })).await;
        let body = response.refused(400, "validation_error");
        let details = body["details"].as_array().unwrap();
        let named = details.iter().find(|detail| detail["path"] == path && detail["code"] == code);
        let named = named.unwrap_or_else(|| panic!("{what}: no {code} at {path} in {body:#}"));
        assert!(named["message"].as_str().is_some_and(|message| message.len() > 10), "{what}: {named}");
        assert_eq!(named["field"].as_str(), path.rsplit('/').next(), "{what}: {named}");
        assert!(response.body.len() < 16 * 1024, "{what}: the response repeats the request");
    }
    let jobs = scene.admin.get("/api/v1/jobs").await.expect(200);
    assert_eq!(jobs["jobs"], json!([]), "an invalid recipe created a job");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_errors_of_a_recipe_are_reported_at_once() {
    let scene = Scene::bare(vec![healthy("R-2")], |settings, _| settings.worker_concurrency = 0).await;
    scene.admin.register(scene.server("R-2")).await;
    let mut recipe = recipe();
    recipe["target_disk"] = json!("sda");
    recipe["colour"] = json!("blue");
    size(&mut recipe, json!("1Z"));
    let body = json!({ "server_serial": "R-2", "recipe": recipe });
    let body = scene.admin.post("/api/v1/jobs", &body).await.refused(400, "validation_error");
    let mut paths: Vec<&str> =
        body["details"].as_array().unwrap().iter().map(|detail| detail["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/recipe/colour", "/recipe/partition_layout/0/size", "/recipe/target_disk"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_schema_allows_is_accepted() {
    let scene = Scene::bare(vec![], |settings, _| {
        settings.worker_concurrency = 0;
        settings.esxi_installer_url = Some("/esxi.iso".to_owned());
    })
    .await;
    let mut schema = recipe();
    schema["$schema"] = json!("https://shoal.dev/provisioner/recipe.schema.json");
    let esxi = json!({ "task_target": "install-esxi.target", "ks_cfg": "vmaccepteula\n" });
    let windows = json!({
        "task_target": "install-windows.target", "target_disk": "/dev/nvme0n1", "oci_url": "h:8080/os/win:1",
    });
    let firmware =
        json!({ "task_target": "supermicro-update.target", "firmware_url": "https://h/firmware/bios.bin" });
    for (number, recipe) in [schema, esxi, windows, firmware].iter().enumerate() {
        let serial = format!("FINE-{number}");
        scene.admin.register_at(&serial, "127.0.0.1:9").await;
        scene
            .admin
            .post("/api/v1/jobs", &json!({ "server_serial": serial, "recipe": recipe }))
            .await
            .expect(202);
    }
    scene.end().await;
}
