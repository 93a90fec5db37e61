//! Crashed workers, workers that continue after their lease is lost, and two engines on one database.

use std::time::Duration;

use serde_json::{Value, json};

use super::kit::{Act, GRACE, Kit, LEASE};
use model::{NewEvent, Outcome, Phase};
use store::{EventFilter, TakeOver};

#[tokio::test]
async fn a_step_that_runs_again_after_a_crash_receives_its_checkpoint() {
    let kit = Kit::new();
    kit.script("a", [Act::CheckpointThenStall(json!({ "sent": 1 })), Act::Done]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.run_until_stall(&kit.engine).await;
    let intent = kit.snapshot(id).await.steps.remove(0);
    assert_eq!((intent.phase.as_str(), intent.output.clone()), ("intent", json!({ "sent": 1 })));
    let second = kit.engine("two", "default");
    assert_eq!(second.run_until_idle().await.unwrap(), 0, "the lease has not expired");
    kit.clock.advance(LEASE);
    assert_eq!(
        second.run_until_idle().await.unwrap(),
        0,
        "the last request of the former owner may still arrive"
    );
    kit.clock.advance(GRACE);
    assert_eq!(second.run_until_idle().await.unwrap(), 1);
    assert_eq!(kit.calls(), "a a+ b clean");
    assert_eq!(
        *kit.world.found.lock().unwrap(),
        [Value::Null, json!({ "sent": 1 }), Value::Null, Value::Null]
    );
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn the_runs_of_a_dead_controller_are_taken_over_at_once() {
    let kit = Kit::new();
    kit.script("a", [Act::Stall]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_stall(&kit.engine).await;
    let second = kit.engine("two", "default");
    let stop = tokio_util::sync::CancellationToken::new();
    let (worker, stopped) = (second.clone(), stop.clone());
    let working = tokio::spawn(async move { worker.run(TakeOver::Everything, stopped).await });
    while kit.run(id).await.phase != Phase::Ended {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    working.await.unwrap();
    assert_eq!(kit.calls(), "a a+ clean");
    assert_eq!(kit.count(id, "lease.taken-over").await, 1);
    let log = second.store().events(EventFilter { run: Some(id), after: 0, limit: 1000 }).await.unwrap();
    let taken = log.iter().find(|event| event.kind == "lease.taken-over").unwrap();
    assert!(taken.message.ends_with("and continues drill in a"), "{}", taken.message);
    assert_eq!(taken.step.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_zombie_whose_lease_was_taken_writes_nothing_and_may_send_nothing() {
    let kit = Kit::new();
    kit.script("a", [Act::WaitForGo, Act::Done]);
    let id = kit.start("drill", &["a", "b"]).await;
    let second = kit.engine("two", "default");
    let after = tokio::join!(
        async {
            kit.engine.run_until_idle().await.unwrap();
        },
        async {
            kit.world.stalled.notified().await;
            // The first worker is stuck while its lease expires; the second executes the whole run.
            kit.expire_lease();
            second.run_until_idle().await.unwrap();
            let after = (kit.snapshot(id).await, kit.events(id).await);
            assert_eq!(kit.calls(), "a a+ b clean");
            kit.world.go.notify_one();
            after
        }
    )
    .1;
    assert_eq!(*kit.world.lease_allowed.lock().unwrap(), [false], "the guard forbids an outside effect");
    assert_eq!((kit.snapshot(id).await, kit.events(id).await), after, "nothing was written by the zombie");
    assert_eq!(kit.calls(), "");
}

#[tokio::test]
async fn a_lease_is_measured_from_before_the_claim_and_renewed_by_progress() {
    let kit = Kit::new();
    kit.script("a", [Act::WaitForGo]);
    kit.script("b", [Act::WaitForGo]);
    kit.start("drill", &["a", "b"]).await;
    tokio::join!(
        async {
            kit.run_until_idle().await;
        },
        async {
            for _ in 0..2 {
                kit.world.stalled.notified().await;
                // 50 of 60 s have passed: more than the 5 s of a request remain, and the commit of `a` renews the lease.
                kit.clock.advance(Duration::from_secs(50));
                kit.world.go.notify_one();
            }
        }
    );
    assert_eq!(*kit.world.lease_allowed.lock().unwrap(), [true, true]);
}

#[tokio::test]
async fn a_commit_that_finds_a_changed_row_is_decided_again_from_it() {
    let kit = Kit::new();
    kit.script("solid", [Act::WaitForGo]);
    let id = kit.start("drill", &["solid", "b"]).await;
    tokio::join!(
        async {
            kit.run_until_idle().await;
        },
        async {
            kit.world.stalled.notified().await;
            for index in 0..20 {
                kit.signal(id, "gossip", &index.to_string(), json!(index)).await;
            }
            kit.world.go.notify_one();
        }
    );
    assert_eq!(kit.calls(), "solid b clean", "the step itself does not run again");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    assert_eq!(kit.snapshot(id).await.signals.len(), 20);
}

#[tokio::test]
async fn two_engines_share_the_work_and_do_nothing_twice() {
    let kit = Kit::new();
    let second = kit.engine("two", "default");
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(kit.start("drill", &["a", "b"]).await);
    }
    let (one, two) = tokio::join!(kit.engine.run_until_idle(), second.run_until_idle());
    assert_eq!(one.unwrap() + two.unwrap(), 20);
    for id in ids {
        assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    }
    assert_eq!(kit.calls().split(' ').count(), 60);
}

#[tokio::test]
async fn after_a_database_error_the_run_continues_when_its_lease_has_expired() {
    let kit = Kit::new();
    kit.script("a", [Act::WaitForGo]);
    let id = kit.start("drill", &["a"]).await;
    let outside = kit.outside_view();
    outside
        .execute_batch("CREATE TRIGGER refuse BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'no'); END")
        .unwrap();
    assert!(kit.engine.run_until_idle().await.is_err(), "a claim that cannot be written does not count");
    outside.execute_batch("DROP TRIGGER refuse").unwrap();
    tokio::join!(
        async {
            kit.run_until_idle().await;
        },
        async {
            kit.world.stalled.notified().await;
            outside
                .execute_batch(
                    "CREATE TRIGGER refuse BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'no'); END",
                )
                .unwrap();
            kit.world.go.notify_one();
        }
    );
    assert_eq!(kit.run(id).await.phase, Phase::Running);
    outside.execute_batch("DROP TRIGGER refuse").unwrap();
    kit.engine.store().append(Some(id), None, vec![NewEvent::info("healed", "x")], kit.now()).await.unwrap();
    kit.expire_lease();
    kit.run_until_idle().await;
    assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("a a+ clean", Some(Outcome::Succeeded)));
}
