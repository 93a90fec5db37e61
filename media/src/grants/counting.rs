//! What decisions about a machine need of the reads of its images: exact numbers of bytes, and since when there are any.
//!
//! ```text
//!  before a power-on   recorded_bytes ─► the mark, which the database has
//!  later               bytes_read > mark ─► an image was read since, whatever the clock says
//!                      counting_since is another, misses_reads_after ─► reads may be missing: it cannot be known
//! ```
//!
//! Invariant: no read is left out, whether it is pending, in flight or recorded, by this controller or by another one that served the
//! image meanwhile, and also if its grant leaves the cache. One that is in flight may count twice; the mark has none such.

use std::sync::Arc;
use std::time::Duration;

use model::Time;

use super::MediaGrants;
use crate::grant_store::GrantStoreUnavailable;
use crate::reads::{FLUSH_EVERY, PendingReads, within_timeout};

/// The longest life of a controller after its last sign of life: its heartbeat is written every 15 s at least.
const ALIVE_UNSEEN: Duration = Duration::from_secs(30);
/// The time from a power-on within which a host that boots from its medium has read a part of it.
const BOOTS_WITHIN: Duration = Duration::from_secs(20 * 60);

impl MediaGrants {
    /// The number of bytes that were read of these grants until now and are recorded: a controller that is killed loses none of
    /// them.
    ///
    /// # Errors
    /// When the store does not respond, or does not record the reads.
    pub async fn recorded_bytes(
        &self,
        token_hashes: impl Iterator<Item = &str>,
    ) -> Result<u64, GrantStoreUnavailable> {
        let token_hashes: Vec<&str> = token_hashes.collect();
        for token_hash in &token_hashes {
            if let Some(reads) = self.counted(token_hash) {
                self.0.recorder.flush_one(&reads).await?;
            }
        }
        self.stored_bytes(&token_hashes).await
    }

    /// The number of bytes that were read of these grants.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn bytes_read(
        &self,
        token_hashes: impl Iterator<Item = &str>,
    ) -> Result<u64, GrantStoreUnavailable> {
        let token_hashes: Vec<&str> = token_hashes.collect();
        // Before the store is asked: what is recorded meanwhile is then in one of the two, or in both.
        let unrecorded = token_hashes.iter().fold(0, |bytes: u64, token_hash| {
            bytes.saturating_add(self.counted(token_hash).map_or(0, |reads| reads.unrecorded_bytes()))
        });
        Ok(self.stored_bytes(&token_hashes).await?.saturating_add(unrecorded))
    }

    /// The reads of a grant that is read, or whose reads are not all recorded.
    fn counted(&self, token_hash: &str) -> Option<Arc<PendingReads>> {
        let live = self.cached(token_hash).map(|live| Arc::clone(&live.reads));
        live.or_else(|| self.0.recorder.queued(token_hash))
    }

    async fn stored_bytes(&self, token_hashes: &[&str]) -> Result<u64, GrantStoreUnavailable> {
        within_timeout(self.0.store.recorded_bytes(token_hashes)).await
    }

    /// The time since which reads are counted without a gap. The last reads of a killed controller instance may be missing.
    pub fn counting_since(&self) -> Time {
        self.0.recorder.since
    }

    /// Notes that the former controller did not stop in order, and when it was last seen alive.
    pub fn former_was_killed(&self, last_seen: Time) {
        // A second call has no effect: there is one former controller.
        let _ = self.0.recorder.killed_at.set(last_seen);
    }

    /// Whether the first reads of a machine that was powered on at `since` may be missing, because the controller was killed
    /// before it had recorded them. Reads are recorded within ten seconds, and a host that boots reads within minutes.
    pub fn misses_reads_after(&self, since: Time) -> bool {
        self.0.recorder.killed_at.get().is_some_and(|seen| {
            let (first_missing, last_missing) = (seen.minus(FLUSH_EVERY), seen.plus(ALIVE_UNSEEN));
            since < last_missing && first_missing < since.plus(BOOTS_WITHIN)
        })
    }

    /// Records all pending reads now. Called when the program stops.
    pub async fn flush(&self) {
        self.0.recorder.flush().await;
    }
}
