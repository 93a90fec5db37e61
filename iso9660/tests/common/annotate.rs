//! An image as text: digest, segments, listings, and metadata with field names.

use std::fmt::Write;
use std::ops::ControlFlow;

use iso9660::{EntryKind, Image, ImagePlan, Namespace, Part, ReadLimits, SegmentData};
use sha2::{Digest, Sha256};

/// The fields of a volume descriptor: offset, length, name (ECMA-119 8.4).
const DESCRIPTOR: [(usize, usize, &str); 31] = [
    (0, 1, "Volume Descriptor Type"),
    (1, 5, "Standard Identifier"),
    (6, 1, "Volume Descriptor Version"),
    (7, 1, "Volume Flags"),
    (8, 32, "System Identifier"),
    (40, 32, "Volume Identifier"),
    (72, 8, "(unused)"),
    (80, 8, "Volume Space Size"),
    (88, 32, "Escape Sequences"),
    (120, 4, "Volume Set Size"),
    (124, 4, "Volume Sequence Number"),
    (128, 4, "Logical Block Size"),
    (132, 8, "Path Table Size"),
    (140, 4, "Location of Type L Path Table"),
    (144, 4, "Location of Optional Type L Path Table"),
    (148, 4, "Location of Type M Path Table"),
    (152, 4, "Location of Optional Type M Path Table"),
    (156, 34, "Directory Record for Root Directory"),
    (190, 128, "Volume Set Identifier"),
    (318, 128, "Publisher Identifier"),
    (446, 128, "Data Preparer Identifier"),
    (574, 128, "Application Identifier"),
    (702, 37, "Copyright File Identifier"),
    (739, 37, "Abstract File Identifier"),
    (776, 37, "Bibliographic File Identifier"),
    (813, 17, "Volume Creation Date and Time"),
    (830, 17, "Volume Modification Date and Time"),
    (847, 17, "Volume Expiration Date and Time"),
    (864, 17, "Volume Effective Date and Time"),
    (881, 1, "File Structure Version"),
    (882, 1166, "(reserved, application use)"),
];

/// The fields of a directory record before its identifier (ECMA-119 9.1).
const RECORD: [(usize, usize, &str); 10] = [
    (0, 1, "Length of Directory Record"),
    (1, 1, "Extended Attribute Record Length"),
    (2, 8, "Location of Extent"),
    (10, 8, "Data Length"),
    (18, 7, "Recording Date and Time"),
    (25, 1, "File Flags"),
    (26, 1, "File Unit Size"),
    (27, 1, "Interleave Gap Size"),
    (28, 4, "Volume Sequence Number"),
    (32, 1, "Length of File Identifier"),
];

/// The fields of a Master Boot Record (UEFI 5.2.1); the rows of boot code come first.
const MBR: [(usize, usize, &str); 9] = [
    (0, 432, "boot code"),
    (432, 8, "sector of the boot file"),
    (440, 4, "disk identifier"),
    (444, 2, "(reserved)"),
    (446, 16, "partition 1"),
    (462, 16, "partition 2"),
    (478, 16, "partition 3"),
    (494, 16, "partition 4"),
    (510, 2, "signature"),
];

/// The fields of a GPT header (UEFI 5.3.2).
const GPT: [(usize, usize, &str); 14] = [
    (0, 8, "Signature"),
    (8, 4, "Revision"),
    (12, 4, "HeaderSize"),
    (16, 4, "HeaderCRC32"),
    (20, 4, "(reserved)"),
    (24, 8, "MyLBA"),
    (32, 8, "AlternateLBA"),
    (40, 8, "FirstUsableLBA"),
    (48, 8, "LastUsableLBA"),
    (56, 16, "DiskGUID"),
    (72, 8, "PartitionEntryLBA"),
    (80, 4, "NumberOfPartitionEntries"),
    (84, 4, "SizeOfPartitionEntry"),
    (88, 4, "PartitionEntryArrayCRC32"),
];

/// The fields of a GPT entry (UEFI 5.3.3).
const GPT_ENTRY: [(usize, usize, &str); 6] = [
    (0, 16, "PartitionTypeGUID"),
    (16, 16, "UniquePartitionGUID"),
    (32, 8, "StartingLBA"),
    (40, 8, "EndingLBA"),
    (48, 8, "Attributes"),
    (56, 72, "PartitionName"),
];

/// The fields of a boot info table, which ISOLINUX and GRUB read from their own file.
const INFO_TABLE: [(usize, usize, &str); 5] = [
    (8, 4, "sector of the primary descriptor"),
    (12, 4, "sector of the boot file"),
    (16, 4, "length of the boot file"),
    (20, 4, "checksum"),
    (24, 40, "(reserved)"),
];

/// The longest image that is hashed completely. Of a longer one, only the metadata is hashed.
const HASHED: u64 = 64 << 20;

/// Returns the complete description of an image.
pub(crate) fn annotate(plan: &ImagePlan) -> String {
    let mut text = String::new();
    let what = if plan.len() <= HASHED { "image" } else { "metadata" };
    writeln!(text, "sha256 of the {what}: {}", digest(plan)).unwrap();
    writeln!(text, "length: {} bytes\n\nsegments", plan.len()).unwrap();
    for segment in plan.segments() {
        let name = match segment.part {
            Part::File(number) => format!("File {}", plan.file_path(number).unwrap()),
            part => format!("{part:?}"),
        };
        writeln!(text, "{:>12} {:>12}  {name} ({:?})", segment.offset, segment.len, segment.data).unwrap();
    }
    listings(&mut text, plan);
    for segment in plan.segments() {
        let SegmentData::Bytes(bytes) = segment.data else { continue };
        let base = segment.offset;
        match segment.part {
            Part::File(number) if bytes.len() >= 64 && bytes[8..12] == [16, 0, 0, 0] => {
                let path = plan.file_path(number).unwrap();
                writeln!(text, "\nboot info table of {path}, sector {}", base / 2048).unwrap();
                fields(&mut text, base, bytes, &INFO_TABLE);
                continue;
            }
            Part::File(_) => continue,
            part => writeln!(text, "\n{part:?}, sector {}", base / 2048).unwrap(),
        }
        match segment.part {
            Part::SystemArea => {
                fields(&mut text, base, bytes, &MBR);
                if let Some(header) = bytes.get(512..1024) {
                    fields(&mut text, base + 512, header, &GPT);
                    entries(&mut text, base + 1024, &bytes[1024..]);
                }
            }
            Part::BackupPartitionTable => {
                let header = bytes.len() - 512;
                entries(&mut text, base, &bytes[..header]);
                fields(&mut text, base + header as u64, &bytes[header..], &GPT);
            }
            Part::VolumeDescriptor(_) => fields(&mut text, base, bytes, &DESCRIPTOR),
            Part::Directory(..) => records(&mut text, base, bytes),
            _ => rows(&mut text, base, bytes),
        }
    }
    text
}

fn digest(plan: &ImagePlan) -> String {
    let mut hash = Sha256::new();
    if plan.len() <= HASHED {
        hash.update(super::stream(plan));
    } else {
        for segment in plan.segments() {
            if let SegmentData::Bytes(bytes) = segment.data {
                hash.update(bytes);
            }
        }
    }
    hex::encode(hash.finalize())
}

fn listings(text: &mut String, plan: &ImagePlan) {
    for namespace in [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain] {
        let Ok(image) = Image::open_with(plan, Some(namespace), ReadLimits::default()) else { continue };
        writeln!(text, "\nlisting by {namespace}").unwrap();
        image
            .walk(|path, entry| {
                let mode = entry.mode.map_or("-".to_owned(), |mode| format!("{mode:06o}"));
                let slash = match &entry.kind {
                    EntryKind::Directory => "/".to_owned(),
                    EntryKind::Symlink(target) => format!(" -> {target}"),
                    _ => String::new(),
                };
                let extents: Vec<u64> = entry.extents.iter().map(|extent| extent.offset / 2048).collect();
                writeln!(text, "{mode} {:>12} {extents:?} {path}{slash}", entry.len).unwrap();
                ControlFlow::Continue(())
            })
            .unwrap();
        for entry in image.boot_entries().unwrap() {
            writeln!(
                text,
                "boots {:?} {:?}, {} units from {}",
                entry.platform,
                entry.media,
                entry.units,
                entry.extent.offset / 2048
            )
            .unwrap();
        }
    }
}

fn fields(text: &mut String, base: u64, bytes: &[u8], fields: &[(usize, usize, &str)]) {
    for (at, length, name) in fields {
        let value = &bytes[*at..at + length];
        writeln!(text, "  {:08x} {name}: {}", base + *at as u64, value_of(value)).unwrap();
    }
}

/// Formats the value of a field: hexadecimal, then as text if printable, with the length of uniform padding.
fn value_of(value: &[u8]) -> String {
    if value.len() > 8 && value.iter().all(|byte| *byte == value[0]) {
        return format!("{} x {:02x}", value.len(), value[0]);
    }
    let kept = value
        .iter()
        .rposition(|byte| ![0, b' '].contains(byte))
        .map_or(0, |last| last + 1)
        .max(8.min(value.len()));
    let cut = if kept + 8 < value.len() {
        format!(" + {} bytes of padding", value.len() - kept)
    } else {
        String::new()
    };
    let shown = if cut.is_empty() { value } else { &value[..kept] };
    format!("{}{}{cut}", hexadecimal(shown), printable(shown))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn printable(bytes: &[u8]) -> String {
    let graphic = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    if bytes.iter().filter(|byte| graphic(byte)).count() < 3 {
        return String::new();
    }
    let shown: String =
        bytes.iter().map(|byte| if graphic(byte) { char::from(*byte) } else { '.' }).collect();
    format!("  |{shown}|")
}

fn records(text: &mut String, base: u64, bytes: &[u8]) {
    for (index, sector) in bytes.chunks(2048).enumerate() {
        let mut at = 0;
        while at < sector.len() && sector[at] != 0 {
            let record = &sector[at..at + usize::from(sector[at])];
            let base = base + (index * 2048 + at) as u64;
            let identifier = 33 + usize::from(record[32]);
            writeln!(text, "  -- Directory Record{}", printable(&record[33..identifier])).unwrap();
            fields(text, base, record, &RECORD);
            fields(text, base, record, &[(33, identifier - 33, "File Identifier")]);
            let area = identifier + usize::from(identifier % 2 == 1);
            system_use(text, base, record, area);
            at += record.len();
        }
    }
}

/// The used entries of a GPT.
fn entries(text: &mut String, base: u64, bytes: &[u8]) {
    let used = |(_, entry): &(usize, &[u8])| entry.iter().any(|byte| *byte != 0);
    for (index, entry) in bytes.chunks(128).enumerate().filter(used) {
        writeln!(text, "  -- GPT Partition Entry {}", index + 1).unwrap();
        fields(text, base + 128 * index as u64, entry, &GPT_ENTRY);
    }
}

fn system_use(text: &mut String, base: u64, record: &[u8], mut at: usize) {
    while at + 4 <= record.len() {
        let length = usize::from(record[at + 2]);
        let name = String::from_utf8_lossy(&record[at..at + 2]).into_owned();
        fields(text, base, record, &[(at, length, &name)]);
        at += length;
    }
}

/// Rows of 16 bytes, without rows of zeros.
fn rows(text: &mut String, base: u64, bytes: &[u8]) {
    for (index, row) in bytes.chunks(16).enumerate().filter(|(_, row)| row.iter().any(|byte| *byte != 0)) {
        writeln!(text, "  {:08x} {}{}", base + index as u64 * 16, hexadecimal(row), printable(row)).unwrap();
    }
}
