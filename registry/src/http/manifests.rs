//! Pushing, pulling and deleting manifests.
//!
//! ```text
//!  PUT <tag>                          201, Docker-Content-Digest: sha256 of the document
//!  PUT <digest>[?tag=a&tag=b]         201, Docker-Content-Digest: as in the path, OCI-Tag: a, OCI-Tag: b
//!      with a subject                 and OCI-Subject: its digest
//! ```
//!
//! The document is stored and served byte for byte, whatever the client accepts: converting it would change its digest.
//! A tag stores the digest it was pushed with, including the algorithm.
//!
//! Specification: distribution-spec "Pushing Manifests" (end-7a, end-7b), "Pulling manifests" (end-3), "Deleting"
//! (end-9).

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};

use super::body::RequestBody;
use super::completed::completed;
use super::conditional::{entity_tag, not_modified};
use super::error::{ApiError, Code};
use super::path::manifest_path;
use super::{Api, CONTENT_DIGEST, SUBJECT, TAG, caller, empty, insert, query, text};
use crate::access::{Access, Action, AuditEvent, Audited, Denied};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::manifest::parse_manifest;
use crate::name::{InvalidReference, InvalidTag, Reference, RepositoryName, Tag};

/// Tags set by one push; the specification asks for ten.
const TAGS_MAX: usize = 64;

impl Api {
    /// GET and HEAD; for a HEAD the server drops the body and keeps its length.
    pub(super) async fn get_manifest(
        &self,
        repository: &RepositoryName,
        reference: &Reference,
        parts: &Parts,
    ) -> Result<Response, ApiError> {
        let manifest = self.registry.resolve(repository, reference).await?;
        if let Some(response) = not_modified(&parts.headers, &manifest.digest) {
            return Ok(response);
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
        let may_move = self.may_move(repository, &tags, parts).await;
        let _place = self.place(&self.uploader(parts).await, repository).await?;
        let config = self.registry.config();
        let too_large = || {
            let message =
                format!("the manifest is larger than the limit of {} bytes", config.max_manifest_size);
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, Code::SizeInvalid, message)
        };
        let document =
            RequestBody::new(body, config).collect(config.max_manifest_size).await?.ok_or_else(too_large)?;
        let (api, parts) = (self.clone(), parts.clone());
        let (repository, reference) = (repository.clone(), reference.clone());
        let put = async move {
            api.put_recorded(&repository, &reference, (tags, may_move), document, &parts).await
        };
        completed(put).await
    }

    /// Puts a received document under its tags, which the caller may move or not.
    async fn put_recorded(
        &self,
        repository: &RepositoryName,
        reference: &Reference,
        (tags, may_move): (Vec<Tag>, Result<(), Denied>),
        document: Bytes,
        parts: &Parts,
    ) -> Result<Response, ApiError> {
        let content_type = text(&parts.headers, header::CONTENT_TYPE).map(str::to_owned);
        let (name, wanted, moved) = (repository.clone(), reference.clone(), tags.clone());
        // Parsing and hashing some megabytes blocks as much as writing them does.
        let (length, authorizer) = (document.len() as u64, Arc::clone(&self.authorizer));
        let put = self.registry.run(move |store| {
            let parsed = match parse_manifest(content_type.as_deref(), &document) {
                Ok(parsed) => parsed,
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
            let kept = |tag: &Tag| may_move.is_err() || authorizer.immutable(&name, tag);
            store.put_manifest_keeping(&name, &moved, &digest, &parsed, &document, &kept)?;
            Ok(Ok((digest, parsed.referral.map(|referral| referral.subject))))
        });
        let (digest, subject) = match put.await {
            Ok(put) => put?,
            Err(Error::TagKept(tag)) => return Err(self.tag_refusal(repository, tag, may_move, parts).await),
            Err(error) => return Err(error.into()),
        };
        self.pushed(repository, reference, &tags, (&digest, length), parts).await;
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
        parts: &Parts,
    ) -> Result<Response, ApiError> {
        let (api, parts) = (self.clone(), parts.clone());
        let (repository, reference) = (repository.clone(), reference.clone());
        completed(async move { api.delete_recorded(&repository, &reference, &parts).await }).await
    }

    async fn delete_recorded(
        &self,
        repository: &RepositoryName,
        reference: &Reference,
        parts: &Parts,
    ) -> Result<Response, ApiError> {
        let (name, gone) = (repository.clone(), reference.clone());
        let authorizer = Arc::clone(&self.authorizer);
        let deleted = self.registry.run(move |store| {
            store.delete_manifest_keeping(&name, &gone, &|tag| authorizer.immutable(&name, tag))
        });
        let (what, digest) = match reference {
            Reference::Tag(_) => (Audited::DeleteTag, None),
            Reference::Digest(digest) => (Audited::DeleteManifest, Some(digest.clone())),
        };
        let concerns = |event: &mut AuditEvent| {
            (event.reference, event.digest) = (Some(reference.clone()), digest);
        };
        let deleted = deleted.await;
        let what = match &deleted {
            Ok(()) => what,
            Err(Error::TagKept(_) | Error::BelowTag { .. }) => {
                Audited::Denied(Action::Delete, Denied::Forbidden)
            }
            Err(_) => return deleted.map(|()| empty(StatusCode::ACCEPTED, [])).map_err(ApiError::from),
        };
        self.record(parts, Some(repository), what, concerns).await;
        deleted?;
        Ok(empty(StatusCode::ACCEPTED, []))
    }

    /// Whether the caller may move existing tags. Whether there are any is decided by the store.
    async fn may_move(&self, repository: &RepositoryName, tags: &[Tag], parts: &Parts) -> Result<(), Denied> {
        if tags.is_empty() {
            return Ok(());
        }
        let access = Access { repository: Some(repository), action: Action::Move };
        self.authorizer.authorize(caller(parts), access).await
    }

    /// The refusal of a push because of a tag that exists. An anonymous caller may log in, unless the tag is immutable
    /// for every caller.
    async fn tag_refusal(
        &self,
        repository: &RepositoryName,
        tag: Tag,
        may_move: Result<(), Denied>,
        parts: &Parts,
    ) -> ApiError {
        let immutable = self.authorizer.immutable(repository, &tag)
            || self.registry.config().immutable_tags.iter().any(|set| set.include(repository, &tag));
        if let Err(denied) = may_move
            && denied != Denied::Forbidden
            && !immutable
        {
            return self.refuse(parts, Some(repository), Action::Move, denied).await;
        }
        let what = Audited::Denied(Action::Move, Denied::Forbidden);
        let concerns = |event: &mut AuditEvent| event.reference = Some(Reference::Tag(tag.clone()));
        self.record(parts, Some(repository), what, concerns).await;
        Error::TagKept(tag).into()
    }

    /// Records a pushed manifest and each tag that was set to it.
    async fn pushed(
        &self,
        repository: &RepositoryName,
        reference: &Reference,
        tags: &[Tag],
        (digest, length): (&Digest, u64),
        parts: &Parts,
    ) {
        let of = |reference: Reference, size| {
            let digest = digest.clone();
            move |event: &mut AuditEvent| {
                (event.reference, event.digest, event.size) = (Some(reference), Some(digest), size);
            }
        };
        let manifest = of(reference.clone(), Some(length));
        self.record(parts, Some(repository), Audited::PushManifest, manifest).await;
        for tag in tags {
            let tag = of(Reference::Tag(tag.clone()), None);
            self.record(parts, Some(repository), Audited::PushTag, tag).await;
        }
    }
}

/// The tags a put sets: the one in the path, or those in the query of a push by digest.
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
            let message =
                format!("one push sets at most {TAGS_MAX} tags: push the others in another request");
            return Err(ApiError::new(StatusCode::URI_TOO_LONG, Code::Unsupported, message));
        }
    }
    Ok(tags)
}
