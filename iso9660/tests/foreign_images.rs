//! The reader reads images of other programs: xorriso, genisoimage and bsdtar (libarchive).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use iso9660::{EntryKind, FileSource, Image, Namespace, Platform, ReadError, ReadLimits};

type Files = BTreeMap<String, Vec<u8>>;

const NEEDS: &str = "must be installed";

/// Creates a directory with deep, long-named, empty and linked files, and returns its expected contents.
fn sample(root: &Path) -> Files {
    let mut files = Files::new();
    let deep = "1/2/3/4/5/6/7/8/9/10/leaf";
    for path in
        ["ks.cfg", "user-data", "dir/UPPER.TXT", "dir/sub/file", deep, "boot/bios.img", "boot/efi.img"]
    {
        files.insert(path.to_owned(), format!("this is {path}\n").repeat(200).into_bytes());
    }
    files.insert("empty".to_owned(), Vec::new());
    files.insert(format!("long/{}", "n".repeat(60)), b"long name".to_vec());
    for index in 0..120 {
        files.insert(format!("many/entry-{index:03}.json"), vec![b'x'; index]);
    }
    for (path, content) in &files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    symlink("../ks.cfg", root.join("dir/link")).unwrap();
    symlink("dir/sub", root.join("elsewhere")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    files
}

fn make(program: &str, arguments: &[&str], image: &Path, root: &Path) {
    let output = Command::new(program)
        .args(arguments)
        .args(["-o".as_ref(), image.as_os_str(), root.as_os_str()])
        .output()
        .unwrap_or_else(|error| panic!("{program} {NEEDS}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

fn found(image: &Image<FileSource>) -> Files {
    let mut files = Files::new();
    image
        .walk(|path, entry| {
            if entry.is_file() {
                files.insert(path.to_owned(), image.read(path, 1 << 20).unwrap());
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    files
}

fn open(path: &Path, namespace: Namespace) -> Image<FileSource> {
    Image::open_with(FileSource::open(path).unwrap(), Some(namespace), ReadLimits::default()).unwrap()
}

fn check_rock_ridge(path: &Path, files: &Files) {
    let image = open(path, Namespace::RockRidge);
    let found = found(&image);
    assert_eq!(found.keys().collect::<Vec<_>>(), files.keys().collect::<Vec<_>>());
    assert!(found == *files);
    assert_eq!(image.lookup("dir/link").unwrap().len, files["ks.cfg"].len() as u64);
    assert_eq!(image.read("elsewhere/file", 1 << 20).unwrap(), files["dir/sub/file"]);
    assert!(matches!(image.lookup("loop"), Err(ReadError::Limit { .. })));
    let link = image.list("dir").unwrap().into_iter().find(|entry| entry.name == "link").unwrap();
    assert_eq!(link.kind, EntryKind::Symlink("../ks.cfg".to_owned()));
}

fn workspace() -> (tempfile::TempDir, PathBuf, PathBuf, Files) {
    let directory = tempfile::tempdir().unwrap();
    let (root, image) = (directory.path().join("root"), directory.path().join("image.iso"));
    fs::create_dir(&root).unwrap();
    let files = sample(&root);
    (directory, root, image, files)
}

#[test]
#[ignore = "needs isoinfo, xorriso, bsdtar, 7z; run by .ci/run"]
fn images_of_xorriso_read_back_in_every_namespace() {
    let (_directory, root, path, files) = workspace();
    let arguments = [
        "-as",
        "mkisofs",
        "-quiet",
        "-r",
        "-J",
        "-joliet-long",
        "-V",
        "XORRISO",
        "-b",
        "boot/bios.img",
        "-no-emul-boot",
    ];
    let boot = [
        "-c",
        "boot/boot.cat",
        "-boot-load-size",
        "4",
        "-eltorito-alt-boot",
        "-e",
        "boot/efi.img",
        "-no-emul-boot",
    ];
    make("xorriso", &[arguments.as_slice(), &boot].concat(), &path, &root);
    check_rock_ridge_with_catalog(&path, &files);
    let joliet = open(&path, Namespace::Joliet);
    assert_eq!(
        (joliet.volume_id(), joliet.volume().joliet_volume_id.as_deref()),
        ("XORRISO", Some("XORRISO"))
    );
    assert!(files.iter().all(|(path, content)| joliet.read(path, 1 << 20).unwrap() == *content));
    assert_eq!(open(&path, Namespace::Plain).read("KS.CFG", 1 << 20).unwrap(), files["ks.cfg"]);
    let entries = joliet.boot_entries().unwrap();
    assert_eq!(
        entries.iter().map(|entry| entry.platform).collect::<Vec<_>>(),
        [Platform::X86, Platform::Efi]
    );
    let bios = joliet.extents("boot/bios.img").unwrap()[0];
    assert_eq!((entries[0].extent.offset, entries[0].units), (bios.offset, 4));
}

/// xorriso shows the boot catalog as a file.
fn check_rock_ridge_with_catalog(path: &Path, files: &Files) {
    let image = open(path, Namespace::RockRidge);
    let mut files = files.clone();
    files.insert("boot/boot.cat".to_owned(), image.read("boot/boot.cat", 2048).unwrap());
    check_rock_ridge(path, &files);
}

#[test]
#[ignore = "needs isoinfo, xorriso, bsdtar, 7z; run by .ci/run"]
fn images_of_genisoimage_with_relocated_directories_read_back() {
    let (_directory, root, path, files) = workspace();
    make("genisoimage", &["-quiet", "-R", "-J", "-joliet-long", "-V", "GENISO"], &path, &root);
    check_rock_ridge(&path, &files);
    let joliet = open(&path, Namespace::Joliet);
    assert!(files.iter().all(|(path, content)| joliet.read(path, 1 << 20).unwrap() == *content));
}

#[test]
#[ignore = "needs isoinfo, xorriso, bsdtar, 7z; run by .ci/run"]
fn images_of_bsdtar_read_back() {
    let (_directory, root, path, files) = workspace();
    let output = Command::new("bsdtar")
        .args(["--format", "iso9660", "-cf"])
        .args([path.as_os_str(), "-C".as_ref(), root.as_os_str(), ".".as_ref()])
        .output()
        .unwrap_or_else(|error| panic!("bsdtar {NEEDS}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check_rock_ridge(&path, &files);
}

#[test]
#[ignore = "needs isoinfo, xorriso, bsdtar, 7z; run by .ci/run"]
fn a_udf_bridge_is_reported_in_the_volume() {
    let (_directory, root, path, files) = workspace();
    make("genisoimage", &["-quiet", "-R", "-udf"], &path, &root);
    assert!(open(&path, Namespace::RockRidge).volume().has_udf);
    check_rock_ridge(&path, &files);
}
