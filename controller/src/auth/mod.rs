//! Authentication and authorization: users, API tokens, roles, JWTs, report secrets, and the rate limit of failures.
//!
//! ```text
//! Authorization header
//!   (mode none) ─────────────────────────────────────────────> admin without login, on loopback only
//!   Bearer shoal_… ─────────── store: SHA-256 of the token ──> the role of the API token  every mode
//!   Bearer a.b.c ───────────── HS256, exp, nbf, role, sub ───> the role in the claim      mode jwt
//!   Basic  any:shoal_… ─────── as Bearer (OCI clients can only send Basic)                every mode
//!   Basic  any:a.b.c ───────── as Bearer                                                  mode jwt
//!   Basic  shoal-job:password ─ store: SHA-256 ──────────────> pulls from one repository  every mode
//!   Basic  name:password ───── configuration or store, argon2id ─> the role of the user    mode basic
//! ```
//!
//! Invariants:
//! - Access is denied by default: [`PrincipalRights::allows`] lists everything that is allowed. An unknown role, claim or
//!   scheme is an authentication failure.
//! - Failures are counted, successes are not: wrong tokens per address, wrong passwords per user name at an address. A
//!   caller with a token that cannot be guessed, or with a password that was verified within the last day, is never refused
//!   because of failures of another caller behind its address, such as that of a proxy.
//! - The response for an unknown user takes as long as for a wrong password.
//! - Passwords are verified on few threads with a short queue. A request that finds the queue full is refused as
//!   unavailable, because each verification costs tens of milliseconds and megabytes of memory by design.
//! - Removing a user or a role in the store takes effect with the next request: the cache only remembers that a password
//!   matches a hash. A removed API token is refused after one second at most (`token_cache`).
//!
//! Responses and status codes belong to the API. This module knows only the text of the `Authorization` header.
//!
//! Decisions D12 and D18; docs/operating.md, docs/maintenance-os.md.

mod authenticator;
mod client_address;
mod denials;
mod header;
mod jwt;
mod limit;
mod password;
mod report;
mod standing;
mod store;
mod token;
mod token_cache;
mod verify;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use authenticator::{AuthConfig, AuthConfigError, Authenticator};
pub use client_address::{NoNetworks, TrustedProxies};
pub(crate) use denials::{Denial, Denials};
pub use jwt::{JWT_AUDIENCE, JwtKey, JwtKeyError, MIN_JWT_SECRET_BYTES};
pub use limit::{Limited, RateLimit, RateLimiter};
pub use password::{
    MAX_PASSWORD_BYTES, MIN_PASSWORD_BYTES, PasswordError, hash_password, password_hash_usable,
};
pub use report::{ReportAuth, ReportSecrets, verify_report_secret};
pub use secrets::JOB_USERNAME;
pub(crate) use standing::{Proof, Standing, of_request, prove};
pub use store::{CredentialStore, StoreUnavailable, TokenRecord, UserRecord};
pub use token::{API_TOKEN_PREFIX, generate_token, is_api_token};

/// How callers authenticate (`AUTH_MODE`). API tokens work in every mode.
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    Eq,
    PartialEq,
    Serialize,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::Display,
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = unknown_mode)]
pub enum AuthMode {
    /// User name and password.
    Basic,
    /// A JWT that another system signed.
    Jwt,
    /// No authentication. Only for listeners on loopback; the rules of `config` check that.
    None,
}

impl AuthMode {
    /// The value of the setting.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The role of a user or a program, from which its permissions follow.
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    Eq,
    PartialEq,
    Serialize,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = unknown_role)]
pub enum Role {
    /// All permissions.
    Admin,
    /// May read everything (`GET`, `HEAD`) except the secrets of jobs, and pull from the registry.
    Reader,
}

impl Role {
    /// Whether this role has a permission.
    pub fn allows(self, permission: Permission) -> bool {
        match self {
            Self::Admin => true,
            Self::Reader => matches!(permission, Permission::Read | Permission::RegistryPull),
        }
    }

    /// The name in the database, in a JWT and on the command line.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The permission that a route requires.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Permission {
    /// Reading: every `GET` and `HEAD` of the API that shows no secret.
    Read,
    /// Reading what contains the secrets of a job: its task image, with the recipe, the report token and the pull password.
    ReadSecrets,
    /// Changing: every other request to the API.
    Write,
    /// Fetching manifests and blobs.
    RegistryPull,
    /// Uploading, tagging and deleting in the registry.
    RegistryPush,
}

/// The rights of a principal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PrincipalRights {
    /// All permissions of a role.
    Role(Role),
    /// Pulling from one repository only.
    PullFrom {
        /// The name of the repository, as in `/v2/<name>/…`.
        repository: String,
    },
}

impl PrincipalRights {
    /// Whether a permission is included; a registry permission is checked for `repository`. Without a repository (`GET
    /// /v2/`, with which clients check their credentials) the right to pull from one repository is enough.
    pub fn allows(&self, permission: Permission, repository: Option<&str>) -> bool {
        match self {
            Self::Role(role) => role.allows(permission),
            Self::PullFrom { repository: own } => {
                permission == Permission::RegistryPull && repository.is_none_or(|requested| requested == own)
            }
        }
    }
}

/// How a principal authenticated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AuthMethod {
    /// Without a credential, in mode `none`.
    Open,
    /// With user name and password.
    Password,
    /// With an API token.
    ApiToken {
        /// The id of the token in the store, not the token.
        id: String,
    },
    /// With a JWT that another system signed.
    Jwt,
    /// With the pull password of a job.
    Job {
        /// The job.
        job_id: String,
    },
}

/// An authenticated caller.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Principal {
    /// The name for events and the audit log: the user, the name of the token, or the `sub` claim.
    pub name: String,
    /// What the principal may do.
    pub rights: PrincipalRights,
    /// How the principal authenticated.
    pub method: AuthMethod,
}

impl Principal {
    /// Whether the principal has a permission; see [`PrincipalRights::allows`].
    pub fn allows(&self, permission: Permission, repository: Option<&str>) -> bool {
        self.rights.allows(permission, repository)
    }
}

/// Why authentication failed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum AuthFailure {
    /// The request has no credential.
    #[error(
        "this request needs a credential; send an Authorization header with user and password or an API token"
    )]
    Missing,
    /// The credential is wrong. The error deliberately does not say which part of it.
    #[error("the credential was not accepted; check user, password or token, and whether it has expired")]
    Invalid,
    /// Too many wrong credentials came from this address, or too many wrong passwords of this user from there.
    #[error("too many wrong credentials from this address; try again in {} s", retry_after.as_secs() + 1)]
    RateLimited {
        /// The time until the next attempt is checked. Round it up for a `Retry-After` header.
        retry_after: Duration,
    },
    /// The credential could not be checked.
    #[error("the credential could not be checked now; try again in a few seconds")]
    Unavailable,
}

/// A name that is not in a list of known names. The error does not repeat the name: it may be a misplaced secret.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("unknown {what}; use one of: {known}")]
pub struct UnknownName {
    what: &'static str,
    known: &'static str,
}

fn unknown_mode(_: &str) -> UnknownName {
    UnknownName { what: "authentication mode", known: "basic, jwt, none" }
}

fn unknown_role(_: &str) -> UnknownName {
    UnknownName { what: "role", known: "admin, reader" }
}

#[cfg(test)]
mod tests;
