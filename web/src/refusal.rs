//! A refusal of the API, as a page passes it on.

use axum::http::StatusCode;
use ui::data::{ErrorBody, ErrorDetail};
use uuid::Uuid;

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

    /// A refusal by the page itself.
    pub(super) fn new(status: StatusCode, code: &str, message: &str) -> Self {
        let body = ErrorBody { error: code.to_owned(), message: message.to_owned(), ..ErrorBody::default() };
        Self { status, body }
    }

    /// A field of a form that cannot be read.
    pub(super) fn field(name: &str, message: &str) -> Self {
        let detail = ErrorDetail { path: format!("/{name}"), message: message.to_owned() };
        let mut refusal = Self::new(StatusCode::BAD_REQUEST, "invalid", "a field of the form cannot be used");
        refusal.body.details.push(detail);
        refusal
    }

    /// What is wrong, by its places; a refusal without places is one entry. A refusal that no other entry in the form can help is
    /// returned as it is.
    pub(super) fn details(self) -> Result<Vec<ErrorDetail>, Self> {
        let login =
            matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
        if login || !self.status.is_client_error() {
            return Err(self);
        }
        match self.body.details.is_empty() {
            true => Ok(vec![ErrorDetail { path: String::new(), message: self.body.message }]),
            false => Ok(self.body.details),
        }
    }

    /// Whether the key of the form belongs to another request: the form was sent before, and its fields were changed since.
    pub(super) fn has_used_key(&self) -> bool {
        self.body.error == "idempotency_key_reused"
    }

    /// What a form says that was sent before and has a new key now.
    pub(super) fn sent_before(&self, what: &str) -> ErrorDetail {
        let mut words = self.body.message.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        let former = words.find(|word| Uuid::parse_str(word).is_ok());
        let former = former.map_or(format!("a {what}"), |id| format!("the {what} {id}"));
        let message = format!(
            "the former request of this form made {former}; nothing was done now: this would be another one, so look at it, then \
             send it again"
        );
        ErrorDetail { path: String::new(), message }
    }

    /// A page that could not be made; the log has the cause.
    pub(super) fn internal(error: &dyn std::error::Error) -> Self {
        tracing::error!(error = %model::error_chain(error), "a page could not be made");
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
