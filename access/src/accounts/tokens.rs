//! API tokens.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::users::shown;
use super::{AccountError, Accounts};
use crate::auth::{
    InvalidRegistryScope, MAX_REGISTRY_SCOPES, MAX_TOKEN_LABELS, RegistryScope, Role, generate_token,
};
use model::{NewEvent, Time};
use secrets::token_hash;
use store::{AccountWritten, StoredToken};

/// The maximum length of a key or value of a label.
const MAX_LABEL: usize = 128;

/// An API token, without its text.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ApiToken")]
pub struct TokenView {
    /// The id of this text of the token; a rotation changes it.
    pub token_id: String,
    /// The name, which events show as their actor.
    pub name: String,
    /// What the token may do.
    pub role: String,
    /// The labels of the servers that the token may see; empty for all servers.
    pub labels: BTreeMap<String, String>,
    /// What the token may do in the registry, such as `pull,push:os-images/**`; with neither scopes nor labels, what its
    /// role may do.
    pub registry: Vec<String>,
    /// The name of the user or token that created the token.
    pub created_by: String,
    /// When the token was created.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created_at: Time,
    /// When the token expires; null when it does not.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub expires_at: Option<Time>,
    /// When the token was last used, accurate to ten minutes.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_used_at: Option<Time>,
    /// Whether the token is refused because the data was restored and no administrator has confirmed it.
    pub unconfirmed: bool,
}

impl From<StoredToken> for TokenView {
    fn from(token: StoredToken) -> Self {
        let StoredToken {
            id: token_id,
            name,
            role,
            labels,
            registry,
            created_by,
            created_at,
            expires_at,
            last_used_at,
            unconfirmed,
        } = token;
        Self {
            token_id,
            name,
            role,
            labels,
            registry,
            created_by,
            created_at,
            expires_at,
            last_used_at,
            unconfirmed,
        }
    }
}

/// An API token to create.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "NewApiToken")]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// The name: letters, digits and characters of `-._@`.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// What the token may do.
    pub role: Role,
    /// The labels of the servers that the token may see; empty for all servers.
    #[serde(default)]
    #[schemars(extend("maxProperties" = MAX_TOKEN_LABELS))]
    pub labels: BTreeMap<String, String>,
    /// What the token may do in the registry, such as `pull,push:os-images/**`.
    #[serde(default)]
    #[schemars(length(max = MAX_REGISTRY_SCOPES))]
    pub registry: Vec<String>,
    /// When the token expires; absent or null: never.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub expires_at: Option<Time>,
}

impl NewToken {
    fn check(&self, now: Time) -> Result<(), AccountError> {
        let invalid = |field, message: String| Err(AccountError::Invalid { field, message });
        let text =
            |text: &String| (1..=MAX_LABEL).contains(&text.len()) && !text.chars().any(char::is_control);
        if self.labels.len() > MAX_TOKEN_LABELS
            || !self.labels.iter().all(|(key, value)| text(key) && text(value))
        {
            return invalid("labels", format!("at most {MAX_TOKEN_LABELS} labels of 1 to {MAX_LABEL} bytes"));
        }
        if self.registry.len() > MAX_REGISTRY_SCOPES {
            return invalid("registry", format!("at most {MAX_REGISTRY_SCOPES} registry scopes"));
        }
        let scopes: Result<Vec<RegistryScope>, InvalidRegistryScope> =
            self.registry.iter().map(|scope| scope.parse()).collect();
        if let Err(why) = scopes {
            return invalid("registry", why.to_string());
        }
        match self.role {
            Role::RegistryOnly if self.registry.is_empty() => {
                invalid("registry", "a registry-only token needs a registry scope".to_owned())
            }
            Role::RegistryOnly if !self.labels.is_empty() => {
                invalid("labels", "a registry-only token sees no servers, so it has no labels".to_owned())
            }
            Role::ReportOnly if !self.registry.is_empty() => {
                invalid("registry", "a report-only token has no registry scope".to_owned())
            }
            _ => in_future(self.expires_at, now),
        }
    }
}

impl Accounts<'_> {
    /// All API tokens by name.
    ///
    /// # Errors
    /// [`AccountError::Store`] when the database fails.
    pub async fn tokens(&self) -> Result<Vec<TokenView>, AccountError> {
        Ok(self.store.api_tokens().await?.into_iter().map(TokenView::from).collect())
    }

    /// The API token with this name.
    ///
    /// # Errors
    /// [`AccountError::UnknownToken`] when there is none.
    pub async fn token(&self, name: &str) -> Result<TokenView, AccountError> {
        let token = self.store.api_token_named(name).await?;
        token.map(TokenView::from).ok_or_else(|| AccountError::UnknownToken(shown(name)))
    }

    /// Creates an API token. Its text is returned and never again.
    ///
    /// # Errors
    /// [`AccountError`] when a value cannot be used, the name is taken, or the database fails.
    pub async fn create_token(
        &self,
        new: NewToken,
        by: &str,
        now: Time,
    ) -> Result<(TokenView, SecretString), AccountError> {
        self.check_name(&new.name)?;
        new.check(now)?;
        let text = generate_token()?;
        let NewToken { name, role, labels, registry, expires_at } = new;
        let event = NewEvent::info("token.created", format!("API token {name} with role {role} created"))
            .by(by)
            .with(json!({
                "token": name, "role": role, "labels": labels, "registry": registry, "expires_at": expires_at,
            }));
        let token = StoredToken {
            id: new_id(),
            role: role.to_string(),
            labels,
            registry,
            created_by: by.to_owned(),
            created_at: now,
            expires_at,
            last_used_at: None,
            unconfirmed: false,
            name: name.clone(),
        };
        let hash = token_hash(text.expose_secret());
        let written = self.store.create_api_token(token, hash, event).await?;
        Ok((token_of(written, &name)?, text))
    }

    /// Gives an API token another text. The former text is refused from now on.
    ///
    /// # Errors
    /// [`AccountError`] when the token is unknown, or expired without a new expiry, or the database fails.
    pub async fn rotate_token(
        &self,
        name: &str,
        expires_at: Option<Time>,
        by: &str,
        now: Time,
    ) -> Result<(TokenView, SecretString), AccountError> {
        let former = self.token(name).await?;
        in_future(expires_at.or(former.expires_at), now)?;
        let text = generate_token()?;
        let event = NewEvent::info("token.rotated", format!("API token {} rotated", shown(name)))
            .by(by)
            .with(json!({ "token": shown(name), "expires_at": expires_at }));
        let hash = token_hash(text.expose_secret());
        let written = self.store.rotate_api_token(name, new_id(), hash, expires_at, event, now).await?;
        Ok((token_of(written, name)?, text))
    }

    /// Accepts an API token of restored data again.
    ///
    /// # Errors
    /// [`AccountError`] when the token is unknown, or the database fails.
    pub async fn confirm_token(&self, name: &str, by: &str, now: Time) -> Result<TokenView, AccountError> {
        let event = NewEvent::info(
            "token.confirmed",
            format!("API token {} of restored data confirmed", shown(name)),
        )
        .by(by)
        .with(json!({ "token": shown(name) }));
        token_of(self.store.confirm_api_token(name, event, now).await?, name)
    }

    /// Revokes an API token.
    ///
    /// # Errors
    /// [`AccountError`] when the token is unknown, no administrator could log in afterwards, or the database fails.
    pub async fn revoke_token(&self, name: &str, by: &str, now: Time) -> Result<TokenView, AccountError> {
        let event = NewEvent::info("token.revoked", format!("API token {} revoked", shown(name)))
            .by(by)
            .with(json!({ "token": shown(name) }));
        token_of(self.store.revoke_api_token(name, self.guard(), event, now).await?, name)
    }
}

fn token_of(written: AccountWritten<StoredToken>, name: &str) -> Result<TokenView, AccountError> {
    match written {
        AccountWritten::Done(token) => Ok(token.into()),
        AccountWritten::Unknown => Err(AccountError::UnknownToken(shown(name))),
        AccountWritten::NameTaken => Err(AccountError::NameTaken(shown(name))),
        AccountWritten::Full => Err(AccountError::Full),
        AccountWritten::LastWayIn => Err(AccountError::LastWayIn),
        // Only changes of users expect a password.
        AccountWritten::OtherPassword => Err(AccountError::OtherPassword),
    }
}

pub(super) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

pub(super) fn in_future(expires_at: Option<Time>, now: Time) -> Result<(), AccountError> {
    if expires_at.is_some_and(|end| end <= now) {
        let message = "the expiry is in the past; give a later one".to_owned();
        return Err(AccountError::Invalid { field: "expires_at", message });
    }
    Ok(())
}
