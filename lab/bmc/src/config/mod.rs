//! What a twin is and how it behaves: data only, so that a vendor is a value and not a branch.
//!
//! ```text
//!   SimBmcConfig ─┬─ who it is       serial, sku, credentials, Identity
//!               ├─ what it has     slots (SlotConfig), where they are shown (SlotTree), ServicePolicy
//!               ├─ the host        PowerPolicy, BootPolicy
//!               ├─ its media       MediaPolicy (UrlRules, InsertRules, ReadStyle)
//!               ├─ the protocol    SessionPolicy, EtagPolicy, AnswerPolicy, TaskPolicy, ErrorPolicy
//!               └─ what goes wrong faults
//! ```
//!
//! The defaults describe a strict but capable BMC: two CD slots and a USB slot, all rules of DESIGN L1 enforced. What
//! a vendor does otherwise is a file in `redfish/twins/` ([`SimBmcConfig::vendor`]).

mod host;
mod media;
mod service;
pub(super) mod time;

use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::faults::Fault;
pub use host::{
    AlreadyThere, BootDemands, BootOem, BootPolicy, BootSearch, Graceful, PowerPolicy, SettingsObject,
};
pub use media::{
    EjectEmpty, EnableMedia, ImageShown, InsertRules, MediaKind, MediaPolicy, MediaVia, Occupied, SlotConfig,
    UrlRules,
};
pub use service::{
    AnswerPolicy, ErrorPolicy, ErrorShape, EtagKind, EtagPolicy, ExtraSystem, FirmwareItem, IfMatch,
    LoginOem, MonitorAfter, OddPath, ServicePolicy, SessionPolicy, Success, TaskPolicy,
};

/// One twin.
#[derive(Clone, Debug)]
pub struct SimBmcConfig {
    /// `SerialNumber` of the system.
    pub serial: String,
    /// `SKU` of the system (the service tag of some vendors); not shown when `None`.
    pub sku: Option<String>,
    /// The only account.
    pub username: String,
    /// Its password.
    pub password: SecretString,
    /// Names, ids and versions.
    pub identity: Identity,
    /// The virtual media slots, in the order in which the collection and the firmware list them.
    pub slots: Vec<SlotConfig>,
    /// Where the slots are shown.
    pub slot_tree: SlotTree,
    /// Whether the host runs (from its disk) when the twin starts. The [`super::Host`] hears of later boots only.
    pub starts_on: bool,
    /// Power and reset.
    pub power: PowerPolicy,
    /// Boot override.
    pub boot: BootPolicy,
    /// Insert and eject.
    pub media: MediaPolicy,
    /// Sessions and lock-out.
    pub session: SessionPolicy,
    /// Paths, collections and what else the service has.
    pub service: ServicePolicy,
    /// ETags.
    pub etag: EtagPolicy,
    /// What successes look like.
    pub answers: AnswerPolicy,
    /// What tasks look like.
    pub tasks: TaskPolicy,
    /// What errors look like.
    pub errors: ErrorPolicy,
    /// How long a request that never gets an answer is held before its connection is cut.
    pub hang_limit: Duration,
    /// How many entries the journal keeps.
    pub journal_capacity: usize,
    /// The wall clock at the moment the twin starts; from there on `tokio::time` counts.
    pub started_at: jiff::Timestamp,
    /// Faults present from the start.
    pub faults: Vec<Fault>,
}

impl SimBmcConfig {
    /// A strict standard BMC, switched off.
    pub fn new(serial: impl Into<String>, username: impl Into<String>, password: impl Into<String>) -> Self {
        let serial = serial.into();
        Self {
            identity: Identity {
                uuid: Uuid::new_v5(&Uuid::NAMESPACE_OID, serial.as_bytes()),
                ..Identity::default()
            },
            serial,
            sku: None,
            username: username.into(),
            password: SecretString::from(password.into()),
            slots: vec![SlotConfig::cd("CD1"), SlotConfig::cd("CD2"), SlotConfig::usb("USB")],
            slot_tree: SlotTree::Manager,
            starts_on: false,
            power: PowerPolicy::default(),
            boot: BootPolicy::default(),
            media: MediaPolicy::default(),
            session: SessionPolicy::default(),
            service: ServicePolicy::default(),
            etag: EtagPolicy::default(),
            answers: AnswerPolicy::default(),
            tasks: TaskPolicy::default(),
            errors: ErrorPolicy::default(),
            hang_limit: Duration::from_secs(600),
            journal_capacity: 1024,
            started_at: jiff::Timestamp::now(),
            faults: Vec::new(),
        }
    }

    /// The same BMC with one CD slot only.
    #[must_use]
    pub fn with_single_cd(mut self) -> Self {
        self.slots = vec![SlotConfig::cd("CD1")];
        self
    }

    /// The same BMC with one CD and one USB slot.
    #[must_use]
    pub fn with_cd_and_usb(mut self) -> Self {
        self.slots = vec![SlotConfig::cd("CD"), SlotConfig::usb("RemovableDisk")];
        self
    }
}

/// Names, ids and versions a BMC shows.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {
    /// `Vendor` of the service root; not shown when empty.
    pub vendor: String,
    /// `Manufacturer` of the system.
    pub manufacturer: String,
    /// The key below `Oem` of the service root; not shown when empty.
    pub oem: String,
    /// `RedfishVersion` of the service root.
    pub redfish_version: String,
    /// How the serial number is shown.
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

impl Default for Identity {
    fn default() -> Self {
        Self {
            vendor: "Contoso".to_owned(),
            manufacturer: "Contoso".to_owned(),
            oem: String::new(),
            redfish_version: "1.15.0".to_owned(),
            serial: SerialShown::SerialNumber,
            product: "Contoso BMC".to_owned(),
            model: "3500RX".to_owned(),
            // The odd but legal ids of the DMTF mock-ups: who builds paths instead of following links finds nothing.
            system_id: "437XR1138R2".to_owned(),
            manager_id: "bmc-a7".to_owned(),
            manager_model: "Joo Janta 200".to_owned(),
            firmware_version: "1.45.455b66-rev4".to_owned(),
            bios_version: "P79 v1.45".to_owned(),
            uuid: Uuid::nil(),
        }
    }
}

/// How a system shows its serial number.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SerialShown {
    /// As `SerialNumber`.
    SerialNumber,
    /// As `SKU` (the service tag), `SerialNumber` being another one.
    Sku,
    /// As `SerialNumber` of the chassis, the system having none.
    Chassis,
    /// Not at all.
    Nowhere,
}

/// Which resource links to the slots. With `Both` the same slots are shown under two paths.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotTree {
    /// The manager.
    Manager,
    /// The system.
    System,
    /// Manager and system.
    Both,
}
