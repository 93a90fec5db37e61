//! Idempotency keys: a repeated request creates no second job.

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{ApiResponse, Scene, healthy, recipe};

async fn order(scene: &Scene, header: &str, key: &str, body: &Value) -> ApiResponse {
    let request = scene.admin.request(Method::POST, "/api/v1/jobs").header(header, key).json(body);
    scene.admin.send(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_repeated_under_its_key_returns_the_same_job_also_after_its_end() {
    let scene = Scene::start(vec![healthy("IDEM-1")]).await;
    let body = json!({ "server_serial": "IDEM-1", "recipe": recipe() });
    let first = order(&scene, "Idempotency-Key", "rack-7/u-3", &body).await.expect(202);
    let again = order(&scene, "Idempotency-Key", "rack-7/u-3", &body).await.expect(200);
    assert_eq!(again["job_id"], first["job_id"]);
    let id = first["job_id"].as_str().unwrap();
    scene.admin.complete(id).await;
    let late = order(&scene, "Idempotency-Key", "rack-7/u-3", &body).await.expect(200);
    assert_eq!((&late["job_id"], &late["status"]), (&first["job_id"], &json!("complete")));
    assert_eq!(scene.bmc("IDEM-1").boots_from_media(), 1, "a second job would erase the machine");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_request_under_a_used_key_is_refused_also_with_the_alias_header() {
    let scene =
        Scene::start_with(vec![healthy("IDEM-2")], |settings, _| settings.worker_concurrency = 0).await;
    let body = json!({ "server_serial": "IDEM-2", "recipe": recipe() });
    let first = order(&scene, "idempotency_key", "key-1", &body).await.expect(202);
    let again = order(&scene, "Idempotency-Key", "key-1", &body).await.expect(200);
    assert_eq!(again["job_id"], first["job_id"]);
    let mut other = body.clone();
    other["recipe"]["target_disk"] = json!("/dev/sdb");
    let refused =
        order(&scene, "Idempotency-Key", "key-1", &other).await.refused(422, "idempotency_key_reused");
    assert!(refused["message"].as_str().unwrap().contains(first["job_id"].as_str().unwrap()), "{refused}");
    order(&scene, "Idempotency-Key", "key-2", &body).await.refused(409, "conflict.active_job");
    order(&scene, "Idempotency-Key", &"k".repeat(129), &body).await.refused(400, "validation_error");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_under_one_key_create_one_job() {
    let scene =
        Scene::start_with(vec![healthy("IDEM-3")], |settings, _| settings.worker_concurrency = 0).await;
    let body = json!({ "server_serial": "IDEM-3", "recipe": recipe() });
    let responses =
        futures_util::future::join_all((0..16).map(|_| order(&scene, "Idempotency-Key", "k", &body))).await;
    let mut statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; 15].as_slice(), &[202]].concat());
    assert!(responses.iter().all(|response| response.json()["job_id"] == responses[0].json()["job_id"]));
    scene.end().await;
}
