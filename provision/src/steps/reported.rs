//! What follows from an installation report, and from an observation that failed; for both waits for a report.

use engine::model::{NewEvent, Signal, StepName};
use engine::{StepError, StepReport};
use serde_json::{Value, json};

use super::super::class;
use super::boot_again::OBSERVE_TIMEOUT;
use bmc::failure;

/// Builds the event of a failed observation; the job continues to wait.
pub(super) fn observe_failed(error: &StepError) -> NewEvent {
    NewEvent::warn("redfish.observe-failed", error.to_string())
}

/// Builds the event of an observation that timed out.
pub(super) fn observe_timed_out() -> NewEvent {
    let message = format!(
        "the BMC could not be read within {} s; the job continues to wait",
        OBSERVE_TIMEOUT.as_secs()
    );
    NewEvent::warn("redfish.observe-failed", message)
}

/// Builds the step report that follows from an installation report.
pub(super) fn conclude(signal: &Signal) -> StepReport {
    let said = |key: &str| signal.payload.get(key).and_then(Value::as_str);
    let mut report = match (said("status"), said("failed_step")) {
        (Some("success"), _) => StepReport::done(),
        (_, failed_step) => {
            let unit = failed_step.unwrap_or("unknown");
            let message = said("message").map_or(String::new(), |message| format!(": {message}"));
            StepReport::fail(failure(
                class::INSTALLER,
                &StepName::from(unit),
                format!("{unit} failed on the machine{message}"),
                format!(
                    "read the journal of {unit} on the machine's console, correct the recipe, create the job again"
                ),
            ))
        }
    };
    report.consumed.push((signal.name.clone(), signal.key.clone()));
    report.with_output(json!({ "reported_at": signal.received_at }))
}
