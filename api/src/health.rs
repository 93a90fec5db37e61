//! `/healthz`, `/readyz`, `/metrics`.

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::disks::{Room, on_another_disk};
use super::error::ApiError;
use super::error_code::ErrorCode;
use super::extract::CanRead;
use super::gauges;
use access::tls::TlsState;
use model::{JobStatus, error_chain};
use settings::descriptors::{self, DescriptorBudget};
use telemetry::{RegistryGauges, dropped_log_lines};

/// With fewer free bytes on the data disk the controller is not ready.
const MIN_FREE: u64 = 256 << 20;

/// The response of a running process.
#[derive(Serialize, JsonSchema)]
pub(super) struct Health {
    /// Always `ok`.
    status: &'static str,
    /// The version of the program.
    version: &'static str,
}

/// Whether the controller can do its work.
#[derive(Serialize, JsonSchema)]
pub(super) struct Readiness {
    /// `ready` or `not ready`.
    status: &'static str,
    checks: ReadinessChecks,
}

/// The checks of readiness.
#[derive(Serialize, JsonSchema)]
struct ReadinessChecks {
    database: ReadinessCheck,
    disk: ReadinessCheck,
    /// Fails when the process may open too few files and sockets.
    descriptors: ReadinessCheck,
    registry: ReadinessCheck,
    /// Fails while servers of restored data are not released.
    data: ReadinessCheck,
    /// Never fails: its message is a warning, such as that the last backup is old. Absent without `BACKUP_TARGET`.
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<ReadinessCheck>,
    /// Fails when a new certificate cannot be used, or the one in force has ended. Absent without TLS listeners.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<ReadinessCheck>,
}

/// A check of readiness.
#[derive(Default, Serialize, JsonSchema)]
struct ReadinessCheck {
    ok: bool,
    /// The free bytes of the disk; of the database only if its disk is another one than the data disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    free_bytes: Option<u64>,
    /// The age of the last backup in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<u64>,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl ReadinessCheck {
    fn passed() -> Self {
        Self { ok: true, ..Self::default() }
    }

    fn failed(message: String) -> Self {
        Self { message: Some(message), ..Self::default() }
    }
}

/// Liveness: the process responds.
pub(super) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// Readiness: the database can be written, its disk and the data disk have space, enough files can be opened, the registry accepts
/// pushes, no server of restored data waits for its release, and the certificate can be used. The body names failed checks.
pub(super) async fn readyz(State(api): State<Api>) -> Response {
    let database = match api.store().check().await {
        // The check changes one row, for which an almost full disk has room.
        Ok(()) => match on_another_disk(&api.database, &api.storage) {
            Some(folder) => room("the disk of the database (DB_PATH)", Room::of(folder)),
            None => ReadinessCheck::passed(),
        },
        Err(error) => ReadinessCheck::failed(error_chain(&error).to_string()),
    };
    let disk = room("the data disk", Room::of(&api.storage));
    let descriptors = match DescriptorBudget::of(descriptors::limit(), 0).problem() {
        None => ReadinessCheck::passed(),
        Some(problem) => ReadinessCheck::failed(problem.to_string()),
    };
    let registry = match api.services.images.ready().await {
        Ok(()) => ReadinessCheck::passed(),
        Err(why) => ReadinessCheck::failed(why.to_string()),
    };
    let data = match api.store().restored_count().await {
        Ok(None) => ReadinessCheck::passed(),
        Ok(Some((servers, restoration))) => ReadinessCheck::failed(format!(
            "{}; nothing is done to {servers} servers until an operator releases them: shoal controller restored",
            restoration.reason
        )),
        Err(error) => ReadinessCheck::failed(error_chain(&error).to_string()),
    };
    let tls = api.tls.as_ref().map(|certificates| tls_check(&certificates.state()));
    let checks =
        [Some(&database), Some(&disk), Some(&descriptors), Some(&registry), Some(&data), tls.as_ref()];
    let ready = checks.iter().flatten().all(|check| check.ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = if ready { "ready" } else { "not ready" };
    let readiness = Readiness {
        status: word,
        checks: ReadinessChecks {
            database,
            disk,
            descriptors,
            registry,
            data,
            backup: backup_check(&api),
            tls,
        },
    };
    (status, Json(readiness)).into_response()
}

/// Backups never make a controller not ready: it serves as well without them.
fn backup_check(api: &Api) -> Option<ReadinessCheck> {
    let status = api.backups.as_ref()?.status();
    status.target.as_ref()?;
    let failing = status.failure.as_ref().filter(|failure| failure.attempts > 1);
    let failing = failing.map(|failure| {
        format!("the last {} attempts to make a backup failed; see `shoal backup status`", failure.attempts)
    });
    // The target is not named here: this can be read without credentials.
    let message = failing
        .or_else(|| status.old.then(|| "the last backup is old; see `shoal backup status`".to_owned()));
    Some(ReadinessCheck { message, age_seconds: status.age_seconds, ..ReadinessCheck::passed() })
}

fn tls_check(state: &TlsState) -> ReadinessCheck {
    match (&state.trouble, state.until) {
        (Some(trouble), _) => ReadinessCheck::failed(trouble.clone()),
        (None, Some(until)) if state.ends_soon => {
            let message = format!("the certificate ends at {until}; replace it");
            ReadinessCheck { message: Some(message), ..ReadinessCheck::passed() }
        }
        (None, _) => ReadinessCheck::passed(),
    }
}

/// The check of the free space of a disk.
fn room(disk: &str, room: Result<Room, Errno>) -> ReadinessCheck {
    match room.map(|room| room.free) {
        Ok(bytes) if bytes >= MIN_FREE => {
            ReadinessCheck { free_bytes: Some(bytes), ..ReadinessCheck::passed() }
        }
        Ok(bytes) => ReadinessCheck {
            free_bytes: Some(bytes),
            ..ReadinessCheck::failed(format!("{disk} has less than 256 MiB free"))
        },
        Err(error) => ReadinessCheck::failed(format!("{disk} cannot be checked: {error}")),
    }
}

/// Returns the metrics in the OpenMetrics text format.
pub(super) async fn metrics(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    if !api.settings.metrics_anonymous {
        let (mut parts, _) = request.into_parts();
        CanRead::from_request_parts(&mut parts, &api).await?;
    }
    rendered_metrics(&api).await
}

/// The metrics of now in the OpenMetrics text format.
pub(super) async fn rendered_metrics(api: &Api) -> Result<Response, ApiError> {
    let counts = api.store().job_counts().await?;
    for status in JobStatus::ALL {
        let jobs = counts.iter().filter(|count| count.status == status).map(|count| count.jobs);
        api.metrics.set_jobs(status.as_str(), jobs.sum());
    }
    api.metrics.set_dropped_log_lines(dropped_log_lines());
    gauges::set(api).await?;
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
    let text = api
        .metrics
        .encode()
        .map_err(|_| ApiError::new(ErrorCode::Internal, "the metrics could not be rendered"))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_below_its_limit_or_that_cannot_be_checked_is_not_ready() {
        for (free, ok) in [(Ok(MIN_FREE), true), (Ok(MIN_FREE - 1), false), (Err(Errno::IO), false)] {
            let check = room("the data disk", free.map(|free| Room { free, size: free }));
            assert_eq!((check.ok, check.free_bytes), (ok, free.ok()));
            assert_eq!(check.message.is_some_and(|message| message.starts_with("the data disk ")), !ok);
        }
    }
}
