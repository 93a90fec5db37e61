//! The start of a disk: whether it has a partition table, and for which size of sectors.
//!
//! ```text
//!   0      510  512                    4096
//!   | MBR  55 aa | "EFI PART", sectors of 512 |  "EFI PART", sectors of 4096
//! ```
//!
//! Specification: UEFI 2.10, 5.3.2 "GPT Header"; 5.2.1 "Legacy Master Boot Record".

use std::io::{self, Cursor, Read};

/// The bytes of a disk that are looked at.
const START_BYTES: u64 = 1 << 20;

const SIGNATURE: &[u8] = b"EFI PART";

/// The content is no image of a disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it is no image of a disk: it has neither a GPT nor an MBR")]
pub struct StartError;

/// Whether the first sector of a disk is an MBR that names partitions and no GPT. What stands behind it is the rest of an older table.
#[must_use]
pub fn is_mbr(start: &[u8]) -> bool {
    // UEFI 2.10, 5.2.3: an entry of the type 0xEE stands for a GPT.
    let types = [450, 466, 482, 498].map(|at| start.get(at).copied().unwrap_or(0));
    start.get(510..512) == Some(&[0x55, 0xaa]) && types != [0; 4] && !types.contains(&0xee)
}

/// Returns the sector size for which the first bytes of a disk image hold a GPT.
#[must_use]
pub fn sector_of_image(start: &[u8]) -> Option<u64> {
    if is_mbr(start) {
        return None;
    }
    [512_usize, 4096].into_iter().find(|at| start.get(*at..at + 8) == Some(SIGNATURE)).map(|at| at as u64)
}

/// Checks that content begins as a disk with partitions does. Returns the size of the sectors, if the table tells it.
///
/// # Errors
/// Returns [`StartError`] when there is neither a GPT nor an MBR.
pub fn check_start(start: &[u8]) -> Result<Option<u64>, StartError> {
    match sector_of_image(start) {
        Some(sector) => Ok(Some(sector)),
        None if start.get(510..512) == Some(&[0x55, 0xaa]) => Ok(None),
        None => Err(StartError),
    }
}

/// Reads the start of content and checks it. Returns the size of the sectors, if the table tells it, and the whole content.
///
/// # Errors
/// Returns an error when the content cannot be read or is no image of a disk.
pub fn checked(mut content: impl Read) -> io::Result<(Option<u64>, impl Read)> {
    let mut start = Vec::new();
    content.by_ref().take(START_BYTES).read_to_end(&mut start)?;
    let sector = check_start(&start).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
    Ok((sector, Cursor::new(start).chain(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_tells_the_size_of_its_sectors() {
        for sector in [512_u16, 4096] {
            let mut start = vec![0; 8192];
            start[sector.into()..usize::from(sector) + 8].copy_from_slice(SIGNATURE);
            assert_eq!(check_start(&start), Ok(Some(sector.into())));
        }
        let mut mbr = vec![0; 512];
        mbr[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(check_start(&mbr), Ok(None));
        // Beside partitions of the MBR a GPT is the rest of an older table; beside a protective entry it is not.
        mbr.resize(1024, 0);
        mbr[512..520].copy_from_slice(SIGNATURE);
        mbr[450] = 0x83;
        assert_eq!(check_start(&mbr), Ok(None));
        mbr[466] = 0xee;
        assert_eq!(check_start(&mbr), Ok(Some(512)));
        assert_eq!(check_start(b"<html>not found</html>"), Err(StartError));
    }
}
