//! What firmware would boot from an image.

use crate::SECTOR_SIZE;
use crate::eltorito::{self, BootMedia, CatalogEntry, Platform, UNIT};
use crate::error::ReadError;
use crate::source::ReadAt;

use super::{Extent, Image, read_sector};

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
