//! `/api/v1/worker-tokens`: the tokens of workers elsewhere, and the workers that use them. The text of a token is in the response
//! to its creation and nowhere else.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use secrecy::ExposeSecret;
use serde::Serialize;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanAdminister, JsonBody};
use super::super::openapi::types;
use super::super::request_audit;
use super::{NamePath, accounts};
use access::accounts::{NewWorkerToken, WorkerTokenView};
use model::Time;

/// All tokens of workers, and the workers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WorkerTokenPage {
    tokens: Vec<WorkerTokenView>,
    /// The workers that this controller has heard of since its start, within the last hour.
    workers: Vec<WorkerView>,
    /// Always null: all tokens are in one page.
    next: Option<String>,
}

/// A worker elsewhere.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Worker")]
pub(crate) struct WorkerView {
    /// The name of its token.
    token: String,
    /// The name of its process, as leases show it after the token.
    process: String,
    /// The queues that it serves.
    queues: BTreeSet<String>,
    /// The version of its program.
    version: String,
    /// When it first connected to this controller.
    #[schemars(with = "types::Timestamp")]
    since: Time,
    /// When its last request arrived.
    #[schemars(with = "types::Timestamp")]
    last_seen_at: Time,
}

/// The token of a worker with its text.
#[derive(Serialize, JsonSchema)]
pub(crate) struct IssuedWorkerToken {
    #[serde(flatten)]
    view: WorkerTokenView,
    /// The text of the token. It is stored as a hash and not shown again.
    token: String,
}

/// `GET /api/v1/worker-tokens`.
pub(crate) async fn list(
    State(api): State<Api>,
    _admin: CanAdminister,
) -> Result<Json<WorkerTokenPage>, ApiError> {
    let tokens = accounts(&api).worker_tokens().await?;
    let workers = api.workers.all().into_iter().map(|(worker, last_seen_at)| WorkerView {
        token: worker.token.clone(),
        process: worker.process.clone(),
        queues: worker.queues.clone(),
        version: worker.version.clone(),
        since: worker.since,
        last_seen_at,
    });
    Ok(Json(WorkerTokenPage { tokens, workers: workers.collect(), next: None }))
}

/// `POST /api/v1/worker-tokens`.
pub(crate) async fn create(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    body: JsonBody,
) -> Result<(StatusCode, Json<IssuedWorkerToken>), ApiError> {
    let new: NewWorkerToken = body.read()?;
    request_audit::target("worker-token", &new.name);
    let (view, text) = accounts(&api).create_worker_token(new, &principal.name, api.now()).await?;
    let token = text.expose_secret().to_owned();
    Ok((StatusCode::CREATED, Json(IssuedWorkerToken { view, token })))
}

/// `DELETE /api/v1/worker-tokens/{name}`: the token is refused with the next request.
pub(crate) async fn revoke(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    NamePath(name): NamePath,
) -> Result<StatusCode, ApiError> {
    let revoked = accounts(&api).revoke_worker_token(&name, &principal.name, api.now()).await?;
    api.workers.revoked(&revoked.token_id);
    Ok(StatusCode::NO_CONTENT)
}
