//! The notes of a splice: changes besides the added files.

use std::fmt;

/// A partition table format.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PartitionTable {
    /// The Master Boot Record.
    Mbr,
    /// The GUID Partition Table.
    Gpt,
}

/// A change besides the added files, an unchanged structure, or a difference that some readers see.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SpliceNote {
    /// The `implantisomd5` record was blanked, because its checksum does not match the new image.
    MediaCheckBlanked,
    /// The checksums that xorriso stores for descriptors, trees and session were blanked; those of files are unchanged.
    ChecksumTagsBlanked,
    /// The replaced path tables and root directories were zeroed.
    OrphansZeroed {
        /// The number of zeroed bytes.
        bytes: u64,
    },
    /// A partition that covered the volume was extended with it.
    PartitionGrown {
        /// The partition table.
        table: PartitionTable,
        /// The number of the partition, from 1.
        number: usize,
        /// The new length in 512-byte sectors.
        sectors: u64,
    },
    /// A partition that begins with the volume could not be extended because another one follows it.
    PartitionKept {
        /// The partition table.
        table: PartitionTable,
        /// The number of the partition, from 1.
        number: usize,
    },
    /// The backup of the GPT was moved to the new end.
    BackupGptMoved {
        /// The previous 512-byte sector of the backup header.
        from: u64,
        /// The new 512-byte sector of the backup header.
        to: u64,
    },
    /// The GPT has a wrong checksum or address, so firmware ignores it; it was not changed.
    BrokenGptKept {
        /// The offset of the error in bytes.
        offset: u64,
    },
    /// The image has an Apple partition map, which was not changed and does not cover the added bytes.
    AppleMapKept,
    /// A partition contains descriptors of a second volume, whose trees do not show the added files.
    PartitionVolumeKept {
        /// The sector of the first descriptor.
        sector: u64,
    },
    /// A boot entry has no length: UEFI firmware that reads it to the end of the volume now reads more.
    BootImageReachesFurther {
        /// The number of the entry in the catalog, from 0.
        number: usize,
    },
    /// An existing directory was replaced in this tree. The bytes of its files are still in the image.
    DirectoryReplaced {
        /// `primary`, `Joliet` or `enhanced`.
        tree: &'static str,
    },
    /// A file was replaced. Its old bytes are still in the image, and hard links still refer to them.
    FileReplaced {
        /// The path of the file.
        path: String,
    },
    /// The root directory of a tree had no room and is now after the data. Programs that read an image from its
    /// beginning to its end (libarchive, even from a file) then skip the directories before it. Firmware, kernels and
    /// programs that seek are not affected.
    RootMoved {
        /// `primary`, `Joliet` or `enhanced`.
        tree: &'static str,
    },
}

impl fmt::Display for SpliceNote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpliceNote::MediaCheckBlanked => formatter.write_str("the implantisomd5 record was blanked"),
            SpliceNote::ChecksumTagsBlanked => {
                formatter.write_str("the checksums that xorriso keeps of the trees were blanked")
            }
            SpliceNote::OrphansZeroed { bytes } => {
                write!(formatter, "{bytes} bytes of replaced path tables and root directories were zeroed")
            }
            SpliceNote::PartitionGrown { table, number, sectors } => {
                write!(formatter, "{table} partition {number} was extended to {sectors} sectors")
            }
            SpliceNote::PartitionKept { table, number } => write!(
                formatter,
                "{table} partition {number} kept its size, because another one follows; mounted alone it does not show \
                 what was added"
            ),
            SpliceNote::BackupGptMoved { from, to } => {
                write!(formatter, "the backup GPT moved from sector {from} to sector {to}")
            }
            SpliceNote::BrokenGptKept { offset } => {
                write!(formatter, "the GPT is broken at byte {offset} and was not changed")
            }
            SpliceNote::AppleMapKept => formatter.write_str("the Apple partition map was not changed"),
            SpliceNote::PartitionVolumeKept { sector } => write!(
                formatter,
                "the volume inside a partition, with descriptors from sector {sector}, does not show what was added"
            ),
            SpliceNote::BootImageReachesFurther { number } => write!(
                formatter,
                "boot entry {number} has no length, so UEFI firmware may read up to the new end of the volume"
            ),
            SpliceNote::DirectoryReplaced { tree } => write!(
                formatter,
                "the directory in the {tree} tree was replaced; the bytes of its old files are still in the image"
            ),
            SpliceNote::FileReplaced { path } => {
                write!(formatter, "{path:?} was replaced; its old bytes are still in the image")
            }
            SpliceNote::RootMoved { tree } => write!(
                formatter,
                "the root of the {tree} tree is now after the data: programs that never seek back skip directories"
            ),
        }
    }
}

impl fmt::Display for PartitionTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            PartitionTable::Mbr => "MBR",
            PartitionTable::Gpt => "GPT",
        })
    }
}
