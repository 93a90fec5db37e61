//! Splices: the original's files and the added ones read back in every tree; rules, budgets and refusals.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::hostile::{both, hostile_images, put, record, start_of};
use common::{EPOCH, boot_plan, stream, strict, task_plan};
use iso9660::{
    BiosBoot, Boot, CheckOptions, Content, DeepDirectories, ExistingDirectory, Extent, Hierarchy, Hybrid,
    Image, ImageOptions, ImagePlan, Namespace, Part, PartitionTable, Profile, ReadAt, ReadLimits, Rule,
    SegmentData, Splice, SpliceError, SpliceNote, SpliceOptions, Spliced, Tree, UefiBoot,
};
use proptest::prelude::*;

const NAMESPACES: [Namespace; 3] = [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain];

fn files(names: &[&str]) -> Vec<(String, Content)> {
    names.iter().map(|name| ((*name).to_owned(), Content::from(format!("this is {name}\n")))).collect()
}

fn splice_with(image: Vec<u8>, names: &[&str], options: &SpliceOptions) -> Result<Spliced, SpliceError> {
    Splice::plan(Arc::new(image), &files(names), options)
}

fn splice(image: Vec<u8>, names: &[&str]) -> Result<Spliced, SpliceError> {
    splice_with(image, names, &SpliceOptions::new(EPOCH))
}

/// Returns every file of an image with its extents and content.
fn contents<S: ReadAt>(source: S, namespace: Namespace) -> BTreeMap<String, (Vec<Extent>, Vec<u8>)> {
    let image = Image::open_with(source, Some(namespace), ReadLimits::default()).unwrap();
    let mut found = BTreeMap::new();
    image
        .walk(|path, entry| {
            if entry.is_file() {
                found.insert(path.to_owned(), (entry.extents.clone(), image.read(path, 1 << 20).unwrap()));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

/// Checks a splice: every file of the original is in its place, and the added files are in every namespace of both.
fn check(original: &[u8], plan: &ImagePlan, names: &[&str]) {
    check_but(original, plan, names, &[]);
}

fn check_but(original: &[u8], plan: &ImagePlan, names: &[&str], ignored: &[Rule]) {
    let spliced = stream(plan);
    let options = CheckOptions::default().with_ignored(ignored.to_vec());
    let findings = |image: &[u8]| {
        let report = iso9660::check(&image, &options).unwrap();
        report.findings().iter().map(|finding| format!("{finding:?}")).collect::<Vec<_>>()
    };
    if findings(original).is_empty() {
        assert_eq!(findings(&spliced), Vec::<String>::new(), "a clean original results in a clean image");
    }
    for namespace in NAMESPACES {
        if Image::open_with(original, Some(namespace), ReadLimits::default()).is_err() {
            assert!(Image::open_with(spliced.as_slice(), Some(namespace), ReadLimits::default()).is_err());
            continue;
        }
        let mut found = contents(spliced.as_slice(), namespace);
        for name in names {
            let shown =
                if namespace == Namespace::Plain { name.replace('-', "_") } else { (*name).to_owned() };
            let (_, content) = found.remove(&format!("task/{shown}")).unwrap();
            assert_eq!(content, format!("this is {name}\n").as_bytes(), "{namespace}");
        }
        assert!(
            found == contents(original, namespace),
            "{namespace}: the original's files are in their places"
        );
    }
}

#[test]
fn added_files_are_below_task_in_every_tree_and_the_original_stays() {
    for plan in [task_plan(), boot_plan()] {
        let original = stream(&plan);
        let names = ["job.json", "ks.cfg", "user-data"];
        let spliced = splice(original.clone(), &names).unwrap();
        check(&original, &spliced.plan, &names);
        let bytes = stream(&spliced.plan);
        assert_eq!(strict::check(&bytes), Ok(()));
        let (before, after) = (Image::open(original).unwrap(), Image::open(bytes).unwrap());
        assert_eq!(before.boot_entries().unwrap(), after.boot_entries().unwrap());
        assert_eq!(before.volume().created, after.volume().created);
        let task = after.lookup("task").unwrap();
        assert_eq!((task.mode, task.modified), (Some(0o040_555), Some(EPOCH)));
        let job = after.lookup("task/job.json").unwrap();
        assert_eq!((job.mode, job.modified), (Some(0o100_444), Some(EPOCH)));
    }
}

/// Returns a tree whose root has no room for another entry in its sectors.
fn full_root() -> Vec<u8> {
    for entries in 10..60 {
        let mut tree = Tree::new();
        for index in 0..entries {
            tree.add_file(&format!("file-{index:02}"), "").unwrap();
        }
        tree.add_file("one/two/file", "three\n").unwrap().add_file("zwei/drei/file", "vier\n").unwrap();
        // This name needs a continuation area.
        tree.add_file(&"long".repeat(50), "long\n").unwrap();
        let options = ImageOptions::new(Profile::Task, "FULL", EPOCH).with_joliet(false);
        let original = stream(&ImagePlan::new(&tree, &options).unwrap());
        let spliced = splice(original.clone(), &["job.json"]).unwrap();
        if spliced.notes.contains(&SpliceNote::RootMoved { tree: "primary" }) {
            return original;
        }
    }
    panic!("some root is full")
}

#[test]
fn a_full_root_moves_to_the_end_with_its_continuation_areas_and_leaves_zeros() {
    let original = full_root();
    let spliced = splice(original.clone(), &["job.json"]).unwrap();
    check(&original, &spliced.plan, &["job.json"]);
    let bytes = stream(&spliced.plan);
    assert_eq!(strict::check(&bytes), Ok(()));
    let continuations: Vec<u64> = (spliced.plan.segments())
        .filter(|segment| segment.part == Part::Continuation)
        .map(|segment| segment.offset)
        .collect();
    assert!(continuations.iter().any(|offset| *offset >= original.len() as u64));
}

#[test]
fn the_numbers_of_parents_shift_and_a_wrong_number_is_detected() {
    let mut tree = Tree::new();
    for path in ["alpha/one/file", "zulu/two/three/file", "zulu/four/file"] {
        tree.add_file(path, path).unwrap();
    }
    let original = stream(&ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "TREE", EPOCH)).unwrap());
    let plan = splice(original, &["job.json"]).unwrap().plan;
    let mut bytes = stream(&plan);
    assert_eq!(strict::check(&bytes), Ok(()));
    // The number of `zulu` changes from 3 to 4: the mutant leaves number 3 in its children.
    for (part, at) in [(Part::PathTableL(Hierarchy::Primary), 6), (Part::PathTableM(Hierarchy::Primary), 7)] {
        let mut record = start_of(&plan, part);
        let mut changed = 0;
        for _ in 0..8 {
            if bytes[record + at] == 4 {
                bytes[record + at] = 3;
                changed += 1;
            }
            record += 8 + usize::from(bytes[record]).next_multiple_of(2);
        }
        assert_eq!(changed, 2);
    }
    assert!(strict::check(&bytes).is_err());
}

/// A source that counts read bytes and fails after a mebibyte.
struct Counted<S>(S, AtomicU64);

impl<S: ReadAt> ReadAt for Counted<S> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let before = self.1.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        if before + buffer.len() as u64 > 1 << 20 {
            return Err(io::Error::other("more than a mebibyte was read"));
        }
        self.0.read_exact_at(offset, buffer)
    }
}

/// Bytes of any length that are a function of their offset.
struct Pattern(u64);

impl ReadAt for Pattern {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        for (byte, at) in buffer.iter_mut().zip(offset..) {
            *byte = (at % 251) as u8;
        }
        Ok(())
    }
}

/// Returns an image of more than four gibibytes with thousands of directories.
fn large() -> ImagePlan {
    let mut tree = Tree::new();
    tree.add_file("install.wim", Content::source(Pattern(4_400_000_000))).unwrap();
    for index in 0..3000 {
        tree.add_file(&format!("pool/{}/package-{index}/file", index % 26), "x").unwrap();
    }
    ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "LARGE", EPOCH)).unwrap()
}

#[test]
fn planning_over_four_gibibytes_reads_less_than_a_mebibyte_and_copies_nothing() {
    let source = Arc::new(Counted(large(), AtomicU64::new(0)));
    let (dynamic, names): (Arc<dyn ReadAt>, _) = (source.clone(), ["job.json", "user-data"]);
    let spliced = Splice::plan(dynamic, &files(&names), &SpliceOptions::new(EPOCH)).unwrap();
    assert_eq!(spliced.bytes_read, source.1.load(Ordering::Relaxed));
    assert!(spliced.bytes_read < 1 << 20, "{} bytes", spliced.bytes_read);
    let own: u64 = spliced
        .plan
        .segments()
        .map(|segment| if matches!(segment.data, SegmentData::Bytes(_)) { segment.len } else { 0 })
        .sum();
    assert!(own < 1 << 20, "{own} bytes are the plan's own");
    source.1.store(0, Ordering::Relaxed);
    let image = Image::open(&spliced.plan).unwrap();
    assert_eq!(image.read("task/job.json", 100).unwrap(), b"this is job.json\n");
    assert_eq!(image.lookup("install.wim").unwrap().len, 4_400_000_000);
    let file = image.open_file("install.wim").unwrap();
    let mut last = [0; 4];
    file.read_exact_at(4_399_999_996, &mut last).unwrap();
    assert_eq!(
        last,
        [4_399_999_996_u64, 4_399_999_997, 4_399_999_998, 4_399_999_999].map(|at| (at % 251) as u8)
    );
}

#[test]
fn planning_beyond_the_read_limit_is_a_limit_error() {
    let options = SpliceOptions::new(EPOCH).with_read_limit(64 << 10);
    let result = Splice::plan(Arc::new(large()), &files(&["job.json"]), &options);
    assert!(matches!(result, Err(SpliceError::Limit { limit: 65_536, .. })), "{result:?}");
}

#[test]
fn the_bytes_do_not_depend_on_the_order_of_the_files() {
    let plan = |names: &[&str]| splice(stream(&task_plan()), names).unwrap().plan;
    let (one, two) = (plan(&["a", "b", "user-data"]), plan(&["user-data", "b", "a"]));
    let bytes = stream(&one);
    assert!(bytes == stream(&two));
    let mut again = vec![0; bytes.len()];
    one.read_exact_at(0, &mut again).unwrap();
    assert!(again == bytes);
    assert!(one.file_path(0).unwrap().starts_with("task/"));
}

#[test]
fn an_empty_file_and_no_file_can_be_added() {
    let original = stream(&boot_plan());
    let empty: [(&str, Content); 1] = [("empty", Content::from(""))];
    let plan = Splice::plan(Arc::new(original.clone()), &empty, &SpliceOptions::new(EPOCH)).unwrap().plan;
    assert_eq!(strict::check(&stream(&plan)), Ok(()));
    assert_eq!(Image::open(&plan).unwrap().read("task/empty", 9).unwrap(), b"");
    let plan = splice(original, &[]).unwrap().plan;
    assert_eq!(strict::check(&stream(&plan)), Ok(()));
    assert!(Image::open(&plan).unwrap().list("task").unwrap().is_empty());
}

#[test]
fn an_existing_directory_is_refused_or_replaced_by_option() {
    let first = stream(&splice(stream(&task_plan()), &["old.json", "job.json"]).unwrap().plan);
    let result = splice(first.clone(), &["job.json"]);
    assert!(matches!(result, Err(SpliceError::Exists { tree: "primary", .. })), "{result:?}");
    let options = SpliceOptions::new(EPOCH).with_existing(ExistingDirectory::Replace);
    let spliced = splice_with(first, &["job.json", "new"], &options).unwrap();
    assert!(spliced.notes.contains(&SpliceNote::DirectoryReplaced { tree: "Joliet" }));
    // The bytes of the old files are in the image without references, which the notes report.
    check_but(&stream(&task_plan()), &spliced.plan, &["job.json", "new"], &[Rule::UnusedNotZero]);
    for name in ["Task", "TASK"] {
        let mut tree = Tree::new();
        tree.add_file(name, "a file").unwrap();
        let image = stream(&ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "FILE", EPOCH)).unwrap());
        assert!(matches!(splice(image.clone(), &["a"]), Err(SpliceError::Exists { .. })));
        assert!(matches!(splice_with(image, &["a"], &options), Err(SpliceError::Replace { .. })));
    }
    let mut tree = Tree::new();
    tree.add_file("task/deep/file", "kept").unwrap();
    let image = stream(&ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "DEEP", EPOCH)).unwrap());
    assert!(matches!(splice_with(image, &["a"], &options), Err(SpliceError::Replace { .. })));
}

fn replacing(path: &str, content: &str) -> SpliceOptions {
    SpliceOptions::new(EPOCH + 1).with_replace(vec![(path.to_owned(), content.into())])
}

#[test]
fn a_file_is_replaced_under_its_name_in_every_tree() {
    for (path, source) in [("readme.txt", boot_plan()), ("d/e/grub.cfg", deep())] {
        let original = stream(&source);
        let spliced =
            splice_with(original.clone(), &["job.json"], &replacing(path, "set timeout=0\n")).unwrap();
        assert!(spliced.notes.contains(&SpliceNote::FileReplaced { path: path.to_owned() }));
        let bytes = stream(&spliced.plan);
        for namespace in NAMESPACES {
            let image = Image::open_with(bytes.as_slice(), Some(namespace), ReadLimits::default()).unwrap();
            assert_eq!(image.read(path, 100).unwrap(), b"set timeout=0\n", "{namespace}");
            assert_eq!(image.lookup(path).unwrap().modified, Some(EPOCH + 1));
            assert!(image.read("task/job.json", 100).is_ok());
            let others = contents(original.as_slice(), namespace);
            let found = contents(bytes.as_slice(), namespace);
            assert!(others.iter().all(|(name, file)| name == path || found[name] == *file));
        }
    }
}

fn deep() -> ImagePlan {
    let mut tree = Tree::new();
    for path in ["d/e/grub.cfg", "d/e/other", "d/z", "top"] {
        tree.add_file(path, format!("this is {path}\n")).unwrap();
    }
    ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "DEEP", EPOCH)).unwrap()
}

#[test]
fn a_file_that_must_not_be_replaced_is_refused_with_the_reason() {
    let reason = |plan: &ImagePlan, path: &str| match splice_with(stream(plan), &[], &replacing(path, "")) {
        Err(SpliceError::Replace { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason(&boot_plan(), "boot/bios.img").starts_with("firmware boots it"));
    assert!(reason(&boot_plan(), "boot/efi.img").starts_with("firmware boots it"));
    assert_eq!(reason(&boot_plan(), "boot"), "it is a directory");
    assert_eq!(reason(&deep(), "d/e/nothing"), "the file does not exist");
    assert!(reason(&deep(), "top/nothing").starts_with("its path goes through"));
    let options = replacing("install.wim", "small");
    match Splice::plan(Arc::new(large()), &files(&[]), &options) {
        Err(SpliceError::Replace { reason, .. }) => assert_eq!(reason, "it has several extents"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn udf_and_truncated_images_are_refused() {
    let mut image = stream(&task_plan());
    let after = start_of(&task_plan(), Part::Terminator) + 2048;
    put(&mut image, after, b"\0BEA01\x01");
    put(&mut image, after + 2048, b"\0NSR02\x01");
    assert!(matches!(splice(image, &["a"]), Err(SpliceError::Udf)));
    let mut image = stream(&task_plan());
    image.truncate((1 << 20) - 1);
    assert!(matches!(
        splice(image, &["a"]),
        Err(SpliceError::Truncated { len: 1_048_575, claimed: 1_048_576 })
    ));
}

#[test]
fn a_media_check_record_is_blanked_and_reported() {
    let mut image = stream(&task_plan());
    image[16 * 2048 + 883..16 * 2048 + 1395].fill(b' ');
    put(&mut image, 16 * 2048 + 883, b"ISO MD5SUM = 0123456789abcdef0123456789abcdef;SKIPSECTORS = 15");
    let spliced = splice(image, &["a"]).unwrap();
    assert!(spliced.notes.contains(&SpliceNote::MediaCheckBlanked));
    assert_eq!(stream(&spliced.plan)[16 * 2048 + 883..16 * 2048 + 1395], [b' '; 512]);
    assert!(!splice(stream(&task_plan()), &["a"]).unwrap().notes.contains(&SpliceNote::MediaCheckBlanked));
}

#[test]
fn names_that_some_tree_cannot_represent_are_refused() {
    for names in [["a/b", "c"], ["", "c"], ["a", "A"], ["..", "c"], ["x*", "c"]] {
        assert!(splice(stream(&task_plan()), &names).is_err(), "{names:?}");
    }
    let options = SpliceOptions::new(i64::MAX);
    assert!(matches!(splice_with(stream(&task_plan()), &[], &options), Err(SpliceError::Added(_))));
    let large: [(&str, Content); 1] = [("large", Content::source(Pattern(1 << 32)))];
    let result = Splice::plan(Arc::new(stream(&task_plan())), &large, &SpliceOptions::new(EPOCH));
    assert!(matches!(result, Err(SpliceError::TooLarge { .. })));
}

#[test]
fn overlapping_structures_are_refused() {
    let plan = deep();
    let root = start_of(&plan, Part::Directory(Hierarchy::Primary, 1));
    let table = start_of(&plan, Part::PathTableM(Hierarchy::Primary));
    let mut image = stream(&plan);
    // The old path table would be zeroed, so it must not be a directory too.
    let child = record(&image, root, b"D");
    put(&mut image, child + 2, &both(u32::try_from(table / 2048).unwrap()));
    let records = image[start_of(&plan, Part::Directory(Hierarchy::Primary, 2))..][..2048].to_vec();
    put(&mut image, table, &records);
    let result = splice(image, &["a"]);
    assert!(matches!(result, Err(SpliceError::Overlap { .. })), "{result:?}");
}

#[test]
fn hostile_images_are_an_error_or_show_the_added_files() {
    let mut outcomes = BTreeMap::new();
    for hostile in hostile_images() {
        let listed = Image::open(hostile.image.as_slice()).and_then(|image| image.list("")).is_ok();
        let result = splice(hostile.image, &["job.json"]);
        *outcomes.entry((listed, result.is_ok())).or_insert(0) += 1;
        if let (true, Ok(spliced)) = (listed, result) {
            assert!(Image::open(&spliced.plan).unwrap().lookup("task/job.json").is_ok(), "{}", hostile.name);
        }
    }
    assert!(outcomes[&(true, true)] > 1 && outcomes[&(false, false)] > 1, "{outcomes:?}");
}

/// The firmware that an image is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Firmware {
    None,
    Bios,
    Both,
}

fn bootable(options: &mut ImageOptions, firmware: Firmware, path: &str, disk: bool) {
    if firmware == Firmware::None {
        return;
    }
    options.profile = Profile::Boot;
    let bios = Some(BiosBoot::new(path).with_boot_info_table(true));
    let uefi = (firmware == Firmware::Both).then(|| UefiBoot::new("efi.img"));
    options.boot = Some(Boot::new(bios, uefi));
    options.hybrid = disk.then(|| Hybrid::new(vec![0x90; 432]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_tree_can_be_spliced_and_satisfies_the_standard(
        paths in proptest::collection::btree_set("([a-d]{1,2}/){0,9}[a-zü]{1,60}", 1..60),
        extra in 0_usize..30,
        firmware in proptest::sample::select(vec![Firmware::None, Firmware::Bios, Firmware::Both]),
        disk in any::<bool>(),
        joliet in any::<bool>(),
        rock_ridge in any::<bool>(),
        enhanced in any::<bool>(),
        min_size in 0_u64..300_000,
    ) {
        let mut tree = Tree::new();
        tree.add_file("bios.img", vec![0xB1; 3000]).unwrap().add_file("efi.img", vec![0xEF; 4096]).unwrap();
        for path in &paths {
            if rock_ridge || path.matches('/').count() < 7 {
                // A path through a file is omitted.
                let _ = tree.add_file(path, format!("this is {path}\n"));
            }
        }
        for index in 0..extra {
            tree.add_file(&format!("zz{index}/file"), vec![b'x'; index * 100]).unwrap();
        }
        if rock_ridge {
            tree.add_symlink("link", "bios.img").unwrap();
        }
        let depth = if rock_ridge { DeepDirectories::Relocate } else { DeepDirectories::Refuse };
        let options = ImageOptions::new(Profile::Tree, "ANY", EPOCH);
        let options = options.with_joliet(joliet).with_rock_ridge(rock_ridge).with_enhanced(enhanced);
        let mut options = options.with_min_size(min_size).with_depth(depth);
        bootable(&mut options, firmware, "bios.img", disk);
        let original = stream(&ImagePlan::new(&tree, &options).unwrap());
        let names = ["job.json", "recipe.json", "user-data"];
        let spliced = splice(original.clone(), &names).unwrap();
        check(&original, &spliced.plan, &names);
    }
}

fn existing() -> ImagePlan {
    let mut tree = Tree::new();
    tree.add_file("task/old", "old\n").unwrap().add_file("zulu/file", "kept\n").unwrap();
    ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "EXISTING", EPOCH)).unwrap()
}

/// Returns the initial images for fuzzing, by name: small ones of every kind.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut media_check = stream(&deep());
    put(&mut media_check, 16 * 2048 + 883, b"ISO MD5SUM = 0123456789abcdef0123456789abcdef");
    let mut udf = stream(&deep());
    let after = start_of(&deep(), Part::Terminator) + 2048;
    put(&mut udf, after, b"\0NSR02\x01");
    let mut tree = Tree::new();
    tree.add_file("bios.img", vec![0xB1; 3000])
        .unwrap()
        .add_file("1/2/3/4/5/6/7/8/9/leaf", "deep\n")
        .unwrap();
    let mut options = ImageOptions::new(Profile::Tree, "BIOS", EPOCH).with_enhanced(true);
    bootable(&mut options, Firmware::Bios, "bios.img", true);
    vec![
        ("deep", stream(&deep())),
        ("boot", stream(&boot_plan())),
        ("full_root", full_root()),
        ("existing", stream(&existing())),
        ("media_check", media_check),
        ("udf", udf),
        ("relocated_enhanced_disk", stream(&ImagePlan::new(&tree, &options).unwrap())),
        ("gpt", hybrid::hybrid(false, 1 << 20, 146, 180)),
        ("gpt_appended", hybrid::hybrid(true, 1 << 20, 146, 184)),
    ]
}

/// Returns a seed for `fuzz::splice`.
fn seed(image: &[u8]) -> Vec<u8> {
    let end = image.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    [&image[..2048], &image[32 * 1024..end]].concat()
}

#[test]
fn the_seeds_of_the_fuzz_target_are_these_images_and_replay_without_a_finding() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/iso_splice");
    for (name, image) in seeds() {
        let path = corpus.join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(&corpus).unwrap();
            fs::write(&path, seed(&image)).unwrap();
        }
        let stored = fs::read(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; run with UPDATE_GOLDEN=1", path.display()));
        assert!(
            stored == seed(&image),
            "{name} differs from its file; run with UPDATE_GOLDEN=1 if the change is intended"
        );
        assert_eq!(iso9660::fuzz::splice(&stored), name != "udf", "{name}");
    }
}

#[test]
fn inputs_found_by_fuzzing_replay_without_a_finding() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/iso_splice");
    let files: Vec<_> = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > seeds().len(), "the corpus has seeds besides the images of this file");
    for file in files {
        iso9660::fuzz::splice(&fs::read(&file).unwrap());
    }
}

#[test]
fn single_byte_changes_never_break_a_promise() {
    let (mut planned, mut refused) = (0, 0);
    for (_, image) in seeds() {
        let good = seed(&image);
        // Every byte once would take minutes; a stride reaches all structures.
        let bytes: Vec<usize> = (0..good.len()).filter(|at| good[*at] != 0).collect();
        for at in bytes.iter().step_by(bytes.len() / 40) {
            let mut changed = good.clone();
            changed[*at] = changed[*at].wrapping_add(1 + (at % 254) as u8);
            if iso9660::fuzz::splice(&changed) { planned += 1 } else { refused += 1 }
        }
    }
    assert!(planned > 40 && refused > 40, "{planned} planned, {refused} refused");
}

/// Returns the new length of a partition of a table.
fn grown(notes: &[SpliceNote], wanted: PartitionTable) -> Vec<(usize, u64)> {
    let found = notes.iter().filter_map(|note| match note {
        SpliceNote::PartitionGrown { table, number, sectors } if *table == wanted => {
            Some((*number, *sectors))
        }
        _ => None,
    });
    found.collect()
}

mod hybrid {
    use super::*;
    use iso9660::partition::{Gpt, GptPartition, Guid, Mbr, MbrPartition};

    /// A boot image with partition tables: an MBR partition over everything, and a GPT with one for the volume and
    /// optionally one after it. The image has `len` bytes, of which `sectors` are a disk and `volume` are before the
    /// second partition.
    pub(crate) fn hybrid(appended: bool, len: usize, volume: u64, sectors: u64) -> Vec<u8> {
        let mut image = stream(&boot_plan());
        image.resize(len, 0);
        let mut mbr = Mbr { code: [0x90; 440], disk_id: 7, reserved: [0; 2], partitions: Default::default() };
        mbr.partitions[0] =
            MbrPartition::new(MbrPartition::PROTECTIVE, 1, u32::try_from(sectors - 1).unwrap());
        let guid = |byte| Guid::custom([byte; 16]);
        let mut partitions = vec![GptPartition::new(guid(1), guid(2), 64, volume - 1, "ISO")];
        if appended {
            partitions.push(GptPartition::new(Guid::EFI_SYSTEM, guid(3), volume, volume + 3, "ESP"));
            image[usize::try_from(volume).unwrap() * 512..][..2048].fill(0xEF);
        }
        let gpt = Gpt::new(guid(9), sectors, 64, partitions);
        put(&mut image, 0, &mbr.to_bytes());
        for gpt in [&gpt, &gpt.backup()] {
            put(&mut image, usize::try_from(gpt.sector).unwrap() * 512, &gpt.header());
            put(&mut image, usize::try_from(gpt.entries_sector).unwrap() * 512, &gpt.table());
        }
        put(&mut image, 16 * 2048 + 80, &both(u32::try_from(len / 2048).unwrap()));
        put(&mut image, 18 * 2048 + 80, &both(u32::try_from(len / 2048).unwrap()));
        image
    }

    #[test]
    fn partitions_that_covered_the_volume_grow_and_the_backup_moves_to_the_end() {
        let original = hybrid(false, 2 << 20, 3072, 4096);
        let spliced = splice(original.clone(), &["job.json"]).unwrap();
        let bytes = stream(&spliced.plan);
        let sectors = bytes.len() as u64 / 512;
        assert_eq!(bytes.len() % (1 << 20), 0, "the image has whole cylinders");
        assert_eq!(grown(&spliced.notes, PartitionTable::Mbr), [(1, sectors - 1)]);
        let (before, gpt) =
            (Gpt::read(&original, 1).unwrap().unwrap(), Gpt::read(&bytes, 1).unwrap().unwrap());
        assert_eq!(Gpt::read(&bytes, sectors - 1).unwrap().unwrap(), gpt.backup());
        assert_eq!((gpt.alternate, gpt.disk), (sectors - 1, before.disk));
        let partition = gpt.entries[0].unwrap();
        let job = Image::open(bytes.as_slice()).unwrap().extents("task/job.json").unwrap()[0];
        assert!(partition.last * 512 > job.offset && partition.last <= gpt.last_usable);
        assert_eq!(grown(&spliced.notes, PartitionTable::Gpt), [(1, partition.last - 63)]);
        let old = usize::try_from(before.alternate).unwrap() * 512;
        assert_eq!(bytes[old..old + 512], [0; 512], "the old backup is gone");
        assert_eq!(bytes[..440], original[..440]);
        let mbr = Mbr::parse(&bytes[..512].try_into().unwrap()).unwrap();
        assert_eq!((mbr.disk_id, mbr.partitions[0].end()), (7, sectors));
        check(&original, &spliced.plan, &["job.json"]);
    }

    #[test]
    fn an_appended_partition_keeps_its_place_and_bytes_and_the_one_before_it_its_size() {
        let original = hybrid(true, 2 << 20, 3072, 4096);
        let spliced = splice(original.clone(), &["job.json"]).unwrap();
        assert!(spliced.notes.contains(&SpliceNote::PartitionKept { table: PartitionTable::Gpt, number: 1 }));
        let bytes = stream(&spliced.plan);
        let (before, gpt) =
            (Gpt::read(&original, 1).unwrap().unwrap(), Gpt::read(&bytes, 1).unwrap().unwrap());
        assert_eq!(before.entries, gpt.entries);
        let esp = gpt.entries[1].unwrap();
        let range = usize::try_from(esp.first).unwrap() * 512..(usize::try_from(esp.last).unwrap() + 1) * 512;
        assert!(bytes[range].iter().all(|byte| *byte == 0xEF));
        check(&original, &spliced.plan, &["job.json"]);
    }

    #[test]
    fn a_broken_gpt_stays_unchanged_and_is_reported() {
        let mut original = hybrid(false, 2 << 20, 3072, 4096);
        original[512 + 16] ^= 1;
        let spliced = splice(original.clone(), &["job.json"]).unwrap();
        assert!(spliced.notes.contains(&SpliceNote::BrokenGptKept { offset: 512 + 16 }));
        assert_eq!(stream(&spliced.plan)[512..1024], original[512..1024]);
    }
}
