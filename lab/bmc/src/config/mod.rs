//! Identity and behaviour of a simulated BMC, as data only: a vendor is a value, not a branch in the code.
//!
//! ```text
//!   SimBmcConfig ─┬─ identity   serial, sku, credentials, SimIdentity
//!                 ├─ resources  slots (SlotConfig), their place in the tree (SlotTree), ServicePolicy
//!                 ├─ host       PowerPolicy, BootPolicy, BiosPolicy, HardwareConfig
//!                 ├─ manager    ManagerPolicy
//!                 ├─ media      MediaPolicy (UrlRules, InsertRules, ReadStyle)
//!                 ├─ firmware   UpdatePolicy
//!                 ├─ protocol   SessionPolicy, EtagPolicy, ResponsePolicy, TaskPolicy, ErrorPolicy
//!                 └─ faults
//! ```
//!
//! The defaults describe a strict but capable BMC: two CD slots and a USB slot, all rules of decision D1 enforced. A file
//! in `lab/bmc/vendors` says where a vendor differs ([`SimBmcConfig::vendor`]).

mod bios;
mod host;
mod manager;
mod media;
mod service;
pub(super) mod time;
mod update;

use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::faults::Fault;
pub use bios::{BiosAttribute, BiosPolicy};
pub use host::{
    AlreadyThere, BootDemands, BootOem, BootPolicy, BootSearch, Graceful, PowerPolicy, SettingsObject,
};
pub use manager::{HardwareConfig, ManagerPolicy, ManagerRestart};
pub use media::{
    EjectEmpty, EnableMedia, ImageShown, InsertRules, MediaPolicy, MediaVia, Occupied, SlotConfig, UrlRules,
};
pub use service::{
    ErrorPolicy, ErrorShape, EtagKind, EtagPolicy, ExtraSystem, FirmwareItem, FixedStatusPath, IfMatchRule,
    LoginOem, MonitorAfter, ResponsePolicy, ServicePolicy, SessionPolicy, Success, TaskPolicy,
};
pub use update::{BiosUpdate, Component, PushForm, SimplePolicy, UpdateAnswer, UpdatePolicy, WaitingTask};

/// The configuration of one simulated BMC.
#[derive(Clone, Debug)]
pub struct SimBmcConfig {
    /// `SerialNumber` of the system.
    pub serial: String,
    /// `SKU` of the system (the service tag of some vendors); not shown when `None`.
    pub sku: Option<String>,
    /// User name of the only account.
    pub username: String,
    /// Password of the only account.
    pub password: SecretString,
    /// Names, ids and versions.
    pub identity: SimIdentity,
    /// The virtual media slots, in the order in which the collection and the firmware list them.
    pub slots: Vec<SlotConfig>,
    /// The resource that links to the slots.
    pub slot_tree: SlotTree,
    /// Whether the host runs (from its disk) at the start. [`super::Host`] is called for later boots only.
    pub starts_on: bool,
    /// The rules of power and reset.
    pub power: PowerPolicy,
    /// The restart of the BMC.
    pub manager: ManagerPolicy,
    /// The hardware of the machine.
    pub hardware: HardwareConfig,
    /// The rules of the boot override.
    pub boot: BootPolicy,
    /// Settings of the BIOS, and the persistent boot order.
    pub bios: BiosPolicy,
    /// Insert and eject.
    pub media: MediaPolicy,
    /// Sessions and lock-out.
    pub session: SessionPolicy,
    /// Paths, collections and further resources of the service.
    pub service: ServicePolicy,
    /// The rules of ETags.
    pub etag: EtagPolicy,
    /// Shapes of success responses.
    pub responses: ResponsePolicy,
    /// Shapes and times of tasks.
    pub tasks: TaskPolicy,
    /// Shape of error responses.
    pub errors: ErrorPolicy,
    /// The update service.
    pub update: UpdatePolicy,
    /// The time for which a request without a response is held before its connection is cut.
    pub hang_limit: Duration,
    /// Maximum number of journal entries.
    pub journal_capacity: usize,
    /// The date and time at the start; `tokio::time` measures the time since then.
    pub started_at: jiff::Timestamp,
    /// Faults in force at the start.
    pub faults: Vec<Fault>,
}

impl SimBmcConfig {
    /// A strict standard BMC whose host is off.
    pub fn new(serial: impl Into<String>, username: impl Into<String>, password: impl Into<String>) -> Self {
        let serial = serial.into();
        Self {
            identity: SimIdentity {
                uuid: Uuid::new_v5(&Uuid::NAMESPACE_OID, serial.as_bytes()),
                ..SimIdentity::default()
            },
            serial,
            sku: None,
            username: username.into(),
            password: SecretString::from(password.into()),
            slots: vec![SlotConfig::cd("CD1"), SlotConfig::cd("CD2"), SlotConfig::usb("USB")],
            slot_tree: SlotTree::Manager,
            starts_on: false,
            power: PowerPolicy::default(),
            manager: ManagerPolicy::default(),
            hardware: HardwareConfig::default(),
            boot: BootPolicy::default(),
            bios: BiosPolicy::default(),
            media: MediaPolicy::default(),
            session: SessionPolicy::default(),
            service: ServicePolicy::default(),
            etag: EtagPolicy::default(),
            responses: ResponsePolicy::default(),
            tasks: TaskPolicy::default(),
            errors: ErrorPolicy::default(),
            update: UpdatePolicy::default(),
            hang_limit: Duration::from_secs(600),
            journal_capacity: 1024,
            started_at: jiff::Timestamp::now(),
            faults: Vec::new(),
        }
    }

    /// Replaces the slots with one CD slot.
    #[must_use]
    pub fn with_single_cd(mut self) -> Self {
        self.slots = vec![SlotConfig::cd("CD1")];
        self
    }

    /// Replaces the slots with one CD slot and one USB slot.
    #[must_use]
    pub fn with_cd_and_usb(mut self) -> Self {
        self.slots = vec![SlotConfig::cd("CD"), SlotConfig::usb("RemovableDisk")];
        self
    }
}

/// Names, ids and versions a BMC shows.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimIdentity {
    /// `Vendor` of the service root; not shown when empty.
    pub vendor: String,
    /// `Manufacturer` of the system.
    pub manufacturer: String,
    /// The key below `Oem` of the service root; not shown when empty.
    pub oem: String,
    /// `RedfishVersion` of the service root.
    pub redfish_version: String,
    /// The property that shows the serial number.
    pub serial: SerialShown,
    /// `Product` of the service root; not shown when empty.
    pub product: String,
    /// `Model` of the system.
    pub model: String,
    /// `Id` of the system.
    pub system_id: String,
    /// `Id` of the manager.
    pub manager_id: String,
    /// `Model` of the manager.
    pub manager_model: String,
    /// `FirmwareVersion` of the manager.
    pub firmware_version: String,
    /// `BiosVersion` of the system.
    pub bios_version: String,
    /// `UUID` of the system and of the service root.
    pub uuid: Uuid,
}

impl Default for SimIdentity {
    fn default() -> Self {
        Self {
            vendor: "Contoso".to_owned(),
            manufacturer: "Contoso".to_owned(),
            oem: String::new(),
            redfish_version: "1.15.0".to_owned(),
            serial: SerialShown::SerialNumber,
            product: "Contoso BMC".to_owned(),
            model: "3500RX".to_owned(),
            // Unusual but legal ids of the DMTF mock-ups: a client that builds paths instead of following links fails.
            system_id: "437XR1138R2".to_owned(),
            manager_id: "bmc-a7".to_owned(),
            manager_model: "Joo Janta 200".to_owned(),
            firmware_version: "1.45.455b66-rev4".to_owned(),
            bios_version: "P79 v1.45".to_owned(),
            uuid: Uuid::nil(),
        }
    }
}

/// The property by which a system shows its serial number.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SerialShown {
    /// The system shows the serial number as `SerialNumber`.
    SerialNumber,
    /// The system shows the serial number as `SKU` (the service tag); `SerialNumber` has another value.
    Sku,
    /// The chassis shows the serial number as `SerialNumber`; the system has none.
    Chassis,
    /// No resource shows the serial number.
    Nowhere,
}

/// The resource that links to the slots. With `Both` each slot has two paths.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotTree {
    /// The manager links to the slots.
    Manager,
    /// The system links to the slots.
    System,
    /// Manager and system.
    Both,
}
