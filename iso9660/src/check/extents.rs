//! The use of every byte range of the image.
//!
//! ```text
//! | system area | descriptors | path tables | directories | continuations | catalog | file | file ... | unused |
//!    structure     structure     structure     structure      structure     structure  file              zeros
//! ```
//!
//! Structures overlap nothing. Two files have equal or separate extents. The boot catalog may be a file too. Covered
//! ranges (El Torito images, partitions, backup tables) mark their bytes as used without excluding overlap, because
//! they contain files by design. Empty files have no extent, whatever their address is.

use super::descriptors::Volume;
use super::{Checker, Rule};
use crate::SECTOR_SIZE;
use crate::error::ReadError;

/// The number of unused bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// The use of a range of bytes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum ExtentUse {
    /// A structure of the format, with its name.
    Structure(&'static str),
    /// The boot catalog, which some writers show as a file too.
    Catalog,
    /// The extent of a file.
    File,
}

impl ExtentUse {
    fn name(self) -> &'static str {
        match self {
            ExtentUse::Structure(name) => name,
            ExtentUse::Catalog => "the boot catalog",
            ExtentUse::File => "a file",
        }
    }

    /// Returns whether one range may have both uses.
    fn shares(self, other: ExtentUse) -> bool {
        !matches!((self, other), (ExtentUse::Structure(_), _) | (_, ExtentUse::Structure(_)))
    }
}

/// The ranges in use.
#[derive(Default)]
pub(super) struct Claims {
    claims: Vec<(u64, u64, ExtentUse)>,
    covered: Vec<(u64, u64)>,
}

impl Claims {
    /// Claims `length` bytes at `offset` for one use.
    pub(super) fn claim(&mut self, offset: u64, length: u64, what: ExtentUse) {
        if length > 0 {
            self.claims.push((offset, offset.saturating_add(length), what));
        }
    }

    /// Marks `length` bytes at `offset` as used without claiming them.
    pub(super) fn cover(&mut self, offset: u64, length: u64) {
        if length > 0 {
            self.covered.push((offset, offset.saturating_add(length)));
        }
    }
}

/// Checks that no claims overlap and that unclaimed bytes are zero.
pub(super) fn check(checker: &mut Checker<'_>, volume: &Volume, partitioned: bool) -> Result<(), ReadError> {
    let Claims { mut claims, covered } = std::mem::take(&mut checker.claims);
    claims.sort_unstable();
    // Hard links and other hierarchies claim equal extents.
    claims.dedup_by(|right, left| right == left && right.2 == ExtentUse::File);
    overlaps(checker, &claims);
    size(checker, volume, partitioned);
    // The structures of UDF are not parsed here, so unclaimed bytes have an unknown use.
    if volume.udf {
        return Ok(());
    }
    let mut used: Vec<(u64, u64)> = claims.into_iter().map(|(start, end, _)| (start, end)).collect();
    used.extend(covered);
    used.sort_unstable();
    let mut free = 0;
    let mut chunk = vec![0; CHUNK];
    for (start, end) in used.into_iter().chain([(checker.len, checker.len)]) {
        if free < start.min(checker.len) {
            gap(checker, &mut chunk, free, start.min(checker.len))?;
        }
        free = free.max(end);
    }
    Ok(())
}

fn overlaps(checker: &mut Checker<'_>, claims: &[(u64, u64, ExtentUse)]) {
    // An extent that begins after the end of the image has been reported already.
    let claims = &claims[..claims.partition_point(|(start, ..)| *start < checker.len)];
    let Some(mut reaching) = claims.first().copied() else { return };
    for claim in claims.iter().skip(1) {
        let (start, end, what) = *claim;
        let same = (start, end) == (reaching.0, reaching.1) && what.shares(reaching.2);
        if start < reaching.1 && !same {
            let (other, from) = (reaching.2.name(), reaching.0 / SECTOR_SIZE);
            checker.find(
                Rule::ExtentsOverlap,
                start,
                format_args!("{} of {} bytes overlaps {other} from sector {from}", what.name(), end - start),
            );
        }
        if end > reaching.1 {
            reaching = *claim;
        }
    }
}

/// Compares the length of the image with the size of its volume.
fn size(checker: &mut Checker<'_>, volume: &Volume, partitioned: bool) {
    let len = checker.len;
    if !len.is_multiple_of(SECTOR_SIZE) {
        let rest = len % SECTOR_SIZE;
        checker.find(
            Rule::ImageLength,
            len - rest,
            format_args!("{rest} bytes follow the last whole sector"),
        );
    }
    let Some((at, size)) = volume.space else { return };
    if len < size {
        checker.find(
            Rule::ImageTruncated,
            len,
            format_args!("the image has {len} bytes, the volume has {size}: {} are missing", size - len),
        );
    } else if len / SECTOR_SIZE > size / SECTOR_SIZE && !partitioned {
        checker.find(
            Rule::BytesAfterVolume,
            at,
            format_args!("the volume has {size} bytes, {} more follow", len - size),
        );
    }
}

/// Looks for bytes between the claims that are not zero.
fn gap(checker: &mut Checker<'_>, chunk: &mut [u8], start: u64, end: u64) -> Result<(), ReadError> {
    checker.counts.unused_bytes += end - start;
    let mut at = start;
    while at < end && checker.counts.unused_bytes_read < checker.options.unused_bytes {
        let length = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
        let chunk = &mut chunk[..length];
        checker.fill(at, chunk)?;
        checker.counts.unused_bytes_read += length as u64;
        if let Some(stray) = stray(chunk) {
            let offset = at + stray as u64;
            let message = format_args!("a byte is not zero in {} unused bytes from {start:#x}", end - start);
            checker.find(Rule::UnusedNotZero, offset, message);
            return Ok(());
        }
        at += length as u64;
    }
    Ok(())
}

/// Returns the position of the first byte that is not zero. Whole blocks are compared first, which compiles to vector
/// instructions.
fn stray(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 4096;
    let block = bytes.chunks(BLOCK).position(|block| block.iter().fold(0, |all, byte| all | byte) != 0)?;
    bytes[BLOCK * block..].iter().position(|byte| *byte != 0).map(|at| BLOCK * block + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_byte_is_found_wherever_it_is() {
        let mut bytes = vec![0; 10_000];
        assert_eq!(stray(&bytes), None);
        for at in [9_999, 8_192, 4_095, 0] {
            bytes[at] = 1;
            assert_eq!(stray(&bytes), Some(at));
        }
    }
}
