//! The one-time boot override.
//!
//! ```text
//!   boot_media_once(found, slot)   by the override, or by the vendor's own way (profile, boot_via)
//!   set_boot_once(preferred)   read; set already? nothing is sent
//!                              first of the preferred targets the BMC lists
//!                              PATCH Boot {Target, Enabled: Once [, Mode]}; 400? once more with the Mode
//!                              read back; the mode fell back? PATCH all three -> read back -> Applied
//!   clear_boot_override()      the same with {Enabled: Disabled}; never a disk as target
//! ```
//!
//! Some systems take the change in a settings resource (`@Redfish.Settings`): where that one shows a boot
//! target, it is written and read there, and the system itself is what holds right now. A read-back counts when
//! the target fits and the override is not disabled: some BMCs show `Continuous` for what was set `Once`.
//! Specification: DSP0268 ComputerSystem, Boot; DSP0266 7.11 (settings resource).

mod oem;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::bmc::{Applied, Bmc};
use crate::discovery::SystemInfo;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::Answer;
use crate::json::{self, Resource};
use crate::power::mark_maybe_applied;
use crate::profile::{BootBody, BootResource};

/// `BootSourceOverrideTarget`, as far as it is used here.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum BootTarget {
    /// No override.
    None,
    /// A CD, virtual ones included.
    Cd,
    /// A CD on USB; on some BMCs the only name of a virtual one.
    UsbCd,
    /// A USB disk.
    Usb,
    /// A disk.
    Hdd,
    /// The network.
    Pxe,
    /// Any other word.
    Other(String),
}

impl BootTarget {
    /// The word of the specification.
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
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum BootEnabled {
    /// No override.
    Disabled,
    /// For the next boot.
    Once,
    /// For every boot.
    Continuous,
}

impl BootEnabled {
    fn as_str(self) -> &'static str {
        match self {
            BootEnabled::Disabled => "Disabled",
            BootEnabled::Once => "Once",
            BootEnabled::Continuous => "Continuous",
        }
    }

    fn named(word: &str) -> Option<Self> {
        let all = [BootEnabled::Disabled, BootEnabled::Once, BootEnabled::Continuous];
        all.into_iter().find(|enabled| enabled.as_str().eq_ignore_ascii_case(word))
    }
}

/// `BootSourceOverrideMode`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum BootMode {
    /// UEFI.
    Uefi,
    /// BIOS.
    Legacy,
}

impl BootMode {
    fn as_str(self) -> &'static str {
        match self {
            BootMode::Uefi => "UEFI",
            BootMode::Legacy => "Legacy",
        }
    }

    fn named(word: &str) -> Option<Self> {
        [BootMode::Uefi, BootMode::Legacy].into_iter().find(|mode| mode.as_str().eq_ignore_ascii_case(word))
    }
}

/// What a BMC shows of its boot override.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct BootOverride {
    /// The target.
    pub target: Option<BootTarget>,
    /// Whether and for how long it holds.
    pub enabled: Option<BootEnabled>,
    /// UEFI or BIOS.
    pub mode: Option<BootMode>,
    /// Targets the BMC lists; empty if it lists none.
    pub allowed_targets: Vec<BootTarget>,
    /// Values of `enabled` the BMC lists; empty if it lists none.
    pub allowed_enabled: Vec<BootEnabled>,
}

impl BootOverride {
    /// Reads the `Boot` member; none when there is no override in it.
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

    /// Whether the next boot goes to this target.
    pub fn targets(&self, target: &BootTarget) -> bool {
        self.target.as_ref() == Some(target) && self.is_active()
    }

    /// Whether there is an override in force.
    pub fn is_active(&self) -> bool {
        !matches!(self.target, None | Some(BootTarget::None))
            && !matches!(self.enabled, None | Some(BootEnabled::Disabled))
    }

    fn allows(&self, target: &BootTarget) -> bool {
        self.allowed_targets.is_empty() || self.allowed_targets.contains(target)
    }
}

/// Where the override is written, and what it shows.
struct Place {
    resource: Resource,
    shown: BootOverride,
}

impl Bmc {
    /// Reads the boot override.
    pub async fn boot_override(&self, system: &SystemInfo) -> Result<BootOverride, RedfishError> {
        Ok(self.boot_place(Operation::BootOverride, system, false).await?.shown)
    }

    /// Makes the next boot go to the first of these targets that the BMC lists (the profile's order suits a
    /// virtual CD), in this mode if one is given, else in the mode that is set.
    ///
    /// The observed override names the target that was chosen. Nothing is sent when it is set already.
    pub async fn set_boot_once(
        &self,
        system: &SystemInfo,
        preferred: &[BootTarget],
        mode: Option<BootMode>,
    ) -> Result<Applied<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::SetBootOnce;
        let profile = self.core.profile();
        let mut place = self.boot_place(OPERATION, system, true).await?;
        if place.shown.is_active() {
            place = self.boot_place(OPERATION, system, false).await?;
        }
        let shown = &place.shown;
        let may = |target: &BootTarget| !(profile.no_hdd_override && *target == BootTarget::Hdd);
        let Some(target) = preferred.iter().find(|target| may(target) && shown.allows(target)) else {
            let listed: Vec<&str> = shown.allowed_targets.iter().map(BootTarget::as_str).collect();
            let what = format!("none of the wanted boot targets is among [{}]", listed.join(", "));
            return Err(RedfishError::not_supported(OPERATION, what));
        };
        let kept = mode.or(shown.mode);
        let in_mode = |shown: &BootOverride| match (kept, shown.mode) {
            (Some(kept), Some(shown)) => kept == shown,
            _ => true,
        };
        let fits = |shown: &BootOverride| shown.targets(target) && in_mode(shown);
        if fits(shown) {
            return Ok(Applied { changed: false, confirmed: true, observed: place.shown });
        }
        let once = shown.allowed_enabled.is_empty() || shown.allowed_enabled.contains(&BootEnabled::Once);
        let enabled = if once { BootEnabled::Once } else { BootEnabled::Continuous };
        let full = boot_body(Some(target), Some(enabled), Some(kept.unwrap_or(BootMode::Uefi)));
        let wanted_mode = mode.filter(|mode| shown.mode != Some(*mode));
        let small = match profile.boot_body {
            BootBody::Minimal => boot_body(
                Some(target).filter(|target| shown.target.as_ref() != Some(*target)),
                Some(enabled).filter(|enabled| shown.enabled != Some(*enabled)),
                wanted_mode,
            ),
            BootBody::EnabledAlways => boot_body(Some(target), Some(enabled), wanted_mode),
            BootBody::Full => full.clone(),
        };
        let partly = small != full;
        let bodies = if partly { vec![small, full.clone()] } else { vec![full.clone()] };
        self.write_boot(OPERATION, system, &place.resource, &bodies).await?;
        let mut observed = self.read_back(OPERATION, &place).await?;
        if !fits(&observed) && (partly || observed.targets(target)) {
            // Part of the object was taken without effect, or the device was changed and the mode fell back with it;
            // written together, it stays.
            let led = observed.targets(target);
            let place = Place { shown: observed, ..self.boot_place(OPERATION, system, false).await? };
            match self.write_boot(OPERATION, system, &place.resource, &[full]).await {
                // What was accepted first may only be shown late.
                Err(error) if !led => tracing::debug!(code = error.code(), "whole boot object refused"),
                written => written?,
            }
            observed = self.read_back(OPERATION, &place).await?;
        }
        Ok(Applied { changed: true, confirmed: fits(&observed), observed })
    }

    /// Ends the boot override, so that the host follows its own boot order. Never sets another target.
    pub async fn clear_boot_override(
        &self,
        system: &SystemInfo,
    ) -> Result<Applied<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::ClearBootOverride;
        let place = self.boot_place(OPERATION, system, false).await?;
        if !place.shown.is_active() {
            return Ok(Applied { changed: false, confirmed: true, observed: place.shown });
        }
        let bodies = [
            boot_body(None, Some(BootEnabled::Disabled), None),
            boot_body(Some(&BootTarget::None), Some(BootEnabled::Disabled), None),
            json!({ "Boot": { "BootSourceOverrideTarget": "None" } }),
        ];
        self.write_boot(OPERATION, system, &place.resource, &bodies).await?;
        let observed = self.read_back(OPERATION, &place).await?;
        Ok(Applied { changed: true, confirmed: !observed.is_active(), observed })
    }

    /// The settings resource where it shows a boot target, else the system; the profile may say which.
    async fn boot_place(
        &self,
        operation: Operation,
        system: &SystemInfo,
        lately: bool,
    ) -> Result<Place, RedfishError> {
        let read = async |path: &str| match lately {
            true => self.core.lately(operation, path).await,
            false => self.core.read(operation, path).await,
        };
        let at = self.core.profile().boot_at;
        let resource = read(&system.uri).await?;
        let current = BootOverride::of(&resource.fields);
        let settings = json::member(&resource.fields, "@Redfish.Settings")
            .and_then(|settings| json::link(settings, "SettingsObject"))
            .filter(|settings| *settings != resource.path && at != BootResource::System);
        if let Some(settings) = settings {
            match read(&settings).await {
                Ok(resource) => {
                    let pending = BootOverride::of(&resource.fields);
                    let pending = match at {
                        BootResource::Settings => Some(pending.unwrap_or_default()),
                        BootResource::Auto | BootResource::System => {
                            pending.filter(|pending| pending.target.is_some())
                        }
                    };
                    if let Some(mut shown) = pending {
                        let current = current.unwrap_or_default();
                        // The lists of values often stand in only one of the two.
                        if shown.allowed_targets.is_empty() {
                            shown.allowed_targets = current.allowed_targets;
                        }
                        if shown.allowed_enabled.is_empty() {
                            shown.allowed_enabled = current.allowed_enabled;
                        }
                        return Ok(Place { resource, shown });
                    }
                }
                Err(error) if error.status().is_some() && !error.is_transient() => {}
                Err(error) => return Err(error),
            }
        }
        match current {
            Some(shown) => Ok(Place { resource, shown }),
            None => Err(RedfishError::not_supported(operation, "the system shows no boot override")),
        }
    }

    /// What the place that was written shows afterwards.
    async fn read_back(&self, operation: Operation, place: &Place) -> Result<BootOverride, RedfishError> {
        let resource = self.core.read(operation, &place.resource.path).await.map_err(mark_maybe_applied)?;
        let mut shown = BootOverride::of(&resource.fields).unwrap_or_default();
        if shown.allowed_targets.is_empty() {
            shown.allowed_targets = place.shown.allowed_targets.clone();
        }
        Ok(shown)
    }

    /// PATCHes the first body the BMC takes; the next one follows only a plain 400.
    async fn write_boot(
        &self,
        operation: Operation,
        system: &SystemInfo,
        resource: &Resource,
        bodies: &[Value],
    ) -> Result<(), RedfishError> {
        let deadline = self.core.profile().mutation_timeout;
        // It changes what the system shows, also by way of its settings, and no slot.
        self.core.recent.forget(Some(&system.uri));
        let touches = Some(resource.path.as_str());
        let mut first: Option<RedfishError> = None;
        for body in bodies {
            let answer: Answer = self.core.patch(operation, resource, body, deadline, touches).await?;
            if answer.status.is_success() {
                return self.core.follow(operation, &answer, &[]).await;
            }
            let error = self.core.refusal(operation, &answer, &[]);
            if !matches!(error.kind, ErrorKind::Refused { status: 400, .. }) {
                return Err(error);
            }
            first.get_or_insert(error);
        }
        // The refusal of the simplest body says best what is wrong.
        first.map_or(Ok(()), Err)
    }
}

fn boot_body(target: Option<&BootTarget>, enabled: Option<BootEnabled>, mode: Option<BootMode>) -> Value {
    let mut boot = Map::new();
    if let Some(target) = target {
        boot.insert("BootSourceOverrideTarget".to_owned(), target.as_str().into());
    }
    if let Some(enabled) = enabled {
        boot.insert("BootSourceOverrideEnabled".to_owned(), enabled.as_str().into());
    }
    if let Some(mode) = mode {
        boot.insert("BootSourceOverrideMode".to_owned(), mode.as_str().into());
    }
    json!({ "Boot": boot })
}
