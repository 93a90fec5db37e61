//! What goes wrong inside a step, and steps or kinds a program does not know.

use std::time::Duration;

use super::kit::{Act, Kit, new_run};
use crate::Verb;
use crate::model::{NewRun, Outcome, Phase};
use crate::store::TakeOver;

#[tokio::test]
async fn a_shaky_step_is_tried_again_with_growing_pauses() {
    let kit = Kit::new();
    kit.script("a", [Act::Retry, Act::Retry]);
    let id = kit.start("drill", &["a"]).await;
    kit.settle().await;
    let run = kit.run(id).await;
    let wait = run.wait.unwrap();
    assert_eq!((run.phase, wait.reason.as_str()), (Phase::Waiting, "retry"));
    let pause = wait.poll_at.unwrap().since(kit.now());
    assert!((Duration::from_millis(500)..=Duration::from_secs(1)).contains(&pause), "{pause:?}");
    kit.settle().await;
    assert_eq!(kit.calls(), "a", "not before the pause is over");
    kit.pass(4).await;
    assert_eq!(kit.calls(), "a+ a+ clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    assert_eq!(kit.snapshot(id).await.steps[0].attempt, 3);
    assert_eq!(kit.count(id, "step.retry").await, 2);
}

#[tokio::test]
async fn a_step_gives_up_when_its_tries_are_used_up() {
    let kit = Kit::new();
    kit.script("a", vec![Act::Retry; 9]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.pass(20).await;
    assert_eq!(kit.calls(), "a a+ a+ clean");
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "shaky".to_owned()));
    assert_eq!(kit.count(id, "step.gave-up").await, 1);
    let failure = kit.run(id).await.failure.unwrap();
    assert!(failure.summary.contains("gave up after 3 tries"), "{failure:?}");
}

#[tokio::test]
async fn a_step_gives_up_when_its_budget_is_used_up_but_looks_again_after_an_outage() {
    let kit = Kit::new();
    kit.script("a", [Act::Retry, Act::Retry]);
    let id = kit.start("drill", &["a"]).await;
    kit.settle().await;
    // The controller was away for longer than the budget: the step is not failed unseen.
    kit.clock.advance(Duration::from_secs(500));
    kit.settle().await;
    assert_eq!(kit.calls(), "a a+ clean");
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "shaky".to_owned()));

    kit.script("a", [Act::Retry]);
    let id = kit.start("drill", &["a"]).await;
    kit.settle().await;
    kit.clock.advance(Duration::from_secs(500));
    kit.settle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

/// World 25636: a report was waited for longer than the budget, and one look that did not come back ended the job.
#[tokio::test]
async fn the_time_a_step_has_waited_is_no_part_of_the_budget_of_what_it_tries_then() {
    let kit = Kit::new();
    let looks_around = async || {
        kit.script("a", [Act::Await("report")]);
        let id = kit.start("drill", &["a"]).await;
        kit.settle().await;
        kit.clock.advance(Duration::from_secs(200));
        // A new start of the controller: the step looks around, and fails.
        kit.script("a", [Act::Retry, Act::Retry]);
        kit.engine.store().take_over(TakeOver::Everything, kit.now()).await.unwrap();
        kit.pass(1).await;
        assert_eq!(kit.run(id).await.wait.unwrap().reason, "retry");
        id
    };
    let id = looks_around().await;
    kit.pass(3).await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    // What it tries then has its budget, and no more.
    let id = looks_around().await;
    kit.clock.advance(Duration::from_secs(150));
    kit.settle().await;
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "shaky".to_owned()));
}

#[tokio::test]
async fn a_panic_in_a_step_fails_the_run_and_nothing_else() {
    let kit = Kit::new();
    kit.script("a", [Act::Panic]);
    let broken = kit.start("drill", &["a"]).await;
    let other = kit.start("drill", &["b"]).await;
    kit.settle().await;
    assert_eq!(
        (kit.ended(broken).await, kit.class(broken).await),
        (Some(Outcome::Failed), "internal".to_owned())
    );
    assert_eq!(kit.ended(other).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn a_hanging_step_is_dropped_after_its_call_time_and_tried_again() {
    let kit = Kit::new();
    kit.script("hang", [Act::Stall]);
    let id = kit.start("drill", &["hang"]).await;
    kit.settle().await;
    let wait = kit.run(id).await.wait.unwrap();
    assert!(wait.detail.contains("did not come back"), "{wait:?}");
    kit.pass(1).await;
    assert_eq!(kit.calls(), "hang hang+ clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn the_finish_list_goes_on_after_a_step_that_fails_holds_or_panics() {
    for act in [Act::Fail, Act::Hold, Act::Panic] {
        let kit = Kit::new();
        kit.script("f1", [act.clone()]);
        let mut run = new_run("drill", &["a"], kit.now());
        let step = run.plan.finish.remove(0);
        run.plan.finish = ["f1", "f2"]
            .map(|name| crate::model::StepInstance { name: name.to_owned(), ..step.clone() })
            .to_vec();
        let id = kit.start_run(run).await;
        kit.settle().await;
        assert_eq!(kit.calls(), "a f1 f2", "{act:?}");
        assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded), "the outcome stays what it was");
        let last = kit.engine.store().last_events(id, 1).await.unwrap().remove(0);
        assert!(last.message.contains("left undone: f1"), "{}", last.message);
    }
}

#[tokio::test]
async fn a_step_this_version_does_not_know_is_a_hold_never_a_skip() {
    let kit = Kit::new();
    let id = kit.start("drill", &["a", "unknown-b", "c"]).await;
    kit.settle().await;
    let run = kit.run(id).await;
    assert_eq!((run.phase, run.hold.unwrap().class.as_str()), (Phase::Held, "unknown_step"));
    kit.engine.verb(id, Verb::Resume, "ann", "").await.unwrap();
    kit.settle().await;
    assert_eq!(kit.run(id).await.phase, Phase::Held, "resuming alone does not make it known");
    kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
    kit.settle().await;
    assert_eq!(kit.calls(), "a clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
}

#[tokio::test]
async fn an_unknown_step_in_undoing_or_finishing_is_left_undone_and_the_rest_goes_on() {
    let kit = Kit::new();
    let mut run = new_run("undoing", &["a", "unknown-b"], kit.now());
    run.plan
        .finish
        .insert(0, crate::model::StepInstance { name: "unknown-f".to_owned(), ..run.plan.finish[0].clone() });
    let id = kit.start_run(run).await;
    kit.settle().await;
    kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
    kit.settle().await;
    assert_eq!(kit.calls(), "a undo a clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
    let last = kit.engine.store().last_events(id, 1).await.unwrap().remove(0);
    assert!(last.message.contains("left undone: undo unknown-b, unknown-f"), "{}", last.message);
}

#[tokio::test]
async fn a_kind_or_version_this_program_does_not_know_is_a_hold_that_an_operator_can_end() {
    for (kind, version, class) in [("strange", 1, "unknown_kind"), ("drill", 7, "kind_version")] {
        let kit = Kit::new();
        let id = kit.start_run(NewRun { kind_version: version, ..new_run(kind, &["a"], kit.now()) }).await;
        kit.settle().await;
        let run = kit.run(id).await;
        assert_eq!((run.phase, run.hold.unwrap().class.as_str()), (Phase::Held, class));
        kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
        kit.settle().await;
        assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
        let cleaned = if kind == "drill" { "clean" } else { "" };
        assert_eq!(kit.calls(), cleaned, "nobody can clean up after an unknown kind");
    }
}

#[tokio::test]
async fn skipping_is_recorded_and_a_run_of_skips_succeeds() {
    let kit = Kit::new();
    kit.script("a", [Act::Skip]);
    let id = kit.start("drill", &["a"]).await;
    kit.settle().await;
    assert_eq!(kit.snapshot(id).await.steps[0].phase.as_str(), "skipped");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}
