//! Batches: one result per row, a limited number of jobs at once, one cancel for the rest.

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{ApiResponse, Client, Scene, healthy, recipe, silent};

async fn order(client: &Client, body: &Value, key: Option<&str>) -> ApiResponse {
    let mut request = client.request(Method::POST, "/api/v1/batches").json(body);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    client.send(request).await
}

fn rows(serials: &[&str]) -> Value {
    serials.iter().map(|serial| json!({ "server_serial": serial })).collect()
}

fn jobs(batch: &Value) -> Vec<String> {
    let rows = batch["rows"].as_array().unwrap();
    rows.iter().map(|row| row["job_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_hundred_refused_rows_have_all_of_their_problems_and_the_others_one() {
    let scene = Scene::start(vec![healthy("ROW-9")]).await;
    let mut wrong = recipe();
    wrong["one"] = json!(1);
    wrong["two"] = json!(2);
    let mut rows = vec![json!({ "server_serial": "ROW-9", "recipe": wrong }); 120];
    rows.push(json!({ "server_serial": "ROW-9", "recipe": recipe() }));
    let batch = order(&scene.admin, &json!({ "rows": rows }), None).await.expect(202);
    assert_eq!((&batch["accepted"], &batch["refused"]), (&json!(1), &json!(120)));
    let problems: Vec<usize> = batch["rows"].as_array().unwrap()[..120]
        .iter()
        .map(|row| row["error"]["details"].as_array().unwrap().len())
        .collect();
    assert_eq!(problems, [[2; 100].as_slice(), &[1; 20]].concat());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_has_a_result_and_a_refused_one_stops_no_other() {
    let scene = Scene::start(vec![healthy("ROW-1"), healthy("ROW-2")]).await;
    let body = json!({
        "recipe": recipe(),
        "labels": { "wave": "1" },
        "rows": [
            { "server_serial": "ROW-1" },
            { "server_serial": "UNKNOWN" },
            { "server_serial": "ROW-2", "labels": { "wave": "2" }, "priority": 3 },
            { "server_serial": "ROW-2", "recipe": { "task_target": "nonsense" } },
            { "server_serial": "ROW-1" },
            { "recipe": recipe() },
        ],
    });
    let batch = order(&scene.admin, &body, None).await.expect(202);
    assert_eq!((&batch["accepted"], &batch["refused"], &batch["total"]), (&json!(2), &json!(4), &json!(6)));
    let rows = batch["rows"].as_array().unwrap();
    let said: Vec<&str> =
        rows.iter().map(|row| row["error"]["error"].as_str().unwrap_or("accepted")).collect();
    assert_eq!(
        said,
        [
            "accepted",
            "unknown_server",
            "accepted",
            "validation_error",
            "conflict.active_job",
            "validation_error"
        ]
    );
    assert_eq!(rows[5]["error"]["details"][0]["path"], "/server_serial");
    let id = batch["batch_id"].as_str().unwrap();
    for (row, wave) in [(0, "1"), (2, "2")] {
        let job = scene.admin.complete(rows[row]["job_id"].as_str().unwrap()).await;
        assert_eq!((&job["outcome"], &job["batch"]), (&json!("succeeded"), &json!(id)));
        assert_eq!(job["labels"]["wave"], wave);
    }
    let batch = scene.admin.get(&format!("/api/v1/batches/{id}")).await.expect(200);
    assert_eq!((&batch["complete"], &batch["progress"]["succeeded"]), (&json!(true), &json!(2)), "{batch}");
    let listed = scene.admin.get(&format!("/api/v1/jobs?batch={id}")).await.expect(200);
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 2);
    let all = scene.admin.get("/api/v1/batches").await.expect(200);
    assert_eq!(all["batches"][0]["batch_id"], json!(id));
    // A batch is listed if one of its jobs has all of the labels.
    for (labels, found) in
        [("wave%3D1", 1), ("wave!%3D1", 1), ("wave", 1), ("wave%3D3", 0), ("wave%3D1,wave%3D2", 0)]
    {
        let listed = scene.admin.get(&format!("/api/v1/batches?label={labels}")).await.expect(200);
        assert_eq!(listed["batches"].as_array().unwrap().len(), found, "{labels}");
    }
    scene.admin.get("/api/v1/batches?label=%3D1").await.refused(400, "validation_error");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_runs_at_most_max_parallel_jobs_at_once() {
    let serials = ["PAR-1", "PAR-2", "PAR-3", "PAR-4"];
    let scene = Scene::start(serials.map(healthy).to_vec()).await;
    let body = json!({ "recipe": recipe(), "rows": rows(&serials), "max_parallel": 1 });
    let batch = order(&scene.admin, &body, None).await.expect(202);
    let mut lives = Vec::new();
    for id in jobs(&batch) {
        let job = scene.admin.complete(&id).await;
        assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
        let steps = job["steps"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        lives.push((text(&steps[0]["started_at"]), text(&steps.last().unwrap()["ended_at"])));
    }
    lives.sort();
    for pair in lives.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two jobs ran at once: {lives:?}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_row_explains_its_wait_and_one_call_cancels_the_rest() {
    let serials = ["REST-1", "REST-2", "REST-3"];
    let scene = Scene::start(serials.map(silent).to_vec()).await;
    let body = json!({ "recipe": recipe(), "rows": rows(&serials), "max_parallel": 1 });
    let batch = order(&scene.admin, &body, None).await.expect(202);
    let ids = jobs(&batch);
    scene.admin.awaits_report(&ids[0]).await;
    let why = scene.admin.explain(&ids[1]).await;
    assert_eq!(why["condition"], "blocked");
    assert!(why["summary"].as_str().unwrap().contains("batch/"), "{why}");

    let batch = batch["batch_id"].as_str().unwrap();
    let cancel = format!("/api/v1/batches/{batch}/cancel");
    for expected in
        [json!({ "expected_queued": 1 }), json!({ "expected_queued": 2, "expected_running": 0, "all": true })]
    {
        scene.admin.post(&cancel, &expected).await.refused(412, "precondition_failed");
        assert_eq!(scene.admin.job(&ids[1]).await["outcome"], Value::Null, "nothing was cancelled");
    }
    let rest = scene
        .admin
        .post(&cancel, &json!({ "reason": "wrong image", "expected_queued": 2, "expected_running": 0 }))
        .await
        .expect(202);
    assert_eq!(rest["cancelled_now"], 2, "{rest}");
    for id in &ids[1..] {
        let job = scene.admin.complete(id).await;
        assert_eq!(job["outcome"], "cancelled");
        assert!(job["failure"]["summary"].as_str().unwrap().contains("wrong image"));
    }
    assert_eq!(
        scene.bmc("REST-2").snapshot().requests,
        0,
        "the BMC of a job that has not started received a request"
    );
    assert_eq!(scene.admin.job(&ids[0]).await["outcome"], Value::Null, "the running job continues");
    let all = scene.admin.post(&cancel, &json!({ "all": true })).await.expect(202);
    assert_eq!(all["cancelled_now"], 1, "{all}");
    scene.admin.complete(&ids[0]).await;
    let batch = scene.admin.get(&format!("/api/v1/batches/{batch}")).await.expect(200);
    assert_eq!((&batch["complete"], &batch["progress"]["cancelled"]), (&json!(true), &json!(3)));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_repeated_under_its_key_creates_nothing_twice() {
    let scene = Scene::start_with(vec![silent("KEY-1"), silent("KEY-2")], |settings, _| {
        settings.worker_concurrency = 0;
    })
    .await;
    let body = json!({ "recipe": recipe(), "rows": rows(&["KEY-1", "KEY-2"]) });
    let first = order(&scene.admin, &body, Some("wave-1")).await.expect(202);
    let second = order(&scene.admin, &body, Some("wave-1")).await.expect(200);
    assert_eq!((jobs(&first), &first["batch_id"]), (jobs(&second), &second["batch_id"]));
    assert_eq!(second["rows"][0]["result"], "exists");
    let other = json!({ "recipe": recipe(), "rows": rows(&["KEY-1"]) });
    order(&scene.admin, &other, Some("wave-1")).await.refused(422, "idempotency_key_reused");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_several_transactions_is_one_response() {
    let scene = Scene::start_with(vec![], |settings, _| settings.worker_concurrency = 0).await;
    let serials: Vec<String> = (0..1200).map(|number| format!("BULK-{number}")).collect();
    for serial in &serials {
        scene.admin.register_at(serial, "http://127.0.0.1:1").await;
    }
    let serials: Vec<&str> = serials.iter().map(String::as_str).collect();
    let body = json!({ "recipe": recipe(), "rows": rows(&serials), "max_parallel": 100 });
    let batch = order(&scene.admin, &body, None).await.expect(202);
    assert_eq!((&batch["accepted"], &batch["progress"]["queued"]), (&json!(1200), &json!(1200)));
    let indices: Vec<u64> =
        batch["rows"].as_array().unwrap().iter().map(|row| row["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, (0..1200).collect::<Vec<u64>>());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_batch_is_refused_as_a_whole() {
    let scene = Scene::start(vec![]).await;
    let many: Vec<Value> =
        (0..10_001).map(|number| json!({ "server_serial": format!("S{number}") })).collect();
    for (body, path) in [
        (json!({ "rows": [] }), "/rows"),
        (json!({ "rows": many }), "/rows"),
        (json!({ "rows": rows(&["A"]), "max_parallel": 0 }), "/max_parallel"),
        (json!({ "rows": rows(&["A"]), "deadline": "2020-01-01T00:00:00Z" }), "/deadline"),
    ] {
        let refusal = order(&scene.admin, &body, None).await.refused(400, "validation_error");
        assert_eq!(refusal["details"][0]["path"], path, "{refusal}");
    }
    scene.admin.get("/api/v1/batches/unknown").await.refused(404, "unknown_batch");
    let past = json!({ "server_serial": "A", "recipe": recipe(), "deadline": "2020-01-01T00:00:00Z" });
    let refusal = scene.admin.post("/api/v1/jobs", &past).await.refused(400, "validation_error");
    assert_eq!(refusal["details"][0]["path"], "/deadline");
    scene.end().await;
}
