//! `webhook.wait`: the maintenance OS has reported. Parked meanwhile; the report settles it in its own transaction.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redfish::PowerState;
use serde_json::{Value, json};

use super::super::class;
use super::super::classify::failure;
use super::super::report::SIGNAL;
use super::super::services::Site;
use super::super::waits;
use super::{discovered_bmc, power_on_permit, reading_policy};
use engine::model::{Effect, Failure, NewEvent, Signal, Snapshot, Wait};
use engine::{Step, StepContext, StepPolicy, StepReport, Verdict, WaitRequest};

const STEP: &str = "webhook.wait";
/// A look takes at most this long. It is told of and never acted on: a BMC that hangs must not cost the job its step.
pub(super) const LOOK: Duration = Duration::from_secs(60);

/// Waits for the report.
pub(crate) struct AwaitReport(pub(crate) Arc<Site>);

#[async_trait]
impl Step for AwaitReport {
    fn policy(&self) -> StepPolicy {
        reading_policy(&self.0)
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        if let Some(report) = context.snapshot.pending().find(|signal| signal.name == SIGNAL) {
            return conclude(report);
        }
        let seen = match context.waited {
            // Woken without a report: a new start of the controller, or the deadline. One look, read-only (DESIGN section 6).
            Some(_) => match tokio::time::timeout(LOOK, self.observe(context)).await {
                Ok(seen) => seen,
                Err(_elapsed) => vec![too_slow()],
            },
            None => Vec::new(),
        };
        // Thousands may wait at once, for an hour.
        context.snapshot.run.server.iter().for_each(|server| self.0.bmcs.rest(server));
        let settling = self.settling(context);
        let mut report = StepReport::new(Verdict::Wait(WaitRequest {
            reason: &waits::REPORT,
            signals: vec![SIGNAL],
            poll: settling,
            within: self.0.settings.job_timeout,
            detail: "the host was powered on; the maintenance OS has not reported yet".to_owned(),
        }));
        report.events = seen;
        if settling.is_none() && context.has_permit(&power_on_permit()) {
            report = report.effect(Effect::PermitReleased { resource: power_on_permit() });
        }
        report
    }

    fn receive(&self, _snapshot: &Snapshot, signal: &Signal) -> Option<StepReport> {
        (signal.name == SIGNAL).then(|| conclude(signal))
    }

    fn overdue(&self, _snapshot: &Snapshot, wait: &Wait) -> StepReport {
        StepReport::fail(Failure {
            class: engine::class::DEADLINE.to_owned(),
            step: STEP.to_owned(),
            summary: format!("no report from the maintenance OS since {}, the deadline has passed", wait.since),
            evidence: Some(json!({ "since": wait.since, "deadline": wait.deadline })),
            next_action: "see in the events whether media were read (booted at all?), then look at the machine's console"
                .to_owned(),
        })
    }
}

impl AwaitReport {
    /// How long the host still counts as powering on, if it took a turn for it.
    fn settling(&self, context: &StepContext) -> Option<Duration> {
        let limits = &self.0.settings.limits;
        if limits.power_ons.is_none() || !context.has_permit(&power_on_permit()) {
            return None;
        }
        let on = context.snapshot.evidence("redfish.power-on").filter_map(|record| record.ended_at).max();
        let left = on.unwrap_or(context.now()).plus(limits.power_on_settle).since(context.now());
        (left > Duration::ZERO).then_some(left)
    }

    /// What became of media and power while nobody looked; told, never acted on.
    async fn observe(&self, context: &StepContext) -> Vec<NewEvent> {
        let (host, found) = match discovered_bmc(STEP, &self.0, context).await {
            Ok(known) => known,
            Err(report) => return vec![unseen(&report.verdict)],
        };
        let mut seen = Vec::new();
        for uri in std::iter::once(&found.boot_slot).chain(found.task_slots.first()) {
            match host.bmc.slot(uri).await {
                Ok(slot) if slot.is_empty() => seen.push(NewEvent::warn(
                    "redfish.media-reinserted",
                    format!(
                        "slot {} no longer holds its medium; an installation under way may miss it",
                        slot.id
                    ),
                )),
                Ok(_) => {}
                Err(error) => return vec![NewEvent::warn("redfish.observe-failed", error.to_string())],
            }
        }
        match host.bmc.power_state(&found.discovery.system).await {
            Ok(PowerState::Off) => seen.push(NewEvent::warn(
                "redfish.host-off",
                "the host is off although it has not reported; nothing is done about it",
            )),
            Ok(_) => {}
            Err(error) => seen.push(NewEvent::warn("redfish.observe-failed", error.to_string())),
        }
        if seen.is_empty() {
            seen.push(NewEvent::info("redfish.observed", "looked at the BMC: host on, media in place"));
        }
        seen
    }
}

/// The BMC could not be looked at; the job goes on waiting all the same.
pub(super) fn unseen(verdict: &Verdict) -> NewEvent {
    let why = match verdict {
        Verdict::Fail(failure) | Verdict::Retry(failure) => failure.summary.clone(),
        Verdict::Wait(wait) => wait.detail.clone(),
        _ => "the BMC could not be looked at".to_owned(),
    };
    NewEvent::warn("redfish.observe-failed", why)
}

/// The BMC could not be looked at in time.
pub(super) fn too_slow() -> NewEvent {
    let message =
        format!("the BMC could not be looked at within {} s; the job goes on waiting", LOOK.as_secs());
    NewEvent::warn("redfish.observe-failed", message)
}

/// What follows from a report.
pub(super) fn conclude(signal: &Signal) -> StepReport {
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
