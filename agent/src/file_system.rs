//! Growing the file system of a partition that became larger, and reading its size back.
//!
//! ```text
//! superblock ─┬─ ext4 ───────> e2fsck, resize2fs ────────────────────────────────────────┬──> superblock again
//!             ├─ xfs, btrfs ─> mount, xfs_growfs | btrfs filesystem resize max, unmount ──┘
//!             └─ anything else: it stays, and the log says so
//! ```
//!
//! xfs and btrfs grow only while they are mounted, which also replays their journals.
//!
//! Invariants: only the named partition is written. A size that is read back must reach the end of the partition, but for the rest that
//! the format cannot use. ext4: kernel documentation, `ext4/super`; xfs: `xfs_dsb`; btrfs: `btrfs_super_block`.

use std::{io, ops::Range, path::Path, time::Duration};

use crate::device::Disk;
use crate::linux::{Host, Program};

const LIMIT: Duration = Duration::from_secs(1800);
/// The bytes of a partition that tell its file system.
const START: usize = 0x1_0000 + 4096;

/// The bytes of an NTFS from byte 3.
const NTFS: &[u8] = b"NTFS    ";

/// A file system that can be grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ext2, ext3 or ext4, which one driver mounts.
    Ext4,
    /// XFS
    Xfs,
    /// Btrfs
    Btrfs,
}

/// The content that begins a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A file system of this size in bytes, and the bytes at the end of a partition that it may leave unused.
    Growable {
        /// The kind.
        kind: Kind,
        /// The size.
        bytes: u64,
        /// The bytes at the end of the partition that the file system may leave unused.
        unused: u64,
    },
    /// Something that stays as it is, in words.
    Other(&'static str),
}

/// The partition that became larger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// The number of the partition, from 1.
    pub number: usize,
    /// The bytes of the partition on the disk.
    pub range: Range<u64>,
}

impl Kind {
    fn driver(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The program that grows a file system to the end of its device; xfs and btrfs are mounted.
    fn program(self, device: &Path, mounted: &Path) -> Program {
        let (device, mounted) = (device.to_string_lossy(), mounted.to_string_lossy());
        match self {
            Self::Ext4 => program("resize2fs", &[&device]),
            Self::Xfs => program("xfs_growfs", &["-d", &mounted]),
            Self::Btrfs => program("btrfs", &["filesystem", "resize", "max", &mounted]),
        }
    }
}

fn program(name: &str, words: &[&str]) -> Program {
    let arguments = words.iter().map(|word| (*word).to_owned()).collect();
    Program { name: name.to_owned(), arguments, in_root: false, limit: LIMIT }
}

/// Reads what begins a partition.
///
/// # Errors
/// Returns the error of the disk.
pub fn read(disk: &dyn Disk, range: &Range<u64>) -> io::Result<Found> {
    let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(START).min(START);
    let mut start = vec![0; length];
    disk.read_at(range.start, &mut start)?;
    start.resize(START, 0);
    Ok(identify(&start))
}

/// Returns whether a partition begins as NTFS.
///
/// # Errors
/// Returns the error of the disk.
pub fn is_ntfs(disk: &dyn Disk, range: &Range<u64>) -> io::Result<bool> {
    let mut start = [0; 512];
    if range.end.saturating_sub(range.start) < start.len() as u64 {
        return Ok(false);
    }
    disk.read_at(range.start, &mut start)?;
    Ok(start.get(3..3 + NTFS.len()) == Some(NTFS))
}

fn identify(start: &[u8]) -> Found {
    let has = |at: usize, magic: &[u8]| start.get(at..at + magic.len()) == Some(magic);
    let le = |at: usize, bytes: usize| {
        start[at..at + bytes].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let be = |at: usize, bytes: usize| {
        start[at..at + bytes].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    if has(0x438, &[0x53, 0xef]) {
        let shift = le(0x418, 4);
        if shift > 6 {
            return Found::Other("a damaged ext4");
        }
        let block = 1024 << shift;
        // INCOMPAT_64BIT
        let high = if le(0x460, 4) & 0x80 != 0 { le(0x550, 4) << 32 } else { 0 };
        let blocks = le(0x404, 4) | high;
        return Found::Growable {
            kind: Kind::Ext4,
            bytes: blocks.saturating_mul(block),
            unused: unused_by_ext4(
                block,
                blocks,
                le(0x428, 4).saturating_mul(le(0x458, 2).max(128)),
                le(0x4ce, 2),
            ),
        };
    }
    if has(0, b"XFSB") {
        let block = be(4, 4);
        return Found::Growable {
            kind: Kind::Xfs,
            bytes: be(8, 8).saturating_mul(block),
            unused: 64 * block,
        };
    }
    if has(0x1_0040, b"_BHRfS_M") {
        return Found::Growable { kind: Kind::Btrfs, bytes: le(0x1_0070, 8), unused: 1 << 20 };
    }
    Found::Other(if has(3, NTFS) {
        "NTFS; Windows grows it by itself at its first start, or by its disk management"
    } else if has(0, b"LUKS\xba\xbe") {
        "encrypted (LUKS); grow it in the installed system"
    } else if has(0x200, b"LABELONE")
        || has(0, b"LABELONE")
        || has(0x400, b"LABELONE")
        || has(0x600, b"LABELONE")
    {
        "a physical volume of LVM; grow it in the installed system"
    } else {
        "no file system that this agent grows: ext4, xfs or btrfs"
    })
}

/// The bytes of a last group that resize2fs leaves out, because it would hold little but its own tables: the table of its inodes, two
/// bitmaps, a copy of the superblock and of the group descriptors with their reserve, and fifty blocks (`adjust_fs_info` of e2fsprogs).
/// Never more than a group. `inodes` is the size of the table of inodes of one group, `reserved` the reserve in blocks.
fn unused_by_ext4(block: u64, blocks: u64, inodes: u64, reserved: u64) -> u64 {
    const FIXED: u64 = 2 + 1 + 50;
    const DESCRIPTOR: u64 = 64;
    let group = 8 * block;
    let descriptors = (blocks / group + 1).saturating_mul(DESCRIPTOR).div_ceil(block);
    let tables = inodes.div_ceil(block).saturating_add(descriptors).saturating_add(reserved);
    tables.saturating_add(FIXED).min(group) * block
}

/// Grows the file system of a partition. The disk is closed; `open` opens it again for reading the size back. Returns what was done, for
/// the log.
///
/// # Errors
/// Returns a sentence when a program fails or the size that is read back is not that of the partition.
pub fn grow(
    host: &dyn Host,
    name: &str,
    grown: &Grown,
    found: Found,
    open: &dyn Fn() -> io::Result<Box<dyn Disk>>,
) -> Result<String, String> {
    let Found::Growable { kind, bytes: before, unused } = found else {
        let Found::Other(what) = found else { return Ok(String::new()) };
        return Ok(format!("partition {} is {what}", grown.number));
    };
    let size = grown.range.end - grown.range.start;
    let number = grown.number;
    let shown = format!("the {} of partition {number}", kind.driver());
    if before.saturating_add(unused) >= size {
        return Ok(match size.checked_sub(before) {
            Some(rest) if rest > 0 => {
                format!(
                    "{shown} has {before} bytes, which is all of it but for {rest} that are too few for it"
                )
            }
            _ => format!("{shown} has {before} bytes, which is all of it"),
        });
    }
    let device = host.partition(name, number, (grown.range.start / 512, size / 512))?;
    let program = kind.program(&device, host.root());
    let check =
        (kind == Kind::Ext4).then(|| self::program("e2fsck", &["-f", "-p", &device.to_string_lossy()]));
    let missing = std::iter::once(&program).chain(&check).find(|program| !host.has_program(&program.name));
    if let Some(Program { name, .. }) = missing {
        return Ok(format!(
            "{shown} stays as it is: {name} is not on this medium; use one of the full profile"
        ));
    }
    if let Some(check) = check {
        // A check that corrected something ends with an error too; then there is nothing left to correct.
        if let Err(reason) = host.run(&check).or_else(|_| host.run(&check)) {
            // The image was written and read back: a file system that is newer than the program of this medium is whole all the same.
            if reason.contains("unsupported feature") {
                return Ok(format!("{shown} stays as it is: {reason}"));
            }
            return Err(format!("{shown} has errors, so it is not grown: {reason}"));
        }
        host.run(&program)?;
    } else if let Some(reason) = grow_mounted(host, kind, &device, &program)? {
        return Ok(format!("{shown} stays as it is: {reason}"));
    }
    let after = open()
        .and_then(|disk| {
            disk.forget_cache()?;
            read(&*disk, &grown.range)
        })
        .map_err(|source| format!("reading {shown} back: {}", crate::discovery::chain(&source)))?;
    match after {
        // What is left out depends on the size that it has now.
        Found::Growable { kind: same, bytes, unused }
            if same == kind && bytes <= size && bytes.saturating_add(unused) >= size =>
        {
            Ok(format!("{shown} grew from {before} to {bytes} bytes"))
        }
        Found::Growable { bytes, .. } => {
            Err(format!("{shown} has {bytes} bytes after it was grown, and the partition has {size}"))
        }
        Found::Other(what) => Err(format!("{shown} is {what} after it was grown")),
    }
}

/// Mounts, runs the program, and unmounts. Returns the reason when it cannot be mounted.
fn grow_mounted(
    host: &dyn Host,
    kind: Kind,
    device: &Path,
    program: &Program,
) -> Result<Option<String>, String> {
    let unmount =
        || host.unmount_all().map_err(|source| format!("unmounting {}: {source}", device.display()));
    unmount()?;
    if let Err(source) = host.mount(device, kind.driver(), "", host.root()) {
        return Ok(Some(format!("it cannot be mounted: {source}")));
    }
    let ran = host.run(program);
    let unmounted = unmount();
    ran.and(unmounted).map(|()| None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(magic: &[(usize, &[u8])]) -> Vec<u8> {
        let mut start = vec![0; START];
        for (at, bytes) in magic {
            start[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        start
    }

    #[test]
    fn sizes_of_file_systems_are_read_from_their_superblocks() {
        let size = |start: &[u8]| match identify(start) {
            Found::Growable { kind, bytes, .. } => (kind, bytes),
            Found::Other(what) => panic!("{what}"),
        };
        let ext4 = with(&[(0x438, &[0x53, 0xef]), (0x418, &[2]), (0x404, &[0, 0, 1]), (0x550, &[9])]);
        assert_eq!(size(&ext4), (Kind::Ext4, 65_536 * 4096), "without 64bit the high half means nothing");
        let large = with(&[(0x438, &[0x53, 0xef]), (0x418, &[2]), (0x550, &[1]), (0x460, &[0x80])]);
        assert_eq!(size(&large), (Kind::Ext4, (1 << 32) * 4096));
        let xfs = with(&[(0, b"XFSB\x00\x00\x10\x00\x00\x00\x00\x00\x00\x01\x00\x00")]);
        assert_eq!(size(&xfs), (Kind::Xfs, 65_536 * 4096));
        let btrfs = with(&[(0x1_0040, b"_BHRfS_M"), (0x1_0070, &[0, 0, 0, 0, 1])]);
        assert_eq!(size(&btrfs), (Kind::Btrfs, 1 << 32));
    }

    #[test]
    fn only_the_rest_that_an_ext4_cannot_use_is_left_out() {
        // Blocks of 4 KiB, 8,192 inodes of 256 bytes in a group, 1,024 reserved blocks: 512 + 1 + 1,024 + 53 blocks.
        let (block, mib) = (4096, 1 << 20);
        assert_eq!(unused_by_ext4(block, 30_000, 8192 * 256, 1024), 1590 * block);
        assert!(unused_by_ext4(block, 30_000, 8192 * 256, 1024) < 7 * mib, "35 MiB more are used");
        assert_eq!(unused_by_ext4(block, u64::MAX, u64::MAX, u64::MAX), 128 * mib, "never more than a group");
    }

    #[test]
    fn what_is_not_grown_is_named_and_hostile_superblocks_are_no_panic() {
        for (start, word) in [
            (with(&[(3, b"NTFS    ")]), "NTFS"),
            (with(&[(0, b"LUKS\xba\xbe")]), "LUKS"),
            (with(&[(0x200, b"LABELONE")]), "LVM"),
            (with(&[]), "no file system"),
            (with(&[(0x438, &[0x53, 0xef]), (0x418, &[200])]), "damaged"),
        ] {
            let Found::Other(what) = identify(&start) else { panic!("{word}") };
            assert!(what.contains(word), "{what}");
        }
        for fill in [0x53_u8, 0xff] {
            let mut start = vec![fill; START];
            start[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
            let _found = identify(&start);
            start[..4].copy_from_slice(b"XFSB");
            start[0x438] = 0;
            let _found = identify(&start);
        }
    }
}
