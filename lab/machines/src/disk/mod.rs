//! The disk of a simulated machine: a sparse file with a real GPT and verifiable content.
//!
//! ```text
//! +-----------+------------------------------+---------------------------------------------+------------+
//! | MBR + GPT | EFI system partition         | Linux root partition                        | backup GPT |
//! |           | record "loader": what boots  | record "content": tar stream of the image   |            |
//! +-----------+------------------------------+---------------------------------------------+------------+
//! ```
//!
//! A partition holds no file system but one **record** (module `record`): a 4 KiB header, followed by a payload, at the
//! start of the partition. The payload of the root partition is the tar stream of the unpacked image. The payload of the
//! EFI system partition is a short text that names the root partition. The payload of a `cidata` partition is a tar stream
//! of the NoCloud files. The header is written last, so a disk holds no record if the power is cut during the write.
//!
//! [`verify`] reads the whole disk back and checks all hashes. A simulated machine boots only from a disk that verifies.
//! The virtual size is the size of a real disk; the file uses only the space that was written. Nothing is flushed to
//! stable storage: only the simulated machine loses power.
//!
//! See docs/maintenance-os.md.

mod record;
mod verify;

#[cfg(test)]
mod tests;

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use thiserror::Error;
use uuid::{Uuid, uuid};

pub use self::{
    record::{HEADER_BYTES, RecordKind, RecordWriter},
    verify::{Installed, verify},
};
use crate::gpt::{BACKUP_SECTORS, GptEntry, GptError, GptTable, PRIMARY_SECTORS, SECTOR};

/// Type GUID of an EFI system partition (alias ef00).
pub const EFI_SYSTEM: Uuid = uuid!("C12A7328-F81F-11D2-BA4B-00A0C93EC93B");
/// Type GUID of a Linux file system (alias 8300).
pub const LINUX_FILESYSTEM: Uuid = uuid!("0FC63DAF-8483-4772-8E79-3D69D8477DE4");
/// Type GUID of an x86-64 root partition of the Discoverable Partitions Specification.
pub const LINUX_ROOT_X86_64: Uuid = uuid!("4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709");
/// Name of the partition that receives the NoCloud files.
pub const CONFIG_DRIVE_NAME: &str = "cidata";

/// A disk could not be written, or its content is not valid.
#[derive(Debug, Error)]
pub enum DiskError {
    /// A file operation failed.
    #[error("{operation} {}", path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The disk file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The partition table is not valid.
    #[error(transparent)]
    Gpt(#[from] GptError),
    /// The disk was never written.
    #[error("the disk {} is blank", path.display())]
    Blank {
        /// The disk file.
        path: PathBuf,
    },
    /// A required partition is missing.
    #[error("the disk has no {what} partition")]
    NoPartition {
        /// The kind of partition.
        what: &'static str,
    },
    /// A record is missing or invalid.
    #[error("the {what} partition: {rule}")]
    Record {
        /// The kind of partition.
        what: &'static str,
        /// The rule that the record breaks.
        rule: String,
    },
}

/// A disk during an installation.
#[derive(Debug)]
pub struct DiskImage {
    file: File,
    path: PathBuf,
    bytes: u64,
    table: Option<GptTable>,
}

impl DiskImage {
    /// Creates or overwrites the disk file: a sparse file of `bytes` zeros.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, DiskError> {
        let io = |operation| move |source| DiskError::Io { operation, path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(io("creating the directory of disk"))?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(io("creating disk"))?;
        file.set_len(bytes).map_err(io("sizing disk"))?;
        Ok(Self { file, path: path.to_owned(), bytes, table: None })
    }

    /// Number of sectors of the disk.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.bytes / SECTOR
    }

    /// Writes both copies of the partition table.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write_table(&mut self, table: GptTable) -> Result<(), DiskError> {
        let encoded = table.encode();
        self.write_at(0, &encoded.primary, "writing the partition table of")?;
        self.write_at(encoded.backup_lba * SECTOR, &encoded.backup, "writing the backup partition table of")?;
        self.table = Some(table);
        Ok(())
    }

    /// The partition for the root file system.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub fn root(&self) -> Result<GptEntry, DiskError> {
        self.find(is_root, "Linux root")
    }

    /// The EFI system partition.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub fn efi_system(&self) -> Result<GptEntry, DiskError> {
        self.find(|entry| entry.type_guid == EFI_SYSTEM, "EFI system")
    }

    /// The partition named `cidata`, if the layout has one.
    #[must_use]
    pub fn config_drive(&self) -> Option<GptEntry> {
        self.find(|entry| entry.name == CONFIG_DRIVE_NAME, CONFIG_DRIVE_NAME).ok()
    }

    /// Starts the record of a partition. The record is valid after [`RecordWriter::finish`].
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened a second time.
    pub fn begin_record(&self, entry: &GptEntry, kind: RecordKind) -> Result<RecordWriter, DiskError> {
        let file = self.file.try_clone().map_err(|source| DiskError::Io {
            operation: "opening disk",
            path: self.path.clone(),
            source,
        })?;
        Ok(RecordWriter::new(file, entry, kind))
    }

    /// Writes a whole record.
    ///
    /// # Errors
    /// Returns an error if the payload does not fit or the file cannot be written.
    pub fn write_record(
        &self,
        entry: &GptEntry,
        kind: RecordKind,
        subject: &str,
        payload: &[u8],
    ) -> Result<(), DiskError> {
        let io =
            |source| DiskError::Io { operation: "writing a partition of", path: self.path.clone(), source };
        let mut writer = self.begin_record(entry, kind)?;
        writer.write_all(payload).map_err(io)?;
        writer.finish(subject, 1).map_err(io)
    }

    /// Writes the boot loader record. The firmware then finds the root partition.
    ///
    /// # Errors
    /// Returns an error if a partition is missing or the file cannot be written.
    pub fn write_loader(&self, image_digest: &str) -> Result<(), DiskError> {
        let text = verify::loader_text(self.root()?.unique_guid, image_digest);
        self.write_record(&self.efi_system()?, RecordKind::Loader, image_digest, text.as_bytes())
    }

    fn find(&self, wanted: impl Fn(&GptEntry) -> bool, what: &'static str) -> Result<GptEntry, DiskError> {
        let entries = self.table.as_ref().map(GptTable::entries).unwrap_or_default();
        entries.iter().find(|entry| wanted(entry)).cloned().ok_or(DiskError::NoPartition { what })
    }

    fn write_at(&self, offset: u64, bytes: &[u8], operation: &'static str) -> Result<(), DiskError> {
        self.file.write_all_at(bytes, offset).map_err(|source| DiskError::Io {
            operation,
            path: self.path.clone(),
            source,
        })
    }
}

/// Whether a partition can hold the root file system: it has a Linux type and is not the config drive.
fn is_root(entry: &GptEntry) -> bool {
    [LINUX_FILESYSTEM, LINUX_ROOT_X86_64].contains(&entry.type_guid) && entry.name != CONFIG_DRIVE_NAME
}

/// Reads the partition table of a disk file.
fn read_table(file: &File, path: &Path) -> Result<GptTable, DiskError> {
    let io =
        |source| DiskError::Io { operation: "reading the partition table of", path: path.to_owned(), source };
    let sectors = file.metadata().map_err(io)?.len() / SECTOR;
    if sectors < PRIMARY_SECTORS + BACKUP_SECTORS {
        return Err(DiskError::Blank { path: path.to_owned() });
    }
    let mut primary = vec![0u8; (PRIMARY_SECTORS * SECTOR) as usize];
    file.read_exact_at(&mut primary, 0).map_err(io)?;
    if primary.iter().all(|byte| *byte == 0) {
        return Err(DiskError::Blank { path: path.to_owned() });
    }
    let mut backup = vec![0u8; (BACKUP_SECTORS * SECTOR) as usize];
    file.read_exact_at(&mut backup, (sectors - BACKUP_SECTORS) * SECTOR).map_err(io)?;
    Ok(GptTable::decode(&primary, &backup, sectors)?)
}
