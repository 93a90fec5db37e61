//! Leading the next boot to the media where the override of the specification does not.
//!
//! ```text
//!   override       BootSourceOverrideTarget                     read and written at the system
//!   oem:dell_scp   ServerBoot.1 {BootOnce, FirstBootDevice}     read at <manager>/Attributes, written by an
//!                                                               import of a configuration profile (a task)
//!   oem:hpe_bonsr  Oem.*.BootOnNextServerReset                  read and written at the slot
//! ```
//!
//! Where the attributes cannot be read, the end of the import is the only proof there is; the media server's
//! log of reads is the next one.

use http::Method;
use serde_json::{Value, json};

use super::{BootEnabled, BootOverride, BootTarget};
use crate::bmc::{Applied, Bmc};
use crate::discovery::{Discovery, ManagerInfo};
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::Call;
use crate::json::{self, Resource};
use crate::power::mark_maybe_applied;
use crate::profile::BootVia;

/// The virtual CD of `FirstBootDevice`.
const VIRTUAL_CD: &str = "VCD-DVD";
const ON_NEXT_RESET: &str = "BootOnNextServerReset";

impl Bmc {
    /// Makes the next boot go to the image in this slot, in the way the profile knows.
    pub async fn boot_media_once(
        &self,
        found: &Discovery,
        slot: &str,
    ) -> Result<Applied<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::SetBootOnce;
        let profile = self.core.profile();
        match profile.boot_via {
            BootVia::Override => self.set_boot_once(&found.system, &profile.boot_targets, None).await,
            BootVia::DellScp => self.boot_by_import(OPERATION, found, true).await,
            BootVia::HpeBonsr => self.boot_by_slot(OPERATION, slot, true).await,
        }
    }

    /// What leads the next boot; none when this BMC does not tell.
    pub async fn next_boot_source(
        &self,
        found: &Discovery,
        slot: &str,
    ) -> Result<Option<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::BootOverride;
        match self.core.profile().boot_via {
            BootVia::Override => self.boot_override(&found.system).await.map(Some),
            BootVia::DellScp => self.first_boot_device(OPERATION, manager(OPERATION, found)?).await,
            BootVia::HpeBonsr => {
                let slot = self.core.read(OPERATION, slot).await?;
                Ok(on_next_reset(&slot).map(|(_, on)| by_slot(on)))
            }
        }
    }

    /// The same out of what was read a moment ago, where that is the boot override.
    pub async fn next_boot_source_cached(
        &self,
        found: &Discovery,
        slot: &str,
    ) -> Result<Option<BootOverride>, RedfishError> {
        match self.core.profile().boot_via {
            BootVia::Override => {
                Ok(Some(self.boot_place(Operation::BootOverride, &found.system, true).await?.shown))
            }
            BootVia::DellScp | BootVia::HpeBonsr => self.next_boot_source(found, slot).await,
        }
    }

    /// Takes back what led the next boot, if it still does.
    pub async fn clear_next_boot_source(
        &self,
        found: &Discovery,
        slot: &str,
    ) -> Result<Applied<BootOverride>, RedfishError> {
        const OPERATION: Operation = Operation::ClearBootOverride;
        match self.core.profile().boot_via {
            BootVia::Override => self.clear_boot_override(&found.system).await,
            BootVia::DellScp => self.boot_by_import(OPERATION, found, false).await,
            BootVia::HpeBonsr => self.boot_by_slot(OPERATION, slot, false).await,
        }
    }

    async fn boot_by_import(
        &self,
        operation: Operation,
        found: &Discovery,
        lead: bool,
    ) -> Result<Applied<BootOverride>, RedfishError> {
        let core = &self.core;
        let manager = manager(operation, found)?;
        let before = self.first_boot_device(operation, manager).await?;
        let fits = |shown: &BootOverride| shown.is_active() == lead;
        if let Some(observed) = before.filter(fits) {
            return Ok(Applied { changed: false, confirmed: true, observed });
        }
        let resource = core.lately(operation, &manager.uri).await?;
        let Some(target) = json::oem_action(&resource.fields, "ImportSystemConfiguration") else {
            return Err(RedfishError::not_supported(
                operation,
                "the manager imports no configuration profile",
            ));
        };
        let (once, device) = if lead { ("Enabled", VIRTUAL_CD) } else { ("Disabled", "Normal") };
        let body = import(&manager.uri, once, device);
        let deadline = core.profile().mutation_timeout;
        let call = Call::mutation(operation, Method::POST, &target, deadline).body(&body);
        let answer = core.perform(&call, 1).await?;
        if !answer.status.is_success() {
            return Err(core.refusal(operation, &answer, &[]));
        }
        core.follow(operation, &answer, &[]).await?;
        let shown = self.first_boot_device(operation, manager).await.map_err(mark_maybe_applied)?;
        let observed = shown.unwrap_or_else(|| device_once(VIRTUAL_CD, lead));
        Ok(Applied { changed: true, confirmed: fits(&observed), observed })
    }

    /// `ServerBoot.1`, where the manager shows its attributes.
    async fn first_boot_device(
        &self,
        operation: Operation,
        manager: &ManagerInfo,
    ) -> Result<Option<BootOverride>, RedfishError> {
        let path = format!("{}/Attributes", manager.uri.trim_end_matches('/'));
        let resource = match self.core.read(operation, &path).await {
            Ok(resource) => resource,
            Err(error)
                if matches!(error.kind, ErrorKind::NotFound { .. } | ErrorKind::NotSupported { .. }) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let attributes = json::member(&resource.fields, "Attributes");
        let word = |name| attributes.and_then(|attributes| json::word(attributes, name));
        let once = word("ServerBoot.1.BootOnce").is_some_and(|once| once.eq_ignore_ascii_case("Enabled"));
        let device = word("ServerBoot.1.FirstBootDevice");
        Ok(device.map(|device| {
            let ours = device.eq_ignore_ascii_case(VIRTUAL_CD);
            device_once(&device, once && ours)
        }))
    }

    async fn boot_by_slot(
        &self,
        operation: Operation,
        uri: &str,
        lead: bool,
    ) -> Result<Applied<BootOverride>, RedfishError> {
        let core = &self.core;
        let slot = core.read(operation, uri).await?;
        let Some((vendor, now)) = on_next_reset(&slot) else {
            return Err(RedfishError::not_supported(operation, "the slot has no BootOnNextServerReset"));
        };
        if now == lead {
            return Ok(Applied { changed: false, confirmed: true, observed: by_slot(lead) });
        }
        let body = json!({ "Oem": { vendor: { ON_NEXT_RESET: lead } } });
        let deadline = core.profile().mutation_timeout;
        let answer = core.patch(operation, &slot, &body, deadline, None).await?;
        if !answer.status.is_success() {
            return Err(core.refusal(operation, &answer, &[]));
        }
        core.follow(operation, &answer, &[]).await?;
        let shown = core.read(operation, uri).await.map_err(mark_maybe_applied)?;
        let on = on_next_reset(&shown).is_some_and(|(_, on)| on);
        Ok(Applied { changed: true, confirmed: on == lead, observed: by_slot(on) })
    }
}

fn manager(operation: Operation, found: &Discovery) -> Result<&ManagerInfo, RedfishError> {
    let missing = || RedfishError::not_supported(operation, "the system shows no manager");
    found.manager.as_ref().ok_or_else(missing)
}

/// The configuration profile that sets the first boot device; no white space between its elements.
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

/// The vendor under whose name the slot has `BootOnNextServerReset`, and its value.
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
