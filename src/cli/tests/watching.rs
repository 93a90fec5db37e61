//! `shoal job watch`, and `--watch` of lists.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Command;
use serde_json::{Value, json};

use super::super::definition;
use super::{Controller, shoal};
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

/// The lists that are not followed, with the reason.
const WITHOUT_WATCH: &[(&str, &str)] = &[
    ("job events", "`--follow` shows later events, and ends with the job"),
    ("registry pins", "it reads the data directory of a stopped controller, where nothing changes"),
    ("iso ls", "the files of an image do not change"),
];

/// Lists whose name and description do not say that they are.
const LISTS: [&str; 2] = ["server conditions", "firmware history"];

/// Whether a sample is a page of rows.
fn is_page(path: &str) -> bool {
    let name = format!("{}.json", path.replace(' ', "-"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/cli-json").join(name);
    let sample: Value = serde_json::from_slice(&std::fs::read(file).unwrap_or_default()).unwrap_or_default();
    let has_rows = |member: &Value| member.as_array().is_some_and(|rows| rows.iter().any(Value::is_object));
    sample.as_object().is_some_and(|page| page.contains_key("next") && page.values().any(has_rows))
}

/// The paths of the lists, each with whether it takes the `--watch` of lists.
fn lists(command: &Command, above: &str, found: &mut Vec<(String, bool)>) {
    for part in command.get_subcommands() {
        let path = format!("{above} {}", part.get_name()).trim().to_owned();
        let about = part.get_about().map(ToString::to_string).unwrap_or_default();
        let is_leaf = part.get_subcommands().next().is_none();
        let is_named = ["list", "ls"].contains(&part.get_name()) || about.starts_with("List ");
        if is_leaf && (is_named || LISTS.contains(&&*path) || is_page(&path)) {
            let follows = |help: String| help.starts_with("Continue, and show changes");
            let takes = part.get_arguments().any(|argument| {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                argument.get_long() == Some("watch") && follows(help)
            });
            found.push((path.clone(), takes));
        }
        lists(part, &path, found);
    }
}

#[test]
fn each_list_command_takes_watch() {
    let mut found = Vec::new();
    lists(&definition(), "", &mut found);
    assert!(found.len() > 20, "{found:?}");
    let paths: BTreeSet<&str> = found.iter().map(|(path, _)| &**path).collect();
    for list in ["event list", "job list", "registry uploads", "webhook dead-letters", "controller restored"]
    {
        assert!(paths.contains(list), "{list} is not found as a list");
    }
    let without: BTreeSet<&str> = found.iter().filter(|(_, takes)| !takes).map(|(path, _)| &**path).collect();
    let allowed: BTreeSet<&str> = WITHOUT_WATCH.iter().map(|(path, _)| *path).collect();
    assert_eq!(without, allowed, "flatten WatchArgs into a list, or give the reason why it is not followed");
    assert!(LISTS.iter().all(|list| paths.contains(list)), "{LISTS:?}");
}

/// The document of a list with rows of these names.
type Document = fn(&[&str]) -> Value;

/// What a list shows with `--watch`: at the first read one row, then two, then the controller ends it.
fn watched(command: &[&str], place: &'static str, document: Document) -> String {
    let reads = AtomicU64::new(0);
    let controller = Controller::start(move |seen| match seen.uri.path() {
        path if path == place => match reads.fetch_add(1, Ordering::Relaxed) {
            0 => (200, document(&["first"])),
            1 => (200, document(&["first", "second"])),
            _ => (403, json!({ "error": "forbidden", "message": "the end", "details": [] })),
        },
        "/api/v1/events" => (404, json!({ "error": "not_found", "message": "no stream", "details": [] })),
        _ => (200, json!({ "webhooks": [{ "webhook_id": "W-1" }], "events": [], "next": null })),
    });
    controller.shoal(&[command, &["--watch"]].concat()).ends_with(5).out
}

#[test]
fn a_followed_list_shows_what_is_new_once() {
    fn letters(types: &[&str]) -> Value {
        let rows = types.iter().map(|kind| json!({ "seq": 1, "type": kind })).collect::<Vec<_>>();
        json!({ "dead_letters": rows, "next": null })
    }
    fn servers(serials: &[&str]) -> Value {
        json!({ "servers": serials.iter().map(|serial| json!({ "serial": serial })).collect::<Vec<_>>() })
    }
    fn repositories(names: &[&str]) -> Value {
        let rows = names.iter().map(|name| json!({ "name": name, "names": [] })).collect::<Vec<_>>();
        json!({ "repositories": rows, "next": null })
    }
    fn jobs(outcomes: &[&str]) -> Value {
        let row = |outcome: &&str| json!({ "job_id": outcome, "status": "complete", "outcome": outcome });
        json!({ "jobs": outcomes.iter().map(row).collect::<Vec<_>>(), "next": null })
    }
    let lists: [(&[&str], &'static str, Document); 4] = [
        (&["webhook", "dead-letters", "W-1"], "/api/v1/webhooks/W-1/dead-letters", letters),
        (&["controller", "restored"], "/api/v1/restored", servers),
        (&["registry", "ls", "--online"], "/api/v1/registry/repositories", repositories),
        (&["firmware", "history", "XF-1"], "/api/v1/jobs", jobs),
    ];
    std::thread::scope(|scope| {
        for (command, place, document) in lists {
            scope.spawn(move || {
                let out = watched(command, place, document);
                for row in ["first", "second"] {
                    let rows = out.lines().filter(|line| line.contains(row)).count();
                    assert_eq!(rows, 1, "{command:?}: {out}");
                }
            });
        }
    });
}

#[test]
fn the_registry_of_a_data_directory_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let ran =
        shoal(&["registry", "--storage-root", dir.path().to_str().unwrap(), "ls", "--watch"]).ends_with(2);
    assert!(ran.err.contains("give --online too"), "{}", ran.err);
}
