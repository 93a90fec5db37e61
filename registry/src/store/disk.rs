//! The file operations durability depends on; the store changes the disk only through them.
//!
//! ```text
//!  bytes -> temporary file -> fsync(file) -> rename -> fsync(directory) -> acknowledge
//! ```
//!
//! A rename makes content visible at once and whole; the fsync of the directory makes it durable. Callers that rename
//! several files may fsync the directories together afterwards: with a journalling file system the first of these makes
//! the others durable as well.
//!
//! Every change is passed to a hook as a [`DiskOp`] before it is made. In tests the hook may record the order, make the
//! n-th operation fail, or forget everything that was not made durable (see `store::faults`). Outside of tests there is
//! no hook and no cost.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW};
use uuid::Uuid;

use crate::error::Error;

/// One operation on the disk.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "read by the listeners of tests")]
pub(in crate::store) enum DiskOp<'a> {
    CreateFile(&'a Path),
    Write(&'a Path),
    Resize(&'a Path),
    SyncFile(&'a Path),
    Protect(&'a Path),
    Touch(&'a Path),
    Rename(&'a Path, &'a Path),
    Remove(&'a Path),
    Link(&'a Path),
    CreateDirectory(&'a Path),
    RemoveDirectory(&'a Path),
    SyncDirectory(&'a Path),
    /// No change: something was read that decides a change.
    Observe(&'a Path),
}

/// The effect of a hook on an operation.
#[cfg(test)]
pub(in crate::store) enum HookAction {
    Go,
    /// Skip the operation and report success.
    Skip,
    /// Skip the operation, which counts as done: an fsync that only the hook has to know of.
    Believe,
    /// Fail; a write that fails with `WriteZero` leaves half of its bytes behind.
    Fail(ErrorKind),
}

/// A hook of a test.
#[cfg(test)]
pub(in crate::store) trait DiskHook: Send + Sync {
    fn before(&self, op: DiskOp<'_>) -> HookAction;
    fn after(&self, op: DiskOp<'_>);

    /// The space of the file system, when it is not the true one.
    fn space(&self) -> Option<Space> {
        None
    }
}

/// The access to the disk.
#[derive(Default)]
pub(in crate::store) struct Disk {
    #[cfg(test)]
    pub(super) hook: Option<std::sync::Arc<dyn DiskHook>>,
}

impl Disk {
    #[cfg(not(test))]
    fn perform<T>(&self, _op: DiskOp<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        act()
    }

    #[cfg(test)]
    fn perform<T: SkippedResult>(
        &self,
        op: DiskOp<'_>,
        act: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(hook) = &self.hook else { return act() };
        match hook.before(op) {
            HookAction::Fail(kind) => return Err(kind.into()),
            HookAction::Skip => {
                if let Some(skipped) = T::skipped() {
                    return Ok(skipped);
                }
            }
            HookAction::Believe => {
                if let Some(skipped) = T::skipped() {
                    hook.after(op);
                    return Ok(skipped);
                }
            }
            HookAction::Go => {}
        }
        let done = act()?;
        hook.after(op);
        Ok(done)
    }

    /// Reports that `path` was read and is acted on, without a lock that would keep it unchanged.
    pub(super) fn observed(&self, path: &Path) {
        // The result is ignored: nothing is done.
        let _ = self.perform(DiskOp::Observe(path), || Ok(()));
    }

    /// Makes the entries of `directory` durable.
    pub(super) fn sync_directory(&self, directory: &Path) -> Result<(), Error> {
        self.perform(DiskOp::SyncDirectory(directory), || File::open(directory)?.sync_all())
            .map_err(Error::io("make durable the entries of directory", directory))
    }

    /// Makes durable the directory of a file that was just created or removed.
    pub(super) fn sync_parent(&self, file: &Path) -> Result<(), Error> {
        file.parent().map_or(Ok(()), |parent| self.sync_directory(parent))
    }

    /// Creates `directory` when missing and makes its entry in its parent durable. Its parent must exist.
    pub(super) fn create_directory(&self, directory: &Path) -> Result<(), Error> {
        // Checked first: a full disk may refuse before it notices that nothing is to be done.
        if !directory.is_dir() {
            match self.perform(DiskOp::CreateDirectory(directory), || {
                DirBuilder::new().mode(0o700).create(directory)
            }) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create directory", directory)(error)),
            }
        }
        // Also when it existed: its creator may not have called fsync yet.
        self.sync_parent(directory)
    }

    /// Creates `directory` and its missing parents. An existing one is not changed: its parent may belong to another
    /// program, and be unreadable.
    pub(super) fn create_directories(&self, directory: &Path) -> Result<(), Error> {
        if directory.is_dir() {
            return Ok(());
        }
        if let Some(parent) = directory.parent() {
            self.create_directories(parent)?;
        }
        self.create_directory(directory)
    }

    /// Creates an empty file that did not exist, open for reading and writing.
    pub(super) fn create_file(&self, path: &Path) -> Result<File, Error> {
        let open = || OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        self.perform(DiskOp::CreateFile(path), open).map_err(Error::io("create", path))
    }

    /// Writes all of `bytes` at the position of `file`.
    pub(super) fn write(&self, file: &mut File, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let written = self.perform(DiskOp::Write(path), || file.write_all(bytes));
        #[cfg(test)]
        if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::WriteZero) {
            file.write_all(&bytes[..bytes.len() / 2]).map_err(Error::io("write to", path))?;
        }
        written.map_err(Error::io("write to", path))
    }

    /// Truncates `file` to `length`.
    pub(super) fn resize(&self, file: &File, path: &Path, length: u64) -> Result<(), Error> {
        self.perform(DiskOp::Resize(path), || file.set_len(length)).map_err(Error::io("shorten", path))
    }

    /// Makes the bytes of `file` durable.
    pub(super) fn sync_file(&self, file: &File, path: &Path) -> Result<(), Error> {
        self.perform(DiskOp::SyncFile(path), || file.sync_data()).map_err(Error::io("make durable", path))
    }

    /// Makes a file read-only.
    pub(super) fn protect(&self, path: &Path) -> Result<(), Error> {
        self.perform(DiskOp::Protect(path), || fs::set_permissions(path, Permissions::from_mode(0o400)))
            .map_err(Error::io("protect", path))
    }

    /// Renames a file, replacing an existing one.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.perform(DiskOp::Rename(from, to), || fs::rename(from, to))
            .map_err(Error::io("rename into place", to))
    }

    /// Renames a file if the new name is free; `false` when it is not, and the file stays.
    pub(super) fn rename_new(&self, from: &Path, to: &Path) -> Result<bool, Error> {
        let rename = || Ok(rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?);
        match self.perform(DiskOp::Rename(from, to), rename) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(Error::io("rename into place", to)(error)),
        }
    }

    /// Writes `bytes` to a new temporary file in `directory` and makes them durable. To be renamed or discarded.
    pub(super) fn write_temp(&self, directory: &Path, bytes: &[u8]) -> Result<PathBuf, Error> {
        let temp = directory.join(Uuid::new_v4().to_string());
        let written = self.create_file(&temp).and_then(|mut file| {
            self.write(&mut file, &temp, bytes)?;
            self.sync_file(&file, &temp)
        });
        match written {
            Ok(()) => Ok(temp),
            Err(error) => {
                self.discard(&temp);
                Err(error)
            }
        }
    }

    /// Renames a temporary file to `target`, or removes it.
    pub(super) fn commit_temp(&self, temp: &Path, target: &Path) -> Result<(), Error> {
        self.rename(temp, target).inspect_err(|_| self.discard(temp))
    }

    /// Replaces `target` by `bytes`, whole or not at all. Durable once the caller has called [`Disk::sync_directory`]
    /// on the directory of `target`. `temporary` is a directory of the same file system.
    pub(super) fn put(&self, temporary: &Path, target: &Path, bytes: &[u8]) -> Result<(), Error> {
        let temp = self.write_temp(temporary, bytes)?;
        self.commit_temp(&temp, target)
    }

    /// Replaces `target` like [`Disk::put`], without making anything durable: whole or not at all while the system
    /// runs.
    pub(super) fn put_volatile(&self, temporary: &Path, target: &Path, bytes: &[u8]) -> Result<(), Error> {
        let temp = temporary.join(Uuid::new_v4().to_string());
        let mut file = self.create_file(&temp)?;
        let written = self.write(&mut file, &temp, bytes);
        written.inspect_err(|_| self.discard(&temp)).and_then(|()| self.commit_temp(&temp, target))
    }

    /// Creates an empty file; an existing one gets the current time. Durable after [`Disk::sync_directory`].
    pub(super) fn record(&self, path: &Path) -> Result<(), Error> {
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match self.perform(DiskOp::CreateFile(path), open) {
            Ok(_) => Ok(()),
            // The age is a hint for garbage collection, which knows of this record by other means as well.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let _ = self.touch(path);
                Ok(())
            }
            Err(error) => Err(Error::io("create", path)(error)),
        }
    }

    /// Sets the time of a file to now.
    pub(super) fn touch(&self, path: &Path) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        self.perform(DiskOp::Touch(path), || {
            rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).map_err(io::Error::from)
        })
    }

    /// Sets the time of a file.
    pub(super) fn set_time(&self, path: &Path, time: SystemTime) -> Result<(), Error> {
        self.perform(DiskOp::Touch(path), || File::open(path)?.set_modified(time))
            .map_err(Error::io("set the time of", path))
    }

    /// Makes `link` a symbolic link to `target`, unless it exists.
    pub(super) fn link(&self, target: &Path, link: &Path) -> Result<(), Error> {
        if link.is_symlink() {
            return Ok(());
        }
        match self.perform(DiskOp::Link(link), || std::os::unix::fs::symlink(target, link)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(Error::io("create", link)(error)),
            _ => Ok(()),
        }
    }

    /// Removes a file; returns whether it existed.
    pub(super) fn remove(&self, path: &Path) -> Result<bool, Error> {
        match self.perform(DiskOp::Remove(path), || fs::remove_file(path)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("remove", path)(error)),
        }
    }

    /// Removes a directory with everything in it, if it exists.
    pub(super) fn remove_directory(&self, path: &Path) -> Result<(), Error> {
        match self.perform(DiskOp::RemoveDirectory(path), || fs::remove_dir_all(path)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::io("remove directory", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// The space of the file system of `path`.
    pub(super) fn space(&self, path: &Path) -> Result<Space, Error> {
        #[cfg(test)]
        if let Some(space) = self.hook.as_ref().and_then(|hook| hook.space()) {
            return Ok(space);
        }
        let failed = Error::io("read the free space at", path);
        let figures = rustix::fs::statvfs(path).map_err(|errno| failed(errno.into()))?;
        Ok(Space {
            free: figures.f_bavail.saturating_mul(figures.f_frsize),
            total: figures.f_blocks.saturating_mul(figures.f_frsize),
        })
    }

    /// Removes an unreferenced file. A failure costs space until the next start, so it is only logged.
    pub(super) fn discard(&self, path: &Path) {
        if let Err(error) = self.remove(path) {
            tracing::warn!(error = %error, "a temporary file of the registry was left behind");
        }
    }
}

/// The result of a skipped operation; an operation without one cannot be skipped.
#[cfg(test)]
trait SkippedResult: Sized {
    fn skipped() -> Option<Self>;
}

#[cfg(test)]
impl SkippedResult for () {
    fn skipped() -> Option<Self> {
        Some(())
    }
}

#[cfg(test)]
impl SkippedResult for File {
    fn skipped() -> Option<Self> {
        None
    }
}

/// Opens a file if the kernel can do so from its caches.
pub(super) fn open_cached(path: &Path, flags: OFlags) -> Option<File> {
    let opened = rustix::fs::openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED);
    opened.ok().map(File::from)
}

/// Whether the file exists.
pub(super) fn exists(path: &Path) -> Result<bool, Error> {
    path.try_exists().map_err(Error::io("check the existence of", path))
}

/// The metadata of a file; `None` when it does not exist.
pub(super) fn metadata(path: &Path) -> Result<Option<fs::Metadata>, Error> {
    match path.metadata() {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read the metadata of", path)(error)),
    }
}

/// The names in a directory that are valid text; none when the directory is missing.
pub(super) fn names(directory: &Path) -> Result<impl Iterator<Item = Result<String, Error>> + use<>, Error> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => Some(entries),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(Error::io("list directory", directory)(error)),
    };
    let directory = directory.to_owned();
    Ok(entries.into_iter().flatten().filter_map(move |entry| match entry {
        Ok(entry) => entry.file_name().into_string().ok().map(Ok),
        Err(error) => Some(Err(Error::io("list directory", &directory)(error))),
    }))
}

/// The space of a file system in bytes, as far as an ordinary process can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Space {
    /// The free space.
    pub(in crate::store) free: u64,
    pub(in crate::store) total: u64,
}
