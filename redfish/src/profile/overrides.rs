//! Overrides of an operator: a JSON object of flags, checked when the server is registered or changed.

use serde_json::{Map, Value};

use super::flags::{FLAGS, Flags};
use super::values::InsertFields;
use crate::profile::Include;

/// The reason why an override is not valid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OverrideError {
    /// No flag has the name.
    #[error("there is no flag {flag:?}; {}", suggestion(.nearest))]
    Unknown {
        /// The unknown name.
        flag: String,
        /// The flag with the most similar name, if one is similar.
        nearest: Option<&'static str>,
    },
    /// The value is not valid for the flag.
    #[error("flag {flag}: {why}")]
    Value {
        /// Name of the flag.
        flag: String,
        /// The reason.
        why: String,
    },
}

impl OverrideError {
    /// The name of the flag in the override.
    pub fn flag(&self) -> &str {
        match self {
            OverrideError::Unknown { flag, .. } | OverrideError::Value { flag, .. } => flag,
        }
    }
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(flag) => format!("did you mean {flag}?"),
        None => format!("the flags are {}", FLAGS.join(", ")),
    }
}

impl Flags {
    /// Parses flags from a JSON object.
    ///
    /// # Errors
    ///
    /// When a flag does not exist or its value is not valid; the error names the flag.
    pub fn parse(values: &Map<String, Value>) -> Result<Self, OverrideError> {
        for (flag, value) in values {
            if !FLAGS.contains(&flag.as_str()) {
                let flag = crate::json::clip(flag, 64);
                return Err(OverrideError::Unknown { nearest: nearest(&flag, FLAGS), flag });
            }
            let one: Map<String, Value> = [(flag.clone(), value.clone())].into_iter().collect();
            let flags: Flags = serde_json::from_value(Value::Object(one))
                .map_err(|why| OverrideError::Value { flag: flag.clone(), why: why.to_string() })?;
            flags
                .check_values()
                .map_err(|why| OverrideError::Value { flag: flag.clone(), why: why.to_owned() })?;
        }
        serde_json::from_value(Value::Object(values.clone()))
            .map_err(|why| OverrideError::Value { flag: "overrides".to_owned(), why: why.to_string() })
    }

    /// Checks limits that the types do not express.
    fn check_values(&self) -> Result<(), &'static str> {
        let lists = [&self.slot_allow, &self.slot_deny, &self.system_select, &self.busy_ids];
        if lists.into_iter().flatten().flatten().any(|word| word.is_empty() || word.len() > 64) {
            return Err("each entry has 1 to 64 bytes");
        }
        if self.url_schemes.as_ref().is_some_and(|schemes| {
            schemes.is_empty()
                || schemes.iter().any(|scheme| !matches!(scheme.as_str(), "http" | "https" | "nfs" | "cifs"))
        }) {
            return Err("a list of http, https, nfs or cifs");
        }
        let suffixes = [&self.url_suffix_cd, &self.url_suffix_usb];
        if suffixes.into_iter().flatten().any(|suffix| !matches!(suffix.as_str(), "iso" | "img")) {
            return Err("iso or img");
        }
        if self.boot_targets.as_ref().is_some_and(Vec::is_empty) {
            return Err("at least one boot target");
        }
        if self.update_ways.as_ref().is_some_and(Vec::is_empty) {
            return Err("at least one way to update");
        }
        if self.unsupported.as_ref().is_some_and(|sentence| sentence.len() > 512) {
            return Err("at most 512 bytes");
        }
        Ok(())
    }
}

/// The existing name most similar to `word`, if one is similar enough.
pub(super) fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let allowed = (word.len() / 3).max(1);
    let distances = names.iter().map(|name| (distance(word, name), *name));
    distances.filter(|(distance, _)| *distance <= allowed).min().map(|(_, name)| name)
}

/// Edit distance between two short words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

impl super::Profile {
    /// The profile with this name.
    ///
    /// # Errors
    ///
    /// When there is none; the text suggests the most similar name.
    pub fn find(name: &str) -> Result<Self, String> {
        super::Profile::named(name).ok_or_else(|| {
            let names: Vec<&'static str> = super::Profile::names().collect();
            let name = crate::json::clip(name, 64);
            match nearest(&name, &names) {
                Some(near) => format!("there is no BMC profile {name:?}; did you mean {near}?"),
                None => format!("there is no BMC profile {name:?}; there are {}", names.join(", ")),
            }
        })
    }
}

impl InsertFields {
    /// Sets a member that the profile leaves open; a fixed one stays unchanged.
    pub(super) fn learn(field: &mut Include, to: Include) {
        if *field == Include::WhenAsked {
            *field = to;
        }
    }
}
