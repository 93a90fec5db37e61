//! Reads and writes of the settings of the BIOS.
//!
//! Reference: DSP0268 Bios, AttributeRegistry, Settings.

use std::time::Duration;

use http::{StatusCode, header};
use serde_json::{Map, Value, json};

use super::{
    actions::{in_post, object},
    bios::check,
    call::Call,
    config::{BiosAttribute, SimBmcConfig, Success},
    etag,
    journal::StateChange,
    reply::{ErrorReply, Reply},
    resources::View,
    routes::{self, Resource},
    sim_bmc::SimBmc,
    state::State,
};

const APPLY_TIME: &str = "@Redfish.SettingsApplyTime";

impl State {
    /// The end of POST: settings that wait come into force, and their task ends.
    pub(super) fn apply_bios(&mut self, config: &SimBmcConfig, at: Duration) {
        let Some(names) = self.bios.apply(&config.bios) else { return };
        if let Some(task) = self.bios.task.take() {
            self.tasks.end(task, (StatusCode::OK, Value::Null));
        }
        self.system_revision += 1;
        self.changed(at, StateChange::BiosApplied { names });
    }
}

impl SimBmc {
    /// A PATCH of the settings object of the BIOS, or of the BIOS itself.
    pub(super) fn patch_bios(&self, call: &Call, resource: &Resource) -> Result<Reply, ErrorReply> {
        let body = object(call)?.filter(|body| !body.is_empty()).ok_or_else(ErrorReply::malformed_json)?;
        let config = &self.inner.config;
        let policy = &config.bios;
        let at = self.elapsed();
        let mut state = self.state();
        etag::check(config.etag, call, &state.bios.etag())?;
        if config.boot.locked_in_post && state.machine.is_in_post() {
            return Err(in_post());
        }
        if let Some(name) = body.keys().find(|name| !["Attributes", APPLY_TIME].contains(&name.as_str())) {
            return Err(ErrorReply::property_unknown(name));
        }
        let values = body.get("Attributes").and_then(Value::as_object);
        let values = values.ok_or_else(|| ErrorReply::property_type("Attributes"))?;
        for (name, value) in values {
            check(policy, name, value)?;
        }
        let names: Vec<String> = values.keys().cloned().collect();
        state.bios.write(policy, values, body.contains_key(APPLY_TIME));
        state.changed(at, StateChange::BiosWritten { names });
        let task =
            (policy.schedules && state.bios.is_scheduled).then(|| state.tasks.begin("Configure: BIOS"));
        if task.is_some() {
            state.bios.task = task;
        }
        let opaque = state.bios.etag();
        drop(state);
        self.notify();
        if let Some(task) = task {
            let monitor = routes::uri(config, &Resource::TaskMonitor(task));
            return Ok(Reply::empty(StatusCode::ACCEPTED).with(header::LOCATION, &monitor));
        }
        let how = if config.responses.patch.is_task() { Success::NoContent } else { config.responses.patch };
        Ok(etag::tag(config.etag, self.done("BIOS settings", how, resource), &opaque))
    }

    /// The values that are in force.
    pub fn bios_attributes(&self) -> Map<String, Value> {
        self.state().bios.current.clone()
    }

    /// The boot order that is in force.
    pub fn boot_order(&self) -> Vec<String> {
        self.state().bios.order.clone()
    }

    /// The number of accepted writes of BIOS settings or of the boot order.
    pub fn bios_writes(&self) -> u64 {
        self.state().bios.writes
    }

    /// The number of accepted writes of what waited or was in force already.
    pub fn bios_needless_writes(&self) -> u64 {
        self.state().bios.needless
    }
}

impl View<'_> {
    pub(super) fn bios(&self) -> Value {
        let policy = &self.config.bios;
        let mut body =
            json!({ "@odata.type": "#Bios.v1_2_1.Bios", "Id": "Bios", "Name": "BIOS Configuration" });
        if !policy.attributes.is_empty() {
            body["Attributes"] = json!(self.state.bios.current);
        }
        if let Some(registry) = &policy.registry {
            body["AttributeRegistry"] = json!(registry);
        }
        if policy.settings.is_some() {
            let link = self.link(&Resource::BiosSettings);
            body["@Redfish.Settings"] =
                json!({ "@odata.type": "#Settings.v1_3_5.Settings", "SettingsObject": link });
            if !policy.apply_times.is_empty() {
                body["@Redfish.Settings"]["SupportedApplyTimes"] = json!(policy.apply_times);
            }
        }
        body
    }

    pub(super) fn bios_settings(&self) -> Value {
        let policy = &self.config.bios;
        let mut values = if policy.repeats { self.state.bios.current.clone() } else { Map::new() };
        values.extend(self.state.bios.pending.clone());
        json!({
            "@odata.type": "#Bios.v1_2_1.Bios",
            "Id": policy.settings,
            "Name": "BIOS Configuration Pending Settings",
            "Attributes": values,
        })
    }

    pub(super) fn registry_file(&self) -> Value {
        let id = self.config.bios.registry.as_deref().unwrap_or_default();
        json!({
            "@odata.type": "#MessageRegistryFile.v1_1_3.MessageRegistryFile",
            "Id": id.split('.').next(),
            "Name": "BIOS Attribute Registry",
            "Registry": id,
            "Languages": ["en"],
            "Location": [{ "Language": "en", "Uri": self.uri(&Resource::RegistryDocument) }],
        })
    }

    pub(super) fn registry_document(&self) -> Value {
        let attributes = self.config.bios.attributes.iter().map(described).collect::<Vec<Value>>();
        json!({
            "@odata.type": "#AttributeRegistry.v1_3_8.AttributeRegistry",
            "Id": self.config.bios.registry,
            "Name": "BIOS Attribute Registry",
            "RegistryEntries": { "Attributes": attributes },
        })
    }
}

fn described(attribute: &BiosAttribute) -> Value {
    let mut entry = json!({
        "AttributeName": attribute.name,
        "Type": attribute.kind,
        "ReadOnly": attribute.read_only,
        "ResetRequired": true,
    });
    if !attribute.values.is_empty() {
        let values =
            attribute.values.iter().map(|value| json!({ "ValueName": value, "ValueDisplayName": value }));
        entry["Value"] = values.collect();
    }
    if let Some((least, most)) = attribute.bounds {
        entry["LowerBound"] = json!(least);
        entry["UpperBound"] = json!(most);
    }
    entry
}
