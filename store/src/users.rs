//! Users: names, password hashes and roles.
//!
//! Users and API tokens share one space of names, so that the actor of an event is one user or one token.
//!
//! Invariant: with a [`LoginGuard`] no change removes the last way in for an administrator. The check and the change are one
//! transaction.

use rusqlite::{Connection, params};

use super::rows::{Columns, all, append_events, execute, first};
use super::unconfirmed::{ListedLogin, accept};
use super::web_sessions::end_of;
use super::{Store, StoreError};
use model::{NewEvent, Time};

/// The maximum of users, and of API tokens.
pub const MAX_ACCOUNTS: u32 = 1000;

const COLUMNS: &str = "name, password_hash, role, disabled_at, created_by, created_at, updated_at,
     EXISTS (SELECT 1 FROM settings, json_each(settings.value, '$.users') AS listed
             WHERE settings.key = 'unconfirmed_logins' AND listed.value = users.name) AS unconfirmed
     FROM users";

/// A row of `users`.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredUser {
    /// Login name.
    pub name: String,
    /// Argon2id hash in PHC form.
    pub password_hash: String,
    /// `admin`, `operator` or `viewer`.
    pub role: String,
    /// Since when the user cannot log in.
    pub disabled_at: Option<Time>,
    /// The name of the user or token that created the user.
    pub created_by: String,
    /// When the user was created.
    pub created_at: Time,
    /// When role, password or state last changed.
    pub updated_at: Time,
    /// Whether the user is of restored data and no administrator has confirmed it, so that its logins are refused.
    pub unconfirmed: bool,
}

/// A change of a user; `None` leaves a value as it is.
#[derive(Clone, Default)]
pub struct UserChange {
    /// The new role.
    pub role: Option<String>,
    /// The hash of the new password.
    pub password_hash: Option<String>,
    /// Whether the user is disabled.
    pub disabled: Option<bool>,
    /// The hash that the user must have for the change.
    pub former_hash: Option<String>,
}

/// Keeps the last way in for an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginGuard {
    /// Whether users of the database can log in with their password.
    pub passwords: bool,
}

/// The result of a change of users or tokens.
pub enum AccountWritten<T> {
    /// Written; the row after the change, or before its removal.
    Done(T),
    /// There is no such user or token.
    Unknown,
    /// A user or a token has this name; nothing was written.
    NameTaken,
    /// [`MAX_ACCOUNTS`] exist; nothing was written.
    Full,
    /// The user has another password than the change expects; nothing was written.
    OtherPassword,
    /// The change would remove the last way in for an administrator; nothing was written.
    LastWayIn,
}

impl Store {
    /// The user with this name.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn user(&self, name: &str) -> Result<Option<StoredUser>, StoreError> {
        let name = name.to_owned();
        self.read("read a user", move |connection| find(connection, &name)).await
    }

    /// All users by name.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn users(&self) -> Result<Vec<StoredUser>, StoreError> {
        const OPERATION: &str = "list users";
        self.read(OPERATION, move |connection| {
            all(connection, OPERATION, &format!("SELECT {COLUMNS} ORDER BY name"), &[], user)
        })
        .await
    }

    /// Creates a user.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then. A name in use is no error.
    pub async fn create_user(
        &self,
        new: StoredUser,
        event: NewEvent,
    ) -> Result<AccountWritten<StoredUser>, StoreError> {
        const OPERATION: &str = "create a user";
        self.writer
            .write(OPERATION, move |connection| {
                if name_is_taken(connection, &new.name)? {
                    return Ok(AccountWritten::NameTaken);
                }
                let written = execute(
                    connection,
                    OPERATION,
                    "INSERT INTO users (name, password_hash, role, created_by, created_at, updated_at)
                     SELECT ?1, ?2, ?3, ?4, ?5, ?5 WHERE (SELECT count(*) FROM users) < ?6",
                    params![
                        new.name,
                        new.password_hash,
                        new.role,
                        new.created_by,
                        new.created_at.to_string(),
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

    /// Changes a user.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is changed then.
    pub async fn change_user(
        &self,
        name: &str,
        change: UserChange,
        guard: Option<LoginGuard>,
        event: NewEvent,
        now: Time,
    ) -> Result<AccountWritten<StoredUser>, StoreError> {
        const OPERATION: &str = "change a user";
        let name = name.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let Some(before) = find(connection, &name)? else { return Ok(AccountWritten::Unknown) };
                if change.former_hash.as_ref().is_some_and(|hash| *hash != before.password_hash) {
                    return Ok(AccountWritten::OtherPassword);
                }
                let closes = change.role.as_deref().is_some_and(|role| role != "admin")
                    || change.disabled == Some(true);
                if closes && is_last_way_in(connection, guard, &Login::User(&name), now)? {
                    return Ok(AccountWritten::LastWayIn);
                }
                let ends_sessions = change.role.as_ref().is_some_and(|role| *role != before.role)
                    || change.password_hash.is_some()
                    || change.disabled == Some(true);
                if ends_sessions {
                    end_of(connection, OPERATION, &name)?;
                }
                if change.password_hash.is_some() {
                    accept(connection, OPERATION, ListedLogin::User(&name))?;
                }
                execute(
                    connection,
                    OPERATION,
                    "UPDATE users SET role = coalesce(?2, role), password_hash = coalesce(?3, password_hash),
                         disabled_at = CASE ?4 WHEN 1 THEN coalesce(disabled_at, ?5) WHEN 0 THEN NULL ELSE disabled_at END,
                         updated_at = ?5 WHERE name = ?1",
                    params![name, change.role, change.password_hash, change.disabled, now.to_string()],
                )?;
                append_events(connection, OPERATION, None, None, now, &[event])?;
                Ok(find(connection, &name)?.map_or(AccountWritten::Unknown, AccountWritten::Done))
            })
            .await
    }

    /// Accepts a user of restored data again. A user that is accepted already stays as it is, without an event.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is changed then.
    pub async fn confirm_user(
        &self,
        name: &str,
        event: NewEvent,
        now: Time,
    ) -> Result<AccountWritten<StoredUser>, StoreError> {
        const OPERATION: &str = "confirm a user of restored data";
        let name = name.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                if find(connection, &name)?.is_none() {
                    return Ok(AccountWritten::Unknown);
                }
                if accept(connection, OPERATION, ListedLogin::User(&name))? {
                    append_events(connection, OPERATION, None, None, now, &[event])?;
                }
                let found = find(connection, &name)?;
                Ok(found.map_or(AccountWritten::Unknown, AccountWritten::Done))
            })
            .await
    }

    /// Removes a user.
    ///
    /// # Errors
    /// When the database cannot be written; the user is not removed then.
    pub async fn remove_user(
        &self,
        name: &str,
        guard: Option<LoginGuard>,
        event: NewEvent,
        now: Time,
    ) -> Result<AccountWritten<StoredUser>, StoreError> {
        const OPERATION: &str = "remove a user";
        let name = name.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let Some(found) = find(connection, &name)? else { return Ok(AccountWritten::Unknown) };
                if is_last_way_in(connection, guard, &Login::User(&name), now)? {
                    return Ok(AccountWritten::LastWayIn);
                }
                end_of(connection, OPERATION, &name)?;
                accept(connection, OPERATION, ListedLogin::User(&name))?;
                execute(connection, OPERATION, "DELETE FROM users WHERE name = ?1", &[&name])?;
                append_events(connection, OPERATION, None, None, now, &[event])?;
                Ok(AccountWritten::Done(found))
            })
            .await
    }
}

/// A login that a change closes.
pub(super) enum Login<'a> {
    User(&'a str),
    /// The id of a token.
    Token(&'a str),
}

/// Whether an administrator could log in now, and could not without `closed`. Without a guard nothing is the last way in.
pub(super) fn is_last_way_in(
    connection: &Connection,
    guard: Option<LoginGuard>,
    closed: &Login<'_>,
    now: Time,
) -> Result<bool, StoreError> {
    let Some(LoginGuard { passwords }) = guard else { return Ok(false) };
    let (user, token) = match closed {
        Login::User(name) => (*name, ""),
        Login::Token(id) => ("", *id),
    };
    let ways = |user: &str, token: &str| {
        first(
            connection,
            "look for another administrator",
            "WITH unconfirmed (login) AS
                 (SELECT listed.value FROM settings, json_tree(settings.value) AS listed
                  WHERE settings.key = 'unconfirmed_logins' AND listed.type = 'text')
             SELECT 1 AS found FROM users
                 WHERE ?1 AND role = 'admin' AND disabled_at IS NULL AND name <> ?2 AND name NOT IN (SELECT login FROM unconfirmed)
             UNION ALL SELECT 1 FROM api_tokens
                 WHERE role = 'admin' AND labels = '{}' AND (expires_at IS NULL OR expires_at > ?3) AND id <> ?4
                     AND id NOT IN (SELECT login FROM unconfirmed)
             LIMIT 1",
            params![passwords, user, now.to_string(), token],
            |_| Ok(()),
        )
    };
    Ok(ways(user, token)?.is_none() && ways("", "")?.is_some())
}

/// Whether a user or a token has this name.
pub(super) fn name_is_taken(connection: &Connection, name: &str) -> Result<bool, StoreError> {
    let found = first(
        connection,
        "look for a user or a token",
        "SELECT 1 AS found FROM users WHERE name = ?1 UNION ALL SELECT 1 FROM api_tokens WHERE name = ?1 LIMIT 1",
        &[&name],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

fn find(connection: &Connection, name: &str) -> Result<Option<StoredUser>, StoreError> {
    first(connection, "read a user", &format!("SELECT {COLUMNS} WHERE name = ?1"), &[&name], user)
}

fn user(columns: &Columns<'_>) -> Result<StoredUser, StoreError> {
    Ok(StoredUser {
        name: columns.get("name")?,
        password_hash: columns.get("password_hash")?,
        role: columns.get("role")?,
        disabled_at: columns.time_opt("disabled_at")?,
        created_by: columns.get("created_by")?,
        created_at: columns.time("created_at")?,
        updated_at: columns.time("updated_at")?,
        unconfirmed: columns.get("unconfirmed")?,
    })
}
