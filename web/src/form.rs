//! The fields of a form.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use url::form_urlencoded;

use super::multipart;

/// The largest form. A recipe is part of one.
const MAX_FORM: usize = 1 << 20;
/// The pages whose forms a browser without a login may send: the login itself, and the colours.
pub(super) const OPEN: [&str; 2] = ["/ui/login", "/ui/theme"];
/// The largest form of a browser without a login.
const MAX_OPEN_FORM: usize = 8 << 10;
/// The longest body, in bytes, that is parsed on the thread that received it.
const SHORT: usize = 32 << 10;
/// The largest form with a file, in bytes: five thousand servers are half of it.
const MAX_UPLOAD: usize = 4 << 20;
/// The time in which a form must arrive.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum of fields.
const MAX_FIELDS: usize = 64;

/// The fields of a form.
#[derive(Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// The fields of a query or of a body.
    pub(super) fn parse(text: &[u8]) -> Self {
        let fields = form_urlencoded::parse(text).take(MAX_FIELDS);
        Self(fields.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// The form with another value of a field.
    pub(super) fn with(&self, name: &str, value: String) -> Self {
        let others = self.0.iter().filter(|(field, _)| field != name).cloned();
        Self(others.chain([(name.to_owned(), value)]).collect())
    }

    /// The value of a field; empty when the form does not have the field.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }
}

/// The fields of a form with a file.
pub(super) struct Upload(pub(super) Form);

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Response;
    async fn from_request(request: Request, _state: &S) -> Result<Self, Response> {
        if !content_type(&request).starts_with("application/x-www-form-urlencoded") {
            return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response());
        }
        let limit = if OPEN.contains(&request.uri().path()) { MAX_OPEN_FORM } else { MAX_FORM };
        let body = received(request, limit).await?;
        parsed(body.len(), move || Self::parse(&body)).await
    }
}

impl<S: Send + Sync> FromRequest<S> for Upload {
    type Rejection = Response;
    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let kind = content_type(&request).to_owned();
        let Some(boundary) = multipart::boundary(&kind) else {
            return Form::from_request(request, state).await.map(Self);
        };
        let body = received(request, MAX_UPLOAD).await?;
        let boundary = boundary.to_owned();
        match parsed(body.len(), move || multipart::fields(&boundary, &body, MAX_FIELDS)).await? {
            Ok(fields) => Ok(Self(Form(fields))),
            Err(why) => Err((StatusCode::BAD_REQUEST, why.to_string()).into_response()),
        }
    }
}

/// The value that `read` makes from a body or a field. A long one is read outside of the threads that serve requests.
pub(super) async fn parsed<T: Send + 'static>(
    length: usize,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Response> {
    if length <= SHORT {
        return Ok(read());
    }
    media::offload(read).await.map_err(|_lost| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

fn content_type(request: &Request) -> &str {
    let kind = request.headers().get(header::CONTENT_TYPE);
    kind.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn received(request: Request, limit: usize) -> Result<bytes::Bytes, Response> {
    let body = axum::body::to_bytes(request.into_body(), limit);
    match tokio::time::timeout(TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_too_long)) => Err(StatusCode::PAYLOAD_TOO_LARGE.into_response()),
        Err(_elapsed) => Err(StatusCode::REQUEST_TIMEOUT.into_response()),
    }
}
