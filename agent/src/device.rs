//! A disk as a range of bytes with a sector size. Image files and block devices are the same to every writer.
//!
//! ```text
//! FileDisk (image file | /dev/…) <--Fence (only planned ranges are writable)<-- GPT, wiping, image writer
//! ```
//!
//! Invariants: a write that would leave the disk, or the ranges of its [`Fence`], is an error and writes nothing. `flush`
//! returns after the bytes are on the medium.

use std::{
    fs::{File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::FallocateFlags;

/// Bytes that are zeroed by one write.
const ZEROS: usize = 1024 * 1024;

/// A disk.
pub trait Disk: Send + Sync {
    /// Returns the size in bytes.
    fn size(&self) -> u64;
    /// Returns the size of a logical sector in bytes: 512 or 4096.
    fn sector(&self) -> u64;
    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// Returns the error of the medium, or an error when the range leaves the disk.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Returns the error of the medium, or an error when the range leaves the disk.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Waits until everything written is on the medium.
    ///
    /// # Errors
    /// Returns the error of the medium.
    fn flush(&self) -> io::Result<()>;

    /// Writes zeros over `range`.
    ///
    /// # Errors
    /// Returns the error of the medium, or an error when the range leaves the disk.
    fn zero(&self, range: Range<u64>) -> io::Result<()>;

    /// Writes zeros over `range`, each sector of it, also where the disk could zero without writing.
    ///
    /// # Errors
    /// Returns the error of the medium, or an error when the range leaves the disk.
    fn overwrite(&self, range: Range<u64>) -> io::Result<()> {
        self.zero(range)
    }

    /// Unmaps all sectors, where the disk promises that they are zeros afterwards.
    ///
    /// # Errors
    /// Returns `Unsupported` when the disk makes no such promise, or the error of the medium.
    fn discard_to_zeros(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the open device, for commands of its own; `None` for what is no file.
    fn device(&self) -> Option<&File> {
        None
    }

    /// Makes the next reads come from the medium, as far as the operating system allows it.
    ///
    /// # Errors
    /// Returns the error of the medium when what was written cannot be flushed.
    fn forget_cache(&self) -> io::Result<()>;
}

fn write_zeros(disk: &dyn Disk, range: Range<u64>) -> io::Result<()> {
    let zeros = vec![0_u8; ZEROS];
    let mut offset = range.start;
    while offset < range.end {
        let length = usize::try_from(range.end - offset).unwrap_or(usize::MAX).min(ZEROS);
        disk.write_at(offset, &zeros[..length])?;
        offset += length as u64;
    }
    Ok(())
}

/// An image file or a block device.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    size: u64,
    sector: u64,
}

impl FileDisk {
    /// Opens a disk for reading and writing. A block device is opened exclusively: a mounted one, or one in an array, is
    /// refused by the kernel.
    ///
    /// # Errors
    /// Returns the error of the operating system, or `InvalidInput` for another sector size than 512 and 4096.
    pub fn open(path: &Path, sector: u64) -> io::Result<Self> {
        if sector != 512 && sector != 4096 {
            let text = format!("sectors of {sector} bytes are not supported; 512 and 4096 are");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if std::fs::metadata(path)?.file_type().is_block_device() {
            options.custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed());
        }
        let file = options.open(path)?;
        let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        Ok(Self { file, size: size / sector * sector, sector })
    }

    /// Opens a disk for reading, whatever uses it.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn open_to_read(path: &Path, sector: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        Ok(Self { file, size: size / sector.max(1) * sector, sector })
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(outside(offset, length, &format!("the disk has {} bytes", self.size))),
        }
    }
}

impl Disk for FileDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u64 {
        self.sector
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check(offset, buffer.len())?;
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset, bytes.len())?;
        self.file.write_all_at(bytes, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        let length = range.end.saturating_sub(range.start);
        self.check(range.start, usize::try_from(length).unwrap_or(usize::MAX))?;
        let aligned = range.start.is_multiple_of(self.sector) && length.is_multiple_of(self.sector);
        if length > 0 && aligned {
            let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            // The kernel zeroes without sending the zeros where the disk can. Where it cannot, they are written.
            if rustix::fs::fallocate(&self.file, flags, range.start, length).is_ok() {
                return Ok(());
            }
        }
        write_zeros(self, range)
    }

    fn overwrite(&self, range: Range<u64>) -> io::Result<()> {
        write_zeros(self, range)
    }

    fn device(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn discard_to_zeros(&self) -> io::Result<()> {
        // On a block device the kernel refuses this unless the disk unmaps and then returns zeros.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, flags, 0, self.size).map_err(Into::into)
    }

    fn forget_cache(&self) -> io::Result<()> {
        self.file.sync_all()?;
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed).map_err(Into::into)
    }
}

/// A disk of which only planned ranges are writable.
pub struct Fence<'disk> {
    disk: &'disk dyn Disk,
    ranges: Vec<Range<u64>>,
}

impl<'disk> Fence<'disk> {
    /// Creates a fence around `ranges`. Ranges that touch are one range.
    #[must_use]
    pub fn new(disk: &'disk dyn Disk, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        Self { disk, ranges: merged(ranges) }
    }

    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        let end = offset.saturating_add(length as u64);
        let inside = self.ranges.iter().any(|range| range.start <= offset && end <= range.end);
        if inside { Ok(()) } else { Err(outside(offset, length, "the plan does not contain this range")) }
    }
}

impl Disk for Fence<'_> {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn sector(&self) -> u64 {
        self.disk.sector()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset, bytes.len())?;
        self.disk.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush()
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        self.check(range.start, length)?;
        self.disk.zero(range)
    }

    fn overwrite(&self, range: Range<u64>) -> io::Result<()> {
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        self.check(range.start, length)?;
        self.disk.overwrite(range)
    }

    fn discard_to_zeros(&self) -> io::Result<()> {
        self.check(0, usize::try_from(self.size()).unwrap_or(usize::MAX))?;
        self.disk.discard_to_zeros()
    }

    fn forget_cache(&self) -> io::Result<()> {
        self.disk.forget_cache()
    }
}

/// Sorts ranges, drops empty ones, and joins those that overlap or touch.
#[must_use]
pub fn merged(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges.into_iter().filter(|range| range.start < range.end).collect();
    sorted.sort_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

fn outside(offset: u64, length: usize, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{length} bytes at {offset} are refused: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::disk_image;

    #[test]
    fn a_write_outside_of_the_disk_or_the_plan_is_refused() {
        let (_folder, path) = disk_image(1 << 20, b'x');
        let disk = FileDisk::open(&path, 512).unwrap();
        assert!(disk.write_at((1 << 20) - 1, b"ab").is_err());
        let fence = Fence::new(&disk, [0..512, 512..1024, 4096..8192]);
        fence.write_at(500, &[1; 100]).unwrap();
        assert!(fence.write_at(1000, &[1; 25]).is_err() && fence.zero(4096..8193).is_err());
        fence.zero(4096..8192).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), &bytes[499..501], bytes[1024]), (1 << 20, b"x\x01".as_slice(), b'x'));
        assert!(bytes[4096..8192].iter().all(|byte| *byte == 0) && bytes[8192] == b'x');
    }

    #[test]
    fn other_sector_sizes_are_refused() {
        let (_folder, path) = disk_image(1 << 20, 0);
        assert!(FileDisk::open(&path, 520).is_err() && FileDisk::open(&path, 4096).is_ok());
    }
}
