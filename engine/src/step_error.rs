//! The error of a step: what ended the step before its goal. Code of a step returns it early, by `?`.
//!
//! ```text
//!   read, connect, send ... -- ? --> StepError { Wait | Retry | Fail, output } --> StepReport --> decide, commit
//! ```
//!
//! Invariant: [`StepReport::from`] is the only place where an error becomes a report; nothing of the error is lost there.

use std::fmt;

use serde_json::Value;

use super::workflow::{StepOutcome, StepReport, WaitRequest};
use model::Failure;

/// The end of a step before its goal, and the output that it leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct StepError {
    /// The wait, retry or failure that ended the step.
    pub end: Box<StepEnd>,
    /// The output for the next call of the step; `None` keeps the output of the previous call.
    pub output: Option<Value>,
}

/// The ways in which a step ends before its goal.
#[derive(Clone, Debug, PartialEq)]
pub enum StepEnd {
    /// Nothing can be done now; the run is parked.
    Wait(WaitRequest),
    /// The attempt failed; another one may succeed.
    Retry(Failure),
    /// The step failed for good.
    Fail(Failure),
}

impl StepError {
    /// The error of a step that must wait.
    pub fn wait(request: WaitRequest) -> Self {
        Self::new(StepEnd::Wait(request))
    }

    /// The error of an attempt that may be repeated.
    pub fn retry(failure: Failure) -> Self {
        Self::new(StepEnd::Retry(failure))
    }

    /// The error of a step that failed for good.
    pub fn fail(failure: Failure) -> Self {
        Self::new(StepEnd::Fail(failure))
    }

    fn new(end: StepEnd) -> Self {
        Self { end: Box::new(end), output: None }
    }

    /// Sets the output for the next call of the step.
    #[must_use]
    pub fn with_output(mut self, output: Value) -> Self {
        self.output = Some(output);
        self
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.end {
            StepEnd::Wait(request) => &request.detail,
            StepEnd::Retry(failure) | StepEnd::Fail(failure) => &failure.summary,
        })
    }
}

impl std::error::Error for StepError {}

impl From<StepError> for StepReport {
    fn from(error: StepError) -> Self {
        let outcome = match *error.end {
            StepEnd::Wait(request) => StepOutcome::Wait(request),
            StepEnd::Retry(failure) => StepOutcome::Retry(failure),
            StepEnd::Fail(failure) => StepOutcome::Fail(failure),
        };
        Self { output: error.output, ..Self::new(outcome) }
    }
}

impl From<Result<StepReport, StepError>> for StepReport {
    fn from(result: Result<StepReport, StepError>) -> Self {
        result.unwrap_or_else(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::WaitReason;
    use model::{FailureClass, StepName};

    const REASON: WaitReason =
        WaitReason { name: "drill", means: "the drill", ends_by: "its end", next_action: "nothing" };

    fn failure() -> Failure {
        Failure {
            class: FailureClass::new("transient"),
            step: StepName::new("a"),
            summary: "the lease was lost".to_owned(),
            detail: None,
            next_action: "nothing".to_owned(),
        }
    }

    #[test]
    fn an_error_becomes_the_report_that_names_what_ended_the_step() {
        let request = WaitRequest {
            reason: &REASON,
            signals: Vec::new(),
            poll: None,
            limit: Duration::from_secs(1).into(),
            detail: "not yet".to_owned(),
        };
        let table = [
            (StepError::wait(request.clone()), StepOutcome::Wait(request), "not yet"),
            (StepError::retry(failure()), StepOutcome::Retry(failure()), "the lease was lost"),
            (StepError::fail(failure()), StepOutcome::Fail(failure()), "the lease was lost"),
        ];
        for (error, outcome, shown) in table {
            assert_eq!(error.to_string(), shown);
            let report = StepReport::from(error.with_output(json!({ "sent": 1 })));
            assert_eq!((report.outcome, report.output), (outcome, Some(json!({ "sent": 1 }))));
        }
    }

    #[test]
    fn an_error_returned_by_a_question_mark_is_small() {
        assert!(size_of::<StepError>() <= 64, "{}", size_of::<StepError>());
    }
}
