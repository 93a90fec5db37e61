//! The power of a host that a run restarts: on under a permit, and at the end as it was.
//!
//! A host was on when the run identified it, or when the first power request of the run was sent: an operator may have switched it on in
//! between, while the run waited or sent an image. Such a host is in use. It is restarted only where the order permits that.
//!
//! ```text
//!   was   now    restore
//!   off   on     shut down, then forced off
//!   off   off    a power-on is not shown yet: wait for it, a minute at most
//!   on    off    power on
//!   on    on     a shutdown is under way: wait for its end, ten minutes at most
//!   any   any    as it is, when no step of the run has sent a power request
//! ```

use std::time::Duration;

use redfish::PowerState;
use serde::Deserialize;
use serde_json::json;

use super::UpkeepServices;
use super::identified::{Identified, identified_bmc};
use super::waits::SHUTDOWN_PENDING;
use bmc::power::{
    self, HOST_GRACE, KnownHost, POWER_TIMEOUT, PowerRequest, RESEND_AFTER, SHORT_GRACE, power_on_permit,
};
use bmc::{ConnectedBmc, from_redfish, wait_for_bmc, waits};
use engine::{PermitRequest, StepContext, StepError, StepOutcome, StepReport, WaitRequest};
use model::{Effect, NewEvent, Position, StepName, StepPhase, StepRecord, Time};

/// Powers the host on under a permit, which ends when the host is shown as on.
pub(super) async fn on(
    step: &StepName,
    services: &UpkeepServices,
    context: &StepContext,
    (connected, found): (&ConnectedBmc, &Identified),
    off_at: Option<Time>,
) -> Result<StepReport, StepError> {
    let request: PowerRequest = context.own_output().unwrap_or_default();
    let left = connected.bmc.profile().settle_left(None, off_at.map(|at| context.now().since(at)));
    if request.sent == 0 && left > Duration::ZERO {
        let detail = "the host is off; this BMC needs time before a power-on";
        let wait = wait_for_bmc(&waits::SETTLE, left + POWER_TIMEOUT, detail);
        return Ok(StepReport::wait(WaitRequest { poll: Some(left), ..wait }));
    }
    if request.sent == 0
        && let Some(capacity) = services.power_ons
        && !context.has_permit(&power_on_permit())
    {
        return Ok(connected.report(StepReport::new(StepOutcome::Permit(PermitRequest {
            resource: power_on_permit(),
            capacity,
            reason: &waits::POWER_PERMIT,
            signals: Vec::new(),
            detail: "MAX_POWER_ONS hosts are powering on".to_owned(),
        }))));
    }
    let report = power::power_on(step, context, connected, &found.discovery.system, async { Ok(()) }).await?;
    let is_over = report.outcome == StepOutcome::Done && context.has_permit(&power_on_permit());
    let report = match is_over {
        true => report.effect(Effect::PermitReleased { resource: power_on_permit() }),
        false => report,
    };
    Ok(connected.report(report))
}

/// Shuts the host down. A system that is in use has longer for it than one that this run has started.
pub(super) async fn shut_down(
    step: &StepName,
    context: &StepContext,
    (connected, found): (&ConnectedBmc, &Identified),
    in_use: bool,
) -> Result<StepReport, StepError> {
    let grace = if in_use { HOST_GRACE } else { SHORT_GRACE };
    power::shut_down(step, context, connected, &found.discovery.system, KnownHost::Unknown, grace).await
}

/// The steps of a run that request power.
pub(super) struct PowerSteps<'a> {
    /// The steps that end with a host that is off.
    pub(super) off: &'a [&'a StepName],
    /// The steps that end with a host that is on.
    pub(super) on: &'a [&'a StepName],
}

impl PowerSteps<'_> {
    /// The requests of steps, with the record of each. The checkpoint is durable before a request is sent, so without one nothing was
    /// sent.
    fn requests<'c>(
        context: &'c StepContext,
        steps: &[&'c StepName],
    ) -> impl Iterator<Item = (&'c StepRecord, PowerRequest)> {
        let records = steps.iter().flat_map(|step| context.snapshot.records_of(step));
        records.filter_map(|record| {
            let request = PowerRequest::deserialize(&record.output).ok()?;
            (request.sent > 0 || request.graceful_at.is_some()).then_some((record, request))
        })
    }

    /// Whether one of the steps has sent a request.
    pub(super) fn acted(&self, context: &StepContext) -> bool {
        [self.off, self.on].into_iter().any(|steps| Self::requests(context, steps).next().is_some())
    }

    /// Whether the host was on before this run changed its power.
    pub(super) fn was_in_use(&self, context: &StepContext, found: &Identified) -> bool {
        found.was_on() || was_found_up(Self::requests(context, self.off), Self::requests(context, self.on))
    }

    /// Whether the host is in use: it was on before this run changed its power, or it was switched on and not by this run.
    pub(super) async fn is_in_use(
        &self,
        step: &StepName,
        context: &StepContext,
        (connected, found): (&ConnectedBmc, &Identified),
    ) -> Result<bool, StepError> {
        let was = self.was_in_use(context, found);
        if was || self.acted(context) {
            return Ok(was);
        }
        let state = connected.bmc.power_state(&found.discovery.system).await;
        Ok(power::is_up(state.map_err(|error| from_redfish(step, &error))?))
    }

    /// When the newest shutdown was requested that no read has shown the end of: the host may still go off.
    fn going_off(&self, context: &StepContext) -> Option<Time> {
        let open = Self::requests(context, self.off).filter(|(record, _)| record.phase != StepPhase::Done);
        let newest = open.max_by_key(|(record, _)| record.at);
        newest.and_then(|(_, request)| request.graceful_at.max(request.sent_at))
    }

    /// When the newest power-on was requested that no read has shown: the host may still come up.
    fn coming_up(&self, context: &StepContext) -> Option<Time> {
        let open = Self::requests(context, self.on)
            .filter(|(record, request)| record.phase != StepPhase::Done || request.unconfirmed);
        open.max_by_key(|(record, _)| record.at).and_then(|(_, request)| request.sent_at)
    }
}

/// Whether a step that switches the host off found it on before a step of the same run had switched it on. The order is that of the
/// plan: between two requests the controller may have restarted under another time.
fn was_found_up<'c>(
    off: impl Iterator<Item = (&'c StepRecord, PowerRequest)>,
    on: impl Iterator<Item = (&'c StepRecord, PowerRequest)>,
) -> bool {
    let found_up: Option<Position> =
        off.filter(|(_, request)| request.found_up).map(|(record, _)| record.at).min();
    let switched_on = on.map(|(record, _)| record.at).min();
    found_up.is_some_and(|off| switched_on.is_none_or(|on| off < on))
}

/// Gives the host back the power state that it had before this run changed it; `by` is the step that identified it. A request that
/// the end of the run has overtaken is let come true first: it cannot be taken back.
pub(super) async fn restore(
    (step, by): (&StepName, &StepName),
    steps: &PowerSteps<'_>,
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    let (connected, found) = identified_bmc(step, by, services, context).await?;
    let system = &found.discovery.system;
    let state = connected.bmc.power_state(system).await.map_err(|error| from_redfish(step, &error))?;
    let mine: PowerRequest = context.own_output().unwrap_or_default();
    let begun = mine.sent > 0 || mine.graceful_at.is_some();
    let is_open = |since: Option<Time>, limit| since.is_some_and(|since| context.now().since(since) < limit);
    let wait = |reason, limit, detail| {
        Ok(StepReport::wait(wait_for_bmc(reason, limit, detail)).with_output(json!(mine)))
    };
    if steps.was_in_use(context, &found) {
        let going_off = state == PowerState::PoweringOff
            || (power::is_up(state) && is_open(steps.going_off(context), HOST_GRACE));
        if !begun && going_off {
            let detail =
                "the host was asked to go off and the run has ended; it is powered on again if it does";
            return wait(&SHUTDOWN_PENDING, HOST_GRACE + POWER_TIMEOUT, detail);
        }
        if !begun && power::is_up(state) {
            return Ok(StepReport::done().event(NewEvent::info("redfish.power", "the host is on, as it was")));
        }
        return power::power_on(step, context, &connected, system, async { Ok(()) }).await;
    }
    if !begun && state == PowerState::Off {
        if is_open(steps.coming_up(context), RESEND_AFTER) {
            let detail = "power-on was requested a moment ago, so the host may still come up; it is read again before it \
                          counts as off";
            return wait(&waits::POWER_OFF, POWER_TIMEOUT, detail);
        }
        return Ok(StepReport::done().event(NewEvent::info("redfish.power", "the host is off, as it was")));
    }
    power::shut_down(step, context, &connected, system, KnownHost::Unknown, SHORT_GRACE).await
}

#[cfg(test)]
mod tests {
    use model::Stage;

    use super::*;
    use crate::names;

    fn requested(name: &StepName, index: u32, found_up: bool, at: &str) -> (StepRecord, PowerRequest) {
        let sent_at: Time = at.parse().unwrap();
        let record = StepRecord {
            at: Position { stage: Stage::Forward, index },
            name: name.clone(),
            key: String::new(),
            attempt: 1,
            epoch: 1,
            phase: StepPhase::Done,
            output: serde_json::Value::Null,
            started_at: sent_at,
            ended_at: Some(sent_at),
        };
        (record, PowerRequest { sent: 1, found_up, sent_at: Some(sent_at), ..PowerRequest::default() })
    }

    #[test]
    fn a_host_that_the_run_switched_on_is_not_in_use_though_the_clock_was_set_back_before_its_shutdown() {
        let on = requested(names::FW_POWER_ON, 2, false, "2027-01-15T08:20:30Z");
        let off = requested(names::FW_SHUT_DOWN, 6, true, "2027-01-15T08:17:22Z");
        let again = requested(names::FW_HOST_ON, 7, false, "2027-01-15T08:17:24Z");
        type Requested = (StepRecord, PowerRequest);
        let found_up = |off: &[&Requested], on: &[&Requested]| {
            let [off, on] =
                [off, on].map(|list| list.iter().map(|(record, request)| (record, request.clone())));
            was_found_up(off, on)
        };
        assert!(!found_up(&[&off], &[&on, &again]));
        assert!(found_up(&[&off], &[&again]), "an operator switched it on before the shutdown");
    }
}
