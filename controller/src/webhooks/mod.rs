//! Outgoing webhooks: events are posted as signed JSON, at least once, in order for each job, until the receiver accepts
//! them or the retry time ends.
//!
//! ```text
//!  events (the log) ──cursor──> dispatcher of webhook A ──POST──> receiver
//!                  └──cursor──> dispatcher of webhook B           (a slow A does not delay B)
//!
//!  2xx              the cursor advances
//!  other, silent    the job gets a retry stream: next attempt after 1 s, 2 s, … 15 min; other jobs continue
//!  for 24 hours     the event becomes a dead letter: stored with its body, reported by an event, until an operator requests
//!                   redelivery; without any response in 24 hours the webhook is disabled instead and no event is given up
//! ```
//!
//! Invariants: every webhook has its own dispatcher; deliveries in flight, page, retry streams and dead letters are bounded
//! for each; an event about a webhook is not delivered to any webhook. No secret and no URL beyond its origin is in a log, an
//! event or a response.
//!
//! See docs/operating.md.

mod backoff;
mod batch;
#[cfg(test)]
mod batch_tests;
mod delivery;
mod dispatcher;
mod tester;

pub(crate) use delivery::bounded_event;
pub use delivery::{WebhookDelivery, WebhookTransport};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use media::AddressPolicy;
use model::{Clock, IdSource, WebhookId, error_chain};
use secrets::Resolver;
use store::Store;
use telemetry::Metrics;

/// The interval of checks for created, enabled or deleted webhooks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs one dispatcher per enabled webhook.
pub struct WebhookDispatcher {
    context: dispatcher::DispatcherContext,
}

impl WebhookDispatcher {
    /// Creates a dispatcher that sends over HTTP. `tls` defines the accepted certificates, `addresses` the accepted addresses.
    ///
    /// # Errors
    /// When `tls` cannot be used by the HTTP client.
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        resolver: Arc<Resolver>,
        metrics: Arc<Metrics>,
        tls: rustls::ClientConfig,
        addresses: AddressPolicy,
    ) -> reqwest::Result<Self> {
        let transport = Arc::new(delivery::HttpWebhookTransport::new(tls, addresses)?);
        Ok(Self::with_transport(store, clock, resolver, metrics, transport))
    }

    /// Creates a dispatcher with another transport than HTTP, for the simulation.
    pub fn with_transport(
        store: Store,
        clock: Arc<dyn Clock>,
        resolver: Arc<Resolver>,
        metrics: Arc<Metrics>,
        transport: Arc<dyn WebhookTransport>,
    ) -> Self {
        Self { context: dispatcher::DispatcherContext { store, clock, resolver, metrics, transport } }
    }

    /// Creates the sender of test deliveries over the transport of this dispatcher. `ids` makes the ids of its deliveries.
    pub fn tester(&self, ids: Arc<dyn IdSource>) -> Arc<dyn api::WebhookTester> {
        Arc::new(tester::Tester::new(self.context.clone(), ids))
    }

    /// Runs a dispatcher for every enabled webhook until `stop`. A delivery in flight at `stop` is sent again after the next
    /// start.
    pub async fn run(self, stop: CancellationToken) {
        let mut dispatchers: BTreeMap<WebhookId, JoinHandle<()>> = BTreeMap::new();
        loop {
            dispatchers.retain(|_, dispatcher| !dispatcher.is_finished());
            match self.context.store.webhooks().await {
                Ok(webhooks) => {
                    for webhook in webhooks.into_iter().filter(|webhook| webhook.disabled.is_none()) {
                        dispatchers.entry(webhook.id).or_insert_with(|| {
                            tokio::spawn(dispatcher::run(self.context.clone(), webhook.id, stop.clone()))
                        });
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %error_chain(&error), "the webhooks cannot be read; trying again")
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
        }
        for dispatcher in dispatchers.into_values() {
            // It ends by `stop`; a panic is already in the log.
            let _ended = dispatcher.await;
        }
    }
}
