//! The upkeep workflows: short changes and reads of one registered server that an operator orders, and that other workflows
//! request as children.
//!
//! ```text
//!  power.cycle            power.identify -> power.off -> power.on              finish: power.restore, power.release
//!  bmc.reset              bmc.identify -> bmc.reset -> bmc.back                finish: bmc.release
//!  inventory.out-of-band  inventory.read                                       finish: inventory.release
//!  firmware.install       see `install`
//!  bios.apply             see `bios`
//!
//!  kind of the server condition      workflow                purpose      lock `server/SERIAL`
//!  powerCycleHard, powerCycleSoft    power.cycle             change       waits for it
//!  bmcReset                          bmc.reset               change       waits for it
//!  inventoryOOB                      inventory.out-of-band   observe      waits for it
//!  firmwareInstall                   firmware.install        change       waits for it
//!  biosApply                         bios.apply              change       waits for it
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`order`] | from a kind and its parameters to a run, with its locks |
//! | [`waits`] | the wait reasons, with their texts |
//! | `steps` | the steps of the short workflows, one file per action |
//! | `install`, `install_order` | the installation of firmware: its steps, its parameters |
//! | [`bios`], `bios_order` | the settings of the BIOS and the boot order: plan, steps, parameters |
//! | `absent`, `permission`, `host_power` | what workflows share that restart a host: a BMC that is away, the permission, the power |
//! | `difference` | what changed between two out-of-band inventories |
//!
//! They are one room because they share order, locks, identity check and the end of the session, and because each is too small
//! for a room of its own.
//!
//! Invariants
//! - Nothing is changed before the identity check of the same run (decision D3a).
//! - The end of a change is what a read of the BMC shows, never a response. A change that no read can show is a failure.
//! - The host is left with the power state that it had, whatever ends a power cycle, unless the order says otherwise.
//! - Two runs never touch one BMC at the same time: each waits for the lock of the server, by priority and age (decision D13).
//! - This crate and the other workflows do not use each other. What they share is in `bmc`.

mod absent;
pub mod bios;
mod bios_order;
mod certificate;
pub mod difference;
mod host_power;
mod identified;
mod install;
mod install_order;
mod look;
mod names;
pub mod order;
mod permission;
mod steps;
pub mod waits;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;

use bmc::{BmcServices, Unavailable};
use engine::{ChildRefused, ChildRequest, Step, WaitReason, Workflow};
use model::{Effect, NewRun, Serial, Snapshot, StepName, Time, Verb, WorkflowVersion};

pub use bios_order::ApplyBios;
pub use install::{
    FirmwareFileError, FirmwareStore, ImageReads, ImageUrls, IssuedUrl, PlanItem, UrlOrder, planned,
};
pub use install_order::InstallFirmware;
pub use names::{CERTIFICATE_CHANGED, class};
pub use order::{ConditionKind, ParallelLimit, UpkeepAction, UpkeepInput, UpkeepOrder};
pub use permission::{HostRestart, RestartWindow};

/// The workflow that switches a host off and on.
pub const POWER_CYCLE: &str = "power.cycle";
/// The workflow that restarts a BMC.
pub const BMC_RESET: &str = "bmc.reset";
/// The workflow that reads what a server is made of.
pub const INVENTORY: &str = "inventory.out-of-band";
/// The workflow that installs firmware.
pub const FIRMWARE_INSTALL: &str = "firmware.install";
/// The workflow that changes settings of the BIOS and the persistent boot order.
pub const BIOS_APPLY: &str = "bios.apply";
/// The workflows of this crate.
pub const WORKFLOWS: [&str; 5] = [POWER_CYCLE, BMC_RESET, INVENTORY, FIRMWARE_INSTALL, BIOS_APPLY];
/// The version of each workflow.
const VERSION: WorkflowVersion = WorkflowVersion(1);

/// Returns the stored out-of-band inventory of a server.
#[async_trait]
pub trait HardwareLookup: Send + Sync {
    /// The latest out-of-band inventory of a server; `None` when there is none.
    async fn hardware(&self, serial: &Serial) -> Result<Option<Value>, Unavailable>;
}

/// Everything that the steps of the upkeep workflows use.
pub struct UpkeepServices {
    /// The services that every workflow shares.
    pub bmc: Arc<BmcServices>,
    /// The stored inventories.
    pub hardware: Box<dyn HardwareLookup>,
    /// The firmware files.
    pub firmware: Arc<dyn FirmwareStore>,
    /// Serves images to BMCs that take no upload.
    pub urls: Arc<dyn ImageUrls>,
    /// How many hosts may power on at the same time; `None` for no limit.
    pub power_ons: Option<u32>,
}

/// One of the workflows of this crate.
pub struct Upkeep {
    name: &'static str,
    services: Arc<UpkeepServices>,
}

impl Upkeep {
    /// The versions of the workflows of this crate, by name.
    pub fn versions() -> BTreeMap<String, WorkflowVersion> {
        WORKFLOWS.into_iter().map(|name| (name.to_owned(), VERSION)).collect()
    }

    /// Every workflow of this crate, over the services.
    pub fn workflows(services: &Arc<UpkeepServices>) -> Vec<Arc<dyn Workflow>> {
        let workflow = |name| Arc::new(Self { name, services: Arc::clone(services) }) as Arc<dyn Workflow>;
        WORKFLOWS.into_iter().map(workflow).collect()
    }
}

impl Workflow for Upkeep {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> WorkflowVersion {
        VERSION
    }

    fn step(&self, name: &StepName) -> Option<Arc<dyn Step>> {
        if self.name == FIRMWARE_INSTALL {
            // The plan of a run adds steps.
            return install::step(name, &self.services);
        }
        if self.name == BIOS_APPLY {
            return bios::step(name, &self.services);
        }
        let plan = names::plan(self.name);
        let known = plan.forward.iter().chain(plan.finish).any(|step| *step == name);
        if known { steps::step(name, &self.services) } else { None }
    }

    fn prepare_child(&self, request: ChildRequest) -> Result<NewRun, ChildRefused> {
        let input = UpkeepInput::deserialize(&request.input)
            .map_err(|why| ChildRefused(format!("the input of the child cannot be read: {why}")))?;
        if input.action.kind().workflow() != self.name {
            return Err(ChildRefused(format!("{} is not a kind of {}", input.action.kind(), self.name)));
        }
        Ok(input.child(request))
    }

    fn finish_timeout(&self) -> Duration {
        match self.name {
            // An update that runs at the end of a run is let finish: four hours at most, and as long for a BMC that is away then.
            FIRMWARE_INSTALL => Duration::from_secs(10 * 3600),
            // A host that was asked to shut down is waited for, then powered on again.
            BIOS_APPLY => Duration::from_secs(30 * 60),
            _ => Duration::from_secs(15 * 60),
        }
    }

    /// A run lasts minutes and may have switched its host off, so operators do not hold it. A run that holds itself can be
    /// resumed.
    fn verbs(&self) -> &'static [Verb] {
        &[Verb::Cancel, Verb::Resume]
    }

    fn limit_setting(&self, resource: &str) -> Option<&'static str> {
        match resource.split_once('/')?.0 {
            "permit" => Some("MAX_POWER_ONS"),
            "bmc" => Some("one job at a time per BMC"),
            _ => None,
        }
    }

    fn wait_reasons(&self) -> &'static [&'static WaitReason] {
        &waits::ALL
    }

    fn left_behind(&self, snapshot: &Snapshot, now: Time) -> Vec<Effect> {
        match self.name {
            FIRMWARE_INSTALL => install::left_behind(snapshot, now).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}
