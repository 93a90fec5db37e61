//! What firmware would boot from an image.
//!
//! ```text
//! boot record -> catalog -> entries            [BOOT]/1-bios.img, [BOOT]/2-uefi.img, ...
//! MBR or GPT -> EFI system partition           [BOOT]/3-uefi-partition.img   when no entry begins there
//! ```
//!
//! Boot images need not be files of the tree: that of many distributions lies behind it, in a partition. They get names
//! of their own, which stand beside the tree: they are listed apart from it, and a path leads to one only when the tree
//! has nothing there.

use crate::SECTOR_SIZE;
use crate::ecma119::field::array;
use crate::ecma119::{FIRST_DESCRIPTOR, SECTOR};
use crate::eltorito::{self, BootMedia, CatalogEntry, Platform, UNIT};
use crate::error::ReadError;
use crate::partition::{self, Gpt, Guid, Mbr, MbrPartition};
use crate::source::ReadAt;

use super::resolve::components;
use super::{Entry, EntryKind, Extent, Image, read_sector};

/// The directory that boot images are in.
const DIRECTORY: &str = "[BOOT]";

/// An entry of the El Torito boot catalog.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BootEntry {
    /// The firmware it is for.
    pub platform: Platform,
    /// Whether it is marked bootable.
    pub bootable: bool,
    /// How its image is presented.
    pub media: BootMedia,
    /// The segment that BIOS firmware loads it to; 0 is the usual 7C0.
    pub load_segment: u16,
    /// How many 512-byte units firmware loads.
    pub units: u16,
    /// The bytes of the boot image, as far as the catalog tells: what is loaded, or everything to the end of the image
    /// where the catalog says 0 or 1, cut at the end of the image.
    pub extent: Extent,
}

/// A boot image under the name that it can be opened by.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BootImage {
    /// The path, such as `[BOOT]/1-bios.img`: the number counts the images, the word is the firmware.
    pub path: String,
    /// The entry of the boot catalog; none for an EFI system partition that no entry leads to.
    pub entry: Option<BootEntry>,
    /// Its bytes: as many as the image itself, its partition or its catalog entry says, in this order.
    pub extent: Extent,
}

impl BootImage {
    pub(super) fn entry(&self) -> Entry {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        Entry::at(name, EntryKind::File, self.extent)
    }
}

/// Whether a path is that of the directory of boot images.
pub(super) fn is_boot_directory(path: &str) -> bool {
    components(path).eq([DIRECTORY])
}

impl<S: ReadAt> Image<S> {
    /// The entries of the boot catalog, the default first; none when the image is not bootable.
    ///
    /// # Errors
    /// [`ReadError::Invalid`] when the catalog or an image of it lies outside, or the catalog breaks a rule.
    pub fn boot_entries(&self) -> Result<Vec<BootEntry>, ReadError> {
        let Some(catalog) = self.catalog else { return Ok(Vec::new()) };
        let offset = u64::from(catalog) * SECTOR_SIZE;
        let len = self.source.len();
        if offset + SECTOR_SIZE > len {
            return Err(ReadError::Invalid { offset, rule: "the boot catalog lies inside the image" });
        }
        let sector = read_sector(&*self.source, offset)?;
        let entries = eltorito::parse_catalog(&sector, offset)?;
        entries.into_iter().map(|entry| boot_entry(&entry, len)).collect()
    }

    /// The boot images, each with a path by which [`Image::lookup`], [`Image::open_file`] and [`Image::extents`] find it
    /// unless the tree has something there: those of the boot catalog, then EFI system partitions that no entry of the
    /// catalog leads to. Entries for nothing, at sector 0, are left out.
    ///
    /// # Errors
    /// As [`Image::boot_entries`]. A partition table that breaks a rule is taken as none.
    pub fn boot_images(&self) -> Result<Vec<BootImage>, ReadError> {
        let partitions = self.system_partitions()?;
        let mut images: Vec<BootImage> = Vec::new();
        let path = |index: usize, what: &str| format!("{DIRECTORY}/{}-{what}.img", index + 1);
        for entry in self.boot_entries()?.into_iter().filter(|entry| entry.extent.offset > 0) {
            let mut extent = entry.extent;
            let partition = partitions.iter().find(|partition| partition.offset == extent.offset);
            let said = self.own_length(extent.offset)?.or(partition.map(|partition| partition.len));
            extent.len = said.unwrap_or(extent.len).min(self.source.len() - extent.offset);
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

    /// The entry of the boot image at a path of its own.
    pub(super) fn boot_file(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        let mut components = components(path);
        if components.next() != Some(DIRECTORY) {
            return Ok(None);
        }
        let (Some(name), None) = (components.next(), components.next()) else { return Ok(None) };
        let entries = self.boot_images()?.iter().map(BootImage::entry).find(|entry| entry.name == name);
        Ok(entries)
    }

    /// Where EFI system partitions are, by the GPT or else by the MBR; those that lie inside the image.
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

    /// How long the boot image at byte `offset` says that it is: by the boot information table of a BIOS program, or
    /// as a FAT file system.
    fn own_length(&self, offset: u64) -> Result<Option<u64>, ReadError> {
        if offset + SECTOR_SIZE > self.source.len() {
            return Ok(None);
        }
        let sector = read_sector(&*self.source, offset)?;
        Ok(boot_information(&sector, offset).or_else(|| fat_length(&sector)))
    }
}

/// The length in a boot information table: 8 sector of the primary descriptor, 12 own sector, 16 own length.
fn boot_information(sector: &[u8; SECTOR], offset: u64) -> Option<u64> {
    let field = |at| array(sector, at).map(u32::from_le_bytes);
    let own = field(8)? == FIRST_DESCRIPTOR && u64::from(field(12)?) * SECTOR_SIZE == offset;
    field(16).filter(|length| own && *length > 0).map(u64::from)
}

/// The length of a FAT file system: 11 bytes per sector, 19 or 32 number of sectors.
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
