//! The bytes of one image with known length and digest, readable at any offset.
//!
//! ```text
//! bytes ---.
//! plan  ----> ImageBody { read_exact_at, len, etag "sha256:...", type, last modified } --clone--> one for each request
//! file  ---'
//! ```
//!
//! Invariants: length and digest are those of the bytes for the lifetime of the body; a read returns all requested bytes
//! or fails; a clone costs one reference count. A body knows whether its bytes are in memory: a small plan is read on the
//! thread of the request, a file on a thread that may block.

use std::fmt;
use std::io;
use std::sync::Arc;

use http::HeaderValue;
use iso9660::{FileRange, ReadAt};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

/// The media type of every medium.
pub const ISO_CONTENT_TYPE: &str = "application/x-iso9660-image";
/// The media type of every firmware image.
const OCTETS: &str = "application/octet-stream";

/// Bytes read at a time for hashing.
const HASH_CHUNK: usize = 256 * 1024;

/// The SHA-256 of an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageDigest([u8; 32]);

impl ImageDigest {
    /// The digest with these bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Parses 64 lower-case hexadecimal digits, with or without the prefix `sha256:`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        if digits.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes).ok().map(|()| Self(bytes))
    }

    /// The digest of all bytes of `source`.
    ///
    /// # Errors
    /// The error of the first read of `source` that fails.
    pub fn of(source: &dyn ReadAt) -> io::Result<Self> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; HASH_CHUNK];
        let (mut offset, len) = (0, source.len());
        while offset < len {
            let length = usize::try_from(len - offset).unwrap_or(HASH_CHUNK).min(HASH_CHUNK);
            source.read_exact_at(offset, &mut buffer[..length])?;
            hasher.update(&buffer[..length]);
            offset += length as u64;
        }
        Ok(Self(hasher.finalize().into()))
    }

    /// The 32 bytes of the digest.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Display for ImageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.to_hex())
    }
}

impl fmt::Debug for ImageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The place of the bytes of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// The bytes are in the memory of this process: a read is a copy.
    Memory,
    /// The bytes are on a disk: a read may block.
    Disk,
}

/// The bytes of an image, ready to be served. Cheap to clone.
#[derive(Clone)]
pub struct ImageBody(Arc<Inner>);

struct Inner {
    source: Box<dyn ReadAt>,
    len: u64,
    digest: ImageDigest,
    etag: String,
    last_modified: Option<String>,
    backing: Backing,
    content_type: &'static str,
}

impl ImageBody {
    /// A body over `source`. The caller guarantees that `digest` is the SHA-256 of its bytes.
    #[must_use]
    pub fn new(source: impl ReadAt + 'static, digest: ImageDigest, backing: Backing) -> Self {
        Self::of_type(source, digest, backing, ISO_CONTENT_TYPE)
    }

    fn of_type(
        source: impl ReadAt + 'static,
        digest: ImageDigest,
        backing: Backing,
        content_type: &'static str,
    ) -> Self {
        let len = source.len();
        let source = Box::new(source);
        let etag = format!("\"{digest}\"");
        Self(Arc::new(Inner { source, len, digest, etag, last_modified: None, backing, content_type }))
    }

    /// A body over a firmware image on a disk. The caller guarantees that `digest` is the SHA-256 of its bytes.
    #[must_use]
    pub fn firmware(source: impl ReadAt + 'static, digest: ImageDigest) -> Self {
        Self::of_type(source, digest, Backing::Disk, OCTETS)
    }

    /// A body with an identity that is not the SHA-256 of its bytes, such as that of a splice. The entity tag begins with `kind`.
    #[must_use]
    pub fn identified(
        source: impl ReadAt + 'static,
        identity: ImageDigest,
        backing: Backing,
        kind: &str,
    ) -> Self {
        let len = source.len();
        let etag = format!("\"{kind}-{}\"", identity.to_hex());
        let (source, last_modified): (Box<dyn ReadAt>, _) = (Box::new(source), None);
        let content_type = ISO_CONTENT_TYPE;
        Self(Arc::new(Inner { source, len, digest: identity, etag, last_modified, backing, content_type }))
    }

    /// A body over bytes in memory; this function hashes them.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let digest = ImageDigest::new(Sha256::digest(&bytes).into());
        Self::new(bytes, digest, Backing::Memory)
    }

    /// Sets the `Last-Modified` date to `at`, in whole seconds.
    #[must_use]
    pub fn modified_at(self, at: Timestamp) -> Self {
        let last_modified = Some(at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string());
        let inner = Arc::try_unwrap(self.0).unwrap_or_else(|shared| Inner {
            len: shared.len,
            digest: shared.digest,
            etag: shared.etag.clone(),
            backing: shared.backing,
            content_type: shared.content_type,
            last_modified: None,
            source: Box::new(ImageBody(shared)),
        });
        Self(Arc::new(Inner { last_modified, ..inner }))
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Whether the body has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The digest of the bytes, or the identity given to [`ImageBody::identified`].
    #[must_use]
    pub fn digest(&self) -> ImageDigest {
        self.0.digest
    }

    /// The strong entity tag with its quotes.
    #[must_use]
    pub fn etag(&self) -> &str {
        &self.0.etag
    }

    /// The media type.
    #[must_use]
    pub fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static(self.0.content_type)
    }

    /// The `Last-Modified` date, when the body has one.
    #[must_use]
    pub fn last_modified(&self) -> Option<&str> {
        self.0.last_modified.as_deref()
    }

    /// Whether the bytes are in memory, so that a read does not block.
    #[must_use]
    pub fn in_memory(&self) -> bool {
        self.0.backing == Backing::Memory
    }

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// When the range ends after the last byte, or the source cannot be read.
    pub fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.source.read_exact_at(offset, buffer)
    }
}

impl ReadAt for ImageBody {
    fn len(&self) -> u64 {
        self.0.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        ImageBody::read_exact_at(self, offset, buffer)
    }

    fn file_at(&self, offset: u64) -> Option<FileRange> {
        self.0.source.file_at(offset)
    }
}

impl fmt::Debug for ImageBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageBody")
            .field("len", &self.0.len)
            .field("digest", &self.0.digest)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_knows_its_length_tag_and_date() {
        let body = ImageBody::from_bytes(b"abc".to_vec());
        assert_eq!(body.len(), 3);
        assert_eq!(
            body.etag(),
            "\"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\""
        );
        assert_eq!(body.last_modified(), None);
        let kept = body.clone();
        let dated = body.modified_at(Timestamp::from_second(784_111_777).unwrap());
        assert_eq!(dated.last_modified(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!((dated.etag(), dated.len()), (kept.etag(), 3));
        let mut buffer = [0; 2];
        dated.read_exact_at(1, &mut buffer).unwrap();
        assert_eq!(&buffer, b"bc");
        assert!(dated.read_exact_at(2, &mut buffer).is_err());
    }

    #[test]
    fn a_digest_has_one_spelling() {
        let digest = ImageBody::from_bytes(b"abc".to_vec()).digest();
        assert_eq!(ImageDigest::parse(&digest.to_hex()), Some(digest));
        assert_eq!(ImageDigest::parse(&digest.to_string()), Some(digest));
        assert_eq!(ImageDigest::parse(&digest.to_hex().to_uppercase()), None);
        assert_eq!(ImageDigest::parse("ba78"), None);
        assert_eq!(ImageDigest::parse("../../etc/passwd"), None);
    }

    #[test]
    fn a_long_source_is_hashed_like_its_bytes() {
        let bytes: Vec<u8> = (0..HASH_CHUNK * 2 + 17).map(|at| (at % 251) as u8).collect();
        assert_eq!(ImageDigest::of(&bytes).unwrap(), ImageBody::from_bytes(bytes.clone()).digest());
    }
}
