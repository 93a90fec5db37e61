//! Who we are towards a BMC: one session that is reused, or Basic where there are none.
//!
//! ```text
//!               login 201 + token                     401 (token expired)
//!   unknown  ---------------------->  session  --------------------------->  unknown (one login, one replay)
//!      |                                 `-- logout: DELETE --------------->  unknown
//!      `-- no sessions / refused / limit reached ---->  basic   (remembered)
//! ```
//!
//! A wrong password is not tried again and again: after two rejections within ten minutes nothing is sent, so
//! that the account is not locked (some BMCs lock it after three). Sessions are found through `Links.Sessions` of the service root, which needs
//! no credentials. Passwords and tokens live in secret types and in header values marked sensitive.
//! Specification: DSP0266 13.3 (authentication), 13.3.4 (sessions).

use std::fmt;
use std::pin::Pin;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use crate::discovery::SERVICE_ROOT;
use crate::error::{Denial, ErrorKind, Operation, RedfishError, SESSION_LIMIT_KEYS};
use crate::exchange::{Call, Core};
use crate::json;
use crate::profile::Auth;

/// Longer tokens are not believed.
const MAX_TOKEN: usize = 4096;

/// A BMC account.
#[derive(Clone)]
pub struct Credentials {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: SecretString,
}

impl Credentials {
    /// An account from its parts.
    pub fn new(username: impl Into<String>, password: impl Into<SecretString>) -> Self {
        Credentials { username: username.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// An open session: where to delete it, and its token.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    /// Path of the session resource; empty if the BMC did not name it.
    pub uri: String,
    /// The value of `X-Auth-Token`.
    pub token: SecretString,
}

/// What a request authenticates with.
#[derive(Clone)]
pub(crate) enum Proof {
    Token(SessionHandle),
    Basic(HeaderValue),
}

#[derive(Default)]
enum State {
    #[default]
    Unknown,
    Session(SessionHandle),
    Basic,
}

/// The session of one BMC; behind a lock that is held during a login, so that there is one login at a time.
#[derive(Default)]
pub(crate) struct Session {
    state: State,
    /// Where sessions are made, once it is known.
    collection: Option<String>,
}

impl Session {
    pub(crate) fn handle(&self) -> Option<SessionHandle> {
        match &self.state {
            State::Session(handle) => Some(handle.clone()),
            State::Unknown | State::Basic => None,
        }
    }

    pub(crate) fn adopt(&mut self, handle: SessionHandle) {
        self.state = State::Session(handle);
    }

    /// The open session, no longer used from here on.
    pub(crate) fn take(&mut self) -> Option<SessionHandle> {
        let handle = self.handle();
        if handle.is_some() {
            self.state = State::Unknown;
        }
        handle
    }
}

impl Core {
    /// What the next request authenticates with; logs in when nothing is open.
    pub(crate) async fn proof(&self) -> Result<Proof, RedfishError> {
        let mut session = self.session.lock().await;
        if let State::Session(handle) = &session.state {
            return Ok(Proof::Token(handle.clone()));
        }
        if self.limits.login_blocked() {
            let kind = ErrorKind::Unauthorized { denial: Denial::TooManyRejections, message: String::new() };
            return Err(RedfishError::new(Operation::Login, kind));
        }
        if self.profile().session == Auth::Basic {
            session.state = State::Basic;
        }
        if let State::Unknown = session.state {
            match self.login(&mut session).await? {
                Some(handle) => {
                    self.keeper.opened(&handle);
                    session.state = State::Session(handle.clone());
                    return Ok(Proof::Token(handle));
                }
                None => session.state = State::Basic,
            }
        }
        Ok(Proof::Basic(self.basic()?))
    }

    /// Learns that a proof met 401. True if it is worth asking for another one and trying once more.
    pub(crate) async fn proof_rejected(&self, proof: &Proof) -> bool {
        let mut session = self.session.lock().await;
        match (proof, &session.state) {
            (Proof::Token(used), State::Session(open)) => {
                // Somebody else may have logged in anew meanwhile; then the new token is the one to try.
                if used.token.expose_secret() == open.token.expose_secret() {
                    session.state = State::Unknown;
                    self.keeper.closed(&used.uri);
                }
                true
            }
            (Proof::Token(_), _) => true,
            (Proof::Basic(_), _) => {
                self.limits.login_rejected();
                false
            }
        }
    }

    /// Opens a session; none when this BMC has none to give.
    async fn login(&self, session: &mut Session) -> Result<Option<SessionHandle>, RedfishError> {
        if session.collection.is_none() {
            session.collection = self.session_collection().await?;
        }
        let Some(path) = session.collection.clone() else { return Ok(None) };
        let profile = self.profile();
        if profile.session == Auth::Basic {
            return Ok(None);
        }
        let mut body = json!({
            "UserName": self.credentials.username,
            "Password": self.credentials.password.expose_secret(),
        });
        if !profile.login_oem.is_empty() {
            body["Oem"] = profile.login_oem.clone().into();
        }
        let call = Call::mutation(Operation::Login, Method::POST, &path, profile.login_timeout)
            .body(&body)
            .harmless();
        let answer = self.transmit(&call, None, 1).await?;
        if answer.status.is_success() {
            let token = answer.headers.get("x-auth-token").filter(|token| token.len() <= MAX_TOKEN);
            let Some(token) = token.and_then(|token| token.to_str().ok()) else { return Ok(None) };
            let location = answer.headers.get(http::header::LOCATION).and_then(|uri| uri.to_str().ok());
            let in_body =
                || json::object(&answer.body).ok().and_then(|fields| json::word(&fields, "@odata.id"));
            let uri =
                location.and_then(json::path_of).or_else(|| in_body().and_then(|uri| json::path_of(&uri)));
            return Ok(Some(SessionHandle { uri: uri.unwrap_or_default(), token: token.to_owned().into() }));
        }
        let error = self.refusal(Operation::Login, &answer, &[]);
        match &error.kind {
            ErrorKind::Unauthorized { denial: Denial::Credentials, .. } => {
                self.limits.login_rejected();
                Err(error)
            }
            ErrorKind::Unauthorized { .. } | ErrorKind::License { .. } => Err(error),
            // All sessions are taken, or there are none in spite of the link: Basic needs none.
            _ if answer.error().has_key(&SESSION_LIMIT_KEYS) => Ok(None),
            ErrorKind::NotSupported { .. } | ErrorKind::NotFound { .. } => {
                self.choice.learn(|learned| learned.basic_only = true);
                Ok(None)
            }
            _ if answer.status.is_client_error() && answer.status != StatusCode::TOO_MANY_REQUESTS => {
                Ok(None)
            }
            _ => Err(error),
        }
    }

    /// Boxed, because a login reads the service root by the same way by which reads log in.
    fn session_collection(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<Option<String>, RedfishError>> + Send + '_>> {
        Box::pin(self.find_session_collection())
    }

    /// The collection in which sessions are made, found without credentials.
    async fn find_session_collection(&self) -> Result<Option<String>, RedfishError> {
        let root = match self.read_open(Operation::Login, SERVICE_ROOT).await {
            Ok(root) => self.root_seen(root),
            // A root behind authentication, against the specification, cannot tell: Basic it is.
            Err(error) if matches!(error.kind, ErrorKind::Unauthorized { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let linked = json::member(&root.fields, "Links").and_then(|links| json::link(links, "Sessions"));
        if linked.is_some() {
            return Ok(linked);
        }
        let Some(service) = json::link(&root.fields, "SessionService") else { return Ok(None) };
        match self.read_open(Operation::Login, &service).await {
            Ok(service) => Ok(json::link(&service.fields, "Sessions")),
            Err(error) if error.is_transient() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Deletes a session with its own token, and has it forgotten.
    pub(crate) async fn delete_session(&self, handle: &SessionHandle) -> Result<(), RedfishError> {
        self.delete_session_as(handle, &Proof::Token(handle.clone())).await?;
        self.keeper.closed(&handle.uri);
        Ok(())
    }

    /// Deletes a session of this account, which may be gone already.
    pub(crate) async fn delete_session_as(
        &self,
        handle: &SessionHandle,
        proof: &Proof,
    ) -> Result<(), RedfishError> {
        if handle.uri.is_empty() {
            return Ok(());
        }
        let call =
            Call::mutation(Operation::Logout, Method::DELETE, &handle.uri, self.profile().login_timeout)
                .unfenced();
        let answer = self.transmit(&call, Some(proof), 1).await?;
        let gone = matches!(answer.status.as_u16(), 401 | 404 | 410);
        if answer.status.is_success() || gone {
            return Ok(());
        }
        Err(self.refusal(Operation::Logout, &answer, &[]))
    }

    fn basic(&self) -> Result<HeaderValue, RedfishError> {
        let pair = format!("{}:{}", self.credentials.username, self.credentials.password.expose_secret());
        let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).map_err(|_| {
            let detail = "the credentials do not fit into a header".to_owned();
            RedfishError::new(Operation::Login, ErrorKind::Config { detail })
        })?;
        value.set_sensitive(true);
        Ok(value)
    }
}
