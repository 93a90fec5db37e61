//! Images of xorriso and genisoimage are spliced, and other programs read the result.
//!
//! Each program must extract from the result the files of the original and the added files. Boot entries stay in their
//! places, sgdisk reports no new problem, and the checker reports no finding that the original does not have.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::EPOCH;
use iso9660::{
    CheckOptions, Content, FileSource, PartitionTable, Rule, Severity, Splice, SpliceError, SpliceNote,
    SpliceOptions, Spliced,
};

type Files = BTreeMap<String, Vec<u8>>;

const ADDED: [(&str, &str); 3] =
    [("job.json", "{\"job\": 1}\n"), ("ks.cfg", "text\nreboot\n"), ("user-data", "#cloud-config\n")];
const BIOS: [&str; 7] =
    ["-c", "boot.cat", "-b", "isolinux/isolinux.bin", "-no-emul-boot", "-boot-load-size", "4"];
const ISOLINUX: &str = "/usr/lib/ISOLINUX/isolinux.bin";
const HYBRID_CODE: &str = "/usr/lib/ISOLINUX/isohdpfx.bin";

/// Runs a required program and returns its output when it succeeds.
fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap_or_else(|error| panic!("{program} must be installed: {error}"));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{program}: {}: {printed}", output.status))
    }
}

/// Creates the tree of the images; `wide` is the number of directories that nearly fill the root.
fn sample(root: &Path, wide: usize) {
    let mut files: Vec<(String, Vec<u8>)> = vec![
        ("isolinux/isolinux.bin".into(), fs::read(ISOLINUX).expect("isolinux must be installed")),
        ("efi.img".into(), (0..1_474_560_u32).map(|at| (at % 249) as u8).collect()),
        ("dir/sub/file".into(), b"in a directory\n".to_vec()),
        ("zulu/a/b/c/leaf".into(), b"deep\n".to_vec()),
        ("readme.txt".into(), b"read me\n".to_vec()),
        (format!("{}.txt", "long-name".repeat(7)), b"long\n".to_vec()),
    ];
    files.extend((0..wide).map(|index| (format!("d{index:03}/file"), index.to_string().into_bytes())));
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// The options of an image.
struct Recipe {
    program: &'static str,
    arguments: Vec<&'static str>,
    /// `bios` only, or UEFI too: from a file (`efi`, and with a GPT `gpt`) or from an appended partition (`appended`).
    boots: &'static str,
    wide: usize,
}

fn recipe(program: &'static str, boots: &'static str, wide: usize, arguments: &[&'static str]) -> Recipe {
    Recipe { program, arguments: arguments.to_vec(), boots, wide }
}

fn make(recipe: &Recipe, directory: &Path) -> PathBuf {
    let (root, image) = (directory.join("root"), directory.join("image.iso"));
    sample(&root, recipe.wide);
    let efi = root.join("efi.img");
    let mut arguments: Vec<&str> = match recipe.program {
        "xorriso" => vec!["-as", "mkisofs", "-quiet"],
        "genisoimage" => vec!["-quiet"],
        _ => vec![],
    };
    arguments.extend(&recipe.arguments);
    if !recipe.boots.is_empty() {
        arguments.extend(BIOS);
        arguments.push("-boot-info-table");
    }
    match recipe.boots {
        "gpt" => {
            arguments.extend([
                "-eltorito-alt-boot",
                "-e",
                "efi.img",
                "-no-emul-boot",
                "-isohybrid-gpt-basdat",
            ]);
        }
        "efi" => arguments.extend(["-eltorito-alt-boot", "-e", "efi.img", "-no-emul-boot"]),
        "appended" => {
            arguments.extend(["-append_partition", "2", "0xef", efi.to_str().unwrap(), "-eltorito-alt-boot"]);
            arguments.extend(["-e", "--interval:appended_partition_2:all::", "-no-emul-boot"]);
        }
        _ => {}
    }
    arguments.extend(["-o", image.to_str().unwrap(), root.to_str().unwrap()]);
    run(recipe.program, arguments).unwrap();
    image
}

fn splice(image: &Path) -> Result<Spliced, SpliceError> {
    let files: Vec<(&str, Content)> =
        ADDED.iter().map(|(name, text)| (*name, Content::from(*text))).collect();
    Splice::plan(Arc::new(FileSource::open(image).unwrap()), &files, &SpliceOptions::new(EPOCH))
}

fn collect(root: &Path) -> Files {
    let (mut files, mut left) = (Files::new(), vec![root.to_path_buf()]);
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

/// A function that extracts all files of an image into a directory.
type Extract = fn(&str, &str) -> Result<String, String>;

const PYCDLIB: &str = "
import sys, os, pycdlib
iso = pycdlib.PyCdlib(); iso.open(sys.argv[1])
kind = sys.argv[3]
for parent, _, files in iso.walk(**{kind: '/'}):
    os.makedirs(sys.argv[2] + parent, exist_ok=True)
    for name in files:
        iso.get_file_from_iso(sys.argv[2] + parent + '/' + name, **{kind: parent.rstrip('/') + '/' + name})
";

const EXTRACTORS: [(&str, Extract); 9] = [
    ("xorriso", |image, target| xorriso("any", image, target)),
    ("xorriso norock", |image, target| xorriso("norock", image, target)),
    ("7z", |image, target| run("7z", ["x", "-y", &format!("-o{target}"), image])),
    ("bsdtar", |image, target| bsdtar("iso9660:!joliet", image, target)),
    ("bsdtar !rockridge", |image, target| bsdtar("iso9660:!rockridge", image, target)),
    ("bsdtar plain", |image, target| bsdtar("iso9660:!rockridge,iso9660:!joliet", image, target)),
    ("pycdlib", |image, target| run("python3", ["-c", PYCDLIB, image, target, "rr_path"])),
    ("pycdlib joliet", |image, target| run("python3", ["-c", PYCDLIB, image, target, "joliet_path"])),
    ("pycdlib plain", |image, target| run("python3", ["-c", PYCDLIB, image, target, "iso_path"])),
];

fn xorriso(view: &str, image: &str, target: &str) -> Result<String, String> {
    let arguments =
        ["-read_fs", view, "-osirrox", "on:auto_chmod_on", "-indev", image, "-extract", "/", target];
    run("xorriso", ["-abort_on", "SORRY"].into_iter().chain(arguments))
}

fn bsdtar(options: &str, image: &str, target: &str) -> Result<String, String> {
    run("bsdtar", ["--options", options, "-xf", image, "-C", target, "--no-same-permissions"])
}

fn extract(with: Extract, image: &Path) -> Result<Files, String> {
    let directory = tempfile::tempdir().unwrap();
    with(image.to_str().unwrap(), directory.path().to_str().unwrap())?;
    Ok(collect(directory.path()))
}

/// Returns whether a file is an added one, by its name in any tree.
fn is_added(name: &str, content: &[u8]) -> bool {
    ADDED.iter().any(|(added, text)| {
        let plain = format!("task/{}", added.replace('-', "_"));
        let shown = name.to_lowercase().replace(";1", "");
        let shown = shown.strip_suffix('.').unwrap_or(&shown);
        (shown == plain || shown == format!("task/{added}")) && text.as_bytes() == content
    })
}

/// Returns the problems that sgdisk reports, without numbers.
fn problems(image: &Path) -> Vec<String> {
    let printed = run("sgdisk", ["-v", image.to_str().unwrap()]).unwrap_or_default();
    let lines = printed
        .lines()
        .filter(|line| ["Problem", "Warning", "Caution"].iter().any(|word| line.starts_with(word)));
    lines.map(|line| line.chars().filter(|char| !char.is_ascii_digit()).collect()).collect()
}

fn boot_entries(image: &Path) -> Vec<String> {
    let image = image.to_str().unwrap();
    let printed = run("xorriso", ["-indev", image, "-report_el_torito", "plain"]).unwrap();
    printed.lines().filter(|line| line.starts_with("El Torito")).map(str::to_owned).collect()
}

/// Returns the findings of the checker by rule, without notes.
fn findings(image: &Path) -> BTreeMap<Rule, u64> {
    let report = iso9660::check(&FileSource::open(image).unwrap(), &CheckOptions::default()).unwrap();
    let mut totals = report.totals().clone();
    totals.retain(|rule, _| rule.severity() > Severity::Note);
    totals
}

/// Makes an image, splices it and reads it with every program. Returns the notes of the splice.
fn examine(recipe: &Recipe) -> Vec<SpliceNote> {
    let directory = tempfile::tempdir().unwrap();
    let original = make(recipe, directory.path());
    let Spliced { plan, notes, .. } = splice(&original).unwrap();
    let spliced = directory.path().join("spliced.iso");
    plan.write_to(&mut fs::File::create(&spliced).unwrap()).unwrap();
    let moved = notes.iter().any(|note| matches!(note, SpliceNote::RootMoved { .. }));
    for (name, with) in EXTRACTORS {
        // libarchive never seeks back to a directory, which the note reports.
        if moved && name.starts_with("bsdtar") {
            continue;
        }
        let before = extract(with, &original).unwrap_or_else(|printed| panic!("{name}, original: {printed}"));
        let mut after = extract(with, &spliced).unwrap_or_else(|printed| panic!("{name}: {printed}"));
        let count = after.len();
        after.retain(|name, content| !is_added(name, content));
        assert_eq!(count - after.len(), ADDED.len(), "{name} shows the added files: {:?}", after.keys());
        let differing: Vec<_> =
            before.iter().filter(|(path, bytes)| after.get(*path) != Some(*bytes)).collect();
        let differing: Vec<_> = differing.into_iter().map(|(path, _)| path).collect();
        assert!(
            differing.is_empty() && before.len() == after.len(),
            "{name}: {differing:?} {:?}",
            after.keys()
        );
    }
    assert_eq!(boot_entries(&original), boot_entries(&spliced));
    assert_eq!(problems(&original), problems(&spliced));
    // isovfy reports an error where genisoimage itself places a continued date; the result may have that error too.
    let verified =
        [&original, &spliced].map(|image| run("isovfy", [image]).unwrap().contains("No errors found"));
    assert!(verified[1] || !verified[0], "isovfy");
    let media =
        ["-abort_on", "SORRY", "-indev", spliced.to_str().unwrap(), "-check_media", "use=indev", "--"];
    run("xorriso", media).unwrap();
    assert!(run("7z", ["t", spliced.to_str().unwrap()]).unwrap().contains("Everything is Ok"));
    let (before, after) = (findings(&original), findings(&spliced));
    for (rule, count) in &after {
        assert!(count <= before.get(rule).unwrap_or(&0), "{rule}: {count} findings, {before:?} before");
    }
    notes
}

#[test]
#[ignore = "needs xorriso, genisoimage, isolinux, bsdtar, 7z, sgdisk, pycdlib; run by .ci/run"]
fn images_of_xorriso() {
    examine(&recipe("xorriso", "", 0, &["-r", "-J", "-V", "DATA"]));
    examine(&recipe("xorriso", "bios", 0, &["-r", "-J", "-V", "BIOS"]));
    examine(&recipe("xorriso", "efi", 0, &["-r", "-J", "-iso-level", "4", "-V", "ENHANCED"]));
}

#[test]
#[ignore = "needs xorriso, genisoimage, isolinux, bsdtar, 7z, sgdisk, pycdlib; run by .ci/run"]
fn xorriso_loads_the_result_in_spite_of_its_checksums() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(&recipe("xorriso", "bios", 0, &["-r", "-J", "-V", "SUMS", "--md5"]), directory.path());
    let Spliced { plan, notes, .. } = splice(&image).unwrap();
    assert!(notes.contains(&SpliceNote::ChecksumTagsBlanked));
    let spliced = directory.path().join("spliced.iso");
    plan.write_to(&mut fs::File::create(&spliced).unwrap()).unwrap();
    // Every file with a checksum still matches it.
    let arguments = ["-md5", "on", "-indev", spliced.to_str().unwrap(), "-check_md5_r", "SORRY", "/", "--"];
    run("xorriso", ["-abort_on", "SORRY"].into_iter().chain(arguments)).unwrap();
}

#[test]
#[ignore = "needs xorriso, genisoimage, isolinux, bsdtar, 7z, sgdisk, pycdlib; run by .ci/run"]
fn images_of_genisoimage() {
    examine(&recipe("genisoimage", "", 0, &["-r", "-J", "-V", "DATA"]));
    examine(&recipe("genisoimage", "bios", 0, &["-r", "-J", "-V", "BIOS"]));
    examine(&recipe("genisoimage", "efi", 0, &["-r", "-J", "-iso-level", "4", "-V", "ENHANCED"]));
}

#[test]
#[ignore = "needs xorriso, genisoimage, isolinux, bsdtar, 7z, sgdisk, pycdlib; run by .ci/run"]
fn hybrid_images_with_an_mbr_and_with_a_gpt() {
    let mbr = ["-r", "-J", "-V", "MBR", "-isohybrid-mbr", HYBRID_CODE];
    let notes = examine(&recipe("xorriso", "bios", 0, &mbr));
    assert!(notes.iter().any(|note| matches!(note, SpliceNote::PartitionGrown { .. })), "{notes:?}");
    let gpt = ["-r", "-J", "-V", "GPT", "-isohybrid-mbr", HYBRID_CODE];
    let notes = examine(&recipe("xorriso", "gpt", 0, &gpt));
    let grown = |wanted| {
        notes.iter().any(|note| matches!(note, SpliceNote::PartitionGrown { table, .. } if *table == wanted))
    };
    assert!(grown(PartitionTable::Mbr) && grown(PartitionTable::Gpt), "{notes:?}");
}

#[test]
#[ignore = "needs xorriso, genisoimage, isolinux, bsdtar, 7z, sgdisk, pycdlib; run by .ci/run"]
fn images_with_an_appended_system_partition() {
    let arguments = [
        "-r",
        "-J",
        "-V",
        "UBUNTU",
        "-partition_offset",
        "16",
        "--mbr-force-bootable",
        "-appended_part_as_gpt",
    ];
    let notes = examine(&recipe("xorriso", "appended", 0, &arguments));
    assert!(notes.iter().any(|note| matches!(note, SpliceNote::PartitionKept { .. })), "{notes:?}");
    assert!(notes.contains(&SpliceNote::PartitionVolumeKept { sector: 32 }));
}

#[test]
#[ignore = "needs xorriso, genisoimage, isolinux, bsdtar, 7z, sgdisk, pycdlib; run by .ci/run"]
fn roots_without_room_move() {
    for program in ["xorriso", "genisoimage"] {
        let wide = wide_enough(program);
        let notes = examine(&recipe(program, "", wide, &["-r", "-J", "-V", "WIDE"]));
        assert!(notes.contains(&SpliceNote::RootMoved { tree: "primary" }));
    }
}

/// Returns the number of directories that leave no room for another one in the primary root of a program.
fn wide_enough(program: &'static str) -> usize {
    let moves = |wide: &usize| {
        let directory = tempfile::tempdir().unwrap();
        let image = make(&recipe(program, "", *wide, &["-r", "-J", "-V", "WIDE"]), directory.path());
        splice(&image).unwrap().notes.contains(&SpliceNote::RootMoved { tree: "primary" })
    };
    (0..40).find(moves).unwrap()
}

#[test]
#[ignore = "needs xorriso, genisoimage, isolinux, bsdtar, 7z, sgdisk, pycdlib; run by .ci/run"]
fn a_bridge_to_udf_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(&recipe("genisoimage", "", 0, &["-udf", "-r", "-J", "-V", "BRIDGE"]), directory.path());
    assert!(matches!(splice(&image), Err(SpliceError::Udf)));
}

#[test]
#[ignore = "needs xorriso, genisoimage, isolinux, bsdtar, 7z, sgdisk, pycdlib; run by .ci/run"]
fn libarchive_lists_a_stream_while_the_root_stays_and_skips_directories_when_it_moved() {
    let listed = |wide| {
        let directory = tempfile::tempdir().unwrap();
        let image = make(&recipe("xorriso", "", wide, &["-r", "-J", "-V", "STREAM"]), directory.path());
        let Spliced { plan, notes, .. } = splice(&image).unwrap();
        let spliced = directory.path().join("spliced.iso");
        plan.write_to(&mut fs::File::create(&spliced).unwrap()).unwrap();
        // A pipe, which cannot seek. By Rock Ridge, because libarchive prefers Joliet when that root comes first.
        let mut cat = Command::new("cat").arg(&spliced).stdout(Stdio::piped()).spawn().unwrap();
        let output = Command::new("bsdtar")
            .args(["--options", "iso9660:!joliet", "-tf", "-"])
            .stdin(cat.stdout.take().unwrap())
            .output()
            .unwrap();
        cat.wait().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let has = |path| printed.lines().any(|line| line == path);
        (
            notes.contains(&SpliceNote::RootMoved { tree: "primary" }),
            has("dir/sub/file"),
            has("task/job.json"),
        )
    };
    assert_eq!(listed(0), (false, true, true));
    assert_eq!(listed(wide_enough("xorriso")), (true, false, true));
}
