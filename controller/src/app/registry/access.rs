//! Access to the registry: users, API tokens and jobs of the controller, users of an htpasswd file, and the policy over both.
//!
//! ```text
//!  Basic name:password   the file has the name ──> bcrypt                     group htpasswd
//!  all other             crate::auth           ──> a role                     group admin or reader
//!                                                  the pull token of a job    one repository, nothing else
//!  Bearer of a job       checked at each use: the pull grant of the job is still open
//! ```
//!
//! Administrators have full access except that immutable tags cannot be moved or deleted. Where no rule applies, every other
//! authenticated user may pull; further rights come from a rule or a setting. No rule applies to the token of a job, so no
//! rule can extend its rights.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use registry::{
    AccessControl, Audit, Caller, Credentials, Denied, Htpasswd, HtpasswdOptions, Policy, Realm, Registry,
    Rights, Rule, Subject, SubjectPattern, TokenAuthority, TokenOptions,
};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::super::{StartError, setting};
use crate::auth::{
    AuthFailure, AuthMethod, AuthMode, Authenticator, JOB_USERNAME, Principal, PrincipalRights, Role,
    Standing, prove,
};
use crate::config::{Settings, read_rules};
use engine::model::{Clock, RunId, error_chain};
use engine::store::Store;
use secrets::Key;

/// The prefix of a job's id in its subject name.
const JOB_PREFIX: &str = "job ";
/// The group of the users of the htpasswd file.
const HTPASSWD_GROUP: &str = "htpasswd";
/// The interval of checks for a changed rules file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the access control of the registry is built from.
pub(in crate::app) struct RegistryAccess<'a> {
    pub(in crate::app) settings: &'a Settings,
    pub(in crate::app) auth: Arc<Authenticator>,
    pub(in crate::app) store: Store,
    pub(in crate::app) clock: Arc<dyn Clock>,
    pub(in crate::app) token_key: Key,
    pub(in crate::app) audit: Arc<dyn Audit>,
}

/// The router of the registry behind access control, and the watched rules file.
pub(in crate::app) struct GuardedRegistry {
    pub(in crate::app) router: axum::Router,
    pub(in crate::app) rules: Option<AccessRulesFile>,
}

impl RegistryAccess<'_> {
    /// Builds the router of the registry behind access control.
    pub(in crate::app) async fn guard(self, registry: &Registry) -> Result<GuardedRegistry, StartError> {
        let settings = self.settings;
        let file = match &settings.registry_htpasswd_file {
            Some(path) => Some(
                Htpasswd::open(path, HtpasswdOptions::default())
                    .await
                    .map_err(setting("use REGISTRY_HTPASSWD_FILE"))?,
            ),
            None => None,
        };
        let users = Arc::new(RegistryUsers { auth: self.auth, store: self.store, clock: self.clock, file });
        let base = policy(settings);
        let mut rules =
            settings.registry_access_file.clone().map(|path| AccessRulesFile::new(path, base.clone()));
        let first = match &mut rules {
            Some(rules) => rules.read().map_err(|problems| problems.join("; ")),
            None => Ok(base),
        };
        let control = AccessControl::new(users, first.map_err(setting("use REGISTRY_ACCESS_FILE"))?);
        if settings.auth_mode == AuthMode::None {
            // Every client has full access, so no token endpoint is needed.
            let router = registry.audited_router(Arc::new(control), self.audit);
            return Ok(GuardedRegistry { router, rules: None });
        }
        let options = TokenOptions {
            realm: realm(settings),
            // Derived from the master key, so that tokens stay valid after a restart.
            key: self.token_key.tag(&[b"bearer"]),
            ..TokenOptions::default()
        };
        let authority = Arc::new(TokenAuthority::new(control, options));
        let router = registry
            .audited_router(Arc::clone(&authority) as _, Arc::clone(&self.audit))
            .merge(authority.audited_token_router(self.audit));
        let rules = rules.map(|rules| AccessRulesFile { authority: Some(authority), ..rules });
        Ok(GuardedRegistry { router, rules })
    }
}

/// The token endpoint that clients use. With an `https` public URL it is there. An `http` one is the operator's word that
/// clients which name its host have no TLS proxy in front of them. Without that, and without a proxy that says that it
/// received TLS, clients send their credentials with each request instead of to a token endpoint: see [`Realm::AsReached`].
fn realm(settings: &Settings) -> Realm {
    match &settings.controller_public_url {
        Some(url) if url.starts_with("https:") => Realm::At(url.clone()),
        Some(url) => Realm::AsReached { plain: plain_host(url) },
        None => Realm::AsReached { plain: None },
    }
}

/// The host and port of an `http` URL, as clients write them in `Host`.
fn plain_host(url: &str) -> Option<String> {
    let rest = url.strip_prefix("http://")?;
    let host = rest.split('/').next()?;
    Some(host.strip_suffix(":80").unwrap_or(host).to_owned())
}

fn policy(settings: &Settings) -> Policy {
    let mut administrators = vec![SubjectPattern::Group(Role::Admin.to_string())];
    if settings.auth_mode == AuthMode::None {
        administrators.push(SubjectPattern::Anonymous);
    }
    Policy {
        administrators,
        authenticated: Rights::READ,
        anonymous_read: settings.registry_anonymous_read,
        anonymous_write: settings.registry_anonymous_write,
        immutable: settings.registry_immutable_tags.clone(),
        ..Policy::default()
    }
}

/// Authenticates users of the controller and of the htpasswd file for the registry.
struct RegistryUsers {
    auth: Arc<Authenticator>,
    store: Store,
    clock: Arc<dyn Clock>,
    file: Option<Htpasswd>,
}

#[async_trait]
impl registry::UserAuthenticator for RegistryUsers {
    async fn authenticate(&self, credentials: &Credentials, caller: Caller<'_>) -> Result<Subject, Denied> {
        if let (Some(file), Credentials::Basic { user, password }) = (&self.file, credentials)
            && user != JOB_USERNAME
            && !crate::auth::is_api_token(password.expose())
            && file.has_user(user).await
        {
            let subject = registry::UserAuthenticator::authenticate(file, credentials, caller).await?;
            prove(Standing::Known);
            return Ok(match subject {
                Subject::User { name, .. } => Subject::User { name, groups: vec![HTPASSWD_GROUP.to_owned()] },
                other => other,
            });
        }
        let header = header(credentials);
        let peer = caller.peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.ip());
        let now = self.clock.now().timestamp();
        match self.auth.authenticate(Some(&header), peer, now).await {
            Ok(principal) => subject(principal),
            Err(AuthFailure::Missing | AuthFailure::Invalid) => Err(Denied::Unauthorized),
            Err(AuthFailure::RateLimited { .. }) => Err(Denied::RateLimited),
            Err(AuthFailure::Unavailable) => Err(Denied::Unavailable),
        }
    }

    async fn refresh(&self, subject: Subject) -> Result<Subject, Denied> {
        let Subject::Puller { name, repository } = &subject else {
            if matches!(subject, Subject::User { .. }) {
                prove(Standing::Known);
            }
            return Ok(subject);
        };
        let run: RunId =
            name.strip_prefix(JOB_PREFIX).and_then(|id| id.parse().ok()).ok_or(Denied::Unauthorized)?;
        match self.store.pull_is_open(run, repository.as_str()).await {
            Ok(true) => {
                prove(Standing::Known);
                Ok(subject)
            }
            Ok(false) => Err(Denied::Unauthorized),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "the pull grant of a job could not be read; its pull is refused");
                Err(Denied::Unavailable)
            }
        }
    }
}

fn subject(principal: Principal) -> Result<Subject, Denied> {
    match (principal.rights, principal.method) {
        (PrincipalRights::Role(role), _) => {
            Ok(Subject::User { name: principal.name, groups: vec![role.to_string()] })
        }
        (PrincipalRights::PullFrom { repository }, AuthMethod::Job { job_id }) => {
            // The registry has no repository with an invalid name.
            let repository = repository.parse().map_err(|_| Denied::Unauthorized)?;
            Ok(Subject::Puller { name: format!("{JOB_PREFIX}{job_id}"), repository })
        }
        (PrincipalRights::PullFrom { .. }, _) => Err(Denied::Unauthorized),
    }
}

/// The `Authorization` header of credentials, which may have been sent in a form.
fn header(credentials: &Credentials) -> Zeroizing<String> {
    Zeroizing::new(match credentials {
        Credentials::Basic { user, password } => {
            let pair = Zeroizing::new(format!("{user}:{}", password.expose()));
            format!("Basic {}", STANDARD.encode(pair.as_bytes()))
        }
        Credentials::Bearer(token) => format!("Bearer {}", token.expose()),
    })
}

/// The rules of `REGISTRY_ACCESS_FILE`, read again when the file changes.
pub(in crate::app) struct AccessRulesFile {
    path: PathBuf,
    /// The policy without the rules of the file.
    base: Policy,
    authority: Option<Arc<TokenAuthority>>,
    stamp: Option<(SystemTime, u64)>,
}

impl AccessRulesFile {
    fn new(path: PathBuf, base: Policy) -> Self {
        Self { path, base, authority: None, stamp: None }
    }

    fn read(&mut self) -> Result<Policy, Vec<String>> {
        // Taken before reading: a change during the read gives another stamp at the next check.
        self.stamp = stamp(&self.path);
        let rules: Vec<Rule> = read_rules(&self.path)?;
        tracing::info!(file = %self.path.display(), rules = rules.len(), "the access rules of the registry were read");
        Ok(Policy { rules, ..self.base.clone() })
    }

    /// Applies changed rules until `stop`. A file with errors changes nothing: a part of the rules could allow what the
    /// rest denies.
    pub(in crate::app) async fn watch(mut self, stop: CancellationToken) {
        while tokio::time::timeout(CHECK_INTERVAL, stop.cancelled()).await.is_err() {
            if stamp(&self.path) == self.stamp {
                continue;
            }
            match (self.read(), &self.authority) {
                (Ok(policy), Some(authority)) => authority.control().set_policy(policy),
                (Ok(_), None) => return,
                (Err(problems), _) => {
                    let problems = problems.join("; ");
                    tracing::error!(
                        problems,
                        "REGISTRY_ACCESS_FILE has errors; the previous access rules stay in force"
                    );
                }
            }
        }
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
