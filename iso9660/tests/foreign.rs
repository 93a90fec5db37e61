//! Other programs read written images: isoinfo (genisoimage), xorriso, bsdtar (libarchive) and 7z.
//!
//! Each program must list an image without a warning and return every file byte for byte, by Rock Ridge and by Joliet
//! names where it has an option for that. The last test shows that the harness detects a damaged image.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use common::EPOCH;
use iso9660::{ImageOptions, ImagePlan, Profile, Tree};

type Files = BTreeMap<String, Vec<u8>>;

/// A check, with the image and its expected files.
type Check = fn(&Path, &Files) -> Result<(), String>;

const CHECKS: [(&str, Check); 9] = [
    ("isoinfo header", isoinfo_header),
    ("isoinfo -R", |image, files| isoinfo(image, files, "-R")),
    ("isoinfo -J", |image, files| isoinfo(image, files, "-J")),
    ("isovfy", isovfy),
    ("xorriso", |image, files| xorriso(image, files, "any")),
    ("xorriso norock", |image, files| xorriso(image, files, "norock")),
    ("bsdtar", |image, files| bsdtar(image, files, "iso9660:!joliet")),
    ("bsdtar !rockridge", |image, files| bsdtar(image, files, "iso9660:!rockridge")),
    ("7z", seven_zip),
];

/// Runs a program and returns its output, if it succeeds without a complaint.
fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Result<Vec<u8>, String> {
    let output = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap_or_else(|error| panic!("{program} must be installed: {error}"));
    let printed = String::from_utf8_lossy(&output.stderr).to_lowercase();
    let complaint = ["warning", "error", "sorry", "failure", "fatal", "invalid", "corrupt", "bad "]
        .into_iter()
        .find(|word| printed.contains(word));
    match (output.status.success(), complaint) {
        (true, None) => Ok(output.stdout),
        _ => Err(format!("{program}: {}: {printed}", output.status)),
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

fn same(found: Files, expected: &Files) -> Result<(), String> {
    if found == *expected {
        return Ok(());
    }
    let missing = expected.iter().filter(|(name, bytes)| found.get(*name) != Some(*bytes));
    let strange = found.keys().filter(|name| !expected.contains_key(*name));
    let (missing, strange): (Vec<_>, Vec<_>) = (missing.map(|(name, _)| name).collect(), strange.collect());
    Err(format!("missing or different: {missing:?}; not expected: {strange:?}"))
}

/// The regular files below a directory.
fn collect(root: &Path) -> Files {
    let mut files = Files::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

fn isoinfo_header(image: &Path, _: &Files) -> Result<(), String> {
    let header = text(run("isoinfo", ["-d".as_ref(), "-i".as_ref(), image.as_os_str()])?);
    let sectors = fs::metadata(image).unwrap().len() / 2048;
    for wanted in [
        "Joliet with UCS level 3 found",
        "Rock Ridge signatures",
        "Volume id: TEST",
        &format!("Volume size is: {sectors}"),
    ] {
        if !header.contains(wanted) {
            return Err(format!("{wanted:?} is missing in {header}"));
        }
    }
    Ok(())
}

fn isoinfo(image: &Path, files: &Files, view: &str) -> Result<(), String> {
    let listing = run("isoinfo", [view.as_ref(), "-f".as_ref(), "-i".as_ref(), image.as_os_str()])?;
    let mut found = Files::new();
    for path in listing.split(|byte| *byte == b'\n').filter(|path| !path.is_empty()) {
        // isoinfo prints Joliet names in Latin-1, because it does not support UTF-8.
        let name =
            if view == "-J" { path.iter().copied().map(char::from).collect() } else { text(path.to_vec()) };
        let name = name.trim_start_matches('/').to_owned();
        // Directories are listed too; they have no content to extract.
        if files.contains_key(&name) || !files.keys().any(|file| file.starts_with(&format!("{name}/"))) {
            let arguments =
                [view.as_ref(), "-x".as_ref(), OsStr::from_bytes(path), "-i".as_ref(), image.as_os_str()];
            found.insert(name, run("isoinfo", arguments)?);
        }
    }
    same(found, files)
}

fn isovfy(image: &Path, _: &Files) -> Result<(), String> {
    let printed = text(run("isovfy", [image])?);
    if printed.contains("No errors found") { Ok(()) } else { Err(printed) }
}

fn xorriso(image: &Path, files: &Files, view: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let (image, target) = (image.to_str().unwrap(), directory.path().join("out"));
    run(
        "xorriso",
        [
            "-abort_on",
            "WARNING",
            "-return_with",
            "WARNING",
            "32",
            "-read_fs",
            view,
            "-osirrox",
            "on:auto_chmod_on",
        ]
        .into_iter()
        .chain(["-indev", image, "-extract", "/", target.to_str().unwrap()])
        .chain(["-check_media", "use=indev", "--"]),
    )?;
    same(collect(&target), files)
}

fn bsdtar(image: &Path, files: &Files, options: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let (image, target) = (image.to_str().unwrap(), directory.path().to_str().unwrap());
    run("bsdtar", ["--options", options, "-tvf", image])?;
    run("bsdtar", ["--options", options, "-xf", image, "-C", target, "--no-same-permissions"])?;
    same(collect(directory.path()), files)
}

fn seven_zip(image: &Path, files: &Files) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let (image, target) = (image.to_str().unwrap(), format!("-o{}", directory.path().display()));
    for arguments in [vec!["t", image], vec!["x", &target, image]] {
        let printed = text(run("7z", arguments)?);
        if !printed.contains("Everything is Ok") || printed.to_lowercase().contains("warning") {
            return Err(printed);
        }
    }
    let mut found = collect(directory.path());
    // 7z shows the El Torito images as separate files.
    found.retain(|name, _| !name.starts_with("[BOOT]"));
    same(found, files)
}

fn task_files() -> Files {
    common::TASK_FILES.iter().map(|(name, _)| ((*name).to_owned(), common::content(name))).collect()
}

/// Directories, long names, names that collide in ISO 9660, characters outside ASCII, many entries.
fn varied_files() -> Files {
    let mut files = task_files();
    for path in [
        "boot/grub/grub.cfg",
        "boot/efi.img",
        "a-b",
        "a_b",
        "ünïcode/näme.txt",
        "1/2/3/4/5/6/7/leaf",
        ".hidden",
    ] {
        files.insert(path.to_owned(), format!("this is {path}\n").into_bytes());
    }
    files.insert(format!("long/{}.json", "n".repeat(98)), vec![7; 5000]);
    for index in 0..150 {
        files.insert(format!("many/file number {index:03}.txt"), vec![b'0'; index * 20]);
    }
    files
}

fn plan(files: &Files, profile: Profile) -> ImagePlan {
    let mut tree = Tree::new();
    for (path, content) in files {
        tree.add_file(path, content.clone()).unwrap();
    }
    let mut options = ImageOptions::new(profile, "TEST", EPOCH);
    if profile == Profile::Boot {
        options.boot = Some(iso9660::Boot::new(
            Some(iso9660::BiosBoot::new("boot/grub/grub.cfg")),
            Some(iso9660::UefiBoot::new("boot/efi.img")),
        ));
    }
    ImagePlan::new(&tree, &options).unwrap()
}

/// Returns every check that fails on an image, with its message.
fn complaints(image: &[u8], files: &Files) -> Vec<(&'static str, String)> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image.iso");
    fs::write(&path, image).unwrap();
    CHECKS
        .iter()
        .filter_map(|(name, check)| check(&path, files).err().map(|printed| (*name, printed)))
        .collect()
}

#[test]
#[ignore = "needs isoinfo, xorriso, bsdtar, 7z; run by .ci/run"]
fn a_task_image_reads_the_same_everywhere() {
    let files = task_files();
    assert_eq!(complaints(&common::stream(&plan(&files, Profile::Task)), &files), []);
}

#[test]
#[ignore = "needs isoinfo, xorriso, bsdtar, 7z; run by .ci/run"]
fn a_varied_tree_reads_the_same_everywhere() {
    let files = varied_files();
    assert_eq!(complaints(&common::stream(&plan(&files, Profile::Task)), &files), []);
}

#[test]
#[ignore = "needs isoinfo, xorriso, bsdtar, 7z; run by .ci/run"]
fn xorriso_and_isoinfo_show_the_entries_of_a_boot_image() {
    let files = varied_files();
    let image = common::stream(&plan(&files, Profile::Boot));
    assert_eq!(complaints(&image, &files), []);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("boot.iso");
    fs::write(&path, image).unwrap();
    let path = path.to_str().unwrap();
    let report = text(run("xorriso", ["-indev", path, "-report_el_torito", "plain"]).unwrap());
    assert!(report.contains("El Torito boot img :   1  BIOS  y   none"), "{report}");
    assert!(report.contains("El Torito boot img :   2  UEFI  y   none"), "{report}");
    assert!(report.contains("El Torito img path :   2  /boot/efi.img"), "{report}");
    let header = text(run("isoinfo", ["-d", "-i", path]).unwrap());
    assert!(header.contains("Eltorito validation header") && header.contains("Arch 0 (x86)"), "{header}");
}

#[test]
#[ignore = "needs isoinfo, xorriso, bsdtar, 7z; run by .ci/run"]
fn plain_names_equal_those_that_installers_look_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("task.iso");
    fs::write(&path, common::stream(&common::task_plan())).unwrap();
    let path = path.to_str().unwrap();
    let mut listing: Vec<String> =
        text(run("isoinfo", ["-f", "-i", path]).unwrap()).lines().map(str::to_owned).collect();
    listing.sort_unstable();
    assert_eq!(
        listing,
        [
            "/JOB.JSON;1",
            "/KS.CFG;1",
            "/META_DATA.;1",
            "/RECIPE.JSON;1",
            "/RECIPE_SCHEMA.JSON;1",
            "/USER_DATA.;1"
        ]
    );
    assert_eq!(run("isoinfo", ["-x", "/KS.CFG;1", "-i", path]).unwrap(), common::content("ks.cfg"));
}

#[test]
#[ignore = "needs isoinfo, xorriso, bsdtar, 7z; run by .ci/run"]
fn the_harness_detects_damaged_images() {
    let files = task_files();
    let plan = plan(&files, Profile::Task);
    let good = common::stream(&plan);
    let extent = iso9660::Image::open(&plan).unwrap().extents("job.json").unwrap()[0];

    // One bit of one file: every program that reads contents must report it.
    let mut damaged = good.clone();
    damaged[usize::try_from(extent.offset).unwrap() + 100] ^= 1;
    let objections: Vec<&str> = complaints(&damaged, &files).into_iter().map(|(name, _)| name).collect();
    let content_checks: Vec<&str> = CHECKS
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !["isoinfo header", "isovfy"].contains(name))
        .collect();
    assert_eq!(objections, content_checks);

    // The end is missing, so the header does not match the file.
    assert!(complaints(&good[..good.len() - 4096], &files).iter().any(|(name, _)| *name == "isoinfo header"));
}
