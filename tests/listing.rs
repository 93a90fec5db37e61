//! The memory of `shoal iso ls --json`: a listing is written while it is read, so its size does not matter.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use iso9660::{ImageOptions, ImagePlan, Profile, Tree};

use crate::kit::binary;

const FILES: usize = 100;
/// What two runs of the same program may differ by, in KiB. A hundred thousand entries in memory are more than 200 MiB.
const NOISE: u64 = 4 << 10;

/// Writes an image with this many directories of [`FILES`] empty files.
fn image(path: &Path, directories: usize) {
    let mut tree = Tree::new();
    for directory in 0..directories {
        for file in 0..FILES {
            tree.add_file(&format!("dir{directory:04}/file{file:03}.json"), Vec::<u8>::new()).unwrap();
        }
    }
    let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Tree, "LISTING", 1_700_000_000)).unwrap();
    plan.write_to_file(&std::fs::File::create(path).unwrap()).unwrap();
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
    let (small, large) = (folder.path().join("small.iso"), folder.path().join("large.iso"));
    image(&small, 10);
    image(&large, 1_000);
    let (few, least) = listed(&small);
    let (many, most) = listed(&large);
    // A name that two pieces share is not counted.
    assert!(few > 900 && many > 95_000, "{few} and {many} entries");
    assert!(least > 0 && most <= least + NOISE, "{least} KiB for {few} entries, {most} KiB for {many}");
}
