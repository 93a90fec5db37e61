//! A circuit breaker: after several failures in a row no request is sent to the BMC, then one probe request.
//!
//! ```text
//!            failure (n-th in a row)               open time passed: one probe
//!   closed --------------------------->  open  ----------------------------->  half-open
//!     ^ \__ response: count restarts      ^  \__ others: CircuitOpen            |      |
//!     |                                    `-------------- failure -------------'      |
//!     `---------------------------------- response -----------------------------------'
//! ```
//!
//! A probe whose future is dropped has no result; the next request becomes the probe.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The circuit is open: no request is sent to the BMC.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("circuit open: {failures} requests in a row got no response from the BMC; next request in {} s (last failure: {last})", .wait.as_secs())]
pub struct CircuitOpen {
    /// Failures in a row.
    pub failures: u32,
    /// Time until the next request may be sent.
    pub wait: Duration,
    /// The last failure.
    pub last: String,
}

#[derive(Debug)]
pub(super) struct Breaker {
    /// Failures in a row that open the circuit; 0 never opens it.
    threshold: u32,
    open_time: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    last: String,
    /// End of the open time; set while open.
    until: Option<Instant>,
    probing: bool,
}

/// The right to send one request; the sender reports the result with [`ProbeRequest::responded`] or [`ProbeRequest::failed`].
pub(super) struct ProbeRequest<'a> {
    breaker: &'a Breaker,
    half_open: bool,
    finished: bool,
}

impl Breaker {
    pub(super) fn new(threshold: u32, open_time: Duration) -> Self {
        Breaker { threshold, open_time, state: Mutex::default() }
    }

    pub(super) fn admit(&self) -> Result<ProbeRequest<'_>, CircuitOpen> {
        let mut state = self.state.lock();
        let half_open = match state.until {
            None => false,
            Some(until) if until <= Instant::now() && !state.probing => true,
            Some(until) => return Err(self.open_until(&state, until)),
        };
        state.probing |= half_open;
        Ok(ProbeRequest { breaker: self, half_open, finished: false })
    }

    /// The open circuit, if a request would be refused now.
    pub(super) fn refusal_reason(&self) -> Option<CircuitOpen> {
        let state = self.state.lock();
        let until = state.until.filter(|until| *until > Instant::now() || state.probing)?;
        Some(self.open_until(&state, until))
    }

    pub(super) fn circuit_open(&self) -> Option<CircuitOpen> {
        let state = self.state.lock();
        state.until.map(|until| self.open_until(&state, until))
    }

    fn open_until(&self, state: &State, until: Instant) -> CircuitOpen {
        let wait = until.saturating_duration_since(Instant::now());
        // While a probe is in flight, wait for its result.
        let wait = if wait.is_zero() { self.open_time / 10 } else { wait };
        CircuitOpen { failures: state.failures, wait, last: state.last.clone() }
    }
}

impl ProbeRequest<'_> {
    pub(super) fn responded(mut self) {
        *self.breaker.state.lock() = State::default();
        self.finished = true;
    }

    pub(super) fn failed(mut self, detail: &str) {
        let mut state = self.breaker.state.lock();
        state.failures = state.failures.saturating_add(1);
        detail.clone_into(&mut state.last);
        if self.half_open {
            state.probing = false;
        }
        if self.breaker.threshold > 0 && state.failures >= self.breaker.threshold {
            state.until = Some(Instant::now() + self.breaker.open_time);
        }
        drop(state);
        self.finished = true;
    }
}

impl Drop for ProbeRequest<'_> {
    fn drop(&mut self) {
        if self.half_open && !self.finished {
            self.breaker.state.lock().probing = false;
        }
    }
}
