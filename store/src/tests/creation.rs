//! Creation of runs and jobs: idempotency, conflicts, unknown servers, and the rows of servers.

use super::*;
use crate::{CertificateChange, DeletedServer, EventFilter, UpdatedServer};

#[tokio::test]
async fn a_repeated_key_returns_the_first_job_in_any_state_and_refuses_another_body() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), Some("k"), "body-1")).await;
    assert_eq!(kit.create(new_job("A", at(1), Some("k"), "body-1")).await, Created::Replay(id));
    assert_eq!(kit.create(new_job("A", at(1), Some("k"), "body-2")).await, Created::KeyReused(id));
    kit.end(id, Outcome::Succeeded, at(2)).await;
    assert_eq!(kit.create(new_job("A", at(3), Some("k"), "body-1")).await, Created::Replay(id));
    assert_eq!(kit.create(new_job("A", at(3), Some("k"), "body-2")).await, Created::KeyReused(id));
    // The key belongs to its server.
    kit.server("B").await;
    kit.create_run(new_job("B", at(3), Some("k"), "body-2")).await;
    let runs: i64 = kit.outside().query_row("SELECT count(*) FROM runs", [], |row| row.get(0)).unwrap();
    assert_eq!(runs, 2);
}

#[tokio::test]
async fn concurrent_copies_of_one_request_create_one_job() {
    let kit = Kit::new();
    kit.server("A").await;
    let other = kit.second_store();
    let tasks: Vec<_> = (0..16)
        .map(|index| {
            let store = if index % 2 == 0 { kit.store.clone() } else { other.clone() };
            let run = new_job("A", at(0), Some("k"), "body");
            tokio::spawn(async move { store.create(Creation { run }).await.unwrap() })
        })
        .collect();
    let mut new = 0;
    for task in tasks {
        match task.await.unwrap() {
            Created::New(_) => new += 1,
            Created::Replay(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(new, 1);
}

#[tokio::test]
async fn a_second_job_for_a_server_is_refused_until_the_first_has_ended() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    assert_eq!(kit.create(new_job("A", at(1), None, "y")).await, Created::Conflict { holder: id });
    kit.end(id, Outcome::Failed, at(2)).await;
    kit.create_run(new_job("A", at(3), None, "y")).await;
}

#[tokio::test]
async fn a_run_tree_cannot_create_two_jobs_for_one_server() {
    let kit = Kit::new();
    kit.server("A").await;
    let parent =
        kit.create_run(NewRun { locks: vec![lock("server/A", OnConflict::Refuse)], ..new_run(at(0)) }).await;
    let child = |second| NewRun { parent: Some((parent, parent)), ..new_job("A", at(second), None, "x") };
    let first = kit.create_run(child(1)).await;
    assert_eq!(kit.create(child(2)).await, Created::Conflict { holder: first });
}

#[tokio::test]
async fn a_job_for_an_unknown_server_is_refused() {
    let kit = Kit::new();
    assert_eq!(kit.create(new_job("nowhere", at(0), None, "x")).await, Created::UnknownServer);
    let rows: i64 = kit
        .outside()
        .query_row("SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM locks)", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn the_address_and_the_certificate_of_a_bmc_stay_while_a_run_uses_it() {
    let kit = Kit::new();
    kit.server("A").await;
    let before = kit.store.server(&serial("A")).await.unwrap().unwrap();
    // The run was created after the request had seen none.
    let run = kit.create_run(new_job("A", at(1), None, "x")).await;
    let moved = Server { bmc_address: "https://192.0.2.9".to_owned(), ..before.clone() };
    let renewed = Server { tls_fingerprint: Some("ab".to_owned()), ..before.clone() };
    let update = |new: &Server, waiting| {
        let certificate = CertificateChange::Replace { from: None };
        kit.store.update_server(new.clone(), certificate, NewEvent::info("server", "x"), waiting)
    };
    for change in [&moved, &renewed] {
        assert_eq!(update(change, None).await.unwrap(), UpdatedServer::Busy(run));
    }
    let named = Server { vendor: Some("acme".to_owned()), ..before.clone() };
    assert!(matches!(update(&named, None).await.unwrap(), UpdatedServer::Updated(_)));
    let renewed = Server { revision: 2, ..renewed };
    let waits = update(&renewed, Some(run)).await.unwrap();
    assert!(matches!(waits, UpdatedServer::Updated(_)), "the run waits for the certificate: {waits:?}");
}

/// A pin is no change of an operator, so the revision does not show it.
#[tokio::test]
async fn a_certificate_that_is_pinned_beside_an_update_stays() {
    let kit = Kit::new();
    kit.server("A").await;
    let read = kit.store.server(&serial("A")).await.unwrap().unwrap();
    assert_eq!(read.tls_fingerprint, None);
    kit.store.pin_server(&read.serial, read.revision, "ab".to_owned()).await.unwrap();
    let update = |new: &Server, certificate| {
        kit.store.update_server(new.clone(), certificate, NewEvent::info("server", "x"), None)
    };
    // An update that does not name the certificate.
    let named = Server { vendor: Some("acme".to_owned()), ..read.clone() };
    let UpdatedServer::Updated(named) = update(&named, CertificateChange::Keep).await.unwrap() else {
        panic!()
    };
    assert_eq!((named.vendor.as_deref(), named.tls_fingerprint.as_deref()), (Some("acme"), Some("ab")));
    // One that replaces the certificate that its caller read, or the address at which it was met.
    let replaced = |from: Option<&str>| CertificateChange::Replace { from: from.map(str::to_owned) };
    let renewed = Server { tls_fingerprint: Some("cd".to_owned()), revision: 2, ..read.clone() };
    let moved = Server { bmc_address: "https://192.0.2.9".to_owned(), revision: 2, ..read.clone() };
    for change in [&renewed, &moved] {
        let refused = update(change, replaced(None)).await.unwrap();
        assert_eq!(refused, UpdatedServer::Moved(named.clone()));
    }
    let UpdatedServer::Updated(renewed) = update(&renewed, replaced(Some("ab"))).await.unwrap() else {
        panic!()
    };
    assert_eq!(renewed.tls_fingerprint.as_deref(), Some("cd"));
}

#[tokio::test]
async fn a_server_is_registered_once_updated_by_revision_and_not_deleted_while_it_has_jobs() {
    let kit = Kit::new();
    let event = || NewEvent::info("server", "x");
    // The revision of the request is ignored; a new server starts with 1.
    let new = Server { revision: 9, ..server("A") };
    let ServerChange::Created(made) = kit.store.create_server(new, event()).await.unwrap() else { panic!() };
    assert_eq!(made.revision, 1);
    assert_eq!(kit.store.server(&serial("A")).await.unwrap().as_ref(), Some(&*made));
    let again = Server { bmc_address: "https://other".to_owned(), ..server("A") };
    assert_eq!(kit.store.create_server(again, event()).await.unwrap(), ServerChange::Exists(made.clone()));

    let change = Server { vendor: Some("acme".to_owned()), updated_at: at(5), ..(*made).clone() };
    let UpdatedServer::Updated(new) =
        kit.store.update_server(change.clone(), CertificateChange::Keep, event(), None).await.unwrap()
    else {
        panic!()
    };
    assert_eq!((new.revision, new.vendor.as_deref(), new.updated_at), (2, Some("acme"), at(5)));
    assert_eq!(
        kit.store.update_server(change, CertificateChange::Keep, event(), None).await.unwrap(),
        UpdatedServer::Moved(new)
    );
    assert_eq!(
        kit.store.update_server(server("B"), CertificateChange::Keep, event(), None).await.unwrap(),
        UpdatedServer::Unknown
    );

    for name in ["C", "B"] {
        kit.server(name).await;
    }
    let names =
        |page: Vec<Server>| page.into_iter().map(|server| server.serial.to_string()).collect::<Vec<_>>();
    assert_eq!(names(kit.store.servers(None, 2).await.unwrap()), ["A", "B"]);
    assert_eq!(names(kit.store.servers(Some(serial("B")), 2).await.unwrap()), ["C"]);

    let job = kit.create_run(new_job("A", at(6), None, "x")).await;
    let delete = |name| {
        let (store, serial) = (kit.store.clone(), serial(name));
        async move {
            store.delete_server(&serial, &[], NewEvent::info("server.deleted", "x"), at(7)).await.unwrap()
        }
    };
    assert_eq!(delete("A").await, DeletedServer::HasJobs(1));
    kit.end(job, Outcome::Succeeded, at(8)).await;
    assert_eq!(delete("A").await, DeletedServer::HasJobs(1));
    assert_eq!(delete("B").await, DeletedServer::Deleted);
    assert_eq!(delete("B").await, DeletedServer::Unknown);
    assert!(kit.store.server(&serial("B")).await.unwrap().is_none());
}

#[tokio::test]
async fn an_update_that_a_run_leaves_to_a_bmc_stays_beside_what_is_observed_until_it_has_ended() {
    let kit = Kit::new();
    kit.server("A").await;
    kit.create_run(new_job("A", at(0), None, "x")).await;
    let mut claimed = kit.claim_one("w", at(1)).await;
    let update = json!({ "what": "bios 2.19" });
    let left = |update: Option<&serde_json::Value>| Effect::ServerUpdateLeft {
        serial: serial("A"),
        update: update.cloned(),
    };
    let observed =
        |model: &str| Effect::ServerObserved { serial: serial("A"), observed: json!({ "model": model }) };
    for (at_second, effects, expected) in [
        (2, vec![left(Some(&update))], Some(json!({ "update": update }))),
        (3, vec![left(None)], None),
        (4, vec![left(Some(&update)), observed("X")], Some(json!({ "model": "X", "update": update }))),
        (5, vec![observed("Y")], Some(json!({ "model": "Y", "update": update }))),
        (
            6,
            vec![left(Some(&json!({ "what": "bmc 7" })))],
            Some(json!({ "model": "Y", "update": { "what": "bmc 7" } })),
        ),
        (7, vec![left(None)], Some(json!({ "model": "Y" }))),
        (8, vec![left(None), observed("Z")], Some(json!({ "model": "Z" }))),
    ] {
        let mut change = RunChange::of(claimed.run.clone());
        change.effects = effects;
        kit.commit(change, &claimed.run, at(at_second)).await;
        claimed.run = kit.store.snapshot(claimed.run.id).await.unwrap().unwrap().run;
        let seen = kit.store.server(&serial("A")).await.unwrap().unwrap();
        assert_eq!((seen.observed, seen.revision), (expected, 1), "{at_second}");
    }
}

#[tokio::test]
async fn an_update_that_is_left_to_a_bmc_is_in_the_record_of_every_server_of_the_bmc_until_it_has_ended() {
    let kit = Kit::new();
    kit.server("A").await;
    kit.neighbour("B", "A").await;
    kit.server("C").await;
    let left = |name, update| Effect::ServerUpdateLeft { serial: serial(name), update };
    let seen = async || {
        let mut all = Vec::new();
        for name in ["A", "B", "C"] {
            all.push(kit.store.server(&serial(name)).await.unwrap().unwrap().observed);
        }
        all
    };
    kit.create_run(new_job("A", at(0), None, "x")).await;
    let mut claimed = kit.claim_one("w", at(1)).await;
    let (one, other) = (json!({ "what": "bios 2.19" }), json!({ "what": "bmc 7" }));
    let shown = |update: &serde_json::Value| Some(json!({ "update": update }));
    for (at_second, effects, expected) in [
        (2, vec![left("A", Some(one.clone()))], [shown(&one), shown(&one), None]),
        (3, vec![left("B", None)], [None, None, None]),
        (
            4,
            vec![left("C", Some(other.clone())), left("A", Some(one.clone()))],
            [shown(&one), shown(&one), shown(&other)],
        ),
        (5, vec![left("C", None)], [shown(&one), shown(&one), None]),
        (6, vec![left("A", None)], [None, None, None]),
    ] {
        let mut change = RunChange::of(claimed.run.clone());
        change.effects = effects;
        kit.commit(change, &claimed.run, at(at_second)).await;
        claimed.run = kit.run(claimed.run.id).await;
        assert_eq!(seen().await, expected, "{at_second}");
    }
}

#[tokio::test]
async fn observations_of_a_server_never_change_its_revision() {
    let kit = Kit::new();
    kit.server("A").await;
    let id = kit.create_run(new_job("A", at(0), None, "x")).await;
    let claimed = kit.claim_one("w", at(1)).await;
    let mut change = RunChange::of(claimed.run.clone());
    let pending = PendingCleanup {
        job_id: id,
        remaining: vec![StepName::new("cleanup.eject")],
        slots: vec!["/cd".to_owned()],
        unknown: None,
    };
    change.effects = vec![
        Effect::ServerObserved { serial: serial("A"), observed: json!({ "model": "X" }) },
        Effect::CleanupPending { serial: serial("A"), pending: Some(pending.clone()) },
    ];
    kit.commit(change, &claimed.run, at(2)).await;
    let seen = kit.store.server(&serial("A")).await.unwrap().unwrap();
    assert_eq!((seen.revision, seen.last_seen), (1, Some(at(2))));
    assert_eq!((seen.observed, seen.pending_cleanup), (Some(json!({ "model": "X" })), Some(pending)));
    let claimed = kit.store.snapshot(id).await.unwrap().unwrap();
    let mut change = RunChange::of(claimed.run.clone());
    change.effects = vec![Effect::ServerSeen { serial: serial("A") }];
    kit.commit(change, &claimed.run, at(3)).await;
    assert_eq!(kit.store.server(&serial("A")).await.unwrap().unwrap().last_seen, Some(at(3)));
    let hardware = Effect::ServerHardwareRead { serial: serial("A"), hardware: json!({ "cpus": 4 }) };
    kit.store.append_with(id, Some(serial("A")), Vec::new(), vec![hardware], at(4)).await.unwrap();
    assert_eq!(kit.store.server(&serial("A")).await.unwrap().unwrap().last_seen, Some(at(4)));
    kit.store.keep_card(&serial("A"), 1, &json!({}), at(5)).await.unwrap();
    kit.store.keep_card(&serial("A"), 2, &json!({}), at(6)).await.unwrap();
    let seen = kit.store.server(&serial("A")).await.unwrap().unwrap();
    assert_eq!((seen.revision, seen.last_seen), (1, Some(at(5))), "a card of another revision is not kept");
    let before = kit.store.events(EventFilter { limit: 100, ..EventFilter::default() }).await.unwrap().len();
    assert_eq!(before, 2, "one event each from the registration and the creation");
}
