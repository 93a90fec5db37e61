//! Delays between retries of a read: exponential backoff with full jitter, and `Retry-After`. The jitter comes from a
//! seed, so that a run can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;

/// Maximum of a `Retry-After`; a longer one is clamped.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// Source of jitter (splitmix64); spreading retries needs no better generator.
#[derive(Debug)]
pub(crate) struct Jitter(AtomicU64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Jitter(AtomicU64::new(seed))
    }

    fn next(&self) -> u64 {
        let mut z =
            self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A delay between zero and `base * 2^attempt`, at most `cap`; `attempt` counts from 0.
    pub(crate) fn delay(&self, base: Duration, cap: Duration, attempt: u32) -> Duration {
        let ceiling = base.saturating_mul(1 << attempt.min(16)).min(cap);
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        ceiling.mul_f64(share)
    }
}

/// Parses `Retry-After` in seconds, or as an HTTP date relative to the `Date` of the response (the clock of a BMC is
/// often wrong). Invalid values are ignored, long waits are clamped.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let then = http_date(value)?;
            let now = headers.get(http::header::DATE).and_then(|date| http_date(date.to_str().ok()?));
            let wait = then.duration_since(now.unwrap_or_else(Timestamp::now));
            Duration::from_secs(u64::try_from(wait.as_secs()).unwrap_or(0))
        }
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn delays_grow_stay_under_their_cap_and_repeat_with_the_seed() {
        let (base, cap) = (Duration::from_secs(1), Duration::from_secs(30));
        let delays = |seed| {
            let jitter = Jitter::new(seed);
            (0..40).map(|attempt| jitter.delay(base, cap, attempt)).collect::<Vec<_>>()
        };
        assert_eq!(delays(7), delays(7));
        assert_ne!(delays(7), delays(8));
        for (attempt, delay) in delays(7).into_iter().enumerate() {
            assert!(delay <= cap && delay <= base * 2_u32.pow(attempt.min(5) as u32));
        }
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_date_and_clamped() {
        let date = "Wed, 21 Oct 2015 07:28:00 GMT";
        let later = "Wed, 21 Oct 2015 07:28:09 GMT";
        for (pairs, expected) in [
            (vec![("retry-after", "7")], Some(7)),
            (vec![("retry-after", "99999999")], Some(120)),
            (vec![("retry-after", later), ("date", date)], Some(9)),
            (vec![("retry-after", date), ("date", later)], Some(0)),
            (vec![("retry-after", "soon")], None),
            (vec![], None),
        ] {
            assert_eq!(retry_after(&headers(&pairs)), expected.map(Duration::from_secs), "{pairs:?}");
        }
    }
}
