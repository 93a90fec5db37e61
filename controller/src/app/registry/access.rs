//! Access to the registry: users, API tokens and jobs of the controller, users of an htpasswd file, and the policy over both.
//!
//! ```text
//!  Basic name:password   the file has the name ──> bcrypt                     group htpasswd
//!  all other             access::auth           ──> a role                     group admin, operator or viewer
//!                                                  an API token with limits   its registry scopes, nothing else
//!                                                  the pull token of a job    one repository, nothing else
//!  issued bearer token   checked at each use: user, API token or pull grant still exists, with the rights of now
//! ```
//!
//! Administrators have full access except that immutable tags cannot be moved or deleted. Where no rule applies, every other
//! user with a role of users may pull; further rights come from a rule or a setting. No rule applies to the token of a job or
//! to an API token with limits, so no rule can extend their rights. A report-only token has none.

use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use registry::{
    AccessControl, Audit, Caller, Credentials, Denied, Htpasswd, HtpasswdOptions, Policy, PolicyRule,
    PolicySubject, Realm, Registry, Rights, SubjectPattern, TokenAuthority, TokenOptions,
};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::super::adapters::token_record;
use super::super::{StartError, setting};
use super::waiting::waiting_for_entries;
use access::auth::{
    AuthFailure, AuthMethod, AuthMode, Authenticator, JOB_USERNAME, Principal, PrincipalRights,
    RegistryScope, Role, Standing, prove,
};
use model::{Clock, RunId, error_chain};
use secrets::Key;
use settings::{Settings, read_rules};
use store::Store;

/// The prefix of a job's id in its subject name.
pub(super) const JOB_PREFIX: &str = "job ";
/// The group of the users of the htpasswd file.
const HTPASSWD_GROUP: &str = "htpasswd";
/// The prefix of the group with the id of an API token without limits. No rule can name it: names in rules have no spaces.
const TOKEN_PREFIX: &str = "api token ";
/// The prefix of the group with the mark of a user's password. No rule can name it.
const USER_PREFIX: &str = "password ";
/// The interval of checks for a changed rules file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The parts from which the access control of the registry is built.
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
            let router = waiting_for_entries(registry.audited_router(Arc::new(control), self.audit));
            return Ok(GuardedRegistry { router, rules: None });
        }
        let token_key = self.token_key;
        let options = TokenOptions {
            realm: realm(settings),
            // Derived from the signing key, so that tokens stay valid after a restart and a rotation.
            keys: Arc::new(move |now: SystemTime| {
                let now = jiff::Timestamp::try_from(now).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
                token_key.tags(&[b"bearer"], now)
            }),
            ..TokenOptions::default()
        };
        let authority = Arc::new(TokenAuthority::new(control, options));
        let router = registry
            .audited_router(Arc::clone(&authority) as _, Arc::clone(&self.audit))
            .merge(authority.audited_token_router(self.audit));
        let router = waiting_for_entries(router);
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
    async fn authenticate(
        &self,
        credentials: &Credentials,
        caller: Caller<'_>,
    ) -> Result<PolicySubject, Denied> {
        let by_password = user_of_password(credentials);
        if let (Some(file), Some(user)) = (&self.file, by_password)
            && file.has_user(user).await
        {
            let subject = registry::UserAuthenticator::authenticate(file, credentials, caller).await?;
            prove(Standing::Known);
            return Ok(match subject {
                PolicySubject::User { name, .. } => {
                    PolicySubject::User { name, groups: vec![HTPASSWD_GROUP.to_owned()] }
                }
                other => other,
            });
        }
        let header = header(credentials);
        let peer = caller.peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.ip());
        let now = self.clock.now().timestamp();
        // Before the password is verified, which may wait: of a password that is changed meanwhile, the subject has the former mark,
        // and the token that is issued to it is refused.
        let before = match by_password {
            Some(user) => self.auth.user_now(user).await.map_err(|error| unread(&error))?,
            None => None,
        };
        match self.auth.authenticate(Some(&header), peer, now).await {
            Ok(principal) => subject_of(principal, before),
            Err(AuthFailure::Missing | AuthFailure::Invalid | AuthFailure::Unconfirmed) => {
                Err(Denied::Unauthorized)
            }
            Err(AuthFailure::RateLimited { .. }) => Err(Denied::RateLimited),
            Err(AuthFailure::Unavailable) => Err(Denied::Unavailable),
        }
    }

    async fn refresh(&self, subject: PolicySubject) -> Result<PolicySubject, Denied> {
        let subject = self.subject_of_now(subject).await?;
        if !matches!(subject, PolicySubject::Anonymous) {
            prove(Standing::Known);
        }
        Ok(subject)
    }
}

impl RegistryUsers {
    /// The subject of an issued token with its rights of now.
    async fn subject_of_now(&self, subject: PolicySubject) -> Result<PolicySubject, Denied> {
        match &subject {
            PolicySubject::Anonymous => Ok(subject),
            PolicySubject::Puller { name, repository } => {
                let run: RunId = name
                    .strip_prefix(JOB_PREFIX)
                    .and_then(|id| id.parse().ok())
                    .ok_or(Denied::Unauthorized)?;
                match self
                    .store
                    .pull_is_open(run, repository.as_str())
                    .await
                    .map_err(|error| unread(&error))?
                {
                    true => Ok(subject),
                    false => Err(Denied::Unauthorized),
                }
            }
            PolicySubject::Scoped { name, id, .. } => self.token_of_now(name, id).await,
            PolicySubject::User { name, groups } => {
                if let Some(id) = mark(groups, TOKEN_PREFIX) {
                    return self.token_of_now(name, id).await;
                }
                // A JWT, and a user of the htpasswd file: the issued token ends after minutes.
                let Some(former) = mark(groups, USER_PREFIX) else { return Ok(subject) };
                match self.auth.user_now(name).await.map_err(|error| unread(&error))? {
                    Some((role, now)) if now == former => Ok(user(name.clone(), role, USER_PREFIX, &now)),
                    _ => Err(Denied::Unauthorized),
                }
            }
        }
    }

    /// The subject of the API token with this name, with its rights of now, if it still has this id.
    async fn token_of_now(&self, name: &str, id: &str) -> Result<PolicySubject, Denied> {
        let stored = self.store.api_token_named(name).await.map_err(|error| unread(&error))?;
        let record = token_record(stored.ok_or(Denied::Unauthorized)?).map_err(|error| unread(&error))?;
        if record.id != id
            || record.unconfirmed
            || record.expires_at.is_some_and(|end| end <= self.clock.now().timestamp())
        {
            return Err(Denied::Unauthorized);
        }
        subject(record.into())
    }
}

/// The name that comes with a password of a person: neither a job, nor an API token in the place of a password.
fn user_of_password(credentials: &Credentials) -> Option<&str> {
    match credentials {
        Credentials::Basic { user, password }
            if user != JOB_USERNAME && !access::auth::is_api_token(password.expose()) =>
        {
            Some(user)
        }
        Credentials::Basic { .. } | Credentials::Bearer(_) => None,
    }
}

/// The subject of a login. `before` is the role of its user, and the mark of the password, from before the password was verified.
fn subject_of(principal: Principal, before: Option<(Role, String)>) -> Result<PolicySubject, Denied> {
    if let (PrincipalRights::Role(_), AuthMethod::Password) = (&principal.rights, &principal.method) {
        let (role, mark) = before.ok_or(Denied::Unauthorized)?;
        return Ok(user(principal.name, role, USER_PREFIX, &mark));
    }
    subject(principal)
}

/// The denial after a failure of the database.
fn unread(error: &dyn std::error::Error) -> Denied {
    tracing::warn!(error = %error_chain(error), "a login of the registry could not be checked; its request is refused");
    Denied::Unavailable
}

fn subject(principal: Principal) -> Result<PolicySubject, Denied> {
    let Principal { name, rights, method } = principal;
    match (rights, method) {
        // A token that only reports, or only uses the registry but has no scope, is no login of the registry.
        (PrincipalRights::Role(role), _) if !role.is_for_users() => Err(Denied::Unauthorized),
        (PrincipalRights::Role(role), AuthMethod::ApiToken { id }) => Ok(user(name, role, TOKEN_PREFIX, &id)),
        (PrincipalRights::Role(role), _) => Ok(PolicySubject::User { name, groups: vec![role.to_string()] }),
        (PrincipalRights::Limited { limits, .. }, AuthMethod::ApiToken { id }) => {
            let grant = |scope: RegistryScope| (scope.repositories, scope.rights);
            Ok(PolicySubject::Scoped { name, id, grants: limits.registry.into_iter().map(grant).collect() })
        }
        (PrincipalRights::PullFrom { repository }, AuthMethod::Job { job_id }) => {
            // The registry has no repository with an invalid name.
            let repository = repository.parse().map_err(|_| Denied::Unauthorized)?;
            Ok(PolicySubject::Puller { name: format!("{JOB_PREFIX}{job_id}"), repository })
        }
        (PrincipalRights::Limited { .. } | PrincipalRights::PullFrom { .. }, _) => Err(Denied::Unauthorized),
    }
}

fn user(name: String, role: Role, prefix: &str, mark: &str) -> PolicySubject {
    PolicySubject::User { name, groups: vec![role.to_string(), format!("{prefix}{mark}")] }
}

/// The mark of a subject's login.
fn mark<'a>(groups: &'a [String], prefix: &str) -> Option<&'a str> {
    groups.iter().find_map(|group| group.strip_prefix(prefix))
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

/// The stamp of a file, which differs when the file has been replaced or written; `None` for a file that cannot be read.
type Stamp = Option<(u64, u64, [i64; 4])>;

/// The rules of `REGISTRY_ACCESS_FILE`, read again when the file changes.
pub(in crate::app) struct AccessRulesFile {
    path: PathBuf,
    /// The policy without the rules of the file.
    base: Policy,
    authority: Option<Arc<TokenAuthority>>,
    /// The stamp of the file that was read last, usable or not, and the one that was seen last.
    read: Stamp,
    seen: Stamp,
}

impl AccessRulesFile {
    fn new(path: PathBuf, base: Policy) -> Self {
        Self { path, base, authority: None, read: None, seen: None }
    }

    fn read(&mut self) -> Result<Policy, Vec<String>> {
        // Taken before reading: a change during the read gives another stamp at the next check.
        self.read = stamp(&self.path);
        self.seen = self.read;
        let rules: Vec<PolicyRule> = read_rules(&self.path)?;
        tracing::info!(file = %self.path.display(), rules = rules.len(), "the access rules of the registry were read");
        Ok(Policy { rules, ..self.base.clone() })
    }

    /// Whether the file differs from the one that was read, and was the same at the check before: a file that is being written is
    /// not read.
    fn has_settled(&mut self) -> bool {
        let now = stamp(&self.path);
        let settled = now != self.read && now == self.seen;
        self.seen = now;
        settled
    }

    /// Applies changed rules until `stop`. A file with errors changes nothing: a part of the rules could allow what the
    /// rest denies.
    pub(in crate::app) async fn watch(mut self, stop: CancellationToken) {
        while tokio::time::timeout(CHECK_INTERVAL, stop.cancelled()).await.is_err() {
            if !self.has_settled() {
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

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
    Some((metadata.ino(), metadata.len(), times))
}

#[cfg(test)]
mod tests {
    use registry::{AccessRequest, Action, decide};

    use super::*;
    use access::auth::TokenLimits;

    #[test]
    fn rules_that_are_being_written_are_not_put_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules");
        std::fs::write(&path, "a/** authenticated all\n").unwrap();
        let mut file = AccessRulesFile::new(path.clone(), Policy::default());
        assert_eq!(file.read().unwrap().rules.len(), 1);
        assert!(!file.has_settled() && !file.has_settled(), "the file is unchanged");
        // Whole lines are rules without errors, and the rule that denies is not written yet.
        std::fs::write(&path, "b/** authenticated all\nc/** authenticated all\n").unwrap();
        assert!(!file.has_settled(), "the file differs from the check before");
        std::fs::write(&path, "b/** authenticated all\nc/** authenticated all\nb/c authenticated none\n")
            .unwrap();
        assert!(!file.has_settled(), "the file grew");
        assert!(file.has_settled());
        assert_eq!(file.read().unwrap().rules.len(), 3);
        assert!(!file.has_settled());
    }

    #[test]
    fn rules_of_the_same_length_and_time_in_another_file_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, next) = (folder.path().join("rules"), folder.path().join("next"));
        std::fs::write(&path, "a/** authenticated all\n").unwrap();
        std::fs::write(&next, "b/** authenticated all\n").unwrap();
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::File::options().append(true).open(&next).unwrap().set_modified(time).unwrap();
        let mut file = AccessRulesFile::new(path.clone(), Policy::default());
        file.read().unwrap();
        std::fs::rename(&next, &path).unwrap();
        assert!(!file.has_settled());
        assert!(file.has_settled());
    }

    fn of_role(role: Role) -> PrincipalRights {
        PrincipalRights::Role(role)
    }

    fn limited(role: Role, scope: &str) -> PrincipalRights {
        let limits = TokenLimits { registry: vec![scope.parse().unwrap()], ..TokenLimits::default() };
        PrincipalRights::of_token(role, limits)
    }

    /// The access of every kind of login to the routes of the registry, with the default settings and one rule.
    #[test]
    fn the_rights_of_every_login_in_the_registry_are_those_of_the_golden_table() {
        let policy = Policy {
            administrators: vec![SubjectPattern::Group(Role::Admin.to_string())],
            authenticated: Rights::READ,
            rules: vec!["open/** authenticated all".parse().unwrap()],
            ..Policy::default()
        };
        let token = || AuthMethod::ApiToken { id: "1".to_owned() };
        let job = PrincipalRights::PullFrom { repository: "os-images/a".to_owned() };
        let logins = [
            ("admin", of_role(Role::Admin), token()),
            ("operator", of_role(Role::Operator), token()),
            ("viewer", of_role(Role::Viewer), token()),
            ("report-only", of_role(Role::ReportOnly), token()),
            ("registry-only, pull:os-images/**", limited(Role::RegistryOnly, "pull:os-images/**"), token()),
            ("admin, push:os-images/*", limited(Role::Admin, "push:os-images/*"), token()),
            ("viewer, pull,delete:open/**", limited(Role::Viewer, "pull,delete:open/**"), token()),
            ("a job of os-images/a", job, AuthMethod::Job { job_id: "1".to_owned() }),
        ];
        let routes = [
            ("GET    manifests, blobs, tags", Action::Pull),
            ("HEAD   manifests, blobs", Action::Exists),
            ("POST   uploads, PUT manifests", Action::Push),
            ("PUT    manifests, an existing tag", Action::Move),
            ("DELETE manifests, blobs, tags", Action::Delete),
        ];
        let mut table = String::from(
            "# Access to the routes below /v2/NAME/. The only rule: open/** authenticated all.\n",
        );
        for (login, rights, method) in logins {
            table.push_str(&format!("\n{login}\n"));
            let principal = Principal { name: "x".to_owned(), rights, method };
            let subject = subject(principal);
            for repository in ["os-images/a", "os-images/b/c", "open/a"] {
                let name = repository.parse().unwrap();
                for (route, action) in routes {
                    let request = AccessRequest { repository: &name, action, tag: None };
                    let allowed = match &subject {
                        Ok(subject) if decide(&policy, subject, &request).allowed => "yes",
                        Ok(_) => "-",
                        Err(_) => "no login",
                    };
                    table.push_str(&format!("  {route:<34} {repository:<14} {allowed}\n"));
                }
            }
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/registry-roles.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &table).unwrap();
        }
        assert_eq!(table, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    }
}
