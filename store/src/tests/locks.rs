//! Locks: holders, queues and the next holder.

use super::*;

fn waiting(resources: &[&str], priority: i32, created: Time) -> NewRun {
    let locks = resources.iter().map(|resource| lock(resource, OnConflict::Wait)).collect();
    NewRun { locks, priority, ..new_run(created) }
}

async fn claim_ids(kit: &Kit, now: Time) -> Vec<RunId> {
    kit.claim("w", now).await.into_iter().map(|claimed| claimed.snapshot.run.id).collect()
}

#[tokio::test]
async fn a_freed_lock_goes_to_the_highest_priority_and_then_to_the_oldest() {
    let kit = Kit::new();
    let holder = kit.create_run(waiting(&["r"], 0, at(0))).await;
    let low = kit.create_run(waiting(&["r"], 0, at(1))).await;
    let late = kit.create_run(waiting(&["r"], 7, at(3))).await;
    let early = kit.create_run(waiting(&["r"], 7, at(2))).await;
    assert_eq!(claim_ids(&kit, at(10)).await, [holder]);
    let mut order = Vec::new();
    let mut current = holder;
    for second in 11..14 {
        kit.end(current, Outcome::Succeeded, at(second)).await;
        let next = claim_ids(&kit, at(second)).await;
        assert_eq!(next.len(), 1);
        current = next[0];
        order.push(current);
    }
    assert_eq!(order, [early, late, low]);
    kit.end(low, Outcome::Succeeded, at(20)).await;
    let rows: i64 = kit.outside().query_row("SELECT count(*) FROM locks", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_released_lock_is_taken_by_no_other_run_before_the_next_claim() {
    let kit = Kit::new();
    let holder = kit.create_run(waiting(&["r"], 0, at(0))).await;
    let next = kit.create_run(waiting(&["r"], 0, at(1))).await;
    kit.end(holder, Outcome::Succeeded, at(2)).await;
    kit.create_run(waiting(&["r"], 9, at(3))).await;
    let refused = NewRun { locks: vec![lock("r", OnConflict::Refuse)], ..new_run(at(3)) };
    assert_eq!(kit.create(refused).await, Created::Conflict { holder: next });
    assert_eq!(claim_ids(&kit, at(4)).await, [next]);
}

#[tokio::test]
async fn a_run_waiting_for_a_lock_is_due_at_its_deadline_so_that_it_can_fail() {
    let kit = Kit::new();
    let holder = kit.create_run(NewRun { deadline_at: at(90_000), ..waiting(&["r"], 0, at(0)) }).await;
    let stuck = kit.create_run(NewRun { deadline_at: at(500), ..waiting(&["r"], 0, at(1)) }).await;
    assert_eq!(kit.run(stuck).await.next_run_at, Some(at(500)));
    assert_eq!(claim_ids(&kit, at(499)).await, [holder]);
    assert_eq!(claim_ids(&kit, at(500)).await, [stuck], "overdue: claimed only to fail");
    kit.end(stuck, Outcome::Failed, at(501)).await;
    let rows: i64 =
        kit.outside().query_row("SELECT count(*) FROM locks WHERE held = 0", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0, "a failed run has left the queue");
}

#[tokio::test]
async fn a_run_tree_gets_all_its_locks_or_none_so_two_trees_never_wait_for_each_other() {
    let kit = Kit::new();
    let first = kit.create_run(waiting(&["r2"], 0, at(0))).await;
    let both = kit.create_run(waiting(&["r1", "r2"], 0, at(1))).await;
    // `both` does not hold r1 while it waits for r2, so this run gets r1.
    let other = kit.create_run(waiting(&["r1"], 0, at(2))).await;
    assert_eq!(claim_ids(&kit, at(3)).await, [first, other]);
    kit.end(first, Outcome::Succeeded, at(4)).await;
    assert!(claim_ids(&kit, at(4)).await.is_empty(), "r1 is still taken");
    let late = kit.create_run(waiting(&["r2", "r1"], 0, at(5))).await;
    kit.end(other, Outcome::Succeeded, at(6)).await;
    assert_eq!(claim_ids(&kit, at(6)).await, [both]);
    kit.end(both, Outcome::Succeeded, at(7)).await;
    assert_eq!(claim_ids(&kit, at(7)).await, [late]);
}

#[tokio::test]
async fn locks_are_held_until_the_last_run_of_the_tree_has_ended() {
    let kit = Kit::new();
    let root = kit.create_run(waiting(&["r"], 0, at(0))).await;
    let child = NewRun { parent: Some((root, root)), ..waiting(&["r"], 0, at(1)) };
    let child = kit.create_run(child).await;
    let next = kit.create_run(waiting(&["r"], 0, at(2))).await;
    let mut both = claim_ids(&kit, at(3)).await;
    both.sort();
    let mut expected = [root, child];
    expected.sort();
    assert_eq!(both, expected, "a child uses the locks of its run tree");
    kit.end(root, Outcome::Cancelled, at(4)).await;
    assert!(claim_ids(&kit, at(4)).await.is_empty());
    kit.end(child, Outcome::Succeeded, at(5)).await;
    assert_eq!(claim_ids(&kit, at(5)).await, [next]);
}

#[tokio::test]
async fn a_held_run_keeps_its_queue_position_and_starts_after_resume_only_with_the_lock() {
    let kit = Kit::new();
    let holder = kit.create_run(waiting(&["r"], 0, at(0))).await;
    let held = kit.create_run(waiting(&["r"], 0, at(1))).await;
    claim_ids(&kit, at(2)).await;
    let resume = |old: Run| Run { phase: Phase::Waiting, next_run_at: Some(at(3)), hold: None, ..old };
    let hold = model::Hold {
        class: "operator".into(),
        since: at(2),
        remind_at: at(3),
        verbs: Vec::new(),
        detail: String::new(),
    };
    let old = kit.run(held).await;
    let on_hold = Run { phase: Phase::Held, next_run_at: None, hold: Some(hold), ..old.clone() };
    kit.commit(RunChange::of(on_hold), &old, at(2)).await;
    let old = kit.run(held).await;
    kit.commit(RunChange::of(resume(old.clone())), &old, at(3)).await;
    assert!(claim_ids(&kit, at(3)).await.is_empty(), "resumed, but the lock is not free");
    kit.end(holder, Outcome::Succeeded, at(4)).await;
    assert_eq!(claim_ids(&kit, at(4)).await, [held]);
}

#[tokio::test]
async fn a_queued_run_that_is_cancelled_cleans_up_at_once_and_does_not_block_the_queue() {
    let kit = Kit::new();
    let holder = kit.create_run(waiting(&["r"], 0, at(0))).await;
    let cancelled = kit.create_run(waiting(&["r"], 5, at(1))).await;
    let next = kit.create_run(waiting(&["r"], 0, at(2))).await;
    claim_ids(&kit, at(3)).await;
    let old = kit.run(cancelled).await;
    let finishing = Run {
        phase: Phase::Finishing,
        outcome: Some(Outcome::Cancelled),
        next_run_at: Some(at(3)),
        ..old.clone()
    };
    kit.commit(RunChange::of(finishing), &old, at(3)).await;
    assert_eq!(
        claim_ids(&kit, at(3)).await,
        [cancelled],
        "its finish list needs no lock, because it never started"
    );
    kit.end(holder, Outcome::Succeeded, at(4)).await;
    assert_eq!(claim_ids(&kit, at(4)).await, [next]);
}

/// Regression: a run that was created while its server was the only one of its BMC had no lock on it.
#[tokio::test]
async fn runs_of_a_bmc_that_becomes_a_shared_one_exclude_each_other() {
    let kit = Kit::new();
    kit.server("A").await;
    let on = |name: &str, created| {
        let server = lock(&format!("server/{name}"), OnConflict::Wait);
        NewRun { locks: vec![server], server: Some(serial(name)), ..new_run(created) }
    };
    let first = kit.create_run(on("A", at(0))).await;
    let second = kit.create_run(on("A", at(1))).await;
    assert_eq!(claim_ids(&kit, at(2)).await, [first]);
    // As the servers of an enclosure are registered one after the other.
    let address = server("A").bmc_address;
    kit.neighbour("B", "A").await;
    let both = vec![lock("server/B", OnConflict::Wait), lock(&format!("bmc/{address}"), OnConflict::Wait)];
    let other = kit.create_run(NewRun { locks: both, server: Some(serial("B")), ..new_run(at(3)) }).await;
    assert!(claim_ids(&kit, at(4)).await.is_empty(), "the BMC is in use");
    kit.end(first, Outcome::Succeeded, at(5)).await;
    assert_eq!(claim_ids(&kit, at(6)).await, [second], "the oldest that waits");
    kit.end(second, Outcome::Succeeded, at(7)).await;
    assert_eq!(claim_ids(&kit, at(8)).await, [other]);
    kit.end(other, Outcome::Succeeded, at(9)).await;
    let rows: i64 = kit.outside().query_row("SELECT count(*) FROM locks", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}
