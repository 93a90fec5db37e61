//! Adds a directory to the path table of a tree.
//!
//! ```text
//! number  1     2    3    4   |  5      6              parents: 1 1 1 1 | 2 4
//!         root  A    B    Z   |  A/X    Z/Y
//! number  1     2    3    4     5   |  6      7        `TASK` becomes number 4: numbers from 4 on grow by one,
//!         root  A    B   TASK   Z   |  A/X    Z/Y      as number and as parent: 1 1 1 1 1 | 2 5
//! ```
//!
//! Only the L table is read; both tables are written from it. Order and numbers: ECMA-119 6.9.1 and 9.4.

use crate::ecma119::field::array;
use crate::ecma119::path_table::{MAX_DIRECTORIES, PathTableRecord};
use crate::error::ReadError;

use super::error::SpliceError;

/// The number of the root.
pub(crate) const ROOT: u16 = 1;
/// The number of bytes of a record before its identifier.
const HEADER: usize = 8;

#[derive(Clone, Debug, Eq, PartialEq)]
struct Row {
    identifier: Vec<u8>,
    extent: u32,
    parent: u16,
}

/// The directories of a tree in the order of their numbers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PathTable {
    rows: Vec<Row>,
}

impl PathTable {
    /// Parses an L table at byte `offset` of the image.
    pub(crate) fn parse(bytes: &[u8], offset: u64) -> Result<PathTable, ReadError> {
        let mut rows: Vec<Row> = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let invalid = |rule| ReadError::Invalid { offset: offset + at as u64, rule };
            let record = &bytes[at..];
            let length = usize::from(record[0]);
            let (Some(identifier), Some(extent), Some(parent)) =
                (record.get(HEADER..HEADER + length), array(record, 2), array(record, 6))
            else {
                return Err(invalid("a path table record ends inside its table"));
            };
            if record[1] != 0 {
                let feature = "directories with extended attribute records";
                return Err(ReadError::Unsupported { offset: offset + at as u64, feature });
            }
            let parent = u16::from_le_bytes(parent);
            if length == 0 || parent == 0 || usize::from(parent) > rows.len().max(1) {
                return Err(invalid("a parent comes before its children in a path table"));
            }
            if rows.len() == MAX_DIRECTORIES {
                return Err(invalid("a path table numbers at most 65535 directories"));
            }
            rows.push(Row { identifier: identifier.to_vec(), extent: u32::from_le_bytes(extent), parent });
            at += HEADER + length.next_multiple_of(2);
        }
        match rows.first() {
            Some(root) if root.identifier == [0] => Ok(PathTable { rows }),
            _ => Err(ReadError::Invalid { offset, rule: "a path table begins with the root" }),
        }
    }

    /// Adds a child of the root. Returns its number.
    pub(crate) fn insert(&mut self, identifier: &[u8], tree: &'static str) -> Result<u16, SpliceError> {
        let at =
            self.rows.iter().skip(1).take_while(|row| row.parent == ROOT && *row.identifier < *identifier);
        let index = 1 + at.count();
        let full = SpliceError::TooManyDirectories { tree, limit: MAX_DIRECTORIES };
        let number = match u16::try_from(index + 1) {
            Ok(number) if self.rows.len() < MAX_DIRECTORIES => number,
            _ => return Err(full),
        };
        for row in &mut self.rows {
            // Numbers stay below MAX_DIRECTORIES, so another one fits.
            row.parent += u16::from(row.parent >= number);
        }
        self.rows.insert(index, Row { identifier: identifier.to_vec(), extent: 0, parent: ROOT });
        Ok(number)
    }

    /// Returns the number of a child of the root.
    pub(crate) fn child(&self, identifier: &[u8]) -> Option<u16> {
        let index =
            self.rows.iter().skip(1).position(|row| row.parent == ROOT && row.identifier == identifier)?;
        u16::try_from(index + 2).ok()
    }

    /// Returns the number of the directory that begins in a sector.
    pub(crate) fn number_at(&self, extent: u32) -> Option<u16> {
        let index = self.rows.iter().position(|row| row.extent == extent)?;
        u16::try_from(index + 1).ok()
    }

    /// Sets the first sector of a directory.
    pub(crate) fn place(&mut self, number: u16, extent: u32) {
        if let Some(row) = usize::from(number).checked_sub(1).and_then(|index| self.rows.get_mut(index)) {
            row.extent = extent;
        }
    }

    /// Returns the length of either table in bytes.
    pub(crate) fn size(&self) -> u32 {
        let sizes = self.rows.iter().map(|row| HEADER + row.identifier.len().next_multiple_of(2));
        // At most 65,535 rows of at most 264 bytes.
        u32::try_from(sizes.sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// Returns the L and the M table.
    pub(crate) fn to_bytes(&self) -> (Vec<u8>, Vec<u8>) {
        let (mut little, mut big) = (Vec::new(), Vec::new());
        for Row { identifier, extent, parent } in &self.rows {
            let record = PathTableRecord { identifier, extent: *extent, parent: *parent };
            record.append(&mut little, &mut big);
        }
        (little, big)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&[u8], u16)]) -> PathTable {
        let rows = rows.iter().zip(20..).map(|((identifier, parent), extent)| Row {
            identifier: identifier.to_vec(),
            extent,
            parent: *parent,
        });
        PathTable { rows: rows.collect() }
    }

    #[test]
    fn a_directory_on_level_two_shifts_the_numbers_after_it() {
        let mut found = table(&[(&[0], 1), (b"A", 1), (b"B", 1), (b"Z", 1), (b"X", 2), (b"Y", 4), (b"Q", 6)]);
        assert_eq!(found.insert(b"TASK", "").unwrap(), 4);
        let parents: Vec<u16> = found.rows.iter().map(|row| row.parent).collect();
        assert_eq!(parents, [1, 1, 1, 1, 1, 2, 5, 7]);
        assert_eq!(found.child(b"TASK"), Some(4));
        assert_eq!(found.child(b"X"), None);
        assert_eq!(found.number_at(23), Some(5));
        found.place(4, 99);
        assert_eq!(PathTable::parse(&found.to_bytes().0, 0).unwrap(), found);
        assert_eq!(found.to_bytes().0.len(), found.size() as usize);
    }

    #[test]
    fn a_root_without_children_gets_its_first() {
        let mut found = table(&[(&[0], 1)]);
        assert_eq!(found.insert(b"TASK", "").unwrap(), 2);
        assert_eq!(found.rows[1].parent, 1);
    }

    #[test]
    fn a_full_table_is_an_error() {
        let mut found = table(&[(&[0], 1)]);
        found.rows.resize(65_535, Row { identifier: b"A".to_vec(), extent: 1, parent: 1 });
        assert!(matches!(found.insert(b"TASK", "plain"), Err(SpliceError::TooManyDirectories { .. })));
    }

    #[test]
    fn broken_tables_are_invalid_at_their_offset() {
        let good = table(&[(&[0], 1), (b"A", 1), (b"B", 1)]).to_bytes().0;
        let offset_of = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            match PathTable::parse(&bytes, 100) {
                Err(ReadError::Invalid { offset, .. } | ReadError::Unsupported { offset, .. }) => offset,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(offset_of(8, 1), 100);
        assert_eq!(offset_of(10, 200), 110);
        assert_eq!(offset_of(10, 0), 110);
        assert_eq!(offset_of(11, 1), 110);
        assert_eq!(offset_of(16, 3), 110);
        assert_eq!(offset_of(16, 0), 110);
        assert!(PathTable::parse(&[], 0).is_err());
    }
}
