//! Putting, getting and deleting manifests.
//!
//! The document is stored and served byte for byte. Its digest is checked against the path when it is put by
//! digest; everything it refers to must already be in the repository.
//!
//! Specification: distribution-spec "Pushing Manifests" (end-7a), "Pulling manifests" (end-3), "Deleting" (end-9).

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{StatusCode, header};

use super::body::Incoming;
use super::error::{ApiError, Code};
use super::path::manifest_path;
use super::{Api, CONTENT_DIGEST, empty, insert, text};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::manifest::understand;
use crate::name::{Reference, RepositoryName};

impl Api {
    /// GET and HEAD; the server leaves the body of a HEAD away and its length in.
    pub(super) async fn get_manifest(
        &self,
        repository: &RepositoryName,
        reference: &Reference,
    ) -> Result<Response, ApiError> {
        let manifest = self.registry.resolve(repository, reference).await?;
        let length = manifest.bytes.len();
        let mut response = Response::new(Body::from(manifest.bytes));
        insert(
            &mut response,
            [
                (header::CONTENT_TYPE, manifest.media_type),
                (header::CONTENT_LENGTH, length.to_string()),
                (header::ETAG, format!("\"{}\"", manifest.digest)),
                (CONTENT_DIGEST, manifest.digest.to_string()),
            ],
        );
        Ok(response)
    }

    pub(super) async fn put_manifest(
        &self,
        repository: &RepositoryName,
        reference: &Reference,
        parts: &Parts,
        body: &mut Body,
    ) -> Result<Response, ApiError> {
        let _permit = self.receiving_permit().await?;
        let config = self.registry.config();
        let document =
            Incoming::new(body, config).collect(config.max_manifest_size).await?.ok_or_else(|| {
                let message = format!("a manifest has {} bytes at most", config.max_manifest_size);
                ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, Code::SizeInvalid, message)
            })?;
        let content_type = text(&parts.headers, header::CONTENT_TYPE).map(str::to_owned);
        let (name, wanted) = (repository.clone(), reference.clone());
        // Parsing and hashing some megabytes belongs off the async threads as much as writing them does.
        let put = self.registry.run(move |store| {
            let understood = match understand(content_type.as_deref(), &document) {
                Ok(understood) => understood,
                Err(invalid) => return Ok(Err(invalid)),
            };
            let (digest, tag) = match wanted {
                Reference::Tag(tag) => (Digest::of(Algorithm::Sha256, &document), Some(tag)),
                Reference::Digest(expected) => {
                    let actual = Digest::of(expected.algorithm(), &document);
                    if actual != expected {
                        return Err(Error::DigestMismatch { expected, actual });
                    }
                    (actual, None)
                }
            };
            store.expect_space_for(document.len() as u64)?;
            store.put_manifest(&name, tag.as_slice(), &digest, &understood, &document)?;
            Ok(Ok(digest))
        });
        let digest = put.await??;
        tracing::info!(repository = %repository, reference = %reference, digest = %digest, "manifest pushed");
        Ok(empty(
            StatusCode::CREATED,
            [(header::LOCATION, manifest_path(repository, &digest)), (CONTENT_DIGEST, digest.to_string())],
        ))
    }

    pub(super) async fn delete_manifest(
        &self,
        repository: &RepositoryName,
        reference: &Reference,
    ) -> Result<Response, ApiError> {
        let (name, gone) = (repository.clone(), reference.clone());
        self.registry.run(move |store| store.delete_manifest(&name, &gone)).await?;
        tracing::info!(repository = %repository, reference = %reference, "manifest deleted");
        Ok(empty(StatusCode::ACCEPTED, []))
    }
}
