//! Limits of requests to one BMC and to all BMCs.
//!
//! ```text
//!   request -> mutation permit (1, if it mutates) -> in-flight permit (2) -> token of the bucket -> global permit
//!           -> breaker: closed | half-open (one probe) -> sent           open -> CircuitOpen, nothing is sent
//! ```
//!
//! [`RequestLimits`] belong to a BMC and outlive its handles: handles with the same limits share the two requests in
//! flight. Invariants: a request waits only for other requests of the same BMC, each of which has a deadline, for a
//! token, which arrives at a fixed rate, or for a global permit; the global permit is taken last, so that a slow BMC
//! does not block the others; an open circuit fails at once. Rejected logins are counted here too, because failures of
//! all handles lock the account.
//!
//! Time is tokio's, so that tests can use virtual time.

mod breaker;
mod bucket;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use breaker::Breaker;
pub use breaker::CircuitOpen;
use bucket::Bucket;

use crate::transport::{TransportError, TransportErrorKind};

/// Maximum number of requests in flight for one BMC.
const IN_FLIGHT: usize = 2;
/// Maximum number of rejected logins within [`REJECTION_WINDOW`]. Three lock the account on some BMCs.
const MAX_REJECTIONS: usize = 2;
/// The time for which a rejected login counts; about the time for which such BMCs lock the account.
const REJECTION_WINDOW: Duration = Duration::from_secs(600);

/// Settings of the limits of one BMC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LimitOptions {
    /// Requests per second in the long run; 0 for no limit.
    pub rate: u32,
    /// Requests that may follow each other at once after a pause.
    pub burst: u32,
    /// Transport failures in a row that open the circuit; 0 never opens it.
    pub breaker_failures: u32,
    /// The time for which the circuit stays open before one probe request is sent.
    pub breaker_open_time: Duration,
}

impl LimitOptions {
    /// Ten requests per second, bursts of forty, circuit open for thirty seconds after five failures.
    pub const fn recommended() -> Self {
        LimitOptions { rate: 10, burst: 40, breaker_failures: 5, breaker_open_time: Duration::from_secs(30) }
    }

    /// No limits other than the permits.
    pub const fn none() -> Self {
        LimitOptions { rate: 0, burst: 0, breaker_failures: 0, breaker_open_time: Duration::ZERO }
    }
}

/// Maximum number of requests in flight to all BMCs.
#[derive(Clone, Debug)]
pub struct GlobalLimit(Arc<Semaphore>);

impl GlobalLimit {
    /// Creates a limit of `at_most` requests, at least one.
    pub fn new(at_most: usize) -> Self {
        GlobalLimit(Arc::new(Semaphore::new(at_most.clamp(1, Semaphore::MAX_PERMITS))))
    }
}

/// The limits of one BMC; clones share them.
#[derive(Clone, Debug)]
pub struct RequestLimits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Requests in flight.
    in_flight: Semaphore,
    /// Mutations in flight; taken before `in_flight`.
    mutations: Semaphore,
    bucket: Bucket,
    breaker: Breaker,
    global: Option<GlobalLimit>,
    rejections: Mutex<VecDeque<Instant>>,
}

/// The right to send one request.
pub(crate) struct Permit<'a> {
    _mutation: Option<SemaphorePermit<'a>>,
    _in_flight: SemaphorePermit<'a>,
    _global: Option<SemaphorePermit<'a>>,
}

impl Default for RequestLimits {
    fn default() -> Self {
        RequestLimits::new(LimitOptions::none(), None)
    }
}

impl RequestLimits {
    /// Creates the limits of one BMC.
    pub fn new(options: LimitOptions, global: Option<GlobalLimit>) -> Self {
        RequestLimits(Arc::new(Inner {
            in_flight: Semaphore::new(IN_FLIGHT),
            mutations: Semaphore::new(1),
            bucket: Bucket::new(options.rate, options.burst),
            breaker: Breaker::new(options.breaker_failures, options.breaker_open_time),
            global,
            rejections: Mutex::default(),
        }))
    }

    /// Waits for the right to send one request.
    pub(crate) async fn permit(&self, mutates: bool) -> Result<Permit<'_>, AcquireError> {
        let inner = &self.0;
        let mutation = match mutates {
            true => Some(inner.mutations.acquire().await?),
            false => None,
        };
        let in_flight = inner.in_flight.acquire().await?;
        inner.bucket.take().await;
        let global = match &inner.global {
            Some(global) => Some(global.0.acquire().await?),
            None => None,
        };
        Ok(Permit { _mutation: mutation, _in_flight: in_flight, _global: global })
    }

    /// Waits for the right to send one upload. An upload lasts minutes and its caller limits how many there are, so it takes
    /// no global permit: a hundred uploads do not stop the short requests to other BMCs.
    pub(crate) async fn upload_permit(&self) -> Result<Permit<'_>, AcquireError> {
        let inner = &self.0;
        let mutation = Some(inner.mutations.acquire().await?);
        let in_flight = inner.in_flight.acquire().await?;
        inner.bucket.take().await;
        Ok(Permit { _mutation: mutation, _in_flight: in_flight, _global: None })
    }

    /// Runs `send` unless the circuit is open, and counts its result.
    ///
    /// # Errors
    ///
    /// When the circuit is open; `send` is not run then.
    pub async fn pass<T>(
        &self,
        send: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<Result<T, TransportError>, CircuitOpen> {
        let probe = self.0.breaker.admit()?;
        let sent = send.await;
        match &sent {
            Err(error) if is_unreachable(error.kind) => probe.failed(&error.detail),
            // A wrong certificate or an invalid response shows that the BMC responds.
            _ => probe.responded(),
        }
        Ok(sent)
    }

    /// The open circuit, if it is open; also while a probe is possible.
    pub fn circuit_open(&self) -> Option<CircuitOpen> {
        self.0.breaker.circuit_open()
    }

    /// The open circuit, if a request would be refused now; `None` when a request may be the probe.
    pub(crate) fn circuit_open_now(&self) -> Option<CircuitOpen> {
        self.0.breaker.refusal_reason()
    }

    /// Whether no login may be sent now, because too many were rejected.
    pub fn is_login_blocked(&self) -> bool {
        let mut rejections = self.0.rejections.lock();
        rejections.retain(|at| at.elapsed() < REJECTION_WINDOW);
        rejections.len() >= MAX_REJECTIONS
    }

    /// Counts a rejected login.
    pub fn login_rejected(&self) {
        let mut rejections = self.0.rejections.lock();
        rejections.truncate(MAX_REJECTIONS - 1);
        rejections.push_front(Instant::now());
    }

    /// Forgets rejected logins after the credentials may have changed, so that logins are sent again.
    pub fn forget_rejections(&self) {
        self.0.rejections.lock().clear();
    }
}

/// Whether a failure means that the BMC does not respond.
fn is_unreachable(kind: TransportErrorKind) -> bool {
    matches!(
        kind,
        TransportErrorKind::Connect
            | TransportErrorKind::Refused
            | TransportErrorKind::Resolve
            | TransportErrorKind::Timeout
            | TransportErrorKind::Lost
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> TransportError {
        TransportError::maybe_sent(TransportErrorKind::Lost, "cut")
    }

    #[tokio::test(start_paused = true)]
    async fn two_in_flight_one_of_them_mutating() {
        let limits = RequestLimits::default();
        let mutation = limits.permit(true).await.unwrap();
        let second = tokio::time::timeout(Duration::from_secs(1), limits.permit(true)).await;
        assert!(second.is_err(), "a second mutation waits");
        let read = limits.permit(false).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_secs(1), limits.permit(false)).await.is_err());
        drop(read);
        drop(limits.permit(false).await.unwrap());
        drop(mutation);
        drop(limits.permit(true).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn all_bmcs_share_a_global_limit_and_a_slow_one_does_not_use_it_up() {
        let global = GlobalLimit::new(1);
        let (a, b) = (
            RequestLimits::new(
                LimitOptions { rate: 1, burst: 1, ..LimitOptions::none() },
                Some(global.clone()),
            ),
            RequestLimits::new(LimitOptions::none(), Some(global)),
        );
        drop(a.permit(false).await.unwrap());
        // It waits a second for its token and holds no global permit meanwhile.
        let waiting = tokio::spawn({
            let a = a.clone();
            async move { a.permit(false).await.map(drop).is_ok() }
        });
        tokio::task::yield_now().await;
        let other = b.permit(false).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_secs(5), b.permit(false)).await.is_err());
        drop(other);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_open_the_circuit_and_allow_one_probe() {
        let limits =
            RequestLimits::new(LimitOptions { breaker_failures: 2, ..LimitOptions::recommended() }, None);
        let fail = || limits.pass::<()>(async { Err(lost()) });
        assert!(fail().await.is_ok());
        assert!(limits.pass(async { Ok(()) }).await.is_ok(), "a response resets the count");
        assert!(fail().await.is_ok() && fail().await.is_ok());
        let open = fail().await.unwrap_err();
        assert_eq!((open.failures, open.wait, open.last.as_str()), (2, Duration::from_secs(30), "cut"));
        tokio::time::advance(Duration::from_secs(30)).await;
        // One probe at a time; when it fails the open time starts again.
        let slow = limits.pass::<()>(async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Err(lost())
        });
        let (slow, other) = tokio::join!(slow, fail());
        assert!(slow.is_ok() && other.is_err());
        assert_eq!(limits.circuit_open().unwrap().wait, Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(limits.pass(async { Ok(()) }).await.is_ok());
        assert!(limits.circuit_open().is_none() && fail().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_probe_lets_the_next_request_be_the_probe() {
        let limits =
            RequestLimits::new(LimitOptions { breaker_failures: 1, ..LimitOptions::recommended() }, None);
        assert!(limits.pass::<()>(async { Err(lost()) }).await.is_ok());
        tokio::time::advance(Duration::from_secs(30)).await;
        let probe = limits.pass::<()>(std::future::pending());
        assert!(tokio::time::timeout(Duration::from_secs(1), probe).await.is_err());
        assert!(limits.pass(async { Ok(()) }).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_certificate_does_not_count_as_a_failure() {
        let limits =
            RequestLimits::new(LimitOptions { breaker_failures: 1, ..LimitOptions::recommended() }, None);
        let error = TransportError::not_sent(TransportErrorKind::PinMismatch, "other");
        assert!(limits.pass::<()>(async { Err(error) }).await.is_ok());
        assert!(limits.circuit_open().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn logins_stop_after_two_rejections_for_ten_minutes() {
        let limits = RequestLimits::default();
        limits.login_rejected();
        assert!(!limits.is_login_blocked());
        limits.login_rejected();
        assert!(limits.is_login_blocked() && limits.clone().is_login_blocked());
        tokio::time::advance(REJECTION_WINDOW).await;
        assert!(!limits.is_login_blocked());
        limits.login_rejected();
        limits.login_rejected();
        limits.forget_rejections();
        assert!(!limits.is_login_blocked());
    }
}
