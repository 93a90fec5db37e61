//! Metrics of the carrier of events and wake-ups.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics, registered once.
#[derive(Default)]
pub(super) struct NatsMetrics {
    connected: Gauge,
    published: Counter,
    waiting: Gauge,
}

impl NatsMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let connected = "Whether there is a connection to the NATS server of EVENTS, 0 without EVENTS";
        registry.register("nats_connected", connected, self.connected.clone());
        let published = "Events that the NATS server has stored";
        registry.register("nats_events_published", published, self.published.clone());
        let waiting = "Numbers of the event log that the NATS server has not stored yet";
        registry.register("nats_events_waiting", waiting, self.waiting.clone());
    }

    pub(super) fn connected(&self, connected: bool) {
        self.connected.set(i64::from(connected));
    }

    pub(super) fn published(&self, events: u64) {
        self.published.inc_by(events);
    }

    pub(super) fn waiting(&self, events: u64) {
        self.waiting.set(i64::try_from(events).unwrap_or(i64::MAX));
    }
}
