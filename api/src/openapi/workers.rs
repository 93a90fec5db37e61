//! The operations of the tokens of workers elsewhere. The routes of the workers themselves are no part of the document.

use serde_json::json;

use super::super::accounts::worker_tokens;
use super::super::error_code::ErrorCode;
use super::operation::{ApiOperation, delete, get, post};
use access::accounts::NewWorkerToken;

/// The operations, in the order of the table of routes.
pub(super) fn workers() -> Vec<ApiOperation> {
    const WORKER_TOKENS: (&str, &str) = ("accounts", "/api/v1/worker-tokens");
    vec![
        post(WORKER_TOKENS, "createWorkerToken", "Create a token of a worker elsewhere")
            .for_admins()
            .body::<NewWorkerToken>()
            .returns::<worker_tokens::IssuedWorkerToken>(
                201,
                "The token with its text, which is not shown again.",
            )
            .errors(&[ErrorCode::ConflictName, ErrorCode::ConflictAccounts]),
        get(
            WORKER_TOKENS,
            "listWorkerTokens",
            "List the tokens of workers by name, and the workers that use them",
        )
        .for_admins()
        .returns::<worker_tokens::WorkerTokenPage>(200, "All tokens of workers, without their texts."),
        delete(
            ("accounts", "/api/v1/worker-tokens/{name}"),
            "revokeWorkerToken",
            "Revoke a token of a worker",
        )
        .for_admins()
        .path_parameter("name", "The name of the token.", json!({ "type": "string" }))
        .returns_nothing(204, "The token is refused with the next request.")
        .errors(&[ErrorCode::UnknownWorkerToken]),
    ]
}
