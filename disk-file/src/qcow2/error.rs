//! Why a qcow2 image is not read.

use std::io;

use crate::MAX_DISK;

/// Why a qcow2 image is not read, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Qcow2Error {
    /// The file cannot be read.
    #[error("reading the file: {0}")]
    File(#[from] io::Error),
    /// The file has another beginning.
    #[error("it is no qcow2 image")]
    Magic,
    /// The format is older or newer.
    #[error("it is of version {0}, and 2 and 3 are read; convert it: qemu-img convert -O qcow2 OLD NEW")]
    Version(u32),
    /// The header contradicts itself.
    #[error("the header is damaged: {0}; copy the file again")]
    Header(&'static str),
    /// The disk is too large.
    #[error("the disk has {0} bytes, and the largest that is read has {MAX_DISK}")]
    TooLarge(u64),
    /// The content depends on something that is not read.
    #[error("{0}")]
    NotSupported(&'static str),
    /// An incompatible feature has no name here.
    #[error(
        "it needs the incompatible features {0:#x}, which are not known; convert it with the QEMU that made it: qemu-img convert -O raw FILE disk.raw"
    )]
    UnknownFeatures(u64),
    /// A table names bytes behind the end of the file.
    #[error("{what} is at {offset} and the file ends at {length}: it is cut off; copy it again")]
    CutOff {
        /// The missing table or data.
        what: &'static str,
        /// The offset at which the table or data should be.
        offset: u64,
        /// The length of the file.
        length: u64,
    },
    /// An entry of a table has bits that no entry has.
    #[error("entry {number} of the {table} tables is damaged; `qemu-img check` says more")]
    Entry {
        /// L1 or L2.
        table: &'static str,
        /// The number of the entry.
        number: u64,
    },
    /// A packed cluster does not unpack to one cluster.
    #[error("the packed cluster at {at} is damaged: {reason}; `qemu-img check` says more")]
    Packed {
        /// The offset of the cluster in the file.
        at: u64,
        /// The reason.
        reason: String,
    },
}

impl From<Qcow2Error> for io::Error {
    fn from(error: Qcow2Error) -> Self {
        match error {
            Qcow2Error::File(source) => source,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}
