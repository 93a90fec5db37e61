//! Writes the images that `.ci/vm` passes to a real kernel and to real firmware, with the expected contents of each.
//!
//! ```text
//! vm_images OUTPUT LOADERS ORIGINAL...    LOADERS: tree/ (files of a bootable image), isohdpfx.bin (an MBR)
//! OUTPUT/<name>.iso                       written images; and every ORIGINAL and one written image with task files
//! OUTPUT/<name>.manifest                  also for each ORIGINAL. One line per entry and tree, separated by tabs:
//!                                         tree  kind  mode  modified  size  digest-or-target  path
//! ```
//!
//! A manifest contains the view of this crate's reader. This program checks that it equals the input of the writer. The
//! kernel is then a third view, and the only one that shares no code with the writer.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iso9660::{
    BiosBoot, Boot, Content, EntryKind, Extent, FileSource, Hybrid, Image, ImageOptions, ImagePlan,
    InterchangeLevel, Namespace, Profile, ReadAt, ReadLimits, SECTOR_SIZE, SegmentData, Splice,
    SpliceOptions, Tree, UefiBoot,
};
use sha2::{Digest, Sha256};

type Outcome<T> = Result<T, Box<dyn Error>>;
/// Files by path, as their digests.
type Files = BTreeMap<String, String>;

/// 2023-11-14 22:13:20 UTC.
const EPOCH: i64 = 1_700_000_000;
/// The digest of a larger file covers samples of 64 KiB: at the start, around 4 GiB (where two sections meet) and at
/// the end. `.ci/vm/init` uses the same samples.
const SAMPLED_ABOVE: u64 = 64 << 20;
const SAMPLE: u64 = 64 << 10;
const SEAM: u64 = (4 << 30) - SAMPLE / 2;
/// The BIOS boot loader, the only file that the image changes: it gets its boot info table.
const BIOS_LOADER: &str = "isolinux/isolinux.bin";

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, output, loaders, originals @ ..] = arguments.as_slice() else {
        return Err("usage: vm_images OUTPUT LOADERS ORIGINAL...".into());
    };
    let (output, loaders) = (Path::new(output), Path::new(loaders));
    let path = |name: &str| output.join(format!("{name}.iso"));
    for sample in samples(loaders)? {
        let image = path(sample.name);
        write_sparse(&ImagePlan::new(&sample.tree, &sample.options)?, &image)?;
        for seen in describe(&image)?.iter().filter(|seen| seen.namespace != Namespace::Plain) {
            let mut files = seen.files.clone();
            files.remove(BIOS_LOADER);
            expect(&image, seen.namespace, &files, &sample.files)?;
        }
    }
    for original in originals.iter().map(PathBuf::from).chain([path("hybrid")]) {
        let before = describe(&original)?;
        let task: Vec<(String, Content)> = ["job.json", "recipe.json", "a file with a long name.txt"]
            .map(|name| (name.to_owned(), lines(name, 5000).into()))
            .into();
        let source = Arc::new(FileSource::open(&original)?);
        let spliced = Splice::plan(source, &task, &SpliceOptions::new(EPOCH))?;
        let name = original.file_stem().and_then(|name| name.to_str()).ok_or("an original without a name")?;
        let image = path(&format!("{name}_spliced"));
        write_sparse(&spliced.plan, &image)?;
        for (before, after) in before.iter().zip(describe(&image)?) {
            if after.namespace != Namespace::Plain {
                let mut wanted = before.files.clone();
                for (name, _) in &task {
                    wanted.insert(format!("task/{name}"), digest(&lines(name, 5000))?);
                }
                expect(&image, after.namespace, &after.files, &wanted)?;
            }
        }
    }
    Ok(())
}

/// A future image and its files.
struct Sample {
    name: &'static str,
    options: ImageOptions,
    tree: Tree,
    files: Files,
}

impl Sample {
    fn new(name: &'static str, profile: Profile, label: &str) -> Sample {
        let options = ImageOptions::new(profile, label, EPOCH);
        Sample { name, options, tree: Tree::new(), files: Files::new() }
    }

    fn file(&mut self, path: &str, content: Vec<u8>) -> Outcome<()> {
        self.files.insert(path.to_owned(), digest(&content)?);
        self.tree.add_file(path, content)?;
        Ok(())
    }

    /// Adds files whose content contains their path.
    fn lines(mut self, paths: &[impl AsRef<str>]) -> Outcome<Sample> {
        for path in paths {
            let path = path.as_ref();
            self.file(path, lines(path, 3000 + path.len()))?;
        }
        Ok(self)
    }
}

/// Returns `length` bytes of lines that contain the path.
fn lines(path: &str, length: usize) -> Vec<u8> {
    (0..).flat_map(|line| format!("{path} line {line}\n").into_bytes()).take(length).collect()
}

fn samples(loaders: &Path) -> Outcome<Vec<Sample>> {
    let mut samples = Vec::new();
    for (name, label, payload) in [
        ("task", "TASK_0123456789A", &["job.json"][..]),
        ("nocloud", "CIDATA", &["user-data", "meta-data", "network-config"]),
        ("kickstart", "OEMDRV", &["ks.cfg"]),
        ("windows", "TASK_WINDOWS", &["unattend.xml", "autounattend.xml"]),
    ] {
        let mut sample = Sample::new(name, Profile::Task, label)
            .lines(&["recipe.json", "recipe.schema.json"])?
            .lines(payload)?;
        sample.file("empty", Vec::new())?;
        sample.file("sector", lines("sector", 2048))?;
        samples.push(sample);
    }
    // The smallest image that a USB gadget accepts as a CD.
    let mut sample = Sample::new("smallest", Profile::Task, "SMALLEST").lines(&["job.json"])?;
    sample.options.min_size = 300 * SECTOR_SIZE;
    samples.push(sample);

    samples.push(Sample::new("levels", Profile::Task, "LEVELS").lines(&[
        "1/2/3/4/5/6/7/leaf",
        "1/b/leaf",
        "leaf",
    ])?);
    let deep = [
        "deep/2/3/4/5/6/7/8/9/10/11/12/leaf",
        "deep/2/3/4/5/6/7/8/leaf",
        "deep/b/3/4/5/6/7/8/9/leaf",
        "leaf",
    ];
    samples.push(Sample::new("relocated", Profile::Tree, "RELOCATED").lines(&deep)?);
    samples.push(names("names")?);
    let mut sample = names("names_enhanced")?;
    sample.options.enhanced = true;
    samples.push(sample);
    let mut sample = names("names_level_one")?;
    sample.options.level = InterchangeLevel::One;
    samples.push(sample);

    // More than one sector of directory, and names that need a continuation each: 253 bytes is the longest that Linux
    // shows.
    let many: Vec<String> = (0..150).map(|index| format!("many/file-{index:03}.json")).collect();
    samples.push(Sample::new("many", Profile::Task, "MANY").lines(&many)?);
    let long: Vec<String> = (0..12).map(|index| format!("{index:02}{}", "c".repeat(251))).collect();
    let mut sample = Sample::new("continuations", Profile::Task, "CONTINUATIONS").lines(&long)?;
    sample.options.joliet = false;
    samples.push(sample);

    // Linux 6.1 keeps dates in 32 bits and shows later and earlier ones wrong.
    for (name, epoch) in [("oldest", i32::MIN), ("latest", i32::MAX)] {
        let mut sample = Sample::new(name, Profile::Task, "DATES").lines(&["file"])?;
        sample.options.epoch = epoch.into();
        samples.push(sample);
    }
    let mut sample =
        Sample::new("plain", Profile::Task, "PLAIN").lines(&["ks.cfg", "kickstart/second.cfg"])?;
    (sample.options.joliet, sample.options.rock_ridge) = (false, false);
    samples.push(sample);

    let mut sample = Sample::new("large", Profile::Task, "LARGE").lines(&["before.txt", "z-after.txt"])?;
    let content = Sparse { len: (4 << 30) + (300 << 20) + 1234 };
    sample.files.insert("install.wim".into(), digest(&content)?);
    sample.tree.add_file("install.wim", Content::source(content))?;
    samples.push(sample);

    samples.push(boot("boot", loaders)?);
    let mut sample = boot("hybrid", loaders)?;
    sample.options.hybrid = Some(Hybrid::new(fs::read(loaders.join("isohdpfx.bin"))?));
    samples.push(sample);
    Ok(samples)
}

/// Returns an image with names that are long, collide or are not ASCII, and with links.
fn names(name: &'static str) -> Outcome<Sample> {
    let mut sample = Sample::new(name, Profile::Tree, "LONGER_THAN_SIXTEEN_CHARACTERS").lines(&[
        ".hidden",
        "a-b",
        "a_b",
        "a_b0",
        "no.of.dots.tar.gz",
        "ünïcode/日本語.txt",
        "UPPER.TXT",
        "lower.txt",
        "x/in a directory",
        &"n".repeat(103),
    ])?;
    let program = lines("program", 100);
    sample.files.insert("program".into(), digest(&program)?);
    sample.tree.add_executable("program", program)?;
    sample.files.insert("x/again".into(), sample.files["a-b"].clone());
    sample.tree.add_hard_link("x/again", "a-b")?;
    sample.tree.add_symlink("latest", "lower.txt")?;
    sample.tree.add_symlink("x/up", "../ünïcode/日本語.txt")?;
    sample.tree.add_symlink("absolute", "/dev/null")?;
    sample.tree.add_symlink("far", &"component/".repeat(102))?;
    sample.tree.add_symlink("long", &"l".repeat(255))?;
    Ok(sample)
}

/// Returns an image that BIOS and UEFI firmware boot.
fn boot(name: &'static str, loaders: &Path) -> Outcome<Sample> {
    let mut sample = Sample::new(name, Profile::Boot, "BOOT");
    for path in [
        "isolinux/isolinux.cfg",
        "isolinux/ldlinux.c32",
        "isolinux/libcom32.c32",
        "isolinux/cat.c32",
        "boot/efi.img",
        "marker.txt",
    ] {
        sample.file(path, fs::read(loaders.join("tree").join(path))?)?;
    }
    sample.tree.add_file(BIOS_LOADER, fs::read(loaders.join("tree").join(BIOS_LOADER))?)?;
    sample.options.boot = Some(Boot::new(
        Some(BiosBoot::new(BIOS_LOADER).with_boot_info_table(true)),
        Some(UefiBoot::new("boot/efi.img")),
    ));
    Ok(sample)
}

/// Zeros with a short text around every GiB and at the end.
struct Sparse {
    len: u64,
}

impl ReadAt for Sparse {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.fill(0);
        let islands = (0..=self.len >> 30).flat_map(|gib| [gib << 30, (gib << 30) - 2048 * gib.min(1)]);
        for island in islands.chain([self.len - 20]) {
            let text = format!("island {island:#013x}");
            for (byte, at) in text.bytes().zip(island..self.len) {
                let place = at.checked_sub(offset).and_then(|at| usize::try_from(at).ok());
                if let Some(place) = place.and_then(|place| buffer.get_mut(place)) {
                    *place = byte;
                }
            }
        }
        Ok(())
    }
}

/// Writes an image to a sparse file: zeros become holes.
fn write_sparse(plan: &ImagePlan, path: &Path) -> Outcome<()> {
    let file = File::create(path)?;
    file.set_len(plan.len())?;
    let (mut buffer, zeros) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for segment in plan.segments() {
        if matches!(segment.data, SegmentData::Zeros) {
            continue;
        }
        let end = segment.offset + segment.len;
        for offset in (segment.offset..end).step_by(buffer.len()) {
            let length = buffer.len().min(usize::try_from(end - offset)?);
            plan.read_exact_at(offset, &mut buffer[..length])?;
            if buffer[..length] != zeros[..length] {
                file.write_all_at(&buffer[..length], offset)?;
            }
        }
    }
    Ok(())
}

/// The reader's view of a tree of an image.
struct Seen {
    namespace: Namespace,
    files: Files,
}

/// Writes the manifest of an image. Returns the files of each of its trees.
fn describe(path: &Path) -> Outcome<Vec<Seen>> {
    let mut text = String::new();
    let mut digests: HashMap<Vec<Extent>, String> = HashMap::new();
    let mut seen = Vec::new();
    for namespace in Image::open(FileSource::open(path)?)?.namespaces().iter().copied() {
        let image = Image::open_with(FileSource::open(path)?, Some(namespace), ReadLimits::default())?;
        let tree = match namespace {
            Namespace::RockRidge => "rock_ridge",
            Namespace::Joliet => "joliet",
            Namespace::Plain => "plain",
            Namespace::Udf => return Err("a written image has UDF".into()),
        };
        let mut entries = Vec::new();
        image.walk(|path, entry| {
            entries.push((path.to_owned(), entry.clone()));
            ControlFlow::Continue(())
        })?;
        let mut files = Files::new();
        for (path, entry) in entries {
            let (kind, size, value) = match &entry.kind {
                EntryKind::Directory => ('d', entry.len, String::new()),
                EntryKind::Symlink(target) => ('l', target.len() as u64, target.clone()),
                EntryKind::File => {
                    if !digests.contains_key(&entry.extents) {
                        digests.insert(entry.extents.clone(), digest(&image.reader(&entry, &path)?)?);
                    }
                    ('f', entry.len, digests[&entry.extents].clone())
                }
                other => return Err(format!("{path}: unexpected {other:?}").into()),
            };
            let mode = entry.mode.map_or("-".to_owned(), |mode| format!("{:o}", mode & 0o7777));
            let modified = entry.modified.ok_or(format!("{path}: no date"))?;
            writeln!(text, "{tree}\t{kind}\t{mode}\t{modified}\t{size}\t{value}\t{path}")?;
            if kind == 'f' {
                files.insert(path, value);
            }
        }
        seen.push(Seen { namespace, files });
    }
    fs::write(path.with_extension("manifest"), text)?;
    Ok(seen)
}

fn expect(image: &Path, namespace: Namespace, found: &Files, wanted: &Files) -> Outcome<()> {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{}, {namespace}: the reader sees {found:?} instead of {wanted:?}", image.display()).into())
}

/// Returns the SHA-256 of a source, or of the samples of a large one.
fn digest(source: &dyn ReadAt) -> Outcome<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; usize::try_from(SAMPLE)?];
    let offsets: Vec<u64> = if source.len() <= SAMPLED_ABOVE {
        (0..source.len()).step_by(buffer.len()).collect()
    } else {
        // Whole blocks of 4 KiB, including the one with the last byte, as `dd` counts.
        vec![0, SEAM, (source.len() - 1) / 4096 * 4096 - (SAMPLE - 4096)]
    };
    for offset in offsets {
        let length = buffer.len().min(usize::try_from(source.len() - offset)?);
        source.read_exact_at(offset, &mut buffer[..length])?;
        hash.update(&buffer[..length]);
    }
    Ok(hex::encode(hash.finalize()))
}
