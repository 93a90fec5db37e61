//! File Entries (4/14.9) and Extended File Entries (4/14.17): type, attributes and location of a file.
//!
//! ```text
//!           261    266                               261    266
//! tag         0      0                      dates     84     92   modification
//! strategy   20     20   4                  EAs      168    208   their length
//! file type  27     27   4 dir, 5 file, 12 link  ADs 172    212   their length
//! flags      34     34   low 3 bits: form of ADs     176    216   EAs, then ADs or the bytes of the file
//! permissions 44    44   5 bits per class
//! length     56     56   64 bits
//! ```

use super::allocation::{Descriptors, Form};
use super::partition::Layout;
use super::{Address, tag, text, u16_at, u32_at, u64_at};
use crate::error::ReadError;
use crate::escape::escape_target;
use crate::runs::{Run, Runs};
use crate::source::ReadAt;

const FILE_ENTRY: u16 = 261;
const EXTENDED_FILE_ENTRY: u16 = 266;
/// Strategy 4 (4/14.6.2): one entry describes one file.
const STRATEGY: u16 = 4;
/// The longest target of a symbolic link in its recorded form, in bytes.
const TARGET_LIMIT: u64 = 8192;

/// The type of the file that an entry describes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
}

/// A file entry read from an image.
#[derive(Debug)]
pub(crate) struct FileEntry {
    /// The file type (4/14.6.6).
    pub(super) file_type: u8,
    pub(crate) len: u64,
    /// The modification time in seconds since 1970.
    pub(crate) modified: Option<i64>,
    /// The POSIX permissions, with the set-id and sticky bits.
    pub(crate) permissions: u32,
    /// The offset of the entry in the image.
    pub(crate) offset: u64,
    home: u16,
    form: Form,
    /// The range of the allocation descriptors in `block`.
    descriptors: std::ops::Range<usize>,
    block: Vec<u8>,
}

impl FileEntry {
    /// Reads the entry at an address that is stored at byte `from` of the image.
    pub(crate) fn read(
        layout: &Layout,
        source: &dyn ReadAt,
        address: Address,
        from: u64,
    ) -> Result<FileEntry, ReadError> {
        let mut block = Vec::new();
        let offset = layout.read_block(source, address, from, &mut block)?;
        let invalid = |rule| Layout::invalid(offset, rule);
        let identifier = tag::check(&block, Some(address.block), offset)?;
        let (dates, lengths) = match identifier {
            FILE_ENTRY => (84, 168),
            EXTENDED_FILE_ENTRY => (92, 208),
            _ => return Err(invalid("an address of a file leads to a file entry")),
        };
        let (Some(strategy), Some(flags), Some(len)) =
            (u16_at(&block, 20), u16_at(&block, 34), u64_at(&block, 56))
        else {
            return Err(invalid("a file entry fits its block"));
        };
        if strategy != STRATEGY {
            return Err(ReadError::Unsupported { offset, feature: "UDF strategies other than 4" });
        }
        let form = Form::from_flags(flags).ok_or(invalid("a file entry has a known form of extents"))?;
        let area = |at| u32_at(&block, at).map_or(usize::MAX, |length| length as usize);
        let start = (lengths + 8_usize).checked_add(area(lengths));
        let end = start.and_then(|start| start.checked_add(area(lengths + 4)));
        let descriptors = match (start, end) {
            (Some(start), Some(end)) if end <= block.len() => start..end,
            _ => return Err(invalid("the extents of a file entry end inside its block")),
        };
        Ok(FileEntry {
            file_type: block[27],
            len,
            modified: block.get(dates..).and_then(text::date),
            permissions: permissions(u32_at(&block, 44).unwrap_or(0), flags),
            offset,
            home: address.partition,
            form,
            descriptors,
            block,
        })
    }

    /// Returns the type of the file (4/14.6.6).
    pub(crate) fn kind(&self) -> FileKind {
        match self.file_type {
            // 0 is "not specified", 249 is a real-time file.
            0 | 5 | 249 => FileKind::File,
            4 => FileKind::Directory,
            12 => FileKind::Symlink,
            _ => FileKind::Other,
        }
    }

    /// Returns the runs of the file.
    pub(crate) fn runs(&self, layout: &Layout, source: &dyn ReadAt) -> Result<Runs, ReadError> {
        if self.form == Form::Inline {
            if self.len > self.descriptors.len() as u64 {
                return Err(Layout::invalid(self.offset, "the extents of a UDF file hold all of its bytes"));
            }
            let mut runs = Runs::default();
            runs.push(Run { offset: Some(self.offset + self.descriptors.start as u64), len: self.len });
            return Ok(runs);
        }
        let bytes = self.block.get(self.descriptors.clone()).unwrap_or_default();
        let Self { form, home, offset, len, .. } = *self;
        Descriptors { form, bytes, home, offset, len }.runs(layout, source)
    }

    /// Returns the target of a symbolic link as text, see [`crate::escape`]. It consists of path components (4/14.16):
    /// type, length, version (16), name.
    pub(crate) fn target(&self, layout: &Layout, source: &dyn ReadAt) -> Result<String, ReadError> {
        let invalid = |rule| Layout::invalid(self.offset, rule);
        if self.len > TARGET_LIMIT {
            return Err(invalid("the target of a symbolic link has at most 8192 bytes"));
        }
        let mut bytes = vec![0; usize::try_from(self.len).unwrap_or(0)];
        self.runs(layout, source)?
            .read_exact_at(source, 0, &mut bytes)
            .map_err(|error| ReadError::io(self.offset, bytes.len(), error))?;
        let (mut target, mut rest) = (String::new(), bytes.as_slice());
        while let Some((&[kind, length, _, _], after)) = rest.split_first_chunk() {
            let rule = "a component of a symbolic link ends inside its file";
            let (name, after) = after.split_at_checked(usize::from(length)).ok_or(invalid(rule))?;
            rest = after;
            if !target.is_empty() && !target.ends_with('/') {
                target.push('/');
            }
            match kind {
                1 | 2 => {
                    target.clear();
                    target.push('/');
                }
                3 => target.push_str(".."),
                4 => target.push('.'),
                5 => {
                    let name = text::name(name).ok_or(invalid("a UDF name has a known form"))?;
                    target.push_str(&escape_target(&name));
                }
                _ => return Err(invalid("a component of a symbolic link has a known type")),
            }
        }
        Ok(target)
    }
}

/// Returns the mode bits of permissions (4/14.9.5: per class execute, write, read, attributes, delete; others first)
/// and of the flags for set-user, set-group and sticky (4/14.6.8, bits 6 to 8).
fn permissions(classes: u32, flags: u16) -> u32 {
    let class = |shift: u32| (classes >> shift) & 0o7;
    let special = [(6, 0o4000), (7, 0o2000), (8, 0o1000)];
    let special = special.into_iter().filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, mode)| mode);
    special.sum::<u32>() | class(10) << 6 | class(5) << 3 | class(0)
}

#[cfg(test)]
mod tests {
    use super::permissions;

    #[test]
    fn permissions_are_converted_to_posix() {
        // Read and execute for all, write for the owner.
        let classes = 0b00101 | 0b00101 << 5 | 0b00111 << 10;
        assert_eq!(permissions(classes, 0), 0o755);
        assert_eq!(permissions(0, 1 << 6 | 1 << 8), 0o5000);
    }
}
