//! Content that the embedding program stores itself: small blobs and manifests, by the path that a push takes.

use std::sync::Arc;

use bytes::Bytes;

use super::{Session, Store};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::manifest::parse_manifest;
use crate::name::{Reference, RepositoryName, Tag};

impl Store {
    /// Stores a blob in a repository; one that the repository has is renewed. Durable when this returns.
    pub(crate) fn put_blob(
        self: &Arc<Self>,
        name: &RepositoryName,
        content: &Bytes,
    ) -> Result<Digest, Error> {
        let digest = Digest::of(Algorithm::Sha256, content);
        let record = self.layer_record(name, &digest);
        if self.renew(&record, &digest)? {
            // Another push may have made it visible a moment ago without having called fsync yet.
            self.disk.sync_parent(&self.content(&digest))?;
            self.disk.sync_parent(&record)?;
            return Ok(digest);
        }
        let session = self.begin_upload(name, Algorithm::Sha256)?;
        self.fill(&session, content, &digest).inspect_err(|_| self.abandon(&session))?;
        Ok(digest)
    }

    fn fill(self: &Arc<Self>, session: &Arc<Session>, content: &Bytes, digest: &Digest) -> Result<(), Error> {
        let lock = session.try_lock().ok_or(Error::UploadBusy(session.id))?;
        let sink = self.sink(Arc::clone(session), lock)?.announce(content.len() as u64)?;
        sink.append(content)?.finish(digest)
    }

    /// Stores a manifest under its digest and a tag. Durable when this returns.
    pub(crate) fn put_document(
        &self,
        name: &RepositoryName,
        tag: &Tag,
        media_type: &str,
        document: &[u8],
    ) -> Result<Digest, Error> {
        let parsed = parse_manifest(Some(media_type), document)
            .map_err(|why| Error::InvalidManifest(why.to_string()))?;
        let digest = Digest::of(Algorithm::Sha256, document);
        self.expect_space_for(document.len() as u64)?;
        self.put_manifest(name, std::slice::from_ref(tag), &digest, &parsed, document)?;
        Ok(digest)
    }

    /// Deletes a tag; with a digest, only while the tag names this manifest.
    pub(crate) fn delete_tag(
        &self,
        name: &RepositoryName,
        tag: &Tag,
        expected: Option<&Digest>,
    ) -> Result<(), Error> {
        self.delete_tag_keeping(name, tag, expected, &|_| false)
    }

    /// Deletes a manifest with every tag that names it.
    pub(crate) fn delete_document(&self, name: &RepositoryName, digest: &Digest) -> Result<(), Error> {
        self.delete_manifest_keeping(name, &Reference::Digest(digest.clone()), &|_| false)
    }
}
