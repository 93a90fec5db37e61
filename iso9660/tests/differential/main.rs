//! Compares the crate with other programs over random trees, in both directions.
//!
//! ```text
//! seed -> tree --our writer--> image --xorriso, isoinfo, isovfy, bsdtar, 7z, iso-info, iso-read, pycdlib--> listing
//! seed -> tree --xorriso, genisoimage, bsdtar, pycdlib--> image --our reader--> listing         all equal the tree
//! ```
//!
//! `SHOAL_TREES` is the number of trees (200); `SHOAL_SEED` replays the seed of a failure. The last tests damage one
//! tree of an image and require a report of every program that shows this tree, to prove that the checks can fail.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod generate;
mod listing;
mod mutants;
mod ours;
mod program;
mod readers;
mod writers;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use generate::{Node, Random, Rules, Source};
use iso9660::{
    BiosBoot, Boot, CheckOptions, DeepDirectories, Hybrid, Image, ImageOptions, ImagePlan, InterchangeLevel,
    Namespace, PlanError, Profile, ReadLimits, Rule, Tree, UefiBoot,
};
use listing::{Item, Kind, Listing};
use readers::pycdlib::Worker;
use readers::{Finding, Subject, isoinfo};
use writers::{Attributes, Writer};

/// 2023-11-14 22:13:20 UTC.
const EPOCH: i64 = 1_700_000_000;
const TREES: u64 = 200;
/// libarchive 3.6.2 reads 24 sectors to detect the format, and reports a shorter image as an empty archive.
const SMALLEST: u64 = 24 * iso9660::SECTOR_SIZE;

/// The resources of a thread: a directory for images and a Python process.
pub(crate) struct Bench {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) worker: Worker,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench { directory: tempfile::tempdir().unwrap(), worker: Worker::start() }
    }
}

/// Runs a check over the seeds on every core, and fails with all results.
fn over_seeds(test: &str, check: impl Fn(u64, &mut Bench) -> Vec<String> + Sync) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let seeds = match number("SHOAL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SHOAL_TREES").unwrap_or(TREES),
    };
    let (next, end, found) = (AtomicU64::new(seeds.start), seeds.end, Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut bench = Bench::new();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let message = check(seed, &mut bench);
                    found.lock().unwrap().extend(message.into_iter().map(|message| (seed, message)));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort();
    let lines: Vec<String> =
        found.iter().map(|(seed, message)| format!("SHOAL_SEED={seed}: {message}")).collect();
    assert!(lines.is_empty(), "{test}: {} of {end} trees differ:\n{}", lines.len(), lines.join("\n"));
}

/// A written image: a random tree with random options.
struct Made {
    source: Source,
    options: ImageOptions,
    /// Whether files with equal content are written as hard links.
    hard_links: bool,
}

impl Made {
    fn new(random: &mut Random) -> Made {
        let mut options = ImageOptions::new(Profile::Tree, "DIFFERENTIAL", EPOCH);
        (options.joliet, options.rock_ridge) = match random.below(6) {
            0 => (false, true),
            1 => (true, false),
            2 => (false, false),
            _ => (true, true),
        };
        if !random.one_in(4) {
            options.min_size = SMALLEST;
        }
        options.level =
            [InterchangeLevel::One, InterchangeLevel::Two, InterchangeLevel::Three, InterchangeLevel::Three]
                [random.below(4)];
        options.enhanced = random.one_in(6);
        let deep = options.rock_ridge && random.one_in(4);
        options.depth = if deep { DeepDirectories::Relocate } else { DeepDirectories::Refuse };
        let rules = Rules {
            // Deep trees have names without continuations, see `readers::without_continuations`.
            name: [if options.joliet { 103 } else { 200 }, 100][usize::from(deep)],
            path: 600,
            any_character: !options.joliet,
            links: options.rock_ridge,
            depth: if deep { 12 } else { 7 },
        };
        let source = generate::tree(random, rules);
        let bootable: Vec<&str> =
            source.files().filter(|(_, bytes)| !bytes.is_empty()).map(|(path, _)| path).collect();
        if let (Some(first), Some(last), true) = (bootable.first(), bootable.last(), random.one_in(5)) {
            options.boot = Some(Boot::new(Some(BiosBoot::new(*first)), Some(UefiBoot::new(*last))));
            options.hybrid = random.one_in(2).then(|| Hybrid::new(vec![0xF4; 100]));
        }
        // xorriso warns when an El Torito image has two names.
        let hard_links = options.boot.is_none() && random.one_in(2);
        Made { source, options, hard_links }
    }

    /// Returns whether a file is written as executable. The rule must not depend on the writer.
    fn executable(path: &str) -> bool {
        path.len().is_multiple_of(5)
    }

    fn plan(&self) -> Result<ImagePlan, PlanError> {
        let mut tree = Tree::new();
        let mut names: HashMap<(*const u8, bool), &str> = HashMap::new();
        for (path, node) in &self.source.0 {
            match node {
                Node::Directory => tree.add_directory(path)?,
                Node::Link(target) => tree.add_symlink(path, target)?,
                Node::File(bytes) => {
                    let executable = Made::executable(path);
                    match names.insert((bytes.as_ptr(), executable), path).filter(|_| self.hard_links) {
                        Some(existing) => tree.add_hard_link(path, existing)?,
                        None if executable => tree.add_executable(path, bytes.clone())?,
                        None => tree.add_file(path, bytes.clone())?,
                    }
                }
            };
        }
        ImagePlan::new(&tree, &self.options)
    }

    /// Returns the trees of the image with their expected listings.
    fn trees(&self, bytes: &[u8]) -> Vec<(Namespace, Listing)> {
        let posix = |item: Item| {
            let mode = match item.kind {
                Kind::Directory => Some(0o555),
                Kind::File { .. } => Some(if Made::executable(&item.path) { 0o555 } else { 0o444 }),
                // The mode of a link has no meaning.
                Kind::Symlink(_) => None,
            };
            Item { mode, ..item }
        };
        let plain = Image::open_with(bytes, Some(Namespace::Plain), ReadLimits::default()).unwrap();
        let plain = ours::listing(&plain).unwrap();
        // The plain tree has other names: they are compared with the listing of this crate's reader, and the contents
        // with the source.
        compare_plain_contents(&plain, &without_links(&self.source, self.options.rock_ridge)).unwrap();
        let mut trees = Vec::new();
        let rock_ridge = || Listing(self.source.listing().0.into_iter().map(posix).collect());
        trees.extend(self.options.rock_ridge.then(|| (Namespace::RockRidge, rock_ridge())));
        trees.extend(self.options.joliet.then(|| (Namespace::Joliet, without_links(&self.source, false))));
        trees.push((Namespace::Plain, plain));
        trees
    }
}

fn stream(plan: &ImagePlan) -> Vec<u8> {
    let mut bytes = Vec::new();
    plan.write_to(&mut bytes).unwrap();
    bytes
}

#[test]
#[ignore = "needs xorriso, genisoimage, libarchive-tools, p7zip-full, libcdio-utils, pycdlib; run by .ci/run"]
fn every_program_reads_the_tree_from_written_images() {
    let (refused, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    over_seeds("images of ours", |seed, bench| {
        let mut random = Random::new(seed);
        let made = Made::new(&mut random);
        count.fetch_add(1, Ordering::Relaxed);
        let plan = match made.plan() {
            Ok(plan) => plan,
            // A deep tree of long names is refused correctly.
            Err(PlanError::PathTooLong { .. }) => {
                refused.fetch_add(1, Ordering::Relaxed);
                return Vec::new();
            }
            Err(error) => return vec![format!("{:?}: {error}", made.options)],
        };
        let bytes = stream(&plan);
        let path = bench.directory.path().join("ours.iso");
        fs::write(&path, &bytes).unwrap();
        let trees = made.trees(&bytes);
        let subject = Subject { path: &path, bytes: &bytes, trees };
        let mut findings = readers::disagreements(&subject, &mut bench.worker, &mut random);
        // Names that readers do not distinguish come from the tree.
        let ignored = vec![Rule::NamesFoldCase];
        let report = iso9660::check(&bytes, &CheckOptions::default().with_ignored(ignored)).unwrap();
        findings.extend(report.findings().iter().map(|finding| Finding {
            program: "this checker",
            namespace: None,
            message: finding.to_string(),
        }));
        let describe = |Finding { program, namespace, message }: Finding| match namespace {
            Some(namespace) => format!("{program}, {namespace}: {message}"),
            None => format!("{program}: {message}"),
        };
        findings.into_iter().map(describe).collect()
    });
    let (refused, count) = (refused.into_inner(), count.into_inner());
    assert!(refused * 10 <= count, "{refused} of {count} trees were refused: they were not compared");
}

#[test]
#[ignore = "needs xorriso, genisoimage, libarchive-tools, p7zip-full, libcdio-utils, pycdlib; run by .ci/run"]
fn the_reader_reads_the_tree_from_images_of_other_programs() {
    over_seeds("images of other programs", |seed, bench| {
        let mut findings = Vec::new();
        for writers in writers::WRITERS {
            let mut random = Random::new(seed);
            let writer = &writers[random.below(writers.len())];
            let source = generate::tree(&mut random, writer.rules);
            let found = foreign(writer, &source, bench);
            findings.extend(
                found.err().map(|message| format!("{} {:?}: {message}", writer.program, writer.arguments)),
            );
        }
        findings
    });
}

/// Makes an image with another program and compares every tree of it.
fn foreign(writer: &Writer, source: &Source, bench: &mut Bench) -> Result<(), String> {
    let (root, path) = (bench.directory.path().join("root"), bench.directory.path().join("foreign.iso"));
    source.write(&root, EPOCH);
    let made = writer.make(&mut bench.worker, &root, &path);
    fs::remove_dir_all(&root).unwrap();
    made?;
    let bytes = fs::read(&path).unwrap();
    compare_foreign(writer, source, &path, &bytes)
}

/// Compares the view of this crate's reader of another program's image with the source.
fn compare_foreign(writer: &Writer, source: &Source, path: &Path, bytes: &[u8]) -> Result<(), String> {
    let mut namespaces = Vec::new();
    namespaces.extend(writer.arguments.contains(&"-udf").then_some(Namespace::Udf));
    namespaces.extend(writer.rock_ridge.map(|_| Namespace::RockRidge));
    namespaces.extend(writer.joliet.then_some(Namespace::Joliet));
    namespaces.push(Namespace::Plain);
    let image = Image::open(bytes).map_err(|error| error.to_string())?;
    if image.namespaces() != namespaces {
        return Err(format!("our reader finds {:?}, there are {namespaces:?}", image.namespaces()));
    }
    for namespace in namespaces {
        let image = Image::open_with(bytes, Some(namespace), ReadLimits::default());
        let found = image.map_err(|error| error.to_string()).and_then(|image| ours::listing(&image));
        let describe = |message: String| format!("{namespace}: {message}");
        let found = found.map_err(describe)?;
        match namespace {
            Namespace::RockRidge => {
                // The directory for directories too deep for ISO 9660 is shown; its contents are shown in their
                // original places.
                let moved = |item: &Item| item.path == "rr_moved" && item.kind == Kind::Directory;
                found.only(|item| !moved(item)).against(&rock_ridge(writer, source))
            }
            Namespace::Joliet => {
                let empty_files = ["genisoimage", "bsdtar"].contains(&writer.program);
                undated(found).against(&without_links(source, empty_files))
            }
            // genisoimage writes links as empty files.
            Namespace::Udf => undated(found).against(&without_links(source, true)),
            Namespace::Plain => plain(source, path, bytes, found),
        }
        .map_err(describe)?;
    }
    Ok(())
}

/// Returns a listing without modes and dates.
fn undated(listing: Listing) -> Listing {
    Listing(listing.0.into_iter().map(|item| Item { mode: None, modified: None, ..item }).collect())
}

/// Returns the source as a tree without links shows it: links are empty files or missing.
fn without_links(source: &Source, empty_files: bool) -> Listing {
    let kind = |item: Item| match item.kind {
        Kind::Symlink(_) => empty_files.then(|| Item { kind: Kind::file(b""), ..item }),
        _ => Some(item),
    };
    Listing(source.listing().0.into_iter().filter_map(kind).collect())
}

/// Returns the source with the modes and dates that a writer assigns.
fn rock_ridge(writer: &Writer, source: &Source) -> Listing {
    let attributes = writer.rock_ridge.unwrap_or(Attributes::Own);
    let with = |item: Item| {
        let (kept, readable) = match item.kind {
            Kind::Directory => (0o750, 0o555),
            _ => (0o640, 0o444),
        };
        let mode = match attributes {
            // A link has no separate mode.
            _ if matches!(item.kind, Kind::Symlink(_)) => None,
            Attributes::Kept => Some(kept),
            Attributes::Readable => Some(readable),
            Attributes::Own => None,
        };
        let dated = attributes != Attributes::Own && mode.is_some();
        Item { mode, modified: dated.then_some(EPOCH), ..item }
    };
    Listing(source.listing().0.into_iter().map(with).collect())
}

/// Compares the plain tree, which has the writer's own names: the names with the listing of isoinfo, the contents with
/// the source.
fn plain(source: &Source, path: &Path, bytes: &[u8], found: Listing) -> Result<(), String> {
    compare_plain_contents(&found, &without_links(source, true))?;
    let subject = Subject { path, bytes, trees: Vec::new() };
    // isoinfo's listing has no versions; the reader shows that of a file beside a directory of its name.
    let found = found.rename(|path| Some(path.strip_suffix(";1").unwrap_or(path).to_owned()));
    found.against(&isoinfo::shows(&subject, Namespace::Plain)?)
}

/// Returns the contents of a plain tree. A relocated directory is replaced by a file that only Rock Ridge interprets.
fn compare_plain_contents(found: &Listing, expected: &Listing) -> Result<(), String> {
    let is_moved = |item: &&Item| {
        let name = item.path.strip_prefix("rr_moved/");
        item.kind == Kind::Directory && name.is_some_and(|name| !name.contains('/'))
    };
    let moved = found.0.iter().filter(is_moved).count();
    let more = found.contents().beyond(&expected.contents())?;
    match more.len() == moved {
        true => Ok(()),
        false => {
            Err(format!("{moved} directories are in rr_moved, but these are not in the source: {more:?}"))
        }
    }
}
