//! The record of the reads of an image, with what they cause: one transaction, so that neither is recorded twice.

use rusqlite::params;

use super::locks::release_permit;
use super::rows::{append_events, execute};
use super::{Store, StoreError, grants};
use model::{GrantReads, NewEvent, StoredGrant, Time};

/// What reads of an image cause: it is recorded with them, so that neither is recorded twice.
#[derive(Clone, Debug, Default)]
pub struct CausedByReads {
    /// The events of the run of the grant.
    pub events: Vec<NewEvent>,
    /// The permit that the run releases.
    pub permit: Option<String>,
}

impl Store {
    /// The sum of the recorded bytes of the grants with these token hashes.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn recorded_bytes(&self, token_hashes: &[&str]) -> Result<u64, StoreError> {
        const OPERATION: &str = "read the reads of the media grants of a run";
        let token_hashes: Vec<String> = token_hashes.iter().map(|hash| (*hash).to_owned()).collect();
        self.read(OPERATION, move |connection| {
            token_hashes.iter().try_fold(0, |bytes: u64, token_hash| {
                let stored = grants::without_inputs(connection, OPERATION, token_hash)?;
                Ok(bytes.saturating_add(stored.map_or(0, |stored| stored.reads.bytes)))
            })
        })
        .await
    }

    /// Adds reads to a grant, with what `caused` makes of the grant before them. A recorded first read stays. A grant that does
    /// not exist changes nothing.
    ///
    /// # Errors
    /// When the database cannot be written, or the row of the grant has content that this version cannot read; nothing is added then.
    pub async fn record_reads(
        &self,
        token_hash: &str,
        reads: GrantReads,
        caused: impl FnOnce(&StoredGrant) -> CausedByReads + Send + 'static,
        now: Time,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "record reads of an image";
        let token_hash = token_hash.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let Some(before) = grants::without_inputs(connection, OPERATION, &token_hash)? else {
                    return Ok(());
                };
                execute(
                    connection,
                    OPERATION,
                    "UPDATE media_grants SET first_read_at = coalesce(first_read_at, ?2),
                         boot_read_at = coalesce(boot_read_at, ?3), last_read_at = coalesce(?4, last_read_at),
                         bytes = bytes + ?5
                     WHERE token_hash = ?1",
                    params![
                        token_hash,
                        reads.first_read_at.map(|time| time.to_string()),
                        reads.boot_read_at.map(|time| time.to_string()),
                        reads.last_read_at.map(|time| time.to_string()),
                        i64::try_from(reads.bytes).unwrap_or(i64::MAX)
                    ],
                )?;
                let CausedByReads { events, permit } = caused(&before);
                let run = before.grant.run;
                if let Some(permit) = permit {
                    release_permit(connection, run, &permit, now)?;
                }
                append_events(connection, OPERATION, Some(run), None, now, &events)
            })
            .await
    }
}
