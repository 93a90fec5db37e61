//! What the authenticator asks of the database: three look-ups by key, each one indexed read.
//!
//! The trait is owned here and implemented by the store, so that this room knows no tables. Secrets never cross it:
//! questions are names and digests, answers hold a password hash at most.
//!
//! DESIGN sections 2 (the lower room owns the trait) and 4 (`users`, `api_tokens`, `media_grants`).

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use thiserror::Error;

use super::Role;

/// Where users, API tokens and the pull passwords of jobs are looked up.
#[async_trait]
pub trait CredentialStore: Send + Sync {
    /// The user of this name.
    async fn user(&self, name: &str) -> Result<Option<UserRecord>, StoreUnavailable>;

    /// The API token with this hex SHA-256, expired or not; a revoked one is absent. Asked once a second for each token.
    async fn api_token(&self, hash: &str) -> Result<Option<TokenRecord>, StoreUnavailable>;

    /// The job whose pull password has this hex SHA-256, as long as its grant has not ended.
    async fn job_pull(&self, hash: &str) -> Result<Option<PullRecord>, StoreUnavailable>;
}

/// A user.
#[derive(Clone)]
pub struct UserRecord {
    /// The name it logs in with.
    pub name: String,
    /// Made by [`super::hash_password`]: argon2id in PHC form.
    pub password_hash: String,
    /// What it may do.
    pub role: Role,
}

impl fmt::Debug for UserRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserRecord")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// An API token, without the token.
#[derive(Clone, Debug)]
pub struct TokenRecord {
    /// Its id, for the audit log and for revoking it.
    pub id: String,
    /// What its owner called it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// From when on it is refused.
    pub expires_at: Option<Timestamp>,
}

/// A running job's right to pull.
#[derive(Clone, Debug)]
pub struct PullRecord {
    /// The job.
    pub job_id: String,
    /// The only repository it may pull from.
    pub repository: String,
}

/// The database did not answer.
#[derive(Debug, Error)]
#[error("cannot look up credentials; see the readiness report for the state of the database")]
pub struct StoreUnavailable(#[source] pub Box<dyn std::error::Error + Send + Sync>);
