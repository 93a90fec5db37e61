//! The workers elsewhere that this controller has heard of since its start, in memory.
//!
//! ```text
//!   hello ──> entry (token, process) ──> its other requests ──> seen now
//!                 │ one poll at a time: a later one ends the earlier
//!                 └ 64 requests at a time; silent for an hour: removed
//! ```
//!
//! Invariant: an entry gives no right. Every request is checked against the stored token.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use crate::auth::{RateLimit, RateLimiter};
use crate::elsewhere::messages::RedfishSettings;
use engine::QueueWorkers;
use engine::model::{Clock, Time};
use upkeep::FirmwareStore;

/// The most processes of all tokens together.
const MAX_ENTRIES: usize = 1024;
/// The most processes of one token.
const MAX_OF_TOKEN: usize = 64;
/// How many requests one worker may have open.
const MAX_REQUESTS: usize = 64;
/// A worker that was silent for so long is removed.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// A worker that was silent for so long does not serve its queues any more.
const GONE: Duration = Duration::from_secs(60);

/// The workers elsewhere, and what their routes need beside the state of the API.
pub struct Workers {
    /// Limits wrong tokens per address.
    pub(super) failures: RateLimiter,
    /// The settings of Redfish requests, without the authorities.
    pub(super) redfish: RedfishSettings,
    /// Reads the authorities of BMCs.
    pub(super) authorities: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    /// The firmware files.
    pub(super) files: Arc<dyn FirmwareStore>,
    /// The controller stops: no request waits any more.
    pub(super) stop: CancellationToken,
    clock: Arc<dyn Clock>,
    started: Time,
    entries: Mutex<BTreeMap<(String, String), Arc<Entry>>>,
}

/// One process of a worker.
pub(in super::super) struct Entry {
    /// The name of its token.
    pub(in super::super) token: String,
    /// The name of the process.
    pub(in super::super) process: String,
    /// The queues that it serves.
    pub(in super::super) queues: BTreeSet<String>,
    /// The version of its program.
    pub(in super::super) version: String,
    /// When it first said hello.
    pub(in super::super) since: Time,
    seen: Mutex<Time>,
    /// The number of its last order of calls.
    polls: watch::Sender<u64>,
    requests: Arc<Semaphore>,
}

impl Workers {
    /// No workers yet.
    pub(crate) fn new(
        redfish: RedfishSettings,
        authorities: Arc<dyn Fn() -> Option<String> + Send + Sync>,
        files: Arc<dyn FirmwareStore>,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            failures: RateLimiter::new(RateLimit::default()),
            redfish,
            authorities,
            files,
            stop,
            started: clock.now(),
            clock,
            entries: Mutex::default(),
        }
    }

    /// Lists a worker that said hello.
    pub(super) fn list(
        &self,
        (token_id, token): (&str, &str),
        process: &str,
        queues: BTreeSet<String>,
        version: String,
    ) -> Result<(), ApiError> {
        let now = self.clock.now();
        let key = (token_id.to_owned(), process.to_owned());
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| now.since(*entry.seen.lock()) < FORGOTTEN);
        let of_token = entries.keys().filter(|(id, _)| id == token_id).count();
        if !entries.contains_key(&key) && (of_token >= MAX_OF_TOKEN || entries.len() >= MAX_ENTRIES) {
            let message = format!(
                "the token {token} has {of_token} workers, and one has at most {MAX_OF_TOKEN}; stop one, or wait an hour after its end"
            );
            return Err(
                ApiError::new(ErrorCode::RateLimited, message).header(axum::http::header::RETRY_AFTER, "60")
            );
        }
        let since = entries.get(&key).map_or(now, |entry| entry.since);
        let entry = Entry {
            token: token.to_owned(),
            process: process.to_owned(),
            queues,
            version,
            since,
            seen: Mutex::new(now),
            polls: watch::Sender::default(),
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
        };
        entries.insert(key, Arc::new(entry));
        Ok(())
    }

    /// The worker of a token, which is seen now.
    pub(super) fn seen(&self, token_id: &str, process: &str) -> Option<Arc<Entry>> {
        let entries = self.entries.lock();
        let entry = entries.get(&(token_id.to_owned(), process.to_owned()))?;
        *entry.seen.lock() = self.clock.now();
        Some(Arc::clone(entry))
    }

    /// Removes the workers of a revoked token.
    pub(in super::super) fn revoked(&self, token_id: &str) {
        let mut entries = self.entries.lock();
        entries.retain(|(id, _), entry| {
            if id == token_id {
                entry.end_polls();
            }
            id != token_id
        });
    }

    /// The workers, by token and process, with the time when each was last seen.
    pub(in super::super) fn all(&self) -> Vec<(Arc<Entry>, Time)> {
        let entries = self.entries.lock();
        entries.values().map(|entry| (Arc::clone(entry), *entry.seen.lock())).collect()
    }
}

impl QueueWorkers for Workers {
    fn served(&self, queue: &str) -> Result<(), Time> {
        let entries = self.entries.lock();
        let seen =
            entries.values().filter(|entry| entry.queues.contains(queue)).map(|entry| *entry.seen.lock());
        let last = seen.max();
        match last {
            Some(last) if self.clock.now().since(last) < GONE => Ok(()),
            last => Err(last.unwrap_or(self.started)),
        }
    }
}

impl Entry {
    /// A place for one more request.
    pub(super) fn request(&self) -> Result<tokio::sync::OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.requests).try_acquire_owned().map_err(|_| {
            let message = format!(
                "the worker {} has {MAX_REQUESTS} open requests; it sends more when they have ended",
                self.process
            );
            ApiError::new(ErrorCode::RateLimited, message).header(axum::http::header::RETRY_AFTER, "1")
        })
    }

    /// Begins an order of calls: an earlier one of this worker ends. The receiver shows a change when a later one begins.
    pub(super) fn poll(&self) -> watch::Receiver<u64> {
        self.end_polls();
        let mut polls = self.polls.subscribe();
        polls.borrow_and_update();
        polls
    }

    fn end_polls(&self) {
        self.polls.send_modify(|polls| *polls = polls.wrapping_add(1));
    }
}
