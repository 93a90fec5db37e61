//! The checker: no findings in written images, exact findings in broken ones, and bounded work on hostile ones.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::PathBuf;

use common::counted::Counted;
use common::faults::{Fault, bench, both, further, measured};
use common::hostile::{hostile_images, put, record, start_of};
use common::{EPOCH, boot_plan, stream, task_plan};
use std::sync::Arc;

use iso9660::{
    BiosBoot, Boot, CheckOptions, CheckReport, Content, Finding, Hierarchy, Hybrid, ImageOptions, ImagePlan,
    InterchangeLevel, Part, Profile, ReadAt, ReadError, Rule, Severity, Splice, SpliceOptions, Tree,
    UefiBoot, check, check_names,
};

fn report(image: &dyn ReadAt) -> CheckReport {
    check(image, &CheckOptions::default()).unwrap()
}

fn rules(report: &CheckReport) -> Vec<Rule> {
    report.totals().keys().copied().collect()
}

fn plan(paths: &[&str], change: impl FnOnce(&mut ImageOptions)) -> ImagePlan {
    let mut tree = Tree::new();
    for path in paths {
        tree.add_file(path, format!("this is {path}\n")).unwrap();
    }
    let mut options = ImageOptions::new(Profile::Task, "CHECK", EPOCH);
    change(&mut options);
    ImagePlan::new(&tree, &options).unwrap()
}

#[test]
fn written_images_have_no_finding() {
    let names = ["1/2/3/4/5/6/7/leaf", "a-b", "a_b", ".hidden", "no.of.dots.tar.gz", "ünïcode/näme"];
    let long = "é".repeat(103);
    let plans = [
        task_plan(),
        boot_plan(),
        plan(&[], |_| {}),
        plan(&names, |_| {}),
        plan(&names, |options| options.joliet = false),
        plan(&names, |options| options.rock_ridge = false),
        plan(&names, |options| (options.joliet, options.rock_ridge) = (false, false)),
        plan(&[&long, "x"], |options| options.min_size = 0),
        plan(&["x"], |options| options.volume_id = "config-2".into()),
        plan(&["x"], |options| options.min_size = 1_234_567),
    ];
    for plan in plans {
        let report = report(&stream(&plan));
        assert!(report.is_clean(), "{report}");
        assert!(report.counts().directories > 0 && report.counts().unused_bytes_read > 0);
    }
}

/// Every feature of the writer, in trees that need it.
#[test]
fn images_with_every_feature_have_no_finding() {
    let mut tree = Tree::new();
    tree.add_file("1/2/3/4/5/6/7/8/9/leaf", "deep\n").unwrap().add_file("1/2/3/4/5/6/7/8/other", "").unwrap();
    tree.add_file("boot/bios.img", vec![0xB1; 3001]).unwrap();
    tree.add_file("boot/efi.img", vec![0xEF; 4097]).unwrap();
    tree.add_executable("bin/run", "#!\n").unwrap().add_hard_link("bin/same", "bin/run").unwrap();
    tree.add_symlink("bin/link", "../boot/efi.img").unwrap();
    tree.add_symlink("to-nowhere", &"x/".repeat(400)).unwrap();
    tree.add_file(&"é".repeat(100), "long").unwrap().add_directory("none").unwrap();
    let boot = Some(Boot::new(
        Some(BiosBoot::new("boot/bios.img").with_boot_info_table(true)),
        Some(UefiBoot::new("boot/efi.img")),
    ));
    let bios_only = boot.clone().map(|boot| Boot::new(boot.bios, None));
    let mut clean = 0;
    for (boot, level, enhanced) in [
        (None, InterchangeLevel::Three, false),
        (boot.clone(), InterchangeLevel::One, true),
        (boot, InterchangeLevel::Two, false),
        (bios_only, InterchangeLevel::Three, true),
    ] {
        for hybrid in [None, Some(Hybrid::new(vec![0x90; 400]))] {
            if boot.is_none() && hybrid.is_some() {
                continue;
            }
            let options = ImageOptions::new(Profile::Tree, "ALL", EPOCH)
                .with_boot(boot.clone())
                .with_level(level)
                .with_enhanced(enhanced)
                .with_hybrid(hybrid);
            let image = stream(&ImagePlan::new(&tree, &options).unwrap());
            let report = report(&image);
            assert!(report.is_clean(), "{options:?}\n{report}");
            let spliced = Splice::plan(
                Arc::new(image),
                &[("job.json", Content::from("{}")), ("user-data", Content::from(vec![7; 5000]))],
                &SpliceOptions::new(EPOCH),
            );
            let report = self::report(&stream(&spliced.unwrap().plan));
            assert!(report.is_clean(), "spliced {options:?}\n{report}");
            clean += 1;
        }
    }
    assert_eq!(clean, 7);
}

/// Zeros of any length without memory.
struct Zeros(u64);

impl ReadAt for Zeros {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_exact_at(&self, _: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.fill(0);
        Ok(())
    }
}

/// A source with some bytes replaced.
struct Changed<'a>(&'a dyn ReadAt, u64, &'a [u8]);

impl ReadAt for Changed<'_> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(offset, buffer)?;
        for (at, byte) in (self.1..).zip(self.2) {
            if let Some(place) = at.checked_sub(offset).and_then(|at| buffer.get_mut(at as usize)) {
                *place = *byte;
            }
        }
        Ok(())
    }
}

#[test]
fn a_file_in_several_sections_is_checked_without_reading_it() {
    let mut tree = Tree::new();
    tree.add_file("large", Content::source(Zeros(5 << 30))).unwrap();
    let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "LARGE", EPOCH)).unwrap();
    let counted = Counted::new(&plan);
    let good = report(&counted);
    assert!(good.is_clean() && good.counts().files == 4 && good.counts().level == 3, "{good}");
    assert!(counted.bytes() < 1 << 20, "{} bytes read of a file of 5 GiB", counted.bytes());

    let root = start_of(&plan, Part::Directory(Hierarchy::Primary, 1)) as u64;
    let mut head = vec![0; 2048];
    plan.read_exact_at(root, &mut head).unwrap();
    let first = record(&head, 0, b"LARGE.;1");
    let second = first + usize::from(head[first]);
    let changed = |at: usize, bytes: &[u8]| rules(&report(&Changed(&plan, root + at as u64, bytes)));
    assert_eq!(changed(first + 25, &[0]), [Rule::IdentifierDuplicate, Rule::RockRidgeDuplicate]);
    assert_eq!(changed(second + 25, &[0x80]), [Rule::FileSections]);
    assert_eq!(
        changed(first + 10, &both(0xFFFF_F801)),
        [Rule::ExtentsOverlap, Rule::HierarchiesDiffer, Rule::FileSections]
    );
}

#[test]
fn a_report_is_printed_as_lines_of_text() {
    let mut bench = bench();
    let file = bench.record(bench.directory(1), b"B.TXT;1");
    put(&mut bench.image, file + 37, b"\x1b");
    put(&mut bench.image, file + 20, &[31]);
    bench.image.truncate(300 * 2048);
    let report = report(&bench.image);
    let lines: Vec<String> = report.to_string().lines().map(str::to_owned).collect();
    let place = |at: usize| format!("{at:#010x} (sector {}+{:#05x})", at / 2048, at % 2048);
    assert_eq!(
        lines,
        [
            "error    0x00000220 (sector 0+0x220)  gpt-backup: sector 2047 has no GPT header".to_owned(),
            "error    0x00000228 (sector 0+0x228)  gpt-header: usable are 64 to 2014 of 1200".to_owned(),
            format!("error    {}  record-date: [123, 11, 31, 22, 13, 20, 0]", place(file + 18)),
            format!("error    {}  identifier-unsafe: \"B.TX\\u{{1b}};1\"", place(file + 33)),
            "error    0x00096000 (sector 300+0x000)  image-truncated: the image has 614400 bytes, the volume has \
             1048576: 434176 are missing"
                .to_owned(),
            "checked level 2, 4 descriptors, 8 directories, 98 files, 16 path table records, 177 system use entries, 2 boot \
             entries, 2 partitions, 532944 of 532944 unused bytes: 5 errors, 0 warnings, 0 notes"
                .to_owned(),
        ]
    );
    assert!(report.findings().is_sorted_by_key(|finding: &Finding| finding.offset));
    assert_eq!((report.count(Severity::Error), report.omitted(), report.is_clean()), (5, 0, false));
    assert_eq!(report.findings()[0].severity(), Severity::Error);
}

#[test]
fn many_breaches_of_one_rule_are_counted_and_few_are_kept() {
    let plan = plan(&["a", "b", "c", "d"], |_| {});
    let mut image = stream(&plan);
    let root = start_of(&plan, Part::Directory(Hierarchy::Primary, 1));
    for name in [b"A.;1", b"B.;1", b"C.;1", b"D.;1"] {
        let at = record(&image, root, name);
        put(&mut image, at + 20, &[31]);
    }
    let options = CheckOptions::default().with_findings_per_rule(1);
    let report = check(&image, &options).unwrap();
    assert_eq!((report.findings().len(), report.omitted(), report.count(Severity::Error)), (1, 3, 4));
    assert!(report.to_string().contains("\nand 3 more findings of the same rules\n"));
}

#[test]
fn names_that_readers_do_not_distinguish_are_found_before_and_after_writing() {
    for (left, right, rule) in [
        ("readme", "README", Rule::NamesFoldCase),
        ("name", "name.", Rule::NamesFoldDot),
        ("name", "name ", Rule::NamesFoldDot),
        ("\u{c5}", "A\u{30a}", Rule::NamesFoldUnicode),
    ] {
        let mut tree = Tree::new();
        tree.add_file(left, "1").unwrap().add_file(right, "2").unwrap().add_file("other", "").unwrap();
        let before: Vec<Rule> = check_names(&tree).iter().map(|finding| finding.rule).collect();
        assert_eq!(before, [rule], "{left:?} {right:?}");
        let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "NAMES", EPOCH)).unwrap();
        assert_eq!(rules(&report(&stream(&plan))), [rule], "{left:?} {right:?}");
    }
}

#[test]
fn a_name_of_more_than_thirty_characters_is_a_warning() {
    let plan = plan(&["l".repeat(30).as_str()], |_| {});
    let mut image = stream(&plan);
    let root = start_of(&plan, Part::Directory(Hierarchy::Primary, 1));
    let name = record(&image, root, format!("{}.;1", "L".repeat(30)).as_bytes());
    put(&mut image, name + 33 + 30, b"L.;");
    assert_eq!(rules(&report(&image)), [Rule::IdentifierForm, Rule::IdentifierLength]);
}

#[test]
fn directories_on_nine_levels_and_long_paths_are_warnings() {
    let path = format!("{0}/{0}/{0}/{0}/{0}/{0}/{0}/{0}", "n".repeat(30));
    let plan = plan(&[&path], |options| (options.joliet, options.rock_ridge) = (false, false));
    let mut image = stream(&plan);
    // The file on level 8 becomes a directory that contains the file.
    let parent = start_of(&plan, Part::Directory(Hierarchy::Primary, 8));
    let file = record(&image, parent, format!("{}.;1", "N".repeat(30)).as_bytes());
    let child = 400 * 2048;
    image.copy_within(parent..parent + 2048, child);
    put(&mut image, file + 2, &both(400));
    put(&mut image, file + 10, &both(2048));
    put(&mut image, file + 25, &[2]);
    put(&mut image, child + 2, &both(400));
    put(&mut image, child + 34 + 2, &both(u32::try_from(parent / 2048).unwrap()));
    let found = rules(&report(&image));
    assert!(found.contains(&Rule::PathDepth) && found.contains(&Rule::PathLength), "{found:?}");
}

#[test]
fn other_data_is_a_finding_and_an_unreadable_medium_is_an_error() {
    for len in [0, 100, 40_000, 40 * 2048] {
        assert!(rules(&report(&vec![0_u8; len])).contains(&Rule::PrimaryMissing));
    }
    struct Broken;
    impl ReadAt for Broken {
        fn len(&self) -> u64 {
            1 << 20
        }
        fn read_exact_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Err(io::Error::other("the medium"))
        }
    }
    let result = check(&Broken, &CheckOptions::default());
    assert!(matches!(result, Err(ReadError::Io { offset: 32_768, .. })), "{result:?}");
}

#[test]
fn an_exhausted_budget_is_a_finding() {
    let small = stream(&plan(&["a", "b", "c"], |_| {}));
    let few = CheckOptions::default().with_entries(4);
    assert!(rules(&check(&small, &few).unwrap()).contains(&Rule::CheckIncomplete));
    let short = CheckOptions::default().with_directory_bytes(2047);
    assert!(rules(&check(&small, &short).unwrap()).contains(&Rule::CheckIncomplete));
}

/// Directories that all extend to the end of the image: reading each would cost the square of its size.
#[test]
fn hostile_images_are_read_once() {
    let paths: Vec<String> = (0..2000).map(|index| format!("d{index:04}/x")).collect();
    let plan = plan(&paths.iter().map(String::as_str).collect::<Vec<_>>(), |options| options.joliet = false);
    let mut image = stream(&plan);
    let root = start_of(&plan, Part::Directory(Hierarchy::Primary, 1));
    let first = start_of(&plan, Part::Directory(Hierarchy::Primary, 2));
    let mut at = root;
    while at < first {
        let length = usize::from(image[at]);
        if length == 0 {
            at = (at + 2048) / 2048 * 2048;
            continue;
        }
        if image[at + 33] == b'D' {
            let start = u32::from_le_bytes(image[at + 2..at + 6].try_into().unwrap()) as usize * 2048;
            let rest = u32::try_from(image.len() - start).unwrap();
            put(&mut image, at + 10, &both(rest));
        }
        at += length;
    }
    let mut images: Vec<(&str, Vec<u8>)> = vec![("directories that overlap", image)];
    images.extend(hostile_images().into_iter().map(|hostile| (hostile.name, hostile.image)));
    for (name, image) in images {
        let counted = Counted::new(&image);
        let report = report(&counted);
        assert_eq!(report.is_clean(), name.starts_with("good"), "{name}: {report}");
        let most = image.len() as u64 + (64 << 10);
        assert!(counted.bytes() <= most, "{name}: {} bytes read of {}", counted.bytes(), image.len());
    }
}

fn corpus(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

/// Returns a seed of the fuzz target: an image without the system area and without the zeros at its end.
fn seed(image: &[u8]) -> &[u8] {
    let end = image.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &image[32 * 1024..end]
}

/// One image for each kind of fault that the images of the reader tests do not have.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let wanted = [
        "a directory out of order",
        "a path table with another address",
        "a path table out of order",
        "a file that reaches into the next one",
        "a relocated directory that is none",
        "a boot info table with another sum",
    ];
    let faults = measured().into_iter().chain(further()).filter(|fault| wanted.contains(&fault.name));
    let seed_of = |fault: Fault| {
        let mut bench = bench();
        (fault.change)(&mut bench);
        let end = bench.image.len();
        // The backup of a GPT would make the seed as long as the image.
        bench.image[end - 33 * 512..].fill(0);
        (fault.name.replace(' ', "_"), seed(&bench.image).to_vec())
    };
    faults.map(seed_of).collect()
}

#[test]
fn the_seeds_of_the_fuzz_target_are_these_images_and_replay() {
    assert_eq!(seeds().len(), 6);
    for (name, seed) in seeds() {
        let path = corpus("iso_check").join(&name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(corpus("iso_check")).unwrap();
            fs::write(&path, &seed).unwrap();
        }
        assert!(
            fs::read(&path).unwrap() == seed,
            "{name}: run with UPDATE_GOLDEN=1 if the change is intended"
        );
    }
    for target in ["iso_check", "iso_read"] {
        for file in fs::read_dir(corpus(target)).unwrap() {
            let path = file.unwrap().path();
            let findings = iso9660::fuzz::check(&fs::read(&path).unwrap());
            // The images that are only shorter than their volume are not among these.
            let good = path.file_name().unwrap().to_str().unwrap().starts_with("good");
            assert!(good || findings > 0, "{}", path.display());
        }
    }
}

#[test]
fn single_byte_changes_never_panic_and_images_without_errors_are_readable() {
    let images = hostile_images();
    let good = images.iter().filter(|hostile| hostile.name.starts_with("good"));
    for (image, step) in good.map(|hostile| &hostile.image).zip([11, 41]) {
        let good = seed(image);
        for at in (0..good.len()).filter(|at| good[*at] != 0).step_by(step) {
            for value in [0, good[at] ^ 0x80, good[at].wrapping_add(1), 0xff] {
                let mut changed = good.to_vec();
                changed[at] = value;
                iso9660::fuzz::check(&changed);
            }
        }
    }
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../golden/iso9660").join(name)
}

#[test]
fn the_rules_equal_the_golden_list() {
    let mut list = String::new();
    for rule in Rule::ALL {
        writeln!(list, "{:<28} {:<8} {:<32} {}", rule.code(), rule.severity(), rule.section(), rule.text())
            .unwrap();
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(golden("rules.txt"), &list).unwrap();
    }
    let stored = fs::read_to_string(golden("rules.txt")).unwrap();
    assert!(stored == list, "the rules changed: run with UPDATE_GOLDEN=1 if the change is intended");
    let mut codes: Vec<&str> = Rule::ALL.iter().map(|rule| rule.code()).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), Rule::ALL.len(), "codes are unique");
    let kebab = |code: &str| code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    assert!(codes.iter().all(|code| kebab(code)), "codes have lower case and hyphens only");
}

#[test]
fn an_extent_after_the_image_is_outside_and_overlaps_nothing() {
    let mut tree = Tree::new();
    tree.add_file("one", vec![1; 3000]).unwrap();
    tree.add_file("two", vec![2; 3000]).unwrap();
    let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "OUTSIDE", EPOCH)).unwrap();
    let mut bytes = Vec::new();
    plan.write_to(&mut bytes).unwrap();
    let image = iso9660::Image::open(&plan).unwrap();
    for (name, moved) in [("one", 5000_u32), ("two", 5001)] {
        let sector = u32::try_from(image.extents(name).unwrap()[0].offset / 2048).unwrap();
        let both = |sector: u32| [sector.to_le_bytes(), sector.to_be_bytes()].concat();
        let places: Vec<usize> = bytes
            .windows(8)
            .enumerate()
            .filter(|(_, window)| *window == both(sector))
            .map(|(at, _)| at)
            .collect();
        assert_eq!(places.len(), 2, "a record in each tree");
        places.into_iter().for_each(|at| bytes[at..at + 8].copy_from_slice(&both(moved)));
    }
    let report = iso9660::check(&bytes, &CheckOptions::default()).unwrap();
    assert!(report.findings().iter().all(|finding| finding.offset <= bytes.len() as u64), "{report}");
    assert!(report.findings().iter().any(|finding| finding.rule == Rule::ExtentOutside), "{report}");
    assert!(report.findings().iter().all(|finding| finding.rule != Rule::ExtentsOverlap), "{report}");
}
