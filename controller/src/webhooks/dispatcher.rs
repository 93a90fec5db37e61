//! The dispatcher of one webhook: runs of deliveries, each stored before the next.
//!
//! ```text
//!  run:   due retry streams        ──┐
//!         requested redeliveries     ├─ concurrent for different jobs, in order for each ──> one transaction
//!         the next page of the log ──┘
//!  wait:  for a commit, for the next due retry, for the stop
//! ```
//!
//! Invariants: all state between two runs is in the database, so a kill at any point costs at most repeated deliveries under
//! their ids; a page is at most 100 events; while [`MAX_RETRYING`] jobs have a retry stream no further page is read.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::backoff;
use super::batch::{BatchResult, DeliveryBatch, disabling, progress_of};
use super::delivery::{WebhookSender, WebhookTransport};
use model::{Clock, OutgoingEvent, RetryStream, Time, Webhook, WebhookId, error_chain};
use secrets::{CredentialRef, Resolver};
use store::{Store, StoreError, WebhookProgress};
use telemetry::Metrics;

/// Events per page of the log.
const PAGE: u32 = 100;
/// The maximum of jobs with a retry stream.
const MAX_RETRYING: usize = 256;
/// The maximum of deliveries in flight to one webhook.
const MAX_IN_FLIGHT: usize = 8;
/// Retry streams processed in one run.
const DUE: usize = 32;
/// Dead letters delivered again in one run.
const REDELIVERED: u32 = 20;
/// The longest pause between two runs: a commit hint may be lost and a clock may be set.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Commits within this time cause one run.
const COMMIT_DELAY: Duration = Duration::from_millis(100);

/// The shared state of all dispatchers.
#[derive(Clone)]
pub(super) struct DispatcherContext {
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) resolver: Arc<Resolver>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) transport: Arc<dyn WebhookTransport>,
}

/// When the next run starts.
enum NextRun {
    /// At once: more events are ready.
    More,
    /// After a pause or a commit.
    Wait(Duration),
    /// Never: the webhook is deleted or disabled.
    Stop,
}

/// Delivers to one webhook until it is deleted or disabled, or until `stop`.
pub(super) async fn run(context: DispatcherContext, id: WebhookId, stop: CancellationToken) {
    let mut commits = context.store.commits();
    loop {
        commits.mark_unchanged();
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            next = run_once(&context, id) => next,
        };
        let pause = match next {
            Ok(NextRun::Stop) => return,
            Ok(NextRun::More) => continue,
            Ok(NextRun::Wait(pause)) => pause,
            Err(error) => {
                tracing::warn!(webhook = %id, error = %error_chain(&error), "events were not sent; trying again");
                MAX_PAUSE
            }
        };
        let commit = async {
            // The store outlives its dispatchers; otherwise only the pause counts.
            if commits.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(COMMIT_DELAY).await;
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = commit => {}
            () = tokio::time::sleep(pause.clamp(COMMIT_DELAY, MAX_PAUSE)) => {}
        }
    }
}

async fn run_once(context: &DispatcherContext, id: WebhookId) -> Result<NextRun, StoreError> {
    let Some(webhook) = context.store.webhook(id).await?.filter(|webhook| webhook.disabled.is_none()) else {
        return Ok(NextRun::Stop);
    };
    let secret = match secret(context, &webhook) {
        Ok(secret) => secret,
        Err(why) => {
            context.store.commit_webhook_progress(id, disabling(&webhook, why), context.clock.now()).await?;
            return Ok(NextRun::Stop);
        }
    };
    let sender = WebhookSender { transport: context.transport.as_ref(), webhook: &webhook, secret: &secret };
    let retrying = context.store.retry_streams(id).await?;
    let now = context.clock.now();
    let page = page(context, &webhook, &retrying).await?;
    // Up to the new cursor, so that a stream that has caught up includes this page.
    let to = page.as_ref().map_or(webhook.cursor, |page| page.last);
    let due = due(context, &retrying, now, to).await?;
    let more = due.len() == DUE || page.as_ref().is_some_and(|page| page.full);
    let in_batch: HashSet<&str> = due.iter().map(|batch| batch.retry.stream.as_str()).collect();
    let fails = |stream: &&RetryStream| stream.attempts > 0 && !in_batch.contains(stream.stream.as_str());
    let failing = retrying.iter().filter(fails).count();
    let (new, cursor) = page.map_or((Vec::new(), None), |page| (page.streams, Some(page.last)));
    let results: Vec<BatchResult> = futures_util::stream::iter(due.into_iter().chain(new))
        .map(|stream| BatchResult::deliver(stream, &sender, context.clock.as_ref()))
        .buffer_unordered(MAX_IN_FLIGHT)
        .collect()
        .await;
    let failed: u64 = results.iter().map(|result| result.failed).sum();
    let mut progress = progress_of(&webhook, results, failing, now);
    if progress.disable.is_none() {
        progress.cursor = cursor;
        redeliver(context, &sender, &mut progress).await?;
        // Only a job that had a retry stream has a row to delete.
        let known: HashSet<&str> = retrying.iter().map(|stream| stream.stream.as_str()).collect();
        progress.caught_up.retain(|stream| known.contains(stream.stream.as_str()));
        progress.caught_up_to = to;
    }
    context.metrics.events_sent(progress.delivered, failed, progress.dead.len() as u64);
    let not_due = retrying.iter().filter(|stream| !backoff::due(stream.next_at, now));
    let next_due = progress.retrying.iter().chain(not_due).map(|stream| stream.next_at).min();
    let stop = progress.disable.is_some();
    if !progress.is_empty() {
        context.store.commit_webhook_progress(id, progress, context.clock.now()).await?;
    }
    Ok(match next_due {
        _ if stop => NextRun::Stop,
        _ if more => NextRun::More,
        Some(at) => NextRun::Wait(at.since(context.clock.now())),
        None => NextRun::Wait(MAX_PAUSE),
    })
}

/// The secret that signs the deliveries of a webhook, or why it cannot be read.
pub(super) fn secret(
    context: &DispatcherContext,
    webhook: &Webhook,
) -> Result<secrecy::SecretString, String> {
    let reference: CredentialRef = webhook.secret.parse().map_err(|_| {
        "its secret is not a credential reference; delete the webhook and create it again".to_owned()
    })?;
    context
        .resolver
        .resolve(&reference, &webhook.id.secret_context())
        .map_err(|why| format!("{}; or delete the webhook and create it again", error_chain(&why)))
}

/// The due retry streams, with their events up to `to`.
async fn due(
    context: &DispatcherContext,
    retrying: &[RetryStream],
    now: Time,
    to: i64,
) -> Result<Vec<DeliveryBatch>, StoreError> {
    let mut due = Vec::new();
    for stream in retrying.iter().filter(|stream| backoff::due(stream.next_at, now)).take(DUE) {
        let events = context.store.outgoing_of(stream.stream.clone(), stream.seq, to, PAGE).await?;
        let full = events.len() == PAGE as usize;
        let more_from = events.last().filter(|_| full).map(|out| out.event.seq + 1);
        due.push(DeliveryBatch { retry: stream.clone(), events, more_from });
    }
    Ok(due)
}

/// A page of the log, grouped by job. Events of jobs with a retry stream are left out; the stream delivers them.
struct LogPage {
    streams: Vec<DeliveryBatch>,
    last: i64,
    full: bool,
}

async fn page(
    context: &DispatcherContext,
    webhook: &Webhook,
    retrying: &[RetryStream],
) -> Result<Option<LogPage>, StoreError> {
    if retrying.len() >= MAX_RETRYING {
        return Ok(None);
    }
    let events = context.store.outgoing(webhook.cursor, PAGE).await?;
    let Some(last) = events.last().map(|out| out.event.seq) else { return Ok(None) };
    let full = events.len() == PAGE as usize;
    let waiting: HashSet<&str> = retrying.iter().map(|stream| stream.stream.as_str()).collect();
    let now = context.clock.now();
    let mut streams: BTreeMap<String, Vec<OutgoingEvent>> = BTreeMap::new();
    for out in events {
        let stream = out.stream();
        if !waiting.contains(stream.as_str()) && webhook.filter.wants(&out.event.kind, &out.labels) {
            streams.entry(stream).or_default().push(out);
        }
    }
    let streams = streams
        .into_iter()
        .map(|(stream, events)| DeliveryBatch { events, ..DeliveryBatch::without_failures(stream, now) })
        .collect();
    Ok(Some(LogPage { streams, last, full }))
}

/// Delivers dead letters again whose redelivery an operator requested.
async fn redeliver(
    context: &DispatcherContext,
    sender: &WebhookSender<'_>,
    progress: &mut WebhookProgress,
) -> Result<(), StoreError> {
    for dead in context.store.dead_letters(sender.webhook.id, true, REDELIVERED).await? {
        match sender.send(dead.seq, &dead.kind, &dead.body, context.clock.wall()).await {
            Ok(()) => {
                progress.delivered += 1;
                progress.redelivered.push(dead.seq);
            }
            Err(refused) => progress.redelivery_failed.push((dead.seq, refused.why)),
        }
    }
    Ok(())
}
