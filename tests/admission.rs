//! Which jobs may start: dry run, drain, maintenance, limits, step timeouts.

use std::time::Duration;

use lab_machines::{HostKind, ServerSpec};
use reqwest::Method;
use serde_json::{Value, json};
use settings::Settings;

use crate::command_line::shoal;
use crate::kit::{Client, Scene, healthy, recipe, silent};

fn order(serial: &str) -> Value {
    json!({ "server_serial": serial, "recipe": recipe() })
}

/// Reads all rows of the database, table by table.
fn contents(scene: &Scene) -> Vec<String> {
    let view = rusqlite::Connection::open(scene.folder.path().join("data/provisioner.db")).unwrap();
    let mut tables =
        view.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut rows = Vec::new();
    for table in tables {
        let mut all = view.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = all.column_count();
        let mut found = all.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let values: Vec<rusqlite::types::Value> =
                (0..columns).map(|place| row.get(place).unwrap()).collect();
            rows.push(format!("{table} {values:?}"));
        }
    }
    rows.sort();
    rows
}

async fn label(admin: &Client, serial: &str, site: &str) {
    let labels = json!({ "labels": { "site": site } });
    admin.patch(&format!("/api/v1/servers/{serial}"), &labels).await.expect(200);
}

fn idle(settings: &mut Settings) {
    settings.worker_concurrency = 0;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_shows_what_a_job_would_do_and_writes_nothing() {
    let scene = Scene::start_with(vec![silent("DRY-1"), silent("DRY-2")], |settings, _| idle(settings)).await;
    let admin = &scene.admin;
    // The events of the push of the image are written up to a second after it.
    let events = "/api/v1/events?limit=100";
    admin.until(events, "the push", |page| page.json().to_string().contains("registry.push-tag")).await;
    let before = contents(&scene);
    let plan = admin.post("/api/v1/jobs?dry_run=true", &order("DRY-1")).await.expect(200);
    assert_eq!(
        (&plan["would"], &plan["refused"], &plan["dry_run"]),
        (&json!("accept"), &json!(null), &json!(true))
    );
    let steps: Vec<&str> =
        plan["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(
        (steps[0], steps[9], steps[14], steps.len()),
        ("validate", "webhook.wait", "cleanup.grant", 15)
    );
    assert!(plan["steps"][3]["budget_s"].as_u64().unwrap() > 0, "{plan}");
    assert!(plan["steps"][9]["wait_s"].as_u64().unwrap() > 0, "the limit of the wait for the report: {plan}");
    assert!(plan["task_image"]["size"].as_u64().unwrap() >= 1 << 20, "{plan}");
    assert_eq!(plan["task_image"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!((&plan["os_image_held"], &plan["slot_plan"]), (&json!(true), &json!(null)), "{plan}");
    assert_eq!(plan["blocked_by"], json!([]), "{plan}");
    assert_eq!(contents(&scene), before, "a dry run has written something");

    // An invalid request is refused as without dry run. An obstacle of the moment is part of the response.
    admin
        .post("/api/v1/jobs?dry_run=true", &json!({ "server_serial": "DRY-1" }))
        .await
        .refused(400, "validation_error");
    admin.post("/api/v1/jobs?dry_run=true", &order("DRY-9")).await.refused(404, "unknown_server");
    admin.post("/api/v1/jobs?dry_run=maybe", &order("DRY-1")).await.refused(400, "validation_error");
    assert_eq!(contents(&scene), before);
    let id = admin.create_job("DRY-1").await;
    admin.post("/api/v1/drain", &json!({})).await.expect(202);
    let before = contents(&scene);
    let plan = admin.post("/api/v1/jobs?dry_run=true", &order("DRY-1")).await.expect(200);
    assert_eq!((&plan["would"], &plan["refused"]["status"]), (&json!("refuse"), &json!(409)));
    assert_eq!(plan["refused"]["error"]["error"], "conflict.active_job");
    assert!(plan["refused"]["error"]["message"].as_str().unwrap().contains(&id), "{plan}");
    assert_eq!(plan["gates"][0]["name"], "drain");
    assert_eq!(contents(&scene), before);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_many_servers_says_of_each_what_the_batch_then_does() {
    let servers = vec![silent("MANY-1"), silent("MANY-2"), silent("MANY-3")];
    let scene = Scene::start_with(servers, |settings, _| idle(settings)).await;
    let events = "/api/v1/events?limit=100";
    scene.admin.until(events, "the push", |page| page.json().to_string().contains("registry.push-tag")).await;
    scene.admin.create_job("MANY-2").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recipe.json");
    std::fs::write(&file, recipe().to_string()).unwrap();
    // The second has an unfinished job, the fourth is not registered, the fifth is the first again.
    let serials = ["MANY-1", "MANY-2", "MANY-3", "MANY-9", "MANY-1"];
    // The longest key: that of a row is longer.
    let key = "k".repeat(128);
    let create = ["job", "create", "--recipe", file.to_str().unwrap(), "--idempotency-key", &key, "--json"];
    let create: Vec<&str> =
        create.into_iter().chain(serials.iter().flat_map(|serial| ["--server", serial])).collect();
    let run = async |more: &[&str], code: i32| {
        let ran = shoal(&scene.admin, &[&create[..], more].concat()).await;
        assert_eq!(ran.status.code(), Some(code), "{}", String::from_utf8_lossy(&ran.stderr));
        let document: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let rows = document["rows"].as_array().unwrap().clone();
        let code = |row: &Value| row["error"]["error"].as_str().unwrap_or_default().to_owned();
        rows.iter().map(|row| (row["result"].as_str().unwrap().to_owned(), code(row))).collect::<Vec<_>>()
    };
    let owned = |(result, code): (&str, &str)| (result.to_owned(), code.to_owned());
    let expected = [
        ("accepted", ""),
        ("refused", "conflict.active_job"),
        ("accepted", ""),
        ("refused", "unknown_server"),
        ("refused", "conflict.active_job"),
    ]
    .map(owned);
    let before = contents(&scene);
    assert_eq!(run(&["--dry-run"], 4).await, expected);
    assert_eq!(contents(&scene), before, "a dry run has written something");
    assert_eq!(run(&[], 1).await, expected, "the batch");
    // The request again, with the key that it had: its jobs are found.
    let again = expected.map(|(result, code)| (result.replace("accepted", "exists"), code));
    assert_eq!(run(&["--dry-run"], 4).await, again);
    assert_eq!(run(&[], 1).await, again, "the batch again");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_known_server_shows_its_slot_plan_and_the_maintenance_image() {
    let scene = Scene::start(vec![healthy("DRY-3")]).await;
    let id = scene.admin.create_job("DRY-3").await;
    scene.admin.complete(&id).await;
    let plan = scene.admin.post("/api/v1/jobs?dry_run=true", &order("DRY-3")).await.expect(200);
    assert_eq!((&plan["would"], &plan["slot_plan"]), (&json!("accept"), &json!("dual")), "{plan}");
    assert_eq!(plan["maintenance_image"]["sha256"].as_str().unwrap().len(), 64, "{plan}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_returns_its_job_after_its_deadline_has_passed() {
    let scene =
        Scene::start_with(vec![silent("LATE-1"), silent("LATE-2")], |settings, _| idle(settings)).await;
    let deadline = model::Clock::now(&model::SystemClock).plus(Duration::from_secs(300));
    let ask = |path: &str, body: Value| {
        let request = scene.admin.request(Method::POST, path).header("Idempotency-Key", "late").json(&body);
        scene.admin.send(request)
    };
    let mut job = order("LATE-1");
    job["deadline"] = json!(deadline);
    let batch = json!({ "rows": [{ "server_serial": "LATE-2" }], "recipe": recipe(), "deadline": deadline });
    let first = ask("/api/v1/jobs", job.clone()).await.expect(202);
    let rows = ask("/api/v1/batches", batch.clone()).await.expect(202);
    scene.skip(Duration::from_secs(600));
    let again = ask("/api/v1/jobs", job.clone()).await.expect(200);
    assert_eq!(again["job_id"], first["job_id"]);
    let rows_again = ask("/api/v1/batches", batch).await.expect(200);
    assert_eq!(rows_again["rows"][0]["job_id"], rows["rows"][0]["job_id"], "{rows_again}");
    // Another request under the key is refused, and a new request whose deadline has passed is refused.
    job["priority"] = json!(3);
    ask("/api/v1/jobs", job.clone()).await.refused(422, "idempotency_key_reused");
    scene.admin.post("/api/v1/jobs", &job).await.refused(400, "validation_error");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_controller_accepts_jobs_and_starts_them_when_the_drain_ends() {
    let scene = Scene::start(vec![silent("DRAIN-1"), healthy("DRAIN-2")]).await;
    let admin = &scene.admin;
    let begun = admin.create_job("DRAIN-1").await;
    admin.awaits_report(&begun).await;
    let drained = admin.post("/api/v1/drain", &json!({ "reason": "new kernel" })).await.expect(202);
    assert_eq!((&drained["drained"], &drained["drain"]["reason"]), (&json!(true), &json!("new kernel")));
    admin.post("/api/v1/drain", &json!({ "reason": "again" })).await.expect(200);
    let waiting = admin.create_job("DRAIN-2").await;
    // The started job receives its report and is cleaned up.
    let token = admin.job_document(&begun).await["webhook_token"].as_str().unwrap().to_owned();
    admin.report("DRAIN-1", &token, &json!({ "status": "success" })).await.expect(200);
    admin.complete(&begun).await;
    let why = admin.explain(&waiting).await;
    assert_eq!((&why["condition"], &why["reason"]), (&json!("gated"), &json!("drain")), "{why}");
    assert_eq!(admin.job(&waiting).await["status"], "queued");
    let status = admin.get("/api/v1/drain").await.expect(200);
    assert_eq!((&status["queued"], &status["running"]), (&json!(1), &json!(0)), "{status}");
    scene.anonymous().delete("/api/v1/drain").await.refused(401, "unauthorized");
    assert_eq!(admin.delete("/api/v1/drain").await.expect(200)["drained"], json!(false));
    assert_eq!(admin.complete(&waiting).await["outcome"], "succeeded", "{}", admin.event_log(&waiting).await);
    let events = admin.get("/api/v1/events?limit=500").await.expect(200);
    let actor_of = |kind: &str| {
        let events = events["events"].as_array().unwrap();
        events.iter().find(|event| event["type"] == kind).map(|event| event["actor"].clone())
    };
    assert!(actor_of("controller.drained").is_some_and(|actor| actor.as_str() != Some("engine")));
    assert!(actor_of("controller.undrained").is_some());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_in_maintenance_starts_no_job_until_maintenance_ends() {
    let scene = Scene::start(vec![healthy("MAINT-1"), healthy("MAINT-2")]).await;
    let admin = &scene.admin;
    let place = "/api/v1/servers/MAINT-1/maintenance";
    let server = admin.post(place, &json!({ "reason": "new disks" })).await.expect(202);
    assert_eq!(server["maintenance"]["reason"], "new disks");
    admin.post(place, &json!({})).await.expect(200);
    let kept = admin.create_job("MAINT-1").await;
    let other = admin.create_job("MAINT-2").await;
    admin.complete(&other).await;
    let why = admin.explain(&kept).await;
    assert_eq!((&why["condition"], &why["reason"]), (&json!("gated"), &json!("maintenance")), "{why}");
    assert!(why["summary"].as_str().unwrap().contains("new disks"), "{why}");
    assert!(scene.bmc("MAINT-1").mutations().is_empty());
    admin.post("/api/v1/servers/UNKNOWN/maintenance", &json!({})).await.refused(404, "unknown_server");
    assert_eq!(admin.delete(place).await.expect(202)["maintenance"], json!(null));
    assert_eq!(admin.complete(&kept).await["outcome"], "succeeded", "{}", admin.event_log(&kept).await);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_boots_releases_its_power_on_permit_to_the_next_host() {
    let settle = Duration::from_secs(3000);
    let scene = Scene::start_with(vec![silent("POWER-1"), silent("POWER-2")], |settings, _| {
        settings.max_power_ons = 1;
        settings.power_on_settle = settle;
    })
    .await;
    let admin = &scene.admin;
    let (first, second) = (admin.create_job("POWER-1").await, admin.create_job("POWER-2").await);
    // No report is sent and no job ends. The second job gets the permit because the first host reads its boot image.
    admin.awaits_report(&first).await;
    admin.awaits_report(&second).await;
    for id in [first, second] {
        admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
        scene.complete_skipping(&id).await;
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_installer_cannot_report_releases_its_power_on_permit_after_the_settle_time() {
    let settle = Duration::from_secs(120);
    // An idle host reads no boot image, so that only time releases the permit.
    let idle = |serial: &str| ServerSpec { host: HostKind::Idle, ..silent(serial) };
    let scene = Scene::start_with(vec![idle("POWER-1"), idle("POWER-2")], |settings, _| {
        settings.esxi_installer_url = settings.maintenance_iso_url.take();
        settings.max_power_ons = 1;
        settings.power_on_settle = settle;
    })
    .await;
    let recipe = json!({ "task_target": "install-esxi.target", "ks_cfg": "vmaccepteula\nreboot\n" });
    let order = |serial: &str| {
        let body = json!({ "server_serial": serial, "recipe": recipe });
        let admin = scene.admin.clone();
        async move {
            let job = admin.post("/api/v1/jobs", &body).await.expect(202);
            job["job_id"].as_str().unwrap().to_owned()
        }
    };
    let installs = |job: &Value| job["wait"]["reason"] == "install_signs";
    let first = order("POWER-1").await;
    scene.wait_skipping(&first, "the first installation", installs).await;
    let second = order("POWER-2").await;
    scene.wait_skipping(&second, "the queue", |job| job["wait"]["reason"] == "power_permit").await;
    scene.skip(settle);
    scene.wait_skipping(&second, "the second installation", installs).await;
    for id in [first, second] {
        scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
        scene.complete_skipping(&id).await;
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_site_limit_queues_jobs_of_one_site_and_explain_names_it() {
    let scene =
        Scene::start_with(vec![silent("SITE-1"), silent("SITE-2"), silent("SITE-3")], |settings, _| {
            settings.site_limit = 1;
        })
        .await;
    let admin = &scene.admin;
    label(admin, "SITE-1", "north").await;
    label(admin, "SITE-2", "north").await;
    label(admin, "SITE-3", "south").await;
    let first = admin.create_job("SITE-1").await;
    let second = admin.create_job("SITE-2").await;
    let elsewhere = admin.create_job("SITE-3").await;
    admin.awaits_report(&first).await;
    admin.awaits_report(&elsewhere).await;
    let why = admin.explain(&second).await;
    assert_eq!(why["condition"], "blocked", "{why}");
    let said = why["summary"].as_str().unwrap();
    for part in ["site/north", "SITE_LIMIT", &first, "1 of 1"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let response = admin.post(&format!("/api/v1/jobs/{first}/cancel"), &json!({})).await.expect(202);
    assert!(response["explain"]["summary"].is_string(), "{response}");
    scene.complete_skipping(&first).await;
    admin.awaits_report(&second).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_timeout_comes_from_the_settings_or_the_request_and_an_overdue_wait_is_an_event() {
    let scene = Scene::start_with(vec![silent("TIME-1"), silent("TIME-2")], |settings, _| {
        settings.step_timeouts = vec![("webhook.wait".to_owned(), Duration::from_secs(600))];
    })
    .await;
    let admin = &scene.admin;
    let mut own = order("TIME-2");
    own["timeouts"] = json!({ "webhook.wait": 1200 });
    let usual = admin.create_job("TIME-1").await;
    let own = admin.post("/api/v1/jobs", &own).await.expect(202)["job_id"].as_str().unwrap().to_owned();
    admin.awaits_report(&usual).await;
    admin.awaits_report(&own).await;
    scene.skip(Duration::from_secs(700));
    let failed = scene.complete_skipping(&usual).await;
    assert_eq!((&failed["outcome"], &failed["failure"]["class"]), (&json!("failed"), &json!("deadline")));
    assert!(failed["failure"]["detail"]["deadline"].is_string(), "{failed}");
    let events = admin.events(&usual).await;
    let overdue =
        events.iter().find(|event| event["type"] == "wait.overdue").expect("the event wait.overdue");
    assert_eq!(overdue["data"]["reason"], "report", "{overdue}");
    assert_eq!(admin.job(&own).await["outcome"], json!(null), "the other job has a longer timeout");
    let mut wrong = order("TIME-1");
    wrong["timeouts"] = json!({ "redfish.fly": 5 });
    let refused = admin.post("/api/v1/jobs", &wrong).await.refused(400, "validation_error");
    assert_eq!(refused["details"][0]["path"], "/timeouts/redfish.fly");
    scene.end().await;
}
