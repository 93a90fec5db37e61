//! Users and API tokens as the API returns them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// All users.
#[derive(Clone, Debug, Deserialize)]
pub struct UserPage {
    /// The users.
    pub users: Vec<User>,
}

/// A user.
#[derive(Clone, Debug, Deserialize)]
pub struct User {
    /// The name.
    pub name: String,
    /// The role.
    pub role: String,
    /// When the user was disabled.
    pub disabled_at: Option<Timestamp>,
    /// Whether the user is of restored data and was not confirmed.
    pub unconfirmed: bool,
    /// Who made the user.
    pub created_by: String,
    /// The time at which the user was created.
    pub created_at: Timestamp,
}

/// All API tokens.
#[derive(Clone, Debug, Deserialize)]
pub struct TokenPage {
    /// The tokens.
    pub tokens: Vec<Token>,
}

/// An API token.
#[derive(Clone, Debug, Deserialize)]
pub struct Token {
    /// The name.
    pub name: String,
    /// The role.
    pub role: String,
    /// The time of the last use, accurate to ten minutes; `None` for a token that was never used.
    pub last_used_at: Option<Timestamp>,
    /// The time at which the token expires; `None` for a token without an end.
    pub expires_at: Option<Timestamp>,
    /// The time at which the token was created.
    pub created_at: Timestamp,
    /// The name of the user or token that created the token.
    #[serde(default)]
    pub created_by: String,
    /// The labels of the servers that the token may see; empty for all servers.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The registry scopes of the token, such as `pull,push:os-images/**`.
    #[serde(default)]
    pub registry: Vec<String>,
    /// Whether the token is of restored data and was not confirmed.
    #[serde(default)]
    pub unconfirmed: bool,
}

/// A token with its text, which is shown once.
#[derive(Clone, Deserialize)]
pub struct IssuedToken {
    /// The token.
    #[serde(flatten)]
    pub view: Token,
    /// The text of the token, which a client sends.
    pub token: String,
}
