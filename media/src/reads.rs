//! What was really read through each grant, and how that reaches the database.
//!
//! ```text
//! handed over ──note──> pending ──(first read, boot read, ended: at once; else every 10 s)──> ledger
//!                          ^                                                       |
//!                          `───────────────── put back when that fails ────────────'
//! ```
//!
//! A mounted medium that nobody read is the most common reason why a machine does not boot, and after a crash a read
//! proves that the host was powered on. So the first read and the first read of a boot image are recorded at once;
//! everything after them at most every ten seconds, whatever the number of requests.
//!
//! Invariants: noting a read never waits; what is recorded are additions, and merging one twice can only count bytes
//! twice, never lose or invent a read; one task writes for all grants, and it ends when nothing is pending; a grant has
//! at most one entry in the queue.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::grants::{GrantStore, GrantStoreUnavailable};

/// How often the reads of one grant are recorded at most.
pub const FLUSH_EVERY: Duration = Duration::from_secs(10);
/// How long one call of the ledger may take.
pub(super) const LEDGER_TIMEOUT: Duration = Duration::from_secs(10);
/// Grants recorded at once, so that they share a commit of the database.
const FLUSH_WIDTH: usize = 64;

/// Gives the time for what is recorded.
pub type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Reads of one image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadSummary {
    /// When the first byte was handed over.
    pub first_read_at: Option<Timestamp>,
    /// When the latest byte was.
    pub last_read_at: Option<Timestamp>,
    /// Bytes handed over, repeated ones included.
    pub bytes: u64,
    /// Whether bytes of an El Torito boot image were among them.
    pub boot_read: bool,
}

impl ReadSummary {
    /// Both together: the earlier first, the later last, the sum of the bytes.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            first_read_at: [self.first_read_at, other.first_read_at].into_iter().flatten().min(),
            last_read_at: self.last_read_at.max(other.last_read_at),
            bytes: self.bytes.saturating_add(other.bytes),
            boot_read: self.boot_read || other.boot_read,
        }
    }
}

/// The reads of one opened grant that the ledger does not know yet.
pub(super) struct Reads {
    token_hash: String,
    state: Mutex<ReadsState>,
}

struct ReadsState {
    pending: ReadSummary,
    in_flight: ReadSummary,
    /// Whether this is in the queue of the log.
    queued: bool,
    /// Whether it must not wait for its ten seconds.
    urgent: bool,
    flushed_at: Option<Instant>,
    first_known: bool,
    boot_known: bool,
}

impl Reads {
    /// Nothing pending, beyond what is `recorded` already.
    pub(super) fn new(token_hash: String, recorded: ReadSummary) -> Self {
        let state = ReadsState {
            pending: ReadSummary::default(),
            in_flight: ReadSummary::default(),
            queued: false,
            urgent: false,
            flushed_at: None,
            first_known: recorded.first_read_at.is_some(),
            boot_known: recorded.boot_read,
        };
        Self { token_hash, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, ReadsState> {
        lock(&self.state)
    }
}

impl ReadsState {
    fn is_clean(&self) -> bool {
        self.pending == ReadSummary::default() && self.in_flight == ReadSummary::default()
    }

    /// When this is to be recorded; nothing means now.
    fn due(&self) -> Option<Instant> {
        // What is in flight is in the hands of another call, which wakes the writing task when it is done.
        let at_once = self.urgent && self.in_flight == ReadSummary::default();
        if at_once { None } else { self.flushed_at.map(|at| at + FLUSH_EVERY) }
    }
}

/// Records reads, for all grants.
pub(super) struct ReadRecorder {
    ledger: Arc<dyn GrantStore>,
    clock: WallClock,
    queue: Mutex<Queue>,
    wake: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Arc<Reads>>,
    /// Whether the writing task runs.
    running: bool,
}

impl ReadRecorder {
    pub(super) fn new(ledger: Arc<dyn GrantStore>, clock: WallClock) -> Self {
        Self { ledger, clock, queue: Mutex::default(), wake: Notify::new() }
    }

    /// `len` bytes were handed over, some of them of a boot image when `boot`.
    pub(super) fn note(self: &Arc<Self>, reads: &Arc<Reads>, len: u64, boot: bool) {
        let now = Some((self.clock)());
        let delta = ReadSummary { first_read_at: now, last_read_at: now, bytes: len, boot_read: boot };
        let mut state = reads.lock();
        state.pending = state.pending.merge(delta);
        let news = !state.first_known || (boot && !state.boot_known);
        state.first_known = true;
        state.boot_known |= boot;
        state.urgent |= news;
        let queue = !std::mem::replace(&mut state.queued, true);
        drop(state);
        if queue || news {
            self.kick(queue.then(|| reads.clone()));
        }
    }

    /// Records what is pending without waiting for the ten seconds.
    pub(super) fn hurry(self: &Arc<Self>, reads: &Arc<Reads>) {
        let mut state = reads.lock();
        if state.queued {
            state.urgent = true;
            drop(state);
            self.kick(None);
        }
    }

    /// Sees to it that the writing task runs and looks at the queue.
    fn kick(self: &Arc<Self>, newcomer: Option<Arc<Reads>>) {
        let mut queue = lock(&self.queue);
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
                let mut queue = lock(&self.queue);
                settle(&mut queue);
                let next = queue.waiting.iter().map(|reads| reads.lock().due().unwrap_or(now)).min();
                queue.running = next.is_some();
                next
            };
            let Some(next) = next else { return };
            // Waking up only ever means to look again, so it does not matter which of the two it was.
            let _ = tokio::time::timeout_at(next, self.wake.notified()).await;
        }
    }

    /// Records everything pending now; for the stop of the program.
    pub(super) async fn flush(self: &Arc<Self>) {
        let log = self.clone();
        // A task of its own, because what is in flight must be settled also when the caller stops waiting.
        let flushing = tokio::spawn(async move {
            log.record(|_| true).await;
            settle(&mut lock(&log.queue));
            log.wake.notify_one();
        });
        if let Err(stopped) = flushing.await {
            tracing::warn!(error = %stopped, "media reads not recorded");
        }
    }

    /// Records what is pending for those that `chosen` picks.
    async fn record(&self, chosen: impl Fn(&ReadsState) -> bool) {
        let mut deltas = Vec::new();
        for reads in &lock(&self.queue).waiting {
            let mut state = reads.lock();
            if state.in_flight == ReadSummary::default() && !state.is_clean() && chosen(&state) {
                state.in_flight = std::mem::take(&mut state.pending);
                state.urgent = false;
                state.flushed_at = Some(Instant::now());
                deltas.push((reads.clone(), state.in_flight));
            }
        }
        futures_util::stream::iter(deltas)
            .for_each_concurrent(FLUSH_WIDTH, |(reads, delta)| async move {
                let recorded = within_timeout(self.ledger.record_read(&reads.token_hash, delta)).await;
                let mut state = reads.lock();
                state.in_flight = ReadSummary::default();
                if let Err(error) = recorded {
                    tracing::warn!(error = %error, "media reads not recorded, kept for later");
                    state.pending = delta.merge(state.pending);
                }
            })
            .await;
    }

    /// What is not recorded yet for a token.
    pub(super) fn pending(&self, token_hash: &str) -> ReadSummary {
        lock(&self.queue)
            .waiting
            .iter()
            .filter(|reads| reads.token_hash == token_hash)
            .map(|reads| {
                let state = reads.lock();
                state.in_flight.merge(state.pending)
            })
            .fold(ReadSummary::default(), ReadSummary::merge)
    }
}

/// Lets go of what has nothing pending.
fn settle(queue: &mut Queue) {
    queue.waiting.retain(|reads| {
        let mut state = reads.lock();
        state.queued = !state.is_clean();
        state.queued
    });
}

/// A ledger call that is as good as failed after a while.
pub(super) async fn within_timeout<T>(
    call: impl Future<Output = Result<T, GrantStoreUnavailable>>,
) -> Result<T, GrantStoreUnavailable> {
    match tokio::time::timeout(LEDGER_TIMEOUT, call).await {
        Ok(outcome) => outcome,
        Err(_) => Err(GrantStoreUnavailable { reason: "no answer within ten seconds".to_owned() }),
    }
}

/// Nothing that is done under these locks leaves a value half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
