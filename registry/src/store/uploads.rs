//! Upload sessions: the bytes of a blob before it is complete.
//!
//! ```text
//!            begin          append*                      finish(digest)
//!   (none) --------> open ----------> open ... ---------------------------> blob in the pool
//!                      |  offset = length of the file       |
//!                      |  cancel, sweep, disk full          |  wrong digest
//!                      +---------------> gone <-------------+
//! ```
//!
//! One file per session, named after its id and its repository, so that a session survives a restart without other
//! state: its offset is the length of the file. The hash runs while the bytes arrive and is saved for a restart (see
//! `resume`). It is lost by a power cut, by a rolled back chunk, or when the client finishes with another algorithm
//! than expected; only then the file is read once more at the end. No bytes become content without being hashed.
//!
//! Who may open how many sessions, and how one is cancelled by an administrator, is in `sessions`.
//!
//! One request at a time writes to a session: it owns the session's [`Sink`] from its first byte to its last, also on
//! the blocking thread, so a request that is dropped half-way leaves the session consistent.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use uuid::Uuid;

use super::quota::Reservation;
use super::resume::{KEEP_EVERY, WORTH_KEEPING};
use super::{Store, disk};
use crate::digest::{Algorithm, Digest, Hasher};
use crate::error::Error;
use crate::name::RepositoryName;
use crate::uploader::Uploader;

const REREAD_CHUNK: usize = 1 << 20;

/// The result of [`Registry::sweep`](crate::Registry::sweep).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Removed upload sessions.
    pub sessions: usize,
    /// The bytes of the removed sessions.
    pub bytes: u64,
}

/// One upload session.
pub(crate) struct Session {
    pub(crate) id: Uuid,
    repository: RepositoryName,
    uploader: Uploader,
    path: PathBuf,
    /// The time at which the session started.
    begun: SystemTime,
    /// A copy of the writer's offset that can be read while it writes.
    received: AtomicU64,
    /// Whether an administrator has cancelled the session.
    cancelled: watch::Sender<bool>,
    early: EarlyFlush,
    writer: Arc<Mutex<Writer>>,
}

/// The result of the flushes while the session is written. The kernel reports a lost write once to each file that was open
/// before, and never to one that is opened after the first report: what an early flush found, no later fsync finds.
#[derive(Default)]
struct EarlyFlush {
    failed: AtomicBool,
    /// Locked during a flush.
    error: parking_lot::Mutex<Option<Error>>,
}

struct Writer {
    offset: u64,
    /// The algorithm of the running hash, until the client names another.
    algorithm: Algorithm,
    /// The hash of everything up to `offset`; `None` when the file has to be read again.
    hasher: Option<Hasher>,
    reserved: Reservation,
    /// The offset of the saved hash.
    parked: u64,
    open: bool,
}

/// The exclusive right of one request to write to a session.
pub(crate) struct UploadLock(OwnedMutexGuard<Writer>);

/// A session open for writing.
pub(crate) struct Sink {
    store: Arc<Store>,
    session: Arc<Session>,
    writer: OwnedMutexGuard<Writer>,
    file: File,
}

impl Session {
    pub(crate) fn repository(&self) -> &RepositoryName {
        &self.repository
    }

    /// Bytes received so far, also while a request is writing.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Acquire)
    }

    /// Fails when an early flush failed; waits for one under way. Ask after the fsync of the file: an error that it did not
    /// report was reported to a flush that is over or under way.
    fn expect_flushed(&self) -> Result<(), Error> {
        self.early.error.lock().take().map_or(Ok(()), Err)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The client that began the session.
    pub(crate) fn uploader(&self) -> &Uploader {
        &self.uploader
    }

    pub(super) fn begun(&self) -> SystemTime {
        self.begun
    }

    /// Makes the request that writes to the session end, and refuses every later one.
    pub(crate) fn stop(&self) {
        self.cancelled.send_replace(true);
    }

    /// Returns once the session is cancelled by [`Session::stop`].
    pub(crate) async fn stopped(&self) {
        // The sender lives as long as the session.
        let _ = self.cancelled.subscribe().wait_for(|cancelled| *cancelled).await;
    }

    /// Waits until no other request writes to the session.
    pub(crate) async fn lock(&self) -> UploadLock {
        UploadLock(Arc::clone(&self.writer).lock_owned().await)
    }

    pub(super) fn try_lock(&self) -> Option<UploadLock> {
        Arc::clone(&self.writer).try_lock_owned().ok().map(UploadLock)
    }

    fn new(
        id: Uuid,
        (repository, uploader): (RepositoryName, Uploader),
        path: PathBuf,
        begun: SystemTime,
        offset: u64,
        algorithm: Algorithm,
        reserved: Reservation,
    ) -> Self {
        let writer = Writer { offset, algorithm, hasher: None, parked: 0, reserved, open: true };
        Session {
            id,
            repository,
            uploader,
            path,
            begun,
            received: AtomicU64::new(offset),
            cancelled: watch::Sender::new(false),
            early: EarlyFlush::default(),
            writer: Arc::new(Mutex::new(writer)),
        }
    }
}

impl UploadLock {
    /// Bytes received so far; `None` when the session has ended.
    pub(crate) fn offset(&self) -> Option<u64> {
        self.0.open.then_some(self.0.offset)
    }

    /// Sets the algorithm of the digest. Ignored once bytes were received.
    pub(crate) fn expect(&mut self, algorithm: Algorithm) {
        if self.0.offset == 0 {
            self.0.algorithm = algorithm;
        }
    }
}

impl Store {
    /// Begins a session of the embedding program.
    pub(crate) fn begin_upload(
        &self,
        repository: &RepositoryName,
        algorithm: Algorithm,
    ) -> Result<Arc<Session>, Error> {
        self.begin_upload_of(Uploader::Unknown, repository, algorithm)
    }

    /// Begins a session whose content will probably have a digest of `algorithm`.
    pub(crate) fn begin_upload_of(
        &self,
        uploader: Uploader,
        repository: &RepositoryName,
        algorithm: Algorithm,
    ) -> Result<Arc<Session>, Error> {
        self.expect_writable()?;
        let id = Uuid::new_v4();
        let path = self.uploads().join(format!("{id}={}", repository.to_directory()));
        self.disk.create_file(&path)?;
        let reserved = self.quotas.reservation(repository);
        let begun = SystemTime::now();
        let whose = (repository.clone(), uploader);
        let session = Arc::new(Session::new(id, whose, path, begun, 0, algorithm, reserved));
        self.admit(&session).inspect_err(|_| self.disk.discard(&session.path))?;
        Ok(session)
    }

    /// The session `id`, if it belongs to this repository.
    pub(crate) fn upload(&self, repository: &RepositoryName, id: Uuid) -> Result<Arc<Session>, Error> {
        let found = self.sessions.lock().get(&id).cloned();
        found.filter(|session| session.repository == *repository).ok_or(Error::UploadUnknown(id))
    }

    /// Opens the session's file for the request that holds `lock`.
    pub(crate) fn sink(self: &Arc<Self>, session: Arc<Session>, lock: UploadLock) -> Result<Sink, Error> {
        self.expect_writable()?;
        let UploadLock(mut writer) = lock;
        if !writer.open {
            return Err(Error::UploadUnknown(session.id));
        }
        if *session.cancelled.borrow() {
            return Err(Error::UploadCancelled(session.id));
        }
        if writer.offset == 0 {
            writer.hasher = Some(Hasher::new(writer.algorithm));
        }
        let path = &session.path;
        let mut file =
            OpenOptions::new().read(true).write(true).open(path).map_err(Error::io("open", path))?;
        // Bytes beyond the offset belong to an incomplete chunk; it was never acknowledged.
        if file.metadata().map_err(Error::io("read the length of", path))?.len() != writer.offset {
            self.disk.resize(&file, path, writer.offset)?;
        }
        if writer.hasher.is_none()
            && let Some((mut hasher, from)) = self.saved_state(session.id, writer.offset)
        {
            hash_part(&mut file, &mut hasher, from, writer.offset, path)?;
            (writer.hasher, writer.parked) = (Some(hasher), from);
        }
        file.seek(SeekFrom::Start(writer.offset)).map_err(Error::io("continue", path))?;
        Ok(Sink { store: Arc::clone(self), session, writer, file })
    }

    /// Writes back what a session has received so far. After a failure the session cannot be finished; it ends at once,
    /// unless a request writes to it, which ends it.
    fn write_back(self: &Arc<Self>, session: &Arc<Session>) {
        let mut lost = session.early.error.lock();
        // The session has ended, or its end will report why its file cannot be opened.
        let Ok(file) = File::open(&session.path) else { return };
        let Err(error) = self.disk.sync_file(&file, &session.path) else { return };
        tracing::error!(
            upload = %session.id, repository = %session.repository, error = &error as &dyn std::error::Error,
            "received bytes of an upload are lost: the upload ends, and its client has to start again"
        );
        *lost = Some(error);
        session.early.failed.store(true, Ordering::Release);
        drop(lost);
        self.abandon(session);
    }

    /// Removes a session whose writer failed, if it still exists.
    pub(super) fn abandon(self: &Arc<Self>, session: &Arc<Session>) {
        if let Some(lock) = session.try_lock()
            && let Ok(sink) = self.sink(Arc::clone(session), lock)
        {
            sink.cancel();
        }
    }

    /// Removes sessions without a write for `upload_session_age` before `now`.
    pub(crate) fn sweep_uploads(self: &Arc<Self>, now: SystemTime) -> Result<Swept, Error> {
        let all: Vec<Arc<Session>> = self.sessions.lock().values().cloned().collect();
        let mut swept = Swept::default();
        for session in all {
            // Busy or just finished: not abandoned.
            let Some(lock) = session.try_lock() else { continue };
            let sink = match self.sink(Arc::clone(&session), lock) {
                Err(Error::UploadUnknown(_) | Error::UploadCancelled(_)) => continue,
                other => other?,
            };
            let touched = sink
                .file
                .metadata()
                .and_then(|metadata| metadata.modified())
                .map_err(Error::io("read the age of", &session.path))?;
            let abandoned =
                now.duration_since(touched).is_ok_and(|age| age >= self.config.upload_session_age);
            if abandoned {
                swept.sessions += 1;
                swept.bytes += sink.writer.offset;
                sink.cancel();
            }
        }
        Ok(swept)
    }

    /// Sessions with content that share a quota with `own` and had no request for as long as a client may be silent within
    /// one, the oldest first.
    fn idle_uploads_beside(&self, own: &Session) -> Vec<Arc<Session>> {
        let beside = |session: &&Arc<Session>| {
            session.id != own.id
                && session.received() > 0
                && self.quotas.shared(&session.repository, &own.repository)
        };
        let sessions: Vec<Arc<Session>> = self.sessions.lock().values().filter(beside).cloned().collect();
        let idle = sessions.into_iter().filter_map(|session| {
            let written = session.path.metadata().and_then(|metadata| metadata.modified()).ok()?;
            let silent = written.elapsed().is_ok_and(|silence| silence >= self.config.upload_read_timeout);
            (silent && session.try_lock().is_some()).then_some((written, session))
        });
        let mut idle: Vec<(SystemTime, Arc<Session>)> = idle.collect();
        idle.sort_by_key(|(written, _)| *written);
        idle.into_iter().map(|(_, session)| session).collect()
    }

    /// The start of the oldest push to the repository that is still under way: one with a write since `since`.
    pub(super) fn oldest_push(&self, name: &RepositoryName, since: SystemTime) -> Option<SystemTime> {
        let sessions: Vec<Arc<Session>> =
            self.sessions.lock().values().filter(|session| session.repository == *name).cloned().collect();
        let active = sessions.iter().filter(|session| {
            let written = session.path.metadata().and_then(|metadata| metadata.modified());
            written.is_ok_and(|written| written >= since)
        });
        active.map(|session| session.begun).min()
    }

    /// Ends a session whose file is gone.
    pub(super) fn forget(&self, session: &Session, lock: &mut UploadLock) {
        self.close_session(session, &mut lock.0);
    }

    fn close_session(&self, session: &Session, writer: &mut Writer) {
        writer.open = false;
        writer.reserved.settle(0, false);
        if let Err(error) = self.remove_state(session.id) {
            tracing::warn!(error = %error, "the hash state of an ended upload was left behind");
        }
        self.sessions.lock().remove(&session.id);
    }

    /// Finds the sessions of an earlier process; other files are ignored.
    pub(super) fn find_sessions(&self) -> Result<(), Error> {
        for file in disk::names(&self.uploads())? {
            let file = file?;
            let Some((id, directory)) = file.split_once('=') else { continue };
            let (Ok(id), Some(repository)) = (id.parse::<Uuid>(), RepositoryName::from_directory(directory))
            else {
                continue;
            };
            let path = self.uploads().join(&file);
            let metadata = path.metadata().map_err(Error::io("read the length of", &path))?;
            let begun = metadata.created().or(metadata.modified()).unwrap_or_else(|_| SystemTime::now());
            let mut reserved = self.quotas.reservation(&repository);
            reserved.force(metadata.len());
            let whose = (repository, self.saved_uploader(id));
            let session = Session::new(id, whose, path, begun, metadata.len(), Algorithm::Sha256, reserved);
            self.sessions.lock().insert(id, Arc::new(session));
        }
        Ok(())
    }
}

impl Sink {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Bytes received so far.
    pub(crate) fn offset(&self) -> u64 {
        self.writer.offset
    }

    /// Checks that there is space for this many more bytes, so that a body that does not fit is refused before it is
    /// sent. A full disk keeps the session; an exceeded quota, which does not change by waiting, ends it. Nothing is
    /// reserved: bytes count when they have arrived.
    pub(crate) fn announce(mut self, bytes: u64) -> Result<Self, Error> {
        self.store.expect_space_for(bytes)?;
        let total = self.writer.offset.saturating_add(bytes);
        match self.within_quota(total, |reserved| reserved.expect(total)) {
            Ok(()) => Ok(self),
            Err(refused) => {
                self.cancel();
                Err(refused)
            }
        }
    }

    /// Applies a quota check for `total` bytes. Where only uploads without a request keep it from passing, they are ended,
    /// the oldest first.
    fn within_quota(
        &mut self,
        total: u64,
        check: impl Fn(&mut Reservation) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Err(refused) = check(&mut self.writer.reserved) else { return Ok(()) };
        if self.writer.reserved.fits_alone(total) {
            for idle in self.store.idle_uploads_beside(&self.session) {
                tracing::info!(upload = %idle.id, repository = %idle.repository, "an unfinished upload without a request was ended: a push needs its share of the quota");
                self.store.abandon(&idle);
                if check(&mut self.writer.reserved).is_ok() {
                    return Ok(());
                }
            }
        }
        Err(refused)
    }

    /// Writes back what was received so far, when it is called on a blocking thread. The session can be used meanwhile.
    pub(crate) fn write_back(&self) -> impl FnOnce() + Send + 'static {
        let (store, session) = (Arc::clone(&self.store), Arc::clone(&self.session));
        move || store.write_back(&session)
    }

    /// Writes and hashes the next bytes. After a failure the session is unchanged, unless bytes of it are lost: it ends.
    pub(crate) fn append(mut self, chunk: &Bytes) -> Result<Self, Error> {
        if self.session.early.failed.load(Ordering::Acquire) {
            let lost = self.session.expect_flushed().err();
            let refused = lost.unwrap_or(Error::UploadUnknown(self.session.id));
            self.cancel();
            return Err(refused);
        }
        if chunk.is_empty() {
            return Ok(self);
        }
        let end = self.writer.offset + chunk.len() as u64;
        if let Err(refused) = self.within_quota(end, |reserved| reserved.grow(end)) {
            self.cancel();
            return Err(refused);
        }
        let room = self.store.expect_room_for(chunk.len() as u64);
        let written = room.and_then(|()| self.store.disk.write(&mut self.file, &self.session.path, chunk));
        if let Err(refused) = written {
            if matches!(refused, Error::NoSpace) {
                // The space of a full disk is freed at once; the client has to start again anyway.
                self.cancel();
            }
            return Err(refused);
        }
        if let Some(hasher) = &mut self.writer.hasher {
            hasher.update(chunk);
        }
        self.writer.offset = end;
        self.session.received.store(self.writer.offset, Ordering::Release);
        if end - self.writer.parked >= KEEP_EVERY {
            self.suspend();
        }
        Ok(self)
    }

    /// Saves the running hash, if it covers enough: this request ends, and the process may end before the next one.
    pub(crate) fn suspend(&mut self) {
        let offset = self.writer.offset;
        if offset - self.writer.parked < WORTH_KEEPING {
            return;
        }
        if let Some(hasher) = &self.writer.hasher {
            self.store.save_state(self.session.id, &self.session.uploader, offset, hasher);
            self.writer.parked = offset;
        }
    }

    /// Truncates the session to `offset`.
    pub(crate) fn roll_back(&mut self, offset: u64) -> Result<(), Error> {
        if offset < self.writer.offset {
            self.store.remove_state(self.session.id)?;
            self.store.save_uploader(self.session.id, &self.session.uploader);
            self.writer.parked = 0;
            self.writer.hasher = None;
            self.writer.offset = offset;
            self.session.received.store(offset, Ordering::Release);
            self.store.disk.resize(&self.file, &self.session.path, offset)?;
        }
        Ok(())
    }

    /// Ends the session: its bytes become the blob `expected`, or are removed. Durable when this returns.
    pub(crate) fn finish(mut self, expected: &Digest) -> Result<(), Error> {
        let running = self.writer.hasher.take().filter(|hasher| hasher.algorithm() == expected.algorithm());
        let actual = match running {
            Some(hasher) => hasher.finish(),
            None => self.reread(expected.algorithm())?,
        };
        if actual != *expected {
            self.cancel();
            return Err(Error::DigestMismatch { expected: expected.clone(), actual });
        }
        let synced = self.store.disk.sync_file(&self.file, &self.session.path);
        let kept = synced.and_then(|()| self.session.expect_flushed()).and_then(|()| {
            let Writer { offset, reserved, .. } = &mut *self.writer;
            self.store.commit_upload(
                &self.session.path,
                &self.session.repository,
                expected,
                *offset,
                reserved,
            )
        });
        if let Err(error) = kept {
            // The kernel reports a lost write once: these bytes must not be used a second time.
            self.cancel();
            return Err(error);
        }
        self.close();
        Ok(())
    }

    /// Ends the session and removes its bytes.
    pub(crate) fn cancel(mut self) {
        self.store.disk.discard(&self.session.path);
        self.close();
    }

    fn close(&mut self) {
        self.store.close_session(&self.session, &mut self.writer);
    }

    fn reread(&mut self, algorithm: Algorithm) -> Result<Digest, Error> {
        hash_file(&mut self.file, algorithm, self.writer.offset, &self.session.path)
    }
}

impl Drop for Sink {
    /// Ends the reservation of bytes that did not arrive or were rolled back.
    fn drop(&mut self) {
        let offset = self.writer.offset;
        self.writer.reserved.shrink(offset);
    }
}

fn hash_file(file: &mut File, algorithm: Algorithm, length: u64, path: &Path) -> Result<Digest, Error> {
    let mut hasher = Hasher::new(algorithm);
    hash_part(file, &mut hasher, 0, length, path)?;
    Ok(hasher.finish())
}

/// Adds the bytes from `from` to `to` to the hash.
fn hash_part(file: &mut File, hasher: &mut Hasher, from: u64, to: u64, path: &Path) -> Result<(), Error> {
    let mut hash = || -> std::io::Result<()> {
        file.seek(SeekFrom::Start(from))?;
        let mut buffer = vec![0; REREAD_CHUNK];
        let mut left = to - from;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(REREAD_CHUNK).min(REREAD_CHUNK);
            let got = match file.read(&mut buffer[..wanted]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            hasher.update(&buffer[..got]);
            left -= got as u64;
        }
        Ok(())
    };
    hash().map_err(Error::io("read back", path))
}
