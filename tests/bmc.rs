//! Faults of BMCs and how the job ends.

use std::time::Duration;

use lab_bmc::{Fault, FaultEffect, FaultTrigger, Graceful, Power, ResetType, SimBmcSnapshot, SlotConfig};
use serde_json::{Value, json};

use crate::kit::{BMC_USER, Scene, healthy, logged_out, silent, with_bmc};

fn failure(job: &Value) -> (&str, &str) {
    assert_eq!(job["outcome"], "failed", "{job:#}");
    (job["failed_step"].as_str().unwrap(), job["failure"]["class"].as_str().unwrap())
}

fn empty(machine: &SimBmcSnapshot) -> bool {
    machine.slots.iter().all(|slot| slot.image.is_none())
}

fn refusal(status: u16) -> FaultEffect {
    FaultEffect::Status {
        status,
        message_id: "Contoso.1.0.ImageRefused".to_owned(),
        message: "The image is not one this slot takes.".to_owned(),
    }
}

/// Runs one job on a server with this fault, skipping pauses. Returns the job and the machine.
async fn with_fault(serial: &str, fault: Fault) -> (Scene, Value, SimBmcSnapshot) {
    // A connection without a response is cut soon, so that the controller sees a broken connection instead of waiting minutes.
    let spec = with_bmc(healthy(serial), |bmc| bmc.hang_limit = Duration::from_millis(200));
    let scene = Scene::start(vec![spec]).await;
    scene.bmc(serial).inject(fault);
    let id = scene.admin.create_job(serial).await;
    let job = scene.complete_skipping(&id).await;
    let machine = scene.bmc(serial).snapshot();
    (scene, job, machine)
}

/// Runs one job on a server with this fault and asserts that the job succeeds.
async fn recovers(serial: &str, fault: Fault) {
    let (scene, job, machine) = with_fault(serial, fault).await;
    let event_log = scene.admin.event_log(job["job_id"].as_str().unwrap()).await;
    assert_eq!(job["outcome"], "succeeded", "{event_log}");
    assert_eq!(job["cleanup"]["state"], "done", "{event_log}");
    assert_eq!((machine.boots_from_media, machine.ejected_while_running), (1, 0), "{event_log}");
    assert!(empty(&machine) && machine.power == Power::On, "{event_log}");
    assert!(machine.max_in_flight <= 2 && machine.max_mutating_in_flight <= 1, "{machine:?}");
    assert!(scene.bmc(serial).faults().is_empty(), "the fault was not used");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_changed_on_the_bmc_of_another_machine() {
    let scene = Scene::bare(vec![healthy("THEIRS-1")], |_, _| {}).await;
    scene.admin.push_image().await;
    scene.admin.register_at("OURS-1", &scene.server("THEIRS-1").bmc_url).await;
    let id = scene.admin.create_job("OURS-1").await;
    let job = scene.admin.complete(&id).await;
    assert_eq!(failure(&job), ("redfish.discover", "input"));
    assert!(job["failure"]["summary"].as_str().unwrap().contains("THEIRS-1"), "{job:#}");
    assert_eq!(job["cleanup"]["state"], "done");
    let bmc = scene.bmc("THEIRS-1");
    assert_eq!(bmc.mutations(), []);
    logged_out(bmc).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_shows_no_serial_is_used_only_when_an_operator_allows_it() {
    let scene = Scene::start(vec![healthy("MUTE-1")]).await;
    let bmc = scene.bmc("MUTE-1");
    bmc.inject(Fault::always(FaultTrigger::Read, FaultEffect::WrongSerial(String::new())));
    let id = scene.admin.create_job("MUTE-1").await;
    let job = scene.admin.complete(&id).await;
    assert_eq!(failure(&job), ("redfish.discover", "input"));
    assert!(job["failure"]["next_action"].as_str().unwrap().contains("allow-unverified-serial"), "{job:#}");
    assert_eq!(bmc.mutations(), []);

    let allow = json!({ "allow_unverified_serial": true });
    scene.admin.patch("/api/v1/servers/MUTE-1", &allow).await.expect(200);
    let id = scene.admin.create_job("MUTE-1").await;
    let job = scene.admin.complete(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    let events = scene.admin.events(&id).await;
    assert!(events.iter().any(|event| event["type"] == "redfish.serial-unverified"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_bmc_is_tried_as_often_as_the_settings_say() {
    let scene = Scene::start_with(vec![healthy("AWAY-1")], |settings, _| {
        settings.redfish_retries = 3;
        // Without this setting the job waits for the BMC.
        settings.redfish_breaker_failures = 0;
        settings.redfish_timeout = Duration::from_secs(1);
    })
    .await;
    scene.bmc("AWAY-1").set_reachable(false);
    let id = scene.admin.create_job("AWAY-1").await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(failure(&job), ("redfish.discover", "bmc_unreachable"));
    let events = scene.admin.events(&id).await;
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((count("step.retry"), count("step.gave-up")), (2, 1), "{}", scene.admin.event_log(&id).await);
    assert_eq!(job["cleanup"]["state"], "done", "the job changed nothing, so there is nothing to undo");

    // The BMC is reachable again, and the next job succeeds.
    scene.bmc("AWAY-1").set_reachable(true);
    let id = scene.admin.create_job("AWAY-1").await;
    assert_eq!(scene.admin.complete(&id).await["outcome"], "succeeded");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_bmc_password_fails_the_job_without_locking_the_account() {
    let scene = Scene::start(vec![healthy("PASS-1")]).await;
    scene.admin.patch("/api/v1/servers/PASS-1", &json!({ "bmc_password": "wrong" })).await.expect(200);
    let id = scene.admin.create_job("PASS-1").await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(failure(&job), ("redfish.discover", "input"));
    assert_eq!(scene.bmc("PASS-1").mutations(), []);

    let right = json!({ "bmc_username": BMC_USER, "bmc_password": crate::kit::BMC_PASSWORD });
    scene.admin.patch("/api/v1/servers/PASS-1", &right).await.expect(200);
    let id = scene.admin.create_job("PASS-1").await;
    assert_eq!(
        scene.admin.complete(&id).await["outcome"],
        "succeeded",
        "{}",
        scene.admin.event_log(&id).await
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_with_a_single_slot_boots_the_maintenance_image_with_the_task_in_it() {
    let spec = with_bmc(healthy("ONE-1"), |bmc| *bmc = bmc.clone().with_single_cd());
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("ONE-1").await;
    let job = scene.admin.complete(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    let machine = scene.bmc("ONE-1").snapshot();
    assert_eq!((machine.power, machine.boots_from_media, machine.ejected_while_running), (Power::On, 1, 0));
    assert!(
        machine.slots.iter().all(|slot| slot.image.is_none()),
        "the inserted image is recognised after the insert: {machine:?}"
    );
    assert_eq!(job["cleanup"], json!({ "state": "done", "remaining": [] }));
    let steps = job["steps"].as_array().unwrap();
    let task = steps.iter().find(|step| step["step"] == "redfish.mount.task").unwrap();
    assert_eq!(task["phase"], "skipped");
    let event_log = scene.admin.events(&id).await;
    let spliced =
        event_log.iter().find(|event| event["type"] == "iso.spliced").expect("the event iso.spliced");
    assert!(spliced["data"]["notes"].is_array(), "{spliced}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_whose_only_slot_takes_no_cd_is_not_changed() {
    let spec = with_bmc(healthy("NOCD-1"), |bmc| bmc.slots = vec![SlotConfig::usb("USB")]);
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("NOCD-1").await;
    let job = scene.admin.complete(&id).await;
    assert_eq!(failure(&job), ("redfish.discover", "unsupported"));
    assert_eq!(scene.bmc("NOCD-1").mutations(), []);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spliced_image_is_served_as_the_maintenance_image_with_a_task_directory_and_ends_with_its_job() {
    let spec = with_bmc(silent("ONE-2"), |bmc| *bmc = bmc.clone().with_single_cd());
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("ONE-2").await;
    scene.admin.awaits_report(&id).await;
    let slots = scene.bmc("ONE-2").snapshot().slots;
    let urls: Vec<String> =
        slots.iter().filter_map(|slot| slot.image.clone()).map(|url| url.as_str().to_owned()).collect();
    let [url] = urls.as_slice() else { panic!("{urls:?}") };
    let response = scene.anonymous().get(url).await;
    assert_eq!(response.status, 200);
    let tag = response.header("etag").unwrap().to_owned();
    assert!(tag.starts_with("\"splice-"), "{tag}");
    let image = iso9660::Image::open(response.body).unwrap();
    let task = scene.admin.task_image(&id).await;
    let task = iso9660::Image::open(task).unwrap();
    let files: Vec<String> = task.list("").unwrap().into_iter().map(|entry| entry.name).collect();
    assert!(files.contains(&"job.json".to_owned()), "{files:?}");
    for file in &files {
        let inside = image.read(&format!("task/{file}"), 1 << 20).unwrap();
        assert!(inside == task.read(file, 1 << 20).unwrap(), "{file}");
    }
    assert!(!image.boot_entries().unwrap().is_empty());

    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.admin.complete(&id).await;
    scene.anonymous().until(url, "the end of the grant", |response| response.status == 404).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cd_and_a_usb_slot_are_enough() {
    let spec = with_bmc(healthy("USB-1"), |bmc| *bmc = bmc.clone().with_cd_and_usb());
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("USB-1").await;
    assert_eq!(
        scene.admin.complete(&id).await["outcome"],
        "succeeded",
        "{}",
        scene.admin.event_log(&id).await
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_refused_by_one_slot_goes_into_the_next() {
    let fault = Fault::always(FaultTrigger::InsertInto("CD2".to_owned()), refusal(400));
    let (scene, job, machine) = with_fault("NEXT-1", fault).await;
    let id = job["job_id"].as_str().unwrap();
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(id).await);
    assert!(scene.admin.events(id).await.iter().any(|event| event["type"] == "redfish.slot-fallback"));
    assert!(empty(&machine));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_refuses_every_mount_fails_the_job_and_is_cleaned_up() {
    let (scene, job, machine) = with_fault("NONE-1", Fault::always(FaultTrigger::Insert, refusal(400))).await;
    assert_eq!(failure(&job), ("redfish.mount.maintenance", "bmc_refused"));
    assert!(job["failure"]["summary"].as_str().unwrap().contains("ImageRefused"), "{job:#}");
    assert_eq!(job["cleanup"]["state"], "done");
    assert_eq!((machine.boots_from_media, machine.power, empty(&machine)), (0, Power::Off, true));
    logged_out(scene.bmc("NONE-1")).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_takes_one_image_and_then_none_fails_the_job_and_the_boot_image_comes_out_again() {
    let fault = Fault::always(FaultTrigger::Insert, refusal(400)).after(1);
    let (scene, job, machine) = with_fault("TASK-1", fault).await;
    // With the next slot plan the boot image is refused.
    assert_eq!(failure(&job), ("redfish.mount.maintenance", "bmc_refused"));
    assert_eq!((machine.boots_from_media, empty(&machine)), (0, true));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_that_is_accepted_without_effect_is_repeated() {
    recovers("LIE-1", Fault::once(FaultTrigger::InsertInto("CD1".to_owned()), FaultEffect::AcceptButIgnore))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_on_that_is_accepted_without_effect_is_repeated() {
    recovers("LIE-2", Fault::once(FaultTrigger::ResetTo(ResetType::On), FaultEffect::AcceptButIgnore)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_override_that_is_accepted_without_effect_is_repeated() {
    recovers("LIE-3", Fault::once(FaultTrigger::PatchBoot, FaultEffect::AcceptButIgnore)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eject_that_is_accepted_without_effect_is_repeated() {
    recovers("LIE-4", Fault::once(FaultTrigger::Eject, FaultEffect::AcceptButIgnore)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_whose_response_is_lost_is_not_repeated() {
    recovers("LOST-1", Fault::once(FaultTrigger::InsertInto("CD1".to_owned()), FaultEffect::ApplyButTimeout))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_on_whose_response_is_lost_boots_the_host_once() {
    recovers("LOST-2", Fault::once(FaultTrigger::ResetTo(ResetType::On), FaultEffect::ApplyButTimeout)).await;
    recovers("LOST-3", Fault::once(FaultTrigger::ResetTo(ResetType::On), FaultEffect::ApplyButDrop)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_on_that_fails_or_gets_lost_in_cleanup_is_repeated() {
    // The first power-on starts the maintenance OS, the second one the installed system.
    let second = |effect| Fault::once(FaultTrigger::ResetTo(ResetType::On), effect).after(1);
    recovers("AGAIN-1", second(FaultEffect::AcceptButIgnore)).await;
    recovers("AGAIN-2", second(refusal(503))).await;
    recovers("AGAIN-3", second(FaultEffect::Drop)).await;
    recovers("AGAIN-4", second(FaultEffect::ApplyButDrop)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_is_not_ready_for_an_image_is_retried() {
    let not_ready = FaultEffect::Status {
        status: 400,
        message_id: "IDRAC.2.8.SYS518".to_owned(),
        message: "Virtual Media is not ready.".to_owned(),
    };
    recovers("READY-1", Fault::once(FaultTrigger::InsertInto("CD1".to_owned()), not_ready)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_sends_retry_after_gets_the_pause() {
    let busy = FaultEffect::RateLimit { retry_after_seconds: Some(1) };
    recovers("BUSY-1", Fault::once(FaultTrigger::Mutation, busy.clone())).await;
    recovers("BUSY-2", Fault::once(FaultTrigger::Read, busy)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_fails_intermittently_is_retried() {
    recovers("WEAK-1", Fault::once(FaultTrigger::PatchBoot, refusal(503))).await;
    recovers("WEAK-2", Fault::once(FaultTrigger::InsertInto("CD2".to_owned()), FaultEffect::Drop)).await;
    recovers("WEAK-3", Fault::once(FaultTrigger::Read, FaultEffect::Truncate(20)).after(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_os_that_ignores_the_shutdown_is_switched_off_before_media_are_taken_out() {
    let spec = with_bmc(healthy("DEAF-1"), |bmc| bmc.power.graceful = Graceful::IgnoredByHost);
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("DEAF-1").await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    let machine = scene.bmc("DEAF-1").snapshot();
    assert_eq!((machine.ejected_while_running, machine.boots_from_media, machine.power), (0, 1, Power::On));
    scene.end().await;
}

/// A regression: the controller trusted an outdated power state "Off" and ejected media of a running system.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_bmc_shows_its_power_late_is_not_taken_for_off_while_it_runs() {
    let spec = with_bmc(silent("LATE-1"), |bmc| bmc.power.state_lag = Duration::from_secs(3));
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("LATE-1").await;
    scene.admin.awaits_report(&id).await;
    let document = scene.admin.job_document(&id).await;
    let token = document["webhook_token"].as_str().unwrap();
    scene.admin.report("LATE-1", token, &json!({ "status": "success" })).await.expect(200);
    let job = scene.admin.complete(&id).await;
    let machine = scene.bmc("LATE-1").snapshot();
    assert_eq!((machine.ejected_while_running, machine.boots_from_media, machine.power), (0, 1, Power::On));
    assert_eq!(job["cleanup"]["state"], "done", "{}", scene.admin.event_log(&id).await);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_never_reports_fails_at_the_deadline_and_is_left_as_it_was_found() {
    let scene = Scene::start(vec![silent("QUIET-1")]).await;
    let id = scene.admin.create_job("QUIET-1").await;
    let job = scene.admin.awaits_report(&id).await;
    let deadline: model::Time = job["wait"]["deadline"].as_str().unwrap().parse().unwrap();
    let since: model::Time = job["wait"]["since"].as_str().unwrap().parse().unwrap();
    scene.skip(deadline.since(since) + Duration::from_secs(1));
    let job = scene.admin.complete(&id).await;
    assert_eq!(failure(&job), ("webhook.wait", "deadline"));
    assert_eq!(job["cleanup"]["state"], "done");
    let machine = scene.bmc("QUIET-1").snapshot();
    assert_eq!((machine.power, machine.boots_from_media, machine.ejected_while_running), (Power::Off, 1, 0));
    assert!(empty(&machine));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_cleanup_is_shown_and_the_next_job_does_it() {
    let scene = Scene::start(vec![healthy("CLEAN-1")]).await;
    let bmc = scene.bmc("CLEAN-1");
    bmc.inject(Fault::always(FaultTrigger::Eject, refusal(500)));
    let id = scene.admin.create_job("CLEAN-1").await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "pending cleanup does not change the outcome");
    // The host would boot from the image a second time, so it stays off until the image is ejected.
    let remaining = json!(["cleanup.eject", "cleanup.power-on"]);
    assert_eq!(job["cleanup"], json!({ "state": "incomplete", "remaining": remaining }));
    assert_eq!((bmc.snapshot().power, bmc.boots_from_media()), (Power::Off, 1));
    let server = scene.admin.get("/api/v1/servers/CLEAN-1").await.expect(200);
    assert_eq!(server["pending_cleanup"]["remaining"], remaining, "{server:#}");

    bmc.clear_faults();
    let id = scene.admin.create_job("CLEAN-1").await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    let machine = bmc.snapshot();
    assert!(empty(&machine) && machine.boots_from_media == 2, "{machine:?}");
    let server = scene.admin.get("/api/v1/servers/CLEAN-1").await.expect(200);
    assert_eq!(server["pending_cleanup"], Value::Null, "{server:#}");
    scene.end().await;
}

/// The BMCs of two servers change places while a job waits for its report, as when addresses are leased anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_took_the_address_of_the_bmc_is_neither_shut_down_nor_changed_by_cleanup() {
    let scene = Scene::start(vec![silent("SWAP-1")]).await;
    let id = scene.admin.create_job("SWAP-1").await;
    scene.wait_skipping(&id, "the wait for the report", |job| job["wait"]["reason"] == "report").await;
    let bmc = scene.bmc("SWAP-1");
    let system = FaultTrigger::Request { method: "GET".to_owned(), path_ends_with: "437XR1138R2".to_owned() };
    let other = json!({ "SerialNumber": "SWAP-2", "UUID": "00000000-0000-4000-8000-000000000002" });
    bmc.inject(Fault::always(system, FaultEffect::Lie(other)));
    let before = bmc.mutations();
    scene.skip(std::time::Duration::from_secs(60));
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    let job = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "cancelled", "{job:#}");
    let log = scene.admin.event_log(&id).await;
    assert!(log.contains("another machine is at this address now"), "{log}");
    assert!(!job["cleanup"]["remaining"].as_array().unwrap().is_empty(), "{job:#}");
    let after = bmc.mutations();
    assert_eq!(after.len(), before.len(), "{:#?}", &after[before.len()..]);
    scene.end().await;
}
