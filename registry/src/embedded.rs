//! Content that the embedding program stores and deletes itself, without HTTP. Access rules do not apply; quotas, immutable tags,
//! pins and the read-only mode do.

use bytes::Bytes;

use crate::{Digest, Error, Registry, RepositoryName, Tag};

impl Registry {
    /// Stores a small blob in a repository, unless the repository has it, and creates the repository. Durable when this returns.
    ///
    /// # Errors
    /// The errors of a push: [`Error::ReadOnly`], [`Error::QuotaExceeded`], [`Error::NoSpace`], [`Error::Io`].
    pub async fn put_blob(&self, repository: &RepositoryName, content: Bytes) -> Result<Digest, Error> {
        let repository = repository.clone();
        self.run(move |store| store.put_blob(&repository, &content)).await
    }

    /// Stores a manifest under its digest and a tag. Durable when this returns.
    ///
    /// # Errors
    /// [`Error::InvalidManifest`] when the document is no manifest of this media type, [`Error::ReferencesUnknown`] or
    /// [`Error::WrongSize`] when the repository does not have what it refers to, and those of a push.
    pub async fn put_manifest(
        &self,
        repository: &RepositoryName,
        tag: &Tag,
        media_type: &'static str,
        document: Bytes,
    ) -> Result<Digest, Error> {
        let (repository, tag) = (repository.clone(), tag.clone());
        self.run(move |store| store.put_document(&repository, &tag, media_type, &document)).await
    }

    /// Deletes a tag; with a digest, only while the tag names this manifest. The manifest stays under its digest. Durable when
    /// this returns.
    ///
    /// # Errors
    /// [`Error::ManifestUnknown`] when the repository does not have the tag, [`Error::TagMoved`] when it names another manifest,
    /// [`Error::TagKept`] when it is immutable, [`Error::ReadOnly`], [`Error::Io`].
    pub async fn delete_tag(
        &self,
        repository: &RepositoryName,
        tag: &Tag,
        expected: Option<&Digest>,
    ) -> Result<(), Error> {
        let (repository, tag, expected) = (repository.clone(), tag.clone(), expected.cloned());
        self.run(move |store| store.delete_tag(&repository, &tag, expected.as_ref())).await
    }

    /// Deletes a manifest with every tag that names it. Its content is collected after the grace period.
    ///
    /// # Errors
    /// [`Error::ManifestUnknown`] when the repository does not have it, [`Error::Pinned`] when an owner needs it,
    /// [`Error::BelowTag`] when an immutable tag leads to it, [`Error::ReadOnly`], [`Error::Io`].
    pub async fn delete_manifest(&self, repository: &RepositoryName, digest: &Digest) -> Result<(), Error> {
        let (repository, digest) = (repository.clone(), digest.clone());
        self.run(move |store| store.delete_document(&repository, &digest)).await
    }
}
