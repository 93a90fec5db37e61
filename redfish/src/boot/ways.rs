//! The ways to boot an image in a slot once, and the choice of another way for a host that did not boot it by the first.
//!
//! ```text
//!   Override Cd             the target of the boot override; on some machines Cd is a physical drive, or the disk boots
//!     other ways, in this order, each only if the BMC shows it:
//!       ConfigurationImport      ServerBoot.1 and an import of the configuration
//!       BootOnNextServerReset    the property of the slot
//!       Override UsbCd, …        another target for a CD, from the list of the BMC
//!       Option                   UefiTarget, with the device path of the boot option of the virtual CD
//! ```
//!
//! Nothing is sent to find another way but reads. Specification: DSP0268 ComputerSystem, Boot; BootOption.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BootOverride, BootTarget};
use crate::bmc::{Bmc, ChangeResult};
use crate::discovery::{Discovery, SystemInfo};
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::json::{self, Resource};
use crate::profile::BootVia;

/// Maximum number of boot options that are read.
const MAX_OPTIONS: usize = 24;

/// A way to set the next boot to an image in a slot.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BootWay {
    /// The boot override with this target.
    Override(BootTarget),
    /// The boot override with the device path of a boot option.
    Option(String),
    /// An imported configuration that sets the first boot device.
    ConfigurationImport,
    /// The property `BootOnNextServerReset` of the slot.
    BootOnNextServerReset,
}

impl BootWay {
    /// The mechanism, which decides where the next boot source is read and cleared.
    pub fn via(&self) -> BootVia {
        match self {
            BootWay::Override(_) | BootWay::Option(_) => BootVia::Override,
            BootWay::ConfigurationImport => BootVia::ConfigurationImport,
            BootWay::BootOnNextServerReset => BootVia::BootOnNextServerReset,
        }
    }
}

impl fmt::Display for BootWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootWay::Override(target) => write!(f, "boot override {target}"),
            BootWay::Option(path) => write!(f, "boot override UefiTarget {path}"),
            BootWay::ConfigurationImport => {
                f.write_str("first boot device VCD-DVD of the BMC's configuration")
            }
            BootWay::BootOnNextServerReset => f.write_str("BootOnNextServerReset of the slot"),
        }
    }
}

impl Bmc {
    /// Returns the way by which [`Bmc::boot_media_once`] has set the next boot that it observed.
    pub fn boot_way(&self, observed: &BootOverride) -> BootWay {
        match self.profile().boot_via {
            BootVia::Override => BootWay::Override(observed.target.clone().unwrap_or(BootTarget::Cd)),
            BootVia::ConfigurationImport => BootWay::ConfigurationImport,
            BootVia::BootOnNextServerReset => BootWay::BootOnNextServerReset,
        }
    }

    /// Learns that a host of this BMC boots the media by this way. The device path of a boot option is not learned, because it
    /// changes with the hardware.
    pub fn boots_by(&self, way: &BootWay) {
        self.core.active_profile.learn(|learned| match way {
            BootWay::Override(target) => {
                learned.boot_target = Some(target.clone());
                learned.boot_via = None;
            }
            BootWay::Option(_) => {}
            BootWay::ConfigurationImport | BootWay::BootOnNextServerReset => {
                learned.boot_via = Some(way.via());
            }
        });
    }

    /// Sets the next boot to the image in this slot by the given way.
    ///
    /// # Errors
    ///
    /// `NotSupported` when the BMC lacks the way; else when a request fails or is refused.
    pub async fn boot_media_once_by(
        &self,
        found: &Discovery,
        slot: &str,
        way: &BootWay,
    ) -> Result<ChangeResult<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::SetBootOnce;
        match way {
            BootWay::Override(target) => {
                self.set_boot_once(&found.system, std::slice::from_ref(target), None).await
            }
            BootWay::Option(path) => self.set_boot_option_once(&found.system, path).await,
            BootWay::ConfigurationImport => self.boot_by_import(OPERATION, found, true).await,
            BootWay::BootOnNextServerReset => self.boot_by_slot(OPERATION, slot, true).await,
        }
    }

    /// Returns another way than `first` to boot the image in this slot once; `None` when the BMC shows none. Only reads.
    ///
    /// # Errors
    ///
    /// When a read fails.
    pub async fn other_boot_way(
        &self,
        found: &Discovery,
        slot: &str,
        first: &BootWay,
    ) -> Result<Option<BootWay>, RedfishError> {
        const OPERATION: Operation = Operation::BootOverride;
        if *first != BootWay::ConfigurationImport && self.can_import(OPERATION, found).await? {
            return Ok(Some(BootWay::ConfigurationImport));
        }
        if *first != BootWay::BootOnNextServerReset && self.has_next_reset(OPERATION, slot).await? {
            return Ok(Some(BootWay::BootOnNextServerReset));
        }
        let shown = match self.boot_override(&found.system).await {
            Ok(shown) => shown,
            Err(error) if matches!(error.kind, ErrorKind::NotSupported { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let cds = [BootTarget::Cd, BootTarget::UsbCd, BootTarget::Other("UefiUsbCd".to_owned())];
        let mut others = cds.into_iter().filter(|target| shown.allowed_targets.contains(target));
        if let Some(target) = others.find(|target| *first != BootWay::Override(target.clone())) {
            return Ok(Some(BootWay::Override(target)));
        }
        if matches!(first, BootWay::Option(_)) || !shown.allowed_targets.contains(&BootTarget::uefi_target())
        {
            return Ok(None);
        }
        Ok(self.virtual_cd_option(OPERATION, &found.system).await?.map(BootWay::Option))
    }

    /// Returns the device path of the first enabled boot option that is a virtual CD.
    async fn virtual_cd_option(
        &self,
        operation: Operation,
        system: &SystemInfo,
    ) -> Result<Option<String>, RedfishError> {
        let core = &self.core;
        let system = core.cached(operation, &system.uri).await?;
        let boot = json::member(&system.fields, "Boot");
        let Some(options) = boot.and_then(|boot| json::link(boot, "BootOptions")) else { return Ok(None) };
        for member in core.members(operation, &options).await?.into_iter().take(MAX_OPTIONS) {
            let option = core.contents(operation, member).await?;
            if let Some(path) = virtual_cd_path(&option) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }
}

/// Returns the device path of a boot option, if it is enabled and its name says that it is a virtual CD.
fn virtual_cd_path(option: &Resource) -> Option<String> {
    let fields = &option.fields;
    let names = ["DisplayName", "Name", "Description"];
    let name: String = names.iter().filter_map(|name| json::word(fields, name)).collect::<Vec<_>>().join(" ");
    let name = name.to_ascii_lowercase();
    let is_cd = ["cd", "dvd", "optical"].iter().any(|word| name.contains(word));
    let enabled = json::flag(fields, "BootOptionEnabled") != Some(false);
    json::word(fields, "UefiDevicePath").filter(|_| enabled && is_cd && name.contains("virtual"))
}
