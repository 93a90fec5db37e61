//! The bodies of the fuzz targets, so that ordinary tests can replay the seeds.
//!
//! ```text
//! read_image       data = an image without its 16 empty sectors and without the zeros at its end
//! read_udf         data = sectors (16) | pieces: sector (15), recompute the tag (1) | length (16) | bytes
//! splice           data = the first 2048 bytes of an image | the image without its system area and final zeros
//! check            data = as for read_image; the image is checked, and read if the checker finds no error
//! write_roundtrip  data = lines that describe a tree, which is written, checked and read in every namespace
//! ```
//!
//! Each function panics when a promise of the crate is broken; a fuzz target only calls its function.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::check::{self, CheckOptions, Rule, Severity, check_names};
use crate::ecma119::SECTOR;
use crate::error::ReadError;
use crate::image::{Entry, FileReader, Image, Namespace, ReadLimits};
use crate::options::{BiosBoot, Boot, ImageOptions, Profile, UefiBoot};
use crate::partition::Gpt;
use crate::plan::ImagePlan;
use crate::source::{ReadAt, past_end};
use crate::splice::{ExistingDirectory, Splice, SpliceOptions};
use crate::tree::Tree;
use crate::udf;

/// The number of bytes before the first descriptor, which readers do not read.
const SYSTEM_AREA: u64 = 32 * 1024;
/// The length in bytes of every image that is read.
const IMAGE: u64 = 1 << 20;
/// The largest number of sectors of an image in pieces.
const MAX_SECTORS: usize = 512;
/// The flag of a piece: recompute the checksums of its descriptor.
const SEAL: u16 = 0x8000;
/// The budgets for one image.
const LIMITS: ReadLimits = ReadLimits { directory_bytes: 1 << 20, entries: 10_000, depth: 64, links: 8 };
/// The number of bytes of every file that are read.
const SAMPLE: usize = 4096;
/// The number of entries that are also looked up by path, each from the root.
const LOOKUPS: usize = 50;
/// The longest file of a written tree in bytes.
const MAX_CONTENT: usize = 10_000;

/// An image of 1 MiB that is zero except for the data.
struct Frame<'a>(&'a [u8]);

impl ReadAt for Frame<'_> {
    fn len(&self) -> u64 {
        IMAGE
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > IMAGE) {
            return Err(past_end(offset, buffer.len(), IMAGE));
        }
        buffer.fill(0);
        // Zeros precede and follow the data.
        let before = usize::try_from(SYSTEM_AREA.saturating_sub(offset))
            .map_or(buffer.len(), |gap| gap.min(buffer.len()));
        let start =
            usize::try_from((offset + before as u64).saturating_sub(SYSTEM_AREA)).unwrap_or(usize::MAX);
        let there = self.0.get(start..).unwrap_or_default();
        let count = there.len().min(buffer.len() - before);
        buffer[before..before + count].copy_from_slice(&there[..count]);
        Ok(())
    }
}

/// Reads everything of a hostile image in every namespace. The reader must return, and everything that it lists must be
/// readable. Returns the number of entries in all namespaces.
pub fn read_image(data: &[u8]) -> usize {
    read_everything(Frame(data))
}

/// Reads an image of which only some sectors are given, because structures of UDF are far from each other. The
/// checksums of descriptors are recomputed where a piece requests it, so that mutated bytes pass the checks.
pub fn read_udf(data: &[u8]) -> usize {
    read_everything(expand(data))
}

/// Returns the image that the pieces describe.
fn expand(data: &[u8]) -> Vec<u8> {
    let Some((sectors, mut rest)) = data.split_first_chunk() else { return Vec::new() };
    let sectors = usize::from(u16::from_le_bytes(*sectors)).min(MAX_SECTORS);
    let mut image = vec![0; sectors * SECTOR];
    while let Some((&[a, b, c, d], after)) = rest.split_first_chunk() {
        let (place, length) = (u16::from_le_bytes([a, b]), usize::from(u16::from_le_bytes([c, d])));
        let (bytes, after) = after.split_at(length.min(after.len()).min(SECTOR));
        let at = usize::from(place & !SEAL) * SECTOR;
        if let Some(sector) = image.get_mut(at..at + SECTOR) {
            sector[..bytes.len()].copy_from_slice(bytes);
            if place & SEAL != 0 {
                udf::seal(sector);
            }
        }
        rest = after;
    }
    image
}

fn read_everything<S: ReadAt>(source: S) -> usize {
    let mut count = 0;
    for namespace in [Namespace::Udf, Namespace::RockRidge, Namespace::Joliet, Namespace::Plain] {
        let Ok(image) = Image::open_with(&source, Some(namespace), LIMITS) else { continue };
        let walked = image.walk(|path, entry| {
            count += 1;
            assert!(!entry.name.is_empty() && !entry.name.contains('/'), "names are single components");
            if count <= LOOKUPS {
                // Links may point anywhere, so any result is allowed.
                let _ = image.lookup(path);
            }
            if let Ok(file) = image.reader(entry, path) {
                read_samples(&source, entry, &file);
            }
            ControlFlow::Continue(())
        });
        // A complete walk proves that the tree is valid, so listing its root must succeed.
        assert!(walked.is_err() || image.list("").is_ok(), "what can be walked can be listed");
        if let Ok(entries) = image.boot_entries() {
            assert!(entries.iter().all(|entry| entry.extent.offset + entry.extent.len <= source.len()));
        }
        for boot in image.boot_images().unwrap_or_default() {
            assert!(boot.extent.offset + boot.extent.len <= source.len(), "boot images lie inside");
            let _ = image.open_file(&boot.path);
        }
    }
    count
}

/// Reads the beginning and the end of a file, and compares with the bytes of its extents.
fn read_samples<S: ReadAt>(source: &S, entry: &Entry, file: &FileReader<&S>) {
    assert_eq!(file.len(), entry.len, "a file is as long as its entry");
    let mut sample = vec![0; usize::try_from(file.len()).map_or(SAMPLE, |len| len.min(SAMPLE))];
    let end = file.read_exact_at(file.len() - sample.len() as u64, &mut sample);
    let start = file.read_exact_at(0, &mut sample);
    let Some(extents) = file.extents() else {
        // Compressed data is inflated here for the first time, so it may be invalid.
        return;
    };
    assert!(start.is_ok() && end.is_ok(), "an opened file can be read");
    assert_eq!(
        extents.iter().map(|extent| extent.len).sum::<u64>(),
        file.len(),
        "extents are the whole file"
    );
    if let Some(first) = extents.first() {
        let length = sample.len().min(usize::try_from(first.len).unwrap_or(SAMPLE));
        let mut direct = vec![0; length];
        assert!(source.read_exact_at(first.offset, &mut direct).is_ok(), "extents lie inside the image");
        assert!(direct == sample[..length], "extents hold the bytes of the file");
    }
}

/// Checks a hostile image. The checker must return an ordered report, and an image without errors must be readable in
/// every namespace. Returns the number of findings.
pub fn check(data: &[u8]) -> u64 {
    checked(&Frame(data), Vec::new())
}

fn checked(source: &dyn ReadAt, ignored: Vec<Rule>) -> u64 {
    let options = CheckOptions {
        findings_per_rule: 3,
        entries: LIMITS.entries,
        // Most of the image is zeros around the data.
        unused_bytes: 128 << 10,
        ignored,
        ..CheckOptions::default()
    };
    let report = match check::check(source, &options) {
        Ok(report) => report,
        Err(error) => panic!("only a failing medium is an error: {error}"),
    };
    let findings = report.findings();
    assert!(findings.is_sorted_by_key(|finding| finding.offset), "findings are in order");
    assert!(findings.iter().all(|finding| finding.offset <= IMAGE), "findings are in the image");
    let lines = findings.len() + usize::from(report.omitted() > 0) + 1;
    assert_eq!(report.to_string().lines().count(), lines, "each finding is one line");
    let counted = Severity::ALL.iter().map(|severity| report.count(*severity)).sum::<u64>();
    assert_eq!(counted, findings.len() as u64 + report.omitted(), "every finding is counted");
    if report.count(Severity::Error) == 0 {
        for namespace in [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain] {
            let walked = Image::open_with(source, Some(namespace), LIMITS)
                .and_then(|image| image.walk(|_, _| ControlFlow::Continue(())));
            if let Err(ReadError::Invalid { offset, rule }) = walked {
                panic!(
                    "{namespace}: no error was found, and the reader has one at {offset:#x}: {rule}\n{report}"
                );
            }
        }
    }
    counted
}

/// Writes the tree that `data` describes, reads it back in every namespace and compares. A refused tree is allowed.
///
/// Each line is `path`, a tab, and the number of bytes in the file. A path that ends in `/` is a directory. The first
/// file is a boot file when its path begins with `boot`.
pub fn write_roundtrip(data: &[u8]) {
    roundtrip(data, &|_| ());
}

/// Runs [`write_roundtrip`] with a change of the image before it is read.
fn roundtrip(data: &[u8], spoil: &dyn Fn(&mut Vec<u8>)) {
    let text = String::from_utf8_lossy(data);
    let mut tree = Tree::new();
    let mut wanted: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for line in text.lines().take(200) {
        let (path, size) = line.split_once('\t').unwrap_or((line, "0"));
        if let Some(directory) = path.strip_suffix('/') {
            // A refused path is left out of the tree, like a refused file.
            let _ = tree.add_directory(directory);
            continue;
        }
        let size = size.parse::<usize>().unwrap_or(0).min(MAX_CONTENT);
        let content: Vec<u8> = path.bytes().cycle().take(size).collect();
        if tree.add_file(path, content.clone()).is_ok() {
            wanted.insert(path.strip_prefix('/').unwrap_or(path).to_owned(), content);
        }
    }
    let mut options = ImageOptions::new(Profile::Task, "FUZZ", 1_700_000_000);
    options.min_size = 0;
    if let Some((path, _)) = wanted.first_key_value().filter(|(path, _)| path.starts_with("boot")) {
        options.profile = Profile::Boot;
        let (bios, uefi) = (
            BiosBoot { path: path.clone(), load_units: 4, boot_info_table: false },
            UefiBoot { path: path.clone() },
        );
        options.boot = Some(Boot { bios: Some(bios), uefi: Some(uefi) });
    }
    let Ok(plan) = ImagePlan::new(&tree, &options) else { return };
    let mut bytes = Vec::new();
    assert!(matches!(plan.write_to(&mut bytes), Ok(written) if written == bytes.len() as u64));
    let mut again = vec![0; bytes.len()];
    assert!(plan.read_exact_at(0, &mut again).is_ok() && again == bytes, "both ways out give the same bytes");
    spoil(&mut bytes);
    let folding = check_names(&tree).len() as u64;
    match check::check(&bytes, &CheckOptions::default()) {
        Ok(report) => assert_eq!(report.totals().values().sum::<u64>(), folding, "{report}"),
        Err(error) => panic!("our own image can be checked: {error}"),
    }

    for namespace in [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain] {
        let image = match Image::open_with(bytes.as_slice(), Some(namespace), ReadLimits::default()) {
            Ok(image) => image,
            Err(error) => panic!("our own image has {namespace}: {error}"),
        };
        let mut found: Vec<(String, Vec<u8>)> = Vec::new();
        let walked = image.walk(|path, entry| {
            if entry.is_file() {
                found.push((path.to_owned(), read_all(&image, path)));
            }
            ControlFlow::Continue(())
        });
        assert!(walked.is_ok(), "our own image can be walked: {walked:?}");
        assert_eq!(found.len(), wanted.len(), "{namespace}");
        if namespace == Namespace::Plain {
            let mut contents: Vec<&Vec<u8>> = found.iter().map(|(_, content)| content).collect();
            let mut expected: Vec<&Vec<u8>> = wanted.values().collect();
            contents.sort_unstable();
            expected.sort_unstable();
            assert!(contents == expected, "the same contents under other names");
        } else {
            let found: BTreeMap<String, Vec<u8>> = found.into_iter().collect();
            assert!(found == wanted, "{namespace} gives back what was written");
        }
    }
}

fn read_all(image: &Image<&[u8]>, path: &str) -> Vec<u8> {
    match image.read(path, MAX_CONTENT as u64) {
        Ok(content) => content,
        Err(error) => panic!("a file that was written can be read: {path:?}: {error}"),
    }
}

/// The part of the system area that the input of a splice contains: the MBR, the header of a GPT and eight entries.
const SYSTEM_HEAD: usize = 2048;

/// Adds a file to a hostile image. A refusal is allowed. A planned image must show the file wherever the original could
/// be listed, and must keep a GPT readable. Returns whether the splice was planned.
pub fn splice(data: &[u8]) -> bool {
    spliced(data, &|_| ())
}

/// Runs [`splice`] with a change of the new image before it is read.
fn spliced(data: &[u8], spoil: &dyn Fn(&mut Vec<u8>)) -> bool {
    let (head, rest) = data.split_at(data.len().min(SYSTEM_HEAD));
    let mut original = vec![0; IMAGE as usize];
    original[..head.len()].copy_from_slice(head);
    let body = &mut original[SYSTEM_AREA as usize..];
    let count = rest.len().min(body.len());
    body[..count].copy_from_slice(&rest[..count]);

    let content = "{\"job_id\": 1}\n";
    let options = SpliceOptions { existing: ExistingDirectory::Replace, ..SpliceOptions::new(1_700_000_000) };
    let source: Arc<dyn ReadAt> = Arc::new(original.clone());
    let Ok(spliced) = Splice::plan(source, &[("job.json", content.into())], &options) else { return false };
    assert!(spliced.bytes_read <= options.read_limit, "planning keeps to its budget");
    let mut bytes = Vec::new();
    assert!(matches!(spliced.plan.write_to(&mut bytes), Ok(written) if written == bytes.len() as u64));
    assert!(
        bytes.len() > original.len() && bytes.len().is_multiple_of(SECTOR),
        "the image grows by whole sectors"
    );
    spoil(&mut bytes);
    for namespace in [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain] {
        let listed =
            Image::open_with(original.as_slice(), Some(namespace), LIMITS).and_then(|image| image.list(""));
        if listed.is_err() {
            continue;
        }
        let read = Image::open_with(bytes.as_slice(), Some(namespace), LIMITS)
            .and_then(|image| image.read("task/job.json", MAX_CONTENT as u64));
        assert!(matches!(&read, Ok(found) if found == content.as_bytes()), "{namespace}: {read:?}");
    }
    if let Ok(Some(_)) = Gpt::read(&original, 1) {
        let gpt = Gpt::read(&bytes, 1);
        let Ok(Some(gpt)) = gpt else { panic!("a GPT stays readable: {gpt:?}") };
        assert!(matches!(Gpt::read(&bytes, gpt.alternate), Ok(Some(backup)) if backup == gpt.backup()));
    }
    true
}

/// Each oracle is tested with a wrong input, to prove that it can fail.
#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    const TREE: &[u8] = b"one\t3000\nsub/two\t10\n";

    fn image() -> Vec<u8> {
        let mut tree = Tree::new();
        assert!(tree.add_file("one", vec![0x5A; 3000]).is_ok() && tree.add_file("sub/two", "two").is_ok());
        let mut bytes = Vec::new();
        let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "FUZZ", 1_700_000_000));
        assert!(plan.is_ok_and(|plan| plan.write_to(&mut bytes).is_ok()));
        bytes
    }

    /// Returns the position of the content `text`.
    fn place(bytes: &[u8], text: &[u8]) -> usize {
        bytes.windows(text.len()).position(|window| window == text).unwrap_or_default()
    }

    #[test]
    #[should_panic(expected = "gives back what was written")]
    fn a_writer_that_changes_a_byte_of_a_file_is_detected() {
        roundtrip(TREE, &|bytes| {
            let at = place(bytes, b"sub/twosub");
            bytes[at] ^= 1;
        });
    }

    #[test]
    #[should_panic(expected = "no error was found, and the reader has one")]
    fn a_checker_that_finds_nothing_is_detected() {
        let mut bytes = image();
        // The length of a directory record, in every tree.
        for name in [b"\x03SUB".as_slice(), b"\x06\0s\0u\0b"] {
            let at = place(&bytes, name);
            bytes[at - 32] = 20;
        }
        checked(&bytes, Rule::ALL.to_vec());
    }

    /// A source that returns different bytes on every read.
    struct UnstableSource(Vec<u8>, AtomicU8);

    impl ReadAt for UnstableSource {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            self.0.read_exact_at(offset, buffer)?;
            if buffer.first() == Some(&0x5A) {
                buffer[0] = self.1.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    }

    #[test]
    #[should_panic(expected = "extents hold the bytes of the file")]
    fn a_reader_whose_extents_are_not_the_file_is_detected() {
        read_everything(UnstableSource(image(), AtomicU8::new(0)));
    }

    #[test]
    #[should_panic(expected = "Joliet")]
    fn a_splice_that_omits_a_tree_is_detected() {
        let image = image();
        let data = [&[0; SYSTEM_HEAD], &image[SYSTEM_AREA as usize..]].concat();
        assert!(spliced(&data, &|_| ()), "the image takes a splice");
        spliced(&data, &|bytes| {
            let name = b"\0j\0o\0b\0.\0j\0s\0o\0n";
            let at = place(bytes, name);
            bytes[at..at + name.len()].fill(b'x');
        });
    }
}
