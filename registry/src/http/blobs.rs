//! Pulling blobs, whole or in part, and deleting them.
//!
//! The length is known before the first byte, so responses are never chunked. See `blob_stream` for the bytes.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};

use super::blob_stream::stream;
use super::completed::completed;
use super::conditional::{entity_tag, not_modified};
use super::error::{ApiError, Code};
use super::range::{Selection, select};
use super::{Api, CONTENT_DIGEST, empty, insert, text};
use crate::access::{Action, Audited, Denied};
use crate::digest::Digest;
use crate::error::Error;
use crate::name::RepositoryName;
use crate::store::BlobFile;

impl Api {
    pub(super) async fn get_blob(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        parts: &Parts,
    ) -> Result<Response, ApiError> {
        if parts.method == Method::HEAD
            && let Some(length) = self.registry.store.blob_length_cached(repository, digest)
        {
            let unchanged = not_modified(&parts.headers, digest);
            // A HEAD request ignores ranges.
            return Ok(unchanged.unwrap_or_else(|| described(Body::empty(), digest, length)));
        }
        let blob = self.open_blob(repository, digest).await?;
        if let Some(response) = not_modified(&parts.headers, digest) {
            return Ok(response);
        }
        let length = blob.length();
        let entity_tag = entity_tag(digest);
        // A HEAD request ignores ranges.
        let asked = (parts.method == Method::GET).then(|| text(&parts.headers, header::RANGE)).flatten();
        let range =
            asked.filter(|_| text(&parts.headers, header::IF_RANGE).is_none_or(|known| known == entity_tag));
        let (status, first, count) = match select(range, length) {
            Selection::Whole => (StatusCode::OK, 0, length),
            Selection::Part { first, last } => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
            Selection::Unsatisfiable => return Err(unsatisfiable(length)),
        };
        let body = if parts.method == Method::HEAD {
            Body::empty()
        } else {
            stream(blob, first, count, Arc::clone(&self.buffers), parts.extensions.get().cloned())
        };
        let mut response = described(body, digest, count);
        *response.status_mut() = status;
        if status == StatusCode::PARTIAL_CONTENT {
            let place = format!("bytes {first}-{}/{length}", first + count - 1);
            insert(&mut response, [(header::CONTENT_RANGE, place)]);
        }
        Ok(response)
    }

    /// Opens the blob, without a change of threads where everything is cached.
    async fn open_blob(&self, repository: &RepositoryName, digest: &Digest) -> Result<BlobFile, Error> {
        if let Some(blob) = self.registry.store.blob_cached(repository, digest) {
            return Ok(blob);
        }
        let (name, wanted) = (repository.clone(), digest.clone());
        self.registry.run(move |store| store.blob_in(&name, &wanted)).await
    }

    pub(super) async fn delete_blob(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        parts: &Parts,
    ) -> Result<Response, ApiError> {
        let (api, parts) = (self.clone(), parts.clone());
        let (repository, digest) = (repository.clone(), digest.clone());
        completed(async move { api.delete_blob_recorded(&repository, &digest, &parts).await }).await
    }

    async fn delete_blob_recorded(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        parts: &Parts,
    ) -> Result<Response, ApiError> {
        let (name, gone, authorizer) = (repository.clone(), digest.clone(), Arc::clone(&self.authorizer));
        let deleted = self.registry.run(move |store| {
            store.delete_blob_keeping(&name, &gone, &|tag| authorizer.immutable(&name, tag))
        });
        let deleted = deleted.await;
        let what = match &deleted {
            Ok(()) => Audited::DeleteBlob,
            Err(Error::BelowTag { .. }) => Audited::Denied(Action::Delete, Denied::Forbidden),
            Err(_) => return deleted.map(|()| empty(StatusCode::ACCEPTED, [])).map_err(ApiError::from),
        };
        self.record(parts, Some(repository), what, |event| event.digest = Some(digest.clone())).await;
        deleted?;
        Ok(empty(StatusCode::ACCEPTED, []))
    }
}

/// A response with `count` bytes of a blob.
fn described(body: Body, digest: &Digest, count: u64) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.reserve(8);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(count));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    insert(&mut response, [(header::ETAG, entity_tag(digest)), (CONTENT_DIGEST, digest.to_string())]);
    response
}

fn unsatisfiable(length: u64) -> ApiError {
    let message = format!("the range is outside of the blob of {length} bytes");
    let error = ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, Code::SizeInvalid, message);
    match HeaderValue::try_from(format!("bytes */{length}")) {
        Ok(place) => error.with_header(header::CONTENT_RANGE, place),
        Err(_) => error,
    }
}
