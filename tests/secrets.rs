//! Canaries: distinctive secrets are used everywhere, then all output of the program is searched for them.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lab_machines::InstallerBehaviour;
use reqwest::Method;
use serde_json::json;

use crate::kit::{
    BMC_PASSWORD, Canaries, Client, DataDir, binary, healthy, recipe, silent, start_farm, unpacked,
};

const SHARED: &str = "canary-webhook-secret-9Xk4";
const USER_DATA: &str = "canary-user-data-3Tz8";
const UNATTEND: &str = "canary-unattend-6Lp1";
/// The password of a registry user; its hash was made by the C library's crypt.
const IMAGE_PASSWORD: &str = "open: sesame \u{e4}";
const IMAGE_HASH: &str = "$2y$05$abcdefghijklmnopqrstuuZlDIKNqJBrE3WEj5lKP6sWoSJAIu5AS";
const SIGNING: &str = "canary-signing-secret-1Jf9";
const RECEIVER: &str = "canary-receiver-path-8Rn6";
const GUESS: &str = "canary-guessed-token-2Wd5";
/// A text that the program shows and stores as it is: the label of a server that fails its job. It must be found in every place,
/// or the search of that place proves nothing.
const MUTANT: &str = "mutant-in-a-label-7Ya2";
const SIGNED_URL: &str = "canary-image-signature-5Hm3";

/// Reads everything that a client can read about jobs and servers.
async fn read_all(client: &Client, ids: &[&str]) -> String {
    let mut paths: Vec<String> = [
        "/api/v1/jobs",
        "/api/v1/servers",
        "/api/v1/servers/SEC-1",
        "/api/v1/registry",
        "/api/v1/webhooks",
        "/api/v1/audit?limit=1000",
        "/metrics",
        "/healthz",
    ]
    .map(str::to_owned)
    .into();
    paths.push("/readyz".to_owned());
    paths.push("/api/v1/events?limit=1000".to_owned());
    for id in ids {
        paths.push(format!("/api/v1/jobs/{id}"));
        paths.push(format!("/api/v1/jobs/{id}/events?limit=1000"));
    }
    let mut text = String::new();
    for path in paths {
        let response = client.get(&path).await;
        assert_eq!(response.status, 200, "{path}");
        text.push_str(&response.text());
        text.push_str(&format!("{:?}", response.headers));
    }
    text
}

/// Sends requests with secrets that are refused. Returns the responses.
async fn refusals(client: &Client) -> String {
    let mut spoiled = recipe();
    spoiled["user_data"] = json!({ "nested": USER_DATA });
    spoiled["unattend_xml"] = json!([UNATTEND]);
    let mut foreign = recipe();
    foreign["user_data"] = json!(USER_DATA);
    foreign["user_data_encoding"] = json!("base64");
    foreign["unattend_xml"] = json!(UNATTEND.repeat(100_000));
    let server = json!({
        "serial": "SEC-1", "bmc_address": "127.0.0.1:1", "bmc_username": "other", "bmc_password": BMC_PASSWORD,
    });
    let webhook = json!({ "url": format!("ftp://h/{RECEIVER}"), "secret": [SIGNING] });
    let receiver = json!({ "url": format!("http://{RECEIVER}@h/"), "secret": SIGNING.repeat(100) });
    let misshapen = json!({ "serial": "SEC-9", "bmc_password": { "is": BMC_PASSWORD } });
    let requests = [
        client
            .request(Method::POST, "/api/v1/jobs")
            .json(&json!({ "server_serial": "SEC-1", "recipe": spoiled })),
        client
            .request(Method::POST, "/api/v1/jobs")
            .json(&json!({ "server_serial": "SEC-1", "recipe": foreign })),
        client.request(Method::POST, "/api/v1/servers").json(&server),
        client.request(Method::POST, "/api/v1/servers").json(&misshapen),
        client.request(Method::POST, "/api/v1/webhooks").json(&webhook),
        client.request(Method::POST, "/api/v1/webhooks").json(&receiver),
        client.with_token(GUESS).request(Method::GET, "/api/v1/jobs"),
        client
            .request(Method::POST, "/api/v1/status-webhook/SEC-1")
            .header("X-Webhook-Secret", GUESS)
            .json(&json!({ "status": "success" })),
        client.request(Method::GET, &format!("/t{}/task.iso", "0123456789abcdef0123456789abcdef")),
    ];
    let mut text = String::new();
    for request in requests {
        let response = client.send(request).await;
        assert!((400..500).contains(&response.status), "{}", response.text());
        text.push_str(&response.text());
        text.push_str(&format!("{:?}", response.headers));
    }
    text
}

/// Logs in at the registry with a right and a wrong password, and pulls with the issued token.
async fn registry_token(client: &Client) -> String {
    let place = "/v2/token?service=shoal&scope=repository:os-images/ubuntu-rootfs:pull";
    let ask = |password| client.without_token().request(Method::GET, place).basic_auth("ann", Some(password));
    assert_eq!(client.send(ask(GUESS)).await.status, 401);
    let given = client.send(ask(IMAGE_PASSWORD)).await.expect(200);
    let token = given["token"].as_str().unwrap();
    let manifest = client.with_token(token).get("/v2/os-images/ubuntu-rootfs/manifests/22.04").await;
    assert_eq!(manifest.status, 200);
    token.to_owned()
}

fn bytes_of_files(folder: &Path, name_starts: &str) -> Vec<u8> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(name_starts));
    named.flat_map(|path| std::fs::read(path).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_anything_that_leaves_the_program() {
    let data = DataDir::new();
    let users = data.path().join("htpasswd");
    std::fs::write(&users, format!("ann:{IMAGE_HASH}\n")).unwrap();
    let mut data = data
        .with("LOG_LEVEL", "trace")
        .with("WEBHOOK_SECRET", SHARED)
        .with("REGISTRY_HTPASSWD_FILE", users.to_str().unwrap());
    let controller = data.serve().await;
    let admin = &controller.admin;
    let mut failing = healthy("SEC-2");
    failing.behaviour = InstallerBehaviour::failing_at("image-linux.service");
    let farm = start_farm(vec![silent("SEC-1"), failing], data.path()).await;
    for server in farm.servers() {
        admin.register(server).await;
    }
    // The port has no listener: every attempt fails and is reported.
    let webhook = json!({ "url": format!("http://127.0.0.1:9/{RECEIVER}?{RECEIVER}"), "secret": SIGNING });
    let webhook = admin.post("/api/v1/webhooks", &webhook).await.expect(201);
    admin.push_image().await;
    let image_token = registry_token(admin).await;
    let mut recipe = recipe();
    recipe["user_data"] = json!(STANDARD.encode(USER_DATA));
    let image = image_server().await;
    let body = json!({
        "server_serial": "SEC-1", "recipe": recipe, "maintenance_iso_url": format!("{image}?sig={SIGNED_URL}"),
    });
    let job = admin.post("/api/v1/jobs", &body).await.expect(202);
    let id = job["job_id"].as_str().unwrap();
    let labels = json!({ "labels": { "shown": MUTANT } });
    admin.patch("/api/v1/servers/SEC-2", &labels).await.expect(200);
    let failing =
        json!({ "server_serial": "SEC-2", "recipe": crate::kit::recipe(), "labels": { "shown": MUTANT } });
    let second =
        admin.post("/api/v1/jobs", &failing).await.expect(202)["job_id"].as_str().unwrap().to_owned();
    admin.awaits_report(id).await;

    // The secrets of the job that its machine receives.
    let document = admin.job_document(id).await;
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let slots = farm.servers()[0].bmc.snapshot().slots;
    let mut secrets = vec![
        ("the BMC password", BMC_PASSWORD.to_owned()),
        ("the report secret", SHARED.to_owned()),
        ("user data", USER_DATA.to_owned()),
        ("user data", STANDARD.encode(USER_DATA)),
        ("the unattend file", UNATTEND.to_owned()),
        ("a guessed token", GUESS.to_owned()),
        ("the admin token", admin.token().to_owned()),
        ("the job's report token", text(&document["webhook_token"])),
        ("the job's pull password", text(&document["registry"]["password"])),
        ("the password of a user of the registry", IMAGE_PASSWORD.to_owned()),
        ("a token of the registry", image_token),
        ("a signing secret", SIGNING.to_owned()),
        ("the URL of a webhook", RECEIVER.to_owned()),
        ("the signature of an image", SIGNED_URL.to_owned()),
    ];
    for slot in &slots {
        if let Some(url) = &slot.image {
            let token = url.as_str().rsplit('/').nth(1).unwrap().to_owned();
            secrets.push(("a grant token", token));
        }
    }
    let place = format!("/api/v1/jobs/{id}/media-url");
    let signed = text(&admin.post(&place, &json!({})).await.expect(201)["url"]);
    assert_eq!(admin.without_token().get(&signed).await.status, 200);
    let signature = signed.split_once("sig=").unwrap().1.to_owned();
    // A wrong signature is a secret too: it may be one of another job.
    let wrong: String = signature.chars().rev().collect();
    let guessed = signed.replace(&signature, &wrong);
    admin.without_token().get(&guessed).await.refused(403, "media.url_invalid");
    secrets.push(("the signature of a media URL", signature));
    secrets.push(("a wrong signature of a media URL", wrong));
    let login = admin.post("/api/v1/session", &json!({})).await;
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let browser = admin.without_token();
    let asked = browser.request(Method::GET, "/api/v1/session").header("Cookie", &cookie);
    let proof = text(&browser.send(asked).await.expect(200)["csrf_token"]);
    let change = browser.request(Method::POST, "/api/v1/drain").header("Cookie", &cookie);
    browser.send(change.header("X-CSRF-Token", "a wrong proof")).await.refused(403, "csrf");
    secrets.push(("the cookie of a session", cookie.split_once('=').unwrap().1.to_owned()));
    secrets.push(("the proof of a session", proof));
    let master = std::fs::read_to_string(data.path().join("data/master.key")).unwrap();
    secrets.push(("the master key", master.split_whitespace().next().unwrap().to_owned()));
    assert_eq!(secrets.len(), 21);
    let listed = secrets.iter().map(|(what, secret)| (*what, secret.as_str()));
    let canaries = Canaries::new(listed.clone());
    // Everything that is stored is sealed or hashed. A guessed token is no secret of this controller.
    let stored = Canaries::new(listed.clone().filter(|(what, _)| *what != "a guessed token"));
    let mutant = Canaries::new([("the mutant", MUTANT)]);

    let refused = refusals(admin).await;
    canaries.absent("an error", &refused);
    let while_waiting = read_all(admin, &[id, &second]).await;
    canaries.absent("a response", &while_waiting);
    assert!(!mutant.found_in(while_waiting.as_bytes()).is_empty(), "the search of responses finds nothing");
    images(admin, id, &slots, &secrets).await;
    admin.report("SEC-1", SHARED, &json!({ "status": "success" })).await.expect(200);
    admin.complete(id).await;
    admin.complete(&second).await;
    canaries.absent("a response", read_all(admin, &[id, &second]).await);
    support_bundle(&data, admin, &canaries, &mutant).await;
    let place = format!("/api/v1/webhooks/{}", webhook["webhook_id"].as_str().unwrap());
    let tried = admin.until(&place, "a try", |response| !response.json()["last_error"].is_null()).await;
    canaries.absent("a webhook", tried.text());
    let log = bytes_of_files(&data.path().join("data"), "provisioner.db-wal");
    assert!(!log.is_empty());
    assert!(controller.terminate().await.success());

    // The admin token is shown once, on standard output, and nowhere in the log.
    let logs = data.logs().replacen(&format!("shown only now: {}", secrets[6].1), "", 1);
    assert!(logs.contains("controller started"));
    canaries.absent("the log", &logs);
    let at_rest = |place: &str, bytes: &[u8]| {
        stored.absent(place, bytes);
        assert!(!mutant.found_in(bytes).is_empty(), "the search of {place} finds nothing");
    };
    at_rest("the database log while the controller ran", &log);
    at_rest("the database", &bytes_of_files(&data.path().join("data"), "provisioner.db"));
    let backup = data.path().join("backup");
    let made = data.command_of(&["backup", backup.to_str().unwrap()]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    at_rest(
        "the copy of the database in the backup",
        &bytes_of_files(&backup.join("data"), "provisioner.db"),
    );
    std::fs::remove_file(data.path().join("data/master.key")).unwrap();
    for (folder, what) in [(data.path().join("data"), "the data directory"), (backup, "the backup")] {
        assert!(stored.absent_below(what, &folder) > 3, "{what} has files");
    }
    let shown = data.command_of(&["config", "show"]).output().unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("WEBHOOK_SECRET"), "{shown}");
    stored.absent("the shown configuration", shown);
}

/// Searches the images of a job: they hold the secrets of this job and no other.
async fn images(
    admin: &Client,
    id: &str,
    slots: &[lab_bmc::SlotSnapshot],
    secrets: &[(&'static str, String)],
) {
    let of_job = ["the job's report token", "the job's pull password", "user data", "the unattend file"];
    let all = secrets.iter().map(|(what, secret)| (*what, secret.as_str()));
    let others = Canaries::new(all.clone().filter(|(what, _)| !of_job.contains(what)));
    let image = admin.task_image(id).await;
    others.absent("the task image", &image);
    let own = Canaries::new(all.clone().filter(|(what, _)| *what == "the job's report token"));
    assert!(!own.found_in(&image).is_empty(), "the search of images finds nothing");
    let every = Canaries::new(all);
    for slot in slots {
        let Some(url) = slot.image.as_ref().filter(|url| url.as_str().ends_with("boot.iso")) else {
            continue;
        };
        let boot = admin.without_token().get(url.as_str()).await;
        assert_eq!(boot.status, 200);
        every.absent("the boot image", &boot.body);
    }
}

/// Searches a support bundle, as the command writes it.
async fn support_bundle(data: &DataDir, admin: &Client, canaries: &Canaries, mutant: &Canaries) {
    let file = data.path().join("support.tar.gz");
    let mut command = binary(&["support-bundle", "--output", file.to_str().unwrap()]);
    command.env("SHOAL_URL", &admin.base).env("SHOAL_TOKEN", admin.token());
    let made = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let files = unpacked(&file);
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let wanted = [
        "about.json",
        "settings.json",
        "readyz.json",
        "metrics.txt",
        "tables.json",
        "events.jsonl",
        "jobs.jsonl",
        "log.txt",
    ];
    assert_eq!(names, wanted.map(|name| format!("shoal-support/{name}")));
    for (name, bytes) in &files {
        assert!(!bytes.is_empty(), "{name}");
        canaries.absent(name, bytes);
        assert!(!String::from_utf8_lossy(bytes).contains("cannot be read"), "{name}");
    }
    let jobs = &files[6].1;
    assert!(!mutant.found_in(jobs).is_empty(), "the search of the bundle finds nothing");
    assert!(String::from_utf8_lossy(jobs).contains("next_action"), "a failed job is explained");
    assert!(String::from_utf8_lossy(&files[7].1).contains("controller started"), "the log is in the bundle");
}

/// Every setting that may hold a secret, with values that do: none is shown, whether it is accepted or refused.
#[test]
fn no_secret_of_a_setting_is_shown_by_the_commands_for_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let canary = "canary-setting-4Vq7-0123456789abcdef";
    let canaries = Canaries::new([("the value of a setting", canary)]);
    let mut tried = 0;
    for definition in settings::DEFINITIONS.iter() {
        let kind = definition.kind.to_string();
        let values = if definition.secret() {
            vec![canary.to_owned(), format!("{canary}\u{1}"), canary.repeat(2048)]
        } else if kind.contains("URL") || kind.contains("http") {
            let forms = [
                "https://user:C@images.example/m.iso?sig=C#C",
                "ftp://user:C@a/m.iso?C",
                "https://u:C@[a/m.iso",
            ];
            forms.map(|form| form.replace('C', canary)).into()
        } else {
            continue;
        };
        for value in values {
            for command in [&["config", "show"][..], &["config", "show", "--json"], &["config", "check"]] {
                let mut command = binary(command);
                command.env("STORAGE_ROOT", folder.path().join("data")).env(definition.name, &value);
                let shown = command.output().unwrap();
                tried += 1;
                canaries.absent(definition.name, [shown.stdout, shown.stderr].concat());
            }
        }
    }
    assert!(tried > 50, "{tried} commands");
}

/// Starts a web server with the maintenance image. Returns the URL of the image.
async fn image_server() -> String {
    let folder = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(crate::kit::maintenance_iso(folder.path())).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/maintenance.iso", listener.local_addr().unwrap());
    let router = axum::Router::new().fallback(move || {
        let bytes = bytes.clone();
        async move { bytes }
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}
