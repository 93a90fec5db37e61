//! Who may do what: users, API tokens, roles, JWTs, webhook secrets, and the brake on guessing.
//!
//! ```text
//! Authorization header
//!   (mode none) ─────────────────────────────────────────────> everybody is admin, on loopback only
//!   Bearer shoal_… ─────────── store: SHA-256 of the token ──> API token's role          every mode
//!   Bearer a.b.c ───────────── HS256, exp, nbf, role, sub ───> the claim's role          mode jwt
//!   Basic  any:shoal_… ─────── as Bearer (OCI clients can only send Basic)                every mode
//!   Basic  any:a.b.c ───────── as Bearer                                                  mode jwt
//!   Basic  shoal-job:password ─ store: SHA-256 ──────────────> pulls from one repository every mode
//!   Basic  name:password ───── configuration or store, argon2id ─> the user's role       mode basic
//! ```
//!
//! Invariants:
//! - Nothing is allowed that is not listed in [`Grants::allows`]; an unknown role, claim or scheme is a refusal.
//! - A wrong credential costs its sender: failures are counted per address, successes are not. A caller whose
//!   credential cannot be guessed, or was right a moment ago, is never refused for its neighbour's failures.
//! - An unknown user costs as much time as a wrong password.
//! - Passwords are verified on few threads with a short queue; what does not fit is refused with "unavailable",
//!   because each verification takes tens of milliseconds and megabytes on purpose.
//! - Removing a user or a role in the store takes effect with the next request: only "this password matches this hash"
//!   is remembered. An API token that is removed is refused a second later at the latest ([`recent`]).
//!
//! Answers and status codes are the API's business; this room knows no HTTP beyond the text of one header.
//!
//! DESIGN sections 3 (L12, L18), 9, 11 and 13.

mod authenticator;
mod header;
mod jwt;
mod limit;
mod password;
mod report;
mod store;
mod token;
mod token_cache;
mod verify;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use authenticator::{AuthConfig, AuthConfigError, Authenticator};
pub use jwt::{JWT_AUDIENCE, JwtKey, JwtKeyError, MIN_JWT_SECRET_BYTES};
pub use limit::{Limited, RateLimit, RateLimiter};
pub use password::{
    MAX_PASSWORD_BYTES, MIN_PASSWORD_BYTES, PasswordError, hash_password, password_hash_usable,
};
pub use report::{ReportAuth, ReportSecrets, verify_report_secret};
pub use secrets::JOB_USERNAME;
pub use store::{CredentialStore, PullRecord, StoreUnavailable, TokenRecord, UserRecord};
pub use token::{API_TOKEN_PREFIX, generate_token, is_api_token};

/// How callers prove who they are (`AUTH_MODE`). API tokens work in every mode.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    /// User name and password.
    Basic,
    /// A signed token from elsewhere.
    Jwt,
    /// Not at all. Only for listeners on loopback; whoever starts them sees to that.
    None,
}

impl AuthMode {
    /// The word of the setting.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Jwt => "jwt",
            Self::None => "none",
        }
    }
}

impl fmt::Display for AuthMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AuthMode {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "basic" => Ok(Self::Basic),
            "jwt" => Ok(Self::Jwt),
            "none" => Ok(Self::None),
            _ => Err(UnknownWord { what: "authentication mode", known: "basic, jwt, none" }),
        }
    }
}

/// What a person or a program is, as far as permissions go.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May do everything.
    Admin,
    /// May look at everything (`GET`, `HEAD`) and pull from the registry.
    Reader,
}

impl Role {
    /// Whether this role comes with a permission.
    pub fn allows(self, permission: Permission) -> bool {
        match self {
            Self::Admin => true,
            Self::Reader => matches!(permission, Permission::Read | Permission::RegistryPull),
        }
    }

    /// The word in the database, in a JWT and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Reader => "reader",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "admin" => Ok(Self::Admin),
            "reader" => Ok(Self::Reader),
            _ => Err(UnknownWord { what: "role", known: "admin, reader" }),
        }
    }
}

/// What a route needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Permission {
    /// To look: every `GET` and `HEAD` of the API.
    Read,
    /// To change: everything else of the API.
    Write,
    /// To fetch manifests and blobs.
    RegistryPull,
    /// To upload, tag and delete in the registry.
    RegistryPush,
}

/// What a principal was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Grants {
    /// All that belongs to a role.
    Role(Role),
    /// To pull from one repository, and nothing else.
    PullFrom {
        /// The repository's name, as in `/v2/<name>/…`.
        repository: String,
    },
}

impl Grants {
    /// Whether a permission is given, for a registry permission in `repository`. Asked without a repository (`GET
    /// /v2/`, by which clients check their credentials), a pull from one repository counts.
    pub fn allows(&self, permission: Permission, repository: Option<&str>) -> bool {
        match self {
            Self::Role(role) => role.allows(permission),
            Self::PullFrom { repository: own } => {
                permission == Permission::RegistryPull && repository.is_none_or(|asked| asked == own)
            }
        }
    }
}

/// How a principal was recognised.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Method {
    /// Not at all: mode `none`.
    Open,
    /// By user name and password.
    Password,
    /// By an API token.
    ApiToken {
        /// The token's id in the store (not the token).
        id: String,
    },
    /// By a signed token from elsewhere.
    Jwt,
    /// By the pull password of a job.
    Job {
        /// The job.
        job_id: String,
    },
}

/// Who is asking.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Principal {
    /// For events and the audit log: the user, the token's name, the `sub` claim.
    pub name: String,
    /// What it may do.
    pub grants: Grants,
    /// How it was recognised.
    pub method: Method,
}

impl Principal {
    /// Whether a permission is given; see [`Grants::allows`].
    pub fn allows(&self, permission: Permission, repository: Option<&str>) -> bool {
        self.grants.allows(permission, repository)
    }
}

/// Why nobody was recognised.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum AuthFailure {
    /// No credential was presented.
    #[error("this needs a credential; send an Authorization header with a user and password or an API token")]
    Missing,
    /// The credential is not right; which part of it is deliberately not said.
    #[error("the credential was not accepted; check user, password or token, and whether it has expired")]
    Invalid,
    /// Too many wrong credentials came from this address.
    #[error("too many wrong credentials from this address; try again in {} s", retry_after.as_secs() + 1)]
    RateLimited {
        /// When the next attempt will be looked at. A `Retry-After` header wants it rounded up.
        retry_after: Duration,
    },
    /// The credential could not be checked.
    #[error("the credential could not be checked just now; try again in a moment")]
    Unavailable,
}

/// A word that is none of a short list. The word is not repeated: it may be a misplaced secret.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("unknown {what}; use one of: {known}")]
pub struct UnknownWord {
    what: &'static str,
    known: &'static str,
}

#[cfg(test)]
mod tests;
