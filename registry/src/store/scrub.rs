//! Looking for rot: every content is read again, at leisure, and hashed.
//!
//! ```text
//!  pool --read, hash, wait--> as named?  yes: next
//!                                        no:  still the same file? -> [rename] -> quarantine/<algorithm>-<hex>.<inode>
//!  scrub.json   when the last complete pass ended, and how far the present one is: 1 of 32 parts after the other
//! ```
//!
//! What is in quarantine is gone for everybody: a client that asks is told 404 and pushes it again, which heals. The bytes
//! are kept for whoever wants to look. A file that cannot be read at all is taken for rotten.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::locks::{Key, lock};
use super::manifests::read_bounded;
use super::{Store, disk};
use crate::digest::{Algorithm, Digest, Hasher};
use crate::error::Error;

/// Read and hashed between two waits.
pub(crate) const PIECE: usize = 1 << 20;
/// The pool by algorithm and first four bits.
pub(crate) const PARTS: u8 = 32;
/// Damaged contents named in a record; the log has all.
const DAMAGED_NAMED: usize = 64;
const RECORD_MAX: u64 = 64 << 10;

/// What a pass over the pool found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// When it began.
    pub started: Option<SystemTime>,
    /// When it ended: everything that is older and still there was whole at some time since `started`.
    pub completed: Option<SystemTime>,
    /// Contents read.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was put into quarantine, the first of them by name.
    pub damaged: Vec<Digest>,
}

/// The last complete pass, and the one that is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrubs {
    pub(crate) last: Option<Scrubbed>,
    pub(crate) present: Scrubbed,
    pub(crate) part: u8,
}

#[derive(Serialize, Deserialize)]
struct Record {
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
    damaged: Vec<String>,
}

/// One content being read.
pub(crate) struct Check {
    digest: Digest,
    file: File,
    hasher: Hasher,
    read: u64,
}

/// How far a [`Check`] is.
pub(crate) enum Checked {
    /// More is to be read; so many bytes were.
    More(Box<Check>, usize),
    Whole(u64),
    Damaged(Digest),
}

impl Store {
    /// Content to be read in one part of the pool.
    pub(crate) fn scrub_part(&self, part: u8) -> Result<Vec<Digest>, Error> {
        let algorithm = Algorithm::ALL[usize::from(part / 16)];
        let mut digests = Vec::new();
        for file in disk::names(&self.pool().join(algorithm.as_str()))? {
            let digest = format!("{}:{}", algorithm.as_str(), file?).parse::<Digest>();
            digests.extend(digest.ok().filter(|digest| Key::of(digest).nibble() == part % 16));
        }
        Ok(digests)
    }

    /// Begins to read a content; `None` when it is gone.
    pub(crate) fn check(&self, digest: &Digest) -> Result<Option<Box<Check>>, Error> {
        match self.blob(digest) {
            Ok(blob) => {
                let file = blob.file().try_clone().map_err(Error::io("open", &self.content(digest)))?;
                let hasher = Hasher::new(digest.algorithm());
                Ok(Some(Box::new(Check { digest: digest.clone(), file, hasher, read: 0 })))
            }
            Err(Error::BlobUnknown) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads and hashes the next piece.
    pub(crate) fn check_piece(&self, mut check: Box<Check>) -> Result<Checked, Error> {
        let mut piece = vec![0; PIECE];
        match check.file.read(&mut piece) {
            Ok(0) => {
                let Check { digest, file, hasher, read } = *check;
                if hasher.finish() == digest {
                    return Ok(Checked::Whole(read));
                }
                self.quarantine(&digest, &file)?;
                Ok(Checked::Damaged(digest))
            }
            Ok(got) => {
                check.hasher.update(&piece[..got]);
                check.read += got as u64;
                Ok(Checked::More(check, got))
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(Checked::More(check, 0)),
            Err(error) => {
                tracing::error!(digest = %check.digest, error = %error, "a stored content cannot be read");
                self.quarantine(&check.digest, &check.file)?;
                Ok(Checked::Damaged(check.digest))
            }
        }
    }

    /// Takes the file out of the pool, unless a push has replaced it in the meantime.
    fn quarantine(&self, digest: &Digest, file: &File) -> Result<(), Error> {
        let content = self.content(digest);
        let inode = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let read = file.metadata().map(inode).map_err(Error::io("look at", &content))?;
        let name = format!("{}-{}.{}", digest.algorithm().as_str(), digest.hex(), read.1);
        {
            let _transition = self.locks.transition(digest);
            if content.metadata().map(inode).ok() != Some(read) {
                return Ok(());
            }
            self.expect_writable()?;
            // Whoever has it remembered would not push it again.
            let _changing = self.cache.pool.begin();
            self.disk.rename(&content, &self.quarantined().join(name))?;
        }
        tracing::error!(digest = %digest, "a stored content has rotted and was put into quarantine");
        self.disk.sync_parent(&content)
    }

    /// Writes down how far scrubbing is. Where that is not possible it starts over after a restart.
    pub(crate) fn note_scrubs(&self, scrubs: Scrubs) {
        let record = Record {
            last: scrubs.last.as_ref().map(Pass::of),
            present: Pass::of(&scrubs.present),
            part: scrubs.part,
        };
        *lock(&self.scrubs) = scrubs;
        let path = self.scrub_record();
        let written = serde_json::to_vec(&record)
            .map_err(|error| Error::io("encode", &path)(error.into()))
            .and_then(|record| self.disk.put(&self.temporary(), &path, &record))
            .and_then(|()| self.disk.sync_parent(&path));
        if let Err(error) = written {
            tracing::warn!(error = %error, "how far scrubbing is could not be written down");
        }
    }

    pub(crate) fn scrubs(&self) -> Scrubs {
        lock(&self.scrubs).clone()
    }

    /// Reads how far an earlier process was; a record that is none counts for nothing.
    pub(super) fn find_scrubs(&self) -> Result<(), Error> {
        let Some(bytes) = read_bounded(&self.scrub_record(), RECORD_MAX)? else { return Ok(()) };
        if let Ok(record) = serde_json::from_slice::<Record>(&bytes) {
            *lock(&self.scrubs) = Scrubs {
                last: record.last.map(Pass::into_scrubbed),
                present: record.present.into_scrubbed(),
                part: record.part.min(PARTS),
            };
        }
        Ok(())
    }

    fn scrub_record(&self) -> PathBuf {
        self.config.root.join("scrub.json")
    }
}

impl Pass {
    fn of(scrubbed: &Scrubbed) -> Self {
        let seconds = |time: &SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Pass {
            started: scrubbed.started.as_ref().map(seconds),
            completed: scrubbed.completed.as_ref().map(seconds),
            blobs: scrubbed.blobs,
            bytes: scrubbed.bytes,
            damaged: scrubbed.damaged.iter().map(ToString::to_string).collect(),
        }
    }

    fn into_scrubbed(self) -> Scrubbed {
        let time = |seconds: u64| UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        Scrubbed {
            started: self.started.and_then(time),
            completed: self.completed.and_then(time),
            blobs: self.blobs,
            bytes: self.bytes,
            damaged: self.damaged.iter().filter_map(|text| text.parse().ok()).collect(),
        }
    }
}

impl Scrubbed {
    pub(crate) fn add_damaged(&mut self, digest: Digest) {
        if self.damaged.len() < DAMAGED_NAMED {
            self.damaged.push(digest);
        }
    }
}
