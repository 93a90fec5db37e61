//! Rock Ridge: POSIX names, modes and times in the system use areas of the primary hierarchy.
//!
//! ```text
//! every entry     0-1 signature   2 length   3 version 1   4.. data                                 (SUSP 4.1)
//! root "."        SP PX TF CE ------> continuation area: ER "IEEE_P1282"
//! other records   PX TF [CL|PL|RE] [NM SL..]  or, when these are too long for the record,  .. CE ------> NM [NM] SL..
//!
//! SP  BE EF skip                      CE  block, offset, length (both 32 each)
//! PX  mode, links, uid, gid, serial   TF  flags, then 7-byte dates      NM  flags, a piece of the name
//! SL  symbolic link   CL/PL/RE  relocated directory                     ER  identifier of the extension
//! ```
//!
//! Invariants of written areas: one date (modification), owner 0:0, serial numbers in the order of the tree, and a
//! continuation area inside one block. The reader follows at most [`MAX_AREAS`] areas per record and no area twice.
//!
//! SUSP 1.12 (IEEE P1281) section 5, RRIP 1.12 (IEEE P1282) section 4.

mod read;
mod write;

pub(crate) use read::{Attributes, parse, parse_into, root_skip};
pub(crate) use write::{
    CONTINUATION_ENTRY, Posix, PosixFileType, Relocation, SystemUse, append_continuation,
};

/// The longest name of POSIX systems in bytes.
pub(crate) const NAME_LIMIT: usize = 255;

/// The longest name that is written: Linux (fs/isofs/rock.c) truncates longer names.
pub(crate) const WRITTEN_NAME_LIMIT: usize = 253;
/// The largest number of continuation areas that the reader follows for one record.
const MAX_AREAS: usize = 32;

/// NM and SL: the value continues in the next entry.
const CONTINUE: u8 = 0x01;
/// NM and SL: the value is the directory itself.
const CURRENT: u8 = 0x02;
/// NM and SL: the value is the parent directory.
const PARENT: u8 = 0x04;
/// SL: the value is the root directory.
const ROOT: u8 = 0x08;

/// The identifiers of ER entries that declare Rock Ridge.
const EXTENSIONS: [&[u8]; 3] = [b"RRIP_1991A", b"IEEE_P1282", b"IEEE_1282"];
