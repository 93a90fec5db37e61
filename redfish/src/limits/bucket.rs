//! A token bucket: a burst of requests after a pause, and a rate per second in the long run.
//!
//! The state is one instant: when the bucket will be full again. Each request moves it one interval later. A request that
//! would move it further away than a full bucket waits for the difference. Waiting requests are served in order of arrival.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub(super) struct Bucket {
    /// Time between two tokens; `None` for no limit.
    interval: Option<Duration>,
    /// Time in which an empty bucket fills.
    depth: Duration,
    full_at: Mutex<Option<Instant>>,
}

impl Bucket {
    pub(super) fn new(rate: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1).checked_div(rate);
        let depth = interval.unwrap_or_default().saturating_mul(burst.max(1));
        Bucket { interval, depth, full_at: Mutex::new(None) }
    }

    /// Takes a token, waiting for it if there is none.
    pub(super) async fn take(&self) {
        let Some(interval) = self.interval else { return };
        let ready = {
            let mut full_at = self.full_at.lock();
            let now = Instant::now();
            let next = full_at.map_or(now, |at| at.max(now)) + interval;
            *full_at = Some(next);
            next.checked_sub(self.depth).filter(|ready| *ready > now)
        };
        if let Some(ready) = ready {
            sleep_until(ready).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let bucket = Bucket::new(10, 4);
        let start = Instant::now();
        let mut times = Vec::new();
        for _ in 0..8 {
            bucket.take().await;
            times.push(start.elapsed().as_millis());
        }
        assert_eq!(times, [0, 0, 0, 0, 100, 200, 300, 400]);
        tokio::time::advance(Duration::from_secs(60)).await;
        let start = Instant::now();
        for _ in 0..4 {
            bucket.take().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "the bucket is full, with no tokens above its size");
        bucket.take().await;
        assert_eq!(start.elapsed(), Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_is_no_limit() {
        let bucket = Bucket::new(0, 0);
        let start = Instant::now();
        for _ in 0..1000 {
            bucket.take().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
