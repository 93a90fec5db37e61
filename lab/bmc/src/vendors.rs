//! The behaviour of each vendor: one data file, built into the program.
//!
//! ```text
//!   lab/bmc/vendors/dell-idrac9-6.toml ──► VendorFile ──► SimBmcConfig (with a serial number and an account)
//! ```
//!
//! A variant is a vendor's BMC with other values: one model or firmware whose capture or field report differs. Its file
//! names the vendor in `like` and holds only what differs.
//!
//! A file says what a BMC does, not how a client handles it, and shares nothing with the client's profiles: both are
//! written from the same evidence, so each checks the other.

use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use uuid::Uuid;

use super::config::{
    BiosPolicy, BootPolicy, ErrorPolicy, EtagPolicy, HardwareConfig, ManagerPolicy, MediaPolicy, PowerPolicy,
    ResponsePolicy, ServicePolicy, SessionPolicy, SimBmcConfig, SimIdentity, SlotConfig, SlotTree,
    TaskPolicy, UpdatePolicy,
};

/// A vendor whose BMC can be simulated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Vendor {
    /// The name of the vendor, such as `dell-idrac9-6`.
    pub name: &'static str,
    text: &'static str,
}

/// The reason why a vendor cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum VendorError {
    /// The name is unknown.
    #[error("there is no simulated BMC named {name:?}; choose one of: {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The vendor's file is not valid.
    #[error("the data of the simulated BMC {name} cannot be read; correct lab/bmc/vendors/{name}.toml")]
    Data {
        /// The vendor.
        name: &'static str,
        /// The parse error.
        #[source]
        source: Box<toml::de::Error>,
    },
}

macro_rules! vendors {
    ($(#[$doc:meta])* $list:ident: $($name:literal),* $(,)?) => {
        $(#[$doc])*
        pub const $list: &[Vendor] = &[
            $(Vendor { name: $name, text: include_str!(concat!("../vendors/", $name, ".toml")) }),*
        ];
    };
}

/// The five vendors that differ most: two CDs by action, two CDs by PATCH, two CDs with an own boot target, a CD and a USB
/// stick, one slot.
pub const DEMO_VENDORS: [&str; 5] = ["dell-idrac9-6", "lenovo-xcc", "smc-x12", "hpe-ilo6", "dell-idrac10"];

vendors![
    /// All vendors, in the order of lists. A seeded world draws from this list, so its order and length do not change.
    VENDORS:
    "generic",
    "dell-idrac8",
    "dell-idrac9-5",
    "dell-idrac9-6",
    "dell-idrac10",
    "hpe-ilo4",
    "hpe-ilo5",
    "hpe-ilo6",
    "lenovo-xcc",
    "lenovo-xcc3",
    "lenovo-tsm",
    "smc-x11-cfgcd",
    "smc-x12",
    "ami-megarac",
    "openbmc",
    "nvidia-gb200",
    "nvidia-dgx-h100",
    "cisco-ucs",
    "fujitsu-irmc",
    "huawei-ibmc",
    "sushy",
];

vendors![
    /// Models and firmware of vendors that differ from the vendor's other BMCs.
    VARIANTS:
    "dell-idrac10-2",
    "dell-idrac9-detached",
    "dell-idrac9-physical-cd",
    "hpe-ilo6-no-override",
    "hpe-openbmc",
    "hpe-xd670",
    "inspur",
    "nvidia-gh200",
    "smc-x12-cd",
];

/// The content of a vendor's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VendorFile {
    about: String,
    #[serde(default)]
    identity: SimIdentity,
    slots: Vec<SlotConfig>,
    slot_tree: SlotTree,
    #[serde(default)]
    power: PowerPolicy,
    #[serde(default)]
    manager: ManagerPolicy,
    #[serde(default)]
    hardware: HardwareConfig,
    #[serde(default)]
    boot: BootPolicy,
    #[serde(default)]
    bios: BiosPolicy,
    #[serde(default)]
    media: MediaPolicy,
    #[serde(default)]
    session: SessionPolicy,
    #[serde(default)]
    service: ServicePolicy,
    #[serde(default)]
    etag: EtagPolicy,
    #[serde(default)]
    responses: ResponsePolicy,
    #[serde(default)]
    tasks: TaskPolicy,
    #[serde(default)]
    errors: ErrorPolicy,
    #[serde(default)]
    update: UpdatePolicy,
}

impl Vendor {
    /// The vendor of this name.
    ///
    /// # Errors
    /// When the name is unknown.
    pub fn named(name: &str) -> Result<Self, VendorError> {
        let all = || VENDORS.iter().chain(VARIANTS);
        all().find(|vendor| vendor.name == name).copied().ok_or_else(|| VendorError::Unknown {
            name: name.to_owned(),
            known: all().map(|vendor| vendor.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// One line that describes this vendor's BMC.
    ///
    /// # Errors
    /// When the vendor's file is not valid.
    pub fn about(self) -> Result<String, VendorError> {
        self.read().map(|file| file.about)
    }

    fn read(self) -> Result<VendorFile, VendorError> {
        self.table()?.try_into().map_err(|source| self.unreadable(source))
    }

    /// The values of the file; those of a variant over those of its vendor.
    fn table(self) -> Result<toml::Table, VendorError> {
        let mut own: toml::Table = toml::from_str(self.text).map_err(|source| self.unreadable(source))?;
        let Some(like) = own.remove("like") else { return Ok(own) };
        // A variant of a variant would make the search endless.
        let base = VENDORS.iter().find(|vendor| like.as_str() == Some(vendor.name));
        let base = base.ok_or_else(|| VendorError::Unknown {
            name: like.as_str().unwrap_or_default().to_owned(),
            known: VENDORS.iter().map(|vendor| vendor.name).collect::<Vec<_>>().join(", "),
        })?;
        let mut table = base.table()?;
        merge(&mut table, own);
        Ok(table)
    }

    fn unreadable(self, source: toml::de::Error) -> VendorError {
        VendorError::Data { name: self.name, source: Box::new(source) }
    }
}

/// Sets values in a table; a table is merged, any other value replaces the old one.
fn merge(table: &mut toml::Table, values: toml::Table) {
    for (name, value) in values {
        match (table.get_mut(&name), value) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new)) => merge(old, new),
            (_, value) => {
                table.insert(name, value);
            }
        }
    }
}

impl SimBmcConfig {
    /// A BMC that behaves like those of this vendor or variant ([`VENDORS`], [`VARIANTS`]), switched off.
    ///
    /// # Errors
    /// When the name is unknown or the vendor's file is not valid.
    pub fn vendor(
        name: &str,
        serial: impl Into<String>,
        username: impl Into<String>,
        password: impl Into<String>,
    ) -> Result<Self, VendorError> {
        let file = Vendor::named(name)?.read()?;
        let serial = serial.into();
        let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, serial.as_bytes());
        Ok(Self {
            serial,
            sku: None,
            username: username.into(),
            password: SecretString::from(password.into()),
            identity: SimIdentity { uuid, ..file.identity },
            slots: file.slots,
            slot_tree: file.slot_tree,
            starts_on: false,
            power: file.power,
            manager: file.manager,
            hardware: file.hardware,
            boot: file.boot,
            bios: file.bios,
            media: file.media,
            session: file.session,
            service: file.service,
            etag: file.etag,
            responses: file.responses,
            tasks: file.tasks,
            errors: file.errors,
            update: file.update,
            hang_limit: Duration::from_secs(600),
            journal_capacity: 1024,
            started_at: jiff::Timestamp::now(),
            faults: Vec::new(),
        })
    }

    /// Multiplies every delay of the BMC by `share`, from 0 to 1. Timeouts stay unchanged.
    #[must_use]
    pub fn in_time(mut self, share: f64) -> Self {
        let scaled = |time: &mut Duration| *time = time.mul_f64(share.clamp(0.0, 1.0));
        let power = &mut self.power;
        if let super::config::Graceful::After(time) = &mut power.graceful {
            scaled(time);
        }
        scaled(&mut power.post_time);
        scaled(&mut power.off_time);
        scaled(&mut power.act_delay);
        scaled(&mut power.state_lag);
        scaled(&mut power.no_on_after_off);
        scaled(&mut power.quiet_after_reset);
        scaled(&mut self.manager.begins_after);
        scaled(&mut self.manager.away);
        scaled(&mut self.media.attach_time);
        scaled(&mut self.media.eject_time);
        scaled(&mut self.tasks.time);
        scaled(&mut self.update.check_time);
        scaled(&mut self.update.flash_time);
        scaled(&mut self.update.restart_time);
        scaled(&mut self.update.boot_delay);
        if let Some(enable) = &mut self.media.enable {
            scaled(&mut enable.settle);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vendor_file_can_be_read_and_has_unique_slot_ids() {
        for vendor in VENDORS.iter().chain(VARIANTS) {
            let config = SimBmcConfig::vendor(vendor.name, "S1", "root", "calvin").unwrap();
            assert!(!vendor.about().unwrap().is_empty(), "{}", vendor.name);
            let mut ids: Vec<_> = config.slots.iter().map(|slot| &slot.id).collect();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), config.slots.len(), "{}", vendor.name);
            assert!(!config.media.via.is_empty(), "{}", vendor.name);
        }
    }

    #[test]
    fn the_error_for_an_unknown_vendor_lists_the_known_ones() {
        let text = SimBmcConfig::vendor("ilo9", "S1", "root", "calvin").unwrap_err().to_string();
        assert!(text.contains("ilo9") && text.contains("hpe-ilo6"), "{text}");
    }

    #[test]
    fn a_variant_has_the_values_of_its_vendor_but_for_its_own() {
        let of = |name| SimBmcConfig::vendor(name, "S1", "root", "calvin").unwrap();
        let (base, variant) = (of("dell-idrac10"), of("dell-idrac10-2"));
        assert_ne!(variant.identity.firmware_version, base.identity.firmware_version);
        assert_eq!(variant.identity.manager_model, base.identity.manager_model);
        assert_eq!((variant.power, variant.slots), (base.power, base.slots));
    }

    #[test]
    fn in_time_scales_the_delays_of_a_bmc() {
        let config = SimBmcConfig::vendor("dell-idrac10", "S1", "root", "calvin").unwrap();
        let before = config.power.no_on_after_off;
        assert_eq!(config.in_time(0.5).power.no_on_after_off, before / 2);
    }
}
