//! The header of a swap area.
//!
//! ```text
//! 0        1024: version, last page, bad pages, UUID, label        4086: "SWAPSPACE2"   4096: pages …
//! ```

use std::io;

use uuid::Uuid;

use crate::device::Disk;

const PAGE: u64 = 4096;
const LABEL_BYTES: usize = 16;

/// Makes a swap area of the whole of `disk`, which is a partition.
pub(super) fn make(disk: &dyn Disk, uuid: Uuid, label: Option<&str>) -> io::Result<()> {
    let pages = disk.size() / PAGE;
    let last = pages.checked_sub(1).filter(|last| *last >= 9).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "a swap area needs at least 10 pages of 4 KiB")
    })?;
    let last = u32::try_from(last).unwrap_or(u32::MAX);
    let mut page = vec![0_u8; PAGE as usize];
    page[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
    page[1028..1032].copy_from_slice(&last.to_le_bytes());
    page[1036..1052].copy_from_slice(uuid.as_bytes());
    let label = label.unwrap_or_default().as_bytes();
    let length = label.len().min(LABEL_BYTES);
    page[1052..1052 + length].copy_from_slice(&label[..length]);
    page[4086..].copy_from_slice(b"SWAPSPACE2");
    disk.write_at(0, &page)?;
    disk.flush()
}
