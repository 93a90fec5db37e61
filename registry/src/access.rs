//! Who may do what: the question this crate asks, answered by the program that embeds it.
//!
//! ```text
//!  request -> parsed endpoint -> Access { repository, action } --authorize--> Ok | Unauthorized 401 | Forbidden 403
//! ```
//!
//! Every endpoint asks exactly once before it touches the store. A mount asks a second time, for its sources, and the
//! catalog for the repositories it lists; what may not be read is then as if it were not there.
//! The registry keeps no users and looks at no credentials itself.

use std::fmt;
use std::net::SocketAddr;

use async_trait::async_trait;

use crate::name::RepositoryName;

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

    /// The `WWW-Authenticate` challenge sent with a 401.
    fn challenge(&self, _access: Access<'_>) -> String {
        "Basic realm=\"shoal\"".to_owned()
    }
}

/// What is known of the one who asks. Its `Debug` never shows the credentials.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The `Authorization` header as sent.
    pub authorization: Option<&'a str>,
    /// The address of the connection, when the embedding program serves with connect info.
    pub peer: Option<SocketAddr>,
}

/// What is to be done, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// The repository; `None` for the version check at `/v2/`, which clients use to find out how to log in.
    pub repository: Option<&'a RepositoryName>,
    /// What is to be done.
    pub action: Action,
}

/// What can be done to a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read blobs, manifests and tags.
    Pull,
    /// Upload blobs, put manifests, move tags.
    Push,
    /// Delete blobs, manifests and tags.
    Delete,
}

/// Why a request may not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
            .field("peer", &self.peer)
            .finish()
    }
}
