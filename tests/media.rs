//! Reads of task and boot images: by grant, with credentials, and without either.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::kit::{Scene, TIME_LIMIT, healthy, recipe, silent};

/// A job that waits for its report, and the URLs of its task and boot images.
async fn mounted(serial: &str) -> (Scene, String, String, String) {
    let scene = Scene::start(vec![silent(serial)]).await;
    let id = scene.admin.create_job(serial).await;
    scene.admin.awaits_report(&id).await;
    let slots = scene.bmc(serial).snapshot().slots;
    let url = |name: &str| {
        let urls = slots.iter().filter_map(|slot| slot.image.as_ref());
        urls.map(|url| url.as_str().to_owned()).find(|url| url.contains(name)).unwrap()
    };
    let (task, boot) = (url("/task."), url("/boot."));
    (scene, id, task, boot)
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_read_whole_in_ranges_and_not_beyond_their_end() {
    let (scene, id, task, boot) = mounted("MED-1").await;
    let client = scene.anonymous();
    let whole = client.get(&task).await;
    assert_eq!(whole.status, 200);
    let length = whole.body.len();
    assert_eq!(length % 2048, 0);
    let tag = whole.header("etag").unwrap().to_owned();
    assert_eq!(
        tag,
        format!("\"sha256:{}\"", scene.admin.job(&id).await["task_iso_sha256"].as_str().unwrap())
    );
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert_eq!(whole.header("content-type"), Some("application/x-iso9660-image"));
    assert_eq!(whole.header("transfer-encoding"), None);

    let head = client.send(client.request(Method::HEAD, &boot)).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    let boot_length: u64 = head.header("content-length").unwrap().parse().unwrap();
    let maintenance = std::fs::read(scene.folder.path().join("maintenance.iso")).unwrap();
    assert_eq!(boot_length, maintenance.len() as u64);
    assert!(client.get(&boot).await.body == maintenance);

    let range = |range: String| client.send(client.request(Method::GET, &task).header("Range", range));
    let part = range("bytes=32768-34815".to_owned()).await;
    assert_eq!((part.status, part.body.as_slice()), (206, &whole.body[32768..34816]));
    assert_eq!(part.header("content-range").unwrap(), format!("bytes 32768-34815/{length}"));
    let clamped = range(format!("bytes={}-{}", length - 10, length + 1000)).await;
    assert_eq!((clamped.status, clamped.body.as_slice()), (206, &whole.body[length - 10..]));
    let tail = range("bytes=-16".to_owned()).await;
    assert_eq!((tail.status, tail.body.as_slice()), (206, &whole.body[length - 16..]));
    let beyond = range(format!("bytes={length}-")).await;
    assert_eq!(beyond.status, 416);
    assert_eq!(beyond.header("content-range").unwrap(), format!("bytes */{length}"));

    let conditional = |tag: &str| {
        let request = client.request(Method::GET, &task).header("Range", "bytes=0-9").header("If-Range", tag);
        client.send(request)
    };
    assert_eq!(conditional(&tag).await.status, 206);
    assert_eq!(conditional("\"sha256:other\"").await.status, 200);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_for_one_image_and_its_token_cannot_be_guessed_from_another() {
    let (scene, _id, task, boot) = mounted("MED-2").await;
    let client = scene.anonymous();
    // The token of one image is used for the other.
    client.get(&task.replace("/task.", "/boot.")).await.refused(404, "not_found");
    client.get(&boot.replace("/boot.", "/task.")).await.refused(404, "not_found");
    // A token that was never issued.
    let (start, file) = task.rsplit_once('/').unwrap();
    let last = if start.ends_with('0') { '1' } else { '0' };
    let foreign = format!("{}{last}/{file}", &start[..start.len() - 1]);
    client.get(&foreign).await.refused(404, "not_found");
    let response = client.send(client.request(Method::POST, &task)).await;
    response.refused(405, "method_not_allowed");
    assert_eq!(response.header("allow"), Some("GET, HEAD"));
    assert!(client.get(&format!("{task}?x=1")).await.status == 200, "a query changes nothing");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_whose_digest_differs_from_its_record_is_refused_and_is_an_error_event() {
    let (scene, id, task, _boot) = mounted("MED-6").await;
    // A further grant of the task image, whose record has another digest.
    let token = "other00000000000000000000";
    let database = rusqlite::Connection::open(scene.folder.path().join("data/provisioner.db")).unwrap();
    database.busy_timeout(TIME_LIMIT).unwrap();
    let copy = "INSERT INTO media_grants (token_hash, run, artifact, sha256, size, created_at)
                SELECT ?1, run, artifact, ?2, size, created_at FROM media_grants WHERE artifact = 'task'";
    let hash = hex::encode(Sha256::digest(token));
    assert_eq!(database.execute(copy, [&hash, &"07".repeat(32)]).unwrap(), 1);
    let copy = "INSERT INTO media_inputs (media_grant, inputs)
                SELECT (SELECT id FROM media_grants WHERE token_hash = ?1), inputs FROM media_inputs";
    assert_eq!(database.execute(copy, [hash]).unwrap(), 1);
    let (start, file) = task.rsplit_once('/').unwrap();
    let (base, _) = start.rsplit_once("/t").unwrap();
    // A BMC asks again and again.
    for _ in 0..3 {
        scene.anonymous().get(&format!("{base}/t{token}/{file}")).await.refused(410, "media.changed");
    }
    let events = scene.admin.events(&id).await;
    let refused: Vec<&serde_json::Value> =
        events.iter().filter(|event| event["type"] == "media.refused").collect();
    let [refused] = refused.as_slice() else { panic!("{events:?}") };
    assert_eq!(refused["level"], "error", "{refused}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_of_a_server_is_in_the_task_image_as_it_was_when_the_job_was_accepted() {
    let scene = Scene::start(vec![silent("MED-5")]).await;
    let server = "/api/v1/servers/MED-5";
    let network = |address: &str| {
        json!({ "ethernets": { "lan": {
            "match": { "macaddress": "52:54:00:12:34:56" }, "addresses": [address],
        } } })
    };
    let wrong = json!({ "network": network("no address") });
    let refused = scene.admin.patch(server, &wrong).await.refused(400, "validation_error");
    assert_eq!(refused["details"][0]["path"], "/network/ethernets/lan/addresses/0", "{refused}");
    let large = json!({ "network": { "ethernets": (0..60).map(|number| {
        let routes: Vec<_> = (0..64).map(|_| json!({ "to": "198.51.100.0/24", "via": "192.0.2.1" })).collect();
        let mac = format!("52:54:00:00:00:{number:02x}");
        (format!("n{number}"), json!({ "match": { "macaddress": mac }, "routes": routes }))
    }).collect::<serde_json::Map<_, _>>() } });
    let refused = scene.admin.patch(server, &large).await.refused(400, "validation_error");
    assert_eq!(
        (&refused["details"][0]["path"], &refused["details"][0]["code"]),
        (&json!("/network"), &json!("length"))
    );
    let first = json!({ "network": network("192.0.2.10/24") });
    assert_eq!(scene.admin.patch(server, &first).await.expect(200)["network"], first["network"]);

    let id = scene.admin.create_job("MED-5").await;
    scene.admin.patch(server, &json!({ "network": network("192.0.2.11/24") })).await.expect(200);
    scene.admin.awaits_report(&id).await;
    let document = scene.admin.job_document(&id).await;
    assert_eq!(document["network"]["ethernets"]["lan"]["addresses"], json!(["192.0.2.10/24"]), "{document}");
    let disc = iso9660::Image::open(scene.admin.task_image(&id).await).unwrap();
    let written: serde_json::Value =
        serde_json::from_slice(&disc.read("network-config", 1 << 20).unwrap()).unwrap();
    assert_eq!(written, document["network"], "the recipe has user data, so cloud-init has the network too");

    // A retry takes the network of now; a server without one uses DHCP.
    for (change, expected) in
        [(None, json!(["192.0.2.11/24"])), (Some(json!({ "network": null })), json!(null))]
    {
        let last = scene.admin.get("/api/v1/jobs?limit=1").await.expect(200)["jobs"][0]["job_id"].clone();
        let last = last.as_str().unwrap();
        scene.admin.post(&format!("/api/v1/jobs/{last}/cancel"), &json!({})).await.expect(202);
        scene.admin.complete(last).await;
        if let Some(change) = change {
            assert_eq!(scene.admin.patch(server, &change).await.expect(200)["network"], json!(null));
        }
        let retried = scene.admin.post(&format!("/api/v1/jobs/{last}/retry"), &json!({})).await.expect(202);
        let retried = retried["job_id"].as_str().unwrap();
        scene.admin.awaits_report(retried).await;
        let document = scene.admin.job_document(retried).await;
        assert_eq!(document["network"]["ethernets"]["lan"]["addresses"], expected, "{document}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_end_when_a_job_is_cancelled() {
    let (scene, id, task, boot) = mounted("MED-3").await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.admin.complete(&id).await;
    for url in [task, boot] {
        let ended =
            scene.anonymous().until(&url, "the end of the grant", |response| response.status == 404).await;
        ended.refused(404, "not_found");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_credentials_reads_a_task_image_by_its_job_id() {
    let (scene, id, task, _boot) = mounted("MED-4").await;
    let path = format!("/media/tasks/{id}/task.iso");
    scene.anonymous().get(&path).await.refused(401, "unauthorized");
    let image = scene.admin.task_image(&id).await;
    assert!(image == scene.anonymous().get(&task).await.body);
    let head = scene.admin.send(scene.admin.request(Method::HEAD, &path)).await;
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length").unwrap(), image.len().to_string());
    let part = scene.admin.send(scene.admin.request(Method::GET, &path).header("Range", "bytes=0-3")).await;
    assert_eq!((part.status, part.body.as_slice()), (206, &image[..4]));

    let disc = iso9660::Image::open(image).unwrap();
    let mut names: Vec<String> = disc.list("").unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    assert_eq!(names, ["job.json", "meta-data", "recipe.json", "recipe.schema.json", "user-data"]);
    let user_data = String::from_utf8(disc.read("user-data", 1 << 20).unwrap()).unwrap();
    assert_eq!(
        user_data, "#!/bin/bash\necho installed by Shoal\n",
        "the example recipe declares its encoding"
    );
    assert_eq!(disc.volume_id().len(), 16);
    assert!(disc.volume_id().starts_with("TASK_"));
    let document = scene.admin.job_document(&id).await;
    let keys: std::collections::BTreeSet<&str> =
        document.as_object().unwrap().keys().map(String::as_str).collect();
    let documented = [
        "controller_ca",
        "controller_url",
        "created_at",
        "job_id",
        "network",
        "recipe_schema_id",
        "registry",
        "server_serial",
        "shoal_version",
        "webhook_token",
        "webhook_url",
    ];
    assert_eq!(keys, documented.into());
    assert_eq!((&document["job_id"], &document["server_serial"]), (&json!(id), &json!("MED-4")));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_data_of_a_mebibyte_are_in_the_task_image() {
    let scene = Scene::start(vec![silent("MED-7")]).await;
    // Text that no compression makes short.
    let mut state = 1_u64;
    let user_data: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 58) as u8)
    })
    .take(1 << 20)
    .collect();
    let mut order = json!({ "server_serial": "MED-7", "recipe": recipe() });
    order["recipe"]["user_data"] = json!(user_data);
    order["recipe"].as_object_mut().unwrap().remove("user_data_encoding");
    let id = scene.admin.post("/api/v1/jobs", &order).await.expect(202)["job_id"].clone();
    let id = id.as_str().unwrap();
    scene.admin.awaits_report(id).await;
    let disc = iso9660::Image::open(scene.admin.task_image(id).await).unwrap();
    assert!(disc.read("user-data", 2 << 20).unwrap() == user_data.as_bytes());
    scene.end().await;
}

/// Issues a signed URL of the task image of a job.
async fn signed_url(scene: &Scene, id: &str) -> String {
    let issued = scene.admin.post(&format!("/api/v1/jobs/{id}/media-url"), &json!({})).await.expect(201);
    issued["url"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_url_reads_one_image_until_it_expires() {
    let scene = Scene::start_with(vec![silent("SIGN-1")], |settings, _| {
        settings.media_url_ttl = Duration::from_secs(60);
    })
    .await;
    let id = scene.admin.create_job("SIGN-1").await;
    scene.admin.awaits_report(&id).await;
    let url = signed_url(&scene, &id).await;
    let client = scene.anonymous();
    let image = scene.admin.task_image(&id).await;
    let whole = client.get(&url).await;
    assert_eq!(whole.status, 200);
    assert!(whole.body == image);
    assert_eq!(whole.header("cache-control"), Some("private, max-age=0"));
    assert!(whole.header("etag").unwrap().starts_with("\"sha256:"));
    let part = client.send(client.request(Method::GET, &url).header("Range", "bytes=4-7")).await;
    assert_eq!((part.status, part.body.as_slice()), (206, &image[4..8]));
    let head = client.send(client.request(Method::HEAD, &url)).await;
    assert_eq!(head.header("content-length").unwrap(), image.len().to_string());
    let events = scene.admin.event_log(&id).await;
    assert!(events.contains("media.url-issued"), "{events}");
    let signature = url.split_once("sig=").unwrap().1;
    assert!(!events.contains(signature), "{events}");

    // A response that has begun is sent to its end; a new request is refused, also one for the next range.
    let (http, request) = client.request(Method::GET, &url).build_split();
    let mut begun = http.execute(request.unwrap()).await.unwrap();
    assert_eq!(begun.status(), 200);
    let mut received = begun.chunk().await.unwrap().unwrap().to_vec();
    scene.skip(Duration::from_secs(61));
    client.get(&url).await.refused(403, "media.url_expired");
    let next = client.send(client.request(Method::GET, &url).header("Range", "bytes=8-11")).await;
    next.refused(403, "media.url_expired");
    while let Some(chunk) = begun.chunk().await.unwrap() {
        received.extend_from_slice(&chunk);
    }
    assert!(received == image);
    // The login of an administrator does not revive it, and a new URL does.
    scene.admin.get(&url).await.refused(403, "media.url_expired");
    let new = signed_url(&scene, &id).await;
    assert_eq!(client.get(&new).await.status, 200);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_signed_url_is_refused_whatever_was_changed() {
    let scene = Scene::start(vec![silent("SIGN-2"), silent("SIGN-3")]).await;
    let id = scene.admin.create_job("SIGN-2").await;
    let other = scene.admin.create_job("SIGN-3").await;
    scene.admin.awaits_report(&id).await;
    scene.admin.awaits_report(&other).await;
    let url = signed_url(&scene, &id).await;
    let (path, query) = url.split_once('?').unwrap();
    let (expires, signature) = query.split_once('&').unwrap();
    let later: i64 = expires.split_once('=').unwrap().1.parse::<i64>().unwrap() + 1;
    let flipped = if signature.ends_with('A') { "Q" } else { "A" };
    let changed = [
        format!("{path}?expires={later}&{signature}"),
        format!("{path}?{expires}&{}{flipped}", &signature[..signature.len() - 1]),
        format!("{path}?{expires}"),
        format!("{path}?{signature}"),
        format!("{path}?{query}&range=0-3"),
        format!("{path}?{query}&{query}"),
        url.replace(&id, &other),
        url.replace(&id, &uuid::Uuid::now_v7().to_string()),
        url.replace(&id, "no-job"),
    ];
    let mut said = std::collections::BTreeSet::new();
    for url in &changed {
        let mut body = scene.anonymous().get(url).await.refused(403, "media.url_invalid");
        body.as_object_mut().unwrap().remove("request_id");
        said.insert(body.to_string());
    }
    assert_eq!(said.len(), 1, "a refusal does not say what is wrong: {said:?}");
    // Credentials do not help a request with a signature, and the limit of failures does not hurt one that is right.
    scene.admin.get(&changed[0]).await.refused(403, "media.url_invalid");
    scene.anonymous().get(&changed[0]).await.refused(429, "rate_limited");
    assert_eq!(scene.anonymous().get(&url).await.status, 200);
    // A URL ends with the job, too.
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.admin.complete(&id).await;
    let ended =
        scene.anonymous().until(&url, "the end of the grant", |response| response.status == 404).await;
    ended.refused(404, "not_found");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_allowed_networks_read_task_images_without_a_login() {
    // The client of this test is on loopback.
    for (allow, proxies, forwarded, status) in [
        ("127.0.0.0/8", None, None, 200),
        ("127.0.0.1", None, None, 200),
        ("192.0.2.0/24", None, None, 401),
        ("192.0.2.0/24", None, Some("192.0.2.7"), 401),
        ("192.0.2.0/24", Some("127.0.0.1"), Some("192.0.2.7"), 200),
        ("192.0.2.0/24", Some("127.0.0.1"), Some("192.0.2.7, 198.51.100.1"), 401),
        ("127.0.0.0/8", Some("127.0.0.1"), None, 401),
    ] {
        let scene = Scene::start_with(vec![silent("CIDR-1")], |settings, _| {
            settings.media_allow_cidrs = allow.parse().unwrap();
            if let Some(proxies) = proxies {
                settings.trusted_proxies = proxies.parse().unwrap();
            }
        })
        .await;
        let id = scene.admin.create_job("CIDR-1").await;
        scene.admin.awaits_report(&id).await;
        let client = scene.anonymous();
        let mut request = client.request(Method::GET, &format!("/media/tasks/{id}/task.iso"));
        if let Some(forwarded) = forwarded {
            request = request.header("X-Forwarded-For", forwarded);
        }
        let response = client.send(request).await;
        assert_eq!(response.status, status, "{allow} {proxies:?} {forwarded:?}");
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_image_that_is_not_built_yet_is_not_found() {
    let scene =
        Scene::start_with(vec![healthy("MED-5")], |settings, _| settings.worker_concurrency = 0).await;
    let id = scene.admin.create_job("MED-5").await;
    scene.admin.get(&format!("/media/tasks/{id}/task.iso")).await.refused(404, "no_task_image");
    let unknown = uuid::Uuid::now_v7();
    scene.admin.get(&format!("/media/tasks/{unknown}/task.iso")).await.refused(404, "unknown_job");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn task_images_are_written_as_files_when_configured() {
    let scene = Scene::start_with(vec![silent("MED-6")], |settings, _| {
        settings.task_iso_mode = settings::TaskIsoMode::File;
    })
    .await;
    let id = scene.admin.create_job("MED-6").await;
    let job = scene.admin.awaits_report(&id).await;
    let path = job["task_iso_path"].as_str().unwrap();
    assert!(std::fs::read(path).unwrap() == scene.admin.task_image(&id).await);
    let description = std::fs::read(format!("{path}.meta.json")).unwrap();
    let description: serde_json::Value = serde_json::from_slice(&description).unwrap();
    assert_eq!(description["sha256"], job["task_iso_sha256"]);
    scene.end().await;
}

/// Runs a foreign program. The test fails if it is missing, fails or prints a warning.
fn foreign(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = std::process::Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap_or_else(|error| panic!("{program} cannot be started: {error}"));
    let complaints = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert!(output.status.success(), "{program} {arguments:?}: {complaints}");
    for word in ["warn", "error", "fail", "sorry"] {
        assert!(!complaints.contains(word), "{program} complains: {complaints}");
    }
    output.stdout
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs isoinfo, xorriso, bsdtar and 7z, run by .ci/run"]
async fn foreign_programs_read_the_task_image_of_a_job_byte_for_byte() {
    let scene = Scene::start(vec![silent("FOREIGN-1")]).await;
    let id = scene.admin.create_job("FOREIGN-1").await;
    scene.admin.awaits_report(&id).await;
    let bytes = scene.admin.task_image(&id).await;
    let folder = scene.folder.path();
    let image = folder.join("task.iso");
    std::fs::write(&image, &bytes).unwrap();
    let ours = iso9660::Image::open(bytes).unwrap();
    let files: Vec<(String, Vec<u8>)> = ours
        .list("")
        .unwrap()
        .into_iter()
        .map(|entry| (entry.name.clone(), ours.read(&entry.name, 8 << 20).unwrap()))
        .collect();
    assert!(files.iter().any(|(name, _)| name == "recipe.json"), "{files:?}");
    let image = image.to_str().unwrap();
    for program in ["bsdtar", "7z", "xorriso"] {
        let target = folder.join(program);
        std::fs::create_dir(&target).unwrap();
        let target_text = target.to_str().unwrap();
        match program {
            "bsdtar" => foreign("bsdtar", &["-x", "-f", image, "-C", target_text]),
            "7z" => foreign("7z", &["x", "-y", &format!("-o{target_text}"), image]),
            _ => foreign(
                "xorriso",
                &[
                    "-report_about",
                    "WARNING",
                    "-osirrox",
                    "on",
                    "-indev",
                    image,
                    "-extract",
                    "/",
                    target_text,
                ],
            ),
        };
        for (name, content) in &files {
            let found = std::fs::read(target.join(name));
            assert_eq!(found.as_ref().ok(), Some(content), "{program} returns {name} otherwise");
        }
    }
    let listing = String::from_utf8(foreign("isoinfo", &["-i", image, "-R", "-f"])).unwrap();
    for (name, content) in &files {
        assert!(listing.lines().any(|line| line == format!("/{name}")), "isoinfo does not list {name}");
        assert_eq!(
            &foreign("isoinfo", &["-i", image, "-R", "-x", &format!("/{name}")]),
            content,
            "isoinfo: {name}"
        );
    }
    scene.end().await;
}
