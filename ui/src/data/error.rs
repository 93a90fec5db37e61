//! A refusal of the API.

use serde::Deserialize;

/// A refusal of the API.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ErrorBody {
    /// The stable code.
    #[serde(default)]
    pub error: String,
    /// What happened.
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
    /// The place.
    pub path: String,
    /// The problem.
    pub message: String,
}
