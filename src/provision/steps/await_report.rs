//! `webhook.wait`: the maintenance OS has reported. Parked meanwhile; the report settles it in its own transaction.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::super::class;
use super::super::fault::failure;
use super::super::report::SIGNAL;
use super::super::site::Site;
use crate::engine::{Step, StepContext, StepPolicy, StepReport, Verdict, WaitRequest};
use crate::model::{Failure, Signal, Snapshot, Wait};

const STEP: &str = "webhook.wait";

/// Waits for the report.
pub(in crate::provision) struct AwaitReport(pub(in crate::provision) Arc<Site>);

#[async_trait]
impl Step for AwaitReport {
    fn policy(&self) -> StepPolicy {
        StepPolicy::default()
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        if let Some(report) = context.snapshot.pending().find(|signal| signal.name == SIGNAL) {
            return conclude(report);
        }
        StepReport::new(Verdict::Wait(WaitRequest {
            reason: "report",
            signals: vec![SIGNAL],
            poll: None,
            within: self.0.settings.job_timeout,
            detail: "the maintenance OS is at work and has not reported yet".to_owned(),
        }))
    }

    fn receive(&self, _snapshot: &Snapshot, signal: &Signal) -> Option<StepReport> {
        (signal.name == SIGNAL).then(|| conclude(signal))
    }

    fn overdue(&self, _snapshot: &Snapshot, wait: &Wait) -> StepReport {
        StepReport::fail(Failure {
            class: crate::engine::class::DEADLINE.to_owned(),
            step: STEP.to_owned(),
            summary: format!("no report from the maintenance OS since {}, the deadline has passed", wait.since),
            evidence: Some(json!({ "since": wait.since, "deadline": wait.deadline })),
            next_action: "see in the events whether media were read (booted at all?), then look at the machine's console"
                .to_owned(),
        })
    }
}

/// What follows from a report.
fn conclude(signal: &Signal) -> StepReport {
    let said = |key: &str| signal.payload.get(key).and_then(Value::as_str);
    let mut report = match (said("status"), said("failed_step")) {
        (Some("success"), _) => StepReport::done(),
        (_, failed_step) => {
            let unit = failed_step.unwrap_or("unknown");
            let message = said("message").map_or(String::new(), |message| format!(": {message}"));
            StepReport::fail(failure(
                class::INSTALLER,
                unit,
                format!("{unit} failed on the machine{message}"),
                format!(
                    "see the journal of {unit} on the machine's console, correct the recipe, create the job again"
                ),
            ))
        }
    };
    report.consumed.push((signal.name.clone(), signal.key.clone()));
    report.leaving(json!({ "reported_at": signal.received_at }))
}
