//! JSON that keeps its text. Most of it is only passed on, so that it is parsed only where its content is needed.

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A text that is JSON.
#[derive(Clone, Debug)]
pub struct JsonText(Box<RawValue>);

impl JsonText {
    /// The text, when it is valid JSON.
    ///
    /// # Errors
    /// When the text is not valid JSON.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }

    /// A value as text.
    ///
    /// # Errors
    /// When the value cannot be serialized as JSON.
    pub fn of<T: Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The content; `null` when it is nested more deeply than the parser accepts.
    pub fn value(&self) -> Value {
        self.read().unwrap_or_default()
    }

    /// The content as a type.
    ///
    /// # Errors
    /// When the content does not match the type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_str())
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        // This cannot fail: the keys of a value are strings, and its numbers are finite.
        Self::of(value).unwrap_or_else(|_| Self(Box::default()))
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_is_passed_on_unchanged() {
        let text = JsonText::parse(r#"{"b":1.50,"a":[1, 2]}"#).unwrap();
        assert_eq!(serde_json::to_string(&[&text]).unwrap(), r#"[{"b":1.50,"a":[1, 2]}]"#);
        assert_eq!(json!([text]), json!([{ "a": [1, 2], "b": 1.5 }]));
        assert_eq!(text.value(), json!({ "a": [1, 2], "b": 1.5 }));
        assert_eq!(JsonText::from(&json!({ "a": 1 })).as_str(), r#"{"a":1}"#);
    }

    #[test]
    fn invalid_json_is_refused() {
        for text in ["", "{", "{} {}", "nothing"] {
            assert!(JsonText::parse(text).is_err(), "{text}");
        }
    }
}
