//! Waits, and the signals that end them.

use std::time::Duration;

use serde_json::json;

use super::kit::{Act, Kit};
use crate::SignalDelivery;
use model::{Outcome, Phase, RunId};

#[tokio::test]
async fn a_parked_run_has_no_lease_and_its_step_ends_in_the_transaction_of_the_signal() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.run_until_idle().await;
    let run = kit.run(id).await;
    let wait = run.wait.unwrap();
    assert_eq!((run.phase, run.lease, kit.engine.active_runs()), (Phase::Waiting, None, 0));
    assert_eq!((wait.reason.as_str(), wait.since), ("drill", kit.now()));
    assert_eq!(run.next_run_at, Some(wait.deadline));
    let SignalDelivery::Stored(run) = kit.report(id).await else { panic!() };
    // Before any worker claims the run: the step is done, and the run is due at the next step.
    assert_eq!((run.step.as_deref(), run.next_run_at, run.wait), (Some("b"), Some(kit.now()), None));
    let snapshot = kit.snapshot(id).await;
    assert_eq!(snapshot.steps[0].phase.as_str(), "done");
    assert_eq!(snapshot.steps[0].output, json!({ "status": "success" }));
    assert!(snapshot.signals[0].consumed);
    kit.run_until_idle().await;
    assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("a b clean", Some(Outcome::Succeeded)));
}

#[tokio::test]
async fn a_failure_report_fails_the_run_and_names_the_reported_unit() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    kit.signal(id, "report", "1", json!({ "status": "failed" })).await;
    let run = kit.run(id).await;
    assert_eq!((run.phase, run.outcome), (Phase::Finishing, Some(Outcome::Failed)));
    assert_eq!(run.failure.unwrap().step, "unit");
    kit.run_until_idle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Failed));
}

#[tokio::test]
async fn an_early_signal_is_not_lost() {
    let kit = Kit::new();
    kit.script("b", [Act::Await("report")]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.report(id).await;
    kit.run_until_idle().await;
    assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("a b clean", Some(Outcome::Succeeded)));
}

#[tokio::test]
async fn a_signal_that_arrives_while_the_step_decides_to_wait_is_found_at_the_commit() {
    let kit = Kit::new();
    for name in ["word", "gossip"] {
        // The step has read no signal and is about to ask for a wait; meanwhile the signal arrives.
        kit.script("a", [Act::WaitForGoThenAwait("word"), Act::Await("word")]);
        let id = kit.start("drill", &["a"]).await;
        let meanwhile = async {
            kit.world.stalled.notified().await;
            kit.signal(id, name, "1", json!({ "status": "success" })).await;
            kit.world.go.notify_one();
        };
        tokio::join!(kit.run_until_idle(), meanwhile);
        if name == "word" {
            assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("a a+ clean", Some(Outcome::Succeeded)));
        } else {
            assert_eq!((kit.calls().as_str(), kit.run(id).await.phase), ("a", Phase::Waiting));
        }
    }
}

#[tokio::test]
async fn a_signal_without_a_waiting_step_is_stored_and_does_not_wake_the_run() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    let due = kit.run(id).await.next_run_at;
    kit.signal(id, "gossip", "1", json!(1)).await;
    assert_eq!(kit.run_until_idle().await, 0);
    assert_eq!(kit.run(id).await.next_run_at, due);
    // The signal does not extend the wait.
    kit.clock.advance(Duration::from_secs(301));
    kit.run_until_idle().await;
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "deadline".to_owned()));
}

#[tokio::test]
async fn a_repeated_signal_has_one_effect_also_after_the_end() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    kit.report(id).await;
    assert!(matches!(kit.report(id).await, SignalDelivery::Duplicate(_)));
    kit.run_until_idle().await;
    let SignalDelivery::Duplicate(first) = kit.signal(id, "report", "1", json!({ "status": "failed" })).await
    else {
        panic!()
    };
    assert_eq!(first.payload, json!({ "status": "success" }));
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    let mut unknown = kit.snapshot(id).await;
    unknown.run.id = RunId::new();
    let delivery =
        kit.engine.deliver(unknown, "report", "1", json!(1), Vec::new(), Vec::new()).await.unwrap();
    assert_eq!(delivery, SignalDelivery::NoRun);
}

#[tokio::test]
async fn concurrent_signals_end_a_wait_once() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.run_until_idle().await;
    let read = kit.snapshot(id).await;
    let tasks: Vec<_> = (0..16)
        .map(|index| {
            let (engine, read) = (kit.engine.clone(), read.clone());
            let key = (index % 4).to_string();
            tokio::spawn(async move {
                engine.deliver(read, "report", &key, json!({}), Vec::new(), Vec::new()).await.unwrap()
            })
        })
        .collect();
    let mut stored = 0;
    for task in tasks {
        stored += usize::from(matches!(task.await.unwrap(), SignalDelivery::Stored(_)));
    }
    assert_eq!(stored, 4, "one per key");
    kit.run_until_idle().await;
    assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("a b clean", Some(Outcome::Succeeded)));
}

#[tokio::test]
async fn a_poll_calls_the_step_again_and_keeps_since_and_deadline() {
    let kit = Kit::new();
    kit.script("a", [Act::Poll, Act::Poll]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    let since = kit.now();
    kit.pass(5).await;
    let wait = kit.run(id).await.wait.unwrap();
    assert_eq!((wait.since, wait.deadline), (since, since.plus(Duration::from_secs(20))));
    kit.pass(5).await;
    assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("a a+ a+ clean", Some(Outcome::Succeeded)));
}

#[tokio::test]
async fn a_deadline_passed_on_from_another_wait_does_not_move_by_the_time_that_the_step_took() {
    let kit = Kit::new();
    let deadline = kit.now().plus(Duration::from_secs(300));
    kit.script("a", [Act::WaitForGoThenAwaitUntil(deadline)]);
    let id = kit.start("drill", &["a"]).await;
    let meanwhile = async {
        kit.world.stalled.notified().await;
        kit.clock.advance(Duration::from_millis(1));
        kit.world.go.notify_one();
    };
    tokio::join!(kit.run_until_idle(), meanwhile);
    assert_eq!(kit.run(id).await.wait.unwrap().deadline, deadline);
}

#[tokio::test]
async fn a_wait_past_its_deadline_fails_after_one_last_call() {
    let kit = Kit::new();
    kit.script("a", vec![Act::Poll; 99]);
    let id = kit.start("drill", &["a"]).await;
    kit.pass(30).await;
    assert_eq!(kit.calls(), "a a+ a+ a+ a+ clean");
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "deadline".to_owned()));

    // After an outage the last call may find what happened meanwhile.
    kit.script("a", [Act::Poll]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    kit.clock.advance(Duration::from_secs(1000));
    kit.run_until_idle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}
