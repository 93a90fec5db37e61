//! The connections to a NATS server, one after the other: the pause before each, and one log line for a loss and for a return.
//!
//! ```text
//!   dial ──> session ──ended──> lost ──> pause ──> dial ──> session
//!                                        1 s, 2 s, … 30 s, with jitter
//! ```
//!
//! Bounds against a server that is not what it should be: the login has 5 s, addresses of other servers are not used, and texts of the
//! server are not logged. A connection that lasted longer than the longest pause is replaced at once.

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

use crate::address::ServerUrl;
use crate::credentials::Credentials;
use crate::session::{self, Driver, Session};

/// What a connection is made with.
#[derive(Clone)]
pub struct Options {
    /// The server.
    pub server: ServerUrl,
    /// The credentials, if the server needs some.
    pub credentials: Option<Credentials>,
    /// TLS with the authorities of the server.
    pub tls: rustls::ClientConfig,
    /// The name of the connection in the lists of the server.
    pub name: String,
    /// What happens while there is no connection, for the log line of a loss.
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

/// Makes one connection after the other.
pub(crate) struct Dialer {
    options: Options,
    /// What each connection subscribes to.
    subjects: Vec<String>,
    /// Attempts since the last connection that lasted.
    attempts: u32,
    since: Option<Instant>,
    /// What the last log line said: whether there is a connection.
    said: Option<bool>,
}

impl Dialer {
    pub(crate) fn new(options: Options, subjects: Vec<String>) -> Self {
        Self { options, subjects, attempts: 0, since: None, said: None }
    }

    /// Attempts to connect until it succeeds. May be dropped and called again.
    pub(crate) async fn dial(&mut self) -> (Session, Driver) {
        loop {
            if self.attempts > 0 {
                tokio::time::sleep(self.options.limits.pause(self.attempts)).await;
            }
            self.attempts = self.attempts.saturating_add(1);
            match session::open(&self.options, &self.subjects).await {
                Ok(open) => {
                    self.since = Some(Instant::now());
                    if self.said.replace(true) != Some(true) {
                        tracing::info!(server = %self.options.server, "connected to NATS");
                    }
                    return open;
                }
                Err(why) => self.lost(&why),
            }
        }
    }

    /// A connection has ended, or an attempt has failed.
    pub(crate) fn lost(&mut self, why: &impl Display) {
        if self.since.take().is_some_and(|since| since.elapsed() > self.options.limits.longest_pause) {
            self.attempts = 0;
        }
        if self.said.replace(false) != Some(false) {
            tracing::warn!(server = %self.options.server, %why, "no connection to NATS; {}", self.options.meanwhile);
        }
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
