//! Packing the content of a disk with zstd, as a stream.
//!
//! ```text
//! content --sha256--> one frame of zstd (blocks of 128 KiB; a block of equal bytes has 4) --> sink
//! ```
//!
//! Invariants: equal content gives equal bytes; memory does not grow with the content; an error of either side ends the work and is
//! returned.

use std::io::{self, Read, Write};

use ruzstd::encoding::{CompressionLevel, compress};
use sha2::{Digest as _, Sha256};

/// The digest and the length of packed content.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Packed {
    /// The SHA-256 of the content, in hex.
    pub sha256: String,
    /// The bytes of the content.
    pub bytes: u64,
}

/// Packs content into a sink. `progress` receives the bytes of the content that were read.
///
/// # Errors
/// Returns the first error of the content or the sink. What the sink has then is not complete.
pub fn pack(content: impl Read, sink: impl Write, progress: &mut dyn FnMut(u64)) -> io::Result<Packed> {
    let failed = std::cell::Cell::new(None);
    let mut content = Content { inner: content, sha256: Sha256::new(), bytes: 0, failed: &failed, progress };
    let mut sink = Sink { inner: sink, failed: &failed };
    compress(&mut content, &mut sink, CompressionLevel::Fastest);
    let (sha256, bytes) = (content.sha256.finalize(), content.bytes);
    match failed.take() {
        Some(error) => Err(error),
        None => {
            sink.inner.flush()?;
            Ok(Packed { sha256: hex::encode(sha256), bytes })
        }
    }
}

/// The first error of a side. The encoder ends the process on an error of its reader or writer, so it is shown the end of the content
/// and a sink that takes everything.
type Failed = std::cell::Cell<Option<io::Error>>;

/// Whether a side has failed.
fn has_failed(failed: &Failed) -> bool {
    let error = failed.take();
    let there = error.is_some();
    failed.set(error);
    there
}

struct Content<'run, R> {
    inner: R,
    sha256: Sha256,
    bytes: u64,
    failed: &'run Failed,
    progress: &'run mut dyn FnMut(u64),
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if has_failed(self.failed) {
            return Ok(0);
        }
        loop {
            match self.inner.read(buffer) {
                Ok(read) => {
                    self.sha256.update(&buffer[..read]);
                    self.bytes += read as u64;
                    (self.progress)(self.bytes);
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed.set(Some(error));
                    return Ok(0);
                }
            }
        }
    }
}

struct Sink<'run, W> {
    inner: W,
    failed: &'run Failed,
}

impl<W: Write> Write for Sink<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !has_failed(self.failed)
            && let Err(error) = self.inner.write_all(bytes)
        {
            self.failed.set(Some(error));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpacked;

    #[test]
    fn packed_content_unpacks_to_itself_and_zeros_have_almost_no_bytes() {
        let mut content: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        content.resize(16 << 20, 0);
        content.extend(b"the end");
        let mut done = 0;
        let mut packings = [Vec::new(), Vec::new()];
        for packing in &mut packings {
            let packed = pack(&content[..], &mut *packing, &mut |bytes| done = bytes).unwrap();
            assert_eq!(packed.bytes, content.len() as u64);
            assert_eq!(packed.sha256, hex::encode(Sha256::digest(&content)));
        }
        assert_eq!(done, content.len() as u64);
        assert!(packings[0] == packings[1] && packings[0].len() < 4_000_000);
        let mut back = Vec::new();
        unpacked(&packings[0][..]).unwrap().read_to_end(&mut back).unwrap();
        assert!(back == content);
    }

    #[test]
    fn an_error_of_either_side_is_returned() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is gone"))
            }
        }
        impl Write for Failing {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::other("the connection is gone"))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let read = pack(b"first".chain(Failing), io::sink(), &mut |_| ()).unwrap_err();
        assert_eq!(read.to_string(), "the disk is gone");
        let content = io::repeat(7).take(1 << 40);
        let written = pack(content, Failing, &mut |_| ()).unwrap_err();
        assert_eq!(written.to_string(), "the connection is gone");
    }
}
