//! The registry of the controller: access rules, events and metrics, maintenance by an operator.

use std::path::Path;

use access::auth::AuthMode;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use settings::Settings;
use sha2::{Digest, Sha256};

use crate::kit::{ApiResponse, Client, DataDir, Scene, silent};

const MANIFEST: &str = "/v2/os-images/ubuntu-rootfs/manifests/22.04";
const USER: &str = "ann";
/// A distinctive value, so that a test can search all output for it.
const PASSWORD: &str = "open: sesame \u{e4}";
/// The hash of `PASSWORD`, made by the C library's crypt.
const HASH: &str = "$2y$05$abcdefghijklmnopqrstuuZlDIKNqJBrE3WEj5lKP6sWoSJAIu5AS";

/// Starts a controller without servers, with the OS image and changed settings.
async fn scene(change: impl FnOnce(&mut Settings, &Path)) -> Scene {
    Scene::start_with(vec![], change).await
}

fn with_user(settings: &mut Settings, folder: &Path) {
    let path = folder.join("htpasswd");
    std::fs::write(&path, format!("{USER}:{HASH}\n")).unwrap();
    settings.registry_htpasswd_file = Some(path);
}

impl Scene {
    fn as_user(&self, method: Method, place: &str, user: &str, password: &str) -> RequestBuilder {
        self.anonymous().request(method, place).basic_auth(user, Some(password))
    }

    async fn by(&self, method: Method, place: &str, user: &str, password: &str) -> u16 {
        self.admin.send(self.as_user(method, place, user, password)).await.status
    }

    /// Requests a registry token for this scope, as registry clients do.
    async fn token(&self, user: &str, password: &str, scope: &str) -> Client {
        let place = format!("/v2/token?service=shoal&scope={scope}");
        let given = self.admin.send(self.as_user(Method::GET, &place, user, password)).await.expect(200);
        self.anonymous().with_token(given["token"].as_str().unwrap())
    }
}

fn events_of(events: &ApiResponse, kind: &str) -> Vec<Value> {
    let events = events.json()["events"].as_array().unwrap().clone();
    events.into_iter().filter(|event| event["type"] == kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn access_is_denied_by_default_and_the_challenge_names_the_token_endpoint() {
    let scene = scene(|_, _| {}).await;
    let anonymous = scene.anonymous();
    let refused = anonymous.get("/v2/").await;
    assert_eq!(refused.status, 401);
    let expected = format!("Bearer realm=\"{}/v2/token\",service=\"shoal\"", scene.admin.base);
    assert_eq!(refused.header("www-authenticate"), Some(expected.as_str()));
    assert_eq!(anonymous.get(MANIFEST).await.status, 401);
    assert_eq!(anonymous.get("/v2/token?service=shoal").await.status, 401);
    let token = scene.token("any", scene.admin.token(), "repository:os-images/ubuntu-rootfs:pull").await;
    assert_eq!(token.get(MANIFEST).await.status, 200);
    assert_eq!(token.delete(MANIFEST).await.status, 401, "its scope is pull");
    assert_eq!(token.get("/api/v1/jobs").await.status, 401, "a registry token is not an API token");
    assert_eq!(scene.admin.get(MANIFEST).await.status, 200, "an API token is accepted at every endpoint");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_switched_off_has_no_routes() {
    let scene = Scene::bare(vec![], |settings, _| settings.enable_registry = false).await;
    for place in ["/v2/", MANIFEST, "/v2/token?service=shoal"] {
        assert_eq!(scene.admin.get(place).await.status, 404, "{place}");
    }
    let about = scene.admin.get("/about").await.expect(200);
    assert!(!about["features"].as_array().unwrap().contains(&json!("registry")), "{about}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn htpasswd_users_may_pull_and_access_rules_allow_more_as_soon_as_they_are_loaded() {
    let scene = scene(|settings, folder| {
        with_user(settings, folder);
        let rules = folder.join("access");
        std::fs::write(&rules, "team/** user:ann read,create\n").unwrap();
        settings.registry_access_file = Some(rules);
        settings.registry_immutable_tags = vec!["os-images/**:22.*".parse().unwrap()];
    })
    .await;
    let upload = |repository: &str| format!("/v2/{repository}/blobs/uploads/");
    assert_eq!(scene.by(Method::GET, MANIFEST, USER, "wrong").await, 401);
    assert_eq!(scene.by(Method::GET, MANIFEST, USER, PASSWORD).await, 200);
    assert_eq!(scene.by(Method::POST, &upload("team/app"), USER, PASSWORD).await, 202);
    assert_eq!(scene.by(Method::POST, &upload("else"), USER, PASSWORD).await, 403);
    let token = scene.token(USER, PASSWORD, "repository:team/app:pull,push").await;
    assert_eq!(token.post(&upload("team/app"), &Value::Null).await.status, 202);
    let kept = scene.admin.delete(MANIFEST).await;
    assert_eq!(kept.status, 403, "{}", kept.text());
    assert!(kept.text().contains("must not be changed"), "{}", kept.text());

    let rules = scene.folder.path().join("access");
    std::fs::write(&rules, "no rule at all\n").unwrap();
    assert_eq!(
        scene.by(Method::POST, &upload("team/app"), USER, PASSWORD).await,
        202,
        "invalid rules are not loaded"
    );
    std::fs::write(&rules, "public/** anonymous read,create\n").unwrap();
    let request = || scene.anonymous().request(Method::POST, &upload("public/app"));
    let deadline = std::time::Instant::now() + crate::kit::TIME_LIMIT;
    while scene.admin.send(request()).await.status != 202 {
        assert!(std::time::Instant::now() < deadline, "the new rules were not loaded");
        tokio::time::sleep(crate::kit::POLL_INTERVAL).await;
    }
    assert_eq!(
        token.post(&upload("team/app"), &Value::Null).await.status,
        403,
        "also for a token issued before"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_job_pulls_only_its_image_and_ends_with_the_job() {
    let scene = Scene::start_with(vec![silent("REG-1")], |settings, _| {
        settings.registry_anonymous_write = true;
    })
    .await;
    let id = scene.admin.create_job("REG-1").await;
    scene.admin.awaits_report(&id).await;
    let document = scene.admin.job_document(&id).await;
    let text = |pointer: &str| document.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    let (user, password) = (text("/registry/username"), text("/registry/password"));
    let wide = "repository:os-images/ubuntu-rootfs:*%20repository:else:*";
    let token = scene.token(&user, &password, wide).await;
    let bearer = format!("Bearer {}", token.token());
    for (method, place, expected) in [
        (Method::GET, MANIFEST, 200),
        (Method::DELETE, MANIFEST, 403),
        (Method::POST, "/v2/os-images/ubuntu-rootfs/blobs/uploads/", 403),
        (Method::POST, "/v2/else/blobs/uploads/", 403),
        (Method::GET, "/v2/else/tags/list", 403),
    ] {
        assert_eq!(scene.by(method.clone(), place, &user, &password).await, expected, "{method} {place}");
        let request = scene.anonymous().request(method.clone(), place).header("authorization", &bearer);
        assert_eq!(scene.admin.send(request).await.status, expected, "with a token: {method} {place}");
    }
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.complete_skipping(&id).await;
    assert_eq!(scene.by(Method::GET, MANIFEST, &user, &password).await, 401);
    assert_eq!(token.get(MANIFEST).await.status, 401, "an issued token ends with the job, before its expiry");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_registry_names_its_reason_and_only_an_administrator_changes_it() {
    let scene = scene(|_, _| {}).await;
    let place = "/api/v1/registry/read-only";
    scene.anonymous().post(place, &json!({ "reason": "x" })).await.refused(401, "unauthorized");
    scene.admin.post(place, &json!({ "reason": " " })).await.refused(400, "validation_error");
    let status =
        scene.admin.post(place, &json!({ "reason": "the disk is being replaced" })).await.expect(200);
    assert_eq!(status["read_only"], "the disk is being replaced");
    let refused = scene.admin.post("/v2/team/app/blobs/uploads/", &Value::Null).await;
    assert_eq!(refused.status, 405);
    assert!(refused.text().contains("the disk is being replaced"), "{}", refused.text());
    assert_eq!(scene.admin.get(MANIFEST).await.status, 200);
    scene.admin.post("/api/v1/registry/gc", &Value::Null).await.refused(409, "registry.read_only");
    scene.admin.delete(place).await.expect(200);
    assert_eq!(scene.admin.post("/v2/team/app/blobs/uploads/", &Value::Null).await.status, 202);
    let events = scene.admin.get("/api/v1/events?limit=1000").await;
    assert_eq!(events_of(&events, "registry.read-only").len(), 1);
    assert_eq!(events_of(&events, "registry.writable")[0]["actor"], "first-start");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_changes_and_denials_are_events_and_metrics_without_secrets() {
    let scene = scene(|settings, folder| {
        with_user(settings, folder);
        settings.registry_quotas =
            vec![registry::Quota { repositories: "small/**".parse().unwrap(), bytes: 4 }];
    })
    .await;
    let digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let push = |repository: &str| {
        let place = format!("/v2/{repository}/blobs/uploads/?digest={digest}");
        scene.admin.request(Method::POST, &place).body("hello")
    };
    let refused = scene.admin.send(push("small/app")).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("small/**"), "{}", refused.text());
    assert_eq!(scene.admin.send(push("team/app")).await.status, 201);
    assert_eq!(scene.admin.delete(&format!("/v2/team/app/blobs/{digest}")).await.status, 202);
    for _ in 0..3 {
        assert_eq!(scene.by(Method::GET, "/v2/", USER, "canary-wrong-4Hq9").await, 401);
    }
    assert_eq!(scene.by(Method::DELETE, MANIFEST, USER, PASSWORD).await, 403);

    let place = "/api/v1/events?limit=1000";
    let forbidden = |response: &ApiResponse| {
        let denied = events_of(response, "registry.denied");
        denied.iter().any(|event| event["actor"] == USER && event["data"]["why"] == "forbidden")
    };
    let events = scene.admin.until(place, "the last denial", forbidden).await;
    let pushed = events_of(&events, "registry.push-blob");
    assert!(pushed.iter().any(|event| event["data"]["digest"] == digest && event["actor"] == "first-start"));
    assert_eq!(events_of(&events, "registry.push-tag").len(), 1, "the OS image");
    assert_eq!(events_of(&events, "registry.delete-blob").len(), 1);
    let guesses: u64 = events_of(&events, "registry.denied")
        .iter()
        .filter(|event| event["data"]["why"] == "unauthorized")
        .map(|event| event["data"]["count"].as_u64().unwrap_or(1))
        .sum();
    assert_eq!(guesses, 3);

    let gc = scene.admin.post("/api/v1/registry/gc?dry_run=true&grace=0", &Value::Null).await.expect(200);
    assert_eq!(gc["dry_run"], true);
    scene.admin.post("/api/v1/registry/gc?dryrun=true", &Value::Null).await.refused(400, "validation_error");
    assert!(scene.admin.get("/api/v1/registry").await.expect(200)["gc"]["last"].is_null());
    scene.admin.post("/api/v1/registry/gc", &Value::Null).await.expect(200);
    scene.admin.post("/api/v1/registry/scrub", &Value::Null).await.expect(202);
    let verified = |response: &ApiResponse| response.json()["scrub"]["last_verified"].is_string();
    let status = scene.admin.until("/api/v1/registry", "the scrub", verified).await;
    assert_eq!(status.json()["gc"]["last"]["by"], "first-start");
    assert_eq!(status.json()["quotas"][0]["limit_bytes"], 4);

    let metrics = scene.admin.get("/metrics").await;
    for line in [
        "registry_pushes_total{kind=\"tag\"} 1",
        "registry_deletes_total{kind=\"blob\"} 1",
        "registry_denials_total{action=\"pull\",reason=\"unauthorized\"} 3",
        "registry_denials_total{action=\"delete\",reason=\"forbidden\"} 1",
        "registry_quota_limit_bytes{repositories=\"small/**\"} 4",
        "registry_read_only 0",
    ] {
        assert!(metrics.text().contains(line), "{line} is missing in\n{}", metrics.text());
    }
    for response in [&events, &metrics, &status] {
        for secret in [PASSWORD, "canary", HASH, scene.admin.token()] {
            assert!(!response.text().contains(secret), "{secret} in {}", response.text());
        }
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_with_missing_blobs_is_accepted_where_sparse_images_are_allowed() {
    let scene =
        scene(|settings, _| settings.registry_sparse_images = vec!["mirror/**".parse().unwrap()]).await;
    let blob = |kind: &str| json!({ "mediaType": kind, "digest": format!("sha256:{:064}", 1), "size": 1 });
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let image = json!({
        "schemaVersion": 2,
        "mediaType": kind,
        "config": blob("application/vnd.oci.image.config.v1+json"),
        "layers": [blob("application/vnd.oci.image.layer.v1.tar")],
    });
    for (repository, expected) in [("mirror/app", 201), ("team/app", 400)] {
        let put = scene.admin.request(Method::PUT, &format!("/v2/{repository}/manifests/v1"));
        let put = put.header("content-type", kind).body(image.to_string());
        let response = scene.admin.send(put).await;
        assert_eq!(response.status, expected, "{repository}: {}", response.text());
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_sessions_are_listed_and_cancelled_by_an_administrator() {
    let scene = scene(|_, _| {}).await;
    let list = "/api/v1/registry/uploads";
    scene.admin.post("/v2/team/app/blobs/uploads/", &Value::Null).await;
    let listed = scene.admin.get(list).await.expect(200);
    let [session] = listed["uploads"].as_array().unwrap().as_slice() else { panic!("{listed}") };
    assert_eq!((&session["repository"], &session["received_bytes"]), (&json!("team/app"), &json!(0)));
    assert!(session["uploader"] != "unknown" && session["begun"].is_string(), "{session}");
    assert_eq!(scene.admin.get("/api/v1/registry").await.expect(200)["uploads"]["sessions"], 1);
    let path = format!("{list}/{}", session["id"].as_str().unwrap());
    assert_eq!(scene.admin.delete(&path).await.expect(200)["uploads"], json!([]));
    scene.admin.delete(&path).await.refused(404, "unknown_upload");
    let events = scene.admin.get("/api/v1/events").await;
    assert_eq!(events_of(&events, "registry.upload-cancelled").len(), 1);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_deletes_a_tag_that_is_neither_immutable_nor_moved() {
    let scene = scene(|settings, _| {
        settings.registry_immutable_tags = vec!["os-images/**:v*".parse().unwrap()];
    })
    .await;
    let kind = "application/vnd.oci.image.index.v1+json";
    let index = |note: &str| json!({ "schemaVersion": 2, "mediaType": kind, "manifests": [], "annotations": { "note": note } });
    let put = async |tag: &str, note: &str| {
        let put = scene.admin.request(Method::PUT, &format!("/v2/os-images/app/manifests/{tag}"));
        let response = scene.admin.send(put.header("content-type", kind).body(index(note).to_string())).await;
        assert_eq!(response.status, 201, "{}", response.text());
        response.header("docker-content-digest").unwrap().to_owned()
    };
    let (first, _) = (put("edge", "first").await, put("v1", "first").await);
    let second = put("edge", "second").await;
    let tags = "/api/v1/registry/repositories/os-images%2Fapp/tags";
    // The tag has moved since it was looked at.
    let moved = scene.admin.delete(&format!("{tags}/edge?digest={first}")).await;
    moved.refused(412, "precondition_failed");
    assert!(moved.text().contains(&second), "{}", moved.text());
    scene.admin.delete(&format!("{tags}/edge?digest=none")).await.refused(400, "validation_error");
    scene.admin.delete(&format!("{tags}/edge?digset={second}")).await.refused(400, "validation_error");
    scene.admin.delete(&format!("{tags}/v1")).await.refused(409, "registry.immutable");
    scene.admin.delete(&format!("{tags}/missing")).await.refused(404, "unknown_tag");
    scene.admin.delete(&format!("{tags}/..%2F..")).await.refused(404, "unknown_tag");
    let elsewhere = "/api/v1/registry/repositories/..%2Fapp/tags/edge";
    scene.admin.delete(elsewhere).await.refused(404, "unknown_tag");
    scene.anonymous().delete(&format!("{tags}/edge")).await.refused(401, "unauthorized");
    scene.admin.delete(&format!("{tags}/%FF")).await.refused(404, "unknown_tag");
    assert_eq!(
        scene.admin.get("/v2/os-images/app/tags/list").await.expect(200)["tags"],
        json!(["edge", "v1"])
    );

    let deleted = scene.admin.delete(&format!("{tags}/edge?digest={second}")).await;
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    assert_eq!(scene.admin.get("/v2/os-images/app/tags/list").await.expect(200)["tags"], json!(["v1"]));
    // The content stays until it is collected.
    let manifest = format!("/v2/os-images/app/manifests/{second}");
    assert_eq!(scene.admin.get(&manifest).await.status, 200);
    let events = scene.admin.get("/api/v1/events?type=registry.delete-tag").await;
    let [event] = events_of(&events, "registry.delete-tag").try_into().unwrap();
    assert_eq!(event["data"]["repository"], "os-images/app");
    assert_eq!((&event["data"]["reference"], &event["data"]["digest"]), (&json!("edge"), &json!(second)));
    let audit = scene.admin.get("/api/v1/audit?action=registry.delete-tag").await.expect(200);
    let done: Vec<&Value> =
        audit["entries"].as_array().unwrap().iter().filter(|entry| entry["result"] == "ok").collect();
    assert_eq!(done.len(), 1, "{audit}");
    assert_eq!(done[0]["target"], "repository/os-images/app:edge", "{audit}");
    let metrics = scene.admin.get("/metrics").await;
    assert!(metrics.text().contains("registry_deletes_total{kind=\"tag\"} 1"), "{}", metrics.text());

    scene.admin.post("/api/v1/registry/read-only", &json!({ "reason": "moved" })).await.expect(200);
    scene.admin.delete(&format!("{tags}/v1")).await.refused(409, "registry.read_only");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_without_free_space_is_not_ready_and_recovers() {
    const MARGIN: u64 = 1 << 30;
    let scene = scene(|settings, folder| {
        let space = rustix::fs::statvfs(folder).unwrap();
        let free = space.f_bavail * space.f_frsize;
        settings.registry_reserve = free.saturating_sub(MARGIN).to_string();
    })
    .await;
    scene.admin.get("/readyz").await.expect(200);
    let path = scene.folder.path().join("ballast");
    let ballast = std::fs::File::create(&path).unwrap();
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, MARGIN + (MARGIN >> 1)).unwrap();
    let full = scene.admin.get("/readyz").await;
    assert_eq!(full.status, 503);
    assert!(full.json()["checks"]["registry"]["message"].as_str().unwrap().contains("no room"));
    let refused = scene.admin.request(Method::POST, "/v2/team/app/blobs/uploads/?digest=sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    assert_eq!(scene.admin.send(refused.body("hello")).await.status, 507);
    assert_eq!(scene.admin.get(MANIFEST).await.status, 200, "reads continue");
    drop(ballast);
    std::fs::remove_file(&path).unwrap();
    scene.admin.until("/readyz", "room", |response| response.status == 200).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_read_only_mode_of_the_registry_survives_a_crash() {
    let mut data = DataDir::new();
    let controller = data.serve().await;
    let reason = json!({ "reason": "the disk is being replaced" });
    controller.admin.post("/api/v1/registry/read-only", &reason).await.expect(200);
    controller.kill();
    let controller = data.serve().await;
    let status = controller.admin.get("/api/v1/registry").await.expect(200);
    assert_eq!(status["read_only"], "the disk is being replaced");
    controller.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_authentication_no_client_is_challenged_and_empty_credentials_are_accepted() {
    let scene = Scene::bare(vec![], |settings, _| settings.auth_mode = AuthMode::None).await;
    let anonymous = scene.anonymous();
    let version = anonymous.get("/v2/").await;
    assert_eq!((version.status, version.header("www-authenticate")), (200, None));
    for (place, expected) in [("/v2/", 200), (MANIFEST, 404)] {
        let empty = anonymous.request(Method::GET, place).header("authorization", "Basic Og==");
        assert_eq!(scene.admin.send(empty).await.status, expected, "{place}");
    }
    let upload = anonymous.request(Method::POST, "/v2/team/app/blobs/uploads/");
    let upload = upload.header("authorization", "Basic Og==");
    assert_eq!(scene.admin.send(upload).await.status, 202);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_proxy_no_challenge_sends_credentials_to_a_plain_address() {
    let scene = scene(|_, _| {}).await;
    let challenge = async |headers: &[(&str, &str)]| {
        let mut request = scene.anonymous().request(Method::GET, "/v2/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let refused = scene.admin.send(request).await;
        assert_eq!(refused.status, 401);
        refused.header("www-authenticate").unwrap().to_owned()
    };
    let host = ("host", "registry.example.org");
    for headers in [vec![host], vec![host, ("x-forwarded-for", "192.0.2.1")], vec![("via", "1.1 proxy")]] {
        assert_eq!(challenge(&headers).await, "Basic realm=\"shoal\"", "{headers:?}");
    }
    let by_tls = challenge(&[host, ("x-forwarded-proto", "https")]).await;
    assert!(by_tls.starts_with("Bearer realm=\"https://registry.example.org/v2/token\""), "{by_tls}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_write_alone_is_enough_to_push_and_wrong_passwords_are_429() {
    let scene = scene(|settings, folder| {
        with_user(settings, folder);
        settings.registry_anonymous_write = true;
    })
    .await;
    let digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let blob = format!("/v2/drop/box/blobs/{digest}");
    let ask = async || scene.admin.send(scene.anonymous().request(Method::HEAD, &blob)).await.status;
    assert_eq!(ask().await, 404);
    let place = format!("/v2/drop/box/blobs/uploads/?digest={digest}");
    let push = scene.anonymous().request(Method::POST, &place).body("hello");
    assert_eq!(scene.admin.send(push).await.status, 201);
    assert_eq!(ask().await, 200);
    assert_eq!(scene.anonymous().get(&blob).await.status, 401, "writing is not reading");

    // One name in the file, one of the controller.
    for user in [USER, "unknown"] {
        let mut seen = Vec::new();
        for number in 0..25 {
            seen.push(scene.by(Method::GET, MANIFEST, user, &format!("guess {number}")).await);
        }
        assert_eq!((seen[0], seen[24]), (401, 429), "{user}: {seen:?}");
        assert!(seen.iter().all(|status| matches!(status, 401 | 429)), "{user}: {seen:?}");
        assert_eq!(
            scene.by(Method::GET, MANIFEST, "another", "guess").await,
            401,
            "another name is not limited"
        );
    }
    scene.end().await;
}

async fn logs_in_with_an_api_token(program: &'static str) {
    let scene = scene(|_, _| {}).await;
    let (host, folder) = (scene.running.api.to_string(), scene.folder.path().to_owned());
    let login = |password: &str| {
        let mut command = std::process::Command::new(program);
        command.args(["login", "--tls-verify=false", "-u", "shoal", "-p", password, &host]);
        command.env("HOME", &folder).env("REGISTRY_AUTH_FILE", folder.join("auth.json"));
        command
    };
    let run = async |mut command: std::process::Command| {
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    assert!(!run(login("wrong")).await.status.success());
    let said = run(login(scene.admin.token())).await;
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_logs_in_with_an_api_token() {
    logs_in_with_an_api_token("skopeo").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs podman, run by .ci/run"]
async fn podman_logs_in_with_an_api_token() {
    logs_in_with_an_api_token("podman").await;
}

/// Pushes an image without layers, copies it to another repository with skopeo and lists that, without a login.
async fn copies_without_a_login(scene: &Scene) {
    let anonymous = scene.anonymous();
    let config =
        r#"{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":[]}}"#;
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(config)));
    let upload = format!("/v2/team/image/blobs/uploads/?digest={digest}");
    assert_eq!(anonymous.send(anonymous.request(Method::POST, &upload).body(config)).await.status, 201);
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let described = json!({ "mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": config.len() });
    let manifest = json!({ "schemaVersion": 2, "mediaType": kind, "config": described, "layers": [] });
    let put = anonymous.request(Method::PUT, "/v2/team/image/manifests/v1").header("content-type", kind);
    assert_eq!(anonymous.send(put.body(manifest.to_string())).await.status, 201);

    let (host, folder) = (scene.running.api, scene.folder.path().to_owned());
    let copy = ["copy", "-q", "--src-tls-verify=false", "--dest-tls-verify=false"];
    let images = [format!("docker://{host}/team/image:v1"), format!("docker://{host}/copies/image:v1")];
    let copies = format!("docker://{host}/copies/image");
    let list = ["list-tags", "--tls-verify=false", &copies];
    for arguments in [&[&copy[..], &[&images[0], &images[1]]].concat()[..], &list] {
        let mut skopeo = std::process::Command::new("skopeo");
        skopeo.arg("--insecure-policy").args(arguments);
        skopeo.env("HOME", &folder).env("REGISTRY_AUTH_FILE", folder.join("auth.json"));
        let said = tokio::task::spawn_blocking(move || skopeo.output().unwrap()).await.unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_needs_no_login_where_authentication_is_off() {
    let scene = Scene::bare(vec![], |settings, _| settings.auth_mode = AuthMode::None).await;
    copies_without_a_login(&scene).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_needs_no_login_where_every_caller_may_read_and_push() {
    let scene = Scene::bare(vec![], |settings, _| {
        (settings.registry_anonymous_read, settings.registry_anonymous_write) = (true, true);
    })
    .await;
    copies_without_a_login(&scene).await;
    scene.end().await;
}
