//! Who may do what: the question this crate asks, answered by the program that embeds it.
//!
//! ```text
//!  request -> parsed endpoint -> Access { repository, action } --authorize--> Ok | Unauthorized 401 | Forbidden 403
//! ```
//!
//! Every endpoint asks exactly once before it touches the store. A mount asks a second time, for its sources, the
//! catalog for the repositories it lists, and a push of tags whether tags that exist may move; what may not be read is
//! then as if it were not there. The API itself looks at no credentials: the [`Authorizer`] does.
//!
//! Two are here. [`AccessControl`] knows users through an [`Authenticator`] ([`Htpasswd`], or the embedding program's)
//! and asks a [`Policy`], which is data; [`TokenAuthority`] puts Docker's token flow before it.
//!
//! ```text
//!  Authorization -> Credentials -> Authenticator -> Subject --Policy--> Decision
//!                       '------- token of ours ----> Subject, scopes -^
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
pub use self::control::{AccessControl, Authenticator};
pub use self::credentials::{Credentials, Secret};
pub(crate) use self::htpasswd::parse as read_htpasswd;
pub use self::policy::{
    Decision, ImmutableTags, InvalidImmutableTags, InvalidRule, Policy, Reason, Request, Rights, Rule,
    Subject, Who, decide,
};
pub use self::token_authority::{Realm, TokenAuthority, TokenOptions};
pub use self::users::{Htpasswd, HtpasswdOptions};
use crate::name::{RepositoryName, Tag};

/// Decides whether a request may go on.
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// Whether `caller` may do what `access` says.
    async fn authorize(&self, caller: Caller<'_>, access: Access<'_>) -> Result<(), Denied>;

    /// Those of `repositories` the caller may pull from, in the same order. Asked for lists; who can tell a caller once
    /// for many repositories should.
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

    /// Whether `tag` may neither move nor go once it exists, whoever asks. Asked while the tag is locked.
    fn immutable(&self, _repository: &RepositoryName, _tag: &Tag) -> bool {
        false
    }

    /// The name of the caller, for the audit; `None` when it is nobody in particular.
    async fn identify(&self, _caller: Caller<'_>) -> Option<String> {
        None
    }

    /// The `WWW-Authenticate` challenge sent with a 401; `wanted` is all the request needs.
    fn challenge(&self, _caller: Caller<'_>, _wanted: &[Access<'_>]) -> String {
        BASIC.to_owned()
    }

    /// The challenge sent along when `/v2/` is answered to nobody in particular with 200: how one could log in. Clients
    /// ask there only once, and some would never log in without it.
    fn invitation(&self, _caller: Caller<'_>) -> Option<String> {
        None
    }
}

const BASIC: &str = "Basic realm=\"shoal\"";

/// What is known of the one who asks. Its `Debug` never shows the credentials.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The `Authorization` header as sent.
    pub authorization: Option<&'a str>,
    /// The `Host` header as sent: the name the caller knows this registry by.
    pub host: Option<&'a str>,
    /// The address of the connection, when the embedding program serves with connect info.
    pub peer: Option<SocketAddr>,
}

/// What is to be done, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// The repository; `None` for the version check at `/v2/`, which clients use to find out how to log in, for
    /// extensions, and for the list of repositories.
    pub repository: Option<&'a RepositoryName>,
    /// What is to be done.
    pub action: Action,
}

/// What can be done to a repository, or with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read blobs, manifests and tags.
    Pull,
    /// Upload blobs, put manifests, make tags that do not exist.
    Push,
    /// Let a tag that exists name something else. Asked beside [`Action::Push`].
    Move,
    /// Delete blobs, manifests and tags.
    Delete,
    /// List repositories. Which of them are shown is asked afterwards.
    List,
}

/// Why a request may not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Denied {
    /// The caller is unknown or the credentials are wrong: 401 with a challenge.
    #[error("authentication required")]
    Unauthorized,
    /// The caller is known and may not do this: 403.
    #[error("requested access to the resource is denied")]
    Forbidden,
    /// Access cannot be checked right now, or too many tries failed: 503, worth another try.
    #[error("access cannot be checked right now; try again")]
    Unavailable,
}

/// Lets everybody do everything; for tests and closed networks.
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
            .finish()
    }
}
