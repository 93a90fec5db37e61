//! The Master Boot Record: the first 512 bytes of a disk.
//!
//! ```text
//!   0  boot code (440)     of an isohybrid, 432..440 is the address of the boot file for that code, little-endian
//! 440  disk identifier     446 + 16n  partition n: status | first CHS (3) | type | last CHS (3) | first | sectors
//! 444  reserved            510  55 AA
//! ```
//!
//! Invariant: encoding a parsed record returns the same bytes.

use super::SECTOR;
use crate::ecma119::field::{array, put};

/// The offset where the boot code of an isohybrid reads the address of the boot file.
const BOOT_FILE: usize = 432;
const DISK_ID: usize = 440;
const PARTITIONS: usize = 446;
const SIGNATURE: [u8; 2] = [0x55, 0xAA];
/// The geometry of isohybrid images: cylinders of 1 MiB.
const HEADS: u64 = 64;
const SECTORS_PER_TRACK: u64 = 32;
/// The CHS address for a sector outside the CHS range.
const CHS_BEYOND: [u8; 3] = [0xFE, 0xFF, 0xFF];

/// A Master Boot Record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mbr {
    /// The boot code that BIOS firmware starts.
    pub code: [u8; 440],
    /// The identifier of the disk.
    pub disk_id: u32,
    /// The two bytes between the disk identifier and the partitions.
    pub reserved: [u8; 2],
    /// The partitions. An unused partition equals [`MbrPartition::default`].
    pub partitions: [MbrPartition; 4],
}

/// A partition of an MBR.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MbrPartition {
    /// 0x80 if the partition is active (BIOS firmware boots from it), otherwise 0.
    pub status: u8,
    /// The first sector as cylinder, head and sector.
    pub first_chs: [u8; 3],
    /// The partition type; 0 usually means unused.
    pub kind: u8,
    /// The last sector as cylinder, head and sector.
    pub last_chs: [u8; 3],
    /// The first sector.
    pub first: u32,
    /// The number of sectors.
    pub sectors: u32,
}

impl Mbr {
    /// Parses a sector; `None` when it does not end with the signature.
    pub fn parse(sector: &[u8; SECTOR]) -> Option<Mbr> {
        (sector[510..] == SIGNATURE).then_some(())?;
        let mut partitions = [MbrPartition::default(); 4];
        for (partition, bytes) in partitions.iter_mut().zip(sector[PARTITIONS..].chunks_exact(16)) {
            *partition = MbrPartition {
                status: bytes[0],
                first_chs: array(bytes, 1)?,
                kind: bytes[4],
                last_chs: array(bytes, 5)?,
                first: u32::from_le_bytes(array(bytes, 8)?),
                sectors: u32::from_le_bytes(array(bytes, 12)?),
            };
        }
        Some(Mbr {
            code: array(sector, 0)?,
            disk_id: u32::from_le_bytes(array(sector, DISK_ID)?),
            reserved: array(sector, 444)?,
            partitions,
        })
    }

    /// Returns the sector of the record.
    pub fn to_bytes(&self) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        put(&mut sector, 0, &self.code);
        put(&mut sector, DISK_ID, &self.disk_id.to_le_bytes());
        put(&mut sector, 444, &self.reserved);
        for (partition, bytes) in self.partitions.iter().zip(sector[PARTITIONS..].chunks_exact_mut(16)) {
            bytes[0] = partition.status;
            put(bytes, 1, &partition.first_chs);
            bytes[4] = partition.kind;
            put(bytes, 5, &partition.last_chs);
            put(bytes, 8, &partition.first.to_le_bytes());
            put(bytes, 12, &partition.sectors.to_le_bytes());
        }
        put(&mut sector, 510, &SIGNATURE);
        sector
    }

    /// Returns the address of the boot file that the boot code of an isohybrid reads, in sectors of 512 bytes.
    pub fn boot_file(&self) -> u64 {
        array(&self.code, BOOT_FILE).map_or(0, u64::from_le_bytes)
    }

    /// Writes the address of the boot file to the end of the boot code, where an isohybrid reads it.
    pub fn set_boot_file(&mut self, sector: u64) {
        put(&mut self.code, BOOT_FILE, &sector.to_le_bytes());
    }

    /// Returns whether a partition is protective: a GPT describes the disk.
    pub fn is_protective(&self) -> bool {
        self.partitions.iter().any(|partition| partition.kind == MbrPartition::PROTECTIVE)
    }
}

impl MbrPartition {
    /// The type of a protective partition: a GPT describes the disk.
    pub const PROTECTIVE: u8 = 0xEE;
    /// The type of an EFI system partition.
    pub const EFI_SYSTEM: u8 = 0xEF;
    /// The status of an active partition.
    pub const ACTIVE: u8 = 0x80;

    /// Returns an inactive partition, with both CHS addresses in the geometry of isohybrid images.
    pub fn new(kind: u8, first: u32, sectors: u32) -> MbrPartition {
        let first_chs = chs(u64::from(first));
        let mut partition = MbrPartition { kind, first_chs, first, ..MbrPartition::default() };
        partition.set_sectors(sectors);
        partition
    }

    /// Returns the sector after the last one.
    pub fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.sectors)
    }

    /// Sets the length and updates the last CHS address.
    pub fn set_sectors(&mut self, sectors: u32) {
        self.sectors = sectors;
        self.last_chs = chs(self.end().saturating_sub(1));
    }
}

/// Returns the CHS address of a sector: head, then sector with the high bits of the cylinder, then cylinder.
fn chs(sector: u64) -> [u8; 3] {
    let cylinder = sector / (HEADS * SECTORS_PER_TRACK);
    let head = u8::try_from(sector / SECTORS_PER_TRACK % HEADS);
    let in_track = u8::try_from(sector % SECTORS_PER_TRACK + 1);
    match (head, in_track) {
        (Ok(head), Ok(in_track)) if cylinder < 1024 => {
            let [low, high, ..] = cylinder.to_le_bytes();
            [head, in_track | high << 6, low]
        }
        _ => CHS_BEYOND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_isohybrid_record_has_its_fields_at_the_expected_offsets() {
        let mut mbr =
            Mbr { code: [0x90; 440], disk_id: 0x1234_5678, reserved: [0; 2], partitions: Default::default() };
        mbr.set_boot_file(0xABCD);
        mbr.partitions[1] = MbrPartition::new(MbrPartition::EFI_SYSTEM, 64, 2048);
        let bytes = mbr.to_bytes();
        assert_eq!(bytes[432..446], [0xCD, 0xAB, 0, 0, 0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0]);
        assert_eq!(bytes[462..478], [0, 2, 1, 0, 0xEF, 1, 32, 1, 64, 0, 0, 0, 0, 8, 0, 0]);
        assert_eq!(bytes[510..], [0x55, 0xAA]);
        assert_eq!((mbr.boot_file(), mbr.is_protective()), (0xABCD, false));
    }

    #[test]
    fn sectors_beyond_the_last_cylinder_have_no_address() {
        assert_eq!(chs(0), [0, 1, 0]);
        assert_eq!(chs(1024 * 2048 - 1), [63, 32 | 0xC0, 0xFF]);
        assert_eq!(chs(1024 * 2048), CHS_BEYOND);
        let whole = MbrPartition::new(MbrPartition::PROTECTIVE, 1, u32::MAX);
        assert_eq!((whole.last_chs, whole.end()), (CHS_BEYOND, 1 << 32));
    }

    proptest! {
        #[test]
        fn every_signed_sector_encodes_to_itself(head in proptest::collection::vec(any::<u8>(), 510)) {
            let mut sector = [0; SECTOR];
            sector[..510].copy_from_slice(&head);
            prop_assert!(Mbr::parse(&sector).is_none());
            put(&mut sector, 510, &SIGNATURE);
            prop_assert_eq!(Mbr::parse(&sector).unwrap().to_bytes(), sector);
        }
    }
}
