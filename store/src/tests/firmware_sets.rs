//! Sets of firmware files.

use super::super::{CreatedFirmwareSet, StoredFirmwareFile, StoredFirmwareSet};
use super::*;
use model::NewEvent;

fn set(name: &str, digests: &[&str]) -> StoredFirmwareSet {
    let file = |digest: &&str| StoredFirmwareFile {
        repository: "firmware/v/bios".to_owned(),
        digest: (*digest).to_owned(),
        manifest: "{}".to_owned(),
        models: vec![["bios".to_owned(), "v".to_owned(), format!("model {digest}")]],
    };
    StoredFirmwareSet {
        name: name.to_owned(),
        id: format!("id of {name}"),
        labels: [("rack".to_owned(), "7".to_owned())].into(),
        created_by: "ann".to_owned(),
        created_at: "2026-01-01T00:00:00.000Z".parse().unwrap(),
        files: digests.iter().map(file).collect(),
    }
}

fn event() -> NewEvent {
    NewEvent::info("firmware-set.created", "a set")
}

#[tokio::test]
async fn a_set_is_read_as_it_was_created_until_it_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let now: Time = "2026-01-01T00:00:00.000Z".parse().unwrap();
    let store = Store::open(&folder.path().join("shoal.db"), now).unwrap();
    let made = set("a", &["d1", "d2"]);
    assert_eq!(store.create_firmware_set(made.clone(), 2, event()).await.unwrap(), CreatedFirmwareSet::New);
    let taken = store.create_firmware_set(set("a", &["d3"]), 2, event()).await.unwrap();
    assert_eq!(taken, CreatedFirmwareSet::NameTaken);
    assert_eq!(
        store.create_firmware_set(set("b", &["d2"]), 2, event()).await.unwrap(),
        CreatedFirmwareSet::New
    );
    assert_eq!(
        store.create_firmware_set(set("c", &["d2"]), 2, event()).await.unwrap(),
        CreatedFirmwareSet::Full
    );
    assert_eq!(store.firmware_set("a").await.unwrap().as_ref(), Some(&made));
    assert_eq!(store.firmware_sets().await.unwrap(), [made.clone(), set("b", &["d2"])]);
    assert_eq!(store.firmware_sets_with("d2").await.unwrap(), ["a", "b"]);
    assert_eq!(store.delete_firmware_set("a", event(), now).await.unwrap(), Some(made));
    assert_eq!(store.delete_firmware_set("a", event(), now).await.unwrap(), None);
    assert_eq!(store.firmware_sets_with("d2").await.unwrap(), ["b"]);
}

#[tokio::test]
async fn two_files_for_one_component_of_one_model_create_no_set() {
    let folder = tempfile::tempdir().unwrap();
    let now: Time = "2026-01-01T00:00:00.000Z".parse().unwrap();
    let store = Store::open(&folder.path().join("shoal.db"), now).unwrap();
    let mut made = set("a", &["d1", "d2"]);
    made.files[1].models = made.files[0].models.clone();
    store.create_firmware_set(made, 2, event()).await.unwrap_err();
    assert_eq!(store.firmware_set("a").await.unwrap(), None);
}
