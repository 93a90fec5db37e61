//! The courier of one webhook: rounds of deliveries, each written down before the next.
//!
//! ```text
//!  turn:  what is late and due  ──┐
//!         dead letters raised     ├─ side by side for different jobs, in order for each ──> one transaction
//!         the next page of the log┘
//!  wait:  for a commit, for what is late, for the stop
//! ```
//!
//! Invariants: nothing is remembered between turns but what is in the database, so that a kill at any point costs a
//! repeated delivery under the same id and nothing else; a page is 100 events whatever is behind it; while [`MAX_LATE`] jobs
//! are late the log is not read on.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::backoff;
use super::batch::{Round, Stream, sum};
use super::delivery::{Carrier, Post};
use crate::telemetry::Metrics;
use engine::model::{Clock, OutgoingEvent, RetryStream, Time, Webhook, WebhookId, error_chain};
use engine::store::{Store, StoreError, WebhookProgress};
use secrets::{CredentialRef, Resolver};

/// Events read at once.
const PAGE: u32 = 100;
/// Jobs that may be late at once.
const MAX_LATE: usize = 256;
/// Deliveries under way to one webhook.
const AT_ONCE: usize = 8;
/// Late jobs taken up in one turn.
const DUE: usize = 32;
/// Dead letters tried again in one turn.
const RAISED: u32 = 20;
/// The longest pause between two turns: hints may be lost, clocks may be set.
const LOOK: Duration = Duration::from_secs(5);
/// Commits within this time cause one turn.
const GATHER: Duration = Duration::from_millis(100);

/// What couriers work with.
#[derive(Clone)]
pub(super) struct Tools {
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) resolver: Arc<Resolver>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) carrier: Arc<dyn Carrier>,
}

/// What a turn leaves to do.
enum Next {
    /// There is more to do at once.
    More,
    /// There is something late, or nothing at all.
    Wait(Duration),
    /// It is gone or disabled.
    Over,
}

/// Delivers to one webhook until it is gone, disabled or the program stops.
pub(super) async fn run(tools: Tools, id: WebhookId, stop: CancellationToken) {
    let mut commits = tools.store.commits();
    loop {
        commits.mark_unchanged();
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            next = turn(&tools, id) => next,
        };
        let pause = match next {
            Ok(Next::Over) => return,
            Ok(Next::More) => continue,
            Ok(Next::Wait(pause)) => pause,
            Err(error) => {
                tracing::warn!(webhook = %id, error = %error_chain(&error), "events were not sent; trying again");
                LOOK
            }
        };
        let news = async {
            // The store outlives its couriers; should it not, the pause decides.
            if commits.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(GATHER).await;
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = news => {}
            () = tokio::time::sleep(pause.clamp(GATHER, LOOK)) => {}
        }
    }
}

async fn turn(tools: &Tools, id: WebhookId) -> Result<Next, StoreError> {
    let Some(webhook) = tools.store.webhook(id).await?.filter(|webhook| webhook.disabled.is_none()) else {
        return Ok(Next::Over);
    };
    let secret = match secret(tools, &webhook) {
        Ok(secret) => secret,
        Err(why) => {
            let progress = WebhookProgress { disable: Some(why), ..WebhookProgress::default() };
            tools.store.commit_webhook_progress(id, progress, tools.clock.now()).await?;
            return Ok(Next::Over);
        }
    };
    let post = Post { carrier: tools.carrier.as_ref(), webhook: &webhook, secret: &secret };
    let late = tools.store.retry_streams(id).await?;
    let now = tools.clock.now();
    let page = page(tools, &webhook, &late).await?;
    // As far as the cursor will be, so that what is caught up is caught up with this page too.
    let to = page.as_ref().map_or(webhook.cursor, |page| page.last);
    let due = due(tools, &late, now, to).await?;
    let more = due.len() == DUE || page.as_ref().is_some_and(|page| page.full);
    let (fresh, cursor) = page.map_or((Vec::new(), None), |page| (page.streams, Some(page.last)));
    let rounds: Vec<Round> = futures_util::stream::iter(due.into_iter().chain(fresh))
        .map(|stream| Round::deliver(stream, &post, tools.clock.as_ref()))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let failed: u64 = rounds.iter().map(|round| round.failed).sum();
    let mut progress = sum(&webhook, rounds, now);
    if progress.disable.is_none() {
        progress.cursor = cursor;
        raise(tools, &post, &mut progress).await?;
        // Only what was late is caught up; a job that never was has no row.
        let known: HashSet<&str> = late.iter().map(|late| late.stream.as_str()).collect();
        progress.caught_up.retain(|was| known.contains(was.stream.as_str()));
        progress.caught_up_to = to;
    }
    tools.metrics.events_sent(progress.delivered, failed, progress.dead.len() as u64);
    let rest = late.iter().filter(|late| !backoff::due(late.next_at, now));
    let next_due = progress.late.iter().chain(rest).map(|late| late.next_at).min();
    let over = progress.disable.is_some();
    if !progress.is_empty() {
        tools.store.commit_webhook_progress(id, progress, tools.clock.now()).await?;
    }
    Ok(match next_due {
        _ if over => Next::Over,
        _ if more => Next::More,
        Some(at) => Next::Wait(at.since(tools.clock.now())),
        None => Next::Wait(LOOK),
    })
}

fn secret(tools: &Tools, webhook: &Webhook) -> Result<secrecy::SecretString, String> {
    let reference: CredentialRef = webhook
        .secret
        .parse()
        .map_err(|_| "its secret is not a credential reference; make the webhook again".to_owned())?;
    tools
        .resolver
        .resolve(&reference, &webhook.id.secret_context())
        .map_err(|why| format!("{}; or make the webhook again", error_chain(&why)))
}

/// Late jobs whose time has come, with their events up to `to`.
async fn due(tools: &Tools, late: &[RetryStream], now: Time, to: i64) -> Result<Vec<Stream>, StoreError> {
    let mut due = Vec::new();
    for late in late.iter().filter(|late| backoff::due(late.next_at, now)).take(DUE) {
        let events = tools.store.outgoing_of(late.stream.clone(), late.seq, to, PAGE).await?;
        let full = events.len() == PAGE as usize;
        let more_from = events.last().filter(|_| full).map(|out| out.event.seq + 1);
        due.push(Stream { late: late.clone(), events, more_from });
    }
    Ok(due)
}

/// A page of the log, by jobs. Events of late jobs are left to those.
struct Page {
    streams: Vec<Stream>,
    last: i64,
    full: bool,
}

async fn page(tools: &Tools, webhook: &Webhook, late: &[RetryStream]) -> Result<Option<Page>, StoreError> {
    if late.len() >= MAX_LATE {
        return Ok(None);
    }
    let events = tools.store.outgoing(webhook.cursor, PAGE).await?;
    let Some(last) = events.last().map(|out| out.event.seq) else { return Ok(None) };
    let full = events.len() == PAGE as usize;
    let waiting: HashSet<&str> = late.iter().map(|late| late.stream.as_str()).collect();
    let now = tools.clock.now();
    let mut streams: BTreeMap<String, Vec<OutgoingEvent>> = BTreeMap::new();
    for out in events {
        let stream = out.stream();
        if !waiting.contains(stream.as_str()) && webhook.filter.wants(&out.event.kind, &out.labels) {
            streams.entry(stream).or_default().push(out);
        }
    }
    let streams =
        streams.into_iter().map(|(stream, events)| Stream { events, ..Stream::fresh(stream, now) }).collect();
    Ok(Some(Page { streams, last, full }))
}

/// Tries once more what an operator has asked for.
async fn raise(tools: &Tools, post: &Post<'_>, progress: &mut WebhookProgress) -> Result<(), StoreError> {
    for dead in tools.store.dead_letters(post.webhook.id, true, RAISED).await? {
        match post.send(dead.seq, &dead.kind, &dead.body, tools.clock.now()).await {
            Ok(()) => {
                progress.delivered += 1;
                progress.raised.push(dead.seq);
            }
            Err(refused) => progress.redelivery_failed.push((dead.seq, refused.why)),
        }
    }
    Ok(())
}
