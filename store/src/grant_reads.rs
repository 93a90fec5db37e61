//! The record of the reads of an image, with what they cause: one transaction, so that neither is recorded twice.

use rusqlite::params;

use super::locks::release_permit;
use super::rows::{append_events, execute};
use super::{Store, StoreError};
use model::{GrantReads, NewEvent, RunId, Time};

/// What reads of an image cause: it is recorded with them, so that neither is recorded twice.
#[derive(Clone, Debug, Default)]
pub struct CausedByReads {
    /// The run of the grant.
    pub run: Option<RunId>,
    /// The events of the run.
    pub events: Vec<NewEvent>,
    /// The permit that the run releases.
    pub permit: Option<String>,
}

impl Store {
    /// Adds reads to a grant, with what they cause. A recorded first read stays.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is added then.
    pub async fn record_reads(
        &self,
        token_hash: &str,
        reads: GrantReads,
        caused: CausedByReads,
        now: Time,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "record reads of an image";
        let token_hash = token_hash.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
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
                let CausedByReads { run, events, permit } = caused;
                if let Some((run, permit)) = run.zip(permit) {
                    release_permit(connection, run, &permit, now)?;
                }
                append_events(connection, OPERATION, run, None, now, &events)
            })
            .await
    }
}
