//! Rock Ridge: POSIX names, modes and times in the system use areas of the primary hierarchy.
//!
//! ```text
//! every entry     0-1 signature   2 length   3 version 1   4.. data                                 (SUSP 4.1)
//! root "."        SP PX TF CE ------> continuation area: ER "IEEE_P1282"
//! other records   PX TF [CL|PL|RE] [NM SL..]  or, when these are too long for the record,  .. CE ------> NM [NM] SL..
//!
//! SP  BE EF skip                      CE  block, offset, length (both 32 each)
//! PX  mode, links, uid, gid, serial   TF  flags, then 7-byte dates      NM  flags, a piece of the name
//! SL  symbolic link   CL/PL/RE  a directory moved elsewhere             ER  which extension this is
//! ```
//!
//! Invariants of what is written: one date (modification), owner 0:0, serial numbers from the order of the tree, a
//! continuation area inside one block. What is read: at most [`MAX_AREAS`] areas per record, none of them twice.
//!
//! SUSP 1.12 (IEEE P1281) section 5, RRIP 1.12 (IEEE P1282) section 4.

mod read;
mod write;

pub(crate) use read::{Attributes, parse, parse_into, root_skip};
pub(crate) use write::{CONTINUATION_ENTRY, PosixFileType, Relocation, Posix, SystemUse, append_continuation};

/// The longest name: that of POSIX systems.
pub(crate) const NAME_LIMIT: usize = 255;

/// The longest name that is written: Linux (fs/isofs/rock.c) shows only the beginning of longer ones.
pub(crate) const WRITTEN_NAME_LIMIT: usize = 253;
/// The most continuation areas followed for one record.
const MAX_AREAS: usize = 32;

/// NM and SL: the value continues in the next entry.
const CONTINUE: u8 = 0x01;
/// NM and SL: the value is the directory itself.
const CURRENT: u8 = 0x02;
/// NM and SL: the value is the parent directory.
const PARENT: u8 = 0x04;
/// SL: the value is the root directory.
const ROOT: u8 = 0x08;

/// The identifiers of ER entries that mean Rock Ridge.
const EXTENSIONS: [&[u8]; 3] = [b"RRIP_1991A", b"IEEE_P1282", b"IEEE_1282"];
