//! `GET /api/v1/jobs/{id}/media`: what was read of the images of a job.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanRead, JobPath, unknown_job};
use super::super::openapi::types;
use model::{RunId, StoredGrant, Time};
use telemetry::request_span;

/// What was read of the images of a job.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MediaReads")]
pub(crate) struct MediaReadsView {
    #[schemars(with = "types::JobId")]
    job_id: RunId,
    /// One row per use of an image, the oldest first.
    media: Vec<MediaRead>,
}

/// What was read of one image.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MediaRead {
    /// `boot`, `task` or `firmware`.
    image: &'static str,
    /// SHA-256 of the image.
    #[schemars(with = "types::Sha256")]
    sha256: String,
    /// The length of the image in bytes.
    size: u64,
    /// The bytes that were sent; those that were sent twice count twice.
    bytes: u64,
    /// When the image was first served.
    #[schemars(with = "types::Timestamp")]
    since: Time,
    /// When the first range was read.
    #[schemars(with = "Option<types::Timestamp>")]
    first_read_at: Option<Time>,
    /// When the boot record was first read.
    #[schemars(with = "Option<types::Timestamp>")]
    boot_read_at: Option<Time>,
    /// When the last range was read.
    #[schemars(with = "Option<types::Timestamp>")]
    last_read_at: Option<Time>,
    /// When the image was no longer served.
    #[schemars(with = "Option<types::Timestamp>")]
    ended_at: Option<Time>,
}

impl From<StoredGrant> for MediaRead {
    fn from(stored: StoredGrant) -> Self {
        let StoredGrant { grant, ended_at, reads, .. } = stored;
        Self {
            image: grant.artifact.as_str(),
            sha256: grant.sha256,
            size: grant.size,
            bytes: reads.bytes,
            since: grant.created_at,
            first_read_at: reads.first_read_at,
            boot_read_at: reads.boot_read_at,
            last_read_at: reads.last_read_at,
            ended_at,
        }
    }
}

/// Shows what was read of the images of a job.
pub(crate) async fn media(
    State(api): State<Api>,
    _reader: CanRead,
    JobPath(id): JobPath,
) -> Result<Json<MediaReadsView>, ApiError> {
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    request_span::about(&job);
    let media = api.store().grants(id).await?.into_iter().map(MediaRead::from).collect();
    Ok(Json(MediaReadsView { job_id: id, media }))
}
