//! Docker's token flow in front of an [`AccessControl`].
//!
//! ```text
//!  client                        registry                          token endpoint
//!  GET /v2/                  ─>  401 Bearer realm, service, scope
//!  GET <realm>?service&scope, Basic credentials                 ─>  the scopes the policy allows, signed, five minutes
//!  GET /v2/…, Bearer <token> ─>  in its scopes, and still allowed: 200
//!                                allowed, not in its scopes: 401 insufficient_scope, the client gets another token
//!                                not allowed: 403, or 401 for an anonymous caller
//! ```
//!
//! A token limits the requests it can be used for. The policy in force is applied again at each use, so removing a
//! right takes effect at once. [`UserAuthenticator::refresh`](super::UserAuthenticator::refresh) decides whether the
//! user of a token still exists; with its default, a removed user keeps access until the token expires. A mount reads its
//! source, so the token needs a scope for it as well; a mount that names no source needs `repository:*:pull`. A client
//! without that scope is challenged only when its user may read a source that has the blob; otherwise an upload starts.
//!
//! Basic credentials are accepted at every endpoint as well, and what anonymous callers may do needs no token, nor a
//! scope of one.
//!
//! The credentials that clients send to the token endpoint must not travel less protected than the request that was
//! refused. So where the scheme of the client's own connection is unknown ([`Realm::AsReached`]), the challenge is
//! `Basic`: the client then sends its credentials where it sent the request.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use uuid::Uuid;

use super::control::AccessControl;
use super::credentials::Credentials;
use super::policy::PolicySubject;
use super::scope::Scope;
use super::token::{Signer, SigningKeys, seconds};
use super::{Access, Action, Audit, Authorizer, BASIC, Caller, ClientScheme, Denied, NoAudit};
use crate::name::{RepositoryName, Tag};

/// The path of the token endpoint. `/v2/token` is no path of the distribution API, whatever names repositories have.
pub(super) const PATH: &str = "/v2/token";

/// The address of the token endpoint in challenges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Realm {
    /// Below this address, such as `https://registry.example.org`.
    At(String),
    /// The endpoint at the host of the request, by `http`. Only for a program that has no TLS proxy in front of it.
    SameHost,
    /// The endpoint at the host of the request, by `https`.
    SameHostTls,
    /// The endpoint at the host of the request, by the scheme of the client's own connection; `Basic` where that is unknown. See
    /// [`Caller::scheme`].
    AsReached {
        /// A host, with its port if that is not 80, that clients reach by plain `http`, as the operator says.
        plain: Option<String>,
    },
}

/// Settings of issued tokens.
#[derive(Clone)]
pub struct TokenOptions {
    /// The service in the tokens. Default `shoal`.
    pub service: String,
    /// The address of the token endpoint. Default [`Realm::SameHost`].
    pub realm: Realm,
    /// The lifetime of a token. Default 5 min; clients expect a minute at least.
    pub lifetime: Duration,
    /// The signing keys; by default one random key of this process, so that tokens end with the process.
    pub keys: SigningKeys,
    /// The clock. Default the system's.
    pub clock: fn() -> SystemTime,
}

impl Default for TokenOptions {
    fn default() -> Self {
        let mut key = [0; 32];
        for half in key.chunks_mut(16) {
            half.copy_from_slice(Uuid::new_v4().as_bytes());
        }
        TokenOptions {
            service: "shoal".to_owned(),
            realm: Realm::SameHost,
            lifetime: Duration::from_secs(300),
            keys: Arc::new(move |_now| vec![key]),
            clock: SystemTime::now,
        }
    }
}

impl fmt::Debug for TokenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenOptions")
            .field("service", &self.service)
            .field("realm", &self.realm)
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

/// Issues and verifies tokens. See [`TokenAuthority::token_router`].
pub struct TokenAuthority {
    pub(super) control: AccessControl,
    signer: Signer,
    realm: Realm,
    lifetime: Duration,
    clock: fn() -> SystemTime,
}

/// The token a caller presented, if it is one of this authority.
enum PresentedToken {
    /// A valid token with its subject and scopes.
    Token(PolicySubject, Vec<Scope>),
    /// An expired token of this authority. It was valid once, so it is no attempt at guessing.
    Expired,
    /// Other credentials, or none.
    Other,
}

/// An issued token with its lifetime in seconds.
pub(super) struct Issued {
    pub(super) token: String,
    pub(super) expires_in: u64,
    pub(super) issued_at: u64,
}

impl TokenAuthority {
    /// Creates an authority for the users and the policy of `control`.
    pub fn new(control: AccessControl, options: TokenOptions) -> Self {
        let TokenOptions { service, realm, lifetime, keys, clock } = options;
        TokenAuthority { control, signer: Signer::new(keys, service), realm, lifetime, clock }
    }

    /// The users and the policy.
    pub fn control(&self) -> &AccessControl {
        &self.control
    }

    /// The token endpoint, `/v2/token`; to be merged into the router of the distribution API.
    pub fn token_router(self: &Arc<Self>) -> axum::Router {
        self.audited_token_router(Arc::new(NoAudit))
    }

    /// The token endpoint, which records every refusal of credentials in `audit`.
    pub fn audited_token_router(self: &Arc<Self>, audit: Arc<dyn Audit>) -> axum::Router {
        super::token_endpoint::router(Arc::clone(self), audit)
    }

    pub(super) fn service(&self) -> &str {
        self.signer.service()
    }

    /// Issues a token with those of the `asked` scopes that the policy allows, possibly none. An anonymous caller receives
    /// one wherever the policy gives anonymous callers any right: most clients give up without a token, and do not send
    /// the request that would have been allowed.
    pub(super) fn issue(&self, subject: &PolicySubject, asked: Vec<Scope>) -> Result<Issued, Denied> {
        if *subject == PolicySubject::Anonymous && !self.control.policy().allows_anonymous() {
            return Err(Denied::Unauthorized);
        }
        let may = |access: Access<'_>| self.control.check_policy(subject, access).is_ok();
        let allowed: Vec<Scope> = asked.iter().filter_map(|scope| scope.limited_to(may)).collect();
        let now = (self.clock)();
        let token = self.signer.sign(subject, allowed, now, self.lifetime);
        Ok(Issued { token, expires_in: self.lifetime.as_secs(), issued_at: seconds(now) })
    }

    fn presented(&self, caller: Caller<'_>) -> PresentedToken {
        let Some(Credentials::Bearer(token)) = caller.authorization.and_then(Credentials::parse) else {
            return PresentedToken::Other;
        };
        match self.signer.verify(token.expose(), (self.clock)()) {
            Some((subject, scopes)) => PresentedToken::Token(subject, scopes),
            None if self.signer.issued(token.expose(), (self.clock)()) => PresentedToken::Expired,
            None => PresentedToken::Other,
        }
    }

    async fn subject(&self, caller: Caller<'_>) -> Result<PolicySubject, Denied> {
        match self.presented(caller) {
            PresentedToken::Token(subject, _) => self.control.refresh(subject).await,
            PresentedToken::Expired => Err(Denied::Unauthorized),
            PresentedToken::Other => self.control.subject(caller).await,
        }
    }

    /// The address of the token endpoint for this caller; `None` where its scheme is unknown.
    fn address(&self, caller: Caller<'_>) -> Option<String> {
        // A name, an address, a port; other characters could end the quoted string.
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        let named = caller.host.filter(|host| !host.is_empty() && host.bytes().all(legal));
        let host = named.unwrap_or("localhost");
        let https = || format!("https://{host}{PATH}");
        let http = || format!("http://{host}{PATH}");
        match &self.realm {
            Realm::At(base) => Some(format!("{}{PATH}", base.trim_end_matches('/'))),
            Realm::SameHost => Some(http()),
            Realm::SameHostTls => Some(https()),
            Realm::AsReached { plain } => match caller.scheme {
                ClientScheme::Https => Some(https()),
                ClientScheme::LocalHttp => Some(http()),
                ClientScheme::Unmarked if named.is_some() && named == plain.as_deref() => Some(http()),
                ClientScheme::Unmarked | ClientScheme::Proxied => None,
            },
        }
    }
}

#[async_trait]
impl Authorizer for TokenAuthority {
    async fn authorize(&self, caller: Caller<'_>, access: Access<'_>) -> Result<(), Denied> {
        match self.presented(caller) {
            PresentedToken::Token(subject, scopes) => {
                self.control.check_policy(&self.control.refresh(subject).await?, access)?;
                let is_version_check = access.repository.is_none() && access.action == Action::Pull;
                let without_token = || self.control.check_policy(&PolicySubject::Anonymous, access).is_ok();
                let covered = is_version_check
                    || scopes.iter().any(|scope| scope.covers(access))
                    || (access.repository.is_some() && without_token());
                return if covered { Ok(()) } else { Err(Denied::OutOfScope) };
            }
            PresentedToken::Expired => return Err(Denied::Unauthorized),
            PresentedToken::Other => {}
        }
        if caller.authorization.is_none() && access.repository.is_none() {
            // Clients ask here for the challenge, and would not receive one with a 200.
            return Err(Denied::Unauthorized);
        }
        self.control.authorize(caller, access).await
    }

    async fn readable<'r>(
        &self,
        caller: Caller<'_>,
        repositories: &[&'r RepositoryName],
    ) -> Vec<&'r RepositoryName> {
        match self.subject(caller).await {
            Ok(subject) => self.control.readable_by(&subject, repositories),
            Err(_) => Vec::new(),
        }
    }

    fn immutable(&self, repository: &RepositoryName, tag: &Tag) -> bool {
        self.control.immutable(repository, tag)
    }

    async fn identify(&self, caller: Caller<'_>) -> Option<String> {
        self.subject(caller).await.ok()?.into_name()
    }

    fn challenge(&self, caller: Caller<'_>, wanted: &[Access<'_>]) -> String {
        let Some(realm) = self.address(caller) else { return BASIC.to_owned() };
        let service = self.service();
        let mut challenge = format!("Bearer realm=\"{realm}\",service=\"{service}\"");
        let scope = Scope::wanted(wanted);
        if !scope.is_empty() {
            challenge.push_str(&format!(",scope=\"{scope}\""));
        }
        if let Some(Credentials::Bearer(_)) = caller.authorization.and_then(Credentials::parse) {
            let known = matches!(self.presented(caller), PresentedToken::Token(..));
            let error = if known { "insufficient_scope" } else { "invalid_token" };
            challenge.push_str(&format!(",error=\"{error}\""));
        }
        challenge
    }
}
