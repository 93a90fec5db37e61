//! `webhook.wait`: waits for the installation report. The transaction that stores the report ends the wait.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redfish::{PowerState, RedfishError};
use serde::Deserialize;
use serde_json::json;

use super::super::outputs::{BootLook, Discovered};
use super::super::reachable::REACHABLE;
use super::super::report::SIGNAL;
use super::super::services::Services;
use super::super::waits;
use super::boot_again::{self, Looked};
use super::reported::{conclude, observe_failed, observe_timed_out};
use super::{
    await_media, discovered_bmc, names, power_on_permit, reading_policy, recipe, signs, slot_fallback,
};
use engine::{Step, StepContext, StepOutcome, StepPolicy, StepReport, WaitRequest};
use model::{Effect, Failure, NewEvent, ReadMark, RunId, Signal, Snapshot, StepName, Time, Wait};
use recipe::Delivery;

const STEP: &StepName = names::AWAIT_REPORT;
/// The first pause between two looks at a machine that installs: one that goes off would be waited for until the deadline.
const OBSERVE_EVERY: Duration = Duration::from_secs(600);
/// The longest pause. Each look takes the place of a worker from a job that has not started.
const OBSERVE_AT_MOST: Duration = Duration::from_secs(3600);
/// The time between the last observation and the end of the wait, whose failure then says how the host was found.
const LAST_LOOK: Duration = Duration::from_secs(30);
/// The longest time of one observation. A BMC that is slower is observed later.
const OBSERVE_WITHIN: Duration = Duration::from_secs(15);

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
        let whole = self.0.installs_within(STEP, recipe.as_ref()).unwrap_or(self.0.settings.job_timeout);
        let reason = if by_media { &waits::MEDIA_REPORT } else { &waits::REPORT };
        let limit = boot_again::limit(context, reason, whole);
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
        let last_look = limit.deadline(context.now()).minus(LAST_LOOK);
        let looked = boot_again::look_if_due(&self.0, context, &mut past, limit).await;
        let mut effects = Vec::new();
        let events = match (looked, &context.previous_wait) {
            (Looked::SecondWay(report), _) => return *report,
            (_, Some(_)) if by_media => match await_media::by_power(&self.0, context, &mut past).await {
                Ok(report) => return report,
                Err(events) => events,
            },
            // Woken without a report: the time of a look, or a restart of the controller.
            (Looked::NotDue, Some(_)) if self.is_due(context, &past, last_look) => {
                let (events, seen) = self.observe(context, &mut past, last_look).await;
                effects.extend(seen);
                events
            }
            _ => Vec::new(),
        };
        // Thousands of jobs may wait at once for an hour, so idle connections are released.
        context.snapshot.run.server.iter().for_each(|server| self.0.bmc.connections.release_idle(server));
        let permit_time_left = power_on_permit::time_left(&self.0, context);
        let look = boot_again::due(context, &past, limit).map(|due| due.since(context.now()));
        if past.observed_at.is_none() {
            self.mark_media(context, &mut past).await;
        }
        let observed_at = *past.observed_at.get_or_insert(context.now());
        let observe = match by_media {
            true => await_media::OBSERVE_EVERY,
            false => {
                let mut due = observed_at.plus(pause(context.snapshot.run.id, past.unchanged));
                if observed_at < last_look {
                    due = due.min(last_look);
                }
                // After another kind of look a due one follows.
                due.since(context.now()).max(Duration::from_secs(1))
            }
        };
        let mut report = StepReport::new(StepOutcome::Wait(WaitRequest {
            reason,
            signals: vec![SIGNAL, REACHABLE],
            poll: permit_time_left.into_iter().chain(look).chain([observe]).min(),
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
        (report.events, report.effects) = (events, effects);
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

    fn on_wait_deadline(&self, snapshot: &Snapshot, wait: &Wait) -> StepReport {
        let record = snapshot.records_of(STEP).last();
        let past = record.and_then(|record| BootLook::deserialize(&record.output).ok()).unwrap_or_default();
        StepReport::fail(not_reported(wait, past.off_since))
    }
}

/// Builds the failure of a wait without a report. `off_since`: the last look has seen the host off.
fn not_reported(wait: &Wait, off_since: Option<Time>) -> Failure {
    let off = off_since.map_or(String::new(), |since| format!("; the host is off since {since}"));
    let next = match off_since {
        Some(_) => {
            "find out why the host is off: its power supply, a shutdown by its system, or another user of the BMC; then retry the job"
        }
        None => {
            "check the events for media reads (did the machine boot?), then the machine's console. If the installation only \
             needs longer, give the job another limit: --deadline, --timeout webhook.wait=…, or JOB_STUCK_TIMEOUT"
        }
    };
    Failure {
        class: model::class::DEADLINE,
        step: STEP.clone(),
        summary: format!(
            "no report from the maintenance OS since {}; the limit of this wait, {}, has passed{off}",
            wait.since,
            minutes(wait.deadline.since(wait.since))
        ),
        detail: Some(json!({ "since": wait.since, "deadline": wait.deadline, "off_since": off_since })),
        next_action: next.to_owned(),
    }
}

/// The pause before the next look. It doubles with each look that failed or found nothing new, and differs from job to job, so that the
/// jobs of a batch are spread.
fn pause(run: RunId, unchanged: u32) -> Duration {
    let longest = OBSERVE_EVERY.saturating_mul(1 << unchanged.min(8)).min(OBSERVE_AT_MOST).as_secs();
    // The end of an id is random. Whole seconds: the time of a poll is stored in milliseconds, and a poll before the pause has passed
    // would be followed by another one at once.
    let [.., share] = *run.0.as_bytes();
    Duration::from_secs(longest - longest / 4 * u64::from(share) / 255)
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
    /// Whether the machine is looked at: after the pause, before the deadline, and once after a start of the controller (decision D8).
    fn is_due(&self, context: &StepContext, past: &BootLook, last_look: Time) -> bool {
        let now = context.now();
        past.observed_at.is_none_or(|last| {
            last.plus(pause(context.snapshot.run.id, past.unchanged)) <= now
                || (last < last_look && last_look <= now)
                || past.media_until.is_none_or(|mark| mark.counting_since != self.0.grants.counting_since())
        })
    }

    /// Observes the machine. Each change since the last observation becomes an event, and nothing else follows.
    async fn observe(
        &self,
        context: &StepContext,
        past: &mut BootLook,
        last_look: Time,
    ) -> (Vec<NewEvent>, Option<Effect>) {
        let now = context.now();
        past.observed_at = Some(now);
        // A machine that has read its media since the last look is on, and they are inserted.
        let marks = self.mark_media(context, past).await;
        let read = marks.is_some_and(|(before, now)| before.boot < now.boot || before.task < now.task);
        // A host that was off is looked at: what it read may have been before. The last look is always one at its power.
        if past.off_since.is_none() && now < last_look && read {
            return (Vec::new(), None);
        }
        let before = (past.off_since, past.media_lost);
        let (mut events, failed) = match tokio::time::timeout(OBSERVE_WITHIN, self.look(context, past)).await
        {
            Ok(Ok(events)) => (events, None),
            Ok(Err(event)) => (Vec::new(), Some(event)),
            Err(_elapsed) => (Vec::new(), Some(observe_timed_out(OBSERVE_WITHIN))),
        };
        let changed = before != (past.off_since, past.media_lost);
        past.unchanged = if changed { 0 } else { past.unchanged.saturating_add(1) };
        let seen = failed.is_none().then(|| context.snapshot.run.server.clone()).flatten();
        if failed.is_none() && past.silent {
            events.insert(0, NewEvent::info("redfish.observed", "BMC observed: it responds again"));
        }
        events.extend(past.note(failed));
        (events, seen.map(|serial| Effect::ServerSeen { serial }))
    }

    /// Sets the mark of the reads of the media until now. Returns the mark of the last look, and this one.
    async fn mark_media(&self, context: &StepContext, past: &mut BootLook) -> Option<(ReadMark, ReadMark)> {
        let found = context.find_output::<Discovered>(names::DISCOVER)?;
        let found = slot_fallback::current(&context.snapshot, found);
        let mark = signs::mark_media(STEP, &self.0, context, &found).await.ok()?;
        past.media_until.replace(mark).map(|before| (before, mark))
    }

    /// Reads media and power state. Returns what has changed; the error is the event of a BMC that cannot be read.
    async fn look(&self, context: &StepContext, past: &mut BootLook) -> Result<Vec<NewEvent>, NewEvent> {
        let unread = |error: RedfishError| NewEvent::warn("redfish.observe-failed", error.to_string());
        let known = discovered_bmc(STEP, &self.0, context).await;
        let (connected, found) = known.map_err(|error| observe_failed(&error))?;
        let mut events = Vec::new();
        for uri in std::iter::once(&found.boot_slot).chain(found.task_slots.first()) {
            let slot = connected.bmc.slot(uri).await.map_err(unread)?;
            if slot.is_empty() && !past.media_lost {
                events.push(NewEvent::warn(
                    "redfish.media-lost",
                    format!("slot {} no longer holds its media; a running installation may fail", slot.id),
                ));
            }
        }
        match connected.bmc.power_state(&found.discovery.system).await.map_err(unread)? {
            PowerState::Off if past.off_since.is_none() => {
                past.off_since = Some(context.now());
                events.push(NewEvent::warn(
                    "redfish.host-off",
                    "the host is off although it has not reported; the job does not power it on",
                ));
            }
            PowerState::Off => {}
            _ if past.off_since.take().is_some() => {
                events.push(NewEvent::info("redfish.observed", "BMC observed: the host is on again"));
            }
            _ if events.is_empty() && !past.observed => {
                events.push(NewEvent::info("redfish.observed", "BMC observed: host on, media inserted"));
            }
            _ => {}
        }
        past.observed = true;
        past.media_lost |= events.iter().any(|event| event.kind == "redfish.media-lost");
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(share: u8) -> RunId {
        format!("01990000-0000-7000-8000-0000000000{share:02x}").parse().unwrap()
    }

    #[test]
    fn the_pause_between_looks_doubles_to_an_hour_and_is_spread_by_the_job() {
        let minutes = |unchanged| pause(run(0), unchanged).as_secs() / 60;
        assert_eq!([0, 1, 2, 3, u32::MAX].map(minutes), [10, 20, 40, 60, 60]);
        assert_eq!(pause(run(0xff), 0), Duration::from_secs(450));
        assert!(pause(run(0x80), 0) < pause(run(0), 0) && pause(run(0x80), 0) > pause(run(0xff), 0));
    }

    #[test]
    fn a_failure_of_the_wait_says_since_when_the_host_is_off() {
        let time = |text: &str| text.parse::<Time>().unwrap();
        let (since, deadline) = (time("2027-01-15T08:00:00Z"), time("2027-01-15T09:00:00Z"));
        let wait = Wait {
            reason: waits::REPORT.name.to_owned(),
            step: STEP.clone(),
            since,
            deadline,
            signals: Vec::new(),
            poll_at: None,
            detail: String::new(),
        };
        let off = time("2027-01-15T08:10:00Z");
        let failure = not_reported(&wait, Some(off));
        assert!(
            failure.summary.ends_with(&format!("has passed; the host is off since {off}")),
            "{failure:?}"
        );
        assert!(failure.next_action.contains("why the host is off"), "{failure:?}");
        assert!(not_reported(&wait, None).summary.ends_with("has passed"));
    }

    #[test]
    fn a_bmc_that_stays_silent_is_one_event() {
        let mut past = BootLook::default();
        let mut note = |failed: Option<&str>| {
            let event = failed.map(|why| NewEvent::warn("redfish.observe-failed", why));
            past.note(event).is_some()
        };
        let looks = [Some("no response"), Some("busy"), None, Some("no response")];
        assert_eq!(looks.map(&mut note), [true, false, false, true]);
    }
}
