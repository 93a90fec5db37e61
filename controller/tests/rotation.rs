//! Rotations of keys on a real data directory. The program is killed at every durable effect of a rotation, one after the other; the
//! next run continues, and no sealed record is ever unreadable.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};

use controller::app::OfflineSecrets;
use controller::app::backup::{self, BackupError};
use keys::{RotateError, RotationState, RotationView, SIGNING_OVERLAP, SecretName};
use model::{NewEvent, Server, Time, Webhook, WebhookFilter, WebhookId, failpoint};
use secrecy::ExposeSecret as _;
use secrets::{KeyRing, Resolver};
use settings::{Settings, Sources};

const CANARY: &str = "canary-password-5Gq2";
/// The data directory of a child process, the failpoint at which it dies, and the key that it rotates.
const DATA: &str = "SHOAL_TEST_ROTATED_DATA";
const POINT: &str = "SHOAL_TEST_ROTATION_POINT";
const KEY: &str = "SHOAL_TEST_ROTATED_KEY";
/// The backup that a child process restores into its data directory.
const BACKUP: &str = "SHOAL_TEST_RESTORED_BACKUP";
/// More servers than one transaction of a pass reads.
const SERVERS: usize = 300;

fn settings(data: &Path) -> Settings {
    let secret = data.join("report.secret");
    Settings::load(&Sources {
        flags: vec![
            ("STORAGE_ROOT".to_owned(), data.display().to_string()),
            ("WEBHOOK_SECRET".to_owned(), format!("file:{}", secret.display())),
        ],
        environment: &|_| None,
        variables: Vec::new(),
        file: None,
    })
    .unwrap()
}

fn at(seconds: u64) -> Time {
    let start: Time = "2026-01-01T00:00:00Z".parse().unwrap();
    start.plus(std::time::Duration::from_secs(seconds))
}

async fn open(settings: &Settings) -> OfflineSecrets {
    OfflineSecrets::open(settings, at(0)).await.unwrap()
}

fn master(settings: &Settings) -> KeyRing {
    KeyRing::load(&settings.master_key_file()).unwrap().unwrap()
}

/// A data directory with sealed records.
async fn filled(data: &Path) -> Settings {
    fs::create_dir_all(data).unwrap();
    fs::set_permissions(data, fs::Permissions::from_mode(0o700)).unwrap();
    let settings = settings(data);
    fs::write(data.join("report.secret"), "the first report secret\n").unwrap();
    // An empty file is an empty database.
    fs::write(&settings.db_path, "").unwrap();
    let opened = open(&settings).await;
    let resolver = Resolver::new(&master(&settings));
    let events = |kind: &'static str| NewEvent::info(kind, "x");
    let create = (0..SERVERS).map(|number| {
        let serial = format!("S-{number}");
        let mut server = Server::unknown(serial.parse().unwrap(), at(0));
        server.bmc_password = resolver.seal(&serial, &CANARY.into()).unwrap().to_string();
        let store = opened.store().clone();
        tokio::spawn(async move { store.create_server(server, events("server.created")).await.unwrap() })
    });
    for created in create.collect::<Vec<_>>() {
        created.await.unwrap();
    }
    let id = WebhookId::new();
    let webhook = Webhook {
        id,
        url: format!("https://h/{CANARY}"),
        secret: resolver.seal(&id.secret_context(), &CANARY.into()).unwrap().to_string(),
        filter: WebhookFilter::default(),
        created_by: "ada".to_owned(),
        created_at: at(0),
        disabled: None,
        cursor: 0,
        delivered: 0,
        failing_since: None,
        last_error: None,
    };
    assert!(opened.store().create_webhook(webhook, 1, events("webhook.created")).await.unwrap());
    settings
}

/// Opens every record with the keys of the file. Returns the versions that records name.
async fn read_all(settings: &Settings) -> Vec<String> {
    let opened = open(settings).await;
    let resolver = Resolver::new(&master(settings));
    for number in 0..SERVERS {
        let serial = format!("S-{number}");
        let server = opened.store().server(&serial.parse().unwrap()).await.unwrap().unwrap();
        let password = resolver.resolve(&server.bmc_password.parse().unwrap(), &serial).unwrap();
        assert_eq!(password.expose_secret(), CANARY, "{serial}");
    }
    let webhook = opened.store().webhooks().await.unwrap().remove(0);
    assert_eq!(webhook.url, format!("https://h/{CANARY}"));
    let secret = resolver.resolve(&webhook.secret.parse().unwrap(), &webhook.id.secret_context()).unwrap();
    assert_eq!(secret.expose_secret(), CANARY);
    let counts = opened.store().sealed_counts().await.unwrap();
    assert_eq!(counts.iter().map(|count| count.records).sum::<u64>(), SERVERS as u64 + 3);
    let mut keys: Vec<String> = counts.into_iter().map(|count| count.key).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn key_id(opened: &OfflineSecrets, name: SecretName) -> String {
    opened.list().unwrap().into_iter().find(|secret| secret.name == name).unwrap().key_id
}

/// What the command does: repeats the request until the rotation has ended or waits for a time.
async fn rotate(opened: &OfflineSecrets, name: SecretName, from: &str) -> Result<RotationView, RotateError> {
    loop {
        let view = opened.rotate(name, from, at(0)).await?;
        if view.state != RotationState::Sealing {
            return Ok(view);
        }
    }
}

/// Copies a data directory. The database is copied by SQLite: a store that was just dropped may still close its files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["master.key", "report.secret"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    let database = |folder: &Path| settings(folder).db_path;
    let outside = rusqlite::Connection::open(database(from)).unwrap();
    outside.execute("VACUUM INTO ?1", [database(to).to_str().unwrap()]).unwrap();
}

/// No test of its own: the process that is killed.
#[tokio::test]
async fn child() {
    let (Ok(data), Ok(point)) = (std::env::var(DATA), std::env::var(POINT)) else { return };
    let settings = settings(&PathBuf::from(data));
    let die_at_the_point = || {
        let left = AtomicI64::new(point.parse().unwrap());
        failpoint::install(Box::new(move |_| {
            if left.fetch_sub(1, Ordering::SeqCst) == 0 {
                std::process::abort();
            }
        }));
    };
    if let Ok(backup) = std::env::var(BACKUP) {
        die_at_the_point();
        backup::restore(&settings, Path::new(&backup), at(1)).unwrap();
        return;
    }
    let Ok(key) = std::env::var(KEY) else { return };
    let (name, from) = key.split_once(' ').unwrap();
    let opened = open(&settings).await;
    die_at_the_point();
    rotate(&opened, name.parse().unwrap(), from).await.unwrap();
}

/// Rotates in a process that dies at this failpoint. Whether it died.
fn killed(data: &Path, point: u32, name: SecretName, from: &str) -> bool {
    killed_with(data, point, (KEY, format!("{} {from}", name.as_str())))
}

fn killed_with(data: &Path, point: u32, (name, value): (&str, String)) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(DATA, data)
        .env(POINT, point.to_string())
        .env(name, value)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    !status.success()
}

#[tokio::test]
async fn a_rotation_of_the_master_key_that_is_killed_at_any_effect_is_continued_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("template");
    let first = filled(&template).await;
    let old = key_id(&open(&first).await, SecretName::Master);
    let mut points = 0;
    loop {
        let data = folder.path().join(format!("data-{points}"));
        copy(&template, &data);
        let died = killed(&data, points, SecretName::Master, &old);
        let settings = settings(&data);
        read_all(&settings).await;
        let opened = open(&settings).await;
        let view = rotate(&opened, SecretName::Master, &old).await.unwrap();
        assert_eq!(view.state, RotationState::Ended, "point {points}");
        let now = key_id(&opened, SecretName::Master);
        assert_ne!(now, old, "point {points}");
        drop(opened);
        assert_eq!(read_all(&settings).await, [now.as_str()], "point {points}");
        let ring = master(&settings);
        assert_eq!((ring.in_force().id.to_string(), ring.accepted().len()), (now, 0), "point {points}");
        let mode = fs::metadata(settings.master_key_file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_dir_all(&data).unwrap();
        if !died {
            break;
        }
        points += 1;
    }
    // Two key files of four points each, the proof, and two points for each commit: two events, two batches of servers, two
    // columns of webhooks, the signing key, the audit entry of the command.
    assert_eq!(points, 2 * 4 + 1 + 2 * (2 + 2 + 2 + 1 + 1), "the effects of a rotation have changed");
}

#[tokio::test]
async fn a_rotation_of_the_signing_key_or_report_secret_that_is_killed_at_any_effect_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("template");
    let first = filled(&template).await;
    for (name, effects) in [(SecretName::Signing, 4), (SecretName::Report, 10)] {
        let old = key_id(&open(&first).await, name);
        let mut points = 0;
        while killed_copy(folder.path(), &template, points, name, &old).await {
            points += 1;
        }
        assert_eq!(points, effects, "{name:?}");
    }
}

/// Kills a rotation in a copy of the data and continues it there. Whether the process died.
async fn killed_copy(folder: &Path, template: &Path, point: u32, name: SecretName, old: &str) -> bool {
    let data = folder.join(format!("{}-{point}", name.as_str()));
    copy(template, &data);
    let died = killed(&data, point, name, old);
    let settings = settings(&data);
    let opened = open(&settings).await;
    let view = rotate(&opened, name, old).await.unwrap();
    assert_eq!(view.state, RotationState::Overlap, "{name:?}, point {point}: the former one is accepted");
    assert_ne!(view.key_id, old);
    let until = view.accepted_until.unwrap();
    let ended = opened.rotate(name, old, until).await.unwrap();
    assert_eq!((ended.state, ended.accepted_until), (RotationState::Ended, None), "{name:?}, point {point}");
    assert!(!data.join("report.secret.previous").exists());
    drop(opened);
    read_all(&settings).await;
    fs::remove_dir_all(&data).unwrap();
    died
}

#[tokio::test]
async fn a_record_that_cannot_be_sealed_again_keeps_the_former_key_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let settings = filled(&folder.path().join("data")).await;
    let opened = open(&settings).await;
    let old = key_id(&opened, SecretName::Master);
    let outside = rusqlite::Connection::open(&settings.db_path).unwrap();
    let swap = "UPDATE servers SET bmc_password = (SELECT bmc_password FROM servers WHERE serial = ?1)
                WHERE serial = 'S-7'";
    outside.execute(swap, ["S-8"]).unwrap();
    for _again in 0..2 {
        let why = rotate(&opened, SecretName::Master, &old).await.unwrap_err();
        assert!(matches!(why, RotateError::Unreadable { records: 1, .. }), "{why}");
        assert!(why.to_string().contains("1 in servers.bmc_password"), "{why}");
        assert_eq!(master(&settings).accepted().len(), 1, "the former key stays in the file");
    }
    outside.execute("UPDATE servers SET bmc_password = 'env:PASSWORD' WHERE serial = 'S-7'", []).unwrap();
    let view = rotate(&opened, SecretName::Master, &old).await.unwrap();
    assert_eq!((view.state, view.checked), (RotationState::Ended, Some(SERVERS as u64 + 2)));
    assert_eq!(master(&settings).accepted().len(), 0);
}

#[tokio::test]
async fn a_request_that_is_repeated_after_the_end_begins_no_second_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let settings = filled(&folder.path().join("data")).await;
    let opened = open(&settings).await;
    for name in [SecretName::Master, SecretName::Signing, SecretName::Report] {
        let old = key_id(&opened, name);
        let first = rotate(&opened, name, &old).await.unwrap();
        let second = rotate(&opened, name, &old).await.unwrap();
        assert_eq!((&first.key_id, first.state), (&second.key_id, second.state), "{name:?}");
        assert_ne!(first.key_id, old);
    }
    let signing =
        opened.list().unwrap().into_iter().find(|secret| secret.name == SecretName::Signing).unwrap();
    assert_eq!(signing.former[0].accepted_until, Some(at(SIGNING_OVERLAP.as_secs())));
    assert!(registry::TokenOptions::default().lifetime < SIGNING_OVERLAP, "a token outlives no overlap");
}

#[tokio::test]
async fn a_backup_from_before_a_rotation_names_its_key_and_is_restored_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = filled(&folder.path().join("data")).await;
    let opened = open(&source).await;
    let old = key_id(&opened, SecretName::Master);
    let old_file = fs::read(source.master_key_file()).unwrap();
    let made = backup::back_up(&source, &folder.path().join("backup"), false, at(0)).unwrap();
    assert_eq!(made.sealed_with, [old.as_str()]);
    rotate(&opened, SecretName::Master, &old).await.unwrap();

    let target = settings(&folder.path().join("target"));
    fs::create_dir(folder.path().join("target")).unwrap();
    fs::copy(source.master_key_file(), target.master_key_file()).unwrap();
    let refused = backup::restore(&target, &folder.path().join("backup"), at(1)).unwrap_err();
    assert!(
        matches!(refused, BackupError::NeedsKey { .. }) && refused.to_string().contains(&old),
        "{refused}"
    );
    assert!(!target.db_path.exists(), "nothing is restored");
    // The new key stays in force, the old one opens the records.
    let both = [fs::read(source.master_key_file()).unwrap(), old_file].concat();
    fs::write(target.master_key_file(), both).unwrap();
    backup::restore(&target, &folder.path().join("backup"), at(1)).unwrap();
    fs::copy(folder.path().join("data/report.secret"), folder.path().join("target/report.secret")).unwrap();
    assert_eq!(read_all(&target).await, [old.as_str()]);
    let opened = open(&target).await;
    rotate(&opened, SecretName::Master, &old).await.unwrap();
    drop(opened);
    assert_ne!(read_all(&target).await, [old.as_str()]);
}

#[tokio::test]
async fn a_restore_that_is_killed_at_any_file_is_repeated_and_leaves_no_part_of_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let source = filled(&folder.path().join("data")).await;
    let backup = folder.path().join("backup");
    let made = backup::back_up(&source, &backup, true, at(0)).unwrap();
    assert!(made.master_key);
    let key = fs::read(source.master_key_file()).unwrap();
    let mut points = 0;
    loop {
        let target = settings(&folder.path().join(format!("target-{points}")));
        let died = killed_with(&target.storage_root, points, (BACKUP, backup.display().to_string()));
        if let Ok(left) = fs::read(target.master_key_file()) {
            assert_eq!(left, key, "point {points}");
        }
        if !died {
            break;
        }
        backup::restore(&target, &backup, at(1)).unwrap_or_else(|why| panic!("point {points}: {why}"));
        assert_eq!(fs::read(target.master_key_file()).unwrap(), key, "point {points}");
        let keys = fs::read_dir(&target.storage_root).unwrap().map(|entry| entry.unwrap().file_name());
        let keys: Vec<_> = keys.filter(|name| name.to_string_lossy().contains("key")).collect();
        assert_eq!(keys, ["master.key"], "point {points}");
        fs::copy(source.storage_root.join("report.secret"), target.storage_root.join("report.secret"))
            .unwrap();
        read_all(&target).await;
        points += 1;
    }
    assert!(points >= 2 * 3, "the database and the key have three points each: {points}");
}

#[tokio::test]
async fn no_view_error_or_event_contains_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let settings = filled(&folder.path().join("data")).await;
    let opened = open(&settings).await;
    let mut secrets = vec![CANARY.to_owned(), "the first report secret".to_owned()];
    let report = folder.path().join("data/report.secret");
    let files = [settings.master_key_file(), report];
    let keep = |secrets: &mut Vec<String>| {
        for file in &files {
            let text = fs::read_to_string(file).unwrap();
            secrets.extend(text.lines().map(|line| line.split(' ').next().unwrap().to_owned()));
        }
    };
    keep(&mut secrets);
    let shown = |opened: &OfflineSecrets| {
        let list = opened.list().unwrap();
        format!("{opened:?} {list:?} {}", serde_json::to_string(&list).unwrap())
    };
    let mut said = shown(&opened);
    for name in [SecretName::Master, SecretName::Signing, SecretName::Report] {
        let old = key_id(&opened, name);
        let view = rotate(&opened, name, &old).await.unwrap();
        said += &format!("{view:?} {}", serde_json::to_string(&view).unwrap());
        keep(&mut secrets);
    }
    said += &shown(&opened);
    let outside = rusqlite::Connection::open(&settings.db_path).unwrap();
    let mut events = outside.prepare("SELECT type || message || coalesce(data, '') FROM events").unwrap();
    let events: Vec<String> = events.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    said += &events.join("\n");
    assert!(said.contains("secret.rotated"), "the events tell what happened");
    for secret in secrets.iter().filter(|secret| secret.len() > 8) {
        assert!(!said.contains(secret.as_str()), "a secret is shown");
    }
}
