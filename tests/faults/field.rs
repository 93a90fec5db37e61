//! Problems reported by operators that are not faults of a BMC.

use serde_json::json;

use crate::kit::{Scene, healthy, silent};

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_wait_hold_no_worker() {
    let specs = ["PARK-1", "PARK-2", "PARK-3"].map(silent).into();
    let scene = Scene::start_with(specs, |settings, _| settings.worker_concurrency = 1).await;
    let mut jobs = Vec::new();
    for serial in ["PARK-1", "PARK-2", "PARK-3"] {
        jobs.push(scene.admin.create_job(serial).await);
    }
    for id in &jobs {
        scene.admin.awaits_report(id).await;
    }
    // All jobs wait at once, with one worker.
    for id in &jobs {
        assert_eq!(scene.admin.job(id).await["wait"]["reason"], "report");
        scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outcome_stands_beside_the_status() {
    let scene = Scene::start(vec![healthy("OUT-1"), silent("OUT-2")]).await;
    let good = scene.admin.create_job("OUT-1").await;
    let given_up = scene.admin.create_job("OUT-2").await;
    scene.admin.awaits_report(&given_up).await;
    scene.admin.post(&format!("/api/v1/jobs/{given_up}/cancel"), &json!({})).await.expect(202);
    let (good, given_up) = (scene.complete_skipping(&good).await, scene.complete_skipping(&given_up).await);
    assert_eq!((&good["status"], &good["outcome"]), (&json!("complete"), &json!("succeeded")));
    assert_eq!((&given_up["status"], &given_up["outcome"]), (&json!("complete"), &json!("cancelled")));
    scene.end().await;
}
