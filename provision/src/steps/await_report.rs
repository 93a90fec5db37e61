//! `webhook.wait`: waits for the installation report. The transaction that stores the report ends the wait.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redfish::PowerState;
use serde_json::json;

use super::super::outputs::BootLook;
use super::super::reachable::REACHABLE;
use super::super::report::SIGNAL;
use super::super::services::Services;
use super::super::waits;
use super::boot_again::{self, Looked, OBSERVE_TIMEOUT};
use super::reported::{conclude, observe_failed, observe_timed_out};
use super::{await_media, discovered_bmc, names, power_on_permit, reading_policy, recipe};
use engine::{Step, StepContext, StepOutcome, StepPolicy, StepReport, WaitRequest};
use model::{Failure, NewEvent, Signal, Snapshot, StepName, Wait};
use recipe::Delivery;

const STEP: &StepName = names::AWAIT_REPORT;
/// The pause between two looks at a machine that installs: one that goes off would be waited for until the deadline.
const OBSERVE_EVERY: Duration = Duration::from_secs(600);

/// The step that waits for the installation report.
pub(crate) struct AwaitReport(pub(crate) Arc<Services>);

#[async_trait]
impl Step for AwaitReport {
    fn policy(&self) -> StepPolicy {
        reading_policy(&self.0)
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        let recipe = recipe(STEP, context).ok();
        let by_media = recipe.as_ref().is_some_and(|recipe| recipe.delivery == Delivery::Media);
        let erase_time = recipe.map_or(Duration::ZERO, |recipe| recipe.erase_time());
        let reason = if by_media { &waits::MEDIA_REPORT } else { &waits::REPORT };
        let limit = boot_again::limit(context, reason, self.0.settings.job_timeout + erase_time);
        if let Some(report) = context.snapshot.pending().find(|signal| signal.name == SIGNAL) {
            return match await_media::needs_confirmation(report) {
                true => await_media::confirm(&self.0, context, report, limit).await,
                false => conclude(report),
            };
        }
        if let Some(signal) = context.snapshot.pending().find(|signal| signal.name == REACHABLE) {
            return reached(signal);
        }
        let mut past: BootLook = context.own_output().unwrap_or_default();
        let looked = boot_again::look_if_due(&self.0, context, &mut past, limit).await;
        let events = match (looked, &context.previous_wait) {
            (Looked::SecondWay(report), _) => return *report,
            (_, Some(_)) if by_media => match await_media::by_power(&self.0, context, &mut past).await {
                Ok(report) => return report,
                Err(events) => events,
            },
            // Woken without a report: the time of a look, a restart of the controller, or the deadline. One read-only observation
            // (decision D8).
            (Looked::NotDue, Some(_)) => {
                match tokio::time::timeout(OBSERVE_TIMEOUT, self.observe(context, &mut past)).await {
                    Ok(events) => events,
                    Err(_elapsed) => vec![observe_timed_out()],
                }
            }
            _ => Vec::new(),
        };
        // Thousands of jobs may wait at once for an hour, so idle connections are released.
        context.snapshot.run.server.iter().for_each(|server| self.0.bmc.connections.release_idle(server));
        let permit_time_left = power_on_permit::time_left(&self.0, context);
        let look = boot_again::due(context, &past, limit).map(|due| due.since(context.now()));
        let observe = Some(if by_media { await_media::OBSERVE_EVERY } else { OBSERVE_EVERY });
        let mut report = StepReport::new(StepOutcome::Wait(WaitRequest {
            reason,
            signals: vec![SIGNAL, REACHABLE],
            poll: permit_time_left.into_iter().chain(look).chain(observe).min(),
            limit,
            detail: match by_media {
                true => await_media::detail(context),
                false => match past.off_since {
                    Some(since) => format!(
                        "the host is off since {since}, and the maintenance OS has not reported: find out why, then cancel and retry the job"
                    ),
                    None => "the host was powered on; the maintenance OS has not reported yet".to_owned(),
                },
            },
        }));
        report.events = events;
        let report = report.with_output(json!(past));
        power_on_permit::release_when_over(report, permit_time_left, context)
    }

    fn on_signal(&self, _snapshot: &Snapshot, signal: &Signal) -> Option<StepReport> {
        if signal.name == REACHABLE {
            return Some(reached(signal));
        }
        // The power state confirms a success that came by the medium, and a worker reads it.
        (signal.name == SIGNAL && !await_media::needs_confirmation(signal)).then(|| conclude(signal))
    }

    fn on_wait_deadline(&self, _snapshot: &Snapshot, wait: &Wait) -> StepReport {
        StepReport::fail(Failure {
            class: model::class::DEADLINE,
            step: STEP.clone(),
            summary: format!(
                "no report from the maintenance OS since {}; the limit of this wait, {}, has passed",
                wait.since,
                minutes(wait.deadline.since(wait.since))
            ),
            detail: Some(json!({ "since": wait.since, "deadline": wait.deadline })),
            next_action: "check the events for media reads (did the machine boot?), then the machine's console. If the installation only \
                          needs longer, give the job another limit: --deadline, --timeout webhook.wait=…, or JOB_STUCK_TIMEOUT"
                .to_owned(),
        })
    }
}

/// A time limit in words.
fn minutes(limit: Duration) -> String {
    match limit.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

/// The end of the wait for a machine that is reachable: `rescue.wait` follows.
fn reached(signal: &Signal) -> StepReport {
    let mut report = StepReport::done().with_output(json!({ "reachable_at": signal.received_at }));
    report.consumed.push((signal.name.clone(), signal.key.clone()));
    report
}

impl AwaitReport {
    /// Reads media and power state; what has changed since the last look becomes an event, and nothing else follows.
    async fn observe(&self, context: &StepContext, past: &mut BootLook) -> Vec<NewEvent> {
        let (connected, found) = match discovered_bmc(STEP, &self.0, context).await {
            Ok(known) => known,
            Err(error) => return vec![observe_failed(&error)],
        };
        let mut events = Vec::new();
        for uri in std::iter::once(&found.boot_slot).chain(found.task_slots.first()) {
            match connected.bmc.slot(uri).await {
                Ok(slot) if slot.is_empty() && !past.media_lost => events.push(NewEvent::warn(
                    "redfish.media-lost",
                    format!("slot {} no longer holds its media; a running installation may fail", slot.id),
                )),
                Ok(_) => {}
                Err(error) => return vec![NewEvent::warn("redfish.observe-failed", error.to_string())],
            }
        }
        match connected.bmc.power_state(&found.discovery.system).await {
            Ok(PowerState::Off) if past.off_since.is_none() => {
                past.off_since = Some(context.now());
                events.push(NewEvent::warn(
                    "redfish.host-off",
                    "the host is off although it has not reported; the job does not power it on",
                ));
            }
            Ok(PowerState::Off) => {}
            Ok(_) if past.off_since.take().is_some() => {
                events.push(NewEvent::info("redfish.observed", "BMC observed: the host is on again"));
            }
            Ok(_) if events.is_empty() && !past.observed => {
                events.push(NewEvent::info("redfish.observed", "BMC observed: host on, media inserted"));
            }
            Ok(_) => {}
            Err(error) => events.push(NewEvent::warn("redfish.observe-failed", error.to_string())),
        }
        past.observed = true;
        past.media_lost |= events.iter().any(|event| event.kind == "redfish.media-lost");
        events
    }
}
