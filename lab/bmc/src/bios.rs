//! The settings of the BIOS: written at once, in force after POST.
//!
//! ```text
//!   PATCH {"Attributes": {…}} ─► pending ─── end of POST ──► current
//!         at the settings object, or at the BIOS itself        └─ an attribute that the firmware keeps stays as it was
//! ```
//!
//! Invariants: pending values survive a restart of the BMC; every accepted write is counted, also one that changes nothing.
//!
//! Reference: DSP0268 Bios, AttributeRegistry, Settings.

use std::time::Duration;

use http::{StatusCode, header};
use serde_json::{Map, Value, json};

use super::{
    actions::object,
    call::Call,
    config::{BiosAttribute, BiosPolicy, SimBmcConfig, Success},
    etag,
    journal::StateChange,
    reply::{ErrorReply, Reply},
    resources::View,
    routes::Resource,
    sim_bmc::SimBmc,
    state::State,
};

const APPLY_TIME: &str = "@Redfish.SettingsApplyTime";

/// The settings of the BIOS and the boot order.
#[derive(Debug)]
pub(super) struct Bios {
    current: Map<String, Value>,
    pending: Map<String, Value>,
    order: Vec<String>,
    pending_order: Option<Vec<String>>,
    /// Whether the next POST applies what is pending.
    is_scheduled: bool,
    /// The task that ends with the next POST.
    task: Option<u64>,
    revision: u64,
    /// How many writes were accepted, of attributes and of the boot order.
    pub(super) writes: u64,
}

impl Bios {
    pub(super) fn new(policy: &BiosPolicy) -> Self {
        let all = policy.attributes.iter();
        Self {
            current: all.map(|attribute| (attribute.name.clone(), attribute.value.clone())).collect(),
            pending: Map::new(),
            order: policy.boot_order.clone(),
            pending_order: None,
            is_scheduled: false,
            task: None,
            revision: 1,
            writes: 0,
        }
    }

    pub(super) fn etag(&self) -> String {
        etag::opaque("b", self.revision)
    }

    /// The boot order that is in force, or the one that waits.
    pub(super) fn order(&self, pending: bool) -> &[String] {
        match &self.pending_order {
            Some(order) if pending => order,
            _ => &self.order,
        }
    }

    /// Takes a boot order. Where it waits, the next POST applies it.
    pub(super) fn write_order(&mut self, value: &Value, waits: bool) -> Result<(), ErrorReply> {
        const PROPERTY: &str = "Boot/BootOrder";
        let wrong = || ErrorReply::property_type(PROPERTY);
        let words = value.as_array().ok_or_else(wrong)?;
        let words = words.iter().map(|word| word.as_str().map(str::to_owned).ok_or_else(wrong));
        let order = words.collect::<Result<Vec<_>, _>>()?;
        if let Some(unknown) = order.iter().find(|option| !self.order.contains(*option)) {
            return Err(ErrorReply::property_not_in_list(PROPERTY, unknown));
        }
        self.writes += 1;
        if waits {
            self.pending_order = Some(order);
            self.is_scheduled = true;
        } else {
            self.order = order;
        }
        Ok(())
    }
}

impl State {
    /// The end of POST: what waits comes into force.
    pub(super) fn apply_bios(&mut self, config: &SimBmcConfig, at: Duration) {
        let bios = &mut self.bios;
        if !bios.is_scheduled {
            return;
        }
        bios.is_scheduled = false;
        let mut names = Vec::new();
        for (name, value) in std::mem::take(&mut bios.pending) {
            if !config.bios.keeps.contains(&name) {
                names.push(name.clone());
                bios.current.insert(name, value);
            }
        }
        if let Some(order) = bios.pending_order.take() {
            names.push("BootOrder".to_owned());
            bios.order = order;
        }
        bios.revision += 1;
        let task = bios.task.take();
        if let Some(task) = task {
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
            return Err(super::actions::in_post());
        }
        if let Some(name) = body.keys().find(|name| !["Attributes", APPLY_TIME].contains(&name.as_str())) {
            return Err(ErrorReply::property_unknown(name));
        }
        let values = body.get("Attributes").and_then(Value::as_object);
        let values = values.ok_or_else(|| ErrorReply::property_type("Attributes"))?;
        for (name, value) in values {
            check(policy, name, value)?;
        }
        let bios = &mut state.bios;
        bios.writes += 1;
        bios.revision += 1;
        let names: Vec<String> = values.keys().cloned().collect();
        let target = if policy.immediate { &mut bios.current } else { &mut bios.pending };
        target.extend(values.clone());
        bios.is_scheduled |= !policy.immediate && (!policy.needs_apply_time || body.contains_key(APPLY_TIME));
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
            let monitor = super::routes::uri(config, &Resource::TaskMonitor(task));
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

    /// How many writes of BIOS settings or of the boot order were accepted.
    pub fn bios_writes(&self) -> u64 {
        self.state().bios.writes
    }
}

fn check(policy: &BiosPolicy, name: &str, value: &Value) -> Result<(), ErrorReply> {
    let property = format!("Attributes/{name}");
    let known = policy.attributes.iter().find(|attribute| attribute.name == name);
    let known = known.ok_or_else(|| ErrorReply::property_unknown(&property))?;
    if known.read_only {
        return Err(ErrorReply::property_not_writable(&property));
    }
    let fits = match known.kind.as_str() {
        "Integer" => value
            .as_i64()
            .map(|number| known.bounds.is_none_or(|(least, most)| (least..=most).contains(&number))),
        "Boolean" => value.as_bool().map(|_| true),
        _ => value
            .as_str()
            .map(|text| known.values.is_empty() || known.values.iter().any(|known| known == text)),
    };
    match fits {
        Some(true) => Ok(()),
        Some(false) => Err(ErrorReply::property_not_in_list(&property, &value.to_string())),
        None => Err(ErrorReply::property_type(&property)),
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
