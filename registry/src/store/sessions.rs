//! The table of upload sessions: how many there are, whose they are, and which of them end for a new one.
//!
//! ```text
//!  begin ──> room in the table, in the share of the client, in that of the repository?
//!              yes ─> admitted
//!              no  ─> a session of the full group that is idle ends:  empty and idle for `upload_idle`,
//!                                                                    or idle for an hour; empty ones first, oldest first
//!              none ─> refused with 429; the client waits or cancels
//! ```
//!
//! So a client that opens sessions and leaves them takes its own share, never the table, and idle sessions never refuse
//! a working client. A session in use by a request is not idle. The client of a session is saved beside its hash state
//! (see `resume`), without any fsync: after a power cut a session may be without one, and then belongs to no share.
//!
//! An administrator can list all sessions and cancel each of them; the request that writes to it ends.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::uploads::{Session, UploadLock};
use super::{Store, disk};
use crate::error::{Error, UploadLimit};
use crate::name::RepositoryName;
use crate::uploader::Uploader;

/// The idle time after which a session with bytes ends when its place is needed. Its client may continue before.
const RESUMED_WITHIN: Duration = Duration::from_secs(3600);

/// An open upload session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadSession {
    /// The id, which is the last part of the session's URL.
    pub id: String,
    /// The repository.
    pub repository: RepositoryName,
    /// The client that began the session.
    pub uploader: Uploader,
    /// The time at which the session began.
    pub begun: SystemTime,
    /// The time of the last write to the session; its beginning if there was none.
    pub written: SystemTime,
    /// The bytes received so far.
    pub received: u64,
    /// Whether a request uses the session now.
    pub active: bool,
}

/// A limit of sessions that a new one would exceed.
struct Full {
    of: UploadLimit,
    limit: usize,
    members: Vec<Arc<Session>>,
}

impl Store {
    /// Adds a new session to the table, if there is room or can be made.
    pub(super) fn admit(&self, session: &Arc<Session>) -> Result<(), Error> {
        loop {
            let full = {
                let mut sessions = self.sessions.lock();
                let all: Vec<&Arc<Session>> = sessions.values().collect();
                match self.full(&all, session) {
                    None => {
                        sessions.insert(session.id, Arc::clone(session));
                        return Ok(());
                    }
                    Some(full) => full,
                }
            };
            // Each round ends one session, so there are no more rounds than sessions.
            if !self.evict_one(&full.members)? {
                return Err(Error::TooManyUploads { limit: full.limit, of: full.of });
            }
        }
    }

    /// The narrowest limit that one more session like `new` would exceed.
    fn full(&self, all: &[&Arc<Session>], new: &Session) -> Option<Full> {
        let config = &self.config;
        let group = |of, limit: usize, member: &dyn Fn(&Session) -> bool| {
            let members = || all.iter().filter(|session| member(session));
            (members().count() >= limit).then(|| Full {
                of,
                limit,
                members: members().copied().cloned().collect(),
            })
        };
        let of_user = |other: &Session| other.uploader() == new.uploader();
        let user = match new.uploader() {
            Uploader::Unknown => None,
            _ => group(UploadLimit::User, config.max_upload_sessions_per_user, &of_user),
        };
        user.or_else(|| {
            let of_repository = |other: &Session| other.repository() == new.repository();
            group(UploadLimit::Repository, config.max_upload_sessions_per_repository, &of_repository)
        })
        .or_else(|| group(UploadLimit::Registry, config.max_upload_sessions, &|_| true))
    }

    /// Ends the session whose client is the least likely to continue; returns whether there was one.
    fn evict_one(&self, members: &[Arc<Session>]) -> Result<bool, Error> {
        let now = SystemTime::now();
        let mut idle: Vec<(bool, SystemTime, &Arc<Session>)> = Vec::new();
        for session in members {
            let Some(written) = written(session)? else { continue };
            let (used, age) = (session.received() > 0, now.duration_since(written).unwrap_or_default());
            if age >= if used { RESUMED_WITHIN } else { self.config.upload_idle } {
                idle.push((used, written, session));
            }
        }
        // File systems round the time of a write to some milliseconds; of sessions with one time the oldest ends.
        idle.sort_by_key(|(used, written, session)| (*used, *written, session.begun(), session.id));
        for (used, _, session) in idle {
            let Some(lock) = session.try_lock() else { continue };
            if self.end_session(session, lock) {
                tracing::info!(
                    session = %session.id, repository = %session.repository(), uploader = %session.uploader(), used,
                    "an idle upload session was ended to make room for another one"
                );
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends a session and removes its bytes; returns whether it was open.
    pub(crate) fn end_session(&self, session: &Session, mut lock: UploadLock) -> bool {
        if lock.offset().is_none() {
            return false;
        }
        self.disk.discard(session.path());
        self.forget(session, &mut lock);
        true
    }

    /// Every session, the one that waits longest for a write first.
    pub(crate) fn upload_sessions(&self) -> Result<Vec<UploadSession>, Error> {
        let all: Vec<Arc<Session>> = self.sessions.lock().values().cloned().collect();
        let mut shown = Vec::new();
        for session in all {
            // A session that just ended is not shown.
            let Some(written) = written(&session)? else { continue };
            shown.push(UploadSession {
                id: session.id.to_string(),
                repository: session.repository().clone(),
                uploader: session.uploader().clone(),
                begun: session.begun(),
                written,
                received: session.received(),
                active: session.try_lock().is_none(),
            });
        }
        shown.sort_by(|one, other| {
            (one.written, one.begun, &one.id).cmp(&(other.written, other.begun, &other.id))
        });
        Ok(shown)
    }

    /// The session `id`, of any repository.
    pub(crate) fn upload_session(&self, id: Uuid) -> Option<Arc<Session>> {
        self.sessions.lock().get(&id).cloned()
    }

    /// The number of open sessions.
    pub(crate) fn open_sessions(&self) -> usize {
        self.sessions.lock().len()
    }
}

/// The time of the last write to a session; `None` when the session has ended.
fn written(session: &Session) -> Result<Option<SystemTime>, Error> {
    let path = session.path();
    match disk::metadata(path)? {
        None => Ok(None),
        Some(found) => found.modified().map(Some).map_err(Error::io("read the age of", path)),
    }
}
