//! When a failed delivery is retried and when it is given up. Pure functions.

use std::time::Duration;

use sha2::{Digest, Sha256};

use model::Time;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// How long an event is retried.
pub(super) const RETRY_FOR: Duration = Duration::from_secs(24 * 3600);

/// The pause after the given number of failures: doubled each time, bounded, with a jitter of up to a quarter in both
/// directions, so that deliveries that failed together are not retried together. The jitter depends on delivery and count
/// only.
pub(super) fn pause(delivery: &str, failures: u32) -> Duration {
    let doubled = FIRST.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    let digest = Sha256::digest(format!("{delivery}/{failures}").as_bytes());
    doubled.min(LONGEST) * (192 + u32::from(digest[0]) / 2) / 256
}

/// Whether a retry planned for `at` is due. A time further away than any pause was planned before the clock was set back, so
/// the retry is due at once.
pub(super) fn due(at: Time, now: Time) -> bool {
    at <= now || at.since(now) > LONGEST * 5 / 4
}

/// Whether the retry time of a delivery that fails since `since` has ended.
pub(super) fn is_expired(since: Time, now: Time) -> bool {
    now.since(since) >= RETRY_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_stay_bounded_and_are_spread() {
        for failures in 1..200 {
            let plain = FIRST * 2_u32.saturating_pow(failures.min(20) - 1);
            let plain = plain.min(LONGEST);
            let pauses: Vec<Duration> = (0..50).map(|n| pause(&format!("d-{n}"), failures)).collect();
            assert!(pauses.iter().all(|pause| *pause >= plain * 3 / 4 && *pause <= plain * 5 / 4));
            assert!(pauses.iter().max() > pauses.iter().min(), "no jitter after {failures}");
        }
        assert_eq!(pause("d", 3), pause("d", 3));
    }

    #[test]
    fn a_clock_set_back_delays_no_retry_beyond_the_longest_pause() {
        let now: Time = "2026-11-20T08:00:00Z".parse().unwrap();
        assert!(due(now, now) && due(now.minus(RETRY_FOR), now));
        let longest = (1..200).map(|failures| pause("d", failures)).max().unwrap();
        assert!(!due(now.plus(Duration::from_millis(1)), now) && !due(now.plus(longest), now));
        assert!(due(now.plus(Duration::from_secs(3600)), now));
    }

    #[test]
    fn a_delivery_expires_after_a_day_of_failures() {
        let since: Time = "2026-11-20T08:00:00Z".parse().unwrap();
        assert!(!is_expired(since, since.plus(RETRY_FOR - Duration::from_secs(1))));
        assert!(is_expired(since, since.plus(RETRY_FOR)));
        assert!(!is_expired(since, since.minus(RETRY_FOR)), "a clock set back expires no delivery");
    }
}
