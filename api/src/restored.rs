//! `GET /api/v1/restored`, `POST /api/v1/restored/release`: the servers of restored data, and their release all at once
//! (decision D26).

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Api;
use super::error::{ApiError, Detail};
use super::error_code::Rule;
use super::extract::{CanRead, CanWrite, JsonBody};
use super::openapi::types;
use model::{Restoration, RestoredServer, RunId, Serial, UnfinishedRuns};
use store::ReleasedServer;

/// What happens to the unfinished jobs of a released server.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum JobsDecision {
    /// The jobs continue where the data says they were.
    Continue,
    /// The jobs end at once, and nothing is sent to the BMC.
    End,
}

impl From<JobsDecision> for UnfinishedRuns {
    fn from(decision: JobsDecision) -> Self {
        match decision {
            JobsDecision::Continue => Self::Continue,
            JobsDecision::End => Self::End,
        }
    }
}

/// The servers to which nothing is done because their data was restored.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RestoredServers")]
pub(super) struct RestoredList {
    servers: Vec<RestoredEntry>,
}

/// A server that is not released.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RestoredServer")]
struct RestoredEntry {
    #[schemars(with = "types::SerialNumber")]
    serial: Serial,
    #[schemars(with = "types::Restoration")]
    restored: Restoration,
    /// The jobs that have not ended in the data.
    #[schemars(with = "Vec<types::JobId>")]
    jobs: Vec<RunId>,
}

impl From<RestoredServer> for RestoredEntry {
    fn from(server: RestoredServer) -> Self {
        Self { serial: server.serial, restored: server.restoration, jobs: server.unfinished }
    }
}

/// The release of all servers.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ReleaseAll")]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseAll {
    /// The operator's confirmation that no other controller uses this data or its servers: `true`.
    old_controller_is_off: bool,
    /// What happens to unfinished jobs. Without it, only servers without unfinished jobs are released.
    #[serde(default)]
    jobs: Option<JobsDecision>,
}

/// The result of a release of all servers.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReleasedServers")]
pub(super) struct ReleasedAll {
    #[schemars(with = "Vec<types::SerialNumber>")]
    released: Vec<Serial>,
    /// The servers whose unfinished jobs need a decision.
    left: Vec<RestoredEntry>,
}

/// Removes the pins of OS images of runs that a release has ended: their cleanup, which does it otherwise, does not run.
pub(super) async fn unpin(api: &Api, decision: Option<UnfinishedRuns>, runs: &[RunId]) {
    if decision != Some(UnfinishedRuns::End) {
        return;
    }
    for run in runs {
        if let Err(why) = api.services.images.release(&run.to_string()).await {
            // The span has all ids of the job when its row can be read.
            let job = api.store().job(*run).await.ok().flatten();
            let span = job.map_or_else(
                || tracing::error_span!("job", job_id = %run, worker_id = api.engine.owner()),
                |job| store::job_span(&job.run, api.engine.owner()),
            );
            span.in_scope(
                || tracing::warn!(%why, "the OS image of an ended job stays pinned in the registry"),
            );
        }
    }
}

/// Lists the servers that are not released.
pub(super) async fn list(State(api): State<Api>, _reader: CanRead) -> Result<Json<RestoredList>, ApiError> {
    let servers = api.store().restored_servers().await?;
    Ok(Json(RestoredList { servers: servers.into_iter().map(RestoredEntry::from).collect() }))
}

/// Releases all servers, after the operator has confirmed that the old controller is off.
pub(super) async fn release_all(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    body: JsonBody,
) -> Result<Json<ReleasedAll>, ApiError> {
    let request: ReleaseAll = body.read()?;
    if !request.old_controller_is_off {
        return Err(ApiError::invalid(vec![Detail::new(
            "/old_controller_is_off",
            Rule::Shape,
            "must be true: two controllers on one machine interrupt each other's installations; stop the old controller first",
        )]));
    }
    let mut released = Vec::new();
    for server in api.store().restored_servers().await? {
        let decision = request.jobs.map(UnfinishedRuns::from);
        let outcome = api.engine.release_server(&server.serial, decision, &principal.name, api.now()).await?;
        if let ReleasedServer::Released(runs) = outcome {
            unpin(&api, decision, &runs).await;
            released.push(server.serial);
        }
    }
    let left = api.store().restored_servers().await?.into_iter().map(RestoredEntry::from).collect();
    Ok(Json(ReleasedAll { released, left }))
}
