//! What an operator does with a job: explain, hold, resume, cancel, retry.

use lab_machines::{InstallerBehaviour, maintenance_os::unit};
use serde_json::json;

use crate::kit::{Scene, healthy, recipe, silent};

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_job_explains_what_it_waits_for_since_when_and_what_to_do() {
    let scene = Scene::start(vec![silent("WHY-1")]).await;
    let id = scene.admin.create_job("WHY-1").await;
    scene.admin.awaits_report(&id).await;
    let why = scene.admin.explain(&id).await;
    assert_eq!(
        (&why["condition"], &why["reason"], &why["step"]),
        (&json!("waiting"), &json!("report"), &json!("webhook.wait"))
    );
    let said = |key: &str| why[key].as_str().unwrap().to_owned();
    assert!(said("summary").contains("maintenance OS"), "{why}");
    assert!(said("ends_by").contains("/api/v1/status-webhook"), "{why}");
    assert!(said("next_action").contains("console"), "{why}");
    assert!(said("since") < said("deadline"), "{why}");
    let evidence = why["evidence"].as_array().unwrap();
    assert!(!evidence.is_empty() && evidence.len() <= 5, "{why}");
    scene.admin.get("/api/v1/jobs/unknown/explain").await.refused(404, "unknown_job");
    scene.anonymous().get(&format!("/api/v1/jobs/{id}/explain")).await.refused(401, "unauthorized");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_explains_what_failed_and_what_to_do() {
    let mut spec = healthy("WHY-2");
    spec.behaviour =
        InstallerBehaviour { fail_at: Some(unit::PARTITION.to_owned()), ..InstallerBehaviour::default() };
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("WHY-2").await;
    scene.admin.complete(&id).await;
    let why = scene.admin.explain(&id).await;
    assert_eq!((&why["condition"], &why["reason"]), (&json!("ended"), &json!("installer")));
    assert!(why["summary"].as_str().unwrap().contains(unit::PARTITION), "{why}");
    assert!(why["next_action"].as_str().unwrap().contains("shoal job log"), "{why}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_job_stays_where_it_is_until_it_is_resumed() {
    let scene = Scene::start_with(vec![silent("HOLD-1")], |_, _| {}).await;
    let id = scene.admin.create_job("HOLD-1").await;
    scene.admin.awaits_report(&id).await;
    let job = scene
        .admin
        .post(&format!("/api/v1/jobs/{id}/hold"), &json!({ "reason": "the rack is being moved" }))
        .await
        .expect(202);
    assert_eq!(job["hold"]["class"], "operator", "{job}");
    let why = scene.admin.explain(&id).await;
    assert_eq!(why["condition"], "held");
    assert!(why["summary"].as_str().unwrap().contains("the rack is being moved"), "{why}");
    assert!(why["ends_by"].as_str().unwrap().contains("resume"), "{why}");

    // The report comes while the job is held: it is stored, and the job stays held.
    let token = scene.admin.job_document(&id).await["webhook_token"].as_str().unwrap().to_owned();
    scene.admin.report("HOLD-1", &token, &json!({ "status": "success" })).await.expect(200);
    assert_eq!(scene.admin.explain(&id).await["condition"], "held");
    scene.admin.post(&format!("/api/v1/jobs/{id}/hold"), &json!({})).await.refused(409, "conflict.phase");

    scene.admin.post(&format!("/api/v1/jobs/{id}/resume"), &json!({})).await.expect(202);
    let job = scene.admin.complete(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    scene.admin.post(&format!("/api/v1/jobs/{id}/resume"), &json!({})).await.refused(409, "conflict.phase");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verb_for_an_older_revision_is_refused() {
    let scene = Scene::start(vec![silent("STALE-1")]).await;
    let id = scene.admin.create_job("STALE-1").await;
    scene.admin.awaits_report(&id).await;
    let seen = scene.admin.get(&format!("/api/v1/jobs/{id}")).await;
    let seen = seen.header("etag").unwrap().to_owned();
    let ask = |verb: &str, tag: &str| {
        let request = scene
            .admin
            .request(reqwest::Method::POST, &format!("/api/v1/jobs/{id}/{verb}"))
            .header("if-match", tag)
            .json(&json!({}));
        scene.admin.send(request)
    };
    ask("hold", &seen).await.expect(202);
    ask("cancel", &seen).await.refused(412, "precondition_failed");
    assert_eq!(scene.admin.job(&id).await["outcome"], json!(null));
    ask("cancel", "*").await.expect(202);
    assert_eq!(scene.admin.complete(&id).await["outcome"], "cancelled");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_an_ended_job_is_a_new_job_that_names_it() {
    let scene = Scene::start(vec![healthy("AGAIN-1")]).await;
    let mut order = json!({ "server_serial": "AGAIN-1", "recipe": recipe(), "labels": { "rack": "r1" } });
    order["priority"] = json!(7);
    let id =
        scene.admin.post("/api/v1/jobs", &order).await.expect(202)["job_id"].as_str().unwrap().to_owned();
    let first = scene.admin.complete(&id).await;

    let request = || {
        scene
            .admin
            .request(reqwest::Method::POST, &format!("/api/v1/jobs/{id}/retry"))
            .header("idempotency-key", "once")
            .json(&json!({ "reason": "new disk" }))
    };
    let new = scene.admin.send(request()).await.expect(202)["job_id"].as_str().unwrap().to_owned();
    assert_ne!(new, id);
    // Two retries under one key are one job.
    assert_eq!(scene.admin.send(request()).await.expect(200)["job_id"], json!(new));
    let second = scene.admin.complete(&new).await;
    assert_eq!((&second["retry_of"], &first["retry_of"]), (&json!(id), &json!(null)));
    assert_eq!((&second["labels"], &second["priority"]), (&json!({ "rack": "r1" }), &json!(7)));
    assert_eq!(second["outcome"], "succeeded", "{}", scene.admin.event_log(&new).await);
    let event_log = scene.admin.events(&id).await;
    let retried = event_log
        .iter()
        .find(|event| event["type"] == "job.retried")
        .expect("an event of the old job names the new job");
    assert!(retried["message"].as_str().unwrap().contains("new disk"), "{retried}");
    assert_eq!(scene.admin.job(&id).await["outcome"], first["outcome"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_cannot_be_retried() {
    let scene = Scene::start(vec![silent("BUSY-1")]).await;
    let id = scene.admin.create_job("BUSY-1").await;
    scene.admin.awaits_report(&id).await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/retry"), &json!({})).await.refused(409, "conflict.phase");
    scene.end().await;
}
