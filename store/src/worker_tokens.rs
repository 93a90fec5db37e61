//! Tokens of workers elsewhere: their hashes and queues. The text of a token is never stored.
//!
//! They are apart from API tokens: what finds an API token by its hash does not find one of these, and the other way round. A
//! revoked token is deleted: the event log keeps its history. Restored data has none (decision D33).

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use super::rows::{Columns, all, append_events, execute, first, to_json};
use super::users::AccountWritten;
use super::{Store, StoreError};
use model::{NewEvent, Time};

/// The maximum number of tokens of workers.
pub const MAX_WORKER_TOKENS: u32 = 256;

const COLUMNS: &str = "id, name, queues, created_by, created_at, expires_at, last_used_at FROM worker_tokens";

/// A row of `worker_tokens` without the hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredWorkerToken {
    /// The id of the token.
    pub id: String,
    /// The name, which leases and logs show.
    pub name: String,
    /// The queues whose steps the worker may execute.
    pub queues: BTreeSet<String>,
    /// The name of the user or token that created the token.
    pub created_by: String,
    /// When the token was created.
    pub created_at: Time,
    /// When the token expires.
    pub expires_at: Option<Time>,
    /// When the token was last used, accurate to ten minutes.
    pub last_used_at: Option<Time>,
}

impl Store {
    /// The token of a worker with this hash.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn worker_token(&self, hash: &str) -> Result<Option<StoredWorkerToken>, StoreError> {
        const OPERATION: &str = "read the token of a worker";
        let hash = hash.to_owned();
        let sql = format!("SELECT {COLUMNS} WHERE token_hash = ?1");
        self.read(OPERATION, move |connection| first(connection, OPERATION, &sql, &[&hash], token)).await
    }

    /// The token of a worker with this name.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn worker_token_named(&self, name: &str) -> Result<Option<StoredWorkerToken>, StoreError> {
        let name = name.to_owned();
        self.read("read the token of a worker by its name", move |connection| find(connection, &name)).await
    }

    /// All tokens of workers by name.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn worker_tokens(&self) -> Result<Vec<StoredWorkerToken>, StoreError> {
        const OPERATION: &str = "list the tokens of workers";
        let sql = format!("SELECT {COLUMNS} ORDER BY name");
        self.read(OPERATION, move |connection| all(connection, OPERATION, &sql, &[], token)).await
    }

    /// Stores a new token of a worker with the hash of its text.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn create_worker_token(
        &self,
        new: StoredWorkerToken,
        hash: String,
        event: NewEvent,
    ) -> Result<AccountWritten<StoredWorkerToken>, StoreError> {
        const OPERATION: &str = "create the token of a worker";
        self.writer
            .write(OPERATION, move |connection| {
                if find(connection, &new.name)?.is_some() {
                    return Ok(AccountWritten::NameTaken);
                }
                let written = execute(
                    connection,
                    OPERATION,
                    "INSERT INTO worker_tokens (id, name, token_hash, queues, created_by, created_at, expires_at)
                     SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE (SELECT count(*) FROM worker_tokens) < ?8",
                    params![
                        new.id,
                        new.name,
                        hash,
                        to_json(OPERATION, &new.queues)?,
                        new.created_by,
                        new.created_at.to_string(),
                        new.expires_at.map(|time| time.to_string()),
                        MAX_WORKER_TOKENS
                    ],
                )?;
                if written == 0 {
                    return Ok(AccountWritten::Full);
                }
                append_events(connection, OPERATION, None, None, new.created_at, &[event])?;
                Ok(AccountWritten::Done(new))
            })
            .await
    }

    /// Deletes the token of a worker.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn revoke_worker_token(
        &self,
        name: &str,
        event: NewEvent,
        now: Time,
    ) -> Result<AccountWritten<StoredWorkerToken>, StoreError> {
        const OPERATION: &str = "revoke the token of a worker";
        let name = name.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let Some(found) = find(connection, &name)? else { return Ok(AccountWritten::Unknown) };
                execute(connection, OPERATION, "DELETE FROM worker_tokens WHERE id = ?1", &[&found.id])?;
                append_events(connection, OPERATION, None, None, now, &[event])?;
                Ok(AccountWritten::Done(found))
            })
            .await
    }

    /// Records the use of the token of a worker.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn worker_token_used(&self, id: &str, now: Time) -> Result<(), StoreError> {
        const OPERATION: &str = "record the use of the token of a worker";
        let id = id.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let sql = "UPDATE worker_tokens SET last_used_at = ?2 WHERE id = ?1";
                execute(connection, OPERATION, sql, params![id, now.to_string()]).map(drop)
            })
            .await
    }
}

fn find(connection: &Connection, name: &str) -> Result<Option<StoredWorkerToken>, StoreError> {
    const OPERATION: &str = "read the token of a worker by its name";
    first(connection, OPERATION, &format!("SELECT {COLUMNS} WHERE name = ?1"), &[&name], token)
}

fn token(columns: &Columns<'_>) -> Result<StoredWorkerToken, StoreError> {
    Ok(StoredWorkerToken {
        id: columns.get("id")?,
        name: columns.get("name")?,
        queues: columns.json("queues")?,
        created_by: columns.get("created_by")?,
        created_at: columns.time("created_at")?,
        expires_at: columns.time_opt("expires_at")?,
        last_used_at: columns.time_opt("last_used_at")?,
    })
}
