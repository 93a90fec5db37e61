//! Copies files inside the kernel.
//!
//! ```text
//! source --splice--> pipe: references to at most 1 MiB of pages --splice--> output      ext4, tmpfs
//!        --copy_file_range (std::io::copy)-------------------------------->             elsewhere, or without a pipe
//! ```
//!
//! On ext4 and tmpfs `copy_file_range` is a splice through a pipe of 64 KiB. The files of an image begin at multiples of 2 KiB,
//! so nearly every such piece lies across the large pages of the cache, which then has small ones; they cost more than the copy
//! of the bytes. A piece of 1 MiB has few ends. Other file systems may share blocks or copy on a server, so they are asked by
//! `copy_file_range`.

use std::fs::File;
use std::io::{self, Read};

/// Copies to one output.
pub(crate) struct KernelCopy {
    pipe: Option<pipe::Pipe>,
}

impl KernelCopy {
    /// Chooses how files are copied to `output`.
    pub(crate) fn to(output: &File) -> KernelCopy {
        KernelCopy { pipe: pipe::Pipe::to(output) }
    }

    /// Copies at most `len` bytes from the position of `source` to the position of `output`, and returns how many bytes the
    /// source had. After an error the copier is not used again: bytes may be left in the pipe.
    pub(crate) fn copy(&self, source: &File, output: &File, len: u64) -> io::Result<u64> {
        if let Some(pipe) = &self.pipe
            && let Some(copied) = pipe.copy(source, output, len)?
        {
            return Ok(copied);
        }
        io::copy(&mut source.take(len), &mut &*output)
    }
}

#[cfg(target_os = "linux")]
mod pipe {
    use std::fs::File;
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::fs::{FsWord, OFlags};
    use rustix::io::{Errno, retry_on_intr};
    use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

    /// The capacity of the pipe; more needs a privilege by default.
    const CAPACITY: usize = 1024 * 1024;
    const EXT4: FsWord = 0xEF53;
    const TMPFS: FsWord = 0x0102_1994;

    /// An empty pipe between two splices.
    pub(super) struct Pipe {
        read: OwnedFd,
        write: OwnedFd,
    }

    impl Pipe {
        /// Returns a pipe if splices are the fastest way to `output`, and if the system grants a large one.
        pub(super) fn to(output: &File) -> Option<Pipe> {
            let file_system = rustix::fs::fstatfs(output).ok()?.f_type;
            // The kernel refuses a splice to a file that is open for appending.
            let appends = rustix::fs::fcntl_getfl(output).ok()?.contains(OFlags::APPEND);
            if ![EXT4, TMPFS].contains(&file_system) || appends || !output.metadata().ok()?.is_file() {
                return None;
            }
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).ok()?;
            (fcntl_setpipe_size(&write, CAPACITY).ok()? >= CAPACITY).then_some(Pipe { read, write })
        }

        /// Copies at most `len` bytes. Returns `None`, with nothing copied, when the file system of `source` has no splice.
        pub(super) fn copy(&self, source: &File, output: &File, len: u64) -> io::Result<Option<u64>> {
            let mut copied = 0;
            while copied < len {
                let wanted = usize::try_from(len - copied).map_or(CAPACITY, |left| left.min(CAPACITY));
                // The pipe is empty, so this does not block: it takes what has room.
                let none = SpliceFlags::empty();
                let filled = match retry_on_intr(|| splice(source, None, &self.write, None, wanted, none)) {
                    Err(Errno::INVAL) if copied == 0 => return Ok(None),
                    filled => filled?,
                };
                if filled == 0 {
                    break;
                }
                let mut left = filled;
                while left > 0 {
                    match retry_on_intr(|| splice(&self.read, None, output, None, left, none))? {
                        0 => return Err(io::ErrorKind::WriteZero.into()),
                        moved => left = left.saturating_sub(moved),
                    }
                }
                copied += filled as u64;
            }
            Ok(Some(copied))
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod pipe {
    use std::fs::File;
    use std::io;

    /// A pipe between two splices, which this system does not have.
    pub(super) enum Pipe {}

    impl Pipe {
        pub(super) fn to(_output: &File) -> Option<Pipe> {
            None
        }

        pub(super) fn copy(&self, _source: &File, _output: &File, _len: u64) -> io::Result<Option<u64>> {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek as _;

    use super::*;

    /// Copies 5 MiB and a few bytes behind 2,050 bytes, in pieces of 2 MiB.
    fn copied(copier: impl FnOnce(&File) -> KernelCopy) -> (Vec<u8>, Vec<u8>) {
        let bytes: Vec<u8> = (0..5 * 1024 * 1024 + 77_u32).map(|at| (at % 251) as u8).collect();
        let mut source = tempfile::tempfile().unwrap();
        let mut output = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut source, &bytes).unwrap();
        source.rewind().unwrap();
        io::Write::write_all(&mut output, &[9; 2050]).unwrap();
        let copier = copier(&output);
        let mut lengths = Vec::new();
        loop {
            match copier.copy(&source, &output, 2 * 1024 * 1024).unwrap() {
                0 => break,
                length => lengths.push(length),
            }
        }
        assert_eq!(lengths.iter().sum::<u64>(), bytes.len() as u64);
        output.rewind().unwrap();
        let mut found = Vec::new();
        output.read_to_end(&mut found).unwrap();
        (found, [vec![9; 2050], bytes].concat())
    }

    #[test]
    fn a_file_is_copied_whole_to_any_position_with_and_without_a_pipe() {
        let ways: [fn(&File) -> KernelCopy; 2] = [KernelCopy::to, |_| KernelCopy { pipe: None }];
        for way in ways {
            let (found, expected) = copied(way);
            assert!(found == expected, "{} bytes instead of {}", found.len(), expected.len());
        }
    }

    #[test]
    fn a_file_open_for_appending_is_copied_without_a_pipe() {
        let source = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(source.path(), [5; 200_000]).unwrap();
        let output = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(output.path(), b"before").unwrap();
        let appending = File::options().append(true).open(output.path()).unwrap();
        let copier = KernelCopy::to(&appending);
        assert!(copier.pipe.is_none());
        assert_eq!(copier.copy(source.as_file(), &appending, u64::MAX).unwrap(), 200_000);
        assert!(std::fs::read(output.path()).unwrap() == [b"before".to_vec(), vec![5; 200_000]].concat());
    }
}
