//! The steps, one file per action. A step observes before it acts and can be called again at any time.

mod bmc_back;
mod bmc_reset;
mod identify;
mod inventory_read;
mod power_off;
mod power_on;
mod power_restore;
mod release;

use std::sync::Arc;

use async_trait::async_trait;
use redfish::{Discovery, PowerState};
use serde::{Deserialize, Serialize};

use super::order::UpkeepInput;
use super::{UpkeepServices, names};
use bmc::{ConnectedBmc, failure, output_of};
use engine::model::{Snapshot, StepName, Wait};
use engine::{Step, StepContext, StepError, StepPolicy, StepReport};

/// The step of that name.
pub(super) fn step(name: &StepName, services: &Arc<UpkeepServices>) -> Option<Arc<dyn Step>> {
    let known = [
        names::POWER_IDENTIFY,
        names::POWER_OFF,
        names::POWER_ON,
        names::POWER_RESTORE,
        names::POWER_RELEASE,
        names::BMC_IDENTIFY,
        names::RESET,
        names::BACK,
        names::BMC_RELEASE,
        names::READ,
        names::INVENTORY_RELEASE,
    ];
    let name = known.into_iter().find(|known| *known == name)?;
    Some(Arc::new(UpkeepStep { name, services: Arc::clone(services) }))
}

struct UpkeepStep {
    name: &'static StepName,
    services: Arc<UpkeepServices>,
}

#[async_trait]
impl Step for UpkeepStep {
    fn policy(&self) -> StepPolicy {
        let bmc = &self.services.bmc;
        match self.name {
            name if is_identify(name) || name == names::READ => bmc.reading_policy(),
            name if is_release(name) => {
                StepPolicy { interruptible: false, runs_past_deadline: true, ..StepPolicy::default() }
            }
            // A BMC that restarts takes twenty minutes at most, and its step observes once in two seconds.
            name if name == names::RESET || name == names::BACK => {
                StepPolicy { budget: bmc_reset::BUDGET, ..bmc.changing_policy() }
            }
            _ => StepPolicy { budget: power_off::BUDGET, ..bmc.changing_policy() },
        }
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        let services = &*self.services;
        let result = match self.name {
            name if is_identify(name) => identify::run(name, services, context).await,
            name if name == names::POWER_OFF => power_off::run(services, context).await,
            name if name == names::POWER_ON => power_on::run(services, context).await,
            name if name == names::POWER_RESTORE => power_restore::run(services, context).await,
            name if name == names::RESET => bmc_reset::run(services, context).await,
            name if name == names::BACK => bmc_back::run(services, context).await,
            name if name == names::READ => inventory_read::run(services, context).await,
            name => release::run(name, services, context).await,
        };
        bmc::name_server(result.into(), context)
    }

    fn on_wait_deadline(&self, _: &Snapshot, wait: &Wait) -> StepReport {
        bmc::overdue(wait)
    }
}

fn is_identify(name: &StepName) -> bool {
    name == names::POWER_IDENTIFY || name == names::BMC_IDENTIFY
}

fn is_release(name: &StepName) -> bool {
    [names::POWER_RELEASE, names::BMC_RELEASE, names::INVENTORY_RELEASE].contains(&name)
}

/// What the identity check found; the output of the first step.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Identified {
    /// The address of the BMC that was checked.
    bmc_address: String,
    /// The host and its manager.
    discovery: Discovery,
    /// The power state before anything was changed.
    was: PowerState,
}

impl Identified {
    /// Whether the host was on, so that it is on at the end. A state that the BMC does not show counts as on, because
    /// [`bmc::power`] takes it apart from off; a host that is powering off was asked to be off.
    fn was_on(&self) -> bool {
        !matches!(self.was, PowerState::Off | PowerState::PoweringOff)
    }
}

/// Reads the stored input of the run.
fn input(step: &StepName, context: &StepContext) -> Result<UpkeepInput, StepError> {
    Deserialize::deserialize(&*context.snapshot.input).map_err(|why| {
        let summary = format!("the stored input of this run cannot be read: {why}");
        StepError::fail(failure(engine::class::INTERNAL, step, summary, "order it again"))
    })
}

/// Connects to the BMC that the first step of the run verified.
async fn identified_bmc(
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
