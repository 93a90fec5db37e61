//! Users, API tokens and their limits, through the API.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::{ApiResponse, Client, DataDir, Scene, binary, recipe, silent};

const PASSWORD: &str = "correct horse battery staple";

/// Creates a token and returns a client with it.
async fn token(scene: &Scene, new: Value) -> Client {
    let made = scene.admin.post("/api/v1/tokens", &new).await.expect(201);
    scene.anonymous().with_token(made["token"].as_str().unwrap())
}

async fn as_user(scene: &Scene, name: &str, password: &str, place: &str) -> ApiResponse {
    let client = scene.anonymous();
    client.send(client.request(Method::GET, place).basic_auth(name, Some(password))).await
}

/// The client after a request: 200 or not.
async fn works(client: &Client) -> u16 {
    client.get("/api/v1/me").await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_user_takes_effect_with_the_next_request() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let new = json!({ "name": "bea", "role": "operator", "password": PASSWORD });
    let made = scene.admin.post("/api/v1/users", &new).await.expect(201);
    assert_eq!((&made["role"], &made["created_by"]), (&json!("operator"), &json!("first-start")));
    assert!(!made.to_string().contains("argon2") && !made.to_string().contains(PASSWORD), "{made}");
    scene.admin.post("/api/v1/users", &new).await.refused(409, "conflict.name");
    for wrong in [
        json!({ "name": "cy", "role": "operator", "password": "short" }),
        json!({ "name": "cy", "role": "report-only", "password": PASSWORD }),
        json!({ "name": "engine", "role": "viewer", "password": PASSWORD }),
        json!({ "name": "a:b", "role": "viewer", "password": PASSWORD }),
    ] {
        scene.admin.post("/api/v1/users", &wrong).await.refused(400, "validation_error");
    }
    let bea = "/api/v1/users/bea";
    let place = "/api/v1/drain";
    let drains = async |scene: &Scene| {
        let client = scene.anonymous();
        let request = client.request(Method::DELETE, place).basic_auth("bea", Some(PASSWORD));
        client.send(request).await.status
    };
    assert_eq!(drains(&scene).await, 200);
    scene.admin.patch(bea, &json!({ "role": "viewer" })).await.expect(200);
    assert_eq!(drains(&scene).await, 403);
    assert_eq!(as_user(&scene, "bea", PASSWORD, place).await.status, 200);
    scene.admin.patch(bea, &json!({ "disabled": true })).await.expect(200);
    as_user(&scene, "bea", PASSWORD, place).await.refused(401, "unauthorized");
    scene.admin.patch(bea, &json!({ "disabled": false, "password": "another password" })).await.expect(200);
    as_user(&scene, "bea", PASSWORD, place).await.refused(401, "unauthorized");
    assert_eq!(as_user(&scene, "bea", "another password", place).await.status, 200);

    let client = scene.anonymous();
    let change = json!({ "password": PASSWORD });
    let own = client.request(Method::POST, "/api/v1/me/password").basic_auth("bea", Some("another password"));
    assert_eq!(client.send(own.json(&change)).await.status, 204, "a viewer changes the own password");
    as_user(&scene, "bea", "another password", place).await.refused(401, "unauthorized");
    let me = as_user(&scene, "bea", PASSWORD, "/api/v1/me").await.expect(200);
    assert_eq!(
        (&me["name"], &me["login"], &me["role"]),
        (&json!("bea"), &json!("password"), &json!("viewer"))
    );
    scene.admin.post("/api/v1/me/password", &change).await.refused(409, "conflict.no_password");

    assert_eq!(scene.admin.delete(bea).await.status, 204);
    as_user(&scene, "bea", PASSWORD, place).await.refused(401, "unauthorized");
    scene.admin.get(bea).await.refused(404, "unknown_user");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_admin_token_is_rotated_and_revoked_and_the_last_way_in_stays() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let first = "/api/v1/tokens/first-start";
    scene.admin.delete(first).await.refused(409, "conflict.last_admin");
    let rotated = scene.admin.post(&format!("{first}/rotate"), &json!({})).await.expect(200);
    assert_eq!(works(&scene.admin).await, 401, "the former text is refused at once");
    let admin = scene.anonymous().with_token(rotated["token"].as_str().unwrap());
    let ada = json!({ "name": "ada", "role": "admin", "password": PASSWORD });
    admin.post("/api/v1/users", &ada).await.expect(201);
    assert_eq!(admin.delete(first).await.status, 204);
    assert_eq!(works(&admin).await, 401, "a revoked token is refused at once");

    let client = scene.anonymous();
    let ask = async |method: Method, body: Value| {
        let request = client.request(method, "/api/v1/users/ada").basic_auth("ada", Some(PASSWORD));
        client.send(request.json(&body)).await
    };
    ask(Method::DELETE, json!({})).await.refused(409, "conflict.last_admin");
    ask(Method::PATCH, json!({ "role": "viewer" })).await.refused(409, "conflict.last_admin");
    ask(Method::PATCH, json!({ "disabled": true })).await.refused(409, "conflict.last_admin");
    ask(Method::PATCH, json!({ "password": "another password" })).await.expect(200);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_shown_once_and_stored_as_a_hash_and_ends_at_its_expiry() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let expires =
        model::Time::from_timestamp(jiff::Timestamp::now()).plus(std::time::Duration::from_secs(3600));
    let new = json!({ "name": "ci", "role": "viewer", "expires_at": expires });
    let made = scene.admin.post("/api/v1/tokens", &new).await.expect(201);
    scene.admin.post("/api/v1/tokens", &new).await.refused(409, "conflict.name");
    let text = made["token"].as_str().unwrap().to_owned();
    let client = scene.anonymous().with_token(&text);
    assert_eq!(works(&client).await, 200);
    let used = |page: &ApiResponse| {
        let page = page.json();
        let ci =
            page["tokens"].as_array().unwrap().iter().find(|token| token["name"] == "ci").cloned().unwrap();
        !ci["last_used_at"].is_null()
    };
    let listed = scene.admin.until("/api/v1/tokens", "the last use", used).await;
    assert!(!listed.text().contains(&text));
    let events = scene.admin.get("/api/v1/events?limit=1000").await;
    assert!(events.text().contains("token.created") && !events.text().contains(&text));
    let database = std::fs::read(scene.folder.path().join("data/provisioner.db")).unwrap();
    assert!(!database.windows(text.len()).any(|bytes| bytes == text.as_bytes()));

    scene.skip(std::time::Duration::from_secs(3601));
    assert_eq!(works(&client).await, 401);
    scene.admin.post("/api/v1/tokens/ci/rotate", &json!({})).await.refused(400, "validation_error");
    for wrong in [
        json!({ "name": "past", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z" }),
        json!({ "name": "empty", "role": "registry-only" }),
        json!({ "name": "scope", "role": "viewer", "registry": ["all:**"] }),
        json!({ "name": "reports", "role": "report-only", "registry": ["pull:**"] }),
    ] {
        scene.admin.post("/api/v1/tokens", &wrong).await.refused(400, "validation_error");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_only_token_reports_for_its_servers_and_does_nothing_else() {
    let scene = Scene::start(vec![silent("ROT-1")]).await;
    scene.admin.patch("/api/v1/servers/ROT-1", &json!({ "labels": { "site": "bern" } })).await.expect(200);
    let bern = json!({ "name": "bern", "role": "report-only", "labels": { "site": "bern" } });
    let basel = json!({ "name": "basel", "role": "report-only", "labels": { "site": "basel" } });
    let (bern, basel) = (token(&scene, bern).await, token(&scene, basel).await);
    bern.get("/api/v1/jobs").await.refused(403, "forbidden");
    assert_eq!(bern.get("/v2/os-images/ubuntu-rootfs/manifests/22.04").await.status, 403);
    let id = scene.admin.create_job("ROT-1").await;
    scene.admin.awaits_report(&id).await;
    let report = json!({ "status": "success" });
    let anonymous = scene.anonymous();
    anonymous.report("ROT-1", scene.admin.token(), &report).await.refused(401, "unauthorized");
    anonymous.report("ROT-1", basel.token(), &report).await.refused(404, "unknown_server");
    anonymous.report("ROT-1", bern.token(), &report).await.expect(200);
    scene.complete_skipping(&id).await;
    let events = scene.admin.events(&id).await;
    let reported = events.iter().find(|event| event["type"] == "report.success").unwrap();
    assert_eq!(reported["actor"], "bern");
    scene.end().await;
}

/// The operations of the document that need a role, with their method and whether tokens with labels may use them.
fn operations() -> Vec<(Method, String, bool)> {
    let document: Value = serde_json::from_str(api::openapi()).unwrap();
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            if operation["security"][0].get("bearer").is_some() {
                let labels = operation["x-token-labels"].as_bool().unwrap();
                found.push((method.to_uppercase().parse().unwrap(), path.clone(), labels));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_labels_reaches_only_servers_with_them_on_every_route() {
    let scene = Scene::bare(vec![], |settings, _| settings.worker_concurrency = 0).await;
    let mut jobs = Vec::new();
    for (serial, site) in [("LAB-1", "bern"), ("LAB-2", "basel")] {
        scene.admin.register_at(serial, "https://192.0.2.1").await;
        let place = format!("/api/v1/servers/{serial}");
        scene.admin.patch(&place, &json!({ "labels": { "site": site, "rack": "4" } })).await.expect(200);
        let job = json!({ "server_serial": serial, "recipe": recipe(), "labels": { "site": "bern" } });
        let job = scene.admin.post("/api/v1/jobs", &job).await.expect(202);
        jobs.push(job["job_id"].as_str().unwrap().to_owned());
    }
    let client =
        token(&scene, json!({ "name": "bern", "role": "admin", "labels": { "site": "bern" } })).await;
    let (mut refused, mut hidden) = (0, 0);
    for (method, template, labels) in operations() {
        let path = template.replace("{id}", &jobs[1]).replace("{serial}", "LAB-2").replace("{name}", "bern");
        let place = format!("{method} {template}");
        let response = client.send(client.request(method.clone(), &path).json(&json!({}))).await;
        assert!(!response.text().contains("LAB-2") || response.status == 404, "{place}: {}", response.text());
        assert!(!response.text().contains("basel"), "{place}: {}", response.text());
        let of_object = template.contains("{id}") || template.contains("{serial}");
        if !labels {
            assert_eq!(response.status, 403, "{place}");
            refused += 1;
        } else if of_object {
            let unknown = match template.strip_prefix("/api/v1/").and_then(|rest| rest.split('/').next()) {
                Some("jobs") => "unknown_job",
                Some("sessions") => "unknown_session",
                _ => "unknown_server",
            };
            response.refused(404, unknown);
            hidden += 1;
        }
    }
    assert!(refused > 30 && hidden > 12, "{refused} {hidden}");

    let serials = |page: &Value, list: &str, key: &str| -> BTreeSet<String> {
        let rows = page[list].as_array().unwrap().iter();
        rows.map(|row| row[key].as_str().unwrap().to_owned()).collect()
    };
    let own = BTreeSet::from(["LAB-1".to_owned()]);
    let servers = client.get("/api/v1/servers?limit=1").await.expect(200);
    assert_eq!(serials(&servers, "servers", "serial"), own);
    assert!(servers["next"].is_null(), "the cursor shows no other server: {servers}");
    let listed = client.get("/api/v1/jobs?label=site=bern").await.expect(200);
    assert_eq!(serials(&listed, "jobs", "server_serial"), own);
    let foreign = client.get("/api/v1/jobs?server_serial=LAB-2").await.expect(200);
    assert_eq!(foreign["jobs"], json!([]));
    let of_job = |more: &str| format!("/api/v1/jobs/{}/{more}", jobs[0]);
    let of_server = |more: &str| format!("/api/v1/servers/LAB-1{more}");
    for place in [of_server(""), of_server("/inventory"), of_job("explain"), of_job("log")] {
        assert_eq!(client.get(&place).await.status, 200, "{place}");
    }
    let streamed = client.request(Method::GET, "/api/v1/events").header("accept", "text/event-stream");
    assert_eq!(client.send(streamed).await.status, 403);
    let job = |serial: &str| json!({ "server_serial": serial, "recipe": recipe() });
    for place in ["/api/v1/jobs", "/api/v1/jobs?dry_run=true"] {
        client.post(place, &job("LAB-2")).await.refused(404, "unknown_server");
    }
    client.post("/api/v1/jobs", &job("LAB-1")).await.refused(409, "conflict.active_job");
    client.post(&format!("/api/v1/jobs/{}/hold", jobs[0]), &json!({})).await.expect(202);

    scene.admin.patch("/api/v1/servers/LAB-1", &json!({ "labels": { "site": "basel" } })).await.expect(200);
    client.get("/api/v1/servers/LAB-1").await.refused(404, "unknown_server");
    client.get(&format!("/api/v1/jobs/{}", jobs[0])).await.refused(404, "unknown_job");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_scopes_are_all_that_a_limited_token_may_do_and_end_with_it() {
    let scene = Scene::start_with(vec![], |settings, folder| {
        let rules = folder.join("access");
        std::fs::write(&rules, "open/** authenticated all\n").unwrap();
        settings.registry_access_file = Some(rules);
    })
    .await;
    let manifest = "/v2/os-images/ubuntu-rootfs/manifests/22.04";
    let upload = |repository: &str| format!("/v2/{repository}/blobs/uploads/");
    let new =
        |name: &str, role: &str, registry: Value| json!({ "name": name, "role": role, "registry": registry });
    let puller = token(&scene, new("puller", "viewer", json!(["pull:os-images/**"]))).await;
    let pusher = token(&scene, new("pusher", "registry-only", json!(["push:team/*", "pull:team/*"]))).await;
    let viewer = token(&scene, new("plain", "viewer", json!([]))).await;
    let labelled = json!({ "name": "labelled", "role": "operator", "labels": { "site": "bern" } });
    let labelled = token(&scene, labelled).await;
    let status = async |client: &Client, method: Method, place: &str| {
        client.send(client.request(method, place)).await.status
    };
    for (client, get, push_team, push_open, delete) in [
        (&puller, 200, 403, 403, 403),
        (&pusher, 403, 202, 403, 403),
        (&viewer, 200, 403, 202, 403),
        (&labelled, 403, 403, 403, 403),
    ] {
        assert_eq!(status(client, Method::GET, manifest).await, get);
        assert_eq!(status(client, Method::POST, &upload("team/app")).await, push_team);
        assert_eq!(status(client, Method::POST, &upload("open/app")).await, push_open);
        assert_eq!(status(client, Method::DELETE, manifest).await, delete);
    }
    assert_eq!(puller.get("/api/v1/jobs").await.status, 200, "its role is viewer");
    pusher.get("/api/v1/jobs").await.refused(403, "forbidden");

    // Bearer tokens of the token endpoint end with the API token or the password that they were issued for.
    let issued = async |name: &str, password: &str, scope: &str| {
        let place = format!("/v2/token?service=shoal&scope={scope}");
        let client = scene.anonymous();
        let response =
            client.send(client.request(Method::GET, &place).basic_auth(name, Some(password))).await;
        let token = response.json()["token"].as_str().unwrap().to_owned();
        scene.anonymous().with_token(&token)
    };
    let pull = "repository:os-images/ubuntu-rootfs:pull";
    let bea = json!({ "name": "bea", "role": "viewer", "password": PASSWORD });
    scene.admin.post("/api/v1/users", &bea).await.expect(201);
    let of_bea = issued("bea", PASSWORD, pull).await;
    let of_puller = issued("x", puller.token(), pull).await;
    let of_viewer = issued("x", viewer.token(), pull).await;
    let of_pusher = issued("x", pusher.token(), "repository:team/app:pull,push").await;
    for client in [&of_bea, &of_puller, &of_viewer] {
        assert_eq!(status(client, Method::GET, manifest).await, 200);
    }
    assert_eq!(status(&of_pusher, Method::POST, &upload("team/app")).await, 202);
    scene.admin.patch("/api/v1/users/bea", &json!({ "password": "another password" })).await.expect(200);
    scene.admin.post("/api/v1/tokens/puller/rotate", &json!({})).await.expect(200);
    for name in ["plain", "pusher"] {
        assert_eq!(scene.admin.delete(&format!("/api/v1/tokens/{name}")).await.status, 204);
    }
    for client in [&of_bea, &of_puller, &of_viewer] {
        assert_eq!(status(client, Method::GET, manifest).await, 401);
    }
    assert_eq!(status(&of_pusher, Method::POST, &upload("team/app")).await, 401);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_without_login_makes_a_token_on_the_machine_while_no_controller_runs() {
    let mut data = DataDir::new();
    let root = data.path().join("data");
    let offline = async |arguments: &'static [&'static str]| {
        let mut command = binary(arguments);
        command.env("STORAGE_ROOT", &root);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    let create = &["token", "create", "again", "--role", "admin", "--offline"];
    let served = data.serve().await;
    let refused = offline(create).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("in use"), "{said}");
    assert!(served.terminate().await.success());

    let revoked = offline(&["token", "revoke", "first-start", "--offline"]).await;
    assert!(revoked.status.success(), "{}", String::from_utf8_lossy(&revoked.stderr));
    let made = offline(create).await;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = String::from_utf8(made.stdout).unwrap();
    let served = data.serve().await;
    assert_eq!(works(&served.admin).await, 401, "the lost token is revoked");
    let admin = served.admin.with_token(text.trim());
    let tokens = admin.get("/api/v1/tokens").await.expect(200);
    assert_eq!(
        (&tokens["tokens"][0]["name"], &tokens["tokens"][0]["created_by"]),
        (&json!("again"), &json!("local"))
    );
    assert!(served.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_offline_ends_with_3() {
    let mut data = DataDir::new();
    data.serve().await.kill();
    for arguments in [
        &["user", "show", "none", "--offline"][..],
        &["user", "remove", "none", "--offline"],
        &["token", "show", "none", "--offline"],
        &["token", "rotate", "none", "--offline"],
        &["registry", "ls", "none"],
    ] {
        let ran = data.command_of(arguments).output().unwrap();
        assert_eq!(ran.status.code(), Some(3), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_change_that_began_before_a_reset_does_not_undo_it() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let new = json!({ "name": "bea", "role": "viewer", "password": PASSWORD });
    scene.admin.post("/api/v1/users", &new).await.expect(201);
    let address = scene.admin.base.trim_start_matches("http://").to_owned();
    let body = json!({ "password": "the one of a thief" }).to_string();
    let login = STANDARD.encode(format!("bea:{PASSWORD}"));
    let head = format!(
        "POST /api/v1/me/password HTTP/1.1\r\nHost: {address}\r\nAuthorization: Basic {login}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut thief = TcpStream::connect(&address).await.unwrap();
    thief.write_all(head.as_bytes()).await.unwrap();
    // The body is asked for after the credentials were accepted.
    let mut asked = [0; 25];
    thief.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    let reset = json!({ "password": "the one of the reset" });
    scene.admin.patch("/api/v1/users/bea", &reset).await.expect(200);
    thief.write_all(body.as_bytes()).await.unwrap();
    let mut response = String::new();
    thief.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
    assert_eq!(as_user(&scene, "bea", "the one of a thief", "/api/v1/me").await.status, 401);
    assert_eq!(as_user(&scene, "bea", "the one of the reset", "/api/v1/me").await.status, 200);
    scene.end().await;
}
