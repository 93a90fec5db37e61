//! `/healthz`, `/readyz`, `/metrics`.

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Api;
use super::error::ApiError;
use super::extract::Reader;
use crate::telemetry::ImagesGauges;
use engine::model::{JobStatus, error_chain};

/// Below this much room on the data disk the controller is not ready for more work.
const ROOM: u64 = 256 << 20;

/// The process lives.
pub(super) async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// The process can do its work: the database can be written, the disk has room, the registry takes
/// images. Says what is wrong when not.
pub(super) async fn readyz(State(api): State<Api>) -> Response {
    let database = match api.store().check().await {
        Ok(()) => json!({ "ok": true }),
        Err(error) => json!({ "ok": false, "message": error_chain(&error).to_string() }),
    };
    let disk = match free(&api.storage) {
        Ok(bytes) if bytes >= ROOM => json!({ "ok": true, "free_bytes": bytes }),
        Ok(bytes) => {
            json!({ "ok": false, "free_bytes": bytes, "message": "less than 256 MiB left for data" })
        }
        Err(error) => {
            json!({ "ok": false, "message": format!("the data folder cannot be looked at: {error}") })
        }
    };
    let registry = match api.site.images.ready().await {
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

/// What is counted, in the OpenMetrics text format.
pub(super) async fn metrics(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    if !api.settings.metrics_anonymous {
        let (mut parts, _) = request.into_parts();
        Reader::from_request_parts(&mut parts, &api).await?;
    }
    let counts = api.store().job_counts().await?;
    for status in JobStatus::ALL {
        let jobs = counts.iter().find(|(counted, _)| *counted == status).map_or(0, |(_, jobs)| *jobs);
        api.metrics.set_jobs(status.as_str(), jobs);
    }
    // A registry that cannot be looked at is what /readyz tells of; the other numbers are given all the same.
    if let Some(images) = &api.images
        && let Ok(now) = images.status().await
    {
        api.metrics.set_images(&ImagesGauges {
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
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the metrics could not be written")
    })?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
