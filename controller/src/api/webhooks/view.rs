//! The JSON of a webhook: without its secret, and of its URL only the origin.

use serde_json::{Value, json};

use engine::model::{DeadLetter, RetryStream, Webhook};
use engine::store::WebhookCounts;

/// The JSON of a webhook with its progress.
pub(super) fn webhook(webhook: &Webhook, counts: WebhookCounts) -> Value {
    json!({
        "webhook_id": webhook.id,
        // The URL of many receivers contains a token in path or query.
        "target": webhook.origin(),
        "types": webhook.filter.types,
        "labels": webhook.filter.labels,
        "created_at": webhook.created_at,
        "created_by": webhook.created_by,
        "disabled": webhook.disabled,
        "delivered": webhook.delivered,
        "behind": counts.behind,
        "retrying": counts.retrying,
        "dead_letters": counts.dead,
        "failing_since": webhook.failing_since,
        "last_error": webhook.last_error,
    })
}

/// The JSON of a retry stream.
pub(super) fn retry_stream(stream: &RetryStream) -> Value {
    json!({
        "job_id": job_id(&stream.stream), "seq": stream.seq, "attempts": stream.attempts, "since": stream.since,
        "next_at": stream.next_at, "error": stream.error,
    })
}

/// The JSON of a dead letter without its body; the event itself is in the events of the job.
pub(super) fn dead_letter(dead: &DeadLetter) -> Value {
    json!({
        "seq": dead.seq, "job_id": job_id(&dead.stream), "type": dead.kind, "attempts": dead.attempts,
        "since": dead.since, "given_up_at": dead.given_up_at, "error": dead.error, "redelivery_requested": dead.redeliver,
    })
}

fn job_id(stream: &str) -> Option<&str> {
    Some(stream).filter(|stream| !stream.is_empty())
}
