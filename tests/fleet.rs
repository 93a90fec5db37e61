//! Many servers and many jobs: filters, imports, batches that stop, explain themselves and are retried.

use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{BMC_PASSWORD, BMC_USER, Client, DataDir, Scene, binary, recipe, silent, start_farm};

fn rows(serials: &[&str]) -> Value {
    serials.iter().map(|serial| json!({ "server_serial": serial })).collect()
}

fn jobs(batch: &Value) -> Vec<String> {
    let rows = batch["rows"].as_array().unwrap();
    rows.iter().map(|row| row["job_id"].as_str().unwrap().to_owned()).collect()
}

/// Sends the report of a machine whose job waits for it.
pub(crate) async fn report(client: &Client, serial: &str, id: &str, outcome: &Value) {
    client.awaits_report(id).await;
    let token = client.job_document(id).await["webhook_token"].as_str().unwrap().to_owned();
    let mut body = outcome.clone();
    body["job_id"] = json!(id);
    client.report(serial, &token, &body).await.expect(200);
}

fn success() -> Value {
    json!({ "status": "success" })
}

pub(crate) fn failed() -> Value {
    json!({ "status": "failed", "failed_step": "image-linux.service" })
}

async fn listed(client: &Client, query: &str, key: &str, id: &str) -> Vec<String> {
    let page = client.get(query).await.expect(200);
    page[key].as_array().unwrap().iter().map(|row| row[id].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_and_servers_are_found_by_what_a_filter_says() {
    let scene = Scene::start(vec![silent("FIL-1"), silent("FIL-2"), silent("XIL-3")]).await;
    for (serial, rack) in [("FIL-1", "7"), ("FIL-2", "8")] {
        let labels = json!({ "labels": { "rack": rack, "site": "north" } });
        scene.admin.patch(&format!("/api/v1/servers/{serial}"), &labels).await.expect(200);
    }
    let first = scene.admin.create_job("FIL-1").await;
    let second = scene.admin.create_job("FIL-2").await;
    scene.admin.awaits_report(&first).await;
    scene.admin.awaits_report(&second).await;
    scene.admin.post(&format!("/api/v1/jobs/{first}/hold"), &json!({})).await.expect(202);
    scene.admin.wait(&first, "the hold", |job| !job["hold"].is_null()).await;

    let found =
        async |query: &str| listed(&scene.admin, &format!("/api/v1/jobs?{query}"), "jobs", "job_id").await;
    assert_eq!(found("condition=held").await, std::slice::from_ref(&first));
    assert_eq!(found("condition=waiting").await, std::slice::from_ref(&second));
    assert_eq!(found("label=rack%3D7").await, std::slice::from_ref(&first), "a label of the server");
    assert_eq!(found("label=site%3Dnorth&label=rack!%3D7").await, std::slice::from_ref(&second));
    assert_eq!(found("filter=site%3Dnorth%20-condition%3Aheld").await, std::slice::from_ref(&second));
    assert_eq!(
        found("serial=FIL-*&order=attention").await,
        [first.clone(), second.clone()],
        "held jobs are first"
    );
    let reason = scene.admin.job(&second).await["wait"]["reason"].as_str().unwrap().to_owned();
    assert_eq!(found(&format!("since=1h&wait={reason}")).await, std::slice::from_ref(&second));
    assert_eq!(found("until=1h").await, [] as [String; 0]);
    assert_eq!(found("q=fIL-2").await, std::slice::from_ref(&second));
    let page = scene.admin.get("/api/v1/jobs?order=attention&limit=1").await.expect(200);
    let cursor = page["next"].as_str().unwrap();
    let rest = found(&format!("order=attention&limit=1&cursor={cursor}")).await;
    assert_eq!((&page["jobs"][0]["job_id"], &rest), (&json!(first), &vec![second.clone()]));

    let servers = async |query: &str| {
        listed(&scene.admin, &format!("/api/v1/servers?{query}"), "servers", "serial").await
    };
    assert_eq!(servers("state=free").await, ["XIL-3"]);
    assert_eq!(servers("state=busy&label=rack!%3D8").await, ["FIL-1"]);
    assert_eq!(servers("condition=held").await, ["FIL-1"]);
    assert_eq!(servers("filter=-site%3Dnorth").await, ["XIL-3"]);

    for (place, path, said) in [
        ("/api/v1/jobs?filter=conditon%3Aheld", "filter", "did you mean condition?"),
        ("/api/v1/servers?state=fre", "state", "did you mean free?"),
        ("/api/v1/jobs?conditions=held", "conditions", "did you mean condition?"),
    ] {
        let refusal = scene.admin.get(place).await.refused(400, "validation_error");
        let detail = &refusal["details"][0];
        assert_eq!(detail["path"], path, "{refusal}");
        assert!(detail["message"].as_str().unwrap().contains(said), "{refusal}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_others_of_a_batch_wait_for_its_canary_and_say_so() {
    let serials = ["CAN-1", "CAN-2", "CAN-3"];
    let scene = Scene::start(serials.map(silent).to_vec()).await;
    let body = json!({ "recipe": recipe(), "rows": rows(&serials), "canary": 1 });
    let batch = scene.admin.post("/api/v1/batches", &body).await.expect(202);
    let ids = jobs(&batch);
    assert_eq!((&batch["canary"], &batch["stop"]["reason"]), (&json!(1), &json!("canary")));
    scene.admin.awaits_report(&ids[0]).await;
    let why = scene.admin.explain(&ids[1]).await;
    assert_eq!((&why["condition"], &why["reason"]), (&json!("gated"), &json!("batch-canary")), "{why}");
    assert!(why["summary"].as_str().unwrap().contains("must succeed before this one starts"), "{why}");
    assert_eq!(scene.bmc("CAN-2").snapshot().requests, 0);
    assert_eq!(listed(&scene.admin, "/api/v1/jobs?condition=gated", "jobs", "job_id").await.len(), 2);

    report(&scene.admin, "CAN-1", &ids[0], &success()).await;
    scene.admin.awaits_report(&ids[1]).await;
    scene.admin.awaits_report(&ids[2]).await;
    let place = format!("/api/v1/batches/{}", batch["batch_id"].as_str().unwrap());
    let batch = scene.admin.get(&place).await.expect(200);
    assert_eq!((&batch["stop"], &batch["causes"]), (&Value::Null, &json!([])), "{batch}");
    scene.admin.post(&format!("{place}/cancel"), &json!({ "all": true })).await.expect(202);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_stops_groups_its_failures_and_is_retried() {
    let serials = ["STO-1", "STO-2", "STO-3"];
    let scene = Scene::start(serials.map(silent).to_vec()).await;
    let body = json!({ "recipe": recipe(), "rows": rows(&serials), "max_parallel": 1, "stop_after": 1 });
    let batch = scene.admin.post("/api/v1/batches", &body).await.expect(202);
    let ids = jobs(&batch);
    let place = format!("/api/v1/batches/{}", batch["batch_id"].as_str().unwrap());
    scene.admin.post(&format!("{place}/retry"), &json!({})).await.refused(409, "conflict.phase");
    report(&scene.admin, "STO-1", &ids[0], &failed()).await;
    scene.complete_skipping(&ids[0]).await;
    let batch = scene.admin.get(&place).await.expect(200);
    assert_eq!(
        (&batch["stop"]["reason"], &batch["stop"]["failures"]),
        (&json!("stopped"), &json!(1)),
        "{batch}"
    );
    let cause = &batch["causes"][0];
    assert_eq!((&cause["jobs"], &cause["step"]), (&json!(1), &json!("image-linux.service")), "{batch}");
    assert_eq!(cause["first"], json!([{ "job_id": ids[0], "server_serial": "STO-1" }]));
    assert!(!cause["next_action"].as_str().unwrap().is_empty());
    let why = scene.admin.explain(&ids[1]).await;
    assert_eq!((&why["condition"], &why["reason"]), (&json!("gated"), &json!("batch-stopped")), "{why}");
    assert_eq!(scene.bmc("STO-2").snapshot().requests, 0, "no further job starts");

    let continued = scene.admin.post(&format!("{place}/continue"), &json!({})).await.expect(202);
    assert_eq!(continued["stop"], Value::Null);
    scene.admin.awaits_report(&ids[1]).await;
    scene.admin.post(&format!("{place}/continue"), &json!({})).await.expect(200);

    // A retry of a cause names it by its id, and with the number that was seen.
    let id = cause["cause"].as_str().unwrap();
    let retry = async |body: Value| scene.admin.post(&format!("{place}/retry"), &body).await;
    retry(json!({ "cause": "0000" })).await.refused(409, "conflict.phase");
    retry(json!({ "cause": id, "expected": 2 })).await.refused(412, "precondition_failed");
    let again = async || {
        let request = scene.admin.request(Method::POST, &format!("{place}/retry"));
        scene
            .admin
            .send(
                request
                    .header("idempotency-key", "again")
                    .json(&json!({ "cause": id, "expected": 1, "stop_after": 2 })),
            )
            .await
    };
    let retried = again().await.expect(202);
    assert_eq!((&retried["retry_of"], &retried["accepted"]), (&batch["batch_id"], &json!(1)), "{retried}");
    assert_eq!((&retried["stop_after"], &retried["max_parallel"]), (&json!(2), &json!(1)));
    let new = jobs(&retried).remove(0);
    let job = scene.admin.job(&new).await;
    assert_eq!((&job["retry_of"], &job["server_serial"]), (&json!(ids[0]), &json!("STO-1")));
    let repeated = again().await.expect(200);
    assert_eq!((jobs(&repeated), &repeated["rows"][0]["result"]), (vec![new.clone()], &json!("exists")));
    report(&scene.admin, "STO-1", &new, &success()).await;
    assert_eq!(scene.complete_skipping(&new).await["outcome"], "succeeded");
    // The server is installed now: its failure is no reason to install it again.
    let refusal = retry(json!({})).await.refused(409, "conflict.phase");
    assert!(refusal["message"].as_str().unwrap().contains("newer installation"), "{refusal}");
    let batch = scene.admin.get(&place).await.expect(200);
    assert_eq!((&batch["retriable"], &batch["causes"][0]["superseded"]), (&json!(0), &json!(1)), "{batch}");
    let repeated = again().await.expect(200);
    assert_eq!(jobs(&repeated), [new], "under its key it is found still");
    scene.admin.post(&format!("{place}/cancel"), &json!({ "all": true })).await.expect(202);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_repeated_under_its_key_creates_no_job_for_a_later_failure() {
    let serials = ["REP-1", "REP-2"];
    let scene = Scene::start(serials.map(silent).to_vec()).await;
    let body = json!({ "recipe": recipe(), "rows": rows(&serials) });
    let batch = scene.admin.post("/api/v1/batches", &body).await.expect(202);
    let ids = jobs(&batch);
    let place = format!("/api/v1/batches/{}/retry", batch["batch_id"].as_str().unwrap());
    let again = async || {
        let request = scene.admin.request(Method::POST, &place);
        scene.admin.send(request.header("idempotency-key", "again").json(&json!({ "expected": 1 }))).await
    };
    report(&scene.admin, "REP-1", &ids[0], &failed()).await;
    scene.complete_skipping(&ids[0]).await;
    let retried = again().await.expect(202);
    report(&scene.admin, "REP-2", &ids[1], &failed()).await;
    scene.complete_skipping(&ids[1]).await;
    let repeated = again().await.expect(200);
    let results: Vec<(&Value, &Value)> =
        repeated["rows"].as_array().unwrap().iter().map(|row| (&row["result"], &row["job_id"])).collect();
    let known = json!(jobs(&retried)[0]);
    assert_eq!(results, [(&json!("exists"), &known), (&json!("refused"), &Value::Null)], "{repeated}");
    assert_eq!((&repeated["batch_id"], &repeated["jobs"]), (&retried["batch_id"], &json!(1)), "{repeated}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_has_stopped_has_stopped_after_a_kill_too() {
    let mut data = DataDir::new();
    let controller = data.serve().await;
    let farm = start_farm(vec![silent("KST-1"), silent("KST-2")], data.path()).await;
    for server in farm.servers() {
        controller.admin.register(server).await;
    }
    controller.admin.push_image().await;
    let body = json!({ "recipe": recipe(), "rows": rows(&["KST-1", "KST-2"]), "canary": 1 });
    let batch = controller.admin.post("/api/v1/batches", &body).await.expect(202);
    let ids = jobs(&batch);
    controller.admin.awaits_report(&ids[0]).await;
    controller.kill();
    let second = data.serve().await;
    let why = second.admin.explain(&ids[1]).await;
    assert_eq!(why["reason"], "batch-canary", "{why}");
    report(&second.admin, "KST-1", &ids[0], &failed()).await;
    second.admin.wait(&ids[0], "the failure", |job| job["outcome"] == "failed").await;
    second.kill();
    let third = data.serve().await;
    let why = third.admin.explain(&ids[1]).await;
    assert_eq!((&why["condition"], &why["reason"]), (&json!("gated"), &json!("batch-stopped")), "{why}");
    assert_eq!(
        farm.servers()[1].bmc.snapshot().requests,
        0,
        "nothing was sent to the BMC of the second server"
    );
    let place = format!("/api/v1/batches/{}", batch["batch_id"].as_str().unwrap());
    third.admin.post(&format!("{place}/continue"), &json!({})).await.expect(202);
    third.admin.awaits_report(&ids[1]).await;
    third.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verb_for_many_jobs_is_previewed_and_refused_when_the_number_has_changed() {
    let serials = ["SEL-1", "SEL-2", "OTH-1"];
    let scene = Scene::start(serials.map(silent).to_vec()).await;
    let mut ids = Vec::new();
    for serial in serials {
        ids.push(scene.admin.create_job(serial).await);
    }
    let cancel = async |query: &str, expected: Option<u64>, filter: &str| {
        let mut body = json!({ "filter": filter, "reason": "wrong image" });
        if let Some(expected) = expected {
            body["expected"] = json!(expected);
        }
        scene.admin.post(&format!("/api/v1/job-selections/cancel{query}"), &body).await
    };
    let preview = cancel("?dry_run=true", None, "serial:SEL-*").await.expect(200);
    assert_eq!((&preview["count"], &preview["cancelled_now"]), (&json!(2), &json!(0)), "{preview}");
    assert_eq!(preview["first"].as_array().unwrap().len(), 2);
    cancel("", None, "serial:SEL-*").await.refused(400, "validation_error");
    cancel("", Some(2), "").await.refused(400, "validation_error");
    let refusal = cancel("", Some(3), "serial:SEL-*").await.refused(412, "precondition_failed");
    assert!(
        refusal["message"].as_str().unwrap().contains("selects 2 jobs now and 3 were expected"),
        "{refusal}"
    );
    assert_eq!(scene.admin.job(&ids[0]).await["outcome"], Value::Null, "nothing was done");
    let done = cancel("", Some(2), "serial:SEL-*").await.expect(202);
    assert_eq!(done["cancelled_now"], 2, "{done}");
    for id in &ids[..2] {
        assert_eq!(scene.complete_skipping(id).await["outcome"], "cancelled");
    }
    assert_eq!(scene.admin.job(&ids[2]).await["outcome"], Value::Null);

    let select = json!({ "filter": "serial:SEL-*", "expected": 2, "max_parallel": 1 });
    let preview = scene.admin.post("/api/v1/job-selections/retry?dry_run=true", &select).await.expect(200);
    assert_eq!(preview["count"], 2, "{preview}");
    let batch = scene.admin.post("/api/v1/job-selections/retry", &select).await.expect(202);
    assert_eq!(
        (&batch["accepted"], &batch["max_parallel"], &batch["retry_of"]),
        (&json!(2), &json!(1), &Value::Null)
    );
    let all = cancel("", Some(3), "status:queued,provisioning").await.expect(202);
    assert_eq!(all["cancelled_now"], 3, "{all}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_many_takes_the_newest_installation_of_each_server_only() {
    let scene = Scene::start(["RET-1", "RET-2"].map(silent).to_vec()).await;
    let cancelled = async |serial: &str| {
        let id = scene.admin.create_job(serial).await;
        scene.admin.awaits_report(&id).await;
        scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await;
        scene.complete_skipping(&id).await;
        id
    };
    cancelled("RET-1").await;
    let newest = cancelled("RET-1").await;
    cancelled("RET-2").await;
    let installed = scene.admin.create_job("RET-2").await;
    scene.admin.awaits_report(&installed).await;
    report(&scene.admin, "RET-2", &installed, &success()).await;
    scene.complete_skipping(&installed).await;

    let select = json!({ "filter": "serial:RET-*", "expected": 1 });
    let preview =
        async || scene.admin.post("/api/v1/job-selections/retry?dry_run=true", &select).await.expect(200);
    let seen = preview().await;
    assert_eq!((&seen["count"], &seen["superseded"]), (&json!(1), &json!(2)), "{seen}");
    assert_eq!(seen["first"][0]["job_id"], json!(newest));
    let batch = scene.admin.post("/api/v1/job-selections/retry", &select).await.expect(202);
    assert_eq!((&batch["accepted"], &batch["superseded"]), (&json!(1), &json!(2)), "{batch}");
    assert_eq!(batch["rows"][0]["server_serial"], "RET-1");
    let seen = preview().await;
    assert_eq!(
        (&seen["count"], &seen["superseded"]),
        (&json!(0), &json!(3)),
        "its retry is under way: {seen}"
    );
    scene.admin.post("/api/v1/job-selections/retry", &select).await.refused(412, "precondition_failed");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_listed_in_pages_and_found_by_time_and_id() {
    let scene = Scene::start_with(vec![silent("PAG-1")], |settings, _| settings.worker_concurrency = 0).await;
    let mut made = Vec::new();
    for _ in 0..3 {
        let body = json!({ "recipe": recipe(), "rows": rows(&["PAG-1"]) });
        let batch = scene.admin.post("/api/v1/batches", &body).await.expect(202);
        made.insert(0, batch["batch_id"].as_str().unwrap().to_owned());
    }
    let get = async |query: &str| scene.admin.get(&format!("/api/v1/batches?{query}")).await.expect(200);
    let ids = |page: &Value| -> Vec<String> {
        let batches = page["batches"].as_array().unwrap().iter();
        batches.map(|batch| batch["batch_id"].as_str().unwrap().to_owned()).collect()
    };
    let first = get("limit=2").await;
    let second = get(&format!("limit=2&cursor={}", first["next"].as_str().unwrap())).await;
    assert_eq!([ids(&first), ids(&second)].concat(), made);
    assert_eq!(second["next"], Value::Null);
    assert_eq!(ids(&get("since=1h").await).len(), 3);
    assert_eq!(ids(&get("since=2100-01-01").await).len(), 0);
    assert_eq!(ids(&get(&format!("id={}", made[1])).await), [made[1].clone()]);
    scene.admin.get("/api/v1/batches?cursor=x").await.refused(400, "validation_error");
    scene.end().await;
}

fn machine(serial: &str) -> Value {
    json!({ "serial": serial, "bmc_address": "192.0.2.1", "bmc_username": "u", "bmc_password": "a password of a BMC" })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_has_a_result_per_row_and_doubles_nothing() {
    let scene = Scene::start(vec![]).await;
    let mut labelled = machine("IMP-2");
    labelled["labels"] = json!({ "site": "north" });
    let body = json!({ "rows": [machine("IMP-1"), labelled, { "serial": "IMP-3" }, machine("IMP-1"), machine("a b")] });
    let preview = scene.admin.post("/api/v1/server-imports?dry_run=true", &body).await;
    assert!(!preview.text().contains("a password of a BMC"));
    let preview = preview.expect(200);
    assert_eq!((&preview["created"], &preview["refused"]), (&json!(2), &json!(3)), "{preview}");
    assert_eq!(
        scene.admin.get("/api/v1/servers").await.expect(200)["servers"],
        json!([]),
        "a preview writes nothing"
    );
    let done = scene.admin.post("/api/v1/server-imports", &body).await.expect(200);
    let results: Vec<&Value> = done["rows"].as_array().unwrap().iter().map(|row| &row["result"]).collect();
    assert_eq!(results, ["created", "created", "refused", "refused", "refused"]);
    let twice = &done["rows"][3]["error"]["details"][0];
    assert_eq!(twice["message"], "an earlier row has the serial number IMP-1 too");
    assert_eq!(
        done["rows"][2]["error"]["details"].as_array().unwrap().len(),
        3,
        "every absent field is named"
    );
    let again = scene.admin.post("/api/v1/server-imports", &body).await.expect(200);
    assert_eq!((&again["created"], &again["exists"]), (&json!(0), &json!(2)), "{again}");
    let mut moved = machine("IMP-1");
    moved["bmc_address"] = json!("192.0.2.9");
    let other = scene.admin.post("/api/v1/server-imports", &json!({ "rows": [moved] })).await.expect(200);
    let said = other["rows"][0]["error"]["message"].as_str().unwrap();
    assert!(said.contains("with another bmc_address"), "{said}");
    let found = listed(&scene.admin, "/api/v1/servers?label=site%3Dnorth", "servers", "serial").await;
    assert_eq!(found, ["IMP-2"]);
    scene.admin.post("/api/v1/server-imports", &json!({ "rows": [] })).await.refused(400, "validation_error");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_a_number_is_refused_by_its_field_and_is_in_no_response() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let mut row = machine("NUM-1");
    row["bmc_password"] = json!(4_815_162_342_u64);
    let imported =
        scene.admin.post("/api/v1/server-imports", &json!({ "rows": [row, machine("NUM-2")] })).await;
    let created = scene.admin.post("/api/v1/servers", &row).await;
    let patched =
        scene.admin.patch("/api/v1/servers/NUM-2", &json!({ "bmc_password": 4_815_162_342_u64 })).await;
    for response in [&imported, &created, &patched] {
        assert!(!response.text().contains("4815162342"), "{}", response.text());
    }
    let refused = imported.expect(200)["rows"][0].clone();
    assert_eq!((&refused["serial"], &refused["result"]), (&json!("NUM-1"), &json!("refused")), "{refused}");
    assert_eq!(refused["error"]["details"][0]["path"], "/bmc_password");
    for response in [created, patched] {
        let refused = response.expect(400);
        assert_eq!(refused["details"][0]["path"], "/bmc_password", "{refused}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_of_addresses_is_probed_and_imported_by_the_program() {
    let scene = Scene::bare(vec![silent("RAN-1")], |_, _| {}).await;
    let server = &scene.farm.servers()[0];
    let place = url::Url::parse(&server.bmc_url).unwrap();
    let port = place.port().unwrap().to_string();
    let base = scene.admin.base.clone();
    let run = async |more: &[&str]| {
        let arguments =
            ["server", "import", "--range", "127.0.0.1", "--http", "--port", &*port, "--bmc-user", BMC_USER];
        let mut command = binary(&[&arguments, more].concat());
        command.env("SHOAL_URL", &base).env("SHOAL_TOKEN", scene.admin.token());
        command.env("SHOAL_BMC_PASSWORD", BMC_PASSWORD);
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(done.stdout), text(done.stderr));
        assert!(done.status.success(), "{out}{err}");
        assert!(!format!("{out}{err}").contains(BMC_PASSWORD), "the password is in no output");
        out
    };
    assert!(run(&[]).await.contains("1 to register, 0 are registered, 0 would be refused"));
    assert_eq!(scene.admin.get("/api/v1/servers").await.expect(200)["servers"], json!([]));
    assert!(run(&["-l", "site=north", "--yes"]).await.contains("1 registered"));
    let found = listed(&scene.admin, "/api/v1/servers?label=site%3Dnorth", "servers", "serial").await;
    assert_eq!(found, ["RAN-1"]);
    assert!(run(&["-l", "site=north", "--yes"]).await.contains("0 registered, 1 were registered before"));
    scene.end().await;
}

/// Measures an import of 2,000 servers, and lists with 2,000 of them. Run with `-- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_an_import_of_two_thousand_servers() {
    let scene = Scene::start_with(vec![], |settings, _| settings.worker_concurrency = 0).await;
    let rows: Vec<Value> = (0..2000)
        .map(|number| {
            let mut row = machine(&format!("M-{number:04}"));
            row["bmc_address"] = json!(format!("10.0.{}.{}", number / 250, number % 250));
            row["labels"] = json!({ "rack": (number / 40).to_string() });
            row
        })
        .collect();
    let body = json!({ "rows": rows });
    for _ in 0..2 {
        let begun = Instant::now();
        let done = scene.admin.post("/api/v1/server-imports", &body).await.expect(200);
        println!("{} new, {} registered before: {:?}", done["created"], done["exists"], begun.elapsed());
    }
    for query in [
        "servers?limit=50",
        "servers?limit=50&state=free",
        "servers?limit=50&label=rack%3D7",
        "servers?limit=50&q=m-19",
    ] {
        let begun = Instant::now();
        scene.admin.get(&format!("/api/v1/{query}")).await.expect(200);
        println!("{query}: {:?}", begun.elapsed());
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verb_for_many_jobs_is_refused_when_as_many_other_jobs_are_selected() {
    let scene = Scene::start(["SWP-1", "SWP-2"].map(silent).to_vec()).await;
    let send = async |verb: &str, query: &str, body: Value| {
        scene.admin.post(&format!("/api/v1/job-selections/{verb}{query}"), &body).await
    };
    let seen = async |verb: &str, filter: &str| {
        let preview = send(verb, "?dry_run=true", json!({ "filter": filter })).await.expect(200);
        assert_eq!(preview["count"], 1, "{preview}");
        preview["selection"].clone()
    };
    let open = "serial:SWP-* -condition:ended";
    let first = scene.admin.create_job("SWP-1").await;
    scene.admin.awaits_report(&first).await;
    let cancel = seen("cancel", open).await;
    send("cancel", "", json!({ "filter": open, "expected": 1, "selection": cancel })).await.expect(202);
    scene.complete_skipping(&first).await;
    let retry = seen("retry", "serial:SWP-1").await;

    // Another job in place of each: the numbers are those of the previews.
    let second = scene.admin.create_job("SWP-2").await;
    scene.admin.awaits_report(&second).await;
    let refused = send("cancel", "", json!({ "filter": open, "expected": 1, "selection": cancel })).await;
    let refused = refused.refused(412, "precondition_failed");
    assert!(refused["message"].as_str().unwrap().contains("not those of the preview"), "{refused}");
    assert_eq!(scene.admin.job(&second).await["outcome"], Value::Null, "nothing was done");
    let third = scene.admin.create_job("SWP-1").await;
    scene.admin.awaits_report(&third).await;
    scene.admin.post(&format!("/api/v1/jobs/{third}/cancel"), &json!({})).await.expect(202);
    scene.complete_skipping(&third).await;
    let of_the_first = json!({ "filter": "serial:SWP-1", "expected": 1, "selection": retry });
    send("retry", "", of_the_first).await.refused(412, "precondition_failed");
    let now = seen("retry", "serial:SWP-1").await;
    assert_ne!(now, retry);
    send("retry", "", json!({ "filter": "serial:SWP-1", "expected": 1, "selection": now })).await.expect(202);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_a_batch_is_refused_when_as_many_other_jobs_have_failed() {
    let serials = ["BSW-1", "BSW-2"];
    let scene = Scene::start(serials.map(silent).to_vec()).await;
    let body = json!({ "recipe": recipe(), "rows": rows(&serials) });
    let batch = scene.admin.post("/api/v1/batches", &body).await.expect(202);
    let ids = jobs(&batch);
    let place = format!("/api/v1/batches/{}", batch["batch_id"].as_str().unwrap());
    let retry = async |body: &Value| scene.admin.post(&format!("{place}/retry"), body).await;
    report(&scene.admin, "BSW-1", &ids[0], &failed()).await;
    scene.complete_skipping(&ids[0]).await;
    let seen = scene.admin.get(&place).await.expect(200);
    assert!(seen["selection"].is_string(), "{seen}");
    assert_eq!(seen["causes"][0]["selection"], seen["selection"], "there is one cause: {seen}");
    let of_batch = json!({ "expected": 1, "selection": seen["selection"] });
    let of_cause = json!({ "cause": seen["causes"][0]["cause"], "selection": seen["selection"] });

    let repeated = jobs(&retry(&of_batch).await.expect(202)).remove(0);
    report(&scene.admin, "BSW-1", &repeated, &success()).await;
    scene.complete_skipping(&repeated).await;
    report(&scene.admin, "BSW-2", &ids[1], &failed()).await;
    scene.complete_skipping(&ids[1]).await;
    for body in [&of_batch, &of_cause] {
        let refused = retry(body).await.refused(412, "precondition_failed");
        assert!(refused["message"].as_str().unwrap().contains("not those that were seen"), "{refused}");
    }
    let seen = scene.admin.get(&place).await.expect(200);
    assert_eq!(seen["retriable"], 1, "{seen}");
    let retried = retry(&json!({ "expected": 1, "selection": seen["selection"] })).await.expect(202);
    assert_eq!(retried["rows"][0]["server_serial"], "BSW-2");
    scene.end().await;
}
