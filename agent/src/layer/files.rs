//! Single files of a tree: read, written, copied and listed by path, as its own system will see them.
//!
//! Invariants: a path is resolved inside of the root. A file that is written replaces what had its name, also a link. A
//! read is bounded, and nothing but a regular file is read.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat};

use super::tree::{LayerTree, Place, is_folder};

/// The name of a file that is written, until it is whole.
const PART: &[u8] = b".shoal-part";

impl LayerTree {
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// Returns the error of the operating system, or `InvalidInput` when it is no regular file.
    pub fn open_file(&self, path: &str) -> io::Result<File> {
        let names = Self::names(path.as_bytes())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let joined = names.join(&b'/');
        let open = |flags| {
            rustix::fs::openat2(&self.root, OsStr::from_bytes(&joined), flags, Mode::empty(), resolve)
        };
        // The type is read before the file is opened: to open a device can act (a watchdog starts, a tape rewinds).
        let place = open(OFlags::PATH | OFlags::CLOEXEC)?;
        let is_file = |of: &OwnedFd| -> io::Result<bool> {
            Ok(FileType::from_raw_mode(rustix::fs::fstat(of)?.st_mode) == FileType::RegularFile)
        };
        let refused = || io::Error::new(io::ErrorKind::InvalidInput, format!("{path} is no regular file"));
        if !is_file(&place)? {
            return Err(refused());
        }
        // Nothing but this program changes the tree. Without O_NONBLOCK a named pipe would be waited for.
        let file = open(OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK)?;
        if is_file(&file)? { Ok(File::from(file)) } else { Err(refused()) }
    }

    /// Reads a file of at most `limit` bytes.
    ///
    /// # Errors
    /// Returns the error of [`LayerTree::open_file`], or `InvalidData` for a longer file.
    pub fn read_file(&self, path: &str, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(path)?.take(limit + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > limit {
            true => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{path} is too long"))),
            false => Ok(bytes),
        }
    }

    /// Returns whether a regular file is there.
    #[must_use]
    pub fn has_file(&self, path: &str) -> bool {
        self.open_file(path).is_ok()
    }

    /// Returns whether a file is a link that GRUB cannot follow, because it knows only the file system of the link: its target is in
    /// another one, or begins at a root that is not the one of the link.
    ///
    /// # Errors
    /// Returns the error of [`LayerTree::open_file`].
    pub fn leads_out(&self, path: &str) -> io::Result<bool> {
        let place = self.place(&Self::names(path.as_bytes())?)?;
        let is_link = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if !place.stat()?.as_ref().is_some_and(is_link) {
            return Ok(false);
        }
        let own = rustix::fs::fstat(&place.folder)?.st_dev;
        Ok(own != rustix::fs::fstat(&self.root)?.st_dev
            || own != rustix::fs::fstat(self.open_file(path)?)?.st_dev)
    }

    /// Writes a file and waits until it is on the medium. Missing directories are created. Without a mode it keeps the one
    /// of the file system: FAT has none.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn write_file(&self, path: &str, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
        self.copy_into(path, &mut &*bytes, mode)
    }

    /// Writes a file from a stream, as [`LayerTree::write_file`] does.
    ///
    /// # Errors
    /// Returns the error of the operating system or of the stream.
    pub fn copy_into(&self, path: &str, from: &mut dyn Read, mode: Option<u32>) -> io::Result<()> {
        let names = Self::names(path.as_bytes())?;
        let place = self.place(&names)?;
        if place.stat()?.as_ref().is_some_and(is_folder) {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, format!("{path} is a directory")));
        }
        // Under another name until it is whole: after a loss of power a file has its old content or its new one.
        let part = Place { folder: place.folder.try_clone()?, name: PART };
        part.clear()?;
        let mut file = part.create_file()?;
        io::copy(from, &mut file)?;
        file.flush()?;
        if let Some(mode) = mode {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        file.sync_all()?;
        rustix::fs::renameat(&part.folder, part.os_name(), &place.folder, place.os_name())?;
        Ok(())
    }

    /// Opens a directory and creates what is missing of it.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn make_folder(&self, path: &str) -> io::Result<OwnedFd> {
        self.folder(&Self::names(path.as_bytes())?, true)
    }

    /// Returns the names in a directory, sorted, at most 4096; none when there is no directory.
    #[must_use]
    pub fn list(&self, path: &str) -> Vec<String> {
        let listed = Self::names(path.as_bytes()).and_then(|names| {
            let folder = self.folder(&names, false)?;
            let entries = Dir::read_from(&folder)?.take(4096);
            let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
            Ok(names.filter(|name| name != "." && name != "..").collect::<Vec<_>>())
        });
        let mut names = listed.unwrap_or_default();
        names.sort();
        names
    }
}
