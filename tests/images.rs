//! An OS image cannot be deleted while a job needs it.

use reqwest::Method;
use serde_json::json;

use crate::kit::{Scene, silent};

#[tokio::test(flavor = "multi_thread")]
async fn the_image_of_a_job_cannot_be_deleted_before_the_job_is_over() {
    let scene = Scene::start(vec![silent("PIN-1")]).await;
    let id = scene.admin.create_job("PIN-1").await;
    scene.admin.awaits_report(&id).await;
    let place = "/v2/os-images/ubuntu-rootfs/manifests/22.04";
    let manifest = scene.admin.get(place).await;
    assert_eq!(manifest.status, 200, "{}", manifest.text());
    let digest = manifest.header("docker-content-digest").unwrap().to_owned();
    let by_digest = format!("/v2/os-images/ubuntu-rootfs/manifests/{digest}");
    let refused = scene.admin.send(scene.admin.request(Method::DELETE, &by_digest)).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains(&id), "the refusal names the job: {}", refused.text());
    assert_eq!(scene.admin.get(&by_digest).await.status, 200);

    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.admin.complete(&id).await;
    let deleted = scene.admin.send(scene.admin.request(Method::DELETE, &by_digest)).await;
    assert_eq!(deleted.status, 202, "{}", deleted.text());
    scene.end().await;
}
