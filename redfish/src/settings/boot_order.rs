//! The persistent boot order of a host, written like the settings of its BIOS.
//!
//! ```text
//!   System.Boot.BootOrder ["Boot0003", "Boot0001"]     current; the settings object of the system holds the pending one
//! ```
//!
//! Specification: DSP0268 ComputerSystem, Boot.

use serde_json::{Map, Value, json};

use crate::bmc::{Bmc, ChangeResult};
use crate::discovery::SystemInfo;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::settings::{SettingsResource, SettingsView, apply_time};
use crate::update::ApplyTime;

const READ: Operation = Operation::ReadSettings;
const WRITE: Operation = Operation::WriteSettings;
const ORDER: &str = "BootOrder";

impl Bmc {
    /// Reads the boot order, current and pending: lists of references of boot options.
    ///
    /// # Errors
    ///
    /// `NotSupported` when the system shows no boot order; else when a read fails.
    pub async fn boot_order(&self, system: &SystemInfo) -> Result<SettingsView, RedfishError> {
        Ok(self.boot_order_at(READ, system).await?.1)
    }

    async fn boot_order_at(
        &self,
        operation: Operation,
        system: &SystemInfo,
    ) -> Result<(SettingsResource, SettingsView), RedfishError> {
        let mut place = self.core.settings_resource(operation, &system.uri).await?;
        let in_settings = place.settings.as_ref().is_some_and(|settings| {
            settings.fields.get("Boot").is_some_and(|boot| boot.get(ORDER).is_some())
        });
        if !in_settings {
            // A property that the settings object does not have is written at the system.
            place.settings = None;
        }
        let view = only_order(place.view("Boot"));
        if view.current.is_empty() && view.pending.as_ref().is_none_or(Map::is_empty) {
            return Err(RedfishError::not_supported(operation, "the system shows no boot order"));
        }
        Ok((place, view))
    }

    /// Writes the boot order unless it is current or pending.
    ///
    /// # Errors
    ///
    /// `Config` when `order` is empty or names a boot option that the order does not have; `NotSupported` when the system
    /// shows no boot order; else when a request fails or is refused.
    pub async fn set_boot_order(
        &self,
        system: &SystemInfo,
        order: &[String],
        when: Option<ApplyTime>,
    ) -> Result<ChangeResult<SettingsView>, RedfishError> {
        let invalid = |detail: String| Err(RedfishError::new(WRITE, ErrorKind::Config { detail }));
        if order.is_empty() {
            return invalid("a boot order has at least one boot option".to_owned());
        }
        let (place, view) = self.boot_order_at(WRITE, system).await?;
        let known = view.current.get(ORDER).and_then(Value::as_array);
        let lacks =
            |option: &&String| known.is_some_and(|known| !known.contains(&Value::from(option.as_str())));
        if let Some(option) = order.iter().find(lacks) {
            return invalid(format!("the boot order has no option {}", crate::json::clip(option, 64)));
        }
        let mut wanted = Map::new();
        wanted.insert(ORDER.to_owned(), json!(order));
        if view.compare(&wanted).is_set() {
            return Ok(ChangeResult { changed: false, confirmed: true, observed: view });
        }
        let time = apply_time(&view.apply_times, when);
        let after = self.core.write_settings(WRITE, &place, "Boot", wanted.clone(), time).await?;
        let after =
            SettingsResource { settings: after.settings.filter(|_| place.settings.is_some()), ..after };
        let observed = only_order(after.view("Boot"));
        Ok(ChangeResult { changed: true, confirmed: observed.compare(&wanted).is_set(), observed })
    }
}

fn only_order(mut view: SettingsView) -> SettingsView {
    view.current.retain(|name, _| name == ORDER);
    if let Some(pending) = &mut view.pending {
        pending.retain(|name, _| name == ORDER);
    }
    view
}
