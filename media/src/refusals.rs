//! Media that were refused because their images cannot be made: a BMC asks again for hours, and each attempt reads a whole file.
//!
//! ```text
//!   first attempt ──fails──> refused, with its reason: an event of the job
//!   within a minute ───────> refused; nothing is read
//!   later ─────────────────> attempt: served, or refused without another event
//! ```
//!
//! Invariant: at most [`MAX`] grants are remembered; the oldest one goes first, and is then refused as for the first time.

use std::collections::HashMap;
use std::time::Duration;

use model::RunId;
use tokio::time::Instant;

/// The time without another attempt after a failed one. What was damaged may be pushed again meanwhile.
pub(super) const PAUSE: Duration = Duration::from_secs(60);
/// The maximum of remembered grants.
const MAX: usize = 4096;

/// The grants whose images could not be made.
#[derive(Default)]
pub(super) struct Refusals(HashMap<String, Refusal>);

struct Refusal {
    run: RunId,
    at: Instant,
}

impl Refusals {
    /// Whether the image of a grant could not be made a moment ago.
    pub(super) fn is_recent(&self, token_hash: &str) -> bool {
        self.0.get(token_hash).is_some_and(|refusal| refusal.at.elapsed() < PAUSE)
    }

    /// Remembers that the image of a grant could not be made. Returns whether this is its first failure.
    pub(super) fn is_first(&mut self, token_hash: &str, run: RunId) -> bool {
        if self.0.len() >= MAX && !self.0.contains_key(token_hash) {
            let oldest = self.0.iter().min_by_key(|(_, refusal)| refusal.at).map(|(hash, _)| hash.clone());
            oldest.and_then(|hash| self.0.remove(&hash));
        }
        self.0.insert(token_hash.to_owned(), Refusal { run, at: Instant::now() }).is_none()
    }

    /// Forgets the grants of a job.
    pub(super) fn end(&mut self, run: RunId) {
        self.0.retain(|_, refusal| refusal.run != run);
    }

    /// Forgets one grant.
    pub(super) fn forget(&mut self, token_hash: &str) {
        self.0.remove(token_hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_grant_is_refused_for_the_first_time_once_and_its_image_is_tried_once_a_minute() {
        let (mut refusals, run) = (Refusals::default(), RunId::new());
        assert!(!refusals.is_recent("a"));
        assert!(refusals.is_first("a", run));
        assert!(refusals.is_recent("a") && !refusals.is_recent("b"));
        tokio::time::advance(PAUSE).await;
        assert!(!refusals.is_recent("a"));
        assert!(!refusals.is_first("a", run));
        assert!(refusals.is_recent("a"));
        refusals.end(run);
        assert!(refusals.is_first("a", run));
        refusals.forget("a");
        assert!(!refusals.is_recent("a"));
        for number in 0..2 * MAX {
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(refusals.is_first(&number.to_string(), run));
        }
        assert!(refusals.0.len() == MAX && !refusals.0.contains_key("0"));
    }
}
