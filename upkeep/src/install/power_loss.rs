//! A server that lost its power while its BMC worked on an update: what proves it, and what follows.
//!
//! ```text
//!   the component is not the firmware of the BMC, which restarts for it anyway   ┐
//!   the BMC was away, and its LastResetTime is not the one before the upload     │
//!   the host is off, and this run left it on                                     ├─ in all reads of two minutes ─► power was lost:
//!   no task of the update runs, and the service is not busy                      ┘                  nothing is flashed any more
//!
//!   the old version, or none     -> failure `power_lost`; the image is not sent a second time
//!   the new version              -> verified; a further component is not sent before an operator has looked
//!   in both cases                -> a host that was on is powered on again
//! ```
//!
//! Each of these alone says nothing: a BMC may lose its tasks and flash on, an operator may have switched the host off, some updates
//! switch it off themselves, and a BMC that has just started may show a running host as off. Without the proof, the update has its whole
//! time, and the power of the host is left as it is. A BMC that does not show `LastResetTime` proves nothing.

use std::time::Duration;

use redfish::{Bmc, PowerState, RedfishError, RestartSince};
use serde::{Deserialize, Serialize};

use super::super::absent::{Absent, Away};
use super::super::identified::Identified;
use super::super::names;
use super::component::{Current, record};
use bmc::failure;
use bmc::power::PowerRequest;
use engine::{StepContext, StepError};
use firmware::Component;
use model::{Failure, NewEvent, StepName, StepPhase, Time};

/// How long the host must be shown as off.
const OFF_FOR: Duration = Duration::from_secs(120);
/// A BMC that lost power is away for longer: it starts. One read without a response is no absence of this kind.
const STARTS_FOR: Duration = Duration::from_secs(30);
/// The longest delay between two reads that are one after the other.
const READ_GAP: Duration = Duration::from_secs(60);

/// What the reads of a step have shown; a part of its output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct HostPower {
    /// The first and the last of the reads, one after the other, that have shown the host as off.
    off: Option<(Time, Time)>,
    /// Whether the look of this call was [`Sign::Unclear`].
    #[serde(skip)]
    unclear: bool,
    /// The loss of power, once it is certain.
    lost: Option<PowerLoss>,
}

/// A loss of power in the middle of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PowerLoss {
    /// The absence of the BMC.
    away: Away,
}

/// What the power of the host says about an update whose BMC was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// Nothing proves a loss of power.
    None,
    /// Everything proves it, and not for long enough.
    Unclear,
    Lost(PowerLoss),
}

/// The part of a step's output that can show an absence or a loss of power.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    absent: Absent,
    power: HostPower,
    /// The `LastResetTime` of the BMC before the image was sent; of the upload.
    last_reset: Option<String>,
}

impl HostPower {
    /// Reads what proves a loss of power, if the BMC was away since the image of the component was sent. `absent` is what this step has
    /// seen.
    pub(super) async fn look(
        &mut self,
        context: &StepContext,
        (bmc, found): (&Bmc, &Identified),
        (current, absent): (&Current, &Absent),
    ) -> Result<Sign, RedfishError> {
        let key = current.item.key();
        let found_before = || shown_by_steps(context, &key).find_map(|shown| shown.power.lost);
        if let Some(lost) = self.lost.or_else(found_before) {
            self.lost = Some(lost);
            return Ok(Sign::Lost(lost));
        }
        let now = context.now();
        let started = |absent: &Absent| absent.away(now).filter(|away| away.time() >= STARTS_FOR);
        let shown = || shown_by_steps(context, &key).find_map(|shown| started(&shown.absent));
        let may_be = current.item.component != Component::Bmc && left_on(context, found);
        let Some(away) = started(absent).or_else(shown).filter(|_| may_be) else {
            return Ok(Sign::None);
        };
        let is_proven = bmc.power_state(&found.discovery.system).await? == PowerState::Off
            && has_restarted(context, bmc, found, &key).await?
            && bmc.update_capability().await?.busy.is_none();
        if !is_proven {
            self.off = None;
            return Ok(Sign::None);
        }
        let first = match self.off {
            Some((first, last)) if now.since(last) <= READ_GAP => first,
            _ => now,
        };
        self.off = Some((first, now));
        if now.since(first) < OFF_FOR {
            self.unclear = true;
            return Ok(Sign::Unclear);
        }
        self.lost = Some(PowerLoss { away });
        Ok(Sign::Lost(PowerLoss { away }))
    }

    /// Whether the look of this call was [`Sign::Unclear`].
    pub(super) fn is_unclear(&self) -> bool {
        self.unclear
    }
}

/// Whether the BMC has restarted since the image of the component was sent.
async fn has_restarted(
    context: &StepContext,
    bmc: &Bmc,
    found: &Identified,
    key: &str,
) -> Result<bool, RedfishError> {
    let before = shown_by_steps(context, key).find_map(|shown| shown.last_reset);
    let (Some(before), Some(manager)) = (before, &found.discovery.manager) else {
        return Ok(false);
    };
    Ok(bmc.manager_status(manager).await?.restart_since(Some(&before)) == RestartSince::Yes)
}

impl PowerLoss {
    /// The event of the step that has found it.
    pub(super) fn event(&self, what: &str) -> NewEvent {
        let minutes = self.minutes();
        let message = format!(
            "the server lost power while its BMC worked on {what}: the BMC was away for {minutes} min, and the host is off although \
             this run left it on"
        );
        NewEvent::warn("firmware.power-lost", message)
    }

    /// The failure of a component that is not installed. `said` is the word of the BMC about its task, `installed` what it shows.
    pub(super) fn failure(&self, step: &StepName, current: &Current, said: &str, installed: &str) -> Failure {
        let summary = format!(
            "{} is not installed: the server lost power while its BMC worked on it. The BMC was away for {} min and {said}, and the host \
             was off although this run left it on. The BMC shows {installed}; the image is not sent a second time",
            current.item.what(),
            self.minutes()
        );
        let next = "check the power supplies and the feed of the server; when it runs, read the inventory (`shoal server inventory SERIAL \
                    --refresh`) and order the installation again. A component without a version, or a host that does not start, needs \
                    the recovery of its vendor first";
        failure(names::class::POWER_LOST, step, summary, next)
    }

    fn minutes(&self) -> u64 {
        self.away.time().as_secs().div_ceil(60)
    }
}

/// The loss of power that an earlier step of the run has found during the update of a component.
pub(super) fn found(context: &StepContext) -> Option<PowerLoss> {
    [names::FW_UPLOAD, names::FW_WATCH, names::FW_VERIFY, names::FW_SETTLE]
        .into_iter()
        .flat_map(|step| context.snapshot.records_of(step))
        .filter_map(|record| Shown::deserialize(&record.output).ok())
        .find_map(|shown| shown.power.lost)
}

/// Ends the step that would send a further component of a server that has lost power.
pub(super) fn may_send(step: &StepName, context: &StepContext, what: &str) -> Result<(), StepError> {
    if found(context).is_none() {
        return Ok(());
    }
    let summary = format!(
        "{what} is not sent: the server lost power during the update of another component, which has its new version"
    );
    let next = "check the power supplies and the feed of the server, then order the installation again: it reads every version and \
                sends what is missing";
    Err(StepError::fail(failure(names::class::POWER_LOST, step, summary, next)))
}

/// What the steps of a component that wait for the BMC have shown, the last one first.
fn shown_by_steps<'a>(context: &'a StepContext, key: &'a str) -> impl Iterator<Item = Shown> + 'a {
    [names::FW_VERIFY, names::FW_WATCH, names::FW_UPLOAD]
        .into_iter()
        .filter_map(move |step| record(context, step, key))
        .filter_map(|record| Shown::deserialize(&record.output).ok())
}

/// Whether the host is on as far as this run knows: it was on, and the last power request of the run has switched it on.
fn left_on(context: &StepContext, found: &Identified) -> bool {
    let requests = |steps: &[&'static StepName], needs_done: bool| {
        let records = steps.iter().flat_map(|step| context.snapshot.records_of(step));
        let sent = records.filter_map(|record| {
            let request = PowerRequest::deserialize(&record.output).ok()?;
            request.sent_at.or(request.graceful_at)?;
            (record.phase == StepPhase::Done || !needs_done).then_some(record.at)
        });
        sent.max()
    };
    let off = requests(&[names::FW_HOST_OFF, names::FW_SHUT_DOWN], false);
    let on = requests(&[names::FW_POWER_ON, names::FW_HOST_ON], true);
    match (on, off) {
        (None, None) => found.was_on(),
        (on, off) => on > off,
    }
}
