//! A job as the API shows it (docs/seeds.md S000-8): the public view of a `provision` run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::batch::BatchId;
use super::ids::{RunId, Serial};
use super::run::{Outcome, Run};
use super::transition::Phase;

/// The five public states of a job (docs/seeds.md S000-23).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr, strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum JobStatus {
    /// No worker has claimed the run yet.
    Queued,
    /// From the first claim to a known outcome.
    Provisioning,
    /// The installation succeeded; the cleanup is in progress.
    Succeeded,
    /// The job failed or was cancelled; the cleanup is in progress.
    Failed,
    /// The cleanup has ended; see the outcome.
    Complete,
}

impl JobStatus {
    /// All states, in order.
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Provisioning, Self::Succeeded, Self::Failed, Self::Complete];

    /// The state's name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The state of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// The public state that follows from the phase and the outcome of the run (docs/architecture.md).
    pub fn of(phase: Phase, outcome: Option<Outcome>) -> Self {
        match (phase, outcome) {
            (Phase::Queued, _) => Self::Queued,
            (Phase::Running | Phase::Waiting | Phase::Held, _) => Self::Provisioning,
            (Phase::Unwinding | Phase::Finishing, Some(Outcome::Succeeded)) => Self::Succeeded,
            (Phase::Unwinding | Phase::Finishing, _) => Self::Failed,
            (Phase::Ended, _) => Self::Complete,
        }
    }
}

/// The row of a job, joined with its run.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The run of the job.
    pub run: Run,
    /// The serial number of the server.
    pub server: Serial,
    /// The public state.
    pub status: JobStatus,
    /// The step that failed, or the unit that the installation report named.
    pub failed_step: Option<String>,
    /// The `$id` of the recipe's schema.
    pub recipe_schema_id: String,
    /// SHA-256 of the task image, once it is known.
    pub task_iso_sha256: Option<String>,
    /// The path of the copy of the task image, if one was written.
    pub task_iso_path: Option<String>,
    /// The source of the maintenance image.
    pub maintenance_iso_url: String,
    /// SHA-256 of the job's own report token.
    pub webhook_token_hash: String,
    /// The operator's labels.
    pub labels: Value,
    /// The ended job that this job repeats.
    pub retry_of: Option<RunId>,
    /// The batch to which the job belongs.
    pub batch: Option<BatchId>,
    /// The cleanup steps that failed.
    pub cleanup_remaining: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_and_outcome_has_its_public_state() {
        assert_eq!(JobStatus::of(Phase::Queued, None), JobStatus::Queued);
        for phase in [Phase::Running, Phase::Waiting, Phase::Held] {
            assert_eq!(JobStatus::of(phase, None), JobStatus::Provisioning);
        }
        assert_eq!(JobStatus::of(Phase::Finishing, Some(Outcome::Succeeded)), JobStatus::Succeeded);
        assert_eq!(JobStatus::of(Phase::Finishing, Some(Outcome::Cancelled)), JobStatus::Failed);
        assert_eq!(JobStatus::of(Phase::Ended, Some(Outcome::Failed)), JobStatus::Complete);
    }
}
