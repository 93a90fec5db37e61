//! `redfish.poll`: waits for the end of an installation that cannot report (the ESXi installer runs without our maintenance
//! OS). The step observes BMC and media at intervals and waits in between. A report ends the wait too.
//!
//! ```text
//!  every 30 s:  host status, reads of the media --evaluate--> a sign: done
//!                                                             none:   wait; at the end of the window: done, assumed
//!               no read of the media since the power-on ->    no sign counts; at the end of the window: failed
//!                                                             once: look whether it booted its disk -> second way to boot
//! ```

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redfish::HostStatus;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::completion::{CompletionWatch, MediaReads, Observation};
use super::super::outputs::{BootLook, Built, Discovered, Validated};
use super::super::report::SIGNAL;
use super::super::second_way::{self, PoweredOn};
use super::super::services::Services;
use super::super::waits;
use super::boot_again::{self, Looked, OBSERVE_TIMEOUT};
use super::reported::{conclude, observe_failed, observe_timed_out};
use super::{discovered_bmc, names, power_on_permit, reading_policy, signs, slot_fallback};
use bmc::failure;
use engine::{Step, StepContext, StepOutcome, StepPolicy, StepReport, WaitRequest};
use model::{Failure, NewEvent, Signal, Snapshot, StepName, Time, Wait};

const STEP: &StepName = names::AWAIT_COMPLETION;
/// Delay between two observations.
const OBSERVE_INTERVAL: Duration = Duration::from_secs(30);

/// The time before the deadline in which an observation is the last one: a wait that ends now would be taken as a success.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// The output while the step waits.
#[derive(Serialize, Deserialize)]
struct Output {
    #[serde(flatten)]
    watch: CompletionWatch,
    #[serde(flatten)]
    look: BootLook,
}

/// The step that waits for a completion sign.
pub(crate) struct AwaitCompletion(pub(crate) Arc<Services>);

#[async_trait]
impl Step for AwaitCompletion {
    fn policy(&self) -> StepPolicy {
        reading_policy(&self.0)
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        if let Some(report) = context.snapshot.pending().find(|signal| signal.name == SIGNAL) {
            return conclude(report);
        }
        let unknown = PoweredOn { at: context.record.started_at, media_before: None };
        let powered_on = second_way::powered_on(&context.snapshot).unwrap_or(unknown);
        let powered_on_at = powered_on.at;
        let (watch, mut past) = match context.own_output::<Output>() {
            Some(output) => (output.watch, output.look),
            None => {
                let minimum = self.0.settings.install_min_time;
                (CompletionWatch { since: powered_on_at, minimum, last: None }, BootLook::default())
            }
        };
        let limit = boot_again::limit(context, &waits::SIGNS, self.0.settings.install_window);
        if let Looked::SecondWay(report) = boot_again::look_if_due(&self.0, context, &mut past, limit).await {
            return *report;
        }
        let (observation, events) = self.observe(context, powered_on, &mut past).await;
        context.snapshot.run.server.iter().for_each(|server| self.0.bmc.connections.release_idle(server));
        let booted = self.may_have_booted(context, powered_on).await;
        let mut report = match watch.evaluate(&observation).filter(|_| booted) {
            Some(sign) => {
                let message = format!("the installation is taken as finished: {}", sign.describe());
                StepReport::done()
                    .with_output(json!({ "completion": "observed", "sign": sign, "since": watch.since, "at": observation.at }))
                    .event(NewEvent::info("install.observed", message).with(json!({ "sign": sign })))
            }
            None if !booted && limit.deadline(context.now()).since(context.now()) < LAST_MOMENT => {
                StepReport::fail(not_booted(context, powered_on_at))
            }
            None => {
                let detail = if !booted {
                    format!(
                        "the boot image was not read since the power-on at {powered_on_at}; until it is, no completion \
                         sign counts"
                    )
                } else if observation.at < watch.since.plus(watch.minimum) {
                    format!(
                        "the host is being installed; completion signs count from {}",
                        watch.since.plus(watch.minimum)
                    )
                } else {
                    "the host is being installed; no completion sign yet".to_owned()
                };
                let permit = power_on_permit::time_left(&self.0, context);
                let wait = WaitRequest {
                    reason: &waits::SIGNS,
                    signals: vec![SIGNAL],
                    poll: permit.into_iter().chain([OBSERVE_INTERVAL]).min(),
                    limit,
                    detail,
                };
                let output = Output { watch: watch.with_baseline(&observation), look: past };
                let waits = StepReport::new(StepOutcome::Wait(wait)).with_output(json!(output));
                power_on_permit::release_when_over(waits, permit, context)
            }
        };
        report.events.splice(0..0, events);
        report
    }

    fn on_signal(&self, _snapshot: &Snapshot, signal: &Signal) -> Option<StepReport> {
        (signal.name == SIGNAL).then(|| conclude(signal))
    }

    fn on_wait_deadline(&self, _snapshot: &Snapshot, wait: &Wait) -> StepReport {
        let message = format!(
            "no completion sign since {}: the installation is assumed to have succeeded; check the machine before you use \
             it",
            wait.since
        );
        StepReport::done()
            .with_output(json!({ "completion": "assumed", "since": wait.since, "at": wait.deadline }))
            .event(NewEvent::warn("install.assumed", message))
    }
}

impl AwaitCompletion {
    /// Observes the machine once, read-only. When the BMC begins to be silent, the job gets an event; it continues to wait.
    async fn observe(
        &self,
        context: &StepContext,
        powered_on: PoweredOn,
        past: &mut BootLook,
    ) -> (Observation, Option<NewEvent>) {
        let reads = self.reads(context, powered_on).await.unwrap_or_default();
        let read = tokio::time::timeout(OBSERVE_TIMEOUT, self.host_status(context)).await;
        let (host, failed) = match read {
            Ok(Ok(host)) => (Some(host), None),
            Ok(Err(event)) => (None, Some(event)),
            Err(_elapsed) => (None, Some(observe_timed_out(OBSERVE_TIMEOUT))),
        };
        (Observation { at: context.now(), host, reads }, past.note(failed))
    }

    /// Reads the host status, or returns the event why it could not be read.
    async fn host_status(&self, context: &StepContext) -> Result<HostStatus, NewEvent> {
        let known = discovered_bmc(STEP, &self.0, context).await;
        let (connected, found) = known.map_err(|error| observe_failed(&error))?;
        let host = connected.bmc.host_status(&found.discovery.system).await;
        host.map_err(|error| NewEvent::warn("redfish.observe-failed", error.to_string()))
    }

    /// Returns whether the machine may have booted from the media. Only reads that are known tell that it has not.
    async fn may_have_booted(&self, context: &StepContext, powered_on: PoweredOn) -> bool {
        let Some(found) = context.find_output::<Discovered>(names::DISCOVER) else { return true };
        let found = slot_fallback::current(&context.snapshot, found);
        signs::booted_or_unknown(STEP, &self.0, context, &found, powered_on).await.unwrap_or(true)
    }

    async fn reads(&self, context: &StepContext, powered_on: PoweredOn) -> Option<MediaReads> {
        let built: Built = context.find_output(names::ISO_BUILD)?;
        let validated: Validated = context.find_output(names::VALIDATE)?;
        let found: Discovered = context.find_output(names::DISCOVER)?;
        let found = slot_fallback::current(&context.snapshot, found);
        let served_since = Some(self.0.grants.counting_since());
        let mut reads = MediaReads { of: validated.boot_len, served_since, ..MediaReads::default() };
        // After a slot fallback the machine reads by the URLs of its last plan.
        for grant in signs::boot_grants(&built, &found) {
            let read = self.0.grants.reads_of(grant).await.ok()?;
            reads.boot_image |= read.boot_read_at.is_some();
            reads.bytes = reads.bytes.max(read.bytes);
            reads.last = reads.last.max(read.last_read_at);
        }
        // Reads of the task image do not count: firmware may look at it while the host boots from a copy in the BMC.
        let was_read = match powered_on.media_before {
            Some(mark) => signs::boot_image_read_since(STEP, &self.0, context, &found, mark).await.ok()?,
            None => false,
        };
        reads.last = reads.last.filter(|_| was_read);
        Some(reads)
    }
}

/// Builds the failure of a machine that did not boot from the media.
fn not_booted(context: &StepContext, powered_on_at: Time) -> Failure {
    let second = second_way::of(&context.snapshot).filter(|_| !second_way::is_given_up(&context.snapshot));
    let second = second.map_or(String::new(), |second| format!("; {}", second_way::describe(&second)));
    let summary = format!(
        "the boot image was not read since the power-on at {powered_on_at}, so nothing was installed; the deadline has \
         passed{second}"
    );
    let next = "check the machine's console: did it stop in its self-test, boot from disk, or refuse the medium (Secure \
                Boot, boot mode)?";
    failure(model::class::DEADLINE, STEP, summary, next)
}
