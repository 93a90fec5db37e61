//! The uncompressed content of a stream, whose packing is recognised by its first bytes.
//!
//! ```text
//! stream --first bytes--> gzip (members one after another) | zstd (frames, skippable frames) | as it is
//! ```
//!
//! Media types of artifacts often do not name the packing, and neither a tar archive nor a disk begins like a compressed file.
//!
//! Specifications: RFC 1952; RFC 8878, 3.1 "Frames".

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::FrameDecoderError;

const BUFFER: usize = 128 * 1024;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const SKIPPABLE: u32 = 0x184d_2a50;

/// Returns the uncompressed content of a stream.
///
/// # Errors
/// Returns the error of the stream.
pub fn unpacked<'run>(stream: impl Read + 'run) -> io::Result<Box<dyn Read + 'run>> {
    let mut stream =
        Prefixed { prefix: Vec::with_capacity(4), at: 0, inner: BufReader::with_capacity(BUFFER, stream) };
    stream.fill_prefix()?;
    Ok(match stream.prefix.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(Whole(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, stream)))),
        magic if magic.first_chunk().is_some_and(|magic| is_zstd(*magic)) => {
            Box::new(Zstd(State::Between(stream)))
        }
        _ => Box::new(stream),
    })
}

/// Whether a stream that begins with these bytes is packed with zstd.
pub(crate) fn is_zstd(magic: [u8; 4]) -> bool {
    magic == ZSTD_MAGIC || u32::from_le_bytes(magic) & 0xffff_fff0 == SKIPPABLE
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

/// The error of a frame in words. The texts of the decoder are those of its types; the error of the stream below it is kept.
fn refused(error: &(dyn Error + 'static)) -> io::Error {
    let outer = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let mut cause: Option<&(dyn Error + 'static)> = match outer {
        Some(inner) => Some(inner),
        None => Some(error),
    };
    while let Some(error) = cause {
        // `zstd --long=28` and more ask for it; the decoder keeps the whole window in memory.
        if let Some(FrameDecoderError::WindowSizeTooBig { requested, max }) = error.downcast_ref() {
            let (requested, max) = (requested >> 20, max >> 20);
            return io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "zstd: a frame needs a window of {requested} MiB, and at most {max} are used; pack it with --long=27 or less"
                ),
            );
        }
        match error.downcast_ref::<io::Error>() {
            Some(read) if read.kind() == io::ErrorKind::UnexpectedEof => {
                return io::Error::new(io::ErrorKind::InvalidData, "zstd: a frame is cut off");
            }
            Some(read) => return io::Error::new(read.kind(), read.to_string()),
            None => cause = error.source(),
        }
    }
    io::Error::new(io::ErrorKind::InvalidData, "zstd: a frame is damaged")
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
                    if !stream.prefix.first_chunk().is_some_and(|magic| is_zstd(*magic)) {
                        return Err(invalid("bytes after a frame are not another frame".to_owned()));
                    }
                    if stream.prefix == ZSTD_MAGIC {
                        let frame = StreamingDecoder::new(stream).map_err(|why| refused(&why))?;
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
                    let read = frame.read(buffer).map_err(|why| refused(&why))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::{gzip, zstd};

    #[test]
    fn frames_and_members_one_after_another_are_one_content() {
        let mut frames = zstd(b"first ");
        frames.extend([0x5e, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9]);
        frames.extend(zstd(b"second"));
        let mut members = gzip(b"first ");
        members.extend(gzip(b"second"));
        for stream in [frames.clone(), members] {
            let mut content = String::new();
            unpacked(&stream[..]).unwrap().read_to_string(&mut content).unwrap();
            assert_eq!(content, "first second");
        }
        frames.extend(b"garbage");
        assert!(unpacked(&frames[..]).unwrap().read_to_end(&mut Vec::new()).is_err());
        let cut = unpacked(&frames[..15]).unwrap().read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(cut.to_string(), "zstd: a frame is cut off");
        frames.truncate(20);
        assert!(unpacked(&frames[..]).unwrap().read_to_end(&mut Vec::new()).is_err());
        // A window descriptor with the exponent 18, of 256 MiB.
        let long = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 18 << 3, 1, 0, 0];
        let refused = unpacked(&long[..]).unwrap().read_to_end(&mut Vec::new()).unwrap_err();
        assert!(refused.to_string().contains("a window of 256 MiB"), "{refused}");
        assert_eq!(unpacked(&b"x"[..]).unwrap().read_to_end(&mut Vec::new()).unwrap(), 1);
    }
}
