//! Logins of restored data that no administrator has confirmed (decision D26).
//!
//! ```text
//!   settings.unconfirmed_logins = {"tokens": [id, …], "users": [name, …]}
//!
//!   data is restored: its users and API tokens ---------------> unconfirmed: refused
//!   an administrator confirms one, or gives it a new secret --> like any other login
//! ```
//!
//! Restored data shows who could log in at its time. An API token that was revoked since then, a user that was disabled and a
//! password that was changed are in it as if they were valid, and nothing in the data tells them from the others. A login that
//! is made after the data was restored is not in the list.
//!
//! Invariant: the list changes in the transaction that restores the data, confirms a login, replaces its secret or removes it.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::StoreError;
use super::rows::{Columns, all, execute, of_setting, to_json};

/// The setting with the list; the columns `unconfirmed` of `users` and `api_tokens` read it.
const LIST: &str = "unconfirmed_logins";

/// The logins that are refused.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Unconfirmed {
    /// Ids of API tokens. A rotation changes the id.
    tokens: BTreeSet<String>,
    /// Names of users.
    users: BTreeSet<String>,
}

/// One login of the list.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListedLogin<'a> {
    /// The id of an API token.
    Token(&'a str),
    /// The name of a user.
    User(&'a str),
}

/// Adds every user and API token to the list. Returns the number of those that were not in it.
pub(super) fn refuse_all(connection: &Connection, operation: &'static str) -> Result<usize, StoreError> {
    let before = list(connection, operation)?;
    let names = |sql: &str| {
        all(connection, operation, sql, &[], |columns: &Columns<'_>| columns.get::<String>("login"))
            .map(|names| names.into_iter().collect::<BTreeSet<_>>())
    };
    let now = Unconfirmed {
        tokens: names("SELECT id AS login FROM api_tokens")?,
        users: names("SELECT name AS login FROM users")?,
    };
    let added = now.tokens.difference(&before.tokens).count() + now.users.difference(&before.users).count();
    store(connection, operation, &now)?;
    Ok(added)
}

/// Removes a login from the list: it is confirmed, has another secret, or no longer exists. Returns whether it was in it.
pub(super) fn accept(
    connection: &Connection,
    operation: &'static str,
    login: ListedLogin<'_>,
) -> Result<bool, StoreError> {
    let mut listed = list(connection, operation)?;
    let removed = match login {
        ListedLogin::Token(id) => listed.tokens.remove(id),
        ListedLogin::User(name) => listed.users.remove(name),
    };
    if removed {
        store(connection, operation, &listed)?;
    }
    Ok(removed)
}

fn list(connection: &Connection, operation: &'static str) -> Result<Unconfirmed, StoreError> {
    of_setting(connection, operation, LIST).map(Option::unwrap_or_default)
}

fn store(connection: &Connection, operation: &'static str, listed: &Unconfirmed) -> Result<(), StoreError> {
    execute(
        connection,
        operation,
        "INSERT INTO settings (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        params![LIST, to_json(operation, listed)?],
    )
    .map(drop)
}
