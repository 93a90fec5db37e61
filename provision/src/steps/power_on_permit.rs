//! The power-on permit of a job whose host was powered on: held until the host boots or its settle time is over, then released
//! for the next host. The steps that wait for the end of an installation share it.

use std::time::Duration;

use super::super::services::Services;
use super::names;
use bmc::power::power_on_permit;
use engine::{StepContext, StepReport};
use model::Effect;

/// The time for which the host still counts as powering on, if the job holds a permit.
pub(super) fn time_left(services: &Services, context: &StepContext) -> Option<Duration> {
    let limits = &services.settings.limits;
    if limits.power_ons.is_none() || !context.has_permit(&power_on_permit()) {
        return None;
    }
    let ended = context.snapshot.records_of(names::POWER_ON).filter(|record| record.ended_at.is_some());
    let on = ended.max_by_key(|record| record.at).and_then(|record| record.ended_at);
    let left = on.unwrap_or(context.now()).plus(limits.power_on_settle).since(context.now());
    (left > Duration::ZERO).then_some(left)
}

/// Adds the release of the permit to a report once the host no longer counts as powering on.
pub(super) fn release_when_over(
    report: StepReport,
    left: Option<Duration>,
    context: &StepContext,
) -> StepReport {
    match left {
        None if context.has_permit(&power_on_permit()) => {
            report.effect(Effect::PermitReleased { resource: power_on_permit() })
        }
        _ => report,
    }
}
