//! The disk image format of QEMU, version 2 and 3, read in the order of the disk.
//!
//! ```text
//!   header      L1 table                L2 table (one cluster)            cluster
//!  +--------+  +------------------+    +---------------------------+    +---------+
//!  | QFI\xfb|->| 0                |    | 0: not stored             |    | 64 KiB  |
//!  | size   |  | offset of an L2 -+--->| zero flag                 |    | of the  |
//!  | bits   |  | ...              |    | offset of a cluster ------+--->| disk    |
//!  +--------+  +------------------+    | offset of packed bytes ---+--+ +---------+
//!                                      +---------------------------+  |
//!   big endian; with clusters of 64 KiB an L2 table is for 512 MiB    +-> deflate or zstd -> one cluster
//! ```
//!
//! Clusters that are not stored are zeros. The refcount table, the snapshots and all header extensions are not read: they are of use
//! to a program that writes the image. What the content depends on and is not read is refused: backing files, data files, encryption,
//! extended L2 entries, unknown incompatible features, images that QEMU marked as dirty or corrupt.
//!
//! Invariants: in memory are one L2 table, one cluster and one packed cluster, each at most 2 MiB, and the window of a decoder; the L1
//! table is read entry by entry. Every offset is compared with the length of the file before it is used; no cluster is invented for
//! a file that is cut off.
//!
//! Specification: QEMU `docs/interop/qcow2`, "Header", "Cluster mapping", "Compressed Clusters Descriptor".

mod cluster;
mod error;
mod header;
#[cfg(test)]
mod tests;

use std::io::{self, Read, Seek, SeekFrom};

use cluster::Unpacker;
pub use error::Qcow2Error;
use header::Header;

/// The bits of an L1 or L2 entry that are an offset.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// The bits of an L1 entry that must be zero.
const L1_RESERVED: u64 = 0x7f00_0000_0000_01ff;
/// The bits of a standard L2 entry that must be zero.
const L2_RESERVED: u64 = 0x3f00_0000_0000_01fe;
/// The L2 entry is that of packed bytes.
const PACKED: u64 = 1 << 62;
/// The cluster is zeros, whatever is stored. Reserved in version 2.
const ZERO: u64 = 1;

/// Where the content of a cluster is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// Nowhere: it is zeros.
    Zeros,
    /// At an offset of the file, as it is.
    Stored(u64),
    /// At an offset of the file, packed, with the most bytes that it has there.
    Packed(u64, u64),
}

/// The content of the disk of a qcow2 image, as a stream.
pub struct Qcow2<F> {
    file: F,
    /// The length of the file.
    length: u64,
    header: Header,
    /// The number of the loaded L2 table.
    loaded: Option<u64>,
    /// The loaded L2 table; empty when none is stored.
    l2: Vec<u8>,
    unpacker: Unpacker,
    /// The current cluster.
    cluster: Vec<u8>,
    /// The bytes of the current cluster that were returned.
    taken: usize,
    /// The next cluster.
    next: u64,
}

impl<F: Read + Seek> Qcow2<F> {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// Returns [`Qcow2Error`] when the file cannot be read, is damaged, or needs what is not supported.
    pub fn open(mut file: F) -> Result<Self, Qcow2Error> {
        let length = file.seek(SeekFrom::End(0))?;
        let header = Header::read(&mut file, length)?;
        Ok(Self {
            unpacker: Unpacker::new(header.packing),
            file,
            length,
            header,
            loaded: None,
            l2: Vec::new(),
            cluster: Vec::new(),
            taken: 0,
            next: 0,
        })
    }

    /// The bytes of the disk.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.header.disk_bytes
    }

    /// The bytes of the disk that were returned.
    fn at(&self) -> u64 {
        (self.next * self.header.cluster_bytes()).min(self.header.disk_bytes)
    }

    /// Reads a part of the file that a table names.
    fn read_at(&mut self, offset: u64, bytes: usize, what: &'static str) -> Result<Vec<u8>, Qcow2Error> {
        self.header.in_file(offset, bytes as u64, self.length, what)?;
        self.file.seek(SeekFrom::Start(offset))?;
        let mut read = vec![0; bytes];
        self.file.read_exact(&mut read)?;
        Ok(read)
    }

    /// Loads the L2 table with a number; an empty one stands for a table that is not stored.
    fn load(&mut self, number: u64) -> Result<(), Qcow2Error> {
        let entry = self.read_at(self.header.l1_offset + number * 8, 8, "an entry of the L1 table")?;
        let entry = u64::from_be_bytes(entry.try_into().unwrap_or_default());
        if entry & L1_RESERVED != 0 {
            return Err(Qcow2Error::Entry { table: "L1", number });
        }
        let offset = entry & OFFSET;
        self.l2 = match offset {
            0 => Vec::new(),
            offset if offset % self.header.cluster_bytes() != 0 => {
                return Err(Qcow2Error::Entry { table: "L1", number });
            }
            offset => self.read_at(offset, self.header.cluster_size(), "an L2 table")?,
        };
        self.loaded = Some(number);
        Ok(())
    }

    /// Where the content of a cluster of the disk is.
    fn place(&mut self, cluster: u64) -> Result<Place, Qcow2Error> {
        let entries = self.header.cluster_bytes() / 8;
        let (table, index) = (cluster / entries, cluster % entries);
        if self.loaded != Some(table) {
            self.load(table)?;
        }
        let at = usize::try_from(index * 8).unwrap_or(usize::MAX);
        let Some(entry) = self.l2.get(at..at.saturating_add(8)) else { return Ok(Place::Zeros) };
        let entry = u64::from_be_bytes(entry.try_into().unwrap_or_default());
        if entry & PACKED != 0 {
            return Ok(self.packed(entry));
        }
        let allowed = if self.header.version == 2 { 0 } else { ZERO };
        let offset = entry & OFFSET;
        if entry & (L2_RESERVED | ZERO) & !allowed != 0 || !offset.is_multiple_of(self.header.cluster_bytes())
        {
            return Err(Qcow2Error::Entry { table: "L2", number: cluster });
        }
        Ok(if entry & ZERO != 0 || offset == 0 { Place::Zeros } else { Place::Stored(offset) })
    }

    /// The place of packed bytes: the offset, then the number of sectors of 512 bytes that follow the one in which they begin.
    fn packed(&self, entry: u64) -> Place {
        let bits = 62 - (self.header.cluster_bits - 8);
        let offset = entry & ((1 << bits) - 1);
        let sectors = (entry & (PACKED - 1)) >> bits;
        Place::Packed(offset, (sectors + 1) * 512 - offset % 512)
    }

    /// Reads the next cluster; the last one of a disk may be shorter.
    fn read_cluster(&mut self) -> Result<(), Qcow2Error> {
        let number = self.next;
        let size = self.header.cluster_size();
        let left = self.header.disk_bytes - number * self.header.cluster_bytes();
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(size);
        let place = self.place(number)?;
        match place {
            Place::Zeros => {
                self.cluster.clear();
                self.cluster.resize(wanted, 0);
            }
            Place::Stored(offset) => self.cluster = self.read_at(offset, wanted, "a cluster")?,
            Place::Packed(offset, most) => {
                // The last packed cluster of a file may end before its sector does.
                let most = most.min(self.length.saturating_sub(offset));
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                let packed = self.read_at(offset, most, "a packed cluster")?;
                self.cluster.resize(size, 0);
                let unpacked = self.unpacker.unpack(&packed, &mut self.cluster);
                unpacked.map_err(|reason| Qcow2Error::Packed { at: offset, reason })?;
                self.cluster.truncate(wanted);
            }
        }
        self.taken = 0;
        self.next += 1;
        Ok(())
    }
}

impl<F: Read + Seek> Read for Qcow2<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.taken == self.cluster.len() {
            if self.at() == self.header.disk_bytes {
                return Ok(0);
            }
            self.read_cluster().map_err(io::Error::from)?;
        }
        let length = buffer.len().min(self.cluster.len() - self.taken);
        buffer[..length].copy_from_slice(&self.cluster[self.taken..self.taken + length]);
        self.taken += length;
        Ok(length)
    }
}
