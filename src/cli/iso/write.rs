//! Writes an image to a file, which is renamed into place when it is complete, or to standard output.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use iso9660::ImagePlan;
use sha2::{Digest, Sha256};

use client::error::CliError;
use client::output::Output;
use client::progress::Progress;

/// The size and digest of a written image.
pub(in crate::cli) struct Written {
    pub(in crate::cli) bytes: u64,
    /// The SHA-256 in hex, with `--digest`.
    pub(in crate::cli) sha256: Option<String>,
}

/// Writes a planned image to a path; `-` is standard output.
pub(super) fn image(
    plan: &ImagePlan,
    path: &Path,
    digest: bool,
    output: &mut Output<'_>,
) -> Result<Written, CliError> {
    let mut hash = digest.then(Sha256::new);
    let progress = Progress::new(format!("writing {}", path.display()), Some(plan.len()));
    let bytes = if path.as_os_str() == "-" {
        let (inner, err) = (&mut *output.out, &mut *output.err);
        let mut counted = Counted { inner, err, hash: &mut hash, progress, done: 0 };
        let bytes = plan.write_to(&mut counted).map_err(|error| write_failed(path, &error))?;
        counted.flush()?;
        bytes
    } else {
        let temp = TempFile::create(path)?;
        let (inner, err) = (&temp.file, &mut *output.err);
        let written = if hash.is_some() {
            let mut counted = Counted { inner, err, hash: &mut hash, progress, done: 0 };
            plan.write_to(&mut counted).and_then(|bytes| inner.sync_all().map(|()| bytes))
        } else {
            let mut progress = progress;
            plan.write_durably(inner, |done| progress.report(done, err))
        };
        let bytes = written.map_err(|error| write_failed(path, &error))?;
        temp.commit()?;
        bytes
    };
    Ok(Written { bytes, sha256: hash.map(|hash| hex::encode(hash.finalize())) })
}

fn write_failed(path: &Path, error: &io::Error) -> CliError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return CliError::Output(io::Error::from(io::ErrorKind::BrokenPipe));
    }
    CliError::failed(format!(
        "cannot write the image to {}: {error}; the incomplete file was removed",
        path.display()
    ))
}

/// A file with a temporary name until it is complete.
struct TempFile {
    file: File,
    temp: PathBuf,
    path: PathBuf,
    committed: bool,
}

impl TempFile {
    fn create(path: &Path) -> Result<Self, CliError> {
        let refused = |source: io::Error| {
            CliError::failed(format!("cannot create a file in the directory of {}: {source}", path.display()))
        };
        let Some(name) = path.file_name() else {
            return Err(CliError::Usage(format!("{} does not name a file", path.display())));
        };
        let mut temp = std::ffi::OsString::from(".");
        temp.push(name);
        temp.push(format!(".{}.partial", std::process::id()));
        let temp = path.with_file_name(temp);
        let file = File::options().write(true).create_new(true).open(&temp).map_err(refused)?;
        Ok(Self { file, temp, path: path.to_owned(), committed: false })
    }

    /// Renames the file, whose bytes are on the disk.
    fn commit(mut self) -> Result<(), CliError> {
        let refused =
            |source: io::Error| CliError::failed(format!("cannot finish {}: {source}", self.path.display()));
        fs::rename(&self.temp, &self.path).map_err(refused)?;
        self.committed = true;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(refused)?;
        folder.sync_all().map_err(refused)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.committed {
            // A failure to remove the file is ignored: the command has failed already.
            let _left = fs::remove_file(&self.temp);
        }
    }
}

/// A writer that hashes the bytes and reports progress.
struct Counted<'a, W> {
    inner: W,
    err: &'a mut dyn Write,
    hash: &'a mut Option<Sha256>,
    progress: Progress,
    done: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        if let Some(hash) = self.hash {
            hash.update(&bytes[..written]);
        }
        self.done += written as u64;
        self.progress.report(self.done, self.err);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
