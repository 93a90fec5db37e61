//! Users from an htpasswd file.
//!
//! ```text
//!  name, password ─> file changed? (asked once a second) ─> read again
//!                 ─> right a moment ago: the cache         ─> let in
//!                 ─> address has tries left?               ─> no: come back later
//!                 ─> a turn on a blocking thread           ─> bcrypt, against a hash nobody has when the user is unknown
//! ```
//!
//! Verifying takes tens of milliseconds, on purpose. So few are verified at a time, few wait for it, and what was right
//! is remembered for a minute; requests with credentials that are being verified find the result when it is their turn.
//! An unknown user takes as long as the dearest known one.
//!
//! While the file cannot be read nobody is let in by it: a file that was taken away must not go on opening doors.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::cache::Cache;
use super::control::Authenticator;
use super::credentials::{Credentials, Secret};
use super::htpasswd::{Hash, Parsed, parse};
use super::limiter::Limiter;
use super::policy::Subject;
use super::{Caller, Denied};
use crate::error::Error;

const FILE_MAX: u64 = 4 << 20;
/// Those who may wait for their turn at one time.
const WAITING_MAX: usize = 256;
/// A file younger than this may change again without looking different.
const SETTLED: Duration = Duration::from_secs(2);

/// How an htpasswd file is used. The default is right for most.
#[derive(Clone, Debug)]
pub struct HtpasswdOptions {
    /// How long credentials that were right are not verified again. Default 60 s.
    pub remember: Duration,
    /// How often at most the file is looked at. Default 1 s.
    pub look_every: Duration,
    /// Passwords verified at one time. Default 2.
    pub at_once: usize,
    /// How long one waits for a turn. Default 10 s.
    pub patience: Duration,
}

impl Default for HtpasswdOptions {
    fn default() -> Self {
        HtpasswdOptions {
            remember: Duration::from_secs(60),
            look_every: Duration::from_secs(1),
            at_once: 2,
            patience: Duration::from_secs(10),
        }
    }
}

/// The users of an htpasswd file with bcrypt hashes, as `htpasswd -B` writes it.
pub struct Htpasswd {
    path: PathBuf,
    options: HtpasswdOptions,
    state: Mutex<State>,
    /// Held by whoever looks at the file.
    looking: tokio::sync::Mutex<()>,
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

struct State {
    file: Result<Arc<Parsed>, ()>,
    stamp: Option<Stamp>,
    looked: Instant,
    /// Grows with every reading.
    reading: u64,
    cache: Cache,
    limiter: Limiter,
}

/// What tells a file from a changed one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    length: u64,
    modified: (i64, i64),
    /// Whether it was old enough when read for the next change to show.
    settled: bool,
}

impl Htpasswd {
    /// Reads the file, which must be there now and may change later.
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
        tell(&path, &parsed);
        let state = State {
            file: Ok(Arc::new(parsed)),
            stamp: Some(stamp),
            looked: Instant::now(),
            reading: 0,
            cache: Cache::new(key, options.remember),
            limiter: Limiter::default(),
        };
        Ok(Htpasswd {
            path,
            state: Mutex::new(state),
            looking: tokio::sync::Mutex::default(),
            turns: Arc::new(Semaphore::new(options.at_once.clamp(1, 64))),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            options,
        })
    }

    /// Whether the file has a line for this user, whatever the password; of use to whom knows other users as well.
    pub async fn knows(&self, user: &str) -> bool {
        self.look().await;
        self.state().file.as_ref().is_ok_and(|file| file.users.contains_key(user))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file again when it changed, and when it is time to look.
    async fn look(&self) {
        let due = |state: &State| state.looked.elapsed() >= self.options.look_every;
        if !due(&self.state()) {
            return;
        }
        // Whoever comes while somebody looks goes on with what is known.
        let Ok(_looking) = self.looking.try_lock() else { return };
        let known = {
            let state = self.state();
            if !due(&state) {
                return;
            }
            state.stamp
        };
        let path = self.path.clone();
        let looked = crate::blocking(move || Ok(read_changed(&path, known))).await;
        let mut state = self.state();
        state.looked = Instant::now();
        match looked {
            Ok(Ok(None)) => {}
            Ok(Ok(Some((parsed, stamp)))) => {
                state.stamp = Some(stamp);
                if state.file.as_deref() != Ok(&parsed) {
                    tell(&self.path, &parsed);
                    state.reading += 1;
                    state.file = Ok(Arc::new(parsed));
                }
            }
            Ok(Err(error)) => {
                if state.file.is_ok() {
                    tracing::error!(file = %self.path.display(), error = %error, "users cannot be read; nobody can log in");
                }
                state.reading += 1;
                (state.file, state.stamp) = (Err(()), None);
            }
            Err(stopped) => tracing::warn!(error = %stopped, "the file of users was not looked at"),
        }
    }

    async fn verify(&self, user: &str, password: &Secret, peer: Option<SocketAddr>) -> Result<(), Denied> {
        self.look().await;
        let fingerprint = self.state().cache.fingerprint(user, password.expose());
        let known = |state: &State| state.cache.knows(&fingerprint, state.reading, Instant::now());
        {
            let mut state = self.state();
            if state.file.is_err() {
                return Err(Denied::Unavailable);
            }
            if known(&state) {
                return Ok(());
            }
            if let Some(peer) = peer
                && !state.limiter.take(peer.ip(), Instant::now())
            {
                tracing::warn!(peer = %peer, "too many wrong passwords from one address");
                return Err(Denied::Unavailable);
            }
        }
        let right = self.verify_in_turn(user, password, &known).await;
        let mut state = self.state();
        if let Some(peer) = peer
            && !matches!(right, Ok(None))
        {
            state.limiter.give_back(peer.ip());
        }
        let reading = right?.ok_or(Denied::Unauthorized)?;
        state.cache.remember(fingerprint, reading, Instant::now());
        Ok(())
    }

    /// Which reading of the file says that the password is right; `None` when it is wrong.
    async fn verify_in_turn(
        &self,
        user: &str,
        password: &Secret,
        known: &(dyn Fn(&State) -> bool + Sync),
    ) -> Result<Option<u64>, Denied> {
        let _waiting = Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| Denied::Unavailable)?;
        let turn = tokio::time::timeout(self.options.patience, Arc::clone(&self.turns).acquire_owned());
        let turn = turn.await.ok().and_then(Result::ok).ok_or(Denied::Unavailable)?;
        let (hash, there, reading) = {
            let state = self.state();
            if known(&state) {
                return Ok(Some(state.reading));
            }
            let Ok(file) = &state.file else { return Err(Denied::Unavailable) };
            let hash = file.users.get(user);
            let there = hash.is_some();
            (hash.cloned().unwrap_or_else(|| Hash::nobody(file.cost())), there, state.reading)
        };
        let password = password.clone();
        // The turn goes along: should the request go away, its work has not.
        let verified = crate::blocking(move || {
            let _turn = turn;
            Ok(hash.verify(password.expose()) && there)
        });
        let verified = verified.await.map_err(|_| Denied::Unavailable)?;
        Ok(verified.then_some(reading))
    }
}

#[async_trait]
impl Authenticator for Htpasswd {
    async fn authenticate(&self, credentials: &Credentials, caller: Caller<'_>) -> Result<Subject, Denied> {
        let Credentials::Basic { user, password } = credentials else { return Err(Denied::Unauthorized) };
        self.verify(user, password, caller.peer).await?;
        Ok(Subject::User { name: user.clone(), groups: Vec::new() })
    }
}

fn tell(path: &Path, parsed: &Parsed) {
    for (line, problem) in &parsed.problems {
        tracing::warn!(file = %path.display(), line, problem, "a line of the users' file was left out");
    }
    tracing::info!(file = %path.display(), users = parsed.users.len(), "users read");
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
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "users are read from an ordinary file"));
    }
    let file = File::open(path)?;
    // Before reading: what changes meanwhile looks different afterwards.
    let stamp = Stamp::of(&file.metadata()?);
    let mut text = String::new();
    file.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "an htpasswd file has 4 MiB at most"));
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
