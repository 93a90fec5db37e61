//! Backups that a controller makes by itself: to a folder, to the registry of another controller, and killed in the middle.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};
use settings::{BackupReference, BackupSchedule, BackupTarget};

use crate::kit::{Client, DataDir, Scene, binary};

const DAY: Duration = Duration::from_secs(86_400);

async fn ran(client: &Client, arguments: &[&str]) -> Output {
    let mut command = binary(arguments);
    command.env("SHOAL_URL", &client.base).env("SHOAL_TOKEN", client.token());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn succeeds(client: &Client, arguments: &[&str]) -> String {
    let output = ran(client, arguments).await;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}\n{out}\n{err}");
    format!("{out}{err}")
}

/// Waits until nothing is under way and the status is as wanted.
async fn backup_status(client: &Client, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let is_ready = |status: &Value| status["running"].is_null() && wanted(status);
    client.until("/api/v1/backup-status", what, |response| is_ready(&response.json())).await.json()
}

fn backups(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries.collect();
    found.sort();
    found
}

async fn metric(client: &Client, name: &str) -> f64 {
    let text = client.get("/metrics").await.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not exported")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_backup_is_listed_verified_watched_and_restored() {
    let scene = Scene::bare(Vec::new(), |settings, folder| {
        let target = folder.join("backups");
        std::fs::create_dir(&target).unwrap();
        settings.backup_schedule = BackupSchedule::Every(DAY);
        settings.backup_target = Some(BackupTarget::Folder(target));
    })
    .await;
    let (admin, target) = (&scene.admin, scene.folder.path().join("backups"));
    let status = backup_status(admin, "the first backup", |status| !status["last"].is_null()).await;
    let name = status["last"]["name"].as_str().unwrap().to_owned();
    assert_eq!(backups(&target), [target.join(&name)]);
    assert!(status["warnings"][0].as_str().unwrap().contains("same file system"), "{status:#}");

    let said = succeeds(admin, &["backup", "now"]).await;
    assert!(said.contains("backed up and verified: shoal-"), "{said}");
    assert_eq!(backups(&target).len(), 2);
    let listed = succeeds(admin, &["backup", "list", "-o", "name"]).await;
    assert!(listed.contains(&name), "{listed}");
    let shown = succeeds(admin, &["backup", "status"]).await;
    assert!(shown.contains("schedule") && shown.contains("1d"), "{shown}");
    let said = succeeds(admin, &["backup", "verify", &name]).await;
    assert!(said.contains("was read and is right"), "{said}");
    // Damage is named, and the exit code says it.
    let database = target.join(&name).join("data/provisioner.db");
    let mut bytes = std::fs::read(&database).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&database, bytes).unwrap();
    let bad = ran(admin, &["backup", "verify", &name]).await;
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(bad.status.code() == Some(1) && said.contains("data/provisioner.db"), "{said}");
    let unknown = ran(admin, &["backup", "verify", "../../etc"]).await;
    assert_eq!(unknown.status.code(), Some(3), "{unknown:?}");

    // Only an administrator, and each request is in the audit log.
    let made = admin.post("/api/v1/tokens", &json!({ "name": "op", "role": "operator" })).await.expect(201);
    let operator = admin.with_token(made["token"].as_str().unwrap());
    for place in ["/api/v1/backups", "/api/v1/backups/x/verify"] {
        operator.post(place, &json!({})).await.refused(403, "forbidden");
    }
    for place in ["/api/v1/backups", "/api/v1/backup-status"] {
        operator.get(place).await.refused(403, "forbidden");
    }
    let results = |audit: &Value| -> Vec<String> {
        let entries = audit["entries"].as_array().unwrap().iter();
        entries.map(|entry| entry["result"].as_str().unwrap().to_owned()).collect()
    };
    let both =
        |found: Vec<String>| ["ok", "forbidden"].iter().all(|wanted| found.iter().any(|is| is == wanted));
    let place = "/api/v1/audit?action=backup.request";
    // A refusal is recorded a moment after its response.
    admin.until(place, "both entries", |response| both(results(&response.json()))).await;

    // Age: fresh, then old. An old backup is a warning and the controller stays ready.
    assert_eq!(metric(admin, "backup_failures_total").await, 0.0);
    assert!(metric(admin, "backup_size_bytes").await > 0.0);
    let ready = admin.get("/readyz").await.expect(200);
    assert!(ready["checks"]["backup"]["message"].is_null(), "{ready:#}");
    std::fs::rename(&target, scene.folder.path().join("away")).unwrap();
    scene.skip(DAY * 3);
    backup_status(admin, "a failure", |status| !status["failure"].is_null()).await;
    let ready = admin.get("/readyz").await.expect(200);
    let check = &ready["checks"]["backup"];
    assert!(check["ok"] == true && check["message"].as_str().unwrap().contains("is old"), "{ready:#}");
    assert!(!check.to_string().contains("backups/"), "the target is named without credentials: {check}");
    assert!(metric(admin, "backup_age_seconds").await >= 259_200.0);
    assert!(metric(admin, "backup_failures_total").await >= 1.0);
    let failed = ran(admin, &["backup", "now"]).await;
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("is its disk mounted"), "{failed:?}");
    std::fs::rename(scene.folder.path().join("away"), &target).unwrap();
    succeeds(admin, &["backup", "now"]).await;

    let restored = scene.folder.path().join("restored");
    let (restored, target) = (restored.display().to_string(), target.display().to_string());
    let said = succeeds(admin, &["restore", &target, "--verify-only", "--data", &restored]).await;
    assert!(said.contains("verified") && !Path::new(&restored).exists(), "{said}");
    let said = succeeds(admin, &["restore", &target, "--data", &restored]).await;
    assert!(said.contains("nothing is done to a server until it is released"), "{said}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_backup_is_none_for_the_metric_of_the_newest_backup() {
    let scene = Scene::bare(Vec::new(), |settings, folder| {
        let target = folder.join("backups");
        std::fs::create_dir(&target).unwrap();
        settings.backup_schedule = BackupSchedule::Off;
        settings.backup_target = Some(BackupTarget::Folder(target));
    })
    .await;
    let admin = &scene.admin;
    assert!(metric(admin, "backup_timestamp_seconds").await < 1.0);
    succeeds(admin, &["backup", "now"]).await;
    assert!(metric(admin, "backup_timestamp_seconds").await > 1.0);
    let made = backups(&scene.folder.path().join("backups")).remove(0);
    let name = made.file_name().unwrap().to_str().unwrap();
    std::fs::write(made.join("data/provisioner.db"), "rot").unwrap();
    assert_eq!(ran(admin, &["backup", "verify", name]).await.status.code(), Some(1));
    assert!(metric(admin, "backup_timestamp_seconds").await < 1.0);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_go_to_the_registry_of_another_controller_with_a_login_that_is_nowhere() {
    const REPOSITORY: &str = "site-a/shoal";
    let other = Scene::bare(Vec::new(), |_, _| {}).await;
    let made = other.admin.post("/api/v1/tokens", &json!({ "name": "keeper", "role": "admin" })).await;
    let password = made.expect(201)["token"].as_str().unwrap().to_owned();
    let reference = format!("oci+http://{}/{REPOSITORY}", other.running.api);
    let scene = Scene::bare(Vec::new(), |settings, _| {
        let parsed = BackupReference::parse(&reference).unwrap().unwrap();
        settings.backup_target = Some(BackupTarget::Registry(parsed.target));
        settings.backup_registry_user = Some("keeper".to_owned());
        settings.backup_registry_password = Some(password.parse().unwrap());
        settings.backup_keep = 1;
    })
    .await;
    let admin = &scene.admin;
    for _ in 0..2 {
        succeeds(admin, &["backup", "now"]).await;
    }
    let page = admin.get("/api/v1/backups").await.expect(200);
    let listed = page["backups"].as_array().unwrap();
    assert!(listed.len() == 1 && listed[0]["own"] == true, "{page:#}");
    let status = admin.get("/api/v1/backup-status").await.expect(200);
    assert_eq!(status["target"], reference);
    succeeds(admin, &["backup", "verify"]).await;

    let password_file = scene.folder.path().join("password");
    std::fs::write(&password_file, &password).unwrap();
    let restored = scene.folder.path().join("restored").display().to_string();
    let login = format!("file:{}", password_file.display());
    let said = succeeds(
        admin,
        &[
            "restore",
            &reference,
            "--data",
            &restored,
            "--backup-registry-user",
            "keeper",
            "--backup-registry-password",
            &login,
        ],
    )
    .await;
    assert!(said.contains("restored: oci+http://"), "{said}");
    // A wrong login says so, and no text has a password.
    other.admin.delete("/api/v1/tokens/keeper").await.expect(204);
    let failed = ran(admin, &["backup", "now"]).await;
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(said.contains("refused the login"), "{said}");
    let events = admin.get("/api/v1/events?limit=1000").await.text();
    let metrics = admin.get("/metrics").await.text();
    for text in [&said, &events, &metrics, &status.to_string()] {
        assert!(!text.contains(&password));
    }
    scene.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_in_the_middle_of_a_backup_leaves_none_and_makes_it_after_its_start() {
    let mut data = DataDir::new();
    let target = data.path().join("backups");
    std::fs::create_dir(&target).unwrap();
    // Long enough to be in the middle for a while; no byte of it is on the disk of the data.
    let images = data.path().join("data/maintenance");
    std::fs::create_dir_all(&images).unwrap();
    let image = images.join(format!("{}.iso", "0".repeat(64)));
    std::fs::File::create(&image).unwrap().set_len(2 << 30).unwrap();
    data = data.with("BACKUP_SCHEDULE", "24h").with("BACKUP_TARGET", target.to_str().unwrap());
    let controller = data.serve().await;
    let in_the_middle = |status: Value| {
        status["running"]["phase"] == "copying" && status["running"]["done_bytes"].as_u64() > Some(0)
    };
    let place = "/api/v1/backup-status";
    controller.admin.until(place, "the middle", |response| in_the_middle(response.json())).await;
    controller.kill();
    let left = backups(&target);
    let is_half = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().contains(".partial-");
    assert!(left.len() == 1 && left.iter().all(is_half), "{left:?}");
    std::fs::remove_file(&image).unwrap();

    let controller = data.serve().await;
    let status = backup_status(&controller.admin, "the backup", |status| !status["last"].is_null()).await;
    let name = status["last"]["name"].as_str().unwrap();
    assert_eq!(backups(&target), [target.join(name)], "the half one is removed");
    assert!(controller.terminate().await.success());
}
