//! Authentication at a BMC: one session that is reused, or Basic where the BMC offers no session.
//!
//! ```text
//!               login 201 + token                     401 (token expired)
//!   unknown  ---------------------->  session  --------------------------->  unknown (one login, one retry)
//!      |                                 `-- logout: DELETE --------------->  unknown
//!      `-- no sessions / refused / limit reached ---->  basic   (for the life of the handle)
//!      `-- the profile says so ---------------------->  basic   --- 401 that does not offer Basic ---> unknown (one login)
//! ```
//!
//! After two rejected logins within ten minutes no login is sent, so that the account is not locked (some BMCs lock
//! it after three). Sessions are found through `Links.Sessions` of the service root, which needs no credentials.
//! Passwords and tokens are held in secret types and in header values marked sensitive. The state is in
//! [`crate::credentials`].
//! Specification: DSP0266 13.3 (authentication), 13.3.4 (sessions).

use std::pin::Pin;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use secrecy::ExposeSecret;
use serde_json::json;

use crate::credentials::{AuthState, RequestAuth, Session, SessionHandle};
use crate::endpoint::SERVICE_ROOT;
use crate::error::{DenialReason, ErrorKind, Operation, RedfishError, SESSION_LIMIT_KEYS};
use crate::exchange::{Call, Core};
use crate::json;
use crate::profile::Auth;

/// Maximum length of a session token; a longer one is ignored.
const MAX_TOKEN: usize = 4096;

impl Core {
    /// Returns the credential for the next request; logs in when no session is open.
    pub(crate) async fn request_auth(&self) -> Result<RequestAuth, RedfishError> {
        let mut session = self.session.lock().await;
        if let AuthState::Session(handle) = &session.state {
            return Ok(RequestAuth::Token(handle.clone()));
        }
        if self.limits.is_login_blocked() {
            let kind =
                ErrorKind::Unauthorized { denial: DenialReason::TooManyRejections, message: String::new() };
            return Err(RedfishError::new(Operation::Login, kind));
        }
        if self.profile().session == Auth::Basic && !session.basic_off {
            session.state = AuthState::Basic;
        }
        if let AuthState::Unknown = session.state {
            match self.login(&mut session).await? {
                Some(handle) => {
                    // First: a request that is dropped while the keeper stores the session leaves it in use, not lost.
                    session.state = AuthState::Session(handle.clone());
                    self.keeper.opened(&handle).await;
                    return Ok(RequestAuth::Token(handle));
                }
                None => session.state = AuthState::Basic,
            }
        }
        Ok(RequestAuth::Basic(self.basic()?))
    }

    /// Records that a credential got this 401. Returns whether a new one may succeed.
    ///
    /// A BMC whose Basic is switched off does not offer it in `WWW-Authenticate` (RFC 9110 11.6.1; Redfish: `HTTPBasicAuth`).
    pub(crate) async fn auth_rejected(&self, auth: &RequestAuth, headers: &HeaderMap) -> bool {
        let mut session = self.session.lock().await;
        match (auth, &session.state) {
            (RequestAuth::Basic(_), _)
                if self.profile().session == Auth::Basic && !session.basic_off && !offers_basic(headers) =>
            {
                session.basic_off = true;
                session.state = AuthState::Unknown;
                true
            }
            (RequestAuth::Token(used), AuthState::Session(open)) => {
                // A concurrent request may have logged in again; its token is used then.
                if used.token.expose_secret() == open.token.expose_secret() {
                    session.state = AuthState::Unknown;
                    self.keeper.closed(&used.uri);
                }
                true
            }
            (RequestAuth::Token(_), _) => true,
            (RequestAuth::Basic(_), _) => {
                self.limits.login_rejected();
                false
            }
        }
    }

    /// Opens a session; `None` when the BMC offers none.
    async fn login(&self, session: &mut Session) -> Result<Option<SessionHandle>, RedfishError> {
        if session.collection.is_none() {
            session.collection = self.session_collection().await?;
        }
        let Some(path) = session.collection.clone() else { return Ok(None) };
        let profile = self.profile();
        if profile.session == Auth::Basic && !session.basic_off {
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
            .for_login();
        let response = self.transmit(&call, None, 1).await?;
        if response.status.is_success() {
            let token = response.headers.get("x-auth-token").filter(|token| token.len() <= MAX_TOKEN);
            let Some(token) = token.and_then(|token| token.to_str().ok()) else { return Ok(None) };
            let location = response.headers.get(http::header::LOCATION).and_then(|uri| uri.to_str().ok());
            let in_body =
                || json::object(&response.body).ok().and_then(|fields| json::word(&fields, "@odata.id"));
            let uri =
                location.and_then(json::path_of).or_else(|| in_body().and_then(|uri| json::path_of(&uri)));
            return Ok(Some(SessionHandle { uri: uri.unwrap_or_default(), token: token.to_owned().into() }));
        }
        let error = self.refusal(Operation::Login, &response, &[]);
        match &error.kind {
            ErrorKind::Unauthorized { denial: DenialReason::Credentials, .. } => {
                self.limits.login_rejected();
                // The BMC may have counted the attempt by Basic too.
                if session.basic_off {
                    self.limits.login_rejected();
                }
                Err(error)
            }
            ErrorKind::Unauthorized { .. } | ErrorKind::License { .. } => Err(error),
            // All sessions are in use, or there are none despite the link: Basic is used instead.
            _ if response.error().has_key(&SESSION_LIMIT_KEYS) => Ok(None),
            ErrorKind::NotSupported { .. } | ErrorKind::NotFound { .. } => {
                self.active_profile.learn(|learned| learned.basic_only = true);
                Ok(None)
            }
            _ if response.status.is_client_error() && response.status != StatusCode::TOO_MANY_REQUESTS => {
                Ok(None)
            }
            _ => Err(error),
        }
    }

    /// Boxed, because the future is recursive: a login reads the service root, and reads may log in.
    fn session_collection(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<Option<String>, RedfishError>> + Send + '_>> {
        Box::pin(self.find_session_collection())
    }

    /// Finds the collection of sessions without credentials.
    async fn find_session_collection(&self) -> Result<Option<String>, RedfishError> {
        let root = match self.read_open(Operation::Login, SERVICE_ROOT).await {
            Ok(root) => self.store_root(root),
            // The root requires authentication, against the specification: Basic is used.
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

    /// Deletes a session with its own token, and reports that to the keeper.
    pub(crate) async fn delete_session(&self, handle: &SessionHandle) -> Result<(), RedfishError> {
        self.delete_session_as(handle, &RequestAuth::Token(handle.clone())).await?;
        self.keeper.closed(&handle.uri);
        Ok(())
    }

    /// Deletes a session of this account; a session that no longer exists counts as deleted.
    pub(crate) async fn delete_session_as(
        &self,
        handle: &SessionHandle,
        auth: &RequestAuth,
    ) -> Result<(), RedfishError> {
        if handle.uri.is_empty() {
            return Ok(());
        }
        let call =
            Call::mutation(Operation::Logout, Method::DELETE, &handle.uri, self.profile().login_timeout)
                .unfenced();
        let response = self.transmit(&call, Some(auth), 1).await?;
        let gone = matches!(response.status.as_u16(), 401 | 404 | 410);
        if response.status.is_success() || gone {
            return Ok(());
        }
        Err(self.refusal(Operation::Logout, &response, &[]))
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

/// Whether a 401 names Basic as a way to authenticate.
fn offers_basic(headers: &HeaderMap) -> bool {
    let challenges = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    challenges.flat_map(|value| value.split([',', ' '])).any(|word| word.eq_ignore_ascii_case("basic"))
}
