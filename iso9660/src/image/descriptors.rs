//! Reads the volume descriptors of an image.
//!
//! ```text
//! 16.. at most 100: CD001 types 0, 1, 2, 255 ... end at 255 or at the first sector that is not a descriptor
//!      then a few more: BEA01, NSR02 or NSR03, TEA01 = a UDF file system, with or without ISO 9660
//! ```

use crate::SECTOR_SIZE;
use crate::ecma119::descriptor::{self, ReadVolume};
use crate::ecma119::{FIRST_DESCRIPTOR, Hierarchy, SECTOR};
use crate::eltorito;
use crate::error::ReadError;
use crate::source::ReadAt;

use super::directory::Root;
use super::{Extent, Volume, read_sector};

/// The largest number of descriptors that are read; Linux reads 84.
const MAX_DESCRIPTORS: u32 = 100;
/// The largest number of sectors that are read for the UDF recognition sequence.
const MAX_RECOGNITION: u64 = 16;

/// A hierarchy, or the error of its descriptor; `None` when the image has no such descriptor.
pub(crate) type FoundRoot = Option<Result<Root, ReadError>>;

/// The volume descriptors of an image.
pub(crate) struct Descriptors {
    pub(crate) volume: Volume,
    /// The primary hierarchy; `None` only when the image has a UDF file system.
    pub(crate) primary: FoundRoot,
    pub(crate) joliet: FoundRoot,
    pub(crate) catalog: Option<u32>,
}

impl Descriptors {
    pub(crate) fn read(source: &dyn ReadAt) -> Result<Descriptors, ReadError> {
        let (mut primary, mut joliet, mut catalog) = (FoundVolume::None, FoundVolume::None, None);
        let mut next = FIRST_DESCRIPTOR;
        while let Some(sector) = sector_at(source, next)? {
            let offset = u64::from(next) * SECTOR_SIZE;
            match descriptor::kind(&sector) {
                Some(descriptor::PRIMARY) => keep(&mut primary, &sector, offset, Hierarchy::Primary),
                Some(descriptor::SUPPLEMENTARY) if descriptor::is_joliet(&sector) => {
                    keep(&mut joliet, &sector, offset, Hierarchy::Joliet);
                }
                Some(descriptor::BOOT) if catalog.is_none() => catalog = eltorito::parse_boot_record(&sector),
                Some(descriptor::TERMINATOR) => {
                    next += 1;
                    break;
                }
                Some(_) => {}
                None => break,
            }
            next += 1;
            if next - FIRST_DESCRIPTOR > MAX_DESCRIPTORS {
                return Err(ReadError::Limit {
                    what: "volume descriptors",
                    limit: u64::from(MAX_DESCRIPTORS),
                });
            }
        }
        let has_udf = has_udf(source, next)?;
        if primary.is_none() && !has_udf {
            let offset = u64::from(FIRST_DESCRIPTOR) * SECTOR_SIZE;
            let rule = "an ISO 9660 image has a Primary Volume Descriptor";
            return Err(ReadError::Invalid { offset, rule });
        }
        let mut volume = Volume { has_udf, ..Volume::default() };
        volume.sectors = u32::try_from(source.len() / SECTOR_SIZE).unwrap_or(u32::MAX);
        let root = |volume: &ReadVolume| {
            let extent = Extent { offset: volume.root_offset, len: u64::from(volume.root_length) };
            Root { extent, skip: 0 }
        };
        let joliet =
            joliet.map(|found| found.inspect(|read| volume.joliet_volume_id = Some(read.volume_id.clone())));
        let joliet = joliet.map(|found| found.map(|read| root(&read)));
        let primary = primary.map(|found| {
            found.map(|primary| {
                let root = root(&primary);
                volume.sectors = primary.sectors;
                (volume.created, volume.modified) = (primary.created, primary.modified);
                (volume.volume_id, volume.publisher) = (primary.volume_id, primary.publisher);
                (volume.preparer, volume.application) = (primary.preparer, primary.application);
                root
            })
        });
        Ok(Descriptors { volume, primary, joliet, catalog })
    }
}

type FoundVolume = Option<Result<ReadVolume, ReadError>>;

/// Keeps the first valid descriptor of a hierarchy, or the error of the first one.
fn keep(kept: &mut FoundVolume, sector: &[u8; SECTOR], offset: u64, hierarchy: Hierarchy) {
    if !matches!(kept, Some(Ok(_))) {
        let read = ReadVolume::parse(sector, offset, hierarchy);
        *kept = match (kept.take(), read) {
            (Some(Err(first)), Err(_)) => Some(Err(first)),
            (_, read) => Some(read),
        };
    }
}

/// Reads the sector with this number, if the image is long enough.
fn sector_at(source: &dyn ReadAt, number: u32) -> Result<Option<[u8; SECTOR]>, ReadError> {
    let offset = u64::from(number) * SECTOR_SIZE;
    if offset + SECTOR_SIZE > source.len() { Ok(None) } else { read_sector(source, offset).map(Some) }
}

/// Returns whether a UDF recognition sequence (ECMA-167 2/9) begins at sector `first` or shortly after it. One read
/// covers all sectors, because every read of a remote image is a request.
fn has_udf(source: &dyn ReadAt, first: u32) -> Result<bool, ReadError> {
    let offset = u64::from(first) * SECTOR_SIZE;
    let sectors = (source.len().saturating_sub(offset) / SECTOR_SIZE).min(MAX_RECOGNITION);
    let length = usize::try_from(sectors * SECTOR_SIZE).unwrap_or(0);
    if length == 0 {
        return Ok(false);
    }
    let mut bytes = vec![0; length];
    source.read_exact_at(offset, &mut bytes).map_err(|error| ReadError::io(offset, length, error))?;
    let identifiers = bytes.chunks_exact(SECTOR).map(|sector| &sector[1..6]);
    let mut until_end = identifiers.take_while(|identifier| *identifier != b"TEA01");
    Ok(until_end.any(|identifier| matches!(identifier, b"NSR02" | b"NSR03")))
}
