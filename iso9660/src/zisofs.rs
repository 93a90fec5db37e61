//! zisofs: files that are compressed block by block, so that a range can be read without what is before it.
//!
//! ```text
//! ZF entry    "pz"   header size / 4   log2 of the block size   size of the file (both-endian)     in Rock Ridge
//!
//! stored      37 E4 53 96 C9 DB D6 07 | 8 size (32) | 12 header size / 4 | 13 log2 of the block size | 14 reserved
//!             header .. : one pointer per block and one more (32 each)
//!             pointer n .. pointer n+1: block n, a zlib stream; nothing: a block of zeros
//! ```
//!
//! Invariants: blocks have 32, 64 or 128 KiB; a pointer is used only when it is not less than the one before and inside
//! the stored file; a block is inflated into a buffer of its own size and must fill it; a reader keeps
//! [`KEPT`] blocks.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use flate2::{Decompress, FlushDecompress, Status};

use crate::ecma119::field::{array, read_both_u32};
use crate::error::ReadError;
use crate::source::ReadAt;

const MAGIC: [u8; 8] = [0x37, 0xE4, 0x53, 0x96, 0xC9, 0xDB, 0xD6, 0x07];
/// The length of the header, as everybody writes it and Linux demands at least.
const HEADER: u64 = 16;
const LOG2: std::ops::RangeInclusive<u8> = 15..=17;
/// How many inflated blocks a reader keeps: 512 KiB at most.
const KEPT: usize = 4;

/// What a ZF entry says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Parameters {
    /// The algorithm is the one known here.
    pub(crate) known: bool,
    /// In bytes.
    header: u64,
    log2: u8,
    pub(crate) len: u32,
}

impl Parameters {
    /// The data of a ZF entry, if it is whole and its byte orders agree.
    pub(crate) fn parse(data: &[u8]) -> Option<Parameters> {
        let (known, header, log2) = (data.get(..2)? == b"pz", *data.get(2)?, *data.get(3)?);
        Some(Parameters { known, header: u64::from(header) * 4, log2, len: read_both_u32(data, 4)? })
    }
}

/// A compressed file, read as what it holds.
#[derive(Debug)]
pub(crate) struct Blocks {
    parameters: Parameters,
    /// Blocks inflated last, the newest at the end.
    kept: Mutex<Vec<(u64, Arc<[u8]>)>>,
    /// Where the stored file begins in the image: for errors.
    offset: u64,
}

impl Blocks {
    /// Looks at the head of a stored file. `offset` is where it begins in the image.
    pub(crate) fn open(
        stored: &dyn ReadAt,
        parameters: Parameters,
        offset: u64,
    ) -> Result<Blocks, ReadError> {
        let invalid = |rule| ReadError::Invalid { offset, rule };
        if !parameters.known {
            return Err(ReadError::Unsupported { offset, feature: "this algorithm of compressed files" });
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
        let said = (array(&head, 8).map(u32::from_le_bytes), u64::from(head[12]) * 4, head[13]);
        if said != (Some(parameters.len), parameters.header, parameters.log2) {
            return Err(invalid("a zisofs file and its ZF entry agree"));
        }
        let blocks = Blocks { parameters, kept: Mutex::default(), offset };
        let pointers = parameters.header + 4 * (blocks.count() + 1);
        if pointers > stored.len() {
            return Err(invalid("the pointers of a zisofs file lie inside it"));
        }
        Ok(blocks)
    }

    fn block_size(&self) -> u64 {
        1 << self.parameters.log2
    }

    fn count(&self) -> u64 {
        u64::from(self.parameters.len).div_ceil(self.block_size())
    }

    /// Fills `buffer` with the bytes at `offset`, which the caller checked to lie inside the file.
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
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = kept.iter().position(|(number, _)| *number == index) {
                let found = kept.remove(at);
                let block = Arc::clone(&found.1);
                kept.push(found);
                return Ok(block);
            }
        }
        // Without the lock: readers of other blocks need not wait for this one.
        let block: Arc<[u8]> = self.inflate(stored, index)?.into();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
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
        // zlib adds at most a thousandth and a few bytes to what it cannot compress.
        let room = self.block_size() + self.block_size() / 1000 + 64;
        let length = to.checked_sub(from).filter(|length| *length <= room && to <= stored.len());
        let length =
            length.ok_or_else(|| self.invalid("the pointers of a zisofs file grow and stay inside it"))?;
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
