//! Reads a backup and compares it with its digests.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::copy::{digest_of, line_of, walk};
use super::error::{BackupError, file};
use super::names::{DATA, DATABASE, SUMMARY, SUMS};
use super::summary::{BackupSummary, FORMAT};
use super::work::Work;
use store::check_copy;

/// The longest `backup.json` that is read, in bytes.
pub(super) const SUMMARY_LENGTH: u64 = 64 << 20;

/// Reads every file of a backup and compares it with its digest; checks the database. Blocks on the disk.
///
/// # Errors
/// When the directory is not a backup, or a file of it is missing, damaged or not listed.
pub fn verify(backup: &Path) -> Result<BackupSummary, BackupError> {
    verify_as(backup, &Work::default())
}

/// [`verify`] as a part of the work of a controller.
pub(super) fn verify_as(backup: &Path, work: &Work) -> Result<BackupSummary, BackupError> {
    let summary = read_summary(backup)?;
    let damaged = |reason: String| BackupError::Damaged { reason };
    let mut files = 0;
    listed(backup, &summary, &mut |hex, relative| {
        files += 1;
        let path = backup.join(relative);
        match path.symlink_metadata() {
            Ok(found) if found.is_file() => {}
            // A disk that cannot be read, or is away, says nothing about the backup.
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(file("look at", &path)(error));
            }
            _ => return Err(damaged(format!("{} is missing", relative.display()))),
        }
        match digest_of(&path, work)? {
            (found, _) if found == hex => Ok(()),
            _ => Err(damaged(format!(
                "{} has other content than when the backup was made",
                relative.display()
            ))),
        }
    })?;
    let mut present: u64 = 0;
    walk(backup, Path::new(DATA), &mut |_| {
        present += 1;
        Ok(())
    })?;
    if present != files || files != summary.files {
        return Err(damaged(format!(
            "it has {present} files and lists {files}, and {} were backed up",
            summary.files
        )));
    }
    check_copy(&backup.join(DATABASE))?;
    Ok(summary)
}

/// Reads what a backup contains.
pub(super) fn read_summary(backup: &Path) -> Result<BackupSummary, BackupError> {
    let path = backup.join(SUMMARY);
    let refused = |reason: String| BackupError::NotABackup { path: backup.to_owned(), reason };
    let mut text = Vec::new();
    match File::open(&path) {
        Ok(found) => found.take(SUMMARY_LENGTH).read_to_end(&mut text).map_err(file("read", &path))?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(refused(format!("it has no {SUMMARY}")));
        }
        Err(error) => return Err(file("read", &path)(error)),
    };
    parse_summary(backup, &text)
}

/// The content of a `backup.json`. `backup` is the place for texts.
pub(super) fn parse_summary(backup: &Path, text: &[u8]) -> Result<BackupSummary, BackupError> {
    let refused = |reason: String| BackupError::NotABackup { path: backup.to_owned(), reason };
    let summary: BackupSummary =
        serde_json::from_slice(text).map_err(|error| refused(format!("{SUMMARY}: {error}")))?;
    match summary.format == FORMAT {
        true => Ok(summary),
        false => Err(refused(format!("it has format {}, and this program knows {FORMAT}", summary.format))),
    }
}

/// Calls `each` with the digest and path of every listed file. Compares the list with its digest at the end.
pub(super) fn listed(
    backup: &Path,
    summary: &BackupSummary,
    each: &mut dyn FnMut(&str, &Path) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let path = backup.join(SUMS);
    let damaged = |reason: String| BackupError::Damaged { reason };
    let mut lines = BufReader::new(File::open(&path).map_err(file("read", &path))?);
    let mut digest = Sha256::new();
    let mut line = String::new();
    while lines.read_line(&mut line).map_err(file("read", &path))? > 0 {
        digest.update(line.as_bytes());
        let (hex, relative) = line_of(line.trim_end_matches('\n'))
            .ok_or_else(|| damaged(format!("{SUMS} has an invalid line")))?;
        each(hex, relative)?;
        line.clear();
    }
    match hex::encode(digest.finalize()) == summary.sums_sha256 {
        true => Ok(()),
        false => Err(damaged(format!("{SUMS} has other content than when the backup was made"))),
    }
}
