//! Sends an artifact and reads it back.

use std::fs::File;
use std::time::Duration;

use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Method, RequestBuilder, StatusCode};
use sha2::{Digest as _, Sha256};
use tokio_util::io::ReaderStream;

use super::super::error::BackupError;
use super::super::work::{Phase, Work};
use super::artifact::{BackupManifest, Descriptor, MANIFEST};
use super::client::RemoteRegistry;
use super::error::RemoteBackupError;
use super::pack::{LocalBlob, Packed};
use super::send_watch::SendWatch;

/// The bytes that are read from a file at once.
const PIECE: usize = 256 << 10;
/// The time of an upload: this much, and the time of its bytes at the slowest rate.
const UPLOAD: Duration = Duration::from_secs(120);
const MIN_BYTES_PER_SECOND: u64 = 128 << 10;

impl RemoteRegistry {
    /// Sends all blobs of an artifact and reads them back. Nothing has a name then.
    pub(in super::super) async fn push(&self, packed: &Packed, work: &Work) -> Result<(), BackupError> {
        work.begin(Phase::Sending);
        for blob in &packed.blobs {
            self.push_blob(blob).await?;
            work.advance(blob.descriptor.size)?;
        }
        work.begin(Phase::Verifying);
        for blob in &packed.blobs {
            self.read_back(&blob.descriptor, work).await?;
        }
        Ok(())
    }

    /// Gives an artifact its tag, and reads the manifest back by its digest.
    pub(in super::super) async fn publish(
        &self,
        packed: &Packed,
        tag: &str,
    ) -> Result<(), RemoteBackupError> {
        const WHAT: &str = "send the manifest of the backup";
        let with_body = |request: RequestBuilder| {
            Ok(request.timeout(UPLOAD).header(CONTENT_TYPE, MANIFEST).body(packed.manifest.clone()))
        };
        let url = self.url(&format!("manifests/{tag}"));
        let response = self.send(WHAT, (Method::PUT, &url), &with_body).await?;
        if response.status() != StatusCode::CREATED {
            return Err(self.refused(WHAT, response).await);
        }
        match self.manifest(&packed.digest).await? {
            Some(_) => Ok(()),
            None => Err(self.unexpected(WHAT, "no manifest of the digest that it has accepted")),
        }
    }

    /// Reads all of a backup by its digest and compares it.
    pub(in super::super) async fn verify(&self, digest: &str, work: &Work) -> Result<(), BackupError> {
        let damaged = |reason: String| BackupError::Damaged { reason };
        work.begin(Phase::Verifying);
        let missing = || damaged(format!("the manifest {digest} is missing"));
        let bytes = self.manifest(digest).await?.ok_or_else(missing)?;
        let manifest = BackupManifest::parse(&bytes).map_err(damaged)?;
        for blob in manifest.layers.iter().chain([&manifest.config]) {
            self.read_back(blob, work).await?;
        }
        Ok(())
    }

    pub(super) async fn push_blob(&self, blob: &LocalBlob) -> Result<(), RemoteBackupError> {
        let Descriptor { digest, size, .. } = &blob.descriptor;
        let what = format!("send {}", blob.descriptor.part());
        let there = self.send_small(&what, Method::HEAD, &self.url(&format!("blobs/{digest}"))).await?;
        if there.status().is_success() {
            return Ok(());
        }
        let no_body = |request: RequestBuilder| Ok(request.timeout(UPLOAD).header(CONTENT_LENGTH, 0));
        let begun = self.send(&what, (Method::POST, &self.url("blobs/uploads/")), &no_body).await?;
        if begun.status() != StatusCode::ACCEPTED {
            return Err(self.refused(&what, begun).await);
        }
        let mut session = self.session(&what, &begun)?;
        session.query_pairs_mut().append_pair("digest", digest);
        let deadline = deadline_of(*size);
        let sending = SendWatch::default();
        let with_file = |request: RequestBuilder| {
            let file = File::open(&blob.path).map_err(|source| RemoteBackupError::File {
                operation: "read",
                path: blob.path.clone(),
                source,
            })?;
            let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(file), PIECE);
            let stream = sending.watched(stream);
            let request = request.timeout(deadline).header(CONTENT_TYPE, "application/octet-stream");
            Ok(request.header(CONTENT_LENGTH, *size).body(Body::wrap_stream(stream)))
        };
        let stored = tokio::select! {
            stored = self.send(&what, (Method::PUT, &session), &with_file) => stored?,
            () = sending.stalled() => return Err(self.silent(&what)),
        };
        match stored.status() {
            StatusCode::CREATED => Ok(()),
            _ => Err(self.refused(&what, stored).await),
        }
    }

    /// Reads a blob and compares its length and digest.
    async fn read_back(&self, blob: &Descriptor, work: &Work) -> Result<(), BackupError> {
        self.stream_blob(blob, work, &mut |_| Ok(())).await
    }

    /// Calls `each` with the pieces of a blob. No piece is beyond its length. Fails at the end when the content does not have the
    /// digest of the blob, and when it comes more slowly than a backup is written.
    pub(super) async fn stream_blob(
        &self,
        blob: &Descriptor,
        work: &Work,
        each: &mut (dyn FnMut(&[u8]) -> Result<(), BackupError> + Send),
    ) -> Result<(), BackupError> {
        let damaged = |why: &str| BackupError::Damaged { reason: format!("{} {why}", blob.part()) };
        let what = format!("read {}", blob.part());
        let url = self.url(&format!("blobs/{}", blob.digest));
        let deadline = deadline_of(blob.size);
        let with_deadline = |request: RequestBuilder| Ok(request.timeout(deadline));
        let sent = self.send(&what, (Method::GET, &url), &with_deadline);
        let mut response = self.unless_silent(&what, sent).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(damaged("is missing in the registry")),
            _ => return Err(self.refused(&what, response).await.into()),
        }
        let (mut read, mut hash) = (0, Sha256::new());
        loop {
            let Some(chunk) = self.chunk(&what, &mut response).await? else { break };
            read += chunk.len() as u64;
            if read > blob.size {
                return Err(damaged("is longer in the registry than it was"));
            }
            hash.update(&chunk);
            each(&chunk)?;
            work.advance(chunk.len() as u64)?;
        }
        if read != blob.size {
            return Err(damaged("is shorter in the registry than it was"));
        }
        match format!("sha256:{}", hex::encode(hash.finalize())) == blob.digest {
            true => Ok(()),
            false => Err(damaged("has other content than its digest says")),
        }
    }
}

impl Descriptor {
    /// Names the part of a backup that the blob is, for texts.
    pub(super) fn part(&self) -> &str {
        let title = self.annotations.as_ref().and_then(|annotations| annotations.title.as_deref());
        title.unwrap_or(match self.media_type.as_str() {
            super::artifact::CONFIG => "backup.json",
            super::artifact::FILES => "the small files of the backup",
            _ => "a layer of the backup",
        })
    }
}

/// The longest time in which so many bytes are sent or read.
fn deadline_of(bytes: u64) -> Duration {
    UPLOAD + Duration::from_secs(bytes / MIN_BYTES_PER_SECOND)
}
