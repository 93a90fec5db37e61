//! Operators' verbs and deadlines, in every phase.

use std::time::Duration;

use serde_json::json;

use super::kit::{Act, GRACE, Kit, LEASE, new_run};
use crate::model::{Clock, LockRequest, NewRun, OnConflict, Outcome, Phase, RunId, StepInstance};
use crate::store::Lanes;
use crate::{Verb, VerbFailure, VerbRefused};

async fn cancel(kit: &Kit, id: RunId) {
    kit.engine.verb(id, Verb::Cancel, "ann", "wrong machine").await.unwrap();
}

async fn was_cancelled(kit: &Kit, id: RunId) {
    assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
    let run = kit.run(id).await;
    let failure = run.failure.unwrap();
    assert_eq!(
        (failure.class.as_str(), failure.summary.as_str()),
        ("cancelled", "cancelled by ann: wrong machine")
    );
    assert!(run.cancel_requested_at.is_some());
    assert!(kit.snapshot(id).await.signals.iter().all(|signal| signal.consumed));
}

#[tokio::test]
async fn cancel_of_a_queued_run_never_starts_it() {
    let kit = Kit::new();
    let id = kit.start("drill", &["a"]).await;
    cancel(&kit, id).await;
    kit.settle().await;
    assert_eq!(kit.calls(), "clean");
    was_cancelled(&kit, id).await;
}

/// A regression of the soak: the answer to the first was lost with its controller, and the second was told that it is too late.
#[tokio::test]
async fn cancel_asked_for_again_is_no_conflict_and_changes_nothing() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a"]).await;
    kit.settle().await;
    cancel(&kit, id).await;
    let finishing = kit.run(id).await;
    assert_eq!(finishing.phase, Phase::Finishing);
    cancel(&kit, id).await;
    assert_eq!(kit.run(id).await, finishing);
    kit.settle().await;
    cancel(&kit, id).await;
    was_cancelled(&kit, id).await;
    let succeeded = kit.start("drill", &["b"]).await;
    kit.settle().await;
    let late = kit.engine.verb(succeeded, Verb::Cancel, "ann", "").await;
    assert!(matches!(late, Err(VerbFailure::Verb(VerbRefused::NotNow { .. }))), "{late:?}");
}

#[tokio::test]
async fn cancel_of_a_run_in_line_for_a_lock_ends_it_while_the_holder_works_on() {
    let kit = Kit::new();
    kit.script("a", [Act::Hold]);
    let locks = vec![LockRequest { resource: "rack".to_owned(), places: 1, on_conflict: OnConflict::Wait }];
    let run = |step: &str| NewRun { locks: locks.clone(), ..new_run("drill", &[step], kit.now()) };
    let (holder, cancelled, next) =
        (kit.start_run(run("a")).await, kit.start_run(run("b")).await, kit.start_run(run("c")).await);
    kit.settle().await;
    cancel(&kit, cancelled).await;
    kit.settle().await;
    was_cancelled(&kit, cancelled).await;
    kit.engine.verb(holder, Verb::Resume, "ann", "").await.unwrap();
    kit.settle().await;
    assert_eq!(kit.ended(next).await, Some(Outcome::Succeeded));
    assert_eq!(kit.calls(), "a clean a+ clean c clean");
}

#[tokio::test]
async fn cancel_of_a_waiting_a_retrying_and_a_held_run_takes_effect_at_once() {
    for act in [Act::Await("report"), Act::Retry, Act::Hold] {
        for (kind, calls) in [("drill", "a b clean"), ("undoing", "a b undo b+ undo a clean")] {
            let kit = Kit::new();
            kit.script("b", [act.clone()]);
            let id = kit.start(kind, &["a", "b", "c"]).await;
            kit.settle().await;
            cancel(&kit, id).await;
            assert_eq!(kit.run(id).await.outcome, Some(Outcome::Cancelled), "before any worker looked");
            kit.settle().await;
            assert_eq!(kit.calls(), calls, "{act:?}");
            was_cancelled(&kit, id).await;
        }
    }
}

#[tokio::test]
async fn cancel_of_many_ends_each_in_its_state_and_counts_those_that_had_not_ended() {
    let kit = Kit::new();
    kit.script("told", [Act::Await("report")]);
    kit.script("held", [Act::Hold]);
    kit.script("work", [Act::WorkThenStall]);
    let ended = kit.start("drill", &["a"]).await;
    let (waiting, held) = (kit.start("drill", &["told"]).await, kit.start("drill", &["held"]).await);
    kit.settle().await;
    let at_work = kit.start("undoing", &["work"]).await;
    let many = async {
        kit.world.stalled.notified().await;
        // More than share a transaction, some of them nobody's.
        let mut runs = vec![ended, waiting, held, at_work, RunId::new()];
        for _ in 0..150 {
            runs.push(kit.start("drill", &["b"]).await);
        }
        assert_eq!(kit.engine.cancel_all(&runs, "ann", "wrong machine").await.unwrap(), 153);
        for run in [waiting, held] {
            assert_eq!(kit.run(run).await.outcome, Some(Outcome::Cancelled), "before any worker looked");
        }
        runs
    };
    let ((), runs) = tokio::join!(
        async {
            kit.settle().await;
        },
        many
    );
    kit.settle().await;
    for run in runs[1..4].iter().chain(&runs[5..]) {
        was_cancelled(&kit, *run).await;
    }
    assert_eq!(kit.ended(ended).await, Some(Outcome::Succeeded));
    assert!(!kit.calls().contains(" b "), "one that never began was begun: {}", kit.calls());
    assert_eq!(kit.engine.cancel_all(&runs, "ann", "again").await.unwrap(), 0);
}

#[tokio::test]
async fn cancel_interrupts_a_step_at_work_and_its_finish_list_is_not_interrupted() {
    let kit = Kit::new();
    kit.script("b", [Act::WorkThenStall]);
    let id = kit.start("undoing", &["a", "b", "c"]).await;
    kit.settle_while(async {
        kit.world.stalled.notified().await;
        cancel(&kit, id).await;
        // Asked for twice: the same, or too late, but never a second effect.
        drop(kit.engine.verb(id, Verb::Cancel, "bob", "me too").await);
    })
    .await;
    // Whether the second one still interrupted the worker, who then begins anew, is chance; what is done is not.
    assert_eq!(kit.calls().replace('+', ""), "a b undo b undo a clean");
    was_cancelled(&kit, id).await;
}

#[tokio::test]
async fn cancel_waits_for_a_step_that_may_not_be_interrupted_and_then_stops() {
    let kit = Kit::new();
    kit.script("solid", [Act::Gate]);
    let id = kit.start("drill", &["solid", "b"]).await;
    kit.settle_while(async {
        kit.world.stalled.notified().await;
        cancel(&kit, id).await;
        assert_eq!(kit.run(id).await.phase, Phase::Running);
        assert!(kit.run(id).await.cancel_requested_at.is_some(), "shown at once");
        kit.world.go.notify_one();
    })
    .await;
    assert_eq!((kit.calls().as_str(), kit.outside().as_str()), ("solid clean", "clean solid"));
    assert_eq!(kit.snapshot(id).await.steps[0].phase.as_str(), "done", "what it did is kept");
    was_cancelled(&kit, id).await;
}

#[tokio::test]
async fn a_cancel_is_carried_out_also_when_the_last_step_comes_back_done() {
    let kit = Kit::new();
    kit.script("solid", [Act::Gate]);
    let id = kit.start("drill", &["solid"]).await;
    kit.settle_while(async {
        kit.world.stalled.notified().await;
        cancel(&kit, id).await;
        kit.world.go.notify_one();
    })
    .await;
    assert_eq!(kit.calls(), "solid clean");
    assert_eq!(kit.snapshot(id).await.steps[0].phase.as_str(), "done", "what it did is kept");
    was_cancelled(&kit, id).await;
}

/// A cancel that comes when a worker has claimed the run and not yet looked at it.
async fn cancelled_between_claim_and_look(kit: &Kit, id: RunId) {
    let store = kit.engine.store();
    let queues = [kit.run(id).await.queue];
    let claimed =
        store.claim_lanes(Lanes::All, "worker", &queues, 1, kit.now(), LEASE, GRACE).await.unwrap().remove(0);
    cancel(kit, id).await;
    kit.engine.carry(claimed, kit.clock.elapsed()).await;
    kit.settle().await;
    was_cancelled(kit, id).await;
}

#[tokio::test]
async fn a_run_that_is_about_to_be_held_is_cancelled_when_that_was_asked_for() {
    let kit = Kit::new();
    let id = kit.start("drill", &["unknown-z"]).await;
    cancelled_between_claim_and_look(&kit, id).await;
}

#[tokio::test]
async fn a_run_whose_time_is_over_is_cancelled_when_that_was_asked_for() {
    let kit = Kit::new();
    let id = kit.start("drill", &["a"]).await;
    kit.clock.advance(Duration::from_secs(3600));
    cancelled_between_claim_and_look(&kit, id).await;
}

#[tokio::test]
async fn a_cancel_told_to_a_worker_that_dies_is_carried_out_by_the_next() {
    let kit = Kit::new();
    kit.script("a", [Act::Stall]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.settle_and_die(&kit.engine).await;
    cancel(&kit, id).await;
    kit.outlive_lease();
    kit.settle().await;
    assert_eq!(kit.calls(), "a clean");
    was_cancelled(&kit, id).await;
}

#[tokio::test]
async fn verbs_that_mean_nothing_in_a_phase_are_refused_with_its_name() {
    let kit = Kit::new();
    let id = kit.start("drill", &["a"]).await;
    let refused = |verb| {
        let engine = kit.engine.clone();
        async move { engine.verb(id, verb, "ann", "").await.unwrap_err().to_string() }
    };
    assert_eq!(refused(Verb::Resume).await, "cannot resume a run that is queued");
    kit.settle().await;
    assert_eq!(refused(Verb::Cancel).await, "cannot cancel a run that is ended");
    assert_eq!(refused(Verb::Hold).await, "cannot hold a run that is ended");
    let nobody = kit.engine.verb(RunId::new(), Verb::Cancel, "ann", "").await;
    assert!(matches!(nobody, Err(VerbFailure::Verb(VerbRefused::NoRun))));
}

#[tokio::test]
async fn hold_and_resume_of_queued_and_waiting_runs() {
    for settled_first in [false, true] {
        let kit = Kit::new();
        kit.script("a", [Act::Await("report")]);
        let id = kit.start("drill", &["a"]).await;
        if settled_first {
            kit.settle().await;
        }
        kit.engine.verb(id, Verb::Hold, "ann", "audit").await.unwrap();
        let run = kit.run(id).await;
        assert_eq!((run.phase, run.hold.unwrap().detail.as_str()), (Phase::Held, "held by ann: audit"));
        // A message to a held run is kept.
        kit.report(id).await;
        kit.pass(3).await;
        assert_eq!(kit.run(id).await.phase, Phase::Held);
        kit.engine.verb(id, Verb::Resume, "ann", "").await.unwrap();
        kit.settle().await;
        assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    }
}

#[tokio::test]
async fn time_in_a_hold_counts_neither_against_the_deadline_nor_against_the_steps_budget() {
    let kit = Kit::new();
    kit.script("a", [Act::Retry, Act::Retry, Act::Hold, Act::Retry, Act::Retry]);
    let id = kit.start("drill", &["a"]).await;
    kit.pass(10).await;
    assert_eq!(kit.run(id).await.phase, Phase::Held);
    kit.clock.advance(Duration::from_secs(100_000));
    assert_eq!(kit.settle().await, 0, "a hold has no deadline");
    kit.engine.verb(id, Verb::Resume, "ann", "").await.unwrap();
    kit.pass(10).await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn what_is_overdue_when_it_is_picked_fails_and_never_starts() {
    let kit = Kit::new();
    let id = kit.start("drill", &["a"]).await;
    // Not even if it was told something early.
    kit.report(id).await;
    kit.clock.advance(Duration::from_secs(3600));
    kit.settle().await;
    assert_eq!(kit.calls(), "clean");
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "deadline".to_owned()));
}

#[tokio::test]
async fn a_run_in_line_for_a_lock_fails_at_its_deadline() {
    let kit = Kit::new();
    kit.script("a", [Act::Hold]);
    let locks = vec![LockRequest { resource: "rack".to_owned(), places: 1, on_conflict: OnConflict::Wait }];
    let run = |step: &str| NewRun { locks: locks.clone(), ..new_run("drill", &[step], kit.now()) };
    kit.start_run(run("a")).await;
    let stuck = kit.start_run(run("b")).await;
    kit.settle().await;
    kit.clock.advance(Duration::from_secs(3600));
    kit.settle().await;
    assert_eq!(
        (kit.ended(stuck).await, kit.class(stuck).await),
        (Some(Outcome::Failed), "deadline".to_owned())
    );
    assert_eq!(kit.calls(), "a clean");
}

#[tokio::test]
async fn a_waiting_run_fails_at_the_runs_deadline_but_a_message_in_time_comes_first() {
    for told in [false, true] {
        let kit = Kit::new();
        // `word` is not settled by the delivery: a worker has to look, and none does before the deadline.
        kit.script("a", [Act::Await("word")]);
        let deadline_at = kit.now().plus(Duration::from_secs(50));
        let id = kit.start_run(NewRun { deadline_at, ..new_run("drill", &["a"], kit.now()) }).await;
        kit.settle().await;
        assert_eq!(
            kit.run(id).await.next_run_at,
            Some(deadline_at),
            "a wait never lasts longer than its run may"
        );
        kit.clock.advance(Duration::from_secs(49));
        if told {
            kit.tell(id, "word", "1", json!({})).await;
        }
        kit.clock.advance(Duration::from_secs(1));
        kit.settle().await;
        let expected = if told { Outcome::Succeeded } else { Outcome::Failed };
        assert_eq!(kit.ended(id).await, Some(expected));
    }
}

#[tokio::test]
async fn cleaning_up_has_an_end_and_says_what_it_leaves() {
    let kit = Kit::new();
    kit.script("clean", vec![Act::Await("never")]);
    kit.script("undo a", vec![Act::Retry; 10_000]);
    for (kind, left) in [("drill", "clean"), ("undoing", "undo a, clean")] {
        kit.script("b", [Act::Fail]);
        let id = kit.start(kind, &["a", "b"]).await;
        // A message that nobody will act on does not keep it alive.
        kit.tell(id, "gossip", "1", json!(1)).await;
        kit.settle().await;
        assert!(!kit.run(id).await.phase.is_forward());
        kit.clock.advance(Duration::from_secs(600));
        kit.settle().await;
        assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "broken".to_owned()));
        let last = kit.engine.store().last_events(id, 1).await.unwrap().remove(0);
        assert!(last.message.contains(&format!("left undone: {left}")), "{}", last.message);
        assert_eq!(kit.count(id, "run.finish-deadline").await, 1);
    }
}

#[tokio::test]
async fn what_must_happen_at_every_end_happens_however_late_it_is() {
    let kit = Kit::new();
    kit.script("b", [Act::Fail]);
    kit.script("clean", [Act::Await("never")]);
    let mut run = new_run("drill", &["a", "b"], kit.now());
    let always = StepInstance { name: "always".to_owned(), ..run.plan.finish[0].clone() };
    run.plan.finish.push(always);
    let id = kit.start_run(run).await;
    kit.settle().await;
    kit.clock.advance(Duration::from_secs(6000));
    kit.settle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Failed));
    assert!(kit.calls().ends_with("always"), "{}", kit.calls());
    let last = kit.engine.store().last_events(id, 1).await.unwrap().remove(0);
    assert!(last.message.ends_with("left undone: clean"), "{}", last.message);
}
