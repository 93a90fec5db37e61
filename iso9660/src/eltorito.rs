//! El Torito: the boot record and the boot catalog.
//!
//! ```text
//! sector 17: Boot Record   7 "EL TORITO SPECIFICATION"   71 first sector of the catalog (little-endian)
//!
//! catalog, 32 bytes each
//!   validation entry   01 platform 00 00 | id (24) | checksum: all 16-bit words add up to 0 | 55 AA
//!   default entry      88 media | load segment | system type 00 | units (16) | sector (32)
//!   section header     90 more follow / 91 last | platform | number of entries | id (28)
//!   section entries    like the default entry; 44 = extension of the entry before
//! ```
//!
//! Invariants: `units` count 512 bytes. BIOS comes before UEFI. A UEFI image too large for 16 bits of units is written
//! with 1 unit, which UEFI firmware reads as "to the end of the volume".
//!
//! El Torito Bootable CD-ROM Format Specification 1.0, sections 2 to 4.

use crate::ecma119::SECTOR;
use crate::ecma119::descriptor;
use crate::ecma119::field::{array, put};
use crate::error::ReadError;

/// The identifier of a boot record that points to a boot catalog.
const SYSTEM_IDENTIFIER: &[u8] = b"EL TORITO SPECIFICATION";
/// The size of every entry in bytes.
const ENTRY: usize = 32;
/// The unit of the load size in bytes.
pub(crate) const UNIT: u64 = 512;
const BOOTABLE: u8 = 0x88;
const NOT_BOOTABLE: u8 = 0x00;
const EXTENSION: u8 = 0x44;
const MORE_HEADERS: u8 = 0x90;
const LAST_HEADER: u8 = 0x91;

/// The firmware that an entry is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Platform {
    /// The BIOS of an 80x86 machine.
    X86,
    /// UEFI firmware.
    Efi,
    /// Another platform, by its identifier.
    Other(u8),
}

impl Platform {
    fn id(self) -> u8 {
        match self {
            Platform::X86 => 0x00,
            Platform::Efi => 0xEF,
            Platform::Other(id) => id,
        }
    }

    fn from_id(id: u8) -> Platform {
        match id {
            0x00 => Platform::X86,
            0xEF => Platform::Efi,
            other => Platform::Other(other),
        }
    }
}

/// The way firmware presents an El Torito image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum BootMedia {
    /// No emulation.
    NoEmulation,
    /// Emulation of a floppy disk of this many bytes.
    Floppy(u64),
    /// Emulation of a hard disk.
    HardDisk,
}

/// An entry to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry {
    pub(crate) platform: Platform,
    pub(crate) units: u16,
    pub(crate) sector: u32,
}

/// Returns the boot record whose catalog is in sector `catalog`.
pub(crate) fn boot_record(catalog: u32) -> [u8; SECTOR] {
    let mut sector = descriptor::start(descriptor::BOOT);
    put(&mut sector, 7, SYSTEM_IDENTIFIER);
    put(&mut sector, 71, &catalog.to_le_bytes());
    sector
}

/// Returns the catalog with at most two entries; the first becomes the default entry.
pub(crate) fn catalog(entries: &[NewEntry]) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    let Some((default, sections)) = entries.split_first() else {
        return sector;
    };
    sector[0] = 0x01;
    sector[1] = default.platform.id();
    put(&mut sector, 30, &[0x55, 0xAA]);
    let checksum = checksum(&sector[..ENTRY]).wrapping_neg();
    put(&mut sector, 28, &checksum.to_le_bytes());
    put(&mut sector, ENTRY, &default.to_bytes());
    for (index, entry) in sections.iter().enumerate() {
        let at = ENTRY * (2 + 2 * index);
        sector[at] = if index + 1 == sections.len() { LAST_HEADER } else { MORE_HEADERS };
        sector[at + 1] = entry.platform.id();
        put(&mut sector, at + 2, &1_u16.to_le_bytes());
        put(&mut sector, at + ENTRY, &entry.to_bytes());
    }
    sector
}

impl NewEntry {
    fn to_bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[0] = BOOTABLE;
        put(&mut bytes, 6, &self.units.to_le_bytes());
        put(&mut bytes, 8, &self.sector.to_le_bytes());
        bytes
    }
}

/// Returns the sum of the little-endian words of a validation entry, which is 0 when the entry is valid.
fn checksum(entry: &[u8]) -> u16 {
    entry.chunks_exact(2).fold(0, |sum: u16, word| sum.wrapping_add(u16::from_le_bytes([word[0], word[1]])))
}

/// An entry read from an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CatalogEntry {
    pub(crate) platform: Platform,
    pub(crate) bootable: bool,
    pub(crate) media: BootMedia,
    pub(crate) load_segment: u16,
    pub(crate) units: u16,
    pub(crate) sector: u32,
}

/// Returns the sector of the catalog, if the descriptor is the boot record of El Torito.
pub(crate) fn parse_boot_record(sector: &[u8; SECTOR]) -> Option<u32> {
    (sector[7..39].starts_with(SYSTEM_IDENTIFIER)).then(|| array(sector, 71).map(u32::from_le_bytes))?
}

/// The contents of a catalog: the readable entries, and an error for each rule that it breaks.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) entries: Vec<CatalogEntry>,
    pub(crate) faults: Vec<ReadError>,
}

/// Parses the catalog at byte `offset` of the image. Only one sector is read, as firmware does. A broken entry does not
/// hide the others.
pub(crate) fn parse_catalog(sector: &[u8; SECTOR], offset: u64) -> Catalog {
    let invalid = |index: usize, rule| ReadError::Invalid { offset: offset + (index * ENTRY) as u64, rule };
    let mut catalog = Catalog::default();
    let mut entries = sector.chunks_exact(ENTRY).enumerate();
    let Some((_, validation)) = entries.next() else { return catalog };
    if validation[0] != 0x01 || validation[30..] != [0x55, 0xAA] || checksum(validation) != 0 {
        catalog.faults.push(invalid(0, "the boot catalog begins with a valid validation entry"));
    }
    if validation[0] != 0x01 || validation[30..] != [0x55, 0xAA] {
        // This is no catalog. With a wrong sum only, some firmware still boots.
        return catalog;
    }
    let mut platform = Platform::from_id(validation[1]);
    // The default entry, then the entries of each section, whose header holds their number.
    let (mut wanted, mut last) = (1_u16, false);
    for (index, entry) in entries {
        match entry[0] {
            EXTENSION => {}
            MORE_HEADERS | LAST_HEADER if wanted == 0 && !last => {
                last = entry[0] == LAST_HEADER;
                platform = Platform::from_id(entry[1]);
                wanted = u16::from_le_bytes([entry[2], entry[3]]);
            }
            kind if wanted > 0 && kind != MORE_HEADERS && kind != LAST_HEADER => {
                wanted -= 1;
                if !matches!(kind, BOOTABLE | NOT_BOOTABLE) {
                    catalog.faults.push(invalid(index, "a boot catalog entry has a known type"));
                    continue;
                }
                match CatalogEntry::parse(entry, platform) {
                    Some(entry) => catalog.entries.push(entry),
                    None => catalog.faults.push(invalid(index, "a boot entry has a known media type")),
                }
            }
            // Catalogs without sections, and some catalogs with sections, end with zeros.
            NOT_BOOTABLE => break,
            _ if last => break,
            _ => {
                catalog.faults.push(invalid(index, "a boot catalog entry has a known type"));
                break;
            }
        }
    }
    catalog
}

impl CatalogEntry {
    fn parse(entry: &[u8], platform: Platform) -> Option<CatalogEntry> {
        Some(CatalogEntry {
            platform,
            bootable: entry[0] == BOOTABLE,
            media: match entry[1] & 0x0F {
                0 => BootMedia::NoEmulation,
                1 => BootMedia::Floppy(1_228_800),
                2 => BootMedia::Floppy(1_474_560),
                3 => BootMedia::Floppy(2_949_120),
                4 => BootMedia::HardDisk,
                _ => return None,
            },
            load_segment: u16::from_le_bytes(array(entry, 2)?),
            units: u16::from_le_bytes(array(entry, 6)?),
            sector: u32::from_le_bytes(array(entry, 8)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIOS: NewEntry = NewEntry { platform: Platform::X86, units: 4, sector: 40 };
    const UEFI: NewEntry = NewEntry { platform: Platform::Efi, units: 2880, sector: 41 };

    #[test]
    fn a_catalog_for_both_firmwares_reads_back() {
        let sector = catalog(&[BIOS, UEFI]);
        assert_eq!(sector[..4], [1, 0, 0, 0]);
        assert_eq!(sector[28..32], [0xaa, 0x55, 0x55, 0xaa]);
        assert_eq!(sector[64..68], [0x91, 0xef, 1, 0]);
        let Catalog { entries, faults } = parse_catalog(&sector, 0);
        assert!(faults.is_empty());
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].platform, entries[0].units, entries[0].sector), (Platform::X86, 4, 40));
        assert_eq!((entries[1].platform, entries[1].units, entries[1].sector), (Platform::Efi, 2880, 41));
    }

    #[test]
    fn a_catalog_for_uefi_only_has_its_platform_in_the_validation_entry() {
        let sector = catalog(&[UEFI]);
        assert_eq!(sector[1], 0xef);
        assert_eq!(parse_catalog(&sector, 0).entries[0].platform, Platform::Efi);
        assert_eq!(parse_catalog(&sector, 0).entries.len(), 1);
    }

    #[test]
    fn a_wrong_checksum_or_entry_is_a_fault_at_its_offset_and_hides_no_other_entry() {
        let good = catalog(&[BIOS, UEFI]);
        for (at, offset, entries) in
            [(4, 4096, 2), (30, 4096, 0), (32, 4096 + 32, 1), (33, 4096 + 32, 1), (64, 4096 + 64, 1)]
        {
            let mut sector = good;
            sector[at] = 0x77;
            let found = parse_catalog(&sector, 4096);
            let [ReadError::Invalid { offset: fault, .. }] = *found.faults else { panic!("{found:?}") };
            assert_eq!((fault, found.entries.len()), (offset, entries), "byte {at}");
        }
    }
}
