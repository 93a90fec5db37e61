//! Waits and the messages that end them.

use std::time::Duration;

use serde_json::json;

use super::kit::{Act, Kit};
use crate::Delivery;
use crate::model::{Outcome, Phase, RunId};

#[tokio::test]
async fn a_parked_run_costs_nothing_and_is_settled_in_the_transaction_that_tells_it() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.settle().await;
    let run = kit.run(id).await;
    let wait = run.wait.unwrap();
    assert_eq!((run.phase, run.lease, kit.engine.working()), (Phase::Waiting, None, 0));
    assert_eq!((wait.reason.as_str(), wait.since), ("drill", kit.now()));
    assert_eq!(run.next_run_at, Some(wait.deadline));
    let Delivery::Stored(run) = kit.report(id).await else { panic!() };
    // Before any worker looked: the step is done, the run is due at the next one.
    assert_eq!((run.step.as_deref(), run.next_run_at, run.wait), (Some("b"), Some(kit.now()), None));
    let snapshot = kit.snapshot(id).await;
    assert_eq!(snapshot.steps[0].phase.as_str(), "done");
    assert_eq!(snapshot.steps[0].evidence, json!({ "status": "success" }));
    assert!(snapshot.signals[0].consumed);
    kit.settle().await;
    assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("a b clean", Some(Outcome::Succeeded)));
}

#[tokio::test]
async fn a_report_of_failure_fails_the_run_naming_what_the_other_side_named() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a"]).await;
    kit.settle().await;
    kit.tell(id, "report", "1", json!({ "status": "failed" })).await;
    let run = kit.run(id).await;
    assert_eq!((run.phase, run.outcome), (Phase::Finishing, Some(Outcome::Failed)));
    assert_eq!(run.failure.unwrap().step, "unit");
    kit.settle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Failed));
}

#[tokio::test]
async fn an_early_signal_is_not_lost() {
    let kit = Kit::new();
    kit.script("b", [Act::Await("report")]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.report(id).await;
    kit.settle().await;
    assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("a b clean", Some(Outcome::Succeeded)));
}

#[tokio::test]
async fn a_signal_that_comes_while_the_step_decides_to_wait_is_noticed_at_its_commit() {
    let kit = Kit::new();
    for told in ["word", "gossip"] {
        // The step has looked (nothing there) and is about to ask for a wait; meanwhile the signal arrives.
        kit.script("a", [Act::GateThenAwait("word"), Act::Await("word")]);
        let id = kit.start("drill", &["a"]).await;
        let meanwhile = async {
            kit.world.stalled.notified().await;
            kit.tell(id, told, "1", json!({ "status": "success" })).await;
            kit.world.go.notify_one();
        };
        tokio::join!(kit.settle(), meanwhile);
        if told == "word" {
            assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("a a+ clean", Some(Outcome::Succeeded)));
        } else {
            assert_eq!((kit.calls().as_str(), kit.run(id).await.phase), ("a", Phase::Waiting));
        }
    }
}

#[tokio::test]
async fn a_signal_nobody_waits_for_is_kept_and_wakes_nobody() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a"]).await;
    kit.settle().await;
    let due = kit.run(id).await.next_run_at;
    kit.tell(id, "gossip", "1", json!(1)).await;
    assert_eq!(kit.settle().await, 0);
    assert_eq!(kit.run(id).await.next_run_at, due);
    // Nor does it keep the wait from passing its deadline.
    kit.clock.advance(Duration::from_secs(301));
    kit.settle().await;
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "deadline".to_owned()));
}

#[tokio::test]
async fn the_same_message_twice_has_one_effect_also_after_the_end() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a"]).await;
    kit.settle().await;
    kit.report(id).await;
    assert!(matches!(kit.report(id).await, Delivery::Duplicate(_)));
    kit.settle().await;
    let Delivery::Duplicate(first) = kit.tell(id, "report", "1", json!({ "status": "failed" })).await else {
        panic!()
    };
    assert_eq!(first.payload, json!({ "status": "success" }));
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    let mut nobody = kit.snapshot(id).await;
    nobody.run.id = RunId::new();
    let told = kit.engine.deliver(nobody, "report", "1", json!(1), Vec::new()).await.unwrap();
    assert_eq!(told, Delivery::NoRun);
}

#[tokio::test]
async fn many_messengers_at_once_settle_a_run_once() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.settle().await;
    let read = kit.snapshot(id).await;
    let tasks: Vec<_> = (0..16)
        .map(|index| {
            let (engine, read) = (kit.engine.clone(), read.clone());
            let key = (index % 4).to_string();
            tokio::spawn(
                async move { engine.deliver(read, "report", &key, json!({}), Vec::new()).await.unwrap() },
            )
        })
        .collect();
    let mut stored = 0;
    for task in tasks {
        stored += usize::from(matches!(task.await.unwrap(), Delivery::Stored(_)));
    }
    assert_eq!(stored, 4, "one per key");
    kit.settle().await;
    assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("a b clean", Some(Outcome::Succeeded)));
}

#[tokio::test]
async fn a_poll_looks_again_and_keeps_its_since_and_its_deadline() {
    let kit = Kit::new();
    kit.script("a", [Act::Poll, Act::Poll]);
    let id = kit.start("drill", &["a"]).await;
    kit.settle().await;
    let since = kit.now();
    kit.pass(5).await;
    let wait = kit.run(id).await.wait.unwrap();
    assert_eq!((wait.since, wait.deadline), (since, since.plus(Duration::from_secs(20))));
    kit.pass(5).await;
    assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("a a+ a+ clean", Some(Outcome::Succeeded)));
}

#[tokio::test]
async fn a_wait_past_its_deadline_fails_after_one_last_look() {
    let kit = Kit::new();
    kit.script("a", vec![Act::Poll; 99]);
    let id = kit.start("drill", &["a"]).await;
    kit.pass(30).await;
    assert_eq!(kit.calls(), "a a+ a+ a+ a+ clean");
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "deadline".to_owned()));

    // After an outage the last look may find what happened meanwhile.
    kit.script("a", [Act::Poll]);
    let id = kit.start("drill", &["a"]).await;
    kit.settle().await;
    kit.clock.advance(Duration::from_secs(1000));
    kit.settle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}
