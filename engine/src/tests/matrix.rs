//! The failure matrix, generic over the plan: every step fails, breaks off and is interrupted at every point, and the end is
//! the one it should be.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::kit::{Act, Kit};
use crate::Verb;
use crate::model::{Event, Outcome, RunId};

const PLAN: [&str; 4] = ["a", "b", "c", "d"];

/// How a run ended: its outcome, the outside world, and every record's step and phase.
type End = (Option<Outcome>, String, Vec<(String, String)>);

async fn end(kit: &Kit, id: RunId) -> End {
    let outcome = kit.ended(id).await;
    let steps = kit.snapshot(id).await.steps;
    let records = steps.into_iter().map(|step| (step.name, step.phase.as_str().to_owned())).collect();
    (outcome, kit.outside(), records)
}

/// Lets dead workers' leases run out and works on until nothing is due.
async fn recover(kit: &Kit) {
    for _ in 0..4 {
        kit.outlive_lease();
        kit.settle().await;
    }
}

async fn undisturbed(kind: &str, at: &str, act: Act) -> End {
    let kit = Kit::new();
    kit.script(at, [act]);
    let id = kit.start(kind, &PLAN).await;
    recover(&kit).await;
    end(&kit, id).await
}

#[tokio::test]
async fn every_step_failing_ends_the_run_with_what_the_kind_promises() {
    for (index, step) in PLAN.into_iter().enumerate() {
        for act in [Act::Fail, Act::Panic] {
            let before = PLAN[..index].join(" ");
            let kept = [before.as_str(), "clean"].join(" ").trim().to_owned();
            let (outcome, outside, records) = undisturbed("drill", step, act.clone()).await;
            assert_eq!((outcome, outside), (Some(Outcome::Failed), kept));
            assert_eq!(records.len(), index + 2, "later steps were never announced");

            let (outcome, outside, records) = undisturbed("undoing", step, act).await;
            assert_eq!((outcome, outside), (Some(Outcome::Failed), "clean".to_owned()));
            assert!(records.iter().take(index + 1).all(|(_, phase)| phase == "undone"), "{records:?}");
        }
    }
}

#[tokio::test]
async fn every_step_carried_out_twice_ends_like_once() {
    for kind in ["drill", "undoing"] {
        let once = undisturbed(kind, "none", Act::Done).await;
        for step in ["a", "b", "c", "d", "clean"] {
            for act in [Act::Stall, Act::WorkThenStall, Act::CheckpointThenStall("half".into())] {
                let kit = Kit::new();
                kit.script(step, [act.clone()]);
                let id = kit.start(kind, &PLAN).await;
                kit.settle_and_die(&kit.engine).await;
                recover(&kit).await;
                assert_eq!(end(&kit, id).await, once, "{kind} {step} {act:?}");
                let twice = format!("{step} {step}+");
                assert!(kit.calls().contains(&twice), "{step} was told that it may have acted before");
            }
        }
    }
}

#[tokio::test]
async fn every_undo_carried_out_twice_ends_like_once() {
    let once = undisturbed("undoing", "d", Act::Fail).await;
    for step in PLAN {
        let kit = Kit::new();
        kit.script("d", [Act::Fail]);
        kit.script(&format!("undo {step}"), [Act::Stall]);
        let id = kit.start("undoing", &PLAN).await;
        kit.settle_and_die(&kit.engine).await;
        recover(&kit).await;
        assert_eq!(end(&kit, id).await, once, "{step}");
    }
}

#[tokio::test]
async fn every_undo_failing_is_told_and_the_others_are_done() {
    for step in PLAN {
        let kit = Kit::new();
        kit.script("d", [Act::Fail]);
        kit.script(&format!("undo {step}"), [Act::Fail]);
        let id = kit.start("undoing", &PLAN).await;
        recover(&kit).await;
        let (outcome, outside, records) = end(&kit, id).await;
        // The last step has failed without doing anything, so that there is nothing of it to be left.
        let left = if step == "d" { "" } else { step };
        let expected = ["clean", left].into_iter().filter(|name| !name.is_empty()).collect::<BTreeSet<_>>();
        let outside: BTreeSet<&str> = outside.split(' ').collect();
        assert_eq!((outcome, outside), (Some(Outcome::Failed), expected), "{step}");
        let ends = |name: &str| if name == step { "stuck" } else { "undone" };
        assert!(
            records.iter().take(PLAN.len()).all(|(name, phase)| phase == ends(name)),
            "{step}: {records:?}"
        );
        let told = kit.engine.store().last_events(id, 100).await.unwrap();
        let gave_up = |event: &&Event| event.kind == "step.gave-up" && event.message.starts_with(step);
        assert_eq!(told.iter().filter(gave_up).count(), 1, "{step}: that it is not done is told");
    }
}

/// The mutant: a store that loses what a step announced, once its worker is dead.
#[tokio::test]
async fn a_store_that_forgets_an_intent_is_caught() {
    for (forgets, outside) in [(false, "clean"), (true, "b clean")] {
        let kit = Kit::new();
        kit.script("b", [Act::WorkThenStall]);
        let id = kit.start("undoing", &PLAN).await;
        kit.settle_and_die(&kit.engine).await;
        if forgets {
            kit.outside_view().execute("DELETE FROM run_steps WHERE phase = 'intent'", []).unwrap();
        }
        kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
        recover(&kit).await;
        assert_eq!((kit.ended(id).await, kit.outside().as_str()), (Some(Outcome::Cancelled), outside));
    }
}

/// A worker that dies at the n-th time it is looked at, wherever that is: in a step, before, in or after a commit.
struct Dies<F> {
    inner: Pin<Box<F>>,
    left: u32,
}

impl<F: Future> Future for Dies<F> {
    type Output = Option<F::Output>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.inner.as_mut().poll(context).map(Some)
    }
}

/// Works until nothing is due or the worker is dead; `false` when it died.
pub(super) async fn work_and_die(kit: &Kit, polls: u32) -> bool {
    let dies = Dies { inner: Box::pin(kit.engine.run_until_idle()), left: polls };
    pin!(dies).await.is_some()
}

#[tokio::test]
async fn a_worker_that_dies_at_any_moment_changes_nothing_about_the_end() {
    for (kind, fail) in [("drill", false), ("undoing", true)] {
        let act = if fail { Act::Fail } else { Act::Done };
        let undisturbed = undisturbed(kind, "c", act.clone()).await;
        for polls in 1.. {
            let kit = Kit::new();
            kit.script("c", [act.clone(), act.clone()]);
            let id = kit.start(kind, &PLAN).await;
            let lived = work_and_die(&kit, polls).await;
            recover(&kit).await;
            assert_eq!(end(&kit, id).await, undisturbed, "{kind}, died at poll {polls}");
            if lived {
                assert!(polls > 5, "the worker had no time to die in");
                break;
            }
        }
    }
}
