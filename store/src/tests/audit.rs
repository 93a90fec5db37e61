//! The audit log: one entry in the transaction of a change, a chain under concurrency, append-only rows, pruning.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::audit_export::{AuditVerifyError, verify_database};
use crate::{AuditFilter, AuditRetention, AuditTrail, audited, record_in_file};
use model::audit::{ActorKind, AuditActor, AuditHead, ChainFault, ChainSummary, NewAuditEntry};

fn entry(second: u64, name: &str) -> NewAuditEntry {
    NewAuditEntry::new(at(second), AuditActor::new(ActorKind::User, name), "test.change").on("thing", name)
}

/// Checks the log of a database file.
fn check(database: &Path) -> Result<ChainSummary, ChainFault> {
    match verify_database(database, None) {
        Ok(summary) => Ok(summary),
        Err(AuditVerifyError::Fault(fault)) => Err(fault),
        Err(other) => panic!("{other}"),
    }
}

fn all_entries() -> AuditFilter {
    AuditFilter { limit: 1000, ..AuditFilter::default() }
}

#[tokio::test]
async fn the_first_change_of_a_request_records_its_entry_in_the_same_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("shoal.db"), at(0)).unwrap();
    let change = || store.append(None, None, vec![NewEvent::info("test.event", "x")], at(1));
    let trail = AuditTrail::new(entry(1, "ann"), true);
    let unknown = Arc::clone(&trail);
    audited(trail, async {
        change().await.unwrap();
        assert!(!unknown.is_open(), "the actor is not known yet");
        unknown.identify(AuditActor::new(ActorKind::Token, "ci").with_id("7"));
        assert!(unknown.is_open());
        change().await.unwrap();
        assert!(unknown.is_recorded());
        change().await.unwrap();
    })
    .await;
    change().await.unwrap();
    let log = store.audit(all_entries()).await.unwrap();
    assert_eq!(log.len(), 1, "{log:?}");
    assert_eq!((log[0].seq, log[0].actor.as_str(), log[0].actor_id.as_str()), (1, "ci", "7"));
    assert_eq!(log[0].previous, AuditHead::genesis().hash);
}

#[tokio::test]
async fn work_that_fails_or_changes_nothing_records_no_entry() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("shoal.db"), at(0)).unwrap();
    let trail = AuditTrail::new(entry(1, "ann"), true);
    trail.identify(AuditActor::new(ActorKind::User, "ann"));
    let asked = Arc::clone(&trail);
    audited(trail, async {
        let failed: Result<(), _> = store
            .writer
            .write("fail", |connection| {
                connection.execute("INSERT INTO settings (key, value) VALUES ('a', 'b')", []).unwrap();
                Err(StoreError::Closed)
            })
            .await;
        assert!(failed.is_err());
        store.writer.write("nothing", |_connection| Ok(())).await.unwrap();
        assert!(asked.is_open(), "its caller records it with its result");
    })
    .await;
    assert_eq!(store.audit(all_entries()).await.unwrap(), []);
    let dry_run = AuditTrail::new(entry(1, "ann"), true);
    dry_run.identify(AuditActor::new(ActorKind::User, "ann"));
    dry_run.changes_nothing();
    assert!(!dry_run.is_open());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn entries_of_many_tasks_and_another_process_are_one_chain() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shoal.db");
    let store = Store::open(&path, at(0)).unwrap();
    let tasks: Vec<_> = (0..8_u64)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in 0..20 {
                    store.record_audit(vec![entry(number, &format!("t{task}"))]).await.unwrap();
                }
            })
        })
        .collect();
    let other = path.clone();
    let command = tokio::task::spawn_blocking(move || {
        for number in 0..10 {
            record_in_file(&other, &entry(number, "command")).unwrap();
        }
    });
    for task in tasks {
        task.await.unwrap();
    }
    command.await.unwrap();
    assert_eq!(check(&path).unwrap().entries, 170);
    assert_eq!(check(&path).unwrap().head, store.audit_head().await.unwrap());
}

#[tokio::test]
async fn rows_are_not_changed_or_deleted_without_an_anchor_and_a_forced_change_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shoal.db");
    let store = Store::open(&path, at(0)).unwrap();
    store.record_audit((1..=5).map(|number| entry(number, "ann")).collect()).await.unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let refused = |sql: &str| connection.execute(sql, []).unwrap_err().to_string();
    assert!(refused("UPDATE audit_log SET actor = 'bob' WHERE seq = 2").contains("never changes"));
    assert!(refused("DELETE FROM audit_log WHERE seq = 2").contains("not deleted"));
    connection
        .execute_batch(
            "DROP TRIGGER audit_log_is_never_changed; DROP TRIGGER audit_log_is_pruned_up_to_the_anchor;",
        )
        .unwrap();
    let forced = |sql: &str, fault: Option<ChainFault>| {
        connection.execute_batch("SAVEPOINT forced").unwrap();
        connection.execute(sql, []).unwrap();
        connection.execute_batch("RELEASE forced").unwrap();
        assert_eq!(check(&path).err(), fault, "{sql}");
    };
    forced("UPDATE audit_log SET actor = 'bob' WHERE seq = 2", Some(ChainFault::Changed { seq: 2 }));
    forced("UPDATE audit_log SET actor = 'ann' WHERE seq = 2", None);
    forced("UPDATE audit_log SET seq = 9 WHERE seq = 3", Some(ChainFault::Missing { first: 3, next: 4 }));
    forced("UPDATE audit_log SET seq = 3 WHERE seq = 9", None);
    connection.execute("UPDATE audit_log SET actor_kind = 'king' WHERE seq = 4", []).unwrap();
    let unreadable = verify_database(&path, None).unwrap_err();
    assert!(unreadable.to_string().starts_with("entry 4 cannot be read"), "{unreadable}");
    forced("DELETE FROM audit_log WHERE seq = 1", Some(ChainFault::Missing { first: 1, next: 2 }));
}

#[tokio::test]
async fn pruning_keeps_an_anchor_from_which_the_rest_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shoal.db");
    let store = Store::open(&path, at(0)).unwrap();
    store.record_audit((1..=50).map(|number| entry(number, "ann")).collect()).await.unwrap();
    let keep = AuditRetention { before: Some(at(11)), entries: 1000, at_least: 1, at_most: 6 };
    assert_eq!(store.prune_audit(AuditRetention { at_least: 11, ..keep }, at(60)).await.unwrap(), 0);
    assert_eq!(store.prune_audit(keep, at(60)).await.unwrap(), 6);
    assert_eq!(store.prune_audit(keep, at(60)).await.unwrap(), 4);
    assert_eq!(store.prune_audit(keep, at(60)).await.unwrap(), 0);
    let summary = check(&path).unwrap();
    assert_eq!((summary.anchor.seq, summary.entries, summary.head.seq), (10, 42, 52));
    let pruned =
        store.audit(AuditFilter { action: Some("audit.*".to_owned()), ..all_entries() }).await.unwrap();
    assert_eq!(pruned[0].target, format!("entry/{}", summary.anchor));
    assert_eq!(pruned[0].count, 4);
    let few = AuditRetention { before: None, entries: 5, at_least: 1, at_most: 1000 };
    assert_eq!(store.prune_audit(few, at(61)).await.unwrap(), 37);
    assert_eq!(check(&path).unwrap().entries, 6);
    let everything = AuditRetention { before: Some(at(100)), ..few };
    store.prune_audit(everything, at(62)).await.unwrap();
    assert_eq!(check(&path).unwrap().entries, 1, "the entry of the pruning itself stays");
    store.record_audit(vec![entry(70, "ann")]).await.unwrap();
    assert_eq!(check(&path).unwrap().entries, 2);
}

#[tokio::test]
async fn filters_select_by_actor_action_target_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("shoal.db"), at(0)).unwrap();
    let names = ["ann", "bob", "ann", "eve"];
    let entries = names.iter().zip(1_u64..).map(|(name, second)| entry(second, name));
    store.record_audit(entries.collect()).await.unwrap();
    let found = async |filter: AuditFilter| -> Vec<u64> {
        store.audit(filter).await.unwrap().iter().map(|entry| entry.seq).collect()
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(found(AuditFilter { actor: text("ann"), ..all_entries() }).await, [3, 1]);
    assert_eq!(found(AuditFilter { action: text("test.change"), ..all_entries() }).await, [4, 3, 2, 1]);
    assert!(found(AuditFilter { action: text("test"), ..all_entries() }).await.is_empty());
    assert_eq!(found(AuditFilter { action: text("test.*"), limit: 2, ..all_entries() }).await, [4, 3]);
    assert_eq!(found(AuditFilter { action: text("test.cha*"), limit: 1, ..all_entries() }).await, [4]);
    assert_eq!(found(AuditFilter { target: text("thing/bob"), ..all_entries() }).await, [2]);
    assert_eq!(
        found(AuditFilter { target: text("thing/*"), before: Some(3), ..all_entries() }).await,
        [2, 1]
    );
    assert_eq!(found(AuditFilter { since: Some(at(3)), ..all_entries() }).await, [4, 3]);
    let later = at(3).plus(Duration::from_millis(1));
    assert_eq!(found(AuditFilter { since: Some(later), ..all_entries() }).await, [4]);
}
