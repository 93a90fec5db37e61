//! Pins: content that a named owner outside of the registry needs.
//!
//! ```text
//!  repos/<name>/_pins/<first half of sha256 of digest and owner>     {"digest":"sha256:…","owner":"job 42","since":…}
//! ```
//!
//! A pin of a manifest protects everything below it in the repository: the entries of an index, configurations and
//! layers. While it exists, deleting any of that is refused, and neither garbage collection nor retention removes it.
//! Tags are names, not content: they may move and be deleted.
//!
//! Pinning the same content again by the same owner changes nothing; each owner's pin has its own file.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::locks::Key;
use super::manifests::read_bounded;
use super::{PINS, Store, disk};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::name::RepositoryName;

const OWNER_MAX: usize = 256;
const RECORD_MAX: u64 = 4096;

/// The owner of a pin: any printable text, such as `job 0192…`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PinOwner(String);

/// The text cannot be the owner of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the owner of a pin is 1 to {OWNER_MAX} bytes of printable text")]
pub struct InvalidPinOwner;

/// Pinned content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The repository.
    pub repository: RepositoryName,
    /// A manifest with everything below it, or a blob.
    pub digest: Digest,
    /// The owner.
    pub owner: PinOwner,
    /// The time of the pin.
    pub since: SystemTime,
}

/// All pins: by repository, then by digest and owner, each with its time.
pub(super) type Pins = BTreeMap<RepositoryName, BTreeMap<(Digest, PinOwner), SystemTime>>;

#[derive(Serialize, Deserialize)]
struct Record {
    digest: String,
    owner: String,
    /// Seconds since 1970.
    since: u64,
}

impl Store {
    /// Protects `digest` and everything below it in the repository until [`Store::unpin`]. Durable when this returns.
    pub(crate) fn pin(
        &self,
        name: &RepositoryName,
        digest: &Digest,
        owner: &PinOwner,
        now: SystemTime,
    ) -> Result<(), Error> {
        let references = self.references(name).ok_or(Error::RepositoryUnknown)?;
        let _one_at_a_time = self.pinning.lock();
        let _shared = references.shared();
        self.locks.keep(digest);
        if !self.has_manifest(name, digest)? && !self.has_blob(name, digest)? {
            return Err(Error::ManifestUnknown);
        }
        if self.pins.lock().get(name).is_some_and(|pins| pins.contains_key(&(digest.clone(), owner.clone())))
        {
            return Ok(());
        }
        // The content below is found before the record is made; unreadable content cannot be protected.
        for key in self.below(name, [digest.clone()])? {
            self.locks.keep_key(key);
        }
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let path = self.pin_record(name, digest, owner);
        let record = Record { digest: digest.to_string(), owner: owner.to_string(), since };
        let record = serde_json::to_vec(&record)
            .map_err(|error| Error::io("encode the record", &path)(error.into()))?;
        self.disk.put(&self.temporary(), &path, &record)?;
        self.disk.sync_parent(&path)?;
        let since = UNIX_EPOCH + Duration::from_secs(since);
        self.pins.lock().entry(name.clone()).or_default().insert((digest.clone(), owner.clone()), since);
        Ok(())
    }

    /// Ends a pin; returns whether it existed.
    pub(crate) fn unpin(
        &self,
        name: &RepositoryName,
        digest: &Digest,
        owner: &PinOwner,
    ) -> Result<bool, Error> {
        let _one_at_a_time = self.pinning.lock();
        let path = self.pin_record(name, digest, owner);
        let there = self.disk.remove(&path)?;
        if there {
            self.disk.sync_parent(&path)?;
        }
        if let Some(pins) = self.pins.lock().get_mut(name) {
            pins.remove(&(digest.clone(), owner.clone()));
        }
        Ok(there)
    }

    /// Every pin, by repository, digest and owner.
    pub(crate) fn pins(&self) -> Vec<Pin> {
        let all = self.pins.lock();
        let of = |(name, pins): (&RepositoryName, &BTreeMap<(Digest, PinOwner), SystemTime>)| {
            let pin = |((digest, owner), since): (&(Digest, PinOwner), &SystemTime)| Pin {
                repository: name.clone(),
                digest: digest.clone(),
                owner: owner.clone(),
                since: *since,
            };
            pins.iter().map(pin).collect::<Vec<Pin>>()
        };
        all.iter().flat_map(of).collect()
    }

    /// Fails when `digest` is pinned, or below pinned content. The caller holds the exclusive lock of the references.
    pub(super) fn expect_not_pinned(&self, name: &RepositoryName, digest: &Digest) -> Result<(), Error> {
        if self.pinned(name)?.contains(&Key::of(digest)) {
            let pins = self.pins.lock();
            let direct = pins.get(name).and_then(|pins| pins.keys().find(|(pinned, _)| pinned == digest));
            let owner = direct
                .map_or_else(|| "the manifest it belongs to".to_owned(), |(_, owner)| owner.to_string());
            return Err(Error::Pinned { digest: digest.clone(), owner });
        }
        Ok(())
    }

    /// All content that pins of the repository protect.
    pub(super) fn pinned(&self, name: &RepositoryName) -> Result<HashSet<Key>, Error> {
        let roots: Vec<Digest> = match self.pins.lock().get(name) {
            Some(pins) => pins.keys().map(|(digest, _)| digest.clone()).collect(),
            None => return Ok(HashSet::new()),
        };
        self.below(name, roots)
    }

    /// `roots` and all content below them in the repository.
    fn below(
        &self,
        name: &RepositoryName,
        roots: impl IntoIterator<Item = Digest>,
    ) -> Result<HashSet<Key>, Error> {
        let mut open: Vec<Digest> = roots.into_iter().collect();
        let mut seen: HashSet<Key> = open.iter().map(Key::of).collect();
        while let Some(digest) = open.pop() {
            // A blob, or a child of a sparse index.
            let Some(links) = self.links(name, &digest)? else { continue };
            open.extend(links.content.into_iter().filter(|child| seen.insert(Key::of(child))));
        }
        Ok(seen)
    }

    /// Reads the pins of an earlier process.
    pub(super) fn find_pins(&self) -> Result<(), Error> {
        for name in self.repositories() {
            let directory = self.repository(&name).join(PINS);
            for file in disk::names(&directory)? {
                let path = directory.join(file?);
                let Some(bytes) = read_bounded(&path, RECORD_MAX)? else { continue };
                let spoiled = || Error::io("parse", &path)(std::io::ErrorKind::InvalidData.into());
                let record: Record = serde_json::from_slice(&bytes).map_err(|_| spoiled())?;
                let digest = record.digest.parse().map_err(|_| spoiled())?;
                let owner = record.owner.parse().map_err(|_| spoiled())?;
                let since = UNIX_EPOCH.checked_add(Duration::from_secs(record.since)).ok_or_else(spoiled)?;
                self.pins.lock().entry(name.clone()).or_default().insert((digest, owner), since);
            }
        }
        Ok(())
    }

    fn pin_record(&self, name: &RepositoryName, digest: &Digest, owner: &PinOwner) -> PathBuf {
        let key = Digest::of(Algorithm::Sha256, format!("{digest} {owner}").as_bytes());
        self.repository(name).join(PINS).join(&key.hex()[..32])
    }
}

impl FromStr for PinOwner {
    type Err = InvalidPinOwner;

    fn from_str(text: &str) -> Result<Self, InvalidPinOwner> {
        if text.is_empty() || text.len() > OWNER_MAX || text.chars().any(char::is_control) {
            return Err(InvalidPinOwner);
        }
        Ok(PinOwner(text.to_owned()))
    }
}

impl fmt::Display for PinOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
