//! The effects of an installation report, and of an observation that failed; for both waits for a report.

use std::time::Duration;

use engine::{StepError, StepReport};
use model::{NewEvent, Signal, StepName};
use serde_json::{Value, json};

use super::super::class;
use bmc::failure;

/// Builds the event of a failed observation; the job continues to wait.
pub(super) fn observe_failed(error: &StepError) -> NewEvent {
    NewEvent::warn("redfish.observe-failed", error.to_string())
}

/// Builds the event of an observation that did not end `within` a time.
pub(super) fn observe_timed_out(within: Duration) -> NewEvent {
    let message =
        format!("the BMC could not be read within {} s; the job continues to wait", within.as_secs());
    NewEvent::warn("redfish.observe-failed", message)
}

/// Builds the step report that follows from an installation report.
pub(super) fn conclude(signal: &Signal) -> StepReport {
    let said = |key: &str| signal.payload.get(key).and_then(Value::as_str);
    let mut report = match (said("status"), said("failed_step")) {
        (Some("success"), _) => StepReport::done(),
        (_, failed_step) => {
            let unit = failed_step.unwrap_or("unknown");
            let class = class::reported(said("class"));
            let next = match class == class::MEDIA {
                true => {
                    "check that its registry holds the OS image and that the machine reaches it (`shoal job log` has the \
                     reason), then retry the job"
                        .to_owned()
                }
                false => format!(
                    "`shoal job log` of this job has the last lines of the machine's log; correct what {unit} names (recipe, image or disk), \
                     then `shoal job retry`"
                ),
            };
            let message = said("message").map_or(String::new(), |message| format!(": {message}"));
            StepReport::fail(failure(
                class,
                &StepName::from(unit),
                format!("{unit} failed on the machine{message}"),
                next,
            ))
        }
    };
    report.consumed.push((signal.name.clone(), signal.key.clone()));
    report.with_output(json!({ "reported_at": signal.received_at }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_its_class_if_it_is_one_that_a_machine_can_know_else_it_is_the_installer() {
        let class = |named: Value| {
            let payload = json!({ "status": "failed", "failed_step": "a.service", "class": named });
            let signal = Signal {
                name: "report".to_owned(),
                key: String::new(),
                payload,
                received_at: "2026-01-02T03:04:05Z".parse().unwrap(),
                consumed: false,
            };
            let verdict = format!("{:?}", conclude(&signal));
            ["input", "media", "unsupported", "installer", "internal"]
                .into_iter()
                .filter(|class| verdict.contains(&format!("class: {class:?}")))
                .collect::<Vec<_>>()
        };
        for known in ["input", "media", "unsupported", "installer"] {
            assert_eq!(class(json!(known)), [known]);
        }
        for other in [json!("internal"), json!("bmc_unreachable"), json!("new"), json!(7), Value::Null] {
            assert_eq!(class(other), ["installer"]);
        }
    }
}
