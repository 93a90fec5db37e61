//! Error responses.
//!
//! ```text
//! {"errors":[{"code":"BLOB_UNKNOWN","message":"…","detail":{"digest":"sha256:…"}}]}
//! ```
//!
//! The specification's codes belong to responses of the 4xx class. It has none for a full disk, which is 507 in the
//! same form. Responses of the 5xx class say what to do and never name a path; the log has the chain of causes.
//!
//! Specification: distribution-spec "Error Codes".

use std::error::Error as _;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::access::Denied;
use crate::digest::InvalidDigest;
use crate::error::Error;
use crate::manifest::InvalidManifest;
use crate::name::{InvalidReference, InvalidRepositoryName};

/// The `Retry-After` of responses that ask the client to retry.
const RETRY_AFTER: &str = "5";
/// The `Retry-After` after too many wrong credentials: in this time one more try is restored.
const RETRY_AFTER_TRIES: &str = "6";

/// The codes of the specification, and two of ours for what it does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Code {
    BlobUnknown,
    BlobUploadInvalid,
    BlobUploadUnknown,
    DigestInvalid,
    ManifestBlobUnknown,
    ManifestInvalid,
    ManifestUnknown,
    NameInvalid,
    NameUnknown,
    SizeInvalid,
    Unauthorized,
    Denied,
    Unsupported,
    #[serde(rename = "TOOMANYREQUESTS")]
    TooManyRequests,
    InsufficientStorage,
    Unknown,
}

/// An error response.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    entries: Vec<Entry>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Debug, Serialize)]
struct Entry {
    code: Code,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<serde_json::Value>,
}

#[derive(Serialize)]
struct Document<'a> {
    errors: &'a [Entry],
}

/// The reason why a path names no endpoint of this registry.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadPath {
    #[error("the registry has no such endpoint")]
    Endpoint,
    #[error(transparent)]
    Name(#[from] InvalidRepositoryName),
    #[error(transparent)]
    Digest(#[from] InvalidDigest),
    #[error(transparent)]
    Reference(#[from] InvalidReference),
    #[error("the upload session does not exist: start a new one")]
    UploadId,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: Code, message: impl Into<String>) -> Self {
        let entry = Entry { code, message: message.into(), detail: None };
        ApiError { status, entries: vec![entry], headers: Vec::new() }
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Access cannot be checked now.
    pub(crate) fn unavailable(denied: Denied) -> Self {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unknown, denied.to_string()).retry_later()
    }

    /// Too many wrong credentials.
    pub(crate) fn rate_limited(denied: Denied) -> Self {
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, Code::TooManyRequests, denied.to_string())
            .with_header(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_TRIES))
    }

    fn retry_later(self) -> Self {
        self.with_header(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        // A document of strings always encodes; an empty body would still carry the status.
        let document = serde_json::to_vec(&Document { errors: &self.entries }).unwrap_or_default();
        let mut response = Response::new(Body::from(document));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in self.headers {
            headers.append(name, value);
        }
        response
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let plain = |status, code| ApiError::new(status, code, message.clone());
        match &error {
            Error::ManifestUnknown => plain(StatusCode::NOT_FOUND, Code::ManifestUnknown),
            Error::BlobUnknown => plain(StatusCode::NOT_FOUND, Code::BlobUnknown),
            Error::RepositoryUnknown => plain(StatusCode::NOT_FOUND, Code::NameUnknown),
            Error::UploadUnknown(_) | Error::UploadCancelled(_) => {
                plain(StatusCode::NOT_FOUND, Code::BlobUploadUnknown)
            }
            Error::TagKept(_) | Error::BelowTag { .. } => plain(StatusCode::FORBIDDEN, Code::Denied),
            Error::WrongSize { digest, described, actual } => {
                let detail =
                    serde_json::json!({ "digest": digest.to_string(), "size": described, "actual": actual });
                let entry =
                    Entry { code: Code::ManifestInvalid, message: message.clone(), detail: Some(detail) };
                ApiError { status: StatusCode::BAD_REQUEST, entries: vec![entry], headers: Vec::new() }
            }
            Error::DigestMismatch { .. } => plain(StatusCode::BAD_REQUEST, Code::DigestInvalid),
            Error::UploadBusy(_) | Error::TooManyUploads { .. } => {
                plain(StatusCode::TOO_MANY_REQUESTS, Code::TooManyRequests).retry_later()
            }
            // A 405 response lists the allowed methods.
            Error::ReadOnly(_) => plain(StatusCode::METHOD_NOT_ALLOWED, Code::Unsupported)
                .with_header(header::ALLOW, HeaderValue::from_static("GET, HEAD")),
            Error::QuotaExceeded { .. } => plain(StatusCode::FORBIDDEN, Code::Denied),
            Error::NotAnArchive(_) | Error::AmbiguousTag { .. } | Error::InvalidManifest(_) => {
                plain(StatusCode::BAD_REQUEST, Code::ManifestInvalid)
            }
            Error::Pinned { .. } | Error::TagMoved { .. } => plain(StatusCode::CONFLICT, Code::Denied),
            Error::NoSpace => plain(StatusCode::INSUFFICIENT_STORAGE, Code::InsufficientStorage),
            Error::Stopped => plain(StatusCode::SERVICE_UNAVAILABLE, Code::Unknown).retry_later(),
            Error::Corrupted(_) | Error::Incomplete { .. } => {
                plain(StatusCode::INTERNAL_SERVER_ERROR, Code::Unknown)
            }
            Error::ReferencesUnknown(digests) => {
                let entry = |digest: &String| Entry {
                    code: Code::ManifestBlobUnknown,
                    message: format!("the manifest refers to {digest}, which the repository does not have"),
                    detail: Some(serde_json::json!({ "digest": digest })),
                };
                let entries = digests.iter().map(entry).collect();
                ApiError { status: StatusCode::BAD_REQUEST, entries, headers: Vec::new() }
            }
            Error::Io { operation, source, .. } => {
                let cause = error.source().map(ToString::to_string);
                tracing::error!(error = %error, cause, "the registry's storage failed");
                let message = format!(
                    "the registry could not {operation} its storage ({}): see its log",
                    source.kind()
                );
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Unknown, message)
            }
        }
    }
}

impl From<BadPath> for ApiError {
    fn from(bad: BadPath) -> Self {
        let (status, code) = match &bad {
            BadPath::Endpoint => (StatusCode::NOT_FOUND, Code::Unsupported),
            BadPath::Name(_) => (StatusCode::BAD_REQUEST, Code::NameInvalid),
            BadPath::Digest(_) => (StatusCode::BAD_REQUEST, Code::DigestInvalid),
            BadPath::Reference(invalid) => return (*invalid).into(),
            BadPath::UploadId => (StatusCode::NOT_FOUND, Code::BlobUploadUnknown),
        };
        ApiError::new(status, code, bad.to_string())
    }
}

impl From<InvalidReference> for ApiError {
    fn from(invalid: InvalidReference) -> Self {
        let code = match invalid {
            InvalidReference::Digest(_) => Code::DigestInvalid,
            InvalidReference::Tag(_) => Code::ManifestInvalid,
        };
        ApiError::new(StatusCode::BAD_REQUEST, code, invalid.to_string())
    }
}

impl From<InvalidDigest> for ApiError {
    fn from(invalid: InvalidDigest) -> Self {
        ApiError::new(StatusCode::BAD_REQUEST, Code::DigestInvalid, invalid.to_string())
    }
}

impl From<InvalidManifest> for ApiError {
    fn from(invalid: InvalidManifest) -> Self {
        ApiError::new(StatusCode::BAD_REQUEST, Code::ManifestInvalid, invalid.to_string())
    }
}
