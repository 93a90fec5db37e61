//! The memory of `shoal iso ls --json`: a listing is written while it is read, so its size does not matter.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use iso9660::{ImageOptions, ImagePlan, Profile, Tree};
use tempfile::TempDir;

use crate::kit::binary;

/// What two runs of the same program may differ by, in KiB. A hundred thousand entries in memory are more than 200 MiB, in one
/// directory or in many.
const NOISE: u64 = 4 << 10;
const SECTOR: usize = 2048;
/// The length of a hostile image. Its reader may read four times as much, and 16 MiB more.
const HOSTILE: usize = 4 << 20;
/// The links of a hostile image. Each needs a read of its 2 KiB of attributes, and becomes 8 KiB of text: 40 MiB in memory.
const LINKS: usize = 5_000;
/// The byte of all names of a hostile image. It is no text, so it is shown as four characters.
const BYTE: u8 = 0xE9;

fn plan(
    paths: impl Iterator<Item = String>,
    options: impl FnOnce(ImageOptions) -> ImageOptions,
) -> ImagePlan {
    let mut tree = Tree::new();
    for path in paths {
        tree.add_file(&path, Vec::<u8>::new()).unwrap();
    }
    ImagePlan::new(&tree, &options(ImageOptions::new(Profile::Tree, "LISTING", 1_700_000_000))).unwrap()
}

/// Writes an image with this many directories of this many empty files.
fn image(folder: &TempDir, name: &str, directories: usize, files: usize) -> PathBuf {
    let paths = (0..directories * files)
        .map(|number| format!("dir{:04}/file{:06}.json", number / files, number % files));
    let path = folder.path().join(name);
    plan(paths, |options| options).write_to_file(&std::fs::File::create(&path).unwrap()).unwrap();
    path
}

fn both(value: usize) -> [u8; 8] {
    let value = u32::try_from(value).unwrap();
    [value.to_le_bytes(), value.to_be_bytes()].concat().try_into().unwrap()
}

/// Writes an image of 4 MB whose root has [`LINKS`] records of 64 bytes. All records refer to one area of attributes: the longest name
/// of one entry, and a target of 1.7 KiB.
fn hostile_image(folder: &TempDir) -> PathBuf {
    let good = plan(std::iter::once("file".to_owned()), |options| options.with_joliet(false));
    let mut bytes = Vec::new();
    good.write_to(&mut bytes).unwrap();
    bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
    let area = bytes.len() / SECTOR;
    let name = [&[BYTE; 245][..], b".json"].concat();
    bytes.extend([b"NM\xff\x01\x00", &name[..]].concat());
    for more in [1, 1, 1, 1, 1, 1, 0] {
        bytes.extend([b"SL\xff\x01\x00", &[more, 248][..], &[BYTE; 248]].concat());
    }
    bytes.resize((area + 1) * SECTOR, 0);
    // The record of the root in the primary descriptor, and the record that the root has of itself.
    let root = 16 * SECTOR + 156;
    let block = u32::from_le_bytes(bytes[root + 2..root + 6].try_into().unwrap());
    let itself = usize::try_from(block).unwrap() * SECTOR;
    let itself = bytes[itself..itself + usize::from(bytes[itself])].to_vec();
    let start = bytes.len();
    bytes.extend(itself);
    let mut link = vec![0; 64];
    (link[0], link[32], link[33], link[34]) = (64, 2, b'A', b'A');
    let to_area = [both(area), both(0), both(SECTOR)].concat();
    link[36..].copy_from_slice(&[b"CE\x1c\x01", &to_area[..]].concat());
    for _ in 0..LINKS {
        if bytes.len() % SECTOR + link.len() > SECTOR {
            bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        }
        bytes.extend(&link);
    }
    bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
    bytes.splice(root + 2..root + 18, [both(start / SECTOR), both(bytes.len() - start)].concat());
    assert!(bytes.len() < HOSTILE);
    bytes.resize(HOSTILE, 0);
    let path = folder.path().join("hostile.iso");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The peak of a process's memory in KiB; `None` after its end.
fn peak(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

/// Lists an image and returns the number of listed entries and the peak of the memory. The program cannot write more than a pipe
/// holds before its peak is read again, so the last peak that is read is that of nearly the whole listing.
fn listed(path: &Path) -> (usize, u64) {
    let mut command = binary(&["iso", "ls", "-R", "--json", path.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let (mut entries, mut memory) = (0, 0);
    let mut piece = vec![0; 1 << 16];
    loop {
        memory = peak(child.id()).unwrap_or(memory);
        match out.read(&mut piece).unwrap() {
            0 => break,
            length => entries += piece[..length].windows(6).filter(|text| text == b".json\"").count(),
        }
    }
    assert!(child.wait().unwrap().success());
    (entries, memory)
}

#[test]
fn a_listing_of_a_hundred_thousand_entries_takes_the_memory_of_a_thousand() {
    let folder = tempfile::tempdir().unwrap();
    let (few, least) = listed(&image(&folder, "small.iso", 10, 100));
    assert!(few > 900 && least > 0, "{few} entries, {least} KiB");
    for (directories, files) in [(1_000, 100), (1, 100_000)] {
        let (many, most) = listed(&image(&folder, "large.iso", directories, files));
        // A name that two pieces share is not counted.
        assert!(many > 95_000, "{many} entries");
        assert!(
            most <= least + NOISE,
            "{least} KiB for {few} entries, {most} KiB for {many} in {directories}"
        );
    }
}

/// A regression: all entries were kept in memory, 2.8 GiB for such an image.
#[test]
fn a_listing_of_a_small_image_of_long_names_takes_the_memory_of_an_ordinary_one() {
    let folder = tempfile::tempdir().unwrap();
    let (few, least) = listed(&image(&folder, "small.iso", 10, 100));
    let (links, most) = listed(&hostile_image(&folder));
    assert!(links > LINKS * 9 / 10, "{links} links");
    assert!(
        least > 0 && most <= least + NOISE,
        "{least} KiB for {few} entries, {most} KiB for {links} links"
    );
}
