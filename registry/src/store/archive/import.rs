//! Imports: a document is read and parsed, the content it refers to is copied, then the document is put.
//!
//! ```text
//!  index.json ─> each manifest once, with all its tags ─> its content: manifests likewise, blobs ─> put
//!  manifest.json ─> each file once: read for its digest, copied by its digest ─> a Docker manifest ─> put
//! ```
//!
//! A document that is listed several times is imported once, so an import does no more work than its source has bytes.
//! A name that is no tag is reported and skipped; an image that has only such names is not imported, since nothing could
//! refer to it. Where images with different names (`a:1`, `b:1`) would get one tag, nothing is imported.
//! A tag of a docker-registry whose image is damaged is reported, and the others are imported.
//! An interrupted import leaves only whole content and no upload; the next one copies what is missing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use super::Imported;
use super::source::{Reader, Source};
use crate::digest::{Algorithm, Digest, Hasher};
use crate::error::Error;
use crate::manifest::{is_manifest, parse_manifest};
use crate::name::{RepositoryName, Tag};
use crate::store::{Session, Store, disk};

/// The limit of nested indexes.
const DEPTH_MAX: usize = 32;
/// The limit of layers of one image in an archive of `docker save`.
const LAYERS_MAX: usize = 10_000;
/// The length limit of a link of a docker-registry, which holds a digest.
const LINK_MAX: usize = 256;
const NAME_MAX: usize = 255;
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation with the full name of an image that Docker and containerd write.
const FULL_NAME: &str = "io.containerd.image.name";
/// The media types of what `docker save` writes.
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";

#[derive(Deserialize)]
struct Index {
    manifests: Option<Vec<Described>>,
}

#[derive(Deserialize)]
struct Described {
    #[serde(rename = "mediaType")]
    media_type: Option<String>,
    digest: String,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// A file that was read for its digest.
#[derive(Clone)]
struct SavedFile {
    digest: Digest,
    size: u64,
    compressed: bool,
}

struct Import<'a> {
    store: &'a Arc<Store>,
    name: &'a RepositoryName,
    source: &'a Source,
    imported: Imported,
    /// Imported manifests.
    done: HashSet<Digest>,
    /// Imported files of `docker save`.
    files: HashMap<String, SavedFile>,
}

impl Store {
    /// Imports the images of a layout or archive into a repository.
    pub(crate) fn import(self: &Arc<Self>, path: &Path, name: &RepositoryName) -> Result<Imported, Error> {
        let source = Source::open(path)?;
        let mut import = Import::new(self, name, &source);
        let limit = self.config.max_manifest_size;
        if let Some(index) = source.named(Path::new("index.json"))? {
            let index: Index = serde_json::from_slice(&index.whole(limit)?).map_err(not_a_layout)?;
            let entries = index.manifests.unwrap_or_default();
            expect_one_image(entries.iter().filter_map(Described::claim))?;
            let (images, skipped) = by_manifest(entries);
            for (entry, tags) in images {
                import.entry(&entry, &tags, 0)?;
            }
            import.imported.skipped = skipped;
        } else if let Some(saved) = source.named(Path::new("manifest.json"))? {
            let saved: Vec<Saved> = serde_json::from_slice(&saved.whole(limit)?).map_err(not_a_layout)?;
            expect_one_image(saved.iter().flat_map(Saved::claims))?;
            for image in saved {
                import.saved_image(&image)?;
            }
        } else {
            return Err(Error::NotAnArchive(
                "the source has neither index.json nor manifest.json".to_owned(),
            ));
        }
        Ok(import.imported)
    }

    /// Imports every tag of every repository of a docker-registry directory.
    pub(crate) fn import_registry(
        self: &Arc<Self>,
        root: &Path,
    ) -> Result<BTreeMap<RepositoryName, Imported>, Error> {
        let root = root.join("docker/registry/v2");
        let repositories = root.join("repositories");
        if !repositories.is_dir() {
            return Err(Error::NotAnArchive(
                "the directory has no docker/registry/v2/repositories".to_owned(),
            ));
        }
        let source = Source::Registry(root);
        let mut all = BTreeMap::new();
        let mut open = vec![(repositories, String::new())];
        while let Some((directory, above)) = open.pop() {
            for part in disk::names(&directory)? {
                let part = part?;
                let path = directory.join(&part);
                if part == "_manifests" {
                    if let Ok(name) = above.parse::<RepositoryName>() {
                        let imported = self.import_tags(&source, &path.join("tags"), &name)?;
                        all.insert(name, imported);
                    }
                // A link to a directory could lead back to one above it.
                } else if !part.starts_with('_') && path.symlink_metadata().is_ok_and(|found| found.is_dir())
                {
                    let name = if above.is_empty() { part } else { format!("{above}/{part}") };
                    // Deeper than the length of a name allows.
                    if name.len() <= NAME_MAX {
                        open.push((path, name));
                    }
                }
            }
        }
        Ok(all)
    }

    fn import_tags(
        self: &Arc<Self>,
        source: &Source,
        tags: &Path,
        name: &RepositoryName,
    ) -> Result<Imported, Error> {
        let mut import = Import::new(self, name, source);
        for file in disk::names(tags)? {
            let file = file?;
            let Ok(tag) = file.parse::<Tag>() else {
                import.imported.skipped.insert(file);
                continue;
            };
            let link = tags.join(tag.as_str()).join("current/link");
            match import.linked(&link, &tag) {
                Err(error) if !error.is_of_target() => {
                    import.imported.failed.insert(tag, error.to_string());
                }
                other => other?,
            }
        }
        Ok(import.imported)
    }
}

impl Described {
    /// The tag that an entry with a full name would get, the name, and its manifest.
    fn claim(&self) -> Option<(Tag, &str, &str)> {
        let annotations = self.annotations.as_ref()?;
        let name = annotations.get(REF_NAME)?;
        let full = annotations.get(FULL_NAME).unwrap_or(name);
        tag_of(name).filter(|tag| tag.as_str() != full).map(|tag| (tag, full.as_str(), self.digest.as_str()))
    }
}

impl Saved {
    /// The tag that each full name would get, the name, and the files of the image.
    fn claims(&self) -> impl Iterator<Item = (Tag, &str, (&str, &[String]))> {
        let files = (self.config.as_str(), self.layers.as_slice());
        let names = self.repo_tags.iter().flatten();
        names.filter_map(move |name| {
            let tag = tag_of(name).filter(|tag| tag.as_str() != name)?;
            Some((tag, name.as_str(), files))
        })
    }
}

/// Fails when two images with different full names would get one tag. Of two images with one full name the later counts.
fn expect_one_image<'a, I: PartialEq>(
    claims: impl IntoIterator<Item = (Tag, &'a str, I)>,
) -> Result<(), Error> {
    let mut images: BTreeMap<Tag, BTreeMap<&str, I>> = BTreeMap::new();
    for (tag, name, image) in claims {
        images.entry(tag).or_default().insert(name, image);
    }
    for (tag, named) in images {
        let mut named = named.into_iter();
        let Some((first, image)) = named.next() else { continue };
        if let Some((other, _)) = named.find(|(_, other)| *other != image) {
            return Err(Error::AmbiguousTag { tag, names: [first, other].map(str::to_owned) });
        }
    }
    Ok(())
}

/// Groups entries by manifest, each with its tags; returns the names that are no tags as well. The later of two entries
/// for one tag counts.
fn by_manifest(entries: Vec<Described>) -> (Vec<(Described, Vec<Tag>)>, BTreeSet<String>) {
    let mut skipped = BTreeSet::new();
    let mut named: Vec<(Described, Option<Tag>)> = Vec::new();
    for entry in entries {
        let name = entry.annotations.as_ref().and_then(|annotations| annotations.get(REF_NAME));
        match name.map(|name| (name, tag_of(name))) {
            None => named.push((entry, None)),
            Some((_, Some(tag))) => named.push((entry, Some(tag))),
            Some((name, None)) => drop(skipped.insert(name.clone())),
        }
    }
    let last: HashMap<Tag, usize> =
        named.iter().enumerate().filter_map(|(at, (_, tag))| Some((tag.clone()?, at))).collect();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut grouped: Vec<(Described, Vec<Tag>)> = Vec::new();
    for (at, (entry, tag)) in named.into_iter().enumerate() {
        let tag = tag.filter(|tag| last.get(tag) == Some(&at));
        let place = *places.entry(entry.digest.clone()).or_insert(grouped.len());
        match grouped.get_mut(place) {
            Some((_, tags)) => tags.extend(tag),
            None => grouped.push((entry, tag.into_iter().collect())),
        }
    }
    (grouped, skipped)
}

impl<'a> Import<'a> {
    fn new(store: &'a Arc<Store>, name: &'a RepositoryName, source: &'a Source) -> Self {
        let (imported, done, files) = (Imported::default(), HashSet::new(), HashMap::new());
        Import { store, name, source, imported, done, files }
    }

    /// Imports the image that a link of a docker-registry leads to, if there is one.
    fn linked(&mut self, link: &Path, tag: &Tag) -> Result<(), Error> {
        let Some(link) = Reader::of(link)? else { return Ok(()) };
        let digest = String::from_utf8_lossy(&link.whole(LINK_MAX)?).trim().to_owned();
        let entry = Described { media_type: None, digest, annotations: None };
        self.entry(&entry, std::slice::from_ref(tag), 0)
    }

    /// Imports an entry of an index, after the content it refers to.
    fn entry(&mut self, entry: &Described, tags: &[Tag], depth: usize) -> Result<(), Error> {
        let digest: Digest = entry.digest.parse().map_err(not_a_layout)?;
        if entry.media_type.as_deref().is_some_and(|kind| !is_manifest(kind)) {
            // An index may list content of any media type.
            return self.blob(&digest);
        }
        let new = !self.done.contains(&digest);
        if !new && tags.is_empty() {
            return Ok(());
        }
        if depth == DEPTH_MAX {
            return Err(Error::NotAnArchive(format!("the indexes are nested more than {DEPTH_MAX} deep")));
        }
        if new {
            self.below(&digest, entry.media_type.as_deref(), depth)?;
        }
        // Read again: while its content was imported, the document was not kept in memory.
        let document = self.document(&digest)?;
        let parsed = parse_manifest(entry.media_type.as_deref(), &document).map_err(not_a_layout)?;
        self.put(&digest, &parsed, &document, tags)?;
        self.done.insert(digest);
        Ok(())
    }

    /// Imports the content a manifest refers to, as far as the source has it.
    fn below(&mut self, digest: &Digest, kind: Option<&str>, depth: usize) -> Result<(), Error> {
        let document = self.document(digest)?;
        let links = parse_manifest(kind, &document).map_err(not_a_layout)?.links;
        let index: Index = serde_json::from_slice(&document).map_err(not_a_layout)?;
        drop(document);
        for child in index.manifests.iter().flatten() {
            // An index may list manifests that the source does not have.
            if let Ok(listed) = child.digest.parse()
                && self.source.content(&listed)?.is_some()
            {
                self.entry(child, &[], depth + 1)?;
            }
        }
        for blob in links.content {
            let manifest = self.store.manifest_record(self.name, &blob);
            if !self.done.contains(&blob) && !self.store.renew(&manifest, &blob)? {
                self.blob(&blob)?;
            }
        }
        Ok(())
    }

    /// Reads a manifest from the source and verifies its digest.
    fn document(&self, digest: &Digest) -> Result<Vec<u8>, Error> {
        let missing = || Error::NotAnArchive(format!("the content of {digest} is missing"));
        let reader = self.source.content(digest)?.ok_or_else(missing)?;
        let document = reader.whole(self.store.config.max_manifest_size)?;
        let actual = Digest::of(digest.algorithm(), &document);
        if actual == *digest {
            Ok(document)
        } else {
            Err(Error::DigestMismatch { expected: digest.clone(), actual })
        }
    }

    fn saved_image(&mut self, image: &Saved) -> Result<(), Error> {
        let mut tags: Vec<Tag> = Vec::new();
        let names = image.repo_tags.as_deref().unwrap_or_default();
        for name in names {
            match tag_of(name) {
                Some(tag) => tags.push(tag),
                None => drop(self.imported.skipped.insert(name.clone())),
            }
        }
        if tags.is_empty() && !names.is_empty() {
            return Ok(());
        }
        if image.layers.len() > LAYERS_MAX {
            return Err(Error::NotAnArchive(format!("an image has more than {LAYERS_MAX} layers")));
        }
        let config = self.saved_file(&image.config)?;
        let mut layers = Vec::new();
        for layer in &image.layers {
            let SavedFile { digest, size, compressed } = self.saved_file(layer)?;
            let kind = if compressed { format!("{DOCKER_LAYER}.gzip") } else { DOCKER_LAYER.to_owned() };
            layers.push(json!({"mediaType": kind, "size": size, "digest": digest.to_string()}));
        }
        let config =
            json!({"mediaType": DOCKER_CONFIG, "size": config.size, "digest": config.digest.to_string()});
        let document = json!({
            "schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": config, "layers": layers,
        });
        let document = document.to_string().into_bytes();
        let parsed = parse_manifest(Some(DOCKER_MANIFEST), &document).map_err(not_a_layout)?;
        self.put(&Digest::of(Algorithm::Sha256, &document), &parsed, &document, &tags)
    }

    /// Imports a file whose digest is unknown until it is read.
    fn saved_file(&mut self, name: &str) -> Result<SavedFile, Error> {
        if let Some(known) = self.files.get(name) {
            return Ok(known.clone());
        }
        let missing = || Error::NotAnArchive(format!("the file {name:?} is missing"));
        let find = || self.source.named(Path::new(name))?.ok_or_else(missing);
        let mut reader = find()?;
        let mut hasher = Hasher::new(Algorithm::Sha256);
        let (mut size, mut magic) = (0, Vec::new());
        while let Some(piece) = reader.next_piece()? {
            if size == 0 {
                magic = piece.iter().take(2).copied().collect();
            }
            hasher.update(&piece);
            size += piece.len() as u64;
        }
        let digest = hasher.finish();
        let again = find()?;
        self.copy(again, &digest)?;
        let file = SavedFile { digest, size, compressed: magic == [0x1f, 0x8b] };
        self.files.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    /// Copies a blob, unless the source does not have it.
    fn blob(&mut self, digest: &Digest) -> Result<(), Error> {
        match self.source.content(digest)? {
            Some(reader) => self.copy(reader, digest),
            None => Ok(()),
        }
    }

    /// Copies a blob, or renews it if the repository has it: it must stay until its manifest is put.
    fn copy(&mut self, reader: Reader, digest: &Digest) -> Result<(), Error> {
        if self.store.renew(&self.store.layer_record(self.name, digest), digest)? {
            return Ok(());
        }
        let limit = self.store.config.max_blob_size;
        if reader.length() > limit {
            return Err(Error::NotAnArchive(format!("{digest} is larger than the limit of {limit} bytes")));
        }
        let session = self.store.begin_upload(self.name, digest.algorithm())?;
        let copied = self.fill(&session, reader, digest).inspect_err(|_| self.store.abandon(&session))?;
        self.imported.blobs += 1;
        self.imported.bytes += copied;
        Ok(())
    }

    fn fill(&self, session: &Arc<Session>, mut reader: Reader, digest: &Digest) -> Result<u64, Error> {
        let lock = session.try_lock().ok_or(Error::UploadBusy(session.id))?;
        let mut sink = self.store.sink(Arc::clone(session), lock)?.announce(reader.length())?;
        let mut copied = 0;
        while let Some(piece) = reader.next_piece()? {
            copied += piece.len() as u64;
            sink = sink.append(&piece)?;
        }
        sink.finish(digest)?;
        Ok(copied)
    }

    fn put(
        &mut self,
        digest: &Digest,
        parsed: &crate::manifest::ParsedManifest,
        document: &[u8],
        tags: &[Tag],
    ) -> Result<(), Error> {
        self.store.expect_space_for(document.len() as u64)?;
        self.store.put_manifest(self.name, tags, digest, parsed, document)?;
        self.imported.manifests += u64::from(!self.done.contains(digest));
        self.imported.tags.extend(tags.iter().cloned());
        Ok(())
    }
}

/// The tag in `tag`, `name:tag` or `host:port/name:tag`.
fn tag_of(name: &str) -> Option<Tag> {
    name.rsplit(':').next()?.parse().ok()
}

fn not_a_layout(error: impl std::fmt::Display) -> Error {
    Error::NotAnArchive(error.to_string())
}
