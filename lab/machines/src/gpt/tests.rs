use std::{io::Write, os::unix::fs::FileExt, process::Command};

use proptest::prelude::*;
use uuid::{Uuid, uuid};

use super::*;

const LINUX: Uuid = uuid!("0FC63DAF-8483-4772-8E79-3D69D8477DE4");
const ESP: Uuid = uuid!("C12A7328-F81F-11D2-BA4B-00A0C93EC93B");

fn entry(type_guid: Uuid, first_lba: u64, last_lba: u64, name: &str) -> GptEntry {
    GptEntry {
        type_guid,
        unique_guid: Uuid::new_v5(&type_guid, name.as_bytes()),
        first_lba,
        last_lba,
        attributes: 0,
        name: name.to_owned(),
    }
}

fn two_partitions() -> GptTable {
    GptTable::new(
        uuid!("11111111-2222-3333-4444-555555555555"),
        131_072,
        vec![entry(ESP, 2048, 34_815, "EFI"), entry(LINUX, 34_816, 131_038, "röot")],
    )
    .unwrap()
}

#[test]
fn guids_are_stored_mixed_endian_as_the_specification_prints_them() {
    let encoded = two_partitions().encode();
    // The bytes of the EFI system partition type on every UEFI disk.
    assert_eq!(hex::encode(&encoded.primary[1024..1040]), "28732ac11ff8d211ba4b00a0c93ec93b");
    assert_eq!(hex::encode(&encoded.primary[512 + 56..512 + 72]), "11111111222233334444555555555555");
}

#[test]
fn header_fields_are_at_the_offsets_of_table_5_5() {
    let encoded = two_partitions().encode();
    let header = &encoded.primary[512..1024];
    assert_eq!(&header[0..8], b"EFI PART");
    assert_eq!(hex::encode(&header[8..16]), "000001005c000000");
    assert_eq!(u64_at(header, 24), 1);
    assert_eq!(u64_at(header, 32), 131_071);
    assert_eq!((u64_at(header, 40), u64_at(header, 48)), (34, 131_038));
    assert_eq!(u64_at(header, 72), 2);
    assert_eq!(encoded.backup_lba, 131_039);
    let backup = &encoded.backup[encoded.backup.len() - 512..];
    assert_eq!((u64_at(backup, 24), u64_at(backup, 32), u64_at(backup, 72)), (131_071, 1, 131_039));
}

#[test]
fn crc32_is_the_algorithm_of_the_specification() {
    // The check value of CRC-32/ISO-HDLC, which UEFI names for both fields.
    assert_eq!(crc32fast::hash(b"123456789"), 0xCBF4_3926);
    let encoded = two_partitions().encode();
    let entries_crc = u32_at(&encoded.primary, 512 + 88);
    assert_eq!(entries_crc, crc32fast::hash(&encoded.primary[1024..]));
}

#[test]
fn protective_mbr_covers_the_disk_up_to_two_tebibytes() {
    let small = protective_mbr(131_072);
    assert_eq!(hex::encode(&small[446..462]), "00000200eeffffff01000000ffff0100");
    assert_eq!(&small[510..], [0x55, 0xAA]);
    let large = protective_mbr(1 << 33);
    assert_eq!(hex::encode(&large[458..462]), "ffffffff");
}

#[test]
fn a_decoded_table_equals_the_encoded_table() {
    let table = two_partitions();
    let encoded = table.encode();
    assert_eq!(GptTable::decode(&encoded.primary, &encoded.backup, 131_072).unwrap(), table);
}

#[test]
fn any_flipped_byte_of_either_copy_is_detected() {
    let encoded = two_partitions().encode();
    for position in (0..encoded.primary.len()).step_by(7) {
        let mut primary = encoded.primary.clone();
        primary[position] ^= 0x10;
        assert!(GptTable::decode(&primary, &encoded.backup, 131_072).is_err(), "primary byte {position}");
    }
    for position in (0..encoded.backup.len()).step_by(7) {
        let mut backup = encoded.backup.clone();
        backup[position] ^= 0x10;
        assert!(GptTable::decode(&encoded.primary, &backup, 131_072).is_err(), "backup byte {position}");
    }
}

#[test]
fn layouts_that_break_an_invariant_are_refused_with_the_broken_rule() {
    let guid = Uuid::nil();
    let refuse = |entries| GptTable::new(guid, 131_072, entries).unwrap_err();
    assert!(matches!(refuse(vec![entry(ESP, 33, 40, "a")]), GptError::OutOfBounds { number: 1, .. }));
    assert!(matches!(refuse(vec![entry(ESP, 100, 131_039, "a")]), GptError::OutOfBounds { .. }));
    assert!(matches!(refuse(vec![entry(ESP, 100, 99, "a")]), GptError::OutOfBounds { .. }));
    assert_eq!(
        refuse(vec![entry(ESP, 200, 300, "a"), entry(LINUX, 100, 200, "b")]),
        GptError::Overlap { first: 2, second: 1 }
    );
    assert_eq!(refuse(vec![entry(Uuid::nil(), 100, 200, "a")]), GptError::NilType { number: 1 });
    assert_eq!(refuse(vec![entry(ESP, 100, 200, &"x".repeat(37))]), GptError::NameTooLong { number: 1 });
    assert!(matches!(GptTable::new(guid, 60, Vec::new()), Err(GptError::DiskTooSmall { .. })));
    let many = (0..129).map(|n| entry(ESP, 100 + n, 100 + n, "a")).collect();
    assert_eq!(refuse(many), GptError::TooManyPartitions { count: 129 });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_layout_without_overlap_is_unchanged_after_a_round_trip(
        sizes in proptest::collection::vec(1u64..5_000, 0..40),
        names in proptest::collection::vec("[ -~äöü€]{0,36}", 40),
    ) {
        let mut next = 2048;
        let mut entries = Vec::new();
        for (size, name) in sizes.iter().zip(&names) {
            entries.push(entry(LINUX, next, next + size - 1, name));
            next += size;
        }
        let sectors = next + 2048;
        let table = GptTable::new(ESP, sectors, entries).unwrap();
        let encoded = table.encode();
        prop_assert_eq!(GptTable::decode(&encoded.primary, &encoded.backup, sectors).unwrap(), table);
    }

    #[test]
    fn decoding_arbitrary_bytes_never_panics(primary in proptest::collection::vec(any::<u8>(), 34 * 512), sectors in 0u64..100_000) {
        let backup = vec![0u8; 33 * 512];
        prop_assert!(GptTable::decode(&primary, &backup, sectors).is_err());
    }
}

#[test]
#[ignore = "needs sgdisk (gdisk) and sfdisk (fdisk), run by .ci/run"]
fn sgdisk_and_sfdisk_report_no_problem() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let encoded = two_partitions().encode();
    file.write_all(&encoded.primary).unwrap();
    file.as_file().set_len(131_072 * SECTOR).unwrap();
    file.as_file().write_all_at(&encoded.backup, encoded.backup_lba * SECTOR).unwrap();
    let sgdisk = Command::new("sgdisk").arg("-v").arg(file.path()).output().unwrap();
    let said = String::from_utf8_lossy(&sgdisk.stdout).into_owned();
    assert!(sgdisk.status.success() && said.contains("No problems found"), "{said}");
    let sfdisk = Command::new("sfdisk").arg("--verify").arg(file.path()).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&sfdisk.stdout), String::from_utf8_lossy(&sfdisk.stderr));
    assert!(sfdisk.status.success() && said.contains("No errors detected"), "{said}");
}
