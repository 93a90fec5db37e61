//! Partition tables, which make an ISO image a disk image too.
//!
//! ```text
//! sectors of 512 bytes                                                              the system area is 0 to 63
//!   0     MBR: boot code | identifier | 4 partitions | 55 AA                        mbr.rs
//!   1     GPT header, primary: addresses, checksums                                 gpt.rs
//!   2..   GPT entries, 4 in a sector, at most 248 before sector 64
//!   64..  the volume: descriptors, directories, files
//!   ..    GPT entries, backup
//!   last  GPT header, backup
//! ```
//!
//! Plain structures with public fields: parse, change, encode. Invariants: parsing reads at most 32 KiB, whatever size
//! the table claims. A table with a wrong checksum is an error. Encoding computes every checksum.
//!
//! UEFI Specification 2.10, sections 5.2 (legacy MBR) and 5.3 (GPT).

mod gpt;
mod mbr;

pub use gpt::{Gpt, GptPartition, Guid};
pub use mbr::{Mbr, MbrPartition};

/// The unit of every address in a partition table, in bytes.
pub const SECTOR_SIZE: u64 = 512;

/// The length of an MBR and of a GPT header sector in bytes.
const SECTOR: usize = 512;
