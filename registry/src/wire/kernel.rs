//! The kernel operations of a connection. Tests replace them.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use tokio::net::TcpStream;

/// The size of a read into a buffer whose content is not used.
const BUFFER: usize = 64 << 10;

pub(super) trait Kernel: Debug + Send + Sync {
    /// Whether sending these bytes will not block on the disk, as far as samples show.
    fn is_cached(&self, file: &File, offset: u64, length: usize) -> bool;

    /// Waits until these bytes are in the page cache. Read errors are left to [`Kernel::send`].
    fn fetch(&self, file: &File, offset: u64, length: usize);

    /// Sends some of these bytes, at most all; none at the end of the file.
    fn send(&self, socket: &TcpStream, file: &File, offset: u64, length: usize) -> io::Result<usize>;
}

/// The kernel of this machine.
#[derive(Debug)]
pub(super) struct System;

impl Kernel for System {
    /// Samples a few bytes: pages that were read together are cached together, and are mostly dropped together. Where
    /// they are not, the thread blocks for one read of the disk, for a part of this distance. More samples cost more
    /// than sending.
    #[cfg(target_os = "linux")]
    fn is_cached(&self, file: &File, offset: u64, length: usize) -> bool {
        use rustix::io::{ReadWriteFlags, preadv2};
        const DISTANCE: usize = 128 << 10;

        let end = offset.saturating_add(length as u64);
        let last = (!length.is_multiple_of(DISTANCE)).then_some(end - 1);
        let mut samples = (offset..end).step_by(DISTANCE).chain(last);
        samples.all(|at| {
            // At the end of a file that was truncated there is nothing to wait for.
            preadv2(file, &mut [io::IoSliceMut::new(&mut [0])], at, ReadWriteFlags::NOWAIT).is_ok()
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn is_cached(&self, _file: &File, _offset: u64, _length: usize) -> bool {
        false
    }

    fn fetch(&self, file: &File, offset: u64, length: usize) {
        let mut buffer = vec![0; BUFFER.min(length)];
        let mut done = 0;
        while done < length {
            let wanted = BUFFER.min(length - done);
            match file.read_at(&mut buffer[..wanted], offset + done as u64) {
                Ok(read) if read > 0 => done += read,
                _ => return,
            }
        }
        crate::store::read_ahead(file, offset + length as u64);
    }

    #[cfg(target_os = "linux")]
    fn send(&self, socket: &TcpStream, file: &File, offset: u64, length: usize) -> io::Result<usize> {
        let mut offset = offset;
        Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), length)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn send(&self, _socket: &TcpStream, _file: &File, _offset: u64, _length: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
