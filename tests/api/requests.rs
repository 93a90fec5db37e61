//! Invalid requests: body, path, method, query, order.

use reqwest::Method;
use serde_json::json;

use crate::kit::{Scene, healthy, recipe};

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_unknown_members_of_a_job_are_named() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let body = scene.admin.post("/api/v1/jobs", &json!({})).await.refused(400, "validation_error");
    let places: Vec<_> =
        body["details"].as_array().unwrap().iter().map(|detail| (&detail["path"], &detail["code"])).collect();
    let required = json!("required");
    assert_eq!(places, [(&json!("/server_serial"), &required), (&json!("/recipe"), &required)]);

    let body = json!({ "server_serial": "X", "recipe": recipe(), "recipee": {} });
    let body = scene.admin.post("/api/v1/jobs", &body).await.refused(400, "validation_error");
    assert!(body["message"].as_str().unwrap().contains("recipee"), "{body}");

    let body = json!({ "server_serial": "no spaces please", "recipe": recipe(), "priority": 1000 });
    let body = scene.admin.post("/api/v1/jobs", &body).await.refused(400, "validation_error");
    let paths: Vec<_> = body["details"].as_array().unwrap().iter().map(|detail| &detail["path"]).collect();
    assert_eq!(paths, ["/server_serial", "/priority"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unregistered_server_is_unknown() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let body = json!({ "server_serial": "UNKNOWN-1", "recipe": recipe() });
    let body = scene.admin.post("/api/v1/jobs", &body).await.refused(404, "unknown_server");
    assert!(body["message"].as_str().unwrap().contains("UNKNOWN-1"), "{body}");
    scene.admin.get("/api/v1/servers/UNKNOWN-1").await.refused(404, "unknown_server");
    scene.admin.get("/api/v1/jobs/not-an-id").await.refused(404, "unknown_job");
    let id = uuid::Uuid::now_v7();
    scene.admin.get(&format!("/api/v1/jobs/{id}")).await.refused(404, "unknown_job");
    scene.admin.get(&format!("/api/v1/jobs/{id}/events")).await.refused(404, "unknown_job");
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.refused(404, "unknown_job");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_refusal_of_a_second_job_names_the_job_that_holds_the_server() {
    let scene =
        Scene::start_with(vec![healthy("BUSY-1")], |settings, _| settings.worker_concurrency = 0).await;
    let first = scene.admin.create_job("BUSY-1").await;
    let body = json!({ "server_serial": "BUSY-1", "recipe": recipe() });
    let body = scene.admin.post("/api/v1/jobs", &body).await.refused(409, "conflict.active_job");
    assert_eq!(body["details"][0]["message"], json!(first));
    assert!(body["message"].as_str().unwrap().contains(&first), "{body}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_too_long_or_not_json_are_refused() {
    let scene = Scene::bare(vec![], |settings, _| settings.max_body_bytes = 64 * 1024).await;
    let post = |kind: &str, body: Vec<u8>| {
        let request =
            scene.admin.request(Method::POST, "/api/v1/jobs").header("content-type", kind).body(body);
        scene.admin.send(request)
    };
    let long = json!({ "server_serial": "X", "recipe": { "user_data": "x".repeat(100_000) } }).to_string();
    post("application/json", long.into_bytes()).await.refused(413, "body_too_large");
    let body = post("application/json", b"{\"server_serial\": ".to_vec()).await.refused(400, "bad_json");
    assert!(body["details"][0]["message"].as_str().unwrap().contains("line 1"), "{body}");
    post("application/json", vec![0xff, 0xfe]).await.refused(400, "bad_json");
    post("application/json", b"[]".to_vec()).await.refused(400, "validation_error");
    post("text/plain", b"{}".to_vec()).await.refused(415, "unsupported_media_type");
    post("application/x-www-form-urlencoded", b"a=b".to_vec()).await.refused(415, "unsupported_media_type");
    let none = scene.admin.request(Method::POST, "/api/v1/jobs");
    scene.admin.send(none).await.refused(415, "unsupported_media_type");
    let deep = "[".repeat(100_000);
    post("application/json", deep.into_bytes()).await.refused(413, "body_too_large");
    let deep = format!("{{\"server_serial\":\"X\",\"recipe\":{}", "[".repeat(20_000));
    let response = post("application/json", deep.into_bytes()).await;
    assert_eq!(response.status, 400, "{}", response.text());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_wrong_methods_return_json_errors() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    for path in ["/api", "/api/v1/nothing", "/api/v1/jobs/", "/t", "/t1234/task.iso", "/media/tasks/"] {
        let body = scene.anonymous().get(path).await.refused(404, "not_found");
        assert_eq!(body["details"], json!([]));
    }
    let wrong = [
        (Method::DELETE, "/api/v1/jobs", "GET,HEAD,POST"),
        (Method::PUT, "/api/v1/servers/X", "DELETE,GET,HEAD,PATCH"),
        (Method::GET, "/api/v1/status-webhook/X", "POST"),
        (Method::POST, "/healthz", "GET,HEAD"),
    ];
    for (method, path, allowed) in wrong {
        let response = scene.admin.send(scene.admin.request(method, path)).await;
        response.refused(405, "method_not_allowed");
        let mut methods: Vec<&str> = response.header("allow").unwrap().split(',').map(str::trim).collect();
        methods.sort_unstable();
        assert_eq!(methods.join(","), allowed, "{path}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_keeps_its_id_or_gets_one() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let ask = |id: &'static str| {
        let request = scene.admin.request(Method::GET, "/api/v1/nothing").header("X-Request-Id", id);
        scene.admin.send(request)
    };
    assert_eq!(ask("from-a-proxy.7").await.refused(404, "not_found")["request_id"], "from-a-proxy.7");
    assert_ne!(ask("not an id\"").await.refused(404, "not_found")["request_id"], "not an id\"");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_query_parameters_are_named() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    for query in ["limit=0", "limit=many", "status=asleep", "outcome=maybe", "cursor=xyz", "colour=blue"] {
        let response = scene.admin.get(&format!("/api/v1/jobs?{query}")).await;
        let body = response.refused(400, "validation_error");
        assert_eq!(body["details"][0]["path"], json!(query.split('=').next()), "{body}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_needs_a_maintenance_iso_from_the_settings_or_the_request() {
    let scene =
        Scene::start_with(vec![healthy("ISO-1")], |settings, _| settings.maintenance_iso_url = None).await;
    let mut body = json!({ "server_serial": "ISO-1", "recipe": recipe() });
    let refused = scene.admin.post("/api/v1/jobs", &body).await.refused(400, "config.no_maintenance_iso");
    assert!(refused["message"].as_str().unwrap().contains("MAINTENANCE_ISO_URL"), "{refused}");
    body["maintenance_iso_url"] = json!(scene.folder.path().join("maintenance.iso"));
    let job = scene.admin.post("/api/v1/jobs", &body).await.expect(202);
    let job = scene.admin.complete(job["job_id"].as_str().unwrap()).await;
    assert_eq!(job["outcome"], "succeeded");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_knows_every_event_before_its_request() {
    let scene = Scene::start(vec![healthy("OVER-1")]).await;
    let place = "/api/v1/servers/OVER-1/maintenance";
    for turn in 0..3 {
        // A copy for the requests of the next second.
        scene.admin.get("/api/v1/overview").await.expect(200);
        scene.admin.post(place, &json!({ "reason": format!("turn {turn}") })).await.expect(202);
        let events = scene.admin.get("/api/v1/events?limit=500").await.expect(200);
        let newest = events["events"].as_array().unwrap().last().unwrap()["seq"].as_i64().unwrap();
        let overview = scene.admin.get("/api/v1/overview").await.expect(200);
        assert!(overview["last_seq"].as_i64().unwrap() >= newest, "{newest}: {overview}");
        scene.admin.request(Method::DELETE, place).send().await.unwrap();
    }
    scene.end().await;
}
