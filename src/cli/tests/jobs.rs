//! `shoal job`.

use axum::http::Method;
use serde_json::{Value, json};

use super::Controller;

fn recipe(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recipe.json");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn a_job_is_created_with_the_recipe_as_it_was_written() {
    let controller = Controller::start(|_| {
        let warnings = json!([{"path": "/partition_layout", "message": "there is no ESP"}]);
        (202, json!({"job_id": "j-1", "status": "queued", "warnings": warnings}))
    });
    let text = "{\"task_target\": \"x\",  \"b\": 1.0, \"a\": [1e3]}";
    let (_dir, path) = recipe(text);
    let ran = controller
        .shoal(&[
            "job",
            "create",
            "--server",
            "XF-1",
            "--recipe",
            &path,
            "--idempotency-key",
            "k 1",
            "--maintenance-iso",
            "http://192.0.2.1/m.iso",
        ])
        .ends_with(0);
    assert_eq!(ran.out, "job j-1 accepted for server XF-1\n");
    assert_eq!(ran.err, "warning: /partition_layout there is no ESP\n");
    let seen = controller.seen().remove(0);
    assert_eq!((seen.method.clone(), seen.uri.path()), (Method::POST, "/api/v1/jobs"));
    assert_eq!(seen.header("idempotency-key"), Some("k 1"));
    assert!(seen.body.contains(text), "{}", seen.body);
    let body = seen.json();
    assert_eq!(
        (&body["server_serial"], &body["maintenance_iso_url"]),
        (&json!("XF-1"), &json!("http://192.0.2.1/m.iso"))
    );
}

#[test]
fn a_replay_is_reported_as_an_existing_job() {
    let controller = Controller::start(|_| (200, json!({"job_id": "j-1", "status": "provisioning"})));
    let (_dir, path) = recipe("{}");
    let ran = controller.shoal(&["job", "create", "--server", "XF-1", "--recipe", &path]).ends_with(0);
    assert_eq!(ran.out, "job j-1 exists already for server XF-1\n");
    let ran =
        controller.shoal(&["job", "create", "--server", "XF-1", "--recipe", &path, "--json"]).ends_with(0);
    assert_eq!(ran.json()["status"], "provisioning");
}

#[test]
fn a_recipe_that_is_missing_or_not_json_is_not_sent() {
    let controller = Controller::start(|_| (202, json!({"job_id": "j-1"})));
    let create = ["job", "create", "--server", "XF-1", "--recipe"];
    controller.shoal(&[&create[..], &["/nowhere/recipe.json"]].concat()).ends_with(3);
    let (_dir, path) = recipe("{\"a\": }");
    let ran = controller.shoal(&[&create[..], &[path.as_str()]].concat()).ends_with(1);
    assert!(ran.err.contains("is not JSON") && ran.err.contains("line 1"), "{}", ran.err);
    assert!(controller.seen().is_empty());
}

#[test]
fn an_invalid_recipe_is_refused_with_the_paths_of_its_problems() {
    let controller = Controller::start(|_| {
        let details = json!([{"path": "/target_disk", "code": "pattern", "message": "not a disk"}]);
        (400, json!({"error": "validation_error", "message": "the recipe is not valid", "details": details}))
    });
    let (_dir, path) = recipe("{}");
    let ran = controller.shoal(&["job", "create", "--server", "XF-1", "--recipe", &path]).ends_with(1);
    assert!(ran.err.contains("  /target_disk [pattern] not a disk\n"), "{}", ran.err);
    assert!(ran.err.contains("hint: `shoal recipe validate"), "{}", ran.err);
}

#[test]
fn filters_of_a_list_become_its_query() {
    let controller = Controller::start(|_| {
        let job = json!({"job_id": "j-1", "workflow": "diagnostics", "server_serial": "XF-1", "status": "complete", "outcome": "failed"});
        (200, json!({"jobs": [job], "next": null}))
    });
    let ran = controller
        .shoal(&[
            "job",
            "list",
            "--status",
            "complete",
            "--outcome",
            "failed",
            "--server",
            "X&1",
            "--workflow",
            "diagnostics",
            "-l",
            "rack=7",
            "--label",
            "site=a",
            "--limit",
            "7",
        ])
        .ends_with(0);
    assert!(
        ran.out.lines().nth(1).unwrap().starts_with("j-1  diagnostics  XF-1    complete  failed"),
        "{}",
        ran.out
    );
    let uri = controller.seen()[0].uri.to_string();
    let filters = "status=complete&outcome=failed&workflow=diagnostics&server_serial=X%261\
                   &filter=label%3Arack%3D7+label%3Asite%3Da";
    assert_eq!(uri, format!("/api/v1/jobs?{filters}&limit=7"));
}

#[test]
fn a_job_is_shown_with_why_it_waits_or_failed() {
    let controller = Controller::start(|_| {
        (
            200,
            json!({
                "job_id": "j-1", "server_serial": "XF-1", "status": "provisioning", "outcome": null,
                "wait": {"reason": "webhook", "since": "2026-01-01T00:00:00.000Z", "deadline": "2026-01-01T02:00:00.000Z"},
                "failure": {"class": "media", "summary": "no bytes", "next_action": "look at the network"},
                "cleanup": {"state": "pending", "remaining": ["eject"]},
                "steps": [{"step": "redfish.mount", "phase": "done", "attempt": 1}],
            }),
        )
    });
    let ran = controller.shoal(&["job", "show", "j-1"]).ends_with(0);
    // The width of the columns is not tested here.
    let lines = ran.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n");
    let text: String = lines.collect();
    for part in [
        "waits for webhook, since 2026-01-01T00:00:00.000Z, until 2026-01-01T02:00:00.000Z\n",
        "failure media: no bytes\n",
        "what to do look at the network\n",
        "cleanup pending eject\n",
        "redfish.mount done 1\n",
    ] {
        assert!(text.contains(part), "{part}is not in\n{text}");
    }
    assert!(!ran.out.contains("outcome"), "{}", ran.out);
}

#[test]
fn events_are_read_page_by_page_as_a_timeline() {
    let controller = Controller::start(|seen| {
        let event = |seq: u64, level: &str| json!({"seq": seq, "time": format!("2026-01-01T07:49:0{seq}.123Z"), "level": level, "step": "redfish.mount", "message": "m"});
        match seen.uri.query().unwrap() {
            query if query.starts_with("after=2&") => {
                (200, json!({"events": [event(3, "info"), event(4, "warn")], "next": 4}))
            }
            query if query.starts_with("after=4&") => {
                (200, json!({"events": [event(5, "error")], "next": 5}))
            }
            _ => (200, json!({"events": [], "next": 5})),
        }
    });
    let ran = controller.shoal(&["job", "events", "j-1", "--after", "2"]).ends_with(0);
    let expected = [
        "07:49:03.123    redfish.mount      m",
        "07:49:04.123  ! redfish.mount      m",
        "07:49:05.123  x redfish.mount      m",
    ];
    assert_eq!(ran.out.lines().collect::<Vec<_>>(), expected);
    let all = controller.shoal(&["job", "events", "j-1", "--after", "2", "--json"]).ends_with(0).json();
    assert_eq!((all["events"].as_array().unwrap().len(), &all["next"]), (3, &json!(5)));
}

#[test]
fn a_rescue_session_is_finished_with_a_reason() {
    let controller = Controller::start(|_| (202, json!({"job_id": "j-1", "status": "provisioning"})));
    let ran = controller.shoal(&["job", "finish", "j-1", "--reason", "disk replaced"]).ends_with(0);
    assert_eq!(ran.out, "job j-1 is being finished (provisioning)\n");
    let seen = controller.seen();
    assert_eq!(seen[0].uri.path(), "/api/v1/jobs/j-1/finish");
    assert_eq!(seen[0].json(), json!({"reason": "disk replaced"}));
}

#[test]
fn cancelling_sends_the_reason() {
    let controller = Controller::start(|_| (202, json!({"job_id": "j-1", "status": "provisioning"})));
    let ran = controller.shoal(&["job", "cancel", "j-1", "--reason", "wrong server"]).ends_with(0);
    assert_eq!(ran.out, "job j-1 is being cancelled (provisioning)\n");
    controller.shoal(&["job", "cancel", "j-1"]).ends_with(0);
    let seen = controller.seen();
    assert_eq!(seen[0].uri.path(), "/api/v1/jobs/j-1/cancel");
    let bodies: Vec<Value> = seen.iter().map(super::Seen::json).collect();
    assert_eq!(bodies, [json!({"reason": "wrong server"}), json!({})]);
}

#[test]
fn a_cancel_is_confirmed_with_what_the_controller_says_about_the_end_of_the_job() {
    let explain = json!({
        "summary": "waiting for the end of the update: the BMC flashes bios 2.19, 60 %; it is let finish",
        "next_action": "nothing: do not restart the BMC",
    });
    let response = json!({"job_id": "j-1", "status": "provisioning", "explain": explain});
    let controller = Controller::start(move |_| (202, response.clone()));
    let ran = controller.shoal(&["job", "cancel", "j-1"]).ends_with(0);
    let expected = [
        "job j-1 is being cancelled (provisioning)",
        "waiting for the end of the update: the BMC flashes bios 2.19, 60 %; it is let finish",
        "nothing: do not restart the BMC",
    ];
    assert_eq!(ran.out.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn an_explanation_says_what_comes_next_and_not_that_it_has_happened() {
    let controller = Controller::start(|_| {
        let next = "2999-01-01T00:00:00.000Z";
        (
            200,
            json!({ "job_id": "j-1", "status": "provisioning", "summary": "waiting", "next_check": next, "evidence": [] }),
        )
    });
    let ran = controller.shoal(&["--utc", "job", "explain", "j-1"]).ends_with(0);
    let line = ran.out.lines().find(|line| line.contains("2999")).unwrap();
    assert!(line.trim_start().starts_with("next check"), "{}", ran.out);
}
