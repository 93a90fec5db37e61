//! How much one BMC, and all of them together, are asked at once.
//!
//! ```text
//!   request -> mutation permit (1, if it mutates) -> flight permit (2) -> token of the bucket -> place among all BMCs
//!           -> breaker: closed | half-open (one trial) -> sent          open -> Resting, nothing is sent, nobody waits
//! ```
//!
//! [`Limits`] belong to a BMC and outlive the handles made for it: two handles with the same limits never have more than
//! two requests in flight together. Invariants: whoever waits here waits for other requests of the same BMC, each of which
//! has a deadline, or for a token, which comes at a fixed rate; a place among all BMCs is taken last, so that a slow BMC
//! does not keep others out. Logins that were rejected are remembered here too: an account is locked by failures of all
//! handles together.
//!
//! Time is tokio's, so that it can be virtual.

mod breaker;
mod bucket;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use breaker::Breaker;
pub use breaker::CircuitOpen;
use bucket::Bucket;

use crate::transport::{TransportError, TransportErrorKind};

/// Requests in flight for one BMC.
const FLIGHTS: usize = 2;
/// How many rejected logins are risked. Three lock the account on some BMCs…
const MAX_REJECTIONS: usize = 2;
/// …for about this time.
const REJECTION_WINDOW: Duration = Duration::from_secs(600);

/// What can be set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LimitOptions {
    /// Requests a second in the long run; 0 for no such limit.
    pub rate: u32,
    /// Requests at once after a pause.
    pub burst: u32,
    /// After so many failures of transport in a row a BMC is left alone; 0 for never.
    pub breaker_failures: u32,
    /// For how long, until one request is tried.
    pub breaker_rest: Duration,
}

impl LimitOptions {
    /// Ten requests a second, forty at once, alone for thirty seconds after five failures.
    pub const fn usual() -> Self {
        LimitOptions { rate: 10, burst: 40, breaker_failures: 5, breaker_rest: Duration::from_secs(30) }
    }

    /// Nothing but the permits.
    pub const fn none() -> Self {
        LimitOptions { rate: 0, burst: 0, breaker_failures: 0, breaker_rest: Duration::ZERO }
    }
}

/// Requests in flight to all BMCs together.
#[derive(Clone, Debug)]
pub struct Together(Arc<Semaphore>);

impl Together {
    /// At most so many, and at least one.
    pub fn new(at_most: usize) -> Self {
        Together(Arc::new(Semaphore::new(at_most.clamp(1, Semaphore::MAX_PERMITS))))
    }
}

/// The limits of one BMC; clones are the same limits.
#[derive(Clone, Debug)]
pub struct Limits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Requests in flight.
    in_flight: Semaphore,
    /// Mutations in flight; taken before a flight.
    mutations: Semaphore,
    bucket: Bucket,
    breaker: Breaker,
    together: Option<Together>,
    rejections: Mutex<VecDeque<Instant>>,
}

/// The right to send one request.
pub(crate) struct Permit<'a> {
    _mutation: Option<SemaphorePermit<'a>>,
    _in_flight: SemaphorePermit<'a>,
    _together: Option<SemaphorePermit<'a>>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits::new(LimitOptions::none(), None)
    }
}

impl Limits {
    /// Limits of one more BMC.
    pub fn new(options: LimitOptions, together: Option<Together>) -> Self {
        Limits(Arc::new(Inner {
            in_flight: Semaphore::new(FLIGHTS),
            mutations: Semaphore::new(1),
            bucket: Bucket::new(options.rate, options.burst),
            breaker: Breaker::new(options.breaker_failures, options.breaker_rest),
            together,
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
        let flight = inner.in_flight.acquire().await?;
        inner.bucket.take().await;
        let together = match &inner.together {
            Some(together) => Some(together.0.acquire().await?),
            None => None,
        };
        Ok(Permit { _mutation: mutation, _in_flight: flight, _together: together })
    }

    /// Sends something unless the BMC is left alone, and learns from what comes of it.
    pub async fn pass<T>(
        &self,
        send: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<Result<T, TransportError>, CircuitOpen> {
        let trial = self.0.breaker.admit()?;
        let sent = send.await;
        match &sent {
            Err(error) if silent(error.kind) => trial.failed(&error.detail),
            // A certificate or an answer nobody understands is an answer.
            _ => trial.answered(),
        }
        Ok(sent)
    }

    /// How long the BMC is left alone, if it is.
    pub fn resting(&self) -> Option<CircuitOpen> {
        self.0.breaker.resting()
    }

    /// The same, unless the rest is over and a request may be the trial.
    pub(crate) fn circuit_open_now(&self) -> Option<CircuitOpen> {
        self.0.breaker.refusal_reason()
    }

    fn rejections(&self) -> MutexGuard<'_, VecDeque<Instant>> {
        self.0.rejections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no login may be tried now, because so many were rejected.
    pub(crate) fn login_blocked(&self) -> bool {
        let mut rejections = self.rejections();
        rejections.retain(|at| at.elapsed() < REJECTION_WINDOW);
        rejections.len() >= MAX_REJECTIONS
    }

    pub(crate) fn login_rejected(&self) {
        let mut rejections = self.rejections();
        rejections.truncate(MAX_REJECTIONS - 1);
        rejections.push_front(Instant::now());
    }

    /// The credentials may be others now: logins are tried again.
    pub fn forget_rejections(&self) {
        self.rejections().clear();
    }
}

/// Whether a failure means that nobody is there.
fn silent(kind: TransportErrorKind) -> bool {
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
        let limits = Limits::default();
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
    async fn all_bmcs_together_have_a_limit_and_a_slow_one_does_not_hold_it() {
        let together = Together::new(1);
        let (a, b) = (
            Limits::new(LimitOptions { rate: 1, burst: 1, ..LimitOptions::none() }, Some(together.clone())),
            Limits::new(LimitOptions::none(), Some(together)),
        );
        drop(a.permit(false).await.unwrap());
        // Waits a second for its token, and takes nobody's place meanwhile.
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
    async fn failures_in_a_row_lead_to_rest_and_one_trial() {
        let limits = Limits::new(LimitOptions { breaker_failures: 2, ..LimitOptions::usual() }, None);
        let fail = || limits.pass::<()>(async { Err(lost()) });
        assert!(fail().await.is_ok());
        assert!(limits.pass(async { Ok(()) }).await.is_ok(), "an answer in between counts anew");
        assert!(fail().await.is_ok() && fail().await.is_ok());
        let resting = fail().await.unwrap_err();
        assert_eq!(
            (resting.failures, resting.wait, resting.last.as_str()),
            (2, Duration::from_secs(30), "cut")
        );
        tokio::time::advance(Duration::from_secs(30)).await;
        // One trial at a time; when it fails the rest begins anew.
        let slow = limits.pass::<()>(async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Err(lost())
        });
        let (slow, other) = tokio::join!(slow, fail());
        assert!(slow.is_ok() && other.is_err());
        assert_eq!(limits.resting().unwrap().wait, Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(limits.pass(async { Ok(()) }).await.is_ok());
        assert!(limits.resting().is_none() && fail().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_is_dropped_leaves_the_next_one_free() {
        let limits = Limits::new(LimitOptions { breaker_failures: 1, ..LimitOptions::usual() }, None);
        assert!(limits.pass::<()>(async { Err(lost()) }).await.is_ok());
        tokio::time::advance(Duration::from_secs(30)).await;
        let trial = limits.pass::<()>(std::future::pending());
        assert!(tokio::time::timeout(Duration::from_secs(1), trial).await.is_err());
        assert!(limits.pass(async { Ok(()) }).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_certificate_is_an_answer() {
        let limits = Limits::new(LimitOptions { breaker_failures: 1, ..LimitOptions::usual() }, None);
        let error = TransportError::not_sent(TransportErrorKind::PinMismatch, "other");
        assert!(limits.pass::<()>(async { Err(error) }).await.is_ok());
        assert!(limits.resting().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn logins_stop_after_two_rejections_for_ten_minutes() {
        let limits = Limits::default();
        limits.login_rejected();
        assert!(!limits.login_blocked());
        limits.login_rejected();
        assert!(limits.login_blocked() && limits.clone().login_blocked());
        tokio::time::advance(REJECTION_WINDOW).await;
        assert!(!limits.login_blocked());
        limits.login_rejected();
        limits.login_rejected();
        limits.forget_rejections();
        assert!(!limits.login_blocked());
    }
}
