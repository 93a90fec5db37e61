//! Who is claimed next: what has begun before what has not, batches in turn, and at a cost that does not grow with the line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::model::{Batch, BatchId, Fairness};
use crate::store::Lanes;
use crate::store::claim::Claimer;

async fn batch(kit: &Kit) -> BatchId {
    let id = BatchId::new();
    let batch = Batch {
        id,
        idempotency_key: None,
        request_sha256: String::new(),
        total: 9,
        max_parallel: None,
        created_by: "tester".to_owned(),
        created_at: at(0),
    };
    kit.store.create_batch(batch).await.unwrap();
    id
}

/// A job of a batch on a server of its own.
async fn job(kit: &Kit, name: &str, batch: Option<BatchId>, priority: i32, second: u64) -> RunId {
    kit.server(name).await;
    let mut run = NewRun { priority, ..new_job(name, at(second), None, name) };
    if let Some(Effect::JobCreated(job)) = run.effects.first_mut() {
        job.batch = batch;
    }
    kit.made(run).await
}

async fn one(kit: &Kit, second: u64) -> Option<RunId> {
    claim(&kit.store, "w", 1, at(second)).await.pop().map(|claimed| claimed.snapshot.run.id)
}

#[tokio::test]
async fn batches_take_turns_with_each_other_and_with_jobs_ordered_alone() {
    let kit = Kit::new();
    let (first, second) = (batch(&kit).await, batch(&kit).await);
    let mut lines = [Vec::new(), Vec::new(), Vec::new()];
    for row in 0..4 {
        lines[0].push(job(&kit, &format!("A-{row}"), Some(first), 0, 1).await);
    }
    for row in 0..2 {
        lines[1].push(job(&kit, &format!("B-{row}"), Some(second), 0, 2).await);
        lines[2].push(job(&kit, &format!("C-{row}"), None, 0, 3).await);
    }
    let mut order = String::new();
    for second in 10..18 {
        let id = one(&kit, second).await.unwrap();
        let line = lines.iter().position(|line| line.contains(&id)).unwrap();
        order.push(['a', 'b', 'c'][line]);
    }
    assert_eq!(order, "abcabcaa");
    assert_eq!(one(&kit, 20).await, None);
}

#[tokio::test]
async fn what_has_begun_goes_before_a_higher_priority_that_has_not() {
    let kit = Kit::new();
    let begun = kit.made(new_run(at(0))).await;
    let old = kit.claim_one("w", at(1)).await.run;
    kit.commit(Change::of(parked(&old, "word", at(1))), &old, at(1)).await;
    let eager = kit.made(NewRun { priority: 100, ..new_run(at(2)) }).await;
    kit.store.deliver(begun, signal("word", "1"), Vec::new(), None, at(3)).await.unwrap();
    assert_eq!(one(&kit, 4).await, Some(begun));
    assert_eq!(one(&kit, 4).await, Some(eager));
}

#[tokio::test]
async fn a_line_with_places_serves_batches_in_turn() {
    let kit = Kit::new();
    let (first, second) = (batch(&kit).await, batch(&kit).await);
    let mut names = std::collections::HashMap::new();
    for (row, (batch, second)) in
        [(first, 1), (first, 1), (first, 1), (second, 2), (second, 2)].into_iter().enumerate()
    {
        let name = format!("S-{row}");
        kit.server(&name).await;
        let mut run = new_job(&name, at(second), None, &name);
        run.locks.push(lock("site/north", OnConflict::Wait));
        if let Some(Effect::JobCreated(job)) = run.effects.first_mut() {
            job.batch = Some(batch);
        }
        names.insert(kit.made(run).await, row);
    }
    let mut order = Vec::new();
    for second in 10..15 {
        let next = claim(&kit.store, "w", 10, at(second)).await;
        assert_eq!(next.len(), 1, "one place");
        order.push(names[&next[0].snapshot.run.id]);
        kit.end(next[0].snapshot.run.id, Outcome::Succeeded, at(second)).await;
    }
    // The first batch was served before there was a second.
    assert_eq!(order, [0, 1, 3, 2, 4]);
}

/// Steps of SQLite's machine that a claim takes, in hundreds.
fn cost(kit: &Kit, second: u64) -> u64 {
    let steps = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&steps);
    let mut connection = kit.outside();
    let counted = move || {
        count.fetch_add(1, Ordering::Relaxed);
        false
    };
    connection.progress_handler(100, Some(counted)).unwrap();
    let claimer = Claimer { owner: "w".to_owned(), now: at(second), ttl: TTL, grace: GRACE };
    let queues = ["default".to_owned()];
    let claimed = claimer.claim(&connection, &queues, Lanes::All, 1, &mut Fairness::default()).unwrap();
    assert_eq!(claimed.len(), 1);
    steps.load(Ordering::Relaxed)
}

/// So many more rows in line: in batches, of several priorities, some asleep before a gate.
fn line(kit: &Kit, rows: u32) {
    let plan = serde_json::to_string(&new_run(at(0)).plan).unwrap();
    let outside = kit.outside();
    let make = format!(
        "INSERT INTO runs (id, kind, kind_version, root, phase, queue, priority, next_run_at, deadline_at, progress_at,
                           created_by, created_at, updated_at, batch, rank)
         SELECT id, 'test', 1, id, 'queued', 'default', n % 7, CASE n % 5 WHEN 0 THEN ?2 ELSE ?1 END, ?2, ?1, 'x', ?1, ?1,
                'b' || (n % 11), n
         FROM (WITH RECURSIVE rows (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM rows WHERE n < {rows})
               SELECT n, lower(printf('%08x-0000-4000-8000-%012x', n, {rows})) AS id FROM rows)"
    );
    let (now, deadline) = (at(0).to_string(), at(900_000).to_string());
    outside.execute(&make, [&now, &deadline]).unwrap();
    let inputs = "INSERT INTO run_inputs (run, input, plan) SELECT id, '{}', ?1 FROM runs
                  WHERE id NOT IN (SELECT run FROM run_inputs)";
    outside.execute(inputs, [&plan]).unwrap();
}

#[tokio::test]
async fn a_claim_costs_the_same_with_a_hundred_and_with_a_hundred_thousand_in_line() {
    let kit = Kit::new();
    line(&kit, 100);
    cost(&kit, 1);
    let few = cost(&kit, 2);
    line(&kit, 100_000);
    let many = cost(&kit, 3);
    assert!(many <= few * 2 + 2, "{few} and {many} hundred steps");
    // Drained, it costs less still: nobody in line is looked at.
    let closed = crate::model::Closed { since: at(4), by: "ann".to_owned(), reason: String::new() };
    kit.store.drain(closed).await.unwrap();
    assert_eq!(one(&kit, 5).await, None);
}
