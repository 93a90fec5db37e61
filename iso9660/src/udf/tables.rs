//! The tables and files that partition maps refer to (UDF 2.2.10 to 2.2.12).

use super::file_entry::FileEntry;
use super::partition::{Layout, Map, Partition, Span};
use super::{Address, tag, u16_at, u32_at};
use crate::error::ReadError;
use crate::source::ReadAt;

/// The number of blocks at the end of the image that may follow the virtual allocation table.
const MAX_RUN_OUT: u64 = 32;
/// The largest number of moved packets of a sparable partition.
const MAX_MOVED: usize = 8192;
/// The file types of a virtual allocation table: since UDF 2.00, and before.
const TABLE: u8 = 248;
const UNSPECIFIED: u8 = 0;

impl Layout {
    /// Reads the sparing table of a sparable partition (UDF 2.2.12): the first valid copy.
    pub(super) fn sparable(
        &self,
        source: &dyn ReadAt,
        map: Map<'_>,
        span: Span,
    ) -> Result<Partition, ReadError> {
        let bytes = map.bytes;
        let packet = u16_at(bytes, 40).map_or(0, u32::from);
        let copies = bytes.get(42).map_or(0, |count| usize::from(*count).min(4));
        let size = u32_at(bytes, 44).unwrap_or(0).min(64 << 10) as usize;
        if packet == 0 {
            return Err(Layout::invalid(map.offset, "the packets of a sparable partition have blocks"));
        }
        for copy in 0..copies {
            let Some(block) = u32_at(bytes, 48 + 4 * copy) else { continue };
            let offset = u64::from(block) * u64::from(self.block_size);
            let mut table = vec![0; size];
            if source.read_exact_at(offset, &mut table).is_err()
                || tag::check(&table, Some(block), offset).is_err()
                || !table.get(17..).is_some_and(|name| name.starts_with(b"*UDF Sparing Table"))
            {
                continue;
            }
            let count = u16_at(&table, 48).map_or(0, usize::from).min(MAX_MOVED);
            let entries = table.get(56..).unwrap_or_default().chunks_exact(8).take(count);
            let entries = entries.filter_map(|entry| Some((u32_at(entry, 0)?, u32_at(entry, 4)?)));
            // The two highest numbers mean "unused" and "defective".
            let mut moved: Vec<(u32, u32)> =
                entries.filter(|(original, _)| *original < 0xFFFF_FFF0).collect();
            moved.sort_unstable();
            return Ok(Partition::Sparable { span, packet, moved });
        }
        Err(Layout::invalid(map.offset, "a sparable partition has a sparing table"))
    }

    /// Reads the location of the metadata file (UDF 2.2.10): the main file, or its mirror. `base` is the index of the
    /// partition that holds it.
    pub(super) fn metadata(
        &self,
        source: &dyn ReadAt,
        map: Map<'_>,
        base: u16,
    ) -> Result<Partition, ReadError> {
        let file = |at| {
            let block =
                u32_at(map.bytes, at).ok_or(Layout::invalid(map.offset, "a partition map is whole"))?;
            let address = Address { block, partition: base };
            FileEntry::read(self, source, address, map.offset)?.runs(self, source)
        };
        Ok(Partition::Metadata { file: file(40).or_else(|_| file(44))? })
    }

    /// Reads the virtual allocation table (UDF 2.2.11), whose file entry is the last block that was written.
    pub(super) fn virtual_table(
        &self,
        source: &dyn ReadAt,
        map: Map<'_>,
        (base, span): (u16, Span),
    ) -> Result<Partition, ReadError> {
        let last = source.len() / u64::from(self.block_size);
        // The run-out blocks of the medium may follow it.
        let blocks = (0..MAX_RUN_OUT).filter_map(|back| {
            let absolute = last.checked_sub(1 + back)?;
            u32::try_from(absolute).ok()?.checked_sub(span.start)
        });
        for block in blocks {
            let address = Address { block, partition: base };
            let Ok(entry) = FileEntry::read(self, source, address, map.offset) else { continue };
            let has_header = match entry.file_type {
                // Since UDF 2.00 the table begins with a header that contains its length.
                TABLE => true,
                // Before UDF 2.00 the table ends with an identifier.
                UNSPECIFIED => false,
                _ => continue,
            };
            let table = entry.runs(self, source)?;
            let mut header = [0; 2];
            if has_header {
                table
                    .read_exact_at(source, 0, &mut header)
                    .map_err(|error| ReadError::io(entry.offset, 2, error))?;
            }
            let first = u64::from(u16::from_le_bytes(header));
            return Ok(Partition::Virtual { span, table, first });
        }
        Err(Layout::invalid(map.offset, "a virtual partition ends with its allocation table"))
    }
}
