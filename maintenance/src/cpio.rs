//! Writes the archive that the kernel unpacks as its first file system: cpio in the form "newc".
//!
//! ```text
//! "070701" ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check | name\0 | content
//!          each 8 hex digits; header with name, and content, are padded to a multiple of 4
//! ```
//!
//! Invariants: entries are sorted by path, parents come before what is in them, every date is 0 and every owner is 0:0.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// The name of the last member, which ends the archive.
pub(crate) const TRAILER: &str = "TRAILER!!!";
/// The longest path and the longest target of a link, with the zero after it (PATH_MAX of Linux): the kernel skips what is longer.
const MOST_PATH: usize = 4096;

/// An entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Entry {
    /// A directory.
    Directory,
    /// A file with its content; whether it is a program.
    File(Vec<u8>, bool),
    /// A symbolic link with its target.
    Link(String),
    /// A character device: major and minor number.
    Device(u32, u32),
}

/// The entries by path, without a slash at the beginning. The directories above each are added.
#[derive(Debug, Default)]
pub(crate) struct Archive(BTreeMap<String, Entry>);

impl Archive {
    /// Adds an entry and the directories above it.
    ///
    /// # Errors
    /// A sentence: the path is there already, lies below something that is no directory, or is none that the kernel unpacks.
    pub(crate) fn add(&mut self, path: &str, entry: Entry) -> Result<(), String> {
        let is_text = |text: &str| !text.is_empty() && text.len() < MOST_PATH && !text.contains('\0');
        let is_name = |name: &str| !matches!(name, "" | "." | "..");
        if !is_text(path) || !path.split('/').all(is_name) || path.split('/').next() == Some(TRAILER) {
            return Err(format!("{path:?} is no path of an archive"));
        }
        if let Entry::Link(target) = &entry
            && !is_text(target)
        {
            return Err(format!("{path} leads to {target:?}, which is no target of a link"));
        }
        for (at, _) in path.match_indices('/') {
            let parent = self.0.entry(path[..at].to_owned()).or_insert(Entry::Directory);
            if *parent != Entry::Directory {
                return Err(format!("{path} lies below {}, which is no directory", &path[..at]));
            }
        }
        match self.0.get(path) {
            Some(before) if *before != entry => Err(format!("{path} is there twice")),
            _ => {
                self.0.insert(path.to_owned(), entry);
                Ok(())
            }
        }
    }

    /// The entries by path: a directory comes before what is in it.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The number of bytes of all files.
    pub(crate) fn content_bytes(&self) -> u64 {
        let length =
            |entry: &Entry| if let Entry::File(content, _) = entry { content.len() as u64 } else { 0 };
        self.0.values().map(length).sum()
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// The error of the writer, or when a file has 4 GiB or more.
    pub(crate) fn write_to(&self, to: &mut impl Write) -> io::Result<()> {
        for (number, (path, entry)) in self.0.iter().enumerate() {
            let (mode, content, device) = match entry {
                Entry::Directory => (0o040_755, &[][..], (0, 0)),
                Entry::File(content, executable) => {
                    (if *executable { 0o100_755 } else { 0o100_644 }, &content[..], (0, 0))
                }
                Entry::Link(target) => (0o120_777, target.as_bytes(), (0, 0)),
                Entry::Device(major, minor) => (0o020_600, &[][..], (*major, *minor)),
            };
            member(to, number + 1, mode, path, content, device)?;
        }
        member(to, 0, 0, TRAILER, &[], (0, 0))
    }
}

fn member(
    to: &mut impl Write,
    number: usize,
    mode: u32,
    path: &str,
    content: &[u8],
    device: (u32, u32),
) -> io::Result<()> {
    let too_large = |_| io::Error::new(io::ErrorKind::InvalidInput, format!("{path} is too large"));
    let length = u32::try_from(content.len()).map_err(too_large)?;
    let links = if mode & 0o170_000 == 0o040_000 { 2 } else { 1 };
    write!(
        to,
        "070701{number:08x}{mode:08x}{:08x}{:08x}{links:08x}{:08x}{length:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}",
        0,
        0,
        0,
        0,
        0,
        device.0,
        device.1,
        path.len() + 1,
        0
    )?;
    to.write_all(path.as_bytes())?;
    to.write_all(&[0; 4][..1 + (4 - (110 + path.len() + 1) % 4) % 4])?;
    to.write_all(content)?;
    to.write_all(&[0; 3][..(4 - content.len() % 4) % 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_sorted_and_padded() {
        let mut archive = Archive::default();
        archive.add("init", Entry::File(b"program".to_vec(), true)).unwrap();
        archive.add("dev/console", Entry::Device(5, 1)).unwrap();
        archive.add("bin", Entry::Link("usr/bin".to_owned())).unwrap();
        let mut bytes = Vec::new();
        archive.write_to(&mut bytes).unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let shown: String =
            bytes.iter().map(|byte| if *byte == 0 { '.' } else { char::from(*byte) }).collect();
        let zeros = |count: usize| "0".repeat(8 * count);
        let expected = [
            format!(
                "07070100000001{:08x}{}00000001{}00000007{}00000004{}bin...usr/bin.",
                0o120_777,
                zeros(2),
                zeros(1),
                zeros(4),
                zeros(1)
            ),
            format!(
                "07070100000002{:08x}{}00000002{}{}00000004{}dev...",
                0o040_755,
                zeros(2),
                zeros(1),
                zeros(5),
                zeros(1)
            ),
            format!(
                "07070100000003{:08x}{}00000001{}{}00000005000000010000000c{}dev/console...",
                0o020_600,
                zeros(2),
                zeros(2),
                zeros(2),
                zeros(1)
            ),
            format!(
                "07070100000004{:08x}{}00000001{}00000007{}00000005{}init..program.",
                0o100_755,
                zeros(2),
                zeros(1),
                zeros(4),
                zeros(1)
            ),
            format!("070701{}00000001{}0000000b{}TRAILER!!!....", zeros(4), zeros(6), zeros(1)),
        ];
        assert_eq!(shown, expected.concat());
        assert_eq!(archive.content_bytes(), 7);
    }

    #[test]
    fn what_lies_below_a_file_or_is_there_twice_is_refused() {
        let mut archive = Archive::default();
        archive.add("a", Entry::File(Vec::new(), false)).unwrap();
        assert!(archive.add("a/b", Entry::Directory).is_err());
        assert!(archive.add("a", Entry::Directory).is_err());
        assert!(archive.add("a", Entry::File(Vec::new(), false)).is_ok());
    }

    #[test]
    fn what_the_kernel_does_not_unpack_is_refused() {
        let long = "x".repeat(MOST_PATH);
        for path in ["", "/a", "a/", "a//b", "./a", "a/../b", "a\0b", TRAILER, "TRAILER!!!/x", &long] {
            assert!(Archive::default().add(path, Entry::Directory).is_err(), "{path:?}");
        }
        for target in ["", "a\0b", &long] {
            assert!(Archive::default().add("a", Entry::Link(target.to_owned())).is_err(), "{target:?}");
        }
        assert!(Archive::default().add(&format!("a/{TRAILER}"), Entry::Directory).is_ok());
    }
}
