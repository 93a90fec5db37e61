//! Boot overrides that are refused, changed or ignored; systems that are not the host.

use std::time::Duration;

use lab_bmc::{
    BootDemands, ExtraSystem, Fault, FaultEffect, FaultTrigger, MediaKind, OverrideEnabled, Power,
    SettingsObject, SimBmcConfig,
};
use serde_json::{Value, json};

use super::{SERIAL, SYSTEM, finished, get, says, scene, unhurried, until_the_deadline};
use crate::kit::{POLL_INTERVAL, Scene, silent, soon, with_bmc};

fn beside(id: &str, first: bool, boot: bool, status_while_off: Option<u16>) -> ExtraSystem {
    ExtraSystem { id: id.to_owned(), first, boot, status_while_off }
}

recovers! {
    a_bios_that_is_busy_for_a_while(bmc) {
        let busy = says(400, "iLO.2.14.UnableToModifyDuringSystemPOST");
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, busy).times(3));
    }
    a_bios_that_is_busy_for_longer_than_the_attempts_last(bmc) {
        let busy = says(400, "iLO.2.14.UnableToModifyDuringSystemPOST");
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, busy).times(20));
    }
    a_bios_that_is_in_the_wrong_state_for_a_while(bmc) {
        let busy = says(409, "iLO.2.14.InvalidOperationForSystemState");
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, busy).times(2));
    }
    an_override_that_stays_for_good(bmc) {
        bmc.boot.stored_as = Some(OverrideEnabled::Continuous);
    }
    an_override_that_is_dropped_twice(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, FaultEffect::AcceptButIgnore).times(2));
    }
    an_override_that_wants_everything_at_once(bmc) {
        bmc.boot.demands = BootDemands::AllOrIgnored;
    }
    an_override_that_wants_to_be_enabled_each_time(bmc) {
        bmc.boot.demands = BootDemands::EnabledOrIgnored;
    }
    an_override_that_wants_its_target_each_time(bmc) {
        bmc.boot.demands = BootDemands::Target;
    }
    an_override_in_a_settings_resource(bmc) {
        bmc.boot.settings = Some(SettingsObject { id: "Settings".to_owned(), also_direct: false });
    }
    an_override_whose_values_are_not_listed(bmc) {
        bmc.boot.shows_allowable = false;
    }
    an_override_without_a_mode(bmc) {
        bmc.boot.modes = Vec::new();
    }
    an_override_whose_response_is_lost(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, FaultEffect::ApplyButDrop));
    }
    a_mode_that_falls_back_to_legacy(bmc) {
        bmc.boot.mode_falls_to = Some("Legacy".to_owned());
    }
    a_boot_override_of_null_for_a_while(bmc) {
        bmc.faults.push(Fault::once(get(SYSTEM), FaultEffect::Lie(json!({ "Boot": { "BootSourceOverrideTarget": null } }))));
    }
    a_second_system_that_fails_while_the_host_is_off(bmc) {
        bmc.service.extra_systems = vec![beside("HGX", true, false, Some(500))];
    }
    a_second_system_without_boot(bmc) {
        bmc.service.extra_systems = vec![beside("Baseboard", true, false, None)];
    }
    a_second_system_that_looks_like_a_host(bmc) {
        bmc.service.extra_systems = vec![beside("Tray", true, true, None), beside("Tray2", false, true, None)];
    }
}

fails! {
    an_override_that_is_always_dropped(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::PatchBoot, FaultEffect::AcceptButIgnore));
    } => "redfish.boot-override", "deadline", [];
    an_override_that_is_always_refused(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::PatchBoot, says(400, "Base.1.18.PropertyNotWritable")));
    } => "redfish.boot-override", "bmc_refused", ["PropertyNotWritable"];
    an_override_that_knows_no_medium(bmc) {
        bmc.boot.targets = vec!["None".to_owned(), "Pxe".to_owned(), "Hdd".to_owned()];
    } => "redfish.boot-override", "unsupported", ["none of the wanted boot targets"];
    a_bios_that_stays_busy(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::PatchBoot, says(400, "iLO.2.14.UnableToModifyDuringSystemPOST")));
    } => "redfish.boot-override", "deadline", ["UnableToModifyDuringSystemPOST"];
}

/// The BMC shows the override as set, and the firmware boots the disk.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_the_firmware_ignores_ends_the_job_at_its_deadline() {
    let ended = until_the_deadline(|bmc| bmc.boot.media_targets.clear()).await;
    assert!(ended.machine.boots_from_disk > 0, "{:?}", ended.machine);
    ended.assert_failed("webhook.wait", "deadline", &["no report"]).await;
}

/// A firmware that boots its disk for `Cd`; for `UsbCd` it boots the virtual CD if `usb_cd_boots`.
fn cd_boots_the_disk(bmc: &mut SimBmcConfig, usb_cd_boots: bool) {
    bmc.boot.targets.push("UsbCd".to_owned());
    bmc.boot.media_targets.clear();
    if usb_cd_boots {
        bmc.boot.media_targets.insert("UsbCd".to_owned(), vec![MediaKind::Cd]);
    }
}

/// The time within which a host that boots from the media reads them, and a second more.
const READ_WITHIN: Duration = Duration::from_secs(601);

/// Creates a job and skips the time in which its host should have read the media.
async fn without_a_read(scene: &Scene) -> String {
    let id = scene.admin.create_job(SERIAL).await;
    scene.wait_skipping(&id, "the wait for the report", |job| job["wait"]["reason"] == "report").await;
    soon("a boot", scene.bmc(SERIAL).wait_for(|bmc| bmc.generation > 0)).await;
    scene.skip(READ_WITHIN);
    id
}

/// Waits until the host has booted `times` times and the job waits for the report again.
async fn waits_again(scene: &Scene, id: &str, times: u64) -> Value {
    soon("another boot", scene.bmc(SERIAL).wait_for(|bmc| bmc.generation >= times)).await;
    let waits =
        |job: &Value| ["report", "install_signs"].iter().any(|reason| job["wait"]["reason"] == *reason);
    scene.wait_skipping(id, "the second wait", waits).await
}

/// Waits until the media server has sent a part of the boot image since the power-on.
async fn reads_its_media(scene: &Scene, id: &str) {
    let path = format!("/api/v1/jobs/{id}/explain");
    let booted = async || {
        let explained = scene.admin.get(&path).await.expect(200);
        explained["summary"].as_str().unwrap().contains("the machine booted from the media")
    };
    soon("a read of the media", async {
        while !booted().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_boots_its_disk_by_the_first_way_is_installed_by_the_second() {
    let scene = scene(|bmc| cd_boots_the_disk(bmc, true)).await;
    let id = without_a_read(&scene).await;
    let ended = finished(scene, &id).await;
    let wanted = "second way to boot: boot override UsbCd, because after the power-on at";
    assert!(ended.event_log.contains(wanted), "{}", ended.event_log);
    ended.assert_succeeded().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_way_is_tried_once_until_the_first_deadline_and_the_failure_names_both() {
    let scene = scene(|bmc| cd_boots_the_disk(bmc, false)).await;
    let id = scene.admin.create_job(SERIAL).await;
    let job = scene.wait_skipping(&id, "the first wait", |job| job["wait"]["reason"] == "report").await;
    let deadline = job["wait"]["deadline"].clone();
    soon("a boot", scene.bmc(SERIAL).wait_for(|bmc| bmc.boots_from_disk == 1)).await;
    scene.skip(READ_WITHIN);
    let job = waits_again(&scene, &id, 2).await;
    assert_eq!(job["wait"]["deadline"], deadline, "{job:#}");
    let explained = scene.admin.get(&format!("/api/v1/jobs/{id}/explain")).await.expect(200);
    let summary = explained["summary"].as_str().unwrap();
    assert!(summary.contains("second way to boot: boot override UsbCd, because"), "{explained:#}");

    // Twice the time later nothing more is tried.
    scene.skip(READ_WITHIN);
    scene.skip(READ_WITHIN);
    let job = scene.admin.job(&id).await;
    assert_eq!((&job["wait"]["reason"], &job["wait"]["deadline"]), (&json!("report"), &deadline));
    let time: model::Time = deadline.as_str().unwrap().parse().unwrap();
    scene.skip(time.since(scene.now()) + Duration::from_secs(1));
    let ended = finished(scene, &id).await;
    assert_eq!(ended.event_log.matches("redfish.second-way").count(), 1, "{}", ended.event_log);
    ended
        .assert_failed("webhook.wait", "deadline", &["boot override UsbCd", "first way (boot override Cd)"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_has_read_its_media_is_never_powered_off_for_another_way() {
    let mut spec = silent(SERIAL);
    spec = with_bmc(spec, |bmc| bmc.boot.targets.push("UsbCd".to_owned()));
    let scene = Scene::start_with(vec![spec], |settings, _| unhurried(settings)).await;
    let id = scene.admin.create_job(SERIAL).await;
    scene.wait_skipping(&id, "the wait for the report", |job| job["wait"]["reason"] == "report").await;
    reads_its_media(&scene, &id).await;
    scene.skip(READ_WITHIN);
    let looked = |job: &Value| {
        job["wait"]["poll_at"].as_str().is_some_and(|at| at.parse::<model::Time>().unwrap() > scene.now())
    };
    scene.wait_skipping(&id, "the look", looked).await;
    let machine = scene.bmc(SERIAL).snapshot();
    assert_eq!((machine.power_ons, machine.boots_from_media, machine.power), (1, 1, Power::On));
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    let ended = finished(scene, &id).await;
    assert!(!ended.event_log.contains("second-way"), "{}", ended.event_log);
    ended.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_still_to_use_its_override_is_given_more_time() {
    let scene = scene(|bmc| {
        cd_boots_the_disk(bmc, true);
        bmc.power.post_time = Duration::from_secs(3600);
    })
    .await;
    let id = scene.admin.create_job(SERIAL).await;
    scene.wait_skipping(&id, "the wait for the report", |job| job["wait"]["reason"] == "report").await;
    scene.skip(READ_WITHIN);
    let looked = |job: &Value| {
        job["wait"]["poll_at"].as_str().is_some_and(|at| at.parse::<model::Time>().unwrap() > scene.now())
    };
    scene.wait_skipping(&id, "a later look", looked).await;
    assert_eq!(scene.bmc(SERIAL).snapshot().power_ons, 1);
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    finished(scene, &id).await.scene.end().await;
}

/// Starts a job whose installer cannot report, and waits until its end is observed.
async fn observed(change: impl FnOnce(&mut SimBmcConfig)) -> (Scene, String, Value) {
    let spec = with_bmc(silent(SERIAL), change);
    let scene = Scene::start_with(vec![spec], |settings, _| {
        unhurried(settings);
        settings.esxi_installer_url = settings.maintenance_iso_url.take();
    })
    .await;
    let recipe = json!({ "task_target": "install-esxi.target", "ks_cfg": "vmaccepteula\nreboot\n" });
    let job = scene.admin.post("/api/v1/jobs", &json!({ "server_serial": SERIAL, "recipe": recipe })).await;
    let id = job.expect(202)["job_id"].as_str().unwrap().to_owned();
    let installs = |job: &Value| job["wait"]["reason"] == "install_signs";
    let job = scene.wait_skipping(&id, "the installation", installs).await;
    (scene, id, job)
}

/// Whether a job waits for signs of the end of its installation, and observes its machine next after `time`.
fn is_observed_after(job: &Value, time: model::Time) -> bool {
    let poll = job["wait"]["poll_at"].as_str().map(|at| at.parse::<model::Time>().unwrap());
    job["wait"]["reason"] == "install_signs" && poll.is_some_and(|at| at > time)
}

/// Skips time until a job has observed its machine at that time and waits again.
async fn observed_now(scene: &Scene, id: &str) {
    let now = scene.now();
    scene.wait_skipping(id, "an observation", |job| is_observed_after(job, now)).await;
}

fn deadline(job: &Value) -> model::Time {
    job["wait"]["deadline"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_boots_its_disk_instead_of_an_installer_that_cannot_report_is_installed_by_the_second_way()
 {
    let (scene, id, first) = observed(|bmc| cd_boots_the_disk(bmc, true)).await;
    soon("a boot", scene.bmc(SERIAL).wait_for(|bmc| bmc.boots_from_disk == 1)).await;
    scene.skip(READ_WITHIN);
    let job = waits_again(&scene, &id, 2).await;
    assert_eq!(deadline(&job), deadline(&first), "{job:#}");
    reads_its_media(&scene, &id).await;
    // Not in the middle of an observation: it would take the skipped time for silence of the media.
    observed_now(&scene, &id).await;
    scene.skip(deadline(&job).since(scene.now()) + Duration::from_secs(1));
    let ended = finished(scene, &id).await;
    assert_eq!(ended.job["completion"]["by"], "assumed", "{:#}", ended.job);
    let wanted = "second way to boot: boot override UsbCd, because after the power-on at";
    assert!(ended.event_log.contains(wanted), "{}", ended.event_log);
    ended.assert_succeeded().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_whose_image_no_way_to_boot_has_read_fails_at_the_first_deadline_and_names_both_ways()
{
    let (scene, id, first) = observed(|bmc| cd_boots_the_disk(bmc, false)).await;
    soon("a boot", scene.bmc(SERIAL).wait_for(|bmc| bmc.boots_from_disk == 1)).await;
    scene.skip(READ_WITHIN);
    let job = waits_again(&scene, &id, 2).await;
    assert_eq!(deadline(&job), deadline(&first), "{job:#}");

    // After the minimum install time a host that is off has still not been installed, and nothing more is tried.
    scene.skip(READ_WITHIN);
    let off = FaultEffect::Lie(json!({ "PowerState": "Off" }));
    scene.bmc(SERIAL).inject(Fault::once(get(SYSTEM), off));
    observed_now(&scene, &id).await;
    scene.skip(READ_WITHIN);
    observed_now(&scene, &id).await;
    scene.skip(deadline(&first).since(scene.now()) + Duration::from_secs(1));
    let ended = finished(scene, &id).await;
    assert_eq!(ended.event_log.matches("redfish.second-way").count(), 1, "{}", ended.event_log);
    let named = ["the boot image was not read", "boot override UsbCd", "first way (boot override Cd)"];
    ended.assert_failed("redfish.poll", "deadline", &named).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observed_machine_that_has_read_its_media_is_never_powered_off_for_another_way() {
    let (scene, id, _) = observed(|bmc| bmc.boot.targets.push("UsbCd".to_owned())).await;
    reads_its_media(&scene, &id).await;
    scene.skip(READ_WITHIN);
    // A host that had read its whole image before the skip has been silent since, and its job ends; another one is waited for.
    let now = scene.now();
    let judged = |job: &Value| job["status"] == "complete" || is_observed_after(job, now);
    let job = scene.wait_skipping(&id, "an observation", judged).await;
    let machine = scene.bmc(SERIAL).snapshot();
    assert_eq!(machine.boots_from_media, 1);
    if job["status"] == "complete" {
        // The end of an installation restarts the host from its disk.
        assert_eq!(job["completion"]["sign"], "media_silent", "{job:#}");
    } else {
        assert_eq!((machine.power_ons, machine.power), (1, Power::On));
        scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    }
    let ended = finished(scene, &id).await;
    assert!(!ended.event_log.contains("second-way"), "{}", ended.event_log);
    ended.scene.end().await;
}
