//! Allocation descriptors (4/14.14): the locations of a file's bytes.
//!
//! ```text
//! short (8)      0 length   4 block                                     in the partition of the file entry itself
//! long (16)      0 length   4 block, partition (6)   10 reserved
//! extended (20)  0 length   4 recorded length   8 length of the data    12 block, partition (6)
//!                  `- low 30 bits; the high 2: 0 recorded, 1 and 2 not recorded (zeros), 3 location of more descriptors
//!
//! more descriptors: Allocation Extent (258)   20 length   24 descriptors
//! ```
//!
//! Invariants: at most [`MAX_HOPS`] extents of descriptors and [`MAX_RUNS`] runs per file, so a chain that points to
//! itself ends. The runs are exactly as long as the file.

use super::partition::Layout;
use super::tag;
use super::{Address, u32_at};
use crate::error::ReadError;
use crate::runs::{Run, Runs};
use crate::source::ReadAt;

/// The largest number of extents of descriptors of one file.
const MAX_HOPS: u64 = 1024;
/// The largest number of non-adjacent runs of one file.
const MAX_RUNS: usize = 1 << 16;
/// The tag of an Allocation Extent Descriptor.
const EXTENT_DESCRIPTOR: u16 = 258;
const EXTENT_HEADER: usize = 24;

/// The forms of allocation descriptors, by the low bits of the flags of a file entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Short,
    Long,
    Extended,
    /// The bytes of the file take the place of the descriptors.
    Inline,
}

impl Form {
    pub(super) fn from_flags(flags: u16) -> Option<Form> {
        match flags & 7 {
            0 => Some(Form::Short),
            1 => Some(Form::Long),
            2 => Some(Form::Extended),
            3 => Some(Form::Inline),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Form::Short => 8,
            Form::Long => 16,
            Form::Extended | Form::Inline => 20,
        }
    }
}

/// An allocation descriptor.
struct Descriptor {
    /// The high 2 bits of the length.
    kind: u32,
    length: u32,
    address: Address,
}

impl Descriptor {
    fn parse(form: Form, bytes: &[u8], home: u16) -> Option<Descriptor> {
        let length = u32_at(bytes, 0)?;
        let address = match form {
            Form::Short => Address { block: u32_at(bytes, 4)?, partition: home },
            Form::Long => Address::parse(bytes, 4)?,
            Form::Extended | Form::Inline => Address::parse(bytes, 12)?,
        };
        Some(Descriptor { kind: length >> 30, length: length & 0x3FFF_FFFF, address })
    }
}

/// The allocation descriptors of one file.
pub(super) struct Descriptors<'a> {
    pub(super) form: Form,
    pub(super) bytes: &'a [u8],
    /// The partition that holds the file entry.
    pub(super) home: u16,
    /// The offset of the file entry in the image.
    pub(super) offset: u64,
    /// The length of the file.
    pub(super) len: u64,
}

impl Descriptors<'_> {
    /// Returns the runs of the file.
    pub(super) fn runs(&self, layout: &Layout, source: &dyn ReadAt) -> Result<Runs, ReadError> {
        let mut runs = Runs::default();
        let mut area: Vec<u8> = Vec::new();
        let mut next = self.add(layout, source, self.bytes, &mut runs)?;
        let mut hops = 0;
        while let Some(address) = next {
            hops += 1;
            if hops > MAX_HOPS {
                return Err(ReadError::Limit {
                    what: "extents of allocation descriptors of one file",
                    limit: MAX_HOPS,
                });
            }
            let offset = layout.read_block(source, address, self.offset, &mut area)?;
            let rule = "allocation descriptors continue in an allocation extent";
            if tag::check(&area, Some(address.block), offset)? != EXTENT_DESCRIPTOR {
                return Err(Layout::invalid(offset, rule));
            }
            let length = u32_at(&area, 20).map_or(usize::MAX, |length| length as usize);
            let bytes = EXTENT_HEADER.checked_add(length).and_then(|end| area.get(EXTENT_HEADER..end));
            let bytes =
                bytes.ok_or(Layout::invalid(offset, "allocation descriptors end inside their block"))?;
            next = self.add(layout, source, bytes, &mut runs)?;
        }
        if runs.len() < self.len {
            return Err(Layout::invalid(self.offset, "the extents of a UDF file hold all of its bytes"));
        }
        Ok(runs)
    }

    /// Adds the runs of one area of descriptors, until the file is complete. Returns the location of more descriptors.
    fn add(
        &self,
        layout: &Layout,
        source: &dyn ReadAt,
        bytes: &[u8],
        runs: &mut Runs,
    ) -> Result<Option<Address>, ReadError> {
        for bytes in bytes.chunks_exact(self.form.size()) {
            let Some(descriptor) = Descriptor::parse(self.form, bytes, self.home) else { break };
            let left = self.len - runs.len();
            if descriptor.length == 0 || left == 0 {
                return Ok(None);
            }
            let wanted = left.min(u64::from(descriptor.length));
            match descriptor.kind {
                3 => return Ok(Some(descriptor.address)),
                0 if self.form == Form::Extended
                    && (bytes[..4] != bytes[4..8] || bytes[..4] != bytes[8..12]) =>
                {
                    return Err(ReadError::Unsupported {
                        offset: self.offset,
                        feature: "UDF extents that are recorded in another form",
                    });
                }
                0 => self.recorded(layout, source, descriptor.address, wanted, runs)?,
                _ => {
                    runs.push(Run { offset: None, len: wanted });
                }
            }
            if runs.as_slice().len() > MAX_RUNS {
                return Err(ReadError::Limit { what: "pieces of one file", limit: MAX_RUNS as u64 });
            }
        }
        Ok(None)
    }

    /// Adds the runs of a recorded extent, which a partition may store in pieces.
    fn recorded(
        &self,
        layout: &Layout,
        source: &dyn ReadAt,
        mut address: Address,
        mut wanted: u64,
        runs: &mut Runs,
    ) -> Result<(), ReadError> {
        while wanted > 0 {
            let (offset, there) = layout.locate(source, address, self.offset)?;
            let len = wanted.min(there);
            runs.push(Run { offset: Some(offset), len });
            if runs.as_slice().len() > MAX_RUNS {
                return Err(ReadError::Limit { what: "pieces of one file", limit: MAX_RUNS as u64 });
            }
            wanted -= len;
            // Pieces end at block boundaries, except the last one.
            let blocks = u32::try_from(len.div_ceil(u64::from(layout.block_size))).unwrap_or(u32::MAX);
            address.block = address.block.saturating_add(blocks);
        }
        Ok(())
    }
}
