//! Images with one fault each: every fault is found, named and cheap. The seeds of the fuzz targets are replayed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use common::counted::Counted;
use common::hostile::{Hostile, Outcome, both, hostile_images, put, record, start_of};
use common::hostile_udf::hostile_udf_images;
use common::udf::UdfImage;
use iso9660::{
    Hierarchy, Image, ImageOptions, ImagePlan, Namespace, Part, Profile, ReadAt, ReadError, ReadLimits, Tree,
};

/// Opens, walks, reads every file and the boot catalog.
fn read_everything(source: impl ReadAt) -> Result<(), ReadError> {
    // The best namespace must be readable: another one would not show its fault.
    let mut image = Image::open(&source)?;
    let broken = image.unreadable().first().map(|(namespace, _)| *namespace);
    if let Some(broken) = broken.filter(|broken| *broken != Namespace::Udf) {
        image = Image::open_with(&source, Some(broken), ReadLimits::default())?;
    }
    let mut paths = Vec::new();
    image.walk(|path, entry| {
        if !entry.is_dir() {
            paths.push((path.to_owned(), entry.is_file()));
        }
        ControlFlow::Continue(())
    })?;
    for (path, file) in paths {
        if file {
            image.read(&path, 1 << 20)?;
        } else {
            image.lookup(&path)?;
        }
    }
    image.boot_images()?;
    image.boot_catalog()?.faults.into_iter().next().map_or(Ok(()), Err)
}

#[test]
fn every_fault_is_found_and_named() {
    for Hostile { name, image, outcome } in hostile_images().into_iter().chain(hostile_udf_images()) {
        let counted = Counted::new(image);
        let found = match read_everything(&counted) {
            Ok(()) => Outcome::Readable,
            Err(ReadError::Invalid { rule, .. }) => Outcome::Invalid(rule),
            Err(ReadError::Limit { what, .. }) => Outcome::Limit(what),
            Err(ReadError::Unsupported { feature, .. }) => Outcome::Unsupported(feature),
            Err(error) => panic!("{name}: {error}"),
        };
        assert_eq!(found, outcome, "{name}");
        let read = counted.bytes();
        assert!(read < 4 << 20, "{name}: {read} bytes were read");
    }
}

#[test]
fn records_that_share_a_chain_of_areas_are_a_limit_error() {
    let good = hostile_images().into_iter().find(|hostile| hostile.name == "good_small").unwrap().image;
    let mut image = good.clone();
    let first = u32::try_from(image.len() / 2048).unwrap();
    let pointer = |block: u32| [b"CE\x1c\x01".as_slice(), &both(block), &both(0), &both(2048)].concat();
    // A chain of 32 areas, each with padding and a pointer to the next one.
    for block in 0..32 {
        let mut area = if block < 31 { pointer(first + block + 1) } else { Vec::new() };
        area.extend(b"PD\xc8\x01".iter().copied().chain([0; 196]).cycle().take(9 * 200));
        area.resize(2048, 0);
        image.extend(area);
    }
    // A root whose 600 records all refer to it: 64 KiB of attributes for 64 bytes.
    let root = image.len();
    let old = 16 * 2048 + 156;
    let itself =
        usize::try_from(u32::from_le_bytes(good[old + 2..old + 6].try_into().unwrap())).unwrap() * 2048;
    for sector in 0..20 {
        let start = image.len();
        if sector == 0 {
            image.extend(&good[itself..itself + usize::from(good[itself])]);
        }
        for number in 0..30_u8 {
            let mut record = vec![0; 64];
            (record[0], record[32], record[33], record[34]) = (64, 2, b'A' + number % 26, b'A' + number / 26);
            record[36..].copy_from_slice(&pointer(first));
            image.extend(record);
        }
        image.resize(start + 2048, 0);
    }
    put(&mut image, old + 2, &both(u32::try_from(root / 2048).unwrap()));
    put(&mut image, old + 10, &both(20 * 2048));
    let counted = Counted::new(image);
    let result = Image::open(&counted).unwrap().walk(|_, _| ControlFlow::Continue(()));
    assert!(matches!(result, Err(ReadError::Limit { .. })), "{result:?}");
    assert!(counted.bytes() < 32 << 20);
}

#[test]
fn a_tree_that_is_too_deep_is_a_limit_error() {
    let mut tree = Tree::new();
    tree.add_file(&"d/".repeat(7), "").unwrap_err();
    tree.add_directory(&["d"; 7].join("/")).unwrap();
    let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "DEEP", common::EPOCH)).unwrap();
    let limits = iso9660::ReadLimits::default().with_depth(5);
    let image = Image::open_with(plan, None, limits).unwrap();
    assert!(matches!(image.walk(|_, _| ControlFlow::Continue(())), Err(ReadError::Limit { limit: 5, .. })));
    assert!(image.lookup(&["d"; 6].join("/")).is_err());
}

#[test]
fn a_directory_that_contains_itself_makes_no_endless_paths() {
    let image = hostile_images().into_iter().find(|hostile| hostile.name == "self_directory").unwrap().image;
    let image = Image::open(image).unwrap();
    let rule = |path: &str| match image.lookup(path) {
        Err(ReadError::Invalid { rule, .. }) => rule,
        other => panic!("{other:?}"),
    };
    assert_eq!(rule("a"), "a directory does not contain itself");
    assert_eq!(rule(&"a/".repeat(200)), "a directory does not contain itself");
    assert!(matches!(image.lookup(&"a/".repeat(300)), Err(ReadError::NotFound { .. })));
}

#[test]
fn directories_that_overlap_are_invalid_before_their_bytes_add_up() {
    let mut tree = Tree::new();
    tree.add_directory("a").unwrap().add_directory("b").unwrap();
    let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "OVERLAP", common::EPOCH)).unwrap();
    let mut image = common::stream(&plan);
    let root = start_of(&plan, Part::Directory(Hierarchy::Primary, 1));
    // Both refer to the padding, one sector apart, and extend to the end.
    for (name, sector) in [(b"A", 100), (b"B", 101)] {
        let at = record(&image, root, name);
        put(&mut image, at + 2, &both(sector));
        put(&mut image, at + 10, &both((512 - sector) * 2048));
    }
    let result = Image::open(image).unwrap().walk(|_, _| ControlFlow::Continue(()));
    assert!(
        matches!(result, Err(ReadError::Invalid { rule: "directories do not overlap", .. })),
        "{result:?}"
    );
}

#[test]
fn names_from_an_image_are_single_components() {
    let image =
        hostile_images().into_iter().find(|hostile| hostile.name == "name_with_a_slash").unwrap().image;
    let names: Vec<String> =
        Image::open(image).unwrap().list("").unwrap().into_iter().map(|entry| entry.name).collect();
    assert!(names.contains(&r"..\x2Fet".to_owned()), "{names:?}");
}

#[test]
fn descriptors_without_end_are_a_limit_error() {
    let mut image = vec![0; 200 * 2048];
    for sector in image.chunks_exact_mut(2048).skip(16) {
        sector[..7].copy_from_slice(b"\x02CD001\x01");
    }
    assert!(matches!(Image::open(image), Err(ReadError::Limit { what: "volume descriptors", .. })));
}

#[test]
fn data_that_is_not_an_image_is_invalid() {
    for len in [0, 100, 40_000] {
        assert!(matches!(Image::open(vec![0; len]), Err(ReadError::Invalid { .. })));
    }
    let mut image = vec![0; 40 * 2048];
    image[16 * 2048..][..7].copy_from_slice(b"\0BEA01\x01");
    image[17 * 2048..][..7].copy_from_slice(b"\0NSR02\x01");
    assert!(matches!(Image::open(image), Err(ReadError::Invalid { .. })), "UDF declared but missing");
}

#[test]
fn parent_components_never_leave_the_root() {
    let image = Image::open(common::task_plan()).unwrap();
    for path in ["..", "../ks.cfg", "./../ks.cfg", "a/../ks.cfg"] {
        assert!(matches!(image.lookup(path), Err(ReadError::NotFound { .. })), "{path:?}");
    }
    assert!(image.lookup("/./ks.cfg").is_ok());
    assert!(matches!(image.lookup("ks.cfg/x"), Err(ReadError::NotADirectory { .. })));
    assert!(matches!(image.list("ks.cfg"), Err(ReadError::NotADirectory { .. })));
    assert!(matches!(image.open_file(""), Err(ReadError::NotAFile { .. })));
}

fn corpus(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

/// Returns a seed for `fuzz::read_image`: an image without the system area and without the zeros at its end.
fn seed(image: &[u8]) -> &[u8] {
    let end = image.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &image[32 * 1024..end]
}

/// Returns the seeds of both readers, by target and name.
fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let iso = hostile_images().into_iter();
    let udf = hostile_udf_images().into_iter();
    iso.map(|Hostile { name, image, .. }| ("iso_read", name, seed(&image).to_vec()))
        .chain(udf.map(|Hostile { name, image, .. }| ("iso_udf", name, UdfImage::seed(&image))))
        .collect()
}

#[test]
fn the_seeds_of_the_fuzz_targets_are_these_images() {
    for (target, name, seed) in seeds() {
        let path = corpus(target).join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(corpus(target)).unwrap();
            fs::write(&path, &seed).unwrap();
        }
        let stored = fs::read(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; run with UPDATE_GOLDEN=1", path.display()));
        assert!(
            stored == seed,
            "{name} differs from its file; run with UPDATE_GOLDEN=1 if the change is intended"
        );
    }
}

#[test]
fn seeds_replay_without_a_finding() {
    let replay = |target: &str, oracle: &dyn Fn(&[u8]) -> usize| -> usize {
        let files = fs::read_dir(corpus(target)).unwrap();
        files.map(|file| oracle(&fs::read(file.unwrap().path()).unwrap())).sum()
    };
    assert!(replay("iso_read", &iso9660::fuzz::read_image) > 20, "the seeds reach the directories");
    assert!(replay("iso_udf", &iso9660::fuzz::read_udf) > 100, "the seeds reach the directories");
    for file in fs::read_dir(corpus("iso_write")).unwrap() {
        iso9660::fuzz::write_roundtrip(&fs::read(file.unwrap().path()).unwrap());
    }
}

#[test]
fn single_byte_changes_never_panic() {
    let images = hostile_images();
    let good = seed(&images[0].image);
    for at in (0..good.len()).filter(|at| good[*at] != 0) {
        for value in [0, good[at] ^ 0x80, good[at].wrapping_add(1), 0xff] {
            let mut changed = good.to_vec();
            changed[at] = value;
            iso9660::fuzz::read_image(&changed);
        }
    }
}

#[test]
fn changed_bytes_with_right_checksums_never_panic() {
    for name in ["udf_physical", "udf_metadata", "udf_sparable", "udf_virtual"] {
        let image = hostile_udf_images().into_iter().find(|hostile| hostile.name == name).unwrap().image;
        let good = UdfImage::seed(&image);
        // Every fourth byte is enough, because the fuzz target recomputes checksums in the same way.
        for at in (0..good.len()).filter(|at| good[*at] != 0).step_by(4) {
            let mut changed = good.clone();
            changed[at] ^= 0x81;
            iso9660::fuzz::read_udf(&changed);
        }
    }
}
