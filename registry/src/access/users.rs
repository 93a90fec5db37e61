//! Users from an htpasswd file.
//!
//! ```text
//!  name, password ─> file changed? (checked once a second)  ─> read again
//!                 ─> verified a moment ago: the cache       ─> allowed
//!                 ─> has the user tries left there?         ─> no: 429, retry later
//!                 ─> a permit for a blocking thread         ─> bcrypt, against a dummy hash when the user is unknown
//! ```
//!
//! Verification takes tens of milliseconds, on purpose. So few run at a time, few wait, and a right password is cached
//! for a minute; requests with credentials that are being verified find the result when they get their permit. An
//! unknown user takes as long as the known one with the highest cost.
//!
//! While the file cannot be read, none of its users can log in: a removed file must not continue to give access.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::cache::Cache;
use super::control::UserAuthenticator;
use super::credentials::{Credentials, Secret};
use super::htpasswd::{Hash, Parsed, parse};
use super::limiter::Limiter;
use super::policy::PolicySubject;
use super::{Caller, Denied};
use crate::error::Error;

const FILE_MAX: u64 = 4 << 20;
/// The most requests that wait for verification at one time.
const WAITING_MAX: usize = 256;
/// A file younger than this may change again without a visible difference.
const SETTLED: Duration = Duration::from_secs(2);

/// Options of an htpasswd file. The defaults suit most uses.
#[derive(Clone, Debug)]
pub struct HtpasswdOptions {
    /// The time for which verified credentials are not verified again. Default 60 s.
    pub remember: Duration,
    /// The shortest time between two checks whether the file changed. Default 1 s.
    pub reload_interval: Duration,
    /// Passwords verified at one time. Default 2.
    pub parallel: usize,
    /// The longest time that a request waits for verification. Default 10 s.
    pub queue_timeout: Duration,
}

impl Default for HtpasswdOptions {
    fn default() -> Self {
        HtpasswdOptions {
            remember: Duration::from_secs(60),
            reload_interval: Duration::from_secs(1),
            parallel: 2,
            queue_timeout: Duration::from_secs(10),
        }
    }
}

/// The users of an htpasswd file with bcrypt hashes, as `htpasswd -B` writes it.
pub struct Htpasswd {
    path: PathBuf,
    options: HtpasswdOptions,
    state: Mutex<State>,
    /// Held while the file is checked.
    reload_lock: tokio::sync::Mutex<()>,
    verifying: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

struct State {
    file: Result<Arc<Parsed>, ()>,
    stamp: Option<Stamp>,
    checked_at: Instant,
    /// Grows with every change of the file.
    revision: u64,
    cache: Cache,
    limiter: Limiter,
}

/// The stamp of a file, which differs when the file has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    length: u64,
    modified: (i64, i64),
    /// Whether the file was old enough when read for its next change to be visible.
    settled: bool,
}

impl Htpasswd {
    /// Opens the file, which must exist now and may change later.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be read, is no ordinary file or is larger than 4 MiB.
    pub async fn open(path: impl Into<PathBuf>, options: HtpasswdOptions) -> Result<Self, Error> {
        let path = path.into();
        let read_from = path.clone();
        let (parsed, stamp) =
            crate::blocking(move || read(&read_from).map_err(Error::io("read the users of", &read_from)))
                .await?;
        let mut key = [0; 32];
        for half in key.chunks_mut(16) {
            half.copy_from_slice(Uuid::new_v4().as_bytes());
        }
        log_users(&path, &parsed);
        let state = State {
            file: Ok(Arc::new(parsed)),
            stamp: Some(stamp),
            checked_at: Instant::now(),
            revision: 0,
            cache: Cache::new(key, options.remember),
            limiter: Limiter::default(),
        };
        Ok(Htpasswd {
            path,
            state: Mutex::new(state),
            reload_lock: tokio::sync::Mutex::default(),
            verifying: Arc::new(Semaphore::new(options.parallel.clamp(1, 64))),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            options,
        })
    }

    /// Whether the file has a line for this user. For programs with several sources of users.
    pub async fn has_user(&self, user: &str) -> bool {
        self.reload_if_due().await;
        self.state.lock().file.as_ref().is_ok_and(|file| file.users.contains_key(user))
    }

    /// Reads the file again when it changed and a check is due.
    async fn reload_if_due(&self) {
        let due = |state: &State| state.checked_at.elapsed() >= self.options.reload_interval;
        if !due(&self.state.lock()) {
            return;
        }
        // A request that arrives during a check uses the known state.
        let Ok(_guard) = self.reload_lock.try_lock() else { return };
        let known = {
            let state = self.state.lock();
            if !due(&state) {
                return;
            }
            state.stamp
        };
        let path = self.path.clone();
        let change = crate::blocking(move || Ok(read_changed(&path, known))).await;
        let mut state = self.state.lock();
        state.checked_at = Instant::now();
        match change {
            Ok(Ok(None)) => {}
            Ok(Ok(Some((parsed, stamp)))) => {
                state.stamp = Some(stamp);
                if state.file.as_deref() != Ok(&parsed) {
                    log_users(&self.path, &parsed);
                    state.revision += 1;
                    state.file = Ok(Arc::new(parsed));
                }
            }
            Ok(Err(error)) => {
                if state.file.is_ok() {
                    tracing::error!(file = %self.path.display(), error = %error, "the htpasswd file cannot be read; none of its users can log in");
                }
                state.revision += 1;
                (state.file, state.stamp) = (Err(()), None);
            }
            Err(stopped) => tracing::warn!(error = %stopped, "the htpasswd file was not checked for changes"),
        }
    }

    async fn verify(&self, user: &str, password: &Secret, peer: Option<SocketAddr>) -> Result<(), Denied> {
        self.reload_if_due().await;
        let fingerprint = self.state.lock().cache.fingerprint(user, password.expose());
        let known = |state: &State| state.cache.contains(&fingerprint, state.revision, Instant::now());
        {
            let mut state = self.state.lock();
            if state.file.is_err() {
                return Err(Denied::Unavailable);
            }
            if known(&state) {
                return Ok(());
            }
            if let Some(peer) = peer
                && !state.limiter.take(peer.ip(), user, Instant::now())
            {
                tracing::warn!(peer = %peer, "too many wrong passwords from one address");
                return Err(Denied::RateLimited);
            }
        }
        let right = self.verify_queued(user, password, &known).await;
        let mut state = self.state.lock();
        if let Some(peer) = peer {
            match right {
                Ok(Some(_)) => state.limiter.succeeded(peer.ip(), user, Instant::now()),
                Ok(None) => {}
                // Nothing was verified.
                Err(_) => state.limiter.return_try(peer.ip(), user, Instant::now()),
            }
        }
        let revision = right?.ok_or(Denied::Unauthorized)?;
        state.cache.remember(fingerprint, revision, Instant::now());
        Ok(())
    }

    /// Returns the revision of the file that accepts the password; `None` when the password is wrong.
    async fn verify_queued(
        &self,
        user: &str,
        password: &Secret,
        known: &(dyn Fn(&State) -> bool + Sync),
    ) -> Result<Option<u64>, Denied> {
        let _waiting = Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| Denied::Unavailable)?;
        let permit =
            tokio::time::timeout(self.options.queue_timeout, Arc::clone(&self.verifying).acquire_owned());
        let permit = permit.await.ok().and_then(Result::ok).ok_or(Denied::Unavailable)?;
        let (hash, there, revision) = {
            let state = self.state.lock();
            if known(&state) {
                return Ok(Some(state.revision));
            }
            let Ok(file) = &state.file else { return Err(Denied::Unavailable) };
            let hash = file.users.get(user);
            let there = hash.is_some();
            (hash.cloned().unwrap_or_else(|| Hash::dummy(file.cost())), there, state.revision)
        };
        let password = password.clone();
        // The permit moves to the blocking thread, whose work goes on when the request is dropped.
        let verified = crate::blocking(move || {
            let _permit = permit;
            Ok(hash.verify(password.expose()) && there)
        });
        let verified = verified.await.map_err(|_| Denied::Unavailable)?;
        Ok(verified.then_some(revision))
    }
}

#[async_trait]
impl UserAuthenticator for Htpasswd {
    async fn authenticate(
        &self,
        credentials: &Credentials,
        caller: Caller<'_>,
    ) -> Result<PolicySubject, Denied> {
        let Credentials::Basic { user, password } = credentials else { return Err(Denied::Unauthorized) };
        self.verify(user, password, caller.peer).await?;
        Ok(PolicySubject::User { name: user.clone(), groups: Vec::new() })
    }
}

fn log_users(path: &Path, parsed: &Parsed) {
    for (line, problem) in &parsed.problems {
        tracing::warn!(file = %path.display(), line, problem, "a line of the htpasswd file is invalid and was left out");
    }
    tracing::info!(file = %path.display(), users = parsed.users.len(), "htpasswd file read");
}

fn read_changed(path: &Path, known: Option<Stamp>) -> io::Result<Option<(Parsed, Stamp)>> {
    let stamp = Stamp::of(&fs::metadata(path)?);
    if known.is_some_and(|known| known.settled && known == stamp) {
        return Ok(None);
    }
    read(path).map(Some)
}

fn read(path: &Path) -> io::Result<(Parsed, Stamp)> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the htpasswd file is not an ordinary file"));
    }
    let file = File::open(path)?;
    // Before reading: a change during the read is then visible afterwards.
    let stamp = Stamp::of(&file.metadata()?);
    let mut text = String::new();
    file.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the htpasswd file is larger than 4 MiB"));
    }
    Ok((parse(&text), stamp))
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        let age = metadata.modified().ok().and_then(|modified| modified.elapsed().ok());
        Stamp {
            inode: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            settled: age.is_some_and(|age| age > SETTLED),
        }
    }
}

#[cfg(test)]
#[path = "users_tests.rs"]
mod tests;
