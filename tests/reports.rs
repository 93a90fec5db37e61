//! Installation reports: their contents, repetitions and secrets.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Scene, healthy, silent};

const SHARED: &str = "a-shared-secret-of-the-tests";

/// A job that waits for its report, and the token to report with.
async fn waiting(serial: &str) -> (Scene, String, String) {
    let scene = Scene::start_with(vec![silent(serial)], |settings, _| {
        settings.webhook_secret = Some(SHARED.parse().unwrap());
    })
    .await;
    let id = scene.admin.create_job(serial).await;
    scene.admin.awaits_report(&id).await;
    let token = token(&scene, &id).await;
    (scene, id, token)
}

async fn token(scene: &Scene, id: &str) -> String {
    scene.admin.job_document(id).await["webhook_token"].as_str().unwrap().to_owned()
}

fn failed(step: &str) -> Value {
    json!({ "status": "failed", "failed_step": step })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_report_counts_and_repetitions_are_acknowledged_also_after_the_end() {
    let (scene, id, token) = waiting("REP-1").await;
    let report = json!({ "status": "success", "job_id": id, "unknown": [1] });
    let first = scene.admin.report("REP-1", &token, &report).await.expect(200);
    assert_eq!(first, json!({ "ok": true }));
    let again = scene.admin.report("REP-1", &token, &report).await.expect(200);
    assert_eq!(again, json!({ "ok": true, "idempotent": true }));
    let job = scene.admin.complete(&id).await;
    assert_eq!(job["outcome"], "succeeded");
    let late = scene.admin.report("REP-1", &token, &report).await.expect(200);
    assert_eq!(late, json!({ "ok": true, "idempotent": true }));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_failure_is_a_repetition_and_success_after_failure_a_contradiction() {
    let (scene, id, token) = waiting("REP-2").await;
    scene.admin.report("REP-2", &token, &failed("image-linux.service")).await.expect(200);
    let again = scene.admin.report("REP-2", &token, &failed("bootloader-linux.service")).await.expect(200);
    assert_eq!(again["idempotent"], json!(true));
    scene
        .admin
        .report("REP-2", &token, &json!({ "status": "success" }))
        .await
        .refused(409, "conflict.report");
    let job = scene.admin.complete(&id).await;
    assert_eq!((&job["outcome"], &job["failed_step"]), (&json!("failed"), &json!("image-linux.service")));
    scene
        .admin
        .report("REP-2", &token, &json!({ "status": "success" }))
        .await
        .refused(409, "conflict.report");
    let events = scene.admin.events(&id).await;
    assert_eq!(events.iter().filter(|event| event["type"] == "report.contradiction").count(), 2);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_after_success_is_a_contradiction() {
    let (scene, id, token) = waiting("REP-3").await;
    scene.admin.report("REP-3", &token, &json!({ "status": "success" })).await.expect(200);
    scene.admin.report("REP-3", &token, &failed("late.service")).await.refused(409, "conflict.report");
    assert_eq!(scene.admin.complete(&id).await["outcome"], "succeeded");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_after_the_cancel_of_a_job_is_an_event_with_its_reason_and_contradicts_nothing() {
    let (scene, id, token) = waiting("REP-9").await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.admin.complete(&id).await;
    let mut report = failed("image-linux.service");
    report["message"] = json!("reading the image: no such host");
    report["log"] = json!("image-linux: no such host\n");
    report["inventory"] = json!({ "cpus": 4 });
    for _ in 0..2 {
        scene.admin.report("REP-9", &token, &report).await.expect(200);
    }
    scene
        .admin
        .report("REP-9", &token, &json!({ "status": "success" }))
        .await
        .refused(409, "conflict.report");
    let log = scene.admin.get(&format!("/api/v1/jobs/{id}/log")).await.expect(200);
    assert_eq!(log["log"], "image-linux: no such host\n");
    let shown = scene.admin.get("/api/v1/servers/REP-9/inventory").await.expect(200);
    assert_eq!(shown["inventory"], report["inventory"]);
    let events = scene.admin.events(&id).await;
    let late: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "report.late")
        .map(|event| event["message"].as_str().unwrap())
        .collect();
    assert_eq!(
        late,
        [
            "the maintenance OS reported a failure of image-linux.service after the job had ended (cancelled): reading the image: no such host",
            "the maintenance OS reported success after the job had ended (cancelled): the disk is written",
        ]
    );
    assert!(events.iter().all(|event| event["type"] != "report.contradiction"), "{events:#?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_reports_are_refused_and_change_nothing() {
    let (scene, id, token) = waiting("REP-4").await;
    for (body, path) in [
        (json!({ "status": "failed" }), "/failed_step"),
        (json!({ "status": "failed", "failed_step": "" }), "/failed_step"),
        (json!({ "status": "fine" }), "/status"),
        (json!({}), "/status"),
        (json!({ "status": "progress" }), "/step"),
        (json!([]), "/"),
    ] {
        let refused = scene.admin.report("REP-4", &token, &body).await.refused(400, "validation_error");
        assert_eq!(refused["details"][0]["path"], path, "{body}: {refused}");
    }
    let request = scene.admin.request(Method::POST, "/api/v1/status-webhook/REP-4");
    let response = scene.admin.send(request.header("X-Webhook-Secret", &token).body("not json")).await;
    response.refused(400, "validation_error");
    assert_eq!(scene.admin.job(&id).await["wait"]["reason"], "report");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_becomes_an_event_and_ends_nothing() {
    let (scene, id, token) = waiting("REP-5").await;
    let progress = json!({ "status": "progress", "step": "image-linux.service", "percent": 40 });
    scene.admin.report("REP-5", &token, &progress).await.expect(200);
    let events = scene.admin.events(&id).await;
    let event = events.iter().find(|event| event["type"] == "report.progress").unwrap();
    assert_eq!(event["data"], json!({ "step": "image-linux.service", "percent": 40 }));
    // An agent that knows the bytes of the image says them; the events of the job and its page have them too.
    let (bytes, total) = (5_000_000_000_u64, 9_000_000_000_u64);
    let read = json!({ "status": "progress", "step": "image-linux.service", "percent": 41, "bytes": bytes, "total": total });
    scene.admin.report("REP-5", &token, &read).await.expect(200);
    let data = json!({ "step": "image-linux.service", "percent": 41, "bytes": bytes, "total": total });
    for events in
        [scene.admin.events(&id).await, scene.admin.job(&id).await["events"].as_array().unwrap().clone()]
    {
        let event = events.iter().rfind(|event| event["type"] == "report.progress").unwrap();
        assert_eq!(event["data"], data);
    }
    // The agent names the disk before its first write: after a power failure the controller knows which one it was.
    let disk = json!({ "name": "nvme0n1", "bytes": 1_000_000, "serial": "N1", "model": null });
    let chosen = json!({ "status": "progress", "step": "select-disk.service", "percent": 1, "disk": disk });
    scene.admin.report("REP-5", &token, &chosen).await.expect(200);
    let events = scene.admin.events(&id).await;
    let event = events.iter().rfind(|event| event["type"] == "report.progress").unwrap();
    assert_eq!(event["data"]["disk"], disk);
    assert_eq!(event["message"], "select-disk.service, 1 %; the disk is nvme0n1, serial N1");
    assert_eq!(scene.admin.job(&id).await["wait"]["reason"], "report");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_secrets_are_refused_and_guesses_are_rate_limited() {
    let (scene, id, token) = waiting("REP-6").await;
    let anonymous = scene.anonymous();
    let success = json!({ "status": "success" });
    anonymous.post("/api/v1/status-webhook/REP-6", &success).await.refused(401, "unauthorized");
    let mut guesses = 0;
    let limited = loop {
        let response = anonymous.report("REP-6", &format!("guess-{guesses}"), &success).await;
        if response.status == 429 {
            break response;
        }
        response.refused(401, "unauthorized");
        guesses += 1;
        assert!(guesses < 100, "guesses are not limited");
    };
    limited.refused(429, "rate_limited");
    assert!(limited.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(scene.admin.job(&id).await["wait"]["reason"], "report");
    scene.skip(Duration::from_secs(600));
    scene.admin.report("REP-6", &token, &success).await.expect(200);
    assert_eq!(scene.admin.complete(&id).await["outcome"], "succeeded");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shared_secret_is_accepted_only_for_servers_with_a_job() {
    let (scene, id, _token) = waiting("REP-7").await;
    let success = json!({ "status": "success" });
    scene.admin.report("UNKNOWN", SHARED, &success).await.refused(404, "no_active_job");
    let foreign = json!({ "status": "success", "job_id": uuid::Uuid::now_v7() });
    scene.admin.report("REP-7", SHARED, &foreign).await.refused(404, "no_active_job");
    scene.admin.report("REP-7", SHARED, &success).await.expect(200);
    assert_eq!(scene.admin.complete(&id).await["outcome"], "succeeded");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_configured_secret_no_shared_secret_is_accepted() {
    let scene = Scene::start(vec![silent("REP-8")]).await;
    let id = scene.admin.create_job("REP-8").await;
    scene.admin.awaits_report(&id).await;
    for secret in ["", "null", SHARED] {
        let response = scene.admin.report("REP-8", secret, &json!({ "status": "success" })).await;
        response.refused(401, "unauthorized");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_before_the_power_on_finds_no_active_job() {
    let scene = Scene::start_with(vec![healthy("REP-9")], |settings, _| {
        settings.webhook_secret = Some(SHARED.parse().unwrap());
        settings.worker_concurrency = 0;
    })
    .await;
    let id = scene.admin.create_job("REP-9").await;
    for report in [json!({ "status": "success" }), json!({ "status": "success", "job_id": id })] {
        scene.admin.report("REP-9", SHARED, &report).await.refused(404, "no_active_job");
    }
    assert_eq!(scene.admin.job(&id).await["status"], "queued");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_an_old_job_never_ends_a_newer_one() {
    let (scene, old, old_token) = waiting("REP-10").await;
    scene.admin.report("REP-10", &old_token, &json!({ "status": "success" })).await.expect(200);
    scene.admin.complete(&old).await;
    let new = scene.admin.create_job("REP-10").await;
    scene.admin.awaits_report(&new).await;

    let repeated =
        scene.admin.report("REP-10", &old_token, &json!({ "status": "success" })).await.expect(200);
    assert_eq!(repeated["idempotent"], json!(true));
    let named = json!({ "status": "success", "job_id": new });
    scene.admin.report("REP-10", &old_token, &named).await.refused(409, "conflict.job_id");
    scene.admin.report("REP-10", &old_token, &failed("old.service")).await.refused(409, "conflict.report");
    assert_eq!(scene.admin.job(&new).await["wait"]["reason"], "report");

    let new_token = token(&scene, &new).await;
    assert_ne!(new_token, old_token);
    scene.admin.report("REP-10", &new_token, &failed("new.service")).await.expect(200);
    let job = scene.admin.complete(&new).await;
    assert_eq!(job["failed_step"], "new.service");
    assert_eq!(scene.admin.job(&old).await["outcome"], "succeeded");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_names_the_disk_that_the_former_attempt_wrote() {
    let (scene, id, token) = waiting("REP-13").await;
    let report = |step: &str, disk: Value| json!({ "status": "progress", "step": step, "disk": disk });
    let mut disk = json!({ "name": "sda", "serial": "D1", "wwn": null, "written": false });
    scene.admin.report("REP-13", &token, &report("select-disk.service", disk.clone())).await.expect(200);
    disk["written"] = json!(true);
    for step in ["partition.service", "image-linux.service"] {
        scene.admin.report("REP-13", &token, &report(step, disk.clone())).await.expect(200);
    }
    let events = scene.admin.events(&id).await;
    let began: Vec<_> = events.iter().filter(|event| event["type"] == "report.disk").collect();
    assert_eq!((began.len(), &began[0]["data"]["disk"]), (1, &disk));
    assert_eq!(scene.admin.job_document(&id).await["disk_before"], Value::Null);
    scene.admin.report("REP-13", &token, &failed("image-linux.service")).await.expect(200);
    scene.admin.complete(&id).await;

    // A retry that writes nothing, for another disk matches, hands on the disk of the attempt before it.
    let mut former = id;
    for _ in 0..2 {
        let retried = scene.admin.post(&format!("/api/v1/jobs/{former}/retry"), &json!({})).await.expect(202);
        let id = retried["job_id"].as_str().unwrap().to_owned();
        scene.admin.awaits_report(&id).await;
        let document = scene.admin.job_document(&id).await;
        assert_eq!(document["disk_before"], json!({ "serial": "D1", "wwn": null }));
        let other = json!({ "name": "sdb", "serial": "D2", "written": false });
        let refused = json!({
            "status": "failed", "failed_step": "select-disk.service", "class": "input", "disk": other,
            "message": "the attempt before wrote the disk with serial number D1",
        });
        scene.admin.report("REP-13", &token_of(&document), &refused).await.expect(200);
        let job = scene.admin.complete(&id).await;
        assert_eq!(job["failure"]["class"], "input");
        assert!(job["failure"]["summary"].as_str().unwrap().contains("serial number D1"), "{job}");
        former = id;
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_job_is_over_or_being_cancelled_is_refused_before_it_writes() {
    let disk = json!({ "name": "sda", "serial": "D1", "written": true });
    let announced = json!({ "status": "progress", "step": "network.service", "percent": 0 });
    let writes = json!({ "status": "progress", "step": "partition.service", "percent": 1, "disk": disk });
    let (scene, id, token) = waiting("REP-14").await;
    scene.admin.report("REP-14", &token, &announced).await.expect(200);
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await;
    // The cleanup may take minutes; the machine starts meanwhile.
    for report in [&announced, &writes] {
        let refused = scene.admin.report("REP-14", &token, report).await.expect(409);
        assert_eq!(refused["error"], "conflict.report");
        assert!(refused["message"].as_str().unwrap().contains("is over (cancelled)"), "{refused}");
    }
    scene.admin.complete(&id).await;
    scene.admin.report("REP-14", &token, &writes).await.expect(409);
    let events = scene.admin.events(&id).await;
    assert!(events.iter().all(|event| event["type"] != "report.disk"), "{events:?}");
    scene.end().await;

    // The medium of a job that succeeded is started again, such as from a copy in the BMC.
    let (scene, id, token) = waiting("REP-15").await;
    scene.admin.report("REP-15", &token, &json!({ "status": "success" })).await.expect(200);
    scene.admin.complete(&id).await;
    let refused = scene.admin.report("REP-15", &token, &announced).await.expect(409);
    assert!(refused["message"].as_str().unwrap().contains("is over (succeeded)"), "{refused}");
    scene.admin.report("REP-15", &token, &json!({ "status": "success" })).await.expect(200);
    scene.end().await;
}

fn token_of(document: &Value) -> String {
    document["webhook_token"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_another_server_is_refused() {
    let scene = Scene::start(vec![silent("REP-11"), silent("REP-12")]).await;
    let one = scene.admin.create_job("REP-11").await;
    let other = scene.admin.create_job("REP-12").await;
    scene.admin.awaits_report(&one).await;
    scene.admin.awaits_report(&other).await;
    let token = token(&scene, &one).await;
    scene.admin.report("REP-12", &token, &json!({ "status": "success" })).await.refused(401, "unauthorized");
    assert_eq!(scene.admin.job(&other).await["wait"]["reason"], "report");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_and_the_inventory_of_the_first_final_report_are_kept_and_shown_without_its_secret() {
    let (scene, id, token) = waiting("REP-30").await;
    let (log, inventory) = (format!("/api/v1/jobs/{id}/log"), "/api/v1/servers/REP-30/inventory");
    let nothing = scene.admin.get(&log).await.expect(200);
    assert_eq!(nothing, json!({ "job_id": id, "received_at": null, "log": null }));
    assert_eq!(scene.admin.get(inventory).await.expect(200)["inventory"], Value::Null);
    let report = json!({
        "status": "failed", "failed_step": "select-disk.service",
        "log": format!("two disks match\nX-Webhook-Secret: {token}\n"),
        "message": format!("{}curl -H 'X-Webhook-Secret: {token}' failed", "x".repeat(200)),
        "disk": { "name": "sda", "serial": "D1", "by": [{ "id": format!("disk-{token}") }] },
        "inventory": { "cpus": 4, "disks": [{ "name": "sda", "bytes": 1 << 30, "rotational": false }] },
    });
    scene.admin.report("REP-30", &token, &report).await.expect(200);
    let other =
        json!({ "status": "failed", "failed_step": "x", "log": "another", "inventory": { "cpus": 1 } });
    scene.admin.report("REP-30", &token, &other).await.expect(200);
    let shown = scene.admin.get(&log).await.expect(200);
    assert_eq!(shown["log"], "two disks match\nX-Webhook-Secret: [redacted]\n");
    assert!(shown["received_at"].is_string());
    assert_eq!(scene.admin.get(inventory).await.expect(200)["inventory"], report["inventory"]);
    scene.admin.complete(&id).await;
    let events = scene.admin.events(&id).await;
    let reported = events.iter().find(|event| event["type"] == "report.failed").unwrap();
    let disk = json!({ "name": "sda", "serial": "D1", "by": [{ "id": "disk-[redacted]" }] });
    assert_eq!(reported["data"]["disk"], disk, "{reported}");
    let job = scene.admin.job(&id).await;
    let why = scene.admin.explain(&id).await;
    for shown in [scene.admin.event_log(&id).await, job.to_string(), why.to_string()] {
        assert!(shown.contains("[redacted]"), "{shown}");
        // A text is cut after 256 characters: not even the beginning of the secret may stay.
        assert!(!shown.contains(&token[..8]), "{shown}");
    }
    scene.admin.get("/api/v1/jobs/unknown/log").await.refused(404, "unknown_job");
    scene.admin.get("/api/v1/servers/NONE/inventory").await.refused(404, "unknown_server");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_of_a_job_may_not_write_another_disk_than_the_first() {
    let (scene, id, token) = waiting("REP-40").await;
    let report = async |step: &str, disk: Value| {
        let body = json!({ "status": "progress", "step": step, "percent": 3, "disk": disk });
        scene.admin.report("REP-40", &token, &body).await
    };
    let first = json!({ "name": "sda", "serial": "D1", "wwn": "0x5000", "written": true });
    report("partition.service", first.clone()).await.expect(200);
    report("image-linux.service", first.clone()).await.expect(200);
    // After a power loss names can move: the same disk has another one. A choice alone writes nothing.
    report("partition.service", json!({ "name": "sdb", "serial": "D1", "wwn": "0X5000", "written": true }))
        .await
        .expect(200);
    report(
        "select-disk.service",
        json!({ "name": "sdb", "serial": "D2", "wwn": "0x6000", "written": false }),
    )
    .await
    .expect(200);
    for other in [
        json!({ "name": "sda", "serial": "D2", "wwn": "0x6000", "written": true }),
        json!({ "name": "sda", "serial": "D2", "written": true }),
        json!({ "name": "sda", "written": true }),
    ] {
        let refused = report("partition.service", other).await;
        let refused = refused.refused(409, "conflict.report");
        assert!(refused["message"].as_str().unwrap().contains("WWN 0x5000"), "{refused:?}");
    }
    let log = scene.admin.event_log(&id).await;
    assert!(log.contains("report.other-disk") && log.contains("D2"), "{log}");
    scene.admin.report("REP-40", &token, &failed("partition.service")).await.expect(200);
    assert_eq!(scene.admin.complete(&id).await["outcome"], "failed");
    scene.end().await;
}
