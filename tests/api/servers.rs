//! Servers: registration, change, deletion.

use reqwest::Method;
use serde_json::json;

use crate::kit::{BMC_PASSWORD, BMC_USER, Scene, healthy};

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_registration_is_accepted_and_a_different_one_for_the_serial_is_refused() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let mut body = json!({
        "serial": "S-1", "bmc_address": "192.0.2.7", "bmc_username": BMC_USER, "bmc_password": BMC_PASSWORD,
        "labels": { "rack": "7" },
    });
    let server = scene.admin.post("/api/v1/servers", &body).await.expect(201);
    assert!(server.get("bmc_password").is_none(), "{server}");
    scene.admin.post("/api/v1/servers", &body).await.expect(200);
    body["bmc_password"] = json!("another");
    scene.admin.post("/api/v1/servers", &body).await.refused(409, "conflict.server");
    let listed = scene.admin.get("/api/v1/servers").await.expect(200);
    assert_eq!(listed["servers"].as_array().unwrap().len(), 1);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_errors_of_a_server_are_reported_at_once() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let paths = |body: &serde_json::Value| -> Vec<String> {
        let details = body["details"].as_array().unwrap();
        details.iter().map(|detail| detail["path"].as_str().unwrap().to_owned()).collect()
    };
    let body = scene.admin.post("/api/v1/servers", &json!({})).await.refused(400, "validation_error");
    assert_eq!(paths(&body), ["/serial", "/bmc_address", "/bmc_username", "/bmc_password"]);
    // A password that no login could use, and a base whose URLs no BMC takes.
    let long = format!("http://{}.example", "a.".repeat(40));
    let body = json!({
        "serial": "S-1", "bmc_address": "192.0.2.7", "bmc_username": "admin", "bmc_password": "", "media_base_url": long,
    });
    let body = scene.admin.post("/api/v1/servers", &body).await.refused(400, "validation_error");
    assert_eq!(paths(&body), ["/bmc_password", "/media_base_url"], "{body}");
    let body = json!({
        "serial": "S-1", "bmc_address": "not an address", "bmc_username": "a:b", "bmc_password": "x",
        "tls": "maybe", "media_base_url": "http://10.0.0.1/deep/path",
        "bmc_profile": "dell-idrak8", "quirks": { "vm_pth": "system" },
    });
    let body = scene.admin.post("/api/v1/servers", &body).await.refused(400, "validation_error");
    let wrong = paths(&body);
    let expected =
        ["/bmc_address", "/bmc_username", "/bmc_profile", "/quirks/vm_pth", "/tls", "/media_base_url"];
    assert_eq!(wrong, expected);
    let said = body["details"].to_string();
    assert!(said.contains("did you mean dell-idrac8?") && said.contains("did you mean vm_path?"), "{said}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_based_on_an_old_version_is_refused() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    scene.admin.register_at("S-1", "192.0.2.7").await;
    let tag = scene.admin.get("/api/v1/servers/S-1").await.header("etag").unwrap().to_owned();
    let change = |tag: &str, vendor: &str| {
        let request = scene.admin.request(Method::PATCH, "/api/v1/servers/S-1");
        scene.admin.send(request.header("If-Match", tag).json(&json!({ "vendor": vendor })))
    };
    assert_eq!(change(&tag, "contoso").await.expect(200)["vendor"], "contoso");
    change(&tag, "fabrikam").await.refused(412, "precondition_failed");
    scene
        .admin
        .patch("/api/v1/servers/S-1", &json!({ "serial": "S-2" }))
        .await
        .refused(400, "validation_error");
    let server = scene.admin.patch("/api/v1/servers/S-1", &json!({ "vendor": null })).await.expect(200);
    assert_eq!(server["vendor"], json!(null));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_jobs_is_kept_and_one_without_jobs_is_deleted() {
    let scene =
        Scene::start_with(vec![healthy("KEPT-1")], |settings, _| settings.worker_concurrency = 0).await;
    scene.admin.create_job("KEPT-1").await;
    scene.admin.delete("/api/v1/servers/KEPT-1").await.refused(409, "conflict.jobs");
    scene.admin.register_at("FREE-1", "192.0.2.7").await;
    assert_eq!(scene.admin.delete("/api/v1/servers/FREE-1").await.status, 204);
    scene.admin.delete("/api/v1/servers/FREE-1").await.refused(404, "unknown_server");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_deleted_with_its_ended_jobs_after_a_preview() {
    let scene = Scene::start(vec![healthy("GONE-1"), healthy("STAY-1")]).await;
    let job = scene.admin.create_job("GONE-1").await;
    let place = "/api/v1/servers/GONE-1";
    scene.admin.delete(&format!("{place}?with_history=true")).await.refused(409, "conflict.jobs");
    scene.admin.complete(&job).await;
    scene.admin.delete(place).await.refused(409, "conflict.jobs");
    scene.admin.delete(&format!("{place}?dry_run=true")).await.refused(409, "conflict.jobs");

    let preview = scene.admin.delete(&format!("{place}?with_history=true&dry_run=true")).await.expect(200);
    assert_eq!(preview, json!({ "dry_run": true, "serial": "GONE-1", "jobs": 1 }));
    scene.admin.get(place).await.expect(200);

    // As a start with TASK_ISO_MODE=file wrote it; this one has TASK_ISO_MODE=computed.
    let image = scene.folder.path().join("data/task-isos").join(&job);
    std::fs::create_dir_all(&image).unwrap();
    std::fs::write(image.join("task.iso"), "an image with secrets").unwrap();
    assert_eq!(scene.admin.delete(&format!("{place}?with_history=true")).await.status, 204);
    assert!(!image.exists(), "the files of the jobs are removed too");
    scene.admin.get(place).await.refused(404, "unknown_server");
    scene.admin.get(&format!("/api/v1/jobs/{job}")).await.refused(404, "unknown_job");
    let events = scene.admin.get("/api/v1/events?limit=1000").await.expect(200);
    let deleted = events["events"].as_array().unwrap().iter().find(|event| event["type"] == "server.deleted");
    assert_eq!(deleted.unwrap()["message"], "server GONE-1 deleted with 1 job");
    let audit = scene.admin.get("/api/v1/audit?action=server.remove").await.expect(200);
    assert_eq!(audit["entries"][0]["target"], "server/GONE-1", "{audit}");
    scene.end().await;
}
