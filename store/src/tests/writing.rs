//! Group commit, isolation of writer jobs, durability, readers, and the schema as a golden file.

use std::sync::mpsc;

use super::*;
use crate::{EventFilter, StoreError, readers};

#[tokio::test]
async fn queued_writes_share_a_transaction_and_return_after_its_commit() {
    let kit = Kit::new();
    let (open, gate) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel::<()>();
    let path = kit.folder.path().join("shoal.db");
    let store = kit.store.clone();
    let first = tokio::spawn(async move {
        store
            .writer
            .write("hold the writer", move |_| {
                entered.send(()).unwrap();
                gate.recv().unwrap();
                Ok(())
            })
            .await
    });
    tokio::task::spawn_blocking(move || inside.recv().unwrap()).await.unwrap();
    let mut rest = Vec::new();
    for index in 0..20 {
        let store = kit.store.clone();
        let path = path.clone();
        rest.push(tokio::spawn(async move {
            store
                .writer
                .write("write and read from outside", move |connection| {
                    connection
                        .execute("INSERT INTO settings (key, value) VALUES (?1, 'x')", [format!("k{index}")])
                        .unwrap();
                    // No row of this batch is visible to another connection before the commit.
                    let outside = Connection::open(&path).unwrap();
                    let seen: i64 = outside
                        .query_row("SELECT count(*) FROM settings WHERE key LIKE 'k%'", [], |row| row.get(0))
                        .unwrap();
                    Ok(seen)
                })
                .await
        }));
    }
    // The writer continues when all 20 are in the queue. A task that has sent its job waits for the result.
    while kit.store.writer.waiting() < 20 {
        tokio::task::yield_now().await;
    }
    open.send(()).unwrap();
    first.await.unwrap().unwrap();
    for task in rest {
        assert_eq!(
            task.await.unwrap().unwrap(),
            0,
            "a job saw the commit of another: they were not in one transaction"
        );
        let seen: i64 = kit
            .outside()
            .query_row("SELECT count(*) FROM settings WHERE key LIKE 'k%'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(seen, 20, "returned before the commit");
    }
}

#[tokio::test]
async fn a_failing_job_rolls_back_alone_and_a_panicking_one_leaves_the_writer_alive() {
    let kit = Kit::new();
    let write = |key: &'static str, then: fn() -> Result<(), StoreError>| {
        let store = kit.store.clone();
        tokio::spawn(async move {
            store
                .writer
                .write("write a key", move |connection| {
                    connection.execute("INSERT INTO settings (key, value) VALUES (?1, 'x')", [key]).unwrap();
                    then()
                })
                .await
        })
    };
    let (good, bad, broken, after) = (
        write("good", || Ok(())),
        write("bad", || Err(StoreError::Closed)),
        write("panic", || panic!("on purpose")),
        write("after", || Ok(())),
    );
    good.await.unwrap().unwrap();
    assert!(matches!(bad.await.unwrap(), Err(StoreError::Closed)));
    assert!(matches!(broken.await.unwrap(), Err(StoreError::Panicked { operation: "write a key" })));
    after.await.unwrap().unwrap();
    let keys: String = kit
        .outside()
        .query_row(
            "SELECT group_concat(key) FROM (SELECT key FROM settings WHERE value = 'x' ORDER BY key)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(keys, "after,good");
}

#[tokio::test]
async fn a_write_whose_caller_is_gone_is_committed_anyway() {
    let kit = Kit::new();
    // The writer executes an earlier write until the caller of the later one is gone.
    let (go_on, gate) = std::sync::mpsc::channel::<()>();
    let earlier = {
        let store = kit.store.clone();
        let wait = move |_: &Connection| {
            // Ends when the test drops its sender too.
            let _told = gate.recv();
            Ok(())
        };
        tokio::spawn(async move { store.writer.write("test", wait).await })
    };
    tokio::task::yield_now().await;
    let mut write = Box::pin(kit.store.append(None, None, vec![NewEvent::info("left", "x")], at(1)));
    assert!(futures_util::poll!(&mut write).is_pending());
    drop(write);
    go_on.send(()).unwrap();
    earlier.await.unwrap().unwrap();
    kit.store.check().await.unwrap();
    let events = kit.store.events(EventFilter { limit: 10, ..EventFilter::default() }).await.unwrap();
    assert_eq!(events.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_check_writes_and_a_check_soon_after_it_has_its_result() {
    let kit = Kit::new();
    let outside = kit.outside();
    let checked = || {
        let sql = "SELECT value FROM settings WHERE key = 'checked'";
        outside.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
    };
    kit.store.check().await.unwrap();
    kit.store.check().await.unwrap();
    assert_eq!(checked(), "1");
    tokio::time::advance(Duration::from_secs(5)).await;
    kit.store.check().await.unwrap();
    assert_eq!(checked(), "2");
    // Stands for a disk that refuses the write.
    let refused =
        "CREATE TRIGGER refused BEFORE UPDATE ON settings BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    outside.execute_batch(refused).unwrap();
    kit.store.check().await.unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    kit.store.check().await.unwrap_err();
    outside.execute_batch("DROP TRIGGER refused").unwrap();
    kit.store.check().await.unwrap_err();
    tokio::time::advance(Duration::from_secs(5)).await;
    kit.store.check().await.unwrap();
}

#[tokio::test]
async fn reopening_finds_everything_that_was_acknowledged() {
    let Kit { folder, store } = Kit::new();
    let mut expected = Vec::new();
    for index in 0..50 {
        let run = new_run(at(index));
        expected.push(run.id);
        store.create(Creation { run }).await.unwrap();
    }
    // A copy of the files now is what a power cut would leave: nothing was closed.
    let copy = tempfile::tempdir().unwrap();
    for file in ["shoal.db", "shoal.db-wal"] {
        std::fs::copy(folder.path().join(file), copy.path().join(file)).unwrap();
    }
    let reopened = Store::open(&copy.path().join("shoal.db"), at(0)).unwrap();
    for id in expected {
        let snapshot = reopened.snapshot(id).await.unwrap().unwrap();
        assert_eq!(*snapshot.input, json!({ "size": 7 }));
        assert_eq!(snapshot.plan.forward.len(), 2);
    }
    let check: String = kit_check(&copy.path().join("shoal.db"));
    assert_eq!(check, "ok");
}

fn kit_check(path: &std::path::Path) -> String {
    Connection::open(path).unwrap().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn the_writer_syncs_every_commit_and_readers_cannot_write() {
    let kit = Kit::new();
    let synchronous = kit
        .store
        .writer
        .write("ask", |connection| {
            let full: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
            let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
            Ok((full, mode))
        })
        .await
        .unwrap();
    assert_eq!(synchronous, (2, "wal".to_owned()));
    let refused = kit
        .store
        .read("write with a reader", |connection| {
            connection
                .execute("INSERT INTO settings (key, value) VALUES ('x', 'y')", [])
                .map_err(|source| StoreError::sqlite("write with a reader", source))
        })
        .await;
    assert!(refused.unwrap_err().to_string().contains("write with a reader"));
}

#[tokio::test]
async fn a_reader_continues_after_a_panic_and_starts_no_read_whose_caller_is_gone() {
    let kit = Kit::new();
    let version = kit.store.setting("schema_version").await.unwrap();
    for _ in 0..9 {
        let broken = kit.store.read::<(), _>("panic", |_| panic!("on purpose")).await;
        assert!(matches!(broken, Err(StoreError::Panicked { operation: "panic" })));
    }
    // All readers are busy with reads whose callers are gone.
    let (open, gate) = mpsc::channel::<()>();
    let gate = std::sync::Arc::new(std::sync::Mutex::new(gate));
    for _ in 0..readers::count() {
        let gate = std::sync::Arc::clone(&gate);
        let (entered, inside) = tokio::sync::oneshot::channel();
        let mut read = Box::pin(kit.store.read("hang", move |_| {
            entered.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            Ok(())
        }));
        assert!(futures_util::poll!(&mut read).is_pending());
        inside.await.unwrap();
    }
    let (started, was_started) = tokio::sync::oneshot::channel();
    let mut unwanted = Box::pin(kit.store.read("unwanted", move |_| {
        started.send(()).unwrap();
        Ok(())
    }));
    assert!(futures_util::poll!(&mut unwanted).is_pending());
    drop(unwanted);
    let mut another = Box::pin(kit.store.setting("schema_version"));
    assert!(futures_util::poll!(&mut another).is_pending());
    (0..readers::count()).for_each(|_| open.send(()).unwrap());
    assert_eq!(another.await.unwrap(), version);
    assert!(was_started.await.is_err(), "the read was dropped without being started");
}

#[test]
fn the_schema_equals_the_golden_schema() {
    let kit = Kit::new();
    let outside = kit.outside();
    let mut statement = outside
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type, name")
        .unwrap();
    let mut dump = String::from("-- The schema after all migrations (generated; UPDATE_GOLDEN=1 rewrites)\n");
    for sql in statement.query_map([], |row| row.get::<_, String>(0)).unwrap() {
        dump.push_str(&format!("\n{};\n", sql.unwrap()));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/schema.sql");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &dump).unwrap();
    }
    assert_eq!(dump, std::fs::read_to_string(path).unwrap_or_default(), "UPDATE_GOLDEN=1 rewrites {path}");
}
