//! The normal life of a run: plans that grow, holds, undo, locks, other queues, child runs.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::kit::{Act, Kit, new_run};
use model::{LockRequest, NewRun, OnConflict, Outcome, Phase, Verb};
use store::TakeOver;

#[tokio::test]
async fn steps_run_in_order_then_the_finish_list_and_each_has_a_record() {
    let kit = Kit::new();
    let id = kit.start("drill", &["a", "b"]).await;
    assert_eq!(kit.run_until_idle().await, 1, "one claim executes all steps of the run");
    assert_eq!(kit.calls(), "a b clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    let snapshot = kit.snapshot(id).await;
    let steps: Vec<_> = snapshot.steps.iter().map(|step| (step.name.as_str(), step.phase.as_str())).collect();
    assert_eq!(steps, [("a", "done"), ("b", "done"), ("clean", "done")]);
    assert_eq!(kit.events(id).await, ["run.outcome", "run.ended"]);
    assert!(
        snapshot.run.lease.is_none() && snapshot.run.next_run_at.is_none() && snapshot.run.step.is_none()
    );
}

#[tokio::test]
async fn a_step_extends_the_plan_right_after_itself_and_only_once() {
    let kit = Kit::new();
    // The step adds new steps, is dropped before its report is written, and adds them again.
    kit.script("a", [Act::WorkThenStall, Act::Extend(vec!["x", "y"])]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.run_until_stall(&kit.engine).await;
    kit.expire_lease();
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a a+ x y b clean");
    let names: Vec<_> = kit.snapshot(id).await.plan.forward.iter().map(|step| step.name.clone()).collect();
    assert_eq!(names, ["a", "x", "y", "b"]);

    // A step that is still to come is not inserted twice.
    kit.script("a", [Act::Extend(vec!["b", "x"])]);
    kit.start("drill", &["a", "b"]).await;
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a x b clean");
}

#[tokio::test]
async fn a_step_that_holds_runs_again_after_resume() {
    let kit = Kit::new();
    kit.script("b", [Act::Hold]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.run_until_idle().await;
    let run = kit.run(id).await;
    assert_eq!(run.phase, Phase::Held);
    assert_eq!(run.hold.unwrap().detail, "which colour?");
    assert!(run.lease.is_none() && run.next_run_at.is_none());
    kit.pass(5).await;
    kit.engine.verb(id, Verb::Resume, "ann", "").await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a b b+ clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    assert_eq!(kit.events(id).await, ["run.held", "run.resumed", "run.outcome", "run.ended"]);
}

#[tokio::test]
async fn a_failed_run_of_an_undoing_workflow_undoes_in_reverse_order_and_then_finishes() {
    let kit = Kit::new();
    kit.script("b", [Act::Skip]);
    kit.script("d", [Act::Fail]);
    kit.script("undo c", [Act::Retry, Act::Retry, Act::Retry, Act::Retry]);
    let id = kit.start("undoing", &["a", "b", "c", "d", "e"]).await;
    kit.pass(20).await;
    let calls = kit.calls();
    assert_eq!(calls, "a b c d undo d undo c undo c+ undo c+ undo c+ undo c+ undo a clean");
    assert_eq!((kit.ended(id).await, kit.outside()), (Some(Outcome::Failed), "clean".to_owned()));
}

#[tokio::test]
async fn undo_continues_after_a_step_that_cannot_be_undone_and_logs_it() {
    let kit = Kit::new();
    kit.script("c", [Act::Fail]);
    kit.script("undo b", [Act::Fail]);
    let id = kit.start("undoing", &["a", "b", "c"]).await;
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a b c undo c undo b undo a clean");
    assert_eq!(kit.outside(), "b clean");
    let phases: Vec<_> = kit.snapshot(id).await.steps.iter().map(|record| record.phase.as_str()).collect();
    assert_eq!(
        phases,
        ["undone", "stuck", "undone", "done"],
        "a step that is still in effect is not recorded as undone"
    );
    let last = kit.engine.store().last_events(id, 1).await.unwrap().remove(0);
    assert!(last.message.ends_with("not cleaned up: undo b"), "{}", last.message);
    assert_eq!(kit.count(id, "step.gave-up").await, 1);
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "broken".to_owned()));
}

fn locked(resource: &str, run: NewRun) -> NewRun {
    NewRun {
        locks: vec![LockRequest {
            resource: resource.to_owned(),
            capacity: 1,
            on_conflict: OnConflict::Wait,
        }],
        ..run
    }
}

#[tokio::test]
async fn a_run_waits_for_its_lock_while_the_holder_is_held() {
    let kit = Kit::new();
    kit.script("a", [Act::Hold]);
    let first = kit.start_run(locked("rack", new_run("drill", &["a"], kit.now()))).await;
    kit.run_until_idle().await;
    let second = kit.start_run(locked("rack", new_run("drill", &["b"], kit.now()))).await;
    kit.pass(3).await;
    assert_eq!((kit.calls().as_str(), kit.run(second).await.phase), ("a", Phase::Queued));
    kit.engine.verb(first, Verb::Resume, "ann", "").await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a+ clean b clean");
    assert_eq!(kit.ended(second).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn a_step_of_another_queue_runs_on_the_engine_of_that_queue() {
    let kit = Kit::new();
    let bulk = kit.engine("two", "bulk");
    let id = kit.start("drill", &["a", "b@bulk", "c"]).await;
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a");
    let run = kit.run(id).await;
    assert_eq!((run.queue.as_str(), run.lease.is_none(), run.step.as_deref()), ("bulk", true, Some("b")));
    bulk.run_until_idle().await.unwrap();
    assert_eq!(kit.calls(), "b");
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "c clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn a_run_starts_a_child_of_another_workflow_and_receives_its_end() {
    let kit = Kit::new();
    kit.script("order", [Act::Child("tiny", json!({ "forward": ["t"] }))]);
    kit.script("await", [Act::Await("child.ended")]);
    let id = kit.start("drill", &["order", "await"]).await;
    kit.run_until_idle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    let calls = kit.calls();
    assert!(calls.starts_with("order await t clean") && calls.ends_with("clean"), "{calls}");
    let snapshot = kit.snapshot(id).await;
    let ended = &snapshot.signals[0];
    assert_eq!(
        (ended.payload["workflow"].as_str(), ended.payload["outcome"].as_str()),
        (Some("tiny"), Some("succeeded"))
    );
    assert!(ended.consumed);
    let child = kit.run(ended.key.parse().unwrap()).await;
    assert_eq!((child.parent, child.root), (Some(id), id));
}

#[tokio::test]
async fn a_child_requested_twice_is_created_once() {
    let kit = Kit::new();
    let order = Act::Child("tiny", json!({ "forward": ["t"] }));
    let id = kit.start("drill", &["order"]).await;
    kit.script("order", [Act::Stall, order.clone()]);
    kit.run_until_stall(&kit.engine).await;
    kit.expire_lease();
    kit.run_until_idle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    let runs: i64 = kit
        .outside_view()
        .query_row("SELECT count(*) FROM runs WHERE workflow = 'tiny'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(runs, 1);
}

#[tokio::test]
async fn a_child_that_cannot_be_created_fails_the_step_that_requested_it() {
    let kit = Kit::new();
    let taken = NewRun { deadline_at: kit.now(), ..locked("door", new_run("drill", &["never"], kit.now())) };
    let holder = kit.start_run(NewRun { plan: model::RunPlan::default(), ..taken }).await;
    for (input, workflow, class) in [
        (json!({ "lock": "door" }), "tiny", "conflict"),
        (json!({ "refuse": true }), "tiny", "internal"),
        (json!({}), "missing", "internal"),
    ] {
        kit.script("order", [Act::Child(workflow, input)]);
        let id = kit.start("drill", &["order", "after"]).await;
        kit.run_until_idle().await;
        assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), class.to_owned()));
        assert_eq!(kit.calls(), "order clean");
        let summary = kit.run(id).await.failure.unwrap().summary;
        assert_eq!(summary.contains(&holder.to_string()), class == "conflict", "{summary}");
    }
}

#[tokio::test]
async fn a_running_engine_is_woken_by_creation_signal_and_stop() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    kit.script("b", [Act::Stall]);
    let stop = tokio_util::sync::CancellationToken::new();
    let engine = kit.engine.clone();
    let stopped = stop.clone();
    let working = tokio::spawn(async move { engine.run(TakeOver::ExpiredOnly, stopped).await });
    let id = kit.start("drill", &["a", "b"]).await;
    while kit.run(id).await.phase != Phase::Waiting {
        tokio::task::yield_now().await;
    }
    kit.report(id).await;
    kit.world.stalled.notified().await;
    assert_eq!(kit.engine.active_runs(), 1);
    stop.cancel();
    working.await.unwrap();
    let run = kit.run(id).await;
    assert!(
        run.lease.is_none() && run.next_run_at == Some(kit.now()),
        "given back, due for the next controller instance"
    );
    assert_eq!(kit.engine.active_runs(), 0);
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a b b+ clean");
}

#[tokio::test]
async fn the_dispatcher_makes_rounds_while_the_database_can_be_used_and_none_otherwise() {
    let kit = Kit::new();
    let mut rounds = kit.engine.rounds();
    let working = kit.engine.run(TakeOver::Everything, CancellationToken::new());
    let three_rounds = async {
        for _ in 0..3 {
            rounds.changed().await.unwrap();
            kit.engine.wake();
        }
    };
    tokio::select! {
        () = working => panic!("the engine works until it is stopped"),
        () = three_rounds => {}
    }
    // Without the table no run can be claimed, as with a disk that fails.
    kit.outside_view().execute("ALTER TABLE runs RENAME TO runs_elsewhere", []).unwrap();
    rounds.mark_unchanged();
    let working = kit.engine.run(TakeOver::Everything, CancellationToken::new());
    assert!(tokio::time::timeout(Duration::from_millis(300), working).await.is_err());
    assert!(!rounds.has_changed().unwrap(), "a watchdog would be fed although nothing can be done");
}
