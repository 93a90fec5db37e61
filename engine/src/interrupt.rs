//! Interrupts: which runs this engine has claimed, and how the worker of each is stopped.
//!
//! ```text
//!  program stops   token               interruptible calls are dropped, all others run to their end
//!  cancel          token, cancelled    no new effect is started; a call that may not be interrupted is dropped after the
//!                                      cancel grace and the deadline of the last request that it sent
//! ```
//! A cancel counts after a stop as well: the call that is still being finished is dropped then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use model::RunId;

/// How long a call that may not be interrupted continues after a cancel. A request it has sent may extend this.
pub(super) const CANCEL_GRACE: Duration = Duration::from_secs(30);

/// Stops the worker of one claim.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupt {
    pub(super) token: CancellationToken,
    cancelled: CancellationToken,
}

impl Interrupt {
    pub(super) fn new(token: CancellationToken) -> Self {
        Self { token, cancelled: CancellationToken::new() }
    }

    /// Whether the run was cancelled. `false` when only the program stops.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Returns when the run is cancelled, also after the program began to stop.
    pub(super) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    fn cancel(&self) {
        self.cancelled.cancel();
        self.token.cancel();
    }
}

/// The claims of this engine. The epoch tells two claims of one run apart, so that the end of the first claim does not remove
/// the entry of the second.
#[derive(Clone, Default)]
pub(super) struct Interrupts(Arc<Mutex<HashMap<RunId, (i64, Interrupt)>>>);

impl Interrupts {
    /// Interrupts the step of a cancelled run, if this engine works on the run.
    pub(super) fn interrupt(&self, run: RunId) {
        if let Some((_, interrupt)) = self.0.lock().get(&run) {
            interrupt.cancel();
        }
    }

    /// Interrupts one claim of a run, and no later one.
    pub(super) fn interrupt_claim(&self, run: RunId, epoch: i64) {
        if let Some((claimed, interrupt)) = self.0.lock().get(&run)
            && *claimed == epoch
        {
            interrupt.cancel();
        }
    }

    /// Whether the worker of a claim is interrupted.
    pub(super) fn is_interrupted(&self, run: RunId, epoch: i64) -> bool {
        let map = self.0.lock();
        map.get(&run).is_some_and(|(claimed, interrupt)| *claimed == epoch && interrupt.token.is_cancelled())
    }

    /// The claims, as runs with their epochs.
    pub(super) fn claims(&self) -> Vec<(RunId, i64)> {
        self.0.lock().iter().map(|(run, (epoch, _))| (*run, *epoch)).collect()
    }

    /// The number of runs that this engine works on.
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Lists a claim until the returned entry is dropped. An earlier claim of the run has lost its lease, so its call begins no new
    /// effect.
    pub(super) fn list(&self, id: RunId, epoch: i64, interrupt: &Interrupt) -> ClaimEntry {
        if let Some((earlier, replaced)) = self.0.lock().insert(id, (epoch, interrupt.clone()))
            && earlier < epoch
        {
            replaced.cancel();
        }
        ClaimEntry { all: self.clone(), id, epoch }
    }
}

/// A listed claim. Dropping it removes it from the list, also when the worker panics.
pub(super) struct ClaimEntry {
    all: Interrupts,
    id: RunId,
    epoch: i64,
}

impl Drop for ClaimEntry {
    fn drop(&mut self) {
        let mut map = self.all.0.lock();
        if map.get(&self.id).is_some_and(|(epoch, _)| *epoch == self.epoch) {
            map.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_claim_of_a_run_interrupts_the_earlier_one() {
        let (all, run) = (Interrupts::default(), RunId(uuid::Uuid::nil()));
        let [first, second] = [(); 2].map(|()| Interrupt::new(CancellationToken::new()));
        let earlier = all.list(run, 1, &first);
        let later = all.list(run, 2, &second);
        assert!(first.is_cancelled() && !second.is_cancelled());
        drop(earlier);
        assert_eq!(all.claims(), [(run, 2)], "the end of the first claim does not remove the second");
        drop(later);
        assert_eq!(all.len(), 0);
    }
}
