//! When what failed is tried again, and when it is given up. Pure.

use std::time::Duration;

use sha2::{Digest, Sha256};

use engine::model::Time;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// For so long an event is tried.
pub(super) const GIVE_UP: Duration = Duration::from_secs(24 * 3600);

/// The pause after the given number of failures: doubled each time, bounded, and moved by up to a quarter either way, so
/// that what failed together is not tried together. The same delivery always gets the same pauses.
pub(super) fn pause(delivery: &str, failures: u32) -> Duration {
    let doubled = FIRST.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    let digest = Sha256::digest(format!("{delivery}/{failures}").as_bytes());
    doubled.min(LONGEST) * (192 + u32::from(digest[0]) / 2) / 256
}

/// Whether what was to be tried again at that time is tried now. A time further away than any pause was set by a clock that
/// has been set back since: nobody waits for it.
pub(super) fn due(at: Time, now: Time) -> bool {
    at <= now || at.since(now) > LONGEST * 5 / 4
}

/// Whether what has failed since then has had its time.
pub(super) fn over(since: Time, now: Time) -> bool {
    now.since(since) >= GIVE_UP
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
            assert!(pauses.iter().max() > pauses.iter().min(), "all the same after {failures}");
        }
        assert_eq!(pause("d", 3), pause("d", 3));
    }

    #[test]
    fn a_clock_set_back_makes_nobody_wait_longer_than_the_longest_pause() {
        let now: Time = "2026-11-20T08:00:00Z".parse().unwrap();
        assert!(due(now, now) && due(now.minus(GIVE_UP), now));
        let longest = (1..200).map(|failures| pause("d", failures)).max().unwrap();
        assert!(!due(now.plus(Duration::from_millis(1)), now) && !due(now.plus(longest), now));
        assert!(due(now.plus(Duration::from_secs(3600)), now));
    }

    #[test]
    fn a_day_of_failures_is_the_end() {
        let since: Time = "2026-11-20T08:00:00Z".parse().unwrap();
        assert!(!over(since, since.plus(GIVE_UP - Duration::from_secs(1))));
        assert!(over(since, since.plus(GIVE_UP)));
        assert!(!over(since, since.minus(GIVE_UP)), "a clock set back gives up nothing");
    }
}
