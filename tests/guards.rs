//! What must never happen: a change of the wrong machine, an eject under a running system, a grant that outlives its job.

use std::time::Duration;

use lab_bmc::{Fault, FaultEffect, FaultTrigger};
use reqwest::Method;
use serde_json::json;

use crate::kit::{BMC_PASSWORD, Scene, recipe, silent};

#[tokio::test(flavor = "multi_thread")]
async fn the_bmc_address_of_a_server_cannot_change_while_its_job_runs() {
    let scene = Scene::start(vec![silent("GUARD-1"), silent("GUARD-2")]).await;
    let id = scene.admin.create_job("GUARD-1").await;
    scene.admin.awaits_report(&id).await;
    let other = json!({ "bmc_address": scene.server("GUARD-2").bmc_url, "bmc_password": BMC_PASSWORD });
    scene.admin.patch("/api/v1/servers/GUARD-1", &other).await.refused(409, "conflict.active_job");
    let label = json!({ "labels": { "rack": "7" } });
    scene.admin.patch("/api/v1/servers/GUARD-1", &label).await.expect(200);
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.complete_skipping(&id).await;
    scene.admin.patch("/api/v1/servers/GUARD-1", &other).await.expect(200);
    assert!(scene.bmc("GUARD-2").mutations().is_empty(), "the other BMC received a request");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_query_parameter_is_refused_and_creates_no_job() {
    let scene = Scene::start(vec![silent("GUARD-3")]).await;
    let body = json!({ "server_serial": "GUARD-3", "recipe": recipe() });
    scene.admin.post("/api/v1/jobs?dryrun=true", &body).await.refused(400, "validation_error");
    assert_eq!(scene.admin.get("/api/v1/jobs").await.expect(200)["jobs"], json!([]));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_in_the_location_of_the_maintenance_iso_are_refused_and_a_query_is_not_shown() {
    let scene =
        Scene::start_with(vec![silent("GUARD-4")], |settings, _| settings.worker_concurrency = 0).await;
    let order = |location: &str| json!({ "server_serial": "GUARD-4", "recipe": recipe(), "maintenance_iso_url": location });
    let refused = scene.admin.post("/api/v1/jobs", &order("https://u:hobbes@iso.example/x.iso")).await;
    let refused = refused.refused(400, "validation_error");
    assert_eq!(refused["details"][0]["path"], "/maintenance_iso_url");
    assert!(!refused.to_string().contains("hobbes"), "{refused}");
    scene.admin.post("/api/v1/jobs", &order("s3:x")).await.refused(400, "validation_error");
    let accepted =
        scene.admin.post("/api/v1/jobs", &order("https://iso.example/x.iso?sig=hobbes")).await.expect(202);
    let job = scene.admin.job(accepted["job_id"].as_str().unwrap()).await;
    assert_eq!(job["maintenance_iso_url"], "https://iso.example/***");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_differ_only_in_json_formatting_are_one_request() {
    let scene =
        Scene::start_with(vec![silent("GUARD-5")], |settings, _| settings.worker_concurrency = 0).await;
    let send = |body: String| {
        let request = scene.admin.request(Method::POST, "/api/v1/jobs").header("Idempotency-Key", "form");
        scene.admin.send(request.header("content-type", "application/json").body(body))
    };
    let first = send(format!(r#"{{"server_serial":"GUARD-5","recipe":{:#}}}"#, recipe())).await.expect(202);
    let again =
        send(format!(r#"{{ "recipe": {}, "server_serial": "GUARD-5" }}"#, recipe())).await.expect(200);
    assert_eq!(first["job_id"], again["job_id"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn media_of_a_host_that_stays_on_are_not_ejected_and_the_host_is_not_booted_again() {
    let scene = Scene::start(vec![silent("GUARD-6")]).await;
    let bmc = scene.bmc("GUARD-6");
    let id = scene.admin.create_job("GUARD-6").await;
    scene.admin.awaits_report(&id).await;
    for reset in [lab_bmc::ResetType::GracefulShutdown, lab_bmc::ResetType::ForceOff] {
        bmc.inject(Fault::always(FaultTrigger::ResetTo(reset), FaultEffect::AcceptButIgnore));
    }
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({ "reason": "test" })).await.expect(202);
    let job = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "cancelled");
    assert_eq!(job["cleanup"]["state"], "incomplete");
    let remaining = job["cleanup"]["remaining"].to_string();
    assert!(remaining.contains("cleanup.power-off") && remaining.contains("cleanup.eject"), "{remaining}");
    assert_eq!(bmc.ejected_while_running(), 0);
    assert_eq!(bmc.boots_from_media(), 1);
    let server = scene.admin.get("/api/v1/servers/GUARD-6").await.expect(200);
    assert_eq!(server["pending_cleanup"]["job_id"], json!(id), "the server shows the pending cleanup");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_cleanup_timeout_passes_the_grants_end_and_the_cleanup_stays_pending() {
    let scene = Scene::start(vec![silent("GUARD-7")]).await;
    let bmc = scene.bmc("GUARD-7");
    let id = scene.admin.create_job("GUARD-7").await;
    scene.admin.awaits_report(&id).await;
    let medium = bmc.snapshot().slots.iter().find_map(|slot| slot.image.clone()).unwrap();
    let medium = medium.as_str().to_owned();
    scene.anonymous().get(&medium).await;
    bmc.set_reachable(false);
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    let cleaning = |job: &serde_json::Value| job["status"] == "failed" && job["wait"]["reason"] == "retry";
    scene.admin.wait(&id, "cleanup waits for the BMC", cleaning).await;
    scene.skip(Duration::from_secs(3600));
    let job = scene.admin.complete(&id).await;
    assert_eq!(job["cleanup"]["state"], "incomplete");
    scene.admin.until(&medium, "the end of the grant", |response| response.status == 404).await;
    let server = scene.admin.get("/api/v1/servers/GUARD-7").await.expect(200);
    assert_eq!(server["pending_cleanup"]["job_id"], json!(id));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_secret_is_accepted_after_wrong_ones_from_the_same_address() {
    let scene = Scene::start(vec![silent("GUARD-8")]).await;
    let id = scene.admin.create_job("GUARD-8").await;
    scene.admin.awaits_report(&id).await;
    let mut limited = false;
    for _ in 0..40 {
        limited |=
            scene.admin.report("GUARD-8", "wrong", &json!({ "status": "success" })).await.status == 429;
    }
    assert!(limited, "guesses are not limited");
    let token = scene.admin.job_document(&id).await["webhook_token"].as_str().unwrap().to_owned();
    scene.admin.report("GUARD-8", &token, &json!({ "status": "success" })).await.expect(200);
    assert_eq!(scene.admin.complete(&id).await["outcome"], "succeeded");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_cannot_make_the_controller_fetch_from_its_own_addresses_or_read_its_own_files() {
    let scene = Scene::start_with(vec![silent("GUARD-8")], |settings, _| {
        settings.worker_concurrency = 0;
        settings.fetch_allow_cidrs.clear();
        settings.image_dir = "/srv/images".into();
    })
    .await;
    let order = |location: &str| json!({ "server_serial": "GUARD-8", "recipe": recipe(), "maintenance_iso_url": location });
    let key = scene.folder.path().join("data/master.key").display().to_string();
    let refused = [
        "http://127.0.0.1:8080/x.iso",
        "http://2130706433/x.iso",
        "http://[::1]/x.iso",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:169.254.169.254]/x.iso",
        "http://[fe80::1]/x.iso",
        "/etc/passwd",
        "file:///etc/passwd",
        "/srv/images/../passwd",
        &key,
    ];
    for location in refused {
        let body = scene.admin.post("/api/v1/jobs", &order(location)).await.refused(400, "validation_error");
        assert_eq!(body["details"][0]["path"], "/maintenance_iso_url", "{location}: {body}");
        let said = body["details"][0]["message"].as_str().unwrap();
        assert!(said.contains("FETCH_ALLOW_CIDRS") || said.contains("IMAGE_DIR"), "{location}: {said}");
    }
    for url in ["http://127.0.0.1:9/hook", "http://[::ffff:127.0.0.1]/hook", "http://169.254.169.254/hook"] {
        let webhook = json!({ "url": url, "secret": "0123456789abcdef" });
        let body = scene.admin.post("/api/v1/webhooks", &webhook).await.refused(400, "validation_error");
        assert_eq!(body["details"][0]["path"], "/url", "{url}: {body}");
    }
    let webhook = json!({ "url": "http://receiver.example/hook", "secret": "0123456789abcdef" });
    scene.admin.post("/api/v1/webhooks", &webhook).await.expect(201);
    // A BMC may have a link-local address: administrators register it.
    scene.admin.register_at("GUARD-9", "https://169.254.0.17").await;
    // What a setting names is allowed wherever it is.
    let configured = scene.folder.path().join("maintenance.iso").display().to_string();
    scene.admin.post("/api/v1/jobs", &order(&configured)).await.expect(202);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_whose_name_leads_to_a_refused_address_is_not_delivered() {
    let scene = Scene::bare(vec![], |settings, _| settings.fetch_allow_cidrs.clear()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
    let webhook = json!({ "url": url, "secret": "0123456789abcdef" });
    let webhook = scene.admin.post("/api/v1/webhooks", &webhook).await.expect(201);
    scene.admin.register_at("GUARD-10", "192.0.2.7").await;
    let place = format!("/api/v1/webhooks/{}", webhook["webhook_id"].as_str().unwrap());
    let tried = scene.admin.until(&place, "a try", |response| !response.json()["last_error"].is_null()).await;
    assert!(tried.text().contains("FETCH_ALLOW_CIDRS"), "{}", tried.text());
    let accepted = tokio::time::timeout(Duration::from_millis(10), listener.accept()).await;
    assert!(accepted.is_err(), "a connection was made");
    scene.end().await;
}
