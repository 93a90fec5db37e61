//! Parses the system use areas of images from any writer.
//!
//! ```text
//! area of the record --CE--> area --CE--> area ...      each inside one block, at most MAX_AREAS, no area twice
//! ```
//!
//! A CE entry takes effect after all entries of its area are read (SUSP 5.1). ST ends an area. A rest that is too short
//! for an entry is padding.

use super::{CONTINUE, CURRENT, EXTENSIONS, MAX_AREAS, NAME_LIMIT, PARENT, ROOT};
use crate::SECTOR_SIZE;
use crate::ecma119::SECTOR;
use crate::ecma119::date::{parse_descriptor, parse_record};
use crate::ecma119::field::{array, read_both_u32};
use crate::error::ReadError;
use crate::source::ReadAt;
use crate::zisofs;

/// The longest target of a symbolic link in bytes.
const TARGET_LIMIT: usize = 4096;

/// The Rock Ridge attributes of a record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    /// Whether an ER entry declares Rock Ridge.
    pub(crate) er_seen: bool,
    pub(crate) name: Vec<u8>,
    pub(crate) mode: Option<u32>,
    pub(crate) modified: Option<i64>,
    pub(crate) symlink: Option<Vec<u8>>,
    /// The first block of the relocated directory that this record represents (CL).
    pub(crate) relocated_to: Option<u32>,
    /// Whether the directory is relocated and shown elsewhere (RE).
    pub(crate) relocated: bool,
    /// The zisofs parameters, if the file is compressed.
    pub(crate) compressed: Option<zisofs::Parameters>,
}

impl Attributes {
    /// Clears all attributes but keeps the allocations.
    fn clear(&mut self) {
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        *self = Attributes { name, ..Attributes::default() };
    }
}

/// Returns the number of bytes to skip in the areas of other records, if the root's area has an SP entry.
pub(crate) fn root_skip(system_use: &[u8]) -> Option<usize> {
    // Images for other systems put up to 15 other bytes first.
    [0, 15].into_iter().find_map(|at| {
        let entry = system_use.get(at..at + 7)?;
        (entry.starts_with(b"SP\x07\x01\xBE\xEF")).then(|| usize::from(entry[6]))
    })
}

/// Parses the area of a record at byte `offset` of the image.
pub(crate) fn parse(source: &dyn ReadAt, system_use: &[u8], offset: u64) -> Result<Attributes, ReadError> {
    let mut attributes = Attributes::default();
    parse_into(source, system_use, offset, &mut attributes)?;
    Ok(attributes)
}

/// Parses an area into existing attributes, to reuse their allocations.
pub(crate) fn parse_into(
    source: &dyn ReadAt,
    system_use: &[u8],
    offset: u64,
    attributes: &mut Attributes,
) -> Result<(), ReadError> {
    attributes.clear();
    let mut parser = Parser { offset, attributes, name_open: true, link: Link::new() };
    if let Some(continuation) = parser.area(system_use)? {
        parser.continuations(source, continuation)?;
    }
    parser.finish();
    Ok(())
}

struct Parser<'a> {
    offset: u64,
    attributes: &'a mut Attributes,
    /// Whether another NM entry may follow: the last one had the continue flag, or there was none.
    name_open: bool,
    link: Link,
}

/// A symbolic link while its components are read.
struct Link {
    present: bool,
    target: Vec<u8>,
    /// Whether the next component follows without a separator: it is the first one, or the last one has the continue flag
    /// or is the root.
    separated: bool,
}

impl Link {
    fn new() -> Link {
        Link { present: false, target: Vec::new(), separated: true }
    }
}

impl Parser<'_> {
    /// Reads the area of the record and the areas that follow it.
    fn continuations(&mut self, source: &dyn ReadAt, first: (u64, usize)) -> Result<(), ReadError> {
        let mut continuation = Some(first);
        let mut visited: Vec<(u64, u64)> = Vec::new();
        let mut block = [0; SECTOR];
        while let Some((start, length)) = continuation {
            let invalid = |rule| ReadError::Invalid { offset: start, rule };
            let end = start + length as u64;
            if start % SECTOR_SIZE + length as u64 > SECTOR_SIZE {
                return Err(invalid("a continuation area lies inside one block"));
            }
            if end > source.len() {
                return Err(invalid("a continuation area lies inside the image"));
            }
            if visited.iter().any(|(from, to)| start < *to && *from < end) {
                return Err(invalid("a continuation area is used once per record"));
            }
            if visited.len() == MAX_AREAS {
                return Err(ReadError::Limit {
                    what: "continuation areas of one record",
                    limit: MAX_AREAS as u64,
                });
            }
            visited.push((start, end));
            let area = &mut block[..length];
            source.read_exact_at(start, area).map_err(|error| ReadError::io(start, length, error))?;
            self.offset = start;
            continuation = self.area(area)?;
        }
        Ok(())
    }

    /// Reads the entries of one area. Returns the offset and the length of the next area.
    fn area(&mut self, mut rest: &[u8]) -> Result<Option<(u64, usize)>, ReadError> {
        let mut next = None;
        while rest.len() >= 4 && rest[..2] != [0, 0] {
            let length = usize::from(rest[2]);
            let Some(entry) = rest.get(..length).filter(|_| length >= 4) else {
                return Err(self.invalid("a system use entry ends inside its area"));
            };
            rest = &rest[length..];
            let data = &entry[4..];
            match &entry[..2] {
                b"CE" => next = Some(self.continuation(data)?),
                b"ST" => break,
                b"ER" => self.attributes.er_seen |= er_seen(data),
                b"PX" => self.attributes.mode = read_both_u32(data, 0),
                b"TF" => self.attributes.modified = modified(data),
                b"NM" => self.name(data)?,
                b"SL" => self.symlink(data)?,
                b"CL" => {
                    let block = read_both_u32(data, 0)
                        .ok_or_else(|| self.invalid("both byte orders of a CL entry agree"))?;
                    self.attributes.relocated_to = Some(block);
                }
                b"RE" => self.attributes.relocated = true,
                b"ZF" => {
                    let parameters = zisofs::Parameters::parse(data);
                    let rule = "a ZF entry has its length, and its byte orders agree";
                    self.attributes.compressed = Some(parameters.ok_or_else(|| self.invalid(rule))?);
                }
                _ => {}
            }
        }
        Ok(next)
    }

    fn invalid(&self, rule: &'static str) -> ReadError {
        ReadError::Invalid { offset: self.offset, rule }
    }

    fn continuation(&self, data: &[u8]) -> Result<(u64, usize), ReadError> {
        let halves = "both byte orders of a CE entry agree";
        let field = |at| read_both_u32(data, at).ok_or_else(|| self.invalid(halves));
        let (block, offset, length) = (field(0)?, field(8)?, field(16)?);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > SECTOR {
            return Err(self.invalid("a continuation area lies inside one block"));
        }
        Ok((u64::from(block) * SECTOR_SIZE + u64::from(offset), length))
    }

    fn name(&mut self, data: &[u8]) -> Result<(), ReadError> {
        let Some((flags, piece)) = data.split_first() else {
            return Err(self.invalid("an NM entry has flags"));
        };
        // The records of `.` and `..` have these flags; their identifiers already determine their names.
        if flags & (CURRENT | PARENT) != 0 || !self.name_open {
            return Ok(());
        }
        if self.attributes.name.len() + piece.len() > NAME_LIMIT {
            return Err(self.invalid("a Rock Ridge name has at most 255 bytes"));
        }
        self.attributes.name.extend_from_slice(piece);
        self.name_open = flags & CONTINUE != 0;
        Ok(())
    }

    /// SL (RRIP 4.1.3): flags, then components of flags, length and text.
    fn symlink(&mut self, data: &[u8]) -> Result<(), ReadError> {
        self.link.present = true;
        let mut rest = data.get(1..).unwrap_or_default();
        while let Some((&[flags, length], after)) = rest.split_first_chunk() {
            let Some(text) = after.get(..usize::from(length)) else {
                return Err(self.invalid("a component of a symbolic link ends inside its entry"));
            };
            rest = &after[usize::from(length)..];
            let Link { target, separated, .. } = &mut self.link;
            if !*separated {
                target.push(b'/');
            }
            // A root after another component does not make the link absolute: all known readers join it like a name.
            target.extend_from_slice(match flags & (CURRENT | PARENT) {
                _ if flags & ROOT != 0 => b"/",
                CURRENT => b".",
                PARENT => b"..",
                _ => text,
            });
            *separated = flags & (CONTINUE | ROOT) != 0;
            if target.len() > TARGET_LIMIT {
                return Err(self.invalid("the target of a symbolic link has at most 4096 bytes"));
            }
        }
        Ok(())
    }

    fn finish(self) {
        if self.link.present {
            self.attributes.symlink = Some(self.link.target);
        }
    }
}

/// Returns whether an ER entry (SUSP 5.5) declares Rock Ridge.
fn er_seen(data: &[u8]) -> bool {
    let length = data.first().copied().map_or(0, usize::from);
    data.get(4..4 + length).is_some_and(|identifier| EXTENSIONS.contains(&identifier))
}

/// Returns the modification date of a TF entry (RRIP 4.1.6). The dates are in the order of their flag bits.
fn modified(data: &[u8]) -> Option<i64> {
    let flags = *data.first()?;
    let index = usize::from(flags & 0x01 != 0);
    if flags & 0x02 == 0 {
        None
    } else if flags & 0x80 != 0 {
        array(data, 1 + 17 * index).and_then(parse_descriptor)
    } else {
        array(data, 1 + 7 * index).and_then(parse_record)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Posix, PosixFileType, Relocation, SystemUse, append_continuation};
    use super::*;

    const POSIX: Posix = Posix {
        kind: PosixFileType::File,
        permissions: 0o444,
        links: 1,
        serial: 3,
        date: [70, 1, 1, 0, 0, 9, 0],
    };

    #[test]
    fn written_areas_read_back_across_a_continuation() {
        let name = "n".repeat(253);
        let mut area = SystemUse::named(&POSIX, Relocation::Ordinary, &name, None, 70);
        append_continuation(&mut area.inline, 2, 100, u32::try_from(area.overflow.len()).unwrap());
        let mut image = vec![0; 3 * SECTOR];
        image[2 * SECTOR + 100..][..area.overflow.len()].copy_from_slice(&area.overflow);
        let attributes = parse(&image, &area.inline, 0).unwrap();
        assert_eq!(attributes.name, name.as_bytes());
        assert_eq!((attributes.mode, attributes.modified), (Some(0o100_444), Some(9)));
    }

    #[test]
    fn a_continuation_that_points_to_itself_is_invalid() {
        let mut looping = Vec::new();
        append_continuation(&mut looping, 1, 0, 28);
        let mut image = vec![0; 2 * SECTOR];
        image[SECTOR..SECTOR + 28].copy_from_slice(&looping);
        assert!(matches!(parse(&image, &looping, 0), Err(ReadError::Invalid { offset: 2048, .. })));
    }

    #[test]
    fn a_chain_of_continuations_ends_at_the_budget() {
        let mut image = vec![0; 200 * SECTOR];
        let mut first = Vec::new();
        append_continuation(&mut first, 0, 0, 28);
        for block in 0..199_u32 {
            let mut entry = Vec::new();
            append_continuation(&mut entry, block + 1, 0, 28);
            image[block as usize * SECTOR..][..28].copy_from_slice(&entry);
        }
        assert!(matches!(parse(&image, &first, 0), Err(ReadError::Limit { limit: 32, .. })));
    }

    #[test]
    fn areas_outside_a_block_or_the_image_are_invalid() {
        let image = vec![0; 2 * SECTOR];
        for (block, offset, length) in [(0, 2040, 28), (5, 0, 28), (0, 0, 4096), (u32::MAX, u32::MAX, 28)] {
            let mut area = Vec::new();
            append_continuation(&mut area, block, offset, length);
            assert!(matches!(parse(&image, &area, 0), Err(ReadError::Invalid { .. })));
        }
    }

    #[test]
    fn symbolic_links_join_their_components() {
        let image: Vec<u8> = Vec::new();
        let area =
            [b"SL\x11\x01\x00".as_slice(), b"\x08\x00", b"\x00\x03usr", b"\x04\x00", b"\x01\x01l"].concat();
        let more = [b"SL\x0a\x01\x00".as_slice(), b"\x00\x03ibs"].concat();
        let attributes = parse(&image, &[area, more].concat(), 0).unwrap();
        assert_eq!(attributes.symlink.unwrap(), b"/usr/../libs");
    }

    #[test]
    fn components_of_a_link_are_joined_as_by_other_readers() {
        // Expected are the texts that bsdtar 3.6.2 and iso-info 2.1.0 show for these components.
        for (components, target) in [
            (b"\x00\x04AAAA\x08\x00\x00\x04file".as_slice(), "AAAA//file"),
            (b"\x08\x00\x08\x00\x00\x04file", "//file"),
            (b"\x00\x01/\x00\x01/\x00\x04file", "////file"),
            (b"\x00\x00\x00\x00\x00\x04file", "//file"),
            (b"\x02\x00\x04\x00\x00\x04file", "./../file"),
            (b"\x08\x00\x00\x03usr", "/usr"),
            (b"\x08\x00", "/"),
            (b"\x01\x02us\x00\x01r\x00\x01x", "usr/x"),
            (b"", ""),
        ] {
            let length = u8::try_from(5 + components.len()).unwrap();
            let area = [&[b'S', b'L', length, 1, 0], components].concat();
            let attributes = parse(&Vec::new(), &area, 0).unwrap();
            assert_eq!(String::from_utf8(attributes.symlink.unwrap()).unwrap(), target, "{components:02x?}");
        }
    }

    #[test]
    fn broken_entries_are_invalid_and_padding_is_not() {
        let image: Vec<u8> = Vec::new();
        assert!(parse(&image, b"PX\x2c\x01", 0).is_err());
        assert!(parse(&image, b"PX\x03\x01", 0).is_err());
        assert!(parse(&image, b"NM\x04\x01", 0).is_err());
        assert!(parse(&image, b"\0\0\0\0\0", 0).is_ok());
        assert!(parse(&image, b"abc", 0).is_ok());
    }
}
