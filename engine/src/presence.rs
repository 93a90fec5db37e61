//! Which queues have a worker elsewhere. The engine asks, so that an explanation can say that a run waits for a worker that is
//! not there (decision D33).

use model::Time;

/// Knows the workers elsewhere.
pub trait QueueWorkers: Send + Sync {
    /// Whether a worker serves a queue now.
    ///
    /// # Errors
    /// Since when none does: the last sign of one, or the start of the controller.
    fn served(&self, queue: &str) -> Result<(), Time>;
}
