//! `POST /worker/v1/claim` and `/worker/v1/interrupted`: requests that wait until there is something to do.
//!
//! ```text
//!   claim        a run of the queues is due ──> claimed, carried to its first call     nothing within 20 s ──> no calls
//!     at once                                                                            nothing now ──> no calls
//!   interrupted  a claim was cancelled or lost ──> its run and epoch                   nothing within 20 s ──> none
//! ```
//!
//! Every round of the dispatcher wakes a waiting request: what makes a run due wakes the dispatcher.
//!
//! A waiting order is no sign of life. The host of a stopped worker, and a link that is cut, keep the connection of the order open;
//! a run that is granted over it stays without a worker until its lease ends. So an order ends, without calls, when
//!
//! ```text
//!   a later order of the same process begins       the worker waits for the later one only
//!   a lease of the worker has ended meanwhile      its lost run would be given to it again, and lost again; the claim finds this
//!                                                  in its transaction (store::elsewhere)
//!   20 s have passed on either clock               the monotonic clock stands still while this machine is suspended
//!   its token was revoked or has expired           the calls have passwords
//! ```
//!
//! A live worker orders again at once, and a new order is good: it was sent after the end of the lease.

use std::ops::Range;
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
use super::roster::Poll;
use engine::{CallMessage, RemoteQueues};
use model::{RunId, Time};
use store::StoredWorkerToken;
use worker::messages::{ClaimList, ClaimOrder, Claims, LONGEST_POLL_S, MAX_CLAIMS};

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(LONGEST_POLL_S);
/// The longest pause between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// The shortest pause between two looks for due runs, also when there are many rounds.
const SHORTEST: Duration = Duration::from_millis(100);
/// The shortest pause between two looks at the claims of a worker, each of which reads them all.
const SHORTEST_OF_CLAIMS: Duration = Duration::from_millis(500);

/// Claims runs for a worker, and carries each to its first call.
pub(super) async fn claim(
    State(api): State<Api>,
    worker: KnownWorker,
    Message(order): Message<ClaimOrder>,
) -> Result<Json<Claims>, ApiError> {
    let arrived = Arrived { began: Instant::now(), asked: api.now() };
    let queues = worker.queues(&api)?;
    let (calls, waited) = match order.limit {
        0 => {
            drop(worker.entry.order());
            (Vec::new(), Duration::ZERO)
        }
        limit => {
            let order = ClaimOrder { limit: limit.min(MAX_CLAIMS), ..order };
            wait_for_calls(&api, &worker, &queues, order, arrived).await?
        }
    };
    let mut parcels = Vec::new();
    for call in calls {
        parcels.push(parcel(&api, call).await?);
    }
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    Ok(Json(Claims { calls: parcels, waited_ms, now: api.now() }))
}

/// When an order arrived, on the monotonic clock and on that of the leases.
#[derive(Clone, Copy)]
struct Arrived {
    began: Instant,
    asked: Time,
}

impl Arrived {
    fn is_too_old(self, now: Time) -> bool {
        self.began.elapsed() >= LONGEST || now.since(self.asked) >= LONGEST
    }
}

/// Waits for calls; returns them with the time from the request to the claim.
async fn wait_for_calls(
    api: &Api,
    worker: &KnownWorker,
    queues: &RemoteQueues,
    order: ClaimOrder,
    arrived: Arrived,
) -> Result<(Vec<CallMessage>, Duration), ApiError> {
    let Arrived { began, asked } = arrived;
    let mut poll = worker.entry.order();
    let mut rounds = api.engine.rounds();
    loop {
        rounds.borrow_and_update();
        let due = queues.next_due().await?;
        let now = api.now();
        if arrived.is_too_old(now) {
            return Ok((Vec::new(), began.elapsed()));
        }
        if due.is_some_and(|due| due <= now) {
            // A later order, or a revoked token, may have ended this one during the look.
            if poll.is_over() || !is_valid(api, &worker.caller.token, now).await? {
                return Ok((Vec::new(), began.elapsed()));
            }
            let waited = began.elapsed();
            match queues.claim(order.limit, asked).await? {
                Some(calls) if calls.is_empty() => {}
                Some(calls) => return Ok((calls, waited)),
                None => {
                    tracing::debug!(
                        worker = queues.owner(),
                        "an order of calls ended: a lease of the worker ended while it waited"
                    );
                    return Ok((Vec::new(), waited));
                }
            }
        }
        if order.at_once {
            return Ok((Vec::new(), began.elapsed()));
        }
        let pause = due.map_or(LOOK, |due| due.since(now).min(LOOK));
        if !pause_for(api, &mut rounds, SHORTEST..pause, &mut poll).await {
            return Ok((Vec::new(), began.elapsed()));
        }
    }
}

/// Whether a token is still stored and has not expired.
async fn is_valid(api: &Api, token: &StoredWorkerToken, now: Time) -> Result<bool, ApiError> {
    let stored = api.store().worker_token_named(&token.name).await?;
    let same = stored.is_some_and(|stored| stored.id == token.id);
    Ok(same && token.expires_at.is_none_or(|end| end > now))
}

/// Returns which claims of a worker must stop, as soon as there is one.
pub(super) async fn interrupted(
    State(api): State<Api>,
    worker: KnownWorker,
    Message(list): Message<ClaimList>,
) -> Result<Json<ClaimList>, ApiError> {
    let began = Instant::now();
    let queues = worker.queues(&api)?;
    let mut poll = worker.entry.question();
    let mut rounds = api.engine.rounds();
    loop {
        rounds.borrow_and_update();
        let claims: Vec<(RunId, i64)> = queues.interrupted(&list.claims).await?;
        let ended = list.claims.is_empty() || began.elapsed() >= LONGEST;
        if !claims.is_empty()
            || ended
            || !pause_for(&api, &mut rounds, SHORTEST_OF_CLAIMS..LOOK, &mut poll).await
        {
            return Ok(Json(ClaimList { claims }));
        }
    }
}

/// Waits for a round of the dispatcher, for a time in `pause`. `false`: the request must end.
async fn pause_for(
    api: &Api,
    rounds: &mut watch::Receiver<u64>,
    pause: Range<Duration>,
    poll: &mut Poll,
) -> bool {
    let woken = async {
        tokio::time::sleep(pause.start).await;
        let rest = pause.end.saturating_sub(pause.start);
        // An error means that the engine is gone; the stop ends the request then.
        drop(tokio::time::timeout(rest, rounds.changed()).await);
    };
    tokio::select! {
        biased;
        () = api.workers.stop.cancelled() => false,
        () = poll.over() => false,
        () = woken => true,
    }
}
