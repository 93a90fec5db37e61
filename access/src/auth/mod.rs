//! Authentication and authorization: users, API tokens, roles, JWTs, report secrets, and the rate limit of failures.
//!
//! ```text
//! Authorization header
//!   (mode none) ─────────────────────────────────────────────> admin without login, on loopback only
//!   Bearer shoal_… ─────────── store: SHA-256 of the token ──> the role of the API token  every mode
//!                              not revoked, not expired         with the limits of the token
//!   Bearer a.b.c ───────────── signature, claims, sub ────────> the role of the claims     mode jwt
//!   Basic  any:shoal_… ─────── as Bearer (OCI clients can only send Basic)                every mode
//!   Basic  any:a.b.c ───────── as Bearer                                                  mode jwt
//!   Basic  shoal-job:password ─ store: SHA-256 ──────────────> pulls from one repository  every mode
//!   Basic  name:password ───── configuration or store, argon2id ─> the role of the user    mode basic
//! Cookie header
//!   __Host-shoal=… ─────────── store: SHA-256 of the cookie ─> the rights of the login now  every mode, API only
//! ```
//!
//! Invariants:
//! - Access is denied by default: [`Role::allows`] lists everything that is allowed. An unknown role, claim or
//!   scheme is an authentication failure.
//! - Failures are counted, successes are not: wrong tokens per address, wrong passwords per user name at an address. A
//!   caller with a token that cannot be guessed, or with a password that was verified within the last day, is never refused
//!   because of failures of another caller behind its address, such as that of a proxy.
//! - The response for an unknown user takes as long as for a wrong password.
//! - Passwords are verified on few threads with a short queue. A request that finds the queue full is refused as
//!   unavailable, because each verification costs tens of milliseconds and megabytes of memory by design.
//! - A removed or disabled user, a changed role or password, and a revoked token take effect with the next request: the
//!   verifier only remembers that a password matches a hash, and a change of tokens empties their cache (`token_cache`).
//! - Each credential has one purpose: the API refuses a report secret and a pull password, and a report refuses every API
//!   token that is not report-only.
//!
//! Responses and status codes belong to the API. This module knows only the text of the `Authorization` header.
//!
//! Decisions D12 and D18; docs/operating.md, docs/maintenance-os.md.

mod authenticator;
mod client_address;
mod client_certificate;
mod denials;
pub mod fuzz;
mod header;
mod jwt;
mod limit;
mod limits;
mod networks;
mod password;
mod report;
mod revocation;
mod role;
mod standing;
mod store;
mod token;
mod token_cache;
mod verify;
mod web_session;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use model::audit::{ActorKind, AuditActor};

pub use authenticator::{AuthConfig, AuthConfigError, Authenticator, CheckedAuthConfig, Login, Logins};
pub use client_address::TrustedProxies;
pub use client_certificate::{
    CertificateEntry, CertificateRefused, InvalidCertificateEntry, ReadLists, ReportAuthoritiesError,
    ReportCertificates,
};
pub use denials::{Denial, Denials};
pub use header::MAX_NAME_BYTES;
pub use jwt::{
    InvalidRoleEntry, JWT_AUDIENCE, JwtKeyError, JwtKeys, JwtRules, JwtVerifier, KeyDocument, KeySet,
    MIN_JWT_SECRET_BYTES, RoleEntry, check_key_set, check_public_keys, check_secret,
};
pub use limit::{Limited, RateLimit, RateLimiter};
pub use limits::{
    InvalidRegistryScope, MAX_REGISTRY_SCOPES, MAX_TOKEN_LABELS, RegistryScope, ServerScope, TokenLimits,
};
pub use networks::{Networks, NoNetworks};
pub use password::{
    MAX_PASSWORD_BYTES, MIN_PASSWORD_BYTES, PasswordError, hash_password, password_hash_usable,
};
pub use report::{ReportAuth, ReportSecrets, verify_report_secret};
pub use revocation::RevocationListsError;
pub use revocation::lists_in;
pub use role::{Permission, Role, UnknownName};
pub use secrets::JOB_USERNAME;
pub use standing::{Proof, Standing, of_request, prove};
pub use store::{CredentialStore, SessionRecord, StoreUnavailable, TokenRecord, UserRecord};
pub use token::{
    API_TOKEN_PREFIX, WORKER_TOKEN_PREFIX, generate_token, generate_worker_token, is_api_token,
    is_worker_token,
};
#[doc(hidden)]
pub use web_session::fuzz as session_fuzz;
pub use web_session::{SESSION_COOKIE, SessionSecret, remove_cookie};

/// The mode of authentication (`AUTH_MODE`). API tokens work in every mode.
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

/// The rights of a principal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PrincipalRights {
    /// All permissions of a role.
    Role(Role),
    /// The permissions of a role within the limits of an API token.
    Limited {
        /// The role.
        role: Role,
        /// The limits; never empty.
        limits: TokenLimits,
    },
    /// Pulling from one repository only.
    PullFrom {
        /// The name of the repository, as in `/v2/<name>/…`.
        repository: String,
    },
}

impl PrincipalRights {
    /// The rights of an API token.
    pub fn of_token(role: Role, limits: TokenLimits) -> Self {
        if limits.is_empty() { Self::Role(role) } else { Self::Limited { role, limits } }
    }

    /// The role; `None` for the pull right of a job.
    pub fn role(&self) -> Option<Role> {
        match self {
            Self::Role(role) | Self::Limited { role, .. } => Some(*role),
            Self::PullFrom { .. } => None,
        }
    }

    /// Whether the rights include a permission. The registry decides by its own policy.
    pub fn allows(&self, permission: Permission) -> bool {
        self.role().is_some_and(|role| role.allows(permission))
    }

    /// The limits of an API token.
    pub fn limits(&self) -> Option<&TokenLimits> {
        match self {
            Self::Limited { limits, .. } => Some(limits),
            Self::Role(_) | Self::PullFrom { .. } => None,
        }
    }
}

/// The way by which a principal authenticated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AuthMethod {
    /// No credential, in mode `none`.
    Open,
    /// A user name and a password.
    Password,
    /// An API token.
    ApiToken {
        /// The id of the token in the store, not the token.
        id: String,
    },
    /// A JWT that another system signed.
    Jwt,
    /// The cookie of a web session.
    Session {
        /// The id of the session in the store, not its secret.
        id: String,
    },
    /// The pull password of a job.
    Job {
        /// The id of the job.
        job_id: String,
    },
}

/// An authenticated caller.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Principal {
    /// The name for events and the audit log: the user, the name of the token, or the `sub` claim.
    pub name: String,
    /// The rights of the principal.
    pub rights: PrincipalRights,
    /// The way by which the principal authenticated.
    pub method: AuthMethod,
}

impl Principal {
    /// Whether the principal has a permission; see [`PrincipalRights::allows`].
    pub fn allows(&self, permission: Permission) -> bool {
        self.rights.allows(permission)
    }

    /// The principal as the actor of audit entries.
    pub fn actor(&self) -> AuditActor {
        let actor = |kind| AuditActor::new(kind, &self.name);
        match &self.method {
            AuthMethod::Open => actor(ActorKind::Open),
            AuthMethod::Password => actor(ActorKind::User),
            AuthMethod::ApiToken { id } => actor(ActorKind::Token).with_id(id),
            AuthMethod::Jwt => actor(ActorKind::Jwt),
            AuthMethod::Session { id } => actor(ActorKind::Session).with_id(id),
            AuthMethod::Job { job_id } => actor(ActorKind::Job).with_id(job_id),
        }
    }

    /// The servers that the principal may see.
    pub fn servers(&self) -> ServerScope {
        self.rights.limits().map(|limits| limits.servers.clone()).unwrap_or_default()
    }
}

/// The reason why authentication failed.
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
    /// The credential is right. Its login is of restored data, and no administrator has confirmed it.
    #[error(
        "this login is of restored data and not confirmed; confirm it with `shoal user confirm` or `shoal token confirm`"
    )]
    Unconfirmed,
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

fn unknown_mode(_: &str) -> UnknownName {
    UnknownName { what: "authentication mode", known: "basic, jwt, none" }
}

#[cfg(test)]
mod tests;
