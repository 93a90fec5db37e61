//! Random sequences of events: the engine never loses a run, and every run ends once the faults stop.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::explain::sane;
use super::kit::{Act, Kit, new_run};
use super::matrix::run_and_crash;
use model::{LockRequest, NewRun, OnConflict, Phase, RunId, Verb};

/// More polls of a future than any correct work needs: beyond it, the engine spins.
const SPINNING: u32 = 20_000;

#[derive(Clone, Debug)]
enum Event {
    Signal(usize, &'static str, u8),
    Verb(usize, Verb),
    Pass(u64),
    Work,
    Crash(u32),
}

fn event() -> impl Strategy<Value = Event> {
    let name = prop_oneof![Just("report"), Just("word"), Just("gossip")];
    let verb = prop_oneof![1 => Just(Verb::Cancel), 2 => Just(Verb::Hold), 3 => Just(Verb::Resume)];
    prop_oneof![
        3 => (0..2_usize, name, 0..3_u8).prop_map(|(run, name, key)| Event::Signal(run, name, key)),
        2 => (0..2_usize, verb).prop_map(|(run, verb)| Event::Verb(run, verb)),
        3 => prop_oneof![Just(1), Just(5), Just(70), Just(700), Just(3601)].prop_map(Event::Pass),
        4 => Just(Event::Work),
        3 => (0..40_u32).prop_map(Event::Crash),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Done),
        2 => Just(Act::Retry),
        2 => prop_oneof![Just(Act::Await("report")), Just(Act::Await("word"))],
        1 => Just(Act::Poll),
        1 => Just(Act::Skip),
        1 => Just(Act::Fail),
        1 => Just(Act::Hold),
        1 => Just(Act::Extend(vec!["x", "unknown-y"])),
        1 => Just(Act::Child("tiny", json!({ "forward": ["t"] }))),
    ]
}

async fn play(kit: &Kit, runs: &[RunId], event: &Event) {
    match event {
        Event::Signal(run, name, key) => {
            let status = if *key == 2 { "failed" } else { "success" };
            kit.signal(runs[*run], name, &key.to_string(), json!({ "status": status })).await;
        }
        // A verb that the phase does not accept is refused.
        Event::Verb(run, verb) => drop(kit.engine.verb(runs[*run], *verb, "ann", "").await),
        Event::Pass(seconds) => kit.clock.advance(Duration::from_secs(*seconds)),
        Event::Work => assert!(run_and_crash(kit, SPINNING).await, "the engine spins"),
        Event::Crash(polls) => drop(run_and_crash(kit, *polls).await),
    }
}

/// Every run that has not ended is held by an operator or due at a known time.
fn check(kit: &Kit) -> Result<(), TestCaseError> {
    let view = kit.outside_view();
    let count = |sql: &str| view.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    prop_assert_eq!(
        count("SELECT count(*) FROM runs WHERE phase NOT IN ('ended', 'held') AND next_run_at IS NULL"),
        0
    );
    prop_assert_eq!(
        count("SELECT count(*) FROM runs WHERE phase IN ('ended', 'held') AND next_run_at IS NOT NULL"),
        0
    );
    prop_assert_eq!(
        count("SELECT count(*) FROM runs WHERE phase IN ('ended', 'held') AND lease_owner IS NOT NULL"),
        0
    );
    prop_assert_eq!(
        count("SELECT count(*) FROM runs WHERE (lease_owner IS NULL) <> (lease_expires_at IS NULL)"),
        0
    );
    prop_assert_eq!(count("SELECT count(*) FROM runs WHERE phase = 'running' AND lease_owner IS NULL"), 0);
    prop_assert_eq!(
        count("SELECT count(*) FROM runs WHERE phase IN ('finishing', 'unwinding') AND outcome IS NULL"),
        0
    );
    prop_assert_eq!(
        count("SELECT count(*) FROM locks JOIN runs ON runs.id = locks.root WHERE phase = 'ended'"),
        {
            // A run tree keeps its locks after the end of its root only while a child has not ended.
            count(
            "SELECT count(*) FROM locks JOIN runs ON runs.id = locks.root WHERE phase = 'ended'
             AND EXISTS (SELECT 1 FROM runs AS child WHERE child.root = locks.root AND child.phase <> 'ended')",
        )
        }
    );
    Ok(())
}

async fn scenario(
    workflows: [&'static str; 2],
    scripts: &[(&'static str, Vec<Act>)],
    events: &[Event],
) -> Result<(), TestCaseError> {
    let kit = Kit::new();
    for (step, acts) in scripts {
        kit.script(step, acts.clone());
    }
    let mut runs = Vec::new();
    for workflow in workflows {
        let locks =
            vec![LockRequest { resource: "rack".to_owned(), capacity: 1, on_conflict: OnConflict::Wait }];
        runs.push(kit.start_run(NewRun { locks, ..new_run(workflow, &["a", "b"], kit.now()) }).await);
    }
    for event in events {
        play(&kit, &runs, event).await;
        check(&kit)?;
        for run in &runs {
            sane(&kit.explain(*run).await);
        }
    }
    kit.clear_scripts();
    for _ in 0..12 {
        for run in &runs {
            let phase = kit.run(*run).await.phase;
            if phase == Phase::Held {
                // An unknown step stays unknown: only a cancel ends such a run.
                kit.engine.verb(*run, Verb::Cancel, "ann", "").await.unwrap();
            }
        }
        kit.expire_lease();
        prop_assert!(run_and_crash(&kit, SPINNING).await, "the engine spins");
        check(&kit)?;
    }
    let view = kit.outside_view();
    let open: i64 =
        view.query_row("SELECT count(*) FROM runs WHERE phase <> 'ended'", [], |row| row.get(0)).unwrap();
    prop_assert_eq!(open, 0, "everything ends once faults stop");
    let locks: i64 = view.query_row("SELECT count(*) FROM locks", [], |row| row.get(0)).unwrap();
    prop_assert_eq!(locks, 0);
    let twice: i64 = view
        .query_row(
            "SELECT count(*) FROM (SELECT run FROM events WHERE type = 'run.ended' GROUP BY run HAVING count(*) > 1)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    prop_assert_eq!(twice, 0, "a run ends once");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_events_makes_the_engine_lose_or_spin_on_a_run(
        workflows in prop_oneof![Just(["drill", "drill"]), Just(["drill", "undoing"]), Just(["undoing", "undoing"])],
        a in prop::collection::vec(act(), 0..6),
        b in prop::collection::vec(act(), 0..6),
        clean in prop::collection::vec(act(), 0..3),
        undo in prop::collection::vec(act(), 0..4),
        events in prop::collection::vec(event(), 0..30),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let scripts = [("a", a), ("b", b), ("clean", clean), ("undo a", undo)];
        runtime.block_on(scenario(workflows, &scripts, &events))?;
    }
}
