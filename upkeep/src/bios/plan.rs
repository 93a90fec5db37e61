//! `bios.plan`: reads attributes, registry and boot order, and decides for each wanted setting. Nothing is sent.
//!
//! ```text
//!   change    another value is in force                                 ─► written
//!   pending   the value is stored already and waits for the restart     ─► the restart only
//!   skip      the value is in force                                     ─► nothing
//!   refuse    unknown, read-only, not in the list, out of the bounds, a password; no boot option   ─► failure of the run
//! ```

use redfish::{AttributeRegistry, Bios, RedfishError, SettingsView};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::identified::identified_bmc;
use super::super::{ApplyBios, UpkeepServices, names};
use super::read::{BiosShown, ORDER, Wanted, options, shown};
use super::validate::order;
use bmc::{failure, from_redfish};
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, StepName};

const STEP: &StepName = names::BIOS_PLAN;
/// How many settings a sentence names.
const NAMED: usize = 8;
/// For how many unknown names the nearest known one is looked for.
const MAX_NEAREST: usize = 8;

/// One wanted setting as operators read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingItem {
    /// The name of the attribute; `BootOrder` for the boot order.
    pub name: String,
    /// Whether the setting is the boot order.
    pub boot_order: bool,
    /// The value in force; null when it is not known, or a password.
    pub now: Value,
    /// The wanted value, in the type of the attribute; null for a password.
    pub then: Value,
    /// `change`, `pending`, `skip` or `refuse`.
    pub decision: String,
    /// The reason of the decision.
    pub reason: String,
}

impl SettingItem {
    /// Whether the setting is not in force yet and may be.
    pub fn is_open(&self) -> bool {
        self.decision == "change" || self.decision == "pending"
    }
}

/// The plan of a run; the output of its step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Planned {
    /// The plan in one sentence for operators.
    pub(super) summary: String,
    pub(super) items: Vec<SettingItem>,
    /// Whether nothing shows attributes that wait: the BIOS has no settings object.
    pub(super) hides_attributes: bool,
    /// Whether nothing shows a boot order that waits.
    pub(super) hides_boot_order: bool,
}

impl Planned {
    /// The wanted attributes.
    pub(super) fn attributes(&self) -> Map<String, Value> {
        let all = self.items.iter().filter(|item| !item.boot_order);
        all.map(|item| (item.name.clone(), item.then.clone())).collect()
    }

    /// The wanted boot order, in the form of a view.
    pub(super) fn boot_order(&self) -> Map<String, Value> {
        let all = self.items.iter().filter(|item| item.boot_order);
        all.map(|item| (ORDER.to_owned(), item.then.clone())).collect()
    }
}

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let order = order(STEP, context)?;
    let (connected, found) = identified_bmc(STEP, names::BIOS_IDENTIFY, services, context).await?;
    let failed = |error: RedfishError| from_redfish(STEP, &error);
    let wanted =
        Wanted { attributes: !order.attributes.is_empty(), boot_order: !order.boot_order.is_empty() };
    let seen = shown(&connected.bmc, &found.discovery.system, wanted).await.map_err(failed)?;
    let items = planned(&order, &seen);
    let plan = Planned {
        summary: summary(&items),
        items,
        hides_attributes: seen.bios.as_ref().is_ok_and(|bios| bios.settings.pending.is_none()),
        hides_boot_order: seen.boot_order.as_ref().is_ok_and(|order| order.pending.is_none()),
    };
    let refused: Vec<String> = plan
        .items
        .iter()
        .filter(|item| item.decision == "refuse")
        .map(|item| format!("{}: {}", item.name, item.reason))
        .collect();
    if !refused.is_empty() {
        let summary = format!("nothing was sent to the BMC: {}", clipped(&refused));
        let next = "correct the order as the plan says; `shoal server bios show SERIAL` shows every setting";
        return Err(StepError::fail(failure(names::class::SETTINGS_REFUSED, STEP, summary, next))
            .with_output(json!(plan)));
    }
    let event = NewEvent::info("bios.planned", plan.summary.clone()).with(json!({ "items": plan.items }));
    let mut report = StepReport::done().with_output(json!(plan)).event(event);
    let others = others(&seen, &plan);
    if !others.is_empty() && plan.items.iter().any(SettingItem::is_open) {
        let message = format!(
            "other settings wait for a restart of the host too, and it puts them into force: {}",
            clipped(&others)
        );
        report = report.event(NewEvent::warn("bios.others-pending", message));
    }
    Ok(connected.report(report))
}

/// Plans an order for a server: one item for each attribute, and one for the boot order if the order has one.
pub fn planned(order: &ApplyBios, seen: &BiosShown) -> Vec<SettingItem> {
    let mut nearest_left = MAX_NEAREST;
    let attributes =
        order.attributes.iter().map(|(name, value)| attribute(seen, name, value, &mut nearest_left));
    let mut items: Vec<SettingItem> = attributes.collect();
    if !order.boot_order.is_empty() {
        items.push(boot_order(seen, &order.boot_order));
    }
    items
}

fn attribute(seen: &BiosShown, name: &str, value: &Value, nearest_left: &mut usize) -> SettingItem {
    let item = |now: Value, then: Value, (decision, reason): (&str, String)| SettingItem {
        name: name.to_owned(),
        boot_order: false,
        now,
        then,
        decision: decision.to_owned(),
        reason,
    };
    if seen.is_secret(name) {
        let why = "it is a password, which is not supported: set it in the setup of the BIOS";
        return item(Value::Null, Value::Null, ("refuse", why.to_owned()));
    }
    let bios = match &seen.bios {
        Ok(bios) => bios,
        Err(why) => return item(Value::Null, value.clone(), ("refuse", why.clone())),
    };
    let registry = seen.registry.as_ref().ok();
    let now = bios.settings.current.get(name);
    let then = typed(registry, now, name, value);
    let shown = now.cloned().unwrap_or_default();
    match problem(bios, registry, name, &then, nearest_left) {
        Some(why) => item(shown, then, ("refuse", why)),
        None => {
            let decided = decided(&bios.settings, name, &then);
            item(shown, then, decided)
        }
    }
}

/// The wanted value in the type of the registry, else in the type of the shown value.
fn typed(registry: Option<&AttributeRegistry>, now: Option<&Value>, name: &str, value: &Value) -> Value {
    match (registry, now, value) {
        (Some(registry), _, _) => registry.typed(name, value),
        (None, Some(Value::Number(_)), Value::String(text)) => {
            text.trim().parse::<i64>().map_or_else(|_| value.clone(), Value::from)
        }
        (None, Some(Value::Bool(_)), Value::String(text)) => {
            text.trim().to_ascii_lowercase().parse().map_or_else(|_| value.clone(), Value::Bool)
        }
        _ => value.clone(),
    }
}

/// Why a value is refused.
fn problem(
    bios: &Bios,
    registry: Option<&AttributeRegistry>,
    name: &str,
    value: &Value,
    nearest_left: &mut usize,
) -> Option<String> {
    use redfish::settings::AttributeProblem as Problem;
    let current = &bios.settings.current;
    let problem = match registry {
        Some(registry) => registry.check_one(name, value),
        None if current.contains_key(name) => None,
        None => Some(Problem::Unknown { name: name.to_owned() }),
    };
    match problem? {
        // Some registries lack attributes that the BIOS has.
        Problem::Unknown { .. } if current.contains_key(name) => None,
        Problem::Unknown { .. } => {
            let why = "the BIOS has no such attribute";
            if *nearest_left == 0 {
                return Some(why.to_owned());
            }
            *nearest_left -= 1;
            let shown = redfish::settings::nearest_name(current.keys().map(String::as_str), name);
            let nearest = shown.or_else(|| registry.and_then(|registry| registry.nearest(name)));
            Some(nearest.map_or_else(
                || format!("{why}; names are case-sensitive"),
                |nearest| format!("{why}; the nearest name is {nearest}"),
            ))
        }
        Problem::ReadOnly { .. } => Some("the attribute is read-only".to_owned()),
        Problem::Value { why, .. } => Some(format!("{} is not {why}", plain(value))),
    }
}

fn decided(view: &SettingsView, name: &str, then: &Value) -> (&'static str, String) {
    let wanted = Map::from_iter([(name.to_owned(), then.clone())]);
    let diff = view.compare(&wanted);
    match () {
        () if diff.is_in_force() => ("skip", "the value is in force".to_owned()),
        () if diff.is_set() => ("pending", "the value waits for a restart of the host".to_owned()),
        () => ("change", "another value is in force".to_owned()),
    }
}

fn boot_order(seen: &BiosShown, wanted: &[String]) -> SettingItem {
    let item = |now: Value, then: Value, (decision, reason): (&str, String)| SettingItem {
        name: ORDER.to_owned(),
        boot_order: true,
        now,
        then,
        decision: decision.to_owned(),
        reason,
    };
    let view = match &seen.boot_order {
        Ok(view) => view,
        Err(why) => return item(Value::Null, json!(wanted), ("refuse", why.clone())),
    };
    let known = options(&view.current);
    if let Some(unknown) = wanted.iter().find(|option| !known.contains(option)) {
        let why = format!("there is no boot option {unknown}; the options are {}", known.join(", "));
        return item(json!(known), json!(wanted), ("refuse", why));
    }
    let rest = known.iter().filter(|option| !wanted.contains(option));
    let then = json!(wanted.iter().chain(rest).collect::<Vec<_>>());
    let decided = decided(view, ORDER, &then);
    item(json!(known), then, decided)
}

/// The names of attributes that wait for a restart and are not in the order.
fn others(seen: &BiosShown, plan: &Planned) -> Vec<String> {
    let Ok(bios) = &seen.bios else { return Vec::new() };
    let pending = bios.settings.pending.iter().flatten();
    let foreign = pending.filter(|(name, value)| {
        bios.settings.current.get(*name) != Some(*value) && !plan.items.iter().any(|item| item.name == **name)
    });
    foreign.map(|(name, _)| name.clone()).collect()
}

/// A value in a sentence.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) if text.is_empty() => "an empty text".to_owned(),
        Value::String(text) => text.chars().take(64).collect(),
        Value::Array(list) => {
            list.iter().take(16).map(|one| one.as_str().unwrap_or("…")).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// Several texts as one, of which the last ones are only counted.
pub(super) fn clipped(texts: &[String]) -> String {
    let named = texts.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    match texts.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

/// The plan in one sentence.
fn summary(items: &[SettingItem]) -> String {
    let parts: Vec<String> = items
        .iter()
        .map(|item| {
            let (now, then) = (plain(&item.now), plain(&item.then));
            match item.decision.as_str() {
                "change" => format!("change {} from {now} to {then}", item.name),
                "pending" => format!("{} is {then} after the restart", item.name),
                "skip" => format!("{} is {then} already", item.name),
                _ => format!("refuse {} ({})", item.name, item.reason),
            }
        })
        .collect();
    clipped(&parts)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
