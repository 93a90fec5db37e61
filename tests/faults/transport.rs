//! Connections that fail, break or are redirected; certificates.

use std::time::Duration;

use lab_bmc::{Fault, FaultEffect, FaultTrigger, ResetType, SimBmcConfig};
use lab_machines::{Farm, FarmConfig};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{SERIAL, SYSTEM, finished, get, responds, run_another_job, scene, scene_with, unhurried};
use crate::kit::{BMC_PASSWORD, BMC_USER, Scene, healthy, with_bmc};

recovers! {
    a_connection_reset_before_the_response_to_a_read(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Read, FaultEffect::Reset).after(5));
    }
    a_connection_reset_before_the_response_to_a_change(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, FaultEffect::Reset));
    }
    a_connection_reset_before_the_response_to_an_insert(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::InsertInto("CD2".to_owned()), FaultEffect::Reset));
    }
    a_response_cut_in_the_middle(bmc) {
        bmc.faults.push(Fault::once(get(SYSTEM), FaultEffect::CutBody(20)));
    }
    a_response_cut_at_its_first_byte(bmc) {
        bmc.faults.push(Fault::once(get("/CD1"), FaultEffect::CutBody(0)));
    }
    a_response_that_comes_byte_by_byte(bmc) {
        bmc.faults.push(Fault::once(get("/Systems"), FaultEffect::Trickle(Duration::from_millis(1))));
    }
    a_response_that_never_comes(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, FaultEffect::Hang));
    }
    a_login_without_a_response(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Login, FaultEffect::Hang));
    }
    paths_that_need_a_slash(bmc) {
        bmc.service.slash_redirect = true;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_comes_back_while_a_job_waits_for_it() {
    let scene = scene(|_| {}).await;
    scene.bmc(SERIAL).set_reachable(false);
    let id = scene.admin.create_job(SERIAL).await;
    scene.wait_skipping(&id, "the wait for the BMC", |job| job["wait"]["reason"] == "bmc_silent").await;
    scene.bmc(SERIAL).set_reachable(true);
    finished(scene, &id).await.assert_succeeded().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_response_comes_after_its_deadline() {
    let slow = Fault::once(get("/CD2"), FaultEffect::Delay(Duration::from_millis(2500)));
    let second = Duration::from_secs(2);
    let scene = scene_with(|bmc| bmc.faults.push(slow), |settings| settings.redfish_timeout = second).await;
    run_another_job(scene).await.assert_succeeded().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_on_carried_out_after_its_deadline() {
    let late =
        Fault::once(FaultTrigger::ResetTo(ResetType::On), FaultEffect::Delay(Duration::from_millis(1300)));
    let scene = scene(|bmc| bmc.faults.push(late)).await;
    let quirks = json!({ "quirks": { "mutation_timeout_s": 1 } });
    scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &quirks).await.expect(200);
    let id = scene.admin.create_job(SERIAL).await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    assert_eq!(scene.bmc(SERIAL).boots_from_media(), 1, "{}", scene.admin.event_log(&id).await);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_another_host_is_not_followed() {
    let elsewhere = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let location = format!("http://{}/redfish/v1/Systems/{SYSTEM}", elsewhere.local_addr().unwrap());
    for status in [302, 308] {
        let away = responds(status, &[("location", &location)], "");
        let ended = super::run_job(|bmc| bmc.faults.push(Fault::always(get(SYSTEM), away))).await;
        ended
            .assert_failed("redfish.discover", "bmc_refused", &["a redirect to another host (127.0.0.1)"])
            .await;
    }
    let accepted = tokio::time::timeout(Duration::from_millis(10), elsewhere.accept()).await;
    assert!(accepted.is_err(), "the client connected to the other host");
}

/// Starts a server whose BMC uses TLS.
async fn secure(change: impl FnOnce(&mut SimBmcConfig)) -> Scene {
    let mut scene = Scene::bare(Vec::new(), |settings, _| unhurried(settings)).await;
    let disks = scene.folder.path().join("secure");
    std::fs::create_dir_all(&disks).unwrap();
    let (specs, password) = (vec![with_bmc(healthy(SERIAL), change)], SecretString::from(BMC_PASSWORD));
    let farm = FarmConfig { https: true, ..FarmConfig::new(specs, BMC_USER, password, disks) };
    let farm = Farm::start(farm).await.unwrap();
    std::mem::replace(&mut scene.farm, farm).shutdown().await;
    scene.admin.register(scene.server(SERIAL)).await;
    scene.admin.push_image().await;
    scene
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_that_fail_intermittently() {
    let scene = secure(|bmc| {
        bmc.faults.push(Fault::once(FaultTrigger::Connect, FaultEffect::FailHandshake).times(2).after(1));
    })
    .await;
    run_another_job(scene).await.assert_succeeded().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_handshake_that_fails() {
    let scene =
        secure(|bmc| bmc.faults.push(Fault::once(FaultTrigger::Connect, FaultEffect::FailHandshake))).await;
    run_another_job(scene).await.assert_succeeded().await;
}

/// Asserts that the job failed at its first request because the BMC was not reached.
fn unreached(job: &Value) {
    assert_eq!(
        (&job["failed_step"], &job["failure"]["class"]),
        (&json!("redfish.discover"), &json!("bmc_unreachable"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_certificate_gets_no_credentials() {
    let scene = run_another_job(secure(|_| {}).await).await.check_succeeded();
    let bmc = scene.bmc(SERIAL).clone();
    bmc.renew_certificate();
    let before = bmc.snapshot();
    let id = scene.admin.create_job(SERIAL).await;
    let job = scene.complete_skipping(&id).await;
    let failure = &job["failure"];
    unreached(&job);
    let next = failure["next_action"].as_str().unwrap();
    assert!(next.contains(&format!("shoal server update {SERIAL} --tls-fingerprint ")), "{next}");
    let after = bmc.snapshot();
    assert_eq!((after.requests, after.logins), (before.requests, before.logins), "not one request was sent");

    // The next action of the failure solves the problem.
    let shown = next.rsplit_once("--tls-fingerprint ").unwrap().1.split(' ').next().unwrap();
    let pin = json!({ "tls_fingerprint": shown, "bmc_password": BMC_PASSWORD });
    scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &pin).await.expect(200);
    let id = scene.admin.create_job(SERIAL).await;
    assert_eq!(scene.complete_skipping(&id).await["outcome"], "succeeded");
    scene.end().await;
}

/// The first contact may be a probe: a job after it accepts no other certificate.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_pins_the_certificate_it_met_unless_it_is_of_another_machine() {
    let scene = secure(|bmc| {
        let other = FaultEffect::WrongSerial("OTHER-1".to_owned());
        bmc.faults.push(Fault::always(FaultTrigger::Anything, other));
    })
    .await;
    let path = format!("/api/v1/servers/{SERIAL}");
    let place = format!("{path}/probe");
    let probe = async || scene.admin.post(&place, &json!({})).await.expect(200);
    let card = probe().await;
    assert_eq!(card["host"]["serial_check"], "another machine", "{card:#}");
    assert_eq!(scene.admin.get(&path).await.expect(200)["tls_fingerprint"], json!(null));

    let bmc = scene.bmc(SERIAL).clone();
    bmc.clear_faults();
    let card = probe().await;
    assert_eq!(card["tls"]["first_met"], true, "{card:#}");
    let server = scene.admin.get(&path).await.expect(200);
    assert_eq!(server["tls_fingerprint"], card["tls"]["fingerprint"]);
    assert_eq!(server["revision"], 1, "no client changed the server");
    assert_eq!(probe().await["tls"]["first_met"], false);
    bmc.renew_certificate();
    let id = scene.admin.create_job(SERIAL).await;
    unreached(&scene.complete_skipping(&id).await);
    scene.end().await;
}

/// What changes the trust of a BMC is a request that the audit log has.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_a_bmc_pins_no_certificate_and_keeps_no_card() {
    let scene = secure(|_| {}).await;
    let path = format!("/api/v1/servers/{SERIAL}");
    let kept = async || {
        let server = scene.admin.get(&path).await.expect(200);
        let card = scene.admin.get(&format!("{path}/card")).await.expect(200);
        (server["tls_fingerprint"].is_string(), card["card"].is_object())
    };
    let audited = async || {
        let audit = scene.admin.get("/api/v1/audit?action=server.probe").await.expect(200);
        audit["entries"].as_array().unwrap().len()
    };
    let card = scene.admin.get(&format!("{path}/probe")).await.expect(200);
    assert_eq!(card["tls"]["first_met"], true, "{card:#}");
    scene.admin.get(&format!("{path}/bios")).await.expect(200);
    let settings = json!({ "kind": "biosApply", "parameters": { "attributes": { "BootMode": "Uefi" } } });
    scene.admin.post(&format!("{path}/condition?dry_run=true"), &settings).await.expect(200);
    assert_eq!((kept().await, audited().await), ((false, false), 0));
    scene.admin.post(&format!("{path}/probe"), &json!({})).await.expect(200);
    assert_eq!((kept().await, audited().await), ((true, true), 1));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_supports_only_an_old_tls() {
    let scene = secure(|bmc| bmc.service.legacy_tls = true).await;
    let scene = run_another_job(scene).await.check_failed(
        "redfish.discover",
        "bmc_unreachable",
        &["offers only legacy TLS"],
    );
    assert_eq!(scene.bmc(SERIAL).snapshot().requests, 0);
    scene.end().await;
}

/// The responses of BMCs with legacy TLS to a client whose lowest version is TLS 1.2.
fn legacy_tls_responses() -> [(&'static str, Vec<u8>); 4] {
    let mut hello = vec![0x16, 3, 1, 0, 42, 2, 0, 0, 38, 3, 1];
    hello.extend([7; 32]);
    // No session, RSA with AES-128 in CBC mode, no compression.
    hello.extend([0, 0, 0x2f, 0]);
    let mut newer = hello.clone();
    newer[10] = 2;
    [
        ("a ServerHello of TLS 1.0", hello),
        ("a ServerHello of TLS 1.1", newer),
        ("an alert: protocol_version", vec![0x15, 3, 1, 0, 2, 2, 70]),
        ("an alert: handshake_failure, for want of a cipher", vec![0x15, 3, 3, 0, 2, 2, 40]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_offers_only_legacy_tls_is_named_in_job_explain_probe_and_doctor() {
    const WORDS: &str = "the BMC offers only legacy TLS";
    const NEXT: &str = "update the BMC's firmware or allow TLS 1.2 in its settings";
    let scene = scene(|_| {}).await;
    for (what, response) in legacy_tls_responses() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let bmc = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut record = [0; 5];
                if stream.read_exact(&mut record).await.is_err() {
                    continue;
                }
                let mut hello = vec![0; u16::from_be_bytes([record[3], record[4]]).into()];
                stream.read_exact(&mut hello).await.unwrap();
                // The client may have closed the connection.
                let _gone = stream.write_all(&response).await;
                let _end = stream.read(&mut record).await;
            }
        });
        let moved = json!({ "bmc_address": address, "bmc_password": BMC_PASSWORD });
        scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &moved).await.expect(200);
        let id = scene.admin.create_job(SERIAL).await;
        let job = scene.complete_skipping(&id).await;
        let failure = &job["failure"];
        unreached(&job);
        assert!(failure["summary"].as_str().unwrap().contains(WORDS), "{what}: {failure:#}");
        assert!(failure["next_action"].as_str().unwrap().starts_with(NEXT), "{what}: {failure:#}");
        let explained = scene.admin.explain(&id).await.to_string();
        assert!(explained.contains(WORDS) && explained.contains(NEXT), "{what}: {explained}");
        let probe = scene.admin.get(&format!("/api/v1/servers/{SERIAL}/probe")).await;
        assert_eq!(probe.status, 502, "{what}");
        let said = probe.text();
        assert!(said.contains(WORDS) && said.contains(NEXT), "{what}: {said}");
        let report =
            scene.admin.post(&format!("/api/v1/servers/{SERIAL}/diagnostics"), &json!({})).await.expect(200);
        assert_eq!(report["verdict"], "fail");
        assert!(report.to_string().contains(WORDS), "{what}: {report:#}");
        bmc.abort();
    }
    scene.end().await;
}
