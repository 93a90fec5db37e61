//! The reader reads formats that other programs write: UDF by genisoimage, mkudffs and pycdlib, zisofs by mkzftree,
//! images without Rock Ridge, files over 4 GiB, boot images in partitions. In the other direction, 7z reads the UDF
//! images of the tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use common::udf::Flavour;
use iso9660::{EntryKind, Extent, FileSource, Image, Namespace, Platform, ReadAt, ReadLimits};

type Files = BTreeMap<String, Vec<u8>>;

/// Some programs hang on invalid input: two minutes is more than any of them needs.
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new("timeout")
        .args(["120", program])
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} must be installed: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A directory with files in it, and a path for the image.
struct Workspace {
    _directory: tempfile::TempDir,
    root: PathBuf,
    image: PathBuf,
    files: Files,
}

impl Workspace {
    fn new() -> Workspace {
        let directory = tempfile::tempdir().unwrap();
        let (root, image) = (directory.path().join("root"), directory.path().join("image.iso"));
        let mut files = Files::new();
        for path in ["ks.cfg", "user-data", "Dir/UPPER.TXT", "Dir/sub/file", "README.TXT", "sources/boot.wim"]
        {
            files.insert(path.to_owned(), format!("this is {path}\n").repeat(2000).into_bytes());
        }
        files.insert("empty".to_owned(), Vec::new());
        files.insert("n\u{e4}me.txt".to_owned(), b"Latin".to_vec());
        files.insert("\u{540d}\u{524d}.txt".to_owned(), b"not Latin".to_vec());
        files.insert(format!("long/{}", "n".repeat(60)), b"long name".to_vec());
        for index in 0..500 {
            files.insert(format!("many/entry-{index:03}.json"), vec![b'x'; index]);
        }
        for (path, content) in &files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Workspace { _directory: directory, root, image, files }
    }

    fn make(&self, program: &str, arguments: &[&str]) {
        let (image, root) = (self.image.to_str().unwrap(), self.root.to_str().unwrap());
        run(program, &[arguments, &["-o", image, root]].concat());
    }

    fn open(&self, namespace: Option<Namespace>) -> Image<FileSource> {
        let source = FileSource::open(&self.image).unwrap();
        Image::open_with(source, namespace, ReadLimits::default()).unwrap()
    }
}

fn found<S: ReadAt>(image: &Image<S>) -> Files {
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

fn same(found: &Files, wanted: &Files) {
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    assert!(found == wanted, "contents differ");
}

#[test]
#[ignore = "needs genisoimage, run by .ci/run"]
fn a_udf_bridge_of_genisoimage_is_read_by_its_udf_names() {
    let workspace = Workspace::new();
    workspace.make(
        "genisoimage",
        &["-quiet", "-R", "-J", "-joliet-long", "-udf", "-V", "BRIDGE", "-input-charset", "utf-8"],
    );
    let image = workspace.open(None);
    let all = [Namespace::Udf, Namespace::RockRidge, Namespace::Joliet, Namespace::Plain];
    assert_eq!((image.namespace(), image.namespaces()), (Namespace::Udf, all.as_slice()));
    assert_eq!(image.volume().udf_volume_id.as_deref(), Some("BRIDGE"));
    assert_eq!(image.volume().udf_revision, Some(0x0102));
    same(&found(&image), &workspace.files);
    same(&found(&workspace.open(Some(Namespace::RockRidge))), &workspace.files);
    // All of these paths share their contents.
    let extents = |namespace| workspace.open(Some(namespace)).extents("sources/boot.wim").unwrap();
    assert_eq!(extents(Namespace::Udf), extents(Namespace::RockRidge));
}

#[test]
#[ignore = "needs genisoimage, run by .ci/run"]
fn windows_media_with_only_a_readme_in_iso_9660_are_read_completely() {
    let workspace = Workspace::new();
    let mut arguments = vec!["-quiet", "-udf", "-input-charset", "utf-8", "-iso-level", "3"];
    let hidden: Vec<String> = fs::read_dir(&workspace.root)
        .unwrap()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .filter(|path| !path.ends_with("README.TXT"))
        .collect();
    hidden.iter().for_each(|path| arguments.extend(["-hide", path]));
    workspace.make("genisoimage", &arguments);
    let plain = workspace.open(Some(Namespace::Plain));
    assert_eq!(
        plain.list("").unwrap().iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(),
        ["readme.txt"]
    );
    same(&found(&workspace.open(None)), &workspace.files);
}

#[test]
#[ignore = "needs mkudffs, run by .ci/run"]
fn empty_file_systems_of_mkudffs_open_for_every_medium_and_revision() {
    let directory = tempfile::tempdir().unwrap();
    let media = [
        ("hd", "0x0102", "512"),
        ("hd", "0x0201", "2048"),
        ("hd", "0x0201", "4096"),
        ("dvd", "0x0102", "2048"),
        ("dvdram", "0x0201", "2048"),
        ("cdrw", "0x0150", "2048"),
        ("cdrw", "0x0201", "2048"),
        ("cdr", "0x0150", "2048"),
        ("cdr", "0x0201", "2048"),
        ("bdr", "0x0250", "2048"),
    ];
    for (medium, revision, block_size) in media {
        let path = directory.path().join(format!("{medium}-{revision}-{block_size}"));
        let (path, label) = (path.to_str().unwrap(), format!("L {medium}"));
        let arguments =
            ["--new-file", "--media-type", medium, "--udfrev", revision, "--blocksize", block_size];
        run("mkudffs", &[&arguments[..], &["--label", &label, path, "8192"]].concat());
        let image = Image::open(FileSource::open(path).unwrap())
            .unwrap_or_else(|error| panic!("{medium} {revision} {block_size}: {error}"));
        assert_eq!((image.namespace(), image.volume_id()), (Namespace::Udf, label.as_str()), "{path}");
        let wanted = u16::from_str_radix(&revision[2..], 16).unwrap();
        assert_eq!(image.volume().udf_revision, Some(wanted), "{path}");
        // The directory that mkudffs creates by default; some media need a file for their unusable blocks.
        let own = ["lost+found", "Non-Allocatable Space"];
        let names: Vec<String> = image.list("").unwrap().into_iter().map(|entry| entry.name).collect();
        assert!(names.iter().all(|name| own.contains(&name.as_str())), "{path}: {names:?}");
        assert!(image.lookup("absent").is_err());
    }
}

#[test]
#[ignore = "needs python3 with pycdlib, run by .ci/run"]
fn udf_2_60_of_pycdlib_is_read_with_its_links() {
    let workspace = Workspace::new();
    let script = r#"
import os, sys, pycdlib
image, root = sys.argv[1:]
iso = pycdlib.PyCdlib()
iso.new(interchange_level=3, udf='2.60', vol_ident='PYCDLIB')
count = 0
for folder, folders, files in sorted(os.walk(root)):
    at = folder[len(root):]
    for name in sorted(folders):
        iso.add_directory(udf_path=at + '/' + name)
    for name in sorted(files):
        iso.add_file(os.path.join(folder, name), udf_path=at + '/' + name)
iso.add_symlink(udf_symlink_path='/link', udf_target='Dir/sub/file')
iso.write(image)
iso.close()
"#;
    let (image, root) = (workspace.image.to_str().unwrap(), workspace.root.to_str().unwrap());
    run("python3", &["-c", script, image, root]);
    let image = workspace.open(None);
    assert_eq!(image.namespaces()[0], Namespace::Udf);
    same(&found(&image), &workspace.files);
    let link = image.list("").unwrap().into_iter().find(|entry| entry.name == "link").unwrap();
    assert_eq!(link.kind, EntryKind::Symlink("Dir/sub/file".to_owned()));
    assert_eq!(image.read("link", 1 << 20).unwrap(), workspace.files["Dir/sub/file"]);
}

#[test]
#[ignore = "needs 7z, run by .ci/run"]
fn seven_zip_reads_the_udf_image_of_the_tests() {
    // 7z supports files and directories of a physical partition whose extents are in one place.
    const UNKNOWN: [&str; 6] = ["chain.bin", "extended.bin", "sparse.bin", "link", "climb", "deleted.txt"];
    let directory = tempfile::tempdir().unwrap();
    let (path, target) = (directory.path().join("image.udf"), directory.path().join("out"));
    fs::write(&path, common::udf::image_without(Flavour::Physical, &UNKNOWN).bytes).unwrap();
    run("7z", &["x", "-tudf", &format!("-o{}", target.display()), path.to_str().unwrap()]);
    let known = |name: &str| !UNKNOWN.iter().any(|unknown| name.ends_with(unknown));
    for (name, content) in common::udf::files().into_iter().filter(|(name, _)| known(name)) {
        assert!(fs::read(target.join(&name)).unwrap() == content, "{name}");
    }
}

#[test]
#[ignore = "needs mkzftree and genisoimage, run by .ci/run"]
fn files_compressed_by_mkzftree_are_read_uncompressed() {
    let mut workspace = Workspace::new();
    let noise: Vec<u8> = (0..100_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut holes = vec![0; 400_000];
    holes[200_000..300_000].copy_from_slice(&noise);
    for (name, content) in [("noise", noise), ("holes", holes), ("text", b"zisofs\n".repeat(50_000))] {
        fs::write(workspace.root.join(name), &content).unwrap();
        workspace.files.insert(name.to_owned(), content);
    }
    let packed = workspace.root.with_file_name("packed");
    run("mkzftree", &[workspace.root.to_str().unwrap(), packed.to_str().unwrap()]);
    workspace.root = packed;
    workspace.make("genisoimage", &["-quiet", "-R", "-z", "-input-charset", "utf-8"]);
    let image = workspace.open(Some(Namespace::RockRidge));
    same(&found(&image), &workspace.files);
    assert!(!image.lookup("text").unwrap().is_stored() && image.extents("text").is_err());
    assert!(image.lookup("empty").unwrap().is_stored());
    for (name, content) in &workspace.files {
        let file = image.open_file(name).unwrap();
        for (offset, length) in [(0, 10), (32_760, 20), (131_000, 70_000), (65_536, 1), (349_999, 1)] {
            let mut buffer = vec![1; length];
            let read = file.read_exact_at(offset as u64, &mut buffer);
            match content.get(offset..offset + length) {
                Some(wanted) => assert!(read.is_ok() && buffer == wanted, "{name} {offset}"),
                None => assert!(read.is_err()),
            }
        }
    }
}

#[test]
#[ignore = "needs genisoimage, run by .ci/run"]
fn images_without_rock_ridge_are_read_by_joliet_or_else_plain_names() {
    let workspace = Workspace::new();
    workspace.make("genisoimage", &["-quiet", "-J", "-joliet-long", "-input-charset", "utf-8"]);
    let image = workspace.open(None);
    assert_eq!(image.namespaces(), [Namespace::Joliet, Namespace::Plain]);
    same(&found(&image), &workspace.files);
    assert!(image.lookup("dir/upper.txt").is_ok(), "in any case");

    workspace.make("genisoimage", &["-quiet", "-iso-level", "3", "-input-charset", "utf-8"]);
    let image = workspace.open(None);
    assert_eq!(image.namespaces(), [Namespace::Plain]);
    for path in ["ks.cfg", "KS.CFG", "KS.CFG;1", "dir/sub/file", "DIR/SUB/FILE.;1", "Dir/Sub/File."] {
        let original = workspace.files.iter().find(|(name, _)| {
            path.to_lowercase().trim_end_matches(";1").trim_end_matches('.') == name.to_lowercase()
        });
        assert!(image.read(path, 1 << 20).unwrap() == *original.unwrap().1, "{path}");
    }
    assert_eq!(found(&image).len(), workspace.files.len());
}

#[test]
#[ignore = "needs xorriso and 10 GB of disk, run by .ci/run"]
fn a_file_over_4_gib_with_two_extents_is_one_file() {
    let workspace = Workspace::new();
    let size = (4_u64 << 30) + 5000;
    let big = File::create(workspace.root.join("big.img")).unwrap();
    big.set_len(size).unwrap();
    let cut = 0xFFFF_F800_u64;
    for offset in [0, cut - 4, size - 8] {
        big.write_all_at(b"boundary", offset).unwrap();
    }
    workspace.make("xorriso", &["-as", "mkisofs", "-quiet", "-iso-level", "3", "-r", "-J"]);
    for namespace in [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain] {
        let image = workspace.open(Some(namespace));
        let file = image.open_file("big.img").unwrap();
        assert_eq!((file.len(), image.lookup("big.img").unwrap().extents.len()), (size, 2));
        // The two extents are adjacent in the image.
        assert!(matches!(image.extents("big.img").unwrap()[..], [Extent { len, .. }] if len == size));
        for offset in [0, cut - 4, size - 8] {
            let mut buffer = [0; 8];
            file.read_exact_at(offset, &mut buffer).unwrap();
            assert_eq!(&buffer, b"boundary", "{namespace} {offset}");
        }
    }
}

#[test]
#[ignore = "needs xorriso, run by .ci/run"]
fn boot_images_have_paths_beside_the_tree_even_when_they_are_in_a_partition() {
    let workspace = Workspace::new();
    let bios: Vec<u8> = (0..9000_u32).map(|at| at as u8).collect();
    let efi = vec![0xEF; 3 << 20];
    let esp = workspace.root.with_file_name("esp.img");
    fs::write(workspace.root.join("bios.bin"), &bios).unwrap();
    fs::write(&esp, &efi).unwrap();
    let esp = esp.to_str().unwrap();
    let common =
        ["-as", "mkisofs", "-quiet", "-r", "-b", "bios.bin", "-no-emul-boot", "-boot-load-size", "4"];
    let entry = ["-boot-info-table", "-eltorito-alt-boot", "-e", "--interval:appended_partition_2:all::"];
    let partition = ["-no-emul-boot", "-append_partition", "2", "0xef", esp];
    for table in [&["-appended_part_as_gpt"][..], &[]] {
        workspace.make("xorriso", &[&common[..], &entry, &partition, table].concat());
        let image = workspace.open(None);
        let boot = image.boot_images().unwrap();
        let paths: Vec<&str> = boot.iter().map(|image| image.path.as_str()).collect();
        assert_eq!(paths, ["[BOOT]/1-bios.img", "[BOOT]/2-uefi.img"]);
        assert_eq!(boot[1].entry.unwrap().platform, Platform::Efi);
        // The boot info table of xorriso contains the length, although the catalog entry has 4 units.
        assert_eq!(image.open_file(paths[0]).unwrap().len(), 9000);
        assert_eq!(image.read(paths[0], 9000).unwrap()[64..], bios[64..]);
        assert!(image.read(paths[1], 4 << 20).unwrap() == efi, "exactly the partition");
        assert_eq!(image.extents(paths[1]).unwrap(), [boot[1].extent]);
    }

    // The image is only in the partition, without a catalog entry.
    workspace.make("xorriso", &[&common[..], &["-append_partition", "2", "0xef", esp]].concat());
    let image = workspace.open(None);
    assert_eq!(image.boot_images().unwrap()[1].path, "[BOOT]/2-uefi-partition.img");
    assert!(image.read("[BOOT]/2-uefi-partition.img", 4 << 20).unwrap() == efi);
}

#[test]
#[ignore = "needs genisoimage, run by .ci/run"]
fn links_of_every_form_are_resolved() {
    let workspace = Workspace::new();
    let deep = workspace.root.join("1/2/3/4/5/6/7/8/9/10");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("leaf"), b"deep").unwrap();
    let long = "n".repeat(60);
    let leaf = format!("long/{long}");
    let links = [
        ("absolute", "/Dir/sub/file".to_owned(), Some("Dir/sub/file")),
        ("Dir/up", "../ks.cfg".to_owned(), Some("ks.cfg")),
        ("Dir/above", "../../../ks.cfg".to_owned(), Some("ks.cfg")),
        ("dots", "./Dir/./sub/../UPPER.TXT".to_owned(), Some("Dir/UPPER.TXT")),
        ("chain", "Dir/up".to_owned(), Some("ks.cfg")),
        // The target is longer than one entry, so its components continue in others; genisoimage hangs on targets of
        // this length.
        ("far", format!("{}long/{long}", "Dir/../".repeat(60)), Some(leaf.as_str())),
        ("nowhere", "absent".to_owned(), None),
    ];
    for (path, target, _) in &links {
        symlink(target, workspace.root.join(path)).unwrap();
    }
    for (program, arguments) in
        [("xorriso", &["-as", "mkisofs", "-quiet", "-R"][..]), ("genisoimage", &["-quiet", "-R"])]
    {
        if program == "genisoimage" {
            fs::remove_file(workspace.root.join("far")).unwrap();
        }
        workspace.make(program, arguments);
        check_links(&workspace, links.iter().filter(|(path, ..)| program == "xorriso" || *path != "far"));
    }
}

fn check_links<'a>(
    workspace: &Workspace,
    links: impl Iterator<Item = &'a (&'a str, String, Option<&'a str>)>,
) {
    let image = workspace.open(None);
    for (path, target, leads) in links {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let entry = image.list(directory).unwrap().into_iter().find(|entry| entry.name == name).unwrap();
        assert_eq!(entry.kind, EntryKind::Symlink(target.clone()), "{path}");
        if let Some(leads) = leads {
            assert!(image.read(path, 1 << 20).unwrap() == workspace.files[*leads], "{path}");
        }
    }
    assert!(image.lookup("nowhere").is_err());
    assert_eq!(image.read("1/2/3/4/5/6/7/8/9/10/leaf", 10).unwrap(), b"deep", "its directory is relocated");
}
