//! Values that configuration, faults and state share: power states, resets, kinds of media, styles of reading.

use serde::{Deserialize, Serialize};

/// The values of `PowerState` of the system.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, strum::IntoStaticStr)]
pub enum Power {
    /// No power.
    Off,
    /// Between power-on and the choice of the boot source.
    PoweringOn,
    /// An operating system has been started.
    On,
    /// Between the end of the operating system and power off.
    PoweringOff,
}

impl Power {
    /// The value in the Redfish schema.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The values of `ResetType` that are simulated; [`PowerPolicy::reset_types`](crate::PowerPolicy::reset_types) says which of them a BMC offers.
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    Eq,
    Hash,
    PartialEq,
    Serialize,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::Display,
    strum::VariantArray,
)]
pub enum ResetType {
    /// Power on.
    On,
    /// Power on, even where `On` is refused.
    ForceOn,
    /// Power off at once.
    ForceOff,
    /// Ask the operating system to shut down.
    GracefulShutdown,
    /// Ask the operating system to shut down, then power on.
    GracefulRestart,
    /// Power off at once, then on.
    ForceRestart,
    /// Like [`ResetType::ForceRestart`], with the power removed in between.
    PowerCycle,
    /// Power on when off, graceful shutdown when on.
    PushPowerButton,
    /// A non-maskable interrupt; a simulated operating system ignores it.
    Nmi,
}

impl ResetType {
    /// The value in the Redfish schema.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// `BootSourceOverrideEnabled`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, strum::IntoStaticStr)]
pub enum OverrideEnabled {
    /// The firmware uses its boot order.
    Disabled,
    /// The override is for the next boot only.
    Once,
    /// The override is for every boot until it is changed.
    Continuous,
}

impl OverrideEnabled {
    /// The value in the Redfish schema.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The kind of drive that the host sees for a slot.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaKind {
    /// An optical drive.
    Cd,
    /// A USB stick.
    Usb,
}

/// The requests by which a vendor reads an image.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadStyle {
    /// Whether the length is read with HEAD; else from the first response.
    pub head: bool,
    /// Whether ranges are requested; else the whole image is read once.
    pub ranges: bool,
    /// Whether the descriptors are read in four parallel ranges.
    pub parallel: bool,
    /// Whether requests are HTTP/1.0.
    pub http_1_0: bool,
    /// Whether requests come from another address than the one the BMC listens on.
    pub other_address: bool,
    /// Whether an extra first read is aborted in the middle.
    pub aborts: bool,
}

impl Default for ReadStyle {
    fn default() -> Self {
        Self {
            head: true,
            ranges: true,
            parallel: false,
            http_1_0: false,
            other_address: false,
            aborts: false,
        }
    }
}
