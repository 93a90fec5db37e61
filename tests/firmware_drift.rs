//! Which servers differ from their firmware sets, what was installed on one, and that the preview is what an installation does.

use reqwest::Method;
use serde_json::{Value, json};

use crate::command_line::shoal;
use crate::firmware_install::{File, NEW, SERIAL, installed_anyway, place, scene, set_of};
use crate::kit::{Client, Scene};

/// A client that may only read.
async fn viewer(scene: &Scene) -> Client {
    let new = json!({ "name": "reader", "role": "viewer" });
    let made = scene.admin.post("/api/v1/tokens", &new).await.expect(201);
    scene.admin.with_token(made["token"].as_str().unwrap())
}

/// The document of a command, which ends with this code.
async fn json_of(client: &Client, arguments: &[&str], code: i32) -> Value {
    let ran = shoal(client, &[arguments, &["--json"]].concat()).await;
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!(ran.status.code(), Some(code), "{arguments:?}\n{out}\n{err}");
    serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}"))
}

async fn read_inventory(scene: &Scene) {
    let read = scene.admin.post(&place("condition"), &json!({ "kind": "inventoryOOB" })).await.expect(200);
    let job = scene.complete_skipping(read["id"].as_str().unwrap()).await;
    assert_eq!(job["outcome"], "succeeded", "{job:#}");
}

/// Component, version now and version then of each difference of the only server.
fn differences(drift: &Value) -> Vec<[&str; 3]> {
    let components = drift["servers"][0]["components"].as_array().unwrap().iter();
    components.map(|one| ["component", "now", "then"].map(|key| one[key].as_str().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_read_by_a_viewer_from_the_stored_inventory_and_no_bmc_is_asked() {
    let scene = scene("openbmc", |_| {}).await;
    set_of(&scene.admin, "openbmc", &[File::of("bmc", NEW), File::of("bios", NEW)]).await;
    let viewer = viewer(&scene).await;
    let bmc = scene.bmc(SERIAL);

    let unknown = json_of(&viewer, &["firmware", "drift", "--set", "all"], 7).await;
    assert_eq!(unknown["total"], json!({ "servers": 1, "current": 0, "differs": 0, "unknown": 1 }));
    assert!(unknown["servers"][0]["reason"].as_str().unwrap().contains("--refresh"), "{unknown:#}");
    // No set can be chosen either.
    let unknown = json_of(&viewer, &["firmware", "drift", SERIAL], 7).await;
    assert_eq!(unknown["servers"][0]["state"], "unknown", "{unknown:#}");
    assert_eq!(bmc.mutations(), []);

    read_inventory(&scene).await;
    let requests = bmc.snapshot().requests;
    let differs = json_of(&viewer, &["firmware", "drift"], 7).await;
    assert_eq!(differs["servers"][0]["state"], "differs", "{differs:#}");
    assert_eq!(differs["servers"][0]["firmware_set"], "all", "{differs:#}");
    assert_eq!(differences(&differs), [["bmc", "2.16.0", NEW], ["bios", "2.8", NEW]], "{differs:#}");
    let read_at = differs["servers"][0]["inventory_read_at"].as_str().unwrap();
    let shown = scene.admin.get(&place("inventory")).await.expect(200);
    assert_eq!(shown["out_of_band_read_at"], read_at);
    assert_eq!((bmc.mutations(), bmc.snapshot().requests), (Vec::new(), requests), "no request to the BMC");
    let table = shoal(&viewer, &["firmware", "drift", "--filter", "serial:FW-*"]).await;
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.contains("bmc 2.16.0 → 99.1") && table.contains("1 servers: 0 current, 1 differ"),
        "{table}"
    );

    let job = installed_anyway(&scene).await;
    assert_eq!(job["outcome"], "succeeded", "{job:#}");
    let current = json_of(&viewer, &["firmware", "drift", SERIAL, "--set", "all"], 0).await;
    assert_eq!(current["total"], json!({ "servers": 1, "current": 1, "differs": 0, "unknown": 0 }));

    let history = json_of(&viewer, &["firmware", "history", SERIAL], 0).await;
    let one = &history["installations"][0];
    assert_eq!((&one["job_id"], &one["outcome"]), (&job["job_id"], &json!("succeeded")), "{history:#}");
    assert_eq!(one["ended_at"], job["last_update"], "{history:#}");
    let components = one["components"].as_array().unwrap().iter();
    let components: Vec<(&Value, &Value, &Value, &Value)> =
        components.map(|of| (&of["component"], &of["from"], &of["to"], &of["verified"])).collect();
    let (new, yes) = (json!(NEW), json!(true));
    assert_eq!(
        components,
        [(&json!("bmc"), &json!("2.16.0"), &new, &yes), (&json!("bios"), &json!("2.8"), &new, &yes)]
    );
    json_of_nothing(&viewer).await;
    scene.end().await;
}

/// A set and a server that do not exist are no drift and no history.
async fn json_of_nothing(viewer: &Client) {
    for arguments in [
        &["firmware", "drift", SERIAL, "--set", "none"][..],
        &["firmware", "drift", "NONE", "--set", "all"],
        &["firmware", "history", "NONE"],
    ] {
        let ran = shoal(viewer, arguments).await;
        assert_eq!(ran.status.code(), Some(3), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_may_preview_what_is_stored_and_nothing_that_reads_a_bmc_or_changes_something() {
    let scene = scene("openbmc", |_| {}).await;
    set_of(&scene.admin, "openbmc", &[File::of("bmc", NEW)]).await;
    let viewer = viewer(&scene).await;
    let install = json!({ "kind": "firmwareInstall", "parameters": { "firmware_set": "all" } });
    let preview = viewer.post(&place("condition?dry_run=true"), &install).await.expect(200);
    assert_eq!((&preview["dry_run"], &preview["inventory_read_at"]), (&json!(true), &Value::Null));
    for query in ["condition", "condition?dry_run=false", "condition?dry_run=true&dry_run=false"] {
        viewer.post(&place(query), &install).await.refused(403, "forbidden");
    }
    let bios = json!({ "kind": "biosApply", "parameters": { "attributes": { "BootMode": "Uefi" } } });
    let requests = scene.bmc(SERIAL).snapshot().requests;
    viewer.post(&place("condition?dry_run=true"), &bios).await.refused(403, "forbidden");
    assert_eq!(scene.bmc(SERIAL).snapshot().requests, requests);
    let jobs = scene.admin.get("/api/v1/jobs").await.expect(200);
    assert_eq!(jobs["jobs"], json!([]));
    let no_token = scene.anonymous().request(Method::POST, &place("condition?dry_run=true")).json(&install);
    assert_eq!(scene.admin.send(no_token).await.status, 401);
    scene.end().await;
}
