//! Signals, children, the rows of jobs, grants and the event log.

use super::*;
use crate::{CANCEL, CausedByReads, DeliverOutcome, EventFilter, JobFilter};
use model::filter::Subject;
use model::{
    Artifact, Failure, Filter, GateClosure, Grant, GrantReads, JobStatus, JsonText, Lease, PullGrant,
    StepName,
};

#[tokio::test]
async fn a_signal_is_stored_once_and_wakes_only_a_run_that_waits_for_it() {
    let kit = Kit::new();
    let id = kit.create_run(new_run(at(0))).await;
    let run = kit.claim_one("a", at(1)).await.run;
    kit.commit(RunChange::of(waiting_for(&run, "report", at(1))), &run, at(1)).await;
    let deliver = |signal: Signal, second| {
        let store = kit.store.clone();
        async move {
            store.deliver(id, signal, vec![NewEvent::info("noted", "x")], None, at(second)).await.unwrap()
        }
    };
    let DeliverOutcome::Stored(run) = deliver(signal("progress", "1"), 2).await else { panic!() };
    assert_eq!(run.next_run_at, Some(run.deadline_at), "the run does not wait for progress");
    let DeliverOutcome::Stored(run) = deliver(signal("report", "1"), 3).await else { panic!() };
    assert_eq!(run.next_run_at, Some(at(3)));
    let DeliverOutcome::Duplicate(earlier) =
        deliver(Signal { payload: json!(2), ..signal("report", "1") }, 4).await
    else {
        panic!()
    };
    assert_eq!(earlier.payload, json!({ "said": "1" }));
    assert_eq!(kit.store.signals(id).await.unwrap().len(), 2);
    assert_eq!(
        kit.store.last_events(id, 9).await.unwrap().iter().filter(|event| event.kind == "noted").count(),
        2
    );
    let unknown =
        kit.store.deliver(RunId::new(), signal("report", "1"), Vec::new(), None, at(5)).await.unwrap();
    assert_eq!(unknown, DeliverOutcome::NoRun);
}

#[tokio::test]
async fn a_signal_with_its_change_is_one_transaction_or_is_computed_again() {
    let kit = Kit::new();
    let id = kit.create_run(new_run(at(0))).await;
    let run = kit.claim_one("a", at(1)).await.run;
    kit.commit(RunChange::of(waiting_for(&run, "report", at(1))), &run, at(1)).await;
    let old = kit.run(id).await;
    let change =
        RunChange::of(Run { wait: None, next_run_at: Some(at(2)), step: Some("two".into()), ..old.clone() });
    let stale = model::RunVersion { revision: old.revision - 1, ..old.version() };
    let moved = kit
        .store
        .deliver(id, signal("report", "1"), Vec::new(), Some((change.clone(), stale)), at(2))
        .await
        .unwrap();
    assert!(matches!(moved, DeliverOutcome::Moved(_)));
    assert!(kit.store.signals(id).await.unwrap().is_empty());
    let fresh = old.version();
    let stored =
        kit.store.deliver(id, signal("report", "1"), Vec::new(), Some((change, fresh)), at(2)).await.unwrap();
    assert!(matches!(stored, DeliverOutcome::Stored(_)));
    assert_eq!(kit.run(id).await.step.as_deref(), Some("two"));
}

#[tokio::test]
async fn a_cancel_request_marks_a_running_run_at_once() {
    let kit = Kit::new();
    let id = kit.create_run(new_run(at(0))).await;
    kit.claim_one("a", at(1)).await;
    kit.store.deliver(id, signal(CANCEL, ""), Vec::new(), None, at(2)).await.unwrap();
    assert_eq!(kit.run(id).await.cancel_requested_at, Some(at(2)));
}

#[tokio::test]
async fn the_end_of_a_child_signals_its_parent_once_and_wakes_it() {
    let kit = Kit::new();
    let parent = kit.create_run(new_run(at(0))).await;
    let run = kit.claim_one("a", at(1)).await.run;
    let child = NewRun { parent: Some((parent, parent)), ..new_run(at(1)) };
    let child_id = child.id;
    let mut change = RunChange::of(waiting_for(&run, "child.ended", at(1)));
    change.children.push(child);
    assert!(matches!(kit.commit(change, &run, at(1)).await, Committed::Applied(_)));
    assert_eq!(kit.run(child_id).await.root, parent);
    kit.end(child_id, Outcome::Failed, at(2)).await;
    let received = kit.store.signals(parent).await.unwrap();
    assert_eq!((received[0].name.as_str(), received[0].key.clone()), ("child.ended", child_id.to_string()));
    assert_eq!(received[0].payload["outcome"], "failed");
    assert_eq!(kit.run(parent).await.next_run_at, Some(at(2)));
}

#[tokio::test]
async fn a_refused_child_rolls_back_its_new_siblings_and_leaves_earlier_ones() {
    let kit = Kit::new();
    let other = kit
        .create_run(NewRun { locks: vec![lock("taken", OnConflict::Refuse)], priority: -9, ..new_run(at(0)) })
        .await;
    let parent = kit.create_run(new_run(at(0))).await;
    let claimed = kit.claim("a", at(1)).await;
    let run = claimed.into_iter().find(|claimed| claimed.snapshot.run.id == parent).unwrap().snapshot.run;
    let child = |resource: &str| NewRun {
        parent: Some((parent, parent)),
        locks: vec![lock(resource, OnConflict::Refuse)],
        ..new_run(at(1))
    };
    let old = child("mine");
    let mut change = RunChange::of(run.clone());
    change.children.push(old.clone());
    let Committed::Applied(run) = kit.commit(change, &run, at(1)).await else { panic!() };

    let new = child("also-mine");
    let mut change = RunChange::of((*run).clone());
    change.children = vec![old.clone(), new.clone(), child("taken")];
    assert_eq!(kit.commit(change, &run, at(2)).await, Committed::ChildRefused { holder: other });
    assert!(kit.store.snapshot(old.id).await.unwrap().is_some(), "created by an earlier change");
    assert!(kit.store.snapshot(new.id).await.unwrap().is_none());
    let locks: String = kit
        .outside()
        .query_row("SELECT group_concat(resource) FROM (SELECT resource FROM locks ORDER BY 1)", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(locks, "mine,taken");
    assert_eq!(kit.run(parent).await, *run, "nothing of the change was written");

    let mut change = RunChange::of((*run).clone());
    change.children = vec![NewRun { server: Some(serial("nowhere")), ..child("free") }];
    assert_eq!(kit.commit(change, &run, at(2)).await, Committed::ChildUnknownServer);
}

#[tokio::test]
async fn the_row_of_the_job_is_written_with_its_run_in_one_transaction() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    let row = || -> (String, Option<String>, Option<String>, Option<String>, Option<String>) {
        kit.outside()
            .query_row("SELECT status, failed_step, picked_at, worker_id, outcome FROM jobs", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            })
            .unwrap()
    };
    assert_eq!(row(), ("queued".to_owned(), None, None, None, None));
    let run = kit.claim_one("w1", at(1)).await.run;
    let picked = (Some(at(1).to_string()), Some("w1".to_owned()));
    assert_eq!(row(), ("provisioning".to_owned(), None, picked.0.clone(), picked.1.clone(), None));
    let failure = Failure {
        class: "bmc".into(),
        step: "one".into(),
        summary: "no".to_owned(),
        detail: None,
        next_action: "look".to_owned(),
    };
    let failed = Run {
        phase: Phase::Finishing,
        outcome: Some(Outcome::Failed),
        failure: Some(failure),
        ..run.clone()
    };
    kit.commit(RunChange::of(failed), &run, at(2)).await;
    let failed = (Some("one".to_owned()), Some("failed".to_owned()));
    assert_eq!(
        row(),
        ("failed".to_owned(), failed.0.clone(), picked.0.clone(), picked.1.clone(), failed.1.clone())
    );
    kit.end(id, Outcome::Failed, at(3)).await;
    assert_eq!(row(), ("complete".to_owned(), failed.0, picked.0, picked.1, failed.1));

    let job = kit.store.job(id).await.unwrap().unwrap();
    assert_eq!((job.status, job.failed_step().map(|step| step.as_str())), (JobStatus::Complete, Some("one")));
    assert_eq!(job.labels, labels(&[("team", "blue")]));
}

#[tokio::test]
async fn jobs_are_listed_newest_first_filtered_and_paged() {
    let kit = Kit::new();
    let mut ids = Vec::new();
    for (name, second) in [("A", 1), ("B", 2), ("C", 3)] {
        kit.server(name).await;
        ids.push(kit.create_run(new_job(name, at(second), None, "x")).await);
    }
    kit.end(ids[1], Outcome::Succeeded, at(9)).await;
    let page = |filter: JobFilter| {
        let store = kit.store.clone();
        async move {
            let page = store.jobs(filter).await.unwrap();
            (page.jobs.iter().map(|job| job.run.id).collect::<Vec<_>>(), page.next)
        }
    };
    let first = page(JobFilter { limit: 2, ..JobFilter::default() }).await;
    assert_eq!(first.0, [ids[2], ids[1]]);
    let second = page(JobFilter { limit: 2, after: first.1, ..JobFilter::default() }).await;
    assert_eq!(second, (vec![ids[0]], None));
    let done = page(JobFilter { limit: 9, outcome: Some(Outcome::Succeeded), ..JobFilter::default() }).await;
    assert_eq!(done.0, [ids[1]]);
    let of_c = page(JobFilter { limit: 9, server: Some(serial("C")), ..JobFilter::default() }).await;
    assert_eq!(of_c.0, [ids[2]]);
    let mut counts = kit.store.job_counts().await.unwrap();
    counts.sort_by_key(|count| count.status.as_str());
    let counts: Vec<_> = counts.iter().map(|count| (count.status, count.outcome, count.jobs)).collect();
    assert_eq!(counts, [(JobStatus::Complete, Some(Outcome::Succeeded), 1), (JobStatus::Queued, None, 2)]);
    assert_eq!(kit.store.newest_installation(&serial("A")).await.unwrap().unwrap().run.id, ids[0]);
}

#[tokio::test]
async fn a_job_is_found_by_the_beginning_of_its_id_and_differs_by_its_distinct_length() {
    let kit = Kit::new();
    let mut ids = Vec::new();
    for name in ["A", "B", "C", "D"] {
        kit.server(name).await;
        ids.push(kit.create_run(new_job(name, at(1), None, name)).await);
    }
    let lengths = kit.store.distinct_lengths(ids.clone()).await.unwrap();
    for (id, length) in ids.iter().zip(lengths) {
        let id = id.to_string();
        let shared = |other: &RunId| {
            let other = other.to_string();
            let same = id.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
            if same == id.len() { 0 } else { same + 1 }
        };
        assert_eq!(length, ids.iter().map(shared).max().unwrap(), "{id} in {ids:?}");
        let found = |prefix: &str| {
            let filter = JobFilter { id: Some(prefix.parse().unwrap()), limit: 9, ..JobFilter::default() };
            let store = kit.store.clone();
            async move { store.jobs(filter).await.unwrap().jobs }
        };
        let by_whole = found(&id).await;
        assert_eq!(
            by_whole.iter().map(|job| job.run.id.to_string()).collect::<Vec<_>>(),
            std::slice::from_ref(&id)
        );
        assert_eq!(found(&id[..length.max(4)].to_uppercase()).await.len(), 1);
        assert!(found(&id[..4]).await.len() >= by_whole.len());
    }
    let none = JobFilter { id: Some("00000000".parse().unwrap()), limit: 9, ..JobFilter::default() };
    assert!(kit.store.jobs(none).await.unwrap().jobs.is_empty());
    for wrong in ["", "abc", "0192g", "0192%", &"0".repeat(37)] {
        assert!(wrong.parse::<model::IdPrefix>().is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn runs_of_every_workflow_are_jobs() {
    let kit = Kit::new();
    kit.server("A").await;
    let install = kit.create_run(new_job("A", at(1), None, "x")).await;
    let request = RunRequest { labels: labels(&[("rack", "7"), ("site", "a")]), ..RunRequest::default() };
    let other = NewRun { server: Some(serial("A")), request, ..new_run(at(2)) };
    let other = kit.create_run(other).await;
    let child = NewRun { parent: Some((other, other)), ..new_run(at(3)) };
    let child = kit.create_run(child).await;
    let list = |filter: JobFilter| {
        let store = kit.store.clone();
        async move {
            let page = store.jobs(JobFilter { limit: 9, ..filter }).await.unwrap();
            page.jobs.iter().map(|job| job.run.id).collect::<Vec<_>>()
        }
    };
    let all = JobFilter::default;
    assert_eq!(list(all()).await, [other, install], "a child is listed with its parent");
    assert_eq!(list(JobFilter { parent: Some(other), ..all() }).await, [child]);
    assert_eq!(list(JobFilter { workflow: Some("test".to_owned()), ..all() }).await, [other]);
    assert_eq!(list(JobFilter { server: Some(serial("A")), ..all() }).await, [other, install]);
    let labelled = |key: &str, value: &str| JobFilter { labels: vec![(key.into(), value.into())], ..all() };
    assert_eq!(list(labelled("rack", "7")).await, [other]);
    assert_eq!(list(labelled("rack", "8")).await, []);
    assert_eq!(list(labelled("team", "blue")).await, [install]);

    let run = claim(&kit.store, "w", 3, at(4)).await;
    assert_eq!(run.len(), 3);
    assert_eq!(list(JobFilter { status: Some(JobStatus::Running), ..all() }).await, [other]);
    assert_eq!(list(JobFilter { status: Some(JobStatus::Provisioning), ..all() }).await, [install]);
    assert_eq!(list(JobFilter { status: Some(JobStatus::Queued), ..all() }).await, []);
    let job = kit.store.job(other).await.unwrap().unwrap();
    assert_eq!((job.status, job.provision), (JobStatus::Running, None));
    assert!(kit.store.job(install).await.unwrap().unwrap().provision.is_some());
    assert!(kit.store.job_detail(child, 9).await.unwrap().is_some());
}

#[tokio::test]
async fn a_run_that_only_observes_starts_in_maintenance_and_is_deleted_with_its_server() {
    let kit = Kit::new();
    kit.server("A").await;
    let closed = GateClosure { since: at(0), by: "tester".to_owned(), reason: String::new() };
    kit.store.set_maintenance(&serial("A"), Some(closed), "tester", at(0)).await.unwrap();
    let change = kit.create_run(NewRun { server: Some(serial("A")), ..new_run(at(1)) }).await;
    let observe = NewRun { server: Some(serial("A")), purpose: Purpose::Observe, ..new_run(at(1)) };
    let observe = kit.create_run(observe).await;
    let claimed = claim(&kit.store, "w", 2, at(2)).await;
    assert_eq!(claimed.iter().map(|run| run.snapshot.run.id).collect::<Vec<_>>(), [observe]);

    let delete = async |now| {
        let event = NewEvent::info("server.deleted", "deleted");
        kit.store.delete_server(&serial("A"), &[], event, now).await.unwrap()
    };
    assert_eq!(delete(at(3)).await, DeletedServer::HasJobs(2));
    kit.end(observe, Outcome::Succeeded, at(4)).await;
    assert_eq!(delete(at(5)).await, DeletedServer::HasJobs(1), "the run that changes the server is stored");
    kit.outside().execute("DELETE FROM runs WHERE id = ?1", [change.to_string()]).unwrap();
    assert_eq!(delete(at(6)).await, DeletedServer::Deleted);
    assert_eq!(kit.store.job(observe).await.unwrap(), None);
}

#[tokio::test]
async fn a_server_is_deleted_with_its_ended_history_and_never_with_an_unfinished_run() {
    let kit = Kit::new();
    kit.server("A").await;
    kit.server("B").await;
    let of = |name: &str, second| NewRun { server: Some(serial(name)), ..new_run(at(second)) };
    let old = kit.create_run(of("A", 1)).await;
    let child = kit.create_run(NewRun { parent: Some((old, old)), ..of("A", 1) }).await;
    let other = kit.create_run(of("B", 1)).await;
    let delete = async |history: &[RunId]| {
        let event = NewEvent::info("server.deleted", "deleted");
        kit.store.delete_server(&serial("A"), history, event, at(9)).await.unwrap()
    };
    let history = kit.store.server_history(&serial("A")).await.unwrap();
    assert_eq!((&history.roots[..], history.runs, history.unfinished), (&[old][..], 2, 2));
    assert_eq!(delete(&history.roots).await, DeletedServer::HasJobs(2));
    kit.end(child, Outcome::Succeeded, at(2)).await;
    assert_eq!(delete(&history.roots).await, DeletedServer::HasJobs(1), "the root has not ended");
    kit.end(old, Outcome::Failed, at(3)).await;
    assert_eq!(delete(&[]).await, DeletedServer::HasJobs(2), "the history was not named");

    // A run that was created after the history was read keeps the server.
    let late = kit.create_run(of("A", 4)).await;
    kit.end(late, Outcome::Failed, at(5)).await;
    assert_eq!(delete(&history.roots).await, DeletedServer::HasJobs(1));
    let history = kit.store.server_history(&serial("A")).await.unwrap();
    assert_eq!((history.runs, history.unfinished, history.blocking), (3, 0, 3));
    assert_eq!(delete(&history.roots).await, DeletedServer::Deleted);
    for gone in [old, child, late] {
        assert!(kit.store.snapshot(gone).await.unwrap().is_none());
        assert!(kit.store.last_events(gone, 9).await.unwrap().is_empty());
    }
    assert!(kit.store.snapshot(other).await.unwrap().is_some());
    assert_eq!(delete(&[]).await, DeletedServer::Unknown);
}

#[tokio::test]
async fn grants_end_with_the_run_even_when_no_step_ends_them() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    let run = kit.claim_one("w", at(1)).await.run;
    let grant = Grant {
        token_hash: "t".to_owned(),
        run: id,
        artifact: Artifact::Task,
        inputs: Some("sealed".to_owned()),
        sha256: "d".to_owned(),
        size: 7,
        created_at: at(1),
    };
    let pull = PullGrant { token_hash: "p".to_owned(), run: id, repository: "os/linux".to_owned() };
    let mut change = RunChange::of(run.clone());
    change.effects = vec![
        Effect::GrantIssued(Box::new(grant.clone())),
        Effect::PullGrantIssued(pull.clone()),
        Effect::TaskImage { sha256: "d".to_owned(), path: None },
    ];
    kit.commit(change, &run, at(1)).await;
    let reads = |second, bytes| GrantReads {
        first_read_at: Some(at(second)),
        boot_read_at: None,
        last_read_at: Some(at(second)),
        bytes,
    };
    kit.store.record_reads("t", reads(5, 100), |_| CausedByReads::default(), at(5)).await.unwrap();
    kit.store.record_reads("t", reads(9, 50), |_| CausedByReads::default(), at(9)).await.unwrap();
    let stored = kit.store.grant("t").await.unwrap().unwrap();
    assert_eq!((stored.reads.first_read_at, stored.reads.last_read_at), (Some(at(5)), Some(at(9))));
    assert_eq!((stored.reads.bytes, stored.ended_at, stored.grant), (150, None, grant));
    assert_eq!(kit.store.pull_grant("p").await.unwrap(), Some(pull));
    assert_eq!(
        kit.store.job(id).await.unwrap().unwrap().provision.unwrap().task_iso_sha256.as_deref(),
        Some("d")
    );

    kit.end(id, Outcome::Failed, at(20)).await;
    assert_eq!(kit.store.grants(id).await.unwrap().remove(0).ended_at, Some(at(20)));
    let ended = kit.store.grant("t").await.unwrap().unwrap();
    assert_eq!((ended.ended_at, ended.grant.inputs), (Some(at(20)), None));
    assert_eq!(kit.store.pull_grant("p").await.unwrap(), None);
}

#[tokio::test]
async fn the_events_of_a_job_equal_the_events_of_the_log() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    let plain = NewEvent::info("tick", "said \"so\"\n").by("maintenance-os");
    let full = NewEvent::error("tick", "ü")
        .with(json!({ "b": [1.5, null], "a": { "c": "\u{1f980}" } }))
        .of_step(&StepName::new("one"), 2);
    kit.store.append(Some(id), Some(serial("A")), vec![plain, full], at(1)).await.unwrap();
    let log = kit.store.last_events(id, 9).await.unwrap();
    let detail = kit.store.job_detail(id, 9).await.unwrap().unwrap();
    let log: Vec<String> = log.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    let shown: Vec<&str> = detail.events.iter().map(JsonText::as_str).collect();
    assert_eq!(shown.len(), 3);
    assert_eq!(shown, log);
    let latest = kit.store.job_detail(id, 1).await.unwrap().unwrap().events;
    assert_eq!(latest, detail.events[2..]);
}

#[tokio::test]
async fn the_log_only_grows_and_is_read_in_pages() {
    let kit = Kit::new();
    let id = kit.create_run(new_run(at(0))).await;
    for index in 0..5 {
        let run = (index % 2 == 0).then_some(id);
        let event = NewEvent::warn("tick", format!("tick {index}"))
            .with(json!(index))
            .of_step(&StepName::new("one"), 2);
        kit.store.append(run, None, vec![event], at(index)).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut after = 0;
    loop {
        let page = kit.store.events(EventFilter { run: None, after, limit: 2 }).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.iter().all(|event| event.seq > after));
        after = last.seq;
        seen.extend(page.into_iter().map(|event| event.message));
    }
    assert_eq!(seen, ["made", "tick 0", "tick 1", "tick 2", "tick 3", "tick 4"]);
    let of_run = kit.store.events(EventFilter { run: Some(id), after: 0, limit: 9 }).await.unwrap();
    assert_eq!(of_run.len(), 4);
    assert_eq!(of_run[1].attempt, Some(2));
    let last = kit.store.last_events(id, 2).await.unwrap();
    assert_eq!(last.iter().map(|event| event.message.as_str()).collect::<Vec<_>>(), ["tick 2", "tick 4"]);
}

#[tokio::test]
async fn expired_run_trees_are_deleted_whole_and_nothing_else() {
    let kit = Kit::new();
    let old = kit.create_run(new_run(at(0))).await;
    let child = NewRun { parent: Some((old, old)), ..new_run(at(1)) };
    let child = kit.create_run(child).await;
    let working = kit.create_run(new_run(at(2))).await;
    let root = kit.create_run(new_run(at(3))).await;
    let busy = kit.create_run(NewRun { parent: Some((root, root)), ..new_run(at(3)) }).await;
    let young = kit.create_run(new_run(at(4))).await;
    for (run, second) in [(child, 5), (old, 6), (root, 7), (young, 5000)] {
        kit.end(run, Outcome::Succeeded, at(second)).await;
    }
    let expired = kit.store.expired(at(1000), 10).await.unwrap();
    assert_eq!(expired, [old], "it and its whole tree ended long ago");
    kit.store.delete_ended(expired).await.unwrap();
    for gone in [old, child] {
        assert!(kit.store.snapshot(gone).await.unwrap().is_none());
        assert!(kit.store.last_events(gone, 10).await.unwrap().is_empty());
    }
    for kept in [working, root, busy, young] {
        assert!(kit.store.snapshot(kept).await.unwrap().is_some());
    }
    assert!(kit.store.expired(at(1000), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_machine_reported_is_stored_with_the_first_signal_and_deleted_with_the_job() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    let report = |text: &str, cpus: u32| crate::SignalMessage {
        run: id,
        revision: None,
        signal: signal("report", ""),
        events: Vec::new(),
        effects: vec![
            Effect::InstallLogged { text: text.to_owned() },
            Effect::ServerInventoried { serial: serial("A"), inventory: json!({ "cpus": cpus }) },
        ],
        change: None,
    };
    assert_eq!(kit.store.install_log(id).await.unwrap(), None);
    let DeliverOutcome::Stored(_) = kit.store.deliver_one(report("first", 1), at(1)).await.unwrap() else {
        panic!()
    };
    let DeliverOutcome::Duplicate(_) = kit.store.deliver_one(report("second", 2), at(2)).await.unwrap()
    else {
        panic!()
    };
    let log = kit.store.install_log(id).await.unwrap().unwrap();
    assert_eq!((log.text.as_str(), log.received_at), ("first", at(1)));
    let reported = kit.store.server_inventory(&serial("A")).await.unwrap().unwrap();
    assert_eq!((reported.inventory, reported.received_at), (json!({ "cpus": 1 }), at(1)));
    assert_eq!(kit.store.server(&serial("A")).await.unwrap().unwrap().revision, 1);
    kit.end(id, Outcome::Succeeded, at(3)).await;
    kit.outside().execute("DELETE FROM runs", []).unwrap();
    assert_eq!(kit.store.install_log(id).await.unwrap(), None);
}

#[tokio::test]
async fn a_held_job_needs_an_operator_and_is_not_overdue_and_only_open_runs_are_unfinished() {
    let kit = Kit::new();
    let mut runs = Vec::new();
    for name in ["A", "B", "C"] {
        kit.server(name).await;
        runs.push(kit.create_run(NewRun { deadline_at: at(100), ..new_job(name, at(0), None, name) }).await);
    }
    let held = kit.run(runs[0]).await;
    let hold = model::Hold {
        class: model::HoldClass::OPERATOR,
        since: at(1),
        remind_at: at(90_000),
        verbs: Vec::new(),
        detail: "later".to_owned(),
    };
    let on_hold = Run { phase: Phase::Held, hold: Some(hold), next_run_at: None, ..held.clone() };
    kit.commit(RunChange::of(on_hold), &held, at(1)).await;
    kit.end(runs[1], Outcome::Succeeded, at(2)).await;
    let needs = kit.store.needs_operator(at(200)).await.unwrap();
    assert_eq!((needs.overdue_jobs, needs.held_jobs, needs.stopped_batches), (1, 1, 0));
    let mut open: Vec<RunId> = kit.store.unfinished_of(runs.clone()).await.unwrap().into_iter().collect();
    open.sort();
    assert_eq!(open, [runs[0], runs[2]]);
}

#[tokio::test]
async fn the_newest_job_of_a_server_is_the_one_created_last_whatever_the_clock_said() {
    let kit = Kit::new();
    kit.server("A").await;
    let first = kit.create_run(new_job("A", at(50_000), None, "x")).await;
    kit.end(first, Outcome::Failed, at(50_001)).await;
    // The clock was wrong by hours and is right now.
    let second = kit.create_run(new_job("A", at(10), None, "y")).await;
    kit.end(second, Outcome::Succeeded, at(20)).await;
    assert_eq!(kit.store.newest_installation(&serial("A")).await.unwrap().unwrap().run.id, second);
    let present = crate::Present { now: at(30), pressure: false };
    let filter = Filter::parse(Subject::Jobs, "failure:open", present.now).unwrap();
    let filter = JobFilter { limit: 9, filter, present: Some(present), ..JobFilter::default() };
    assert_eq!(kit.store.job_ids(filter).await.unwrap().ids, [], "the failure was followed by a success");
}

#[tokio::test]
async fn a_change_is_stored_whole_whichever_columns_it_changes() {
    let kit = Kit::new();
    let id = kit.create_run(new_run(at(0))).await;
    let claimed = kit.claim_one("w1", at(0)).await.run;
    let changes: [fn(&mut Run); 12] = [
        |_| {},
        |run| run.step = Some(StepName::from("one")),
        |run| run.next_run_at = Some(at(40)),
        |run| run.lease = None,
        |run| run.lease = Some(Lease { owner: "w2".to_owned(), expires_at: at(90) }),
        |run| run.epoch += 1,
        |run| run.priority = 7,
        |run| run.queue = "other".to_owned(),
        |run| run.deadline_at = at(5000),
        |run| run.cancel_requested_at = Some(at(3)),
        |run| (run.phase, run.outcome) = (Phase::Finishing, Some(Outcome::Cancelled)),
        |run| run.progress_at = at(60),
    ];
    let mut old = claimed;
    for (second, change) in (1..).zip(changes) {
        let mut new = old.clone();
        change(&mut new);
        let Committed::Applied(written) = kit.commit(RunChange::of(new.clone()), &old, at(second)).await
        else {
            panic!("not written");
        };
        let expected = Run {
            revision: old.revision + 1,
            updated_at: at(second),
            last_worker: new.lease.as_ref().map(|lease| lease.owner.clone()).or(new.last_worker.clone()),
            ..new
        };
        assert_eq!(*written, expected);
        assert_eq!(kit.run(id).await, expected);
        old = expected;
    }
    let faults: String = kit.outside().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(faults, "ok", "each index has what the table has");
}
