//! The state of the receiver of webhook deliveries.

use std::collections::BTreeMap;
use std::time::Duration;

use super::rng::WorldRng;
use model::WebhookId;
use parking_lot::{Mutex, MutexGuard};

/// The receiver of webhook deliveries.
pub(super) struct WebhookReceiver {
    pub(super) rng: WorldRng,
    received: Mutex<Received>,
}

/// The deliveries that a receiver accepted.
#[derive(Default)]
pub(super) struct Received {
    /// Digests of the accepted deliveries of each webhook, by sequence number of the event.
    pub(super) accepted: BTreeMap<WebhookId, BTreeMap<i64, [u8; 32]>>,
    /// Sequence number of the last accepted event of each job.
    pub(super) last: BTreeMap<(WebhookId, String), i64>,
    /// The receiver is unreachable until this virtual time.
    pub(super) away_until: Duration,
}

impl WebhookReceiver {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: WorldRng::new(seed, "receiver"), received: Mutex::default() }
    }

    pub(super) fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock()
    }
}
