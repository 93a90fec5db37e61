//! An image that is being imported into the library.
//!
//! ```text
//! incoming-<uuid>  0600   write: hash, count, look for CD001 ──finish──> fsync, 0400, seal ──rename──> <sha256>.iso ──> fsync dir
//!        `── dropped before that: removed;  left by a crash: removed when the library is opened
//! ```
//!
//! Invariants: a file named by 64 hexadecimal digits and `.iso` contains complete, durable bytes with that digest; at most
//! the limit is written; all functions block and run on threads that may block.
//!
//! The seal is the nanosecond part of the modification time and is derived from the digest. A later write to the file
//! changes the modification time and breaks the seal. After a restart only images with a broken seal are hashed again;
//! hashing takes many seconds on a slow disk, during which a BMC would wait.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::super::body::ImageDigest;
use super::{ImportError, ImportedImage};
use model::failpoint::hit_file;

/// The prefix of the names of incomplete files.
pub(super) const PREFIX: &str = "incoming-";
/// The standard identifier of the first volume descriptor: sector 16, after the type byte (ECMA-119, 8.1.2).
const IDENTIFIER: &[u8; 5] = b"CD001";
const IDENTIFIER_OFFSET: u64 = 16 * 2048 + 1;

/// An incomplete image file.
pub(super) struct PartialImage {
    file: File,
    path: PathBuf,
    hasher: Sha256,
    len: u64,
    limit: u64,
    recognised: bool,
    finished: bool,
}

impl PartialImage {
    /// Creates an empty file in `dir` for at most `limit` bytes.
    pub(super) fn create(dir: &Path, limit: u64) -> Result<Self, ImportError> {
        let path = dir.join(format!("{PREFIX}{}", Uuid::new_v4().simple()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(ImportError::store("create a file"))?;
        Ok(Self { file, path, hasher: Sha256::new(), len: 0, limit, recognised: false, finished: false })
    }

    /// Appends `bytes`.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), ImportError> {
        let len = self.len.saturating_add(bytes.len() as u64);
        if len > self.limit {
            return Err(ImportError::TooLarge { limit: self.limit });
        }
        self.file.write_all(bytes).map_err(ImportError::store("write a file"))?;
        self.hasher.update(bytes);
        self.len = len;
        if !self.recognised && len >= IDENTIFIER_OFFSET + IDENTIFIER.len() as u64 {
            self.recognise()?;
        }
        Ok(())
    }

    /// Checks the identifier of the volume descriptor as soon as it is written, so that other files are refused before
    /// gigabytes are transferred.
    fn recognise(&mut self) -> Result<(), ImportError> {
        let mut identifier = [0; IDENTIFIER.len()];
        self.file
            .read_exact_at(&mut identifier, IDENTIFIER_OFFSET)
            .map_err(ImportError::store("read back a file"))?;
        self.recognised = identifier == *IDENTIFIER;
        if self.recognised { Ok(()) } else { Err(ImportError::NotAnImage) }
    }

    /// Discards all bytes written so far.
    pub(super) fn restart(&mut self) -> Result<(), ImportError> {
        *self = Self::create(self.path.parent().unwrap_or(Path::new(".")), self.limit)?;
        Ok(())
    }

    /// Makes the complete file durable and renames it to its digest.
    pub(super) fn finish(mut self, dir: &Path) -> Result<ImportedImage, ImportError> {
        if !self.recognised {
            return Err(ImportError::NotAnImage);
        }
        let digest = ImageDigest::new(self.hasher.finalize_reset().into());
        let path = image_path(dir, digest);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        hit_file("write", "library.iso");
        let sealed = SystemTime::UNIX_EPOCH + Duration::new(now.as_secs(), seal(digest));
        self.file
            .set_permissions(Permissions::from_mode(0o400))
            .and_then(|()| self.file.set_modified(sealed))
            .and_then(|()| self.file.sync_all())
            .map_err(ImportError::store("make a file durable"))?;
        hit_file("synced", "library.iso");
        // An existing image is replaced by the same bytes: this repairs an image that was damaged on the disk, and readers
        // that have it open keep the old file.
        std::fs::rename(&self.path, &path).map_err(ImportError::store("rename a file"))?;
        self.finished = true;
        hit_file("renamed", "library.iso");
        File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(ImportError::store("make the directory durable"))?;
        hit_file("kept", "library.iso");
        Ok(ImportedImage { digest, len: self.len, path })
    }
}

impl Drop for PartialImage {
    fn drop(&mut self) {
        if !self.finished {
            // If the removal fails, the next start of the library removes the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The path of the image with this digest.
pub(super) fn image_path(dir: &Path, digest: ImageDigest) -> PathBuf {
    dir.join(format!("{}.iso", digest.to_hex()))
}

/// Whether a file with this modification time was not written to since it was hashed to `digest`.
pub(super) fn is_sealed(modified: SystemTime, digest: ImageDigest) -> bool {
    modified.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since.subsec_nanos() == seal(digest))
}

/// The seal of a digest. Never zero, because file systems without nanoseconds return zero for every file.
fn seal(digest: ImageDigest) -> u32 {
    let [a, b, c, d, ..] = *digest.as_bytes();
    u32::from_be_bytes([a, b, c, d]) % 999_999_999 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(filling: u8) -> Vec<u8> {
        let mut bytes = vec![filling; 40_960];
        bytes[IDENTIFIER_OFFSET as usize..][..5].copy_from_slice(IDENTIFIER);
        bytes
    }

    fn names(dir: &Path) -> Vec<String> {
        std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_finished_image_is_read_only_sealed_and_named_by_its_digest() {
        let dir = tempfile::tempdir().unwrap();
        let mut partial = PartialImage::create(dir.path(), 1 << 20).unwrap();
        let bytes = image(7);
        for part in bytes.chunks(1000) {
            partial.write(part).unwrap();
        }
        let done = partial.finish(dir.path()).unwrap();
        assert_eq!(done.digest, ImageDigest::of(&bytes).unwrap());
        assert_eq!(std::fs::read(&done.path).unwrap(), bytes);
        assert_eq!(names(dir.path()), [format!("{}.iso", done.digest.to_hex())]);
        let metadata = std::fs::metadata(&done.path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o400);
        assert!(is_sealed(metadata.modified().unwrap(), done.digest));
        assert!(!is_sealed(SystemTime::UNIX_EPOCH, done.digest));
    }

    #[test]
    fn a_file_that_is_no_iso_image_is_refused_at_sector_sixteen_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut partial = PartialImage::create(dir.path(), 1 << 20).unwrap();
        partial.write(&[0; 32_768]).unwrap();
        assert!(matches!(partial.write(&[0; 2048]), Err(ImportError::NotAnImage)));
        drop(partial);
        let short = PartialImage::create(dir.path(), 1 << 20).unwrap();
        assert!(matches!(short.finish(dir.path()), Err(ImportError::NotAnImage)));
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn an_image_over_the_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut partial = PartialImage::create(dir.path(), 40_000).unwrap();
        assert!(matches!(partial.write(&image(1)), Err(ImportError::TooLarge { limit: 40_000 })));
    }

    #[test]
    fn a_restart_discards_the_bytes_written_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut partial = PartialImage::create(dir.path(), 1 << 20).unwrap();
        partial.write(&image(1)).unwrap();
        partial.restart().unwrap();
        partial.write(&image(2)).unwrap();
        assert_eq!(partial.finish(dir.path()).unwrap().digest, ImageDigest::of(&image(2)).unwrap());
        assert_eq!(names(dir.path()).len(), 1);
    }
}
