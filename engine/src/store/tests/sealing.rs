//! Columns that may contain secrets are sealed before they reach the database file.

use std::path::Path;

use super::*;
use crate::model::{Webhook, WebhookFilter, WebhookId};
use crate::store::TextSeal;

const CANARY: &str = "canary-4Kd7";

/// Reversible and bound to its place: enough to see what reaches the file.
struct TestSeal(&'static str);

impl TextSeal for TestSeal {
    fn seal(&self, context: &str, text: &str) -> Result<String, String> {
        Ok(format!("{}|{context}|{}", self.0, text.chars().rev().collect::<String>()))
    }

    fn open(&self, context: &str, sealed: &str) -> Option<String> {
        let rest =
            sealed.strip_prefix(self.0)?.strip_prefix('|')?.strip_prefix(context)?.strip_prefix('|')?;
        Some(rest.chars().rev().collect())
    }
}

fn open(folder: &Path, key: &'static str) -> Store {
    Store::open_sealed(&folder.join("shoal.db"), Arc::new(TestSeal(key)), at(0)).unwrap()
}

/// All bytes of the database and its log.
fn bytes(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()).collect()
}

fn secret_job() -> NewRun {
    let mut run = new_job("A", at(0), None, "");
    let Effect::JobCreated(job) = &mut run.effects[0] else { panic!() };
    job.recipe =
        Arc::new(JobRecipe { json: format!("{{\"r\":\"{CANARY}\"}}"), schema_id: "schema".to_owned() });
    job.maintenance_iso_url = format!("https://h/i.iso?sig={CANARY}");
    NewRun { input: json!({ "input": CANARY }), ..run }
}

async fn filled(folder: &Path) -> (Store, RunId) {
    let store = open(folder, "first");
    store.create_server(server("A"), NewEvent::info("server.created", "x")).await.unwrap();
    let Created::New(run) = store.create(Creation { run: secret_job() }).await.unwrap() else { panic!() };
    let webhook = Webhook {
        id: WebhookId::new(),
        url: format!("https://h/{CANARY}"),
        secret: "sealed:v1:x".to_owned(),
        filter: WebhookFilter::default(),
        created_by: "ada".to_owned(),
        created_at: at(0),
        disabled: None,
        cursor: 0,
        delivered: 0,
        failing_since: None,
        last_error: None,
    };
    assert!(store.create_webhook(webhook, 1, NewEvent::info("webhook.created", "x")).await.unwrap());
    (store, run.id)
}

#[tokio::test]
async fn recipes_inputs_and_urls_are_read_back_and_are_in_no_file_of_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let (store, id) = filled(folder.path()).await;
    let claimed = claim(&store, "a", 1, at(1)).await.remove(0).snapshot;
    assert_eq!(claimed.recipe.unwrap().json, format!("{{\"r\":\"{CANARY}\"}}"));
    assert_eq!(*claimed.input, json!({ "input": CANARY }));
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!(job.provision.unwrap().maintenance_iso_url, format!("https://h/i.iso?sig={CANARY}"));
    assert_eq!(store.webhooks().await.unwrap()[0].url, format!("https://h/{CANARY}"));
    let at_rest = bytes(folder.path());
    assert!(!at_rest.contains(CANARY), "a secret is in the database or its log");
    for column in ["/recipe_json|", "/maintenance_iso_url|", "/input|", "/url|"] {
        assert!(at_rest.contains(column), "{column} is not sealed");
    }
}

#[tokio::test]
async fn a_database_whose_key_was_lost_shows_its_jobs_and_holds_them_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (store, id) = filled(folder.path()).await;
    drop(store);
    let store = open(folder.path(), "other");
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!(job.provision.unwrap().maintenance_iso_url, "(sealed with another master key)");
    assert_eq!(store.webhooks().await.unwrap()[0].origin(), "(sealed with another master key)");
    assert!(claim(&store, "a", 1, at(1)).await.is_empty());
    let held = store.unreadable(id).await.unwrap().unwrap();
    assert!(format!("{:?}", held.hold).contains("master key"), "{:?}", held.hold);
}

#[tokio::test]
async fn a_sealed_text_of_another_row_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (store, id) = filled(folder.path()).await;
    let outside = Connection::open(folder.path().join("shoal.db")).unwrap();
    let changed = outside
        .execute("UPDATE jobs SET recipe_json = (SELECT input FROM run_inputs WHERE run = jobs.id)", [])
        .unwrap();
    assert_eq!(changed, 1);
    assert!(claim(&store, "a", 1, at(1)).await.is_empty());
    assert!(store.unreadable(id).await.unwrap().is_some());
}

#[tokio::test]
async fn the_files_of_a_database_are_open_to_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let (_store, _id) = filled(folder.path()).await;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
    }
}
