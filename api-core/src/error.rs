//! The error format: `{"error": code, "message", "details": [{"path","field","code","message","repair"?}], "request_id"}`.
//!
//! A handler returns an error without request id; the middleware adds the id and renders the response.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::error_code::{ErrorCode, Rule};
use access::auth::AuthFailure;
use engine::{SignalError, VerbError, VerbRefused};
use model::{Serial, error_chain};
use recipe::FieldError;
use store::StoreError;

/// One problem of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ErrorDetail")]
pub struct Detail {
    /// JSON Pointer into the body, or the name of a header or query parameter.
    pub path: String,
    /// The last segment of the path.
    pub field: String,
    /// The stable code of the rule that failed: a [`Rule`], or a rule of the recipe schema.
    pub code: String,
    /// The problem in one sentence.
    pub message: String,
    /// A change of the recipe that removes the problem, where one value is the probable meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<RepairView>,
}

/// A change of a recipe that removes a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Repair")]
pub enum RepairView {
    /// The value at the path of the problem becomes this one.
    Set(Value),
    /// The member at the path of the problem gets this name, and keeps its value.
    Rename(String),
}

impl From<recipe::Repair> for RepairView {
    fn from(repair: recipe::Repair) -> Self {
        match repair {
            recipe::Repair::Set(value) => Self::Set(value),
            recipe::Repair::Rename(name) => Self::Rename(name),
        }
    }
}

impl Detail {
    /// A problem at a JSON Pointer or parameter name.
    pub fn new(path: &str, rule: Rule, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            field: path.rsplit('/').next().unwrap_or_default().to_owned(),
            code: rule.as_str().to_owned(),
            message: message.into(),
            repair: None,
        }
    }
}

impl From<FieldError> for Detail {
    fn from(error: FieldError) -> Self {
        let repair = error.repair.map(|repair| (*repair).into());
        Self { path: error.path, field: error.field, code: error.code, message: error.message, repair }
    }
}

/// An error response.
#[derive(Clone, Debug)]
pub struct ApiError(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    body: ErrorBody,
    headers: HeaderMap,
}

/// An error without request id, for use in other responses.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ErrorBody {
    /// The stable code.
    error: ErrorCode,
    /// What happened, in one or two sentences.
    pub message: String,
    /// The problems of the request, if the code is `validation_error` or a place is known.
    details: Vec<Detail>,
}

impl ErrorBody {
    /// Keeps the first `most` problems.
    pub fn keep_details(&mut self, most: usize) {
        self.details.truncate(most);
    }
}

/// An error response.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorResponse<'a> {
    #[serde(flatten)]
    body: &'a ErrorBody,
    /// The id of the request, which is also the response header `X-Request-Id`.
    request_id: &'a str,
}

impl ApiError {
    /// An error with a message. The code determines the status.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        let body = ErrorBody { error: code, message, details: Vec::new() };
        Self(Box::new(Inner { body, headers: HeaderMap::new() }))
    }

    /// 400 `validation_error` with all problems of the request.
    pub fn invalid(details: Vec<Detail>) -> Self {
        let message = match details.as_slice() {
            [one] => format!("{}: {}", if one.path.is_empty() { "body" } else { &one.path }, one.message),
            many => format!("the request has {} problems; see details", many.len()),
        };
        let mut error = Self::new(ErrorCode::ValidationError, message);
        error.0.body.details = details;
        error
    }

    /// 500 for a response that could not be written as JSON; the log has the cause.
    pub fn unwritable(error: &serde_json::Error) -> Self {
        tracing::error!(%error, "a response could not be written as JSON");
        internal()
    }

    /// Returns the message of the error, for use in another response.
    pub fn message(&self) -> &str {
        &self.0.body.message
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.0.headers.insert(name, value);
        }
        self
    }

    /// Adds a problem to `details`.
    #[must_use]
    pub fn detail(mut self, detail: Detail) -> Self {
        self.0.body.details.push(detail);
        self
    }

    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        self.0.body.error
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.0.body.error.status()
    }

    /// The body without request id, for use in other responses.
    pub fn body(&self) -> ErrorBody {
        self.0.body.clone()
    }

    /// The response with the request id.
    pub fn render(&self, request_id: &str) -> Response {
        let body = axum::Json(ErrorResponse { body: &self.0.body, request_id });
        (self.status(), self.0.headers.clone(), body).into_response()
    }
}

/// 404 for an unknown job.
pub fn unknown_job() -> ApiError {
    ApiError::new(ErrorCode::UnknownJob, "no job has this id; `shoal job list` shows the jobs")
}

/// 404 for an unknown server.
pub fn unknown_server(serial: &str) -> ApiError {
    let serial: String = serial.chars().take(Serial::MAX).collect();
    ApiError::new(
        ErrorCode::UnknownServer,
        format!("server {serial:?} is not registered; `shoal server add` registers it"),
    )
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = %error_chain(&error), "a database operation of a request failed");
        if error.is_unavailable() {
            return Self::new(
                ErrorCode::Unavailable,
                "the database cannot be used now; see /readyz, then try again",
            )
            .header(header::RETRY_AFTER, "5");
        }
        internal()
    }
}

impl From<SignalError> for ApiError {
    fn from(error: SignalError) -> Self {
        match error {
            SignalError::Store(error) => error.into(),
            SignalError::Changed(refused) => VerbError::from(refused).into(),
            SignalError::Busy => busy(),
        }
    }
}

impl From<VerbError> for ApiError {
    fn from(error: VerbError) -> Self {
        match error {
            VerbError::Store(error) => error.into(),
            VerbError::Verb(error @ VerbRefused::NotOffered { .. }) => {
                Self::new(ErrorCode::ConflictVerb, error.to_string())
            }
            VerbError::Verb(error @ VerbRefused::Changed { .. }) => {
                Self::new(ErrorCode::PreconditionFailed, error.to_string())
            }
            VerbError::Verb(error @ VerbRefused::Restored { .. }) => {
                Self::new(ErrorCode::ConflictRestored, error.to_string())
            }
            VerbError::Verb(error) => Self::new(ErrorCode::ConflictPhase, error.to_string()),
            VerbError::Busy => busy(),
        }
    }
}

fn internal() -> ApiError {
    ApiError::new(
        ErrorCode::Internal,
        "the controller failed to process the request; see its log for this request id",
    )
}

fn busy() -> ApiError {
    ApiError::new(ErrorCode::Busy, "the job changed several times during the request; try again")
        .header(header::RETRY_AFTER, "1")
}

impl From<AuthFailure> for ApiError {
    fn from(failure: AuthFailure) -> Self {
        let unauthorized = |message| {
            Self::new(ErrorCode::Unauthorized, message)
                .header(header::WWW_AUTHENTICATE, r#"Basic realm="shoal", charset="UTF-8""#)
        };
        match failure {
            AuthFailure::Missing => unauthorized(
                "credentials are required: an API token as Bearer, or user and password as Basic",
            ),
            AuthFailure::Invalid => unauthorized("these credentials are not valid"),
            AuthFailure::Unconfirmed => unauthorized(
                "the data of this controller was restored, and no administrator has confirmed this login: shoal user confirm, \
                 shoal token confirm; on the controller's machine with --offline",
            ),
            AuthFailure::RateLimited { retry_after } => too_many(retry_after),
            AuthFailure::Unavailable => Self::new(
                ErrorCode::Unavailable,
                "credentials cannot be checked now; see /readyz, then try again",
            )
            .header(header::RETRY_AFTER, "5"),
        }
    }
}

/// 429: too many failed attempts from one address.
pub fn too_many(retry_after: std::time::Duration) -> ApiError {
    ApiError::new(ErrorCode::RateLimited, "too many failed attempts from this address; wait for Retry-After")
        .header(header::RETRY_AFTER, &retry_after.as_secs().max(1).to_string())
}

/// 404 for an unknown path.
pub fn unknown_path(uri: &Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::new(
        ErrorCode::NotFound,
        format!("{path} does not exist; the paths of the API begin with /api/v1/"),
    )
}

/// 405 for a known path with another method. The router adds `Allow`.
pub async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(
        ErrorCode::MethodNotAllowed,
        format!("{method} is not allowed for {}; see the header Allow", uri.path()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shown(error: ApiError) -> serde_json::Value {
        let response = error.render("request-1");
        let status = response.status().as_u16();
        let headers: std::collections::BTreeMap<String, String> = response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        serde_json::json!({ "status": status, "headers": headers, "body": body })
    }

    #[tokio::test]
    async fn every_error_has_the_same_format() {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../../golden/snapshots");
        settings.set_prepend_module_to_snapshot(false);
        let _bound = settings.bind_to_scope();
        let detail = Detail::new("/recipe/target_disk", Rule::Pattern, "write it as /dev/sda");
        let errors = serde_json::json!([
            shown(ApiError::invalid(vec![detail.clone()])).await,
            shown(ApiError::invalid(vec![detail.clone(), detail])).await,
            shown(ApiError::from(AuthFailure::Missing)).await,
            shown(too_many(std::time::Duration::from_millis(1500))).await,
            shown(unknown_path(&Uri::from_static("/api/v2/jobs"))).await,
            shown(wrong_method(Method::PUT, Uri::from_static("/healthz")).await).await,
            shown(busy()).await,
        ]);
        insta::assert_json_snapshot!("api-errors", errors);
    }

    #[tokio::test]
    async fn database_errors_are_only_in_the_log() {
        let error = ApiError::from(StoreError::Closed);
        let shown = shown(error).await;
        assert_eq!(shown["status"], 503);
        assert!(!shown.to_string().contains("closed"), "{shown}");
    }
}
