//! Scrub: all content is read again, at a limited rate, and hashed.
//!
//! ```text
//!  pool --read, hash, wait--> digest correct?  yes: next
//!                                              no:  still the same file? -> [rename] -> quarantine/<algorithm>-<hex>.<inode>
//!  scrub.json   the first open of the registry, the end of the last complete pass, and the progress of the present one:
//!               32 parts, one after the other
//! ```
//!
//! Content in quarantine does not exist for clients: they receive 404 and push it again, which repairs it. The bytes
//! are kept for inspection. A file that cannot be read to its end counts as corrupted. One that cannot even be opened or moved
//! stays, is reported as unreadable, and does not hold up the others.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::locks::Key;
use super::manifests::read_bounded;
use super::{Store, disk};
use crate::digest::{Algorithm, Digest, Hasher};
use crate::error::Error;

/// Bytes read and hashed between two waits.
pub(crate) const PIECE: usize = 1 << 20;
/// The parts of the pool: by algorithm and first four bits.
pub(crate) const PARTS: u8 = 32;
/// The limit of corrupted or unreadable contents listed in a record; the log has all.
const CORRUPTED_NAMED: usize = 64;
const RECORD_MAX: u64 = 256 << 10;

/// The result of a pass over the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// The beginning of the pass.
    pub started: Option<SystemTime>,
    /// The end of the pass: all older content that still exists was correct at some time since `started`.
    pub completed: Option<SystemTime>,
    /// The number of contents read.
    pub blobs: u64,
    /// The bytes of the contents read.
    pub bytes: u64,
    /// The contents moved to quarantine; only the first ones are listed.
    pub corrupted: Vec<Digest>,
    /// The contents whose files could not be opened or moved; only the first ones are listed.
    pub unreadable: Vec<Digest>,
}

/// The last complete pass, and the present one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrubs {
    /// The first open of the registry that is known.
    pub(crate) opened: Option<SystemTime>,
    pub(crate) last: Option<Scrubbed>,
    pub(crate) present: Scrubbed,
    pub(crate) part: u8,
}

#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(default)]
    opened: Option<u64>,
    last: Option<Pass>,
    present: Pass,
    part: u8,
}

#[derive(Default, Serialize, Deserialize)]
struct Pass {
    started: Option<u64>,
    completed: Option<u64>,
    blobs: u64,
    bytes: u64,
    corrupted: Vec<String>,
    #[serde(default)]
    unreadable: Vec<String>,
}

/// The state of reading one content.
pub(crate) struct BlobCheck {
    digest: Digest,
    file: File,
    hasher: Hasher,
    read: u64,
}

/// The progress of a [`BlobCheck`].
pub(crate) enum CheckProgress {
    /// More is to be read; this many bytes were.
    More(Box<BlobCheck>, usize),
    Whole(u64),
    Corrupted(Digest),
}

impl Store {
    /// The content in one part of the pool.
    pub(crate) fn scrub_part(&self, part: u8) -> Result<Vec<Digest>, Error> {
        let algorithm = Algorithm::ALL[usize::from(part / 16)];
        let mut digests = Vec::new();
        for file in disk::names(&self.pool().join(algorithm.as_str()))? {
            let digest = format!("{}:{}", algorithm.as_str(), file?).parse::<Digest>();
            digests.extend(digest.ok().filter(|digest| Key::of(digest).nibble() == part % 16));
        }
        Ok(digests)
    }

    /// Begins reading a content; `None` when it no longer exists.
    pub(crate) fn check(&self, digest: &Digest) -> Result<Option<Box<BlobCheck>>, Error> {
        match self.blob(digest) {
            Ok(blob) => {
                let file = blob.file().try_clone().map_err(Error::io("open", &self.content(digest)))?;
                let hasher = Hasher::new(digest.algorithm());
                Ok(Some(Box::new(BlobCheck { digest: digest.clone(), file, hasher, read: 0 })))
            }
            Err(Error::BlobUnknown) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads and hashes the next piece.
    pub(crate) fn check_piece(&self, mut check: Box<BlobCheck>) -> Result<CheckProgress, Error> {
        let mut piece = vec![0; PIECE];
        match check.file.read(&mut piece) {
            Ok(0) => {
                let BlobCheck { digest, file, hasher, read } = *check;
                if hasher.finish() == digest {
                    return Ok(CheckProgress::Whole(read));
                }
                self.quarantine(&digest, &file)?;
                Ok(CheckProgress::Corrupted(digest))
            }
            Ok(got) => {
                check.hasher.update(&piece[..got]);
                check.read += got as u64;
                Ok(CheckProgress::More(check, got))
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                Ok(CheckProgress::More(check, 0))
            }
            Err(error) => {
                tracing::error!(digest = %check.digest, error = %error, "stored content cannot be read");
                self.quarantine(&check.digest, &check.file)?;
                Ok(CheckProgress::Corrupted(check.digest))
            }
        }
    }

    /// Moves the file out of the pool, unless a push has replaced it in the meantime.
    fn quarantine(&self, digest: &Digest, file: &File) -> Result<(), Error> {
        let content = self.content(digest);
        let inode = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let read = file.metadata().map(inode).map_err(Error::io("read the metadata of", &content))?;
        let name = format!("{}-{}.{}", digest.algorithm().as_str(), digest.hex(), read.1);
        {
            let _transition = self.locks.transition(digest);
            if content.metadata().map(inode).ok() != Some(read) {
                return Ok(());
            }
            self.expect_writable()?;
            // A client that still saw it in the cache would not push it again.
            let _changing = self.cache.pool.begin();
            self.disk.rename(&content, &self.quarantined().join(name))?;
        }
        tracing::error!(digest = %digest, "stored content is corrupted and was moved to quarantine");
        self.disk.sync_parent(&content)
    }

    /// Saves the progress of the scrub. If that fails, the scrub starts over after a restart.
    pub(crate) fn note_scrubs(&self, scrubs: Scrubs) {
        let record = Record {
            opened: scrubs.opened.as_ref().map(seconds),
            last: scrubs.last.as_ref().map(Pass::of),
            present: Pass::of(&scrubs.present),
            part: scrubs.part,
        };
        *self.scrubs.lock() = scrubs;
        let path = self.scrub_record();
        let written = serde_json::to_vec(&record)
            .map_err(|error| Error::io("encode", &path)(error.into()))
            .and_then(|record| self.disk.put(&self.temporary(), &path, &record))
            .and_then(|()| self.disk.sync_parent(&path));
        if let Err(error) = written {
            tracing::warn!(error = %error, "the progress of the scrub could not be saved");
        }
    }

    pub(crate) fn scrubs(&self) -> Scrubs {
        self.scrubs.lock().clone()
    }

    /// Reads the progress of an earlier process; an invalid record is ignored. Records when the registry was first opened.
    pub(super) fn find_scrubs(&self) -> Result<(), Error> {
        let bytes = read_bounded(&self.scrub_record(), RECORD_MAX)?;
        let record = bytes.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
        let mut scrubs = record.map_or_else(Scrubs::default, |record| Scrubs {
            opened: record.opened.and_then(time),
            last: record.last.map(Pass::into_scrubbed),
            present: record.present.into_scrubbed(),
            part: record.part.min(PARTS),
        });
        if scrubs.opened.is_some() {
            *self.scrubs.lock() = scrubs;
        } else {
            scrubs.opened = Some(SystemTime::now());
            self.note_scrubs(scrubs);
        }
        Ok(())
    }

    fn scrub_record(&self) -> PathBuf {
        self.config.root.join("scrub.json")
    }
}

impl Pass {
    fn of(scrubbed: &Scrubbed) -> Self {
        let names = |digests: &[Digest]| digests.iter().map(ToString::to_string).collect();
        Pass {
            started: scrubbed.started.as_ref().map(seconds),
            completed: scrubbed.completed.as_ref().map(seconds),
            blobs: scrubbed.blobs,
            bytes: scrubbed.bytes,
            corrupted: names(&scrubbed.corrupted),
            unreadable: names(&scrubbed.unreadable),
        }
    }

    fn into_scrubbed(self) -> Scrubbed {
        let digests = |names: Vec<String>| names.iter().filter_map(|text| text.parse().ok()).collect();
        Scrubbed {
            started: self.started.and_then(time),
            completed: self.completed.and_then(time),
            blobs: self.blobs,
            bytes: self.bytes,
            corrupted: digests(self.corrupted),
            unreadable: digests(self.unreadable),
        }
    }
}

fn seconds(time: &SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn time(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

impl Scrubs {
    /// Whether a pass began and did not end.
    pub(crate) fn unfinished(&self) -> bool {
        self.present.started.is_some() && self.part < PARTS
    }
}

impl Scrubbed {
    pub(crate) fn add_corrupted(&mut self, digest: Digest) {
        if self.corrupted.len() < CORRUPTED_NAMED {
            self.corrupted.push(digest);
        }
    }

    pub(crate) fn add_unreadable(&mut self, digest: Digest) {
        if self.unreadable.len() < CORRUPTED_NAMED {
            self.unreadable.push(digest);
        }
    }
}
