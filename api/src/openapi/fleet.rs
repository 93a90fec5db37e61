//! The rows of the operation table for many jobs and many servers.

use serde_json::{Value, json};

use super::super::batches::{
    cancel as batch_cancel, create as batch_create, retry as batch_retry, view as batch,
};
use super::super::error_code::ErrorCode;
use super::super::jobs::selection;
use super::super::servers::import;
use super::operation::{ApiOperation, get, post};

/// The operations on batches, on all jobs of a filter, and on many servers.
pub(super) fn fleet() -> Vec<ApiOperation> {
    const BATCHES: (&str, &str) = ("batches", "/api/v1/batches");
    vec![
        post(BATCHES, "createBatch", "Create many jobs in one request")
            .idempotency_key()
            .body::<batch_create::Request>()
            .returns::<batch::CreatedBatchView>(
                200,
                "The batch of an earlier request with the same idempotency key.",
            )
            .returns::<batch::CreatedBatchView>(
                202,
                "The batch and the jobs of its accepted rows are stored.",
            ),
        get(BATCHES, "listBatches", "List batches, the newest first")
            .query("since", "Only created at this time or later: RFC 3339, a date, or an age such as `2h`.", text())
            .query("id", "Only batches whose id begins so: 4 to 36 characters.", text())
            .query(
                "label",
                "Only batches with a job for which these labels hold: `KEY=VALUE`, `KEY!=VALUE`, `KEY` or `!KEY`, with commas between.",
                text(),
            )
            .query("cursor", "The position of the page: the field `next` of the page before it.", text())
            .page_size(20, 100)
            .returns::<batch::BatchPage>(200, "One page of batches."),
        get(
            ("batches", "/api/v1/batches/{id}"),
            "getBatch",
            "Show a batch with its progress and the causes of its failures",
        )
        .of_batch()
        .returns::<batch::BatchDetailView>(200, "The batch."),
        post(("batches", "/api/v1/batches/{id}/cancel"), "cancelBatch", "Cancel the jobs of a batch")
            .of_batch()
            .optional_body::<batch_cancel::Request>()
            .returns::<batch::CancelledBatchView>(202, "The cancels are stored.")
            .errors(&[ErrorCode::Busy, ErrorCode::ConflictPhase, ErrorCode::PreconditionFailed]),
        post(
            ("batches", "/api/v1/batches/{id}/continue"),
            "continueBatch",
            "Start further jobs of a batch that has stopped",
        )
        .of_batch()
        .returns::<batch::BatchView>(200, "The batch had not stopped.")
        .returns::<batch::BatchView>(202, "Further jobs of the batch start."),
        post(
            ("batches", "/api/v1/batches/{id}/retry"),
            "retryBatch",
            "Create a batch with the requests of the failed jobs of another one",
        )
        .of_batch()
        .idempotency_key()
        .optional_body::<batch_retry::Request>()
        .returns::<batch::CreatedBatchView>(
            200,
            "The batch of an earlier request with the same idempotency key.",
        )
        .returns::<batch::CreatedBatchView>(202, "The batch and the jobs of its accepted rows are stored.")
        .errors(&[ErrorCode::PreconditionFailed, ErrorCode::ConflictPhase]),
        post(
            ("jobs", "/api/v1/job-selections/cancel"),
            "cancelJobs",
            "Cancel the jobs that satisfy a filter, or preview it with `dry_run`",
        )
        .query("dry_run", "Change nothing and return the selected jobs.", flag())
        .body::<selection::Request>()
        .returns::<selection::SelectionView>(200, "The preview.")
        .returns::<selection::SelectionView>(202, "The cancels are stored.")
        .errors(&[ErrorCode::PreconditionFailed, ErrorCode::Busy, ErrorCode::ConflictPhase]),
        post(
            ("jobs", "/api/v1/job-selections/retry"),
            "retryJobs",
            "Create a batch with the requests of ended jobs that satisfy a filter, or preview it with `dry_run`",
        )
        .query("dry_run", "Change nothing and return the selected jobs.", flag())
        .idempotency_key()
        .body::<selection::Request>()
        .returns::<selection::RetrySelectionView>(
            200,
            "The preview, or the batch of an earlier request with the same idempotency key.",
        )
        .returns::<batch::CreatedBatchView>(202, "The batch and the jobs of its accepted rows are stored.")
        .errors(&[ErrorCode::PreconditionFailed, ErrorCode::ConflictPhase]),
        post(
            ("servers", "/api/v1/server-imports"),
            "importServers",
            "Register many servers, or preview it with `dry_run`",
        )
        .query("dry_run", "Write nothing and return what the request would do.", flag())
        .body::<import::NewServers>()
        .returns::<import::ImportView>(200, "A result per row; the new servers are registered."),
    ]
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn flag() -> Value {
    json!({ "type": "boolean" })
}
