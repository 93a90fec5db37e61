//! A directory tree that is changed by path, and never outside of its root.
//!
//! ```text
//! "usr/lib/a" --parent: openat2(RESOLVE_IN_ROOT)--> directory --*at calls on one name, never through a link--> changed
//! ```
//!
//! The kernel resolves every parent inside of the root, as if the root were `/`: links that are absolute or climb stay
//! inside, as they will when the system runs. The last name is created exclusively or removed, never followed.
//!
//! Invariants: no path with `..` is accepted. Nothing is opened through the last name of a path.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::refusal::refused;

/// Maximum number of names in a path.
const MAX_DEPTH: usize = 256;
const MAX_PATH: usize = 4096;

/// Whether owners are set. Only root can set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Owners and groups are those of the archive.
    Keep,
    /// Everything belongs to the process.
    Ignore,
}

/// The root of a tree.
pub struct LayerTree {
    pub(super) root: OwnedFd,
    ownership: Ownership,
}

/// The directory and the last name of a path.
pub(super) struct Place<'path> {
    pub(super) folder: OwnedFd,
    pub(super) name: &'path [u8],
}

/// Metadata of a member.
#[derive(Clone, Copy)]
pub(super) struct Metadata<'member> {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: (i64, u32),
    pub(super) xattrs: &'member [(String, Vec<u8>)],
}

/// Returns the error of a path whose directories cannot be opened or created.
fn of_parents(source: Errno) -> io::Error {
    match source {
        Errno::LOOP => refused("the path leads through links that never end, or through more than forty"),
        Errno::NAMETOOLONG => refused("a name of the path has more than 255 bytes"),
        Errno::NOTDIR => refused("the path leads through what is no directory"),
        // A directory is created where nothing could be opened: a link to nowhere is there, and is not followed.
        Errno::EXIST => refused("the path leads through a link to what does not exist in the new system"),
        source => source.into(),
    }
}

impl LayerTree {
    /// Opens the root of a tree.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn open(root: &Path, ownership: Ownership) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: rustix::fs::open(root, flags, Mode::empty())?, ownership })
    }

    /// Returns the names of a path; none is the root itself.
    pub(super) fn names(path: &[u8]) -> io::Result<Vec<&[u8]>> {
        if path.len() > MAX_PATH || path.contains(&0) {
            return Err(refused("the path is longer than 4096 bytes or has a zero byte"));
        }
        let parts = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
        let names: Vec<&[u8]> = parts.collect();
        if names.contains(&b"..".as_slice()) {
            return Err(refused("the path climbs out by \"..\""));
        }
        if names.len() > MAX_DEPTH {
            return Err(refused("the path has more than 256 names"));
        }
        Ok(names)
    }

    /// Opens a directory inside of the root. Missing directories are created when `create` is set.
    pub(super) fn folder(&self, names: &[&[u8]], create: bool) -> io::Result<OwnedFd> {
        let open = |names: &[&[u8]]| {
            let path = names.join(&b'/');
            let path = if path.is_empty() { b".".to_vec() } else { path };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            rustix::fs::openat2(&self.root, OsStr::from_bytes(&path), flags, Mode::empty(), resolve)
        };
        match open(names) {
            Err(Errno::NOENT) if create => {}
            opened => return opened.map_err(of_parents),
        }
        let mut known = names.len();
        let mut folder = loop {
            known = known.checked_sub(1).ok_or_else(|| refused("the root of the tree vanished"))?;
            match open(&names[..known]) {
                Err(Errno::NOENT) => {}
                opened => break opened.map_err(of_parents)?,
            }
        };
        for end in known + 1..=names.len() {
            let name = OsStr::from_bytes(names[end - 1]);
            rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)).map_err(of_parents)?;
            folder = open(&names[..end]).map_err(of_parents)?;
        }
        Ok(folder)
    }

    /// Returns the place of a path; its directory is created if it is missing.
    pub(super) fn place<'path>(&self, names: &[&'path [u8]]) -> io::Result<Place<'path>> {
        let (name, parents) = names.split_last().ok_or_else(|| refused("the path names the root itself"))?;
        Ok(Place { folder: self.folder(parents, true)?, name })
    }

    /// Sets owner, permissions, extended attributes and time, in the order that the kernel needs: a change of the owner
    /// removes set-user-ID bits and capabilities. Returns how many attributes the file system does not take.
    pub(super) fn set(&self, file: BorrowedFd<'_>, metadata: &Metadata<'_>) -> io::Result<u64> {
        if self.ownership == Ownership::Keep {
            rustix::fs::fchown(file, Some(uid(metadata.uid)?), Some(gid(metadata.gid)?))?;
        }
        rustix::fs::fchmod(file, Mode::from_raw_mode(metadata.mode & 0o7777))?;
        let mut skipped = 0;
        for (name, value) in metadata.xattrs {
            let set = rustix::fs::fsetxattr(file, name.as_str(), value, rustix::fs::XattrFlags::empty());
            match set {
                Ok(()) => {}
                // A program without its capability does not work; any other attribute is not worth an installation.
                Err(source) if name == "security.capability" && self.ownership == Ownership::Keep => {
                    return Err(source.into());
                }
                Err(_) => skipped += 1,
            }
        }
        rustix::fs::futimens(file, &times(metadata.mtime))?;
        Ok(skipped)
    }

    /// Sets owner and time of what cannot be opened: links, devices, pipes. Permissions of devices too.
    pub(super) fn set_at(&self, place: &Place<'_>, metadata: &Metadata<'_>, is_link: bool) -> io::Result<()> {
        let name = OsStr::from_bytes(place.name);
        if self.ownership == Ownership::Keep {
            let (uid, gid) = (uid(metadata.uid)?, gid(metadata.gid)?);
            rustix::fs::chownat(&place.folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if !is_link {
            rustix::fs::chmodat(
                &place.folder,
                name,
                Mode::from_raw_mode(metadata.mode & 0o7777),
                AtFlags::empty(),
            )?;
        }
        rustix::fs::utimensat(&place.folder, name, &times(metadata.mtime), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }
}

impl Place<'_> {
    pub(super) fn os_name(&self) -> &OsStr {
        OsStr::from_bytes(self.name)
    }

    /// Returns what is there, without following a link.
    pub(super) fn stat(&self) -> io::Result<Option<Stat>> {
        stat_at(self.folder.as_fd(), self.os_name())
    }

    /// Creates a file that does not exist.
    pub(super) fn create_file(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, self.os_name(), flags, Mode::from_raw_mode(0o600))?;
        Ok(File::from(file))
    }

    /// Copies the content of a regular file to a place where nothing is: FAT has no hard links. Returns its number of bytes.
    pub(super) fn copy_to(&self, place: &Place<'_>) -> io::Result<u64> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if !self.stat()?.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile) {
            return Err(Errno::PERM.into());
        }
        let mut file = File::from(rustix::fs::openat(&self.folder, self.os_name(), flags, Mode::empty())?);
        io::copy(&mut file, &mut place.create_file()?)
    }

    /// Opens a directory that is there, not through a link.
    pub(super) fn open_folder(&self) -> io::Result<OwnedFd> {
        open_folder_at(self.folder.as_fd(), self.os_name())
    }

    /// Removes what is there, with everything below it. Entries that `keep` returns true for stay, and so do mount points and the
    /// directories above them. Returns whether nothing stayed.
    pub(super) fn remove(&self, keep: &dyn Fn(FileId) -> bool) -> io::Result<bool> {
        remove_at(self.folder.as_fd(), self.os_name(), keep)
    }

    /// Removes what is there with everything below it.
    pub(super) fn clear(&self) -> io::Result<()> {
        match self.remove(&|_| false)? {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a volume of partition_layout is mounted here, so it stays a directory",
            )),
        }
    }
}

/// A file on a machine: its device and its inode. The new system may have several file systems, each with inodes of its own.
pub(super) type FileId = (u64, u64);

pub(super) fn file_id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

pub(super) fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Removes the entries of a directory as [`Place::remove`] does.
pub(super) fn empty_folder(folder: BorrowedFd<'_>, keep: &dyn Fn(FileId) -> bool) -> io::Result<bool> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    let mut all = true;
    for name in names {
        all &= remove_at(folder, OsStr::from_bytes(&name), keep)?;
    }
    Ok(all)
}

/// Returns whether the entry was removed. The depth of recursion is bounded by the depth of paths.
fn remove_at(folder: BorrowedFd<'_>, name: &OsStr, keep: &dyn Fn(FileId) -> bool) -> io::Result<bool> {
    let Some(stat) = stat_at(folder, name)? else { return Ok(true) };
    if !is_folder(&stat) {
        if keep(file_id(&stat)) {
            return Ok(false);
        }
        rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
        return Ok(true);
    }
    let empty = empty_folder(open_folder_at(folder, name)?.as_fd(), keep)?;
    if !empty || keep(file_id(&stat)) {
        return Ok(false);
    }
    match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        // Another file system of the new system is mounted here: what is in it was removed, and it stays.
        Err(Errno::BUSY) => Ok(false),
        Err(source) => Err(source.into()),
    }
}

fn stat_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(source) => Err(source.into()),
    }
}

fn open_folder_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?)
}

pub(super) fn times((tv_sec, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec, tv_nsec: i64::from(nanoseconds) };
    Timestamps { last_access: time, last_modification: time }
}

/// The highest number means "unchanged" to the kernel, so it is no owner.
fn uid(number: u32) -> io::Result<Uid> {
    if number == u32::MAX { Err(refused("an owner is out of range")) } else { Ok(Uid::from_raw(number)) }
}

fn gid(number: u32) -> io::Result<Gid> {
    if number == u32::MAX { Err(refused("a group is out of range")) } else { Ok(Gid::from_raw(number)) }
}
