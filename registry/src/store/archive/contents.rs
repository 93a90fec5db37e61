//! The table of contents of a tar archive: the position of each file, and the links between names.
//!
//! ```text
//!  header (512 bytes: name, size, type, link name, checksum)   body, padded to 512   header   body …   512 zeros
//!
//!  type 0 \0 7   a file                   1   another name for an earlier file      2   a symbolic link
//!  type 0 \0 7   a file                   1   another name for an earlier file      2   a symbolic link
//!       L K      the long name, or link name, of the next entry      x   path, linkpath, size of the next entry
//!       S        a sparse file: refused            others   directories, devices, comments: skipped
//!
//! Nothing an archive says decides an allocation: its entries, the names of all of them together, and the records that
//! No number in an archive decides an allocation: its entries, the names of all of them together, and the records before an
//! entry are bounded, and a body that reaches beyond the end of the file is refused at its header. The later of two entries
//! with one name counts, as when the archive is unpacked. Links are followed within the table and nowhere else.
//! Specification: POSIX.1-2017 `pax`; the GNU tar manual, "Basic Tar Format".

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use tar::{EntryType, Header, PaxExtensions};

use crate::error::Error;

const BLOCK: usize = 512;
/// The position of the checksum in a header.
const CHECKSUM: std::ops::Range<usize> = 148..156;
const ENTRIES_MAX: usize = 1 << 16;
/// The limit of all names together.
const NAMES_MAX: usize = 32 << 20;
/// The limit of the records before an entry: names and file system attributes.
const RECORDS_MAX: u64 = 1 << 20;
/// The limit of links that lead to links.
const LINKS_MAX: usize = 8;
/// The first bytes of compressed archives.
const COMPRESSED: [&[u8]; 4] =
    [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], b"BZh", &[0xfd, b'7', b'z', b'X', b'Z']];

/// The position and length of one file in an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) length: u64,
}

#[derive(Debug)]
enum Entry {
    File(Extent),
    Link(PathBuf),
}

/// The files of an archive, by name.
#[derive(Debug, Default)]
pub(super) struct Contents {
    entries: HashMap<PathBuf, Entry>,
    names: usize,
}

/// The fields that the records before an entry set for it.
#[derive(Default)]
struct EntryOverrides {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Contents {
    /// Reads every header of an archive and no body.
    pub(super) fn read(file: &File, path: &Path) -> Result<Self, Error> {
        let failed = || Error::io("read the archive", path);
        let end = file.metadata().map_err(failed())?.len();
        let mut contents = Contents::default();
        let mut ahead = EntryOverrides::default();
        let mut position = 0u64;
        while position < end {
            let mut block = [0; BLOCK];
            match file.read_exact_at(&mut block, position) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(cut_short("a header")),
                other => other.map_err(failed())?,
            }
            if position == 0 && COMPRESSED.iter().any(|magic| block.starts_with(magic)) {
                return Err(Error::NotAnArchive("the archive is compressed: decompress it first".to_owned()));
            }
            if block == [0; BLOCK] {
                break;
            }
            let header = Header::from_byte_slice(&block);
            let declared = size_in(header)?;
            let kind = header.entry_type();
            let describes = matches!(
                kind,
                EntryType::GNULongName
                    | EntryType::GNULongLink
                    | EntryType::XHeader
                    | EntryType::XGlobalHeader
            );
            let length = if describes { declared } else { ahead.size.unwrap_or(declared) };
            let offset = position + BLOCK as u64;
            let body = Extent { offset, length };
            if offset.checked_add(length).is_none_or(|body_end| body_end > end) {
                return Err(cut_short("a file"));
            }
            // Neither can overflow: both are within the file, except for the padding of the last.
            position = offset + length.next_multiple_of(BLOCK as u64);
            if describes {
                ahead.add(kind, file, body, path)?;
            } else {
                contents.add(kind, header, std::mem::take(&mut ahead), body)?;
            }
        }
        Ok(contents)
    }

    fn add(
        &mut self,
        kind: EntryType,
        header: &Header,
        ahead: EntryOverrides,
        body: Extent,
    ) -> Result<(), Error> {
        let name = ahead.name.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = || ahead.link.or_else(|| header.link_name_bytes().map(|link| link.into_owned()));
        // A name that leads out of the archive is never looked up.
        let Some(name) = within(Path::new(""), &name) else { return Ok(()) };
        let entry = match kind {
            EntryType::Regular | EntryType::Continuous => Entry::File(body),
            EntryType::GNUSparse => return Err(sparse_file(&name)),
            EntryType::Link | EntryType::Symlink => {
                let from = if kind == EntryType::Symlink { name.parent() } else { None };
                match link().and_then(|link| within(from.unwrap_or(Path::new("")), &link)) {
                    Some(target) => Entry::Link(target),
                    None => return Ok(()),
                }
            }
            _ => return Ok(()),
        };
        let target = if let Entry::Link(target) = &entry { target.as_os_str().len() } else { 0 };
        self.names += name.as_os_str().len() + target;
        if self.entries.len() == ENTRIES_MAX || self.names > NAMES_MAX {
            return Err(Error::NotAnArchive(format!(
                "the archive has more than {ENTRIES_MAX} entries, or its names are too long"
            )));
        }
        self.entries.insert(name, entry);
        Ok(())
    }

    /// The position of the file with this name.
    pub(super) fn find(&self, path: &Path) -> Option<Extent> {
        let mut path = path;
        for _ in 0..LINKS_MAX {
            match self.entries.get(path)? {
                Entry::File(extent) => return Some(*extent),
                Entry::Link(target) => path = target,
            }
        }
        None
    }
}

impl EntryOverrides {
    fn add(&mut self, kind: EntryType, file: &File, body: Extent, path: &Path) -> Result<(), Error> {
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        if body.length > RECORDS_MAX {
            return Err(Error::NotAnArchive(format!(
                "a name in the archive is longer than {RECORDS_MAX} bytes"
            )));
        }
        let mut record = vec![0; body.length as usize];
        file.read_exact_at(&mut record, body.offset).map_err(Error::io("read the archive", path))?;
        match kind {
            EntryType::GNULongName => self.name = Some(terminated(record)),
            EntryType::GNULongLink => self.link = Some(terminated(record)),
            _ => self.extend(&record)?,
        }
        Ok(())
    }

    fn extend(&mut self, records: &[u8]) -> Result<(), Error> {
        for record in PaxExtensions::new(records) {
            let record = record.map_err(|error| Error::NotAnArchive(error.to_string()))?;
            match record.key_bytes() {
                b"path" => self.name = Some(record.value_bytes().to_vec()),
                b"linkpath" => self.link = Some(record.value_bytes().to_vec()),
                b"size" => {
                    let size = record.value().ok().and_then(|text| text.parse().ok());
                    self.size = Some(size.ok_or_else(|| {
                        Error::NotAnArchive("a size in the archive is not a number".to_owned())
                    })?);
                }
                key if key.starts_with(b"GNU.sparse.") => return Err(sparse_file(Path::new("a file"))),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The size in a header with a valid checksum.
fn size_in(header: &Header) -> Result<u64, Error> {
    let bytes = header.as_bytes();
    let all = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    // The checksum counts its own field as eight spaces.
    let sum = all(bytes) - all(&bytes[CHECKSUM]) + 8 * u32::from(b' ');
    let header_is_one = header.cksum().is_ok_and(|written| written == sum);
    let size = header.entry_size().ok().filter(|_| header_is_one);
    size.ok_or_else(|| {
        Error::NotAnArchive("the file is neither an OCI image layout nor a tar archive".to_owned())
    })
}

fn sparse_file(name: &Path) -> Error {
    let name = name.display();
    Error::NotAnArchive(format!("{name} is a sparse file: create the archive again without sparse files"))
}

fn cut_short(what: &str) -> Error {
    Error::NotAnArchive(format!("the archive ends in the middle of {what}: copy it again"))
}

/// Removes the zero with which GNU tar ends names.
fn terminated(mut name: Vec<u8>) -> Vec<u8> {
    if name.last() == Some(&0) {
        name.pop();
    }
    name
}

/// `name` relative to `directory`; `None` when it leads out of the archive.
fn within(directory: &Path, name: &[u8]) -> Option<PathBuf> {
    let mut path = directory.to_owned();
    for component in Path::new(OsStr::from_bytes(name)).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (path.components().next().is_some()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_the_archive_or_is_refused() {
        let seen = |directory: &str, name: &str| within(Path::new(directory), name.as_bytes());
        assert_eq!(seen("", "./a//b/."), Some("a/b".into()));
        assert_eq!(seen("x/y", "../z/layer.tar"), Some("x/z/layer.tar".into()));
        for (directory, name) in
            [("", ""), ("", "."), ("", "/a"), ("", "../a"), ("x", "../../a"), ("x", "..")]
        {
            assert_eq!(seen(directory, name), None, "{directory:?} {name:?}");
        }
    }
}
