//! Wake-ups of a worker elsewhere over NATS.
//!
//! | wake-ups | an order of calls |
//! |---|---|
//! | arrive | ends at once; the next one follows a wake-up, or the interval |
//! | do not arrive: NATS is away, or the worker was started without it | waits at the controller |
//!
//! Invariant: a lost wake-up costs the interval at most.

use std::collections::BTreeSet;
use std::time::Duration;

use nats_carrier::{Limits, NatsCredentials, Options, ServerUrl, Wakes};

/// The shortest pause between two orders, also when there are many wake-ups: other clients of the NATS server can send some.
const SHORTEST: Duration = Duration::from_millis(250);

/// How a worker receives wake-ups.
#[derive(Clone)]
pub struct WakeOptions {
    /// The NATS server.
    pub server: ServerUrl,
    /// The credentials, if the server needs some.
    pub credentials: Option<NatsCredentials>,
    /// TLS with the authorities of the server.
    pub tls: rustls::ClientConfig,
    /// The name of the worker.
    pub name: String,
    /// The longest pause between two orders while wake-ups arrive.
    pub interval: Duration,
}

/// The wake-ups of a worker, if it receives some.
pub(super) struct Waking {
    wakes: Option<Wakes>,
    interval: Duration,
}

impl Waking {
    /// Subscribes to the wake-ups of the queues; with none, to those of all.
    pub(super) fn subscribe(options: Option<WakeOptions>, queues: &BTreeSet<String>) -> Self {
        let Some(WakeOptions { server, credentials, tls, name, interval }) = options else {
            return Self { wakes: None, interval: Duration::MAX };
        };
        let options = Options {
            server,
            credentials,
            tls,
            name: format!("{name}, a worker of shoal"),
            meanwhile: "orders of calls wait at the controller",
            limits: Limits::default(),
        };
        Self { wakes: Some(Wakes::subscribe(options, queues)), interval }
    }

    /// Begins an order. Returns whether it ends at once, because wake-ups arrive.
    pub(super) fn begin(&mut self) -> bool {
        self.wakes.as_mut().is_some_and(Wakes::arrive)
    }

    /// Waits for a wake-up, or for the loss of the connection.
    pub(super) async fn woken(&mut self) {
        match &mut self.wakes {
            Some(wakes) => wakes.next().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the next order is worth its request.
    pub(super) async fn next(&mut self) {
        tokio::time::sleep(SHORTEST).await;
        let interval = self.interval;
        // Without a wake-up the interval has passed.
        drop(tokio::time::timeout(interval, self.woken()).await);
    }
}
