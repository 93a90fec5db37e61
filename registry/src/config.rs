//! The settings of a registry: its directory and its limits.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::immutable::ImmutableTags;
use crate::pattern::RepositoryPattern;

/// The settings of one registry. [`Config::new`] gives the defaults; every field can be changed afterwards.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory of the registry. One process at a time may use it: the embedding program holds the lock.
    pub root: PathBuf,
    /// The largest blob, in bytes. Default 20 GiB.
    pub max_blob_size: u64,
    /// The largest manifest, in bytes. Default 5 MiB: the specification asks every registry to accept 4 MiB.
    pub max_manifest_size: usize,
    /// Request bodies received at one time; further ones wait unread (see `upload_queue_timeout`). Default 64.
    pub max_concurrent_uploads: usize,
    /// Request bodies received at one time from one user, or from one address without login. Default 32.
    pub max_concurrent_uploads_per_user: usize,
    /// Request bodies received at one time for one repository. Default 48.
    pub max_concurrent_uploads_per_repository: usize,
    /// Upload sessions open at one time, idle ones included. Default 1,024.
    pub max_upload_sessions: usize,
    /// Upload sessions open at one time of one user, or of one address without login. Default 256.
    pub max_upload_sessions_per_user: usize,
    /// Upload sessions open at one time in one repository. Default 512.
    pub max_upload_sessions_per_repository: usize,
    /// The time after which an idle upload session without a byte ends when its place is needed. Default 1 min.
    pub upload_idle: Duration,
    /// Bytes per second that a client must send on average over each 30 s of a body; 0 accepts any rate. Time in which
    /// the registry itself is busy does not count. Default 4 KiB.
    pub upload_min_rate: u64,
    /// The longest time that an upload waits for a place before it is refused with 429. Default 30 s.
    pub upload_queue_timeout: Duration,
    /// The longest time that a client may send nothing in the middle of a body. Default 30 s.
    pub upload_read_timeout: Duration,
    /// The longest time that the registry waits for one request body, in addition to the time that the received bytes take at
    /// `upload_min_rate`: a body that keeps the rate is not cut. Default 1 h.
    pub upload_timeout: Duration,
    /// The age at which [`Registry::sweep`](crate::Registry::sweep) removes an upload session without writes. Default
    /// 24 h.
    pub upload_session_age: Duration,
    /// The precision of the last use of content: content in constant use is recorded once in this interval. Added to
    /// every grace period of garbage collection. Default 1 min.
    pub touch_interval: Duration,
    /// Free space of the file system that pushes never use, so that the rest of the program can continue to write.
    /// Default 64 MiB.
    pub reserve: Reserve,
    /// Limits of the bytes in repositories. A repository may be under several. Default none.
    pub quotas: Vec<Quota>,
    /// Tags that, once they exist, neither move nor are deleted, by any caller, by retention or by an import; everything
    /// below their manifests stays as well. Default none.
    pub immutable_tags: Vec<ImmutableTags>,
    /// Repositories that accept an image although blobs it refers to are missing. Default none.
    pub sparse_images: Vec<RepositoryPattern>,
    /// Repositories that accept an index although manifests it refers to are missing, as when one platform of many is
    /// mirrored. Default all.
    pub sparse_indexes: Vec<RepositoryPattern>,
}

/// A limit of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The repositories that share the quota.
    pub repositories: RepositoryPattern,
    /// The limit in bytes of all these repositories together.
    pub bytes: u64,
}

/// Space that is left free: an amount, or a percentage of the file system. Written `1073741824` or `2%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the file system.
    Percent(u8),
}

/// The text is not a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reserve is a number of bytes, or a percentage from 0% to 99%")]
pub struct InvalidReserve;

impl Reserve {
    /// The reserve in bytes on a file system of `total` bytes.
    pub fn of(self, total: u64) -> u64 {
        match self {
            Reserve::Bytes(bytes) => bytes,
            Reserve::Percent(percent) => total / 100 * u64::from(percent),
        }
    }
}

impl FromStr for Reserve {
    type Err = InvalidReserve;

    fn from_str(text: &str) -> Result<Self, InvalidReserve> {
        match text.strip_suffix('%') {
            Some(number) => match number.parse() {
                Ok(percent @ 0..=99) => Ok(Reserve::Percent(percent)),
                _ => Err(InvalidReserve),
            },
            None => text.parse().map(Reserve::Bytes).map_err(|_| InvalidReserve),
        }
    }
}

impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reserve::Bytes(bytes) => write!(f, "{bytes}"),
            Reserve::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Config {
    /// The default settings for the directory `root`, which is created when missing.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Config {
            root: root.into(),
            max_blob_size: 20 << 30,
            max_manifest_size: 5 << 20,
            max_concurrent_uploads: 64,
            max_concurrent_uploads_per_user: 32,
            max_concurrent_uploads_per_repository: 48,
            max_upload_sessions: 1024,
            max_upload_sessions_per_user: 256,
            max_upload_sessions_per_repository: 512,
            upload_idle: Duration::from_secs(60),
            upload_min_rate: 4 << 10,
            upload_queue_timeout: Duration::from_secs(30),
            upload_read_timeout: Duration::from_secs(30),
            upload_timeout: Duration::from_secs(3600),
            upload_session_age: Duration::from_secs(24 * 3600),
            touch_interval: Duration::from_secs(60),
            reserve: Reserve::Bytes(64 << 20),
            quotas: Vec::new(),
            immutable_tags: Vec::new(),
            sparse_images: Vec::new(),
            sparse_indexes: vec![RepositoryPattern::all()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_an_amount_or_a_percentage() {
        assert_eq!("1073741824".parse(), Ok(Reserve::Bytes(1 << 30)));
        assert_eq!("2%".parse(), Ok(Reserve::Percent(2)));
        assert_eq!(Reserve::Percent(2).of(50_000), 1000);
        for text in ["", "%", "-1", "100%", "2 %", "1.5%", "1k"] {
            assert_eq!(text.parse::<Reserve>(), Err(InvalidReserve), "{text:?}");
        }
        for reserve in [Reserve::Bytes(7), Reserve::Percent(7)] {
            assert_eq!(reserve.to_string().parse(), Ok(reserve));
        }
    }

    /// With a default of all places per user, one user fills the registry.
    #[test]
    fn by_default_one_user_takes_at_most_half_of_the_places_and_one_repository_not_all() {
        let Config {
            max_concurrent_uploads: uploads,
            max_concurrent_uploads_per_user: uploads_of_user,
            max_concurrent_uploads_per_repository: uploads_to_repository,
            max_upload_sessions: sessions,
            max_upload_sessions_per_user: sessions_of_user,
            max_upload_sessions_per_repository: sessions_to_repository,
            ..
        } = Config::new("unused");
        for (all, of_user, to_repository) in [
            (uploads, uploads_of_user, uploads_to_repository),
            (sessions, sessions_of_user, sessions_to_repository),
        ] {
            assert!((1..=all / 2).contains(&of_user), "{of_user} of {all} per user");
            assert!((1..all).contains(&to_repository), "{to_repository} of {all} per repository");
        }
    }
}
