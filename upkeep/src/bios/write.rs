//! `bios.write` and `bios.boot-order`: one PATCH, once.
//!
//! ```text
//!   nothing of it is open in the plan              ─► skipped
//!   read: pending or in force                      ─► done, nothing is sent
//!   checkpoint ─► PATCH ─┬─► shown                 ─► done
//!                        ├─► refused               ─► failure `settings_refused`: the server is as it was
//!                        └─► 2xx and not shown, no response, or the worker died
//!                              │ read for a minute: shown               ─► done
//!                              │ 2xx, and nothing can show it           ─► done: the restart shows it
//!                              │ 2xx, and a settings object lacks it    ─► failure `settings_not_stored`
//!                              └ no response                            ─► sent again, three times at most
//! ```

use std::time::Duration;

use redfish::{ErrorKind, RedfishError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::absent::{self, AWAY_LIMIT, Absence, Absent};
use super::super::look::Look;
use super::super::{UpkeepServices, names, waits};
use super::plan::Planned;
use super::target::Target;
use super::validate::order;
use bmc::{failure, from_redfish_change, lease_lost, output_of, wait_for_bmc};
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, StepName, Time};
use redfish::{Bmc, Discovery};

/// How long a BMC is looked at before settings count as not arrived.
const LOOK_FOR: Duration = Duration::from_secs(60);
/// How often settings are sent at most.
const MAX_SENT: u32 = 3;

/// The output of the step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Written {
    /// How often the settings were sent.
    pub(super) sent: u32,
    /// When the settings were sent last; stored before they were.
    sent_at: Option<Time>,
    /// Whether the BMC accepted the settings.
    accepted: bool,
    absent: Absent,
}

pub(super) async fn run(
    step: &'static StepName,
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    let target = Target::of(step);
    let plan: Planned = output_of(step, context, names::BIOS_PLAN)?;
    if !target.is_open(&plan) {
        return Ok(StepReport::skipped());
    }
    let write = Write { step, target, plan, context };
    let mut written: Written = context.own_output().unwrap_or_default();
    let seen = match absent::connect((step, names::BIOS_IDENTIFY), services, context).await? {
        Ok((bmc, found)) => {
            let done = write.attempt(&bmc, &found.discovery, written.clone()).await;
            bmc.release_idle();
            match done? {
                Attempt::Report(report) => return Ok(*report),
                Attempt::Absent(now, absence) => {
                    written = now;
                    absence
                }
            }
        }
        Err(absence) => absence,
    };
    let mut away = written.absent.clone();
    let what = format!("{} are to be written", target.word());
    away.report((step, services, context), seen, (&what, AWAY_LIMIT), |absent| {
        json!(Written { absent, ..written })
    })
    .await
}

/// The result of one attempt to write settings.
enum Attempt {
    Report(Box<StepReport>),
    /// Nothing could be read.
    Absent(Written, Absence),
}

impl Attempt {
    fn report(report: StepReport) -> Result<Self, StepError> {
        Ok(Self::Report(Box::new(report)))
    }
}

struct Write<'a> {
    step: &'static StepName,
    target: Target,
    plan: Planned,
    context: &'a StepContext,
}

impl Write<'_> {
    /// Observes, and sends what neither waits nor is in force.
    async fn attempt(
        &self,
        bmc: &Bmc,
        found: &Discovery,
        mut written: Written,
    ) -> Result<Attempt, StepError> {
        let wanted = self.target.wanted(&self.plan);
        let view = match self.target.view(bmc, found).await {
            Ok(view) => view,
            Err(error) => return Ok(Attempt::Absent(written, Absence::of(self.step, Look::of(error))?)),
        };
        written.absent.over(self.context.now());
        let diff = view.compare(&wanted);
        if diff.is_set() {
            return Attempt::report(self.stored(written, diff.is_in_force()));
        }
        let Some(sent_at) = written.sent_at else {
            return self.send(bmc, found, written).await;
        };
        if written.accepted && self.target.is_hidden(&self.plan) {
            return Attempt::report(self.unseen(written));
        }
        if self.context.now().since(sent_at) < LOOK_FOR {
            return Attempt::report(self.look_again(written));
        }
        if written.accepted {
            let names = diff.missing.join(", ");
            let summary = format!(
                "the BMC accepted {} and shows them neither as pending nor as in force: {names}",
                self.target.word()
            );
            let next = "restart the BMC (`shoal server reset-bmc SERIAL`), then order them again; the host was not restarted";
            let failed = failure(names::class::SETTINGS_NOT_STORED, self.step, summary, next);
            return Err(StepError::fail(failed).with_output(json!(written)));
        }
        if written.sent >= MAX_SENT {
            let summary = format!("the BMC did not respond to {MAX_SENT} writes of {}", self.target.word());
            let next = "restart the BMC (`shoal server reset-bmc SERIAL`), then order them again";
            let failed = failure(names::class::SETTINGS_NOT_STORED, self.step, summary, next);
            return Err(StepError::fail(failed).with_output(json!(written)));
        }
        self.send(bmc, found, written).await
    }

    async fn send(&self, bmc: &Bmc, found: &Discovery, written: Written) -> Result<Attempt, StepError> {
        if written.sent == 0 {
            let window = order(self.step, self.context)?.window();
            window.may_send(self.step, self.context, self.target.word())?;
        }
        let wanted = self.target.wanted(&self.plan);
        let unsent = Written { sent: written.sent, ..Written::default() };
        let mut written =
            Written { sent: written.sent + 1, sent_at: Some(self.context.now()), ..unsent.clone() };
        self.context.checkpoint(json!(written)).await.map_err(|_lost| lease_lost(self.step))?;
        match self.target.write(bmc, found, &wanted).await {
            Ok(change) if change.confirmed => {
                let in_force = change.observed.compare(&wanted).is_in_force();
                written.accepted = true;
                Attempt::report(self.stored(written, in_force))
            }
            Ok(_) => {
                written.accepted = true;
                Attempt::report(match self.target.is_hidden(&self.plan) {
                    true => self.unseen(written),
                    false => self.look_again(written),
                })
            }
            Err(error) if error.maybe_applied() => {
                let message = format!("it is not known whether the BMC has {}: {error}", self.target.word());
                Attempt::report(self.look_again(written).event(NewEvent::warn("bios.write-unclear", message)))
            }
            Err(error) => Err(self.not_sent(&error, &unsent)),
        }
    }

    /// The end of the step for an error that proves that nothing was stored.
    fn not_sent(&self, error: &RedfishError, unsent: &Written) -> StepError {
        if matches!(error.kind, ErrorKind::Refused { status, .. } if status != 409) {
            let summary = format!("the BMC refused {}: {}", self.target.word(), error.kind);
            let next = "nothing was changed; correct the order as the BMC says. A value may depend on another setting";
            let failed = failure(names::class::SETTINGS_REFUSED, self.step, summary, next);
            return StepError::fail(failed).with_output(json!(unsent));
        }
        from_redfish_change(self.step, error).with_output(json!(unsent))
    }

    fn stored(&self, written: Written, in_force: bool) -> StepReport {
        let how = if in_force { "in force" } else { "stored and wait for a restart of the host" };
        let word = self.target.word();
        let message = match written.sent {
            0 => format!("{word} are {how} already; nothing is sent"),
            _ => format!("{word} are {how}"),
        };
        StepReport::done().with_output(json!(written)).event(NewEvent::info("bios.written", message))
    }

    fn unseen(&self, written: Written) -> StepReport {
        let message = format!(
            "{} were accepted; this BMC shows none that wait, so the restart of the host shows them",
            self.target.word()
        );
        StepReport::done().with_output(json!(written)).event(NewEvent::info("bios.written", message))
    }

    fn look_again(&self, written: Written) -> StepReport {
        let detail = format!("{} were sent; the BMC does not show them yet", self.target.word());
        StepReport::wait(wait_for_bmc(&waits::SETTINGS_LOOK, LOOK_FOR * 4, detail))
            .with_output(json!(written))
    }
}
