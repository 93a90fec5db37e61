//! The options of a connection: the server, the credentials, TLS, and times.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::address::ServerUrl;
use crate::credentials::NatsCredentials;

/// The options of a connection.
#[derive(Clone)]
pub struct Options {
    /// The server.
    pub server: ServerUrl,
    /// The credentials, if the server needs some.
    pub credentials: Option<NatsCredentials>,
    /// TLS with the authorities of the server.
    pub tls: rustls::ClientConfig,
    /// The name of the connection in the lists of the server.
    pub name: String,
    /// The behaviour of the program while there is no connection, for the log line of a loss.
    pub meanwhile: &'static str,
    /// Times.
    pub limits: Limits,
}

/// The times of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long connecting, TLS and login may take together.
    pub handshake: Duration,
    /// How long the response to a request may take, and a write.
    pub request: Duration,
    /// The interval of pings.
    pub pings: Duration,
    /// The first pause between two attempts.
    pub first_pause: Duration,
    /// The longest pause between two attempts.
    pub longest_pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            request: Duration::from_secs(10),
            pings: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// The pause before an attempt, the first of which is 1: it doubles, with jitter.
    pub(crate) fn pause(&self, attempt: u32) -> Duration {
        let doubled = self.first_pause.saturating_mul(1 << attempt.saturating_sub(1).min(16));
        let jitter = RandomState::new().hash_one(attempt) % 1000;
        doubled.min(self.longest_pause).mul_f64(0.5 + jitter as f64 / 2000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let limits = Limits::default();
        for (attempt, longest) in [(0, 1), (1, 1), (2, 2), (5, 16), (6, 30), (1_000_000, 30)] {
            let pause = limits.pause(attempt).as_secs_f64();
            assert!(pause >= f64::from(longest) / 2.0 && pause <= f64::from(longest), "{attempt}: {pause}");
        }
    }
}
