//! Authentication: Basic credentials or a session token, session limit, session timeout and account lock-out.
//!
//! ```text
//!   POST Sessions ──► open ──(each use: last_used = now)──► DELETE, or unused for `timeout` ──► closed
//!   wrong password × lockout_after ──► locked for lockout_time (right passwords are refused too)
//! ```
//!
//! Invariants: at most `limit` sessions; a token is compared in constant time and shown only in the login response.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{StatusCode, header};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::{call::Call, config::SimBmcConfig, reply::ErrorReply};

/// One open session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u64,
    token: String,
    last_used: Instant,
}

/// Open sessions and the lock-out of the account.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: Vec<Session>,
    opened: u64,
    failures: u32,
    locked_until: Option<Instant>,
}

impl Sessions {
    /// Closes sessions that timed out.
    pub(super) fn prune(&mut self, config: &SimBmcConfig, now: Instant) {
        self.open.retain(|session| now.duration_since(session.last_used) < config.session.timeout);
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.open.iter().map(|session| session.id)
    }

    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.open.iter().any(|session| session.id == id)
    }

    pub(super) fn close(&mut self, id: u64) {
        self.open.retain(|session| session.id != id);
    }

    /// Ends all sessions, as a restart of the BMC does.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// Opens a session and returns its id and token.
    pub(super) fn login(
        &mut self,
        config: &SimBmcConfig,
        username: &str,
        password: &str,
        now: Instant,
    ) -> Result<(u64, String), ErrorReply> {
        self.check_password(config, username, password, now)?;
        if self.open.len() >= config.session.limit {
            return Err(ErrorReply::new(
                StatusCode::SERVICE_UNAVAILABLE,
                &config.session.limit_message,
                "The session establishment failed due to the number of simultaneous sessions exceeding the limit \
                 of the implementation.",
            )
            .resolution("Reduce the number of other sessions before trying to establish the session."));
        }
        self.opened += 1;
        // Derived, not random: a run with equal requests gives equal tokens.
        let mut hash = Sha256::new();
        hash.update(config.password.expose_secret());
        hash.update(config.serial.as_bytes());
        hash.update(self.opened.to_be_bytes());
        let token = hex::encode(hash.finalize());
        self.open.push(Session { id: self.opened, token: token.clone(), last_used: now });
        Ok((self.opened, token))
    }

    /// Checks the credentials of a request.
    pub(super) fn authenticate(
        &mut self,
        config: &SimBmcConfig,
        call: &Call,
        now: Instant,
    ) -> Result<(), ErrorReply> {
        if let Some(token) = call.header("x-auth-token") {
            let session = self
                .open
                .iter_mut()
                .find(|session| bool::from(session.token.as_bytes().ct_eq(token.as_bytes())));
            return match session {
                Some(session) => {
                    session.last_used = now;
                    Ok(())
                }
                None => Err(no_valid_session()),
            };
        }
        let basic = call.header(header::AUTHORIZATION).filter(|_| config.session.basic);
        match basic.and_then(decode_basic) {
            Some((username, password)) => self.check_password(config, &username, &password, now),
            None => Err(no_valid_session()),
        }
    }

    fn check_password(
        &mut self,
        config: &SimBmcConfig,
        username: &str,
        password: &str,
        now: Instant,
    ) -> Result<(), ErrorReply> {
        if self.locked_until.is_some_and(|until| now < until) {
            return Err(denied());
        }
        self.locked_until = None;
        let known = username.as_bytes().ct_eq(config.username.as_bytes())
            & password.as_bytes().ct_eq(config.password.expose_secret().as_bytes());
        if bool::from(known) {
            self.failures = 0;
            return Ok(());
        }
        self.failures = self.failures.saturating_add(1);
        if config.session.lockout_after.is_some_and(|limit| self.failures >= limit) {
            self.failures = 0;
            self.locked_until = Some(now + config.session.lockout_time);
        }
        Err(denied())
    }
}

fn denied() -> ErrorReply {
    ErrorReply::unauthorized(
        "ResourceAtUriUnauthorized",
        "While accessing the resource, the service received an authorization error.",
    )
}

fn no_valid_session() -> ErrorReply {
    ErrorReply::unauthorized(
        "NoValidSession",
        "There is no valid session established with the implementation.",
    )
}

fn decode_basic(value: &str) -> Option<(String, String)> {
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}
