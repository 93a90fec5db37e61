//! Conditions of servers: power cycles, restarts of the BMC, out-of-band inventories, their order and their API.

use std::time::Duration;

use lab_bmc::{Graceful, JournalItem, ManagerRestart, Power, ResetType, SimBmc, SimBmcConfig, StateChange};
use lab_machines::{Farm, FarmConfig};
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};
use settings::Settings;

use crate::firmware_install::{File, set_of};
use crate::kit::{BMC_PASSWORD, BMC_USER, Client, Scene, healthy, logged_out, silent, with_bmc};

const SERIAL: &str = "COND-1";

/// A controller that asks a silent BMC again soon: the pauses of its breaker are measured by the real clock.
fn quick(settings: &mut Settings) {
    settings.redfish_rate = 1000;
    settings.redfish_breaker_open_time = Duration::from_millis(50);
}

/// A server with a running host and this BMC.
async fn scene(change: impl FnOnce(&mut SimBmcConfig)) -> Scene {
    let spec = with_bmc(healthy(SERIAL), |bmc| {
        bmc.starts_on = true;
        bmc.manager.begins_after = Duration::ZERO;
        bmc.manager.away = Duration::from_millis(300);
        bmc.service.chassis = true;
        change(bmc);
    });
    Scene::start_with(vec![spec], |settings, _| quick(settings)).await
}

fn place(tail: &str) -> String {
    format!("/api/v1/servers/{SERIAL}/{tail}")
}

async fn request(client: &Client, body: Value) -> Value {
    client.post(&place("condition"), &body).await.expect(200)
}

/// Requests a condition and returns its job at its end, and itself.
async fn done(scene: &Scene, kind: &str, parameters: Value) -> (Value, Value) {
    let created = request(&scene.admin, json!({ "kind": kind, "parameters": parameters })).await;
    let job = scene.complete_skipping(created["id"].as_str().unwrap()).await;
    let shown = scene.admin.get(&place(&format!("condition?kind={kind}"))).await.expect(200);
    assert_eq!(shown["id"], created["id"]);
    (job, shown)
}

/// The resets that the host received, in their order.
fn resets(bmc: &SimBmc) -> Vec<ResetType> {
    let changes = bmc.journal().into_iter().filter_map(|entry| match entry.what {
        JournalItem::Change(StateChange::Reset(kind)) => Some(kind),
        _ => None,
    });
    changes.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_a_power_cycle_or_of_diagnostics_under_one_key_is_one_job_also_after_its_end() {
    let scene = scene(|_| {}).await;
    let (cycle, _) = done(&scene, "powerCycleHard", json!({})).await;
    let doctor = scene.admin.post(&place("diagnostics"), &json!({})).await.expect(200);
    let doctor = scene.complete_skipping(doctor["diagnostics_id"].as_str().unwrap()).await;
    for ended in [cycle, doctor] {
        let id = ended["job_id"].as_str().unwrap();
        let retry = async || {
            let place = format!("/api/v1/jobs/{id}/retry");
            let request =
                scene.admin.request(Method::POST, &place).header("idempotency-key", format!("again {id}"));
            scene.admin.send(request).await
        };
        let new = retry().await.expect(202)["job_id"].clone();
        scene.complete_skipping(new.as_str().unwrap()).await;
        let power_ons = scene.bmc(SERIAL).power_ons();
        let again = retry().await.expect(200);
        assert_eq!((&again["job_id"], again["status"] == "queued"), (&new, false), "{again:?}");
        assert_eq!(scene.admin.job(id).await["job_id"], ended["job_id"]);
        assert_eq!(scene.bmc(SERIAL).power_ons(), power_ons);
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_power_cycle_forces_the_host_off_and_powers_it_on() {
    let scene = scene(|_| {}).await;
    let (job, shown) = done(&scene, "powerCycleHard", json!({})).await;
    let bmc = scene.bmc(SERIAL);
    assert_eq!(job["outcome"], "succeeded", "{job:#}");
    assert_eq!(
        (shown["state"].as_str(), shown["kind"].as_str()),
        (Some("succeeded"), Some("powerCycleHard"))
    );
    assert_eq!(resets(bmc), [ResetType::ForceOff, ResetType::On]);
    assert_eq!((logged_out(bmc).await.power, bmc.power_ons()), (Power::On, 1));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_power_cycle_shuts_the_operating_system_down_first() {
    let scene = scene(|bmc| bmc.power.graceful = Graceful::After(Duration::from_millis(50))).await;
    let (job, _) = done(&scene, "powerCycleSoft", json!({})).await;
    assert_eq!(job["outcome"], "succeeded", "{job:#}");
    assert_eq!(resets(scene.bmc(SERIAL)), [ResetType::GracefulShutdown, ResetType::On]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_off_stays_off_unless_the_order_says_otherwise() {
    let scene = scene(|bmc| bmc.starts_on = false).await;
    for kind in ["powerCycleHard", "powerCycleSoft"] {
        let (job, shown) = done(&scene, kind, json!({})).await;
        assert_eq!((&job["outcome"], &shown["state"]), (&json!("succeeded"), &json!("succeeded")), "{job:#}");
    }
    let bmc = scene.bmc(SERIAL);
    assert_eq!((bmc.mutations().len(), bmc.snapshot().power), (0, Power::Off));
    let (job, _) = done(&scene, "powerCycleSoft", json!({ "power_on": true })).await;
    assert_eq!((&job["outcome"], bmc.snapshot().power), (&json!("succeeded"), Power::On), "{job:#}");
    assert_eq!(resets(bmc), [ResetType::On]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_that_ignores_its_shutdown_is_left_on_or_forced_off_as_ordered() {
    let scene = scene(|bmc| bmc.power.graceful = Graceful::IgnoredByHost).await;
    let bmc = scene.bmc(SERIAL).clone();
    let (job, shown) = done(&scene, "powerCycleSoft", json!({ "grace_seconds": 30 })).await;
    assert_eq!(
        (job["outcome"].as_str(), job["failure"]["class"].as_str()),
        (Some("failed"), Some("shutdown_ignored"))
    );
    assert_eq!(shown["state"], "failed");
    assert!(shown["status"]["next_action"].as_str().unwrap().contains("force"), "{shown:#}");
    assert_eq!((bmc.snapshot().power, bmc.power_ons()), (Power::On, 0), "the host was never switched off");

    let (job, _) = done(&scene, "powerCycleSoft", json!({ "grace_seconds": 30, "force": true })).await;
    assert_eq!(job["outcome"], "succeeded", "{job:#}");
    assert_eq!(
        resets(&bmc),
        [ResetType::GracefulShutdown, ResetType::GracefulShutdown, ResetType::ForceOff, ResetType::On]
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_cycle_gives_the_host_its_power_back() {
    // The host needs long to be off, so that the cancel comes in the middle.
    let scene = scene(|bmc| bmc.power.off_time = Duration::from_millis(600)).await;
    let created = request(&scene.admin, json!({ "kind": "powerCycleHard" })).await;
    let id = created["id"].as_str().unwrap();
    let bmc = scene.bmc(SERIAL).clone();
    bmc.wait_for(|bmc| bmc.power == Power::PoweringOff).await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    let job = scene.complete_skipping(id).await;
    assert_eq!(job["outcome"], "cancelled", "{job:#}");
    let events = scene.admin.event_log(id).await;
    assert_eq!((bmc.snapshot().power, bmc.power_ons()), (Power::On, 1), "{events}");
    let shown = scene.admin.get(&place("condition?kind=powerCycleHard")).await.expect(200);
    assert_eq!(shown["state"], "failed", "a cancelled condition has failed");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_with_a_limit_per_rack_wait_for_each_other_and_for_no_other_rack() {
    let racks = [("COND-1", "r1"), ("COND-2", "r1"), ("COND-3", "r2")];
    let spec = |(serial, _): (&str, &str)| {
        with_bmc(healthy(serial), |bmc| {
            bmc.starts_on = true;
            bmc.power.graceful = Graceful::IgnoredByHost;
        })
    };
    let scene = Scene::start_with(racks.map(spec).into(), |settings, _| quick(settings)).await;
    let cycle = |more: Value| {
        let mut body =
            json!({ "kind": "powerCycleSoft", "parameters": { "force": true, "grace_seconds": 600 } });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let limited = cycle(json!({ "max_parallel": 1, "per": "rack" }));
    let condition = |serial: &str| format!("/api/v1/servers/{serial}/condition");
    for body in [
        cycle(json!({ "max_parallel": 1 })),
        cycle(json!({ "per": "rack" })),
        cycle(json!({ "max_parallel": 0, "per": "rack" })),
        limited.clone(),
    ] {
        // The last one: the server has no label of this name yet.
        scene.admin.post(&condition("COND-1"), &body).await.refused(400, "validation_error");
    }
    let mut ids = Vec::new();
    for (serial, rack) in racks {
        let labels = json!({ "labels": { "rack": rack } });
        scene.admin.patch(&format!("/api/v1/servers/{serial}"), &labels).await.expect(200);
        let created = scene.admin.post(&condition(serial), &limited).await.expect(200);
        ids.push(created["id"].as_str().unwrap().to_owned());
        if serial != "COND-2" {
            let waits = |job: &Value| job["wait"]["reason"] == "graceful_shutdown";
            scene.admin.wait(ids.last().unwrap(), "the grace period", waits).await;
        }
    }
    let why = scene.admin.explain(&ids[1]).await;
    assert!(why.to_string().contains("parallel/powerCycleSoft/rack=r1 has capacity 1"), "{why}");
    assert_eq!(scene.admin.job(&ids[1]).await["status"], "queued");
    for (at, id) in ids.iter().enumerate() {
        assert_eq!(scene.complete_skipping(id).await["outcome"], "succeeded", "{at}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_is_restarted_away_and_back_while_its_host_runs() {
    let scene = scene(|_| {}).await;
    let bmc = scene.bmc(SERIAL).clone();
    let (job, shown) = done(&scene, "bmcReset", json!({})).await;
    let events = scene.admin.event_log(job["job_id"].as_str().unwrap()).await;
    assert_eq!(job["outcome"], "succeeded", "{events}");
    assert!(events.contains("bmc.restarting") && events.contains("bmc.back"), "{events}");
    assert_eq!(shown["parameters"], json!({ "type": "graceful" }));
    let machine = logged_out(&bmc).await;
    assert_eq!((bmc.manager_resets(), machine.power, bmc.power_ons()), (1, Power::On, 0), "{events}");
    assert!(machine.logins >= 2, "{machine:?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_never_goes_away_is_told_from_one_that_does_not_return() {
    // A time that moves by some seconds is no restart.
    let moves = Duration::from_secs(20);
    for (restart, moves, class, said) in [
        (ManagerRestart::Ignored, Duration::ZERO, "bmc_not_reset", "it has not restarted"),
        (ManagerRestart::Ignored, moves, "bmc_not_reset", "it has not restarted"),
        (ManagerRestart::StaysAway, moves, "bmc_not_back", "is not back after 20 minutes"),
    ] {
        let scene = scene(|bmc| {
            bmc.manager.restart = restart;
            bmc.manager.last_reset_moves = moves;
        })
        .await;
        let body = json!({ "kind": "bmcReset", "parameters": { "type": "forced" } });
        let id = request(&scene.admin, body).await["id"].as_str().unwrap().to_owned();
        if restart == ManagerRestart::StaysAway {
            scene.wait_skipping(&id, "the absence", |job| job["wait"]["reason"] == "bmc_back").await;
            scene.skip(Duration::from_secs(20 * 60));
        }
        let job = scene.complete_skipping(&id).await;
        let shown = scene.admin.get(&place("condition?kind=bmcReset")).await.expect(200);
        assert_eq!(
            (job["outcome"].as_str(), job["failure"]["class"].as_str()),
            (Some("failed"), Some(class)),
            "{job:#}"
        );
        assert!(job["failure"]["summary"].as_str().unwrap().contains(said), "{job:#}");
        assert_eq!(shown["state"], "failed");
        assert_eq!(scene.bmc(SERIAL).manager_resets(), 1, "the restart was requested once");
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_certificate_after_the_restart_is_held_until_an_operator_accepts_it() {
    let mut scene = Scene::bare(Vec::new(), |settings, _| quick(settings)).await;
    let disks = scene.folder.path().join("secure");
    std::fs::create_dir_all(&disks).unwrap();
    let spec = with_bmc(healthy(SERIAL), |bmc| {
        bmc.starts_on = true;
        bmc.manager.begins_after = Duration::ZERO;
        bmc.manager.away = Duration::from_millis(300);
        bmc.manager.new_certificate = true;
    });
    let password = SecretString::from(BMC_PASSWORD);
    let farm = FarmConfig { https: true, ..FarmConfig::new(vec![spec], BMC_USER, password, disks) };
    let farm = Farm::start(farm).await.unwrap();
    std::mem::replace(&mut scene.farm, farm).shutdown().await;
    scene.admin.register(scene.server(SERIAL)).await;

    let created = request(&scene.admin, json!({ "kind": "bmcReset" })).await;
    let id = created["id"].as_str().unwrap();
    let held = scene.wait_skipping(id, "the hold", |job| job["hold"].is_object()).await;
    assert_eq!(held["hold"]["class"], "certificate_changed", "{held:#}");
    let logins = scene.bmc(SERIAL).snapshot().logins;
    let detail = held["hold"]["detail"].as_str().unwrap();
    let shown = detail.rsplit_once("--tls-fingerprint ").unwrap().1.split(' ').next().unwrap().to_owned();
    let condition = scene.admin.get(&place("condition?kind=bmcReset")).await.expect(200);
    assert_eq!(
        (condition["state"].as_str(), condition["status"]["reason"].as_str()),
        (Some("active"), Some("certificate_changed"))
    );

    let pin = json!({ "tls_fingerprint": shown, "bmc_password": BMC_PASSWORD });
    scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &pin).await.expect(200);
    assert_eq!(scene.bmc(SERIAL).snapshot().logins, logins, "no password was sent before the decision");
    scene.admin.post(&format!("/api/v1/jobs/{id}/resume"), &json!({})).await.expect(202);
    let job = scene.complete_skipping(id).await;
    assert_eq!(job["outcome"], "succeeded", "{job:#}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_out_of_band_inventory_is_stored_beside_the_one_the_machine_reported() {
    let scene = scene(|_| {}).await;
    let none = scene.admin.get(&place("inventory")).await.expect(200);
    assert_eq!((&none["inventory"], &none["out_of_band"]), (&json!(null), &json!(null)));
    let (job, shown) = done(&scene, "inventory", json!({})).await;
    assert_eq!((&job["outcome"], &shown["kind"]), (&json!("succeeded"), &json!("inventoryOOB")), "{job:#}");
    let found = scene.admin.get(&place("inventory")).await.expect(200);
    let hardware = &found["out_of_band"];
    let count = |list: &str| hardware[list].as_array().unwrap().len();
    let counts = ["processors", "memory", "drives", "nics", "power_supplies"].map(count);
    assert_eq!(counts, [2, 4, 2, 2, 2], "{hardware:#}");
    assert_eq!(hardware["nics"][0]["mac"], "02:00:00:00:00:00");
    assert_eq!(
        (&hardware["nics"][0]["link"], &hardware["drives"][1]["serial"]),
        (&json!("LinkUp"), &json!("S0NVME0002"))
    );
    assert_eq!(hardware["incomplete"], json!([]));
    assert!(found["out_of_band_read_at"].is_string() && found["received_at"].is_null(), "{found:#}");
    assert_eq!(scene.bmc(SERIAL).mutations(), []);

    // The second read finds the same machine.
    let (job, _) = done(&scene, "inventoryOOB", json!({})).await;
    let events = scene.admin.event_log(job["job_id"].as_str().unwrap()).await;
    assert!(events.contains("inventory.read") && !events.contains("inventory.changed"), "{events}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_requests_at_the_same_time_exactly_one_is_accepted() {
    let scene = scene(|_| {}).await;
    set_of(&scene.admin, "generic", &[File::of("bios", "99.1")]).await;
    let kinds = [
        json!({ "kind": "powerCycleHard" }),
        json!({ "kind": "PowerCycleSoft" }),
        json!({ "kind": "bmcReset" }),
        json!({ "kind": "inventoryOOB" }),
        json!({ "kind": "biosApply", "parameters": { "attributes": { "BootMode": "Uefi" } } }),
        json!({ "kind": "firmwareInstall", "parameters": { "firmware_set": "all" } }),
    ];
    // Without its BMC the accepted condition cannot end before the last request is refused.
    scene.bmc(SERIAL).set_reachable(false);
    let requests = (0..100).map(|n| {
        let (client, body) = (scene.admin.clone(), kinds[n % kinds.len()].clone());
        async move { client.post(&place("condition"), &body).await }
    });
    let responses = futures_util::future::join_all(requests).await;
    let accepted: Vec<_> = responses.iter().filter(|response| response.status == 200).collect();
    assert_eq!(accepted.len(), 1);
    for response in responses.iter().filter(|response| response.status != 200) {
        response.refused(409, "conflict.condition");
    }
    let id = accepted[0].json()["id"].as_str().unwrap().to_owned();
    scene.bmc(SERIAL).set_reachable(true);
    // The machine of this scene has no settings and other firmware, so that not every kind succeeds on it.
    assert_eq!(scene.complete_skipping(&id).await["status"], "complete");
    let listed = scene.admin.get(&format!("/api/v1/jobs?server_serial={SERIAL}")).await.expect(200);
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1, "nothing was left behind by the others");
    scene.end().await;
}

/// A server whose lock an installation holds until its report, and the id of that job.
async fn installing() -> (Scene, String) {
    let spec = with_bmc(silent(SERIAL), |bmc| {
        bmc.manager.begins_after = Duration::ZERO;
        bmc.manager.away = Duration::from_millis(300);
    });
    let scene = Scene::start_with(vec![spec], |settings, _| quick(settings)).await;
    let job = scene.admin.create_job(SERIAL).await;
    scene.admin.awaits_report(&job).await;
    (scene, job)
}

async fn queued(scene: &Scene, kind: &str, priority: i32) -> String {
    let body = json!({ "kind": kind, "queue": true, "priority": priority });
    let created = request(&scene.admin, body).await;
    assert_eq!(created["state"], "pending", "{created:#}");
    created["id"].as_str().unwrap().to_owned()
}

async fn state(scene: &Scene, kind: &str) -> Value {
    scene.admin.get(&place(&format!("condition?kind={kind}"))).await.expect(200)["state"].clone()
}

/// Case 1 of the firmware install service: two pending conditions are finalised one after the other, by priority, then age.
#[tokio::test(flavor = "multi_thread")]
async fn two_pending_conditions_run_one_after_the_other_by_priority_then_age() {
    for (priorities, first) in [([0, 0], "powerCycleHard"), ([0, 10], "bmcReset")] {
        let (scene, job) = installing().await;
        let cycle = queued(&scene, "powerCycleHard", priorities[0]).await;
        let reset = queued(&scene, "bmcReset", priorities[1]).await;
        let why = scene.admin.explain(&cycle).await;
        assert_eq!(why["condition"], "blocked", "{why}");
        assert!(why["summary"].as_str().unwrap().contains(&job), "the explanation names the holder: {why}");
        let mutations = scene.bmc(SERIAL).mutations().len();
        scene.admin.post(&format!("/api/v1/jobs/{job}/cancel"), &json!({})).await.expect(202);
        scene.complete_skipping(&job).await;
        assert!(scene.bmc(SERIAL).mutations().len() >= mutations);
        let (cycle, reset) = (scene.complete_skipping(&cycle).await, scene.complete_skipping(&reset).await);
        assert_eq!(
            (&cycle["outcome"], &reset["outcome"]),
            (&json!("succeeded"), &json!("succeeded")),
            "{cycle:#}\n{reset:#}"
        );
        let (earlier, later) = if first == "bmcReset" { (&reset, &cycle) } else { (&cycle, &reset) };
        let started = |job: &Value| job["steps"][0]["started_at"].as_str().unwrap().to_owned();
        let ended =
            earlier["steps"].as_array().unwrap().last().unwrap()["ended_at"].as_str().unwrap().to_owned();
        assert!(ended <= started(later), "{first} runs alone, and first:\n{earlier:#}\n{later:#}");
        scene.end().await;
    }
}

/// A chassis with two servers and one BMC.
#[tokio::test(flavor = "multi_thread")]
async fn two_servers_of_one_bmc_are_worked_on_one_after_the_other() {
    let scene = scene(|bmc| bmc.power.graceful = Graceful::IgnoredByHost).await;
    scene.admin.register_at("COND-2", &scene.server(SERIAL).bmc_url).await;
    let cycle =
        request(&scene.admin, json!({ "kind": "powerCycleSoft", "parameters": { "force": true } })).await;
    let cycle = cycle["id"].as_str().unwrap().to_owned();
    scene.admin.wait(&cycle, "the grace period", |job| job["wait"]["reason"] == "graceful_shutdown").await;
    let other = scene.admin.post("/api/v1/servers/COND-2/condition", &json!({ "kind": "bmcReset" })).await;
    let other = other.expect(200)["id"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        scene.skip(Duration::from_secs(10));
        let why = scene.admin.explain(&other).await;
        assert_eq!(why["condition"], "blocked", "{why}");
        assert!(why["summary"].as_str().unwrap().contains(&cycle), "the explanation names the holder: {why}");
    }
    let cycle = scene.complete_skipping(&cycle).await;
    assert_eq!(cycle["outcome"], "succeeded");
    // Its own end does not matter: the BMC shows the serial number of the first server.
    let other = scene.complete_skipping(&other).await;
    let ended = cycle["steps"].as_array().unwrap().last().unwrap()["ended_at"].as_str().unwrap();
    let started = other["steps"][0]["started_at"].as_str().unwrap();
    assert!(ended <= started, "one after the other:\n{cycle:#}\n{other:#}");
    scene.end().await;
}

/// Case 2 of the firmware install service: a condition that is set while another one is active stays pending until its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_condition_stays_pending_while_another_one_is_active() {
    let scene = scene(|bmc| bmc.power.graceful = Graceful::IgnoredByHost).await;
    let cycle =
        request(&scene.admin, json!({ "kind": "powerCycleSoft", "parameters": { "force": true } })).await;
    let cycle = cycle["id"].as_str().unwrap().to_owned();
    scene.admin.wait(&cycle, "the grace period", |job| job["wait"]["reason"] == "graceful_shutdown").await;
    let refused = scene.admin.post(&place("condition"), &json!({ "kind": "bmcReset" })).await;
    let refused = refused.refused(409, "conflict.condition");
    assert!(refused["message"].as_str().unwrap().contains(&cycle), "{refused}");
    let reset = queued(&scene, "bmcReset", 100).await;
    // Another one of the same kind is refused while the first is queued, also with `queue`.
    let again = scene.admin.post(&place("condition"), &json!({ "kind": "bmcReset", "queue": true })).await;
    again.refused(409, "conflict.condition");
    for _ in 0..3 {
        scene.skip(Duration::from_secs(10));
        assert_eq!(state(&scene, "bmcReset").await, "pending");
        assert_eq!(scene.bmc(SERIAL).manager_resets(), 0);
    }
    assert_eq!(scene.complete_skipping(&cycle).await["outcome"], "succeeded");
    assert_eq!(scene.complete_skipping(&reset).await["outcome"], "succeeded");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_is_requested_in_either_spelling_and_read_in_the_stored_one() {
    let scene = scene(|bmc| bmc.starts_on = false).await;
    scene.admin.get(&place("condition?kind=powerCycleHard")).await.refused(404, "unknown_condition");
    scene.admin.get(&place("condition")).await.refused(400, "validation_error");
    let id = scene.admin.get(&format!("/api/v1/servers/{SERIAL}")).await.expect(200)["id"].clone();
    let by_id = format!("/api/v1/servers/{}/condition", id.as_str().unwrap());
    let created = scene.admin.post(&by_id, &json!({ "kind": "PowerCycleHard" })).await.expect(200);
    assert_eq!(
        (created["kind"].as_str(), created["server_serial"].as_str()),
        (Some("powerCycleHard"), Some(SERIAL))
    );
    assert_eq!(created["parameters"], json!({ "power_on": false }));
    // A worker may have begun before the response was made.
    assert_eq!(created["controller"].is_null(), created["state"] == "pending", "{created:#}");
    scene.complete_skipping(created["id"].as_str().unwrap()).await;
    for kind in ["powerCycleHard", "PowerCycleHard"] {
        let shown = scene.admin.get(&format!("{by_id}?kind={kind}")).await;
        let tag = shown.header("etag").unwrap().to_owned();
        let shown = shown.expect(200);
        assert_eq!(
            (shown["kind"].as_str(), tag),
            (Some("powerCycleHard"), format!("\"{}\"", shown["revision"]))
        );
        assert!(
            shown["controller"].as_str().is_some_and(|name| name.starts_with("controller-")),
            "{shown:#}"
        );
    }
    for (body, code) in [
        (json!({ "kind": "firmwareDowngrade" }), "validation_error"),
        (json!({ "kind": "powercyclehard" }), "validation_error"),
        (json!({ "kind": "powerCycleHard", "parameters": { "force": true } }), "validation_error"),
        (json!({ "kind": "powerCycleHard", "state": "succeeded" }), "validation_error"),
        (json!({ "kind": "powerCycleHard", "priority": 101 }), "validation_error"),
        (json!({ "kind": "powerCycleHard", "deadline": "2020-01-01T00:00:00Z" }), "validation_error"),
    ] {
        scene.admin.post(&place("condition"), &body).await.refused(400, code);
    }
    let nowhere = scene.admin.post("/api/v1/servers/NO-SUCH/condition", &json!({ "kind": "bmcReset" })).await;
    nowhere.refused(404, "unknown_server");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_an_old_revision_is_refused_and_changes_nothing() {
    let scene = scene(|bmc| bmc.starts_on = false).await;
    let kind = "powerCycleHard";
    let conflict = |body: Value| {
        let client = scene.admin.clone();
        async move { client.post(&place("condition"), &body).await.refused(409, "conflict.revision") }
    };
    conflict(json!({ "kind": kind, "revision": 7 })).await;
    let (_, shown) = {
        let created = request(&scene.admin, json!({ "kind": kind, "revision": 0 })).await;
        scene.complete_skipping(created["id"].as_str().unwrap()).await;
        (created, scene.admin.get(&place("condition?kind=powerCycleHard")).await.expect(200))
    };
    conflict(json!({ "kind": kind, "revision": 0 })).await;
    let revision = shown["revision"].as_i64().unwrap();
    let old = scene
        .admin
        .request(Method::POST, &place("condition"))
        .header("If-Match", format!("\"{}\"", revision - 1));
    scene.admin.send(old.json(&json!({ "kind": kind }))).await.refused(409, "conflict.revision");
    let same = scene.admin.get(&place("condition?kind=powerCycleHard")).await.expect(200);
    assert_eq!(same, shown, "a refused request changes nothing");
    let right =
        scene.admin.request(Method::POST, &place("condition")).header("If-Match", format!("\"{revision}\""));
    let created = scene.admin.send(right.json(&json!({ "kind": kind }))).await.expect(200);
    scene.complete_skipping(created["id"].as_str().unwrap()).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_says_what_would_happen_and_writes_nothing() {
    let (scene, job) = installing().await;
    let preview = |body: Value| {
        let client = scene.admin.clone();
        async move { client.post(&place("condition?dry_run=true"), &body).await.expect(200) }
    };
    let before = scene.bmc(SERIAL).snapshot().requests;
    let shown = preview(json!({ "kind": "PowerCycleSoft", "parameters": { "force": true } })).await;
    assert_eq!(
        (shown["would"].as_str(), shown["waits_for"].as_str()),
        (Some("accept"), Some(&*job)),
        "{shown:#}"
    );
    assert!(shown["does"].as_str().unwrap().contains("forces it off"), "{shown:#}");
    assert_eq!(shown["steps"][1], "power.off");
    scene.admin.get(&place("condition?kind=powerCycleSoft")).await.refused(404, "unknown_condition");
    assert_eq!(scene.bmc(SERIAL).snapshot().requests, before);
    let open = queued(&scene, "bmcReset", 0).await;
    let shown = preview(json!({ "kind": "powerCycleHard" })).await;
    assert!(shown["would"] == "refuse" && shown["refused"].as_str().unwrap().contains(&open), "{shown:#}");
    let shown = preview(json!({ "kind": "powerCycleHard", "queue": true })).await;
    assert_eq!(shown["would"], "accept", "{shown:#}");
    scene.admin.post(&format!("/api/v1/jobs/{open}/cancel"), &json!({})).await.expect(202);
    scene.admin.post(&format!("/api/v1/jobs/{job}/cancel"), &json!({})).await.expect(202);
    scene.complete_skipping(&job).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_with_one_key_creates_one_condition() {
    let scene = scene(|bmc| bmc.starts_on = false).await;
    let send = |body: Value| {
        let request =
            scene.admin.request(Method::POST, &place("condition")).header("Idempotency-Key", "once");
        scene.admin.send(request.json(&body))
    };
    let first = send(json!({ "kind": "powerCycleHard" })).await.expect(200);
    scene.complete_skipping(first["id"].as_str().unwrap()).await;
    let second = send(json!({ "kind": "PowerCycleHard" })).await.expect(200);
    assert_eq!(second["id"], first["id"], "either spelling is the same request");
    send(json!({ "kind": "bmcReset" })).await.refused(422, "idempotency_key_reused");
    scene.end().await;
}
