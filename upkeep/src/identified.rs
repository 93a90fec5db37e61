//! The output of the identity check of a run, and the connection of every later step to the BMC that it verified.

use redfish::{Discovery, PowerState};
use serde::{Deserialize, Serialize};

use super::UpkeepServices;
use super::order::UpkeepInput;
use bmc::{ConnectedBmc, failure, output_of};
use engine::{StepContext, StepError};
use model::StepName;

/// The output of the step that checks the identity of the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Identified {
    /// The address of the BMC that was checked.
    pub(super) bmc_address: String,
    /// The host and its manager.
    pub(super) discovery: Discovery,
    /// The power state before anything was changed.
    pub(super) was: PowerState,
}

impl Identified {
    /// Whether the host was on, so that it is on at the end. A state that the BMC does not show counts as on, because
    /// [`bmc::power`] takes it apart from off; a host that is powering off was asked to be off.
    pub(super) fn was_on(&self) -> bool {
        !matches!(self.was, PowerState::Off | PowerState::PoweringOff)
    }
}

/// Reads the stored input of the run.
pub(super) fn input(step: &StepName, context: &StepContext) -> Result<UpkeepInput, StepError> {
    Deserialize::deserialize(&*context.snapshot.input).map_err(|why| {
        let summary = format!("the stored input of this run cannot be read: {why}");
        StepError::fail(failure(model::class::INTERNAL, step, summary, "order it again"))
    })
}

/// Connects to the BMC that the first step of the run verified.
pub(super) async fn identified_bmc(
    step: &StepName,
    by: &StepName,
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<(ConnectedBmc, Identified), StepError> {
    let found = output_of::<Identified>(step, context, by)?;
    let serial = input(step, context)?.server;
    let verified = (found.bmc_address.as_str(), &found.discovery);
    let connected = services.bmc.connect_verified(step, context, &serial, verified).await?;
    Ok((connected, found))
}
