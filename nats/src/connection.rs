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

use tokio::time::Instant;

use crate::options::Options;
use crate::session::{self, Driver, Session};

/// Makes one connection after the other.
pub(crate) struct Dialer {
    options: Options,
    /// The subjects that each connection subscribes to.
    subjects: Vec<String>,
    /// Attempts since the last connection that lasted.
    attempts: u32,
    since: Option<Instant>,
    /// What the last log line said: that there is a connection, or why there is none. `None` before the first one.
    said: Option<Said>,
}

#[derive(PartialEq)]
enum Said {
    Connected,
    Lost(String),
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
                    if self.said.replace(Said::Connected) != Some(Said::Connected) {
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
        // Another reason is a line too: the first one, such as a server that has not started yet, may be over.
        let said = Said::Lost(why.to_string());
        if self.said.as_ref() != Some(&said) {
            self.said = Some(said);
            tracing::warn!(server = %self.options.server, %why, "no connection to NATS; {}", self.options.meanwhile);
        }
    }
}
