//! `shoal batch`: what is previewed, what acts, and the words beside it.

use axum::http::Method;
use serde_json::{Value, json};

use super::{Controller, Seen, refused};

const RECIPE: &str = r#"{ "$schema": "https://schemas.shoal.dev/recipe/v1" }"#;

fn files() -> (tempfile::TempDir, [String; 3]) {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["recipe.json", "serials.txt", "batch.json"].map(|name| dir.path().join(name));
    let texts =
        [RECIPE, "XF-1\n# spare\nXF-2\n", r#"{ "rows": [{ "server_serial": "XF-1" }], "recipe": {} }"#];
    for (path, text) in paths.iter().zip(texts) {
        std::fs::write(path, text).unwrap();
    }
    (dir, paths.map(|path| path.to_str().unwrap().to_owned()))
}

fn two_servers(seen: &Seen) -> (u16, Value) {
    match (&seen.method, seen.uri.path()) {
        (&Method::GET, "/api/v1/servers") => {
            (200, json!({ "servers": [{ "serial": "XF-1" }, { "serial": "XF-2" }], "next": null }))
        }
        (_, "/api/v1/jobs") => {
            (200, json!({ "dry_run": true, "would": "accept", "blocked_by": [], "gates": [] }))
        }
        _ => (202, json!({ "batch_id": "b-1", "accepted": 2, "refused": 0, "rows": [] })),
    }
}

fn posts(controller: &Controller) -> Vec<Seen> {
    controller.seen().into_iter().filter(|seen| seen.method == Method::POST).collect()
}

#[test]
fn a_dry_run_of_a_batch_creates_nothing_however_its_servers_are_given() {
    let controller = Controller::start(two_servers);
    let (_dir, [recipe, serials, batch]) = files();
    for given in [
        vec!["batch", "create", "--servers", &serials, "--recipe", &recipe],
        vec!["batch", "create", "--from", &batch],
        vec!["batch", "create", "-l", "site=a", "--recipe", &recipe],
        vec!["job", "create", "--server", "XF-1", "--server", "XF-2", "--recipe", &recipe],
        vec!["job", "create", "--filter", "site=a", "--recipe", &recipe],
    ] {
        let ran = controller.shoal(&[&given[..], &["--dry-run"]].concat()).ends_with(0);
        assert!(ran.out.contains(" selected, ") && ran.out.contains("XF-1"), "{given:?}: {}", ran.out);
        assert!(ran.err.contains("nothing was changed; leave out --dry-run"), "{given:?}: {}", ran.err);
        let json = controller.shoal(&[&given[..], &["--dry-run", "--json"]].concat()).ends_with(0).json();
        assert_eq!((&json["dry_run"], &json["refused"]), (&json!(true), &json!(0)), "{given:?}");
        assert_eq!(json["rows"][0]["result"], "accepted", "{given:?}");
    }
    let sent = posts(&controller);
    assert_eq!(sent.len(), 2 * (4 * 2 + 1));
    assert!(sent.iter().all(|seen| seen.uri == "/api/v1/jobs?dry_run=true"), "{sent:?}");
}

/// A controller of which `refused` has an unfinished job, `unknown` is not registered, and `broken` has no image.
fn mixed(seen: &Seen) -> (u16, Value) {
    let preview = |would: &str, refused: Value, blocked: Value| {
        let gates = json!([{ "name": "drain", "since": "2026-01-01T00:00:00.000Z" }]);
        (
            200,
            json!({ "would": would, "refused": refused, "blocked_by": blocked, "gates": gates, "steps": [{}] }),
        )
    };
    let active = json!({ "error": "conflict.active_job", "message": "job J-1 is active", "details": [], "request_id": "r" });
    match seen.json()["server_serial"].as_str().unwrap() {
        "refused" => preview("refuse", json!({ "status": 409, "error": active }), json!([])),
        "broken" => preview("accept", json!(null), json!(["the image is not held"])),
        "unknown" => (
            404,
            json!({ "error": "unknown_server", "message": "no such server", "details": [], "request_id": "r" }),
        ),
        _ => preview("accept", json!(null), json!([])),
    }
}

#[test]
fn a_dry_run_of_many_servers_says_of_each_whether_its_job_would_be_accepted() {
    let (_dir, [recipe, ..]) = files();
    let controller = Controller::start(mixed);
    let names = ["good", "refused", "unknown", "broken", "good"];
    let servers = names.iter().flat_map(|name| ["--server", name]);
    let create: Vec<&str> = ["job", "create", "--recipe", &recipe, "--priority", "7", "--dry-run"]
        .into_iter()
        .chain(servers)
        .collect();
    let ran = controller.shoal(&create).ends_with(4);
    let lines: Vec<&str> = ran.out.lines().collect();
    let expected = [
        ("good", "accepted  would wait: drain"),
        ("refused", "refused   job J-1 is active"),
        ("unknown", "refused   no such server"),
        ("broken", "accepted  would fail: the image is not held; would wait: drain"),
        (
            "good",
            "refused   an earlier row is of this server too, and a server has one unfinished job at a time",
        ),
    ];
    assert_eq!(lines.len(), 7, "{}", ran.out);
    for (line, (serial, result)) in lines[1..].iter().zip(expected) {
        assert!(line.starts_with(serial) && line.ends_with(result), "{line}");
    }
    assert_eq!(lines[6], "job create: 5 servers selected, 2 accepted, 3 refused");
    assert!(ran.err.contains("3 of 5 jobs would be refused"), "{}", ran.err);
    let mut sent: Vec<Value> = posts(&controller).iter().map(Seen::json).collect();
    sent.sort_by_key(|body| body["server_serial"].to_string());
    assert_eq!(sent[0]["server_serial"], "broken");
    assert!(sent.iter().all(|body| body["priority"] == 7 && body["recipe"].is_object()), "{sent:?}");

    let json = controller.shoal(&[&create[..], &["--json"]].concat()).ends_with(4).json();
    assert_eq!(
        json!([json["dry_run"], json["count"], json["checked"], json["accepted"], json["refused"]]),
        json!([true, 5, 5, 2, 3])
    );
    let row = &json["rows"][1];
    assert_eq!(
        (&row["index"], &row["server_serial"], &row["result"], &row["error"]["error"]),
        (&json!(1), &json!("refused"), &json!("refused"), &json!("conflict.active_job"))
    );
    assert_eq!(json["rows"][0]["error"], json!(null));
    assert_eq!(json["rows"][3]["blocked_by"], json!(["the image is not held"]));
    let names = controller.shoal(&[&create[..], &["-o", "name"]].concat()).ends_with(4);
    assert_eq!(names.out, "good\nbroken\n", "what would be refused has no name");
}

#[test]
fn a_dry_run_checks_the_first_two_hundred_servers_and_says_that_the_others_were_not_checked() {
    let (dir, [recipe, ..]) = files();
    let controller = Controller::start(two_servers);
    let list = dir.path().join("many.txt");
    std::fs::write(&list, (0..250).map(|number| format!("XF-{number}\n")).collect::<String>()).unwrap();
    let create = ["batch", "create", "--servers", list.to_str().unwrap(), "--recipe", &recipe, "--dry-run"];
    let ran = controller.shoal(&create).ends_with(0);
    assert!(
        ran.out.ends_with("batch create: 250 servers selected, 200 accepted, 0 refused, 50 not checked\n"),
        "{}",
        ran.out
    );
    assert!(ran.err.contains("checked the first 200 servers and not the other 50"), "{}", ran.err);
    let mut asked: Vec<String> = posts(&controller)
        .iter()
        .map(|seen| seen.json()["server_serial"].as_str().unwrap().to_owned())
        .collect();
    asked.sort();
    let mut first: Vec<String> = (0..200).map(|number| format!("XF-{number}")).collect();
    first.sort();
    assert_eq!(asked, first);
    let json = controller.shoal(&[&create[..], &["--json"]].concat()).ends_with(0).json();
    assert_eq!((&json["count"], &json["checked"]), (&json!(250), &json!(200)));
    let rows: Vec<u64> =
        json["rows"].as_array().unwrap().iter().map(|row| row["index"].as_u64().unwrap()).collect();
    assert_eq!(rows, (0..200).collect::<Vec<u64>>(), "in the order of the batch");
}

#[test]
fn a_dry_run_without_a_valid_login_ends_with_the_first_refusal() {
    let (dir, [recipe, ..]) = files();
    let controller = Controller::start(|_| {
        (401, json!({ "error": "unauthorized", "message": "no login", "details": [] }))
    });
    let list = dir.path().join("many.txt");
    std::fs::write(&list, (0..100).map(|number| format!("XF-{number}\n")).collect::<String>()).unwrap();
    let create = ["batch", "create", "--servers", list.to_str().unwrap(), "--recipe", &recipe, "--dry-run"];
    let ran = controller.shoal(&create).ends_with(5);
    assert!(ran.out.is_empty(), "{}", ran.out);
    assert!(posts(&controller).len() <= 9, "eight at a time, and what began before the end");
}

#[test]
fn the_dry_run_of_a_batch_file_has_the_values_of_each_row_and_the_others_from_the_batch() {
    let controller = Controller::start(two_servers);
    let (_dir, [_, _, batch]) = files();
    let order = r#"{
        "rows": [{ "server_serial": "XF-1", "priority": 3, "labels": null, "timeouts": { "webhook.wait": 9 } },
                 { "server_serial": "XF-2", "recipe": { "own": 1.50 } }],
        "recipe": { "all": true }, "priority": 7, "labels": { "wave": "1" }, "max_parallel": 2
    }"#;
    std::fs::write(&batch, order).unwrap();
    controller
        .shoal(&["batch", "create", "--from", &batch, "--dry-run", "--idempotency-key", "k"])
        .ends_with(0);
    let mut sent = posts(&controller);
    sent.sort_by_key(|seen| seen.json()["server_serial"].to_string());
    let expected = [
        json!({
            "server_serial": "XF-1", "priority": 3, "labels": { "wave": "1" }, "recipe": { "all": true },
            "timeouts": { "webhook.wait": 9 },
        }),
        json!({ "server_serial": "XF-2", "priority": 7, "labels": { "wave": "1" }, "recipe": { "own": 1.5 } }),
    ];
    assert_eq!(sent.iter().map(Seen::json).collect::<Vec<Value>>(), expected);
    assert!(sent[1].body.contains("1.50"), "a recipe is sent as it was written: {}", sent[1].body);
    let keys: Vec<Option<&str>> = sent.iter().map(|seen| seen.header("idempotency-key")).collect();
    assert_eq!(keys, [Some("k#0"), Some("k#1")], "the keys that the controller gives the rows of the batch");
    std::fs::write(&batch, r#"{ "rows": [], "recipe": {} }"#).unwrap();
    controller.shoal(&["batch", "create", "--from", &batch, "--dry-run"]).ends_with(1);
}

#[test]
fn a_filter_is_previewed_and_acts_with_yes_only() {
    let controller = Controller::start(two_servers);
    let (_dir, [recipe, ..]) = files();
    for filter in [vec!["batch", "create", "-l", "site=a"], vec!["job", "create", "--filter", "site=a"]] {
        let command = [&filter[..], &["--recipe", &recipe]].concat();
        let before = posts(&controller).len();
        let without =
            controller.shoal(&[&filter[..], &["--recipe", "/nowhere/recipe.json"]].concat()).ends_with(3);
        assert!(without.out.is_empty() && without.err.contains("/nowhere/recipe.json"), "{}", without.err);
        let ran = controller.shoal(&command).ends_with(0);
        assert!(ran.err.contains("add --yes, or --yes --expect 2"), "{command:?}: {}", ran.err);
        controller.shoal(&[&command[..], &["--yes", "--expect", "3"]].concat()).ends_with(4);
        assert_eq!(posts(&controller).len(), before, "{command:?}");
        controller.shoal(&[&command[..], &["--yes", "--expect", "2"]].concat()).ends_with(0);
        assert_eq!(posts(&controller).len(), before + 1, "{command:?}");
    }
    assert!(
        refused(&["batch", "create", "-l", "a=b", "--recipe", "r", "--yes", "--dry-run"])
            .contains("--dry-run")
    );
}

#[test]
fn batches_are_listed_to_the_limit_and_the_controller_filters_them_by_time() {
    let controller = Controller::start(|seen| {
        let query = seen.uri.query().unwrap_or_default();
        let batch = |number: usize| json!({ "batch_id": format!("b-{number}"), "progress": {} });
        let rows = if query.contains("cursor=") { 100..130 } else { 0..100 };
        let next = if query.contains("cursor=") { Value::Null } else { json!("c") };
        (200, json!({ "batches": rows.map(batch).collect::<Vec<_>>(), "next": next }))
    });
    let all =
        controller.shoal(&["batch", "list", "--limit", "500", "--since", "7d", "-o", "name"]).ends_with(0);
    assert_eq!(all.out.lines().count(), 130);
    let sent: Vec<String> = controller.seen().iter().map(|seen| seen.uri.to_string()).collect();
    assert!(
        sent[0].contains("since=20") && sent[0].contains("limit=100") && sent[1].contains("cursor=c"),
        "{sent:?}"
    );
    let first = controller.shoal(&["batch", "list", "--limit", "100"]).ends_with(0);
    assert!(first.err.contains("there are more batches"), "{}", first.err);
}

#[test]
fn a_batch_is_continued_and_retried_by_the_beginning_of_its_id_and_a_cause_by_its_own() {
    const ID: &str = "0192f3a4-5b6c-7abc-8def-0123456789ab";
    let controller = Controller::start(|seen| match (&seen.method, seen.uri.path()) {
        (&Method::GET, _) => (200, json!({ "batches": [{ "batch_id": ID }], "next": null })),
        (_, path) if path.ends_with("/continue") => (202, json!({ "batch_id": ID })),
        _ => (202, json!({ "batch_id": "b-2", "accepted": 1, "refused": 0, "superseded": 2, "rows": [] })),
    });
    controller.shoal(&["batch", "continue", "0192f3a4"]).ends_with(0);
    let retry = ["batch", "retry", "0192f3a4", "--failed", "--cause", "00ff", "--expect", "1"];
    let ran = controller.shoal(&retry).ends_with(0);
    assert!(ran.out.contains("left out: 2 jobs, because a newer installation"), "{}", ran.out);
    let sent = posts(&controller);
    assert_eq!(sent[0].uri.path(), format!("/api/v1/batches/{ID}/continue"));
    assert_eq!(sent[1].uri.path(), format!("/api/v1/batches/{ID}/retry"));
    assert_eq!((&sent[1].json()["cause"], &sent[1].json()["expected"]), (&json!("00ff"), &json!(1)));
}

#[test]
fn a_batch_with_refused_rows_fails_and_one_without_a_job_is_not_waited_for() {
    let row = json!({ "index": 1, "server_serial": "XF-2", "job_id": null, "result": "refused", "error": { "message": "busy" } });
    let none = json!({ "queued": 0, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 0 });
    for accepted in [0, 1] {
        let created = json!({
            "batch_id": "b-1", "accepted": accepted, "refused": 2 - accepted, "total": 2, "jobs": accepted,
            "complete": true, "progress": none, "causes": [], "rows": [row],
        });
        let controller = Controller::start(move |seen| {
            (if seen.method == Method::GET { 200 } else { 202 }, created.clone())
        });
        let (_dir, [recipe, serials, _]) = files();
        let create = ["batch", "create", "--servers", &serials, "--recipe", &recipe];
        for more in [vec![], vec!["--json"], vec!["--watch"]] {
            let ran = controller.shoal(&[&create[..], &more].concat()).ends_with(1);
            assert!(ran.err.contains("rows"), "{more:?}: {}", ran.err);
        }
        let watched =
            controller.shoal(&["batch", "watch", "0192f3a4-5b6c-7abc-8def-0123456789ab"]).ends_with(1);
        assert!(watched.err.contains("rows without a job"), "{}", watched.err);
    }
}

#[test]
fn a_list_of_servers_acts_at_once_and_takes_no_yes() {
    let controller = Controller::start(two_servers);
    let (_dir, [recipe, serials, batch]) = files();
    controller.shoal(&["batch", "create", "--servers", &serials, "--recipe", &recipe, "--yes"]).ends_with(2);
    assert_eq!(posts(&controller).len(), 0);
    controller.shoal(&["batch", "create", "--servers", &serials, "--recipe", &recipe]).ends_with(0);
    controller.shoal(&["batch", "create", "--from", &batch]).ends_with(0);
    let sent = posts(&controller);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].json()["rows"], json!([{ "server_serial": "XF-1" }, { "server_serial": "XF-2" }]));
}

#[test]
fn the_names_of_a_list_are_those_of_its_rows_beside_other_lists() {
    let controller = Controller::start(|seen| {
        let document = match seen.uri.path() {
            "/api/v1/firmware" => json!({
                "firmware": [{ "digest": "sha256:aa", "repository": "firmware/a" }],
                "unusable": [{ "digest": "sha256:bb", "repository": "firmware/b" }], "next": null,
            }),
            "/api/v1/worker-tokens" => json!({
                "tokens": [{ "token_id": "T-1", "name": "b", "queues": ["b"] }],
                "workers": [{ "token": "b", "process": "host-1", "queues": ["b"] }], "next": null,
            }),
            _ => {
                json!({ "server_serial": "XF-1", "conditions": [{ "id": "C-1", "kind": "powerCycle", "server_serial": "XF-1" }] })
            }
        };
        (200, document)
    });
    for (command, name) in [
        (&["firmware", "list"][..], "sha256:aa"),
        (&["worker", "list"], "b/host-1"),
        (&["worker", "token", "list"], "b"),
        (&["server", "conditions", "XF-1"], "C-1"),
    ] {
        let ran = controller.shoal(&[command, &["-o", "name"]].concat()).ends_with(0);
        assert_eq!(ran.out, format!("{name}\n"), "{command:?}");
    }
}

#[test]
fn a_filter_without_a_server_creates_nothing_and_is_no_success() {
    let controller = Controller::start(|_| (200, json!({ "servers": [], "next": null })));
    let (_dir, [recipe, ..]) = files();
    for filter in [vec!["batch", "create", "-l", "rack=n40"], vec!["job", "create", "--filter", "rack=n40"]] {
        let command = [&filter[..], &["--recipe", &recipe]].concat();
        controller.shoal(&command).ends_with(0);
        let ran = controller.shoal(&[&command[..], &["--yes"]].concat()).ends_with(1);
        assert!(ran.err.contains("selects no server"), "{}", ran.err);
    }
    assert_eq!(posts(&controller).len(), 0);
}

#[test]
fn a_watch_says_why_no_further_job_of_the_batch_starts_and_what_to_do() {
    let reads = std::sync::atomic::AtomicU32::new(0);
    let controller = Controller::start(move |seen| match seen.uri.path() {
        "/api/v1/batches/b-1" => {
            let read = reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let stop =
                json!({ "reason": "canary", "failures": 1, "next_action": "look at the failure first" });
            let progress = json!({ "failed": 1, "queued": 0 });
            let stop = if read == 0 { json!(null) } else { stop };
            let (total, complete) = (1, read > 2);
            (
                200,
                json!({ "batch_id": "b-1", "complete": complete, "stop": stop, "progress": progress, "total": total, "jobs": 1 }),
            )
        }
        _ => (404, json!({ "error": "not_found", "message": "no stream", "details": [], "request_id": "r" })),
    });
    let ran = controller.shoal(&["batch", "watch", "b-1"]).ends_with(1);
    let said = "no further job starts (canary): look at the failure first";
    assert_eq!(ran.err.matches(said).count(), 1, "{}", ran.err);
}

#[test]
fn jobs_of_many_servers_take_the_limits_of_a_batch_and_one_job_refuses_them() {
    let (_dir, [recipe, ..]) = files();
    let controller = Controller::start(two_servers);
    let limits = ["--max-parallel", "3", "--canary", "1", "--stop-after", "2", "--priority", "7"];
    let two = ["job", "create", "--server", "XF-1", "--server", "XF-2", "--recipe", &recipe];
    controller.shoal(&[&two[..], &limits].concat()).ends_with(0);
    let sent = posts(&controller)[0].json();
    assert_eq!(
        (&sent["max_parallel"], &sent["canary"], &sent["stop_after"]),
        (&json!(3), &json!(1), &json!(2))
    );
    assert_eq!(sent["rows"][1]["priority"], 7, "{sent}");
    let one = ["job", "create", "--server", "XF-1", "--recipe", &recipe];
    let ran = controller.shoal(&[&one[..], &limits].concat()).ends_with(2);
    assert!(ran.err.contains("of the jobs of many servers"), "{}", ran.err);
    assert_eq!(posts(&controller).len(), 1, "nothing was sent for one server");
}
