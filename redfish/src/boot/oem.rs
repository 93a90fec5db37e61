//! Sets the next boot source by an OEM mechanism, on BMCs where the boot override does not reach virtual media.
//!
//! ```text
//!   override                         BootSourceOverrideTarget                  read and written at the system
//!   oem:configuration_import         ServerBoot.1 {BootOnce, FirstBootDevice}  read at <manager>/Attributes, written by
//!                                                                              ImportSystemConfiguration (a task)
//!   oem:boot_on_next_server_reset    Oem.*.BootOnNextServerReset               read and written at the slot
//! ```
//!
//! A BMC that refuses every form of the boot override, and shows the property at the slot, is booted by the property; that
//! is learned with its firmware version.
//!
//! If the attributes cannot be read, the end of the import task is the only confirmation; the reads of the media
//! server show later whether the host boots from the image.

use http::Method;
use serde_json::{Value, json};

use super::{BootEnabled, BootOverride, BootTarget};
use crate::bmc::{Bmc, ChangeResult};
use crate::discovery::{Discovery, ManagerInfo};
use crate::error::{ErrorKind, Operation, RedfishError, mark_maybe_applied};
use crate::exchange::Call;
use crate::json::{self, Resource};
use crate::profile::BootVia;

/// Value of `FirstBootDevice` for the virtual CD.
const VIRTUAL_CD: &str = "VCD-DVD";
const ON_NEXT_RESET: &str = "BootOnNextServerReset";

impl Bmc {
    /// Sets the next boot to the image in this slot, by the mechanism of the profile (`boot_via`).
    ///
    /// # Errors
    ///
    /// `NotSupported` when the BMC lacks the mechanism; else when a request fails or is refused.
    pub async fn boot_media_once(
        &self,
        found: &Discovery,
        slot: &str,
    ) -> Result<ChangeResult<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::SetBootOnce;
        let profile = self.core.profile();
        match profile.boot_via {
            BootVia::Override => {
                let set = self.set_boot_once(&found.system, &profile.boot_targets, None).await;
                match set {
                    Err(refusal) if is_final(&refusal) => self.boot_by_slot_instead(slot, refusal).await,
                    set => set,
                }
            }
            BootVia::ConfigurationImport => self.boot_by_import(OPERATION, found, true).await,
            BootVia::BootOnNextServerReset => self.boot_by_slot(OPERATION, slot, true).await,
        }
    }

    /// Reads the next boot source; `None` when this BMC does not show it.
    ///
    /// # Errors
    ///
    /// When a read fails.
    pub async fn next_boot_source(
        &self,
        found: &Discovery,
        slot: &str,
    ) -> Result<Option<BootOverride>, RedfishError> {
        self.next_boot_source_via(found, slot, self.core.profile().boot_via).await
    }

    /// Reads the next boot source of one mechanism; `None` when this BMC does not show it.
    ///
    /// # Errors
    ///
    /// When a read fails.
    pub async fn next_boot_source_via(
        &self,
        found: &Discovery,
        slot: &str,
        via: BootVia,
    ) -> Result<Option<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::BootOverride;
        match via {
            BootVia::Override => self.boot_override(&found.system).await.map(Some),
            BootVia::ConfigurationImport => {
                self.first_boot_device(OPERATION, manager(OPERATION, found)?, true).await
            }
            BootVia::BootOnNextServerReset => {
                let slot = self.core.read(OPERATION, slot).await?;
                Ok(on_next_reset(&slot).map(|(_, on)| by_slot(on)))
            }
        }
    }

    /// Returns the next boot source from cached resources if it is the boot override; reads it otherwise.
    ///
    /// # Errors
    ///
    /// When a read fails.
    pub async fn next_boot_source_cached(
        &self,
        found: &Discovery,
        slot: &str,
        via: BootVia,
    ) -> Result<Option<BootOverride>, RedfishError> {
        match via {
            BootVia::Override => {
                Ok(Some(self.override_resource(Operation::BootOverride, &found.system, true).await?.shown))
            }
            BootVia::ConfigurationImport | BootVia::BootOnNextServerReset => {
                self.next_boot_source_via(found, slot, via).await
            }
        }
    }

    /// Clears the next boot source, if it is still set.
    ///
    /// # Errors
    ///
    /// When a request fails or is refused.
    pub async fn clear_next_boot_source(
        &self,
        found: &Discovery,
        slot: &str,
    ) -> Result<ChangeResult<BootOverride>, RedfishError> {
        self.clear_next_boot_source_via(found, slot, self.core.profile().boot_via).await
    }

    /// Clears the next boot source of one mechanism, if it is still set.
    ///
    /// # Errors
    ///
    /// When a request fails or is refused.
    pub async fn clear_next_boot_source_via(
        &self,
        found: &Discovery,
        slot: &str,
        via: BootVia,
    ) -> Result<ChangeResult<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::ClearBootOverride;
        match via {
            BootVia::Override => self.clear_boot_override(&found.system).await,
            BootVia::ConfigurationImport => self.boot_by_import(OPERATION, found, false).await,
            BootVia::BootOnNextServerReset => self.boot_by_slot(OPERATION, slot, false).await,
        }
    }

    /// Whether the manager imports configurations and shows its first boot device.
    pub(super) async fn can_import(
        &self,
        operation: Operation,
        found: &Discovery,
    ) -> Result<bool, RedfishError> {
        let Some(manager) = &found.manager else { return Ok(false) };
        let resource = self.core.cached(operation, &manager.uri).await?;
        let imports = json::oem_action(&resource.fields, "ImportSystemConfiguration").is_some();
        Ok(imports && self.first_boot_device(operation, manager, true).await?.is_some())
    }

    /// Whether the slot has the property `BootOnNextServerReset`.
    pub(super) async fn has_next_reset(
        &self,
        operation: Operation,
        slot: &str,
    ) -> Result<bool, RedfishError> {
        Ok(on_next_reset(&self.core.cached(operation, slot).await?).is_some())
    }

    pub(super) async fn boot_by_import(
        &self,
        operation: Operation,
        found: &Discovery,
        enable: bool,
    ) -> Result<ChangeResult<BootOverride>, RedfishError> {
        let core = &self.core;
        let manager = manager(operation, found)?;
        let fits = |shown: &BootOverride| shown.is_active() == enable;
        // That there is nothing to do is concluded from a read on the wire only.
        let mut current = self.first_boot_device(operation, manager, false).await?;
        if current.as_ref().is_some_and(fits) {
            current = self.first_boot_device(operation, manager, true).await?;
        }
        if let Some(observed) = current.filter(fits) {
            return Ok(ChangeResult { changed: false, confirmed: true, observed });
        }
        let resource = core.cached(operation, &manager.uri).await?;
        let Some(target) = json::oem_action(&resource.fields, "ImportSystemConfiguration") else {
            return Err(RedfishError::not_supported(
                operation,
                "the manager has no ImportSystemConfiguration action",
            ));
        };
        let (once, device) = if enable { ("Enabled", VIRTUAL_CD) } else { ("Disabled", "Normal") };
        let body = import(&manager.uri, once, device);
        let deadline = core.profile().mutation_timeout;
        let attributes = manager.attributes_path();
        // The imported configuration holds attributes of the manager and nothing else.
        let call =
            Call::mutation(operation, Method::POST, &target, deadline).body(&body).touching(&attributes);
        let response = core.perform(&call, 1).await?;
        if !response.status.is_success() {
            return Err(core.refusal(operation, &response, &[]));
        }
        core.follow(operation, &response, &[]).await?;
        let shown = self.first_boot_device(operation, manager, true).await.map_err(mark_maybe_applied)?;
        let observed = shown.unwrap_or_else(|| device_once(VIRTUAL_CD, enable));
        Ok(ChangeResult { changed: true, confirmed: fits(&observed), observed })
    }

    /// Returns `ServerBoot.1`, from the cache if `fresh` is false; `None` when the manager shows no attributes.
    async fn first_boot_device(
        &self,
        operation: Operation,
        manager: &ManagerInfo,
        fresh: bool,
    ) -> Result<Option<BootOverride>, RedfishError> {
        let attributes = self.core.attributes(operation, &manager.attributes_path(), fresh).await?;
        let word = |name| attributes.as_ref().and_then(|attributes| json::word(attributes, name));
        let once = word("ServerBoot.1.BootOnce").is_some_and(|once| once.eq_ignore_ascii_case("Enabled"));
        let device = word("ServerBoot.1.FirstBootDevice");
        Ok(device.map(|device| {
            let is_virtual_cd = device.eq_ignore_ascii_case(VIRTUAL_CD);
            device_once(&device, once && is_virtual_cd)
        }))
    }

    /// Boots by the property of the slot after the BMC refused the boot override; returns that refusal if the slot lacks
    /// the property.
    async fn boot_by_slot_instead(
        &self,
        slot: &str,
        refusal: RedfishError,
    ) -> Result<ChangeResult<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::SetBootOnce;
        if on_next_reset(&self.core.cached(OPERATION, slot).await?).is_none() {
            return Err(refusal);
        }
        let set = self.boot_by_slot(OPERATION, slot, true).await?;
        tracing::info!(refusal = %refusal.kind, slot, "boot override refused; the slot's own property is set");
        self.core.active_profile.learn(|learned| learned.boot_via = Some(BootVia::BootOnNextServerReset));
        Ok(set)
    }

    pub(super) async fn boot_by_slot(
        &self,
        operation: Operation,
        uri: &str,
        enable: bool,
    ) -> Result<ChangeResult<BootOverride>, RedfishError> {
        let core = &self.core;
        let slot = core.read(operation, uri).await?;
        let Some((vendor, now)) = on_next_reset(&slot) else {
            return Err(RedfishError::not_supported(operation, "the slot has no BootOnNextServerReset"));
        };
        if now == enable {
            return Ok(ChangeResult { changed: false, confirmed: true, observed: by_slot(enable) });
        }
        let body = json!({ "Oem": { vendor: { ON_NEXT_RESET: enable } } });
        let deadline = core.profile().mutation_timeout;
        let response = core.patch(operation, &slot, &body, deadline, Some(uri)).await?;
        if !response.status.is_success() {
            return Err(core.refusal(operation, &response, &[]));
        }
        core.follow(operation, &response, &[]).await?;
        let shown = core.read(operation, uri).await.map_err(mark_maybe_applied)?;
        let on = on_next_reset(&shown).is_some_and(|(_, on)| on);
        Ok(ChangeResult { changed: true, confirmed: on == enable, observed: by_slot(on) })
    }
}

/// Whether the BMC refused for good: it has no boot override, or accepts none. A conflict (409) may pass.
fn is_final(error: &RedfishError) -> bool {
    let refused = match error.kind {
        ErrorKind::Refused { status, .. } => status != 409,
        ErrorKind::NotSupported { .. } => true,
        _ => false,
    };
    refused && !error.maybe_applied()
}

fn manager(operation: Operation, found: &Discovery) -> Result<&ManagerInfo, RedfishError> {
    let missing = || RedfishError::not_supported(operation, "the system shows no manager");
    found.manager.as_ref().ok_or_else(missing)
}

/// Builds the configuration that sets the first boot device; the BMC accepts no white space between elements.
fn import(manager: &str, once: &str, device: &str) -> Value {
    let fqdd = manager.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let fqdd: String =
        fqdd.chars().filter(|char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_')).collect();
    let buffer = format!(
        "<SystemConfiguration><Component FQDD=\"{fqdd}\">\
         <Attribute Name=\"ServerBoot.1#BootOnce\">{once}</Attribute>\
         <Attribute Name=\"ServerBoot.1#FirstBootDevice\">{device}</Attribute>\
         </Component></SystemConfiguration>"
    );
    json!({ "ShareParameters": { "Target": "ALL" }, "ImportBuffer": buffer })
}

fn device_once(device: &str, once: bool) -> BootOverride {
    BootOverride {
        target: Some(BootTarget::Other(device.to_owned())),
        enabled: Some(if once { BootEnabled::Once } else { BootEnabled::Disabled }),
        ..BootOverride::default()
    }
}

/// Name of the `Oem` member with `BootOnNextServerReset`, and its value.
fn on_next_reset(slot: &Resource) -> Option<(String, bool)> {
    let vendors = json::member(&slot.fields, "Oem")?.iter().take(json::MAX_ENTRIES);
    vendors.filter_map(|(vendor, fields)| Some((vendor, fields.as_object()?))).find_map(|(vendor, fields)| {
        fields
            .contains_key(ON_NEXT_RESET)
            .then(|| (vendor.clone(), json::flag(fields, ON_NEXT_RESET) == Some(true)))
    })
}

fn by_slot(on: bool) -> BootOverride {
    device_once(ON_NEXT_RESET, on)
}
