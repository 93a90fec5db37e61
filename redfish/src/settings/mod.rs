//! Resources whose changes wait for a restart: current values, pending values, one way to write them.
//!
//! ```text
//!   resource  (current)  @Redfish.Settings { SettingsObject, SupportedApplyTimes, Messages }
//!        │                     └─► settings object (pending)   values the next restart applies
//!        ▼                                                                 ▲
//!   SettingsView ── compare(wanted) ──► SettingsDiff ── write: PATCH wanted values that are neither current nor pending,
//!                                                             with If-Match and @Redfish.SettingsApplyTime
//! ```
//!
//! A resource without a settings object takes the values itself. BIOS attributes ([`bios`]) and the boot order
//! ([`boot_order`]) are two uses of this logic. Specification: DSP0266 (settings resource), DSP0268 Settings.

mod attribute;
mod bios;
mod boot_order;

pub use attribute::{AttributeProblem, AttributeRegistry, nearest_name};
pub use bios::{Bios, BiosCheck};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Operation, RedfishError, mark_maybe_applied};
use crate::exchange::Core;
use crate::json::{self, Resource};
use crate::update::ApplyTime;

/// Current and pending values of one resource.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SettingsView {
    /// Values in force.
    pub current: Map<String, Value>,
    /// Values that wait for a restart; `None` when the resource has no settings object.
    pub pending: Option<Map<String, Value>>,
    /// Apply times the BMC lists.
    pub apply_times: Vec<ApplyTime>,
}

/// The difference between wanted values and a view.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SettingsDiff {
    /// Names whose current value is the wanted one and that nothing pending changes.
    pub current: Vec<String>,
    /// Names whose wanted value is pending: a restart applies it.
    pub pending: Vec<String>,
    /// Names that must be written.
    pub missing: Vec<String>,
}

impl SettingsDiff {
    /// Whether every wanted value is in force.
    pub fn is_in_force(&self) -> bool {
        self.pending.is_empty() && self.missing.is_empty()
    }

    /// Whether every wanted value is in force or waits for a restart.
    pub fn is_set(&self) -> bool {
        self.missing.is_empty()
    }
}

impl SettingsView {
    /// Compares wanted values with current and pending ones.
    pub fn compare(&self, wanted: &Map<String, Value>) -> SettingsDiff {
        let mut diff = SettingsDiff::default();
        for (name, value) in wanted {
            let equal = |shown: Option<&Value>| shown.is_some_and(|shown| same(shown, value));
            let waits = self.pending.as_ref().and_then(|pending| pending.get(name));
            let in_force = equal(self.current.get(name));
            // Some settings objects repeat all current values, others show only those that were written.
            let list = match waits {
                Some(_) if equal(waits) && in_force => &mut diff.current,
                Some(_) if equal(waits) => &mut diff.pending,
                None if in_force => &mut diff.current,
                Some(_) | None => &mut diff.missing,
            };
            list.push(name.clone());
        }
        diff
    }
}

/// Whether two values are equal for a BMC: a number may be shown as text, text without case in `true` and `false`.
fn same(shown: &Value, wanted: &Value) -> bool {
    let plain = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    match (shown, wanted) {
        (Value::Bool(_), Value::String(_)) | (Value::String(_), Value::Bool(_)) => {
            plain(shown).zip(plain(wanted)).is_some_and(|(shown, wanted)| shown.eq_ignore_ascii_case(&wanted))
        }
        (Value::String(_), Value::Number(_)) | (Value::Number(_), Value::String(_)) => {
            plain(shown) == plain(wanted)
        }
        _ => shown == wanted,
    }
}

/// A resource with its settings object.
pub(crate) struct SettingsResource {
    pub(crate) resource: Resource,
    pub(crate) settings: Option<Resource>,
}

impl SettingsResource {
    /// The resource that is written.
    fn written(&self) -> &Resource {
        self.settings.as_ref().unwrap_or(&self.resource)
    }

    /// The values of an object member, in the resource and in its settings object.
    pub(crate) fn view(&self, member: &str) -> SettingsView {
        let values =
            |resource: &Resource| json::member(&resource.fields, member).cloned().unwrap_or_default();
        let annotation = json::member(&self.resource.fields, "@Redfish.Settings");
        SettingsView {
            current: values(&self.resource),
            pending: self.settings.as_ref().map(values),
            apply_times: annotation.map(|it| ApplyTime::of(it, "SupportedApplyTimes")).unwrap_or_default(),
        }
    }
}

impl Core {
    /// Reads a resource and its settings object.
    pub(crate) async fn settings_resource(
        &self,
        operation: Operation,
        path: &str,
    ) -> Result<SettingsResource, RedfishError> {
        let resource = self.read(operation, path).await?;
        let link = json::member(&resource.fields, "@Redfish.Settings")
            .and_then(|settings| json::link(settings, "SettingsObject"));
        let settings = match link.filter(|link| *link != resource.path) {
            Some(link) => Some(self.read(operation, &link).await?),
            None => None,
        };
        Ok(SettingsResource { resource, settings })
    }

    /// Writes values into an object member of the settings object, else of the resource, and reads both again.
    ///
    /// A task that applies values at a restart ends only with it. So values that the BMC shows after its response count as
    /// written, and a task is followed only where it shows none.
    pub(crate) async fn write_settings(
        &self,
        operation: Operation,
        place: &SettingsResource,
        member: &str,
        values: Map<String, Value>,
        apply_time: Option<ApplyTime>,
    ) -> Result<SettingsResource, RedfishError> {
        let mut body = json!({});
        body[member] = Value::Object(values.clone());
        if let Some(time) = apply_time {
            body["@Redfish.SettingsApplyTime"] =
                json!({ "@odata.type": "#Settings.v1_3_5.PreferredApplyTime", "ApplyTime": time.as_str() });
        }
        let deadline = self.profile().mutation_timeout;
        let response = self.patch(operation, place.written(), &body, deadline, None).await?;
        if !response.status.is_success() {
            return Err(self.refusal(operation, &response, &[]));
        }
        let path = place.resource.path.clone();
        if response.status == http::StatusCode::ACCEPTED {
            let after = self.settings_resource(operation, &path).await.map_err(mark_maybe_applied)?;
            if after.view(member).compare(&values).is_set() {
                return Ok(after);
            }
        }
        self.follow(operation, &response, &[]).await?;
        self.settings_resource(operation, &path).await.map_err(mark_maybe_applied)
    }
}

/// The apply time to send: the wanted one, else `OnReset` where the BMC lists it, because values that are applied at once can
/// restart the host.
pub(crate) fn apply_time(listed: &[ApplyTime], wanted: Option<ApplyTime>) -> Option<ApplyTime> {
    wanted.or_else(|| listed.contains(&ApplyTime::OnReset).then_some(ApplyTime::OnReset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn wanted_values_are_current_pending_or_missing() {
        let view = SettingsView {
            current: map(json!({ "a": 1, "b": "On", "c": "x", "d": "x", "e": true })),
            pending: Some(map(json!({ "b": "Off", "d": "y", "a": 1 }))),
            apply_times: Vec::new(),
        };
        let diff =
            view.compare(&map(json!({ "a": "1", "b": "On", "c": "x", "d": "y", "e": "True", "f": 0 })));
        assert_eq!(diff.current, ["a", "c", "e"]);
        assert_eq!(diff.pending, ["d"]);
        assert_eq!(diff.missing, ["b", "f"], "b would change back at the restart");
        assert!(!diff.is_set() && !diff.is_in_force());
    }

    #[test]
    fn only_what_can_wait_is_asked_to_wait() {
        assert_eq!(apply_time(&[], None), None);
        assert_eq!(apply_time(&[ApplyTime::Immediate, ApplyTime::OnReset], None), Some(ApplyTime::OnReset));
        assert_eq!(apply_time(&[], Some(ApplyTime::Immediate)), Some(ApplyTime::Immediate));
    }
}
