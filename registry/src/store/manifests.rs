//! Manifests and tags: small files that name content of the pool.
//!
//! ```text
//!  put     shared references lock: its references exist? -> content, record -> fsync -> tags -> fsync -> 201
//!  delete  exclusive references lock: tags that name it -> fsync -> record -> fsync -> referrer record -> 202
//!  resolve tag record -> manifest record -> content, hashed before it is served
//! ```
//!
//! A delete removes tags before the record, a put writes the record before the tag: after a crash in between no tag
//! names a manifest that does not exist.
//!
//! A put is checked before it changes anything, so a refused one leaves nothing behind, not even the repository. What a
//! descriptor says about the size of content that the repository has must be true: clients that copy an image trust it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use bytes::Bytes;
use oci_spec::image::{Descriptor, MediaType};

use super::disk::{self, exists};
use super::{LAYERS, MANIFESTS, Store};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::manifest::{ParsedManifest, RequiredContent, SubjectReference};
use crate::name::{Reference, RepositoryName, Tag};

/// A record is a descriptor with three fields; a longer one was not written by this crate.
const RECORD_MAX: u64 = 4096;
/// The limit of missing references in one error.
const MISSING_NAMED: usize = 32;

/// A stored manifest: the bytes that were pushed, and their media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The digest of the bytes; a tag keeps the algorithm it was pushed with.
    pub digest: Digest,
    /// The media type with which the manifest was pushed, without parameters.
    pub media_type: String,
    /// The bytes of the document.
    pub bytes: Bytes,
}

/// One page of a repository's tags.
pub(crate) struct TagPage {
    pub(crate) tags: Vec<Tag>,
    /// Whether tags follow after the last one of the page.
    pub(crate) more: bool,
}

impl Store {
    /// Returns the manifest that `reference` names. The bytes are hashed before they are returned.
    pub(crate) fn resolve(&self, name: &RepositoryName, reference: &Reference) -> Result<Manifest, Error> {
        let generation = self.generation(name);
        let digest = match reference {
            Reference::Digest(digest) => digest.clone(),
            Reference::Tag(tag) => {
                read_record(&self.tag_record(name, tag))?.ok_or(Error::ManifestUnknown)?.digest
            }
        };
        let path = self.manifest_record(name, &digest);
        let record = read_record(&path)?.ok_or(Error::ManifestUnknown)?;
        let bytes = self.document(&digest, record.size)?.ok_or(Error::ManifestUnknown)?;
        if !self.refresh_if_present(&path, &digest)? {
            return Err(Error::ManifestUnknown);
        }
        let manifest = Manifest { digest, media_type: record.media_type, bytes: bytes.into() };
        self.remember(name, reference, generation, path, &manifest);
        Ok(manifest)
    }

    /// The bytes of a manifest in the pool, hashed; `None` when they are missing.
    pub(super) fn document(&self, digest: &Digest, size: usize) -> Result<Option<Vec<u8>>, Error> {
        let limit = self.config.max_manifest_size.max(size) as u64;
        let Some(bytes) = read_bounded(&self.content(digest), limit)? else { return Ok(None) };
        if Digest::of(digest.algorithm(), &bytes) != *digest {
            tracing::error!(digest = %digest, "a stored manifest is corrupted: it does not have the digest of its name");
            return Err(Error::Corrupted(digest.clone()));
        }
        Ok(Some(bytes))
    }

    /// Stores a manifest under its digest and any number of tags.
    pub(crate) fn put_manifest(
        &self,
        name: &RepositoryName,
        tags: &[Tag],
        digest: &Digest,
        parsed: &ParsedManifest,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.put_manifest_keeping(name, tags, digest, parsed, bytes, &|_| false)
    }

    /// Stores a manifest under its digest and its tags; an existing tag that `kept` names, or that is immutable, must
    /// not change.
    pub(crate) fn put_manifest_keeping(
        &self,
        name: &RepositoryName,
        tags: &[Tag],
        digest: &Digest,
        parsed: &ParsedManifest,
        bytes: &[u8],
        kept: &dyn Fn(&Tag) -> bool,
    ) -> Result<(), Error> {
        self.expect_writable()?;
        let kept = &|tag: &Tag| kept(tag) || self.is_immutable(name, tag);
        let length = bytes.len() as u64;
        if self.references(name).is_none() {
            self.expect_references(name, parsed)?;
            self.quotas.reservation(name).grow(length)?;
        }
        let references = self.ensure_repository(name)?;
        let _shared = references.shared();
        tags.iter().filter(|tag| kept(tag)).try_for_each(|tag| self.expect_tag_stays(name, tag, digest))?;
        // Before checking them: a running collection then keeps them, also those that are there and need not be.
        self.locks.keep(digest);
        parsed.links.content.iter().for_each(|digest| self.locks.keep(digest));
        let required = addressed(&parsed.requires);
        self.expect_references(name, parsed)?;
        self.expect_media_type_stays(name, digest, &parsed.media_type, kept)?;

        let mut reserved = self.quotas.reservation(name);
        if !exists(&self.manifest_record(name, digest))? {
            reserved.grow(length)?;
        }
        let descriptor =
            Descriptor::new(MediaType::from(parsed.media_type.as_str()), bytes.len() as u64, digest);
        let content_path = self.content(digest);
        let record_path = self.manifest_record(name, digest);
        let record = serde_json::to_vec(&descriptor)
            .map_err(|error| Error::io("encode the record", &record_path)(error.into()))?;
        if let Some(referral) = &parsed.referral {
            // Before the record: a visible manifest must be among the referrers of its subject.
            self.put_referrer(name, referral, &descriptor)?;
        }
        let content_temp = self.disk.write_temp(&self.temporary(), bytes)?;
        let record_temp = self
            .disk
            .write_temp(&self.temporary(), &record)
            .inspect_err(|_| self.disk.discard(&content_temp))?;
        {
            let _transition = self.locks.transition(digest);
            let _changing = references.changes.begin();
            self.disk
                .commit_temp(&content_temp, &content_path)
                .inspect_err(|_| self.disk.discard(&record_temp))?;
            let new = !exists(&record_path)?;
            self.disk.commit_temp(&record_temp, &record_path)?;
            reserved.settle(length, new);
        }
        self.changed(name);
        self.sync_references(name, &parsed.requires, &required)?;
        self.disk.sync_parent(&content_path)?;
        self.disk.sync_parent(&record_path)?;
        // Only now: a durable tag must find a durable record.
        let moved = self.move_tags(name, &references, tags, digest, &record, kept);
        self.changed(name);
        moved
    }

    /// Makes durable the content a manifest refers to. Another push may have made it visible a moment ago without
    /// having called fsync yet; if it has, this costs next to nothing.
    fn sync_references(
        &self,
        name: &RepositoryName,
        requires: &RequiredContent,
        required: &BTreeSet<Digest>,
    ) -> Result<(), Error> {
        let algorithms: BTreeSet<Algorithm> = required.iter().map(Digest::algorithm).collect();
        let kinds: &[&str] = match requires {
            RequiredContent::Blobs(_) => &[LAYERS],
            RequiredContent::Children(_) => &[LAYERS, MANIFESTS],
        };
        for algorithm in algorithms {
            self.disk.sync_directory(&self.pool().join(algorithm.as_str()))?;
            for kind in kinds {
                self.disk.sync_directory(&self.repository(name).join(kind).join(algorithm.as_str()))?;
            }
        }
        Ok(())
    }

    /// Checks that the content the manifest refers to exists, unless the repository accepts sparse manifests, and that
    /// existing content has the size the manifest says.
    fn expect_references(&self, name: &RepositoryName, parsed: &ParsedManifest) -> Result<(), Error> {
        let (descriptors, sparse) = match &parsed.requires {
            RequiredContent::Blobs(blobs) => (blobs, &self.config.sparse_images),
            RequiredContent::Children(children) => (children, &self.config.sparse_indexes),
        };
        let may_be_missing = sparse.iter().any(|pattern| pattern.matches(name));
        let described: BTreeSet<(&str, u64)> =
            descriptors.iter().map(|descriptor| (descriptor.digest().as_ref(), descriptor.size())).collect();
        let mut missing: Vec<String> = Vec::new();
        for (text, size) in described {
            // A digest with an unsupported algorithm is in no repository.
            let present = match text.parse::<Digest>() {
                Err(_) => None,
                Ok(digest) if self.has_required(name, &digest, &parsed.requires)? => Some(digest),
                Ok(_) => None,
            };
            match present {
                Some(digest) => self.expect_size(&digest, size)?,
                None if may_be_missing || missing.last().is_some_and(|last| last == text) => {}
                None => missing.push(text.to_owned()),
            }
            if missing.len() == MISSING_NAMED {
                break;
            }
        }
        if !missing.is_empty() {
            return Err(Error::ReferencesUnknown(missing));
        }
        match &parsed.referral {
            // A missing subject is valid.
            Some(SubjectReference { subject, size, .. }) if self.has_manifest(name, subject)? => {
                self.expect_size(subject, *size)
            }
            _ => Ok(()),
        }
    }

    fn has_required(
        &self,
        name: &RepositoryName,
        digest: &Digest,
        requires: &RequiredContent,
    ) -> Result<bool, Error> {
        match requires {
            RequiredContent::Blobs(_) => self.has_blob(name, digest),
            RequiredContent::Children(_) => {
                Ok(self.has_manifest(name, digest)? || self.has_blob(name, digest)?)
            }
        }
    }

    /// Fails when stored content has another size than a descriptor says.
    fn expect_size(&self, digest: &Digest, described: u64) -> Result<(), Error> {
        let path = self.content(digest);
        let actual = path.metadata().map_err(Error::io("read the length of", &path))?.len();
        if actual == described {
            return Ok(());
        }
        Err(Error::WrongSize { digest: digest.clone(), described, actual })
    }

    /// Fails when a manifest that a kept tag leads to would be served under another media type.
    fn expect_media_type_stays(
        &self,
        name: &RepositoryName,
        digest: &Digest,
        media_type: &str,
        kept: &dyn Fn(&Tag) -> bool,
    ) -> Result<(), Error> {
        match read_record(&self.manifest_record(name, digest))? {
            Some(record) if record.media_type != media_type => self.expect_not_reached(name, digest, kept),
            _ => Ok(()),
        }
    }

    /// Whether the repository lists the manifest and the content is there.
    pub(super) fn has_manifest(&self, name: &RepositoryName, digest: &Digest) -> Result<bool, Error> {
        Ok(exists(&self.manifest_record(name, digest))? && exists(&self.content(digest))?)
    }

    /// Deletes a tag, or a manifest with every tag that names it.
    #[cfg(test)]
    pub(crate) fn delete_manifest(&self, name: &RepositoryName, reference: &Reference) -> Result<(), Error> {
        self.delete_manifest_keeping(name, reference, &|_| false)
    }

    /// Deletes a tag, or a manifest with every tag that names it. Fails for a tag that `kept` names or that is immutable,
    /// and for a manifest that such a tag leads to.
    pub(crate) fn delete_manifest_keeping(
        &self,
        name: &RepositoryName,
        reference: &Reference,
        kept: &dyn Fn(&Tag) -> bool,
    ) -> Result<(), Error> {
        let digest = match reference {
            Reference::Tag(tag) => return self.delete_tag_keeping(name, tag, None, kept),
            Reference::Digest(digest) => digest,
        };
        self.expect_writable()?;
        let kept = &|tag: &Tag| kept(tag) || self.is_immutable(name, tag);
        let references = self.references(name).ok_or(Error::ManifestUnknown)?;
        let _exclusive = references.exclusive();
        let path = self.manifest_record(name, digest);
        let record = read_record(&path)?.ok_or(Error::ManifestUnknown)?;
        self.expect_not_pinned(name, digest)?;
        self.expect_not_reached(name, digest, kept)?;
        let subject = self.subject_of(digest, &record);
        let tags = self.tags_of(name, digest)?;
        {
            let _changing = references.changes.begin();
            tags.iter().try_for_each(|tag| self.disk.remove(&self.tag_record(name, tag)).map(|_| ()))?;
        }
        self.disk.sync_directory(&self.tags_directory(name))?;
        {
            // A collection must not remove the content, whose length is counted, between these steps.
            let _transition = self.locks.transition(digest);
            {
                let _changing = references.changes.begin();
                self.disk.remove(&path)?;
            }
            self.touches.forget(&path);
            self.uncount(name, digest);
        }
        self.changed(name);
        self.disk.sync_parent(&path)?;
        if let Some(subject) = subject {
            self.remove_referrer(name, digest, &subject);
        }
        Ok(())
    }

    /// Deletes a tag; with a digest, only while it names this manifest. Fails for a tag that `kept` names or that is immutable.
    pub(super) fn delete_tag_keeping(
        &self,
        name: &RepositoryName,
        tag: &Tag,
        expected: Option<&Digest>,
        kept: &dyn Fn(&Tag) -> bool,
    ) -> Result<(), Error> {
        self.expect_writable()?;
        let references = self.references(name).ok_or(Error::ManifestUnknown)?;
        let _exclusive = references.exclusive();
        let gone = self.tag_record(name, tag);
        if (kept(tag) || self.is_immutable(name, tag)) && exists(&gone)? {
            return Err(Error::TagKept(tag.clone()));
        }
        if let Some(expected) = expected {
            let record = read_record(&gone)?.ok_or(Error::ManifestUnknown)?;
            if record.digest != *expected {
                return Err(Error::TagMoved { tag: tag.clone(), digest: record.digest });
            }
        }
        let there = {
            let _changing = references.changes.begin();
            self.disk.remove(&gone)?
        };
        self.changed(name);
        if there { self.disk.sync_parent(&gone) } else { Err(Error::ManifestUnknown) }
    }

    fn tags_of(&self, name: &RepositoryName, digest: &Digest) -> Result<Vec<Tag>, Error> {
        let mut tags = Vec::new();
        for file in disk::names(&self.tags_directory(name))? {
            let Ok(tag) = file?.parse::<Tag>() else { continue };
            if read_record(&self.tag_record(name, &tag))?.is_some_and(|record| record.digest == *digest) {
                tags.push(tag);
            }
        }
        Ok(tags)
    }

    /// Up to `limit` tags in byte order, beginning after `last`. Memory is bounded by `limit`, for any number of tags.
    pub(crate) fn tags(
        &self,
        name: &RepositoryName,
        last: Option<&str>,
        limit: usize,
    ) -> Result<TagPage, Error> {
        self.references(name).ok_or(Error::RepositoryUnknown)?;
        let mut smallest: BTreeSet<Tag> = BTreeSet::new();
        for file in disk::names(&self.tags_directory(name))? {
            let Ok(tag) = file?.parse::<Tag>() else { continue };
            if last.is_some_and(|last| tag.as_str() <= last) {
                continue;
            }
            smallest.insert(tag);
            if smallest.len() > limit.saturating_add(1) {
                smallest.pop_last();
            }
        }
        let more = smallest.len() > limit;
        Ok(TagPage { tags: smallest.into_iter().take(limit).collect(), more })
    }
}

/// The content of a manifest or tag record.
pub(super) struct Record {
    pub(super) digest: Digest,
    pub(super) media_type: String,
    pub(super) size: usize,
}

impl Record {
    pub(super) fn descriptor(&self) -> Descriptor {
        Descriptor::new(MediaType::from(self.media_type.as_str()), self.size as u64, &self.digest)
    }
}

/// The digests a manifest refers to, as far as their algorithms are supported.
fn addressed(requires: &RequiredContent) -> BTreeSet<Digest> {
    let (RequiredContent::Blobs(descriptors) | RequiredContent::Children(descriptors)) = requires;
    descriptors.iter().filter_map(|descriptor| Digest::try_from(descriptor.digest()).ok()).collect()
}

/// Reads a manifest or tag record; `None` when it does not exist.
pub(super) fn read_record(path: &Path) -> Result<Option<Record>, Error> {
    let Some(bytes) = read_bounded(path, RECORD_MAX)? else { return Ok(None) };
    let spoiled = |_| Error::io("parse", path)(ErrorKind::InvalidData.into());
    let descriptor: Descriptor = serde_json::from_slice(&bytes).map_err(spoiled)?;
    let digest = Digest::try_from(descriptor.digest())
        .map_err(|_| Error::io("parse", path)(ErrorKind::InvalidData.into()))?;
    let size = usize::try_from(descriptor.size())
        .map_err(|_| Error::io("parse", path)(ErrorKind::InvalidData.into()))?;
    Ok(Some(Record { digest, media_type: descriptor.media_type().to_string(), size }))
}

/// Reads at most `limit` bytes of a file; `None` when it does not exist.
pub(super) fn read_bounded(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", path)(error)),
    };
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    Ok(Some(bytes))
}
