//! Starts, permits, and gates: a gate stops only runs that have not started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::kit::{Act, Disk, Kit, new_run};
use crate::PressureGauge;
use model::{Condition, GateClosure, NewEvent, NewRun, Outcome, Phase, RunId, Server, Verb, permit_resource};
use store::TakeOver;

fn closed(kit: &Kit) -> GateClosure {
    GateClosure { since: kit.now(), by: "ann".to_owned(), reason: "upgrade".to_owned() }
}

async fn cancel(kit: &Kit, id: RunId) {
    kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
}

#[tokio::test]
async fn a_drained_controller_starts_no_run_and_ends_started_runs() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("report")]);
    let started = kit.start("drill", &["a", "b"]).await;
    kit.run_until_idle().await;
    assert_eq!(kit.engine.store().drain(closed(&kit)).await.unwrap(), (closed(&kit), true));
    let waiting = kit.start("drill", &["c"]).await;
    let cancelled = kit.start("drill", &["d"]).await;
    let overdue =
        NewRun { deadline_at: kit.now().plus(Duration::from_secs(9)), ..new_run("drill", &["e"], kit.now()) };
    let overdue = kit.start_run(overdue).await;
    assert_eq!(kit.run_until_idle().await, 0);
    assert_eq!(
        kit.engine.store().next_due(&["default".to_owned()]).await.unwrap(),
        Some(kit.run(overdue).await.deadline_at)
    );
    let why = kit.explain(waiting).await;
    assert_eq!((why.condition, why.reason.as_deref()), (Condition::Gated, Some("drain")));
    assert!(why.summary.contains("upgrade") && why.next_action.contains("undrain"), "{why:?}");
    // A signal is accepted and a started run continues; a cancel and a deadline take effect.
    kit.report(started).await;
    cancel(&kit, cancelled).await;
    kit.clock.advance(Duration::from_secs(9));
    kit.run_until_idle().await;
    assert_eq!(kit.ended(started).await, Some(Outcome::Succeeded));
    assert_eq!(kit.ended(cancelled).await, Some(Outcome::Cancelled));
    assert_eq!(kit.class(overdue).await, "deadline");
    assert_eq!(kit.run(waiting).await.phase, Phase::Queued);
    // Another controller instance on this database is drained too; a second drain changes nothing.
    let next = kit.engine("two", "default");
    assert_eq!(next.run_until_idle().await.unwrap(), 0);
    assert!(!next.store().drain(GateClosure { by: "bob".to_owned(), ..closed(&kit) }).await.unwrap().1);
    assert_eq!(next.store().drained().await.unwrap().unwrap().by, "ann");
    assert!(next.store().undrain("bob", kit.now()).await.unwrap().is_some());
    assert!(next.store().undrain("bob", kit.now()).await.unwrap().is_none());
    next.run_until_idle().await.unwrap();
    assert_eq!(kit.ended(waiting).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn maintenance_of_a_server_stops_only_its_own_jobs_from_starting() {
    let kit = Kit::new();
    let mut servers = Vec::new();
    for name in ["S-1", "S-2"] {
        let server = Server::unknown(name.parse().unwrap(), kit.now());
        servers.push(server.serial.clone());
        kit.engine.store().create_server(server, NewEvent::info("server.created", "x")).await.unwrap();
    }
    let store = kit.engine.store();
    store.set_maintenance(&servers[0], Some(closed(&kit)), "ann", kit.now()).await.unwrap();
    let on =
        |index: usize| NewRun { server: Some(servers[index].clone()), ..new_run("drill", &["a"], kit.now()) };
    let (kept, other) = (kit.start_run(on(0)).await, kit.start_run(on(1)).await);
    kit.run_until_idle().await;
    assert_eq!(kit.ended(other).await, Some(Outcome::Succeeded));
    assert_eq!(kit.run(kept).await.phase, Phase::Queued);
    let why = kit.explain(kept).await;
    assert_eq!((why.condition, why.reason.as_deref()), (Condition::Gated, Some("maintenance")));
    assert!(why.next_action.contains("S-1"), "{why:?}");
    store.set_maintenance(&servers[0], None, "ann", kit.now()).await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.ended(kept).await, Some(Outcome::Succeeded));
    // A run that has started continues.
    kit.script("a", [Act::Await("report")]);
    let started = kit.start_run(on(0)).await;
    kit.run_until_idle().await;
    store.set_maintenance(&servers[0], Some(closed(&kit)), "ann", kit.now()).await.unwrap();
    kit.report(started).await;
    kit.run_until_idle().await;
    assert_eq!(kit.ended(started).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn under_pressure_no_run_starts_and_the_gate_names_the_shortage() {
    let kit = Kit::new();
    let disk = Arc::new(Disk(AtomicBool::new(true)));
    kit.engine.gauge(Arc::clone(&disk) as Arc<dyn PressureGauge>);
    let id = kit.start("drill", &["a"]).await;
    assert_eq!(kit.run_until_idle().await, 0);
    let why = kit.explain(id).await;
    assert_eq!((why.condition, why.reason.as_deref()), (Condition::Gated, Some("disk")));
    assert!(why.summary.contains("3 MiB") && why.next_action == "make room", "{why:?}");
    disk.0.store(false, Ordering::SeqCst);
    assert_eq!(kit.run_until_idle().await, 0, "the last reading of the gauge is still valid");
    kit.pass(6).await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Succeeded));
    assert_eq!(kit.engine.pressure(), None);
}

#[tokio::test]
async fn a_permit_is_acquired_within_a_run_and_passes_to_the_next_run_when_released() {
    let kit = Kit::new();
    kit.script("gate", [Act::Permit, Act::Permit, Act::Permit]);
    kit.script("b", [Act::Await("report"), Act::Await("report"), Act::Await("report")]);
    let mut runs = Vec::new();
    for priority in [0, 0, 9] {
        let run = NewRun { priority, ..new_run("drill", &["a", "gate", "b"], kit.now()) };
        runs.push(kit.start_run(run).await);
        kit.clock.advance(Duration::from_secs(1));
        kit.run_until_idle().await;
    }
    assert_eq!(kit.run(runs[0]).await.step.as_deref(), Some("b"), "the first run has its permit at once");
    let why = kit.explain(runs[1]).await;
    assert_eq!(why.condition, Condition::Waiting);
    assert!(why.summary.contains("1 in use") && why.summary.contains("position 2 of 2"), "{why:?}");
    assert!(why.summary.contains(&runs[0].to_string()), "{why:?}");
    assert!(
        kit.explain(runs[2]).await.summary.contains("position 1 of 2"),
        "a higher priority is served first"
    );
    // The end of the forward stage releases the permit, whatever the outcome is.
    cancel(&kit, runs[0]).await;
    kit.run_until_idle().await;
    assert_eq!(kit.run(runs[2]).await.step.as_deref(), Some("b"));
    assert_eq!(kit.run(runs[1]).await.step.as_deref(), Some("gate"));
    // A permit can be released earlier too.
    kit.engine.store().release_permit(runs[2], &permit_resource("gate"), kit.now()).await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.run(runs[1]).await.step.as_deref(), Some("b"));
    for run in &runs[1..] {
        kit.report(*run).await;
    }
    kit.run_until_idle().await;
    assert_eq!(kit.ended(runs[1]).await, Some(Outcome::Succeeded));
    let left: i64 = kit.outside_view().query_row("SELECT count(*) FROM locks", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_run_that_released_its_permit_queues_again_for_a_later_step() {
    let kit = Kit::new();
    kit.script("gate", [Act::Permit, Act::Permit]);
    kit.script("b", [Act::Await("report"), Act::Done, Act::Await("report")]);
    kit.script("again", [Act::Permit]);
    let first = kit.start("drill", &["gate", "b", "again"]).await;
    kit.run_until_idle().await;
    kit.engine.store().release_permit(first, &permit_resource("gate"), kit.now()).await.unwrap();
    let second = kit.start("drill", &["gate", "c"]).await;
    kit.script("c", [Act::Await("report")]);
    kit.run_until_idle().await;
    assert_eq!(kit.run(second).await.step.as_deref(), Some("c"));
    kit.report(first).await;
    kit.run_until_idle().await;
    assert_eq!(kit.run(first).await.step.as_deref(), Some("again"), "the permit is held by the second run");
    cancel(&kit, second).await;
    kit.run_until_idle().await;
    assert_eq!(kit.ended(first).await, Some(Outcome::Succeeded));
}

#[tokio::test]
async fn the_time_in_a_permit_queue_counts_against_the_runs_deadline_not_the_steps_budget() {
    let kit = Kit::new();
    kit.script("gate", [Act::Permit, Act::Permit, Act::Retry]);
    kit.script("b", [Act::Await("report")]);
    let first = kit.start("drill", &["gate", "b"]).await;
    let second = kit.start("drill", &["gate"]).await;
    let third = NewRun {
        deadline_at: kit.now().plus(Duration::from_secs(60)),
        ..new_run("drill", &["gate"], kit.now())
    };
    let third = kit.start_run(third).await;
    kit.run_until_idle().await;
    kit.clock.advance(Duration::from_secs(200));
    kit.run_until_idle().await;
    assert_eq!(
        (kit.ended(third).await, kit.class(third).await),
        (Some(Outcome::Failed), "deadline".to_owned())
    );
    kit.script("gate", [Act::Retry]);
    cancel(&kit, first).await;
    kit.run_until_idle().await;
    kit.pass(3).await;
    assert_eq!(kit.ended(second).await, Some(Outcome::Succeeded), "the budget starts with the permit");
}

#[tokio::test]
async fn a_cancelled_run_does_not_wait_for_a_free_worker() {
    let kit = Kit::new();
    kit.script("w", [Act::Await("report")]);
    let parked = kit.start("drill", &["w"]).await;
    kit.run_until_idle().await;
    kit.script("a", vec![Act::Stall; 4]);
    for _ in 0..4 {
        kit.start("drill", &["a"]).await;
    }
    let stop = CancellationToken::new();
    let engine = kit.engine.clone();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { engine.run(TakeOver::ExpiredOnly, stop).await }
    });
    let mut commits = kit.engine.store().commits();
    while kit.engine.active_runs() < 4 {
        commits.changed().await.unwrap();
    }
    cancel(&kit, parked).await;
    while kit.run(parked).await.phase != Phase::Ended {
        commits.changed().await.unwrap();
    }
    // The end is durable shortly before the worker returns.
    while kit.engine.active_runs() > 4 {
        tokio::task::yield_now().await;
    }
    assert_eq!(kit.engine.active_runs(), 4, "all other workers are still busy");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn an_uninterruptible_step_that_does_not_return_is_dropped_after_the_cancel_grace() {
    let kit = Kit::new();
    kit.script("solid", [Act::Stall]);
    let id = kit.start("drill", &["solid"]).await;
    kit.run_while(async {
        kit.world.stalled.notified().await;
        cancel(&kit, id).await;
        let why = kit.explain(id).await;
        assert_eq!((why.condition, why.uninterruptible.as_deref()), (Condition::Cancelling, Some("solid")));
        assert!(why.ends_by.contains("30 s"), "{why:?}");
    })
    .await;
    assert_eq!((kit.calls().as_str(), kit.ended(id).await), ("solid clean", Some(Outcome::Cancelled)));
}

#[tokio::test]
async fn a_cancelled_step_starts_no_further_effect() {
    let kit = Kit::new();
    kit.script("solid", [Act::WaitForGo]);
    let id = kit.start("drill", &["solid", "b"]).await;
    let meanwhile = async {
        kit.world.stalled.notified().await;
        cancel(&kit, id).await;
        kit.world.go.notify_one();
    };
    tokio::join!(kit.run_until_idle(), meanwhile);
    assert_eq!(*kit.world.lease_allowed.lock().unwrap(), [false]);
    assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
}

#[tokio::test]
async fn cancel_of_a_parent_ends_its_children_in_every_state() {
    for (act, held) in
        [(Act::Await("report"), false), (Act::Await("report"), true), (Act::Hold, false), (Act::Retry, false)]
    {
        let kit = Kit::new();
        kit.script("p", [Act::Child("tiny", json!({ "forward": ["c", "d"] }))]);
        kit.script("q", [Act::Await("child.never")]);
        kit.script("c", [act.clone()]);
        let parent = kit.start("drill", &["p", "q"]).await;
        kit.run_until_idle().await;
        let child = child_of(&kit, parent);
        if held {
            kit.engine.verb(child, Verb::Hold, "bob", "").await.unwrap();
        }
        cancel(&kit, parent).await;
        kit.run_until_idle().await;
        assert_eq!(kit.ended(parent).await, Some(Outcome::Cancelled));
        assert_eq!(kit.ended(child).await, Some(Outcome::Cancelled), "{act:?} {held}");
        let failure = kit.run(child).await.failure.unwrap();
        assert!(failure.summary.contains(&parent.to_string()), "{failure:?}");
        assert!(!kit.outside().contains('d'));
    }
}

#[tokio::test]
async fn cancel_of_a_parent_interrupts_a_running_child_and_one_that_never_started() {
    let kit = Kit::new();
    kit.script("p", [Act::Child("tiny", json!({ "forward": ["c", "d"] }))]);
    kit.script("q", [Act::Await("child.never")]);
    kit.script("c", [Act::Stall]);
    let parent = kit.start("drill", &["p", "q"]).await;
    let meanwhile = async {
        kit.world.stalled.notified().await;
        cancel(&kit, parent).await;
    };
    tokio::join!(kit.run_until_idle(), meanwhile);
    assert_eq!(kit.ended(child_of(&kit, parent)).await, Some(Outcome::Cancelled));
    assert_eq!(kit.ended(parent).await, Some(Outcome::Cancelled));

    kit.engine.store().drain(closed(&kit)).await.unwrap();
    kit.engine.store().undrain("ann", kit.now()).await.unwrap();
    kit.script("p", [Act::Child("tiny", json!({ "forward": ["e@elsewhere"] }))]);
    kit.script("q", [Act::Await("child.never")]);
    let parent = kit.start("drill", &["p", "q"]).await;
    kit.run_until_idle().await;
    kit.engine.store().drain(closed(&kit)).await.unwrap();
    cancel(&kit, parent).await;
    kit.run_until_idle().await;
    kit.engine("two", "elsewhere").run_until_idle().await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.ended(child_of(&kit, parent)).await, Some(Outcome::Cancelled));
}

fn child_of(kit: &Kit, parent: RunId) -> RunId {
    let sql = "SELECT id FROM runs WHERE parent = ?1";
    let id: String = kit.outside_view().query_row(sql, [parent.to_string()], |row| row.get(0)).unwrap();
    id.parse().unwrap()
}

#[tokio::test]
async fn an_unreadable_row_is_held_with_the_reason_and_blocks_no_other_run() {
    for (table, column) in
        [("runs", "wait"), ("runs", "deadline_at"), ("run_inputs", "plan"), ("run_steps", "output")]
    {
        let kit = Kit::new();
        kit.script("a", [Act::Await("word")]);
        let broken = kit.start("drill", &["a", "b"]).await;
        kit.run_until_idle().await;
        let key = if table == "runs" { "id" } else { "run" };
        let before: String = kit
            .outside_view()
            .query_row(
                &format!("SELECT {column} FROM {table} WHERE {key} = ?1"),
                [broken.to_string()],
                |row| row.get(0),
            )
            .unwrap();
        let set = |value: &str| {
            let sql = format!("UPDATE {table} SET {column} = ?2 WHERE {key} = ?1");
            kit.outside_view().execute(&sql, [&broken.to_string(), value]).unwrap();
        };
        set("{nonsense");
        let due = "UPDATE runs SET next_run_at = ?1 WHERE phase = 'waiting'";
        kit.outside_view().execute(due, [kit.now().to_string()]).unwrap();
        let well = kit.start("drill", &["c"]).await;
        kit.run_until_idle().await;
        assert_eq!(kit.ended(well).await, Some(Outcome::Succeeded), "{column}");
        let unreadable = kit.engine.store().unreadable(broken).await.unwrap().unwrap();
        assert!(unreadable.hold.detail.contains(column) || table != "runs", "{unreadable:?}");
        let why = crate::unreadable(&unreadable.hold);
        super::explain::sane(&why);
        assert_eq!(kit.count(broken, "run.held").await, 1);
        // The row is still unreadable: it is held again. A wait that could not be read is removed, and the step asks for it again.
        kit.engine.verb(broken, Verb::Resume, "ann", "").await.unwrap();
        kit.run_until_idle().await;
        if column != "wait" {
            assert!(kit.engine.store().unreadable(broken).await.unwrap().is_some(), "{column}");
            set(&before);
            kit.engine.verb(broken, Verb::Resume, "ann", "").await.unwrap();
            kit.run_until_idle().await;
        }
        kit.signal(broken, "word", "1", json!({})).await;
        kit.run_until_idle().await;
        assert_eq!(kit.ended(broken).await, Some(Outcome::Succeeded), "{column}");
    }
}

#[tokio::test]
async fn an_unreadable_row_can_be_ended_and_releases_its_locks() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("word")]);
    let locks = || {
        let resource = "rack".to_owned();
        vec![model::LockRequest { resource, capacity: 1, on_conflict: model::OnConflict::Wait }]
    };
    let broken = kit.start_run(NewRun { locks: locks(), ..new_run("drill", &["a"], kit.now()) }).await;
    kit.run_until_idle().await;
    let next = kit.start_run(NewRun { locks: locks(), ..new_run("drill", &["c"], kit.now()) }).await;
    let sql = "UPDATE runs SET deadline_at = 'never', next_run_at = ?2 WHERE id = ?1";
    kit.outside_view().execute(sql, [broken.to_string(), kit.now().to_string()]).unwrap();
    kit.run_until_idle().await;
    kit.engine.verb(broken, Verb::Cancel, "ann", "").await.unwrap();
    let phase: String = kit
        .outside_view()
        .query_row("SELECT phase FROM runs WHERE id = ?1", [broken.to_string()], |row| row.get(0))
        .unwrap();
    assert_eq!(phase, "ended");
    kit.run_until_idle().await;
    assert_eq!(kit.ended(next).await, Some(Outcome::Succeeded));
}
