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
    /// Reads the body of a refusal; for a body that is not of the API, the refusal has no more than its status.
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
        Self::fields(vec![ErrorDetail::new(format!("/{name}"), message)])
    }

    /// Fields of a form that cannot be read.
    pub(super) fn fields(details: Vec<ErrorDetail>) -> Self {
        let mut refusal = Self::new(StatusCode::BAD_REQUEST, "invalid", "a field of the form cannot be used");
        refusal.body.details = details;
        refusal
    }

    /// The problems of a refused form, by their places. The reason of a refusal that is not about the form of a value comes
    /// first, at the place of the entry whose words it has. A refusal that no other entry in the form can help is the error.
    pub(super) fn details(self) -> Result<Vec<ErrorDetail>, Self> {
        let login =
            matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
        if login || !self.status.is_client_error() {
            return Err(self);
        }
        Ok(self.entries())
    }

    /// The problems of a refusal by their places, in the order of [`Refusal::details`].
    pub(super) fn entries(&self) -> Vec<ErrorDetail> {
        let (message, details) = (&self.body.message, &self.body.details);
        let of_values = ["validation_error", "invalid"].contains(&self.body.error.as_str());
        if of_values && !details.is_empty() {
            return details.clone();
        }
        let (said, others): (Vec<&ErrorDetail>, Vec<&ErrorDetail>) =
            details.iter().partition(|detail| message.contains(&detail.message));
        let path = said.first().map(|detail| detail.path.clone()).unwrap_or_default();
        let reason = ErrorDetail::new(path, message);
        std::iter::once(reason).chain(others.into_iter().cloned()).collect()
    }

    /// Whether all that is wrong is the recipe.
    pub(super) fn is_of_recipe(&self) -> bool {
        let details = &self.body.details;
        let is_of = |path: &str| path == "/recipe" || path.starts_with("/recipe/");
        !details.is_empty() && details.iter().all(|detail| is_of(&detail.path))
    }

    /// Whether the key of the form belongs to another request: the form was sent before, and its fields were changed since.
    pub(super) fn has_used_key(&self) -> bool {
        self.body.error == "idempotency_key_reused"
    }

    /// The message of a form that was sent before and has a new key now.
    pub(super) fn sent_before(&self, what: &str) -> ErrorDetail {
        let mut words = self.body.message.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        let former = words.find(|word| Uuid::parse_str(word).is_ok());
        let former = former.map_or(format!("a {what}"), |id| format!("the {what} {id}"));
        let message = format!(
            "the former request of this form made {former}; nothing was done now: this would be another one, so look at it, then \
             send it again"
        );
        ErrorDetail::new("", message)
    }

    /// A page that could not be made; the log has the cause.
    pub(super) fn internal(error: &dyn std::error::Error) -> Self {
        tracing::error!(error = %model::error_chain(error), "a page could not be made");
        let message = "the controller failed to make this page; see its log".to_owned();
        let body = ErrorBody { error: "internal".to_owned(), message, ..ErrorBody::default() };
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, body }
    }

    /// The problems of a refusal, in one text.
    pub(super) fn text(&self) -> String {
        let entries = self.entries();
        let text = |entry: &ErrorDetail| match entry.path.as_str() {
            "" => entry.message.clone(),
            path => format!("{path}: {}", entry.message),
        };
        entries.iter().map(text).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(code: &str, details: serde_json::Value) -> Refusal {
        let body = json!({ "error": code, "message": "job 7 is active on server A", "details": details });
        Refusal::of(StatusCode::CONFLICT, body.to_string().as_bytes())
    }

    #[test]
    fn the_reason_of_a_refusal_comes_before_the_places_that_it_names() {
        let holder = json!([{ "path": "/server_serial", "message": "7" }]);
        let other = json!([{ "path": "/bmc_password", "message": "enter it again" }]);
        let wrong = json!([{ "path": "/labels", "message": "is no object" }]);
        for (refusal, expected) in [
            (refusal("conflict.active_job", holder), vec![("/server_serial", "job 7 is active on server A")]),
            (
                refusal("bmc_password_needed", other),
                vec![("", "job 7 is active on server A"), ("/bmc_password", "enter it again")],
            ),
            (refusal("validation_error", wrong), vec![("/labels", "is no object")]),
            (refusal("conflict.phase", json!([])), vec![("", "job 7 is active on server A")]),
        ] {
            let entries = refusal.details().unwrap();
            let entries: Vec<_> =
                entries.iter().map(|one| (one.path.as_str(), one.message.as_str())).collect();
            assert_eq!(entries, expected);
        }
    }
}
