//! Path Tables (9.4): one record per directory, so that a system can find a directory without a walk.
//!
//! ```text
//! 0  length of the identifier   2  first sector of the directory       8  identifier, then 00 if its length is odd
//! 1  0                          6  number of the parent, from 1
//! ```
//!
//! Order (6.9.1): level, then number of the parent, then identifier. The root is number 1 and its own parent. The L
//! table is little-endian, the M table is big-endian. Numbers have 16 bits, which limits the number of directories. The
//! reader does not use path tables, so a wrong table cannot mislead it.

/// The largest number of directories.
pub(crate) const MAX_DIRECTORIES: usize = 65_535;

/// The record of one directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathTableRecord<'a> {
    pub(crate) identifier: &'a [u8],
    pub(crate) extent: u32,
    /// The number of the parent directory, from 1.
    pub(crate) parent: u16,
}

impl PathTableRecord<'_> {
    /// Appends the record to the L and to the M table.
    pub(crate) fn append(&self, little: &mut Vec<u8>, big: &mut Vec<u8>) {
        let add = |table: &mut Vec<u8>, extent: [u8; 4], parent: [u8; 2]| {
            table.extend_from_slice(&[u8::try_from(self.identifier.len()).unwrap_or(u8::MAX), 0]);
            table.extend_from_slice(&extent);
            table.extend_from_slice(&parent);
            table.extend_from_slice(self.identifier);
            if !self.identifier.len().is_multiple_of(2) {
                table.push(0);
            }
        };
        add(little, self.extent.to_le_bytes(), self.parent.to_le_bytes());
        add(big, self.extent.to_be_bytes(), self.parent.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_takes_ten_bytes_in_each_order() {
        let (mut little, mut big) = (Vec::new(), Vec::new());
        PathTableRecord { identifier: &[0], extent: 19, parent: 1 }.append(&mut little, &mut big);
        assert_eq!(little, [1, 0, 19, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(big, [1, 0, 0, 0, 0, 19, 0, 1, 0, 0]);
    }
}
