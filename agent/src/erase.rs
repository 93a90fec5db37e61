//! Secure erase of one disk: the strongest method that the disk carries out, proven by reading.
//!
//! ```text
//!  samples before ──> the disk's own commands ──> discard ──> overwrite ──> samples after
//!                      └── not offered, refused, or disproven by the samples: the next one ──┘
//! ```
//!
//! | method | what happens | level (NIST SP 800-88) | the samples must |
//! |---|---|---|---|
//! | `nvme-format-crypto` | the drive replaces the key of its encryption | purge | not be what they were |
//! | `nvme-format` | the drive erases all user data | purge | not be what they were |
//! | `ata-secure-erase-enhanced` | the drive overwrites all user data, replaced sectors too | purge of platters, else clear | not be what they were |
//! | `ata-secure-erase` | the drive erases all user data | clear | not be what they were |
//! | `discard` | the drive unmaps all sectors and returns zeros | clear | be zeros |
//! | `overwrite` | zeros are written to all sectors | clear | be zeros |
//!
//! What cannot be proven by reading is said in the result: sectors that the drive has replaced, and spare cells of flash, are not
//! readable; that they are erased is the word of the drive, and no method but a format meets them.
//!
//! Invariants: a method counts only if every sample proves it. A disk that keeps the password of an erase is no success. Nothing
//! outside of the disk is written.

use std::io;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::device::Disk;
use crate::disk_image::is_zero;

/// Bytes of a sample.
const SAMPLE: u64 = 64 * 1024;
/// Samples at evenly divided places, besides those of both ends.
const SPREAD: u64 = 1000;
/// Samples at each end of the disk, where tables and signatures are.
const ENDS: u64 = 64;
/// Bytes that are zeroed between two reports of progress.
const STRETCH: u64 = 256 * 1024 * 1024;

/// Maximum length of a reason in characters, so that a report holds all of them.
const MAX_REASON: usize = 300;

/// A way to erase a whole disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EraseMethod {
    /// NVMe Format with crypto erase.
    NvmeFormatCrypto,
    /// NVMe Format with erase of user data.
    NvmeFormat,
    /// ATA SECURITY ERASE UNIT in its enhanced mode.
    AtaSecureEraseEnhanced,
    /// ATA SECURITY ERASE UNIT.
    AtaSecureErase,
    /// All sectors are unmapped, and the disk promises zeros.
    Discard,
    /// Zeros are written to all sectors.
    Overwrite,
}

impl EraseMethod {
    /// Returns the name as reports carry it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NvmeFormatCrypto => "nvme-format-crypto",
            Self::NvmeFormat => "nvme-format",
            Self::AtaSecureEraseEnhanced => "ata-secure-erase-enhanced",
            Self::AtaSecureErase => "ata-secure-erase",
            Self::Discard => "discard",
            Self::Overwrite => "overwrite",
        }
    }

    fn reads_zeros(self) -> bool {
        matches!(self, Self::Discard | Self::Overwrite)
    }

    /// Returns the level of NIST SP 800-88 Rev. 1, tables A-5 and A-8: of flash no SECURITY ERASE UNIT purges anything.
    fn level(self, is_rotational: bool) -> &'static str {
        match self {
            Self::NvmeFormatCrypto | Self::NvmeFormat => "purge",
            Self::AtaSecureEraseEnhanced if is_rotational => "purge",
            Self::AtaSecureEraseEnhanced | Self::AtaSecureErase | Self::Discard | Self::Overwrite => "clear",
        }
    }

    /// Returns what reading cannot prove.
    fn unproven(self) -> &'static str {
        match self {
            Self::NvmeFormatCrypto
            | Self::NvmeFormat
            | Self::AtaSecureEraseEnhanced
            | Self::AtaSecureErase => "that spare and replaced cells are erased is the word of the drive",
            Self::Discard => "cells that the drive has unmapped may hold data until it reuses them",
            Self::Overwrite => "sectors that the drive has replaced are not overwritten",
        }
    }
}

/// How a disk was erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Erased {
    /// The method that was carried out and proven.
    pub method: EraseMethod,
    /// `purge` or `clear`.
    pub level: &'static str,
    /// The number of samples that were read.
    pub samples: usize,
    /// The parts of the disk that reading cannot prove erased, in words.
    pub unproven: &'static str,
    /// The preparation that made the disk readable before the erase, in words, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared: Option<String>,
    /// The stronger methods, each with the reason why it was not used.
    pub not_used: Vec<String>,
}

/// The disk's own commands.
pub trait OwnErase {
    /// Makes a disk readable that an interrupted erase left unreadable. Returns what it did.
    ///
    /// # Errors
    /// Returns a sentence when the disk can be neither read nor erased.
    fn prepare(&self) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// Returns the methods that the disk offers, the strongest first; or the reason why it offers none.
    ///
    /// # Errors
    /// Returns a sentence.
    fn offered(&self) -> Result<Vec<EraseMethod>, String>;

    /// Carries out a method that was offered, and returns after its end.
    ///
    /// # Errors
    /// Returns the refusal of the disk.
    fn erase(&self, method: EraseMethod) -> io::Result<()>;

    /// Checks that no command of an erase has left anything by which the disk is unusable later.
    ///
    /// # Errors
    /// Returns a sentence that says what is left and how it is removed.
    fn finish(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A disk without commands of its own.
pub struct NoOwnErase;

impl OwnErase for NoOwnErase {
    fn offered(&self) -> Result<Vec<EraseMethod>, String> {
        Err("the disk has no erase command that is known: it is no NVMe and no ATA drive".to_owned())
    }

    fn erase(&self, _: EraseMethod) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Erases the whole disk, of platters (`is_rotational`) or of flash. `progress` receives the part of the disk that is overwritten, in
/// percent, and the method; its error ends the erase between two writes.
///
/// # Errors
/// Returns a sentence when the disk cannot be read or written, when a sample disproves even the overwrite, or when the disk keeps the
/// password of an erase; or the error of `progress`.
pub fn secure(
    disk: &dyn Disk,
    is_rotational: bool,
    own: &dyn OwnErase,
    progress: &mut dyn FnMut(EraseMethod, u8) -> Result<(), String>,
) -> Result<Erased, String> {
    let places = places(disk.size());
    let prepared = own.prepare()?;
    let mut not_used = Vec::new();
    let before = digests(disk, &places);
    let mut methods = own.offered().unwrap_or_else(|reason| {
        not_used.push(reason);
        Vec::new()
    });
    methods.extend([EraseMethod::Discard, EraseMethod::Overwrite]);
    let ended = |reason: String| match own.finish() {
        Ok(()) => reason,
        Err(left) => format!("{reason}; {left}"),
    };
    for method in methods {
        progress(method, 0).map_err(ended)?;
        let done = match method {
            EraseMethod::NvmeFormatCrypto
            | EraseMethod::NvmeFormat
            | EraseMethod::AtaSecureEraseEnhanced
            | EraseMethod::AtaSecureErase => own.erase(method),
            EraseMethod::Discard => disk.discard_to_zeros(),
            EraseMethod::Overwrite => {
                overwrite(disk, &mut |percent| progress(method, percent)).map_err(ended)?
            }
        };
        let proven =
            done.map_err(|source| source.to_string()).and_then(|()| prove(disk, &places, &before, method));
        match proven {
            Ok(samples) => {
                own.finish().map_err(|left| format!("{} erased the disk, but {left}", method.name()))?;
                return Ok(Erased {
                    method,
                    level: method.level(is_rotational),
                    samples,
                    unproven: method.unproven(),
                    prepared,
                    not_used,
                });
            }
            Err(reason) => {
                not_used.push(format!("{}: {reason}", method.name()).chars().take(MAX_REASON).collect());
            }
        }
    }
    not_used.extend(own.finish().err());
    Err(format!(
        "no method erased the disk; {}. Destroy the disk if its data must not be read",
        not_used.join("; ")
    ))
}

/// The places of the samples, in ascending order: both ends, and evenly divided ones between.
fn places(size: u64) -> Vec<u64> {
    let whole = size / SAMPLE;
    let mut all: Vec<u64> = (0..whole.min(ENDS)).chain(whole.saturating_sub(ENDS)..whole).collect();
    all.extend((0..SPREAD.min(whole)).map(|index| index * (whole / SPREAD.min(whole).max(1))));
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|block| block * SAMPLE).collect()
}

/// The digest of a sample; `None` for zeros, which an erase may leave.
type SampleDigest = Option<[u8; 32]>;

/// The digests of the samples. A place that cannot be read has the error: a disk that fails is the one that is erased.
fn digests(disk: &dyn Disk, places: &[u64]) -> Vec<io::Result<SampleDigest>> {
    let mut block = vec![0; SAMPLE as usize];
    let mut digest = |place: &u64| {
        disk.read_at(*place, &mut block)?;
        Ok((!is_zero(&block)).then(|| Sha256::digest(&block).into()))
    };
    places.iter().map(&mut digest).collect()
}

/// Compares each sample with its value before the erase, and returns how many samples prove the erase. What could not be read
/// before is compared with nothing, and proves the erase by zeros only; after the erase every sample must be readable. Zeros
/// prove the erase only if the agent wrote or unmapped them, or the sample was not read as zeros before.
fn prove(
    disk: &dyn Disk,
    places: &[u64],
    before: &[io::Result<SampleDigest>],
    method: EraseMethod,
) -> Result<usize, String> {
    disk.forget_cache().map_err(|source| source.to_string())?;
    let mut proofs = 0;
    for ((place, before), after) in places.iter().zip(before).zip(digests(disk, places)) {
        let after = after.map_err(|source| format!("reading after the erase at {place}: {source}"))?;
        match (before, after) {
            (_, Some(_)) if method.reads_zeros() => {
                return Err(format!("the disk returns other bytes than zeros at {place}"));
            }
            (Ok(before), Some(_)) if *before == after => {
                return Err(format!("the disk returns what it held before at {place}"));
            }
            (Err(_), Some(_)) => {}
            (Ok(None), None) if !method.reads_zeros() => {}
            _ => proofs += 1,
        }
    }
    if proofs == 0 && !places.is_empty() {
        return Err(
            "no sample had other bytes than zeros before the erase, or could be read then, so none proves it"
                .to_owned(),
        );
    }
    Ok(proofs)
}

/// Overwrites the whole disk. The inner error is that of the disk, the outer one that of `progress`.
fn overwrite(
    disk: &dyn Disk,
    progress: &mut dyn FnMut(u8) -> Result<(), String>,
) -> Result<io::Result<()>, String> {
    let size = disk.size();
    let mut at = 0;
    while at < size {
        let end = at.saturating_add(STRETCH).min(size);
        if let Err(source) = disk.overwrite(at..end) {
            return Ok(Err(source));
        }
        at = end;
        progress(u8::try_from(at.saturating_mul(100) / size).unwrap_or(100))?;
    }
    Ok(disk.flush())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Mutex;

    use super::*;
    use crate::device::FileDisk;
    use crate::test_kit::{disk_image, is_filled};

    /// A disk in memory with the faults of real ones.
    struct Lab {
        bytes: Mutex<Vec<u8>>,
        /// The byte that a discard leaves everywhere; `None` when the disk refuses it.
        discard_leaves: Option<u8>,
        /// Writes to this range are acknowledged and lost.
        stuck: Range<usize>,
        /// Reads of this range fail until it was erased.
        unreadable: Mutex<Range<usize>>,
        own: Vec<EraseMethod>,
        /// The byte that a format leaves everywhere; `None` when the drive acknowledges it and does nothing.
        format_leaves: Option<u8>,
        keeps_password: bool,
    }

    impl Lab {
        fn new() -> Self {
            let bytes = (0..(20 << 20)).map(|index: usize| (index / 4096 % 251) as u8 + 1).collect();
            Self {
                bytes: Mutex::new(bytes),
                discard_leaves: None,
                stuck: 0..0,
                unreadable: Mutex::new(0..0),
                own: Vec::new(),
                format_leaves: None,
                keeps_password: false,
            }
        }

        fn fill(&self, byte: u8, range: Range<usize>) {
            self.repair(&range);
            for (index, at) in
                self.bytes.lock().unwrap()[range.clone()].iter_mut().zip(range).map(|(at, index)| (index, at))
            {
                if !self.stuck.contains(&index) {
                    *at = byte;
                }
            }
        }
    }

    impl Lab {
        /// A sector that was written can be read, unless the disk has no spare ones.
        fn repair(&self, written: &Range<usize>) {
            let mut unreadable = self.unreadable.lock().unwrap();
            let spares = self.stuck.is_empty();
            if spares && written.start <= unreadable.start && unreadable.end <= written.end {
                *unreadable = 0..0;
            }
        }
    }

    impl Disk for Lab {
        fn size(&self) -> u64 {
            self.bytes.lock().unwrap().len() as u64
        }

        fn sector(&self) -> u64 {
            512
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            let from = offset as usize;
            let unreadable = self.unreadable.lock().unwrap();
            if from < unreadable.end && unreadable.start < from + buffer.len() {
                return Err(io::Error::from_raw_os_error(5));
            }
            buffer.copy_from_slice(&self.bytes.lock().unwrap()[from..from + buffer.len()]);
            Ok(())
        }

        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!("an erase writes zeros only")
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }

        fn zero(&self, range: Range<u64>) -> io::Result<()> {
            self.fill(0, range.start as usize..range.end as usize);
            Ok(())
        }

        fn discard_to_zeros(&self) -> io::Result<()> {
            let byte = self.discard_leaves.ok_or(io::ErrorKind::Unsupported)?;
            self.fill(byte, 0..self.size() as usize);
            Ok(())
        }

        fn forget_cache(&self) -> io::Result<()> {
            Ok(())
        }
    }

    impl OwnErase for Lab {
        fn offered(&self) -> Result<Vec<EraseMethod>, String> {
            Ok(self.own.clone())
        }

        fn erase(&self, _: EraseMethod) -> io::Result<()> {
            if let Some(byte) = self.format_leaves {
                self.fill(byte, 0..self.size() as usize);
            }
            Ok(())
        }

        fn finish(&self) -> Result<(), String> {
            if self.keeps_password { Err("the disk keeps a password".to_owned()) } else { Ok(()) }
        }
    }

    fn erased(lab: &Lab) -> Result<Erased, String> {
        secure(lab, true, lab, &mut |_, _| Ok(()))
    }

    #[test]
    fn the_strongest_method_that_the_samples_prove_is_used() {
        let crypto =
            Lab { own: vec![EraseMethod::NvmeFormatCrypto], format_leaves: Some(0xa5), ..Lab::new() };
        let done = erased(&crypto).unwrap();
        assert_eq!(
            (done.method, done.level, &done.not_used[..]),
            (EraseMethod::NvmeFormatCrypto, "purge", &[][..])
        );
        assert!(done.samples > 100, "{done:?}");

        let discard = Lab { discard_leaves: Some(0), ..Lab::new() };
        assert_eq!(erased(&discard).unwrap().method, EraseMethod::Discard);
    }

    #[test]
    fn the_level_is_that_of_the_standard_for_platters_and_for_flash() {
        let all = [
            (EraseMethod::NvmeFormat, ["purge", "purge"]),
            (EraseMethod::AtaSecureEraseEnhanced, ["purge", "clear"]),
            (EraseMethod::AtaSecureErase, ["clear", "clear"]),
        ];
        for (method, levels) in all {
            for (is_rotational, level) in [true, false].into_iter().zip(levels) {
                let lab = Lab { own: vec![method], format_leaves: Some(0), ..Lab::new() };
                let done = secure(&lab, is_rotational, &lab, &mut |_, _| Ok(())).unwrap();
                assert_eq!((done.method, done.level), (method, level), "rotational: {is_rotational}");
            }
        }
    }

    #[test]
    fn a_disk_that_keeps_the_password_of_an_erase_is_no_success_however_it_was_erased() {
        for own in [vec![EraseMethod::AtaSecureErase], Vec::new()] {
            let lab = Lab { own, format_leaves: Some(0), keeps_password: true, ..Lab::new() };
            let refused = erased(&lab).unwrap_err();
            assert!(refused.contains("erased the disk, but the disk keeps a password"), "{refused}");
        }
    }

    #[test]
    fn a_drive_that_acknowledges_a_format_and_does_nothing_is_overwritten() {
        let liar = Lab { own: vec![EraseMethod::NvmeFormat], discard_leaves: Some(7), ..Lab::new() };
        let done = erased(&liar).unwrap();
        assert_eq!((done.method, done.level), (EraseMethod::Overwrite, "clear"));
        assert!(done.not_used[0].contains("what it held before at 0"), "{done:?}");
        assert!(done.not_used[1].contains("other bytes than zeros"), "{done:?}");
        assert!(is_filled(&liar.bytes.lock().unwrap(), 0));
    }

    #[test]
    fn a_disk_that_loses_writes_is_never_called_erased() {
        let last = (20 << 20) - 1;
        let stuck = Lab { stuck: last..last + 1, ..Lab::new() };
        let refused = erased(&stuck).unwrap_err();
        assert!(refused.contains("overwrite: the disk returns other bytes than zeros"), "{refused}");
    }

    #[test]
    fn an_erase_ends_between_two_writes_when_its_job_ends() {
        for (begun, is_written) in [(EraseMethod::Overwrite, true), (EraseMethod::Discard, false)] {
            let lab = Lab::new();
            let ended = secure(&lab, true, &lab, &mut |method, percent| match method {
                _ if method == begun && (percent > 0 || !is_written) => Err("the job ended".to_owned()),
                _ => Ok(()),
            });
            assert_eq!(ended.unwrap_err(), "the job ended");
            assert_eq!(is_filled(&lab.bytes.lock().unwrap(), 0), is_written, "{begun:?}");
        }
    }

    #[test]
    fn an_image_file_is_erased_and_keeps_its_size() {
        let (_folder, path) = disk_image(300 << 20, b'x');
        let disk = FileDisk::open(&path, 512).unwrap();
        let mut seen = Vec::new();
        let done = secure(&disk, true, &NoOwnErase, &mut |method, percent| {
            seen.push((method, percent));
            Ok(())
        })
        .unwrap();
        assert!(done.not_used[0].contains("no NVMe and no ATA drive"), "{done:?}");
        assert!(seen.iter().all(|(_, percent)| *percent <= 100));
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.len() == 300 << 20 && is_filled(&bytes, 0));
    }

    #[test]
    fn a_sector_that_cannot_be_read_stops_no_erase_and_proves_none() {
        let lab = Lab { unreadable: Mutex::new(0..4096), discard_leaves: Some(0), ..Lab::new() };
        let erased = secure(&lab, true, &NoOwnErase, &mut |_, _| Ok(())).unwrap();
        assert_eq!(erased.method, EraseMethod::Discard);
        // Other bytes than zeros, where nothing could be read before, prove nothing.
        let formatted = Lab {
            unreadable: Mutex::new(0..4096),
            own: vec![EraseMethod::NvmeFormat],
            format_leaves: Some(0xa5),
            ..Lab::new()
        };
        let all = places(formatted.size()).len();
        assert_eq!(secure(&formatted, false, &formatted, &mut |_, _| Ok(())).unwrap().samples, all - 1);
        // The sector stays unreadable: no method is proven, and the disk is to be destroyed.
        let lab = Lab { unreadable: Mutex::new(0..4096), stuck: 0..1, discard_leaves: Some(0), ..Lab::new() };
        let refused = secure(&lab, true, &NoOwnErase, &mut |_, _| Ok(())).unwrap_err();
        assert!(
            refused.contains("reading after the erase at 0") && refused.contains("Destroy the disk"),
            "{refused}"
        );
    }

    #[test]
    fn samples_cover_both_ends_and_stay_inside_of_the_disk() {
        for size in [0, 1, SAMPLE - 1, SAMPLE, 10 * SAMPLE + 1, 1 << 40, u64::MAX] {
            let places = places(size);
            assert!(places.iter().all(|place| place + SAMPLE <= size), "{size}");
            assert!(places.len() as u64 <= SPREAD + 2 * ENDS);
            if size >= SAMPLE {
                assert_eq!((places[0], *places.last().unwrap()), (0, (size / SAMPLE - 1) * SAMPLE));
            }
        }
    }
}
