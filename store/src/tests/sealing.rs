//! Columns that may contain secrets are sealed before they reach the database file.

use std::path::Path;

use super::*;
use crate::sealing::SEALED;
use crate::{ResealCursor, SealPurpose, StoredSigningKey, TextSeal};
use model::{Artifact, Grant, Webhook, WebhookFilter, WebhookId};
use parking_lot::Mutex;

const CANARY: &str = "canary-4Kd7";

/// Reversible and bound to its place: enough to see what reaches the file. The first key is in force.
#[derive(Clone)]
struct TestSeal(Arc<Mutex<Vec<&'static str>>>);

impl TestSeal {
    fn of(key: &'static str) -> Self {
        Self(Arc::new(Mutex::new(vec![key])))
    }

    fn seal_with(key: &str, context: &str, text: &str) -> String {
        format!("sealed:{key}|{context}|{}", text.chars().rev().collect::<String>())
    }
}

impl TextSeal for TestSeal {
    fn seal(&self, context: &str, text: &str) -> Result<String, String> {
        Ok(Self::seal_with(&self.in_force(), context, text))
    }

    fn open(&self, context: &str, sealed: &str) -> Option<String> {
        let (key, rest) = sealed.strip_prefix("sealed:")?.split_once('|')?;
        let rest = rest.strip_prefix(context)?.strip_prefix('|')?;
        self.0.lock().contains(&key).then(|| rest.chars().rev().collect())
    }

    fn reseal(&self, _purpose: SealPurpose, context: &str, sealed: &str) -> Option<String> {
        let text = self.open(context, sealed)?;
        (self.key_of(sealed)? != self.in_force()).then(|| Self::seal_with(&self.in_force(), context, &text))
    }

    fn key_of(&self, sealed: &str) -> Option<String> {
        Some(sealed.strip_prefix("sealed:")?.split_once('|')?.0.to_owned())
    }

    fn in_force(&self) -> String {
        self.0.lock()[0].to_owned()
    }
}

fn open(folder: &Path, key: &'static str) -> Store {
    Store::open_sealed(&folder.join("shoal.db"), Arc::new(TestSeal::of(key)), at(0)).unwrap()
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

/// A store with a text in every sealed column, sealed with "first", and its key.
async fn with_every_column(folder: &Path) -> (Store, TestSeal, RunId) {
    let seal = TestSeal::of("first");
    let store = Store::open_sealed(&folder.join("shoal.db"), Arc::new(seal.clone()), at(0)).unwrap();
    let mut new = server("A");
    new.bmc_password = TestSeal::seal_with("first", "A", CANARY);
    let address = new.bmc_address.clone();
    store.create_server(new, NewEvent::info("server.created", "x")).await.unwrap();
    let mut run = secret_job();
    let inputs = TestSeal::seal_with("first", &format!("media-grant/{}", run.id), CANARY);
    run.effects.push(Effect::GrantIssued(Box::new(Grant {
        token_hash: "hash".to_owned(),
        run: run.id,
        artifact: Artifact::Task,
        inputs: Some(inputs),
        sha256: "00".to_owned(),
        size: 1,
        created_at: at(0),
    })));
    let Created::New(run) = store.create(Creation { run }).await.unwrap() else { panic!() };
    let id = WebhookId::new();
    let webhook = Webhook {
        id,
        url: format!("https://h/{CANARY}"),
        secret: TestSeal::seal_with("first", &id.secret_context(), CANARY),
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
    let session = TestSeal::seal_with("first", &format!("bmc-session/A/{address}"), CANARY);
    store.save_session(&"A".parse().unwrap(), Some(session)).await.unwrap();
    let key = CANARY.to_owned().into();
    let signing = StoredSigningKey { id: "1".to_owned(), key, made_at: at(0), until: None };
    assert_eq!(store.signing_keys(signing).await.unwrap().len(), 1);
    (store, seal, run.id)
}

/// Carries out a whole pass and returns the number of texts that it sealed again.
async fn pass(store: &Store) -> u64 {
    let (mut resealed, mut next) = (0, Some(ResealCursor::default()));
    while let Some(cursor) = next {
        let batch = store.reseal(cursor).await.unwrap();
        resealed += batch.resealed;
        next = batch.next;
    }
    resealed
}

/// Table, column and key of every sealed text, read without the list of sealed columns.
fn sealed_texts(folder: &Path) -> Vec<(String, String)> {
    let outside = Connection::open(folder.join("shoal.db")).unwrap();
    let sql =
        "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table'";
    let mut columns = outside.prepare(sql).unwrap();
    let columns = columns.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let columns: Vec<(String, String)> = columns.map(Result::unwrap).collect();
    let mut found = Vec::new();
    for (table, column) in columns {
        let sql = format!("SELECT \"{column}\" FROM {table} WHERE \"{column}\" LIKE 'sealed:%|%'");
        let mut rows = outside.prepare(&sql).unwrap();
        let rows = rows.query_map([], |row| row.get::<_, String>(0)).unwrap();
        found.extend(rows.map(|text| {
            let text = text.unwrap();
            let key = text.strip_prefix("sealed:").unwrap().split_once('|').unwrap().0;
            (format!("{table}.{column}"), key.to_owned())
        }));
    }
    found
}

#[tokio::test]
async fn every_column_with_sealed_texts_is_in_the_list_and_is_sealed_again_with_the_key_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let (store, seal, run) = with_every_column(folder.path()).await;
    let texts = sealed_texts(folder.path());
    let mut listed: Vec<String> =
        SEALED.iter().map(|sealed| format!("{}.{}", sealed.table, sealed.column)).collect();
    let mut found: Vec<String> = texts.iter().map(|(place, _)| place.clone()).collect();
    listed.sort();
    found.sort();
    assert_eq!(found, listed, "one sealed text in each listed column and in no other");
    assert!(texts.iter().all(|(_, key)| key == "first"), "{texts:?}");

    let rotated = seal.clone();
    store.between_writes(move || *rotated.0.lock() = vec!["second", "first"]).await.unwrap();
    assert_eq!(store.sealed_counts().await.unwrap().iter().map(|count| count.records).sum::<u64>(), 9);
    assert_eq!(pass(&store).await, 9);
    assert_eq!(pass(&store).await, 0, "nothing is left for a second pass");
    assert!(sealed_texts(folder.path()).iter().all(|(_, key)| key == "second"));
    assert!(store.sealed_counts().await.unwrap().iter().all(|count| count.key == "second"));
    *seal.0.lock() = vec!["second"];
    let server = store.server(&"A".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(seal.open("A", &server.bmc_password).unwrap(), CANARY);
    assert_eq!(server.revision, 1, "the rotation is no change of the server");
    assert_eq!(*store.snapshot(run).await.unwrap().unwrap().input, json!({ "input": CANARY }));
}

#[tokio::test]
async fn a_text_sealed_before_a_rotation_and_written_after_it_is_sealed_with_the_key_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let (store, seal, _) = with_every_column(folder.path()).await;
    let mut stale = store.server(&"A".parse().unwrap()).await.unwrap().unwrap();
    *seal.0.lock() = vec!["second", "first"];
    pass(&store).await;
    stale.vendor = Some("x".to_owned());
    store
        .update_server(stale, crate::CertificateChange::Keep, NewEvent::info("server.updated", "x"), None)
        .await
        .unwrap();
    let session = TestSeal::seal_with("first", "bmc-session/A/another address", CANARY);
    store.save_session(&"A".parse().unwrap(), Some(session)).await.unwrap();
    assert!(sealed_texts(folder.path()).iter().all(|(_, key)| key == "second"));
    let server = store.server(&"A".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(
        (seal.open("A", &server.bmc_password).as_deref(), server.vendor.as_deref()),
        (Some(CANARY), Some("x"))
    );
}

/// The count is the proof that a key is unused, so it must see what cannot be opened.
#[tokio::test]
async fn a_text_that_cannot_be_opened_is_counted_under_its_key_and_a_session_like_that_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (store, seal, _) = with_every_column(folder.path()).await;
    let outside = Connection::open(folder.path().join("shoal.db")).unwrap();
    outside
        .execute("UPDATE servers SET bmc_password = 'sealed:first|B|x', bmc_address = 'moved'", [])
        .unwrap();
    *seal.0.lock() = vec!["second", "first"];
    assert_eq!(pass(&store).await, 7);
    let counts = store.sealed_counts().await.unwrap();
    let left: Vec<_> = counts.iter().filter(|count| count.key == "first").collect();
    assert_eq!(left.len(), 1, "{counts:?}");
    assert_eq!((left[0].place.as_str(), left[0].records), ("servers.bmc_password", 1));
    assert!(!counts.iter().any(|count| count.place == "bmc_sessions.sealed"));
}

#[tokio::test]
async fn a_pass_over_many_rows_takes_several_transactions_and_misses_none() {
    let folder = tempfile::tempdir().unwrap();
    let seal = TestSeal::of("first");
    let store = Store::open_sealed(&folder.path().join("shoal.db"), Arc::new(seal.clone()), at(0)).unwrap();
    for number in 0..600 {
        let mut new = server(&format!("S-{number}"));
        new.bmc_password = TestSeal::seal_with("first", &format!("S-{number}"), CANARY);
        store.create_server(new, NewEvent::info("server.created", "x")).await.unwrap();
    }
    *seal.0.lock() = vec!["second", "first"];
    let first = store.reseal(ResealCursor::default()).await.unwrap();
    assert!(first.resealed < 600 && first.next.is_some());
    assert_eq!(first.resealed + pass(&store).await, 600);
    assert_eq!(store.sealed_counts().await.unwrap().len(), 1);
}
