//! A cache of recently read manifests in memory: clients read the same ones again and again.
//!
//! ```text
//!  Changes of a repository:  | generation (48 bits) | changes under way (16 bits) |
//!
//!  reader   read generation ─> read from disk ─> read generation: equal, and no change under way ─> cached with it
//!  writer   +1 under way ─> rename or remove ─> generation + 1, -1 under way ─> … fsync … response
//!  hit      the entry was read at the present generation, and no change is under way
//! ```
//!
//! A change of any record that a reference leads through invalidates all entries of its repository at once, before the
//! change is acknowledged and before any other client can see it; while a change is under way the cache is not used. So
//! a response from the cache is one the disk would have given at some time during the request: acknowledged changes are
//! visible, and a client that saw the new state never sees the old one again. No entry is invalidated individually, and
//! a write that fails half-way is treated like one that succeeds. Quarantine, the only change of the pool that affects
//! all repositories, has its own generation.
//!
//! Only manifests that exist are cached, and only small ones. Memory is bounded in bytes: when the young generation of
//! entries is full it becomes the old one, and an entry that is read moves back into the young one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Store;
use super::manifests::Manifest;
use crate::name::{Reference, RepositoryName};

/// Larger manifests are read from disk each time.
const MANIFEST_MAX: usize = 64 << 10;
/// The limit of the cache in bytes.
const BUDGET: usize = 8 << 20;
/// The cost of an entry beside its document and its names.
const OVERHEAD: usize = 512;
const UNDER_WAY: u64 = 0xffff;

/// Lets readers detect changes.
#[derive(Debug, Default)]
pub(super) struct Changes(AtomicU64);

/// A change under way; it ends when this is dropped.
#[must_use]
pub(super) struct Changing<'a>(&'a Changes);

impl Changes {
    /// Begins a change. There are never more at a time than blocking threads, far fewer than the 65,535 that fit.
    pub(super) fn begin(&self) -> Changing<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Changing(self)
    }

    /// The present generation; `None` while a change is under way.
    fn generation(&self) -> Option<u64> {
        let value = self.0.load(Ordering::SeqCst);
        (value & UNDER_WAY == 0).then_some(value)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(UNDER_WAY, Ordering::SeqCst);
    }
}

/// The generations of a repository and of the pool.
pub(super) type Generation = (u64, u64);

#[derive(Clone)]
struct Entry {
    generation: Generation,
    record: Arc<PathBuf>,
    manifest: Manifest,
}

type Entries = HashMap<(RepositoryName, Reference), Entry>;

#[derive(Default)]
struct TwoGenerations {
    young: Entries,
    old: Entries,
    young_bytes: usize,
}

/// The cached manifests.
#[derive(Default)]
pub(super) struct Cache {
    halves: Mutex<TwoGenerations>,
    /// Changes of the pool that affect all repositories.
    pub(super) pool: Changes,
    /// A mutant for tests: uses entries without checking for changes.
    #[cfg(test)]
    pub(super) blind: std::sync::atomic::AtomicBool,
}

impl Cache {
    fn is_current(&self, entry: &Entry, generation: Generation) -> bool {
        #[cfg(test)]
        if self.blind.load(Ordering::Relaxed) {
            return true;
        }
        entry.generation == generation
    }
}

impl TwoGenerations {
    fn get(&mut self, key: &(RepositoryName, Reference)) -> Option<Entry> {
        if let Some(entry) = self.young.get(key) {
            return Some(entry.clone());
        }
        let (key, entry) = self.old.remove_entry(key)?;
        self.insert(key, entry.clone());
        Some(entry)
    }

    fn insert(&mut self, key: (RepositoryName, Reference), entry: Entry) {
        let bytes = entry.cost();
        if self.young_bytes + bytes > BUDGET / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        let replaced = self.young.insert(key, entry);
        self.young_bytes += bytes;
        self.young_bytes -= replaced.map_or(0, |entry| entry.cost());
    }
}

impl Entry {
    fn cost(&self) -> usize {
        // Names are stored several times, in the key and in the path of the record.
        self.manifest.bytes.len() + 4 * self.record.as_os_str().len() + OVERHEAD
    }
}

impl Store {
    /// The generation for an entry of `name`; `None` while a change is under way, and for unknown repositories.
    pub(super) fn generation(&self, name: &RepositoryName) -> Option<Generation> {
        Some((self.references(name)?.changes.generation()?, self.cache.pool.generation()?))
    }

    /// Caches a manifest that was read after `generation`, unless something has changed since.
    pub(super) fn remember(
        &self,
        name: &RepositoryName,
        reference: &Reference,
        generation: Option<Generation>,
        record: PathBuf,
        manifest: &Manifest,
    ) {
        if let Some(generation) = generation
            && manifest.bytes.len() <= MANIFEST_MAX
            && self.generation(name) == Some(generation)
        {
            let entry = Entry { generation, record: Arc::new(record), manifest: manifest.clone() };
            self.cache.halves.lock().insert((name.clone(), reference.clone()), entry);
        }
    }

    /// Returns the manifest from the cache, without using the disk; `None` when it is not cached. Never blocks for
    /// long.
    pub(crate) fn resolve_from_memory(
        &self,
        name: &RepositoryName,
        reference: &Reference,
    ) -> Option<Manifest> {
        let generation = self.generation(name)?;
        let entry = self.cache.halves.lock().get(&(name.clone(), reference.clone()))?;
        // A client that sees the manifest relies on it: when its time of use must be recorded, the disk is used.
        (self.cache.is_current(&entry, generation) && self.touches.fresh(&entry.record))
            .then_some(entry.manifest)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, SystemTime};

    use super::super::faults::script::{IMAGE, image, push, put};
    use super::super::faults::{directory, open};
    use super::super::{CheckProgress, GcOptions};
    use super::*;
    use crate::digest::{Algorithm, Digest};
    use crate::error::Error;
    use crate::name::Tag;

    const WRITERS: usize = 4;
    const READERS: usize = 3;
    const TURNS: u64 = 30;

    fn document(writer: usize, turn: u64) -> Vec<u8> {
        image(b"{}", &[], &format!("{writer} {turn}"))
    }

    fn digest(document: &[u8]) -> Digest {
        Digest::of(Algorithm::Sha256, document)
    }

    /// Resolves a reference like the server.
    fn resolve(
        store: &Store,
        name: &RepositoryName,
        reference: &Reference,
    ) -> Result<Option<Manifest>, Error> {
        match store.resolve_from_memory(name, reference) {
            Some(manifest) => Ok(Some(manifest)),
            None => match store.resolve(name, reference) {
                Err(Error::ManifestUnknown) => Ok(None),
                other => other.map(Some),
            },
        }
    }

    fn filled() -> (tempfile::TempDir, Arc<Store>, RepositoryName) {
        let root = directory();
        let store = open(root.path(), None).unwrap();
        let name: RepositoryName = "a".parse().unwrap();
        push(&store, &name, &digest(b"{}"), &[b"{}"]).unwrap();
        (root, store, name)
    }

    /// Changes one tag repeatedly: moved, deleted by name, and deleted with its manifest. Returns the number of stale
    /// responses, older than the acknowledged or seen state before the request, and of hits.
    fn race(blind: bool) -> (usize, usize) {
        let (_root, store, name) = filled();
        store.cache.blind.store(blind, Ordering::Relaxed);
        // By writer: the earliest turn a reader may still see.
        let seen: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let (stale, hits) = (AtomicU64::new(0), AtomicU64::new(0));
        let done = AtomicBool::new(false);
        let tag = |writer: usize| Reference::Tag(format!("t{writer}").parse().unwrap());
        let known: Vec<Vec<Digest>> = (0..WRITERS)
            .map(|writer| (0..=TURNS).map(|turn| digest(&document(writer, turn))).collect())
            .collect();
        std::thread::scope(|scope| {
            for reader in 0..READERS {
                let (store, name, seen, stale, hits, done, known, tag) =
                    (&store, &name, &seen, &stale, &hits, &done, &known, &tag);
                scope.spawn(move || {
                    let mut writer = reader % WRITERS;
                    while !done.load(Ordering::Relaxed) {
                        writer = (writer + 1) % WRITERS;
                        let before = seen[writer].load(Ordering::SeqCst);
                        let from_memory = store.resolve_from_memory(name, &tag(writer)).is_some();
                        hits.fetch_add(u64::from(from_memory), Ordering::Relaxed);
                        let found = resolve(store, name, &tag(writer)).unwrap();
                        // Turns with a document are even; in between the tag does not exist.
                        let turn = found.map(|manifest| {
                            known[writer].iter().position(|digest| *digest == manifest.digest).unwrap() as u64
                        });
                        let Some(turn) = turn else { continue };
                        stale.fetch_add(u64::from(2 * turn < before), Ordering::Relaxed);
                        seen[writer].fetch_max(2 * turn, Ordering::SeqCst);
                    }
                });
            }
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (store, name, seen, tag) = (&store, &name, &seen, &tag);
                    scope.spawn(move || {
                        let own: Tag = format!("t{writer}").parse().unwrap();
                        for turn in 1..=TURNS {
                            let document = document(writer, turn);
                            put(store, name, std::slice::from_ref(&own), &document, IMAGE).unwrap();
                            seen[writer].fetch_max(2 * turn, Ordering::SeqCst);
                            // Time for the readers to cache it.
                            for _ in 0..5 {
                                resolve(store, name, &tag(writer)).unwrap();
                                std::thread::yield_now();
                            }
                            match turn % 3 {
                                0 => store.delete_manifest(name, &tag(writer)).unwrap(),
                                1 => store
                                    .delete_manifest(name, &Reference::Digest(digest(&document)))
                                    .unwrap(),
                                _ => continue,
                            }
                            seen[writer].fetch_max(2 * turn + 1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        (stale.into_inner() as usize, hits.into_inner() as usize)
    }

    #[test]
    fn no_reader_sees_the_state_before_an_acknowledged_change() {
        let (stale, hits) = race(false);
        assert_eq!(stale, 0);
        assert!(hits > 0, "no read hit the cache");
    }

    #[test]
    fn a_cache_that_does_not_check_for_changes_is_detected() {
        assert!(race(true).0 > 0);
    }

    #[test]
    fn every_removal_of_a_manifest_invalidates_its_cache_entries() {
        let (root, store, name) = filled();
        let tag = |text: &str| Reference::Tag(text.parse().unwrap());
        let document = document(0, 0);
        let by_digest = Reference::Digest(digest(&document));
        let again = || {
            put(&store, &name, &["v1".parse().unwrap()], &document, IMAGE).unwrap();
            for reference in [&tag("v1"), &by_digest] {
                assert!(store.resolve_from_memory(&name, reference).is_none());
                store.resolve(&name, reference).unwrap();
                assert_eq!(store.resolve_from_memory(&name, reference).unwrap().bytes, document);
            }
        };
        let gone = |way: &str, reference: &Reference| {
            assert!(resolve(&store, &name, reference).unwrap().is_none(), "{way}");
        };
        again();
        store.delete_manifest(&name, &tag("v1")).unwrap();
        gone("its tag was deleted", &tag("v1"));
        again();
        store.delete_manifest(&name, &by_digest).unwrap();
        gone("it was deleted", &tag("v1"));
        gone("it was deleted", &by_digest);
        again();
        let rule = super::super::RetentionRule {
            repositories: crate::RepositoryPattern::all(),
            tags: "*".parse().unwrap(),
            newest: 0,
            younger_than: Duration::ZERO,
        };
        store.retain(&[rule], SystemTime::now() + Duration::from_secs(60), false).unwrap();
        gone("its tag expired", &tag("v1"));
        let later = SystemTime::now() + Duration::from_secs(24 * 3600);
        store.collect(&GcOptions { untagged: true, ..GcOptions::at(later) }).unwrap();
        gone("it was collected", &by_digest);
        push(&store, &name, &digest(b"{}"), &[b"{}"]).unwrap();
        again();
        let stored = root.path().join("blobs/sha256").join(digest(&document).hex());
        std::fs::remove_file(&stored).unwrap();
        std::fs::write(&stored, b"rotten").unwrap();
        let mut check = store.check(&digest(&document)).unwrap().unwrap();
        let corrupted = loop {
            match store.check_piece(check).unwrap() {
                CheckProgress::More(next, _) => check = next,
                ended => break matches!(ended, CheckProgress::Corrupted(_)),
            }
        };
        assert!(corrupted);
        gone("it is in quarantine", &tag("v1"));
        gone("it is in quarantine", &by_digest);
        again();
    }

    #[test]
    fn memory_is_bounded_and_entries_in_use_stay() {
        let name = |number: usize| format!("r{number}").parse::<RepositoryName>().unwrap();
        let favourite = (name(0), Reference::Tag("v1".parse().unwrap()));
        let entry = |size: usize| Entry {
            generation: (0, 0),
            record: Arc::default(),
            manifest: Manifest {
                digest: digest(b""),
                media_type: IMAGE.to_owned(),
                bytes: vec![0; size].into(),
            },
        };
        let mut halves = TwoGenerations::default();
        halves.insert(favourite.clone(), entry(100));
        for number in 1..2000 {
            halves.insert((name(number), favourite.1.clone()), entry(MANIFEST_MAX - number));
            assert!(halves.get(&favourite).is_some());
            let held: usize = halves.young.values().chain(halves.old.values()).map(Entry::cost).sum();
            assert!(held <= BUDGET);
        }
        assert!(halves.get(&(name(1), favourite.1.clone())).is_none());
    }
}
