//! The host's side of a vendor: power and boot.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{media::MediaKind, time};
use crate::{boot::OverrideEnabled, power::ResetType};

/// How power commands are taken.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PowerPolicy {
    /// `ResetType@Redfish.AllowableValues`; anything else is refused.
    pub reset_types: Vec<ResetType>,
    /// Reset types that are offered and answered with 501.
    pub not_implemented: Vec<ResetType>,
    /// Whether the allowable values stand in a `@Redfish.ActionInfo` resource instead of the action.
    pub action_info: bool,
    /// `On` when on, `ForceOff` when off.
    pub already_there: AlreadyThere,
    /// What the operating system does when asked to shut down.
    pub graceful: Graceful,
    /// From power-on to the choice of the boot source.
    #[serde(with = "time")]
    pub post_time: Duration,
    /// From the end of the operating system to `Off`.
    #[serde(with = "time")]
    pub off_time: Duration,
    /// From the answer to a reset to its beginning.
    #[serde(with = "time")]
    pub act_delay: Duration,
    /// How far `PowerState` lags behind the truth.
    #[serde(with = "time")]
    pub state_lag: Duration,
    /// `On` is answered with 409 for this long after the host went off.
    #[serde(with = "time")]
    pub no_on_after_off: Duration,
    /// Any reset is refused for this long after the last one.
    #[serde(with = "time")]
    pub quiet_after_reset: Duration,
    /// Whether `PowerState` knows `PoweringOn` and `PoweringOff`; else it shows the state that was left last.
    pub shows_transitions: bool,
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
            not_implemented: Vec::new(),
            action_info: false,
            already_there: AlreadyThere::Conflict,
            graceful: Graceful::After(Duration::ZERO),
            post_time: Duration::ZERO,
            off_time: Duration::ZERO,
            act_delay: Duration::ZERO,
            state_lag: Duration::ZERO,
            no_on_after_off: Duration::ZERO,
            quiet_after_reset: Duration::ZERO,
            shows_transitions: true,
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
    After(#[serde(with = "time")] Duration),
    /// Nothing: the BMC answers 2xx and the host stays on.
    IgnoredByHost,
}

/// What the boot override takes and how the firmware searches.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BootPolicy {
    /// Allowable `BootSourceOverrideTarget`.
    pub targets: Vec<String>,
    /// Allowable `BootSourceOverrideEnabled`.
    pub enabled: Vec<OverrideEnabled>,
    /// Allowable `BootSourceOverrideMode`, the first one being the start value; none: there is no such property.
    pub modes: Vec<String>,
    /// Whether the allowable values are shown.
    pub shows_allowable: bool,
    /// Which slots a target means; a target that is not listed means no virtual media.
    pub media_targets: BTreeMap<String, Vec<MediaKind>>,
    /// Which slot counts.
    pub search: BootSearch,
    /// Whether a CD needs an El Torito record and a USB image a boot signature to be booted.
    pub require_boot_record: bool,
    /// The settings resource below the system.
    pub settings: Option<SettingsObject>,
    /// What a PATCH must have.
    pub demands: BootDemands,
    /// `BootSourceOverrideMode` becomes this when a PATCH sets a target and no mode.
    pub mode_falls_to: Option<String>,
    /// Whatever `BootSourceOverrideEnabled` is written, this is kept.
    pub stored_as: Option<OverrideEnabled>,
    /// Whether the override is refused between power-on and the choice of the boot source.
    pub locked_in_post: bool,
    /// A second way to choose the boot device.
    pub oem: Option<BootOem>,
}

impl Default for BootPolicy {
    fn default() -> Self {
        let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect();
        Self {
            targets: words(&["None", "Pxe", "Cd", "Usb", "Hdd", "BiosSetup", "Diags", "UefiHttp"]),
            enabled: vec![OverrideEnabled::Disabled, OverrideEnabled::Once, OverrideEnabled::Continuous],
            modes: words(&["UEFI", "Legacy"]),
            shows_allowable: true,
            media_targets: BTreeMap::from([
                ("Cd".to_owned(), vec![MediaKind::Cd]),
                ("Usb".to_owned(), vec![MediaKind::Usb]),
                ("UsbCd".to_owned(), vec![MediaKind::Cd, MediaKind::Usb]),
            ]),
            search: BootSearch::FirstInserted,
            require_boot_record: true,
            settings: None,
            demands: BootDemands::Nothing,
            mode_falls_to: None,
            stored_as: None,
            locked_in_post: false,
            oem: None,
        }
    }
}

/// A settings resource (`@Redfish.Settings`) that takes the boot override.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsObject {
    /// The last segment of its path.
    pub id: String,
    /// Whether the override can be written at the system too.
    #[serde(default)]
    pub also_direct: bool,
}

/// What a PATCH of the boot override must have.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BootDemands {
    /// Any of its properties.
    Nothing,
    /// Target, enabled and mode; else it is taken and changes nothing.
    AllOrIgnored,
    /// Enabled beside the target; else it is taken and changes nothing.
    EnabledOrIgnored,
    /// The target; else it is refused in plain text that says it is JSON.
    Target,
}

/// An own way to choose the boot device.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BootOem {
    /// `ServerBoot.1.FirstBootDevice`, by system configuration profile or by manager attributes.
    DellServerBoot,
    /// `Oem.Hpe.BootOnNextServerReset` of a slot.
    HpeNextServerReset,
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
