//! A checked request for a condition, and its refusal by the store.

use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::unknown_server;
use model::Serial;
use store::Created;
use upkeep::{ConditionKind, UpkeepOrder};

/// A checked request.
pub(super) struct Request {
    pub(super) server: Serial,
    pub(super) kind: ConditionKind,
    pub(super) order: UpkeepOrder,
}

/// The refusal of a condition that was not created.
pub(super) fn refused(server: &Serial, kind: ConditionKind, created: &Created) -> ApiError {
    match created {
        Created::Conflict { holder } => ApiError::new(
            ErrorCode::ConflictCondition,
            format!(
                "server {server} has the open condition {holder}, so {kind} was not created: wait for its end, cancel it \
                 (shoal job cancel {holder}), or request a condition of another kind with `queue` to wait behind it"
            ),
        )
        .detail(Detail::new("/kind", Rule::ActiveJob, holder.to_string())),
        Created::KeyReused(id) => ApiError::new(
            ErrorCode::IdempotencyKeyReused,
            format!("this idempotency key belongs to another request, job {id}; use a new key for a new condition"),
        ),
        Created::UnknownServer | Created::New(_) | Created::Replay(_) => unknown_server(server.as_str()),
    }
}
