//! `POST /api/v1/batches`.
//!
//! ```text
//!  rows --each validated--> orders --chunks of 500--> one transaction each --> a result per row, in the order of the rows
//!                                                     (a row is refused for itself; the others stand)
//! ```
//!
//! A batch under an idempotency key can be handed in again after a crash or a lost answer: rows that were made are found,
//! the others are made.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::extract::{Body, Writer};
use super::super::jobs::{JobRequest, earlier, idempotency_key, made, placed, refused};
use super::view;
use crate::auth::Principal;
use engine::model::{Batch, BatchId, NewRun, RunId, Serial, Time};
use engine::store::CreatedBatch;
use provision::JobOrder;

/// The most rows of one call.
const MAX_ROWS: usize = 10_000;
/// Rows written in one transaction.
const CHUNK: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    rows: Vec<JobRequest>,
    /// The recipe of every row that has none of its own.
    recipe: Option<Box<RawValue>>,
    maintenance_iso_url: Option<String>,
    labels: Option<serde_json::Map<String, Value>>,
    priority: Option<i32>,
    max_parallel: Option<u32>,
    deadline: Option<Time>,
}

/// What a row came to before anything was written: the job it would be, or why there is none.
type Row = Result<(RunId, Serial), ApiError>;

/// Accepts a batch: what the answer calls accepted is durable.
pub(in crate::api) async fn create(
    State(api): State<Api>,
    Writer(principal): Writer,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let key = idempotency_key(&headers)?;
    let request: Request = body.read()?;
    let replayed = match &key {
        Some(key) => api.store().batch_of_key(key).await?.is_some(),
        None => false,
    };
    check(&request, api.now(), replayed)?;
    let (batch, fresh) = register(&api, &principal, &request, key, &body).await?;
    let deadline = request.deadline.unwrap_or_else(|| usual_deadline(&api, &batch));
    let mut results = Vec::with_capacity(request.rows.len());
    let mut rows = request.rows.into_iter().enumerate().peekable();
    while rows.peek().is_some() {
        let chunk: Vec<(usize, JobRequest)> = rows
            .by_ref()
            .take(CHUNK)
            .map(|(index, row)| {
                let (labels, priority) = (&request.labels, request.priority);
                (index, row.or(&request.recipe, &request.maintenance_iso_url, labels, priority, deadline))
            })
            .collect();
        results.extend(one_chunk(&api, &principal, &batch, fresh, chunk).await?);
    }
    let mut answer = view::batch(&batch, &api.store().batch_counts(batch.id).await?);
    answer["accepted"] = json!(results.iter().filter(|row| row["job_id"].is_string()).count());
    answer["refused"] = json!(results.iter().filter(|row| row["job_id"].is_null()).count());
    answer["rows"] = json!(results);
    Ok((if fresh { StatusCode::ACCEPTED } else { StatusCode::OK }, Json(answer)))
}

/// A batch that was taken before is not refused because its deadline has passed since.
fn check(request: &Request, now: Time, replayed: bool) -> Result<(), ApiError> {
    let mut wrong = Vec::new();
    if request.rows.is_empty() || request.rows.len() > MAX_ROWS {
        wrong.push(Detail::new("/rows", "length", format!("a batch has 1 to {MAX_ROWS} rows")));
    }
    if request.max_parallel == Some(0) {
        wrong.push(Detail::new("/max_parallel", "range", "at least one job must be allowed to work"));
    }
    if !replayed && request.deadline.is_some_and(|deadline| deadline <= now) {
        wrong.push(Detail::new("/deadline", "range", "the deadline has passed already"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(ApiError::invalid(wrong)) }
}

/// Writes the batch down, or finds the one this request made earlier.
async fn register(
    api: &Api,
    principal: &Principal,
    request: &Request,
    key: Option<String>,
    body: &Body,
) -> Result<(Batch, bool), ApiError> {
    let batch = Batch {
        id: BatchId(api.engine.chance().id(api.now())),
        idempotency_key: key,
        request_sha256: hex::encode(Sha256::digest(&body.0)),
        total: u32::try_from(request.rows.len()).unwrap_or(u32::MAX),
        max_parallel: request.max_parallel,
        created_by: principal.name.clone(),
        created_at: api.now(),
    };
    match api.store().create_batch(batch.clone()).await? {
        CreatedBatch::New => Ok((batch, true)),
        CreatedBatch::Replay(earlier) => Ok((earlier, false)),
        CreatedBatch::KeyReused(id) => Err(ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            format!("this idempotency key belongs to another request, batch {id}; take a new key"),
        )),
    }
}

/// Every job has its usual time, and those that wait for others of the batch have theirs besides.
fn usual_deadline(api: &Api, batch: &Batch) -> Time {
    let rounds = batch.total.div_ceil(batch.max_parallel.unwrap_or(batch.total).max(1)).max(1);
    let job: Duration = api.site.settings.job_timeout;
    batch.created_at.plus(job.saturating_mul(rounds))
}

async fn one_chunk(
    api: &Api,
    principal: &Principal,
    batch: &Batch,
    fresh: bool,
    chunk: Vec<(usize, JobRequest)>,
) -> Result<Vec<Value>, ApiError> {
    let now = api.now();
    let serials = chunk.iter().filter_map(|(_, row)| row.server_serial.as_deref()?.parse().ok()).collect();
    let standing = api.store().resources_of(serials).await?;
    let (site, batch, name) = (api.site.clone(), batch.clone(), principal.name.clone());
    let chance = Arc::clone(api.engine.chance());
    // Validating hundreds of recipes is work: off the threads that answer others.
    let (prepared, runs) = media::offload(move || {
        let mut runs: Vec<NewRun> = Vec::new();
        let prepare = |(index, request): (usize, JobRequest)| {
            let shown = request.server_serial.clone();
            let key = batch.idempotency_key.as_ref().map(|key| format!("{key}#{index}"));
            let order = request.order(key).map(|order| {
                let standing = standing.get(&order.server_serial);
                JobOrder { batch: Some((batch.id, batch.max_parallel)), ..placed(order, standing) }
            });
            let again = order.as_ref().ok().filter(|_| !fresh).cloned();
            let row: Row = order.and_then(|order| {
                let serial = order.server_serial.clone();
                let ready = site.accept(order, RunId(chance.id(now)), &name, now).map_err(refused)?;
                let id = ready.run.id;
                runs.push(ready.run);
                Ok((id, serial))
            });
            (index, shown, again, row)
        };
        let rows: Vec<_> = chunk.into_iter().map(prepare).collect();
        (rows, runs)
    })
    .await
    .map_err(|_panic| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "see the log"))?;
    let mut created = api.engine.create_many(runs).await?.into_iter();
    let mut results = Vec::with_capacity(prepared.len());
    for (index, shown, again, row) in prepared {
        let made = match (row, again) {
            (Ok((id, serial)), _) => match created.next() {
                Some(created) => made(id, &serial, &created),
                None => Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "see the log")),
            },
            // Refused now, and perhaps made when the batch was new.
            (Err(why), Some(order)) => match earlier(api, &order).await? {
                Some(earlier) => made(RunId::new(), &order.server_serial, &earlier),
                None => Err(why),
            },
            (Err(why), None) => Err(why),
        };
        results.push(match made {
            Ok((id, fresh)) => json!({
                "index": index, "server_serial": shown, "job_id": id,
                "result": if fresh { "accepted" } else { "there_already" },
            }),
            Err(why) => json!({
                "index": index, "server_serial": shown, "job_id": null, "result": "refused", "error": why.body(),
            }),
        });
    }
    Ok(results)
}
