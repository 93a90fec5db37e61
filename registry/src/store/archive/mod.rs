//! Import and export of images, as directories and archives.
//!
//! ```text
//!  export  tar: oci-layout, index.json, blobs/<algorithm>/<hex>…     the same content gives the same bytes
//!  import  an OCI image layout, a directory or a tar of one
//!          what `docker save` writes: manifest.json beside configurations and layers
//!          the directory of a docker-registry: docker/registry/v2/{repositories/<name>/…,blobs/<algorithm>/<aa>/<hex>/data}
//! ```
//!
//! An export has all content of its images. One with a missing layer fails, except where the repository accepts sparse images;
//! an index may list manifests that the repository does not have, where it accepts sparse indexes.
//!
//! Imported content is treated like a push: hashed while it is copied, refused when it differs from its descriptor,
//! within quotas and the reserve, durable before it is counted. An archive is not unpacked: it is read once for its
//! table of contents and then entry by entry; its names are looked up in the table, never in the file system.
//!
//! Specification: image-spec `image-layout.md`; Docker Image Specification v1.2 for `docker save`.

mod contents;
mod import;
mod source;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::Store;
use super::layout::{LAYOUT, index_document};
use super::manifests::read_record;
use crate::digest::Digest;
use crate::error::Error;
use crate::links::Links;
use crate::manifest::{RequiredContent, parse_manifest};
use crate::name::{Reference, RepositoryName, Tag};

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Tags that were set.
    pub tags: BTreeSet<Tag>,
    /// Names of images that are no tags. An image that has only such names was not imported.
    pub skipped: BTreeSet<String>,
    /// Tags of a docker-registry whose image was not imported, each with the reason.
    pub failed: BTreeMap<Tag, String>,
    /// Manifests that were stored.
    pub manifests: u64,
    /// Blobs that were copied; existing ones are not counted.
    pub blobs: u64,
    /// The bytes of the copied blobs.
    pub bytes: u64,
}

impl Store {
    /// Writes the tags of a repository, or some of them, with everything below them as a tar of an OCI image layout.
    pub(crate) fn export(
        &self,
        name: &RepositoryName,
        only: Option<&BTreeSet<Tag>>,
        target: &mut dyn Write,
    ) -> Result<(), Error> {
        let tags: BTreeSet<Tag> = match only {
            Some(tags) => tags.clone(),
            None => self.tags(name, None, usize::MAX)?.tags.into_iter().collect(),
        };
        let mut entries = Vec::new();
        let mut content = BTreeSet::new();
        for tag in &tags {
            let manifest = self.resolve(name, &Reference::Tag(tag.clone()))?;
            let record =
                read_record(&self.manifest_record(name, &manifest.digest))?.ok_or(Error::ManifestUnknown)?;
            self.content_below(name, tag, manifest.digest, &mut content)?;
            entries.push((record, Some(tag.as_str())));
        }
        let index = index_document(&entries)?;
        let failed = || Error::io("write an export of", &self.config.root);
        let mut archive = tar::Builder::new(target);
        let mut add = |path: &Path, length: u64, bytes: &mut dyn Read| {
            let mut head = tar::Header::new_ustar();
            head.set_size(length);
            head.set_mode(0o644);
            archive.append_data(&mut head, path, bytes)
        };
        add(Path::new("oci-layout"), LAYOUT.len() as u64, &mut &*LAYOUT).map_err(failed())?;
        add(Path::new("index.json"), index.len() as u64, &mut index.as_slice()).map_err(failed())?;
        for digest in content {
            let blob = self.blob(&digest)?;
            let mut file = File::open(self.content(&digest)).map_err(failed())?.take(blob.length());
            add(&in_layout(&digest), blob.length(), &mut file).map_err(failed())?;
        }
        archive.finish().map_err(failed())
    }

    /// Adds to `content` the manifest of a tag and everything below it, as far as it is there. Fails where content is
    /// missing that a push of the manifest would need.
    fn content_below(
        &self,
        name: &RepositoryName,
        tag: &Tag,
        root: Digest,
        content: &mut BTreeSet<Digest>,
    ) -> Result<(), Error> {
        let mut open = vec![root];
        while let Some(digest) = open.pop() {
            if content.contains(&digest) || !self.is_there(name, &digest)? {
                continue;
            }
            if let Some(record) = read_record(&self.manifest_record(name, &digest))? {
                let document = self.document(&digest, record.size)?.ok_or(Error::ManifestUnknown)?;
                if let Some(digest) = self.first_missing(name, &record.media_type, &document)? {
                    return Err(Error::Incomplete { repository: name.clone(), tag: tag.clone(), digest });
                }
                let links = Links::read_stored(&document).map_err(|_| Error::Corrupted(digest.clone()))?;
                open.extend(links.content);
            }
            content.insert(digest);
        }
        Ok(())
    }

    /// Missing content that a push of the manifest to the repository would need.
    fn first_missing(
        &self,
        name: &RepositoryName,
        media_type: &str,
        document: &[u8],
    ) -> Result<Option<String>, Error> {
        let Ok(parsed) = parse_manifest(Some(media_type), document) else { return Ok(None) };
        let (descriptors, sparse) = match &parsed.requires {
            RequiredContent::Blobs(blobs) => (blobs, &self.config.sparse_images),
            RequiredContent::Children(children) => (children, &self.config.sparse_indexes),
        };
        if sparse.iter().any(|pattern| pattern.matches(name)) {
            return Ok(None);
        }
        for descriptor in descriptors {
            let there = match Digest::try_from(descriptor.digest()) {
                Ok(digest) => self.is_there(name, &digest)?,
                Err(_) => false,
            };
            if !there {
                return Ok(Some(descriptor.digest().to_string()));
            }
        }
        Ok(None)
    }

    fn is_there(&self, name: &RepositoryName, digest: &Digest) -> Result<bool, Error> {
        Ok(self.has_manifest(name, digest)? || self.has_blob(name, digest)?)
    }
}

fn in_layout(digest: &Digest) -> PathBuf {
    Path::new("blobs").join(digest.algorithm().as_str()).join(digest.hex())
}
