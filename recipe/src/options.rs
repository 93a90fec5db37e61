//! The choice of the disk, and what the maintenance OS and the controller do beside the installation.

use serde::{Deserialize, Serialize};

/// The disk by its properties. All that are given must match, texts without regard to case. A recipe gives at least one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskHints {
    /// The serial number, whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The World Wide Name, with or without a prefix such as `0x`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// A part of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A part of the vendor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// The smallest size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_bytes: Option<u64>,
    /// The largest size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Whether the disk rotates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// Host, channel, target and LUN. A disk of another host matches, and is taken only if another hint tells it apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hctl: Option<String>,
    /// A name in `/dev/disk/by-path`, with or without the folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_path: Option<String>,
}

/// The state of the machine after a success.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum After {
    /// The machine is powered on and starts from its disk.
    #[default]
    Restart,
    /// The machine stays off.
    Off,
}

impl After {
    /// Returns the name that recipes use.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the value with this name, if known.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// The way in which the OS image and the result of the installation travel.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum Delivery {
    /// The image and the result travel by the network of the machine.
    #[default]
    Network,
    /// The image and the result travel by the medium: the machine needs no network.
    Media,
}

impl Delivery {
    /// Returns the name that recipes use.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the value with this name, if known.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// The way in which `erase.target` erases.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum EraseMode {
    /// Signatures and partition tables are removed.
    #[default]
    Quick,
    /// The disk's own command erases everything.
    Secure,
}

impl EraseMode {
    /// Returns the name that recipes use.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the value with this name, if known.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}
