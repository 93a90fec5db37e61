//! Changes of BIOS settings over sockets, on simulated BMCs of several vendors: what is in force is read back, what was sent
//! arrived once, and what went wrong is named.

use std::time::Duration;

use lab_bmc::{
    Fault, FaultEffect, FaultTrigger, Graceful, JournalItem, Power, RequestKind, SimBmc, SimBmcConfig,
    StateChange,
};
use serde_json::{Value, json};
use settings::Settings;

use crate::kit::{BMC_PASSWORD, BMC_USER, Scene, logged_out, silent};

const SERIAL: &str = "BIOS-1";

/// A controller that asks a silent BMC again soon: the pauses of its breaker are measured by the real clock.
fn quick(settings: &mut Settings) {
    settings.redfish_rate = 1000;
    settings.redfish_breaker_open_time = Duration::from_millis(50);
}

/// A server with this vendor's BMC. The host runs.
async fn scene(vendor: &str, change: impl FnOnce(&mut SimBmcConfig)) -> Scene {
    let bmc = SimBmcConfig::vendor(vendor, SERIAL, BMC_USER, BMC_PASSWORD).unwrap();
    let mut bmc = bmc.in_time(0.01);
    bmc.starts_on = true;
    bmc.power.graceful = Graceful::After(Duration::from_millis(20));
    change(&mut bmc);
    let mut spec = silent(SERIAL);
    spec.host = lab_machines::HostKind::Idle;
    spec.bmc = Some(Box::new(bmc));
    Scene::start_with(vec![spec], |settings, _| quick(settings)).await
}

fn place(tail: &str) -> String {
    format!("/api/v1/servers/{SERIAL}/{tail}")
}

async fn order(scene: &Scene, parameters: Value) -> String {
    let body = json!({ "kind": "biosApply", "parameters": parameters });
    let created = scene.admin.post(&place("condition"), &body).await.expect(200);
    created["id"].as_str().unwrap().to_owned()
}

/// Orders settings and returns the job at its end, with its events.
async fn applied(scene: &Scene, parameters: Value) -> (Value, String) {
    let id = order(scene, parameters).await;
    let job = scene.complete_skipping(&id).await;
    let log = scene.admin.event_log(&id).await;
    (job, log)
}

#[track_caller]
fn failed(job: &Value, class: &str, said: &[&str], log: &str) {
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

/// The requests that would have changed anything.
fn changes(bmc: &SimBmc) -> usize {
    bmc.mutations().len()
}

fn resets(bmc: &SimBmc) -> usize {
    let is_reset = |item: &JournalItem| matches!(item, JournalItem::Change(StateChange::Reset(_)));
    bmc.journal().iter().filter(|entry| is_reset(&entry.what)).count()
}

/// One attribute of a vendor's server is changed: written once, in force after one restart, nothing sent by a second order.
async fn sets(vendor: &str, name: &str, value: &str) {
    let scene = scene(vendor, |_| {}).await;
    let bmc = scene.bmc(SERIAL).clone();
    let wanted = json!({ "attributes": { name: value } });
    let (job, log) = applied(&scene, wanted.clone()).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    let shown = bmc.bios_attributes()[name].clone();
    let shown = shown.as_str().map_or_else(|| shown.to_string(), str::to_owned);
    assert_eq!(shown, value, "{log}");
    let end = logged_out(&bmc).await;
    assert_eq!((end.bios_writes, end.power_ons, end.power), (1, 1, Power::On), "{log}");
    let condition = scene.admin.get(&place("condition?kind=biosApply")).await.expect(200);
    assert_eq!(condition["state"], "succeeded");
    let summary = condition["status"]["result"]["summary"].as_str().unwrap();
    assert!(summary.contains(name) && summary.contains(value), "{summary}");
    let sent = changes(&bmc);
    let (again, log) = applied(&scene, wanted).await;
    assert_eq!((again["outcome"].as_str(), changes(&bmc)), (Some("succeeded"), sent), "{log}");
    assert!(log.contains("nothing to change"), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_goes_off_after_a_cancel_of_its_restart_is_powered_on_again() {
    let scene = scene("hpe-ilo6", |bmc| bmc.power.graceful = Graceful::After(Duration::from_secs(4))).await;
    let bmc = scene.bmc(SERIAL).clone();
    let id = order(&scene, json!({ "attributes": { "WorkloadProfile": "Custom" } })).await;
    scene.wait_skipping(&id, "the shutdown", |job| job["wait"]["reason"] == "shutdown").await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    let pending = "\"shutdown_pending\"";
    let place = format!("/api/v1/jobs/{id}");
    scene.admin.until(&place, "the end of the shutdown", |job| job.text().contains(pending)).await;
    bmc.wait_for(|bmc| bmc.power == Power::Off).await;
    let job = scene.complete_skipping(&id).await;
    let log = scene.admin.event_log(&id).await;
    assert_eq!(job["outcome"], "cancelled", "{log}");
    assert_eq!((bmc.snapshot().power, bmc.power_ons()), (Power::On, 1), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_in_use_has_ten_minutes_to_shut_down() {
    let scene = scene("hpe-ilo6", |bmc| bmc.power.graceful = Graceful::IgnoredByHost).await;
    let id = order(&scene, json!({ "attributes": { "WorkloadProfile": "Custom" } })).await;
    scene.wait_skipping(&id, "the shutdown", |job| job["wait"]["reason"] == "shutdown").await;
    let before = scene.now();
    let job = scene.complete_skipping(&id).await;
    let log = scene.admin.event_log(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert!(scene.now().since(before) >= Duration::from_secs(590), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dell_server_gets_a_number_by_a_job_that_ends_with_the_restart() {
    sets("dell-idrac9-6", "AcPwrRcvryUserDelay", "240").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hpe_server_shows_all_values_as_pending_and_gets_one() {
    sets("hpe-ilo6", "WorkloadProfile", "Custom").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lenovo_server_gets_a_value_by_its_pending_object() {
    sets("lenovo-xcc", "Processors_HyperThreading", "Disable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supermicro_server_shows_nothing_before_the_restart_and_gets_a_value() {
    sets("smc-x12", "QuietBoot#002E", "false").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ami_server_needs_the_etag_and_gets_a_value() {
    sets("ami-megarac", "SMT", "SMTDisable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_openbmc_server_shows_no_attributes_and_nothing_is_sent() {
    let scene = scene("openbmc", |_| {}).await;
    let (job, log) = applied(&scene, json!({ "attributes": { "BootMode": "Uefi" } })).await;
    failed(&job, "settings_refused", &["BootMode: the BMC shows no attributes of the BIOS"], &log);
    assert_eq!(changes(scene.bmc(SERIAL)), 0, "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_and_boot_order_are_written_once_each_and_verified_together() {
    let scene = scene("dell-idrac10", |_| {}).await;
    let bmc = scene.bmc(SERIAL).clone();
    let parameters = json!({ "attributes": { "LogicalProc": "Disabled" }, "boot_order": ["Boot0001"] });
    let (job, log) = applied(&scene, parameters).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert_eq!(bmc.bios_attributes()["LogicalProc"], "Disabled");
    assert_eq!(bmc.boot_order(), ["Boot0001", "Boot0003"], "the others follow\n{log}");
    assert_eq!((bmc.bios_writes(), bmc.power_ons()), (2, 1), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_order_that_is_in_force_at_once_restarts_nothing() {
    let scene = scene("generic", |_| {}).await;
    let bmc = scene.bmc(SERIAL).clone();
    let (job, log) = applied(&scene, json!({ "boot_order": ["Boot0003", "Boot0001"] })).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert_eq!(bmc.boot_order(), ["Boot0003", "Boot0001", "Boot0002"]);
    assert_eq!((bmc.bios_writes(), resets(&bmc)), (1, 0), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_when_one_of_several_settings_is_refused() {
    let scene = scene("generic", |_| {}).await;
    let attributes = json!({
        "BootMode": "Legacy", "FanOffset": 12, "Revision": "P80", "Trubo": false, "SetupLock": "hunter2",
    });
    let parameters = json!({ "attributes": attributes, "boot_order": ["Boot0009"] });
    let (job, log) = applied(&scene, parameters).await;
    let said = [
        "FanOffset: 12 is not a number from 0 to 9",
        "Revision: the attribute is read-only",
        "Trubo: the BIOS has no such attribute; the nearest name is Turbo",
        "SetupLock: it is a password",
        "there is no boot option Boot0009; the options are Boot0001, Boot0002, Boot0003",
    ];
    failed(&job, "settings_refused", &said, &log);
    assert_eq!(changes(scene.bmc(SERIAL)), 0, "{log}");
    let planned = log.contains("hunter2") || job["failure"].to_string().contains("hunter2");
    assert!(!planned, "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_without_settings_or_with_a_password_is_not_accepted() {
    let scene = scene("generic", |_| {}).await;
    for parameters in [json!({}), json!({ "attributes": { "AdminPassword": "hunter2" } })] {
        let body = json!({ "kind": "biosApply", "parameters": parameters });
        let refused = scene.admin.post(&place("condition"), &body).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(!refused.text().contains("hunter2"), "{}", refused.text());
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_registry_the_shown_types_decide_and_the_bmc_judges_the_value() {
    let scene = scene("generic", |bmc| bmc.bios.registry = None).await;
    let (job, log) = applied(&scene, json!({ "attributes": { "FanOffset": "5", "Turbo": "false" } })).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert_eq!(scene.bmc(SERIAL).bios_attributes()["FanOffset"], 5);
    let (job, log) = applied(&scene, json!({ "attributes": { "BootMode": "Csm" } })).await;
    failed(&job, "settings_refused", &["the BMC refused the settings of the BIOS"], &log);
    assert_eq!(resets(scene.bmc(SERIAL)), 2, "one restart, of the first order\n{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_accepts_a_value_and_keeps_the_old_one_is_a_failure_that_names_both() {
    let scene = scene("generic", |bmc| bmc.bios.keeps = vec!["BootMode".to_owned()]).await;
    let (job, log) = applied(&scene, json!({ "attributes": { "BootMode": "Legacy", "FanOffset": 4 } })).await;
    failed(&job, "settings_unchanged", &["BootMode is Uefi, not Legacy"], &log);
    assert!(!job["failure"]["summary"].as_str().unwrap().contains("FanOffset"), "{job:#}");
    let end = scene.bmc(SERIAL).snapshot();
    assert_eq!((end.bios_writes, end.power_ons, end.power), (1, 1, Power::On), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_accepts_a_write_and_stores_nothing_does_not_restart_the_host() {
    let scene = scene("generic", |_| {}).await;
    let bmc = scene.bmc(SERIAL).clone();
    let write = FaultTrigger::Path { method: "PATCH".to_owned(), glob: "*/Bios/*".to_owned() };
    bmc.inject(Fault::always(write, FaultEffect::AcceptButIgnore));
    let (job, log) = applied(&scene, json!({ "attributes": { "BootMode": "Legacy" } })).await;
    failed(&job, "settings_not_stored", &["BootMode", "neither as pending nor as in force"], &log);
    let sent = bmc.mutations().iter().filter(|entry| is_write(&entry.what)).count();
    assert_eq!((sent, resets(&bmc)), (1, 0), "{log}");
    scene.end().await;
}

fn is_write(item: &JournalItem) -> bool {
    matches!(item, JournalItem::Request { operation: RequestKind::PatchBios, .. })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_a_response_is_looked_for_and_not_sent_again() {
    let scene = scene("generic", |_| {}).await;
    let bmc = scene.bmc(SERIAL).clone();
    let write = FaultTrigger::Path { method: "PATCH".to_owned(), glob: "*/Bios/*".to_owned() };
    bmc.inject(Fault::once(write, FaultEffect::ApplyButDrop));
    let (job, log) = applied(&scene, json!({ "attributes": { "BootMode": "Legacy" } })).await;
    assert_eq!((job["outcome"].as_str(), bmc.bios_writes()), (Some("succeeded"), 1), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_wait_for_a_restart_that_the_order_forbids_and_an_operator_makes() {
    let scene = scene("generic", |_| {}).await;
    let bmc = scene.bmc(SERIAL).clone();
    let parameters = json!({ "attributes": { "BootMode": "Legacy" }, "restart": "forbidden" });
    let id = order(&scene, parameters).await;
    scene.wait_skipping(&id, "the wait", |job| job["wait"]["reason"] == "restart_forbidden").await;
    let why = scene.admin.get(&format!("/api/v1/jobs/{id}/explain")).await.expect(200);
    assert!(
        why["summary"].as_str().unwrap().contains("BootMode Legacy comes into force after a restart"),
        "{why:#}"
    );
    assert_eq!((bmc.bios_writes(), resets(&bmc)), (1, 0));
    assert!(bmc.warm_reset(), "the operator restarts the host");
    let job = scene.complete_skipping(&id).await;
    let log = scene.admin.event_log(&id).await;
    assert_eq!(
        (job["outcome"].as_str(), bmc.bios_writes(), resets(&bmc)),
        (Some("succeeded"), 1, 0),
        "{log}"
    );
    scene.end().await;
}

/// docs/troubleshooting.md says so: the change has the server until the host has restarted.
#[tokio::test(flavor = "multi_thread")]
async fn the_power_cycle_while_a_restart_is_forbidden_is_refused() {
    let scene = scene("generic", |_| {}).await;
    let parameters = json!({ "attributes": { "BootMode": "Legacy" }, "restart": "forbidden" });
    let id = order(&scene, parameters).await;
    scene.wait_skipping(&id, "the wait", |job| job["wait"]["reason"] == "restart_forbidden").await;
    let cycle = scene.admin.post(&place("condition"), &json!({ "kind": "powerCycleSoft" })).await;
    let refused = cycle.refused(409, "conflict.condition");
    assert!(refused["message"].as_str().unwrap().contains(&id), "{refused}");
    assert_eq!(resets(scene.bmc(SERIAL)), 0);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_is_over_fails_and_a_later_order_sends_nothing_that_is_stored() {
    let scene = scene("generic", |_| {}).await;
    let bmc = scene.bmc(SERIAL).clone();
    let (from, until) =
        (scene.now().plus(Duration::from_secs(600)), scene.now().plus(Duration::from_secs(660)));
    let parameters =
        json!({ "attributes": { "BootMode": "Legacy" }, "restart_from": from, "restart_until": until });
    let id = order(&scene, parameters).await;
    scene.wait_skipping(&id, "the window", |job| job["wait"]["reason"] == "restart_window").await;
    scene.skip(Duration::from_secs(3600));
    let job = scene.complete_skipping(&id).await;
    let log = scene.admin.event_log(&id).await;
    failed(&job, "window_over", &["BootMode Legacy is not in force yet"], &log);
    assert!(log.contains("bios.left-pending"), "{log}");
    let (job, log) = applied(&scene, json!({ "attributes": { "BootMode": "Legacy" } })).await;
    assert_eq!(
        (job["outcome"].as_str(), bmc.bios_writes(), bmc.power_ons()),
        (Some("succeeded"), 1, 1),
        "{log}"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_off_is_powered_on_for_the_values_and_off_again() {
    let scene = scene("generic", |bmc| bmc.starts_on = false).await;
    let bmc = scene.bmc(SERIAL).clone();
    let (job, log) = applied(&scene, json!({ "attributes": { "BootMode": "Legacy" } })).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert_eq!((bmc.snapshot().power, bmc.power_ons()), (Power::Off, 1), "{log}");
    assert_eq!(bmc.bios_attributes()["BootMode"], "Legacy");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_restarts_after_the_write_keeps_the_values_and_the_run_goes_on() {
    let scene = scene("generic", |_| {}).await;
    let bmc = scene.bmc(SERIAL).clone();
    let after = FaultTrigger::Path { method: "GET".to_owned(), glob: "*/Bios/Settings".to_owned() };
    // The plan and the write read the object three times before the restart of the host.
    bmc.inject(Fault::once(after, FaultEffect::BmcRestart(Duration::from_millis(300))).after(4));
    let (job, log) = applied(&scene, json!({ "attributes": { "BootMode": "Legacy" } })).await;
    assert!(bmc.faults().is_empty(), "{log}");
    assert_eq!(
        (job["outcome"].as_str(), bmc.bios_writes(), bmc.power_ons()),
        (Some("succeeded"), 1, 1),
        "{log}"
    );
    assert_eq!(bmc.bios_attributes()["BootMode"], "Legacy", "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_before_the_restart_says_what_the_next_restart_changes() {
    let scene = scene("generic", |_| {}).await;
    let bmc = scene.bmc(SERIAL).clone();
    let parameters = json!({ "attributes": { "BootMode": "Legacy" }, "restart": "forbidden" });
    let id = order(&scene, parameters).await;
    scene.wait_skipping(&id, "the wait", |job| job["wait"]["reason"] == "restart_forbidden").await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    let job = scene.complete_skipping(&id).await;
    let log = scene.admin.event_log(&id).await;
    assert_eq!((job["outcome"].as_str(), resets(&bmc)), (Some("cancelled"), 0), "{log}");
    assert!(log.contains("bios.left-pending") && log.contains("BootMode Legacy"), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_reads_the_bmc_and_changes_nothing() {
    let scene = scene("generic", |_| {}).await;
    let parameters = json!({ "attributes": { "BootMode": "Legacy", "Turbo": "true", "Fan": 1 } });
    let body = json!({ "kind": "biosApply", "parameters": parameters });
    let preview = scene.admin.post(&place("condition?dry_run=true"), &body).await.expect(200);
    let decisions: Vec<(&str, &str)> = preview["settings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["name"].as_str().unwrap(), item["decision"].as_str().unwrap()))
        .collect();
    assert_eq!(decisions, [("BootMode", "change"), ("Fan", "refuse"), ("Turbo", "skip")], "{preview:#}");
    assert_eq!(preview["settings"][0]["now"], "Uefi");
    assert_eq!(changes(scene.bmc(SERIAL)), 0);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_are_shown_without_passwords() {
    let scene = scene("generic", |bmc| {
        bmc.bios
            .attributes
            .iter_mut()
            .filter(|one| one.kind == "Password")
            .for_each(|one| one.value = json!("hunter2"));
    })
    .await;
    let shown = scene.admin.get(&place("bios")).await.expect(200);
    assert!(!shown.to_string().contains("hunter2"), "{shown:#}");
    let row = |name: &str| {
        let rows = shown["attributes"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap().clone()
    };
    assert_eq!(
        (row("BootMode")["value"].clone(), row("BootMode")["takes"].clone()),
        (json!("Uefi"), json!("Uefi, Legacy"))
    );
    assert_eq!(
        (row("SetupLock")["secret"].clone(), row("Revision")["read_only"].clone()),
        (json!(true), json!(true))
    );
    assert_eq!(shown["boot_order"], json!(["Boot0001", "Boot0002", "Boot0003"]));
    assert_eq!(changes(scene.bmc(SERIAL)), 0);
    scene.end().await;
}
