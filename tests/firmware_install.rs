//! Installations of firmware over sockets, on simulated BMCs of several vendors: what is installed is read back, what was sent
//! arrived once, and what went wrong is named.

use std::time::Duration;

use lab_bmc::{
    Fault, FaultEffect, FaultTrigger, FlashFault, JournalItem, Power, RequestKind, SimBmc, SimBmcConfig,
    firmware_image,
};
use serde_json::{Value, json};
use settings::Settings;
use sha2::{Digest, Sha256};

use crate::firmware::push;
use crate::kit::{BMC_PASSWORD, BMC_USER, Client, Scene, logged_out, silent, soon};

pub(crate) const SERIAL: &str = "FW-1";
pub(crate) const NEW: &str = "99.1";
/// The image is larger than one piece of an upload.
const SIZE: usize = 150_000;

/// A controller that asks a silent BMC again soon: the pauses of its breaker are measured by the real clock.
pub(crate) fn quick(settings: &mut Settings) {
    settings.redfish_rate = 1000;
    settings.redfish_breaker_open_time = Duration::from_millis(50);
}

/// A server with this vendor's BMC, whose flash takes a moment. The host runs.
pub(crate) async fn scene(vendor: &str, change: impl FnOnce(&mut SimBmcConfig)) -> Scene {
    let bmc = SimBmcConfig::vendor(vendor, SERIAL, BMC_USER, BMC_PASSWORD).unwrap();
    let mut bmc = bmc.in_time(0.01);
    bmc.starts_on = true;
    bmc.update.check_time = Duration::from_millis(30);
    bmc.update.flash_time = Duration::from_millis(150);
    bmc.update.restart_time = Duration::from_millis(200);
    change(&mut bmc);
    let mut spec = silent(SERIAL);
    spec.host = lab_machines::HostKind::Idle;
    spec.bmc = Some(Box::new(bmc));
    Scene::start_with(vec![spec], |settings, _| quick(settings)).await
}

pub(crate) fn place(tail: &str) -> String {
    format!("/api/v1/servers/{SERIAL}/{tail}")
}

/// The maker and the model of a simulated server.
pub(crate) fn identity(vendor: &str) -> (String, String) {
    let bmc = SimBmcConfig::vendor(vendor, SERIAL, BMC_USER, BMC_PASSWORD).unwrap();
    (bmc.identity.manufacturer, bmc.identity.model)
}

/// Maker and model of a network adapter, which is not of the maker of its server.
pub(crate) const NIC: (&str, &str) = ("Contoso", "Network adapter");

/// A firmware file of a test.
pub(crate) struct File<'a> {
    component: &'a str,
    version: &'a str,
    image: Vec<u8>,
}

impl<'a> File<'a> {
    pub(crate) fn of(component: &'a str, version: &'a str) -> Self {
        Self::sized(component, version, SIZE)
    }

    pub(crate) fn sized(component: &'a str, version: &'a str, size: usize) -> Self {
        let of = if component == "nic" { NIC.1 } else { component };
        Self { component, version, image: firmware_image(of, version, None, size) }
    }
}

/// Adds files for the server of a vendor, and makes the set `all` of them.
pub(crate) async fn set_of(client: &Client, vendor: &str, files: &[File<'_>]) {
    set_named("all", client, vendor, files).await;
}

/// Adds files for the server of a vendor, and makes a set of them.
pub(crate) async fn set_named(set: &str, client: &Client, vendor: &str, files: &[File<'_>]) {
    let (maker, model) = identity(vendor);
    let mut digests = Vec::new();
    for file in files {
        let (maker, model) = match file.component {
            "nic" => (NIC.0.to_owned(), NIC.1.to_owned()),
            _ => (maker.clone(), model.clone()),
        };
        let name: ::firmware::Vendor = maker.parse().unwrap();
        push(client, &format!("firmware/{name}/{}", file.component), &file.image).await;
        let about = json!({
            "vendor": maker, "models": [model], "component": file.component, "version": file.version,
            "filename": format!("{}_{}.bin", file.component, file.version),
            "sha256": hex::encode(Sha256::digest(&file.image)), "size": file.image.len(),
        });
        let made = client.post("/api/v1/firmware", &about).await.expect(201);
        digests.push(made["digest"].as_str().unwrap().to_owned());
    }
    let set = json!({ "name": set, "labels": {}, "files": digests });
    client.post("/api/v1/firmware-sets", &set).await.expect(201);
}

pub(crate) async fn order(scene: &Scene, parameters: Value) -> String {
    let body = json!({ "kind": "firmwareInstall", "parameters": parameters });
    let created = scene.admin.post(&place("condition"), &body).await.expect(200);
    created["id"].as_str().unwrap().to_owned()
}

/// Installs the set `all` and returns the job at its end.
pub(crate) async fn installed(scene: &Scene) -> Value {
    let id = order(scene, json!({ "firmware_set": "all" })).await;
    scene.complete_skipping(&id).await
}

/// Installs the set `all`, also where a version has no order to the installed one, and returns the job at its end.
pub(crate) async fn installed_anyway(scene: &Scene) -> Value {
    let id = order(scene, json!({ "firmware_set": "all", "allow_downgrade": true })).await;
    scene.complete_skipping(&id).await
}

pub(crate) async fn log(scene: &Scene, job: &Value) -> String {
    scene.admin.event_log(job["job_id"].as_str().unwrap()).await
}

/// The installed version of the member of the inventory with this component.
pub(crate) fn version(bmc: &SimBmc, component: &str) -> String {
    let words: &[&str] = match component {
        "bmc" => &["bmc", "25227", "1"],
        _ => &["bios", "159", "2", "uefi"],
    };
    let found = bmc.installed().into_iter().find(|(id, _)| {
        let id = id.to_lowercase();
        words.iter().any(|word| id == *word || (word.len() > 1 && id.contains(word)))
    });
    found.map(|(_, version)| version).unwrap_or_default()
}

#[track_caller]
pub(crate) fn failed(job: &Value, class: &str, said: &[&str], log: &str) {
    assert_eq!(
        (job["outcome"].as_str(), job["failure"]["class"].as_str()),
        (Some("failed"), Some(class)),
        "{job:#}\n{log}"
    );
    let summary = job["failure"]["summary"].as_str().unwrap();
    for said in said {
        assert!(summary.contains(said), "{said} is not in {summary}");
    }
    assert!(job["failure"]["next_action"].as_str().is_some_and(|next| !next.is_empty()));
}

/// BMC and BIOS of a vendor's server are installed; the BMC restarts in between.
pub(crate) async fn installs_both(vendor: &str) {
    let scene = scene(vendor, |_| {}).await;
    set_of(&scene.admin, vendor, &[File::of("bios", NEW), File::of("bmc", NEW)]).await;
    let job = installed_anyway(&scene).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    let bmc = scene.bmc(SERIAL);
    assert_eq!((version(bmc, "bmc").as_str(), version(bmc, "bios").as_str()), (NEW, NEW), "{log}");
    let end = logged_out(bmc).await;
    assert_eq!((end.images, end.updates_started), (2, 2), "every image arrived once\n{log}");
    let order: Vec<String> = bmc.updates().into_iter().map(|update| update.item).collect();
    assert!(!order[0].to_lowercase().contains("bios") && order[0] != "2", "the BMC is first: {order:?}");
    assert_eq!(end.power, Power::On, "{log}");
    let shown = scene.admin.get(&place("condition?kind=firmwareInstall")).await.expect(200);
    assert_eq!(shown["state"], "succeeded");
    assert!(shown["status"]["result"]["summary"].as_str().unwrap().contains("bios 99.1"), "{shown:#}");
    let pins = scene.admin.get("/api/v1/registry").await.expect(200)["pins"].clone();
    assert_eq!(pins, 2, "the set holds its files, the run no longer does: {pins}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bmc_and_bios_of_a_dell_server_are_installed() {
    installs_both("dell-idrac9-6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bmc_and_bios_of_an_hpe_server_are_installed() {
    installs_both("hpe-ilo6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bmc_and_bios_of_a_supermicro_server_are_installed() {
    installs_both("smc-x12").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bmc_and_bios_of_an_openbmc_server_are_installed() {
    installs_both("openbmc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bmc_and_bios_of_a_lenovo_server_are_installed() {
    installs_both("lenovo-xcc").await;
}

/// Orders the installation of one image with this fault of the update, and waits for its end.
async fn with_fault(component: &'static str, fault: FlashFault) -> (Scene, Value, String) {
    let scene = scene("generic", |_| {}).await;
    set_of(&scene.admin, "generic", &[File::of(component, NEW)]).await;
    scene.bmc(SERIAL).inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(fault)));
    let job = installed(&scene).await;
    let log = log(&scene, &job).await;
    assert_eq!(scene.bmc(SERIAL).snapshot().images, 1, "{log}");
    (scene, job, log)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_says_done_and_keeps_the_old_version_is_a_failure_that_names_both() {
    let (scene, job, log) = with_fault("bios", FlashFault::Lie).await;
    failed(&job, "version_unchanged", &["bios 99.1 is not installed", "v1.45", "the BMC"], &log);
    let shown = scene.admin.get(&place("condition?kind=firmwareInstall")).await.expect(200);
    assert_eq!(shown["state"], "failed");
    scene.end().await;
}

/// A BMC that shows the state of its update service in place of a task, and one with jobs of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_with_an_update_has_its_class_on_bmcs_of_other_vendors_too() {
    let message = "the image is not signed".to_owned();
    for vendor in ["hpe-ilo6", "lenovo-xcc"] {
        for (fault, class) in [
            (FlashFault::Lie, "version_unchanged"),
            (FlashFault::Hang, "update_stuck"),
            (FlashFault::Fail { message: message.clone() }, "update_failed"),
        ] {
            let scene = scene(vendor, |_| {}).await;
            set_of(&scene.admin, vendor, &[File::of("bios", NEW)]).await;
            scene.bmc(SERIAL).inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(fault)));
            let job = installed_anyway(&scene).await;
            let log = log(&scene, &job).await;
            assert_eq!(job["failure"]["class"], class, "{vendor}: {log}");
            assert_eq!(scene.bmc(SERIAL).snapshot().images, 1, "{vendor} {class}: {log}");
            scene.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_stays_at_99_percent_is_let_alone_and_ends_as_stuck() {
    let (scene, job, log) = with_fault("bios", FlashFault::Hang).await;
    failed(&job, "update_stuck", &["99 %", "60 min"], &log);
    assert_eq!(scene.bmc(SERIAL).snapshot().power, Power::On, "{log}");
    assert!(log.contains("firmware.left-running"), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_decides_when_the_task_vanishes() {
    let (scene, job, log) = with_fault("bios", FlashFault::LoseTask).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert_eq!(version(scene.bmc(SERIAL), "bios"), NEW, "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_fails_is_shown_with_the_words_of_the_bmc() {
    let message = "the image is not signed".to_owned();
    let (scene, job, log) = with_fault("bios", FlashFault::Fail { message }).await;
    failed(&job, "update_failed", &["the image is not signed", "v1.45"], &log);
    scene.end().await;
}

/// How often the image was sent, whether or not the BMC took it.
fn uploads(bmc: &SimBmc) -> usize {
    let update =
        |what: &JournalItem| matches!(what, JournalItem::Request { operation: RequestKind::Update, .. });
    bmc.mutations().into_iter().filter(|entry| update(&entry.what)).count()
}

/// The BMC lists no task, whatever it does.
fn no_tasks() -> Fault {
    let tasks = FaultTrigger::Path { method: "GET".to_owned(), glob: "*/TaskService/Tasks".to_owned() };
    let body = json!({ "@odata.id": "/redfish/v1/TaskService/Tasks", "Members": [] }).to_string();
    Fault::always(tasks, FaultEffect::Raw { status: 200, content_type: "application/json".to_owned(), body })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_without_a_clear_response_is_looked_for_and_its_image_arrives_once() {
    for (component, hidden) in [("bios", false), ("bmc", true)] {
        let scene = scene("generic", |_| {}).await;
        set_of(&scene.admin, "generic", &[File::of(component, NEW)]).await;
        let bmc = scene.bmc(SERIAL);
        bmc.inject(Fault::once(FaultTrigger::Update, FaultEffect::ApplyButDrop));
        if hidden {
            bmc.inject(no_tasks());
        }
        let job = installed_anyway(&scene).await;
        let log = log(&scene, &job).await;
        assert_eq!(job["outcome"], "succeeded", "{log}");
        assert!(
            log.contains("firmware.upload-unclear") && log.contains("as the BMC shows afterwards"),
            "{log}"
        );
        assert_eq!(
            (bmc.snapshot().images, uploads(bmc), version(bmc, component).as_str()),
            (1, 1, NEW),
            "{log}"
        );
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_may_have_arrived_and_is_never_shown_is_not_sent_again() {
    for (effect, images) in [(FaultEffect::ApplyButDrop, 1), (FaultEffect::Drop, 0)] {
        // An hour of looks at the BMC does not push the upload out of its journal.
        let scene = scene("generic", |bmc| bmc.journal_capacity = 16_384).await;
        set_of(&scene.admin, "generic", &[File::of("bios", NEW)]).await;
        let bmc = scene.bmc(SERIAL);
        bmc.inject(Fault::once(FaultTrigger::Update, effect));
        bmc.inject(no_tasks());
        let began = scene.now();
        let job = installed(&scene).await;
        let log = log(&scene, &job).await;
        failed(&job, "upload_unknown", &["image of bios 99.1", "60 min", "not sent a second time"], &log);
        let next = job["failure"]["next_action"].as_str().unwrap();
        assert!(next.contains("order the installation again"), "{next}");
        assert!(scene.now().since(began) >= Duration::from_secs(3600), "the BMC is looked at until then");
        assert_eq!((bmc.snapshot().images, uploads(bmc), bmc.power_ons()), (images, 1, 0), "{log}");
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_bytes_of_a_file_never_reach_the_bmc() {
    let scene = scene("generic", |_| {}).await;
    let file = File::of("bios", NEW);
    let hex = hex::encode(Sha256::digest(&file.image));
    set_of(&scene.admin, "generic", &[file]).await;
    damage(&scene.folder.path().join("data"), &hex);
    let job = installed(&scene).await;
    let log = log(&scene, &job).await;
    failed(&job, "firmware_file", &["nothing was sent"], &log);
    let end = scene.bmc(SERIAL).snapshot();
    assert_eq!((end.images, end.updates_started, end.uploads_cut), (0, 0, 0), "{log}");
    scene.end().await;
}

/// Changes one byte of a stored file, wherever below the folder it is.
fn damage(folder: &std::path::Path, name: &str) {
    let mut folders = vec![folder.to_owned()];
    let mut changed = 0;
    while let Some(folder) = folders.pop() {
        // All names first: a folder that is read while it changes shows a new file again.
        let entries: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().collect();
        for entry in entries {
            let path = entry.path();
            // A link is not followed: the layout of a repository, which appears some time after a push, has a link to all blobs, and
            // a byte that is changed twice is as it was.
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|file| file == name) {
                let mut bytes = std::fs::read(&path).unwrap();
                if bytes.len() < SIZE {
                    // A link or a note of the registry with the name of the blob.
                    continue;
                }
                bytes[1000] ^= 1;
                std::fs::remove_file(&path).unwrap();
                std::fs::write(&path, bytes).unwrap();
                changed += 1;
            }
        }
    }
    // The registry may keep a blob under several names.
    assert!(changed > 0, "no stored file has this name");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_for_another_model_is_refused_by_the_plan_or_by_the_bmc() {
    let scene = scene("generic", |_| {}).await;
    let (maker, _) = identity("generic");
    let image = firmware_image("bios", NEW, None, SIZE);
    let name: ::firmware::Vendor = maker.parse().unwrap();
    push(&scene.admin, &format!("firmware/{name}/bios"), &image).await;
    let about = json!({
        "vendor": maker, "models": ["Another model"], "component": "bios", "version": NEW, "filename": "x.bin",
        "sha256": hex::encode(Sha256::digest(&image)), "size": image.len(),
    });
    let made = scene.admin.post("/api/v1/firmware", &about).await.expect(201);
    let set = json!({ "name": "other", "labels": {}, "files": [made["digest"]] });
    scene.admin.post("/api/v1/firmware-sets", &set).await.expect(201);
    let id = order(&scene, json!({ "firmware_set": "other" })).await;
    let job = scene.complete_skipping(&id).await;
    let said = log(&scene, &job).await;
    failed(&job, "plan_refused", &["other models", "nothing was changed"], &said);

    let mut wrong = File::of("bios", NEW);
    wrong.image = firmware_image("bios", NEW, Some("another model"), SIZE);
    set_of(&scene.admin, "generic", &[wrong]).await;
    let job = installed(&scene).await;
    let log = log(&scene, &job).await;
    failed(&job, "image_refused", &["another model"], &log);
    assert_eq!(scene.bmc(SERIAL).snapshot().updates_started, 0, "{log}");
    assert_eq!(version(scene.bmc(SERIAL), "bios"), "P79 v1.45");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_the_version_receives_nothing() {
    let scene = scene("generic", |_| {}).await;
    set_of(&scene.admin, "generic", &[File::of("bios", "1.45")]).await;
    let job = installed(&scene).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert!(log.contains("nothing to install"), "{log}");
    assert_eq!(scene.bmc(SERIAL).mutations(), [], "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_version_is_refused_unless_the_order_allows_it() {
    let scene = scene("generic", |_| {}).await;
    set_of(&scene.admin, "generic", &[File::of("bios", "0.9")]).await;
    let job = installed(&scene).await;
    let said = log(&scene, &job).await;
    failed(&job, "plan_refused", &["--allow-downgrade", "P79 v1.45"], &said);
    assert_eq!(scene.bmc(SERIAL).mutations(), [], "{said}");
    let id = order(&scene, json!({ "firmware_set": "all", "allow_downgrade": true })).await;
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert_eq!(version(scene.bmc(SERIAL), "bios"), "0.9");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_while_the_bmc_flashes_is_accepted_and_lets_the_update_finish() {
    let scene = scene("generic", |bmc| bmc.update.flash_time = Duration::from_secs(3)).await;
    set_of(&scene.admin, "generic", &[File::of("bmc", NEW), File::of("bios", NEW)]).await;
    // The version of this BMC has no order to the new one.
    let id = order(&scene, json!({ "firmware_set": "all", "allow_downgrade": true })).await;
    scene.wait_skipping(&id, "the flash", |job| job["wait"]["reason"] == "flashing").await;
    let why = scene.admin.explain(&id).await;
    assert!(why["summary"].as_str().unwrap().contains("has been flashing bmc 99.1"), "{why}");
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.wait_skipping(&id, "the end of the flash", |job| waits_for_the_end(job, "it is let finish")).await;
    let bmc = scene.bmc(SERIAL).clone();
    soon("the update", bmc.wait_for(|_| bmc.updates()[0].applied)).await;
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "cancelled", "{log}");
    assert_eq!((version(&bmc, "bmc").as_str(), bmc.snapshot().images), (NEW, 1), "{log}");
    scene.end().await;
}

/// Whether a job waits for the end of a flash, with these words. The first of these waits only records the update.
fn waits_for_the_end(job: &Value, words: &str) -> bool {
    let wait = &job["wait"];
    wait["reason"] == "flash_ends" && wait["detail"].as_str().is_some_and(|detail| detail.contains(words))
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_cancel_the_host_stays_off_until_an_update_whose_task_vanished_is_installed() {
    let scene = scene("openbmc", |bmc| bmc.update.flash_time = Duration::from_secs(3)).await;
    set_of(&scene.admin, "openbmc", &[File::of("bios", NEW)]).await;
    let bmc = scene.bmc(SERIAL).clone();
    bmc.inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(FlashFault::LoseTask)));
    let id = order(&scene, json!({ "firmware_set": "all", "allow_downgrade": true })).await;
    scene.wait_skipping(&id, "the flash", |job| job["wait"]["reason"] == "flashing").await;
    assert_eq!(bmc.snapshot().power, Power::Off);
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.wait_skipping(&id, "the end of the flash", |job| waits_for_the_end(job, "shows no task")).await;
    assert_eq!((bmc.snapshot().power, bmc.updates()[0].applied), (Power::Off, false));
    soon("the update", bmc.wait_for(|_| bmc.updates()[0].applied)).await;
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "cancelled", "{log}");
    assert_eq!((version(&bmc, "bios").as_str(), bmc.snapshot().power), (NEW, Power::On), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_asks_for_its_restart_is_restarted_once_although_its_task_asks_for_ever() {
    let scene = scene("generic", |bmc| {
        bmc.update.asks_for_bmc_restart = true;
        bmc.update.keeps_tasks = true;
    })
    .await;
    set_of(&scene.admin, "generic", &[File::of("bmc", NEW)]).await;
    let job = installed_anyway(&scene).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    let bmc = scene.bmc(SERIAL);
    assert_eq!(
        (version(bmc, "bmc").as_str(), bmc.manager_resets(), bmc.snapshot().images),
        (NEW, 1, 1),
        "{log}"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_bmc_that_was_refused_for_a_moment_is_requested_again() {
    let scene = scene("generic", |bmc| bmc.update.asks_for_bmc_restart = true).await;
    set_of(&scene.admin, "generic", &[File::of("bmc", NEW)]).await;
    let bmc = scene.bmc(SERIAL).clone();
    let reset =
        FaultTrigger::Request { method: "POST".to_owned(), path_ends_with: "Manager.Reset".to_owned() };
    let busy = FaultEffect::Status {
        status: 503,
        message_id: "Base.1.18.ServiceTemporarilyUnavailable".to_owned(),
        message: "The service is temporarily unavailable.".to_owned(),
    };
    bmc.inject(Fault::once(reset, busy));
    let job = installed_anyway(&scene).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert_eq!((version(&bmc, "bmc").as_str(), bmc.manager_resets()), (NEW, 1), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_restart_waits_for_the_operator_and_a_window_for_its_time() {
    let first = scene("generic", |_| {}).await;
    set_of(&first.admin, "generic", &[File::of("bios", NEW)]).await;
    let id = order(&first, json!({ "firmware_set": "all", "restart": "forbidden" })).await;
    first.wait_skipping(&id, "the restart", |job| job["wait"]["reason"] == "restart_forbidden").await;
    let why = first.admin.explain(&id).await;
    assert!(why["summary"].as_str().unwrap().contains("which the order forbids"), "{why}");
    first.skip(Duration::from_secs(300));
    assert_eq!(first.bmc(SERIAL).power_ons(), 0);
    assert!(first.bmc(SERIAL).warm_reset(), "the operator restarts the host");
    let job = first.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{job:#}");
    assert_eq!((version(first.bmc(SERIAL), "bios").as_str(), first.bmc(SERIAL).power_ons()), (NEW, 0));
    first.end().await;

    let second = scene("generic", |_| {}).await;
    set_of(&second.admin, "generic", &[File::of("bios", NEW)]).await;
    // Longer than an installation without a window may take, and than an operator is waited for.
    let from = second.now().plus(Duration::from_secs(9 * 24 * 3600));
    let until = from.plus(Duration::from_secs(3600));
    let id =
        order(&second, json!({ "firmware_set": "all", "restart_from": from, "restart_until": until })).await;
    second.wait_skipping(&id, "the window", |job| job["wait"]["reason"] == "restart_window").await;
    assert_eq!(second.bmc(SERIAL).power_ons(), 0);
    second.skip(from.since(second.now()).saturating_sub(Duration::from_secs(600)));
    let job = second.complete_skipping(&id).await;
    assert_eq!((&job["outcome"], second.bmc(SERIAL).power_ons()), (&json!("succeeded"), 1), "{job:#}");
    assert!(second.now() >= from, "the host was restarted in the window");
    second.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_has_passed_or_begins_after_the_deadline_is_refused_before_anything_is_sent() {
    let scene = scene("generic", |_| {}).await;
    set_of(&scene.admin, "generic", &[File::of("bios", NEW)]).await;
    let (hour, now) = (Duration::from_secs(3600), scene.now());
    let passed = json!({ "firmware_set": "all", "restart_until": now });
    let late = json!({ "firmware_set": "all", "restart_from": now.plus(hour * 2) });
    let bodies = [
        json!({ "kind": "firmwareInstall", "parameters": passed }),
        json!({ "kind": "firmwareInstall", "parameters": late, "deadline": now.plus(hour) }),
        json!({ "kind": "biosApply", "parameters": { "boot_order": ["Boot0001"], "restart_until": now } }),
    ];
    for body in bodies {
        scene.admin.post(&place("condition"), &body).await.refused(400, "validation_error");
    }
    assert_eq!(scene.bmc(SERIAL).mutations(), []);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_off_is_on_for_the_installation_and_off_afterwards() {
    let scene = scene("generic", |bmc| bmc.starts_on = false).await;
    set_of(&scene.admin, "generic", &[File::of("bios", NEW)]).await;
    let job = installed(&scene).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    let bmc = scene.bmc(SERIAL);
    assert_eq!((bmc.snapshot().power, version(bmc, "bios").as_str()), (Power::Off, NEW), "{log}");
    assert!(bmc.power_ons() >= 1, "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_is_shown_before_anything_runs_and_the_fitting_set_is_found() {
    let scene = scene("generic", |_| {}).await;
    set_of(
        &scene.admin,
        "generic",
        &[File::of("bios", NEW), File::of("bmc", "1.0"), File::of("cpld", "3.0")],
    )
    .await;
    let body = json!({ "kind": "FirmwareInstall", "firmware-set-id": "all" });
    let dry = || async { scene.admin.post(&place("condition?dry_run=true"), &body).await.expect(200) };
    let preview = dry().await;
    assert!(preview["plan_missing"].as_str().unwrap().contains("--refresh"), "{preview:#}");
    let nothing = scene.admin.post(&place("condition"), &json!({ "kind": "firmwareInstall" })).await;
    nothing.refused(400, "validation_error");
    let read = scene.admin.post(&place("condition"), &json!({ "kind": "inventory" })).await.expect(200);
    scene.complete_skipping(read["id"].as_str().unwrap()).await;
    let preview = dry().await;
    let plan: Vec<(&str, &str)> = preview["plan"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["component"].as_str().unwrap(), item["decision"].as_str().unwrap()))
        .collect();
    assert_eq!(plan, [("bmc", "refuse"), ("bios", "install"), ("cpld", "skip")], "{preview:#}");
    let bios = &preview["plan"][1];
    assert!(bios["now"].as_str().unwrap().contains("v1.45") && bios["reason"].is_string(), "{bios:#}");
    assert_eq!(
        (&bios["then"], &bios["size"], &bios["restart"]),
        (&json!(NEW), &json!(SIZE), &json!("host")),
        "{bios:#}"
    );
    assert_eq!(scene.bmc(SERIAL).mutations(), []);
    let fitting = json!({ "kind": "firmwareInstall", "parameters": { "allow_downgrade": true } });
    let found = scene.admin.post(&place("condition?dry_run=true"), &fitting).await.expect(200);
    assert_eq!(found["parameters"]["firmware_set"], "all", "{found:#}");
    let unknown = json!({ "kind": "firmwareInstall", "parameters": { "firmware_set": "none" } });
    scene.admin.post(&place("condition"), &unknown).await.refused(404, "unknown_firmware_set");
    let own = json!({ "kind": "firmwareInstall", "parameters": { "firmware_set": "all", "files": [{}] } });
    scene.admin.post(&place("condition"), &own).await.refused(400, "validation_error");
    scene.end().await;
}

/// A server by HTTPS whose BMC ends its own update with another certificate.
pub(crate) async fn scene_with_another_certificate(change: impl FnOnce(&mut SimBmcConfig)) -> Scene {
    let mut scene = Scene::bare(Vec::new(), |settings, _| quick(settings)).await;
    let disks = scene.folder.path().join("secure");
    std::fs::create_dir_all(&disks).unwrap();
    let mut bmc = SimBmcConfig::vendor("generic", SERIAL, BMC_USER, BMC_PASSWORD).unwrap().in_time(0.01);
    bmc.starts_on = true;
    bmc.update.check_time = Duration::from_millis(30);
    bmc.update.flash_time = Duration::from_millis(150);
    bmc.update.restart_time = Duration::from_millis(200);
    let flash = FaultEffect::Flash(FlashFault::NewCertificate);
    bmc.faults.push(Fault::once(FaultTrigger::Update, flash));
    change(&mut bmc);
    let spec = lab_machines::ServerSpec {
        bmc: Some(Box::new(bmc)),
        host: lab_machines::HostKind::Idle,
        ..silent(SERIAL)
    };
    let password = secrecy::SecretString::from(BMC_PASSWORD);
    let farm = lab_machines::FarmConfig {
        https: true,
        ..lab_machines::FarmConfig::new(vec![spec], BMC_USER, password, disks)
    };
    let farm = lab_machines::Farm::start(farm).await.unwrap();
    std::mem::replace(&mut scene.farm, farm).shutdown().await;
    scene.admin.register(scene.server(SERIAL)).await;
    set_of(&scene.admin, "generic", &[File::of("bmc", NEW)]).await;
    scene
}

/// The operator accepts the certificate that the hold of a job names, and resumes the job.
pub(crate) async fn accept_certificate(scene: &Scene, id: &str) {
    let held = scene.wait_skipping(id, "the hold", |job| job["hold"].is_object()).await;
    assert_eq!(held["hold"]["class"], "certificate_changed", "{held:#}");
    let detail = held["hold"]["detail"].as_str().unwrap();
    let shown = detail.rsplit_once("--tls-fingerprint ").unwrap().1.split(' ').next().unwrap().to_owned();
    let pin = json!({ "tls_fingerprint": shown, "bmc_password": BMC_PASSWORD });
    scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &pin).await.expect(200);
    scene.admin.post(&format!("/api/v1/jobs/{id}/resume"), &json!({})).await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_returns_from_its_update_with_another_certificate_is_held_until_an_operator_accepts_it() {
    let scene = scene_with_another_certificate(|_| {}).await;
    let id = order(&scene, json!({ "firmware_set": "all", "allow_downgrade": true })).await;
    accept_certificate(&scene, &id).await;
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert_eq!((version(scene.bmc(SERIAL), "bmc").as_str(), scene.bmc(SERIAL).snapshot().images), (NEW, 1));
    scene.end().await;
}
