//! The lease of a run: its length, and the guard that allows outside effects while it lasts (decision D7).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::interrupt::Interrupt;
use model::{Clock, Lease, Run};

/// How long the leases of an engine last.
#[derive(Clone)]
pub(super) struct LeaseTerms {
    pub(super) clock: Arc<dyn Clock>,
    /// How long a lease lasts without progress.
    pub(super) ttl: Duration,
    /// How long another worker waits after the expiry of a lease.
    pub(super) grace: Duration,
}

impl LeaseTerms {
    /// The run with its lease extended from the current time.
    pub(super) fn renew(&self, run: &Run) -> Run {
        let expires_at = self.clock.now().plus(self.ttl);
        let lease = run.lease.clone().map(|lease| Lease { expires_at, ..lease });
        Run { lease, next_run_at: Some(expires_at.plus(self.grace)), ..run.clone() }
    }
}

/// The step must send nothing more and stop: the lease is lost or ends too soon, or the run was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease of this run is lost or ends too soon, or the run was cancelled; another worker continues the run"
)]
pub struct LeaseLost;

/// Decides whether the worker may still cause outside effects. It measures with a clock that counts while the machine is
/// suspended.
#[derive(Clone)]
pub struct LeaseGuard {
    clock: Arc<dyn Clock>,
    /// When the lease ends, in the clock's elapsed time.
    ends: Arc<Mutex<Duration>>,
    /// When the last allowed effect has ended, in the clock's elapsed time.
    effect: Arc<Mutex<Duration>>,
    interrupt: Interrupt,
}

impl LeaseGuard {
    /// A lease that was taken at `since` (elapsed time, read before the claim was sent) and lasts `ttl`.
    pub(super) fn new(clock: Arc<dyn Clock>, since: Duration, ttl: Duration, interrupt: Interrupt) -> Self {
        Self { clock, ends: Arc::new(Mutex::new(since + ttl)), effect: Arc::default(), interrupt }
    }

    /// How long the last allowed effect may still take.
    pub(super) fn effect_left(&self) -> Duration {
        let over = *self.effect.lock();
        over.saturating_sub(self.clock.elapsed())
    }

    /// Records that a write which began at `since` renewed the lease.
    pub(super) fn renewed(&self, since: Duration, ttl: Duration) {
        *self.ends.lock() = since + ttl;
    }

    /// How long the lease still lasts.
    pub fn remaining(&self) -> Duration {
        let ends = *self.ends.lock();
        ends.saturating_sub(self.clock.elapsed())
    }

    /// Allows an outside effect that ends within `deadline`.
    ///
    /// # Errors
    /// When the run was cancelled, or the lease ends before the effect does.
    pub fn allows_until(&self, deadline: Duration) -> Result<(), LeaseLost> {
        if self.interrupt.is_cancelled() || self.remaining() <= deadline {
            return Err(LeaseLost);
        }
        let mut effect = self.effect.lock();
        *effect = (*effect).max(self.clock.elapsed() + deadline);
        Ok(())
    }
}

impl std::fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseGuard").field("remaining", &self.remaining()).finish()
    }
}
