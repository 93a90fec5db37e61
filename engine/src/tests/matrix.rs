//! The failure matrix: every step of a plan fails, panics and is interrupted at every point, and the run ends as specified.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::kit::{Act, Kit};
use model::{Event, Outcome, RunId, Verb};

const PLAN: [&str; 4] = ["a", "b", "c", "d"];

/// The end of a run: its outcome, the outside world, and the step and phase of every record.
type End = (Option<Outcome>, String, Vec<(String, String)>);

async fn end(kit: &Kit, id: RunId) -> End {
    let outcome = kit.ended(id).await;
    let steps = kit.snapshot(id).await.steps;
    let records =
        steps.into_iter().map(|step| (step.name.to_string(), step.phase.as_str().to_owned())).collect();
    (outcome, kit.outside(), records)
}

/// Lets the leases of dead workers expire and works until no run is due.
async fn recover(kit: &Kit) {
    for _ in 0..4 {
        kit.expire_lease();
        kit.run_until_idle().await;
    }
}

async fn undisturbed(workflow: &str, at: &str, act: Act) -> End {
    let kit = Kit::new();
    kit.script(at, [act]);
    let id = kit.start(workflow, &PLAN).await;
    recover(&kit).await;
    end(&kit, id).await
}

#[tokio::test]
async fn a_failure_of_any_step_ends_the_run_as_its_workflow_declares() {
    for (index, step) in PLAN.into_iter().enumerate() {
        for act in [Act::Fail, Act::Panic] {
            let before = PLAN[..index].join(" ");
            let kept = [before.as_str(), "clean"].join(" ").trim().to_owned();
            let (outcome, outside, records) = undisturbed("drill", step, act.clone()).await;
            assert_eq!((outcome, outside), (Some(Outcome::Failed), kept));
            assert_eq!(records.len(), index + 2, "later steps have no record");

            let (outcome, outside, records) = undisturbed("undoing", step, act).await;
            assert_eq!((outcome, outside), (Some(Outcome::Failed), "clean".to_owned()));
            assert!(records.iter().take(index + 1).all(|(_, phase)| phase == "undone"), "{records:?}");
        }
    }
}

#[tokio::test]
async fn every_step_that_runs_twice_ends_like_once() {
    for workflow in ["drill", "undoing"] {
        let once = undisturbed(workflow, "none", Act::Done).await;
        for step in ["a", "b", "c", "d", "clean"] {
            for act in [Act::Stall, Act::WorkThenStall, Act::CheckpointThenStall("half".into())] {
                let kit = Kit::new();
                kit.script(step, [act.clone()]);
                let id = kit.start(workflow, &PLAN).await;
                kit.run_until_stall(&kit.engine).await;
                recover(&kit).await;
                assert_eq!(end(&kit, id).await, once, "{workflow} {step} {act:?}");
                let twice = format!("{step} {step}+");
                assert!(kit.calls().contains(&twice), "{step} must know that it may have acted before");
            }
        }
    }
}

#[tokio::test]
async fn every_undo_that_runs_twice_ends_like_once() {
    let once = undisturbed("undoing", "d", Act::Fail).await;
    for step in PLAN {
        let kit = Kit::new();
        kit.script("d", [Act::Fail]);
        kit.script(&format!("undo {step}"), [Act::Stall]);
        let id = kit.start("undoing", &PLAN).await;
        kit.run_until_stall(&kit.engine).await;
        recover(&kit).await;
        assert_eq!(end(&kit, id).await, once, "{step}");
    }
}

#[tokio::test]
async fn a_failed_undo_is_logged_and_the_other_steps_are_undone() {
    for step in PLAN {
        let kit = Kit::new();
        kit.script("d", [Act::Fail]);
        kit.script(&format!("undo {step}"), [Act::Fail]);
        let id = kit.start("undoing", &PLAN).await;
        recover(&kit).await;
        let (outcome, outside, records) = end(&kit, id).await;
        // The last step failed without an effect, so that none can remain.
        let left = if step == "d" { "" } else { step };
        let expected = ["clean", left].into_iter().filter(|name| !name.is_empty()).collect::<BTreeSet<_>>();
        let outside: BTreeSet<&str> = outside.split(' ').collect();
        assert_eq!((outcome, outside), (Some(Outcome::Failed), expected), "{step}");
        let ends = |name: &str| if name == step { "stuck" } else { "undone" };
        assert!(
            records.iter().take(PLAN.len()).all(|(name, phase)| phase == ends(name)),
            "{step}: {records:?}"
        );
        let events = kit.engine.store().last_events(id, 100).await.unwrap();
        let gave_up = |event: &&Event| event.kind == "step.gave-up" && event.message.starts_with(step);
        assert_eq!(events.iter().filter(gave_up).count(), 1, "{step}: the failed undo must be logged");
    }
}

/// The mutant: a store that loses the intent of a step when the worker dies.
#[tokio::test]
async fn a_store_that_loses_an_intent_is_found() {
    for (loses, outside) in [(false, "clean"), (true, "b clean")] {
        let kit = Kit::new();
        kit.script("b", [Act::WorkThenStall]);
        let id = kit.start("undoing", &PLAN).await;
        kit.run_until_stall(&kit.engine).await;
        if loses {
            kit.outside_view().execute("DELETE FROM run_steps WHERE phase = 'intent'", []).unwrap();
        }
        kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
        recover(&kit).await;
        assert_eq!((kit.ended(id).await, kit.outside().as_str()), (Some(Outcome::Cancelled), outside));
    }
}

/// A future that is dropped at its n-th poll, wherever that is: in a step, or before, in or after a commit.
struct DropAtPoll<F> {
    inner: Pin<Box<F>>,
    left: u32,
}

impl<F: Future> Future for DropAtPoll<F> {
    type Output = Option<F::Output>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.inner.as_mut().poll(context).map(Some)
    }
}

/// Works until no run is due or the worker is dropped at poll `polls`; `false` when it was dropped.
pub(super) async fn run_and_crash(kit: &Kit, polls: u32) -> bool {
    let dropped = DropAtPoll { inner: Box::pin(kit.engine.run_until_idle()), left: polls };
    pin!(dropped).await.is_some()
}

#[tokio::test]
async fn a_worker_crash_at_any_poll_does_not_change_the_end() {
    for (workflow, fail) in [("drill", false), ("undoing", true)] {
        let act = if fail { Act::Fail } else { Act::Done };
        let undisturbed = undisturbed(workflow, "c", act.clone()).await;
        for polls in 1.. {
            let kit = Kit::new();
            kit.script("c", [act.clone(), act.clone()]);
            let id = kit.start(workflow, &PLAN).await;
            let finished = run_and_crash(&kit, polls).await;
            recover(&kit).await;
            assert_eq!(end(&kit, id).await, undisturbed, "{workflow}, dropped at poll {polls}");
            if finished {
                assert!(polls > 5, "the worker was done before it could be dropped");
                break;
            }
        }
    }
}
