//! Credentials of an account, and the state of the authentication at one BMC.

use std::fmt;

use http::HeaderValue;
use secrecy::SecretString;

/// A BMC account.
#[derive(Clone)]
pub struct BmcCredentials {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: SecretString,
}

impl BmcCredentials {
    /// Creates credentials from user name and password.
    pub fn new(username: impl Into<String>, password: impl Into<SecretString>) -> Self {
        BmcCredentials { username: username.into(), password: password.into() }
    }
}

impl fmt::Debug for BmcCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BmcCredentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// An open session: its path and its token.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    /// Path of the session resource; empty if the BMC did not name it.
    pub uri: String,
    /// The value of `X-Auth-Token`.
    pub token: SecretString,
}

/// The credential of one request: session token or Basic header.
#[derive(Clone)]
pub(crate) enum RequestAuth {
    Token(SessionHandle),
    Basic(HeaderValue),
}

/// The authentication of requests at present.
#[derive(Default)]
pub(crate) enum AuthState {
    #[default]
    Unknown,
    Session(SessionHandle),
    Basic,
}

/// The session of one BMC; its lock is held during a login, so that there is one login at a time.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) state: AuthState,
    /// Path of the collection of sessions, once it is known.
    pub(crate) collection: Option<String>,
    /// Whether Basic is switched off at the BMC: the profile chooses Basic, and the BMC refused it without offering it.
    pub(crate) basic_off: bool,
}

impl Session {
    pub(crate) fn handle(&self) -> Option<SessionHandle> {
        match &self.state {
            AuthState::Session(handle) => Some(handle.clone()),
            AuthState::Unknown | AuthState::Basic => None,
        }
    }

    pub(crate) fn adopt(&mut self, handle: SessionHandle) {
        self.state = AuthState::Session(handle);
    }

    /// Removes and returns the open session.
    pub(crate) fn take(&mut self) -> Option<SessionHandle> {
        let handle = self.handle();
        if handle.is_some() {
            self.state = AuthState::Unknown;
        }
        handle
    }
}
