//! Users, API tokens and tokens of workers: what the API and the local commands do to them.
//!
//! ```text
//!   api (users, tokens, me) ──┐                             ┌──> store (users, api_tokens, events)
//!   app::OfflineAccounts ─────┴──> check, hash, make token ─┘
//! ```
//!
//! Invariants
//! - The text of a token leaves this module once, as the result of its creation or rotation; a password never does.
//! - A name belongs to one user or one token, and never to a part of the program: an event names its actor by it.
//! - Online, the last way in for an administrator is not removed. On the controller's own machine it can be: there the same
//!   command makes a new one.
//!
//! Decision D18; docs/operating.md.

mod tokens;
mod users;
mod worker_tokens;

pub use tokens::{NewToken, TokenView};
pub use users::{ChangedUser, NewUser, PasswordNow, UserView};
pub use worker_tokens::{NewWorkerToken, WorkerTokenView};

use thiserror::Error;

use crate::auth::{JOB_USERNAME, Logins, PasswordError};
use model::PROGRAM_ACTORS;
use secrets::NoRandomness;
use store::{LoginGuard, MAX_ACCOUNTS, MAX_WORKER_TOKENS, Store, StoreError};

/// Names that events have for a request without a login and for a command beside a stopped controller, and the word by which a filter
/// of events means every user and token. The names of [`PROGRAM_ACTORS`] are reserved too.
const RESERVED: [&str; 3] = ["anonymous", "local", "people"];
/// The maximum length of a name of a user or token.
const MAX_NAME: usize = 64;

/// Users and tokens of one database.
pub struct Accounts<'a> {
    store: &'a Store,
    logins: Logins,
    /// Whether the last way in for an administrator is kept.
    guarded: bool,
}

impl<'a> Accounts<'a> {
    /// The accounts of a running controller.
    pub fn online(store: &'a Store, logins: Logins) -> Self {
        Self { store, logins, guarded: true }
    }

    /// The accounts of a database that no controller uses.
    pub fn offline(store: &'a Store, logins: Logins) -> Self {
        Self { store, logins, guarded: false }
    }

    fn guard(&self) -> Option<LoginGuard> {
        let passwords = self.logins.passwords;
        (self.guarded && !self.logins.elsewhere).then_some(LoginGuard { passwords })
    }

    fn check_name(&self, name: &str) -> Result<(), AccountError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(plain) {
            let message = format!("a name has 1 to {MAX_NAME} letters, digits and characters of -._@");
            return Err(AccountError::Invalid { field: "name", message });
        }
        if name == JOB_USERNAME || RESERVED.contains(&name) || PROGRAM_ACTORS.contains(&name) {
            let message = format!("{name} has a meaning in events and logins; choose another name");
            return Err(AccountError::Invalid { field: "name", message });
        }
        if self.logins.configured_user.as_deref() == Some(name) {
            return Err(AccountError::NameTaken(name.to_owned()));
        }
        Ok(())
    }
}

/// The reason why a user or token was not changed.
#[derive(Debug, Error)]
pub enum AccountError {
    /// A value cannot be used.
    #[error("{field}: {message}")]
    Invalid {
        /// The field of the request.
        field: &'static str,
        /// The problem of the value, in words.
        message: String,
    },
    /// The password cannot be used.
    #[error(transparent)]
    Password(PasswordError),
    /// A user or token has the name.
    #[error("a user or an API token is named {0}; choose another name")]
    NameTaken(String),
    /// No user has the name.
    #[error("no user is named {0}; `shoal user list` shows the users")]
    UnknownUser(String),
    /// No API token has the name.
    #[error("no API token is named {0}; `shoal token list` shows the tokens")]
    UnknownToken(String),
    /// No token of a worker has the name.
    #[error("no token of a worker is named {0}; `shoal worker token list` shows them")]
    UnknownWorkerToken(String),
    /// A token of a worker has the name.
    #[error("a token of a worker is named {0}; choose another name")]
    WorkerNameTaken(String),
    /// Too many tokens of workers exist.
    #[error("{MAX_WORKER_TOKENS} tokens of workers exist, which is the maximum; revoke one")]
    FullOfWorkers,
    /// The maximum of users or API tokens exists.
    #[error("{MAX_ACCOUNTS} of them exist, which is the maximum; remove one")]
    Full,
    /// Nothing would let an administrator in.
    #[error(
        "no administrator could log in after this change; create another admin user or admin token first, or stop the \
         controller and run the same command with --offline on its machine"
    )]
    LastWayIn,
    /// The password of the caller was changed after the request had begun.
    #[error(
        "the password was changed while this request was under way; nothing was changed by it; log in with the new one"
    )]
    OtherPassword,
    /// The caller has no password in the database.
    #[error("{0} has no password here; use the password of a user that `shoal user list` shows")]
    NoPassword(String),
    /// The operating system returned no random bytes.
    #[error("cannot make a secret")]
    Random(#[from] NoRandomness),
    /// The work was not finished.
    #[error("the password could not be hashed; try again")]
    Busy,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
