//! The structures of ECMA-119 (ISO 9660), one per file: encoding and parsing.
//!
//! ```text
//! sector 0..15   system area (partition tables, if any)
//!        16..    Volume Descriptor Set: primary, [boot record], [supplementary], terminator   descriptor.rs
//!                Path Tables: L (little-endian) and M (big-endian) of each hierarchy          path_table.rs
//!                Directories: Directory Records that never cross a sector                     record.rs
//!                identifiers of files and directories                                         identifier.rs
//!                dates, 7 bytes in records and 17 in descriptors                              date.rs
//!                numbers, often in both byte orders                                           field.rs
//! ```
//!
//! Section numbers in comments refer to ECMA-119, 4th edition; "BP n" is byte position n - 1.

pub(crate) mod date;
pub(crate) mod descriptor;
pub(crate) mod field;
pub(crate) mod identifier;
pub(crate) mod path_table;
pub(crate) mod record;

/// [`crate::SECTOR_SIZE`] as a `usize`.
pub(crate) const SECTOR: usize = 2048;

/// The first sector of the Volume Descriptor Set (6.2.1: sectors 0 to 15 are the System Area).
pub(crate) const FIRST_DESCRIPTOR: u32 = 16;

/// A directory hierarchy of an image.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Hierarchy {
    /// The hierarchy of the Primary Volume Descriptor: ISO 9660 identifiers, with Rock Ridge in the system use areas.
    Primary,
    /// The hierarchy of the Supplementary Volume Descriptor: Joliet identifiers.
    Joliet,
    /// The hierarchy of the Enhanced Volume Descriptor (ISO 9660:1999): names without conversion.
    Enhanced,
}
