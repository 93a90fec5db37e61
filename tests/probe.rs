//! Probe and diagnostics of a BMC: what they find, that they leave nothing behind, and which problems they report.

use lab_bmc::{Fault, FaultEffect, FaultTrigger, Power, ResetType, SimBmcConfig, SlotConfig};
use model::{Clock, SystemClock};
use serde_json::{Value, json};
use settings::Listener;

use crate::kit::{BMC_PASSWORD, BMC_USER, Scene, healthy, silent, start_farm, with_bmc};

async fn doctor(scene: &Scene, serial: &str, query: &str) -> Value {
    scene.admin.post(&format!("/api/v1/servers/{serial}/diagnostics{query}"), &json!({})).await.expect(200)
}

fn status<'a>(report: &'a Value, name: &str) -> (&'a str, &'a str) {
    let checks = report["checks"].as_array().unwrap();
    let check =
        checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {report:#}"));
    (check["status"].as_str().unwrap(), check["found"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_shows_the_capabilities_of_a_bmc_and_changes_nothing() {
    let scene = Scene::start(vec![healthy("PRB-1")]).await;
    let card = scene.admin.get("/api/v1/servers/PRB-1/probe?capture=true").await.expect(200);
    assert_eq!(card["identity"]["model"], "3500RX", "{card:#}");
    assert_eq!((&card["host"]["serial"], &card["host"]["serial_check"]), (&json!("PRB-1"), &json!("match")));
    assert_eq!(
        (&card["slot_plan"]["plan"], &card["slot_plan"]["slots"]),
        (&json!("dual"), &json!(["CD1", "CD2"]))
    );
    assert_eq!(card["slot_plan"]["if_refused"].as_array().unwrap().len(), 3, "{card:#}");
    assert_eq!(card["slots"].as_array().unwrap().len(), 3);
    assert_eq!(card["profile"]["name"], "generic");
    assert!(card["requests"]["count"].as_u64().unwrap() > 5, "{card:#}");
    // The capture contains the model of the BMC and not its serial number.
    let capture = card["capture"].to_string();
    assert!(capture.contains("3500RX") && !capture.contains("PRB-1"), "{capture}");
    assert!(!card.to_string().contains(BMC_PASSWORD));
    let bmc = scene.bmc("PRB-1");
    assert_eq!((bmc.mutations(), bmc.snapshot().open_sessions), (vec![], 0));
    scene.admin.post("/api/v1/servers/PRB-1/probe", &json!({})).await.expect(200);
    scene.admin.get("/api/v1/servers/UNKNOWN/probe").await.expect(404);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_during_a_job_uses_and_keeps_the_session_of_the_job() {
    let scene = Scene::start(vec![silent("PRB-2")]).await;
    let id = scene.admin.create_job("PRB-2").await;
    scene.wait_skipping(&id, "the wait for the report", |job| job["step"] == "webhook.wait").await;
    let card = scene.admin.get("/api/v1/servers/PRB-2/probe").await.expect(200);
    assert_eq!(card["host"]["power"], "On", "{card:#}");
    assert_eq!(scene.bmc("PRB-2").snapshot().open_sessions, 1);
    // Diagnostics would change the BMC, so they are refused during a job.
    let refused = scene.admin.post("/api/v1/servers/PRB-2/diagnostics", &json!({})).await;
    assert_eq!(refused.status, 409);
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_lets_the_bmc_read_a_test_image_and_leaves_nothing_behind() {
    let scene = Scene::start(vec![healthy("DOC-1")]).await;
    let report = doctor(&scene, "DOC-1", "?write=true").await;
    assert_ne!(report["verdict"], "fail", "{report:#}");
    for name in ["connect", "credentials", "licence", "serial", "slot-plan", "boot-override", "media"] {
        assert_eq!(status(&report, name).0, "pass", "{report:#}");
    }
    let machine = scene.bmc("DOC-1").snapshot();
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()), "{machine:?}");
    assert_eq!((machine.power, machine.open_sessions), (Power::Off, 0));
    // The server is unlocked again, and a job succeeds.
    let id = scene.admin.create_job("DOC-1").await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn diagnostics_are_a_job_with_list_events_explanation_and_verbs() {
    let scene = Scene::start(vec![healthy("DOC-4")]).await;
    let api = &scene.admin;
    api.post("/api/v1/servers/DOC-4/maintenance", &json!({ "reason": "cabling" })).await.expect(202);
    // Diagnostics leave the server as it was, so they run in maintenance.
    let id = doctor(&scene, "DOC-4", "").await["diagnostics_id"].as_str().unwrap().to_owned();
    let listed = async |query: &str| {
        let page = api.get(&format!("/api/v1/jobs{query}")).await.expect(200);
        let jobs = page["jobs"].as_array().unwrap();
        jobs.iter().map(|job| job["job_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("").await, std::slice::from_ref(&id));
    assert_eq!(
        listed("?workflow=diagnostics&server_serial=DOC-4&status=complete").await,
        std::slice::from_ref(&id)
    );
    assert!(listed("?workflow=provision").await.is_empty());
    assert!(listed("?label=rack%3D7").await.is_empty());
    assert!(listed("?label=rack").await.is_empty());
    api.get("/api/v1/jobs?label=").await.refused(400, "validation_error");

    let job = api.job(&id).await;
    assert_eq!(
        (&job["workflow"], &job["server_serial"]),
        (&json!("diagnostics"), &json!("DOC-4")),
        "{job:#}"
    );
    assert_eq!((&job["outcome"], &job["recipe_schema_id"]), (&json!("succeeded"), &Value::Null));
    assert_eq!(job["verbs"], json!(["retry"]));
    assert_eq!(api.explain(&id).await["condition"], "ended");
    assert!(api.events(&id).await.iter().any(|event| event["type"] == "diagnostics.requested"));
    api.post(&format!("/api/v1/jobs/{id}/hold"), &json!({})).await.refused(409, "conflict.verb");
    api.get(&format!("/media/tasks/{id}/task.iso")).await.refused(404, "no_task_image");

    let again = api.post(&format!("/api/v1/jobs/{id}/retry"), &json!({})).await.expect(202);
    let again = again["job_id"].as_str().unwrap();
    let ended = scene.complete_skipping(again).await;
    assert_eq!((&ended["retry_of"], &ended["outcome"]), (&json!(id), &json!("succeeded")), "{ended:#}");
    // A server with nothing but diagnostics has no history to keep.
    api.delete("/api/v1/servers/DOC-4").await.expect(204);
    assert!(listed("").await.is_empty());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_without_write_sends_no_boot_override_and_no_reset() {
    let scene = Scene::start(vec![healthy("DOC-2")]).await;
    scene.bmc("DOC-2").inject(Fault::always(FaultTrigger::PatchBoot, FaultEffect::Drop));
    scene.bmc("DOC-2").inject(Fault::always(FaultTrigger::ResetTo(ResetType::On), FaultEffect::Drop));
    let report = doctor(&scene, "DOC-2", "").await;
    assert_eq!(status(&report, "boot-override").0, "pass", "{report:#}");
    assert_eq!(scene.bmc("DOC-2").mutations().len(), 2, "insert and eject");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_and_doctor_name_the_setting_that_keeps_media_from_the_host() {
    let mut spec = healthy("DOC-7");
    let bmc = SimBmcConfig::vendor("dell-idrac9-detached", "DOC-7", BMC_USER, BMC_PASSWORD).unwrap();
    spec.bmc = Some(Box::new(bmc.in_time(0.0)));
    let scene = Scene::start(vec![spec]).await;
    let words = "VirtualMedia.1.Attached is Detached";
    let card = scene.admin.get("/api/v1/servers/DOC-7/probe").await.expect(200);
    assert!(card["slot_plan"]["reason"].as_str().unwrap().contains(words), "{card:#}");
    assert!(card["slot_plan"]["next_action"].as_str().unwrap().contains("AutoAttach"), "{card:#}");
    let report = doctor(&scene, "DOC-7", "").await;
    let (status, found) = status(&report, "slot-plan");
    assert!(status == "fail" && found.contains(words), "{report:#}");
    assert_eq!(scene.bmc("DOC-7").mutations(), []);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_and_doctor_of_a_bmc_that_reads_https_only_use_the_tls_listener() {
    let mut spec = healthy("DOC-8");
    let bmc = SimBmcConfig::vendor("openbmc", "DOC-8", BMC_USER, BMC_PASSWORD).unwrap();
    spec.bmc = Some(Box::new(bmc.in_time(0.01)));
    let scene = Scene::start(vec![spec]).await;
    let allow = json!({ "allow_unverified_serial": true });
    scene.admin.patch("/api/v1/servers/DOC-8", &allow).await.expect(200);
    let base = format!("https://{}", scene.running.https.unwrap());
    let card = scene.admin.get("/api/v1/servers/DOC-8/probe").await.expect(200);
    assert_eq!(
        (&card["media_base_url"], &card["slot_plan"]["plan"]),
        (&json!(base), &json!("dual")),
        "{card:#}"
    );
    let report = doctor(&scene, "DOC-8", "").await;
    assert_eq!(status(&report, "media").0, "pass", "{report:#}");
    assert!(scene.bmc("DOC-8").snapshot().slots.iter().all(|slot| slot.image.is_none()));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_shows_the_error_of_a_slot() {
    let spec = with_bmc(healthy("DOC-3"), |bmc| {
        bmc.slots = vec![SlotConfig::cd("CD1")];
        let effect = FaultEffect::Status {
            status: 400,
            message_id: "Contoso.1.0.CannotReach".to_owned(),
            message: "The image URI cannot be reached.".to_owned(),
        };
        bmc.faults.push(Fault::always(FaultTrigger::Insert, effect));
    });
    let scene = Scene::start(vec![spec]).await;
    let report = doctor(&scene, "DOC-3", "").await;
    assert_eq!(report["verdict"], "fail");
    let (status, found) = status(&report, "media");
    assert!(status == "fail" && found.contains("The image URI cannot be reached."), "{report:#}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_problem_has_the_same_words_in_job_probe_and_doctor() {
    let scene = Scene::start_with(vec![healthy("WAY-1")], |settings, _| settings.redfish_retries = 1).await;
    let html = FaultEffect::Raw {
        status: 200,
        content_type: "text/html".to_owned(),
        body: "<html><form>Log in</form></html>".to_owned(),
    };
    let change = FaultEffect::Status {
        status: 403,
        message_id: "Base.1.8.PasswordChangeRequired".to_owned(),
        message: "The password must be changed.".to_owned(),
    };
    for (fault, words, check) in [
        (Fault::always(FaultTrigger::Anything, html), "a web page instead of a resource", "connect"),
        (Fault::always(FaultTrigger::Login, change), "the password must be changed first", "account"),
    ] {
        scene.bmc("WAY-1").inject(fault);
        let probe = scene.admin.get("/api/v1/servers/WAY-1/probe").await;
        assert_eq!(probe.status, 502);
        let said = probe.json()["message"].as_str().unwrap().to_owned();
        assert!(said.contains(words), "{said}");
        let report = doctor(&scene, "WAY-1", "").await;
        let (status, found) = status(&report, check);
        assert!(status == "fail" && said.starts_with(found), "{found} / {said}");
        let id = scene.admin.create_job("WAY-1").await;
        let job = scene.complete_skipping(&id).await;
        let summary = job["failure"]["summary"].as_str().unwrap();
        assert!(summary.contains(found), "{summary} / {found}");
        let next = job["failure"]["next_action"].as_str().unwrap();
        assert!(said.ends_with(next), "{said} / {next}");
        scene.bmc("WAY-1").clear_faults();
        assert_eq!(scene.bmc("WAY-1").mutations(), []);
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_with_a_wrong_bmc_password_names_the_password_and_not_the_load_of_the_controller() {
    let scene = Scene::start(vec![healthy("PWD-1")]).await;
    scene.admin.patch("/api/v1/servers/PWD-1", &json!({ "bmc_password": "wrong" })).await.expect(200);
    // The third probe sends no login, because the account could be locked: that has words of its own.
    for words in
        ["user name or password is wrong", "user name or password is wrong", "too many rejected logins"]
    {
        let probe = scene.admin.get("/api/v1/servers/PWD-1/probe").await;
        let body = probe.json();
        let said = body["message"].as_str().unwrap();
        assert!(probe.status == 502 && !said.contains("overloaded") && !said.contains("busy"), "{body}");
        assert!(said.contains(words), "{said}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_slot_plan_is_shown_for_a_bmc_that_no_job_can_use() {
    for (vendor, words) in
        [("huawei-ibmc", "NFS and CIFS"), ("ami-megarac", "port 80"), ("openbmc", "https only")]
    {
        let mut spec = healthy("NOP-1");
        let bmc = SimBmcConfig::vendor(vendor, "NOP-1", BMC_USER, BMC_PASSWORD).unwrap();
        spec.bmc = Some(Box::new(bmc.in_time(0.0)));
        // With a TLS listener OpenBMC has a plan.
        let scene =
            Scene::start_with(vec![spec], |settings, _| settings.controller_https_addr = Listener::Off).await;
        let id = scene.admin.create_job("NOP-1").await;
        let failure = scene.complete_skipping(&id).await["failure"].clone();
        let card = scene.admin.get("/api/v1/servers/NOP-1/probe").await.expect(200);
        let plan = &card["slot_plan"];
        let reason = plan["reason"].as_str().unwrap();
        assert!(plan["plan"].is_null() && reason.contains(words), "{vendor}: {plan:#}");
        assert!(failure["summary"].as_str().unwrap().contains(reason), "{vendor}: {failure:#}");
        assert_eq!(plan["next_action"], failure["next_action"], "{vendor}");
        let report = doctor(&scene, "NOP-1", "").await;
        assert_eq!(status(&report, "slot-plan"), ("fail", reason), "{vendor}: {report:#}");
        assert_eq!(scene.bmc("NOP-1").mutations(), [], "{vendor}");
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unregistered_address_is_probed_and_diagnosed_without_a_controller() {
    use bmc::probe::direct::{DirectTarget, probe};
    use diagnostics::checks::CheckStatus;

    let folder = tempfile::tempdir().unwrap();
    let farm = start_farm(vec![healthy("DIR-1")], folder.path()).await;
    let server = farm.server("DIR-1").unwrap();
    let target = |password: &str| DirectTarget {
        address: server.bmc_url.clone(),
        username: BMC_USER.to_owned(),
        password: password.into(),
        fingerprint: None,
        insecure: false,
        serial: None,
    };
    let now = SystemClock.now();
    let probed = probe(&target(BMC_PASSWORD), true, now).await.unwrap();
    assert_eq!(probed.card["slot_plan"]["plan"], "dual", "{:#}", probed.card);
    assert!(!probed.capture.unwrap().to_string().contains("DIR-1"));
    let found = diagnostics::direct::run(&target(BMC_PASSWORD), true, None, now).await.unwrap();
    assert_ne!(found.verdict(), CheckStatus::Fail, "{found:#?}");
    let media = found.checks.iter().find(|check| check.name == "media").unwrap();
    assert_eq!(media.status, CheckStatus::Pass, "{found:#?}");
    let machine = server.bmc.snapshot();
    assert!(
        machine.slots.iter().all(|slot| slot.image.is_none()) && machine.open_sessions == 0,
        "{machine:?}"
    );
    let wrong = probe(&target("wrong"), false, now).await.unwrap_err();
    assert!(wrong.sentence.contains("user name or password is wrong"), "{wrong:?}");
    farm.shutdown().await;
}
