//! `shoal session`.

use axum::http::Method;
use serde_json::{Value, json};

use super::{Controller, refused};

#[test]
fn the_sessions_of_a_user_without_any_are_not_found() {
    let controller = Controller::start(|_| (200, json!({ "ended": 0 })));
    let ran = controller.shoal(&["session", "end", "--of", "nope"]).ends_with(3);
    assert!(ran.err.contains("nope has no web session"), "{}", ran.err);
    controller.shoal(&["session", "end", "--mine"]).ends_with(0);
}

#[test]
fn sessions_are_listed_and_ended_by_id_by_name_or_all_of_the_caller() {
    let session = json!({
        "session_id": "S-1", "name": "bea", "login": "password", "address": "192.0.2.7", "agent": "Browser/1",
        "created_at": "then", "last_used_at": "then", "expires_at": "later", "current": false,
    });
    let controller = Controller::start(move |seen| match (&seen.method, seen.uri.path()) {
        (&Method::GET, _) => (200, json!({ "sessions": [session.clone()], "next": null })),
        (_, "/api/v1/sessions/S-1" | "/api/v1/sessions/S-2") => (204, Value::Null),
        _ => (200, json!({ "ended": 3 })),
    });
    let listed = controller.shoal(&["session", "list"]).ends_with(0).out;
    assert!(listed.contains("S-1") && listed.contains("192.0.2.7") && listed.contains("bea"), "{listed}");
    assert!(controller.shoal(&["session", "end", "S-1", "S-2"]).ends_with(0).out.contains("2 web sessions"));
    assert!(controller.shoal(&["session", "end", "--of", "bea"]).ends_with(0).out.contains("3 web sessions"));
    controller.shoal(&["session", "end", "--mine"]).ends_with(0);
    let seen = controller.seen();
    let ended: Vec<String> =
        seen.iter().skip(1).map(|seen| format!("{} {}", seen.method, seen.uri.path())).collect();
    assert_eq!(
        ended,
        [
            "DELETE /api/v1/sessions/S-1",
            "DELETE /api/v1/sessions/S-2",
            "DELETE /api/v1/users/bea/sessions",
            "DELETE /api/v1/sessions"
        ]
    );
    for wrong in [
        &["session", "end"][..],
        &["session", "end", "S-1", "--mine"],
        &["session", "end", "--mine", "--of", "a"],
    ] {
        assert!(!refused(wrong).is_empty(), "{wrong:?}");
    }
}
