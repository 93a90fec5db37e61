//! Every change through the API names the user or token that requested it.

use std::collections::BTreeSet;
use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};
use settings::BackupTarget;

use crate::kit::{ApiResponse, Client, POLL_INTERVAL, Scene, TIME_LIMIT, recipe, silent};

/// The token whose name every event of its requests has.
const WALKER: &str = "walker";
/// Operations that change nothing that is recorded as an operator's change, with the reason.
const WITHOUT_EVENT: [(&str, &str); 7] = [
    ("probeServer", "reads the BMC"),
    ("retryBatch", "there is no failed job here; tests/fleet.rs"),
    ("reportInstallation", "has its own secret; tests/accounts.rs"),
    ("deleteSession", "needs the cookie of a browser; tests/sessions.rs"),
    ("changeLogLevel", "the log of this process is not the controller's; tests/service.rs"),
    ("resetLogLevel", "as changeLogLevel"),
    ("redeliver", "there is no dead letter here; tests/webhooks.rs"),
];

/// Requests of one token, and what their events say.
struct Walk {
    scene: Scene,
    client: Client,
    seen: BTreeSet<&'static str>,
    after: i64,
}

impl Walk {
    /// Sends a request of an operation and waits for an event of the token after it.
    async fn step(&mut self, operation: &'static str, method: Method, place: &str, body: Value) -> Value {
        self.skip_earlier_events().await;
        let response = self.client.send(self.client.request(method, place).json(&body)).await;
        assert!(
            (200..300).contains(&response.status),
            "{operation}: {} {}",
            response.status,
            response.text()
        );
        self.named(operation).await;
        if response.body.is_empty() { Value::Null } else { response.json() }
    }

    async fn skip_earlier_events(&mut self) {
        loop {
            let page = self.scene.admin.get(&format!("/api/v1/events?after={}&limit=1000", self.after)).await;
            let page = page.expect(200);
            self.after = page["next"].as_i64().unwrap();
            if page["events"] == json!([]) {
                return;
            }
        }
    }

    async fn named(&mut self, operation: &'static str) {
        let deadline = Instant::now() + TIME_LIMIT;
        let found = loop {
            let page = self.scene.admin.get(&format!("/api/v1/events?after={}&limit=1000", self.after)).await;
            let page = page.expect(200);
            let events = page["events"].as_array().unwrap();
            if let Some(event) = events.iter().find(|event| event["actor"] == WALKER) {
                break event["seq"].as_i64().unwrap();
            }
            assert!(Instant::now() < deadline, "{operation}: no event names {WALKER}: {page}");
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        self.after = found;
        self.seen.insert(operation);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_every_changing_operation_names_the_token_that_requested_it() {
    use Method as M;
    let scene = Scene::start_with(vec![silent("ACT-1"), silent("ACT-2")], |settings, folder| {
        let target = folder.join("backups");
        std::fs::create_dir(&target).unwrap();
        settings.backup_target = Some(BackupTarget::Folder(target));
    })
    .await;
    let made =
        scene.admin.post("/api/v1/tokens", &json!({ "name": WALKER, "role": "admin" })).await.expect(201);
    let client = scene.admin.with_token(made["token"].as_str().unwrap());
    let newest = scene.admin.get("/api/v1/events?limit=1000").await.expect(200)["next"].as_i64().unwrap();
    let mut walk = Walk { scene, client, seen: BTreeSet::new(), after: newest };

    let server = json!({
        "serial": "ACT-9", "bmc_address": "https://192.0.2.1", "bmc_username": "u", "bmc_password": "some password",
    });
    walk.step("createServer", M::POST, "/api/v1/servers", server).await;
    let rows = json!({ "rows": [{
        "serial": "ACT-8", "bmc_address": "https://192.0.2.2", "bmc_username": "u", "bmc_password": "some password",
    }] });
    walk.step("importServers", M::POST, "/api/v1/server-imports", rows).await;
    walk.step("updateServer", M::PATCH, "/api/v1/servers/ACT-9", json!({ "vendor": "x" })).await;
    walk.step("beginMaintenance", M::POST, "/api/v1/servers/ACT-9/maintenance", json!({})).await;
    walk.step("endMaintenance", M::DELETE, "/api/v1/servers/ACT-9/maintenance", json!({})).await;
    for (operation, place, body) in [
        ("releaseServer", "/api/v1/servers/ACT-9/release", json!({})),
        ("releaseAll", "/api/v1/restored/release", json!({ "old_controller_is_off": true })),
    ] {
        mark_as_restored(&walk.scene);
        walk.step(operation, M::POST, place, body).await;
    }
    walk.step("deleteServer", M::DELETE, "/api/v1/servers/ACT-9", json!({})).await;

    let order = json!({ "server_serial": "ACT-1", "recipe": recipe() });
    let job = walk.step("createJob", M::POST, "/api/v1/jobs", order.clone()).await;
    let id = job["job_id"].as_str().unwrap().to_owned();
    walk.scene.admin.awaits_report(&id).await;
    walk.step("issueMediaUrl", M::POST, &format!("/api/v1/jobs/{id}/media-url"), json!({})).await;
    for (operation, verb) in [("holdJob", "hold"), ("resumeJob", "resume"), ("cancelJob", "cancel")] {
        walk.step(operation, M::POST, &format!("/api/v1/jobs/{id}/{verb}"), json!({})).await;
    }
    walk.scene.complete_skipping(&id).await;
    let again = walk.step("retryJob", M::POST, &format!("/api/v1/jobs/{id}/retry"), json!({})).await;
    let again = again["job_id"].as_str().unwrap().to_owned();
    walk.scene.admin.post(&format!("/api/v1/jobs/{again}/cancel"), &json!({})).await.expect(202);
    walk.scene.complete_skipping(&again).await;
    let select = json!({ "filter": format!("\"{again}\""), "expected": 1 });
    let retried = walk.step("retryJobs", M::POST, "/api/v1/job-selections/retry", select).await;
    let retried = retried["rows"][0]["job_id"].as_str().unwrap().to_owned();
    let select = json!({ "filter": "serial:ACT-*", "expected": 1 });
    walk.step("cancelJobs", M::POST, "/api/v1/job-selections/cancel", select).await;
    walk.scene.complete_skipping(&retried).await;

    let rescue = json!({ "server_serial": "ACT-2", "recipe": { "task_target": "rescue.target" } });
    let rescue = walk.scene.admin.post("/api/v1/jobs", &rescue).await.expect(202)["job_id"].clone();
    let rescue = rescue.as_str().unwrap().to_owned();
    walk.scene.admin.awaits_report(&rescue).await;
    let token = walk.scene.admin.job_document(&rescue).await["webhook_token"].as_str().unwrap().to_owned();
    walk.scene.admin.report("ACT-2", &token, &json!({ "status": "reachable" })).await.expect(200);
    let session = |job: &Value| job["wait"]["reason"] == "rescue_session";
    walk.scene.admin.wait(&rescue, "the session", session).await;
    walk.step("finishJob", M::POST, &format!("/api/v1/jobs/{rescue}/finish"), json!({})).await;
    walk.scene.complete_skipping(&rescue).await;

    walk.step("beginDrain", M::POST, "/api/v1/drain", json!({})).await;
    let batch = walk.step("createBatch", M::POST, "/api/v1/batches", json!({ "rows": [order] })).await;
    let batch = batch["batch_id"].as_str().unwrap().to_owned();
    walk.step("cancelBatch", M::POST, &format!("/api/v1/batches/{batch}/cancel"), json!({})).await;
    let body =
        json!({ "rows": [{ "server_serial": "ACT-2", "recipe": recipe() }], "canary": 1, "stop_after": 3 });
    let batch = walk.scene.admin.post("/api/v1/batches", &body).await.expect(202)["batch_id"].clone();
    let batch = batch.as_str().unwrap().to_owned();
    walk.step("continueBatch", M::POST, &format!("/api/v1/batches/{batch}/continue"), json!({})).await;
    walk.scene.admin.post(&format!("/api/v1/batches/{batch}/cancel"), &json!({})).await.expect(202);
    walk.step("endDrain", M::DELETE, "/api/v1/drain", json!({})).await;

    let hook = json!({ "url": "http://127.0.0.1:9/", "secret": "0123456789abcdef", "types": ["webhook.*"] });
    let hook = walk.step("createWebhook", M::POST, "/api/v1/webhooks", hook).await;
    let hook = format!("/api/v1/webhooks/{}", hook["webhook_id"].as_str().unwrap());
    walk.step("disableWebhook", M::POST, &format!("{hook}/disable"), json!({})).await;
    walk.step("enableWebhook", M::POST, &format!("{hook}/enable"), json!({})).await;
    // Port 9 of this machine has no listener: the test fails, and is recorded with its result.
    walk.step("testWebhook", M::POST, &format!("{hook}/test"), json!({})).await;
    walk.step("deleteWebhook", M::DELETE, &hook, json!({})).await;

    walk.step("beginRegistryReadOnly", M::POST, "/api/v1/registry/read-only", json!({ "reason": "x" })).await;
    walk.step("endRegistryReadOnly", M::DELETE, "/api/v1/registry/read-only", json!({})).await;
    walk.step("collectGarbage", M::POST, "/api/v1/registry/gc", json!({})).await;
    walk.step("retainTags", M::POST, "/api/v1/registry/retention", json!({})).await;
    walk.step("scrubRegistry", M::POST, "/api/v1/registry/scrub", json!({})).await;
    let upload = walk.scene.admin.post("/v2/team/app/blobs/uploads/", &Value::Null).await;
    assert_eq!(upload.status, 202);
    let upload = upload.header("docker-upload-uuid").unwrap().to_owned();
    walk.step("cancelUpload", M::DELETE, &format!("/api/v1/registry/uploads/{upload}"), json!({})).await;
    let kind = "application/vnd.oci.image.index.v1+json";
    let index = json!({ "schemaVersion": 2, "mediaType": kind, "manifests": [] }).to_string();
    let put = walk.scene.admin.request(M::PUT, "/v2/team/app/manifests/edge").header("content-type", kind);
    assert_eq!(walk.scene.admin.send(put.body(index)).await.status, 201);
    let tag = "/api/v1/registry/repositories/team%2Fapp/tags/edge";
    walk.step("deleteTag", M::DELETE, tag, json!({})).await;

    crate::firmware::push(&walk.scene.admin, "firmware/dell/bios", b"a bios").await;
    let file = crate::firmware::bios(b"a bios", "2.19.1", &["R640"]);
    let file = walk.step("addFirmware", M::POST, "/api/v1/firmware", file).await["digest"].clone();
    let set = json!({ "name": "walked", "files": [file] });
    walk.step("createFirmwareSet", M::POST, "/api/v1/firmware-sets", set).await;
    walk.step("deleteFirmwareSet", M::DELETE, "/api/v1/firmware-sets/walked", json!({})).await;
    let file = format!("/api/v1/firmware/{}", file.as_str().unwrap());
    walk.step("removeFirmware", M::DELETE, &file, json!({})).await;

    let session = walk.step("createSession", M::POST, "/api/v1/session", json!({})).await;
    let session = format!("/api/v1/sessions/{}", session["session_id"].as_str().unwrap());
    walk.step("endSession", M::DELETE, &session, json!({})).await;
    for (operation, place) in [
        ("endMySessions", "/api/v1/sessions".to_owned()),
        ("endUserSessions", format!("/api/v1/users/{WALKER}/sessions")),
    ] {
        walk.step("createSession", M::POST, "/api/v1/session", json!({})).await;
        walk.step(operation, M::DELETE, &place, json!({})).await;
    }

    let user = json!({ "name": "bea", "role": "viewer", "password": "some password" });
    walk.step("createUser", M::POST, "/api/v1/users", user).await;
    walk.step("updateUser", M::PATCH, "/api/v1/users/bea", json!({ "role": "operator" })).await;
    walk.scene.admin.post("/api/v1/tokens", &json!({ "name": "ci", "role": "viewer" })).await.expect(201);
    mark_as_unconfirmed(&walk.scene);
    walk.step("confirmUser", M::POST, "/api/v1/users/bea/confirm", json!({})).await;
    walk.step("confirmToken", M::POST, "/api/v1/tokens/ci/confirm", json!({})).await;
    walk.scene.admin.delete("/api/v1/tokens/ci").await;
    walk.step("deleteUser", M::DELETE, "/api/v1/users/bea", json!({})).await;
    walk.step("createToken", M::POST, "/api/v1/tokens", json!({ "name": "ci", "role": "viewer" })).await;
    walk.step("rotateToken", M::POST, "/api/v1/tokens/ci/rotate", json!({})).await;
    walk.step("revokeToken", M::DELETE, "/api/v1/tokens/ci", json!({})).await;
    let worker = json!({ "name": "hall-b", "queues": ["hall-b"] });
    walk.step("createWorkerToken", M::POST, "/api/v1/worker-tokens", worker).await;
    walk.step("revokeWorkerToken", M::DELETE, "/api/v1/worker-tokens/hall-b", json!({})).await;
    let keys = walk.scene.admin.get("/api/v1/secrets").await.expect(200);
    let signing = keys["secrets"].as_array().unwrap().iter().find(|key| key["name"] == "signing").unwrap();
    let from = json!({ "from": signing["key_id"] });
    walk.step("rotateSecret", M::POST, "/api/v1/secrets/signing/rotate", from).await;
    walk.step("createBackup", M::POST, "/api/v1/backups", json!({})).await;
    let idle = |response: &ApiResponse| response.json()["running"].is_null();
    let status = walk.scene.admin.until("/api/v1/backup-status", "the backup", idle).await.json();
    let verify = format!("/api/v1/backups/{}/verify", status["last"]["name"].as_str().unwrap());
    walk.step("verifyBackup", M::POST, &verify, json!({})).await;
    walk.step("makeSupportBundle", M::POST, "/api/v1/support-bundle", json!({})).await;
    walk.step("diagnoseServer", M::POST, "/api/v1/servers/ACT-2/diagnostics", json!({})).await;
    let condition = json!({ "kind": "inventoryOOB" });
    walk.step("createServerCondition", M::POST, "/api/v1/servers/ACT-2/condition", condition).await;

    // Only a user with a password changes the own one, so this user has the name for which the walk looks.
    walk.scene.admin.delete(&format!("/api/v1/tokens/{WALKER}")).await.expect(204);
    let user = json!({ "name": WALKER, "role": "viewer", "password": "some password" });
    walk.scene.admin.post("/api/v1/users", &user).await.expect(201);
    walk.skip_earlier_events().await;
    let anonymous = walk.scene.anonymous();
    let request = anonymous.request(M::POST, "/api/v1/me/password").basic_auth(WALKER, Some("some password"));
    let changed = anonymous.send(request.json(&json!({ "password": "another password" }))).await;
    assert_eq!(changed.status, 204, "{}", changed.text());
    walk.named("setMyPassword").await;

    let exempt = WITHOUT_EVENT.iter().map(|(operation, _)| (*operation).to_owned());
    let walked: BTreeSet<String> =
        walk.seen.iter().map(|operation| (*operation).to_owned()).chain(exempt).collect();
    assert_eq!(walked, changing_operations());
    walk.scene.end().await;
}

/// The operations of the document that change something.
fn changing_operations() -> BTreeSet<String> {
    let document: Value = serde_json::from_str(api::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|operations| operations.as_object().unwrap());
    let changing = operations.filter(|(method, _)| *method != "get");
    changing.map(|(_, operation)| operation["operationId"].as_str().unwrap().to_owned()).collect()
}

/// Marks a user and a token as if their data were restored.
fn mark_as_unconfirmed(scene: &Scene) {
    let database = rusqlite::Connection::open(scene.folder.path().join("data/provisioner.db")).unwrap();
    database.busy_timeout(TIME_LIMIT).unwrap();
    let list = "INSERT INTO settings (key, value) SELECT 'unconfirmed_logins',
                    json_object('users', json_array('bea'), 'tokens', json_array(id)) FROM api_tokens WHERE name = 'ci'";
    assert_eq!(database.execute(list, []).unwrap(), 1);
}

/// Marks a server as if its data were restored.
fn mark_as_restored(scene: &Scene) {
    let database = rusqlite::Connection::open(scene.folder.path().join("data/provisioner.db")).unwrap();
    database.busy_timeout(TIME_LIMIT).unwrap();
    let restored =
        r#"{"since":"2026-01-01T00:00:00.000Z","as_of":"2026-01-01T00:00:00.000Z","reason":"a test"}"#;
    let marked =
        database.execute("UPDATE servers SET restored = ?1 WHERE serial = 'ACT-9'", [restored]).unwrap();
    assert_eq!(marked, 1);
}
