//! The limits of an API token: the servers that it may see, and what it may do in the registry.
//!
//! ```text
//!  labels     {"site": "bern"}           servers and jobs of servers that have all these labels; empty: all servers
//!  registry   "pull,push:os-images/**"   actions, then a pattern of repositories
//!               pull     read                push   create content and tags, and move tags           delete   delete
//! ```
//!
//! Invariants: a token with any limit has in the registry only what its scopes say, and a token without scopes then nothing;
//! no rule of the registry extends that. A route that does not know labels refuses a token with labels (`api::extract`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use registry::{RepositoryPattern, Rights};
use thiserror::Error;

/// The maximum of labels of one token.
pub const MAX_TOKEN_LABELS: usize = 16;
/// The maximum of registry scopes of one token.
pub const MAX_REGISTRY_SCOPES: usize = 16;

/// The limits of an API token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenLimits {
    /// The servers that the token may see.
    pub servers: ServerScope,
    /// The rights of the token in the registry.
    pub registry: Vec<RegistryScope>,
}

impl TokenLimits {
    /// Whether the token is limited by its role only.
    pub fn is_empty(&self) -> bool {
        self.servers.is_everything() && self.registry.is_empty()
    }
}

/// The servers that a caller may see, by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerScope(pub BTreeMap<String, String>);

impl ServerScope {
    /// Whether every server is included.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a server with these labels is included.
    pub fn includes(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// Rights in some repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryScope {
    text: String,
    /// The repositories.
    pub repositories: RepositoryPattern,
    /// The rights in the repositories.
    pub rights: Rights,
}

/// A text is no registry scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a registry scope is ACTIONS:REPOSITORIES, such as pull:os-images/** or pull,push:tools/*; actions are pull, push and delete"
)]
pub struct InvalidRegistryScope;

impl FromStr for RegistryScope {
    type Err = InvalidRegistryScope;

    fn from_str(text: &str) -> Result<Self, InvalidRegistryScope> {
        let (actions, repositories) = text.split_once(':').ok_or(InvalidRegistryScope)?;
        let rights = actions.split(',').try_fold(Rights::NONE, |rights, action| match action {
            "pull" => Ok(rights.and(Rights::READ)),
            "push" => Ok(rights.and(Rights::CREATE).and(Rights::UPDATE)),
            "delete" => Ok(rights.and(Rights::DELETE)),
            _ => Err(InvalidRegistryScope),
        })?;
        let repositories = repositories.parse().map_err(|_| InvalidRegistryScope)?;
        Ok(Self { text: text.to_owned(), repositories, rights })
    }
}

impl fmt::Display for RegistryScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
