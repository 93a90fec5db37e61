//! A refusal of the API, as a page passes it on.

use axum::http::StatusCode;
use ui::data::ErrorBody;

/// A refusal of the API.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) body: ErrorBody,
}

impl Refusal {
    /// The body of a refusal; one that is not of the API has no more than its status.
    pub(super) fn of(status: StatusCode, body: &[u8]) -> Self {
        let body = serde_json::from_slice(body).unwrap_or_else(|_| ErrorBody {
            message: status.canonical_reason().unwrap_or("the request was refused").to_owned(),
            ..ErrorBody::default()
        });
        Self { status, body }
    }

    /// A page that does not exist.
    pub(super) fn unknown_page() -> Self {
        let message = "no page has this address; the overview leads to all pages".to_owned();
        let body = ErrorBody { error: "not_found".to_owned(), message, ..ErrorBody::default() };
        Self { status: StatusCode::NOT_FOUND, body }
    }

    /// A page that could not be made; the log has the cause.
    pub(super) fn internal(error: &dyn std::error::Error) -> Self {
        tracing::error!(error = %engine::model::error_chain(error), "a page could not be made");
        let message = "the controller failed to make this page; see its log".to_owned();
        let body = ErrorBody { error: "internal".to_owned(), message, ..ErrorBody::default() };
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, body }
    }

    /// What is wrong, in one text.
    pub(super) fn text(&self) -> String {
        let details = self.body.details.iter().map(|detail| match detail.path.as_str() {
            "" => detail.message.clone(),
            path => format!("{path}: {}", detail.message),
        });
        let details: Vec<String> = details.collect();
        if details.is_empty() { self.body.message.clone() } else { details.join("; ") }
    }
}
