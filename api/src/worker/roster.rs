//! The workers elsewhere that this controller has heard of since its start, in memory.
//!
//! ```text
//!   hello ──> entry (token, process) ──> its other requests ──> seen now
//!                 │ one order of calls and one question for interrupted claims at a time: a later one, and a hello, end
//!                 │ the earlier one
//!                 │ 320 requests at a time; silent for an hour: removed
//!                 │ the processes of a token together: 64; 4 long messages at a time
//!                 └ new authorities of BMCs: its next request is refused until it says hello, which gives it them
//! ```
//!
//! Invariants: an entry gives no right, and every request is checked against the stored token; a hello gives a process no second
//! set of places.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use access::auth::{RateLimit, RateLimiter};
use engine::QueueWorkers;
use model::{Clock, Time};
use upkeep::FirmwareStore;
use worker::messages::RedfishSettings;

/// The most processes of all tokens together.
const MAX_ENTRIES: usize = 1024;
/// The most processes of one token.
const MAX_OF_TOKEN: usize = 64;
/// How many requests one process may have open: one for each of its calls, two that wait, and those that were given up.
const MAX_REQUESTS: usize = 320;
/// How many long messages the processes of one token may send at the same time. Each is in memory while it is read and handled.
const MAX_LONG: usize = 4;
/// A worker that was silent for so long is removed.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// A worker that was silent for so long does not serve its queues any more.
const GONE: Duration = Duration::from_secs(60);

/// Reads the authorities of BMCs, in PEM.
pub type ReadAuthorities = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The workers elsewhere, and what their routes need beside the state of the API.
pub struct Workers {
    /// Limits wrong tokens per address.
    pub(super) failures: RateLimiter,
    /// The settings of Redfish requests, without the authorities.
    pub(super) redfish: RedfishSettings,
    /// Reads the authorities of BMCs.
    authorities: RwLock<ReadAuthorities>,
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
    /// The name of the worker's token.
    pub(in super::super) token: String,
    /// The name of the process.
    pub(in super::super) process: String,
    /// The queues that the process serves.
    pub(in super::super) queues: BTreeSet<String>,
    /// The version of the process's program.
    pub(in super::super) version: String,
    /// When the process first said hello.
    pub(in super::super) since: Time,
    seen: Mutex<Time>,
    /// Whether the process has former authorities of BMCs, so that it must say hello.
    outdated: AtomicBool,
    /// The number of the process's last order of calls.
    orders: Arc<watch::Sender<u64>>,
    /// The number of the process's last question for interrupted claims.
    questions: Arc<watch::Sender<u64>>,
    requests: Arc<Semaphore>,
    /// Places for long messages, of all processes of the token.
    long: Arc<Semaphore>,
    /// Whether the event of the process's first hello is stored.
    announced: Arc<tokio::sync::Mutex<bool>>,
}

impl Workers {
    /// No workers yet.
    pub fn new(
        redfish: RedfishSettings,
        authorities: ReadAuthorities,
        files: Arc<dyn FirmwareStore>,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            failures: RateLimiter::new(RateLimit::default()),
            redfish,
            authorities: RwLock::new(authorities),
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
    ) -> Result<Arc<Entry>, ApiError> {
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
        let known = entries.get(&key).map(Arc::clone);
        let sibling = entries.iter().find(|((id, _), _)| id == token_id).map(|(_, entry)| Arc::clone(entry));
        if let Some(known) = &known {
            known.end_polls();
        }
        let entry = Entry {
            token: token.to_owned(),
            process: process.to_owned(),
            queues,
            version,
            since: known.as_ref().map_or(now, |known| known.since),
            seen: Mutex::new(now),
            outdated: AtomicBool::new(false),
            orders: known.as_ref().map(|known| Arc::clone(&known.orders)).unwrap_or_default(),
            questions: known.as_ref().map(|known| Arc::clone(&known.questions)).unwrap_or_default(),
            announced: known.as_ref().map(|known| Arc::clone(&known.announced)).unwrap_or_default(),
            requests: known
                .map_or_else(|| Arc::new(Semaphore::new(MAX_REQUESTS)), |known| Arc::clone(&known.requests)),
            long: sibling
                .map_or_else(|| Arc::new(Semaphore::new(MAX_LONG)), |sibling| Arc::clone(&sibling.long)),
        };
        let entry = Arc::new(entry);
        entries.insert(key, Arc::clone(&entry));
        Ok(entry)
    }

    /// Returns the reader of the authorities of BMCs that is in force.
    pub(super) fn authorities(&self) -> ReadAuthorities {
        Arc::clone(&self.authorities.read())
    }

    /// Replaces the authorities of BMCs. Every worker has to say hello before its next request, and receives them then.
    pub fn trust(&self, authorities: ReadAuthorities) {
        // Before the entries: a hello that comes in between has the new ones, and is repeated at worst.
        *self.authorities.write() = authorities;
        for entry in self.entries.lock().values() {
            entry.outdated.store(true, Ordering::Release);
            entry.end_polls();
        }
    }

    /// The worker of a token, which is seen now. `None` when it has to say hello.
    pub(super) fn seen(&self, token_id: &str, process: &str) -> Option<Arc<Entry>> {
        let entries = self.entries.lock();
        let entry = entries.get(&(token_id.to_owned(), process.to_owned()))?;
        *entry.seen.lock() = self.clock.now();
        (!entry.outdated.load(Ordering::Acquire)).then(|| Arc::clone(entry))
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

    /// A place for a long message, as soon as there is one. `None` cannot happen: the semaphore is never closed.
    pub(super) async fn long_message(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        Arc::clone(&self.long).acquire_owned().await.ok()
    }

    /// Stores the event of the first hello by `store`, unless it is stored. After an error the next hello stores it.
    pub(super) async fn announce<E>(&self, store: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        let mut announced = self.announced.lock().await;
        if !*announced {
            store.await?;
            *announced = true;
        }
        Ok(())
    }

    /// Begins an order of calls: an earlier one of this worker ends.
    pub(super) fn order(&self) -> Poll {
        Poll::begin(&self.orders)
    }

    /// Begins a question for interrupted claims: an earlier one of this worker ends.
    pub(super) fn question(&self) -> Poll {
        Poll::begin(&self.questions)
    }

    fn end_polls(&self) {
        for polls in [&self.orders, &self.questions] {
            drop(Poll::begin(polls));
        }
    }
}

/// One request of a worker that waits.
pub(super) struct Poll {
    number: u64,
    polls: watch::Receiver<u64>,
}

impl Poll {
    fn begin(polls: &watch::Sender<u64>) -> Self {
        let mut number = 0;
        polls.send_modify(|last| {
            *last = last.wrapping_add(1);
            number = *last;
        });
        Self { number, polls: polls.subscribe() }
    }

    /// Whether the request must end, and nothing may be granted to it.
    pub(super) fn is_over(&self) -> bool {
        *self.polls.borrow() != self.number
    }

    /// Returns when the request must end.
    pub(super) async fn over(&mut self) {
        let number = self.number;
        // An error means that the worker is not listed any more.
        drop(self.polls.wait_for(|polls| *polls != number).await);
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use firmware::VerifiedFirmware;
    use model::{RunId, SystemClock};
    use upkeep::FirmwareFileError;

    struct NoFiles;

    #[async_trait]
    impl FirmwareStore for NoFiles {
        async fn hold(&self, _: RunId, _: &[firmware::Entry]) -> Result<(), FirmwareFileError> {
            Err(FirmwareFileError::Unavailable("none".to_owned()))
        }

        async fn open(&self, _: &firmware::Entry) -> Result<VerifiedFirmware, FirmwareFileError> {
            Err(FirmwareFileError::Unavailable("none".to_owned()))
        }

        async fn release(&self, _: RunId) -> Result<(), FirmwareFileError> {
            Ok(())
        }
    }

    fn workers() -> Workers {
        let redfish = RedfishSettings {
            timeout_ms: 1,
            retries: 1,
            rate: 1,
            breaker_failures: 1,
            breaker_open_ms: 1,
            in_flight: 1,
            power_ons: None,
            authorities: None,
        };
        let none = Arc::new(|| None::<String>);
        Workers::new(redfish, none, Arc::new(NoFiles), Arc::new(SystemClock), CancellationToken::new())
    }

    fn hello(workers: &Workers, token: &str, process: &str) -> Arc<Entry> {
        let queues = BTreeSet::from(["facility-b".to_owned()]);
        workers.list((token, token), process, queues, "1".to_owned()).unwrap();
        workers.seen(token, process).unwrap()
    }

    #[tokio::test]
    async fn a_later_order_and_a_hello_and_a_revocation_end_the_open_order() {
        let workers = workers();
        let entry = hello(&workers, "b", "w1");
        let first = entry.order();
        let mut second = entry.order();
        let question = entry.question();
        assert_eq!((first.is_over(), second.is_over(), question.is_over()), (true, false, false));
        let again = hello(&workers, "b", "w1");
        second.over().await;
        assert!(second.is_over() && question.is_over());
        let mut third = again.order();
        workers.revoked("b");
        third.over().await;
        assert!(workers.seen("b", "w1").is_none());
    }

    #[tokio::test]
    async fn new_authorities_of_bmcs_make_every_worker_say_hello_again() {
        let workers = workers();
        let entry = hello(&workers, "b", "w1");
        let mut order = entry.order();
        entry.announce(async { Ok::<_, ()>(()) }).await.unwrap();
        workers.trust(Arc::new(|| Some("new".to_owned())));
        order.over().await;
        assert!(workers.seen("b", "w1").is_none(), "it has to say hello");
        assert_eq!(workers.served("facility-b"), Ok(()), "its queue is served all the while");
        let again = hello(&workers, "b", "w1");
        assert_eq!((workers.authorities())().as_deref(), Some("new"));
        again.announce(async { Err("announced twice") }).await.unwrap();
    }

    #[tokio::test]
    async fn a_hello_gives_no_second_set_of_places() {
        let workers = workers();
        let entry = hello(&workers, "b", "w1");
        let places: Vec<_> = (0..MAX_REQUESTS).map(|_| entry.request().unwrap()).collect();
        let again = hello(&workers, "b", "w1");
        assert!(again.request().is_err());
        drop(places);
        assert!(again.request().is_ok());
        let sibling = hello(&workers, "b", "w2");
        let mut long = Vec::new();
        for _ in 0..MAX_LONG {
            long.push(entry.long_message().await);
        }
        assert_eq!(sibling.long.available_permits(), 0, "the processes of a token share these");
        assert_eq!(hello(&workers, "c", "w1").long.available_permits(), MAX_LONG);
    }

    #[tokio::test]
    async fn a_worker_is_announced_once_and_again_only_after_an_error() {
        let workers = workers();
        let refused = hello(&workers, "b", "w1").announce(async { Err::<(), _>("full") }).await;
        assert_eq!(refused, Err("full"));
        let mut stored = 0;
        for _ in 0..2 {
            let again = hello(&workers, "b", "w1");
            let announced = again.announce(async {
                stored += 1;
                Ok::<_, &str>(())
            });
            assert_eq!(announced.await, Ok(()));
        }
        assert_eq!(stored, 1);
    }

    #[test]
    fn the_processes_of_a_token_are_bounded() {
        let workers = workers();
        for number in 0..MAX_OF_TOKEN {
            hello(&workers, "b", &format!("w{number}"));
        }
        let one_more = workers.list(("b", "b"), "w-more", BTreeSet::new(), String::new());
        assert!(one_more.is_err());
        hello(&workers, "c", "w1");
    }
}
