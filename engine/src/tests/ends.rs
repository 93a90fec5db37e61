//! Operator verbs and deadlines, in every phase.

use std::time::Duration;

use serde_json::json;

use super::kit::{Act, GRACE, Kit, LEASE, new_run};
use crate::{VerbError, VerbRefused};
use model::{Clock, LockRequest, NewRun, OnConflict, Outcome, Phase, RunId, StepInstance, Verb};
use store::Lanes;

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
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "clean");
    was_cancelled(&kit, id).await;
}

#[tokio::test]
async fn each_run_that_ends_is_observed_once_with_its_outcome() {
    let kit = Kit::new();
    let observed = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&observed);
    kit.engine.observe_ends(move |outcome, _took| seen.lock().unwrap().push(outcome));
    kit.script("bad", [Act::Fail]);
    kit.start("drill", &["a"]).await;
    kit.start("tiny", &["bad"]).await;
    let queued = kit.start("drill", &["c"]).await;
    cancel(&kit, queued).await;
    kit.run_until_idle().await;
    let mut outcomes: Vec<&str> = observed.lock().unwrap().iter().map(|outcome| outcome.as_str()).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["cancelled", "failed", "succeeded"]);
}

/// A regression of the soak: the response to the first cancel was lost in a crash, and the second cancel was refused as too late.
#[tokio::test]
async fn a_repeated_cancel_is_accepted_and_changes_nothing() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    cancel(&kit, id).await;
    let finishing = kit.run(id).await;
    assert_eq!(finishing.phase, Phase::Finishing);
    cancel(&kit, id).await;
    assert_eq!(kit.run(id).await, finishing);
    kit.run_until_idle().await;
    cancel(&kit, id).await;
    was_cancelled(&kit, id).await;
    let succeeded = kit.start("drill", &["b"]).await;
    kit.run_until_idle().await;
    let late = kit.engine.verb(succeeded, Verb::Cancel, "ann", "").await;
    assert!(matches!(late, Err(VerbError::Verb(VerbRefused::NotNow { .. }))), "{late:?}");
}

#[tokio::test]
async fn cancel_of_a_run_queued_for_a_lock_ends_it_while_the_holder_continues() {
    let kit = Kit::new();
    kit.script("a", [Act::Hold]);
    let locks = vec![LockRequest { resource: "rack".to_owned(), capacity: 1, on_conflict: OnConflict::Wait }];
    let run = |step: &str| NewRun { locks: locks.clone(), ..new_run("drill", &[step], kit.now()) };
    let (holder, cancelled, next) =
        (kit.start_run(run("a")).await, kit.start_run(run("b")).await, kit.start_run(run("c")).await);
    kit.run_until_idle().await;
    cancel(&kit, cancelled).await;
    kit.run_until_idle().await;
    was_cancelled(&kit, cancelled).await;
    kit.engine.verb(holder, Verb::Resume, "ann", "").await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.ended(next).await, Some(Outcome::Succeeded));
    assert_eq!(kit.calls(), "a clean a+ clean c clean");
}

#[tokio::test]
async fn cancel_of_a_waiting_a_retrying_and_a_held_run_takes_effect_at_once() {
    for act in [Act::Await("report"), Act::Retry, Act::Hold] {
        for (workflow, calls) in [("drill", "a b clean"), ("undoing", "a b undo b+ undo a clean")] {
            let kit = Kit::new();
            kit.script("b", [act.clone()]);
            let id = kit.start(workflow, &["a", "b", "c"]).await;
            kit.run_until_idle().await;
            cancel(&kit, id).await;
            assert_eq!(
                kit.run(id).await.outcome,
                Some(Outcome::Cancelled),
                "before any worker claims the run"
            );
            kit.run_until_idle().await;
            assert_eq!(kit.calls(), calls, "{act:?}");
            was_cancelled(&kit, id).await;
        }
    }
}

#[tokio::test]
async fn cancel_of_many_runs_ends_each_and_counts_those_that_had_not_ended() {
    let kit = Kit::new();
    kit.script("waits", [Act::Await("report")]);
    kit.script("held", [Act::Hold]);
    kit.script("work", [Act::WorkThenStall]);
    let ended = kit.start("drill", &["a"]).await;
    let (waiting, held) = (kit.start("drill", &["waits"]).await, kit.start("drill", &["held"]).await);
    kit.run_until_idle().await;
    let at_work = kit.start("undoing", &["work"]).await;
    let many = async {
        kit.world.stalled.notified().await;
        // More runs than one transaction cancels, and one that does not exist.
        let mut runs = vec![ended, waiting, held, at_work, RunId::new()];
        for _ in 0..150 {
            runs.push(kit.start("drill", &["b"]).await);
        }
        assert_eq!(kit.engine.cancel_all(&runs, "ann", "wrong machine").await.unwrap(), 153);
        for run in [waiting, held] {
            assert_eq!(
                kit.run(run).await.outcome,
                Some(Outcome::Cancelled),
                "before any worker claims the run"
            );
        }
        runs
    };
    let ((), runs) = tokio::join!(
        async {
            kit.run_until_idle().await;
        },
        many
    );
    kit.run_until_idle().await;
    for run in runs[1..4].iter().chain(&runs[5..]) {
        was_cancelled(&kit, *run).await;
    }
    assert_eq!(kit.ended(ended).await, Some(Outcome::Succeeded));
    assert!(!kit.calls().contains(" b "), "a run that never started was started: {}", kit.calls());
    assert_eq!(kit.engine.cancel_all(&runs, "ann", "again").await.unwrap(), 0);
}

#[tokio::test]
async fn cancel_interrupts_a_running_step_but_not_the_finish_list() {
    let kit = Kit::new();
    kit.script("b", [Act::WorkThenStall]);
    let id = kit.start("undoing", &["a", "b", "c"]).await;
    kit.run_while(async {
        kit.world.stalled.notified().await;
        cancel(&kit, id).await;
        // A second cancel is accepted or too late, but has no second effect.
        drop(kit.engine.verb(id, Verb::Cancel, "bob", "me too").await);
    })
    .await;
    // The second cancel may interrupt the worker once more, and the undo is then called again. The result is the same.
    assert_eq!(kit.calls().replace('+', ""), "a b undo b undo a clean");
    was_cancelled(&kit, id).await;
}

#[tokio::test]
async fn cancel_waits_for_a_step_that_may_not_be_interrupted_and_then_stops() {
    let kit = Kit::new();
    kit.script("solid", [Act::WaitForGo]);
    let id = kit.start("drill", &["solid", "b"]).await;
    kit.run_while(async {
        kit.world.stalled.notified().await;
        cancel(&kit, id).await;
        assert_eq!(kit.run(id).await.phase, Phase::Running);
        assert!(kit.run(id).await.cancel_requested_at.is_some(), "shown at once");
        kit.world.go.notify_one();
    })
    .await;
    assert_eq!((kit.calls().as_str(), kit.outside().as_str()), ("solid clean", "clean solid"));
    assert_eq!(kit.snapshot(id).await.steps[0].phase.as_str(), "done", "the result of the step is kept");
    was_cancelled(&kit, id).await;
}

#[tokio::test]
async fn a_cancel_takes_effect_also_when_the_last_step_is_done() {
    let kit = Kit::new();
    kit.script("solid", [Act::WaitForGo]);
    let id = kit.start("drill", &["solid"]).await;
    kit.run_while(async {
        kit.world.stalled.notified().await;
        cancel(&kit, id).await;
        kit.world.go.notify_one();
    })
    .await;
    assert_eq!(kit.calls(), "solid clean");
    assert_eq!(kit.snapshot(id).await.steps[0].phase.as_str(), "done", "the result of the step is kept");
    was_cancelled(&kit, id).await;
}

/// A cancel that arrives after a worker has claimed the run and before it runs a step.
async fn cancelled_between_claim_and_step(kit: &Kit, id: RunId) {
    let store = kit.engine.store();
    let queues = [kit.run(id).await.queue];
    let claimed =
        store.claim_lanes(Lanes::All, "worker", &queues, 1, kit.now(), LEASE, GRACE).await.unwrap().remove(0);
    cancel(kit, id).await;
    kit.engine.run_claim(claimed, kit.clock.elapsed()).await;
    kit.run_until_idle().await;
    was_cancelled(kit, id).await;
}

/// A regression: the cancel was left to the worker that had the lease, was stored after that worker had parked the run, and took
/// effect at the deadline of the wait.
#[tokio::test]
async fn a_cancel_that_was_left_to_a_worker_is_computed_again_when_the_worker_has_parked_the_run() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let id = kit.start("drill", &["a"]).await;
    let queues = [kit.run(id).await.queue];
    let store = kit.engine.store();
    let claimed =
        store.claim_lanes(Lanes::All, "worker", &queues, 1, kit.now(), LEASE, GRACE).await.unwrap().remove(0);
    let leased = claimed.snapshot.clone();
    kit.engine.run_claim(claimed, kit.clock.elapsed()).await;
    assert_eq!(kit.run(id).await.phase, Phase::Waiting);
    let tried = kit.engine.try_verb(leased, None, Verb::Cancel, "ann", "wrong machine").await.unwrap();
    assert!(tried.is_none(), "{tried:?}");
    assert!(kit.snapshot(id).await.signals.is_empty(), "nothing was stored");
    cancel(&kit, id).await;
    kit.run_until_idle().await;
    was_cancelled(&kit, id).await;
}

/// The revision is compared where the verb is stored: the run may change after it was read.
#[tokio::test]
async fn a_verb_for_one_revision_of_a_run_is_refused_at_another_one() {
    let kit = Kit::new();
    kit.script("a", [Act::Stall]);
    let id = kit.start("drill", &["a"]).await;
    let queued = kit.snapshot(id).await;
    kit.run_until_stall(&kit.engine).await;
    let leased = kit.snapshot(id).await;
    kit.report(id).await;
    let now = kit.run(id).await;
    assert!(now.lease.is_some() && now.revision > leased.run.revision, "a worker has it: {now:?}");
    for read in [queued, leased] {
        let at = Some(read.run.revision);
        for verb in [Verb::Cancel, Verb::Hold] {
            let tried = kit.engine.try_verb(read.clone(), at, verb, "ann", "wrong machine").await.unwrap();
            assert!(tried.is_none(), "{verb:?}: {tried:?}");
        }
        let refused = kit.engine.verb_at(id, at, Verb::Cancel, "ann", "wrong machine").await;
        let Err(VerbError::Verb(VerbRefused::Changed { revision })) = refused else { panic!("{refused:?}") };
        assert_eq!(revision, now.revision);
    }
    assert_eq!(kit.snapshot(id).await.signals.len(), 1, "no cancel is stored");
    kit.engine.verb_at(id, Some(now.revision), Verb::Cancel, "ann", "wrong machine").await.unwrap();
    kit.expire_lease();
    kit.run_until_idle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
}

/// A regression: the cancel was left to the worker that had the lease, was stored after that worker had ended the run with success
/// and had begun its finish list, and was acknowledged without an effect.
#[tokio::test]
async fn a_cancel_that_was_left_to_a_worker_is_refused_when_the_worker_has_ended_the_run_meanwhile() {
    let kit = Kit::new();
    kit.script("a", [Act::Stall]);
    kit.script("clean", [Act::Stall]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_stall(&kit.engine).await;
    let leased = kit.snapshot(id).await;
    assert!(leased.run.lease.is_some() && leased.run.phase.is_forward());
    kit.expire_lease();
    kit.run_until_stall(&kit.engine).await;
    let finishing = kit.run(id).await;
    assert!(finishing.lease.is_some() && finishing.phase == Phase::Finishing, "{finishing:?}");
    let tried = kit.engine.try_verb(leased, None, Verb::Cancel, "ann", "wrong machine").await.unwrap();
    assert!(tried.is_none(), "{tried:?}");
    assert!(kit.snapshot(id).await.signals.is_empty(), "nothing was stored");
    let late = kit.engine.verb(id, Verb::Cancel, "ann", "wrong machine").await;
    assert!(matches!(late, Err(VerbError::Verb(VerbRefused::NotNow { .. }))), "{late:?}");
}

#[tokio::test]
async fn a_cancel_comes_before_a_hold() {
    let kit = Kit::new();
    let id = kit.start("drill", &["unknown-z"]).await;
    cancelled_between_claim_and_step(&kit, id).await;
}

#[tokio::test]
async fn a_cancel_comes_before_a_passed_deadline() {
    let kit = Kit::new();
    let id = kit.start("drill", &["a"]).await;
    kit.clock.advance(Duration::from_secs(3600));
    cancelled_between_claim_and_step(&kit, id).await;
}

#[tokio::test]
async fn a_cancel_before_a_crash_is_carried_out_by_the_next_worker() {
    let kit = Kit::new();
    kit.script("a", [Act::Stall]);
    let id = kit.start("drill", &["a", "b"]).await;
    kit.run_until_stall(&kit.engine).await;
    cancel(&kit, id).await;
    kit.expire_lease();
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "a clean");
    was_cancelled(&kit, id).await;
}

#[tokio::test]
async fn a_verb_that_the_phase_does_not_accept_is_refused_with_the_phase() {
    let kit = Kit::new();
    let id = kit.start("drill", &["a"]).await;
    let refused = |verb| {
        let engine = kit.engine.clone();
        async move { engine.verb(id, verb, "ann", "").await.unwrap_err().to_string() }
    };
    assert_eq!(refused(Verb::Resume).await, "cannot resume a run that is queued");
    kit.run_until_idle().await;
    assert_eq!(refused(Verb::Cancel).await, "cannot cancel a run that is ended");
    assert_eq!(refused(Verb::Hold).await, "cannot hold a run that is ended");
    let unknown = kit.engine.verb(RunId::new(), Verb::Cancel, "ann", "").await;
    assert!(matches!(unknown, Err(VerbError::Verb(VerbRefused::NoRun))));
}

#[tokio::test]
async fn hold_and_resume_of_queued_and_waiting_runs() {
    for claimed_first in [false, true] {
        let kit = Kit::new();
        kit.script("a", [Act::Await("report")]);
        let id = kit.start("drill", &["a"]).await;
        if claimed_first {
            kit.run_until_idle().await;
        }
        kit.engine.verb(id, Verb::Hold, "ann", "audit").await.unwrap();
        let run = kit.run(id).await;
        assert_eq!((run.phase, run.hold.unwrap().detail.as_str()), (Phase::Held, "held by ann: audit"));
        // A signal to a held run is stored.
        kit.report(id).await;
        kit.pass(3).await;
        assert_eq!(kit.run(id).await.phase, Phase::Held);
        kit.engine.verb(id, Verb::Resume, "ann", "").await.unwrap();
        kit.run_until_idle().await;
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
    assert_eq!(kit.run_until_idle().await, 0, "a hold has no deadline");
    kit.engine.verb(id, Verb::Resume, "ann", "").await.unwrap();
    kit.pass(10).await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn a_run_that_is_overdue_when_claimed_fails_and_never_starts() {
    let kit = Kit::new();
    let id = kit.start("drill", &["a"]).await;
    // An early signal does not change that.
    kit.report(id).await;
    kit.clock.advance(Duration::from_secs(3600));
    kit.run_until_idle().await;
    assert_eq!(kit.calls(), "clean");
    assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "deadline".to_owned()));
}

#[tokio::test]
async fn a_run_queued_for_a_lock_fails_at_its_deadline() {
    let kit = Kit::new();
    kit.script("a", [Act::Hold]);
    let locks = vec![LockRequest { resource: "rack".to_owned(), capacity: 1, on_conflict: OnConflict::Wait }];
    let run = |step: &str| NewRun { locks: locks.clone(), ..new_run("drill", &[step], kit.now()) };
    kit.start_run(run("a")).await;
    let stuck = kit.start_run(run("b")).await;
    kit.run_until_idle().await;
    kit.clock.advance(Duration::from_secs(3600));
    kit.run_until_idle().await;
    assert_eq!(
        (kit.ended(stuck).await, kit.class(stuck).await),
        (Some(Outcome::Failed), "deadline".to_owned())
    );
    assert_eq!(kit.calls(), "a clean");
}

#[tokio::test]
async fn a_waiting_run_fails_at_its_deadline_but_a_signal_in_time_comes_first() {
    for signalled in [false, true] {
        let kit = Kit::new();
        // The delivery of `word` does not end the step: a worker must call it, and none does before the deadline.
        kit.script("a", [Act::Await("word")]);
        let deadline_at = kit.now().plus(Duration::from_secs(50));
        let id = kit.start_run(NewRun { deadline_at, ..new_run("drill", &["a"], kit.now()) }).await;
        kit.run_until_idle().await;
        assert_eq!(
            kit.run(id).await.next_run_at,
            Some(deadline_at),
            "a wait ends at the deadline of its run at the latest"
        );
        kit.clock.advance(Duration::from_secs(49));
        if signalled {
            kit.signal(id, "word", "1", json!({})).await;
        }
        kit.clock.advance(Duration::from_secs(1));
        kit.run_until_idle().await;
        let expected = if signalled { Outcome::Succeeded } else { Outcome::Failed };
        assert_eq!(kit.ended(id).await, Some(expected));
    }
}

#[tokio::test]
async fn cleanup_has_a_deadline_and_names_what_remains() {
    let kit = Kit::new();
    kit.script("clean", vec![Act::Await("never")]);
    kit.script("undo a", vec![Act::Retry; 10_000]);
    for (workflow, left) in [("drill", "clean"), ("undoing", "undo a, clean")] {
        kit.script("b", [Act::Fail]);
        let id = kit.start(workflow, &["a", "b"]).await;
        // A signal that no step acts on does not extend the cleanup.
        kit.signal(id, "gossip", "1", json!(1)).await;
        kit.run_until_idle().await;
        assert!(!kit.run(id).await.phase.is_forward());
        kit.clock.advance(Duration::from_secs(600));
        kit.run_until_idle().await;
        assert_eq!((kit.ended(id).await, kit.class(id).await), (Some(Outcome::Failed), "broken".to_owned()));
        let last = kit.engine.store().last_events(id, 1).await.unwrap().remove(0);
        assert!(last.message.contains(&format!("not cleaned up: {left}")), "{}", last.message);
        assert_eq!(kit.count(id, "run.finish-deadline").await, 1);
    }
}

#[tokio::test]
async fn a_finish_step_that_runs_past_the_deadline_runs_at_every_end() {
    let kit = Kit::new();
    kit.script("b", [Act::Fail]);
    kit.script("clean", [Act::Await("never")]);
    let mut run = new_run("drill", &["a", "b"], kit.now());
    let past_deadline = StepInstance { name: "always".into(), ..run.plan.finish[0].clone() };
    run.plan.finish.push(past_deadline);
    let id = kit.start_run(run).await;
    kit.run_until_idle().await;
    kit.clock.advance(Duration::from_secs(6000));
    kit.run_until_idle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Failed));
    assert!(kit.calls().ends_with("always"), "{}", kit.calls());
    let last = kit.engine.store().last_events(id, 1).await.unwrap().remove(0);
    assert!(last.message.ends_with("not cleaned up: clean"), "{}", last.message);
}

/// A regression: a controller that stood still three times gave the last step of a job up, and what it leaves to the server was not
/// recorded.
#[tokio::test]
async fn the_last_step_of_a_finish_list_is_tried_for_a_day() {
    let kit = Kit::new();
    kit.script("always", vec![Act::Retry; 100]);
    let mut run = new_run("drill", &["a"], kit.now());
    run.plan.finish = vec![StepInstance { name: "always".into(), ..run.plan.finish[0].clone() }];
    let id = kit.start_run(run).await;
    let mut before = 0;
    for minute in 0..110 {
        kit.run_until_idle().await;
        kit.clock.advance(Duration::from_secs(70));
        // Also when the time of the finish list has passed: the first attempts have short pauses, the others a minute.
        let retries = kit.count(id, "step.retry").await;
        assert!(
            minute == 0 || retries - before <= 8,
            "{retries} attempts after {minute} minutes, before {before}"
        );
        before = retries;
    }
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    assert_eq!(kit.count(id, "step.gave-up").await, 0);
    assert_eq!(
        kit.snapshot(id).await.records_of(&"always".into()).map(|record| record.attempt).max(),
        Some(101)
    );
}
