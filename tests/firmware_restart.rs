//! Installations of firmware whose end, restart or power does not come as planned: cancels, windows, lost power, repeated requests.

use std::time::Duration;

use lab_bmc::{BiosUpdate, Fault, FaultEffect, FaultTrigger, Power};
use reqwest::Method;
use serde_json::{Value, json};

use crate::firmware_install::{File, NEW, SERIAL, installed, log, order, place, scene, set_of, version};
use crate::kit::soon;

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_begins_with_a_restart_days_later_is_let_finish_after_a_cancel() {
    let scene = scene("generic", |bmc| {
        bmc.update.bios = BiosUpdate::AtRestart;
        bmc.update.flash_time = Duration::from_secs(5);
    })
    .await;
    set_of(&scene.admin, "generic", &[File::of("bios", NEW)]).await;
    let bmc = scene.bmc(SERIAL).clone();
    let from = scene.now().plus(Duration::from_secs(3 * 24 * 3600));
    let id = order(&scene, json!({ "firmware_set": "all", "restart_from": from })).await;
    scene.wait_skipping(&id, "the window", |job| job["wait"]["reason"] == "restart_window").await;
    scene.skip(from.since(scene.now()) + Duration::from_secs(60));
    scene.wait_skipping(&id, "the flash", |_| bmc.is_flashing()).await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.wait_skipping(&id, "the end of the flash", |job| job["wait"]["reason"] == "flash_ends").await;
    assert!(!bmc.updates()[0].applied);
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "cancelled", "{log}");
    assert_eq!((version(&bmc, "bios").as_str(), bmc.snapshot().power), (NEW, Power::On), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn power_that_is_lost_in_the_middle_of_a_flash_is_a_failure_in_words_and_a_second_order_installs_it() {
    let scene = scene("generic", |bmc| bmc.update.flash_time = Duration::from_secs(5)).await;
    set_of(&scene.admin, "generic", &[File::of("bios", NEW)]).await;
    let bmc = scene.bmc(SERIAL).clone();
    let id = order(&scene, json!({ "firmware_set": "all" })).await;
    scene.wait_skipping(&id, "the flash", |_| bmc.is_flashing()).await;
    bmc.inject(Fault::once(FaultTrigger::Anything, FaultEffect::BmcRestart(Duration::from_millis(300))));
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    let failure = &job["failure"];
    assert_eq!(
        (&job["outcome"], &failure["class"]),
        (&json!("failed"), &json!("version_unchanged")),
        "{log}"
    );
    let summary = failure["summary"].as_str().unwrap();
    assert!(summary.contains("lost the task"), "{summary}");
    assert_eq!((bmc.snapshot().images, bmc.snapshot().power), (1, Power::On), "{log}");
    // The BMC flashes in real time, while the clock of the controller skips what it waits for.
    let patient = json!({ "quirks": { "update_timeout_s": 4 * 3600 } });
    scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &patient).await.expect(200);
    let second = installed(&scene).await;
    let log = crate::firmware_install::log(&scene, &second).await;
    assert_eq!(second["outcome"], "succeeded", "{log}");
    assert_eq!((version(&bmc, "bios").as_str(), bmc.snapshot().images), (NEW, 2), "{log}");
    scene.end().await;
}

/// A BIOS that is written while the host boots: its task says meanwhile that it waits for a restart of the host.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_off_keeps_its_power_until_the_bios_that_is_written_while_it_boots_is_installed() {
    for cancels in [false, true] {
        let scene = scene("generic", |bmc| {
            bmc.starts_on = false;
            bmc.update.bios = BiosUpdate::AtRestart;
            bmc.update.boot_delay = Duration::from_secs(6);
        })
        .await;
        set_of(&scene.admin, "generic", &[File::of("bios", NEW)]).await;
        let bmc = scene.bmc(SERIAL).clone();
        let id = order(&scene, json!({ "firmware_set": "all" })).await;
        scene.wait_skipping(&id, "the restart", |job| job["wait"]["reason"] == "version").await;
        // Longer than a version is waited for without a restart.
        scene.skip(Duration::from_secs(15 * 60));
        if cancels {
            scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
            scene.wait_skipping(&id, "the end", |job| job["wait"]["reason"] == "flash_ends").await;
        }
        assert_eq!((bmc.snapshot().power, bmc.updates()[0].applied), (Power::On, false));
        soon("the update", bmc.wait_for(|_| bmc.updates()[0].applied)).await;
        let job = scene.complete_skipping(&id).await;
        let log = log(&scene, &job).await;
        assert_eq!(job["outcome"], if cancels { "cancelled" } else { "succeeded" }, "{log}");
        assert_eq!((version(&bmc, "bios").as_str(), bmc.snapshot().power), (NEW, Power::Off), "{log}");
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_returns_its_installation_after_its_window_its_deadline_and_its_set_are_gone() {
    let scene = scene("generic", |_| {}).await;
    set_of(&scene.admin, "generic", &[File::of("bios", NEW)]).await;
    let (hour, now) = (Duration::from_secs(3600), scene.now());
    let body = json!({
        "kind": "firmwareInstall", "deadline": now.plus(hour * 2), "max_parallel": 1, "per": "rack",
        "parameters": { "firmware_set": "all", "restart_until": now.plus(hour) },
    });
    let labels = |rack: Value| json!({ "labels": { "rack": rack } });
    scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &labels(json!("r7"))).await.expect(200);
    let send = |key: &str| {
        let request = scene.admin.request(Method::POST, &place("condition")).header("Idempotency-Key", key);
        scene.admin.send(request.json(&body))
    };
    let first = send("night").await.expect(200);
    scene.complete_skipping(first["id"].as_str().unwrap()).await;
    scene.skip(hour * 3);
    scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &labels(Value::Null)).await.expect(200);
    scene.admin.delete("/api/v1/firmware-sets/all").await.expect(204);
    assert_eq!(send("night").await.expect(200)["id"], first["id"]);
    send("another").await.refused(400, "validation_error");
    scene.end().await;
}
