//! The boot override of a system, as the BMC shows it. Specification: DSP0268 ComputerSystem, Boot.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json;

/// `BootSourceOverrideTarget`; values that are not used here are [`BootTarget::Other`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum BootTarget {
    /// No override.
    None,
    /// A CD, virtual ones included.
    Cd,
    /// A CD on USB; on some BMCs the only name of a virtual CD.
    UsbCd,
    /// A USB disk.
    Usb,
    /// A disk.
    Hdd,
    /// The network.
    Pxe,
    /// Any other value.
    Other(String),
}

impl BootTarget {
    /// The value in the specification.
    pub fn as_str(&self) -> &str {
        match self {
            BootTarget::None => "None",
            BootTarget::Cd => "Cd",
            BootTarget::UsbCd => "UsbCd",
            BootTarget::Usb => "Usb",
            BootTarget::Hdd => "Hdd",
            BootTarget::Pxe => "Pxe",
            BootTarget::Other(word) => word,
        }
    }
}

impl BootTarget {
    /// The device of `UefiTargetBootSourceOverride`.
    pub(super) fn uefi_target() -> Self {
        BootTarget::Other("UefiTarget".to_owned())
    }
}

impl From<String> for BootTarget {
    fn from(word: String) -> Self {
        let known = [
            BootTarget::None,
            BootTarget::Cd,
            BootTarget::UsbCd,
            BootTarget::Usb,
            BootTarget::Hdd,
            BootTarget::Pxe,
        ];
        known
            .into_iter()
            .find(|target| target.as_str().eq_ignore_ascii_case(&word))
            .unwrap_or(BootTarget::Other(word))
    }
}

impl From<BootTarget> for String {
    fn from(target: BootTarget) -> Self {
        target.as_str().to_owned()
    }
}

impl fmt::Display for BootTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `BootSourceOverrideEnabled`.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, strum::IntoStaticStr, strum::EnumString,
)]
#[strum(ascii_case_insensitive)]
pub enum BootEnabled {
    /// The override is not set.
    Disabled,
    /// The override is for the next boot.
    Once,
    /// The override is for every boot.
    Continuous,
}

impl BootEnabled {
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }

    fn named(word: &str) -> Option<Self> {
        word.parse().ok()
    }
}

/// `BootSourceOverrideMode`.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, strum::IntoStaticStr, strum::EnumString,
)]
#[strum(ascii_case_insensitive)]
pub enum BootMode {
    /// UEFI.
    #[strum(serialize = "UEFI")]
    Uefi,
    /// BIOS.
    Legacy,
}

impl BootMode {
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }

    fn named(word: &str) -> Option<Self> {
        word.parse().ok()
    }
}

/// The boot override as the BMC shows it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct BootOverride {
    /// The target.
    pub target: Option<BootTarget>,
    /// Whether the override is set, and for one boot or every boot.
    pub enabled: Option<BootEnabled>,
    /// The mode of the boot: UEFI or BIOS.
    pub mode: Option<BootMode>,
    /// The targets that the BMC lists; empty if it lists none.
    pub allowed_targets: Vec<BootTarget>,
    /// The values of `enabled` that the BMC lists; empty if it lists none.
    pub allowed_enabled: Vec<BootEnabled>,
}

impl BootOverride {
    /// Parses the `Boot` member; `None` when it contains no override.
    pub(crate) fn of(fields: &Map<String, Value>) -> Option<Self> {
        let boot = json::member(fields, "Boot")?;
        let target = json::word(boot, "BootSourceOverrideTarget").map(BootTarget::from);
        let enabled =
            json::word(boot, "BootSourceOverrideEnabled").and_then(|word| BootEnabled::named(&word));
        if target.is_none() && enabled.is_none() && !boot.contains_key("BootSourceOverrideTarget") {
            return None;
        }
        let targets = json::texts(boot, "BootSourceOverrideTarget@Redfish.AllowableValues");
        let values = json::texts(boot, "BootSourceOverrideEnabled@Redfish.AllowableValues");
        Some(BootOverride {
            target,
            enabled,
            mode: json::word(boot, "BootSourceOverrideMode").and_then(|word| BootMode::named(&word)),
            allowed_targets: targets.into_iter().map(BootTarget::from).collect(),
            allowed_enabled: values.iter().filter_map(|word| BootEnabled::named(word)).collect(),
        })
    }

    /// Whether the next boot uses this target.
    pub fn targets(&self, target: &BootTarget) -> bool {
        self.target.as_ref() == Some(target) && self.is_active()
    }

    /// Whether an override is in force.
    pub fn is_active(&self) -> bool {
        !matches!(self.target, None | Some(BootTarget::None))
            && !matches!(self.enabled, None | Some(BootEnabled::Disabled))
    }

    pub(super) fn allows(&self, target: &BootTarget) -> bool {
        self.allowed_targets.is_empty() || self.allowed_targets.contains(target)
    }
}
