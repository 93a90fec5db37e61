//! The rows of the operation table for the conditions of servers.

use serde_json::json;

use super::super::conditions::{dry_run, request, view};
use super::super::error_code::ErrorCode;
use super::operation::{ApiOperation, get, post};

/// The operations on conditions of servers.
pub(super) fn conditions() -> Vec<ApiOperation> {
    const CONDITION: (&str, &str) = ("servers", "/api/v1/servers/{serial}/condition");
    const ETAG: (&str, &str) = ("ETag", "The revision of the condition, for `If-Match`.");
    vec![
        post(CONDITION, "createServerCondition", "Request an action for a server, or preview it with `dry_run`")
            .of_server()
            .query(
                "dry_run",
                "Write nothing and return what the request would do. Read permission is enough, but for `biosApply`, whose preview reads \
                 the BMC.",
                json!({ "type": "boolean" }),
            )
            .idempotency_key()
            .header(
                "If-Match",
                "The `ETag` of the newest condition of the kind. The request is refused with 409 if it has changed since.",
                json!({ "type": "string" }),
            )
            .body::<request::NewCondition>()
            .returns::<dry_run::ConditionResponse>(200, "The stored condition, or the preview.")
            .with_header(ETAG.0, ETAG.1)
            .errors(&[
                ErrorCode::UnknownJob,
                ErrorCode::ConflictCondition,
                ErrorCode::ConflictRevision,
                ErrorCode::ConflictRestored,
                ErrorCode::ConflictInput,
                ErrorCode::NoRegistry,
                ErrorCode::UnknownFirmwareSet,
                ErrorCode::NoFirmwareSet,
                ErrorCode::SeveralFirmwareSets,
            ]),
        get(CONDITION, "getServerCondition", "Show the newest condition of a kind")
            .of_server()
            .query("kind", "The kind of the condition, such as `powerCycleSoft`. Required.", json!({ "type": "string" }))
            .returns::<view::ConditionView>(200, "The condition.")
            .with_header(ETAG.0, ETAG.1)
            .errors(&[ErrorCode::UnknownCondition, ErrorCode::UnknownJob, ErrorCode::ConflictInput]),
        get(
            ("servers", "/api/v1/servers/{serial}/conditions"),
            "listServerConditions",
            "List the newest condition of every kind, the open ones first",
        )
        .of_server()
        .returns::<view::ConditionList>(200, "The conditions.")
        .errors(&[ErrorCode::UnknownJob, ErrorCode::ConflictInput]),
    ]
}
