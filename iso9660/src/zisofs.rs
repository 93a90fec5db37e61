//! zisofs: files compressed block by block, so that a range can be read without the bytes before it.
//!
//! ```text
//! ZF entry    "pz"   header size / 4   log2 of the block size   size of the file (both-endian)     in Rock Ridge
//!
//! stored      37 E4 53 96 C9 DB D6 07 | 8 size (32) | 12 header size / 4 | 13 log2 of the block size | 14 reserved
//!             pointer n .. pointer n+1: block n, a zlib stream; an empty range: a block of zeros
//!             pointer n .. pointer n+1: block n, a zlib stream; nothing: a block of zeros
//! ```
//!
//! Invariants: blocks have 32, 64 or 128 KiB. A pointer is used only when it is not less than the one before and is
//! inside the stored file. A block is inflated into a buffer of the block size and must fill it. A reader caches
//! [`KEPT`] blocks.

use std::io;
use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};
use parking_lot::Mutex;

use crate::ecma119::field::{array, read_both_u32};
use crate::error::ReadError;
use crate::source::ReadAt;

const MAGIC: [u8; 8] = [0x37, 0xE4, 0x53, 0x96, 0xC9, 0xDB, 0xD6, 0x07];
/// The length of the header that all known writers use; Linux requires at least this length.
const HEADER: u64 = 16;
const LOG2: std::ops::RangeInclusive<u8> = 15..=17;
/// The number of inflated blocks that a reader caches: 512 KiB at most.
const KEPT: usize = 4;

/// The parameters in a ZF entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Parameters {
    /// Whether the algorithm is the supported one.
    pub(crate) known: bool,
    /// The block size in bytes.
    header: u64,
    log2: u8,
    pub(crate) len: u32,
}

impl Parameters {
    /// Parses the data of a ZF entry; `None` when it is too short or its byte orders differ.
    pub(crate) fn parse(data: &[u8]) -> Option<Parameters> {
        let (known, header, log2) = (data.get(..2)? == b"pz", *data.get(2)?, *data.get(3)?);
        Some(Parameters { known, header: u64::from(header) * 4, log2, len: read_both_u32(data, 4)? })
    }
}

/// A compressed file that reads as its uncompressed content.
#[derive(Debug)]
pub(crate) struct Blocks {
    parameters: Parameters,
    /// The blocks inflated last, the newest at the end.
    kept: Mutex<Vec<(u64, Arc<[u8]>)>>,
    /// The offset of the stored file in the image, for errors.
    offset: u64,
}

impl Blocks {
    /// Parses the header of a stored file. `offset` is its offset in the image.
    pub(crate) fn open(
        stored: &dyn ReadAt,
        parameters: Parameters,
        offset: u64,
    ) -> Result<Blocks, ReadError> {
        let invalid = |rule| ReadError::Invalid { offset, rule };
        if !parameters.known {
            return Err(ReadError::Unsupported { offset, feature: "a zisofs algorithm other than zlib" });
        }
        if !LOG2.contains(&parameters.log2) {
            return Err(invalid("the blocks of a zisofs file have 32, 64 or 128 KiB"));
        }
        let mut head = [0; HEADER as usize];
        if parameters.header < HEADER || stored.len() < HEADER {
            return Err(invalid("a zisofs file begins with a header of at least 16 bytes"));
        }
        stored.read_exact_at(0, &mut head).map_err(|error| ReadError::io(offset, head.len(), error))?;
        if head[..8] != MAGIC {
            return Err(invalid("a zisofs file begins with its magic number"));
        }
        let claimed = (array(&head, 8).map(u32::from_le_bytes), u64::from(head[12]) * 4, head[13]);
        if claimed != (Some(parameters.len), parameters.header, parameters.log2) {
            return Err(invalid("a zisofs file and its ZF entry agree"));
        }
        let blocks = Blocks { parameters, kept: Mutex::default(), offset };
        let pointers = parameters.header + 4 * (blocks.count() + 1);
        if pointers > stored.len() {
            return Err(invalid("the pointers of a zisofs file are inside the file"));
        }
        Ok(blocks)
    }

    fn block_size(&self) -> u64 {
        1 << self.parameters.log2
    }

    fn count(&self) -> u64 {
        u64::from(self.parameters.len).div_ceil(self.block_size())
    }

    /// Fills `buffer` with the bytes at `offset`. The caller has checked that the range is inside the file.
    pub(crate) fn read_exact_at(
        &self,
        stored: &dyn ReadAt,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let (mut position, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let block = self.block(stored, position / self.block_size())?;
            let from = usize::try_from(position % self.block_size()).unwrap_or(usize::MAX);
            let there = block.get(from..).filter(|there| !there.is_empty());
            let there = there.ok_or_else(|| self.invalid("a block of a zisofs file is whole"))?;
            let count = there.len().min(rest.len());
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&there[..count]);
            (position, rest) = (position + count as u64, later);
        }
        Ok(())
    }

    fn invalid(&self, rule: &'static str) -> io::Error {
        ReadError::Invalid { offset: self.offset, rule }.into()
    }

    fn block(&self, stored: &dyn ReadAt, index: u64) -> io::Result<Arc<[u8]>> {
        {
            let mut kept = self.kept.lock();
            if let Some(at) = kept.iter().position(|(number, _)| *number == index) {
                let found = kept.remove(at);
                let block = Arc::clone(&found.1);
                kept.push(found);
                return Ok(block);
            }
        }
        // The lock is not held here, so readers of other blocks do not wait for this one.
        let block: Arc<[u8]> = self.inflate(stored, index)?.into();
        let mut kept = self.kept.lock();
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push((index, Arc::clone(&block)));
        Ok(block)
    }

    fn inflate(&self, stored: &dyn ReadAt, index: u64) -> io::Result<Vec<u8>> {
        let mut pointers = [0; 8];
        stored.read_exact_at(self.parameters.header + 4 * index, &mut pointers)?;
        let [a, b, c, d, e, f, g, h] = pointers;
        let from = u64::from(u32::from_le_bytes([a, b, c, d]));
        let to = u64::from(u32::from_le_bytes([e, f, g, h]));
        let left = u64::from(self.parameters.len) - index * self.block_size();
        let size = usize::try_from(left.min(self.block_size())).unwrap_or(0);
        // zlib expands incompressible data by at most a thousandth and a few bytes.
        let room = self.block_size() + self.block_size() / 1000 + 64;
        let length = to.checked_sub(from).filter(|length| *length <= room && to <= stored.len());
        let length = length
            .ok_or_else(|| self.invalid("the pointers of a zisofs file grow and are inside the file"))?;
        let mut block = vec![0; size];
        if length == 0 {
            return Ok(block);
        }
        let mut packed = vec![0; usize::try_from(length).unwrap_or(0)];
        stored.read_exact_at(from, &mut packed)?;
        let mut zlib = Decompress::new(true);
        let ended = zlib.decompress(&packed, &mut block, FlushDecompress::Finish);
        match ended {
            Ok(Status::StreamEnd) if zlib.total_out() == size as u64 => Ok(block),
            _ => Err(self.invalid("a block of a zisofs file is a zlib stream of the block's size")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const LEN: usize = 100_000;

    fn content() -> Vec<u8> {
        (0..LEN).map(|at| if (32_768..65_536).contains(&at) { 0 } else { (at / 100) as u8 }).collect()
    }

    /// Returns a ZF entry and a stored file with blocks of 32 KiB; the second block is omitted because it is all zeros.
    fn stored() -> (Vec<u8>, Vec<u8>) {
        let len = u32::try_from(LEN).unwrap();
        let entry = [b"pz\x04\x0f".as_slice(), &crate::ecma119::field::both_u32(len)].concat();
        let mut stored = [&MAGIC[..], &len.to_le_bytes(), &[4, 15, 0, 0], &[0; 20]].concat();
        for (index, block) in content().chunks(32_768).enumerate() {
            let start = u32::try_from(stored.len()).unwrap();
            stored[16 + 4 * index..][..4].copy_from_slice(&start.to_le_bytes());
            if block.iter().any(|byte| *byte != 0) {
                let mut zlib = flate2::write::ZlibEncoder::new(&mut stored, flate2::Compression::fast());
                zlib.write_all(block).unwrap();
                zlib.finish().unwrap();
            }
        }
        let end = u32::try_from(stored.len()).unwrap();
        stored[16 + 4 * 4..][..4].copy_from_slice(&end.to_le_bytes());
        (entry, stored)
    }

    fn rule<T: std::fmt::Debug>(result: Result<T, ReadError>) -> &'static str {
        match result {
            Err(ReadError::Invalid { rule, .. }) => rule,
            Err(ReadError::Unsupported { feature, .. }) => feature,
            other => panic!("{other:?}"),
        }
    }

    fn open(entry: &[u8], stored: &[u8]) -> Result<Blocks, ReadError> {
        Blocks::open(&stored, Parameters::parse(entry).unwrap(), 0)
    }

    #[test]
    fn any_range_is_readable_and_few_blocks_are_cached() {
        let (entry, stored) = stored();
        let blocks = open(&entry, &stored).unwrap();
        let content = content();
        for (offset, length) in [(0, LEN), (32_767, 2), (65_535, 2), (99_999, 1), (40_000, 10), (50_000, 0)] {
            let mut buffer = vec![7; length];
            blocks.read_exact_at(&stored.as_slice(), offset as u64, &mut buffer).unwrap();
            assert!(buffer == content[offset..offset + length], "{length} at {offset}");
        }
        assert!(blocks.kept.lock().len() <= KEPT);
    }

    #[test]
    fn wrong_headers_are_refused_when_the_file_is_opened() {
        let (entry, good) = stored();
        assert_eq!(Parameters::parse(&entry[..11]), None, "a short entry");
        let entry_with = |at: usize, value: u8| {
            let mut entry = entry.clone();
            entry[at] = value;
            rule(open(&entry, &good))
        };
        for log2 in [0, 2, 14, 18, 255] {
            assert_eq!(entry_with(3, log2), "the blocks of a zisofs file have 32, 64 or 128 KiB");
        }
        assert_eq!(entry_with(0, b'P'), "a zisofs algorithm other than zlib");
        assert_eq!(entry_with(2, 0), "a zisofs file begins with a header of at least 16 bytes");
        assert_eq!(entry_with(2, 5), "a zisofs file and its ZF entry agree");
        assert_eq!(entry_with(3, 16), "a zisofs file and its ZF entry agree");
        let stored_with = |at: usize, value: u8| {
            let mut stored = good.clone();
            stored[at] = value;
            rule(open(&entry, &stored))
        };
        assert_eq!(stored_with(0, 0), "a zisofs file begins with its magic number");
        assert_eq!(stored_with(8, 1), "a zisofs file and its ZF entry agree");
        assert_eq!(
            rule(open(&entry, &good[..10])),
            "a zisofs file begins with a header of at least 16 bytes"
        );
        assert_eq!(rule(open(&entry, &good[..35])), "the pointers of a zisofs file are inside the file");
        // A size of 4 GiB whose blocks are missing.
        let huge = [b"pz\x04\x0f".as_slice(), &[0xFF; 8]].concat();
        let mut head = good[..40].to_vec();
        head[8..12].copy_from_slice(&[0xFF; 4]);
        assert_eq!(rule(open(&huge, &head)), "the pointers of a zisofs file are inside the file");
    }

    #[test]
    fn wrong_blocks_are_refused_when_they_are_read() {
        let (entry, good) = stored();
        let read = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut stored = good.clone();
            change(&mut stored);
            let blocks = open(&entry, &stored).unwrap();
            let error = blocks.read_exact_at(&stored.as_slice(), 0, &mut [0; 10]).unwrap_err();
            rule::<()>(Err(ReadError::io(0, 10, error)))
        };
        let pointers = "the pointers of a zisofs file grow and are inside the file";
        assert_eq!(read(&|stored| stored[16..20].fill(0xFF)), pointers);
        assert_eq!(read(&|stored| stored[20..24].fill(0xFF)), pointers);
        assert_eq!(read(&|stored| stored[16..20].copy_from_slice(&9999_u32.to_le_bytes())), pointers);
        let block = "a block of a zisofs file is a zlib stream of the block's size";
        assert_eq!(read(&|stored| stored[40] ^= 0xFF), block);
        // Two blocks in the place of one: the output is longer than the block size.
        assert_eq!(read(&|stored| stored[45..50].fill(0)), block);
    }
}
