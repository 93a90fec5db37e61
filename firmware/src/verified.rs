//! The check before a file is sent: the bytes have the recorded digest and size.
//!
//! ```text
//!   open file + FirmwareFile --check: read and hash all of it--> VerifiedFirmware --read_at--> BMC
//!                                     |
//!                                     +--> VerifyError: nothing was sent
//! ```
//!
//! Invariant: only [`VerifiedFirmware::check`] and [`VerifiedFirmware::check_bytes`] make a [`VerifiedFirmware`], and it reads from
//! what was hashed. The files of a registry are replaced, never written, so the open file keeps its bytes. A simulation on virtual
//! time has its files in memory, because reading a disk needs a thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::file::{FileName, FirmwareFile, Sha256Digest};

const PIECE: usize = 1 << 20;

/// Why a file must not be sent to a BMC.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The bytes are not those that were recorded.
    #[error(
        "the stored bytes of {name} have SHA-256 {actual}, not {expected}: nothing was sent; add the file again and run \
         `shoal registry scrub --online`"
    )]
    OtherBytes {
        /// The file.
        name: FileName,
        /// The recorded digest.
        expected: Sha256Digest,
        /// The digest of the bytes.
        actual: Sha256Digest,
    },
    /// The length is not the recorded one.
    #[error("{name} has {actual} bytes, not {expected}: nothing was sent; add the file again")]
    OtherSize {
        /// The file.
        name: FileName,
        /// The recorded length.
        expected: u64,
        /// The length of the file.
        actual: u64,
    },
    /// The file cannot be read.
    #[error("read {name} to verify it; nothing was sent")]
    Read {
        /// The file.
        name: FileName,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

/// The bytes of a firmware file, after they were hashed.
#[derive(Clone, Debug)]
pub struct VerifiedFirmware {
    place: Place,
    of: FirmwareFile,
}

/// Where the bytes are.
#[derive(Clone, Debug)]
enum Place {
    Disk(Arc<File>),
    Memory(Arc<[u8]>),
}

impl VerifiedFirmware {
    /// Reads the whole file and compares digest and size with the recorded ones. Blocks on the disk.
    ///
    /// # Errors
    /// [`VerifyError`]; the file must not be sent then.
    pub fn check(file: Arc<File>, of: FirmwareFile) -> Result<Self, VerifyError> {
        let name = || of.filename.clone();
        let failed = |source| VerifyError::Read { name: name(), source };
        let length = file.metadata().map_err(failed)?.len();
        if length != of.size {
            return Err(VerifyError::OtherSize { name: name(), expected: of.size, actual: length });
        }
        let mut hasher = Sha256::new();
        let mut piece = vec![0; PIECE];
        let mut offset = 0;
        while offset < length {
            let most = usize::try_from(length - offset).map_or(PIECE, |rest| rest.min(PIECE));
            match file.read_at(&mut piece[..most], offset) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(&piece[..read]);
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let actual = Sha256Digest::new(hasher.finalize().into());
        if actual != of.sha256 {
            return Err(VerifyError::OtherBytes { name: name(), expected: of.sha256, actual });
        }
        Ok(Self { place: Place::Disk(file), of })
    }

    /// Hashes bytes in memory and compares digest and size with the recorded ones.
    ///
    /// # Errors
    /// [`VerifyError`]; the bytes must not be sent then.
    pub fn check_bytes(bytes: Arc<[u8]>, of: FirmwareFile) -> Result<Self, VerifyError> {
        let name = || of.filename.clone();
        let length = bytes.len() as u64;
        if length != of.size {
            return Err(VerifyError::OtherSize { name: name(), expected: of.size, actual: length });
        }
        let actual = Sha256Digest::new(Sha256::digest(&bytes).into());
        if actual != of.sha256 {
            return Err(VerifyError::OtherBytes { name: name(), expected: of.sha256, actual });
        }
        Ok(Self { place: Place::Memory(bytes), of })
    }

    /// The bytes, if they are in memory.
    pub fn in_memory(&self) -> Option<&[u8]> {
        match &self.place {
            Place::Disk(_) => None,
            Place::Memory(bytes) => Some(bytes),
        }
    }

    /// The description of the file: vendor, models, component, version, digest and size.
    pub fn file(&self) -> &FirmwareFile {
        &self.of
    }

    /// The file that was hashed, open; `None` for bytes in memory.
    pub fn opened(&self) -> Option<&Arc<File>> {
        match &self.place {
            Place::Disk(file) => Some(file),
            Place::Memory(_) => None,
        }
    }

    /// Reads bytes at an offset; returns how many, 0 at the end. Blocks on the disk.
    ///
    /// # Errors
    /// The error of the system.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(self.of.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        if rest == 0 {
            // An offset that the system cannot express is beyond the end too.
            return Ok(0);
        }
        let most = buffer.len().min(rest);
        match &self.place {
            Place::Disk(file) => file.read_at(&mut buffer[..most], offset),
            Place::Memory(bytes) => {
                // `rest` is not zero, so the offset is inside.
                let from = usize::try_from(offset).unwrap_or(bytes.len());
                let part = bytes.get(from..from + most).unwrap_or_default();
                buffer[..part.len()].copy_from_slice(part);
                Ok(part.len())
            }
        }
    }
}
