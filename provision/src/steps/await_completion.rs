//! `redfish.poll`: waits for the end of an installation that cannot report (the ESXi installer runs without our maintenance
//! OS). The step observes BMC and media at intervals and waits in between. A report ends the wait too.
//!
//! ```text
//!  every 30 s:  host status, reads of the media --evaluate--> a sign: done
//!                                                             none:   wait; at the end of the window: done, assumed
//! ```

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redfish::HostStatus;
use serde_json::json;

use super::super::completion::{CompletionWatch, MediaReads, Observation};
use super::super::outputs::{Built, Validated};
use super::super::report::SIGNAL;
use super::super::services::Services;
use super::super::waits;
use super::await_report::{OBSERVE_TIMEOUT, conclude, observe_failed, observe_timed_out};
use super::{discovered_bmc, names, reading_policy};
use engine::model::{NewEvent, Signal, Snapshot, StepName, Wait};
use engine::{Step, StepContext, StepOutcome, StepPolicy, StepReport, WaitRequest};

const STEP: &StepName = names::AWAIT_COMPLETION;
/// Delay between two observations.
const OBSERVE_INTERVAL: Duration = Duration::from_secs(30);

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
        let watch = context.own_output::<CompletionWatch>().unwrap_or_else(|| CompletionWatch {
            since: context.record.started_at,
            minimum: self.0.settings.install_min_time,
            last: None,
        });
        let (observation, events) = self.observe(context).await;
        context.snapshot.run.server.iter().for_each(|server| self.0.bmc.connections.release_idle(server));
        let mut report = match watch.evaluate(&observation) {
            Some(sign) => {
                let message = format!("the installation is taken as finished: {}", sign.describe());
                StepReport::done()
                    .with_output(json!({ "completion": "observed", "sign": sign, "since": watch.since, "at": observation.at }))
                    .event(NewEvent::info("install.observed", message).with(json!({ "sign": sign })))
            }
            None => {
                let detail = if observation.at < watch.since.plus(watch.minimum) {
                    format!(
                        "the host is being installed; completion signs count from {}",
                        watch.since.plus(watch.minimum)
                    )
                } else {
                    "the host is being installed; no completion sign yet".to_owned()
                };
                let wait = WaitRequest {
                    reason: &waits::SIGNS,
                    signals: vec![SIGNAL],
                    poll: Some(OBSERVE_INTERVAL),
                    within: self.0.settings.install_window,
                    detail,
                };
                StepReport::new(StepOutcome::Wait(wait)).with_output(json!(watch.with_baseline(&observation)))
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
    /// Observes the machine once, read-only. If the BMC does not respond, the job gets an event and continues to wait.
    async fn observe(&self, context: &StepContext) -> (Observation, Vec<NewEvent>) {
        let reads = self.reads(context).await.unwrap_or_default();
        let read = tokio::time::timeout(OBSERVE_TIMEOUT, self.host_status(context)).await;
        let (host, events) = match read {
            Ok(Ok(host)) => (Some(host), Vec::new()),
            Ok(Err(event)) => (None, vec![event]),
            Err(_elapsed) => (None, vec![observe_timed_out()]),
        };
        (Observation { at: context.now(), host, reads }, events)
    }

    /// Reads the host status, or returns the event why it could not be read.
    async fn host_status(&self, context: &StepContext) -> Result<HostStatus, NewEvent> {
        let known = discovered_bmc(STEP, &self.0, context).await;
        let (connected, found) = known.map_err(|error| observe_failed(&error))?;
        let host = connected.bmc.host_status(&found.discovery.system).await;
        host.map_err(|error| NewEvent::warn("redfish.observe-failed", error.to_string()))
    }

    async fn reads(&self, context: &StepContext) -> Option<MediaReads> {
        let built: Built = context.find_output(names::ISO_BUILD)?;
        let validated: Validated = context.find_output(names::VALIDATE)?;
        let found: super::super::outputs::Discovered = context.find_output(names::DISCOVER)?;
        let grant = found.spliced.map_or(built.boot_grant, |spliced| spliced.grant);
        let read = self.0.grants.reads_of(&grant).await.ok()?;
        Some(MediaReads {
            boot_image: read.boot_read_at.is_some(),
            bytes: read.bytes,
            last: read.last_read_at,
            of: validated.boot_len,
        })
    }
}
