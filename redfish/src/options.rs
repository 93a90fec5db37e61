//! Options of the client that do not depend on the BMC.

use std::time::Duration;

/// Deadlines and retries of reads. The deadlines of mutations are in the [`Profile`](crate::Profile).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClientOptions {
    /// Deadline of one read.
    pub read_timeout: Duration,
    /// Maximum number of times a read is sent; at least 1.
    pub read_attempts: u32,
    /// Maximum duration of a read with all its retries.
    pub read_budget: Duration,
    /// First backoff between two retries; doubles each time, with full jitter.
    pub backoff_base: Duration,
    /// Longest backoff.
    pub backoff_cap: Duration,
    /// Seed of the jitter; `None` takes a random seed.
    pub jitter_seed: Option<u64>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            read_timeout: Duration::from_secs(30),
            read_attempts: 5,
            read_budget: Duration::from_secs(180),
            backoff_base: Duration::from_secs(2),
            backoff_cap: Duration::from_secs(30),
            jitter_seed: None,
        }
    }
}
