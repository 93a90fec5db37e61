//! The audit log as a file of JSON lines, and the offline check of such a file or of a database.
//!
//! ```text
//!   {"format":"shoal-audit-1","anchor":"SEQ:HASH","head":"SEQ:HASH"}      what the first entry follows; the last entry
//!   {"seq":…,…,"previous":"…","hash":"…"}                                 one line per entry
//! ```
//!
//! Invariant: memory is constant; a line of a foreign file is read up to [`MAX_LINE`] bytes.

use std::io::{self, BufRead, Read as _, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{AuditFile, StoreError};
use model::audit::{AuditEntry, AuditHead, ChainCheck, ChainFault, ChainSummary, KnownHead};
use model::error_chain;

/// The format of an export.
const FORMAT: &str = "shoal-audit-1";
/// The longest line of an export. An entry is shorter: its texts are bounded.
const MAX_LINE: u64 = 64 << 10;

/// The first line of an export.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportHeader {
    format: String,
    anchor: String,
    head: String,
}

/// Why an audit log was not written to a file.
#[derive(Debug, Error)]
pub enum AuditExportError {
    /// The database could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file could not be written.
    #[error("write the audit log")]
    Write(#[from] io::Error),
}

/// Why an audit log could not be verified.
#[derive(Debug, Error)]
pub enum AuditVerifyError {
    /// The log is not the one that was recorded.
    #[error(transparent)]
    Fault(#[from] ChainFault),
    /// An entry cannot be read.
    #[error("entry {seq} cannot be read: {reason}")]
    Unreadable {
        /// The number that the entry should have.
        seq: u64,
        /// The fault of the entry, in words.
        reason: String,
    },
    /// The file is not an export.
    #[error("the file is no database and no export of an audit log: {0}")]
    NoExport(String),
    /// The database could not be opened or read.
    #[error("the audit log cannot be read")]
    Store(#[from] StoreError),
    /// The file could not be read.
    #[error("read the file")]
    Read(#[from] io::Error),
}

impl AuditVerifyError {
    /// Whether the log was read and is broken, in contrast to a log that could not be read.
    pub fn is_broken(&self) -> bool {
        matches!(self, Self::Fault(_) | Self::Unreadable { .. } | Self::NoExport(_))
    }
}

/// Writes the audit log of a database as lines. Returns its head. Blocks on the disk.
///
/// # Errors
/// When the database cannot be read or the lines cannot be written.
pub fn write_export(file: &AuditFile, out: &mut impl Write) -> Result<AuditHead, AuditExportError> {
    let header = ExportHeader {
        format: FORMAT.to_owned(),
        anchor: file.anchor.to_string(),
        head: file.head.to_string(),
    };
    let header = serde_json::to_string(&header).map_err(io::Error::from)?;
    writeln!(out, "{header}")?;
    file.each(|entry| writeln!(out, "{}", entry.to_line()).map_err(AuditExportError::from))?;
    out.flush()?;
    Ok(file.head)
}

/// Verifies the audit log of a database file, also while a controller uses it. Blocks on the disk.
///
/// # Errors
/// When the log is broken or cannot be read.
pub fn verify_database(database: &Path, known: Option<KnownHead>) -> Result<ChainSummary, AuditVerifyError> {
    let file = AuditFile::open(database)?;
    let mut check = ChainCheck::new(file.anchor, known);
    let mut next = file.anchor.seq + 1;
    let read = file.each(|entry| {
        check.next(entry)?;
        next = entry.seq + 1;
        Ok(())
    });
    match read {
        Err(AuditVerifyError::Store(error @ StoreError::Corrupt { .. })) => {
            Err(AuditVerifyError::Unreadable { seq: next, reason: error_chain(&error).to_string() })
        }
        Err(other) => Err(other),
        Ok(()) => Ok(check.finish()?),
    }
}

/// Verifies an export. It must end with the entry that its first line names.
///
/// # Errors
/// When the export is broken or cannot be read.
pub fn verify_export(
    mut file: impl BufRead,
    known: Option<KnownHead>,
) -> Result<ChainSummary, AuditVerifyError> {
    let no_export = |reason: &str| AuditVerifyError::NoExport(reason.to_owned());
    let first = line(&mut file)?.ok_or_else(|| no_export("it is empty"))?;
    let header: ExportHeader = first
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .filter(|header: &ExportHeader| header.format == FORMAT)
        .ok_or_else(|| no_export("its first line is not the one that shoal audit export writes"))?;
    let head = |text: &str| text.parse::<AuditHead>().map_err(|why| no_export(&why));
    let (anchor, last) = (head(&header.anchor)?, head(&header.head)?);
    let mut check = ChainCheck::new(anchor, known);
    let mut seq = anchor.seq;
    while let Some(text) = line(&mut file)? {
        let unreadable = |reason| AuditVerifyError::Unreadable { seq: seq.saturating_add(1), reason };
        let entry = text.and_then(|text| AuditEntry::of_line(&text)).map_err(unreadable)?;
        check.next(&entry)?;
        seq = entry.seq;
    }
    let summary = check.finish()?;
    if summary.head.seq < last.seq {
        return Err(ChainFault::Truncated { seq: last.seq, last: summary.head.seq }.into());
    }
    if summary.head != last {
        return Err(ChainFault::Rewritten { seq: last.seq }.into());
    }
    Ok(summary)
}

/// The head of an earlier export, from its first line.
///
/// # Errors
/// When the file cannot be read or is no export.
pub fn head_of_export(mut file: impl BufRead) -> Result<AuditHead, AuditVerifyError> {
    let refused = || AuditVerifyError::NoExport("its first line names no head".to_owned());
    let text = line(&mut file)?.and_then(Result::ok).ok_or_else(refused)?;
    let header: ExportHeader = serde_json::from_str(&text).map_err(|_| refused())?;
    header.head.parse().map_err(|_| refused())
}

/// The next line without its line feed; `None` at the end of the file. The inner error is a line that cannot be one.
fn line(file: &mut impl BufRead) -> io::Result<Option<Result<String, String>>> {
    let mut bytes = Vec::new();
    if file.take(MAX_LINE).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.pop() != Some(b'\n') {
        return Ok(Some(Err("its line is too long or has no end".to_owned())));
    }
    Ok(Some(String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())))
}
