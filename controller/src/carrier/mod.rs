//! The carrier: events and wake-ups of this controller over NATS (setting `EVENTS`, decision D37).
//!
//! ```text
//!   events (the log) ──> StoreLog ──┐
//!                                   ├──> nats-carrier ──> stream SHOAL_EVENTS, subjects shoal.wake.<queue>
//!   due runs of queues ──> wakes ───┘
//! ```
//!
//! Nothing waits for the carrier: jobs, readiness and webhooks are those of a controller without it.
//!
//! See docs/operating.md.

mod log;
mod wakes;

use std::sync::Arc;

use nats_carrier::{Limits, NatsCredentials, Options, Parts, ServerUrl, StreamObserver};
use tokio_util::sync::CancellationToken;

use engine::Engine;
use telemetry::Metrics;

/// The events and wake-ups of a controller, ready to be published.
pub struct Carrier {
    options: Options,
    engine: Engine,
    metrics: Arc<Metrics>,
}

impl Carrier {
    /// A carrier to a server.
    pub fn new(
        server: ServerUrl,
        credentials: Option<NatsCredentials>,
        tls: rustls::ClientConfig,
        engine: Engine,
        metrics: Arc<Metrics>,
    ) -> Self {
        let options = Options {
            server,
            credentials,
            tls,
            name: "shoal controller".to_owned(),
            meanwhile: "events wait in the log of the controller, and workers elsewhere order calls at their interval",
            limits: Limits::default(),
        };
        Self { options, engine, metrics }
    }

    /// Publishes until `stop`. What is not published then is published after the next start.
    pub async fn run(self, stop: CancellationToken) {
        let (wake, wakes) = nats_carrier::wake_channel();
        let log = log::StoreLog::new(self.engine.store().clone(), Arc::clone(self.engine.clock()));
        let parts = Parts { log: Arc::new(log), observer: Arc::new(CarrierMetrics(self.metrics)), wakes };
        let publish = nats_carrier::run(self.options, parts, stop.clone());
        let look = stop.run_until_cancelled(wakes::run(self.engine, wake));
        tokio::join!(publish, look);
    }
}

/// The metrics as the carrier knows them.
struct CarrierMetrics(Arc<Metrics>);

impl StreamObserver for CarrierMetrics {
    fn connected(&self, connected: bool) {
        self.0.set_nats_connected(connected);
    }

    fn published(&self, events: u64) {
        self.0.nats_published(events);
    }

    fn waiting(&self, events: u64) {
        self.0.set_nats_waiting(events);
    }
}
