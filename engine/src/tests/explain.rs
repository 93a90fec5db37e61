//! The explanation of every state: why, what ends it, and what an operator can do.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::kit::{Act, Kit, LEASE, new_run};
use crate::{Explanation, PressureGauge};
use model::{
    Condition, Filter, GateClosure, LockRequest, NewEvent, NewRun, OnConflict, Pressure, RunId, Server,
    Subject, Time, UnfinishedRuns, Verb,
};
use store::{JobFilter, JobIds, Present};

/// A gauge of a full disk.
struct FullDisk;

#[async_trait]
impl PressureGauge for FullDisk {
    async fn read(&self) -> Option<Pressure> {
        let (name, detail) = ("disk".to_owned(), "3 MiB are left on the data disk, less than 256".to_owned());
        let since = "2026-01-01T00:00:00Z".parse().unwrap();
        Some(Pressure { name, since, detail, next_action: "make room".to_owned() })
    }
}

/// All conditions; the match below does not compile when one is missing.
fn all() -> BTreeSet<Condition> {
    let listed = |condition: Condition| match condition {
        Condition::Queued
        | Condition::Restored
        | Condition::Gated
        | Condition::Blocked
        | Condition::Working
        | Condition::Cancelling
        | Condition::Abandoned
        | Condition::Waiting
        | Condition::Retrying
        | Condition::Due
        | Condition::Held
        | Condition::Ended => condition,
    };
    [
        Condition::Queued,
        Condition::Restored,
        Condition::Gated,
        Condition::Blocked,
        Condition::Working,
        Condition::Cancelling,
        Condition::Abandoned,
        Condition::Waiting,
        Condition::Retrying,
        Condition::Due,
        Condition::Held,
        Condition::Ended,
    ]
    .into_iter()
    .map(listed)
    .collect()
}

/// The collected explanations, with run ids replaced.
#[derive(Default)]
struct Book {
    text: String,
    seen: BTreeSet<Condition>,
}

impl Book {
    async fn write(&mut self, kit: &Kit, title: &str, run: RunId) {
        let explained = kit.explain(run).await;
        sane(&explained);
        listed_under(kit, run, explained.condition).await;
        self.seen.insert(explained.condition);
        let Explanation {
            condition,
            reason,
            step,
            summary,
            since,
            deadline,
            next_check,
            ends_by,
            next_action,
            uninterruptible,
        } = explained;
        let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        writeln!(
            self.text,
            "{title}\n  condition {condition:?}, reason {}, step {}\n  {}\n  since {since}, deadline {}, next check {}\n  \
             ends by: {ends_by}\n  to do: {}{}\n",
            or(reason),
            or(step.map(|step| step.to_string())),
            without_ids(&summary),
            or(deadline.map(second)),
            or(next_check.map(second)),
            without_ids(&next_action),
            uninterruptible.map_or(String::new(), |step| format!("\n  not interruptible: {step}")),
        )
        .unwrap();
    }
}

/// Asserts that a list with the filter `condition:` has the run under this condition and under no other.
async fn listed_under(kit: &Kit, run: RunId, expected: Condition) {
    let (now, pressure) = (kit.now(), kit.engine.pressure().is_some());
    let mut found = Vec::new();
    for condition in Condition::ALL {
        let filter = Filter::of_value(Subject::Jobs, "condition", condition.as_str(), now).unwrap();
        let present = Some(Present { now, pressure });
        let filter = JobFilter { filter, present, limit: 500, ..JobFilter::default() };
        let JobIds { ids, count, .. } = kit.engine.store().job_ids(filter).await.unwrap();
        assert_eq!(ids.len() as u64, count);
        found.extend(ids.contains(&run).then_some(condition));
    }
    assert_eq!(found, [expected], "the list and `explain` name one condition");
}

/// A time to the second: the jitter of a retry is below one second.
fn second(time: Time) -> String {
    time.to_string().chars().take("2026-01-01T00:00:00".len()).collect()
}

fn without_ids(text: &str) -> String {
    let shown = |word: &str| {
        let bare = word.trim_end_matches([',', ';']);
        let rest = word.strip_prefix(bare).unwrap_or_default();
        if bare.parse::<RunId>().is_ok() { format!("RUN{rest}") } else { word.to_owned() }
    };
    text.split(' ').map(shown).collect::<Vec<_>>().join(" ")
}

/// Asserts the invariants of every explanation.
pub(super) fn sane(explained: &Explanation) {
    let Explanation { condition, summary, deadline, next_check, ends_by, next_action, .. } = explained;
    assert!(![summary, ends_by, next_action].iter().any(|text| text.trim().is_empty()), "{explained:?}");
    match condition {
        Condition::Ended => assert!(deadline.is_none() && next_check.is_none(), "{explained:?}"),
        Condition::Held => assert!(deadline.is_none() && ends_by.contains("operator"), "{explained:?}"),
        Condition::Restored => {
            assert!(
                deadline.is_none() && next_check.is_none() && ends_by.contains("operator"),
                "{explained:?}"
            );
        }
        _ => assert!(deadline.is_some() && next_check.is_some(), "{explained:?}"),
    }
}

#[tokio::test]
async fn every_condition_has_an_explanation_and_it_equals_the_golden_one() {
    let mut book = Book::default();
    let kit = Kit::new();

    let first = kit.start("drill", &["a", "b"]).await;
    book.write(&kit, "just created", first).await;
    kit.script("a", [Act::Retry, Act::Stall]);
    kit.run_until_idle().await;
    book.write(&kit, "between two attempts", first).await;
    kit.clock.advance(Duration::from_secs(2));
    kit.run_until_stall(&kit.engine).await;
    book.write(&kit, "a worker executes a step", first).await;
    kit.engine.verb(first, Verb::Cancel, "ann", "wrong rack").await.unwrap();
    book.write(&kit, "a cancel requested meanwhile", first).await;
    kit.clock.advance(LEASE);
    book.write(&kit, "a worker that crashed", first).await;
    kit.expire_lease();
    kit.script("clean", [Act::Fail]);
    kit.run_until_idle().await;
    book.write(&kit, "cancelled, with a cleanup step that failed", first).await;

    kit.script("c", [Act::Await("report")]);
    let second = kit.start("drill", &["c", "d@elsewhere"]).await;
    kit.run_until_idle().await;
    book.write(&kit, "waiting for a signal", second).await;
    kit.report(second).await;
    book.write(&kit, "between two steps", second).await;
    kit.engine.verb(second, Verb::Hold, "ann", "the rack is being moved").await.unwrap();
    book.write(&kit, "held by an operator", second).await;

    let third = kit.start("drill", &["unknown-z"]).await;
    kit.run_until_idle().await;
    book.write(&kit, "a step of another version", third).await;

    kit.script("e", [Act::Await("report")]);
    let alone =
        || vec![LockRequest { resource: "rack".to_owned(), capacity: 1, on_conflict: OnConflict::Wait }];
    let holder = NewRun { locks: alone(), ..new_run("drill", &["e"], kit.now()) };
    let holder = kit.start_run(holder).await;
    kit.run_until_idle().await;
    let next = kit.start_run(NewRun { locks: alone(), ..new_run("drill", &["e"], kit.now()) }).await;
    book.write(&kit, "queued for a lock", next).await;
    kit.report(holder).await;
    kit.run_until_idle().await;
    book.write(&kit, "succeeded", holder).await;

    kit.script("gate", [Act::Permit, Act::Permit]);
    kit.script("g", [Act::Await("report")]);
    kit.start("drill", &["gate", "g"]).await;
    let queued = kit.start("drill", &["gate"]).await;
    kit.run_until_idle().await;
    book.write(&kit, "queued for a permit", queued).await;

    kit.script("solid", [Act::Stall]);
    let solid = kit.start("drill", &["solid"]).await;
    kit.run_until_stall(&kit.engine).await;
    book.write(&kit, "a worker executes a step that may not be interrupted", solid).await;
    kit.engine.verb(solid, Verb::Cancel, "ann", "wrong rack").await.unwrap();
    book.write(&kit, "a cancel of a step that may not be interrupted", solid).await;

    let waiting = GateClosure { since: kit.now(), by: "ann".to_owned(), reason: "upgrade".to_owned() };
    let server = Server::unknown("S-1".parse().unwrap(), kit.now());
    let serial = server.serial.clone();
    kit.engine.store().create_server(server, NewEvent::info("server.created", "x")).await.unwrap();
    let gated = NewRun { server: Some(serial.clone()), ..new_run("drill", &["a"], kit.now()) };
    let gated = kit.start_run(gated).await;
    kit.engine.store().set_maintenance(&serial, Some(waiting.clone()), "ann", kit.now()).await.unwrap();
    book.write(&kit, "its server in maintenance", gated).await;
    kit.engine.store().drain(waiting).await.unwrap();
    book.write(&kit, "the controller drained", gated).await;
    kit.engine.store().undrain("ann", kit.now()).await.unwrap();
    kit.engine.store().set_maintenance(&serial, None, "ann", kit.now()).await.unwrap();
    kit.script("w", [Act::Await("report")]);
    let past = NewRun { server: Some(serial.clone()), ..new_run("drill", &["w"], kit.now()) };
    let past = kit.start_run(past).await;
    kit.run_until_idle().await;
    kit.clock.advance(Duration::from_secs(3600));
    let copied = Some("the data directory is a copy of the one that the last controller used".to_owned());
    kit.engine.store().set_origin("mark".to_owned(), copied, kit.now()).await.unwrap();
    book.write(&kit, "restored data", past).await;
    kit.engine.release_server(&serial, Some(UnfinishedRuns::End), "ann", kit.now()).await.unwrap();
    book.write(&kit, "ended by the release of its server", past).await;
    kit.script("u", [Act::Await("report")]);
    let unreadable = kit.start("drill", &["u"]).await;
    let sql = "UPDATE runs SET wait = '{' WHERE id = ?1";
    kit.outside_view().execute(sql, [unreadable.to_string()]).unwrap();
    kit.clock.advance(Duration::from_secs(3600));
    kit.run_until_idle().await;
    book.write(&kit, "a row that cannot be read", unreadable).await;

    kit.script("f", [Act::Fail]);
    let failed = kit.start("drill", &["f"]).await;
    kit.run_until_idle().await;
    book.write(&kit, "failed", failed).await;

    kit.engine.gauge(Arc::new(FullDisk));
    let gated = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    book.write(&kit, "the controller under pressure", gated).await;

    assert_eq!(book.seen, all(), "a condition has no entry in the golden file");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/explain.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &book.text).unwrap();
    }
    assert_eq!(book.text, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
}

/// A run of a server of this model, whose report arrives after so many seconds.
async fn reported_after(kit: &Kit, serial: &str, model: &str, seconds: u64) -> RunId {
    let server = Server::unknown(serial.parse().unwrap(), kit.now());
    if kit.engine.store().server(&server.serial).await.unwrap().is_none() {
        kit.engine
            .store()
            .create_server(server.clone(), NewEvent::info("server.created", "x"))
            .await
            .unwrap();
        let observed = "INSERT INTO server_observed (serial, observed) VALUES (?1, json_object('model', ?2))
                        ON CONFLICT (serial) DO UPDATE SET observed = excluded.observed";
        kit.outside_view().execute(observed, [serial, model]).unwrap();
    }
    kit.script("installs", [Act::Await("report"), Act::Done]);
    let run = NewRun { server: Some(server.serial), ..new_run("drill", &["installs"], kit.now()) };
    let run = kit.start_run(run).await;
    kit.run_until_idle().await;
    kit.pass(seconds).await;
    if seconds > 0 {
        kit.report(run).await;
        kit.run_until_idle().await;
    }
    run
}

#[tokio::test]
async fn a_wait_is_compared_with_former_runs_of_its_model_when_there_are_three_and_it_is_not_young() {
    let kit = Kit::new();
    for (serial, model, seconds) in
        [("A", "R650", 120), ("B", "R650", 90), ("C", "R750", 600), ("C", "R750", 600)]
    {
        reported_after(&kit, serial, model, seconds).await;
    }
    let waits = async |serial: &str, model: &str, seconds: u64| {
        let run = reported_after(&kit, serial, model, 0).await;
        kit.pass(seconds).await;
        let summary = kit.explain(run).await.summary;
        kit.report(run).await;
        kit.run_until_idle().await;
        summary
    };
    assert!(!waits("D", "R650", 100).await.contains("usually"), "two former runs are too few");
    assert!(!waits("D", "R650", 29).await.contains("usually"), "a young wait is not compared");
    let third = waits("D", "R650", 45).await;
    assert!(
        third.ends_with("; installs runs since 45s and usually takes 1m 40s (median of 4 jobs)"),
        "{third}"
    );
    assert!(!waits("E", "R650xs", 45).await.contains("usually"), "another model");
}

#[test]
#[should_panic(expected = "next_check")]
fn an_explanation_without_an_exit_fails_the_check() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    sane(&Explanation {
        condition: Condition::Waiting,
        reason: None,
        step: None,
        summary: "waiting".to_owned(),
        since: now,
        deadline: None,
        next_check: None,
        ends_by: "a message".to_owned(),
        next_action: "send it".to_owned(),
        uninterruptible: None,
    });
}
