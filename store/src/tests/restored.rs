//! Restored data: nothing of a restored server is claimed until an operator releases it.

use super::*;
use crate::{AccountWritten, ReleasedServer, TakeOver, UserChange, back_up, check_copy};
use model::UnfinishedRuns;

const REASON: &str = "the data directory is a copy";

/// A store with one run in each of these states, each on a server of its own: running under a lease, waiting, finishing, cancelled,
/// queued and past its deadline.
async fn with_runs_of_every_kind() -> (Kit, Vec<RunId>) {
    let kit = Kit::new();
    let mut runs = Vec::new();
    for name in ["R-1", "R-2", "R-3", "R-4", "R-5", "R-6"] {
        kit.server(name).await;
        runs.push(kit.create_run(new_job(name, at(0), None, name)).await);
    }
    for id in &runs[..4] {
        let claimed = claim(&kit.store, "w", 1, at(1)).await.pop().unwrap().snapshot.run;
        assert_eq!(claimed.id, *id);
    }
    let waiting = kit.run(runs[1]).await;
    kit.commit(RunChange::of(waiting_for(&waiting, "report", at(2))), &waiting, at(2)).await;
    let finishing = kit.run(runs[2]).await;
    let change = Run {
        phase: Phase::Finishing,
        outcome: Some(Outcome::Succeeded),
        lease: None,
        next_run_at: Some(at(2)),
        ..finishing.clone()
    };
    kit.commit(RunChange::of(change), &finishing, at(2)).await;
    kit.store.deliver(runs[3], signal(crate::CANCEL, ""), Vec::new(), None, at(2)).await.unwrap();
    let outside = kit.outside();
    outside
        .execute("UPDATE runs SET deadline_at = ?1 WHERE id = ?2", [at(3).to_string(), runs[5].to_string()])
        .unwrap();
    (kit, runs)
}

async fn restore(kit: &Kit, second: u64) -> usize {
    kit.store.set_origin("mark".to_owned(), Some(REASON.to_owned()), at(second)).await.unwrap()
}

async fn release(kit: &Kit, name: &str, runs: Option<UnfinishedRuns>, second: u64) -> ReleasedServer {
    kit.store.release_server(&serial(name), runs, Vec::new(), "ann", at(second)).await.unwrap()
}

#[tokio::test]
async fn no_run_of_restored_data_is_claimed_in_any_phase_however_much_time_passes() {
    let (kit, _) = with_runs_of_every_kind().await;
    assert_eq!(restore(&kit, 10).await, 6);
    kit.store.take_over(TakeOver::Everything, at(11)).await.unwrap();
    for second in [11, 1_000, 100_000_000] {
        assert!(kit.claim("w2", at(second)).await.is_empty(), "at second {second}");
    }
    assert_eq!(kit.store.next_due(&["default".to_owned()]).await.unwrap(), None, "the dispatcher sleeps");
    // A run that is created afterwards is not claimed either.
    release(&kit, "R-5", Some(UnfinishedRuns::End), 12).await;
    kit.server("NEW").await;
    let unrelated = kit.create_run(new_job("NEW", at(13), None, "x")).await;
    assert_eq!(
        kit.claim_one("w2", at(14)).await.run.id,
        unrelated,
        "a server that is registered later is not restored"
    );
}

#[tokio::test]
async fn a_run_that_is_created_on_a_restored_server_is_not_claimed() {
    let kit = Kit::new();
    kit.server("R-1").await;
    restore(&kit, 1).await;
    let run = kit.create_run(new_job("R-1", at(2), None, "x")).await;
    assert!(kit.claim("w", at(100_000)).await.is_empty());
    let created = kit.run(run).await;
    assert!(created.restored);
    assert_eq!(
        release(&kit, "R-1", Some(UnfinishedRuns::Continue), 3).await,
        ReleasedServer::Released(vec![run])
    );
    let claimed = kit.claim_one("w", at(4)).await.run;
    assert_eq!(claimed.id, run);
    assert_eq!(
        claimed.deadline_at,
        created.deadline_at.plus(at(3).since(at(2))),
        "the age of the data is not its own"
    );
}

#[tokio::test]
async fn a_release_without_a_decision_about_unfinished_runs_changes_nothing() {
    let (kit, runs) = with_runs_of_every_kind().await;
    kit.server("IDLE").await;
    restore(&kit, 10).await;
    assert_eq!(release(&kit, "R-1", None, 11).await, ReleasedServer::Undecided(vec![runs[0]]));
    assert!(kit.run(runs[0]).await.restored);
    assert_eq!(release(&kit, "IDLE", None, 11).await, ReleasedServer::Released(Vec::new()));
    assert_eq!(release(&kit, "IDLE", None, 12).await, ReleasedServer::NotRestored);
    assert_eq!(release(&kit, "OTHER", None, 12).await, ReleasedServer::Unknown);
}

#[tokio::test]
async fn released_runs_continue_and_the_age_of_the_data_counts_against_no_deadline() {
    let (kit, runs) = with_runs_of_every_kind().await;
    let before = kit.run(runs[1]).await;
    restore(&kit, 7_200).await;
    let restoration = kit.store.restoration(&serial("R-2")).await.unwrap().unwrap();
    assert_eq!((restoration.since, restoration.reason.as_str()), (at(7_200), REASON));
    assert!(restoration.as_of < at(3), "the data ends with its last event");
    release(&kit, "R-2", Some(UnfinishedRuns::Continue), 8_000).await;
    let claimed = kit.claim_one("w2", at(8_001)).await.run;
    assert_eq!(claimed.id, runs[1]);
    let age = at(8_000).since(restoration.as_of);
    assert_eq!(claimed.deadline_at, before.deadline_at.plus(age));
    assert_eq!(claimed.wait.unwrap().deadline, before.wait.unwrap().deadline.plus(age));
    for name in ["R-1", "R-3", "R-4", "R-6"] {
        release(&kit, name, Some(UnfinishedRuns::Continue), 8_002).await;
        assert_eq!(kit.claim("w2", at(8_003)).await.len(), 1, "{name}");
    }
    assert_eq!(kit.store.check_invariants().await.unwrap(), []);
}

#[tokio::test]
async fn runs_that_a_release_ends_leave_locks_and_grants_and_keep_their_outcome() {
    let (kit, runs) = with_runs_of_every_kind().await;
    restore(&kit, 10).await;
    for (name, run) in ["R-1", "R-2", "R-3", "R-4", "R-5", "R-6"].into_iter().zip(&runs) {
        assert_eq!(
            release(&kit, name, Some(UnfinishedRuns::End), 11).await,
            ReleasedServer::Released(vec![*run])
        );
        let ended = kit.run(*run).await;
        let outcome = if name == "R-3" { Outcome::Succeeded } else { Outcome::Cancelled };
        assert_eq!(
            (ended.phase, ended.outcome, ended.restored),
            (Phase::Ended, Some(outcome), false),
            "{name}"
        );
    }
    assert_eq!(kit.store.check_invariants().await.unwrap(), []);
    let left: i64 = kit.outside().query_row("SELECT count(*) FROM locks", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
    assert!(kit.claim("w2", at(100_000)).await.is_empty());
    assert_eq!(kit.store.restored_count().await.unwrap(), None);
}

#[tokio::test]
async fn a_restored_server_keeps_its_first_reason_and_forgets_its_session() {
    let kit = Kit::new();
    kit.server("R-1").await;
    kit.outside().execute("INSERT INTO bmc_sessions VALUES ('R-1', 'sealed')", []).unwrap();
    let last = kit.store.last_seq().await.unwrap();
    restore(&kit, 1).await;
    assert_eq!(
        kit.store.saved_sessions().await.unwrap(),
        [],
        "a copy must not close a session of the original"
    );
    assert!(
        kit.store.last_seq().await.unwrap() > last + 999_999,
        "no event number of the original is used again"
    );
    assert_eq!(restore(&kit, 2).await, 0);
    assert_eq!(kit.store.restored_servers().await.unwrap()[0].restoration.since, at(1));
    assert_eq!(kit.store.restored_count().await.unwrap().unwrap().0, 1);
}

#[tokio::test]
async fn restored_data_ends_web_sessions_and_refuses_logins_until_each_is_confirmed_or_has_a_new_secret() {
    let kit = Kit::new();
    for name in ["confirmed", "passwd", "left", "removed"] {
        kit.add_user(name, "admin").await;
    }
    for name in ["t-confirmed", "t-rotated", "t-left"] {
        kit.add_token(accounts::token(name, "admin")).await;
    }
    kit.outside()
        .execute(
            "INSERT INTO web_sessions VALUES ('s', 'hash', 'left', NULL, '', '', '', ?1, ?1, ?1)",
            [at(100).to_string()],
        )
        .unwrap();
    assert_eq!(kit.store.web_sessions(None).await.unwrap().len(), 1);
    restore(&kit, 1).await;
    assert_eq!(kit.store.web_sessions(None).await.unwrap(), [], "a cookie of the past opens nothing");
    let event = || NewEvent::info("test", "x");
    let refused = async |kit: &Kit| {
        let users = kit.store.users().await.unwrap().into_iter().filter(|user| user.unconfirmed);
        let mut names: Vec<String> = users.map(|user| user.name).collect();
        let tokens = kit.store.api_tokens().await.unwrap().into_iter().filter(|token| token.unconfirmed);
        names.extend(tokens.map(|token| token.name));
        names
    };
    let all = ["confirmed", "left", "passwd", "removed", "t-confirmed", "t-left", "t-rotated"];
    assert_eq!(refused(&kit).await, all);
    // A login that is made afterwards is not refused, and it is the last way in: those that are refused are none.
    kit.add_token(accounts::token("new", "admin")).await;
    assert_eq!(kit.revoke("new", accounts::GUARD).await, "last");
    kit.store.confirm_user("confirmed", event(), at(2)).await.unwrap();
    kit.store.confirm_api_token("t-confirmed", event(), at(2)).await.unwrap();
    let password = UserChange { password_hash: Some("other".to_owned()), ..UserChange::default() };
    kit.change("passwd", password, None).await;
    let rotated =
        kit.store.rotate_api_token("t-rotated", "id 2".into(), "hash 2".into(), None, event(), at(2)).await;
    assert!(matches!(rotated.unwrap(), AccountWritten::Done(token) if !token.unconfirmed));
    kit.store.remove_user("removed", None, event(), at(2)).await.unwrap();
    kit.add_user("removed", "viewer").await;
    assert_eq!(refused(&kit).await, ["left", "t-left"]);
    assert!(matches!(
        kit.store.confirm_user("other", event(), at(2)).await.unwrap(),
        AccountWritten::Unknown
    ));
    assert_eq!(kit.revoke("new", accounts::GUARD).await, "done", "a confirmed administrator can log in");
    restore(&kit, 3).await;
    assert_eq!(refused(&kit).await.len(), 7, "data that is restored again is refused again");
}

#[tokio::test]
async fn the_marks_of_the_origin_are_the_newest_and_the_one_before_it() {
    let kit = Kit::new();
    assert!(kit.store.origin().await.unwrap().is_empty());
    for mark in ["one", "two", "three"] {
        kit.store.set_origin(mark.to_owned(), None, at(1)).await.unwrap();
    }
    assert_eq!(kit.store.origin().await.unwrap(), ["three", "two"]);
    kit.store.set_origin("four".to_owned(), Some(REASON.to_owned()), at(2)).await.unwrap();
    assert_eq!(
        kit.store.origin().await.unwrap(),
        ["four"],
        "the marks of the original are not valid for the copy"
    );
}

#[tokio::test]
async fn a_copy_of_a_database_in_use_is_one_moment_and_every_server_in_it_is_restored() {
    let kit = Kit::new();
    let copy = kit.folder.path().join("copy.db");
    kit.server("R-1").await;
    let run = kit.create_run(new_job("R-1", at(0), None, "x")).await;
    let writer = {
        let store = kit.store.clone();
        tokio::spawn(async move {
            for second in 0..200 {
                store.append(Some(run), None, vec![NewEvent::info("test", "x")], at(second)).await.unwrap();
            }
        })
    };
    let (from, to) = (kit.folder.path().join("shoal.db"), copy.clone());
    let copied =
        tokio::task::spawn_blocking(move || back_up(&from, &to, REASON, at(500))).await.unwrap().unwrap();
    writer.await.unwrap();
    assert_eq!((copied.servers, copied.jobs, copied.unfinished), (1, 1, 1));
    assert_eq!(check_copy(&copy).unwrap().servers, 1);
    assert!(!kit.folder.path().join("copy.db-wal").exists());
    let restored = Store::open(&copy, at(600)).unwrap();
    assert!(claim(&restored, "w", 10, at(700)).await.is_empty());
    assert_eq!(kit.claim_one("w", at(700)).await.run.id, run, "the original is as it was");
}

#[test]
fn a_damaged_copy_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("shoal.db"), folder.path().join("copy.db"));
    drop(Store::open(&path, at(0)).unwrap());
    back_up(&path, &copy, REASON, at(1)).unwrap();
    let mut bytes = std::fs::read(&copy).unwrap();
    let half = bytes.len() / 2;
    bytes[half..half + 4096].fill(0x5a);
    std::fs::write(&copy, bytes).unwrap();
    assert!(check_copy(&copy).is_err());
}
