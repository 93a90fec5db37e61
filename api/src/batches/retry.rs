//! `POST /api/v1/batches/{id}/retry`: a new batch with the orders of the failed jobs of an ended or running one.
//!
//! ```text
//!  failed jobs of the batch (of one cause, if given)
//!        |-- a newer installation of the server exists --> left out and counted
//!        `-- the newest of its server --its order--> chunks of 500 --> a result per job, in their order
//! ```
//!
//! Invariant: a server whose newer installation succeeded, or is under way, is not installed again by a retry of many.
//!
//! The jobs that have failed are unchanged. A repetition with the same idempotency key creates no job twice, and none for a job
//! that has failed since: only a request that was interrupted is completed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanWrite, JsonBody, OptionalJsonBody, TextPath};
use super::super::jobs::{
    created_job, find_replay, idempotency_key, refused, selected, with_server_resources,
};
use super::super::request_audit;
use super::create::{CHUNK, store, wrong_limits};
use super::show::find;
use super::view::{BatchView, CreatedBatchView, RowResult, RowView};
use access::auth::Principal;
use model::{Batch, BatchId, Idempotency, NewRun, RunId, Serial};
use provision::JobOrder;
use recipe::Delivery;
use store::Created;

/// Which jobs are repeated, and how many at once.
#[derive(Deserialize, Default, JsonSchema)]
#[schemars(rename = "BatchRetryRequest")]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Request {
    /// Only jobs of this cause, as `GET /api/v1/batches/{id}` names it.
    cause: Option<String>,
    /// The number of jobs that the caller expects. The request is refused if another number would be repeated.
    #[schemars(range(min = 1))]
    expected: Option<u64>,
    /// The `selection` of the batch or of the cause, as the caller saw it. The request is refused if other jobs would be repeated.
    selection: Option<String>,
    /// Only jobs that failed for a reason of this class.
    class: Option<String>,
    /// Only jobs that failed at this step.
    step: Option<String>,
    /// The maximum of jobs that run at once; absent: that of the batch.
    #[schemars(range(min = 1))]
    max_parallel: Option<u32>,
    /// The number of jobs, from the first, that must succeed before the others start.
    canary: u32,
    /// The number of failed jobs after which no further job starts.
    #[schemars(range(min = 1))]
    stop_after: Option<u32>,
}

/// The jobs that a batch repeats.
#[derive(Clone, Debug)]
pub(crate) struct Repeated {
    /// The newest installations of their servers.
    pub(crate) jobs: Vec<RunId>,
    /// How many others were left out, because a newer installation of their server exists.
    pub(crate) superseded: u64,
    /// The batch to which they all belong, if the request names one.
    pub(crate) of: Option<BatchId>,
}

/// How many jobs of a batch of retries run, and when it stops.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) max_parallel: Option<u32>,
    pub(crate) canary: u32,
    pub(crate) stop_after: Option<u32>,
}

/// Creates the batch. The jobs that the response counts as accepted are durable.
pub(crate) async fn retry(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    TextPath(id): TextPath,
    headers: HeaderMap,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<(StatusCode, Json<CreatedBatchView>), ApiError> {
    let request: Request = body.read()?;
    let of = find(&api, &id).await?;
    let earlier = replayed(&api, &headers).await?;
    let mut failed = api.store().failed_jobs_of_batch(of.id, earlier).await?;
    failed.retain(|job| {
        request.class.as_ref().is_none_or(|class| job.class == **class)
            && request.step.as_ref().is_none_or(|step| job.step == **step)
            && request.cause.as_ref().is_none_or(|cause| *cause == job.cause())
    });
    let all = failed.len();
    failed.retain(|job| !job.superseded);
    let jobs: Vec<RunId> = failed.iter().map(|job| job.id).collect();
    // The jobs were the expected ones at the first request.
    if earlier.is_none() {
        expect(&request, &jobs)?;
    }
    let limits = Limits {
        max_parallel: request.max_parallel.or(of.max_parallel),
        canary: request.canary,
        stop_after: request.stop_after,
    };
    let superseded = (all - jobs.len()) as u64;
    let repeated = Repeated { jobs, superseded, of: Some(of.id) };
    of_jobs(&api, &principal, &repeated, limits, &headers, &body).await
}

/// Refuses a retry of other jobs than the caller saw.
fn expect(request: &Request, jobs: &[RunId]) -> Result<(), ApiError> {
    let changed = |why: String| {
        let message = format!("{why}; nothing was done: look at the batch again");
        Err(ApiError::new(ErrorCode::PreconditionFailed, message))
    };
    let count = jobs.len() as u64;
    match request.expected {
        Some(expected) if expected != count => {
            changed(format!("{count} failed jobs would be repeated now and {expected} were expected"))
        }
        _ if selected::is_other(request.selection.as_deref(), jobs) => {
            changed(format!("{count} failed jobs would be repeated, and they are not those that were seen"))
        }
        _ => Ok(()),
    }
}

/// The batch that an earlier request with the same key created: its jobs are the retries themselves, so they do not stand in the
/// way of a repetition.
pub(crate) async fn replayed(api: &Api, headers: &HeaderMap) -> Result<Option<BatchId>, ApiError> {
    match idempotency_key(headers)? {
        Some(key) => Ok(api.store().batch_of_key(&key).await?.map(|batch| batch.id)),
        None => Ok(None),
    }
}

/// Creates a batch with the orders of ended jobs.
pub(crate) async fn of_jobs(
    api: &Api,
    principal: &Principal,
    repeated: &Repeated,
    limits: Limits,
    headers: &HeaderMap,
    body: &JsonBody,
) -> Result<(StatusCode, Json<CreatedBatchView>), ApiError> {
    let Limits { max_parallel, canary, stop_after } = limits;
    let Repeated { jobs, superseded, of } = repeated;
    let (superseded, of) = (*superseded, *of);
    let mut wrong = wrong_limits(canary, stop_after);
    if max_parallel == Some(0) {
        wrong.push(Detail::new("/max_parallel", Rule::Range, "max_parallel is at least 1"));
    }
    if !wrong.is_empty() {
        return Err(ApiError::invalid(wrong));
    }
    if jobs.is_empty() && superseded > 0 {
        return Err(ApiError::new(
            ErrorCode::ConflictPhase,
            format!(
                "there is no job to retry: a newer installation of its server has followed each of the {superseded} that failed; \
                 `shoal job retry JOB` repeats one of them all the same"
            ),
        ));
    }
    if jobs.is_empty() {
        return Err(ApiError::new(
            ErrorCode::ConflictPhase,
            "there is no failed job to retry; `shoal batch show` groups the failures of a batch by cause",
        ));
    }
    let mut hash = Sha256::new();
    hash.update(of.map(|of| of.to_string()).unwrap_or_default());
    hash.update(&body.0);
    let batch = Batch {
        id: BatchId(api.engine.id_source().new_id(api.now())),
        idempotency_key: idempotency_key(headers)?,
        request_sha256: hex::encode(hash.finalize()),
        total: u32::try_from(jobs.len()).unwrap_or(u32::MAX),
        max_parallel,
        canary,
        stop_after,
        retry_of: of,
        stop: None,
        filled_at: None,
        created_by: principal.name.clone(),
        created_at: api.now(),
    };
    request_audit::target("batch", &batch.id.to_string());
    let (batch, is_new) = store(api, batch).await?;
    // Jobs may have failed since: they are no part of a request that has had its results.
    let may_create = batch.filled_at.is_none();
    let mut rows = Vec::with_capacity(jobs.len());
    for chunk in jobs.chunks(CHUNK) {
        let first = rows.len();
        rows.extend(create_chunk(api, principal, &batch, may_create, first, chunk).await?);
    }
    let refused = rows.iter().filter(|row| row.result == RowResult::Refused).count();
    // The response shows the gate after the last row.
    let batch = api.store().batch_filled(batch.id, api.now()).await?.unwrap_or(batch);
    let response = CreatedBatchView {
        batch: BatchView::of(&batch, &api.store().batch_counts(batch.id).await?),
        accepted: rows.len() - refused,
        refused,
        superseded,
        rows,
    };
    Ok((if is_new { StatusCode::ACCEPTED } else { StatusCode::OK }, Json(response)))
}

/// A job to repeat: its place, its server, and an earlier result, a new run, or the refusal.
struct Prepared {
    index: usize,
    serial: Option<Serial>,
    row: Result<Option<Created>, ApiError>,
}

async fn create_chunk(
    api: &Api,
    principal: &Principal,
    batch: &Batch,
    may_create: bool,
    first: usize,
    chunk: &[RunId],
) -> Result<Vec<RowView>, ApiError> {
    let mut orders = Vec::with_capacity(chunk.len());
    for (index, job) in (first..).zip(chunk) {
        orders.push((index, order(api, *job, batch, index).await?));
    }
    let serials = orders.iter().filter_map(|(_, order)| Some(order.as_ref().ok()?.server_serial.clone()));
    let resources = api.store().resources_of(serials.collect()).await?;
    let (mut prepared, mut runs) = (Vec::new(), Vec::new());
    for (index, order) in orders {
        let serial = order.as_ref().ok().map(|order| order.server_serial.clone());
        let row = match order {
            Err(why) => Err(why),
            Ok(order) => match find_replay(api, &order).await? {
                Some(earlier) => Ok(Some(earlier)),
                None if !may_create => Err(ApiError::new(
                    ErrorCode::ConflictPhase,
                    "the first request with this idempotency key did not repeat this job; take a new key to repeat it",
                )),
                None => {
                    let order = with_server_resources(
                        order,
                        serial.as_ref().and_then(|serial| resources.get(serial)),
                    );
                    accept(api, principal, order).await.map(|run| {
                        runs.push(run);
                        None
                    })
                }
            },
        };
        prepared.push(Prepared { index, serial, row });
    }
    let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
    let mut created = ids.into_iter().zip(api.engine.create_many(runs).await?);
    let mut rows = Vec::with_capacity(prepared.len());
    for Prepared { index, serial, row } in prepared {
        let result = match (row, &serial) {
            (Ok(Some(earlier)), Some(serial)) => created_job(RunId::new(), serial, &earlier),
            (Ok(None), Some(serial)) => match created.next() {
                Some((id, created)) => created_job(id, serial, &created),
                None => Err(ApiError::new(ErrorCode::Internal, "see the log")),
            },
            (Ok(_), None) => Err(ApiError::new(ErrorCode::ConflictInput, "the job has no server")),
            (Err(why), _) => Err(why),
        };
        let (job_id, result, error) = match result {
            Ok((id, true)) => (Some(id), RowResult::Accepted, None),
            Ok((id, false)) => (Some(id), RowResult::Exists, None),
            Err(why) => (None, RowResult::Refused, Some(why.body())),
        };
        rows.push(RowView { index, server_serial: serial.map(String::from), job_id, result, error });
    }
    Ok(rows)
}

/// Validates an order. Its recipe takes CPU time, so this runs outside of the threads that serve requests.
async fn accept(api: &Api, principal: &Principal, order: JobOrder) -> Result<NewRun, ApiError> {
    let (services, name, now) = (Arc::clone(&api.services), principal.name.clone(), api.now());
    let id = RunId(api.engine.id_source().new_id(now));
    let ready = media::offload(move || services.accept(order, id, &name, now).map_err(refused))
        .await
        .map_err(|_panic| ApiError::new(ErrorCode::Internal, "see the log"))??;
    if ready.recipe.delivery == Delivery::Media {
        api.services.check_medium(&ready.recipe).await.map_err(refused)?;
    }
    Ok(ready.run)
}

/// The order of an ended job in the new batch, or why it cannot be repeated.
async fn order(
    api: &Api,
    id: RunId,
    batch: &Batch,
    index: usize,
) -> Result<Result<JobOrder, ApiError>, ApiError> {
    let gone = || ApiError::new(ErrorCode::ConflictInput, "the job is no installation, or it was deleted");
    let (job, snapshot) = (api.store().job(id).await?, api.store().snapshot(id).await?);
    let Some((job, snapshot)) = job.filter(|job| job.provision.is_some()).zip(snapshot) else {
        return Ok(Err(gone()));
    };
    let idempotency = batch.idempotency_key.as_ref().map(|key| Idempotency {
        key: format!("{key}#{id}"),
        request_sha256: hex::encode(Sha256::digest(format!("retry {id}"))),
    });
    Ok(match JobOrder::retry_of(&job, &snapshot, idempotency) {
        Ok(order) => Ok(JobOrder {
            batch: Some((batch.id, batch.max_parallel)),
            canary: index < batch.canary as usize,
            rounds: batch.rounds(),
            ..order
        }),
        Err(why) => Err(ApiError::new(ErrorCode::ConflictInput, why.to_string())),
    })
}
