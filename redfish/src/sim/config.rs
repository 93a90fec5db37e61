//! What a twin is and how it behaves: data only, so that a vendor is a value and not a branch.
//!
//! ```text
//!   TwinConfig ─┬─ who it is         serial, sku, credentials, Identity
//!               ├─ what it has       slots (SlotConfig), where they are shown (SlotTree)
//!               ├─ how it behaves    PowerPolicy, BootPolicy, MediaPolicy (UrlRules, InsertRules), SessionPolicy
//!               └─ what goes wrong   faults
//! ```
//!
//! The defaults describe a strict but capable BMC: two CD slots and a USB slot, all rules of DESIGN L1 enforced.

use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{boot::OverrideEnabled, faults::Fault, media_reader::ReadStyle, power::ResetType};

/// One twin.
#[derive(Clone, Debug)]
pub struct TwinConfig {
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
    /// Whether a PATCH without `If-Match` is answered with 428.
    pub require_if_match: bool,
    /// How long a request that never gets an answer is held before its connection is cut.
    pub hang_limit: Duration,
    /// How many entries the journal keeps.
    pub journal_capacity: usize,
    /// The wall clock at the moment the twin starts; from there on `tokio::time` counts.
    pub started_at: jiff::Timestamp,
    /// Faults present from the start.
    pub faults: Vec<Fault>,
}

impl TwinConfig {
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
            require_if_match: false,
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
pub struct Identity {
    /// `Vendor` of the service root and `Manufacturer` of the system.
    pub vendor: String,
    /// `Product` of the service root.
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

/// How the host sees a slot.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaKind {
    /// An optical drive.
    Cd,
    /// A USB stick.
    Usb,
}

impl MediaKind {
    /// `MediaTypes` of the slot.
    pub(super) fn media_types(self) -> &'static [&'static str] {
        match self {
            Self::Cd => &["CD", "DVD"],
            Self::Usb => &["Floppy", "USBStick"],
        }
    }
}

/// One virtual media slot.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SlotConfig {
    /// `Id` of the slot, unique in the twin.
    pub id: String,
    /// What it is for the host.
    pub kind: MediaKind,
}

impl SlotConfig {
    /// A CD slot.
    pub fn cd(id: impl Into<String>) -> Self {
        Self { id: id.into(), kind: MediaKind::Cd }
    }

    /// A USB slot.
    pub fn usb(id: impl Into<String>) -> Self {
        Self { id: id.into(), kind: MediaKind::Usb }
    }
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

/// How power commands are taken.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PowerPolicy {
    /// `ResetType@Redfish.AllowableValues`; anything else is refused.
    pub reset_types: Vec<ResetType>,
    /// `On` when on, `ForceOff` when off.
    pub already_there: AlreadyThere,
    /// What the operating system does when asked to shut down.
    pub graceful: Graceful,
    /// From power-on to the choice of the boot source.
    pub post_time: Duration,
    /// From the end of the operating system to `Off`.
    pub off_time: Duration,
}

impl Default for PowerPolicy {
    fn default() -> Self {
        use ResetType as R;
        Self {
            reset_types: vec![
                R::On,
                R::ForceOff,
                R::GracefulShutdown,
                R::GracefulRestart,
                R::ForceRestart,
                R::PowerCycle,
            ],
            already_there: AlreadyThere::Conflict,
            graceful: Graceful::After(Duration::ZERO),
            post_time: Duration::ZERO,
            off_time: Duration::ZERO,
        }
    }
}

/// The answer to a power command that would change nothing.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlreadyThere {
    /// 409.
    Conflict,
    /// 400, as older BMCs do.
    BadRequest,
    /// 204, nothing happens.
    NoOp,
}

/// What the operating system does when asked to shut down.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Graceful {
    /// It is down after this time.
    After(Duration),
    /// Nothing: the BMC answers 2xx and the host stays on.
    IgnoredByHost,
}

/// What the boot override takes and how the firmware searches.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct BootPolicy {
    /// Allowable `BootSourceOverrideTarget`.
    pub targets: Vec<String>,
    /// Allowable `BootSourceOverrideEnabled`.
    pub enabled: Vec<OverrideEnabled>,
    /// Allowable `BootSourceOverrideMode`, the first one being the start value.
    pub modes: Vec<String>,
    /// Which slot counts.
    pub search: BootSearch,
    /// Whether a CD needs an El Torito record and a USB image a boot signature to be booted.
    pub require_boot_record: bool,
}

impl Default for BootPolicy {
    fn default() -> Self {
        let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect();
        Self {
            targets: words(&["None", "Pxe", "Cd", "Usb", "Hdd", "BiosSetup", "Diags", "UefiHttp"]),
            enabled: vec![OverrideEnabled::Disabled, OverrideEnabled::Once, OverrideEnabled::Continuous],
            modes: words(&["UEFI", "Legacy"]),
            search: BootSearch::FirstInserted,
            require_boot_record: true,
        }
    }
}

/// How the firmware finds the medium for an override to `Cd` or `Usb`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BootSearch {
    /// The first slot of the kind with a medium decides; if that cannot be booted the disk is.
    FirstInserted,
    /// The first slot of the kind with a medium that can be booted.
    FirstBootable,
}

/// How media are taken.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct MediaPolicy {
    /// The time in which the image must have been read at insert.
    pub timeout: Duration,
    /// The smallest image, in 2048-byte sectors for a CD (300 is what Linux USB gadgets demand).
    pub min_sectors: u64,
    /// What a URL must look like.
    pub url: UrlRules,
    /// What the body of `InsertMedia` must look like.
    pub insert: InsertRules,
    /// Ejecting an empty slot.
    pub eject_empty: EjectEmpty,
    /// Whether an action without a body is refused with 415.
    pub body_required: bool,
    /// How an image is read.
    pub read: ReadStyle,
}

impl Default for MediaPolicy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            min_sectors: 300,
            url: UrlRules::default(),
            insert: InsertRules::default(),
            eject_empty: EjectEmpty::Succeeds,
            body_required: false,
            read: ReadStyle::default(),
        }
    }
}

/// What a BMC takes as a media URL. The default refuses all that some BMC is known to refuse (DESIGN L1).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UrlRules {
    /// Schemes, lower case.
    pub schemes: Vec<String>,
    /// Ports; `None` is any.
    pub ports: Option<Vec<u16>>,
    /// The longest URL in bytes.
    pub max_bytes: usize,
    /// Whether `?` and `&` are taken.
    pub query: bool,
    /// Whether a hyphen in the path is taken.
    pub hyphens: bool,
    /// Whether an image directly at the root is taken.
    pub at_root: bool,
    /// Endings of the path; empty is any.
    pub suffixes: Vec<String>,
}

impl Default for UrlRules {
    fn default() -> Self {
        Self {
            schemes: vec!["http".to_owned(), "https".to_owned()],
            ports: None,
            max_bytes: 127,
            query: false,
            hyphens: false,
            at_root: false,
            suffixes: vec![".iso".to_owned(), ".img".to_owned()],
        }
    }
}

impl UrlRules {
    /// Any HTTP or HTTPS URL that fits the schema.
    pub fn lenient() -> Self {
        Self {
            max_bytes: 2048,
            query: true,
            hyphens: true,
            at_root: true,
            suffixes: Vec::new(),
            ..Self::default()
        }
    }
}

/// What the body of `InsertMedia` may and must have.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct InsertRules {
    /// Parameters taken; others are refused by name.
    pub accepted: Vec<String>,
    /// Parameters without which the action is refused.
    pub required: Vec<String>,
}

impl Default for InsertRules {
    fn default() -> Self {
        let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect();
        Self {
            accepted: words(&[
                "Image",
                "Inserted",
                "WriteProtected",
                "TransferMethod",
                "TransferProtocolType",
                "UserName",
                "Password",
            ]),
            required: words(&["Image"]),
        }
    }
}

/// The answer to ejecting an empty slot.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EjectEmpty {
    /// 204.
    Succeeds,
    /// 400, as some BMCs do.
    Refused,
}

/// Sessions and lock-out.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SessionPolicy {
    /// Sessions at a time; a further login is answered with 503.
    pub limit: usize,
    /// A session unused for this long is gone.
    pub timeout: Duration,
    /// Whether Basic authentication is taken.
    pub basic: bool,
    /// After so many wrong passwords in a row the account is locked; `None` never.
    pub lockout_after: Option<u32>,
    /// How long it is locked.
    pub lockout_time: Duration,
}

impl Default for SessionPolicy {
    fn default() -> Self {
        Self {
            limit: 8,
            timeout: Duration::from_secs(1800),
            basic: true,
            lockout_after: Some(5),
            lockout_time: Duration::from_secs(300),
        }
    }
}
