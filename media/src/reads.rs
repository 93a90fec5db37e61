//! Counts the reads of each grant and records them in the database.
//!
//! ```text
//! chunk sent ──note──> pending ──(first read, boot read, grant ended: now; else every 10 s)──> store
//!                         ^                                                       |
//!                         `───────────── kept when the store fails ───────────────'
//! ```
//!
//! A mounted medium without a single read is the most common reason why a machine does not boot, and after a crash a read
//! proves that the host was powered on. Therefore the first read and the first read of an El Torito image are recorded
//! immediately; later reads at most every ten seconds, for any number of requests.
//!
//! Invariants: noting a read never waits; records are increments, and a repeated increment can only count bytes twice,
//! never lose or invent a read; one task writes for all grants and ends when nothing is pending; a grant has at most one
//! entry in the queue.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use model::{Clock, GrantReads, Time};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::grant_store::{GrantStore, GrantStoreUnavailable};

/// The shortest time between two records of the reads of one grant.
pub const FLUSH_EVERY: Duration = Duration::from_secs(10);
/// The timeout of one call to the grant store.
pub(super) const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Grants recorded concurrently, so that they share a commit of the database.
const FLUSH_WIDTH: usize = 64;

/// The reads of one open grant that are not recorded yet.
pub(super) struct PendingReads {
    token_hash: String,
    /// The span of the log lines about the grant.
    span: Span,
    state: Mutex<ReadsState>,
}

struct ReadsState {
    pending: GrantReads,
    in_flight: GrantReads,
    /// Whether the grant is in the queue of the recorder.
    queued: bool,
    /// Whether the next record must not wait for [`FLUSH_EVERY`].
    urgent: bool,
    flushed_at: Option<Instant>,
    first_known: bool,
    boot_known: bool,
}

impl PendingReads {
    /// No pending reads; `recorded` is what the store has already.
    pub(super) fn new(token_hash: String, span: Span, recorded: GrantReads) -> Self {
        let state = ReadsState {
            pending: GrantReads::default(),
            in_flight: GrantReads::default(),
            queued: false,
            urgent: false,
            flushed_at: None,
            first_known: recorded.first_read_at.is_some(),
            boot_known: recorded.boot_read_at.is_some(),
        };
        Self { token_hash, span, state: Mutex::new(state) }
    }

    /// The span of the log lines about the grant.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }
}

impl ReadsState {
    fn is_clean(&self) -> bool {
        self.pending == GrantReads::default() && self.in_flight == GrantReads::default()
    }

    /// The time of the next record; `None` means now.
    fn due(&self) -> Option<Instant> {
        // While a record is in flight, the call that sends it wakes the writing task at its end.
        let now = self.urgent && self.in_flight == GrantReads::default();
        if now { None } else { self.flushed_at.map(|at| at + FLUSH_EVERY) }
    }
}

/// Records the reads of all grants.
pub(super) struct ReadRecorder {
    store: Arc<dyn GrantStore>,
    clock: Arc<dyn Clock>,
    /// The time at which the recorder was created.
    pub(super) since: Time,
    /// The time at which the former controller was last seen alive, if it was killed.
    pub(super) killed_at: OnceLock<Time>,
    queue: Mutex<Queue>,
    wake: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Arc<PendingReads>>,
    /// Whether the writing task runs.
    running: bool,
}

impl ReadRecorder {
    pub(super) fn new(store: Arc<dyn GrantStore>, clock: Arc<dyn Clock>) -> Self {
        let since = clock.now();
        Self { store, clock, since, killed_at: OnceLock::new(), queue: Mutex::default(), wake: Notify::new() }
    }

    /// Notes that `len` bytes were read; `boot` says that some of them belong to an El Torito image.
    pub(super) fn note(self: &Arc<Self>, reads: &Arc<PendingReads>, len: u64, boot: bool) {
        let now = Some(self.clock.now());
        let boot_read_at = now.filter(|_| boot);
        let delta = GrantReads { first_read_at: now, boot_read_at, last_read_at: now, bytes: len };
        let mut state = reads.state.lock();
        state.pending = state.pending.merge(delta);
        let news = !state.first_known || (boot && !state.boot_known);
        state.first_known = true;
        state.boot_known |= boot;
        state.urgent |= news;
        let queue = !std::mem::replace(&mut state.queued, true);
        drop(state);
        if queue || news {
            self.start_writer(queue.then(|| reads.clone()));
        }
    }

    /// Records the pending reads of a grant without waiting for [`FLUSH_EVERY`].
    pub(super) fn flush_soon(self: &Arc<Self>, reads: &Arc<PendingReads>) {
        let mut state = reads.state.lock();
        if state.queued {
            state.urgent = true;
            drop(state);
            self.start_writer(None);
        }
    }

    /// Starts the writing task, or wakes it if it runs.
    fn start_writer(self: &Arc<Self>, newcomer: Option<Arc<PendingReads>>) {
        let mut queue = self.queue.lock();
        queue.waiting.extend(newcomer);
        if queue.running {
            self.wake.notify_one();
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            queue.running = true;
            runtime.spawn(self.clone().run());
        }
    }

    async fn run(self: Arc<Self>) {
        loop {
            let now = Instant::now();
            self.record(|state| state.due().is_none_or(|due| due <= now)).await;
            let next = {
                let mut queue = self.queue.lock();
                remove_clean(&mut queue);
                let next = queue.waiting.iter().map(|reads| reads.state.lock().due().unwrap_or(now)).min();
                queue.running = next.is_some();
                next
            };
            let Some(next) = next else { return };
            // Timeout and notification have the same effect: the loop checks the queue again.
            let _ = tokio::time::timeout_at(next, self.wake.notified()).await;
        }
    }

    /// Records all pending reads now. Called when the program stops.
    pub(super) async fn flush(self: &Arc<Self>) {
        let recorder = self.clone();
        // A separate task, because the records in flight must be completed even if the caller stops waiting.
        let flushing = tokio::spawn(async move {
            recorder.record(|_| true).await;
            remove_clean(&mut recorder.queue.lock());
            recorder.wake.notify_one();
        });
        if let Err(stopped) = flushing.await {
            tracing::warn!(error = %stopped, "media reads not recorded");
        }
    }

    /// Records the pending reads of the grants that `chosen` selects.
    async fn record(&self, chosen: impl Fn(&ReadsState) -> bool) {
        let mut deltas = Vec::new();
        for reads in &self.queue.lock().waiting {
            let mut state = reads.state.lock();
            if state.in_flight == GrantReads::default() && !state.is_clean() && chosen(&state) {
                state.in_flight = std::mem::take(&mut state.pending);
                state.urgent = false;
                state.flushed_at = Some(Instant::now());
                deltas.push((reads.clone(), state.in_flight));
            }
        }
        futures_util::stream::iter(deltas)
            .for_each_concurrent(FLUSH_WIDTH, |(reads, delta)| async move {
                let recorded = within_timeout(self.store.record_reads(&reads.token_hash, delta))
                    .instrument(reads.span.clone())
                    .await;
                let mut state = reads.state.lock();
                state.in_flight = GrantReads::default();
                if let Err(error) = recorded {
                    reads.span.in_scope(|| {
                        tracing::warn!(error = %error, "media reads not recorded; they stay pending and are recorded later");
                    });
                    state.pending = delta.merge(state.pending);
                }
            })
            .await;
    }

    /// The reads of a token that are not recorded yet.
    pub(super) fn pending(&self, token_hash: &str) -> GrantReads {
        self.queue
            .lock()
            .waiting
            .iter()
            .filter(|reads| reads.token_hash == token_hash)
            .map(|reads| {
                let state = reads.state.lock();
                state.in_flight.merge(state.pending)
            })
            .fold(GrantReads::default(), GrantReads::merge)
    }
}

/// Removes the grants without pending reads from the queue.
fn remove_clean(queue: &mut Queue) {
    queue.waiting.retain(|reads| {
        let mut state = reads.state.lock();
        state.queued = !state.is_clean();
        state.queued
    });
}

/// Runs a call to the grant store and fails it after [`STORE_TIMEOUT`].
pub(super) async fn within_timeout<T>(
    call: impl Future<Output = Result<T, GrantStoreUnavailable>>,
) -> Result<T, GrantStoreUnavailable> {
    match tokio::time::timeout(STORE_TIMEOUT, call).await {
        Ok(outcome) => outcome,
        Err(_) => Err(GrantStoreUnavailable { reason: "no response within ten seconds".to_owned() }),
    }
}
