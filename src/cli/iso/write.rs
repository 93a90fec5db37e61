//! Writing an image out: to a file that appears whole or not at all, or to standard output.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iso9660::Plan;
use sha2::{Digest, Sha256};

use super::super::error::CliError;
use super::super::output::Output;

/// Nothing is said of what takes less time than this.
const QUIET: Duration = Duration::from_secs(2);
/// How often is said how far it got.
const EVERY: Duration = Duration::from_secs(1);

/// What was written.
pub(super) struct Written {
    pub(super) bytes: u64,
    /// In hex, if it was asked for.
    pub(super) sha256: Option<String>,
}

/// Writes a planned image to a path; `-` is standard output.
pub(super) fn image(
    plan: &Plan,
    path: &Path,
    digest: bool,
    output: &mut Output<'_>,
) -> Result<Written, CliError> {
    let mut hash = digest.then(Sha256::new);
    let progress = Progress { total: plan.len(), began: Instant::now(), said: None };
    let bytes = if path.as_os_str() == "-" {
        let (inner, err) = (&mut *output.out, &mut *output.err);
        let mut counted = Counted { inner, err, hash: &mut hash, progress, done: 0 };
        let bytes = plan.write_to(&mut counted).map_err(|error| unfinished(path, &error))?;
        counted.flush()?;
        bytes
    } else {
        let draft = Draft::create(path)?;
        let written = if hash.is_some() {
            let (inner, err) = (&draft.file, &mut *output.err);
            plan.write_to(&mut Counted { inner, err, hash: &mut hash, progress, done: 0 })
        } else {
            watched(plan, &draft.file, progress, output.err)
        };
        let bytes = written.map_err(|error| unfinished(path, &error))?;
        draft.keep()?;
        bytes
    };
    Ok(Written { bytes, sha256: hash.map(|hash| hex::encode(hash.finalize())) })
}

fn unfinished(path: &Path, error: &io::Error) -> CliError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return CliError::Output(io::Error::from(io::ErrorKind::BrokenPipe));
    }
    CliError::failed(format!("cannot write the image to {}: {error}; nothing is left of it", path.display()))
}

/// A file under another name until it is whole.
struct Draft {
    file: File,
    draft: PathBuf,
    path: PathBuf,
    kept: bool,
}

impl Draft {
    fn create(path: &Path) -> Result<Self, CliError> {
        let refused = |source: io::Error| {
            CliError::failed(format!("cannot make a file beside {}: {source}", path.display()))
        };
        let Some(name) = path.file_name() else {
            return Err(CliError::Usage(format!("{} does not name a file", path.display())));
        };
        let mut draft = std::ffi::OsString::from(".");
        draft.push(name);
        draft.push(format!(".{}.partial", std::process::id()));
        let draft = path.with_file_name(draft);
        let file = File::options().write(true).create_new(true).open(&draft).map_err(refused)?;
        Ok(Self { file, draft, path: path.to_owned(), kept: false })
    }

    fn keep(mut self) -> Result<(), CliError> {
        let refused =
            |source: io::Error| CliError::failed(format!("cannot finish {}: {source}", self.path.display()));
        self.file.sync_all().map_err(refused)?;
        fs::rename(&self.draft, &self.path).map_err(refused)?;
        self.kept = true;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(refused)?;
        folder.sync_all().map_err(refused)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept {
            // Nothing more can be done about a draft that does not go away.
            let _left = fs::remove_file(&self.draft);
        }
    }
}

/// Writes to a file the fastest way there is, on a thread of its own, while this one looks how far it got.
fn watched(plan: &Plan, file: &File, mut progress: Progress, err: &mut dyn Write) -> io::Result<u64> {
    std::thread::scope(|scope| {
        let (done, ended) = std::sync::mpsc::channel();
        let writer = scope.spawn(move || {
            let written = plan.write_to_file(file);
            // Nobody listens any more only when this function has ended.
            let _unheard = done.send(());
            written
        });
        while ended.recv_timeout(EVERY) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            progress.say(file.metadata().map_or(0, |found| found.len()), err);
        }
        writer.join().unwrap_or_else(|_| Err(io::Error::other("writing broke off")))
    })
}

struct Progress {
    total: u64,
    began: Instant,
    said: Option<Instant>,
}

impl Progress {
    /// Says how far it got, if it is time to.
    fn say(&mut self, done: u64, err: &mut dyn Write) {
        let now = Instant::now();
        if now < self.said.map_or(self.began + QUIET, |said| said + EVERY) {
            return;
        }
        self.said = Some(now);
        let percent = done.saturating_mul(100) / self.total.max(1);
        // A standard error nobody reads is no reason to fail.
        let _unread = writeln!(err, "{} of {} MiB written ({percent} %)", done >> 20, self.total >> 20);
    }
}

/// Hashes what passes and says how far it got.
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
        self.progress.say(self.done, self.err);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
