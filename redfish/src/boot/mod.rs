//! The one-time boot override.
//!
//! ```text
//!   boot_media_once(found, slot)   by the boot override, or by an OEM mechanism (profile, boot_via)
//!   set_boot_once(preferred)   read; set already? nothing is sent. A settings resource whose content decides nothing is not read
//!                              first of the preferred targets the BMC lists
//!                              PATCH Boot {Target, Enabled: Once [, Mode]}; 400? once more with the Mode
//!                              read back; the mode was reset? PATCH all three -> read back -> ChangeResult
//!   boot_media_once_by(way)     by one given way; other_boot_way: which other way the BMC offers (ways)
//!   clear_boot_override()      PATCH {Enabled: Disabled}, then read back; never a disk as target
//! ```
//!
//! Some systems accept the change in a settings resource (`@Redfish.Settings`). If that resource shows a boot
//! target, the override is written and read there, and the system shows the current values. A read-back confirms
//! the change when the target is the wanted one and the override is not disabled: some BMCs show `Continuous`
//! after `Once` was set.
//! Specification: DSP0268 ComputerSystem, Boot; DSP0266 7.11 (settings resource).

mod oem;
mod values;
mod ways;

pub use self::values::{BootEnabled, BootMode, BootOverride, BootTarget};
pub use self::ways::BootWay;

use serde_json::{Map, Value, json};

use crate::bmc::{Bmc, ChangeResult};
use crate::discovery::SystemInfo;
use crate::error::{ErrorKind, Operation, RedfishError, mark_maybe_applied};
use crate::exchange::BmcResponse;
use crate::json::{self, Resource};
use crate::profile::{BootBody, BootResource, IfMatch};

/// The resource to which the override is written, and the override that the resource shows.
struct OverrideResource {
    resource: Resource,
    shown: BootOverride,
}

impl Bmc {
    /// Reads the boot override.
    ///
    /// # Errors
    ///
    /// `NotSupported` when the system shows no boot override; else when the read fails.
    pub async fn boot_override(&self, system: &SystemInfo) -> Result<BootOverride, RedfishError> {
        Ok(self.override_resource(Operation::BootOverride, system, false).await?.shown)
    }

    /// Sets the next boot to the first of these targets that the BMC lists, in this mode if one is given, else in
    /// the mode of the profile's `boot_mode`. The profile's `boot_targets` are the order for a virtual CD.
    ///
    /// The observed override names the chosen target. Nothing is sent when it is set already.
    ///
    /// # Errors
    ///
    /// `NotSupported` when the BMC lists none of the targets; else when a request fails or is refused.
    pub async fn set_boot_once(
        &self,
        system: &SystemInfo,
        preferred: &[BootTarget],
        mode: Option<BootMode>,
    ) -> Result<ChangeResult<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::SetBootOnce;
        let profile = self.core.profile();
        let mut place = match self.unread_settings(system) {
            Some(place) => place,
            None => self.override_resource(OPERATION, system, true).await?,
        };
        if place.shown.is_active() {
            place = self.override_resource(OPERATION, system, false).await?;
        }
        let shown = &place.shown;
        let may = |target: &BootTarget| !(profile.no_hdd_override && *target == BootTarget::Hdd);
        let Some(target) = preferred.iter().find(|target| may(target) && shown.allows(target)) else {
            let listed: Vec<&str> = shown.allowed_targets.iter().map(BootTarget::as_str).collect();
            let what =
                format!("none of the wanted boot targets is in the list of the BMC: [{}]", listed.join(", "));
            return Err(RedfishError::not_supported(OPERATION, what));
        };
        let mode = mode.or(profile.boot_mode.fixed());
        // Without an override the mode says nothing where the whole object is sent: such BMCs show Legacy after
        // each consumed override, and a UEFI host with this mode does not boot the medium, or installs for BIOS.
        let says_mode =
            shown.is_active() || shown.mode == Some(BootMode::Uefi) || profile.boot_body != BootBody::Full;
        let kept = mode.or(shown.mode.filter(|_| says_mode));
        let in_mode = |shown: &BootOverride| match (kept, shown.mode) {
            (Some(kept), Some(shown)) => kept == shown,
            _ => true,
        };
        let fits = |shown: &BootOverride| shown.targets(target) && in_mode(shown);
        let once = shown.allowed_enabled.is_empty() || shown.allowed_enabled.contains(&BootEnabled::Once);
        // What another program left as permanent would boot the medium again after the installation.
        let is_left = once && shown.enabled == Some(BootEnabled::Continuous);
        if fits(shown) && !is_left {
            return Ok(ChangeResult { changed: false, confirmed: true, observed: place.shown });
        }
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
        self.write_boot(OPERATION, &place.resource, &bodies).await?;
        let mut observed = self.read_back(OPERATION, &place).await?;
        if !fits(&observed) && (partly || observed.targets(target)) {
            // The partial object had no effect, or the change of the target also reset the mode. The whole object
            // written at once sets both.
            let target_set = observed.targets(target);
            let place = OverrideResource {
                shown: observed,
                ..self.override_resource(OPERATION, system, false).await?
            };
            match self.write_boot(OPERATION, &place.resource, &[full]).await {
                // The first PATCH was accepted and its effect may only be shown late.
                Err(error) if !target_set => {
                    tracing::debug!(code = error.code(), "whole boot object refused")
                }
                written => written?,
            }
            observed = self.read_back(OPERATION, &place).await?;
        }
        Ok(ChangeResult { changed: true, confirmed: fits(&observed), observed })
    }

    /// Sets the next boot to the boot option with this device path, and reads the override back.
    async fn set_boot_option_once(
        &self,
        system: &SystemInfo,
        path: &str,
    ) -> Result<ChangeResult<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::SetBootOnce;
        let target = BootTarget::uefi_target();
        let place = self.override_resource(OPERATION, system, false).await?;
        let in_mode = |mode| {
            let mut body = boot_body(Some(&target), Some(BootEnabled::Once), mode);
            body["Boot"]["UefiTargetBootSourceOverride"] = path.into();
            body
        };
        let bodies = match self.core.profile().boot_body {
            BootBody::Full => vec![in_mode(Some(BootMode::Uefi))],
            BootBody::Minimal | BootBody::EnabledAlways => vec![in_mode(None), in_mode(Some(BootMode::Uefi))],
        };
        self.write_boot(OPERATION, &place.resource, &bodies).await?;
        let observed = self.read_back(OPERATION, &place).await?;
        Ok(ChangeResult { changed: true, confirmed: observed.targets(&target), observed })
    }

    /// Clears the boot override, so that the host uses its boot order. Never sets another target.
    ///
    /// # Errors
    ///
    /// When a request fails or the BMC refuses every form of the change.
    pub async fn clear_boot_override(
        &self,
        system: &SystemInfo,
    ) -> Result<ChangeResult<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::ClearBootOverride;
        let mut place = self.override_resource(OPERATION, system, true).await?;
        if !place.shown.is_active() {
            // That there is nothing to do is concluded from a read on the wire only.
            place = self.override_resource(OPERATION, system, false).await?;
        }
        if !place.shown.is_active() {
            return Ok(ChangeResult { changed: false, confirmed: true, observed: place.shown });
        }
        let both = boot_body(Some(&BootTarget::None), Some(BootEnabled::Disabled), None);
        let disabled = boot_body(None, Some(BootEnabled::Disabled), None);
        let mut bodies = match self.core.profile().boot_body {
            BootBody::Minimal => vec![disabled, both],
            BootBody::EnabledAlways => vec![both, disabled],
            // Such a BMC refuses or ignores a part.
            BootBody::Full => {
                let full = boot_body(Some(&BootTarget::None), Some(BootEnabled::Disabled), place.shown.mode);
                vec![full, both, disabled]
            }
        };
        bodies.dedup();
        bodies.push(json!({ "Boot": { "BootSourceOverrideTarget": "None" } }));
        self.write_boot(OPERATION, &place.resource, &bodies).await?;
        let observed = self.read_back(OPERATION, &place).await?;
        Ok(ChangeResult { changed: true, confirmed: !observed.is_active(), observed })
    }

    /// Returns the settings resource of a system that was read within the last seconds and shows no override, without a read of it.
    ///
    /// Only where a read of it decides nothing: the profile fixes the place, the whole object is written, and the BMC takes no ETag.
    /// The cached system is removed, so that the next attempt, which follows a PATCH that may have been applied, reads both.
    fn unread_settings(&self, system: &SystemInfo) -> Option<OverrideResource> {
        let profile = self.core.profile();
        let fixed = profile.boot_at == BootResource::Settings
            && profile.boot_body == BootBody::Full
            && profile.if_match == IfMatch::Star;
        let resource = self.core.cache.get(&system.uri).filter(|_| fixed)?;
        let shown = BootOverride::of(&resource.fields)?;
        let path = json::link(json::member(&resource.fields, "@Redfish.Settings")?, "SettingsObject")?;
        if path == resource.path || shown.is_active() || self.core.cache.get(&path).is_some() {
            return None;
        }
        self.core.cache.remove(Some(&system.uri));
        Some(OverrideResource { resource: Resource { path, ..Resource::default() }, shown })
    }

    /// Returns the settings resource if it shows a boot target, else the system; the profile may fix the choice.
    async fn override_resource(
        &self,
        operation: Operation,
        system: &SystemInfo,
        use_cache: bool,
    ) -> Result<OverrideResource, RedfishError> {
        let read = async |path: &str| match use_cache {
            true => self.core.cached(operation, path).await,
            false => self.core.read(operation, path).await,
        };
        let at = self.core.profile().boot_at;
        let resource = read(&system.uri).await?;
        self.check_same(operation, system, &resource)?;
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
                        // Often only one of the two resources lists the allowed values.
                        if shown.allowed_targets.is_empty() {
                            shown.allowed_targets = current.allowed_targets;
                        }
                        if shown.allowed_enabled.is_empty() {
                            shown.allowed_enabled = current.allowed_enabled;
                        }
                        return Ok(OverrideResource { resource, shown });
                    }
                }
                Err(error) if error.status().is_some() && !error.is_transient() => {}
                Err(error) => return Err(error),
            }
        }
        match current {
            Some(shown) => Ok(OverrideResource { resource, shown }),
            None => Err(RedfishError::not_supported(operation, "the system shows no boot override")),
        }
    }

    /// Reads the override from the resource it was written to.
    async fn read_back(
        &self,
        operation: Operation,
        place: &OverrideResource,
    ) -> Result<BootOverride, RedfishError> {
        let resource = self.core.read(operation, &place.resource.path).await.map_err(mark_maybe_applied)?;
        let mut shown = BootOverride::of(&resource.fields).unwrap_or_default();
        if shown.allowed_targets.is_empty() {
            shown.allowed_targets = place.shown.allowed_targets.clone();
        }
        Ok(shown)
    }

    /// Sends the bodies in order until the BMC accepts one; the next body is sent only after a plain 400.
    async fn write_boot(
        &self,
        operation: Operation,
        resource: &Resource,
        bodies: &[Value],
    ) -> Result<(), RedfishError> {
        let deadline = self.core.profile().mutation_timeout;
        // The PATCH changes the boot settings at the place where they are written and read. A cached system keeps its power
        // state, and boot settings that are not shown while the settings resource shows them.
        let touches = Some(resource.path.as_str());
        let mut first: Option<RedfishError> = None;
        for body in bodies {
            let response: BmcResponse = self.core.patch(operation, resource, body, deadline, touches).await?;
            if response.status.is_success() {
                return self.core.follow(operation, &response, &[]).await;
            }
            let error = self.core.refusal(operation, &response, &[]);
            if !matches!(error.kind, ErrorKind::Refused { status: 400, .. }) {
                return Err(error);
            }
            first.get_or_insert(error);
        }
        // The refusal of the smallest body describes the problem best.
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
