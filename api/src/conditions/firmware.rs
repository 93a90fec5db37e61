//! The data that a request to install firmware needs besides its parameters: the files of the set, and the plan for a preview.
//!
//! ```text
//!   firmware_set: name or id ─┐
//!   labels, neither           ├─► one set ─► its files, copied into the order
//!   stored inventory ─────────┘   (vendor and model of the server)
//! ```
//!
//! Nothing is sent to a BMC: a preview is made of the stored out-of-band inventory.

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::Rule;
use super::super::firmware::{files_exist, no_set, set_of, unknown_set};
use firmware::{FirmwareSet, ServerFirmware};
use model::{Serial, Time};
use redfish::Hardware;
use serde::Deserialize as _;
use store::ServerHardware;
use upkeep::{InstallFirmware, PlanItem, UpkeepAction};

/// Fills in the files of an order that installs firmware; any other order stays as it is.
pub(super) async fn fill(api: &Api, server: &Serial, action: UpkeepAction) -> Result<UpkeepAction, ApiError> {
    let UpkeepAction::Firmware(mut order) = action else { return Ok(action) };
    files_exist(api)?;
    if !order.files.is_empty() {
        let message = "the controller fills in the files; name a firmware_set, or give labels";
        return Err(ApiError::invalid(vec![Detail::new("/parameters/files", Rule::Unknown, message)]));
    }
    let stored = api.store().firmware_sets().await?;
    let set = match &order.firmware_set {
        Some(name) => {
            let row = stored.iter().find(|row| row.name == *name || row.id == *name);
            set_of(row.ok_or_else(unknown_set)?)?
        }
        None => {
            let sets = stored.iter().map(set_of).collect::<Result<Vec<_>, ApiError>>()?;
            fitting(api, server, &sets, &order).await?
        }
    };
    order.firmware_set = Some(set.name().to_string());
    order.files = set.entries().to_vec();
    Ok(UpkeepAction::Firmware(order))
}

/// The one set that fits the server.
async fn fitting(
    api: &Api,
    server: &Serial,
    sets: &[FirmwareSet],
    order: &InstallFirmware,
) -> Result<FirmwareSet, ApiError> {
    let known = api.store().server_hardware(server).await?;
    let Some(server) = known.as_ref().and_then(installed) else {
        let message = format!(
            "vendor and model of the server are not known, so no set can be chosen: name a firmware_set, or read the inventory \
             first (`shoal server inventory {server} --refresh`)"
        );
        return Err(ApiError::invalid(vec![Detail::new(
            "/parameters/firmware_set",
            Rule::Required,
            message,
        )]));
    };
    firmware::choose(sets, &server.vendor, &server.model, &order.labels).cloned().map_err(no_set)
}

/// The firmware in a stored inventory; `None` when it does not show vendor and model.
fn installed(stored: &ServerHardware) -> Option<ServerFirmware> {
    ServerFirmware::of(&Hardware::deserialize(&stored.hardware).ok()?)
}

/// The plan of an order for the stored inventory.
pub(super) struct StoredPlan {
    /// When the BMC was read; `None` when it was not.
    pub(super) read_at: Option<Time>,
    /// The components, or why there is no plan.
    pub(super) items: Result<Vec<PlanItem>, String>,
}

/// The plan of an order; `None` for an order that installs nothing.
pub(super) async fn preview(
    api: &Api,
    server: &Serial,
    action: &UpkeepAction,
) -> Result<Option<StoredPlan>, ApiError> {
    let UpkeepAction::Firmware(order) = action else { return Ok(None) };
    let known = api.store().server_hardware(server).await?;
    let items = match known.as_ref().and_then(installed) {
        Some(installed) => upkeep::planned(order, &installed),
        None => Err(format!(
            "the inventory of the server is not known; `shoal server inventory {server} --refresh` reads it, then the plan can \
             be shown"
        )),
    };
    Ok(Some(StoredPlan { read_at: known.map(|known| known.read_at), items }))
}
