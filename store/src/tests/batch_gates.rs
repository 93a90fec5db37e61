//! Batches that stop: canaries first, and no further job after a number of failures, also over a restart.

use super::*;
use crate::{MaintenanceChange, Present};
use model::{Batch, BatchId, BatchStopReason, Failure, Gate, GateClosure};

async fn batch(kit: &Kit, canary: u32, stop_after: Option<u32>) -> BatchId {
    let id = BatchId::new();
    let batch = Batch {
        id,
        idempotency_key: None,
        request_sha256: String::new(),
        total: 9,
        max_parallel: None,
        canary,
        stop_after,
        retry_of: None,
        stop: None,
        filled_at: None,
        created_by: "tester".to_owned(),
        created_at: at(0),
    };
    kit.store.create_batch(batch).await.unwrap();
    id
}

async fn job(kit: &Kit, name: &str, batch: BatchId, canary: bool) -> RunId {
    kit.server(name).await;
    let mut run = new_job(name, at(1), None, name);
    run.request.batch = Some(batch);
    run.request.canary = canary;
    kit.create_run(run).await
}

fn present(second: u64) -> Present {
    Present { now: at(second), pressure: false }
}

async fn claim_all(kit: &Kit, second: u64) -> Vec<RunId> {
    let mut ids: Vec<RunId> =
        kit.claim("w", at(second)).await.iter().map(|claimed| claimed.snapshot.run.id).collect();
    ids.sort();
    ids
}

/// Ends a job with a failure of this summary.
async fn fail(kit: &Kit, id: RunId, summary: &str, now: Time) {
    let old = kit.run(id).await;
    let failure = Failure {
        class: model::class::TRANSIENT,
        step: "one".into(),
        summary: summary.to_owned(),
        detail: None,
        next_action: "look at the network".to_owned(),
    };
    let new = Run {
        phase: Phase::Finishing,
        outcome: Some(Outcome::Failed),
        failure: Some(failure),
        lease: None,
        next_run_at: Some(now.plus(Duration::from_secs(9000))),
        ..old.clone()
    };
    assert!(matches!(kit.commit(RunChange::of(new), &old, now).await, Committed::Applied(_)));
}

async fn succeed(kit: &Kit, id: RunId, now: Time) {
    kit.end(id, Outcome::Succeeded, now).await;
}

async fn stop(kit: &Kit, id: BatchId) -> Option<(BatchStopReason, u32)> {
    let stop = kit.store.batch(id).await.unwrap().unwrap().stop;
    stop.map(|stop| (stop.reason, stop.failures))
}

#[tokio::test]
async fn the_others_start_when_every_canary_has_succeeded() {
    let kit = Kit::new();
    let id = batch(&kit, 2, None).await;
    let canaries = [job(&kit, "A", id, true).await, job(&kit, "B", id, true).await];
    let others = [job(&kit, "C", id, false).await, job(&kit, "D", id, false).await];
    assert_eq!(claim_all(&kit, 10).await, canaries);
    let gate = kit.store.gate(&kit.run(others[0]).await).await.unwrap();
    assert!(
        matches!(gate, Some(Gate::Batch(of, stop)) if of == id && stop.reason == BatchStopReason::Canary)
    );
    succeed(&kit, canaries[0], at(11)).await;
    assert_eq!(claim_all(&kit, 12).await, []);
    // Another process on the same file sees the same gate: it is no memory of this one.
    assert_eq!(claim(&kit.second_store(), "v", 100, at(13)).await.len(), 0);
    succeed(&kit, canaries[1], at(14)).await;
    assert_eq!(stop(&kit, id).await, None);
    assert_eq!(claim_all(&kit, 15).await, others);
    let events = kit.store.events(crate::EventFilter { limit: 100, ..Default::default() }).await.unwrap();
    assert!(events.iter().any(|event| event.kind == "batch.opened"), "{events:?}");
}

#[tokio::test]
async fn a_canary_that_fails_stops_the_batch_until_an_operator_continues_it() {
    for cancelled in [false, true] {
        let kit = Kit::new();
        let id = batch(&kit, 1, None).await;
        let canary = job(&kit, "A", id, true).await;
        let other = job(&kit, "B", id, false).await;
        assert_eq!(claim_all(&kit, 10).await, [canary]);
        match cancelled {
            true => drop(kit.end(canary, Outcome::Cancelled, at(11)).await),
            false => fail(&kit, canary, "no bytes", at(11)).await,
        }
        assert_eq!(stop(&kit, id).await, Some((BatchStopReason::Stopped, u32::from(!cancelled))));
        assert_eq!(claim_all(&kit, 12).await, []);
        let (batch, opened) = kit.store.continue_batch(id, "ann", at(13)).await.unwrap().unwrap();
        assert!(opened && batch.stop.is_none());
        assert_eq!(claim_all(&kit, 14).await, [other]);
        let again = kit.store.continue_batch(id, "ann", at(15)).await.unwrap().unwrap();
        assert!(!again.1, "a batch that does not stop is left as it is");
        assert_eq!(kit.store.continue_batch(BatchId::new(), "ann", at(15)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn after_a_number_of_failures_no_further_job_starts() {
    let kit = Kit::new();
    let id = batch(&kit, 0, Some(2)).await;
    let mut jobs = Vec::new();
    for name in ["A", "B", "C", "D", "E"] {
        jobs.push(job(&kit, name, id, false).await);
    }
    let first = claim(&kit.store, "w", 3, at(10)).await;
    assert_eq!(first.len(), 3);
    fail(&kit, jobs[0], "refused by 10.0.0.1", at(11)).await;
    assert_eq!(stop(&kit, id).await, None);
    fail(&kit, jobs[1], "refused by 10.0.0.2", at(12)).await;
    assert_eq!(stop(&kit, id).await, Some((BatchStopReason::Stopped, 2)));
    assert_eq!(claim_all(&kit, 13).await, [], "jobs that have started continue, no other starts");
    // The count begins again: one more failure after the continue does not stop the batch.
    kit.store.continue_batch(id, "ann", at(14)).await.unwrap().unwrap();
    fail(&kit, jobs[2], "power", at(15)).await;
    assert_eq!(stop(&kit, id).await, None);
    assert_eq!(claim_all(&kit, 16).await, jobs[3..]);

    let failed = kit.store.failed_jobs_of_batch(id, None).await.unwrap();
    let (causes, rest) = model::causes(failed);
    let shown: Vec<(&str, u64)> = causes.iter().map(|cause| (&*cause.summary, cause.jobs)).collect();
    assert_eq!((shown, rest), (vec![("refused by 10.0.0.1", 2), ("power", 1)], 0));
}

#[tokio::test]
async fn a_job_behind_the_gate_is_claimed_at_its_deadline_to_fail() {
    let kit = Kit::new();
    let id = batch(&kit, 1, None).await;
    let canary = job(&kit, "A", id, true).await;
    let other = job(&kit, "B", id, false).await;
    assert_eq!(claim_all(&kit, 10).await, [canary]);
    // The lease of the canary has expired too.
    assert_eq!(claim_all(&kit, 3700).await, [canary, other], "at its deadline, to fail");
}

#[tokio::test]
async fn a_batch_whose_canary_rows_were_all_refused_stops_when_it_is_filled_and_says_why() {
    let kit = Kit::new();
    let id = batch(&kit, 1, None).await;
    let other = job(&kit, "B", id, false).await;
    let filled = kit.store.batch_filled(id, at(2)).await.unwrap().unwrap();
    assert_eq!(filled.filled_at, Some(at(2)));
    assert_eq!(filled.stop.map(|stop| stop.reason), Some(BatchStopReason::Stopped));
    let events = kit.store.events(crate::EventFilter { limit: 100, ..Default::default() }).await.unwrap();
    let stopped: Vec<_> = events.iter().filter(|event| event.kind == "batch.stopped").collect();
    assert_eq!(stopped.len(), 1);
    assert!(stopped[0].message.contains("each of its canary rows was refused"), "{stopped:?}");
    kit.store.continue_batch(id, "ann", at(3)).await.unwrap().unwrap();
    let again = kit.store.batch_filled(id, at(4)).await.unwrap().unwrap();
    assert_eq!((again.stop, again.filled_at), (None, Some(at(2))), "a repetition closes no gate");
    assert_eq!(claim_all(&kit, 5).await, [other]);
}

#[tokio::test]
async fn a_filled_batch_with_a_canary_waits_for_it() {
    let kit = Kit::new();
    let id = batch(&kit, 2, None).await;
    let canary = job(&kit, "A", id, true).await;
    let filled = kit.store.batch_filled(id, at(2)).await.unwrap().unwrap();
    assert_eq!(filled.stop.map(|stop| stop.reason), Some(BatchStopReason::Canary));
    assert_eq!(claim_all(&kit, 3).await, [canary]);
    assert_eq!(kit.store.batch_filled(BatchId::new(), at(4)).await.unwrap(), None);
}

/// A job that also wants permits of these resources.
async fn job_with_permits(kit: &Kit, name: &str, batch: BatchId, canary: bool, resources: &[&str]) -> RunId {
    kit.server(name).await;
    let mut run = new_job(name, at(1), None, name);
    run.locks.extend(resources.iter().map(|resource| lock(resource, OnConflict::Wait)));
    run.request.batch = Some(batch);
    run.request.canary = canary;
    kit.create_run(run).await
}

#[tokio::test]
async fn a_job_behind_the_gate_of_the_canaries_takes_no_permit_from_them() {
    let kit = Kit::new();
    let mut busy = new_run(at(0));
    busy.locks = vec![lock("site/north", OnConflict::Wait)];
    let busy = kit.create_run(busy).await;
    assert_eq!(claim_all(&kit, 2).await, [busy]);
    let id = batch(&kit, 1, None).await;
    let in_progress = id.resource();
    let canary = job_with_permits(&kit, "A", id, true, &[&in_progress, "site/north"]).await;
    let next = job_with_permits(&kit, "B", id, false, &[&in_progress]).await;
    let last = job_with_permits(&kit, "C", id, false, &[&in_progress, "site/north"]).await;
    assert_eq!(claim_all(&kit, 3).await, []);
    kit.end(busy, Outcome::Succeeded, at(4)).await;
    assert_eq!(claim_all(&kit, 5).await, [canary]);
    succeed(&kit, canary, at(6)).await;
    for (run, second) in [(next, 7), (last, 9)] {
        assert_eq!(claim_all(&kit, second).await, [run], "an open gate gives the permits, one at a time");
        succeed(&kit, run, at(second + 1)).await;
    }
    let rows: i64 = kit.outside().query_row("SELECT count(*) FROM locks", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_batch_that_stops_at_its_canary_hands_no_permit_to_the_jobs_behind_it() {
    let kit = Kit::new();
    let id = batch(&kit, 1, None).await;
    let canary = job_with_permits(&kit, "A", id, true, &["site/north"]).await;
    let other = job_with_permits(&kit, "B", id, false, &["site/north"]).await;
    assert_eq!(claim_all(&kit, 2).await, [canary]);
    kit.end(canary, Outcome::Cancelled, at(3)).await;
    let mut elsewhere = new_run(at(4));
    elsewhere.locks = vec![lock("site/north", OnConflict::Wait)];
    let elsewhere = kit.create_run(elsewhere).await;
    assert_eq!(claim_all(&kit, 5).await, [elsewhere], "the permit is not kept idle behind the gate");
    kit.store.continue_batch(id, "ann", at(6)).await.unwrap().unwrap();
    assert_eq!(claim_all(&kit, 7).await, []);
    kit.end(elsewhere, Outcome::Succeeded, at(8)).await;
    assert_eq!(claim_all(&kit, 9).await, [other]);
}

/// Two places for four jobs, two of which are of servers in maintenance, before the jobs are created and after.
#[tokio::test]
async fn jobs_behind_a_maintenance_hold_no_place_that_other_jobs_wait_for() {
    let closed = || GateClosure { since: at(1), by: "ann".to_owned(), reason: String::new() };
    for before in [true, false] {
        let kit = Kit::new();
        for name in ["A", "B", "C", "D"] {
            kit.server(name).await;
        }
        let set = async |name: &str, closed: Option<GateClosure>, second| {
            let change = kit.store.set_maintenance(&serial(name), closed, "ann", at(second)).await.unwrap();
            assert!(matches!(change, MaintenanceChange::Changed(_)));
        };
        let create = async |name: &str, second| {
            let mut run = new_job(name, at(second), None, name);
            let place = LockRequest { capacity: 2, ..lock("site/north", OnConflict::Wait) };
            run.locks.push(place);
            kit.create_run(run).await
        };
        if before {
            set("A", Some(closed()), 1).await;
            set("B", Some(closed()), 1).await;
        }
        let mut jobs = Vec::new();
        for (name, second) in [("A", 1), ("B", 2), ("C", 3), ("D", 4)] {
            jobs.push(create(name, second).await);
        }
        if !before {
            set("A", Some(closed()), 5).await;
            set("B", Some(closed()), 5).await;
        }
        let mut started = claim_all(&kit, 6).await;
        started.extend(claim_all(&kit, 7).await);
        assert_eq!(started, jobs[2..], "in maintenance {before}");
        // After its maintenance a job waits for a place like any other.
        set("A", None, 8).await;
        assert_eq!(claim_all(&kit, 9).await, []);
        kit.end(jobs[2], Outcome::Succeeded, at(10)).await;
        assert_eq!(claim_all(&kit, 11).await, jobs[..1]);
        kit.end(jobs[3], Outcome::Succeeded, at(12)).await;
        assert_eq!(claim_all(&kit, 13).await, []);
        set("B", None, 14).await;
        assert_eq!(claim_all(&kit, 15).await, jobs[1..2]);
    }
}

#[tokio::test]
async fn the_overview_names_what_keeps_queued_jobs_and_the_batches_that_have_stopped() {
    let kit = Kit::new();
    let batch = batch(&kit, 0, Some(1)).await;
    let first = job(&kit, "A", batch, false).await;
    assert_eq!(claim_all(&kit, 2).await, [first]);
    job(&kit, "B", batch, false).await;
    fail(&kit, first, "the network is away", at(3)).await;
    let overview = kit.store.overview(present(4)).await.unwrap();
    let blocked: Vec<(&str, u64)> =
        overview.blocked.iter().map(|group| (group.blocker.as_str(), group.jobs)).collect();
    assert_eq!(blocked, [("batch-stopped", 1)]);
    let stopped: Vec<(BatchId, u64)> =
        overview.stopped.iter().map(|batch| (batch.id, batch.queued)).collect();
    assert_eq!(stopped, [(batch, 1)]);
}

#[tokio::test]
async fn the_overview_counts_the_servers_that_no_job_could_clean_up() {
    let kit = Kit::new();
    for name in ["A", "B", "C"] {
        kit.server(name).await;
    }
    assert_eq!(kit.store.overview(present(4)).await.unwrap().cleanup, None);
    let id = kit.create_run(new_run(at(1))).await;
    kit.end(id, Outcome::Failed, at(3)).await;
    for (serial, job) in [("C", id.to_string()), ("A", "01a205f1-1b43-71f3-9bb7-46f5185387f1".to_owned())] {
        let pending = json!({ "job_id": job, "remaining": ["media.eject"] }).to_string();
        let sql = "INSERT INTO server_observed (serial, pending_cleanup) VALUES (?1, ?2)
                   ON CONFLICT (serial) DO UPDATE SET pending_cleanup = excluded.pending_cleanup";
        kit.outside().execute(sql, [serial, &pending]).unwrap();
    }
    let cleanup = kit.store.overview(present(4)).await.unwrap().cleanup.unwrap();
    assert_eq!((cleanup.servers, cleanup.named), (2, vec![serial("A"), serial("C")]));
    assert_eq!(cleanup.since, Some(at(3)), "the job of A is removed");
}

#[tokio::test]
async fn a_stopped_batch_without_a_queued_job_is_not_in_the_overview() {
    let kit = Kit::new();
    let batch = batch(&kit, 0, Some(1)).await;
    let runs = [job(&kit, "A", batch, false).await, job(&kit, "B", batch, false).await];
    assert_eq!(claim_all(&kit, 2).await.len(), 2);
    fail(&kit, runs[0], "the network is away", at(3)).await;
    assert!(stop(&kit, batch).await.is_some());
    assert_eq!(kit.store.overview(present(4)).await.unwrap().stopped, []);
}

/// Names the blocker of each queued run, which must be the same in the overview and in the gate of the run.
async fn blockers(kit: &Kit, runs: &[RunId]) -> Vec<String> {
    let mut gates = BTreeMap::new();
    let mut names = Vec::new();
    for id in runs {
        let gate = kit.store.gate(&kit.run(*id).await).await.unwrap();
        let name = gate.map_or_else(|| "place".to_owned(), |gate| gate.name().to_owned());
        *gates.entry(name.clone()).or_insert(0) += 1;
        names.push(name);
    }
    let overview = kit.store.overview(present(9)).await.unwrap();
    let shown = overview.blocked.into_iter().map(|group| (group.blocker, group.jobs));
    assert_eq!(shown.collect::<BTreeMap<_, _>>(), gates);
    names
}

#[tokio::test]
async fn the_overview_names_the_gate_that_is_in_front_of_each_queued_job() {
    let kit = Kit::new();
    let closed = || GateClosure { since: at(1), by: "ann".to_owned(), reason: String::new() };
    let batch = batch(&kit, 1, None).await;
    let runs = [job(&kit, "A", batch, true).await, job(&kit, "B", batch, false).await];
    assert_eq!(blockers(&kit, &runs).await, ["place", "batch-canary"]);
    let server = serial("A");
    let change = kit.store.set_maintenance(&server, Some(closed()), "ann", at(2)).await.unwrap();
    assert!(matches!(change, MaintenanceChange::Changed(_)));
    assert_eq!(blockers(&kit, &runs).await, ["maintenance", "batch-canary"]);
    kit.store.drain(closed()).await.unwrap();
    assert_eq!(blockers(&kit, &runs).await, ["drain", "drain"]);
    kit.store.undrain("ann", at(3)).await.unwrap();
    kit.store.set_maintenance(&server, None, "ann", at(3)).await.unwrap();
    assert_eq!(claim_all(&kit, 4).await, [runs[0]]);
    fail(&kit, runs[0], "the network is away", at(5)).await;
    assert_eq!(blockers(&kit, &runs[1..]).await, ["batch-stopped"]);
}

#[tokio::test]
async fn under_pressure_the_overview_names_it_unless_another_gate_is_closed_or_the_job_has_started() {
    let kit = Kit::new();
    let batch = batch(&kit, 1, None).await;
    let canary = job(&kit, "A", batch, true).await;
    job(&kit, "B", batch, false).await;
    let names = async |pressure| {
        let overview = kit.store.overview(Present { pressure, ..present(9) }).await.unwrap();
        let mut names: Vec<String> = overview.blocked.into_iter().map(|group| group.blocker).collect();
        names.sort();
        names
    };
    assert_eq!(names(true).await, ["batch-canary", "pressure"]);
    assert_eq!(names(false).await, ["batch-canary", "place"]);
    kit.outside()
        .execute_batch(&format!(
            "UPDATE runs SET lease_epoch = 1, phase = 'running' WHERE id = '{canary}';
             INSERT INTO locks (resource, root, held, priority, since) VALUES ('permit', '{canary}', 0, 0, '{}');",
            at(3)
        ))
        .unwrap();
    assert_eq!(names(true).await, ["batch-canary", "limit"]);
}

#[tokio::test]
async fn the_overview_tells_a_limit_from_a_server_or_bmc_that_another_job_has() {
    for (resource, expected) in [
        ("batch/01a205f1", "limit"),
        ("site/north", "limit"),
        ("parallel/firmware.install/rack=7", "limit"),
        ("bmc/192.0.2.9", "lock"),
    ] {
        let kit = Kit::new();
        for name in ["A", "B"] {
            kit.server(name).await;
            let mut run = new_job(name, at(1), None, name);
            run.locks.push(lock(resource, OnConflict::Wait));
            kit.create_run(run).await;
        }
        let blocked = kit.store.overview(present(2)).await.unwrap().blocked;
        let mut names: Vec<&str> = blocked.iter().map(|group| group.blocker.as_str()).collect();
        names.sort_unstable();
        let mut both = [expected, "place"];
        both.sort_unstable();
        assert_eq!(names, both, "the first has all of its locks, the second wants {resource}");
    }
}
