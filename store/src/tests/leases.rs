//! Claims, leases, epochs and revisions: which worker may write, and when.

use super::*;
use crate::TakeOver;
use model::{Position, Stage, StepPhase, StepRecord};

#[tokio::test]
async fn claims_go_by_priority_and_then_by_age() {
    let kit = Kit::new();
    let mut ids = Vec::new();
    for (priority, second) in [(0, 2), (5, 3), (0, 1), (5, 4), (-1, 0)] {
        ids.push(kit.create_run(NewRun { priority, ..new_run(at(second)) }).await);
    }
    let mut order = Vec::new();
    for _ in 0..5 {
        order.extend(
            claim(&kit.store, "w", 1, at(10)).await.into_iter().map(|claimed| claimed.snapshot.run.id),
        );
    }
    assert_eq!(order, [ids[1], ids[3], ids[2], ids[0], ids[4]]);
    assert!(kit.claim("w", at(10)).await.is_empty());
}

#[tokio::test]
async fn nothing_is_claimed_before_it_is_due_or_from_another_queue() {
    let kit = Kit::new();
    let mut run = new_run(at(100));
    run.plan.forward[0].queue = "bulk".to_owned();
    kit.create_run(run).await;
    let bulk = ["bulk".to_owned()];
    assert!(kit.claim("w", at(200)).await.is_empty());
    assert!(kit.store.claim("w", &bulk, 1, at(99), TTL, GRACE).await.unwrap().is_empty());
    assert_eq!(kit.store.next_due(&bulk).await.unwrap(), Some(at(100)));
    assert_eq!(kit.store.next_due(&["default".to_owned()]).await.unwrap(), None);
    assert_eq!(kit.store.claim("w", &bulk, 1, at(100), TTL, GRACE).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_lease_is_taken_over_only_after_its_expiry_and_the_grace() {
    let kit = Kit::new();
    kit.create_run(new_run(at(0))).await;
    let first = kit.claim_one("a", at(1)).await;
    assert_eq!((first.run.epoch, first.run.phase), (1, Phase::Running));
    assert!(
        kit.claim("b", at(1 + 60)).await.is_empty(),
        "expired, but the last request of the old owner may still arrive"
    );
    assert!(kit.claim("b", at(1 + 69)).await.is_empty());
    let mut taken_over = kit.claim("b", at(1 + 70)).await;
    let taken_over = taken_over.remove(0);
    assert_eq!((taken_over.snapshot.run.epoch, taken_over.previous_owner.as_deref()), (2, Some("a")));
    let events = kit.store.last_events(taken_over.snapshot.run.id, 1).await.unwrap();
    assert_eq!(events[0].kind, "lease.taken-over");
    assert_eq!(events[0].message, "b took over from a, and continues test");
}

#[tokio::test]
async fn the_worker_of_the_last_lease_is_known_after_the_lease_was_given_back() {
    let kit = Kit::new();
    let id = kit.create_run(new_run(at(0))).await;
    assert_eq!(kit.run(id).await.last_worker, None);
    for (second, worker) in [(1, "controller-1"), (100, "worker/b/w1-7"), (200, "worker/b/w1-7")] {
        let claimed = kit.claim_one(worker, at(second)).await.run;
        assert_eq!(claimed.last_worker.as_deref(), Some(worker));
        let parked = Run { next_run_at: Some(at(second + 50)), ..waiting_for(&claimed, "go", at(second)) };
        let Committed::Applied(written) = kit.commit(RunChange::of(parked), &claimed, at(second)).await
        else {
            panic!("the run is parked")
        };
        let stored = kit.run(id).await;
        assert_eq!((&stored, stored.last_worker.as_deref()), (&*written, Some(worker)));
    }
    let ended = kit.end(id, Outcome::Succeeded, at(300)).await;
    assert_eq!((ended.lease, ended.last_worker.as_deref()), (None, Some("worker/b/w1-7")));
}

#[tokio::test]
async fn leases_of_a_dead_controller_are_due_at_once_and_those_of_a_live_one_are_not() {
    let kit = Kit::new();
    kit.create_run(new_run(at(0))).await;
    kit.claim_one("a", at(1)).await;
    assert_eq!(kit.store.take_over(TakeOver::ExpiredOnly, at(2)).await.unwrap(), 0);
    assert!(kit.claim("b", at(2)).await.is_empty());
    assert_eq!(kit.store.take_over(TakeOver::Everything, at(2)).await.unwrap(), 1);
    assert_eq!(kit.claim_one("b", at(2)).await.run.epoch, 2);
}

fn record(run: &Run) -> StepRecord {
    StepRecord {
        at: Position { stage: Stage::Forward, index: 0 },
        name: "one".into(),
        key: String::new(),
        attempt: 1,
        epoch: run.epoch,
        phase: StepPhase::Intent,
        output: json!({ "half": true }),
        started_at: at(1),
        ended_at: None,
    }
}

#[tokio::test]
async fn a_worker_with_an_old_epoch_writes_nothing() {
    let kit = Kit::new();
    let id = kit.create_run(new_run(at(0))).await;
    let old = kit.claim_one("a", at(1)).await.run;
    let new = kit.claim_one("b", at(100)).await.run;
    let before = kit.store.snapshot(id).await.unwrap();

    let mut change = RunChange::of(Run { phase: Phase::Finishing, ..old.clone() });
    change.events.push(NewEvent::info("zombie", "x"));
    change.steps.push(record(&old));
    assert_eq!(kit.commit(change, &old, at(101)).await, Committed::Lost);
    assert!(!kit.store.progress(old, record(&new), at(101)).await.unwrap());
    assert_eq!(kit.store.snapshot(id).await.unwrap(), before);
    assert!(!kit.store.last_events(id, 9).await.unwrap().iter().any(|event| event.kind == "zombie"));
}

#[tokio::test]
async fn a_change_from_an_old_revision_is_returned_to_be_computed_again() {
    let kit = Kit::new();
    let id = kit.create_run(new_run(at(0))).await;
    let run = kit.claim_one("a", at(1)).await.run;
    kit.store.deliver(id, signal("report", "1"), Vec::new(), None, at(2)).await.unwrap();
    let Committed::Moved(now) =
        kit.commit(RunChange::of(waiting_for(&run, "report", at(2))), &run, at(2)).await
    else {
        panic!()
    };
    assert_eq!(now.signals.len(), 1);
    assert_eq!((now.run.revision, now.run.phase), (run.revision + 1, Phase::Running));
    assert!(matches!(
        kit.commit(RunChange::of(waiting_for(&now.run, "report", at(2))), &now.run, at(2)).await,
        Committed::Applied(_)
    ));
}

#[tokio::test]
async fn progress_renews_the_lease_and_stores_the_checkpoint_unless_the_lease_was_released() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    let run = kit.claim_one("a", at(1)).await.run;
    let lease = run.lease.clone().map(|lease| model::Lease { expires_at: at(500), ..lease });
    let renewed = Run { lease, next_run_at: Some(at(510)), ..run.clone() };
    assert!(kit.store.progress(renewed.clone(), record(&run), at(50)).await.unwrap());
    let now = kit.store.snapshot(id).await.unwrap().unwrap();
    assert_eq!(now.steps[0].output, json!({ "half": true }));
    assert_eq!((now.run.progress_at, now.run.revision), (at(50), run.revision));
    assert!(kit.claim("b", at(509)).await.is_empty());
    let shown: String =
        kit.outside().query_row("SELECT lease_expires_at FROM jobs", [], |row| row.get(0)).unwrap();
    assert_eq!(shown, at(500).to_string());

    kit.commit(RunChange::of(waiting_for(&now.run, "report", at(51))), &now.run, at(51)).await;
    assert!(!kit.store.progress(renewed, record(&run), at(52)).await.unwrap(), "the lease was released");
    assert!(kit.run(id).await.lease.is_none());
}

#[tokio::test]
async fn after_a_start_leased_runs_are_taken_over_before_waiting_runs_are_checked() {
    let kit = Kit::new();
    for _ in 0..3 {
        kit.create_run(new_run(at(0))).await;
        let run = kit.claim_one("a", at(1)).await.run;
        let waits = Run { step: Some("one".into()), ..waiting_for(&run, "report", at(2)) };
        kit.commit(RunChange::of(waits), &run, at(2)).await;
    }
    let leased = kit.create_run(new_run(at(0))).await;
    kit.claim_one("a", at(3)).await;

    assert_eq!(kit.store.take_over(TakeOver::Everything, at(5)).await.unwrap(), 4);
    let first = claim(&kit.store, "b", 1, at(6)).await.remove(0).snapshot.run.id;
    assert_eq!(first, leased);
    assert_eq!(claim(&kit.store, "b", 9, at(6)).await.len(), 3);
}

#[tokio::test]
async fn two_controllers_on_one_file_never_claim_the_same_run() {
    let kit = Kit::new();
    let other = kit.second_store();
    for _ in 0..60 {
        kit.create_run(new_run(at(0))).await;
    }
    let claims = |store: Store, owner: &'static str| {
        tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let claimed = claim(&store, owner, 3, at(1)).await;
                if claimed.is_empty() {
                    return mine;
                }
                mine.extend(claimed.into_iter().map(|claimed| claimed.snapshot.run.id));
            }
        })
    };
    let (a, b) = (claims(kit.store.clone(), "a"), claims(other, "b"));
    let mut all = a.await.unwrap();
    all.extend(b.await.unwrap());
    all.sort();
    let before = all.len();
    all.dedup();
    assert_eq!((before, all.len()), (60, 60));
}
