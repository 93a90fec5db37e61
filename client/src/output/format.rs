//! The forms of output: tables and sentences, or the document of the controller as JSON, YAML or names.
//!
//! YAML is written as the subset of YAML 1.2 that has one meaning in every reader: block style, and every text that is not a
//! plain word in double quotes with the escapes of JSON.

use serde_json::Value;

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Tables and sentences.
    #[default]
    Text,
    /// Tables with all columns, nothing cut.
    Wide,
    /// The document as JSON.
    Json,
    /// The document as YAML.
    Yaml,
    /// The id or name of each thing, one per line.
    Name,
}

impl Format {
    /// The formats that `-o` takes.
    pub const NAMES: [&str; 5] = ["text", "wide", "json", "yaml", "name"];

    /// The format of a name of [`Self::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        let formats = [Self::Text, Self::Wide, Self::Json, Self::Yaml, Self::Name];
        Self::NAMES.iter().zip(formats).find(|(known, _)| **known == name).map(|(_, format)| format)
    }

    /// Whether the output is the document, not text about it.
    pub(crate) fn is_document(self) -> bool {
        matches!(self, Self::Json | Self::Yaml | Self::Name)
    }
}

/// Members that name a thing, the most telling first. What has a place in a log also names its job.
const NAMES: [&str; 14] = [
    "seq",
    "job_id",
    "batch_id",
    "session_id",
    "serial",
    "server_serial",
    "webhook_id",
    "digest",
    "name",
    "id",
    "path",
    "kind",
    "version",
    "repository",
];

/// Members with sentences about the document, which are no rows of it.
const REMARKS: [&str; 3] = ["warnings", "errors", "problems"];

/// The names in a document: of its rows if it is a list, else its own.
pub(super) fn names(document: &Value) -> Vec<String> {
    match rows(document) {
        Some(rows) => rows.iter().filter_map(name).collect(),
        None => name(document).into_iter().collect(),
    }
}

fn name(thing: &Value) -> Option<String> {
    let found = NAMES.iter().find_map(|key| thing.get(key).filter(|value| !value.is_null()));
    match found.unwrap_or(thing) {
        Value::String(text) => Some(super::plain::plain(text)),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The rows of a list: the document, or its only member with an array. A document with a name of its own is no list.
pub(super) fn rows(document: &Value) -> Option<&Vec<Value>> {
    match document {
        Value::Array(rows) => Some(rows),
        Value::Object(members) if name(document).is_none() => {
            let of = members.iter().filter(|(name, _)| !REMARKS.contains(&name.as_str()));
            let mut arrays = of.filter_map(|(_, value)| value.as_array());
            arrays.next().filter(|_| arrays.next().is_none())
        }
        _ => None,
    }
}

/// A document as YAML.
pub fn yaml(document: &Value) -> String {
    let mut text = String::new();
    block(document, 0, &mut text);
    text.trim_end().to_owned()
}

/// Writes a value behind a key or a dash, with the end of its line.
fn value(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            text.push('\n');
            block(value, depth, text);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            block(value, depth, text);
        }
        other => {
            text.push(' ');
            text.push_str(&scalar(other));
            text.push('\n');
        }
    }
}

fn block(document: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match document {
        Value::Object(members) if !members.is_empty() => {
            for (key, member) in members {
                text.push_str(&format!("{indent}{}:", word(key)));
                value(member, depth + 1, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                text.push_str(&format!("{indent}-"));
                match item {
                    // The first member stands behind the dash.
                    Value::Object(members) if !members.is_empty() => {
                        let mut inner = String::new();
                        block(item, depth + 1, &mut inner);
                        text.push(' ');
                        text.push_str(inner.trim_start());
                    }
                    other => value(other, depth + 1, text),
                }
            }
        }
        other => {
            text.push_str(&indent);
            text.push_str(&scalar(other));
            text.push('\n');
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => word(text),
        // Numbers, booleans, null, [] and {} are the same in both languages.
        other => other.to_string(),
    }
}

/// A text as it is if no reader takes it for anything else, otherwise in quotes.
fn word(text: &str) -> String {
    const RESERVED: [&str; 11] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "inf", "nan"];
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|character| character.is_ascii_alphanumeric() || "_-./".contains(character))
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_has_one_meaning() {
        // The members are in the order of the alphabet, which is the order of a document.
        let document = json!({
            "empty": {},
            "jobs": [{"job_id": "0192", "labels": {"on": "no", "rack": "7"}, "wait": null}, {"steps": []}],
            "list": [1, [true, "x y"]],
            "next": "a: b",
        });
        let expected = "\
empty: {}
jobs:
  - job_id: \"0192\"
    labels:
      \"on\": \"no\"
      rack: \"7\"
    wait: null
  - steps: []
list:
  - 1
  -
    - true
    - \"x y\"
next: \"a: b\"";
        assert_eq!(yaml(&document), expected);
        assert_eq!(yaml(&json!("true")), "\"true\"");
        assert_eq!(yaml(&json!("line\nfeed")), "\"line\\nfeed\"");
    }

    #[test]
    fn names_are_those_of_the_rows_or_of_the_thing() {
        assert_eq!(
            names(&json!({"jobs": [{"job_id": "a", "server_serial": "X"}, {"job_id": "b"}], "next": null})),
            ["a", "b"]
        );
        assert_eq!(names(&json!({"serial": "XF-1", "labels": {}, "quirks": []})), ["XF-1"]);
        assert_eq!(names(&json!({"events": [{"seq": 3}]})), ["3"]);
        let repositories = json!({"repositories": [{"repository": "os-images/ubuntu", "tags": ["v1"]}]});
        assert_eq!(names(&repositories), ["os-images/ubuntu"]);
        assert_eq!(
            names(&json!({"entries": [{"kind": "file", "path": "/boot/grub.cfg"}]})),
            ["/boot/grub.cfg"]
        );
        let letter = json!({"seq": 7, "job_id": "a", "type": "run.ended"});
        assert_eq!(names(&json!({"dead_letters": [letter.clone()], "next": null})), ["7"]);
        assert_eq!(names(&letter), ["7"], "a row of a stream");
        assert!(names(&json!({})).is_empty());
        assert!(names(&json!({"schedule": "daily", "warnings": ["the disk is full"]})).is_empty());
    }
}
