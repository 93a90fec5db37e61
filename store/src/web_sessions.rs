//! Web sessions: the logins of browsers. Only the hash of a cookie is stored.
//!
//! Invariants: a session belongs to one user or one API token, and the change of its role, password, text or state that is
//! stored here ends it in the same transaction; a name has at most the given number of sessions, and the oldest ends for a
//! new one; sessions that have expired are removed with the next login.

use rusqlite::{Connection, params};

use super::rows::{Columns, all, append_events, execute, first};
use super::{Store, StoreError};
use model::{NewEvent, Time};

const COLUMNS: &str =
    "id, name, token_id, mark, address, agent, created_at, last_used_at, expires_at FROM web_sessions";

/// A row of `web_sessions` without the hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredWebSession {
    /// The id of the session, which is no secret.
    pub id: String,
    /// The user or the API token that logged in.
    pub name: String,
    /// The id of the API token; `None` for a user.
    pub token_id: Option<String>,
    /// A text that changes with the role and the password of the user.
    pub mark: String,
    /// The address of the client at the login.
    pub address: String,
    /// The `User-Agent` of the client at the login, shortened.
    pub agent: String,
    /// When the client logged in.
    pub created_at: Time,
    /// When the session was last used, accurate to a minute.
    pub last_used_at: Time,
    /// When the session ends, however much it is used.
    pub expires_at: Time,
}

/// The sessions that end with a new one.
#[derive(Clone, Debug)]
pub struct WebSessionLimits {
    /// Sessions that were last used before this time have expired.
    pub idle_since: Time,
    /// The maximum of sessions of one name.
    pub of_name: u32,
    /// The hash of the session that the client had until now.
    pub former: Option<String>,
}

impl Store {
    /// Stores a new session with the hash of its cookie, and ends what `limits` says.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn create_web_session(
        &self,
        new: StoredWebSession,
        hash: String,
        limits: WebSessionLimits,
        event: NewEvent,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "create a web session";
        self.writer
            .write(OPERATION, move |connection| {
                execute(
                    connection,
                    OPERATION,
                    "DELETE FROM web_sessions WHERE expires_at <= ?1 OR last_used_at < ?2 OR secret_hash = ?3",
                    params![new.created_at.to_string(), limits.idle_since.to_string(), limits.former],
                )?;
                execute(
                    connection,
                    OPERATION,
                    "DELETE FROM web_sessions WHERE id IN
                         (SELECT id FROM web_sessions WHERE name = ?1 ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET ?2)",
                    params![new.name, limits.of_name.saturating_sub(1)],
                )?;
                execute(
                    connection,
                    OPERATION,
                    "INSERT INTO web_sessions
                         (id, secret_hash, name, token_id, mark, address, agent, created_at, last_used_at, expires_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                    params![
                        new.id,
                        hash,
                        new.name,
                        new.token_id,
                        new.mark,
                        new.address,
                        new.agent,
                        new.created_at.to_string(),
                        new.last_used_at.to_string(),
                        new.expires_at.to_string()
                    ],
                )?;
                append_events(connection, OPERATION, None, None, new.created_at, &[event])
            })
            .await
    }

    /// The session with this hash, even if it has expired.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn web_session(&self, hash: &str) -> Result<Option<StoredWebSession>, StoreError> {
        const OPERATION: &str = "read a web session";
        let hash = hash.to_owned();
        let sql = format!("SELECT {COLUMNS} WHERE secret_hash = ?1");
        self.read(OPERATION, move |connection| first(connection, OPERATION, &sql, &[&hash], session)).await
    }

    /// The sessions of a name, or all of them, the newest first, with those that have expired.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn web_sessions(&self, name: Option<&str>) -> Result<Vec<StoredWebSession>, StoreError> {
        const OPERATION: &str = "list web sessions";
        let name = name.map(str::to_owned);
        let sql = format!("SELECT {COLUMNS} WHERE ?1 IS NULL OR name = ?1 ORDER BY created_at DESC, id DESC");
        self.read(OPERATION, move |connection| all(connection, OPERATION, &sql, &[&name], session)).await
    }

    /// Records the use of a session.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn web_session_used(&self, id: &str, now: Time) -> Result<(), StoreError> {
        const OPERATION: &str = "record the use of a web session";
        let id = id.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                execute(
                    connection,
                    OPERATION,
                    "UPDATE web_sessions SET last_used_at = ?2 WHERE id = ?1",
                    params![id, now.to_string()],
                )
                .map(drop)
            })
            .await
    }

    /// Ends the session with this id; with `owner` only if it belongs to that name. Returns whether there was one.
    ///
    /// # Errors
    /// When the database cannot be written; the session stays valid then.
    pub async fn end_web_session(
        &self,
        id: &str,
        owner: Option<&str>,
        event: NewEvent,
        now: Time,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "end a web session";
        let (id, owner) = (id.to_owned(), owner.map(str::to_owned));
        self.writer
            .write(OPERATION, move |connection| {
                let ended = execute(
                    connection,
                    OPERATION,
                    "DELETE FROM web_sessions WHERE id = ?1 AND (?2 IS NULL OR name = ?2)",
                    params![id, owner],
                )?;
                if ended == 0 {
                    return Ok(false);
                }
                append_events(connection, OPERATION, None, None, now, &[event])?;
                Ok(true)
            })
            .await
    }

    /// Ends all sessions of a name. Returns their number.
    ///
    /// # Errors
    /// When the database cannot be written; the sessions stay valid then.
    pub async fn end_web_sessions_of(
        &self,
        name: &str,
        event: NewEvent,
        now: Time,
    ) -> Result<usize, StoreError> {
        const OPERATION: &str = "end the web sessions of a login";
        let name = name.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let ended = end_of(connection, OPERATION, &name)?;
                if ended > 0 {
                    append_events(connection, OPERATION, None, None, now, &[event])?;
                }
                Ok(ended)
            })
            .await
    }
}

/// Ends the sessions of a user or an API token whose login changes. Returns their number.
pub(super) fn end_of(
    connection: &Connection,
    operation: &'static str,
    name: &str,
) -> Result<usize, StoreError> {
    execute(connection, operation, "DELETE FROM web_sessions WHERE name = ?1", &[&name])
}

fn session(columns: &Columns<'_>) -> Result<StoredWebSession, StoreError> {
    Ok(StoredWebSession {
        id: columns.get("id")?,
        name: columns.get("name")?,
        token_id: columns.get("token_id")?,
        mark: columns.get("mark")?,
        address: columns.get("address")?,
        agent: columns.get("agent")?,
        created_at: columns.time("created_at")?,
        last_used_at: columns.time("last_used_at")?,
        expires_at: columns.time("expires_at")?,
    })
}
