//! Images that are legal or nearly so, and that other readers show completely: versions, names that are not UTF-8, short
//! directory lengths, joined links, one broken tree or boot entry.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::ops::ControlFlow;

use common::hostile::{both, put, record, start_of};
use common::{EPOCH, boot_plan, stream};
use iso9660::{
    EntryKind, ExtractOptions, Hierarchy, Image, ImageOptions, ImagePlan, Namespace, Part, Profile,
    ReadError, ReadLimits, Tree, escape_name,
};

const PRIMARY: Hierarchy = Hierarchy::Primary;

fn plan(files: &[(&str, &str)], change: impl FnOnce(ImageOptions) -> ImageOptions) -> (ImagePlan, Vec<u8>) {
    let mut tree = Tree::new();
    for (path, text) in files {
        tree.add_file(path, *text).unwrap();
    }
    let options = change(ImageOptions::new(Profile::Tree, "ODD", EPOCH).with_min_size(0));
    let plan = ImagePlan::new(&tree, &options).unwrap();
    let bytes = stream(&plan);
    (plan, bytes)
}

fn open(bytes: &[u8], namespace: Namespace) -> Image<&[u8]> {
    Image::open_with(bytes, Some(namespace), ReadLimits::default()).unwrap()
}

fn names(image: &Image<&[u8]>, path: &str) -> Vec<String> {
    image.list(path).unwrap().into_iter().map(|entry| entry.name).collect()
}

fn text(image: &Image<&[u8]>, path: &str) -> String {
    String::from_utf8(image.read(path, 100).unwrap()).unwrap()
}

/// An image with `A.TXT;2`, `A.TXT;1` and `B.TXT;1`, in the primary hierarchy and in Joliet.
fn with_versions() -> Vec<u8> {
    let files = [("a.txt", "newer"), ("aztxt", "older"), ("b.txt", "other")];
    let (plan, mut bytes) = plan(&files, |options| options.with_rock_ridge(false));
    let root = start_of(&plan, Part::Directory(PRIMARY, 1));
    let (newer, older) = (record(&bytes, root, b"A.TXT;1"), record(&bytes, root, b"AZTXT.;1"));
    put(&mut bytes, newer + 33, b"A.TXT;2");
    // An identifier with another dot would be one byte longer; the length of the record has room for its padding.
    put(&mut bytes, older + 32, &[7]);
    put(&mut bytes, older + 33, b"A.TXT;1\0");
    let joliet = start_of(&plan, Part::Directory(Hierarchy::Joliet, 1));
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    let (newer, older) = (record(&bytes, joliet, &wide("a.txt")), record(&bytes, joliet, &wide("aztxt")));
    for (at, name) in [(newer, "a.t;2"), (older, "a.t;1")] {
        put(&mut bytes, at + 33, &wide(name));
    }
    bytes
}

#[test]
fn every_version_of_a_file_has_a_name_and_is_read_by_its_version() {
    let bytes = with_versions();
    for (namespace, stem, other) in
        [(Namespace::Plain, "a.txt", "b.txt"), (Namespace::Joliet, "a.t", "b.txt")]
    {
        let image = open(&bytes, namespace);
        assert_eq!(names(&image, ""), [stem.to_owned(), format!("{stem};1"), other.to_owned()]);
        let upper = stem.to_uppercase();
        for (path, content) in [
            (stem.to_owned(), "newer"),
            (format!("{stem};1"), "older"),
            (format!("{stem};2"), "newer"),
            (format!("{upper};1"), "older"),
            (format!("{upper};2"), "newer"),
            (format!("/{other};1"), "other"),
        ] {
            assert_eq!(text(&image, &path), content, "{namespace}: {path}");
        }
        for path in [format!("{stem};3"), format!("{other};2")] {
            assert!(matches!(image.lookup(&path), Err(ReadError::NotFound { .. })), "{namespace}: {path}");
        }
        assert_eq!(image.lookup(stem).unwrap().version, Some(2));
    }
}

/// Regression: the extraction ended at the second version.
#[test]
fn every_version_of_a_file_is_extracted() {
    let bytes = with_versions();
    for (namespace, stem) in [(Namespace::Plain, "a.txt"), (Namespace::Joliet, "a.t")] {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("out");
        let done = open(&bytes, namespace).extract("", &to, &ExtractOptions::default(), |_| {}).unwrap();
        assert_eq!((done.files, done.skipped), (3, 0), "{namespace}");
        let (older, next) = (format!("{stem};1"), "b.txt".to_owned());
        for (name, content) in [(stem.to_owned(), "newer"), (older, "older"), (next, "other")] {
            assert_eq!(std::fs::read_to_string(to.join(&name)).unwrap(), content, "{namespace}: {name}");
        }
    }
}

#[test]
fn a_file_with_the_name_of_a_directory_shows_its_version() {
    let (plan, mut bytes) =
        plan(&[("ab/in", "inside"), ("ac", "beside")], |options| options.with_rock_ridge(false));
    let file = record(&bytes, start_of(&plan, Part::Directory(PRIMARY, 1)), b"AC.;1");
    put(&mut bytes, file + 33, b"AB.;1");
    let image = open(&bytes, Namespace::Plain);
    assert_eq!(names(&image, ""), ["ab", "ab;1"]);
    assert_eq!((text(&image, "ab/in").as_str(), text(&image, "ab;1").as_str()), ("inside", "beside"));
}

#[test]
fn versions_are_found_in_a_directory_that_is_too_large_to_keep() {
    let mut files: Vec<(String, &str)> = (0..3000).map(|number| (format!("c{number:04}"), "")).collect();
    files.extend([("a.txt".to_owned(), "newer"), ("aztxt".to_owned(), "older")]);
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let (plan, mut bytes) = plan(&files, |options| options.with_rock_ridge(false).with_joliet(false));
    let root = start_of(&plan, Part::Directory(PRIMARY, 1));
    let (newer, older) = (record(&bytes, root, b"A.TXT;1"), record(&bytes, root, b"AZTXT.;1"));
    put(&mut bytes, newer + 33, b"A.TXT;2");
    put(&mut bytes, older + 32, &[7]);
    put(&mut bytes, older + 33, b"A.TXT;1\0");
    let image = open(&bytes, Namespace::Plain);
    assert_eq!(text(&image, "A.TXT;1"), "older");
    assert_eq!(text(&image, "A.TXT;2"), "newer");
    assert_eq!(text(&image, "A.TXT"), "newer");
}

/// An image whose Rock Ridge names `caf1` and `caf2` end with bytes of Latin-1, and a link to one of them.
fn with_latin_names() -> Vec<u8> {
    let mut tree = Tree::new();
    tree.add_file("caf1", "acute").unwrap().add_file("caf2", "grave").unwrap();
    tree.add_file("dir/ctl1", "one").unwrap().add_file("dir/ctl2", "two").unwrap();
    tree.add_symlink("link", "caf1").unwrap();
    let options = ImageOptions::new(Profile::Tree, "ODD", EPOCH).with_joliet(false).with_min_size(0);
    let mut bytes = stream(&ImagePlan::new(&tree, &options).unwrap());
    // The entries NM and SL have the texts without separators.
    for (from, to) in [(b"caf1", b"caf\xE9"), (b"caf2", b"caf\xE8"), (b"ctl1", b"ct\n1"), (b"ctl2", b"ct\t1")]
    {
        let places: Vec<usize> = (0..bytes.len() - 4).filter(|at| bytes[*at..*at + 4] == *from).collect();
        places.into_iter().for_each(|at| put(&mut bytes, at, to));
    }
    bytes
}

#[test]
fn names_that_are_not_text_are_distinct_reachable_and_give_their_bytes() {
    let bytes = with_latin_names();
    let image = open(&bytes, Namespace::RockRidge);
    let entries = image.list("").unwrap();
    let shown: Vec<(&str, &[u8])> = vec![(r"caf\xE9", b"caf\xE9"), (r"caf\xE8", b"caf\xE8")];
    for ((name, raw), entry) in shown.into_iter().zip(&entries) {
        assert_eq!((entry.name.as_str(), &*entry.name_bytes()), (name, raw));
        assert_eq!(escape_name(raw), name);
    }
    assert_eq!(
        (text(&image, r"caf\xE9"), text(&image, r"caf\xE8")),
        ("acute".to_owned(), "grave".to_owned())
    );
    assert_eq!(entries[3].kind, EntryKind::Symlink(r"caf\xE9".to_owned()));
    assert_eq!(text(&image, "link"), "acute", "a link leads to the file with these bytes");
    assert_eq!(names(&image, "dir"), [r"ct\x0A1", r"ct\x091"]);
    assert_eq!(text(&image, r"dir/ct\x091"), "two");
}

#[test]
fn a_root_directory_with_a_short_length_is_read_to_its_own_end() {
    let files: Vec<(String, &str)> = (0..60).map(|number| (format!("file{number:02}"), "x")).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let (plan, good) = plan(&files, |options| options.with_joliet(false));
    let root = start_of(&plan, Part::Directory(PRIMARY, 1));
    let descriptor = start_of(&plan, Part::VolumeDescriptor(PRIMARY)) + 156;
    let mut bytes = good.clone();
    put(&mut bytes, descriptor + 10, &both(68));
    for namespace in [Namespace::RockRidge, Namespace::Plain] {
        assert_eq!(names(&open(&bytes, namespace), "").len(), 60, "{namespace}");
        assert_eq!(text(&open(&bytes, namespace), "file59").len(), 1, "{namespace}");
    }
    assert_eq!(Image::open(bytes.as_slice()).unwrap().namespace(), Namespace::RockRidge);
    // When the directory itself says 68 bytes too, its first sector is read, as other readers do.
    put(&mut bytes, root + 10, &both(68));
    let first = open(&good, Namespace::Plain).list("").unwrap().len();
    let found = names(&open(&bytes, Namespace::Plain), "");
    assert!(found.len() > 10 && found.len() < first, "{found:?}");
    // A length beyond the image is not used.
    put(&mut bytes, root + 10, &both(u32::MAX));
    assert_eq!(names(&open(&bytes, Namespace::Plain), "").len(), found.len());
}

#[test]
fn a_broken_tree_does_not_hide_the_others() {
    let (plan, good) = plan(&[("userdata", "text")], |options| options);
    let joliet = start_of(&plan, Part::VolumeDescriptor(Hierarchy::Joliet));
    let primary = start_of(&plan, Part::VolumeDescriptor(PRIMARY));
    let root = start_of(&plan, Part::Directory(PRIMARY, 1));
    let outside = both(u32::MAX / 2);
    for (what, at, change, readable, broken) in [
        (
            "descriptor of Joliet",
            joliet + 128,
            vec![1],
            vec![Namespace::RockRidge, Namespace::Plain],
            Namespace::Joliet,
        ),
        ("primary descriptor", primary + 128, vec![1], vec![Namespace::Joliet], Namespace::Plain),
        (
            "root of the primary tree",
            primary + 158,
            outside.to_vec(),
            vec![Namespace::Joliet],
            Namespace::Plain,
        ),
        (
            "Rock Ridge of the root",
            root + 34 + 2,
            vec![3],
            vec![Namespace::RockRidge, Namespace::Joliet, Namespace::Plain],
            Namespace::Udf,
        ),
    ] {
        let mut bytes = good.clone();
        put(&mut bytes, at, &change);
        if what == "Rock Ridge of the root" {
            // The entry after SP ends outside of its area.
            put(&mut bytes, at, &[7]);
            put(&mut bytes, at + 7, &[250]);
        }
        let image = Image::open(bytes.as_slice()).unwrap_or_else(|error| panic!("{what}: {error}"));
        if what == "Rock Ridge of the root" {
            assert_eq!(image.namespaces(), [Namespace::Joliet, Namespace::Plain], "{what}");
            assert_eq!(image.unreadable()[0].0, Namespace::RockRidge, "{what}");
            continue;
        }
        assert_eq!(image.namespaces(), readable, "{what}");
        let [(namespace, _)] = image.unreadable() else { panic!("{what}: {:?}", image.unreadable()) };
        assert_eq!(*namespace, broken, "{what}");
        let requested = Image::open_with(bytes.as_slice(), Some(broken), ReadLimits::default());
        assert!(matches!(requested, Err(ReadError::Invalid { .. })), "{what}");
        for namespace in readable {
            assert_eq!(text(&open(&bytes, namespace), "userdata"), "text", "{what}: {namespace}");
        }
    }
}

#[test]
fn one_broken_boot_entry_does_not_hide_the_others() {
    let plan = boot_plan();
    let good = stream(&plan);
    let catalog = start_of(&plan, Part::BootCatalog);
    let entries = Image::open(good.as_slice()).unwrap().boot_entries().unwrap();
    assert_eq!(entries.len(), 2);
    for (what, at, change, left) in [
        ("unknown media", catalog + 33, vec![9], &entries[1..]),
        ("unknown type", catalog + 96, vec![0x12], &entries[..1]),
        ("outside of the image", catalog + 96 + 8, vec![255; 4], &entries[..1]),
        ("wrong sum", catalog + 4, vec![1], &entries[..]),
        ("no catalog", catalog, vec![9], &[][..]),
    ] {
        let mut bytes = good.clone();
        put(&mut bytes, at, &change);
        let image = Image::open(bytes.as_slice()).unwrap();
        let found = image.boot_catalog().unwrap();
        assert_eq!((found.entries.as_slice(), found.faults.len()), (left, 1), "{what}");
        assert_eq!(image.boot_images().unwrap().len(), left.len(), "{what}");
    }
}

#[test]
fn a_walk_keeps_one_path_and_visits_below_any_directory() {
    let files = [("a/b/c/one", ""), ("a/b/two", ""), ("a/d/three", ""), ("e", "")];
    let (_, bytes) = plan(&files, |options| options);
    for namespace in [Namespace::RockRidge, Namespace::Joliet] {
        let image = open(&bytes, namespace);
        let walk = |path: &str| {
            let mut paths = Vec::new();
            image
                .walk_from(path, |path, _| {
                    paths.push(path.to_owned());
                    ControlFlow::Continue(())
                })
                .unwrap();
            paths
        };
        assert_eq!(walk(""), ["a", "e", "a/b", "a/d", "a/b/c", "a/b/two", "a/b/c/one", "a/d/three"]);
        assert_eq!(walk("/a/b/"), ["c", "two", "c/one"]);
        assert!(matches!(
            image.walk_from("e", |_, _| ControlFlow::Continue(())),
            Err(ReadError::NotADirectory { .. })
        ));
    }
}
