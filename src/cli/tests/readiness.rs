//! `shoal controller ready`.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::{Controller, shoal};

/// The readiness of a controller whose data disk is full until `disk`.
fn readiness(disk: bool) -> (u16, Value) {
    let disk = match disk {
        true => json!({ "ok": true, "free_bytes": 1_u64 << 40 }),
        false => json!({ "ok": false, "message": "the data disk has less than 256 MiB free" }),
    };
    let ready = disk["ok"] == true;
    let status = if ready { "ready" } else { "not ready" };
    (
        if ready { 200 } else { 503 },
        json!({ "status": status, "checks": { "database": { "ok": true }, "disk": disk } }),
    )
}

#[test]
fn the_failed_check_of_readiness_is_shown_with_its_reason_and_ends_with_1() {
    let controller = Controller::start(|seen| {
        assert_eq!(seen.uri.path(), "/readyz");
        readiness(false)
    });
    let ran = controller.shoal(&["controller", "ready"]).ends_with(1);
    assert!(ran.out.contains("disk      no      the data disk has less than 256 MiB free"), "{}", ran.out);
    assert!(ran.err.contains("not ready: disk"), "{}", ran.err);
    assert_eq!(controller.seen().len(), 1);
    assert_eq!(
        controller.shoal(&["controller", "ready", "--json"]).ends_with(1).json()["status"],
        "not ready"
    );
}

#[test]
fn the_age_of_the_last_backup_is_shown() {
    let controller = Controller::start(|_| {
        let checks = json!({ "backup": { "ok": true, "age_seconds": 93_600, "message": null }, "disk": { "ok": true } });
        (200, json!({ "status": "ready", "checks": checks }))
    });
    let ran = controller.shoal(&["controller", "ready"]).ends_with(0);
    assert!(ran.out.contains("the last one is 26h old"), "{}", ran.out);
}

#[test]
fn a_wait_for_readiness_ends_at_the_first_response_with_all_checks() {
    let requests = AtomicU64::new(0);
    let controller = Controller::start(move |_| readiness(requests.fetch_add(1, Ordering::Relaxed) >= 2));
    let ran = controller.shoal(&["controller", "ready", "--wait", "60"]).ends_with(0);
    assert!(ran.out.contains("disk      yes"), "{}", ran.out);
    assert_eq!(controller.seen().len(), 3);
}

#[test]
fn a_controller_that_does_not_respond_ends_with_6() {
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    shoal(&["controller", "ready", "--url", &url]).ends_with(6);
}

#[test]
fn a_page_that_is_not_readiness_ends_the_wait_at_once() {
    let controller = Controller::start(|_| (503, json!("a proxy")));
    controller.shoal(&["controller", "ready", "--wait", "60"]).ends_with(6);
    assert_eq!(controller.seen().len(), 1);
}
