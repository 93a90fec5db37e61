//! `POST /api/v1/job-selections/cancel` and `…/retry`: a verb for all jobs that satisfy a filter.
//!
//! ```text
//!  preview (?dry_run=true): the number of jobs, their `selection`, and the first of them
//!  request with that number as `expected` --jobs have come or gone since?--> 412, nothing is done
//!  and with that `selection`              `--otherwise------------------------> every job, a cancel each or one new batch
//! ```
//!
//! The number alone does not say that the jobs are the same: one may have come for each that has gone. `selection` is a digest of
//! their ids.
//!
//! Invariants: the number and the jobs are of one point in time; a selection is bounded, so a mistyped filter reaches a bounded
//! number of machines; only jobs to which the verb applies are selected; a retry takes the newest installation of a server and no
//! older one, so it repeats nothing that a newer job of the server has made good.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::Api;
use super::super::batches::retry::{self, Limits, Repeated};
use super::super::batches::view::CreatedBatchView;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanWrite, JsonBody, Parameters};
use super::super::filters::{self, FILTER};
use super::super::openapi::types;
use super::super::request_audit;
use super::selected::{digest, is_other};
use model::{Filter, RunId, Serial, Subject};
use store::{JobFilter, JobIds, Newest};

/// The maximum of jobs of one selection.
pub(crate) const MAX_SELECTED: u32 = 1000;
/// The maximum of jobs that a preview names.
const NAMED: usize = 20;
/// Jobs that can be cancelled: they have no outcome yet.
const CANCELLABLE: &str = "-status:complete,succeeded,failed";
/// Jobs that can be retried here: installations that have ended without success.
const RETRIABLE: &str = "status:complete workflow:provision outcome:failed,cancelled";

/// The query of a selection.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SelectionQuery {
    dry_run: bool,
}

/// The jobs to which a verb applies.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "JobSelection")]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The filter, in the language of `GET /api/v1/jobs?filter=`; it must have a term.
    filter: String,
    /// The number of jobs that the preview showed. Required without `dry_run`; the request is refused if it has changed.
    #[schemars(range(min = 1, max = MAX_SELECTED))]
    expected: Option<u64>,
    /// The `selection` that the preview showed. The request is refused if the filter selects other jobs now.
    selection: Option<String>,
    /// The reason, which is recorded in events.
    #[serde(default)]
    reason: String,
    /// For a retry: the maximum of jobs that run at once.
    #[schemars(range(min = 1))]
    max_parallel: Option<u32>,
    /// For a retry: the number of jobs, from the first, that must succeed before the others start.
    #[serde(default)]
    canary: u32,
    /// For a retry: the number of failed jobs after which no further job starts.
    #[schemars(range(min = 1))]
    stop_after: Option<u32>,
}

/// What a verb selects, or what it has done.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SelectedJobs")]
pub(crate) struct SelectionView {
    /// Whether nothing was done.
    dry_run: bool,
    /// The number of selected jobs.
    count: u64,
    /// A digest of the ids of the selected jobs, in hex. Two selections with the same digest are the same jobs.
    selection: String,
    /// The number of jobs that satisfy the filter and are left out of a retry, because a newer installation of their server exists.
    superseded: u64,
    /// The number of jobs that this request cancels; 0 for a preview.
    cancelled_now: u64,
    /// The first of the selected jobs, at most 20.
    first: Vec<SelectedView>,
}

/// The response to a retry: a preview, or the batch.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the handler returns the two types; the enum is read by the derive macro only")]
pub(crate) enum RetrySelectionView {
    /// The batch of an earlier request.
    Batch(Box<CreatedBatchView>),
    /// The preview.
    Preview(SelectionView),
}

/// A selected job.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SelectedJob")]
struct SelectedView {
    #[schemars(with = "types::JobId")]
    job_id: RunId,
    #[schemars(with = "Option<types::SerialNumber>")]
    server_serial: Option<Serial>,
}

/// Cancels the jobs of a selection, or previews it.
pub(crate) async fn cancel_selected(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    Parameters(query): Parameters<SelectionQuery>,
    body: JsonBody,
) -> Result<(StatusCode, Json<SelectionView>), ApiError> {
    let request: Request = body.read()?;
    let selected = select(&api, &request, CANCELLABLE, None, query.dry_run).await?;
    let mut view = preview(&api, &selected, query.dry_run).await?;
    if query.dry_run {
        return Ok((StatusCode::OK, Json(view)));
    }
    let reason: String = request.reason.chars().filter(|c| !c.is_control()).take(256).collect();
    view.cancelled_now = api.engine.cancel_all(&selected.ids, &principal.name, &reason).await?;
    Ok((StatusCode::ACCEPTED, Json(view)))
}

/// Creates a batch with the orders of the jobs of a selection, or previews it.
pub(crate) async fn retry_selected(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    Parameters(query): Parameters<SelectionQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let request: Request = body.read()?;
    let newest = Some(Newest { except: retry::replayed(&api, &headers).await? });
    let selected = select(&api, &request, RETRIABLE, newest, query.dry_run).await?;
    if query.dry_run {
        return Ok(Json(preview(&api, &selected, true).await?).into_response());
    }
    let Request { max_parallel, canary, stop_after, .. } = request;
    let limits = Limits { max_parallel, canary, stop_after };
    let repeated = Repeated { jobs: selected.ids, superseded: selected.superseded, of: None };
    let created = retry::of_jobs(&api, &principal, &repeated, limits, &headers, &body).await?;
    Ok(created.into_response())
}

/// The jobs of the filter to which the verb applies.
async fn select(
    api: &Api,
    request: &Request,
    applies: &str,
    newest: Option<Newest>,
    dry_run: bool,
) -> Result<JobIds, ApiError> {
    let present = filters::present(api);
    let pointer = format!("/{FILTER}");
    let filter = Filter::parse(Subject::Jobs, &request.filter, present.now).map_err(|errors| {
        ApiError::invalid(errors.iter().map(|why| filters::detail(&pointer, why)).collect())
    })?;
    if filter.is_empty() {
        let message = "a filter without a term selects every job; name at least one";
        return Err(ApiError::invalid(vec![Detail::new(&pointer, Rule::Required, message)]));
    }
    if dry_run {
        request_audit::changes_nothing();
    }
    let applies = Filter::parse(Subject::Jobs, applies, present.now).unwrap_or_default();
    let filter =
        filter.and(applies).map_err(|why| ApiError::invalid(vec![filters::detail(&pointer, &why)]))?;
    let is_repeated = newest.as_ref().is_some_and(|newest| newest.except.is_some());
    let filter =
        JobFilter { filter, newest, present: Some(present), limit: MAX_SELECTED, ..JobFilter::default() };
    let selected = api.store().job_ids(filter).await?;
    let count = selected.count;
    if count > u64::from(MAX_SELECTED) {
        let message =
            format!("the filter selects {count} jobs, at most {MAX_SELECTED} are changed at once; narrow it");
        return Err(ApiError::invalid(vec![Detail::new(&pointer, Rule::Range, message)]));
    }
    let changed = |why: String| {
        let message = format!("{why}; nothing was done: preview it again");
        Err(ApiError::new(ErrorCode::PreconditionFailed, message))
    };
    match request.expected {
        _ if dry_run => Ok(selected),
        // The jobs were those of the preview at the first request.
        Some(_) if is_repeated => Ok(selected),
        Some(expected) if expected != count => {
            changed(format!("the filter selects {count} jobs now and {expected} were expected"))
        }
        Some(_) if is_other(request.selection.as_deref(), &selected.ids) => {
            changed(format!("the filter selects {count} jobs, and they are not those of the preview"))
        }
        Some(_) => Ok(selected),
        None => {
            let message = "give the number of jobs that the preview with dry_run=true showed";
            Err(ApiError::invalid(vec![Detail::new("/expected", Rule::Required, message)]))
        }
    }
}

async fn preview(api: &Api, selected: &JobIds, dry_run: bool) -> Result<SelectionView, ApiError> {
    let mut first = Vec::new();
    for id in selected.ids.iter().take(NAMED) {
        let job = api.store().job(*id).await?;
        first.push(SelectedView { job_id: *id, server_serial: job.and_then(|job| job.run.server) });
    }
    let JobIds { count, superseded, .. } = *selected;
    let selection = digest(&selected.ids);
    Ok(SelectionView { dry_run, count, selection, superseded, cancelled_now: 0, first })
}
