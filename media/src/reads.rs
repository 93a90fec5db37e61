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
//! Invariants: noting a read never waits; records are increments, and an increment is repeated only if the store did not confirm
//! it, so that bytes in the database can count twice and never too little; one task writes for all grants and ends
//! when nothing is pending; a grant has at most one entry in the queue.

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
/// How often it is looked whether another record of a grant has ended.
const RECORD_POLL: Duration = Duration::from_millis(20);
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
    /// The bytes that the store has for certain.
    recorded: u64,
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
            recorded: recorded.bytes,
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

    /// The number of bytes that were read, recorded or not.
    pub(super) fn bytes(&self) -> u64 {
        let state = self.state.lock();
        state.recorded.saturating_add(state.in_flight.bytes).saturating_add(state.pending.bytes)
    }

    /// The number of bytes that were read and that the store does not have for certain.
    pub(super) fn unrecorded_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.in_flight.bytes.saturating_add(state.pending.bytes)
    }

    /// The number of bytes that the store has for certain from this controller.
    pub(super) fn recorded_bytes(&self) -> u64 {
        self.state.lock().recorded
    }
}

impl ReadsState {
    fn is_clean(&self) -> bool {
        self.pending == GrantReads::default() && self.in_flight == GrantReads::default()
    }

    /// The time of the next record; `None` means now.
    fn due(&self) -> Option<Instant> {
        // While a record is in flight, the call that sends it wakes the writing task at its end.
        match self.in_flight == GrantReads::default() {
            true if self.urgent => None,
            true => self.flushed_at.map(|at| at + FLUSH_EVERY),
            false => self.flushed_at.map(|at| at + STORE_TIMEOUT + FLUSH_EVERY),
        }
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
            self.record(|_, state| state.due().is_none_or(|due| due <= now)).await;
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
            recorder.record(|_, _| true).await;
            remove_clean(&mut recorder.queue.lock());
            recorder.wake.notify_one();
        });
        if let Err(stopped) = flushing.await {
            tracing::warn!(error = %stopped, "media reads not recorded");
        }
    }

    /// Records the reads of one grant that were noted until now.
    ///
    /// # Errors
    /// When the store did not record them; they stay pending.
    pub(super) async fn flush_one(
        self: &Arc<Self>,
        reads: &Arc<PendingReads>,
    ) -> Result<(), GrantStoreUnavailable> {
        let unrecorded =
            || GrantStoreUnavailable { reason: "the reads of an image are not recorded".to_owned() };
        let noted = reads.bytes();
        let deadline = Instant::now() + STORE_TIMEOUT;
        while reads.recorded_bytes() < noted {
            let (recorder, chosen) = (self.clone(), reads.clone());
            // A separate task, as in `flush`.
            let recording = tokio::spawn(async move {
                let failed = recorder.record(|one, _| Arc::ptr_eq(one, &chosen)).await;
                recorder.wake.notify_one();
                failed
            });
            if recording.await.map_or(true, |failed| failed > 0) || Instant::now() >= deadline {
                return Err(unrecorded());
            }
            if reads.recorded_bytes() < noted {
                // Another record of the grant is in flight.
                tokio::time::sleep(RECORD_POLL).await;
            }
        }
        Ok(())
    }

    /// The reads of a grant in the queue.
    pub(super) fn queued(&self, token_hash: &str) -> Option<Arc<PendingReads>> {
        self.queue.lock().waiting.iter().find(|reads| reads.token_hash == token_hash).cloned()
    }

    /// Records the pending reads of the grants that `chosen` selects. Returns the number of grants for which that failed.
    async fn record(&self, chosen: impl Fn(&Arc<PendingReads>, &ReadsState) -> bool) -> usize {
        let mut deltas = Vec::new();
        for reads in &self.queue.lock().waiting {
            let mut state = reads.state.lock();
            if state.in_flight == GrantReads::default() && !state.is_clean() && chosen(reads, &state) {
                state.in_flight = std::mem::take(&mut state.pending);
                state.urgent = false;
                state.flushed_at = Some(Instant::now());
                deltas
                    .push((InFlight { reads: reads.clone(), delta: Some(state.in_flight) }, state.in_flight));
            }
        }
        futures_util::stream::iter(deltas)
            .map(|(sent, delta)| async move {
                let result = within_timeout(self.store.record_reads(&sent.reads.token_hash, delta))
                    .instrument(sent.reads.span.clone())
                    .await;
                let failed = usize::from(result.is_err());
                if let Err(error) = result {
                    sent.reads.span.in_scope(|| {
                        tracing::warn!(error = %error, "media reads not recorded; they stay pending and are recorded later");
                    });
                } else {
                    sent.recorded();
                }
                failed
            })
            .buffer_unordered(FLUSH_WIDTH)
            .fold(0, |sum, failed| async move { sum + failed })
            .await
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

/// Reads that are sent to the store. Dropped before they are recorded, they are pending again.
struct InFlight {
    reads: Arc<PendingReads>,
    /// `None` once they are recorded.
    delta: Option<GrantReads>,
}

impl InFlight {
    fn recorded(mut self) {
        let Some(delta) = self.delta.take() else { return };
        let mut state = self.reads.state.lock();
        state.in_flight = GrantReads::default();
        state.recorded = state.recorded.saturating_add(delta.bytes);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(delta) = self.delta.take() else { return };
        let mut state = self.reads.state.lock();
        state.in_flight = GrantReads::default();
        state.pending = delta.merge(state.pending);
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
