//! The state of a BMC that all its connections share: request limits, the connect lock and the stored session.
//!
//! Jobs and probes open and close connections. However many there are, a BMC has one state, found by its address: two requests
//! in flight, one rate limit, one circuit breaker, one count of rejected logins (decision D17).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use redfish::{GlobalLimit, LimitOptions, RequestLimits};

use model::{Serial, Server};

/// The states of all BMCs.
pub(super) struct BmcStates {
    options: LimitOptions,
    global: GlobalLimit,
    states: Mutex<HashMap<String, Arc<BmcState>>>,
}

/// The state of one BMC.
pub(super) struct BmcState {
    /// The limits of requests to this BMC.
    pub(super) limits: RequestLimits,
    /// Held while a client connects, so that only one client closes the session of a previous controller instance.
    pub(super) connecting: tokio::sync::Mutex<()>,
    /// The URI of the session that is stored for the next controller instance.
    stored: Mutex<Option<String>>,
    /// The user name and the reference of the password in each record with this BMC.
    credentials: Mutex<HashMap<Serial, (String, String)>>,
}

impl BmcStates {
    pub(super) fn new(options: LimitOptions, in_flight: usize) -> Self {
        Self { options, global: GlobalLimit::new(in_flight), states: Mutex::default() }
    }

    /// Returns the state of a server's BMC. Rejected logins are forgotten when the credentials in a record with this BMC were changed. A
    /// further record is no change: the servers of an enclosure share a BMC, and one outdated password would be sent for each of them.
    pub(super) fn of(&self, server: &Server) -> Arc<BmcState> {
        let state = {
            let mut states = self.states.lock();
            let new = || {
                Arc::new(BmcState {
                    limits: RequestLimits::new(self.options, Some(self.global.clone())),
                    connecting: tokio::sync::Mutex::default(),
                    stored: Mutex::default(),
                    credentials: Mutex::default(),
                })
            };
            Arc::clone(states.entry(server.bmc_address.clone()).or_insert_with(new))
        };
        let now = (server.bmc_username.clone(), server.bmc_password.clone());
        let before = state.credentials.lock().insert(server.serial.clone(), now.clone());
        if before.is_some_and(|before| before != now) {
            state.limits.forget_rejections();
        }
        state
    }
}

impl BmcState {
    /// Records a new session. The newest session is the stored one.
    pub(super) fn session_opened(&self, uri: &str) {
        *self.stored.lock() = Some(uri.to_owned());
    }

    /// Returns whether the closed session was the stored one. The end of an older session does not delete a newer one.
    pub(super) fn session_closed(&self, uri: &str) -> bool {
        let mut stored = self.stored.lock();
        let ours = stored.as_deref().is_none_or(|stored| stored == uri);
        if ours {
            *stored = None;
        }
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Time;

    #[test]
    fn each_bmc_address_has_one_state() {
        let states = BmcStates::new(LimitOptions::recommended(), 4);
        let mut server =
            Server::unknown("S-1".parse().unwrap(), Time::from_timestamp(jiff::Timestamp::UNIX_EPOCH));
        server.bmc_address = "https://192.0.2.7".to_owned();
        let state = states.of(&server);
        assert!(Arc::ptr_eq(&state, &states.of(&server)));
        server.bmc_address = "https://192.0.2.8".to_owned();
        assert!(!Arc::ptr_eq(&state, &states.of(&server)));
    }

    #[tokio::test]
    async fn rejected_logins_are_forgotten_when_a_record_has_other_credentials_and_not_for_another_record() {
        let states = BmcStates::new(LimitOptions::recommended(), 4);
        let server = |serial: &str, password: &str| Server {
            bmc_address: "https://192.0.2.7".to_owned(),
            bmc_password: password.to_owned(),
            ..Server::unknown(serial.parse().unwrap(), Time::from_timestamp(jiff::Timestamp::UNIX_EPOCH))
        };
        let limits = || states.of(&server("S-1", "sealed:a")).limits.clone();
        limits().login_rejected();
        limits().login_rejected();
        assert!(limits().is_login_blocked());
        for blade in ["S-2", "S-3", "S-2"] {
            states.of(&server(blade, "sealed:b"));
        }
        let labelled = Server { revision: 7, ..server("S-1", "sealed:a") };
        assert!(states.of(&labelled).limits.is_login_blocked());
        assert!(!states.of(&server("S-3", "sealed:c")).limits.is_login_blocked());
    }

    #[test]
    fn closing_an_older_session_keeps_the_newer_one() {
        let state = BmcStates::new(LimitOptions::recommended(), 4)
            .of(&Server::unknown("S-1".parse().unwrap(), Time::from_timestamp(jiff::Timestamp::UNIX_EPOCH)));
        state.session_opened("/1");
        state.session_opened("/2");
        assert!(!state.session_closed("/1"));
        assert!(state.session_closed("/2"));
        assert!(state.session_closed("/0"), "a session of a previous controller instance");
    }
}
