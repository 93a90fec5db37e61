//! Trees with more than names and contents: links, executables, deep directories, other levels, scanned directories.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use common::{EPOCH, stream};
use iso9660::{
    Content, ContentError, DeepDirectories, EntryKind, Image, ImageOptions, ImagePlan, InterchangeLevel,
    JolietNames, Namespace, Part, PlanError, Profile, ReadAt, ReadLimits, ScanError, Tree,
};

fn options() -> ImageOptions {
    ImageOptions::new(Profile::Tree, "TREE", EPOCH).with_min_size(0)
}

fn open(plan: &ImagePlan, namespace: Namespace) -> Image<&ImagePlan> {
    Image::open_with(plan, Some(namespace), ReadLimits::default()).unwrap()
}

fn names(plan: &ImagePlan, namespace: Namespace, path: &str) -> Vec<String> {
    open(plan, namespace).list(path).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// Returns the bytes of the records of a name in the primary hierarchy, including system use areas.
fn primary_records(plan: &ImagePlan, identifier: &[u8]) -> Vec<Vec<u8>> {
    let image = stream(plan);
    let mut records = Vec::new();
    for segment in plan.segments() {
        if !matches!(segment.part, Part::Directory(iso9660::Hierarchy::Primary, _)) {
            continue;
        }
        let start = usize::try_from(segment.offset).unwrap();
        for sector in image[start..start + usize::try_from(segment.len).unwrap()].chunks(2048) {
            let mut at = 0;
            while at < 2048 && sector[at] != 0 {
                let record = &sector[at..at + usize::from(sector[at])];
                if record[33..].starts_with(identifier) {
                    records.push(record.to_vec());
                }
                at += record.len();
            }
        }
    }
    records
}

/// Returns a number of the PX entry of a record: 0 mode, 1 links, 4 serial number.
fn px(record: &[u8], field: usize) -> u32 {
    let at = record.windows(4).position(|window| window == b"PX\x2c\x01").unwrap() + 4 + 8 * field;
    u32::from_le_bytes(record[at..at + 4].try_into().unwrap())
}

#[test]
fn symbolic_links_keep_their_targets_and_are_in_rock_ridge_only() {
    let mut tree = Tree::new();
    let long = format!("/{}/..", "component/".repeat(100).trim_end_matches('/'));
    let targets = ["recipe.json", "../up/./there", "/", "/absolute/path", &"x".repeat(300), &long];
    tree.add_file("recipe.json", "{}").unwrap();
    for (index, target) in targets.iter().enumerate() {
        tree.add_symlink(&format!("links/{index}{}", "n".repeat(index * 50)), target).unwrap();
    }
    tree.add_symlink("slashes", "a//b/").unwrap();
    let options = options().with_joliet_names(JolietNames::Long);
    let plan = ImagePlan::new(&tree, &options).unwrap();
    let entries = open(&plan, Namespace::RockRidge).list("links").unwrap();
    assert_eq!(entries.len(), targets.len());
    for (entry, target) in entries.iter().zip(targets) {
        assert_eq!(entry.kind, EntryKind::Symlink(target.to_owned()));
        assert_eq!(entry.mode, Some(0o120_777));
    }
    let slashes = open(&plan, Namespace::RockRidge).list("").unwrap().pop().unwrap();
    assert_eq!(slashes.kind, EntryKind::Symlink("a/b".into()));
    assert_eq!(names(&plan, Namespace::Joliet, ""), ["links", "recipe.json"]);
    assert_eq!(common::strict::check(&stream(&plan)), Ok(()));
    let without = options.with_rock_ridge(false);
    assert!(matches!(
        ImagePlan::new(&tree, &without),
        Err(PlanError::SymlinkWithoutRockRidge { path }) if path == "slashes"
    ));
}

#[test]
fn hard_links_share_bytes_serial_number_and_count() {
    let mut tree = Tree::new();
    tree.add_file("z", "shared content").unwrap();
    tree.add_file("other", "other content").unwrap();
    tree.add_hard_link("d/a", "z").unwrap();
    tree.add_hard_link("d/b", "d/a").unwrap();
    let plan = ImagePlan::new(&tree, &options()).unwrap();
    let image = open(&plan, Namespace::RockRidge);
    let extents = image.extents("z").unwrap();
    for path in ["d/a", "d/b"] {
        assert_eq!(image.extents(path).unwrap(), extents);
        assert_eq!(image.read(path, 100).unwrap(), b"shared content");
    }
    assert_ne!(image.extents("other").unwrap(), extents);
    let records: Vec<_> =
        [b"Z.;1", b"A.;1", b"B.;1"].iter().map(|name| primary_records(&plan, *name)).collect();
    for record in &records {
        assert_eq!((px(&record[0], 1), px(&record[0], 4)), (3, px(&records[0][0], 4)));
    }
    assert_eq!(px(&primary_records(&plan, b"OTHER.;1")[0], 1), 1);
    assert_eq!(plan.segments().filter(|segment| matches!(segment.part, Part::File(_))).count(), 2);
    assert_eq!(common::strict::check(&stream(&plan)), Ok(()));
}

#[test]
fn executables_have_an_x_wherever_they_have_an_r() {
    let mut tree = Tree::new();
    tree.add_executable("run.sh", "#!/bin/sh\n").unwrap().add_file("data", "").unwrap();
    tree.add_hard_link("also", "run.sh").unwrap();
    let mode = |file_mode, path: &str| {
        let plan = ImagePlan::new(&tree, &options().with_file_mode(file_mode)).unwrap();
        open(&plan, Namespace::RockRidge).lookup(path).unwrap().mode.unwrap()
    };
    assert_eq!(mode(0o444, "run.sh"), 0o100_555);
    assert_eq!(mode(0o444, "also"), 0o100_555);
    assert_eq!(mode(0o640, "run.sh"), 0o100_750);
    assert_eq!(mode(0o444, "data"), 0o100_444);
}

fn deep(levels: usize) -> String {
    (1..levels).map(|level| format!("level{level}/")).collect::<String>() + "leaf"
}

#[test]
fn deep_directories_are_moved_and_shown_in_their_places() {
    let mut tree = Tree::new();
    let path = deep(40);
    tree.add_file(&path, "at the bottom").unwrap();
    for index in 0..3 {
        // Equal names from different places meet in the relocation directory.
        tree.add_file(&format!("{index}/2/3/4/5/6/7/8/9/same"), format!("file {index}")).unwrap();
    }
    let plan = ImagePlan::new(&tree, &options()).unwrap();
    let image = stream(&plan);
    assert_eq!(common::strict::check(&image), Ok(()));
    let read = |namespace, path: &str| open(&plan, namespace).read(path, 100);
    for namespace in [Namespace::RockRidge, Namespace::Joliet] {
        assert_eq!(read(namespace, &path).unwrap(), b"at the bottom", "{namespace}");
        assert_eq!(read(namespace, "1/2/3/4/5/6/7/8/9/same").unwrap(), b"file 1", "{namespace}");
        assert_eq!(names(&plan, namespace, ""), ["0", "1", "2", "level1"], "{namespace}");
    }
    assert!(names(&plan, Namespace::Plain, "").contains(&"rr_moved".to_owned()));
    // The link count of a directory follows from the tree that Rock Ridge shows.
    assert_eq!(px(&primary_records(&plan, b"\0")[0], 1), 2 + 4);
    let placeholder = &primary_records(&plan, b"LEVEL8.;1")[0];
    assert_eq!((placeholder[25], px(placeholder, 0), px(placeholder, 1)), (0, 0o040_555, 3));

    let refused = options().with_depth(DeepDirectories::Refuse);
    assert!(matches!(
        ImagePlan::new(&tree, &refused),
        Err(PlanError::TooDeep { path, level: 9, limit: 8 }) if path == "0/2/3/4/5/6/7/8"
    ));
    let plain = options().with_rock_ridge(false);
    assert!(matches!(ImagePlan::new(&tree, &plain), Err(PlanError::TooDeep { .. })));
}

#[test]
fn a_name_that_relocation_needs_is_refused_only_when_it_is_needed() {
    let mut tree = Tree::new();
    tree.add_file("RR_moved/x", "").unwrap();
    assert!(ImagePlan::new(&tree, &options()).is_ok());
    tree.add_file(&deep(9), "").unwrap();
    assert!(matches!(
        ImagePlan::new(&tree, &options()),
        Err(PlanError::RelocationName { path }) if path == "RR_moved"
    ));
}

/// A source of zeros of any length.
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

#[test]
fn lower_levels_shorten_names_and_refuse_files_in_several_sections() {
    let mut tree = Tree::new();
    tree.add_file("some directory/recipe.schema.json", "").unwrap();
    let level = |level| ImagePlan::new(&tree, &options().with_level(level)).unwrap();
    assert_eq!(names(&level(InterchangeLevel::One), Namespace::Plain, "some_dir"), ["recipe_s.jso"]);
    assert_eq!(
        names(&level(InterchangeLevel::Two), Namespace::Plain, "some_directory"),
        ["recipe_schema.json"]
    );
    tree.add_file("big", Content::source(Zeros(1 << 32))).unwrap();
    for level in [InterchangeLevel::One, InterchangeLevel::Two] {
        assert!(matches!(
            ImagePlan::new(&tree, &options().with_level(level)),
            Err(PlanError::NeedsLevelThree { path, length }) if path == "big" && length == 1 << 32
        ));
    }
    assert!(ImagePlan::new(&tree, &options()).is_ok());
}

#[test]
fn an_enhanced_descriptor_has_a_separate_tree() {
    let mut tree = Tree::new();
    let path = format!("{}/{}", deep(10), "n".repeat(207));
    tree.add_file(&path.replace("leaf/", "d/"), "long").unwrap().add_symlink("link", "x").unwrap();
    let enhanced = options().with_enhanced(true).with_joliet(false);
    let plan = ImagePlan::new(&tree, &enhanced).unwrap();
    let image = stream(&plan);
    assert_eq!(common::strict::check(&image), Ok(()));
    let descriptor = &image[17 * 2048..18 * 2048];
    assert_eq!((&descriptor[..8], descriptor[881]), (b"\x02CD001\x02\0".as_slice(), 2));
    tree.add_file(&"n".repeat(208), "").unwrap();
    assert!(matches!(
        ImagePlan::new(&tree, &enhanced),
        Err(PlanError::NameTooLong { namespace: "ISO 9660:1999", length: 208, limit: 207, .. })
    ));
}

#[test]
fn strict_joliet_allows_the_names_of_the_specification() {
    let plan = |paths: &[&str], joliet_names| {
        let mut tree = Tree::new();
        for path in paths {
            tree.add_file(path, "").unwrap();
        }
        ImagePlan::new(&tree, &options().with_joliet_names(joliet_names)).map(|_| ())
    };
    let long = "n".repeat(65);
    assert!(plan(&[&long, "d/A", "d/a"], JolietNames::Long).is_ok());
    assert!(matches!(
        plan(&[&long], JolietNames::Strict),
        Err(PlanError::NameTooLong { namespace: "Joliet", length: 65, limit: 64, .. })
    ));
    assert!(matches!(
        plan(&["d/Ä", "d/ä"], JolietNames::Strict),
        Err(PlanError::SameInJoliet { path, other }) if path == "d/ä" && other == "d/Ä"
    ));
    let path = ["d".repeat(59), "e".repeat(59), "f".repeat(59), "g".repeat(60)].join("/");
    assert!(plan(&[&path], JolietNames::Strict).is_ok());
    assert!(matches!(
        plan(&[&format!("{path}x")], JolietNames::Strict),
        Err(PlanError::JolietPathTooLong { length: 241, limit: 240, .. })
    ));
}

/// Returns the files that a program unpacked, as paths with contents or targets.
fn unpacked(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path().strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_symlink() {
                found
                    .insert(path, fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes());
            } else {
                found.insert(path, fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

#[test]
#[ignore = "needs bsdtar and xorriso, run by .ci/run"]
fn foreign_programs_unpack_deep_directories_links_and_long_names() {
    let mut tree = Tree::new();
    let mut wanted = BTreeMap::new();
    let mut paths = vec![deep(40), "n".repeat(253), format!("{}/{}", "d".repeat(250), "f".repeat(250))];
    paths.extend((0..4).map(|index| format!("{index}/2/3/4/5/6/7/8/9/{index}{}", "x".repeat(200))));
    for path in paths {
        tree.add_file(&path, path.as_str()).unwrap();
        wanted.insert(path.clone(), path.into_bytes());
    }
    let long = format!("/{}/end", vec!["component"; 90].join("/"));
    let exact = format!("{}/b/c", "a".repeat(245));
    let short = vec!["q"; 300].join("/");
    let targets = ["../up/./there", "/", &"x".repeat(255), &long, &exact, &short];
    for (index, target) in targets.iter().enumerate() {
        for path in [format!("links/{index}"), format!("3/2/3/4/5/6/7/8/9/{}", index.to_string().repeat(220))]
        {
            tree.add_symlink(&path, target).unwrap();
            wanted.insert(path, target.as_bytes().to_vec());
        }
    }
    let plan = ImagePlan::new(&tree, &options().with_joliet(false).with_directory_mode(0o755)).unwrap();
    let place = tempfile::tempdir().unwrap();
    let image = place.path().join("image.iso");
    plan.write_to_file(&fs::File::create(&image).unwrap()).unwrap();
    let unpack = |name: &str, arguments: &[&str], input: &Path| {
        let target = place.path().join(name);
        fs::create_dir(&target).unwrap();
        let program = name.split('.').next().unwrap();
        let output = std::process::Command::new(program)
            .args(arguments)
            .current_dir(&target)
            .stdin(fs::File::open(input).unwrap())
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        unpacked(&target)
    };
    let iso = image.to_str().unwrap();
    let compare = |found: BTreeMap<String, Vec<u8>>| {
        for (path, content) in &wanted {
            let found = found.get(path).map(|found| String::from_utf8_lossy(found));
            assert_eq!(found, Some(String::from_utf8_lossy(content)), "{path}");
        }
        assert_eq!(found.len(), wanted.len());
    };
    compare(unpack("bsdtar.file", &["-xf", iso], &image));
    // From a pipe, which cannot seek back.
    compare(unpack("bsdtar.pipe", &["-xf", "-"], &image));
    let extract = ["-osirrox", "on", "-indev", iso, "-extract", "/", "."];
    compare(unpack("xorriso", &extract, &image));
}

/// Creates a directory with a file, an executable, a link, and a file in a subdirectory.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("sub")).unwrap();
    fs::write(at("b.txt"), "bytes").unwrap();
    fs::write(at("sub/large"), vec![7; 1 << 20]).unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at("run"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink("sub/large", at("link")).unwrap();
    directory
}

#[test]
fn a_scanned_directory_equals_the_tree_of_its_files() {
    let directory = directory();
    let mut written = Tree::new();
    written.add_symlink("link", "sub/large").unwrap();
    written.add_file("sub/large", vec![7; 1 << 20]).unwrap();
    written.add_executable("run", "#!/bin/sh\n").unwrap();
    written.add_file("empty", "").unwrap().add_file("b.txt", "bytes").unwrap();
    let expected = stream(&ImagePlan::new(&written, &options()).unwrap());

    let plan = ImagePlan::new(&Tree::from_directory(&directory).unwrap(), &options()).unwrap();
    assert!(stream(&plan) == expected);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(plan.write_to_file(file.as_file_mut()).unwrap(), plan.len());
    assert!(fs::read(file.path()).unwrap() == expected);
    let file = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(plan.write_durably(file.as_file(), |_| {}).unwrap(), plan.len());
    assert!(fs::read(file.path()).unwrap() == expected);

    let mut below = Tree::new();
    below.graft("/some/where", &directory).unwrap();
    let plan = ImagePlan::new(&below, &options()).unwrap();
    assert_eq!(open(&plan, Namespace::RockRidge).read("some/where/b.txt", 100).unwrap(), b"bytes");
    assert!(matches!(
        below.graft("some/where", &directory),
        Err(ScanError::Tree(PlanError::Duplicate { .. }))
    ));
}

#[test]
fn a_durable_write_reports_its_progress_and_writes_behind_what_the_file_has() {
    let directory = tempfile::tempdir().unwrap();
    for (name, mebibytes) in [("first", 20), ("second", 1), ("third", 9)] {
        fs::write(directory.path().join(name), vec![name.as_bytes()[0]; mebibytes << 20]).unwrap();
    }
    let mut tree = Tree::from_directory(&directory).unwrap();
    tree.add_file("memory", vec![3; 17 << 20]).unwrap();
    let plan = ImagePlan::new(&tree, &options()).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"before").unwrap();
    let mut observed = vec![0];
    plan.write_durably(file.as_file(), |written| observed.push(written)).unwrap();
    assert!(
        observed.len() > 4 && observed.is_sorted() && *observed.last().unwrap() <= plan.len(),
        "{observed:?}"
    );
    assert!(fs::read(file.path()).unwrap()[6..] == stream(&plan));
}

#[test]
fn a_changed_scanned_file_is_an_error_with_its_path() {
    type Change = (&'static str, fn(&Path));
    let changes: [Change; 5] = [
        ("b.txt", |path| fs::write(path, "longer than it was").unwrap()),
        ("b.txt", |path| {
            fs::File::open(path).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        }),
        ("b.txt", |path| fs::remove_file(path).unwrap()),
        ("b.txt", |path| {
            fs::remove_file(path).unwrap();
            symlink("empty", path).unwrap();
        }),
        ("sub/large", |path| fs::write(path, vec![8; 1 << 20]).unwrap()),
    ];
    for (name, change) in changes {
        let directory = directory();
        let plan = ImagePlan::new(&Tree::from_directory(&directory).unwrap(), &options()).unwrap();
        let path = directory.path().join(name);
        let old = fs::metadata(&path).unwrap().modified().unwrap();
        change(&path);
        if fs::metadata(&path).is_ok_and(|now| now.modified().unwrap() == old && now.len() != 0) {
            // The clock of the file system did not advance: only then is a change of equal length invisible.
            continue;
        }
        let output = tempfile::tempfile().unwrap();
        let durable = plan.write_durably(&output, |_| {}).unwrap_err();
        for error in
            [plan.write_to(&mut io::sink()).unwrap_err(), plan.write_to_file(&output).unwrap_err(), durable]
        {
            let inner = error.get_ref().unwrap().downcast_ref::<ContentError>().unwrap();
            assert!(matches!(inner, ContentError::Read { path, .. } if path == name), "{inner}");
        }
    }
}

#[test]
fn more_files_than_descriptors_are_read_at_random() {
    let directory = tempfile::tempdir().unwrap();
    for index in 0..200 {
        fs::write(directory.path().join(format!("{index:03}")), format!("file {index}")).unwrap();
    }
    let plan = ImagePlan::new(&Tree::from_directory(&directory).unwrap(), &options()).unwrap();
    let image = open(&plan, Namespace::RockRidge);
    for step in 0..400 {
        let index = step * 7 % 200;
        assert_eq!(image.read(&format!("{index:03}"), 100).unwrap(), format!("file {index}").into_bytes());
    }
    let open = fs::read_dir("/proc/self/fd").unwrap().map(|entry| fs::read_link(entry.unwrap().path()));
    let held = open.filter(|path| path.as_ref().is_ok_and(|path| path.starts_with(&directory))).count();
    assert!(held <= 16, "{held} descriptors");
}

#[test]
fn an_unsupported_file_is_refused_with_its_path() {
    let directory = directory();
    let socket = directory.path().join("sub/socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(matches!(
        Tree::from_directory(&directory),
        Err(ScanError::FileType { path, .. }) if path == socket
    ));
    let odd = tempfile::tempdir().unwrap();
    fs::write(odd.path().join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"a\xff")), "")
        .unwrap();
    assert!(matches!(Tree::from_directory(&odd), Err(ScanError::Name { .. })));
    assert!(matches!(Tree::from_directory(odd.path().join("none")), Err(ScanError::Read { .. })));
    let file = directory.path().join("b.txt");
    assert!(matches!(Tree::from_directory(&file), Err(ScanError::FileType { path, .. }) if path == file));
}
