//! Selectors of commands that take one server or job: a preview first, then a result for each.

use axum::http::Method;
use serde_json::json;

use super::{Controller, refused};

/// A controller with two servers, of which the second refuses every change, and with two jobs that wait.
fn controller() -> Controller {
    Controller::start(|seen| match (seen.method.as_str(), seen.uri.path()) {
        ("GET", "/api/v1/servers") => {
            (200, json!({ "servers": [{ "serial": "XF-1" }, { "serial": "XF-2" }], "next": null }))
        }
        ("GET", "/api/v1/jobs") => {
            let jobs = json!([{ "job_id": "J-1", "server_serial": "XF-1" }, { "job_id": "J-2", "server_serial": "XF-2" }]);
            (200, json!({ "jobs": jobs, "next": null }))
        }
        ("POST" | "DELETE", path) if path.contains("XF-2") || path.contains("J-2") => (
            409,
            json!({ "error": "conflict.phase", "message": "not now", "details": [], "request_id": "r" }),
        ),
        ("POST", path) if path.ends_with("/doctor") => (200, json!({ "verdict": "pass", "checks": [] })),
        ("POST", path) if path.starts_with("/api/v1/jobs/") => {
            (202, json!({ "job_id": "J-1", "status": "queued" }))
        }
        ("DELETE", _) => (204, json!({})),
        ("POST", _) => (202, json!({ "id": "C-1", "state": "pending", "plan": [] })),
        _ => (200, json!({ "inventory": null })),
    })
}

/// The requests that change something.
fn changes(controller: &Controller) -> Vec<String> {
    let changes = controller.seen().into_iter().filter(|seen| seen.method != Method::GET);
    changes.map(|seen| seen.uri.to_string()).collect()
}

#[test]
fn a_disruptive_command_for_a_filter_is_a_preview_until_it_has_consent() {
    for command in [
        &["server", "power-cycle"][..],
        &["server", "reset-bmc"],
        &["server", "remove"],
        &["server", "inventory", "--refresh"],
        &["server", "bios", "set", "BootMode=Uefi"],
        &["bmc", "doctor"],
        &["job", "hold"],
        &["job", "resume"],
        &["job", "finish"],
    ] {
        let controller = controller();
        let command = [command, &["-l", "site=a"]].concat();
        let ran = controller.shoal(&command).ends_with(0);
        assert!(ran.out.contains("XF-1") && ran.out.contains("XF-2"), "{command:?}: {}", ran.out);
        assert!(ran.err.contains("nothing was changed"), "{command:?}: {}", ran.err);
        assert_eq!(changes(&controller), Vec::<String>::new(), "{command:?}");

        let ran = controller.shoal(&[&command[..], &["--yes", "--expect", "3"]].concat()).ends_with(1);
        assert!(ran.err.contains("2") && ran.err.contains("3 were expected"), "{command:?}: {}", ran.err);
        assert_eq!(changes(&controller), Vec::<String>::new(), "{command:?}");

        let ran = controller.shoal(&[&command[..], &["--yes"]].concat()).ends_with(1);
        assert_eq!(changes(&controller).len(), 2, "{command:?}");
        assert!(ran.err.contains("not now") && ran.err.contains("1 of 2"), "{command:?}: {}", ran.err);
        let rows = controller.shoal(&[&command[..], &["--yes", "--json"]].concat()).ends_with(1).out;
        let rows: Vec<serde_json::Value> =
            rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.len(), 2, "{command:?}: a document for each");
        assert!(rows[1]["error"].as_str().unwrap().contains("not now"), "{command:?}");
    }
}

#[test]
fn firmware_of_a_filter_is_planned_without_and_installed_with_consent() {
    let controller = controller();
    let filter = ["--filter", "site=a"];
    let plan = controller.shoal(&[&["firmware", "plan"][..], &filter].concat()).ends_with(1);
    assert!(plan.out.contains("server XF-1"), "{}", plan.out);
    assert!(changes(&controller).iter().all(|uri| uri.ends_with("dry_run=true")));
    let install = [&["firmware", "install"][..], &filter].concat();
    let before = changes(&controller).len();
    let ran = controller.shoal(&install).ends_with(0);
    assert!(ran.out.contains("firmware install: 2 servers selected"), "{}", ran.out);
    assert_eq!(changes(&controller).len(), before);
    controller.shoal(&[&install[..], &["--yes"]].concat()).ends_with(1);
    assert_eq!(changes(&controller).len(), before + 2);
}

#[test]
fn a_dry_run_or_a_read_of_a_filter_needs_no_consent() {
    let controller = controller();
    controller.shoal(&["server", "power-cycle", "--serial-glob", "XF-*", "--dry-run"]).ends_with(1);
    assert!(
        changes(&controller).iter().all(|uri| uri.ends_with("dry_run=true")),
        "{:?}",
        changes(&controller)
    );
    controller.shoal(&["server", "inventory", "--state", "free"]).ends_with(0);
    controller.shoal(&["bmc", "probe", "-l", "site=a", "--json"]).ends_with(0);
    let probed = controller.seen().into_iter().filter(|seen| seen.uri.path().ends_with("/probe")).count();
    assert_eq!(probed, 2);
}

#[test]
fn what_belongs_to_one_server_is_refused_with_a_filter() {
    let controller = controller();
    let cycle = ["server", "power-cycle", "-l", "site=a"];
    for one in [&["--watch"][..], &["--if-revision", "1"], &["--idempotency-key", "k"]] {
        controller.shoal(&[&cycle[..], one].concat()).ends_with(2);
    }
    for both in [
        &["server", "power-cycle", "XF-1", "-l", "site=a"][..],
        &["server", "power-cycle", "XF-1", "--yes"],
        &["server", "power-cycle"],
        &["bmc", "probe"],
        &["bmc", "probe", "XF-1", "-l", "site=a"],
        &["bmc", "doctor", "XF-1", "-l", "site=a"],
        &["job", "hold", "J-1", "-l", "site=a"],
    ] {
        controller.shoal(both).ends_with(2);
    }
    assert!(controller.seen().is_empty());
    assert!(refused(&["firmware", "install", "XF-1", "--filter", "site=a"]).contains("--filter"));
}

#[test]
fn diagnostics_without_a_result_yet_are_followed_to_their_end() {
    for (verdict, code) in [("pass", 0), ("fail", 1)] {
        let controller = Controller::start(move |seen| match (seen.method.as_str(), seen.uri.path()) {
            ("POST", "/api/v1/servers/XF-1/doctor") => {
                (202, json!({ "server_serial": "XF-1", "doctor_id": "d-1", "message": "still running" }))
            }
            ("GET", "/api/v1/servers/XF-1/doctor") => (
                200,
                json!({ "server_serial": "XF-1", "doctor_id": "d-1", "verdict": verdict, "checks": [] }),
            ),
            ("GET", "/api/v1/jobs/d-1") => (200, json!({ "job_id": "d-1", "status": "complete" })),
            _ => (404, json!({ "error": "not_found", "message": "none", "details": [], "request_id": "r" })),
        });
        let ran = controller.shoal(&["bmc", "doctor", "XF-1", "--json"]).ends_with(code);
        assert!(ran.err.contains("shoal job explain d-1"), "{}", ran.err);
        assert_eq!(ran.json()["verdict"], verdict);
    }
}
