//! The header of a qcow2 image.
//!
//! ```text
//!   0 magic "QFI\xfb"   4 version   8 backing file, offset   16 its size   20 cluster bits   24 bytes of the disk
//!  32 encryption        36 entries of the L1 table   40 its offset   48 refcounts, snapshots (not read)
//!  72 incompatible features   80 compatible, 88 autoclear (ignored)   96 refcount order   100 bytes of the header
//! 104 packing: 0 deflate, 1 zstd            from 72 on in version 3 only
//! ```
//!
//! Specification: QEMU `docs/interop/qcow2`, "Header".

use std::io::{Read, Seek, SeekFrom};

use super::error::Qcow2Error;
use crate::MAX_DISK;

const MAGIC: u32 = 0x5146_49fb;
/// The bytes of the header that are read.
const BYTES: usize = 105;
const BYTES_OF_VERSION_2: usize = 72;
/// The smallest header of version 3.
const BYTES_OF_VERSION_3: u32 = 104;
/// Clusters of 512 bytes to 2 MiB, as QEMU has them.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// The largest L1 table that QEMU opens, in entries.
const L1_MOST: u32 = (32 << 20) / 8;

const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
const PACKING: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// How packed clusters are packed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Packing {
    /// Deflate without a header, RFC 1951.
    Deflate,
    /// One frame of zstd, RFC 8878.
    Zstd,
}

/// The fields of a header that are needed to read the disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) cluster_bits: u32,
    pub(super) disk_bytes: u64,
    pub(super) l1_offset: u64,
    pub(super) packing: Packing,
}

impl Header {
    /// Reads and checks the header of a file of `length` bytes.
    pub(super) fn read(file: &mut (impl Read + Seek), length: u64) -> Result<Self, Qcow2Error> {
        file.seek(SeekFrom::Start(0))?;
        let mut read = Vec::with_capacity(BYTES);
        file.by_ref().take(BYTES as u64).read_to_end(&mut read)?;
        // What a short file does not have is zero, and refused below.
        let mut bytes = [0; BYTES];
        bytes[..read.len()].copy_from_slice(&read);
        let u32_at = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) << 32 | u64::from(u32_at(at + 4));
        if u32_at(0) != MAGIC {
            return Err(Qcow2Error::Magic);
        }
        let version = u32_at(4);
        if !matches!(version, 2 | 3) {
            return Err(Qcow2Error::Version(version));
        }
        let needed = if version == 2 { BYTES_OF_VERSION_2 } else { BYTES_OF_VERSION_3 as usize };
        if read.len() < needed {
            return Err(Qcow2Error::Header("the file is shorter than a header"));
        }
        let (features, header_bytes) = if version == 2 { (0, 0) } else { (u64_at(72), u32_at(100)) };
        if version == 3 && header_bytes < BYTES_OF_VERSION_3 {
            return Err(Qcow2Error::Header("its length is too small"));
        }
        refuse_features(features)?;
        if u64_at(8) != 0 {
            return Err(Qcow2Error::NotSupported(
                "it has a backing file, so it is a difference to another image; make it whole: qemu-img convert -O qcow2 FILE NEW",
            ));
        }
        if u32_at(32) != 0 {
            return Err(Qcow2Error::NotSupported(
                "it is encrypted; decrypt it: qemu-img convert with its secret, to raw or to a new qcow2",
            ));
        }
        let packing = match (features & PACKING != 0, header_bytes > BYTES_OF_VERSION_3, bytes[104]) {
            (false, _, _) => Packing::Deflate,
            (true, true, 1) => Packing::Zstd,
            (true, true, 0) => Packing::Deflate,
            (true, ..) => {
                return Err(Qcow2Error::NotSupported("its clusters are packed in a way that is not known"));
            }
        };
        let header = Self {
            version,
            cluster_bits: u32_at(20),
            disk_bytes: u64_at(24),
            l1_offset: u64_at(40),
            packing,
        };
        header.check(u32_at(36), length)?;
        Ok(header)
    }

    /// Checks sizes and the L1 table.
    fn check(&self, l1_entries: u32, length: u64) -> Result<(), Qcow2Error> {
        if !CLUSTER_BITS.contains(&self.cluster_bits) {
            return Err(Qcow2Error::Header("clusters have 512 bytes to 2 MiB"));
        }
        if self.disk_bytes > MAX_DISK {
            return Err(Qcow2Error::TooLarge(self.disk_bytes));
        }
        let per_table = self.cluster_bytes() * (self.cluster_bytes() / 8);
        if l1_entries > L1_MOST || self.disk_bytes.div_ceil(per_table) > l1_entries.into() {
            return Err(Qcow2Error::Header("the L1 table is not that of a disk of this size"));
        }
        if !self.l1_offset.is_multiple_of(self.cluster_bytes()) {
            return Err(Qcow2Error::Header("the L1 table does not begin with a cluster"));
        }
        self.in_file(self.l1_offset, u64::from(l1_entries) * 8, length, "the L1 table")
    }

    /// Checks that bytes that a table names are in the file.
    pub(super) fn in_file(
        &self,
        offset: u64,
        bytes: u64,
        length: u64,
        what: &'static str,
    ) -> Result<(), Qcow2Error> {
        match offset.checked_add(bytes) {
            Some(end) if end <= length && offset <= length => Ok(()),
            _ => Err(Qcow2Error::CutOff { what, offset, length }),
        }
    }

    /// The bytes of a cluster.
    pub(super) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// The bytes of a cluster, for memory.
    pub(super) fn cluster_size(&self) -> usize {
        1 << self.cluster_bits
    }
}

/// Refuses incompatible features by which the content is elsewhere, or not trustworthy.
fn refuse_features(features: u64) -> Result<(), Qcow2Error> {
    const REFUSED: [(u64, &str); 4] = [
        (CORRUPT, "QEMU marked it as corrupt; repair a copy: qemu-img check -r all COPY, and try again"),
        (
            DIRTY,
            "it is marked as dirty: a program has it open, or ended without closing it; stop the virtual machine, or repair a copy: qemu-img check -r all COPY",
        ),
        (
            DATA_FILE,
            "its content is in an external data file; make it whole: qemu-img convert -O qcow2 FILE NEW",
        ),
        (EXTENDED_L2, "it has extended L2 entries; convert it: qemu-img convert -O qcow2 FILE NEW"),
    ];
    if let Some((_, reason)) = REFUSED.into_iter().find(|(bit, _)| features & bit != 0) {
        return Err(Qcow2Error::NotSupported(reason));
    }
    match features & !PACKING {
        0 => Ok(()),
        unknown => Err(Qcow2Error::UnknownFeatures(unknown)),
    }
}
