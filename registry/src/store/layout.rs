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
//! All of it is derived from the records; the registry itself never reads it. The same records give the same bytes.
//! A push only notes that its repository changed; some time later one write covers everything that happened since, so
//! that moving a tag costs the same however many there are. Where it cannot be written (a full disk) it stays noted.
//! After a start every index is made anew and compared, so a crash leaves none behind.
//!
//! The pool is shared: a reader of the directory sees blobs of other repositories. Who may read the disk may read all of it.
//!
//! Specification: image-spec `image-layout.md`.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Serialize;

use super::disk::{self, exists};
use super::locks::{Key, lock};
use super::manifests::{Record, read_record};
use super::{MANIFESTS, Store};
use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::understand;
use crate::name::{RepositoryName, Tag};

pub(super) const LAYOUT: &[u8] = b"{\"imageLayoutVersion\":\"1.0.0\"}\n";
const HEAD: &[u8] =
    b"{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[";
const TAIL: &[u8] = b"\n]}\n";
const PIECE: usize = 64 << 10;

/// What [`Registry::rebuild`](crate::Registry::rebuild) looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Repositories whose layout was made anew.
    pub repositories: u64,
    /// Manifests that were read.
    pub manifests: u64,
    /// Manifests that could not be read; they are listed all the same.
    pub damaged: u64,
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
struct Draft<'a> {
    store: &'a Store,
    path: &'a Path,
    file: File,
    pending: Vec<u8>,
    first: bool,
}

impl Store {
    /// Notes that the tags or manifests of a repository changed.
    pub(super) fn changed(&self, name: &RepositoryName) {
        lock(&self.layouts_behind).insert(name.clone());
        self.layouts_changed.notify_one();
    }

    /// Brings every layout up to date. What cannot be written stays noted; the first reason is returned.
    pub(crate) fn flush_layouts(&self) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.layouts_writing);
        let behind = std::mem::take(&mut *lock(&self.layouts_behind));
        let mut result = Ok(());
        for name in behind {
            if let Err(error) = self.write_layout(&name) {
                lock(&self.layouts_behind).insert(name);
                result = result.and(Err(error));
            }
        }
        result
    }

    /// Makes anew whatever is derived: layouts, and who refers to what.
    pub(crate) fn rebuild(&self) -> Result<Rebuilt, Error> {
        let mut rebuilt = Rebuilt::default();
        for name in self.repositories() {
            let Some(references) = self.references(&name) else { continue };
            for digest in self.recorded(&name, MANIFESTS)? {
                let digest = digest?;
                let _shared = references.shared();
                let Some(record) = read_record(&self.manifest_record(&name, &digest))? else { continue };
                rebuilt.manifests += 1;
                let understood = match self.document(&digest, record.size) {
                    Ok(Some(document)) => understand(Some(&record.media_type), &document).ok(),
                    Ok(None) | Err(Error::Damaged(_)) => None,
                    Err(error) => return Err(error),
                };
                match understood {
                    None => rebuilt.damaged += 1,
                    Some(understood) => {
                        if let Some(referral) = &understood.referral {
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
        let repository = self.repository(name);
        let (marker, blobs, index) =
            (repository.join("oci-layout"), repository.join("blobs"), repository.join("index.json"));
        if !exists(&marker)? {
            self.disk.put(&self.temporary(), &marker, LAYOUT)?;
        }
        self.disk.link(Path::new("../../blobs"), &blobs)?;
        let path = self.temporary().join(uuid::Uuid::new_v4().to_string());
        let drafted = self.draft_index(name, &path).and_then(|file| {
            if same(&path, &index)? {
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

    fn draft_index(&self, name: &RepositoryName, path: &Path) -> Result<File, Error> {
        let file = self.disk.create_file(path)?;
        let mut draft = Draft { store: self, path, file, pending: HEAD.to_vec(), first: true };
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
                draft.add(&record, Some(tag.as_str()))?;
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
                draft.add(&record, None)?;
            }
        }
        draft.finish()
    }
}

/// The index of a few entries.
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

impl Draft<'_> {
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

/// Whether both files are there and have the same bytes.
fn same(one: &Path, other: &Path) -> Result<bool, Error> {
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
