//! The power of the host: on for the installation if it was off, and afterwards as it was.
//!
//! ```text
//!   was   now    because of                         restore
//!   off   on     firmware.power-on                  shut down, then forced off
//!   on    off    firmware.host-off, .shut-down      power on
//!   on    off    a loss of mains power              power on
//!   any   any    an update that may still run       left as it is: power must not be cut while firmware is written
//! ```

use super::super::host_power::PowerSteps;
use super::super::identified::{Identified, identified_bmc};
use super::super::{UpkeepServices, host_power, names};
use super::power_loss;
use super::settle;
use engine::{StepContext, StepError, StepReport};
use model::mutant::{self, Mutant};
use model::{NewEvent, StepName};

/// The steps of an installation that request power.
pub(super) const STEPS: PowerSteps<'static> = PowerSteps {
    off: &[names::FW_HOST_OFF, names::FW_SHUT_DOWN],
    on: &[names::FW_POWER_ON, names::FW_HOST_ON],
};

/// Powers a host on that is off. Some parts show their firmware only while the host has power.
pub(super) async fn on_if_off(
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::FW_POWER_ON;
    let (connected, found) = identified_bmc(STEP, names::FW_IDENTIFY, services, context).await?;
    if found.was_on() {
        return Ok(StepReport::skipped());
    }
    host_power::on(STEP, services, context, (&connected, &found), None).await
}

/// Gives the host back the power state that it had.
pub(super) async fn restore(
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::FW_POWER_RESTORE;
    let identified = context.find_output::<Identified>(names::FW_IDENTIFY).is_some();
    let changed = STEPS.acted(context) || power_loss::found(context).is_some();
    if !identified || !changed || mutant::active(Mutant::KeepsPower) {
        return Ok(StepReport::skipped());
    }
    if !settle::found_no_update(context) {
        let message =
            "the power of the host is left as it is, because it is not known that the update has ended";
        return Ok(StepReport::done().event(NewEvent::warn("firmware.power-left", message)));
    }
    host_power::restore((STEP, names::FW_IDENTIFY), &STEPS, services, context).await
}
