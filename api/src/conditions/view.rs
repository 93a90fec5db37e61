//! The JSON of a server condition.

use axum::http::{HeaderMap, HeaderValue, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::openapi::types;
use engine::Explanation;
use model::{Job, Outcome, Phase, RunId, Serial, Snapshot, Time};
use upkeep::{ConditionKind, UpkeepInput};

/// The state of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ServerConditionState")]
pub(crate) enum State {
    /// No worker has begun the condition.
    Pending,
    /// A worker has begun the condition, and the condition has not ended.
    Active,
    /// The condition ended without success, or was cancelled.
    Failed,
    /// The condition ended with success.
    Succeeded,
}

impl State {
    /// The state that follows from the run.
    pub(super) fn of(phase: Phase, outcome: Option<Outcome>) -> Self {
        match (phase, outcome) {
            (Phase::Queued, _) => Self::Pending,
            (Phase::Ended, Some(Outcome::Succeeded)) => Self::Succeeded,
            (Phase::Ended, _) => Self::Failed,
            _ => Self::Active,
        }
    }
}

/// An action requested for one server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerCondition")]
pub(crate) struct ConditionView {
    /// The id of the condition and of its job.
    #[schemars(with = "types::JobId")]
    pub(super) id: RunId,
    #[schemars(with = "types::SerialNumber")]
    server_serial: Serial,
    /// The kind, in the spelling that is stored.
    #[schemars(with = "String")]
    pub(super) kind: ConditionKind,
    pub(super) state: State,
    /// The parameters, with every default filled in. They never change.
    #[schemars(with = "types::Object")]
    parameters: Value,
    /// How far the condition is, and why.
    status: StatusView,
    /// The worker that works on the condition, or that worked on it last: a controller instance, or a worker elsewhere by its name
    /// (`worker/TOKEN/NAME-…`). Null before a worker has begun.
    controller: Option<String>,
    #[schemars(with = "types::Timestamp")]
    created_at: Time,
    #[schemars(with = "types::Timestamp")]
    updated_at: Time,
    /// The revision; it is the `ETag` too. It grows with every change.
    pub(super) revision: i64,
}

/// How far a condition is.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerConditionStatus")]
struct StatusView {
    /// What the condition waits for, does or did.
    message: String,
    /// What an operator can do.
    next_action: String,
    /// What ends the state.
    ends_by: String,
    /// The current or last step.
    step: Option<String>,
    /// The reason of a wait, or the class of a hold or failure.
    reason: Option<String>,
    /// The steps so far, each with its state.
    steps: Vec<StepView>,
    /// What the condition found, once it is known.
    #[schemars(with = "Option<types::Object>")]
    result: Option<Value>,
}

/// A step of a condition.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerConditionStep")]
struct StepView {
    name: String,
    /// What the step works on, such as a component of the firmware, when the condition runs the step for several things.
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<String>,
    /// The state of the step.
    #[schemars(with = "types::StepPhase")]
    phase: Value,
}

/// The newest condition of each kind.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerConditions")]
pub(crate) struct ConditionList {
    #[schemars(with = "types::SerialNumber")]
    pub(super) server_serial: Serial,
    pub(super) conditions: Vec<ConditionView>,
}

impl ConditionView {
    /// The condition of a job. Its server is that of the run.
    pub(super) async fn of(api: &Api, server: &Serial, job: &Job) -> Result<Self, ApiError> {
        let gone =
            || ApiError::new(ErrorCode::UnknownJob, "the condition was deleted by retention; read it again");
        let snapshot = api.store().snapshot(job.run.id).await?.ok_or_else(gone)?;
        let explanation = api.engine.explain(&snapshot).await?;
        Self::new(server, &snapshot, explanation)
    }

    fn new(server: &Serial, snapshot: &Snapshot, explanation: Explanation) -> Result<Self, ApiError> {
        let run = &snapshot.run;
        let input = UpkeepInput::deserialize(&*snapshot.input).map_err(|why| {
            ApiError::new(
                ErrorCode::ConflictInput,
                format!("the stored request of {} cannot be read: {why}", run.id),
            )
        })?;
        let steps = snapshot
            .steps
            .iter()
            .map(|record| StepView {
                name: record.name.to_string(),
                of: Some(record.key.trim_end_matches('/').to_owned()).filter(|key| !key.is_empty()),
                phase: json!(record.phase),
            })
            .collect();
        let results = snapshot.steps.iter().rev().map(|record| &record.output);
        let result = results.filter_map(|output| output.get("summary").map(|_| output.clone())).next();
        Ok(Self {
            id: run.id,
            server_serial: server.clone(),
            kind: input.action.kind(),
            state: State::of(run.phase, run.outcome),
            parameters: input.action.parameters(),
            status: StatusView {
                message: explanation.summary,
                next_action: explanation.next_action,
                ends_by: explanation.ends_by,
                step: explanation.step.map(|step| step.to_string()),
                reason: explanation.reason,
                steps,
                result,
            },
            controller: run.last_worker.clone(),
            created_at: run.created_at,
            updated_at: run.updated_at,
            revision: run.revision,
        })
    }

    /// The place in a list: open conditions first, then the newest ones.
    pub(super) fn order(&self) -> (bool, std::cmp::Reverse<Time>) {
        (matches!(self.state, State::Failed | State::Succeeded), std::cmp::Reverse(self.created_at))
    }

    /// The `ETag` of the condition.
    pub(super) fn etag(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", self.revision)) {
            headers.insert(header::ETAG, tag);
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_begins_pending_and_its_final_states_are_those_of_an_ended_run() {
        assert_eq!(State::of(Phase::Queued, None), State::Pending);
        for phase in [Phase::Running, Phase::Waiting, Phase::Held, Phase::Unwinding] {
            assert_eq!(State::of(phase, None), State::Active);
        }
        for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled] {
            assert_eq!(
                State::of(Phase::Finishing, Some(outcome)),
                State::Active,
                "the server is still locked"
            );
        }
        assert_eq!(State::of(Phase::Ended, Some(Outcome::Succeeded)), State::Succeeded);
        assert_eq!(State::of(Phase::Ended, Some(Outcome::Failed)), State::Failed);
        assert_eq!(State::of(Phase::Ended, Some(Outcome::Cancelled)), State::Failed);
    }
}
