//! Writing an image of a whole disk.
//!
//! ```text
//! stream --first MiB--> checked: a partition table, sectors as on the disk --> kept in memory
//!        --the rest --> disk, zero blocks as zeros without sending them
//!        --end      --> digests hold; flush; read back and compare the hash
//!        --then     --> first MiB is written, flushed, read back
//! ```
//!
//! Invariants: the first MiB is written last, so an incomplete or wrong copy never boots. Nothing is written before the
//! first MiB was checked. Memory is bounded by a few MiB.

use std::io::{self, Read};

use beacon::Class;
use disk_file::sector_of_image;
use sha2::{Digest as _, Sha256};

use crate::device::Disk;

const BLOCK: usize = 1024 * 1024;

/// Why an image is not on the disk. Each has the sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The image cannot be read; its reader knows why.
    Unread(String),
    /// The bytes are no disk image.
    NoImage(String),
    /// The image is not for this disk.
    Unfit(String),
    /// The disk cannot be written, or returns other bytes.
    Disk(String),
}

impl ImageError {
    /// Returns the class of the failure, unless the reader of the image has it, and the sentence.
    #[must_use]
    pub fn into_parts(self) -> (Option<Class>, String) {
        match self {
            Self::Unread(message) | Self::Disk(message) => (None, message),
            Self::NoImage(message) => (Some(Class::Image), message),
            Self::Unfit(message) => (Some(Class::Disk), message),
        }
    }
}

/// Reads and checks the first MiB of an image. Nothing is written.
///
/// # Errors
/// When the stream fails, is no disk image, or was made for another sector size than the disk's or for a larger disk.
pub fn read_start(stream: &mut dyn Read, disk: &dyn Disk) -> Result<Vec<u8>, ImageError> {
    let mut first = vec![0; BLOCK];
    let length = fill(stream, &mut first).map_err(unread)?;
    first.truncate(length);
    check_start(&first, disk)?;
    Ok(first)
}

/// Writes the image that begins with `first` and continues with `stream`, and verifies it by reading it back. `progress`
/// receives the number of bytes that were written. Returns the size of the image.
///
/// # Errors
/// When the stream or the disk fails, the image does not fit, or the bytes that are read back differ.
pub fn write(
    first: &[u8],
    stream: &mut dyn Read,
    disk: &dyn Disk,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ImageError> {
    let mut sum = Sha256::new();
    sum.update(first);
    let mut at = first.len() as u64;
    let mut block = vec![0; BLOCK];
    loop {
        let length = fill(stream, &mut block).map_err(unread)?;
        if length == 0 {
            break;
        }
        let bytes = &block[..length];
        let end = at + length as u64;
        if end > disk.size() {
            let size = disk.size();
            return Err(ImageError::Unfit(format!(
                "the image is larger than the disk, which has {size} bytes"
            )));
        }
        let written = if is_zero(bytes) { disk.zero(at..end) } else { disk.write_at(at, bytes) };
        written.map_err(|source| of_disk("writing the disk", source))?;
        sum.update(bytes);
        at = end;
        progress(at);
    }
    disk.forget_cache().map_err(|source| of_disk("flushing the disk", source))?;
    verify(disk, first, at, sum.finalize().into())?;
    disk.write_at(0, first)
        .and_then(|()| disk.forget_cache())
        .map_err(|source| of_disk("writing the disk", source))?;
    let mut back = vec![0; first.len()];
    disk.read_at(0, &mut back).map_err(|source| of_disk("reading the disk back", source))?;
    if back != first {
        let message = "the disk returns other bytes than were written to its start; replace it";
        return Err(ImageError::Disk(message.to_owned()));
    }
    Ok(at)
}

fn unread(source: io::Error) -> ImageError {
    ImageError::Unread(format!("reading the image: {}", crate::discovery::chain(&source)))
}

fn of_disk(what: &str, source: io::Error) -> ImageError {
    ImageError::Disk(format!("{what}: {}", crate::discovery::chain(&source)))
}

fn check_start(first: &[u8], disk: &dyn Disk) -> Result<(), ImageError> {
    if first.len() < 512 {
        return Err(ImageError::NoImage(format!(
            "the image has {} bytes, which is no disk image",
            first.len()
        )));
    }
    if first.len() as u64 > disk.size() {
        return Err(ImageError::Unfit(format!(
            "the image does not fit: its start has {} bytes",
            first.len()
        )));
    }
    let sector = sector_of_image(first);
    match sector {
        Some(sector) if sector != disk.sector() => Err(ImageError::Unfit(format!(
            "the image was made for sectors of {sector} bytes and the disk has {}; it would not boot. Use an image for \
             this sector size",
            disk.sector()
        ))),
        None if first[510..512] != [0x55, 0xaa] => {
            Err(ImageError::NoImage("the image is no disk image: it has neither a GPT nor an MBR".to_owned()))
        }
        // An MBR does not tell its sectors, and images with one are made for 512 bytes: each partition would begin elsewhere.
        None if disk.sector() != 512 => Err(ImageError::Unfit(format!(
            "the image has an MBR, which counts sectors of 512 bytes, and the disk has {}; it would not boot. Use an image \
             with a GPT for this sector size",
            disk.sector()
        ))),
        _ => match end_of_partitions(first, sector) {
            Some(end) if end > disk.size() => Err(ImageError::Unfit(format!(
                "the image is larger than the disk: its partitions end at {end} bytes and the disk has {}; nothing was written. Use a \
                 larger disk, or shrink the image",
                disk.size()
            ))),
            _ => Ok(()),
        },
    }
}

/// Returns where the last partition ends that the start of an image names, in bytes: by its GPT for sectors of `sector` bytes, or by its
/// MBR. UEFI 2.10 sections 5.2.3 and 5.3.
fn end_of_partitions(first: &[u8], sector: Option<u64>) -> Option<u64> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(first.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(first.get(at..at + 8)?.try_into().ok()?));
    let Some(sector) = sector else {
        // A boot sector without a table has code there. Start and number of sectors are the last two fields of an entry.
        let entries = (0..4).map(|index| 446 + 16 * index);
        if !entries.clone().all(|entry| matches!(first.get(entry), Some(0 | 0x80))) {
            return None;
        }
        let ends = entries
            .filter_map(|entry| Some((u64::from(u32_at(entry + 8)?) + u64::from(u32_at(entry + 12)?)) * 512));
        return ends.max();
    };
    let header = usize::try_from(sector).ok()?;
    let entries = usize::try_from(u64_at(header + 72)?.checked_mul(sector)?).ok()?;
    let (count, size) = (u32_at(header + 80)?, usize::try_from(u32_at(header + 84)?).ok()?);
    let last = (0..usize::try_from(count.min(128)).ok()?).filter_map(|index| {
        let entry = entries.checked_add(index.checked_mul(size)?)?;
        let is_used = first.get(entry..entry.checked_add(16)?)?.iter().any(|byte| *byte != 0);
        is_used.then(|| u64_at(entry + 40))?
    });
    last.max()?.checked_add(1)?.checked_mul(sector)
}

fn verify(disk: &dyn Disk, first: &[u8], size: u64, expected: [u8; 32]) -> Result<(), ImageError> {
    let mut sum = Sha256::new();
    sum.update(first);
    let mut block = vec![0; BLOCK];
    let mut at = first.len() as u64;
    while at < size {
        let length = usize::try_from(size - at).unwrap_or(BLOCK).min(BLOCK);
        disk.read_at(at, &mut block[..length]).map_err(|source| of_disk("reading the disk back", source))?;
        sum.update(&block[..length]);
        at += length as u64;
    }
    match <[u8; 32]>::from(sum.finalize()) == expected {
        true => Ok(()),
        false => {
            Err(ImageError::Disk("the disk returns other bytes than were written; replace it".to_owned()))
        }
    }
}

/// Whether all bytes are zeros. Comparing slices is faster than comparing bytes.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    static ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|part| *part == ZEROS[..part.len()])
}

/// Reads until the buffer is full or the stream ends.
fn fill(stream: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match stream.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(source),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::FileDisk;
    use crate::test_kit::{bootable_image, disk_image, is_filled};

    fn words(error: ImageError) -> String {
        error.into_parts().1
    }

    fn write(image: &mut dyn Read, disk: &dyn Disk, progress: &mut dyn FnMut(u64)) -> Result<u64, String> {
        let first = read_start(image, disk).map_err(words)?;
        super::write(&first, image, disk, progress).map_err(words)
    }

    #[test]
    fn an_image_is_on_the_disk_byte_for_byte_and_the_rest_stays() {
        let image = bootable_image(5 << 20, 512);
        let (_folder, path) = disk_image(8 << 20, 0xee);
        let disk = FileDisk::open(&path, 512).unwrap();
        let mut seen = Vec::new();
        assert_eq!(write(&mut &image[..], &disk, &mut |at| seen.push(at)).unwrap(), 5 << 20);
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[..5 << 20] == image[..] && is_filled(&bytes[5 << 20..], 0xee));
        assert_eq!(seen, [2 << 20, 3 << 20, 4 << 20, 5 << 20]);
    }

    #[test]
    fn what_is_no_disk_image_or_has_other_sectors_is_refused_before_the_first_write() {
        let (_folder, path) = disk_image(8 << 20, 0xee);
        let disk = FileDisk::open(&path, 512).unwrap();
        for (image, word) in [
            (b"<html>not found</html>".repeat(100), "no disk image"),
            (bootable_image(4 << 20, 4096), "sectors of 4096"),
            (b"short".to_vec(), "5 bytes, which is no disk image"),
        ] {
            let refused = write(&mut &image[..], &disk, &mut |_| ()).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
        assert!(is_filled(&std::fs::read(&path).unwrap(), 0xee));
    }

    #[test]
    fn a_copy_that_breaks_off_or_is_too_large_leaves_no_bootable_disk() {
        struct Breaking<'a>(&'a [u8]);
        impl Read for Breaking<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                match self.0.read(buffer)? {
                    0 => Err(io::Error::other("the digest is wrong")),
                    read => Ok(read),
                }
            }
        }
        let image = bootable_image(5 << 20, 512);
        for size in [4 << 20, 8 << 20] {
            let (_folder, path) = disk_image(size, 0);
            let disk = FileDisk::open(&path, 512).unwrap();
            let refused = write(&mut Breaking(&image), &disk, &mut |_| ()).unwrap_err();
            assert!(
                refused.contains("larger than the disk") || refused.contains("digest is wrong"),
                "{refused}"
            );
            assert!(is_zero(&std::fs::read(&path).unwrap()[..BLOCK]));
        }
    }

    #[test]
    fn a_disk_that_loses_bytes_is_noticed() {
        struct Losing(FileDisk);
        impl Disk for Losing {
            fn size(&self) -> u64 {
                self.0.size()
            }
            fn sector(&self) -> u64 {
                self.0.sector()
            }
            fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
                self.0.read_at(offset, buffer)
            }
            fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
                if offset == 3 << 20 { Ok(()) } else { self.0.write_at(offset, bytes) }
            }
            fn flush(&self) -> io::Result<()> {
                self.0.flush()
            }
            fn zero(&self, range: std::ops::Range<u64>) -> io::Result<()> {
                self.0.zero(range)
            }
            fn forget_cache(&self) -> io::Result<()> {
                self.0.forget_cache()
            }
        }
        let (_folder, path) = disk_image(8 << 20, 0);
        let disk = Losing(FileDisk::open(&path, 512).unwrap());
        let refused = write(&mut &bootable_image(5 << 20, 512)[..], &disk, &mut |_| ()).unwrap_err();
        assert!(refused.contains("other bytes"), "{refused}");
    }
}
