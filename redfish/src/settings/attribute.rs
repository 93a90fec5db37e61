//! The attribute registry of a BIOS: which attributes exist, their types and values.
//!
//! ```text
//!   Bios.AttributeRegistry "BiosAttributeRegistry.v1_0_0" -> Registries -> Location[].Uri -> RegistryEntries.Attributes[]
//!   check(name, value):  exists? -> ReadOnly? -> Type -> allowed values, bounds, lengths       -> AttributeProblem
//!   typed(name, text):   "4" -> 4, "true" -> true, as the type of the attribute says
//!   nearest(name):       the known name with the fewest changes, for a name that does not exist
//! ```
//!
//! Specification: DSP0268 AttributeRegistry.

use serde_json::{Map, Value};

use crate::json;

/// Maximum number of attributes that are kept.
const MAX_ATTRIBUTES: usize = 8192;
/// Maximum number of values of one attribute.
const MAX_VALUES: usize = 512;

/// The reason why a value would be refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AttributeProblem {
    /// The registry has no attribute of this name.
    #[error("there is no attribute {name}; names are case-sensitive")]
    Unknown {
        /// The unknown name.
        name: String,
    },
    /// The attribute cannot be written.
    #[error("attribute {name} is read-only")]
    ReadOnly {
        /// The name of the attribute.
        name: String,
    },
    /// The value does not fit the attribute.
    #[error("attribute {name}: {why}")]
    Value {
        /// The name of the attribute.
        name: String,
        /// The values that the attribute takes.
        why: String,
    },
}

/// The attributes of a BIOS.
#[derive(Clone, Debug, Default)]
pub struct AttributeRegistry(std::collections::BTreeMap<String, Attribute>);

#[derive(Clone, Debug)]
struct Attribute {
    kind: String,
    read_only: bool,
    values: Vec<String>,
    bounds: (Option<i64>, Option<i64>),
    lengths: (Option<i64>, Option<i64>),
}

impl AttributeRegistry {
    /// Reads the attributes of a registry; entries without a name are left out. `None` when the document has no attributes.
    pub(crate) fn of(fields: &Map<String, Value>) -> Option<Self> {
        let entries = json::member(fields, "RegistryEntries")?.get("Attributes")?.as_array()?;
        let entries = entries.iter().take(MAX_ATTRIBUTES).filter_map(Value::as_object);
        Some(AttributeRegistry(entries.filter_map(attribute).collect()))
    }

    /// Reads the attributes of a registry document; `None` when it has none.
    pub fn parse(document: &Value) -> Option<Self> {
        Self::of(document.as_object()?)
    }

    /// Number of attributes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the registry has no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks wanted values: every problem, in the order of the names.
    pub fn check(&self, wanted: &Map<String, Value>) -> Vec<AttributeProblem> {
        wanted.iter().filter_map(|(name, value)| self.check_one(name, value)).collect()
    }

    /// Checks one wanted value; `None` when it fits.
    pub fn check_one(&self, name: &str, value: &Value) -> Option<AttributeProblem> {
        let name = json::clip(name, 128);
        let Some(attribute) = self.0.get(&name) else { return Some(AttributeProblem::Unknown { name }) };
        if attribute.read_only {
            return Some(AttributeProblem::ReadOnly { name });
        }
        attribute.refuses(value).map(|why| AttributeProblem::Value { name, why })
    }

    /// Whether an attribute is marked as a password.
    pub fn is_secret(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|attribute| attribute.kind == "Password")
    }

    /// Whether an attribute cannot be written.
    pub fn is_read_only(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|attribute| attribute.read_only)
    }

    /// The values that an attribute takes, in words; `None` when the registry does not say.
    pub fn takes(&self, name: &str) -> Option<String> {
        let attribute = self.0.get(name)?;
        match attribute.kind.as_str() {
            "Enumeration" => Some(clipped_list(&attribute.values)).filter(|list| !list.is_empty()),
            "Integer" => Some(match attribute.bounds {
                (None, None) => "a whole number".to_owned(),
                bounds => range(bounds),
            }),
            "Boolean" => Some("true or false".to_owned()),
            _ => None,
        }
    }

    /// A value in the type of its attribute: a text that is a number or a truth value becomes one where the attribute has that
    /// type, and a number becomes a text where it has texts. A value that does not fit stays as it is.
    pub fn typed(&self, name: &str, value: &Value) -> Value {
        let kind = self.0.get(name).map_or("", |attribute| attribute.kind.as_str());
        let typed = match (kind, value) {
            ("Integer", Value::String(text)) => text.trim().parse::<i64>().ok().map(Value::from),
            ("Boolean", Value::String(text)) => {
                text.trim().to_ascii_lowercase().parse().ok().map(Value::Bool)
            }
            ("Enumeration" | "String", Value::Number(number)) => Some(Value::from(number.to_string())),
            _ => None,
        };
        typed.unwrap_or_else(|| value.clone())
    }

    /// The known name that is most like a name; `None` when none is like it.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        nearest_name(self.0.keys().map(String::as_str), name)
    }
}

/// The longest name of which a similar one is looked for: the work grows with the square of the length.
const MAX_COMPARED: usize = 64;

/// The name that is most like a name, without case: at most a third of its characters differ.
pub fn nearest_name<'a>(names: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    let wanted: Vec<char> = name.to_lowercase().chars().take(MAX_COMPARED).collect();
    let most = wanted.len().div_ceil(3);
    let like = names.filter_map(|known| {
        let shown: Vec<char> = known.to_lowercase().chars().take(MAX_COMPARED).collect();
        let differs =
            if shown.len().abs_diff(wanted.len()) > most { None } else { Some(changes(&shown, &wanted)) };
        differs.filter(|differs| *differs <= most).map(|differs| (differs, known))
    });
    like.min().map(|(_, known)| known)
}

/// The number of characters that must be inserted, removed or replaced to make one text of the other.
fn changes(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, left) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, right) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

fn attribute(entry: &Map<String, Value>) -> Option<(String, Attribute)> {
    let name = json::word(entry, "AttributeName")?;
    let values = entry.get("Value").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let values = values.iter().take(MAX_VALUES).filter_map(Value::as_object);
    let number = |name: &str| entry.get(name).and_then(Value::as_i64);
    let attribute = Attribute {
        kind: json::word(entry, "Type").unwrap_or_default(),
        read_only: json::flag(entry, "ReadOnly") == Some(true)
            || json::flag(entry, "Immutable") == Some(true),
        values: values.filter_map(|value| json::word(value, "ValueName")).collect(),
        bounds: (number("LowerBound"), number("UpperBound")),
        lengths: (number("MinLength"), number("MaxLength")),
    };
    Some((name, attribute))
}

impl Attribute {
    /// The values that the attribute takes, when the value does not fit; `None` when it fits, or when the registry does not say.
    fn refuses(&self, value: &Value) -> Option<String> {
        match self.kind.as_str() {
            "Enumeration" => {
                let Some(text) = value.as_str() else {
                    return Some("a text from its list of values".to_owned());
                };
                let known = self.values.is_empty() || self.values.iter().any(|known| known == text);
                (!known).then(|| format!("one of {}", clipped_list(&self.values)))
            }
            "Integer" => {
                let Some(number) = value.as_i64() else { return Some("a whole number".to_owned()) };
                outside(number, self.bounds).map(|range| format!("a number {range}"))
            }
            "Boolean" => (!value.is_boolean()).then(|| "true or false".to_owned()),
            "String" | "Password" => {
                let Some(text) = value.as_str() else { return Some("a text".to_owned()) };
                let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
                outside(length, self.lengths).map(|range| format!("a text of a length {range}"))
            }
            _ => None,
        }
    }
}

fn outside(number: i64, (least, most): (Option<i64>, Option<i64>)) -> Option<String> {
    let (low, high) = (least.is_some_and(|least| number < least), most.is_some_and(|most| number > most));
    (low || high).then(|| range((least, most)))
}

fn range((least, most): (Option<i64>, Option<i64>)) -> String {
    let shown = |bound: Option<i64>| bound.map_or_else(|| "any".to_owned(), |bound| bound.to_string());
    format!("from {} to {}", shown(least), shown(most))
}

fn clipped_list(values: &[String]) -> String {
    let shown = values.iter().take(16).cloned().collect::<Vec<_>>().join(", ");
    if values.len() > 16 { format!("{shown} and {} more", values.len() - 16) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_gets_the_type_of_its_attribute_and_an_unknown_name_the_nearest_one() {
        let registry = json!({ "RegistryEntries": { "Attributes": [
            { "AttributeName": "BootMode", "Type": "Enumeration", "Value": [{ "ValueName": "Uefi" }, { "ValueName": "2" }] },
            { "AttributeName": "Fan", "Type": "Integer", "LowerBound": 1 },
            { "AttributeName": "Turbo", "Type": "Boolean" },
            { "AttributeName": "AdminLock", "Type": "Password" },
        ]}});
        let registry = AttributeRegistry::of(registry.as_object().unwrap()).unwrap();
        for (name, given, typed) in [
            ("Fan", json!("4"), json!(4)),
            ("Fan", json!("four"), json!("four")),
            ("Turbo", json!("False"), json!(false)),
            ("BootMode", json!(2), json!("2")),
            ("Unknown", json!("4"), json!("4")),
        ] {
            assert_eq!(registry.typed(name, &given), typed, "{name} {given}");
        }
        assert!(registry.is_secret("AdminLock") && !registry.is_secret("Fan"));
        assert_eq!(registry.takes("BootMode").as_deref(), Some("Uefi, 2"));
        assert_eq!(registry.takes("Fan").as_deref(), Some("from 1 to any"));
        for (name, nearest) in
            [("bootmode", Some("BootMode")), ("Trubo", Some("Turbo")), ("Watchdog", None), ("", None)]
        {
            assert_eq!(registry.nearest(name), nearest, "{name}");
        }
    }

    #[test]
    fn each_kind_of_problem_is_named_with_what_the_attribute_takes() {
        let registry = json!({ "RegistryEntries": { "Attributes": [
            { "AttributeName": "BootMode", "Type": "Enumeration", "Value": [{ "ValueName": "Uefi" }, { "ValueName": "Bios" }] },
            { "AttributeName": "Fan", "Type": "Integer", "LowerBound": 1, "UpperBound": 5 },
            { "AttributeName": "Turbo", "Type": "Boolean" },
            { "AttributeName": "Tag", "Type": "String", "MaxLength": 3 },
            { "AttributeName": "Serial", "Type": "String", "ReadOnly": true },
            { "Type": "no name" },
        ]}});
        let registry = AttributeRegistry::of(registry.as_object().unwrap()).unwrap();
        assert_eq!(registry.len(), 5);
        let good = json!({ "BootMode": "Uefi", "Fan": 5, "Turbo": true, "Tag": "abc" });
        assert_eq!(registry.check(good.as_object().unwrap()), []);
        let bad = json!({ "BootMode": "uefi", "Fan": 6, "Turbo": "yes", "Tag": "abcd", "Serial": "x", "Turboo": 1 });
        let shown: Vec<String> =
            registry.check(bad.as_object().unwrap()).iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "attribute BootMode: one of Uefi, Bios",
                "attribute Fan: a number from 1 to 5",
                "attribute Serial is read-only",
                "attribute Tag: a text of a length from any to 3",
                "attribute Turbo: true or false",
                "there is no attribute Turboo; names are case-sensitive",
            ]
        );
    }
}
