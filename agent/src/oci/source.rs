//! Where documents and blobs of an image come from: a registry, or the medium.

use std::io::Read;

use super::error::PullError;
use crate::clock::Clock;
use beacon::Class;

/// Why a request has no result yet.
pub enum SourceFailure {
    /// A later request can succeed.
    Transient(String),
    /// No later request can succeed.
    Permanent(PullError),
}

/// A blob that was opened.
pub struct OpenedBlob {
    /// The offset of the first byte of `body`: the one that was asked for, or 0 when the source knows no offsets.
    pub begins: Option<u64>,
    /// The bytes.
    pub body: Box<dyn Read + Send>,
}

/// A source of images.
pub trait ImageSource {
    /// Returns the name of the source in errors.
    fn name(&self) -> &str;

    /// Returns the clock by which it is waited for.
    fn clock(&self) -> &dyn Clock;

    /// Reads a document: a manifest (`manifests`) by name or digest, or a small blob (`blobs`). Waits for a source that is away.
    ///
    /// # Errors
    /// Returns an error when the source refuses it, or does not respond for ten minutes.
    fn document(&self, kind: &str, name: &str, accept: &str, limit: u64) -> Result<Vec<u8>, PullError>;

    /// Opens a blob at an offset. One attempt.
    ///
    /// # Errors
    /// Returns whether another attempt can succeed.
    fn open_blob(&self, digest: &str, offset: u64, what: &str) -> Result<OpenedBlob, SourceFailure>;

    /// Prepares another attempt.
    fn try_again(&self) {}

    /// Learns why an image could not be read.
    fn failed(&self, class: Class) {
        let _ = class;
    }
}
