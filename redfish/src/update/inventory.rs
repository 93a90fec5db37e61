//! The firmware inventory: the installed components, their versions, and whether they can be updated.
//!
//! ```text
//!   UpdateService.FirmwareInventory | SoftwareInventory -> pages -> members (with $expand: no further request)
//!        Id "Installed-25227-6.10.80.00"   ids of some BMCs contain the version and change with it: compare by
//!        SoftwareId "25227", Name, RelatedItem                            component, never by id
//! ```
//!
//! Invariant: at most 256 members are read; a member that cannot be read is left out and counted.
//! Specification: DSP0268 SoftwareInventory.

use serde::{Deserialize, Serialize};

use crate::bmc::Bmc;
use crate::error::{Operation, RedfishError};
use crate::json::{self, Resource};
use crate::update::service::{UpdateCapability, is_absent};
use crate::version::FirmwareVersion;

const OPERATION: Operation = Operation::UpdateService;
/// Maximum number of members that are read.
pub(crate) const MAX_ITEMS: usize = 256;

/// One member of an inventory. A stored one of an earlier version of this program has only some of it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct SoftwareItem {
    /// Path of the member: the value for `Targets`.
    pub uri: String,
    /// `Id`; may contain the version.
    pub id: String,
    /// The `Name` of the member.
    pub name: Option<String>,
    /// `Version`; `None` also for an empty one.
    pub version: Option<FirmwareVersion>,
    /// The `Updateable` of the member.
    pub updateable: Option<bool>,
    /// `SoftwareId`, which identifies the kind of the device.
    pub software_id: Option<String>,
    /// The `Manufacturer` of the member.
    pub manufacturer: Option<String>,
    /// The `ReleaseDate` of the member, as the BMC shows it.
    pub release_date: Option<String>,
    /// `Status.State`, for example `StandbySpare` for an image that is not active.
    pub state: Option<String>,
    /// Paths of the resources that run this firmware.
    pub related: Vec<String>,
}

impl SoftwareItem {
    pub(crate) fn of(item: &Resource) -> Self {
        let fields = &item.fields;
        SoftwareItem {
            uri: item.path.clone(),
            id: json::word(fields, "Id").unwrap_or_else(|| json::last_segment(&item.path).to_owned()),
            name: json::word(fields, "Name"),
            version: json::word(fields, "Version").map(FirmwareVersion::from),
            updateable: json::flag(fields, "Updateable"),
            software_id: json::word(fields, "SoftwareId"),
            manufacturer: json::word(fields, "Manufacturer"),
            release_date: json::word(fields, "ReleaseDate"),
            state: json::member(fields, "Status").and_then(|status| json::word(status, "State")),
            related: json::links(fields, "RelatedItem"),
        }
    }

    /// Whether this is firmware that runs, and not a stored image of an earlier or later version.
    pub fn is_active(&self) -> bool {
        let stored = ["previous-", "available-"].iter().any(|prefix| {
            self.id.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        });
        let spare = self.state.as_deref().is_some_and(|state| {
            ["standbyspare", "standbyoffline", "disabled"].contains(&state.to_ascii_lowercase().as_str())
        });
        !stored && !spare
    }
}

/// An inventory as it was read.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SoftwareInventory {
    /// The members that could be read.
    pub items: Vec<SoftwareItem>,
    /// Number of members that could not be read.
    pub unreadable: usize,
}

impl Bmc {
    /// Reads the firmware inventory: one request with `$expand`, else one for each member.
    ///
    /// # Errors
    ///
    /// `NotSupported` when the service has no inventory; else when the collection cannot be read, or the BMC stops
    /// responding in between.
    pub async fn firmware_inventory(
        &self,
        service: &UpdateCapability,
    ) -> Result<SoftwareInventory, RedfishError> {
        self.inventory_at(service.firmware_inventory.as_deref(), "FirmwareInventory").await
    }

    /// Reads the software inventory: what is not firmware, such as drivers and tools.
    ///
    /// # Errors
    ///
    /// As for [`Bmc::firmware_inventory`].
    pub async fn software_inventory(
        &self,
        service: &UpdateCapability,
    ) -> Result<SoftwareInventory, RedfishError> {
        self.inventory_at(service.software_inventory.as_deref(), "SoftwareInventory").await
    }

    /// Reads one member of an inventory again; `None` when it no longer exists, as after an update that renames it.
    ///
    /// # Errors
    ///
    /// When the read fails.
    pub async fn software_item(&self, uri: &str) -> Result<Option<SoftwareItem>, RedfishError> {
        match self.core.read(OPERATION, uri).await {
            Ok(item) => Ok(Some(SoftwareItem::of(&item))),
            Err(error) if matches!(error.kind, crate::error::ErrorKind::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn inventory_at(&self, path: Option<&str>, name: &str) -> Result<SoftwareInventory, RedfishError> {
        let Some(path) = path else {
            let what = format!("the update service has no {name}");
            return Err(RedfishError::not_supported(OPERATION, what));
        };
        let mut found = SoftwareInventory::default();
        for member in self.core.members_up_to(OPERATION, path, MAX_ITEMS).await? {
            match self.core.contents(OPERATION, member).await {
                Ok(item) => found.items.push(SoftwareItem::of(&item)),
                Err(error) if is_absent(&error) => found.unreadable += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}
