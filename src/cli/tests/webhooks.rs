//! `shoal webhook`.

use axum::http::Method;
use serde_json::{Value, json};

use super::{Controller, refused};

fn hook() -> Value {
    json!({
        "webhook_id": "W-1", "target": "https://receiver:1", "types": ["run.*"], "labels": {}, "disabled": null,
        "behind": 3, "retrying": 1, "dead_letters": 2, "delivered": 40,
        "retry_streams": [{ "job_id": "J-1", "seq": 17, "attempts": 4, "next_at": "soon", "error": "the receiver responded with 500" }],
    })
}

#[test]
fn the_beginning_of_an_id_is_enough_for_a_webhook() {
    const IDS: [&str; 2] = ["0192f3a4-5b6c-7abc-8def-0123456789ab", "0192f3a5-5b6c-7abc-8def-0123456789ab"];
    let controller = Controller::start(|seen| match seen.uri.path() {
        "/api/v1/webhooks" => (
            200,
            json!({ "webhooks": IDS.map(|id| json!({ "webhook_id": id, "target": "t" })), "next": null }),
        ),
        _ => (200, json!({ "webhook_id": "W" })),
    });
    controller.shoal(&["webhook", "show", "0192f3a4"]).ends_with(0);
    assert_eq!(controller.seen()[1].uri.path(), format!("/api/v1/webhooks/{}", IDS[0]));
    let ran = controller.shoal(&["webhook", "remove", "0192f3"]).ends_with(2);
    assert!(ran.err.contains("2 webhooks have an id that begins with 0192f3"), "{}", ran.err);
    controller.shoal(&["webhook", "show", "abcd"]).ends_with(3);
}

#[test]
fn a_secret_comes_from_a_file_and_is_not_shown() {
    let controller = Controller::start(|_| (201, hook()));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    std::fs::write(&path, "signing canary 0123\n").unwrap();
    let line = ["webhook", "add", "https://receiver:1/in", "--secret-file", path.to_str().unwrap()];
    let ran = controller
        .shoal(&[&line[..], &["--type", "run.*", "--type", "job.created", "--label", "site=bern"]].concat())
        .ends_with(0);
    assert!(ran.out.contains("https://receiver:1") && !ran.out.contains("canary"), "{}", ran.out);
    let expected = json!({
        "url": "https://receiver:1/in", "secret": "signing canary 0123", "types": ["run.*", "job.created"],
        "labels": { "site": "bern" },
    });
    assert_eq!(controller.seen()[0].json(), expected);
    assert!(refused(&["webhook", "add", "https://receiver:1/in"]).contains("--secret-file"));
}

#[test]
fn retry_streams_and_dead_letters_are_tables() {
    let controller = Controller::start(|seen| match seen.uri.path() {
        "/api/v1/webhooks" => (200, json!({ "webhooks": [hook()] })),
        "/api/v1/webhooks/W-1/dead-letters" => (
            200,
            json!({ "dead_letters": [
            { "seq": 9, "type": "run.held", "job_id": "J-2", "attempts": 31, "given_up_at": "then", "error": "the receiver responded with 400" },
        ] }),
        ),
        "/api/v1/webhooks/W-1/dead-letters/redeliver" => (202, json!({ "requested": 1 })),
        _ => (200, hook()),
    });
    let listed = controller.shoal(&["webhook", "list"]).ends_with(0).out;
    assert!(listed.contains("W-1") && listed.contains("https://receiver:1"), "{listed}");
    let shown = controller.shoal(&["webhook", "show", "W-1"]).ends_with(0).out;
    assert!(shown.contains("J-1") && shown.contains("the receiver responded with 500"), "{shown}");
    let dead = controller.shoal(&["webhook", "dead-letters", "W-1"]).ends_with(0).out;
    assert!(dead.contains("run.held") && dead.contains("J-2"), "{dead}");
    let retried = controller.shoal(&["webhook", "redeliver", "W-1", "--seq", "9"]).ends_with(0).out;
    assert!(retried.starts_with("redelivery of 1 dead letter requested"), "{retried}");
    assert_eq!(controller.seen().last().unwrap().json(), json!({ "seq": 9 }));
}

#[test]
fn events_beyond_the_most_that_are_counted_are_shown_as_more() {
    let controller = Controller::start(|seen| {
        let mut hook = hook();
        hook["behind"] = json!(10_000);
        match seen.uri.path() {
            "/api/v1/webhooks" => (200, json!({ "webhooks": [hook] })),
            _ => (200, hook),
        }
    });
    for words in [&["webhook", "list"][..], &["webhook", "show", "W-1"]] {
        let shown = controller.shoal(words).ends_with(0).out;
        assert!(shown.contains("10,000 or more") || shown.contains("10000 or more"), "{shown}");
    }
}

#[test]
fn dead_letters_beyond_the_most_that_are_listed_are_counted() {
    let controller = Controller::start(|seen| match seen.uri.path() {
        "/api/v1/webhooks/W-1" => {
            let mut hook = hook();
            hook["dead_letters"] = json!(1234);
            (200, hook)
        }
        path => {
            let most = if path.contains("W-1") { 1000 } else { 999 };
            let letters: Vec<Value> =
                (0..most).map(|seq| json!({ "seq": seq, "type": "run.held" })).collect();
            (200, json!({ "dead_letters": letters, "next": null }))
        }
    });
    let ran = controller.shoal(&["webhook", "dead-letters", "W-1"]).ends_with(0);
    assert_eq!(ran.out.lines().count(), 1001);
    assert!(ran.err.contains("234 newer dead letters are not shown"), "{}", ran.err);
    let ran = controller.shoal(&["webhook", "dead-letters", "W-1", "--json"]).ends_with(0);
    assert_eq!(ran.json()["left_out"], 234);
    let ran = controller.shoal(&["webhook", "dead-letters", "W-1", "-o", "name"]).ends_with(0);
    assert_eq!(ran.out.lines().count(), 1000);
    assert!(ran.err.contains("234 newer"), "{}", ran.err);
    let ran = controller.shoal(&["webhook", "dead-letters", "W-2", "--json"]).ends_with(0);
    assert_eq!((&ran.json()["left_out"], ran.err.as_str()), (&json!(0), ""));
}

#[test]
fn a_webhook_is_disabled_enabled_and_removed() {
    let controller =
        Controller::start(
            |seen| if seen.method == Method::DELETE { (204, Value::Null) } else { (200, hook()) },
        );
    controller.shoal(&["webhook", "disable", "W-1", "--reason", "moving"]).ends_with(0);
    controller.shoal(&["webhook", "enable", "W-1"]).ends_with(0);
    controller.shoal(&["webhook", "remove", "W-1"]).ends_with(0);
    let seen: Vec<String> =
        controller.seen().iter().map(|seen| format!("{} {}", seen.method, seen.uri.path())).collect();
    let base = "/api/v1/webhooks/W-1";
    assert_eq!(
        seen,
        [format!("POST {base}/disable"), format!("POST {base}/enable"), format!("DELETE {base}")]
    );
    assert_eq!(controller.seen()[0].json(), json!({ "reason": "moving" }));
}

#[test]
fn a_test_delivery_shows_the_response_and_a_refused_one_ends_with_1() {
    let tested = |accepted: bool| {
        json!({
            "webhook_id": "W-1", "delivery_id": "W-1-test-1", "sent_at": "2026-01-02T10:00:00Z", "took_ms": 12, "accepted": accepted,
            "status": if accepted { 204 } else { 500 }, "error": if accepted { Value::Null } else { json!("the receiver responded with 500") },
        })
    };
    let controller = Controller::start(move |_| (200, tested(true)));
    let ran = controller.shoal(&["webhook", "test", "W-1"]).ends_with(0);
    assert!(ran.out.contains("204") && ran.out.contains("12 ms"), "{}", ran.out);
    let seen = controller.seen().remove(0);
    assert_eq!((seen.method, seen.uri.path()), (Method::POST, "/api/v1/webhooks/W-1/test"));
    let controller = Controller::start(move |_| (200, tested(false)));
    let ran = controller.shoal(&["webhook", "test", "W-1", "-o", "json"]).ends_with(1);
    assert_eq!(ran.json()["status"], 500);
    assert!(ran.err.contains("responded with 500"), "{}", ran.err);
}
