//! The steps, one file per action. A step observes before it acts and can be called again at any time.

mod bmc_back;
mod bmc_reset;
pub(super) mod identify;
mod inventory_read;
mod power_off;
mod power_on;
mod power_restore;
pub(super) mod release;

use std::sync::Arc;

use async_trait::async_trait;

use super::{UpkeepServices, names};
use engine::{Step, StepContext, StepPolicy, StepReport};
use model::{Snapshot, StepName, Wait};

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
            name if is_release(name) => StepPolicy::last(),
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
        bmc::finished(result.into(), context, &[names::POWER_IDENTIFY, names::BMC_IDENTIFY])
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
