//! `shoal iso extract`.
//!
//! ```text
//!  walk --> new directories and files --> symbolic links --> modes of directories
//! ```
//!
//! Invariants: nothing is written outside the given directory, because existing entries are never followed or overwritten and
//! links are created after the last file; nothing is written when the disk has too little space.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use iso9660::{Entry, EntryKind, FileSource, Image, ReadAt};
use serde_json::json;

use super::super::error::CliError;
use super::super::output::{Output, plain};

/// The buffer size of a copy, in bytes.
const BUFFER_SIZE: usize = 1 << 20;
/// The interval of progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Arguments of `shoal iso extract`.
#[derive(Args, Debug)]
pub(in crate::cli) struct ExtractArgs {
    /// The image
    image: PathBuf,
    /// The directory or file in it
    #[arg(default_value = "/")]
    path: String,
    /// The directory to write to; it is created if needed, and existing files in it are never overwritten
    #[arg(long, short, value_name = "DIRECTORY")]
    output: PathBuf,
}

#[derive(Default)]
struct Done {
    files: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    skipped: u64,
}

impl ExtractArgs {
    pub(super) fn run(self, output: &mut Output<'_>) -> Result<(), CliError> {
        let image = super::open(&self.image)?;
        let wanted = self.path.trim_matches('/');
        let entries = entries(&image, wanted)?;
        let bytes = entries.iter().filter(|found| found.entry.is_file()).map(|found| found.entry.len);
        let bytes = bytes.fold(0_u64, u64::saturating_add);
        fs::create_dir_all(&self.output).map_err(|error| refused(&self.output, &error))?;
        room_for(bytes, &self.output)?;
        let mut done = Done::default();
        let (mut links, mut directories) = (Vec::new(), Vec::new());
        let mut last_message = Instant::now();
        for Found { relative, inside, entry } in &entries {
            let target = self.output.join(checked(relative)?);
            match &entry.kind {
                EntryKind::Directory => {
                    fs::create_dir(&target).map_err(|error| refused(&target, &error))?;
                    directories.push((target, entry));
                    done.directories += 1;
                }
                EntryKind::File => {
                    copy(&image, inside, entry, &target)?;
                    done.files += 1;
                    done.bytes += entry.len;
                }
                EntryKind::Symlink(to) => links.push((target, to.clone())),
                _ => {
                    output.note(format!("skipped {}: not a file, directory or link", plain(relative)));
                    done.skipped += 1;
                }
            }
            if last_message.elapsed() >= PROGRESS_INTERVAL {
                last_message = Instant::now();
                output.note(format!("{} of {} MiB extracted", done.bytes >> 20, bytes >> 20));
            }
        }
        for (target, to) in links {
            std::os::unix::fs::symlink(&to, &target).map_err(|error| refused(&target, &error))?;
            done.links += 1;
        }
        // The deepest directory first: a directory loses its write permission after all its entries exist.
        for (target, entry) in directories.into_iter().rev() {
            if let Some(mode) = entry.mode {
                let mode = Permissions::from_mode((mode & 0o777) | 0o700);
                fs::set_permissions(&target, mode).map_err(|error| refused(&target, &error))?;
            }
        }
        let Done { files, directories, links, bytes, skipped } = done;
        if output.json {
            return output.document(&json!({
                "directory": self.output, "files": files, "directories": directories, "links": links,
                "bytes": bytes, "skipped": skipped,
            }));
        }
        output.line(format!(
            "{}: {files} files, {directories} directories, {links} links, {bytes} bytes",
            self.output.display()
        ))
    }
}

/// An entry to extract.
struct Found {
    /// The path below the output directory.
    relative: String,
    /// The path in the image.
    inside: String,
    entry: Entry,
}

/// The entries at and below a path of the image, parents before their children.
fn entries(image: &Image<FileSource>, wanted: &str) -> Result<Vec<Found>, CliError> {
    let top = image.lookup(wanted).map_err(|error| super::failed(&error))?;
    if !top.is_dir() {
        let relative = wanted.rsplit('/').next().unwrap_or(wanted).to_owned();
        return Ok(vec![Found { relative, inside: wanted.to_owned(), entry: top }]);
    }
    let mut entries = Vec::new();
    let prefix = if wanted.is_empty() { String::new() } else { format!("{wanted}/") };
    image
        .walk(|path, entry| {
            if let Some(relative) = path.strip_prefix(&prefix) {
                let (relative, inside) = (relative.to_owned(), path.to_owned());
                entries.push(Found { relative, inside, entry: entry.clone() });
            }
            ControlFlow::Continue(())
        })
        .map_err(|error| super::failed(&error))?;
    entries.sort_by(|left, right| left.relative.cmp(&right.relative));
    Ok(entries)
}

/// A relative path whose segments are plain names. The names come from the image and are not trusted.
fn checked(relative: &str) -> Result<&Path, CliError> {
    let names = relative.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.contains('\0'));
    if names {
        return Ok(Path::new(relative));
    }
    Err(CliError::failed(format!(
        "the image contains the name {:?}, which is not a valid file name",
        plain(relative)
    )))
}

fn copy(image: &Image<FileSource>, from: &str, entry: &Entry, target: &Path) -> Result<(), CliError> {
    let file = image.reader(entry, from).map_err(|error| super::failed(&error))?;
    let mut to =
        File::options().write(true).create_new(true).open(target).map_err(|error| refused(target, &error))?;
    let mut buffer = vec![0; BUFFER_SIZE.min(usize::try_from(file.len()).unwrap_or(BUFFER_SIZE).max(1))];
    let mut offset = 0;
    while offset < file.len() {
        let length = usize::try_from(file.len() - offset).unwrap_or(BUFFER_SIZE).min(buffer.len());
        let buffer = &mut buffer[..length];
        file.read_exact_at(offset, buffer).map_err(|error| {
            CliError::failed(format!("cannot read {} from the image: {error}", plain(from)))
        })?;
        to.write_all(buffer).map_err(|error| refused(target, &error))?;
        offset += length as u64;
    }
    if let Some(mode) = entry.mode {
        let mode = Permissions::from_mode((mode & 0o777) | 0o600);
        to.set_permissions(mode).map_err(|error| refused(target, &error))?;
    }
    let modified = entry.modified.and_then(|seconds| u64::try_from(seconds).ok());
    if let Some(modified) =
        modified.and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))
    {
        to.set_modified(modified).map_err(|error| refused(target, &error))?;
    }
    Ok(())
}

fn refused(path: &Path, error: &io::Error) -> CliError {
    let hint = match error.kind() {
        io::ErrorKind::AlreadyExists => "; extract to an empty directory",
        _ => "",
    };
    CliError::failed(format!("cannot write {}: {error}{hint}", plain(&path.display().to_string())))
}

fn room_for(bytes: u64, folder: &Path) -> Result<(), CliError> {
    let Ok(room) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    if bytes <= free {
        return Ok(());
    }
    Err(CliError::failed(format!(
        "the files need {bytes} bytes, but {} has {free} bytes free",
        folder.display()
    )))
}
