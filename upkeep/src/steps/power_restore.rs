//! `power.restore`: gives the host back the power state that it had, whatever ended the cycle.
//!
//! ```text
//!   never identified, host was off, or no request was made      -> skipped
//!   power.on has finished                                       -> skipped
//!   a shutdown is under way (cancelled cycle)                   -> wait for its end, two minutes at most
//!   host off                                                    -> power on, read back
//! ```

use std::time::Duration;

use redfish::PowerState;
use serde_json::json;

use super::super::identified::{Identified, identified_bmc};
use super::super::{UpkeepServices, names, waits};
use bmc::power::{self, PowerRequest};
use bmc::{from_redfish, wait_for_bmc};
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, StepName, StepPhase};

const STEP: &StepName = names::POWER_RESTORE;
/// How long a shutdown that was requested may still end.
const PENDING_SHUTDOWN: Duration = Duration::from_secs(120);

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let Some(found) = context.find_output::<Identified>(names::POWER_IDENTIFY) else {
        return Ok(StepReport::skipped());
    };
    // The checkpoint is durable before a request is sent, so without one nothing was sent.
    let request: PowerRequest = context.find_output(names::POWER_OFF).unwrap_or_default();
    let Some(asked_at) = request.graceful_at.or(request.sent_at).filter(|_| found.was_on()) else {
        return Ok(StepReport::skipped());
    };
    let is_done = |step| context.snapshot.records_of(step).any(|record| record.phase == StepPhase::Done);
    if is_done(names::POWER_ON) {
        return Ok(StepReport::skipped());
    }
    let (connected, found) = identified_bmc(STEP, names::POWER_IDENTIFY, services, context).await?;
    let system = &found.discovery.system;
    let mine: PowerRequest = context.own_output().unwrap_or_default();
    let state = connected.bmc.power_state(system).await.map_err(|error| from_redfish(STEP, &error))?;
    if mine.sent == 0 && power::is_up(state) {
        // What is under way ends off later; it cannot be taken back.
        let pending = context.now().since(asked_at) < PENDING_SHUTDOWN;
        if pending && !is_done(names::POWER_OFF) {
            let detail =
                "the host was asked to go off and the cycle has ended; it is powered on again if it does";
            let wait = wait_for_bmc(&waits::SHUTDOWN_PENDING, PENDING_SHUTDOWN * 2, detail);
            return Ok(StepReport::wait(wait).with_output(json!(mine)));
        }
        return Ok(StepReport::done().event(NewEvent::info("redfish.power", "the host is on, as it was")));
    }
    if mine.sent == 0 && state == PowerState::PoweringOff {
        let detail = "the host is powering off; it is powered on again";
        let wait = wait_for_bmc(&waits::SHUTDOWN_PENDING, PENDING_SHUTDOWN * 2, detail);
        return Ok(StepReport::wait(wait).with_output(json!(mine)));
    }
    power::power_on(STEP, context, &connected, system, async { Ok(()) }).await
}
