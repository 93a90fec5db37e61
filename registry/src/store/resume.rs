//! The running hash of an upload, saved for a restart of the process.
//!
//! ```text
//!  states/<uuid>     {"offset":…,"algorithm":"sha256","state":hex of 104 bytes,"boot":id of this boot of the system,
//!                     "uploader":{"user":"ci"}}
//! ```
//!
//! The client of the session is saved with it. A session that outlives its request has a record from its beginning, with
//! an empty state.
//!
//! The state is written beside the bytes when a request ends, and at intervals within a long one, without any fsync:
//! while the system has not been rebooted, what a killed process wrote is there. After a power cut the bytes may be
//! missing although the state is there, so a state of another boot is ignored and the file is read again. The bytes of
//! the file beyond the state are read and hashed; for a few megabytes no state is saved.
//!
//! Bytes that a state covers are never written again: before they are truncated the state is removed.

use std::fs::File;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::manifests::read_bounded;
use super::{Store, disk};
use crate::digest::{Algorithm, Hasher};
use crate::error::Error;
use crate::uploader::Uploader;

/// A shorter upload is hashed again faster than clients notice.
pub(super) const WORTH_KEEPING: u64 = 4 << 20;
/// The interval within one request.
pub(super) const KEEP_EVERY: u64 = 64 << 20;
const RECORD_MAX: u64 = 4096;

#[derive(Serialize, Deserialize)]
struct Record {
    offset: u64,
    algorithm: String,
    state: String,
    boot: String,
    uploader: Option<Uploader>,
}

impl Store {
    /// Saves the hash of the first `offset` bytes of a session. A failure costs time after a restart, nothing else.
    pub(super) fn save_state(&self, id: Uuid, uploader: &Uploader, offset: u64, hasher: &Hasher) {
        let Some(boot) = boot_id() else { return };
        let algorithm = hasher.algorithm().as_str().to_owned();
        let uploader = Some(uploader.clone());
        self.save(id, &Record { offset, algorithm, state: hex::encode(hasher.state()), boot, uploader });
    }

    /// Saves the client of a session that has no state yet and outlives its request. A failure makes the client unknown
    /// after a restart, nothing else.
    pub(crate) fn save_uploader(&self, id: Uuid, uploader: &Uploader) {
        if *uploader == Uploader::Unknown {
            return;
        }
        let uploader = Some(uploader.clone());
        let record = Record {
            offset: 0,
            algorithm: String::new(),
            state: String::new(),
            boot: String::new(),
            uploader,
        };
        self.save(id, &record);
    }

    fn save(&self, id: Uuid, record: &Record) {
        let path = self.state(id);
        let kept = serde_json::to_vec(record)
            .map_err(|error| Error::io("encode", &path)(error.into()))
            .and_then(|record| self.disk.put_volatile(&self.temporary(), &path, &record));
        if let Err(error) = kept {
            tracing::debug!(error = %error, "the state of an upload was not saved");
        }
    }

    /// The client of a session of an earlier process.
    pub(super) fn saved_uploader(&self, id: Uuid) -> Uploader {
        let record = read_bounded(&self.state(id), RECORD_MAX).ok().flatten();
        let record = record.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
        record.and_then(|record| record.uploader).unwrap_or(Uploader::Unknown)
    }

    /// The hash of the first bytes of a session and their number, at most `length`.
    pub(super) fn saved_state(&self, id: Uuid, length: u64) -> Option<(Hasher, u64)> {
        let bytes = read_bounded(&self.state(id), RECORD_MAX).ok()??;
        let record: Record = serde_json::from_slice(&bytes).ok()?;
        let algorithm: Algorithm = record.algorithm.parse().ok()?;
        let valid = Some(record.boot) == boot_id() && record.offset <= length;
        let hasher = Hasher::from_state(algorithm, &hex::decode(&record.state).ok()?)?;
        valid.then_some((hasher, record.offset))
    }

    /// Removes the state of a session whose bytes are about to change or be removed.
    pub(super) fn remove_state(&self, id: Uuid) -> Result<(), Error> {
        self.disk.remove(&self.state(id)).map(|_| ())
    }

    /// Removes states without a session.
    pub(super) fn remove_orphaned_states(&self) -> Result<(), Error> {
        for file in disk::names(&self.states())? {
            let file = file?;
            let known = file.parse::<Uuid>().is_ok_and(|id| self.sessions.lock().contains_key(&id));
            if !known {
                self.disk.discard(&self.states().join(file));
            }
        }
        Ok(())
    }

    fn state(&self, id: Uuid) -> PathBuf {
        self.states().join(id.to_string())
    }
}

/// The id of this boot of the system; `None` where the system has none.
fn boot_id() -> Option<String> {
    let mut text = String::new();
    let file = File::open("/proc/sys/kernel/random/boot_id").ok()?;
    std::io::Read::read_to_string(&mut std::io::Read::take(file, 64), &mut text).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use bytes::Bytes;

    use super::super::faults::{directory, open};
    use super::*;
    use crate::digest::Digest;
    use crate::name::RepositoryName;

    const LENGTH: usize = 5 << 20;

    /// Uploads [`LENGTH`] bytes, starts a new process, changes the first byte on disk and finishes the upload with the
    /// digest of the sent content: that succeeds only if the byte is not read again.
    fn close_after_restart(
        algorithm: Algorithm,
        suspend: bool,
        modify: impl FnOnce(&std::path::Path),
    ) -> bool {
        let root = directory();
        let name: RepositoryName = "a".parse().unwrap();
        let content = Bytes::from(vec![7; LENGTH]);
        let store = open(root.path(), None).unwrap();
        let session = store.begin_upload(&name, algorithm).unwrap();
        let id = session.id;
        let sink = store.sink(Arc::clone(&session), session.try_lock().unwrap()).unwrap();
        let mut sink = sink.append(&content).unwrap();
        if suspend {
            sink.suspend();
            // More arrived after the state was saved: only these bytes are read.
            sink = sink.append(&content).unwrap();
        }
        drop(sink);
        drop(store);
        modify(&root.path().join("states").join(id.to_string()));

        let store = open(root.path(), None).unwrap();
        let session = store.upload(&name, id).unwrap();
        let sent = content.repeat(if suspend { 2 } else { 1 });
        assert_eq!(session.received(), sent.len() as u64);
        let file = File::options().write(true).open(session.path()).unwrap();
        file.write_at(b"x", 0).unwrap();
        let sink = store.sink(Arc::clone(&session), session.try_lock().unwrap()).unwrap();
        let finished = sink.finish(&Digest::of(algorithm, &sent)).is_ok();
        assert_eq!(root.path().join("states").read_dir().unwrap().count(), 0);
        finished
    }

    #[test]
    fn a_resumed_upload_is_finished_without_reading_it_again() {
        assert!(close_after_restart(Algorithm::Sha256, true, |_| ()));
        assert!(close_after_restart(Algorithm::Sha512, true, |_| ()));
    }

    #[test]
    fn without_a_valid_state_the_upload_is_read_again() {
        assert!(!close_after_restart(Algorithm::Sha256, false, |_| ()));
        let other_boot = |path: &std::path::Path| {
            let record = std::fs::read_to_string(path).unwrap();
            std::fs::write(path, record.replace(&boot_id().unwrap(), "another")).unwrap();
        };
        assert!(!close_after_restart(Algorithm::Sha256, true, other_boot));
        assert!(!close_after_restart(Algorithm::Sha256, true, |path| std::fs::write(path, "torn").unwrap()));
    }

    #[test]
    fn a_state_never_outlives_the_bytes_it_covers() {
        let root = directory();
        let store = open(root.path(), None).unwrap();
        let session = store.begin_upload(&"a".parse().unwrap(), Algorithm::Sha256).unwrap();
        let sink = store.sink(Arc::clone(&session), session.try_lock().unwrap()).unwrap();
        let mut sink = sink.append(&Bytes::from(vec![1; LENGTH])).unwrap();
        sink.suspend();
        assert!(store.saved_state(session.id, u64::MAX).is_some());
        sink.roll_back(10).unwrap();
        assert!(store.saved_state(session.id, u64::MAX).is_none());
    }
}
