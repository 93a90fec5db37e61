//! What the fuzz targets do, so that ordinary tests can replay their seeds.
//!
//! ```text
//! read_image       data = an image without its 16 empty sectors and without its zeros at the end
//! read_udf         data = sectors (16) | pieces: sector (15), tag is to be made right (1) | length (16) | bytes
//! splice           data = the first 2048 bytes of an image | the image without its system area and zeros at the end
//! check            data = as for read_image; checked, and read where the checker has no objection
//! write_roundtrip  data = lines of a small language: what tree to write; then written, checked, read three ways
//! ```
//!
//! All panic when a promise of the crate does not hold; a target is nothing but a call of one of them.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::check::{self, CheckOptions, Rule, Severity, check_names};
use crate::ecma119::SECTOR;
use crate::error::ReadError;
use crate::image::{Entry, FileReader, Image, ReadLimits, Namespace};
use crate::options::{BiosBoot, Boot, ImageOptions, Profile, UefiBoot};
use crate::partition::Gpt;
use crate::plan::ImagePlan;
use crate::source::{ReadAt, past_end};
use crate::splice::{ExistingDirectory, Splice, SpliceOptions};
use crate::tree::Tree;
use crate::udf;

/// The bytes before the first descriptor, which hold nothing that a reader looks at.
const SYSTEM_AREA: u64 = 32 * 1024;
/// The length of every image that is read.
const IMAGE: u64 = 1 << 20;
/// The most sectors of an image that is given in pieces.
const MAX_SECTORS: usize = 512;
/// In the place of a piece: its descriptor's checksums are to be made right.
const SEAL: u16 = 0x8000;
/// What one image may cost.
const LIMITS: ReadLimits = ReadLimits { directory_bytes: 1 << 20, entries: 10_000, depth: 64, links: 8 };
/// How much of every file is read.
const SAMPLE: usize = 4096;
/// How many entries are also looked up by their paths: each starts again at the root.
const LOOKUPS: usize = 50;
/// The most bytes of a file in a written tree.
const MAX_CONTENT: usize = 10_000;

/// An image of 1 MiB of which only the middle is given.
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
        // Zeros stand before and behind the data.
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

/// Reads everything a hostile image offers, in every namespace. The reader must come back, and what it calls readable
/// must be readable. Answers how many entries were found in all namespaces.
pub fn read_image(data: &[u8]) -> usize {
    read_everything(Frame(data))
}

/// As [`read_image`], for an image of which only some sectors are given: UDF needs structures far from each other. The
/// checksums of descriptors are made right where a piece asks for it, so that changed bytes get behind them.
pub fn read_udf(data: &[u8]) -> usize {
    read_everything(expand(data))
}

/// The image that pieces describe.
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
                // Links may lead anywhere, so any outcome is fine as long as there is one.
                let _ = image.lookup(path);
            }
            if let Ok(file) = image.reader(entry, path) {
                read_samples(&source, entry, &file);
            }
            ControlFlow::Continue(())
        });
        // A walk that ends well has found a tree, so listing its root must do so too.
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

/// Reads the beginning and the end of a file, and what its extents say is there.
fn read_samples<S: ReadAt>(source: &S, entry: &Entry, file: &FileReader<&S>) {
    assert_eq!(file.len(), entry.len, "a file is as long as its entry");
    let mut sample = vec![0; usize::try_from(file.len()).map_or(SAMPLE, |len| len.min(SAMPLE))];
    let end = file.read_exact_at(file.len() - sample.len() as u64, &mut sample);
    let start = file.read_exact_at(0, &mut sample);
    let Some(extents) = file.extents() else {
        // Whether what is compressed can be inflated shows only then.
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

/// Checks a hostile image. The checker must come back with an orderly report, and what it finds no error in must be
/// readable in every namespace that there is. Answers how many findings there are.
pub fn check(data: &[u8]) -> u64 {
    checked(&Frame(data), Vec::new())
}

fn checked(source: &dyn ReadAt, ignored: Vec<Rule>) -> u64 {
    let options = CheckOptions {
        findings_per_rule: 3,
        entries: LIMITS.entries,
        // Most of the frame is zeros of its own.
        unused_bytes: 128 << 10,
        ignored,
        ..CheckOptions::default()
    };
    let report = match check::check(source, &options) {
        Ok(report) => report,
        Err(error) => panic!("nothing but a medium that fails is an error: {error}"),
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

/// Writes the tree that `data` describes, reads it back in every namespace and compares. Refused trees are fine.
///
/// Each line is `path`, a tab, and the number of bytes in the file; a path that ends in `/` is a directory; the first
/// file is booted when its path begins with `boot`.
pub fn write_roundtrip(data: &[u8]) {
    roundtrip(data, &|_| ());
}

/// As [`write_roundtrip`], with something done to the image before it is looked at.
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

/// The part of the system area that a splice is given: the MBR, the header of a GPT and eight entries.
const SYSTEM_HEAD: usize = 2048;

/// Adds a file to a hostile image. A refusal is fine; what is planned must show the file wherever the original could be
/// listed, and keep a GPT readable. Answers whether it was planned.
pub fn splice(data: &[u8]) -> bool {
    spliced(data, &|_| ())
}

/// As [`splice`], with something done to the new image before it is looked at.
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
    assert!(bytes.len() > original.len() && bytes.len().is_multiple_of(SECTOR), "it grew by whole sectors");
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
        let Ok(Some(gpt)) = gpt else { panic!("a GPT stays one: {gpt:?}") };
        assert!(matches!(Gpt::read(&bytes, gpt.alternate), Ok(Some(backup)) if backup == gpt.backup()));
    }
    true
}

/// An oracle that cannot fail proves nothing: each is shown something that is wrong.
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

    /// Where the content `text` is.
    fn place(bytes: &[u8], text: &[u8]) -> usize {
        bytes.windows(text.len()).position(|window| window == text).unwrap_or_default()
    }

    #[test]
    #[should_panic(expected = "gives back what was written")]
    fn a_writer_that_changes_a_byte_of_a_file_is_noticed() {
        roundtrip(TREE, &|bytes| {
            let at = place(bytes, b"sub/twosub");
            bytes[at] ^= 1;
        });
    }

    #[test]
    #[should_panic(expected = "no error was found, and the reader has one")]
    fn a_checker_that_finds_nothing_is_noticed() {
        let mut bytes = image();
        // The length of the record of a directory, in every tree.
        for name in [b"\x03SUB".as_slice(), b"\x06\0s\0u\0b"] {
            let at = place(&bytes, name);
            bytes[at - 32] = 20;
        }
        checked(&bytes, Rule::ALL.to_vec());
    }

    /// Says something else every time.
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
    fn a_reader_whose_extents_are_not_the_file_is_noticed() {
        read_everything(UnstableSource(image(), AtomicU8::new(0)));
    }

    #[test]
    #[should_panic(expected = "Joliet")]
    fn a_splice_that_forgets_a_tree_is_noticed() {
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
