//! `POST /worker/v1/claim` and `/worker/v1/interrupted`: requests that wait until there is something to do.
//!
//! ```text
//!   claim        a run of the queues is due ──> claimed, carried to its first call     nothing within 20 s ──> no calls
//!   interrupted  a claim was cancelled or lost ──> its run and epoch                   nothing within 20 s ──> none
//! ```
//!
//! Every round of the dispatcher wakes a waiting request: what makes a run due wakes the dispatcher.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::Api;
use super::super::error::ApiError;
use super::Message;
use super::caller::KnownWorker;
use super::parcel::parcel;
use crate::elsewhere::messages::{ClaimList, ClaimOrder, Claims, LONGEST_POLL_S, MAX_CLAIMS};
use engine::model::RunId;
use engine::{CallMessage, RemoteQueues};

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(LONGEST_POLL_S);
/// The longest pause between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// The shortest pause between two looks, also when there are many rounds.
const SHORTEST: Duration = Duration::from_millis(100);

/// Claims runs for a worker, and carries each to its first call.
pub(super) async fn claim(
    State(api): State<Api>,
    worker: KnownWorker,
    Message(order): Message<ClaimOrder>,
) -> Result<Json<Claims>, ApiError> {
    let began = Instant::now();
    let queues = worker.queues(&api)?;
    let (calls, waited) = match order.limit {
        0 => {
            worker.entry.poll();
            (Vec::new(), Duration::ZERO)
        }
        limit => wait_for_calls(&api, &worker, &queues, limit.min(MAX_CLAIMS), began).await?,
    };
    let mut parcels = Vec::new();
    for call in calls {
        parcels.push(parcel(&api, call).await?);
    }
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    Ok(Json(Claims { calls: parcels, waited_ms, now: api.now() }))
}

/// Waits for calls; returns them with the time from the request to the claim.
async fn wait_for_calls(
    api: &Api,
    worker: &KnownWorker,
    queues: &RemoteQueues,
    limit: usize,
    began: Instant,
) -> Result<(Vec<CallMessage>, Duration), ApiError> {
    let mut polls = worker.entry.poll();
    let mut rounds = api.engine.rounds();
    loop {
        rounds.borrow_and_update();
        let due = queues.next_due().await?;
        let now = api.now();
        if due.is_some_and(|due| due <= now) {
            // A token that was revoked meanwhile receives nothing.
            let token = &worker.caller.token;
            let now = api.store().worker_token_named(&token.name).await?;
            if now.is_none_or(|now| now.id != token.id) {
                return Ok((Vec::new(), began.elapsed()));
            }
            let waited = began.elapsed();
            let calls = queues.claim(limit).await?;
            if !calls.is_empty() {
                return Ok((calls, waited));
            }
        }
        let pause = due.map_or(LOOK, |due| due.since(now).min(LOOK));
        if began.elapsed() >= LONGEST || !pause_for(api, &mut rounds, pause, Some(&mut polls)).await {
            return Ok((Vec::new(), began.elapsed()));
        }
    }
}

/// Returns which claims of a worker must stop, as soon as there is one.
pub(super) async fn interrupted(
    State(api): State<Api>,
    worker: KnownWorker,
    Message(list): Message<ClaimList>,
) -> Result<Json<ClaimList>, ApiError> {
    let began = Instant::now();
    let queues = worker.queues(&api)?;
    let mut rounds = api.engine.rounds();
    loop {
        rounds.borrow_and_update();
        let claims: Vec<(RunId, i64)> = queues.interrupted(&list.claims).await?;
        let ended = list.claims.is_empty() || began.elapsed() >= LONGEST;
        if !claims.is_empty() || ended || !pause_for(&api, &mut rounds, LOOK, None).await {
            return Ok(Json(ClaimList { claims }));
        }
    }
}

/// Waits for a round of the dispatcher. `false`: the request must end.
async fn pause_for(
    api: &Api,
    rounds: &mut watch::Receiver<u64>,
    pause: Duration,
    polls: Option<&mut watch::Receiver<u64>>,
) -> bool {
    let later_poll = async {
        match polls {
            // An error means that the worker is not listed any more.
            Some(polls) => drop(polls.changed().await),
            None => std::future::pending().await,
        }
    };
    let woken = async {
        tokio::time::sleep(SHORTEST).await;
        let rest = pause.saturating_sub(SHORTEST);
        // An error means that the engine is gone; the stop ends the request then.
        drop(tokio::time::timeout(rest, rounds.changed()).await);
    };
    tokio::select! {
        biased;
        () = api.workers.stop.cancelled() => false,
        () = later_poll => false,
        () = woken => true,
    }
}
