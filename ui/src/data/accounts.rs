//! What the API returns for users and tokens.

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
    /// When.
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
    /// When it was last used.
    pub last_used_at: Option<Timestamp>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// By whom.
    #[serde(default)]
    pub created_by: String,
    /// The labels of the servers that it may see.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What it may do in the registry.
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
    /// The text.
    pub token: String,
}
