//! Written images read back in every namespace, at every offset, for every order of insertion.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{EPOCH, stream, task_plan, task_tree};
use iso9660::{
    BiosBoot, Boot, BootMedia, Content, ContentError, EntryKind, Image, ImageOptions, ImagePlan, Namespace,
    Part, PlanError, Platform, Profile, ReadAt, ReadError, ReadLimits, SegmentData, Tree, UefiBoot,
};
use proptest::prelude::*;

fn options() -> ImageOptions {
    ImageOptions::new(Profile::Task, "TEST", EPOCH)
}

fn open(plan: &ImagePlan, namespace: Namespace) -> Image<&ImagePlan> {
    Image::open_with(plan, Some(namespace), ReadLimits::default()).unwrap()
}

fn names(image: &Image<&ImagePlan>, path: &str) -> Vec<String> {
    image.list(path).unwrap().into_iter().map(|entry| entry.name).collect()
}

#[test]
fn a_task_image_reads_back_under_its_names_in_every_namespace() {
    let plan = task_plan();
    let image = Image::open(&plan).unwrap();
    assert_eq!(image.namespaces(), [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain]);
    assert_eq!((image.namespace(), image.volume_id()), (Namespace::RockRidge, "TASK_0123456789A"));
    assert_eq!(image.volume().joliet_volume_id.as_deref(), Some("TASK_0123456789A"));
    assert_eq!((image.volume().created, image.volume().modified), (Some(EPOCH), Some(EPOCH)));
    assert_eq!(u64::from(image.volume().sectors) * iso9660::SECTOR_SIZE, plan.len());
    assert!(!image.volume().has_udf);
    for entry in image.list("").unwrap() {
        assert_eq!((entry.kind, entry.mode, entry.modified), (EntryKind::File, Some(0o100_444), Some(EPOCH)));
    }
    let original = ["job.json", "ks.cfg", "meta-data", "recipe.json", "recipe.schema.json", "user-data"];
    let plain = ["job.json", "ks.cfg", "meta_data", "recipe.json", "recipe.schema.json", "user_data"];
    for (namespace, mut expected) in
        [(Namespace::RockRidge, original), (Namespace::Joliet, original), (Namespace::Plain, plain)]
    {
        if namespace == Namespace::Plain {
            expected[4] = "recipe_schema.json";
        }
        let image = open(&plan, namespace);
        let mut found = names(&image, "/");
        found.sort_unstable();
        assert_eq!(found, expected, "{namespace}");
        for (name, original) in expected.iter().zip(original) {
            let content = image.read(name, 1 << 20).unwrap();
            assert_eq!(content, common::content(original), "{namespace} {name}");
            assert_eq!(image.extents(name).unwrap(), Image::open(&plan).unwrap().extents(original).unwrap());
        }
    }
}

#[test]
fn paths_match_in_any_case_except_in_rock_ridge() {
    let plan = task_plan();
    assert!(open(&plan, Namespace::Plain).lookup("/KS.CFG").is_ok());
    assert!(open(&plan, Namespace::Joliet).lookup("KS.cfg").is_ok());
    assert!(matches!(open(&plan, Namespace::RockRidge).lookup("KS.CFG"), Err(ReadError::NotFound { .. })));
}

#[test]
fn a_small_image_is_padded_with_zeros_to_one_mebibyte() {
    let plan = task_plan();
    assert_eq!(plan.len(), 1 << 20);
    let last = plan.segments().last().unwrap();
    assert!(matches!((last.part, last.data), (Part::Padding, SegmentData::Zeros)));
    assert_eq!(last.offset + last.len, plan.len());
    let mut unpadded = options();
    unpadded.min_size = 0;
    let plan = ImagePlan::new(&Tree::new(), &unpadded).unwrap();
    assert_eq!(plan.len() % iso9660::SECTOR_SIZE, 0);
    assert!(Image::open(&plan).unwrap().list("").unwrap().is_empty());
}

#[test]
fn segments_cover_the_image_in_order() {
    let plan = task_plan();
    let mut next = 0;
    for segment in plan.segments() {
        assert_eq!(segment.offset, next);
        assert!(segment.len > 0);
        next += segment.len;
    }
    assert_eq!(next, plan.len());
}

#[test]
fn long_deep_and_odd_names_read_back_in_rock_ridge() {
    let mut tree = Tree::new();
    let long = "n".repeat(253);
    let deep = "one/two/three/four/five/six/seven";
    let paths = [long.clone(), format!("{deep}/leaf"), "ünïcode/näme".into(), "a:b?*;1".into(), "😀".into()];
    for path in &paths {
        tree.add_file(path, path.as_str()).unwrap();
    }
    for index in 0..300 {
        tree.add_file(&format!("many/{}{index:04}", "x".repeat(200)), "").unwrap();
    }
    let plan = ImagePlan::new(&tree, &options().with_joliet(false)).unwrap();
    let image = Image::open(&plan).unwrap();
    for path in &paths {
        assert_eq!(image.read(path, 1000).unwrap(), path.as_bytes());
    }
    assert_eq!(image.list("many").unwrap().len(), 300);
    assert_eq!(image.lookup(deep).unwrap().mode, Some(0o040_555));
}

#[test]
fn images_satisfy_every_rule_of_the_standard_and_one_fault_is_detected() {
    let mut tree = task_tree();
    for index in 0..200 {
        tree.add_file(
            &format!("d{}/sub-{index}/{}{index}", index % 7, "name ".repeat(15)),
            "x".repeat(index),
        )
        .unwrap();
    }
    let tree = ImagePlan::new(&tree, &options()).unwrap();
    for plan in [&task_plan(), &common::boot_plan(), &tree] {
        assert_eq!(common::strict::check(&stream(plan)), Ok(()));
    }
    // Two records of a directory are exchanged; other programs do not detect that.
    let mut image = stream(&task_plan());
    let root =
        task_plan().segments().find(|segment| matches!(segment.part, Part::Directory(_, 1))).unwrap().offset;
    let mut at = usize::try_from(root).unwrap();
    at += usize::from(image[at]);
    at += usize::from(image[at]);
    let (first, second) = (usize::from(image[at]), usize::from(image[at + usize::from(image[at])]));
    image[at..at + first + second].rotate_left(first);
    assert!(common::strict::check(&image).unwrap_err().starts_with("records are in order"));
}

#[test]
fn an_unrepresentable_tree_is_an_error_that_names_the_path() {
    let plan = |path: &str| {
        let mut tree = Tree::new();
        tree.add_file(path, "").unwrap();
        ImagePlan::new(&tree, &options()).map(|_| ())
    };
    let name = "n".repeat(104);
    assert!(
        matches!(plan(&name), Err(PlanError::NameTooLong { path, namespace: "Joliet", .. }) if path == name)
    );
    assert!(
        matches!(plan("d/a:b"), Err(PlanError::OutsideJoliet { path, character: ':' }) if path == "d/a:b")
    );
    assert!(matches!(plan("1/2/3/4/5/6/7/8/f"), Err(PlanError::TooDeep { level: 9, .. })));
    assert!(plan("1/2/3/4/5/6/7/f").is_ok());
    let wide = vec!["d".repeat(31); 7].join("/");
    assert!(matches!(plan(&format!("{wide}/{}", "f".repeat(30))), Err(PlanError::PathTooLong { .. })));
    let long = "n".repeat(256);
    let mut tree = Tree::new();
    tree.add_file(&long, "").unwrap();
    let no_joliet = options().with_joliet(false);
    assert!(matches!(
        ImagePlan::new(&tree, &no_joliet),
        Err(PlanError::NameTooLong { namespace: "Rock Ridge", .. })
    ));
}

#[test]
fn more_directories_than_a_path_table_can_number_are_an_error() {
    let mut tree = Tree::new();
    for index in 0..65_535 {
        tree.add_directory(&format!("{}/{index}", index % 100)).unwrap();
    }
    let planned = ImagePlan::new(&tree, &options());
    assert!(matches!(planned, Err(PlanError::TooManyDirectories { count: 65_636, limit: 65_535 })));
}

#[test]
fn labels_dates_and_texts_outside_their_rules_are_errors() {
    let plan = |change: fn(&mut ImageOptions)| {
        let mut options = options();
        change(&mut options);
        ImagePlan::new(&task_tree(), &options).map(|_| ())
    };
    assert!(matches!(plan(|options| options.volume_id = String::new()), Err(PlanError::Text { .. })));
    assert!(matches!(plan(|options| options.volume_id = "X".repeat(33)), Err(PlanError::Text { .. })));
    assert!(matches!(plan(|options| options.volume_id = "MY DISC".into()), Err(PlanError::Text { .. })));
    assert!(plan(|options| options.volume_id = "config-2".into()).is_ok());
    assert!(matches!(plan(|options| options.publisher = "é".into()), Err(PlanError::Text { .. })));
    assert!(matches!(plan(|options| options.epoch = i64::MAX), Err(PlanError::Epoch { .. })));
    assert!(matches!(plan(|options| options.boot = Some(Boot::default())), Err(PlanError::Boot { .. })));
    assert!(matches!(plan(|options| options.profile = Profile::Boot), Err(PlanError::Boot { .. })));
}

#[test]
fn a_boot_image_has_entries_for_both_firmwares() {
    let plan = common::boot_plan();
    let image = Image::open(&plan).unwrap();
    let entries = image.boot_entries().unwrap();
    assert_eq!(entries.len(), 2);
    for (entry, (platform, path, units)) in
        entries.iter().zip([(Platform::X86, "boot/bios.img", 4), (Platform::Efi, "boot/efi.img", 8)])
    {
        assert_eq!((entry.platform, entry.units, entry.media), (platform, units, BootMedia::NoEmulation));
        assert!(entry.bootable);
        assert_eq!(entry.extent.offset, image.extents(path).unwrap()[0].offset);
    }
    assert_eq!(entries[1].extent.len, 4096);
    assert!(Image::open(&task_plan()).unwrap().boot_entries().unwrap().is_empty());
}

#[test]
fn a_boot_option_without_its_file_is_an_error_with_the_path() {
    let boot = |path: &str| {
        let mut options = ImageOptions::new(Profile::Boot, "BOOT", EPOCH);
        options.boot = Some(Boot::new(None, Some(UefiBoot::new(path))));
        let mut tree = Tree::new();
        tree.add_file("empty.img", "").unwrap().add_file("efi.img", vec![1; 40 << 20]).unwrap();
        ImagePlan::new(&tree, &options)
    };
    assert!(matches!(boot("none.img"), Err(PlanError::Boot { path, .. }) if path == "none.img"));
    assert!(matches!(boot("empty.img"), Err(PlanError::Boot { path, .. }) if path == "empty.img"));
    // The file is too large to count in 16 bits, so the entry means "to the end of the volume".
    let plan = boot("/efi.img").unwrap();
    assert_eq!(Image::open(&plan).unwrap().boot_entries().unwrap()[0].units, 1);
}

/// A source without stored bytes: each byte is a function of its offset.
struct Pattern(AtomicU64);

impl ReadAt for Pattern {
    fn len(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = (at / 4096 % 251) as u8);
        Ok(())
    }
}

#[test]
fn a_file_over_four_gibibytes_is_joined_from_its_sections() {
    const LEN: u64 = 9_000_000_001;
    let mut tree = Tree::new();
    tree.add_file("big", Content::source(Pattern(LEN.into())))
        .unwrap()
        .add_file("small", "after it")
        .unwrap();
    let plan = ImagePlan::new(&tree, &options()).unwrap();
    for namespace in [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain] {
        let image = open(&plan, namespace);
        let entry = image.lookup("big").unwrap();
        assert_eq!((entry.len, entry.extents.len()), (LEN, 3));
        let file = image.open_file("big").unwrap();
        for offset in [0, 4_294_965_248 - 3, 4_294_965_248, 2 * 4_294_965_248 - 1, LEN - 8] {
            let (mut found, mut expected) = ([0; 8], [0; 8]);
            file.read_exact_at(offset, &mut found).unwrap();
            Pattern(LEN.into()).read_exact_at(offset, &mut expected).unwrap();
            assert_eq!(found, expected, "{offset}");
        }
        assert_eq!(image.read("small", 100).unwrap(), b"after it");
    }
}

#[test]
fn more_than_2_32_sectors_are_an_error_before_any_byte_is_read() {
    let plan = |lengths: &[u64]| {
        let mut tree = Tree::new();
        for (index, length) in lengths.iter().enumerate() {
            tree.add_file(&format!("d/{index}"), Content::source(Pattern((*length).into()))).unwrap();
        }
        ImagePlan::new(&tree, &options()).map(|plan| plan.len())
    };
    assert!(matches!(plan(&[1, u64::MAX]), Err(PlanError::TooLarge { path }) if path == "d/1"));
    let half = u64::from(u32::MAX) / 2 * 2048;
    assert!(matches!(plan(&[half, half]), Err(PlanError::TooLarge { path }) if path == "d/1"));
    assert!(plan(&[half, half - (1 << 20)]).unwrap() > 8_000_000_000_000);
}

#[test]
fn a_source_that_changed_its_length_is_an_error_with_the_path() {
    let source = Arc::new(Pattern(5000.into()));
    let mut tree = Tree::new();
    tree.add_file("d/file", Content::Source(source.clone())).unwrap();
    let plan = ImagePlan::new(&tree, &options()).unwrap();
    assert_eq!(stream(&plan).len() as u64, plan.len());
    for changed in [4999, 5001] {
        source.0.store(changed, Ordering::Relaxed);
        let error = plan.write_to(&mut io::sink()).unwrap_err();
        let inner = error.get_ref().unwrap().downcast_ref::<ContentError>().unwrap();
        assert!(matches!(inner, ContentError::LengthChanged { path, planned: 5000, .. } if path == "d/file"));
        let offset = plan.segments().find(|segment| segment.part == Part::File(0)).unwrap().offset;
        assert!(plan.read_exact_at(offset, &mut [0; 10]).is_err());
        assert!(plan.read_exact_at(0, &mut [0; 10]).is_ok());
    }
}

#[test]
fn reads_past_the_end_are_refused() {
    let plan = task_plan();
    for offset in [plan.len() - 4, plan.len(), u64::MAX] {
        assert_eq!(plan.read_exact_at(offset, &mut [0; 5]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
    let file = Image::open(&plan).unwrap().open_file("ks.cfg").unwrap();
    assert!(file.read_exact_at(file.len(), &mut [0; 1]).is_err());
    assert!(file.read_exact_at(file.len(), &mut []).is_ok());
}

#[test]
fn a_file_larger_than_the_caller_allows_is_refused_before_it_is_read() {
    let plan = task_plan();
    let result = Image::open(&plan).unwrap().read("recipe.json", 10);
    assert!(matches!(result, Err(ReadError::TooLarge { limit: 10, .. })));
}

/// Trees of legal names, as paths with sizes.
fn trees() -> impl Strategy<Value = BTreeMap<String, usize>> {
    let name = "[a-zA-Z0-9 ._\\-é]{1,40}".prop_filter("not a name", |name| name != "." && name != "..");
    let path = proptest::collection::vec(name, 1..5).prop_map(|names| names.join("/"));
    proptest::collection::btree_map(path, 0_usize..6000, 0..25)
}

fn content(path: &str, size: usize) -> Vec<u8> {
    path.bytes().cycle().take(size).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_tree_reads_back_and_any_order_of_insertion_gives_the_same_bytes(paths in trees(), seed in any::<usize>()) {
        let mut tree = Tree::new();
        let mut wanted = BTreeMap::new();
        for (path, size) in &paths {
            if tree.add_file(path, content(path, *size)).is_ok() {
                wanted.insert(path.clone(), content(path, *size));
            }
        }
        let Ok(plan) = ImagePlan::new(&tree, &options()) else { return Ok(()) };
        let bytes = stream(&plan);
        prop_assert_eq!(common::strict::check(&bytes), Ok(()));

        let mut shuffled: Vec<_> = wanted.iter().collect();
        let middle = seed % shuffled.len().max(1);
        shuffled.rotate_left(middle);
        shuffled.reverse();
        let mut other = Tree::new();
        for (path, content) in shuffled {
            other.add_file(path, content.clone()).unwrap();
        }
        prop_assert!(stream(&ImagePlan::new(&other, &options()).unwrap()) == bytes);

        for namespace in [Namespace::RockRidge, Namespace::Joliet] {
            let image = Image::open_with(bytes.as_slice(), Some(namespace), ReadLimits::default()).unwrap();
            let mut found = BTreeMap::new();
            image.walk(|path, entry| {
                if entry.is_file() {
                    found.insert(path.to_owned(), image.read(path, 1 << 20).unwrap());
                }
                ControlFlow::Continue(())
            }).unwrap();
            prop_assert_eq!(&found, &wanted);
        }
    }

    #[test]
    fn a_read_at_any_offset_equals_the_stream(ranges in proptest::collection::vec((0..1_u64 << 20, 0_usize..9000), 1..40)) {
        let plan = common::boot_plan();
        let bytes = stream(&plan);
        for (offset, length) in ranges {
            let length = length.min(usize::try_from(plan.len() - offset).unwrap());
            let mut buffer = vec![0xEE; length];
            plan.read_exact_at(offset, &mut buffer).unwrap();
            let start = usize::try_from(offset).unwrap();
            prop_assert!(buffer == bytes[start..start + length]);
        }
    }
}

/// A node of a tree of any shape.
#[derive(Clone, Debug)]
enum Thing {
    File(usize),
    Executable(usize),
    Link(String),
    Directory,
    /// Another name for the first file.
    Again,
}

/// Trees of odd names, deep directories and links, which only Rock Ridge can represent.
fn odd_trees() -> impl Strategy<Value = BTreeMap<String, Thing>> {
    let odd = "[a-cA-C .:;*?\\\\é😀_\\-]{1,12}|[a-b]|[é]{100,126}|[n]{180,253}";
    let name = odd.prop_filter("not a name", |name| name != "." && name != "..");
    let path = proptest::collection::vec(name.clone(), 1..4).prop_map(|names| names.join("/"));
    let deep = (proptest::collection::vec("[ab]", 8..40), name)
        .prop_map(|(names, name)| format!("{}/{name}", names.join("/")));
    let target = proptest::collection::vec("[a-z]{1,20}|[.]{1,2}|[z]{240,255}", 1..5);
    let target = (any::<bool>(), target)
        .prop_map(|(root, names)| format!("{}{}", if root { "/" } else { "" }, names.join("/")));
    let thing = prop_oneof![
        4 => (0_usize..5000).prop_map(Thing::File),
        1 => (0_usize..5000).prop_map(Thing::Executable),
        3 => target.prop_map(Thing::Link),
        1 => Just(Thing::Directory),
        1 => Just(Thing::Again),
    ];
    proptest::collection::btree_map(prop_oneof![3 => path, 1 => deep], thing, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_odd_tree_reads_back_with_its_links_modes_and_depth(
        things in odd_trees(),
        offsets in proptest::collection::vec((any::<u64>(), 1_usize..5000), 20),
    ) {
        let mut tree = Tree::new();
        let mut wanted: BTreeMap<String, (u32, Vec<u8>)> = BTreeMap::new();
        let mut first: Option<(String, (u32, Vec<u8>))> = None;
        for (path, thing) in &things {
            let added = match thing {
                Thing::File(size) => tree.add_file(path, content(path, *size)).is_ok()
                    .then(|| (0o100_444, content(path, *size))),
                Thing::Executable(size) => tree.add_executable(path, content(path, *size)).is_ok()
                    .then(|| (0o100_555, content(path, *size))),
                Thing::Link(target) => tree.add_symlink(path, target).is_ok()
                    .then(|| (0o120_777, target.clone().into_bytes())),
                Thing::Directory => tree.add_directory(path).is_ok().then(|| (0o040_555, Vec::new())),
                Thing::Again => first.as_ref().and_then(|(existing, what)| {
                    tree.add_hard_link(path, existing).is_ok().then(|| what.clone())
                }),
            };
            if let Some(what) = added {
                if first.is_none() && what.0 & 0o100_000 != 0 && what.0 & 0o020_000 == 0 {
                    first = Some((path.clone(), what.clone()));
                }
                wanted.insert(path.clone(), what);
            }
        }
        let options = ImageOptions::new(Profile::Tree, "ODD", EPOCH).with_joliet(false);
        let plan = match ImagePlan::new(&tree, &options) {
            Ok(plan) => plan,
            // Many long names on eight levels, which relocation does not shorten.
            Err(PlanError::PathTooLong { .. }) => return Ok(()),
            Err(error) => panic!("{error}"),
        };
        let bytes = stream(&plan);
        prop_assert!(stream(&ImagePlan::new(&tree, &options).unwrap()) == bytes);
        prop_assert_eq!(common::strict::check(&bytes), Ok(()));
        for (offset, length) in offsets {
            let offset = offset % plan.len();
            let length = length.min(usize::try_from(plan.len() - offset).unwrap());
            let mut buffer = vec![0xEE; length];
            plan.read_exact_at(offset, &mut buffer).unwrap();
            let start = usize::try_from(offset).unwrap();
            prop_assert!(buffer == bytes[start..start + length]);
        }
        let image = Image::open(bytes.as_slice()).unwrap();
        let mut found = BTreeMap::new();
        image.walk(|path, entry| {
            let bytes = match &entry.kind {
                EntryKind::File => image.read(path, 1 << 20).unwrap(),
                EntryKind::Symlink(target) => target.clone().into_bytes(),
                _ => Vec::new(),
            };
            found.insert(path.to_owned(), (entry.mode.unwrap(), bytes));
            ControlFlow::Continue(())
        }).unwrap();
        // Missing parent directories are created.
        found.retain(|path, (mode, _)| *mode != 0o040_555 || wanted.contains_key(path));
        prop_assert_eq!(found, wanted);
    }
}

#[test]
fn a_bios_entry_must_load_at_least_one_unit() {
    let mut options = ImageOptions::new(Profile::Boot, "BOOT", EPOCH);
    options.boot = Some(Boot::new(Some(BiosBoot::new("ks.cfg").with_load_units(0)), None));
    assert!(matches!(ImagePlan::new(&task_tree(), &options), Err(PlanError::Boot { .. })));
}
