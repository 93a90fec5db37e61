//! The parameters of a change of BIOS settings and of the persistent boot order.
//!
//! A value is a text, a whole number, true or false; a text that is a number gets the type that the BIOS says. Options that
//! `boot_order` does not name follow those that it names, in their present order.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::permission::{HostRestart, RestartWindow};
use model::Time;

/// The most attributes of one order.
const MAX_ATTRIBUTES: usize = 256;
/// The most boot options of one order.
const MAX_OPTIONS: usize = 64;
/// The longest name of an attribute or a boot option.
const MAX_NAME: usize = 128;
/// The longest value.
const MAX_VALUE: usize = 1024;
/// Parts of names that are passwords. Such values would be stored with the order.
const SECRETS: [&str; 4] = ["password", "passwd", "passphrase", "secret"];

/// The parameters of a change of BIOS settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApplyBios {
    /// The wanted values by the name of their attribute.
    pub attributes: BTreeMap<String, Value>,
    /// The boot options that come first, such as `Boot0003`.
    pub boot_order: Vec<String>,
    /// Whether the host may be restarted.
    pub restart: HostRestart,
    /// The beginning of the maintenance window: the host is not restarted before.
    pub restart_from: Option<Time>,
    /// The end of the maintenance window: the host is not restarted after it.
    pub restart_until: Option<Time>,
}

impl ApplyBios {
    /// Checks what the types do not.
    pub(super) fn checked(&self) -> Result<(), String> {
        if self.attributes.is_empty() && self.boot_order.is_empty() {
            return Err("name at least one attribute, or a boot_order".to_owned());
        }
        if self.attributes.len() > MAX_ATTRIBUTES || self.boot_order.len() > MAX_OPTIONS {
            return Err(format!(
                "an order has at most {MAX_ATTRIBUTES} attributes and {MAX_OPTIONS} boot options"
            ));
        }
        for (name, value) in &self.attributes {
            checked_name("the name of an attribute", name)?;
            if looks_secret(name) {
                return Err(format!("{name} is a password; set passwords in the setup of the BIOS"));
            }
            let fits = match value {
                Value::String(text) => text.len() <= MAX_VALUE,
                Value::Number(number) => number.is_i64(),
                Value::Bool(_) => true,
                Value::Null | Value::Array(_) | Value::Object(_) => false,
            };
            if !fits {
                return Err(format!(
                    "the value of {name} is a text of at most {MAX_VALUE} bytes, a whole number, true or false"
                ));
            }
        }
        let mut seen = BTreeSet::new();
        for option in &self.boot_order {
            checked_name("a boot option", option)?;
            if !seen.insert(option) {
                return Err(format!("boot_order names {option} twice"));
            }
        }
        self.window().checked()
    }

    /// When the host may be restarted.
    pub(super) fn window(&self) -> RestartWindow {
        RestartWindow { restart: self.restart, from: self.restart_from, until: self.restart_until }
    }

    /// Describes the order in one sentence for operators: what is set, and when the host may be restarted.
    pub(super) fn sentence(&self) -> String {
        let attributes = match self.attributes.len() {
            0 => None,
            1..=4 => Some(self.attributes.keys().cloned().collect::<Vec<_>>().join(", ")),
            many => Some(format!("{many} attributes of the BIOS")),
        };
        let order = (!self.boot_order.is_empty()).then(|| "the boot order".to_owned());
        let what: Vec<String> = attributes.into_iter().chain(order).collect();
        let restart = match (self.restart, self.restart_from) {
            (HostRestart::Forbidden, _) => "waits for an operator to restart the host where it is needed",
            (HostRestart::Allowed, Some(_)) => "restarts the host where it is needed, in the window",
            (HostRestart::Allowed, None) => "restarts the host where it is needed",
        };
        format!("sets {}, verifies each value, {restart}", what.join(" and "))
    }
}

fn checked_name(what: &str, name: &str) -> Result<(), String> {
    match name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        true => Err(format!("{what} has 1 to {MAX_NAME} bytes without control characters")),
        false => Ok(()),
    }
}

/// Whether the name of an attribute says that its value is a password.
pub(super) fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRETS.iter().any(|part| name.contains(part))
}
