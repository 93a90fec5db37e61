//! Decompression of layers and disk images, with the digest of what comes out.
//!
//! ```text
//! blob --first bytes--> gzip (members one after another) | zstd (frames, skippable frames) | as it is --sha256--> caller
//! ```
//!
//! Invariant: a [`LayerReader`] ends without an error only after the compressed stream ended too, so the blob was verified
//! to its last byte, and the diff_id holds.

use std::io::{self, Read};

use disk_file::unpacked;
use sha2::{Digest as _, Sha256};

const BUFFER: usize = 128 * 1024;

/// The uncompressed content of a layer.
pub struct LayerReader<'run> {
    content: Box<dyn Read + 'run>,
    sha256: Sha256,
    diff_id: Option<String>,
    ended: bool,
    bytes: u64,
}

impl<'run> LayerReader<'run> {
    /// Creates the reader. `diff_id` is verified at the end if there is one.
    ///
    /// # Errors
    /// Returns the error of `blob`.
    pub fn new(blob: impl Read + 'run, diff_id: Option<&str>) -> io::Result<Self> {
        let content = unpacked(blob)?;
        Ok(Self {
            content,
            sha256: Sha256::new(),
            diff_id: diff_id.map(str::to_owned),
            ended: false,
            bytes: 0,
        })
    }

    /// Reads what is left and verifies it. Content after the end of an archive counts for the digest.
    ///
    /// # Errors
    /// Returns an error when the content cannot be read or does not match its digests.
    pub fn finish(mut self) -> io::Result<u64> {
        let mut buffer = vec![0; BUFFER];
        while self.read(&mut buffer)? > 0 {}
        Ok(self.bytes)
    }
}

impl Read for LayerReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended || buffer.is_empty() {
            return Ok(0);
        }
        let read = self.content.read(buffer)?;
        self.sha256.update(&buffer[..read]);
        self.bytes += read as u64;
        if read == 0 {
            let actual = format!("sha256:{}", hex::encode(std::mem::take(&mut self.sha256).finalize()));
            if let Some(expected) = self.diff_id.as_ref().filter(|expected| **expected != actual) {
                let text = format!("the diff_id is {expected}, the uncompressed content hashes to {actual}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            self.ended = true;
        }
        Ok(read)
    }
}
