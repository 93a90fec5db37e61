//! From what a BMC did to what the engine should do: the one place that classifies failures.

use redfish::{ErrorKind, RedfishError};
use serde_json::json;

use super::class;
use crate::engine::{StepReport, Verdict};
use crate::model::Failure;

/// A failure of this workflow.
pub(super) fn failure(
    class: &str,
    step: &str,
    summary: impl Into<String>,
    next_action: impl Into<String>,
) -> Failure {
    Failure {
        class: class.to_owned(),
        step: step.to_owned(),
        summary: summary.into(),
        evidence: None,
        next_action: next_action.into(),
    }
}

/// What follows from an error of the Redfish client: try again what may pass, fail on a definite no. A mutation whose
/// fate is unknown is tried again too: the step observes before it acts.
pub(super) fn of_redfish(step: &str, error: &RedfishError) -> StepReport {
    let class = match &error.kind {
        ErrorKind::Unreachable { .. } | ErrorKind::Timeout { .. } | ErrorKind::Tls { .. } => {
            class::BMC_UNREACHABLE
        }
        ErrorKind::NotSupported { .. }
        | ErrorKind::License { .. }
        | ErrorKind::Unsupported { .. }
        | ErrorKind::NoVirtualMedia { .. }
        | ErrorKind::MediaUrl { .. } => class::UNSUPPORTED,
        ErrorKind::Unauthorized { .. } | ErrorKind::Config { .. } => class::INPUT,
        ErrorKind::Busy { .. }
        | ErrorKind::Server { .. }
        | ErrorKind::TaskFailed { .. }
        | ErrorKind::Fenced => class::TRANSIENT,
        _ => class::BMC_REFUSED,
    };
    let failure = Failure {
        evidence: Some(json!({
            "code": error.code(), "status": error.status(), "maybe_applied": error.maybe_applied(),
        })),
        ..failure(class, step, error.to_string(), error.next_step())
    };
    if error.is_transient() || error.maybe_applied() || matches!(error.kind, ErrorKind::Fenced) {
        StepReport::new(Verdict::Retry(failure))
    } else {
        StepReport::fail(failure)
    }
}

/// Try again: something of our own did not answer.
pub(super) fn unavailable(step: &str, why: &impl std::fmt::Display) -> StepReport {
    StepReport::new(Verdict::Retry(failure(
        class::TRANSIENT,
        step,
        why.to_string(),
        "see /readyz for what is wrong with the controller",
    )))
}
