//! The errors of accounts, keys and workers elsewhere as refusals of a request. What a caller cannot change is logged here, and the
//! refusal names the log.

use super::error::{ApiError, Detail};
use super::error_code::{ErrorCode, Rule};
use access::accounts::AccountError;
use engine::RemoteError;
use keys::RotateError;
use model::error_chain;

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
            AccountError::OtherPassword => Self::new(ErrorCode::Unauthorized, message),
            AccountError::LastWayIn => Self::new(ErrorCode::ConflictLastAdmin, message),
            AccountError::NoPassword(_) => Self::new(ErrorCode::ConflictNoPassword, message),
            AccountError::Store(error) => error.into(),
            AccountError::Random(_) | AccountError::Busy => {
                tracing::error!(error = %error_chain(&error), "a user or token was not changed");
                Self::new(ErrorCode::Internal, "see the log")
            }
        }
    }
}

impl From<RotateError> for ApiError {
    fn from(error: RotateError) -> Self {
        if error.is_refusal() {
            return Self::new(ErrorCode::ConflictSecret, error.to_string());
        }
        tracing::error!(error = %error_chain(&error), "a key was not rotated; the rotation can be continued");
        match error {
            RotateError::Store(error) => error.into(),
            _ => Self::new(ErrorCode::Internal, "the rotation stopped and can be continued; see the log"),
        }
    }
}

impl From<RemoteError> for ApiError {
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::Refused(why) => Self::invalid(vec![Detail::new("", Rule::Shape, why.to_string())]),
            RemoteError::OwnQueue(_) => Self::new(ErrorCode::Forbidden, error.to_string()),
            RemoteError::Store(error) => error.into(),
        }
    }
}
