//! A job as seed 000 shows it: the public view of a `provision` run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::batch::BatchId;
use super::ids::{RunId, Serial};
use super::run::{Outcome, Run};
use super::transition::Phase;

/// Seed 000's five states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// Not yet picked.
    Queued,
    /// From the first claim to a known outcome.
    Provisioning,
    /// The maintenance OS reported success; cleanup is under way.
    Succeeded,
    /// It failed or was cancelled; cleanup is under way.
    Failed,
    /// Cleanup is over; see the outcome.
    Complete,
}

impl JobStatus {
    /// All states, in order.
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Provisioning, Self::Succeeded, Self::Failed, Self::Complete];

    /// The state's name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Provisioning => "provisioning",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Complete => "complete",
        }
    }

    /// The state of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// The projection of the engine's phase and outcome (DESIGN section 5).
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

/// A job's row joined with its run.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The run behind it.
    pub run: Run,
    /// The server's serial.
    pub server: Serial,
    /// The public state.
    pub status: JobStatus,
    /// The step or unit that failed.
    pub failed_step: Option<String>,
    /// The `$id` of the recipe's schema.
    pub recipe_schema_id: String,
    /// SHA-256 of the task image, once it is known.
    pub task_iso_sha256: Option<String>,
    /// Where the task image was also written.
    pub task_iso_path: Option<String>,
    /// Where the maintenance ISO comes from.
    pub maintenance_iso_url: String,
    /// SHA-256 of the job's own report token.
    pub webhook_token_hash: String,
    /// Operator's labels.
    pub labels: Value,
    /// The ended job it tries again.
    pub retry_of: Option<RunId>,
    /// The batch it was ordered with.
    pub batch: Option<BatchId>,
    /// The cleanup steps that gave up.
    pub cleanup_remaining: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_and_outcome_has_the_public_state_of_the_design() {
        assert_eq!(JobStatus::of(Phase::Queued, None), JobStatus::Queued);
        for phase in [Phase::Running, Phase::Waiting, Phase::Held] {
            assert_eq!(JobStatus::of(phase, None), JobStatus::Provisioning);
        }
        assert_eq!(JobStatus::of(Phase::Finishing, Some(Outcome::Succeeded)), JobStatus::Succeeded);
        assert_eq!(JobStatus::of(Phase::Finishing, Some(Outcome::Cancelled)), JobStatus::Failed);
        assert_eq!(JobStatus::of(Phase::Ended, Some(Outcome::Failed)), JobStatus::Complete);
    }
}
