//! Who may do what in the registry: our users, tokens and jobs, those of an htpasswd file, and the policy over both.
//!
//! ```text
//!  Basic name:password   the file has the name ──> bcrypt                     group htpasswd
//!  everything else       crate::auth           ──> a role                     group admin or reader
//!                                                  the pull token of a job    one repository, nothing else
//!  Bearer of our own     asked again at each use: the job still uses media?
//! ```
//!
//! Administrators may do everything everywhere but touch immutable tags. Where no rule fits, everybody known may pull; what
//! more anybody may is a rule or a switch. A job's token is under no rule at all, so that none can give it more.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use registry::{
    AccessControl, Audit, Caller, Credentials, Denied, Htpasswd, HtpasswdOptions, Policy, Realm, Registry,
    Rights, Rule, Subject, TokenAuthority, TokenOptions, Who,
};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::super::{StartError, setting};
use crate::auth::{AuthFailure, AuthMode, Authenticator, Grants, JOB_USERNAME, Method, Principal, Role};
use crate::config::{Settings, read_rules};
use engine::model::{Clock, RunId, error_chain};
use engine::store::Store;
use secrets::Key;

/// What stands before a job's id in its name.
const JOB: &str = "job ";
/// The group of those whom the htpasswd file knows.
const FILE_GROUP: &str = "htpasswd";
/// How often is looked whether the rules changed.
const LOOK: Duration = Duration::from_secs(1);

/// What access is decided with.
pub(in crate::app) struct RegistryAccess<'a> {
    pub(in crate::app) settings: &'a Settings,
    pub(in crate::app) auth: Arc<Authenticator>,
    pub(in crate::app) store: Store,
    pub(in crate::app) clock: Arc<dyn Clock>,
    pub(in crate::app) token_key: Key,
    pub(in crate::app) audit: Arc<dyn Audit>,
}

/// The registry's router, and what keeps its rules up to date.
pub(in crate::app) struct GuardedRegistry {
    pub(in crate::app) router: axum::Router,
    pub(in crate::app) rules: Option<Rules>,
}

impl RegistryAccess<'_> {
    /// Puts access before the registry.
    pub(in crate::app) async fn open(self, registry: &Registry) -> Result<GuardedRegistry, StartError> {
        let settings = self.settings;
        let file = match &settings.registry_htpasswd_file {
            Some(path) => Some(
                Htpasswd::open(path, HtpasswdOptions::default())
                    .await
                    .map_err(setting("use REGISTRY_HTPASSWD_FILE"))?,
            ),
            None => None,
        };
        let users = Arc::new(Users { auth: self.auth, store: self.store, clock: self.clock, file });
        let base = policy(settings);
        let mut rules = settings.registry_access_file.clone().map(|path| Rules::new(path, base.clone()));
        let first = match &mut rules {
            Some(rules) => rules.read().map_err(|problems| problems.join("; ")),
            None => Ok(base),
        };
        let control = AccessControl::new(users, first.map_err(setting("use REGISTRY_ACCESS_FILE"))?);
        if settings.auth_mode == AuthMode::None {
            // Everybody may do everything: there is nothing to log in for.
            let router = registry.audited_router(Arc::new(control), self.audit);
            return Ok(GuardedRegistry { router, rules: None });
        }
        let options = TokenOptions {
            realm: realm(settings),
            // Derived, so that tokens survive a restart.
            key: self.token_key.tag(&[b"bearer"]),
            ..TokenOptions::default()
        };
        let authority = Arc::new(TokenAuthority::new(control, options));
        let router = registry
            .audited_router(Arc::clone(&authority) as _, Arc::clone(&self.audit))
            .merge(authority.audited_token_router(self.audit));
        let rules = rules.map(|rules| Rules { authority: Some(authority), ..rules });
        Ok(GuardedRegistry { router, rules })
    }
}

/// Where clients get tokens: the host they came to, unless there is a proxy that speaks TLS for us.
fn realm(settings: &Settings) -> Realm {
    match &settings.controller_public_url {
        Some(url) if url.starts_with("https:") => Realm::At(url.clone()),
        _ => Realm::SameHost,
    }
}

fn policy(settings: &Settings) -> Policy {
    let mut administrators = vec![Who::Group(Role::Admin.to_string())];
    if settings.auth_mode == AuthMode::None {
        administrators.push(Who::Anonymous);
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

/// Our users and those of the file, as the registry asks for them.
struct Users {
    auth: Arc<Authenticator>,
    store: Store,
    clock: Arc<dyn Clock>,
    file: Option<Htpasswd>,
}

#[async_trait]
impl registry::Authenticator for Users {
    async fn authenticate(&self, credentials: &Credentials, caller: Caller<'_>) -> Result<Subject, Denied> {
        if let (Some(file), Credentials::Basic { user, password }) = (&self.file, credentials)
            && user != JOB_USERNAME
            && !crate::auth::is_api_token(password.expose())
            && file.knows(user).await
        {
            let subject = registry::Authenticator::authenticate(file, credentials, caller).await?;
            return Ok(match subject {
                Subject::User { name, .. } => Subject::User { name, groups: vec![FILE_GROUP.to_owned()] },
                other => other,
            });
        }
        let header = header(credentials);
        let peer = caller.peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.ip());
        let now = self.clock.now().timestamp();
        match self.auth.authenticate(Some(&header), peer, now).await {
            Ok(principal) => subject(principal),
            Err(AuthFailure::Missing | AuthFailure::Invalid) => Err(Denied::Unauthorized),
            Err(AuthFailure::RateLimited { .. } | AuthFailure::Unavailable) => Err(Denied::Unavailable),
        }
    }

    async fn refresh(&self, subject: Subject) -> Result<Subject, Denied> {
        let Subject::Puller { name, repository } = &subject else { return Ok(subject) };
        let run: RunId = name.strip_prefix(JOB).and_then(|id| id.parse().ok()).ok_or(Denied::Unauthorized)?;
        match self.store.pull_is_open(run, repository.as_str()).await {
            Ok(true) => Ok(subject),
            Ok(false) => Err(Denied::Unauthorized),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "whether a job may still pull could not be looked up");
                Err(Denied::Unavailable)
            }
        }
    }
}

fn subject(principal: Principal) -> Result<Subject, Denied> {
    match (principal.grants, principal.method) {
        (Grants::Role(role), _) => Ok(Subject::User { name: principal.name, groups: vec![role.to_string()] }),
        (Grants::PullFrom { repository }, Method::Job { job_id }) => {
            // A name no repository of ours can have is one nothing can be pulled from.
            let repository = repository.parse().map_err(|_| Denied::Unauthorized)?;
            Ok(Subject::Puller { name: format!("{JOB}{job_id}"), repository })
        }
        (Grants::PullFrom { .. }, _) => Err(Denied::Unauthorized),
    }
}

/// The header that presents these credentials: they may have come in a form.
fn header(credentials: &Credentials) -> Zeroizing<String> {
    Zeroizing::new(match credentials {
        Credentials::Basic { user, password } => {
            let pair = Zeroizing::new(format!("{user}:{}", password.expose()));
            format!("Basic {}", STANDARD.encode(pair.as_bytes()))
        }
        Credentials::Bearer(token) => format!("Bearer {}", token.expose()),
    })
}

/// The rules of `REGISTRY_ACCESS_FILE`, followed for as long as the controller runs.
pub(in crate::app) struct Rules {
    path: PathBuf,
    /// The policy but for its rules.
    base: Policy,
    authority: Option<Arc<TokenAuthority>>,
    stamp: Option<(SystemTime, u64)>,
}

impl Rules {
    fn new(path: PathBuf, base: Policy) -> Self {
        Self { path, base, authority: None, stamp: None }
    }

    fn read(&mut self) -> Result<Policy, Vec<String>> {
        // Looked at before reading: what changes meanwhile looks different afterwards.
        self.stamp = stamp(&self.path);
        let rules: Vec<Rule> = read_rules(&self.path)?;
        tracing::info!(file = %self.path.display(), rules = rules.len(), "the registry's rules were read");
        Ok(Policy { rules, ..self.base.clone() })
    }

    /// Puts changed rules in force until `stop`. Rules that cannot be read change nothing: half of them could open what
    /// the other half closes.
    pub(in crate::app) async fn follow(mut self, stop: CancellationToken) {
        while tokio::time::timeout(LOOK, stop.cancelled()).await.is_err() {
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
                        "the registry's rules stay as they were: REGISTRY_ACCESS_FILE has errors"
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
