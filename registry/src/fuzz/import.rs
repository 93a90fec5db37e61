//! Imports of arbitrary bytes, as an archive or as a directory.
//!
//! ```text
//!  archive                              or "directory"; any other text is the archive itself, byte for byte
//!  == 0 blobs/sha256/@h0                entry 0: a file whose name holds the digest of its own content
//!  a layer
//!  == 2 another/name -> ../elsewhere    entry 1: a link
//!  == 0=99999 index.json                entry 2: a file with a wrong size in its header
//!  {"digest":"@d0","size":@s0}          the digest and the length of entry 0, or of any earlier one
//! ```
//!
//! The character after `==` is the type of the entry in the archive's header. Digests and checksums are computed, so
//! that a changed byte still reaches the parser behind them.
//!
//! Invariants of each import: nothing of the file system outside of the source is stored; stored content hashes to its
//! name; no upload and no temporary file is left; an export imports again and exports as the same bytes; and a second
//! import of the same source has the same result without copying anything.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use crate::config::{Config, Reserve};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::name::{Reference, RepositoryName};
use crate::store::{Imported, Store};

const ENTRIES_MAX: usize = 24;
const BLOCK: usize = 512;

/// One import, or a mutant in its place.
pub(super) type Importer<'a> = dyn Fn(&Arc<Store>, &Path, &RepositoryName) -> Result<Imported, Error> + 'a;

/// A directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("registry-{}", Uuid::new_v4()));
        made(fs::create_dir(&path));
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One entry of the source.
struct Entry {
    kind: u8,
    name: Vec<u8>,
    link: Vec<u8>,
    size: Option<u64>,
    body: Vec<u8>,
}

/// Imports the source described by `data` into a new store by `importer`, and checks the invariants.
pub(super) fn import_by(data: &[u8], importer: &Importer<'_>) {
    let scratch = Scratch::new();
    let secret = Uuid::new_v4().to_string();
    made(fs::write(scratch.0.join("secret"), &secret));
    let source = scratch.0.join("source");
    build(data, &source);

    let mut config = Config::new(scratch.0.join("store"));
    (config.reserve, config.max_manifest_size, config.max_blob_size) = (Reserve::Bytes(0), 1 << 16, 1 << 20);
    let store = Arc::new(done(Store::open(config)));
    let [name, other] = ["imported", "again"].map(|name| match name.parse::<RepositoryName>() {
        Ok(name) => name,
        Err(refusal) => unreachable!("{refusal}"),
    });
    let first = importer(&store, &source, &name);
    check(&store, &scratch.0.join("store"), &secret);
    let again = importer(&store, &source, &name);
    match (first, again) {
        (Ok(first), Ok(again)) => {
            assert_eq!((again.blobs, again.bytes, &again.tags), (0, 0, &first.tags));
            if !first.tags.is_empty() {
                assert!(
                    first.tags.iter().all(|tag| store.resolve(&name, &Reference::Tag(tag.clone())).is_ok())
                );
                let exported = export(&store, &name);
                let path = scratch.0.join("exported");
                made(fs::write(&path, &exported));
                let back = done(store.import(&path, &other));
                assert_eq!(back.tags, first.tags);
                assert!(export(&store, &other) == exported, "the second export differs");
            }
        }
        (Err(_), Err(_)) => {}
        (first, again) => unreachable!("first {first:?}, then {again:?}"),
    }
    if source.is_dir() {
        let _ = store.import_registry(&source);
    }
    check(&store, &scratch.0.join("store"), &secret);
}

fn export(store: &Store, name: &RepositoryName) -> Vec<u8> {
    let mut bytes = Vec::new();
    done(store.export(name, None, &mut bytes));
    bytes
}

/// Checks that all stored content is whole, that nothing unfinished is left, and that nothing beside the source is
/// stored.
fn check(store: &Arc<Store>, root: &Path, secret: &str) {
    for directory in ["uploads", "tmp", "states"] {
        assert!(
            made(fs::read_dir(root.join(directory))).next().is_none(),
            "something is left in {directory}"
        );
    }
    assert_eq!(done(store.sweep_uploads(std::time::SystemTime::now())).sessions, 0);
    for algorithm in Algorithm::ALL {
        for file in made(fs::read_dir(root.join("blobs").join(algorithm.as_str()))) {
            let file = made(file);
            let content = made(fs::read(file.path()));
            assert_eq!(Digest::of(algorithm, &content).hex(), file.file_name().to_string_lossy());
            assert!(content != secret.as_bytes(), "content from outside of the source was imported");
        }
    }
}

/// Creates the source described by `data`: a file or a directory.
fn build(data: &[u8], source: &Path) {
    let described = |first: &[u8]| data.strip_prefix(first).map(entries);
    if let Some(entries) = described(b"directory\n== ") {
        build_directory(&entries, source);
    } else if let Some(entries) = described(b"archive\n== ") {
        made(fs::write(source, archive(&entries)));
    } else {
        made(fs::write(source, data));
    }
}

/// Parses entries, each with its references to earlier entries or to itself replaced.
fn entries(text: &[u8]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut rest = Some(text);
    while let Some(text) = rest.filter(|_| entries.len() < ENTRIES_MAX) {
        let end = text.windows(4).position(|window| window == b"\n== ");
        let this = &text[..end.unwrap_or(text.len())];
        rest = end.map(|end| &text[end + 4..]);
        let (head, body) = split(this, b"\n");
        let (kind, name) = split(head, b" ");
        let (name, link) = split(name, b" -> ");
        let size = kind.get(2..).and_then(|size| std::str::from_utf8(size).ok()?.parse().ok());
        let kind = kind.first().copied().unwrap_or(b'0');
        let body = filled(body, &entries);
        entries.push(Entry { kind, name: Vec::new(), link: link.to_vec(), size, body });
        let name = filled(name, &entries);
        if let Some(entry) = entries.last_mut() {
            entry.name = name;
        }
    }
    entries
}

fn split<'a>(text: &'a [u8], border: &[u8]) -> (&'a [u8], &'a [u8]) {
    match text.windows(border.len()).position(|window| window == border) {
        Some(at) => (&text[..at], &text[at + border.len()..]),
        None => (text, &[]),
    }
}

/// Replaces `@d0`, `@h0` and `@s0` by digest, hex value and length of the first entry, and so on.
fn filled(text: &[u8], entries: &[Entry]) -> Vec<u8> {
    let mut filled = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let reference = match after {
            [what @ (b'd' | b'h' | b's'), number, after @ ..] if *byte == b'@' => {
                let number = char::from(*number).to_digit(36).map(|number| number as usize);
                number.and_then(|number| entries.get(number)).map(|entry| (what, entry, after))
            }
            _ => None,
        };
        let Some((what, Entry { body, .. }, after)) = reference else {
            filled.push(*byte);
            rest = after;
            continue;
        };
        let digest = Digest::of(Algorithm::Sha256, body);
        let text = match what {
            b'd' => digest.to_string(),
            b'h' => digest.hex().to_owned(),
            _ => body.len().to_string(),
        };
        filled.extend_from_slice(text.as_bytes());
        rest = after;
    }
    filled
}

fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        let mut head = tar::Header::new_ustar();
        let raw = head.as_mut_bytes();
        // What does not fit is cut: long names need entries of their own type.
        let (name, link) = (entry.name.len().min(100), entry.link.len().min(100));
        raw[..name].copy_from_slice(&entry.name[..name]);
        raw[157..157 + link].copy_from_slice(&entry.link[..link]);
        raw[156] = entry.kind;
        head.set_size(entry.size.unwrap_or(entry.body.len() as u64));
        head.set_cksum();
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(&entry.body);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    }
    bytes.resize(bytes.len() + 2 * BLOCK, 0);
    bytes
}

/// Files first, so that none is written through a link.
fn build_directory(entries: &[Entry], source: &Path) {
    use std::os::unix::ffi::OsStrExt;
    made(fs::create_dir(source));
    let root = made(source.canonicalize());
    let is_link = |entry: &&Entry| matches!(entry.kind, b'1' | b'2' | b'6');
    let (links, files): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(is_link);
    for entry in files.into_iter().chain(links) {
        let path = root.join(std::ffi::OsStr::from_bytes(&entry.name));
        let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
        let Some(parent) = path.parent().filter(|_| !climbs && path.starts_with(&root)) else { continue };
        // An entry that cannot be created, on top of another file or without a name, is left out.
        if fs::create_dir_all(parent).is_err()
            || !parent.canonicalize().is_ok_and(|found| found.starts_with(&root))
        {
            continue;
        }
        let target = Path::new(std::ffi::OsStr::from_bytes(&entry.link));
        let _ = match entry.kind {
            b'1' | b'2' => std::os::unix::fs::symlink(target, &path),
            b'5' => fs::create_dir(&path),
            b'6' => {
                let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
                rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).map_err(Into::into)
            }
            _ => fs::write(&path, &entry.body),
        };
    }
}

/// The result of an operation of the harness itself, which must succeed.
fn made<T>(result: std::io::Result<T>) -> T {
    result.unwrap_or_else(|error| unreachable!("the harness failed: {error}"))
}

fn done<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}: {error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn seeds() -> Vec<(String, Vec<u8>)> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/registry_import");
        let mut seeds: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|file| file.unwrap().path())
            .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap()))
            .collect();
        seeds.sort();
        seeds
    }

    /// The seeds with which `importer` violates an invariant.
    fn noticed(importer: &Importer<'_>) -> Vec<String> {
        let holds = |data: &[u8]| catch_unwind(AssertUnwindSafe(|| import_by(data, importer))).is_ok();
        seeds().into_iter().filter(|(_, data)| !holds(data)).map(|(name, _)| name).collect()
    }

    #[test]
    fn every_seed_has_the_outcome_of_its_name() {
        for (name, data) in seeds() {
            let scratch = Scratch::new();
            let source = scratch.0.join("source");
            build(&data, &source);
            let store = Arc::new(Store::open(Config::new(scratch.0.join("store"))).unwrap());
            let imported = store.import(&source, &"a".parse().unwrap());
            let refused = name.starts_with("refused_") || name.starts_with("tree_");
            assert_eq!(imported.is_err(), refused, "{name}: {imported:?}");
            if name.starts_with("tree_") {
                assert!(!store.import_registry(&source).unwrap().is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn an_importer_that_follows_links_out_of_a_directory_is_detected() {
        let follows = |store: &Arc<Store>, source: &Path, name: &RepositoryName| {
            for file in fs::read_dir(source).into_iter().flatten() {
                let path = file.unwrap().path();
                if path.is_symlink() && path.is_file() {
                    let content = fs::read(&path).unwrap();
                    fs::remove_file(&path).unwrap();
                    fs::write(&path, content).unwrap();
                }
            }
            store.import(source, name)
        };
        assert!(noticed(&follows).contains(&"refused_directory_link_out".to_owned()));
    }

    #[test]
    fn an_importer_that_trusts_the_digests_of_an_archive_is_detected() {
        let believes = |store: &Arc<Store>, source: &Path, name: &RepositoryName| {
            let imported = store.import(source, name);
            if let Err(Error::DigestMismatch { expected, .. }) = &imported {
                let pool = store.config.root.join("blobs").join(expected.algorithm().as_str());
                fs::write(pool.join(expected.hex()), "arbitrary content").unwrap();
            }
            imported
        };
        assert!(noticed(&believes).contains(&"refused_archive_other_content".to_owned()));
    }

    #[test]
    fn an_importer_that_leaves_an_upload_behind_is_detected() {
        let leaves = |store: &Arc<Store>, source: &Path, name: &RepositoryName| {
            let imported = store.import(source, name);
            if imported.is_err() {
                store.begin_upload(name, Algorithm::Sha256).unwrap();
            }
            imported
        };
        let refused = seeds().into_iter().filter(|(name, _)| name.starts_with("refused_")).count();
        assert!(noticed(&leaves).len() >= refused);
    }

    #[test]
    fn an_importer_that_omits_the_children_of_an_index_is_detected() {
        let forgets = |store: &Arc<Store>, source: &Path, name: &RepositoryName| {
            let mut imported = store.import(source, name)?;
            imported.tags.insert("promised".parse().unwrap());
            Ok(imported)
        };
        assert!(noticed(&forgets).contains(&"archive_layout".to_owned()));
    }

    #[test]
    fn nothing_is_built_outside_of_the_source() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.0.join("beside")).unwrap();
        symlink("beside", scratch.0.join("link")).unwrap();
        let text = b"2 out -> ../beside\n== 0 out/written\nx\n== 0 ../beside/x\nx\n== 2 out/link -> y\n== 0 /beside/x\nx";
        build_directory(&entries(text), &scratch.0.join("source"));
        assert_eq!(fs::read_dir(scratch.0.join("beside")).unwrap().count(), 0);
    }
}
