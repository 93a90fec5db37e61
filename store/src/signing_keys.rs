//! The versions of the signing key, sealed.

use rusqlite::{Connection, params};

use super::rows::{all, append_events, execute, first};
use super::sealing::unopened;
use super::{Store, StoreError};
use model::{NewEvent, Time};

/// One version of the signing key.
#[derive(Clone)]
pub struct StoredSigningKey {
    /// The id of the version.
    pub id: String,
    /// The key as text.
    pub key: zeroize::Zeroizing<String>,
    /// When the version was made.
    pub made_at: Time,
    /// The end of the time in which a former version is accepted; `None` for the one in force.
    pub until: Option<Time>,
}

impl std::fmt::Debug for StoredSigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, made_at, until, .. } = self;
        f.debug_struct("StoredSigningKey")
            .field("id", id)
            .field("made_at", made_at)
            .field("until", until)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// The versions of the signing key, the one in force first. `first` is stored when there is none.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when a version was sealed with another master key.
    pub async fn signing_keys(&self, first: StoredSigningKey) -> Result<Vec<StoredSigningKey>, StoreError> {
        const OPERATION: &str = "read the signing keys";
        self.writer
            .write(OPERATION, move |connection| {
                let found = read(connection, OPERATION)?;
                if !found.is_empty() {
                    return Ok(found);
                }
                insert(connection, OPERATION, &first)?;
                Ok(vec![first])
            })
            .await
    }

    /// Replaces the version in force, which is accepted until `until`, and records the event. A version that is not in force any
    /// more is not replaced again: `false`.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn replace_signing_key(
        &self,
        former: &str,
        until: Time,
        new: StoredSigningKey,
        event: NewEvent,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "replace the signing key";
        let former = former.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let sql = "UPDATE signing_keys SET until = ?2 WHERE id = ?1 AND until IS NULL";
                if execute(connection, OPERATION, sql, params![former, until.to_string()])? == 0 {
                    return Ok(false);
                }
                insert(connection, OPERATION, &new)?;
                append_events(connection, OPERATION, None, None, new.made_at, &[event])?;
                Ok(true)
            })
            .await
    }

    /// Makes another signing key when the stored ones cannot be opened, because the master key was lost.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn reset_signing_keys(&self, new: StoredSigningKey) -> Result<(), StoreError> {
        const OPERATION: &str = "make another signing key";
        self.writer
            .write(OPERATION, move |connection| {
                execute(connection, OPERATION, "DELETE FROM signing_keys", params![])?;
                insert(connection, OPERATION, &new)
            })
            .await
    }

    /// Removes the versions whose time has ended. Returns how many.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn remove_signing_keys(&self, now: Time) -> Result<usize, StoreError> {
        const OPERATION: &str = "remove former signing keys";
        self.writer
            .write(OPERATION, move |connection| {
                let sql = "DELETE FROM signing_keys WHERE until <= ?1";
                execute(connection, OPERATION, sql, params![now.to_string()])
            })
            .await
    }
}

fn insert(
    connection: &Connection,
    operation: &'static str,
    key: &StoredSigningKey,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO signing_keys (id, sealed, made_at, until)
               VALUES (?1, seal_text(?2, 'signing_keys/' || ?1 || '/sealed'), ?3, ?4)";
    let until = key.until.map(|until| until.to_string());
    execute(connection, operation, sql, params![key.id, *key.key, key.made_at.to_string(), until]).map(drop)
}

fn read(connection: &Connection, operation: &'static str) -> Result<Vec<StoredSigningKey>, StoreError> {
    let unreadable = first(
        connection,
        operation,
        "SELECT 1 AS found FROM signing_keys WHERE open_text(sealed, 'signing_keys/' || id || '/sealed') IS NULL",
        &[],
        |columns| columns.get::<i64>("found"),
    )?;
    if unreadable.is_some() {
        return Err(unopened(operation, "sealed"));
    }
    all(
        connection,
        operation,
        "SELECT id, open_text(sealed, 'signing_keys/' || id || '/sealed') AS key, made_at, until
         FROM signing_keys ORDER BY until IS NOT NULL, until DESC",
        &[],
        |columns| {
            Ok(StoredSigningKey {
                id: columns.get("id")?,
                key: zeroize::Zeroizing::new(columns.get("key")?),
                made_at: columns.time("made_at")?,
                until: columns.time_opt("until")?,
            })
        },
    )
}
