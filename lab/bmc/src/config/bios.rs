//! The settings of the BIOS: attributes, the settings object where new values wait, the registry, the persistent boot order.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The settings of the BIOS. Without attributes the system links to no BIOS, unless it is bare.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BiosPolicy {
    /// The attributes.
    pub attributes: Vec<BiosAttribute>,
    /// Whether the resource exists without attributes.
    pub bare: bool,
    /// The last segment of the path of the settings object. Without it the resource itself is written, and nothing shows what
    /// waits for a restart.
    pub settings: Option<String>,
    /// Whether the settings object shows every attribute; else only those that wait.
    pub repeats: bool,
    /// The id of the attribute registry.
    pub registry: Option<String>,
    /// `SupportedApplyTimes`.
    pub apply_times: Vec<String>,
    /// Whether values wait for ever without `@Redfish.SettingsApplyTime`.
    pub needs_apply_time: bool,
    /// Whether the response is 202 with a task that ends with the restart of the host.
    pub schedules: bool,
    /// Whether values are in force at once.
    pub immediate: bool,
    /// The attributes whose old value the firmware keeps at the restart.
    pub keeps: Vec<String>,
    /// `Boot.BootOrder` of the system; not shown when empty.
    pub boot_order: Vec<String>,
}

impl BiosPolicy {
    /// Whether the system links to its BIOS.
    pub fn is_shown(&self) -> bool {
        self.bare || !self.attributes.is_empty()
    }
}

/// One attribute.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BiosAttribute {
    /// The `AttributeName` of the attribute.
    pub name: String,
    /// The `Type` of the attribute.
    pub kind: String,
    /// The value at the start.
    pub value: Value,
    /// `ValueName` of each value of an enumeration.
    #[serde(default)]
    pub values: Vec<String>,
    /// `LowerBound` and `UpperBound`.
    #[serde(default)]
    pub bounds: Option<(i64, i64)>,
    /// The `ReadOnly` of the attribute.
    #[serde(default)]
    pub read_only: bool,
}
