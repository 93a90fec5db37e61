//! Deadlines: fixed when a wait begins, and judged after an outage only when the awaited message could be repeated.

use std::time::Duration;

use serde_json::json;

use super::kit::{Act, Kit, new_run};
use crate::outage::REPORT_INTERVAL;
use crate::{Engine, SignalDelivery};
use model::{EventLevel, NewRun, Outcome, Phase, RunId, Time};
use store::{EventFilter, TakeOver};

const WITHIN: Duration = Duration::from_secs(300);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Makes every waiting run due, as a controller does when it starts.
async fn wake_all(kit: &Kit, engine: &Engine) {
    engine.store().take_over(TakeOver::Everything, kit.now()).await.unwrap();
    kit.clock.advance(Duration::from_millis(1));
    engine.run_until_idle().await.unwrap();
}

#[tokio::test]
async fn the_deadline_of_a_wait_stays_when_the_setting_behind_it_changes() {
    for changed in [seconds(10), seconds(3000)] {
        let kit = Kit::new();
        kit.script("a", [Act::AwaitReportWithin(WITHIN)]);
        let id = kit.start("drill", &["a"]).await;
        kit.run_until_idle().await;
        let promised = kit.run(id).await.wait.unwrap().deadline;
        assert_eq!(promised, kit.now().plus(WITHIN));
        // The next program has another value of the setting.
        kit.script("a", [Act::AwaitReportWithin(changed)]);
        kit.clock.advance(seconds(20));
        wake_all(&kit, &kit.engine).await;
        let wait = kit.run(id).await.wait.expect("the wait is not over");
        assert_eq!(wait.deadline, promised, "{changed:?}");
        kit.clock.advance(WITHIN - seconds(21));
        kit.run_until_idle().await;
        assert_eq!(kit.run(id).await.phase, Phase::Waiting, "{changed:?}");
        kit.clock.advance(seconds(1));
        kit.run_until_idle().await;
        assert_eq!(
            (kit.ended(id).await, kit.class(id).await),
            (Some(Outcome::Failed), "deadline".to_owned())
        );
    }
}

/// A run that waits for a report, the engine of the next instance after an outage, and the time of its start.
struct AfterOutage {
    kit: Kit,
    id: RunId,
    next: Engine,
    started: Time,
}

impl AfterOutage {
    /// `alive`: how long the first instance ran. `of_run`: whether the deadline of the run ends the wait, not its own.
    async fn new(act: Act, alive: Duration, outage: Duration, of_run: bool) -> Self {
        let kit = Kit::new();
        let store = kit.engine.store();
        assert_eq!(store.begin_instance("first".to_owned(), kit.now(), None).await.unwrap(), None);
        kit.script("a", vec![act; 20]);
        let own = if of_run { WITHIN } else { seconds(3600) };
        let run = NewRun { deadline_at: kit.now().plus(own), ..new_run("drill", &["a"], kit.now()) };
        let id = kit.start_run(run).await;
        kit.run_until_idle().await;
        kit.clock.advance(alive);
        // The claim that finds nothing due writes the heartbeat. Then the instance is killed.
        kit.run_until_idle().await;
        kit.clock.advance(outage);
        let next = kit.engine("two", "default");
        let started = kit.now();
        let last_seen = next.store().begin_instance("second".to_owned(), started, None).await.unwrap();
        assert_eq!(last_seen, Some(started.minus(outage)));
        let log = next.store().events(EventFilter { run: None, after: 0, limit: 1000 }).await.unwrap();
        let starts: Vec<EventLevel> =
            log.iter().filter(|event| event.kind == "controller.started").map(|event| event.level).collect();
        assert_eq!(starts, [EventLevel::Info, EventLevel::Warn], "the first one did not record its end");
        next.resume_after(last_seen);
        wake_all(&kit, &next).await;
        Self { kit, id, next, started }
    }

    async fn at(&self, time: Time) {
        self.kit.clock.advance(time.since(self.kit.now()));
        self.next.run_until_idle().await.unwrap();
    }
}

#[tokio::test]
async fn a_controller_that_stood_still_over_a_deadline_judges_it_when_the_message_could_be_repeated() {
    for (still, is_spared) in [(seconds(20), false), (seconds(600), true)] {
        let kit = Kit::new();
        kit.script("a", [Act::AwaitReportWithin(WITHIN)]);
        let id = kit.start("drill", &["a"]).await;
        kit.run_until_idle().await;
        kit.clock.advance(seconds(290));
        kit.run_until_idle().await;
        let since = kit.engine.clock().elapsed();
        kit.clock.advance(still);
        kit.engine.woke(since, seconds(15));
        kit.run_until_idle().await;
        let phase = kit.run(id).await.phase;
        assert_eq!(phase == Phase::Waiting, is_spared, "{still:?}: {phase:?}");
        kit.clock.advance(REPORT_INTERVAL);
        kit.run_until_idle().await;
        assert_eq!(kit.ended(id).await, Some(Outcome::Failed), "{still:?}: no report came");
    }
}

#[tokio::test]
async fn after_an_outage_an_overdue_wait_is_judged_only_when_its_message_could_be_repeated() {
    let lengths = [(seconds(20), seconds(20)), (seconds(3), seconds(3)), (seconds(5000), REPORT_INTERVAL)];
    for (outage, granted) in lengths {
        for of_run in [false, true] {
            let act = Act::AwaitReportWithin(if of_run { seconds(3600) } else { WITHIN });
            let after = AfterOutage::new(act, seconds(298), outage, of_run).await;
            let (kit, id, judged_at) = (&after.kit, after.id, after.started.plus(granted));
            let run = kit.run(id).await;
            assert_eq!(
                (run.phase, run.next_run_at),
                (Phase::Waiting, Some(judged_at)),
                "{outage:?} {of_run}"
            );
            assert_eq!(kit.count(id, "wait.outage").await, 1);
            let explained = after.next.explain(&kit.snapshot(id).await).await.unwrap();
            assert_eq!(explained.deadline, Some(judged_at), "{explained:?}");
            assert!(explained.summary.contains("no controller ran from"), "{explained:?}");

            after.at(judged_at.minus(seconds(1))).await;
            assert_eq!(kit.run(id).await.phase, Phase::Waiting, "{outage:?} {of_run}");
            after.at(judged_at).await;
            assert_eq!(kit.ended(id).await, Some(Outcome::Failed), "{outage:?} {of_run}");
            assert_eq!(kit.class(id).await, "deadline");
        }
    }
}

#[tokio::test]
async fn a_message_repeated_after_an_outage_ends_the_wait_although_the_deadline_has_passed() {
    for of_run in [false, true] {
        let after = AfterOutage::new(Act::Await("report"), seconds(298), seconds(20), of_run).await;
        after.at(after.started.plus(seconds(19))).await;
        let snapshot = after.kit.snapshot(after.id).await;
        let payload = json!({ "status": "success" });
        let delivered =
            after.next.deliver(snapshot, "report", "1", payload, Vec::new(), Vec::new()).await.unwrap();
        assert!(matches!(delivered, SignalDelivery::Stored(_)), "{delivered:?}");
        after.next.run_until_idle().await.unwrap();
        assert_eq!(after.kit.ended(after.id).await, Some(Outcome::Succeeded), "{of_run}");
    }
}

#[tokio::test]
async fn a_deadline_after_an_outage_is_judged_in_time_and_one_during_it_too_when_no_message_can_come() {
    // The deadline passes long after the outage.
    let after = AfterOutage::new(Act::Await("report"), seconds(100), seconds(20), false).await;
    let deadline = after.kit.run(after.id).await.wait.unwrap().deadline;
    assert_eq!(after.kit.run(after.id).await.next_run_at, Some(deadline));
    after.at(deadline).await;
    assert_eq!(after.kit.ended(after.id).await, Some(Outcome::Failed));
    assert_eq!(after.kit.count(after.id, "wait.outage").await, 0);
    // The wait polls: after one more call there is nothing to wait for.
    let after = AfterOutage::new(Act::Poll, seconds(15), seconds(60), false).await;
    assert_eq!(after.kit.ended(after.id).await, Some(Outcome::Failed));
}

#[tokio::test]
async fn a_failed_deadline_and_an_explanation_carry_the_remark_of_the_workflow() {
    let kit = Kit::new();
    for of_run in [false, true] {
        kit.script("a", vec![Act::AwaitReportWithin(WITHIN); 4]);
        let own = if of_run { seconds(50) } else { seconds(3600) };
        let run = NewRun { deadline_at: kit.now().plus(own), ..new_run("drill", &["a"], kit.now()) };
        let id = kit.start_run(NewRun { input: json!({ "remark": "a kind" }), ..run }).await;
        kit.run_until_idle().await;
        let explained = kit.explain(id).await;
        assert!(explained.summary.ends_with("; 0 grants of a kind"), "{explained:?}");
        assert_eq!(explained.next_action, "look at the drill");
        kit.clock.advance(WITHIN);
        kit.run_until_idle().await;
        let failure = kit.run(id).await.failure.unwrap();
        assert!(failure.summary.ends_with("; 0 grants of a kind"), "{failure:?}");
        assert_eq!((failure.class.as_str(), failure.next_action.as_str()), ("deadline", "look at the drill"));
        kit.clear_scripts();
    }
}
