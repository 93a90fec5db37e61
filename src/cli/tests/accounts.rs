//! `shoal user` and `shoal token`.

use axum::http::Method;
use serde_json::{Value, json};

use super::{Controller, refused, shoal};

fn issued() -> Value {
    json!({
        "token_id": "T-1", "name": "ci", "role": "operator", "labels": { "site": "bern" }, "registry": ["pull:a/**"],
        "created_by": "ada", "created_at": "then", "expires_at": "2027-01-31T00:00:00.000Z", "last_used_at": null,
        "token": "shoal_text",
    })
}

#[test]
fn a_created_token_is_alone_on_standard_output() {
    let controller = Controller::start(|_| (201, issued()));
    let line = ["token", "create", "ci", "--role", "operator", "--label", "site=bern"];
    let more = ["--registry", "pull:a/**", "--expires", "2027-01-31T00:00:00Z"];
    let ran = controller.shoal(&[&line[..], &more].concat()).ends_with(0);
    assert_eq!(ran.out, "shoal_text\n");
    assert!(ran.err.contains("not shown again") && ran.err.contains("2027-01-31"), "{}", ran.err);
    let named = controller.shoal(&[&line[..], &["-o", "name"]].concat()).ends_with(0);
    assert_eq!(named.out, "shoal_text\n", "the text is shown only now");
    let rotated = controller.shoal(&["token", "rotate", "ci", "-o", "name"]).ends_with(0);
    assert_eq!(rotated.out, "shoal_text\n");
    let worker = ["worker", "token", "create", "w", "--queue", "b", "-o", "name"];
    assert_eq!(controller.shoal(&worker).ends_with(0).out, "shoal_text\n");
    let expected = json!({
        "name": "ci", "role": "operator", "labels": { "site": "bern" }, "registry": ["pull:a/**"],
        "expires_at": "2027-01-31T00:00:00.000Z",
    });
    assert_eq!(controller.seen()[0].json(), expected);
    assert!(refused(&["token", "create", "x", "--role", "reader"]).contains("viewer"));
    assert!(refused(&["token", "create", "x", "--role", "viewer", "--expires", "soon"]).contains("90d"));
}

#[test]
fn a_password_comes_from_a_file_and_is_not_shown() {
    let user = json!({
        "name": "bea", "role": "viewer", "disabled_at": null, "created_by": "ada", "created_at": "then", "updated_at": "then",
    });
    let controller = Controller::start(move |seen| match seen.method {
        Method::DELETE => (204, Value::Null),
        Method::GET => (200, json!({ "users": [user.clone()], "next": null })),
        _ => (200, user.clone()),
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    std::fs::write(&path, "password canary\n").unwrap();
    let file = ["--password-file", path.to_str().unwrap()];
    let added =
        controller.shoal(&[&["user", "add", "bea", "--role", "viewer"][..], &file].concat()).ends_with(0);
    assert!(added.out.contains("bea") && !added.out.contains("canary"), "{}", added.out);
    controller.shoal(&[&["user", "passwd", "bea"][..], &file].concat()).ends_with(0);
    controller.shoal(&["user", "role", "bea", "operator"]).ends_with(0);
    controller.shoal(&["user", "disable", "bea"]).ends_with(0);
    controller.shoal(&["user", "remove", "bea"]).ends_with(0);
    assert!(controller.shoal(&["user", "list"]).ends_with(0).out.contains("viewer"));
    let seen = controller.seen();
    let sent: Vec<Value> = seen[..4].iter().map(|seen| seen.json()).collect();
    let expected = json!([
        { "name": "bea", "role": "viewer", "password": "password canary" },
        { "password": "password canary" },
        { "role": "operator" },
        { "disabled": true },
    ]);
    assert_eq!(json!(sent), expected);
    assert_eq!((&seen[4].method, seen[4].uri.path()), (&Method::DELETE, "/api/v1/users/bea"));
    assert!(refused(&["user", "add", "bea", "--role", "viewer"]).contains("--password-file"));
    assert!(
        refused(&["user", "add", "bea", "--role", "report-only", "--password-stdin"]).contains("report-only")
    );
}

#[test]
fn offline_commands_need_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data").to_str().unwrap().to_owned();
    let ran = shoal(&["token", "--storage-root", &root, "list", "--offline"]).ends_with(1);
    assert!(ran.err.contains("no database"), "{}", ran.err);
    assert!(!dir.path().join("data").exists(), "nothing is created");
}

#[test]
fn a_token_whose_end_has_passed_is_expired_and_not_on() {
    let token = |name: &str, expires_at: Value, unconfirmed: bool| {
        let mut token = json!({ "name": name, "role": "viewer", "unconfirmed": unconfirmed });
        token["expires_at"] = expires_at;
        token
    };
    let tokens = json!([
        token("open", Value::Null, false),
        token("later", json!("2999-01-31T00:00:00.000Z"), false),
        token("ended", json!("2026-01-31T00:00:00.000Z"), false),
        token("restored", Value::Null, true),
        // It is refused also after it is confirmed.
        token("restored-ended", json!("2026-01-31T00:00:00.000Z"), true),
    ]);
    let controller = Controller::start(move |_| (200, json!({ "tokens": tokens, "next": null })));
    let listed = controller.shoal(&["token", "list"]).ends_with(0).out;
    let states: Vec<(&str, &str)> = listed
        .lines()
        .skip(1)
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[0], words[2])
        })
        .collect();
    assert_eq!(
        states,
        [
            ("open", "on"),
            ("later", "on"),
            ("ended", "expired"),
            ("restored", "unconfirmed"),
            ("restored-ended", "expired"),
        ]
    );
}
