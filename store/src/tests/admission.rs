//! The order of claims: started runs first, batches alternate, and the cost does not grow with the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::Lanes;
use crate::claim::Claimer;
use model::{Batch, BatchId, Fairness};

async fn batch(kit: &Kit) -> BatchId {
    let id = BatchId::new();
    let batch = Batch {
        id,
        idempotency_key: None,
        request_sha256: String::new(),
        total: 9,
        max_parallel: None,
        canary: 0,
        stop_after: None,
        retry_of: None,
        stop: None,
        filled_at: None,
        created_by: "tester".to_owned(),
        created_at: at(0),
    };
    kit.store.create_batch(batch).await.unwrap();
    id
}

/// A job of a batch on a new server.
async fn job(kit: &Kit, name: &str, batch: Option<BatchId>, priority: i32, second: u64) -> RunId {
    kit.server(name).await;
    let mut run = NewRun { priority, ..new_job(name, at(second), None, name) };
    run.request.batch = batch;
    kit.create_run(run).await
}

async fn claim_next(kit: &Kit, second: u64) -> Option<RunId> {
    claim(&kit.store, "w", 1, at(second)).await.pop().map(|claimed| claimed.snapshot.run.id)
}

#[tokio::test]
async fn batches_alternate_with_each_other_and_with_single_jobs() {
    let kit = Kit::new();
    let (first, second) = (batch(&kit).await, batch(&kit).await);
    let mut queues = [Vec::new(), Vec::new(), Vec::new()];
    for row in 0..4 {
        queues[0].push(job(&kit, &format!("A-{row}"), Some(first), 0, 1).await);
    }
    for row in 0..2 {
        queues[1].push(job(&kit, &format!("B-{row}"), Some(second), 0, 2).await);
        queues[2].push(job(&kit, &format!("C-{row}"), None, 0, 3).await);
    }
    let mut order = String::new();
    for second in 10..18 {
        let id = claim_next(&kit, second).await.unwrap();
        let queue = queues.iter().position(|queue| queue.contains(&id)).unwrap();
        order.push(['a', 'b', 'c'][queue]);
    }
    assert_eq!(order, "abcabcaa");
    assert_eq!(claim_next(&kit, 20).await, None);
}

#[tokio::test]
async fn a_started_run_is_claimed_before_an_unstarted_one_of_higher_priority() {
    let kit = Kit::new();
    let started = kit.create_run(new_run(at(0))).await;
    let old = kit.claim_one("w", at(1)).await.run;
    kit.commit(RunChange::of(waiting_for(&old, "word", at(1))), &old, at(1)).await;
    let eager = kit.create_run(NewRun { priority: 100, ..new_run(at(2)) }).await;
    kit.store.deliver(started, signal("word", "1"), Vec::new(), None, at(3)).await.unwrap();
    assert_eq!(claim_next(&kit, 4).await, Some(started));
    assert_eq!(claim_next(&kit, 4).await, Some(eager));
}

#[tokio::test]
async fn the_queue_of_a_lock_alternates_between_batches() {
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
        run.request.batch = Some(batch);
        names.insert(kit.create_run(run).await, row);
    }
    let mut order = Vec::new();
    for second in 10..15 {
        let next = claim(&kit.store, "w", 10, at(second)).await;
        assert_eq!(next.len(), 1, "the lock has capacity 1");
        order.push(names[&next[0].snapshot.run.id]);
        kit.end(next[0].snapshot.run.id, Outcome::Succeeded, at(second)).await;
    }
    // The second batch was created after the first one had been served.
    assert_eq!(order, [0, 1, 3, 2, 4]);
}

/// Creates jobs of (batch, priority, second of the creation), and ends each as soon as the next one was started. Returns the
/// order in which they were started. If they want one resource, it decides the order; otherwise the worker queue does.
async fn order_of(jobs: &[(usize, i32, u64)], resource: bool) -> Vec<usize> {
    let kit = Kit::new();
    let mut batches = Vec::new();
    for _ in 0..4 {
        batches.push(batch(&kit).await);
    }
    let create = async |name: &str, batch: Option<BatchId>, priority: i32, second: u64| {
        kit.server(name).await;
        let mut run = NewRun { priority, ..new_job(name, at(second), None, name) };
        run.locks.extend(resource.then(|| lock("site/north", OnConflict::Wait)));
        run.request.batch = batch;
        kit.create_run(run).await
    };
    // The first job starts before the others exist, in both queues.
    let first = create("first", None, 0, 0).await;
    assert_eq!(claim_next(&kit, 0).await, Some(first));
    let mut names = std::collections::HashMap::new();
    for (number, (batch, priority, second)) in jobs.iter().enumerate() {
        let id = create(&format!("S-{number}"), Some(batches[*batch]), *priority, *second).await;
        names.insert(id, number);
    }
    let (mut order, mut running) = (Vec::new(), first);
    for second in 1000.. {
        kit.end(running, Outcome::Succeeded, at(second)).await;
        let Some(next) = claim_next(&kit, second).await else { break };
        order.push(names[&next]);
        running = next;
    }
    let remembered: i64 =
        kit.outside().query_row("SELECT count(*) FROM lock_served", [], |row| row.get(0)).unwrap();
    assert_eq!(
        (order.len(), remembered),
        (jobs.len(), 0),
        "every job was started, and no time of service is left"
    );
    order
}

/// A regression: the queue of a lock knew only the batch whose lock had just been released. With three batches, the two
/// older ones alternated and the third waited until they were empty.
#[tokio::test]
async fn three_batches_that_wait_for_one_lock_are_served_alternately() {
    let jobs: Vec<(usize, i32, u64)> =
        (0..9).map(|number| (number / 3, 0, 1 + u64::try_from(number).unwrap())).collect();
    assert_eq!(order_of(&jobs, true).await, [0, 3, 6, 1, 4, 7, 2, 5, 8]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: 24, failure_persistence: None, max_shrink_iters: 60, ..Default::default()
    })]

    #[test]
    fn a_lock_and_a_worker_are_given_in_the_same_order(
        jobs in proptest::collection::vec((0_usize..4, 0_i32..4, 0_u64..15), 1..12),
    ) {
        // No two ranks are equal: a point of priority is a whole minute, and each job has another second of the minute.
        let jobs: Vec<_> =
            (1..).zip(jobs).map(|(number, (batch, priority, minute))| (batch, priority, minute * 60 + number)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (by_worker, by_lock) = runtime.block_on(async { (order_of(&jobs, false).await, order_of(&jobs, true).await) });
        proptest::prop_assert_eq!(by_worker, by_lock);
    }
}

/// The cost of a claim, in hundreds of steps of SQLite's virtual machine.
fn cost(kit: &Kit, second: u64) -> u64 {
    let steps = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&steps);
    let mut connection = kit.outside();
    let counted = move || {
        count.fetch_add(1, Ordering::Relaxed);
        false
    };
    connection.progress_handler(100, Some(counted)).unwrap();
    let claimer =
        Claimer { owner: "w".to_owned(), now: at(second), ttl: TTL, grace: GRACE, decides_for_others: false };
    let queues = ["default".to_owned()];
    let claimed = claimer.claim(&connection, &queues, Lanes::All, 1, &mut Fairness::default()).unwrap();
    assert_eq!(claimed.len(), 1);
    steps.load(Ordering::Relaxed)
}

/// Adds queued runs: in batches, of several priorities, some behind a gate.
fn enqueue(kit: &Kit, rows: u32) {
    let plan = serde_json::to_string(&new_run(at(0)).plan).unwrap();
    let outside = kit.outside();
    let make = format!(
        "INSERT INTO runs (id, workflow, workflow_version, root, phase, queue, priority, next_run_at, deadline_at, progress_at,
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
async fn a_claim_costs_the_same_with_a_hundred_and_with_a_hundred_thousand_queued_runs() {
    let kit = Kit::new();
    enqueue(&kit, 100);
    cost(&kit, 1);
    let few = cost(&kit, 2);
    enqueue(&kit, 100_000);
    let many = cost(&kit, 3);
    assert!(many <= few * 2 + 2, "{few} and {many} hundred steps");
    // A drained controller claims no queued run.
    let closed = model::GateClosure { since: at(4), by: "ann".to_owned(), reason: String::new() };
    kit.store.drain(closed).await.unwrap();
    assert_eq!(claim_next(&kit, 5).await, None);
}
