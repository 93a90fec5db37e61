//! Adds a directory of the host to a tree.
//!
//! ```text
//! Tree::graft("boot", /srv/boot)     each directory: read, sorted byte-wise, added
//!   file             -> Content::File: path, length and modification time; opened when it is read
//!   symbolic link    -> a symbolic link, never followed
//!   anything else    -> an error that names it
//!
//! ScannedFile --index--> Listing (one per directory: path, names, lengths, times) --> OpenFiles (at most 16 at once)
//! ```
//!
//! Invariants: only the name, length, content and executable bit of a file reach an image. A file that has changed
//! since the scan is an error, both when it is opened and after every read. At most [`OPEN_FILES`] descriptors are
//! open, for any number of files.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::OFlags;

use crate::error::{PlanError, ScanError};
use crate::kernel_copy::KernelCopy;
use crate::source::{ReadAt, past_end};
use crate::tree::{Content, Tree};

/// The number of files that stay open between reads.
const OPEN_FILES: usize = 16;

/// A file found by [`Tree::graft`]. It is opened when it is read, and refused if it has changed since the scan.
#[derive(Clone)]
pub struct ScannedFile {
    listing: Arc<Listing>,
    index: u32,
}

/// The regular files of one directory.
struct Listing {
    directory: PathBuf,
    names: String,
    files: Vec<Record>,
    open: Arc<OpenFiles>,
}

/// The state of a file at the scan.
struct Record {
    name_end: u32,
    nanoseconds: u32,
    seconds: i64,
    len: u64,
}

/// The files read last, oldest first, identified by the address of their listing and their index. All listings that
/// share this value come from one scan and live as long as the contents of its tree, so two listings never have one
/// address while files are read.
#[derive(Default)]
struct OpenFiles(Mutex<Vec<(usize, u32, Arc<File>)>>);

impl ScannedFile {
    fn record(&self) -> &Record {
        &self.listing.files[self.index as usize]
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        let files = &self.listing.files;
        let start = self.index.checked_sub(1).map_or(0, |before| files[before as usize].name_end);
        self.listing.directory.join(&self.listing.names[start as usize..self.record().name_end as usize])
    }

    /// Returns the open file; opens it if necessary.
    fn open(&self) -> io::Result<Arc<File>> {
        let key = Arc::as_ptr(&self.listing).addr();
        let lock = || self.listing.open.0.lock();
        {
            let mut open = lock();
            let found = open.iter().position(|(listing, index, _)| (*listing, *index) == (key, self.index));
            if let Some(at) = found {
                let last = open.remove(at);
                let file = last.2.clone();
                open.push(last);
                return Ok(file);
            }
        }
        let file = Arc::new(self.open_anew()?);
        let mut open = lock();
        if open.len() >= OPEN_FILES {
            open.remove(0);
        }
        open.push((key, self.index, file.clone()));
        Ok(file)
    }

    /// Appends the whole file to another file, `at_once` bytes at a time, inside the kernel. Calls `passed` with the length of
    /// each copied piece.
    pub(crate) fn copy_to(
        &self,
        (copier, output): (&KernelCopy, &File),
        at_once: u64,
        mut passed: impl FnMut(u64),
    ) -> io::Result<()> {
        let file = self.open_anew()?;
        let mut copied = 0;
        while copied < self.len() {
            let more = copier.copy(&file, output, at_once.min(self.len() - copied))?;
            if more == 0 {
                break;
            }
            copied += more;
            passed(more);
        }
        self.unchanged(&file)?;
        if copied == self.len() { Ok(()) } else { Err(past_end(0, 0, copied)) }
    }

    fn open_anew(&self) -> io::Result<File> {
        // A link or a pipe that replaced the file must not be followed and must not block.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(self.path())?;
        self.unchanged(&file)?;
        Ok(file)
    }

    /// Returns an error when the file differs from the scan.
    fn unchanged(&self, file: &File) -> io::Result<()> {
        let (metadata, record) = (file.metadata()?, self.record());
        let same = metadata.is_file()
            && metadata.len() == record.len
            && (metadata.mtime(), nanoseconds(&metadata)) == (record.seconds, record.nanoseconds);
        if same {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} has changed since its directory was scanned; scan it again", self.path().display()),
        ))
    }
}

impl ReadAt for ScannedFile {
    fn len(&self) -> u64 {
        self.record().len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.len()) {
            return Err(past_end(offset, buffer.len(), self.len()));
        }
        let file = self.open()?;
        let outcome = file.read_exact_at(buffer, offset);
        // The comparison runs after the read: it sees a change before or during the read. A later change does no harm.
        self.unchanged(&file)?;
        outcome
    }
}

impl Tree {
    /// Returns the tree of a directory of the host.
    ///
    /// # Errors
    /// The errors of [`Tree::graft`].
    pub fn from_directory(directory: impl AsRef<Path>) -> Result<Tree, ScanError> {
        let mut tree = Tree::new();
        tree.graft("", directory)?;
        Ok(tree)
    }

    /// Adds the content of a directory of the host below `path`; an empty path is the root.
    ///
    /// Files are opened when the image is read. A file with an executable bit is added as executable; other modes,
    /// owners and times are ignored. After an error the tree holds a part of the directory.
    ///
    /// # Errors
    /// [`ScanError`] when an entry is neither a file, a directory nor a symbolic link, has a name that is not UTF-8,
    /// vanishes during the scan, cannot be read, or cannot be added to the tree.
    pub fn graft(&mut self, path: &str, directory: impl AsRef<Path>) -> Result<&mut Tree, ScanError> {
        let directory = directory.as_ref();
        let read = |error| ScanError::Read { path: directory.to_owned(), source: error };
        if !fs::metadata(directory).map_err(read)?.is_dir() {
            return Err(ScanError::FileType { path: directory.to_owned(), found: "not a directory" });
        }
        let open = Arc::default();
        let mut waiting = vec![(path.trim_matches('/').to_owned(), directory.to_owned())];
        while let Some((path, directory)) = waiting.pop() {
            self.take_over(&path, &directory, &open, &mut waiting)?;
        }
        Ok(self)
    }

    /// Adds the children of one directory and returns those that are directories.
    fn take_over(
        &mut self,
        path: &str,
        directory: &Path,
        open: &Arc<OpenFiles>,
        waiting: &mut Vec<(String, PathBuf)>,
    ) -> Result<(), ScanError> {
        let read = |path: &Path| {
            let path = path.to_owned();
            move |source| ScanError::Read { path, source }
        };
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).map_err(read(directory))? {
            let entry = entry.map_err(read(directory))?;
            let name = entry.file_name().into_string();
            let name = name.map_err(|_| ScanError::Name { path: entry.path() })?;
            let metadata = entry.metadata().map_err(read(&entry.path()))?;
            found.push((name, metadata));
        }
        found.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        if !path.is_empty() {
            self.add_directory(path)?;
        }

        let files = found.iter().filter(|(_, metadata)| metadata.is_file());
        let listing = Arc::new(Listing::new(directory, files, open)?);
        let mut index = 0;
        for (name, metadata) in &found {
            let kind = metadata.file_type();
            if kind.is_dir() {
                waiting.push((below(name), directory.join(name)));
            } else if kind.is_symlink() {
                let at = directory.join(name);
                let target = fs::read_link(&at).map_err(read(&at))?;
                let target = target.to_str().ok_or(ScanError::Name { path: at })?;
                self.add_symlink(&below(name), target)?;
            } else if kind.is_file() {
                let content = Content::File(ScannedFile { listing: listing.clone(), index });
                index += 1;
                if metadata.mode() & 0o111 == 0 {
                    self.add_file(&below(name), content)?;
                } else {
                    self.add_executable(&below(name), content)?;
                }
            } else {
                return Err(ScanError::FileType {
                    path: directory.join(name),
                    found: "neither a file, a directory nor a symbolic link",
                });
            }
        }
        Ok(())
    }
}

impl Listing {
    fn new<'a>(
        directory: &Path,
        found: impl Iterator<Item = &'a (String, Metadata)>,
        open: &Arc<OpenFiles>,
    ) -> Result<Listing, PlanError> {
        let (mut names, mut files) = (String::new(), Vec::new());
        for (name, metadata) in found {
            names.push_str(name);
            let name_end =
                u32::try_from(names.len()).map_err(|_| PlanError::TooLarge { path: name.clone() })?;
            let (seconds, nanoseconds) = (metadata.mtime(), nanoseconds(metadata));
            files.push(Record { name_end, nanoseconds, seconds, len: metadata.len() });
        }
        names.shrink_to_fit();
        files.shrink_to_fit();
        Ok(Listing { directory: directory.to_owned(), names, files, open: open.clone() })
    }
}

/// The fraction of a second in nanoseconds, which takes 30 bits.
fn nanoseconds(metadata: &Metadata) -> u32 {
    u32::try_from(metadata.mtime_nsec()).unwrap_or(0)
}
