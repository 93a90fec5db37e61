//! Access control. The crate asks for a decision; the embedding program decides through an [`Authorizer`].
//!
//! ```text
//!  request -> parsed endpoint -> Access { repository, action } --authorize--> Ok | Unauthorized 401 | Forbidden 403
//! ```
//!
//! Every endpoint asks exactly once before it uses the store. Three endpoints ask again: a mount for its source
//! repositories, the catalog for the repositories it lists, and a push for tags that exist. A repository that may not
//! be read is treated as if it did not exist. The API does not read credentials: the [`Authorizer`] does.
//!
//! The crate has two implementations. [`AccessControl`] gets users from a [`UserAuthenticator`] ([`Htpasswd`], or one
//! of the embedding program) and applies a [`Policy`]; [`TokenAuthority`] adds Docker's token flow.
//!
//! ```text
//!  Authorization -> Credentials -> UserAuthenticator -> Subject --Policy--> Decision
//!                       '--- issued token ---> Subject, scopes -^
//! ```

mod audit;
mod cache;
mod control;
mod credentials;
mod htpasswd;
mod limiter;
mod policy;
#[cfg(test)]
mod policy_tests;
mod scope;
mod token;
mod token_authority;
mod token_endpoint;
mod users;

use std::fmt;
use std::net::SocketAddr;

use async_trait::async_trait;

pub use self::audit::{Audit, AuditCounters, AuditEvent, Audited, NoAudit};
pub use self::control::{AccessControl, UserAuthenticator};
pub use self::credentials::{Credentials, Secret};
pub(crate) use self::htpasswd::parse as read_htpasswd;
pub use self::policy::{
    AccessRequest, Decision, InvalidRule, Policy, PolicyRule, PolicySubject, Reason, Rights, SubjectPattern,
    decide,
};
pub use self::token::SigningKeys;
pub use self::token_authority::{Realm, TokenAuthority, TokenOptions};
pub use self::users::{Htpasswd, HtpasswdOptions};
use crate::name::{RepositoryName, Tag};

/// Decides whether a request is allowed.
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// Checks that `caller` may do what `access` says.
    ///
    /// # Errors
    /// The reason of the denial; see [`Denied`].
    async fn authorize(&self, caller: Caller<'_>, access: Access<'_>) -> Result<(), Denied>;

    /// Returns those of `repositories` the caller may pull from, in the same order. It is called for lists. An
    /// implementation that can authenticate a caller once for many repositories should override it.
    async fn readable<'r>(
        &self,
        caller: Caller<'_>,
        repositories: &[&'r RepositoryName],
    ) -> Vec<&'r RepositoryName> {
        let mut readable = Vec::new();
        for name in repositories {
            let access = Access { repository: Some(name), action: Action::Pull };
            if self.authorize(caller, access).await.is_ok() {
                readable.push(*name);
            }
        }
        readable
    }

    /// Whether `tag` may neither move nor be deleted once it exists, by any caller. Called while the tag is locked.
    fn immutable(&self, _repository: &RepositoryName, _tag: &Tag) -> bool {
        false
    }

    /// The name of the caller, for the audit; `None` for an anonymous caller.
    async fn identify(&self, _caller: Caller<'_>) -> Option<String> {
        None
    }

    /// The `WWW-Authenticate` challenge sent with a 401; `wanted` is all the request needs.
    fn challenge(&self, _caller: Caller<'_>, _wanted: &[Access<'_>]) -> String {
        BASIC.to_owned()
    }

    /// The challenge sent with a 200 for `/v2/` to an anonymous caller. Some clients ask only there, and would never
    /// log in without it.
    fn optional_challenge(&self, _caller: Caller<'_>) -> Option<String> {
        None
    }
}

const BASIC: &str = "Basic realm=\"shoal\"";

/// The facts about a caller that its request contains. `Debug` never prints the credentials.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The `Authorization` header as sent; `None` for empty credentials, which some clients send when they have none.
    pub authorization: Option<&'a str>,
    /// The name by which the caller reached this registry: the `Host` header, or the one a proxy received.
    pub host: Option<&'a str>,
    /// The address of the connection, when the embedding program serves with connect info.
    pub peer: Option<SocketAddr>,
    /// The scheme of the caller's own connection, as far as it is known.
    pub scheme: ClientScheme,
}

/// The scheme by which a client reached this registry, or the proxy in front of it, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientScheme {
    /// Plain HTTP, on this machine: nothing that the client sends crosses a network.
    LocalHttp,
    /// TLS, which a proxy in front of this registry ends, or the embedding program.
    Https,
    /// A proxy is in front of this registry and does not say that it received TLS.
    Proxied,
    /// Nothing: the request has no mark of a proxy, and a TLS proxy need not leave one.
    Unmarked,
}

/// The address at which a connection was accepted. The embedding program inserts it as an extension of each request;
/// without it no client counts as local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress(pub SocketAddr);

/// The mark of a request that arrived over TLS at a listener of the embedding program, which inserts it as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverTls;

/// The access a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// The repository; `None` for the version check at `/v2/`, which clients use to find out how to log in, for
    /// extensions, and for the list of repositories.
    pub repository: Option<&'a RepositoryName>,
    /// The action on the repository.
    pub action: Action,
}

/// An action on one repository, or on the list of repositories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read blobs, manifests and tags.
    Pull,
    /// Ask by `HEAD` whether a blob or a manifest exists. A caller who may pull or push may ask: a client that pushes
    /// asks first, and finds out in any case.
    Exists,
    /// Read from every repository that the caller may read, for a mount that names no source. It has no repository and
    /// only appears in challenges and tokens.
    PullAny,
    /// Upload blobs, put manifests, create tags.
    Push,
    /// Set an existing tag to another manifest. Checked in addition to [`Action::Push`].
    Move,
    /// Delete blobs, manifests and tags.
    Delete,
    /// List repositories. Which of them are listed is checked afterwards.
    List,
}

/// The reason of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Denied {
    /// The caller is unknown or the credentials are wrong: 401 with a challenge.
    #[error("authentication required")]
    Unauthorized,
    /// The subject of the token has the right, and the scopes of the token do not cover it: 401 with a challenge that names the
    /// missing scopes.
    #[error("the token does not cover this request: request one with the scopes of the challenge")]
    OutOfScope,
    /// The caller is known and the action is not allowed: 403.
    #[error("requested access to the resource is denied")]
    Forbidden,
    /// Too many wrong credentials: 429, the client may retry.
    #[error("too many wrong credentials: check user and password, and try again later")]
    RateLimited,
    /// Access cannot be checked now: 503, the client may retry.
    #[error("access cannot be checked right now; try again")]
    Unavailable,
}

/// Allows every request of every caller; for tests and closed networks.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

#[async_trait]
impl Authorizer for AllowAll {
    async fn authorize(&self, _caller: Caller<'_>, _access: Access<'_>) -> Result<(), Denied> {
        Ok(())
    }
}

impl fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("authorization", &self.authorization.map(|_| "[redacted]"))
            .field("host", &self.host)
            .field("peer", &self.peer)
            .field("scheme", &self.scheme)
            .finish()
    }
}
