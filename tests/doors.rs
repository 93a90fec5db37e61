//! Every secret opens the doors of its purpose and no other.
//!
//! ```text
//!   secret                 its purpose
//!   API token              the API and the registry
//!   token of a worker      the routes of workers
//!   report token           reports of one job
//!   pull password          the registry, one repository, one job
//!   grant token            one image of one job
//!   registry token         the registry, for minutes
//!   signature of a URL     one image of one job, for minutes
//!   shared report secret   reports
//!   signing secret         signatures of outgoing webhooks
//!   BMC password           one BMC
//!   master key             none: keys are derived from it
//! ```

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::kit::{BMC_PASSWORD, Client, Scene, silent};

const SHARED: &str = "the-shared-report-secret-of-this-test";
const SIGNING: &str = "the-signing-secret-of-this-test";
const MANIFEST: &str = "/v2/os-images/ubuntu-rootfs/manifests/22.04";

/// Tries a secret at every door. Returns the status of each.
async fn tried(scene: &Scene, job: &str, secret: &str) -> Vec<(&'static str, u16)> {
    let client: Client = scene.anonymous();
    let get = |path: &str| client.request(Method::GET, path);
    let report = |serial: &str| {
        client
            .request(Method::POST, &format!("/api/v1/status-webhook/{serial}"))
            .header("X-Webhook-Secret", secret)
            .json(&json!({ "status": "progress", "step": "a-step", "percent": 1 }))
    };
    let image = format!("/media/tasks/{job}/task.iso");
    // A signature belongs to the expiry in its URL; every other secret is tried with a later time.
    let (expires, signature) = secret.split_once(' ').unwrap_or(("99999999999", secret));
    let signed = format!("{image}?expires={expires}&sig={signature}");
    let secret = signature;
    let scope = "/v2/token?service=shoal&scope=repository:os-images/ubuntu-rootfs:pull";
    let doors = [
        ("API, bearer", get("/api/v1/jobs").bearer_auth(secret)),
        ("API, password of admin", get("/api/v1/jobs").basic_auth("admin", Some(secret))),
        ("API, password of a job", get("/api/v1/jobs").basic_auth("shoal-job", Some(secret))),
        ("task image by its job", get(&image).bearer_auth(secret)),
        ("task image by signature", get(&signed)),
        ("task image by grant", get(&format!("/t{secret}/task.iso"))),
        ("boot image by grant", get(&format!("/t{secret}/boot.iso"))),
        ("report of the job", report("DOOR-1")),
        ("report of another job", report("DOOR-2")),
        ("registry, bearer", get(MANIFEST).bearer_auth(secret)),
        ("registry, password of a user", get(MANIFEST).basic_auth("admin", Some(secret))),
        ("registry, password of a job", get(MANIFEST).basic_auth("shoal-job", Some(secret))),
        ("registry, token for a job", get(scope).basic_auth("shoal-job", Some(secret))),
        (
            "workers",
            client
                .request(Method::POST, "/worker/v1/hello")
                .bearer_auth(secret)
                .header("shoal-worker", "w")
                .json(&json!({
                    "protocol": engine::PROTOCOL,
                    "version": "1",
                    "workflows": worker::workflows(),
                    "queues": [],
                })),
        ),
        ("registry, another repository", get("/v2/others/manifests/1").basic_auth("shoal-job", Some(secret))),
    ];
    let mut statuses = Vec::new();
    for (door, request) in doors {
        // The limits of wrong credentials recover.
        scene.skip(Duration::from_secs(7));
        statuses.push((door, client.send(request).await.status));
    }
    statuses
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_refused_at_every_door_but_those_of_its_purpose() {
    let scene = Scene::start_with(vec![silent("DOOR-1"), silent("DOOR-2")], |settings, _| {
        settings.webhook_secret = Some(SHARED.parse().unwrap());
    })
    .await;
    let webhook = json!({ "url": "http://127.0.0.1:9/", "secret": SIGNING });
    scene.admin.post("/api/v1/webhooks", &webhook).await.expect(201);
    let job = scene.admin.create_job("DOOR-1").await;
    let other = scene.admin.create_job("DOOR-2").await;
    scene.admin.awaits_report(&job).await;
    scene.admin.awaits_report(&other).await;
    let document = scene.admin.job_document(&job).await;
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let slots = scene.bmc("DOOR-1").snapshot().slots;
    let grant = |name: &str| {
        let urls = slots.iter().filter_map(|slot| slot.image.as_ref()).map(|url| url.as_str().to_owned());
        let url = urls.into_iter().find(|url| url.contains(name)).unwrap();
        url.rsplit('/').nth(1).unwrap().strip_prefix('t').unwrap().to_owned()
    };
    let place = "/v2/token?service=shoal&scope=repository:os-images/ubuntu-rootfs:pull";
    let request = scene
        .anonymous()
        .request(Method::GET, place)
        .basic_auth("shoal-job", Some(text(&document["registry"]["password"])));
    let registry_token = text(&scene.anonymous().send(request).await.expect(200)["token"]);
    let master_file = scene.folder.path().join("data/master.key");
    let master_key = std::fs::read_to_string(&master_file).unwrap();
    let key_id = secrets::KeyRing::load(&master_file).unwrap().unwrap().in_force().id.to_string();

    let place = format!("/api/v1/jobs/{job}/media-url");
    let signed = text(&scene.admin.post(&place, &json!({})).await.expect(201)["url"]);
    let (_, query) = signed.split_once("?expires=").unwrap();

    let worker = json!({ "name": "far", "queues": ["facility-b"] });
    let worker = scene.admin.post("/api/v1/worker-tokens", &worker).await.expect(201);
    let secrets = [
        ("API token", scene.admin.token().to_owned()),
        ("token of a worker", text(&worker["token"])),
        ("report token", text(&document["webhook_token"])),
        ("pull password", text(&document["registry"]["password"])),
        ("grant token, task image", grant("/task.")),
        ("grant token, boot image", grant("/boot.")),
        ("registry token", registry_token),
        ("signature of a media URL", query.replace("&sig=", " ")),
        ("shared report secret", SHARED.to_owned()),
        ("signing secret", SIGNING.to_owned()),
        ("BMC password", BMC_PASSWORD.to_owned()),
        ("master key", master_key.split_ascii_whitespace().next().unwrap().to_owned()),
        ("id of the master key", key_id),
    ];
    let mut table = String::new();
    for (name, secret) in &secrets {
        let statuses = tried(&scene, &job, secret).await;
        assert!(
            statuses.iter().all(|(_, status)| *status != 429),
            "{name}: a limit hides a refusal: {statuses:?}"
        );
        let open: Vec<&str> =
            statuses.iter().filter(|(_, status)| *status < 400).map(|(door, _)| *door).collect();
        // Of a signature every refusal is 403, so it recognises nothing.
        let known = statuses.iter().filter(|(door, status)| *status == 403 && !door.ends_with("signature"));
        let known: Vec<&str> = known.map(|(door, _)| *door).collect();
        table.push_str(&format!(
            "{name}\n  opens: {}\n",
            if open.is_empty() { "nothing".to_owned() } else { open.join("; ") }
        ));
        if !known.is_empty() {
            table.push_str(&format!("  is recognised and refused at: {}\n", known.join("; ")));
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/secrets-and-doors.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    assert_eq!(table, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    scene.end().await;
}
