//! Backups of a data directory in use, restored into empty directories.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::super::lock::DataLock;
use super::super::{OfflineRegistry, StartError};
use super::{BackupError, BackupSummary, back_up, restore, verify};
use model::{NewEvent, Server, Time};
use secrets::{KeyRing, Resolver};
use settings::{Settings, Sources};
use store::Store;

/// A data directory with two servers, a maintenance image, a master key and an OS image, and the store of its controller.
pub(super) struct Data {
    pub(super) folder: TempDir,
    pub(super) settings: Settings,
    pub(super) store: Store,
}

pub(super) fn now() -> Time {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

pub(super) fn settings(data: &Path) -> Settings {
    Settings::load(&Sources {
        flags: vec![("STORAGE_ROOT".to_owned(), data.display().to_string())],
        environment: &|_| None,
        variables: Vec::new(),
        file: None,
    })
    .unwrap()
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Writes an image as an OCI layout and returns the digest of its manifest in hex.
fn layout(folder: &Path, tag: &str) -> String {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let add = |bytes: &[u8]| {
        fs::write(blobs.join(sha256(bytes)), bytes).unwrap();
        json!({ "digest": format!("sha256:{}", sha256(bytes)), "size": bytes.len() })
    };
    let typed = |mut descriptor: Value, kind: &str| {
        descriptor["mediaType"] = json!(kind);
        descriptor
    };
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": typed(add(b"{}"), "application/vnd.oci.image.config.v1+json"),
        "layers": [typed(add(tag.as_bytes()), "application/vnd.oci.image.layer.v1.tar")],
    });
    let bytes = serde_json::to_vec(&manifest).unwrap();
    let mut listed = typed(add(&bytes), "application/vnd.oci.image.manifest.v1+json");
    listed["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let index = json!({ "schemaVersion": 2, "manifests": [listed] });
    fs::write(folder.join("index.json"), index.to_string()).unwrap();
    sha256(&bytes)
}

impl Data {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(&folder.path().join("data"));
        layout(&folder.path().join("layout"), "v1");
        let opened = OfflineRegistry::open(&settings).await.unwrap();
        let repository = "os-images/ubuntu".parse().unwrap();
        opened.registry.import(&folder.path().join("layout"), &repository).await.unwrap();
        drop(opened);
        let image = b"a maintenance image";
        fs::create_dir_all(settings.maintenance_dir()).unwrap();
        fs::write(settings.maintenance_dir().join(format!("{}.iso", sha256(image))), image).unwrap();
        fs::write(settings.maintenance_dir().join("incoming-1"), "incomplete").unwrap();
        fs::write(settings.master_key_file(), "the key").unwrap();
        let store = Store::open(&settings.db_path, now()).unwrap();
        for name in ["S-1", "S-2"] {
            let server = Server::unknown(name.parse().unwrap(), now());
            store.create_server(server, NewEvent::info("server.created", "x")).await.unwrap();
        }
        Self { folder, settings, store }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn back_up(&self, name: &str) -> BackupSummary {
        back_up(&self.settings, &self.path(name), false, now()).unwrap()
    }
}

pub(super) fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_backup_of_data_in_use_restores_database_library_and_registry_and_every_server_is_restored() {
    let data = Data::new().await;
    let _running = DataLock::take(&data.settings).unwrap();
    let made = data.back_up("backup");
    assert_eq!((made.servers, made.registry, made.master_key, made.damaged.len()), (2, true, false, 0));
    assert_eq!(verify(&data.path("backup")).unwrap(), made);
    assert!(
        !data.path("backup/data/master.key").exists(),
        "the key is not part of a backup unless requested"
    );

    let target = settings(&data.path("elsewhere/data"));
    assert_eq!(restore(&target, &data.path("backup"), now()).unwrap(), made);
    let restored = Store::open(&target.db_path, now()).unwrap();
    let servers = restored.restored_servers().await.unwrap();
    assert_eq!(servers.len(), 2);
    assert!(servers[0].restoration.reason.contains("restored from the backup of 2026-01-01"), "{servers:?}");
    assert_eq!(data.store.restored_servers().await.unwrap(), [], "the original is as it was");
    assert_eq!(names(&target.maintenance_dir()).len(), 1, "an incomplete import is not backed up");
    let opened = OfflineRegistry::open(&target).await.unwrap();
    let repository = "os-images/ubuntu".parse().unwrap();
    assert_eq!(opened.registry.tags(&repository).await.unwrap().len(), 1);
    let image = data.path("exported.tar");
    opened.registry.export(&repository, None, fs::File::create(&image).unwrap()).await.unwrap();
    assert!(image.metadata().unwrap().len() > 0, "every blob of the image is there");
}

/// When each record of a tag was modified, by the name of the tag.
fn modified(settings: &Settings) -> Vec<(String, std::time::SystemTime)> {
    let tags = settings.registry_storage.join("repos/os-images=ubuntu/_tags");
    names(&tags)
        .into_iter()
        .map(|tag| (tag.clone(), tags.join(tag).metadata().unwrap().modified().unwrap()))
        .collect()
}

#[tokio::test]
async fn restored_tags_are_as_old_as_they_were_so_that_retention_keeps_the_newest() {
    const DAY: std::time::Duration = std::time::Duration::from_secs(86_400);
    let data = Data::new().await;
    let repository: registry::RepositoryName = "os-images/ubuntu".parse().unwrap();
    let opened = OfflineRegistry::open(&data.settings).await.unwrap();
    for tag in 2..=7 {
        let folder = data.path(&format!("layout-{tag}"));
        layout(&folder, &format!("v{tag}"));
        opened.registry.import(&folder, &repository).await.unwrap();
    }
    drop(opened);
    // The pushes were in another order than the names, and not at whole seconds.
    let wall = std::time::SystemTime::now();
    for (days, tag) in ["v3", "v1", "v7", "v2", "v6", "v4", "v5"].into_iter().enumerate() {
        let record = data.settings.registry_storage.join("repos/os-images=ubuntu/_tags").join(tag);
        let age = DAY * u32::try_from(days).unwrap() + std::time::Duration::from_millis(250);
        fs::File::open(record).unwrap().set_modified(wall - age).unwrap();
    }
    data.back_up("backup");
    // Another program copied the backup and kept no times.
    for tag in names(&data.path("backup/data/oci/repos/os-images=ubuntu/_tags")) {
        let record = data.path("backup/data/oci/repos/os-images=ubuntu/_tags").join(tag);
        fs::File::open(record).unwrap().set_modified(wall).unwrap();
    }
    let target = settings(&data.path("elsewhere/data"));
    restore(&target, &data.path("backup"), now()).unwrap();
    assert_eq!(modified(&target), modified(&data.settings));
    assert!(!target.storage_root.join("tag-times").exists());
    let opened = OfflineRegistry::open(&target).await.unwrap();
    let rule = registry::RetentionRule {
        repositories: registry::RepositoryPattern::all(),
        tags: "v*".parse().unwrap(),
        newest: 2,
        younger_than: std::time::Duration::ZERO,
    };
    opened.registry.retain(vec![rule], wall, false).await.unwrap();
    let left: Vec<String> = modified(&target).into_iter().map(|(tag, _)| tag).collect();
    assert_eq!(left, ["v1", "v3"]);
}

#[tokio::test]
async fn the_master_key_is_backed_up_only_on_request_and_another_key_in_the_target_is_refused() {
    let data = Data::new().await;
    let made = back_up(&data.settings, &data.path("with-key"), true, now()).unwrap();
    assert!(made.master_key);
    let target = settings(&data.path("other"));
    fs::create_dir_all(&target.storage_root).unwrap();
    fs::write(target.master_key_file(), "another key").unwrap();
    let refused = restore(&target, &data.path("with-key"), now());
    assert!(matches!(refused, Err(BackupError::OtherKey { .. })), "{refused:?}");
    assert!(!target.db_path.exists());
    fs::remove_file(target.master_key_file()).unwrap();
    restore(&target, &data.path("with-key"), now()).unwrap();
    assert_eq!(fs::read_to_string(target.master_key_file()).unwrap(), "the key");
    fs::remove_file(data.settings.master_key_file()).unwrap();
    let refused = back_up(&data.settings, &data.path("no-key"), true, now());
    assert!(matches!(refused, Err(BackupError::NoKey { .. })), "{refused:?}");
    assert_eq!(names(data.folder.path()), ["data", "layout", "other", "with-key"], "nothing half is left");
}

#[tokio::test]
async fn a_backup_whose_own_key_does_not_open_it_is_neither_made_nor_restored() {
    let data = Data::new().await;
    let key = data.settings.master_key_file();
    fs::remove_file(&key).unwrap();
    let ring = KeyRing::load_or_create(&key).unwrap();
    let sealed = Resolver::new(&ring).seal("S-1", &"password".into()).unwrap();
    let mut server = data.store.server(&"S-1".parse().unwrap()).await.unwrap().unwrap();
    server.bmc_password = sealed.to_string();
    let event = NewEvent::info("server.updated", "x");
    data.store.update_server(server, store::CertificateChange::Keep, event, None).await.unwrap();
    let with_key = |name: &str| back_up(&data.settings, &data.path(name), true, now());
    let former = fs::read(&key).unwrap();
    assert_eq!(with_key("good").unwrap().sealed_with, [ring.in_force().id.to_string()]);

    // The rotation has ended when the key is copied; the copy of the database is from before.
    fs::remove_file(&key).unwrap();
    KeyRing::load_or_create(&key).unwrap();
    let refused = with_key("rotated").unwrap_err();
    assert!(matches!(&refused, BackupError::KeyRotated { missing } if missing.len() == 1), "{refused}");
    assert!(!data.path("rotated").exists());

    // A backup of a former version, with a key of another time.
    let backup = data.path("good");
    let sums = fs::read_to_string(backup.join("SHA256SUMS")).unwrap();
    let swapped = sums.replace(&sha256(&former), &sha256(&fs::read(&key).unwrap()));
    fs::write(backup.join("SHA256SUMS"), &swapped).unwrap();
    let summary = fs::read_to_string(backup.join("backup.json")).unwrap();
    let summary = summary.replace(&sha256(sums.as_bytes()), &sha256(swapped.as_bytes()));
    fs::write(backup.join("backup.json"), summary).unwrap();
    fs::remove_file(backup.join("data/master.key")).unwrap();
    fs::copy(&key, backup.join("data/master.key")).unwrap();
    let target = settings(&data.path("target"));
    let refused = restore(&target, &backup, now()).unwrap_err();
    assert!(matches!(refused, BackupError::OwnKey { .. }), "{refused}");
    assert!(!target.db_path.exists());
    // With the right key at the target it is restored.
    fs::write(target.master_key_file(), &former).unwrap();
    fs::set_permissions(target.master_key_file(), fs::Permissions::from_mode(0o400)).unwrap();
    restore(&target, &backup, now()).unwrap();
    assert_eq!(fs::read(target.master_key_file()).unwrap(), former);
}

#[tokio::test]
async fn a_damaged_incomplete_or_changed_backup_restores_nothing() {
    let data = Data::new().await;
    data.back_up("backup");
    let blob = data.path("backup/data/oci/blobs/sha256").join(sha256(b"v1"));
    let database = data.path("backup/data/provisioner.db");
    let (content, rows) = (fs::read(&blob).unwrap(), fs::read(&database).unwrap());
    let target = settings(&data.path("target"));
    let refused = |what: &str| {
        let result = restore(&target, &data.path("backup"), now());
        assert!(matches!(result, Err(BackupError::Damaged { .. })), "{what}: {result:?}");
        assert!(!target.storage_root.exists(), "{what}: nothing is written");
    };
    fs::write(&blob, "v2").unwrap();
    refused("a changed blob");
    fs::remove_file(&blob).unwrap();
    refused("a missing blob");
    fs::write(&blob, content).unwrap();
    fs::write(&database, &rows[..rows.len() / 2]).unwrap();
    refused("half a database");
    fs::write(&database, rows).unwrap();
    fs::write(data.path("backup/data/oci/more"), "x").unwrap();
    refused("a file that is not listed");
    fs::remove_file(data.path("backup/data/oci/more")).unwrap();
    let sums = fs::read_to_string(data.path("backup/SHA256SUMS")).unwrap();
    fs::write(data.path("backup/SHA256SUMS"), sums.replacen("data/oci", "data/../oci", 1)).unwrap();
    refused("a path that leaves the backup");
    fs::write(data.path("backup/SHA256SUMS"), &sums).unwrap();
    fs::rename(data.path("backup/backup.json"), data.path("aside.json")).unwrap();
    let result = restore(&target, &data.path("backup"), now());
    assert!(matches!(result, Err(BackupError::NotABackup { .. })), "{result:?}");
    fs::rename(data.path("aside.json"), data.path("backup/backup.json")).unwrap();
    restore(&target, &data.path("backup"), now()).unwrap();
}

#[tokio::test]
async fn a_restore_that_was_interrupted_starts_no_controller_and_is_repeated() {
    let data = Data::new().await;
    data.back_up("backup");
    let target = settings(&data.path("target"));
    restore(&target, &data.path("backup"), now()).unwrap();
    let complete = names(&target.registry_storage);
    // As a crash in the middle leaves it: the marker, some files, half of one.
    let empty = [&target.db_path, &target.maintenance_dir(), &target.registry_storage];
    let marker: String = empty.map(|path| format!("empty before: {}\n", path.display())).concat();
    fs::write(target.storage_root.join("restore-incomplete"), marker).unwrap();
    fs::write(&target.db_path, "half").unwrap();
    fs::write(target.registry_storage.join("half"), "half").unwrap();
    let refused = OfflineRegistry::open(&target).await;
    assert!(matches!(refused, Err(StartError::RestoreIncomplete { .. })));
    restore(&target, &data.path("backup"), now()).unwrap();
    assert_eq!(names(&target.registry_storage), complete);
    assert!(OfflineRegistry::open(&target).await.is_ok());
}

#[tokio::test]
async fn a_repeated_restore_empties_only_what_the_interrupted_one_had_found_empty() {
    let data = Data::new().await;
    data.back_up("backup");
    let mut target = settings(&data.path("target"));
    // The first one ends in the middle: of its places, one cannot be written.
    fs::create_dir_all(&target.registry_storage).unwrap();
    fs::write(target.registry_storage.join("blobs"), "").unwrap();
    let refused = restore(&target, &data.path("backup"), now());
    assert!(matches!(refused, Err(BackupError::NotEmpty { .. })), "{refused:?}");
    fs::remove_file(target.registry_storage.join("blobs")).unwrap();
    fs::create_dir_all(&target.storage_root).unwrap();
    let marker = format!("empty before: {}\n", target.registry_storage.display());
    fs::write(target.storage_root.join("restore-incomplete"), marker).unwrap();
    fs::write(target.registry_storage.join("half"), "half").unwrap();
    // Before the second one the operator names another disk, which has files.
    let disk = data.path("disk");
    fs::create_dir_all(&disk).unwrap();
    fs::write(disk.join("photos"), "of the family").unwrap();
    let first = std::mem::replace(&mut target.registry_storage, disk.clone());
    let refused = restore(&target, &data.path("backup"), now());
    assert!(matches!(&refused, Err(BackupError::NotEmpty { path }) if *path == disk), "{refused:?}");
    assert_eq!(fs::read_to_string(disk.join("photos")).unwrap(), "of the family");
    target.registry_storage = first;
    restore(&target, &data.path("backup"), now()).unwrap();
    assert!(OfflineRegistry::open(&target).await.is_ok());
}

#[tokio::test]
async fn the_lock_file_of_a_directory_is_no_content_for_a_restore() {
    let data = Data::new().await;
    data.back_up("backup");
    let target = settings(&data.path("target"));
    fs::create_dir_all(&target.registry_storage).unwrap();
    fs::write(target.registry_storage.join(".shoal-lock"), "").unwrap();
    restore(&target, &data.path("backup"), now()).unwrap();
}

#[tokio::test]
async fn a_restore_changes_nothing_in_directories_that_are_used() {
    let data = Data::new().await;
    data.back_up("backup");
    let refused = restore(&data.settings, &data.path("backup"), now());
    assert!(matches!(refused, Err(BackupError::NotEmpty { .. })), "{refused:?}");
    let running = DataLock::take(&data.settings).unwrap();
    let refused = restore(&data.settings, &data.path("backup"), now());
    assert!(matches!(refused, Err(BackupError::Locks(StartError::InUse { .. }))), "{refused:?}");
    drop(running);
    assert_eq!(data.store.restored_servers().await.unwrap(), []);
}

#[tokio::test]
async fn an_interrupted_backup_is_no_backup_and_is_removed_by_the_next_one() {
    let data = Data::new().await;
    let partial = data.path(".backup.partial-1");
    fs::create_dir_all(partial.join("data")).unwrap();
    assert!(matches!(verify(&partial), Err(BackupError::NotABackup { .. })));
    data.back_up("backup");
    assert!(!partial.exists());
    let again = back_up(&data.settings, &data.path("backup"), false, now());
    assert!(matches!(again, Err(BackupError::Exists { .. })), "{again:?}");
    let nothing = back_up(&settings(&data.path("empty")), &data.path("second"), false, now());
    assert!(matches!(nothing, Err(BackupError::NoData { .. })), "{nothing:?}");
    assert_eq!(names(data.folder.path()), ["backup", "data", "layout"]);
}

#[tokio::test]
async fn damaged_content_of_the_registry_is_named_and_left_out() {
    let data = Data::new().await;
    let blob = data.settings.registry_storage.join("blobs/sha256").join(sha256(b"v1"));
    fs::remove_file(&blob).unwrap();
    fs::write(&blob, "rot").unwrap();
    let made = data.back_up("backup");
    assert!(made.damaged.iter().any(|line| line.contains(&sha256(b"v1"))), "{:?}", made.damaged);
    assert!(!data.path("backup/data/oci/blobs/sha256").join(sha256(b"v1")).exists());
    verify(&data.path("backup")).unwrap();
}

#[test]
fn a_copy_that_does_not_have_the_digest_of_its_name_is_no_backup() {
    let work = super::work::Work::default();
    for place in ["data/oci/blobs/sha256/", "data/maintenance/"] {
        let folder = tempfile::tempdir().unwrap();
        let suffix = if place.ends_with("maintenance/") { ".iso" } else { "" };
        let path = folder.path().join(format!("{place}{}{suffix}", sha256(b"right")));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "rot").unwrap();
        let Err(refused) = super::copy::sums_of(folder.path(), &work) else {
            panic!("{place} is not compared")
        };
        assert!(refused.to_string().contains(&sha256(b"right")), "{refused}");
        fs::remove_file(folder.path().join("SHA256SUMS")).unwrap();
        fs::write(&path, "right").unwrap();
        assert_eq!(super::copy::sums_of(folder.path(), &work).unwrap().files, 1);
    }
}

#[tokio::test]
async fn a_push_between_the_copies_of_the_registry_is_in_the_backup() {
    let data = Data::new().await;
    let mut copier = super::copy::Copier::new(&{
        let root = data.path("copy");
        fs::create_dir(&root).unwrap();
        root
    })
    .unwrap();
    let storage = &data.settings.registry_storage;
    super::registry::copy(&mut copier, storage).unwrap();
    let digest = layout(&data.path("layout"), "v2");
    let opened = OfflineRegistry::open(&data.settings).await.unwrap();
    let repository = "os-images/ubuntu".parse().unwrap();
    opened.registry.import(&data.path("layout"), &repository).await.unwrap();
    // Deleted meanwhile: the record of an image whose content was not copied any more.
    let gone = data.path("copy/data/oci/repos/os-images=ubuntu/_manifests/sha256").join("0".repeat(64));
    fs::write(&gone, "{}").unwrap();
    super::registry::copy(&mut copier, storage).unwrap();
    super::registry::complete(&mut copier, storage).unwrap();
    assert!(data.path("copy/data/oci/blobs/sha256").join(digest).exists());
    assert!(data.path("copy/data/oci/blobs/sha256").join(sha256(b"v2")).exists());
    assert!(!gone.exists());
    assert!(copier.damaged.is_empty(), "{:?}", copier.damaged);
    assert_eq!(names(&data.path("copy/data/oci/repos/os-images=ubuntu/_tags")).len(), 2);
}
