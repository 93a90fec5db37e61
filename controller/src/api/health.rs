//! `/healthz`, `/readyz`, `/metrics`.

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Api;
use super::error::ApiError;
use super::error_code::ErrorCode;
use super::extract::CanRead;
use crate::telemetry::RegistryGauges;
use engine::model::{JobStatus, error_chain};

/// With fewer free bytes on the data disk the controller is not ready.
const MIN_FREE: u64 = 256 << 20;

/// Liveness: the process responds.
pub(super) async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// Readiness: the database can be written, the data disk has space, the registry accepts pushes. The body names failed
/// checks.
pub(super) async fn readyz(State(api): State<Api>) -> Response {
    let database = match api.store().check().await {
        Ok(()) => json!({ "ok": true }),
        Err(error) => json!({ "ok": false, "message": error_chain(&error).to_string() }),
    };
    let disk = match free(&api.storage) {
        Ok(bytes) if bytes >= MIN_FREE => json!({ "ok": true, "free_bytes": bytes }),
        Ok(bytes) => {
            json!({ "ok": false, "free_bytes": bytes, "message": "the data disk has less than 256 MiB free" })
        }
        Err(error) => {
            json!({ "ok": false, "message": format!("the data directory cannot be checked: {error}") })
        }
    };
    let registry = match api.services.images.ready().await {
        Ok(()) => json!({ "ok": true }),
        Err(why) => json!({ "ok": false, "message": why.to_string() }),
    };
    let ready = [&database, &disk, &registry].iter().all(|check| check["ok"] == json!(true));
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = if ready { "ready" } else { "not ready" };
    (
        status,
        Json(
            json!({ "status": word, "checks": { "database": database, "disk": disk, "registry": registry } }),
        ),
    )
        .into_response()
}

fn free(path: &std::path::Path) -> Result<u64, rustix::io::Errno> {
    let room = rustix::fs::statvfs(path)?;
    Ok(room.f_bavail.saturating_mul(room.f_frsize))
}

/// Returns the metrics in the OpenMetrics text format.
pub(super) async fn metrics(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    if !api.settings.metrics_anonymous {
        let (mut parts, _) = request.into_parts();
        CanRead::from_request_parts(&mut parts, &api).await?;
    }
    let counts = api.store().job_counts().await?;
    for status in JobStatus::ALL {
        let jobs = counts.iter().find(|(counted, _)| *counted == status).map_or(0, |(_, jobs)| *jobs);
        api.metrics.set_jobs(status.as_str(), jobs);
    }
    // Without a readable registry status the other metrics are still returned; /readyz reports the problem.
    if let Some(registry) = &api.registry
        && let Ok(now) = registry.status().await
    {
        api.metrics.set_registry(&RegistryGauges {
            free_bytes: now.free_bytes,
            read_only: now.read_only.is_some(),
            pins: now.pins,
            quarantined: now.scrub.quarantined.len(),
            quotas: now
                .quotas
                .into_iter()
                .map(|quota| (quota.repositories, quota.limit_bytes, quota.used_bytes))
                .collect(),
        });
    }
    let text = api.metrics.encode().map_err(|_| {
        ApiError::new(ErrorCode::Internal, "the metrics could not be rendered")
    })?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
