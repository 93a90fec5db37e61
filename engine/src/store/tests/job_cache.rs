//! A kept page is what the rows would give.

use bytes::Bytes;

use super::*;
use crate::model::{Position, Stage, StepPhase, StepRecord};
use crate::store::{Blank, Page};

fn page(revision: i64) -> Page {
    Page { revision, body: Bytes::from_static(b"{}") }
}

/// Keeps a page of the job as it is; says so when there was one before.
fn keep(store: &Store, id: RunId) -> bool {
    match store.page(id) {
        Ok(_) => true,
        Err(blank) => {
            blank.keep(page(1));
            false
        }
    }
}

fn blank(store: &Store, id: RunId) -> Blank {
    store.page(id).unwrap_err()
}

#[tokio::test]
async fn whatever_is_written_to_a_job_takes_its_page_away_and_no_other() {
    let kit = Kit::new();
    kit.server("A").await;
    kit.server("B").await;
    let id = kit.made(new_job("A", at(0), None, "x")).await;
    let other = kit.made(new_job("B", at(0), None, "y")).await;
    assert!(!keep(&kit.store, id) && !keep(&kit.store, other));
    assert!(keep(&kit.store, id) && keep(&kit.store, other));

    // An event of the job, and one that belongs to no job.
    kit.store.append(Some(id), None, vec![NewEvent::info("tick", "x")], at(1)).await.unwrap();
    assert!(!keep(&kit.store, id));
    kit.store.append(None, Some(serial("A")), vec![NewEvent::info("tick", "x")], at(1)).await.unwrap();
    assert!(keep(&kit.store, id));

    // A signal.
    let signal = Signal {
        name: "report".to_owned(),
        key: "1".to_owned(),
        payload: json!({}),
        received_at: at(2),
        consumed: false,
    };
    kit.store.deliver(id, signal, Vec::new(), None, at(2)).await.unwrap();
    assert!(!keep(&kit.store, id));

    // A lease, the progress of a step, a change.
    let claimed = claim(&kit.store, "w", 1, at(3)).await.remove(0).snapshot.run;
    assert_eq!(claimed.id, id);
    assert!(!keep(&kit.store, id));
    let record = StepRecord {
        at: Position { stage: Stage::Forward, index: 0 },
        name: "one".to_owned(),
        key: "one".to_owned(),
        attempt: 1,
        epoch: claimed.epoch,
        phase: StepPhase::Intent,
        evidence: json!({ "half": true }),
        started_at: at(3),
        ended_at: None,
    };
    assert!(kit.store.progress(claimed.clone(), record, at(3)).await.unwrap());
    assert!(!keep(&kit.store, id));
    kit.end(id, Outcome::Succeeded, at(4)).await;
    assert!(!keep(&kit.store, id));

    assert!(keep(&kit.store, other), "nothing was written to it");
}

#[tokio::test]
async fn every_table_a_page_is_made_of_is_watched_for_new_changed_and_deleted_rows() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.made(new_job("A", at(0), None, "x")).await;
    let statements = [
        "UPDATE runs SET progress_at = progress_at WHERE id = ?1",
        "UPDATE jobs SET labels = '{}' WHERE id = ?1",
        "INSERT INTO run_steps (run, stage, idx, step, key, attempt, epoch, phase, evidence, started_at)
         VALUES (?1, 'forward', 0, 'one', 'one', 1, 1, 'intent', 'null', '2026-01-01T00:00:00Z')",
        "UPDATE run_steps SET evidence = '{}' WHERE run = ?1",
        "DELETE FROM run_steps WHERE run = ?1",
        "INSERT INTO events (time, run, type, level, actor, message)
         VALUES ('2026-01-01T00:00:00Z', ?1, 'tick', 'info', 'x', 'x')",
        "UPDATE events SET message = 'y' WHERE run = ?1",
        "DELETE FROM events WHERE run = ?1",
        "DELETE FROM jobs WHERE id = ?1",
        "DELETE FROM runs WHERE id = ?1",
    ];
    for statement in statements {
        keep(&kit.store, id);
        assert!(keep(&kit.store, id));
        let work = move |connection: &Connection| {
            connection.execute(statement, [id.to_string()]).map_err(|why| StoreError::sqlite("test", why))
        };
        let written = kit.store.writer.write("test", work).await.unwrap();
        assert!(written > 0, "{statement}");
        assert!(kit.store.page(id).is_err(), "{statement}");
    }
}

#[tokio::test]
async fn a_page_of_rows_read_before_a_write_is_not_kept() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.made(new_job("A", at(0), None, "x")).await;
    let before = blank(&kit.store, id);
    kit.store.append(Some(id), None, vec![NewEvent::info("tick", "x")], at(1)).await.unwrap();
    before.keep(page(1));
    assert!(kit.store.page(id).is_err());
    // Of two who read at once the later one keeps its page.
    let (first, second) = (blank(&kit.store, id), blank(&kit.store, id));
    second.keep(page(3));
    first.keep(page(2));
    assert_eq!(kit.store.page(id).unwrap(), page(3));
}

#[tokio::test]
async fn what_another_connection_writes_is_noticed_with_the_next_transaction() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.made(new_job("A", at(0), None, "x")).await;
    keep(&kit.store, id);
    kit.store.check().await.unwrap();
    assert!(keep(&kit.store, id));
    kit.outside().execute("UPDATE jobs SET labels = '{}'", []).unwrap();
    kit.store.check().await.unwrap();
    assert!(!keep(&kit.store, id));
    kit.store.check().await.unwrap();
    assert!(keep(&kit.store, id));
}

#[tokio::test]
async fn readers_and_checkpoints_take_no_page_away() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.made(new_job("A", at(0), None, "x")).await;
    keep(&kit.store, id);
    // More pages of the file than are written back at a time.
    let long = "x".repeat(4096);
    for round in 0..30 {
        let events = (0..100).map(|_| NewEvent::info("tick", long.clone())).collect();
        let (written, read) =
            tokio::join!(kit.store.append(None, None, events, at(round)), kit.store.job_detail(id, 10));
        written.unwrap();
        assert!(read.unwrap().is_some());
        assert!(kit.store.page(id).is_ok(), "round {round}");
    }
}

#[tokio::test]
async fn a_transaction_that_is_taken_back_leaves_what_can_be_read() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.made(new_job("A", at(0), None, "x")).await;
    let failing = move |connection: &Connection| {
        let written = connection.execute("DELETE FROM jobs WHERE id = ?1", [id.to_string()]);
        written.map_err(|why| StoreError::sqlite("test", why))?;
        Err::<(), _>(StoreError::Closed)
    };
    keep(&kit.store, id);
    assert!(kit.store.writer.write("test", failing).await.is_err());
    assert!(kit.store.job(id).await.unwrap().is_some());
    keep(&kit.store, id);
    assert!(keep(&kit.store, id), "pages are kept again");
}
