//! Outgoing webhooks: events posted to others as JSON, signed, at least once, in order for each job, again until they are
//! taken or given up.
//!
//! ```text
//!  events (the log) ──cursor──> courier of webhook A ──POST──> somebody's receiver
//!                  └──cursor──> courier of webhook B           (a slow A costs B nothing)
//!
//!  taken            the cursor goes on
//!  refused, silent  the job is late: tried again after 1 s, 2 s, … 15 min; other jobs go on
//!  for 24 hours     the event is dead: kept with its body, told by an event, until an operator raises it;
//!                   when nobody has answered all the while the webhook is disabled instead and nothing is given up
//! ```
//!
//! Invariants: every webhook has a courier of its own; what is under way, read, late and kept is bounded for each; an event
//! that tells of a webhook is sent to nobody. No secret and no URL beyond its origin is in a log, an event or an answer.
//!
//! DESIGN sections 4 and 9.

mod backoff;
mod batch;
mod delivery;
mod dispatcher;

pub use delivery::{Carrier, Delivery};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Metrics;
use engine::model::{Clock, WebhookId, error_chain};
use engine::store::Store;
use secrets::Resolver;

/// How often is looked for webhooks that were made, enabled or removed.
const LOOK: Duration = Duration::from_secs(1);

/// The couriers of all webhooks.
pub struct WebhookDispatcher {
    tools: dispatcher::Tools,
}

impl WebhookDispatcher {
    /// Couriers over a store. `tls` says whom they believe.
    ///
    /// # Errors
    /// When no HTTP client can be made of `tls`.
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        resolver: Arc<Resolver>,
        metrics: Arc<Metrics>,
        tls: rustls::ClientConfig,
    ) -> reqwest::Result<Self> {
        let carrier = Arc::new(delivery::HttpWebhookTransport::new(tls)?);
        Ok(Self::over(store, clock, resolver, metrics, carrier))
    }

    /// The same over another network than HTTP.
    pub fn over(
        store: Store,
        clock: Arc<dyn Clock>,
        resolver: Arc<Resolver>,
        metrics: Arc<Metrics>,
        carrier: Arc<dyn Carrier>,
    ) -> Self {
        Self { tools: dispatcher::Tools { store, clock, resolver, metrics, carrier } }
    }

    /// Keeps a courier for every enabled webhook until `stop`. What is under way then is sent again after the next start.
    pub async fn run(self, stop: CancellationToken) {
        let mut couriers: BTreeMap<WebhookId, JoinHandle<()>> = BTreeMap::new();
        loop {
            couriers.retain(|_, courier| !courier.is_finished());
            match self.tools.store.webhooks().await {
                Ok(webhooks) => {
                    for webhook in webhooks.into_iter().filter(|webhook| webhook.disabled.is_none()) {
                        couriers.entry(webhook.id).or_insert_with(|| {
                            tokio::spawn(dispatcher::run(self.tools.clone(), webhook.id, stop.clone()))
                        });
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %error_chain(&error), "webhooks cannot be read; trying again")
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        for courier in couriers.into_values() {
            // It ends by the same token; one that panicked has said so.
            let _ended = courier.await;
        }
    }
}
