//! From an `Authorization` header to a principal.
//!
//! ```text
//! parse header ─> which kind? ─┬─ API token, pull password, JWT: look up or verify ────────┬─ right ─> principal
//!                              └─ name and password: remembered? limited? permit? argon2 ──┤
//!                                                                                          └─ wrong ─> count, refuse
//! ```
//!
//! Secrets of 160 bits and more are looked up before the rate limit is checked: they cannot be guessed, and a program with
//! a valid token must not be refused because of another client behind its address. Passwords can be guessed and are
//! expensive to verify. Their rate limit, for each user name at an address, is checked before they enter the queue and again when they leave it. Each attempt
//! uses up one failure of the limit before the verification and gets it back if the password was right. Thus many parallel
//! requests cannot exceed the limit together, and neither can requests that disconnect before the response.
//!
//! A failure of the store does not count as a wrong credential.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use model::Clock;
use parking_lot::RwLock;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

use super::denials::{Denial, Denials};
use super::header::{self, PresentedCredentials};
use super::jwt::{self, JwtVerifier};
use super::limit::{GuessLimiter, Limited, RateLimit, RateLimiter};
use super::password::{DECOY_HASH, PasswordError, password_hash_usable};
use super::standing::{Standing, prove};
use super::store::{CredentialStore, StoreUnavailable, TokenRecord, UserRecord};
use super::token::is_api_token;
use super::token_cache::TokenCache;
use super::verify::{Busy, PasswordAttempt, PasswordVerifier, VerifyPermit};
use super::web_session::SessionSecret;
use super::{AuthFailure, AuthMethod, AuthMode, JOB_USERNAME, Permission, Principal, PrincipalRights, Role};
use secrets::{NoRandomness, token_hash};

/// The configuration of authentication.
pub struct AuthConfig {
    /// The mode, `AUTH_MODE`.
    pub mode: AuthMode,
    /// `BASIC_USER` and `BASIC_PASS_HASH`: an administrator that takes precedence over a stored user of this name.
    pub basic_user: Option<(String, String)>,
    /// The keys and rules for JWTs, required in mode `jwt`.
    pub jwt: Option<JwtVerifier>,
    /// The limit of wrong credentials per address, and of wrong passwords per user name at an address.
    pub failures: RateLimit,
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig")
            .field("mode", &self.mode)
            .field("basic_user", &self.basic_user.as_ref().map(|(name, _)| name))
            .field("jwt", &self.jwt)
            .field("failures", &self.failures)
            .finish()
    }
}

impl AuthConfig {
    /// Checks that callers can authenticate with this configuration.
    fn check(&self) -> Result<(), AuthConfigError> {
        if self.mode == AuthMode::Jwt && self.jwt.is_none() {
            return Err(AuthConfigError::NoJwtKey);
        }
        let Some((name, hash)) = &self.basic_user else { return Ok(()) };
        let possible = header::is_name(name) && !name.contains(':') && name != JOB_USERNAME;
        if !possible {
            return Err(AuthConfigError::BasicUser);
        }
        password_hash_usable(hash).map_err(AuthConfigError::BasicPassHash)
    }
}

/// A configuration with which callers can authenticate.
#[derive(Debug)]
pub struct CheckedAuthConfig(AuthConfig);

/// The logins besides the users and tokens of the database.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Logins {
    /// Whether users of the database can log in with their password.
    pub passwords: bool,
    /// Whether the settings let an administrator in.
    pub elsewhere: bool,
    /// The user of the settings, whose password is not in the database.
    pub configured_user: Option<String>,
}

/// The login of a web session: what must be unchanged while the session lasts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Login {
    /// The id of the API token; `None` for a user.
    pub token_id: Option<String>,
    /// A text that changes with role and password of the user; empty for an API token.
    pub mark: String,
}

/// The greatest age of the stored time of the last use of a session.
const SESSION_USED_ACCURACY: SignedDuration = SignedDuration::from_mins(1);
/// The greatest age of the stored time of the last use of a token.
const LAST_USED_ACCURACY: SignedDuration = SignedDuration::from_mins(10);

/// Authenticates callers.
pub struct Authenticator {
    /// Users and keys of the settings, which a reload replaces.
    config: RwLock<Arc<AuthConfig>>,
    store: Arc<dyn CredentialStore>,
    /// Credentials that cannot be guessed, or have no known form.
    failures: RateLimiter,
    guesses: GuessLimiter,
    recent: TokenCache,
    passwords: PasswordVerifier,
    denials: Arc<Denials>,
    /// The clock that judges tokens of other systems; without it the time of the request.
    clock: Option<Arc<dyn Clock>>,
}

impl Authenticator {
    /// An authenticator over the users and tokens of `store`.
    ///
    /// # Errors
    /// [`AuthConfigError`], which names the setting that cannot be used.
    pub fn new(config: AuthConfig, store: Arc<dyn CredentialStore>) -> Result<Self, AuthConfigError> {
        config.check()?;
        let failures = RateLimiter::new(config.failures);
        let recent = TokenCache::default();
        let guesses = GuessLimiter::new(config.failures);
        let config = RwLock::new(Arc::new(config));
        Ok(Self {
            config,
            store,
            failures,
            guesses,
            recent,
            passwords: PasswordVerifier::new()?,
            denials: Arc::default(),
            clock: None,
        })
    }

    /// Judges the times in JWTs by the wall time of this clock: another system has signed them, whose clock was not set with ours.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Checks user and key of the settings that [`Authenticator::apply`] would put in force. The mode and the limit of failures stay
    /// those of the start.
    ///
    /// # Errors
    /// [`AuthConfigError`], which names the setting that cannot be used.
    pub fn check(&self, config: AuthConfig) -> Result<CheckedAuthConfig, AuthConfigError> {
        let former = self.config();
        let config = AuthConfig { mode: former.mode, failures: former.failures, ..config };
        config.check()?;
        Ok(CheckedAuthConfig(config))
    }

    /// Replaces user and key of the settings.
    pub fn apply(&self, CheckedAuthConfig(config): CheckedAuthConfig) {
        if let (Some(jwt), Some(former)) = (&config.jwt, &self.config().jwt) {
            jwt.inherit(former);
        }
        *self.config.write() = Arc::new(config);
    }

    fn config(&self) -> Arc<AuthConfig> {
        Arc::clone(&self.config.read())
    }

    /// Returns the principal that sent this `Authorization` header from `peer`.
    ///
    /// # Errors
    /// [`AuthFailure`], which contains only what the caller may know. The reason is logged.
    pub async fn authenticate(
        &self,
        authorization: Option<&str>,
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<Principal, AuthFailure> {
        if self.config().mode == AuthMode::None {
            prove(Standing::Known);
            let name = "anonymous".to_owned();
            return Ok(Principal {
                name,
                rights: PrincipalRights::Role(Role::Admin),
                method: AuthMethod::Open,
            });
        }
        let value =
            authorization.filter(|value| !value.trim_ascii().is_empty()).ok_or(AuthFailure::Missing)?;
        let attempt = self.recognise(value, peer, now).await;
        attempt.inspect(|_| prove(Standing::Known)).map_err(|error| self.refuse(&error, peer, now))
    }

    /// Returns the principal of a web session, with the rights that its user or API token has now.
    ///
    /// A wrong cookie does not count for the limit of wrong credentials: it cannot be guessed, and the pages of a browser whose
    /// session has expired send it many times.
    ///
    /// # Errors
    /// [`AuthFailure`] when there is no such session, it has expired, or its login has changed.
    pub async fn by_session(
        &self,
        secret: &SessionSecret,
        idle: Duration,
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<Principal, AuthFailure> {
        if self.config().mode == AuthMode::None {
            return self.authenticate(None, peer, now).await;
        }
        match self.session(secret, idle, now).await {
            Ok(Some(principal)) => {
                prove(Standing::Known);
                Ok(principal)
            }
            Ok(None) => Err(AuthFailure::Invalid),
            Err(error) => Err(self.refuse(&error.into(), peer, now)),
        }
    }

    async fn session(
        &self,
        secret: &SessionSecret,
        idle: Duration,
        now: Timestamp,
    ) -> Result<Option<Principal>, StoreUnavailable> {
        let Some(record) = self.store.web_session(&secret.hash()).await? else { return Ok(None) };
        let unused = now.duration_since(record.last_used_at);
        let idle = SignedDuration::try_from(idle).unwrap_or(SignedDuration::MAX);
        if record.expires_at <= now || unused >= idle {
            return Ok(None);
        }
        let rights = match &record.token_id {
            Some(id) => {
                let token = self.store.api_token_named(&record.name).await?;
                let valid = token.filter(|token| token.id == *id && token.is_accepted(now));
                valid.map(|token| PrincipalRights::of_token(token.role, token.limits))
            }
            None => {
                let user = self.user_now(&record.name).await?;
                let same = user.filter(|(role, mark)| mark_of(*role, mark) == record.mark);
                same.map(|(role, _)| PrincipalRights::Role(role))
            }
        };
        let Some(rights) = rights else { return Ok(None) };
        if unused >= SESSION_USED_ACCURACY {
            self.store.web_session_used(&record.id, now).await;
        }
        Ok(Some(Principal { name: record.name, rights, method: AuthMethod::Session { id: record.id } }))
    }

    /// The login of a caller that can begin a web session; `None` for every other caller, a web session included.
    ///
    /// # Errors
    /// [`AuthFailure::Unavailable`] when the user cannot be looked up, [`AuthFailure::Invalid`] when there is none any more.
    pub async fn login_of(&self, principal: &Principal) -> Result<Option<Login>, AuthFailure> {
        match &principal.method {
            AuthMethod::ApiToken { id } => {
                Ok(Some(Login { token_id: Some(id.clone()), mark: String::new() }))
            }
            AuthMethod::Password => {
                let user = self.user_now(&principal.name).await.map_err(|_| AuthFailure::Unavailable)?;
                let (role, mark) = user.ok_or(AuthFailure::Invalid)?;
                Ok(Some(Login { token_id: None, mark: mark_of(role, &mark) }))
            }
            AuthMethod::Open | AuthMethod::Jwt | AuthMethod::Session { .. } | AuthMethod::Job { .. } => {
                Ok(None)
            }
        }
    }

    /// The denied attempts of this process.
    pub fn denials(&self) -> &Arc<Denials> {
        &self.denials
    }

    async fn recognise(&self, value: &str, peer: IpAddr, now: Timestamp) -> Result<Principal, AttemptError> {
        match header::parse(value).ok_or(AttemptError::Wrong("the header is malformed"))? {
            PresentedCredentials::Bearer(token) => match self.by_token(token.expose_secret(), now).await? {
                Some(principal) => Ok(principal),
                None => Err(AttemptError::Wrong("the bearer token has no known form")),
            },
            PresentedCredentials::Basic { name, password } => {
                match self.by_token(password.expose_secret(), now).await? {
                    Some(principal) => Ok(principal),
                    None if name == JOB_USERNAME => self.by_pull_password(password.expose_secret()).await,
                    None if self.config().mode == AuthMode::Basic => {
                        self.by_password(&name, &password, peer, now).await
                    }
                    None => Err(AttemptError::Wrong("passwords are not accepted in this mode")),
                }
            }
        }
    }

    /// Authenticates an API token, or a JWT in mode `jwt`. `None` when the text has neither form.
    async fn by_token(&self, text: &str, now: Timestamp) -> Result<Option<Principal>, AttemptError> {
        if is_api_token(text) {
            let record = self.api_token(token_hash(text), now).await?;
            let record = record.ok_or(AttemptError::Wrong("the API token is unknown"))?;
            if record.expires_at.is_some_and(|end| end <= now) {
                return Err(AttemptError::Wrong("the API token has expired"));
            }
            if record.unconfirmed {
                return Err(AttemptError::Unconfirmed);
            }
            return Ok(Some(record.into()));
        }
        let config = self.config();
        let Some(verifier) = config.jwt.as_ref().filter(|_| config.mode == AuthMode::Jwt) else {
            return Ok(None);
        };
        if !jwt::is_jwt(text) {
            return Ok(None);
        }
        let wall = self.clock.as_ref().map_or(now, |clock| clock.wall().timestamp());
        let bearer = verifier.verify(text, now, wall).await.map_err(AttemptError::Jwt)?;
        Ok(Some(Principal {
            name: bearer.name,
            rights: PrincipalRights::Role(bearer.role),
            method: AuthMethod::Jwt,
        }))
    }

    /// The API token with this hash, from the cache or the store.
    async fn api_token(&self, hash: String, now: Timestamp) -> Result<Option<TokenRecord>, StoreUnavailable> {
        if let Some(recent) = self.recent.get(&hash, now) {
            return Ok(Some(recent));
        }
        let before = self.recent.before_lookup();
        let record = self.store.api_token(&hash).await?;
        if let Some(record) = &record {
            let expired = record.expires_at.is_some_and(|end| end <= now);
            let noted = record.last_used_at.is_some_and(|used| within(used, now, LAST_USED_ACCURACY));
            if !expired && !noted {
                self.store.api_token_used(&record.id, now).await;
            }
            self.recent.put(hash, record.clone(), before, now);
        }
        Ok(record)
    }

    /// The report-only token with this text; `None` for any other text, expired and other API tokens included.
    ///
    /// # Errors
    /// [`StoreUnavailable`] when the token cannot be looked up.
    pub async fn report_token(
        &self,
        text: &str,
        now: Timestamp,
    ) -> Result<Option<Principal>, StoreUnavailable> {
        if !is_api_token(text) {
            return Ok(None);
        }
        let record = self.api_token(token_hash(text), now).await?;
        let valid = record.filter(|record| record.is_accepted(now)).map(Principal::from);
        Ok(valid.filter(|principal| principal.allows(Permission::Report)))
    }

    /// The role that this user has now, and a mark that changes with the password; `None` for an unknown or disabled user, and
    /// where passwords are not accepted.
    ///
    /// # Errors
    /// [`StoreUnavailable`] when the user cannot be looked up.
    pub async fn user_now(&self, name: &str) -> Result<Option<(Role, String)>, StoreUnavailable> {
        if self.config().mode != AuthMode::Basic {
            return Ok(None);
        }
        // Half of a digest of a salted hash: it tells hashes apart and nothing else.
        let mark = |hash: String| token_hash(&hash).chars().take(32).collect();
        let user = self.user(name).await?.filter(|user| !user.unconfirmed);
        Ok(user.map(|user| (user.role, mark(user.password_hash))))
    }

    /// Forgets what is cached of API tokens. Called after a change of tokens was stored.
    pub fn tokens_changed(&self) {
        self.recent.changed();
    }

    /// The logins besides those of the database.
    pub fn logins(&self) -> Logins {
        let config = self.config();
        let configured = config.basic_user.as_ref().map(|(name, _)| name.clone());
        Logins {
            passwords: config.mode == AuthMode::Basic,
            elsewhere: match config.mode {
                AuthMode::Basic => configured.is_some(),
                AuthMode::Jwt | AuthMode::None => true,
            },
            configured_user: configured,
        }
    }

    async fn by_pull_password(&self, password: &str) -> Result<Principal, AttemptError> {
        let record = self.store.pull_grant(&token_hash(password)).await?;
        let record = record.ok_or(AttemptError::Wrong("the pull password belongs to no running job"))?;
        Ok(Principal {
            name: JOB_USERNAME.to_owned(),
            rights: PrincipalRights::PullFrom { repository: record.repository },
            method: AuthMethod::Job { job_id: record.run.to_string() },
        })
    }

    async fn by_password(
        &self,
        name: &str,
        password: &SecretString,
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<Principal, AttemptError> {
        // A disabled user is refused like an unknown one, also in the time that it takes.
        let user = self.user(name).await?;
        let hash = user.as_ref().map_or(DECOY_HASH, |user| &user.password_hash);
        let attempt = PasswordAttempt { name, password, hash };
        let remembered = || user.is_some() && self.passwords.remembers(&attempt, now);
        let right = remembered() || {
            self.guesses.check(peer, name, now)?;
            let permit = self.passwords.acquire().await?;
            // While this attempt waited, another one may have verified this password or used up the limit.
            if remembered() { true } else { self.try_password(permit, &attempt, peer, now).await? }
        };
        match user {
            Some(UserRecord { unconfirmed: true, .. }) if right => Err(AttemptError::Unconfirmed),
            Some(UserRecord { role, .. }) if right => {
                let rights = PrincipalRights::Role(role);
                Ok(Principal { name: name.to_owned(), rights, method: AuthMethod::Password })
            }
            _ => Err(AttemptError::Guess),
        }
    }

    /// Verifies a password. The failure is counted in advance, so that a client that disconnects before the response has
    /// used up its attempt.
    async fn try_password(
        &self,
        permit: VerifyPermit,
        attempt: &PasswordAttempt<'_>,
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<bool, AttemptError> {
        self.guesses.check(peer, attempt.name, now)?;
        self.guesses.record_failure(peer, attempt.name, now);
        let (right, _permit) = self.passwords.verify(permit, attempt, now).await?;
        if right {
            self.guesses.succeeded(peer, attempt.name, now);
        }
        Ok(right)
    }

    /// A user of the configuration or the store that is not disabled.
    async fn user(&self, name: &str) -> Result<Option<UserRecord>, StoreUnavailable> {
        match &self.config().basic_user {
            Some((own, hash)) if own == name => Ok(Some(UserRecord {
                name: own.clone(),
                password_hash: hash.clone(),
                role: Role::Admin,
                disabled: false,
                unconfirmed: false,
            })),
            _ => Ok(self.store.user(name).await?.filter(|record| !record.disabled)),
        }
    }

    /// Counts a wrong credential and returns the failure that the caller may know.
    fn refuse(&self, error: &AttemptError, peer: IpAddr, now: Timestamp) -> AuthFailure {
        match error {
            AttemptError::Jwt(jwt::JwtError::NoKeySet) => AuthFailure::Unavailable,
            AttemptError::Wrong(_) | AttemptError::Jwt(_) | AttemptError::Guess => {
                if !matches!(error, AttemptError::Guess) {
                    if let Err(limited) = self.failures.check(peer, now) {
                        return AuthFailure::RateLimited { retry_after: limited.retry_after };
                    }
                    self.failures.record_failure(peer, now);
                }
                self.denials.denied(Denial::Credential, peer, error, now);
                AuthFailure::Invalid
            }
            AttemptError::Unconfirmed => {
                self.denials.denied(Denial::Credential, peer, error, now);
                AuthFailure::Unconfirmed
            }
            AttemptError::Limited(limited) => AuthFailure::RateLimited { retry_after: limited.retry_after },
            AttemptError::Store(unavailable) => {
                let cause = unavailable.0.as_ref();
                tracing::warn!(%peer, error = %error, cause, "a credential could not be checked");
                AuthFailure::Unavailable
            }
            AttemptError::Busy => AuthFailure::Unavailable,
        }
    }

    #[cfg(test)]
    pub(super) fn passwords(&self) -> &PasswordVerifier {
        &self.passwords
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("config", &self.config()).finish_non_exhaustive()
    }
}

/// The reason why the configuration of authentication cannot be used.
#[derive(Debug, Error)]
pub enum AuthConfigError {
    /// Mode `jwt` has no key.
    #[error(
        "AUTH_MODE=jwt needs JWT_SECRET, JWT_PUBLIC_KEY_FILE or JWT_JWKS; set one, or use AUTH_MODE=basic"
    )]
    NoJwtKey,
    /// The configured user cannot log in.
    #[error(
        "BASIC_USER must be 1 to 128 bytes without colon or control characters, and not {JOB_USERNAME}; choose \
         another name"
    )]
    BasicUser,
    /// The configured hash cannot be verified.
    #[error("BASIC_PASS_HASH cannot be used")]
    BasicPassHash(#[source] PasswordError),
    /// The operating system returned no random bytes.
    #[error("cannot prepare authentication")]
    Random(#[from] NoRandomness),
}

impl TokenRecord {
    /// Whether the token is accepted at this time.
    fn is_accepted(&self, now: Timestamp) -> bool {
        !self.unconfirmed && self.expires_at.is_none_or(|end| end > now)
    }
}

impl From<TokenRecord> for Principal {
    fn from(record: TokenRecord) -> Self {
        Self {
            name: record.name,
            rights: PrincipalRights::of_token(record.role, record.limits),
            method: AuthMethod::ApiToken { id: record.id },
        }
    }
}

/// The text that changes with the role and the password of a user.
fn mark_of(role: Role, mark: &str) -> String {
    format!("{role} {mark}")
}

/// Whether `time` is at most `age` before `now`. A time in the future is not, so that a clock that was set back is noticed.
fn within(time: Timestamp, now: Timestamp, age: SignedDuration) -> bool {
    let passed = now.duration_since(time);
    !passed.is_negative() && passed < age
}

/// The reason why one attempt failed, for the log.
#[derive(Debug, Error)]
enum AttemptError {
    #[error("{0}")]
    Wrong(&'static str),
    /// A wrong password, which was counted before the verification.
    #[error("user and password do not match")]
    Guess,
    /// The credential is right, and it is refused until an administrator confirms the login.
    #[error("the login is of restored data and not confirmed")]
    Unconfirmed,
    #[error("the JWT is not valid: {0}")]
    Jwt(jwt::JwtError),
    #[error(transparent)]
    Limited(#[from] Limited),
    #[error(transparent)]
    Store(#[from] StoreUnavailable),
    #[error("too many passwords are being verified")]
    Busy,
}

impl From<Busy> for AttemptError {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}
