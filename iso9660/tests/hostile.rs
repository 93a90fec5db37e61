//! Images with one fault each: every fault is found, named and cheap; and the seeds of the fuzz targets are replayed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use common::hostile::{Hostile, Outcome, both, hostile_images, put, record, start_of};
use common::hostile_udf::hostile_udf_images;
use common::udf::UdfImage;
use iso9660::{Hierarchy, Image, Options, Part, Plan, Profile, ReadAt, ReadError, Tree};

/// Opens, walks, reads every file and the boot catalog.
fn read_everything(image: &[u8]) -> Result<(), ReadError> {
    let image = Image::open(image)?;
    let mut paths = Vec::new();
    image.walk(|path, entry| {
        if !entry.is_dir() {
            paths.push((path.to_owned(), entry.clone()));
        }
        ControlFlow::Continue(())
    })?;
    for (path, entry) in paths {
        if entry.is_file() {
            image
                .reader(&entry, &path)?
                .read_exact_at(0, &mut vec![0; usize::try_from(entry.len).unwrap()])
                .unwrap();
        } else {
            image.lookup(&path)?;
        }
    }
    image.boot_entries()?;
    Ok(())
}

#[test]
fn every_fault_is_found_and_named() {
    for Hostile { name, image, outcome } in hostile_images().into_iter().chain(hostile_udf_images()) {
        let found = match read_everything(&image) {
            Ok(()) => Outcome::Readable,
            Err(ReadError::Invalid { rule, .. }) => Outcome::Invalid(rule),
            Err(ReadError::Limit { what, .. }) => Outcome::Limit(what),
            Err(ReadError::Unsupported { feature, .. }) => Outcome::Unsupported(feature),
            Err(error) => panic!("{name}: {error}"),
        };
        assert_eq!(found, outcome, "{name}");
    }
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
    let plan = Plan::new(&tree, &Options::new(Profile::Task, "OVERLAP", common::EPOCH)).unwrap();
    let mut image = common::stream(&plan);
    let root = start_of(&plan, Part::Directory(Hierarchy::Primary, 1));
    // Both lead into the padding, one sector apart, and reach to the end.
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
    assert!(names.contains(&"..\u{fffd}et".to_owned()), "{names:?}");
}

#[test]
fn descriptors_without_end_are_a_limit() {
    let mut image = vec![0; 200 * 2048];
    for sector in image.chunks_exact_mut(2048).skip(16) {
        sector[..7].copy_from_slice(b"\x02CD001\x01");
    }
    assert!(matches!(Image::open(image), Err(ReadError::Limit { what: "volume descriptors", .. })));
}

#[test]
fn what_is_no_image_is_invalid() {
    for len in [0, 100, 40_000] {
        assert!(matches!(Image::open(vec![0; len]), Err(ReadError::Invalid { .. })));
    }
    let mut image = vec![0; 40 * 2048];
    image[16 * 2048..][..7].copy_from_slice(b"\0BEA01\x01");
    image[17 * 2048..][..7].copy_from_slice(b"\0NSR02\x01");
    assert!(matches!(Image::open(image), Err(ReadError::Invalid { .. })), "UDF announced, nothing there");
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

/// A seed as `fuzz::read_image` wants it: without the system area and without the zeros at the end.
fn seed(image: &[u8]) -> &[u8] {
    let end = image.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &image[32 * 1024..end]
}

/// The seeds of both readers, by target and name.
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
        assert!(stored == seed, "{name} differs from its file; run with UPDATE_GOLDEN=1 if that is meant");
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
