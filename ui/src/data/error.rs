//! A refusal of the API.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A refusal of the API.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ErrorBody {
    /// The stable code.
    #[serde(default)]
    pub error: String,
    /// The message: what happened, in one or two sentences.
    #[serde(default)]
    pub message: String,
    /// The problems, by their place.
    #[serde(default)]
    pub details: Vec<ErrorDetail>,
    /// The id of the request.
    #[serde(default)]
    pub request_id: String,
}

/// One problem of a request.
#[derive(Clone, Debug, Deserialize)]
pub struct ErrorDetail {
    /// The place of the problem: a JSON Pointer into the body, or the name of a header or query parameter.
    pub path: String,
    /// The problem in one sentence.
    pub message: String,
    /// A change of the recipe that removes the problem.
    #[serde(default)]
    pub repair: Option<RepairJson>,
    /// The line of the text in which the problem is, if the form has one.
    #[serde(skip)]
    pub line: Option<usize>,
    /// What the form sends when the person chooses the repair; `None` when it cannot be chosen.
    #[serde(skip)]
    pub choice: Option<String>,
}

/// A change of a recipe that removes a problem.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairJson {
    /// The value at the path of the problem becomes this one.
    Set(Value),
    /// The member at the path gets this name.
    Rename(String),
}

impl RepairJson {
    /// The label of the button that makes the change.
    pub(crate) fn label(&self) -> String {
        let text = match self {
            Self::Set(Value::String(text)) => format!("Use {text}"),
            Self::Set(value) => format!("Use {value}"),
            Self::Rename(name) => format!("Rename it to {name}"),
        };
        crate::words::cut(&text)
    }
}

impl ErrorDetail {
    /// A problem at a place.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), repair: None, line: None, choice: None }
    }

    /// The button that makes the repair: its value and its label.
    pub(crate) fn button(&self) -> Option<(&str, String)> {
        self.choice.as_deref().zip(self.repair.as_ref().map(RepairJson::label))
    }

    /// Whether the page has a button of a repair. Then the first button of its form is another one, which the key Enter presses.
    pub(crate) fn offers_repair(details: &[Self]) -> bool {
        details.iter().any(|detail| detail.choice.is_some())
    }

    /// The place in words: the field as a form names it, and below it the place in its value. `None` for the whole request.
    pub(crate) fn place(&self) -> Option<String> {
        let (field, within) = match self.path.trim_start_matches('/').split_once('/') {
            Some((field, within)) => (field, Some(within)),
            None => (self.path.trim_start_matches('/'), None),
        };
        let field = match field {
            "" => return None,
            "server_serial" | "serial" => "Serial number".to_owned(),
            "q" | "filter" => "Filter".to_owned(),
            field => crate::words::capital(&field.replace('_', " "))
                .replace("Bmc ", "BMC ")
                .replace("Tls ", "TLS "),
        };
        Some(match within {
            Some(within) => format!("{field} /{within}:"),
            None => format!("{field}:"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_named_as_the_form_names_its_field() {
        for (path, place) in [
            ("", None),
            ("/bmc_password", Some("BMC password:")),
            ("/server_serial", Some("Serial number:")),
            ("/labels", Some("Labels:")),
            ("/recipe/disks/0", Some("Recipe /disks/0:")),
            ("cursor", Some("Cursor:")),
        ] {
            let detail = ErrorDetail::new(path, "");
            assert_eq!(detail.place().as_deref(), place, "{path}");
        }
    }
}
