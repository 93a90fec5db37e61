//! A circuit breaker: a BMC that does not answer is left alone, and then asked once.
//!
//! ```text
//!            failure (n-th in a row)                  rest over: one trial
//!   closed --------------------------->  open  ----------------------------->  half-open
//!     ^ \__ answer: counts anew           ^  \__ others: Resting                |      |
//!     |                                    `-------------- failure -------------'      |
//!     `----------------------------------- answer ------------------------------------'
//! ```
//!
//! A trial whose future is dropped has no result; the next request is the trial then.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The BMC is left alone.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the BMC has not answered {failures} times in a row and is left alone for {} s (last: {last})", .wait.as_secs())]
pub struct CircuitOpen {
    /// Failures in a row.
    pub failures: u32,
    /// For how long yet.
    pub wait: Duration,
    /// The last failure.
    pub last: String,
}

#[derive(Debug)]
pub(super) struct Breaker {
    /// 0 for never open.
    threshold: u32,
    rest: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    last: String,
    /// Set while open.
    until: Option<Instant>,
    trying: bool,
}

/// A request that may be sent; tells what came of it.
pub(super) struct Trial<'a> {
    breaker: &'a Breaker,
    half_open: bool,
    settled: bool,
}

impl Breaker {
    pub(super) fn new(threshold: u32, rest: Duration) -> Self {
        Breaker { threshold, rest, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn admit(&self) -> Result<Trial<'_>, CircuitOpen> {
        let mut state = self.state();
        let half_open = match state.until {
            None => false,
            Some(until) if until <= Instant::now() && !state.trying => true,
            Some(until) => return Err(self.resting_in(&state, until)),
        };
        state.trying |= half_open;
        Ok(Trial { breaker: self, half_open, settled: false })
    }

    /// Why a request would not be admitted now.
    pub(super) fn refusal_reason(&self) -> Option<CircuitOpen> {
        let state = self.state();
        let until = state.until.filter(|until| *until > Instant::now() || state.trying)?;
        Some(self.resting_in(&state, until))
    }

    pub(super) fn resting(&self) -> Option<CircuitOpen> {
        let state = self.state();
        state.until.map(|until| self.resting_in(&state, until))
    }

    fn resting_in(&self, state: &State, until: Instant) -> CircuitOpen {
        let wait = until.saturating_duration_since(Instant::now());
        // While a trial is under way its end is what to wait for.
        let wait = if wait.is_zero() { self.rest / 10 } else { wait };
        CircuitOpen { failures: state.failures, wait, last: state.last.clone() }
    }
}

impl Trial<'_> {
    pub(super) fn answered(mut self) {
        *self.breaker.state() = State::default();
        self.settled = true;
    }

    pub(super) fn failed(mut self, detail: &str) {
        let mut state = self.breaker.state();
        state.failures = state.failures.saturating_add(1);
        detail.clone_into(&mut state.last);
        if self.half_open {
            state.trying = false;
        }
        if self.breaker.threshold > 0 && state.failures >= self.breaker.threshold {
            state.until = Some(Instant::now() + self.breaker.rest);
        }
        drop(state);
        self.settled = true;
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if self.half_open && !self.settled {
            self.breaker.state().trying = false;
        }
    }
}
