//! The credential store of the authenticator: look-ups by key, each of them one indexed read.
//!
//! This module owns the trait and the store implements it, so that authentication depends on no tables. Secrets never
//! cross the trait: arguments are names and digests, results contain a password hash at most.
//!
//! The lower module owns the trait: docs/architecture.md. Tables: users, api_tokens, web_sessions, pull_grants.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use model::PullGrant;
use thiserror::Error;

use super::{Role, TokenLimits};

/// Reads users, API tokens and the pull passwords of jobs.
#[async_trait]
pub trait CredentialStore: Send + Sync {
    /// The user with this name.
    async fn user(&self, name: &str) -> Result<Option<UserRecord>, StoreUnavailable>;

    /// The API token with this hex SHA-256, even if it has expired; `None` if it was revoked. Called at most once a second
    /// for each token.
    async fn api_token(&self, hash: &str) -> Result<Option<TokenRecord>, StoreUnavailable>;

    /// Stores that the API token with this id was used. Called at most every ten minutes for each token. A failure is logged:
    /// no request is refused for it, and none waits for it.
    async fn api_token_used(&self, id: &str, now: Timestamp);

    /// The API token with this name, even if it has expired.
    async fn api_token_named(&self, name: &str) -> Result<Option<TokenRecord>, StoreUnavailable>;

    /// The web session whose cookie has this hex SHA-256, even if it has expired.
    async fn web_session(&self, hash: &str) -> Result<Option<SessionRecord>, StoreUnavailable>;

    /// Stores that the web session with this id was used. Called at most once a minute for each session.
    async fn web_session_used(&self, id: &str, now: Timestamp);

    /// The job whose pull password has this hex SHA-256, while its grant is open.
    async fn pull_grant(&self, hash: &str) -> Result<Option<PullGrant>, StoreUnavailable>;
}

/// A user as the store keeps it.
#[derive(Clone)]
pub struct UserRecord {
    /// The name for the login.
    pub name: String,
    /// The hash of the password, made by [`super::hash_password`]: argon2id in PHC form.
    pub password_hash: String,
    /// The role of the user.
    pub role: Role,
    /// Whether the user cannot log in.
    pub disabled: bool,
    /// Whether the user is of restored data and no administrator has confirmed it.
    pub unconfirmed: bool,
}

impl fmt::Debug for UserRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserRecord")
            .field("name", &self.name)
            .field("role", &self.role)
            .field("disabled", &self.disabled)
            .field("unconfirmed", &self.unconfirmed)
            .finish_non_exhaustive()
    }
}

/// An API token as the store keeps it, without its text.
#[derive(Clone, Debug)]
pub struct TokenRecord {
    /// The id, for the audit log and for revoking the token.
    pub id: String,
    /// The name that its owner chose.
    pub name: String,
    /// The role of the token.
    pub role: Role,
    /// The limits of the token.
    pub limits: TokenLimits,
    /// The time at which the token expires.
    pub expires_at: Option<Timestamp>,
    /// The stored time of the last use.
    pub last_used_at: Option<Timestamp>,
    /// Whether the token is of restored data and no administrator has confirmed it.
    pub unconfirmed: bool,
}

/// A web session as the store keeps it, without its secret.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    /// The id, which is no secret.
    pub id: String,
    /// The user or API token that logged in.
    pub name: String,
    /// The id of the API token; `None` for a user.
    pub token_id: Option<String>,
    /// A text that changes with role and password of the user.
    pub mark: String,
    /// When the session was last used.
    pub last_used_at: Timestamp,
    /// When the session ends, however much it is used.
    pub expires_at: Timestamp,
}

/// The database did not respond.
#[derive(Debug, Error)]
#[error("cannot look up credentials; see /readyz for the state of the database")]
pub struct StoreUnavailable(#[source] pub Box<dyn std::error::Error + Send + Sync>);
