//! Manifests and tags: small files that name content of the pool.
//!
//! ```text
//!  put     share lock: what it refers to is there? -> content -> record -> tag -> fsync directories -> 201
//!  delete  exclusive lock: tags that name it -> record -> fsync directories -> 202
//!  resolve tag record -> manifest record -> content, hashed before it is served
//! ```
//!
//! A delete removes tags before the record, a put writes the record before the tag: a crash in between
//! leaves nothing that names a manifest which is not there.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::PoisonError;

use oci_spec::image::{Descriptor, MediaType};

use super::blobs::exists;
use super::{Store, disk, sync_parent};
use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::{Requires, Understood};
use crate::name::{Reference, RepositoryName, Tag};

/// A record is a descriptor of three fields; anything longer was not written by this crate.
const RECORD_MAX: u64 = 4096;
/// Missing references named in one refusal.
const MISSING_NAMED: usize = 32;

/// A stored manifest: exactly the bytes that were pushed, under the media type they were pushed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// What the bytes hash to; a tag remembers the algorithm it was pushed with.
    pub digest: Digest,
    /// The media type it was pushed with, without parameters.
    pub media_type: String,
    /// The document.
    pub bytes: Vec<u8>,
}

/// One page of a repository's tags.
pub(crate) struct TagPage {
    pub(crate) tags: Vec<Tag>,
    /// Whether tags follow after the last one of the page.
    pub(crate) more: bool,
}

impl Store {
    /// The manifest `reference` names. The bytes are hashed before they are returned.
    pub(crate) fn resolve(&self, name: &RepositoryName, reference: &Reference) -> Result<Manifest, Error> {
        let digest = match reference {
            Reference::Digest(digest) => digest.clone(),
            Reference::Tag(tag) => {
                read_record(&self.tag_record(name, tag))?.ok_or(Error::ManifestUnknown)?.digest
            }
        };
        let record = read_record(&self.manifest_record(name, &digest))?.ok_or(Error::ManifestUnknown)?;
        let path = self.content(&digest);
        let Some(bytes) = read_bounded(&path, self.config.max_manifest_size.max(record.size) as u64)? else {
            return Err(Error::Damaged(digest));
        };
        if Digest::of(digest.algorithm(), &bytes) != digest {
            tracing::error!(repository = %name, digest = %digest, "a stored manifest no longer hashes to its name");
            return Err(Error::Damaged(digest));
        }
        Ok(Manifest { digest, media_type: record.media_type, bytes })
    }

    /// Stores a manifest under its digest and any number of tags.
    pub(crate) fn put_manifest(
        &self,
        name: &RepositoryName,
        tags: &[Tag],
        digest: &Digest,
        understood: &Understood,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let lock = match self.repository_lock(name) {
            Some(lock) => lock,
            None => self.ensure_repository(name)?,
        };
        let _shared = lock.read().unwrap_or_else(PoisonError::into_inner);
        self.expect_references(name, &understood.requires)?;

        let descriptor =
            Descriptor::new(MediaType::from(understood.media_type.as_str()), bytes.len() as u64, digest);
        let temporary = self.temporary();
        let content_path = self.content(digest);
        let record_path = self.manifest_record(name, digest);
        let record = serde_json::to_vec(&descriptor)
            .map_err(|error| Error::io("encode the record", &record_path)(error.into()))?;
        disk::put(&temporary, &content_path, bytes)?;
        if let Some(referral) = &understood.referral {
            // Before the record: a manifest that can be seen is among the referrers of its subject.
            self.put_referrer(name, referral, &descriptor)?;
        }
        disk::put(&temporary, &record_path, &record)?;
        sync_parent(&content_path)?;
        sync_parent(&record_path)?;
        // Only now: a durable tag must find a durable record.
        self.move_tags(name, tags, &record)
    }

    /// Checks that what the manifest refers to is there, unless the repository takes sparse ones.
    fn expect_references(&self, name: &RepositoryName, requires: &Requires) -> Result<(), Error> {
        let (descriptors, sparse) = match requires {
            Requires::Blobs(blobs) => (blobs, &self.config.sparse_images),
            Requires::Children(children) => (children, &self.config.sparse_indexes),
        };
        if sparse.iter().any(|pattern| pattern.matches(name)) {
            return Ok(());
        }
        let texts: BTreeSet<&str> =
            descriptors.iter().map(|descriptor| descriptor.digest().as_ref()).collect();
        let mut missing = Vec::new();
        for text in texts {
            // A digest we cannot address content by is one no repository here has.
            let present = match (text.parse::<Digest>(), requires) {
                (Err(_), _) => false,
                (Ok(digest), Requires::Blobs(_)) => self.has_blob(name, &digest)?,
                (Ok(digest), Requires::Children(_)) => {
                    exists(&self.manifest_record(name, &digest))? || self.has_blob(name, &digest)?
                }
            };
            if !present {
                missing.push(text.to_owned());
                if missing.len() == MISSING_NAMED {
                    break;
                }
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(Error::ReferencesUnknown(missing)) }
    }

    /// Deletes a tag, or a manifest with every tag that names it.
    pub(crate) fn delete_manifest(&self, name: &RepositoryName, reference: &Reference) -> Result<(), Error> {
        let lock = self.repository_lock(name).ok_or(Error::ManifestUnknown)?;
        let _exclusive = lock.write().unwrap_or_else(PoisonError::into_inner);
        let digest = match reference {
            Reference::Tag(tag) => {
                let gone = self.tag_record(name, tag);
                return if disk::remove(&gone)? { sync_parent(&gone) } else { Err(Error::ManifestUnknown) };
            }
            Reference::Digest(digest) => digest,
        };
        let path = self.manifest_record(name, digest);
        let record = read_record(&path)?.ok_or(Error::ManifestUnknown)?;
        self.delete_tags_of(name, digest)?;
        disk::remove(&path)?;
        sync_parent(&path)?;
        self.forget_referrer(name, digest, &record.media_type);
        Ok(())
    }

    fn delete_tags_of(&self, name: &RepositoryName, digest: &Digest) -> Result<(), Error> {
        let directory = self.tags_directory(name);
        for file in disk::names(&directory)? {
            let path = directory.join(file?);
            if read_record(&path)?.is_some_and(|record| record.digest == *digest) {
                disk::remove(&path)?;
            }
        }
        disk::sync_directory(&directory)
    }

    /// Up to `limit` tags in byte order, from the first after `last` on. Memory is bounded by `limit`, however
    /// many tags there are.
    pub(crate) fn tags(
        &self,
        name: &RepositoryName,
        last: Option<&str>,
        limit: usize,
    ) -> Result<TagPage, Error> {
        self.repository_lock(name).ok_or(Error::RepositoryUnknown)?;
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

struct Record {
    digest: Digest,
    media_type: String,
    size: usize,
}

/// Reads a manifest or tag record; `None` when there is none.
fn read_record(path: &Path) -> Result<Option<Record>, Error> {
    let Some(bytes) = read_bounded(path, RECORD_MAX)? else { return Ok(None) };
    let spoiled = |_| Error::io("understand", path)(ErrorKind::InvalidData.into());
    let descriptor: Descriptor = serde_json::from_slice(&bytes).map_err(spoiled)?;
    let digest = Digest::try_from(descriptor.digest())
        .map_err(|_| Error::io("understand", path)(ErrorKind::InvalidData.into()))?;
    let size = usize::try_from(descriptor.size())
        .map_err(|_| Error::io("understand", path)(ErrorKind::InvalidData.into()))?;
    Ok(Some(Record { digest, media_type: descriptor.media_type().to_string(), size }))
}

/// Reads at most `limit` bytes of a file; `None` when there is none.
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
