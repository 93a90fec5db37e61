//! The target of a firmware file: vendor, model and component.
//!
//! ```text
//!   Vendor     "Dell Inc."           -> name of firmware/vendors.txt, or the text in lower case with `-` between its words
//!   Model      " PowerEdge  R640 "   -> "PowerEdge R640"; equal without regard to case
//!   Component  "storage-controller"  -> one of a closed list, whose order is the order of installation
//! ```
//!
//! Invariant: the text of a [`Vendor`] and of a [`Component`] is a valid part of a repository name.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The names of one vendor, a line each.
const ALIASES: &str = include_str!("../vendors.txt");
const VENDOR_MAX: usize = 64;
const MODEL_MAX: usize = 128;

/// A text that is no vendor, model, component, file name or name of a set.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is no {what}: {rule}")]
pub struct InvalidIdentity {
    /// The kind of name that the text should be.
    pub what: &'static str,
    /// The text, shortened.
    pub text: String,
    /// The rule that it breaks.
    pub rule: String,
}

impl InvalidIdentity {
    pub(crate) fn new(what: &'static str, text: &str, rule: impl Into<String>) -> Self {
        Self { what, text: text.chars().take(80).collect(), rule: rule.into() }
    }
}

/// The vendor of a server or of a component.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Vendor(String);

impl Vendor {
    /// The name as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Vendor {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let lower = text.to_ascii_lowercase();
        let words: Vec<&str> =
            lower.split(|sign: char| !sign.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        if words.is_empty() || text.len() > VENDOR_MAX || !text.is_ascii() {
            let rule =
                format!("a vendor is a name of letters and digits with at most {VENDOR_MAX} characters");
            return Err(InvalidIdentity::new("vendor", text, rule));
        }
        Ok(Self(known_as(&words.join(" ")).map_or_else(|| words.join("-"), str::to_owned)))
    }
}

/// The name of the line that contains this name.
fn known_as(name: &str) -> Option<&'static str> {
    let lines = ALIASES.lines().filter(|line| !line.starts_with('#'));
    let mut lines = lines.filter_map(|line| line.split_once('='));
    lines
        .find(|(first, others)| first.trim() == name || others.split(';').any(|other| other.trim() == name))
        .map(|(first, _)| first.trim())
}

/// The model of a server or of a component, as its maker writes it. Models are equal without regard to case.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Model(String);

impl Model {
    /// The text with its letters as they were given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text by which models are compared.
    pub fn key(&self) -> String {
        self.0.to_lowercase()
    }
}

impl FromStr for Model {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let model = words.join(" ");
        let printable = model.chars().all(|sign| !sign.is_control() && sign != ';');
        if model.is_empty() || model.len() > MODEL_MAX || !printable {
            let rule = format!("a model is printable text of at most {MODEL_MAX} bytes without `;`");
            return Err(InvalidIdentity::new("model", text, rule));
        }
        Ok(Self(model))
    }
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Model {}

impl PartialOrd for Model {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Model {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// A part of a server that has firmware. The order of the variants is the order of installation.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// The BMC.
    Bmc,
    /// The BIOS or UEFI firmware of the host.
    Bios,
    /// The programmable logic of the board.
    Cpld,
    /// A disk.
    Drive,
    /// The backplane of the disks and its expander.
    BackplaneExpander,
    /// A RAID or host bus adapter.
    StorageController,
    /// A network adapter.
    Nic,
    /// A power supply.
    Psu,
    /// The trusted platform module.
    Tpm,
    /// A graphics or compute accelerator.
    Gpu,
    /// A processor.
    Cpu,
}

impl Component {
    /// Every component, in the order of installation.
    pub const ALL: [Self; 11] = [
        Self::Bmc,
        Self::Bios,
        Self::Cpld,
        Self::Drive,
        Self::BackplaneExpander,
        Self::StorageController,
        Self::Nic,
        Self::Psu,
        Self::Tpm,
        Self::Gpu,
        Self::Cpu,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bmc => "bmc",
            Self::Bios => "bios",
            Self::Cpld => "cpld",
            Self::Drive => "drive",
            Self::BackplaneExpander => "backplane-expander",
            Self::StorageController => "storage-controller",
            Self::Nic => "nic",
            Self::Psu => "psu",
            Self::Tpm => "tpm",
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
        }
    }

    /// Whether the component is a part of the server itself, so that its firmware is made for the model of the server. Firmware
    /// of a device is made for the model of the device.
    pub const fn is_of_server(self) -> bool {
        matches!(self, Self::Bmc | Self::Bios | Self::Cpld | Self::BackplaneExpander | Self::Tpm | Self::Psu)
    }

    /// Whether every server has the component, so that an inventory without it is incomplete.
    pub const fn is_in_every_server(self) -> bool {
        matches!(self, Self::Bmc | Self::Bios)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Component {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let name = text.trim().to_ascii_lowercase().replace(['_', ' '], "-");
        Self::ALL.into_iter().find(|known| known.as_str() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            InvalidIdentity::new("component", text, format!("the components are {known}"))
        })
    }
}

/// Conversions between a checked text and `String`.
macro_rules! text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidIdentity;

            fn try_from(text: String) -> Result<Self, InvalidIdentity> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }
    )*};
}

text!(Vendor, Model);
