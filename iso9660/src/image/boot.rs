//! The El Torito images and EFI system partitions of an image.
//!
//! ```text
//! boot record -> catalog -> entries            [BOOT]/1-bios.img, [BOOT]/2-uefi.img, ...
//! MBR or GPT -> EFI system partition           [BOOT]/3-uefi-partition.img   when no entry begins there
//! ```
//!
//! El Torito images need not be files of the tree: many distributions store them after the tree, in a partition. They
//! get paths below `[BOOT]`, are listed separately from the tree, and are found by such a path only when the tree has
//! no entry there.

use crate::SECTOR_SIZE;
use crate::ecma119::field::array;
use crate::ecma119::{FIRST_DESCRIPTOR, SECTOR};
use crate::eltorito::{self, BootMedia, CatalogEntry, Platform, UNIT};
use crate::error::ReadError;
use crate::partition::{self, Gpt, Guid, Mbr, MbrPartition};
use crate::source::ReadAt;

use super::path::components;
use super::{Entry, EntryKind, Extent, Image, read_sector};

/// The directory of El Torito images.
const DIRECTORY: &str = "[BOOT]";

/// An entry of the El Torito boot catalog.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BootEntry {
    /// The firmware that the entry is for.
    pub platform: Platform,
    /// Whether the entry is marked bootable.
    pub bootable: bool,
    /// The way firmware presents the image.
    pub media: BootMedia,
    /// The segment to which BIOS firmware loads the image; 0 is the default 7C0.
    pub load_segment: u16,
    /// The number of 512-byte units that firmware loads.
    pub units: u16,
    /// The bytes of the image as far as the catalog describes them: the loaded part, or everything to the end of the
    /// file where the catalog says 0 or 1. The range ends at the end of the ISO image at the latest.
    pub extent: Extent,
}

/// The boot catalog of an image.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct BootCatalog {
    /// The readable entries, the default entry first.
    pub entries: Vec<BootEntry>,
    /// The rules that the catalog and its other entries break.
    pub faults: Vec<ReadError>,
}

/// An El Torito image or EFI system partition with the path by which it can be opened.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BootImage {
    /// The path, such as `[BOOT]/1-bios.img`: number of the image and firmware.
    pub path: String,
    /// The entry of the boot catalog; `None` for an EFI system partition without a catalog entry.
    pub entry: Option<BootEntry>,
    /// The bytes. The length comes from the image itself, its partition or its catalog entry, in this order of
    /// preference.
    pub extent: Extent,
}

impl BootImage {
    pub(super) fn entry(&self) -> Entry {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        Entry::at(name, EntryKind::File, self.extent)
    }
}

/// Returns whether a path is the directory of El Torito images.
pub(super) fn is_boot_directory(path: &str) -> bool {
    components(path).eq([DIRECTORY])
}

impl<S: ReadAt> Image<S> {
    /// Returns the readable entries of the boot catalog, the default entry first; empty when the image is not bootable.
    ///
    /// # Errors
    /// The errors of [`Image::boot_catalog`].
    pub fn boot_entries(&self) -> Result<Vec<BootEntry>, ReadError> {
        Ok(self.boot_catalog()?.entries)
    }

    /// Returns the boot catalog: its readable entries, and the rules that the others break. Both are empty when the image
    /// is not bootable.
    ///
    /// # Errors
    /// [`ReadError::Io`] when the source cannot be read. A broken catalog is not an error but a fault in the result.
    pub fn boot_catalog(&self) -> Result<BootCatalog, ReadError> {
        let mut catalog = BootCatalog::default();
        let Some(sector) = self.catalog else { return Ok(catalog) };
        let offset = u64::from(sector) * SECTOR_SIZE;
        let len = self.source.len();
        if offset + SECTOR_SIZE > len {
            let rule = "the boot catalog lies inside the image";
            catalog.faults.push(ReadError::Invalid { offset, rule });
            return Ok(catalog);
        }
        let sector = read_sector(&*self.source, offset)?;
        let parsed = eltorito::parse_catalog(&sector, offset);
        catalog.faults = parsed.faults;
        for entry in parsed.entries {
            match boot_entry(&entry, len) {
                Ok(entry) => catalog.entries.push(entry),
                Err(fault) => catalog.faults.push(fault),
            }
        }
        Ok(catalog)
    }

    /// Returns the El Torito images of the boot catalog, then the EFI system partitions without a catalog entry. Each
    /// has a path by which [`Image::lookup`], [`Image::open_file`] and [`Image::extents`] find it, unless the tree has
    /// an entry there. Catalog entries that point to sector 0 are omitted.
    ///
    /// # Errors
    /// The errors of [`Image::boot_entries`]. An invalid partition table is treated as absent, broken entries are omitted.
    pub fn boot_images(&self) -> Result<Vec<BootImage>, ReadError> {
        let partitions = self.system_partitions()?;
        let mut images: Vec<BootImage> = Vec::new();
        let path = |index: usize, what: &str| format!("{DIRECTORY}/{}-{what}.img", index + 1);
        for entry in self.boot_entries()?.into_iter().filter(|entry| entry.extent.offset > 0) {
            let mut extent = entry.extent;
            let partition = partitions.iter().find(|partition| partition.offset == extent.offset);
            let claimed = self.own_length(extent.offset)?.or(partition.map(|partition| partition.len));
            extent.len = claimed.unwrap_or(extent.len).min(self.source.len() - extent.offset);
            let what = match entry.platform {
                Platform::X86 => "bios".to_owned(),
                Platform::Efi => "uefi".to_owned(),
                Platform::Other(id) => format!("platform-{id:02x}"),
            };
            images.push(BootImage { path: path(images.len(), &what), entry: Some(entry), extent });
        }
        for extent in partitions {
            if !images.iter().any(|image| image.extent.offset == extent.offset) {
                images.push(BootImage { path: path(images.len(), "uefi-partition"), entry: None, extent });
            }
        }
        Ok(images)
    }

    /// Returns the entry of an El Torito image by its path below `[BOOT]`.
    pub(super) fn boot_file(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        let mut components = components(path);
        if components.next() != Some(DIRECTORY) {
            return Ok(None);
        }
        let (Some(name), None) = (components.next(), components.next()) else { return Ok(None) };
        let entries = self.boot_images()?.iter().map(BootImage::entry).find(|entry| entry.name == name);
        Ok(entries)
    }

    /// Returns the EFI system partitions inside the image, from the GPT, or from the MBR if there is no GPT.
    fn system_partitions(&self) -> Result<Vec<Extent>, ReadError> {
        const UNIT: u64 = partition::SECTOR_SIZE;
        let len = self.source.len();
        if len < 2 * UNIT {
            return Ok(Vec::new());
        }
        let extent = |first: u64, sectors: u64| {
            let extent = Extent { offset: first.checked_mul(UNIT)?, len: sectors.checked_mul(UNIT)? };
            let inside = extent.offset.checked_add(extent.len).is_some_and(|end| end <= len);
            (inside && first > 0 && sectors > 0).then_some(extent)
        };
        match Gpt::read(&*self.source, 1) {
            Ok(Some(gpt)) => {
                let system = gpt.entries.iter().flatten().filter(|entry| entry.kind == Guid::EFI_SYSTEM);
                let sectors = |first: u64, last: u64| last.checked_sub(first)?.checked_add(1);
                let found = system.filter_map(|entry| extent(entry.first, sectors(entry.first, entry.last)?));
                return Ok(found.collect());
            }
            Err(error @ ReadError::Io { .. }) => return Err(error),
            Ok(None) | Err(_) => {}
        }
        let sector = read_sector(&*self.source, 0)?;
        let mbr = sector.first_chunk().and_then(Mbr::parse);
        let partitions = mbr.map(|mbr| mbr.partitions).unwrap_or_default();
        let system = partitions.iter().filter(|partition| partition.kind == MbrPartition::EFI_SYSTEM);
        Ok(system.filter_map(|entry| extent(u64::from(entry.first), u64::from(entry.sectors))).collect())
    }

    /// Returns the length that the boot file at byte `offset` itself contains: in the boot info table of a BIOS
    /// program, or in a FAT file system.
    fn own_length(&self, offset: u64) -> Result<Option<u64>, ReadError> {
        if offset + SECTOR_SIZE > self.source.len() {
            return Ok(None);
        }
        let sector = read_sector(&*self.source, offset)?;
        Ok(boot_information(&sector, offset).or_else(|| fat_length(&sector)))
    }
}

/// Returns the length in a boot info table: 8 sector of the primary descriptor, 12 own sector, 16 own length.
fn boot_information(sector: &[u8; SECTOR], offset: u64) -> Option<u64> {
    let field = |at| array(sector, at).map(u32::from_le_bytes);
    let own = field(8)? == FIRST_DESCRIPTOR && u64::from(field(12)?) * SECTOR_SIZE == offset;
    field(16).filter(|length| own && *length > 0).map(u64::from)
}

/// Returns the length of a FAT file system: 11 bytes per sector, 19 or 32 number of sectors.
fn fat_length(sector: &[u8; SECTOR]) -> Option<u64> {
    let short = |at| array(sector, at).map(u16::from_le_bytes);
    let size = short(11)?;
    let jumps = matches!(sector[0], 0xEB | 0xE9) && sector[510..512] == [0x55, 0xAA];
    (jumps && (512..=4096).contains(&size) && size.is_power_of_two()).then_some(())?;
    let sectors = match short(19)? {
        0 => array(sector, 32).map(u32::from_le_bytes)?,
        sectors => u32::from(sectors),
    };
    (sectors > 0).then_some(u64::from(sectors) * u64::from(size))
}

fn boot_entry(entry: &CatalogEntry, image: u64) -> Result<BootEntry, ReadError> {
    let offset = u64::from(entry.sector) * SECTOR_SIZE;
    let room = image
        .checked_sub(offset)
        .ok_or(ReadError::Invalid { offset, rule: "a boot image begins inside the image" })?;
    let wanted = match (entry.media, entry.units) {
        (BootMedia::Floppy(size), _) => size,
        (_, 0 | 1) => room,
        (_, units) => u64::from(units) * UNIT,
    };
    let CatalogEntry { platform, bootable, media, load_segment, units, .. } = *entry;
    Ok(BootEntry {
        platform,
        bootable,
        media,
        load_segment,
        units,
        extent: Extent { offset, len: wanted.min(room) },
    })
}
