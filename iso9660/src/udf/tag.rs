//! Descriptor tags (3/7.2).
//!
//! ```text
//! 0  identifier    4  checksum: sum of the other 15 bytes   8   CRC of the bytes after the tag   12  own block in its
//! 2  version       6  serial number                         10  number of bytes in the CRC           partition
//! ```

use super::{u16_at, u32_at};
use crate::error::ReadError;

/// The length of a tag in bytes.
pub(super) const LENGTH: usize = 16;
/// The table of the CRC: polynomial x^16 + x^12 + x^5 + 1, most significant bit first.
const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 0x8000 == 0 { value << 1 } else { (value << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

pub(super) fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

pub(super) fn checksum(tag: &[u8]) -> u8 {
    tag[..4].iter().chain(&tag[5..LENGTH]).fold(0, |sum: u8, byte| sum.wrapping_add(*byte))
}

/// Checks the tag of the descriptor at the start of `bytes` and returns its identifier. `block` is the block that the
/// tag must contain, or `None` to skip this check. `offset` is the offset of `bytes` in the image.
pub(super) fn check(bytes: &[u8], block: Option<u32>, offset: u64) -> Result<u16, ReadError> {
    let invalid = |rule| ReadError::Invalid { offset, rule };
    if bytes.len() < LENGTH || checksum(bytes) != bytes[4] || bytes[..LENGTH].iter().all(|byte| *byte == 0) {
        return Err(invalid("a UDF descriptor begins with a tag whose checksum is right"));
    }
    let covered = usize::from(u16_at(bytes, 10).unwrap_or(u16::MAX));
    let body = bytes.get(LENGTH..LENGTH + covered);
    if body.map(crc) != u16_at(bytes, 8) {
        return Err(invalid("the CRC of a UDF descriptor is right"));
    }
    if block.is_some_and(|block| u32_at(bytes, 12) != Some(block)) {
        return Err(invalid("a UDF descriptor says which block it is in"));
    }
    u16_at(bytes, 0).ok_or(invalid("a UDF descriptor has an identifier"))
}

#[cfg(test)]
mod tests {
    use super::super::seal;
    use super::*;

    #[test]
    fn the_crc_is_that_of_the_specification() {
        // ECMA-167 7.2.6: the CRC of these three bytes is 3299.
        assert_eq!(crc(&[0x70, 0x6a, 0x77]), 0x3299);
    }

    #[test]
    fn a_sealed_descriptor_passes_and_every_changed_byte_of_it_fails() {
        let mut good = [0_u8; 40];
        good[..2].copy_from_slice(&257_u16.to_le_bytes());
        good[10..12].copy_from_slice(&20_u16.to_le_bytes());
        good[12] = 9;
        good[20] = 7;
        seal(&mut good);
        assert_eq!(check(&good, Some(9), 0).unwrap(), 257);
        for at in 0..36 {
            let mut bad = good;
            bad[at] ^= 0x10;
            assert!(check(&bad, None, 0).is_err(), "byte {at}");
        }
        assert!(check(&good, Some(8), 0).is_err());
        assert!(check(&good[..30], None, 0).is_err());
        assert!(check(&[0; 16], None, 0).is_err());
    }
}
