use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    backoff::Backoff,
    disk,
    machine::DiskSpec,
    test_kit::{FakeController, ReceivedReport, SCHEMA_2_ID, TOKEN, recipe, task_iso},
};

const SERIAL: &str = "XF-12345ABC";

/// A machine and a fake controller.
struct Bench {
    fake: FakeController,
    disks: tempfile::TempDir,
    hardware: Vec<DiskSpec>,
    behaviour: InstallerBehaviour,
    cancel: CancellationToken,
    console: Console,
}

impl Bench {
    async fn new() -> Self {
        let quick =
            Backoff { attempts: 4, first: Duration::from_millis(1), longest: Duration::from_millis(2) };
        Self {
            fake: FakeController::start().await,
            disks: tempfile::tempdir().unwrap(),
            hardware: Machine::usual_disks(),
            behaviour: InstallerBehaviour {
                report_backoff: quick,
                pull_backoff: quick,
                ..Default::default()
            },
            cancel: CancellationToken::new(),
            console: Console::default(),
        }
    }

    fn machine(&self) -> Arc<Machine> {
        Arc::new(Machine::new(SERIAL, self.hardware.clone(), self.disks.path()))
    }

    /// Boots with the maintenance ISO in CD1 and the given media in the other drives.
    async fn boot(&self, others: &[String]) -> InstallResult {
        let boot = self.fake.maintenance();
        self.boot_from(boot, others).await
    }

    async fn boot_from(&self, boot: String, others: &[String]) -> InstallResult {
        let mut media = vec![Medium { slot: "CD1".into(), url: boot }];
        for (index, url) in others.iter().enumerate() {
            media.push(Medium { slot: format!("CD{}", index + 2), url: url.clone() });
        }
        let tools = Tools::new().unwrap();
        let os = MaintenanceOs::new(self.machine(), self.behaviour.clone(), tools, self.console.clone());
        os.run(MediaBoot { generation: 1, booted: "CD1".into(), media, cancel: self.cancel.clone() }).await
    }

    /// Boots with the task of this machine in the second drive.
    async fn boot_task(&self, recipe: &Value, more: &[(&str, &str)]) -> InstallResult {
        let task = self.fake.task("task.iso", &self.fake.job(SERIAL), recipe, more);
        self.boot(&[task]).await
    }

    /// Boots with a task of a recipe of version 2.
    async fn boot_second(&self, recipe: &Value) -> InstallResult {
        self.boot_job(recipe, &json!({ "recipe_schema_id": SCHEMA_2_ID })).await
    }

    /// Boots with a task whose `job.json` has these members beside the usual ones.
    async fn boot_job(&self, recipe: &Value, members: &Value) -> InstallResult {
        let mut job = self.fake.job(SERIAL);
        for (name, value) in members.as_object().unwrap() {
            job[name] = value.clone();
        }
        let task = self.fake.task("task.iso", &job, recipe, &[]);
        self.boot(&[task]).await
    }

    fn reports(&self) -> Vec<ReceivedReport> {
        self.fake.reports.borrow().clone()
    }

    fn only_report(&self) -> Value {
        let reports = self.reports();
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert_eq!(reports[0].secret, TOKEN);
        reports[0].body.clone()
    }

    fn disk_was_touched(&self) -> bool {
        std::fs::read_dir(self.disks.path()).unwrap().next().is_some()
    }
}

#[track_caller]
fn failed_with(report: &InstallResult, unit: &str, wanted: &str) {
    let InstallOutcome::Failed { failed_step, reason } = &report.outcome else { panic!("{report:?}") };
    assert_eq!(failed_step, unit);
    assert!(reason.contains(wanted), "{reason}");
}

#[tokio::test]
async fn a_recipe_becomes_an_installed_disk_and_a_report() {
    let bench = Bench::new().await;
    let image = bench.fake.push_rootfs().await;
    let report = bench.boot_task(&recipe(), &[("user-data", "#!/bin/bash\n")]).await;
    let InstallOutcome::Succeeded(installed) = &report.outcome else { panic!("{report:?}") };
    assert_eq!(report.delivery, ReportDelivery::Acknowledged { attempts: 1 });
    assert_eq!(installed.image_digest, image.digest);
    assert_eq!(installed.os_name, "Shoal Demo Linux 22.04");
    let (device, booted) = bench.machine().boot_from_disk().unwrap();
    assert_eq!((device.as_str(), &booted), ("/dev/sda", installed.as_ref()));
    let parts = installed.table.entries();
    assert_eq!((parts[0].type_guid, parts[0].bytes()), (disk::EFI_SYSTEM, 512 << 20));
    assert_eq!(parts[1].type_guid, disk::LINUX_FILESYSTEM);

    let body = bench.only_report();
    assert_eq!(body["status"], "success");
    assert_eq!(body["job_id"], "job-of-XF-12345ABC");
    assert_eq!(body["task_target"], "install-linux.target");
    assert_eq!(body["schema_id"], "https://shoal.dev/provisioner/recipe.schema.json");
    assert!(body["delivery_id"].as_str().unwrap().parse::<uuid::Uuid>().is_ok());
    let time = |key: &str| body[key].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert!(time("started_at") <= time("finished_at"));
    assert!(body.get("failed_step").is_none() && body.get("percent").is_none());
    let leftovers = std::fs::read_dir(bench.machine().directory.clone()).unwrap().count();
    assert_eq!(leftovers, 1, "only the disk remains, no layers");
}

#[tokio::test]
async fn user_data_is_written_where_cloud_init_looks_for_it() {
    let bench = Bench::new().await;
    bench.fake.push_rootfs().await;
    let report = bench.boot_task(&recipe(), &[("user-data", "marker-of-user-data")]).await;
    let InstallOutcome::Succeeded(plain) = report.outcome else { panic!("{report:?}") };
    let mut with_drive = recipe();
    let small = json!({ "size": "16M", "type_guid": "8300", "format": "vfat", "label": "cidata" });
    with_drive["partition_layout"].as_array_mut().unwrap().insert(1, small);
    let report = bench.boot_task(&with_drive, &[("user-data", "marker-of-user-data")]).await;
    let InstallOutcome::Succeeded(drive) = report.outcome else { panic!("{report:?}") };
    // The seed is two entries of the root file system, or a record in the config drive.
    assert_eq!(plain.entries, drive.entries + 2);
    let machine = bench.machine();
    let bytes = {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::open(machine.disk_file(&machine.disks[0])).unwrap();
        let cidata = &drive.table.entries()[1];
        assert_eq!(cidata.name, "cidata");
        let mut bytes = vec![0u8; 16 * 1024];
        file.read_exact_at(&mut bytes, cidata.offset()).unwrap();
        bytes
    };
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("marker-of-user-data") && text.contains("instance-id: XF-12345ABC"));
}

#[tokio::test]
async fn a_unit_configured_to_fail_is_the_failed_step() {
    for unit in
        [unit::DISPATCHER, unit::SELECT_DISK, unit::PARTITION, unit::IMAGE_LINUX, unit::BOOTLOADER_LINUX]
    {
        let mut bench = Bench::new().await;
        bench.fake.push_rootfs().await;
        bench.behaviour.fail_at = Some(unit.to_owned());
        let report = bench.boot_task(&recipe(), &[]).await;
        failed_with(&report, unit, "failed on purpose");
        let body = bench.only_report();
        assert_eq!((&body["status"], &body["failed_step"]), (&json!("failed"), &json!(unit)));
        assert!(bench.machine().boot_from_disk().is_err(), "{unit}");
    }
}

#[tokio::test]
async fn a_rescue_system_reports_that_it_is_reachable_and_runs_until_its_power_is_off() {
    let bench = Bench::new().await;
    let rescue = json!({ "task_target": "rescue.target" });
    let (report, ()) = tokio::join!(bench.boot_second(&rescue), async {
        let mut reports = bench.fake.reports.clone();
        reports.wait_for(|reports| !reports.is_empty()).await.unwrap();
        bench.cancel.cancel();
    });
    assert_eq!((&report.outcome, report.delivery), (&InstallOutcome::PowerLost, ReportDelivery::NotSent));
    let body = bench.only_report();
    assert_eq!(body["status"], "reachable");
    assert!(body["addresses"][0].as_str().is_some() && body["consoles"][0].as_str().is_some(), "{body}");
    assert!(body.get("ssh_host_key").is_none(), "the recipe has no key: {body}");
    assert!(!bench.disk_was_touched());
}

#[tokio::test]
async fn a_rescue_system_can_end_by_itself_or_fail() {
    let mut bench = Bench::new().await;
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4YW1wbGVleGFtcGxlZXhhbXBsZWV4YW1wbGU a@b";
    let rescue = json!({ "task_target": "rescue.target", "ssh_authorized_keys": [key] });
    bench.behaviour.rescue_ends_after = Some(Duration::from_millis(1));
    assert_eq!(bench.boot_second(&rescue).await.outcome, InstallOutcome::Rescued);
    let said: Vec<_> = bench.reports().iter().map(|report| report.body["status"].clone()).collect();
    assert_eq!(said, ["reachable", "success"]);
    assert!(bench.reports()[0].body["ssh_host_key"].as_str().unwrap().starts_with("SHA256:"));

    bench.behaviour.fail_at = Some(unit::RESCUE.to_owned());
    failed_with(&bench.boot_second(&rescue).await, unit::RESCUE, "failed on purpose");
    assert_eq!(bench.reports().last().unwrap().body["failed_step"], unit::RESCUE);
    assert!(!bench.disk_was_touched());
}

#[tokio::test]
async fn a_task_for_another_machine_is_refused_without_touching_disk_or_network() {
    let bench = Bench::new().await;
    let foreign = bench.fake.task("task.iso", &bench.fake.job("OTHER"), &recipe(), &[]);
    let report = bench.boot(&[foreign]).await;
    let InstallOutcome::Refused { reason } = &report.outcome else { panic!("{report:?}") };
    assert_eq!(reason, "this machine is XF-12345ABC, the media hold a task for OTHER");
    assert_eq!(report.delivery, ReportDelivery::NotSent);
    assert!(bench.reports().is_empty() && !bench.disk_was_touched());
    assert_eq!(bench.fake.requests("/v2/"), 0);
    let none = bench.boot(&[]).await;
    assert_eq!(none.outcome, InstallOutcome::Refused { reason: "no medium holds a job.json".into() });
}

#[tokio::test]
async fn the_newest_of_several_tasks_of_this_machine_is_used() {
    let mut bench = Bench::new().await;
    bench.behaviour.fail_at = Some(unit::PARTITION.to_owned());
    let mut media = Vec::new();
    for (name, serial, id, at) in [
        ("a.iso", SERIAL, "older", "2025-11-03T20:30:00Z"),
        ("b.iso", SERIAL, "newest", "2025-11-05T20:30:00+01:00"),
        ("c.iso", SERIAL, "middle", "2025-11-05T19:29:59Z"),
        ("d.iso", "OTHER", "foreign", "2026-01-01T00:00:00Z"),
    ] {
        let mut job = bench.fake.job(serial);
        job["job_id"] = json!(id);
        job["created_at"] = json!(at);
        media.push(bench.fake.task(name, &job, &recipe(), &[]));
    }
    media.push(bench.fake.put_media("broken.iso", vec![0xFF; 700_000]));
    assert_eq!(bench.boot(&media).await.job_id.as_deref(), Some("newest"));
}

#[tokio::test]
async fn a_task_inside_the_maintenance_image_is_found_with_a_single_drive() {
    let bench = Bench::new().await;
    bench.fake.push_rootfs().await;
    let mut tree = iso9660::Tree::new();
    tree.add_file("maintenance-os.json", r#"{"name":"x","version":"1"}"#).unwrap();
    tree.add_file("efi.img", vec![0u8; 2048]).unwrap();
    for (name, text) in [
        ("task/job.json", bench.fake.job(SERIAL).to_string()),
        ("task/recipe.json", recipe().to_string()),
        ("task/recipe.schema.json", crate::test_kit::SCHEMA.to_owned()),
    ] {
        tree.add_file(name, text).unwrap();
    }
    let mut options = iso9660::ImageOptions::new(iso9660::Profile::Boot, "SPLICED", 0);
    options.boot = Some(iso9660::Boot::new(None, Some(iso9660::UefiBoot::new("efi.img"))));
    let plan = iso9660::ImagePlan::new(&tree, &options).unwrap();
    let url = bench.fake.put_media("boot.iso", crate::test_kit::bytes_of(&plan));
    let report = bench.boot_from(url, &[]).await;
    assert!(matches!(report.outcome, InstallOutcome::Succeeded(_)), "{report:?}");
}

#[tokio::test]
async fn a_boot_medium_that_is_no_maintenance_image_hangs_without_a_report() {
    let bench = Bench::new().await;
    let task = bench.fake.task("task.iso", &bench.fake.job(SERIAL), &recipe(), &[]);
    for (boot, wanted) in [
        (task.clone(), "no El Torito boot entry"),
        (bench.fake.put_media("zeros.iso", vec![0; 700_000]), "cannot be read"),
        (format!("{}/t1/none.iso", bench.fake.base), "404"),
    ] {
        let report = bench.boot_from(boot, std::slice::from_ref(&task)).await;
        let InstallOutcome::NotBootable { reason } = &report.outcome else { panic!("{report:?}") };
        assert!(reason.contains(wanted), "{reason}");
    }
    assert!(bench.reports().is_empty() && !bench.disk_was_touched());
}

#[tokio::test]
async fn damaged_task_images_never_reach_the_disk() {
    let bench = Bench::new().await;
    let job = bench.fake.job(SERIAL);
    let honest = task_iso("", &job, &recipe(), &[]);
    // Without volume descriptors there is no job and no URL for a report.
    let mut headless = honest.clone();
    headless[16 * 2048..20 * 2048].fill(0);
    let report = bench.boot(&[bench.fake.put_media("a.iso", headless)]).await;
    assert!(matches!(report.outcome, InstallOutcome::Refused { .. }), "{report:?}");
    // The recipe is no longer JSON. The job is known, so the failure is reported.
    let mut scribbled = honest.clone();
    let at = scribbled.windows(11).position(|window| window == b"task_target").unwrap();
    scribbled[at - 2] = b'!';
    let report = bench.boot(&[bench.fake.put_media("b.iso", scribbled)]).await;
    failed_with(&report, unit::DISPATCHER, "recipe.json");
    assert_eq!(bench.only_report()["failed_step"], unit::DISPATCHER);
    assert!(!bench.disk_was_touched());
}

#[tokio::test]
async fn the_recipe_is_validated_against_the_schema_in_the_task_image() {
    let bench = Bench::new().await;
    let mut bad = recipe();
    bad["partition_layout"][0]["size"] = json!("-1G");
    bad["user_data"] = json!({ "canary": "secret-user-data" });
    let report = bench.boot_task(&bad, &[]).await;
    failed_with(&report, unit::DISPATCHER, "/partition_layout/0/size");
    assert!(!format!("{report:?}").contains("secret-user-data"));

    let mut job = bench.fake.job(SERIAL);
    job["recipe_schema_id"] = json!("https://shoal.dev/another");
    let report = bench.boot(&[bench.fake.task("task.iso", &job, &recipe(), &[])]).await;
    failed_with(&report, unit::DISPATCHER, "job.json names");

    let esxi = json!({ "task_target": "install-esxi.target", "ks_cfg": "x" });
    failed_with(
        &bench.boot_task(&esxi, &[]).await,
        unit::DISPATCHER,
        "does not exist on this maintenance OS",
    );
    assert!(!bench.disk_was_touched());
}

#[tokio::test]
async fn an_invalid_controller_ca_fails_without_a_report() {
    let bench = Bench::new().await;
    let mut job = bench.fake.job(SERIAL);
    job["controller_ca"] = json!("not a certificate");
    let report = bench.boot(&[bench.fake.task("task.iso", &job, &recipe(), &[])]).await;
    failed_with(&report, unit::DISPATCHER, "controller_ca of job.json");
    assert_eq!(report.delivery, ReportDelivery::NotSent);
    assert!(!bench.disk_was_touched());
}

#[tokio::test]
async fn each_unit_fails_with_its_reason() {
    let bench = Bench::new().await;
    let image = bench.fake.push_rootfs().await;
    let mut no_disk = recipe();
    no_disk["target_disk"] = json!("/dev/sdz");
    failed_with(&bench.boot_task(&no_disk, &[]).await, unit::SELECT_DISK, "there is no /dev/sdz");
    let mut too_big = recipe();
    too_big["partition_layout"][0]["size"] = json!("9T");
    failed_with(&bench.boot_task(&too_big, &[]).await, unit::PARTITION, "does not fit");
    let mut no_image = recipe();
    no_image["oci_url"] = json!("h.x/os-images/ubuntu-rootfs:none");
    failed_with(&bench.boot_task(&no_image, &[]).await, unit::IMAGE_LINUX, "404");
    let mut tight = recipe();
    tight["partition_layout"][1]["size"] = json!("1M");
    let grown = crate::images::RootfsSpec { payload_bytes: 2 << 20, ..Default::default() };
    let grown = crate::images::rootfs_image(&grown).unwrap();
    let authorization =
        crate::oci::Authorization::Basic { username: "pull".into(), password: "pull-token".into() };
    let client = http::api_client(None).unwrap();
    let repository = crate::test_kit::REPOSITORY;
    crate::images::push(client, &bench.fake.base, repository, "big", authorization, &grown).await.unwrap();
    tight["oci_url"] = json!(format!("h.x/{repository}:big"));
    failed_with(&bench.boot_task(&tight, &[]).await, unit::IMAGE_LINUX, "make the partition larger");
    let mut no_esp = recipe();
    no_esp["partition_layout"].as_array_mut().unwrap().remove(0);
    failed_with(&bench.boot_task(&no_esp, &[]).await, unit::BOOTLOADER_LINUX, "no EFI system partition");

    let digest = &image.blobs[0].digest;
    let mut layer = image.blobs[0].bytes.to_vec();
    layer[1000] ^= 1;
    bench.fake.shared.blobs.lock().unwrap().insert(digest.clone(), layer.into());
    failed_with(&bench.boot_task(&recipe(), &[]).await, unit::IMAGE_LINUX, "content is damaged");
    assert!(bench.machine().boot_from_disk().is_err());
    assert_eq!(bench.reports().last().unwrap().body["failed_step"], unit::IMAGE_LINUX);
}

#[tokio::test]
async fn the_report_is_retried_after_503_and_429_but_not_after_401() {
    let mut bench = Bench::new().await;
    bench.behaviour.fail_at = Some(unit::PARTITION.to_owned());
    bench.fake.shared.report_statuses.lock().unwrap().extend([503, 429]);
    let report = bench.boot_task(&recipe(), &[]).await;
    assert_eq!(report.delivery, ReportDelivery::Acknowledged { attempts: 3 });
    let ids: Vec<_> = bench.reports().iter().map(|report| report.body["delivery_id"].clone()).collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    bench.fake.shared.report_statuses.lock().unwrap().extend([401]);
    assert_eq!(bench.boot_task(&recipe(), &[]).await.delivery, ReportDelivery::Refused { status: 401 });
    bench.fake.shared.report_statuses.lock().unwrap().extend([500; 9]);
    let delivery = bench.boot_task(&recipe(), &[]).await.delivery;
    assert!(matches!(delivery, ReportDelivery::GaveUp { attempts: 4, .. }), "{delivery:?}");
}

#[tokio::test]
async fn an_installer_can_skip_repeat_or_extend_its_reports() {
    let mut bench = Bench::new().await;
    bench.fake.push_rootfs().await;
    bench.behaviour.never_report = true;
    let report = bench.boot_task(&recipe(), &[]).await;
    assert!(matches!(report.outcome, InstallOutcome::Succeeded(_)), "{report:?}");
    assert_eq!((report.delivery, bench.reports().len()), (ReportDelivery::NotSent, 0));

    bench.behaviour = InstallerBehaviour { report_twice: true, report_progress: true, ..Default::default() };
    bench.boot_task(&recipe(), &[]).await;
    let reports = bench.reports();
    let status: Vec<_> = reports.iter().map(|report| report.body["status"].as_str().unwrap()).collect();
    assert_eq!(status, ["progress", "progress", "progress", "progress", "success", "success"]);
    let began =
        |report: &ReceivedReport| (report.body["step"].clone(), report.body["disk"]["written"].clone());
    assert_eq!(began(&reports[0]), (json!(unit::SELECT_DISK), json!(false)));
    assert_eq!(began(&reports[1]), (json!(unit::PARTITION), json!(true)));
    assert_eq!(reports[4].body["delivery_id"], reports[5].body["delivery_id"]);
    assert_ne!(reports[0].body["delivery_id"], reports[1].body["delivery_id"]);
}

#[tokio::test]
async fn power_off_ends_the_installation_in_every_unit() {
    for prefix in
        ["/t1/boot.iso", "/t1/task.iso", "/v2/os-images/ubuntu-rootfs/blobs/", "/api/v1/status-webhook/"]
    {
        let bench = Bench::new().await;
        bench.fake.push_rootfs().await;
        *bench.fake.shared.stall.lock().unwrap() = Some(prefix.into());
        let mut stalled = bench.fake.stalled.clone();
        let recipe = recipe();
        let (report, ()) = tokio::join!(bench.boot_task(&recipe, &[]), async {
            stalled.wait_for(|count| *count > 0).await.unwrap();
            bench.cancel.cancel();
        });
        if prefix.starts_with("/api") {
            assert!(matches!(report.outcome, InstallOutcome::Succeeded(_)), "{report:?}");
            assert!(
                matches!(&report.delivery, ReportDelivery::GaveUp { reason, .. } if reason == "the power went off")
            );
        } else {
            assert_eq!(
                (&report.outcome, &report.delivery),
                (&InstallOutcome::PowerLost, &ReportDelivery::NotSent),
                "{prefix}"
            );
            assert!(bench.machine().boot_from_disk().is_err(), "{prefix}");
        }
        assert!(bench.reports().is_empty(), "{prefix}");
    }
}

#[tokio::test]
async fn no_line_of_the_console_holds_a_secret() {
    let bench = Bench::new().await;
    bench.fake.push_rootfs().await;
    let mut lines = bench.console.subscribe();
    bench.boot_task(&recipe(), &[("user-data", "canary-user-data")]).await;
    let mut all = String::new();
    while let Ok(line) = lines.try_recv() {
        all.push_str(&format!("{line:?}\n"));
    }
    for wanted in [
        "CD2: volume TASK_0123456789A holds job",
        "recipe accepted",
        "layer sha256:",
        "read back and verified",
    ] {
        assert!(all.contains(wanted), "{wanted} in\n{all}");
    }
    for secret in [TOKEN, "pull-token", "canary-user-data", "/t1/"] {
        assert!(!all.contains(secret), "{secret} in\n{all}");
    }
}

#[tokio::test]
async fn installing_twice_gives_the_same_disk() {
    let bench = Bench::new().await;
    bench.fake.push_rootfs().await;
    let first = bench.boot_task(&recipe(), &[]).await.outcome;
    let second = bench.boot_task(&recipe(), &[]).await.outcome;
    assert_eq!(first, second);
    assert!(matches!(first, InstallOutcome::Succeeded(_)), "{first:?}");
}

#[tokio::test]
async fn a_retry_writes_only_the_disk_that_the_attempt_before_wrote() {
    let mut bench = Bench::new().await;
    bench.fake.push_rootfs().await;
    let disk = |serial: &str, wwn: &str| DiskSpec {
        device: "/dev/sda".to_owned(),
        bytes: 4 << 30,
        serial: Some(serial.to_owned()),
        wwn: (!wwn.is_empty()).then(|| wwn.to_owned()),
    };
    // The disk before, the disk now, and a part of the refusal.
    let table = [
        (json!({ "serial": "D1", "wwn": null }), ("D2", ""), Some("serial number d1")),
        (json!({ "serial": "D1", "wwn": "5000c5" }), ("D1", "5000c6"), Some("WWN 5000c5")),
        (json!({ "serial": "D1", "wwn": null }), ("", "5000c5"), Some("not shown")),
        (json!({ "serial": "D1", "wwn": "5000c5" }), ("D9", "5000C5"), None),
        (json!({ "serial": " d1 ", "wwn": "5000c5" }), ("D1", ""), None),
        (json!({ "serial": null, "wwn": null }), ("D1", ""), None),
    ];
    for (former, (serial, wwn), refusal) in table {
        bench.hardware = vec![disk(serial, wwn)];
        let report = bench.boot_job(&recipe(), &json!({ "disk_before": former })).await;
        let body = bench.reports().last().unwrap().body.clone();
        assert_eq!(body["disk"]["name"], "sda");
        match refusal {
            Some(part) => {
                failed_with(&report, unit::SELECT_DISK, part);
                assert_eq!((&body["class"], &body["disk"]["written"]), (&json!("input"), &json!(false)));
                assert!(!bench.disk_was_touched(), "{former}");
            }
            None => {
                assert!(matches!(report.outcome, InstallOutcome::Succeeded(_)), "{former}: {report:?}");
                assert_eq!((&body["status"], &body["disk"]["written"]), (&json!("success"), &json!(true)));
            }
        }
    }
}

#[tokio::test]
async fn further_disks_are_chosen_once_partitioned_and_named_in_the_report() {
    let bench = Bench::new().await;
    bench.fake.push_rootfs().await;
    let second = json!({ "recipe_schema_id": SCHEMA_2_ID });
    let with = |more: Value| {
        let mut recipe = recipe();
        recipe["more_disks"] = more;
        recipe
    };
    let other = json!({ "target_disk": "/dev/vda" });
    for (more, wanted) in [
        (json!([{ "target_disk": "/dev/sda" }]), "more_disks/0 is /dev/sda, which is chosen already"),
        (json!([other, other]), "more_disks/1 is /dev/vda, which is chosen already"),
        (json!([{ "target_disk": "/dev/sdz" }]), "more_disks/0: there is no /dev/sdz"),
    ] {
        failed_with(&bench.boot_job(&with(more), &second).await, unit::SELECT_DISK, wanted);
        assert!(!bench.disk_was_touched());
    }
    let own = json!([{ "size": "100%", "type_guid": "8300", "format": "ext4" }]);
    let more = json!([other, { "target_disk": "/dev/nvme0n1", "partition_layout": own }]);
    // The disk of the attempt before says nothing of the further disks.
    let machine = bench.machine();
    let former = json!({ "serial": machine.disk_serial(&machine.disks[0]), "wwn": null });
    let retry = json!({ "recipe_schema_id": SCHEMA_2_ID, "disk_before": former });
    let report = bench.boot_job(&with(more), &retry).await;
    assert!(matches!(report.outcome, InstallOutcome::Succeeded(_)), "{report:?}");
    let body = bench.reports().last().unwrap().body.clone();
    assert_eq!(body["disk"]["more"].as_array().unwrap().len(), 2, "{body}");
    // The entries of a GPT begin at the third sector, 128 bytes each; an unused one has no type.
    let parts = |device: &str| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::open(machine.disk_file(machine.disk(device).unwrap())).unwrap();
        let mut entries = [0; 128 * 8];
        file.read_exact_at(&mut entries, 1024).unwrap();
        entries.chunks(128).filter(|entry| entry[..16].iter().any(|byte| *byte != 0)).count()
    };
    assert_eq!((parts("/dev/vda"), parts("/dev/nvme0n1")), (2, 1));
}
