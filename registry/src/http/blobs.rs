//! Pulling blobs, whole or in part, and deleting them.
//!
//! The length is known before the first byte, so responses are never chunked. See `blob_stream` for the bytes.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};

use super::blob_stream::stream;
use super::conditional::{entity_tag, not_modified};
use super::error::{ApiError, Code};
use super::range::{Selection, select};
use super::{Api, CONTENT_DIGEST, empty, insert, text};
use crate::access::Audited;
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
        let blob = self.open_blob(repository, digest).await?;
        if let Some(answer) = not_modified(&parts.headers, digest) {
            return Ok(answer);
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
        let mut response = Response::new(body);
        *response.status_mut() = status;
        insert(
            &mut response,
            [
                (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
                (header::CONTENT_LENGTH, count.to_string()),
                (header::ACCEPT_RANGES, "bytes".to_owned()),
                (header::ETAG, entity_tag),
                (CONTENT_DIGEST, digest.to_string()),
            ],
        );
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
        let (name, gone) = (repository.clone(), digest.clone());
        self.registry.run(move |store| store.delete_blob(&name, &gone)).await?;
        self.record(parts, Some(repository), Audited::DeleteBlob, |event| {
            event.digest = Some(digest.clone())
        })
        .await;
        Ok(empty(StatusCode::ACCEPTED, []))
    }
}

fn unsatisfiable(length: u64) -> ApiError {
    let message = format!("the range is outside of the blob of {length} bytes");
    let error = ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, Code::SizeInvalid, message);
    match HeaderValue::try_from(format!("bytes */{length}")) {
        Ok(place) => error.with_header(header::CONTENT_RANGE, place),
        Err(_) => error,
    }
}
