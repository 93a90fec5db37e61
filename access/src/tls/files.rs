//! Files of certificates and keys: read with a limit, written whole and for this user only.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use super::error::TlsError;

/// The maximum size of a file of certificates or of a key.
const MAX_BYTES: u64 = 1 << 20;
/// The maximum of certificates of one chain.
const MAX_CHAIN: usize = 16;

/// Reads a regular file.
pub(super) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    // Checked before the open, because opening a pipe would wait for a writer.
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(failed(io::Error::other("it is not a file of at most 1 MiB")));
    }
    let mut content = Zeroizing::new(Vec::new());
    File::open(path).map_err(failed)?.take(MAX_BYTES).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}

/// Reads a file that may be absent.
pub(super) fn read_if_present(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, TlsError> {
    match read(path) {
        Ok(content) => Ok(Some(content)),
        Err(TlsError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces a file, readable by this user only. The content is on disk when the name is.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<(), TlsError> {
    let failed = |source| TlsError::Write { path: path.to_owned(), source };
    let partial = path.with_extension("partial");
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        // A former partial file may have another mode.
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    write().map_err(failed)
}

/// Creates a directory that only this user can open.
pub(super) fn create_directory(path: &Path) -> Result<(), TlsError> {
    let failed = |source| TlsError::Write { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)
}

/// The certificates of a PEM text, the first one first.
pub(super) fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem).take(MAX_CHAIN).collect::<Result<_, _>>().ok()?;
    (!found.is_empty()).then_some(found)
}

/// The private key of a PEM text.
pub(super) fn private_key(pem: &[u8]) -> Option<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem).ok()
}

/// The stamp of a file, which differs when the file has been replaced or written; `None` for a file that cannot be read.
pub(super) type Stamp = Option<(u64, u64, i64, i64, i64)>;

/// The stamp of a file.
pub(super) fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ctime_nsec()))
}
