//! Extracts files of an image to a directory of the host. The image may be hostile.
//!
//! ```text
//! tour 1: sum of the bytes --> free space?    tour 2: directories, files    tour 3: symbolic links
//!
//! output directory --openat--> a --openat--> b      every step from a descriptor, and never through a link
//! ```
//!
//! Invariants: nothing is written outside the output directory, because each name is one component, is opened from the
//! descriptor of its directory without following links, and links are created after the last file. Nothing that exists is
//! changed: files are created new, or skipped. What cannot be extracted is skipped and reported, and everything else is
//! extracted; only an error of the host or an exhausted budget ends the extraction early. Memory does not grow with the
//! number of files.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{ExtractError, ReadError, SkipReason};
use crate::escape::{file_name, unescape};
use crate::image::{Entry, EntryKind, Found, Image};
use crate::source::ReadAt;

/// The buffer size of a copy, in bytes.
const BUFFER_SIZE: usize = 1 << 20;

/// The limits and choices of an extraction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ExtractOptions {
    /// The largest sum of the lengths of all files in bytes. Compressed files and files with holes can be larger than
    /// their image.
    pub max_bytes: u64,
    /// Whether symbolic links are created. Their targets may lead anywhere.
    pub links: bool,
}

impl Default for ExtractOptions {
    fn default() -> ExtractOptions {
        ExtractOptions { max_bytes: u64::MAX, links: true }
    }
}

impl ExtractOptions {
    setters! {
        with_max_bytes max_bytes: u64;
        with_links links: bool;
    }
}

/// An event that an extraction reports while it runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExtractEvent<'a> {
    /// Bytes were written.
    Progress {
        /// The number of bytes so far.
        done: u64,
        /// The sum of the lengths of all files.
        total: u64,
    },
    /// An entry was not extracted.
    Skipped {
        /// The path of the entry below the extracted directory.
        path: &'a str,
        /// The reason.
        reason: SkipReason,
    },
}

/// The result of an extraction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Extracted {
    /// The number of created files.
    pub files: u64,
    /// The number of created directories.
    pub directories: u64,
    /// The number of created symbolic links.
    pub links: u64,
    /// The number of bytes in the created files.
    pub bytes: u64,
    /// The number of devices, pipes and sockets, and of links that were not wanted.
    pub skipped: u64,
    /// The number of other entries that were not extracted. Each was reported with its reason.
    pub missing: u64,
}

impl<S: ReadAt> Image<S> {
    /// Extracts the directory or file at `path` to a directory of the host, which is created if it is missing. Calls
    /// `observe` with progress, and with each entry that is not extracted.
    ///
    /// Files and directories get their permissions (without set-user-ID), and files their modification time. Owners,
    /// devices and hard links are not restored. A name with bytes that are not UTF-8 gets these bytes; control characters
    /// in a name stay escaped.
    ///
    /// # Errors
    /// [`ExtractError::Read`] when `path` does not exist or a budget of the reader is exhausted, [`ExtractError::Space`]
    /// when the files do not fit, both before anything is written. [`ExtractError::Write`] when the host refuses a file.
    pub fn extract(
        &self,
        path: &str,
        directory: impl AsRef<Path>,
        options: &ExtractOptions,
        mut observe: impl FnMut(ExtractEvent<'_>),
    ) -> Result<Extracted, ExtractError> {
        let directory = directory.as_ref();
        let top = self.lookup(path)?;
        let (mut total, mut links) = (if top.is_file() { top.len } else { 0 }, false);
        if top.is_dir() {
            self.tour(path, &mut |found| {
                if let Found::Entry(_, entry) = found {
                    total = total.saturating_add(if entry.is_file() { entry.len } else { 0 });
                    links |= matches!(entry.kind, EntryKind::Symlink(_));
                }
                ControlFlow::Continue(())
            })?;
        }
        let output = Output::open(directory)?;
        let available = output.available()?.min(options.max_bytes);
        if total > available {
            return Err(ExtractError::Space { directory: directory.to_owned(), needed: total, available });
        }
        let mut run = Run {
            image: self,
            inside: path,
            options,
            output,
            total,
            observe: &mut observe,
            done: Extracted::default(),
        };
        if !top.is_dir() {
            let name = path.trim_matches('/').rsplit('/').next().unwrap_or(path);
            run.entry(name, &top, false)?;
            return Ok(run.done);
        }
        run.tour(false)?;
        if links {
            run.tour(true)?;
        }
        Ok(run.done)
    }
}

/// A running extraction.
struct Run<'a, S> {
    image: &'a Image<S>,
    /// The path of the extracted directory in the image.
    inside: &'a str,
    options: &'a ExtractOptions,
    output: Output,
    total: u64,
    observe: &'a mut dyn FnMut(ExtractEvent<'_>),
    done: Extracted,
}

/// The reason why one entry, or the whole extraction, ends.
enum Failed {
    Skip(SkipReason),
    End(ExtractError),
}

impl From<ExtractError> for Failed {
    fn from(error: ExtractError) -> Failed {
        Failed::End(error)
    }
}

impl<S: ReadAt> Run<'_, S> {
    /// Creates all links, or everything else.
    fn tour(&mut self, links: bool) -> Result<(), ExtractError> {
        let mut outcome = Ok(());
        self.image.tour(self.inside, &mut |found| {
            outcome = match found {
                Found::Entry(path, entry) => self.entry(path, entry, links),
                Found::Unreadable(path, error) => {
                    if !links {
                        self.skip(path, SkipReason::Unreadable(error));
                    }
                    Ok(())
                }
            };
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome
    }

    fn skip(&mut self, path: &str, reason: SkipReason) {
        match reason {
            SkipReason::FileType | SkipReason::Unwanted => self.done.skipped += 1,
            _ => self.done.missing += 1,
        }
        (self.observe)(ExtractEvent::Skipped { path, reason });
    }

    /// Creates one entry.
    fn entry(&mut self, path: &str, entry: &Entry, links: bool) -> Result<(), ExtractError> {
        let outcome = match &entry.kind {
            EntryKind::Symlink(target) if links => self.link(path, target),
            EntryKind::Symlink(_) => return Ok(()),
            _ if links => return Ok(()),
            EntryKind::Directory => self.directory(path, entry),
            EntryKind::File => self.file(path, entry),
            EntryKind::Other => Err(Failed::Skip(SkipReason::FileType)),
        };
        match outcome {
            Ok(()) => Ok(()),
            Err(Failed::End(error)) => Err(error),
            Err(Failed::Skip(reason)) => {
                self.skip(path, reason);
                Ok(())
            }
        }
    }

    fn directory(&mut self, path: &str, entry: &Entry) -> Result<(), Failed> {
        let place = self.output.place(path)?;
        match rustix::fs::mkdirat(place.directory, &*place.name, Mode::RWXU) {
            Ok(()) => {}
            // Files are added to a directory that exists, but not through a link.
            Err(Errno::EXIST) if open_directory(place.directory, &place.name).is_ok() => return Ok(()),
            Err(error) => return Err(place.failed(error)),
        }
        self.done.directories += 1;
        if let Some(mode) = entry.mode {
            let created =
                open_directory(place.directory, &place.name).map_err(|error| place.failed(error))?;
            let mode = Permissions::from_mode((mode & 0o777) | 0o700);
            File::from(created).set_permissions(mode).map_err(|error| place.refused(error))?;
        }
        Ok(())
    }

    fn file(&mut self, path: &str, entry: &Entry) -> Result<(), Failed> {
        let unreadable = |error| Failed::Skip(SkipReason::Unreadable(error));
        let from = self.image.reader(entry, path).map_err(unreadable)?;
        let place = self.output.place(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = rustix::fs::openat(place.directory, &*place.name, flags, Mode::from_raw_mode(0o666));
        let mut to = File::from(to.map_err(|error| place.failed(error))?);
        let mut buffer = vec![0; BUFFER_SIZE.min(usize::try_from(from.len()).unwrap_or(BUFFER_SIZE))];
        let mut offset = 0;
        let copied = loop {
            let left = usize::try_from(from.len() - offset).unwrap_or(usize::MAX);
            let piece = left.min(buffer.len());
            let piece = &mut buffer[..piece];
            if piece.is_empty() {
                break Ok(());
            }
            if let Err(error) = from.read_exact_at(offset, piece) {
                break Err(unreadable(ReadError::io(offset, piece.len(), error)));
            }
            if let Err(error) = to.write_all(piece) {
                break Err(place.refused(error));
            }
            offset += piece.len() as u64;
            (self.observe)(ExtractEvent::Progress { done: self.done.bytes + offset, total: self.total });
        };
        if let Err(error) = copied.and_then(|()| attributes(&to, entry).map_err(|error| place.refused(error)))
        {
            // A part of a file is worse than no file. If it cannot be removed, the first error is still the cause.
            let _left = rustix::fs::unlinkat(place.directory, &*place.name, AtFlags::empty());
            return Err(error);
        }
        self.done.files += 1;
        self.done.bytes += offset;
        Ok(())
    }

    fn link(&mut self, path: &str, target: &str) -> Result<(), Failed> {
        if !self.options.links {
            return Err(Failed::Skip(SkipReason::Unwanted));
        }
        let target = unescape(target);
        if target.is_empty() || target.contains(&0) {
            return Err(Failed::Skip(SkipReason::Target));
        }
        let place = self.output.place(path)?;
        rustix::fs::symlinkat(&*target, place.directory, &*place.name)
            .map_err(|error| place.failed(error))?;
        self.done.links += 1;
        Ok(())
    }
}

fn attributes(file: &File, entry: &Entry) -> io::Result<()> {
    if let Some(mode) = entry.mode {
        file.set_permissions(Permissions::from_mode((mode & 0o777) | 0o600))?;
    }
    let seconds = entry.modified.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let modified = seconds.and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(seconds));
    modified.map_or(Ok(()), |modified| file.set_modified(modified))
}

/// The output directory, and the directories from it to the current one.
struct Output {
    path: PathBuf,
    root: OwnedFd,
    /// The path of the current directory below the output directory, as text of the image.
    current: String,
    /// For each directory on this path the length of its own path, and its descriptor.
    open: Vec<(usize, OwnedFd)>,
}

/// Where an entry is created.
struct Place<'a> {
    directory: BorrowedFd<'a>,
    name: Vec<u8>,
    /// The path of the entry, for errors.
    path: PathBuf,
}

impl Output {
    fn open(path: &Path) -> Result<Output, ExtractError> {
        let refused = |source| ExtractError::Write { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(refused)?;
        // The caller names this directory, so a link is followed here.
        let root = rustix::fs::open(path, DIRECTORY, Mode::empty()).map_err(|error| refused(error.into()))?;
        Ok(Output { path: path.to_owned(), root, current: String::new(), open: Vec::new() })
    }

    /// Returns the number of free bytes.
    fn available(&self) -> Result<u64, ExtractError> {
        let refused = |error: Errno| ExtractError::Write { path: self.path.clone(), source: error.into() };
        let found = rustix::fs::fstatvfs(&self.root).map_err(refused)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Returns the place of an entry with a path. Its directory must exist.
    fn place(&mut self, path: &str) -> Result<Place<'_>, Failed> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        while let Some((end, _)) = self.open.last() {
            let rest = parent.strip_prefix(&self.current[..*end]);
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                break;
            }
            self.open.pop();
        }
        let reached = self.open.last().map_or(0, |(end, _)| *end);
        self.current.truncate(reached);
        for component in parent[reached..].split('/').filter(|component| !component.is_empty()) {
            let from = self.open.last().map_or(self.root.as_fd(), |(_, directory)| directory.as_fd());
            let directory = open_directory(from, &file_name(component)).map_err(|error| match error {
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG => {
                    Failed::Skip(SkipReason::Directory)
                }
                error => ExtractError::Write { path: self.path.join(parent), source: error.into() }.into(),
            })?;
            if !self.current.is_empty() {
                self.current.push('/');
            }
            self.current.push_str(component);
            self.open.push((self.current.len(), directory));
        }
        let directory = self.open.last().map_or(self.root.as_fd(), |(_, directory)| directory.as_fd());
        Ok(Place { directory, name: file_name(name).into_owned(), path: self.path.join(path) })
    }
}

impl Place<'_> {
    /// Returns the consequence of an error for this entry: it is skipped if the error concerns only its name.
    fn failed(&self, error: Errno) -> Failed {
        match error {
            Errno::EXIST => Failed::Skip(SkipReason::Exists),
            Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => Failed::Skip(SkipReason::Name),
            error => self.refused(error.into()),
        }
    }

    fn refused(&self, source: io::Error) -> Failed {
        Failed::End(ExtractError::Write { path: self.path.clone(), source })
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a directory in another one, but not through a link.
fn open_directory(from: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(from, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}
