//! Images in and out of the registry, as directories and archives.
//!
//! ```text
//!  export  tar: oci-layout, index.json, blobs/<algorithm>/<hex>…     the same content gives the same bytes
//!  import  an OCI image layout, a directory or a tar of one
//!          what `docker save` writes: manifest.json beside configurations and layers
//!          the directory of a docker-registry: docker/registry/v2/{repositories/<name>/…,blobs/<algorithm>/<aa>/<hex>/data}
//! ```
//!
//! What is imported goes the way of every push: hashed while it is copied, refused when it is not what its descriptor
//! says, within quotas and the reserve, durable before it is counted. An archive is read where it lies, once for its table
//! of contents and then entry by entry; of its names only the table is asked, never the file system.
//!
//! Specification: image-spec `image-layout.md`; Docker Image Specification v1.2 for `docker save`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::layout::{LAYOUT, index_document};
use super::manifests::{read_bounded, read_record};
use super::{Store, disk};
use crate::digest::{Algorithm, Digest, Hasher};
use crate::error::Error;
use crate::manifest::understand;
use crate::name::{Reference, RepositoryName, Tag};

const PIECE: usize = 1 << 20;
/// Indexes in indexes in indexes.
const DEPTH_MAX: usize = 8;
/// A link of a docker-registry is a digest.
const LINK_MAX: u64 = 256;
const NAME_MAX: usize = 255;
const ENTRIES_MAX: usize = 1 << 20;
/// How Docker calls what it saves.
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";

/// What an import brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Tags that were moved.
    pub tags: BTreeSet<Tag>,
    /// Manifests stored.
    pub manifests: u64,
    /// Blobs copied; those that were there are not.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

enum Source {
    Directory(PathBuf),
    /// The directory above `repositories` and `blobs` of a docker-registry.
    Registry(PathBuf),
    /// The offset and length of each regular file in it.
    Archive(File, HashMap<PathBuf, (u64, u64)>),
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    #[serde(rename = "mediaType")]
    media_type: Option<String>,
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

struct Import<'a> {
    store: &'a Arc<Store>,
    name: &'a RepositoryName,
    source: &'a Source,
    imported: Imported,
}

impl Store {
    /// Imports the images of a layout or archive into a repository.
    pub(crate) fn import(self: &Arc<Self>, path: &Path, name: &RepositoryName) -> Result<Imported, Error> {
        let source = Source::open(path)?;
        let mut import = Import { store: self, name, source: &source, imported: Imported::default() };
        let limit = self.config.max_manifest_size as u64;
        if let Some(index) = source.read(Path::new("index.json"), limit)? {
            let index: Index = serde_json::from_slice(&index).map_err(not_a_layout)?;
            for entry in index.manifests {
                import.layout_entry(&entry)?;
            }
        } else if let Some(saved) = source.read(Path::new("manifest.json"), limit)? {
            let saved: Vec<Saved> = serde_json::from_slice(&saved).map_err(not_a_layout)?;
            for image in saved {
                import.saved_image(&image)?;
            }
        } else {
            return Err(Error::NotAnArchive("it has neither index.json nor manifest.json".to_owned()));
        }
        Ok(import.imported)
    }

    /// Imports every tag of every repository of a docker-registry.
    pub(crate) fn import_registry(
        self: &Arc<Self>,
        root: &Path,
    ) -> Result<BTreeMap<RepositoryName, Imported>, Error> {
        let root = root.join("docker/registry/v2");
        let repositories = root.join("repositories");
        if !repositories.is_dir() {
            return Err(Error::NotAnArchive("it has no docker/registry/v2/repositories".to_owned()));
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
                } else if !part.starts_with('_') && path.is_dir() {
                    let name = if above.is_empty() { part } else { format!("{above}/{part}") };
                    // Deeper than any name is long.
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
        let mut import = Import { store: self, name, source, imported: Imported::default() };
        for file in disk::names(tags)? {
            let Ok(tag) = file?.parse::<Tag>() else { continue };
            let link = tags.join(tag.as_str()).join("current/link");
            let Some(link) = read_bounded(&link, LINK_MAX)? else { continue };
            let digest = String::from_utf8_lossy(&link).trim().to_owned();
            let entry = Described { media_type: None, digest, annotations: BTreeMap::new() };
            import.manifest(&entry, &[tag], 0)?;
        }
        Ok(import.imported)
    }

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
            self.content_below(name, manifest.digest, &mut content)?;
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

    /// Adds to `content` what is there of a manifest and everything below it.
    fn content_below(
        &self,
        name: &RepositoryName,
        root: Digest,
        content: &mut BTreeSet<Digest>,
    ) -> Result<(), Error> {
        let mut open = vec![root];
        while let Some(digest) = open.pop() {
            let there = self.has_manifest(name, &digest)? || self.has_blob(name, &digest)?;
            if !there || !content.insert(digest.clone()) {
                continue;
            }
            if let Some(links) = self.links(name, &digest)? {
                open.extend(links.content);
            }
        }
        Ok(())
    }
}

impl Import<'_> {
    fn layout_entry(&mut self, entry: &Described) -> Result<(), Error> {
        let named = entry.annotations.get("org.opencontainers.image.ref.name");
        let tags: Vec<Tag> = named.and_then(|name| tag_of(name)).into_iter().collect();
        self.manifest(entry, &tags, 0)
    }

    /// Imports a manifest after what it refers to.
    fn manifest(&mut self, entry: &Described, tags: &[Tag], depth: usize) -> Result<(), Error> {
        if depth == DEPTH_MAX {
            return Err(Error::NotAnArchive(format!("its indexes are more than {DEPTH_MAX} deep")));
        }
        let digest: Digest = entry.digest.parse().map_err(not_a_layout)?;
        let limit = self.store.config.max_manifest_size as u64;
        let Some(document) = self.source.read(&in_layout(&digest), limit)? else {
            return Err(Error::NotAnArchive(format!("the content of {digest} is not in it")));
        };
        let actual = Digest::of(digest.algorithm(), &document);
        if actual != digest {
            return Err(Error::DigestMismatch { expected: digest, actual });
        }
        let understood = understand(entry.media_type.as_deref(), &document).map_err(not_a_layout)?;
        if let Ok(index) = serde_json::from_slice::<Index>(&document) {
            for child in &index.manifests {
                // An index may list what was never meant to come along.
                let path = child.digest.parse().map(|digest| in_layout(&digest));
                if let Ok(path) = path
                    && self.source.find(&path)?.is_some()
                {
                    self.manifest(child, &[], depth + 1)?;
                }
            }
        }
        for blob in super::mark::Links::read(&document).map_err(not_a_layout)?.content {
            if !self.store.has_manifest(self.name, &blob)? {
                self.blob(&in_layout(&blob), &blob)?;
            }
        }
        self.put(&digest, &understood, &document, tags)
    }

    fn saved_image(&mut self, image: &Saved) -> Result<(), Error> {
        let (config, config_size, _) = self.saved_file(&image.config)?;
        let mut layers = Vec::new();
        for layer in &image.layers {
            let (digest, size, compressed) = self.saved_file(layer)?;
            let kind = if compressed { format!("{DOCKER_LAYER}.gzip") } else { DOCKER_LAYER.to_owned() };
            layers.push(json!({"mediaType": kind, "size": size, "digest": digest.to_string()}));
        }
        let config = json!({"mediaType": DOCKER_CONFIG, "size": config_size, "digest": config.to_string()});
        let document = json!({
            "schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": config, "layers": layers,
        });
        let document = document.to_string().into_bytes();
        let understood = understand(Some(DOCKER_MANIFEST), &document).map_err(not_a_layout)?;
        let tags: Vec<Tag> = image.repo_tags.iter().flatten().filter_map(|name| tag_of(name)).collect();
        self.put(&Digest::of(Algorithm::Sha256, &document), &understood, &document, &tags)
    }

    /// Imports a file whose digest is not known before it was read; also whether it is compressed.
    fn saved_file(&mut self, name: &str) -> Result<(Digest, u64, bool), Error> {
        let path = Path::new(name);
        let missing = || Error::NotAnArchive(format!("{name:?} is not in it"));
        let mut reader = self.source.find(path)?.ok_or_else(missing)?;
        let mut hasher = Hasher::new(Algorithm::Sha256);
        let (mut size, mut magic) = (0, Vec::new());
        while let Some(piece) = next_piece(&mut reader)? {
            if size == 0 {
                magic = piece.iter().take(2).copied().collect();
            }
            hasher.update(&piece);
            size += piece.len() as u64;
        }
        let digest = hasher.finish();
        self.blob(path, &digest)?;
        Ok((digest, size, magic == [0x1f, 0x8b]))
    }

    /// Copies a blob, unless the repository has it or the source does not.
    fn blob(&mut self, path: &Path, digest: &Digest) -> Result<(), Error> {
        if self.store.has_blob(self.name, digest)? {
            return Ok(());
        }
        let Some(mut reader) = self.source.find(path)? else { return Ok(()) };
        let session = self.store.begin_upload(self.name, digest.algorithm())?;
        let turn = session.try_turn().ok_or(Error::UploadBusy(session.id))?;
        let mut sink = self.store.sink(Arc::clone(&session), turn)?;
        let mut copied = 0;
        loop {
            match next_piece(&mut reader) {
                Ok(None) => break,
                Ok(Some(piece)) => {
                    copied += piece.len() as u64;
                    sink = sink.append(&piece).inspect_err(|_| self.store.abandon(&session))?;
                }
                Err(error) => {
                    sink.cancel();
                    return Err(error);
                }
            }
        }
        sink.finish(digest)?;
        self.imported.blobs += 1;
        self.imported.bytes += copied;
        Ok(())
    }

    fn put(
        &mut self,
        digest: &Digest,
        understood: &crate::manifest::Understood,
        document: &[u8],
        tags: &[Tag],
    ) -> Result<(), Error> {
        self.store.expect_space_for(document.len() as u64)?;
        self.store.put_manifest(self.name, tags, digest, understood, document)?;
        self.imported.manifests += 1;
        self.imported.tags.extend(tags.iter().cloned());
        Ok(())
    }
}

impl Source {
    fn open(path: &Path) -> Result<Self, Error> {
        if path.is_dir() {
            return Ok(Source::Directory(path.to_owned()));
        }
        let failed = || Error::io("read the archive", path);
        let file = File::open(path).map_err(failed())?;
        let mut entries = HashMap::new();
        let mut archive = tar::Archive::new(&file);
        for entry in archive.entries_with_seek().map_err(failed())? {
            let entry = entry.map_err(failed())?;
            if entries.len() == ENTRIES_MAX {
                return Err(Error::NotAnArchive(format!("it has more than {ENTRIES_MAX} entries")));
            }
            if entry.header().entry_type().is_file() {
                let name = entry.path().map_err(failed())?;
                let name: PathBuf =
                    name.components().filter(|part| !matches!(part, Component::CurDir)).collect();
                entries.insert(name, (entry.raw_file_position(), entry.size()));
            }
        }
        Ok(Source::Archive(file, entries))
    }

    /// A file of the source, to be read from its beginning.
    fn find(&self, path: &Path) -> Result<Option<std::io::Take<File>>, Error> {
        let failed = || Error::io("read", path);
        match self {
            Source::Registry(root) => {
                let Some(digest) = digest_of(path) else { return Ok(None) };
                let fan_out = digest.hex().get(..2).unwrap_or_default();
                let directory = root.join("blobs").join(digest.algorithm().as_str()).join(fan_out);
                Source::Directory(directory.join(digest.hex())).find(Path::new("data"))
            }
            Source::Directory(root) => {
                if path.components().any(|part| !matches!(part, Component::Normal(_))) {
                    return Err(Error::NotAnArchive(format!("{} leads out of it", path.display())));
                }
                match File::open(root.join(path)) {
                    Ok(file) => {
                        let length = file.metadata().map_err(failed())?.len();
                        Ok(Some(file.take(length)))
                    }
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(failed()(error)),
                }
            }
            Source::Archive(file, entries) => {
                let Some((offset, length)) = entries.get(path) else { return Ok(None) };
                // Readers share the place in the file, and there is one reader at a time.
                let mut file = file.try_clone().map_err(failed())?;
                file.seek(SeekFrom::Start(*offset)).map_err(failed())?;
                Ok(Some(file.take(*length)))
            }
        }
    }

    /// A small file of the source.
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Error> {
        let Some(mut reader) = self.find(path)? else { return Ok(None) };
        if reader.limit() > limit {
            return Err(Error::NotAnArchive(format!("{} is larger than {limit} bytes", path.display())));
        }
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(Error::io("read", path))?;
        Ok(Some(bytes))
    }
}

/// The next megabyte; `None` at the end.
fn next_piece(reader: &mut std::io::Take<File>) -> Result<Option<Bytes>, Error> {
    let mut piece = Vec::new();
    let got = reader.by_ref().take(PIECE as u64).read_to_end(&mut piece);
    let got = got.map_err(Error::io("read", Path::new("the archive")))?;
    Ok((got > 0).then(|| Bytes::from(piece)))
}

fn in_layout(digest: &Digest) -> PathBuf {
    Path::new("blobs").join(digest.algorithm().as_str()).join(digest.hex())
}

fn digest_of(path: &Path) -> Option<Digest> {
    let (algorithm, hex) = path.to_str()?.strip_prefix("blobs/")?.split_once('/')?;
    format!("{algorithm}:{hex}").parse().ok()
}

/// The tag in `tag`, `name:tag` or `host:port/name:tag`.
fn tag_of(name: &str) -> Option<Tag> {
    name.rsplit(':').next()?.parse().ok()
}

fn not_a_layout(error: impl std::fmt::Display) -> Error {
    Error::NotAnArchive(error.to_string())
}
