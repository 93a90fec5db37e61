//! Volume Descriptors (8).
//!
//! ```text
//!   0 type   1 "CD001"   6 version 1           156 root directory record (34)
//!   8 system identifier (32)                   190 volume set, 318 publisher, 446 preparer, 574 application (128 each)
//!  40 volume identifier (32)                   702 copyright, 739 abstract, 776 bibliographic file (37 each)
//!  80 volume space size (both 32)              813 creation, 830 modification, 847 expiration, 864 effective (17 each)
//!  88 escape sequences (32, Joliet)            881 file structure version 1
//! 120 set size, 124 sequence, 128 block size   883 application use (512), then reserved
//! 132 path table size (both 32)                140 L table (little), 148 M table (big)
//!
//! an Enhanced Volume Descriptor (ISO 9660:1999) has type 2, and version 2 at offsets 6 and 881
//! ```
//!
//! Invariants: text is padded with spaces (UCS-2 spaces in Joliet). Unused bytes are zero. The creation date equals the
//! modification date; expiration and effective dates are unspecified.

use super::date::{Date, UNSPECIFIED, parse_descriptor};
use super::field::{array, both_u16, both_u32, put, read_both_u16, read_both_u32};
use super::record::Record;
use super::{Hierarchy, SECTOR};
use crate::error::ReadError;
use crate::joliet;

/// 8.1.1: the type of a Boot Record.
pub(crate) const BOOT: u8 = 0;
/// 8.1.1: the type of the Primary Volume Descriptor.
pub(crate) const PRIMARY: u8 = 1;
/// 8.1.1: the type of a Supplementary or Enhanced Volume Descriptor.
pub(crate) const SUPPLEMENTARY: u8 = 2;
/// 8.1.1: the type of the Volume Descriptor Set Terminator.
pub(crate) const TERMINATOR: u8 = 255;
/// The version of an enhanced descriptor and of its file structure.
const ENHANCED_VERSION: u8 = 2;
/// 8.1.2: the standard identifier.
const IDENTIFIER: &[u8] = b"CD001";
/// The length of the root directory record, which has a one-byte identifier and no system use area.
const ROOT: std::ops::Range<usize> = 156..190;

/// A descriptor of a hierarchy to be written.
#[derive(Clone, Debug)]
pub(crate) struct NewVolume<'a> {
    pub(crate) hierarchy: Hierarchy,
    pub(crate) volume_id: &'a str,
    pub(crate) publisher: &'a str,
    pub(crate) preparer: &'a str,
    pub(crate) application: &'a str,
    pub(crate) sectors: u32,
    pub(crate) path_table_size: u32,
    pub(crate) l_table: u32,
    pub(crate) m_table: u32,
    pub(crate) root: &'a [u8],
    pub(crate) date: Date,
}

impl NewVolume<'_> {
    /// Returns the sector of the descriptor.
    pub(crate) fn to_sector(&self) -> [u8; SECTOR] {
        let mut sector = start(match self.hierarchy {
            Hierarchy::Primary => PRIMARY,
            Hierarchy::Joliet | Hierarchy::Enhanced => SUPPLEMENTARY,
        });
        let texts = [
            (8, 32, ""),
            (40, 32, self.volume_id),
            (190, 128, ""),
            (318, 128, self.publisher),
            (446, 128, self.preparer),
            (574, 128, self.application),
            (702, 37, ""),
            (739, 37, ""),
            (776, 37, ""),
        ];
        for (at, length, text) in texts {
            self.text(&mut sector[at..at + length], text);
        }
        match self.hierarchy {
            Hierarchy::Primary => {}
            Hierarchy::Joliet => put(&mut sector, 88, joliet::ESCAPE_SEQUENCE),
            // ISO 9660:1999, 8.5.2: only the version distinguishes it from a supplementary descriptor.
            Hierarchy::Enhanced => sector[6] = ENHANCED_VERSION,
        }
        put(&mut sector, 80, &both_u32(self.sectors));
        put(&mut sector, 120, &both_u16(1));
        put(&mut sector, 124, &both_u16(1));
        put(&mut sector, 128, &both_u16(SECTOR as u16));
        put(&mut sector, 132, &both_u32(self.path_table_size));
        put(&mut sector, 140, &self.l_table.to_le_bytes());
        put(&mut sector, 148, &self.m_table.to_be_bytes());
        put(&mut sector, ROOT.start, self.root);
        for (at, date) in [
            (813, self.date.descriptor()),
            (830, self.date.descriptor()),
            (847, UNSPECIFIED),
            (864, UNSPECIFIED),
        ] {
            put(&mut sector, at, &date);
        }
        // The version of the file structure equals that of the descriptor.
        sector[881] = sector[6];
        sector
    }

    /// Fills a text field and truncates longer text. Only the volume identifier can be longer than its Joliet field.
    fn text(&self, field: &mut [u8], text: &str) {
        match self.hierarchy {
            Hierarchy::Primary | Hierarchy::Enhanced => {
                field.fill(b' ');
                field.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
            }
            Hierarchy::Joliet => {
                let padded = text.encode_utf16().chain(std::iter::repeat(u16::from(b' ')));
                field.chunks_exact_mut(2).zip(padded).for_each(|(to, unit)| put(to, 0, &unit.to_be_bytes()));
            }
        }
    }
}

/// Returns the Volume Descriptor Set Terminator (8.3).
pub(crate) fn terminator() -> [u8; SECTOR] {
    start(TERMINATOR)
}

/// Returns an empty descriptor of a type.
pub(crate) fn start(kind: u8) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    sector[0] = kind;
    put(&mut sector, 1, IDENTIFIER);
    sector[6] = 1;
    sector
}

/// Returns the type of a descriptor, if the sector is a descriptor.
pub(crate) fn kind(sector: &[u8; SECTOR]) -> Option<u8> {
    (&sector[1..6] == IDENTIFIER).then_some(sector[0])
}

/// Returns the hierarchy of a supplementary descriptor. Only the escape sequences identify it; `None` if they are
/// unknown.
pub(crate) fn is_joliet(sector: &[u8; SECTOR]) -> bool {
    sector[6] == 1 && joliet::ESCAPE_SEQUENCES.iter().any(|known| sector[88..120].starts_with(known))
}

/// A descriptor of a hierarchy, read from an image.
#[derive(Clone, Debug)]
pub(crate) struct ReadVolume {
    pub(crate) volume_id: String,
    pub(crate) publisher: String,
    pub(crate) preparer: String,
    pub(crate) application: String,
    pub(crate) sectors: u32,
    pub(crate) created: Option<i64>,
    pub(crate) modified: Option<i64>,
    /// The offset and the length of the root directory.
    pub(crate) root_offset: u64,
    pub(crate) root_length: u32,
}

impl ReadVolume {
    /// Parses the descriptor in `sector`, which is at byte `offset` of the image.
    pub(crate) fn parse(
        sector: &[u8; SECTOR],
        offset: u64,
        hierarchy: Hierarchy,
    ) -> Result<ReadVolume, ReadError> {
        let invalid = |at: u64, rule| ReadError::Invalid { offset: offset + at, rule };
        let sectors = read_both_u32(sector, 80)
            .ok_or(invalid(80, "both byte orders of the volume space size agree"))?;
        match read_both_u16(sector, 128) {
            Some(2048) => {}
            Some(_) => {
                return Err(ReadError::Unsupported {
                    offset: offset + 128,
                    feature: "logical blocks of other than 2048 bytes",
                });
            }
            None => return Err(invalid(128, "both byte orders of the logical block size agree")),
        }
        let root = Record::parse(&sector[ROOT], offset + ROOT.start as u64)?;
        let text = |at: usize, length: usize| match hierarchy {
            Hierarchy::Primary | Hierarchy::Enhanced => {
                String::from_utf8_lossy(&sector[at..at + length]).trim_end_matches([' ', '\0']).to_owned()
            }
            Hierarchy::Joliet => {
                joliet::decode(&sector[at..at + length]).trim_end_matches([' ', '\0']).to_owned()
            }
        };
        let date = |at| array(sector, at).and_then(parse_descriptor);
        Ok(ReadVolume {
            volume_id: text(40, 32),
            publisher: text(318, 128),
            preparer: text(446, 128),
            application: text(574, 128),
            sectors,
            created: date(813),
            modified: date(830),
            root_offset: root.data_offset,
            root_length: root.data_length,
        })
    }
}
