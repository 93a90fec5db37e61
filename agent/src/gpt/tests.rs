use proptest::prelude::*;
use recipe::partition::{self, FsFormat, Partition, PartitionSize, PartitionType};

use super::*;
use crate::device::{Fence, FileDisk};
use crate::test_kit::{disk_image, is_filled};
use crate::wipe;

fn layout(sizes: &[&str]) -> Vec<Partition> {
    let part = |size: &&str| Partition {
        label: Some("röot".to_owned()),
        ..Partition::new(PartitionSize::parse(size).unwrap(), PartitionType::LINUX_FILESYSTEM, FsFormat::Raw)
    };
    sizes.iter().map(part).collect()
}

fn table(disk: &dyn Disk, sizes: &[&str]) -> Table {
    let placed = partition::resolve(&layout(sizes), disk.size(), disk.sector()).unwrap();
    let mut next = 0;
    Table::new(disk, &placed, || {
        next += 1;
        Uuid::from_u128(next)
    })
    .unwrap()
}

#[test]
fn a_table_is_read_back_for_both_sector_sizes_and_from_either_copy() {
    for sector in [512, 4096] {
        let (_folder, path) = disk_image(64 << 20, 0xff);
        let disk = FileDisk::open(&path, sector).unwrap();
        let written = table(&disk, &["8M", "100%"]);
        written.write(&disk).unwrap();
        let read = Table::read(&disk).unwrap().unwrap();
        assert_eq!((&read.entries, read.disk_guid), (&written.entries, written.disk_guid));
        assert_eq!(read.range(1).unwrap(), 1 << 20..9 << 20);
        assert_eq!(
            wipe::old_partitions(&disk).unwrap().len(),
            3,
            "two of the GPT, one of the protective MBR"
        );
        disk.zero(sector..2 * sector).unwrap();
        assert_eq!(Table::read(&disk).unwrap().unwrap().entries, written.entries, "the backup is taken");
        disk.zero(disk.size() - sector..disk.size()).unwrap();
        assert!(Table::read(&disk).unwrap().is_none());
    }
}

#[test]
fn the_protective_mbr_covers_the_disk() {
    let (_folder, path) = disk_image(64 << 20, 0xff);
    let disk = FileDisk::open(&path, 512).unwrap();
    table(&disk, &["100%"]).write(&disk).unwrap();
    let mut mbr = [0; 512];
    disk.read_at(0, &mut mbr).unwrap();
    assert_eq!((&mbr[510..], mbr[450]), ([0x55, 0xaa].as_slice(), 0xee));
    assert_eq!(&mbr[454..462], &[1, 0, 0, 0, 0xff, 0xff, 0x01, 0]);
}

#[test]
fn a_table_that_is_written_again_keeps_boot_code_active_flag_and_the_entries_of_a_hybrid_mbr() {
    let (_folder, path) = disk_image(64 << 20, 0);
    let disk = FileDisk::open(&path, 512).unwrap();
    table(&disk, &["8M"]).write(&disk).unwrap();
    let mut mbr = [0; 512];
    disk.read_at(0, &mut mbr).unwrap();
    mbr[0..3].copy_from_slice(&[0xeb, 0x63, 0x90]);
    mbr[440..444].copy_from_slice(b"disk");
    // Active, and as short as on the smaller disk of the image.
    mbr[446] = 0x80;
    mbr[458..462].copy_from_slice(&1000_u32.to_le_bytes());
    let again = |mbr: &[u8; 512]| {
        disk.write_at(0, mbr).unwrap();
        Table::read(&disk).unwrap().unwrap().write(&disk).unwrap();
        let mut written = [0; 512];
        disk.read_at(0, &mut written).unwrap();
        written
    };
    let mut whole = mbr;
    whole[458..462].copy_from_slice(&0x0001_ffff_u32.to_le_bytes());
    assert_eq!(again(&mbr), whole);
    // Beside other entries the protective one ends where the first of them begins.
    let mut hybrid = mbr;
    hybrid[462 + 4] = 0x0c;
    hybrid[462 + 8..462 + 16].copy_from_slice(&[0xe9, 3, 0, 0, 0, 8, 0, 0]);
    assert_eq!(again(&hybrid), hybrid);
    // What is no MBR gives its boot code and no entries.
    let mut no_mbr = hybrid;
    no_mbr[510] = 0;
    let written = again(&no_mbr);
    assert_eq!((&written[..3], written[466], written[450]), (&mbr[..3], 0, 0xee));
}

#[test]
fn the_table_of_an_image_moves_to_the_end_of_a_larger_disk_and_its_last_partition_grows() {
    let (_small, image) = disk_image(32 << 20, 0);
    let disk = FileDisk::open(&image, 512).unwrap();
    let before = table(&disk, &["8M", "4M"]);
    before.write(&disk).unwrap();
    drop(disk);
    std::fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(128 << 20).unwrap();
    let disk = FileDisk::open(&image, 512).unwrap();
    let mut moved = Table::read(&disk).unwrap().unwrap();
    assert_eq!(moved.grow_last(), Some(2));
    moved.write(&disk).unwrap();
    let after = Table::read(&disk).unwrap().unwrap();
    assert_eq!(after.range(1), before.range(1));
    assert_eq!(after.range(2).unwrap(), 9 << 20..127 << 20);
    assert_eq!(moved.grow_last(), None, "a second time changes nothing");
}

#[test]
fn an_overlap_and_a_partition_outside_of_the_disk_are_refused() {
    let (_folder, path) = disk_image(64 << 20, 0);
    let disk = FileDisk::open(&path, 512).unwrap();
    let mut twice = table(&disk, &["8M"]);
    twice.entries.push(twice.entries[0].clone());
    assert!(twice.write(&disk).unwrap_err().to_string().contains("1 and 2 overlap"));
    let mut outside = table(&disk, &["8M"]);
    outside.entries[0].as_mut().unwrap().last_lba = 1 << 40;
    assert!(outside.write(&disk).unwrap_err().to_string().contains("outside"));
    assert!(is_filled(&std::fs::read(&path).unwrap(), 0), "nothing was written");
}

#[test]
fn the_sector_size_of_an_image_is_recognised() {
    for sector in [512_u64, 4096] {
        let (_folder, path) = disk_image(16 << 20, 0);
        let disk = FileDisk::open(&path, sector).unwrap();
        table(&disk, &["100%"]).write(&disk).unwrap();
        let mut start = vec![0; 8192];
        disk.read_at(0, &mut start).unwrap();
        assert_eq!(disk_file::sector_of_image(&start), Some(sector));
    }
    assert_eq!(disk_file::sector_of_image(&[0; 8192]), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn wiping_and_partitioning_write_their_planned_ranges_and_no_other_byte(
        size in 16_u64..40,
        ragged in 0_u64..4096,
        sector in prop_oneof![Just(512_u64), Just(4096)],
        first in 1_u64..9,
    ) {
        let (_folder, path) = disk_image((size << 20) + ragged, 0xa5);
        let (_other_folder, other) = disk_image(16 << 20, 0x5a);
        let disk = FileDisk::open(&path, sector).unwrap();
        let table = table(&disk, &[&format!("{first}M"), "100%"]);
        let wiped = wipe::ranges(disk.size(), &wipe::old_partitions(&disk).unwrap());
        let planned: Vec<_> = wiped.iter().cloned().chain(Table::written(&disk)).collect();
        let fence = Fence::new(&disk, planned.clone());
        for range in &wiped {
            fence.zero(range.clone()).unwrap();
        }
        table.write(&fence).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut at = 0;
        for range in crate::device::merged(planned) {
            prop_assert!(is_filled(&bytes[at..range.start as usize], 0xa5));
            at = range.end as usize;
        }
        prop_assert!(is_filled(&bytes[at..], 0xa5));
        prop_assert!(is_filled(&std::fs::read(&other).unwrap(), 0x5a));
        prop_assert_eq!(Table::read(&disk).unwrap().unwrap().entries, table.entries);
    }

    #[test]
    fn hostile_bytes_are_no_table_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 512)) {
        let (_folder, path) = disk_image(1 << 20, 0);
        let disk = FileDisk::open(&path, 512).unwrap();
        let mut header = bytes;
        header[..8].copy_from_slice(SIGNATURE);
        header[12..16].copy_from_slice(&92_u32.to_le_bytes());
        header[16..20].fill(0);
        let crc = crc32fast::hash(&header[..92]);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        disk.write_at(512, &header).unwrap();
        let _ = Table::read(&disk);
        prop_assert!(wipe::old_partitions(&disk).is_ok());
    }
}
