//! A webhook as clients see it: never its secret, and no part of its URL that may be one.

use serde_json::{Value, json};

use engine::model::{DeadLetter, RetryStream, Webhook};
use engine::store::WebhookCounts;

/// A webhook and how far it got.
pub(super) fn webhook(webhook: &Webhook, counts: WebhookCounts) -> Value {
    json!({
        "webhook_id": webhook.id,
        // Many receivers carry a token in path or query.
        "target": webhook.origin(),
        "types": webhook.filter.types,
        "labels": webhook.filter.labels,
        "created_at": webhook.created_at,
        "created_by": webhook.created_by,
        "disabled": webhook.disabled,
        "delivered": webhook.delivered,
        "behind": counts.behind,
        "late": counts.late,
        "dead": counts.dead,
        "failing_since": webhook.failing_since,
        "last_error": webhook.last_error,
    })
}

/// A job whose next event was not taken yet.
pub(super) fn late(late: &RetryStream) -> Value {
    json!({
        "job_id": named(&late.stream), "seq": late.seq, "attempts": late.attempts, "since": late.since,
        "next_at": late.next_at, "error": late.error,
    })
}

/// An event that was given up, without its body: the events of the job tell it.
pub(super) fn dead(dead: &DeadLetter) -> Value {
    json!({
        "seq": dead.seq, "job_id": named(&dead.stream), "type": dead.kind, "attempts": dead.attempts,
        "since": dead.since, "died_at": dead.died_at, "error": dead.error, "again": dead.again,
    })
}

fn named(stream: &str) -> Option<&str> {
    Some(stream).filter(|stream| !stream.is_empty())
}
