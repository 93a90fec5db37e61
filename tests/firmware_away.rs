//! Installations of firmware on BMCs that are away, change, or never end: what is waited for, what proves the end, and what later jobs do.

use std::time::Duration;

use lab_bmc::{Component, Fault, FaultEffect, FaultTrigger, FlashFault, Power};
use serde_json::{Value, json};

use crate::firmware_install::{
    File, NEW, SERIAL, accept_certificate, failed, installed, log, order, scene,
    scene_with_another_certificate, set_of, version,
};

fn waits(reason: &str) -> impl Fn(&Value) -> bool {
    move |job| job["wait"]["reason"] == reason
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_is_away_for_eight_minutes_and_returns_with_another_certificate_and_a_refused_login_has_its_image_once()
 {
    // It returns when the test says so.
    let scene =
        scene_with_another_certificate(|bmc| bmc.update.restart_time = Duration::from_secs(86_400)).await;
    let bmc = scene.bmc(SERIAL).clone();
    let id = order(&scene, json!({ "firmware_set": "all", "allow_downgrade": true })).await;
    scene.wait_skipping(&id, "the absence", waits("bmc_back")).await;
    let since = scene.now();
    let away = Duration::from_secs(8 * 60);
    let job = scene.wait_skipping(&id, "eight minutes", |_| scene.now().since(since) >= away).await;
    // The wait stays in the job while a worker looks again.
    assert!(job["wait"]["detail"].as_str().unwrap().contains("the BMC has been away for"), "{job:#}");
    let refused = FaultEffect::Status {
        status: 401,
        message_id: "Base.1.18.ResourceAtUriUnauthorized".to_owned(),
        message: "the BMC starts".to_owned(),
    };
    bmc.inject(Fault::once(FaultTrigger::Login, refused));
    bmc.set_reachable(true);
    accept_certificate(&scene, &id).await;
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert!(bmc.faults().is_empty(), "the first login was refused: {log}");
    assert_eq!((version(&bmc, "bmc").as_str(), bmc.snapshot().images), (NEW, 1), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_power_at_half_of_a_flash_is_explained_and_powered_on_again() {
    // The image is written when the test says so.
    let day = Duration::from_secs(86_400);
    let scene = scene("generic", |bmc| bmc.update.flash_time = day).await;
    set_of(&scene.admin, "generic", &[File::of("bios", NEW)]).await;
    let bmc = scene.bmc(SERIAL).clone();
    let loss = FlashFault::PowerLoss { away: day, keeps_version: true };
    bmc.inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(loss)));
    let id = order(&scene, json!({ "firmware_set": "all" })).await;
    scene
        .wait_skipping(&id, "the flash", |job| job["wait"]["reason"] == "flashing" && bmc.is_flashing())
        .await;
    bmc.skip_flash_time(day / 2);
    scene.wait_skipping(&id, "the loss of power", waits("bmc_back")).await;
    let since = scene.now();
    let away = Duration::from_secs(8 * 60);
    scene.wait_skipping(&id, "eight minutes", |_| scene.now().since(since) >= away).await;
    bmc.set_reachable(true);
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    let old = version(&bmc, "bios");
    failed(&job, "power_lost", &["bios 99.1 is not installed", &old, "not sent a second time"], &log);
    assert!(log.contains("firmware.power-lost"), "{log}");
    let end = bmc.snapshot();
    assert_eq!((end.images, end.power, end.power_ons), (1, Power::On, 1), "{log}");
    let server = scene.admin.get(&format!("/api/v1/servers/{SERIAL}")).await;
    assert_eq!(server.expect(200)["observed"]["update"], Value::Null, "no later job waits for it: {log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_read_with_the_new_version_is_no_proof() {
    let scene = scene("generic", |_| {}).await;
    set_of(&scene.admin, "generic", &[File::of("bios", NEW)]).await;
    let bmc = scene.bmc(SERIAL).clone();
    let id = order(&scene, json!({ "firmware_set": "all" })).await;
    let reads = |said: &'static str| {
        move |job: &Value| {
            job["wait"]["reason"] == "version" && job["wait"]["detail"].as_str().unwrap().contains(said)
        }
    };
    scene.wait_skipping(&id, "the first good read", reads("it is read 3 times")).await;
    let new = bmc.replace_firmware(Component::Bios, "P79 v1.45").unwrap();
    scene.wait_skipping(&id, "a read of the old version", reads("the BMC shows P79 v1.45")).await;
    bmc.replace_firmware(Component::Bios, &new).unwrap();
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    assert_eq!((&job["outcome"], version(&bmc, "bios").as_str()), (&json!("succeeded"), NEW), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_does_not_switch_a_host_off_whose_bmc_still_flashes() {
    let scene = scene("generic", |_| {}).await;
    set_of(&scene.admin, "generic", &[File::of("bios", NEW)]).await;
    scene.admin.push_image().await;
    let bmc = scene.bmc(SERIAL).clone();
    bmc.inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(FlashFault::Hang)));
    let stuck = installed(&scene).await;
    failed(&stuck, "update_stuck", &["99 %"], &log(&scene, &stuck).await);

    let id = scene.admin.create_job(SERIAL).await;
    scene.wait_skipping(&id, "the update", waits("update_runs")).await;
    let why = scene.admin.explain(&id).await;
    assert!(why["summary"].as_str().unwrap().contains("bios 99.1"), "{why}");
    assert_eq!((bmc.snapshot().power, bmc.power_ons(), bmc.is_flashing()), (Power::On, 0, true));
    let job = scene.complete_skipping(&id).await;
    let events = log(&scene, &job).await;
    failed(&job, "update_running", &["bios 99.1", "nothing was changed"], &events);
    assert_eq!((bmc.snapshot().power, bmc.power_ons()), (Power::On, 0), "{events}");

    let id = scene.admin.create_job(SERIAL).await;
    scene.wait_skipping(&id, "the update", waits("update_runs")).await;
    bmc.continue_update();
    scene.wait_skipping(&id, "the machine", |job| job["step"] == "webhook.wait").await;
    let server = scene.admin.get(&format!("/api/v1/servers/{SERIAL}")).await;
    assert_eq!(server.expect(200)["observed"]["update"], Value::Null);
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.complete_skipping(&id).await;
    scene.end().await;
}
