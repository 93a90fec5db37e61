//! A job without faults, a job that an operator cancels, and a job whose installer fails.

use std::time::Duration;

use lab_bmc::{Fault, FaultEffect, FaultTrigger, Power};
use lab_machines::{InstallerBehaviour, maintenance_os::unit};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::kit::{ApiResponse, Scene, all_faults_used, healthy, logged_out, recipe, silent, soon, with_bmc};

/// Lists the steps of a job and their phases, in order.
fn steps(job: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    job["steps"].as_array().unwrap().iter().map(|step| (text(&step["step"]), text(&step["phase"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_installs_the_machine_and_leaves_it_on_with_empty_slots() {
    let scene = Scene::start(vec![healthy("OK-1")]).await;
    let id = scene.admin.create_job("OK-1").await;
    let job = scene.admin.complete(&id).await;

    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    assert_eq!((&job["failed_step"], &job["failure"]), (&Value::Null, &Value::Null));
    assert_eq!((&job["wait"], &job["step"]), (&Value::Null, &Value::Null));
    assert_eq!(job["cleanup"], json!({ "state": "done", "remaining": [] }));
    let steps = steps(&job);
    let names: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "validate",
            "iso.build",
            "redfish.discover",
            "redfish.power-off",
            "redfish.eject",
            "redfish.mount.maintenance",
            "redfish.mount.task",
            "redfish.boot-override",
            "redfish.power-on",
            "webhook.wait",
            "cleanup.power-off",
            "cleanup.eject",
            "cleanup.boot-override",
            "cleanup.power-on",
            "cleanup.grant",
        ]
    );
    assert!(steps.iter().all(|(_, phase)| phase == "done"), "{steps:?}");

    let machine = logged_out(scene.bmc("OK-1")).await;
    assert_eq!(machine.power, Power::On);
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()));
    assert_eq!((machine.boots_from_media, machine.ejected_while_running), (1, 0));
    assert!(machine.max_in_flight <= 2, "{machine:?}");
    assert!(machine.max_mutating_in_flight <= 1, "{machine:?}");
    assert_eq!(machine.logins, 1, "a job uses one session: {machine:?}");

    let server = scene.server("OK-1");
    let (device, installed) = tokio::task::block_in_place(|| server.boots_from_disk()).unwrap();
    assert_eq!(device, recipe()["target_disk"].as_str().unwrap());
    assert!(!installed.os_name.is_empty());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn media_grants_and_pull_grants_end_with_their_job() {
    let scene = Scene::start(vec![silent("END-1")]).await;
    let id = scene.admin.create_job("END-1").await;
    let job = scene.admin.awaits_report(&id).await;

    let anonymous = scene.anonymous();
    let slots = scene.bmc("END-1").snapshot().slots;
    let urls: Vec<String> =
        slots.iter().filter_map(|slot| slot.image.as_ref()).map(|url| url.as_str().to_owned()).collect();
    assert_eq!(urls.len(), 2, "a boot image and a task image");
    for url in &urls {
        assert_eq!(anonymous.get(url).await.status, 200);
    }
    let image = scene.admin.task_image(&id).await;
    let digest = hex::encode(Sha256::digest(&image));
    assert_eq!(job["task_iso_sha256"], json!(digest));
    let task_url = urls.iter().find(|url| url.contains("/task.")).unwrap();
    assert!(anonymous.get(task_url).await.body == image, "both paths return the same bytes");

    let document = scene.admin.job_document(&id).await;
    let registry = &document["registry"];
    let pull = || {
        let request = anonymous
            .request(reqwest::Method::GET, "/v2/os-images/ubuntu-rootfs/manifests/22.04")
            .basic_auth(registry["username"].as_str().unwrap(), registry["password"].as_str());
        anonymous.send(request)
    };
    assert_eq!(pull().await.status, 200);

    let token = document["webhook_token"].as_str().unwrap();
    scene.admin.report("END-1", token, &json!({ "status": "success" })).await.expect(200);
    scene.admin.complete(&id).await;
    for url in &urls {
        anonymous
            .until(url, "the end of the grant", |response| response.status == 404)
            .await
            .refused(404, "not_found");
    }
    scene.admin.get(&format!("/media/tasks/{id}/task.iso")).await.refused(404, "not_found");
    assert_eq!(pull().await.status, 401);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_job_are_read_in_order_and_page_by_page() {
    let mut spec = healthy("STORY-1");
    spec.behaviour = InstallerBehaviour { report_progress: true, ..InstallerBehaviour::default() };
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("STORY-1").await;
    scene.admin.complete(&id).await;

    let whole = scene.admin.get(&format!("/api/v1/jobs/{id}/events?limit=1000")).await.expect(200);
    let whole = whole["events"].as_array().unwrap().clone();
    let sequence: Vec<i64> = whole.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert!(sequence.is_sorted_by(|a, b| a < b), "{sequence:?}");
    let mut paged = Vec::new();
    let mut after = 0;
    loop {
        let page =
            scene.admin.get(&format!("/api/v1/jobs/{id}/events?after={after}&limit=3")).await.expect(200);
        let events = page["events"].as_array().unwrap();
        assert!(events.len() <= 3);
        if events.is_empty() {
            break;
        }
        paged.extend(events.iter().cloned());
        after = page["next"].as_i64().unwrap();
    }
    assert_eq!(paged, whole);

    let place = |kind: &str| {
        let found = whole.iter().position(|event| event["type"] == kind);
        found.unwrap_or_else(|| panic!("no event {kind} in {whole:#?}"))
    };
    let order = [
        "job.created",
        "validate.done",
        "iso.built",
        "redfish.discovered",
        "redfish.mounted",
        "redfish.boot-once",
        "report.progress",
        "report.success",
        "run.outcome",
        "run.ended",
    ];
    assert!(order.map(place).is_sorted(), "{:?}", order.map(place));
    assert!(whole.iter().all(|event| event["job_id"] == json!(id)));
    for kind in ["validate.done", "iso.built", "redfish.discovered", "redfish.mounted", "redfish.boot-once"] {
        let event = &whole[place(kind)];
        assert!(event["step"].is_string(), "a step wrote it: {event}");
    }
    let built = &whole[place("iso.built")];
    assert_eq!(built["step"], "iso.build");
    assert_eq!(built["data"]["sha256"], scene.admin.job(&id).await["task_iso_sha256"]);
    assert!(built["data"]["size"].as_u64().unwrap() > 0, "{built}");
    assert!(
        whole.iter().all(|event| event["level"] == "info"),
        "a job without faults has no warning: {whole:#?}"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_installed_in_parallel_and_counted() {
    let serials = ["SIDE-1", "SIDE-2", "SIDE-3"];
    let mut specs: Vec<_> = serials.map(healthy).into();
    specs[2].behaviour = InstallerBehaviour::failing_at(unit::PARTITION);
    for spec in &mut specs {
        // The report latency is counted only if the job waits for the report, so the installer is slow.
        spec.behaviour.unit_time = Duration::from_millis(200);
    }
    let scene = Scene::start(specs).await;
    let mut ids = Vec::new();
    for serial in serials {
        ids.push(scene.admin.create_job(serial).await);
    }
    for id in &ids {
        scene.admin.complete(id).await;
    }
    let listed = scene.admin.get("/api/v1/jobs?outcome=succeeded").await.expect(200);
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 2);
    let failed =
        scene.admin.get("/api/v1/jobs?failure_class=installer&server_serial=SIDE-3").await.expect(200);
    assert_eq!(failed["jobs"][0]["job_id"], json!(ids[2]));

    let lines = [
        "job_total{status=\"complete\"} 3",
        "job_duration_seconds_count{outcome=\"succeeded\"} 2",
        "job_duration_seconds_count{outcome=\"failed\"} 1",
        "webhook_latency_seconds_count 3",
        "iso_build_duration_seconds_count 3",
        "iso_size_bytes_count 3",
        "redfish_request_duration_seconds_count{op=",
    ];
    let counted = |metrics: &ApiResponse| lines.iter().all(|line| metrics.text().contains(line));
    scene.admin.until("/metrics", "the count of three jobs", counted).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_installation_shows_the_failed_unit_and_is_cleaned_up() {
    let mut spec = healthy("FAIL-1");
    spec.behaviour = InstallerBehaviour::failing_at(unit::IMAGE_LINUX);
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("FAIL-1").await;
    let job = scene.admin.complete(&id).await;

    assert_eq!((&job["outcome"], &job["failed_step"]), (&json!("failed"), &json!(unit::IMAGE_LINUX)));
    assert_eq!(job["failure"]["class"], "installer");
    assert!(!job["failure"]["next_action"].as_str().unwrap().is_empty());
    assert_eq!(job["cleanup"]["state"], "done");
    let machine = scene.bmc("FAIL-1").snapshot();
    assert_eq!(
        (machine.power, machine.boots_from_media),
        (Power::Off, 1),
        "the host was off before the job and is off after it"
    );
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()));
    assert_eq!(machine.ejected_while_running, 0);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_sent_twice_by_the_machine_changes_nothing() {
    let mut spec = healthy("TWICE-1");
    spec.behaviour = InstallerBehaviour { report_twice: true, ..InstallerBehaviour::default() };
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("TWICE-1").await;
    let job = scene.admin.complete(&id).await;
    assert_eq!(job["outcome"], "succeeded");
    let events = scene.admin.events(&id).await;
    assert_eq!(events.iter().filter(|event| event["type"] == "report.success").count(), 1);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_job_is_cancelled_without_a_request_to_its_bmc() {
    let scene =
        Scene::start_with(vec![healthy("QUEUE-1")], |settings, _| settings.worker_concurrency = 0).await;
    let id = scene.admin.create_job("QUEUE-1").await;
    assert_eq!(scene.admin.job(&id).await["status"], "queued");
    let body = json!({ "reason": "wrong rack" });
    let job = scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &body).await.expect(202);
    assert_eq!((&job["outcome"], &job["failure"]["class"]), (&json!("cancelled"), &json!("cancelled")));
    assert!(job["failure"]["summary"].as_str().unwrap().contains("wrong rack"), "{job}");
    // Without workers the job still ends and its server is free for another job, which does not start.
    let job = scene.admin.complete(&id).await;
    assert_eq!(job["cleanup"], json!({ "state": "done", "remaining": [] }), "{job}");
    let next = scene.admin.create_job("QUEUE-1").await;
    assert_eq!(scene.admin.job(&next).await["status"], "queued");
    assert_eq!(scene.bmc("QUEUE-1").snapshot().requests, 0);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_cancelled_while_its_machine_installs_is_cleaned_up() {
    let scene = Scene::start(vec![silent("STOP-1")]).await;
    let id = scene.admin.create_job("STOP-1").await;
    scene.admin.awaits_report(&id).await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    let job = scene.admin.complete(&id).await;

    assert_eq!((&job["outcome"], &job["failure"]["class"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(job["cleanup"]["state"], "done");
    let machine = scene.bmc("STOP-1").snapshot();
    assert_eq!((machine.power, machine.ejected_while_running), (Power::Off, 0));
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()));
    // A client that did not receive the response repeats the cancel.
    let again = scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    assert_eq!(again["last_update"], job["last_update"]);
    scene.admin.post(&format!("/api/v1/jobs/{id}/hold"), &json!({})).await.refused(409, "conflict.phase");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_cancelled_in_the_middle_of_an_insert_empties_the_slots_it_was_filling() {
    let scene = Scene::start(vec![healthy("HALF-1")]).await;
    let bmc = scene.bmc("HALF-1");
    bmc.inject(Fault::once(
        FaultTrigger::InsertInto("CD2".into()),
        FaultEffect::Delay(Duration::from_secs(1)),
    ));
    let id = scene.admin.create_job("HALF-1").await;
    all_faults_used(bmc).await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    let job = scene.complete_skipping(&id).await;

    assert_eq!(job["outcome"], "cancelled");
    let machine = soon("empty slots", bmc.wait_for(|now| now.in_flight == 0)).await;
    assert!(
        machine.slots.iter().all(|slot| slot.image.is_none()),
        "{machine:?}\n{}",
        scene.admin.event_log(&id).await
    );
    assert_eq!((machine.power, machine.boots_from_media), (Power::Off, 0));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_was_on_is_on_again_after_a_cancel() {
    let spec = with_bmc(silent("WASON-1"), |bmc| bmc.starts_on = true);
    let scene = Scene::start(vec![spec]).await;
    let id = scene.admin.create_job("WASON-1").await;
    scene.admin.awaits_report(&id).await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.admin.complete(&id).await;
    let machine = scene.bmc("WASON-1").snapshot();
    assert_eq!((machine.power, machine.boots_from_media, machine.ejected_while_running), (Power::On, 1, 0));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_missing_from_the_registry_ends_the_job_before_the_machine_is_changed() {
    let scene = Scene::start(vec![healthy("NOIMG-1")]).await;
    let host = scene.admin.base.strip_prefix("http://").unwrap();
    let mut recipe = recipe();
    recipe["oci_url"] = json!(format!("{host}/os-images/forgotten:1"));
    let body = json!({ "server_serial": "NOIMG-1", "recipe": recipe });
    let job = scene.admin.post("/api/v1/jobs", &body).await.expect(202);
    let id = job["job_id"].as_str().unwrap();
    let job = scene.admin.complete(id).await;
    assert_eq!((&job["failed_step"], &job["failure"]["class"]), (&json!("validate"), &json!("input")));
    assert!(job["failure"]["summary"].as_str().unwrap().contains("os-images/forgotten:1"), "{job}");
    assert_eq!(scene.bmc("NOIMG-1").snapshot().requests, 0);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_maintenance_iso_ends_the_job_before_the_machine_is_changed() {
    let scene = Scene::start(vec![healthy("NOISO-1")]).await;
    let gone = scene.folder.path().join("gone.iso");
    let body = json!({ "server_serial": "NOISO-1", "recipe": recipe(), "maintenance_iso_url": gone });
    let job = scene.admin.post("/api/v1/jobs", &body).await.expect(202);
    let id = job["job_id"].as_str().unwrap();
    let job = scene.complete_skipping(id).await;
    assert_eq!((&job["failed_step"], &job["failure"]["class"]), (&json!("validate"), &json!("media")));
    assert_eq!(scene.bmc("NOISO-1").snapshot().requests, 0);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_image_is_that_of_the_setting_is_retried_although_no_client_may_name_it() {
    let scene = Scene::start_with(vec![silent("ISO-2")], |settings, _| {
        settings.maintenance_iso_url = Some("http://user:pass@127.0.0.1:9/maintenance.iso".to_owned());
    })
    .await;
    let id = scene.admin.create_job("ISO-2").await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.admin.complete(&id).await;
    let retried = scene.admin.post(&format!("/api/v1/jobs/{id}/retry"), &json!({})).await.expect(202);
    let retried = retried["job_id"].as_str().unwrap();
    scene.admin.post(&format!("/api/v1/jobs/{retried}/cancel"), &json!({})).await.expect(202);
    scene.admin.complete(retried).await;
    scene.end().await;
}
