//! Turns errors of the schema validator into messages for the author of the recipe.
//!
//! Every property of the schema has a `description` that completes the sentence "expected …", so a new field brings its
//! error text. Each location gets one error, the one of lowest rank: a wrong `type` makes `enum` fail too.
//!
//! Values are quoted in messages only for fields on an allow-list (names, disks, sizes), never for payloads and URLs. A repair may hold
//! an image reference, whose grammar has no place for a password.

use serde_json::{Map, Value};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};

use super::error::{FieldError, MAX_ERRORS, by_path, child, cut, display};
use super::repair::{Repair, Tried};

/// Fields whose values may be quoted in an error.
const QUOTABLE: [&str; 23] = [
    "task_target",
    "target_disk",
    "media_label",
    "user_data_encoding",
    "recipe_version",
    "$schema",
    "size",
    "type_guid",
    "format",
    "label",
    "after",
    "delivery",
    "erase_mode",
    "mount",
    "hctl",
    "by_path",
    "macaddress",
    "mode",
    "link",
    "to",
    "via",
    "member_of",
    "level",
];

/// The target that no repair chooses: what a person did not write destroys nothing.
const ERASE: &str = "erase.target";

/// The most characters in which a name differs from the one that it probably means.
const SLIPS: usize = 2;

/// Maximum length of a quoted value in characters.
const MAX_QUOTED: usize = 64;

/// Returns the errors of one validation in document order, one per location.
pub(super) fn errors(schema: &Value, recipe: &Value, validator: &Validator) -> Vec<FieldError> {
    let mut explained: Vec<(u8, FieldError)> = Vec::new();
    let mut repairs = Tried::new(validator, recipe);
    for error in validator.iter_errors(recipe) {
        explain(schema, recipe, &error, &mut repairs, &mut explained);
    }
    explained.sort_by(|(rank_a, a), (rank_b, b)| {
        by_path(&a.path, &b.path).then(rank_a.cmp(rank_b)).then_with(|| a.message.cmp(&b.message))
    });
    explained.dedup_by(|(_, later), (_, earlier)| {
        let same = later.path == earlier.path;
        if same && earlier.repair.is_none() {
            earlier.repair = later.repair.take();
        }
        same
    });
    explained.into_iter().map(|(_, error)| error).collect()
}

/// Returns the rank of an error. Of two errors at one location, the lower rank is the cause.
fn rank(kind: &ValidationErrorKind) -> u8 {
    match kind {
        ValidationErrorKind::Type { .. } => 0,
        ValidationErrorKind::MinLength { .. } | ValidationErrorKind::MaxLength { .. } => 1,
        ValidationErrorKind::Pattern { .. } => 2,
        _ => 3,
    }
}

fn explain(
    schema: &Value,
    recipe: &Value,
    error: &ValidationError<'_>,
    repairs: &mut Tried<'_>,
    explained: &mut Vec<(u8, FieldError)>,
) {
    let path = error.instance_path().as_str();
    let location = ErrorLocation { schema, keyword: error.schema_path().as_str(), path };
    let code = error.kind().keyword();
    let rank = rank(error.kind());
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            let target =
                location.conditional().then(|| recipe.get("task_target").and_then(Value::as_str)).flatten();
            let missing = child(path, name);
            let expected = location.sibling(name).map(|text| format!(": {text}")).unwrap_or_default();
            let message = match target {
                Some(target) => format!("{} needs {}{expected}.", cut(target, MAX_QUOTED), display(&missing)),
                None => format!("{} is missing{expected}.", display(&missing)),
            };
            explained.push((rank, FieldError::new(&missing, code, message)));
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let known = location.known_fields();
            // The search for a similar name is expensive, and more than MAX_ERRORS errors are not reported.
            for name in unexpected.iter().take(MAX_ERRORS + 1) {
                let stray = child(path, name);
                let near = nearest(name, known.iter().copied());
                let advice = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known fields are {}.", known.join(", ")),
                };
                let message = format!("{} is not a known field here; {advice}", display(&stray));
                // A name that the object has cannot be given twice.
                let free = |near: &&str| recipe.pointer(&child(path, near)).is_none();
                let meant = probable(name, known.iter().copied()).filter(free);
                let repair = meant.map(|meant| Repair::Rename(meant.to_owned()));
                explained.push((rank, FieldError::new(&stray, code, message).repaired_by(repair)));
            }
        }
        kind => {
            let message = format!("{} {}", display(path), location.complaint(kind, error.instance()));
            let repair = match (kind, error.instance().as_str()) {
                (ValidationErrorKind::Enum { options }, Some(text)) => {
                    let meant = probable(text, texts(options)).filter(|meant| *meant != ERASE);
                    meant.map(|meant| Repair::Set(Value::from(meant)))
                }
                (ValidationErrorKind::Pattern { .. }, Some(text)) => repairs.of_form(path, text),
                _ => None,
            };
            explained.push((rank, FieldError::new(path, code, message).repaired_by(repair)));
        }
    }
}

/// The location of an error in the schema (`keyword`) and in the recipe (`path`).
struct ErrorLocation<'a> {
    schema: &'a Value,
    keyword: &'a str,
    path: &'a str,
}

impl<'a> ErrorLocation<'a> {
    /// Returns whether the rule depends on the target.
    fn conditional(&self) -> bool {
        self.keyword.contains("/then/")
    }

    /// Returns the pointer to the schema that holds the failed keyword. Conditions only tighten fields that are described at
    /// the top level, so the prefix of the condition is removed.
    fn owner(&self) -> String {
        let from = self.keyword.rfind("/then/").map_or(0, |at| at + "/then".len());
        let own = &self.keyword[from..];
        own.rsplit_once('/').map_or("", |(owner, _)| owner).to_owned()
    }

    fn text_at(&self, pointer: &str) -> Option<&'a str> {
        self.schema.pointer(pointer).and_then(Value::as_str)
    }

    fn description(&self) -> Option<&'a str> {
        self.text_at(&child(&self.owner(), "description"))
    }

    fn sibling(&self, name: &str) -> Option<&'a str> {
        self.text_at(&child(&child(&child(&self.owner(), "properties"), name), "description"))
    }

    fn known_fields(&self) -> Vec<&'a str> {
        let properties = self.schema.pointer(&child(&self.owner(), "properties"));
        properties.and_then(Value::as_object).map(sorted_names).unwrap_or_default()
    }

    /// Returns the message after the name of the field.
    fn complaint(&self, kind: &ValidationErrorKind, value: &Value) -> String {
        let expected = self.description().map(|text| format!(": expected {text}")).unwrap_or_default();
        match kind {
            ValidationErrorKind::Type { .. } => {
                let wanted = self.schema.pointer(self.keyword).map(type_names).unwrap_or_default();
                format!("must be {wanted}, not {}{expected}.", type_of(value))
            }
            ValidationErrorKind::MaxLength { limit } => {
                format!("holds {} characters, the limit is {limit}.", characters(value))
            }
            ValidationErrorKind::MinLength { limit: 1 } | ValidationErrorKind::MinProperties { .. } => {
                format!("must not be empty{expected}.")
            }
            ValidationErrorKind::MinLength { limit } => {
                format!("holds {} characters, at least {limit} are needed{expected}.", characters(value))
            }
            ValidationErrorKind::MaxItems { limit } => {
                format!("holds {} items, the limit is {limit}.", items(value))
            }
            ValidationErrorKind::MinItems { limit } => {
                format!("holds {} items, at least {limit} are needed{expected}.", items(value))
            }
            ValidationErrorKind::Enum { options } => {
                let near = value.as_str().and_then(|text| nearest(text, texts(options)));
                let near = near.map(|near| format!(" Did you mean {near}?")).unwrap_or_default();
                format!("{}{expected}.{near}", self.refused(value))
            }
            _ => format!("{}{expected}.", self.refused(value)),
        }
    }

    fn refused(&self, value: &Value) -> String {
        let field = self.path.rsplit('/').next().unwrap_or_default();
        match value {
            Value::String(text) if QUOTABLE.contains(&field) && text.chars().count() <= MAX_QUOTED => {
                format!("cannot be \"{}\"", text.escape_debug())
            }
            Value::String(text) => format!("has a value of {} bytes that is not accepted", text.len()),
            _ => "has a value that is not accepted".to_owned(),
        }
    }
}

fn sorted_names(object: &Map<String, Value>) -> Vec<&str> {
    let mut names: Vec<&str> = object.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn characters(value: &Value) -> usize {
    value.as_str().map_or(0, |text| text.chars().count())
}

fn items(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn type_names(wanted: &Value) -> String {
    let name = |name: &str| match name {
        "array" => "an array".to_owned(),
        "object" => "an object".to_owned(),
        "integer" => "a whole number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "null" => "null".to_owned(),
        other => format!("a {other}"),
    };
    match wanted {
        Value::String(one) => name(one),
        other => {
            let names: Vec<String> =
                other.as_array().into_iter().flatten().filter_map(Value::as_str).map(name).collect();
            names.join(" or ")
        }
    }
}

/// Returns the texts of an enumeration.
fn texts(options: &Value) -> impl Iterator<Item = &str> + Clone {
    options.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the one known name that `name` probably means: no other one is as near, and at most [`SLIPS`] characters differ.
fn probable<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let meant = nearest(name, known.clone())?;
    let name: Vec<char> = name.chars().collect();
    let slips = distance(&name, meant);
    let alone = known.filter(|other| *other != meant).all(|other| distance(&name, other) > slips);
    (alone && slips <= SLIPS).then_some(meant)
}

/// Returns the known name nearest to `name`, if it is near enough to be a typing error.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name: Vec<char> = name.chars().take(MAX_QUOTED + 1).collect();
    if name.len() > MAX_QUOTED {
        return None;
    }
    let near = known.map(|candidate| (distance(&name, candidate), candidate)).min()?;
    (near.0 <= 1 + near.1.len() / 5).then_some(near.1)
}

/// Returns the edit distance: insertions, deletions, replacements and swaps of neighbours count one each.
fn distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(fold(a[i - 1]) != fold(b[j - 1]));
            let mut best = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

/// Folds case and dashes, so that `targetDisk` and `target-disk` are near `target_disk`.
fn fold(letter: char) -> char {
    if letter == '-' { '_' } else { letter.to_ascii_lowercase() }
}
