//! One Debian package: its description, and its files in the common tree.
//!
//! ```text
//! .deb --archive--> control.tar.* --unpack, tar--> "Package: ..."    -> Package
//!                   data.tar.*    --unpack, tar--> files, links      -> Tree (only folders that an image can need)
//! ```
//!
//! Invariant: names, counts and lengths of a package are limited before anything is stored.

use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};
use tar::EntryType;

use crate::archive;
use crate::control;
use crate::error::Error;
use crate::tree::{self, Tree};
use crate::unpack::{unpack, unpack_all};

/// The largest package file.
const MOST_PACKAGE_BYTES: u64 = 1 << 30;
/// The most bytes of a control archive.
const MOST_CONTROL_BYTES: u64 = 16 << 20;
/// The most bytes of a data archive.
const MOST_DATA_BYTES: u64 = 4 << 30;
/// The longest name in an extension record of tar.
const MOST_NAME_BYTES: u64 = 64 << 10;
/// The most entries of an archive.
const MOST_ENTRIES: usize = 300_000;

/// The folders whose files an image can need. Others, such as manuals, are passed over.
const FOLDERS: [&str; 8] = [
    "boot/",
    "etc/",
    "usr/bin/",
    "usr/sbin/",
    "usr/lib/",
    "usr/lib64/",
    "usr/share/doc/",
    "usr/share/xfsprogs/",
];

/// The description of a package.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) architecture: String,
    /// The source package, which the licences of many packages ask to name.
    pub(crate) source: String,
    pub(crate) sha256: String,
    /// The time of the package's last change, in seconds since 1970.
    pub(crate) time: u64,
}

/// A package file that has been read.
pub(crate) struct PackageFile {
    pub(crate) package: Package,
    bytes: Vec<u8>,
    data: std::ops::Range<usize>,
}

impl PackageFile {
    /// Reads a package file and its description.
    ///
    /// # Errors
    /// When the file cannot be read or is not a package.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = std::fs::File::open(path).map_err(Error::file(path))?;
        let mut bytes = Vec::new();
        file.take(MOST_PACKAGE_BYTES + 1).read_to_end(&mut bytes).map_err(Error::file(path))?;
        if bytes.len() as u64 > MOST_PACKAGE_BYTES {
            return Err(Error::input(path, "the file is larger than a package may be"));
        }
        Self::parse(bytes).map_err(|reason| Error::input(path, reason))
    }

    /// Reads the description of a package.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Self, String> {
        let members = archive::members(&bytes)?;
        let archive = unpack_all(&bytes[members.control], MOST_CONTROL_BYTES)
            .map_err(|error| format!("its control archive cannot be unpacked: {error}"))?;
        let mut text = None;
        entries(&*archive, |entry| {
            if entry.path == b"control" || entry.path == b"./control" {
                let mut content = String::new();
                entry.content.read_to_string(&mut content).map_err(|error| error.to_string())?;
                text = Some(content);
            }
            Ok(())
        })?;
        let text = text.ok_or("it has no control file")?;
        let stanza = control::stanzas(&text).next().ok_or("its control file is empty")?;
        let field = |name: &str| stanza.get(name).ok_or_else(|| format!("its control file has no {name}"));
        let name = field("Package")?.to_owned();
        if !control::is_package_name(&name) {
            return Err(format!("{name:?} is not a package name"));
        }
        let source = stanza.get("Source").map_or_else(|| name.clone(), str::to_owned);
        let package = Package {
            version: field("Version")?.to_owned(),
            architecture: field("Architecture")?.to_owned(),
            source,
            sha256: hex::encode(Sha256::digest(&bytes)),
            time: members.time,
            name,
        };
        Ok(Self { package, data: members.data, bytes })
    }

    /// Stores the files of the package in the tree.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(crate) fn unpack_into(&self, tree: &mut Tree, owner: usize) -> Result<(), String> {
        let cannot = |error: std::io::Error| format!("its data archive cannot be unpacked: {error}");
        let data = unpack(&self.bytes[self.data.clone()], MOST_DATA_BYTES).map_err(cannot)?;
        entries(data, |entry| {
            let path = tree::clean(&entry.path)?;
            if !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
                return Ok(());
            }
            let target = || {
                String::from_utf8(entry.target.clone())
                    .map_err(|_| format!("the target of {path} is not text"))
            };
            match entry.kind {
                EntryType::GNUSparse => Err(format!("{path} is a sparse file, which packages do not have")),
                EntryType::Regular | EntryType::Continuous => {
                    tree.add_file(&path, entry.content, entry.executable, owner)
                }
                EntryType::Symlink => tree.add_link(&path, &target()?, owner),
                EntryType::Link => tree.add_hard_link(&path, &tree::clean(target()?.as_bytes())?, owner),
                // Directories exist by their files; a package of programs has no devices.
                _ => Ok(()),
            }
        })
    }
}

/// An entry of a tar archive.
struct Entry<'a> {
    path: Vec<u8>,
    target: Vec<u8>,
    kind: EntryType,
    executable: bool,
    content: &'a mut dyn Read,
}

/// Visits the entries of a tar archive. Records with long names are read here, because their length needs a limit.
fn entries(archive: impl Read, mut visit: impl FnMut(Entry<'_>) -> Result<(), String>) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("its archive cannot be read: {error}");
    let mut archive = tar::Archive::new(archive);
    let (mut path, mut target) = (None, None);
    for (number, entry) in archive.entries().map_err(cannot)?.raw(true).enumerate() {
        let mut entry = entry.map_err(cannot)?;
        if number >= MOST_ENTRIES {
            return Err(format!("its archive has more than {MOST_ENTRIES} entries"));
        }
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => path = Some(long_name(&mut entry)?),
            EntryType::GNULongLink => target = Some(long_name(&mut entry)?),
            EntryType::XHeader => {
                for (key, value) in extensions(&long_name(&mut entry)?)? {
                    match &*key {
                        b"path" => path = Some(value),
                        b"linkpath" => target = Some(value),
                        b"size" => return Err("a file in its archive is larger than allowed".to_owned()),
                        _ => {}
                    }
                }
            }
            EntryType::XGlobalHeader => {}
            _ => {
                let path = path.take().unwrap_or_else(|| entry.header().path_bytes().into_owned());
                let target = target
                    .take()
                    .or_else(|| entry.header().link_name_bytes().map(std::borrow::Cow::into_owned))
                    .unwrap_or_default();
                let executable = entry.header().mode().unwrap_or(0) & 0o111 != 0;
                visit(Entry { path, target, kind, executable, content: &mut entry })?;
            }
        }
    }
    Ok(())
}

/// The content of an extension record, without its final zero.
fn long_name(record: &mut impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    record.take(MOST_NAME_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MOST_NAME_BYTES {
        return Err("a name in its archive is longer than allowed".to_owned());
    }
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(bytes)
}

/// The key and the value of a record of a pax header.
type Extension = (Vec<u8>, Vec<u8>);

/// The records `LENGTH KEY=VALUE\n` of a pax header.
fn extensions(mut bytes: &[u8]) -> Result<Vec<Extension>, String> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let record = (|| {
            let space = bytes.iter().take(8).position(|byte| *byte == b' ')?;
            let length: usize = str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
            let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|byte| *byte == b'=')?;
            Some((length, record[..equals].to_vec(), record[equals + 1..].to_vec()))
        })();
        let (length, key, value) = record.ok_or("an extension record of its archive is damaged")?;
        found.push((key, value));
        bytes = &bytes[length..];
    }
    Ok(found)
}
