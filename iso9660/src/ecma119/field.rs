//! Numerical fields (7.2, 7.3).
//!
//! ```text
//! 7.2.3  16 bits both-byte order: LL LH | HH HL         7.3.1  32 bits little-endian
//! 7.3.3  32 bits both-byte order: little | big          7.3.2  32 bits big-endian
//! ```
//!
//! Invariant: a both-byte order field whose halves differ has no value.

/// 7.2.3: a 16-bit number in both byte orders.
pub(crate) fn both_u16(value: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (value.to_le_bytes(), value.to_be_bytes());
    [a, b, c, d]
}

/// 7.3.3: a 32-bit number in both byte orders.
pub(crate) fn both_u32(value: u32) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (value.to_le_bytes(), value.to_be_bytes());
    [a, b, c, d, e, f, g, h]
}

/// Returns the value of a 7.2.3 field at `at`, if it is inside `bytes` and its halves agree.
pub(crate) fn read_both_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let little = u16::from_le_bytes(array(bytes, at)?);
    (little == u16::from_be_bytes(array(bytes, at + 2)?)).then_some(little)
}

/// Returns the value of a 7.3.3 field at `at`, if it is inside `bytes` and its halves agree.
pub(crate) fn read_both_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let little = u32::from_le_bytes(array(bytes, at)?);
    (little == u32::from_be_bytes(array(bytes, at + 4)?)).then_some(little)
}

/// Returns the `N` bytes at `at`, if they are inside `bytes`.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Overwrites the bytes at `at` with `value`. Buffers have fixed sizes and offsets come from the standard, so a range
/// outside the buffer is a programming error and panics like an index.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_round_trip_and_disagreement_has_no_value() {
        assert_eq!(both_u16(0x1234), [0x34, 0x12, 0x12, 0x34]);
        assert_eq!(both_u32(0x1234_5678), [0x78, 0x56, 0x34, 0x12, 0x12, 0x34, 0x56, 0x78]);
        assert_eq!(read_both_u32(&both_u32(77), 0), Some(77));
        assert_eq!(read_both_u16(&both_u16(77), 0), Some(77));
        assert_eq!(read_both_u16(&[1, 0, 0, 2], 0), None);
        assert_eq!(read_both_u32(&[0; 7], 0), None);
        assert_eq!(array::<2>(&[0; 2], usize::MAX), None);
    }
}
