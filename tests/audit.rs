//! The audit log through the API and the commands: who did what, refused requests as sums, offline checks and their exit codes.

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Client, DataDir, Scene, binary, silent};

const PASSWORD: &str = "correct horse battery staple";
const GUESS: &str = "shoal_canary-guess-8Kq2";

/// The entries that a filter selects, the oldest first.
async fn entries(admin: &Client, query: &str) -> Vec<Value> {
    let page = admin.get(&format!("/api/v1/audit?limit=1000&{query}")).await.expect(200);
    let mut entries = page["entries"].as_array().unwrap().clone();
    entries.reverse();
    entries
}

fn shown(entry: &Value) -> [String; 5] {
    ["actor_kind", "actor", "action", "target", "result"].map(|name| entry[name].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_one_entry_with_its_actor_target_and_result() {
    let scene = Scene::start(vec![silent("AUD-1")]).await;
    let admin = &scene.admin;
    let bea = json!({ "name": "bea", "role": "operator", "password": PASSWORD });
    let request = admin.request(Method::POST, "/api/v1/users").header("X-Request-Id", "audit-1").json(&bea);
    admin.send(request).await.expect(201);
    let made = admin.post("/api/v1/tokens", &json!({ "name": "ci", "role": "operator" })).await.expect(201);
    let ci = scene.anonymous().with_token(made["token"].as_str().unwrap());
    let job = ci.create_job("AUD-1").await;
    admin.awaits_report(&job).await;
    let bea_client = scene.anonymous();
    let by_bea = bea_client
        .request(Method::POST, &format!("/api/v1/jobs/{job}/cancel"))
        .basic_auth("bea", Some(PASSWORD));
    bea_client.send(by_bea).await.expect(202);
    admin.post("/api/v1/drain", &json!({})).await.expect(202);
    admin.delete("/api/v1/drain").await.expect(200);
    admin.get("/api/v1/jobs").await.expect(200);

    let log = entries(admin, "").await;
    let found: Vec<[String; 5]> = log.iter().map(shown).collect();
    let id = |name: &str, action: &str| {
        log.iter().find(|entry| entry["actor"] == name && entry["action"] == action).unwrap()["actor_id"]
            .clone()
    };
    assert_eq!(found[0], ["controller", "controller", "token.create", "token/first-start", "ok"]);
    assert_eq!(found[1], ["token", "first-start", "server.create", "server/AUD-1", "ok"]);
    let pushed: Vec<&str> = found
        .iter()
        .filter(|entry| entry[2].starts_with("registry."))
        .map(|entry| entry[2].as_str())
        .collect();
    assert!(pushed.contains(&"registry.push-blob") && pushed.contains(&"registry.push-tag"), "{found:?}");
    let others: Vec<[String; 5]> =
        found[2..].iter().filter(|entry| !entry[2].starts_with("registry.")).cloned().collect();
    let of = |kind: &str, actor: &str, action: &str, target: String| {
        [kind, actor, action, &target, "ok"].map(str::to_owned)
    };
    assert_eq!(
        others,
        [
            of("token", "first-start", "user.create", "user/bea".to_owned()),
            of("token", "first-start", "token.create", "token/ci".to_owned()),
            of("token", "ci", "job.create", format!("server/AUD-1/job/{job}")),
            of("user", "bea", "job.cancel", format!("job/{job}")),
            of("token", "first-start", "controller.drain", String::new()),
            of("token", "first-start", "controller.drain-end", String::new()),
        ]
    );
    assert!(id("ci", "job.create").as_str().is_some_and(|id| !id.is_empty()));
    let created = log.iter().find(|entry| entry["action"] == "user.create").unwrap();
    assert_eq!((&created["request_id"], &created["source"]), (&json!("audit-1"), &json!("127.0.0.1")));
    // The pages, and the filters.
    let page = admin.get("/api/v1/audit?limit=2").await.expect(200);
    let next = page["next"].as_str().unwrap();
    assert_eq!(
        page["head"],
        json!(format!("{}:{}", log.len(), log[log.len() - 1]["hash"].as_str().unwrap()))
    );
    let second = admin.get(&format!("/api/v1/audit?limit=2&cursor={next}")).await.expect(200);
    assert_eq!(second["entries"][0]["seq"].as_u64(), Some(log.len() as u64 - 2));
    assert_eq!(entries(admin, "action=controller.*").await.len(), 2);
    assert_eq!(entries(admin, "actor=bea").await.len(), 1);
    assert_eq!(entries(admin, "target=server/*&action=job.create").await.len(), 1);
    assert!(entries(admin, "since=2999-01-01T00:00:00Z").await.is_empty());
    admin.get("/api/v1/audit?since=yesterday").await.refused(400, "validation_error");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_are_summed_without_the_credential_and_only_administrators_read_the_log() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let made =
        scene.admin.post("/api/v1/tokens", &json!({ "name": "eye", "role": "viewer" })).await.expect(201);
    let viewer = scene.anonymous().with_token(made["token"].as_str().unwrap());
    viewer.get("/api/v1/audit").await.refused(403, "forbidden");
    let guess = scene.anonymous().with_token(GUESS);
    for _ in 0..3 {
        viewer.post("/api/v1/drain", &json!({})).await.refused(403, "forbidden");
        guess.post("/api/v1/jobs", &json!({})).await.refused(401, "unauthorized");
    }
    scene.admin.delete(&format!("/api/v1/tokens/{GUESS}")).await.refused(404, "unknown_token");
    // A preview that is refused is no attempt to change something.
    scene.admin.post("/api/v1/jobs?dry_run=true", &json!({})).await.refused(400, "validation_error");
    scene.admin.post("/api/v1/drain", &json!({})).await.expect(202);
    let place = "/api/v1/audit?action=controller.drain&limit=1000";
    scene
        .admin
        .until(place, "the refused drains", |page| page.json()["entries"].as_array().unwrap().len() > 1)
        .await;
    let log = entries(&scene.admin, "").await;
    let refused: Vec<&Value> = log.iter().filter(|entry| entry["result"] != "ok").collect();
    assert!(refused.iter().all(|entry| entry["result"] != "validation_error"), "{refused:#?}");
    let count = |action: &str| {
        let of: Vec<&&Value> = refused.iter().filter(|entry| entry["action"] == action).collect();
        assert!(of.len() <= 1, "one row per request: {of:?}");
        of.first().map_or(0, |entry| entry["count"].as_u64().unwrap())
    };
    assert!((1..=3).contains(&count("controller.drain")), "{refused:?}");
    assert!((1..=3).contains(&count("job.create")), "{refused:?}");
    let drain = refused.iter().find(|entry| entry["action"] == "controller.drain").unwrap();
    assert_eq!(shown(drain), ["token", "eye", "controller.drain", "", "forbidden"].map(str::to_owned));
    let guessed = refused.iter().find(|entry| entry["action"] == "job.create").unwrap();
    assert_eq!(shown(guessed), ["unknown", "", "job.create", "", "unauthorized"].map(str::to_owned));
    assert!(!serde_json::to_string(&log).unwrap().contains("canary"), "{log:?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_verified_exported_and_checked_against_an_earlier_export_without_a_controller() {
    let mut data = DataDir::new();
    let controller = data.serve().await;
    controller.admin.post("/api/v1/tokens", &json!({ "name": "ci", "role": "viewer" })).await.expect(201);
    let earlier = data.path().join("earlier.jsonl");
    let run = |data: &DataDir, arguments: &[&str]| {
        let done = data.command_of(arguments).output().unwrap();
        let text =
            String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        (done.status.code().unwrap(), text)
    };
    let (code, text) = run(&data, &["audit", "export", "--output", earlier.to_str().unwrap()]);
    assert_eq!(code, 0, "while the controller runs: {text}");
    controller.admin.delete("/api/v1/tokens/ci").await;
    // Killed, not stopped: what was acknowledged is in the log.
    controller.kill();
    let (code, text) = run(&data, &["audit", "verify", "--earlier", earlier.to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("complete and unchanged"), "{text}");
    let (code, text) = run(&data, &["token", "--offline", "create", "night", "--role", "viewer"]);
    assert_eq!(code, 0, "{text}");
    let backup = data.path().join("copy");
    assert_eq!(run(&data, &["backup", backup.to_str().unwrap()]).0, 0);
    let later = data.path().join("later.jsonl");
    assert_eq!(run(&data, &["audit", "export", "--output", later.to_str().unwrap()]).0, 0);
    let log = std::fs::read_to_string(&later).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let of = |line: &str| shown(&serde_json::from_str(line).unwrap());
    let found: Vec<[String; 5]> = lines[1..].iter().map(|line| of(line)).collect();
    let wanted = [
        ["controller", "controller", "token.create", "token/first-start", "ok"],
        ["token", "first-start", "token.create", "token/ci", "ok"],
        ["token", "first-start", "token.revoke", "token/ci", "ok"],
        ["local", "local", "token.create", "token/night", "ok"],
        ["local", "local", "data.backup", "backup/copy", "ok"],
    ];
    assert_eq!(found, wanted.map(|entry| entry.map(str::to_owned)));

    let verify = |file: &std::path::Path, more: &[&str]| {
        let done = binary(&[&["audit", "verify", file.to_str().unwrap()], more].concat()).output().unwrap();
        (done.status.code().unwrap(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    assert_eq!(verify(&later, &["--earlier", earlier.to_str().unwrap()]).0, 0);
    let changed = data.path().join("changed.jsonl");
    std::fs::write(&changed, log.replace("token.revoke", "token.rotate")).unwrap();
    let (code, text) = verify(&changed, &[]);
    assert_eq!(code, 1);
    assert!(text.contains("entry 3 was changed"), "{text}");
    std::fs::write(
        &changed,
        format!("{}\n{}\n", lines[0], lines[1..].iter().rev().copied().collect::<Vec<_>>().join("\n")),
    )
    .unwrap();
    assert_eq!(verify(&changed, &[]).0, 1);
    let (code, text) = verify(&earlier, &["--earlier", later.to_str().unwrap()]);
    assert_eq!(code, 1, "the end is cut off");
    assert!(text.contains("was cut off"), "{text}");
    assert_eq!(verify(&earlier, &["--head", "x"]).0, 2);
    assert_eq!(verify(&data.path().join("none"), &[]).0, 3);
    std::fs::write(&changed, "hello\n").unwrap();
    assert_eq!(verify(&changed, &[]).0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_commands_on_the_data_directory_and_rotations_there_are_entries() {
    let mut data = DataDir::new();
    data.serve().await.kill();
    let run = |arguments: &[&str]| data.command_of(arguments).output().unwrap().status.code().unwrap();
    assert_eq!(run(&["token", "revoke", "none", "--offline"]), 3);
    assert_eq!(run(&["user", "disable", "none", "--offline"]), 3);
    assert_eq!(run(&["token", "create", "first-start", "--role", "viewer", "--offline"]), 1);
    assert_eq!(run(&["secret", "rotate", "signing", "--offline"]), 0);
    assert_eq!(run(&["secret", "rotate", "master", "--offline"]), 0);
    let log = data.path().join("log.jsonl");
    assert_eq!(run(&["audit", "export", "--output", log.to_str().unwrap()]), 0);
    assert_eq!(run(&["audit", "verify", log.to_str().unwrap()]), 0);
    let log = std::fs::read_to_string(&log).unwrap();
    let found: Vec<[String; 5]> =
        log.lines().skip(1).map(|line| shown(&serde_json::from_str(line).unwrap())).collect();
    let wanted = [
        ["controller", "controller", "token.create", "token/first-start", "ok"],
        ["local", "local", "token.revoke", "token/none", "unknown_token"],
        ["local", "local", "user.change", "user/none", "unknown_user"],
        ["local", "local", "token.create", "token/first-start", "conflict.name"],
        ["local", "local", "secret.rotate", "secret/signing", "ok"],
        ["local", "local", "secret.rotate", "secret/master", "ok"],
    ];
    assert_eq!(found, wanted.map(|entry| entry.map(str::to_owned)));
}
