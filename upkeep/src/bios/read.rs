//! Reads the settings of the BIOS and the boot order from a BMC. Changes nothing.

use redfish::{AttributeRegistry, Bios, Bmc, ErrorKind, RedfishError, SettingsView, SystemInfo};
use serde_json::{Map, Value};

use super::super::bios_order::looks_secret;

/// The member of the boot order in a view of it.
pub(super) const ORDER: &str = "BootOrder";

/// Which parts of the settings of the BIOS a read includes.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The attributes and their registry.
    pub attributes: bool,
    /// The boot order.
    pub boot_order: bool,
}

/// The settings of the BIOS, their registry and the boot order as a BMC shows them. An inner error says why one is missing.
#[derive(Clone, Debug)]
pub struct BiosShown {
    /// The settings of the BIOS.
    pub bios: Result<Bios, String>,
    /// The attribute registry.
    pub registry: Result<AttributeRegistry, String>,
    /// The boot order.
    pub boot_order: Result<SettingsView, String>,
}

/// Reads what a BMC shows.
///
/// # Errors
/// When a read fails. What the BMC does not have is no error.
pub async fn shown(bmc: &Bmc, system: &SystemInfo, wanted: Wanted) -> Result<BiosShown, RedfishError> {
    const UNREAD: &str = "it was not read";
    let bios = if wanted.attributes { absent(bmc.bios(system).await)? } else { Err(UNREAD.to_owned()) };
    let bios = bios.and_then(|bios| match bios.settings.current.is_empty() {
        true => Err("the BMC shows no attributes of the BIOS".to_owned()),
        false => Ok(bios),
    });
    let registry = match &bios {
        Ok(bios) => bmc.bios_registry(bios).await?,
        Err(why) => Err(why.clone()),
    };
    let boot_order = match wanted.boot_order {
        true => absent(bmc.boot_order(system).await)?,
        false => Err(UNREAD.to_owned()),
    };
    Ok(BiosShown { bios, registry, boot_order })
}

fn absent<T>(read: Result<T, RedfishError>) -> Result<Result<T, String>, RedfishError> {
    match read {
        Ok(shown) => Ok(Ok(shown)),
        Err(RedfishError { kind: ErrorKind::NotSupported { what }, .. }) => Ok(Err(what)),
        Err(error) => Err(error),
    }
}

/// The options of a boot order.
pub(super) fn options(values: &Map<String, Value>) -> Vec<String> {
    let list = values.get(ORDER).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// One attribute as the BMC shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeRow {
    /// The name.
    pub name: String,
    /// The value in force; null for a password.
    pub value: Value,
    /// Another value that waits for a restart of the host.
    pub pending: Option<Value>,
    /// The values that the attribute takes, in words.
    pub takes: Option<String>,
    /// Whether the attribute cannot be written; `None` without a registry.
    pub read_only: Option<bool>,
    /// Whether the attribute is a password.
    pub secret: bool,
}

impl BiosShown {
    /// Whether the value of an attribute is not shown: it is marked as a password, or its name says so.
    pub fn is_secret(&self, name: &str) -> bool {
        looks_secret(name) || self.registry.as_ref().is_ok_and(|registry| registry.is_secret(name))
    }

    /// The attributes in the order of their names, without the values of passwords.
    pub fn attributes(&self) -> Option<Vec<AttributeRow>> {
        let bios = self.bios.as_ref().ok()?;
        let registry = self.registry.as_ref().ok();
        let row = |(name, value): (&String, &Value)| {
            let secret = self.is_secret(name);
            let pending = bios.settings.pending.as_ref().and_then(|pending| pending.get(name));
            AttributeRow {
                name: name.clone(),
                value: if secret { Value::Null } else { value.clone() },
                pending: pending.filter(|pending| !secret && *pending != value).cloned(),
                takes: registry.and_then(|registry| registry.takes(name)),
                read_only: registry.map(|registry| registry.is_read_only(name)),
                secret,
            }
        };
        let mut rows: Vec<AttributeRow> = bios.settings.current.iter().map(row).collect();
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        Some(rows)
    }

    /// The boot order in force.
    pub fn order(&self) -> Option<Vec<String>> {
        self.boot_order.as_ref().ok().map(|order| options(&order.current))
    }

    /// Another boot order that waits for a restart of the host.
    pub fn pending_order(&self) -> Option<Vec<String>> {
        let order = self.boot_order.as_ref().ok()?;
        let pending = order.pending.as_ref().map(options).filter(|pending| !pending.is_empty())?;
        (pending != options(&order.current)).then_some(pending)
    }
}
