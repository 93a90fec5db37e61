//! A job as the API shows it: the public view of a run of any workflow, with the record that only provisioning has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::batch::BatchId;
use super::ids::{RunId, Serial};
use super::names::StepName;
use super::run::{Outcome, Run};
use super::transition::Phase;

/// The workflow that installs a server. Its jobs have the five states of docs/seeds.md S000-23.
pub const PROVISION: &str = "provision";

/// The public state of a job.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr, strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum JobStatus {
    /// No worker has claimed the run yet.
    Queued,
    /// An installation, from the first claim to a known outcome.
    Provisioning,
    /// A job of another workflow, from the first claim to a known outcome.
    Running,
    /// The job succeeded; the cleanup is in progress.
    Succeeded,
    /// The job failed or was cancelled; the cleanup is in progress.
    Failed,
    /// The cleanup has ended; see the outcome.
    Complete,
}

impl JobStatus {
    /// All states, in order.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Provisioning, Self::Running, Self::Succeeded, Self::Failed, Self::Complete];

    /// The state's name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The state of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// The public state that follows from workflow, phase and outcome of the run (docs/architecture.md).
    pub fn of(workflow: &str, phase: Phase, outcome: Option<Outcome>) -> Self {
        match (phase, outcome) {
            (Phase::Queued, _) => Self::Queued,
            (Phase::Running | Phase::Waiting | Phase::Held, _) if workflow == PROVISION => Self::Provisioning,
            (Phase::Running | Phase::Waiting | Phase::Held, _) => Self::Running,
            (Phase::Unwinding | Phase::Finishing, Some(Outcome::Succeeded)) => Self::Succeeded,
            (Phase::Unwinding | Phase::Finishing, _) => Self::Failed,
            (Phase::Ended, _) => Self::Complete,
        }
    }
}

/// A run with the labels and links that its caller attached to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The run of the job.
    pub run: Run,
    /// The public state.
    pub status: JobStatus,
    /// The operator's labels.
    pub labels: BTreeMap<String, String>,
    /// The ended job that this job repeats.
    pub retry_of: Option<RunId>,
    /// The batch to which the job belongs.
    pub batch: Option<BatchId>,
    /// The cleanup steps that failed.
    pub cleanup_remaining: Vec<StepName>,
    /// The record that only a job of the workflow [`PROVISION`] has.
    pub provision: Option<ProvisionRecord>,
}

impl Job {
    /// The step that failed, or the unit that the installation report named.
    pub fn failed_step(&self) -> Option<&StepName> {
        self.run.failure.as_ref().map(|failure| &failure.step)
    }
}

/// The row of the `jobs` table: what only a provisioning run has (docs/seeds.md S000-41).
#[derive(Clone, Debug, PartialEq)]
pub struct ProvisionRecord {
    /// The serial number of the server.
    pub server: Serial,
    /// The `$id` of the recipe's schema.
    pub recipe_schema_id: String,
    /// SHA-256 of the task image, once it is known.
    pub task_iso_sha256: Option<String>,
    /// The path of the copy of the task image, if one was written.
    pub task_iso_path: Option<String>,
    /// The source of the maintenance image.
    pub maintenance_iso_url: String,
    /// SHA-256 of the job's own report token.
    pub report_token_hash: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_and_outcome_has_its_public_state() {
        for workflow in [PROVISION, "diagnostics"] {
            let status = |phase, outcome| JobStatus::of(workflow, phase, outcome);
            let active = if workflow == PROVISION { JobStatus::Provisioning } else { JobStatus::Running };
            assert_eq!(status(Phase::Queued, None), JobStatus::Queued);
            for phase in [Phase::Running, Phase::Waiting, Phase::Held] {
                assert_eq!(status(phase, None), active);
            }
            assert_eq!(status(Phase::Finishing, Some(Outcome::Succeeded)), JobStatus::Succeeded);
            assert_eq!(status(Phase::Finishing, Some(Outcome::Cancelled)), JobStatus::Failed);
            assert_eq!(status(Phase::Ended, Some(Outcome::Failed)), JobStatus::Complete);
        }
    }
}
