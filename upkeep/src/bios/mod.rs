//! `bios.apply`: changes settings of the BIOS and the persistent boot order of one server.
//!
//! ```text
//!  validate ─► identify ─► plan ─► write ─► boot-order ─► shut-down ─► host-on ─► verify
//!                           │        │          │             │                      └── three reads with all values in force
//!                           │        │          │             └── only where the values wait for a restart; forbidden: wait
//!                           │        └──────────┴── look, stored intent, then one PATCH each; after a crash: look first
//!                           └── one of them refused: failure, nothing was sent; all of them in force: the rest is skipped
//!  finish: settle (says what still waits) ─► power-restore ─► release
//!
//!  the BMC shows values as        write                         restart
//!  in force at once               done                          skipped
//!  pending (settings object)      done                          yes
//!  nothing (no settings object)   done with its response        yes: only the restart shows the values
//! ```
//!
//! Invariants
//! - Nothing is sent when one wanted value is refused, and nothing before the identity check.
//! - What was sent is stored before it is sent. A successor that finds the values pending or in force sends nothing; one that
//!   finds nothing looks for a minute first. A BMC that cannot show pending values gets the same values again.
//! - The end is what reads of the values show, three times, never a response and never a task.
//! - Attributes that the registry marks as passwords are refused, and their values are in no plan, event or error.

mod plan;
mod read;
mod restart;
mod settle;
mod target;
mod validate;
mod verify;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::steps::{identify, release};
use super::{UpkeepServices, names};
use engine::{Step, StepContext, StepPolicy, StepReport};
use model::{Snapshot, StepName, Wait};

pub use plan::{SettingItem, planned};
pub use read::{AttributeRow, BiosShown, Wanted, shown};

/// The time limit of a step that waits for an operator who restarts the host, or for a host that boots.
const PATIENCE: Duration = Duration::from_secs(14 * 3600);

/// The step of that name.
pub(super) fn step(name: &StepName, services: &Arc<UpkeepServices>) -> Option<Arc<dyn Step>> {
    let plan = names::plan(super::BIOS_APPLY);
    let name = plan.forward.iter().chain(plan.finish).find(|known| **known == name)?;
    Some(Arc::new(BiosStep { name, services: Arc::clone(services) }))
}

struct BiosStep {
    name: &'static StepName,
    services: Arc<UpkeepServices>,
}

#[async_trait]
impl Step for BiosStep {
    fn policy(&self) -> StepPolicy {
        let bmc = &self.services.bmc;
        match self.name {
            name if [names::BIOS_VALIDATE, names::BIOS_IDENTIFY, names::BIOS_PLAN].contains(&name) => {
                bmc.reading_policy()
            }
            name if name == names::BIOS_RELEASE => StepPolicy::last(),
            _ => StepPolicy { budget: PATIENCE, ..bmc.changing_policy() },
        }
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        let services = &*self.services;
        let result = match self.name {
            name if name == names::BIOS_VALIDATE => validate::run(context),
            name if name == names::BIOS_IDENTIFY => identify::run(name, services, context).await,
            name if name == names::BIOS_PLAN => plan::run(services, context).await,
            name if name == names::BIOS_WRITE || name == names::BIOS_BOOT_ORDER => {
                write::run(name, services, context).await
            }
            name if name == names::BIOS_SHUT_DOWN => restart::shut_down(services, context).await,
            name if name == names::BIOS_HOST_ON => restart::host_on(services, context).await,
            name if name == names::BIOS_VERIFY => verify::run(services, context).await,
            name if name == names::BIOS_SETTLE => settle::run(services, context).await,
            name if name == names::BIOS_POWER_RESTORE => restart::restore(services, context).await,
            name => release::run(name, services, context).await,
        };
        bmc::finished(result.into(), context, &[names::BIOS_IDENTIFY])
    }

    fn on_wait_deadline(&self, _: &Snapshot, wait: &Wait) -> StepReport {
        bmc::overdue(wait)
    }
}
