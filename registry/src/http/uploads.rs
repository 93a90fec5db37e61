//! Pushing blobs, in every form of the specification.
//!
//! ```text
//!  POST ?digest=  body            one request                                       201, or 202 as below without body
//!  POST ?mount=&from=             that repository has the blob                      201, or 202 as below
//!  POST ?mount=                   some repository the caller may read has it        201, or 202 as below
//!  POST [?digest-algorithm=]      202, Location = session
//!    PATCH                        a stream, any length                              202
//!    PATCH Content-Range: a-b     a chunk that must begin at the session's offset   202, or 416 and the session stays
//!    GET                          the offset of the session                         204, Range: 0-b
//!    PUT ?digest=  [body]         the rest, and the end                             201
//!    DELETE                       cancels the session                               204
//! ```
//!
//! All checks that need no body are made before a byte of it is read. A broken connection keeps the session, so that
//! the client can query its offset and continue; a wrong digest or a full disk ends it.
//!
//! Specification: distribution-spec "Pushing blobs" (end-4a to end-6, end-11, end-13, end-14).

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode, header};
use tokio::time::timeout;
use uuid::Uuid;

use super::body::{BodyEnd, RequestBody};
use super::completed::completed;
use super::error::{ApiError, Code};
use super::path::{blob_path, upload_path};
use super::range::ChunkRange;
use super::{Api, CONTENT_DIGEST, caller, empty, query, text};
use crate::access::{Access, Action, AuditEvent, Audited, Denied};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::name::RepositoryName;
use crate::places::Place;
use crate::store::{Session, Sink, Store, UploadLock};
use crate::uploader::Uploader;

const UPLOAD_UUID: HeaderName = HeaderName::from_static("docker-upload-uuid");
/// The time that a request waits for an earlier one on the same session.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// Repositories checked when a mount names no source.
const MOUNT_SOURCES: usize = 64;

impl Api {
    pub(super) async fn start_upload(
        &self,
        repository: &RepositoryName,
        parts: &Parts,
        body: &mut Body,
    ) -> Result<Response, ApiError> {
        let asked = parts.uri.query();
        let mut algorithm = match query::value(asked, "digest-algorithm") {
            None => Algorithm::Sha256,
            Some(text) => text.parse()?,
        };
        if let Some(digest) = query::value(asked, "digest") {
            let digest: Digest = digest.parse()?;
            algorithm = digest.algorithm();
            // Without a body the request starts a session, unless the digest is that of empty content.
            if !body.is_end_stream() || digest == Digest::of(algorithm, &[]) {
                return self.push_monolithic(repository, &digest, parts, body).await;
            }
        }
        if let Some(digest) = self.mount(repository, parts).await? {
            return Ok(created(repository, &digest));
        }
        let session = self.begin(repository, algorithm, parts).await?;
        let lasting = Arc::clone(&session);
        let save = move |store: &Arc<Store>| {
            store.save_uploader(lasting.id, lasting.uploader());
            Ok(())
        };
        self.registry.run(save).await?;
        Ok(session_response(StatusCode::ACCEPTED, repository, &session))
    }

    /// Mounts the blob of the query, if the source repository has it and the caller may read it there. Otherwise an
    /// ordinary upload starts, without an error: a response must not reveal what a repository contains. Only a caller
    /// whose token does not cover what its user may read is refused, and asked for another token.
    async fn mount(&self, repository: &RepositoryName, parts: &Parts) -> Result<Option<Digest>, ApiError> {
        let asked = parts.uri.query();
        let wanted = query::value(asked, "mount").and_then(|text| text.parse::<Digest>().ok());
        let Some(digest) = wanted else { return Ok(None) };
        let sources: Vec<RepositoryName> = match query::value(asked, "from") {
            Some(from) => from.parse::<RepositoryName>().into_iter().collect(),
            None => {
                let wanted = digest.clone();
                self.registry.run(move |store| store.repositories_with(&wanted, MOUNT_SOURCES)).await?
            }
        };
        let sources: Vec<&RepositoryName> = sources.iter().collect();
        let mut out_of_scope = None;
        for source in self.authorizer.readable(caller(parts), &sources).await {
            // A token reads only where its scopes allow it, whatever its user may read.
            let access = Access { repository: Some(source), action: Action::Pull };
            let allowed = self.authorizer.authorize(caller(parts), access).await;
            let (source, wanted) = (source.clone(), digest.clone());
            match allowed {
                Ok(()) => {
                    if self.mount_recorded(source, repository, wanted, parts).await? {
                        return Ok(Some(digest));
                    }
                }
                // The user may know that the source has the blob, so the client may be asked for another token.
                Err(denied @ Denied::OutOfScope) if out_of_scope.is_none() => {
                    let there = self.registry.run(move |store| Ok(store.blob_in(&source, &wanted).is_ok()));
                    out_of_scope = there.await?.then_some(denied);
                }
                Err(_) => {}
            }
        }
        match out_of_scope {
            Some(denied) => Err(self.refuse(parts, Some(repository), Action::Push, denied).await),
            None => Ok(None),
        }
    }

    /// Mounts the blob if the source has it; returns whether it has.
    async fn mount_recorded(
        &self,
        source: RepositoryName,
        repository: &RepositoryName,
        digest: Digest,
        parts: &Parts,
    ) -> Result<bool, ApiError> {
        let (api, repository, parts) = (self.clone(), repository.clone(), parts.clone());
        let mount = async move {
            let (name, wanted) = (repository.clone(), digest.clone());
            let there = api.registry.run(move |store| store.mount(&source, &name, &wanted)).await?;
            if there {
                let mounted = |event: &mut AuditEvent| event.digest = Some(digest);
                api.record(&parts, Some(&repository), Audited::MountBlob, mounted).await;
            }
            Ok(there)
        };
        completed(mount).await
    }

    async fn push_monolithic(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        parts: &Parts,
        body: &mut Body,
    ) -> Result<Response, ApiError> {
        let session = self.begin(repository, digest.algorithm(), parts).await?;
        let lock = lock_upload(&session).await?;
        let pushed = match self.receive(&session, lock, parts, body).await {
            Ok((sink, last)) => self.finish(sink, last, repository, digest, parts).await,
            Err(error) => Err(error),
        };
        if pushed.is_err() {
            // The client does not know this session, so it cannot continue it. If the request is dropped before this
            // line, the sweep removes the session.
            if let Ok(lock) = lock_upload(&session).await
                && lock.offset().is_some()
            {
                self.cancel(&session, lock).await?;
            }
        }
        pushed
    }

    pub(super) async fn append_upload(
        &self,
        repository: &RepositoryName,
        id: Uuid,
        parts: &Parts,
        body: &mut Body,
    ) -> Result<Response, ApiError> {
        let session = self.registry.store.upload(repository, id)?;
        let lock = lock_upload(&session).await?;
        let (sink, last) = self.receive(&session, lock, parts, body).await?;
        self.suspend(sink, last).await?;
        Ok(session_response(StatusCode::ACCEPTED, repository, &session))
    }

    pub(super) async fn close_upload(
        &self,
        repository: &RepositoryName,
        id: Uuid,
        parts: &Parts,
        body: &mut Body,
    ) -> Result<Response, ApiError> {
        let session = self.registry.store.upload(repository, id)?;
        let digest = query::value(parts.uri.query(), "digest").ok_or_else(|| {
            let message = "the digest of the blob is missing: finish the upload with ?digest=";
            ApiError::new(StatusCode::BAD_REQUEST, Code::DigestInvalid, message)
        })?;
        let digest: Digest = digest.parse()?;
        let mut lock = lock_upload(&session).await?;
        lock.expect(digest.algorithm());
        let (sink, last) = if !body.is_end_stream() || parts.headers.contains_key(header::CONTENT_RANGE) {
            self.receive(&session, lock, parts, body).await?
        } else {
            (self.registry.run(move |store| store.sink(session, lock)).await?, Bytes::new())
        };
        self.finish(sink, last, repository, &digest, parts).await
    }

    pub(super) async fn cancel_upload(
        &self,
        repository: &RepositoryName,
        id: Uuid,
    ) -> Result<Response, ApiError> {
        let session = self.registry.store.upload(repository, id)?;
        let lock = lock_upload(&session).await?;
        self.cancel(&session, lock).await?;
        Ok(empty(StatusCode::NO_CONTENT, []))
    }

    pub(super) fn upload_status(&self, repository: &RepositoryName, id: Uuid) -> Result<Response, ApiError> {
        let session = self.registry.store.upload(repository, id)?;
        Ok(session_response(StatusCode::NO_CONTENT, repository, &session))
    }

    /// The place to receive a body. The body waits unread.
    pub(super) async fn place(
        &self,
        uploader: &Uploader,
        repository: &RepositoryName,
    ) -> Result<Place, Error> {
        let patience = self.registry.config().upload_queue_timeout;
        self.registry.places.take(uploader, repository, patience).await
    }

    /// The client of a request, by which uploads are shared out.
    pub(super) async fn uploader(&self, parts: &Parts) -> Uploader {
        let caller = caller(parts);
        match self.authorizer.identify(caller).await {
            Some(name) => Uploader::User(name),
            None => Uploader::Anonymous(caller.peer.map(|peer| peer.ip())),
        }
    }

    async fn begin(
        &self,
        repository: &RepositoryName,
        algorithm: Algorithm,
        parts: &Parts,
    ) -> Result<Arc<Session>, ApiError> {
        let (name, uploader) = (repository.clone(), self.uploader(parts).await);
        let begun = self.registry.run(move |store| {
            store.expect_space_for(0)?;
            store.begin_upload_of(uploader, &name, algorithm)
        });
        Ok(begun.await?)
    }

    /// Releases a session that is continued after `last`.
    async fn suspend(&self, sink: Sink, last: Bytes) -> Result<(), ApiError> {
        Ok(self
            .registry
            .run(move |_| {
                sink.append(&last)?.suspend();
                Ok(())
            })
            .await?)
    }

    async fn cancel(&self, session: &Arc<Session>, lock: UploadLock) -> Result<(), ApiError> {
        let session = Arc::clone(session);
        Ok(self
            .registry
            .run(move |store| {
                store.sink(session, lock)?.cancel();
                Ok(())
            })
            .await?)
    }

    async fn finish(
        &self,
        sink: Sink,
        last: Bytes,
        repository: &RepositoryName,
        digest: &Digest,
        parts: &Parts,
    ) -> Result<Response, ApiError> {
        let (api, repository, parts) = (self.clone(), repository.clone(), parts.clone());
        let (length, digest) = (sink.offset() + last.len() as u64, digest.clone());
        let finish = async move {
            let expected = digest.clone();
            api.registry.run(move |_| sink.append(&last)?.finish(&expected)).await?;
            let pushed =
                |event: &mut AuditEvent| (event.digest, event.size) = (Some(digest.clone()), Some(length));
            api.record(&parts, Some(&repository), Audited::PushBlob, pushed).await;
            Ok(created(&repository, &digest))
        };
        completed(finish).await
    }

    /// Appends the body to the session after all checks that need no body. The last piece is returned unwritten.
    async fn receive(
        &self,
        session: &Arc<Session>,
        lock: UploadLock,
        parts: &Parts,
        body: &mut Body,
    ) -> Result<(Sink, Bytes), ApiError> {
        let config = self.registry.config();
        let start = lock.offset().ok_or(Error::UploadUnknown(session.id))?;
        let length = text(&parts.headers, header::CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok());
        let chunk = match parts.headers.get(header::CONTENT_RANGE) {
            None => None,
            Some(value) => Some(chunk_at(value, start).ok_or_else(|| out_of_order(session, start))?),
        };
        let declared = chunk.map(ChunkRange::length);
        if let (Some(declared), Some(length)) = (declared, length)
            && declared != length
        {
            return Err(wrong_length(declared));
        }
        let room = config.max_blob_size.saturating_sub(start);
        let announced = declared.or(length).unwrap_or(0);
        if announced > room {
            self.cancel(session, lock).await?;
            return Err(too_large(config.max_blob_size));
        }
        let opened = Arc::clone(session);
        let sink = self.registry.run(move |store| store.sink(opened, lock)?.announce(announced)).await?;
        let _place = tokio::select! {
            place = self.place(session.uploader(), session.repository()) => place?,
            () = session.stopped() => return Err(Error::UploadCancelled(session.id).into()),
        };

        let (mut sink, last, ending) =
            RequestBody::new(body, config).store(sink, declared.unwrap_or(room)).await?;
        match (ending, declared) {
            (BodyEnd::Broken(error), _) => {
                self.suspend(sink, last).await?;
                Err(error)
            }
            (BodyEnd::TooLong, None) => {
                let cancel = move |_: &_| {
                    sink.cancel();
                    Ok(())
                };
                self.registry.run(cancel).await?;
                Err(too_large(config.max_blob_size))
            }
            (BodyEnd::Complete, declared)
                if declared.is_none_or(|length| sink.offset() + last.len() as u64 - start == length) =>
            {
                Ok((sink, last))
            }
            (_, declared) => {
                self.registry.run(move |_| sink.roll_back(start)).await?;
                Err(wrong_length(declared.unwrap_or(0)))
            }
        }
    }
}

/// Waits for the request that writes to the session, which usually is ending.
async fn lock_upload(session: &Session) -> Result<UploadLock, ApiError> {
    Ok(timeout(LOCK_WAIT, session.lock()).await.map_err(|_| Error::UploadBusy(session.id))?)
}

fn chunk_at(value: &HeaderValue, offset: u64) -> Option<ChunkRange> {
    ChunkRange::parse(value.to_str().ok()?).filter(|chunk| chunk.first == offset)
}

fn created(repository: &RepositoryName, digest: &Digest) -> Response {
    empty(
        StatusCode::CREATED,
        [(header::LOCATION, blob_path(repository, digest)), (CONTENT_DIGEST, digest.to_string())],
    )
}

fn session_response(status: StatusCode, repository: &RepositoryName, session: &Session) -> Response {
    empty(
        status,
        [
            (header::LOCATION, upload_path(repository, session.id)),
            (header::RANGE, received_range(session)),
            (UPLOAD_UUID, session.id.to_string()),
        ],
    )
}

/// The stored bytes of a session as first and last. An empty session has no such form, and clients expect `0-0`.
fn received_range(session: &Session) -> String {
    format!("0-{}", session.received().saturating_sub(1))
}

fn out_of_order(session: &Session, offset: u64) -> ApiError {
    let message = format!("the next chunk must begin at {offset}: Content-Range is first-last, inclusive");
    let mut error = ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, Code::BlobUploadInvalid, message);
    for (name, value) in [
        (header::LOCATION, upload_path(session.repository(), session.id)),
        (header::RANGE, received_range(session)),
    ] {
        if let Ok(value) = HeaderValue::try_from(value) {
            error = error.with_header(name, value);
        }
    }
    error
}

fn wrong_length(declared: u64) -> ApiError {
    let message =
        format!("the body is not as long as the {declared} bytes of its Content-Range: send the chunk again");
    ApiError::new(StatusCode::BAD_REQUEST, Code::SizeInvalid, message)
}

fn too_large(limit: u64) -> ApiError {
    let message = format!("the blob is larger than the limit of {limit} bytes; the upload was cancelled");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, Code::SizeInvalid, message)
}
