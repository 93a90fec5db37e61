//! Orders of workers elsewhere.

use super::*;
use crate::{ElsewhereOrder, Lanes};

/// The runs that a worker receives at `now` for an order that arrived at `asked`; `None` when the order must end.
async fn order(kit: &Kit, worker: &str, asked: Time, now: Time) -> Option<Vec<RunId>> {
    let order = ElsewhereOrder {
        lanes: Lanes::All,
        owner: format!("worker/{worker}"),
        queues: vec!["default".to_owned()],
        limit: 8,
        asked,
        now,
        ttl: TTL,
        grace: GRACE,
    };
    let claimed = kit.store.claim_elsewhere(order).await.unwrap()?;
    Some(claimed.into_iter().map(|claimed| claimed.snapshot.run.id).collect())
}

/// When the lease of a claim at second 1 has ended, and when its run is due again.
const ENDED: u64 = 1 + 60;
const DUE: u64 = ENDED + 10;

#[tokio::test]
async fn an_order_that_was_open_when_a_lease_of_its_worker_ended_grants_nothing() {
    let kit = Kit::new();
    let lost = kit.create_run(new_run(at(0))).await;
    assert_eq!(order(&kit, "stopped", at(0), at(1)).await, Some(vec![lost]));
    let other = kit.create_run(new_run(at(2))).await;
    // The worker has stopped after it had ordered again.
    assert_eq!(order(&kit, "stopped", at(2), at(ENDED)).await, None, "not even another run");
    assert_eq!(order(&kit, "stopped", at(2), at(DUE)).await, None, "nor the run that it lost");
    assert_eq!(order(&kit, "second", at(2), at(DUE)).await, Some(vec![lost, other]));
}

#[tokio::test]
async fn a_worker_that_orders_again_after_its_lease_receives_its_run_again() {
    let kit = Kit::new();
    let lost = kit.create_run(new_run(at(0))).await;
    assert_eq!(order(&kit, "w", at(0), at(1)).await, Some(vec![lost]));
    assert_eq!(order(&kit, "w", at(2), at(DUE)).await, None);
    assert_eq!(order(&kit, "w", at(DUE), at(DUE)).await, Some(vec![lost]));
    assert_eq!(kit.run(lost).await.epoch, 2);
}

#[tokio::test]
async fn a_lease_that_ended_before_the_order_does_not_end_it() {
    let kit = Kit::new();
    let lost = kit.create_run(new_run(at(0))).await;
    assert_eq!(order(&kit, "w", at(0), at(1)).await, Some(vec![lost]));
    // The lease has ended, and the run is not due yet.
    assert_eq!(order(&kit, "w", at(ENDED), at(ENDED)).await, Some(Vec::new()));
    assert_eq!(order(&kit, "w", at(ENDED), at(DUE)).await, Some(vec![lost]));
}

/// A regression guard: the queues of due runs are read at every scrape of the metrics, and most runs have ended.
#[test]
fn the_queues_of_due_runs_are_read_by_their_index() {
    let kit = Kit::new();
    let outside = kit.outside();
    let sql = crate::elsewhere::due_queues_sql();
    let mut explained = outside.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let rows = explained.query_map([rusqlite::types::Null], |row| row.get::<_, String>("detail"));
    let plan: Vec<String> = rows.unwrap().map(Result::unwrap).collect();
    assert_eq!(plan.len(), 1, "nothing is sorted: {plan:#?}");
    assert!(plan[0].contains("INDEX idx_runs_due_queues"), "{plan:#?}");
}
