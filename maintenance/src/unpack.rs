//! Unpacks xz, zstd and gzip data with a limit.
//!
//! Invariants: no more than the given number of bytes is delivered, whatever the data claims; a decoder uses at most 128 MiB.

use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// The most memory of an xz decoder. Packages of distributions use dictionaries of at most 64 MiB.
const XZ_MEMORY_KIB: u32 = 128 << 10;

/// Returns a reader of the unpacked data. Data of another form is returned unchanged.
///
/// # Errors
/// When the data is shorter than its header, or asks for too much memory.
pub(crate) fn unpack<'a>(packed: impl Read + 'a, limit: u64) -> io::Result<Box<dyn Read + 'a>> {
    let mut packed = BufReader::with_capacity(64 << 10, packed);
    let magic = packed.fill_buf()?;
    let plain: Box<dyn Read + 'a> = if magic.starts_with(b"\xfd7zXZ\0") {
        Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, XZ_MEMORY_KIB))
    } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(ZstdFrames { source: Some(packed), frame: None })
    } else if magic.starts_with(&[0x1f, 0x8b]) {
        Box::new(flate2::bufread::MultiGzDecoder::new(packed))
    } else {
        Box::new(packed)
    };
    Ok(Box::new(Limited { inner: plain, left: limit }))
}

/// Unpacks to a vector of at most `limit` bytes.
///
/// # Errors
/// When the data is damaged or longer.
pub(crate) fn unpack_all(packed: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    unpack(packed, limit)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A reader that fails when its source is longer than the limit. A shortened file would be worse than an error.
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the unpacked data is longer than allowed")
        })?;
        Ok(read)
    }
}

/// The frames of a zstd file one after the other; a decoder reads one.
struct ZstdFrames<R: BufRead> {
    source: Option<R>,
    frame: Option<StreamingDecoder<R, FrameDecoder>>,
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(frame) = &mut self.frame {
                let read = frame.read(buffer)?;
                if read > 0 {
                    return Ok(read);
                }
                self.source = self.frame.take().map(StreamingDecoder::into_inner);
            }
            let Some(mut source) = self.source.take() else { return Ok(0) };
            if source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let frame = StreamingDecoder::new(source)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            self.frame = Some(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::{gzip, xz, zstd};

    #[test]
    fn every_packing_gives_the_same_data() {
        let data: Vec<u8> = (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for packed in [data.clone(), xz(&data), gzip(&data), zstd(&data), [zstd(&data), zstd(b"")].concat()] {
            assert_eq!(unpack_all(&*packed, 1 << 20).unwrap(), data);
        }
        let two = [zstd(b"a"), zstd(b"b")].concat();
        assert_eq!(unpack_all(&*two, 10).unwrap(), b"ab");
    }

    #[test]
    fn data_that_unpacks_to_more_than_the_limit_is_refused() {
        let data = vec![0; 1 << 20];
        for packed in [data.clone(), xz(&data), gzip(&data), zstd(&data)] {
            assert!(unpack_all(&*packed, (1 << 20) - 1).is_err());
            assert!(unpack_all(&*packed, 1 << 20).is_ok());
        }
    }

    #[test]
    fn cut_data_is_an_error() {
        let data: Vec<u8> =
            (0..50_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        for packed in [xz(&data), gzip(&data), zstd(&data)] {
            for cut in [7, packed.len() / 2, packed.len() - 1] {
                assert!(unpack_all(&packed[..cut], 1 << 20).is_err(), "{cut} of {}", packed.len());
            }
        }
    }
}
