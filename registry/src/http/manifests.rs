//! Putting, getting and deleting manifests.
//!
//! ```text
//!  PUT <tag>                          201, Docker-Content-Digest: sha256 of the document
//!  PUT <digest>[?tag=a&tag=b]         201, Docker-Content-Digest: as in the path, OCI-Tag: a, OCI-Tag: b
//!      with a subject                 and OCI-Subject: its digest
//! ```
//!
//! The document is stored and served byte for byte, whatever the client says it accepts: converting it would change
//! its digest. A tag remembers the digest it was pushed with, algorithm included.
//!
//! Specification: distribution-spec "Pushing Manifests" (end-7a, end-7b), "Pulling manifests" (end-3), "Deleting" (end-9).

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};

use super::body::Incoming;
use super::conditional::{entity_tag, not_modified};
use super::error::{ApiError, Code};
use super::path::manifest_path;
use super::{Api, CONTENT_DIGEST, SUBJECT, TAG, empty, insert, query, text};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::manifest::understand;
use crate::name::{InvalidReference, InvalidTag, Reference, RepositoryName, Tag};

/// Tags moved by one push; the specification asks for ten.
const TAGS_MAX: usize = 64;

impl Api {
    /// GET and HEAD; the server leaves the body of a HEAD away and its length in.
    pub(super) async fn get_manifest(
        &self,
        repository: &RepositoryName,
        reference: &Reference,
        parts: &Parts,
    ) -> Result<Response, ApiError> {
        let manifest = self.registry.resolve(repository, reference).await?;
        if let Some(answer) = not_modified(&parts.headers, &manifest.digest) {
            return Ok(answer);
        }
        let length = manifest.bytes.len();
        let mut response = Response::new(Body::from(manifest.bytes));
        insert(
            &mut response,
            [
                (header::CONTENT_TYPE, manifest.media_type),
                (header::CONTENT_LENGTH, length.to_string()),
                (header::ETAG, entity_tag(&manifest.digest)),
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
        let tags = wanted_tags(reference, parts.uri.query())?;
        let _permit = self.receiving_permit().await?;
        let config = self.registry.config();
        let too_large = || {
            let message = format!("a manifest has {} bytes at most", config.max_manifest_size);
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, Code::SizeInvalid, message)
        };
        let document =
            Incoming::new(body, config).collect(config.max_manifest_size).await?.ok_or_else(too_large)?;
        let content_type = text(&parts.headers, header::CONTENT_TYPE).map(str::to_owned);
        let (name, wanted, moved) = (repository.clone(), reference.clone(), tags.clone());
        // Parsing and hashing some megabytes belongs off the async threads as much as writing them does.
        let put = self.registry.run(move |store| {
            let understood = match understand(content_type.as_deref(), &document) {
                Ok(understood) => understood,
                Err(invalid) => return Ok(Err(invalid)),
            };
            let digest = match wanted {
                Reference::Tag(_) => Digest::of(Algorithm::Sha256, &document),
                Reference::Digest(expected) => {
                    let actual = Digest::of(expected.algorithm(), &document);
                    if actual != expected {
                        return Err(Error::DigestMismatch { expected, actual });
                    }
                    actual
                }
            };
            store.expect_space_for(document.len() as u64)?;
            store.put_manifest(&name, &moved, &digest, &understood, &document)?;
            Ok(Ok((digest, understood.referral.map(|referral| referral.subject))))
        });
        let (digest, subject) = put.await??;
        tracing::info!(repository = %repository, reference = %reference, digest = %digest, "manifest pushed");
        let mut response = empty(
            StatusCode::CREATED,
            [(header::LOCATION, manifest_path(repository, &digest)), (CONTENT_DIGEST, digest.to_string())],
        );
        if let Some(subject) = subject {
            insert(&mut response, [(SUBJECT, subject.to_string())]);
        }
        if matches!(reference, Reference::Digest(_)) {
            for value in tags.iter().filter_map(|tag| HeaderValue::try_from(tag.as_str()).ok()) {
                response.headers_mut().append(TAG, value);
            }
        }
        Ok(response)
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

/// The tags a put is to move: the one in the path, or those of the query beside a digest.
fn wanted_tags(reference: &Reference, asked: Option<&str>) -> Result<Vec<Tag>, ApiError> {
    let mut tags = Vec::new();
    if let Reference::Tag(tag) = reference {
        tags.push(tag.clone());
        return Ok(tags);
    }
    for text in query::values(asked, "tag") {
        let tag: Tag = text.ok_or(InvalidTag).and_then(|text| text.parse()).map_err(InvalidReference::Tag)?;
        if !tags.contains(&tag) {
            tags.push(tag);
        }
        if tags.len() > TAGS_MAX {
            let message = format!("one push moves {TAGS_MAX} tags at most: push the others by themselves");
            return Err(ApiError::new(StatusCode::URI_TOO_LONG, Code::Unsupported, message));
        }
    }
    Ok(tags)
}
