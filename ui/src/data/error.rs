//! A refusal of the API.

use serde::Deserialize;

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
}

impl ErrorDetail {
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
            let detail = ErrorDetail { path: path.to_owned(), message: String::new() };
            assert_eq!(detail.place().as_deref(), place, "{path}");
        }
    }
}
