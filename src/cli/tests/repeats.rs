//! Commands that create jobs: a lost response creates nothing twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::Method;
use serde_json::{Value, json};

use super::{Controller, LOST, Seen, shoal};

/// A controller that loses the responses to the first creating requests.
fn losing(lost: u64) -> Controller {
    let posts = AtomicU64::new(0);
    Controller::start(move |seen| match (&seen.method, seen.uri.path()) {
        (&Method::GET, "/api/v1/servers") => {
            (200, json!({ "servers": [{ "serial": "XF-1" }, { "serial": "XF-2" }], "next": null }))
        }
        (&Method::POST, _) if seen.uri.query().is_some() => (200, json!({ "count": 1, "first": [] })),
        (&Method::POST, _) if posts.fetch_add(1, Ordering::Relaxed) < lost => (LOST, Value::Null),
        (&Method::POST, path) if path.ends_with("/condition") => {
            (200, json!({ "id": "C-1", "state": "pending" }))
        }
        (&Method::POST, path) if path.contains("batches") || path.contains("job-selections") => {
            (200, json!({ "batch_id": "b-1", "accepted": 2, "refused": 0, "rows": [] }))
        }
        _ => (200, json!({ "job_id": "j-1", "status": "queued" })),
    })
}

/// The requests that create something.
fn creating(controller: &Controller) -> Vec<Seen> {
    let is_creating = |seen: &Seen| seen.method == Method::POST && seen.uri.query().is_none();
    controller.seen().into_iter().filter(is_creating).collect()
}

/// Runs a check for each command that creates jobs.
fn for_each_command(check: impl Fn(&[&str])) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recipe.json");
    std::fs::write(&path, "{}").unwrap();
    let recipe = path.to_str().unwrap();
    for command in [
        &["job", "create", "--server", "XF-1", "--recipe", recipe][..],
        &["job", "create", "--server", "XF-1", "--server", "XF-2", "--recipe", recipe],
        &["job", "create", "--filter", "site=a", "--recipe", recipe, "--yes"],
        &["batch", "create", "-l", "site=a", "--recipe", recipe, "--yes"],
        &["batch", "retry", "0192f3a4-5b6c-7abc-8def-0123456789ab", "--failed"],
        &["job", "retry", "0192f3a4-5b6c-7abc-8def-0123456789ab"],
        &["job", "retry", "-l", "site=a", "--yes"],
        &["server", "power-cycle", "XF-1"],
        &["server", "bios", "set", "XF-1", "BootMode=Uefi"],
        &["firmware", "install", "XF-1"],
    ] {
        check(command);
    }
}

#[test]
fn a_lost_response_is_asked_for_once_more_with_the_same_key() {
    for_each_command(|command| {
        let controller = losing(1);
        let ran = controller.shoal(command).ends_with(0);
        assert!(ran.err.contains("once again with the same idempotency key"), "{command:?}: {}", ran.err);
        let sent = creating(&controller);
        assert_eq!(sent.len(), 2, "{command:?}");
        let key = sent[0].header("idempotency-key").unwrap();
        assert!(key.len() >= 32, "{command:?}: {key}");
        assert_eq!(sent[1].header("idempotency-key"), Some(key), "{command:?}");
        assert_eq!(sent[0].body, sent[1].body, "{command:?}");
    });
}

#[test]
fn two_commands_have_two_keys() {
    for_each_command(|command| {
        let controller = losing(0);
        controller.shoal(command).ends_with(0);
        controller.shoal(command).ends_with(0);
        let sent = creating(&controller);
        assert_ne!(sent[0].header("idempotency-key"), sent[1].header("idempotency-key"), "{command:?}");
    });
}

#[test]
fn a_command_without_any_response_names_the_option_to_repeat_it_with() {
    for_each_command(|command| {
        let controller = losing(2);
        let ran = controller.shoal(command).ends_with(6);
        let key = creating(&controller)[0].header("idempotency-key").unwrap().to_owned();
        assert!(ran.err.contains(&format!("--idempotency-key {key}")), "{command:?}: {}", ran.err);
        assert_eq!(creating(&controller).len(), 2, "{command:?}");
        // The option is one of the command.
        controller.shoal(&[command, &["--idempotency-key", &key]].concat()).ends_with(0);
        assert_eq!(creating(&controller)[2].header("idempotency-key"), Some(&*key), "{command:?}");
    });
    let controller = losing(2);
    let ran = controller.shoal(&["server", "power-cycle", "XF-1", "--idempotency-key", "k 1"]).ends_with(6);
    assert!(ran.err.contains("--idempotency-key 'k 1'"), "{}", ran.err);
    let controller = losing(2);
    let ran = controller.shoal(&["server", "power-cycle", "XF-1", "-o", "json"]).ends_with(6);
    let error: Value = serde_json::from_str(ran.err.lines().last().unwrap()).unwrap();
    let key = creating(&controller)[0].header("idempotency-key").unwrap().to_owned();
    assert_eq!(error["error"]["idempotency_key"], key);
}

/// A controller that reads one request, then no longer exists. Returns its URL, and the key of the request.
fn gone_after_one_request() -> (String, std::thread::JoinHandle<String>) {
    use std::io::{BufRead, BufReader};
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let reading = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(&stream).lines().map(Result::unwrap);
        let key = lines
            .take_while(|line| !line.is_empty())
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("idempotency-key: ").map(str::to_owned));
        // The second request finds no listener.
        drop(listener);
        key.unwrap()
    });
    (url, reading)
}

#[test]
fn a_controller_that_is_gone_at_the_repetition_still_names_the_key() {
    let (url, reading) = gone_after_one_request();
    let ran = shoal(&["server", "power-cycle", "XF-1", "--url", &url, "--token", "t"]).ends_with(6);
    let key = reading.join().unwrap();
    assert!(ran.err.contains(&format!("--idempotency-key {key}")), "{}", ran.err);
    assert!(ran.err.contains("may have been processed"), "{}", ran.err);
    for (status, code) in [(503, "stopping"), (503, "busy"), (429, "rate"), (500, "internal")] {
        for_each_command(|command| {
            let posts = AtomicU64::new(0);
            let before = Arc::clone(&losing(0).fake);
            let script = move |seen: &Seen| {
                let is_creating = seen.method == Method::POST && seen.uri.query().is_none();
                match is_creating.then(|| posts.fetch_add(1, Ordering::Relaxed)) {
                    None => (before.script)(seen),
                    Some(0) => (LOST, Value::Null),
                    Some(_) => (status, json!({ "error": code, "message": "not now", "details": [] })),
                }
            };
            let controller = Controller::start(script);
            let ran = controller.shoal(command);
            let key = creating(&controller)[0].header("idempotency-key").unwrap().to_owned();
            assert!(ran.err.contains(&format!("--idempotency-key {key}")), "{command:?}: {}", ran.err);
        });
    }
}

#[test]
fn a_batch_that_may_exist_is_looked_for_where_a_filter_may_select_others_now() {
    for_each_command(|command| {
        let ran = losing(2).shoal(command);
        let is_batch = command.contains(&"batch") || command.contains(&"--yes") || command.contains(&"XF-2");
        assert_eq!(ran.err.contains("shoal batch list --since 10m"), is_batch, "{command:?}: {}", ran.err);
    });
}

#[test]
fn a_preview_of_a_filter_has_the_key_of_its_command() {
    let controller = losing(0);
    controller.shoal(&["job", "retry", "-l", "site=a", "--yes", "--idempotency-key", "k"]).ends_with(0);
    let keys: Vec<Option<String>> = controller
        .seen()
        .iter()
        .filter(|seen| seen.method == Method::POST)
        .map(|seen| seen.header("idempotency-key").map(str::to_owned))
        .collect();
    assert_eq!(keys, vec![Some("k".to_owned()); 2]);
}

#[test]
fn a_command_for_many_servers_has_one_key_which_can_be_repeated() {
    let controller = losing(2);
    let cycle = ["server", "power-cycle", "-l", "site=a", "--yes"];
    let ran = controller.shoal(&cycle).ends_with(1);
    let key = creating(&controller)[0].header("idempotency-key").unwrap().to_owned();
    assert!(ran.err.contains(&format!("--idempotency-key {key}")), "{}", ran.err);
    controller.shoal(&[&cycle[..], &["--idempotency-key", &key]].concat()).ends_with(0);
    let keys: Vec<Option<String>> =
        creating(&controller).iter().map(|seen| seen.header("idempotency-key").map(str::to_owned)).collect();
    assert_eq!(keys, vec![Some(key); 5]);
}

#[test]
fn a_refusal_is_not_repeated() {
    let refusal =
        json!({ "error": "conflict.active_job", "message": "busy", "details": [], "request_id": "r" });
    let controller = Controller::start(move |_| (409, refusal.clone()));
    controller.shoal(&["server", "power-cycle", "XF-1"]).ends_with(4);
    assert_eq!(controller.seen().len(), 1);
}
