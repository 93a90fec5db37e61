//! A reader of UDF 1.02 to 2.60, the file system of Windows media, DVDs and Blu-ray discs.
//!
//! ```text
//! sector 16..   recognition: BEA01, NSR02 or NSR03, TEA01                               (image::descriptors)
//! block 256     Anchor (2) --> Volume Descriptor Sequence, main and reserve             volume.rs
//!               also in     Primary (1)  Partition (5)  Logical Volume (6)  end (8)
//!               N-1, N-257                   |               |-> partition maps         partition.rs, tables.rs
//!                                            `---------------|   physical, sparable, virtual, metadata
//!               File Set (256) <-----------------------------'
//!                   `-> root: File Entry (261, 266) --> extents of its data             file_entry.rs, allocation.rs
//!                             directory data = File Identifiers (257) --> File Entry    directory.rs
//! every one begins with a tag: identifier, checksum, CRC, own block                     tag.rs
//! names                                                                                 text.rs
//! ```
//!
//! Invariants: a descriptor is used only when its checksum, its CRC and its own address are right. An address is used
//! only inside its partition. Chains of descriptors and extents have budgets. Numbers are little-endian.
//!
//! Not supported: named streams, strategy 4096 (write-once media without an allocation table), and writing.
//!
//! Section numbers refer to ECMA-167, 3rd edition, as part/section, and to the OSTA UDF specification 2.60.

mod allocation;
mod directory;
mod file_entry;
mod partition;
mod seal;
mod tables;
mod tag;
mod text;
mod volume;

pub(crate) use directory::{Identifier, Identifiers};
pub(crate) use file_entry::{FileEntry, FileKind};
pub(crate) use seal::seal;
pub(crate) use volume::Udf;

use crate::ecma119::field::array;

/// The address of a block in a partition (4/7.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Address {
    pub(crate) block: u32,
    /// The index of a partition map.
    pub(crate) partition: u16,
}

impl Address {
    /// Parses the `lb_addr` at `at`.
    fn parse(bytes: &[u8], at: usize) -> Option<Address> {
        Some(Address { block: u32_at(bytes, at)?, partition: u16_at(bytes, at + 4)? })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}
