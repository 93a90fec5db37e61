//! `shoal maintenance push`: a boot image in the registry of the controller, and jobs that boot it from there.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::kit::{Scene, healthy, recipe};

fn push(scene: &Scene, image: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.args(["maintenance", "push", "--json"]).arg(image).args(more);
    command.args(["--url", &scene.admin.base, "--token", scene.admin.token()]);
    tokio::task::block_in_place(|| command.output().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_boots_the_image_that_was_pushed_by_tag_and_by_digest() {
    let change = |settings: &mut settings::Settings, _: &Path| {
        settings.maintenance_iso_url = Some("oci:maintenance/boot:latest".to_owned());
    };
    let scene = Scene::start_with(vec![healthy("PUSH-1")], change).await;
    let id = scene.admin.create_job("PUSH-1").await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!((&job["failed_step"], &job["failure"]["class"]), (&json!("validate"), &json!("media")));
    let summary = job["failure"]["summary"].as_str().unwrap();
    assert!(
        summary.contains("oci:maintenance/boot:latest") && summary.contains("shoal maintenance push"),
        "{job}"
    );

    let image = scene.folder.path().join("maintenance.iso");
    let pushed = push(&scene, &image, &[]);
    let err = String::from_utf8_lossy(&pushed.stderr).into_owned();
    assert_eq!(pushed.status.code(), Some(0), "{err}");
    let pushed: Value = serde_json::from_slice(&pushed.stdout).unwrap();
    let sha256 = hex::encode(Sha256::digest(std::fs::read(&image).unwrap()));
    assert_eq!(
        (&pushed["location"], &pushed["sha256"]),
        (&json!("oci:maintenance/boot:latest"), &json!(sha256))
    );
    let by_digest = pushed["maintenance_iso_url"].as_str().unwrap();

    let id = scene.admin.create_job("PUSH-1").await;
    let job = scene.admin.complete(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    let body = json!({ "server_serial": "PUSH-1", "recipe": recipe(), "maintenance_iso_url": by_digest });
    let job = scene.admin.post("/api/v1/jobs", &body).await.expect(202);
    let job = scene.admin.complete(job["job_id"].as_str().unwrap()).await;
    assert_eq!(job["outcome"], "succeeded", "{job}");
    assert_eq!(job["maintenance_iso_url"], by_digest);

    let again = push(&scene, &image, &["--name", "maintenance/boot:2"]);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["maintenance_iso_url"], by_digest, "an equal image has an equal digest");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_boot_image_is_not_pushed_and_no_host_is_taken_for_the_own_registry() {
    let scene = Scene::start(vec![healthy("PUSH-2")]).await;
    let file = scene.folder.path().join("page.html");
    std::fs::write(&file, "<html>not found</html>").unwrap();
    let refused = push(&scene, &file, &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("ISO 9660"), "{refused:?}");
    for location in ["oci:other.example:5000/boot:1", "oci:"] {
        let body = json!({ "server_serial": "PUSH-2", "recipe": recipe(), "maintenance_iso_url": location });
        let refused = scene.admin.post("/api/v1/jobs", &body).await.expect(400);
        assert_eq!(refused["details"][0]["path"], "/maintenance_iso_url", "{refused}");
    }
    scene.end().await;
}
