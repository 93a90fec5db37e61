//! `redfish.poll`: the installation is finished, as far as that can be seen. For targets that cannot report (the ESXi
//! installer has no maintenance OS of ours): looked at now and then, parked in between. A report ends it all the same.
//!
//! ```text
//!  every 30 s:  signs of life, reads of the media --judge--> a sign: done
//!                                                            none:   wait on, to the end of the window: done, assumed
//! ```

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redfish::HostStatus;
use serde_json::json;

use super::super::completion::{Look, MediaReads, Watch};
use super::super::outputs::{Built, Validated};
use super::super::report::SIGNAL;
use super::super::services::Site;
use super::super::waits;
use super::await_report::{LOOK, conclude, too_slow, unseen};
use super::{discovered_bmc, reading_policy};
use engine::model::{NewEvent, Signal, Snapshot, Wait};
use engine::{Step, StepContext, StepPolicy, StepReport, Verdict, WaitRequest};

const STEP: &str = "redfish.poll";
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Waits for signs of an end.
pub(crate) struct AwaitCompletion(pub(crate) Arc<Site>);

#[async_trait]
impl Step for AwaitCompletion {
    fn policy(&self) -> StepPolicy {
        reading_policy(&self.0)
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        if let Some(report) = context.snapshot.pending().find(|signal| signal.name == SIGNAL) {
            return conclude(report);
        }
        let watch = context.own::<Watch>().unwrap_or_else(|| Watch {
            since: context.record.started_at,
            minimum: self.0.settings.install_min_time,
            last: None,
        });
        let (look, events) = self.look(context).await;
        context.snapshot.run.server.iter().for_each(|server| self.0.bmcs.rest(server));
        let mut report = match watch.judge(&look) {
            Some(sign) => {
                let message = format!("the installation is taken as finished: {}", sign.told());
                StepReport::done()
                    .leaving(json!({ "completion": "observed", "sign": sign, "since": watch.since, "at": look.at }))
                    .event(NewEvent::info("install.observed", message).with(json!({ "sign": sign })))
            }
            None => {
                let detail = if look.at < watch.since.plus(watch.minimum) {
                    format!(
                        "the host installs; signs of an end count from {}",
                        watch.since.plus(watch.minimum)
                    )
                } else {
                    "the host installs; no sign of an end yet".to_owned()
                };
                let wait = WaitRequest {
                    reason: &waits::SIGNS,
                    signals: vec![SIGNAL],
                    poll: Some(LOOK_EVERY),
                    within: self.0.settings.install_window,
                    detail,
                };
                StepReport::new(Verdict::Wait(wait)).leaving(json!(watch.after(&look)))
            }
        };
        report.events.splice(0..0, events);
        report
    }

    fn receive(&self, _snapshot: &Snapshot, signal: &Signal) -> Option<StepReport> {
        (signal.name == SIGNAL).then(|| conclude(signal))
    }

    fn overdue(&self, _snapshot: &Snapshot, wait: &Wait) -> StepReport {
        let message = format!(
            "no sign of an end since {}: the installation is assumed to have succeeded; look at the machine before relying \
             on it",
            wait.since
        );
        StepReport::done()
            .leaving(json!({ "completion": "assumed", "since": wait.since, "at": wait.deadline }))
            .event(NewEvent::warn("install.assumed", message))
    }
}

impl AwaitCompletion {
    /// One look, read-only. A BMC that does not answer is told of once in a while and waited for.
    async fn look(&self, context: &StepContext) -> (Look, Vec<NewEvent>) {
        let reads = self.reads(context).await.unwrap_or_default();
        let looked = tokio::time::timeout(LOOK, self.signs(context)).await;
        let (signs, events) = match looked.unwrap_or_else(|_elapsed| Err(too_slow())) {
            Ok(signs) => (Some(signs), Vec::new()),
            Err(event) => (None, vec![event]),
        };
        (Look { at: context.now(), signs, reads }, events)
    }

    /// What the BMC shows of the host, or why it shows nothing.
    async fn signs(&self, context: &StepContext) -> Result<HostStatus, NewEvent> {
        let known = discovered_bmc(STEP, &self.0, context).await;
        let (host, found) = known.map_err(|report| unseen(&report.verdict))?;
        let signs = host.bmc.host_status(&found.discovery.system).await;
        signs.map_err(|error| NewEvent::warn("redfish.observe-failed", error.to_string()))
    }

    async fn reads(&self, context: &StepContext) -> Option<MediaReads> {
        let built: Built = context.earlier("iso.build")?;
        let validated: Validated = context.earlier("validate")?;
        let found: super::super::outputs::Discovered = context.earlier("redfish.discover")?;
        let grant = found.spliced.map_or(built.boot_grant, |spliced| spliced.grant);
        let read = self.0.grants.evidence(&grant).await.ok()?;
        Some(MediaReads {
            boot_image: read.boot_read,
            bytes: read.bytes,
            last: read.last_read_at,
            of: validated.boot_len,
        })
    }
}
