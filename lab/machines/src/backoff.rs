//! How often the simulated machine tries again, and how long it pauses in between.
//!
//! ```text
//! try · first pause · try · twice that · try · … · at most `longest` · … · try number `attempts` · give up
//! ```
//!
//! Bounded on purpose, like the `StartLimitBurst` of the units it stands for (notes/contracts.md 032). There is no
//! jitter: a farm is reproducible, and its machines do not start at the same instant.

use std::time::Duration;

/// Attempts and pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Attempts in all, at least one is made.
    pub attempts: u32,
    /// The pause after the first failure; doubled each time.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Backoff {
    /// The pause after attempt number `attempt` (from 1) failed, or none when it was the last.
    #[must_use]
    pub fn pause_after(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let factor = 1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        Some(self.first.saturating_mul(factor).min(self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_end_with_the_attempts() {
        let backoff =
            Backoff { attempts: 5, first: Duration::from_millis(100), longest: Duration::from_millis(300) };
        let pauses: Vec<_> = (1..=6).map(|n| backoff.pause_after(n).map(|pause| pause.as_millis())).collect();
        assert_eq!(pauses, [Some(100), Some(200), Some(300), Some(300), None, None]);
    }

    #[test]
    fn a_great_number_of_attempts_does_not_overflow() {
        let backoff =
            Backoff { attempts: u32::MAX, first: Duration::from_secs(1), longest: Duration::from_secs(9) };
        assert_eq!(backoff.pause_after(4_000_000), Some(Duration::from_secs(9)));
    }
}
