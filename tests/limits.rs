//! Limits that protect a BMC: sessions, rejected logins, and requests to a BMC that does not respond.

use std::time::Duration;

use lab_bmc::{Fault, FaultEffect, FaultTrigger, JournalItem, Power, RequestKind, SessionPolicy};
use serde_json::{Value, json};

use crate::kit::{BMC_USER, Scene, healthy, logged_out, silent, soon, with_bmc};

fn logins(scene: &Scene, serial: &str) -> usize {
    let login =
        |what: &JournalItem| matches!(what, JournalItem::Request { operation: RequestKind::Login, .. });
    scene.bmc(serial).journal().iter().filter(|entry| login(&entry.what)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_jobs_in_sequence_never_use_up_the_sessions_of_a_bmc_that_has_two() {
    let spec = with_bmc(healthy("SES-1"), |bmc| {
        bmc.session = SessionPolicy { limit: 2, ..SessionPolicy::default() };
        bmc.journal_capacity = 1 << 16;
    });
    // Twenty jobs in a row exceed the usual requests per minute.
    let scene = Scene::start_with(vec![spec], |settings, _| settings.redfish_rate = 0).await;
    for _ in 0..20 {
        let id = scene.admin.create_job("SES-1").await;
        let job = scene.complete_skipping(&id).await;
        assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
        logged_out(scene.bmc("SES-1")).await;
    }
    assert_eq!(logins(&scene, "SES-1"), 20, "one session per job");
    let machine = scene.bmc("SES-1").snapshot();
    assert!(machine.max_in_flight <= 2 && machine.max_mutating_in_flight <= 1, "{machine:?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_the_controller_closes_the_sessions_of_running_jobs() {
    let scene = Scene::start(vec![silent("SES-2")]).await;
    let id = scene.admin.create_job("SES-2").await;
    scene.wait_skipping(&id, "the wait for the report", |job| job["step"] == "webhook.wait").await;
    assert_eq!(scene.bmc("SES-2").snapshot().open_sessions, 1);
    let (running, farm) = (scene.running, scene.farm);
    running.stop().await;
    assert_eq!(farm.server("SES-2").unwrap().bmc.snapshot().open_sessions, 0);
    farm.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logout_without_a_response_does_not_keep_the_controller_from_stopping() {
    let spec = with_bmc(silent("SES-3"), |bmc| {
        bmc.faults.push(Fault::always(FaultTrigger::Logout, FaultEffect::Hang));
    });
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("SES-3").await;
    scene.wait_skipping(&id, "the wait for the report", |job| job["step"] == "webhook.wait").await;
    let (running, farm) = (scene.running, scene.farm);
    soon("the stop", running.stop()).await;
    farm.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_circuit_of_a_silent_bmc_opens_and_its_job_continues_when_it_responds() {
    let scene = Scene::start_with(vec![healthy("GONE-1")], |settings, _| {
        settings.redfish_timeout = Duration::from_secs(1);
        settings.redfish_breaker_failures = 3;
        settings.redfish_breaker_open_time = Duration::from_secs(1);
    })
    .await;
    scene.bmc("GONE-1").set_reachable(false);
    let id = scene.admin.create_job("GONE-1").await;
    let job = scene.wait_skipping(&id, "the wait", |job| job["wait"]["reason"] == "bmc_silent").await;
    let detail = job["wait"]["detail"].as_str().unwrap();
    assert!(detail.contains("3 requests in a row got no response"), "{detail}");
    let explained = scene.admin.explain(&id).await;
    assert!(explained.to_string().contains("the BMC to respond again"), "{explained:#}");
    scene.bmc("GONE-1").set_reachable(true);
    let job = scene.admin.complete(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_stays_silent_ends_the_job_as_unreachable() {
    let scene = Scene::start_with(vec![healthy("GONE-2")], |settings, _| {
        settings.redfish_timeout = Duration::from_secs(1);
        settings.redfish_breaker_failures = 2;
    })
    .await;
    scene.bmc("GONE-2").set_reachable(false);
    let id = scene.admin.create_job("GONE-2").await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(
        (&job["failure"]["class"], &job["failed_step"]),
        (&json!("bmc_unreachable"), &json!("redfish.discover"))
    );
    let next = job["failure"]["next_action"].as_str().unwrap();
    assert!(next.contains("power and network"), "{next}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_silent_bmc_hold_no_worker() {
    let scene = Scene::start_with(vec![healthy("GONE-3"), healthy("HERE-1")], |settings, _| {
        settings.worker_concurrency = 1;
        settings.redfish_timeout = Duration::from_secs(1);
        settings.redfish_breaker_failures = 1;
    })
    .await;
    scene.bmc("GONE-3").set_reachable(false);
    let waiting = scene.admin.create_job("GONE-3").await;
    scene.admin.wait(&waiting, "the wait", |job| job["wait"]["reason"] == "bmc_silent").await;
    let id = scene.admin.create_job("HERE-1").await;
    assert_eq!(scene.admin.complete(&id).await["outcome"], "succeeded");
    assert_eq!(scene.admin.job(&waiting).await["wait"]["reason"], "bmc_silent");
    scene.admin.post(&format!("/api/v1/jobs/{waiting}/cancel"), &json!({})).await.expect(202);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_tried_at_most_twice_over_all_jobs() {
    let spec = with_bmc(healthy("LOCK-1"), |bmc| bmc.session.lockout_after = Some(3));
    let scene = Scene::start(vec![spec]).await;
    let wrong = json!({ "bmc_password": "wrong" });
    scene.admin.patch("/api/v1/servers/LOCK-1", &wrong).await.expect(200);
    let mut summaries = Vec::new();
    for _ in 0..4 {
        let id = scene.admin.create_job("LOCK-1").await;
        let job = scene.complete_skipping(&id).await;
        assert_eq!(job["failure"]["class"], "input", "{job:#}");
        summaries.push(job["failure"]["summary"].as_str().unwrap().to_owned());
    }
    assert_eq!(logins(&scene, "LOCK-1"), 2, "a third rejected login would lock the account");
    assert!(summaries[3].contains("too many rejected logins"), "{summaries:?}");
    // A changed record is tried at once. The account was never locked.
    let right = json!({ "bmc_username": BMC_USER, "bmc_password": crate::kit::BMC_PASSWORD });
    scene.admin.patch("/api/v1/servers/LOCK-1", &right).await.expect(200);
    let id = scene.admin.create_job("LOCK-1").await;
    let job: Value = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    assert_eq!(scene.bmc("LOCK-1").snapshot().power, Power::On);
    scene.end().await;
}
