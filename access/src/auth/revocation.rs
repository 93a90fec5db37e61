//! Certificate revocation lists for the client certificates of reports (`REPORT_CLIENT_CRL_FILE`).
//!
//! ```text
//!  file, read at the start ──> lists in force ──> the file differs, unchanged for one check ──> read ──+── usable: in force
//!                                    ^                                                                 `── not: log
//!                                    `───────────────────────────── the former lists stay ──────────────────┘
//! ```
//!
//! Invariants: with the setting, a certificate is accepted only if a list that its issuer signed covers it and has not
//! expired; this holds for every certificate of the chain but the authority itself. A file that cannot be used changes nothing.
//!
//! RFC 5280 sections 5 and 6.3. Delta and indirect lists are refused by the TLS library.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

/// The maximum size of the file: some 400,000 revoked certificates.
const MAX_BYTES: u64 = 16 << 20;
/// The maximum of lists in the file.
const MAX_LISTS: usize = 64;

/// `REPORT_CLIENT_CRL_FILE` cannot be used.
#[derive(Debug, Error)]
pub enum RevocationListsError {
    /// The file cannot be read.
    #[error("cannot read {}; make it a readable file of at most 16 MiB", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file contains no list, too many, or something else.
    #[error("{} contains not 1 to {MAX_LISTS} certificate revocation lists in PEM, or one in DER", path.display())]
    Lists {
        /// The file.
        path: PathBuf,
    },
    /// The TLS library refuses a list, or the authorities with it.
    #[error("a list in {} cannot be used", path.display())]
    Verifier {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::server::VerifierBuilderError,
    },
}

/// The stamp of a file, which differs when the file has been replaced or written; `None` for a file that cannot be read.
type Stamp = Option<(u64, u64, i64, i64, i64)>;

/// The file of the lists.
#[derive(Debug)]
pub(super) struct RevocationFile {
    path: PathBuf,
    /// The stamp of the file that was read last, usable or not, and the one that was seen last.
    read: Stamp,
    seen: Stamp,
}

impl RevocationFile {
    /// A file that was not read yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, read: None, seen: None }
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the lists.
    pub(super) fn read(
        &mut self,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, RevocationListsError> {
        self.read = stamp(&self.path);
        self.seen = self.read;
        lists_in(&self.path)
    }

    /// Whether the file differs from the one that was read, and was the same at the check before: a file that is being written is
    /// not read.
    pub(super) fn has_settled(&mut self) -> bool {
        let now = stamp(&self.path);
        let settled = now.is_some() && now != self.read && now == self.seen;
        self.seen = now;
        settled
    }
}

/// The lists of a file, in PEM, or one in DER.
///
/// # Errors
/// When the file cannot be read, or contains anything else.
pub fn lists_in(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, RevocationListsError> {
    let failed = |source| RevocationListsError::Read { path: path.to_owned(), source };
    // Checked before the open, because opening a pipe would wait for a writer.
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(failed(io::Error::other("it is not a file of at most 16 MiB")));
    }
    let mut content = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_BYTES).read_to_end(&mut content).map_err(failed)?;
    let unusable = || RevocationListsError::Lists { path: path.to_owned() };
    // A list in DER is a SEQUENCE, which no text begins with.
    if content.first() == Some(&0x30) {
        return Ok(vec![CertificateRevocationListDer::from(content)]);
    }
    let found: Vec<_> = CertificateRevocationListDer::pem_slice_iter(&content)
        .take(MAX_LISTS + 1)
        .collect::<Result<_, _>>()
        .map_err(|_| unusable())?;
    if found.is_empty() || found.len() > MAX_LISTS { Err(unusable()) } else { Ok(found) }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ctime_nsec()))
}
