//! From an `Authorization` header to a principal.
//!
//! ```text
//! read header ─> which kind? ─┬─ API token, pull password, JWT: look up or verify ──────┬─ right ─> principal
//!                             └─ name and password: remembered? limited? turn? argon2 ──┤
//!                                                                                       └─ wrong ─> count, refuse
//! ```
//!
//! Secrets of 160 bits and more are looked up before the rate limit is asked: they cannot be guessed, and a program
//! with a right token must not suffer from somebody behind the same address. Passwords can be guessed and are
//! expensive to verify, so the limit is asked before they queue and again when their turn comes, and the allowance
//! is taken before the verification and given back if the password was right: a hundred requests sent at once do not
//! get past it together, nor do those that hang up before the answer.
//!
//! A failure of the store is never a wrong credential; it is not counted.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

use super::header::{self, PresentedCredentials};
use super::jwt::{self, JwtKey};
use super::limit::{Limited, RateLimit, RateLimiter};
use super::password::{DECOY_HASH, PasswordError, password_hash_usable};
use super::store::{CredentialStore, StoreUnavailable, TokenRecord};
use super::token::is_api_token;
use super::token_cache::TokenCache;
use super::verify::{Busy, Claim, PasswordVerifier, Turn};
use super::{AuthFailure, AuthMode, Grants, JOB_USERNAME, Method, Principal, Role};
use secrets::{NoRandomness, token_hash};

/// What the configuration says about authentication.
pub struct AuthConfig {
    /// `AUTH_MODE`.
    pub mode: AuthMode,
    /// `BASIC_USER` and `BASIC_PASS_HASH`: an administrator who is not in the store and goes before one of the same
    /// name there.
    pub basic_user: Option<(String, String)>,
    /// Needed in mode `jwt`.
    pub jwt: Option<JwtKey>,
    /// How many wrong credentials an address may present.
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

/// Recognises callers.
pub struct Authenticator {
    config: AuthConfig,
    store: Arc<dyn CredentialStore>,
    failures: RateLimiter,
    recent: TokenCache,
    passwords: PasswordVerifier,
}

impl Authenticator {
    /// An authenticator over the users and tokens of `store`.
    ///
    /// # Errors
    /// [`AuthConfigError`] names the setting that cannot work.
    pub fn new(config: AuthConfig, store: Arc<dyn CredentialStore>) -> Result<Self, AuthConfigError> {
        if config.mode == AuthMode::Jwt && config.jwt.is_none() {
            return Err(AuthConfigError::NoJwtKey);
        }
        if let Some((name, hash)) = &config.basic_user {
            let possible = header::is_name(name) && !name.contains(':') && name != JOB_USERNAME;
            if !possible {
                return Err(AuthConfigError::BasicUser);
            }
            password_hash_usable(hash).map_err(AuthConfigError::BasicPassHash)?;
        }
        let failures = RateLimiter::new(config.failures);
        let recent = TokenCache::default();
        Ok(Self { config, store, failures, recent, passwords: PasswordVerifier::new()? })
    }

    /// Who sends this `Authorization` header from `peer`.
    ///
    /// # Errors
    /// [`AuthFailure`] says what the caller may know; the reason goes to the log.
    pub async fn authenticate(
        &self,
        authorization: Option<&str>,
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<Principal, AuthFailure> {
        if self.config.mode == AuthMode::None {
            let name = "anonymous".to_owned();
            return Ok(Principal { name, grants: Grants::Role(Role::Admin), method: Method::Open });
        }
        let value =
            authorization.filter(|value| !value.trim_ascii().is_empty()).ok_or(AuthFailure::Missing)?;
        let attempt = self.recognise(value, peer, now).await;
        attempt.map_err(|refusal| self.refuse(&refusal, peer, now))
    }

    async fn recognise(&self, value: &str, peer: IpAddr, now: Timestamp) -> Result<Principal, Refusal> {
        match header::parse(value).ok_or(Refusal::Wrong("the header cannot be read"))? {
            PresentedCredentials::Bearer(token) => match self.by_token(token.expose_secret(), now).await? {
                Some(principal) => Ok(principal),
                None => Err(Refusal::Wrong("the bearer token is of no known form")),
            },
            PresentedCredentials::Basic { name, password } => {
                match self.by_token(password.expose_secret(), now).await? {
                    Some(principal) => Ok(principal),
                    None if name == JOB_USERNAME => self.by_pull_password(password.expose_secret()).await,
                    None if self.config.mode == AuthMode::Basic => {
                        self.by_password(&name, &password, peer, now).await
                    }
                    None => Err(Refusal::Wrong("passwords are not accepted in this mode")),
                }
            }
        }
    }

    /// An API token, or a JWT where these count; `None` when the text is neither.
    async fn by_token(&self, text: &str, now: Timestamp) -> Result<Option<Principal>, Refusal> {
        if is_api_token(text) {
            let record = self.api_token(token_hash(text), now).await?;
            let record = record.ok_or(Refusal::Wrong("the API token is unknown"))?;
            if record.expires_at.is_some_and(|end| end <= now) {
                return Err(Refusal::Wrong("the API token has expired"));
            }
            let method = Method::ApiToken { id: record.id };
            return Ok(Some(Principal { name: record.name, grants: Grants::Role(record.role), method }));
        }
        let Some(key) = self.config.jwt.as_ref().filter(|_| self.config.mode == AuthMode::Jwt) else {
            return Ok(None);
        };
        if !jwt::is_jwt(text) {
            return Ok(None);
        }
        let bearer = key.verify(text, now).map_err(Refusal::Jwt)?;
        Ok(Some(Principal { name: bearer.name, grants: Grants::Role(bearer.role), method: Method::Jwt }))
    }

    /// The API token with this hash, as it is or was a moment ago.
    async fn api_token(&self, hash: String, now: Timestamp) -> Result<Option<TokenRecord>, StoreUnavailable> {
        if let Some(recent) = self.recent.get(&hash, now) {
            return Ok(Some(recent));
        }
        let record = self.store.api_token(&hash).await?;
        if let Some(record) = &record {
            self.recent.put(hash, record.clone(), now);
        }
        Ok(record)
    }

    async fn by_pull_password(&self, password: &str) -> Result<Principal, Refusal> {
        let record = self.store.job_pull(&token_hash(password)).await?;
        let record = record.ok_or(Refusal::Wrong("the pull password belongs to no running job"))?;
        Ok(Principal {
            name: JOB_USERNAME.to_owned(),
            grants: Grants::PullFrom { repository: record.repository },
            method: Method::Job { job_id: record.job_id },
        })
    }

    async fn by_password(
        &self,
        name: &str,
        password: &SecretString,
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<Principal, Refusal> {
        let user = self.user(name).await?;
        let hash = user.as_ref().map_or(DECOY_HASH, |(hash, _)| hash);
        let claim = Claim { name, password, hash };
        let remembered = || user.is_some() && self.passwords.remembers(&claim, now);
        let right = remembered() || {
            self.failures.check(peer, now)?;
            let turn = self.passwords.turn().await?;
            // While this one waited, the same password may have been verified, or the allowance used up.
            if remembered() { true } else { self.try_password(turn, &claim, peer, now).await? }
        };
        match user {
            Some((_, role)) if right => {
                let grants = Grants::Role(role);
                Ok(Principal { name: name.to_owned(), grants, method: Method::Password })
            }
            _ => Err(Refusal::Guess),
        }
    }

    /// Verifies a password, paid for in advance: who hangs up before the answer has used its allowance all the same.
    async fn try_password(
        &self,
        turn: Turn,
        claim: &Claim<'_>,
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<bool, Refusal> {
        self.failures.check(peer, now)?;
        self.failures.record_failure(peer, now);
        let (right, _turn) = self.passwords.verify(turn, claim, now).await?;
        if right {
            self.failures.forgive(peer, now);
        }
        Ok(right)
    }

    /// The hash and role of a user, from the configuration or the store.
    async fn user(&self, name: &str) -> Result<Option<(String, Role)>, StoreUnavailable> {
        match &self.config.basic_user {
            Some((own, hash)) if own == name => Ok(Some((hash.clone(), Role::Admin))),
            _ => Ok(self.store.user(name).await?.map(|record| (record.password_hash, record.role))),
        }
    }

    /// Counts a wrong credential and says as much as the caller may know.
    fn refuse(&self, refusal: &Refusal, peer: IpAddr, now: Timestamp) -> AuthFailure {
        match refusal {
            Refusal::Wrong(_) | Refusal::Jwt(_) | Refusal::Guess => {
                if !matches!(refusal, Refusal::Guess) {
                    if let Err(limited) = self.failures.check(peer, now) {
                        return AuthFailure::RateLimited { retry_after: limited.retry_after };
                    }
                    self.failures.record_failure(peer, now);
                }
                tracing::info!(%peer, reason = %refusal, "a credential was refused");
                AuthFailure::Invalid
            }
            Refusal::Limited(limited) => AuthFailure::RateLimited { retry_after: limited.retry_after },
            Refusal::Store(error) => {
                let cause = error.0.as_ref();
                tracing::warn!(%peer, error = %refusal, cause, "a credential could not be checked");
                AuthFailure::Unavailable
            }
            Refusal::Busy => AuthFailure::Unavailable,
        }
    }

    #[cfg(test)]
    pub(super) fn passwords(&self) -> &PasswordVerifier {
        &self.passwords
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Why authentication cannot work as configured.
#[derive(Debug, Error)]
pub enum AuthConfigError {
    /// Mode `jwt` without a key.
    #[error("AUTH_MODE=jwt needs JWT_SECRET; set it, or choose AUTH_MODE=basic")]
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
    /// No key for this process without randomness.
    #[error("cannot prepare authentication")]
    Random(#[from] NoRandomness),
}

/// Why one attempt was refused; for the log.
#[derive(Debug, Error)]
enum Refusal {
    #[error("{0}")]
    Wrong(&'static str),
    /// Counted already.
    #[error("user and password do not match")]
    Guess,
    #[error("the JWT is refused: {0}")]
    Jwt(jwt::JwtError),
    #[error(transparent)]
    Limited(#[from] Limited),
    #[error(transparent)]
    Store(#[from] StoreUnavailable),
    #[error("too many passwords are being verified")]
    Busy,
}

impl From<Busy> for Refusal {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}
