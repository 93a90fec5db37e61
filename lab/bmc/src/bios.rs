//! The settings of the BIOS and the boot order: written at once, in force after POST.
//!
//! ```text
//!   PATCH {"Attributes": {…}} ─► pending ─── end of POST ──► current
//!         at the settings object, or at the BIOS itself        └─ an attribute that the firmware keeps stays as it was
//! ```
//!
//! Invariants: pending values survive a restart of the BMC; every accepted write is counted, also one that changes nothing.

use serde_json::{Map, Value};

use super::{config::BiosPolicy, etag, reply::ErrorReply};

/// The settings of the BIOS and the boot order.
#[derive(Debug)]
pub(super) struct Bios {
    pub(super) current: Map<String, Value>,
    pub(super) pending: Map<String, Value>,
    pub(super) order: Vec<String>,
    pending_order: Option<Vec<String>>,
    /// Whether the next POST applies what is pending.
    pub(super) is_scheduled: bool,
    /// The task that ends with the next POST.
    pub(super) task: Option<u64>,
    revision: u64,
    /// The number of accepted writes of attributes and of the boot order.
    pub(super) writes: u64,
    /// The number of accepted writes of what waited or was in force already.
    pub(super) needless: u64,
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
            needless: 0,
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

    /// Stores a written boot order. The next POST applies an order that `waits`.
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
        self.needless += u64::from(*self.pending_order.as_ref().unwrap_or(&self.order) == order);
        if waits {
            self.pending_order = Some(order);
            self.is_scheduled = true;
        } else {
            self.order = order;
        }
        Ok(())
    }

    /// Stores written values of attributes, which were checked before.
    pub(super) fn write(&mut self, policy: &BiosPolicy, values: &Map<String, Value>, with_time: bool) {
        self.writes += 1;
        let is_set = |(name, value)| self.pending.get(name).or(self.current.get(name)) == Some(value);
        self.needless += u64::from(values.iter().all(is_set));
        self.revision += 1;
        let target = if policy.immediate { &mut self.current } else { &mut self.pending };
        target.extend(values.clone());
        self.is_scheduled |= !policy.immediate && (!policy.needs_apply_time || with_time);
    }

    /// The end of POST: what waits comes into force. Returns its names; `None` when nothing was scheduled.
    pub(super) fn apply(&mut self, policy: &BiosPolicy) -> Option<Vec<String>> {
        if !std::mem::take(&mut self.is_scheduled) {
            return None;
        }
        let mut names = Vec::new();
        for (name, value) in std::mem::take(&mut self.pending) {
            if !policy.keeps.contains(&name) {
                names.push(name.clone());
                self.current.insert(name, value);
            }
        }
        if let Some(order) = self.pending_order.take() {
            names.push("BootOrder".to_owned());
            self.order = order;
        }
        self.revision += 1;
        Some(names)
    }
}

/// Checks one value of a write.
pub(super) fn check(policy: &BiosPolicy, name: &str, value: &Value) -> Result<(), ErrorReply> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::SimBmcConfig;

    #[test]
    fn a_write_of_what_waits_or_is_in_force_is_counted_as_needless() {
        let config = SimBmcConfig::vendor("generic", "SN", "user", "password").unwrap();
        let policy = &config.bios;
        let mut bios = Bios::new(policy);
        let fan = |value: u64| json!({ "FanOffset": value }).as_object().cloned().unwrap();
        let in_force = bios.current["FanOffset"].as_u64().unwrap();
        bios.write(policy, &fan(in_force + 1), true);
        assert_eq!((bios.writes, bios.needless), (1, 0));
        bios.write(policy, &fan(in_force + 1), true);
        assert_eq!((bios.writes, bios.needless), (2, 1), "it waits");
        bios.apply(policy);
        bios.write(policy, &fan(in_force + 1), true);
        assert_eq!((bios.writes, bios.needless), (3, 2), "it is in force");
        bios.write(policy, &fan(in_force), true);
        assert_eq!((bios.writes, bios.needless), (4, 2), "the earlier value again");
    }
}
