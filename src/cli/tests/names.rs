//! `-o name`: each list names its own rows, one per line, and nothing else.

use std::collections::BTreeSet;

use clap::Command;
use serde_json::{Value, json};

use super::super::definition;
use super::Controller;

const JOB: &str = "0192f3a4-5b6c-7abc-8def-0123456789ab";

/// Each list with the document of the controller, which has rows, and its names.
fn lists() -> Vec<(&'static str, Value, &'static [&'static str])> {
    let token = json!({ "token_id": "T-1", "name": "ci", "role": "operator", "labels": {}, "queues": ["b"] });
    let event = |seq: u64| {
        json!({ "seq": seq, "time": "2026-01-01T00:00:00.000Z", "level": "info", "type": "step.done",
                                   "job_id": JOB, "server_serial": "XF-1", "actor": "engine", "message": "m", "data": {} })
    };
    let letter = |seq: u64| json!({ "seq": seq, "type": "run.ended", "job_id": JOB, "attempts": 40, "error": "refused" });
    let medium = |image: &str| {
        json!({ "job_id": JOB, "workflow": "provision", "server_serial": "XF-1", "image": image, "state": "ended",
                "sha256": "aa", "size": 9, "bytes": 9, "since": "2026-01-01T00:00:00.000Z" })
    };
    let status = json!({
        "schedule": "daily", "target": "/b", "keep": 7, "running": null, "failure": null, "old": false,
        "last": { "name": "shoal-2", "files": 1, "servers": 1, "jobs": 1, "bytes": 7, "digest": "sha256:aa" },
        "verification": null, "warnings": ["the target is on the same file system as the data"],
    });
    vec![
        (
            "server list",
            json!({ "servers": [{ "id": 1, "serial": "XF-1", "labels": {}, "quirks": [] }], "next": null }),
            &["XF-1"],
        ),
        (
            "server conditions XF-1",
            json!({ "server_serial": "XF-1", "conditions": [{ "id": "C-1", "kind": "powerCycle", "server_serial": "XF-1" }] }),
            &["C-1"],
        ),
        (
            "job list",
            json!({ "jobs": [{ "job_id": JOB, "server_serial": "XF-1", "workflow": "provision" }], "next": null }),
            &[JOB],
        ),
        ("job events J-1", json!({ "events": [event(3), event(4)], "next": 4 }), &["3", "4"]),
        (
            "batch list",
            json!({ "batches": [{ "batch_id": "B-1", "jobs": 2, "progress": {} }], "next": null }),
            &["B-1"],
        ),
        (
            "media list",
            json!({ "media": [medium("task"), medium("boot"), medium("boot")], "next": null }),
            &["0192f3a4-5b6c-7abc-8def-0123456789ab/task", "0192f3a4-5b6c-7abc-8def-0123456789ab/boot"],
        ),
        (
            "webhook list",
            json!({ "webhooks": [{ "webhook_id": "W-1", "target": "t", "types": ["a"] }], "next": null }),
            &["W-1"],
        ),
        (
            "webhook dead-letters W-1",
            json!({ "dead_letters": [letter(7), letter(9)], "next": null }),
            &["7", "9"],
        ),
        (
            "firmware list",
            json!({ "firmware": [{ "digest": "sha256:aa", "repository": "firmware/a" }], "unusable": [], "next": null }),
            &["sha256:aa"],
        ),
        (
            "firmware set list",
            json!({ "sets": [{ "id": "S-1", "name": "spring", "files": ["sha256:aa"] }], "next": null }),
            &["spring"],
        ),
        (
            "controller restored",
            json!({ "servers": [{ "serial": "XF-1", "restored": { "as_of": "t" }, "jobs": [JOB] }] }),
            &["XF-1"],
        ),
        ("user list", json!({ "users": [{ "name": "ann", "role": "admin" }], "next": null }), &["ann"]),
        ("token list", json!({ "tokens": [token.clone()], "next": null }), &["ci"]),
        (
            "worker list",
            json!({ "tokens": [token.clone()], "workers": [{ "token": "ci", "process": "host-1", "queues": ["b"] }], "next": null }),
            &["ci/host-1"],
        ),
        ("worker token list", json!({ "tokens": [token], "workers": [], "next": null }), &["ci"]),
        (
            "session list",
            json!({ "sessions": [{ "session_id": "7", "name": "ann", "address": "192.0.2.1" }], "next": null }),
            &["7"],
        ),
        (
            "audit list",
            json!({ "entries": [{ "seq": 5, "action": "job.cancel", "actor": "ann", "actor_kind": "user", "request_id": "r" }], "head": "5:aa", "next": null }),
            &["5"],
        ),
        (
            "secret list",
            json!({ "secrets": [{ "name": "bmc-passwords", "key_id": "k", "former": [], "purpose": "p" }], "next": null }),
            &["bmc-passwords"],
        ),
        (
            "registry uploads",
            json!({ "uploads": [{ "id": "U-1", "repository": "os/a", "uploader": "ann" }] }),
            &["U-1"],
        ),
        (
            "backup list",
            json!({ "backups": [{ "name": "shoal-1", "digest": "sha256:aa" }], "next": null }),
            &["shoal-1"],
        ),
        ("backup status", status.clone(), &["shoal-2"]),
    ]
}

#[test]
fn a_list_of_names_that_goes_on_says_so() {
    let controller =
        Controller::start(|_| (200, json!({ "servers": [{ "serial": "XF-1" }], "next": "XF-1" })));
    let ran = controller.shoal(&["server", "list", "-o", "name", "--limit", "1"]).ends_with(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("XF-1\n", "there are more; give a larger --limit\n"));
}

#[test]
fn refused_rows_of_an_import_have_no_name() {
    let row = |serial: &str, result: &str| json!({ "serial": serial, "result": result });
    let rows = json!([row("A", "created"), row("B", "refused"), row("C", "exists")]);
    let page = json!({ "created": 1, "exists": 1, "refused": 1, "rows": rows });
    let controller = Controller::start(move |_| (200, page.clone()));
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("t.csv");
    std::fs::write(&table, "serial\nA\nB\nC\n").unwrap();
    let ran = controller.shoal(&["server", "import", table.to_str().unwrap(), "-o", "name"]).ends_with(1);
    assert_eq!(ran.out, "A\nC\n");
}

#[test]
fn each_list_names_its_own_rows() {
    for (command, document, names) in lists() {
        let controller = Controller::start(move |_| (200, document.clone()));
        let words: Vec<&str> = command.split(' ').collect();
        let ran = controller.shoal(&[&words[..], &["-o", "name"]].concat()).ends_with(0);
        assert_eq!(ran.out.lines().collect::<Vec<_>>(), names, "{command}");
    }
}

#[test]
fn no_list_of_the_program_is_left_out() {
    fn lists_of(command: &Command, words: &str, found: &mut BTreeSet<String>) {
        for part in command.get_subcommands() {
            let words = format!("{words} {}", part.get_name());
            if part.get_name() == "list" {
                found.insert(words.trim().to_owned());
            }
            lists_of(part, &words, found);
        }
    }
    let mut all = BTreeSet::new();
    lists_of(&definition(), "", &mut all);
    // Its rows come from several pages of the log: `cli::tests::online`.
    let known = lists().into_iter().map(|(command, ..)| command).chain(["event list"]).map(str::to_owned);
    let known: BTreeSet<String> = known.collect();
    assert!(all.is_subset(&known), "{:?}", all.difference(&known));
}

#[test]
fn a_backup_that_was_made_or_verified_is_its_name() {
    let made = std::sync::atomic::AtomicBool::new(false);
    let controller = Controller::start(move |seen| {
        let begins = seen.method == axum::http::Method::POST;
        let is_made = made.fetch_or(begins, std::sync::atomic::Ordering::Relaxed);
        let name = if is_made { "shoal-2" } else { "shoal-1" };
        let document = json!({
            "last": { "name": name, "files": 1 }, "running": null, "warnings": ["the target is on the same disk"],
            "verification": { "name": "shoal-2", "damage": null, "error": null },
        });
        (if begins { 202 } else { 200 }, document)
    });
    let now = controller.shoal(&["backup", "now", "-o", "name"]).ends_with(0);
    assert_eq!(now.out, "shoal-2\n");
    let verified = controller.shoal(&["backup", "verify", "-o", "name"]).ends_with(0);
    assert_eq!(verified.out, "shoal-2\n");
}
