//! The durable store of grants: the calls that the media server makes.

use async_trait::async_trait;
use model::{GrantReads, StoredGrant};

/// The database does not respond.
#[derive(Debug, Clone, thiserror::Error)]
#[error("media grants cannot be looked up or recorded: {reason}")]
pub struct GrantStoreUnavailable {
    /// The error of the database.
    pub reason: String,
}

/// The durable store of grants, implemented by the controller.
#[async_trait]
pub trait GrantStore: Send + Sync {
    /// Returns the grant whose token has this hash, open or ended.
    async fn find(&self, token_hash: &str) -> Result<Option<StoredGrant>, GrantStoreUnavailable>;

    /// Returns the recorded reads of that grant. The recorded inputs need not be read for it.
    async fn reads(&self, token_hash: &str) -> Result<Option<GrantReads>, GrantStoreUnavailable> {
        Ok(self.find(token_hash).await?.map(|stored| stored.reads))
    }

    /// Returns the sum of the recorded bytes of these grants.
    async fn recorded_bytes(&self, token_hashes: &[&str]) -> Result<u64, GrantStoreUnavailable> {
        let mut bytes: u64 = 0;
        for token_hash in token_hashes {
            bytes = bytes.saturating_add(self.reads(token_hash).await?.map_or(0, |reads| reads.bytes));
        }
        Ok(bytes)
    }

    /// Adds `reads` to the recorded reads with [`GrantReads::merge`].
    async fn record_reads(&self, token_hash: &str, reads: GrantReads) -> Result<(), GrantStoreUnavailable>;
}
