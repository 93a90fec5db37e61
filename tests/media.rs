//! Reads of task and boot images: by grant, with credentials, and without either.

use reqwest::Method;
use serde_json::json;

use crate::kit::{Scene, healthy, silent};

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
        settings.task_iso_mode = controller::config::TaskIsoMode::File;
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
