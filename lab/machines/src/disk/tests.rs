use std::os::unix::fs::{FileExt, MetadataExt};

use super::*;

const MIB_SECTORS: u64 = 2048;

fn entry(type_guid: Uuid, first_mib: u64, mib: u64, name: &str) -> GptEntry {
    GptEntry {
        type_guid,
        unique_guid: Uuid::new_v5(&type_guid, name.as_bytes()),
        first_lba: first_mib * MIB_SECTORS,
        last_lba: (first_mib + mib) * MIB_SECTORS - 1,
        attributes: 0,
        name: name.to_owned(),
    }
}

fn disk(path: &Path, entries: Vec<GptEntry>) -> DiskImage {
    let mut disk = DiskImage::create(path, 2 << 30).unwrap();
    let table = GptTable::new(Uuid::from_u128(7), disk.sectors(), entries).unwrap();
    disk.write_table(table).unwrap();
    disk
}

fn usual() -> Vec<GptEntry> {
    vec![entry(EFI_SYSTEM, 1, 64, "ESP"), entry(LINUX_FILESYSTEM, 65, 1900, "root")]
}

fn content() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let text = b"NAME=x\nPRETTY_NAME=\"Test Linux 1\"\n";
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "etc/os-release", text.as_slice()).unwrap();
    tar.into_inner().unwrap()
}

fn installed(path: &Path) -> DiskImage {
    let disk = disk(path, usual());
    disk.write_record(&disk.root().unwrap(), RecordKind::Content, "sha256:abc", &content()).unwrap();
    disk.write_loader("sha256:abc").unwrap();
    disk
}

fn refusal(path: &Path) -> String {
    verify(path).unwrap_err().to_string()
}

#[test]
fn an_installed_disk_verifies_and_is_sparse() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/sda.disk");
    installed(&path);
    let found = verify(&path).unwrap();
    assert_eq!((found.image_digest.as_str(), found.os_name.as_str()), ("sha256:abc", "Test Linux 1"));
    assert_eq!((found.entries, found.content_bytes), (1, content().len() as u64));
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 2 << 30);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
}

#[test]
fn a_blank_or_partly_written_disk_does_not_boot() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sda.disk");
    assert!(matches!(verify(&path), Err(DiskError::Blank { .. })));
    drop(DiskImage::create(&path, 1 << 20).unwrap());
    assert!(matches!(verify(&path), Err(DiskError::Blank { .. })));
    let disk = disk(&path, usual());
    assert!(refusal(&path).contains("it holds no record"));
    // The power was cut: the payload is written, the header is not.
    let mut writer = disk.begin_record(&disk.root().unwrap(), RecordKind::Content).unwrap();
    writer.write_all(&content()).unwrap();
    writer.flush().unwrap();
    drop(writer);
    assert!(refusal(&path).contains("it holds no record"));
    disk.write_record(&disk.root().unwrap(), RecordKind::Content, "sha256:abc", &content()).unwrap();
    assert_eq!(refusal(&path), "the EFI system partition: it holds no record");
}

#[test]
fn a_changed_byte_in_table_header_or_payload_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sda.disk");
    let disk = installed(&path);
    let (root, esp) = (disk.root().unwrap(), disk.efi_system().unwrap());
    let header = HEADER_BYTES as u64;
    for offset in [
        446,
        512,
        1024,
        root.offset() + 20,
        root.offset() + header + 3,
        root.offset() + header + 600,
        esp.offset() + 40,
        esp.offset() + header + 8,
    ] {
        let mut byte = [0u8];
        disk.file.read_exact_at(&mut byte, offset).unwrap();
        disk.file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
        assert!(verify(&path).is_err(), "byte {offset}");
        disk.file.write_all_at(&byte, offset).unwrap();
        assert!(verify(&path).is_ok(), "byte {offset} restored");
    }
}

#[test]
fn a_loader_of_another_image_and_a_record_of_another_partition_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sda.disk");
    let disk = installed(&path);
    disk.write_loader("sha256:other").unwrap();
    assert!(refusal(&path).contains("names another root partition or image"));
    let mut moved = usual();
    moved[1].unique_guid = Uuid::from_u128(9);
    let mut disk = installed(&path);
    disk.write_table(GptTable::new(Uuid::from_u128(7), disk.sectors(), moved).unwrap()).unwrap();
    assert!(refusal(&path).contains("belongs to another partition"));
}

#[test]
fn a_record_larger_than_the_partition_is_refused_and_changes_no_other_partition() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sda.disk");
    let small = vec![entry(EFI_SYSTEM, 1, 1, "ESP"), entry(LINUX_FILESYSTEM, 2, 1, "root")];
    let disk = disk(&path, small);
    let full = disk.write_record(&disk.efi_system().unwrap(), RecordKind::Loader, "x", &vec![1u8; 1 << 20]);
    let full = std::error::Error::source(&full.unwrap_err()).unwrap().to_string();
    assert!(full.contains("room for 1044480 bytes"), "{full}");
    let mut next = [1u8; 512];
    disk.file.read_exact_at(&mut next, disk.root().unwrap().offset()).unwrap();
    assert_eq!(next, [0u8; 512]);
}

#[test]
fn a_missing_root_or_efi_system_partition_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sda.disk");
    let only_esp = disk(&path, vec![entry(EFI_SYSTEM, 1, 64, "ESP")]);
    assert_eq!(only_esp.root().unwrap_err().to_string(), "the disk has no Linux root partition");
    let only_root = disk(
        &path,
        vec![entry(LINUX_FILESYSTEM, 1, 64, CONFIG_DRIVE_NAME), entry(LINUX_ROOT_X86_64, 65, 64, "")],
    );
    assert_eq!(only_root.root().unwrap().type_guid, LINUX_ROOT_X86_64);
    assert_eq!(only_root.config_drive().unwrap().name, CONFIG_DRIVE_NAME);
    assert_eq!(only_root.write_loader("x").unwrap_err().to_string(), "the disk has no EFI system partition");
}
