//! Retry limits of the simulated machine: number of attempts, and the delays between them.
//!
//! ```text
//! attempt · first delay · attempt · twice the delay · attempt · … · at most `longest` · … · attempt number `attempts` · give up
//! ```
//!
//! The number of attempts is bounded, like the `StartLimitBurst` of a systemd unit (docs/maintenance-os.md). There is no
//! jitter: a farm is reproducible, and its machines do not start at the same instant.

use std::time::Duration;

/// Number of attempts and the delays between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Maximum number of attempts. One attempt is made even for 0.
    pub attempts: u32,
    /// The delay after the first failure. It doubles after each further failure.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
}

impl Backoff {
    /// The delay after attempt number `attempt` (from 1) failed, or `None` if it was the last attempt.
    #[must_use]
    pub fn delay_after(&self, attempt: u32) -> Option<Duration> {
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
    fn delays_double_up_to_the_longest_and_end_with_the_attempts() {
        let backoff =
            Backoff { attempts: 5, first: Duration::from_millis(100), longest: Duration::from_millis(300) };
        let delays: Vec<_> = (1..=6).map(|n| backoff.delay_after(n).map(|delay| delay.as_millis())).collect();
        assert_eq!(delays, [Some(100), Some(200), Some(300), Some(300), None, None]);
    }

    #[test]
    fn a_large_number_of_attempts_does_not_overflow() {
        let backoff =
            Backoff { attempts: u32::MAX, first: Duration::from_secs(1), longest: Duration::from_secs(9) };
        assert_eq!(backoff.delay_after(4_000_000), Some(Duration::from_secs(9)));
    }
}
