//! Lookups that the controller implements.

use async_trait::async_trait;

use model::{Serial, Server};

/// A service of the controller did not respond. The call can be repeated.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Looks up registered servers.
#[async_trait]
pub trait ServerLookup: Send + Sync {
    /// Returns the server with this serial number.
    async fn server(&self, serial: &Serial) -> Result<Option<Server>, Unavailable>;
}
