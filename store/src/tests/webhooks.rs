//! Outgoing webhooks: which events are kept for them, and what one batch of deliveries writes.

use super::*;
use crate::WebhookProgress;
use model::{DeadLetter, RetryStream, Webhook, WebhookFilter, WebhookId};

async fn hook(kit: &Kit) -> WebhookId {
    let webhook = Webhook {
        id: WebhookId::new(),
        url: "http://h/".to_owned(),
        secret: "sealed:v1:x".to_owned(),
        filter: WebhookFilter::default(),
        created_by: "ann".to_owned(),
        created_at: at(0),
        disabled: None,
        cursor: 0,
        delivered: 0,
        failing_since: None,
        last_error: None,
    };
    let id = webhook.id;
    assert!(kit.store.create_webhook(webhook, 9, NewEvent::info("webhook.created", "x")).await.unwrap());
    id
}

fn dead(seq: i64) -> DeadLetter {
    DeadLetter {
        seq,
        stream: String::new(),
        kind: "test".to_owned(),
        body: "{}".to_owned(),
        attempts: 1,
        since: at(0),
        given_up_at: at(1),
        error: "x".to_owned(),
        redeliver: false,
    }
}

async fn commit_progress(kit: &Kit, id: WebhookId, progress: WebhookProgress) {
    kit.store.commit_webhook_progress(id, progress, at(2)).await.unwrap();
}

#[tokio::test]
async fn undelivered_events_are_not_deleted_unless_the_webhook_is_disabled() {
    let kit = Kit::new();
    let id = hook(&kit).await;
    for _ in 0..3 {
        kit.store.append(None, None, vec![NewEvent::info("test", "x")], at(1)).await.unwrap();
    }
    let last = kit.store.last_seq().await.unwrap();
    let delete = || async { kit.store.delete_orphans(at(100), 100).await.unwrap() };
    // The cursor keeps every event after the creation of the webhook.
    assert_eq!(delete().await, 0);
    commit_progress(&kit, id, WebhookProgress { cursor: Some(last - 1), ..WebhookProgress::default() }).await;
    assert_eq!(delete().await, 3, "all but the last; the creation of the webhook is among them");
    let retry = RetryStream {
        stream: String::new(),
        seq: last,
        attempts: 1,
        since: at(1),
        next_at: at(9),
        error: "x".to_owned(),
    };
    let progress =
        WebhookProgress { cursor: Some(last), retrying: vec![retry.clone()], ..WebhookProgress::default() };
    commit_progress(&kit, id, progress).await;
    assert_eq!(delete().await, 0, "it is in a retry stream");
    assert_eq!(kit.store.retry_streams(id).await.unwrap(), [retry]);
    let event = NewEvent::info("webhook.disabled", "x");
    assert!(kit.store.set_webhook_disabled(id, Some("moving".to_owned()), event, at(3)).await.unwrap());
    assert_eq!(delete().await, 2);
}

/// Found by world 25760: two controllers sent events at the same time, and one deleted a retry stream of the other.
#[tokio::test]
async fn ending_a_retry_stream_keeps_what_another_dispatcher_wrote_meanwhile() {
    let kit = Kit::new();
    let id = hook(&kit).await;
    let retry = |seq: i64, attempts: u32, next_at: Time| RetryStream {
        stream: "job".to_owned(),
        seq,
        attempts,
        since: at(1),
        next_at,
        error: "x".to_owned(),
    };
    let caught_up = |was: RetryStream, to: i64| WebhookProgress {
        caught_up: vec![was],
        caught_up_to: to,
        ..WebhookProgress::default()
    };
    let (first, second) = (retry(5, 1, at(9)), retry(7, 1, at(10)));
    let progress =
        WebhookProgress { cursor: Some(6), retrying: vec![first.clone()], ..WebhookProgress::default() };
    commit_progress(&kit, id, progress.clone()).await;
    // The other dispatcher got further and failed there.
    commit_progress(
        &kit,
        id,
        WebhookProgress { retrying: vec![second.clone()], ..WebhookProgress::default() },
    )
    .await;
    commit_progress(&kit, id, caught_up(first.clone(), 6)).await;
    assert_eq!(kit.store.retry_streams(id).await.unwrap(), [second]);
    // The other dispatcher moved the cursor to 20 and left later events of this job to the retry stream.
    commit_progress(&kit, id, WebhookProgress { cursor: Some(20), ..progress }).await;
    commit_progress(&kit, id, caught_up(first.clone(), 6)).await;
    assert_eq!(kit.store.retry_streams(id).await.unwrap(), [retry(7, 0, at(2))]);
    commit_progress(&kit, id, caught_up(retry(7, 0, at(2)), 20)).await;
    assert_eq!(kit.store.retry_streams(id).await.unwrap(), []);
}

#[tokio::test]
async fn an_ended_job_stays_until_its_last_event_is_delivered() {
    let kit = Kit::new();
    let id = hook(&kit).await;
    let run = kit.create_run(new_run(at(0))).await;
    kit.outside().execute("UPDATE runs SET phase = 'ended', outcome = 'failed'", []).unwrap();
    kit.store.append(Some(run), None, vec![NewEvent::info("test", "x")], at(1)).await.unwrap();
    assert!(kit.store.expired(at(1_000_000), 9).await.unwrap().is_empty());
    let cursor = Some(kit.store.last_seq().await.unwrap());
    commit_progress(&kit, id, WebhookProgress { cursor, ..WebhookProgress::default() }).await;
    assert_eq!(kit.store.expired(at(1_000_000), 9).await.unwrap(), [run]);
}

#[tokio::test]
async fn progress_is_written_in_one_transaction_and_dead_letters_are_bounded() {
    let kit = Kit::new();
    let id = hook(&kit).await;
    let failed = WebhookProgress { error: Some("it answered 500".to_owned()), ..WebhookProgress::default() };
    commit_progress(&kit, id, failed.clone()).await;
    kit.store.commit_webhook_progress(id, failed.clone(), at(40)).await.unwrap();
    let webhook = kit.store.webhook(id).await.unwrap().unwrap();
    assert_eq!(webhook.failing_since, Some(at(2)), "the first failure since the last success");
    let progress = WebhookProgress { dead: (1..=1010).map(dead).collect(), ..failed };
    kit.store.commit_webhook_progress(id, progress, at(50)).await.unwrap();
    let webhook = kit.store.webhook(id).await.unwrap().unwrap();
    assert_eq!(webhook.failing_since, None, "no retry stream is left");
    let letters = kit.store.dead_letters(id, false, 5000).await.unwrap();
    assert_eq!((letters.len(), letters[0].seq), (1000, 11), "the oldest are deleted");
    assert!(kit.store.dead_letters(id, true, 9).await.unwrap().is_empty());
    let event = NewEvent::info("webhook.redelivered", "x");
    assert_eq!(kit.store.redeliver(id, Some(1), event.clone(), at(3)).await.unwrap(), 0);
    assert_eq!(kit.store.redeliver(id, Some(20), event, at(3)).await.unwrap(), 1);
    let redelivered = kit.store.dead_letters(id, true, 9).await.unwrap();
    assert_eq!(redelivered.iter().map(|dead| dead.seq).collect::<Vec<_>>(), [20]);
    let progress = WebhookProgress { redelivered: vec![20], delivered: 1, ..WebhookProgress::default() };
    commit_progress(&kit, id, progress).await;
    let webhook = kit.store.webhook(id).await.unwrap().unwrap();
    assert_eq!((webhook.failing_since, webhook.last_error, webhook.delivered), (None, None, 1));
    assert_eq!(kit.store.webhook_counts(id).await.unwrap().dead, 999);
    assert_eq!(kit.store.dead_letter_count().await.unwrap(), 999);
    assert!(kit.store.delete_webhook(id, NewEvent::info("webhook.deleted", "x"), at(4)).await.unwrap());
    commit_progress(&kit, id, WebhookProgress { dead: vec![dead(1)], ..WebhookProgress::default() }).await;
    assert!(
        kit.store.dead_letters(id, false, 9).await.unwrap().is_empty(),
        "nothing is written for a deleted webhook"
    );
}

#[tokio::test]
async fn the_time_without_a_controller_is_no_failure_of_a_receiver() {
    let kit = Kit::new();
    let id = hook(&kit).await;
    let minute = Duration::from_secs(60);
    let (failed, seen) = (at(0).plus(minute), at(0).plus(minute * 2));
    let weekend = Duration::from_secs(2 * 86_400);
    let retry = RetryStream {
        stream: String::new(),
        seq: 1,
        attempts: 1,
        since: failed,
        next_at: failed,
        error: "x".to_owned(),
    };
    let progress =
        WebhookProgress { retrying: vec![retry], error: Some("x".to_owned()), ..WebhookProgress::default() };
    kit.store.begin_instance("one".to_owned(), failed, None).await.unwrap();
    kit.store.commit_webhook_progress(id, progress, failed).await.unwrap();
    kit.store.end_instance("one".to_owned(), seen).await.unwrap();
    let started = seen.plus(weekend);
    assert_eq!(kit.store.begin_instance("two".to_owned(), started, None).await.unwrap(), Some(seen));
    let failing_since = || async { kit.store.webhook(id).await.unwrap().unwrap().failing_since };
    let since = started.minus(minute);
    assert_eq!(failing_since().await, Some(since), "the minute that it failed before counts");
    assert_eq!(kit.store.retry_streams(id).await.unwrap()[0].since, since);
    // A start at once moves nothing.
    kit.store.end_instance("two".to_owned(), started).await.unwrap();
    kit.store.begin_instance("three".to_owned(), started, None).await.unwrap();
    assert_eq!(failing_since().await, Some(since));
}

#[tokio::test]
async fn the_events_behind_a_receiver_are_counted_up_to_a_bound() {
    let kit = Kit::new();
    let id = hook(&kit).await;
    let before = kit.store.webhook_counts(id).await.unwrap().behind;
    kit.store.append(None, None, vec![NewEvent::info("test", "x"); 3], at(1)).await.unwrap();
    assert_eq!(kit.store.webhook_counts(id).await.unwrap().behind, before + 3);
    kit.store.append(None, None, vec![NewEvent::info("test", "x"); 10_100], at(1)).await.unwrap();
    assert_eq!(kit.store.webhook_counts(id).await.unwrap().behind, crate::webhooks::MAX_BEHIND);
}
