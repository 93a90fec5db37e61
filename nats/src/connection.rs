//! One connection to a NATS server: its loss and its return.
//!
//! ```text
//!   connect ──> connected ──lost──> pause, again ──> connected      one log line for the loss, one for the return
//!                                   1 s, 2 s, … 30 s, with jitter
//! ```
//!
//! Bounds against a server that is not what it should be: a handshake has 5 s, a connection without a response to two pings ends
//! after some 30 s, addresses of other servers are not accepted, and texts of the server are not logged.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, ServerError};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::address::ServerUrl;
use crate::credentials::Credentials;

/// The most commands that wait for the connection.
const COMMANDS: usize = 256;
/// The most messages of a subscription that wait to be read.
const MESSAGES: usize = 64;

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
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long the response to a request may take.
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

/// The state of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether there is a connection.
    pub connected: bool,
    /// How often there was one.
    pub connects: u64,
}

/// A connection that is made again for as long as the value lives.
pub(crate) struct Connection {
    pub(crate) client: Client,
    link: watch::Receiver<Link>,
    watching: Arc<Watching>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The end of this connection is no loss.
        self.watching.ended.store(true, Ordering::Relaxed);
    }
}

impl Connection {
    /// Begins to connect and returns at once. `known` holds what was logged about the connections before this one.
    pub(crate) async fn open(options: &Options, known: &Known) -> Result<Self, String> {
        let Options { server, credentials, tls, name, meanwhile, limits } = options.clone();
        let (state, link) = watch::channel(Link::default());
        let watching = Arc::new(Watching {
            state,
            server: server.clone(),
            meanwhile,
            known: known.clone(),
            ended: AtomicBool::new(false),
        });
        let events = Arc::clone(&watching);
        let mut connect = ConnectOptions::new()
            .name(name)
            .tls_client_config(tls)
            .require_tls(server.is_tls())
            .ignore_discovered_servers()
            .retry_on_initial_connect()
            .connection_timeout(limits.handshake)
            .request_timeout(Some(limits.request))
            .ping_interval(limits.pings)
            .client_capacity(COMMANDS)
            .subscription_capacity(MESSAGES)
            .reconnect_delay_callback({
                let first = Mutex::new(true);
                move |attempt| match std::mem::take(&mut *first.lock()) {
                    true => Duration::ZERO,
                    false => limits.pause(u32::try_from(attempt).unwrap_or(u32::MAX)),
                }
            })
            .event_callback(move |event| {
                events.seen(&event);
                std::future::ready(())
            });
        if let Some(credentials) = credentials {
            connect = credentials.apply(connect).map_err(|why| why.to_string())?;
        }
        // With `retry_on_initial_connect` an error is one of the options, and of no attempt.
        let client = connect.connect(server.as_str()).await.map_err(|why| why.kind().to_string())?;
        Ok(Self { client, link, watching })
    }

    /// The state of the connection, and its changes.
    pub(crate) fn link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }

    /// The state of the connection now.
    pub(crate) fn now(&self) -> Link {
        *self.link.borrow()
    }
}

/// Whether a loss was logged: of all connections that follow each other.
pub(crate) type Known = Arc<Mutex<Option<bool>>>;

/// What follows the events of a connection.
struct Watching {
    state: watch::Sender<Link>,
    server: ServerUrl,
    meanwhile: &'static str,
    known: Known,
    /// The connection is no more used.
    ended: AtomicBool,
}

impl Watching {
    fn seen(&self, event: &Event) {
        match event {
            Event::Connected => {
                self.state.send_modify(|link| *link = Link { connected: true, connects: link.connects + 1 });
                if self.known.lock().replace(true) != Some(true) {
                    tracing::info!(server = %self.server, "connected to NATS");
                }
            }
            Event::Disconnected | Event::Closed => self.lost("the connection ended"),
            Event::ServerError(why) => match why {
                ServerError::AuthorizationViolation => self.failed("the server refuses the credentials"),
                // The text is of the server.
                ServerError::SlowConsumer(_) | ServerError::Other(_) => {
                    self.failed("the server reports an error")
                }
            },
            Event::ClientError(why) => self.failed(&why.to_string()),
            Event::LameDuckMode | Event::Draining | Event::SlowConsumer(_) => {}
        }
    }

    /// An attempt failed. An error during a connection does not end it.
    fn failed(&self, why: &str) {
        if !self.state.borrow().connected {
            self.lost(why);
        }
    }

    fn lost(&self, why: &str) {
        self.state.send_modify(|link| link.connected = false);
        if self.ended.load(Ordering::Relaxed) {
            return;
        }
        if self.known.lock().replace(false) != Some(false) {
            tracing::warn!(server = %self.server, why, "no connection to NATS; {}", self.meanwhile);
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
