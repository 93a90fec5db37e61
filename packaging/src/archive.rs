//! Deterministic tar, gzip and ar.
//!
//! ```text
//!   tar   entries in the given order, fixed time, numeric and named owner
//!   gzip  no name, no time
//!   ar    "!<arch>\n", then per member: name 16, time 12, owner 6, group 6, mode 8, size 10, "`\n", bytes, padding to 2
//! ```

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header, HeaderMode};

/// The owner of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) id: u64,
    pub(crate) name: &'static str,
}

/// Root, the owner of every file of a package.
pub(crate) const ROOT: Owner = Owner { id: 0, name: "root" };

/// A file or directory of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    /// The path, without a leading slash.
    pub(crate) path: String,
    /// The permission bits.
    pub(crate) mode: u32,
    pub(crate) owner: Owner,
    /// The bytes of a file; `None` for a directory.
    pub(crate) bytes: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    pub(crate) fn file(path: &str, mode: u32, bytes: &'a [u8]) -> Self {
        Self { path: path.to_owned(), mode, owner: ROOT, bytes: Some(bytes) }
    }

    pub(crate) fn directory(path: &str, mode: u32, owner: Owner) -> Self {
        Self { path: path.to_owned(), mode, owner, bytes: None }
    }
}

/// Writes entries as a tar; every path begins with `prefix`.
pub(crate) fn tar(prefix: &str, entries: &[Entry<'_>], date: u64) -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    builder.mode(HeaderMode::Deterministic);
    for entry in entries {
        let mut header = Header::new_gnu();
        header.set_mode(entry.mode);
        header.set_uid(entry.owner.id);
        header.set_gid(entry.owner.id);
        header.set_username(entry.owner.name)?;
        header.set_groupname(entry.owner.name)?;
        header.set_mtime(date);
        let bytes = entry.bytes.unwrap_or_default();
        header.set_size(u64::try_from(bytes.len()).map_err(io::Error::other)?);
        header.set_entry_type(if entry.bytes.is_some() { EntryType::Regular } else { EntryType::Directory });
        // The root is the prefix alone: dpkg cannot upgrade a package whose root is `.//`.
        let end = if entry.bytes.is_some() || entry.path.is_empty() { "" } else { "/" };
        let path = format!("{prefix}{}{end}", entry.path);
        // Set as bytes: `set_path` drops a leading `./`, which dpkg writes.
        let name = path.as_bytes();
        let field =
            header.as_gnu_mut().map(|gnu| &mut gnu.name).ok_or_else(|| io::Error::other("no GNU header"))?;
        let room =
            field.get_mut(..name.len()).ok_or_else(|| io::Error::other(format!("{path} is too long")))?;
        room.copy_from_slice(name);
        header.set_cksum();
        builder.append(&header, bytes)?;
    }
    builder.into_inner()
}

/// Compresses bytes without a name or a time.
pub(crate) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(9));
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Writes members as an ar archive.
pub(crate) fn ar(members: &[(&str, &[u8])], date: u64) -> io::Result<Vec<u8>> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        if name.len() > 16 {
            return Err(io::Error::other(format!("the member name {name} is too long")));
        }
        writeln!(archive, "{name:<16}{date:<12}{:<6}{:<6}{:<8}{:<10}`", 0, 0, "100644", bytes.len())?;
        archive.extend_from_slice(bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ar_member_is_padded_to_an_even_offset() {
        let archive = ar(&[("a", b"xyz"), ("b", b"q")], 1).unwrap();
        assert_eq!(archive.len(), 8 + 60 + 4 + 60 + 2);
        assert_eq!(&archive[8..24], b"a               ");
        assert_eq!(&archive[66..72], b"`\nxyz\n");
        assert!(ar(&[("a name of more than 16", b"")], 0).is_err());
    }

    #[test]
    fn the_same_entries_give_the_same_bytes() {
        let entries = [
            Entry::directory("", 0o755, ROOT),
            Entry::directory("a", 0o755, ROOT),
            Entry::file("a/b", 0o644, b"text"),
        ];
        let make = || gzip(&tar("./", &entries, 7).unwrap()).unwrap();
        assert_eq!(make(), make());
        let plain = tar("./", &entries, 7).unwrap();
        let mut reader = tar::Archive::new(plain.as_slice());
        let paths: Vec<Vec<u8>> =
            reader.entries().unwrap().map(|entry| entry.unwrap().path_bytes().into_owned()).collect();
        assert_eq!(paths, [&b"./"[..], b"./a/", b"./a/b"]);
    }
}
