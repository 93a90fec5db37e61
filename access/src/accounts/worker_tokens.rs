//! Tokens of workers elsewhere. A worker is no user of the API: its token opens the routes of workers and nothing else.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::tokens::{in_future, new_id};
use super::users::shown;
use super::{AccountError, Accounts};
use crate::auth::generate_worker_token;
use model::{NewEvent, Time};
use secrets::token_hash;
use store::{AccountWritten, StoredWorkerToken};

/// The most queues of one token.
const MAX_QUEUES: usize = 32;
/// The longest name of a queue, in bytes: that of a label.
const MAX_QUEUE: usize = 128;

/// The token of a worker, without its text.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WorkerToken")]
pub struct WorkerTokenView {
    /// The id of the token.
    pub token_id: String,
    /// The name, which leases and logs show.
    pub name: String,
    /// The queues whose steps the worker may execute: values of the server label `queue`.
    pub queues: BTreeSet<String>,
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
}

impl From<StoredWorkerToken> for WorkerTokenView {
    fn from(token: StoredWorkerToken) -> Self {
        let StoredWorkerToken {
            id: token_id,
            name,
            queues,
            created_by,
            created_at,
            expires_at,
            last_used_at,
        } = token;
        Self { token_id, name, queues, created_by, created_at, expires_at, last_used_at }
    }
}

/// The token of a worker to create.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "NewWorkerToken")]
#[serde(deny_unknown_fields)]
pub struct NewWorkerToken {
    /// The name: letters, digits and characters of `-._@`.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The queues whose steps the worker may execute: values of the server label `queue`.
    #[schemars(length(min = 1, max = MAX_QUEUES))]
    pub queues: BTreeSet<String>,
    /// When the token expires; absent or null: never.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub expires_at: Option<Time>,
}

impl NewWorkerToken {
    fn check(&self, now: Time) -> Result<(), AccountError> {
        let invalid = |message: String| Err(AccountError::Invalid { field: "queues", message });
        if self.queues.is_empty() || self.queues.len() > MAX_QUEUES {
            return invalid(format!("a worker has 1 to {MAX_QUEUES} queues"));
        }
        if self.queues.contains(bmc::QUEUE) {
            return invalid(format!(
                "the queue {:?} is executed by the controller; name another one",
                bmc::QUEUE
            ));
        }
        let text =
            |text: &String| (1..=MAX_QUEUE).contains(&text.len()) && !text.chars().any(char::is_control);
        if !self.queues.iter().all(text) {
            return invalid(format!("a queue has 1 to {MAX_QUEUE} bytes without control characters"));
        }
        in_future(self.expires_at, now)
    }
}

impl Accounts<'_> {
    /// All tokens of workers by name.
    ///
    /// # Errors
    /// [`AccountError::Store`] when the database fails.
    pub async fn worker_tokens(&self) -> Result<Vec<WorkerTokenView>, AccountError> {
        Ok(self.store.worker_tokens().await?.into_iter().map(WorkerTokenView::from).collect())
    }

    /// Creates the token of a worker. Its text is returned and never again.
    ///
    /// # Errors
    /// [`AccountError`] when a value cannot be used, the name is taken, or the database fails.
    pub async fn create_worker_token(
        &self,
        new: NewWorkerToken,
        by: &str,
        now: Time,
    ) -> Result<(WorkerTokenView, SecretString), AccountError> {
        self.check_name(&new.name)?;
        new.check(now)?;
        let text = generate_worker_token()?;
        let NewWorkerToken { name, queues, expires_at } = new;
        let list = queues.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("token {name} of a worker for the queues {list} created");
        let event = NewEvent::info("worker-token.created", message)
            .by(by)
            .with(json!({ "token": name, "queues": queues, "expires_at": expires_at }));
        let token = StoredWorkerToken {
            id: new_id(),
            name: name.clone(),
            queues,
            created_by: by.to_owned(),
            created_at: now,
            expires_at,
            last_used_at: None,
        };
        let hash = token_hash(text.expose_secret());
        let written = self.store.create_worker_token(token, hash, event).await?;
        Ok((token_of(written, &name)?, text))
    }

    /// Revokes the token of a worker.
    ///
    /// # Errors
    /// [`AccountError`] when the token is unknown, or the database fails.
    pub async fn revoke_worker_token(
        &self,
        name: &str,
        by: &str,
        now: Time,
    ) -> Result<WorkerTokenView, AccountError> {
        let event =
            NewEvent::info("worker-token.revoked", format!("token {} of a worker revoked", shown(name)))
                .by(by)
                .with(json!({ "token": shown(name) }));
        token_of(self.store.revoke_worker_token(name, event, now).await?, name)
    }
}

fn token_of(written: AccountWritten<StoredWorkerToken>, name: &str) -> Result<WorkerTokenView, AccountError> {
    match written {
        AccountWritten::Done(token) => Ok(token.into()),
        AccountWritten::NameTaken => Err(AccountError::WorkerNameTaken(shown(name))),
        AccountWritten::Full => Err(AccountError::FullOfWorkers),
        AccountWritten::Unknown | AccountWritten::LastWayIn | AccountWritten::OtherPassword => {
            Err(AccountError::UnknownWorkerToken(shown(name)))
        }
    }
}
