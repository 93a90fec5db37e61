//! API tokens: their hashes, roles and limits. The text of a token is never stored.
//!
//! A revoked token is deleted: the event log keeps its history. Names are shared with users, see [`super::users`].

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::rows::{Columns, all, append_events, execute, first, to_json};
use super::unconfirmed::{ListedLogin, accept};
use super::users::{AccountWritten, Login, LoginGuard, MAX_ACCOUNTS, is_last_way_in, name_is_taken};
use super::web_sessions::end_of;
use super::{Store, StoreError};
use model::{NewEvent, Time};

const COLUMNS: &str = "id, name, role, labels, registry, created_by, created_at, expires_at, last_used_at,
     EXISTS (SELECT 1 FROM settings, json_each(settings.value, '$.tokens') AS listed
             WHERE settings.key = 'unconfirmed_logins' AND listed.value = api_tokens.id) AS unconfirmed
     FROM api_tokens";

/// A row of `api_tokens` without the hash. The token itself is never stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToken {
    /// The id of the token.
    pub id: String,
    /// The name that the operator gave the token.
    pub name: String,
    /// `admin`, `operator`, `viewer`, `report-only` or `registry-only`.
    pub role: String,
    /// The labels of a server that the token may see; empty for all servers.
    pub labels: BTreeMap<String, String>,
    /// Registry scopes, such as `pull,push:os-images/**`.
    pub registry: Vec<String>,
    /// The name of the user or token that created the token.
    pub created_by: String,
    /// When the token was created.
    pub created_at: Time,
    /// When the token expires.
    pub expires_at: Option<Time>,
    /// When the token was last used, accurate to ten minutes.
    pub last_used_at: Option<Time>,
    /// Whether the token is of restored data and no administrator has confirmed it, so that it is refused.
    pub unconfirmed: bool,
}

impl Store {
    /// The API token with this hash.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn api_token(&self, hash: &str) -> Result<Option<StoredToken>, StoreError> {
        const OPERATION: &str = "read an API token";
        let hash = hash.to_owned();
        let sql = format!("SELECT {COLUMNS} WHERE token_hash = ?1");
        self.read(OPERATION, move |connection| first(connection, OPERATION, &sql, &[&hash], token)).await
    }

    /// The API token with this name.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn api_token_named(&self, name: &str) -> Result<Option<StoredToken>, StoreError> {
        let name = name.to_owned();
        self.read("read an API token by its name", move |connection| find(connection, &name)).await
    }

    /// All API tokens by name.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn api_tokens(&self) -> Result<Vec<StoredToken>, StoreError> {
        const OPERATION: &str = "list API tokens";
        let sql = format!("SELECT {COLUMNS} ORDER BY name");
        self.read(OPERATION, move |connection| all(connection, OPERATION, &sql, &[], token)).await
    }

    /// Stores a new API token with the hash of its text.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then. A name in use is no error.
    pub async fn create_api_token(
        &self,
        new: StoredToken,
        hash: String,
        event: NewEvent,
    ) -> Result<AccountWritten<StoredToken>, StoreError> {
        const OPERATION: &str = "create an API token";
        self.writer
            .write(OPERATION, move |connection| {
                if name_is_taken(connection, &new.name)? {
                    return Ok(AccountWritten::NameTaken);
                }
                let written = execute(
                    connection,
                    OPERATION,
                    "INSERT INTO api_tokens (id, name, token_hash, role, labels, registry, created_by, created_at, expires_at)
                     SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 WHERE (SELECT count(*) FROM api_tokens) < ?10",
                    params![
                        new.id,
                        new.name,
                        hash,
                        new.role,
                        to_json(OPERATION, &new.labels)?,
                        to_json(OPERATION, &new.registry)?,
                        new.created_by,
                        new.created_at.to_string(),
                        new.expires_at.map(|time| time.to_string()),
                        MAX_ACCOUNTS
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

    /// Replaces the text and the id of an API token, and its expiry if one is given. The former text is refused from now on,
    /// and what was issued for the former id.
    ///
    /// # Errors
    /// When the database cannot be written; the former text stays valid then.
    pub async fn rotate_api_token(
        &self,
        name: &str,
        id: String,
        hash: String,
        expires_at: Option<Time>,
        event: NewEvent,
        now: Time,
    ) -> Result<AccountWritten<StoredToken>, StoreError> {
        const OPERATION: &str = "rotate an API token";
        let name = name.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let Some(former) = find(connection, &name)? else { return Ok(AccountWritten::Unknown) };
                let rotated = execute(
                    connection,
                    OPERATION,
                    "UPDATE api_tokens SET id = ?4, token_hash = ?2, expires_at = coalesce(?3, expires_at) WHERE name = ?1",
                    params![name, hash, expires_at.map(|time| time.to_string()), id],
                )?;
                if rotated == 0 {
                    return Ok(AccountWritten::Unknown);
                }
                end_of(connection, OPERATION, &name)?;
                accept(connection, OPERATION, ListedLogin::Token(&former.id))?;
                append_events(connection, OPERATION, None, None, now, &[event])?;
                Ok(find(connection, &name)?.map_or(AccountWritten::Unknown, AccountWritten::Done))
            })
            .await
    }

    /// Accepts an API token of restored data again. A token that is accepted already stays as it is, without an event.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is changed then.
    pub async fn confirm_api_token(
        &self,
        name: &str,
        event: NewEvent,
        now: Time,
    ) -> Result<AccountWritten<StoredToken>, StoreError> {
        const OPERATION: &str = "confirm an API token of restored data";
        let name = name.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let Some(token) = find(connection, &name)? else {
                    return Ok(AccountWritten::Unknown);
                };
                if accept(connection, OPERATION, ListedLogin::Token(&token.id))? {
                    append_events(connection, OPERATION, None, None, now, &[event])?;
                }
                Ok(AccountWritten::Done(StoredToken { unconfirmed: false, ..token }))
            })
            .await
    }

    /// Deletes an API token.
    ///
    /// # Errors
    /// When the database cannot be written; the token stays valid then.
    pub async fn revoke_api_token(
        &self,
        name: &str,
        guard: Option<LoginGuard>,
        event: NewEvent,
        now: Time,
    ) -> Result<AccountWritten<StoredToken>, StoreError> {
        const OPERATION: &str = "revoke an API token";
        let name = name.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let Some(found) = find(connection, &name)? else { return Ok(AccountWritten::Unknown) };
                if is_last_way_in(connection, guard, &Login::Token(&found.id), now)? {
                    return Ok(AccountWritten::LastWayIn);
                }
                end_of(connection, OPERATION, &name)?;
                accept(connection, OPERATION, ListedLogin::Token(&found.id))?;
                execute(connection, OPERATION, "DELETE FROM api_tokens WHERE id = ?1", &[&found.id])?;
                append_events(connection, OPERATION, None, None, now, &[event])?;
                Ok(AccountWritten::Done(found))
            })
            .await
    }

    /// Records the use of an API token.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn api_token_used(&self, id: &str, now: Time) -> Result<(), StoreError> {
        const OPERATION: &str = "record the use of an API token";
        let id = id.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                execute(
                    connection,
                    OPERATION,
                    "UPDATE api_tokens SET last_used_at = ?2 WHERE id = ?1",
                    params![id, now.to_string()],
                )
                .map(drop)
            })
            .await
    }

    /// Whether a token or a user exists, so that a client can log in.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn has_login(&self) -> Result<bool, StoreError> {
        const OPERATION: &str = "look for a token or a user";
        let login = "SELECT 1 AS found FROM api_tokens UNION ALL SELECT 1 FROM users LIMIT 1";
        self.read(OPERATION, move |connection| first(connection, OPERATION, login, &[], |_| Ok(())))
            .await
            .map(|found| found.is_some())
    }

    /// Stores the first admin token unless a token or a user exists. Returns whether it was stored.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn first_token(&self, id: String, hash: String, now: Time) -> Result<bool, StoreError> {
        const OPERATION: &str = "store the first admin token";
        self.writer
            .write(OPERATION, move |connection| {
                execute(
                    connection,
                    OPERATION,
                    "INSERT INTO api_tokens (id, name, token_hash, role, created_by, created_at)
                     SELECT ?1, 'first-start', ?2, 'admin', 'controller', ?3
                     WHERE NOT EXISTS (SELECT 1 FROM api_tokens) AND NOT EXISTS (SELECT 1 FROM users)",
                    params![id, hash, now.to_string()],
                )
                .map(|written| written == 1)
            })
            .await
    }
}

fn find(connection: &Connection, name: &str) -> Result<Option<StoredToken>, StoreError> {
    const OPERATION: &str = "read an API token by its name";
    first(connection, OPERATION, &format!("SELECT {COLUMNS} WHERE name = ?1"), &[&name], token)
}

fn token(columns: &Columns<'_>) -> Result<StoredToken, StoreError> {
    Ok(StoredToken {
        id: columns.get("id")?,
        name: columns.get("name")?,
        role: columns.get("role")?,
        labels: columns.json("labels")?,
        registry: columns.json("registry")?,
        created_by: columns.get("created_by")?,
        created_at: columns.time("created_at")?,
        expires_at: columns.time_opt("expires_at")?,
        last_used_at: columns.time_opt("last_used_at")?,
        unconfirmed: columns.get("unconfirmed")?,
    })
}
