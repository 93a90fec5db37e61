//! What a splice did besides adding files, for whoever must know.

use std::fmt;

/// A kind of partition table.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PartitionTable {
    /// The Master Boot Record.
    Mbr,
    /// The GUID Partition Table.
    Gpt,
}

/// Something that a splice changed, left as it is, or makes others see differently.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SpliceNote {
    /// The `implantisomd5` record was blanked: the sum in it is not that of the new image.
    MediaCheckBlanked,
    /// The checksums that xorriso keeps of descriptors, trees and session were blanked; those of files are as they were.
    ChecksumTagsBlanked,
    /// The replaced path tables and root directories are zeros now.
    OrphansZeroed {
        /// How many bytes.
        bytes: u64,
    },
    /// A partition that covered the volume still does.
    PartitionGrown {
        /// The table it is in.
        table: PartitionTable,
        /// Its number, from 1.
        number: usize,
        /// The 512-byte sectors it has now.
        sectors: u64,
    },
    /// A partition that begins with the volume could not grow because another one follows it.
    PartitionKept {
        /// The table it is in.
        table: PartitionTable,
        /// Its number, from 1.
        number: usize,
    },
    /// The backup of the GPT is at the new end.
    BackupGptMoved {
        /// The 512-byte sector of its header before.
        from: u64,
        /// The sector now.
        to: u64,
    },
    /// The GPT has a wrong checksum or address, so firmware ignores it; it was left as it is.
    BrokenGptKept {
        /// Where, in bytes.
        offset: u64,
    },
    /// There is an Apple partition map, which was left as it is: it does not cover what was added.
    AppleMapKept,
    /// There are descriptors of a second volume inside a partition; its trees do not show what was added.
    PartitionVolumeKept {
        /// The sector of its first descriptor.
        sector: u64,
    },
    /// A boot entry has no size of its own: UEFI firmware that takes it to the end of the volume takes more now.
    BootImageReachesFurther {
        /// Its number in the catalog, from 0.
        number: usize,
    },
    /// The directory was there and was replaced in this tree. The bytes of its old files are still in the image.
    DirectoryReplaced {
        /// `primary`, `Joliet` or `enhanced`.
        tree: &'static str,
    },
    /// A file was replaced. Its old bytes are still in the image, and other names of the same file lead to them.
    FileReplaced {
        /// Its path.
        path: String,
    },
    /// The root directory of a tree had no room and comes after the data now. Programs that read an image from its
    /// beginning to its end (libarchive, even from a file) then skip the directories before it. Firmware, kernels and
    /// whatever seeks do not mind.
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
                write!(formatter, "{table} partition {number} has {sectors} sectors now")
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
                write!(formatter, "the GPT is broken at byte {offset} and was left as it is")
            }
            SpliceNote::AppleMapKept => formatter.write_str("the Apple partition map was left as it is"),
            SpliceNote::PartitionVolumeKept { sector } => write!(
                formatter,
                "the volume inside a partition, with descriptors from sector {sector}, does not show what was added"
            ),
            SpliceNote::BootImageReachesFurther { number } => write!(
                formatter,
                "boot entry {number} has no size, so UEFI firmware may take it to the new end of the volume"
            ),
            SpliceNote::DirectoryReplaced { tree } => write!(
                formatter,
                "the directory was replaced in the {tree} tree; the bytes of its old files are still in the image"
            ),
            SpliceNote::FileReplaced { path } => {
                write!(formatter, "{path:?} was replaced; its old bytes are still in the image")
            }
            SpliceNote::RootMoved { tree } => write!(
                formatter,
                "the root of the {tree} tree comes after the data now: programs that never seek back skip directories"
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
