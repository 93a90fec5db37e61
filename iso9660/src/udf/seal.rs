//! Checksums and CRCs of changed descriptors.

use super::tag::{LENGTH, checksum, crc};
use super::{directory, u16_at};

/// Recomputes checksum and CRC of the descriptor in `bytes` as far as its claimed length allows, and of the identifiers
/// after it. The seeds of the fuzz target pass the checks this way.
pub(crate) fn seal(mut bytes: &mut [u8]) {
    while bytes.len() >= LENGTH {
        let covered = usize::from(u16_at(bytes, 10).unwrap_or(0));
        if let Some(body) = bytes.get(LENGTH..LENGTH + covered) {
            let crc = crc(body);
            bytes[8..10].copy_from_slice(&crc.to_le_bytes());
        }
        bytes[4] = checksum(bytes);
        let next = directory::length(bytes).filter(|length| *length <= bytes.len());
        let Some(next) = next else { break };
        bytes = &mut bytes[next..];
    }
}
