//! `shoal job watch`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::Controller;
use client::error::CliError;
use client::output::{Format, Output};
use client::test_kit::{PollInterval, watch_to_the_end};

const QUICK: PollInterval = PollInterval {
    shortest: Duration::from_millis(1),
    longest: Duration::from_millis(2),
    max_failures: 5,
    stream: false,
};

/// Watches job `j-1` without long pauses.
fn watch(controller: &Controller, json: bool) -> (Result<(), CliError>, String, String) {
    let client = client::test_kit::client(&controller.url).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let format = if json { Format::Json } else { Format::Text };
    let mut output = Output::new(&mut out, &mut err, format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(watch_to_the_end(&client, "j-1", QUICK, &mut output));
    (result, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// A job that has one more event at each read and is complete at the fifth.
fn job_that_ends(outcome: &'static str) -> impl Fn(&super::Seen) -> (u16, Value) {
    let looks = AtomicU64::new(0);
    move |seen| {
        if seen.uri.path().ends_with("/events") {
            let known = looks.load(Ordering::Relaxed);
            let after: u64 =
                seen.uri.query().unwrap()["after=".len()..].split('&').next().unwrap().parse().unwrap();
            let events: Vec<Value> = (after + 1..=known)
                .map(|seq| json!({"seq": seq, "message": format!("event {seq}.")}))
                .collect();
            return (200, json!({"events": events, "next": known}));
        }
        let look = looks.fetch_add(1, Ordering::Relaxed) + 1;
        let (status, outcome) =
            if look >= 5 { ("complete", json!(outcome)) } else { ("provisioning", Value::Null) };
        (200, json!({"job_id": "j-1", "status": status, "outcome": outcome}))
    }
}

#[test]
fn every_event_is_shown_once_and_only_success_ends_with_0() {
    let (result, out, _) = watch(&Controller::start(job_that_ends("succeeded")), false);
    assert!(result.is_ok());
    for seq in 1..=5 {
        assert_eq!(out.matches(&format!("event {seq}.")).count(), 1, "{out}");
    }
    assert!(out.contains("outcome  succeeded"), "{out}");
    for outcome in ["failed", "cancelled"] {
        let (result, ..) = watch(&Controller::start(job_that_ends(outcome)), false);
        assert!(matches!(result, Err(CliError::JobEnded { outcome: ended, .. }) if ended == outcome));
    }
}

#[test]
fn json_is_one_document_a_line_with_the_job_at_the_end() {
    let (_, out, _) = watch(&Controller::start(job_that_ends("succeeded")), true);
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 6);
    assert_eq!((&lines[4]["seq"], &lines[5]["outcome"]), (&json!(5), &json!("succeeded")));
}

#[test]
fn a_controller_that_restarts_does_not_end_the_watch() {
    let requests = AtomicU64::new(0);
    let job = job_that_ends("succeeded");
    let controller = Controller::start(move |seen| match requests.fetch_add(1, Ordering::Relaxed) {
        3..=6 => (503, json!({"error": "stopping", "message": "the controller stops"})),
        _ => job(seen),
    });
    let (result, _, err) = watch(&controller, false);
    assert!(result.is_ok(), "{err}");
    assert!(err.contains("trying again") && err.contains("responds again"), "{err}");
}

#[test]
fn a_controller_that_stays_unreachable_ends_the_watch() {
    let controller =
        Controller::start(|_| (503, json!({"error": "stopping", "message": "the controller stops"})));
    let (result, ..) = watch(&controller, false);
    assert!(matches!(result, Err(CliError::Refused { status: 503, .. })));
    assert_eq!(controller.seen().len(), 6);
}

#[test]
fn an_unknown_job_ends_the_watch_at_once() {
    let controller = Controller::start(|_| (404, json!({"error": "unknown_job", "message": "no such job"})));
    controller.shoal(&["job", "watch", "j-1"]).ends_with(3);
    assert_eq!(controller.seen().len(), 1);
}

#[test]
fn create_with_watch_follows_the_new_job() {
    let controller = Controller::start(|seen| match seen.uri.path() {
        "/api/v1/jobs" => (202, json!({"job_id": "j-1", "status": "queued"})),
        "/api/v1/jobs/j-1" => (200, json!({"job_id": "j-1", "status": "complete", "outcome": "failed"})),
        _ => (200, json!({"events": [], "next": 0})),
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recipe.json");
    std::fs::write(&path, "{}").unwrap();
    let create = ["job", "create", "--server", "XF-1", "--watch", "--recipe", path.to_str().unwrap()];
    let ran = controller.shoal(&create).ends_with(1);
    assert!(ran.err.contains("job j-1 ended failed"), "{}", ran.err);
}
