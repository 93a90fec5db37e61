//! The host's side of a vendor: power and boot.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::time;
use crate::types::{MediaKind, OverrideEnabled, ResetType};

/// The rules by which the BMC handles resets and shows the power state.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PowerPolicy {
    /// `ResetType@Redfish.AllowableValues`; anything else is refused.
    pub reset_types: Vec<ResetType>,
    /// Reset types that are offered and return 501.
    pub not_implemented: Vec<ResetType>,
    /// Whether the allowable values are in a `@Redfish.ActionInfo` resource instead of the action.
    pub action_info: bool,
    /// The response to `On` when on and to `ForceOff` when off.
    pub already_there: AlreadyThere,
    /// The operating system's reaction to a graceful shutdown.
    pub graceful: Graceful,
    /// Time from power-on to the choice of the boot source.
    #[serde(with = "time")]
    pub post_time: Duration,
    /// Time from the end of the operating system to `Off`.
    #[serde(with = "time")]
    pub off_time: Duration,
    /// Time from the response to a reset to its start.
    #[serde(with = "time")]
    pub act_delay: Duration,
    /// Time by which `PowerState` lags behind the real state.
    #[serde(with = "time")]
    pub state_lag: Duration,
    /// Time after power off in which `On` returns 409.
    #[serde(with = "time")]
    pub no_on_after_off: Duration,
    /// Time after a reset in which every reset is refused.
    #[serde(with = "time")]
    pub quiet_after_reset: Duration,
    /// Whether `PowerState` shows `PoweringOn` and `PoweringOff`; else it shows the state before the transition.
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

/// The response to a reset that would change nothing.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlreadyThere {
    /// The BMC returns 409.
    Conflict,
    /// The BMC returns 400, as older BMCs do.
    BadRequest,
    /// The BMC returns 204, without effect.
    NoOp,
}

/// The operating system's reaction to a graceful shutdown.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Graceful {
    /// The operating system ends after this time.
    After(#[serde(with = "time")] Duration),
    /// The operating system ignores the request: the BMC returns 2xx and the host stays on.
    IgnoredByHost,
    /// The [`Host`](crate::Host) receives the request. The host ends its system by itself, or not.
    PassedToHost,
}

/// The rules of the boot override, and of the search of the firmware for media.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BootPolicy {
    /// Allowable `BootSourceOverrideTarget`.
    pub targets: Vec<String>,
    /// Allowable `BootSourceOverrideEnabled`.
    pub enabled: Vec<OverrideEnabled>,
    /// Allowable `BootSourceOverrideMode`; the first one is the start value. When empty, the property does not exist.
    pub modes: Vec<String>,
    /// Whether the allowable values are shown.
    pub shows_allowable: bool,
    /// The kinds of slots that a target selects; a target that is not listed selects no virtual media.
    pub media_targets: BTreeMap<String, Vec<MediaKind>>,
    /// The search of the firmware for the slot to boot.
    pub search: BootSearch,
    /// Whether a CD needs an El Torito record and a USB image a boot signature to be booted.
    pub require_boot_record: bool,
    /// The settings resource below the system.
    pub settings: Option<SettingsObject>,
    /// The `MessageId` with which every PATCH of the override is refused (400), on firmware that shows it only.
    pub refused: Option<String>,
    /// The properties that a PATCH must contain.
    pub demands: BootDemands,
    /// The mode that a PATCH sets when it has a target and no mode, and that is shown after the override was used.
    pub mode_falls_to: Option<String>,
    /// Whether the firmware boots media in the mode `UEFI` only.
    pub uefi_only: bool,
    /// The value that is stored in place of every written `BootSourceOverrideEnabled`.
    pub stored_as: Option<OverrideEnabled>,
    /// Whether the override is refused between power-on and the choice of the boot source.
    pub locked_in_post: bool,
    /// An OEM method to choose the boot device.
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
            refused: None,
            demands: BootDemands::Nothing,
            mode_falls_to: None,
            uefi_only: false,
            stored_as: None,
            locked_in_post: false,
            oem: None,
        }
    }
}

/// A settings resource (`@Redfish.Settings`) that accepts the boot override.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsObject {
    /// The last segment of the path of the resource.
    pub id: String,
    /// Whether the system accepts the override too.
    #[serde(default)]
    pub also_direct: bool,
}

/// The properties that a PATCH of the boot override must contain.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BootDemands {
    /// Any of the properties.
    Nothing,
    /// Target, enabled and mode; else the PATCH succeeds without effect.
    AllOrIgnored,
    /// Enabled beside the target; else the PATCH succeeds without effect.
    EnabledOrIgnored,
    /// The target; else the PATCH is refused with plain text declared as JSON.
    Target,
}

/// An OEM method to choose the boot device.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BootOem {
    /// `ServerBoot.1.FirstBootDevice`, by system configuration profile or by manager attributes.
    DellServerBoot,
    /// `Oem.Hpe.BootOnNextServerReset` of a slot.
    HpeNextServerReset,
}

/// The search of the firmware for the medium of an override to `Cd` or `Usb`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BootSearch {
    /// Only the first slot of the kind with a medium is tried; if that is not bootable, the host boots the disk.
    FirstInserted,
    /// The first slot of the kind with a bootable medium is used.
    FirstBootable,
}
