//! Extraction to a directory: complete, bounded, and never outside of the directory.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use common::hostile::{both, put, record, start_of};
use common::{EPOCH, stream};
use iso9660::{
    ExtractError, ExtractEvent, ExtractOptions, Extracted, Hierarchy, Image, ImageOptions, ImagePlan, Part,
    Profile, ReadError, Tree,
};

fn image(build: impl FnOnce(&mut Tree)) -> (ImagePlan, Vec<u8>) {
    let mut tree = Tree::new();
    build(&mut tree);
    let options = ImageOptions::new(Profile::Tree, "EXTRACT", EPOCH).with_joliet(false).with_min_size(0);
    let plan = ImagePlan::new(&tree, &options).unwrap();
    let bytes = stream(&plan);
    (plan, bytes)
}

/// Extracts and returns the result with the skipped paths and their reasons.
fn extract(bytes: &[u8], path: &str, to: &Path) -> (Result<Extracted, ExtractError>, Vec<(String, String)>) {
    let mut skipped = Vec::new();
    let done = Image::open(bytes).unwrap().extract(path, to, &ExtractOptions::default(), |event| {
        if let ExtractEvent::Skipped { path, reason } = event {
            skipped.push((path.to_owned(), reason.to_string()));
        }
    });
    (done, skipped)
}

/// Replaces every occurrence of a text in the metadata.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let places: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| put(bytes, at, to));
}

#[test]
fn an_extracted_tree_has_the_contents_modes_and_links_of_the_image() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("new/out");
    let (_, bytes) = image(|tree| {
        tree.add_executable("bin/run", "#!/bin/sh\n")
            .unwrap()
            .add_file("a/b/c/leaf", vec![7; 3_000_000])
            .unwrap();
        tree.add_file("empty", "").unwrap().add_symlink("a/up", "../bin/run").unwrap();
        tree.add_directory("hollow").unwrap();
    });
    let (done, skipped) = extract(&bytes, "/", &to);
    let done = done.unwrap();
    assert_eq!((done.files, done.directories, done.links, done.bytes), (3, 5, 1, 3_000_010));
    assert_eq!((done.skipped, done.missing, skipped.len()), (0, 0, 0));
    assert_eq!(fs::read(to.join("a/b/c/leaf")).unwrap(), vec![7; 3_000_000]);
    assert_eq!(fs::read_to_string(to.join("a/up")).unwrap(), "#!/bin/sh\n");
    assert_eq!(fs::metadata(to.join("bin/run")).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(to.join("hollow").is_dir());
    let part = directory.path().join("part");
    assert_eq!(extract(&bytes, "a/b", &part).0.unwrap().files, 1);
    assert!(part.join("c/leaf").exists());
    assert_eq!(extract(&bytes, "/a/up", &part).0.unwrap().files, 1);
    assert_eq!(fs::read_to_string(part.join("up")).unwrap(), "#!/bin/sh\n");
}

#[test]
fn what_cannot_be_extracted_is_reported_and_everything_else_is_extracted() {
    let directory = tempfile::tempdir().unwrap();
    let (plan, mut bytes) = image(|tree| {
        tree.add_file("aaa1", "first").unwrap().add_file("aaa2", "second").unwrap();
        tree.add_file("beyond", "lost").unwrap().add_file("slash-x", "slash").unwrap();
        tree.add_symlink("void", "target").unwrap().add_symlink("work", "target").unwrap();
        tree.add_file("zzz/last", "last").unwrap();
    });
    let root = start_of(&plan, Part::Directory(Hierarchy::Primary, 1));
    // A name that exists twice, a name with a slash, a file outside of the image, and a link without components.
    replace(&mut bytes, b"aaa2", b"aaa1");
    replace(&mut bytes, b"slash-x", b"slash/x");
    let beyond = record(&bytes, root, b"BEYOND.;1");
    put(&mut bytes, beyond + 2, &both(1_000_000));
    let link = bytes.windows(4).position(|entry| entry[..2] == *b"SL" && entry[3] == 1).unwrap();
    let area = usize::from(bytes[link + 2]);
    put(&mut bytes, link + 2, &[5]);
    // The rest of the entry becomes padding of another kind.
    put(&mut bytes, link + 5, &[b'P', b'D', u8::try_from(area - 5).unwrap(), 1]);

    let (done, skipped) = extract(&bytes, "", directory.path());
    let done = done.unwrap();
    assert_eq!((done.files, done.directories, done.links, done.missing), (3, 1, 1, 3), "{skipped:?}");
    let paths: Vec<&str> = skipped.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["aaa1", "beyond", "void"]);
    assert_eq!(fs::read_to_string(directory.path().join("aaa1")).unwrap(), "first");
    assert_eq!(fs::read_to_string(directory.path().join("zzz/last")).unwrap(), "last");
    assert_eq!(fs::read_to_string(directory.path().join(r"slash\x2Fx")).unwrap(), "slash");
    assert_eq!(fs::read_link(directory.path().join("work")).unwrap(), Path::new("target"));
}

#[test]
fn names_that_are_not_utf_8_are_extracted_with_their_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut bytes) = image(|tree| {
        tree.add_file("caf1", "acute")
            .unwrap()
            .add_file("caf2", "grave")
            .unwrap()
            .add_symlink("link", "caf1")
            .unwrap();
        tree.add_file("line-break", "").unwrap();
    });
    replace(&mut bytes, b"caf1", b"caf\xE9");
    replace(&mut bytes, b"caf2", b"caf\xE8");
    replace(&mut bytes, b"line-break", b"line\nbreak");
    let (done, skipped) = extract(&bytes, "", directory.path());
    assert_eq!((done.unwrap().files, skipped.len()), (3, 0), "{skipped:?}");
    let mut names: Vec<Vec<u8>> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().as_bytes().to_vec())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [b"caf\xE8".to_vec(), b"caf\xE9".to_vec(), br"line\x0Abreak".to_vec(), b"link".to_vec()]
    );
    assert_eq!(fs::read_to_string(directory.path().join("link")).unwrap(), "acute");
}

#[test]
fn nothing_is_written_through_links_and_nothing_that_exists_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    let (outside, to) = (directory.path().join("outside"), directory.path().join("out"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&to).unwrap();
    symlink(&outside, to.join("trap")).unwrap();
    fs::write(to.join("mine"), "unchanged").unwrap();
    fs::create_dir(to.join("shared")).unwrap();
    let (_, bytes) = image(|tree| {
        tree.add_file("trap/file", "captured").unwrap().add_file("mine", "overwritten").unwrap();
        tree.add_file("shared/new", "added").unwrap();
    });
    let (done, skipped) = extract(&bytes, "", &to);
    assert_eq!(done.unwrap().missing, 3, "{skipped:?}");
    let paths: Vec<&str> = skipped.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["mine", "trap", "trap/file"]);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(to.join("mine")).unwrap(), "unchanged");
    assert_eq!(fs::read_to_string(to.join("shared/new")).unwrap(), "added");
}

#[test]
fn a_link_of_the_image_never_becomes_a_directory_of_later_files() {
    let directory = tempfile::tempdir().unwrap();
    let (outside, to) = (directory.path().join("outside"), directory.path().join("out"));
    fs::create_dir(&outside).unwrap();
    let (_, mut bytes) = image(|tree| {
        tree.add_symlink("aaaa", outside.to_str().unwrap())
            .unwrap()
            .add_file("bbbb/file", "captured")
            .unwrap();
    });
    // The link and the directory have one name, so the file would be written behind the link.
    replace(&mut bytes, b"bbbb", b"aaaa");
    let (done, skipped) = extract(&bytes, "", &to);
    assert_eq!((done.unwrap().files, skipped.len()), (1, 1), "{skipped:?}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(to.join("aaaa/file")).unwrap(), "captured");
}

#[test]
fn files_that_do_not_fit_are_refused_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("out");
    let (_, bytes) = image(|tree| {
        tree.add_file("a", vec![1; 600]).unwrap().add_file("b", vec![2; 600]).unwrap();
    });
    let image = Image::open(bytes.as_slice()).unwrap();
    let small = ExtractOptions::default().with_max_bytes(1000_u64);
    let error = image.extract("", &to, &small, |_| {}).unwrap_err();
    assert!(matches!(error, ExtractError::Space { needed: 1200, available: 1000, .. }), "{error}");
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
    let error = image.extract("absent", &to, &small, |_| {}).unwrap_err();
    assert!(matches!(error, ExtractError::Read(ReadError::NotFound { .. })), "{error}");
    let linkless = ExtractOptions::default().with_links(false);
    assert_eq!(image.extract("a", &to, &linkless, |_| {}).unwrap().bytes, 600);
    // The host refuses: the error names the path.
    let error = image.extract("", to.join("a"), &ExtractOptions::default(), |_| {}).unwrap_err();
    assert!(error.to_string().contains("out/a"), "{error}");
}
