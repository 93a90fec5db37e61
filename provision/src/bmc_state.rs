//! What belongs to a BMC and not to a connection: its limits, who is connecting, and which of our sessions is open on it.
//!
//! Connections come and go with jobs and probes. Whatever number of them there is, a BMC has one state, found by its address:
//! two requests in flight, one rate, one circuit breaker, one memory of rejected logins (lock L17).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redfish::{LimitOptions, Limits, Together};

use engine::model::{Serial, Server};

/// What is remembered of all BMCs.
pub(super) struct BmcStates {
    options: LimitOptions,
    together: Together,
    states: Mutex<HashMap<String, Arc<BmcState>>>,
}

/// What belongs to one BMC.
pub(super) struct BmcState {
    /// How much it is asked at once.
    pub(super) limits: Limits,
    /// Held while somebody connects: what a former incarnation left is looked at by one at a time.
    pub(super) connecting: tokio::sync::Mutex<()>,
    /// The session that is kept for the next incarnation.
    kept: Mutex<Option<String>>,
    /// The record whose credentials were tried last.
    record: Mutex<Option<(Serial, i64)>>,
}

impl BmcStates {
    pub(super) fn new(options: LimitOptions, in_flight: usize) -> Self {
        Self { options, together: Together::new(in_flight), states: Mutex::default() }
    }

    /// The state of a server's BMC. A changed record may hold other credentials: logins are tried again.
    pub(super) fn of(&self, server: &Server) -> Arc<BmcState> {
        let state = {
            let mut states = lock(&self.states);
            let new = || {
                Arc::new(BmcState {
                    limits: Limits::new(self.options, Some(self.together.clone())),
                    connecting: tokio::sync::Mutex::default(),
                    kept: Mutex::default(),
                    record: Mutex::default(),
                })
            };
            Arc::clone(states.entry(server.bmc_address.clone()).or_insert_with(new))
        };
        let now = Some((server.serial.clone(), server.revision));
        let mut record = lock(&state.record);
        if *record != now {
            state.limits.forget_rejections();
            *record = now;
        }
        drop(record);
        state
    }
}

impl BmcState {
    /// The newest session is the one to be kept.
    pub(super) fn session_opened(&self, uri: &str) {
        *lock(&self.kept) = Some(uri.to_owned());
    }

    /// Whether the session that ended is the kept one; an older one leaves the newer one alone.
    pub(super) fn session_closed(&self, uri: &str) -> bool {
        let mut kept = lock(&self.kept);
        let ours = kept.as_deref().is_none_or(|kept| kept == uri);
        if ours {
            *kept = None;
        }
        ours
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::model::Time;

    #[test]
    fn one_address_is_one_state_and_another_record_tries_its_logins_anew() {
        let states = BmcStates::new(LimitOptions::usual(), 4);
        let mut server =
            Server::unknown("S-1".parse().unwrap(), Time::from_timestamp(jiff::Timestamp::UNIX_EPOCH));
        server.bmc_address = "https://192.0.2.7".to_owned();
        let state = states.of(&server);
        assert!(Arc::ptr_eq(&state, &states.of(&server)));
        server.bmc_address = "https://192.0.2.8".to_owned();
        assert!(!Arc::ptr_eq(&state, &states.of(&server)));
    }

    #[test]
    fn the_end_of_an_older_session_does_not_forget_the_newer_one() {
        let state = BmcStates::new(LimitOptions::usual(), 4)
            .of(&Server::unknown("S-1".parse().unwrap(), Time::from_timestamp(jiff::Timestamp::UNIX_EPOCH)));
        state.session_opened("/1");
        state.session_opened("/2");
        assert!(!state.session_closed("/1"));
        assert!(state.session_closed("/2"));
        assert!(state.session_closed("/0"), "one of a former incarnation");
    }
}
