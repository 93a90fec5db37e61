//! Webhooks: the list, one with its deliveries, a new one, the verbs.

use askama::Template;
use serde_json::{Value, json};
use ui::data::{ErrorDetail, WebhookJson};
use ui::view::{CallerRole, FormView, TableView, WebhookForm};

use super::{JOB, frame, of};

fn webhook(text: &str) -> Value {
    json!({
        "webhook_id": JOB, "target": "https://hooks.example:8443", "types": ["job.*"], "labels": { "wave": text },
        "created_at": "2026-11-23T14:00:00Z", "created_by": text, "disabled": null, "delivered": 4810, "behind": 2,
        "retrying": 1, "dead_letters": 3, "failing_since": "2026-11-23T14:30:00Z", "last_error": text,
    })
}

/// The pages with a text of a receiver or a person in them.
pub(crate) fn pages(text: &str) -> Vec<(&'static str, String)> {
    let admin = || frame(CallerRole::Admin);
    let mut disabled = webhook(text);
    disabled["disabled"] = json!(text);
    let mut one = webhook(text);
    one["retry_streams"] = json!([
        { "job_id": JOB, "seq": 7, "attempts": 2, "since": "2026-11-23T14:30:00Z", "next_at": "2026-11-23T14:40:00Z", "error": text },
        { "job_id": null, "seq": 9, "attempts": 1, "since": "2026-11-23T14:30:00Z", "next_at": "2026-11-23T14:40:00Z", "error": text },
    ]);
    let letter = |seq: i64, requested: bool| {
        json!({
            "seq": seq, "job_id": JOB, "type": text, "attempts": 40, "since": "2026-11-22T14:00:00Z",
            "given_up_at": "2026-11-23T14:00:00Z", "error": text, "redelivery_requested": requested,
        })
    };
    let dead = json!({ "dead_letters": [letter(3, false), letter(4, true)], "next": null });
    let page = json!({ "webhooks": [webhook(text), disabled], "next": null });
    let wrong: Vec<ErrorDetail> = of(json!([{ "path": "/url", "message": text }]));
    let entered = WebhookForm { types: text.to_owned(), labels: String::new() };
    let hook: WebhookJson = of(webhook(text));
    let ask = |verb: &str, seq| FormView::webhook_verb(admin(), &hook, verb, seq).unwrap().render().unwrap();
    let tested = json!({
        "webhook_id": JOB, "delivery_id": text, "sent_at": "2026-11-23T14:31:00Z", "took_ms": 12, "accepted": false,
        "status": 500, "error": text,
    });
    vec![
        ("webhooks", TableView::webhooks(admin(), &of(page)).render().unwrap()),
        ("webhook", TableView::webhook(admin(), &of(one), &of(dead)).render().unwrap()),
        ("webhook-new", FormView::new_webhook(admin(), &entered, wrong).render().unwrap()),
        ("webhook-tested", TableView::webhook_test(admin(), &hook, &of(tested)).render().unwrap()),
        ("webhook-disable", ask("disable", None)),
        ("webhook-test", ask("test", None)),
        ("webhook-delete", ask("delete", None)),
        ("webhook-redeliver", ask("redeliver", Some(3))),
    ]
}

#[test]
fn a_verb_that_is_not_known_has_no_question_and_a_viewer_is_offered_none() {
    let hook: WebhookJson = of(webhook("text"));
    assert!(FormView::webhook_verb(frame(CallerRole::Admin), &hook, "explode", None).is_none());
    let dead = of(json!({ "dead_letters": [], "next": null }));
    let page = TableView::webhook(frame(CallerRole::Viewer), &hook, &dead).render().unwrap();
    assert!(!page.contains("/delete") && !page.contains("/disable"), "{page}");
    let none = TableView::webhooks(frame(CallerRole::Viewer), &of(json!({ "webhooks": [], "next": null })))
        .render()
        .unwrap();
    assert!(none.contains("No webhook.") && !none.contains("/ui/webhooks/new"), "{none}");
}
