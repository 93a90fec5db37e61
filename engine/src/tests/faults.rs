//! Failures inside a step, and steps or workflows that a program does not know.

use std::time::Duration;

use super::kit::{Act, Kit, new_run};
use model::{NewRun, Outcome, Phase, Verb, WorkflowVersion};
use store::TakeOver;

#[tokio::test]
async fn a_step_is_retried_with_backoff() {
    let kit = Kit::new();
    kit.script("a", [Act::Retry, Act::Retry]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    let run = kit.run(id).await;
    let wait = run.wait.unwrap();
    assert_eq!((run.phase, wait.reason.as_str()), (Phase::Waiting, "retry"));
    let pause = wait.poll_at.unwrap().since(kit.now());
    assert!((Duration::from_millis(500)..=Duration::from_secs(1)).contains(&pause), "{pause:?}");
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a", "not before the backoff has passed");
    kit.pass(4).await;
    assert_eq!(kit.calls(), "a+ a+ clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    assert_eq!(kit.snapshot(id).await.steps[0].attempt, 3);
    assert_eq!(kit.count(id, "step.retry").await, 2);
}

#[tokio::test]
async fn a_step_that_asks_to_be_called_again_at_once_is_called_after_a_pause() {
    let kit = Kit::new();
    kit.script("a", [Act::PollAtOnce]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a");
    let poll_at = kit.run(id).await.wait.unwrap().poll_at.unwrap();
    assert_eq!(poll_at.since(kit.now()), Duration::from_millis(100));
}

#[tokio::test]
async fn a_step_fails_when_its_attempts_are_used_up() {
    let kit = Kit::new();
    kit.script("a", vec![Act::Retry; 9]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.pass(20).await;
    assert_eq!(kit.calls(), "a a+ a+ clean");
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "shaky".to_owned()));
    assert_eq!(kit.count(id, "step.gave-up").await, 1);
    let failure = kit.run(id).await.failure.unwrap();
    assert!(failure.summary.contains("gave up after 3 attempts"), "{failure:?}");
}

#[tokio::test]
async fn a_step_fails_when_its_budget_is_used_up_but_is_called_once_more_after_an_outage() {
    let kit = Kit::new();
    kit.script("a", [Act::Retry, Act::Retry]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    // The controller was down for longer than the budget: the step is called once more before it fails.
    kit.clock.advance(Duration::from_secs(500));
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a a+ clean");
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "shaky".to_owned()));

    kit.script("a", [Act::Retry]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    kit.clock.advance(Duration::from_secs(500));
    kit.run_until_idle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

/// A regression of simulation world 25636: after a wait longer than the budget, one failed attempt ended the job.
#[tokio::test]
async fn the_time_in_a_wait_does_not_count_against_the_budget_of_later_attempts() {
    let kit = Kit::new();
    let retrying_after_a_wait = async || {
        kit.script("a", [Act::Await("report")]);
        let id = kit.start("drill", &["a"]).await;
        kit.run_until_idle().await;
        kit.clock.advance(Duration::from_secs(200));
        // The controller restarts: the step is called again and fails.
        kit.script("a", [Act::Retry, Act::Retry]);
        kit.engine.store().take_over(TakeOver::Everything, kit.now()).await.unwrap();
        kit.pass(1).await;
        assert_eq!(kit.run(id).await.wait.unwrap().reason, "retry");
        id
    };
    let id = retrying_after_a_wait().await;
    kit.pass(3).await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    // The attempts after the wait have one budget, and no more.
    let id = retrying_after_a_wait().await;
    kit.clock.advance(Duration::from_secs(150));
    kit.run_until_idle().await;
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "shaky".to_owned()));
}

#[tokio::test]
async fn a_panic_in_a_step_fails_the_run_and_nothing_else() {
    let kit = Kit::new();
    kit.script("a", [Act::Panic]);
    let broken = kit.start("drill", &["a"]).await;
    let other = kit.start("drill", &["b"]).await;
    kit.run_until_idle().await;
    assert_eq!(
        (kit.ended(broken).await, kit.class(broken).await),
        (Some(Outcome::Failed), "internal".to_owned())
    );
    assert_eq!(kit.ended(other).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn a_hanging_step_is_dropped_after_its_call_limit_and_retried() {
    let kit = Kit::new();
    kit.script("hang", [Act::Stall]);
    let id = kit.start("drill", &["hang"]).await;
    kit.run_until_idle().await;
    let wait = kit.run(id).await.wait.unwrap();
    assert!(wait.detail.contains("did not return"), "{wait:?}");
    kit.pass(1).await;
    assert_eq!(kit.calls(), "hang hang+ clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn the_finish_list_continues_after_a_step_that_fails_holds_or_panics() {
    for act in [Act::Fail, Act::Hold, Act::Panic] {
        let kit = Kit::new();
        kit.script("f1", [act.clone()]);
        let mut run = new_run("drill", &["a"], kit.now());
        let step = run.plan.finish.remove(0);
        run.plan.finish =
            ["f1", "f2"].map(|name| model::StepInstance { name: name.into(), ..step.clone() }).to_vec();
        let id = kit.start_run(run).await;
        kit.run_until_idle().await;
        assert_eq!(kit.calls(), "a f1 f2", "{act:?}");
        assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded), "the outcome does not change");
        let last = kit.engine.store().last_events(id, 1).await.unwrap().remove(0);
        assert!(last.message.contains("not cleaned up: f1"), "{}", last.message);
    }
}

#[tokio::test]
async fn an_unknown_step_holds_the_run_and_is_never_skipped() {
    let kit = Kit::new();
    let id = kit.start("drill", &["a", "unknown-b", "c"]).await;
    kit.run_until_idle().await;
    let run = kit.run(id).await;
    assert_eq!((run.phase, run.hold.unwrap().class.as_str()), (Phase::Held, "unknown_step"));
    kit.engine.verb(id, Verb::Resume, "ann", "").await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.run(id).await.phase, Phase::Held, "a resume does not make the step known");
    kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
}

#[tokio::test]
async fn an_unknown_step_in_undo_or_the_finish_list_fails_and_the_others_run() {
    let kit = Kit::new();
    let mut run = new_run("undoing", &["a", "unknown-b"], kit.now());
    run.plan.finish.insert(0, model::StepInstance { name: "unknown-f".into(), ..run.plan.finish[0].clone() });
    let id = kit.start_run(run).await;
    kit.run_until_idle().await;
    kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a undo a clean");
    assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
    let last = kit.engine.store().last_events(id, 1).await.unwrap().remove(0);
    assert!(last.message.contains("not cleaned up: undo unknown-b, unknown-f"), "{}", last.message);
}

#[tokio::test]
async fn an_unknown_workflow_or_version_holds_the_run_until_an_operator_ends_it() {
    for (workflow, version, class) in [("strange", 1, "unknown_workflow"), ("drill", 7, "workflow_version")] {
        let kit = Kit::new();
        let id = kit
            .start_run(NewRun {
                workflow_version: WorkflowVersion(version),
                ..new_run(workflow, &["a"], kit.now())
            })
            .await;
        kit.run_until_idle().await;
        let run = kit.run(id).await;
        assert_eq!((run.phase, run.hold.unwrap().class.as_str()), (Phase::Held, class));
        kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
        kit.run_until_idle().await;
        assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
        let cleaned = if workflow == "drill" { "clean" } else { "" };
        assert_eq!(kit.calls(), cleaned, "an unknown workflow has no cleanup");
    }
}

#[tokio::test]
async fn skipping_is_recorded_and_a_run_of_skips_succeeds() {
    let kit = Kit::new();
    kit.script("a", [Act::Skip]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    assert_eq!(kit.snapshot(id).await.steps[0].phase.as_str(), "skipped");
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}
