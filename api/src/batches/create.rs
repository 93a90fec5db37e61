//! `POST /api/v1/batches`.
//!
//! ```text
//!  rows --chunks of 500, each row validated--> runs --> one transaction each --> a result per row, in the order of the rows
//!                                                      (a refused row does not affect the others)
//! ```
//! A chunk is validated while the one before it is written.
//!
//! A batch with an idempotency key can be sent again after a crash or a lost response: rows whose jobs exist are found, the
//! jobs of the other rows are created.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanWrite, JsonBody};
use super::super::jobs::{
    JobRequest, LAST_ROW, MAX_LABELS, created_job, find_replay, idempotency_key, refused,
    with_server_resources,
};
use super::super::openapi::types;
use super::super::request_audit;
use super::view::{BatchView, CreatedBatchView, RowResult, RowView};
use access::auth::Principal;
use model::{Batch, BatchId, BatchStop, BatchStopReason, MAX_CANARIES, NewRun, RunId, Serial, Time};
use provision::JobOrder;
use recipe::{Delivery, Recipe};
use store::CreatedBatch;

/// The maximum of rows in one request.
const MAX_ROWS: usize = 10_000;
const _: () =
    assert!(MAX_ROWS == 10_usize.pow(LAST_ROW.len() as u32 - 1), "the last row has the longest key");
/// The refused rows with all of their problems; the further ones have their first problem. All problems of all rows would be a response
/// that clients refuse to read.
const DETAILED_ROWS: usize = 100;
/// Rows written in one transaction.
pub(super) const CHUNK: usize = 500;

/// A batch to create. The other fields are the defaults of the rows.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "BatchRequest")]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// One job per row.
    #[schemars(length(min = 1, max = MAX_ROWS))]
    rows: Vec<JobRequest>,
    /// The recipe of every row without one.
    #[schemars(with = "Option<types::Recipe>")]
    recipe: Option<Box<RawValue>>,
    /// The image to boot of every row without one.
    maintenance_iso_url: Option<String>,
    /// The labels of every row without labels.
    #[schemars(with = "Option<BTreeMap<String, String>>", extend("maxProperties" = MAX_LABELS))]
    labels: Option<serde_json::Map<String, Value>>,
    /// The priority of every row without one.
    #[schemars(range(min = -100, max = 100))]
    priority: Option<i32>,
    /// The maximum of jobs of the batch that run at once.
    #[schemars(range(min = 1))]
    max_parallel: Option<u32>,
    /// The number of rows, from the first, whose jobs must succeed before the others start.
    #[serde(default)]
    #[schemars(range(max = MAX_CANARIES))]
    canary: u32,
    /// The number of failed jobs after which no further job starts until an operator continues the batch.
    #[schemars(range(min = 1))]
    stop_after: Option<u32>,
    /// A job that has not ended by then fails, also while its machine installs.
    #[schemars(with = "Option<types::Timestamp>")]
    deadline: Option<Time>,
}

/// A validated row before anything is written: id and server of its new job, or the refusal.
type Row = Result<(RunId, Serial), ApiError>;

/// Validated rows, and the runs to create for them, in the order of the rows.
struct PreparedChunk {
    /// Each row's index, its serial number as it was sent, its order in a batch that was sent before, and the row.
    rows: Vec<(usize, Option<String>, Option<JobOrder>, Row)>,
    runs: Vec<NewRun>,
}

/// Creates a batch. The jobs that the response counts as accepted are durable.
pub(crate) async fn create(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<(StatusCode, Json<CreatedBatchView>), ApiError> {
    let key = idempotency_key(&headers)?;
    let request: Request = body.read()?;
    let replayed = match &key {
        Some(key) => api.store().batch_of_key(key).await?.is_some(),
        None => false,
    };
    check(&request, api.now(), replayed)?;
    let (batch, is_new) = register(&api, &principal, &request, key, &body).await?;
    let mut results = Vec::with_capacity(request.rows.len());
    let mut rows = request.rows.into_iter().enumerate().map(|(index, row)| {
        let (labels, priority) = (&request.labels, request.priority);
        (index, row.or(&request.recipe, &request.maintenance_iso_url, labels, priority, request.deadline))
    });
    let mut prepare_next = async || match rows.by_ref().take(CHUNK).collect::<Vec<_>>() {
        none if none.is_empty() => Ok(None),
        chunk => prepare(&api, &principal, &batch, is_new, chunk).await.map(Some),
    };
    let mut next = prepare_next().await?;
    while let Some(chunk) = next {
        let (written, prepared) = tokio::join!(write(&api, chunk), prepare_next());
        results.extend(written?);
        next = prepared?;
    }
    let mut refused = 0;
    for row in results.iter_mut().filter(|row| row.result == RowResult::Refused) {
        refused += 1;
        if let (true, Some(error)) = (refused > DETAILED_ROWS, &mut row.error) {
            error.keep_details(1);
        }
    }
    // The response shows the gate after the last row.
    let batch = api.store().batch_filled(batch.id, api.now()).await?.unwrap_or(batch);
    let response = CreatedBatchView {
        batch: BatchView::of(&batch, &api.store().batch_counts(batch.id).await?),
        accepted: results.len() - refused,
        refused,
        superseded: 0,
        rows: results,
    };
    Ok((if is_new { StatusCode::ACCEPTED } else { StatusCode::OK }, Json(response)))
}

/// Checks a request. A replayed batch is not refused for a deadline that has passed since its first request.
fn check(request: &Request, now: Time, replayed: bool) -> Result<(), ApiError> {
    let mut wrong = Vec::new();
    if request.rows.is_empty() || request.rows.len() > MAX_ROWS {
        wrong.push(Detail::new("/rows", Rule::Length, format!("a batch has 1 to {MAX_ROWS} rows")));
    }
    if request.max_parallel == Some(0) {
        wrong.push(Detail::new("/max_parallel", Rule::Range, "max_parallel is at least 1"));
    }
    wrong.extend(wrong_limits(request.canary, request.stop_after));
    if !replayed && request.deadline.is_some_and(|deadline| deadline <= now) {
        wrong.push(Detail::new("/deadline", Rule::Range, "the deadline has passed"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(ApiError::invalid(wrong)) }
}

/// Returns the faults of the limits of a batch that stops.
pub(super) fn wrong_limits(canary: u32, stop_after: Option<u32>) -> Vec<Detail> {
    let mut wrong = Vec::new();
    if canary > MAX_CANARIES {
        wrong.push(Detail::new("/canary", Rule::Range, format!("canary is at most {MAX_CANARIES}")));
    }
    if stop_after == Some(0) {
        wrong.push(Detail::new("/stop_after", Rule::Range, "stop_after is at least 1"));
    }
    wrong
}

/// Stores the batch, or finds the batch of an earlier request with the same key.
async fn register(
    api: &Api,
    principal: &Principal,
    request: &Request,
    key: Option<String>,
    body: &JsonBody,
) -> Result<(Batch, bool), ApiError> {
    let batch = Batch {
        id: BatchId(api.engine.id_source().new_id(api.now())),
        idempotency_key: key,
        request_sha256: hex::encode(Sha256::digest(&body.0)),
        total: u32::try_from(request.rows.len()).unwrap_or(u32::MAX),
        max_parallel: request.max_parallel,
        canary: request.canary,
        stop_after: request.stop_after,
        retry_of: None,
        stop: None,
        filled_at: None,
        created_by: principal.name.clone(),
        created_at: api.now(),
    };
    request_audit::target("batch", &batch.id.to_string());
    store(api, batch).await
}

/// Stores a batch. Returns it, and whether it is new.
pub(super) async fn store(api: &Api, batch: Batch) -> Result<(Batch, bool), ApiError> {
    match api.store().create_batch(batch.clone()).await? {
        CreatedBatch::New => {
            let since = batch.created_at;
            let closed = BatchStop { reason: BatchStopReason::Canary, since, failures: 0 };
            let stop = (batch.canary > 0).then_some(closed);
            Ok((Batch { stop, ..batch }, true))
        }
        CreatedBatch::Replay(earlier) => Ok((earlier, false)),
        CreatedBatch::KeyReused(id) => Err(ApiError::new(
            ErrorCode::IdempotencyKeyReused,
            format!("this idempotency key belongs to another request, batch {id}; take a new key"),
        )),
    }
}

/// Validates rows.
async fn prepare(
    api: &Api,
    principal: &Principal,
    batch: &Batch,
    is_new: bool,
    chunk: Vec<(usize, JobRequest)>,
) -> Result<PreparedChunk, ApiError> {
    let now = api.now();
    let serials = chunk.iter().filter_map(|(_, row)| row.server_serial.as_deref()?.parse().ok()).collect();
    let resources = api.store().resources_of(serials).await?;
    let (services, batch, name) = (api.services.clone(), batch.clone(), principal.name.clone());
    let id_source = Arc::clone(api.engine.id_source());
    // Validation of hundreds of recipes takes CPU time, so it runs outside of the threads that serve requests.
    let (mut rows, mut runs, on_media) = media::offload(move || {
        let mut runs: Vec<NewRun> = Vec::new();
        let mut on_media: Vec<(RunId, Recipe)> = Vec::new();
        let prepare = |(index, request): (usize, JobRequest)| {
            let shown_serial = request.server_serial.clone();
            let key = batch.idempotency_key.as_ref().map(|key| format!("{key}#{index}"));
            let order = request.order(key).map(|order| {
                let resources = resources.get(&order.server_serial);
                JobOrder {
                    batch: Some((batch.id, batch.max_parallel)),
                    canary: index < batch.canary as usize,
                    rounds: batch.rounds(),
                    ..with_server_resources(order, resources)
                }
            });
            let replay = order.as_ref().ok().filter(|_| !is_new).cloned();
            let row: Row = order.and_then(|order| {
                let serial = order.server_serial.clone();
                let ready =
                    services.accept(order, RunId(id_source.new_id(now)), &name, now).map_err(refused)?;
                let id = ready.run.id;
                runs.push(ready.run);
                if ready.recipe.delivery == Delivery::Media {
                    on_media.push((id, ready.recipe));
                }
                Ok((id, serial))
            });
            (index, shown_serial, replay, row)
        };
        let rows: Vec<_> = chunk.into_iter().map(prepare).collect();
        (rows, runs, on_media)
    })
    .await
    .map_err(|_panic| ApiError::new(ErrorCode::Internal, "see the log"))?;
    for (id, recipe) in on_media {
        let Err(why) = api.services.check_medium(&recipe).await else { continue };
        runs.retain(|run| run.id != id);
        let is = |row: &Row| matches!(row, Ok((made, _)) if *made == id);
        if let Some((.., row)) = rows.iter_mut().find(|(.., row)| is(row)) {
            *row = Err(refused(why));
        }
    }
    Ok(PreparedChunk { rows, runs })
}

/// Creates the jobs of rows, and returns the results of the rows.
async fn write(api: &Api, chunk: PreparedChunk) -> Result<Vec<RowView>, ApiError> {
    let mut outcomes = api.engine.create_many(chunk.runs).await?.into_iter();
    let mut results = Vec::with_capacity(chunk.rows.len());
    for (index, shown_serial, replay, row) in chunk.rows {
        let created = match (row, replay) {
            (Ok((id, serial)), _) => match outcomes.next() {
                Some(created) => created_job(id, &serial, &created),
                None => Err(ApiError::new(ErrorCode::Internal, "see the log")),
            },
            // Refused now, but perhaps accepted by the first request.
            (Err(why), Some(order)) => match find_replay(api, &order).await? {
                Some(earlier) => created_job(RunId::new(), &order.server_serial, &earlier),
                None => Err(why),
            },
            (Err(why), None) => Err(why),
        };
        let (job_id, result, error) = match created {
            Ok((id, true)) => (Some(id), RowResult::Accepted, None),
            Ok((id, false)) => (Some(id), RowResult::Exists, None),
            Err(why) => (None, RowResult::Refused, Some(why.body())),
        };
        results.push(RowView { index, server_serial: shown_serial, job_id, result, error });
    }
    Ok(results)
}
