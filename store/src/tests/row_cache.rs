//! A cached job, and a cached server, equal what their rows give.

use bytes::Bytes;

use super::*;
use crate::{CacheTicket, CachedJob};
use model::{Position, Stage, StepPhase, StepRecord};

fn document(revision: i64) -> CachedJob {
    CachedJob { revision, body: Bytes::from_static(b"{}") }
}

/// Caches the job; returns whether it was cached before.
fn cache(store: &Store, id: RunId) -> bool {
    match store.cached_job(id) {
        Ok(_) => true,
        Err(ticket) => {
            ticket.put(document(1));
            false
        }
    }
}

fn ticket(store: &Store, id: RunId) -> CacheTicket {
    store.cached_job(id).unwrap_err()
}

#[tokio::test]
async fn a_write_to_a_job_removes_it_from_the_cache_and_no_other() {
    let kit = Kit::new();
    kit.server("A").await;
    kit.server("B").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    let other = kit.create_run(new_job("B", at(0), None, "y")).await;
    assert!(!cache(&kit.store, id) && !cache(&kit.store, other));
    assert!(cache(&kit.store, id) && cache(&kit.store, other));

    // An event of the job, and one that belongs to no job.
    kit.store.append(Some(id), None, vec![NewEvent::info("tick", "x")], at(1)).await.unwrap();
    assert!(!cache(&kit.store, id));
    kit.store.append(None, Some(serial("A")), vec![NewEvent::info("tick", "x")], at(1)).await.unwrap();
    assert!(cache(&kit.store, id));

    // A signal.
    let signal = Signal {
        name: "report".to_owned(),
        key: "1".to_owned(),
        payload: json!({}),
        received_at: at(2),
        consumed: false,
    };
    kit.store.deliver(id, signal, Vec::new(), None, at(2)).await.unwrap();
    assert!(!cache(&kit.store, id));

    // A lease, the progress of a step, a change.
    let claimed = claim(&kit.store, "w", 1, at(3)).await.remove(0).snapshot.run;
    assert_eq!(claimed.id, id);
    assert!(!cache(&kit.store, id));
    let record = StepRecord {
        at: Position { stage: Stage::Forward, index: 0 },
        name: "one".into(),
        key: "one".to_owned(),
        attempt: 1,
        epoch: claimed.epoch,
        phase: StepPhase::Intent,
        output: json!({ "half": true }),
        started_at: at(3),
        ended_at: None,
    };
    assert!(kit.store.progress(claimed.clone(), record, at(3)).await.unwrap());
    assert!(!cache(&kit.store, id));
    kit.end(id, Outcome::Succeeded, at(4)).await;
    assert!(!cache(&kit.store, id));

    assert!(cache(&kit.store, other), "nothing was written to it");
}

#[tokio::test]
async fn inserts_updates_and_deletes_in_every_table_of_a_job_remove_it_from_the_cache() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    let statements = [
        "UPDATE runs SET progress_at = progress_at WHERE id = ?1",
        "UPDATE jobs SET task_iso_path = 'x' WHERE id = ?1",
        "UPDATE run_inputs SET labels = '{}' WHERE run = ?1",
        "INSERT INTO run_steps (run, stage, idx, step, key, attempt, epoch, phase, output, started_at)
         VALUES (?1, 'forward', 0, 'one', 'one', 1, 1, 'intent', 'null', '2026-01-01T00:00:00Z')",
        "UPDATE run_steps SET output = '{}' WHERE run = ?1",
        "DELETE FROM run_steps WHERE run = ?1",
        "INSERT INTO events (time, run, type, level, actor, message)
         VALUES ('2026-01-01T00:00:00Z', ?1, 'tick', 'info', 'x', 'x')",
        "UPDATE events SET message = 'y' WHERE run = ?1",
        "DELETE FROM events WHERE run = ?1",
        "DELETE FROM jobs WHERE id = ?1",
        "DELETE FROM runs WHERE id = ?1",
    ];
    for statement in statements {
        cache(&kit.store, id);
        assert!(cache(&kit.store, id));
        let work = move |connection: &Connection| {
            connection.execute(statement, [id.to_string()]).map_err(|why| StoreError::sqlite("test", why))
        };
        let written = kit.store.writer.write("test", work).await.unwrap();
        assert!(written > 0, "{statement}");
        assert!(kit.store.cached_job(id).is_err(), "{statement}");
    }
}

#[tokio::test]
async fn a_document_of_rows_read_before_a_write_is_not_cached() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    let before = ticket(&kit.store, id);
    kit.store.append(Some(id), None, vec![NewEvent::info("tick", "x")], at(1)).await.unwrap();
    before.put(document(1));
    assert!(kit.store.cached_job(id).is_err());
    // Of two concurrent readers the one with the later ticket caches its document.
    let (first, second) = (ticket(&kit.store, id), ticket(&kit.store, id));
    second.put(document(3));
    first.put(document(2));
    assert_eq!(kit.store.cached_job(id).unwrap(), document(3));
}

#[tokio::test]
async fn a_write_of_another_connection_is_detected_by_the_next_transaction() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    cache(&kit.store, id);
    let transaction = || async {
        let event = NewEvent::info("test", "x");
        kit.store.append(None, None, vec![event], at(1)).await.unwrap();
    };
    transaction().await;
    assert!(cache(&kit.store, id));
    kit.outside().execute("UPDATE run_inputs SET labels = '{}'", []).unwrap();
    transaction().await;
    assert!(!cache(&kit.store, id));
    transaction().await;
    assert!(cache(&kit.store, id));
}

#[tokio::test]
async fn readers_and_checkpoints_remove_no_job_from_the_cache() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    cache(&kit.store, id);
    // More database pages than one checkpoint of the write-ahead log covers.
    let long = "x".repeat(4096);
    for round in 0..30 {
        let events = (0..100).map(|_| NewEvent::info("tick", long.clone())).collect();
        let (written, read) =
            tokio::join!(kit.store.append(None, None, events, at(round)), kit.store.job_detail(id, 10));
        written.unwrap();
        assert!(read.unwrap().is_some());
        assert!(kit.store.cached_job(id).is_ok(), "round {round}");
    }
}

#[tokio::test]
async fn after_a_rollback_the_job_is_read_and_cached_again() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    let failing = move |connection: &Connection| {
        let written = connection.execute("DELETE FROM jobs WHERE id = ?1", [id.to_string()]);
        written.map_err(|why| StoreError::sqlite("test", why))?;
        Err::<(), _>(StoreError::Closed)
    };
    cache(&kit.store, id);
    assert!(kit.store.writer.write("test", failing).await.is_err());
    assert!(kit.store.job(id).await.unwrap().is_some());
    cache(&kit.store, id);
    assert!(cache(&kit.store, id), "the job is cached again");
}

/// The cached record of a server; `None` when the next read of it reads its rows.
fn cached_server(kit: &Kit, name: &str) -> Option<Arc<Server>> {
    kit.store.writer.cache().server(&serial(name)).ok()
}

#[tokio::test]
async fn a_server_is_read_once_until_one_of_its_rows_is_written() {
    let kit = Kit::new();
    kit.server("A").await;
    kit.server("B").await;
    let statements = [
        "UPDATE servers SET bmc_username = 'other' WHERE serial = 'A'",
        "UPDATE servers SET restored = NULL",
        "INSERT INTO server_observed (serial, observed) VALUES ('A', '{\"model\":\"x\"}')",
        "UPDATE server_observed SET observed = NULL WHERE serial = 'A'",
        "DELETE FROM server_observed WHERE serial = 'A'",
        "UPDATE servers SET serial = 'C' WHERE serial = 'A'",
        "DELETE FROM servers WHERE serial = 'C'",
    ];
    for statement in statements {
        for name in ["A", "B", "C"] {
            let read = kit.store.server(&serial(name)).await.unwrap();
            assert_eq!(cached_server(&kit, name).as_deref(), read.as_ref(), "{name} before {statement}");
        }
        let work = move |connection: &Connection| {
            connection.execute(statement, []).map_err(|why| StoreError::sqlite("test", why))
        };
        assert!(kit.store.writer.write("test", work).await.unwrap() > 0, "{statement}");
        let written = if statement.contains("'C'") && statement.contains("DELETE") { "C" } else { "A" };
        assert!(cached_server(&kit, written).is_none(), "{statement}");
    }
    assert!(kit.store.server(&serial("A")).await.unwrap().is_none());
    assert!(cached_server(&kit, "A").is_none(), "a server that does not exist is not cached");
    assert!(cached_server(&kit, "B").is_some(), "nothing was written to it since it was read");
}

#[tokio::test]
async fn a_server_that_another_connection_changes_is_read_again_after_the_next_transaction() {
    let kit = Kit::new();
    kit.server("A").await;
    let read = async || kit.store.server(&serial("A")).await.unwrap().unwrap().bmc_username;
    let before = read().await;
    kit.outside().execute("UPDATE servers SET bmc_username = 'other'", []).unwrap();
    kit.store.append(None, None, vec![NewEvent::info("test", "x")], at(1)).await.unwrap();
    assert_eq!((before == "other", read().await.as_str()), (false, "other"));
}
