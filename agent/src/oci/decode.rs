//! Decompression of layers and disk images, with the digest of what comes out.
//!
//! ```text
//! blob --first bytes--> gzip (members one after another) | zstd (frames, skippable frames) | as it is --sha256--> caller
//! ```
//!
//! The format is recognised by its first bytes: media types of artifacts often do not name it, and neither a tar archive
//! nor a disk begins like a compressed file.
//!
//! Invariant: a [`LayerReader`] ends without an error only after the compressed stream ended too, so the blob was verified
//! to its last byte, and the diff_id holds.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use sha2::{Digest as _, Sha256};

const BUFFER: usize = 128 * 1024;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const SKIPPABLE: u32 = 0x184d_2a50;

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
        let content = decompressed(blob)?;
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

/// Returns the uncompressed content of a stream.
///
/// # Errors
/// Returns the error of the stream.
pub fn decompressed<'run>(stream: impl Read + 'run) -> io::Result<Box<dyn Read + 'run>> {
    let mut stream =
        Prefixed { prefix: Vec::with_capacity(4), at: 0, inner: BufReader::with_capacity(BUFFER, stream) };
    stream.fill_prefix()?;
    Ok(match stream.prefix.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(Whole(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, stream)))),
        magic if is_zstd(magic) => Box::new(Zstd(State::Between(stream))),
        _ => Box::new(stream),
    })
}

fn is_zstd(magic: &[u8]) -> bool {
    let Ok(bytes) = <[u8; 4]>::try_from(magic) else { return false };
    bytes == ZSTD_MAGIC || u32::from_le_bytes(bytes) & 0xffff_fff0 == SKIPPABLE
}

/// A gzip decoder that reads its stream to the end.
struct Whole<R>(MultiGzDecoder<R>);

impl<R: BufRead> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

/// A stream whose next four bytes were read ahead.
struct Prefixed<R> {
    prefix: Vec<u8>,
    at: usize,
    inner: R,
}

impl<R: Read> Prefixed<R> {
    /// Reads the next four bytes, or fewer at the end of the stream.
    fn fill_prefix(&mut self) -> io::Result<()> {
        self.prefix.clear();
        self.at = 0;
        self.inner.by_ref().take(4).read_to_end(&mut self.prefix)?;
        Ok(())
    }
}

impl<R: Read> Read for Prefixed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.prefix.len() {
            return self.inner.read(buffer);
        }
        let length = buffer.len().min(self.prefix.len() - self.at);
        buffer[..length].copy_from_slice(&self.prefix[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

/// Decodes zstd frames one after another.
struct Zstd<R: Read>(State<R>);

enum State<R: Read> {
    /// The magic number of the next frame is the prefix.
    Between(Prefixed<R>),
    Frame(Box<StreamingDecoder<Prefixed<R>, ruzstd::decoding::FrameDecoder>>),
    Ended,
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {text}"));
        loop {
            match std::mem::replace(&mut self.0, State::Ended) {
                State::Ended => return Ok(0),
                State::Between(mut stream) => {
                    if stream.prefix.is_empty() {
                        return Ok(0);
                    }
                    if !is_zstd(&stream.prefix) {
                        return Err(invalid("bytes after a frame are not another frame".to_owned()));
                    }
                    if stream.prefix == ZSTD_MAGIC {
                        let frame =
                            StreamingDecoder::new(stream).map_err(|source| invalid(source.to_string()))?;
                        self.0 = State::Frame(Box::new(frame));
                        continue;
                    }
                    let mut length = [0; 4];
                    stream.inner.read_exact(&mut length)?;
                    let length = u64::from(u32::from_le_bytes(length));
                    if io::copy(&mut stream.inner.by_ref().take(length), &mut io::sink())? < length {
                        return Err(invalid("a skippable frame is cut off".to_owned()));
                    }
                    stream.fill_prefix()?;
                    self.0 = State::Between(stream);
                }
                State::Frame(mut frame) => {
                    let read = frame.read(buffer)?;
                    if read > 0 || buffer.is_empty() {
                        self.0 = State::Frame(frame);
                        return Ok(read);
                    }
                    let mut stream = frame.into_inner();
                    stream.fill_prefix()?;
                    self.0 = State::Between(stream);
                }
            }
        }
    }
}
