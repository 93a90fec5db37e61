//! Hybrid images: the fields of partition tables and boot file that firmware and disk tools read.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{self, Write};

use common::{EPOCH, hybrid_plan, stream};
use iso9660::partition::{Gpt, Guid, Mbr, MbrPartition};
use iso9660::{
    BiosBoot, Boot, Content, Hybrid, Image, ImageOptions, ImagePlan, PlanError, Profile, ReadAt, Tree,
    UefiBoot,
};

fn tree() -> Tree {
    let mut tree = Tree::new();
    tree.add_file("boot/bios.img", vec![0xB1; 3001]).unwrap();
    tree.add_file("boot/efi.img", vec![0xEF; 5000]).unwrap();
    tree
}

fn options(bios: bool, uefi: bool, code: usize) -> ImageOptions {
    let path = "boot/bios.img".to_owned();
    let bios = bios.then_some(BiosBoot::new(path).with_boot_info_table(true));
    let uefi = uefi.then_some(UefiBoot::new("boot/efi.img"));
    ImageOptions::new(Profile::Boot, "HYBRID", EPOCH)
        .with_boot(Boot::new(bios, uefi))
        .with_hybrid(Hybrid::new(vec![0x90; code]))
}

fn mbr(image: &[u8]) -> Mbr {
    Mbr::parse(image[..512].try_into().unwrap()).unwrap()
}

fn offset_of(image: &[u8], path: &str) -> u64 {
    Image::open(image).unwrap().extents(path).unwrap()[0].offset
}

#[test]
fn both_partition_tables_point_to_the_uefi_image() {
    let image = stream(&hybrid_plan());
    assert_eq!(image.len() % (1 << 20), 0);
    let last = image.len() as u64 / 512 - 1;
    let (primary, backup) =
        (Gpt::read(&image, 1).unwrap().unwrap(), Gpt::read(&image, last).unwrap().unwrap());
    assert_eq!((primary.alternate, backup.alternate), (last, 1));
    assert_eq!((&primary.entries, primary.disk), (&backup.entries, backup.disk));
    let partitions: Vec<_> = primary.entries.iter().flatten().collect();
    let [partition] = partitions[..] else { panic!("{partitions:?}") };
    assert_eq!(partition.kind, Guid::EFI_SYSTEM);
    let start = offset_of(&image, "boot/efi.img");
    assert_eq!((partition.first * 512, (partition.last + 1) * 512), (start, start + 4096));
    assert!(partition.first >= primary.first_usable && partition.last <= primary.last_usable);
    assert_ne!(partition.id, primary.disk);
}

#[test]
fn the_mbr_is_protective_and_has_the_address_of_the_boot_file() {
    let image = stream(&ImagePlan::new(&tree(), &options(true, true, 432)).unwrap());
    let mbr = mbr(&image);
    assert_eq!(mbr.code[..432], [0x90; 432]);
    assert_eq!(mbr.boot_file() * 512, offset_of(&image, "boot/bios.img"));
    let [protective, active, ..] = mbr.partitions;
    assert_eq!((protective.kind, protective.status), (MbrPartition::PROTECTIVE, 0));
    assert_eq!((protective.first, protective.end() * 512), (1, image.len() as u64));
    assert_eq!((active.kind, active.status, active.first, active.sectors), (0, MbrPartition::ACTIVE, 0, 1));
    assert_ne!(mbr.disk_id, 0);

    let code_less = stream(&ImagePlan::new(&tree(), &options(true, true, 0)).unwrap());
    let mbr = self::mbr(&code_less);
    assert_eq!((mbr.code, mbr.partitions[1]), ([0; 440], MbrPartition::default()));
}

#[test]
fn without_a_uefi_image_the_mbr_has_the_image_as_its_partition_and_there_is_no_gpt() {
    let image = stream(&ImagePlan::new(&tree(), &options(true, false, 400)).unwrap());
    assert!(Gpt::read(&image, 1).unwrap().is_none());
    let [whole, ..] = mbr(&image).partitions;
    assert_eq!((whole.kind, whole.status, whole.first), (0x17, MbrPartition::ACTIVE, 0));
    assert_eq!(whole.end() * 512, image.len() as u64);
}

#[test]
fn identifiers_depend_on_names_lengths_label_and_dates_but_not_on_contents() {
    let identifiers = |content: &[u8], change: fn(&mut ImageOptions)| {
        let mut tree = tree();
        tree.add_file("file", content).unwrap();
        let mut options = options(true, true, 432);
        change(&mut options);
        let image = stream(&ImagePlan::new(&tree, &options).unwrap());
        let gpt = Gpt::read(&image, 1).unwrap().unwrap();
        (mbr(&image).disk_id, gpt.disk, gpt.entries[0].unwrap().id)
    };
    let first = identifiers(b"abc", |_| {});
    assert_eq!(first, identifiers(b"xyz", |_| {}));
    let others = [
        identifiers(b"abcd", |_| {}),
        identifiers(b"abc", |options| options.epoch += 1),
        identifiers(b"abc", |options| options.volume_id = "OTHER".into()),
    ];
    for other in others {
        assert!(other.0 != first.0 && other.1 != first.1 && other.2 != first.2);
    }
}

#[test]
fn a_boot_info_table_is_in_the_image_and_not_in_the_source() {
    let content: Vec<u8> = (0..=255).cycle().take(3001).collect();
    let mut tree = Tree::new();
    tree.add_file("boot/bios.img", content.clone()).unwrap();
    tree.add_hard_link("again", "boot/bios.img").unwrap();
    let plan = ImagePlan::new(&tree, &options(true, false, 1)).unwrap();
    let image = stream(&plan);
    let found = Image::open(image.as_slice()).unwrap().read("boot/bios.img", 1 << 20).unwrap();
    let sum = content[64..].chunks(4).fold(0_u32, |sum, word| {
        let word = word.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
        sum.wrapping_add(word)
    });
    let sector = u32::try_from(offset_of(&image, "boot/bios.img") / 2048).unwrap();
    let table: Vec<u8> = [16, sector, 3001, sum].iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(found[..8], content[..8]);
    assert_eq!(found[8..24], table);
    assert_eq!(found[24..64], [0; 40]);
    assert_eq!(found[64..], content[64..]);
    assert_eq!(Image::open(&plan).unwrap().read("again", 1 << 20).unwrap(), found);
    assert_eq!(stream(&ImagePlan::new(&tree, &options(true, false, 1)).unwrap()), image);
}

/// A source that cannot be read.
struct Broken(u64);

impl ReadAt for Broken {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_exact_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::Error::other("the disk is gone"))
    }
}

#[test]
fn a_boot_file_without_room_for_its_table_is_an_error_with_its_path() {
    let plan = |content: Content| {
        let mut tree = Tree::new();
        tree.add_file("boot/bios.img", content).unwrap();
        ImagePlan::new(&tree, &options(true, false, 1)).map(|_| ())
    };
    for (length, ends) in [(63, false), (64, true), (1 << 20, true), ((1 << 20) + 1, false)] {
        let found = plan(vec![1; length].into());
        assert_eq!(found.is_ok(), ends, "{length}");
        if let Err(error) = found {
            assert!(matches!(error, PlanError::Boot { path, .. } if path == "boot/bios.img"));
        }
    }
    // A file that is too long is refused by its length, without a read.
    assert!(matches!(plan(Content::source(Broken(u64::MAX / 4096))), Err(PlanError::Boot { .. })));
    let error = plan(Content::source(Broken(1000))).unwrap_err();
    assert!(
        matches!(&error, PlanError::BootFile { path, reason } if path == "boot/bios.img" && reason.contains("gone"))
    );
}

#[test]
fn boot_code_needs_room_and_a_bios_boot_file() {
    for (bios, uefi, code) in [(true, true, 433), (false, true, 10), (true, false, 0)] {
        let found = ImagePlan::new(&tree(), &options(bios, uefi, code)).map(|_| ());
        assert!(matches!(found, Err(PlanError::Hybrid { .. })), "{bios} {uefi} {code}");
    }
    let mut without = options(true, true, 10);
    (without.boot, without.profile) = (None, Profile::Tree);
    assert!(matches!(ImagePlan::new(&tree(), &without), Err(PlanError::Hybrid { .. })));
}

/// Returns whether a disk tool accepts an image, and its output.
fn verify(program: &str, arguments: &[&str], image: &[u8]) -> (bool, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(image).unwrap();
    let output = std::process::Command::new(program)
        .args(arguments)
        .arg(file.path())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&printed).into_owned())
}

#[test]
#[ignore = "needs sgdisk and sfdisk, run by .ci/run"]
fn disk_tools_accept_both_tables_and_detect_a_damaged_one() {
    let sgdisk = |image: &[u8]| verify("sgdisk", &["--verify"], image);
    let sfdisk = |image: &[u8]| verify("sfdisk", &["--verify"], image);
    for (bios, code) in [(true, 432), (false, 0)] {
        let image = stream(&ImagePlan::new(&tree(), &options(bios, true, code)).unwrap());
        let (accepted, printed) = sgdisk(&image);
        assert!(accepted && printed.contains("No problems found"), "{printed}");
        let (accepted, printed) = sfdisk(&image);
        assert!(accepted && printed.contains("No errors detected"), "{printed}");
        // The last entry of the backup, which only its checksum protects.
        let mut damaged = image;
        let at = damaged.len() - 600;
        damaged[at] ^= 1;
        let (_, printed) = sgdisk(&damaged);
        assert!(!printed.contains("No problems found"), "{printed}");
    }
    let bios_only = stream(&ImagePlan::new(&tree(), &options(true, false, 432)).unwrap());
    let (accepted, printed) = sfdisk(&bios_only);
    assert!(accepted && printed.contains("No errors detected"), "{printed}");
}
