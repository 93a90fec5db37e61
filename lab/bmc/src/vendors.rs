//! The vendors' behaviours: one data file each, built into the program.
//!
//! ```text
//!   redfish/twins/dell-idrac9-6.toml ──► VendorFile ──► SimBmcConfig (with a serial number and an account)
//! ```
//!
//! The files say what a BMC does, not how a client should deal with it, and share nothing with the client's profiles:
//! both are written from the same evidence, and each is the other's check.

use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use uuid::Uuid;

use super::config::{
    AnswerPolicy, BootPolicy, ErrorPolicy, EtagPolicy, Identity, MediaPolicy, PowerPolicy, ServicePolicy,
    SessionPolicy, SimBmcConfig, SlotConfig, SlotTree, TaskPolicy,
};

/// A behaviour that can be asked for by name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Vendor {
    /// Its name, such as `dell-idrac9-6`.
    pub name: &'static str,
    text: &'static str,
}

/// A vendor's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VendorError {
    /// There is no such vendor.
    #[error("there is no simulated BMC named {name:?}; choose one of: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file does not say what a vendor's file has to say.
    #[error("the data of the simulated BMC {name} cannot be read")]
    Data {
        /// The vendor.
        name: &'static str,
        /// Why.
        #[source]
        source: Box<toml::de::Error>,
    },
}

macro_rules! vendors {
    ($($name:literal),* $(,)?) => {
        /// All vendors, in the order in which they are listed.
        pub const VENDORS: &[Vendor] = &[
            $(Vendor { name: $name, text: include_str!(concat!("../vendors/", $name, ".toml")) }),*
        ];
    };
}

/// Five that differ most: two CDs by action and by PATCH, two CDs with a boot target of their own, a CD and a USB stick, one
/// slot.
pub const SHOWN: [&str; 5] = ["dell-idrac9-6", "lenovo-xcc", "smc-x12", "hpe-ilo6", "dell-idrac10"];

vendors![
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

/// What a vendor's file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VendorFile {
    about: String,
    #[serde(default)]
    identity: Identity,
    slots: Vec<SlotConfig>,
    slot_tree: SlotTree,
    #[serde(default)]
    power: PowerPolicy,
    #[serde(default)]
    boot: BootPolicy,
    #[serde(default)]
    media: MediaPolicy,
    #[serde(default)]
    session: SessionPolicy,
    #[serde(default)]
    service: ServicePolicy,
    #[serde(default)]
    etag: EtagPolicy,
    #[serde(default)]
    answers: AnswerPolicy,
    #[serde(default)]
    tasks: TaskPolicy,
    #[serde(default)]
    errors: ErrorPolicy,
}

impl Vendor {
    /// The vendor of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> Result<Self, VendorError> {
        VENDORS.iter().find(|vendor| vendor.name == name).copied().ok_or_else(|| VendorError::Unknown {
            name: name.to_owned(),
            known: VENDORS.iter().map(|vendor| vendor.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// One line about it.
    ///
    /// # Errors
    /// When its data cannot be read.
    pub fn about(self) -> Result<String, VendorError> {
        self.read().map(|file| file.about)
    }

    fn read(self) -> Result<VendorFile, VendorError> {
        toml::from_str(self.text)
            .map_err(|source| VendorError::Data { name: self.name, source: Box::new(source) })
    }
}

impl SimBmcConfig {
    /// A BMC that behaves like those of this vendor ([`VENDORS`]), switched off.
    ///
    /// # Errors
    /// When there is no such vendor.
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
            identity: Identity { uuid, ..file.identity },
            slots: file.slots,
            slot_tree: file.slot_tree,
            starts_on: false,
            power: file.power,
            boot: file.boot,
            media: file.media,
            session: file.session,
            service: file.service,
            etag: file.etag,
            answers: file.answers,
            tasks: file.tasks,
            errors: file.errors,
            hang_limit: Duration::from_secs(600),
            journal_capacity: 1024,
            started_at: jiff::Timestamp::now(),
            faults: Vec::new(),
        })
    }

    /// The same BMC in another time: all that takes time takes this share of it. Timeouts stay as they are.
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
        scaled(&mut self.media.attach_time);
        scaled(&mut self.media.eject_time);
        scaled(&mut self.tasks.time);
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
    fn every_vendor_can_be_read_and_has_slots_with_names_of_their_own() {
        for vendor in VENDORS {
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
    fn an_unknown_vendor_is_answered_with_those_there_are() {
        let text = SimBmcConfig::vendor("ilo9", "S1", "root", "calvin").unwrap_err().to_string();
        assert!(text.contains("ilo9") && text.contains("hpe-ilo6"), "{text}");
    }

    #[test]
    fn all_that_takes_time_takes_the_asked_share_of_it() {
        let config = SimBmcConfig::vendor("dell-idrac10", "S1", "root", "calvin").unwrap();
        let before = config.power.no_on_after_off;
        assert_eq!(config.in_time(0.5).power.no_on_after_off, before / 2);
    }
}
