//! Each repository as an OCI image layout, for tools that read directories.
//!
//! ```text
//!  repos/<name>/oci-layout    {"imageLayoutVersion":"1.0.0"}
//!               blobs         -> ../../blobs
//!               index.json    {"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[
//!                             {"mediaType":…,"digest":…,"size":…,"annotations":{"org.opencontainers.image.ref.name":TAG}},
//!                             …tags in byte order, then manifests without a tag in the order of digests… ]}
//! ```
//!
//! The layout is derived from the records; the registry itself never reads it. Equal records give equal bytes. A push
//! only marks its repository as changed; some time later one write covers all changes since, so that the cost of
//! moving a tag does not depend on the number of tags. If the layout cannot be written (a full disk), the mark stays. After a start every
//! index is derived again and compared, so a crash leaves no outdated one.
//!
//! The pool is shared: a reader of the directory sees blobs of other repositories. Read access to the disk is read
//! access to all content.
//!
//! Specification: image-spec `image-layout.md`.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Serialize;

use super::disk::{self, exists};
use super::locks::Key;
use super::manifests::{Record, read_record};
use super::{MANIFESTS, Store};
use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::parse_manifest;
use crate::name::{RepositoryName, Tag};

pub(super) const LAYOUT: &[u8] = b"{\"imageLayoutVersion\":\"1.0.0\"}\n";
const HEAD: &[u8] =
    b"{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[";
const TAIL: &[u8] = b"\n]}\n";
const PIECE: usize = 64 << 10;

/// The result of [`Registry::rebuild`](crate::Registry::rebuild).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Repositories whose layout was written again.
    pub repositories: u64,
    /// Manifests that were read.
    pub manifests: u64,
    /// Manifests that could not be read; the layout lists them nevertheless.
    pub corrupted: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    media_type: &'a str,
    digest: String,
    size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotations<'a>>,
}

#[derive(Serialize)]
struct Annotations<'a> {
    #[serde(rename = "org.opencontainers.image.ref.name")]
    name: &'a str,
}

/// An index being written.
struct IndexWriter<'a> {
    store: &'a Store,
    path: &'a Path,
    file: File,
    pending: Vec<u8>,
    first: bool,
}

impl Store {
    /// Marks a repository whose tags or manifests changed.
    pub(super) fn changed(&self, name: &RepositoryName) {
        self.layouts_behind.lock().insert(name.clone());
        self.layouts_changed.notify_one();
    }

    /// Brings every layout up to date. A repository whose layout cannot be written stays marked; the first error is
    /// returned.
    pub(crate) fn flush_layouts(&self) -> Result<(), Error> {
        let _one_at_a_time = self.layouts_writing.lock();
        let behind = std::mem::take(&mut *self.layouts_behind.lock());
        let mut result = Ok(());
        for name in behind {
            if let Err(error) = self.write_layout(&name) {
                self.layouts_behind.lock().insert(name);
                result = result.and(Err(error));
            }
        }
        result
    }

    /// Derives again everything that is derived: layouts, and records of referrers.
    pub(crate) fn rebuild(&self) -> Result<Rebuilt, Error> {
        let mut rebuilt = Rebuilt::default();
        for name in self.repositories() {
            let Some(references) = self.references(&name) else { continue };
            for digest in self.recorded(&name, MANIFESTS)? {
                let digest = digest?;
                let _shared = references.shared();
                let Some(record) = read_record(&self.manifest_record(&name, &digest))? else { continue };
                rebuilt.manifests += 1;
                let parsed = match self.document(&digest, record.size) {
                    Ok(Some(document)) => parse_manifest(Some(&record.media_type), &document).ok(),
                    Ok(None) | Err(Error::Corrupted(_)) => None,
                    Err(error) => return Err(error),
                };
                match parsed {
                    None => rebuilt.corrupted += 1,
                    Some(parsed) => {
                        if let Some(referral) = &parsed.referral {
                            self.put_referrer(&name, referral, &record.descriptor())?;
                        }
                    }
                }
            }
            self.changed(&name);
            rebuilt.repositories += 1;
        }
        self.flush_layouts()?;
        Ok(rebuilt)
    }

    fn write_layout(&self, name: &RepositoryName) -> Result<(), Error> {
        // A removed repository has no layout.
        let Some(_present) = self.references(name) else { return Ok(()) };
        let repository = self.repository(name);
        let (marker, blobs, index) =
            (repository.join("oci-layout"), repository.join("blobs"), repository.join("index.json"));
        if !exists(&marker)? {
            self.disk.put(&self.temporary(), &marker, LAYOUT)?;
        }
        self.disk.link(Path::new("../../blobs"), &blobs)?;
        let path = self.temporary().join(uuid::Uuid::new_v4().to_string());
        let drafted = self.write_index(name, &path).and_then(|file| {
            if equal_files(&path, &index)? {
                self.disk.discard(&path);
                return Ok(());
            }
            self.disk.sync_file(&file, &path)?;
            self.disk.rename(&path, &index)
        });
        if drafted.is_err() {
            self.disk.discard(&path);
        }
        drafted.and_then(|()| self.disk.sync_directory(&repository))
    }

    fn write_index(&self, name: &RepositoryName, path: &Path) -> Result<File, Error> {
        let file = self.disk.create_file(path)?;
        let mut writer = IndexWriter { store: self, path, file, pending: HEAD.to_vec(), first: true };
        let mut tags: BTreeSet<Tag> = BTreeSet::new();
        for file in disk::names(&self.tags_directory(name))? {
            tags.extend(file?.parse::<Tag>());
        }
        let mut tagged = HashSet::new();
        for tag in &tags {
            if let Some(record) = read_record(&self.tag_record(name, tag))?
                && exists(&self.manifest_record(name, &record.digest))?
            {
                tagged.insert(Key::of(&record.digest));
                writer.add(&record, Some(tag.as_str()))?;
            }
        }
        let mut untagged: BTreeSet<Digest> = BTreeSet::new();
        for digest in self.recorded(name, MANIFESTS)? {
            let digest = digest?;
            if !tagged.contains(&Key::of(&digest)) {
                untagged.insert(digest);
            }
        }
        for digest in &untagged {
            if let Some(record) = read_record(&self.manifest_record(name, digest))? {
                writer.add(&record, None)?;
            }
        }
        writer.finish()
    }
}

/// An index with a few entries.
pub(super) fn index_document(entries: &[(Record, Option<&str>)]) -> Result<Vec<u8>, Error> {
    let mut document = HEAD.to_vec();
    for (number, (record, tag)) in entries.iter().enumerate() {
        write_entry(&mut document, number == 0, record, *tag)
            .map_err(|error| Error::io("encode", Path::new("index.json"))(error.into()))?;
    }
    document.extend_from_slice(TAIL);
    Ok(document)
}

fn write_entry(
    document: &mut Vec<u8>,
    first: bool,
    record: &Record,
    tag: Option<&str>,
) -> Result<(), serde_json::Error> {
    document.extend_from_slice(if first { b"\n" } else { b",\n" });
    let entry = Entry {
        media_type: &record.media_type,
        digest: record.digest.to_string(),
        size: record.size,
        annotations: tag.map(|name| Annotations { name }),
    };
    serde_json::to_writer(document, &entry)
}

impl IndexWriter<'_> {
    fn add(&mut self, record: &Record, tag: Option<&str>) -> Result<(), Error> {
        write_entry(&mut self.pending, self.first, record, tag)
            .map_err(|error| Error::io("encode the index", self.path)(error.into()))?;
        self.first = false;
        if self.pending.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.store.disk.write(&mut self.file, self.path, &self.pending)?;
        self.pending.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<File, Error> {
        self.pending.extend_from_slice(TAIL);
        self.flush()?;
        Ok(self.file)
    }
}

/// Whether both files exist and have equal bytes.
fn equal_files(one: &Path, other: &Path) -> Result<bool, Error> {
    let (Ok(mut one_file), Ok(mut other_file)) = (File::open(one), File::open(other)) else {
        return Ok(false);
    };
    let lengths = [&one_file, &other_file].map(|file| file.metadata().map(|metadata| metadata.len()).ok());
    if lengths[0] != lengths[1] {
        return Ok(false);
    }
    let mut pieces = [vec![0; PIECE], vec![0; PIECE]];
    loop {
        let got = one_file.read(&mut pieces[0]).map_err(Error::io("read", one))?;
        if got == 0 {
            return Ok(true);
        }
        other_file.read_exact(&mut pieces[1][..got]).map_err(Error::io("read", other))?;
        if pieces[0][..got] != pieces[1][..got] {
            return Ok(false);
        }
    }
}
