//! The images of several tests.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "each test binary uses some of it")]

pub(crate) mod annotate;
pub(crate) mod counted;
pub(crate) mod faults;
pub(crate) mod hostile;
pub(crate) mod hostile_udf;
pub(crate) mod strict;
pub(crate) mod udf;

use iso9660::{BiosBoot, Boot, Hybrid, ImageOptions, ImagePlan, Profile, Tree, UefiBoot};

/// 2023-11-14 22:13:20 UTC.
pub(crate) const EPOCH: i64 = 1_700_000_000;

/// The files of a task image.
pub(crate) const TASK_FILES: [(&str, usize); 6] = [
    ("job.json", 700),
    ("recipe.json", 4096),
    ("recipe.schema.json", 10_240),
    ("user-data", 65_537),
    ("meta-data", 0),
    ("ks.cfg", 2048),
];

/// Returns the content of a file of a task image: lines that contain its name.
pub(crate) fn content(name: &str) -> Vec<u8> {
    let size = TASK_FILES.iter().find(|(file, _)| *file == name).unwrap().1;
    let lines = (0..).flat_map(|line| format!("{name} line {line}\n").into_bytes());
    lines.take(size).collect()
}

/// Returns the tree of a task image.
pub(crate) fn task_tree() -> Tree {
    let mut tree = Tree::new();
    for (name, _) in TASK_FILES {
        tree.add_file(name, content(name)).unwrap();
    }
    tree
}

/// Returns a task image.
pub(crate) fn task_plan() -> ImagePlan {
    ImagePlan::new(&task_tree(), &ImageOptions::new(Profile::Task, "TASK_0123456789A", EPOCH)).unwrap()
}

/// Returns a boot image for both firmwares.
pub(crate) fn boot_plan() -> ImagePlan {
    let mut tree = Tree::new();
    tree.add_file("boot/bios.img", vec![0xB1; 3000]).unwrap();
    tree.add_file("boot/efi.img", vec![0xEF; 4096]).unwrap();
    tree.add_file("readme.txt", "boots from both\n").unwrap();
    let mut options = ImageOptions::new(Profile::Boot, "MAINTENANCE", EPOCH);
    options.boot = Some(Boot::new(Some(BiosBoot::new("boot/bios.img")), Some(UefiBoot::new("boot/efi.img"))));
    ImagePlan::new(&tree, &options).unwrap()
}

/// Returns an image that boots from CD and USB stick, in both firmwares.
pub(crate) fn hybrid_plan() -> ImagePlan {
    let mut tree = Tree::new();
    let boot_file: Vec<u8> = (0..=255).cycle().take(3000).collect();
    tree.add_file("isolinux/isolinux.bin", boot_file).unwrap();
    tree.add_file("boot/efi.img", vec![0xEF; 4096]).unwrap();
    tree.add_file("readme.txt", "boots from everything\n").unwrap();
    let bios = BiosBoot::new("isolinux/isolinux.bin").with_boot_info_table(true);
    let options = ImageOptions::new(Profile::Boot, "HYBRID", EPOCH)
        .with_boot(Boot::new(Some(bios), Some(UefiBoot::new("boot/efi.img"))))
        .with_hybrid(Hybrid::new(vec![0x90; 432]));
    ImagePlan::new(&tree, &options).unwrap()
}

/// Returns all bytes of an image.
pub(crate) fn stream(plan: &ImagePlan) -> Vec<u8> {
    let mut bytes = Vec::new();
    plan.write_to(&mut bytes).unwrap();
    bytes
}
