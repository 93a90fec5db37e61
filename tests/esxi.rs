//! An installer that cannot report: its end is observed. The machine restarts warm, so its power is on at every observation.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::{POLL_INTERVAL, Scene, TIME_LIMIT, silent};

/// The minimum install time of these tests. The controller observes the machine every 30 s.
const MINIMUM: Duration = Duration::from_secs(300);

async fn scene(serial: &str) -> (Scene, String) {
    let scene = Scene::start_with(vec![silent(serial)], |settings, _| {
        settings.esxi_installer_url = settings.maintenance_iso_url.take();
        settings.install_min_time = MINIMUM;
    })
    .await;
    let recipe = json!({ "task_target": "install-esxi.target", "ks_cfg": "vmaccepteula\nreboot\n" });
    let job = scene.admin.post("/api/v1/jobs", &json!({ "server_serial": serial, "recipe": recipe })).await;
    let id = job.expect(202)["job_id"].as_str().unwrap().to_owned();
    (scene, id)
}

fn installs(job: &Value) -> bool {
    job["wait"]["reason"] == "install_signs"
}

/// Skips time until an observation after the minimum install time found no completion sign.
async fn past_the_minimum(scene: &Scene, id: &str) -> Value {
    scene
        .wait_skipping(id, "an observation after the minimum", |job| {
            let detail = job["wait"]["detail"].as_str().unwrap_or_default();
            installs(job) && detail.contains("no completion sign yet")
        })
        .await
}

/// Waits in real time: the BMC's clock cannot be skipped, and it must show two restarts at different seconds.
async fn seconds_of_the_bmc(seconds: u64) {
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    assert!(seconds < TIME_LIMIT.as_secs());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_warm_resets_and_only_the_one_after_the_minimum_time_ends_the_installation() {
    let (scene, id) = scene("ESX-1").await;
    scene.wait_skipping(&id, "the installation", installs).await;
    let bmc = scene.bmc("ESX-1");
    let why = scene.admin.explain(&id).await;
    assert!(why["summary"].as_str().unwrap().contains("cannot report"), "{why}");
    seconds_of_the_bmc(3).await;
    assert!(bmc.warm_reset(), "the installer cannot restart into its second half");
    past_the_minimum(&scene, &id).await;
    assert_eq!(bmc.ejected_while_running(), 0);
    let media = bmc.snapshot().slots.into_iter().filter(|slot| slot.image.is_some()).count();
    assert_eq!(media, 2, "the media stay inserted");
    seconds_of_the_bmc(3).await;
    assert!(bmc.warm_reset(), "the installer cannot restart at its end");
    let job = scene.complete_skipping(&id).await;
    assert_eq!(
        (&job["outcome"], &job["completion"]["by"]),
        (&json!("succeeded"), &json!("observed")),
        "{job}"
    );
    assert_eq!(job["completion"]["sign"], "reset");
    assert_eq!(bmc.boots_from_media(), 1, "booted from the boot image exactly once");
    assert!(scene.admin.event_log(&id).await.contains("LastResetTime is newer"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_completion_sign_success_is_assumed_and_marked_as_assumed() {
    let (scene, id) = scene("ESX-1").await;
    let job = past_the_minimum(&scene, &id).await;
    let deadline = job["wait"]["deadline"].as_str().unwrap().to_owned();
    scene.skip(Duration::from_secs(80 * 60));
    let job = scene.wait_skipping(&id, "the window", installs).await;
    assert_eq!(job["wait"]["deadline"], deadline);
    let job = scene.complete_skipping(&id).await;
    assert_eq!(
        (&job["outcome"], &job["completion"]["by"]),
        (&json!("succeeded"), &json!("assumed")),
        "{job}"
    );
    assert!(scene.admin.event_log(&id).await.contains("install.assumed"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_ends_an_observed_installation_and_a_job_without_an_installer_is_refused() {
    let (scene, id) = scene("ESX-1").await;
    scene.wait_skipping(&id, "the installation", installs).await;
    let document = scene.admin.job_document(&id).await;
    let token = document["webhook_token"].as_str().unwrap();
    let report = json!({ "status": "failed", "failed_step": "firstboot" });
    scene.admin.report("ESX-1", token, &report).await.expect(200);
    let job = scene.complete_skipping(&id).await;
    assert_eq!((&job["outcome"], &job["failed_step"]), (&json!("failed"), &json!("firstboot")), "{job}");
    scene.end().await;

    let scene = Scene::bare(vec![], |_, _| {}).await;
    scene.admin.register_at("ESX-2", "127.0.0.1:9").await;
    let recipe = json!({ "task_target": "install-esxi.target", "ks_cfg": "vmaccepteula\n" });
    let body = json!({ "server_serial": "ESX-2", "recipe": recipe });
    let refused = scene.admin.post("/api/v1/jobs", &body).await.refused(400, "config.no_maintenance_iso");
    assert!(refused["message"].as_str().unwrap().contains("ESXI_INSTALLER_URL"), "{refused}");
    scene.end().await;
}
