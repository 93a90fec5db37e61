//! The wait of a job with `delivery: media`: its machine has no network, and reports by reads of its medium.
//!
//! ```text
//!  report by media: success --host off: confirmed--------------------> done
//!                           `-on: every 10 s, 3 minutes at most------> done, with a warning
//!                   failed  -----------------------------------------> failed
//!  no report, every 30 s:   host on, or the medium was not read -----> wait
//!                           host off at two looks, and
//!                             all steps are done --------------------> done, by the power state
//!                             the BMC reads from a copy, so that
//!                               the machine cannot say anything -----> done, by the power state
//!                             in the middle of a step, or before it
//!                               said anything -----------------------> failed
//! ```
//!
//! The agent powers the machine off after a success and leaves it on after a failure. So the power state confirms a result, and
//! replaces it where reads of the machine do not reach the controller.
//!
//! Invariant: nothing is changed here; a host that is off stays off until cleanup.

use std::sync::Arc;
use std::time::Duration;

use redfish::PowerState;
use serde_json::json;

use super::super::media_report::{Heard, heard};
use super::super::outputs::{BootLook, Discovered};
use super::super::second_way::{self, PoweredOn};
use super::super::services::Services;
use super::super::{class, waits};
use super::boot_again::OBSERVE_TIMEOUT;
use super::reported::{conclude, observe_failed, observe_timed_out};
use super::{discovered_bmc, names, signs};
use bmc::failure;
use bmc::power::POWER_TIMEOUT;
use engine::{StepContext, StepOutcome, StepReport, WaitLimit, WaitRequest};
use model::{Failure, NewEvent, Signal, StepName};

const STEP: &StepName = names::AWAIT_REPORT;
/// The time in which a machine that reported success powers off.
const CONFIRM_WITHIN: Duration = Duration::from_secs(180);
const CONFIRM_POLL: Duration = Duration::from_secs(10);
/// The pause between two looks at the power state.
pub(super) const OBSERVE_EVERY: Duration = Duration::from_secs(30);
/// The time after a power-on in which "off" may be stale.
const STALE_FOR: Duration = Duration::from_secs(60);

/// Whether a report came by the medium and needs the power state as its confirmation.
pub(super) fn needs_confirmation(report: &Signal) -> bool {
    let said = |key: &str| report.payload.get(key).and_then(serde_json::Value::as_str);
    said("via") == Some("media") && said("status") == Some("success")
}

/// Concludes a report that came by the medium, or waits for its confirmation.
pub(super) async fn confirm(
    services: &Arc<Services>,
    context: &StepContext,
    report: &Signal,
    limit: WaitLimit,
) -> StepReport {
    let mut past: BootLook = context.own_output().unwrap_or_default();
    let (power, silent) = power(services, context, &mut past).await;
    if power == Some(PowerState::Off) {
        let event =
            NewEvent::info("report.confirmed", "the machine powered itself off, which confirms the report");
        return conclude(report).event(event);
    }
    let waited = context.now().since(report.received_at);
    let left = limit.deadline(context.now()).since(context.now());
    if waited >= CONFIRM_WITHIN || left <= CONFIRM_POLL {
        let message = format!(
            "success was read from the medium, and the machine did not power off within {} s; the report counts",
            waited.as_secs()
        );
        return conclude(report).event(NewEvent::warn("report.unconfirmed", message));
    }
    let mut waiting = StepReport::new(StepOutcome::Wait(WaitRequest {
        reason: &waits::MEDIA_REPORT,
        signals: Vec::new(),
        poll: Some(CONFIRM_POLL),
        limit,
        detail: "success was read from the medium; the machine powers itself off, which confirms it"
            .to_owned(),
    }));
    waiting.events.extend(silent);
    waiting.with_output(json!(past))
}

/// Reads whether the power state ends a wait without a report. Returns the report of the step if it does, otherwise the events of
/// the read. One read is not enough: the BMC may show an older state, and firmware may restart the host in its self-test.
pub(super) async fn by_power(
    services: &Arc<Services>,
    context: &StepContext,
    past: &mut BootLook,
) -> Result<StepReport, Vec<NewEvent>> {
    let Some(powered_on) = second_way::powered_on(&context.snapshot) else { return Err(Vec::new()) };
    let now = context.now();
    let heard = heard(&context.snapshot);
    if now.since(powered_on.at) < if heard.started { STALE_FOR } else { POWER_TIMEOUT } {
        return Err(Vec::new());
    }
    let (power, silent) = power(services, context, past).await;
    if power != Some(PowerState::Off) {
        if power.is_some() {
            (past.off_since, past.off_recorded) = (None, false);
        }
        return Err(silent.into_iter().collect());
    }
    if now.since(*past.off_since.get_or_insert(now)) < OBSERVE_EVERY {
        return Err(Vec::new());
    }
    let why = match &heard {
        Heard { complete: true, .. } => "it said that all steps are done",
        Heard { unusable: None, started: true, done, .. } => {
            let after = done
                .map_or_else(String::new, |unit| format!("; the last step that it said is done is {unit}"));
            return Ok(StepReport::fail(powered_off(&format!("it said that it is installed{after}"))));
        }
        Heard { unusable, .. } => match boots(services, context, powered_on).await {
            Boots::Unseen => {
                let message = "the host is off, and its media were not read since the power-on; the job does not power it on";
                let event = NewEvent::warn("redfish.host-off", message);
                let known = std::mem::replace(&mut past.off_recorded, true);
                return Err(Some(event).filter(|_| !known).into_iter().collect());
            }
            Boots::FromMedium if unusable.is_none() => {
                return Ok(StepReport::fail(powered_off("it said anything by its medium")));
            }
            _ => "its medium is copied or cached, so it cannot say more",
        },
    };
    let message = format!(
        "the machine powered itself off, as it does after a success ({why}): the installation is taken as finished"
    );
    let event =
        NewEvent::warn("install.observed", message).with(json!({ "via": "media", "sign": "power_off" }));
    Ok(StepReport::done().with_output(json!({ "completion": "observed", "at": now })).event(event))
}

fn powered_off(before: &str) -> Failure {
    failure(
        class::INSTALLER,
        STEP,
        format!("the machine powered off before {before}"),
        "start the machine and look at its console: if the controller was away meanwhile, success was said unheard, and the installed system \
         runs. Otherwise check its power supply, then retry the job, which installs it again",
    )
}

/// The way in which a machine boots, as far as the reads of its media show it.
enum Boots {
    /// The machine boots from its media, which were read since the power-on.
    FromMedium,
    /// The machine may boot from a copy of its media, of which the BMC has read much before the power-on and nothing since.
    FromCopy,
    /// Nothing shows that the machine has booted, or it cannot be known.
    Unseen,
}

async fn boots(services: &Arc<Services>, context: &StepContext, powered_on: PoweredOn) -> Boots {
    let Some(found) = context.find_output::<Discovered>(names::DISCOVER) else { return Boots::Unseen };
    let found = super::slot_fallback::current(&context.snapshot, found);
    if services.grants.misses_reads_after(powered_on.at) {
        return Boots::Unseen;
    }
    if let Some(mark) = powered_on.media_before
        && signs::media_read_since(STEP, services, context, &found, mark).await.unwrap_or(false)
    {
        return Boots::FromMedium;
    }
    match signs::is_copied(STEP, services, context, &found).await {
        Ok(true) => Boots::FromCopy,
        Ok(false) | Err(_) => Boots::Unseen,
    }
}

/// The sentence of the wait.
pub(super) fn detail(context: &StepContext) -> String {
    match heard(&context.snapshot) {
        Heard { unusable: Some(words), .. } => words,
        Heard { done: Some(unit), .. } => format!("the machine said by its medium that {unit} is done"),
        Heard { started: true, .. } => "the machine said by its medium that the installation runs".to_owned(),
        Heard { .. } => "the host was powered on; it has said nothing by its medium yet".to_owned(),
    }
}

/// Reads the power state. When the BMC begins to be silent, the event says why.
async fn power(
    services: &Arc<Services>,
    context: &StepContext,
    past: &mut BootLook,
) -> (Option<PowerState>, Option<NewEvent>) {
    let read = async {
        let known = discovered_bmc(STEP, services, context).await;
        let (connected, found) = known.map_err(|error| observe_failed(&error))?;
        let power = connected.bmc.power_state(&found.discovery.system).await;
        power.map_err(|error| NewEvent::warn("redfish.observe-failed", error.to_string()))
    };
    let (power, failed) = match tokio::time::timeout(OBSERVE_TIMEOUT, read).await {
        Ok(Ok(power)) => (Some(power), None),
        Ok(Err(event)) => (None, Some(event)),
        Err(_elapsed) => (None, Some(observe_timed_out(OBSERVE_TIMEOUT))),
    };
    (power, past.note(failed))
}
