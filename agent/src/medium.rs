//! The medium of a task with `delivery: media`: the volume with the OS image, and the beacon.
//!
//! ```text
//! device:  | ... | os-image.000 | os-image.001 | ... |          files beside job.json, adjacent
//!                 `---- one ISO 9660 volume ---'
//!                    index.json  blobs/sha256/DIGEST  beacon
//! ```
//!
//! Invariants: the device is opened for reading only. Nothing that a file system on it says leads outside of it. A sector of the
//! beacon is read from the device, never from memory.

use std::{
    fs::{File, OpenOptions},
    io,
    num::NonZeroU64,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use beacon::SECTOR;
use iso9660::{Extent, Image, ReadAt, ReadError, Window};

use crate::discovery::{FoundTask, chain};

/// The largest number of files of a volume: 64 GiB and more in parts of 2 GiB.
const PARTS_MAX: usize = 64;
/// The alignment that every device accepts for reads around the page cache.
const ALIGNMENT: usize = 4096;

/// A device or an image file.
pub trait Medium: ReadAt {
    /// Reads a sector from the device itself, so that the request reaches whatever serves the medium.
    ///
    /// # Errors
    /// Returns the error of the device.
    fn touch(&self, offset: u64) -> io::Result<()>;

    /// Opens the device again, after an error or a change of the medium.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    fn reopen(&self) -> io::Result<Arc<dyn Medium>>;
}

/// A medium by its path.
pub struct DeviceMedium {
    path: PathBuf,
    file: File,
    len: u64,
}

impl DeviceMedium {
    /// Opens the device.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        Ok(Self { path: path.to_owned(), file, len })
    }
}

impl ReadAt for DeviceMedium {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

impl Medium for DeviceMedium {
    fn touch(&self, offset: u64) -> io::Result<()> {
        let sector = usize::try_from(SECTOR).unwrap_or(ALIGNMENT);
        let mut buffer = vec![0_u8; sector + ALIGNMENT];
        let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let aligned = &mut buffer[start..start + sector];
        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(direct).open(&self.path);
        if let Ok(file) = opened
            && file.read_exact_at(aligned, offset).is_ok()
        {
            return Ok(());
        }
        // A file system without direct reads: at least the page cache forgets the sector.
        let advice = rustix::fs::Advice::DontNeed;
        let _ = rustix::fs::fadvise(&self.file, offset, NonZeroU64::new(SECTOR), advice);
        self.file.read_exact_at(aligned, offset)
    }

    fn reopen(&self) -> io::Result<Arc<dyn Medium>> {
        Ok(Arc::new(Self::open(&self.path)?))
    }
}

/// Opens the device of a task.
///
/// # Errors
/// Returns the error of the operating system.
pub fn open_medium(found: &FoundTask) -> io::Result<Arc<dyn Medium>> {
    Ok(Arc::new(DeviceMedium::open(&found.path)?))
}

/// Why a volume cannot be opened.
pub enum NoVolume {
    /// The medium has none that this agent accepts: another read gives the same.
    Refused(String),
    /// The volume could not be read: another read may succeed.
    Unreadable(String),
}

/// The volume with the OS image.
pub struct MediumVolume {
    medium: Arc<dyn Medium>,
    image: Image<Window<Arc<dyn Medium>>>,
    /// The offset of the volume on the device.
    base: u64,
    /// Where the beacon is on the device, or why there is none.
    beacon: Result<u64, String>,
}

impl MediumVolume {
    /// Finds the volume beside the `job.json` of a task.
    ///
    /// # Errors
    /// Returns a sentence when the medium cannot be read or has none.
    pub fn open(medium: Arc<dyn Medium>, task: &FoundTask) -> Result<Self, NoVolume> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |source: ReadError| NoVolume::Unreadable(format!("reading {what}: {}", chain(&source)))
        };
        let refused = |reason: String| Err(NoVolume::Refused(reason));
        let outer = Image::open(Arc::clone(&medium)).map_err(failed("the medium"))?;
        let (mut base, mut len) = (0, 0_u64);
        for number in 0..PARTS_MAX {
            let path = format!("{}os-image.{number:03}", task.place());
            // A part that could not be read is not one that is missing: without it the volume would end early.
            let extents = match outer.extents(&path) {
                Err(ReadError::NotFound { .. }) => break,
                extents => extents.map_err(failed(&path))?,
            };
            let [Extent { offset, len: part }] = extents[..] else {
                return refused(format!("/{path} is divided, which no medium of a controller is"));
            };
            if number == 0 {
                base = offset;
            } else if base.checked_add(len) != Some(offset) {
                return refused(format!("/{path} does not follow the part before it"));
            }
            len = len.saturating_add(part);
        }
        if len == 0 {
            return refused(
                "the recipe has `delivery: media`, and the medium has no OS image (os-image.000)".to_owned(),
            );
        }
        let window = Window::new(Arc::clone(&medium), base, len)
            .map_err(|source| NoVolume::Unreadable(source.to_string()))?;
        let image = Image::open(window).map_err(failed("the volume with the OS image"))?;
        let beacon = match image.extents(beacon::FILE_NAME) {
            Ok(extents) => match extents[..] {
                [Extent { offset, len: beacon::FILE_LEN }] => Ok(offset + base),
                _ => Err("the beacon of the medium has another length than this agent knows".to_owned()),
            },
            Err(source @ ReadError::Io { .. }) => return Err(failed("the place of the beacon")(source)),
            Err(source) => Err(format!("finding /{}: {}", beacon::FILE_NAME, chain(&source))),
        };
        Ok(Self { medium, image, base, beacon })
    }

    /// Reads a small file of the volume.
    ///
    /// # Errors
    /// Returns a sentence when it does not exist, is longer than `limit` or cannot be read.
    pub fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, String> {
        self.image.read(path, limit).map_err(|source| format!("reading /{path}: {}", chain(&source)))
    }

    /// Returns where a file is on the device.
    ///
    /// # Errors
    /// Returns a sentence when it does not exist.
    pub fn extents(&self, path: &str) -> Result<Vec<Extent>, String> {
        let extents =
            self.image.extents(path).map_err(|source| format!("finding /{path}: {}", chain(&source)))?;
        Ok(extents.into_iter().map(|extent| Extent { offset: extent.offset + self.base, ..extent }).collect())
    }

    /// Returns the medium.
    pub fn medium(&self) -> &Arc<dyn Medium> {
        &self.medium
    }

    /// Returns where the beacon is on the device.
    ///
    /// # Errors
    /// Returns a sentence when the volume has none of the right length.
    pub fn beacon(&self) -> Result<u64, String> {
        self.beacon.clone()
    }
}

/// Reads extents of a device in order, from an offset in the file.
pub struct ExtentReader {
    medium: Arc<dyn Medium>,
    extents: Vec<Extent>,
}

impl ExtentReader {
    /// Creates the reader of what follows `skip` bytes.
    #[must_use]
    pub fn new(medium: Arc<dyn Medium>, extents: Vec<Extent>, mut skip: u64) -> Self {
        let mut left = Vec::with_capacity(extents.len());
        for extent in extents {
            let passed = skip.min(extent.len);
            skip -= passed;
            if passed < extent.len {
                left.push(Extent { offset: extent.offset + passed, len: extent.len - passed });
            }
        }
        left.reverse();
        Self { medium, extents: left }
    }
}

impl io::Read for ExtentReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(extent) = self.extents.last_mut() else { return Ok(0) };
        let length = usize::try_from(extent.len).unwrap_or(usize::MAX).min(buffer.len());
        self.medium.read_exact_at(extent.offset, &mut buffer[..length])?;
        extent.offset += length as u64;
        extent.len -= length as u64;
        if extent.len == 0 {
            self.extents.pop();
        }
        Ok(length)
    }
}
