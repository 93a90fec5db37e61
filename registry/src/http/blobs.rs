//! Pulling blobs, whole or in part, and taking them away.
//!
//! The length is known before the first byte, so answers are never chunked. The file is read in pieces on
//! blocking threads, one piece ahead of the client: two pieces per reader in memory, however large the blob.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use tokio::task::JoinHandle;

use super::conditional::{entity_tag, not_modified};
use super::error::{ApiError, Code};
use super::range::{Selection, select};
use super::{Api, CONTENT_DIGEST, empty, insert, text};
use crate::access::Audited;
use crate::digest::Digest;
use crate::name::RepositoryName;
use crate::store::BlobFile;

const PIECE: usize = 256 << 10;

impl Api {
    pub(super) async fn get_blob(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        parts: &Parts,
    ) -> Result<Response, ApiError> {
        let (name, wanted) = (repository.clone(), digest.clone());
        let blob = self.registry.run(move |store| store.blob_in(&name, &wanted)).await?;
        if let Some(answer) = not_modified(&parts.headers, digest) {
            return Ok(answer);
        }
        let length = blob.length();
        let entity_tag = entity_tag(digest);
        // For HEAD ranges mean nothing.
        let asked = (parts.method == Method::GET).then(|| text(&parts.headers, header::RANGE)).flatten();
        let range =
            asked.filter(|_| text(&parts.headers, header::IF_RANGE).is_none_or(|known| known == entity_tag));
        let (status, first, count) = match select(range, length) {
            Selection::Whole => (StatusCode::OK, 0, length),
            Selection::Part { first, last } => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
            Selection::Unsatisfiable => return Err(unsatisfiable(length)),
        };
        let body = if parts.method == Method::HEAD { Body::empty() } else { stream(blob, first, count) };
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
    let message = format!("the range names no byte of a blob of {length} bytes");
    let error = ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, Code::SizeInvalid, message);
    match HeaderValue::try_from(format!("bytes */{length}")) {
        Ok(place) => error.with_header(header::CONTENT_RANGE, place),
        Err(_) => error,
    }
}

type Piece = JoinHandle<std::io::Result<Bytes>>;

/// `count` bytes of the blob from `first` on. A file that ends early breaks the connection: the client must not
/// take less for all.
fn stream(blob: BlobFile, first: u64, count: u64) -> Body {
    let ahead = read_piece(&blob, first, count);
    let start = (blob, first, count, ahead);
    Body::from_stream(stream::unfold(start, async |(blob, offset, left, ahead): (_, _, _, Option<Piece>)| {
        let piece = match ahead?.await {
            Ok(Ok(piece)) => piece,
            Ok(Err(error)) => {
                tracing::error!(digest = %blob.digest(), error = %error, "a blob could not be read to its end");
                return Some((Err(error), (blob, offset, 0, None)));
            }
            Err(stopped) => return Some((Err(stopped.into()), (blob, offset, 0, None))),
        };
        let (offset, left) = (offset + piece.len() as u64, left - piece.len() as u64);
        let ahead = read_piece(&blob, offset, left);
        Some((Ok(piece), (blob, offset, left, ahead)))
    }))
}

fn read_piece(blob: &BlobFile, offset: u64, left: u64) -> Option<Piece> {
    let length = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
    let blob = blob.clone();
    (length > 0).then(|| {
        tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; length];
            blob.read_exact_at(&mut piece, offset)?;
            Ok(Bytes::from(piece))
        })
    })
}
