//! Users, API tokens, controller instances and stored settings.

use rusqlite::params;

use super::instances::{LiveInstance, last_seen};
use super::rows::{append_events, execute, first};
use super::{Store, StoreError};
use crate::model::{NewEvent, Time};

/// A row of `users`.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredUser {
    /// Login name.
    pub name: String,
    /// Argon2id hash in PHC form.
    pub password_hash: String,
    /// `admin` or `reader`.
    pub role: String,
}

/// A row of `api_tokens` without the hash. The token itself is never stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToken {
    /// Its id.
    pub id: String,
    /// The name that the operator gave the token.
    pub name: String,
    /// `admin` or `reader`.
    pub role: String,
    /// When the token expires.
    pub expires_at: Option<Time>,
}

impl Store {
    /// The user with this name.
    pub async fn user(&self, name: &str) -> Result<Option<StoredUser>, StoreError> {
        const OPERATION: &str = "read a user";
        let name = name.to_owned();
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT name, password_hash, role FROM users WHERE name = ?1",
                &[&name],
                |columns| {
                    Ok(StoredUser {
                        name: columns.get("name")?,
                        password_hash: columns.get("password_hash")?,
                        role: columns.get("role")?,
                    })
                },
            )
        })
        .await
    }

    /// The API token with this hash.
    pub async fn api_token(&self, hash: &str) -> Result<Option<StoredToken>, StoreError> {
        const OPERATION: &str = "read an API token";
        let hash = hash.to_owned();
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT id, name, role, expires_at FROM api_tokens WHERE token_hash = ?1",
                &[&hash],
                |columns| {
                    Ok(StoredToken {
                        id: columns.get("id")?,
                        name: columns.get("name")?,
                        role: columns.get("role")?,
                        expires_at: columns.time_opt("expires_at")?,
                    })
                },
            )
        })
        .await
    }

    /// The schema version of every database that was opened.
    pub const SCHEMA_VERSION: usize = super::migrate::VERSION;

    /// Whether a token or a user exists, so that a client can log in.
    pub async fn has_login(&self) -> Result<bool, StoreError> {
        const OPERATION: &str = "look for a token or a user";
        let login = "SELECT 1 AS found FROM api_tokens UNION ALL SELECT 1 FROM users LIMIT 1";
        self.read(OPERATION, move |connection| first(connection, OPERATION, login, &[], |_| Ok(())))
            .await
            .map(|found| found.is_some())
    }

    /// Stores the first admin token unless a token or a user exists. Returns whether it was stored.
    pub async fn first_token(&self, id: String, hash: String, now: Time) -> Result<bool, StoreError> {
        const OPERATION: &str = "store the first admin token";
        self.writer
            .write(OPERATION, move |connection| {
                execute(
                    connection,
                    OPERATION,
                    "INSERT INTO api_tokens (id, name, token_hash, role, created_at)
                     SELECT ?1, 'first-start', ?2, 'admin', ?3
                     WHERE NOT EXISTS (SELECT 1 FROM api_tokens) AND NOT EXISTS (SELECT 1 FROM users)",
                    params![id, hash, now.to_string()],
                )
                .map(|written| written == 1)
            })
            .await
    }

    /// Records the start of a controller instance on this database. Returns the last sign of life of the instances before it:
    /// a heartbeat, an orderly end, or an event of a run. `None` on a new database.
    pub async fn begin_instance(&self, id: String, now: Time) -> Result<Option<Time>, StoreError> {
        const OPERATION: &str = "record the start of a controller instance";
        let instance = std::sync::Arc::clone(&self.instance);
        self.writer
            .write(OPERATION, move |connection| {
                let last_seen = last_seen(connection, OPERATION)?;
                *instance.lock() = Some(LiveInstance::begin(connection, OPERATION, id, now)?);
                Ok(last_seen)
            })
            .await
    }

    /// Records the orderly end of a controller instance.
    pub async fn end_instance(&self, id: String, now: Time) -> Result<(), StoreError> {
        const OPERATION: &str = "record the end of a controller instance";
        self.writer
            .write(OPERATION, move |connection| {
                execute(
                    connection,
                    OPERATION,
                    "UPDATE controller_instances SET ended_at = ?2, heartbeat_at = ?2 WHERE id = ?1",
                    params![id, now.to_string()],
                )
                .map(drop)
            })
            .await
    }

    /// Stores a setting (`Some`) or deletes it (`None`), and appends the events that describe the change.
    pub async fn set_setting(
        &self,
        key: &str,
        value: Option<String>,
        events: Vec<NewEvent>,
        now: Time,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "store a setting";
        let key = key.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                match &value {
                    Some(value) => execute(
                        connection,
                        OPERATION,
                        "INSERT INTO settings (key, value) VALUES (?1, ?2)
                         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                        params![key, value],
                    )?,
                    None => execute(connection, OPERATION, "DELETE FROM settings WHERE key = ?1", &[&key])?,
                };
                append_events(connection, OPERATION, None, None, now, &events)
            })
            .await
    }

    /// The stored value of a setting.
    pub async fn setting(&self, key: &str) -> Result<Option<String>, StoreError> {
        const OPERATION: &str = "read a setting";
        let key = key.to_owned();
        self.read(OPERATION, move |connection| {
            first(connection, OPERATION, "SELECT value FROM settings WHERE key = ?1", &[&key], |columns| {
                columns.get("value")
            })
        })
        .await
    }
}
