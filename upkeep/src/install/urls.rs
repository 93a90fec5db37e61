//! The part of the media server that an installation uses: a URL from which one BMC reads one image, and the count of its reads.
//!
//! ```text
//!   issue ──> Grant + URL ──> checkpoint (intent and grant, one transaction) ──> SimpleUpdate with the URL
//!   reads ──> how much the BMC has read, and since when nothing
//!   ended     the grant ended in the database: connections that read from it are broken
//! ```
//!
//! Invariants: a grant is for one file, one component and one attempt, so a URL of an earlier attempt reads nothing; a URL is
//! not stored and not shown, because its path is the right to read.

use std::fmt;

use async_trait::async_trait;

use bmc::Unavailable;
use firmware::VerifiedFirmware;
use model::{Grant, RunId, Time};

/// An order for a URL from which one BMC reads one image in one attempt.
#[derive(Clone, Copy, Debug)]
pub struct UrlOrder<'a> {
    /// The run.
    pub run: RunId,
    /// The key of the component.
    pub component: &'a str,
    /// The number of the attempt, from 1; each has its own URL.
    pub attempt: u32,
    /// The address of the media server as the BMC reaches it: `scheme://host[:port]`.
    pub base: &'a str,
    /// The file, whose bytes were hashed.
    pub file: &'a VerifiedFirmware,
    /// The time of the grant.
    pub now: Time,
}

/// An issued URL with its grant, which is not stored yet.
pub struct IssuedUrl {
    /// The grant, to be stored before the URL is given out.
    pub grant: Grant,
    url: String,
}

impl IssuedUrl {
    /// A URL and its grant.
    pub fn new(grant: Grant, url: String) -> Self {
        Self { grant, url }
    }

    /// The URL, for the request to the BMC only.
    pub fn reveal(&self) -> &str {
        &self.url
    }
}

impl fmt::Debug for IssuedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedUrl").field("size", &self.grant.size).finish_non_exhaustive()
    }
}

/// The reads of an image through one grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageReads {
    /// The number of bytes sent; bytes that were sent twice count twice.
    pub bytes: u64,
    /// When the last bytes were sent.
    pub last_at: Option<Time>,
    /// Since when reads are counted without a gap: the last reads of a controller that was killed may be missing.
    pub counted_since: Option<Time>,
}

/// Serves firmware images to BMCs that read them from a URL.
#[async_trait]
pub trait ImageUrls: Send + Sync {
    /// Why no image can be served at all; `None` when one can. An image is then uploaded, or not installed.
    fn unserved(&self) -> Option<&'static str> {
        None
    }

    /// Makes a grant and its URL. Nothing is stored.
    ///
    /// # Errors
    /// When BMCs refuse a URL below this base.
    fn issue(&self, order: &UrlOrder<'_>) -> Result<IssuedUrl, String>;

    /// Returns the reads through the grant whose token has this hash.
    async fn reads(&self, token_hash: &str) -> Result<ImageReads, Unavailable>;

    /// Drops what is kept in memory of the grants of a run. Called after their end is durable.
    fn ended(&self, run: RunId);
}
