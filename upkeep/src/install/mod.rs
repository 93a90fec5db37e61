//! `firmware.install`: installs the firmware of a set on one server.
//!
//! ```text
//!  validate ─► identify ─► power-on ─► plan ─┬─► for each component, the BMC first, then the BIOS, then the rest:
//!  files held              if it was off     │     host-off    only where the profile says so (update_bios_host_off)
//!                                            │     upload      stored intent, then one image; after a crash: look first.
//!                                            │                 A BMC that takes no upload reads the image from a URL
//!                                            │     watch       parked; one poll for each wake-up
//!                                            │     shut-down, host-on    only where a restart of the host is needed
//!                                            │     verify      three reads of the inventory with the new version
//!                                            └─► confirm       inventory again, stored
//!  finish: settle (a running update ends) ─► power-restore ─► release
//! ```
//!
//! Invariants
//! - No image is sent twice. What is sent is stored before the first byte, and again before the last piece ([`upload`]); an image that may
//!   have arrived is looked for, and never sent again by the run.
//! - The word of a task is not a proof. Every component ends with its installed version, or as a failure that names it.
//! - Nothing is sent before its bytes were hashed ([`firmware::VerifiedFirmware`]), and nothing before the identity check.
//! - While a BMC flashes, the run holds neither a connection nor a permit; it is one row.
//! - A cancel never cuts an update: the cleanup lets it finish.
//! - After a loss of power in the middle of an update nothing further is sent ([`power_loss`]), and the host has its power back.

mod component;
mod confirm;
mod fetch;
mod image;
mod offer;
mod plan;
mod power;
mod power_loss;
mod release;
mod restart;
mod sending;
mod served;
mod settle;
mod upload;
mod urls;
mod validate;
mod verify;
mod watch;
mod way;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::steps::identify;
use super::{UpkeepServices, names};
use engine::{Step, StepContext, StepPolicy, StepReport};
use firmware::{Entry, VerifiedFirmware};
use model::{RunId, Snapshot, StepName, Wait};

pub use offer::{PlanItem, planned};
pub(super) use settle::left_behind;
pub use urls::{ImageReads, ImageUrls, IssuedUrl, UrlOrder};

/// The time limit of a step that waits for a BMC that flashes, or for an operator who restarts the host.
const PATIENCE: Duration = Duration::from_secs(14 * 3600);
/// The time limit of one call that sends an image. The lease is renewed while the image is sent.
const UPLOAD_CALL: Duration = Duration::from_secs(4 * 3600);

/// Why a firmware file cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FirmwareFileError {
    /// The file is gone, or its bytes are not the recorded ones. Nothing of it may be sent.
    #[error("{0}")]
    Unusable(String),
    /// The registry does not respond.
    #[error("{0}")]
    Unavailable(String),
}

/// The firmware files of the controller.
#[async_trait]
pub trait FirmwareStore: Send + Sync {
    /// Holds files for a run until [`FirmwareStore::release`]. A repetition changes nothing.
    async fn hold(&self, run: RunId, files: &[Entry]) -> Result<(), FirmwareFileError>;
    /// Reads and hashes a file. Only what this returns may be sent to a BMC.
    async fn open(&self, file: &Entry) -> Result<VerifiedFirmware, FirmwareFileError>;
    /// Ends the hold of a run. A repetition changes nothing.
    async fn release(&self, run: RunId) -> Result<(), FirmwareFileError>;
}

/// The step of that name.
pub(super) fn step(name: &StepName, services: &Arc<UpkeepServices>) -> Option<Arc<dyn Step>> {
    let ends = [names::FW_SETTLE, names::FW_POWER_RESTORE, names::FW_RELEASE];
    let begins =
        [names::FW_VALIDATE, names::FW_IDENTIFY, names::FW_POWER_ON, names::FW_PLAN, names::FW_CONFIRM];
    let mut known = begins.into_iter().chain(names::OF_COMPONENT).chain(ends);
    let name = known.find(|known| *known == name)?;
    Some(Arc::new(InstallStep { name, services: Arc::clone(services) }))
}

struct InstallStep {
    name: &'static StepName,
    services: Arc<UpkeepServices>,
}

#[async_trait]
impl Step for InstallStep {
    fn policy(&self) -> StepPolicy {
        let bmc = &self.services.bmc;
        let name = self.name;
        if [names::FW_VALIDATE, names::FW_IDENTIFY, names::FW_PLAN, names::FW_CONFIRM].contains(&name) {
            return bmc.reading_policy();
        }
        if name == names::FW_RELEASE {
            return StepPolicy::last();
        }
        let patient = StepPolicy { budget: PATIENCE, ..bmc.changing_policy() };
        if name == names::FW_UPLOAD { StepPolicy { call: UPLOAD_CALL, ..patient } } else { patient }
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        let services = &*self.services;
        let result = match self.name {
            name if name == names::FW_VALIDATE => validate::run(services, context).await,
            name if name == names::FW_IDENTIFY => identify::run(name, services, context).await,
            name if name == names::FW_POWER_ON => power::on_if_off(services, context).await,
            name if name == names::FW_PLAN => plan::run(services, context).await,
            name if name == names::FW_HOST_OFF => restart::host_off(services, context).await,
            name if name == names::FW_UPLOAD => upload::run(services, context).await,
            name if name == names::FW_WATCH => watch::run(services, context).await,
            name if name == names::FW_SHUT_DOWN => restart::shut_down(services, context).await,
            name if name == names::FW_HOST_ON => restart::host_on(services, context).await,
            name if name == names::FW_VERIFY => verify::run(services, context).await,
            name if name == names::FW_CONFIRM => confirm::run(services, context).await,
            name if name == names::FW_SETTLE => settle::run(services, context).await,
            name if name == names::FW_POWER_RESTORE => power::restore(services, context).await,
            _ => release::run(services, context).await,
        };
        bmc::finished(result.into(), context, &[names::FW_IDENTIFY])
    }

    fn on_wait_deadline(&self, _: &Snapshot, wait: &Wait) -> StepReport {
        bmc::overdue(wait)
    }
}
