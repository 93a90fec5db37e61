//! The lengths of blobs that a repository was seen to have, in memory: clients ask for the same blobs before each push.
//!
//! ```text
//!  HEAD -> known at the present generation, and used a moment ago?   yes: the length, without the disk
//!                                                                    no:  the disk, then known
//! ```
//!
//! The length of content never changes, because its digest does not. Whether the repository still has it is decided like
//! for cached manifests (see `cache`): every removal of a record begins a change of its repository, and quarantine a
//! change of the pool. Pushing blobs is no change, so that a push does not forget what it has just asked.
//!
//! Memory is bounded by the number of entries: when the young generation is full it becomes the old one, and an entry
//! that is used moves back into the young one.

use std::collections::HashMap;
use std::path::PathBuf;

use parking_lot::Mutex;

use super::Store;
use super::cache::Generation;
use crate::digest::Digest;
use crate::name::RepositoryName;

/// Entries of one generation; an entry takes some 500 bytes.
const YOUNG_MAX: usize = 2048;

type Key = (RepositoryName, Digest);

/// A blob that a repository had at a generation.
struct KnownBlob {
    generation: Generation,
    record: PathBuf,
    length: u64,
}

#[derive(Default)]
struct Halves {
    young: HashMap<Key, KnownBlob>,
    old: HashMap<Key, KnownBlob>,
}

/// The known lengths.
#[derive(Default)]
pub(super) struct Lengths(Mutex<Halves>);

impl Halves {
    fn get(&mut self, key: &Key) -> Option<&KnownBlob> {
        if let Some((key, blob)) = self.old.remove_entry(key) {
            self.insert(key, blob);
        }
        self.young.get(key)
    }

    fn insert(&mut self, key: Key, blob: KnownBlob) {
        if self.young.len() == YOUNG_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, blob);
    }
}

impl Store {
    /// The length of a blob that the repository has, without waiting for the disk; `None` when that is not known without
    /// it, also for a missing blob.
    pub(crate) fn blob_length_cached(&self, name: &RepositoryName, digest: &Digest) -> Option<u64> {
        let generation = self.generation(name);
        let key = (name.clone(), digest.clone());
        if let Some(generation) = generation
            && let Some(known) = self.lengths.0.lock().get(&key)
            && known.generation == generation
            // A client that sees the blob relies on it: when its time of use must be recorded, the disk is used.
            && self.touches.fresh(&known.record)
        {
            return Some(known.length);
        }
        let length = self.blob_cached(name, digest)?.length();
        if let Some(generation) = generation
            && self.generation(name) == Some(generation)
        {
            let record = self.layer_record(name, digest);
            self.lengths.0.lock().insert(key, KnownBlob { generation, record, length });
        }
        Some(length)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::faults::script::push;
    use super::super::faults::{directory, open};
    use super::super::{CheckProgress, GcOptions};
    use super::*;
    use crate::digest::Algorithm;
    use crate::error::Error;

    /// Asks like the server.
    fn length(store: &Store, name: &RepositoryName, digest: &Digest) -> Option<u64> {
        match store.blob_length_cached(name, digest) {
            Some(length) => Some(length),
            None => match store.blob_in(name, digest) {
                Err(Error::BlobUnknown) => None,
                other => Some(other.unwrap().length()),
            },
        }
    }

    fn is_known(store: &Store, name: &RepositoryName, digest: &Digest) -> bool {
        store.lengths.0.lock().get(&(name.clone(), digest.clone())).is_some()
    }

    #[test]
    fn a_blob_that_was_removed_in_any_way_is_not_known_any_more() {
        let root = directory();
        let store = open(root.path(), None).unwrap();
        let (name, other): (RepositoryName, RepositoryName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let digest = Digest::of(Algorithm::Sha256, b"content");
        let again = || {
            push(&store, &name, &digest, &[b"content"]).unwrap();
            for _ in 0..3 {
                assert_eq!(length(&store, &name, &digest), Some(7));
                assert_eq!(length(&store, &other, &digest), None);
            }
            assert!(is_known(&store, &name, &digest), "it is asked of the disk each time");
        };
        again();
        // A push to the repository forgets nothing.
        push(&store, &name, &Digest::of(Algorithm::Sha256, b"more"), &[b"more"]).unwrap();
        let generation = store.generation(&name).unwrap();
        let known = store.lengths.0.lock().get(&(name.clone(), digest.clone())).unwrap().generation;
        assert_eq!(known, generation);
        store.delete_blob(&name, &digest).unwrap();
        assert_eq!(length(&store, &name, &digest), None, "it was deleted");
        again();
        let later = SystemTime::now() + Duration::from_secs(24 * 3600);
        store.collect(&GcOptions { untagged: true, ..GcOptions::at(later) }).unwrap();
        assert_eq!(length(&store, &name, &digest), None, "it was collected");
        again();
        let stored = root.path().join("blobs/sha256").join(digest.hex());
        std::fs::remove_file(&stored).unwrap();
        std::fs::write(&stored, b"rotten!").unwrap();
        let mut check = store.check(&digest).unwrap().unwrap();
        while let CheckProgress::More(next, _) = store.check_piece(check).unwrap() {
            check = next;
        }
        assert_eq!(length(&store, &name, &digest), None, "it is in quarantine");
        again();
    }

    #[test]
    fn entries_are_bounded_and_those_in_use_stay() {
        let key = |number: usize| (format!("r{number}").parse().unwrap(), Digest::of(Algorithm::Sha256, b""));
        let blob = || KnownBlob { generation: (0, 0), record: PathBuf::new(), length: 0 };
        let mut halves = Halves::default();
        halves.insert(key(0), blob());
        for number in 1..YOUNG_MAX * 3 {
            halves.insert(key(number), blob());
            assert!(halves.get(&key(0)).is_some());
            assert!(halves.young.len() + halves.old.len() <= 2 * YOUNG_MAX);
        }
        assert!(halves.get(&key(1)).is_none());
    }
}
