//! The few file operations durability is made of, and the one place where the store changes the disk.
//!
//! ```text
//!  bytes -> temporary file -> fsync(file) -> rename -> fsync(directory) -> acknowledge
//! ```
//!
//! A rename makes content visible at once and whole; the directory fsync makes it stay. Callers that rename
//! several things may fsync the directories together afterwards: with a journalling file system the first of
//! these carries the others along.
//!
//! Every change is announced as a [`Step`] before it is made. In tests somebody may listen: record the order, let
//! the n-th step fail, or forget everything that was not made durable (see `store::faults`). Outside of tests
//! nobody can, and a step costs nothing.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW};
use uuid::Uuid;

use crate::error::Error;

/// One change of the disk.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "read by the listeners of tests")]
pub(in crate::store) enum Step<'a> {
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
    SyncDirectory(&'a Path),
    /// No change: something was read that a change is going to be decided by.
    Look(&'a Path),
}

/// What a listener of a test wants to happen to a step.
#[cfg(test)]
pub(in crate::store) enum Verdict {
    Go,
    /// Pretend it was done.
    Skip,
    /// Do not do it, but it counts as done: fsyncs which only the listener has to believe in.
    Believe,
    /// Fail; a write that fails with `WriteZero` leaves half of its bytes behind.
    Fail(ErrorKind),
}

/// A listener of a test.
#[cfg(test)]
pub(in crate::store) trait Watch: Send + Sync {
    fn before(&self, step: Step<'_>) -> Verdict;
    fn after(&self, step: Step<'_>);
}

/// The way to the disk.
#[derive(Default)]
pub(in crate::store) struct Disk {
    #[cfg(test)]
    pub(super) watch: Option<std::sync::Arc<dyn Watch>>,
}

impl Disk {
    #[cfg(not(test))]
    fn perform<T>(&self, _step: Step<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        act()
    }

    #[cfg(test)]
    fn perform<T: Pretended>(&self, step: Step<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let Some(watch) = &self.watch else { return act() };
        match watch.before(step) {
            Verdict::Fail(kind) => return Err(kind.into()),
            Verdict::Skip => {
                if let Some(pretended) = T::pretended() {
                    return Ok(pretended);
                }
            }
            Verdict::Believe => {
                if let Some(pretended) = T::pretended() {
                    watch.after(step);
                    return Ok(pretended);
                }
            }
            Verdict::Go => {}
        }
        let done = act()?;
        watch.after(step);
        Ok(done)
    }

    /// Says that `path` was read and is going to be acted on, without a lock that would keep it as it is.
    pub(super) fn looked(&self, path: &Path) {
        // Whatever a listener says: there is nothing to do.
        let _ = self.perform(Step::Look(path), || Ok(()));
    }

    /// Makes the entries of `directory` durable.
    pub(super) fn sync_directory(&self, directory: &Path) -> Result<(), Error> {
        self.perform(Step::SyncDirectory(directory), || File::open(directory)?.sync_all())
            .map_err(Error::io("make durable the entries of directory", directory))
    }

    /// Makes durable the directory a file was just put into or removed from.
    pub(super) fn sync_parent(&self, file: &Path) -> Result<(), Error> {
        file.parent().map_or(Ok(()), |parent| self.sync_directory(parent))
    }

    /// Creates `directory` when missing and makes its entry in its parent durable. Its parent must exist.
    pub(super) fn create_directory(&self, directory: &Path) -> Result<(), Error> {
        // Looked at first: a full disk may refuse before it sees that there is nothing to do.
        if !directory.is_dir() {
            match self.perform(Step::CreateDirectory(directory), || fs::create_dir(directory)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create directory", directory)(error)),
            }
        }
        // Also when it was there: whoever made it may not have come to the fsync.
        self.sync_parent(directory)
    }

    /// Creates `directory` and what is missing above it. An existing one is left as it is: the directory above it may
    /// be none of our business, and unreadable.
    pub(super) fn create_directories(&self, directory: &Path) -> Result<(), Error> {
        if directory.is_dir() {
            return Ok(());
        }
        if let Some(parent) = directory.parent() {
            self.create_directories(parent)?;
        }
        self.create_directory(directory)
    }

    /// Creates an empty file that was not there, open for reading and writing.
    pub(super) fn create_file(&self, path: &Path) -> Result<File, Error> {
        let open = || OpenOptions::new().read(true).write(true).create_new(true).open(path);
        self.perform(Step::CreateFile(path), open).map_err(Error::io("create", path))
    }

    /// Writes all of `bytes` where `file` stands.
    pub(super) fn write(&self, file: &mut File, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let written = self.perform(Step::Write(path), || file.write_all(bytes));
        #[cfg(test)]
        if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::WriteZero) {
            file.write_all(&bytes[..bytes.len() / 2]).map_err(Error::io("write to", path))?;
        }
        written.map_err(Error::io("write to", path))
    }

    /// Cuts `file` to `length`.
    pub(super) fn resize(&self, file: &File, path: &Path, length: u64) -> Result<(), Error> {
        self.perform(Step::Resize(path), || file.set_len(length)).map_err(Error::io("shorten", path))
    }

    /// Makes the bytes of `file` durable.
    pub(super) fn sync_file(&self, file: &File, path: &Path) -> Result<(), Error> {
        self.perform(Step::SyncFile(path), || file.sync_data()).map_err(Error::io("make durable", path))
    }

    /// Makes a file read-only.
    pub(super) fn protect(&self, path: &Path) -> Result<(), Error> {
        self.perform(Step::Protect(path), || fs::set_permissions(path, Permissions::from_mode(0o444)))
            .map_err(Error::io("protect", path))
    }

    /// Gives a file another name, replacing what had it.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.perform(Step::Rename(from, to), || fs::rename(from, to))
            .map_err(Error::io("rename into place", to))
    }

    /// Gives a file another name which nothing has; `false` when something has it, and the file stays.
    pub(super) fn rename_new(&self, from: &Path, to: &Path) -> Result<bool, Error> {
        let rename = || Ok(rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?);
        match self.perform(Step::Rename(from, to), rename) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(Error::io("rename into place", to)(error)),
        }
    }

    /// Writes `bytes` into a new file of `directory` and makes them durable. To be renamed or discarded.
    pub(super) fn draft(&self, directory: &Path, bytes: &[u8]) -> Result<PathBuf, Error> {
        let draft = directory.join(Uuid::new_v4().to_string());
        let written = self.create_file(&draft).and_then(|mut file| {
            self.write(&mut file, &draft, bytes)?;
            self.sync_file(&file, &draft)
        });
        match written {
            Ok(()) => Ok(draft),
            Err(error) => {
                self.discard(&draft);
                Err(error)
            }
        }
    }

    /// Renames a draft into place, or removes it.
    pub(super) fn place(&self, draft: &Path, target: &Path) -> Result<(), Error> {
        self.rename(draft, target).inspect_err(|_| self.discard(draft))
    }

    /// Puts `bytes` at `target`, whole or not at all, replacing what was there. Durable once the caller has called
    /// [`Disk::sync_directory`] on the directory of `target`. `temporary` is a directory of the same file system.
    pub(super) fn put(&self, temporary: &Path, target: &Path, bytes: &[u8]) -> Result<(), Error> {
        let draft = self.draft(temporary, bytes)?;
        self.place(&draft, target)
    }

    /// As [`Disk::put`], without making anything durable: whole or not there for as long as the system runs.
    pub(super) fn put_volatile(&self, temporary: &Path, target: &Path, bytes: &[u8]) -> Result<(), Error> {
        let draft = temporary.join(Uuid::new_v4().to_string());
        let mut file = self.create_file(&draft)?;
        let written = self.write(&mut file, &draft, bytes);
        written.inspect_err(|_| self.discard(&draft)).and_then(|()| self.place(&draft, target))
    }

    /// Creates an empty file; one that exists is made as young as a new one. Durable after
    /// [`Disk::sync_directory`].
    pub(super) fn record(&self, path: &Path) -> Result<(), Error> {
        let open = || OpenOptions::new().write(true).create_new(true).open(path);
        match self.perform(Step::CreateFile(path), open) {
            Ok(_) => Ok(()),
            // Age is a hint for garbage collection, which knows of this record by other means as well.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let _ = self.touch(path);
                Ok(())
            }
            Err(error) => Err(Error::io("create", path)(error)),
        }
    }

    /// Makes a file as young as a new one.
    pub(super) fn touch(&self, path: &Path) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        self.perform(Step::Touch(path), || {
            rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).map_err(io::Error::from)
        })
    }

    /// Makes `link` a symbolic link to `target`, unless it is there.
    pub(super) fn link(&self, target: &Path, link: &Path) -> Result<(), Error> {
        if link.is_symlink() {
            return Ok(());
        }
        match self.perform(Step::Link(link), || std::os::unix::fs::symlink(target, link)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(Error::io("create", link)(error)),
            _ => Ok(()),
        }
    }

    /// Removes a file; whether it was there.
    pub(super) fn remove(&self, path: &Path) -> Result<bool, Error> {
        match self.perform(Step::Remove(path), || fs::remove_file(path)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("remove", path)(error)),
        }
    }

    /// Removes a file nothing refers to. A failure costs space until the next start and is not worth failing for.
    pub(super) fn discard(&self, path: &Path) {
        if let Err(error) = self.remove(path) {
            tracing::warn!(error = %error, "a temporary file of the registry was left behind");
        }
    }
}

/// What a skipped step answers; a step without one cannot be skipped.
#[cfg(test)]
trait Pretended: Sized {
    fn pretended() -> Option<Self>;
}

#[cfg(test)]
impl Pretended for () {
    fn pretended() -> Option<Self> {
        Some(())
    }
}

#[cfg(test)]
impl Pretended for File {
    fn pretended() -> Option<Self> {
        None
    }
}

/// Opens a file if the kernel can say without the disk where it is.
pub(super) fn open_cached(path: &Path, flags: OFlags) -> Option<File> {
    let opened = rustix::fs::openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED);
    opened.ok().map(File::from)
}

/// Whether there is a file.
pub(super) fn exists(path: &Path) -> Result<bool, Error> {
    path.try_exists().map_err(Error::io("look for", path))
}

/// The names in a directory which are text; none when the directory is missing.
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

/// The size of a file system, in bytes an ordinary process can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    /// Still to be written.
    pub(super) free: u64,
    pub(super) total: u64,
}

/// The space of the file system of `path`.
pub(super) fn space(path: &Path) -> Result<Space, Error> {
    let figures =
        rustix::fs::statvfs(path).map_err(|errno| Error::io("ask for free space at", path)(errno.into()))?;
    Ok(Space {
        free: figures.f_bavail.saturating_mul(figures.f_frsize),
        total: figures.f_blocks.saturating_mul(figures.f_frsize),
    })
}
