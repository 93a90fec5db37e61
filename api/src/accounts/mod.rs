//! Users, API tokens, and the caller's own login.

pub(super) mod me;
pub(super) mod tokens;
pub(super) mod users;
pub(super) mod worker_tokens;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::Api;
use super::error::{ApiError, Detail};
use super::error_code::{ErrorCode, Rule};
use access::accounts::{AccountError, Accounts};

/// The name in the path.
pub(super) struct NamePath(String);

impl FromRequestParts<Api> for NamePath {
    type Rejection = std::convert::Infallible;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Self::Rejection> {
        // A name that is not UTF-8 is empty text, which names nothing.
        let text = Path::<String>::from_request_parts(parts, api).await;
        Ok(Self(text.map(|Path(text)| text).unwrap_or_default()))
    }
}

fn accounts(api: &Api) -> Accounts<'_> {
    Accounts::online(api.store(), api.auth.logins())
}

impl From<AccountError> for ApiError {
    fn from(error: AccountError) -> Self {
        let message = error.to_string();
        match error {
            AccountError::Invalid { field, message } => {
                let rule = match field {
                    "name" => Rule::Pattern,
                    "role" => Rule::Enum,
                    "labels" => Rule::Labels,
                    "expires_at" => Rule::Range,
                    _ => Rule::Format,
                };
                Self::invalid(vec![Detail::new(&format!("/{field}"), rule, message)])
            }
            AccountError::Password(_) => Self::invalid(vec![Detail::new("/password", Rule::Length, message)]),
            AccountError::NameTaken(_) | AccountError::WorkerNameTaken(_) => {
                Self::new(ErrorCode::ConflictName, message)
            }
            AccountError::UnknownWorkerToken(_) => Self::new(ErrorCode::UnknownWorkerToken, message),
            AccountError::UnknownUser(_) => Self::new(ErrorCode::UnknownUser, message),
            AccountError::UnknownToken(_) => Self::new(ErrorCode::UnknownToken, message),
            AccountError::Full | AccountError::FullOfWorkers => {
                Self::new(ErrorCode::ConflictAccounts, message)
            }
            AccountError::LastWayIn => Self::new(ErrorCode::ConflictLastAdmin, message),
            AccountError::NoPassword(_) => Self::new(ErrorCode::ConflictNoPassword, message),
            AccountError::Store(error) => error.into(),
            AccountError::Random(_) | AccountError::Busy => {
                tracing::error!(error = %model::error_chain(&error), "a user or token was not changed");
                Self::new(ErrorCode::Internal, "see the log")
            }
        }
    }
}
