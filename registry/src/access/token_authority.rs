//! Docker's token flow before an [`AccessControl`].
//!
//! ```text
//!  client                        registry                          token endpoint
//!  GET /v2/                  ─>  401 Bearer realm, service, scope
//!  GET <realm>?service&scope, Basic credentials                 ─>  the scopes the policy allows, signed, five minutes
//!  GET /v2/…, Bearer <token> ─>  in its scopes, and still allowed: served
//!                                allowed, not in its scopes: 401 insufficient_scope, get another
//!                                not allowed: 403, or 401 for nobody in particular
//! ```
//!
//! A token narrows what a request may be directed at. The policy in force is asked again at each use, so a right that was
//! taken away ends at once. Whether its user is still there is the [`Authenticator`](super::Authenticator)'s to say; one that
//! does not ask again lets a user who was removed go on until the token ends. Where a mount takes its blob from is
//! decided by what the token's user may read, as with any other way of logging in: the client that mounts without
//! naming a source cannot know which scope to ask for.
//!
//! Basic credentials are taken at every endpoint as well, and reading what everybody may read needs no token.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use uuid::Uuid;

use super::control::AccessControl;
use super::credentials::Credentials;
use super::policy::Subject;
use super::scope::Scope;
use super::token::{Signer, seconds};
use super::{Access, Action, Audit, Authorizer, Caller, Denied, NoAudit};
use crate::name::{RepositoryName, Tag};

/// Where the token endpoint is. `token` alone is no path of the distribution API, whatever repositories are called.
pub(super) const PATH: &str = "/v2/token";

/// How clients are told to reach the token endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Realm {
    /// Below this address, such as `https://registry.example.org`.
    At(String),
    /// At whatever host the client asked for, by `http`.
    SameHost,
    /// At whatever host the client asked for, by `https`.
    SameHostTls,
}

/// How tokens are made.
#[derive(Clone)]
pub struct TokenOptions {
    /// The service they are for. Default `shoal`.
    pub service: String,
    /// Where clients get them. Default [`Realm::SameHost`].
    pub realm: Realm,
    /// How long they live. Default 5 min; clients expect a minute at least.
    pub lifetime: Duration,
    /// What signs them; by default a key of this process, so that tokens end with it.
    pub key: [u8; 32],
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
            key,
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

/// Gives out tokens and takes them. See [`TokenAuthority::token_router`].
pub struct TokenAuthority {
    pub(super) control: AccessControl,
    signer: Signer,
    realm: Realm,
    lifetime: Duration,
    clock: fn() -> SystemTime,
}

/// What a caller shows, as far as our tokens go.
enum Shown {
    /// One of them: whose, and its scopes.
    Token(Subject, Vec<Scope>),
    /// One whose time is over. It was right once, so that showing it is no attempt at guessing.
    Spent,
    /// Something else, or nothing.
    Other,
}

/// A token as it is handed out.
pub(super) struct Issued {
    pub(super) token: String,
    pub(super) expires_in: u64,
    pub(super) issued_at: u64,
}

impl TokenAuthority {
    /// Tokens for the users and by the policy of `control`.
    pub fn new(control: AccessControl, options: TokenOptions) -> Self {
        let TokenOptions { service, realm, lifetime, key, clock } = options;
        TokenAuthority { control, signer: Signer::new(key, service), realm, lifetime, clock }
    }

    /// Users and policy.
    pub fn control(&self) -> &AccessControl {
        &self.control
    }

    /// The token endpoint, `/v2/token`; to be merged into the router that has the distribution API.
    pub fn token_router(self: &Arc<Self>) -> axum::Router {
        self.audited_token_router(Arc::new(NoAudit))
    }

    /// The same, telling `audit` of every refusal of credentials.
    pub fn audited_token_router(self: &Arc<Self>, audit: Arc<dyn Audit>) -> axum::Router {
        super::token_endpoint::router(Arc::clone(self), audit)
    }

    pub(super) fn service(&self) -> &str {
        self.signer.service()
    }

    /// A token with what of `asked` the subject may do. Nobody in particular gets one only if there is something to do
    /// with it, so that a client that has credentials learns to show them.
    pub(super) fn issue(&self, subject: &Subject, asked: Vec<Scope>) -> Result<Issued, Denied> {
        let may = |access: Access<'_>| self.control.judge(subject, access).is_ok();
        let nothing_asked = asked.is_empty();
        let allowed: Vec<Scope> = asked.iter().filter_map(|scope| scope.limited_to(may)).collect();
        if *subject == Subject::Anonymous {
            let welcome = self.control.policy().allows_anonymous();
            if !welcome || (allowed.is_empty() && !nothing_asked) {
                return Err(Denied::Unauthorized);
            }
        }
        let now = (self.clock)();
        let token = self.signer.sign(subject, allowed, now, self.lifetime);
        Ok(Issued { token, expires_in: self.lifetime.as_secs(), issued_at: seconds(now) })
    }

    fn shown(&self, caller: Caller<'_>) -> Shown {
        let Some(Credentials::Bearer(token)) = caller.authorization.and_then(Credentials::parse) else {
            return Shown::Other;
        };
        match self.signer.verify(token.expose(), (self.clock)()) {
            Some((subject, scopes)) => Shown::Token(subject, scopes),
            None if self.signer.made(token.expose()) => Shown::Spent,
            None => Shown::Other,
        }
    }

    async fn subject(&self, caller: Caller<'_>) -> Result<Subject, Denied> {
        match self.shown(caller) {
            Shown::Token(subject, _) => self.control.refresh(subject).await,
            Shown::Spent => Err(Denied::Unauthorized),
            Shown::Other => self.control.subject(caller).await,
        }
    }

    fn address(&self, caller: Caller<'_>) -> String {
        // A name, an address, a port; anything else would be somebody's attempt to leave the quotes.
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        let host = caller.host.filter(|host| host.bytes().all(legal)).unwrap_or("localhost");
        match &self.realm {
            Realm::At(base) => format!("{}{PATH}", base.trim_end_matches('/')),
            Realm::SameHost => format!("http://{host}{PATH}"),
            Realm::SameHostTls => format!("https://{host}{PATH}"),
        }
    }
}

#[async_trait]
impl Authorizer for TokenAuthority {
    async fn authorize(&self, caller: Caller<'_>, access: Access<'_>) -> Result<(), Denied> {
        match self.shown(caller) {
            Shown::Token(subject, scopes) => {
                self.control.judge(&self.control.refresh(subject).await?, access)?;
                let knocks = access.repository.is_none() && access.action == Action::Pull;
                let covered = knocks || scopes.iter().any(|scope| scope.covers(access));
                return if covered { Ok(()) } else { Err(Denied::Unauthorized) };
            }
            Shown::Spent => return Err(Denied::Unauthorized),
            Shown::Other => {}
        }
        if caller.authorization.is_none() && access.repository.is_none() {
            // Clients ask here how to log in, and would never learn it from a 200.
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
        let (realm, service) = (self.address(caller), self.service());
        let mut challenge = format!("Bearer realm=\"{realm}\",service=\"{service}\"");
        let scope = Scope::wanted(wanted);
        if !scope.is_empty() {
            challenge.push_str(&format!(",scope=\"{scope}\""));
        }
        if let Some(Credentials::Bearer(_)) = caller.authorization.and_then(Credentials::parse) {
            let known = matches!(self.shown(caller), Shown::Token(..));
            let error = if known { "insufficient_scope" } else { "invalid_token" };
            challenge.push_str(&format!(",error=\"{error}\""));
        }
        challenge
    }
}
